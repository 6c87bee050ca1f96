//! Hashes with a value per multiprocessor, and those that drop keys.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use warpbpf_abi::maps::{
    BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, ENOENT, ENOMEM, MapType,
};
use warpbpf_maps::Value;

use super::work::{Machine, Parts, Todo, What, numbered, try_stress};

/// What a program does with a table whose values are `struct value { __u64 w[WORDS]; }`. A value
/// that is not the same number throughout is told as a result that cannot be.
pub const ACT: &str = r"
        struct value value;
        for (int w = 0; w < WORDS; w++)
            value.w[w] = op->value;
        if (op->what == 1) {
            op->result = bpf_map_update_elem(&table, &op->key, &value, op->flags);
        } else if (op->what == 2) {
            op->result = bpf_map_delete_elem(&table, &op->key);
        } else {
            struct value *v = bpf_map_lookup_elem(&table, &op->key);
            if (v && op->what == 3) {
                for (int w = 0; w < WORDS; w++)
                    __sync_fetch_and_add(&v->w[w], op->value);
            } else if (v && op->what == 4) {
                for (int w = 0; w < WORDS; w++)
                    value.w[w] = __sync_fetch_and_add(&v->w[w], op->value);
            } else if (v) {
                value = *v;
                for (int w = 1; w < WORDS; w++)
                    if (value.w[w] != value.w[0])
                        op->result = 1;
            }
            op->is_found = v != 0;
            op->found = value.w[0];
        }";

/// The declaration of such a table.
pub fn declared(map_type: MapType, key: &str, entries: u32, words: usize, more: &str) -> String {
    format!(
        r#"
#define WORDS {words}
struct value {{ __u64 w[WORDS]; }};
struct {{
    __uint(type, {number});
    __uint(max_entries, {entries});
    __type(key, {key});
    __type(value, struct value);
    {more}
}} table SEC(".maps");"#,
        number = map_type as u32,
    )
}

pub fn key_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |key, byte| key << 8 | u64::from(*byte))
}

fn stress(map_type: MapType, entries: u32, words: usize) -> Vec<Machine> {
    let name = format!("{}-{entries}-{words}", map_type.name());
    let declared = declared(map_type, "__u64", entries, words, "");
    Machine::stress(&Parts {
        name: &name,
        declared: &declared,
        act: ACT,
    })
}

/// Keys below so many are never deleted: each multiprocessor's value is exact.
const KEPT: u64 = 4;

/// Keys come by an insert of zero; what is added to a key that stays is there, at the
/// multiprocessor that added it.
#[test]
fn values_of_multiprocessors_hold_what_was_added_there() {
    let insert = Just((What::Update, BPF_NOEXIST, 0));
    let kept = prop_oneof![2 => insert, 5 => (1..100u64).prop_map(|n| (What::Add, 0, n))];
    let gone =
        prop_oneof![3 => insert, 3 => Just((What::Delete, 0, 0)), 1 => Just((What::Lookup, 0, 0))];
    let todo = |((what, flags, value), key)| Todo {
        what,
        flags,
        key,
        value,
    };
    let op = prop_oneof![
        (kept, 0..KEPT).prop_map(todo),
        (gone, KEPT..2 * KEPT).prop_map(todo),
    ];
    let machines = stress(MapType::PercpuHash, 64, 1);
    try_stress(&machines, op, |machine, todo, seed, block| {
        let device = machine.device(seed);
        let done = machine.run(&device, &todo, block);
        let entries = machine.view(&device, |view| view.entries().collect::<Vec<_>>());
        let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for entry in entries {
            let Value::PerSm(values) = entry.value else {
                panic!("a value for each multiprocessor");
            };
            let values = values.iter().map(|value| key_of(value)).collect();
            let twice = found.insert(key_of(&entry.key), values);
            prop_assert!(twice.is_none(), "a key stands twice");
        }
        for key in 0..2 * KEPT {
            let of_key = || done.iter().filter(|done| done.key == key);
            let came = of_key()
                .filter(|d| d.what == What::Update && d.result == 0)
                .count();
            let went = of_key()
                .filter(|d| d.what == What::Delete && d.result == 0)
                .count();
            prop_assert_eq!(came, went + usize::from(found.contains_key(&key)));
            let known = [0, EEXIST, ENOENT, EBUSY];
            prop_assert!(of_key().all(|d| known.contains(&d.result)));
            if key >= KEPT {
                continue;
            }
            for (sm, value) in (0..).zip(found.get(&key).into_iter().flatten()) {
                let added = of_key().filter(|d| d.what == What::Add && d.found.is_some());
                let here = added.filter(|d| d.sm == sm).map(|d| d.value);
                prop_assert_eq!(*value, here.sum::<u64>(), "key {} on {}", key, sm);
            }
        }
        Ok(())
    });
}

