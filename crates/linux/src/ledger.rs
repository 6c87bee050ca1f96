//! What both sides of a shared map held when they were last brought together, so that what each has
//! changed since is known.
//!
//! A value is what stands on the device and what programs of Linux have changed since then, word by
//! word ([`combine`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::memory::Memory;

/// Of one map, with one application.
#[derive(Debug, Default, Clone)]
pub struct Ledger {
    /// What Linux's map held when the application was last given its contents, and what the tool
    /// has written since; zeros where nothing stands.
    base: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the device held when that was last added to Linux's values; zeros where nothing stands.
    given: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Ledger {
    /// What Linux's map held at a key, in so many bytes.
    pub fn base(&self, key: &[u8], bytes: usize) -> Vec<u8> {
        let mut base = self.base.get(key).cloned().unwrap_or_default();
        base.resize(bytes, 0);
        base
    }

    /// What the device held at a key when the two were last brought together, in so many bytes.
    pub fn given(&self, key: &[u8], bytes: usize) -> Vec<u8> {
        let mut given = self.given.get(key).cloned().unwrap_or_default();
        given.resize(bytes, 0);
        given
    }

    /// Keys of values that stood there; of an array, those that were not zero.
    pub fn known(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.base.keys()
    }

    /// A value stood at this key.
    pub fn knows(&self, key: &[u8]) -> bool {
        self.base.contains_key(key)
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        self.base.clear();
        self.given.clear();
    }

    /// The key is gone.
    pub fn forget(&mut self, key: &[u8]) {
        self.base.remove(key);
        self.given.remove(key);
    }

    /// The device holds a value of the tool or of Linux, which Linux holds too.
    pub fn set_given(&mut self, key: &[u8], value: &[u8]) {
        self.given.insert(key.to_vec(), value.to_vec());
    }

    /// The device holds these words, which the tool wrote and Linux holds too. What else it has
    /// changed is still to be added.
    pub fn give(&mut self, key: &[u8], bytes: usize, words: &[(usize, [u8; 8])]) {
        let mut given = self.given(key, bytes);
        let places = given.as_chunks_mut::<8>().0;
        words.iter().for_each(|(word, new)| places[*word] = *new);
        self.set_given(key, &given);
    }

    /// Adds to Linux's words, of a value that begins at `start`, what the device has changed since
    /// the last time.
    pub fn add(&mut self, memory: &Memory, key: &[u8], start: u64, device: &[u8]) {
        let mut base = self.base(key, device.len());
        let given = self.given(key, device.len());
        if given == device {
            return;
        }
        let words = base.as_chunks_mut::<8>().0.iter_mut();
        let sides = given
            .as_chunks::<8>()
            .0
            .iter()
            .zip(device.as_chunks::<8>().0);
        for ((at, base), (given, device)) in (0..).zip(words).zip(sides) {
            let number = |word: &[u8; 8]| u64::from_ne_bytes(*word);
            let more = number(device).wrapping_sub(number(given));
            // Atomic: nothing that Linux's programs add at this moment is lost.
            memory
                .word(start + 8 * at)
                .fetch_add(more, Ordering::Relaxed);
            *base = number(base).wrapping_add(more).to_ne_bytes();
        }
        self.set_base(key, &base);
        self.set_given(key, device);
    }

    /// Gives words of a mapped value, which begins at `start`, to Linux's programs.
    pub fn write(
        &mut self,
        memory: &Memory,
        key: &[u8],
        (start, bytes): (u64, usize),
        words: &[(usize, [u8; 8])],
    ) {
        let mut base = self.base(key, bytes);
        for (word, new) in words {
            let at = word * 8;
            memory.store(start + at as u64, new);
            base[at..at + 8].copy_from_slice(new);
        }
        self.set_base(key, &base);
    }

    /// This is what Linux's map holds at a key.
    pub fn set_base(&mut self, key: &[u8], value: &[u8]) {
        self.base.insert(key.to_vec(), value.to_vec());
    }
}

/// What stands on the device, and what Linux's programs have changed since `base`: the sum for
/// words that both count in, and for all others what the one side that changed them wrote.
pub fn combine(device: &mut [u8], linux: &[u8], base: &[u8]) {
    let mut at = 0;
    while at < device.len() {
        let bytes = [8, 4, 2, 1].into_iter().find(|b| at + b <= device.len());
        let end = at + bytes.unwrap_or(1);
        let word = |from: &[u8]| {
            let mut word = [0; 8];
            word[..end - at].copy_from_slice(&from[at..end]);
            u64::from_le_bytes(word)
        };
        let changed = word(linux).wrapping_sub(word(base));
        let sum = word(device).wrapping_add(changed).to_le_bytes();
        device[at..end].copy_from_slice(&sum[..end - at]);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::combine;

    #[test]
    fn words_of_one_side_are_its_and_words_of_both_are_summed() {
        // Both count; only the device writes; only Linux writes; four bytes, of which both count
        // one half.
        let base = [5u64, 7, 7].map(u64::to_le_bytes).concat();
        let mut device = [15u64, 99, 7].map(u64::to_le_bytes).concat();
        let mut linux = [6u64, 7, 3].map(u64::to_le_bytes).concat();
        let base = [base, vec![1, 0, 0, 0, 9]].concat();
        device.extend([4, 0, 0, 0, 9]);
        linux.extend([2, 0, 0, 0, 8]);
        combine(&mut device, &linux, &base);
        let words = [16u64, 99, 3].map(u64::to_le_bytes).concat();
        assert_eq!(device, [words, vec![5, 0, 0, 0, 8]].concat());
    }
}
