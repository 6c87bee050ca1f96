//! Every order in which our threads and a tool's can meet over these rings, by loom; the tool's side is what libbpf does. `cargo xtask test`
//! runs this: `RUSTFLAGS="--cfg loom" cargo test -p warpbpf-linux --lib models`.

use std::sync::atomic::Ordering;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::{Record, Ring, Word};
use crate::uapi::ringbuf;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}

/// Two records of 16 bytes and room for less than a third.
const WORDS: usize = 8;

/// More switches of threads in the middle of something than this find nothing new, and take for ever.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

struct Shared {
    consumer: AtomicU64,
    producer: AtomicU64,
    data: Vec<AtomicU64>,
}

impl Shared {
    /// Positions begin near the data's end, so that the second record wraps.
    fn new(from: u64) -> Arc<Shared> {
        Arc::new(Shared {
            consumer: AtomicU64::new(from),
            producer: AtomicU64::new(from),
            data: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring {
            consumer: &self.consumer,
            producer: &self.producer,
            data: &self.data,
        }
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        &self.data[(position / 8) as usize % WORDS]
    }

    /// The next record, as `ring_buffer__consume` takes it: our position, the header, the payload, then its own position.
    fn consume(&self) -> Option<[u64; 2]> {
        let consumed = self.consumer.load(Ordering::Acquire);
        if consumed >= self.producer.load(Ordering::Acquire) {
            return None;
        }
        let header = self.at(consumed).load(Ordering::Acquire) as u32;
        assert_eq!(
            header, 16,
            "a header that was not written, or is of another record"
        );
        let words = [8, 16].map(|more| self.at(consumed + more).load(Ordering::Relaxed));
        self.consumer.store(consumed + 24, Ordering::Release);
        Some(words)
    }

    /// `user_ring_buffer__reserve`: a busy header behind the last record, then the position; `None` if there is no room.
    fn reserve(&self, length: u32) -> Option<u64> {
        let consumed = self.consumer.load(Ordering::Acquire);
        let at = self.producer.load(Ordering::Acquire);
        let total = (ringbuf::HEADER + u64::from(length)).next_multiple_of(8);
        if WORDS as u64 * 8 - (at - consumed) < total {
            return None;
        }
        let header = u64::from(length | ringbuf::BUSY);
        self.at(at).store(header, Ordering::Relaxed);
        self.producer.store(at + total, Ordering::Release);
        Some(at)
    }

    /// `user_ring_buffer__submit` and `__discard`.
    fn commit(&self, at: u64, length: u32, flags: u32) {
        self.at(at)
            .swap(u64::from(length | flags), Ordering::AcqRel);
    }
}

fn payload(number: u64) -> Vec<u8> {
    [number, !number]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}

#[test]
fn records_come_whole_once_and_in_order_around_the_end() {
    check(|| {
        let shared = Shared::new(40);
        let writer = {
            let shared = shared.clone();
            // The third has room only once one was read.
            thread::spawn(move || {
                (1..=3)
                    .filter(|n| shared.ring().push(&payload(*n)))
                    .collect::<Vec<u64>>()
            })
        };
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(shared.consume());
        }
        let written = writer.join().unwrap();
        assert!(written.starts_with(&[1, 2]));
        while let Some(record) = shared.consume() {
            seen.push(record);
        }
        let expected: Vec<[u64; 2]> = written.iter().map(|n| [*n, !n]).collect();
        assert_eq!(seen, expected);
        assert_eq!(shared.ring().unread(), 0);
    });
}

#[test]
fn samples_of_a_perf_event_come_whole() {
    check(|| {
        let shared = Shared::new(48);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let record = |n: u64| {
                    [16u64, n, !n]
                        .iter()
                        .flat_map(|w| w.to_ne_bytes())
                        .collect::<Vec<u8>>()
                };
                (1..=3)
                    .filter(|n| shared.ring().append(&record(*n)))
                    .count()
            })
        };
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.extend(shared.consume());
        }
        let written = writer.join().unwrap();
        while let Some(record) = shared.consume() {
            seen.push(record);
        }
        assert_eq!(seen.len(), written);
        for (record, number) in seen.iter().zip(1..) {
            assert_eq!(*record, [number, !number]);
        }
    });
}

#[test]
fn a_users_records_are_seen_whole_in_order_and_not_before_they_are_given_back() {
    check(|| {
        let shared = Shared::new(40);
        let tool = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut given = Vec::new();
                for number in 1..=3u64 {
                    // Where nothing was kept meanwhile there is no room.
                    let Some(at) = shared.reserve(16) else {
                        continue;
                    };
                    shared.at(at + 8).store(number, Ordering::Relaxed);
                    shared.at(at + 16).store(!number, Ordering::Relaxed);
                    // The second is given up.
                    let flags = if number == 2 { ringbuf::DISCARD } else { 0 };
                    shared.commit(at, 16, flags);
                    given.push(number);
                }
                given
            })
        };
        let mut seen = Vec::new();
        // As a loan that is kept: its records first, then the position behind them.
        let lend = |seen: &mut Vec<u64>| {
            let at = shared.consumer.load(Ordering::SeqCst);
            let Some(Record {
                end,
                payload: bytes,
            }) = shared.ring().record(at).unwrap()
            else {
                return false;
            };
            let number = match bytes {
                None => 2,
                Some(bytes) => {
                    let number = u64::from_ne_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(bytes, payload(number));
                    number
                }
            };
            seen.push(number);
            shared.consumer.store(end, Ordering::SeqCst);
            true
        };
        for _ in 0..2 {
            lend(&mut seen);
        }
        let given = tool.join().unwrap();
        while lend(&mut seen) {}
        assert_eq!(seen, given);
    });
}
