//! The code generator's own language: closed, small, SSA with block parameters.
//!
//! A value has one of three types ([`Ty`]) and is defined once, as a parameter of a block or as the
//! result of an instruction; its definition dominates its uses. Arithmetic is eBPF's (RFC 9669)
//! until the pass `lower`, which leaves only operations that mean in PTX what they mean here.
//! Operations that ask which lanes run together ([`Op::RingReserve`]) stand where the program put
//! them: no pass moves, copies or merges them.

mod op;
mod value;

use warpbpf_flow::Entity;

pub use op::*;
pub use value::{Block, Ty, Value};

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inst {
    /// What it defines.
    pub result: Option<Value>,
    /// What it does.
    pub op: Op,
}

/// A jump with the values of the target's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Target.
    pub to: Block,
    /// One per parameter.
    pub args: Vec<Value>,
}

/// How a block ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// Always there.
    Jump(Edge),
    /// `yes` if `cond` holds, else `no`.
    Branch {
        /// A predicate.
        cond: Value,
        /// Where it holds.
        yes: Edge,
        /// Where it does not.
        no: Edge,
    },
    /// Falls out of the fragment.
    Ret,
    /// Ends the thread.
    Exit,
}

impl Term {
    /// The edges.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        let (a, b) = match self {
            Term::Jump(e) => (Some(e), None),
            Term::Branch { yes, no, .. } => (Some(yes), Some(no)),
            Term::Ret | Term::Exit => (None, None),
        };
        a.into_iter().chain(b)
    }
    /// The edges, to change.
    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        let (a, b) = match self {
            Term::Jump(e) => (Some(e), None),
            Term::Branch { yes, no, .. } => (Some(yes), Some(no)),
            Term::Ret | Term::Exit => (None, None),
        };
        a.into_iter().chain(b)
    }
    /// Calls `f` with each value it uses.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        if let Term::Branch { cond, .. } = self {
            f(*cond);
        }
        for edge in self.edges() {
            edge.args.iter().copied().for_each(&mut f);
        }
    }
    /// Calls `f` with each value it uses, to replace it.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        if let Term::Branch { cond, .. } = self {
            f(cond);
        }
        for edge in self.edges_mut() {
            edge.args.iter_mut().for_each(&mut f);
        }
    }
}

/// A basic block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockData {
    /// Values that each edge to it provides.
    pub params: Vec<Value>,
    /// In order.
    pub insts: Vec<Inst>,
    /// Its end.
    pub term: Term,
}

/// A fragment in this language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Func {
    /// Type of each value.
    pub types: Vec<Ty>,
    /// The blocks; the first is the entry.
    pub blocks: Vec<BlockData>,
    /// Bytes of the local array, if any [`Op::StackAddr`] is left.
    pub stack_bytes: u32,
}

impl Func {
    /// An empty one with its entry block.
    pub fn new() -> Func {
        let mut func = Func {
            types: Vec::new(),
            blocks: Vec::new(),
            stack_bytes: 0,
        };
        func.add_block();
        func
    }
    /// How many values there are.
    pub fn value_count(&self) -> usize {
        self.types.len()
    }
    /// A new value.
    pub fn add_value(&mut self, ty: Ty) -> Value {
        self.types.push(ty);
        Value::new(self.types.len() - 1)
    }
    /// A new block, which falls out until it gets another end.
    pub fn add_block(&mut self) -> Block {
        self.blocks.push(BlockData {
            params: Vec::new(),
            insts: Vec::new(),
            term: Term::Ret,
        });
        Block::new(self.blocks.len() - 1)
    }
    /// Adds a parameter to a block.
    pub fn add_param(&mut self, block: Block, ty: Ty) -> Value {
        let value = self.add_value(ty);
        self.blocks[block.index()].params.push(value);
        value
    }
    /// Type of a value.
    pub fn ty(&self, value: Value) -> Ty {
        self.types[value.index()]
    }
    /// Replaces each use of `v` by `to[v]`, following chains.
    pub fn substitute(&mut self, to: &[Value]) {
        let resolve = |v: &mut Value| {
            while to[v.index()] != *v {
                *v = to[v.index()];
            }
        };
        for block in &mut self.blocks {
            for inst in &mut block.insts {
                inst.op.for_each_operand_mut(resolve);
            }
            block.term.for_each_operand_mut(resolve);
        }
    }
    /// The operation that defines each value; `None` for parameters.
    pub fn definitions(&self) -> Vec<Option<Op>> {
        let mut defs = vec![None; self.types.len()];
        for block in &self.blocks {
            for inst in &block.insts {
                if let Some(result) = inst.result {
                    defs[result.index()] = Some(inst.op.clone());
                }
            }
        }
        defs
    }
    /// How often each value is used.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut uses = vec![0; self.types.len()];
        for block in &self.blocks {
            for inst in &block.insts {
                inst.op.for_each_operand(|v| uses[v.index()] += 1);
            }
            block.term.for_each_operand(|v| uses[v.index()] += 1);
        }
        uses
    }
}

impl Default for Func {
    fn default() -> Func {
        Func::new()
    }
}
