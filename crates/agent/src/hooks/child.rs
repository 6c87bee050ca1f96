//! A forked child that starts CUDA itself.
//!
//! A child of `fork` has our hooks and none of our threads. It passes everything through, and never
//! speaks to the tool: it may be a data loader that never touches the GPU. But one whose parent had
//! not initialised the driver may do so itself, and is then a process like any other: it gets an
//! agent of its own, which says hello when the first image is loaded. Where the parent was faster,
//! the driver refuses the child, and nothing happens here.

use std::ffi::c_uint;

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{self, CUresult};

use crate::runtime::agent::{Agent, Tool};
use crate::runtime::published::publish;
use crate::sys::descriptors::FileThread;
use crate::sys::guard::Outcome;
use crate::sys::original::{self, hooked_api};

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn init(parents: &'static Agent, outcome: &Outcome, flags: c_uint) -> CUresult {
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::init(flags) });
    if code == sys::SUCCESS {
        start_anew(parents);
    }
    code
}

/// Makes an agent of this process, once. Without one everything passes through as before.
fn start_anew(parents: &'static Agent) {
    // A tool that came late gave its parent a socket, and there is no second one.
    let Some((symbols, path)) = parents.inherited() else {
        return;
    };
    if !parents.hand_over() {
        return;
    }
    let Some(api) = hooked_api(symbols) else {
        return;
    };
    let tool = Tool::Path(path.to_owned());
    // The parent's has no thread here.
    if let Ok((files, _)) = FileThread::start(None) {
        let driver = Driver::new(api);
        publish(Agent::leak(
            driver,
            symbols.clone(),
            tool,
            files,
            parents.above,
        ));
    }
}
