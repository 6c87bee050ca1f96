//! Dynptrs on the stack: two words, the address of what one stands for, 0 if it is empty, and its
//! size. Programs cannot touch them, so where the stack is registers they are registers. A sample's
//! dynptr is another thing: see [`super::sample`].

use warpbpf_abi::costs::{DYNPTR_MOST, WRITTEN_OUT_BYTES};
use warpbpf_abi::maps::{E2BIG, EINVAL};
use warpbpf_ebpf::Width;
use warpbpf_verify::{ArgFact, CallFact, Place, Region};

use super::bulk::Overlap;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Size, Ty, Value};

/// From the address of what a dynptr stands for to its size.
const SIZE: i64 = 8;

/// What a dynptr or a sample stands for.
struct View {
    /// Its first byte, or 0.
    start: Value,
    size: Value,
    /// What is known of it.
    memory: Place,
}

impl Translator<'_> {
    /// The dynptr in argument `i`.
    fn dynptr(&mut self, call: &CallFact, i: usize) -> Result<View, CodegenError> {
        match call.args[i] {
            ArgFact::Pointer(place) => {
                let Some((region, align)) = call.memory else {
                    return self.missing("what a dynptr stands for");
                };
                let memory = Place {
                    region,
                    offset: None,
                    align,
                };
                let spot = Spot {
                    place,
                    pointer: self.arg(i),
                    off: 0,
                };
                Ok(View {
                    start: self.load(spot, Width::W64, false, false)?,
                    size: self.load(spot.plus(SIZE), Width::W64, false, false)?,
                    memory,
                })
            }
            ArgFact::Sample => {
                let (start, size) = self.sample(call, i)?;
                let memory = Place {
                    region: Region::Record {
                        map: self.map_arg(call)?,
                    },
                    offset: None,
                    align: 8,
                };
                Ok(View {
                    start,
                    size,
                    memory,
                })
            }
            _ => self.missing("a dynptr"),
        }
    }

    /// Makes the dynptr in argument 4.
    fn set_dynptr(
        &mut self,
        call: &CallFact,
        start: Value,
        size: Value,
    ) -> Result<(), CodegenError> {
        let spot = self.pointer_arg(call, 3)?;
        self.store(spot, Width::W64, start, false)?;
        self.store(spot.plus(SIZE), Width::W64, size, false)
    }

    /// A number that is passed as `__u32`.
    pub(super) fn u32_arg(&mut self, call: &CallFact, i: usize) -> Value {
        if let ArgFact::Scalar {
            value: Some(known), ..
        } = call.args[i]
        {
            return self.constant(u64::from(known as u32));
        }
        let low = self.trunc(self.arg(i));
        self.zext(low)
    }

    /// The constant size in argument `i`, a `__u32`.
    fn length(&self, call: &CallFact, i: usize) -> Result<u64, CodegenError> {
        match call.args[i] {
            ArgFact::Scalar {
                value: Some(size), ..
            } => Ok(u64::from(size as u32)),
            _ => self.missing("a constant size"),
        }
    }

    /// What a new dynptr of `size` bytes is refused for: the result if it is, and whether it is
    /// not.
    fn verdict(&mut self, size: Value, flags: Value) -> (Value, Value) {
        let fits = self.cmp_const(Cond::Ule, size, DYNPTR_MOST);
        let plain = self.cmp_const(Cond::Eq, flags, 0);
        let (large, invalid) = (self.constant(E2BIG as u64), self.constant(EINVAL as u64));
        let problem = self.select(fits, invalid, large);
        (problem, self.bin(BinOp::And, fits, plain))
    }

    /// `bpf_dynptr_from_mem`.
    pub(super) fn dynptr_from_mem(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let size = self.u32_arg(call, 1);
        let (problem, fine) = self.verdict(size, self.arg(2));
        let zero = self.constant(0);
        let start = self.select(fine, self.arg(0), zero);
        let size = self.select(fine, size, zero);
        self.set_dynptr(call, start, size)?;
        Ok(self.select(fine, zero, problem))
    }

    /// `bpf_ringbuf_reserve_dynptr`.
    pub(super) fn ring_reserve_dynptr(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let base = self.map_base(call)?;
        let size = self.u32_arg(call, 1);
        let wanted = match call.args[1] {
            ArgFact::Scalar {
                value: Some(known), ..
            } => Size::Const(known as u32),
            _ => Size::Value(size),
        };
        let (problem, fine) = self.verdict(size, self.arg(2));
        let (reserve, refuse, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        let record = self.func.add_param(after, Ty::B64);
        let failed = self.func.add_param(after, Ty::B64);
        self.branch(fine, reserve, refuse);
        self.at = refuse;
        let none = self.constant(0);
        self.jump(after, vec![none, problem]);
        self.at = reserve;
        let reserved = self.reserve(ring, base, wanted, true);
        let full = self.constant(EINVAL as u64);
        self.jump(after, vec![reserved, full]);
        self.at = after;
        let there = self.cmp_const(Cond::Ne, record, 0);
        let zero = self.constant(0);
        let size = self.select(there, size, zero);
        self.set_dynptr(call, record, size)?;
        Ok(self.select(there, zero, failed))
    }

    /// `bpf_ringbuf_submit_dynptr` and `bpf_ringbuf_discard_dynptr`.
    pub(super) fn ring_commit_dynptr(
        &mut self,
        call: &CallFact,
        discard: bool,
    ) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let base = self.map_base(call)?;
        let view = self.dynptr(call, 0)?;
        let there = self.cmp_const(Cond::Ne, view.start, 0);
        let (commit, after) = (self.func.add_block(), self.func.add_block());
        self.branch(there, commit, after);
        self.at = commit;
        self.commit(ring, base, view.start, None, discard);
        self.jump(after, Vec::new());
        self.at = after;
        Ok(self.constant(0))
    }

    /// `bpf_dynptr_data`.
    pub(super) fn dynptr_data(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        if call.args[0] == ArgFact::Sample {
            return self.sample_data(call);
        }
        let view = self.dynptr(call, 0)?;
        let (offset, length) = (self.u32_arg(call, 1), self.u32_arg(call, 2));
        let end = self.bin(BinOp::Add, offset, length);
        let inside = self.cmp(Cond::Ule, end, view.size);
        let at = self.bin(BinOp::Add, view.start, offset);
        let null = self.constant(0);
        Ok(self.select(inside, at, null))
    }

    /// `bpf_dynptr_read`.
    pub(super) fn dynptr_read(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        if call.args[2] == ArgFact::Sample {
            return self.sample_read(call);
        }
        let to = self.pointer_arg(call, 0)?;
        let size = self.length(call, 1)?;
        let view = self.dynptr(call, 2)?;
        let (from, fine, result) = self.piece(call, &view, 3, size, self.arg(4));
        let (copy, zero, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        if size > WRITTEN_OUT_BYTES {
            self.branch(fine, copy, zero);
            self.at = zero;
            self.zero_long(to, size)?;
            self.jump(after, Vec::new());
            self.at = copy;
            self.copy_long(from, to, size, Overlap::Possible)?;
            self.jump(after, Vec::new());
            self.at = after;
            return Ok(result);
        }
        let words: Vec<Value> = (0..size.div_ceil(8))
            .map(|_| self.func.add_param(after, Ty::B64))
            .collect();
        self.branch(fine, copy, zero);
        self.at = zero;
        let none = self.constant(0);
        self.jump(after, vec![none; words.len()]);
        self.at = copy;
        let read = self.load_words(from, size)?;
        self.jump(after, read);
        self.at = after;
        self.store_words(to, size, &words)?;
        Ok(result)
    }

    /// `bpf_dynptr_write`.
    pub(super) fn dynptr_write(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let from = self.pointer_arg(call, 2)?;
        let size = self.length(call, 3)?;
        let long = size > WRITTEN_OUT_BYTES;
        let words = match long {
            true => Vec::new(),
            false => self.load_words(from, size)?,
        };
        let view = self.dynptr(call, 0)?;
        let (to, fine, result) = self.piece(call, &view, 1, size, self.arg(4));
        let (copy, after) = (self.func.add_block(), self.func.add_block());
        self.branch(fine, copy, after);
        self.at = copy;
        match long {
            true => self.copy_long(from, to, size, Overlap::Possible)?,
            false => self.store_words(to, size, &words)?,
        }
        self.jump(after, Vec::new());
        self.at = after;
        Ok(result)
    }

    /// The `size` bytes from the offset in argument `at` on, whether they can be copied, and the
    /// call's result.
    fn piece(
        &mut self,
        call: &CallFact,
        view: &View,
        at: usize,
        size: u64,
        flags: Value,
    ) -> (Spot, Value, Value) {
        let offset = self.u32_arg(call, at);
        let align = match call.args[at] {
            ArgFact::Scalar {
                value: Some(offset),
                ..
            } => 1 << (offset | 8).trailing_zeros(),
            _ => 1,
        };
        let spot = Spot {
            place: Place {
                align: view.memory.align.min(align),
                ..view.memory
            },
            pointer: self.bin(BinOp::Add, view.start, offset),
            off: 0,
        };
        let plain = self.cmp_const(Cond::Eq, flags, 0);
        let there = self.cmp_const(Cond::Ne, view.start, 0);
        let valid = self.bin(BinOp::And, plain, there);
        let end = self.bin_const(BinOp::Add, offset, size);
        let inside = self.cmp(Cond::Ule, end, view.size);
        let (zero, outside) = (self.constant(0), self.constant(E2BIG as u64));
        let invalid = self.constant(EINVAL as u64);
        let result = self.select(inside, zero, outside);
        let result = self.select(valid, result, invalid);
        (spot, self.bin(BinOp::And, valid, inside), result)
    }
}
