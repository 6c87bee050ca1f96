//! Last stage: lowered IR becomes PTX text.
//!
//! Every value has a register of its own; ptxas allocates the real ones. Constants are written into
//! the operands. A block's parameters are set by moves at the end of its predecessors. Nothing here
//! assumes that lanes are converged: no `.uni`, no barrier, no mask that was not asked for a few
//! instructions before.

mod block;
mod emitter;
mod fence;
mod lanes;
mod memory;
mod ring;
mod text;
mod touched;

use std::collections::HashMap;
use std::fmt::Write;

use warpbpf_abi::names;
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::cfg::Flow;
use crate::fragment::{Env, Fragment, SlotSpace};
use crate::ir::{BinOp, Block, Cond, Edge, Func, Mem, Op, Special, Term, Ty, UnOp, Value};
use crate::prelude::{hash_function, hash_name};
use crate::print::special_name;
use crate::queue::{queue_function, queue_name};

use emitter::{Emit, STACK, b, bits, class, mem_suffix};
use ring::Reserved;

/// Writes `func`, which `lower` has prepared.
pub fn run(func: &Func, env: &Env) -> Fragment {
    let flow = Flow::new(func);
    let mut e = Emit {
        func,
        env,
        registers: vec![None; func.types.len()],
        constants: vec![None; func.types.len()],
        counts: [0; 3],
        labels: 0,
        reservations: HashMap::new(),
        heads: flow.loop_heads(),
        text: String::new(),
        fragment: Fragment::default(),
    };
    for block in &func.blocks {
        for inst in &block.insts {
            if let (Some(v), Op::Const(c)) = (inst.result, &inst.op) {
                e.constants[v.index()] = Some(*c);
            }
        }
    }
    for (i, &block) in flow.order.iter().enumerate() {
        e.block(block, flow.order.get(i + 1).copied(), i == 0);
    }
    e.finish()
}

