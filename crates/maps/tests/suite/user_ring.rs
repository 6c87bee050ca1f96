//! The host's end of user ring buffers against a drainer that follows Linux's rules.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, MapType};
use warpbpf_maps::user_ring::{BadPositions, NoRoom, Producer, Sample};
use warpbpf_maps::{MapPlan, MapView, Write, plan, update};
use warpbpf_object::{MapDef, MapKind};

const LAYOUT: UserRingLayout = UserRingLayout { bytes: 4096 };

fn def(key_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: "jobs".to_owned(),
        map_type: MapType::UserRingbuf as u32,
        key_size,
        value_size: 0,
        max_entries,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

fn planned(max_entries: u32) -> MapPlan {
    plan(&def(0, max_entries), 4, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(def: &MapDef) -> String {
    plan(def, 4, &[]).expect_err("an error").to_string()
}

/// The device's memory, with a program that drains it.
struct Device(Vec<u8>);

impl Device {
    fn new() -> Device {
        Device(vec![0; LAYOUT.size() as usize])
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.0[at as usize..at as usize + 8].try_into().unwrap())
    }

    fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            let at = write.offset as usize;
            self.0[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
    }

    fn consumer(&self) -> u64 {
        self.word(UserRingLayout::CONSUMER)
    }

    /// Takes up to `most` records, as `__bpf_user_ringbuf_peek` looks at them.
    fn drain(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let mut at = self.consumer();
        let end = self.word(UserRingLayout::PRODUCER);
        while at < end && records.len() < most {
            assert_eq!(at % 8, 0);
            let place = (UserRingLayout::DATA + at % 4096) as usize;
            let header = u32::from_le_bytes(self.0[place..place + 4].try_into().unwrap());
            assert_eq!(header & UserRingLayout::BUSY, 0);
            let length = (header & !UserRingLayout::DISCARDED) as usize;
            let total = UserRingLayout::record_bytes(length as u64);
            assert!(total <= end - at, "inside what is there");
            assert!(at % 4096 + total <= 4096, "in one piece");
            if header & UserRingLayout::DISCARDED == 0 {
                records.push(self.0[place + 8..place + 8 + length].to_vec());
            }
            at += total;
        }
        self.apply(&[Write {
            offset: UserRingLayout::CONSUMER,
            bytes: at.to_le_bytes().to_vec(),
        }]);
        records
    }
}

#[derive(Clone, Debug)]
enum Do {
    Reserve(usize),
    /// Gives back one of those that are out, submitted or not.
    Back(usize, bool),
    Drain(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Do>> {
    let one = prop_oneof![
        (0..600usize).prop_map(Do::Reserve),
        (0..4100usize).prop_map(Do::Reserve),
        (0..8usize, any::<bool>()).prop_map(|(i, keep)| Do::Back(i, keep)),
        (0..8usize, any::<bool>()).prop_map(|(i, keep)| Do::Back(i, keep)),
        (1..20usize).prop_map(Do::Drain),
    ];
    proptest::collection::vec(one, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every submitted record comes out once, whole, in the order of the reservations; nothing else
    /// does.
    #[test]
    fn what_goes_in_comes_out(deeds in deeds()) {
        let mut device = Device::new();
        let mut producer = Producer::new(LAYOUT, 0, 0).unwrap();
        // In the order of reservations: what is out, and what became of it.
        let mut expected: VecDeque<(u8, Option<Option<Vec<u8>>>)> = VecDeque::new();
        let mut out: Vec<(u8, Sample)> = Vec::new();
        let mut count = 0u8;
        for deed in deeds {
            match deed {
                Do::Reserve(size) => {
                    producer.consumed(device.consumer());
                    match producer.reserve(size) {
                        Ok(mut sample) => {
                            prop_assert!(size <= 4088);
                            prop_assert_eq!(&sample.payload, &vec![0; size]);
                            count = count.wrapping_add(1);
                            sample.payload.fill(count);
                            expected.push_back((count, None));
                            out.push((count, sample));
                        }
                        Err(NoRoom::TooLarge { .. }) => prop_assert!(size > 4088),
                        Err(NoRoom::Full { .. }) => prop_assert!(producer.pending() > 0),
                    }
                }
                Do::Back(index, keep) if !out.is_empty() => {
                    let (number, sample) = out.remove(index % out.len());
                    let slot = expected.iter_mut().find(|(n, _)| *n == number).unwrap();
                    slot.1 = Some(keep.then(|| sample.payload.clone()));
                    if keep {
                        producer.submit(sample);
                    } else {
                        producer.discard(sample);
                    }
                }
                Do::Back(..) => {}
                Do::Drain(most) => {
                    for record in device.drain(most) {
                        // Those that were discarded before it are gone with it.
                        let wanted = loop {
                            match expected.pop_front() {
                                Some((_, Some(None))) => {}
                                Some((_, Some(Some(wanted)))) => break wanted,
                                other => return Err(TestCaseError::fail(format!("{other:?}"))),
                            }
                        };
                        prop_assert_eq!(record, wanted);
                    }
                }
            }
            let writes = producer.writes();
            if let Some((position, records)) = writes.split_last() {
                prop_assert_eq!(position.offset, UserRingLayout::PRODUCER);
                prop_assert!(records.iter().all(|w| w.offset >= UserRingLayout::DATA));
            }
            device.apply(&writes);
        }
        for (_, sample) in out.drain(..) {
            producer.discard(sample);
        }
        device.apply(&producer.writes());
        let rest: Vec<Vec<u8>> = device.drain(usize::MAX);
        let wanted: Vec<Vec<u8>> = expected.into_iter().filter_map(|(_, done)| done.flatten()).collect();
        prop_assert_eq!(rest, wanted);
        producer.consumed(device.consumer());
        prop_assert_eq!(producer.pending(), 0);
    }
}

#[test]
fn a_record_as_large_as_the_ring_finds_room_wherever_it_stands() {
    let mut device = Device::new();
    let mut producer = Producer::new(LAYOUT, 0, 0).unwrap();
    let small = producer.reserve(100).unwrap();
    producer.submit(small);
    device.apply(&producer.writes());
    assert_eq!(producer.reserve(4088), Err(NoRoom::Full { size: 4088 }));
    device.drain(1);
    producer.consumed(device.consumer());
    // What is left up to the ring's end has to be skipped by programs first.
    assert_eq!(producer.reserve(4088), Err(NoRoom::Full { size: 4088 }));
    device.apply(&producer.writes());
    assert_eq!(device.drain(9), Vec::<Vec<u8>>::new());
    producer.consumed(device.consumer());
    let mut large = producer.reserve(4088).unwrap();
    large.payload.fill(7);
    producer.submit(large);
    device.apply(&producer.writes());
    assert_eq!(device.drain(9), [vec![7; 4088]]);
    assert_eq!(
        producer.reserve(4089).unwrap_err().to_string(),
        "a record of 4089 bytes is larger than the ring takes, 4088"
    );
    assert_eq!(NoRoom::Full { size: 1 }.errno(), -28);
    assert_eq!(NoRoom::TooLarge { size: 1, most: 0 }.errno(), -7);
}

#[test]
fn a_position_that_cannot_be_is_not_believed() {
    let mut producer = Producer::new(LAYOUT, 0, 0).unwrap();
    let sample = producer.reserve(8).unwrap();
    producer.submit(sample);
    assert_eq!(producer.writes().len(), 2);
    for bad in [17, 24, u64::MAX, 4] {
        producer.consumed(bad);
        assert_eq!(producer.pending(), 16, "{bad}");
    }
    producer.consumed(16);
    assert_eq!(producer.pending(), 0);
    producer.consumed(0);
    assert_eq!(producer.pending(), 0);
    assert_eq!(producer.writes(), []);
}

#[test]
fn definitions() {
    let bytes = |entries| match planned(entries).layout {
        MapLayout::UserRing(ring) => ring.bytes,
        other => panic!("{other:?}"),
    };
    // As libbpf rounds them.
    assert_eq!(
        [1, 4096, 4097, 1 << 30].map(bytes),
        [4096, 4096, 8192, 1 << 30]
    );
    assert_eq!(
        refused(&def(0, 0)),
        "map `jobs`: `max_entries` is 0 but type user_ringbuf needs at least 1"
    );
    assert_eq!(
        refused(&def(4, 4096)),
        "map `jobs`: `key_size` is 4 but type user_ringbuf needs none (0)"
    );
    assert_eq!(
        refused(&def(0, (1 << 30) + 1)),
        "map `jobs`: `max_entries` 1073741825 would take 1073741825 bytes of device memory, more than the limit of \
         1073741824; lower `max_entries`"
    );
}

#[test]
fn records_from_before_the_start() {
    let plan = planned(4096);
    let mut device = Device::new();
    for number in 0..3u8 {
        let writes = update(&plan, &device.0, &[], &[number; 5], BPF_ANY).unwrap();
        device.apply(&writes);
    }
    let error = update(&plan, &device.0, &[], &[0; 5], BPF_EXIST | 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "map `jobs`: a push with flags 0x6 is not possible on type user_ringbuf"
    );
    let error = update(&plan, &device.0, &[], &[0; 4089], BPF_ANY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "map `jobs`: no room: a record of 4089 bytes is larger than the ring takes, 4088"
    );
    let view = MapView::new(&plan, &device.0).unwrap();
    assert_eq!(view.entries().count(), 0);
    assert!(view.lookup(&[]).is_err());
    assert_eq!(device.drain(9), [[0; 5], [1; 5], [2; 5]]);
}

#[test]
fn positions_that_cannot_be_are_not_believed() {
    for (filled, consumed) in [(12, 0), (16, 4), (8, 16), (4104, 0), (!7, 8)] {
        let error = Producer::new(LAYOUT, filled, consumed).unwrap_err();
        assert_eq!(error, BadPositions { filled, consumed });
    }
    assert!(Producer::new(LAYOUT, 4096 + 64, 64).is_ok());
    let plan = planned(4096);
    let mut device = Device::new();
    device.0[..8].copy_from_slice(&4u64.to_le_bytes());
    let error = update(&plan, &device.0, &[], &[1; 8], BPF_ANY).unwrap_err();
    assert_eq!(error.errno(), -5);
    assert_eq!(
        error.to_string(),
        "map `jobs`: the ring is filled to 4 and drained to 0, which no ring of its size can be"
    );
}
