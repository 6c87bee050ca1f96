//! Definitions: what is accepted, how it is laid out, and each message of refusal.

use std::collections::BTreeSet;

use crate::common::def;
use warpbpf_abi::layout::{
    ArrayLayout, HashLayout, LruLayout, MapLayout, PerThreadLayout, RingLayout, SumField,
};
use warpbpf_abi::maps::MapType;
use warpbpf_maps::{Hardware, MAX_BYTES, MapError, SumUse, Write, plan, plan_on};
use warpbpf_object::{InitialEntry, InitialValue, MapDef, MapKind};

fn data(image: Vec<u8>, read_only: bool) -> MapDef {
    let mut def = def(2, 4, image.len() as u32, 1);
    def.kind = MapKind::Data {
        section: ".data".to_owned(),
        image,
        read_only,
    };
    def
}

fn adds(fields: &[(u32, u32)]) -> SumUse {
    SumUse {
        adds: fields
            .iter()
            .map(|&(offset, size)| SumField { offset, size })
            .collect(),
        not_summable: None,
        more_than_adds: false,
        on_cpu: false,
    }
}

fn message(def: &MapDef) -> String {
    plan(def, 132, &[]).unwrap_err().to_string()
}

#[test]
fn each_type_gets_its_layout() {
    let array = ArrayLayout {
        max_entries: 10,
        value_size: 12,
        shards: 1,
        summed: false,
    };
    assert_eq!(
        plan(&def(2, 4, 12, 10), 132, &[]).unwrap().layout,
        MapLayout::Array(array)
    );
    let percpu = ArrayLayout {
        shards: 132,
        ..array
    };
    assert_eq!(
        plan(&def(6, 4, 12, 10), 132, &[]).unwrap().layout,
        MapLayout::Array(percpu)
    );
    let hash = HashLayout {
        dense: false,
        max_entries: 10,
        key_size: 6,
        value_size: 12,
        copies: 1,
    };
    for map_type in [1, 1501] {
        assert_eq!(
            plan(&def(map_type, 6, 12, 10), 132, &[]).unwrap().layout,
            MapLayout::Hash(hash)
        );
    }
    let copies = 132;
    assert_eq!(
        plan(&def(5, 6, 12, 10), 132, &[]).unwrap().layout,
        MapLayout::Hash(HashLayout { copies, ..hash })
    );
    // Dense slots want 128-bit atomics, and at most 8 bytes of key and value.
    let dense = |map_type, key_size, value_size, capability| {
        let hardware = Hardware::new(132, capability);
        let def = def(map_type, key_size, value_size, 10);
        match plan_on(&def, hardware, &[]).unwrap().layout {
            MapLayout::Hash(layout) => layout.dense,
            other => panic!("{other:?}"),
        }
    };
    for (capability, has) in [
        ((7, 5), false),
        ((8, 9), false),
        ((9, 0), true),
        ((12, 0), true),
    ] {
        assert_eq!(dense(1, 8, 8, capability), has);
        assert_eq!(dense(1501, 1, 1, capability), has);
    }
    for (map_type, key_size, value_size) in [(1, 9, 8), (1, 8, 9), (5, 8, 8)] {
        assert!(!dense(map_type, key_size, value_size, (9, 0)));
    }
    let lru = LruLayout {
        max_entries: 10,
        key_size: 6,
        value_size: 12,
        copies: 1,
    };
    assert_eq!(
        plan(&def(9, 6, 12, 10), 132, &[]).unwrap().layout,
        MapLayout::Lru(lru)
    );
    assert_eq!(
        plan(&def(10, 6, 12, 10), 132, &[]).unwrap().layout,
        MapLayout::Lru(LruLayout { copies, ..lru })
    );
    let ring = RingLayout::new(1 << 20, 132);
    assert_eq!(
        plan(&def(27, 0, 0, 1 << 20), 132, &[]).unwrap().layout,
        MapLayout::Ring(ring)
    );
    // A record type is the tools' business.
    assert_eq!(
        plan(&def(27, 0, 24, 1 << 20), 132, &[]).unwrap().value_size,
        24
    );
    let mut per_thread = def(1502, 4, 8, 2);
    let layout = PerThreadLayout {
        max_entries: 2,
        value_size: 8,
        threads: 1 << 20,
    };
    assert_eq!(
        plan(&per_thread, 132, &[]).unwrap().layout,
        MapLayout::PerThread(layout)
    );
    per_thread.extra.insert("map_extra".to_owned(), 77);
    let layout = PerThreadLayout {
        threads: 77,
        ..layout
    };
    assert_eq!(
        plan(&per_thread, 132, &[]).unwrap().layout,
        MapLayout::PerThread(layout)
    );
}

