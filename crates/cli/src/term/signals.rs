//! Signals to this command are meant for the application that it stands for: a supervisor, a
//! scheduler, a container's runtime and a person know this command's number, not the application's.
//!
//! A signal that is sent to the whole process group has come to the application already, as has one
//! from the terminal, and must not come twice. A signal itself does not tell to whom else it was
//! sent. So a process of ours is in the group that does nothing else than to have the same signals
//! come to it: the *witness*. What it has got, the application has, too.
//!
//! A shell's job stops and goes on as a whole. SIGTSTP is passed on like others, and this command
//! stops when the application has: one that takes no notice of Ctrl-Z goes on, and so does this.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::term::inherited::{Inherited, SIGNALS};

/// Signals whose only handler would be death, or whose meaning is the application's; real-time
/// signals are more.
const PASSED: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTERM,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];
/// Those of them that end nobody who has no handler.
const HARMLESS: &[i32] = &[libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
/// Signals by which somebody wants a command to end.
const HURRY: &[i32] = &[libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];
/// Signals by which a job is stopped, unlike SIGSTOP, which is for one process.
const OF_JOBS: &[i32] = &[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Who catches SIGTSTP may stop by SIGSTOP within this time.
const STOPS: Duration = Duration::from_secs(5);
/// Signals that end `attach` and `serve` in order.
const ENDING: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGPWR,
];
/// How long a signal waits here, so that whoever sends it to one process after the other has sent
/// it to the witness, too.
const WAIT: Duration = Duration::from_millis(30);
/// How long the witness's word about a signal holds.
const WORD: Duration = Duration::from_secs(1);
/// How long the witness may take to answer.
const ANSWER: Duration = Duration::from_millis(200);

/// Signals that came from processes, by number.
static SENT: [AtomicU32; SIGNALS + 1] = [const { AtomicU32::new(0) }; SIGNALS + 1];
/// Signals that came from the terminal.
static TYPED: [AtomicU32; SIGNALS + 1] = [const { AtomicU32::new(0) }; SIGNALS + 1];
/// This process, by whose number a new one that is not yet the application knows itself.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Signals that were ignored when this command was started: bit 0 is signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// There is an application, or there was one.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Signals that are passed on.
fn passed() -> impl Iterator<Item = i32> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    PASSED.iter().copied().chain(real_time)
}

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: both are system calls without effects.
    let (own, first) = unsafe { (libc::getpid(), libc::getpid() == 1) };
    let starts = own != OWNER.load(Ordering::Relaxed);
    if starts || !STARTED.load(Ordering::Relaxed) {
        let ignored = IGNORED.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1;
        if ignored || HARMLESS.contains(&signal) {
            return;
        }
        // SAFETY: a handler may do all of this. What is raised comes when this handler has
        // returned.
        unsafe {
            if first && !starts && signal == libc::SIGTSTP {
                return;
            }
            if first && !starts {
                // The default would be to ignore it.
                libc::_exit(128 + signal);
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        return;
    }
    // SAFETY: with SA_SIGINFO the system gives a valid pointer.
    let typed = unsafe { (*info).si_code } == libc::SI_KERNEL;
    let of = if typed { &TYPED } else { &SENT };
    if let Some(count) = usize::try_from(signal).ok().and_then(|at| of.get(at)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// For a signal that would end this process and means nothing to it: the call that met it fails,
/// which is told.
extern "C" fn nothing(_: i32) {}

fn handle(signal: i32, handler: libc::sighandler_t, flags: i32) {
    // SAFETY: all zeros are a valid `sigaction` with an empty mask; the handlers do only what a
    // handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Passes signals on, from when it is made.
pub struct Signals {
    /// What the application is to inherit.
    pub inherited: Inherited,
    witness: Option<Witness>,
    /// Signals that wait for the witness's word.
    held: Vec<(i32, Instant)>,
    /// What the witness got, and when that was heard.
    seen: [Option<Instant>; SIGNALS + 1],
    /// SIGTSTP came then, and this command has not stopped since.
    asked: Option<Instant>,
    /// The application stands still.
    stands: bool,
}

impl Signals {
    /// Called first, while there is one thread. Until [`Signals::start`] signals end this process
    /// as they would have.
    pub fn begin() -> Signals {
        let inherited = Inherited::look();
        // SAFETY: a system call without effects.
        OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        // Where it is ignored nobody hears how a process has ended.
        // SAFETY: the default of a signal.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let ignored = (1..=SIGNALS).filter(|signal| inherited.ignores(*signal as i32));
        let ignored = ignored.fold(0, |mask, signal| mask | 1 << (signal - 1));
        IGNORED.store(ignored, Ordering::Relaxed);
        let witness = Witness::new();
        handle(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t, 0);
        // What is ignored stays so as long as there is nobody to pass it to.
        for signal in passed().filter(|signal| !inherited.ignores(*signal)) {
            Signals::catch(signal);
        }
        Signals {
            inherited,
            witness,
            held: Vec::new(),
            seen: [None; SIGNALS + 1],
            asked: None,
            stands: false,
        }
    }

    fn catch(signal: i32) {
        handle(
            signal,
            note as *const () as libc::sighandler_t,
            libc::SA_SIGINFO,
        );
    }

    /// There will be an application from now on.
    pub fn start(&self) {
        STARTED.store(true, Ordering::Relaxed);
        // An application may have a handler for what its shell ignores, and may take what its shell
        // blocks.
        passed().for_each(Signals::catch);
        let mut taken = std::mem::MaybeUninit::uninit();
        // SAFETY: the set is emptied first; signals that it then has are taken from the thread's
        // mask.
        unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            for signal in passed() {
                libc::sigaddset(taken.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, taken.as_ptr(), std::ptr::null_mut());
        }
    }

    /// What is to be passed on to the application now, each as often as it came.
    pub fn due(&mut self) -> Vec<i32> {
        let now = Instant::now();
        let mut due = Vec::new();
        let came = |signal: i32| {
            let counts = [&TYPED, &SENT].map(|of| of[signal as usize].load(Ordering::Relaxed));
            counts != [0, 0]
        };
        // As in the system: of what stops and what lets go on, the last one counts.
        let (stops, goes_on) = (came(libc::SIGTSTP), came(libc::SIGCONT));
        if stops || goes_on {
            self.held
                .retain(|(signal, _)| ![libc::SIGTSTP, libc::SIGCONT].contains(signal));
            self.asked = (!goes_on).then_some(now);
        }
        if goes_on {
            take(libc::SIGTSTP);
        }
        for signal in passed() {
            let at = signal as usize;
            for _ in 0..TYPED[at].swap(0, Ordering::Relaxed) {
                if is_for_us_alone(signal) {
                    due.push(signal);
                }
            }
            for _ in 0..SENT[at].swap(0, Ordering::Relaxed) {
                self.held.push((signal, now));
            }
        }
        reap_orphans();
        let is_ripe = |at: &Instant| now.duration_since(*at) >= WAIT;
        if self.held.iter().any(|(_, at)| is_ripe(at)) {
            let mask = self.witness.as_mut().map_or(0, Witness::ask);
            for (signal, seen) in (0..).zip(&mut self.seen).skip(1) {
                if mask >> (signal - 1) & 1 == 1 {
                    *seen = Some(now);
                }
            }
            self.held.retain(|(signal, at)| {
                if !is_ripe(at) {
                    return true;
                }
                let seen = &mut self.seen[*signal as usize];
                let word = seen.is_some_and(|seen| now.duration_since(seen) <= WORD);
                if !word {
                    due.push(*signal);
                }
                false
            });
        }
        due
    }

    /// What came until now was for the application, which has ended.
    pub fn forget(&mut self) {
        passed().for_each(take);
        self.held.clear();
        self.asked = None;
    }

    /// Somebody wants this command to end, though the application has.
    pub fn hurried(&mut self) -> bool {
        let typed = |signal: &&i32| TYPED[**signal as usize].load(Ordering::Relaxed) > 0;
        let typed = HURRY.iter().find(typed).copied();
        let mut due = self.due();
        due.extend(self.held.drain(..).map(|(signal, _)| signal));
        due.extend(typed);
        if self.asked.take().is_some() {
            stop();
        }
        due.iter().any(|signal| HURRY.contains(signal))
    }

    /// Stops this command when the application has stopped as a job does, and comes back when that
    /// goes on.
    pub fn stop_with(&mut self, child: &std::process::Child) {
        let mut signal = None;
        while let Some((code, status)) = change_of(child) {
            self.stands = code == libc::CLD_STOPPED;
            signal = self.stands.then_some(status);
        }
        let of_job = signal.is_some_and(|signal| OF_JOBS.contains(&signal));
        let asked = self.asked.is_some_and(|at| at.elapsed() < STOPS);
        if self.stands
            && (of_job || asked)
            && SENT[libc::SIGCONT as usize].load(Ordering::Relaxed) == 0
        {
            self.asked = None;
            stop();
        }
    }
}

/// What is waited for at the end, as long as nobody wants this command to end.
pub struct Hurry {
    /// That is the end that somebody wanted before.
    ends: bool,
}

impl Hurry {
    /// What comes from now on counts.
    pub fn watch() -> Hurry {
        Hurry {
            ends: Interrupted::was(),
        }
    }

    /// Somebody wants this command to end.
    pub fn came(&self) -> bool {
        let came = |signal: &i32| {
            let of = [&TYPED, &SENT];
            of.iter()
                .any(|of| of[*signal as usize].load(Ordering::Relaxed) > 0)
        };
        HURRY.iter().any(came) || Interrupted::again() || Interrupted::was() && !self.ends
    }
}

/// Takes note of all signals of this number.
fn take(signal: i32) {
    for of in [&TYPED, &SENT] {
        of[signal as usize].store(0, Ordering::Relaxed);
    }
}

/// Stops this process until somebody lets it go on. In a group that nobody would do that for, the
/// system does nothing.
fn stop() {
    // SAFETY: the default of a signal, which is then raised on this thread, whose mask does not
    // have it.
    unsafe {
        libc::signal(libc::SIGTSTP, libc::SIG_DFL);
        libc::raise(libc::SIGTSTP);
    }
    Signals::catch(libc::SIGTSTP);
}

/// How a child has stopped or gone on, each time once: `CLD_STOPPED` or `CLD_CONTINUED`, and the
/// signal.
fn change_of(child: &std::process::Child) -> Option<(i32, i32)> {
    // SAFETY: the structure is filled if the call succeeds, and was zero before.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
        let done = libc::waitid(libc::P_PID, child.id(), &raw mut info, flags);
        (done == 0 && info.si_pid() != 0).then(|| (info.si_code, info.si_status()))
    }
}

/// The terminal's signals go to the foreground's process group, in which the application is if it
/// would be without us. But when the terminal goes away, SIGHUP goes to the session's first process
/// alone.
fn is_for_us_alone(signal: i32) -> bool {
    // SAFETY: system calls without effects.
    signal == libc::SIGHUP && unsafe { libc::getsid(0) == libc::getpid() }
}

/// The first process of a container is the parent of all that lost theirs, and nobody else takes
/// note of their end.
fn reap_orphans() {
    // SAFETY: a system call without effects.
    if unsafe { libc::getpid() } != 1 {
        return;
    }
    loop {
        // SAFETY: the structure is filled if the call succeeds, and was zero before.
        let pid = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            match libc::waitid(libc::P_ALL, 0, &raw mut info, flags) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        // Our own are waited for by who started them.
        if pid == 0 || OWN.iter().any(|own| own.load(Ordering::Relaxed) == pid) {
            return;
        }
        // SAFETY: takes note of the end of a process that nobody else waits for.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Processes that somebody here waits for.
static OWN: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

/// Somebody here waits for the end of this process.
pub fn is_waited_for(pid: u32) {
    let free = OWN.iter().find(|own| own.load(Ordering::Relaxed) == 0);
    if let Some(own) = free {
        own.store(pid as i32, Ordering::Relaxed);
    }
}

/// Passes a signal on to a child that was not waited for yet.
pub fn pass(child: &std::process::Child, signal: i32) {
    // SAFETY: our own child, which was not waited for: its number is nobody else's. One that has
    // ended needs none.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// A process in our group that keeps the signals which come to it, and ends when we are gone.
struct Witness(UnixStream);

impl Witness {
    /// `None` where none can be made: then what comes from processes is passed on.
    fn new() -> Option<Witness> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        ours.set_read_timeout(Some(ANSWER)).ok()?;
        // Of two processes the first ends at once: who looks for what this command has started
        // finds the application alone. SAFETY: there is one thread, so a new process may do all
        // that this one may. None of them returns from here.
        unsafe {
            let first = libc::fork();
            match first {
                0 => match libc::fork() {
                    0 => {
                        drop(ours);
                        testify(&theirs)
                    }
                    second => libc::_exit(i32::from(second < 0)),
                },
                _ if first > 0 => {
                    let mut status = 0;
                    let waited = libc::waitpid(first, &raw mut status, 0);
                    (waited == first && status == 0).then_some(Witness(ours))
                }
                _ => None,
            }
        }
    }

    /// Signals that came to it since it was asked last: bit 0 is signal 1.
    fn ask(&mut self) -> u64 {
        let mut mask = [0; 8];
        let asked = self.0.write_all(&[0]);
        match asked.and_then(|()| self.0.read_exact(&mut mask)) {
            Ok(()) => u64::from_ne_bytes(mask),
            // It is gone, or stopped.
            Err(_) => 0,
        }
    }
}

/// What the witness does until we are gone.
fn testify(mut socket: &UnixStream) -> ! {
    let fd = socket.as_raw_fd() as libc::c_uint;
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: this process has one thread and nothing else to do. Descriptors are closed that it
    // does not use, so that nobody waits for it at their other ends. The set is filled before it is
    // used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"warpbpf-witness".as_ptr());
        if fd > 0 {
            libc::syscall(libc::SYS_close_range, 0, fd - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, fd + 1, libc::c_uint::MAX, 0);
        libc::chdir(c"/".as_ptr());
    }
    let mut byte = [0];
    while socket.read_exact(&mut byte).is_ok() {
        let mut mask = 0_u64;
        // SAFETY: the set is whole; the time is none.
        unsafe {
            let none: libc::timespec = std::mem::zeroed();
            loop {
                let signal =
                    libc::sigtimedwait(all.as_ptr(), std::ptr::null_mut(), &raw const none);
                match signal {
                    1..=64 => mask |= 1 << (signal - 1),
                    _ => break,
                }
            }
        }
        if socket.write_all(&mask.to_ne_bytes()).is_err() {
            break;
        }
    }
    // SAFETY: ends this process alone, without what the other one has to do at its end.
    unsafe { libc::_exit(0) }
}

/// Somebody wants this to end.
pub struct Interrupted;

/// Seconds of the clock at the first signal, and whether another one came later: a shell or a
/// service manager may send several for one request.
static FIRST: AtomicU64 = AtomicU64::new(0);
static AGAIN: AtomicBool = AtomicBool::new(false);
/// Seconds within which signals are one.
const ONE_REQUEST: u64 = 2;

extern "C" fn note_end(_: i32) {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a writable local; the call may be made in a handler.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // The machine may have been started just now.
    let now = now.tv_sec.unsigned_abs() + 1;
    match FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if now >= first + ONE_REQUEST => AGAIN.store(true, Ordering::Relaxed),
        Ok(_) | Err(_) => {}
    }
}

impl Interrupted {
    /// Signals that end a command are only noted from now on. One that is ignored, as SIGHUP is
    /// under `nohup`, stays so; scripts ignore SIGINT and SIGQUIT in what they start in the
    /// background, and still end it by them.
    pub fn watch() {
        let inherited = Inherited::look();
        handle(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t, 0);
        for signal in ENDING {
            let asked = [libc::SIGINT, libc::SIGQUIT].contains(signal);
            if asked || !inherited.ignores(*signal) {
                handle(*signal, note_end as *const () as libc::sighandler_t, 0);
            }
        }
    }

    /// It came.
    pub fn was() -> bool {
        FIRST.load(Ordering::Relaxed) != 0
    }

    /// Once more: nothing is to be waited for any more.
    pub fn again() -> bool {
        AGAIN.load(Ordering::Relaxed)
    }
}
