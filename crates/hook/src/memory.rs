//! Memory within reach of a library, and writes to its code. Nothing here is ever writable and
//! executable at once, and code that others may be running is never without the right to be
//! executed.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use warpbpf_descriptor::OwnDescriptor;

use crate::error::{HookError, WriteError};
use crate::machine;
use crate::maps::{self, mappings};
use crate::xfsz::without_xfsz;

/// Bytes that regions are multiples of: the largest pages that the processor's kernels have.
const PAGE: usize = if cfg!(target_arch = "aarch64") {
    64 << 10
} else {
    4096
};
/// Lowest address that is tried; below are guard pages.
const LOWEST: usize = 1 << 20;

/// Where all regions are: a jump that leads elsewhere is not ours.
static REGIONS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// All of `bytes` at `address` is in one region.
pub(crate) fn is_ours(address: usize, bytes: usize) -> bool {
    let regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    regions.iter().any(|(base, length)| {
        let into = address.checked_sub(*base);
        into.and_then(|into| into.checked_add(bytes))
            .is_some_and(|end| end <= *length)
    })
}

/// Fresh writable memory that becomes code. Never freed: a thread may be in it at any time.
#[derive(Debug)]
pub(crate) struct Region {
    base: usize,
    bytes: usize,
}

impl Region {
    /// `bytes` within the first of these distances of both `low` and `high` in which there are
    /// some.
    pub(crate) fn near(
        low: usize,
        high: usize,
        bytes: usize,
        reaches: &[usize],
    ) -> Result<Region, HookError> {
        let bytes = bytes.next_multiple_of(PAGE);
        warpbpf_faults::check("hook/maps", || HookError::NoRoom)?;
        let maps = maps::own().map_err(HookError::Unread)?;
        let within = |reach: &usize| {
            let mut candidates = gaps(&maps, low..high, bytes, *reach);
            candidates.sort_by_key(|base| base.abs_diff(low));
            candidates.into_iter().find_map(|base| map_at(base, bytes))
        };
        reaches.iter().find_map(within).ok_or(HookError::NoRoom)
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Fills in the code and takes the right to write away.
    pub(crate) fn finish(self, code: &[u8]) -> Result<(), WriteError> {
        if code.len() > self.bytes {
            return Err(WriteError::Room {
                bytes: code.len(),
                room: self.bytes,
            });
        }
        // SAFETY: the region is ours, at least that long, writable, and not yet executed by anyone.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.base as *mut u8, code.len());
            machine::flush(self.base, code.len());
            protect(self.base, self.bytes, libc::PROT_READ | libc::PROT_EXEC)
        }
    }
}

/// Addresses of free ranges of `bytes` in a `/proc/PID/maps` text, within `reach` of both ends of
/// `code`: one from each end of each gap.
fn gaps(maps: &[u8], code: Range<usize>, bytes: usize, reach: usize) -> Vec<usize> {
    let first = code.end.saturating_sub(reach).max(LOWEST);
    let last = code.start.saturating_add(reach).saturating_sub(bytes);
    let mut found = Vec::new();
    let mut free = LOWEST;
    for Range { start, end } in mappings(maps).map(|mapping| mapping.range) {
        let (from, to) = (free.max(first), start.min(last.saturating_add(bytes)));
        if to >= from && to - from >= bytes {
            found.push(from.next_multiple_of(PAGE));
            found.push((to - bytes) & !(PAGE - 1));
        }
        free = free.max(end);
    }
    found.retain(|base| (first..=last).contains(base));
    found.dedup();
    found
}

