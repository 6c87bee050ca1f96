//! Callbacks, iterators and `may_goto`.

use std::collections::BTreeMap;

use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::kfuncs::MAX_LOOPS;
use warpbpf_abi::layout::{
    ArrayLayout, HashLayout, LruLayout, MapLayout, PerThreadLayout, hash, slot,
};
use warpbpf_abi::maps::{E2BIG, EINVAL};
use warpbpf_ebpf::{Code, Insn, Reg};
use warpbpf_verify::{ArgFact, CallFact, Facts, InsnFact, Place, Region};

use super::{
    SIZE, assemble, at, check, emulate, emulate_with, env, facts, functions, interpret, reg,
};
use crate::pipeline::compile_code;
use crate::{Env, Input, MapBinding};

#[test]
fn may_goto_counts_per_frame() {
    // Two loops of one function share its three rounds; the program ends by them alone.
    let code = assemble(
        "r0 = 0
        again:
        r0 += 1
        may_goto next
        goto again
        next:
        r0 += 100
        may_goto out
        goto next
        out:
        exit",
    );
    let facts = facts(&code, |_, _| unreachable!("no access"));
    assert_eq!(interpret(&code, &[0; 60]).1, 104);
    check(&code, &facts, &[0; 60]);
    let mut none = facts.clone();
    none.may_goto_rounds = 0;
    assert_eq!(emulate(&code, &none, &[0; 60]).1, 101);
}

/// A loop whose callback adds to the caller's stack, keeps something on its own, runs `may_goto`
/// and stops when told.
fn loop_program() -> (Code, Facts) {
    let code = assemble(
        "r6 = r1
        *(u64 *)(r10 - 8) = 1
        r1 = *(u32 *)(r6 + 8)
        *(u32 *)(r10 - 16) = r1
        r1 = *(u64 *)(r6 + 0)
        r2 = subprog[callback]
        r3 = r10
        r3 += -16
        r4 = *(u64 *)(r6 + 16)
        call 181
        r1 = *(u64 *)(r10 - 8)
        *(u64 *)(r6 + 24) = r1
        exit
        callback:
        r3 = *(u64 *)(r2 + 8)
        *(u64 *)(r10 - 8) = r1
        r3 *= 7
        r4 = *(u64 *)(r10 - 8)
        r3 += r4
        again:
        r3 += 3
        may_goto on
        goto again
        on:
        *(u64 *)(r2 + 8) = r3
        r4 = *(u32 *)(r2 + 0)
        r0 = 0
        if w4 != w1 goto out
        r0 = 1
        out:
        exit",
    );
    let entry = code
        .insns()
        .iter()
        .position(|insn| matches!(insn, Insn::Exit));
    let callback = entry.expect("an exit") as u32 + 1;
    let call = code
        .insns()
        .iter()
        .position(|insn| matches!(insn, Insn::Call { .. }));
    let call = call.expect("a call");
    let place = |pc: usize, base: Reg, off: i16| {
        let off = i64::from(off);
        let (region, offset) = match (pc < callback as usize, base.index()) {
            (true, 6) => (Region::Memory, off),
            (true, _) => (Region::Stack { frame: 0 }, off),
            (false, 2) => (Region::Stack { frame: 0 }, off - 16),
            (false, _) => (Region::Stack { frame: 1 }, off),
        };
        InsnFact::Access(at(
            region,
            Some(offset),
            1 << offset.trailing_zeros().min(3),
        ))
    };
    let calls = [(0, call as u32, 1)];
    let facts = functions(
        &code,
        &[(0, 0), (callback, 1)],
        &calls,
        |pc, insn| match *insn {
            Insn::Load { base, off, .. } | Insn::Store { base, off, .. } => place(pc, base, off),
            Insn::Call { .. } => InsnFact::Call(CallFact {
                helper: HelperId::Loop,
                map: None,
                args: [
                    ArgFact::Scalar {
                        value: None,
                        max: u64::MAX,
                    },
                    ArgFact::Callback,
                    ArgFact::Pointer(at(Region::Stack { frame: 0 }, Some(-16), 8)),
                    ArgFact::Scalar {
                        value: None,
                        max: u64::MAX,
                    },
                    ArgFact::Unused,
                ],
                memory: None,
                strings: None,
                text: None,
            }),
            Insn::Jump { .. } => InsnFact::Branch {
                taken: true,
                falls: true,
                null_check: false,
            },
            _ => InsnFact::Plain,
        },
    );
    (code, facts)
}

