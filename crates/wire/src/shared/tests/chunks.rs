//! Chunks of device rings in the event ring: their records come out as events, each once, whoever
//! reads and however often readers change.

use crate::shared::area::{PAGE, TAIL, WITHIN};
use std::sync::atomic::AtomicU64;

use warpbpf_abi::layout::RingLayout;

use super::*;

/// Bytes as the device writes them: headers, payloads, and what fills records up.
#[derive(Default)]
struct Device(Vec<u8>);

impl Device {
    fn record(mut self, payload: &[u8]) -> Device {
        self.put(payload.len() as u32, payload);
        self
    }

    fn discarded(mut self, payload: &[u8]) -> Device {
        self.put(payload.len() as u32 | RingLayout::DISCARDED, payload);
        self
    }

    fn padding(mut self, bytes: u64) -> Device {
        let length = bytes - RingLayout::HEADER;
        let filler = vec![0xee; length as usize];
        self.put(length as u32 | RingLayout::PADDING, &filler);
        self
    }

    fn put(&mut self, header: u32, payload: &[u8]) {
        let end = self.0.len() as u64 + RingLayout::record_bytes(payload.len() as u64);
        self.0.extend(u64::from(header).to_le_bytes());
        self.0.extend(payload);
        // What follows a payload is undefined.
        self.0.resize(end as usize, 0xaa);
    }
}

/// Copies into reserved room as a copy engine does, which nobody sees halfway.
fn land(spans: [Span; 2], bytes: &[u8]) {
    let (first, second) = bytes.split_at(spans[0].bytes as usize);
    assert_eq!(second.len() as u64, spans[1].bytes);
    for (span, part) in spans.iter().zip([first, second]) {
        let (words, rest) = part.as_chunks::<8>();
        assert!(rest.is_empty());
        for (i, word) in words.iter().enumerate() {
            // SAFETY: a word of room that was reserved, in a mapping that lives.
            let to = unsafe { AtomicU64::from_ptr(span.start.cast::<u64>().add(i)) };
            to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }
}

/// Publishes one chunk, if there is room.
fn send(writer: &mut SharedWriter, map: u32, shard: u32, device: &Device) -> bool {
    let mut chunks = writer.chunks();
    let room = chunks.room();
    let spans = chunks.reserve(map, shard, device.0.len() as u64);
    // A consumer may make room in between.
    assert!(spans.is_some() || device.0.len() as u64 > room);
    if let Some(spans) = spans {
        land(spans, &device.0);
        chunks.publish();
    }
    spans.is_some()
}

fn numbered(from: u8, to: u8) -> Device {
    (from..to).fold(Device::default(), |device, n| {
        device.record(&vec![n; usize::from(n)])
    })
}

#[test]
fn a_chunk_is_the_records_in_it() {
    let (mut writer, mut reader) = both(&[8, 8], PAGE);
    let device = Device::default()
        .record(b"one")
        .discarded(b"never mind")
        .record(b"")
        .padding(48)
        .record(b"a longer one, of more than 16 bytes");
    assert!(writer.push(0, 1, b"before"));
    assert!(send(&mut writer, 1, 77, &device));
    assert!(send(&mut writer, PRINTK, 3, &Device::default().padding(16)));
    assert!(writer.push(0, 2, b"behind"));
    assert_eq!(
        all(&mut reader),
        [
            (0, 1, b"before".to_vec()),
            (1, 77, b"one".to_vec()),
            (1, 77, Vec::new()),
            (1, 77, b"a longer one, of more than 16 bytes".to_vec()),
            (0, 2, b"behind".to_vec()),
        ]
    );
    assert_eq!(writer.read_so_far()[0], writer.head);
    assert_eq!(all(&mut reader), []);
}

#[test]
fn chunks_lie_over_the_end_of_the_ring_and_begin_at_lines() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    let start = writer.ring_pages().start as usize;
    assert_eq!(writer.ring_pages().bytes, PAGE);
    assert!(start.is_multiple_of(PAGE as usize));
    let mut split = 0;
    for n in 0..100u8 {
        let device = numbered(n % 5, n % 5 + 10 + n % 7);
        let mut chunks = writer.chunks();
        let spans = chunks.reserve(0, 0, device.0.len() as u64).unwrap();
        assert!((spans[0].start as usize - start).is_multiple_of(256));
        split += u32::from(spans[1].bytes > 0);
        land(spans, &device.0);
        chunks.publish();
        let got = all(&mut reader);
        let sizes: Vec<usize> = got.iter().map(|(_, _, payload)| payload.len()).collect();
        let wanted: Vec<usize> = (n % 5..n % 5 + 10 + n % 7).map(usize::from).collect();
        assert_eq!(sizes, wanted);
        assert!(
            got.iter()
                .all(|(_, _, p)| p.iter().all(|b| usize::from(*b) == p.len()))
        );
    }
    assert_eq!(split, 3, "chunks that lay over the end");
}

