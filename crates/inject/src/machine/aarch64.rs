//! Threads of AArch64. Not run on such hardware yet: what is told here of its kernel is from how
//! Linux is written.
//!
//! A thread that is stopped in a system call stands in front of it with its arguments again, unless
//! the call was ended, so that moving it and putting it back makes the call once more.

use std::mem::offset_of;

use warpbpf_wire::late::{CONTROL_TEXT, Control, state};

use super::state::{Return, Waiting};

#[path = "aarch64_frame.rs"]
mod frame;

#[cfg(target_arch = "aarch64")]
pub(crate) use frame::frame;

/// Registers of the general kind: `struct user_pt_regs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    pstate: u64,
}

/// Sets of the other registers, the first that there is: `NT_ARM_SVE`, which holds the
/// floating-point registers too, and `NT_PRFPREG`.
pub(crate) const VECTORS: &[i32] = &[0x405, 2];
/// Functions of libc that have the instruction by which system calls are made with a return behind
/// it, and these two. In `syscall` a thread may stand already, and the kernel would take ours for
/// the one that it was stopped in; in these nobody waits.
pub(crate) const GATES: (&[&str], &[u8]) = (
    &["getpid", "getppid", "getuid", "geteuid"],
    &[0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6],
);
/// What is mapped that has [`RESTORER`].
pub(crate) const RESTORER_IN: Option<&str> = Some("[vdso]");
/// Registers of the second stack for returns: `NT_ARM_GCS`.
pub(crate) const SECOND_STACK: i32 = 0x410;
/// Nothing in front of where a thread stands has to be known.
pub(crate) const BEFORE_BYTES: usize = 0;
/// What a signal's handler returns to: `mov x8, SYS_rt_sigreturn; svc #0`.
pub(crate) const RESTORER: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
/// Most bytes of a call instruction.
pub(crate) const CALL_BYTES: usize = 4;
/// Whether it must be known what a thread waits for before it is stopped: a call that was ended has
/// lost its first argument.
pub(crate) const LOOKS_BEFORE: bool = true;

/// `svc #0`
const SVC: u32 = 0xd400_0001;
const WORD: u64 = 4;
/// The register with the number of a system call.
const NUMBER: usize = 8;
/// The link register.
const LINK: usize = 30;
/// Bits of an address in a program's memory; above them a signature may stand.
const ADDRESS: u64 = (1 << 48) - 1;
/// Bits of `pstate`: 32-bit code, and that the instruction was reached by an indirect branch.
const IS_32: u64 = 0x10;
const BRANCHED: u64 = 0xc00;
/// Numbers of system calls, the same on all newer processors.
const NANOSLEEP: i64 = 101;
const CLOCK_NANOSLEEP: i64 = 115;
const FUTEX: i64 = 98;
const SIGRETURN: u32 = 139;
const GETPPID: u32 = 173;
const GETTID: u32 = 178;

pub(crate) fn pc(registers: &Registers) -> u64 {
    registers.pc
}

pub(crate) fn stack(registers: &Registers) -> u64 {
    registers.sp
}

/// Where it returns to, if that is not on its stack.
pub(crate) fn link(registers: &Registers) -> Option<u64> {
    Some(address(registers.x[LINK]))
}

/// An address as a call has left it: functions may have signed it.
pub(crate) fn address(word: u64) -> u64 {
    word & ADDRESS
}

pub(crate) fn is_64(registers: &Registers) -> bool {
    registers.pstate & IS_32 == 0
}

/// The system call that it was stopped in, or is about to make: `code` is the instruction where it
/// stands, and `before` what `/proc/PID/task/TID/syscall` said before it was stopped.
pub(crate) fn waiting(
    registers: &Registers,
    code: Option<u32>,
    before: &str,
    again: &[i64],
) -> Option<Waiting<Registers>> {
    if code == Some(SVC) {
        return Some(Waiting {
            number: registers.x[NUMBER] as i64,
            again: None,
        });
    }
    // Number, six arguments, stack, place: only of a thread that waits.
    let mut words = before.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let words: Vec<u64> = words.map(hexadecimal).collect::<Option<_>>()?;
    let [first, others @ .., sp, pc] = words.as_slice() else {
        return None;
    };
    let same = (registers.x[NUMBER] as i64, registers.sp, registers.pc) == (number, *sp, *pc)
        && registers.x[1..6] == *others;
    let ended = registers.x[0] as i64 == -i64::from(libc::EINTR);
    if !same || !ended {
        return None;
    }
    let mut back = *registers;
    back.x[0] = *first;
    back.pc -= WORD;
    Some(Waiting {
        number,
        again: again.contains(&number).then_some(back),
    })
}

