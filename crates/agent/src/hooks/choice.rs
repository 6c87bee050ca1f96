//! Which launches get probes, of those that could have them: the user may want fewer.

use std::sync::Arc;

use warpbpf_session::choices::Choices;
use warpbpf_session::names::is_like;
use warpbpf_wire::{Choice, NoteLevel, StreamPick};

use crate::device::streams::Streams;
use crate::kernels::clients::{Tally, bit_of};
use crate::kernels::entry::Entry;
use crate::kernels::generation::{Generation, Launches};
use crate::kernels::stream_name::{LEGACY_STREAM, PER_THREAD_STREAM, StreamName};
use crate::runtime::agent::Agent;
use crate::trace::nvtx;

/// A launch as a choice sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// The number of the launch among those of kernels of this name, from 1; `None` in a graph,
    /// whose launches all run the same.
    pub(crate) number: Option<u64>,
    /// Blocks of the grid.
    pub(crate) blocks: u64,
    /// Its stream; `None` in a graph, whose kernels run wherever it is launched.
    pub(crate) stream: Option<StreamName>,
    /// The application makes it, captures it or puts it into a graph just now, so that its ranges
    /// are those of this thread.
    pub(crate) now: bool,
}

/// The launch gets probes. `device` is asked for its ordinal, `is_inside` for the thread's ranges,
/// and `is_picked` for the stream, only where that matters.
fn takes(
    choice: &Choice,
    candidate: Candidate,
    device: impl FnOnce() -> Option<u32>,
    is_inside: impl FnOnce(&[String]) -> bool,
    is_picked: impl FnOnce(&[StreamPick], StreamName) -> bool,
) -> bool {
    let every = choice.every.max(1);
    let in_turn = match candidate.number {
        None => !choice.goes_by_number(),
        Some(number) => {
            let index = number.saturating_sub(1);
            index.checked_sub(choice.after).is_some_and(|index| {
                index % every == 0 && choice.at_most.is_none_or(|most| index / every < most)
            })
        }
    };
    in_turn
        && candidate.blocks >= choice.min_blocks
        && choice
            .max_blocks
            .is_none_or(|most| candidate.blocks <= most)
        && (choice.gpus.is_empty() || device().is_some_and(|gpu| choice.gpus.contains(&gpu)))
        && (choice.streams.is_empty()
            || candidate
                .stream
                .is_some_and(|name| is_picked(&choice.streams, name)))
        && (choice.nvtx.is_empty() || (candidate.now && is_inside(&choice.nvtx)))
}

/// What only a single launch has, and none of a graph.
fn goes_by_launch(choice: &Choice) -> bool {
    choice.goes_by_number() || !choice.streams.is_empty()
}

impl Agent {
    /// The user wants probes of this choice in this launch, which is for the current context.
    fn takes(&self, choice: &Choice, candidate: Candidate) -> bool {
        let device = || u32::try_from(self.driver.current_device().ok()?).ok();
        #[cfg(test)]
        ASKED.set(ASKED.get() + 1);
        // A choice in force lives as long as the agent, so where it lies tells it from others.
        let who = std::ptr::from_ref(choice) as usize;
        let is_inside = |globs: &[String]| nvtx::is_inside(who, globs);
        let is_picked = |picks: &[StreamPick], name| are_picked(&self.streams, picks, name);
        takes(choice, candidate, device, is_inside, is_picked)
    }

    /// Which tools would not have a launch that counts as uninstrumented: a bit for each request of
    /// the tally.
    pub(crate) fn not_for(
        &self,
        tally: &Tally,
        generation: &'static Generation,
        candidate: Candidate,
    ) -> u64 {
        match generation.launches() {
            Launches::Each => tally.not_for(|choice| self.takes(choice, candidate)),
            Launches::All | Launches::Same(_) => 0,
        }
    }

