//! What a context that has ended left of a map gives way to what the host writes later: else the
//! old value would stand in front of the new one, or be counted into it again.
//!
//! Contexts that live hold what the host wrote. So the copy that is left loses the key, or where a
//! key cannot go its value becomes zero: of fields that are added up those that were written, of
//! all else everything, for one context's bytes are shown of it. Where each multiprocessor shows a
//! value of its own, those of the context take theirs.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::BPF_ANY;

use crate::bytes::put;
use crate::map_plan::{MapPlan, Write};
use crate::value::Value;
use crate::view::{MapView, delete, update};
use crate::{inner, merge, words};

/// What the host did to a key in the contexts that live.
#[derive(Debug, Clone, Copy)]
pub enum Done<'a> {
    /// It has a value now; this is the part of it that the context that has ended would have been
    /// given ([`merge::split`]).
    Updated(&'a [u8]),
    /// It has some words of a value now, as [`words::pack`] has them.
    Words(&'a [u8]),
    /// It is gone.
    Deleted,
}

/// The writes that make the copy `bytes` give way, none where it says nothing of the key. They must
/// be done in order.
pub fn superseded(plan: &MapPlan, bytes: &[u8], key: &[u8], done: Done<'_>) -> Vec<Write> {
    let value = MapView::new(plan, bytes).and_then(|view| view.lookup(key));
    let Ok(Some(value)) = value else {
        // Of a key that is not there, all values are zero.
        return match done {
            Done::Updated(part) if merge::is_side_by_side(plan) && part.iter().any(|b| *b != 0) => {
                update(plan, bytes, key, part, BPF_ANY).unwrap_or_default()
            }
            Done::Updated(_) | Done::Words(_) | Done::Deleted => Vec::new(),
        };
    };
    let writes = match (&plan.layout, done) {
        _ if inner::is_outer(plan) => delete(plan, bytes, key),
        (_, Done::Updated(part)) if merge::is_side_by_side(plan) => {
            update(plan, bytes, key, part, BPF_ANY)
        }
        (MapLayout::Array(_), _) => {
            let Value::One(mut now) = value else {
                return Vec::new();
            };
            let before = now.clone();
            match done {
                Done::Updated(_) => now.fill(0),
                Done::Words(packed) => give_words(plan, packed, &mut now),
                Done::Deleted => {}
            }
            if now == before {
                return Vec::new();
            }
            update(plan, bytes, key, &now, BPF_ANY)
        }
        _ => delete(plan, bytes, key),
    };
    writes.unwrap_or_default()
}

/// Makes a value give way to some words.
fn give_words(plan: &MapPlan, packed: &[u8], value: &mut [u8]) {
    let Some((_, marks)) = words::unpack(packed, value.len()) else {
        return;
    };
    let size = value.len();
    let mut meant = vec![0; size];
    for run in words::runs(marks) {
        meant[run.start..run.end.min(size)].fill(1);
    }
    let mut summed = vec![false; size];
    for field in &plan.added {
        let end = (field.offset + field.size) as usize;
        summed[field.offset as usize..end.min(size)].fill(true);
    }
    let others = (meant.iter().zip(&summed)).any(|(meant, summed)| *meant != 0 && !summed);
    for (byte, (meant, summed)) in value.iter_mut().zip(meant.iter().zip(summed)) {
        if *meant != 0 || others && !summed {
            *byte = 0;
        }
    }
}

/// The copy says nothing of any key, and will not: nobody changes it but by [`superseded`].
pub fn is_silent(plan: &MapPlan, bytes: &[u8]) -> bool {
    match &plan.layout {
        _ if merge::is_side_by_side(plan) => false,
        MapLayout::Array(_) => bytes.iter().all(|byte| *byte == 0),
        MapLayout::Hash(_) | MapLayout::Lru(_) | MapLayout::Hosted(_) | MapLayout::Queue(_) => {
            MapView::new(plan, bytes).is_ok_and(|view| view.entries().next().is_none())
        }
        _ => false,
    }
}

/// Does writes to a copy of a map.
pub fn apply(writes: &[Write], bytes: &mut [u8]) {
    for write in writes {
        put(bytes, write.offset, &write.bytes);
    }
}
