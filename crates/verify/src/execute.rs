//! What each instruction does to a path: checks it, notes the fact, and says how the path goes on.

use warpbpf_abi::helpers::{Arg, Effect};
use warpbpf_ebpf::{Callee, Insn, Pc, Reg};

use crate::assert::assertions;
use crate::budget::{call_cost, too_far_to_walk};
use crate::call::check_call;
use crate::check::check;
use crate::domain::pointer::{Target, Value};
use crate::domain::state::{Frame, Held, State};
use crate::effect::{apply_call, clobber};
use crate::env::place_of;
use crate::event::Event;
use crate::explorer::{Explorer, Onward, Path};
use crate::rule::Rule;
use crate::transfer::{branch, compared, transfer};

impl Explorer<'_, '_, '_> {
    /// Executes the instruction at `path.pc`.
    pub(crate) fn execute(&mut self, path: &mut Path, instance: usize) -> Result<Onward, Rule> {
        let (env, pc) = (self.env, path.pc);
        let insn = *env.code.at(pc);
        self.gather.reached(instance, pc);
        let mut accessed = None;
        for assertion in assertions(&insn) {
            if let Some(pointer) = check(env, &path.state, &assertion)? {
                accessed = Some(pointer);
            }
        }
        if let Some(pointer) = &accessed {
            if let Some(place) = place_of(pointer) {
                self.gather.access(env, instance, pc, place)?;
            }
            self.gather.touched(pointer, &path.state.frames)?;
        }
        match insn {
            Insn::Call {
                callee: Callee::Helper(id),
            } => return self.call_helper(path, instance, id),
            Insn::Call {
                callee: Callee::Local(start),
            } => return self.call_local(path, instance, start),
            Insn::Call {
                callee: Callee::Kfunc(number),
            } => return self.call_iterator(path, instance, number),
            Insn::Exit => {
                self.spend(path, 1)?;
                return self.exit(path);
            }
            Insn::Goto { target, .. } => {
                self.spend(path, 1)?;
                path.pc = target;
                return Ok(Onward::Goes);
            }
            Insn::Jump {
                wide,
                op,
                dst,
                src,
                target,
            } => {
                self.spend(path, 1)?;
                let sees = compared(&path.state, dst, src);
                let taken = branch(&path.state, wide, op, dst, src, true);
                let falls = branch(&path.state, wide, op, dst, src, false);
                self.gather
                    .branch(instance, pc, taken.is_some(), falls.is_some(), sees)?;
                return Ok(self.follow(path, taken, falls, target));
            }
            Insn::Alu { .. }
            | Insn::MovSx { .. }
            | Insn::Neg { .. }
            | Insn::End { .. }
            | Insn::LoadImm64 { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. } => {}
            Insn::MayGoto { target } => return self.may_goto(path, instance, target),
            // Their assertions never hold.
            Insn::CallReg { .. } | Insn::LegacyPacket { .. } => {}
        }
        self.spend(path, 1)?;
        transfer(env, &mut path.state, &insn, accessed.as_ref());
        path.pc = pc.next();
        Ok(Onward::Goes)
    }

    /// Goes on with the sides of a branch that can be taken. If none can, the path is impossible.
    fn follow(
        &mut self,
        path: &mut Path,
        taken: Option<State>,
        falls: Option<State>,
        target: Pc,
    ) -> Onward {
        let next = path.pc.next();
        match (taken, falls) {
            (Some(taken), Some(falls)) => {
                let side = |taken| Event::Branch { pc: path.pc, taken };
                let [jump, fall] = self
                    .paths
                    .fork(path.node, [side(true), side(false)], path.cost);
                self.wait(Path {
                    state: taken,
                    pc: target,
                    cost: path.cost,
                    node: jump,
                });
                (path.state, path.pc, path.node) = (falls, next, fall);
            }
            (Some(taken), None) => (path.state, path.pc) = (taken, target),
            (None, Some(falls)) => (path.state, path.pc) = (falls, next),
            (None, None) => return Onward::Ends,
        }
        Onward::Goes
    }

    fn call_helper(&mut self, path: &mut Path, instance: usize, id: u32) -> Result<Onward, Rule> {
        let (helper, fact, touched) = check_call(self.env, &path.state, id)?;
        self.gather.call(self.env, instance, path.pc, &fact)?;
        for pointer in &touched {
            self.gather.touched(pointer, &path.state.frames)?;
        }
        if helper.effect == Effect::Modify {
            self.gather.modifies();
        }
        let cost = call_cost(self.env, helper, &fact);
        self.spend(path, cost)
            .map_err(|rule| too_far_to_walk(self.env, rule, &fact))?;
        if helper.args.contains(&Arg::Callback) {
            return self.call_back(path, instance, helper, &fact);
        }
        if !apply_call(self.env, &mut path.state, path.pc, helper, &fact) {
            self.nothing_held(path, "before the thread ends")?;
            return Ok(Onward::Ends);
        }
        path.pc = path.pc.next();
        Ok(Onward::Goes)
    }

    fn call_local(&mut self, path: &mut Path, instance: usize, start: Pc) -> Result<Onward, Rule> {
        self.spend(path, 1)?;
        let pc = path.pc;
        let callee = self.callee(path, instance, start)?;
        let depth = path.state.frames.len();
        let mut frame = Frame::new(callee, depth as u32, pc.next());
        for reg in Reg::all().skip(1).take(5) {
            frame.regs[reg.index()] = *path.state.reg(reg);
        }
        clobber(&mut path.state, pc);
        self.forget(path, instance, pc.next());
        path.state.frames.push(frame);
        path.node = self.paths.extend(path.node, Event::Call(pc), path.cost);
        self.fresh_rounds(path, callee);
        path.pc = start;
        Ok(Onward::Goes)
    }

    fn exit(&mut self, path: &mut Path) -> Result<Onward, Rule> {
        let result = *path.state.reg(Reg::R0);
        self.no_iterator(path)?;
        self.no_dynptr_held(path)?;
        let depth = path.state.frames.len();
        let caller = depth.checked_sub(2).map(|at| &path.state.frames[at]);
        if let Some(looping) = caller.and_then(|caller| caller.looping) {
            return self.called_back(path, &looping, &result);
        }
        if path.state.frames.len() == 1 {
            match result {
                Value::Number { .. } => {}
                Value::Pointer(_) if !self.env.platform.result_kept => {}
                Value::Pointer(p) => {
                    return Err(Rule::PointerReturned {
                        pointer: self.env.pointer(&p),
                    });
                }
                Value::Nothing(why) => {
                    return Err(Rule::Uninitialised {
                        reg: Reg::R0.to_string(),
                        why: self.env.why(why),
                    });
                }
            }
            self.nothing_held(path, "on this path")?;
            return Ok(Onward::Ends);
        }
        if matches!(result, Value::Pointer(p) if p.target == Target::Stack(path.state.depth())) {
            return Err(Rule::StackReturned);
        }
        if let Some(frame) = path.state.pop() {
            path.state.set(Reg::R0, result);
            path.pc = frame.return_to;
        }
        Ok(Onward::Goes)
    }

    /// No iterator of the running frame is left.
    fn no_iterator(&self, path: &Path) -> Result<(), Rule> {
        let depth = path.state.depth();
        match path.state.iters.iter().find(|iter| iter.frame == depth) {
            None => Ok(()),
            Some(iter) => Err(Rule::IteratorHeld {
                slot: self.env.code.slot(iter.made_at.1),
                how: "on this path",
            }),
        }
    }

    /// No dynptr of the running frame has a record: nobody could give it back. The entry function's
    /// are told with all that is held.
    fn no_dynptr_held(&self, path: &Path) -> Result<(), Rule> {
        let depth = path.state.depth();
        let mut dynptrs = path.state.dynptrs.iter();
        let Some(dynptr) = dynptrs.find(|d| depth > 0 && d.frame == depth && d.id != 0) else {
            return Ok(());
        };
        let held = |held: &&Held| held.id == dynptr.id;
        let held = path.state.held.iter().find(held);
        self.none_of(
            held.map(std::slice::from_ref),
            "before the function returns",
        )
    }

    fn nothing_held(&self, path: &Path, how: &'static str) -> Result<(), Rule> {
        self.none_of(Some(&path.state.held), how)
    }
}
