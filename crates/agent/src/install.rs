//! Sets the hooks and starts the agent, once per process and only if a tool wants it.

use std::collections::HashMap;
use std::ffi::{OsString, c_void};
use std::sync::Once;
use std::sync::atomic::Ordering;

use warpbpf_driver::Driver;
use warpbpf_driver::sys::Api;

use crate::agent::{Agent, Tool, at_exit};
use crate::exports::{ROWS, Row, agent, publish};
use crate::hook::{HookError, Target, stage};
use crate::quiet;
use crate::symbols::{Library, Symbols, code_of};

/// Path of the tool's control socket. Without it nothing of us does anything.
const SOCKET: &str = "WARPBPF_SOCKET";

static INSTALLED: Once = Once::new();

/// Is there a tool that wants something?
pub(crate) fn is_wanted() -> bool {
    socket().is_some()
}

fn socket() -> Option<OsString> {
    std::env::var_os(SOCKET).filter(|path| !path.is_empty())
}

/// Installs the agent if it is wanted, the driver is loaded, and it was not done before.
pub(crate) fn install() {
    let (Some(socket), Some(library)) = (socket(), Library::driver()) else {
        return;
    };
    INSTALLED.call_once(|| {
        // Nothing is printed in the application, not even by a panic.
        std::panic::set_hook(Box::new(|_| {}));
        let symbols = Symbols::new(move |symbol| library.address(symbol));
        install_for(&symbols, Tool::Path(socket.into()));
    });
}

/// Installs the agent in a program that carries its driver inside instead of loading it: `find` gives the address of a
/// driver function, or `None` where the driver lacks it. As everywhere, only if `WARPBPF_SOCKET` is set, and once.
///
/// # Safety
/// Addresses are of functions with the CUDA Driver API's signatures, and no thread is in them at this moment.
pub unsafe fn install_into(find: impl Fn(&str) -> Option<usize> + Send + Sync + 'static) {
    let Some(socket) = socket() else { return };
    INSTALLED.call_once(|| install_for(&Symbols::new(find), Tool::Path(socket.into())));
}

fn install_for(library: &Symbols, tool: Tool) {
    let mut targets = Vec::new();
    let mut rows = Vec::new();
    for row in ROWS {
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
                may_throw: false,
            });
        }
    }
    let staged = stage(&targets);
    let addresses: Vec<usize> = targets.iter().map(|t| t.address).collect();
    let trampolines: HashMap<usize, usize> = addresses
        .iter()
        .zip(&staged.originals)
        .filter_map(|(address, original)| Some((*address, *original.as_ref().ok()?)))
        .collect();
    for (row, address) in &rows {
        let original = trampolines.get(address).copied();
        // A function that is not hooked is still called by us: by its own address.
        row.original
            .store(original.unwrap_or(*address), Ordering::Relaxed);
    }
    let resolve = |symbol: &'static str| {
        let address = library.address(symbol).unwrap_or(0);
        trampolines.get(&address).copied().unwrap_or(address) as *const c_void
    };
    // SAFETY: addresses of the driver's functions of these names, or trampolines to them.
    let api = unsafe { Api::resolve(resolve) };
    let Ok(agent) = (match api {
        Ok(api) => Agent::leak(Driver::new(api), library.clone(), tool),
        // Older than CUDA 12: the tool hears nothing and says so.
        Err(_) => return,
    }) else {
        return;
    };
    if let Some(reason) = obstacle(&rows, &addresses, &staged.originals) {
        agent.refuse_at_once(reason);
        return;
    }
    publish(agent);
    // SAFETY: replacements have the signatures of their rows' symbols. The driver is being loaded or initialised: no other
    // thread is in the first instructions of these functions.
    let results = unsafe { staged.commit() };
    let failed: Vec<String> = addresses
        .iter()
        .zip(&results)
        .filter_map(|(address, result)| {
            let (row, _) = rows.iter().find(|(_, a)| a == address)?;
            Some(format!("`{}`: {}", row.symbol, result.as_ref().err()?))
        })
        .collect();
    let unhooked = |address: &usize| {
        let at = addresses.iter().position(|a| a == address);
        at.is_none_or(|at| results[at].is_err())
    };
    let blind = |(row, address): &(&Row, usize)| quiet::needs(row.symbol) && unhooked(address);
    if rows.iter().any(blind) {
        agent.quiet.give_up();
    }
    if !failed.is_empty() {
        agent.note(
            warpbpf_wire::NoteLevel::Warning,
            format!(
                "these driver functions are not hooked: {}",
                failed.join("; ")
            ),
        );
    }
    watch_the_end();
}

/// What stands in the way of essential hooks.
fn obstacle(
    rows: &[(&Row, usize)],
    addresses: &[usize],
    originals: &[Result<usize, HookError>],
) -> Option<String> {
    let mut reasons = Vec::new();
    let mut taken = Vec::new();
    for row in ROWS.iter().filter(|row| row.essential) {
        let symbol = row.symbol;
        let Some((_, address)) = rows.iter().find(|(r, _)| r.symbol == symbol) else {
            reasons.push(format!("it has no `{symbol}`"));
            continue;
        };
        let at = addresses.iter().position(|a| a == address);
        match at.and_then(|at| originals.get(at)) {
            Some(Err(HookError::Taken { .. })) => taken.push(format!("`{symbol}`")),
            Some(Err(error)) => reasons.push(format!("`{symbol}`: {error}")),
            Some(Ok(_)) | None => {}
        }
    }
    if !taken.is_empty() {
        reasons.push(format!(
            "{} are hooked already; only one warpbpf, and no other tool that hooks the driver, can be in a process",
            taken.join(", ")
        ));
    }
    (!reasons.is_empty())
        .then(|| format!("the CUDA driver cannot be hooked: {}", reasons.join("; ")))
}

/// Brings data home at exit, and keeps out of forked children.
fn watch_the_end() {
    unsafe extern "C" fn child() {
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
        originals[at("cuModuleLoad")] = Err(HookError::Breakpoint);
        assert_eq!(obstacle(&all, &addresses, &originals), None);
        for symbol in ["cuLaunchKernel", "cuLaunchKernelEx"] {
            originals[at(symbol)] = Err(HookError::Taken { text: "jmp".into() });
        }
        originals[at("cuModuleUnload")] = Err(HookError::Short { bytes: 2 });
        assert_eq!(
            obstacle(&all, &addresses, &originals).unwrap(),
            "the CUDA driver cannot be hooked: `cuModuleUnload`: it ends 2 bytes behind its first instruction, a jump \
             needs 5; `cuLaunchKernel`, `cuLaunchKernelEx` are hooked already; only one warpbpf, and no other tool that \
             hooks the driver, can be in a process"
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
