//! How often the application holds the primary context of each device.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use warpbpf_driver::Context;
use warpbpf_driver::sys::{CUcontext, CUdevice};

/// How often the application holds the primary context of each device, as far as we saw, and which
/// one that is.
#[derive(Debug)]
pub(crate) struct Retains([(AtomicI32, AtomicUsize); MOST_DEVICES]);

/// More devices than a machine has; those beyond are treated as if each release were the last.
const MOST_DEVICES: usize = 64;

impl Default for Retains {
    fn default() -> Retains {
        Retains([const { (AtomicI32::new(0), AtomicUsize::new(0)) }; MOST_DEVICES])
    }
}

impl Retains {
    fn slot(&self, device: CUdevice) -> Option<&(AtomicI32, AtomicUsize)> {
        self.0.get(usize::try_from(device).ok()?)
    }

    pub(crate) fn add(&self, device: CUdevice, more: i32) {
        if let Some(slot) = self.slot(device) {
            slot.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn is(&self, device: CUdevice, context: usize) {
        if let Some(slot) = self.slot(device) {
            slot.1.store(context, Ordering::Relaxed);
        }
    }

    pub(crate) fn context(&self, device: CUdevice) -> Option<Context> {
        let context = self.slot(device)?.1.load(Ordering::Relaxed);
        (context != 0).then_some(Context(context as CUcontext))
    }

    /// Primary contexts that the application holds.
    pub(crate) fn held(&self) -> impl Iterator<Item = Context> {
        let held = self
            .0
            .iter()
            .filter(|slot| slot.0.load(Ordering::Relaxed) > 0);
        held.map(|slot| Context(slot.1.load(Ordering::Relaxed) as CUcontext))
            .filter(|context| !context.0.is_null())
    }

    pub(crate) fn of(&self, device: CUdevice) -> i32 {
        self.slot(device).map_or(0, |s| s.0.load(Ordering::Relaxed))
    }
}
