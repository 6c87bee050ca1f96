//! One lane: every operation says what a map of the simplest kind would say, and the host finds in
//! the end what that one holds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, ENOENT, MapType};
use warpbpf_maps::Value;

use super::arrays::{self, SINGLE};
use super::tables::{ACT, declared, key_of};
use super::work::{Machine, Parts, Todo, What, numbered, try_alone};

/// Any operation on any key, with any flag.
fn op(keys: u64) -> impl Strategy<Value = Todo> {
    let what = prop_oneof![
        Just(What::Lookup),
        Just(What::Update),
        Just(What::Update),
        Just(What::Delete),
        Just(What::Add),
        Just(What::FetchAdd),
    ];
    let flags = prop_oneof![2 => Just(BPF_ANY), 1 => Just(BPF_NOEXIST), 1 => Just(BPF_EXIST)];
    (what, flags, 0..keys).prop_map(|(what, flags, key)| Todo {
        what,
        flags,
        key,
        value: 0,
    })
}

/// How a map takes keys.
#[derive(Clone, Copy)]
enum Keys {
    /// All below that are there, always.
    Fixed(u64),
    /// They come and go, up to so many.
    Most(usize),
}

/// A map of one lane.
struct Model {
    keys: Keys,
    values: BTreeMap<u64, u64>,
}

impl Model {
    fn new(keys: Keys) -> Model {
        let values = match keys {
            Keys::Fixed(count) => (0..count).map(|key| (key, 0)).collect(),
            Keys::Most(_) => BTreeMap::new(),
        };
        Model { keys, values }
    }

    /// The result, and what was found.
    fn step(&mut self, todo: &Todo) -> (i64, Option<u64>) {
        let there = self.values.get(&todo.key).copied();
        let count = self.values.len();
        match (todo.what, self.keys) {
            (What::Delete, Keys::Fixed(_)) => (EINVAL, None),
            (What::Delete, Keys::Most(_)) => {
                let gone = self.values.remove(&todo.key);
                (gone.map_or(ENOENT, |_| 0), None)
            }
            (What::Update, keys) => {
                let result = match (todo.flags, there, keys) {
                    (_, None, Keys::Fixed(_)) => E2BIG,
                    (BPF_NOEXIST, Some(_), _) => EEXIST,
                    (BPF_EXIST, None, _) => ENOENT,
                    (_, None, Keys::Most(most)) if count == most => E2BIG,
                    _ => 0,
                };
                if result == 0 {
                    self.values.insert(todo.key, todo.value);
                }
                (result, None)
            }
            (what, _) => {
                let adds = matches!(what, What::Add | What::FetchAdd);
                if let Some(value) = self.values.get_mut(&todo.key).filter(|_| adds) {
                    *value += todo.value;
                }
                // An addition that does not ask tells its own number.
                let found = if what == What::Add {
                    there.map(|_| todo.value)
                } else {
                    there
                };
                (0, found)
            }
        }
    }
}

/// The only copy that a lane writes to.
fn own(value: Value) -> u64 {
    match value {
        Value::One(value) => key_of(&value[..8]),
        Value::PerSm(values) => key_of(&values[0][..8]),
        Value::PerThread(values) => {
            let own = values.iter().find(|(thread, _)| *thread == 0);
            own.map_or(0, |(_, value)| key_of(&value[..8]))
        }
    }
}

fn agrees(name: &str, declared: &str, keys: Keys, all: u64) {
    let machine = Machine::alone(&Parts {
        name: &format!("alone-{name}"),
        declared,
        act: ACT,
    });
    try_alone(op(all), |todo| {
        let device = machine.device(1);
        let mut model = Model::new(keys);
        for done in machine.run(&device, &numbered(todo.clone()), 1) {
            let asked = Todo {
                what: done.what,
                flags: done.flags,
                key: done.key,
                value: done.value,
            };
            let wanted = model.step(&asked);
            let found = done
                .found
                .filter(|_| done.what != What::Update && done.what != What::Delete);
            prop_assert_eq!((done.result, found), wanted, "{:?}", done);
        }
        let mut left: Vec<(u64, u64)> = machine.view(&device, |view| {
            let entries = view.entries();
            entries
                .map(|entry| (key_of(&entry.key), own(entry.value)))
                .collect()
        });
        left.sort_unstable();
        prop_assert_eq!(left, model.values.into_iter().collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn one_lane_finds_in_an_array_what_a_model_finds() {
    let others = [
        MapType::PercpuArray,
        MapType::PerThreadArray,
        MapType::PerThreadHostArray,
    ];
    for map_type in SINGLE.into_iter().chain(others) {
        let (name, declared) = arrays::parts(map_type);
        agrees(&name, &declared, Keys::Fixed(6), 8);
    }
}

#[test]
fn one_lane_finds_in_a_hash_what_a_model_finds() {
    for (map_type, words) in [
        (MapType::Hash, 1),
        (MapType::Hash, 3),
        (MapType::GpuHash, 1),
        (MapType::PercpuHash, 1),
    ] {
        let name = format!("{}-{words}", map_type.name());
        let declared = declared(map_type, "__u64", 5, words, "");
        agrees(&name, &declared, Keys::Most(5), 8);
    }
}

/// With room for every key, nothing is dropped.
#[test]
fn one_lane_finds_in_an_lru_hash_what_a_model_finds() {
    for map_type in [MapType::LruHash, MapType::LruPercpuHash] {
        let declared = declared(map_type, "__u64", 64, 1, "");
        agrees(map_type.name(), &declared, Keys::Most(64), 8);
    }
}
