//! The IR as text, for people and for golden tests.

use std::fmt::{self, Write};

use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::ir::{
    Block, Chunk, Cond, Edge, FenceOp, Func, HashOp, Mem, Op, Order, Origin, Rmw, Size, Special,
    Term, Ty, UnOp,
};

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, block) in self.blocks.iter().enumerate() {
            write!(f, "{}", Block::new(i))?;
            if !block.params.is_empty() {
                let params: Vec<String> = block
                    .params
                    .iter()
                    .map(|p| format!("{p}: {}", ty_name(self.ty(*p))))
                    .collect();
                write!(f, "({})", params.join(", "))?;
            }
            writeln!(f, ":")?;
            for inst in &block.insts {
                match inst.result {
                    Some(v) => writeln!(f, "    {v}: {} = {}", ty_name(self.ty(v)), inst.op)?,
                    None => writeln!(f, "    {}", inst.op)?,
                }
            }
            writeln!(f, "    {}", block.term)?;
        }
        Ok(())
    }
}

fn ty_name(ty: Ty) -> &'static str {
    match ty {
        Ty::B32 => "b32",
        Ty::B64 => "b64",
        Ty::Pred => "pred",
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        if self.args.is_empty() {
            return Ok(());
        }
        let args: Vec<String> = self.args.iter().map(ToString::to_string).collect();
        write!(f, "({})", args.join(", "))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Jump(edge) => write!(f, "jump {edge}"),
            Term::Branch { cond, yes, no } => write!(f, "branch {cond}, {yes}, {no}"),
            Term::Ret => write!(f, "ret"),
            Term::Exit => write!(f, "exit"),
        }
    }
}

fn address(addr: impl fmt::Display, off: i32) -> String {
    match off {
        0 => format!("[{addr}]"),
        _ => format!("[{addr}{off:+}]"),
    }
}

