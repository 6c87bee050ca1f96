//! The shared area between a writer and readers that live, die and lie.

use crate::shared::area::{EPOCH, HEAD, PAGE, TABLE, TAIL};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::words::store;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

mod chunks;

fn both(sizes: &[u64], ring: u64) -> (SharedWriter, SharedReader) {
    let (writer, fd) = SharedWriter::create(sizes, ring).unwrap();
    let reader = SharedReader::open(&fd).unwrap();
    (writer, reader)
}

fn all(reader: &mut SharedReader) -> Vec<(u32, u32, Vec<u8>)> {
    let mut got = Vec::new();
    let n = reader
        .events(|e| got.push((e.map, e.shard, e.payload.to_vec())))
        .unwrap();
    assert_eq!(n, got.len() as u64);
    got
}

#[test]
fn a_snapshot_is_what_was_published_last() {
    let (mut writer, reader) = both(&[13, 0, 4096], PAGE);
    assert_eq!(reader.maps(), 3);
    let mut copy = vec![1, 2, 3];
    assert_eq!(reader.snapshot(0, &mut copy).unwrap(), None);
    assert!(copy.is_empty());
    for n in 1..=5u8 {
        writer.publish(0, &[n; 13]).unwrap();
        assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(u64::from(n)));
        assert_eq!(copy, [n; 13]);
        assert_eq!(reader.sequence(0), u64::from(n));
    }
    writer.publish(1, &[]).unwrap();
    assert_eq!(reader.snapshot(1, &mut copy).unwrap(), Some(1));
    assert!(copy.is_empty());
    assert_eq!(reader.sequence(2), 0);
    assert_eq!(reader.sequence(3), 0);
}

#[test]
fn who_comes_after_the_writer_publishes_on() {
    let (mut writer, fd) = SharedWriter::create(&[13, 8], PAGE).unwrap();
    let reader = SharedReader::open(&fd).unwrap();
    writer.publish(0, &[1; 13]).unwrap();
    writer.publish(0, &[2; 13]).unwrap();
    drop(writer);
    let mut again = SharedWriter::reopen(&fd).unwrap();
    let mut copy = Vec::new();
    assert_eq!(again.snapshot(0, &mut copy).unwrap(), Some(2));
    assert_eq!(copy, [2; 13]);
    assert_eq!(again.snapshot(1, &mut copy).unwrap(), None);
    again.publish(0, &[3; 13]).unwrap();
    assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(3));
    assert_eq!(copy, [3; 13]);
    assert_eq!(
        again.snapshot(2, &mut copy).unwrap_err().to_string(),
        "map 2 does not exist: the shared area has 2"
    );
}

#[test]
fn a_large_map_is_published_in_parts_and_not_at_all_if_one_fails() {
    let bytes = SNAPSHOT_PART * 2 + 12;
    let (mut writer, fd) = SharedWriter::create(&[bytes], PAGE).unwrap();
    let reader = SharedReader::open(fd).unwrap();
    let mut scratch = vec![0; SNAPSHOT_PART as usize];
    let mut parts = Vec::new();
    let published = writer.publish_parts(0, &mut scratch, |into| {
        parts.push(into.len() as u64);
        into.fill(parts.len() as u8);
        Ok::<(), ()>(())
    });
    assert!(published.unwrap());
    assert_eq!(parts, [SNAPSHOT_PART, SNAPSHOT_PART, 12]);
    let mut failing = 0;
    let published = writer.publish_parts(0, &mut scratch, |into| {
        into.fill(9);
        failing += 1;
        if failing == 2 { Err(()) } else { Ok(()) }
    });
    assert!(!published.unwrap());
    let mut got = Vec::new();
    assert_eq!(reader.snapshot(0, &mut got).unwrap(), Some(1));
    assert_eq!(got.len() as u64, bytes);
    let (first, rest) = got.split_at(SNAPSHOT_PART as usize);
    let (second, third) = rest.split_at(SNAPSHOT_PART as usize);
    assert!(first.iter().all(|b| *b == 1));
    assert!(second.iter().all(|b| *b == 2));
    assert_eq!(third, [3; 12]);
}

#[test]
fn wrong_maps_and_sizes_are_named() {
    let (mut writer, reader) = both(&[16], PAGE);
    assert_eq!(
        writer.publish(0, &[0; 8]).unwrap_err().to_string(),
        "a snapshot of map 0 has 16 bytes, not 8"
    );
    assert_eq!(
        writer.publish(1, &[]).unwrap_err().to_string(),
        "map 1 does not exist: the shared area has 1"
    );
    assert_eq!(
        reader.snapshot(4, &mut Vec::new()).unwrap_err().to_string(),
        "map 4 does not exist: the shared area has 1"
    );
    assert!(matches!(
        SharedWriter::create(&[u64::MAX], PAGE),
        Err(SharedError::TooLarge { .. })
    ));
}

