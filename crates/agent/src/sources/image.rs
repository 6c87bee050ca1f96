//! How long is what a pointer without a length points to?

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};

use warpbpf_fatbin::{
    CUBIN_HEADER_BYTES, FATBIN_HEADER_BYTES, FATBIN_MAGIC, FatbinWrapper, WRAPPER_MAGIC, cubin_len,
    fatbin_len, join,
};

/// First four bytes of an ELF file, as a little-endian number.
const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

/// The bytes of an image handed to the driver; `None` for null and for headers that make no sense.
///
/// # Safety
/// `image` is null or what CUDA asks of an image: a fatbin wrapper, a fatbin, a cubin or
/// NUL-terminated text, whole, and unchanged during `'a`.
pub(crate) unsafe fn bytes<'a>(image: *const c_void) -> Option<Cow<'a, [u8]>> {
    if image.is_null() {
        return None;
    }
    let start = image.cast::<u8>();
    // SAFETY: the caller's promise; `starts_with` reads on only while what it read is no NUL.
    unsafe {
        if starts_with(start, WRAPPER_MAGIC) {
            let wrapper = start.cast::<FatbinWrapper>().read_unaligned();
            if wrapper.data.is_null() || !starts_with(wrapper.data.cast(), FATBIN_MAGIC) {
                return None;
            }
            let whole = fatbin(wrapper.data.cast())?;
            let parts = wrapper.parts().into_iter().map(|part| {
                let is_one = starts_with(part, FATBIN_MAGIC);
                is_one.then(|| fatbin(part)).flatten()
            });
            // What cannot be joined is left as the driver has it: machine code.
            let joined = parts.collect::<Option<Vec<&[u8]>>>();
            let joined = joined.and_then(|parts| join(whole, &parts).ok().flatten());
            return Some(joined.map_or(Cow::Borrowed(whole), Cow::Owned));
        }
        if starts_with(start, FATBIN_MAGIC) {
            return fatbin(start).map(Cow::Borrowed);
        }
        if starts_with(start, ELF_MAGIC) {
            let header = std::slice::from_raw_parts(start, CUBIN_HEADER_BYTES);
            let whole = cubin_len(header).map(|n| std::slice::from_raw_parts(start, n));
            return whole.map(Cow::Borrowed);
        }
        let text = CStr::from_ptr(start.cast::<c_char>()).to_bytes();
        Some(Cow::Borrowed(text))
    }
}

/// # Safety
/// A fatbin, whole, behind its magic.
unsafe fn fatbin<'a>(start: *const u8) -> Option<&'a [u8]> {
    // SAFETY: a fatbin has its header, and the length that the header says.
    unsafe {
        let header = std::slice::from_raw_parts(start, FATBIN_HEADER_BYTES);
        let length = fatbin_len(header).ok()?;
        Some(std::slice::from_raw_parts(start, length))
    }
}

/// Byte by byte, because a text may end before its fourth byte. No magic holds a NUL, so a NUL ends
/// the comparison.
///
/// # Safety
/// `start` points to at least four bytes, or to NUL-terminated text.
unsafe fn starts_with(start: *const u8, magic: u32) -> bool {
    let expected = magic.to_le_bytes();
    // SAFETY: byte `i` is read only when the bytes before it were those of a magic, which are not
    // NUL.
    (0..4).all(|i| unsafe { *start.add(i) } == expected[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &[u8]) -> Option<usize> {
        // SAFETY: each test gives a whole image.
        unsafe { bytes(image.as_ptr().cast()) }.map(|bytes| bytes.len())
    }

    fn fatbin(payload: &[u8]) -> Vec<u8> {
        let mut image = FATBIN_MAGIC.to_le_bytes().to_vec();
        image.extend(1u16.to_le_bytes());
        image.extend(16u16.to_le_bytes());
        image.extend((payload.len() as u64).to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn text_ends_at_its_nul() {
        assert_eq!(of(b".version 8.0\0garbage"), Some(12));
        assert_eq!(of(b"\0"), Some(0));
        assert_eq!(of(b"\x7fEL\0"), Some(3));
        // SAFETY: null is allowed.
        assert!(unsafe { bytes(std::ptr::null()) }.is_none());
    }

    #[test]
    fn fatbins_say_their_length_with_and_without_a_wrapper() {
        let mut image = fatbin(&[7; 40]);
        image.extend([9; 8]);
        assert_eq!(of(&image), Some(56));
        let wrapper = FatbinWrapper {
            magic: WRAPPER_MAGIC,
            version: 1,
            data: image.as_ptr().cast(),
            filename_or_fatbins: std::ptr::null(),
        };
        // SAFETY: a wrapper of a whole fatbin.
        let got = unsafe { bytes(std::ptr::from_ref(&wrapper).cast()) };
        assert_eq!(got.as_deref(), Some(&image[..56]));
        let wrapper = FatbinWrapper {
            data: std::ptr::null(),
            ..wrapper
        };
        // SAFETY: as above, of nothing.
        assert!(unsafe { bytes(std::ptr::from_ref(&wrapper).cast()) }.is_none());
        image[4] = 9;
        assert_eq!(of(&image), None);
    }

    #[test]
    fn a_cubin_ends_behind_its_tables() {
        let mut image = vec![0u8; 64];
        image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        image[40..48].copy_from_slice(&64u64.to_le_bytes());
        image[58..60].copy_from_slice(&64u16.to_le_bytes());
        image[60..62].copy_from_slice(&2u16.to_le_bytes());
        image.resize(64 + 128, 1);
        assert_eq!(of(&image), Some(192));
        image[4] = 1;
        assert_eq!(of(&image), None);
    }
}
