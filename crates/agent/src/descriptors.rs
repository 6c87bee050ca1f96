//! Descriptors of ours in the application's table.
//!
//! An application may close every descriptor that it does not know (`closefrom`), and opens files whose numbers were ours a moment
//! before; started with 0, 1 or 2 closed, it takes what we open for its standard output. So ours have numbers that its next files do not
//! get, and each is compared with what was opened (device and inode) before it is read, written or closed. A wake-up needs none.
//!
//! A thread with a table of its own would be safe from all that, and cannot call NVIDIA's driver, which has its descriptors in the application's
//! (`CUDA_ERROR_OPERATING_SYSTEM`, docs/measurements.md). What needs a descriptor, and nothing of the driver, is done on a thread of
//! ours: no signal that a call brings is delivered there.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};

use rustix::io::Errno;
use rustix::thread::futex;

use crate::lock::lock;
use crate::thread;

/// From here on are numbers of ours, if the limit of the application allows that.
const HIGH: RawFd = 900;

/// What the session that began last has, for those who know of no session.
static CURRENT: RwLock<Option<Arc<Table>>> = RwLock::new(None);

thread_local! {
    /// This thread works with descriptors for others. No destructor, so it can be read while the thread ends.
    static IS_THEIRS: Cell<bool> = const { Cell::new(false) };
}

type Job = Box<dyn FnOnce() + Send>;

/// Descriptors of a session, and the thread that works with them for others.
#[derive(Debug)]
pub(crate) struct Table {
    /// The process whose thread that is: a forked child has none.
    pid: u32,
    ready: OnceLock<Ready>,
    jobs: Mutex<Jobs>,
    /// Changed by whoever wants something of the thread, which sleeps on it.
    word: AtomicU32,
    rung: AtomicBool,
}

#[derive(Debug)]
struct Ready {
    /// Both ends of what wakes the thread that speaks with the tool.
    bell: [ManuallyDrop<OwnedFd>; 2],
    places: [Place; 2],
}

impl Ready {
    fn end(&self, number: usize) -> Option<BorrowedFd<'_>> {
        let fd = self.bell[number].as_fd();
        self.places[number].is(fd).then_some(fd)
    }
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_over: bool,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs")
            .field("waiting", &self.waiting.len())
            .field("is_over", &self.is_over)
            .finish()
    }
}

/// A descriptor of ours. It is closed where it is, whoever drops this.
#[derive(Debug)]
pub(crate) struct OwnDescriptor {
    fd: Option<OwnedFd>,
    place: Place,
}

/// Where a descriptor is, and what it was when it was made: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    identity: Option<(u64, u64)>,
}

/// Runs `work` where descriptors of ours are.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if IS_THEIRS.get() {
        return work();
    }
    // A forked child may find the lock held by a thread that it does not have.
    let current = CURRENT.try_read().ok().and_then(|table| table.clone());
    match current {
        Some(table) => table.run(work),
        None => work(),
    }
}

