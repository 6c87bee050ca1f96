//! Finds copies of the driver that are not hooked: a process may load two files of the driver, each
//! by its own path. Launches through a copy that is not hooked are not seen, and the report says
//! so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_driver::front::is_driver_name;
use warpbpf_driver::loaded::{self, Loaded};

use crate::sys::lock::lock;

/// What was looked at already.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    /// What was loaded when this was looked at last.
    generation: AtomicU64,
    /// Bases of those of which the user knows.
    known: Mutex<Vec<usize>>,
}

/// Libraries with the name of a driver that are not the one with a function at `hooked`, which is 0
/// where that is not known.
fn others(all: &[Loaded], hooked: usize) -> impl Iterator<Item = &Loaded> {
    let below = all
        .iter()
        .map(|file| file.base)
        .filter(|base| *base <= hooked);
    let own = below.max();
    let drivers = all.iter().filter(|file| is_driver_name(&file.path));
    drivers.filter(move |file| own.is_some() && Some(file.base) != own)
}

impl Drivers {
    /// The paths of drivers that have come, beside the one with a function at `hooked`. No call
    /// into the dynamic linker: its list is read as it is in memory.
    pub(crate) fn look(&self, hooked: usize) -> Vec<String> {
        let mut came = Vec::new();
        let Some(generation) = loaded::generation() else {
            return came;
        };
        if self.generation.load(Ordering::Acquire) == generation {
            return came;
        }
        let Some(all) = loaded::loaded() else {
            return came;
        };
        for other in others(&all, hooked) {
            let mut known = lock(&self.known);
            if !known.contains(&other.base) {
                known.push(other.base);
                came.push(other.path.to_string_lossy().into_owned());
            }
        }
        self.generation.store(generation, Ordering::Release);
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_driver_is_one_that_is_not_hooked() {
        let file = |path: &str, base| Loaded {
            path: std::ffi::CString::new(path).unwrap(),
            base,
        };
        let all = [
            file("", 0x1000),
            file("/usr/lib/libcuda.so.1", 0x7000),
            file("/usr/lib/libcudart.so.13", 0x8000),
            file("/opt/compat/libcuda.so.1", 0x9000),
        ];
        let of = |hooked| {
            others(&all, hooked)
                .map(|file| file.base)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0x7800), [0x9000]);
        assert_eq!(of(0x9010), [0x7000]);
        assert!(of(0).is_empty());
    }
}
