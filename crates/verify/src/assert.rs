//! What must hold before each instruction. No state is looked at here: this is the list of rules,
//! read from the instruction alone; [`crate::check`] asks whether they hold.

use warpbpf_abi::kfuncs::KfuncId;
use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Imm64, Insn, JumpOp, Reg, Source, Width};

/// A condition on the state before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assertion {
    /// The register holds something.
    Readable(Reg),
    /// The register may be written.
    Writable(Reg),
    /// The register holds a number.
    Number(Reg, &'static str),
    /// `dst op= src` is allowed for what they hold.
    Arithmetic {
        /// 64 bits.
        wide: bool,
        /// The operation.
        op: AluOp,
        /// First operand and result.
        dst: Reg,
        /// Second operand.
        src: Source,
    },
    /// The two can be compared.
    Comparable {
        /// 64 bits.
        wide: bool,
        /// The comparison.
        op: JumpOp,
        /// First operand.
        dst: Reg,
        /// Second operand.
        src: Source,
    },
    /// Memory can be accessed so.
    Access(Access),
    /// The map exists and can be served.
    Map(u32),
    /// The address is inside the map's data.
    MapData {
        /// The map.
        map: u32,
        /// Byte offset.
        offset: u32,
    },
    /// Not a valid form of the instruction.
    WellFormed(bool, &'static str),
    /// Never holds.
    Unsupported {
        /// What it is.
        what: Unserved,
    },
}

/// A memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// What is done.
    pub kind: AccessKind,
    /// Its size.
    pub width: Width,
    /// The address register.
    pub base: Reg,
    /// The address offset.
    pub off: i16,
    /// It must happen at once, so it must be aligned: an atomic, a load-acquire or a store-release.
    pub ordered: bool,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Reads.
    Read,
    /// Writes this.
    Write(Source),
    /// Reads and writes at once.
    Atomic(Reg),
}

/// Instructions that are decoded but not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unserved {
    /// Call through a register.
    CallReg,
    /// Legacy packet access.
    LegacyPacket,
    /// A kernel function that is not served, by number.
    Kfunc(u32),
    /// A kernel variable, by BTF id.
    BtfId(u32),
}

impl Unserved {
    /// Its name in messages.
    pub fn what(self) -> String {
        match self {
            Unserved::CallReg => "a call through a register".to_owned(),
            Unserved::LegacyPacket => "legacy packet access".to_owned(),
            Unserved::Kfunc(id) => format!("kernel function {id} (a kfunc)"),
            Unserved::BtfId(id) => format!("kernel variable {id} (by BTF id)"),
        }
    }

    /// What to use instead.
    pub fn advice(self) -> &'static str {
        match self {
            Unserved::CallReg => {
                "call the function directly; `static __noinline` keeps it a function"
            }
            Unserved::LegacyPacket => "there are no packets in a GPU kernel",
            Unserved::Kfunc(_) | Unserved::BtfId(_) => {
                "there is no kernel on the GPU; use the helpers of `warpbpf.h`"
            }
        }
    }
}

