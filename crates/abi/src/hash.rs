//! The hash of keys, on which hashes and bloom filters agree.

/// Multiplier of [`hash`].
pub const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash of a key, whose bytes are zero-padded to whole little-endian u64 words: per word, and
/// then once more for a word of zero, `h = (h ^ w) * HASH_MULTIPLIER; h ^= h >> 32`, from h =
/// number of bytes. Low bits choose a place, high bits are the tag. Without the last round, keys
/// that differ in their upper bits only would all have the same low ones.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    let round = |h: u64, word: u64| {
        let h = (h ^ word).wrapping_mul(HASH_MULTIPLIER);
        h ^ h >> 32
    };
    let (words, rest) = key.as_chunks::<8>();
    let whole = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut h = whole.fold(key.len() as u64, round);
    if !rest.is_empty() {
        // The host hashes every key that it reads out of a large map: no call for a few bytes.
        let bytes = rest.iter().rev();
        h = round(h, bytes.fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    round(h, 0)
}

/// The inverse of [`HASH_MULTIPLIER`].
pub const HASH_INVERSE: u64 = {
    // Newton: each step doubles the low bits that are right, of which 3 are to begin with.
    let (mut inverse, mut step) = (HASH_MULTIPLIER, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(HASH_MULTIPLIER.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

/// The key of at most 8 bytes with this [`hash`], as a little-endian word: the function can be
/// undone.
#[inline]
pub const fn unhash(hash: u64, key_size: u32) -> u64 {
    let h = (hash ^ hash >> 32).wrapping_mul(HASH_INVERSE);
    (h ^ h >> 32).wrapping_mul(HASH_INVERSE) ^ key_size as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_can_be_undone() {
        assert_eq!(HASH_MULTIPLIER.wrapping_mul(HASH_INVERSE), 1);
        let mut word = 1u64;
        for key_size in 1..=8u32 {
            for _ in 0..1000 {
                word = word
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let key = word >> (64 - 8 * key_size);
                assert_eq!(
                    unhash(hash(&key.to_le_bytes()[..key_size as usize]), key_size),
                    key
                );
            }
        }
    }
}
