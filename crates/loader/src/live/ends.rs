//! What is said when an application has ended, and stands in no map of the tool: that no kernel had a program, which events were lost, and which
//! programs were ended in loops.

use warpbpf_maps::stops;

use super::{Agent, Live};
use crate::kernel::Tell;
use crate::sink::Queue;

/// Events of a map that the tool could not read, of all applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Astray {
    /// They are here, and there is no room for them where the tool reads.
    pub waiting: u64,
    /// There was no room, on the device or here.
    pub full: u64,
    /// A bounded retry ran out.
    pub busy: u64,
}

fn quoted<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl Live {
    /// The events of a map that the tool could not read, by the map's place in the kernel's table.
    pub fn astray(&self, at: usize) -> Astray {
        let mut sum = Astray::default();
        for agent in &self.state().agents {
            let one = agent.astray(at);
            sum.waiting += one.waiting;
            sum.full += one.full;
            sum.busy += one.busy;
        }
        sum
    }
}

/// How sections of programs in kernels begin.
const GPU: &str = "gpu/";
/// Kernels that are named where none is the one that a program is for.
const SHOWN: usize = 5;

impl Agent {
    /// Says that no kernel has a program, and which kernels there were: a name may have been misspelt.
    pub(super) fn tell_unmatched(&self, tell: Tell) {
        let sections = self.offer.programs.iter().map(|(_, section)| section);
        let wanted = quoted(sections.filter(|section| section.starts_with(GPU)));
        if self.instrumented || self.failed || wanted.is_empty() || self.kernels.is_empty() {
            return;
        }
        let more = match self.kernels.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let seen = quoted(self.kernels.iter().take(SHOWN));
        tell(&format!(
            "no kernel has {wanted}; kernels seen: {seen}{more}"
        ));
    }

    /// Says how many events did not get here, and why. libbpf has no place for it.
    pub(super) fn tell_losses(&self, tell: Tell) {
        let each = self.contexts.iter().flat_map(|(_, shared)| {
            let names = (0..).zip(&self.offer.gathered.names);
            names.map(move |(number, name)| (shared, number, name))
        });
        for (shared, number, name) in each {
            let device = shared.device_losses(number);
            let here = shared.lost(number);
            for (count, why) in [
                (
                    device.full,
                    "its ring on the device was full; a larger `max_entries` helps",
                ),
                (device.busy, "a bounded retry ran out"),
                (here, "the tool did not read them in time"),
            ] {
                if count > 0 {
                    tell(&format!("map `{name}`: {count} events were lost: {why}"));
                }
            }
        }
    }

    /// What became of the events of a map of the tool's that are not in its ring.
    fn astray(&self, at: usize) -> Astray {
        let Some(number) = self.offer.gathered.numbers.get(&at) else {
            return Astray::default();
        };
        let queue = self.queues.get(number);
        let mut astray = Astray {
            waiting: queue.map_or(0, Queue::len),
            full: queue.map_or(0, |queue| queue.lost),
            busy: 0,
        };
        for (_, shared) in &self.contexts {
            let device = shared.device_losses(*number);
            astray.full += device.full + shared.lost(*number);
            astray.busy += device.busy;
        }
        astray
    }

    /// Says which programs were ended in loops, and how often: no map of the tool has that.
    pub(super) fn tell_stops(&mut self, tell: Tell) {
        for number in 0..self.maps.len() as u32 {
            let plan = self.maps[number as usize].clone();
            let Some(program) = plan
                .as_deref()
                .and_then(|plan| stops::program_of(&plan.name))
            else {
                continue;
            };
            let count =
                (self.copy(number)).map_or(0, |copied| stops::count(&copied.plan, &copied.parts));
            if count > 0 {
                tell(&stops::told(program, count));
            }
        }
    }
}
