//! Where a translation stands, and the instructions that all of its parts write.

use warpbpf_abi::layout::ArrayLayout;
use warpbpf_ebpf::{Code, Pc, Reg, Source};
use warpbpf_flow::Entity;
use warpbpf_verify::{ArgFact, CallFact, Facts, INNER};

use crate::error::CodegenError;
use crate::fragment::{Env, MapBinding};
use crate::ir::{BinOp, Block, Cond, Edge, Func, Inst, Op, Special, Term, Ty, UnOp, Value};
use crate::stack::StackPlan;

/// What a map's register holds: programs can only compare it with null, which it is not.
pub(super) const MAP_POINTER: u64 = 1;

/// Added to pointers that are not global addresses, because the number would be 0 for some of them
/// and programs may compare it with null. It is above what an array's key needs (35 bits) and above
/// any offset that the verifier lets a program add (2^29 in either direction), so that neither
/// reaches 0.
pub(super) const NOT_NULL: u64 = 1 << 40;

/// Values of the variables at one point.
#[derive(Clone)]
pub(super) struct State {
    pub(super) regs: [Value; Reg::COUNT],
    pub(super) vars: Vec<Value>,
}

impl State {
    pub(super) fn values(&self) -> Vec<Value> {
        self.regs.iter().chain(&self.vars).copied().collect()
    }
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.regs.iter_mut().chain(&mut self.vars)
    }
}

pub(super) struct Translator<'a> {
    pub(super) code: &'a Code,
    pub(super) facts: &'a Facts,
    pub(super) env: &'a Env,
    pub(super) plan: StackPlan,
    pub(super) func: Func,
    /// Where instructions go.
    pub(super) at: Block,
    pub(super) state: State,
    /// The instruction being translated, for errors.
    pub(super) pc: Pc,
    /// Depth of the current function.
    pub(super) frame: u32,
    /// This thread's memory, of a program that runs by itself, and where in it the result goes.
    pub(super) memory: Option<(Value, i32)>,
    /// Calls so far that aggregate over the block; each has a cell of its own.
    pub(super) cells: u32,
}

impl<'a> Translator<'a> {
    pub(super) fn new(code: &'a Code, facts: &'a Facts, env: &'a Env) -> Translator<'a> {
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

    pub(super) fn push(&mut self, ty: Ty, op: Op) -> Value {
        let result = self.func.add_value(ty);
        self.func.blocks[self.at.index()].insts.push(Inst {
            result: Some(result),
            op,
        });
        result
    }

    pub(super) fn push_effect(&mut self, op: Op) {
        self.func.blocks[self.at.index()]
            .insts
            .push(Inst { result: None, op });
    }

    pub(super) fn constant(&mut self, value: u64) -> Value {
        self.push(Ty::B64, Op::Const(value))
    }

    pub(super) fn constant32(&mut self, value: u32) -> Value {
        self.push(Ty::B32, Op::Const(u64::from(value)))
    }

    pub(super) fn bin(&mut self, op: BinOp, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a);
        self.push(ty, Op::Bin(op, a, b))
    }

    pub(super) fn bin_const(&mut self, op: BinOp, a: Value, b: u64) -> Value {
        let ty = if op.is_shift() {
            Ty::B32
        } else {
            self.func.ty(a)
        };
        let b = self.push(ty, Op::Const(b & ty.mask()));
        self.bin(op, a, b)
    }

    pub(super) fn cmp(&mut self, cond: Cond, a: Value, b: Value) -> Value {
        self.push(Ty::Pred, Op::Cmp(cond, a, b))
    }

    pub(super) fn cmp_const(&mut self, cond: Cond, a: Value, b: u64) -> Value {
        let ty = self.func.ty(a);
        let b = self.push(ty, Op::Const(b & ty.mask()));
        self.cmp(cond, a, b)
    }

    pub(super) fn select(&mut self, p: Value, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a);
        self.push(ty, Op::Select(p, a, b))
    }

    pub(super) fn trunc(&mut self, v: Value) -> Value {
        self.push(Ty::B32, Op::Un(UnOp::Trunc, v))
    }

    pub(super) fn zext(&mut self, v: Value) -> Value {
        self.push(Ty::B64, Op::Un(UnOp::Zext, v))
    }

    pub(super) fn special(&mut self, special: Special) -> Value {
        self.push(special.ty(), Op::Special(special))
    }

    pub(super) fn special64(&mut self, special: Special) -> Value {
        let v = self.special(special);
        if special.ty() == Ty::B64 {
            v
        } else {
            self.zext(v)
        }
    }

    pub(super) fn end(&mut self, term: Term) {
        self.func.blocks[self.at.index()].term = term;
    }

    pub(super) fn jump(&mut self, to: Block, args: Vec<Value>) {
        self.end(Term::Jump(Edge { to, args }));
    }

    pub(super) fn branch(&mut self, cond: Value, yes: Block, no: Block) {
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

    pub(super) fn reg(&self, reg: Reg) -> Value {
        self.state.regs[reg.index()]
    }

    pub(super) fn set_reg(&mut self, reg: Reg, value: Value) {
        self.state.regs[reg.index()] = value;
    }

    /// A second operand as 64 bits.
    pub(super) fn source(&mut self, src: Source) -> Value {
        match src {
            Source::Reg(reg) => self.reg(reg),
            Source::Imm(imm) => self.constant(i64::from(imm) as u64),
        }
    }

    pub(super) fn binding(&self, map: u32) -> Result<MapBinding, CodegenError> {
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

    /// Base address of the map of a call: in the slot table, or of a map in a map what the program
    /// found there.
    pub(super) fn map_base(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
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
    pub(super) fn scratch(&mut self, bytes: u32) -> Value {
        let end = self.plan.bytes + bytes.next_multiple_of(8);
        self.func.stack_bytes = self.func.stack_bytes.max(end);
        self.push(Ty::B64, Op::StackAddr(self.plan.bytes))
    }

    pub(super) fn missing<T>(&self, expected: &'static str) -> Result<T, CodegenError> {
        Err(CodegenError::MissingFact {
            pc: self.pc,
            expected,
        })
    }

    pub(super) fn unsupported<T>(&self, what: &'static str) -> Result<T, CodegenError> {
        Err(CodegenError::Unsupported { pc: self.pc, what })
    }

    /// Address of this SM's copy of an array.
    pub(super) fn array_base(&mut self, base: Value, layout: &ArrayLayout) -> Value {
        if layout.shards <= 1 {
            return base;
        }
        let shard = self.own_copy(layout.shards);
        let skip = self.bin_const(BinOp::Mul, shard, layout.shard_stride());
        self.bin(BinOp::Add, base, skip)
    }

    /// Which of so many copies this SM has.
    pub(super) fn own_copy(&mut self, copies: u32) -> Value {
        // %smid may exceed the number of SMs that the host counted (PTX ISA: no contiguous
        // numbering is promised).
        let sm = self.special(Special::Sm);
        let copy = self.bin_const(BinOp::UMin, sm, u64::from(copies - 1));
        self.zext(copy)
    }
}
