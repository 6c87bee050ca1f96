//! The driver's own functions, by their trampolines.
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::sys::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel,
    CUlaunchConfig, CUlibrary, CUlinkState, CUmodule, CUresult, CUstream, GraphNodeParams,
    KernelNodeParams, KernelNodeParams2,
};

use crate::sys::hook_table::for_each_hook;
use crate::sys::symbols::Symbols;

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDescription {
    pub(crate) location_type: c_int,
    pub(crate) location: c_int,
    pub(crate) flags: c_int,
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle([c_char; 64]);

#[cfg(test)]
impl Default for IpcHandle {
    fn default() -> IpcHandle {
        IpcHandle([0; 64])
    }
}

/// `CUDA_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: CUresult = 801;

macro_rules! originals {
    ($( $(#[$mark:ident])? $name:ident = $symbol:literal ( $($arg:ident : $ty:ty),* ) when ($agent:ident => $when:expr) => $handler:path; )*) => {
        /// The driver's symbols, and where the trampolines' addresses are.
        static ALL: &[(&str, &AtomicUsize)] = &[ $( ($symbol, &trampolines::$name) ),* ];

        /// Addresses of trampolines; 0 where the hook is not installed.
        #[expect(non_upper_case_globals, reason = "named like the functions they belong to")]
        pub(crate) mod trampolines {
            use super::AtomicUsize;

            $( pub(crate) static $name: AtomicUsize = AtomicUsize::new(0); )*
        }

        $(
            /// # Safety
            /// As the driver's function of this name.
            #[inline]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> CUresult {
                let address = trampolines::$name.load(Ordering::Relaxed);
                if address == 0 {
                    // An optional function that this driver does not have.
                    return NOT_SUPPORTED;
                }
                type Function = unsafe extern "C" fn($($ty),*) -> CUresult;
                // SAFETY: the installer stored the trampoline of exactly this function.
                let function = unsafe { std::mem::transmute::<usize, Function>(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

for_each_hook!(originals);

/// The driver's functions as we call them where hooks are in force already.
pub(crate) fn hooked_api(library: &Symbols) -> Option<Api> {
    let hooked: HashMap<usize, usize> = ALL
        .iter()
        .filter_map(|(symbol, original)| {
            let original = original.load(Ordering::Relaxed);
            Some((library.address(symbol)?, original)).filter(|_| original != 0)
        })
        .collect();
    let resolve = |symbol: &'static str| {
        let address = library.address(symbol).unwrap_or(0);
        hooked.get(&address).copied().unwrap_or(address) as *const c_void
    };
    // SAFETY: addresses of the driver's functions of these names, or trampolines to them.
    unsafe { Api::resolve(resolve) }.ok()
}
