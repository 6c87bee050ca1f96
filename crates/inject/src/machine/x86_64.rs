//! Threads of x86-64.

use std::mem::offset_of;

use warpbpf_wire::late::{CONTROL_TEXT, Control, state};

use super::state::{Frame, Return, Vectors, Waiting, put};

#[path = "x86_64_frame.rs"]
mod frame;

pub(crate) use frame::frame;

/// Registers of the general kind.
pub(crate) type Registers = libc::user_regs_struct;

/// Sets of the other registers, floating point and vectors, the first that there is:
/// `NT_X86_XSTATE`.
pub(crate) const VECTORS: &[i32] = &[0x202];
/// Functions of libc that have the instruction by which system calls are made with a return behind
/// it, and these two.
pub(crate) const GATES: (&[&str], &[u8]) = (
    &["getpid", "getppid", "getuid", "geteuid"],
    &[0x0f, 0x05, 0xc3],
);
/// What is mapped that has [`RESTORER`]: libc itself.
pub(crate) const RESTORER_IN: Option<&str> = None;
/// Registers of the second stack for returns, `NT_X86_SHSTK`: there are such only where it is in
/// use.
pub(crate) const SECOND_STACK: i32 = 0x204;
/// What a signal's handler returns to: `mov rax, SYS_rt_sigreturn; syscall`.
pub(crate) const RESTORER: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Most bytes of a call instruction.
pub(crate) const CALL_BYTES: usize = 7;
/// Whether it must be known what a thread waits for before it is stopped.
pub(crate) const LOOKS_BEFORE: bool = false;

/// Code segment of 64-bit code.
const CS_64: u64 = 0x33;
/// Bytes of `mov eax, NUMBER` in front of a system call.
pub(crate) const BEFORE_BYTES: usize = 7;
/// What the kernel leaves in `rax` of a system call that goes on by itself: `ERESTARTSYS`,
/// `ERESTARTNOINTR`, `ERESTARTNOHAND`, and
/// `ERESTART_RESTARTBLOCK`, of which it remembers how long it is to wait.
const GOES_ON: [i64; 3] = [-512, -513, -514];
const REMEMBERED: i64 = -516;
/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;
/// Bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: u64 = 128;

pub(crate) fn pc(registers: &Registers) -> u64 {
    registers.rip
}

pub(crate) fn stack(registers: &Registers) -> u64 {
    registers.rsp
}

/// Where it returns to, if that is not on its stack.
pub(crate) fn link(_: &Registers) -> Option<u64> {
    None
}

/// An address as a call has left it.
pub(crate) fn address(word: u64) -> u64 {
    word
}

pub(crate) fn is_64(registers: &Registers) -> bool {
    registers.cs == CS_64
}

/// The system call that it was stopped in. Neither the instruction where it stands nor what it did
/// before has to be known.
pub(crate) fn waiting(
    registers: &Registers,
    _: Option<u32>,
    _: &str,
    again: &[i64],
) -> Option<Waiting<Registers>> {
    let number = registers.orig_rax as i64;
    if number < 0 {
        return None;
    }
    let ended = registers.rax as i64 == -i64::from(libc::EINTR) && again.contains(&number);
    Some(Waiting {
        number,
        again: ended.then_some(Registers {
            rip: registers.rip - SYSCALL_BYTES,
            rax: registers.orig_rax,
            orig_rax: u64::MAX,
            ..*registers
        }),
    })
}

/// Whether a set of registers says that a second stack for returns is in use.
pub(crate) fn second_stack(registers: &[u8]) -> bool {
    !registers.is_empty()
}

/// Registers with which a thread goes on as it would from its stop, without what the kernel
/// remembers of its system call. `before` is the code in front of where it stands.
pub(crate) fn home(registers: &Registers, before: &[u8; BEFORE_BYTES]) -> (Registers, Return) {
    let again = |number: u64| Registers {
        rax: number,
        rip: registers.rip - SYSCALL_BYTES,
        orig_rax: u64::MAX,
        ..*registers
    };
    let (number, result) = (registers.orig_rax as i64, registers.rax as i64);
    if number >= 0 && GOES_ON.contains(&result) {
        return (again(registers.orig_rax), Return::Same);
    }
    if number < 0 || result != REMEMBERED {
        let same = Registers {
            orig_rax: u64::MAX,
            ..*registers
        };
        return (same, Return::Same);
    }
    if number != libc::SYS_restart_syscall {
        return (again(registers.orig_rax), Return::Anew);
    }
    // It has been stopped before, and which call it was is only in its code.
    match before {
        [0xb8, a, b, c, d, 0x0f, 0x05] => {
            let number = u32::from_le_bytes([*a, *b, *c, *d]);
            (again(u64::from(number)), Return::Anew)
        }
        _ => (again(registers.orig_rax), Return::Ended),
    }
}

