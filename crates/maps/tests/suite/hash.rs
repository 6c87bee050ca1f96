//! The hash family from the host: snapshots and changes of quiet maps, against models.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::def;
use proptest::prelude::*;
use warpbpf_abi::layout::{HashLayout, LruLayout, MapLayout, hash as hash_of_key};
use warpbpf_abi::maps::{
    BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, EINVAL, ENOENT, MapType,
};
use warpbpf_maps::{
    AccessError, Counters, Entry, Hardware, MapPlan, MapView, Value, Write, delete, hash, look_up,
    plan, plan_on, update,
};

const PER_SM: [MapType; 2] = [MapType::PercpuHash, MapType::LruPercpuHash];

fn make(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32, sms: u32) -> MapPlan {
    let def = def(map_type as u32, key_size, value_size, max_entries);
    plan(&def, sms, &[]).unwrap()
}

/// The kinds of slots that keys and values of these sizes can have: 128-bit atomics or not.
fn kinds(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> Vec<MapPlan> {
    let def = def(map_type as u32, key_size, value_size, max_entries);
    let plans = [false, true].map(|wide_atomics| {
        let hardware = Hardware {
            sms: 1,
            wide_atomics,
        };
        plan_on(&def, hardware, &[]).unwrap()
    });
    let dense = |plan: &MapPlan| hash_layout(plan).dense;
    let fits = map_type != MapType::PercpuHash && key_size <= 8 && value_size <= 8;
    assert_eq!([dense(&plans[0]), dense(&plans[1])], [false, fits]);
    plans.into_iter().take(1 + usize::from(fits)).collect()
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

fn put(plan: &MapPlan, bytes: &mut [u8], key: &[u8], value: &[u8]) {
    let writes = update(plan, bytes, key, value, BPF_ANY).unwrap();
    apply(bytes, &writes);
}

/// What a lookup by parts finds, and how often it reads.
fn found_by_parts(plan: &MapPlan, bytes: &[u8], key: &[u8]) -> Option<(Option<Value>, usize)> {
    let mut reads = 0;
    let read = |offset: u64, into: &mut [u8]| -> Result<(), ()> {
        reads += 1;
        into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
        Ok(())
    };
    let found = look_up(plan, key, read)?.unwrap().unwrap();
    Some((found, reads))
}

#[test]
fn a_lookup_by_parts_wraps_and_refuses() {
    for plan in kinds(MapType::Hash, 8, 8, 3000) {
        let mut bytes = zeroed(&plan);
        let layout = hash_layout(&plan);
        // Keys that begin in the last slots, so that some go on in the first.
        let near_the_end = |key: &u64| {
            let slot = hash_of_key(&key.to_le_bytes()) & (layout.slots() - 1);
            slot >= layout.slots() - 4
        };
        let keys: Vec<u64> = (0u64..).filter(near_the_end).take(40).collect();
        // Slots behind its first one at which each key stands.
        let mut taken = BTreeSet::new();
        let mut steps = Vec::new();
        for key in &keys {
            let first = hash_of_key(&key.to_le_bytes());
            let free = |step: &u64| taken.insert(first.wrapping_add(*step) & (layout.slots() - 1));
            steps.extend((0u64..).find(free));
            put(
                &plan,
                &mut bytes,
                &key.to_le_bytes(),
                &(key * 3).to_le_bytes(),
            );
        }
        // The first 1,024 bytes are read at once, in two parts as they wrap, and the rest if need
        // be.
        let near = 1024 / layout.slot_stride();
        assert!(steps.iter().any(|step| *step >= 32));
        for (key, step) in keys.iter().zip(&steps) {
            let found = found_by_parts(&plan, &bytes, &key.to_le_bytes()).unwrap();
            let value = Value::One((key * 3).to_le_bytes().to_vec());
            assert_eq!(found, (Some(value), 2 + usize::from(*step >= near)));
        }
        assert_eq!(found_by_parts(&plan, &bytes, &[0xff; 8]).unwrap().0, None);
        let read = |_: u64, _: &mut [u8]| -> Result<(), ()> { panic!("nothing is to be read") };
        let error = look_up(&plan, &[0; 7], read).unwrap().unwrap().unwrap_err();
        assert_eq!(error.errno(), EINVAL);
        assert_eq!(look_up(&plan, &[0; 8], |_, _| Err(7)).unwrap(), Err(7));
    }
}

fn hash_layout(plan: &MapPlan) -> HashLayout {
    match plan.layout {
        MapLayout::Hash(layout) => layout,
        other => panic!("{other:?}"),
    }
}

fn lru_layout(plan: &MapPlan) -> LruLayout {
    match plan.layout {
        MapLayout::Lru(layout) => layout,
        other => panic!("{other:?}"),
    }
}

/// Keys with their first copy, after a check that keys are there once, and that they are found.
fn entries(plan: &MapPlan, bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let view = MapView::new(plan, bytes).unwrap();
    let mut map = BTreeMap::new();
    for Entry { key, value } in view.entries() {
        assert_eq!(view.lookup(&key).unwrap(), Some(value.clone()));
        let first = match value {
            Value::One(value) => value,
            Value::PerSm(values) => {
                assert!(values.iter().all(|v| *v == values[0]), "{values:?}");
                values[0].clone()
            }
            Value::PerThread(_) => panic!("{value:?}"),
        };
        assert!(map.insert(key, first).is_none());
    }
    map
}

#[test]
fn a_map_that_used_up_its_nodes_is_compacted_on_update() {
    // With homes, dense, and with values too large for that.
    let small = kinds(MapType::Hash, 8, 8, 2);
    let large = kinds(MapType::Hash, 8, 80, 2);
    for (plan, value_size) in small.iter().map(|p| (p, 8)).chain([(&large[0], 80)]) {
        let layout = hash_layout(plan);
        assert_eq!(layout.homes(), value_size == 8 && !layout.dense);
        let mut bytes = zeroed(plan);
        bytes[HashLayout::COUNT_FULL as usize] = 3;
        bytes[HashLayout::COUNT_BUSY as usize] = 4;
        let (mut compactions, mut wanted) = (0, false);
        for round in 0..3 * layout.slots().max(layout.nodes()) {
            let key = round.to_le_bytes();
            let mut value = vec![7; value_size as usize];
            value[..8].copy_from_slice(&(!round).to_le_bytes());
            wanted |= hash::wants_compaction(&layout, &bytes);
            let writes = update(plan, &bytes, &key, &value, BPF_NOEXIST).unwrap();
            if writes.len() == 1 {
                assert!(wanted, "round {round}");
                (compactions, wanted) = (compactions + 1, false);
            }
            apply(&mut bytes, &writes);
            if round > 0 {
                let writes = delete(plan, &bytes, &(round - 1).to_le_bytes()).unwrap();
                apply(&mut bytes, &writes);
            }
            let all: Vec<Entry> = MapView::new(plan, &bytes).unwrap().entries().collect();
            let value = Value::One(value);
            let key = key.to_vec();
            assert_eq!(all, [Entry { key, value }]);
        }
        assert!(compactions >= 2, "{compactions}");
        let counters = Counters {
            full: 3,
            busy: 4,
            ..Counters::default()
        };
        assert_eq!(MapView::new(plan, &bytes).unwrap().counters(), counters);
        assert_eq!(
            hash::compact("m", &layout, &bytes[1..])
                .unwrap_err()
                .to_string(),
            format!(
                "map `m`: the snapshot has {} bytes but the layout has {}",
                bytes.len() - 1,
                bytes.len()
            )
        );
    }
}

#[test]
fn a_full_hash_says_so() {
    let all = [MapType::Hash, MapType::GpuHash].map(|map_type| kinds(map_type, 1, 1, 2));
    for plan in all.iter().flatten() {
        let mut bytes = zeroed(plan);
        put(plan, &mut bytes, &[7], &[7]);
        put(plan, &mut bytes, &[8], &[8]);
        let error = update(plan, &bytes, &[9], &[9], BPF_ANY).unwrap_err();
        assert_eq!(error.to_string(), "map `m`: no room: `max_entries` is 2");
        assert_eq!(error.errno(), E2BIG);
        let writes = update(plan, &bytes, &[7], &[1], BPF_EXIST).unwrap();
        apply(&mut bytes, &writes);
        let view = MapView::new(plan, &bytes).unwrap();
        assert_eq!(view.lookup(&[7]).unwrap(), Some(Value::One(vec![1])));
        assert_eq!(view.lookup(&[9]).unwrap(), None);
    }
}

#[test]
fn flags_are_linuxs() {
    for map_type in [
        MapType::Hash,
        MapType::PercpuHash,
        MapType::LruHash,
        MapType::LruPercpuHash,
    ] {
        let plans = match map_type {
            MapType::Hash => kinds(map_type, 4, 4, 4),
            _ => vec![make(map_type, 4, 4, 4, 1)],
        };
        for plan in &plans {
            let mut bytes = zeroed(plan);
            let (key, value) = ([1; 4], [2; 4]);
            let refusal = |bytes: &[u8], flags| {
                let error = update(plan, bytes, &key, &value, flags).unwrap_err();
                (error.errno(), error.to_string())
            };
            let invalid = format!(
                "map `m`: an update with flags 0x3 is not possible on type {}",
                map_type.name()
            );
            let missing = "map `m`: no such key".to_owned();
            assert_eq!(refusal(&bytes, BPF_EXIST), (ENOENT, missing.clone()));
            assert_eq!(refusal(&bytes, 3), (EINVAL, invalid.clone()));
            let error = delete(plan, &bytes, &key).unwrap_err();
            assert_eq!((error.errno(), error.to_string()), (ENOENT, missing));
            put(plan, &mut bytes, &key, &value);
            let exists = "map `m`: the key exists".to_owned();
            assert_eq!(refusal(&bytes, BPF_NOEXIST), (EEXIST, exists));
            assert_eq!(refusal(&bytes, 3), (EINVAL, invalid));
        }
    }
}

#[test]
fn per_sm_values_stay_apart() {
    for map_type in PER_SM {
        for sms in [1, 3] {
            let plan = make(map_type, 4, 4, 4, sms);
            let mut bytes = zeroed(&plan);
            let key = [9; 4];
            let all: Vec<u8> = (0..sms)
                .flat_map(|sm| u64::from(sm + 10).to_le_bytes())
                .collect();
            if sms > 1 {
                put(&plan, &mut bytes, &key, &all);
                let expected = (0..sms).map(|sm| (sm + 10).to_le_bytes().to_vec());
                let view = MapView::new(&plan, &bytes).unwrap();
                assert_eq!(
                    view.lookup(&key).unwrap(),
                    Some(Value::PerSm(expected.collect()))
                );
            }
            put(&plan, &mut bytes, &key, &[1, 2, 3, 4]);
            let view = MapView::new(&plan, &bytes).unwrap();
            let expected = vec![vec![1, 2, 3, 4]; sms as usize];
            assert_eq!(view.lookup(&key).unwrap(), Some(Value::PerSm(expected)));
            let error = update(&plan, &bytes, &key, &[1, 2, 3], BPF_ANY).unwrap_err();
            let needed = if sms == 1 { 4 } else { sms * 8 };
            assert_eq!(
                error.to_string(),
                format!("map `m`: the value has 3 bytes but {needed} are needed")
            );
            assert_eq!(error.errno(), EINVAL);
        }
    }
}

#[test]
fn keys_that_collide_beyond_the_probe_are_busy() {
    for plan in &kinds(MapType::Hash, 4, 4, 200) {
        let layout = hash_layout(plan);
        let first = |key: u32| hash_of_key(&key.to_le_bytes()) & (layout.slots() - 1);
        let mut bytes = zeroed(plan);
        let colliding: Vec<u32> = (0..).filter(|key| first(*key) == 5).take(129).collect();
        for key in &colliding[..128] {
            put(plan, &mut bytes, &key.to_le_bytes(), &[1; 4]);
        }
        let last = colliding[128].to_le_bytes();
        let error = update(plan, &bytes, &last, &[1; 4], BPF_ANY).unwrap_err();
        assert_eq!(
            error.to_string(),
            "map `m`: more than 128 keys collide; raise `max_entries`"
        );
        assert_eq!(error.errno(), EBUSY);
        assert_eq!(entries(plan, &bytes).len(), 128);
    }
}

#[test]
fn torn_slots_are_left_out() {
    let plan = make(MapType::Hash, 4, 4, 4, 1);
    let layout = hash_layout(&plan);
    let mut bytes = zeroed(&plan);
    put(&plan, &mut bytes, &[1; 4], &[1; 4]);
    let free: Vec<usize> = (0..layout.slots())
        .map(|i| layout.slot(i) as usize)
        .filter(|at| bytes[*at..*at + 8] == [0; 8])
        .collect();
    // Slots copied after, nodes copied before the insert; nodes that cannot be; and one that is
    // only claimed.
    for (at, low) in free.iter().zip([2, 1, 0x3fff_fff0, HashLayout::CLAIMED]) {
        bytes[*at..*at + 8].copy_from_slice(&(77 << 32 | low).to_le_bytes());
    }
    assert_eq!(entries(&plan, &bytes).len(), 1);

    let plan = make(MapType::LruHash, 4, 4, 4, 1);
    let layout = lru_layout(&plan);
    let mut bytes = zeroed(&plan);
    put(&plan, &mut bytes, &[1; 4], &[1; 4]);
    let bucket = hash_of_key(&[1; 4]) & (layout.buckets() - 1);
    let at = layout.slot(bucket, 0) as usize;
    let slot: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
    // The key's slot in a bucket that is not the key's, and a node that cannot be.
    let other = layout.slot(bucket ^ 1, 0) as usize;
    bytes[other..other + 8].copy_from_slice(&slot);
    bytes[other + 8..other + 16].copy_from_slice(&LruLayout::NODE_MASK.to_le_bytes());
    assert_eq!(entries(&plan, &bytes).len(), 1);
}

#[test]
fn a_claim_that_was_not_made_good_is_no_obstacle() {
    // A kernel that was ended in the middle of an insert.
    for plan in &kinds(MapType::Hash, 4, 4, 4) {
        let layout = hash_layout(plan);
        let mut bytes = zeroed(plan);
        let hash = hash_of_key(&[1; 4]);
        let at = layout.slot(hash & (layout.slots() - 1)) as usize;
        let claim = match layout.dense {
            true => layout.dense_word(hash, 0) | HashLayout::MAKING,
            false => hash >> 32 << 32 | HashLayout::CLAIMED,
        };
        bytes[at..at + 8].copy_from_slice(&claim.to_le_bytes());
        assert_eq!(entries(plan, &bytes).len(), 0);
        put(plan, &mut bytes, &[1; 4], &[5; 4]);
        let expected = BTreeMap::from([(vec![1; 4], vec![5; 4])]);
        assert_eq!(entries(plan, &bytes), expected);
        let bytes = hash::compact("m", &layout, &bytes).unwrap();
        assert_eq!(entries(plan, &bytes), expected);
    }
}

/// Words that are no key's of this size, in a torn copy or a damaged one, are left out.
#[test]
fn dense_slots_that_no_key_can_have_are_left_out() {
    let plan = kinds(MapType::Hash, 4, 8, 4).swap_remove(1);
    let layout = hash_layout(&plan);
    let mut bytes = zeroed(&plan);
    put(&plan, &mut bytes, &[1; 4], &[1; 8]);
    let word = layout.dense_word(hash_of_key(&[1; 4]), 0);
    let place = hash_of_key(&[1; 4]) & (layout.slots() - 1);
    let mut set = |slot: u64, word: u64| {
        let at = layout.slot(slot & (layout.slots() - 1)) as usize;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    };
    // The key's word in a place that is not the key's, a rest that no key of four bytes has, and
    // states without a key.
    set(place + 1, word);
    set(place + 2, word | 1 << 63);
    set(place + 3, word & !HashLayout::OWNED);
    set(
        place + 4,
        layout.dense_word(hash_of_key(&[2; 4]), 0) | HashLayout::GONE,
    );
    assert_eq!(entries(&plan, &bytes).len(), 1);
    let mut n = 0;
    MapView::new(&plan, &bytes).unwrap().each(|key, value| {
        assert_eq!((key, value), (&[1; 4][..], &[1; 8][..]));
        n += 1;
    });
    assert_eq!(n, 1);
}

/// What must hold of an LRU map's memory.
fn check_lru(plan: &MapPlan, bytes: &[u8]) {
    let layout = lru_layout(plan);
    let u64_at =
        |at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
    let u32_at = |at: u64| u64_at(at & !7) >> ((at & 7) * 8) as u32 as u64;
    let mut nodes = BTreeSet::new();
    for bucket in 0..layout.buckets() {
        let words: Vec<u64> = (0..LruLayout::WAYS)
            .map(|way| u64_at(layout.slot(bucket, way)))
            .collect();
        // Laps fall by one at the hand and nowhere else.
        let laps: Vec<u64> = words
            .iter()
            .map(|w| (w & LruLayout::LAP_MASK) >> LruLayout::LAP_SHIFT)
            .collect();
        assert!(laps.is_sorted_by(|a, b| a >= b), "{laps:?}");
        assert!(laps[0] - laps[7] <= 1, "{laps:?}");
        nodes.extend(words.iter().filter_map(|w| layout.node_of(*w)));
    }
    let taken: BTreeSet<u64> = (0..layout.nodes())
        .filter(|n| u32_at(layout.taken_at() + n / 32 * 4) >> (n % 32) & 1 != 0)
        .collect();
    assert_eq!(nodes, taken);
    assert_eq!(u32_at(LruLayout::LIVE) as u32 as usize, nodes.len());
    assert!(nodes.len() <= layout.max_entries as usize);
}

#[test]
fn an_lru_map_drops_what_was_not_used() {
    for entries_wanted in [1, 3, 20, 200] {
        let plan = make(MapType::LruHash, 4, 8, entries_wanted, 1);
        let layout = lru_layout(&plan);
        let mut bytes = zeroed(&plan);
        for i in 0..4 * entries_wanted + 10 {
            put(&plan, &mut bytes, &i.to_le_bytes(), &[i as u8; 8]);
            check_lru(&plan, &bytes);
            let all = entries(&plan, &bytes);
            assert_eq!(all.len() as u32, (i + 1).min(entries_wanted));
            assert_eq!(all[&i.to_le_bytes().to_vec()], [i as u8; 8]);
            // Key 0 is overwritten all the time, so it stays.
            if entries_wanted > 2 {
                put(&plan, &mut bytes, &0u32.to_le_bytes(), &[i as u8; 8]);
                assert_eq!(entries(&plan, &bytes).len(), all.len());
            }
        }
        assert_eq!(layout.max_entries, entries_wanted);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Update(u8, u16, u64),
    Delete(u8),
    Compact,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..24u8, any::<u16>(), 0..3u64).prop_map(|(key, value, flags)| Op::Update(key, value, flags)),
        4 => (0..24u8).prop_map(Op::Delete),
        1 => Just(Op::Compact),
    ];
    proptest::collection::vec(op, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_hash_behaves_like_a_map(ops in ops(), sms in 1..4u32, large in any::<bool>(), wide in any::<bool>()) {
        let map_type = if sms == 1 { MapType::Hash } else { MapType::PercpuHash };
        let size = if large { 70 } else { 2 };
        let plan = match sms {
            1 => kinds(map_type, 3, size, 12).swap_remove(usize::from(wide && !large)),
            _ => make(map_type, 3, size, 12, sms),
        };
        let layout = hash_layout(&plan);
        let mut bytes = zeroed(&plan);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Update(key, value, flags) => {
                    let key = vec![key, 0, key];
                    let mut value = value.to_le_bytes().to_vec();
                    value.resize(size as usize, 1);
                    let there = model.contains_key(&key);
                    let expected = match flags {
                        BPF_NOEXIST if there => Err(EEXIST),
                        BPF_EXIST if !there => Err(ENOENT),
                        _ if !there && model.len() == 12 => Err(E2BIG),
                        _ => Ok(()),
                    };
                    let got = update(&plan, &bytes, &key, &value, flags);
                    prop_assert_eq!(got.as_ref().map(|_| ()).map_err(AccessError::errno), expected);
                    if let Ok(writes) = got {
                        apply(&mut bytes, &writes);
                        model.insert(key, value);
                    }
                }
                Op::Delete(key) => {
                    let key = vec![key, 0, key];
                    let got = delete(&plan, &bytes, &key);
                    prop_assert_eq!(got.is_ok(), model.remove(&key).is_some());
                    if let Ok(writes) = got {
                        apply(&mut bytes, &writes);
                    }
                }
                Op::Compact => bytes = hash::compact("m", &layout, &bytes).unwrap(),
            }
            prop_assert_eq!(&entries(&plan, &bytes), &model);
        }
        // What is read of it for one key is enough.
        let view = MapView::new(&plan, &bytes).unwrap();
        for key in 0..=40 {
            let key = [key, 0, key];
            match found_by_parts(&plan, &bytes, &key) {
                Some((found, reads)) => {
                    prop_assert_eq!(found, view.lookup(&key).unwrap());
                    prop_assert!(sms == 1 && reads <= 3, "{} reads", reads);
                }
                None => prop_assert!(sms > 1),
            }
        }
    }

    /// As a map, as long as it is not full; and never more than it may be.
    #[test]
    fn an_lru_hash_behaves_like_a_map(ops in ops(), sms in 1..4u32, max_entries in 1..30u32) {
        let map_type = if sms == 1 { MapType::LruHash } else { MapType::LruPercpuHash };
        let plan = make(map_type, 3, 2, max_entries, sms);
        let mut bytes = zeroed(&plan);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Update(key, value, flags) => {
                    let (key, value) = (vec![key, 0, key], value.to_le_bytes().to_vec());
                    let there = model.contains_key(&key);
                    let expected = match flags {
                        BPF_NOEXIST if there => Err(EEXIST),
                        BPF_EXIST if !there => Err(ENOENT),
                        _ => Ok(()),
                    };
                    let got = update(&plan, &bytes, &key, &value, flags);
                    prop_assert_eq!(got.as_ref().map(|_| ()).map_err(AccessError::errno), expected);
                    if let Ok(writes) = got {
                        apply(&mut bytes, &writes);
                        let full = model.len() == max_entries as usize;
                        model.insert(key.clone(), value);
                        let now = entries(&plan, &bytes);
                        // The model has no say in what is dropped: one other key at most, if there
                        // was no room.
                        let dropped: Vec<Vec<u8>> =
                            model.keys().filter(|k| !now.contains_key(*k)).cloned().collect();
                        prop_assert!(dropped.len() <= usize::from(full && !there), "{dropped:?}");
                        prop_assert!(!dropped.contains(&key));
                        for key in dropped {
                            model.remove(&key);
                        }
                    }
                }
                Op::Delete(key) => {
                    let key = vec![key, 0, key];
                    let got = delete(&plan, &bytes, &key);
                    prop_assert_eq!(got.is_ok(), model.remove(&key).is_some());
                    if let Ok(writes) = got {
                        apply(&mut bytes, &writes);
                    }
                }
                Op::Compact => {}
            }
            check_lru(&plan, &bytes);
            prop_assert_eq!(&entries(&plan, &bytes), &model);
        }
    }
}