#[test]
fn loops_call_back() {
    let (code, facts) = loop_program();
    let fragment = compile_code(&code, &facts, &env()).expect("code");
    assert_eq!(fragment.local_bytes, 0, "{}", fragment.body);
    // Rounds, the round that stops, flags; and what comes back.
    let cases = [
        (0, 9, 0, 0),
        (5, 9, 0, 5),
        (5, 2, 0, 3),
        (5, 4, 0, 5),
        // 32 bits count.
        (7 << 32 | 2, 9, 0, 2),
        (u64::from(MAX_LOOPS), 3, 0, 4),
        (u64::from(MAX_LOOPS) + 1, 3, 0, E2BIG as u64),
        (u64::from(MAX_LOOPS) + 1, 3, 1, EINVAL as u64),
        (1, 3, 1 << 40, EINVAL as u64),
    ];
    for (rounds, stop, flags, expected) in cases {
        let mut memory = Vec::new();
        for word in [rounds, stop, flags] {
            memory.extend(word.to_le_bytes());
        }
        memory.resize(SIZE as usize, 0);
        assert_eq!(interpret(&code, &memory).1, expected);
        check(&code, &facts, &memory);
    }
}

/// The numbers of an iterator, summed up in base 100 with the result of `new`.
#[test]
fn iterators_count() {
    let code = assemble(
        "r6 = r1
        r7 = 0
        r1 = r10
        r1 += -8
        r2 = *(u32 *)(r6 + 0)
        r3 = *(u32 *)(r6 + 4)
        call kfunc[1]
        *(u32 *)(r6 + 8) = r0
        again:
        r1 = r10
        r1 += -8
        call kfunc[2]
        if r0 == 0 goto done
        r1 = *(s32 *)(r0 + 0)
        r7 *= 100
        r7 += r1
        goto again
        done:
        r1 = r10
        r1 += -8
        call kfunc[2]
        if r0 != 0 goto wrong
        r1 = r10
        r1 += -8
        call kfunc[3]
        r0 = r7
        exit
        wrong:
        r0 = -1
        exit",
    );
    let iterator = at(Region::Stack { frame: 0 }, Some(-8), 8);
    let facts_of = |place: Place| {
        functions(&code, &[(0, 0)], &[], |_, insn| match *insn {
            Insn::Load { base, off, .. } | Insn::Store { base, off, .. } if base == reg(6) => {
                InsnFact::Access(at(Region::Memory, Some(off.into()), 4))
            }
            Insn::Load { .. } | Insn::Call { .. } => InsnFact::Access(place),
            Insn::Jump { .. } => InsnFact::Branch {
                taken: true,
                falls: true,
                null_check: true,
            },
            _ => InsnFact::Plain,
        })
    };
    let promoted = compile_code(&code, &facts_of(iterator), &env()).expect("code");
    assert_eq!(promoted.local_bytes, 0, "{}", promoted.body);
    let min = i32::MIN;
    let cases: [(i32, i32, i64, u64); 10] = [
        (3, 6, 0, 3_04_05),
        (0, 0, 0, 0),
        (-2, 1, 0, (-20_100i64) as u64),
        (5, 4, EINVAL, 0),
        (0, MAX_LOOPS as i32 + 1, E2BIG, 0),
        (min, i32::MAX, E2BIG, 0),
        (min, min + 1, 0, i64::from(min) as u64),
        (min, min, 0, 0),
        (i32::MAX - 1, i32::MAX, 0, i64::from(i32::MAX - 1) as u64),
        (i32::MAX, min, EINVAL, 0),
    ];
    for place in [
        iterator,
        Place {
            offset: None,
            ..iterator
        },
    ] {
        let facts = facts_of(place);
        for (start, end, new, sum) in cases {
            let mut memory = vec![0; SIZE as usize];
            memory[..4].copy_from_slice(&start.to_le_bytes());
            memory[4..8].copy_from_slice(&end.to_le_bytes());
            let (bytes, result) = emulate(&code, &facts, &memory);
            assert_eq!(bytes[8..12], (new as i32).to_le_bytes(), "{start}..{end}");
            assert_eq!(result, sum, "{start}..{end}");
        }
    }
}

