//! The one kernel of this process, and the moments at which something must happen: when
//! applications may start, when the tool waits, when all is over.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_abi::choice::ChoiceRequest;
use warpbpf_linux::carry::Carrier;
use warpbpf_linux::drawn::AllDrawn;
use warpbpf_linux::sys::Host;
use warpbpf_wire::Taker;
use warpbpf_wire::rendezvous::{SHM_NAME, places};

use crate::app::live::Live;
use crate::app::replace::{self, Wanted};
use crate::bpftime;
use crate::guard;
use crate::kernel::updates;
use crate::kernel::{Config, Descriptors, Kernel};
use crate::passed;
use crate::remote;
use crate::tool::notify::Notify;
use warpbpf_linux::sys::Linux;

/// CPUs that the tool believes in. No GPU has as many multiprocessors; those that are missing have
/// zeros.
const CPUS: u32 = 256;
/// Threads whose values a lookup in a per-thread array gives, as bpftime does.
const THREADS: u64 = 1024;
/// How long after its last link a tool is taken to be ready, if it does not wait before.
const SETTLED: Duration = Duration::from_millis(300);
/// Between two looks whether applications have what is attached now.
const LOOK: Duration = Duration::from_micros(500);
/// How long after a launch its agent may take to say what became of the kernel.
const LAUNCHED: Duration = Duration::from_secs(2);
/// How long records of Linux's ring buffers wait at most.
const DRAWN_EVERY: Duration = Duration::from_millis(1);
/// How long a tool that waits without end after the last event is left to be sure that it has
/// nothing to say.
const SILENT: Duration = Duration::from_millis(50);

/// Environment: a descriptor that is told, a line each, `ranges` (what is attached needs the
/// application's calls of NVTX), `ready PATH`, `agent`, `placed` (a kernel has a program) and
/// `done`; and of agents that came from there ([`warpbpf_wire::Given`])
/// `attached PID`, `refused PID` and `left PID`.
const NOTIFY: &str = "WARPBPF_LOADER_NOTIFY";
/// Begins a line of that: what is to be said if a signal ends this process.
const WORDS: &str = "words";
/// Stands between two sentences.
const BETWEEN: &str = "\x1f";
/// Time between two looks for it.
const WORD_EVERY: Duration = Duration::from_millis(100);
/// Environment: how many CPUs instead of [`CPUS`].
const CPUS_VARIABLE: &str = "WARPBPF_LOADER_CPUS";
/// Environment of bpftime: how many threads instead of [`THREADS`].
const THREADS_VARIABLE: &str = "BPFTIME_MAP_GPU_THREAD_COUNT";
/// Environment: programs may change the application.
const ALLOW_MODIFY: &str = "WARPBPF_LOADER_ALLOW_MODIFY";
/// Environment: instructions that one invocation may execute.
const BUDGET: &str = "WARPBPF_LOADER_BUDGET";
/// Environment: loops that nothing bounds are ended when they run.
const BOUND_LOOPS: &str = "WARPBPF_LOADER_BOUND_LOOPS";
/// Environment: a name for the socket that is the same each time.
const LINK: &str = "WARPBPF_LOADER_SOCKET";

static KERNEL: OnceLock<Mutex<Kernel>> = OnceLock::new();
static LIVE: OnceLock<Arc<Live>> = OnceLock::new();
static THREAD: Once = Once::new();
static START: Mutex<Start> = Mutex::new(Start {
    seen: 0,
    changed: None,
    open: false,
    attached: false,
    over: false,
});
/// Waits that the tool began after all was over.
static WAITS: AtomicU32 = AtomicU32::new(0);
/// Waits without end that go on.
static ENDLESS: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

struct Start {
    /// Version of the kernel that was looked at last.
    seen: u64,
    /// When it last changed.
    changed: Option<Instant>,
    /// Applications may connect.
    open: bool,
    /// Some program is attached.
    attached: bool,
    /// Nothing more will come.
    over: bool,
}

struct Real;

impl Descriptors for Real {
    fn make(&mut self, notify: Option<&Notify>) -> Result<RawFd, Errno> {
        let fd = match notify {
            Some(notify) => rustix::io::fcntl_dupfd_cloexec(notify.as_fd(), 3)?,
            None => Notify::new()?.into_fd(),
        };
        let fd = fd.into_raw_fd();
        passed::mark(fd);
        Ok(fd)
    }
}

