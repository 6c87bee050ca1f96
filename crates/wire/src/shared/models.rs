//! Every order in which the threads of a writer and its readers can meet, and what memory may show
//! each of them then, by loom.

use std::sync::atomic::Ordering;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use warpbpf_abi::layout::RingLayout;

use super::ring::{Consumer, Ring};
use super::{SharedError, snapshot};
use crate::words::word;

/// Words of the ring's data: two events of 24 bytes and a part of a third, so that events wrap; or
/// a chunk of two records with its header, so that one more has no room.
const WORDS: usize = 8;

/// How often a thread may be interrupted where it need not be. Bugs of such protocols need one or
/// two.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

struct Shared {
    head: AtomicU64,
    tail: AtomicU64,
    within: AtomicU64,
    epoch: AtomicU64,
    data: Vec<AtomicU64>,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let word = || AtomicU64::new(0);
        Arc::new(Shared {
            head: word(),
            tail: word(),
            within: word(),
            epoch: word(),
            data: (0..WORDS).map(|_| word()).collect(),
        })
    }

    fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring {
            head: &self.head,
            tail: &self.tail,
            within: &self.within,
            epoch: &self.epoch,
            data: &self.data,
        }
    }

    /// Event `number`: map, shard and payload tell it.
    fn push(&self, head: &mut u64, number: u32) -> bool {
        let payload = (u64::from(number) * 0x0101_0101_0101_0101).to_le_bytes();
        self.ring().try_push(head, number, number, &payload)
    }

    /// A chunk of records, each of which tells its number; the map is 0, so that it is told from an
    /// event.
    fn push_chunk(&self, head: &mut u64, numbers: &[u8]) -> bool {
        let ring = self.ring();
        let mut next = *head;
        let bytes = numbers.len() as u64 * RingLayout::ALIGN;
        if ring.reserve(&mut next, 0, 9, bytes).is_none() {
            return false;
        }
        let records = numbers.iter().flat_map(|number| {
            let header = RingLayout::ALIGN - RingLayout::HEADER;
            header.to_le_bytes().into_iter().chain([*number; 8])
        });
        // As the copy engine would: in any order with all that comes before the head moves.
        ring.write(next - bytes, &records.collect::<Vec<u8>>());
        *head = next;
        ring.publish(next);
        true
    }
}

/// Numbers of the events that are handed out, each of which is whole; whether another reader has
/// taken over.
fn read(shared: &Shared, consumer: &mut Consumer, numbers: &mut Vec<u32>) -> bool {
    let told = consumer.events_while(&shared.ring(), |event| {
        let number = match event.map {
            0 => u32::from(event.payload[0]),
            number => number,
        };
        let shard = if event.map == 0 { 9 } else { number };
        let payload = (u64::from(number) * 0x0101_0101_0101_0101).to_le_bytes();
        assert_eq!((event.shard, event.payload), (shard, &payload[..]));
        numbers.push(number);
        true
    });
    match told {
        Ok(_) => false,
        Err(SharedError::TakenOver) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn events_come_whole_once_and_in_order() {
    check(|| {
        let shared = Shared::new();
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut head = 0;
                // The third has room only once one was read.
                (1..=3)
                    .filter(|number| shared.push(&mut head, *number))
                    .collect::<Vec<u32>>()
            })
        };
        let (mut consumer, mut numbers) = (Consumer::default(), Vec::new());
        for _ in 0..2 {
            assert!(!read(&shared, &mut consumer, &mut numbers));
        }
        let pushed = writer.join().unwrap();
        assert!(!read(&shared, &mut consumer, &mut numbers));
        assert_eq!(numbers, pushed);
        assert!(pushed.starts_with(&[1, 2]));
        assert_eq!(
            shared.tail.load(Ordering::Relaxed),
            shared.head.load(Ordering::Relaxed)
        );
    });
}

