//! Descriptors of ours in the application's table.
//!
//! An application may close every descriptor that it does not know (`closefrom`), and opens files
//! whose numbers were ours a moment before; started with 0, 1 or 2 closed, it takes what we open
//! for its standard output. So those that we keep have numbers that its next files do not get, and
//! each is compared with what was opened (device and inode) before it is read, written or closed. A
//! wake-up needs none.
//!
//! A thread with a table of its own would be safe from all that, and cannot call NVIDIA's driver,
//! which has its descriptors in the application's (`CUDA_ERROR_OPERATING_SYSTEM`,
//! docs/measurements.md).
//!
//! What a limit on the size of files may answer with a signal is done on a thread of ours, to which
//! none is delivered.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, getrlimit};
use rustix::thread::futex;
pub(crate) use warpbpf_descriptor::{Identity, OwnDescriptor};
use warpbpf_hook::without_xfsz;

use crate::sys::lock::lock;
use crate::sys::thread;

/// From here on are numbers of ours; where the application's limit is lower, as far below it as a
/// session has descriptors.
const HIGH: RawFd = 900;
const BELOW_LIMIT: RawFd = 32;

thread_local! {
    /// This is such a thread. No destructor, so it can be read while the thread ends.
    static IS_THEIRS: Cell<bool> = const { Cell::new(false) };
}

type Job = Box<dyn FnOnce() + Send>;

/// Descriptors of a session, and the thread that works with them for others.
#[derive(Debug)]
pub(crate) struct FileThread {
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
    notify: [ManuallyDrop<OwnedFd>; 2],
    identities: [Identity; 2],
}

impl Ready {
    fn end(&self, number: usize) -> Option<BorrowedFd<'_>> {
        let fd = self.notify[number].as_fd();
        self.identities[number].is(fd).then_some(fd)
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

impl FileThread {
    /// Starts the thread. `kept` is a descriptor that is kept by another number: the caller's own
    /// is still open and the caller's to close.
    ///
    /// # Errors
    /// The system's: there is no thread, or nothing to wake another by.
    pub(crate) fn start(
        kept: Option<BorrowedFd<'_>>,
    ) -> Result<(Arc<FileThread>, Option<OwnDescriptor>), Errno> {
        let thread = Arc::new(FileThread {
            pid: std::process::id(),
            ready: OnceLock::new(),
            jobs: Mutex::default(),
            word: AtomicU32::new(0),
            rung: AtomicBool::new(false),
        });
        let kept = kept.map(|fd| fd.as_raw_fd());
        let (sender, receiver) = mpsc::sync_channel(1);
        let own = Arc::clone(&thread);
        thread::start_without_agent("warpbpf-files", move || {
            let begun = own.begin(kept);
            let is_here = begun.is_ok();
            if sender.send(begun).is_ok() && is_here {
                let _over = Over(&own);
                own.work();
            }
        })
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        // Nothing comes from a thread that panicked.
        let kept = receiver.recv().unwrap_or(Err(Errno::CANCELED))?;
        Ok((thread, kept))
    }

    /// On the thread: what there is from the beginning.
    fn begin(&self, kept: Option<RawFd>) -> Result<Option<OwnDescriptor>, Errno> {
        IS_THEIRS.set(true);
        let kept = match kept {
            None => None,
            // `EBADF` if the application has closed it.
            Some(fd) => {
                // SAFETY: the caller of `start` has opened it, and waits.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                Some(keep(rustix::io::fcntl_dupfd_cloexec(fd, 0)?))
            }
        };
        warpbpf_faults::check("agent/notify", || Errno::MFILE)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (read, write) = (keep(read), keep(write));
        let (read, write) = (read.into_fd()?, write.into_fd()?);
        let _ = self.ready.set(Ready {
            identities: [Identity::of(read.as_fd()), Identity::of(write.as_fd())],
            notify: [ManuallyDrop::new(read), ManuallyDrop::new(write)],
        });
        Ok(kept)
    }

