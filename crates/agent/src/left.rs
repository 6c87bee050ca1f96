//! What contexts that have ended left of one map, as operations of the host find and change it. It lies in memory that the tool sees, so a
//! change is a snapshot more.

use std::sync::{Arc, Mutex};

use warpbpf_maps::left::{Done, apply, superseded};
use warpbpf_maps::{MapPlan, MapView, Write, merge, pop, words};
use warpbpf_session::{Action, Answer, HostOp};
use warpbpf_wire::SharedWriter;

use crate::lives::Lives;
use crate::lock::lock;

/// See the module. It is good for as long as nobody else operates on the map.
pub(crate) struct Left<'a> {
    lives: &'a Lives,
    plan: &'a MapPlan,
    map: usize,
    /// Copied when they are asked for.
    parts: Option<Vec<Part>>,
}

struct Part {
    number: u32,
    memory: Arc<Mutex<SharedWriter>>,
    bytes: Vec<u8>,
    changed: bool,
}

impl<'a> Left<'a> {
    pub(crate) fn new(lives: &'a Lives, plan: &'a MapPlan, map: usize) -> Left<'a> {
        Left {
            lives,
            plan,
            map,
            parts: None,
        }
    }

    /// The numbers of the contexts, in order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.lives
            .ended()
            .iter()
            .map(|(number, _)| *number)
            .collect()
    }

    fn parts(&mut self) -> &mut Vec<Part> {
        let (lives, map) = (self.lives, self.map);
        self.parts.get_or_insert_with(|| {
            let ended = lives.ended();
            let parts = ended.iter().filter_map(|(number, memory)| {
                let mut bytes = Vec::new();
                // A map that came with an exchange has none there.
                lock(memory).snapshot(map, &mut bytes).ok()??;
                Some(Part {
                    number: *number,
                    memory: Arc::clone(memory),
                    bytes,
                    changed: false,
                })
            });
            parts.collect()
        })
    }

    /// What they have for a key, each with its number.
    pub(crate) fn lookup(&mut self, key: &[u8]) -> Vec<(u32, Answer)> {
        let plan = self.plan;
        let found = self.parts().iter().filter_map(|part| {
            let value = MapView::new(plan, &part.bytes).ok()?.lookup(key).ok()??;
            Some((part.number, Ok(merge::in_a_row(plan, value))))
        });
        found.collect()
    }

    /// What they hold gives way to an operation that was done; `count` as in [`merge::split`].
    pub(crate) fn gives_way(&mut self, op: &HostOp, count: usize) {
        let plan = self.plan;
        let given = match op.action {
            Action::Update if merge::is_side_by_side(plan) => merge::split(plan, &op.value, count),
            Action::Update | Action::Words | Action::Delete | Action::LookupAndDelete => Vec::new(),
            Action::Lookup | Action::Push | Action::Pop | Action::Peek => return,
        };
        // Sums are given to the first of two.
        let words = match op.action {
            Action::Words => words::split(plan, &op.value, 2).swap_remove(1),
            _ => Vec::new(),
        };
        for part in self.parts() {
            let done = match op.action {
                Action::Update => Done::Updated(given.get(part.number as usize).map_or(&[], |g| g)),
                Action::Words => Done::Words(&words),
                _ => Done::Deleted,
            };
            part.write(&superseded(plan, &part.bytes, &op.key, done));
        }
    }

    /// What comes out next of a queue or stack that one of them left; it stays there if it is only looked at.
    pub(crate) fn take(&mut self, number: u32, action: Action) -> Option<Vec<u8>> {
        let plan = self.plan;
        let part = self.parts().iter_mut().find(|part| part.number == number)?;
        let (value, writes) = pop(plan, &part.bytes).ok()?;
        if action == Action::Pop {
            part.write(&writes);
        }
        Some(value)
    }
}

impl Part {
    fn write(&mut self, writes: &[Write]) {
        apply(writes, &mut self.bytes);
        self.changed |= !writes.is_empty();
    }
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        for part in self.parts.iter().flatten().filter(|part| part.changed) {
            // It has the size that it was copied with.
            let _ = lock(&part.memory).publish(self.map, &part.bytes);
        }
    }
}
