//! A walk through the keys of a device's map, as tools make one: key after key, each asked for by
//! the one before it, or in batches by a number. The keys are those that were there when it began,
//! so that changes meanwhile do not send it in circles.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The bytes of a map in each context, as a session copies them.
type Parts = Arc<Vec<Vec<u8>>>;

/// Keys in a row, and what they had when they were read, where each has one value.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Bytes of a key; none are without bytes.
    size: usize,
    keys: Vec<u8>,
    values: Option<Values>,
}

#[derive(Debug)]
struct Values {
    /// What they were read from.
    of: Parts,
    size: usize,
    bytes: Vec<u8>,
}

impl Entries {
    /// Without any key, of so many bytes each.
    pub(crate) fn new(size: u32) -> Entries {
        Entries {
            size: size.max(1) as usize,
            ..Entries::default()
        }
    }

    /// Values of so many bytes come with the keys, out of these bytes.
    pub(crate) fn with_values(self, of: &Parts, size: usize) -> Entries {
        let values = Some(Values {
            of: Arc::clone(of),
            size,
            bytes: Vec::new(),
        });
        Entries { values, ..self }
    }

    /// One more; without a value if those were not asked for.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.extend_from_slice(key);
        if let Some(values) = &mut self.values {
            values.bytes.extend_from_slice(value);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len().checked_div(self.size).unwrap_or(0)
    }

    pub(crate) fn key(&self, place: usize) -> Option<&[u8]> {
        let at = place.checked_mul(self.size)?;
        self.keys
            .get(at..at.checked_add(self.size)?)
            .filter(|key| !key.is_empty())
    }

    /// The value of a key, if it was read from just this copy of the map.
    pub(crate) fn value_in(&self, parts: &Parts, place: usize) -> Option<&[u8]> {
        let values = self.values.as_ref()?;
        if !Arc::ptr_eq(&values.of, parts) {
            return None;
        }
        let at = place.checked_mul(values.size)?;
        values.bytes.get(at..at.checked_add(values.size)?)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.chunks_exact(self.size.max(1))
    }
}

/// The keys that a walk found at its start: the map may change under it.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    entries: Arc<Entries>,
    /// Where the key stands that was given last: nearly always the next question is about that one.
    last: usize,
    /// Of all keys, once a question was about another one.
    places: OnceLock<HashMap<Vec<u8>, usize>>,
}

impl Walk {
    pub(crate) fn new(entries: Entries) -> Walk {
        Walk {
            entries: Arc::new(entries),
            ..Walk::default()
        }
    }

    pub(crate) fn entries(&self) -> &Arc<Entries> {
        &self.entries
    }

    /// This key is one of them.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.place(key).is_some()
    }

    /// The key behind this one, or the first one if that is none of them.
    pub(crate) fn next(&mut self, before: Option<&[u8]>) -> Option<Vec<u8>> {
        let next = before.and_then(|key| self.place(key));
        let next = next.map_or(0, |place| place + 1);
        self.last = next;
        self.entries.key(next).map(<[u8]>::to_vec)
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        if self.entries.key(self.last) == Some(key) {
            return Some(self.last);
        }
        let number = || self.entries.iter().map(<[u8]>::to_vec).zip(0..).collect();
        self.places.get_or_init(number).get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_behind_any_key() {
        let keys: Vec<Vec<u8>> = (0..5u8).map(|key| vec![key]).collect();
        let mut entries = Entries::new(1);
        keys.iter().for_each(|key| entries.push(key, &[]));
        assert_eq!(entries.len(), 5);
        let mut walk = Walk::new(entries);
        let mut before = None;
        for key in &keys {
            let next = walk.next(before.as_deref());
            assert_eq!(next.as_ref(), Some(key));
            before = next;
        }
        assert!(
            walk.places.get().is_none(),
            "in order, nothing is looked up"
        );
        assert_eq!(walk.next(before.as_deref()), None);
        assert_eq!(walk.next(Some(&[1])), Some(vec![2]));
        assert_eq!(walk.next(Some(&[3])), Some(vec![4]));
        assert_eq!(walk.next(Some(&[9])), Some(vec![0]));
        assert_eq!((walk.knows(&[4]), walk.knows(&[5])), (true, false));
        assert_eq!(Walk::default().next(None), None);
    }

    #[test]
    fn values_are_those_of_one_copy_only() {
        let parts: Parts = Arc::new(vec![vec![1, 2, 3]]);
        let mut entries = Entries::new(2).with_values(&parts, 3);
        entries.push(&[1, 2], &[7, 8, 9]);
        entries.push(&[3, 4], &[4, 5, 6]);
        assert_eq!(entries.key(1), Some(&[3, 4][..]));
        assert_eq!(entries.value_in(&parts, 1), Some(&[4, 5, 6][..]));
        assert_eq!((entries.key(2), entries.value_in(&parts, 2)), (None, None));
        // The same bytes, copied later.
        let later: Parts = Arc::new(vec![vec![1, 2, 3]]);
        assert_eq!(entries.value_in(&later, 1), None);
        let mut keys = Entries::new(2);
        keys.push(&[1, 2], &[7]);
        assert_eq!((keys.len(), keys.value_in(&parts, 0)), (1, None));
        assert_eq!(
            (Entries::default().len(), Entries::default().key(0)),
            (0, None)
        );
    }
}