#[test]
fn records_larger_than_what_is_looked_at_at_once() {
    let (mut writer, mut reader) = both(&[8], 1 << 20);
    let sizes = [40_000usize, 30_000, 200_000, 1, 65_528, 65_520, 100, 65_536];
    let mut device = Device::default();
    for (n, size) in sizes.iter().enumerate() {
        device = device.record(&vec![n as u8; *size]);
    }
    assert!(send(&mut writer, 0, 0, &device));
    let got = all(&mut reader);
    assert_eq!(got.len(), sizes.len());
    for (n, (size, (_, _, payload))) in sizes.iter().zip(&got).enumerate() {
        assert_eq!(payload, &vec![n as u8; *size]);
    }
}

#[test]
fn what_is_not_published_was_never_there() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    let device = numbered(1, 20);
    let mut chunks = writer.chunks();
    let room = chunks.room();
    land(
        chunks.reserve(0, 0, device.0.len() as u64).unwrap(),
        &device.0,
    );
    assert_eq!(room, PAGE - 256);
    assert!(chunks.room() < room - device.0.len() as u64);
    // It goes no further, such as when a copy fails.
    assert_eq!(all(&mut reader), []);
    assert!(writer.push(0, 0, b"x"));
    assert_eq!(all(&mut reader), [(0, 0, b"x".to_vec())]);
}

#[test]
fn a_full_ring_takes_no_chunk_until_one_was_read() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    let device = numbered(1, 30);
    let mut taken = 0;
    while send(&mut writer, 0, taken, &device) {
        taken += 1;
    }
    assert_eq!(taken, 3);
    assert_eq!(reader.lost(0), 0, "who keeps it is not the writer");
    let mut seen = 0;
    let mut some = |reader: &mut SharedReader, count: u32| {
        let until = seen + count;
        let told = reader.events_while(|_| {
            seen += 1;
            seen < until
        });
        assert_eq!(told.unwrap(), u64::from(count));
    };
    some(&mut reader, 28);
    assert!(
        !send(&mut writer, 0, taken, &device),
        "one of its records is left"
    );
    some(&mut reader, 1);
    assert!(
        send(&mut writer, 0, taken, &device),
        "its last one makes the room free"
    );
    assert_eq!(all(&mut reader).len(), 3 * 29);
    let mut chunks = writer.chunks();
    assert_eq!(chunks.reserve(0, 0, PAGE), None);
    // Nobody can have the writer write outside of the ring.
    assert_eq!(chunks.reserve(0, 0, u64::MAX), None);
    reader
        .words
        .word(TAIL)
        .store(u64::MAX / 2, Ordering::Release);
    assert_eq!((chunks.room(), chunks.reserve(0, 0, 16)), (0, None));
}

