//! Threads of x86-64.

use std::mem::offset_of;

use warpbpf_wire::late::{CONTROL_TEXT, Control, state};

use super::Waiting;

/// Registers of the general kind.
pub(crate) type Registers = libc::user_regs_struct;

/// Sets of the other registers, floating point and vectors, the first that there is: `NT_X86_XSTATE`.
pub(crate) const VECTORS: &[i32] = &[0x202];
/// The function of libc that has the instruction by which system calls are made, and that instruction.
pub(crate) const GATE: (&str, &[u8]) = ("syscall", &[0x0f, 0x05]);
/// What a signal's handler returns to: `mov rax, SYS_rt_sigreturn; syscall`.
pub(crate) const RESTORER: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Most bytes of a call instruction.
pub(crate) const CALL_BYTES: usize = 7;
/// Whether it must be known what a thread waits for before it is stopped.
pub(crate) const LOOKS_BEFORE: bool = false;

/// Code segment of 64-bit code.
const CS_64: u64 = 0x33;
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

/// The system call that it was stopped in. Neither the instruction where it stands nor what it did before has to be known.
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

/// It can be moved and put back while it waits for that. The kernel remembers what it takes.
pub(crate) fn can_be_moved(_: &Registers, _: Option<&Waiting>) -> bool {
    true
}

/// Makes a system call.
pub(crate) fn for_syscall(
    registers: &Registers,
    gate: u64,
    number: i64,
    arguments: [u64; 6],
) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    Registers {
        rip: gate,
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

/// Calls a function by the code at `stub`.
pub(crate) fn for_call(
    registers: &Registers,
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
        rsp: (registers.rsp - RED_ZONE) & !15,
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
/// A system call behind it that does nothing: where the thread is stopped. What the function answered is in `rdi`.
pub(crate) const DONE: u64 = 10;
/// What the new thread runs; its argument is a [`Control`].
pub(crate) const START: u64 = 16;

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
    // call rax; mov rdi, rax; mov eax, getppid; syscall; ud2
    let mut code = vec![0xff, 0xd0, 0x48, 0x89, 0xc7, 0xb8];
    code.extend((libc::SYS_getppid as u32).to_le_bytes());
    code.extend([0x0f, 0x05, 0x0f, 0x0b]);
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
        assert_eq!(code[START as usize..][..4], [0xf3, 0x0f, 0x1e, 0xfa]);
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
