//! Descriptors of ours, in a table that the application does not have.
//!
//! An application may close every descriptor that it does not know (`closefrom`), and opens files whose numbers were ours a moment
//! before; started with 0, 1 or 2 closed, it takes what we open for its standard output. So a thread of ours begins with a table of
//! descriptors of its own (close_range(2), `CLOSE_RANGE_UNSHARE`; unshare(2) where the kernel is older than 5.9), and every thread that is
//! started from there shares it. Whatever an application's thread needs of a descriptor it has done there.
//!
//! Where the system lets no thread have such a table, ours have high numbers in the application's, and each is compared with what was opened
//! before it is used or closed.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};

use rustix::io::Errno;
use rustix::thread::futex;

use crate::lock::lock;
use crate::thread;

/// `CLOSE_RANGE_UNSHARE`
const UNSHARE: libc::c_uint = 2;
/// From here on are numbers of ours in an application's table, if its limit allows that.
const HIGH: RawFd = 900;

/// The table of the session that began last, for those who know of no session.
static CURRENT: RwLock<Option<Arc<Table>>> = RwLock::new(None);

thread_local! {
    /// The table that this thread has. No destructor, so it can be read while the thread ends.
    static OF_THIS_THREAD: Cell<Name> = const { Cell::new(Name::APPLICATIONS) };
}

/// Which table it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    /// 0 for the application's own.
    number: u32,
    /// The application does not have it.
    is_private: bool,
}

impl Name {
    const APPLICATIONS: Name = Name {
        number: 0,
        is_private: false,
    };
}

type Job = Box<dyn FnOnce() + Send>;

/// A table of descriptors, and the thread that works with it for others.
#[derive(Debug)]
pub(crate) struct Table {
    number: u32,
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
    is_private: bool,
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
    pub(crate) table: Arc<Table>,
}

/// Where a descriptor is, and what it was when it was made: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    table: Name,
    identity: Option<(u64, u64)>,
}

/// Runs `work` where descriptors of ours are.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if OF_THIS_THREAD.get().number != 0 {
        return work();
    }
    // A forked child may find the lock held by a thread that it does not have.
    let current = CURRENT.try_read().ok().and_then(|table| table.clone());
    match current {
        Some(table) => table.run(work),
        None => work(),
    }
}

/// The table that this thread has, for threads that it starts.
pub(crate) fn inherited() -> Name {
    OF_THIS_THREAD.get()
}

/// This thread was started by one that has this table.
pub(crate) fn inherit(table: Name) {
    OF_THIS_THREAD.set(table);
}

