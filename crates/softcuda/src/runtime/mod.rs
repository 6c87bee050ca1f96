//! `libcudart.so.13`: the runtime API over the exported functions of whatever `libcuda.so.1` the
//! process loads, as NVIDIA's runtime does it. Nothing of `driver` is called directly: an agent
//! that hooks the driver's entry points must see every load and launch.

mod device;
mod graphs;
mod images;
pub(crate) mod link;
mod memory;
pub mod missing;
mod ready;
mod register;
mod registered;
mod rows;
pub mod table;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{CuError, CuResult};

/// The version of the runtime that this library stands for.
pub(crate) const RUNTIME_VERSION: i32 = 13_000;

/// `dim3`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim3 {
    /// Columns.
    pub x: u32,
    /// Rows.
    pub y: u32,
    /// Layers.
    pub z: u32,
}

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
}

/// Runs the body of an exported function. What fails is remembered for `cudaGetLastError`.
pub(crate) fn guard(body: impl FnOnce() -> CuResult) -> u32 {
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error.0,
        Err(_) => CuError::UNKNOWN.0,
    };
    LAST_ERROR.set(code);
    code
}

/// `cudaGetLastError`: tells and forgets.
pub(crate) fn take_last_error() -> u32 {
    LAST_ERROR.replace(0)
}

/// `cudaPeekAtLastError`: tells.
pub(crate) fn last_error() -> u32 {
    LAST_ERROR.get()
}

/// Declares exported functions of the runtime API. A row is `EXPORTED [/ PER_THREAD] (ARGUMENTS)
/// = |DRIVER| BODY;` where the body has the driver with a context current on this thread, or with
/// `= | | BODY;` for functions that need none.
macro_rules! runtime_api {
    ($( $export:ident $(/ $per_thread:ident)? ($($arg:ident : $ty:ty),* $(,)?) = |$($driver:ident)?| $body:expr; )*) => {
        $(
            #[doc(hidden)]
            mod $export {
                use super::*;

                pub(super) unsafe extern "C" fn body($($arg: $ty),*) -> u32 {
                    $crate::runtime::guard(|| {
                        $(let $driver = $crate::runtime::ready::ready()?;)?
                        // SAFETY: the caller of the exported function promises what CUDA asks for
                        // its arguments.
                        unsafe { $body }
                    })
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
    };
}

pub(crate) use runtime_api;
