//! Maps of maps that the host changes while programs look into them: a model of what is there,
//! after each write and not only after the last.

use std::collections::BTreeMap;

use crate::common;
use proptest::prelude::*;
use warpbpf_abi::layout::inner as value;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, EBUSY, MapType};
use warpbpf_maps::left::{Done, superseded};
use warpbpf_maps::{AccessError, MapPlan, MapView, Value, Write, delete, hash, inner, plan};
use warpbpf_object::MapDef;

/// Keys that are used, and how many find room.
const KEYS: u32 = 6;
const ENTRIES: u32 = 4;

fn outer(map_type: MapType) -> MapPlan {
    let def = MapDef {
        inner: Some(Box::new(common::def(MapType::Array as u32, 4, 8, 2))),
        ..common::def(map_type as u32, 4, 4, ENTRIES)
    };
    plan(&def, 4, &[]).expect("a plan")
}

fn apply(bytes: &mut [u8], write: &Write) {
    let at = write.offset as usize;
    bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
}

/// What each key has.
fn there(plan: &MapPlan, bytes: &[u8]) -> BTreeMap<u32, u32> {
    let view = MapView::new(plan, bytes).expect("a view");
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    view.entries()
        .map(|entry| match entry.value {
            Value::One(value) => (word(&entry.key), word(&value)),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Where map `number` lies, for these tests.
fn address(number: u32) -> u64 {
    0x7f00_0000_0000 + u64::from(number) * 0x1000
}

/// What a program would follow: the addresses that stand in front of an index.
fn followed(bytes: &[u8], number: u32) -> bool {
    let mut both = address(number).to_le_bytes().to_vec();
    both.extend(number.to_le_bytes());
    bytes.windows(both.len()).any(|window| window == both)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_write_leaves_the_old_map_or_the_new_one(
        keyed in any::<bool>(),
        ops in proptest::collection::vec((0u8..4, 0..KEYS, 1u32..9), 0..60),
    ) {
        let plan = outer(if keyed { MapType::HashOfMaps } else { MapType::ArrayOfMaps });
        let mut bytes = vec![0; plan.bytes() as usize];
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        for (what, key, number) in ops {
            let known = model.contains_key(&key);
            let at = key.to_le_bytes();
            let flags = [BPF_ANY, BPF_NOEXIST, BPF_EXIST].get(usize::from(what)).copied();
            let result = match flags {
                Some(flags) => inner::store_live(&plan, &bytes, &at, (number, address(number)), flags),
                None => delete(&plan, &bytes, &at),
            };
            let refused = match flags {
                None if !keyed && key >= ENTRIES => Some(-2),
                None => (!known).then_some(-2),
                // An array's keys are all there, whatever they have.
                Some(BPF_NOEXIST) if !keyed => Some(-17),
                Some(_) if !keyed => (key >= ENTRIES).then_some(-7),
                Some(BPF_NOEXIST) if known => Some(-17),
                Some(BPF_EXIST) if !known => Some(-2),
                Some(_) => (!known && model.len() >= ENTRIES as usize).then_some(-7),
            };
            prop_assert_eq!(result.as_ref().err().map(AccessError::errno), refused);
            let Ok(writes) = result else { continue };
            let before = model.clone();
            match flags {
                Some(_) => model.insert(key, number),
                None => model.remove(&key),
            };
            for write in &writes {
                prop_assert_eq!(write.offset % 4, 0);
                apply(&mut bytes, write);
                let now = there(&plan, &bytes);
                prop_assert!(now == before || now == model, "{now:?}, not {before:?} or {model:?}");
            }
            prop_assert_eq!(there(&plan, &bytes), model.clone());
            prop_assert!(flags.is_none() || followed(&bytes, number));
        }
    }
}

/// What a context that has ended left is out, once the host has put in another map or taken it out.
#[test]
fn what_is_left_gives_way() {
    for map_type in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let plan = outer(map_type);
        for done in [Done::Updated(&[]), Done::Deleted] {
            let mut bytes = vec![0; plan.bytes() as usize];
            for key in [1u32, 2] {
                let put = inner::store_live(&plan, &bytes, &key.to_le_bytes(), (3, 0), BPF_ANY);
                put.expect("room")
                    .iter()
                    .for_each(|write| apply(&mut bytes, write));
            }
            let none = superseded(&plan, &bytes, &0u32.to_le_bytes(), done);
            assert_eq!(none, []);
            let writes = superseded(&plan, &bytes, &1u32.to_le_bytes(), done);
            writes.iter().for_each(|write| apply(&mut bytes, write));
            assert_eq!(there(&plan, &bytes), BTreeMap::from([(2, 3)]));
        }
    }
}

#[test]
fn a_hash_that_would_have_to_be_made_anew_says_so() {
    let plan = outer(MapType::HashOfMaps);
    let warpbpf_abi::layout::MapLayout::Hash(layout) = plan.layout else {
        panic!("a hash");
    };
    let mut bytes = vec![0; plan.bytes() as usize];
    // Ever new keys, each of which keeps what it had when it goes.
    let mut key = 0u32;
    let refused = loop {
        let put = inner::store_live(&plan, &bytes, &key.to_le_bytes(), (1, address(1)), BPF_ANY);
        match put {
            Ok(writes) => writes.iter().for_each(|write| apply(&mut bytes, write)),
            Err(error) => break error,
        }
        let gone = delete(&plan, &bytes, &key.to_le_bytes()).expect("it is there");
        gone.iter().for_each(|write| apply(&mut bytes, write));
        key += 1;
    };
    assert!(key > ENTRIES, "{key} keys came and went");
    assert_eq!(refused.errno(), EBUSY);
    assert!(there(&plan, &bytes).is_empty());
    // What does that when nothing runs makes room again.
    let mut fresh = hash::compact("m", &layout, &bytes).expect("nothing collides");
    let put = inner::store_live(&plan, &fresh, &key.to_le_bytes(), (2, address(2)), BPF_ANY);
    put.expect("room")
        .iter()
        .for_each(|write| apply(&mut fresh, write));
    assert_eq!(there(&plan, &fresh), BTreeMap::from([(key, 2)]));
    assert_eq!((value::ADDRESS, value::INDEX), (0, 8));
}
