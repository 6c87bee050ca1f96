//! What the splicer makes: the contract with the session and the launch path.

/// An instrumented kernel, as PTX text plus all that loading and launching it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Name of the instrumented `.entry`.
    pub entry: String,
    /// Slots beyond the session's own that must hold addresses of the original module's variables:
    /// `(slot, variable name)`.
    pub globals: Vec<(u32, String)>,
    /// Length of the slot table.
    pub slot_count: u32,
    /// The hidden trailing parameter, if a scope or the context needs the launch record.
    pub hidden: Option<HiddenParam>,
    /// Offsets and sizes of the original's parameters.
    pub params: Vec<ParamLayout>,
}

/// A parameter in the kernel's parameter buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamLayout {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// The parameter that the launch path appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiddenParam {
    /// Its byte offset, 8-aligned, after the original's parameters.
    pub offset: u64,
    /// The launch record has a counter per block.
    pub block_counters: bool,
    /// The launch record has a counter per warp.
    pub warp_counters: bool,
}
