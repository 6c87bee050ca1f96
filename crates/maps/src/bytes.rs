//! Little-endian reads and writes in snapshots, whose length was checked against the layout when
//! the view was made.

/// The `len` bytes at `at`.
pub(crate) fn slice(bytes: &[u8], at: u64, len: u64) -> &[u8] {
    &bytes[at as usize..(at + len) as usize]
}

pub(crate) fn u32_at(bytes: &[u8], at: u64) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(slice(bytes, at, 4));
    u32::from_le_bytes(word)
}

pub(crate) fn u64_at(bytes: &[u8], at: u64) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(slice(bytes, at, 8));
    u64::from_le_bytes(word)
}

pub(crate) fn put(bytes: &mut [u8], at: u64, what: &[u8]) {
    bytes[at as usize..at as usize + what.len()].copy_from_slice(what);
}

/// The key of an array: a little-endian u32.
pub(crate) fn index(key: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(key.try_into().ok()?))
}
