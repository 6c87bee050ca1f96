//! One control-flow graph over all instances of a proved program, calls and callbacks included, and
//! for each of its nodes what flows from where to where. The analyses that look at a whole program
//! after the proof stand on it.
//!
//! Each call has an instance of its own, so a graph with an edge into the callee and edges back to
//! what follows the call is exact: no path enters a function from one caller and leaves it to
//! another.

use warpbpf_abi::context::FieldSource;
use warpbpf_abi::helpers::{Arg, Helper, Ret};
use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{Callee, Insn, Pc, Reg, Source};
use warpbpf_flow::Cfg;

use crate::domain::state::DYNPTR;
use crate::env::Env;
use crate::facts::{ArgFact, CallFact, Facts, INNER, InsnFact, Place, Region, map_def};

/// Call frames, as the explorer allows them.
pub const FRAMES: usize = 8;
/// Registers, then what a frame remembers besides: see the constants below.
const REGS: u32 = 11;
/// The counter of `may_goto`.
pub const ROUNDS: u16 = 1 << REGS;
/// What decides how often a callback is called.
pub const LOOP: u16 = 1 << (REGS + 1);
/// The context argument of a callback.
pub const LOOP_CONTEXT: u16 = 1 << (REGS + 2);
/// Stack bytes of a cell.
const CELL: i64 = 4;
const STACK: i64 = 512;

/// Locations of one frame: registers and cells of four stack bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Call depth.
    pub frame: usize,
    /// One bit each.
    pub regs: u16,
    /// One bit each, from the lowest address.
    pub cells: u128,
}

impl Part {
    /// Nothing.
    pub const NONE: Part = Part {
        frame: 0,
        regs: 0,
        cells: 0,
    };

    pub fn regs(frame: usize, regs: u16) -> Part {
        Part {
            frame,
            regs,
            cells: 0,
        }
    }

    pub fn reg(frame: usize, reg: Reg) -> Part {
        Part::regs(frame, 1 << reg.index())
    }

    /// Bytes of a stack, all of it if the offset is not known; true if they are whole cells.
    pub fn stack(frame: u32, offset: Option<i64>, bytes: i64) -> (Part, bool) {
        let part = |cells| Part {
            frame: frame as usize,
            regs: 0,
            cells,
        };
        let Some(from) = offset.map(|o| o + STACK).filter(|f| (0..STACK).contains(f)) else {
            return (part(u128::MAX), false);
        };
        let end = (from + bytes.max(1)).min(STACK);
        let (first, last) = (from / CELL, (end - 1) / CELL);
        let count = last - first + 1;
        let ones = if count >= 128 {
            u128::MAX
        } else {
            (1 << count) - 1
        };
        let whole = from % CELL == 0 && (end % CELL == 0);
        (part(ones << first), whole)
    }
}

/// Something flows: what is in `to` comes from what is in `from`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// Where to.
    pub to: Part,
    /// All of `to` is overwritten, whatever was there.
    pub strong: bool,
    /// Where from.
    pub from: [Part; 3],
    /// It differs from lane to lane whatever it comes from.
    pub varies: bool,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An instruction.
    Insn,
    /// Before each call of a callback, and after the last one.
    Again,
}

/// A place in the program: the instruction, in its instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Index of the instance.
    pub instance: usize,
    /// The instruction.
    pub pc: Pc,
    /// The instruction itself, or what happens between the rounds of its callback.
    pub kind: Kind,
}

/// The graph.
pub struct Graph<'a> {
    /// What is fixed.
    pub env: &'a Env<'a>,
    /// What is proved.
    pub facts: &'a Facts,
    /// The edges that can be taken.
    pub cfg: Cfg<usize>,
    /// The nodes that are reached, each before those that follow it, except around a loop.
    pub order: Vec<usize>,
    /// Where each node stands in the order; `usize::MAX` if it is not reached.
    pub position: Vec<usize>,
    at: Vec<At>,
    first: Vec<usize>,
    /// Where the call of each instance stands.
    caller: Vec<Option<usize>>,
}

