//! What stands in the place of hooked functions: a row of [`crate::sys::hook_table`] becomes a
//! function that asks for the agent and calls the row's handler.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicUsize;

use warpbpf_driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel,
    CUlaunchConfig, CUlibrary, CUlinkState, CUmodule, CUresult, CUstream, GraphNodeParams,
    KernelNodeParams, KernelNodeParams2,
};

use crate::hooks::{
    attributes, child, contexts, graphs, launch, link_hooks, loads, memory_hooks, occupancy,
    stream_hooks,
};
use crate::runtime::published::agent;
use crate::sys::guard::protect;
use crate::sys::hook_table::for_each_hook;
use crate::sys::original::{self, AccessDescription, IpcHandle};

/// A hook as the installer needs it.
#[derive(Debug)]
pub(crate) struct Row {
    /// The driver's symbol.
    pub(crate) symbol: &'static str,
    /// Without it, nothing can be instrumented.
    pub(crate) essential: bool,
    /// It is hooked only where the user asks for it
    /// ([`hook_asked`](crate::hooks::hook_rows::hook_asked)).
    pub(crate) asked: bool,
    /// Our function.
    pub(crate) replacement: fn() -> usize,
    /// Where the trampoline's address goes.
    pub(crate) original: &'static AtomicUsize,
}

/// A function that applications call so often that changing stacks would be seen, and which does
/// little but at a kernel's first launch.
const fn is_of_launch(symbol: &str) -> bool {
    let (symbol, launch) = (symbol.as_bytes(), b"cuLaunch");
    let mut at = 0;
    while at < launch.len() && at < symbol.len() {
        if symbol[at] != launch[at] {
            return false;
        }
        at += 1;
    }
    at == launch.len()
}

macro_rules! hooks {
    ($( $(#[$mark:ident])? $name:ident = $symbol:literal ( $($arg:ident : $ty:ty),* ) when ($agent:ident => $when:expr) => $handler:path; )*) => {
        /// All rows.
        pub(crate) static ROWS: &[Row] = &[ $( Row {
            symbol: $symbol,
            essential: hooks!(@essential $($mark)?),
            asked: hooks!(@asked $($mark)?),
            replacement: || replacement::$name as *const () as usize,
            original: &original::trampolines::$name,
        } ),* ];

        /// What the jumps lead to.
        mod replacement {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    // SAFETY: the application called this function with these arguments.
                    let original = || unsafe { original::$name($($arg),*) };
                    let Some($agent) = agent() else { return original() };
                    if !$when {
                        return original();
                    }
                    protect(
                        const { is_of_launch($symbol) },
                        original,
                        // SAFETY: as above; handlers use the arguments as the driver would.
                        |outcome| unsafe { $handler($agent, outcome, $($arg),*) },
                        |said| $agent.broke($symbol, said),
                    )
                }
            )*
        }
    };
    (@essential essential) => { true };
    (@essential $($other:ident)?) => { false };
    (@asked asked) => { true };
    (@asked $($other:ident)?) => { false };
}

for_each_hook!(hooks);

/// All of our functions that stand in the place of others.
pub(crate) fn replacements() -> Vec<usize> {
    ROWS.iter().map(|row| (row.replacement)()).collect()
}
