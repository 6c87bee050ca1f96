//! Makes hashes anew while the application pauses, on the control thread. See `quiet` for when that
//! is, and `session::compaction` for what is done.
//!
//! Launches meet a closed gate only while the map is copied, and copied back; what takes long is
//! done in between with the gate open, and was in vain if anything was launched meanwhile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use warpbpf_session::Live;
use warpbpf_wire::NoteLevel;

use crate::device::quiet::Closed;
use crate::runtime::agent::Agent;

/// Time between two looks, and how long no launch must have been seen before anything is tried.
const PAUSE: Duration = Duration::from_millis(5);
/// Most time between two tries while something runs: it doubles.
const LONGEST: Duration = Duration::from_millis(160);

/// What became of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// The map is anew.
    Done,
    /// Something runs, or has begun.
    Busy,
    /// It cannot be made anew, or the driver did not do it.
    Failed,
    /// It is lost.
    Torn,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Compaction {
    next: Instant,
    pause: Duration,
    /// Launches that had begun at the last look, if none was under way.
    seen: Option<u32>,
    /// Launches that had begun when nothing was left to be done.
    nothing_left_at: Option<u32>,
    /// Maps that cannot be made anew.
    hopeless: BTreeSet<usize>,
}

impl Compaction {
    pub(crate) fn new() -> Compaction {
        Compaction {
            next: Instant::now(),
            pause: PAUSE,
            seen: None,
            nothing_left_at: None,
            hopeless: BTreeSet::new(),
        }
    }

    /// When it wants to look again; `None` if nothing was launched since there was nothing to do.
    pub(crate) fn due(&self, agent: &Agent) -> Option<Instant> {
        let waits =
            agent.quiet.can_be_known() && self.nothing_left_at != Some(agent.quiet.passes().0);
        waits.then_some(self.next)
    }

    /// Two looks with this between them saw no launch: it is worth a try.
    pub(crate) fn is_worth_it(&mut self, agent: &Agent, now: Instant) -> bool {
        if self.due(agent).is_none_or(|due| due > now) {
            return false;
        }
        let (begun, under_way) = agent.quiet.passes();
        let before = std::mem::replace(&mut self.seen, (under_way == 0).then_some(begun));
        let same = before == Some(begun) && under_way == 0;
        if !same {
            self.pause = PAUSE;
        }
        self.next = now + self.pause;
        same
    }

    /// Makes anew what needs it. The context is current on this thread, and nobody else operates on
    /// maps.
    pub(crate) fn turn(&mut self, agent: &Agent, live: &Live) {
        let begun = agent.quiet.passes().0;
        for map in live.compactable() {
            if self.hopeless.contains(&map)
                || !agent
                    .driver
                    .relaxed(|| live.wants_compaction(map))
                    .unwrap_or(false)
            {
                continue;
            }
            let name = &live.session().maps()[map].name;
            match one(agent, live, map) {
                Tried::Done => agent.note(
                    NoteLevel::Info,
                    format!("map `{name}` was compacted while no kernel with programs ran: slots of deleted keys are free again"),
                ),
                Tried::Busy => {
                    self.pause = (self.pause * 2).min(LONGEST);
                    self.next = Instant::now() + self.pause;
                    return;
                }
                Tried::Failed => {
                    self.hopeless.insert(map);
                }
                Tried::Torn => return,
            }
        }
        self.nothing_left_at = Some(begun);
    }
}

fn one(agent: &Agent, live: &Live, map: usize) -> Tried {
    let quiet = &agent.quiet;
    let is_quiet =
        |closed: &Closed<'_>| quiet.is_quiet(&agent.driver, closed) && live.host_is_idle();
    let (before, begun) = {
        let Some(closed) = quiet.close().filter(is_quiet) else {
            return Tried::Busy;
        };
        let copied = agent.driver.relaxed(|| live.copy_for_compaction(map));
        let begun = quiet.passes().0;
        drop(closed);
        match copied {
            Ok(bytes) => (bytes, begun),
            Err(_) => return Tried::Failed,
        }
    };
    let Some(compacted) = live.compacted(map, before) else {
        return Tried::Failed;
    };
    let Some(_closed) = quiet.close() else {
        return Tried::Busy;
    };
    // Those that were turned aside at the gate are among them: it makes no difference.
    if quiet.passes().0 != begun {
        return Tried::Busy;
    }
    match live.put_compacted(&compacted) {
        Ok(true) => Tried::Done,
        Ok(false) => Tried::Failed,
        Err(torn) => {
            // No program may see it.
            agent.table.close();
            agent.note(
                NoteLevel::Warning,
                format!("{torn}; kernels run without probes from now on"),
            );
            Tried::Torn
        }
    }
}
