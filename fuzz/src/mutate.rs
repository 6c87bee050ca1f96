//! Changes of bytes by chance: what parsers stumble over are single bits, numbers at their limits,
//! parts that are missing, doubled or another input's.

use crate::rng::Rng;

/// Longest mutant: a seed that is longer keeps its length.
const MOST: usize = 1 << 16;
/// Numbers at which arithmetic goes wrong, cut to the width that is written.
const LIMITS: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    31,
    63,
    64,
    127,
    128,
    255,
    256,
    0xfff,
    0x1000,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_f000,
    0xffff_ffff_ffff_fff8,
    0xffff_ffff_ffff_ffff,
];

/// A mutant of `input`, with parts of `other` and some of `words`.
pub(crate) fn mutant(input: &[u8], other: &[u8], words: &[&[u8]], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let longest = MOST.max(input.len());
    // Mostly one change or two: of many no one is seen to matter.
    for _ in 0..1 << rng.below(4) {
        change(&mut bytes, other, words, rng);
        bytes.truncate(longest);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]], rng: &mut Rng) {
    let at = rng.below(bytes.len());
    match rng.below(12) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
        1 if !bytes.is_empty() => bytes[at] = rng.next() as u8,
        2 if !bytes.is_empty() => {
            let by = 1 + rng.below(16) as u8;
            let less = rng.below(2) == 0;
            bytes[at] = if less {
                bytes[at].wrapping_sub(by)
            } else {
                bytes[at].wrapping_add(by)
            };
        }
        3..=5 => {
            let width = 1 << rng.below(4);
            // Numbers mostly stand at multiples of their width.
            let at = if rng.below(4) > 0 {
                at / width * width
            } else {
                at
            };
            let limit = rng.pick(LIMITS).copied().unwrap_or(0);
            let number = match rng.below(4) {
                0 => (bytes.len() as u64)
                    .wrapping_add(rng.below(9) as u64)
                    .wrapping_sub(4),
                1 => rng.next() % 4096,
                _ => limit,
            };
            overwrite(bytes, at, &number.to_le_bytes()[..width]);
        }
        6 => bytes.truncate(at),
        7 => {
            let end = at + rng.below((bytes.len() - at).min(64) + 1);
            bytes.drain(at..end);
        }
        8 => {
            let from = rng.below(bytes.len());
            let part = bytes[from..from + rng.below((bytes.len() - from).min(256) + 1)].to_vec();
            insert_or_overwrite(bytes, at, &part, rng);
        }
        9 => {
            let from = rng.below(other.len());
            let part = &other[from..from + rng.below((other.len() - from).min(256) + 1)];
            insert_or_overwrite(bytes, at, part, rng);
        }
        10 => {
            let word = rng.pick(words).copied().unwrap_or(b"\0\0\0\0");
            insert_or_overwrite(bytes, at, word, rng);
        }
        _ => {
            let byte = rng.next() as u8;
            let part = vec![byte; 1 + rng.below(16)];
            insert_or_overwrite(bytes, at, &part, rng);
        }
    }
}

fn insert_or_overwrite(bytes: &mut Vec<u8>, at: usize, part: &[u8], rng: &mut Rng) {
    if rng.below(2) == 0 {
        overwrite(bytes, at, part);
    } else {
        bytes.splice(at..at, part.iter().copied());
    }
}

/// As much of `part` as there is room for.
fn overwrite(bytes: &mut [u8], at: usize, part: &[u8]) {
    let room = bytes.len().saturating_sub(at).min(part.len());
    bytes[at..at + room].copy_from_slice(&part[..room]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_many_and_the_same_by_their_numbers() {
        let seed: Vec<u8> = (0..200).collect();
        let make = |index| mutant(&seed, b"other", &[b"word"], &mut Rng::new(7, index));
        let all: std::collections::BTreeSet<Vec<u8>> = (0..1000).map(make).collect();
        assert!(all.len() > 900, "{}", all.len());
        assert!((0..1000).all(|index| all.contains(&make(index))));
        assert!(all.iter().any(|m| m.windows(4).any(|w| w == b"word")));
        assert!(all.iter().any(|m| m.windows(5).any(|w| w == b"other")));
        assert!(all.iter().any(|m| m.len() > 200) && all.iter().any(|m| m.len() < 200));
    }

    #[test]
    fn nothing_becomes_something() {
        let made: Vec<Vec<u8>> = (0..200)
            .map(|index| mutant(b"", b"", &[], &mut Rng::new(1, index)))
            .collect();
        assert!(made.iter().any(|mutant| !mutant.is_empty()));
    }
}