impl<'a> Graph<'a> {
    /// Builds it.
    pub fn new(env: &'a Env<'a>, facts: &'a Facts) -> Graph<'a> {
        let mut at = Vec::new();
        let mut first = Vec::new();
        for (instance, i) in facts.instances.iter().enumerate() {
            first.push(at.len());
            at.extend((i.start.0..i.end.0).map(|pc| At {
                instance,
                pc: Pc(pc),
                kind: Kind::Insn,
            }));
        }
        let mut again = Vec::new();
        let mut caller = vec![None; facts.instances.len()];
        for (instance, i) in facts.instances.iter().enumerate() {
            for (&pc, &callee) in &i.calls {
                let node = first[instance] + (pc.0 - i.start.0) as usize;
                caller[callee] = Some(node);
                if matches!(i.at(pc), InsnFact::Call(_)) {
                    again.push((callee, at.len()));
                    at.push(At {
                        instance,
                        pc,
                        kind: Kind::Again,
                    });
                }
            }
        }
        let mut graph = Graph {
            env,
            facts,
            cfg: Cfg::new(1, 0, []),
            order: Vec::new(),
            position: Vec::new(),
            at,
            first,
            caller,
        };
        let again_of = |callee: usize| again.iter().find(|(c, _)| *c == callee).map(|(_, n)| *n);
        let mut edges = Vec::new();
        for node in 0..graph.at.len() {
            graph.edges(node, &again_of, &mut |to| edges.push((node, to)));
        }
        edges.retain(|(_, to)| graph.lives(*to));
        graph.cfg = Cfg::new(graph.at.len(), 0, edges);
        graph.order = graph.cfg.reverse_post_order();
        graph.position = vec![usize::MAX; graph.at.len()];
        for (i, &node) in graph.order.iter().enumerate() {
            graph.position[node] = i;
        }
        graph
    }

    /// Nodes in all.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// What a node is.
    pub fn at(&self, node: usize) -> At {
        self.at[node]
    }

    /// The node of an instruction of an instance.
    pub fn node(&self, instance: usize, pc: Pc) -> usize {
        self.first[instance] + (pc.0 - self.facts.instances[instance].start.0) as usize
    }

    /// What is known of the node's instruction.
    pub fn fact(&self, node: usize) -> &'a InsnFact {
        let At { instance, pc, .. } = self.at[node];
        self.facts.instances[instance].at(pc)
    }

    /// The node's instruction.
    pub fn insn(&self, node: usize) -> Insn {
        *self.env.code.at(self.at[node].pc)
    }

    /// Call depth of the node's instance.
    pub fn frame(&self, node: usize) -> usize {
        self.facts.instances[self.at[node].instance].frame as usize
    }

    /// The local call that a function's `exit` returns to.
    pub fn returns_to(&self, node: usize) -> Option<usize> {
        self.caller[self.at[node].instance]
            .filter(|&call| matches!(self.fact(call), InsnFact::Plain))
    }

    /// Some path reaches the node.
    /// Calls of helpers that are not dead.
    pub fn helper_calls(&self) -> impl Iterator<Item = (usize, &'static Helper)> {
        let calls = (0..self.len())
            .filter(|node| matches!(self.at(*node).kind, Kind::Insn) && self.lives(*node));
        calls.filter_map(|node| match self.insn(node) {
            Insn::Call {
                callee: Callee::Helper(id),
            } => Some((node, self.env.platform.helper(id)?)),
            _ => None,
        })
    }

    pub fn lives(&self, node: usize) -> bool {
        !matches!(self.fact(node), InsnFact::Dead)
    }

    /// Control goes more than one way.
    pub fn is_branch(&self, node: usize) -> bool {
        self.cfg.succs(node).len() > 1
    }

    /// The type of a map.
    pub fn map_type(&self, map: u32) -> Option<MapType> {
        self.env.map(map).ok().map(|(_, map_type)| map_type)
    }

    fn edges(
        &self,
        node: usize,
        again_of: &impl Fn(usize) -> Option<usize>,
        add: &mut impl FnMut(usize),
    ) {
        let At { instance, pc, kind } = self.at[node];
        let i = &self.facts.instances[instance];
        if !self.lives(node) {
            return;
        }
        let mut go = |pc: Pc| {
            if (i.start.0..i.end.0).contains(&pc.0) {
                add(self.node(instance, pc));
            }
        };
        let callee = i.calls.get(&pc).copied();
        if let (Kind::Again, Some(callee)) = (kind, callee) {
            go(pc.next());
            return add(self.first[callee]);
        }
        match self.insn(node) {
            Insn::Jump { target, .. } | Insn::MayGoto { target } => {
                let (taken, falls) = match i.at(pc) {
                    InsnFact::Branch { taken, falls, .. } => (*taken, *falls),
                    _ => (true, true),
                };
                if taken && !(falls && target == pc.next()) {
                    go(target);
                }
                if falls {
                    go(pc.next());
                }
            }
            Insn::Goto { target, .. } => go(target),
            Insn::Exit => {
                if let Some(call) = self.caller[instance] {
                    match again_of(instance) {
                        Some(again) => add(again),
                        None => {
                            let At { instance, pc, .. } = self.at[call];
                            let next = pc.next();
                            if next < self.facts.instances[instance].end {
                                add(self.node(instance, next));
                            }
                        }
                    }
                }
            }
            Insn::Call {
                callee: Callee::Helper(_),
            } => match (self.helper(node), callee.and_then(again_of)) {
                (Some(helper), _) if helper.ret == Ret::Never => {}
                (_, Some(again)) => add(again),
                _ => go(pc.next()),
            },
            Insn::Call {
                callee: Callee::Local(_),
            } => {
                if let Some(callee) = callee {
                    add(self.first[callee]);
                }
            }
            _ => go(pc.next()),
        }
    }

