//! The number iterator (`bpf_iter_num_*`): its 8 bytes on the stack hold the current number and the
//! end, as in Linux, so that the pointer that `next` returns is one into the iterator.

use warpbpf_abi::kfuncs::{KfuncId, MAX_LOOPS};
use warpbpf_abi::maps::{E2BIG, EINVAL};
use warpbpf_ebpf::{Reg, Width};
use warpbpf_verify::{InsnFact, Place};

use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Value};

/// Where the end is in the iterator; the current number is at 0.
const END: i64 = 4;

impl Translator<'_> {
    pub(super) fn kfunc(&mut self, number: u32, fact: &InsnFact) -> Result<(), CodegenError> {
        let Some(kfunc) = KfuncId::from_number(number) else {
            return self.unsupported("call of a kernel function");
        };
        let InsnFact::Access(place) = *fact else {
            return self.missing("the place of the iterator");
        };
        let result = match kfunc {
            KfuncId::IterNumNew => self.iter_num_new(place)?,
            KfuncId::IterNumNext => self.iter_num_next(place)?,
            KfuncId::IterNumDestroy => {
                let zero = self.constant(0);
                self.set_iterator(place, zero, zero)?;
                zero
            }
        };
        self.set_reg(Reg::R0, result);
        Ok(())
    }

    fn iter_num_new(&mut self, place: Place) -> Result<Value, CodegenError> {
        let (start, end) = (self.trunc(self.arg(1)), self.trunc(self.arg(2)));
        let zero = self.constant(0);
        let backwards = self.cmp(Cond::Sgt, start, end);
        // Where the range does not run backwards, its length fits 32 bits without sign.
        let length = self.bin(BinOp::Sub, end, start);
        let long = self.cmp_const(Cond::Ugt, length, MAX_LOOPS.into());
        let (invalid, big) = (self.constant(EINVAL as u64), self.constant(E2BIG as u64));
        let result = self.select(long, big, zero);
        let result = self.select(backwards, invalid, result);
        let bad = self.bin(BinOp::Or, backwards, long);
        // The first `next` adds one.
        let before = self.bin_const(BinOp::Sub, start, 1);
        let (before, end) = (self.zext(before), self.zext(end));
        let current = self.select(bad, zero, before);
        let end = self.select(bad, zero, end);
        self.set_iterator(place, current, end)?;
        Ok(result)
    }

    fn iter_num_next(&mut self, place: Place) -> Result<Value, CodegenError> {
        let (at, behind) = self.iterator(place);
        let current = self.load(at, Width::W32, false, false)?;
        let end = self.load(behind, Width::W32, false, false)?;
        let (current, last) = (self.trunc(current), self.trunc(end));
        let next = self.bin_const(BinOp::Add, current, 1);
        let more = self.cmp(Cond::Slt, next, last);
        let (zero, next) = (self.constant(0), self.zext(next));
        let current = self.select(more, next, zero);
        let end = self.select(more, end, zero);
        let number = self.arg(0);
        self.set_iterator(place, current, end)?;
        Ok(self.select(more, number, zero))
    }

    fn set_iterator(
        &mut self,
        place: Place,
        current: Value,
        end: Value,
    ) -> Result<(), CodegenError> {
        let (at, behind) = self.iterator(place);
        self.store(at, Width::W32, current, false)?;
        self.store(behind, Width::W32, end, false)
    }

    /// The halves of the iterator in the first argument.
    fn iterator(&self, place: Place) -> (Spot, Spot) {
        let spot = Spot {
            place,
            pointer: self.arg(0),
            off: 0,
        };
        (spot, spot.plus(END))
    }
}
