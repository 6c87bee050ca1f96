//! PERCPU_ARRAY: a copy per multiprocessor, and the host sees each of them. `%smid` chooses the
//! copy, but a copy is not exclusive: many warps of one multiprocessor meet in it, so programs add
//! to it atomically.

use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::array::copy;
use crate::checks::{check_bytes, check_indexed, stride};
use crate::error::{AccessError, MapError};
use crate::map_plan::{MapPlan, Write};

pub(crate) fn plan(def: &MapDef, sms: u32, plan: &mut MapPlan) -> Result<(), MapError> {
    check_indexed(def, MapType::PercpuArray)?;
    let shard = (stride(def.value_size) * u128::from(def.max_entries)).next_multiple_of(128);
    check_bytes(
        def,
        || {
            format!(
                "`max_entries` {} x value of {} bytes x {sms} multiprocessors",
                def.max_entries, def.value_size
            )
        },
        shard * u128::from(sms),
        "lower `max_entries`, or use an array: counters in it get copies only while that pays",
    )?;
    plan.layout = MapLayout::Array(ArrayLayout {
        max_entries: def.max_entries,
        value_size: def.value_size,
        shards: sms,
        summed: false,
    });
    Ok(())
}

/// The value of `key` on each multiprocessor, in their order.
pub(crate) fn values(layout: &ArrayLayout, bytes: &[u8], key: u32) -> Vec<Vec<u8>> {
    (0..layout.shards)
        .map(|shard| copy(layout, bytes, shard, key).to_vec())
        .collect()
}

/// The writes that set `key`. `value` is one value, for every multiprocessor, or as in Linux one
/// per multiprocessor, each padded to 8 bytes.
pub(crate) fn store(
    map: &str,
    layout: &ArrayLayout,
    key: u32,
    value: &[u8],
) -> Result<Vec<Write>, AccessError> {
    let size = layout.value_size as usize;
    let stride = layout.value_stride() as usize;
    let one = value.len() == size;
    let all = stride * layout.shards as usize;
    if !one && value.len() != all {
        return Err(AccessError::Value {
            map: map.to_owned(),
            expected: all as u64,
            found: value.len(),
        });
    }
    Ok((0..layout.shards)
        .map(|shard| {
            let at = if one { 0 } else { shard as usize * stride };
            Write {
                offset: layout.value(shard, key),
                bytes: value[at..at + size].to_vec(),
            }
        })
        .collect())
}
