//! ARRAY and the data sections. Where programs only add to a value, each multiprocessor has a copy
//! of its own and the map's value is their sum: contention on one address is the whole cost of a
//! counter.

use std::collections::BTreeSet;

use warpbpf_abi::layout::{ArrayLayout, MapLayout, SumField};
use warpbpf_object::{MapDef, MapKind};

use crate::bytes::{put, slice, u32_at, u64_at};
use crate::checks::{check_bytes, check_indexed, stride};
use crate::error::MapError;
use crate::map_plan::{MAX_SHARDED_BYTES, MapPlan, SumUse, Write};

pub(crate) fn plan(
    def: &MapDef,
    sms: u32,
    uses: &[SumUse],
    plan: &mut MapPlan,
) -> Result<(), MapError> {
    let mut value_size = def.value_size;
    match &def.kind {
        MapKind::User => check_indexed(def, plan.map_type)?,
        MapKind::Data { image, .. } => {
            if image.len() != def.value_size as usize {
                return Err(MapError::Image {
                    map: def.name.clone(),
                    image: image.len(),
                    value_size: def.value_size,
                });
            }
            // An empty section still needs an address.
            value_size = value_size.max(1);
            plan.value_size = value_size;
            plan.key_size = 4;
            plan.max_entries = 1;
            if image.iter().any(|byte| *byte != 0) {
                plan.image.push(Write {
                    offset: 0,
                    bytes: image.clone(),
                });
            }
        }
    }
    let bytes = stride(value_size) * u128::from(plan.max_entries);
    check_bytes(
        def,
        || {
            format!(
                "`max_entries` {} x value of {value_size} bytes",
                plan.max_entries
            )
        },
        bytes,
        "lower `max_entries` or `value_size`",
    )?;
    let mut layout = ArrayLayout {
        max_entries: plan.max_entries,
        value_size,
        shards: 1,
        summed: false,
    };
    match sum_fields(value_size, uses) {
        Ok(fields) if fields.is_empty() => {}
        Ok(_) if plan.read_only => {
            plan.not_summed = Some("the map is read-only".to_owned());
        }
        Ok(fields) if uses.iter().any(|u| u.on_cpu) => {
            plan.added = fields;
            plan.not_summed = Some("a program on the CPU uses it".to_owned());
        }
        Ok(fields) => {
            plan.added.clone_from(&fields);
            let sharded = ArrayLayout {
                shards: sms,
                summed: true,
                ..layout
            };
            if bytes.next_multiple_of(128) * u128::from(sms) <= u128::from(MAX_SHARDED_BYTES) {
                layout = sharded;
                plan.sum_fields = fields;
            } else {
                plan.not_summed = Some(format!(
                    "a copy for each of {sms} multiprocessors would take more than {MAX_SHARDED_BYTES} bytes"
                ));
            }
        }
        Err(why) => plan.not_summed = Some(why),
    }
    plan.layout = MapLayout::Array(layout);
    Ok(())
}

/// The fields that all programs together add to, or why they cannot be summed.
fn sum_fields(value_size: u32, uses: &[SumUse]) -> Result<Vec<SumField>, String> {
    if let Some(why) = uses.iter().find_map(|u| u.not_summable.clone()) {
        return Err(why);
    }
    fields(value_size, uses)
}

/// The fields that are added to, or why they are none.
pub(crate) fn fields(value_size: u32, uses: &[SumUse]) -> Result<Vec<SumField>, String> {
    let fields: BTreeSet<SumField> = uses.iter().flat_map(|u| u.adds.iter().copied()).collect();
    let mut end = 0;
    for field in &fields {
        let field_end = field.offset.saturating_add(field.size);
        if !matches!(field.size, 4 | 8) || field_end > value_size {
            return Err(format!(
                "an add of {} bytes at offset {} does not fit the value of {value_size} bytes",
                field.size, field.offset
            ));
        }
        if field.offset < end {
            return Err(format!(
                "adds of different sizes overlap at offset {}",
                field.offset
            ));
        }
        end = field_end;
    }
    Ok(fields.into_iter().collect())
}

/// The value of `key`: the copy, or the sum of the copies. Bytes outside the summed fields are
/// those of the first copy.
///
/// `bytes` is as long as the layout and `key` is below `max_entries`.
pub(crate) fn value(layout: &ArrayLayout, fields: &[SumField], bytes: &[u8], key: u32) -> Vec<u8> {
    let mut value = copy(layout, bytes, 0, key).to_vec();
    if !layout.summed {
        return value;
    }
    for field in fields {
        let at = u64::from(field.offset);
        let others = (1..layout.shards).map(|shard| copy(layout, bytes, shard, key));
        if field.size == 4 {
            let sum = others.fold(u32_at(&value, at), |sum, c| sum.wrapping_add(u32_at(c, at)));
            put(&mut value, at, &sum.to_le_bytes());
        } else {
            let sum = others.fold(u64_at(&value, at), |sum, c| sum.wrapping_add(u64_at(c, at)));
            put(&mut value, at, &sum.to_le_bytes());
        }
    }
    value
}

/// Keys in order, without those whose copies are zeros everywhere: at once where many that lie
/// together are.
pub(crate) fn keys_set<'a>(layout: &'a ArrayLayout, bytes: &'a [u8]) -> impl Iterator<Item = u32> {
    const BLOCK: usize = 4096;
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    // Compared as a whole: byte by byte, code that is not optimised takes seconds for a large map.
    let is_zero = |bytes: &[u8]| {
        bytes
            .chunks(BLOCK)
            .all(|block| *block == ZEROS[..block.len()])
    };
    let (stride, end) = (layout.value_stride().max(1), layout.max_entries);
    let are_zero = move |first: u32, last: u32| {
        let length = stride * u64::from(last - first);
        (0..layout.shards).all(|shard| is_zero(slice(bytes, layout.value(shard, first), length)))
    };
    let group = (BLOCK as u64 / stride).max(1) as u32;
    let groups = (0..end)
        .step_by(group as usize)
        .map(move |first| (first, end.min(first + group)));
    let found = groups.filter(move |(first, last)| !are_zero(*first, *last));
    let keys = found.flat_map(|(first, last)| first..last);
    keys.filter(move |key| !are_zero(*key, key + 1))
}

/// One copy of a value.
pub(crate) fn copy<'a>(layout: &ArrayLayout, bytes: &'a [u8], shard: u32, key: u32) -> &'a [u8] {
    slice(
        bytes,
        layout.value(shard, key),
        u64::from(layout.value_size),
    )
}

/// The writes that set the value of `key`: the first copy holds it, the others become zero where
/// they are added to it.
pub(crate) fn store(layout: &ArrayLayout, key: u32, value: &[u8]) -> Vec<Write> {
    let copies = if layout.summed { layout.shards } else { 1 };
    (0..copies)
        .map(|shard| Write {
            offset: layout.value(shard, key),
            bytes: if shard == 0 {
                value.to_vec()
            } else {
                vec![0; value.len()]
            },
        })
        .collect()
}
