//! From bytes to [`Code`]: everything that is not exactly one row of the table is refused, with its
//! slot number.

use crate::insn::{Callee, Code, Imm64, Insn, Pc, Reg, Source};
use crate::raw::Slot;
use crate::table::{Form, ImmKind, Shape, Use, forms_of};

/// Why one slot is not an instruction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("slot {slot}: {kind}")]
pub struct DecodeError {
    /// The 8-byte slot, counted from 0 as the kernel and `llvm-objdump` do.
    pub slot: u32,
    /// What is wrong with it.
    pub kind: DecodeErrorKind,
}

/// What is wrong with a slot. The program is at fault in all cases.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeErrorKind {
    /// There is no code at all.
    #[error("the program is empty")]
    Empty,
    /// The length is not a multiple of 8 bytes.
    #[error("only {bytes} of 8 bytes are there")]
    PartialSlot {
        /// How many.
        bytes: usize,
    },
    /// No row has the opcode.
    #[error("opcode `{opcode:#04x}` is not an eBPF instruction")]
    UnknownOpcode {
        /// The opcode.
        opcode: u8,
    },
    /// The opcode exists, but not with these fields.
    #[error("opcode `{opcode:#04x}` has no variant with src={src}, offset={off}, imm={imm}")]
    UnknownVariant {
        /// The opcode.
        opcode: u8,
        /// The source register field.
        src: u8,
        /// The offset field.
        off: i16,
        /// The immediate field.
        imm: i32,
    },
    /// A field that must be zero is not.
    #[error("field `{field}` of `{name}` is reserved and must be 0, not {value}")]
    Reserved {
        /// Name of the instruction.
        name: &'static str,
        /// Which field.
        field: &'static str,
        /// What stands there.
        value: i64,
    },
    /// Registers 11 to 15.
    #[error("register r{register} does not exist (r0 to r10 do)")]
    Register {
        /// The number.
        register: u8,
    },
    /// `lddw` is the last slot.
    #[error("`lddw` takes two slots, the second is missing")]
    HalfLddw,
    /// A jump or call that leaves the program.
    #[error("the target, slot {target}, is outside the program ({slots} slots)")]
    TargetOutside {
        /// Slot number that was computed.
        target: i64,
        /// Length of the program in slots.
        slots: u32,
    },
    /// A jump or call into the second half of an `lddw`.
    #[error("the target, slot {target}, is the second half of an `lddw`")]
    TargetInsideLddw {
        /// Slot number.
        target: u32,
    },
}

/// Decodes a program. All faults are reported, not only the first.
///
/// Map references by index (`src` 5 and 6) become the same [`Imm64`] as those by file descriptor (1
/// and 2), and clang's older `callx`, with the register in the immediate, the same as the newer.
///
/// # Errors
/// One [`DecodeError`] for each slot at fault.
pub fn decode(bytes: &[u8]) -> Result<Code, Vec<DecodeError>> {
    let slots: Vec<Slot> = Slot::all(bytes).collect();
    let mut errors = Vec::new();
    let mut fail = |slot: usize, kind| {
        errors.push(DecodeError {
            slot: slot as u32,
            kind,
        })
    };
    let rest = bytes.len() % Slot::BYTES;
    if rest != 0 {
        fail(slots.len(), DecodeErrorKind::PartialSlot { bytes: rest });
    } else if slots.is_empty() {
        fail(0, DecodeErrorKind::Empty);
    }

    // First the boundaries, so that targets can be resolved in one go afterwards.
    let mut pc_of = vec![None; slots.len()];
    let mut count = 0;
    let mut at = 0;
    while at < slots.len() {
        pc_of[at] = Some(Pc(count));
        count += 1;
        at += if slots[at].opcode == Slot::LDDW { 2 } else { 1 };
    }
    let targets = Targets { pc_of: &pc_of };

    let mut insns = Vec::with_capacity(count as usize);
    for (at, slot) in slots.iter().enumerate() {
        if pc_of[at].is_none() {
            continue;
        }
        let high = if slot.opcode == Slot::LDDW {
            match slots.get(at + 1) {
                Some(high) => *high,
                None => {
                    fail(at, DecodeErrorKind::HalfLddw);
                    continue;
                }
            }
        } else {
            Slot::default()
        };
        match decode_one(*slot, high, at, &targets) {
            Ok(insn) => insns.push(insn),
            Err(kind) => fail(at, kind),
        }
    }
    if errors.is_empty() {
        Ok(Code::new(insns))
    } else {
        Err(errors)
    }
}

struct Targets<'a> {
    pc_of: &'a [Option<Pc>],
}

impl Targets<'_> {
    fn resolve(&self, slot: usize, distance: i64) -> Result<Pc, DecodeErrorKind> {
        let target = slot as i64 + 1 + distance;
        let outside = DecodeErrorKind::TargetOutside {
            target,
            slots: self.pc_of.len() as u32,
        };
        let index = usize::try_from(target).map_err(|_| outside.clone())?;
        let pc = self.pc_of.get(index).ok_or(outside)?;
        pc.ok_or(DecodeErrorKind::TargetInsideLddw {
            target: index as u32,
        })
    }
}

