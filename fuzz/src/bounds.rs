//! What an input may cost, measured: the thread's CPU time and what it has allocated. What goes
//! beyond cannot be ended from within, so the process is, with the input in a file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What one input may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// CPU time of the thread.
    pub time: Duration,
    /// Bytes allocated at once.
    pub bytes: usize,
    /// And so many more for each byte of the input.
    pub per_byte: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            time: Duration::from_secs(5),
            bytes: 16 << 20,
            per_byte: 256,
        }
    }
}

impl Bounds {
    fn for_input(&self, input: &[u8]) -> usize {
        self.bytes
            .saturating_add(self.per_byte.saturating_mul(input.len()))
    }
}

thread_local! {
    /// Bytes that the thread has allocated and not freed since its input began; negative if it
    /// frees what was there before.
    static USED: Cell<isize> = const { Cell::new(0) };
    /// Most that it may have; 0 where nothing is bounded.
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// An allocator that counts.
#[derive(Debug, Clone, Copy)]
pub struct Counting;

impl Counting {
    fn count(by: isize) {
        // A thread that ends has no counters any more.
        let _ = MOST.try_with(|most| {
            // What a panic prints, with a backtrace, is not the input's.
            if most.get() == 0 || std::thread::panicking() {
                return;
            }
            let used = USED.get().saturating_add(by);
            USED.set(used);
            if used > most.get() as isize {
                let bound = most.replace(0);
                die(&format!(
                    "it allocates {used} bytes at once, and {bound} are its bound"
                ));
            }
        });
    }
}

// SAFETY: all is the system's allocator's; counting allocates nothing but when the process ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Counting::count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The input under test and where it goes if it ends the process. Targets of one test program may
/// run side by side: one at a time has it.
static UNDER_TEST: Mutex<Option<(PathBuf, Vec<u8>)>> = Mutex::new(None);

fn die(why: &str) -> ! {
    let under_test = UNDER_TEST.lock().ok().and_then(|mut there| there.take());
    let told = under_test.map(|(path, input)| match std::fs::write(&path, input) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{}: {error}", path.display()),
    });
    let text = format!(
        "fuzz: an input does harm: {why}; input: {}\n",
        told.unwrap_or_default()
    );
    // SAFETY: the bytes are there.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    std::process::abort()
}

/// The CPU time of a thread's clock, in nanoseconds.
fn cpu(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to `time` only; a clock that is gone leaves 0 there.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of this thread.
pub(crate) fn own_cpu() -> Duration {
    Duration::from_nanos(cpu(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Looks after the thread that made it.
#[derive(Debug)]
pub(crate) struct Watch {
    bounds: Bounds,
    stop: std::sync::Arc<(AtomicBool, AtomicU64)>,
    faulty: PathBuf,
    /// Others wait until this one is done.
    _alone: std::sync::MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Watch {
    /// Begins; an input that ends the process goes to `faulty`.
    pub(crate) fn new(bounds: Bounds, faulty: PathBuf) -> Watch {
        let alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
        let stop = std::sync::Arc::new((AtomicBool::new(false), AtomicU64::new(u64::MAX)));
        let mut clock = 0;
        // SAFETY: this thread lives, and `clock` is written.
        let known = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } == 0;
        let (seen, most) = (std::sync::Arc::clone(&stop), bounds.time);
        std::thread::spawn(move || {
            while known && !seen.0.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let began = seen.1.load(Ordering::Relaxed);
                // Twice its time: what comes to an end is told by a panic, with a stack.
                if cpu(clock) > began.saturating_add(2 * most.as_nanos() as u64)
                    && seen.1.load(Ordering::Relaxed) == began
                {
                    die(&format!("it runs for more than {most:?}"));
                }
            }
        });
        Watch {
            bounds,
            stop,
            faulty,
            _alone: alone,
        }
    }

    /// One input: what `work` gives, unless it costs too much.
    ///
    /// # Panics
    /// It took too long.
    pub(crate) fn bounded<T>(&self, input: &[u8], work: impl FnOnce() -> T) -> T {
        *UNDER_TEST
            .lock()
            .unwrap_or_else(|broken| broken.into_inner()) =
            Some((self.faulty.clone(), input.to_vec()));
        let began = own_cpu();
        self.stop
            .1
            .store(began.as_nanos() as u64, Ordering::Relaxed);
        USED.set(0);
        MOST.set(self.bounds.for_input(input));
        let ends = Ends;
        let result = work();
        drop(ends);
        self.stop.1.store(u64::MAX, Ordering::Relaxed);
        let took = own_cpu() - began;
        assert!(
            took <= self.bounds.time,
            "it took {took:?}, and {:?} is its bound",
            self.bounds.time
        );
        result
    }
}

/// Ends the bound, also where there is a panic.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        MOST.set(0);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        self.stop.1.store(u64::MAX, Ordering::Relaxed);
    }
}
