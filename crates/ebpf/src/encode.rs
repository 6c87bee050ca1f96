//! From [`Code`] to bytes: the inverse of the decoder, through the same table.

use crate::insn::{Callee, Code, Imm64, Insn, Pc, Source};
use crate::raw::Slot;
use crate::table::{Form, ImmKind, Shape, form_of};

/// Why an instruction has no encoding. Whoever built the [`Code`] is at fault: decoded code always
/// encodes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The distance does not fit the field.
    #[error(
        "{pc}: the target {target} is {distance} slots away, more than a {bits}-bit offset can say"
    )]
    TooFar {
        /// The jump.
        pc: Pc,
        /// Where it goes.
        target: Pc,
        /// In slots, from the next instruction.
        distance: i64,
        /// Width of the offset field.
        bits: u8,
    },
    /// A target that is no instruction of the program.
    #[error("{pc}: the target {target} is not in the program")]
    NoSuchTarget {
        /// The jump.
        pc: Pc,
        /// Where it goes.
        target: Pc,
    },
    /// Operands that no opcode combines, such as an 8-bit atomic addition.
    #[error("{pc}: `{insn:?}` is not an instruction of the table")]
    NoSuchInsn {
        /// Where.
        pc: Pc,
        /// What.
        insn: Insn,
    },
}

/// Encodes a program as little-endian bytes. `decode(&encode(&code)?)` gives `code` back.
///
/// # Errors
/// [`EncodeError`] for a target outside the program or too far for its field.
pub fn encode(code: &Code) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(code.insns().len() * Slot::BYTES);
    for pc in (0..code.insns().len() as u32).map(Pc) {
        let (_, slot, high) = encode_one(code, pc)?;
        bytes.extend(slot.to_bytes());
        if code.at(pc).slots() == 2 {
            bytes.extend(high.to_bytes());
        }
    }
    Ok(bytes)
}

/// The row and the slots of the instruction at `pc`; the second slot matters only for `lddw`.
pub(crate) fn encode_one(code: &Code, pc: Pc) -> Result<(&'static Form, Slot, Slot), EncodeError> {
    let distance = |target: Pc, bits: u8| {
        if target.index() >= code.insns().len() {
            return Err(EncodeError::NoSuchTarget { pc, target });
        }
        let distance = i64::from(code.slot(target)) - i64::from(code.slot(pc)) - 1;
        let limit = 1i64 << (bits - 1);
        if distance < -limit || distance >= limit {
            return Err(EncodeError::TooFar {
                pc,
                target,
                distance,
                bits,
            });
        }
        Ok(distance as i32)
    };
    let near = |target| distance(target, 16).map(|distance| distance as i16);
    let far = |target| distance(target, 32);

    let mut slot = Slot::default();
    let mut high = Slot::default();
    let set_source = |slot: &mut Slot, source: Source| match source {
        Source::Reg(src) => {
            slot.src = src.index() as u8;
            true
        }
        Source::Imm(imm) => {
            slot.imm = imm;
            false
        }
    };
    let shape = match *code.at(pc) {
        Insn::Alu { wide, op, dst, src } => {
            slot.dst = dst.index() as u8;
            Shape::Alu {
                wide,
                op,
                reg: set_source(&mut slot, src),
            }
        }
        Insn::MovSx {
            wide,
            bits,
            dst,
            src,
        } => {
            slot = Slot {
                dst: dst.index() as u8,
                src: src.index() as u8,
                ..slot
            };
            Shape::MovSx { wide, bits }
        }
        Insn::Neg { wide, dst } => {
            slot.dst = dst.index() as u8;
            Shape::Neg { wide }
        }
        Insn::End { kind, bits, dst } => {
            slot.dst = dst.index() as u8;
            Shape::End { kind, bits }
        }
        Insn::LoadImm64 { dst, value } => {
            slot.dst = dst.index() as u8;
            let (kind, low, second) = match value {
                Imm64::Value(value) => (ImmKind::Value, value as i32, (value >> 32) as i32),
                Imm64::Map(map) => (ImmKind::Map, map as i32, 0),
                Imm64::MapValue { map, offset } => (ImmKind::MapValue, map as i32, offset as i32),
                Imm64::BtfId(id) => (ImmKind::BtfId, id as i32, 0),
                Imm64::Func(target) => (ImmKind::Func, far(target)?, 0),
            };
            slot.imm = low;
            high.imm = second;
            Shape::LoadImm64(kind)
        }
        Insn::Load {
            width,
            signed,
            dst,
            base,
            off,
        } => {
            slot = Slot {
                dst: dst.index() as u8,
                src: base.index() as u8,
                off,
                ..slot
            };
            Shape::Load { width, signed }
        }
        Insn::Store {
            width,
            base,
            off,
            src,
        } => {
            slot = Slot {
                dst: base.index() as u8,
                off,
                ..slot
            };
            Shape::Store {
                width,
                reg: set_source(&mut slot, src),
            }
        }
        Insn::Atomic {
            width,
            op,
            base,
            off,
            src,
        } => {
            slot = Slot {
                dst: base.index() as u8,
                src: src.index() as u8,
                off,
                ..slot
            };
            Shape::Atomic { width, op }
        }
        Insn::LoadAcquire {
            width,
            dst,
            base,
            off,
        } => {
            slot = Slot {
                dst: dst.index() as u8,
                src: base.index() as u8,
                off,
                ..slot
            };
            Shape::LoadAcquire { width }
        }
        Insn::StoreRelease {
            width,
            base,
            off,
            src,
        } => {
            slot = Slot {
                dst: base.index() as u8,
                src: src.index() as u8,
                off,
                ..slot
            };
            Shape::StoreRelease { width }
        }
        Insn::Jump {
            wide,
            op,
            dst,
            src,
            target,
        } => {
            slot = Slot {
                dst: dst.index() as u8,
                off: near(target)?,
                ..slot
            };
            Shape::Jump {
                wide,
                op,
                reg: set_source(&mut slot, src),
            }
        }
        Insn::Goto { target, long } => {
            if long {
                slot.imm = far(target)?;
            } else {
                slot.off = near(target)?;
            }
            Shape::Goto { long }
        }
        Insn::MayGoto { target } => {
            slot.off = near(target)?;
            Shape::MayGoto
        }
        Insn::Call { callee } => {
            let (shape, imm) = match callee {
                Callee::Helper(number) => (Shape::CallHelper, number as i32),
                Callee::Local(target) => (Shape::CallLocal, far(target)?),
                Callee::Kfunc(id) => (Shape::CallKfunc, id as i32),
            };
            slot.imm = imm;
            shape
        }
        Insn::CallReg { target } => {
            slot.dst = target.index() as u8;
            Shape::CallReg
        }
        Insn::Exit => Shape::Exit,
        Insn::LegacyPacket {
            width,
            indirect,
            src,
            imm,
        } => {
            slot.imm = imm;
            if indirect {
                slot.src = src.index() as u8;
            }
            Shape::LegacyPacket { width, indirect }
        }
    };
    let form = form_of(shape).ok_or(EncodeError::NoSuchInsn {
        pc,
        insn: *code.at(pc),
    })?;
    slot.opcode = form.opcode;
    slot.src = form.src.fill(i32::from(slot.src)) as u8;
    slot.off = form.off.fill(i32::from(slot.off)) as i16;
    slot.imm = form.imm.fill(slot.imm);
    Ok((form, slot, high))
}
