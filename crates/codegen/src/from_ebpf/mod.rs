//! First stage: eBPF with its proof becomes SSA, calls of local functions inlined.
//!
//! Registers and promoted stack bytes are variables. A block with several predecessors gets a parameter for each of
//! them; `opt_copy` and `opt_dce` take back what is not needed, which is simpler than knowing it beforehand. Only
//! reachable instructions are translated, and a branch whose proof knows its outcome is a jump.

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
mod strings;

use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_ebpf::{Callee, Code, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};
use warpbpf_flow::Entity;
use warpbpf_verify::{ArgFact, CallFact, Facts, INNER, InsnFact, Instance};

use crate::error::CodegenError;
use crate::fragment::{Env, Input, MapBinding};
use crate::ir::{BinOp, Block, Cond, Edge, Func, Inst, Mem, Op, Special, Term, Ty, UnOp, Value};
use crate::stack::StackPlan;

use calls::{MAP_POINTER, NOT_NULL};
use shape::{Shape, successors};

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

/// Values of the variables at one point.
#[derive(Clone)]
struct State {
    regs: [Value; Reg::COUNT],
    vars: Vec<Value>,
}

impl State {
    fn values(&self) -> Vec<Value> {
        self.regs.iter().chain(&self.vars).copied().collect()
    }
    fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.regs.iter_mut().chain(&mut self.vars)
    }
}

struct Translator<'a> {
    code: &'a Code,
    facts: &'a Facts,
    env: &'a Env,
    plan: StackPlan,
    func: Func,
    /// Where instructions go.
    at: Block,
    state: State,
    /// The instruction being translated, for errors.
    pc: Pc,
    /// Depth of the current function.
    frame: u32,
    /// This thread's memory, of a program that runs by itself, and where in it the result goes.
    memory: Option<(Value, i32)>,
    /// Calls so far that aggregate over the block; each has a cell of its own.
    cells: u32,
}

