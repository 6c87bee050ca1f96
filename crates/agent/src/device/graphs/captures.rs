//! Which captures go on: a captured launch is no launch yet, and while anything is captured a
//! context can be neither waited for nor marked.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use warpbpf_driver::sys::{self, CUresult, CUstream};
use warpbpf_driver::{Context, Driver, Stream};

use crate::kernels::stream_name::{StreamName, is_per_thread};
use crate::sys::lock::lock;

/// Contexts, and streams in them (as [`StreamName::key`] has them) that are captured.
type Open = BTreeMap<(usize, usize), Capture>;

/// A stream that is captured.
#[derive(Debug, Clone, Copy)]
struct Capture {
    /// The thread that said so.
    thread: libc::pid_t,
    since: Instant,
}

impl Capture {
    fn now() -> Capture {
        Capture {
            // SAFETY: it has no conditions.
            thread: unsafe { libc::gettid() },
            since: Instant::now(),
        }
    }
}

/// For so long after hooks came in a capture may be open of which nobody has heard.
const HIDDEN: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    open: Mutex<Open>,
    n_open: AtomicUsize,
    /// The driver is beginning some.
    beginning: AtomicUsize,
    /// Some may have begun before any hook was in.
    unseen: AtomicBool,
    /// When hooks came in.
    came: OnceLock<Instant>,
}

/// One is beginning while this lives.
#[derive(Debug)]
pub(crate) struct Begins<'c>(&'c Captures);

impl Drop for Begins<'_> {
    fn drop(&mut self) {
        self.0.beginning.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Captures {
    /// We come while the application runs.
    pub(crate) fn come_late(&self) {
        self.unseen.store(true, Ordering::Relaxed);
        self.came.get_or_init(Instant::now);
    }

    /// One may be open that began before us, and into which nothing was launched since. They take
    /// as long as the host needs to say what is in a graph.
    pub(crate) fn may_hide_some(&self) -> bool {
        self.came.get().is_some_and(|came| came.elapsed() < HIDDEN)
    }

    /// Some may have begun before us.
    #[inline]
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen.load(Ordering::Relaxed)
    }

    /// There may be some. Two loads where we came first, which is what launches pay.
    #[inline]
    pub(crate) fn may_be_any(&self) -> bool {
        self.is_used() || self.is_unseen()
    }

    /// There is one whose stream has to be known.
    pub(crate) fn is_used(&self) -> bool {
        self.n_open.load(Ordering::Relaxed) > 0
    }

    /// Whoever has [`crate::device::quiet::Quiet::asking`] knows of it from here on.
    pub(crate) fn begins(&self) -> Begins<'_> {
        self.beginning.fetch_add(1, Ordering::SeqCst);
        Begins(self)
    }

    fn change(&self, change: impl FnOnce(&mut Open)) {
        let mut open = lock(&self.open);
        change(&mut open);
        self.n_open.store(open.len(), Ordering::SeqCst);
    }

    /// A capture begins in a stream, or ends there.
    pub(crate) fn note(&self, context: usize, stream: Stream, goes_on: bool) {
        let key = (context, stream.0 as usize);
        self.change(|open| match goes_on {
            true => {
                open.insert(key, Capture::now());
            }
            false => {
                open.remove(&key);
            }
        });
    }

    /// A stream was found to be captured.
    pub(crate) fn found(&self, driver: &Driver, stream: StreamName) {
        if !self.is_unseen() {
            // Where it began is known, and where it went from there ends with that.
            return;
        }
        let key = stream.key();
        // Nobody else can ask a thread's own stream whether it still is: it may have come into a
        // capture that is known.
        if !is_per_thread(key) || !self.is_used() {
            let key = (current(driver), key.0 as usize);
            // The same as before, as a rule.
            self.change(|open| {
                open.entry(key).or_insert_with(Capture::now);
            });
        }
    }

    /// A stream was found not to be captured.
    pub(crate) fn not_found(&self, driver: &Driver, stream: StreamName) {
        let key = stream.key();
        if is_per_thread(key) && self.is_used() {
            self.note(current(driver), key, false);
        }
    }

    /// Anything is captured, for all that can be known. Who asks has
    /// [`crate::device::quiet::Quiet::asking`]: none begins meanwhile, and no stream goes away.
    pub(crate) fn is_any(&self, driver: &Driver) -> bool {
        if self.beginning.load(Ordering::SeqCst) > 0 {
            return true;
        }
        if !self.is_used() {
            return false;
        }
        let open = lock(&self.open).clone();
        let over = |((context, stream), Capture { thread, .. }): &((usize, usize), Capture)| {
            let (context, stream) = (Context(*context as *mut _), Stream(*stream as *mut _));
            match is_per_thread(stream) {
                // Only that thread can ask; its end is seen.
                true => !Path::new(&format!("/proc/self/task/{thread}")).exists(),
                false => driver.within(context, || has_ended(driver, stream)) == Some(true),
            }
        };
        let over = open.into_iter().filter(over);
        let over: Vec<(usize, usize)> = over.map(|(key, _)| key).collect();
        self.change(|open| open.retain(|key, _| !over.contains(key)));
        self.is_used()
    }

    /// One goes on for so long.
    pub(crate) fn has_one_of(&self, age: Duration) -> bool {
        let open = lock(&self.open);
        open.values().any(|capture| capture.since.elapsed() >= age)
    }

    /// The application is about to destroy a stream, and its capture with it.
    pub(crate) fn stream_goes(&self, stream: usize) {
        if self.is_used() && stream != 0 {
            self.change(|open| open.retain(|(_, of), _| *of != stream));
        }
    }

    /// A context ends, and what is captured there.
    pub(crate) fn context_gone(&self, context: usize) {
        if self.is_used() {
            self.change(|open| open.retain(|(of, _), _| *of != context));
        }
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.n_open.store(0, Ordering::Relaxed);
        self.beginning.store(0, Ordering::Relaxed);
        self.unseen.store(false, Ordering::Relaxed);
    }
}

fn has_ended(driver: &Driver, stream: Stream) -> bool {
    let name = StreamName {
        stream: stream.0 as CUstream,
        null_is_per_thread: false,
    };
    driver.relaxed(|| is_capturing(driver, name)) == Ok(false)
}

/// The current context, where streams are that are captured; 0 if there is none.
pub(crate) fn current(driver: &Driver) -> usize {
    driver.current().map_or(0, |context| context.0 as usize)
}

/// Whether a stream is captured, or what the driver says instead.
pub(crate) fn is_capturing(driver: &Driver, stream: StreamName) -> Result<bool, CUresult> {
    let mut status: c_int = 0;
    // SAFETY: the application's stream, a writable local.
    let code = unsafe { (driver.api.stream_capturing)(stream.handle(), &mut status) };
    match code {
        sys::SUCCESS => Ok(status != 0),
        code => Err(code),
    }
}

/// Without a hook on this function of the driver, kernels come into graphs, or are looked at there,
/// unseen.
pub(crate) fn needs(symbol: &str) -> bool {
    ["cuGraph", "cuStreamBeginCapture", "cuStreamEndCapture"]
        .iter()
        .any(|name| symbol.starts_with(name))
}