    /// The registers that decide where a branch goes.
    pub fn decides(&self, node: usize) -> [Part; 2] {
        let frame = self.frame(node);
        if self.at[node].kind == Kind::Again {
            return [
                Part::regs(frame, LOOP),
                Part::reg((frame + 1).min(FRAMES - 1), Reg::R0),
            ];
        }
        match self.insn(node) {
            Insn::Jump { dst, src, .. } => {
                let right = match src {
                    Source::Reg(src) => Part::reg(frame, src),
                    Source::Imm(_) => Part::NONE,
                };
                [Part::reg(frame, dst), right]
            }
            Insn::MayGoto { .. } => [Part::regs(frame, ROUNDS), Part::NONE],
            _ => [Part::NONE; 2],
        }
    }

    /// The register or memory that argument `i` of a call stands for.
    pub fn argument(&self, node: usize, i: usize) -> [Part; 2] {
        let InsnFact::Call(call) = self.fact(node) else {
            return [Part::NONE; 2];
        };
        let Some(reg) = Reg::new(i as u8 + 1) else {
            return [Part::NONE; 2];
        };
        match call.args[i] {
            ArgFact::Map(map) if map & INNER == 0 => [Part::NONE; 2],
            ArgFact::Unused | ArgFact::Callback => [Part::NONE; 2],
            // Which of the maps in a map it is, only the register says.
            ArgFact::Map(_) | ArgFact::Scalar { .. } | ArgFact::Sample => {
                [Part::reg(self.frame(node), reg), Part::NONE]
            }
            ArgFact::Pointer(place) => {
                let memory = match place.region {
                    Region::Stack { frame } => {
                        Part::stack(frame, place.offset, self.argument_bytes(node, call, i)).0
                    }
                    _ => Part::NONE,
                };
                let address = match place.offset {
                    Some(_) => Part::NONE,
                    None => Part::reg(self.frame(node), reg),
                };
                [memory, address]
            }
        }
    }

    /// The access at `node` is of memory that no other thread sees.
    pub fn is_private(&self, node: usize) -> bool {
        matches!(self.fact(node), InsnFact::Access(place) if !matches!(place.region, Region::MapValue { .. }))
    }

    /// Argument `i` of the call at `node` points to memory that other threads write.
    pub fn argument_is_shared(&self, node: usize, i: usize) -> bool {
        matches!(self.fact(node), InsnFact::Call(call) if self.reads_shared(call, i))
    }

    pub fn reads_shared(&self, call: &CallFact, i: usize) -> bool {
        matches!(call.args[i], ArgFact::Pointer(place) if self.memory_varies(&place))
    }

    /// The row of the helper that `node` calls. By its number: rows of another environment share a
    /// kind.
    pub fn helper(&self, node: usize) -> Option<&'static Helper> {
        match self.insn(node) {
            Insn::Call {
                callee: Callee::Helper(id),
            } => self.env.platform.helper(id),
            _ => None,
        }
    }

    pub fn argument_bytes(&self, node: usize, call: &CallFact, i: usize) -> i64 {
        let kind = self.helper(node).map_or(Arg::None, |h| h.args[i]);
        let def = call.map.and_then(|m| map_def(self.env.maps, m));
        match kind {
            Arg::MapKey => def.map_or(STACK, |d| i64::from(d.key_size)),
            Arg::MapValue | Arg::MapValueOut => def.map_or(STACK, |d| i64::from(d.value_size)),
            Arg::U64Out => 8,
            Arg::Dynptr | Arg::DynptrOut | Arg::DynptrRecord => DYNPTR,
            Arg::MemRead | Arg::MemReadOrNull | Arg::MemWrite | Arg::Values => {
                match call.args.get(i + 1) {
                    Some(ArgFact::Scalar { max, .. }) => i64::try_from(*max).unwrap_or(STACK),
                    _ => STACK,
                }
            }
            _ => STACK,
        }
    }

    /// Two lanes that read this place with the same address may see different values.
    pub fn memory_varies(&self, place: &Place) -> bool {
        match place.region {
            Region::Stack { .. } => false,
            Region::Context => match place.offset {
                Some(at) => self
                    .env
                    .platform
                    .context
                    .fields
                    .iter()
                    .find(|f| i64::from(f.offset) <= at && at < i64::from(f.offset + f.size))
                    .is_none_or(|f| field_varies(f.source)),
                None => true,
            },
            Region::MapValue { map } => self.env.constant_bytes(map).is_none(),
            Region::Record { .. } | Region::MapKey { .. } | Region::Memory => true,
        }
    }
}

/// Lanes of a group can read different values from a field. The multiprocessor is among them: lanes
/// may read it at different instants, and a warp can be moved in between (PTX ISA, `%smid`).
fn field_varies(source: FieldSource) -> bool {
    match source {
        FieldSource::ThreadIdx(_) | FieldSource::Lane | FieldSource::Sm => true,
        FieldSource::BlockIdx(_)
        | FieldSource::BlockDim(_)
        | FieldSource::GridDim(_)
        | FieldSource::Warp
        | FieldSource::ActiveMask
        | FieldSource::KernelId
        | FieldSource::GridId
        | FieldSource::DynamicShared
        | FieldSource::ClusterRank
        | FieldSource::ClusterDim(_) => false,
        FieldSource::Captured(capture) => !capture.is_uniform(),
    }
}
