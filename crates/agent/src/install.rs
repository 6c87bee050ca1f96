//! Sets the hooks and starts the agent, once per process and only if a tool wants it.

use std::collections::HashMap;
use std::ffi::{OsString, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::Driver;
use warpbpf_driver::sys::Api;
use warpbpf_hook::{HookError, Kind, Staged, Target, in_force, stage};
use warpbpf_wire::rendezvous::{SHM_NAME, places};

use crate::agent::{Agent, Tool};
use crate::descriptors::FileThread;
use crate::ends::at_exit;
use crate::exports::{ROWS, Row, agent, publish};
use crate::symbols::{Library, Symbols, code_of};
use crate::{graphs, nvrtc, quiet, sanitizer};

/// Path of the tool's control socket. Without it, and without the name of one that is there, nothing of us does anything.
const SOCKET: &str = "WARPBPF_SOCKET";

static INSTALLED: Once = Once::new();

/// More bytes than an instruction has: a jump stands behind the first one.
const LONGEST_FIRST: u64 = 16;
/// The function that says where the driver is.
pub(crate) const ANCHOR: &str = "cuLaunchKernel";
/// Where it is; 0 if that is not known.
static DRIVER_AT: AtomicUsize = AtomicUsize::new(0);

/// Where the driver's function [`ANCHOR`] is; 0 if there is none.
pub(crate) fn driver_at() -> usize {
    DRIVER_AT.load(Ordering::Relaxed)
}

/// Is there a tool that wants something?
pub(crate) fn is_wanted() -> bool {
    socket().is_some()
}

fn socket() -> Option<OsString> {
    match std::env::var_os(SOCKET) {
        Some(path) => Some(path).filter(|path| !path.is_empty()),
        None => {
            let name = std::env::var(SHM_NAME).ok()?;
            let mut places = places(&name)?.into_iter();
            places.find(|place| place.exists()).map(Into::into)
        }
    }
}

/// How far the driver is when we come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nobody has initialised it yet.
    BeforeInit,
    /// It calls us: threads may be at the beginning of `cuInit`, which therefore stays as it is. Children that are forked from
    /// here cannot initialise it again, so nothing is missed.
    InsideInit,
}

/// From now on the agent is not installed by the driver or the loader: whoever calls this does it.
pub(crate) fn claim() {
    INSTALLED.call_once(|| ());
}

/// Installs the agent if it is wanted, the driver is loaded, and it was not done before.
pub(crate) fn install(moment: Moment) {
    let (Some(socket), Some(library)) = (socket(), Library::driver()) else {
        return;
    };
    sanitizer::subscribe();
    INSTALLED.call_once(|| {
        // Nothing is printed in the application, not even by a panic.
        std::panic::set_hook(Box::new(|_| {}));
        let symbols = Symbols::new(move |symbol| library.address(symbol));
        install_for(&symbols, Tool::Path(socket.into()), moment);
    });
}

/// Installs the agent in a program that carries its driver inside instead of loading it: `find` gives the address of a
/// driver function, or `None` where the driver lacks it. As everywhere, only if there is a tool, and once.
///
/// # Safety
/// Addresses are of functions with the CUDA Driver API's signatures, and no thread is in them at this moment.
pub unsafe fn install_into(find: impl Fn(&str) -> Option<usize> + Send + Sync + 'static) {
    let Some(socket) = socket() else { return };
    let tool = Tool::Path(socket.into());
    INSTALLED.call_once(|| install_for(&Symbols::new(find), tool, Moment::BeforeInit));
}