    /// The thread: does what others ask for until the session is over.
    fn work(&self) {
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if self.rung.swap(false, Ordering::AcqRel)
                && let Some(notify) = self.ready.get().and_then(|ready| ready.end(1))
            {
                // It fails if there is no room: whoever reads it is awake anyway.
                let _ = rustix::io::write(notify, &[0]);
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
            (None, Some(work)) => without_xfsz(work),
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
        let (sender, receiver) = mpsc::sync_channel(1);
        let job = move || {
            let work = work.take();
            let result = catch_unwind(AssertUnwindSafe(|| work.map(|work| work())));
            // It is waited for.
            let _ = sender.send(result);
        };
        let job: Box<dyn FnOnce() + Send + '_> = Box::new(job);
        // SAFETY: only the lifetime changes. This call returns when the job has given its result,
        // behind which it looks at nothing that it borrows, or when it was dropped.
        let job: Job = unsafe { std::mem::transmute(job) };
        if !self.push(job) {
            return None;
        }
        match receiver.recv() {
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
    pub(crate) fn notify(&self) -> Option<BorrowedFd<'_>> {
        self.ready.get()?.end(0)
    }

    /// The thread ends when it has done what it was asked for. What needs a descriptor from now on
    /// is done by its caller.
    pub(crate) fn close(&self) {
        lock(&self.jobs).is_over = true;
        self.knock();
    }
}

/// The thread ends: what it was asked for meanwhile is dropped, so that nobody waits for it, and
/// nobody is woken any more.
struct Over<'t>(&'t FileThread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let left = {
            let mut jobs = lock(&self.0.jobs);
            jobs.is_over = true;
            std::mem::take(&mut jobs.waiting)
        };
        drop(left);
        // An agent may live on as long as the process, and there may be many one after the other.
        if let Some(ready) = self.0.ready.get() {
            for (fd, identity) in ready.notify.iter().zip(ready.identities) {
                identity.close(fd.as_raw_fd());
            }
        }
    }
}

/// Takes what was made just now, and keeps it by a number that the application's next files do not
/// get; as it is where there is none.
pub(crate) fn keep(fd: OwnedFd) -> OwnDescriptor {
    let made = OwnDescriptor::new(fd);
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or(RawFd::MAX, |limit| {
        RawFd::try_from(limit).unwrap_or(RawFd::MAX)
    });
    // Beyond 2 in any case: those have a meaning.
    let high = HIGH.min(limit.saturating_sub(BELOW_LIMIT)).max(3);
    let placed = match made.here() {
        Ok(fd) if fd.as_raw_fd() < high => rustix::io::fcntl_dupfd_cloexec(fd, high).ok(),
        _ => None,
    };
    placed.map_or(made, OwnDescriptor::new)
}

/// Another one for the same.
pub(crate) fn again(own: &OwnDescriptor) -> Option<OwnDescriptor> {
    Some(keep(own.get()?.try_clone_to_owned().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn one_goes_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (thread, kept) = FileThread::start(Some(ours.as_fd())).unwrap();
        drop(ours);
        let kept = kept.unwrap();
        assert!(kept.get().unwrap().as_raw_fd() >= HIGH);
        thread.run(|| {
            let mut here = UnixStream::from(kept.into_fd().unwrap());
            here.write_all(b"hello").unwrap();
        });
        let mut text = String::new();
        // It is closed there, and was closed here.
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        thread.close();
    }

    #[test]
    fn a_ring_is_heard() {
        let (thread, _) = FileThread::start(None).unwrap();
        thread.ring();
        thread.run(|| {
            let mut byte = [0];
            // The ring came before this.
            assert_eq!(rustix::io::read(thread.notify().unwrap(), &mut byte), Ok(1));
            assert_eq!(
                rustix::io::read(thread.notify().unwrap(), &mut byte),
                Err(Errno::AGAIN)
            );
        });
        thread.close();
    }

    #[test]
    fn a_panic_comes_back_and_the_thread_goes_on() {
        let (thread, _) = FileThread::start(None).unwrap();
        let said = catch_unwind(AssertUnwindSafe(|| thread.run(|| -> u32 { panic!("so") })));
        assert_eq!(*said.unwrap_err().downcast::<&str>().unwrap(), "so");
        assert_eq!(thread.run(|| 7), 7);
        thread.close();
        // Nobody is there any more: it is done here.
        while thread.run(std::thread::current).name() == Some("warpbpf-files") {
            std::thread::yield_now();
        }
    }
}
