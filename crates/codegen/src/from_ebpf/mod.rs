//! First stage: eBPF with its proof becomes SSA, calls of local functions inlined.
//!
//! Registers and promoted stack bytes are variables. A block with several predecessors gets a
//! parameter for each of them; `opt_copy` and `opt_dce` take back what is not needed, which is
//! simpler than knowing it beforehand. Only reachable instructions are translated, and a branch
//! whose proof knows its outcome is a jump.
//!
//! Here is the way through a function; each kind of instruction has a file. Only calls of local
//! functions and callbacks (`calls`) come back to [`Translator::instance`].

mod alu;
mod atomic;
mod bulk;
mod calls;
mod context;
mod dynptr;
mod fence;
mod helpers;
mod iterators;
mod keys;
mod lanes;
mod maps;
mod memory;
mod nodes;
mod queue;
mod ring;
mod sample;
mod shape;
mod spot;
mod strings;
mod translator;

use warpbpf_abi::layout::MapLayout;
use warpbpf_ebpf::{Callee, Code, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};

use warpbpf_verify::{Facts, InsnFact, Instance};

use crate::error::CodegenError;
use crate::fragment::{Env, Input};
use crate::ir::{BinOp, Block, Cond, Edge, Func, Mem, Op, Term, Ty, Value};

use shape::{Shape, successors};
use translator::{MAP_POINTER, NOT_NULL, State, Translator};

/// Translates a program whose facts belong to its code.
pub fn run(code: &Code, facts: &Facts, env: &Env) -> Result<Func, CodegenError> {
    let mut t = Translator::new(code, facts, env);
    let Some(entry) = facts.instances.first() else {
        return Err(CodegenError::MissingFact {
            pc: Pc(0),
            expected: "an instance for the entry function",
        });
    };
    t.arguments()?;
    t.instance(entry, None)?;
    Ok(t.func)
}

impl<'a> Translator<'a> {
    /// What the program gets.
    fn arguments(&mut self) -> Result<(), CodegenError> {
        let Input::Memory { slot, size, stride } = self.env.input else {
            // The context is nowhere in memory (see `context_read`).
            self.state.regs[1] = self.constant(NOT_NULL);
            return Ok(());
        };
        let result = u64::from(size).next_multiple_of(8);
        let least = (result + 8).next_multiple_of(16);
        if stride % 16 != 0 || u64::from(stride) < least || i32::try_from(result).is_err() {
            return Err(CodegenError::BadStride {
                size,
                stride,
                least,
            });
        }
        let base = self.push(Ty::B64, Op::Slot(slot));
        let thread = self.thread_in_grid();
        let skip = self.bin_const(BinOp::Mul, thread, stride.into());
        let memory = self.bin(BinOp::Add, base, skip);
        let size = self.constant(size.into());
        self.memory = Some((memory, result as i32));
        self.state.regs[1] = memory;
        self.state.regs[2] = size;
        Ok(())
    }

    /// The program returns.
    fn end_program(&mut self) {
        if let Some((addr, off)) = self.memory {
            let value = self.reg(Reg::R0);
            self.push_effect(Op::Store {
                mem: Mem::Memory,
                width: Width::W64,
                addr,
                off,
                value,
            });
        }
        self.end(Term::Ret);
    }

    // --- building
    // ---------------------------------------------------------------------------------------------

    // --- environment
    // ---------------------------------------------------------------------------------------------

    // --- control flow
    // ---------------------------------------------------------------------------------------------

    /// Translates one function as called from one place. Leaves through `ret`, whose parameters are
    /// `r0` and then the stack variables, or out of the fragment.
    fn instance(&mut self, instance: &'a Instance, ret: Option<Block>) -> Result<(), CodegenError> {
        let outer_frame = std::mem::replace(&mut self.frame, instance.frame);
        let end = self.plan.frame_end(instance.frame);
        let fp = self.push(Ty::B64, Op::StackAddr(end));
        // `.local` memory may begin at 0; see `address`.
        let fp = self.bin_const(BinOp::Add, fp, NOT_NULL);
        self.set_reg(Reg::FP, fp);
        if let Some(counter) = self.plan.counter(instance.frame) {
            let rounds = self.constant(self.facts.may_goto_rounds.into());
            self.state.vars[counter] = rounds;
        }

        let shape = Shape::new(self.code, instance)?;
        let mut entries: Vec<Entry> = Vec::with_capacity(shape.starts.len());
        for block in 0..shape.starts.len() {
            // The function's first block has one edge more: the call.
            let preds = shape.graph.preds(block).len() + usize::from(block == 0);
            let id = self.func.add_block();
            let mut merge = None;
            if preds > 1 {
                let mut params = self.state.clone();
                for value in params.values_mut() {
                    let ty = self.func.ty(*value);
                    *value = self.func.add_param(id, ty);
                }
                merge = Some(params);
            }
            entries.push(Entry {
                id,
                state: merge,
                merges: preds > 1,
            });
        }
        self.go(&mut entries, 0);
        for block in shape.graph.reverse_post_order() {
            let Some(state) = entries[block].state.clone() else {
                return self.missing("a reachable predecessor");
            };
            self.state = state;
            self.at = entries[block].id;
            self.block(instance, &shape, &mut entries, block, ret)?;
        }
        self.frame = outer_frame;
        Ok(())
    }