fn map_at(base: usize, bytes: usize) -> Option<Region> {
    warpbpf_faults::check("hook/mmap", || ()).ok()?;
    // SAFETY: MAP_FIXED_NOREPLACE never takes memory that is in use.
    let got = unsafe {
        libc::mmap(
            base as *mut libc::c_void,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if got as usize == base {
        let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
        regions.push((base, bytes));
        return Some(Region { base, bytes });
    }
    if got != libc::MAP_FAILED {
        // A kernel before 4.17 took the address as a hint.
        // SAFETY: the mapping just made.
        unsafe { libc::munmap(got, bytes) };
    }
    None
}

/// Replaces `expected` by `new` (of the same length) in code at `at`.
///
/// # Safety
/// `at` is code that may be replaced, and no thread is in the middle of it.
pub(crate) unsafe fn patch(at: usize, expected: &[u8], new: &[u8]) -> Result<(), WriteError> {
    // SAFETY: code of a loaded library is readable.
    let current = unsafe { std::slice::from_raw_parts(at as *const u8, expected.len()) };
    if current != expected || warpbpf_faults::strikes("hook/changed") {
        return Err(WriteError::Changed);
    }
    // One aligned word is written at once, so that no other thread sees half a jump, where the jump
    // lies in one.
    let word = at & !7;
    let (start, bytes) = if at + new.len() <= word + 8 {
        // SAFETY: an aligned word never crosses a page, so all of it is readable.
        let mut bytes = unsafe { *(word as *const [u8; 8]) };
        bytes[at - word..at - word + new.len()].copy_from_slice(new);
        (word, bytes.to_vec())
    } else {
        (at, new.to_vec())
    };
    if write_through_proc(start, &bytes).is_err() {
        // SAFETY: the caller's promise.
        unsafe { write_through_mapping(start, &bytes)? };
    }
    machine::flush(at, new.len());
    // SAFETY: as above; volatile, because it was changed behind the compiler's back.
    let now: Vec<u8> = (0..new.len())
        .map(|i| unsafe { std::ptr::read_volatile((at + i) as *const u8) })
        .collect();
    if now == new {
        Ok(())
    } else {
        Err(WriteError::NotTaken)
    }
}

/// The kernel writes through the protection, as for a debugger: the page is never writable.
fn write_through_proc(at: usize, bytes: &[u8]) -> std::io::Result<()> {
    warpbpf_faults::check("hook/proc-mem", || {
        std::io::Error::from_raw_os_error(libc::EPERM)
    })?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let memory = rustix::fs::open("/proc/thread-self/mem", flags, Mode::empty())?;
    OwnDescriptor::new(memory).write_all_at(bytes, at as u64)
}

/// For systems that forbid `/proc/self/mem`. A changed copy of the pages takes their place in one
/// step: a thread that runs in them is in the old ones or in the new ones.
///
/// # Safety
/// As [`patch`].
unsafe fn write_through_mapping(at: usize, bytes: &[u8]) -> Result<(), WriteError> {
    // The pages of this kernel: larger ones might hold something else, too.
    let page = rustix::param::page_size();
    let start = at & !(page - 1);
    let length = (at + bytes.len()).next_multiple_of(page) - start;
    warpbpf_faults::check("hook/code-memfd", || {
        failed("memfd_create", &io::Error::last_os_error())
    })?;
    let file = rustix::fs::memfd_create(c"warpbpf-code", MemfdFlags::CLOEXEC)
        .map_err(|errno| failed("memfd_create", &errno.into()))?;
    let file = OwnDescriptor::new(file);
    // SAFETY: the pages of code of a loaded library are readable.
    let mut copy = unsafe { std::slice::from_raw_parts(start as *const u8, length) }.to_vec();
    copy[at - start..at - start + bytes.len()].copy_from_slice(bytes);
    let written = without_xfsz(|| file.write_all_at(&copy, 0));
    written.map_err(|error| match error.raw_os_error() {
        Some(libc::EFBIG) => WriteError::FileLimit,
        _ => WriteError::Copy {
            error: error.to_string(),
        },
    })?;
    let closed = |errno: rustix::io::Errno| failed("mmap", &errno.into());
    let fd = file.here().map_err(closed)?;
    // SAFETY: the same bytes but for those that the caller wants changed, with the rights that code
    // has.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            length,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            fd.as_raw_fd(),
            0,
        )
    };
    if mapped as usize == start {
        Ok(())
    } else {
        Err(failed("mmap", &io::Error::last_os_error()))
    }
}

/// # Safety
/// Nobody needs the rights that are taken away.
unsafe fn protect(base: usize, bytes: usize, rights: i32) -> Result<(), WriteError> {
    warpbpf_faults::check("hook/mprotect", || {
        failed("mprotect", &io::Error::from_raw_os_error(libc::ENOMEM))
    })?;
    // SAFETY: the caller's promise.
    if unsafe { libc::mprotect(base as *mut libc::c_void, bytes, rights) } == 0 {
        Ok(())
    } else {
        Err(failed("mprotect", &io::Error::last_os_error()))
    }
}

