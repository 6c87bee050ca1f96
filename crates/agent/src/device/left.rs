//! What contexts that have ended left of one map, as operations of the host find and change it. It
//! lies in memory that the tool sees, so a change is a snapshot more.

use std::sync::{Arc, MutexGuard};

use warpbpf_maps::left::{Done, apply, is_silent, superseded};
use warpbpf_maps::{MapPlan, MapView, Write, merge, pop};
use warpbpf_session::{Action, Answer, HostOp};

use crate::device::context_registry::{ContextRegistry, Ended};
use crate::sys::lock::lock;

/// See the module. For as long as it is there nobody else has one.
pub(crate) struct Left<'a> {
    ended: Arc<Vec<Arc<Ended>>>,
    plan: &'a MapPlan,
    map: usize,
    /// Copied when they are asked for.
    parts: Option<Vec<Part>>,
    /// None where no context has ended, or the caller has it. Let go of last, behind what is
    /// published when this is dropped.
    _operating: Option<MutexGuard<'a, ()>>,
}

struct Part {
    of: Arc<Ended>,
    bytes: Vec<u8>,
    changed: bool,
}

impl<'a> Left<'a> {
    /// `None` if somebody else has it just now. `held`: the caller has it.
    pub(crate) fn new(
        context_registry: &'a ContextRegistry,
        plan: &'a MapPlan,
        map: usize,
        held: bool,
    ) -> Option<Left<'a>> {
        let ended = context_registry.ended();
        let operating = match held || ended.is_empty() {
            true => None,
            false => Some(context_registry.operate()?),
        };
        Some(Left {
            ended,
            plan,
            map,
            parts: None,
            _operating: operating,
        })
    }

    /// The numbers of the contexts, in order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.ended.iter().map(|ended| ended.number).collect()
    }

    fn parts(&mut self) -> &mut Vec<Part> {
        let (ended, plan, map) = (&self.ended, self.plan, self.map);
        self.parts.get_or_insert_with(|| {
            let parts = ended.iter().filter_map(|of| {
                let mut bytes = Vec::new();
                if lock(&of.silent).contains(&map) {
                    return None;
                }
                // A map that came with a replacement may have none there.
                lock(&of.memory).snapshot(map, &mut bytes).ok()??;
                if is_silent(plan, &bytes) {
                    lock(&of.silent).insert(map);
                    return None;
                }
                Some(Part {
                    of: Arc::clone(of),
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
            Some((part.of.number, Ok(merge::in_a_row(plan, value))))
        });
        found.collect()
    }

    /// One of them has a value in a bloom filter.
    pub(crate) fn contains(&mut self, value: &[u8]) -> bool {
        let plan = self.plan;
        let has = |part: &Part| MapView::new(plan, &part.bytes)?.contains(value);
        self.parts().iter().any(|part| has(part).unwrap_or(false))
    }

    /// What they hold gives way to an operation that was done in the contexts `in_those`, of which
    /// one may have ended since; `count` as in [`merge::split`].
    pub(crate) fn gives_way(&mut self, op: &HostOp, count: usize, in_those: &[u32]) {
        let plan = self.plan;
        let given = match op.action {
            Action::Update if merge::is_side_by_side(plan) => merge::split(plan, &op.value, count),
            Action::Update | Action::Words | Action::Delete | Action::LookupAndDelete => Vec::new(),
            Action::Lookup | Action::Push | Action::Pop | Action::Peek => return,
        };
        for part in self.parts() {
            let number = part.of.number;
            if in_those.contains(&number) {
                continue;
            }
            let done = match op.action {
                Action::Update => Done::Updated(given.get(number as usize).map_or(&[], |g| g)),
                Action::Words => Done::Words(&op.value),
                _ => Done::Deleted,
            };
            part.write(&superseded(plan, &part.bytes, &op.key, done));
        }
    }

    /// What comes out next of a queue or stack that one of them left; it stays there if it is only
    /// looked at.
    pub(crate) fn take(&mut self, number: u32, action: Action) -> Option<Vec<u8>> {
        let plan = self.plan;
        let part = self
            .parts()
            .iter_mut()
            .find(|part| part.of.number == number)?;
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
            let _ = lock(&part.of.memory).publish(self.map, &part.bytes);
        }
    }
}
