//! The files that the dynamic linker has loaded, read as a debugger reads them: from the linker's
//! list for debuggers, `r_debug` of `<link.h>`, by copies that fail where memory is gone.
//!
//! Threads of ours look while the application loads and unloads libraries, so nothing here calls
//! the linker: applications died in
//! `dl_iterate_phdr` on such a thread while another one was in `dlopen`, and its lock is lost to a
//! child that is forked meanwhile.

use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::own_memory;

/// A file of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// As the linker names it; empty for the program itself.
    pub path: CString,
    /// What its addresses are counted from.
    pub base: usize,
}

/// `struct link_map`, as far as `<link.h>` has it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LinkMap {
    base: usize,
    name: usize,
    dynamic: usize,
    next: usize,
    previous: usize,
}

/// `struct r_debug`, its beginning.
#[repr(C)]
struct Debug {
    version: c_int,
    first: AtomicUsize,
}

unsafe extern "C" {
    /// The linker's own.
    static _r_debug: Debug;
}

/// Files that a process may have. A list that is longer has been changed while it was read.
const MOST: usize = 1 << 16;
/// Bytes of a file's name.
const MOST_NAME: usize = 4096;
/// Names are read in parts that lie in one page each.
const PART: usize = 64;

/// All files that are loaded now. `None`: the list was changed meanwhile, or this system lets no
/// process copy its own memory.
pub fn loaded() -> Option<Vec<Loaded>> {
    let mut all = Vec::new();
    walk(|_, link| {
        let path = name(link.name)?;
        let base = link.base;
        all.push(Loaded { path, base });
        Some(())
    })?;
    Some(all)
}

/// A number that is another one when a file has been loaded since; at times also when none has.
/// `None`: as for [`loaded`].
pub fn generation() -> Option<u64> {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    static WORDS: AtomicU64 = AtomicU64::new(0);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // The linker appends. If the last one is still the last, and is the same, nothing has come.
    // Threads that are here at once may leave what does not go together, which is the same as a
    // list that has changed.
    let last = LAST.load(Ordering::Acquire);
    let there = (last != 0).then(|| peek::<LinkMap>(last)).flatten();
    if there.is_some_and(|link| link.next == 0 && link.words() == WORDS.load(Ordering::Acquire)) {
        return Some(NUMBER.load(Ordering::Acquire));
    }
    let mut end = None;
    walk(|at, link| {
        end = Some((at, link.words()));
        Some(())
    })?;
    let (at, words) = end?;
    LAST.store(at, Ordering::Release);
    WORDS.store(words, Ordering::Release);
    Some(NUMBER.fetch_add(1, Ordering::AcqRel) + 1)
}

impl LinkMap {
    /// All that it says, in one number.
    fn words(&self) -> u64 {
        let fields = [self.base, self.name, self.dynamic, self.next, self.previous];
        let fold = |sum: u64, field| sum.rotate_left(13).wrapping_mul(31) ^ field as u64;
        fields.into_iter().fold(1, fold)
    }
}

/// Calls `each` with the address of each entry and the entry, until that gives `None`, as this does
/// then.
fn walk(mut each: impl FnMut(usize, &LinkMap) -> Option<()>) -> Option<()> {
    // SAFETY: the linker's own variable, which is there as long as the process.
    let mut at = unsafe { &_r_debug }.first.load(Ordering::Acquire);
    let mut previous = 0;
    for _ in 0..MOST {
        if at == 0 {
            return Some(());
        }
        let link = peek::<LinkMap>(at)?;
        // Each entry names the one before it. What is freed names something else.
        if link.previous != previous {
            return None;
        }
        each(at, &link)?;
        (previous, at) = (at, link.next);
    }
    None
}

fn name(address: usize) -> Option<CString> {
    let mut bytes = Vec::new();
    while bytes.len() < MOST_NAME {
        let at = address + bytes.len();
        let mut part = [0; PART];
        let part = &mut part[..PART - at % PART];
        own_memory::read(at, part).then_some(())?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&part[..end]);
            return CString::new(bytes).ok();
        }
        bytes.extend_from_slice(part);
    }
    None
}

fn peek<T: Copy>(address: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of the value, all of which are something.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
    own_memory::read(address, bytes).then_some(())?;
    // SAFETY: only called for structures of numbers, of which any bytes are a value.
    Some(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_void};
    use std::sync::atomic::AtomicBool;

    use super::*;

    unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
        // SAFETY: the linker's entry, and the vector of the caller.
        let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Loaded>>()) };
        // SAFETY: NUL-terminated, as long as the list is gone through.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned();
        let base = info.dlpi_addr as usize;
        all.push(Loaded { path, base });
        0
    }

    fn open(path: &CStr) -> *mut c_void {
        // SAFETY: a library without a constructor that minds.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }
    }

    /// One test, as libraries come and go in it.
    #[test]
    fn the_list_is_the_linkers() {
        let mut linkers: Vec<Loaded> = Vec::new();
        // SAFETY: the callback gets the vector, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(count), std::ptr::from_mut(&mut linkers).cast()) };
        assert_eq!(loaded(), Some(linkers));

        let before = generation();
        assert!(before.is_some());
        assert_eq!(generation(), before);
        // One that no program of Rust's has.
        let library = c"libutil.so.1";
        let handle = open(library);
        assert!(!handle.is_null());
        assert!(generation() > before);
        let is_there = || {
            let all = loaded().unwrap();
            all.iter()
                .any(|l| l.path.to_bytes().ends_with(b"/libutil.so.1"))
        };
        assert!(is_there());
        // SAFETY: opened above.
        unsafe { libc::dlclose(handle) };
        assert!(!is_there());

        // While others come and go, each answer is whole or none.
        let (own, done) = (loaded().unwrap()[0].clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let handle = open(library);
                    // SAFETY: opened above.
                    unsafe { libc::dlclose(handle) };
                }
                done.store(true, Ordering::Release);
            });
            let mut whole = 0;
            while !done.load(Ordering::Acquire) {
                let _ = generation();
                if let Some(all) = loaded() {
                    assert_eq!(all[0], own);
                    whole += 1;
                }
            }
            assert!(whole > 0);
        });
    }

    #[test]
    fn memory_that_is_not_there_is_not_read() {
        assert_eq!(name(8), None);
        assert!(peek::<LinkMap>(usize::MAX - 8).is_none());
    }
}