fn width_name(width: Width, signed: bool) -> String {
    format!("{}{}", if signed { "s" } else { "u" }, width.bits())
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Const(c) if *c < 0x1_0000 => write!(f, "const {c}"),
            Op::Const(c) => write!(f, "const {c:#x}"),
            Op::Bin(op, a, b) => write!(f, "{} {a}, {b}", format!("{op:?}").to_lowercase()),
            Op::Un(op, a) => write!(f, "{} {a}", un_name(*op)),
            Op::Cmp(cond, a, b) => write!(f, "cmp.{} {a}, {b}", cond_name(*cond)),
            Op::Select(p, a, b) => write!(f, "select {p}, {a}, {b}"),
            Op::Special(s) => write!(f, "special {}", special_name(*s)),
            Op::GroupMask => write!(f, "group_mask"),
            Op::Slot(slot) => write!(f, "slot {slot}"),
            Op::StackAddr(at) => write!(f, "stack {at}"),
            Op::Pack(low, high) => write!(f, "pack {low}, {high}"),
            Op::StorePair { addr, off, values } => {
                let [a, b] = values;
                write!(f, "store.record.pair {}, {a}, {b}", address(addr, *off))
            }
            Op::Timer => write!(f, "timer"),
            Op::Clock => write!(f, "clock"),
            Op::Popc(a) => write!(f, "popc {a}"),
            Op::Membar => write!(f, "membar"),
            Op::Tally {
                tally,
                value,
                guard,
            } => {
                write!(f, "tally.{} {}, {value}", tally.bits, tally.register())?;
                match guard {
                    Some(guard) => write!(f, " if {guard}"),
                    None => Ok(()),
                }
            }
            Op::Load {
                mem,
                width,
                signed,
                addr,
                off,
            } => {
                write!(
                    f,
                    "load.{}.{} {}",
                    mem_name(*mem),
                    width_name(*width, *signed),
                    address(addr, *off)
                )
            }
            Op::Store {
                mem,
                width,
                addr,
                off,
                value,
            } => {
                write!(
                    f,
                    "store.{}.{} {}, {value}",
                    mem_name(*mem),
                    width_name(*width, false),
                    address(addr, *off)
                )
            }
            Op::Atomic {
                origin,
                op,
                order,
                width,
                addr,
                off,
                value,
                compare,
                guard,
            } => {
                let order = match order {
                    Order::Relaxed => "",
                    Order::AcqRel => ".acq_rel",
                };
                let name = format!("{op:?}").to_lowercase();
                let map = origin
                    .map(|o| format!(".{}", origin_name(o)))
                    .unwrap_or_default();
                write!(
                    f,
                    "atomic{map}.{name}{order}.u{} {}, ",
                    width.bits(),
                    address(addr, *off)
                )?;
                if let Some(compare) = compare {
                    write!(f, "{compare}, ")?;
                }
                write!(f, "{value}")?;
                match guard {
                    Some(guard) => write!(f, " if {guard}"),
                    None => Ok(()),
                }
            }
            Op::RingReserve {
                base,
                size,
                header,
                shared,
                ..
            } => {
                let mut size_text = String::new();
                match size {
                    Size::Const(n) => write!(size_text, "{n}")?,
                    Size::Value(v) => write!(size_text, "{v}")?,
                }
                write!(
                    f,
                    "ring_reserve{}{} {base}, {size_text}",
                    if *header { "" } else { ".bare" },
                    if *shared { ".shared" } else { "" }
                )
            }
            Op::RingCommit {
                base,
                record,
                size,
                discard,
                shared,
                chunks,
                ..
            } => {
                let what = if *discard {
                    "ring_discard"
                } else {
                    "ring_submit"
                };
                write!(
                    f,
                    "{what}{} {base}, {record}",
                    if *shared { ".shared" } else { "" }
                )?;
                if let Some(size) = size {
                    write!(f, ", {size}")?;
                }
                for Chunk { off, words } in chunks {
                    let [a, b, c, d] = words;
                    write!(f, ", {off}: {a} {b} {c} {d}")?;
                }
                Ok(())
            }
            Op::CopyBytes {
                mem,
                from,
                off,
                to,
                size,
            } => {
                write!(
                    f,
                    "copy.{} [{to}], {}, {size}",
                    mem_name(*mem),
                    address(from, *off)
                )
            }
            Op::Hash { op, args, .. } => {
                let name = match op {
                    HashOp::Lookup => "lookup",
                    HashOp::Update => "update",
                    HashOp::Delete => "delete",
                };
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                write!(f, "hash_{name} {}", args.join(", "))
            }
            Op::Queue { op, args, .. } => {
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                let name = format!("{op:?}").to_lowercase();
                write!(f, "queue_{name} {}", args.join(", "))
            }
            Op::Fence { op, args } => {
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                let args = args.join(", ");
                match op {
                    FenceOp::Enter => write!(f, "fence_enter {args}"),
                    FenceOp::Find => write!(f, "fence_find {args}"),
                    FenceOp::Room => write!(f, "fence_room {args}"),
                    FenceOp::Prefetch => write!(f, "fence_prefetch {args}"),
                    FenceOp::Word { off, bytes } => {
                        write!(f, "fence_word.{bytes} {}", address(&args, *off as i32))
                    }
                    FenceOp::Copy { mem, off } => {
                        write!(f, "fence_copy.{}{off:+} {args}", mem_name(*mem))
                    }
                    FenceOp::Leave => write!(f, "fence_leave {args}"),
                }
            }
            Op::Text { op, mem, args } => {
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                let name = format!("{op:?}").to_lowercase();
                write!(f, "text_{name}.{} {}", mem_name(*mem), args.join(", "))
            }
            Op::Lanes { op, args } => {
                let args: Vec<String> = args.iter().map(ToString::to_string).collect();
                let name = format!("{op:?}").to_lowercase();
                write!(f, "lanes_{name} {}", args.join(", "))
            }
            Op::Arrive {
                cell,
                merge,
                mask,
                value,
            } => {
                let name = format!("{merge:?}").to_lowercase();
                write!(f, "arrive_{name}.{cell} {mask}, {value}")
            }
            Op::Take { cell, last } => write!(f, "take.{cell} {last}"),
        }
    }
}

