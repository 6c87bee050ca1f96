//! What is said when an application has ended, and stands in no map of the tool: which events were lost, and which programs were ended
//! in loops.

use warpbpf_maps::stops;

use super::Agent;
use crate::kernel::Tell;

impl Agent {
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
