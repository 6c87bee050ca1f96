//! Where events go in the tool, and where they wait while there is no room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::objects::contents::{Contents, Records};
use crate::objects::perf::Output;
use crate::tool::ring::Ring;

/// Where a map's events go.
#[derive(Clone)]
pub enum Sink {
    /// It has none.
    Nowhere,
    /// To a ring.
    Ring(Arc<Ring>),
    /// To a ring of a CPU.
    Outputs(Arc<Mutex<BTreeMap<u32, Arc<Output>>>>),
    /// To bpftime's function.
    Records(Arc<Records>),
}

impl Sink {
    /// Where events of a map with these contents go.
    pub fn of(contents: &Contents) -> Sink {
        match contents {
            Contents::Ring(ring) => Sink::Ring(ring.clone()),
            Contents::Outputs(outputs) => Sink::Outputs(outputs.clone()),
            Contents::Records(records) => Sink::Records(records.clone()),
            Contents::Slots(_)
            | Contents::Mapped(..)
            | Contents::Keyed(_)
            | Contents::Row(_)
            | Contents::UserRing(_)
            | Contents::Maps(_)
            | Contents::Threads => Sink::Nowhere,
        }
    }

    /// Hands over an event; false if there is no room now.
    pub(crate) fn push(&self, shard: u32, payload: &[u8]) -> bool {
        match self {
            Sink::Nowhere => true,
            Sink::Ring(ring) => {
                let pushed = ring.too_large(payload.len()) || ring.push(payload);
                ring.notify().signal();
                pushed
            }
            Sink::Outputs(outputs) => {
                let outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
                // The tool opens one for each CPU of the host; multiprocessors take turns.
                let place = (shard as usize).checked_rem(outputs.len());
                let output = place.and_then(|place| outputs.values().nth(place));
                let Some((output, ring)) = output.and_then(|o| Some((o, o.ring()?))) else {
                    return true;
                };
                let pushed = if ring.too_large(payload.len()) {
                    ring.lost(1)
                } else {
                    ring.push(payload)
                };
                output.notify.signal();
                pushed
            }
            Sink::Records(records) => records.push(payload),
        }
    }

    /// The tool has read all.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Sink::Nowhere => true,
            Sink::Ring(ring) => ring.unread() == 0,
            Sink::Outputs(outputs) => {
                let outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
                let read = |o: &Arc<Output>| o.ring().is_none_or(|ring| ring.unread() == 0);
                outputs.values().all(read)
            }
            Sink::Records(records) => records.is_empty(),
        }
    }
}

/// Bytes of events of one map that wait for room in their sink.
const MOST_WAITING: usize = 16 << 20;

/// Events of one map in their order. Each map has its own, so that one that is not read keeps no
/// other's back.
#[derive(Default)]
pub(crate) struct Queue {
    events: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
    /// Events that were dropped.
    pub(crate) lost: u64,
    /// Of which the tool's user was told.
    told: u64,
}

impl Queue {
    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> u64 {
        self.events.len() as u64
    }

    /// Events that were dropped since this was last asked.
    pub(crate) fn untold(&mut self) -> u64 {
        self.lost - std::mem::replace(&mut self.told, self.lost)
    }

    /// The same, without taking note.
    pub(crate) fn dropped_untold(&self) -> u64 {
        self.lost - self.told
    }

    /// What an event takes here beside its payload.
    const OVERHEAD: usize = size_of::<(u32, Vec<u8>)>();

    /// Hands over what waits, while there is room.
    pub(crate) fn drain(&mut self, sink: &Sink) {
        while let Some((shard, payload)) = self.events.front() {
            if !sink.push(*shard, payload) {
                return;
            }
            self.bytes -= payload.len() + Queue::OVERHEAD;
            self.events.pop_front();
        }
    }

    /// Hands over an event, or has it wait behind those that do.
    pub(crate) fn push(&mut self, sink: &Sink, shard: u32, payload: &[u8]) {
        if self.events.is_empty() && sink.push(shard, payload) {
            return;
        }
        let bytes = self.bytes + payload.len() + Queue::OVERHEAD;
        if bytes > MOST_WAITING {
            self.lost += 1;
            return;
        }
        self.bytes = bytes;
        self.events.push_back((shard, payload.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_order_has_an_end_and_counts_what_it_drops() {
        let records = Arc::new(Records::default());
        let sink = Sink::Records(records.clone());
        let mut queue = Queue::default();
        let mut pushed = 0u32;
        while queue.events.is_empty() {
            queue.push(&sink, 0, &pushed.to_ne_bytes());
            pushed += 1;
        }
        assert_eq!(records.len(), pushed as usize - 1);
        queue.push(&sink, 0, &vec![0; MOST_WAITING]);
        queue.push(&sink, 0, &[]);
        assert_eq!((queue.lost, queue.len()), (1, 2));
        assert_eq!([queue.untold(), queue.untold()], [1, 0]);
        assert_eq!(queue.bytes, 4 + 2 * Queue::OVERHEAD);
        // Room comes: first what waits.
        assert_eq!(records.take().len(), pushed as usize - 1);
        queue.push(&sink, 0, b"last");
        assert!(records.is_empty());
        queue.drain(&sink);
        let last = (pushed - 1).to_ne_bytes().to_vec();
        assert_eq!(records.take(), [last, Vec::new(), b"last".to_vec()]);
        assert_eq!((queue.bytes, queue.events.len()), (0, 0));
    }
}