impl Table {
    /// Starts the thread, which is what [`run`] takes from now on. `kept` is a descriptor that is kept by another number: the caller's own is still
    /// open and the caller's to close.
    ///
    /// # Errors
    /// The system's: there is no thread, or nothing to wake another by.
    pub(crate) fn start(
        kept: Option<BorrowedFd<'_>>,
    ) -> Result<(Arc<Table>, Option<OwnDescriptor>), Errno> {
        let table = Arc::new(Table {
            pid: std::process::id(),
            ready: OnceLock::new(),
            jobs: Mutex::default(),
            word: AtomicU32::new(0),
            rung: AtomicBool::new(false),
        });
        let kept = kept.map(|fd| fd.as_raw_fd());
        let (tell, told) = mpsc::sync_channel(1);
        let own = Arc::clone(&table);
        thread::start("warpbpf-files", move || {
            let begun = own.begin(kept);
            let is_here = begun.is_ok();
            if tell.send(begun).is_ok() && is_here {
                let _over = Over(&own);
                own.work();
            }
        })
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        // Nothing comes from a thread that panicked.
        let kept = told.recv().unwrap_or(Err(Errno::CANCELED))?;
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&table));
        Ok((table, kept))
    }

    /// On the thread: what there is from the beginning.
    fn begin(&self, kept: Option<RawFd>) -> Result<Option<OwnDescriptor>, Errno> {
        IS_THEIRS.set(true);
        // SAFETY: only asked what it is; one that is not open is said to be none.
        let is_open = |fd: RawFd| identity(unsafe { BorrowedFd::borrow_raw(fd) }).is_some();
        let kept = match kept {
            None => None,
            // The application has closed it.
            Some(fd) if !is_open(fd) => return Err(Errno::BADF),
            Some(fd) => {
                // SAFETY: the caller of `start` has it open, and waits.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                Some(OwnDescriptor::new(rustix::io::fcntl_dupfd_cloexec(fd, 0)?))
            }
        };
        warpbpf_faults::check("agent/bell", || Errno::MFILE)?;
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
        let (read, write) = UnixStream::pair().map_err(errno)?;
        for end in [&read, &write] {
            end.set_nonblocking(true).map_err(errno)?;
        }
        let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
        let (read, write) = (placed(read), placed(write));
        let _ = self.ready.set(Ready {
            places: [Place::of(read.as_fd()), Place::of(write.as_fd())],
            bell: [ManuallyDrop::new(read), ManuallyDrop::new(write)],
        });
        Ok(kept)
    }

    /// The thread: does what others ask for until the session is over.
    fn work(&self) {
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if self.rung.swap(false, Ordering::AcqRel)
                && let Some(bell) = self.ready.get().and_then(|ready| ready.end(1))
            {
                // It fails if there is no room: whoever reads it is awake anyway.
                let _ = rustix::io::write(bell, &[0]);
            }
            let (job, is_over) = {
                let mut jobs = lock(&self.jobs);
                (jobs.waiting.pop_front(), jobs.is_over)
            };
            match job {
                Some(job) => job(),
                None if is_over => return,
                None => {
                    let flags = futex::Flags::PRIVATE;
                    // Whatever it says, the queue is looked at next.
                    let _ = futex::wait(&self.word, flags, seen, None);
                }
            }
        }
    }

    /// Runs `work` on the thread, and waits for it; on the caller's where the thread is gone.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let mut work = Some(work);
        match (self.hand(&mut work), work) {
            (Some(done), _) => done,
            (None, Some(work)) => work(),
            (None, None) => unreachable!("what was not done is still there"),
        }
    }

    /// Has `work` taken and done. `None`, and it is still there, if the thread is gone.
    fn hand<T: Send, W: FnOnce() -> T + Send>(&self, work: &mut Option<W>) -> Option<T> {
        if IS_THEIRS.get() {
            return work.take().map(|work| work());
        }
        if self.pid != std::process::id() {
            return None;
        }
        let (tell, told) = mpsc::sync_channel(1);
        let job = move || {
            let work = work.take();
            let result = catch_unwind(AssertUnwindSafe(|| work.map(|work| work())));
            // It is waited for.
            let _ = tell.send(result);
        };
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(job);
        // SAFETY: only the lifetime changes. This call returns when the job has given its result, behind which it looks at nothing that it
        // borrows, or when it was dropped.
        let job: Job = unsafe { std::mem::transmute(job) };
        if !self.push(job) {
            return None;
        }
        match told.recv() {
            Ok(Ok(value)) => value,
            Ok(Err(payload)) => resume_unwind(payload),
            // The thread has ended, and it was not done.
            Err(_) => None,
        }
    }

    /// False, and it is dropped, if the thread takes no more.
    fn push(&self, job: Job) -> bool {
        {
            let mut jobs = lock(&self.jobs);
            if jobs.is_over {
                return false;
            }
            jobs.waiting.push_back(job);
        }
        self.knock();
        true
    }

    fn knock(&self) {
        self.word.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    /// Wakes the thread that speaks with the tool. No descriptor is used here.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.knock();
        }
    }

    /// What can be read when it was rung, if the application has not closed it.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.ready.get()?.end(0)
    }

    /// The thread ends when it has done what it was asked for. What needs a descriptor from now on is done by its caller.
    pub(crate) fn close(&self) {
        lock(&self.jobs).is_over = true;
        self.knock();
    }
}

/// The thread ends: what it was asked for meanwhile is dropped, so that nobody waits for it.
struct Over<'t>(&'t Table);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let left = {
            let mut jobs = lock(&self.0.jobs);
            jobs.is_over = true;
            std::mem::take(&mut jobs.waiting)
        };
        drop(left);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Nobody uses it any more.
        let Some(Ready { bell, places }) = self.ready.take() else {
            return;
        };
        for (fd, place) in bell.into_iter().zip(places) {
            if place.is(fd.as_fd()) {
                drop(ManuallyDrop::into_inner(fd));
            }
        }
    }
}

impl OwnDescriptor {
    /// Takes what was made just now.
    pub(crate) fn new(fd: OwnedFd) -> OwnDescriptor {
        let fd = placed(fd);
        OwnDescriptor {
            place: Place::of(fd.as_fd()),
            fd: Some(fd),
        }
    }