/// The register that leads to what a thread has of its own.
pub(crate) fn thread_pointer(registers: &Registers) -> Option<u64> {
    Some(registers.fs_base)
}

/// It can be moved and put back while it waits for that. The kernel remembers what it takes.
pub(crate) fn can_be_moved(_: &Registers, _: Option<&Waiting<Registers>>) -> bool {
    true
}

/// Makes a system call at `gate`, and goes home by the frame at `frame`, whose first word is where
/// the gate returns to.
pub(crate) fn for_syscall(
    registers: &Registers,
    frame: u64,
    (gate, _): (u64, u64),
    number: i64,
    arguments: [u64; 6],
) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    Registers {
        rip: gate,
        rsp: frame,
        rax: number as u64,
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        r10,
        r8,
        r9,
        ..*registers
    }
}

/// What it answered.
pub(crate) fn answer(registers: &Registers) -> i64 {
    registers.rax as i64
}

/// Calls a function by the code at `stub`, and goes home by the frame at `frame`.
pub(crate) fn for_call(
    registers: &Registers,
    frame: u64,
    stub: u64,
    function: u64,
    arguments: [u64; 4],
) -> Registers {
    let [rdi, rsi, rdx, rcx] = arguments;
    Registers {
        rip: stub,
        rax: function,
        orig_rax: u64::MAX,
        rdi,
        rsi,
        rdx,
        rcx,
        // Behind its first word, where `rt_sigreturn` wants it.
        rsp: frame + 8,
        rbp: 0,
        // No direction, as functions expect it.
        eflags: registers.eflags & !0x400,
        ..*registers
    }
}

/// What the function answered, if the thread is in the system call behind it, at `done`.
pub(crate) fn returned(registers: &Registers, done: u64) -> Option<u64> {
    (registers.rip == done + SYSCALL_BYTES).then_some(registers.rdi)
}

/// These bytes, which stand before an address, may end in a call.
pub(crate) fn ends_in_call(before: &[u8; CALL_BYTES]) -> bool {
    // `call rel32`
    let relative = before[CALL_BYTES - 5] == 0xe8;
    // `call r/m64`: FF /2, with what it takes to say which.
    let indirect =
        (0..CALL_BYTES - 1).any(|at| before[at] == 0xff && (before[at + 1] >> 3) & 7 == 2);
    relative || indirect
}

/// Calls the address in `rax`; see [`DONE`].
pub(crate) const CALL: u64 = 0;
/// A system call behind it that does nothing: where the thread is stopped. What the function
/// answered is in `rdi`.
pub(crate) const DONE: u64 = 10;
/// What the new thread runs; its argument is a [`Control`].
pub(crate) const START: u64 = 32;

/// `[rbx + field]`, where a `Control` lies.
fn field(code: &mut Vec<u8>, instruction: &[u8], offset: usize) {
    code.extend(instruction);
    code.extend((offset as u32).to_le_bytes());
}

/// A short jump to a place that is not known yet; its distance comes by [`land`].
fn jump(code: &mut Vec<u8>, opcode: u8) -> usize {
    code.extend([opcode, 0]);
    code.len()
}

fn land(code: &mut [u8], from: usize) {
    let to = code.len();
    code[from - 1] = (to - from) as u8;
}

const JZ: u8 = 0x74;
const JNZ: u8 = 0x75;
const TEST_RAX: [u8; 3] = [0x48, 0x85, 0xc0];
/// Answers 0, and ends.
const LEAVE: [u8; 4] = [0x31, 0xc0, 0x5b, 0xc3];

