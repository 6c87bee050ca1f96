//! What calls of helpers count for in the budget beyond the rows of the table, because of sizes
//! that programs choose; and the limits of such sizes. The verifier counts with these numbers, and
//! tests of the code generator compare them with what is executed.

/// Instructions for each 8 bytes that a helper reads of the application's memory, byte by byte as
/// it may have to. The rest (counting in and out, at most [`crate::layout::fence::STEPS`] steps of
/// a search) is in the helper's own row.
pub const READ_WORD_COST: u64 = 72;
/// Instructions of such a call that copies the program's own memory, without those for the bytes,
pub const OWN_COPY_COST: u64 = 8;
/// and for each 8 of these.
pub const OWN_WORD_COST: u64 = 4;
/// Instructions of a call that copies a string of the program's own memory, without those for the
/// bytes,
pub const OWN_STRING_COST: u64 = 24;
/// for each 8 of these where they are written out,
pub const OWN_STRING_WORD_COST: u64 = 30;
/// and for each of these in the loops that look for the end, copy and zero.
pub const OWN_STRING_BYTE_COST: u64 = 24;
/// Instructions for each byte of a string of the application's memory: looked at once, and zeroed
/// if that goes wrong.
pub const READ_STRING_COST: u64 = 17;
/// Instructions for each `%s` of a format, beyond those for its bytes: the look-up of its address.
pub const FORMAT_STRING_COST: u64 = 340;
/// Instructions for each byte that a `%s` can look at: measured, then copied.
pub const FORMAT_STRING_BYTE_COST: u64 = 16;
/// Most bytes that a call copies or fills by instructions written out one after the other: no stack
/// has more. What is longer is a loop over pieces.
pub const WRITTEN_OUT_BYTES: u64 = 512;
/// Instructions of a round of such a loop, which copies or fills a piece: 8 bytes, or as many as
/// both sides are aligned to.
pub const PIECE_COST: u64 = 12;
/// Instructions for each byte of a copy whose size is only known as it runs.
pub const BYTE_COST: u64 = 9;
/// Instructions for each piece that an address which is not a multiple of 8 makes of a word that is
/// written out.
pub const SPLIT_COST: u64 = 5;
/// Instructions for each 8 bytes that `bpf_get_current_comm` fills behind the name, where they are
/// written out.
pub const FILL_WORD_COST: u64 = 2;
/// Most parameters of 8 bytes that a function of the device takes: what a call passes of a key and
/// a value, and two more.
pub const CALL_WORDS: u64 = 128;
/// Most bytes of a constant string that becomes part of the code, without its NUL.
pub const TEXT_MOST: u64 = 4095;
/// Most bytes of a dynptr, as in Linux.
pub const DYNPTR_MOST: u64 = (1 << 24) - 1;
/// Bytes of the stack that a dynptr takes: the address of its memory, which is 0 if it is empty,
/// and its size.
pub const DYNPTR_BYTES: u64 = 16;
/// Instructions for each 8 bytes that `bpf_dynptr_read` and `bpf_dynptr_write` copy from or to an
/// offset that is known to be a multiple of 8,
pub const SAMPLE_WORD_COST: u64 = 4;
/// and from any other.
pub const SAMPLE_BYTES_COST: u64 = 28;
/// Instructions for each 8 bytes that `bpf_strncmp` compares.
pub const COMPARE_WORD_COST: u64 = 24;