/// Whether a set of registers says that a second stack for returns is in use: the first word has a
/// bit for that.
pub(crate) fn second_stack(registers: &[u8]) -> bool {
    registers.first().is_some_and(|features| features & 1 != 0)
}

/// Registers with which a thread goes on as it would from its stop. The kernel has put it in front
/// of its system call.
pub(crate) fn home(registers: &Registers, _: &[u8; BEFORE_BYTES]) -> (Registers, Return) {
    (*registers, Return::Same)
}

/// The register that leads to what a thread has of its own is not among these.
pub(crate) fn thread_pointer(_: &Registers) -> Option<u64> {
    None
}

/// It can be moved and put back while it waits for that. Of a call that waits for so long from now,
/// the kernel would forget how long it has waited.
pub(crate) fn can_be_moved(registers: &Registers, waiting: Option<&Waiting<Registers>>) -> bool {
    let x = &registers.x;
    match waiting.map(|waiting| waiting.number) {
        Some(NANOSLEEP) => false,
        // But up to a moment.
        Some(CLOCK_NANOSLEEP) => x[1] & 1 != 0,
        // `FUTEX_WAIT` with a limit.
        Some(FUTEX) => x[1] & 0x7f != 0 || x[3] == 0,
        _ => true,
    }
}

/// Makes a system call at `gate`, and goes home by the frame at `frame`: the gate returns to the
/// restorer.
pub(crate) fn for_syscall(
    registers: &Registers,
    frame: u64,
    (gate, restorer): (u64, u64),
    number: i64,
    arguments: [u64; 6],
) -> Registers {
    let mut new = *registers;
    new.x[..6].copy_from_slice(&arguments);
    new.x[NUMBER] = number as u64;
    new.x[LINK] = restorer;
    new.sp = frame;
    new.pc = gate;
    new.pstate &= !BRANCHED;
    new
}

/// What it answered.
pub(crate) fn answer(registers: &Registers) -> i64 {
    registers.x[0] as i64
}

/// Calls a function by the code at `stub`, and goes home by the frame at `frame`.
pub(crate) fn for_call(
    registers: &Registers,
    frame: u64,
    stub: u64,
    function: u64,
    arguments: [u64; 4],
) -> Registers {
    let mut new = *registers;
    new.x[..4].copy_from_slice(&arguments);
    new.x[9] = function;
    // No frame is further out.
    new.x[29] = 0;
    new.x[LINK] = 0;
    new.sp = frame;
    new.pc = stub;
    new.pstate &= !BRANCHED;
    new
}

/// What the function answered, if the thread is in the system call behind it, at `done`.
pub(crate) fn returned(registers: &Registers, done: u64) -> Option<u64> {
    (registers.pc == done + WORD).then_some(registers.x[1])
}

/// These bytes, which stand before an address, are a call: `bl`, `blr`, or one of those that check
/// a signature.
pub(crate) fn ends_in_call(before: &[u8; CALL_BYTES]) -> bool {
    let word = u32::from_le_bytes(*before);
    word & 0xfc00_0000 == 0x9400_0000 || word & 0xfee0_0000 == 0xd620_0000
}

/// Calls the address in `x9`; see [`DONE`].
pub(crate) const CALL: u64 = 0;
/// A system call behind it that does nothing: where the thread is stopped. What the function
/// answered is in `x1`.
pub(crate) const DONE: u64 = 12;
/// What the new thread runs; its argument is a [`Control`].
pub(crate) const START: u64 = 32;

/// `x19`, where the `Control` lies.
const BASE: u32 = 19;
/// `bti c`
const BTI_C: u32 = 0xd503_245f;
/// `ldr x9, [x19, #offset]; blr x9`
fn call_field(code: &mut Vec<u32>, offset: usize) {
    code.extend([load(9, offset), 0xd63f_0120]);
}

