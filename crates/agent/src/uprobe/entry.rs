//! What stubs go to: saves what a function may have been given, runs the programs, and goes on as if nothing had been.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, TryLockError};
use std::time::Instant;

use warpbpf_session::cpu::{self, CpuError};
use warpbpf_wire::NoteLevel;

use super::lost::{LIMIT, count, within_patience};
use super::waiting::{Call, Waiting};
use super::world::World;
use super::{Site, Sites, api, sites};
use crate::guard::quietly;
use crate::stack;
use crate::stacks::Caller;

/// Numbers of stubs that functions return to: that of the function and this.
pub(super) const AFTER: u32 = 1 << 24;

/// `struct pt_regs`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Registers {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbp: u64,
    rbx: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rax: u64,
    rcx: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    orig_rax: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

pub(super) const BYTES: usize = size_of::<Registers>();
const _: () = assert!(BYTES == 168);

impl Registers {
    /// As programs see them.
    pub(super) fn bytes(&self) -> &[u8; BYTES] {
        // SAFETY: integers without gaps.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// The integer register with the argument of that number.
    pub(super) fn argument(&self, number: u8) -> u64 {
        match number {
            0 => self.rdi,
            1 => self.rsi,
            2 => self.rdx,
            3 => self.rcx,
            4 => self.r8,
            _ => self.r9,
        }
    }

    /// What an integer function has returned.
    pub(super) fn result(&self) -> u64 {
        self.rax
    }

    /// What its caller's stack can be followed from, at a function's start.
    pub(super) fn caller(&self) -> Caller {
        Caller {
            slot: self.rsp,
            rbp: self.rbp,
            rbx: self.rbx,
            others: [self.r12, self.r13, self.r14, self.r15],
        }
    }

    /// Where the return address stands, at a function's start.
    pub(super) fn top(&self) -> u64 {
        self.rsp
    }
}

/// The code that calls `$hit` around a function: with its number pushed, as at a call or behind a return. `r11` is nobody's
/// there, so it takes the address to go on to. Vector registers are kept whole: functions may be given and give back any of them.
#[cfg(target_arch = "x86_64")]
macro_rules! around {
    ($(#[$doc:meta])* $name:ident, $hit:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
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

/// Where stubs go. `None`: nobody has written that for this processor, and [`super::prepare`] has said so.
pub(super) fn entry() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let entry = Some(common as *const () as usize);
    #[cfg(not(target_arch = "x86_64"))]
    let entry = None;
    entry
}

thread_local! {
    /// None of them has a destructor, so they can be used while the thread ends.
    static CALLS: RefCell<Waiting> = const { RefCell::new(Waiting::new()) };
}

/// The thread's own stack.
pub(super) fn stack() -> Range<u64> {
    let own = stack::own();
    own.start as u64..own.end as u64
}

/// Programs run one after the other, over all threads: what each reads and writes back is then exact among them.
static TURN: Mutex<()> = Mutex::new(());

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

/// Has the function return to us. False: it will not.
pub(super) fn expect_return(sites: &Sites, index: usize, slot: u64) -> bool {
    if !sites.agent.is_on() {
        return false;
    }
    let own = stack();
    // SAFETY: at a function's start its return address stands on top of the stack.
    let place = unsafe { &mut *(slot as *mut u64) };
    let call = Call {
        site: index,
        slot,
        caller: *place,
    };
    let chained = sites.all.iter().any(|site| site.after as u64 == *place);
    let noted = CALLS.with(|calls| match calls.try_borrow_mut() {
        Ok(mut calls) => calls.begin(call, &own, chained),
        Err(_) => false,
    });
    if noted {
        *place = sites.all[index].after as u64;
    }
    noted
}

/// A function has returned.
fn returned(sites: &Sites, index: usize, registers: &mut Registers) -> usize {
    let slot = registers.rsp.wrapping_sub(8);
    let own = stack();
    let caller = CALLS.with(|calls| calls.borrow_mut().end(index, slot, &own));
    let Some(caller) = caller else {
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

fn run(sites: &Sites, site: &Site, programs: &[usize], registers: &Registers) {
    if programs.is_empty() || !sites.agent.is_on() {
        return;
    }
    // A panic is a fault of ours, and inside ourselves nothing is wanted: the application goes on either way.
    let _ = quietly(|| execute(sites, site, programs, registers.bytes()));
}

/// Waits until nobody runs a program that was begun before, for as long as one may take.
pub(super) fn wait_for_turn() {
    let turn = || {
        let is_taken = matches!(TURN.try_lock(), Err(TryLockError::WouldBlock));
        (!is_taken).then_some(())
    };
    let _ = within_patience(Instant::now() + LIMIT, turn);
}

/// Runs programs of a function with a context, each after those of other threads.
pub(super) fn execute(sites: &Sites, site: &Site, programs: &[usize], context: &[u8]) {
    if programs.is_empty() {
        return;
    }
    let turn = within_patience(Instant::now() + LIMIT, || match TURN.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        turn => Some(turn),
    });
    if turn.is_none() {
        for number in programs {
            count(&sites.lost[*number].skipped);
        }
        return;
    }
    for number in programs.iter().filter(|number| !sites.is_paused(**number)) {
        let program = &sites.session.host_programs()[*number].program;
        let mut world = World::new(sites, site, *number);
        let ended = cpu::execute(program, sites.session.map_defs(), context, &mut world);
        if let Err(error) = ended {
            if let CpuError::Limit { .. } = error {
                count(&sites.lost[*number].stopped);
            }
            sites.agent.note(NoteLevel::Warning, error.to_string());
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
