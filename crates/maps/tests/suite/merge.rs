//! Parts of one map in several contexts, seen as one.

use crate::common::def;
use warpbpf_abi::layout::SumField;
use warpbpf_abi::maps::MapType;
use warpbpf_maps::left::{Done, apply, is_silent, superseded};
use warpbpf_maps::{Entry, MapPlan, MapView, SumUse, Value, Write, merge, plan, update, words};

fn planned(map_type: MapType, value_size: u32, adds: &[(u32, u32)], more: bool) -> MapPlan {
    let fields = adds.iter().map(|&(offset, size)| SumField { offset, size });
    let uses = SumUse {
        adds: fields.collect(),
        not_summable: more.then(|| "a helper changes it".to_owned()),
        more_than_adds: false,
        on_cpu: false,
    };
    plan(&def(map_type as u32, 4, value_size, 4), 2, &[uses]).unwrap()
}

fn of_words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A part with these keys and values.
fn part(plan: &MapPlan, entries: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; plan.bytes() as usize];
    for (key, value) in entries {
        let writes = update(plan, &bytes, &key.to_le_bytes(), value, 0).unwrap();
        for Write { offset, bytes: new } in writes {
            bytes[offset as usize..offset as usize + new.len()].copy_from_slice(&new);
        }
    }
    bytes
}

fn shown(plan: &MapPlan, parts: &[Vec<u8>]) -> Vec<(u32, Value)> {
    let view = MapView::merged(plan, parts).unwrap();
    let entries: Vec<Entry> = view.entries().collect();
    let mut each = Vec::new();
    view.each(|key, value| each.push((key.to_vec(), Value::One(value.to_vec()))));
    let one = |entry: &&Entry| matches!(entry.value, Value::One(_));
    let ones: Vec<_> = entries.iter().filter(one).collect();
    assert_eq!(each.len(), ones.len());
    let key = |key: &[u8]| u32::from_le_bytes(key.try_into().unwrap());
    let mut all = Vec::new();
    for entry in &entries {
        assert_eq!(
            view.lookup(&entry.key).unwrap().as_ref(),
            Some(&entry.value)
        );
        all.push((key(&entry.key), entry.value.clone()));
    }
    all.sort_by_key(|(key, _)| *key);
    all
}

#[test]
fn what_is_added_to_is_summed_and_the_rest_is_the_first_that_says_something() {
    let plan = planned(MapType::Array, 12, &[(4, 4)], false);
    let parts = [
        Some(of_words(&[0, 0, 0])),
        None,
        Some(of_words(&[7, 3, 9])),
        Some(of_words(&[8, u32::MAX, 1])),
    ];
    assert_eq!(merge::flat(&plan, &parts), Some(of_words(&[7, 2, 9])));
    assert_eq!(merge::flat(&plan, &[None, None]), None);
    let given = merge::split(&plan, &of_words(&[1, 5, 2]), 3);
    let other = of_words(&[1, 0, 2]);
    assert_eq!(given, [of_words(&[1, 5, 2]), other.clone(), other]);
    let back: Vec<Option<Vec<u8>>> = given.into_iter().map(Some).collect();
    assert_eq!(merge::flat(&plan, &back), Some(of_words(&[1, 5, 2])));
}

#[test]
fn multiprocessors_stand_side_by_side() {
    let plan = planned(MapType::PercpuArray, 8, &[], false);
    let parts = [
        Some(of_words(&[1, 0, 2, 0])),
        None,
        Some(of_words(&[5, 0, 6, 0])),
    ];
    let all = of_words(&[1, 0, 2, 0, 0, 0, 0, 0, 5, 0, 6, 0]);
    assert_eq!(merge::flat(&plan, &parts), Some(all.clone()));
    let given = merge::split(&plan, &all, 3);
    assert_eq!(given[2], of_words(&[5, 0, 6, 0]));
    assert_eq!(
        merge::split(&plan, &of_words(&[9, 0]), 2),
        vec![of_words(&[9, 0]); 2]
    );
    // One device's values are for each, and those of contexts that are gone lead nowhere.
    let one = of_words(&[1, 0, 2, 0]);
    assert_eq!(merge::split(&plan, &one, 2), [one.clone(), one.clone()]);
    assert_eq!(merge::split(&plan, &all, 1), [one]);
    let parts = [
        part(&plan, &[(1, of_words(&[1, 0, 2, 0]))]),
        part(
            &plan,
            &[(1, of_words(&[5, 0, 6, 0])), (2, of_words(&[7, 0]))],
        ),
    ];
    let per_sm = |values: [u32; 4]| Value::PerSm(values.map(|v| of_words(&[v, 0])).to_vec());
    assert_eq!(
        shown(&plan, &parts),
        [
            (0, per_sm([0, 0, 0, 0])),
            (1, per_sm([1, 2, 5, 6])),
            (2, per_sm([0, 0, 7, 7])),
            (3, per_sm([0, 0, 0, 0])),
        ]
    );
}