    /// A bit for each choice of a kernel's programs that takes this launch, which is for the
    /// current context; 0 if none of them does. To be asked once for each launch. Of one context
    /// the choices are those of all, and those of all tools
    /// ([`crate::kernels::entry::Place::of_variant`]); `None` where the programs are not known yet.
    #[inline]
    pub(crate) fn chosen(
        &self,
        generation: &'static Generation,
        entry: &Entry,
        candidate: Candidate,
    ) -> Option<u64> {
        match generation.launches() {
            Launches::All => Some(u64::MAX),
            Launches::Same(choice) => Some(match self.takes(choice, candidate) {
                true => u64::MAX,
                false => 0,
            }),
            Launches::Each => {
                let mut places = entry.places().filter(|p| p.generation == generation.number);
                let place = places.next()?;
                Some(self.chosen_of(&place.choices, candidate))
            }
        }
    }

    /// The same of these choices, where programs choose different launches.
    pub(crate) fn chosen_of(&self, choices: &Choices, candidate: Candidate) -> u64 {
        // No program wants the kernel, or it waits for such that come.
        if choices.all().is_empty() {
            return u64::MAX;
        }
        let taken = |choice: &Arc<Choice>| self.takes(choice, candidate);
        let all = (0..).zip(choices.all());
        let taken = all.filter(|(_, choice)| taken(choice));
        taken.fold(0, |mask, (bit, _)| mask | bit_of(bit))
    }

    /// Tells why a kernel has no probes in a graph, where choices go by what only a single launch
    /// has.
    pub(crate) fn tell_of_choice_in_graph(&self, entry: &Entry) {
        let session = self.generations.now().session.get();
        let name = &entry.mangled;
        let wanted = session.map_or(Vec::new(), |session| session.matching(name));
        let programs = session.map_or(&[][..], |session| session.programs());
        let mut all = wanted.iter().map(|program| &programs[*program].choice);
        if let Some(choice) = all.find(|choice| goes_by_launch(choice)) {
            let text = format!(
                "kernel `{name}` is in a graph, whose launches all run the same: chosen by number or stream ({choice}) it runs without probes there, and is counted as skipped"
            );
            self.note(NoteLevel::Warning, text);
        }
    }

