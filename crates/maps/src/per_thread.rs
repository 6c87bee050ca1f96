//! bpftime's per-thread array (1502): a value per key and linear global thread. Threads beyond
//! `map_extra` get NULL, and are counted, where bpftime wrote out of bounds.

use warpbpf_abi::layout::{MapLayout, PerThreadLayout};
use warpbpf_abi::maps::PER_THREAD_DEFAULT;
use warpbpf_object::MapDef;

use crate::bytes::{slice, u64_at};
use crate::checks::{check_bytes, check_indexed, stride};
use crate::error::MapError;
use crate::map_plan::MapPlan;

pub(crate) fn plan(def: &MapDef, plan: &mut MapPlan) -> Result<(), MapError> {
    check_indexed(def, plan.map_type)?;
    let threads = match def.extra.get("map_extra").copied().unwrap_or(0) {
        0 => PER_THREAD_DEFAULT,
        threads => threads,
    };
    // Below 2^32 * 2^33 * 2^64, so saturation tells the truth: far too much.
    let bytes = (stride(def.value_size) * u128::from(def.max_entries))
        .saturating_mul(u128::from(threads))
        .saturating_add(u128::from(PerThreadLayout::VALUES));
    check_bytes(
        def,
        || {
            format!(
                "`max_entries` {} x value of {} bytes x {threads} threads",
                def.max_entries, def.value_size
            )
        },
        bytes,
        "set `map_extra` to the number of threads of the largest launch",
    )?;
    plan.layout = MapLayout::PerThread(PerThreadLayout {
        max_entries: def.max_entries,
        value_size: def.value_size,
        threads,
    });
    Ok(())
}

/// The values of `key` that are not all zero, with their threads in order.
pub(crate) fn values(layout: &PerThreadLayout, bytes: &[u8], key: u32) -> Vec<(u64, Vec<u8>)> {
    (0..layout.threads)
        .filter_map(|thread| {
            let value = value(layout, bytes, key, thread);
            value
                .iter()
                .any(|byte| *byte != 0)
                .then(|| (thread, value.to_vec()))
        })
        .collect()
}

pub(crate) fn value<'a>(
    layout: &PerThreadLayout,
    bytes: &'a [u8],
    key: u32,
    thread: u64,
) -> &'a [u8] {
    slice(
        bytes,
        layout.value(key, thread),
        u64::from(layout.value_size),
    )
}

/// Lookups by threads that have no value.
pub(crate) fn refused(bytes: &[u8]) -> u64 {
    u64_at(bytes, PerThreadLayout::REFUSED)
}