#[test]
fn a_hash_is_the_union_of_its_parts() {
    // What helpers put in and programs add to is summed; what they only put in is not.
    for (adds, both) in [(&[(0, 8)][..], 13u32), (&[], 6)] {
        let plan = planned(MapType::Hash, 8, adds, true);
        assert!(plan.sum_fields.is_empty());
        let parts = [
            part(&plan, &[(10, of_words(&[6, 0])), (20, of_words(&[1, 0]))]),
            part(&plan, &[(30, of_words(&[2, 0])), (10, of_words(&[7, 0]))]),
        ];
        let one = |n: u32| Value::One(of_words(&[n, 0]));
        assert_eq!(
            shown(&plan, &parts),
            [(10, one(both)), (20, one(1)), (30, one(2))]
        );
        let view = MapView::merged(&plan, &parts).unwrap();
        assert_eq!(view.lookup(&40u32.to_le_bytes()).unwrap(), None);
    }
}

#[test]
fn an_array_that_is_summed_over_multiprocessors_is_summed_over_devices() {
    let plan = planned(MapType::Array, 8, &[(0, 8)], false);
    assert_eq!(plan.added, plan.sum_fields);
    let parts = [
        part(&plan, &[(0, of_words(&[5, 0]))]),
        part(&plan, &[(0, of_words(&[6, 0])), (3, of_words(&[1, 0]))]),
    ];
    let one = |n: u32| Value::One(of_words(&[n, 0]));
    let expected = [(0, one(11)), (1, one(0)), (2, one(0)), (3, one(1))];
    assert_eq!(shown(&plan, &parts), expected);
    // Of a part of another size nothing is shown.
    let bad = [parts[0].clone(), vec![0; 3]];
    assert!(MapView::merged(&plan, &bad).is_err());
    assert!(MapView::merged(&plan, &[]).is_err());
}

/// What a copy shows after the host did something to a key.
fn after(plan: &MapPlan, bytes: &mut [u8], key: u32, done: Done<'_>) -> Option<Value> {
    let key = key.to_le_bytes();
    let writes = superseded(plan, bytes, &key, done);
    apply(&writes, bytes);
    let again = superseded(plan, bytes, &key, done);
    assert!(
        again.is_empty() || merge::is_side_by_side(plan),
        "it gives way once"
    );
    MapView::new(plan, bytes).unwrap().lookup(&key).unwrap()
}

#[test]
fn a_value_that_is_left_gives_way() {
    let array = planned(MapType::Array, 16, &[(0, 8)], false);
    let mut left = part(
        &array,
        &[(1, of_words(&[5, 0, 7, 8])), (2, of_words(&[1, 0, 0, 0]))],
    );
    // A sum that is written is elsewhere now, and the others of the value stay.
    let value = |words: &[u32]| Some(Value::One(of_words(words)));
    let packed = words::pack(&of_words(&[9, 0, 3, 4]), [0]);
    assert_eq!(
        after(&array, &mut left, 1, Done::Words(&packed)),
        value(&[0, 0, 7, 8])
    );
    // What is no sum is shown of one context: all of it is.
    let packed = words::pack(&of_words(&[9, 0, 3, 4]), [2]);
    let more = planned(MapType::Array, 24, &[(0, 8)], false);
    let mut other = part(&more, &[(1, of_words(&[5, 0, 7, 8, 9, 9]))]);
    let packed_more = words::pack(&of_words(&[9, 0, 3, 4, 1, 1]), [2]);
    assert_eq!(
        after(&more, &mut other, 1, Done::Words(&packed_more)),
        value(&[5, 0, 0, 0, 0, 0])
    );
    // A word that is not there is none.
    assert_eq!(
        after(&array, &mut left, 1, Done::Words(&packed)),
        value(&[0, 0, 7, 8])
    );
    // A whole one leaves nothing, in any of its copies.
    assert_eq!(
        after(&array, &mut left, 1, Done::Updated(&[])),
        value(&[0; 4])
    );
    assert_eq!(after(&array, &mut left, 7, Done::Updated(&[])), None);
    assert_eq!(
        shown(&array, &[left])[2].1,
        Value::One(of_words(&[1, 0, 0, 0]))
    );

    for map_type in [MapType::Hash, MapType::LruHash] {
        let keys = planned(map_type, 8, &[(0, 8)], false);
        for done in [Done::Updated(&[]), Done::Deleted] {
            let mut left = part(&keys, &[(1, of_words(&[5, 0])), (2, of_words(&[6, 0]))]);
            assert_eq!(after(&keys, &mut left, 1, done), None);
            assert_eq!(after(&keys, &mut left, 3, done), None);
            assert_eq!(shown(&keys, &[left]), [(2, Value::One(of_words(&[6, 0])))]);
        }
    }
}

