//! Names that the application gives, as text of bounded length: what it passes is its own memory,
//! and registered names are known by a handle for as long as the process lives.
//!
//! Handles are numbers of places in a table that only grows, so that to look one up needs no lock,
//! and one that is not ours is seen.

use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes of a name that are kept.
pub(super) const LONGEST: usize = 128;

/// A name, and whether it was cut.
pub(super) type Text = (String, bool);

/// Text of bytes. Null is a name without letters.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub(super) unsafe fn narrow(text: *const c_char) -> Text {
    if text.is_null() {
        return (String::new(), false);
    }
    // SAFETY: the caller's promise; no byte behind the NUL is looked at.
    let length = unsafe { libc::strnlen(text, LONGEST + 1) };
    // SAFETY: so many bytes are there.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length.min(LONGEST)) };
    let mut name = String::from_utf8_lossy(bytes).into_owned();
    let cut = length > LONGEST;
    // A character may have been cut in two.
    if cut && name.ends_with(char::REPLACEMENT_CHARACTER) {
        name.pop();
    }
    (name, cut)
}

/// Text of wide characters, of four bytes each.
///
/// # Safety
/// As [`narrow`].
pub(super) unsafe fn wide(text: *const u32) -> Text {
    let mut name = String::new();
    let mut at = text;
    while !at.is_null() {
        // SAFETY: the caller's promise: the NUL was not passed.
        let character = match unsafe { at.read_unaligned() } {
            0 => break,
            number => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
        };
        if name.len() + character.len_utf8() > LONGEST {
            return (name, true);
        }
        name.push(character);
        at = at.wrapping_add(1);
    }
    (name, false)
}

/// Names by handle.
pub(super) struct Registry<const SLOTS: usize> {
    used: AtomicUsize,
    slots: [AtomicPtr<String>; SLOTS],
}

impl<const SLOTS: usize> Registry<SLOTS> {
    pub(super) const fn new() -> Registry<SLOTS> {
        Registry {
            used: AtomicUsize::new(0),
            slots: [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS],
        }
    }

    /// A handle for a name; `None` if there are too many. It is kept for as long as the process
    /// lives.
    pub(super) fn add(&self, name: String) -> Option<usize> {
        let at = self.used.load(Ordering::Relaxed);
        if at >= SLOTS {
            return None;
        }
        let at = self.used.fetch_add(1, Ordering::Relaxed);
        let slot = self.slots.get(at)?;
        slot.store(Box::leak(Box::new(name)), Ordering::Release);
        Some(at + 1)
    }

    /// The name of a handle, if it is one of ours.
    pub(super) fn get(&self, handle: usize) -> Option<&'static str> {
        let slot = self.slots.get(handle.checked_sub(1)?)?;
        // SAFETY: null, or leaked by `add`.
        let name = unsafe { slot.load(Ordering::Acquire).as_ref() };
        name.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_always_text() {
        let narrow = |bytes: &[u8]| {
            let text = std::ffi::CString::new(bytes).unwrap();
            // SAFETY: NUL-terminated.
            unsafe { narrow(text.as_ptr()) }
        };
        assert_eq!(narrow(b"step 1"), ("step 1".into(), false));
        assert_eq!(narrow(b"a\xffb"), ("a\u{fffd}b".into(), false));
        assert_eq!(narrow(&[b'x'; LONGEST]), ("x".repeat(LONGEST), false));
        assert_eq!(narrow(&[b'x'; LONGEST + 1]), ("x".repeat(LONGEST), true));
        let mut split = vec![b'x'; LONGEST - 1];
        split.extend("é".bytes());
        assert_eq!(narrow(&split), ("x".repeat(LONGEST - 1), true));
        // SAFETY: null is allowed.
        let none = unsafe { super::narrow(std::ptr::null()) };
        assert_eq!(none, (String::new(), false));
        let wide = |text: &[u32]| {
            // SAFETY: NUL-terminated by each caller.
            unsafe { super::wide(text.as_ptr()) }
        };
        assert_eq!(wide(&[0x47, 0x3bb, 0x1f600, 0]), ("Gλ😀".into(), false));
        assert_eq!(wide(&[0x11_0000, 0]), ("\u{fffd}".into(), false));
        let mut long = [u32::from(b'y'); LONGEST + 2];
        long[LONGEST + 1] = 0;
        assert_eq!(wide(&long), ("y".repeat(LONGEST), true));
    }

    #[test]
    fn handles_that_are_not_ours_have_no_name() {
        static NAMES: Registry<2> = Registry::new();
        assert_eq!(NAMES.get(1), None);
        assert_eq!(NAMES.add("a".into()), Some(1));
        assert_eq!(NAMES.add("b".into()), Some(2));
        assert_eq!(NAMES.add("c".into()), None);
        assert_eq!((NAMES.get(1), NAMES.get(2)), (Some("a"), Some("b")));
        assert_eq!((NAMES.get(0), NAMES.get(3)), (None, None));
        assert_eq!(NAMES.get(0x7fff_0000_1234), None);
    }
}