fn failed(call: &'static str, error: &io::Error) -> WriteError {
    WriteError::System {
        call,
        error: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::machine::REACHES;
    use super::*;

    /// `mov eax, 1; ret`
    #[cfg(target_arch = "x86_64")]
    const ONE: &[u8] = &[0xb8, 1, 0, 0, 0, 0xc3];
    /// `mov w0, #1; ret`
    #[cfg(target_arch = "aarch64")]
    const ONE: &[u8] = &[0x20, 0, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6];

    /// The first four bytes of [`ONE`] with another number.
    fn number(value: u8) -> [u8; 4] {
        #[cfg(target_arch = "x86_64")]
        return [0xb8, value, 0, 0];
        #[cfg(target_arch = "aarch64")]
        return (0x5280_0000 | u32::from(value) << 5).to_le_bytes();
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn gaps_are_free_and_within_reach() {
        let maps = b"\
200000-300000 r-xp 00000000 00:00 0
500000-600000 r--p 00000000 00:00 0 /lib/x.so
7f0000000000-7f0000100000 r-xp 00000000 00:00 0 /lib/y.so
7fff00000000-7fff00001000 rw-p 00000000 00:00 0 [stack]
";
        const REACH: usize = 1 << 30;
        let found = gaps(maps, 0x500000..0x5f0000, 0x2000, REACH);
        assert_eq!(
            found,
            [
                0x100000,
                0x1fe000,
                0x300000,
                0x4fe000,
                0x600000,
                0x500000 + REACH - 0x2000
            ]
        );
        let found = gaps(maps, 0x7f0000000000..0x7f0000001000, 0x1000, REACH);
        assert_eq!(
            found,
            [
                0x7f0000001000 - REACH,
                0x7effffffff000,
                0x7f0000100000,
                0x7f0000000000 + REACH - 0x1000
            ]
            .map(|a: usize| if a == 0x7effffffff000 {
                0x7f0000000000 - 0x1000
            } else {
                a
            })
        );
        assert!(
            gaps(
                b"100000-7fffffffffff r-xp 0",
                0x500000..0x500000,
                PAGE,
                REACH
            )
            .is_empty()
        );
    }

    #[test]
    fn both_ways_of_writing_change_code_and_leave_it_executable() {
        for way in [true, false] {
            let near = a_changed_target_is_left_alone as *const () as usize;
            let region = Region::near(near, near, PAGE, &REACHES[..1]).unwrap();
            let base = region.base();
            region.finish(ONE).unwrap();
            // SAFETY: the code just written has this signature.
            let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(base) };
            assert_eq!(function(), 1);
            if way {
                // SAFETY: nobody executes it now.
                unsafe { patch(base, &ONE[..4], &number(2)).unwrap() };
            } else {
                // SAFETY: as above.
                unsafe { write_through_mapping(base, &number(2)).unwrap() };
            }
            machine::flush(base, 4);
            assert_eq!(function(), 2);
            // It may be one mapping with what other tests have put beside it.
            let maps = maps::own().unwrap();
            let mapping = mappings(&maps).find(|mapping| mapping.range.contains(&base));
            assert_eq!(mapping.unwrap().rights, "r-xp");
        }
    }

    #[test]
    fn where_files_may_not_grow_no_signal_comes() {
        let near = where_files_may_not_grow_no_signal_comes as *const () as usize;
        let region = Region::near(near, near, PAGE, &REACHES[..1]).unwrap();
        let base = region.base();
        region.finish(ONE).unwrap();
        // A limit is a process's. SAFETY: the child does what is below and ends by `_exit`; it
        // calls nothing that another thread may hold a lock of.
        let status = unsafe {
            match libc::fork() {
                0 => {
                    let none = libc::rlimit {
                        rlim_cur: 0,
                        rlim_max: 0,
                    };
                    libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none);
                    let refused = write_through_mapping(base, &number(2));
                    let named = refused.is_err_and(|why| why == WriteError::FileLimit);
                    let mut pending = std::mem::zeroed();
                    libc::sigpending(&raw mut pending);
                    let none_waits = libc::sigismember(&raw const pending, libc::SIGXFSZ) == 0;
                    libc::_exit(i32::from(!named) + 2 * i32::from(!none_waits))
                }
                child => {
                    let mut status = -1;
                    libc::waitpid(child, &raw mut status, 0);
                    status
                }
            }
        };
        assert_eq!(status, 0);
    }

    #[test]
    fn code_can_be_run_while_it_is_changed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let near = code_can_be_run_while_it_is_changed as *const () as usize;
        let region = Region::near(near, near, PAGE, &REACHES[..1]).unwrap();
        let base = region.base();
        assert!(is_ours(base, 16) && !is_ours(base, PAGE + 1) && !is_ours(near, 1));
        region.finish(ONE).unwrap();
        // SAFETY: the code just written has this signature.
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(base) };
        let done = AtomicBool::new(false);
        let calls = std::thread::scope(|scope| {
            let runner = scope.spawn(|| {
                let mut calls = 0u64;
                // One more at the end, so that the last change is seen.
                while !done.load(Ordering::Acquire) || calls == 0 {
                    assert!((1..=200).contains(&function()));
                    calls += 1;
                }
                calls
            });
            for value in 2..=200u8 {
                // SAFETY: the number changes at once, so a thread reads the old or the new one.
                unsafe { write_through_mapping(base, &number(value)).unwrap() };
                machine::flush(base, 4);
            }
            done.store(true, Ordering::Release);
            runner.join().unwrap()
        });
        assert!(calls > 0);
        assert_eq!(function(), 200);
    }

    #[test]
    fn a_changed_target_is_left_alone() {
        let bytes = [1u8, 2, 3, 4, 5, 6, 7, 8];
        // SAFETY: it is refused before anything is written.
        let result = unsafe { patch(bytes.as_ptr() as usize, &[9, 9], &[0, 0]) };
        assert_eq!(result.unwrap_err(), WriteError::Changed);
    }
}
