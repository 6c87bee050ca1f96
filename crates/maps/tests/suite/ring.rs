//! The ring's reader against a model of the device's writers, interleaved at every step that both
//! sides take.

use std::ops::Range;

use proptest::prelude::*;
use warpbpf_abi::layout::RingLayout;
use warpbpf_maps::ring::{Lost, Reader, Record};

/// Device memory and the writers' protocol, step by step, as the layout's documentation says.
struct Device {
    layout: RingLayout,
    bytes: Vec<u8>,
    /// Reserved, not committed: shard, position, payload, discarded.
    open: Vec<(u32, u64, Vec<u8>, bool)>,
    /// Payloads in order of reservation, `None` for discarded ones.
    written: Vec<Vec<Option<Vec<u8>>>>,
    lost: u64,
}

impl Device {
    fn new(shards: u32) -> Device {
        let layout = RingLayout::new(1, shards);
        Device {
            layout,
            bytes: vec![0; layout.size() as usize],
            open: Vec::new(),
            written: vec![Vec::new(); shards as usize],
            lost: 0,
        }
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes[at as usize..at as usize + 8].try_into().unwrap())
    }

    fn set(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn copy(&self, range: &Range<u64>) -> Vec<u8> {
        self.bytes[range.start as usize..range.end as usize].to_vec()
    }

    fn at(&self, shard: u32, position: u64) -> u64 {
        let ring = self.layout.shard_bytes;
        self.layout.data_at() + u64::from(shard) * ring + position % ring
    }

    fn commit(&mut self, shard: u32, position: u64, size: u64) {
        let sub = position / self.layout.sub_bytes() % RingLayout::SUBS;
        let at = self.layout.commits_at() + (u64::from(shard) * RingLayout::SUBS + sub) * 8;
        let count = self.word(at);
        self.set(at, count + size);
    }

    fn reserve(&mut self, shard: u32, payload: Vec<u8>, discarded: bool) {
        let line = u64::from(shard) * RingLayout::CONTROL_STRIDE;
        let reserved = self.word(line + RingLayout::RESERVED);
        let consumed = self.word(self.layout.consumed_at() + u64::from(shard) * 8);
        let need = RingLayout::record_bytes(payload.len() as u64);
        let left = self.layout.sub_bytes() - reserved % self.layout.sub_bytes();
        let pad = if left < need { left } else { 0 };
        if reserved + pad + need - consumed > self.layout.shard_bytes {
            let lost = self.word(line + RingLayout::LOST_FULL);
            self.set(line + RingLayout::LOST_FULL, lost + 1);
            self.lost += 1;
            return;
        }
        self.set(line + RingLayout::RESERVED, reserved + pad + need);
        if pad > 0 {
            let header = RingLayout::PADDING | (pad - RingLayout::HEADER) as u32;
            let at = self.at(shard, reserved);
            self.set(at, u64::from(header));
            self.commit(shard, reserved, pad);
        }
        self.written[shard as usize].push((!discarded).then(|| payload.clone()));
        self.open.push((shard, reserved + pad, payload, discarded));
    }

    fn finish(&mut self, which: usize) {
        if self.open.is_empty() {
            return;
        }
        let (shard, position, payload, discarded) = self.open.swap_remove(which % self.open.len());
        let flag = if discarded { RingLayout::DISCARDED } else { 0 };
        let at = self.at(shard, position);
        self.set(at, u64::from(payload.len() as u32 | flag));
        let body = (at + RingLayout::HEADER) as usize;
        self.bytes[body..body + payload.len()].copy_from_slice(&payload);
        self.commit(
            shard,
            position,
            RingLayout::record_bytes(payload.len() as u64),
        );
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Reserve(shard, len, discarded) => {
                let tag = self.written[*shard as usize].len() as u8;
                self.reserve(*shard, vec![tag; *len], *discarded);
            }
            Step::Finish(which) => self.finish(*which),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u32, usize, bool),
    Finish(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0..2u32, 0..200usize, prop::bool::weighted(0.2)).prop_map(|(s, n, d)| Step::Reserve(s, n, d)),
        1 => (0..1u32, 3000..8184usize, prop::bool::weighted(0.2)).prop_map(|(s, n, d)| Step::Reserve(s, n, d)),
        2 => (0..64usize).prop_map(Step::Finish),
    ];
    proptest::collection::vec(step, 0..30)
}

