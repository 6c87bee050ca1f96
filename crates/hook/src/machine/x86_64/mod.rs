//! Instructions of x86-64: what stands at a function's beginning, where it may be moved to, and the
//! jumps.

mod plan;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Encoder, Instruction,
    InstructionBlock,
};

use plan::{JUMP, Plan};
pub(crate) use plan::{plan, plan_entry, plan_few};

use crate::error::HookError;
use crate::patch::{Patch, ROOM};

/// How far from the library stubs may lie. Half of what a jump reaches, so that the data of a large
/// library is in reach of instructions moved there.
pub(crate) const REACHES: &[usize] = &[1 << 30];
/// `int3`: nothing goes on there.
pub(crate) const FILL: u8 = 0xcc;

/// Bytes of `jmp [rip]` and the address behind it.
const FAR_JUMP: usize = 14;
const NOP: u8 = 0x90;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_IMM32: u8 = 0x68;

/// Bytes that a breakpoint at the beginning of a function takes, if there is one.
pub(crate) fn breakpoint(code: &[u8]) -> Option<usize> {
    (code.first() == Some(&FILL)).then_some(1)
}

/// Stub and trampoline as bytes for address `base`, the trampoline's address, and the patch that
/// leads to the stub. `function` has the bytes that were planned.
pub(crate) fn build(
    plan: &Plan,
    base: u64,
    function: &[u8],
    replacement: usize,
) -> Result<(Vec<u8>, usize, Patch), HookError> {
    let relocate = |e: iced_x86::IcedError| HookError::Relocate {
        reason: e.to_string(),
    };
    let mut code = Vec::new();
    if let Some(undo) = &plan.undo {
        let mut encoder = Encoder::new(64);
        encoder.encode(undo, base).map_err(relocate)?;
        code.extend(encoder.take_buffer());
    }
    // The address of our function stands in one aligned word, so that it can be exchanged while
    // others jump (`stub`).
    while !(base as usize + code.len() + FAR_JUMP).is_multiple_of(8) {
        code.push(NOP);
    }
    far_jump(&mut code, replacement as u64);
    code.resize(code.len().next_multiple_of(16), FILL);

    let trampoline = base + code.len() as u64;
    let mut moved = vec![Instruction::with(Code::Endbr64)];
    moved.extend(plan.displaced.iter().copied());
    let block = InstructionBlock::new(&moved, trampoline);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(relocate)?;
    code.extend(encoded.code_buffer);
    far_jump(&mut code, plan.resume);
    if code.len() > ROOM - 16 {
        return Err(HookError::Relocate {
            reason: format!("they take {} bytes", code.len()),
        });
    }
    let distance = base.wrapping_sub(plan.jump_at + JUMP as u64) as i64;
    let Ok(distance) = i32::try_from(distance) else {
        return Err(HookError::NoRoom);
    };
    let mut jump = vec![0xe9];
    jump.extend(distance.to_le_bytes());
    let skip = (plan.jump_at - plan.displaced[0].ip()) as usize;
    let patch = Patch {
        at: plan.jump_at as usize,
        expected: function[skip..skip + JUMP].to_vec(),
        jump,
    };
    Ok((code, trampoline as usize, patch))
}

/// `jmp [rip]`: reaches everything and, unlike push and ret, does not upset a shadow stack.
fn far_jump(code: &mut Vec<u8>, to: u64) {
    let start = code.len();
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(to.to_le_bytes());
    debug_assert_eq!(code.len() - start, FAR_JUMP);
}

/// Pushes a number and goes on; at most [`crate::stub::STRIDE`] bytes.
pub(crate) fn numbered(number: u32, common: u64) -> Vec<u8> {
    let mut code = ENDBR64.to_vec();
    code.push(PUSH_IMM32);
    code.extend(number.to_le_bytes());
    far_jump(&mut code, common);
    code
}

/// Where a jump leads that stands behind the function's first instruction.
pub(crate) fn jump_of(address: usize, code: &[u8]) -> Option<usize> {
    let HookError::Taken { .. } = plan(address as u64, code).err()? else {
        return None;
    };
    // Its first instruction is as it was; behind it stands our jump.
    let mut decoder = Decoder::with_ip(64, code, address as u64, DecoderOptions::NONE);
    let (_, jump) = (decoder.decode(), decoder.decode());
    match jump.code() {
        Code::Jmp_rel32_64 => usize::try_from(jump.near_branch_target()).ok(),
        _ => None,
    }
}

/// Where in an entry stub the address stands that it goes on to.
pub(crate) fn word_in(stub: &[u8]) -> Option<usize> {
    let far = stub
        .windows(6)
        .position(|six| six == [0xff, 0x25, 0, 0, 0, 0])?;
    // Before it stand only what undoes the first instruction, and padding.
    debug_assert!(stub[..far].iter().filter(|b| **b != NOP).count() <= 8);
    (far + FAR_JUMP <= stub.len()).then_some(far + 6)
}

/// Code is seen by all as soon as it is written.
pub(crate) fn flush(_: usize, _: usize) {}

#[cfg(test)]
mod tests;