/// Says something to the tool's user. The tool's standard error is the only place that there is.
pub fn tell(text: &str) {
    let line = format!("warpbpf: {}\n", plain(text));
    // Nobody to tell is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Names are others', and a terminal acts on control characters.
fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let acts = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(acts) {
        return text.into();
    }
    let mut out = String::new();
    for character in text.chars() {
        match acts(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    out.into()
}

/// Has who started this process know what is to be said if a signal ends it, which nobody in it can
/// say then.
fn leave_word(left: &mut Vec<String>) {
    let words = live().last_words();
    if words != *left {
        let lines: Vec<String> = words.iter().map(|text| text.replace('\n', " ")).collect();
        notify(&format!("{WORDS} {}", lines.join(BETWEEN)));
        *left = words;
    }
}

fn number<T: std::str::FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

/// CPUs that the tool believes in.
pub fn cpus() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| number(CPUS_VARIABLE).filter(|n| *n > 0).unwrap_or(CPUS))
}

/// The kernel, if the tool has asked for anything yet.
pub fn existing() -> Option<MutexGuard<'static, Kernel>> {
    Some(KERNEL.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The tool has called `bpf()`.
pub fn exists() -> bool {
    KERNEL.get().is_some()
}

/// The kernel.
pub fn kernel() -> MutexGuard<'static, Kernel> {
    let kernel = KERNEL.get_or_init(|| {
        guard::own_process();
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        for text in bpftime::not_served(is_set) {
            tell(&text);
        }
        let config = Config {
            cpus: cpus(),
            threads: number(THREADS_VARIABLE)
                .filter(|n| *n > 0)
                .unwrap_or(THREADS),
            options: warpbpf_session::Options {
                allow_modify: std::env::var_os(ALLOW_MODIFY).is_some(),
                budget: number(BUDGET),
                bound_loops: std::env::var_os(BOUND_LOOPS).is_some(),
                ..warpbpf_session::Options::default()
            },
            is_kernel_symbol,
            tell,
        };
        let mut kernel = Kernel::new(config, Box::new(Real));
        kernel.session = Some(live().clone());
        kernel.linux = host().map(|host| Arc::new(host) as Arc<dyn Linux>);
        Mutex::new(kernel)
    });
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Linux, if it lets us use `bpf()`.
fn host() -> Option<Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    *HOST.get_or_init(Host::permitted)
}

/// Programs may be given to Linux.
pub fn permitted() -> bool {
    host().is_some()
}

/// The applications.
pub fn live() -> &'static Arc<Live> {
    LIVE.get_or_init(|| Arc::new(Live::new(tell)))
}

/// Whether Linux has a function of this name. Names of C++ are never its.
fn is_kernel_symbol(name: &str) -> bool {
    static NAMES: OnceLock<std::collections::HashSet<String>> = OnceLock::new();
    if name.starts_with("_Z") {
        return false;
    }
    let names = NAMES.get_or_init(|| {
        let all = std::fs::read("/proc/kallsyms").unwrap_or_default();
        all.split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b' ').nth(2))
            .filter_map(|word| word.split(|byte| *byte == b'\t').next())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    });
    names.contains(name)
}

fn start() -> MutexGuard<'static, Start> {
    START.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks whether a call of the tool has changed what is attached, and waits until applications that
/// run have it.
pub fn noticed() {
    let change = updates::take();
    let Some(kernel) = existing() else { return };
    let (version, attached) = (kernel.version, !kernel.attached().is_empty());
    if !kernel.drawn.is_empty() {
        draw(&kernel.drawn);
    }
    drop(kernel);
    let mut start = start();
    let mut all_ended = false;
    if version > start.seen {
        start.seen = version;
        start.changed = Some(Instant::now());
        let was = std::mem::replace(&mut start.attached, attached);
        all_ended = was && !attached;
    }
    let serves = start.open;
    drop(start);
    if all_ended {
        live().detach();
        wait(replace::END, || live().is_let_go());
    }
    if attached {
        THREAD.call_once(|| {
            let started = std::thread::Builder::new()
                .name("warpbpf-loader".into())
                .spawn(run);
            if let Err(error) = started {
                tell(&format!(
                    "no thread can be started: {error}; nothing will run"
                ));
            }
        });
    }
    if let Some(change) = change
        && attached
        && serves
        && live().any()
    {
        settle(change, version);
    }
}

/// Waits until applications that run have what is attached now.
fn settle(change: updates::Change, version: u64) {
    let (limit, ends) = match change {
        updates::Change::Began => (replace::BEGIN, false),
        updates::Change::Ended => (replace::END, true),
    };
    if !ends && live().was_left() {
        tell(
            "applications in which all programs have ended get no more: what the tool attaches now is only in those that start from now on",
        );
    }
    // What takes too long goes on, and what becomes of it is said.
    wait(limit, || {
        live().is_settled(version) || ends && live().is_slow()
    });
}

