//! A function around which our code runs finds every register as its caller left it, and its caller
//! as it left them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use warpbpf_hook::stubs;

use super::*;

/// What a thread's registers hold.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// rax rbx rcx rdx rsi rdi r8 r9 r10 r12 r13 r14
    general: [u64; 12],
    flags: u64,
    mxcsr: u32,
    x87: u32,
    /// Lower halves, which every processor has; upper ones where there is AVX.
    vectors: [[u64; 4]; 16],
}

static SEEN: AtomicU64 = AtomicU64::new(0);
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Destroys what a function may destroy, and more.
unsafe extern "C" fn scramble(number: u64, registers: *mut Registers) -> usize {
    // SAFETY: as the code around gives it.
    SEEN.store(unsafe { (*registers).rdi }, Ordering::SeqCst);
    assert_eq!(number, 3);
    // SAFETY: all that is destroyed is said, and the control words are as the compiler expects them
    // afterwards.
    unsafe {
        let mut word = 0x1f80u32;
        let mut x87 = 0x037fu16;
        core::arch::asm!(
            "pcmpeqd xmm0, xmm0", "pcmpeqd xmm1, xmm1", "pcmpeqd xmm2, xmm2", "pcmpeqd xmm3, xmm3",
            "pcmpeqd xmm4, xmm4", "pcmpeqd xmm5, xmm5", "pcmpeqd xmm6, xmm6", "pcmpeqd xmm7, xmm7",
            "pcmpeqd xmm8, xmm8", "pcmpeqd xmm9, xmm9", "pcmpeqd xmm10, xmm10", "pcmpeqd xmm11, xmm11",
            "pcmpeqd xmm12, xmm12", "pcmpeqd xmm13, xmm13", "pcmpeqd xmm14, xmm14", "pcmpeqd xmm15, xmm15",
            "ldmxcsr [{word}]", "fldcw [{x87}]",
            word = in(reg) &mut word, x87 = in(reg) &mut x87,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        );
        if std::arch::is_x86_feature_detected!("avx") {
            core::arch::asm!("vzeroall", out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
                out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _);
        }
        core::arch::asm!("xor eax, eax", "xor ecx, ecx", "xor edx, edx", "xor r8, r8", "xor r9, r9", "xor r10, r10",
            out("rax") _, out("rcx") _, out("rdx") _, out("r8") _, out("r9") _, out("r10") _);
    }
    FUNCTION.load(Ordering::SeqCst)
}

around!(
    /// # Safety
    /// Only the stub of this test goes here.
    around_scramble,
    scramble
);

