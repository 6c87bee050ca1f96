//! The way home of a thread of x86-64: a frame as Linux leaves one for a signal's handler, from
//! which `rt_sigreturn` gives back every register and the signal mask. The layouts are those of
//! `arch/x86/include/uapi/asm/sigcontext.h` and `ucontext.h`.

use super::{Frame, RED_ZONE, Registers, Vectors, put};

/// `struct rt_sigframe`: the return address, `ucontext`, `siginfo`.
const PRETCODE: usize = 0;
const UCONTEXT: usize = 8;
const FRAME_BYTES: usize = UCONTEXT + 304 + 128;
/// Fields of `ucontext`.
const FLAGS: usize = UCONTEXT;
const STACK_FLAGS: usize = UCONTEXT + 24;
const SIGCONTEXT: usize = UCONTEXT + 40;
const MASK: usize = UCONTEXT + 296;
/// Fields of `sigcontext_64` behind the 18 registers.
const SELECTORS: usize = SIGCONTEXT + 144;
const FPSTATE: usize = SIGCONTEXT + 184;
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
const ALL_FLAGS: u64 = 7;
/// No mode that `sigaltstack` knows, so that it refuses, which `rt_sigreturn` does not mind: the
/// thread keeps the stack that it has for signals, which cannot be asked for from outside.
const KEEPS_STACK: u32 = 0x4000_0000;

/// The area that `XSAVE` writes: the old part, and a header that says which components are there.
const HEADER: usize = 512;
const LEAST: usize = HEADER + 64;
const ALIGNED: u64 = 64;
/// `struct _fpx_sw_bytes` in the old part, by which the kernel takes the area for one of `XSAVE`.
const SOFTWARE: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// x87 and SSE, which are in the old part.
const OLD: u64 = 3;
/// The component of protection keys, which the kernel keeps by itself.
const PKRU: u32 = 9;

/// Where a component of the area lies, as this processor says.
fn component(number: u32) -> (usize, usize) {
    let found = std::arch::x86_64::__cpuid_count(0xd, number);
    (found.ebx as usize, found.eax as usize)
}

/// The area as `rt_sigreturn` takes it: no longer than the components that are in use. `None` if it
/// is not one.
fn area(vectors: &[u8], component: impl Fn(u32) -> (usize, usize)) -> Option<Vec<u8>> {
    let header: [u8; 8] = vectors.get(HEADER..HEADER + 8)?.try_into().ok()?;
    let mut used = u64::from_le_bytes(header);
    let (keys, length) = component(PKRU);
    // Whether the processor took them for used when it wrote them is not what counts.
    if length != 0 && vectors.get(keys..keys + 4).is_some_and(|key| key != [0; 4]) {
        used |= 1 << PKRU;
    }
    let extended = (2..u64::BITS).filter(|number| used & (1 << number) != 0);
    let ends = extended.map(|number| {
        let (at, length) = component(number);
        at + length
    });
    let bytes = ends.max().unwrap_or(0).max(LEAST);
    let mut area = vectors.get(..bytes)?.to_vec();
    put(&mut area, HEADER, &used.to_le_bytes());
    put(&mut area, SOFTWARE, &MAGIC1.to_le_bytes());
    put(&mut area, SOFTWARE + 4, &(bytes as u32 + 4).to_le_bytes());
    put(&mut area, SOFTWARE + 8, &(used | OLD).to_le_bytes());
    put(&mut area, SOFTWARE + 16, &(bytes as u32).to_le_bytes());
    area.extend(MAGIC2.to_le_bytes());
    Some(area)
}

