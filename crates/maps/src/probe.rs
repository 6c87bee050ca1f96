//! Where a key of a hash may lie.

use warpbpf_abi::layout::HashLayout;

/// The slots that a probe for a key with this hash visits, in order.
pub(crate) fn probe(layout: &HashLayout, hash: u64) -> impl Iterator<Item = u64> + use<> {
    let slots = layout.slots();
    (0..u64::from(HashLayout::PROBES)).map(move |i| hash.wrapping_add(i) & (slots - 1))
}
