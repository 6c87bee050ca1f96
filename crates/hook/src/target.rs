//! What is to be hooked.

/// A function to hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub address: usize,
    /// Its bytes, at least those of the prologue; all of them where its size is known.
    pub code: Vec<u8>,
    /// What runs in its place.
    pub replacement: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function of a driver, where nothing throws.
    Driver,
    /// Any function. What it calls may throw: then no call is moved, because there is nothing to
    /// unwind by where it would stand.
    Function,
    /// A function of the C library that takes so many arguments, none of them on the stack, and
    /// throws nothing: registers of further ones may be changed.
    Of {
        /// How many.
        arguments: usize,
    },
    /// An entry of a procedure linkage table.
    Entry,
}
