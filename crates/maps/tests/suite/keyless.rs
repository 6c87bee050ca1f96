//! Queues, stacks and bloom filters from the host, against models; maps of maps; what is refused.

use std::collections::{BTreeSet, VecDeque};

use crate::common;
use proptest::prelude::*;
use warpbpf_abi::layout::{BloomLayout, MapLayout, QueueLayout, RingLayout, inner};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, MapType};
use warpbpf_maps::{
    AccessError, Counters, MapError, MapPlan, MapView, Placement, SumUse, Value, Write, delete,
    inner as of_maps, plan, pop, update,
};
use warpbpf_object::{InitialEntry, InitialValue, MapDef};

fn def(map_type: MapType, key_size: u32, value_size: u32, max_entries: u32) -> MapDef {
    common::def(map_type as u32, key_size, value_size, max_entries)
}

fn planned(def: &MapDef) -> MapPlan {
    plan(def, 4, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(def: &MapDef) -> MapError {
    plan(def, 4, &[]).expect_err("an error")
}

fn apply(bytes: &mut [u8], writes: &[Write]) {
    for write in writes {
        let at = write.offset as usize;
        bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
    }
}

fn shown(plan: &MapPlan, bytes: &[u8]) -> Vec<Vec<u8>> {
    let view = MapView::new(plan, bytes).expect("a view");
    view.entries()
        .map(|entry| {
            assert!(entry.key.is_empty());
            match entry.value {
                Value::One(value) => value,
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lists_are_their_models(
        lifo in any::<bool>(),
        entries in 1u32..6,
        size in 1u32..20,
        ops in proptest::collection::vec((0u8..5, any::<u8>()), 0..60),
    ) {
        let map_type = if lifo { MapType::Stack } else { MapType::Queue };
        let plan = planned(&def(map_type, 0, size, entries));
        let mut bytes = vec![0; plan.bytes() as usize];
        // The next value is at the front.
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (op, fill) in ops {
            if op < 3 {
                let value = vec![fill; size as usize];
                let flags = if op == 0 { BPF_EXIST } else { BPF_ANY };
                let full = model.len() == entries as usize;
                let done = update(&plan, &bytes, &[], &value, flags);
                if full && (lifo || flags == BPF_ANY) {
                    let error = done.expect_err("it is full");
                    prop_assert_eq!(error.errno(), -7);
                    continue;
                }
                apply(&mut bytes, &done.expect("room"));
                if full {
                    model.pop_front();
                }
                if lifo {
                    model.push_front(value);
                } else {
                    model.push_back(value);
                }
            } else {
                match pop(&plan, &bytes) {
                    Ok((value, writes)) => {
                        prop_assert_eq!(Some(value), model.pop_front());
                        apply(&mut bytes, &writes);
                    }
                    Err(error) => {
                        prop_assert!(model.is_empty());
                        prop_assert_eq!(&error, &AccessError::Empty { map: "m".into() });
                        prop_assert_eq!(error.errno(), -2);
                    }
                }
            }
            prop_assert_eq!(shown(&plan, &bytes), model.iter().cloned().collect::<Vec<_>>());
            let peeked = MapView::new(&plan, &bytes).expect("a view").lookup(&[]).expect("a peek");
            prop_assert_eq!(peeked, model.front().cloned().map(Value::One));
        }
    }

    #[test]
    fn a_bloom_filter_has_what_was_put_in(
        values in proptest::collection::vec(any::<[u8; 5]>(), 0..40),
        hashes in 0u64..16,
    ) {
        let mut def = def(MapType::BloomFilter, 0, 5, 50);
        def.extra.insert("map_extra".to_owned(), hashes);
        let plan = planned(&def);
        let mut bytes = vec![0; plan.bytes() as usize];
        for value in &values {
            let writes = update(&plan, &bytes, &[], value, BPF_ANY).expect("a push");
            apply(&mut bytes, &writes);
        }
        let view = MapView::new(&plan, &bytes).expect("a view");
        for value in &values {
            prop_assert_eq!(view.contains(value), Ok(true));
        }
        if values.is_empty() {
            prop_assert_eq!(view.contains(&[0; 5]), Ok(false));
        }
    }
}

#[test]
fn values_that_differ_in_their_upper_bits_have_other_places() {
    for value_size in [8, 16] {
        let layout = BloomLayout {
            max_entries: 1000,
            value_size,
            hashes: 5,
        };
        let places = |high: u64| {
            let mut value = vec![0; value_size as usize];
            value[value_size as usize - 8..].copy_from_slice(&high.to_le_bytes());
            let mut places: Vec<u32> = layout.places(&value).collect();
            places.sort_unstable();
            places
        };
        let all: BTreeSet<Vec<u32>> = (0..1 << 12).map(|high| places(high << 52)).collect();
        assert_eq!(all.len(), 1 << 12, "values of {value_size} bytes");
    }
}

#[test]
fn sizes_are_those_of_linux() {
    let bits = |max_entries, hashes| {
        BloomLayout {
            max_entries,
            value_size: 4,
            hashes,
        }
        .bits()
    };
    assert_eq!(bits(1, 1), 64);
    assert_eq!(bits(100, 5), 1024);
    assert_eq!(bits(1000, 5), 8192);
    assert_eq!(bits(u32::MAX, 15), 1 << 32);
    assert_eq!(
        planned(&def(MapType::BloomFilter, 0, 4, 100)).layout,
        MapLayout::Bloom(BloomLayout {
            max_entries: 100,
            value_size: 4,
            hashes: 5
        })
    );
    assert_eq!(
        planned(&def(MapType::PerfEventArray, 4, 4, 0)).layout,
        MapLayout::Ring(RingLayout {
            shards: 4,
            shard_bytes: 1 << 20,
            wait_us: 0,
        })
    );
    assert_eq!(RingLayout::events(132).shard_bytes, 1 << 20);
    assert_eq!(RingLayout::events(300).shard_bytes, 512 << 10);
    assert_eq!(RingLayout::events(100_000).shard_bytes, 64 << 10);
}

#[test]
fn node_numbers_fit_into_a_cell() {
    for max_entries in (0..30).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
        let layout = QueueLayout {
            max_entries,
            value_size: 8,
            lifo: false,
        };
        assert!(u64::from(max_entries) <= layout.node_mask());
        assert_eq!(layout.cycle(0), layout.cells());
        assert_eq!(layout.cycle(layout.cells() * 3 + 1), layout.cells() * 4);
    }
}

#[test]
fn what_a_list_does_not_do() {
    let plan = planned(&def(MapType::Queue, 0, 8, 2));
    let bytes = vec![0; plan.bytes() as usize];
    let told = |error: AccessError| error.to_string();
    assert_eq!(
        told(update(&plan, &bytes, &[], &[0; 8], BPF_NOEXIST).expect_err("flags")),
        "map `m`: a push with flags 0x1 is not possible on type queue"
    );
    assert_eq!(
        told(update(&plan, &bytes, &[1], &[0; 8], BPF_ANY).expect_err("a key")),
        "map `m`: the key has 1 bytes but `key_size` is 0"
    );
    assert_eq!(
        told(update(&plan, &bytes, &[], &[0; 7], BPF_ANY).expect_err("a size")),
        "map `m`: the value has 7 bytes but 8 are needed"
    );
    assert_eq!(
        told(delete(&plan, &bytes, &[]).expect_err("no keys")),
        "map `m`: a delete is not possible on type queue"
    );
    assert_eq!(
        told(pop(&plan, &bytes).expect_err("empty")),
        "map `m`: it is empty"
    );
    let filter = planned(&def(MapType::BloomFilter, 0, 8, 2));
    let bits = vec![0; filter.bytes() as usize];
    assert_eq!(
        told(pop(&filter, &bits).expect_err("no pop")),
        "map `m`: a pop is not possible on type bloom_filter"
    );
    assert_eq!(
        told(update(&filter, &bits, &[], &[0; 8], BPF_EXIST).expect_err("flags")),
        "map `m`: a push with flags 0x2 is not possible on type bloom_filter"
    );
    let view = MapView::new(&filter, &bits).expect("a view");
    assert_eq!(
        told(view.lookup(&[]).expect_err("no lookup")),
        "map `m`: a lookup is not possible on type bloom_filter"
    );
    assert_eq!(view.counters(), Counters::default());
}

#[test]
fn the_bitmap_of_spare_nodes_is_used() {
    let plan = planned(&def(MapType::Queue, 0, 8, 2));
    let MapLayout::Queue(layout) = plan.layout else {
        panic!("a queue")
    };
    let mut bytes = vec![0; plan.bytes() as usize];
    let put = |bytes: &mut [u8], at: u64, value: u32| {
        bytes[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    };
    put(&mut bytes, QueueLayout::NEXT_NODE, 2);
    put(&mut bytes, QueueLayout::SPARES, 1);
    put(&mut bytes, layout.spare_at(), 0b10);
    let writes = update(&plan, &bytes, &[], &[5; 8], BPF_ANY).expect("the spare node");
    apply(&mut bytes, &writes);
    assert_eq!(shown(&plan, &bytes), [vec![5; 8]]);
    assert_eq!(bytes[layout.node(1) as usize], 5);
    let full = update(&plan, &bytes, &[], &[6; 8], BPF_ANY).expect_err("full");
    assert_eq!(full.to_string(), "map `m`: no room: `max_entries` is 2");
}

#[test]
fn definitions_that_are_refused() {
    let told = |def: &MapDef| refused(def).to_string();
    assert_eq!(
        told(&def(MapType::Queue, 4, 8, 2)),
        "map `m`: `key_size` is 4 but type queue needs 0 (it has no keys)"
    );
    assert_eq!(
        told(&def(MapType::Stack, 0, 0, 2)),
        "map `m`: `value_size` is 0 but type stack needs at least 1"
    );
    assert_eq!(
        told(&def(MapType::BloomFilter, 0, 8, 0)),
        "map `m`: `max_entries` is 0 but type bloom_filter needs at least 1"
    );
    let mut filter = def(MapType::BloomFilter, 0, 8, 1);
    filter.extra.insert("map_extra".to_owned(), 16);
    assert_eq!(
        told(&filter),
        "map `m`: `map_extra` is 16 but a bloom filter has 1 to 15 hash functions there, or 0 for 5"
    );
    assert!(told(&def(MapType::Queue, 0, 1 << 20, 1 << 20)).contains("lower `max_entries`"));
    assert_eq!(
        told(&def(MapType::PerfEventArray, 8, 4, 0)),
        "map `m`: `key_size` is 8 but type perf_event_array needs 4, or none"
    );
    assert!(plan(&def(MapType::GpuRingbuf, 4, 100, 16), 4, &[]).is_ok());
}

#[test]
fn arrays_of_bpftime_have_one_copy() {
    let adds = SumUse {
        adds: [warpbpf_abi::layout::SumField { offset: 0, size: 8 }].into(),
        not_summable: None,
        more_than_adds: false,
        on_cpu: false,
    };
    let shards = |map_type| match plan(&def(map_type, 4, 8, 3), 4, std::slice::from_ref(&adds)) {
        Ok(MapPlan {
            layout: MapLayout::Array(layout),
            ..
        }) => layout.shards,
        other => panic!("{other:?}"),
    };
    assert_eq!(shards(MapType::Array), 4);
    for (map_type, placement) in [
        (MapType::GpuArray, Placement::Device),
        (MapType::GpuKernelArray, Placement::Host),
        (MapType::GpuHostArray, Placement::Host),
    ] {
        assert_eq!(shards(map_type), 1);
        assert_eq!(planned(&def(map_type, 4, 8, 3)).placement, placement);
    }
    let per_thread = def(MapType::PerThreadHostArray, 4, 8, 1);
    assert_eq!(planned(&per_thread).placement, Placement::Host);
    assert!(matches!(
        planned(&per_thread).layout,
        MapLayout::PerThread(_)
    ));
}

fn outer(map_type: MapType, values: &[u32]) -> MapDef {
    MapDef {
        inner: Some(Box::new(def(MapType::Array, 4, 8, 2))),
        initial: values
            .iter()
            .zip(1..)
            .map(|(map, index)| InitialEntry {
                index,
                value: InitialValue::Map(*map),
            })
            .collect(),
        ..def(map_type, 4, 4, 4)
    }
}

#[test]
fn maps_of_maps_name_maps() {
    for map_type in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let plan = planned(&outer(map_type, &[7, 9]));
        let mut bytes = vec![0; plan.bytes() as usize];
        apply(&mut bytes, &plan.image);
        let key = |key: u32| key.to_le_bytes();
        let find = |bytes: &[u8], key: u32| {
            let view = MapView::new(&plan, bytes).expect("a view");
            view.lookup(&key.to_le_bytes()).expect("a lookup")
        };
        let number = |n: u32| Some(Value::One(n.to_le_bytes().to_vec()));
        assert_eq!(find(&bytes, 0), None);
        assert_eq!(find(&bytes, 1), number(8));
        assert_eq!(find(&bytes, 2), number(10));
        let all = MapView::new(&plan, &bytes)
            .expect("a view")
            .entries()
            .count();
        assert_eq!(all, 2);
        // The addresses come later, of those that there are.
        let writes = of_maps::resolve(&plan, |map| (map == 7).then_some(0x1234_5678_9abc));
        assert_eq!(writes.iter().map(|w| w.bytes.len()).sum::<usize>() % 8, 0);
        apply(&mut bytes, &writes);
        let has = |address: u64| bytes.windows(8).any(|w| w == address.to_le_bytes());
        assert!(has(0x1234_5678_9abc));
        assert_eq!(find(&bytes, 1), number(8));
        assert_eq!(find(&bytes, 2), number(10));
        // From the host before a start.
        let writes = update(&plan, &bytes, &key(0), &3u32.to_le_bytes(), BPF_ANY).expect("room");
        apply(&mut bytes, &writes);
        assert_eq!(find(&bytes, 0), number(3));
    }
    assert_eq!(inner::VALUE, 16);
}

#[test]
fn maps_of_maps_that_are_refused() {
    let told = |def: &MapDef| refused(def).to_string();
    let mut bare = outer(MapType::ArrayOfMaps, &[]);
    bare.inner = None;
    assert_eq!(
        told(&bare),
        "map `m`: its definition does not say what the maps in it are like; declare `__array(values, struct { … })`"
    );
    let mut wide = outer(MapType::ArrayOfMaps, &[]);
    wide.value_size = 8;
    assert_eq!(
        told(&wide),
        "map `m`: `value_size` is 8 but a value names a map in 4 bytes"
    );
    let mut perf = outer(MapType::HashOfMaps, &[]);
    perf.inner = Some(Box::new(def(MapType::PerfEventArray, 4, 4, 0)));
    assert!(told(&perf).starts_with(
        "map `m`: maps of type perf_event_array cannot be in it; possible are array, "
    ));
    let beyond = MapDef {
        max_entries: 1,
        ..outer(MapType::ArrayOfMaps, &[7])
    };
    assert_eq!(
        told(&beyond),
        "map `m`: the initial value of key 1: map `m`: the key is not below `max_entries`, 1"
    );
    let mut program = outer(MapType::ArrayOfMaps, &[7]);
    program.initial[0].value = InitialValue::Program("f".to_owned());
    assert_eq!(
        told(&program),
        "map `m`: the initial value of key 1 is no map"
    );
}

#[test]
fn maps_in_a_map_are_alike() {
    let outer = MapDef {
        name: "outer".to_owned(),
        ..outer(MapType::ArrayOfMaps, &[1])
    };
    let good = def(MapType::Array, 4, 8, 2);
    let mut defs = vec![outer, good.clone()];
    assert_eq!(of_maps::check_all(&defs), Ok(()));
    assert_eq!(of_maps::outer_of(&defs, 1), Some("outer"));
    defs[1].max_entries = 3;
    assert_eq!(
        of_maps::check_all(&defs)
            .expect_err("a mismatch")
            .to_string(),
        "map `m` cannot be in `outer`: its `max_entries` is 3 but `outer` declares 2; make them equal"
    );
    assert_eq!(of_maps::outer_of(&defs, 1), None);
    for (what, change) in [
        (
            "type",
            MapDef {
                map_type: 1,
                ..good.clone()
            },
        ),
        (
            "key_size",
            MapDef {
                key_size: 8,
                ..good.clone()
            },
        ),
        (
            "value_size",
            MapDef {
                value_size: 4,
                ..good.clone()
            },
        ),
        ("map_flags", MapDef { flags: 128, ..good }),
    ] {
        defs[1] = change;
        let error = of_maps::check_all(&defs)
            .expect_err("a mismatch")
            .to_string();
        assert!(error.contains(&format!("its `{what}` is")), "{error}");
    }
}
