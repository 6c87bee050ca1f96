//! Registers that are saved where a probe is.

use crate::trace::stacks::Caller;

/// `struct pt_regs`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Registers {
    pub(crate) r15: u64,
    pub(crate) r14: u64,
    pub(crate) r13: u64,
    pub(crate) r12: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    pub(crate) r11: u64,
    pub(crate) r10: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) rax: u64,
    pub(crate) rcx: u64,
    pub(crate) rdx: u64,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
    pub(crate) orig_rax: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) flags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

pub(crate) const BYTES: usize = size_of::<Registers>();

const _: () = assert!(BYTES == 168);

impl Registers {
    /// As programs see them.
    pub(crate) fn bytes(&self) -> &[u8; BYTES] {
        // SAFETY: integers without gaps.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// The integer register with the argument of that number.
    pub(crate) fn argument(&self, number: u8) -> u64 {
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
    pub(crate) fn result(&self) -> u64 {
        self.rax
    }

    /// What its caller's stack can be followed from, at a function's start.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            slot: self.rsp,
            rbp: self.rbp,
            rbx: self.rbx,
            others: [self.r12, self.r13, self.r14, self.r15],
        }
    }

    /// Where the return address stands, at a function's start.
    pub(crate) fn top(&self) -> u64 {
        self.rsp
    }
}