    /// The same of programs of a kernel that others run in there.
    pub(crate) fn tell_of_programs_in_graph(&self, entry: &Entry, choices: &Choices, chosen: u64) {
        for (program, bit) in choices.programs() {
            let choice = &choices.all()[*bit as usize];
            if chosen >> bit & 1 == 0 && goes_by_launch(choice) {
                let name = &entry.mangled;
                let text = format!(
                    "kernel `{name}` is in a graph, whose launches all run the same: its program `{program}` ({choice}) does not run there"
                );
                self.note(NoteLevel::Warning, text);
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How often a choice was compared with a launch of this thread.
    pub(crate) static ASKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One of these is the stream.
pub(crate) fn are_picked(streams: &Streams, picks: &[StreamPick], name: StreamName) -> bool {
    let handle = name.handle() as usize;
    let is_named = |glob: &str| nvtx::stream_name(handle).is_some_and(|name| is_like(glob, &name));
    picks.iter().any(|pick| match pick {
        StreamPick::Default => handle <= LEGACY_STREAM,
        StreamPick::PerThread => handle == PER_THREAD_STREAM,
        StreamPick::Other => handle > PER_THREAD_STREAM,
        StreamPick::Number(number) => streams.number(handle) == *number,
        StreamPick::Named(glob) => is_named(glob),
    })
}

#[cfg(test)]
mod tests {
    use warpbpf_driver::sys::CUstream;

    use super::*;

    fn taken(choice: &Choice, launches: u64) -> Vec<u64> {
        let candidate = |number| Candidate {
            number: Some(number),
            blocks: 4,
            stream: None,
            now: true,
        };
        (1..=launches)
            .filter(|number| takes(choice, candidate(*number), || None, |_| false, |_, _| false))
            .collect()
    }

    #[test]
    fn launches_are_taken_by_their_numbers() {
        let choice = Choice::default();
        assert_eq!(taken(&choice, 3), [1, 2, 3]);
        let choice = Choice {
            every: 3,
            after: 2,
            ..Choice::default()
        };
        assert_eq!(taken(&choice, 10), [3, 6, 9]);
        let choice = Choice {
            at_most: Some(2),
            ..choice
        };
        assert_eq!(taken(&choice, 100), [3, 6]);
        let choice = Choice {
            at_most: Some(0),
            ..Choice::default()
        };
        assert!(taken(&choice, 10).is_empty());
    }

    #[test]
    fn grids_and_devices_are_chosen_in_graphs_too() {
        let choice = Choice {
            min_blocks: 2,
            max_blocks: Some(8),
            gpus: vec![1, 3],
            ..Choice::default()
        };
        let graph = |blocks| Candidate {
            number: None,
            blocks,
            stream: None,
            now: false,
        };
        let of = |blocks, gpu| takes(&choice, graph(blocks), || gpu, |_| false, |_, _| false);
        let grids = [1, 2, 8, 9].map(|blocks| of(blocks, Some(1)));
        assert_eq!(grids, [false, true, true, false]);
        let devices = [None, Some(0), Some(1), Some(2), Some(3)].map(|gpu| of(4, gpu));
        assert_eq!(devices, [false, false, true, false, true]);
        let by_number = Choice { every: 2, ..choice };
        assert!(!takes(
            &by_number,
            graph(4),
            || Some(1),
            |_| false,
            |_, _| false
        ));
    }

    #[test]
    fn ranges_are_of_the_thread_that_makes_the_launch() {
        let choice = Choice {
            nvtx: vec!["step/*".into()],
            ..Choice::default()
        };
        let of = |now, inside: bool| {
            let candidate = Candidate {
                number: None,
                blocks: 4,
                stream: None,
                now,
            };
            takes(
                &choice,
                candidate,
                || None,
                |globs| {
                    assert_eq!(globs, ["step/*"]);
                    inside
                },
                |_, _| false,
            )
        };
        assert_eq!(
            [of(true, true), of(true, false), of(false, true)],
            [true, false, false]
        );
    }
    #[test]
    fn a_kernel_of_a_graph_is_in_no_stream() {
        let choice = Choice {
            streams: vec![StreamPick::Number(3)],
            ..Choice::default()
        };
        let name = StreamName {
            stream: 0x40 as _,
            null_is_per_thread: false,
        };
        let of = |stream, picked: bool| {
            let candidate = Candidate {
                number: None,
                blocks: 4,
                stream,
                now: true,
            };
            takes(
                &choice,
                candidate,
                || None,
                |_| false,
                |picks, _| {
                    assert_eq!(picks, [StreamPick::Number(3)]);
                    picked
                },
            )
        };
        let all = [of(Some(name), true), of(Some(name), false), of(None, true)];
        assert_eq!(all, [true, false, false]);
    }

    fn name(handle: usize, null_is_per_thread: bool) -> StreamName {
        StreamName {
            stream: handle as CUstream,
            null_is_per_thread,
        }
    }

    #[test]
    fn streams_are_picked_by_kind_and_number() {
        let streams = Streams::default();
        streams.made(0x40);
        let all = [
            name(0, false),
            name(0, true),
            name(1, true),
            name(2, false),
            name(0x40, false),
            name(0x80, true),
        ];
        let picked = |pick: StreamPick| {
            all.map(|name| u8::from(are_picked(&streams, std::slice::from_ref(&pick), name)))
        };
        assert_eq!(picked(StreamPick::Default), [1, 0, 1, 0, 0, 0]);
        assert_eq!(picked(StreamPick::PerThread), [0, 1, 0, 1, 0, 0]);
        assert_eq!(picked(StreamPick::Other), [0, 0, 0, 0, 1, 1]);
        assert_eq!(picked(StreamPick::Number(1)), [0, 0, 0, 0, 1, 0]);
        assert_eq!(picked(StreamPick::Number(2)), [0, 0, 0, 0, 0, 1]);
        assert_eq!(
            picked(StreamPick::Named("*".into())),
            [0; 6],
            "none has a name"
        );
        assert!(!are_picked(&streams, &[], all[0]));
    }
}
