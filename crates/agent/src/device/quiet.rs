//! Is nothing with programs running, and can nothing begin? Then, and only then, maps can be made
//! anew (`compaction`).
//!
//! The driver does not say when a kernel ends. So each launch of a variant notes its stream here
//! before it is made, and the question is put to those streams (`cuStreamQuery`) behind a gate at
//! which launches turn aside to the original. What cannot be known this way makes the answer no,
//! for good: a stream of which no other thread can ask (`CU_STREAM_PER_THREAD`), more streams than
//! there is room for, one that was destroyed with work in it, and captures, because a graph can be
//! launched at any time and unseen.
//!
//! A launch costs two additions to a word more, and looks at one other; without a map that it
//! matters for, it looks at one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_driver::sys::CUstream;
use warpbpf_driver::{Driver, Stream};

use crate::kernels::stream_name::{LEGACY_STREAM, is_per_thread};

/// Streams that are kept in mind at once.
const STREAMS: usize = 256;
/// A place whose stream is gone; no stream has this handle.
const GONE: usize = usize::MAX;
/// A launch that was let through, in [`Quiet::passes`]; the lower half counts those that are under
/// way.
const PASSED: u64 = 1 << 32;
/// How long launches that are under way are waited for, behind the gate.
const PATIENCE: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// It matters.
    watched: AtomicBool,
    /// Launches turn aside.
    closed: AtomicBool,
    passes: AtomicU64,
    /// Handles of streams that had launches since all was quiet last; 0 where none is.
    streams: [AtomicUsize; STREAMS],
    /// It will never be known again.
    lost: AtomicBool,
    /// Held while streams are asked and while one goes away.
    asking: Mutex<()>,
}

/// A launch is under way while this lives.
#[derive(Debug)]
pub(crate) struct Pass<'q>(Option<&'q Quiet>);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(quiet) = self.0 {
            quiet.passes.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The gate is closed while this lives, and no launch is under way.
#[derive(Debug)]
pub(crate) struct Closed<'q>(&'q Quiet);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.store(false, Ordering::SeqCst);
    }
}

impl Default for Quiet {
    fn default() -> Quiet {
        Quiet {
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            passes: AtomicU64::new(0),
            streams: [const { AtomicUsize::new(0) }; STREAMS],
            lost: AtomicBool::new(false),
            asking: Mutex::new(()),
        }
    }
}

impl Quiet {
    /// There are maps that it matters for. Before the first launch of a variant.
    pub(crate) fn watch(&self) {
        self.watched.store(true, Ordering::SeqCst);
    }