/// Waits until `done` says so. False: not within `limit`.
fn wait(limit: Duration, done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks applications for what is attached now, if they have something else.
fn replace_programs() {
    let version = start().seen;
    for (at, names) in live().behind(version) {
        let Some(mut kernel) = existing() else { return };
        let wanted = Wanted::new(&mut kernel, &names);
        // That all have ended is for good: nothing may be attached between.
        let held = wanted.ends_all().then_some(kernel);
        live().ask_for(at, wanted);
        drop(held);
    }
}

/// A process wants to launch a program of the tool's itself.
///
/// # Errors
/// `EBUSY` while an application runs, which has maps of its own; else the kernel's.
pub fn launch_wanted(pid: u32, name: &str) -> Result<i64, Errno> {
    if live().runs() {
        return Err(Errno::BUSY);
    }
    let mut kernel = kernel();
    // The end of one that has ended may not have been noticed yet.
    kernel.launches.retain(|pid, _| is_there(*pid));
    kernel.launch_wanted(pid, name)
}

fn is_there(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// It has launched it.
///
/// # Errors
/// `EIO` if that did not run the program.
pub fn launched(pid: u32) -> Result<i64, Errno> {
    match wait(LAUNCHED, || live().launched(pid) == Some(true)) {
        true => Ok(0),
        false => Err(Errno::IO),
    }
}

/// Begins to hand over what Linux's ring buffers hold.
fn draw(drawn: &AllDrawn) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let drawn = drawn.clone();
        let started = std::thread::Builder::new()
            .name("warpbpf-linux".into())
            .spawn(move || {
                guard::own_thread();
                loop {
                    if !drawn.draw() {
                        std::thread::sleep(DRAWN_EVERY);
                    }
                }
            });
        if let Err(error) = started {
            tell(&format!(
                "no thread can be started: {error}; what Linux's programs write to ring buffers is not read"
            ));
        }
    });
}

/// Applications may start, if something is attached.
pub fn open() {
    {
        let mut start = start();
        if start.open || !start.attached {
            return;
        }
        start.open = true;
    }
    let runtime = warpbpf_wire::rendezvous::runtime_folder();
    match live().listen(&runtime.unwrap_or_else(std::env::temp_dir)) {
        Ok(path) => {
            if let Some(link) = link() {
                if names_a_control(link) {
                    // An earlier tool has left it behind.
                    let _ = std::fs::remove_file(link);
                }
                if let Err(error) = std::os::unix::fs::symlink(&path, link) {
                    tell(&format!("cannot make `{}`: {error}", link.display()));
                }
            }
            remote::serve(&path);
            if wants_ranges() {
                notify("ranges");
            }
            notify(&format!("ready {}", path.display()));
        }
        Err(error) => tell(&error.to_string()),
    }
}

/// What is attached chooses launches by what an application says by NVTX, which it must be started
/// for.
fn wants_ranges() -> bool {
    let attached = existing().map(|kernel| kernel.attached());
    let mut attached = attached.into_iter().flatten();
    attached.any(|(_, section)| ChoiceRequest::of_section(&section).needs_nvtx())
}

/// What the control socket can be found by: the name that was given, or what bpftime's variable
/// stands for.
fn link() -> Option<&'static Path> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        if let Some(link) = std::env::var_os(LINK) {
            return Some(link.into());
        }
        let name = std::env::var(SHM_NAME).ok().filter(|name| !name.is_empty())?;
        let places = places(&name);
        if places.is_none() {
            tell(&format!(
                "`{SHM_NAME}` is `{name}`, by which nobody is found: at most 100 letters, digits, `_`, `-` and `.` are served"
            ));
        }
        places?.into_iter().next()
    });
    place.as_deref()
}

/// Whether it is a link to a control socket, of this or of another tool.
fn names_a_control(link: &Path) -> bool {
    let Ok(target) = std::fs::read_link(link) else {
        return false;
    };
    let folder = target.parent().and_then(Path::file_name);
    target.ends_with("control")
        && folder.is_some_and(|f| f.as_encoded_bytes().starts_with(b"warpbpf-"))
}

/// The descriptor that who started this process has left for us.
fn notified() -> Option<RawFd> {
    number(NOTIFY).filter(|fd| *fd > 2)
}

fn notify(line: &str) {
    let Some(fd) = notified() else { return };
    // SAFETY: the descriptor was made for this process by who started it, and stays open: the file
    // is not dropped.
    let mut file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    // Who does not listen any more does not wait either.
    let _ = file.write_all(format!("{line}\n").as_bytes());
    let _ = file.as_raw_fd();
}