impl<'a> Translator<'a> {
    fn new(code: &'a Code, facts: &'a Facts, env: &'a Env) -> Translator<'a> {
        let plan = StackPlan::new(code, facts, &env.maps);
        let mut func = Func::new();
        func.stack_bytes = plan.bytes;
        let undefined = func.add_value(Ty::B64);
        func.blocks[0].insts.push(Inst {
            result: Some(undefined),
            op: Op::Const(0),
        });
        Translator {
            code,
            facts,
            env,
            state: State {
                regs: [undefined; Reg::COUNT],
                vars: vec![undefined; plan.vars + plan.counters],
            },
            plan,
            func,
            at: Block::ENTRY,
            pc: Pc(0),
            frame: 0,
            memory: None,
            cells: 0,
        }
    }

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

    // --- building -------------------------------------------------------------------------------------------------

    fn push(&mut self, ty: Ty, op: Op) -> Value {
        let result = self.func.add_value(ty);
        self.func.blocks[self.at.index()].insts.push(Inst {
            result: Some(result),
            op,
        });
        result
    }
    fn push_effect(&mut self, op: Op) {
        self.func.blocks[self.at.index()]
            .insts
            .push(Inst { result: None, op });
    }
    fn constant(&mut self, value: u64) -> Value {
        self.push(Ty::B64, Op::Const(value))
    }
    fn constant32(&mut self, value: u32) -> Value {
        self.push(Ty::B32, Op::Const(u64::from(value)))
    }
    fn bin(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a);
        self.push(ty, Op::Bin(op, a, b))
    }
    fn bin_const(&mut self, op: BinOp, a: Value, b: u64) -> Value {
        let ty = if op.is_shift() {
            Ty::B32
        } else {
            self.func.ty(a)
        };
        let b = self.push(ty, Op::Const(b & ty.mask()));
        self.bin(op, a, b)
    }
    fn cmp(&mut self, cond: Cond, a: Value, b: Value) -> Value {
        self.push(Ty::Pred, Op::Cmp(cond, a, b))
    }
    fn cmp_const(&mut self, cond: Cond, a: Value, b: u64) -> Value {
        let ty = self.func.ty(a);
        let b = self.push(ty, Op::Const(b & ty.mask()));
        self.cmp(cond, a, b)
    }
    fn select(&mut self, p: Value, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a);
        self.push(ty, Op::Select(p, a, b))
    }
    fn trunc(&mut self, v: Value) -> Value {
        self.push(Ty::B32, Op::Un(UnOp::Trunc, v))
    }
    fn zext(&mut self, v: Value) -> Value {
        self.push(Ty::B64, Op::Un(UnOp::Zext, v))
    }
    fn special(&mut self, special: Special) -> Value {
        self.push(special.ty(), Op::Special(special))
    }
    fn special64(&mut self, special: Special) -> Value {
        let v = self.special(special);
        if special.ty() == Ty::B64 {
            v
        } else {
            self.zext(v)
        }
    }
    fn end(&mut self, term: Term) {
        self.func.blocks[self.at.index()].term = term;
    }
    fn jump(&mut self, to: Block, args: Vec<Value>) {
        self.end(Term::Jump(Edge { to, args }));
    }
    fn branch(&mut self, cond: Value, yes: Block, no: Block) {
        let edge = |to| Edge {
            to,
            args: Vec::new(),
        };
        self.end(Term::Branch {
            cond,
            yes: edge(yes),
            no: edge(no),
        });
    }
    fn reg(&self, reg: Reg) -> Value {
        self.state.regs[reg.index()]
    }
    fn set_reg(&mut self, reg: Reg, value: Value) {
        self.state.regs[reg.index()] = value;
    }
    /// A second operand as 64 bits.
    fn source(&mut self, src: Source) -> Value {
        match src {
            Source::Reg(reg) => self.reg(reg),
            Source::Imm(imm) => self.constant(i64::from(imm) as u64),
        }
    }

    // --- environment ----------------------------------------------------------------------------------------------

    fn binding(&self, map: u32) -> Result<MapBinding, CodegenError> {
        let index = map & !INNER;
        let bound = self.env.maps.get(index as usize).copied();
        let binding = bound.ok_or(CodegenError::MapNotBound {
            pc: self.pc,
            map: index,
            bound: self.env.maps.len(),
        })?;
        match binding.inner {
            _ if map & INNER == 0 => Ok(binding),
            Some(layout) => Ok(MapBinding {
                layout,
                inner: None,
                ..binding
            }),
            None => self.missing("the layout of the maps in a map"),
        }
    }

    /// Base address of the map of a call: in the slot table, or of a map in a map what the program found there.
    fn map_base(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        if map & INNER == 0 {
            let slot = self.binding(map)?.slot;
            return Ok(self.push(Ty::B64, Op::Slot(slot)));
        }
        match call.args.iter().position(|arg| *arg == ArgFact::Map(map)) {
            Some(i) => Ok(self.arg(i)),
            None => self.missing("the argument that is the map"),
        }
    }

    /// Local memory of `bytes`, for what one operation leaves and the next ones read.
    fn scratch(&mut self, bytes: u32) -> Value {
        let end = self.plan.bytes + bytes.next_multiple_of(8);
        self.func.stack_bytes = self.func.stack_bytes.max(end);
        self.push(Ty::B64, Op::StackAddr(self.plan.bytes))
    }

    fn missing<T>(&self, expected: &'static str) -> Result<T, CodegenError> {
        Err(CodegenError::MissingFact {
            pc: self.pc,
            expected,
        })
    }

    fn unsupported<T>(&self, what: &'static str) -> Result<T, CodegenError> {
        Err(CodegenError::Unsupported { pc: self.pc, what })
    }

    /// Address of this SM's copy of an array.
    fn array_base(&mut self, base: Value, layout: &ArrayLayout) -> Value {
        if layout.shards <= 1 {
            return base;
        }
        let shard = self.own_copy(layout.shards);
        let skip = self.bin_const(BinOp::Mul, shard, layout.shard_stride());
        self.bin(BinOp::Add, base, skip)
    }

    /// Which of so many copies this SM has.
    fn own_copy(&mut self, copies: u32) -> Value {
        // %smid may exceed the number of SMs that the host counted (PTX ISA: no contiguous numbering is promised).
        let sm = self.special(Special::Sm);
        let copy = self.bin_const(BinOp::UMin, sm, u64::from(copies - 1));
        self.zext(copy)
    }

    // --- control flow ---------------------------------------------------------------------------------------------

    /// Translates one function as called from one place. Leaves through `ret`, whose parameters are `r0` and then the
    /// stack variables, or out of the fragment.
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
    /// Its variables: parameters if it merges, else what its only predecessor left, once that is known.
    state: Option<State>,
    merges: bool,
}
