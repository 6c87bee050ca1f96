//! Records that were taken out of Linux's rings, until somebody reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::drawn::Sink;

/// Records that wait to be read; those behind them stay in Linux's ring.
const MOST_RECORDS: usize = 1 << 16;

/// Records of a ring that were taken out of Linux's.
#[derive(Debug, Default)]
pub struct Records(Mutex<(VecDeque<Vec<u8>>, u64)>);

impl Records {
    /// All that came since the last time, and how many were lost meanwhile.
    pub(crate) fn take(&self) -> (VecDeque<Vec<u8>>, u64) {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, (VecDeque<Vec<u8>>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that Linux's records go into.
pub(crate) struct Into(pub(crate) Arc<Records>);

impl Sink for Into {
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn is_open(&self) -> bool {
        true
    }

    fn push(&self, record: &[u8]) -> bool {
        let (records, _) = &mut *self.0.lock();
        let room = records.len() < MOST_RECORDS;
        if room {
            records.push_back(record.to_vec());
        }
        room
    }

    fn lost(&self, count: u64) -> bool {
        self.0.lock().1 += count;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_stays_where_it_is() {
        let records = Arc::new(Records::default());
        let into = Into(records.clone());
        assert!(into.is_wanted() && into.is_open());
        for number in 0..MOST_RECORDS {
            assert!(into.push(&number.to_ne_bytes()));
        }
        assert!(!into.push(b"one too many") && into.lost(3));
        let (taken, lost) = records.take();
        assert_eq!((taken.len(), lost), (MOST_RECORDS, 3));
        assert!(into.push(b"there is room again"));
        assert_eq!(
            records.take(),
            (VecDeque::from([b"there is room again".to_vec()]), 0)
        );
        drop(records);
        assert!(!into.is_wanted());
    }
}
