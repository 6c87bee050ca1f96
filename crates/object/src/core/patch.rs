//! Writing the number into the instruction that asked for it.

use warpbpf_ebpf::Slot;

use crate::core::value::Value;
use crate::core_error::CoreError;
use crate::functions::CALL;

/// The helper number that stands where something could not be resolved; the one that libbpf writes
/// (0xbad2310).
pub const UNRESOLVED_CALL: u32 = 0x0bad_2310;

/// Why an instruction cannot run in the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Poison {
    /// `ty`: not even the type is there.
    Missing {
        ty: bool,
    },
    Resized {
        before: u64,
        after: u64,
    },
    TooFar {
        value: u64,
    },
}

/// What becomes of one instruction.
pub(super) struct Resolution {
    /// What the compiler wrote.
    pub(super) before: Value,
    /// What the target says, or why it says nothing.
    pub(super) after: Result<Value, Poison>,
    /// Whether the width of a load may follow the field's.
    pub(super) resizable: bool,
}

/// What became of it.
pub(super) enum Patch {
    Done,
    Poison(Poison),
}

/// Patches the instruction at the start of `slots`. Errors are faults of the file.
pub(super) fn apply(slots: &mut [Slot], resolution: &Resolution) -> Result<Patch, CoreError> {
    let after = match resolution.after {
        Ok(after) => after,
        Err(poison) => return Ok(Patch::Poison(poison)),
    };
    let Resolution { before, .. } = *resolution;
    let check = |found: u64, width: u32| {
        let mask = u64::MAX >> (64 - width);
        if before.exact && found & mask != before.number & mask {
            let expected = before.number;
            return Err(CoreError::OtherNumber { found, expected });
        }
        Ok(())
    };
    let Some((slot, rest)) = slots.split_first_mut() else {
        return Err(CoreError::Instruction);
    };
    match slot.opcode & 7 {
        // ALU and ALU64 with a constant.
        4 | 7 if slot.opcode & 8 == 0 => {
            check(slot.imm as i64 as u64, 32)?;
            slot.imm = after.number as u32 as i32;
        }
        // Loads and stores.
        1..=3 => {
            check(slot.off as i64 as u64, 16)?;
            let Ok(off) = i16::try_from(after.number) else {
                let value = after.number;
                return Ok(Patch::Poison(Poison::TooFar { value }));
            };
            if let Some(poison) = resize(slot, &before, &after, resolution.resizable)? {
                return Ok(Patch::Poison(poison));
            }
            slot.off = off;
        }
        0 if slot.opcode == Slot::LDDW && slot.src == 0 => {
            let high = rest.first_mut().ok_or(CoreError::Instruction)?;
            let found = u64::from(high.imm as u32) << 32 | u64::from(slot.imm as u32);
            check(found, 64)?;
            slot.imm = after.number as u32 as i32;
            high.imm = (after.number >> 32) as u32 as i32;
        }
        _ => return Err(CoreError::Instruction),
    }
    Ok(Patch::Done)
}

/// Makes a load or store as wide as the target's field.
fn resize(
    slot: &mut Slot,
    before: &Value,
    after: &Value,
    resizable: bool,
) -> Result<Option<Poison>, CoreError> {
    let (Some(old), Some(new)) = (before.field, after.field) else {
        return Ok(None);
    };
    if old.size == new.size {
        return Ok(None);
    }
    let refused = Poison::Resized {
        before: old.size,
        after: new.size,
    };
    if !resizable {
        return Ok(Some(refused));
    }
    // Bits 3 and 4 of the opcode: 32, 16, 8, 64 bits.
    let width = [4, 2, 1, 8][usize::from(slot.opcode >> 3 & 3)];
    if width != old.size {
        let size = old.size;
        return Err(CoreError::OtherWidth { width, size });
    }
    let code = match new.size {
        4 => 0,
        2 => 1,
        1 => 2,
        8 => 3,
        _ => return Ok(Some(refused)),
    };
    slot.opcode = slot.opcode & !0x18 | code << 3;
    Ok(None)
}

/// Overwrites the instruction at the start of `slots` with a call that no verifier lets through.
/// Says whether it had two slots; then both are overwritten.
pub(crate) fn poison(slots: &mut [Slot]) -> bool {
    let call = Slot {
        opcode: CALL,
        imm: UNRESOLVED_CALL as i32,
        ..Slot::default()
    };
    let wide = slots.first().is_some_and(|slot| slot.opcode == Slot::LDDW) && slots.len() > 1;
    for slot in slots.iter_mut().take(if wide { 2 } else { 1 }) {
        *slot = call;
    }
    wide
}