/// Calls `function` with the registers of `before`; what they hold then is in `after`. With AVX,
/// whole `ymm` registers.
///
/// # Safety
/// `function` keeps all registers but r11.
#[unsafe(naked)]
unsafe extern "C" fn call_with(before: *const State, after: *mut State, function: usize, avx: u64) {
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rbp, rsp",
        "sub rsp, 64",
        "and rsp, -64",
        // What is needed behind the call.
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "stmxcsr [rsp + 32]",
        "fnstcw [rsp + 36]",
        "mov r15, rdi",
        "test rcx, rcx",
        "jz 2f",
        "vmovups ymm0, [r15 + 112]",
        "vmovups ymm1, [r15 + 144]",
        "vmovups ymm2, [r15 + 176]",
        "vmovups ymm3, [r15 + 208]",
        "vmovups ymm4, [r15 + 240]",
        "vmovups ymm5, [r15 + 272]",
        "vmovups ymm6, [r15 + 304]",
        "vmovups ymm7, [r15 + 336]",
        "vmovups ymm8, [r15 + 368]",
        "vmovups ymm9, [r15 + 400]",
        "vmovups ymm10, [r15 + 432]",
        "vmovups ymm11, [r15 + 464]",
        "vmovups ymm12, [r15 + 496]",
        "vmovups ymm13, [r15 + 528]",
        "vmovups ymm14, [r15 + 560]",
        "vmovups ymm15, [r15 + 592]",
        "jmp 3f",
        "2:",
        "movups xmm0, [r15 + 112]",
        "movups xmm1, [r15 + 144]",
        "movups xmm2, [r15 + 176]",
        "movups xmm3, [r15 + 208]",
        "movups xmm4, [r15 + 240]",
        "movups xmm5, [r15 + 272]",
        "movups xmm6, [r15 + 304]",
        "movups xmm7, [r15 + 336]",
        "movups xmm8, [r15 + 368]",
        "movups xmm9, [r15 + 400]",
        "movups xmm10, [r15 + 432]",
        "movups xmm11, [r15 + 464]",
        "movups xmm12, [r15 + 496]",
        "movups xmm13, [r15 + 528]",
        "movups xmm14, [r15 + 560]",
        "movups xmm15, [r15 + 592]",
        "3:",
        "ldmxcsr [r15 + 104]",
        "fldcw [r15 + 108]",
        "mov rbx, [r15 + 8]",
        "mov rcx, [r15 + 16]",
        "mov rdx, [r15 + 24]",
        "mov rsi, [r15 + 32]",
        "mov rdi, [r15 + 40]",
        "mov r8, [r15 + 48]",
        "mov r9, [r15 + 56]",
        "mov r10, [r15 + 64]",
        "mov r12, [r15 + 72]",
        "mov r13, [r15 + 80]",
        "mov r14, [r15 + 88]",
        "mov r11, [rsp + 16]",
        "push qword ptr [r15 + 96]",
        "popfq",
        "mov rax, [r15]",
        "call r11",
        "mov r11, [rsp + 8]",
        "mov [r11], rax",
        "pushfq",
        "pop rax",
        "cld",
        "mov [r11 + 96], rax",
        "mov [r11 + 8], rbx",
        "mov [r11 + 16], rcx",
        "mov [r11 + 24], rdx",
        "mov [r11 + 32], rsi",
        "mov [r11 + 40], rdi",
        "mov [r11 + 48], r8",
        "mov [r11 + 56], r9",
        "mov [r11 + 64], r10",
        "mov [r11 + 72], r12",
        "mov [r11 + 80], r13",
        "mov [r11 + 88], r14",
        "stmxcsr [r11 + 104]",
        "mov dword ptr [r11 + 108], 0",
        "fnstcw [r11 + 108]",
        "mov rcx, [rsp + 24]",
        "test rcx, rcx",
        "jz 4f",
        "vmovups [r11 + 112], ymm0",
        "vmovups [r11 + 144], ymm1",
        "vmovups [r11 + 176], ymm2",
        "vmovups [r11 + 208], ymm3",
        "vmovups [r11 + 240], ymm4",
        "vmovups [r11 + 272], ymm5",
        "vmovups [r11 + 304], ymm6",
        "vmovups [r11 + 336], ymm7",
        "vmovups [r11 + 368], ymm8",
        "vmovups [r11 + 400], ymm9",
        "vmovups [r11 + 432], ymm10",
        "vmovups [r11 + 464], ymm11",
        "vmovups [r11 + 496], ymm12",
        "vmovups [r11 + 528], ymm13",
        "vmovups [r11 + 560], ymm14",
        "vmovups [r11 + 592], ymm15",
        "vzeroupper",
        "jmp 5f",
        "4:",
        "movups [r11 + 112], xmm0",
        "movups [r11 + 144], xmm1",
        "movups [r11 + 176], xmm2",
        "movups [r11 + 208], xmm3",
        "movups [r11 + 240], xmm4",
        "movups [r11 + 272], xmm5",
        "movups [r11 + 304], xmm6",
        "movups [r11 + 336], xmm7",
        "movups [r11 + 368], xmm8",
        "movups [r11 + 400], xmm9",
        "movups [r11 + 432], xmm10",
        "movups [r11 + 464], xmm11",
        "movups [r11 + 496], xmm12",
        "movups [r11 + 528], xmm13",
        "movups [r11 + 560], xmm14",
        "movups [r11 + 592], xmm15",
        "5:",
        "ldmxcsr [rsp + 32]",
        "fldcw [rsp + 36]",
        "mov rsp, rbp",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// A function that changes nothing.
#[unsafe(naked)]
unsafe extern "C" fn nothing() {
    core::arch::naked_asm!("ret")
}

#[test]
fn a_probe_changes_no_register() {
    let avx = std::arch::is_x86_feature_detected!("avx");
    assert_eq!(std::mem::offset_of!(State, vectors), 112);
    let common = around_scramble as *const () as usize;
    let stub = stubs(3..4, common, common).unwrap()[0];
    FUNCTION.store(nothing as *const () as usize, Ordering::SeqCst);
    // Carry, zero and sign; then direction and overflow. All of them and the bit that is always
    // set.
    for flags in [0x2 | 0x1 | 0x40 | 0x80, 0x2 | 0x400 | 0x800, 0x2] {
        // Rounding towards zero with all exceptions masked; x87 with single precision.
        for (mxcsr, x87) in [(0x7f80, 0x007f), (0x1fa0, 0x0f7f)] {
            let mut before = State {
                general: std::array::from_fn(|i| 0x1111_0000_0000_0001 * (i as u64 + 1)),
                flags,
                mxcsr,
                x87,
                vectors: std::array::from_fn(|i| {
                    std::array::from_fn(|part| 0x0101_0101_0101_0100 * (i as u64 + 1) + part as u64)
                }),
            };
            if !avx {
                before.vectors.iter_mut().for_each(|v| v[2..].fill(0));
            }
            let mut after = State {
                general: [0; 12],
                flags: 0,
                mxcsr: 0,
                x87: 0,
                vectors: [[0; 4]; 16],
            };
            SEEN.store(0, Ordering::SeqCst);
            // SAFETY: the stub leads to the code around, and that to a function that does nothing.
            unsafe { call_with(&before, &mut after, stub, u64::from(avx)) };
            // What the processor sets by itself: interrupts are on, the identification bit is
            // whatever it was.
            after.flags &= 0x2 | 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x400 | 0x800;
            assert_eq!(after, before);
            assert_eq!(
                SEEN.load(Ordering::SeqCst),
                before.general[5],
                "rdi was seen"
            );
        }
    }
}
