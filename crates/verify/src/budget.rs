//! What calls count for in the budget, and what a proved program can cost: for the user, who sees
//! it before it runs.
//!
//! The budget counts executed instructions: one for each eBPF instruction, the `abi` table's number
//! for each call. That number covers a call that finds what it looks for; hash tables and rings go
//! round a little more when they are crowded. How often is bounded too, by the loops in the
//! generated code itself: [`HelperUse::at_most`]. A walk over a hash looks at all its slots, empty
//! or not, so all of them are counted.

use std::collections::BTreeMap;

use warpbpf_abi::costs::{
    BYTE_COST, COMPARE_WORD_COST, FILL_WORD_COST, FORMAT_STRING_BYTE_COST, FORMAT_STRING_COST,
    OWN_COPY_COST, OWN_STRING_BYTE_COST, OWN_STRING_COST, OWN_STRING_WORD_COST, OWN_WORD_COST,
    PIECE_COST, READ_STRING_COST, READ_WORD_COST, SAMPLE_BYTES_COST, SAMPLE_WORD_COST, SPLIT_COST,
    WRITTEN_OUT_BYTES,
};
use warpbpf_abi::format;
use warpbpf_abi::helpers::{Arg, Helper, HelperId, map_op, of};
use warpbpf_abi::layout::env::COMM_BYTES;
use warpbpf_abi::layout::{HashLayout, HostedLayout, LruLayout, RingLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;

use crate::env::Env;
use crate::facts::{ArgFact, CallFact, Facts, InsnFact, Place, map_def};
use crate::rule::Rule;

/// Bytes of a word.
const WORD: i64 = 8;
/// Instructions for each word of a bitmap that an update looks at for a free node, and for each
/// shard of a hash that it asks for a node.
const SEARCH: u64 = 16;
/// Instructions for each shard of a hash that an update asks for room, as emitted: 5 for which it
/// is and what it may count, 13 to look and to take, 6 to go on.
const ROOM: u64 = 24;
/// How often a hash update looks for a node at most (`codegen::prelude`).
const SEARCHES: u64 = 64;
/// Instructions for each slot that an eviction looks at.
const EVICT: u64 = 20;
/// Copies of a value per multiprocessor that an insert into a map with such copies is expected to
/// zero at most, an instruction each and four of the loop.
const ZEROED: u64 = 256 * 5;
/// Instructions of one round of `bpf_for_each_map_elem` over a slot of a hash that holds nothing,
/// as emitted: 7 for the end of the loop, 9 to load and test the slot, 3 to go on.
const SLOT_COST: u64 = 19;

/// Instructions for each 8 bytes of text that a message carries, as emitted: the constant and its
/// store.
const CARRIED_WORD_COST: u64 = 2;

/// A call to the host that is answered at once: instructions, and those for each word of key and
/// value.
const CALL_COST: u64 = 600;
const CALL_WORD_COST: u64 = 16;
/// Instructions of a round of a lane that waits for the host, as emitted.
const CALL_ROUND: u64 = 24;

/// What one call counts for.
pub(crate) fn call_cost(env: &Env<'_>, helper: &Helper, call: &CallFact) -> u64 {
    let map = call.map.and_then(|map| env.map(map).ok());
    counted(helper, call, map)
}

/// A call that breaks the budget because it walks over a hash says so.
pub(crate) fn too_far_to_walk(env: &Env<'_>, rule: Rule, call: &CallFact) -> Rule {
    let (&Rule::Budget { cost, budget }, HelperId::ForEachMapElem, Some(map)) =
        (&rule, call.helper, call.map)
    else {
        return rule;
    };
    match env.map(map) {
        Ok((def, map_type)) if map_type.is_hash() => Rule::WalkBudget {
            map: env.map_name(map).to_owned(),
            slots: slots(def, map_type),
            cost,
            budget,
        },
        _ => rule,
    }
}

fn counted(helper: &Helper, call: &CallFact, map: Option<(&MapDef, MapType)>) -> u64 {
    let walked = match (helper.kind, map) {
        (HelperId::ForEachMapElem, Some((def, map_type))) if map_type.is_hash() => {
            slots(def, map_type) * SLOT_COST
        }
        _ => 0,
    };
    if let Some(place) = call.own_source() {
        return own_copy_cost(call, place);
    }
    let row = map.and_then(|(def, map_type)| Some((def, map_op(helper.kind, map_type)?)));
    let cost = match row {
        Some((def, _)) if def.is_asked_for() => {
            let words = touched(helper.kind, call, def).div_ceil(8);
            CALL_COST + words * CALL_WORD_COST
        }
        Some((def, op)) => {
            let words = touched(helper.kind, call, def).div_ceil(8);
            u64::from(op.cost)
                .saturating_add(words.saturating_mul(u64::from(op.per_word)))
                .saturating_add(pieces_cost(helper, call, Some(def)))
        }
        None => u64::from(helper.cost)
            .saturating_add(read_cost(helper, call))
            .saturating_add(text_cost(call))
            .saturating_add(carried_cost(call))
            .saturating_add(pieces_cost(helper, call, None)),
    };
    cost.saturating_add(walked).max(1)
}

/// What it costs beyond a number for each word that memory arguments are long, not aligned, or of a
/// size that is not known.
fn pieces_cost(helper: &Helper, call: &CallFact, def: Option<&MapDef>) -> u64 {
    let cost = |(i, kind): (usize, &Arg)| {
        let ArgFact::Pointer(place) = call.args[i] else {
            return 0;
        };
        let (bytes, known) = match kind {
            Arg::MapKey => (def.map_or(0, |def| def.key_size.into()), true),
            Arg::MapValue | Arg::MapValueOut => (def.map_or(0, |def| def.value_size.into()), true),
            Arg::MemRead | Arg::MemReadOrNull | Arg::MemWrite | Arg::Values => {
                match call.args.get(i + 1) {
                    Some(ArgFact::Scalar { value, max }) => (*max, value.is_some()),
                    _ => (0, true),
                }
            }
            _ => return 0,
        };
        match helper.kind {
            // The name itself is in the table's number.
            HelperId::GetCurrentComm => {
                let beyond = bytes.saturating_sub(COMM_BYTES);
                match bytes > WRITTEN_OUT_BYTES {
                    true => looped(beyond, place.alignment()),
                    false => split(place, bytes) + beyond.div_ceil(8) * FILL_WORD_COST,
                }
            }
            HelperId::Strncmp => {
                let text = call.text.as_ref().map_or(0, |text| text.len() as u64 + 1);
                split(place, bytes.min(text))
            }
            HelperId::PerfEventOutput | HelperId::RingbufOutput if !known => {
                bytes.saturating_mul(BYTE_COST)
            }
            HelperId::PerfEventOutput | HelperId::RingbufOutput | HelperId::MapUpdateElem
                if bytes > WRITTEN_OUT_BYTES =>
            {
                looped(bytes, place.alignment())
            }
            // A copy of its own, counted by the byte; those of dynptrs have two sides, which are
            // counted together.
            _ if bytes > WRITTEN_OUT_BYTES => 0,
            kind if kind.reads_string() || kind == HelperId::Snprintf => 0,
            _ => split(place, bytes),
        }
    };
    helper
        .args
        .iter()
        .enumerate()
        .map(cost)
        .fold(0, u64::saturating_add)
}

/// What it costs to copy the program's own memory.
fn own_copy_cost(call: &CallFact, from: Place) -> u64 {
    let ArgFact::Scalar { value, max } = call.args[1] else {
        return OWN_COPY_COST;
    };
    let to = match call.args[0] {
        ArgFact::Pointer(place) => place,
        _ => from,
    };
    if call.helper.reads_string() {
        let bytes = match value {
            Some(bytes) if bytes <= WRITTEN_OUT_BYTES => bytes
                .div_ceil(8)
                .saturating_mul(OWN_STRING_WORD_COST)
                .saturating_add(split(from, bytes))
                .saturating_add(split(to, bytes)),
            _ => max.saturating_mul(OWN_STRING_BYTE_COST),
        };
        return OWN_STRING_COST.saturating_add(bytes);
    }
    let bytes = match value {
        None => looped(max, 1),
        Some(bytes) if bytes > WRITTEN_OUT_BYTES => {
            looped(bytes, from.alignment().min(to.alignment()))
        }
        Some(bytes) => bytes
            .div_ceil(8)
            .saturating_mul(OWN_WORD_COST)
            .saturating_add(split(from, bytes))
            .saturating_add(split(to, bytes)),
    };
    OWN_COPY_COST.saturating_add(bytes)
}

/// What a loop over pieces costs.
fn looped(bytes: u64, align: u64) -> u64 {
    bytes.div_ceil(align).saturating_mul(PIECE_COST)
}

/// What it costs that memory is accessed in more pieces than it has words: aligned ones, none of
/// which crosses a word of those that are counted from where it begins.
fn split(place: Place, bytes: u64) -> u64 {
    let (start, widest) = match place.offset {
        Some(offset) => (offset, WORD),
        None => (0, place.alignment() as i64),
    };
    let end = start.saturating_add_unsigned(bytes);
    let (mut at, mut pieces) = (start, 0u64);
    while at < end {
        let fits = |width: &i64| {
            let inside = (at - start) % WORD + width <= WORD && at + width <= end;
            inside && *width <= widest && at % width == 0
        };
        at += [WORD, 4, 2].into_iter().find(fits).unwrap_or(1);
        pieces += 1;
    }
    pieces
        .saturating_sub(bytes.div_ceil(8))
        .saturating_mul(SPLIT_COST)
}

/// What the bytes cost that a call copies between `memory` and a dynptr or a sample.
fn copy_cost(call: &CallFact, memory: ArgFact, offset: ArgFact, length: ArgFact) -> u64 {
    let ArgFact::Scalar { max, .. } = length else {
        return 0;
    };
    if max > WRITTEN_OUT_BYTES {
        let known = match offset {
            ArgFact::Scalar {
                value: Some(at), ..
            } => 1 << (at | 8).trailing_zeros(),
            _ => 1,
        };
        let start = call.memory.map_or(8, |(_, align)| u64::from(align));
        let other = match memory {
            ArgFact::Pointer(place) => place.alignment(),
            _ => 8,
        };
        return looped(max, known.min(start).min(other));
    }
    let starts_aligned = call.memory.is_none_or(|(_, align)| align == 8);
    let word = match offset {
        ArgFact::Scalar {
            value: Some(at), ..
        } if at % 8 == 0 && starts_aligned => SAMPLE_WORD_COST,
        _ => SAMPLE_BYTES_COST,
    };
    max.div_ceil(8).saturating_mul(word)
}

/// What the bytes cost that a call reads of the application's memory, or copies from or to a
/// dynptr.
fn read_cost(helper: &Helper, call: &CallFact) -> u64 {
    let args = &call.args;
    match args[1] {
        _ if helper.kind == HelperId::DynptrRead => copy_cost(call, args[0], args[3], args[1]),
        _ if helper.kind == HelperId::DynptrWrite => copy_cost(call, args[2], args[1], args[3]),
        ArgFact::Scalar { max, .. } if helper.kind.reads_string() => {
            max.saturating_mul(READ_STRING_COST)
        }
        ArgFact::Scalar { max, .. } if helper.kind.reads_application() => {
            max.div_ceil(8).saturating_mul(READ_WORD_COST)
        }
        _ => 0,
    }
}

/// What a call costs because of its constant string.
fn text_cost(call: &CallFact) -> u64 {
    let (Some(text), &ArgFact::Scalar { max, .. }) = (&call.text, &call.args[1]) else {
        return 0;
    };
    match call.helper {
        HelperId::Snprintf => {
            let string =
                FORMAT_STRING_COST.saturating_add(FORMAT_STRING_BYTE_COST.saturating_mul(max));
            format::cost(text).saturating_add(string.saturating_mul(format::strings(text) as u64))
        }
        HelperId::Strncmp => {
            let bytes = max.min(text.len() as u64 + 1);
            bytes.div_ceil(8).saturating_mul(COMPARE_WORD_COST)
        }
        _ => 0,
    }
}

/// What it costs that a message carries its own text, which is in no map.
fn carried_cost(call: &CallFact) -> u64 {
    match &call.text {
        Some(text) if call.carries_text() => {
            (text.len() as u64 + 1).div_ceil(8) * CARRIED_WORD_COST
        }
        _ => 0,
    }
}

/// Bytes that a call hashes, compares or copies.
fn touched(helper: HelperId, call: &CallFact, def: &MapDef) -> u64 {
    let (key, value) = (u64::from(def.key_size), u64::from(def.value_size));
    match helper {
        HelperId::MapUpdateElem => key + value,
        HelperId::MapLookupElem | HelperId::MapDeleteElem => key,
        HelperId::MapPushElem | HelperId::MapPopElem | HelperId::MapPeekElem => value,
        HelperId::PerfEventOutput => match call.args[4] {
            ArgFact::Scalar { max, .. } => max,
            _ => 0,
        },
        HelperId::RingbufOutput => match call.args[2] {
            ArgFact::Scalar { max, .. } => max,
            _ => 0,
        },
        _ => 0,
    }
}

/// A helper that a program calls, on one of its maps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelperUse {
    /// The helper.
    pub helper: HelperId,
    /// Its map, by index.
    pub map: Option<u32>,
    /// In how many places it is called, calls of local functions counted apart.
    pub places: usize,
    /// What a call counts for in the budget: the most of all places.
    pub counted: u64,
    /// Instructions that a call can execute at most, whatever other threads do to the map
    /// meanwhile.
    pub at_most: u64,
}

