//! The helpers that programs on the CPU are served, as the table of helpers describes them.

use warpbpf_abi::format::{Conversion, Piece, pieces};
use warpbpf_abi::helpers::{HelperId, by_id};
use warpbpf_abi::linux::GET_FUNC_IP;
use warpbpf_abi::maps::{EFAULT, EINVAL};
use warpbpf_ebpf::{Callback, TrapKind, bpf_loop};

use super::clock::Clock;
use super::machine::Cpu;
use super::surroundings::Coordinates;

/// Most bytes of a message or a string.
const TEXT: usize = 1024;
/// Most bytes that a helper copies.
pub(super) const MOST: u64 = 1 << 20;

/// Whether programs on the CPU may call the helper of this number.
pub(super) fn is_served(id: u32, gpu: bool) -> bool {
    if id == GET_FUNC_IP {
        return !gpu;
    }
    by_id(id).is_some_and(|helper| is_served_of_table(helper.kind, gpu))
}

fn is_served_of_table(helper: HelperId, gpu: bool) -> bool {
    match helper {
        HelperId::MapLookupElem
        | HelperId::MapUpdateElem
        | HelperId::MapDeleteElem
        | HelperId::MapPushElem
        | HelperId::MapPopElem
        | HelperId::ProbeRead
        | HelperId::ProbeReadStr
        | HelperId::ProbeReadUser
        | HelperId::ProbeReadUserStr
        | HelperId::ProbeReadKernel
        | HelperId::ProbeReadKernelStr
        | HelperId::KtimeGetNs
        | HelperId::KtimeGetBootNs
        | HelperId::KtimeGetCoarseNs
        | HelperId::KtimeGetTaiNs
        | HelperId::TracePrintk
        | HelperId::GetPrandomU32
        | HelperId::GetSmpProcessorId
        | HelperId::GetNumaNodeId
        | HelperId::GetCurrentPidTgid
        | HelperId::GetCurrentUidGid
        | HelperId::GetCurrentComm
        | HelperId::PerfEventOutput
        | HelperId::RingbufOutput
        | HelperId::RingbufReserve
        | HelperId::RingbufSubmit
        | HelperId::RingbufDiscard
        | HelperId::DynptrFromMem
        | HelperId::RingbufReserveDynptr
        | HelperId::RingbufSubmitDynptr
        | HelperId::RingbufDiscardDynptr
        | HelperId::DynptrRead
        | HelperId::DynptrWrite
        | HelperId::DynptrData
        | HelperId::Loop
        | HelperId::Strncmp => true,
        HelperId::GpuPuts
        | HelperId::GpuGlobaltimer
        | HelperId::GpuBlockIdx
        | HelperId::GpuBlockDim
        | HelperId::GpuThreadIdx
        | HelperId::GpuGridDim
        | HelperId::GpuMembar
        | HelperId::GpuExit
        | HelperId::GpuSmId
        | HelperId::GpuWarpId
        | HelperId::GpuLaneId => gpu,
        // The rest is about a group of lanes, or looks through a map on the device, or at a ring
        // there: what a program on the CPU sends goes to the tool, through no ring that has
        // positions.
        _ => false,
    }
}

/// A result as the program gets it: 0, or an error.
fn done(result: Result<(), i64>) -> u64 {
    result.map_or_else(|errno| errno as u64, |()| 0)
}