/// Keys of all patterns spread over slots and buckets: those that differ in their upper bits only,
/// too.
#[test]
fn hashes_spread() {
    type Pattern = fn(u64) -> Vec<u8>;
    let patterns: [(&str, Pattern); 6] = [
        ("counted", |i| i.to_le_bytes().to_vec()),
        ("low bytes", |i| vec![i as u8, 0, i as u8, (i >> 8) as u8]),
        ("pages", |i| (i << 12 | 0x7f << 40).to_le_bytes().to_vec()),
        ("upper bits", |i| (i << 48).to_le_bytes().to_vec()),
        ("twice", |i| (i | i << 32).to_le_bytes().to_vec()),
        ("two words", |i| {
            [i % 32, i / 32]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect()
        }),
    ];
    for (name, pattern) in patterns {
        let mut buckets = vec![0; 1024];
        for i in 0..2048 {
            buckets[(hash_of_key(&pattern(i)) & 1023) as usize] += 1;
        }
        let most = buckets.iter().max().copied();
        let empty = buckets.iter().filter(|n| **n == 0).count();
        // Of a random function: 1024 / e^2 = 139 empty ones, and no more than 10 in one.
        assert!(
            most <= Some(11) && (90..190).contains(&empty),
            "{name}: {most:?}, {empty}"
        );
    }
}
