//! Reading snapshots and changing quiet maps, type by type, against models.

use std::collections::BTreeMap;

use crate::common::def;
use warpbpf_abi::layout::{MapLayout, SumField};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT};
use warpbpf_maps::{
    AccessError, Counters, Entry, MapPlan, MapView, SumUse, Value, Write, delete, plan, update,
};
use warpbpf_object::MapDef;

fn make(
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    sms: u32,
    uses: &[SumUse],
) -> MapPlan {
    let extra = if map_type == 1502 { 5 } else { 0 };
    let def = MapDef {
        extra: BTreeMap::from([("map_extra".to_owned(), extra)]),
        ..def(map_type, key_size, value_size, max_entries)
    };
    plan(&def, sms, uses).unwrap()
}

fn zeroed(plan: &MapPlan) -> Vec<u8> {
    vec![0; plan.bytes() as usize]
}

fn apply(bytes: &mut [u8], writes: &[Write]) {
    for write in writes {
        let at = write.offset as usize;
        bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
}

#[test]
fn an_array_is_read_and_written() {
    let plan = make(2, 4, 5, 3, 8, &[]);
    let mut bytes = zeroed(&plan);
    let writes = update(&plan, &bytes, &1u32.to_le_bytes(), b"abcde", BPF_EXIST).unwrap();
    assert_eq!(
        writes,
        [Write {
            offset: 8,
            bytes: b"abcde".to_vec()
        }]
    );
    apply(&mut bytes, &writes);
    let view = MapView::new(&plan, &bytes).unwrap();
    let values: Vec<Entry> = view.entries().collect();
    let entry = |key: u32, value: &[u8]| Entry {
        key: key.to_le_bytes().to_vec(),
        value: Value::One(value.to_vec()),
    };
    assert_eq!(
        values,
        [entry(0, &[0; 5]), entry(1, b"abcde"), entry(2, &[0; 5])]
    );
    assert_eq!(view.lookup(&3u32.to_le_bytes()).unwrap(), None);
    assert_eq!(view.counters(), Counters::default());
}

#[test]
fn a_summed_array_adds_its_copies_field_by_field() {
    let fields = [
        SumField { offset: 0, size: 8 },
        SumField {
            offset: 12,
            size: 4,
        },
    ];
    let uses = [SumUse {
        adds: fields.into_iter().collect(),
        not_summable: None,
        more_than_adds: false,
        on_cpu: false,
    }];
    let plan = make(2, 4, 16, 2, 3, &uses);
    let MapLayout::Array(layout) = plan.layout else {
        panic!()
    };
    let mut bytes = zeroed(&plan);
    for shard in 0..3u32 {
        let at = layout.value(shard, 1) as usize;
        // -1, -2, -3 as 64 bits; bytes between the fields count only in the first copy.
        bytes[at..at + 8].copy_from_slice(&(-1 - i64::from(shard)).to_le_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&(7 + shard).to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&(u32::MAX - shard).to_le_bytes());
    }
    let key = 1u32.to_le_bytes();
    let expected: Vec<u8> = [
        &(-6i64).to_le_bytes()[..],
        &7u32.to_le_bytes(),
        &(u32::MAX - 5).to_le_bytes(),
    ]
    .concat();
    let view = MapView::new(&plan, &bytes).unwrap();
    assert_eq!(view.lookup(&key).unwrap(), Some(Value::One(expected)));
    let value: Vec<u8> = (1..=16).collect();
    let writes = update(&plan, &bytes, &key, &value, BPF_ANY).unwrap();
    apply(&mut bytes, &writes);
    assert_eq!(
        MapView::new(&plan, &bytes).unwrap().lookup(&key).unwrap(),
        Some(Value::One(value))
    );
}

#[test]
fn per_sm_values_stay_apart() {
    for sms in [1, 3] {
        let plan = make(6, 4, 4, 2, sms, &[]);
        let mut bytes = zeroed(&plan);
        let all: Vec<u8> = (0..sms)
            .flat_map(|sm| u64::from(sm + 10).to_le_bytes())
            .collect();
        let key = 1u32.to_le_bytes();
        let writes = update(&plan, &bytes, &key, &all, BPF_ANY).unwrap();
        apply(&mut bytes, &writes);
        let expected: Vec<Vec<u8>> = (0..sms)
            .map(|sm| (sm + 10).to_le_bytes().to_vec())
            .collect();
        let view = MapView::new(&plan, &bytes).unwrap();
        assert_eq!(view.lookup(&key).unwrap(), Some(Value::PerSm(expected)));
        let writes = update(&plan, &bytes, &key, &[1, 2, 3, 4], BPF_ANY).unwrap();
        apply(&mut bytes, &writes);
        let expected = vec![vec![1, 2, 3, 4]; sms as usize];
        let view = MapView::new(&plan, &bytes).unwrap();
        assert_eq!(view.lookup(&key).unwrap(), Some(Value::PerSm(expected)));
        let error = update(&plan, &bytes, &key, &[1, 2, 3], BPF_ANY).unwrap_err();
        let needed = u64::from(sms) * 8;
        assert_eq!(
            error.to_string(),
            format!("map `m`: the value has 3 bytes but {needed} are needed")
        );
    }
}

#[test]
fn per_thread_values_that_are_zero_are_left_out() {
    let plan = make(1502, 4, 4, 2, 3, &[]);
    let MapLayout::PerThread(layout) = plan.layout else {
        panic!()
    };
    let mut bytes = zeroed(&plan);
    bytes[layout.value(1, 3) as usize] = 9;
    bytes[0] = 2;
    let view = MapView::new(&plan, &bytes).unwrap();
    let values: Vec<Value> = view.entries().map(|entry| entry.value).collect();
    assert_eq!(
        values,
        [
            Value::PerThread(vec![]),
            Value::PerThread(vec![(3, vec![9, 0, 0, 0])])
        ]
    );
    assert_eq!(view.thread_value(1, 3), Some(&[9, 0, 0, 0][..]));
    assert_eq!(view.thread_value(0, 4), Some(&[0, 0, 0, 0][..]));
    assert_eq!(view.thread_value(0, 5), None);
    assert_eq!(view.thread_value(2, 0), None);
    assert_eq!(
        view.counters(),
        Counters {
            refused: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn a_user_rings_snapshot_is_its_control_words() {
    use warpbpf_abi::layout::UserRingLayout as Ring;
    let plan = make(31, 0, 0, 4096, 1, &[]);
    let plain = make(1502, 4, 4, 2, 1, &[]);
    assert_eq!(plan.snapshot_bytes(), Ring::DATA);
    assert_eq!(plain.snapshot_bytes(), plain.bytes());
    assert_eq!(make(27, 0, 0, 4096, 1, &[]).snapshot_bytes(), 0);
    let part = |producer: u64, consumer: u64, over: u64, broken: u64| {
        let mut bytes = vec![0; Ring::DATA as usize];
        for (at, word) in [
            (Ring::PRODUCER, producer),
            (Ring::CONSUMER, consumer),
            (Ring::TAKEN_OVER, over),
            (Ring::BROKEN, broken),
        ] {
            bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    };
    // Of two contexts together; positions that cannot be count as a full ring.
    let parts = [part(72, 24, 2, 1), part(8, 16, 1, 0)];
    let view = MapView::merged(&plan, &parts).unwrap();
    assert_eq!(view.undrained(), Some(48 + 4096));
    assert_eq!(
        view.counters(),
        Counters {
            taken_over: 3,
            broken: 1,
            ..Counters::default()
        }
    );
    assert_eq!(view.entries().count(), 0);
    let whole = zeroed(&plan);
    assert_eq!(MapView::new(&plan, &whole).unwrap().undrained(), Some(0));
    assert!(MapView::new(&plan, &whole[1..]).is_err());
    let zeroed = zeroed(&plain);
    assert_eq!(MapView::new(&plain, &zeroed).unwrap().undrained(), None);
}

#[test]
fn wrong_accesses_are_refused_with_linuxs_errno() {
    let array = make(2, 4, 4, 1, 1, &[]);
    let percpu = make(6, 4, 4, 1, 2, &[]);
    let hash = make(1, 4, 4, 1, 1, &[]);
    let ring = make(27, 0, 0, 64, 1, &[]);
    let thread = make(1502, 4, 4, 1, 1, &[]);
    let zero = [0u8; 4];
    let check = |result: Result<Vec<Write>, AccessError>, errno: i64, text: &str| {
        let error = result.unwrap_err();
        assert_eq!((error.errno(), error.to_string().as_str()), (errno, text));
    };
    let bytes = zeroed(&array);
    check(
        update(&array, &bytes[1..], &zero, &zero, 0),
        EINVAL,
        "map `m`: the snapshot has 127 bytes but the layout has 128",
    );
    check(
        update(&array, &bytes, &[0; 3], &zero, 0),
        EINVAL,
        "map `m`: the key has 3 bytes but `key_size` is 4",
    );
    check(
        update(&array, &bytes, &zero, &[0; 3], 0),
        EINVAL,
        "map `m`: the value has 3 bytes but 4 are needed",
    );
    check(
        update(&array, &bytes, &zero, &zero, BPF_NOEXIST),
        EEXIST,
        "map `m`: the key exists",
    );
    check(
        update(&array, &bytes, &zero, &zero, 4),
        EINVAL,
        "map `m`: an update with flags 0x4 is not possible on type array",
    );
    check(
        update(&array, &bytes, &[1, 0, 0, 0], &zero, 0),
        E2BIG,
        "map `m`: the key is not below `max_entries`, 1",
    );
    check(
        delete(&array, &bytes, &zero),
        EINVAL,
        "map `m`: a delete is not possible on type array",
    );
    check(
        delete(&percpu, &zeroed(&percpu), &zero),
        EINVAL,
        "map `m`: a delete is not possible on type percpu_array",
    );
    check(
        delete(&hash, &zeroed(&hash), &zero),
        ENOENT,
        "map `m`: no such key",
    );
    check(
        update(&hash, &zeroed(&hash), &zero, &zero, BPF_EXIST),
        ENOENT,
        "map `m`: no such key",
    );
    check(
        update(&hash, &zeroed(&hash), &zero, &zero, 9),
        EINVAL,
        "map `m`: an update with flags 0x9 is not possible on type hash",
    );
    check(
        update(&thread, &zeroed(&thread), &zero, &zero, 0),
        EINVAL,
        "map `m`: an update from the host is not possible on type per_thread_array",
    );
    let ring_bytes = zeroed(&ring);
    check(
        delete(&ring, &ring_bytes, &[]),
        EINVAL,
        "map `m`: a delete is not possible on type ringbuf",
    );
    let view = MapView::new(&ring, &ring_bytes).unwrap();
    assert_eq!(
        view.lookup(&[]).unwrap_err().to_string(),
        "map `m`: a lookup is not possible on type ringbuf"
    );
    assert_eq!(view.entries().count(), 0);
}