fn install_for(library: &Symbols, tool: Tool, moment: Moment) {
    // Files are read from here on.
    let Ok((files, _)) = FileThread::start(None) else {
        return;
    };
    let hooks = Hooks::stage(library, moment);
    let agent = match hooks.api(library) {
        Some(_) if warpbpf_faults::strikes("agent/old-driver") => return,
        Some(api) => Agent::leak(Driver::new(api), library.clone(), tool, files),
        // Older than CUDA 12: the tool hears nothing and says so.
        None => return,
    };
    warpbpf_faults::bug("agent/install-panics");
    if let Some(reason) = hooks.obstacle() {
        agent.refuse_at_once(reason);
        return;
    }
    publish(agent);
    let Hooks {
        rows,
        addresses,
        staged,
    } = hooks;
    // SAFETY: replacements have the signatures of their rows' symbols. The driver is being loaded or initialised: no other
    // thread is in the first instructions of these functions.
    let results = unsafe { staged.commit() };
    tell_unhooked(agent, &rows, &addresses, &results);
    watch_the_end();
}

/// The hooks of the driver's functions, built and not in force.
pub(crate) struct Hooks {
    rows: Vec<(&'static Row, usize)>,
    addresses: Vec<usize>,
    pub(crate) staged: Staged,
}

impl Hooks {
    /// Builds them. From then on the rows' originals are what they are with hooks, which works without, too. Those that nobody may ask for
    /// are not hooked yet, and called by their trampolines from the beginning, so that what we ask never comes to ourselves.
    pub(crate) fn stage(library: &Symbols, moment: Moment) -> Hooks {
        let free = |row: &&Row| moment == Moment::BeforeInit || row.symbol != "cuInit";
        let mut hooks = Hooks::build(library, ROWS.iter().filter(free));
        let anchor = hooks.rows.iter().find(|(row, _)| row.symbol == ANCHOR);
        DRIVER_AT.store(anchor.map_or(0, |(_, address)| *address), Ordering::Relaxed);
        hooks.rows.retain(|(row, _)| !row.asked);
        for (target, address) in hooks.addresses.iter().enumerate() {
            if hooks.rows.iter().all(|(_, of)| of != address) {
                hooks.staged.leave_out(target);
            }
        }
        hooks
    }

    /// Builds those of these rows.
    fn build(library: &Symbols, wanted: impl Iterator<Item = &'static Row>) -> Hooks {
        let mut targets = Vec::new();
        let mut rows = Vec::new();
        for row in wanted {
            let Some(address) = library.address(row.symbol) else {
                continue;
            };
            rows.push((row, address));
            // Two names may be one function; of the versions of one, the newest row comes first.
            if !targets.iter().any(|t: &Target| t.address == address) {
                targets.push(Target {
                    address,
                    // SAFETY: the driver exports a function of this name.
                    code: unsafe { code_of(address) },
                    replacement: (row.replacement)(),
                    kind: Kind::Driver,
                });
            }
        }
        let staged = stage(&targets);
        let addresses: Vec<usize> = targets.iter().map(|t| t.address).collect();
        for (row, address) in &rows {
            let at = addresses.iter().position(|a| a == address);
            let original = at.and_then(|at| staged.originals[at].as_ref().ok());
            // A function that is not hooked is still called by us: by its own address.
            row.original
                .store(original.copied().unwrap_or(*address), Ordering::Relaxed);
        }
        Hooks {
            rows,
            addresses,
            staged,
        }
    }

    /// The driver's functions as we call them: by trampolines where they are hooked. `None` if it lacks one.
    pub(crate) fn api(&self, library: &Symbols) -> Option<Api> {
        let trampolines: HashMap<usize, usize> = self
            .addresses
            .iter()
            .zip(&self.staged.originals)
            .filter_map(|(address, original)| Some((*address, *original.as_ref().ok()?)))
            .collect();
        let resolve = |symbol: &'static str| {
            let address = library.address(symbol).unwrap_or(0);
            trampolines.get(&address).copied().unwrap_or(address) as *const c_void
        };
        // SAFETY: addresses of the driver's functions of these names, or trampolines to them.
        unsafe { Api::resolve(resolve) }.ok()
    }

    /// What stands in the way of those that are essential.
    pub(crate) fn obstacle(&self) -> Option<String> {
        obstacle(&self.rows, &self.addresses, &self.staged.originals)
    }

