//! Changes of what an application has left behind.

use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, EEXIST, ENOENT};
use warpbpf_maps::{AccessError, MapView, merge, words};
use warpbpf_wire::{MapOp, OpCode, Outcome};

use super::agent::Agent;
use crate::objects::session::Copied;

impl Agent {
    /// The same operations on what it has left behind.
    pub(super) fn operate_after(
        &mut self,
        number: u32,
        ops: &[MapOp<'_>],
    ) -> Result<Vec<Outcome>, Errno> {
        let outcomes = ops.iter().map(|op| self.operate_on_copy(number, op));
        outcomes.map(|o| o.ok_or(Errno::OPNOTSUPP)).collect()
    }

    /// Changes the final copy, as the devices would have been changed.
    fn operate_on_copy(&mut self, number: u32, op: &MapOp<'_>) -> Option<Outcome> {
        let copied = self.copy(number)?;
        // What is known of a user ring are its positions only, and no program drains it any more.
        if matches!(copied.plan.layout, MapLayout::UserRing(_)) {
            return None;
        }
        if matches!(
            copied.plan.layout,
            MapLayout::Queue(_) | MapLayout::Bloom(_)
        ) {
            return self.operate_on_row(number, op, &copied);
        }
        let (plan, count) = (&copied.plan, copied.parts.len());
        let lookup = || {
            MapView::merged(plan, &copied.parts)
                .ok()?
                .lookup(op.key)
                .ok()
        };
        let values = match op.code {
            OpCode::Update if count > 1 => {
                match (op.flags, lookup()?.is_some()) {
                    (BPF_NOEXIST, true) => return Some(Outcome::failed(EEXIST as i32)),
                    (BPF_EXIST, false) => return Some(Outcome::failed(ENOENT as i32)),
                    _ => {}
                }
                merge::split(plan, op.value, count)
            }
            OpCode::Update => vec![op.value.to_vec()],
            OpCode::Words => {
                let each = words::split(plan, op.value, count);
                let changed = copied.parts.iter().zip(&each).map(|(part, packed)| {
                    let found = MapView::new(plan, part).ok()?.lookup(op.key).ok()??;
                    let (words, marks) = words::unpack(packed, plan.value_size as usize)?;
                    let warpbpf_maps::Value::One(mut value) = found else {
                        return None;
                    };
                    words::apply(words, marks, &mut value);
                    Some(value)
                });
                changed.collect::<Option<Vec<_>>>()?
            }
            OpCode::Delete => Vec::new(),
            OpCode::LookupAndDelete => {
                let value = match lookup()?? {
                    warpbpf_maps::Value::One(value) => value,
                    warpbpf_maps::Value::PerSm(_) | warpbpf_maps::Value::PerThread(_) => {
                        return None;
                    }
                };
                let delete = MapOp {
                    code: OpCode::Delete,
                    ..*op
                };
                let outcome = self.operate_on_copy(number, &delete)?;
                return Some(if outcome.errno == 0 {
                    Outcome::done(value)
                } else {
                    outcome
                });
            }
            OpCode::Lookup | OpCode::Push | OpCode::Pop | OpCode::Peek | OpCode::Snapshot => {
                return None;
            }
        };
        let flags = if count > 1 { BPF_ANY } else { op.flags };
        let mut parts = copied.parts.as_ref().clone();
        let (mut done, mut failed) = (false, None);
        for (at, bytes) in parts.iter_mut().enumerate() {
            let writes = match values.get(at) {
                Some(value) => warpbpf_maps::update(plan, bytes, op.key, value, flags),
                None => warpbpf_maps::delete(plan, bytes, op.key),
            };
            match writes {
                Ok(writes) => {
                    done = true;
                    for write in writes {
                        let at = write.offset as usize;
                        bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
                    }
                }
                Err(error) => failed = Some(Outcome::failed(error.errno() as i32)),
            }
        }
        // A key that is deleted need not have been in all parts.
        if let Some(failed) = failed.filter(|_| !done || op.code != OpCode::Delete) {
            return Some(failed);
        }
        self.after.insert(number, Arc::new(parts));
        Some(Outcome::done(Vec::new()))
    }
    /// The same of a queue, a stack or a filter. What only one context may do is done in the first
    /// that can.
    fn operate_on_row(&mut self, number: u32, op: &MapOp<'_>, copied: &Copied) -> Option<Outcome> {
        let plan = &copied.plan;
        let is_filter = matches!(plan.layout, MapLayout::Bloom(_));
        let failed = |error: AccessError| Outcome::failed(error.errno() as i32);
        if is_filter && op.code == OpCode::Peek {
            let view = MapView::merged(plan, &copied.parts);
            return Some(match view.and_then(|view| view.contains(op.value)) {
                Ok(true) => Outcome::done(Vec::new()),
                Ok(false) => Outcome::failed(ENOENT as i32),
                Err(error) => failed(error),
            });
        }
        let mut parts = copied.parts.as_ref().clone();
        let mut outcome = None;
        for bytes in &mut parts {
            let done = match op.code {
                OpCode::Push => warpbpf_maps::update(plan, bytes, op.key, op.value, op.flags)
                    .map(|writes| (Vec::new(), writes)),
                OpCode::Pop | OpCode::Peek => warpbpf_maps::pop(plan, bytes),
                _ => return None,
            };
            let (value, writes) = match done {
                Ok(done) => done,
                Err(error) => {
                    outcome = Some(failed(error));
                    continue;
                }
            };
            outcome = Some(Outcome::done(value));
            if op.code != OpCode::Peek {
                for write in writes {
                    let at = write.offset as usize;
                    bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
                }
            }
            if !is_filter {
                break;
            }
        }
        self.after.insert(number, Arc::new(parts));
        outcome
    }
}
