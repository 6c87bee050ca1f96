//! Some words of a value: what the host changes where kernels count into the others at the same
//! time.
//!
//! As one operation they are the value in whole words of 8 bytes, and behind it a byte for each
//! word, which is not 0 if the word is meant.

use std::ops::Range;

use crate::map_plan::MapPlan;
use crate::merge;

const WORD: usize = 8;

/// The words `meant` of a value, by number, as the bytes of one operation.
pub fn pack(value: &[u8], meant: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut packed = value.to_vec();
    packed.resize(value.len().next_multiple_of(WORD), 0);
    let words = packed.len() / WORD;
    packed.resize(words * (WORD + 1), 0);
    for word in meant {
        if let Some(mark) = packed.get_mut(words * WORD + word) {
            *mark = 1;
        }
    }
    packed
}

/// The value in whole words, and a mark for each; `None` if that is not what [`pack`] makes of
/// values of this size.
pub fn unpack(packed: &[u8], value_size: usize) -> Option<(&[u8], &[u8])> {
    let words = value_size.div_ceil(WORD);
    (packed.len() == words * (WORD + 1)).then(|| packed.split_at(words * WORD))
}

/// Bytes of the words that are meant, those in a row together.
pub fn runs(marks: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (word, _) in marks.iter().enumerate().filter(|(_, mark)| **mark != 0) {
        let bytes = word * WORD..(word + 1) * WORD;
        match runs.last_mut() {
            Some(last) if last.end == bytes.start => last.end = bytes.end,
            _ => runs.push(bytes),
        }
    }
    runs
}

/// Puts the words that are meant into a value.
pub fn apply(words: &[u8], marks: &[u8], value: &mut [u8]) {
    for run in runs(marks) {
        let end = run.end.min(value.len());
        if let Some(place) = value.get_mut(run.start..end) {
            place.copy_from_slice(&words[run.start..end]);
        }
    }
}

/// What each of `count` contexts is given of packed words: as of a whole value, where the sum of
/// fields is shown, the first has all of it.
pub fn split(plan: &MapPlan, packed: &[u8], count: usize) -> Vec<Vec<u8>> {
    let Some((value, marks)) = unpack(packed, plan.value_size as usize) else {
        return vec![packed.to_vec(); count];
    };
    let mut values = merge::split(plan, value, count);
    values.iter_mut().for_each(|value| value.extend(marks));
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_the_rest_stays() {
        let value: Vec<u8> = (1..=28).collect();
        let packed = pack(&value, [0, 1, 3, 9]);
        assert_eq!(packed.len(), 36);
        let (words, marks) = unpack(&packed, 28).unwrap();
        assert_eq!(marks, [1, 1, 0, 1]);
        assert_eq!(runs(marks), [0..16, 24..32]);
        let mut there = vec![0xee; 28];
        apply(words, marks, &mut there);
        assert_eq!(there[..16], value[..16]);
        assert_eq!(there[16..24], [0xee; 8]);
        assert_eq!(there[24..], value[24..], "the last word is not whole");
        assert_eq!(unpack(&packed, 33), None);
        assert_eq!(unpack(&packed[1..], 28), None);
        assert!(runs(&[0, 0]).is_empty());
    }
}
