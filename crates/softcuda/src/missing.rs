//! Functions of CUDA that are not there. They are exported all the same, since a program that names
//! one, perhaps for a case that never comes, would not start otherwise; each says its name and
//! answers `CUDA_ERROR_NOT_SUPPORTED`, as a driver does on a device that lacks something.
//! docs/soft-gpu.md has the same list in words.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::error::{CuError, CuResult};
use crate::objects::handle::lock;

/// Says once per process that a function is not there.
pub(crate) fn refuse(name: &'static str) -> CuResult {
    static SAID: Mutex<Option<HashSet<&str>>> = Mutex::new(None);
    if lock(&SAID).get_or_insert_default().insert(name) {
        crate::say::say(&format!("`{name}` is not there"));
    }
    Err(CuError::NOT_SUPPORTED)
}

/// Functions by name.
pub struct Names(pub &'static [(&'static str, *const ())]);

// SAFETY: the addresses are those of functions, which every thread may call.
unsafe impl Sync for Names {}

/// Exports functions whatever their arguments are. `$guard` runs a body that returns `CuResult`.
macro_rules! missing {
    ($guard:path, $before:expr; $($name:ident)*) => {
        $(
            #[doc(hidden)]
            mod $name {
                pub(super) unsafe extern "C" fn body() -> u32 {
                    $guard(|| {
                        $before?;
                        $crate::missing::refuse(stringify!($name))
                    })
                }
            }

            #[doc = concat!("`", stringify!($name), "`: not there, whatever its arguments are.")]
            ///
            /// # Safety
            /// None is needed: nothing that it is given is looked at.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() -> u32 {
                $crate::stub::entry_point!($name::body)
            }
        )*

        /// All of them.
        pub static NAMES: $crate::missing::Names = $crate::missing::Names(&[$((stringify!($name), $name as *const ())),*]);
    };
}

pub(crate) use missing;
