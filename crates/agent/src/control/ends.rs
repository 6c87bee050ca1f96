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
//! refuses that, as its own handler runs next. The soft GPU serves such launches until `_exit`:
//! there the handler copies what there is, programs stay in force, and the session ends in `_exit`.

use std::ffi::{c_char, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warpbpf_hook::{Kind, Target, in_force, stage};
use warpbpf_session::Live;
use warpbpf_wire::NoteLevel;

use crate::device::end_requests::{Ends, code};
use crate::instrument::nvrtc;
use crate::runtime::agent::Agent;
use crate::runtime::published::agent;
use crate::sys::guard;
use crate::sys::lock::lock;
use crate::sys::symbols::code_of;

type Leave = unsafe extern "C" fn(c_int) -> c_int;
type Execute =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

/// Trampolines of what is hooked, in the order of [`NAMES`]; 0 for one that is not.
static ORIGINALS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
/// Functions of the C library, and how many arguments they take.
const NAMES: [(&str, usize); 2] = [("_exit", 1), ("execve", 3)];

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
        agent.ends.before(&agent.files, false);
        agent.ends.put_off_to.store(thread_id(), Ordering::Release);
        return;
    }
    if agent.is_on() {
        finish(agent);
    }
    // The driver ends next, and a thread of ours may be in it.
    agent.preloaded.wait_until_idle(Duration::from_secs(10));
    agent.replacement.wait_until_idle(Duration::from_secs(2));
    nvrtc::wait_until_idle(Duration::from_secs(2));
    // The driver takes its memory away next. Who holds the lock ends a context, and closes them
    // itself.
    agent.context_registry.try_each(stop_calls);
}

/// The system's number of this thread, which is never 0.
fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
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
    // A child that shares the memory until it executes a program, or that was forked, has no thread
    // of ours.
    let Some(agent) = agent().filter(|agent| agent.is_on() && agent.is_of_this_process()) else {
        return;
    };
    match is_last && agent.ends.put_off_to.load(Ordering::Acquire) == thread_id() {
        true => finish(agent),
        false => agent.ends.before(&agent.files, is_last),
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
    Ends::new(all.unwrap_or_default())
}

/// Registers the last drain. Handlers run last come, first served, and the driver's own one ends
/// the driver: so this is done again once the driver is initialised, which under `LD_PRELOAD` it is
/// not when the hooks are set.
pub(crate) fn bring_home_at_exit() {
    extern "C" fn exit() {
        if let Some(agent) = agent() {
            at_exit(agent);
        }
    }
    // SAFETY: the function lives as long as the process: this library is never unloaded.
    unsafe { libc::atexit(exit) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_this_c_library_can_be_hooked() {
        let targets = std::mem::take(&mut *lock(&look().targets));
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
