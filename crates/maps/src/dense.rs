//! Dense slots of a HASH, which hold its keys as what is left of their hash: what `hash` does with
//! other slots, where it differs.

use warpbpf_abi::layout::HashLayout;

use crate::bytes::{slice, u64_at};
use crate::map_plan::Write;
use crate::probe::probe;

/// The bytes of the key that a slot belongs to, of which the layout's `key_size` count, if the key
/// is there.
pub(crate) fn key(layout: &HashLayout, slot: u64, word: u64) -> Option<[u8; 8]> {
    if word & HashLayout::GONE != 0 {
        return None;
    }
    layout.dense_key(slot, word).map(u64::to_le_bytes)
}

/// Every key with its value, in the order of slots.
pub(crate) fn each(layout: &HashLayout, bytes: &[u8], mut each: impl FnMut(&[u8], &[u8])) {
    let stride = HashLayout::DENSE_STRIDE as usize;
    let value_at = HashLayout::DENSE_VALUE as usize;
    let (key_size, value_size) = (layout.key_size as usize, layout.value_size as usize);
    let all = slice(
        bytes,
        HashLayout::SLOTS,
        layout.slots() * HashLayout::DENSE_STRIDE,
    );
    // Sorted out without branches first, as other slots are.
    const PART: usize = 256;
    let mut with_key = [0; PART];
    for (part, places) in all.chunks(PART * stride).enumerate() {
        let mut n = 0;
        for (i, place) in places.chunks_exact(stride).enumerate() {
            let state = u64_at(place, 0) & (HashLayout::OWNED | HashLayout::GONE);
            with_key[n] = i;
            n += usize::from(state == HashLayout::OWNED);
        }
        for &i in &with_key[..n] {
            let place = &places[i * stride..(i + 1) * stride];
            let slot = (part * PART + i) as u64;
            if let Some(key) = layout.dense_key(slot, u64_at(place, 0)) {
                let value = &place[value_at..value_at + value_size];
                each(&key.to_le_bytes()[..key_size], value);
            }
        }
    }
}

/// The write that puts a key which is not there into a quiet map. `None` without a slot in reach
/// that is the key's or was never used.
pub(crate) fn insert(
    layout: &HashLayout,
    bytes: &[u8],
    hash: u64,
    values: &[u8],
) -> Option<Vec<Write>> {
    let (slot, alive) = (0..)
        .zip(probe(layout, hash))
        .find_map(|(distance, slot)| {
            let (word, alive) = (
                u64_at(bytes, layout.slot(slot)),
                layout.dense_word(hash, distance),
            );
            // Its own is gone, or claimed by a lane whose kernel was ended.
            let own = (word ^ alive) & !HashLayout::STATE == 0;
            (word == 0 || own).then_some((slot, alive))
        })?;
    let mut content = alive.to_le_bytes().to_vec();
    content.extend_from_slice(values);
    Some(vec![Write {
        offset: layout.slot(slot),
        bytes: content,
    }])
}
