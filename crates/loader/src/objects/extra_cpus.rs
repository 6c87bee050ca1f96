//! Values of CPUs that no multiprocessor is. libbpf has a tool write and read a value for each
//! possible CPU, of which there are more than multiprocessors: what it writes for the others no
//! device has, and it is kept here so that the tool reads what it wrote.

use std::collections::BTreeMap;

/// Of a map with values per CPU, what the tool wrote for such CPUs while a device had the map.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExtraCpus(BTreeMap<Vec<u8>, Rest>);

#[derive(Debug, PartialEq, Eq)]
struct Rest {
    /// How many bytes of the value the device took.
    from: usize,
    bytes: Vec<u8>,
}

impl ExtraCpus {
    /// A key got a value, of which the device took the first `from` bytes.
    pub fn wrote(&mut self, key: &[u8], value: &[u8], from: usize) {
        let bytes = value.get(from..).unwrap_or_default().to_vec();
        self.0.insert(key.to_vec(), Rest { from, bytes });
    }

    /// A key was removed: who puts it there again begins with zeros. `before`: the tool had written
    /// it before there was a device, which is to be forgotten; of all others nothing is kept, as a
    /// tool may remove keys without end.
    pub fn removed(&mut self, key: &[u8], before: bool) {
        if !before {
            self.0.remove(key);
            return;
        }
        let nothing = Rest {
            from: 0,
            bytes: Vec::new(),
        };
        self.0.insert(key.to_vec(), nothing);
    }

    /// Puts what is known behind the first `from` bytes of a key's value, which are the device's.
    /// `before`: what the tool had written before there was a device, for keys that it has not
    /// written since.
    pub fn add(&self, key: &[u8], value: &mut [u8], from: usize, before: Option<&[u8]>) {
        let (start, bytes) = match self.0.get(key) {
            Some(rest) => (rest.from, &*rest.bytes),
            None => (0, before.unwrap_or_default()),
        };
        // Another device may have taken more of it, or less.
        let first = from.max(start);
        let known = bytes.get(first - start..).unwrap_or_default();
        let places = value.get_mut(first..).unwrap_or_default();
        for (place, byte) in places.iter_mut().zip(known) {
            *place = *byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(extra: &ExtraCpus, from: usize, before: Option<&[u8]>) -> [u8; 8] {
        let mut value = [0; 8];
        value[..from].fill(9);
        extra.add(b"key", &mut value, from, before);
        value
    }

    #[test]
    fn what_no_device_has_is_behind_what_it_has() {
        let mut extra = ExtraCpus::default();
        assert_eq!(read(&extra, 4, None), [9, 9, 9, 9, 0, 0, 0, 0]);
        let before = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(read(&extra, 4, Some(&before)), [9, 9, 9, 9, 5, 6, 7, 8]);
        extra.wrote(b"key", &[11, 12, 13, 14, 15, 16, 17, 18], 4);
        assert_eq!(read(&extra, 4, Some(&before)), [9, 9, 9, 9, 15, 16, 17, 18]);
        // By devices with more multiprocessors, and with fewer, whose values nobody kept.
        assert_eq!(read(&extra, 6, None), [9, 9, 9, 9, 9, 9, 17, 18]);
        assert_eq!(read(&extra, 2, None), [9, 9, 0, 0, 15, 16, 17, 18]);
        assert_eq!(read(&extra, 8, None), [9; 8]);
        extra.removed(b"key", true);
        assert_eq!(read(&extra, 4, Some(&before)), [9, 9, 9, 9, 0, 0, 0, 0]);
    }

    #[test]
    fn of_keys_that_only_the_device_had_nothing_is_kept() {
        let mut extra = ExtraCpus::default();
        for number in 0..100_u8 {
            extra.wrote(b"key", &[number; 8], 4);
            assert_eq!(read(&extra, 4, None)[4..], [number; 4]);
            extra.removed(b"key", false);
            assert_eq!(read(&extra, 4, None), [9, 9, 9, 9, 0, 0, 0, 0]);
            // Written by nobody.
            extra.removed(&[number], false);
        }
        assert!(extra.0.is_empty());
        extra.removed(b"key", true);
        assert_eq!(extra.0.len(), 1);
    }
}
