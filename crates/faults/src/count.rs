//! How often each site was passed, in a table without locks, and in a file that is whole at any
//! moment: a line of fixed length for each site, because a process may end anywhere. The file is in
//! memory: threads of the agent have a table of descriptors of their own, and a number of another
//! table would be another file there.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// More than there are sites.
const ROWS: usize = 512;
/// Bytes of a line in the file, with its end.
const LINE: usize = 96;

/// A site.
#[derive(Debug)]
pub(crate) struct Row {
    name: AtomicPtr<u8>,
    length: AtomicUsize,
    passes: AtomicU64,
    struck: AtomicU64,
    at: usize,
}

static TABLE: [Row; ROWS] = {
    let mut at = 0;
    let mut table = [const {
        Row {
            name: AtomicPtr::new(std::ptr::null_mut()),
            length: AtomicUsize::new(0),
            passes: AtomicU64::new(0),
            struck: AtomicU64::new(0),
            at: 0,
        }
    }; ROWS];
    while at < ROWS {
        table[at].at = at;
        at += 1;
    }
    table
};

/// Where the file is in memory.
static FILE: OnceLock<Option<usize>> = OnceLock::new();

/// Opens the file that the variable names. False without a variable.
pub(crate) fn open() -> bool {
    let Some(path) = std::env::var_os("WARPBPF_FAULT_LOG") else {
        return false;
    };
    FILE.get_or_init(|| {
        let mut options = File::options();
        options.create(true).read(true).write(true).truncate(false);
        map(&options.open(path).ok()?)
    });
    true
}

fn map(file: &File) -> Option<usize> {
    file.set_len((ROWS * LINE) as u64).ok()?;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: fresh memory, which stays as long as the process.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            ROWS * LINE,
            rights,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    (start != libc::MAP_FAILED).then_some(start as usize)
}

/// The row of a site; `None` if there are too many.
pub(crate) fn row(site: &'static str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.is(site))
}

impl Row {
    /// It is this site's, and if it was nobody's, it is from now on.
    fn is(&self, site: &'static str) -> bool {
        let ours = site.as_ptr().cast_mut();
        let free = std::ptr::null_mut();
        let there =
            match self
                .name
                .compare_exchange(free, ours, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    self.length.store(site.len(), Ordering::Release);
                    return true;
                }
                Err(there) => there,
            };
        // Whoever took the row stores the length next.
        let length = loop {
            match self.length.load(Ordering::Acquire) {
                0 => std::hint::spin_loop(),
                length => break length,
            }
        };
        // SAFETY: both come from a string that lives as long as the program.
        let name = unsafe { std::slice::from_raw_parts(there, length) };
        // The same text may be there twice.
        name == site.as_bytes()
    }

    /// The number of this pass, from 1.
    pub(crate) fn pass(&self) -> u64 {
        self.passes.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn strike(&self) {
        self.struck.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes its line: passes, faults, name.
    pub(crate) fn write(&self) {
        let Some(Some(file)) = FILE.get() else {
            return;
        };
        let mut line = [b' '; LINE];
        line[LINE - 1] = b'\n';
        number(&mut line[..12], self.passes.load(Ordering::Relaxed));
        number(&mut line[13..25], self.struck.load(Ordering::Relaxed));
        let length = self.length.load(Ordering::Acquire).min(LINE - 27);
        // SAFETY: as in `is`.
        let name = unsafe { std::slice::from_raw_parts(self.name.load(Ordering::Acquire), length) };
        line[26..26 + length].copy_from_slice(name);
        let to = (file + self.at * LINE) as *mut [u8; LINE];
        // SAFETY: the row's own line in the mapping. Where two threads write it, they write the
        // same but for a number.
        unsafe { to.write_volatile(line) };
    }
}

/// Right-aligned decimal digits.
fn number(into: &mut [u8], mut value: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_one_row() {
        let twice: &'static str = String::from("one of them").leak();
        let first = row("one of them").unwrap();
        assert!(std::ptr::eq(first, row(twice).unwrap()));
        assert!(!std::ptr::eq(first, row("another").unwrap()));
        assert_eq!((first.pass(), first.pass()), (1, 2));
        let mut text = [b' '; 5];
        number(&mut text, 120);
        assert_eq!(&text, b"  120");
    }
}
