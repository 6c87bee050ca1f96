//! Ends of the process: what its handlers do, and ends without handlers, which are `_exit`, by
//! which workers of multiprocessing leave, `quick_exit`, which ends in it, and a program that takes
//! the place of this one.
//!
//! Whoever leaves so has a thread of ours bring home what there is, and waits for that, but never
//! for long: no lock is taken on that thread, which may be in a signal handler, and kernels that
//! still run are not waited for. A process that a signal ends, or that calls the system itself,
//! brings nothing home but what was there before.
//!
//! Handlers and destructors that run behind the agent's handler may launch kernels. NVIDIA's driver
//! refuses that, as its own handler runs next. The soft GPU serves such launches until `_exit`: there
//! the handler copies what there is, programs stay in force, and the session ends in `_exit`.

use std::ffi::{c_char, c_int};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use warpbpf_hook::{Kind, Target, in_force, stage};
use warpbpf_session::Live;
use warpbpf_wire::NoteLevel;

use crate::agent::Agent;
use crate::exports::agent;
use crate::lock::lock;
use crate::symbols::code_of;
use crate::{guard, nvrtc};

/// How long an end is kept waiting.
const PATIENCE: Duration = Duration::from_millis(200);

type Leave = unsafe extern "C" fn(c_int) -> c_int;
type Execute =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

/// Trampolines of what is hooked, in the order of [`NAMES`]; 0 for one that is not.
static ORIGINALS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
/// Functions of the C library, and how many arguments they take.
const NAMES: [(&str, usize); 2] = [("_exit", 1), ("execve", 3)];

/// What an end asks for, and what has been done for it.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// What is hooked when there is a session. Looked for before, as that asks the dynamic linker.
    targets: Mutex<Vec<Target>>,
    /// The code of `_exit`.
    exit: Range<u64>,
    /// The process ends by its handlers, and the session ends in `_exit`, which comes behind them.
    is_put_off: AtomicBool,
    asked: AtomicU32,
    done: AtomicU32,
    /// Nothing comes behind it.
    is_last: AtomicBool,
}

impl Ends {
    /// Looks for the functions.
    pub(crate) fn look() -> Ends {
        let replacements = [leave as *const () as usize, execute as *const () as usize];
        let target = |((name, arguments), replacement): ((&str, usize), usize)| {
            let name = std::ffi::CString::new(name).ok()?;
            // SAFETY: a NUL-terminated name; the program's own functions of these names come first,
            // and are what is called.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            (address != 0).then(|| Target {
                address,
                // SAFETY: a function of a library that stays loaded, or of the program.
                code: unsafe { code_of(address) },
                replacement,
                kind: Kind::Of { arguments },
            })
        };
        let targets = NAMES.into_iter().zip(replacements).map(target);
        let all: Option<Vec<Target>> = targets.collect();
        let all = all.unwrap_or_default();
        Ends {
            exit: all.first().map(code).unwrap_or_default(),
            targets: Mutex::new(all),
            ..Ends::default()
        }
    }

    /// `_exit` leads to [`leave`].
    fn has_exit(&self) -> bool {
        in_force().iter().any(|patch| self.exit.contains(&patch.at))
    }

    /// An end waits for what is there. For the thread that speaks with the tool; it answers by [`Ends::answer`].
    pub(crate) fn asked(&self) -> Option<u32> {
        let asked = self.asked.load(Ordering::Acquire);
        (asked != self.done.load(Ordering::Acquire)).then_some(asked)
    }

    /// The process ends in any case. A program may turn out not to be there that was to take the place of this one.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// What was asked for with this number is done.
    pub(crate) fn answer(&self, asked: u32) {
        self.done.store(asked, Ordering::Release);
        let _ = futex::wake(&self.done, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// The process is about to end, or, if it is not the last that it does, to become another
    /// program: everything is brought home.
    pub(crate) fn before(&self, agent: &Agent, is_last: bool) {
        self.is_last.store(is_last, Ordering::Release);
        self.bring_home(agent);
    }

    /// Has everything brought home. Nothing but atomics and system calls: the caller may be in a signal handler.
    fn bring_home(&self, agent: &Agent) {
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        agent.files.ring();
        let end = Instant::now() + PATIENCE;
        loop {
            let done = self.done.load(Ordering::Acquire);
            let left = end.saturating_duration_since(Instant::now());
            if done.wrapping_sub(number).cast_signed() >= 0 || left.is_zero() {
                return;
            }
            let limit = futex::Timespec {
                tv_sec: 0,
                tv_nsec: left.as_nanos() as _,
            };
            // Whatever it says, the number is looked at next.
            let _ = futex::wait(&self.done, futex::Flags::PRIVATE, done, Some(&limit));
        }
    }
}

fn code(target: &Target) -> Range<u64> {
    target.address as u64..(target.address + target.code.len()) as u64
}

/// Puts the hooks in. Where one cannot be, an end by it brings nothing home, which is told.
pub(crate) fn hook(agent: &Agent) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    let mut targets = std::mem::take(&mut *lock(&agent.ends.targets));
    // Those of a session before stay where it was not detached.
    targets.retain(|target| {
        let code = code(target);
        !in_force().iter().any(|patch| code.contains(&patch.at))
    });
    if targets.len() < NAMES.len() {
        return;
    }
    let staged = stage(&targets);
    for (slot, original) in ORIGINALS.iter().zip(&staged.originals) {
        // Another session may have had them, and threads may be on their way.
        if let Ok(original) = original {
            slot.store(*original, Ordering::Release);
        }
    }
    // SAFETY: the replacements have the functions' signatures. A thread that is in the first
    // instructions of one of them just now is ending.
    let done = unsafe { staged.commit() };
    for ((name, _), result) in NAMES.iter().zip(done) {
        if let Err(why) = result {
            agent.note(
                NoteLevel::Info,
                format!("what a process that ends by `{name}` did last may be missing in its report: the function is not hooked: {why}"),
            );
        }
    }
}