/// The conditions of `insn`, in the order in which they are to be checked. Those of helper and
/// local calls depend on the callee's table entry and are added by [`crate::call`].
pub fn assertions(insn: &Insn) -> Vec<Assertion> {
    use Assertion::{
        Arithmetic, Comparable, Map, MapData, Number, Readable, Unsupported, WellFormed, Writable,
    };
    match *insn {
        Insn::Alu { wide, op, dst, src } => {
            let mut all = vec![Writable(dst)];
            if op != AluOp::Mov {
                all.push(Readable(dst));
            }
            if let Source::Reg(src) = src {
                all.push(Readable(src));
            }
            all.push(Arithmetic { wide, op, dst, src });
            all
        }
        Insn::MovSx {
            wide,
            bits,
            dst,
            src,
        } => vec![
            WellFormed(
                matches!((wide, bits), (_, 8 | 16) | (true, 32)),
                "sign extension from 8, 16 or (64-bit) 32 bits",
            ),
            Writable(dst),
            Readable(src),
            Number(src, "sign extension"),
        ],
        Insn::Neg { dst, .. } => vec![Writable(dst), Readable(dst), Number(dst, "-")],
        Insn::End { bits, dst, .. } => vec![
            WellFormed(
                matches!(bits, 16 | 32 | 64),
                "byte swaps have 16, 32 or 64 bits",
            ),
            Writable(dst),
            Readable(dst),
            Number(dst, "byte swap"),
        ],
        Insn::LoadImm64 { dst, value } => {
            let target = match value {
                Imm64::Value(_) => None,
                Imm64::Map(map) => Some(Map(map)),
                Imm64::MapValue { map, offset } => Some(MapData { map, offset }),
                Imm64::BtfId(id) => Some(Unsupported {
                    what: Unserved::BtfId(id),
                }),
                Imm64::Func(_) => None,
            };
            [Some(Writable(dst)), target]
                .into_iter()
                .flatten()
                .collect()
        }
        Insn::Load {
            width,
            signed,
            dst,
            base,
            off,
        } => vec![
            WellFormed(
                !signed || width != Width::W64,
                "a 64-bit load has no sign extension",
            ),
            Writable(dst),
            Readable(base),
            access(AccessKind::Read, width, base, off),
        ],
        Insn::LoadAcquire {
            width,
            dst,
            base,
            off,
        } => {
            vec![
                Writable(dst),
                Readable(base),
                ordered(AccessKind::Read, width, base, off),
            ]
        }
        Insn::Store {
            width,
            base,
            off,
            src,
        } => {
            let mut all = vec![Readable(base)];
            if let Source::Reg(src) = src {
                all.push(Readable(src));
            }
            all.push(access(AccessKind::Write(src), width, base, off));
            all
        }
        Insn::StoreRelease {
            width,
            base,
            off,
            src,
        } => vec![
            Readable(base),
            Readable(src),
            ordered(AccessKind::Write(Source::Reg(src)), width, base, off),
        ],
        Insn::Atomic {
            width,
            op,
            base,
            off,
            src,
        } => {
            let mut all = vec![
                WellFormed(
                    matches!(width, Width::W32 | Width::W64),
                    "atomics have 32 or 64 bits",
                ),
                Readable(base),
                Readable(src),
                Number(src, "an atomic operation"),
            ];
            match op {
                AtomicOp::CmpXchg => {
                    all.extend([Readable(Reg::R0), Number(Reg::R0, "an atomic operation")])
                }
                AtomicOp::Xchg => all.push(Writable(src)),
                AtomicOp::Add { fetch }
                | AtomicOp::Or { fetch }
                | AtomicOp::And { fetch }
                | AtomicOp::Xor { fetch } => {
                    if fetch {
                        all.push(Writable(src));
                    }
                }
            }
            all.push(access(AccessKind::Atomic(src), width, base, off));
            all
        }
        Insn::Jump {
            wide, op, dst, src, ..
        } => {
            let mut all = vec![Readable(dst)];
            if let Source::Reg(src) = src {
                all.push(Readable(src));
            }
            all.push(Comparable { wide, op, dst, src });
            all
        }
        Insn::Goto { .. } | Insn::MayGoto { .. } | Insn::Exit => vec![],
        Insn::Call { callee } => match callee {
            Callee::Helper(_) | Callee::Local(_) => vec![],
            Callee::Kfunc(number) if KfuncId::from_number(number).is_some() => vec![],
            Callee::Kfunc(id) => vec![Unsupported {
                what: Unserved::Kfunc(id),
            }],
        },
        Insn::CallReg { .. } => vec![Unsupported {
            what: Unserved::CallReg,
        }],
        Insn::LegacyPacket { .. } => vec![Unsupported {
            what: Unserved::LegacyPacket,
        }],
    }
}

fn access(kind: AccessKind, width: Width, base: Reg, off: i16) -> Assertion {
    Assertion::Access(Access {
        kind,
        width,
        base,
        off,
        ordered: matches!(kind, AccessKind::Atomic(_)),
    })
}

fn ordered(kind: AccessKind, width: Width, base: Reg, off: i16) -> Assertion {
    Assertion::Access(Access {
        kind,
        width,
        base,
        off,
        ordered: true,
    })
}

/// The registers that an instruction names or implies, for a message.
pub fn registers(insn: &Insn) -> Vec<Reg> {
    let with = |dst: Reg, src: Source| match src {
        Source::Reg(src) if src != dst => vec![dst, src],
        Source::Reg(_) | Source::Imm(_) => vec![dst],
    };
    match *insn {
        Insn::Alu {
            op: AluOp::Mov,
            src: Source::Reg(src),
            ..
        } => vec![src],
        Insn::Alu {
            op: AluOp::Mov,
            src: Source::Imm(_),
            ..
        } => vec![],
        Insn::Alu { dst, src, .. } | Insn::Jump { dst, src, .. } => with(dst, src),
        Insn::MovSx { src, .. } => vec![src],
        Insn::Neg { dst, .. } | Insn::End { dst, .. } => vec![dst],
        Insn::Load { base, .. } | Insn::LoadAcquire { base, .. } => vec![base],
        Insn::Store { base, src, .. } => with(base, src),
        Insn::StoreRelease { base, src, .. } | Insn::Atomic { base, src, .. } => {
            with(base, Source::Reg(src))
        }
        Insn::Call { .. } => Reg::all().skip(1).take(5).collect(),
        Insn::CallReg { target } => vec![target],
        Insn::Exit => vec![Reg::R0],
        Insn::LoadImm64 { .. }
        | Insn::Goto { .. }
        | Insn::MayGoto { .. }
        | Insn::LegacyPacket { .. } => vec![],
    }
}
