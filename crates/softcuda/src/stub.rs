//! Exported entry points, and what stands between them and Rust code.
//!
//! An entry point begins `push rbp; mov rbp, rsp; push r12`, as those of NVIDIA's driver do: a tool
//! that hooks by an inline jump at entry+1, leaving the first byte to a kernel uprobe, finds the
//! same bytes here. What Rust would emit for a function is up to the compiler, so each entry point
//! is a naked stub that undoes these three instructions and jumps to the real function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CuError, CuResult};

/// One entry of the table that `driver_api!` makes.
pub(crate) struct Row {
    pub base: &'static str,
    pub since: u32,
    pub export: &'static str,
    pub address: *const (),
    pub per_thread: Option<(&'static str, *const ())>,
}

// SAFETY: the addresses are those of functions, which every thread may call.
unsafe impl Sync for Row {}

/// Runs the body of an exported function; a panic becomes `CUDA_ERROR_UNKNOWN` and never leaves the
/// library.
pub(crate) fn guard(body: impl FnOnce() -> CuResult) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => CuError::UNKNOWN.0,
    }
}

/// The body of every stub: `$target` is a path to the function that it leads to.
macro_rules! entry_point {
    ($target:path) => {
        core::arch::naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "push r12",
            "pop r12",
            "pop rbp",
            "jmp {target}",
            target = sym $target,
        )
    };
}

/// Declares exported functions of the driver API. Each row is `BASE @ SINCE : EXPORTED [/
/// PER_THREAD] (ARGUMENTS) = IMPLEMENTATION;`: the name that `cuGetProcAddress` is asked for, the
/// CUDA version from which that name means this function, the exported symbol, the symbol of the
/// variant whose NULL stream is the thread's own, and the Rust function behind them.
macro_rules! driver_api {
    ($( $base:ident @ $since:literal : $export:ident $(/ $per_thread:ident)?
        ($($arg:ident : $ty:ty),* $(,)?) = $body:path; )*) => {
        $(
            #[doc(hidden)]
            mod $export {
                use super::*;

                pub(super) unsafe extern "C" fn body($($arg: $ty),*) -> u32 {
                    // SAFETY: the caller of the exported function promises what CUDA asks for its
                    // arguments.
                    $crate::stub::guard(|| unsafe { $body($($arg),*) })
                }
            }

            #[doc = concat!("`", stringify!($export), "` as in CUDA's reference.")]
            ///
            /// # Safety
            /// As CUDA's function: pointers are valid, handles are of the right kind.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $export($($arg: $ty),*) -> u32 {
                $crate::stub::entry_point!($export::body)
            }

            $(
                #[doc = concat!("`", stringify!($per_thread), "`: arguments as of [`", stringify!($export), "`].")]
                ///
                /// # Safety
                /// To be called with the arguments of the function that it is a variant of.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $per_thread() -> u32 {
                    $crate::stub::entry_point!($export::body)
                }
            )?
        )*

        /// The rows, for `cuGetProcAddress`.
        pub(crate) static ENTRIES: &[$crate::stub::Row] = &[
            $($crate::stub::Row {
                base: stringify!($base),
                since: $since,
                export: stringify!($export),
                address: $export as *const (),
                per_thread: driver_api!(@per_thread $($per_thread)?),
            }),*
        ];
    };
    (@per_thread) => { None };
    (@per_thread $name:ident) => { Some((stringify!($name), $name as *const ())) };
}

pub(crate) use driver_api;
pub(crate) use entry_point;