#[test]
fn an_agent_that_dies_while_it_writes_leaves_the_last_snapshot_whole() {
    let (mut writer, fd) = SharedWriter::create(&[64], PAGE).unwrap();
    writer.publish(0, &[7; 64]).unwrap();
    assert!(writer.push(0, 3, b"before"));
    // The unpublished copy is half written.
    let area = writer.areas.all[0];
    store(writer.words.slice(area.offset, 32), &[9; 32]);
    drop(writer);
    let mut reader = SharedReader::open(&fd).unwrap();
    let mut copy = Vec::new();
    assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(1));
    assert_eq!(copy, [7; 64]);
    assert_eq!(all(&mut reader), [(0, 3, b"before".to_vec())]);
}

#[test]
fn a_torn_snapshot_is_never_seen() {
    let (mut writer, reader) = both(&[8 * 512], PAGE);
    let done = AtomicBool::new(false);
    writer.publish(0, &[0; 8 * 512]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..4000u64 {
                let bytes: Vec<u8> = (0..512).flat_map(|_| n.to_le_bytes()).collect();
                writer.publish(0, &bytes).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut copy = Vec::new();
        let (mut seen, mut last) = (0, 0);
        while !done.load(Ordering::Acquire) {
            match reader.snapshot(0, &mut copy) {
                Ok(sequence) => {
                    let sequence = sequence.unwrap();
                    assert!(sequence >= last);
                    last = sequence;
                    assert!(copy.chunks(8).all(|c| c == &copy[..8]), "torn");
                    seen += 1;
                }
                Err(SharedError::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(seen > 0);
    });
    let mut copy = Vec::new();
    assert_eq!(reader.snapshot(0, &mut copy).unwrap(), Some(4001));
    assert_eq!(copy[..8], 3999u64.to_le_bytes());
}

#[test]
fn maps_that_come_later_have_the_numbers_that_follow() {
    let (mut writer, mut reader) = both(&[16, 8], PAGE);
    writer.publish(1, &[1; 8]).unwrap();
    for round in 0..2u8 {
        let (more, fd) = SharedWriter::create(&[0, 24, 8], 0).unwrap();
        writer.append(more);
        let first = 2 + 3 * usize::from(round);
        let mut copy = Vec::new();
        // A reader that was not told knows nothing of them.
        assert!(matches!(
            reader.snapshot(first + 1, &mut copy),
            Err(SharedError::Map { maps, .. }) if maps == first
        ));
        assert_eq!(reader.sequence(first + 1), 0);
        reader.append(SharedReader::open(&fd).unwrap());
        assert_eq!((writer.maps(), reader.maps()), (first + 3, first + 3));
        assert_eq!(reader.snapshot(first + 1, &mut copy).unwrap(), None);
        writer.publish(first + 1, &[round + 7; 24]).unwrap();
        assert_eq!(reader.snapshot(first + 1, &mut copy).unwrap(), Some(1));
        assert_eq!(copy, [round + 7; 24]);
        assert_eq!((reader.sequence(first), reader.sequence(first + 2)), (0, 0));
        let losses = DeviceLosses { full: 3, busy: 4 };
        writer.device_losses(first as u32 + 2, losses);
        writer.count_lost(first as u32 + 2);
        assert_eq!(reader.device_losses(first as u32 + 2), losses);
        assert_eq!(reader.lost(first as u32 + 2), 1);
        // Events of all go by the first ring.
        assert!(writer.push(first as u32 + 1, 5, b"later"));
        let events = all(&mut reader);
        assert_eq!(events, [(first as u32 + 1, 5, b"later".to_vec())]);
    }
    assert_eq!(
        writer.publish(8, &[]).unwrap_err().to_string(),
        "map 8 does not exist: the shared area has 8"
    );
    let mut copy = Vec::new();
    assert_eq!(reader.snapshot(1, &mut copy).unwrap(), Some(1));
    assert_eq!(copy, [1; 8]);
    assert_eq!(reader.lost(1), 0);
}

#[test]
fn a_full_ring_counts_and_recovers() {
    let (mut writer, mut reader) = both(&[8, 8], PAGE);
    // 16 + 16 bytes each: 128 fit.
    let mut stored = 0;
    for n in 0..200u32 {
        stored += u32::from(writer.push(n & 1, n, &[n as u8; 13]));
    }
    assert_eq!(stored, 128);
    assert_eq!((reader.lost(0), reader.lost(1)), (36, 36));
    let got = all(&mut reader);
    assert_eq!(got.len(), 128);
    assert_eq!(got[127], (1, 127, vec![127; 13]));
    assert!(writer.push(PRINTK, 0, &[]));
    assert!(!writer.push(PRINTK, 0, &[0; 8192]));
    assert_eq!(reader.lost(PRINTK), 1);
    assert_eq!(reader.lost(77), 0);
    assert_eq!(all(&mut reader), [(PRINTK, 0, vec![])]);
    assert_eq!(reader.clock_error(), None);
    writer.clock_error(0);
    assert_eq!(reader.clock_error(), Some(0));
    writer.clock_error(850);
    assert_eq!(reader.clock_error(), Some(850));
    writer.device_losses(0, DeviceLosses { full: 5, busy: 6 });
    writer.device_losses(PRINTK, DeviceLosses { full: 1, busy: 0 });
    writer.device_losses(99, DeviceLosses { full: 7, busy: 7 });
    assert_eq!(reader.device_losses(0), DeviceLosses { full: 5, busy: 6 });
    assert_eq!(
        reader.device_losses(PRINTK),
        DeviceLosses { full: 1, busy: 0 }
    );
    assert_eq!(reader.device_losses(99), DeviceLosses::default());
    assert_eq!(reader.bytes() as u64, PAGE * 2 + PAGE * 4 + PAGE);
}

#[test]
fn a_reader_that_dies_leaves_the_rest_for_the_next() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    let mut first = SharedReader::open(&fd).unwrap();
    assert!(writer.push(0, 1, b"one"));
    assert_eq!(all(&mut first).len(), 1);
    drop(first);
    assert!(writer.push(0, 2, b"two"));
    let mut second = SharedReader::open(&fd).unwrap();
    assert_eq!(all(&mut second), [(0, 2, b"two".to_vec())]);
}

#[test]
fn a_mad_tail_costs_events_and_nothing_else() {
    let (mut writer, reader) = both(&[8], PAGE);
    reader
        .words
        .word(TAIL)
        .store(u64::MAX / 2, Ordering::Release);
    assert!(!writer.push(0, 0, b"x"));
    assert!(!writer.push(5, 0, b"x"));
    assert_eq!(reader.lost(0), 1);
}

#[test]
fn a_damaged_ring_is_an_error() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    assert!(writer.push(0, 0, b"x"));
    writer
        .words
        .word(writer.ring + 8)
        .store(5000, Ordering::Relaxed);
    assert_eq!(
        reader.events(|_| {}).unwrap_err().to_string(),
        "the event ring is damaged at 0: a record of 5000 bytes where 24 are there"
    );
    writer.words.word(HEAD).store(1 << 40, Ordering::Relaxed);
    assert_eq!(
        reader.events(|_| {}).unwrap_err().to_string(),
        "the event ring is damaged at 0: 1099511627776 bytes are said to be there"
    );
}

fn damaged(change: impl FnOnce(&SharedWriter)) -> String {
    let (writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    change(&writer);
    SharedReader::open(&fd).unwrap_err().to_string()
}

#[test]
fn positions_at_the_end_of_all_numbers_are_an_error() {
    let (writer, fd) = SharedWriter::create(&[], 4096).unwrap();
    for (head, tail) in [(16, u64::MAX - 15), (u64::MAX, u64::MAX - 31), (0, 16)] {
        writer.words.word(HEAD).store(head, Ordering::Release);
        writer.words.word(TAIL).store(tail, Ordering::Release);
        writer.words.word(EPOCH).store(u64::MAX, Ordering::Release);
        let mut reader = SharedReader::open(&fd).unwrap();
        let error = reader.events(|_| panic!("an event")).unwrap_err();
        assert!(matches!(error, SharedError::Ring { .. }), "{error}");
    }
}

#[test]
fn a_strange_memfd_is_refused() {
    let set = |at: u64, value: u64| {
        move |w: &SharedWriter| w.words.word(at).store(value, Ordering::Relaxed)
    };
    let not = "the shared area is not one of this warpbpf: ";
    assert_eq!(damaged(set(0, 1)), format!("{not}its magic is wrong"));
    assert_eq!(
        damaged(set(8, 9)),
        format!("{not}its version is 9, this is 2")
    );
    for maps in [1000, u64::MAX] {
        assert_eq!(
            damaged(set(16, maps)),
            format!("{not}its map table is outside the file")
        );
    }
    for (at, value) in [(24, u64::MAX - 7), (24, 3), (32, 3), (32, 1 << 60)] {
        assert_eq!(
            damaged(set(at, value)),
            format!("{not}its ring is outside the file")
        );
    }
    for field in 0..3 {
        assert_eq!(
            damaged(set(TABLE + field * 8, u64::MAX)),
            format!("{not}map 0 is outside the file")
        );
    }
    let fd = memfd_create(c"x", MemfdFlags::ALLOW_SEALING).unwrap();
    let open = |fd: &OwnedFd| SharedReader::open(fd).unwrap_err().to_string();
    assert_eq!(open(&fd), format!("{not}its file may shrink"));
    fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    assert_eq!(open(&fd), format!("{not}it has 0 bytes"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn events_come_out_as_they_went_in(records in prop::collection::vec((0u32..3, any::<u32>(), prop::collection::vec(any::<u8>(), 0..300)), 1..200), burst in 1usize..8) {
        let (mut writer, mut reader) = both(&[8, 8, 8], PAGE);
        for part in records.chunks(burst) {
            for (map, shard, payload) in part {
                prop_assert!(writer.push(*map, *shard, payload));
            }
            prop_assert_eq!(all(&mut reader), part.to_vec());
        }
    }
}

#[test]
fn a_consumer_goes_on_where_the_last_one_stopped() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    let mut first = SharedReader::open(&fd).unwrap();
    for n in 0..4u8 {
        assert!(writer.push(0, 0, &[n]));
    }
    let mut seen = Vec::new();
    let taken = first.events_while(|event| {
        seen.push(event.payload[0]);
        seen.len() < 2
    });
    assert_eq!((taken.unwrap(), &seen[..]), (2, &[0, 1][..]));
    // One that only looks at maps takes nothing over.
    let looker = SharedReader::open(&fd).unwrap();
    looker.snapshot(0, &mut Vec::new()).unwrap();
    assert_eq!(first.events_while(|_| false).unwrap(), 1);
    let mut second = SharedReader::open(&fd).unwrap();
    assert_eq!(all(&mut second), [(0, 0, vec![3])]);
    assert!(writer.push(0, 0, &[4]));
    let error = first.events(|_| panic!("it is not its turn")).unwrap_err();
    assert_eq!(error.to_string(), "another tool has taken the events over");
    assert_eq!(all(&mut second), [(0, 0, vec![4])]);
}

/// Consumers that come while another one reads: every event is handed out, and at most one more
/// often for each of them.
#[test]
fn consumers_that_follow_each_other_miss_nothing() {
    const EVENTS: u32 = 40_000;
    const CONSUMERS: u32 = 200;
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    let mut counts = vec![0u32; EVENTS as usize];
    // The last event may go to the one that is being chased away, and then the other one never sees
    // it.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..EVENTS {
                while !writer.try_push(0, 0, &n.to_le_bytes()) {
                    std::thread::yield_now();
                }
            }
        });
        // Two at a time, one of which the other one chases away.
        let consume = |from: u32| {
            let (fd, done) = (&fd, &done);
            scope.spawn(move || {
                let mut seen = Vec::new();
                for number in (from..CONSUMERS).step_by(2) {
                    let mut reader = SharedReader::open(fd).unwrap();
                    let last = number + 2 >= CONSUMERS;
                    loop {
                        let taken = reader.events(|event| {
                            let bytes = event.payload.try_into().unwrap();
                            seen.push(u32::from_le_bytes(bytes));
                        });
                        match taken {
                            Err(SharedError::TakenOver) => break,
                            Err(error) => panic!("{error}"),
                            Ok(_) if seen.last() == Some(&(EVENTS - 1)) => {
                                done.store(true, Ordering::Relaxed);
                                return seen;
                            }
                            Ok(_) if done.load(Ordering::Relaxed) => return seen,
                            // It leaves at any moment; the last ones stay.
                            Ok(n) if !last && n > 50 => break,
                            Ok(_) => std::thread::yield_now(),
                        }
                    }
                }
                seen
            })
        };
        let both = [consume(0), consume(1)];
        for thread in both {
            for event in thread.join().unwrap() {
                counts[event as usize] += 1;
            }
        }
        // The last one may have left some: whoever comes next gets them.
        let mut reader = SharedReader::open(&fd).unwrap();
        while counts[EVENTS as usize - 1] == 0 {
            reader
                .events(|event| {
                    let bytes = event.payload.try_into().unwrap();
                    counts[u32::from_le_bytes(bytes) as usize] += 1;
                })
                .unwrap();
        }
    });
    let missing = counts.iter().filter(|count| **count == 0).count();
    let twice: u32 = counts.iter().map(|count| count.saturating_sub(1)).sum();
    assert_eq!(missing, 0);
    assert!(twice <= CONSUMERS + 1, "{twice} events came more than once");
}
