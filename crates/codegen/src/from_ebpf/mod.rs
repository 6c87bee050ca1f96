//! First stage: eBPF with its proof becomes SSA, calls of local functions inlined.
//!
//! Registers and promoted stack bytes are variables. A block with several predecessors gets a parameter for each of
//! them; `opt_copy` and `opt_dce` take back what is not needed, which is simpler than knowing it beforehand. Only
//! reachable instructions are translated, and a branch whose proof knows its outcome is a jump.

mod alu;
mod helpers;
mod maps;
mod memory;
mod ring;

use std::collections::BTreeMap;

use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_ebpf::{Callee, Code, Imm64, Insn, JumpOp, Pc, Reg, Source};
use warpbpf_flow::{Cfg, Entity};
use warpbpf_verify::{Facts, InsnFact, Instance};

use crate::error::CodegenError;
use crate::fragment::{Env, MapBinding};
use crate::ir::{BinOp, Block, Cond, Edge, Func, Inst, Op, Special, Term, Ty, UnOp, Value};
use crate::stack::StackPlan;

/// Translates a program whose facts belong to its code.
pub fn run(code: &Code, facts: &Facts, env: &Env) -> Result<Func, CodegenError> {
    let mut t = Translator::new(code, facts, env);
    let Some(entry) = facts.instances.first() else {
        return Err(CodegenError::MissingFact {
            pc: Pc(0),
            expected: "an instance for the entry function",
        });
    };
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
                vars: vec![undefined; plan.vars],
            },
            plan,
            func,
            at: Block::ENTRY,
            pc: Pc(0),
            frame: 0,
        }
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
        self.env
            .maps
            .get(map as usize)
            .copied()
            .ok_or(CodegenError::MapNotBound {
                pc: self.pc,
                map,
                bound: self.env.maps.len(),
            })
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
    fn array_base(&mut self, slot: u32, layout: &ArrayLayout) -> Value {
        let base = self.push(Ty::B64, Op::Slot(slot));
        if layout.shards <= 1 {
            return base;
        }
        // %smid may exceed the number of SMs that the host counted (PTX ISA: no contiguous numbering is promised).
        let sm = self.special(Special::Sm);
        let shard = self.bin_const(BinOp::UMin, sm, u64::from(layout.shards - 1));
        let shard = self.zext(shard);
        let skip = self.bin_const(BinOp::Mul, shard, layout.shard_stride());
        self.bin(BinOp::Add, base, skip)
    }

    // --- control flow ---------------------------------------------------------------------------------------------

    /// Translates one function as called from one place. Leaves through `ret`, whose parameters are `r0` and then the
    /// stack variables, or out of the fragment.
    fn instance(&mut self, instance: &'a Instance, ret: Option<Block>) -> Result<(), CodegenError> {
        let outer_frame = std::mem::replace(&mut self.frame, instance.frame);
        let end = self.plan.frame_end(instance.frame);
        let fp = self.push(Ty::B64, Op::StackAddr(end));
        self.set_reg(Reg::FP, fp);

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
            match *self.code.at(pc) {
                Insn::Exit => {
                    match ret {
                        None => self.end(Term::Ret),
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
                        (false, false) => {
                            return self.missing("a side of the jump that can be taken");
                        }
                    }
                    return Ok(());
                }
                Insn::Call {
                    callee: Callee::Local(_),
                } => self.local_call(instance)?,
                Insn::Call {
                    callee: Callee::Helper(_),
                } => {
                    let InsnFact::Call(call) = fact else {
                        return self.missing("the helper and its arguments");
                    };
                    if self.helper(call)? {
                        return Ok(());
                    }
                }
                ref insn => self.straight(insn, fact)?,
            }
            pc = pc.next();
        }
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

    fn local_call(&mut self, instance: &'a Instance) -> Result<(), CodegenError> {
        let callee = instance
            .calls
            .get(&self.pc)
            .and_then(|&i| self.facts.instances.get(i));
        let Some(callee) = callee.filter(|c| c.frame > instance.frame) else {
            return self.missing("the proof of the called function");
        };
        let after = self.func.add_block();
        let result = self.func.add_param(after, Ty::B64);
        let vars: Vec<Value> = self
            .state
            .vars
            .iter()
            .map(|_| self.func.add_param(after, Ty::B64))
            .collect();
        let (saved, pc) = (self.state.regs, self.pc);
        self.instance(callee, Some(after))?;
        // r1 to r5 hold nothing after a call, r6 to r9 what they held before it (RFC 9669 §2.1); the values from
        // before the call dominate what follows it.
        self.pc = pc;
        self.state = State { regs: saved, vars };
        self.set_reg(Reg::R0, result);
        self.at = after;
        Ok(())
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
                    // A map is named by the facts of the call that takes it; its register holds nothing.
                    Imm64::Map(_) => self.constant(0),
                    Imm64::MapValue { map, offset } => {
                        let binding = self.binding(map)?;
                        let MapLayout::Array(layout) = binding.layout else {
                            return Err(CodegenError::WrongLayout {
                                pc: self.pc,
                                helper: "map_lookup_elem",
                                map,
                            });
                        };
                        let base = self.array_base(binding.slot, &layout);
                        self.bin_const(BinOp::Add, base, u64::from(offset))
                    }
                    Imm64::BtfId(_) => return self.unsupported("address of a kernel variable"),
                    Imm64::Func(_) => return self.unsupported("address of a function"),
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
                callee: Callee::Kfunc(_),
            } => return self.unsupported("call of a kernel function"),
            Insn::CallReg { .. } => return self.unsupported("call through a register"),
            Insn::LegacyPacket { .. } => return self.unsupported("legacy packet access"),
            Insn::MayGoto { .. } => return self.unsupported("`may_goto`"),
            Insn::Jump { .. }
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