impl Table {
    /// Makes a table, and the thread that works with it, which is what [`run`] takes from now on. `kept` is a descriptor of the application's
    /// table that goes over: the caller's own is still open and the caller's to close.
    ///
    /// # Errors
    /// The system's: there is no thread, or nothing to wake another by.
    pub(crate) fn start(
        kept: Option<BorrowedFd<'_>>,
    ) -> Result<(Arc<Table>, Option<OwnDescriptor>), Errno> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let table = Arc::new(Table {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            pid: std::process::id(),
            ready: OnceLock::new(),
            jobs: Mutex::default(),
            word: AtomicU32::new(0),
            rung: AtomicBool::new(false),
        });
        let kept = kept.map(|fd| fd.as_raw_fd());
        let (tell, told) = mpsc::sync_channel(1);
        let own = Arc::clone(&table);
        thread::start_here("warpbpf-files", move || {
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

    /// On the thread: the table, and what is in it from the beginning.
    fn begin(self: &Arc<Self>, kept: Option<RawFd>) -> Result<Option<OwnDescriptor>, Errno> {
        let is_private = leave_the_applications(kept);
        inherit(Name {
            number: self.number,
            is_private,
        });
        // SAFETY: only asked what it is; one that is not open is said to be none.
        let is_open = |fd: RawFd| identity(unsafe { BorrowedFd::borrow_raw(fd) }).is_some();
        let kept = match kept {
            None => None,
            // The application has closed it.
            Some(fd) if !is_open(fd) => return Err(Errno::BADF),
            // SAFETY: it is in this table, too, and there nobody else's.
            Some(fd) if is_private => Some(self.own(unsafe { OwnedFd::from_raw_fd(fd) })),
            Some(fd) => {
                // SAFETY: the caller of `start` has it open, and waits.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                Some(self.own(rustix::io::fcntl_dupfd_cloexec(fd, 0)?))
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
            is_private,
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

    /// Runs `work` with this table, and waits for it; with the caller's where this one is gone.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let mut work = Some(work);
        match (self.hand(&mut work), work) {
            (Some(done), _) => done,
            (None, Some(work)) => work(),
            (None, None) => unreachable!("what was not done is still there"),
        }
    }

    /// The same for what makes sense with this table only. `None` where it is gone.
    pub(crate) fn run_only<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
        self.hand(&mut Some(work))
    }

    /// Has `work` taken and done. `None`, and it is still there, if this table is gone.
    fn hand<T: Send, W: FnOnce() -> T + Send>(&self, work: &mut Option<W>) -> Option<T> {
        if OF_THIS_THREAD.get().number == self.number {
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

    /// Takes what was made on this thread, which has this table.
    pub(crate) fn own(self: &Arc<Self>, fd: OwnedFd) -> OwnDescriptor {
        let fd = placed(fd);
        OwnDescriptor {
            place: Place::of(fd.as_fd()),
            fd: Some(fd),
            table: Arc::clone(self),
        }
    }

    /// Wakes the thread that speaks with the tool. No descriptor is used here.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.knock();
        }
    }

    /// What can be read when it was rung: on threads with this table.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.ready.get()?.end(0)
    }

    /// The thread ends when it has done what it was asked for. What needs a descriptor from now on has it in the caller's table.
    pub(crate) fn close(&self) {
        lock(&self.jobs).is_over = true;
        self.knock();
    }

    #[cfg(test)]
    fn is_private(&self) -> bool {
        self.ready.get().is_some_and(|ready| ready.is_private)
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
        // Nobody uses it any more. A table of its own is gone with its threads.
        let ready = self.ready.take().filter(|ready| !ready.is_private);
        let Some(Ready { bell, places, .. }) = ready else {
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
    /// The descriptor, if it is still the one that was made, and this thread has its table.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        self.place.is(fd).then_some(fd)
    }

    /// The same, to be kept by who knows that it is in this thread's table.
    pub(crate) fn take(mut self) -> Option<OwnedFd> {
        self.get()?;
        self.fd.take()
    }

    /// Another one for the same.
    pub(crate) fn again(&self) -> Option<OwnDescriptor> {
        let again = || {
            let again = self.get()?.try_clone_to_owned().ok()?;
            Some(self.table.own(again))
        };
        self.table.run_only(again).flatten()
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let place = self.place;
        // Where its table is gone, it is gone with it.
        let fd = ManuallyDrop::new(fd);
        let close = move || {
            if place.is(fd.as_fd()) {
                drop(ManuallyDrop::into_inner(fd));
            }
        };
        match place.table.is_private {
            true => self.table.run_only(close).unwrap_or(()),
            false => close(),
        }
    }
}

impl Place {
    /// Of one in this thread's table.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Place {
        Place {
            table: OF_THIS_THREAD.get(),
            identity: identity(fd),
        }
    }

    /// This number is still that descriptor, and this thread has its table.
    pub(crate) fn is(&self, fd: BorrowedFd<'_>) -> bool {
        match self.table.is_private {
            true => OF_THIS_THREAD.get() == self.table,
            false => self.identity.is_some() && identity(fd) == self.identity,
        }
    }
}

/// What tells a socket, a pipe and a file in memory from all others.
fn identity(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let there = rustix::fs::fstat(fd).ok()?;
    Some((there.st_dev, there.st_ino))
}

/// The same file by a number that no application counts on, in a table that is the application's; as it is where there is none.
fn placed(fd: OwnedFd) -> OwnedFd {
    if OF_THIS_THREAD.get().is_private || fd.as_raw_fd() >= HIGH {
        return fd;
    }
    // Beyond 2 in any case: those have a meaning.
    let high = rustix::io::fcntl_dupfd_cloexec(&fd, HIGH);
    let high = high.or_else(|_| rustix::io::fcntl_dupfd_cloexec(&fd, 3));
    high.unwrap_or(fd)
}

/// Gives the calling thread a table of its own with nothing but `kept` in it. False if it goes on with the application's.
fn leave_the_applications(kept: Option<RawFd>) -> bool {
    if warpbpf_faults::strikes("agent/unshare") {
        return false;
    }
    let last = libc::c_uint::MAX;
    let kept = kept.map(|fd| fd.cast_unsigned());
    let behind = kept.map_or(0, |fd| fd + 1);
    // SAFETY: plain numbers. The descriptors are those of a new table, which only this thread has.
    let close = |from: libc::c_uint, to: libc::c_uint, flags: libc::c_uint| unsafe {
        libc::syscall(libc::SYS_close_range, from, to, flags) == 0
    };
    let unshared = close(behind, last, UNSHARE);
    let is_private = unshared || {
        // SAFETY: as above.
        unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
    };
    if !is_private {
        return false;
    }
    let before = kept.filter(|fd| *fd > 0).map(|fd| close(0, fd - 1, 0));
    if unshared && before != Some(false) {
        return true;
    }
    // An older kernel: one after the other. One more would keep a pipe of the application's open.
    let listed = std::fs::read_dir("/proc/thread-self/fd")
        .into_iter()
        .flatten();
    let numbers = listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers
        .into_iter()
        .filter(|fd| Some(fd.cast_unsigned()) != kept)
    {
        // SAFETY: as above; the one by which they were listed is closed already.
        unsafe { libc::close(number) };
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// Descriptors of this process that are pipes or sockets with this inode.
    fn has(inode: u64) -> bool {
        let listed = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut links = listed.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let of = format!("[{inode}]");
        links.any(|link| link.to_string_lossy().ends_with(&of))
    }

    #[test]
    fn an_applications_table_has_nothing_of_it() {
        let (table, kept) = Table::start(None).unwrap();
        assert!(kept.is_none());
        assert!(table.is_private());
        let made = table.run(|| {
            let fd = rustix::fs::memfd_create("own", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            table.own(fd)
        });
        // Of another table than this thread's: it is not touched here.
        assert!(made.get().is_none());
        let (_, inode) = made.place.identity.unwrap();
        assert!(!has(inode));
        table.run(|| {
            assert!(made.get().is_some());
            // As few as there can be: what wakes, and this one.
            let listed = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            assert_eq!(listed.count(), 4);
        });
        drop(made);
        table.run(|| {
            let listed = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            assert_eq!(listed.count(), 3);
        });
        table.close();
    }

    #[test]
    fn one_goes_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (table, kept) = Table::start(Some(ours.as_fd())).unwrap();
        drop(ours);
        let kept = kept.unwrap();
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

    /// In the application's own table: what has the number by now is neither read nor closed.
    #[test]
    fn a_number_that_is_anothers_is_left_alone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (table, _) = Table::start(None).unwrap();
        let own = OwnDescriptor {
            place: Place::of(ours.as_fd()),
            fd: Some(ours.into()),
            table: Arc::clone(&table),
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
        table.close();
        drop(theirs);
    }
}