    /// It matters no more. Takes no lock, so it may be called in a forked child.
    pub(crate) fn forget(&self) {
        self.watched.store(false, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// It can still be known.
    pub(crate) fn can_be_known(&self) -> bool {
        self.is_watched() && !self.lost.load(Ordering::SeqCst)
    }

    /// It will never be known again: work may come that is not seen.
    pub(crate) fn give_up(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// A stream is about to be captured, which must not be asked anything then, and a graph can be
    /// launched at any time. `noted` has been called when nobody asks: the driver may take its time
    /// over the capture, so nobody is kept from asking meanwhile.
    pub(crate) fn capture_begins<T>(&self, noted: impl FnOnce() -> T) -> T {
        self.give_up();
        let _asking = self.asking();
        noted()
    }

    /// A launch in this stream, as [`crate::kernels::stream_name`] has it, begins; `None` while the
    /// gate is closed.
    #[inline]
    pub(crate) fn enter(&self, stream: Stream) -> Option<Pass<'_>> {
        if !self.is_watched() {
            return Some(Pass(None));
        }
        // In one order with the gate: who closes it sees this launch, or this launch sees it
        // closed.
        self.passes.fetch_add(PASSED + 1, Ordering::SeqCst);
        let pass = Pass(Some(self));
        if self.closed.load(Ordering::SeqCst) {
            return None;
        }
        self.note(stream);
        Some(pass)
    }

    /// Launches that began so far, and those under way.
    pub(crate) fn passes(&self) -> (u32, u32) {
        let passes = self.passes.load(Ordering::SeqCst);
        ((passes >> 32) as u32, passes as u32)
    }

    fn note(&self, stream: Stream) {
        if is_per_thread(stream) {
            return self.give_up();
        }
        let handle = (stream.0 as usize).max(LEGACY_STREAM);
        let first = (handle >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        for at in 0..STREAMS {
            let place = &self.streams[(first + at) % STREAMS];
            match place.load(Ordering::Acquire) {
                there if there == handle => return,
                0 => match place.compare_exchange(0, handle, Ordering::SeqCst, Ordering::Acquire) {
                    Ok(_) => return,
                    Err(there) if there == handle => return,
                    Err(_) => {}
                },
                _ => {}
            }
        }
        self.give_up();
    }

    /// No capture begins and no stream goes away while this lives.
    pub(crate) fn asking(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has launches turn aside, unless one is under way that does not end at once.
    pub(crate) fn close(&self) -> Option<Closed<'_>> {
        if !self.can_be_known() || self.passes().1 != 0 {
            return None;
        }
        self.closed.store(true, Ordering::SeqCst);
        let closed = Closed(self);
        let since = Instant::now();
        while self.passes().1 != 0 {
            if since.elapsed() > PATIENCE {
                return None;
            }
            std::hint::spin_loop();
        }
        Some(closed)
    }

    /// Asks all streams whether they are done. The context that they are in is current.
    pub(crate) fn is_quiet(&self, driver: &Driver, _closed: &Closed<'_>) -> bool {
        let _asking = self.asking();
        if !self.can_be_known() {
            return false;
        }
        let idle = |place: &AtomicUsize| match place.load(Ordering::SeqCst) {
            0 | GONE => true,
            handle => driver.relaxed(|| is_idle(driver, handle)),
        };
        if !self.streams.iter().all(idle) {
            return false;
        }
        // Nobody adds any: the gate is closed.
        for place in &self.streams {
            place.store(0, Ordering::SeqCst);
        }
        true
    }

    /// The application is about to destroy a stream. It is asked while it still can be.
    pub(crate) fn stream_goes(&self, driver: &Driver, handle: usize) {
        for place in &self.streams {
            if place.load(Ordering::SeqCst) != handle {
                continue;
            }
            if driver.relaxed(|| is_idle(driver, handle)) {
                place.store(GONE, Ordering::SeqCst);
            } else {
                self.give_up();
            }
        }
    }
}

fn is_idle(driver: &Driver, handle: usize) -> bool {
    matches!(driver.is_idle(Stream(handle as CUstream)), Ok(true))
}

/// Without a hook on this function of the driver, streams could end and graphs begin unseen.
pub(crate) fn needs(symbol: &str) -> bool {
    symbol.starts_with("cuStreamBeginCapture") || symbol.starts_with("cuStreamDestroy")
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn stream(handle: usize) -> Stream {
        Stream(handle as CUstream)
    }

    fn noted(quiet: &Quiet) -> Vec<usize> {
        let all = quiet.streams.iter().map(|p| p.load(Ordering::SeqCst));
        let mut there: Vec<usize> = all.filter(|handle| *handle != 0).collect();
        there.sort_unstable();
        there
    }

    #[test]
    fn launches_note_their_streams_once() {
        let quiet = Quiet::default();
        drop(quiet.enter(stream(0x100)));
        assert_eq!(
            (noted(&quiet), quiet.passes()),
            (vec![], (0, 0)),
            "nobody asks"
        );
        quiet.watch();
        for handle in [0x100, 0x200, 0x100, 0] {
            drop(quiet.enter(stream(handle)).unwrap());
        }
        // The legacy stream, by its other name.
        assert_eq!(noted(&quiet), [1, 0x100, 0x200]);
        assert_eq!(quiet.passes(), (4, 0));
        assert!(quiet.can_be_known());
    }

    #[test]
    fn a_closed_gate_turns_launches_aside() {
        let quiet = Quiet::default();
        quiet.watch();
        let under_way = quiet.enter(stream(0x100)).unwrap();
        assert!(quiet.close().is_none(), "a launch is under way");
        assert!(quiet.enter(stream(0x200)).is_some(), "and the gate is open");
        drop(under_way);
        let closed = quiet.close().unwrap();
        assert!(quiet.enter(stream(0x300)).is_none());
        assert_eq!(noted(&quiet), [0x100, 0x200]);
        assert_eq!(quiet.passes().1, 0);
        drop(closed);
        assert!(quiet.enter(stream(0x300)).is_some());
    }

    #[test]
    fn what_cannot_be_known_is_never_quiet() {
        let own_of_a_thread = crate::kernels::stream_name::stream_key(ptr::null_mut(), true);
        let quiet = Quiet::default();
        quiet.watch();
        drop(quiet.enter(own_of_a_thread));
        assert!(!quiet.can_be_known() && quiet.close().is_none());
        // Too many streams.
        let quiet = Quiet::default();
        quiet.watch();
        for handle in 0..STREAMS {
            drop(quiet.enter(stream((handle + 16) * 16)));
        }
        assert!(quiet.can_be_known());
        assert_eq!(noted(&quiet).len(), STREAMS);
        drop(quiet.enter(stream(0x10_0000)));
        assert!(!quiet.can_be_known());
        let quiet = Quiet::default();
        quiet.watch();
        quiet.forget();
        assert!(quiet.close().is_none(), "nobody asks any more");
    }

    #[test]
    fn the_gate_and_launches_never_meet() {
        // What launches and the one who closes the gate do to the same thing; a torn pair would be
        // seen.
        let quiet = Quiet::default();
        quiet.watch();
        let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        let (turned, closed) = std::thread::scope(|scope| {
            let launches: Vec<_> = (0..2)
                .map(|thread| {
                    let (quiet, left, right, stop) = (&quiet, &left, &right, &stop);
                    scope.spawn(move || {
                        let (mut turned, mut passed) = (0u64, 0u64);
                        while !stop.load(Ordering::Acquire) || passed == 0 {
                            match quiet.enter(stream(0x100 + thread * 16)) {
                                Some(_pass) => {
                                    left.fetch_add(1, Ordering::Relaxed);
                                    right.fetch_add(1, Ordering::Relaxed);
                                    passed += 1;
                                }
                                None => turned += 1,
                            }
                            std::thread::yield_now();
                        }
                        turned
                    })
                })
                .collect();
            let mut closed = 0;
            while closed < 2000 {
                if let Some(_gate) = quiet.close() {
                    let (a, b) = (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
                    assert_eq!(a, b);
                    closed += 1;
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Release);
            let turned: u64 = launches.into_iter().map(|t| t.join().unwrap()).sum();
            (turned, closed)
        });
        assert_eq!(closed, 2000);
        assert_eq!(quiet.passes().1, 0, "{turned} turned aside");
    }
}