#[test]
fn an_array_that_is_only_added_to_is_sharded() {
    let plan = plan(
        &def(2, 4, 16, 4),
        132,
        &[adds(&[(0, 8)]), adds(&[(8, 4), (12, 4)]), adds(&[])],
    )
    .unwrap();
    let layout = ArrayLayout {
        max_entries: 4,
        value_size: 16,
        shards: 132,
        summed: true,
    };
    assert_eq!(plan.layout, MapLayout::Array(layout));
    assert_eq!(plan.bytes(), 132 * 128);
    let fields: BTreeSet<_> = plan.sum_fields.into_iter().collect();
    assert_eq!(fields, adds(&[(0, 8), (8, 4), (12, 4)]).adds);
    assert_eq!(plan.not_summed, None);
}

#[test]
fn one_reader_keeps_an_array_in_one_copy() {
    let reader = SumUse {
        not_summable: Some("`entry` reads it".to_owned()),
        ..adds(&[(0, 8)])
    };
    let cases = [
        (
            def(2, 4, 8, 4),
            vec![adds(&[(0, 8)]), reader],
            "`entry` reads it",
        ),
        (
            def(2, 4, 8, 4),
            vec![adds(&[(0, 8), (4, 4)])],
            "adds of different sizes overlap at offset 4",
        ),
        (
            def(2, 4, 8, 4),
            vec![adds(&[(4, 8)])],
            "an add of 8 bytes at offset 4 does not fit the value of 8 bytes",
        ),
        (
            data(vec![0; 8], true),
            vec![adds(&[(0, 8)])],
            "the map is read-only",
        ),
        (
            def(2, 4, 8, 1 << 20),
            vec![adds(&[(0, 8)])],
            "a copy for each of 132 multiprocessors would take more than 67108864 bytes",
        ),
    ];
    for (def, uses, why) in cases {
        let plan = plan(&def, 132, &uses).unwrap();
        let MapLayout::Array(layout) = plan.layout else {
            panic!("{:?}", plan.layout)
        };
        assert_eq!((layout.shards, layout.summed), (1, false), "{why}");
        assert_eq!(plan.not_summed.as_deref(), Some(why));
        assert!(plan.sum_fields.is_empty());
    }
}

#[test]
fn data_sections_are_arrays_with_an_image() {
    let rodata = plan(&data(b"hello".to_vec(), true), 4, &[]).unwrap();
    assert!(rodata.read_only);
    assert_eq!(
        (rodata.key_size, rodata.value_size, rodata.max_entries),
        (4, 5, 1)
    );
    assert_eq!(
        rodata.image,
        [Write {
            offset: 0,
            bytes: b"hello".to_vec()
        }]
    );
    assert!(
        plan(&data(vec![0; 16], false), 4, &[])
            .unwrap()
            .image
            .is_empty()
    );
    // An empty section is still a map that code may name.
    assert_eq!(plan(&data(Vec::new(), false), 4, &[]).unwrap().bytes(), 128);
    // Counters in .bss are counters.
    let bss = plan(&data(vec![0; 16], false), 4, &[adds(&[(8, 8)])]).unwrap();
    assert_eq!(bss.bytes(), 4 * 128);
}

#[test]
fn harmless_attributes_pass() {
    let mut array = def(2, 4, 8, 1);
    array.flags = 1 << 10 | 1 << 7 | 1 << 2;
    array.extra.insert("numa_node".to_owned(), 1);
    array.extra.insert("pinning".to_owned(), 0);
    assert!(plan(&array, 1, &[]).unwrap().read_only);
    let mut hash = def(1, 4, 8, 1);
    hash.flags = 1;
    assert_eq!(plan(&hash, 1, &[]).unwrap().map_type, MapType::Hash);
    let mut lru = def(9, 4, 8, 1);
    lru.flags = 1 << 1;
    assert_eq!(plan(&lru, 1, &[]).unwrap().map_type, MapType::LruHash);
}