/// Brings everything home at the end of the process, by its handlers.
pub(crate) fn at_exit(agent: &Agent) {
    // A thread that does not exist in this process may hold any lock.
    if agent.is_forked() || !agent.is_of_this_process() {
        return;
    }
    agent.begin_exit();
    if agent.is_on() && agent.serves_behind_handlers() && agent.ends.has_exit() {
        // A destructor may end the process by a signal.
        agent.ends.before(agent, false);
        agent.ends.is_put_off.store(true, Ordering::Release);
        return;
    }
    if agent.is_on() {
        finish(agent);
    }
    // The driver ends next, and a thread of ours may be in it.
    agent.preloaded.wait_until_idle(Duration::from_secs(10));
    agent.replacement.wait_until_idle(Duration::from_secs(2));
    nvrtc::wait_until_idle(Duration::from_secs(2));
    // The driver takes its memory away next. Who holds the lock ends a context, and closes them itself.
    agent.context_registry.try_each(stop_calls);
}

/// Waits for the kernels, brings everything home and says good-bye.
fn finish(agent: &Agent) {
    let _ = guard::quietly(|| agent.finish("exit", Duration::from_secs(60)));
}

/// Nobody answers calls to the host any more.
fn stop_calls(live: &Live) {
    if let Some(calls) = live.calls() {
        calls.pause().close();
    }
}

fn before_an_end(is_last: bool) {
    // A child that shares the memory until it executes a program, or that was forked, has no thread of ours.
    let Some(agent) = agent().filter(|agent| agent.is_on() && agent.is_of_this_process()) else {
        return;
    };
    match is_last && agent.ends.is_put_off.load(Ordering::Acquire) {
        true => finish(agent),
        false => agent.ends.before(agent, is_last),
    }
}

/// # Safety
/// As `_exit`.
unsafe extern "C" fn leave(status: c_int) -> c_int {
    before_an_end(true);
    let original = ORIGINALS[0].load(Ordering::Acquire);
    // SAFETY: the trampoline of exactly this function: it was there before anything led here.
    unsafe { std::mem::transmute::<usize, Leave>(original)(status) }
}

/// # Safety
/// As `execve`.
unsafe extern "C" fn execute(
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    before_an_end(false);
    let original = ORIGINALS[1].load(Ordering::Acquire);
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, Execute>(original)(path, arguments, variables) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_this_c_library_can_be_hooked() {
        let targets = std::mem::take(&mut *lock(&Ends::look().targets));
        assert_eq!(targets.len(), NAMES.len());
        let staged = stage(&targets);
        let refused: Vec<_> = staged
            .originals
            .iter()
            .filter_map(|o| o.as_ref().err())
            .collect();
        assert_eq!(refused, [] as [&warpbpf_hook::HookError; 0]);
    }

    #[test]
    fn an_answer_is_for_all_that_asked_before() {
        let ends = Ends::default();
        assert_eq!(ends.asked(), None);
        ends.asked.store(3, Ordering::Release);
        assert_eq!(ends.asked(), Some(3));
        ends.answer(3);
        assert_eq!(ends.asked(), None);
    }
}