/// `ldr`, of 64 bits of the `Control`.
fn load(register: u32, offset: usize) -> u32 {
    0xf940_0000 | (offset as u32 / 8) << 10 | BASE << 5 | register
}

/// `add`: the address of something in the `Control`.
fn place(register: u32, offset: usize) -> u32 {
    0x9100_0000 | (offset as u32) << 10 | BASE << 5 | register
}

/// `movz`, of a number of 16 bits.
fn number(register: u32, value: u32) -> u32 {
    0xd280_0000 | (value & 0xffff) << 5 | register
}

/// `cbz` or `cbnz` of 64 bits, to a place that is not known yet; it comes by [`land`].
fn branch(code: &mut Vec<u32>, opcode: u32, register: u32) -> usize {
    code.push(opcode | register);
    code.len() - 1
}

fn land(code: &mut [u32], from: usize) {
    code[from] |= ((code.len() - from) as u32) << 5;
}

const CBZ: u32 = 0xb400_0000;
const CBNZ: u32 = 0xb500_0000;
/// Answers 0, and ends: `mov x0, #0; ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret`
const LEAVE: [u32; 4] = [0xd280_0000, 0xf940_0bf3, 0xa8c2_7bfd, 0xd65f_03c0];

/// All of it.
pub(crate) fn code() -> Vec<u8> {
    // blr x9; mov x1, x0; mov x8, getppid; svc #0. Then the way home, if nobody puts the thread
    // back: mov x8, rt_sigreturn; svc #0
    let mut code = vec![
        0xd63f_0120,
        0xaa00_03e1,
        number(8, GETPPID),
        SVC,
        number(8, SIGRETURN),
        SVC,
    ];
    code.resize(START as usize / 4, 0xd420_0000);
    // bti c; stp x29, x30, [sp, #-32]!; mov x29, sp; str x19, [sp, #16]; mov x19, x0
    code.extend([BTI_C, 0xa9be_7bfd, 0x9100_03fd, 0xf900_0bf3, 0xaa00_03f3]);
    // mov x8, gettid; svc #0; str w0, [thread]
    code.extend([number(8, GETTID), SVC]);
    code.push(0xb900_0000 | (offset_of!(Control, thread) as u32 / 4) << 10 | BASE << 5);
    // pthread_detach(pthread_self())
    call_field(&mut code, offset_of!(Control, pthread_self));
    call_field(&mut code, offset_of!(Control, pthread_detach));
    // An agent that is there already says where its function is.
    code.push(load(9, offset_of!(Control, entry)));
    let known = branch(&mut code, CBNZ, 9);
    // dlopen(path, RTLD_NOW)
    code.extend([
        place(0, offset_of!(Control, path)),
        number(1, libc::RTLD_NOW as u32),
    ]);
    call_field(&mut code, offset_of!(Control, dlopen));
    let no_library = branch(&mut code, CBZ, 0);
    // dlsym(library, name)
    code.push(place(1, offset_of!(Control, name)));
    call_field(&mut code, offset_of!(Control, dlsym));
    let no_function = branch(&mut code, CBZ, 0);
    // mov x9, x0
    code.push(0xaa00_03e9);
    land(&mut code, known);
    // mov x0, x19; blr x9
    code.extend([0xaa13_03e0, 0xd63f_0120]);
    code.extend(LEAVE);
    land(&mut code, no_library);
    land(&mut code, no_function);
    // What dlerror() says is copied with its NUL, as far as there is room.
    call_field(&mut code, offset_of!(Control, dlerror));
    let silent = branch(&mut code, CBZ, 0);
    code.push(place(1, offset_of!(Control, text)));
    code.push(number(2, CONTROL_TEXT as u32 - 1));
    // ldrb w3, [x0], #1; strb w3, [x1], #1
    code.extend([0x3840_1403, 0x3800_1423]);
    let ended = branch(&mut code, CBZ, 3);
    // subs x2, x2, #1; b.ne to the ldrb
    code.extend([0xf100_0442, 0x54ff_ff81]);
    land(&mut code, silent);
    land(&mut code, ended);
    // stlr w3, [x4]: whoever reads the state finds the text.
    code.push(place(4, offset_of!(Control, state)));
    code.push(number(3, state::NOT_LOADED));
    code.push(0x889f_fc83);
    code.extend(LEAVE);
    code.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const _: () = assert!(size_of::<Control>() < 4096);

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Registers = Registers {
        x: [0; 31],
        sp: 0,
        pc: 0,
        pstate: 0,
    };

    #[test]
    fn returns_lie_behind_calls() {
        let call = |word: u32| ends_in_call(&word.to_le_bytes());
        assert!(call(0x9400_0004), "bl");
        assert!(call(0x97ff_ffff), "bl back");
        assert!(call(0xd63f_0100), "blr x8");
        assert!(call(0xd63f_091f), "blraaz x8");
        assert!(call(0xd73f_0901), "blraa x8, x1");
        assert!(!call(0x1400_0004), "b");
        assert!(!call(0xd61f_0100), "br x8");
        assert!(!call(0xd65f_03c0), "ret");
        assert!(!call(0xaa01_03e0), "mov");
    }

    #[test]
    fn a_thread_in_front_of_a_system_call_waits_for_it() {
        let mut registers = NOWHERE;
        registers.x[NUMBER] = 63;
        let waits = waiting(&registers, Some(SVC), "running", &[63]).unwrap();
        assert_eq!(waits.number, 63);
        assert_eq!(waits.again, None, "the kernel has seen to that");
        assert!(waiting(&registers, Some(0xd503_201f), "running", &[63]).is_none());
    }

    #[test]
    fn a_call_that_was_ended_is_made_again() {
        let before = "22 0x5 0x7fff0010 0x20 0xffffffffffffffff 0x0 0x8 0x7fff0000 0x7f001004\n";
        let mut registers = NOWHERE;
        registers.x[..6].copy_from_slice(&[
            -i64::from(libc::EINTR) as u64,
            0x7fff_0010,
            0x20,
            u64::MAX,
            0,
            8,
        ]);
        registers.x[NUMBER] = 22;
        registers.sp = 0x7fff_0000;
        registers.pc = 0x7f00_1004;
        let waits = waiting(&registers, None, before, &[22]).unwrap();
        assert_eq!(waits.number, 22);
        let again = waits.again.unwrap();
        assert_eq!((again.x[0], again.pc), (5, 0x7f00_1000));
        assert_eq!(again.x[1..], registers.x[1..]);
        // One that cannot be begun again, another place, another argument, no end.
        assert_eq!(waiting(&registers, None, before, &[]).unwrap().again, None);
        let other = |change: fn(&mut Registers)| {
            let mut registers = registers;
            change(&mut registers);
            waiting(&registers, None, before, &[22]).is_none()
        };
        assert!(other(|r| r.pc += 4));
        assert!(other(|r| r.x[1] += 1));
        assert!(other(|r| r.x[0] = 1));
        assert!(waiting(&registers, None, "running\n", &[22]).is_none());
        assert!(waiting(&registers, None, "-1 0x7fff0000 0x7f001004\n", &[22]).is_none());
    }

    #[test]
    fn who_waits_for_so_long_from_now_is_left_where_it_is() {
        let movable = |number, x1, x3| {
            let mut registers = NOWHERE;
            (registers.x[1], registers.x[3]) = (x1, x3);
            let again = None;
            can_be_moved(&registers, Some(&Waiting { number, again }))
        };
        assert!(!movable(NANOSLEEP, 0, 0));
        assert!(!movable(CLOCK_NANOSLEEP, 0, 0));
        assert!(movable(CLOCK_NANOSLEEP, 1, 0), "up to a moment");
        assert!(!movable(FUTEX, 0x80, 1), "FUTEX_WAIT_PRIVATE with a limit");
        assert!(movable(FUTEX, 0x80, 0), "without one");
        assert!(movable(FUTEX, 0x89, 1), "FUTEX_WAIT_BITSET, up to a moment");
        assert!(can_be_moved(&NOWHERE, None));
    }

    #[test]
    fn a_thread_is_moved_with_what_a_call_needs() {
        let mut registers = NOWHERE;
        registers.sp = 0x7fff_0008;
        registers.pstate = 0x6000_0c00;
        registers.x[LINK] = 0x00ab_7f00_1234_5678;
        assert_eq!(
            link(&registers),
            Some(0x7f00_1234_5678),
            "without its signature"
        );
        let call = for_call(&registers, 0x7ffe_0000, 0x1000, 0x2000, [1, 2, 3, 4]);
        assert_eq!(call.x[..4], [1, 2, 3, 4]);
        assert_eq!((call.x[9], call.x[29], call.x[30]), (0x2000, 0, 0));
        assert_eq!((stack(&call), pc(&call)), (0x7ffe_0000, 0x1000));
        assert_eq!(call.pstate, 0x6000_0000, "as if it had come by no branch");
        let gate = (0x3000, 0x4000);
        let syscall = for_syscall(&registers, 0x7ffe_0000, gate, 222, [1, 2, 3, 4, 5, 6]);
        assert_eq!(syscall.x[..6], [1, 2, 3, 4, 5, 6]);
        assert_eq!((syscall.x[8], syscall.pc), (222, 0x3000));
        assert_eq!((syscall.sp, syscall.x[LINK]), (0x7ffe_0000, 0x4000));
        assert_eq!(home(&registers, &[]).0, registers);
        assert!(second_stack(&[1, 0]) && !second_stack(&[2, 0]) && !second_stack(&[]));
        let mut done = NOWHERE;
        (done.x[0], done.x[1], done.pc) = (9, 7, 0x1010);
        assert_eq!(returned(&done, 0x1000 + DONE), Some(7));
        assert_eq!(returned(&done, 0x1000), None);
        assert_eq!(answer(&done), 9);
        assert!(is_64(&registers));
        registers.pstate |= IS_32;
        assert!(!is_64(&registers));
    }

    #[test]
    fn the_code_is_what_an_assembler_makes() {
        let code = code();
        assert_eq!(code[CALL as usize..][..4], [0x20, 0x01, 0x3f, 0xd6]);
        assert_eq!(code[DONE as usize..][..4], SVC.to_le_bytes());
        assert_eq!(code[START as usize..][..4], BTI_C.to_le_bytes());
        let (words, rest) = code.as_chunks();
        assert!(rest.is_empty());
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(words, ASSEMBLED);
    }

    #[test]
    fn what_is_looked_for_is_what_linux_has() {
        // svc #0; ret
        let gate = [SVC, 0xd65f_03c0].map(u32::to_le_bytes);
        assert_eq!((GATES.0[0], GATES.1), ("getpid", gate.as_flattened()));
        assert_eq!((RESTORER_IN, SECOND_STACK), (Some("[vdso]"), 0x410));
        assert_eq!(thread_pointer(&NOWHERE), None);
        // mov x8, #139; svc #0
        let restorer = [number(8, 139), SVC].map(u32::to_le_bytes);
        assert_eq!(RESTORER, restorer.as_flattened());
        assert_eq!(VECTORS, [0x405, 2]);
        const { assert!(LOOKS_BEFORE) };
    }

    /// By LLVM 14, from the text in the comments of [`code`].
    const ASSEMBLED: &[u32] = &[
        0xd63f_0120,
        0xaa00_03e1,
        0xd280_15a8,
        0xd400_0001,
        0xd280_1168,
        0xd400_0001,
        0xd420_0000,
        0xd420_0000,
        0xd503_245f,
        0xa9be_7bfd,
        0x9100_03fd,
        0xf900_0bf3,
        0xaa00_03f3,
        0xd280_1648,
        0xd400_0001,
        0xb900_2260,
        0xf940_2a69,
        0xd63f_0120,
        0xf940_2e69,
        0xd63f_0120,
        0xf940_1a69,
        0xb500_0169,
        0x9102_0260,
        0xd280_0041,
        0xf940_1e69,
        0xd63f_0120,
        0xb400_0180,
        0x9101_8261,
        0xf940_2269,
        0xd63f_0120,
        0xb400_0100,
        0xaa00_03e9,
        0xaa13_03e0,
        0xd63f_0120,
        0xd280_0000,
        0xf940_0bf3,
        0xa8c2_7bfd,
        0xd65f_03c0,
        0xf940_2669,
        0xd63f_0120,
        0xb400_0100,
        0x9112_0261,
        0xd280_7fe2,
        0x3840_1403,
        0x3800_1423,
        0xb400_0063,
        0xf100_0442,
        0x54ff_ff81,
        0x9100_2264,
        0xd280_0023,
        0x889f_fc83,
        0xd280_0000,
        0xf940_0bf3,
        0xa8c2_7bfd,
        0xd65f_03c0,
    ];
}