/// Finds the row of a slot and checks its reserved fields.
pub(crate) fn select(slot: Slot, high: Slot) -> Result<&'static Form, DecodeErrorKind> {
    let opcode = slot.opcode;
    let mut forms = forms_of(opcode).peekable();
    if forms.peek().is_none() {
        return Err(DecodeErrorKind::UnknownOpcode { opcode });
    }
    let form = forms
        .find(|form| {
            form.src.selects(i32::from(slot.src))
                && form.off.selects(i32::from(slot.off))
                && form.imm.selects(slot.imm)
        })
        .ok_or(DecodeErrorKind::UnknownVariant {
            opcode,
            src: slot.src,
            off: slot.off,
            imm: slot.imm,
        })?;
    let fields = [
        (form.dst, "dst", i64::from(slot.dst)),
        (form.src, "src", i64::from(slot.src)),
        (form.off, "offset", i64::from(slot.off)),
        (form.imm, "imm", i64::from(slot.imm)),
        (form.imm_high, "second imm", i64::from(high.imm)),
        (Use::Zero, "second opcode", i64::from(high.opcode)),
        (Use::Zero, "second dst", i64::from(high.dst)),
        (Use::Zero, "second src", i64::from(high.src)),
        (Use::Zero, "second offset", i64::from(high.off)),
    ];
    for (field, name, value) in fields {
        if field == Use::Zero && value != 0 {
            return Err(DecodeErrorKind::Reserved {
                name: form.name,
                field: name,
                value,
            });
        }
    }
    Ok(form)
}

fn decode_one(
    slot: Slot,
    high: Slot,
    at: usize,
    targets: &Targets<'_>,
) -> Result<Insn, DecodeErrorKind> {
    let form = select(normalise(slot), high)?;
    let slot = normalise(slot);
    let reg = |register: u8| Reg::new(register).ok_or(DecodeErrorKind::Register { register });
    let near = || targets.resolve(at, i64::from(slot.off));
    let far = || targets.resolve(at, i64::from(slot.imm));
    let operand = |is_reg: bool| {
        if is_reg {
            reg(slot.src).map(Source::Reg)
        } else {
            Ok(Source::Imm(slot.imm))
        }
    };
    // Read only where the row says that they are operands.
    let (dst, src, off) = (|| reg(slot.dst), || reg(slot.src), slot.off);
    Ok(match form.shape {
        Shape::Alu { wide, op, reg } => Insn::Alu {
            wide,
            op,
            dst: dst()?,
            src: operand(reg)?,
        },
        Shape::MovSx { wide, bits } => Insn::MovSx {
            wide,
            bits,
            dst: dst()?,
            src: src()?,
        },
        Shape::Neg { wide } => Insn::Neg { wide, dst: dst()? },
        Shape::End { kind, bits } => Insn::End {
            kind,
            bits,
            dst: dst()?,
        },
        Shape::LoadImm64(kind) => {
            let (low, second) = (slot.imm as u32, high.imm as u32);
            let value = match kind {
                ImmKind::Value => Imm64::Value(u64::from(second) << 32 | u64::from(low)),
                ImmKind::Map => Imm64::Map(low),
                ImmKind::MapValue => Imm64::MapValue {
                    map: low,
                    offset: second,
                },
                ImmKind::BtfId => Imm64::BtfId(low),
                ImmKind::Func => Imm64::Func(far()?),
            };
            Insn::LoadImm64 { dst: dst()?, value }
        }
        Shape::Load { width, signed } => Insn::Load {
            width,
            signed,
            dst: dst()?,
            base: src()?,
            off,
        },
        Shape::Store { width, reg } => Insn::Store {
            width,
            base: dst()?,
            off,
            src: operand(reg)?,
        },
        Shape::Atomic { width, op } => Insn::Atomic {
            width,
            op,
            base: dst()?,
            off,
            src: src()?,
        },
        Shape::LoadAcquire { width } => Insn::LoadAcquire {
            width,
            dst: dst()?,
            base: src()?,
            off,
        },
        Shape::StoreRelease { width } => Insn::StoreRelease {
            width,
            base: dst()?,
            off,
            src: src()?,
        },
        Shape::Jump { wide, op, reg } => Insn::Jump {
            wide,
            op,
            dst: dst()?,
            src: operand(reg)?,
            target: near()?,
        },
        Shape::Goto { long: false } => Insn::Goto {
            target: near()?,
            long: false,
        },
        Shape::Goto { long: true } => Insn::Goto {
            target: far()?,
            long: true,
        },
        Shape::MayGoto => Insn::MayGoto { target: near()? },
        Shape::CallHelper => Insn::Call {
            callee: Callee::Helper(slot.imm as u32),
        },
        Shape::CallLocal => Insn::Call {
            callee: Callee::Local(far()?),
        },
        Shape::CallKfunc => Insn::Call {
            callee: Callee::Kfunc(slot.imm as u32),
        },
        Shape::CallReg => Insn::CallReg { target: dst()? },
        Shape::Exit => Insn::Exit,
        Shape::LegacyPacket { width, indirect } => {
            let src = if indirect { src()? } else { Reg::R0 };
            Insn::LegacyPacket {
                width,
                indirect,
                src,
                imm: slot.imm,
            }
        }
    })
}

/// `callx` had its register in the immediate before LLVM 19.
fn normalise(slot: Slot) -> Slot {
    match slot {
        Slot {
            opcode: 0x8d,
            dst: 0,
            imm: imm @ 1..=10,
            ..
        } => Slot {
            dst: imm as u8,
            imm: 0,
            ..slot
        },
        other => other,
    }
}