impl HelperUse {
    /// Its name without `bpf_`.
    pub fn name(&self) -> &'static str {
        of(self.helper).name
    }
}

/// The helpers that a proved program calls, by number and map. `maps` are those that it was proved
/// with.
pub fn helpers_used(facts: &Facts, maps: &[MapDef]) -> Vec<HelperUse> {
    let mut used: BTreeMap<(HelperId, Option<u32>), HelperUse> = BTreeMap::new();
    for fact in facts.instances.iter().flat_map(|i| &i.insns) {
        let InsnFact::Call(call) = fact else { continue };
        let map = call.map.and_then(|index| {
            let def = map_def(maps, index)?;
            Some((def, MapType::from_number(def.map_type)?))
        });
        let counted = counted(of(call.helper), call, map);
        let at_most =
            counted.saturating_add(map.map_or(0, |(def, t)| crowded(call.helper, def, t)));
        let entry = used
            .entry((call.helper, call.map))
            .or_insert_with(|| HelperUse {
                helper: call.helper,
                map: call.map,
                places: 0,
                counted: 0,
                at_most: 0,
            });
        entry.places += 1;
        entry.counted = entry.counted.max(counted);
        entry.at_most = entry.at_most.max(at_most);
    }
    used.into_values().collect()
}

/// What a call can cost beyond what it counts for, when its map is crowded.
fn crowded(helper: HelperId, def: &MapDef, map_type: MapType) -> u64 {
    let Some(op) = map_op(helper, map_type) else {
        return 0;
    };
    if def.is_asked_for() {
        return u64::from(HostedLayout::ROUNDS) * CALL_ROUND;
    }
    // Each round compares the whole key.
    let key_words = u64::from(def.key_size).div_ceil(8);
    let round = u64::from(op.round) + if op.round > 0 { 3 * key_words } else { 0 };
    let rounds = u64::from(op.rounds) * round;
    let beyond = match (helper, map_type) {
        (HelperId::MapUpdateElem, MapType::Hash | MapType::GpuHash | MapType::PercpuHash) => {
            let shards = u64::from(HashLayout::SHARDS);
            let layout = hash_layout(def, map_type, false);
            let words = layout.free_words().min(64);
            let zeroed = match map_type {
                MapType::PercpuHash => u64::from(def.value_size).div_ceil(8) * ZEROED,
                _ => 0,
            };
            // For a node, and as often as keys are pending, for room.
            SEARCHES * ((shards + words) * SEARCH + zeroed)
                + u64::from(HashLayout::ROOM_LOOKS) * u64::from(layout.counting()) * ROOM
        }
        (HelperId::MapUpdateElem, MapType::LruHash | MapType::LruPercpuHash) => {
            let slots = u64::from(LruLayout::EVICT_BUCKETS) * LruLayout::WAYS;
            let zeroed = match map_type {
                MapType::LruPercpuHash => u64::from(def.value_size).div_ceil(8) * ZEROED,
                _ => 0,
            };
            u64::from(LruLayout::FREE_SEARCH) * SEARCH + 2 * slots * EVICT + zeroed
        }
        // `map_extra` makes writers wait for room.
        (
            HelperId::RingbufOutput
            | HelperId::RingbufReserve
            | HelperId::RingbufReserveDynptr
            | HelperId::PerfEventOutput,
            MapType::Ringbuf | MapType::PerfEventArray | MapType::GpuRingbuf,
        ) => {
            let wait = def.extra.get("map_extra").copied().unwrap_or(0);
            RingLayout::wait_cost(u32::try_from(wait).unwrap_or(u32::MAX))
        }
        _ => 0,
    };
    rounds + beyond
}

/// Slots of a hash, all of which a walk looks at.
fn slots(def: &MapDef, map_type: MapType) -> u64 {
    match map_type {
        MapType::LruHash | MapType::LruPercpuHash => LruLayout {
            max_entries: def.max_entries,
            key_size: def.key_size,
            value_size: def.value_size,
            copies: 1,
        }
        .slots(),
        _ => {
            let plain = hash_layout(def, map_type, false);
            let fits = HashLayout::fits_dense(plain.key_size, plain.value_size, plain.copies);
            hash_layout(def, map_type, fits).slots().max(plain.slots())
        }
    }
}

/// With per-SM values as on a large device: the number of slots depends on whether a node is small.
/// Which kind of slots a map gets is not known here.
fn hash_layout(def: &MapDef, map_type: MapType, dense: bool) -> HashLayout {
    HashLayout {
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        copies: if map_type == MapType::PercpuHash {
            256
        } else {
            1
        },
        dense,
    }
}
