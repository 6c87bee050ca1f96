//! HASH in slots of 16 bytes, for keys and values of at most 8: so a slot is written whole by one
//! 128-bit CAS, and half as much memory is read and written as in slots of a pointer and a key.

use super::hash::HashLayout;
use crate::hash::unhash;

/// *Dense* slots ([`HashLayout::dense`]): a word, and the value behind it.
///
/// The word is 0 while the slot is empty, and so is the value then; else it is
/// [`HashLayout::OWNED`], how far the slot is from where the probe for its key begins
/// ([`HashLayout::DISTANCE`]), and what of the key's hash the slot's number does not say
/// ([`HashLayout::REST`]). As the hash can be undone, the word and the place of a slot are its key.
/// Two bits more are set as in other slots' words, with other places: [`HashLayout::GONE`] while
/// the key is not there, and [`HashLayout::MAKING`] while a lane prepares to put it there.
///
/// A slot belongs to one key from the first time that its word is not 0, as in [`HashLayout`], and
/// room is found in the same way.
///
/// **Insert** is one relaxed 128-bit CAS, of an empty slot or of the key's own, whose value it has
/// read, to word and value: no claim, no fence, nobody to wait for. Where a module has no such
/// instruction (PTX before 8.3, targets before sm_90) a lane claims the word by a 64-bit CAS,
/// stores the value and publishes the word by a store that releases. Both work in one map at once.
/// Who finds the key claimed looks again after a pause, [`HashLayout::ROOM_LOOKS`] times at most;
/// there are no nodes to go past a claim with.
///
/// **Overwrite** exchanges the value, by 64 bits. A CAS of both halves would have to read them
/// first, and lose to every addition to the value meanwhile; the price is that an exchange which
/// meets a delete and a new insert may be what the new key has, as in other slots where values have
/// at most 8 bytes.
///
/// **Delete** sets [`HashLayout::GONE`] by an atomic OR. The value stays, for those who hold a
/// pointer to it.
impl HashLayout {
    /// Distance of dense slots.
    pub const DENSE_STRIDE: u64 = 16;
    /// Position of the value in a dense slot.
    pub const DENSE_VALUE: u64 = 8;
    /// Fewest dense slots: so many that a slot's number says 10 bits of a hash, which leaves that
    /// many for all else.
    pub const DENSE_SLOTS: u64 = 1 << Self::REST;
    /// In a dense slot's word: it belongs to a key.
    pub const OWNED: u64 = 1;
    /// In a dense slot's word: its key is not there.
    pub const GONE: u64 = 2;
    /// In a dense slot's word: its key is not there, and a lane is about to put it there.
    /// [`HashLayout::GONE`] and one bit more.
    pub const MAKING: u64 = 6;
    /// In a dense slot's word: all but the key.
    pub const STATE: u64 = 7;
    /// First bit of the distance in a dense slot's word, which is below [`HashLayout::PROBES`].
    pub const DISTANCE: u32 = 3;
    /// First bit of the rest of the hash in a dense slot's word.
    pub const REST: u32 = 10;

    /// Keys and values of these sizes fit into dense slots.
    pub const fn fits_dense(key_size: u32, value_size: u32, copies: u32) -> bool {
        key_size <= 8 && value_size <= 8 && copies == 1
    }
    /// Bits of a hash that say where a probe begins.
    pub const fn slot_bits(&self) -> u32 {
        self.slots().trailing_zeros()
    }
    /// The word of a dense slot so far from where the probe for this hash begins, with its key
    /// there.
    #[inline]
    pub const fn dense_word(&self, hash: u64, distance: u64) -> u64 {
        hash >> self.slot_bits() << Self::REST | distance << Self::DISTANCE | Self::OWNED
    }
    /// The key that a dense slot belongs to, be it there or not, as a little-endian word; `None` if
    /// it is empty or its word is none of a key of this size.
    #[inline]
    pub const fn dense_key(&self, slot: u64, word: u64) -> Option<u64> {
        let distance = word >> Self::DISTANCE & (Self::PROBES as u64 - 1);
        let first = slot.wrapping_sub(distance) & (self.slots() - 1);
        let key = unhash(
            word >> Self::REST << self.slot_bits() | first,
            self.key_size,
        );
        let fits = self.key_size == 8 || key >> (self.key_size * 8) == 0;
        if word & Self::OWNED == 0 || !fits {
            return None;
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{HASH_MULTIPLIER, hash};

    #[test]
    fn a_slot_is_its_key() {
        for (key_size, max_entries) in
            [(8, 1), (8, 600), (8, 1 << 20), (4, 1), (4, 1 << 28), (1, 7)]
        {
            let layout = HashLayout {
                max_entries,
                key_size,
                value_size: 8,
                copies: 1,
                dense: true,
            };
            assert!(layout.slots() >= HashLayout::DENSE_SLOTS);
            for n in 0..1000u64 {
                let key = n.wrapping_mul(HASH_MULTIPLIER) >> (64 - 8 * key_size);
                let hash = hash(&key.to_le_bytes()[..key_size as usize]);
                for distance in [0, 1, 100, u64::from(HashLayout::PROBES) - 1] {
                    let slot = hash.wrapping_add(distance) & (layout.slots() - 1);
                    let word = layout.dense_word(hash, distance);
                    assert_eq!(word & HashLayout::STATE, HashLayout::OWNED);
                    for state in [0, HashLayout::GONE, HashLayout::MAKING] {
                        assert_eq!(layout.dense_key(slot, word | state), Some(key));
                    }
                }
            }
            assert_eq!(layout.dense_key(0, 0), None);
        }
    }
}
