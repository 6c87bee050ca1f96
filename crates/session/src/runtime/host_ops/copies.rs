//! Updates and lookups of hashes that have a value per multiprocessor, of which a kernel would see
//! one.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_EXIST, EIO};
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::{AccessError, MapPlan};

use super::op::{Action, Answer, At, COPIED, HostOp, fail_all, has_copies, looked_up};

/// Updates of a map with a value per multiprocessor: the kernel makes the key, with the value of
/// the one that it runs on; then all values are written as those of an array are.
///
/// They are written where a copy of the map shows them. In a PERCPU_HASH that place is the key's
/// for good, so what comes too late for a key that was deleted is seen by nobody, or is an update
/// of the key that was inserted again. In an LRU_PERCPU_HASH it may be another key's by then, as
/// with any overwrite there ([`warpbpf_abi::layout::LruLayout`]), and the time for that is longer.
#[derive(Debug)]
pub(super) struct Copies {
    plan: MapPlan,
    base: u64,
    /// By operation: all values.
    values: Vec<Vec<u8>>,
    /// Bytes that were copied so far.
    copied: u64,
}

/// Most bytes that are copied for one batch: whoever waits for a copy has other things to do.
const MOST: u64 = 4 * COPIED;

impl Copies {
    /// What the kernel does, and what is left to do. Values of a wrong length stay as they are: the
    /// kernel's record refuses them before a key is made.
    pub(super) fn split(at: &At<'_>, mut ops: Vec<HostOp>) -> (Vec<HostOp>, Option<Copies>) {
        let plan = at.plan();
        let size = plan.value_size as usize;
        let copies = match plan.layout {
            MapLayout::Hash(layout) => layout.copies as usize,
            MapLayout::Lru(layout) => layout.copies as usize,
            // Others have no such values.
            _ => 0,
        };
        let all = size.next_multiple_of(8) * copies;
        let mut values = Vec::with_capacity(ops.len());
        for op in &mut ops {
            let fits = op.value.len() == size || op.value.len() == all;
            values.push(if op.action == Action::Update && fits {
                let first = op.value[..size].to_vec();
                std::mem::replace(&mut op.value, first)
            } else {
                Vec::new()
            });
        }
        let copies = Copies {
            plan: plan.clone(),
            base: at.base(),
            values,
            copied: 0,
        };
        (ops, Some(copies))
    }

    /// So many turns of changes and lookups were copied for that the rest has to be asked for
    /// again.
    pub(super) fn exhausted(&self) -> bool {
        self.copied >= MOST
    }

    /// Lookups of all values.
    pub(super) fn look_up(
        &mut self,
        driver: &Driver,
        stream: Stream,
        ops: &[HostOp],
    ) -> Vec<Answer> {
        match self.read(driver, stream) {
            Ok(bytes) => looked_up(&self.plan, &bytes, ops),
            Err(_) => fail_all(ops, EIO),
        }
    }

    fn read(&mut self, driver: &Driver, stream: Stream) -> Result<Vec<u8>, DriverError> {
        self.copied = self.copied.saturating_add(self.plan.bytes());
        let mut bytes = vec![0; self.plan.bytes() as usize];
        driver.read(self.base, &mut bytes, stream)?;
        Ok(bytes)
    }

    /// Writes all values of the updates among `done`, indices of operations that a launch has just
    /// done: a later one may remove the key, or fail.
    pub(super) fn fill(
        &mut self,
        driver: &Driver,
        stream: Stream,
        ops: &[HostOp],
        done: &[usize],
        answers: &mut [Answer],
    ) {
        let updates = done
            .iter()
            .copied()
            .filter(|index| ops[*index].action == Action::Update && answers[*index].is_ok())
            .collect::<Vec<usize>>();
        if updates.is_empty() {
            return;
        }
        let Ok(bytes) = self.read(driver, stream) else {
            for index in updates {
                answers[index] = Err(EIO);
            }
            return;
        };
        for index in updates {
            let (key, values) = (&ops[index].key, &self.values[index]);
            let filled = match warpbpf_maps::update(&self.plan, &bytes, key, values, BPF_EXIST) {
                Ok(writes) => writes.into_iter().try_for_each(|write| {
                    let to = self.base + write.offset;
                    driver.write(to, &write.bytes, stream).map_err(|_| EIO)
                }),
                // A program has removed it since, which it may do after any update.
                Err(AccessError::Missing { .. }) => Ok(()),
                Err(error) => Err(error.errno()),
            };
            if let Err(errno) = filled {
                answers[index] = Err(errno);
            }
        }
    }
}

/// Values per multiprocessor are seen and set in a copy of the map, and this one is not copied.
pub(super) fn too_large(plan: &MapPlan, ops: &[HostOp]) -> bool {
    let copied = |op: &HostOp| matches!(op.action, Action::Lookup | Action::Update);
    has_copies(plan) && plan.bytes() > COPIED && ops.iter().any(copied)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use warpbpf_abi::maps::MapType;
    use warpbpf_object::{MapDef, MapKind};

    use super::*;
    use crate::runtime::host_ops::most_answered;

    #[test]
    fn maps_that_are_not_copied_lose_keys_only() {
        let plan = |map_type: MapType, max_entries| {
            let def = MapDef {
                name: "m".into(),
                map_type: map_type as u32,
                key_size: 8,
                value_size: 60,
                max_entries,
                flags: 0,
                kind: MapKind::User,
                extra: BTreeMap::new(),
                key_type: None,
                value_type: None,
                inner: None,
                initial: Vec::new(),
            };
            warpbpf_maps::plan(&def, 132, &[]).unwrap()
        };
        let op = |action| HostOp {
            action,
            flags: 0,
            key: vec![0; 8],
            value: Vec::new(),
        };
        let (lookup, delete) = (op(Action::Lookup), op(Action::Delete));
        let vast = plan(MapType::PercpuHash, 200_000);
        assert!(vast.bytes() > COPIED);
        assert!(too_large(&vast, &[delete.clone(), lookup.clone()]));
        assert!(too_large(&vast, &[op(Action::Update)]));
        assert!(!too_large(&vast, std::slice::from_ref(&delete)));
        let small = plan(MapType::LruPercpuHash, 100);
        assert!(!too_large(&small, std::slice::from_ref(&lookup)));
        let plain = plan(MapType::Hash, 10_000_000);
        assert!(plain.bytes() > COPIED && !too_large(&plain, std::slice::from_ref(&lookup)));
        // Each value is padded to 8 bytes.
        let ops = [lookup.clone(), delete, lookup];
        assert_eq!(most_answered(&plain, &ops), 2 * 64);
        assert_eq!(most_answered(&small, &ops), 2 * 64 * 132);
    }
}
