//! What bpftime's tools and their users expect beside `bpf()`: the function by which maps of type 1527 are read, which they look up
//! by name because libbpf has none, and variables of the environment.

use std::ffi::{c_int, c_void};

use crate::contents::Contents;
use crate::global;
use crate::guard::inside;
use crate::kernel::Handle;

/// Gets a record, its bytes, and what the tool wants to be given.
pub type Take = unsafe extern "C" fn(*const c_void, u64, *mut c_void);

/// Variables of bpftime's that ask for something that is not done here. Those that only say how it works there mean nothing.
const NOT_SERVED: &[(&str, &str)] = &[
    (
        "BPFTIME_PTXPASS_LIBRARIES",
        "no other passes over PTX are run; places inside kernels are `gpu/` sections",
    ),
    (
        "BPFTIME_CUDA_LATE_PTX_DIR",
        "PTX is taken from the application alone",
    ),
    (
        "BPFTIME_CUDA_DEVICE",
        "kernels are traced on every device on which the application runs them",
    ),
    ("BPFTIME_VERIFIER_LEVEL", "every program is proved"),
];

/// A text for each variable that is set and not served.
pub fn not_served(is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let set = NOT_SERVED.iter().filter(|(name, _)| is_set(name));
    set.map(|(name, why)| format!("`{name}` is set, which is not served: {why}"))
        .collect()
}

/// Gives the tool all records that have come. How many, or an error as a negative number.
pub fn poll(fd: c_int, context: *mut c_void, take: Option<Take>) -> c_int {
    let found = inside(|| {
        let kernel = global::existing()?;
        let Some(Handle::Map(at)) = kernel.handle(fd) else {
            return None;
        };
        match &kernel.maps.get(at)?.contents {
            Contents::Records(records) => Some(records.clone()),
            _ => None,
        }
    });
    let (Some(Some(records)), Some(take)) = (found, take) else {
        return -libc::EINVAL;
    };
    let taken = records.take();
    for record in &taken {
        // SAFETY: the tool's own function, called as bpftime calls it, with bytes that outlive the call.
        unsafe { take(record.as_ptr().cast(), record.len() as u64, context) };
    }
    c_int::try_from(taken.len()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::not_served;

    #[test]
    fn what_is_not_served_is_said() {
        assert_eq!(
            not_served(|name| name == "BPFTIME_VERIFIER_LEVEL"),
            ["`BPFTIME_VERIFIER_LEVEL` is set, which is not served: every program is proved"]
        );
        assert_eq!(not_served(|_| false), [""; 0]);
    }
}