    /// Tells which functions will not be hooked, where all others are.
    pub(crate) fn tell_unhooked(&self, agent: &Agent) {
        let results = &self.staged.originals;
        tell_unhooked(agent, &self.rows, &self.addresses, results);
    }
}

/// The driver's functions as we call them where hooks are in force already.
pub(crate) fn hooked_api(library: &Symbols) -> Option<Api> {
    let hooked: HashMap<usize, usize> = ROWS
        .iter()
        .filter_map(|row| {
            let original = row.original.load(Ordering::Relaxed);
            Some((library.address(row.symbol)?, original)).filter(|_| original != 0)
        })
        .collect();
    let resolve = |symbol: &'static str| {
        let address = library.address(symbol).unwrap_or(0);
        hooked.get(&address).copied().unwrap_or(address) as *const c_void
    };
    // SAFETY: addresses of the driver's functions of these names, or trampolines to them.
    unsafe { Api::resolve(resolve) }.ok()
}

/// Hooks what is hooked only where the user asks for it, and is not yet.
pub(crate) fn hook_asked(agent: &Agent) {
    // Another tool may have been here.
    let hooked = |row: &&Row| {
        let address = agent.symbol(row.symbol).unwrap_or(0) as u64;
        let behind = address + 1..address + LONGEST_FIRST;
        in_force().iter().any(|patch| behind.contains(&patch.at))
    };
    let rows = ROWS.iter().filter(|row| row.asked && !hooked(row));
    let Hooks {
        rows,
        addresses,
        staged,
    } = Hooks::build(&agent.symbols, rows);
    // SAFETY: replacements have the signatures of their rows' symbols. That no thread is in the first instructions of these functions just now is
    // assumed, as of functions with programs (docs/attach.md).
    let results = unsafe { staged.commit() };
    tell_unhooked(agent, &rows, &addresses, &results);
}

/// Tells the user which functions are not hooked, and does without what needs them.
fn tell_unhooked(
    agent: &Agent,
    rows: &[(&Row, usize)],
    addresses: &[usize],
    results: &[Result<usize, HookError>],
) {
    let failed: Vec<String> = addresses
        .iter()
        .zip(results)
        .filter_map(|(address, result)| {
            let (row, _) = rows.iter().find(|(_, a)| a == address)?;
            Some(format!("`{}`: {}", row.symbol, result.as_ref().err()?))
        })
        .collect();
    let unhooked = |address: &usize| {
        let at = addresses.iter().position(|a| a == address);
        at.is_none_or(|at| results[at].is_err())
    };
    let lacks = |needs: fn(&str) -> bool| {
        rows.iter()
            .any(|(row, address)| needs(row.symbol) && unhooked(address))
    };
    if lacks(quiet::needs) {
        agent.quiet.give_up();
    }
    let mut without = "";
    if lacks(graphs::needs) {
        agent.graphs.go_blind();
        without = "; kernels in graphs run without probes and are not counted";
    }
    if !failed.is_empty() {
        agent.note(
            warpbpf_wire::NoteLevel::Warning,
            format!(
                "these driver functions are not hooked: {}{without}",
                failed.join("; ")
            ),
        );
    }
}

/// What stands in the way of essential hooks.
fn obstacle(
    rows: &[(&Row, usize)],
    addresses: &[usize],
    originals: &[Result<usize, HookError>],
) -> Option<String> {
    let mut reasons = Vec::new();
    let mut taken = Vec::new();
    let mut unread = None;
    for row in ROWS.iter().filter(|row| row.essential) {
        let symbol = row.symbol;
        let Some((_, address)) = rows.iter().find(|(r, _)| r.symbol == symbol) else {
            reasons.push(format!("it has no `{symbol}`"));
            continue;
        };
        let at = addresses.iter().position(|a| a == address);
        match at.and_then(|at| originals.get(at)) {
            Some(Err(HookError::Taken { .. })) => taken.push(format!("`{symbol}`")),
            // It is the same for all.
            Some(Err(error @ HookError::Unread(_))) => unread = Some(error.to_string()),
            Some(Err(error)) => reasons.push(format!("`{symbol}`: {error}")),
            Some(Ok(_)) | None => {}
        }
    }
    reasons.extend(unread);
    if !taken.is_empty() {
        reasons.push(format!(
            "{} are hooked already; only one warpbpf, and no other tool that hooks the driver, can be in a process",
            taken.join(", ")
        ));
    }
    (!reasons.is_empty())
        .then(|| format!("the CUDA driver cannot be hooked: {}", reasons.join("; ")))
}