/// What the callback of `for_each` may see of one element.
struct Element {
    key: u64,
    value: u64,
}

/// Walks over map 0. The callback folds key and value into `ctx + 8`, adds the key to the value,
/// looks its own key up and subtracts 1 from what it finds, and stops at the key in `ctx + 0`.
fn walk(env: &Env) -> (Code, Facts) {
    let code = assemble(
        "r6 = r1
        *(u64 *)(r10 - 8) = 0
        r1 = *(u64 *)(r6 + 0)
        *(u64 *)(r10 - 16) = r1
        r1 = map[0]
        r2 = subprog[callback]
        r3 = r10
        r3 += -16
        r4 = *(u64 *)(r6 + 8)
        call 164
        r1 = *(u64 *)(r10 - 8)
        *(u64 *)(r6 + 24) = r1
        exit
        callback:
        r6 = r2
        r7 = r4
        r8 = *(u16 *)(r2 + 0)
        r5 = *(u8 *)(r2 + 3)
        r5 <<= 24
        r8 |= r5
        r5 = r8
        r5 &= 2
        r2 += r5
        r5 = *(s8 *)(r2 + 0)
        r2 = *(u64 *)(r3 + 0)
        r1 = *(u64 *)(r7 + 8)
        r1 *= 10
        r1 += r2
        r1 += r8
        r1 += r5
        *(u64 *)(r7 + 8) = r1
        lock *(u64 *)(r3 + 0) += r8
        r1 = map[0]
        r2 = r6
        call 1
        if r0 == 0 goto none
        r1 = -1
        lock *(u64 *)(r0 + 0) += r1
        none:
        r1 = *(u64 *)(r7 + 0)
        r0 = 0
        if r1 != r8 goto out
        r0 = 1
        out:
        exit",
    );
    let positions = |wanted: fn(&Insn) -> bool| -> Vec<usize> {
        let all = code.insns().iter().enumerate();
        all.filter(|(_, insn)| wanted(insn))
            .map(|(i, _)| i)
            .collect()
    };
    let exit = positions(|insn| matches!(insn, Insn::Exit))[0];
    let calls = positions(|insn| matches!(insn, Insn::Call { .. }));
    let varying = positions(|insn| matches!(insn, Insn::Load { signed: true, .. }))[0];
    let stack = |offset: i64| {
        let align = 1 << offset.trailing_zeros().min(3);
        at(Region::Stack { frame: 0 }, Some(offset), align)
    };
    let key = Region::MapKey { map: 0 };
    let scalar = ArgFact::Scalar {
        value: None,
        max: u64::MAX,
    };
    let place = |pc: usize, base: usize, off: i16| match (pc > exit, base) {
        (false, 6) => at(Region::Memory, Some(off.into()), 8),
        (false, _) => stack(off.into()),
        (true, 2) if pc == varying => at(key, None, 2),
        (true, 2) => at(
            key,
            Some(off.into()),
            1 << i64::from(off).trailing_zeros().min(3),
        ),
        (true, 7) => stack(i64::from(off) - 16),
        (true, _) => at(Region::MapValue { map: 0 }, Some(off.into()), 8),
    };
    let none = ArgFact::Unused;
    let facts = functions(
        &code,
        &[(0, 0), (exit as u32 + 1, 1)],
        &[(0, calls[0] as u32, 1)],
        |pc, insn| match *insn {
            Insn::Load { base, off, .. }
            | Insn::Store { base, off, .. }
            | Insn::Atomic { base, off, .. } => InsnFact::Access(place(pc, base.index(), off)),
            Insn::Call { .. } if pc == calls[0] => InsnFact::Call(CallFact {
                helper: HelperId::ForEachMapElem,
                map: Some(0),
                args: [
                    ArgFact::Map(0),
                    ArgFact::Callback,
                    ArgFact::Pointer(stack(-16)),
                    scalar,
                    none,
                ],
                memory: None,
                strings: None,
                text: None,
            }),
            Insn::Call { .. } => InsnFact::Call(CallFact {
                helper: HelperId::MapLookupElem,
                map: Some(0),
                args: [
                    ArgFact::Map(0),
                    ArgFact::Pointer(at(key, Some(0), 8)),
                    none,
                    none,
                    none,
                ],
                memory: None,
                strings: None,
                text: None,
            }),
            Insn::Jump { .. } => InsnFact::Branch {
                taken: true,
                falls: true,
                null_check: false,
            },
            _ => InsnFact::Plain,
        },
    );
    let fragment = compile_code(&code, &facts, env).expect("code");
    assert_eq!(fragment.local_bytes, 0, "{}", fragment.body);
    (code, facts)
}

