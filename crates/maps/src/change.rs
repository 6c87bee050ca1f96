//! Changes that the host makes to what one GPU context has of a map: of a map of maps to what it is
//! stored as.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, BPF_RB_WAKEUPS};

use crate::bytes::index;
use crate::error::AccessError;
use crate::map_plan::{MapPlan, Write};
use crate::part::{Part, check_key, check_value, has_copies, unsupported};
use crate::{array, bloom, hash, hosted, lru, percpu, queue, user_ring};

/// The writes that give `key` the value `value` in a map that no kernel uses now; `bytes` is a
/// snapshot of all of it. They must be done in order. `flags` is `BPF_ANY`, `BPF_NOEXIST` or
/// `BPF_EXIST`.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub(crate) fn update(
    plan: &MapPlan,
    bytes: &[u8],
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<Write>, AccessError> {
    Part::new(plan, bytes)?;
    check_key(plan, key)?;
    match &plan.layout {
        MapLayout::Array(layout) => {
            match flags {
                BPF_ANY | BPF_EXIST => {}
                BPF_NOEXIST => {
                    return Err(AccessError::Exists {
                        map: plan.name.clone(),
                    });
                }
                _ => {
                    return Err(unsupported(
                        plan,
                        &format!("an update with flags {flags:#x}"),
                    ));
                }
            }
            let at = index(key)
                .filter(|key| *key < plan.max_entries)
                .ok_or_else(|| AccessError::Outside {
                    map: plan.name.clone(),
                    max_entries: plan.max_entries,
                })?;
            if has_copies(plan) {
                return percpu::store(&plan.name, layout, at, value);
            }
            check_value(plan, value)?;
            Ok(array::store(layout, at, value))
        }
        MapLayout::Hash(layout) => hash::store(plan, layout, bytes, key, value, flags),
        MapLayout::Lru(layout) => lru::store(plan, layout, bytes, key, value, flags),
        MapLayout::Hosted(layout) => hosted::store(&plan.name, layout, bytes, key, value, flags),
        MapLayout::Queue(layout) => {
            check_value(plan, value)?;
            queue::push(plan, layout, bytes, value, flags)
        }
        MapLayout::Bloom(layout) => {
            check_value(plan, value)?;
            if flags != BPF_ANY {
                return Err(unsupported(plan, &format!("a push with flags {flags:#x}")));
            }
            Ok(bloom::put(layout, bytes, value))
        }
        MapLayout::UserRing(layout) => {
            if flags & !BPF_RB_WAKEUPS != 0 {
                return Err(unsupported(plan, &format!("a push with flags {flags:#x}")));
            }
            user_ring::push(plan, layout, bytes, value)
        }
        MapLayout::PerThread(_) | MapLayout::Ring(_) => {
            Err(unsupported(plan, "an update from the host"))
        }
    }
}

/// The writes that remove `key` from a hash that no kernel uses now; `bytes` is a snapshot of all
/// of it.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub(crate) fn delete(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Result<Vec<Write>, AccessError> {
    Part::new(plan, bytes)?;
    check_key(plan, key)?;
    match &plan.layout {
        MapLayout::Hash(layout) => hash::remove(&plan.name, layout, bytes, key),
        MapLayout::Lru(layout) => lru::remove(&plan.name, layout, bytes, key),
        MapLayout::Hosted(layout) => hosted::remove(&plan.name, layout, bytes, key),
        MapLayout::Array(_)
        | MapLayout::PerThread(_)
        | MapLayout::Ring(_)
        | MapLayout::Queue(_)
        | MapLayout::UserRing(_)
        | MapLayout::Bloom(_) => Err(unsupported(plan, "a delete")),
    }
}

/// The value that comes out of a queue or stack next, and the writes that take it out; no kernel
/// uses the map now and `bytes` is a snapshot of all of it. The writes must be done in order.
///
/// # Errors
/// [`AccessError`], whose [`AccessError::errno`] is Linux's.
pub fn pop(plan: &MapPlan, bytes: &[u8]) -> Result<(Vec<u8>, Vec<Write>), AccessError> {
    Part::new(plan, bytes)?;
    let MapLayout::Queue(layout) = &plan.layout else {
        return Err(unsupported(plan, "a pop"));
    };
    queue::pop(layout, bytes).ok_or_else(|| AccessError::Empty {
        map: plan.name.clone(),
    })
}
