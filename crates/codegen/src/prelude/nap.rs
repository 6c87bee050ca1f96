//! A pause on the device.

/// First PTX version with `nanosleep` (PTX ISA "Miscellaneous Instructions: nanosleep"); before it
/// lanes look without a pause.
const NANOSLEEP: (u32, u32) = (6, 3);

/// There is `nanosleep`.
pub(crate) fn can_nap(ptx: (u32, u32)) -> bool {
    ptx >= NANOSLEEP
}

/// A pause of at most so many nanoseconds, or nothing.
pub(crate) fn nap(nanoseconds: u32, ptx: (u32, u32)) -> String {
    if !can_nap(ptx) {
        return String::new();
    }
    format!("nanosleep.u32 {nanoseconds};")
}
