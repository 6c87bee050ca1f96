//! Which edges of the code were taken, where the compiler counts them: `cargo xtask fuzz` asks it
//! to (`-C passes=sancov-module` with
//! `-sanitizer-coverage-inline-8bit-counters`), and each object file then announces its counters
//! here. Without that nothing is known, and no mutant is kept.

use std::sync::Mutex;

/// The counters of a part of the program.
struct Part {
    start: usize,
    bytes: usize,
}

static PARTS: Mutex<Vec<Part>> = Mutex::new(Vec::new());

/// Called by each object file before `main`. The name is LLVM's.
///
/// # Safety
/// The bytes from `start` to `stop` are counters, and stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let (start, bytes) = (start as usize, stop as usize - start as usize);
    if let Ok(mut parts) = PARTS.lock()
        && !parts.iter().any(|part| part.start == start)
    {
        parts.push(Part { start, bytes });
    }
}

/// Also called by each object file, with where the counted edges are.
///
/// # Safety
/// Nothing is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_pcs_init(_: *const u8, _: *const u8) {}

/// What was seen of each edge: how often one input took it, as a set of ranges.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    seen: Vec<u8>,
    edges: usize,
}

impl Coverage {
    /// The compiler counts.
    pub(crate) fn is_known() -> bool {
        PARTS.lock().is_ok_and(|parts| !parts.is_empty())
    }

    /// Begins an input.
    pub(crate) fn clear() {
        each(|counters| counters.fill(0));
    }

    /// The input that ended came to something new.
    pub(crate) fn add(&mut self) -> bool {
        let (mut at, mut new) = (0, false);
        each(|counters| {
            let end = at + counters.len();
            if self.seen.len() < end {
                self.seen.resize(end, 0);
            }
            for (counter, seen) in counters.iter().zip(&mut self.seen[at..end]) {
                if *counter == 0 {
                    continue;
                }
                // 1, 2, 3 to 4, to 8, 16, 32, 128, more: as other fuzzers do, so that loops count
                // by their order only.
                let range = 1u8 << (8 - counter.leading_zeros()).saturating_sub(1).min(7);
                if *seen & range == 0 {
                    self.edges += usize::from(*seen == 0);
                    *seen |= range;
                    new = true;
                }
            }
            at = end;
        });
        new
    }

    /// Edges that were taken.
    pub(crate) fn edges(&self) -> usize {
        self.edges
    }
}

fn each(mut work: impl FnMut(&mut [u8])) {
    let Ok(parts) = PARTS.lock() else { return };
    for part in parts.iter() {
        // SAFETY: the object file announced them. Threads beside this one may count, too: an edge
        // more or less is no harm, and code that counts is compiled as plain stores by LLVM, which
        // no Rust code refers to.
        work(unsafe { std::slice::from_raw_parts_mut(part.start as *mut u8, part.bytes) });
    }
}