#[test]
fn who_takes_over_goes_on_where_the_other_was() {
    check(|| {
        let shared = Shared::new();
        let mut head = 0;
        assert!(shared.push(&mut head, 1));
        assert!(shared.push(&mut head, 2));
        let first = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut numbers = Vec::new();
                read(&shared, &mut Consumer::default(), &mut numbers);
                numbers
            })
        };
        // It writes over the room of what was read, while the reader that was taken over may still
        // be looking there.
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let pushed = shared.push(&mut head, 3);
                (head, pushed)
            })
        };
        let (mut consumer, mut second) = (Consumer::default(), Vec::new());
        let taken_over = read(&shared, &mut consumer, &mut second);
        let (first, (_, pushed)) = (first.join().unwrap(), writer.join().unwrap());
        // Whoever came last goes on, and if that is nobody here, the next one does: nothing is
        // lost.
        if taken_over || read(&shared, &mut consumer, &mut second) {
            read(&shared, &mut Consumer::default(), &mut second);
        }
        let mut all: Vec<u32> = first.iter().chain(&second).copied().collect();
        all.sort_unstable();
        // An event can come twice while two readers live; nothing else can happen to it.
        all.dedup();
        let wanted: &[u32] = if pushed { &[1, 2, 3] } else { &[1, 2] };
        assert_eq!(all, wanted, "{first:?} {second:?}");
        assert!(first.is_sorted() && second.is_sorted());
    });
}

#[test]
fn chunks_come_whole_once_and_in_order() {
    check(|| {
        let shared = Shared::new();
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut head = 0;
                let first = shared.push_chunk(&mut head, &[1, 2]);
                // It has room only once the first was read.
                (first, shared.push_chunk(&mut head, &[3]))
            })
        };
        let (mut consumer, mut numbers) = (Consumer::default(), Vec::new());
        for _ in 0..2 {
            assert!(!read(&shared, &mut consumer, &mut numbers));
        }
        let (first, second) = writer.join().unwrap();
        assert!(!read(&shared, &mut consumer, &mut numbers));
        assert!(first);
        assert_eq!(numbers, if second { &[1, 2, 3][..] } else { &[1, 2] });
    });
}

#[test]
fn who_takes_over_inside_a_chunk_goes_on_there() {
    check(|| {
        let shared = Shared::new();
        let mut head = 0;
        assert!(shared.push_chunk(&mut head, &[1, 2]));
        let first = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut numbers = Vec::new();
                read(&shared, &mut Consumer::default(), &mut numbers);
                numbers
            })
        };
        // It writes over the room of the chunk, records and all, once that was given back.
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || shared.push_chunk(&mut head, &[3, 4]))
        };
        let (mut consumer, mut second) = (Consumer::default(), Vec::new());
        let taken_over = read(&shared, &mut consumer, &mut second);
        let (first, pushed) = (first.join().unwrap(), writer.join().unwrap());
        if taken_over || read(&shared, &mut consumer, &mut second) {
            read(&shared, &mut Consumer::default(), &mut second);
        }
        let mut all: Vec<u32> = first.iter().chain(&second).copied().collect();
        all.sort_unstable();
        all.dedup();
        let wanted: &[u32] = if pushed { &[1, 2, 3, 4] } else { &[1, 2] };
        assert_eq!(all, wanted, "{first:?} {second:?}");
        assert!(first.is_sorted() && second.is_sorted());
    });
}

#[test]
fn a_snapshot_is_of_one_moment() {
    check(|| {
        let word = || AtomicU64::new(0);
        let shared = Arc::new((word(), [[word(), word()], [word(), word()]]));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (sequence, [one, two]) = &*shared;
                for number in 1..=3u8 {
                    let filled = |into: &mut [u8]| {
                        into.fill(number);
                        Ok::<(), ()>(())
                    };
                    let copies = [&one[..], &two[..]];
                    assert!(snapshot::publish(
                        sequence,
                        copies,
                        16,
                        &mut [0; 64],
                        filled
                    ));
                }
            })
        };
        let (sequence, [one, two]) = &*shared;
        let mut bytes = [0; 16];
        let mut last = 0;
        for _ in 0..2 {
            let read = snapshot::read(sequence, [&one[..], &two[..]], &mut bytes);
            let number = read.expect("three snapshots are fewer than a reader's tries");
            assert!(number >= last, "time goes on");
            if number > 0 {
                assert_eq!(bytes, [number as u8; 16]);
            }
            last = number;
        }
        writer.join().unwrap();
    });
}

// Rings of models are small.
word!(AtomicU64, loom::sync::atomic::fence, thread::yield_now, align: 16, piece: 32);