/// More keys than there is room for: at rest no more than that are there, each once, with a value
/// that was written to it, whole.
#[test]
fn what_stress_leaves_in_an_lru_hash_is_its_own() {
    let what = prop_oneof![
        5 => prop_oneof![Just(BPF_ANY), Just(BPF_NOEXIST), Just(BPF_EXIST)].prop_map(|flags| (What::Update, flags)),
        1 => Just((What::Delete, 0)),
        2 => Just((What::Lookup, 0)),
    ];
    let op = (what, 0..200u64).prop_map(|((what, flags), key)| Todo {
        what,
        flags,
        key,
        value: 0,
    });
    for (map_type, entries, words) in [
        (MapType::LruHash, 40, 3),
        (MapType::LruHash, 300, 1),
        (MapType::LruPercpuHash, 40, 1),
    ] {
        let machines = stress(map_type, entries, words);
        try_stress(&machines, &op, |machine, todo, seed, block| {
            let device = machine.device(seed);
            let done = machine.run(&device, &numbered(todo), block);
            let (entries_there, counters) = machine.view(&device, |view| {
                (view.entries().collect::<Vec<_>>(), view.counters())
            });
            prop_assert!(entries_there.len() <= entries as usize);
            let mut keys = BTreeSet::new();
            for entry in entries_there {
                let key = key_of(&entry.key);
                prop_assert!(keys.insert(key), "key {} stands twice", key);
                let was_written = |value: u64| {
                    let mut to_it = done.iter().filter(|d| d.key == key);
                    to_it.any(|d| d.what == What::Update && d.result == 0 && d.value == value)
                };
                // A multiprocessor's value is written in place, where another key may be by then
                // (docs/maps.md).
                if let Value::One(value) = entry.value {
                    let words: Vec<u64> = value.chunks(8).map(key_of).collect();
                    prop_assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                    prop_assert!(was_written(words[0]), "{} of key {}", words[0], key);
                }
            }
            let times = |errno| done.iter().filter(|d| d.result == errno).count() as u64;
            prop_assert_eq!(
                (counters.full, counters.busy),
                (times(ENOMEM), times(EBUSY))
            );
            for d in &done {
                let known: &[i64] = match (d.what, d.flags) {
                    (What::Update, BPF_NOEXIST) => &[0, EEXIST, EBUSY, ENOMEM],
                    (What::Update, BPF_EXIST) => &[0, ENOENT, EBUSY, ENOMEM],
                    (What::Update, _) => &[0, EBUSY, ENOMEM],
                    (What::Delete, _) => &[0, ENOENT, EBUSY],
                    // A value may be used again while it is read: see above. It is whole where it
                    // has a word.
                    _ if words > 1 => &[0, 1],
                    _ => &[0],
                };
                prop_assert!(known.contains(&d.result), "{d:?}");
            }
            Ok(())
        });
    }
}

/// A full hash holds what it is declared for, and not a key more; a refused insert leaves nothing.
#[test]
fn stress_does_not_fill_a_hash_beyond_its_entries() {
    let what = prop_oneof![
        5 => Just((What::Update, BPF_ANY)),
        2 => Just((What::Delete, 0)),
        1 => Just((What::Lookup, 0)),
    ];
    let op = (what, 0..40u64).prop_map(|((what, flags), key)| Todo {
        what,
        flags,
        key,
        value: 0,
    });
    for (map_type, words) in [
        (MapType::Hash, 1),
        (MapType::Hash, 3),
        (MapType::GpuHash, 2),
        (MapType::PercpuHash, 1),
    ] {
        let machines = stress(map_type, 24, words);
        try_stress(&machines, &op, |machine, todo, seed, block| {
            let device = machine.device(seed);
            let done = machine.run(&device, &numbered(todo), block);
            let (keys, counters) = machine.view(&device, |view| {
                let keys: Vec<u64> = view.entries().map(|entry| key_of(&entry.key)).collect();
                (keys, view.counters())
            });
            prop_assert!(keys.len() <= 24, "{} keys", keys.len());
            let once: BTreeSet<u64> = keys.iter().copied().collect();
            prop_assert_eq!(once.len(), keys.len());
            for key in &once {
                let mut of_key = done.iter().filter(|d| d.key == *key);
                prop_assert!(of_key.any(|d| d.what == What::Update && d.result == 0));
            }
            let times = |errno| done.iter().filter(|d| d.result == errno).count() as u64;
            prop_assert_eq!((counters.full, counters.busy), (times(E2BIG), times(EBUSY)));
            let known = [0, ENOENT, EBUSY, E2BIG];
            prop_assert!(done.iter().all(|d| known.contains(&d.result)));
            Ok(())
        });
    }
}
