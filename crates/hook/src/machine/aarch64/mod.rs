//! Instructions of AArch64: what stands at a function's beginning, where it may be moved to, and
//! the jumps.
//!
//! A jump is one instruction where stubs lie within 128 MiB, so that it is written at once, and
//! three where they do not. `x16` and `x17` are free between two functions. Where a processor
//! checks the targets of indirect jumps, a place in the middle of a function is none, so what goes
//! on there is a direct branch, or a return. No code of ours is in pages where that is checked.

mod insn;
mod plan;

use crate::error::HookError;
use crate::patch::{Patch, ROOM};
use insn::{BTI_C, IP0, IP1, Insn, NOP, UDF, WORD, decode};
use plan::{Plan, plan_of};

/// How far from the library stubs may lie, the better first: within a `b`, then within an `adrp`.
pub(crate) const REACHES: &[usize] = &[(128 << 20) - ROOM, 1 << 30];
/// `udf`: nothing goes on there.
pub(crate) const FILL: u8 = 0;

/// Instructions of a jump that reaches far.
const FAR: usize = 3;
/// Where in a stub the address may stand that it goes on to: behind what undoes an instruction, a
/// `nop`, and the jump.
const BEFORE_WORD: [usize; 2] = [8, 16];

/// Plans a hook by a jump of one instruction; [`build`] makes another plan where that does not
/// reach.
pub(crate) fn plan(address: u64, code: &[u8]) -> Result<Plan, HookError> {
    plan_of(address, code, 1)
}

/// The same for a function that has no more than so many arguments in registers: what its first
/// instruction may be does not depend on that.
#[cfg(target_arch = "aarch64")]
pub(crate) fn plan_few(address: u64, code: &[u8], _arguments: usize) -> Result<Plan, HookError> {
    plan(address, code)
}