    /// Ends the current block with a jump to a block of the current function.
    fn go(&mut self, entries: &mut [Entry], to: usize) {
        let edge = self.edge(entries, to);
        self.end(Term::Jump(edge));
    }

    fn edge(&mut self, entries: &mut [Entry], to: usize) -> Edge {
        let entry = &mut entries[to];
        if entry.merges {
            Edge {
                to: entry.id,
                args: self.state.values(),
            }
        } else {
            entry.state = Some(self.state.clone());
            Edge {
                to: entry.id,
                args: Vec::new(),
            }
        }
    }

    fn block(
        &mut self,
        instance: &'a Instance,
        shape: &Shape,
        entries: &mut [Entry],
        block: usize,
        ret: Option<Block>,
    ) -> Result<(), CodegenError> {
        let mut pc = shape.starts[block];
        loop {
            self.pc = pc;
            if pc != shape.starts[block]
                && let Some(next) = shape.block_at(pc)
            {
                self.go(entries, next);
                return Ok(());
            }
            if pc >= instance.end {
                return self.missing("an end of the function");
            }
            let fact = instance.at(pc);
            if *fact == InsnFact::Dead {
                return self.missing("an instruction that is reached");
            }
            match *self.code.at(pc) {
                Insn::Exit => {
                    match ret {
                        None => self.end_program(),
                        Some(to) => {
                            let args = std::iter::once(self.reg(Reg::R0))
                                .chain(self.state.vars.iter().copied())
                                .collect();
                            self.jump(to, args);
                        }
                    }
                    return Ok(());
                }
                Insn::Goto { target, .. } => {
                    let to = self.target(shape, target)?;
                    self.go(entries, to);
                    return Ok(());
                }
                Insn::Jump {
                    wide,
                    op,
                    dst,
                    src,
                    target,
                } => {
                    let InsnFact::Branch { taken, falls, .. } = *fact else {
                        return self.missing("which sides of the jump can be taken");
                    };
                    match (taken, falls) {
                        (true, true) => {
                            let cond = self.condition(wide, op, dst, src);
                            let (yes, no) =
                                (self.target(shape, target)?, self.target(shape, pc.next())?);
                            let (yes, no) = (self.edge(entries, yes), self.edge(entries, no));
                            self.end(Term::Branch { cond, yes, no });
                        }
                        (true, false) => {
                            let to = self.target(shape, target)?;
                            self.go(entries, to);
                        }
                        (false, true) => {
                            let to = self.target(shape, pc.next())?;
                            self.go(entries, to);
                        }
                        // The proof has found that no run comes here.
                        (false, false) => self.end(Term::Exit),
                    }
                    return Ok(());
                }
                Insn::MayGoto { target } => {
                    self.may_goto(shape, entries, target, fact)?;
                    return Ok(());
                }
                Insn::Call {
                    callee: Callee::Local(_),
                } => {
                    if self.local_call(instance)? {
                        return Ok(());
                    }
                }
                Insn::Call {
                    callee: Callee::Helper(_),
                } => {
                    let InsnFact::Call(call) = fact else {
                        return self.missing("the helper and its arguments");
                    };
                    if self.helper(instance, call)? {
                        return Ok(());
                    }
                }
                ref insn => self.straight(insn, fact)?,
            }
            pc = pc.next();
        }
    }

