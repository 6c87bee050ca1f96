//! The way home of a thread of AArch64: a frame as Linux leaves one for a signal's handler. The
//! layouts are those of `arch/arm64/include/uapi/asm/sigcontext.h` and `ucontext.h`.

use super::{Registers, VECTORS};
use crate::machine::state::{Frame, Vectors, put};

/// `struct rt_sigframe`: `siginfo`, then `ucontext`.
const UCONTEXT: usize = 128;
const STACK_FLAGS: usize = UCONTEXT + 24;
const MASK: usize = UCONTEXT + 40;
const SIGCONTEXT: usize = UCONTEXT + 176;
const REGISTERS: usize = SIGCONTEXT + 8;
const RECORDS: usize = SIGCONTEXT + 288;
const FRAME_BYTES: usize = RECORDS + 4096;
/// `struct fpsimd_context`.
const FPSIMD_MAGIC: u32 = 0x4650_8001;
const FPSIMD_BYTES: u32 = 528;
/// `struct user_fpsimd_state`: 32 registers, status, control.
const STATUS: usize = 512;
const CONTROL: usize = 516;
/// `struct user_sve_header`, and its flag that says that registers are those of SVE.
const SVE_HEADER: usize = 16;
const SVE_FLAGS: usize = 12;
const SVE: u8 = 1;
/// No mode that `sigaltstack` knows: the thread keeps the stack that it has for signals.
const KEEPS_STACK: u32 = 0x4000_0000;

/// The frame of a thread that is to go on with these registers, below what its stack holds. `None`
/// of one that uses SVE: such a thread keeps nothing of it in a system call, where it can be had.
pub(crate) fn frame(home: &Registers, mask: u64, vectors: &Vectors, _: u64) -> Option<Frame> {
    let plain = match vectors.kind == VECTORS[0] {
        true if vectors.bytes.get(SVE_FLAGS)? & SVE != 0 => return None,
        true => vectors.bytes.get(SVE_HEADER..)?,
        false => vectors.bytes.as_slice(),
    };
    let at = home.sp.checked_sub(FRAME_BYTES as u64)? & !15;
    let mut bytes = vec![0; FRAME_BYTES];
    put(&mut bytes, STACK_FLAGS, &KEEPS_STACK.to_le_bytes());
    put(&mut bytes, MASK, &mask.to_le_bytes());
    let registers = home.x.iter().chain([&home.sp, &home.pc, &home.pstate]);
    for (n, register) in registers.enumerate() {
        put(&mut bytes, REGISTERS + 8 * n, &register.to_le_bytes());
    }
    put(&mut bytes, RECORDS, &FPSIMD_MAGIC.to_le_bytes());
    put(&mut bytes, RECORDS + 4, &FPSIMD_BYTES.to_le_bytes());
    put(&mut bytes, RECORDS + 8, plain.get(STATUS..STATUS + 4)?);
    put(&mut bytes, RECORDS + 12, plain.get(CONTROL..CONTROL + 4)?);
    put(&mut bytes, RECORDS + 16, plain.get(..STATUS)?);
    // What is zero behind it ends the records.
    Some(Frame { at, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_all() {
        let mut home = Registers {
            x: [0; 31],
            sp: 0x7fff_1000_0018,
            pc: 0x40_0000,
            pstate: 0x6000_0000,
        };
        (home.x[0], home.x[30]) = (5, 30);
        let mut plain = vec![0; 528];
        (plain[0], plain[STATUS], plain[CONTROL]) = (1, 2, 3);
        let vectors = |kind, bytes| Vectors { kind, bytes };
        let made = frame(&home, 0x1234, &vectors(2, plain.clone()), 0).unwrap();
        assert_eq!(made.at % 16, 0);
        assert!(made.at + made.bytes.len() as u64 <= home.sp);
        let word = |at: usize| u64::from_le_bytes(made.bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(168), 0x1234);
        assert_eq!((word(312), word(552)), (5, 30));
        assert_eq!(
            (word(560), word(568), word(576)),
            (home.sp, home.pc, home.pstate)
        );
        assert_eq!(word(592), 0x0210_4650_8001);
        assert_eq!(word(600), 0x3_0000_0002);
        assert_eq!(made.bytes[608], 1);
        // The same behind the header of SVE; none where its registers are in use.
        let mut sve = vec![0; SVE_HEADER];
        sve.extend(&plain);
        let same = frame(&home, 0x1234, &vectors(VECTORS[0], sve.clone()), 0).unwrap();
        assert_eq!(same.bytes, made.bytes);
        sve[SVE_FLAGS] = SVE;
        assert!(frame(&home, 0, &vectors(VECTORS[0], sve), 0).is_none());
    }
}