    /// The descriptor, if it is still the one that was made.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        self.place.is(fd).then_some(fd)
    }

    /// The same, to be kept.
    pub(crate) fn take(mut self) -> Option<OwnedFd> {
        self.get()?;
        self.fd.take()
    }

    /// Another one for the same.
    pub(crate) fn again(&self) -> Option<OwnDescriptor> {
        let again = self.get()?.try_clone_to_owned().ok()?;
        Some(OwnDescriptor::new(again))
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        match self.place.is(fd.as_fd()) {
            true => drop(fd),
            // The number is another's by now.
            false => std::mem::forget(fd),
        }
    }
}

impl Place {
    /// Of this one.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Place {
        Place {
            identity: identity(fd),
        }
    }

    /// Closes this number if it is still that descriptor. Nothing but system calls: for a child that was just forked.
    pub(crate) fn close(&self, number: RawFd) {
        // SAFETY: only asked what it is; one that is not open is said to be none.
        if self.is(unsafe { BorrowedFd::borrow_raw(number) }) {
            // SAFETY: the thread that owns the descriptor does not exist in this process.
            unsafe { libc::close(number) };
        }
    }

    /// This number is still that descriptor.
    pub(crate) fn is(&self, fd: BorrowedFd<'_>) -> bool {
        self.identity.is_some() && identity(fd) == self.identity
    }
}

/// What tells a socket, a pipe and a file in memory from all others.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let there = rustix::fs::fstat(fd).ok()?;
    Some((there.st_dev, there.st_ino))
}

/// The same file by a number that no application counts on; as it is where there is none.
pub(crate) fn placed(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() >= HIGH {
        return fd;
    }
    // Beyond 2 in any case: those have a meaning.
    let high = rustix::io::fcntl_dupfd_cloexec(&fd, HIGH);
    let high = high.or_else(|_| rustix::io::fcntl_dupfd_cloexec(&fd, 3));
    high.unwrap_or(fd)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::FromRawFd as _;

    use super::*;

    #[test]
    fn one_goes_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (table, kept) = Table::start(Some(ours.as_fd())).unwrap();
        drop(ours);
        let kept = kept.unwrap();
        assert!(kept.get().unwrap().as_raw_fd() >= HIGH);
        table.run(|| {
            let mut here = UnixStream::from(kept.take().unwrap());
            here.write_all(b"hello").unwrap();
        });
        let mut text = String::new();
        // It is closed there, and was closed here.
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        table.close();
    }

    #[test]
    fn a_ring_is_heard() {
        let (table, _) = Table::start(None).unwrap();
        table.ring();
        table.run(|| {
            let mut byte = [0];
            // The ring came before this.
            assert_eq!(rustix::io::read(table.bell().unwrap(), &mut byte), Ok(1));
            assert_eq!(
                rustix::io::read(table.bell().unwrap(), &mut byte),
                Err(Errno::AGAIN)
            );
        });
        table.close();
    }

    #[test]
    fn a_panic_comes_back_and_the_thread_goes_on() {
        let (table, _) = Table::start(None).unwrap();
        let said = catch_unwind(AssertUnwindSafe(|| table.run(|| -> u32 { panic!("so") })));
        assert_eq!(*said.unwrap_err().downcast::<&str>().unwrap(), "so");
        assert_eq!(table.run(|| 7), 7);
        table.close();
        // Nobody is there any more: it is done here.
        while table.run(std::thread::current).name() == Some("warpbpf-files") {
            std::thread::yield_now();
        }
    }

    /// What has the number by now is neither read nor closed.
    #[test]
    fn a_number_that_is_anothers_is_left_alone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let own = OwnDescriptor {
            place: Place::of(ours.as_fd()),
            fd: Some(ours.into()),
        };
        let number = own.fd.as_ref().unwrap().as_raw_fd();
        assert!(own.get().is_some());
        let (mut another, mut end) = UnixStream::pair().unwrap();
        // SAFETY: the number is ours, and stands for another socket from now on, as if it had been closed and opened.
        let copied = unsafe { libc::dup2(another.as_raw_fd(), number) };
        assert_eq!(copied, number);
        assert!(own.get().is_none());
        drop(own);
        // SAFETY: `dup2` made it, and the drop left it.
        let mut copy = unsafe { UnixStream::from_raw_fd(number) };
        copy.write_all(b"1").unwrap();
        another.write_all(b"2").unwrap();
        let mut got = [0; 2];
        end.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"12");
        drop(theirs);
    }
}
