//! Arrays of every kind: sums are exact, additions that tell what was there make one row, elements
//! that are written hold what was written.

use std::collections::BTreeMap;

use proptest::prelude::*;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, MapType};
use warpbpf_maps::Value;

use super::device::Device;
use super::tables::{ACT, declared, key_of};
use super::work::{Done, Machine, PER_THREAD, Parts, STRESS_THREADS, Todo, What, try_stress};

/// Elements. What is done to one depends on its number modulo 3; further ones are not there.
const ELEMENTS: u64 = 6;

/// Arrays with one copy.
pub const SINGLE: [MapType; 4] = [
    MapType::Array,
    MapType::GpuArray,
    MapType::GpuKernelArray,
    MapType::GpuHostArray,
];

pub fn parts(map_type: MapType) -> (String, String) {
    let more = match map_type {
        MapType::PerThreadArray | MapType::PerThreadHostArray => {
            format!("__uint(map_extra, {STRESS_THREADS});")
        }
        _ => String::new(),
    };
    let declared = declared(map_type, "__u32", ELEMENTS as u32, 1, &more);
    (map_type.name().to_owned(), declared)
}

fn stress(map_type: MapType) -> Vec<Machine> {
    let (name, declared) = parts(map_type);
    Machine::stress(&Parts {
        name: &name,
        declared: &declared,
        act: ACT,
    })
}

/// One kind of operation for each element, and some that are refused.
fn of_arrays() -> impl Strategy<Value = Todo> {
    let flags = prop_oneof![4 => Just(BPF_ANY), 2 => Just(BPF_EXIST), 1 => Just(BPF_NOEXIST)];
    let what = (0..8u64, 0..ELEMENTS + 1, flags, 1..1000u64);
    what.prop_map(|(kind, key, flags, value)| {
        let what = match (kind, key % 3) {
            (0, _) => What::Lookup,
            (1, _) => What::Delete,
            (_, 0) => What::Add,
            (_, 1) => What::FetchAdd,
            _ => What::Update,
        };
        Todo {
            what,
            flags,
            key,
            value,
        }
    })
}

/// What every operation on an array says, whatever others do.
fn says_what_arrays_say(done: &Done) -> bool {
    let there = done.key < ELEMENTS;
    match done.what {
        What::Update if done.flags == BPF_NOEXIST && there => done.result == EEXIST,
        What::Update if !there => done.result == E2BIG,
        What::Delete => done.result == EINVAL,
        What::Update => done.result == 0,
        _ => done.result == 0 && done.found.is_some() == there,
    }
}

fn is_written(done: &&Done) -> bool {
    done.what == What::Update && done.result == 0
}

/// Checks one copy of an element against the operations that reached it.
pub fn check(key: u64, value: u64, of_key: &[Done]) -> Result<(), TestCaseError> {
    let added = |what| of_key.iter().filter(move |d| d.what == what);
    match key % 3 {
        0 => prop_assert_eq!(value, added(What::Add).map(|d| d.value).sum::<u64>()),
        1 => {
            // Each addition found what the one before it left.
            let mut row: Vec<(u64, u64)> = added(What::FetchAdd)
                .filter_map(|d| Some((d.found?, d.value)))
                .collect();
            row.sort_unstable();
            let mut next = 0;
            for (found, more) in row {
                prop_assert_eq!(found, next, "element {}", key);
                next += more;
            }
            prop_assert_eq!(value, next);
        }
        _ => {
            let mut written = of_key.iter().filter(is_written);
            let untouched = value == 0 && of_key.iter().filter(is_written).count() == 0;
            prop_assert!(untouched || written.any(|d| d.value == value));
        }
    }
    // What a lookup found was there at a time when that could be.
    for look in added(What::Lookup) {
        let Some(found) = look.found else { continue };
        let begun = |d: &&Done| d.began < look.ended;
        let sure = |d: &&Done| d.ended < look.began;
        let sum = |which: &dyn Fn(&&Done) -> bool| {
            let adds = of_key
                .iter()
                .filter(|d| matches!(d.what, What::Add | What::FetchAdd));
            adds.filter(which).map(|d| d.value).sum::<u64>()
        };
        if key % 3 < 2 {
            prop_assert!(
                (sum(&sure)..=sum(&begun)).contains(&found),
                "{found} of element {key}"
            );
        } else {
            let mut may = of_key.iter().filter(is_written).filter(begun);
            let none_before = of_key.iter().filter(is_written).filter(sure).count() == 0;
            prop_assert!(found == 0 && none_before || may.any(|d| d.value == found));
        }
    }
    Ok(())
}

fn by_key(done: &[Done]) -> BTreeMap<u64, Vec<Done>> {
    let mut keys: BTreeMap<u64, Vec<Done>> = (0..ELEMENTS).map(|key| (key, Vec::new())).collect();
    for done in done.iter().filter(|done| done.key < ELEMENTS) {
        keys.entry(done.key).or_default().push(*done);
    }
    keys
}

fn value_of(machine: &Machine, device: &Device, key: u64) -> Value {
    let found = machine.view(device, |view| view.lookup(&(key as u32).to_le_bytes()));
    found.expect("a key of this size").expect("an element")
}

#[test]
fn stress_leaves_in_an_array_what_it_added_and_wrote() {
    for map_type in SINGLE {
        try_stress(
            &stress(map_type),
            of_arrays(),
            |machine, todo, seed, block| {
                let device = machine.device(seed);
                let done = machine.run(&device, &todo, block);
                prop_assert!(done.iter().all(says_what_arrays_say));
                for (key, of_key) in by_key(&done) {
                    let Value::One(value) = value_of(machine, &device, key) else {
                        panic!("one value");
                    };
                    check(key, key_of(&value), &of_key)?;
                }
                Ok(())
            },
        );
    }
}

#[test]
fn each_multiprocessor_has_its_own_element() {
    let machines = stress(MapType::PercpuArray);
    try_stress(&machines, of_arrays(), |machine, todo, seed, block| {
        let device = machine.device(seed);
        let done = machine.run(&device, &todo, block);
        prop_assert!(done.iter().all(says_what_arrays_say));
        for (key, of_key) in by_key(&done) {
            let Value::PerSm(values) = value_of(machine, &device, key) else {
                panic!("a value for each multiprocessor");
            };
            prop_assert_eq!(values.len(), machine.sms as usize);
            for (sm, value) in (0..).zip(&values) {
                let here = of_key.iter().filter(|d| d.sm == sm).copied();
                check(key, key_of(value), &here.collect::<Vec<_>>())?;
            }
        }
        Ok(())
    });
}

#[test]
fn each_thread_has_its_own_element() {
    for map_type in [MapType::PerThreadArray, MapType::PerThreadHostArray] {
        try_stress(
            &stress(map_type),
            of_arrays(),
            |machine, todo, seed, block| {
                let device = machine.device(seed);
                let done = machine.run(&device, &todo, block);
                prop_assert!(done.iter().all(says_what_arrays_say));
                prop_assert_eq!(done.len(), STRESS_THREADS * PER_THREAD);
                for (key, of_key) in by_key(&done) {
                    for thread in 0..STRESS_THREADS {
                        let own = of_key.iter().filter(|d| d.thread == thread).copied();
                        let value = machine.view(&device, |view| {
                            let value = view.thread_value(key as u32, thread as u64);
                            key_of(value.expect("a thread's value"))
                        });
                        check(key, value, &own.collect::<Vec<_>>())?;
                    }
                }
                Ok(())
            },
        );
    }
}
