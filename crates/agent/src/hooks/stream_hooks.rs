//! Streams come and go: they get their numbers, and nobody asks one that is gone.

use std::ffi::{c_int, c_uint};

use warpbpf_driver::sys::{self, CUresult, CUstream};

use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;
use crate::trace::nvtx;

/// A stream was made, and its name is that of nobody yet.
///
/// # Safety
/// `to` is where the driver has written the stream's handle, if it succeeded.
unsafe fn note(agent: &Agent, code: CUresult, to: *const CUstream) -> CUresult {
    if code == sys::SUCCESS {
        // SAFETY: the caller's promise.
        let handle = unsafe { to.read() } as usize;
        nvtx::forget_stream(handle);
        agent.streams.made(handle);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn create(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut CUstream,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    unsafe { note(agent, outcome.keep(original::stream_create(to, flags)), to) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn create_with_priority(
    agent: &'static Agent,
    outcome: &Outcome,
    to: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: as above.
    let code = unsafe { original::stream_create_with_priority(to, flags, priority) };
    // SAFETY: as above.
    unsafe { note(agent, outcome.keep(code), to) }
}

macro_rules! destroys {
    ($($name:ident;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(agent: &Agent, outcome: &Outcome, stream: CUstream) -> CUresult {
            {
                // Who asks has none in hand that goes, and afterwards does not find it; the driver
                // may take its time.
                let _asking = agent.quiet.asking();
                agent.quiet.stream_goes(&agent.driver, stream as usize);
                agent.graphs.captures.stream_goes(stream as usize);
            }
            // SAFETY: the application's own argument.
            outcome.keep(unsafe { original::$name(stream) })
        }
    )* };
}

destroys! {
    stream_destroy;
    stream_destroy_v1;
}