/// Blocks of one function: only what the proof reaches.
struct Shape {
    /// First instruction of each block; the function's own is first.
    starts: Vec<Pc>,
    index: BTreeMap<Pc, usize>,
    graph: Cfg<usize>,
}

impl Shape {
    fn new(code: &Code, instance: &Instance) -> Result<Shape, CodegenError> {
        let missing = |pc, expected| CodegenError::MissingFact { pc, expected };
        // Leaders in the order of discovery: the entry first.
        let mut starts = vec![instance.start];
        let mut index = BTreeMap::from([(instance.start, 0)]);
        let mut note = |pc: Pc| {
            index.entry(pc).or_insert_with(|| {
                starts.push(pc);
                starts.len() - 1
            });
        };
        for i in instance.start.0..instance.end.0 {
            let pc = Pc(i);
            if *instance.at(pc) == InsnFact::Dead {
                continue;
            }
            for to in successors(code.at(pc), instance.at(pc), pc)
                .into_iter()
                .flatten()
            {
                if to < instance.start || to >= instance.end {
                    return Err(missing(pc, "a jump that stays in its function"));
                }
                note(to);
            }
        }
        let mut edges = Vec::new();
        for (block, &start) in starts.iter().enumerate() {
            let mut pc = start;
            loop {
                if pc >= instance.end {
                    break;
                }
                let insn = code.at(pc);
                let next = successors(insn, instance.at(pc), pc);
                if next.iter().any(Option::is_some) {
                    edges.extend(next.into_iter().flatten().map(|to| (block, index[&to])));
                    break;
                }
                if matches!(insn, Insn::Exit) {
                    break;
                }
                pc = pc.next();
                if let Some(&next) = index.get(&pc) {
                    edges.push((block, next));
                    break;
                }
            }
        }
        let graph = Cfg::new(starts.len(), 0, edges);
        Ok(Shape {
            starts,
            index,
            graph,
        })
    }

    fn block_at(&self, pc: Pc) -> Option<usize> {
        self.index.get(&pc).copied()
    }
}

/// Where a jump can go; empty for what just falls through, and for exits.
fn successors(insn: &Insn, fact: &InsnFact, pc: Pc) -> [Option<Pc>; 2] {
    match (insn, fact) {
        (Insn::Jump { target, .. }, InsnFact::Branch { taken, falls, .. }) => {
            [taken.then_some(*target), falls.then_some(pc.next())]
        }
        (Insn::Goto { target, .. }, _) => [Some(*target), None],
        _ => [None, None],
    }
}
