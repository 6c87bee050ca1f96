//! Dynptrs of programs on the CPU: an address and a size on the program's stack, as on the device.
//! Nothing is proved of such a program, so what it makes of those bytes is checked like any other
//! address when it is used.

use warpbpf_abi::costs::DYNPTR_MOST;
use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::maps::{E2BIG, EINVAL};
use warpbpf_ebpf::TrapKind;

use super::helpers::MOST;
use super::machine::Cpu;

/// An empty one.
const NONE: (u64, u64) = (0, 0);

impl Cpu<'_> {
    pub(super) fn dynptr_helper(
        &mut self,
        helper: HelperId,
        args: [u64; 5],
    ) -> Result<u64, TrapKind> {
        let size = |arg: u64| u64::from(arg as u32);
        match helper {
            HelperId::DynptrFromMem => {
                let made = Self::verdict(size(args[1]), args[2]).map(|()| (args[0], size(args[1])));
                self.make_dynptr(args[3], made)
            }
            HelperId::RingbufReserveDynptr => {
                let (map, _) = self.map(args[0])?;
                let bytes = size(args[1]);
                let made = match Self::verdict(bytes, args[2]) {
                    Ok(()) if bytes > MOST => Err(EINVAL),
                    Ok(()) => Ok((self.hold(map, None, vec![0; bytes as usize]), bytes)),
                    Err(errno) => Err(errno),
                };
                self.make_dynptr(args[3], made)
            }
            HelperId::RingbufSubmitDynptr | HelperId::RingbufDiscardDynptr => {
                let (start, _) = self.dynptr(args[0])?;
                if start == 0 {
                    return Ok(0);
                }
                let (map, record) = self.release(start)?;
                if helper == HelperId::RingbufSubmitDynptr {
                    // Linux's has no result either; who has no room counts it.
                    let _ = self.world.output(map, &record);
                }
                self.make_dynptr(args[0], Ok(NONE))
            }
            HelperId::DynptrRead => {
                let length = size(args[1]);
                let found = self.piece(args[2], size(args[3]), length, args[4])?;
                let bytes = match found {
                    Ok(from) => self.bytes(from, length)?,
                    Err(_) => vec![0; self.bytes(args[0], length)?.len()],
                };
                self.write(args[0], &bytes)?;
                Ok(found.map_or_else(|errno| errno as u64, |_| 0))
            }
            HelperId::DynptrWrite => {
                let length = size(args[3]);
                let bytes = self.bytes(args[2], length)?;
                match self.piece(args[0], size(args[1]), length, args[4])? {
                    Ok(to) => self.write(to, &bytes).map(|()| 0),
                    Err(errno) => Ok(errno as u64),
                }
            }
            _ => {
                let found = self.piece(args[0], size(args[1]), size(args[2]), 0)?;
                Ok(found.unwrap_or(0))
            }
        }
    }

    fn verdict(size: u64, flags: u64) -> Result<(), i64> {
        match (size > DYNPTR_MOST, flags) {
            (true, _) => Err(E2BIG),
            (false, 0) => Ok(()),
            (false, _) => Err(EINVAL),
        }
    }

    /// Writes a dynptr, an empty one if there is none, and gives the helper's result.
    fn make_dynptr(&mut self, at: u64, made: Result<(u64, u64), i64>) -> Result<u64, TrapKind> {
        let (start, size) = made.unwrap_or(NONE);
        self.write(at, &start.to_le_bytes())?;
        self.write(at.wrapping_add(8), &size.to_le_bytes())?;
        Ok(made.map_or_else(|errno| errno as u64, |_| 0))
    }

    /// Address and size of what a dynptr stands for.
    fn dynptr(&self, at: u64) -> Result<(u64, u64), TrapKind> {
        let word = |at: u64| {
            let bytes = self.bytes(at, 8)?;
            Ok(bytes
                .iter()
                .rev()
                .fold(0u64, |word, byte| word << 8 | u64::from(*byte)))
        };
        Ok((word(at)?, word(at.wrapping_add(8))?))
    }

    /// Address of `length` bytes of a dynptr, or why there is none.
    fn piece(
        &self,
        at: u64,
        offset: u64,
        length: u64,
        flags: u64,
    ) -> Result<Result<u64, i64>, TrapKind> {
        let (start, size) = self.dynptr(at)?;
        Ok(match start {
            _ if flags != 0 => Err(EINVAL),
            0 => Err(EINVAL),
            _ if offset + length > size => Err(E2BIG),
            _ => Ok(start.wrapping_add(offset)),
        })
    }
}