/// Brings data home at exit, and keeps out of forked children. Once: handlers cannot be taken back.
pub(crate) fn watch_the_end() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(watch);
}

fn watch() {
    unsafe extern "C" fn child() {
        nvrtc::forked();
        if let Some(agent) = agent() {
            agent.turn_off_in_child();
        }
    }
    bring_home_at_exit();
    // SAFETY: the function lives as long as the process: this library is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
    stay_loaded();
}

/// Registers the last drain. Handlers run last come, first served, and the driver's own one ends the driver: so this is
/// done again once the driver is initialised, which under `LD_PRELOAD` it is not when the hooks are set.
pub(crate) fn bring_home_at_exit() {
    extern "C" fn exit() {
        if let Some(agent) = agent() {
            at_exit(agent);
        }
    }
    // SAFETY: as above.
    unsafe { libc::atexit(exit) };
}

/// Takes a reference to ourselves that nobody gives back: hooks, thread and handlers point into this library.
fn stay_loaded() {
    // SAFETY: zeroes are a valid Dl_info; the address is in this library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here = stay_loaded as *const () as *const c_void;
        if libc::dladdr(here, &mut info) != 0 && !info.dli_fname.is_null() {
            let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE;
            libc::dlopen(info.dli_fname, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_are_named() {
        let all: Vec<(&Row, usize)> = ROWS.iter().zip(1..).collect();
        let addresses: Vec<usize> = (1..=ROWS.len()).collect();
        let mut originals: Vec<Result<usize, HookError>> =
            addresses.iter().map(|a| Ok(*a)).collect();
        assert_eq!(obstacle(&all, &addresses, &originals), None);
        let at = |symbol: &str| ROWS.iter().position(|r| r.symbol == symbol).unwrap();
        // One that is not essential may fail.
        originals[at("cuModuleLoad")] = Err(HookError::NoRoom);
        assert_eq!(obstacle(&all, &addresses, &originals), None);
        for symbol in ["cuLaunchKernel", "cuLaunchKernelEx"] {
            originals[at(symbol)] = Err(HookError::Taken { text: "jmp".into() });
        }
        originals[at("cuModuleUnload")] = Err(HookError::Short { bytes: 2, needs: 5 });
        assert_eq!(
            obstacle(&all, &addresses, &originals).unwrap(),
            "the CUDA driver cannot be hooked: `cuModuleUnload`: it ends 2 bytes behind its first instruction, a jump \
             needs 5; `cuLaunchKernel`, `cuLaunchKernelEx` are hooked already; only one warpbpf, and no other tool that \
             hooks the driver, can be in a process"
        );
        let unread = warpbpf_hook::maps::read("/none/maps").unwrap_err();
        let unread = vec![Err(HookError::Unread(unread)); ROWS.len()];
        assert_eq!(
            obstacle(&all, &addresses, &unread).unwrap(),
            "the CUDA driver cannot be hooked: it is not known where memory is free: `/none/maps` cannot be read: \
             No such file or directory (os error 2)"
        );
        let fewer: Vec<_> = all
            .iter()
            .filter(|(r, _)| r.symbol != "cuLibraryUnload")
            .copied()
            .collect();
        let message = obstacle(&fewer, &addresses, &[]).unwrap();
        assert_eq!(
            message,
            "the CUDA driver cannot be hooked: it has no `cuLibraryUnload`"
        );
    }
}
