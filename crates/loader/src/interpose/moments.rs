//! The moments at which something must happen: when applications may start, when the tool waits,
//! when all is over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_abi::choice::ChoiceRequest;
use warpbpf_linux::carry::Carrier;
use warpbpf_linux::drawn::AllDrawn;
use warpbpf_wire::rendezvous::{SHM_NAME, places};

use super::global::{existing, existing_live, kernel, live};
use super::polling::wait;
use super::starter::{WORDS, leave_word, notify, take_given, taker};
use super::tell::tell;
use super::{guard, remote};
use crate::app::replace::{self, Wanted};
use crate::kernel::updates;

/// How long after its last link a tool is taken to be ready, if it does not wait before.
const SETTLED: Duration = Duration::from_millis(300);
/// How long records of Linux's ring buffers wait at most.
const DRAWN_EVERY: Duration = Duration::from_millis(1);
/// How long a tool that waits without end after the last event is left to be sure that it has
/// nothing to say.
const SILENT: Duration = Duration::from_millis(50);

/// Time between two looks for what is to be said if a signal ends this process.
const WORD_EVERY: Duration = Duration::from_millis(100);
/// Environment: a name for the socket that is the same each time.
const LINK: &str = "WARPBPF_LOADER_SOCKET";

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
            remote::serve(&path, noticed);
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
    if let Some(live) = existing_live() {
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