#[test]
fn refusals_name_the_attribute() {
    let unknown = message(&def(99, 4, 4, 4));
    assert!(
        unknown
            .starts_with("map `m`: type 99 is not served; served are hash (1), percpu_hash (5), ")
    );
    assert_eq!(
        message(&def(3, 4, 4, 4)),
        "map `m`: Linux's type prog_array (3) is not served: there are no tail calls: make the programs functions of \
         one program, or attach them one beside the other"
    );
    assert_eq!(
        message(&def(2, 8, 4, 4)),
        "map `m`: `key_size` is 8 but type array needs 4 (an index)"
    );
    assert_eq!(
        message(&def(6, 4, 0, 4)),
        "map `m`: `value_size` is 0 but type percpu_array needs at least 1"
    );
    assert_eq!(
        message(&def(1502, 4, 8, 0)),
        "map `m`: `max_entries` is 0 but type per_thread_array needs at least 1"
    );
    assert_eq!(
        message(&def(1, 0, 8, 1)),
        "map `m`: `key_size` is 0 but type hash needs 1 to 512"
    );
    assert_eq!(
        message(&def(1, 513, 8, 1)),
        "map `m`: `key_size` is 513 but type hash needs 1 to 512"
    );
    assert_eq!(
        message(&def(27, 0, 0, 0)),
        "map `m`: `max_entries` is 0 but type ringbuf needs at least 1"
    );
    assert_eq!(
        message(&def(27, 4, 0, 64)),
        "map `m`: `key_size` is 4 but type ringbuf needs none (0)"
    );
    let mut flags = def(1, 4, 4, 1);
    flags.flags = 1 << 7 | 1;
    assert_eq!(
        message(&flags),
        "map `m`: flags 0x80 are not served for type hash; remove them from `map_flags`"
    );
    let mut pinned = def(1, 4, 4, 1);
    pinned.extra.insert("pinning".to_owned(), 1);
    assert_eq!(
        message(&pinned),
        "map `m`: attribute `pinning` = 1 is not served for type hash; remove it"
    );
    let mut filled = def(2, 4, 4, 1);
    filled.initial.push(InitialEntry {
        index: 0,
        value: InitialValue::Map(1),
    });
    assert_eq!(
        message(&filled),
        "map `m`: initial entries and inner maps are not served for type array; fill the map after loading"
    );
    let mut image = data(vec![0; 4], false);
    image.value_size = 5;
    assert_eq!(
        message(&image),
        "map `m`: the image has 4 bytes but the value has 5"
    );
}

#[test]
fn sizes_that_would_overflow_are_refused() {
    for map_type in [1, 2, 5, 6, 9, 10, 1501, 1502] {
        let mut huge = def(map_type, 4, u32::MAX, u32::MAX);
        huge.extra.insert(
            "map_extra".to_owned(),
            if map_type == 1502 { u64::MAX } else { 0 },
        );
        let error = plan(&huge, u32::MAX, &[]).unwrap_err();
        let MapError::TooLarge { bytes, limit, .. } = error else {
            panic!("{error}")
        };
        assert!(bytes > u128::from(limit), "{map_type}");
        assert_eq!(limit, MAX_BYTES);
    }
    assert_eq!(
        message(&def(1502, 4, 8, 4096)),
        "map `m`: `max_entries` 4096 x value of 8 bytes x 1048576 threads would take 34359738496 bytes of device \
         memory, more than the limit of 8589934592; set `map_extra` to the number of threads of the largest launch"
    );
    let ring = plan(&def(27, 0, 0, u32::MAX), 1, &[]).unwrap();
    assert_eq!(
        ring.layout,
        MapLayout::Ring(RingLayout {
            shards: 1,
            shard_bytes: 1 << 32,
            wait_us: 0,
        })
    );
}