fn env_with(layout: MapLayout) -> Env {
    let mut env = env();
    env.maps = vec![MapBinding {
        slot: slot::FIRST_MAP,
        session_index: 0,
        layout,
        inner: None,
    }];
    let Input::Memory { slot, .. } = &mut env.input else {
        return env;
    };
    *slot = slot::FIRST_MAP + 1;
    env
}

/// What the walk leaves in the context, and how many calls it makes.
fn expected(elements: &[Element], stop: u64) -> (u64, u64) {
    let (mut sum, mut calls) = (0u64, 0);
    for Element { key, value } in elements {
        // The callback takes byte 2 for 0, as it is in all keys here.
        let signed = key.to_le_bytes()[(key & 2) as usize] as i8;
        sum = sum
            .wrapping_mul(10)
            .wrapping_add(*value)
            .wrapping_add(*key)
            .wrapping_add(signed as u64);
        calls += 1;
        if *key == stop {
            break;
        }
    }
    (sum, calls)
}

/// Runs the walk on a map with those elements; `write` says where a value lies in the map's bytes.
fn check_walk(layout: MapLayout, elements: &[Element], bytes: &[u8], place: impl Fn(u64) -> u64) {
    let env = env_with(layout);
    let (code, facts) = walk(&env);
    let word = |bytes: &[u8], at: u64| {
        let at = at as usize;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let stops = [elements[elements.len() / 2].key, u64::MAX];
    for (stop, flags) in [(stops[0], 0), (stops[1], 0), (stops[1], 7u64)] {
        let mut memory = Vec::new();
        memory.extend(stop.to_le_bytes());
        memory.extend(flags.to_le_bytes());
        memory.resize(SIZE as usize, 0);
        let mut areas = vec![bytes.to_vec()];
        let (after, result) = emulate_with(&env, &code, &facts, &memory, &mut areas, 1);
        let (sum, calls) = if flags == 0 {
            expected(elements, stop)
        } else {
            (0, EINVAL as u64)
        };
        assert_eq!(result, calls, "calls until {stop}");
        assert_eq!(word(&after, 24), sum, "sum until {stop}");
        for (i, element) in elements.iter().enumerate() {
            let seen = flags == 0 && (i as u64) < calls;
            let change = if seen { element.key.wrapping_sub(1) } else { 0 };
            assert_eq!(
                word(&areas[0], place(element.key)),
                element.value.wrapping_add(change),
                "value of {}",
                element.key
            );
        }
    }
}

#[test]
fn arrays_are_walked_by_index() {
    for shards in [1, 4] {
        let layout = ArrayLayout {
            max_entries: 6,
            value_size: 12,
            shards,
            summed: false,
        };
        // The soft GPU runs one SM: the others' copies stay as they are.
        let mut bytes = vec![0x55; layout.size() as usize];
        let elements: Vec<Element> = (0..6)
            .map(|key| Element {
                key,
                value: key * 5 + 3,
            })
            .collect();
        for element in &elements {
            let at = layout.value(0, element.key as u32) as usize;
            bytes[at..at + 8].copy_from_slice(&element.value.to_le_bytes());
        }
        check_walk(MapLayout::Array(layout), &elements, &bytes, |key| {
            layout.value(0, key as u32)
        });
    }
}

#[test]
fn per_thread_arrays_are_walked_in_the_own_column() {
    let layout = PerThreadLayout {
        max_entries: 4,
        value_size: 8,
        threads: 3,
    };
    let mut bytes = vec![0; layout.size() as usize];
    let elements: Vec<Element> = (0..4)
        .map(|key| Element {
            key,
            value: key + 70,
        })
        .collect();
    for element in &elements {
        let at = layout.value(element.key as u32, 0) as usize;
        bytes[at..at + 8].copy_from_slice(&element.value.to_le_bytes());
    }
    check_walk(MapLayout::PerThread(layout), &elements, &bytes, |key| {
        layout.value(key as u32, 0)
    });
    // A thread that the map does not know has no elements.
    let stranger = PerThreadLayout {
        threads: 0,
        ..layout
    };
    let env = env_with(MapLayout::PerThread(stranger));
    let (code, facts) = walk(&env);
    let mut areas = vec![vec![0; 128]];
    let (_, result) = emulate_with(&env, &code, &facts, &[0; 60], &mut areas, 1);
    assert_eq!(result, 0);
    assert_ne!(areas[0][0], 0, "counted");
}

/// [`hash_in_memory`] with dense slots.
fn dense_in_memory(layout: &HashLayout) -> (Vec<u8>, Vec<(u64, u64)>) {
    let mask = layout.slots() - 1;
    let (mut slots, mut places) = (BTreeMap::new(), BTreeMap::new());
    for (distance, key) in [17u64, 4, 0x0100_0203, 99, 2].into_iter().enumerate() {
        let (hash, distance) = (hash(&(key as u32).to_le_bytes()), distance as u64 * 31);
        let slot = hash.wrapping_add(distance) & mask;
        let gone = if key == 99 { HashLayout::GONE } else { 0 };
        slots.insert(slot, (layout.dense_word(hash, distance) | gone, key + 1000));
        if key != 99 {
            let value_at = layout.slot(slot) + HashLayout::DENSE_VALUE;
            places.insert(slot, (key, value_at));
        }
        // Between there and where its probe begins, keys that are gone.
        for slot in (0..distance).map(|i| hash.wrapping_add(i) & mask) {
            let other = layout.dense_word(u64::MAX << 20 | slot, 0) | HashLayout::GONE;
            slots.entry(slot).or_insert((other, 5));
        }
    }
    assert_eq!(places.len(), 4);
    // Somebody is about to insert here.
    let free = (0..layout.slots()).find(|slot| !slots.contains_key(slot));
    let claim = layout.dense_word(77, 0) | HashLayout::MAKING;
    slots.insert(free.expect("a slot"), (claim, 0));
    let mut bytes = vec![0; layout.size() as usize];
    for (slot, (word, value)) in slots {
        let at = layout.slot(slot) as usize;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
    }
    (bytes, places.into_values().collect())
}

/// A hash in memory with five keys, one of which was deleted, and where the values of the others
/// are, by slot.
fn hash_in_memory(layout: &HashLayout) -> (Vec<u8>, Vec<(u64, u64)>) {
    let mut bytes = vec![0; layout.size() as usize];
    let mut slots = BTreeMap::new();
    let mut put = |at: u64, word: u64| {
        bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    };
    for (node, key) in [17u64, 4, 0x0100_0203, 99, 2].into_iter().enumerate() {
        let hash = hash(&(key as u32).to_le_bytes());
        let slot = hash & (layout.slots() - 1);
        // Nodes of the pool and homes in turn.
        let low = match node % 2 {
            0 if layout.homes() => HashLayout::HOME,
            _ => HashLayout::FIRST_NODE + node as u64,
        };
        let word = hash >> 32 << 32 | low;
        let at = layout.node_of(slot, word).expect("a node");
        // Its node is as it was.
        let word = if key == 99 {
            word | HashLayout::DEAD
        } else {
            word
        };
        put(layout.slot(slot), word);
        put(at, key);
        put(at + layout.key_stride(), key + 1000);
        if key != 99 {
            assert!(
                slots
                    .insert(slot, (key, at + layout.key_stride()))
                    .is_none()
            );
        }
    }
    // Somebody is about to insert here.
    let free = (0..layout.slots()).find(|slot| !slots.contains_key(slot) && *slot > 0);
    put(
        layout.slot(free.expect("a slot")),
        77 << 32 | HashLayout::CLAIMED,
    );
    (bytes, slots.into_values().collect())
}

#[test]
fn hashes_are_walked_by_slot() {
    for (value_size, dense) in [(8, false), (80, false), (8, true)] {
        let layout = HashLayout {
            max_entries: 8,
            key_size: 4,
            value_size,
            copies: 1,
            dense,
        };
        let (bytes, places) = match dense {
            true => dense_in_memory(&layout),
            false => hash_in_memory(&layout),
        };
        let elements: Vec<Element> = places
            .iter()
            .map(|(key, _)| Element {
                key: *key,
                value: key + 1000,
            })
            .collect();
        let places: BTreeMap<u64, u64> = places.into_iter().collect();
        check_walk(MapLayout::Hash(layout), &elements, &bytes, |key| {
            places[&key]
        });
        // A map of fewer entries than it holds at the moment: no more calls than it has entries.
        let small = HashLayout {
            max_entries: 3,
            ..layout
        };
        assert_eq!(small.slots(), layout.slots());
        let env = env_with(MapLayout::Hash(small));
        let (code, facts) = walk(&env);
        let mut memory = vec![0; SIZE as usize];
        memory[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut areas = vec![bytes];
        let (_, result) = emulate_with(&env, &code, &facts, &memory, &mut areas, 1);
        assert_eq!(result, 3);
    }
}

#[test]
fn lru_hashes_are_walked_by_slot() {
    let layout = LruLayout {
        max_entries: 8,
        key_size: 4,
        value_size: 8,
        copies: 1,
    };
    let mut bytes = vec![0; layout.size() as usize];
    let mut put = |at: u64, word: u64| {
        bytes[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    };
    let mut slots = BTreeMap::new();
    for (node, key) in [17u64, 4, 0x0100_0203, 2].into_iter().enumerate() {
        let hash = hash(&(key as u32).to_le_bytes());
        let (node, slot) = (
            node as u64,
            layout.slot(hash & (layout.buckets() - 1), 3 + node as u64),
        );
        let at = layout.node(node);
        let tag = hash >> LruLayout::TAG_SHIFT << LruLayout::TAG_SHIFT;
        // With a lap, which a walk does not look at.
        put(slot, tag | 9 << LruLayout::LAP_SHIFT | (node + 1));
        put(at + LruLayout::KEY, key);
        let value = at + LruLayout::KEY + layout.key_stride();
        put(value, key + 1000);
        slots.insert(slot, (key, value));
    }
    let elements: Vec<Element> = slots
        .values()
        .map(|(key, _)| Element {
            key: *key,
            value: key + 1000,
        })
        .collect();
    let places: BTreeMap<u64, u64> = slots.into_values().collect();
    // One that is empty, in another lap.
    put(LruLayout::SLOTS, 8 << LruLayout::LAP_SHIFT);
    check_walk(MapLayout::Lru(layout), &elements, &bytes, |key| {
        places[&key]
    });
}