fn un_name(op: UnOp) -> &'static str {
    match op {
        UnOp::Trunc => "trunc",
        UnOp::Zext => "zext",
        UnOp::Sext => "sext",
        UnOp::Sext8 => "sext8",
        UnOp::Sext16 => "sext16",
        UnOp::Swap16 => "swap16",
        UnOp::Swap32 => "swap32",
        UnOp::Swap64 => "swap64",
        UnOp::Not => "not",
    }
}

pub(crate) fn cond_name(cond: Cond) -> &'static str {
    match cond {
        Cond::Eq => "eq",
        Cond::Ne => "ne",
        Cond::Ult => "ult",
        Cond::Ule => "ule",
        Cond::Ugt => "ugt",
        Cond::Uge => "uge",
        Cond::Slt => "slt",
        Cond::Sle => "sle",
        Cond::Sgt => "sgt",
        Cond::Sge => "sge",
    }
}

/// The PTX name of a special register.
pub(crate) fn special_name(special: Special) -> String {
    let axis = |i: u8| ['x', 'y', 'z'][usize::from(i.min(2))];
    match special {
        Special::Ctaid(i) => format!("%ctaid.{}", axis(i)),
        Special::Ntid(i) => format!("%ntid.{}", axis(i)),
        Special::Tid(i) => format!("%tid.{}", axis(i)),
        Special::Nctaid(i) => format!("%nctaid.{}", axis(i)),
        Special::Lane => "%laneid".to_owned(),
        Special::LanemaskEq => "%lanemask_eq".to_owned(),
        Special::LanemaskLt => "%lanemask_lt".to_owned(),
        Special::Sm => "%smid".to_owned(),
        Special::WarpSlot => "%warpid".to_owned(),
        Special::GridId => "%gridid".to_owned(),
        Special::DynamicShared => "%dynamic_smem_size".to_owned(),
        Special::ClusterRank => "%cluster_ctarank".to_owned(),
        Special::ClusterDim(i) => format!("%cluster_nctaid.{}", axis(i)),
        Special::ClusterIdx(i) => format!("%clusterid.{}", axis(i)),
        Special::ClusterCount(i) => format!("%nclusterid.{}", axis(i)),
        Special::ClusterBlock(i) => format!("%cluster_ctaid.{}", axis(i)),
        Special::Captured(capture) => capture.register(),
    }
}

fn origin_name(origin: Origin) -> String {
    match origin.offset {
        Some(offset) => format!("map{}@{offset}", origin.map),
        None => format!("map{}@?", origin.map),
    }
}

fn mem_name(mem: Mem) -> String {
    match mem {
        Mem::Local => "local".to_owned(),
        Mem::Map(origin) => origin_name(origin),
        Mem::MapSlot(origin) => format!("{}.slot", origin_name(origin)),
        Mem::MapSync(origin) => format!("{}.sync", origin_name(origin)),
        Mem::Record => "record".to_owned(),
        Mem::Memory => "memory".to_owned(),
        Mem::Key => "key".to_owned(),
        Mem::Env => "env".to_owned(),
        Mem::Clock => "clock".to_owned(),
        Mem::Control => "control".to_owned(),
    }
}

/// The PTX name of a read-modify-write.
pub(crate) fn rmw_name(op: Rmw) -> &'static str {
    match op {
        Rmw::Add => "add",
        Rmw::And => "and",
        Rmw::Or => "or",
        Rmw::Xor => "xor",
        Rmw::Exch => "exch",
        Rmw::Cas => "cas",
    }
}
