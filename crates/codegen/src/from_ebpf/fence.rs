//! Reads of the application's memory. What is known to be short goes through registers, so that a
//! buffer on the stack needs no memory; the rest is copied.

use warpbpf_abi::access::Space;
use warpbpf_abi::costs::WRITTEN_OUT_BYTES;
use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::layout::{env, slot};
use warpbpf_abi::maps::EFAULT;
use warpbpf_ebpf::Width;
use warpbpf_verify::{ArgFact, CallFact, Region};

use super::bulk::Overlap;
use super::memory::pieces;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, FenceOp, Mem, Op, Ty, Value};

/// Most bytes that go through registers into memory that is not the stack.
const IN_REGISTERS: u64 = 64;

impl Translator<'_> {
    pub(super) fn application_read(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let to = self.pointer_arg(call, 0)?;
        let ArgFact::Scalar { value: known, .. } = call.args[1] else {
            return self.missing("a size");
        };
        let (size, address) = (self.arg(1), self.arg(2));
        if known == Some(0) {
            return Ok(self.constant(0));
        }
        if call.own_source().is_some() {
            let from = self.pointer_arg(call, 2)?;
            self.copy_own(from, to, known, size)?;
            return Ok(self.constant(0));
        }
        let space = match call.helper {
            HelperId::GpuRead => {
                // `__u32 space`: the upper half is not part of it.
                let low = self.trunc(self.arg(3));
                self.zext(low)
            }
            _ => self.constant(Space::Generic as u64),
        };
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        let fence = self.env_field(Mem::Env, base, env::FENCE);
        let reader = self.fence(FenceOp::Enter, vec![fence]);
        let found = self.fence(FenceOp::Find, vec![fence, address, size, space]);
        let on_stack = matches!(to.place.region, Region::Stack { .. });
        match known {
            Some(bytes) if on_stack || bytes <= IN_REGISTERS => {
                let words: Vec<Value> = (0..bytes.div_ceil(8))
                    .map(|word| {
                        let (off, bytes) = (word * 8, (bytes - word * 8).min(8));
                        let op = FenceOp::Word {
                            off: off as u32,
                            bytes: bytes as u32,
                        };
                        self.fence(op, vec![found])
                    })
                    .collect();
                self.leave_fence(reader);
                self.store_words(to, bytes, &words)?;
            }
            Some(_) | None => {
                let mem = self.writable(to)?;
                let target = self.address(mem, to.pointer);
                self.push_effect(Op::Fence {
                    op: FenceOp::Copy { mem, off: to.off },
                    args: vec![found, target, size],
                });
                self.leave_fence(reader);
            }
        }
        let refused = self.cmp_const(Cond::Eq, found, 0);
        let (fault, fine) = (self.constant(EFAULT as u64), self.constant(0));
        let result = self.select(refused, fault, fine);
        if known.is_some() {
            return Ok(result);
        }
        // Nothing can be read anywhere.
        let nothing = self.cmp_const(Cond::Eq, size, 0);
        Ok(self.select(nothing, fine, result))
    }

    /// Copies the program's own memory, `known` bytes or `size`.
    fn copy_own(
        &mut self,
        from: Spot,
        to: Spot,
        known: Option<u64>,
        size: Value,
    ) -> Result<(), CodegenError> {
        match known {
            Some(bytes) if bytes > WRITTEN_OUT_BYTES => {
                self.copy_long(from, to, bytes, Overlap::Possible)
            }
            Some(bytes) => {
                let words = self.load_words(from, bytes)?;
                self.store_words(to, bytes, &words)
            }
            None => self.copy_bytes(from, to, size),
        }
    }

    /// The memory class of a buffer that is in memory.
    pub(super) fn writable(&self, to: Spot) -> Result<Mem, CodegenError> {
        match to.place.region {
            Region::Stack { .. } => Ok(Mem::Local),
            Region::MapValue { map } => Ok(to.map_memory(map, false)),
            Region::Record { .. } => Ok(Mem::Record),
            Region::Memory => Ok(Mem::Memory),
            Region::Context | Region::MapKey { .. } => self.missing("a writable region"),
        }
    }

    /// Asks for the line of L2 with the address in `r1`, if something of global memory lives there.
    pub(super) fn prefetch(&mut self) -> Value {
        let address = self.arg(0);
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        let fence = self.env_field(Mem::Env, base, env::FENCE);
        let reader = self.fence(FenceOp::Enter, vec![fence]);
        let (one, space) = (self.constant(1), self.constant(Space::Global as u64));
        let found = self.fence(FenceOp::Find, vec![fence, address, one, space]);
        self.push_effect(Op::Fence {
            op: FenceOp::Prefetch,
            args: vec![found],
        });
        self.leave_fence(reader);
        let refused = self.cmp_const(Cond::Eq, found, 0);
        let (fault, fine) = (self.constant(EFAULT as u64), self.constant(0));
        self.select(refused, fault, fine)
    }

    pub(super) fn fence(&mut self, op: FenceOp, args: Vec<Value>) -> Value {
        self.push(Ty::B64, Op::Fence { op, args })
    }

    pub(super) fn leave_fence(&mut self, reader: Value) {
        self.push_effect(Op::Fence {
            op: FenceOp::Leave,
            args: vec![reader],
        });
    }

    /// Stores `size` bytes of little-endian words.
    pub(super) fn store_words(
        &mut self,
        to: Spot,
        size: u64,
        words: &[Value],
    ) -> Result<(), CodegenError> {
        for (at, width) in pieces(to.place, size, 8) {
            let Some(&word) = words.get(at as usize / 8) else {
                return self.missing("a word that was read");
            };
            let piece = match at % 8 {
                0 => word,
                skip => self.bin_const(BinOp::Shr, word, skip as u64 * 8),
            };
            let piece = match width {
                Width::W64 => piece,
                _ => self.bin_const(BinOp::And, piece, (1 << width.bits()) - 1),
            };
            self.store(to.plus(at), width, piece, false)?;
        }
        Ok(())
    }
}
