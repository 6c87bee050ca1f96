//! Kernel functions that programs call by name (`.ksyms` externs), with numbers of our own: an
//! object names them, the loader writes the number into the call.

/// A kernel function that we serve.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum KfuncId {
    /// `int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)`: an iterator over
    /// `start..end` in the 8 bytes at `it`. 0, -EINVAL if `start > end`, -E2BIG above 8,388,608
    /// numbers (then the iterator is empty).
    IterNumNew = 1,
    /// `int *bpf_iter_num_next(struct bpf_iter_num *it)`: pointer to the next number, inside `it`,
    /// or null at the end.
    IterNumNext = 2,
    /// `void bpf_iter_num_destroy(struct bpf_iter_num *it)`: the iterator is uninitialised stack
    /// again.
    IterNumDestroy = 3,
}

/// All of them, with their names in C.
pub const KFUNCS: &[(KfuncId, &str)] = &[
    (KfuncId::IterNumNew, "bpf_iter_num_new"),
    (KfuncId::IterNumNext, "bpf_iter_num_next"),
    (KfuncId::IterNumDestroy, "bpf_iter_num_destroy"),
];

/// Most numbers of an iterator, and most loops of `bpf_loop` (`BPF_MAX_LOOPS` of Linux).
pub const MAX_LOOPS: u32 = 8 << 20;

impl KfuncId {
    /// The function with this number.
    pub fn from_number(number: u32) -> Option<KfuncId> {
        KFUNCS
            .iter()
            .map(|(id, _)| *id)
            .find(|id| *id as u32 == number)
    }
    /// The function with this name.
    pub fn from_name(name: &str) -> Option<KfuncId> {
        KFUNCS.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }
    /// Its name in C.
    pub fn name(self) -> &'static str {
        KFUNCS
            .iter()
            .find(|(id, _)| *id == self)
            .map_or("", |(_, n)| n)
    }
}