impl Emit<'_> {
    fn block(&mut self, block: Block, next: Option<Block>, first: bool) {
        let data = &self.func.blocks[block.index()];
        if !first {
            self.label(&block_label(block));
        }
        if self.heads[block.index()] {
            // ptxas 13.0 drops 64 doublings of a loop that it unrolls as if they were none
            // (docs/measurements.md, "Generated programs"); and the code of a probe should stay
            // small.
            self.line(".pragma \"nounroll\";");
        }
        for inst in &data.insts {
            self.inst(inst.result, &inst.op);
        }
        match &data.term {
            Term::Jump(edge) => {
                self.moves(edge);
                self.go(edge.to, next);
            }
            Term::Branch { cond, yes, no } => {
                let p = self.operand(*cond);
                if Some(yes.to) == next {
                    self.line(format!("@!{p} bra {};", block_label(no.to)));
                } else {
                    self.line(format!("@{p} bra {};", block_label(yes.to)));
                    self.go(no.to, next);
                }
            }
            Term::Ret if next.is_none() => {}
            Term::Ret => self.line(format!("bra {END};")),
            Term::Exit => self.line("exit;"),
        }
    }

    fn go(&mut self, to: Block, next: Option<Block>) {
        if Some(to) != next {
            self.line(format!("bra {};", block_label(to)));
        }
    }

    /// Sets the parameters of an edge's target, all at once: a source may be another's destination.
    fn moves(&mut self, edge: &Edge) {
        let params = self.func.blocks[edge.to.index()].params.clone();
        let mut pending: Vec<(Ty, String, String)> = Vec::new();
        for (&param, &arg) in params.iter().zip(&edge.args) {
            if param != arg {
                let (to, from) = (self.reg(param), self.operand(arg));
                pending.push((self.func.ty(param), to, from));
            }
        }
        while !pending.is_empty() {
            let free = (0..pending.len()).find(|&i| {
                pending
                    .iter()
                    .enumerate()
                    .all(|(j, (_, _, from))| i == j || *from != pending[i].1)
            });
            match free {
                Some(i) => {
                    let (ty, to, from) = pending.swap_remove(i);
                    self.line(format!("mov.{} {to}, {from};", b(ty)));
                }
                None => {
                    // Only cycles are left: free one destination by moving its old value away.
                    let (ty, to) = (pending[0].0, pending[0].1.clone());
                    let aside = self.temp(ty);
                    self.line(format!("mov.{} {aside}, {to};", b(ty)));
                    for (_, _, from) in &mut pending {
                        if *from == to {
                            from.clone_from(&aside);
                        }
                    }
                }
            }
        }
    }

    fn inst(&mut self, result: Option<Value>, op: &Op) {
        if let Op::Const(_) = op {
            return;
        }
        match (op, result) {
            (
                Op::Store {
                    mem,
                    width,
                    addr,
                    off,
                    value,
                },
                _,
            ) => {
                let (at, value) = (self.address(*addr, (*off).into()), self.operand(*value));
                self.line(format!(
                    "st{}.u{} {at}, {value};",
                    mem_suffix(*mem, false),
                    width.bits()
                ));
            }
            (Op::StorePair { addr, off, values }, _) => {
                self.store_pair("", *addr, *off, *values);
            }
            (Op::Atomic { .. }, _) => self.atomic(result, op),
            (Op::Membar, _) => self.line("membar.sys;"),
            (
                Op::Tally {
                    tally,
                    value,
                    guard,
                },
                _,
            ) => self.tally(*tally, *value, *guard),
            (
                Op::RingCommit {
                    ring,
                    base,
                    record,
                    size,
                    discard,
                    shared,
                    chunks,
                },
                _,
            ) => {
                // Chunks come with a known size only, and a record of lanes that reserved together.
                let reserved = self.reservations.get(record).filter(|_| *shared).cloned();
                match (reserved, size) {
                    (Some(reserved), Some(size)) => {
                        let group = Reserved {
                            mask: reserved,
                            size: *size,
                        };
                        self.ring_commit_shared(*ring, *base, *record, &group, *discard, chunks);
                    }
                    _ => self.ring_commit(*ring, *base, *record, *size, *discard, chunks),
                }
            }
            (
                Op::CopyBytes {
                    mem,
                    from,
                    off,
                    to,
                    size,
                },
                _,
            ) => self.copy_bytes(*mem, *from, *off, *to, *size),
            (
                Op::Hash {
                    op,
                    table,
                    slot,
                    args,
                },
                _,
            ) => {
                let name = hash_name(*op, table, *slot);
                let (op, target) = (*op, self.env.target);
                let name = self.function(name, || hash_function(op, table, *slot, target));
                self.call(&name, args, result, op);
            }
            (Op::Queue { op, layout, args }, _) => {
                let name = queue_name(*op, layout);
                let ptx = self.env.target.ptx;
                let name = self.function(name, || queue_function(*op, layout, ptx));
                let args: Vec<String> = args.iter().map(|v| self.operand(*v)).collect();
                let d = match result {
                    Some(v) => self.reg(v),
                    None => self.temp(Ty::B64),
                };
                self.call_function(&name, &args, &d);
            }
            (Op::Fence { op, args }, _) => self.fence(*op, args, result),
            (Op::Text { op, mem, args }, _) => self.text(*op, *mem, args, result),
            (Op::Lanes { op, args }, _) => self.lanes(*op, args, result),
            (
                Op::Arrive {
                    cell,
                    merge,
                    mask,
                    value,
                },
                _,
            ) => self.arrive(*cell, *merge, [*mask, *value], result),
            (Op::Take { cell, last }, _) => self.take(*cell, *last, result),
            (_, None) => {}
            (
                Op::RingReserve {
                    ring,
                    base,
                    size,
                    header,
                    shared,
                },
                Some(v),
            ) => self.ring_reserve(*ring, *base, *size, *header, *shared, v),
            (_, Some(v)) => self.simple(v, op),
        }
    }

    /// Operations that become one instruction or a few, and define a value.
    fn simple(&mut self, result: Value, op: &Op) {
        let ty = self.func.ty(result);
        match op {
            Op::Bin(op, a, c) => {
                let (a, c) = (self.operand(*a), self.operand(*c));
                let d = self.reg(result);
                // ptxas 13.0 drops such a xor where a branch tells what the other operand is.
                let complemented = match (a.as_str(), c.as_str()) {
                    (_, "-1") => Some(&a),
                    ("-1", _) => Some(&c),
                    _ => None,
                };
                if let (BinOp::Xor, Ty::B32 | Ty::B64, Some(of)) = (op, ty, complemented) {
                    self.line(format!("not.{} {d}, {of};", b(ty)));
                    return;
                }
                let name = match op {
                    BinOp::Add => format!("add.s{}", bits(ty)),
                    BinOp::Sub => format!("sub.s{}", bits(ty)),
                    BinOp::Mul => format!("mul.lo.s{}", bits(ty)),
                    BinOp::And => format!("and.{}", b(ty)),
                    BinOp::Or => format!("or.{}", b(ty)),
                    BinOp::Xor => format!("xor.{}", b(ty)),
                    BinOp::Shl => format!("shl.{}", b(ty)),
                    BinOp::Shr => format!("shr.u{}", bits(ty)),
                    BinOp::Sar => format!("shr.s{}", bits(ty)),
                    BinOp::UMin => format!("min.u{}", bits(ty)),
                    // `lower` has left none of the first of each pair.
                    BinOp::UDiv | BinOp::MachineUDiv => format!("div.u{}", bits(ty)),
                    BinOp::SDiv | BinOp::MachineSDiv => format!("div.s{}", bits(ty)),
                    BinOp::URem | BinOp::MachineURem => format!("rem.u{}", bits(ty)),
                    BinOp::SRem | BinOp::MachineSRem => format!("rem.s{}", bits(ty)),
                };
                self.line(format!("{name} {d}, {a}, {c};"));
            }
            Op::Un(op, a) => {
                let a = self.operand(*a);
                let d = self.reg(result);
                self.unary(*op, &d, &a);
            }
            Op::Cmp(cond, a, c) => {
                let of = self.func.ty(*a);
                let (a, c) = (self.operand(*a), self.operand(*c));
                let d = self.reg(result);
                let (name, sign) = match cond {
                    Cond::Eq => ("eq", 's'),
                    Cond::Ne => ("ne", 's'),
                    Cond::Ult => ("lt", 'u'),
                    Cond::Ule => ("le", 'u'),
                    Cond::Ugt => ("gt", 'u'),
                    Cond::Uge => ("ge", 'u'),
                    Cond::Slt => ("lt", 's'),
                    Cond::Sle => ("le", 's'),
                    Cond::Sgt => ("gt", 's'),
                    Cond::Sge => ("ge", 's'),
                };
                self.line(format!("setp.{name}.{sign}{} {d}, {a}, {c};", bits(of)));
            }
            Op::Select(p, a, c) => {
                let (p, a, c) = (self.operand(*p), self.operand(*a), self.operand(*c));
                let d = self.reg(result);
                self.line(format!("selp.{} {d}, {a}, {c}, {p};", b(ty)));
            }
            Op::Pack(low, high) => {
                let (low, high) = (self.in_register(*low), self.in_register(*high));
                let d = self.reg(result);
                self.line(format!("mov.b64 {d}, {{{low}, {high}}};"));
            }
            Op::Special(special) => {
                if let Special::Captured(capture) = special {
                    self.fragment.captures.insert(*capture);
                }
                let d = self.reg(result);
                self.line(format!(
                    "mov.u{} {d}, {};",
                    bits(ty),
                    special_name(*special)
                ));
            }
            Op::GroupMask => {
                self.fragment.uses_group_mask = true;
                let d = self.reg(result);
                self.line(format!("mov.b32 {d}, {};", names::GROUP_MASK));
            }
            Op::Slot(slot) => {
                self.fragment.slots.insert(*slot);
                let d = self.reg(result);
                let space = self.env.slots.word();
                let table = match self.env.slots {
                    SlotSpace::Const | SlotSpace::Global => names::SLOTS,
                    SlotSpace::Table { .. } => names::TABLE,
                };
                let at = match slot {
                    0 => table.to_owned(),
                    _ => format!("{table}+{}", slot * 8),
                };
                self.line(format!("ld.{space}.u64 {d}, [{at}];"));
            }
            Op::StackAddr(at) => {
                self.fragment.local_bytes = self.func.stack_bytes;
                let d = self.reg(result);
                self.line(format!("mov.u64 {d}, {STACK};"));
                self.line(format!("add.s64 {d}, {d}, {at};"));
            }
            Op::Timer => {
                let d = self.reg(result);
                self.line(format!("mov.u64 {d}, %globaltimer;"));
            }
            Op::Clock => {
                let d = self.reg(result);
                self.line(format!("mov.u64 {d}, %clock64;"));
            }
            Op::Popc(a) => {
                let a = self.operand(*a);
                let d = self.reg(result);
                self.line(format!("popc.b32 {d}, {a};"));
            }
            Op::Load {
                mem,
                width,
                signed,
                addr,
                off,
            } => {
                let at = self.address(*addr, (*off).into());
                let d = self.reg(result);
                // Where the whole register is loaded its sign does not matter.
                let sign = if *signed && matches!(width, Width::W8 | Width::W16) {
                    's'
                } else {
                    'u'
                };
                self.line(format!(
                    "ld{}.{sign}{} {d}, {at};",
                    mem_suffix(*mem, true),
                    width.bits()
                ));
                if matches!(mem, Mem::MapSync(_)) {
                    // An acquiring load, in two: ptxas 13.0 deletes an `ld.acquire` whose result is
                    // not used, and with it what other accesses need, so that the kernel ends with
                    // an illegal instruction.
                    self.line("fence.acq_rel.gpu;");
                }
            }
            Op::Const(_)
            | Op::Store { .. }
            | Op::StorePair { .. }
            | Op::Atomic { .. }
            | Op::Tally { .. }
            | Op::Membar
            | Op::RingReserve { .. }
            | Op::RingCommit { .. }
            | Op::CopyBytes { .. }
            | Op::Hash { .. }
            | Op::Queue { .. }
            | Op::Fence { .. }
            | Op::Text { .. }
            | Op::Lanes { .. }
            | Op::Arrive { .. }
            | Op::Take { .. } => {}
        }
    }

    fn unary(&mut self, op: UnOp, d: &str, a: &str) {
        match op {
            UnOp::Trunc => self.line(format!("cvt.u32.u64 {d}, {a};")),
            UnOp::Zext => self.line(format!("cvt.u64.u32 {d}, {a};")),
            UnOp::Sext => self.line(format!("cvt.s64.s32 {d}, {a};")),
            UnOp::Sext8 => self.line(format!("cvt.s32.s8 {d}, {a};")),
            UnOp::Sext16 => self.line(format!("cvt.s32.s16 {d}, {a};")),
            UnOp::Swap16 => self.line(format!("prmt.b32 {d}, {a}, 0, 0x4401;")),
            UnOp::Swap32 => self.line(format!("prmt.b32 {d}, {a}, 0, 0x0123;")),
            UnOp::Swap64 => {
                let [lo, hi] = [self.temp(Ty::B32), self.temp(Ty::B32)];
                self.line(format!("mov.b64 {{{lo}, {hi}}}, {a};"));
                self.line(format!("prmt.b32 {lo}, {lo}, 0, 0x0123;"));
                self.line(format!("prmt.b32 {hi}, {hi}, 0, 0x0123;"));
                self.line(format!("mov.b64 {d}, {{{hi}, {lo}}};"));
            }
            UnOp::Not => self.line(format!("not.pred {d}, {a};")),
        }
    }

    fn finish(mut self) -> Fragment {
        let mut body = String::from("{\n");
        for (ty, count) in [
            (Ty::Pred, self.counts[2]),
            (Ty::B32, self.counts[0]),
            (Ty::B64, self.counts[1]),
        ] {
            if count > 0 {
                let _ = writeln!(body, "\t.reg .{} {}<{count}>;", b(ty), class(ty).1);
            }
        }
        if self.fragment.local_bytes > 0 {
            let _ = writeln!(
                body,
                "\t.local .align 8 .b8 {STACK}[{}];",
                self.fragment.local_bytes
            );
        }
        body.push_str(&self.text);
        if self.text.contains(END) {
            let _ = writeln!(body, "{END}:");
        }
        body.push_str("}\n");
        self.fragment.body = body;
        self.fragment
    }
}

/// Label behind the last instruction.
const END: &str = "$wbpf_end";

fn block_label(block: Block) -> String {
    format!("$wbpf_b{}", block.index())
}