#[test]
fn a_consumer_goes_on_inside_a_chunk() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    assert!(send(&mut writer, 0, 5, &numbered(0, 9)));
    assert!(writer.push(0, 6, &[9]));
    let mut seen = Vec::new();
    for stop in [1, 4, 5, 9] {
        let mut reader = SharedReader::open(&fd).unwrap();
        let told = reader.events_while(|event| {
            seen.push((event.shard, event.payload.len()));
            seen.len() < stop
        });
        assert!(told.is_ok());
        assert_eq!(seen.len(), stop);
    }
    let mut last = SharedReader::open(&fd).unwrap();
    assert_eq!(
        all(&mut last),
        [(6, 0, vec![9])].map(|(shard, map, p)| (map, shard, p))
    );
    let wanted: Vec<(u32, usize)> = (0..9).map(|n| (5, n)).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn one_that_dies_with_an_event_leaves_it_for_the_next() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    assert!(send(&mut writer, 0, 0, &numbered(0, 9)));
    let mut reader = SharedReader::open(&fd).unwrap();
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reader.events(|event| assert!(event.payload.len() < 3))
    }));
    assert!(died.is_err());
    let mut next = SharedReader::open(&fd).unwrap();
    let left: Vec<usize> = all(&mut next).iter().map(|(_, _, p)| p.len()).collect();
    assert_eq!(left, [3, 4, 5, 6, 7, 8]);
}

#[test]
fn one_that_was_followed_stops_inside_a_chunk() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    assert!(send(&mut writer, 0, 0, &numbered(0, 9)));
    let mut first = SharedReader::open(&fd).unwrap();
    let mut second = SharedReader::open(&fd).unwrap();
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    let told = first.events(|event| {
        of_first.push(event.payload.len());
        if of_first.len() == 4 {
            of_second.extend(all(&mut second).iter().map(|(_, _, p)| p.len()));
        }
    });
    assert!(matches!(told, Err(SharedError::TakenOver)), "{told:?}");
    // The event that it was being given when the other one came is the only one that comes twice.
    assert_eq!(of_first, [0, 1, 2, 3]);
    assert_eq!(of_second, [3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_damaged_chunk_is_left_behind_and_nothing_before_it() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    let mut device = numbered(1, 9);
    device.0[16 * 4 + 2] = 1;
    assert!(send(&mut writer, 0, 7, &device));
    assert!(send(&mut writer, 0, 8, &numbered(3, 5)));
    let mut seen = Vec::new();
    let error = reader
        .events(|event| seen.push(event.payload.len()))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the record header 0x10005 at 320 of the event ring is damaged (map 0, ring 7); 64 bytes were skipped"
    );
    assert_eq!(seen, [1, 2, 3, 4]);
    let sizes: Vec<usize> = all(&mut reader).iter().map(|(_, _, p)| p.len()).collect();
    assert_eq!(sizes, [3, 4]);
}

#[test]
fn a_place_in_a_chunk_that_is_none_of_a_record_is_not_believed() {
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    for wrong in [256 + 24, 256 + 48 + 16, 255, u64::MAX] {
        let start = writer.read_so_far()[0];
        assert!(send(&mut writer, 0, 7, &numbered(1, 4)));
        let within = writer.words.word(WITHIN);
        within.store((start & !255).wrapping_add(wrong), Ordering::Relaxed);
        let mut reader = SharedReader::open(&fd).unwrap();
        assert_eq!(all(&mut reader).len(), 3, "{wrong}");
    }
}