/// All of it.
pub(crate) fn code() -> Vec<u8> {
    // call rax; mov rdi, rax; mov eax, getppid; syscall
    let mut code = vec![0xff, 0xd0, 0x48, 0x89, 0xc7, 0xb8];
    code.extend((libc::SYS_getppid as u32).to_le_bytes());
    code.extend([0x0f, 0x05]);
    // The way home, if nobody puts the thread back: mov eax, rt_sigreturn; syscall
    code.extend(RESTORER);
    code.resize(START as usize, 0xcc);
    // endbr64; push rbx; mov rbx, rdi
    code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0x53, 0x48, 0x89, 0xfb]);
    // mov eax, gettid; syscall; mov [thread], eax
    code.push(0xb8);
    code.extend((libc::SYS_gettid as u32).to_le_bytes());
    code.extend([0x0f, 0x05]);
    field(&mut code, &[0x89, 0x83], offset_of!(Control, thread));
    // pthread_detach(pthread_self())
    field(&mut code, &[0xff, 0x93], offset_of!(Control, pthread_self));
    code.extend([0x48, 0x89, 0xc7]);
    field(
        &mut code,
        &[0xff, 0x93],
        offset_of!(Control, pthread_detach),
    );
    // An agent that is there already says where its function is.
    field(&mut code, &[0x48, 0x8b, 0x83], offset_of!(Control, entry));
    code.extend(TEST_RAX);
    let known = jump(&mut code, JNZ);
    // dlopen(path, RTLD_NOW)
    field(&mut code, &[0x48, 0x8d, 0xbb], offset_of!(Control, path));
    code.push(0xbe);
    code.extend((libc::RTLD_NOW as u32).to_le_bytes());
    field(&mut code, &[0xff, 0x93], offset_of!(Control, dlopen));
    code.extend(TEST_RAX);
    let no_library = jump(&mut code, JZ);
    // dlsym(library, name)
    code.extend([0x48, 0x89, 0xc7]);
    field(&mut code, &[0x48, 0x8d, 0xb3], offset_of!(Control, name));
    field(&mut code, &[0xff, 0x93], offset_of!(Control, dlsym));
    code.extend(TEST_RAX);
    let no_function = jump(&mut code, JZ);
    land(&mut code, known);
    // mov rdi, rbx; call rax
    code.extend([0x48, 0x89, 0xdf, 0xff, 0xd0]);
    code.extend(LEAVE);
    land(&mut code, no_library);
    land(&mut code, no_function);
    // What dlerror() says is copied with its NUL, as far as there is room.
    field(&mut code, &[0xff, 0x93], offset_of!(Control, dlerror));
    code.extend(TEST_RAX);
    let silent = jump(&mut code, JZ);
    field(&mut code, &[0x48, 0x8d, 0xbb], offset_of!(Control, text));
    code.extend([0x48, 0x89, 0xc6, 0xb9]);
    code.extend((CONTROL_TEXT as u32 - 1).to_le_bytes());
    // lodsb; stosb; test al, al; loopnz
    code.extend([0xac, 0xaa, 0x84, 0xc0, 0xe0, 0xfa]);
    land(&mut code, silent);
    field(&mut code, &[0xc7, 0x83], offset_of!(Control, state));
    code.extend(state::NOT_LOADED.to_le_bytes());
    code.extend(LEAVE);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_short_and_the_stop_is_where_it_is_said() {
        let code = code();
        assert!(code.len() < 256);
        assert_eq!(code[DONE as usize..][..2], [0x0f, 0x05]);
        assert_eq!(code[DONE as usize + 2..][..RESTORER.len()], *RESTORER);
        assert_eq!(code[START as usize..][..4], [0xf3, 0x0f, 0x1e, 0xfa]);
    }

    #[test]
    fn a_thread_goes_home_to_the_call_that_it_was_stopped_in() {
        // SAFETY: numbers.
        let mut stopped: Registers = unsafe { std::mem::zeroed() };
        (stopped.rip, stopped.orig_rax) = (0x1002, 7);
        let mut by = |result: i64, number: i64, before: &[u8; 7]| {
            (stopped.rax, stopped.orig_rax) = (result as u64, number as u64);
            let (home, how) = home(&stopped, before);
            assert_eq!(home.orig_rax, u64::MAX);
            (home.rip, home.rax as i64, how)
        };
        let code = [0xb8, 230, 0, 0, 0, 0x0f, 0x05];
        for result in GOES_ON {
            assert_eq!(by(result, 7, &code), (0x1000, 7, Return::Same));
        }
        assert_eq!(by(REMEMBERED, 35, &code), (0x1000, 35, Return::Anew));
        // Stopped for the second time.
        let restart = libc::SYS_restart_syscall;
        assert_eq!(by(REMEMBERED, restart, &code), (0x1000, 230, Return::Anew));
        let other = [0x90; 7];
        assert_eq!(
            by(REMEMBERED, restart, &other),
            (0x1000, restart, Return::Ended)
        );
        // It has its result, or is in no call.
        assert_eq!(by(12, 7, &code), (0x1002, 12, Return::Same));
        assert_eq!(by(-512, -1, &code), (0x1002, -512, Return::Same));
    }

    #[test]
    fn returns_lie_behind_calls() {
        let code = |bytes: &[u8]| {
            let mut all = [0x90u8; CALL_BYTES];
            all[CALL_BYTES - bytes.len()..].copy_from_slice(bytes);
            ends_in_call(&all)
        };
        assert!(code(&[0xe8, 1, 2, 3, 4]));
        assert!(code(&[0xff, 0xd0]), "call rax");
        assert!(code(&[0x41, 0xff, 0xd4]), "call r12");
        assert!(code(&[0xff, 0x53, 0x30]), "call [rbx+0x30]");
        assert!(code(&[0xff, 0x15, 1, 2, 3, 4]), "call [rip]");
        assert!(!code(&[0x48, 0x89, 0xd8]), "mov");
        assert!(!code(&[0xff, 0xe0]), "jmp rax");
    }
}