#[test]
fn what_lies_beside_sums_is_of_the_first_that_says_something_there() {
    let plan = planned(MapType::Array, 16, &[(0, 8)], false);
    let parts = [
        part(&plan, &[(1, of_words(&[5, 0, 0, 0]))]),
        part(&plan, &[(1, of_words(&[6, 0, 7, 0]))]),
        part(&plan, &[(1, of_words(&[0, 0, 8, 0]))]),
    ];
    assert_eq!(
        shown(&plan, &parts)[1].1,
        Value::One(of_words(&[11, 0, 7, 0]))
    );
}

#[test]
fn what_says_nothing_is_known() {
    for map_type in [MapType::Array, MapType::Hash, MapType::LruHash] {
        let plan = planned(map_type, 8, &[(0, 8)], false);
        assert!(is_silent(&plan, &part(&plan, &[])));
        let mut left = part(&plan, &[(1, of_words(&[5, 0]))]);
        assert!(!is_silent(&plan, &left));
        after(&plan, &mut left, 1, Done::Updated(&[]));
        assert!(is_silent(&plan, &left), "{map_type:?}");
    }
    // Their values are written as those of others.
    let plan = planned(MapType::PercpuArray, 8, &[], false);
    assert!(!is_silent(&plan, &part(&plan, &[])));
}

#[test]
fn values_side_by_side_take_their_part() {
    for map_type in [MapType::PercpuArray, MapType::PercpuHash] {
        let plan = planned(map_type, 8, &[], false);
        let mut left = part(&plan, &[(1, of_words(&[1, 0, 2, 0]))]);
        let both = |a, b| Some(Value::PerSm(vec![of_words(&[a, 0]), of_words(&[b, 0])]));
        let given = of_words(&[8, 0, 9, 0]);
        assert_eq!(
            after(&plan, &mut left, 1, Done::Updated(&given)),
            both(8, 9)
        );
        assert_eq!(
            after(&plan, &mut left, 2, Done::Updated(&given)),
            both(8, 9)
        );
        // A key that is not there is as good as zeros.
        let there = after(&plan, &mut left, 3, Done::Updated(&[0; 16]));
        let zeros = both(0, 0).filter(|_| map_type == MapType::PercpuArray);
        assert_eq!(there, zeros);
    }
}

#[test]
fn a_program_on_the_cpu_does_not_keep_devices_from_being_added_up() {
    let adds = SumUse {
        adds: [SumField { offset: 0, size: 8 }].into(),
        ..SumUse::default()
    };
    let on_cpu = SumUse {
        on_cpu: true,
        ..SumUse::default()
    };
    let def = def(MapType::Array as u32, 4, 8, 4);
    let plan = plan(&def, 4, &[adds, on_cpu]).unwrap();
    assert_eq!(plan.added, [SumField { offset: 0, size: 8 }]);
    assert!(plan.sum_fields.is_empty(), "it has one copy on each");
    assert_eq!(
        plan.not_summed.as_deref(),
        Some("a program on the CPU uses it")
    );
    let parts = [
        part(&plan, &[(1, of_words(&[5, 0]))]),
        part(&plan, &[(1, of_words(&[6, 0]))]),
    ];
    assert_eq!(shown(&plan, &parts)[1].1, Value::One(of_words(&[11, 0])));
}
