//! A walk through the keys of a device's map, as tools make one: key after key, each asked for by the one before it, or in
//! batches by a number. The keys are those that were there when it began, so that changes meanwhile do not send it in circles.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The keys that a walk found at its start: the map may change under it.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    keys: Arc<Vec<Vec<u8>>>,
    /// Where the key stands that was given last: nearly always the next question is about that one.
    last: usize,
    /// Of all keys, once a question was about another one.
    places: OnceLock<HashMap<Vec<u8>, usize>>,
}

impl Walk {
    pub(crate) fn new(keys: Vec<Vec<u8>>) -> Walk {
        Walk {
            keys: Arc::new(keys),
            ..Walk::default()
        }
    }

    pub(crate) fn keys(&self) -> &Arc<Vec<Vec<u8>>> {
        &self.keys
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
        self.keys.get(next).cloned()
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        if self.keys.get(self.last).is_some_and(|last| last == key) {
            return Some(self.last);
        }
        let number = || self.keys.iter().cloned().zip(0..).collect();
        self.places.get_or_init(number).get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_behind_any_key() {
        let keys: Vec<Vec<u8>> = (0..5u8).map(|key| vec![key]).collect();
        let mut walk = Walk::new(keys.clone());
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
}
