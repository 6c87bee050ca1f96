//! Local functions: inlined where they are called, or where a helper calls them back. A helper with
//! a callback becomes a loop around it; what the callback does to stack variables goes round as the
//! loop's parameters.

use warpbpf_abi::kfuncs::MAX_LOOPS;
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{E2BIG, EINVAL};
use warpbpf_ebpf::Reg;
use warpbpf_verify::{CallFact, InsnFact, Instance};

use super::translator::{MAP_POINTER, NOT_NULL, State, Translator};
use crate::error::CodegenError;
use crate::ir::{BinOp, Block, Cond, Op, Term, Ty, Value};

/// A loop that calls a function back.
pub(super) struct Loop {
    /// Evaluates the condition; its parameters are the index and the stack variables.
    head: Block,
    /// The counter in `head`.
    pub(super) index: Value,
    /// Gets the helper's result and the stack variables.
    after: Block,
    result: Value,
    after_vars: Vec<Value>,
}

impl<'a> Translator<'a> {
    /// Gives whether the function never returns: then the block is ended.
    pub(super) fn local_call(&mut self, instance: &'a Instance) -> Result<bool, CodegenError> {
        let result = self.inline(instance, &[])?;
        self.set_reg(Reg::R0, result);
        let next = self.pc.next();
        let never = next < instance.end && *instance.at(next) == InsnFact::Dead;
        if never {
            self.end(Term::Exit);
        }
        Ok(never)
    }

    /// The function that the current instruction calls, with `args` in r1 and up if there are any,
    /// else with what is there. Goes on where it returned; gives its r0.
    pub(super) fn inline(
        &mut self,
        instance: &'a Instance,
        args: &[Value],
    ) -> Result<Value, CodegenError> {
        let callee = instance
            .calls
            .get(&self.pc)
            .and_then(|&i| self.facts.instances.get(i));
        let Some(callee) = callee.filter(|c| c.frame > instance.frame) else {
            return self.missing("the proof of the called function");
        };
        if *callee.at(callee.start) == InsnFact::Dead {
            return Ok(self.constant(0));
        }
        let after = self.func.add_block();
        let result = self.func.add_param(after, Ty::B64);
        let vars = self.var_params(after);
        let (saved, pc) = (self.state.regs, self.pc);
        for (i, arg) in args.iter().enumerate() {
            self.state.regs[i + 1] = *arg;
        }
        self.instance(callee, Some(after))?;
        // r1 to r5 hold nothing after a call, r6 to r9 what they held before it (RFC 9669 §2.1);
        // the values from before the call dominate what follows it.
        self.pc = pc;
        self.state = State { regs: saved, vars };
        self.at = after;
        Ok(result)
    }

    fn var_params(&mut self, block: Block) -> Vec<Value> {
        (0..self.state.vars.len())
            .map(|_| self.func.add_param(block, Ty::B64))
            .collect()
    }

    /// `bpf_loop`, with the checks in Linux' order.
    pub(super) fn bpf_loop(&mut self, instance: &'a Instance) -> Result<Value, CodegenError> {
        let (count, context) = (self.trunc(self.arg(0)), self.arg(2));
        let l = self.loop_without_flags(Ty::B32);
        let many = self.cmp_const(Cond::Ugt, count, MAX_LOOPS.into());
        self.at = self.leave_if(&l, many, E2BIG as u64);
        self.enter(&l);
        let index = self.zext(l.index);
        let done = self.cmp(Cond::Uge, l.index, count);
        self.at = self.leave_with(&l, done, index);
        let stop = self.inline(instance, &[index, context])?;
        Ok(self.next_index(l, stop))
    }

