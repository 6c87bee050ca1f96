//! A bloom filter under stress: no push is forgotten, and nothing is found whose bits nobody set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_ANY, ENOENT, MapType};

use super::work::{Done, Machine, Parts, Todo, What, try_stress};

#[test]
fn a_filter_says_no_only_before_a_push_and_yes_only_for_bits_that_are_set() {
    let machines: Vec<Machine> = [(20, 0), (400, 3)]
        .iter()
        .flat_map(|(entries, hashes)| {
            let declared = format!(
                r#"
struct {{
    __uint(type, {});
    __uint(max_entries, {entries});
    __uint(map_extra, {hashes});
    __type(value, __u64);
}} table SEC(".maps");"#,
                MapType::BloomFilter as u32
            );
            Machine::stress(&Parts {
                name: &format!("bloom-{entries}"),
                declared: &declared,
                act: r"
        op->result = op->what == 5 ? bpf_map_push_elem(&table, &op->key, op->flags)
                                   : bpf_map_peek_elem(&table, &op->key);",
            })
        })
        .collect();
    let op = (
        prop_oneof![1 => Just(What::Push), 3 => Just(What::Peek)],
        0..300u64,
    );
    let op = op.prop_map(|(what, key)| Todo {
        what,
        flags: BPF_ANY,
        key,
        value: 0,
    });
    try_stress(&machines, op, |machine, todo, seed, block| {
        let device = machine.device(seed);
        let done = machine.run(&device, &todo, block);
        let MapLayout::Bloom(layout) = machine.layout("table") else {
            panic!("a filter");
        };
        let places = |done: &Done| layout.places(&done.key.to_le_bytes());
        let pushes = || done.iter().filter(|d| d.what == What::Push);
        prop_assert!(pushes().all(|push| push.result == 0));
        for peek in done.iter().filter(|d| d.what == What::Peek) {
            match peek.result {
                0 => {
                    let begun = pushes().filter(|push| push.began < peek.ended);
                    let set: BTreeSet<u32> = begun.flat_map(places).collect();
                    prop_assert!(places(peek).all(|place| set.contains(&place)), "{peek:?}");
                }
                ENOENT => {
                    let mut before = pushes().filter(|push| push.ended < peek.began);
                    prop_assert!(before.all(|push| push.key != peek.key), "{peek:?}");
                }
                _ => prop_assert!(false, "{peek:?}"),
            }
        }
        let mut bits = vec![0u8; layout.size() as usize];
        for place in pushes().flat_map(places) {
            bits[place as usize / 8] |= 1 << (place % 8);
        }
        prop_assert_eq!(machine.bytes(&device, "table"), bits);
        Ok(())
    });
}