/// The frame of a thread that is to go on with these registers, below what its stack holds.
/// `restorer` makes the system call.
pub(crate) fn frame(
    home: &Registers,
    mask: u64,
    vectors: &Vectors,
    restorer: u64,
) -> Option<Frame> {
    let area = area(&vectors.bytes, component)?;
    let stack = home.rsp.checked_sub(RED_ZONE + area.len() as u64)?;
    let area_at = stack & !(ALIGNED - 1);
    // As at the entry of a function.
    let at = (area_at.checked_sub(FRAME_BYTES as u64)? & !15).checked_sub(8)?;
    let mut bytes = vec![0; (area_at - at) as usize];
    put(&mut bytes, PRETCODE, &restorer.to_le_bytes());
    put(&mut bytes, FLAGS, &ALL_FLAGS.to_le_bytes());
    put(&mut bytes, STACK_FLAGS, &KEEPS_STACK.to_le_bytes());
    let registers = [
        home.r8,
        home.r9,
        home.r10,
        home.r11,
        home.r12,
        home.r13,
        home.r14,
        home.r15,
        home.rdi,
        home.rsi,
        home.rbp,
        home.rbx,
        home.rdx,
        home.rax,
        home.rcx,
        home.rsp,
        home.rip,
        home.eflags,
    ];
    for (n, register) in registers.iter().enumerate() {
        put(&mut bytes, SIGCONTEXT + 8 * n, &register.to_le_bytes());
    }
    let selectors = [home.cs, home.gs, home.fs, home.ss];
    for (n, selector) in selectors.iter().enumerate() {
        put(
            &mut bytes,
            SELECTORS + 2 * n,
            &(*selector as u16).to_le_bytes(),
        );
    }
    put(&mut bytes, FPSTATE, &area_at.to_le_bytes());
    put(&mut bytes, MASK, &mask.to_le_bytes());
    bytes.extend(area);
    Some(Frame { at, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a processor with AVX at 576, 256 bytes, and keys at 2688, 8 bytes.
    fn of_test(number: u32) -> (usize, usize) {
        match number {
            2 => (576, 256),
            PKRU => (2688, 8),
            _ => (0, 0),
        }
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn half(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn an_area_is_as_long_as_what_is_in_use() {
        let mut vectors = vec![0; 2696];
        let lengths = |vectors: &[u8]| {
            let area = area(vectors, of_test).unwrap();
            let bytes = half(&area, SOFTWARE + 16) as usize;
            assert_eq!(area.len(), bytes + 4);
            assert_eq!(half(&area, SOFTWARE), MAGIC1);
            assert_eq!(half(&area, SOFTWARE + 4) as usize, area.len());
            assert_eq!(half(&area, bytes), MAGIC2);
            assert_eq!(word(&area, SOFTWARE + 8), word(&area, HEADER) | OLD);
            (bytes, word(&area, HEADER))
        };
        assert_eq!(lengths(&vectors), (576, 0));
        vectors[HEADER] = 7;
        assert_eq!(lengths(&vectors), (832, 7));
        // Keys count by what they are.
        vectors[2688] = 0x54;
        assert_eq!(lengths(&vectors), (2696, 7 | 1 << PKRU));
        vectors[HEADER + 1] = 1 << (PKRU - 8);
        assert!(area(&vectors[..2000], of_test).is_none(), "cut off");
        assert!(area(&[], of_test).is_none());
    }

    #[test]
    fn a_frame_lies_below_the_red_zone_and_says_all() {
        // SAFETY: numbers.
        let mut home: Registers = unsafe { std::mem::zeroed() };
        (home.rsp, home.rip, home.rax) = (0x7fff_0000_1238, 0x40_1000, 230);
        (home.r8, home.eflags, home.cs, home.ss) = (8, 0x246, 0x33, 0x2b);
        let vectors = Vectors {
            kind: 0x202,
            bytes: vec![0; 576],
        };
        let frame = frame(&home, 0x1234, &vectors, 0x50_0000).unwrap();
        assert_eq!(frame.at % 16, 8, "as at the entry of a function");
        assert!(frame.at + frame.bytes.len() as u64 <= home.rsp - RED_ZONE);
        let bytes = &frame.bytes;
        assert_eq!(word(bytes, PRETCODE), 0x50_0000);
        assert_eq!(word(bytes, SIGCONTEXT), 8);
        assert_eq!(word(bytes, SIGCONTEXT + 13 * 8), 230);
        assert_eq!(word(bytes, SIGCONTEXT + 15 * 8), home.rsp);
        assert_eq!(word(bytes, SIGCONTEXT + 16 * 8), home.rip);
        assert_eq!(word(bytes, SIGCONTEXT + 17 * 8), 0x246);
        assert_eq!(word(bytes, SELECTORS), 0x002b_0000_0000_0033);
        assert_eq!(word(bytes, MASK), 0x1234);
        let area = word(bytes, FPSTATE);
        assert_eq!(area % ALIGNED, 0);
        assert_eq!(half(bytes, (area - frame.at) as usize + SOFTWARE), MAGIC1);
        home.rsp = 100;
        assert!(super::frame(&home, 0, &vectors, 0).is_none(), "no room");
    }
}