/// The same for an entry of a procedure linkage table (ABI for the Arm 64-bit Architecture, ELF,
/// "Procedure Linkage Table"): the address of a word in `x16`, what it leads to in `x17`, and a
/// jump, behind a landing pad where there is one.
pub(crate) fn plan_entry(address: u64, code: &[u8]) -> Result<Plan, HookError> {
    let (words, _) = code.as_chunks();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let pads = usize::from(words.first() == Some(&BTI_C));
    let at = address + WORD * pads as u64;
    let Some(&first) = words.get(pads) else {
        return Err(HookError::Undecodable { address: at });
    };
    let is_word = matches!(decode(first, at), Insn::Address { register: IP0, .. });
    if !is_word || !words.contains(&insn::jump(IP1)) {
        let text = insn::text(first, at);
        return Err(HookError::Entry { text });
    }
    plan(address, code)
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes that a breakpoint at the beginning of a function takes, if there is one.
pub(crate) fn breakpoint(code: &[u8]) -> Option<usize> {
    let first = u32::from_le_bytes(*code.first_chunk()?);
    (decode(first, 0) == Insn::Breakpoint).then_some(WORD as usize)
}

/// Stub and trampoline as bytes for address `base`, the trampoline's address, and the patch that
/// leads to the stub. `function` has the bytes that were planned.
pub(crate) fn build(
    plan: &Plan,
    base: u64,
    function: &[u8],
    replacement: usize,
) -> Result<(Vec<u8>, usize, Patch), HookError> {
    let far;
    let (plan, jump) = match insn::branch(plan.jump_at(), base) {
        Some(jump) => (plan, vec![jump]),
        None => {
            far = plan_of(plan.address, function, FAR)?;
            let near = insn::address_near(IP0, far.jump_at(), base);
            let [adrp, add] = near.ok_or(HookError::NoRoom)?;
            (&far, vec![adrp, add, insn::jump(IP0)])
        }
    };
    let mut words: Vec<u32> = plan.undo.into_iter().collect();
    // The address of our function stands in one aligned word, so that it can be exchanged while
    // others jump (`stub`).
    if words.len() % 2 == 1 {
        words.push(NOP);
    }
    far_jump(&mut words, replacement as u64);

    let trampoline = base + WORD * words.len() as u64;
    words.push(BTI_C);
    for (at, word) in plan.placed() {
        let here = base + WORD * words.len() as u64;
        words.extend(moved(plan, word, at, here)?);
    }
    let here = base + WORD * words.len() as u64;
    words.extend(go_on(plan, here, plan.resume())?);
    let code = bytes_of(&words);
    if code.len() > ROOM - 16 {
        return Err(HookError::Relocate {
            reason: format!("they take {} bytes", code.len()),
        });
    }
    let jump = bytes_of(&jump);
    let skip = WORD as usize;
    let patch = Patch {
        at: plan.jump_at() as usize,
        expected: function[skip..skip + jump.len()].to_vec(),
        jump,
    };
    Ok((code, trampoline as usize, patch))
}

/// `ldr x16`, `br x16` and the address behind it.
fn far_jump(words: &mut Vec<u32>, to: u64) {
    words.extend([insn::load_behind(IP0, 8), insn::jump(IP0)]);
    words.extend([to as u32, (to >> 32) as u32]);
}

/// What does at `here` what an instruction of the plan did at `at`.
fn moved(plan: &Plan, word: u32, at: u64, here: u64) -> Result<Vec<u32>, HookError> {
    Ok(match decode(word, at) {
        Insn::Branch { to } => go_on(plan, here, to)?,
        Insn::Call { to } => {
            scratch(plan)?;
            let mut words = insn::number(IP1, to).to_vec();
            words.push(insn::call(IP1));
            words
        }
        Insn::Conditional { to, skip } => {
            let taken = go_on(plan, here + 2 * WORD, to)?;
            let mut words = vec![skip, insn::over(taken.len() as u32)];
            words.extend(taken);
            words
        }
        Insn::Address { register, value } => insn::number(register, value).to_vec(),
        // Number 31 is no register that an address can be put into.
        Insn::Load { register: 31, .. } | Insn::OtherLoad => {
            let text = insn::text(word, at);
            let reason = format!("`{text}` at {at:#x} reads relative to itself");
            return Err(HookError::Relocate { reason });
        }
        Insn::Load {
            register,
            from,
            load,
        } => {
            let mut words = insn::number(register, from).to_vec();
            words.push(load);
            words
        }
        _ => vec![word],
    })
}

/// Goes from `here` to a place in the middle of a function.
fn go_on(plan: &Plan, here: u64, to: u64) -> Result<Vec<u32>, HookError> {
    if let Some(branch) = insn::branch(here, to) {
        return Ok(vec![branch]);
    }
    scratch(plan)?;
    let mut words = insn::number(IP1, to).to_vec();
    words.push(insn::go_back(IP1));
    Ok(words)
}

/// The register of long jumps is free in the displaced instructions.
fn scratch(plan: &Plan) -> Result<(), HookError> {
    match plan.mentions_ip() {
        None => Ok(()),
        Some(text) => Err(HookError::Relocate {
            reason: format!("`{text}` may need the registers x16 and x17"),
        }),
    }
}

/// Puts a number into `w16` and goes on; at most [`crate::stub::STRIDE`] bytes.
pub(crate) fn numbered(number: u32, common: u64) -> Vec<u8> {
    let words = [
        BTI_C,
        insn::load_half_behind(IP0, 12),
        insn::load_behind(IP1, 16),
        insn::jump(IP1),
        number,
        UDF,
        common as u32,
        (common >> 32) as u32,
    ];
    bytes_of(&words)
}

/// Where a jump leads that stands behind the function's first instruction.
pub(crate) fn jump_of(address: usize, code: &[u8]) -> Option<usize> {
    let HookError::Taken { .. } = plan(address as u64, code).err()? else {
        return None;
    };
    let (words, _) = code.as_chunks();
    let word = |n: usize| words.get(n).map(|word| u32::from_le_bytes(*word));
    let at = address as u64 + WORD;
    let to = match decode(word(1)?, at) {
        Insn::Branch { to } => to,
        Insn::Address { value, .. } => {
            let low = u64::from(word(2)? >> 10 & 0xfff);
            let ours = insn::address_near(IP0, at, value + low)?;
            if [word(1)?, word(2)?, word(3)?] != [ours[0], ours[1], insn::jump(IP0)] {
                return None;
            }
            value + low
        }
        _ => return None,
    };
    usize::try_from(to).ok()
}

/// Where in an entry stub the address stands that it goes on to.
pub(crate) fn word_in(stub: &[u8]) -> Option<usize> {
    let jump = bytes_of(&[insn::load_behind(IP0, 8), insn::jump(IP0)]);
    let is_word = |at: &usize| stub.get(at - jump.len()..*at) == Some(jump.as_slice());
    BEFORE_WORD.into_iter().find(is_word)
}

/// Has all processors see code that was written as data. What those of other threads have begun to
/// run they take again, where the kernel can make them; where it cannot, at their next way into it.
#[cfg(target_arch = "aarch64")]
pub(crate) fn flush(start: usize, bytes: usize) {
    let types: u64;
    // SAFETY: the register says how long lines of the caches are, and any thread may read it under
    // Linux.
    unsafe { core::arch::asm!("mrs {}, ctr_el0", out(reg) types, options(nomem, nostack)) };
    let lines = |shift: u32| 4usize << ((types >> shift) & 15);
    let (data, code) = (lines(16), lines(0));
    for line in (start & !(data - 1)..start + bytes).step_by(data) {
        // SAFETY: cleaning a line changes nothing.
        unsafe { core::arch::asm!("dc cvau, {}", in(reg) line, options(nostack)) };
    }
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack)) };
    for line in (start & !(code - 1)..start + bytes).step_by(code) {
        // SAFETY: what is dropped here is read again.
        unsafe { core::arch::asm!("ic ivau, {}", in(reg) line, options(nostack)) };
    }
    // SAFETY: barriers.
    unsafe { core::arch::asm!("dsb ish", "isb", options(nostack)) };
    for command in [
        libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
        libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE,
    ] {
        // SAFETY: no argument is an address.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    }
}

#[cfg(test)]
mod tests;
