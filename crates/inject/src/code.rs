//! The few instructions that are put into the process: one call on a borrowed thread, and what the new thread runs.

use std::mem::offset_of;

use warpbpf_wire::late::{CONTROL_TEXT, Control, state};

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
}