impl Cpu<'_> {
    pub(super) fn helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        if id == GET_FUNC_IP {
            return Ok(self.world.function());
        }
        let Some(helper) = by_id(id) else {
            return Err(TrapKind::NoHelper { id });
        };
        match helper.kind {
            HelperId::MapLookupElem => {
                let (map, def) = self.map(args[0])?;
                let key = self.bytes(args[1], def.key_size.into())?;
                Ok(match self.world.lookup(map, &key) {
                    Ok(value) => self.hold(map, Some(&key), value),
                    Err(_) => 0,
                })
            }
            HelperId::MapUpdateElem => {
                let (map, def) = self.map(args[0])?;
                let key = self.bytes(args[1], def.key_size.into())?;
                let value = self.bytes(args[2], def.value_size.into())?;
                Ok(done(self.world.update(map, &key, &value, args[3])))
            }
            HelperId::MapDeleteElem => {
                let (map, def) = self.map(args[0])?;
                let key = self.bytes(args[1], def.key_size.into())?;
                Ok(done(self.world.delete(map, &key)))
            }
            HelperId::MapPushElem => {
                let (map, def) = self.map(args[0])?;
                let value = self.bytes(args[1], def.value_size.into())?;
                Ok(done(self.world.push(map, &value, args[2])))
            }
            HelperId::MapPopElem => {
                let (map, def) = self.map(args[0])?;
                let value = self.world.pop(map);
                let size = def.value_size as usize;
                let mut bytes = value.clone().unwrap_or_default();
                bytes.resize(size, 0);
                self.write(args[1], &bytes)?;
                Ok(done(value.map(|_| ())))
            }
            HelperId::ProbeRead | HelperId::ProbeReadUser | HelperId::ProbeReadKernel => {
                self.read(args[0], u64::from(args[1] as u32), args[2])
            }
            HelperId::ProbeReadStr | HelperId::ProbeReadUserStr | HelperId::ProbeReadKernelStr => {
                self.read_text(args[0], u64::from(args[1] as u32), args[2])
            }
            HelperId::KtimeGetNs | HelperId::KtimeGetCoarseNs | HelperId::GpuGlobaltimer => {
                Ok(self.world.clock(Clock::Monotonic))
            }
            HelperId::KtimeGetBootNs => Ok(self.world.clock(Clock::Boot)),
            HelperId::KtimeGetTaiNs => Ok(self.world.clock(Clock::Tai)),
            HelperId::TracePrintk => self.print(args),
            HelperId::GpuPuts => {
                let text = self.text(args[0])?;
                self.world.print(&String::from_utf8_lossy(&text));
                Ok(text.len() as u64)
            }
            HelperId::GetPrandomU32 => Ok(self.world.random().into()),
            HelperId::GetSmpProcessorId => Ok(match self.world.coordinates() {
                Some(at) => at.sm,
                None => self.world.cpu(),
            }
            .into()),
            HelperId::GetNumaNodeId | HelperId::GpuMembar => Ok(0),
            HelperId::GetCurrentPidTgid => Ok(self.world.pid_tgid()),
            HelperId::GetCurrentUidGid => Ok(self.world.uid_gid()),
            HelperId::GetCurrentComm => {
                let size = args[1].min(16) as usize;
                let mut name = self.world.comm();
                if let Some(last) = size.checked_sub(1) {
                    name[last] = 0;
                }
                self.write(args[0], &name[..size])?;
                Ok(0)
            }
            HelperId::PerfEventOutput => {
                let (map, _) = self.map(args[1])?;
                let record = self.bytes(args[3], args[4].min(MOST))?;
                Ok(done(self.world.output(map, &record)))
            }
            HelperId::RingbufOutput => {
                let (map, _) = self.map(args[0])?;
                let record = self.bytes(args[1], args[2].min(MOST))?;
                Ok(done(self.world.output(map, &record)))
            }
            HelperId::RingbufReserve => {
                let (map, _) = self.map(args[0])?;
                if args[1] > MOST {
                    return Ok(0);
                }
                Ok(self.hold(map, None, vec![0; args[1] as usize]))
            }
            HelperId::RingbufSubmit => {
                let (map, record) = self.release(args[0])?;
                // Linux's has no result either; who has no room counts it.
                let _ = self.world.output(map, &record);
                Ok(0)
            }
            HelperId::RingbufDiscard => self.release(args[0]).map(|_| 0),
            HelperId::DynptrFromMem
            | HelperId::RingbufReserveDynptr
            | HelperId::RingbufSubmitDynptr
            | HelperId::RingbufDiscardDynptr
            | HelperId::DynptrRead
            | HelperId::DynptrWrite
            | HelperId::DynptrData => self.dynptr_helper(helper.kind, args),
            HelperId::Loop => bpf_loop(self, args, callback),
            HelperId::Strncmp => {
                let given = self.bytes(args[0], u64::from(args[1] as u32))?;
                let other = self.text(args[2])?;
                Ok(compare(&given, &other) as u64)
            }
            HelperId::GpuExit => {
                self.exited = true;
                let reason = "the thread ends";
                Err(TrapKind::Helper { id, reason })
            }
            HelperId::GpuBlockIdx => self.dimensions(args, |at| at.block),
            HelperId::GpuBlockDim => self.dimensions(args, |at| at.block_dim),
            HelperId::GpuThreadIdx => self.dimensions(args, |at| at.thread),
            HelperId::GpuGridDim => self.dimensions(args, |at| at.grid_dim),
            HelperId::GpuSmId => Ok(self.coordinates().sm.into()),
            HelperId::GpuWarpId => Ok(self.coordinates().warp.into()),
            HelperId::GpuLaneId => Ok(self.coordinates().lane.into()),
            _ => Err(TrapKind::NoHelper { id }),
        }
    }

    fn coordinates(&self) -> Coordinates {
        self.world.coordinates().unwrap_or_default()
    }

    fn dimensions(
        &mut self,
        args: [u64; 5],
        which: fn(Coordinates) -> [u32; 3],
    ) -> Result<u64, TrapKind> {
        let values = which(self.coordinates());
        for (place, value) in args.iter().zip(values) {
            self.write(*place, &u64::from(value).to_le_bytes())?;
        }
        Ok(0)
    }

    /// Copies the process's memory to where a program points to: 0, or `-EFAULT` and zeroes.
    fn read(&mut self, to: u64, size: u64, from: u64) -> Result<u64, TrapKind> {
        let mut bytes = vec![0; self.bytes(to, size)?.len()];
        let all = self.read_any(from, &mut bytes);
        if !all {
            bytes.fill(0);
        }
        self.write(to, &bytes)?;
        Ok(if all { 0 } else { EFAULT as u64 })
    }

    /// Reads what the program itself points to, or else the memory of the process. A process that
    /// asks for addresses where the program's memory is cannot have those read.
    fn read_any(&mut self, from: u64, into: &mut [u8]) -> bool {
        match self.bytes(from, into.len() as u64) {
            Ok(own) => {
                into.copy_from_slice(&own);
                true
            }
            Err(_) => self.world.read(from, into),
        }
    }

    /// A string of the process or the program, at most `most` bytes of it without its NUL.
    fn string(&mut self, from: u64, most: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < most {
            let mut byte = [0];
            if !self.read_any(from.wrapping_add(text.len() as u64), &mut byte) {
                return None;
            }
            if byte[0] == 0 {
                break;
            }
            text.push(byte[0]);
        }
        Some(text)
    }

    fn read_text(&mut self, to: u64, size: u64, from: u64) -> Result<u64, TrapKind> {
        let mut bytes = vec![0; self.bytes(to, size)?.len()];
        let Some(most) = bytes.len().checked_sub(1) else {
            return Ok(0);
        };
        let text = self.string(from, most);
        let result = match &text {
            Some(text) => {
                bytes[..text.len()].copy_from_slice(text);
                text.len() as u64 + 1
            }
            None => EFAULT as u64,
        };
        self.write(to, &bytes)?;
        Ok(result)
    }

    /// A string of the program's, without its NUL.
    fn text(&self, address: u64) -> Result<Vec<u8>, TrapKind> {
        let mut text = Vec::new();
        while text.len() < TEXT {
            match self.bytes(address + text.len() as u64, 1)?[..] {
                [byte] if byte != 0 => text.push(byte),
                _ => break,
            }
        }
        Ok(text)
    }

    fn print(&mut self, args: [u64; 5]) -> Result<u64, TrapKind> {
        let format = self.bytes(args[0], args[1].min(TEXT as u64))?;
        let mut values = args[2..].iter();
        let mut out = Vec::new();
        for piece in pieces(&format) {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Refused { .. } => return Ok(EINVAL as u64),
                Piece::Value { spec, .. } => {
                    let Some(value) = values.next() else {
                        return Ok(EINVAL as u64);
                    };
                    if spec.conversion == Conversion::String {
                        let text = self.string(*value, TEXT).unwrap_or_default();
                        spec.print_text(&text, &mut out);
                    } else {
                        spec.print(*value, &mut out);
                    }
                }
            }
        }
        self.world.print(&String::from_utf8_lossy(&out));
        Ok(out.len() as u64)
    }
}

/// As `strncmp`, over the length of the first.
fn compare(given: &[u8], other: &[u8]) -> i64 {
    let at = |text: &[u8], i: usize| text.get(i).copied().unwrap_or(0);
    for i in 0..given.len() {
        let (a, b) = (at(given, i), at(other, i));
        if a != b {
            return if a < b { -1 } else { 1 };
        }
        if a == 0 {
            break;
        }
    }
    0
}

#[cfg(test)]
#[test]
fn strings_are_compared_as_c_does() {
    assert_eq!(compare(b"abc\0", b"abc"), 0);
    assert_eq!(compare(b"ab", b"abc"), 0, "two bytes are compared");
    assert_eq!(compare(b"abd", b"abc"), 1);
    assert_eq!(compare(b"ab\0", b"abc"), -1);
}
