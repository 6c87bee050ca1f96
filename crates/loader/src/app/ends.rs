//! What is said when an application has ended, and stands in no map of the tool: that no kernel had
//! a program, which events were lost, and which programs were ended in loops.

use warpbpf_maps::stops;

use super::agent::{Agent, End};
use super::live::Live;
use crate::kernel::Tell;
use crate::objects::sink::Queue;

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

    /// What will be said if the tool ends now: for who can say it when a signal ends the tool.
    pub fn last_words(&self) -> Vec<String> {
        let mut state = self.state();
        let agents = state.agents.iter_mut();
        agents.flat_map(Agent::last_words).collect()
    }

    /// Some kernel has, or had, a program.
    pub fn is_placed(&self) -> bool {
        self.state().agents.iter().any(|agent| agent.instrumented)
    }

    /// Something has been said since this was last asked.
    pub fn is_word_due(&self) -> bool {
        let mut state = self.state();
        let agents = state.agents.iter_mut();
        agents.fold(false, |due, agent| {
            due | std::mem::take(&mut agent.word_due)
        })
    }

    /// The tool ends: says what stands in no map of it. False if somebody is at work in here, as
    /// where the tool ends in the middle of a call.
    pub fn tell_ends(&self) -> bool {
        let Some(mut state) = self.try_state() else {
            return false;
        };
        for agent in &mut state.agents {
            agent.tell_end(End::Tool, self.tell);
        }
        true
    }
}

/// How sections of programs in kernels begin.
const GPU: &str = "gpu/";
/// Kernels that are named where none is the one that a program is for.
const SHOWN: usize = 5;

impl Agent {
    /// Says, once, what stands in no map of the tool.
    pub(super) fn tell_end(&mut self, end: End, tell: Tell) {
        let first = !std::mem::replace(&mut self.end_told, true);
        self.word_due |= first;
        let mut texts = Vec::new();
        if first {
            texts.extend(self.unmatched());
            texts.extend(self.losses());
            texts.extend(self.stops());
        }
        if end == End::Tool {
            texts.extend(self.unread());
        }
        texts.iter().for_each(|text| tell(text));
    }

    /// What would be said if the tool ended now.
    fn last_words(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        if !self.end_told {
            texts.extend(self.unmatched());
            texts.extend(self.losses());
            texts.extend(self.stops());
        }
        texts.extend(self.unread());
        texts
    }

    /// Events that are here and that a tool which ends has not read.
    fn unread(&self) -> Vec<String> {
        let waiting = self.queues.iter().filter_map(|(map, queue)| {
            let name = self.offer.gathered.names.get(*map as usize)?;
            let count = queue.len();
            (count > 0).then(|| {
                format!("map `{name}`: {count} events were lost: the tool did not read them before it ended")
            })
        });
        let dropped = self.queues.iter().filter_map(|(map, queue)| {
            let name = self.offer.gathered.names.get(*map as usize)?;
            let count = queue.dropped_untold();
            (count > 0).then(|| {
                format!(
                    "map `{name}`: {count} events were lost: the tool did not read them in time"
                )
            })
        });
        waiting.chain(dropped).collect()
    }

    /// That no kernel has a program, and which kernels there were: a name may have been misspelt.
    fn unmatched(&self) -> Option<String> {
        let sections = self.offer.programs.iter().map(|(_, section)| section);
        let wanted = quoted(sections.filter(|section| section.starts_with(GPU)));
        if self.instrumented || self.failed || wanted.is_empty() || self.kernels.is_empty() {
            return None;
        }
        let more = match self.kernels.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let seen = quoted(self.kernels.iter().take(SHOWN));
        Some(format!(
            "no kernel has {wanted}; kernels seen: {seen}{more}"
        ))
    }

    /// How many events did not get here, and why. libbpf has no place for it.
    fn losses(&self) -> Vec<String> {
        let each = self.contexts.iter().flat_map(|(_, shared)| {
            let names = (0..).zip(&self.offer.gathered.names);
            names.map(move |(number, name)| (shared, number, name))
        });
        let mut texts = Vec::new();
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
                    texts.push(format!("map `{name}`: {count} events were lost: {why}"));
                }
            }
        }
        texts
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

    /// Which programs were ended in loops, and how often: no map of the tool has that.
    fn stops(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
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
                texts.push(stops::told(program, count));
            }
        }
        texts
    }
}
