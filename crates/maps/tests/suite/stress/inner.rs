//! Maps of maps: what lanes do to elements of the maps that they find is done there, whichever key
//! they came by, and nowhere else.

use proptest::prelude::*;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, EEXIST, MapType};
use warpbpf_maps::{Value, inner};

use super::arrays::check;
use super::device::Device;
use super::tables::key_of;
use super::work::{Done, Machine, Parts, Todo, What, numbered, try_alone, try_stress};

/// Elements of each map that stands in another one.
const ELEMENTS: u64 = 3;
/// Which one each key of the outer map has; there is a fourth key, with none, and no fifth one.
const STANDS: [&str; 3] = ["first", "second", "first"];
const KEYS: u64 = 5;

/// An operation's key is one of the outer map's and an element.
const ACT: &str = r"
        __u32 outer = op->key / 3, element = op->key % 3;
        void *inner = bpf_map_lookup_elem(&table, &outer);
        __u64 *v = inner ? bpf_map_lookup_elem(inner, &element) : 0;
        op->is_found = v != 0;
        if (v && op->what == 1) {
            __u64 value = op->value;
            op->result = bpf_map_update_elem(inner, &element, &value, op->flags);
        } else if (v && op->what == 3) {
            __sync_fetch_and_add(v, op->value);
        } else if (v && op->what == 4) {
            op->found = __sync_fetch_and_add(v, op->value);
        } else if (v) {
            op->found = *v;
        }";

fn with_parts<T>(map_type: MapType, work: impl FnOnce(&Parts<'_>) -> T) -> T {
    let declared = format!(
        r#"
struct inner {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, {ELEMENTS});
    __type(key, __u32);
    __type(value, __u64);
}} first SEC(".maps"), second SEC(".maps");
struct {{
    __uint(type, {number});
    __uint(max_entries, 4);
    __type(key, __u32);
    __array(values, struct inner);
}} table SEC(".maps");"#,
        number = map_type as u32,
    );
    work(&Parts {
        name: map_type.name(),
        declared: &declared,
        act: ACT,
    })
}

/// A device on which the outer map's keys have their maps.
fn device(machine: &Machine, seed: u64) -> Device {
    let device = machine.device(seed);
    let table = machine.map("table");
    let mut bytes = machine.bytes(&device, "table");
    for (key, name) in (0u32..).zip(STANDS) {
        let map = machine.map(name);
        // Area 0 is the environment.
        let stands = (map as u32, device.address(map + 1));
        let plan = &machine.plans[table];
        let writes = inner::store_live(plan, &bytes, &key.to_le_bytes(), stands, BPF_ANY);
        for write in writes.expect("room") {
            let at = write.offset as usize;
            bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            device.write(table + 1, write.offset, &write.bytes);
        }
    }
    device
}

fn ops() -> impl Strategy<Value = Todo> {
    let flags = prop_oneof![4 => Just(BPF_ANY), 2 => Just(BPF_EXIST), 1 => Just(BPF_NOEXIST)];
    let what = (0..6u64, 0..KEYS * ELEMENTS, flags, 1..1000u64);
    what.prop_map(|(kind, key, flags, value)| {
        let what = match (kind, key % ELEMENTS) {
            (0, _) => What::Lookup,
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

/// The map that an operation came to.
fn stands(key: u64) -> Option<&'static str> {
    STANDS.get((key / ELEMENTS) as usize).copied()
}

fn says_what_is_there(done: &Done) -> bool {
    let there = stands(done.key).is_some();
    let refused = there && done.what == What::Update && done.flags == BPF_NOEXIST;
    done.found.is_some() == there && done.result == if refused { EEXIST } else { 0 }
}

fn element(machine: &Machine, device: &Device, map: &str, element: u64) -> u64 {
    let key = (element as u32).to_le_bytes();
    let found = machine.view_of(device, map, |view| view.lookup(&key));
    match found.expect("a key of this size").expect("an element") {
        Value::One(value) => key_of(&value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stress_does_to_each_map_what_came_there_by_any_key() {
    for map_type in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let machines = with_parts(map_type, Machine::stress);
        try_stress(&machines, ops(), |machine, todo, seed, block| {
            let device = device(machine, seed);
            let done = machine.run(&device, &numbered(todo), block);
            prop_assert!(done.iter().all(says_what_is_there));
            for map in ["first", "second"] {
                for at in 0..ELEMENTS {
                    let here = |d: &&Done| stands(d.key) == Some(map) && d.key % ELEMENTS == at;
                    let here: Vec<Done> = done.iter().filter(here).copied().collect();
                    check(at, element(machine, &device, map, at), &here)?;
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_lane_alone_finds_what_it_left() {
    for map_type in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let machine = with_parts(map_type, Machine::alone);
        try_alone(ops(), |todo| {
            let device = device(&machine, 1);
            let done = machine.run(&device, &todo, 1);
            prop_assert!(done.iter().all(says_what_is_there));
            let mut model = [[0u64; ELEMENTS as usize]; 2];
            for done in &done {
                let Some(map) = stands(done.key) else {
                    continue;
                };
                let value =
                    &mut model[usize::from(map == "second")][(done.key % ELEMENTS) as usize];
                match done.what {
                    What::Update if done.result == 0 => *value = done.value,
                    What::Add => *value += done.value,
                    What::FetchAdd => {
                        prop_assert_eq!(done.found, Some(*value));
                        *value += done.value;
                    }
                    What::Lookup => prop_assert_eq!(done.found, Some(*value)),
                    _ => {}
                }
            }
            for (map, values) in ["first", "second"].iter().zip(model) {
                for (at, value) in (0..).zip(values) {
                    prop_assert_eq!(element(&machine, &device, map, at), value);
                }
            }
            Ok(())
        });
    }
}
