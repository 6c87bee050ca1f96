//! What stubs go to: saves what a function may have been given, runs the programs, and goes on as
//! if nothing had been.

use super::api;
use crate::uprobe::registers::Registers;
use crate::uprobe::run::{end_call, expect_return, run};
use crate::uprobe::sites::{Sites, sites};

/// Numbers of stubs that functions return to: that of the function and this.
pub(crate) const AFTER: u32 = 1 << 24;

/// The code that calls `$hit` around a function: with its number pushed, as at a call or behind a
/// return. `r11` is nobody's there, so it takes the address to go on to. Vector registers are kept
/// whole: functions may be given and give back any of them.
#[cfg(target_arch = "x86_64")]
macro_rules! around {
    ($(#[$doc:meta])* $name:ident, $hit:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
    core::arch::naked_asm!(
                "pushfq",
                "cld",
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 168",
                "mov [rbp - 168], r15",
                "mov [rbp - 160], r14",
                "mov [rbp - 152], r13",
                "mov [rbp - 144], r12",
                "mov [rbp - 128], rbx",
                "mov [rbp - 120], r11",
                "mov [rbp - 112], r10",
                "mov [rbp - 104], r9",
                "mov [rbp - 96], r8",
                "mov [rbp - 88], rax",
                "mov [rbp - 80], rcx",
                "mov [rbp - 72], rdx",
                "mov [rbp - 64], rsi",
                "mov [rbp - 56], rdi",
                "mov qword ptr [rbp - 48], -1",
                "mov rax, [rbp]",
                "mov [rbp - 136], rax",
                "mov rax, [rbp + 8]",
                "mov [rbp - 24], rax",
                "lea rax, [rbp + 24]",
                "mov [rbp - 16], rax",
                "mov qword ptr [rbp - 40], 0",
                "mov qword ptr [rbp - 32], 0x33",
                "mov qword ptr [rbp - 8], 0x2b",
                // x87, SSE, AVX and AVX-512, of which the processor saves those that are in use.
                "sub rsp, 2816",
                "and rsp, -64",
                "xor eax, eax",
                "mov [rsp + 512], rax",
                "mov [rsp + 520], rax",
                "mov [rsp + 528], rax",
                "mov [rsp + 536], rax",
                "mov [rsp + 544], rax",
                "mov [rsp + 552], rax",
                "mov [rsp + 560], rax",
                "mov [rsp + 568], rax",
                "mov eax, 0xe7",
                "xor edx, edx",
                "xsave64 [rsp]",
                "mov rdi, [rbp + 16]",
                "lea rsi, [rbp - 168]",
                "call {hit}",
                "mov [rbp + 16], rax",
                "mov eax, 0xe7",
                "xor edx, edx",
                "xrstor64 [rsp]",
                "mov r15, [rbp - 168]",
                "mov r14, [rbp - 160]",
                "mov r13, [rbp - 152]",
                "mov r12, [rbp - 144]",
                "mov rbx, [rbp - 128]",
                "mov r10, [rbp - 112]",
                "mov r9, [rbp - 104]",
                "mov r8, [rbp - 96]",
                "mov rax, [rbp - 88]",
                "mov rcx, [rbp - 80]",
                "mov rdx, [rbp - 72]",
                "mov rsi, [rbp - 64]",
                "mov rdi, [rbp - 56]",
                "mov r11, [rbp + 16]",
                "mov rsp, rbp",
                "pop rbp",
                "popfq",
                "lea rsp, [rsp + 8]",
                "jmp r11",
                hit = sym $hit,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
around!(
    /// # Safety
    /// Only stubs go here.
    common,
    hit
);

/// Where stubs go. `None`: nobody has written that for this processor, and [`super::prepare`] has
/// said so.
pub(crate) fn entry() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let entry = Some(common as *const () as usize);
    #[cfg(not(target_arch = "x86_64"))]
    let entry = None;
    entry
}

/// What the common code calls. The address to go on to.
///
/// # Safety
/// `registers` is as the common code laid it out.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "no code calls it there")
)]
unsafe extern "C" fn hit(number: u64, registers: *mut Registers) -> usize {
    let Some(sites) = sites() else {
        // Stubs are reached only after all has been published.
        std::process::abort();
    };
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut *registers };
    let number = number as u32;
    if let Some(number) = number.checked_sub(AFTER) {
        return returned(sites, number as usize, registers);
    }
    let index = number as usize;
    let site = &sites.all[index];
    registers.rip = site.address as u64;
    if let Some(function) = &site.api {
        api::called(sites, index, function, registers);
        return site.original;
    }
    run(sites, site, &site.starts, registers);
    if !site.ends.is_empty() {
        expect_return(sites, index, registers.rsp);
    }
    site.original
}

/// A function has returned.
fn returned(sites: &Sites, index: usize, registers: &mut Registers) -> usize {
    let slot = registers.rsp.wrapping_sub(8);
    let Some(caller) = end_call(index, slot) else {
        // Nobody knows where to go on: the call was made by another thread.
        std::process::abort();
    };
    registers.rip = caller;
    let site = &sites.all[index];
    if site.api.is_some() {
        api::returned(sites, index, slot, registers);
    } else {
        run(sites, site, &site.ends, registers);
    }
    caller as usize
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