/// Where agents come from that others have put into processes.
fn taker() -> Option<Taker> {
    // SAFETY: as in `notify`; a name of our own is made of it at once.
    let named = unsafe { BorrowedFd::borrow_raw(notified()?) };
    Taker::trusted(named.try_clone_to_owned().ok()?).ok()
}

/// Takes those that are there. `None` once nobody gives any more.
fn take_given(taker: Option<Taker>) -> Option<Taker> {
    let mut taker = taker?;
    while let Some(frame) = taker.try_recv().ok()? {
        if let Some(socket) = frame.fd {
            live().give(frame.message.pid, socket);
        }
    }
    Some(taker)
}

fn run() {
    guard::own_thread();
    // It only ends by a panic, and then the tool goes on without us.
    let Err(payload) = std::panic::catch_unwind(|| {
        let mut silent: Option<Instant> = None;
        let mut carrier = Carrier::default();
        let mut taker = taker();
        let (mut left, mut next) = (Vec::new(), Instant::now());
        let mut placed = false;
        loop {
            let settled = {
                let start = start();
                !start.open && start.changed.is_some_and(|at| at.elapsed() > SETTLED)
            };
            if settled {
                open();
            }
            taker = take_given(taker.take());
            live().round(&mut |pid| {
                DONE.store(false, Ordering::Relaxed);
                notify("agent");
                live().offer(&mut kernel(), pid)
            });
            for (pid, what) in live().arrivals() {
                notify(&format!("{what} {pid}"));
            }
            replace_programs();
            carrier.round(1, || existing()?.carry());
            if live().is_word_due() || Instant::now() >= next {
                leave_word(&mut left);
                if !placed && live().is_placed() {
                    notify("placed");
                    placed = true;
                }
                next = Instant::now() + WORD_EVERY;
            }
            let over = live().is_over();
            start().over = over;
            if !over {
                WAITS.store(0, Ordering::Relaxed);
            }
            if over && ENDLESS.load(Ordering::Relaxed) > 0 {
                if silent.get_or_insert_with(Instant::now).elapsed() > SILENT {
                    done();
                }
            } else {
                silent = None;
            }
        }
    });
    std::mem::forget(payload);
}

fn done() {
    if !DONE.swap(true, Ordering::Relaxed) {
        notify("done");
    }
}

/// The tool is about to wait; `endless` if nothing but an event or a signal ends it. What it gives
/// is for [`after_wait`].
pub fn before_wait(endless: bool) -> bool {
    let Some(kernel) = existing() else {
        return false;
    };
    kernel.refresh();
    drop(kernel);
    open();
    if start().over && live().is_over() && WAITS.fetch_add(1, Ordering::Relaxed) >= 1 {
        done();
    }
    if endless {
        ENDLESS.fetch_add(1, Ordering::Relaxed);
    }
    endless
}

/// The tool has waited; `counted` if that was a wait without end.
pub fn after_wait(counted: bool) {
    if counted {
        ENDLESS.fetch_sub(1, Ordering::Relaxed);
    }
    let Some(mut kernel) = existing() else { return };
    kernel.synchronise();
}

/// The tool ends: nobody can connect any more.
pub fn ended() {
    if let Some(live) = LIVE.get() {
        // Else who started this process has it.
        if live.tell_ends() {
            notify(WORDS);
        }
        // In the same folder, which goes with the last one.
        remote::end();
        let own = live.close();
        if let Some(link) = link()
            && own.is_some()
            && std::fs::read_link(link).ok() == own
        {
            let _ = std::fs::remove_file(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_reach_no_terminal() {
        assert_eq!(plain("`k\x1b[2J\u{9b}`\n\tb"), "`k\\u{1b}[2J\\u{9b}`\n\tb");
        assert!(matches!(plain("plain"), std::borrow::Cow::Borrowed(_)));
    }

    #[test]
    fn a_wait_that_began_before_the_first_bpf_is_not_counted() {
        let counted = before_wait(true);
        assert!(!counted);
        after_wait(counted);
        assert_eq!(ENDLESS.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn only_links_to_control_sockets_are_replaced() {
        let folder = std::env::temp_dir().join(format!("warpbpf-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, ours, other) = (
            folder.join("file"),
            folder.join("ours"),
            folder.join("other"),
        );
        std::fs::write(&file, b"kept").unwrap();
        std::os::unix::fs::symlink("/nowhere/warpbpf-1-0/control", &ours).unwrap();
        std::os::unix::fs::symlink(&file, &other).unwrap();
        assert!(names_a_control(&ours));
        assert!(!names_a_control(&file) && !names_a_control(&other));
        assert!(!names_a_control(&folder.join("none")));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