#[test]
fn an_entry_of_no_kind_is_an_error() {
    let (mut writer, mut reader) = both(&[8], PAGE);
    assert!(writer.push(0, 0, b"x"));
    let length_and_kind = |writer: &SharedWriter, len: u64, kind: u64| {
        let word = writer.words.word(writer.ring + 8);
        word.store(kind << 32 | len, Ordering::Relaxed);
    };
    length_and_kind(&writer, 1, 2);
    assert_eq!(
        reader.events(|_| {}).unwrap_err().to_string(),
        "the event ring is damaged at 0: there is no entry of kind 2"
    );
    length_and_kind(&writer, 4000, 1);
    assert_eq!(
        reader.events(|_| {}).unwrap_err().to_string(),
        "the event ring is damaged at 0: a chunk of 4000 bytes where 24 are there"
    );
    // One that fills the room exactly and ends in the middle of a record.
    assert!(writer.push(0, 0, &[0; 488]));
    length_and_kind(&writer, 272, 1);
    let header = writer.words.word(writer.ring + 256);
    header.store(265, Ordering::Relaxed);
    assert_eq!(
        reader.events(|_| {}).unwrap_err().to_string(),
        "the record header 0x109 at 256 of the event ring is damaged (map 0, ring 0); 272 bytes were skipped"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn events_and_chunks_come_out_as_they_went_in(
        entries in prop::collection::vec((any::<bool>(), 0u32..3, any::<u32>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 1..8)), 1..100),
        stops in prop::collection::vec(1usize..30, 1..8),
    ) {
        let (mut writer, fd) = SharedWriter::create(&[8, 8, 8], PAGE).unwrap();
        let mut reader = SharedReader::open(&fd).unwrap();
        let (mut got, mut wanted) = (Vec::new(), Vec::new());
        for (number, (as_chunk, map, shard, payloads)) in entries.iter().enumerate() {
            if *as_chunk {
                let device = payloads.iter().fold(Device::default(), |device, p| device.record(p));
                prop_assert!(send(&mut writer, *map, *shard, &device));
            } else {
                for payload in payloads {
                    prop_assert!(writer.push(*map, *shard, payload));
                }
            }
            wanted.extend(payloads.iter().map(|p| (*map, *shard, p.clone())));
            // Readers come and go at any record.
            let stop = stops[number % stops.len()];
            for _ in 0..2 {
                let mut count = 0;
                reader.events_while(|e| {
                    got.push((e.map, e.shard, e.payload.to_vec()));
                    count += 1;
                    count < stop
                }).unwrap();
                if stop.is_multiple_of(2) {
                    reader = SharedReader::open(&fd).unwrap();
                }
            }
            if number.is_multiple_of(2) {
                got.extend(all(&mut reader));
                prop_assert_eq!(&got, &wanted);
            }
        }
        got.extend(all(&mut reader));
        prop_assert_eq!(got, wanted);
    }
}

/// Consumers that come while another one reads chunks: every event is handed out.
#[test]
fn consumers_that_follow_each_other_inside_chunks_miss_nothing() {
    const CHUNKS: u32 = 4_000;
    const RECORDS: u32 = 10;
    let (mut writer, fd) = SharedWriter::create(&[8], PAGE).unwrap();
    let done = AtomicBool::new(false);
    let mut counts = vec![0u32; (CHUNKS * RECORDS) as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for chunk in 0..CHUNKS {
                let device = (0..RECORDS).fold(Device::default(), |device, n| {
                    device.record(&(chunk * RECORDS + n).to_le_bytes())
                });
                while !send(&mut writer, 0, 0, &device) {
                    std::thread::yield_now();
                }
            }
            while writer.read_so_far()[0] != writer.head {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
        let consume = || {
            let (fd, done) = (&fd, &done);
            scope.spawn(move || {
                let mut seen = Vec::new();
                let mut reader = SharedReader::open(fd).unwrap();
                while !done.load(Ordering::Relaxed) {
                    let taken = reader.events(|event| {
                        let bytes = event.payload.try_into().unwrap();
                        seen.push(u32::from_le_bytes(bytes));
                    });
                    match taken {
                        Err(SharedError::TakenOver) => reader = SharedReader::open(fd).unwrap(),
                        Err(error) => panic!("{error}"),
                        Ok(_) => std::thread::yield_now(),
                    }
                }
                seen
            })
        };
        for thread in [consume(), consume()] {
            for event in thread.join().unwrap() {
                counts[event as usize] += 1;
            }
        }
    });
    let missing = counts.iter().filter(|count| **count == 0).count();
    assert_eq!(missing, 0);
}