/// One round of the reader with writers at work between its copies.
fn round(
    device: &mut Device,
    reader: &mut Reader,
    between: &[Vec<Step>; 4],
    out: &mut [Vec<Vec<u8>>],
) {
    let run = |device: &mut Device, i: usize| between[i].iter().for_each(|step| device.step(step));
    let commits = device.copy(&reader.commits());
    run(device, 0);
    let controls = device.copy(&reader.controls());
    run(device, 1);
    for chunk in reader.cover(&commits, &controls).unwrap() {
        // As where there is room for a part of it only, which ends with a sub-buffer.
        let part = chunk.beginning(device.layout.sub_bytes() * 2 - 8);
        for chunk in part
            .clone()
            .into_iter()
            .chain(part.and_then(|part| chunk.behind(&part)))
        {
            let bytes = device.copy(&chunk.range);
            let each =
                |record: Record<'_>| out[record.shard as usize].push(record.payload.to_vec());
            chunk.records(&bytes, each).unwrap();
            reader.take(&chunk).unwrap();
        }
    }
    run(device, 2);
    let write = reader.consumed();
    device.bytes[write.offset as usize..write.offset as usize + write.bytes.len()]
        .copy_from_slice(&write.bytes);
    run(device, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_record_arrives_once_whole_and_in_order(
        rounds in proptest::collection::vec([steps(), steps(), steps(), steps()], 1..24)
    ) {
        let mut device = Device::new(2);
        let mut reader = Reader::new(device.layout);
        let mut out = vec![Vec::new(), Vec::new()];
        for between in &rounds {
            round(&mut device, &mut reader, between, &mut out);
            for (shard, got) in out.iter().enumerate() {
                let expected: Vec<&Vec<u8>> = device.written[shard].iter().flatten().collect();
                prop_assert!(got.len() <= expected.len());
                prop_assert!(got.iter().eq(expected[..got.len()].iter().copied()));
            }
        }
        while !device.open.is_empty() {
            device.finish(0);
        }
        round(&mut device, &mut reader, &Default::default(), &mut out);
        for (shard, got) in out.iter().enumerate() {
            let expected: Vec<Vec<u8>> = device.written[shard].iter().flatten().cloned().collect();
            prop_assert_eq!(got, &expected);
        }
        prop_assert_eq!(reader.lost(), Lost { full: device.lost, busy: 0 });
        prop_assert_eq!(reader.pending(), 0);
    }

    #[test]
    fn garbage_never_panics(header in any::<u32>(), reserved in any::<u64>(), counts in any::<[u64; 8]>()) {
        let mut device = Device::new(1);
        let mut reader = Reader::new(device.layout);
        device.set(RingLayout::RESERVED, reserved);
        for (i, count) in counts.iter().enumerate() {
            device.set(device.layout.commits_at() + i as u64 * 8, *count);
        }
        device.set(device.layout.data_at(), u64::from(header));
        let (commits, controls) = (device.copy(&reader.commits()), device.copy(&reader.controls()));
        for chunk in reader.cover(&commits, &controls).unwrap() {
            let bytes = device.copy(&chunk.range);
            let _ = chunk.records(&bytes, |_| ());
            prop_assert!(reader.take(&chunk).is_ok());
        }
    }
}

#[test]
fn records_begin_at_multiples_of_16() {
    let sizes = [0, 8, 9, 24, 25, 40].map(RingLayout::record_bytes);
    assert_eq!(sizes, [16, 16, 32, 32, 48, 48]);
    let layout = RingLayout::new(1 << 20, 3);
    assert_eq!(
        RingLayout::record_bytes(layout.max_payload()),
        layout.sub_bytes()
    );
    for at in [layout.sub_bytes(), layout.shard_bytes, layout.data_at()] {
        assert_eq!(at % RingLayout::ALIGN, 0);
    }
}

#[test]
fn a_partly_read_sub_buffer_is_not_taken_for_full() {
    // The trap of commit counts: the host has taken half of a sub-buffer, the writer of its second
    // half is slow, and the ring has come round so that the next turn's commits fill up the count.
    let mut device = Device::new(1);
    let mut reader = Reader::new(device.layout);
    let mut out = vec![Vec::new()];
    let sub = device.layout.sub_bytes() as usize;
    let half = sub / 2 - 8;
    device.reserve(0, vec![1; half], false);
    device.finish(0);
    round(&mut device, &mut reader, &Default::default(), &mut out);
    assert_eq!(out[0].len(), 1);
    device.reserve(0, vec![2; half], false);
    for i in 0..7 {
        device.reserve(0, vec![3 + i; sub - 8], false);
        device.finish(1);
    }
    device.reserve(0, vec![10; half], false);
    device.finish(1);
    device.reserve(0, vec![11; 8], false);
    assert_eq!(device.lost, 1, "the ring is exactly full");
    round(&mut device, &mut reader, &Default::default(), &mut out);
    assert_eq!(out[0].len(), 1, "the slow writer's bytes are not there yet");
    device.finish(0);
    round(&mut device, &mut reader, &Default::default(), &mut out);
    let tags: Vec<u8> = out[0].iter().map(|payload| payload[0]).collect();
    assert_eq!(tags, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(reader.lost_in(0), Some(Lost { full: 1, busy: 0 }));
    assert_eq!(reader.lost_in(1), None);
}

#[test]
fn wrong_copies_and_damage_are_reported() {
    let mut device = Device::new(1);
    let mut reader = Reader::new(device.layout);
    assert_eq!(
        reader.cover(&[], &[]).unwrap_err().to_string(),
        "the copy of the commit counts has 0 bytes but 64 were asked for"
    );
    assert_eq!(
        reader.cover(&[0; 64], &[0; 5]).unwrap_err().to_string(),
        "the copy of the control lines has 5 bytes but 128 were asked for"
    );
    for tag in 0..2 {
        device.reserve(0, vec![tag; 8], false);
        device.finish(0);
    }
    let (commits, controls) = (
        device.copy(&reader.commits()),
        device.copy(&reader.controls()),
    );
    let chunks = reader.cover(&commits, &controls).unwrap();
    let [chunk] = &chunks[..] else {
        panic!("{chunks:?}")
    };
    assert_eq!(
        (chunk.len(), chunk.is_empty(), reader.pending()),
        (32, false, 32)
    );
    assert_eq!(
        chunk.records(&[0; 8], |_| ()).unwrap_err().to_string(),
        "the copy of a chunk has 8 bytes but 32 were asked for"
    );
    let mut bytes = device.copy(&chunk.range);
    bytes[16..20].copy_from_slice(&9u32.to_le_bytes());
    let mut seen = 0;
    assert_eq!(
        chunk
            .records(&bytes, |_| seen += 1)
            .unwrap_err()
            .to_string(),
        "ring 0: the record header 0x9 at position 16 is damaged; 16 bytes were skipped"
    );
    assert_eq!((seen, reader.take(chunk), reader.pending()), (1, Ok(()), 0));
    assert_eq!(
        reader.take(chunk).unwrap_err().to_string(),
        "ring 0: the chunk at 0 was taken while 32 is next"
    );
}

#[test]
fn a_chunk_is_cut_where_a_sub_buffer_ends() {
    let mut device = Device::new(1);
    let mut reader = Reader::new(device.layout);
    let sub = device.layout.sub_bytes();
    for tag in 0..3 {
        device.reserve(0, vec![tag; sub as usize - 8], false);
        device.finish(0);
    }
    let (commits, controls) = (
        device.copy(&reader.commits()),
        device.copy(&reader.controls()),
    );
    let chunks = reader.cover(&commits, &controls).unwrap();
    let [chunk] = &chunks[..] else {
        panic!("{chunks:?}")
    };
    assert_eq!(chunk.len(), 3 * sub);
    assert_eq!(chunk.beginning(3 * sub), Some(chunk.clone()));
    assert_eq!(chunk.behind(chunk), None);
    assert_eq!(chunk.beginning(sub - 1), None);
    assert_eq!(chunk.beginning(0), None);
    let first = chunk.beginning(3 * sub - 1).unwrap();
    assert_eq!(first.len(), 2 * sub);
    let rest = chunk.behind(&first).unwrap();
    assert_eq!((rest.len(), rest.range.start), (sub, first.range.end));
    // What was not taken is covered again.
    reader.take(&first).unwrap();
    assert_eq!(reader.cover(&commits, &controls).unwrap(), [rest]);
    assert_eq!(reader.pending(), sub);
}

#[test]
fn a_record_that_is_never_finished_stops_its_own_ring_alone() {
    let mut device = Device::new(2);
    let mut reader = Reader::new(device.layout);
    let mut out = vec![Vec::new(), Vec::new()];
    let sub = device.layout.sub_bytes() as usize;
    // The first sub-buffer is whole; in the second one a writer was killed after it had claimed its
    // place.
    device.reserve(0, vec![1; sub - 8], false);
    device.finish(0);
    device.reserve(0, vec![2; 8], false);
    for turn in 0..40 {
        for shard in 0..2 {
            device.reserve(shard, vec![3 + turn; sub - 8], false);
            if device.open.len() > 1 {
                device.finish(1);
            }
        }
        round(&mut device, &mut reader, &Default::default(), &mut out);
    }
    assert_eq!((out[0].len(), out[1].len()), (1, 40));
    // The other one's writers are told that there is no room, and that is counted.
    let lost = reader.lost_in(0).unwrap();
    assert_eq!(lost, Lost { full: 33, busy: 0 });
    assert_eq!(reader.lost_in(1), Some(Lost::default()));
    assert_eq!(reader.pending(), 8 * sub as u64);
}
