//! Parts of one map in several contexts, seen as one.

mod common;

use common::def;
use warpbpf_abi::layout::SumField;
use warpbpf_abi::maps::MapType;
use warpbpf_maps::{Entry, MapPlan, MapView, SumUse, Value, Write, merge, plan, update};

fn planned(map_type: MapType, value_size: u32, adds: &[(u32, u32)], more: bool) -> MapPlan {
    let fields = adds.iter().map(|&(offset, size)| SumField { offset, size });
    let uses = SumUse {
        adds: fields.collect(),
        not_summable: more.then(|| "a helper changes it".to_owned()),
        more_than_adds: false,
    };
    plan(&def(map_type as u32, 4, value_size, 4), 2, &[uses]).unwrap()
}

fn words(words: &[u32]) -> Vec<u8> {
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
        Some(words(&[0, 0, 0])),
        None,
        Some(words(&[7, 3, 9])),
        Some(words(&[8, u32::MAX, 1])),
    ];
    assert_eq!(merge::flat(&plan, &parts), Some(words(&[7, 2, 9])));
    assert_eq!(merge::flat(&plan, &[None, None]), None);
    let given = merge::split(&plan, &words(&[1, 5, 2]), 3);
    let other = words(&[1, 0, 2]);
    assert_eq!(given, [words(&[1, 5, 2]), other.clone(), other]);
    let back: Vec<Option<Vec<u8>>> = given.into_iter().map(Some).collect();
    assert_eq!(merge::flat(&plan, &back), Some(words(&[1, 5, 2])));
}

#[test]
fn multiprocessors_stand_side_by_side() {
    let plan = planned(MapType::PercpuArray, 8, &[], false);
    let parts = [Some(words(&[1, 0, 2, 0])), None, Some(words(&[5, 0, 6, 0]))];
    let all = words(&[1, 0, 2, 0, 0, 0, 0, 0, 5, 0, 6, 0]);
    assert_eq!(merge::flat(&plan, &parts), Some(all.clone()));
    let given = merge::split(&plan, &all, 3);
    assert_eq!(given[2], words(&[5, 0, 6, 0]));
    assert_eq!(
        merge::split(&plan, &words(&[9, 0]), 2),
        vec![words(&[9, 0]); 2]
    );
    // One device's values are for each, and those of contexts that are gone lead nowhere.
    let one = words(&[1, 0, 2, 0]);
    assert_eq!(merge::split(&plan, &one, 2), [one.clone(), one.clone()]);
    assert_eq!(merge::split(&plan, &all, 1), [one]);
    let parts = [
        part(&plan, &[(1, words(&[1, 0, 2, 0]))]),
        part(&plan, &[(1, words(&[5, 0, 6, 0])), (2, words(&[7, 0]))]),
    ];
    let per_sm = |values: [u32; 4]| Value::PerSm(values.map(|v| words(&[v, 0])).to_vec());
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
            part(&plan, &[(10, words(&[6, 0])), (20, words(&[1, 0]))]),
            part(&plan, &[(30, words(&[2, 0])), (10, words(&[7, 0]))]),
        ];
        let one = |n: u32| Value::One(words(&[n, 0]));
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
        part(&plan, &[(0, words(&[5, 0]))]),
        part(&plan, &[(0, words(&[6, 0])), (3, words(&[1, 0]))]),
    ];
    let one = |n: u32| Value::One(words(&[n, 0]));
    let expected = [(0, one(11)), (1, one(0)), (2, one(0)), (3, one(1))];
    assert_eq!(shown(&plan, &parts), expected);
    // Of a part of another size nothing is shown.
    let bad = [parts[0].clone(), vec![0; 3]];
    assert!(MapView::merged(&plan, &bad).is_err());
    assert!(MapView::merged(&plan, &[]).is_err());
}