    /// Jumps if this frame's rounds are used up, else takes one.
    fn may_goto(
        &mut self,
        shape: &Shape,
        entries: &mut [Entry],
        target: Pc,
        fact: &InsnFact,
    ) -> Result<(), CodegenError> {
        let Some(counter) = self.plan.counter(self.frame) else {
            return self.missing("a counter of rounds");
        };
        let left = self.state.vars[counter];
        let sides = successors(&Insn::MayGoto { target }, fact, self.pc);
        let to = |t: &Self, pc: Option<Pc>| pc.map(|pc| t.target(shape, pc)).transpose();
        let (yes, no) = (to(self, sides[0])?, to(self, sides[1])?);
        match (yes, no) {
            (Some(yes), Some(no)) => {
                let cond = self.cmp_const(Cond::Eq, left, 0);
                let yes = self.edge(entries, yes);
                let (out, on) = (yes, self.func.add_block());
                self.end(Term::Branch {
                    cond,
                    yes: out,
                    no: Edge {
                        to: on,
                        args: Vec::new(),
                    },
                });
                self.at = on;
                self.take_round(counter, left);
                self.go(entries, no);
            }
            (Some(to), None) => self.go(entries, to),
            (None, Some(to)) => {
                self.take_round(counter, left);
                self.go(entries, to);
            }
            (None, None) => return self.missing("a side of the jump that can be taken"),
        }
        Ok(())
    }

    fn take_round(&mut self, counter: usize, left: Value) {
        self.state.vars[counter] = self.bin_const(BinOp::Sub, left, 1);
    }

    fn target(&self, shape: &Shape, pc: Pc) -> Result<usize, CodegenError> {
        match shape.block_at(pc) {
            Some(block) => Ok(block),
            None => self.missing("a reachable target"),
        }
    }

    fn condition(&mut self, wide: bool, op: JumpOp, dst: Reg, src: Source) -> Value {
        let mut a = self.reg(dst);
        let mut b = self.source(src);
        if !wide {
            (a, b) = (self.trunc(a), self.trunc(b));
        }
        let cond = match op {
            JumpOp::Set => {
                let both = self.bin(BinOp::And, a, b);
                return self.cmp_const(Cond::Ne, both, 0);
            }
            JumpOp::Eq => Cond::Eq,
            JumpOp::Ne => Cond::Ne,
            JumpOp::Gt => Cond::Ugt,
            JumpOp::Ge => Cond::Uge,
            JumpOp::Lt => Cond::Ult,
            JumpOp::Le => Cond::Ule,
            JumpOp::SGt => Cond::Sgt,
            JumpOp::SGe => Cond::Sge,
            JumpOp::SLt => Cond::Slt,
            JumpOp::SLe => Cond::Sle,
        };
        self.cmp(cond, a, b)
    }

    /// Instructions that neither branch nor call.
    fn straight(&mut self, insn: &Insn, fact: &InsnFact) -> Result<(), CodegenError> {
        match *insn {
            Insn::Alu { wide, op, dst, src } => self.alu(wide, op, dst, src),
            Insn::MovSx {
                wide,
                bits,
                dst,
                src,
            } => self.mov_sx(wide, bits, dst, src),
            Insn::Neg { wide, dst } => self.neg(wide, dst),
            Insn::End { kind, bits, dst } => self.byte_order(kind, bits, dst),
            Insn::LoadImm64 { dst, value } => {
                let value = match value {
                    Imm64::Value(v) => self.constant(v),
                    // Maps and functions are named by the facts of the call that takes them.
                    Imm64::Map(_) | Imm64::Func(_) => self.constant(MAP_POINTER),
                    Imm64::MapValue { map, offset } => {
                        let binding = self.binding(map)?;
                        let MapLayout::Array(layout) = binding.layout else {
                            return Err(CodegenError::WrongLayout {
                                pc: self.pc,
                                helper: "map_lookup_elem",
                                map,
                            });
                        };
                        let base = self.push(Ty::B64, Op::Slot(binding.slot));
                        let base = self.array_base(base, &layout);
                        self.bin_const(BinOp::Add, base, u64::from(offset))
                    }
                    Imm64::BtfId(_) => return self.unsupported("address of a kernel variable"),
                };
                self.set_reg(dst, value);
            }
            Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. } => {
                let InsnFact::Access(place) = *fact else {
                    return self.missing("the region of the access");
                };
                self.access(insn, place)?;
            }
            Insn::Call {
                callee: Callee::Kfunc(number),
            } => self.kfunc(number, fact)?,
            Insn::CallReg { .. } => return self.unsupported("call through a register"),
            Insn::LegacyPacket { .. } => return self.unsupported("legacy packet access"),
            Insn::Jump { .. }
            | Insn::MayGoto { .. }
            | Insn::Goto { .. }
            | Insn::Exit
            | Insn::Call {
                callee: Callee::Helper(_) | Callee::Local(_),
            } => {
                return self.missing("a straight-line instruction");
            }
        }
        Ok(())
    }
}

/// A block of the function being translated.
struct Entry {
    id: Block,
    /// Its variables: parameters if it merges, else what its only predecessor left, once that is
    /// known.
    state: Option<State>,
    merges: bool,
}
