//! What a session takes of a device's memory before any kernel runs, by name: so that it can be
//! refused before it is asked for.

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{HostedLayout, MapLayout, env, gate, slots};
use warpbpf_maps::Placement;

use crate::plan::session::Session;

/// Bytes of launch records of one context. They are allocated with the first variant that needs
/// them, never by a launch.
pub const LAUNCH_POOL: u64 = 64 << 20;

impl Session {
    /// Bytes in each context, with names for a person. The code of instrumented kernels is not
    /// among them.
    pub fn device_memory(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = self.on_device().collect();
        let counts = |site: Site, scope: Scope| site == Site::Exit && scope != Scope::Thread;
        if self
            .programs()
            .iter()
            .any(|p| counts(p.spec.site, p.spec.scope))
        {
            all.push(("launch records".to_owned(), LAUNCH_POOL));
        }
        all
    }

    /// What code has addresses of: the maps that lie on the device, and the environment.
    pub(crate) fn on_device(&self) -> impl Iterator<Item = (String, u64)> {
        let of_maps = self
            .maps()
            .iter()
            .map(|plan| (format!("map `{}`", plan.name), plan));
        let of_printk = self
            .printk()
            .map(|plan| ("messages of `bpf_printk`".to_owned(), plan));
        let maps = of_maps.chain(of_printk).filter_map(|(name, plan)| {
            let bytes = match (plan.placement, plan.layout) {
                (Placement::Device, _) => plan.bytes(),
                (Placement::Host, MapLayout::Hosted(_)) => HostedLayout::CONTROL_BYTES,
                (Placement::Host, _) => return None,
            };
            Some((name, bytes))
        });
        let gate = self.has_gate().then(|| ("the gate".to_owned(), gate::SIZE));
        let slots = self
            .has_slots()
            .then(|| ("the slots".to_owned(), slots::SIZE));
        maps.chain([("the environment".to_owned(), env::SIZE)])
            .chain(gate)
            .chain(slots)
    }
}