    /// `bpf_for_each_map_elem`: in the order of the array, or in that of a hash's slots.
    pub(super) fn for_each_map_elem(
        &mut self,
        instance: &'a Instance,
        call: &CallFact,
    ) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let context = self.arg(2);
        let base = self.map_base(call)?;
        match binding.layout {
            MapLayout::Array(layout) => {
                let l = self.loop_without_flags(Ty::B32);
                let base = self.array_base(base, &layout);
                let count = self.constant32(layout.max_entries);
                self.for_each_index(instance, l, base, layout.value_stride(), count, context)
            }
            MapLayout::PerThread(layout) => {
                let l = self.loop_without_flags(Ty::B32);
                let (known, base) = self.per_thread_base(base, &layout);
                let (all, none) = (self.constant32(layout.max_entries), self.constant32(0));
                let count = self.select(known, all, none);
                let stride = layout.threads * layout.value_stride();
                self.for_each_index(instance, l, base, stride, count, context)
            }
            MapLayout::Hash(_) | MapLayout::Lru(_) => {
                let l = self.loop_without_flags(Ty::B64);
                self.for_each_node(instance, l, map, context)
            }
            MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// Calls back for each index below `count`, whose value is at `base + index * stride`.
    fn for_each_index(
        &mut self,
        instance: &'a Instance,
        l: Loop,
        base: Value,
        stride: u64,
        count: Value,
        context: Value,
    ) -> Result<Value, CodegenError> {
        self.enter(&l);
        let index = self.zext(l.index);
        let done = self.cmp(Cond::Uge, l.index, count);
        self.at = self.leave_with(&l, done, index);
        let map = self.constant(MAP_POINTER);
        // See `index_bytes`.
        let key = self.bin_const(BinOp::Shl, index, 3);
        let key = self.bin_const(BinOp::Add, key, NOT_NULL);
        let skip = self.bin_const(BinOp::Mul, index, stride);
        let value = self.bin(BinOp::Add, base, skip);
        let stop = self.inline(instance, &[map, key, value, context])?;
        Ok(self.next_index(l, stop))
    }

    /// The end of a loop over indices.
    fn next_index(&mut self, l: Loop, stop: Value) -> Value {
        let next = self.bin_const(BinOp::Add, l.index, 1);
        let calls = self.zext(next);
        self.go_round(&l, stop, next, calls);
        self.finish(l)
    }

    /// The blocks of a loop with a counter of type `ty`, and the check of the flags, which are the
    /// fourth argument. Goes on where they are fine.
    fn loop_without_flags(&mut self, ty: Ty) -> Loop {
        let l = self.loop_blocks(ty);
        let flags = self.cmp_const(Cond::Ne, self.arg(3), 0);
        self.at = self.leave_if(&l, flags, EINVAL as u64);
        l
    }

    /// The blocks of a loop with a counter of type `ty`.
    pub(super) fn loop_blocks(&mut self, ty: Ty) -> Loop {
        let head = self.func.add_block();
        let index = self.func.add_param(head, ty);
        self.loop_at(head, index)
    }

    /// The same loop with another way out.
    pub(super) fn loop_around(&mut self, l: &Loop) -> Loop {
        self.loop_at(l.head, l.index)
    }

    fn loop_at(&mut self, head: Block, index: Value) -> Loop {
        let after = self.func.add_block();
        Loop {
            head,
            index,
            after,
            result: self.func.add_param(after, Ty::B64),
            after_vars: self.var_params(after),
        }
    }

    /// Leaves with `result` if `cond` holds, else goes to the block that is returned.
    pub(super) fn leave_if(&mut self, l: &Loop, cond: Value, result: u64) -> Block {
        let result = self.constant(result);
        self.leave_with(l, cond, result)
    }

    pub(super) fn leave_with(&mut self, l: &Loop, cond: Value, result: Value) -> Block {
        let (out, on) = (self.func.add_block(), self.func.add_block());
        self.branch(cond, out, on);
        self.at = out;
        self.leave(l, result);
        on
    }

    pub(super) fn leave(&mut self, l: &Loop, result: Value) {
        let args = std::iter::once(result)
            .chain(self.state.vars.iter().copied())
            .collect();
        self.jump(l.after, args);
    }

    /// Goes to the head with a counter of 0, and goes on there.
    pub(super) fn enter(&mut self, l: &Loop) {
        let zero = self.push(self.func.ty(l.index), Op::Const(0));
        self.repeat(l, zero);
        self.state.vars = self.var_params(l.head);
        self.at = l.head;
    }

    pub(super) fn repeat(&mut self, l: &Loop, index: Value) {
        let args = std::iter::once(index)
            .chain(self.state.vars.iter().copied())
            .collect();
        self.jump(l.head, args);
    }

    /// After the callback: leaves with `result` if it returned something, else goes round with
    /// `next`.
    pub(super) fn go_round(&mut self, l: &Loop, stop: Value, next: Value, result: Value) {
        let stop = self.cmp_const(Cond::Ne, stop, 0);
        self.at = self.leave_with(l, stop, result);
        self.repeat(l, next);
    }

    /// Goes on behind the loop; gives the helper's result.
    pub(super) fn finish(&mut self, l: Loop) -> Value {
        self.at = l.after;
        self.state.vars = l.after_vars;
        l.result
    }
}
