//! Sets the hooks and starts the agent, once per process and only if a tool wants it.

use std::ffi::c_void;
use std::sync::Once;

use warpbpf_driver::Driver;

use crate::contexts::sanitizer;
use crate::control::ends::bring_home_at_exit;
use crate::hooks::hook_rows::{Hooks, Moment, tell_unhooked};
use crate::instrument::nvrtc;
use crate::runtime::agent::{Agent, Tool};
use crate::runtime::published::{agent, publish};
use crate::startup::start::ABOVE;
use crate::sys::descriptors::FileThread;
use crate::sys::symbols::{Library, Symbols};
use crate::sys::wanted::socket;

static INSTALLED: Once = Once::new();

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

/// Installs the agent in a program that carries its driver inside instead of loading it: `find`
/// gives the address of a driver function, or `None` where the driver lacks it. As everywhere, only
/// if there is a tool, and once.
///
/// # Safety
/// Addresses are of functions with the CUDA Driver API's signatures, and no thread is in them at
/// this moment.
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
        Some(api) => Agent::leak(Driver::new(api), library.clone(), tool, files, ABOVE),
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
    // SAFETY: replacements have the signatures of their rows' symbols. The driver is being loaded
    // or initialised: no other thread is in the first instructions of these functions.
    let results = unsafe { staged.commit() };
    tell_unhooked(agent, &rows, &addresses, &results);
    watch_the_end();
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

/// Takes a reference to ourselves that nobody gives back: hooks, thread and handlers point into
/// this library.
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
