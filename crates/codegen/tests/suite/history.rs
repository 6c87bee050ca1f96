//! Histories of maps, of random operations under random schedules. Few lanes note when each
//! operation began and returned: there must be one order of all of them, in which each stands
//! between its call and its return, and in which a map of one lane would have said the same: for
//! each key of a hash, for a queue, for a stack (docs/maps.md). Of many lanes the sums must be
//! right.
//!
//! The search is the usual one for linearizability: any operation that began before the first
//! return of those left may come next; what was left of operations and map is never looked at
//! twice.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use crate::common::{self, Case, Device, clang};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use warpbpf_abi::layout::{MapLayout, QueueLayout};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, ENOENT, MapType};
use warpbpf_object::Program;
use warpbpf_softgpu::Config;

/// Threads of a history, and operations of each.
const THREADS: usize = 6;
const PER_THREAD: usize = 6;
/// Threads where only sums are looked at.
const STRESS_THREADS: usize = 192;
/// Workloads and schedules of each kind of map.
const CASES: u32 = 40;
/// Situations after which a search is given up: none of these needs a hundredth.
const MOST: usize = 4_000_000;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum What {
    Lookup,
    Update,
    Delete,
    Push,
    Pop,
    Peek,
}

/// An operation of a thread, before it is done.
#[derive(Debug, Clone, Copy)]
struct Todo {
    what: What,
    flags: u64,
    key: u64,
}

/// One that was done.
#[derive(Debug, Clone, Copy)]
struct Done {
    what: What,
    flags: u64,
    key: u64,
    /// What it wrote: a number that no other writes.
    value: u64,
    result: i64,
    /// What it gave, where it gives something.
    found: Option<u64>,
    began: u64,
    ended: u64,
}

/// A map of one lane.
trait Model: Clone + Ord {
    /// Does an operation: false if it would not have said that.
    fn accepts(&mut self, done: &Done) -> bool;
}

/// One key of a hash, with values that are whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key(Option<u64>);

impl Model for Key {
    fn accepts(&mut self, done: &Done) -> bool {
        match done.what {
            What::Lookup => done.found == self.0,
            What::Update => {
                let result = match (done.flags, self.0) {
                    (BPF_NOEXIST, Some(_)) => EEXIST,
                    (BPF_EXIST, None) => ENOENT,
                    _ => 0,
                };
                if result == 0 {
                    self.0 = Some(done.value);
                }
                done.result == result
            }
            What::Delete => done.result == self.0.take().map_or(ENOENT, |_| 0),
            What::Push | What::Pop | What::Peek => false,
        }
    }
}

/// A queue or a stack. Room is no part of it: who finds none is told so, and has done nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct List {
    lifo: bool,
    values: VecDeque<u64>,
}

impl Model for List {
    fn accepts(&mut self, done: &Done) -> bool {
        let next = if self.lifo {
            self.values.back()
        } else {
            self.values.front()
        };
        let next = next.copied();
        match done.what {
            What::Push => {
                self.values.push_back(done.value);
                done.result == 0
            }
            What::Pop | What::Peek => {
                if done.what == What::Pop && self.lifo {
                    self.values.pop_back();
                } else if done.what == What::Pop {
                    self.values.pop_front();
                }
                done.found == next && done.result == next.map_or(ENOENT, |_| 0)
            }
            What::Lookup | What::Update | What::Delete => false,
        }
    }
}

/// There is an order in which the model says all that.
fn is_linearizable<M: Model>(model: M, history: &[Done]) -> bool {
    assert!(history.len() <= 64, "a word has a bit for each");
    let all = u64::MAX.checked_shr(64 - history.len() as u32).unwrap_or(0);
    let mut seen = BTreeSet::new();
    let mut stack = vec![(0u64, model)];
    while let Some((done, model)) = stack.pop() {
        if done == all {
            return true;
        }
        let left = || (0..history.len()).filter(|i| done >> i & 1 == 0);
        let first_return = left().map(|i| history[i].ended).min();
        for i in left().filter(|&i| Some(history[i].began) < first_return) {
            let (mut next, done) = (model.clone(), done | 1 << i);
            if next.accepts(&history[i]) && seen.insert((done, next.clone())) {
                stack.push((done, next));
            }
        }
        assert!(seen.len() < MOST, "too many situations: {history:?}");
    }
    false
}

/// Two operations were under way at once.
fn overlaps(history: &[Done]) -> usize {
    let pairs = history.iter().enumerate();
    pairs
        .map(|(i, a)| {
            let later = history[i + 1..].iter();
            later
                .filter(|b| a.began < b.ended && b.began < a.ended)
                .count()
        })
        .sum()
}

/// Words of a record: what, flags, key, value, result, whether something was found and what, began,
/// ended.
const RECORD: usize = 9;

/// A program in which each thread does its operations from an array. A value is `words` times the
/// same number; one that is not is told as a result that cannot be.
fn machine(map_type: MapType, entries: u32, words: usize, threads: usize) -> Case<Program> {
    let is_list = matches!(map_type, MapType::Queue | MapType::Stack);
    let key = match map_type {
        _ if is_list => "",
        // Of the same bytes.
        MapType::Array | MapType::GpuArray | MapType::GpuHostArray => "__type(key, __u32);",
        _ => "__type(key, __u64);",
    };
    let act = if is_list {
        r"
        if (op->what == 3) {
            op->result = bpf_map_push_elem(&table, &value, op->flags);
        } else {
            op->result = op->what == 4 ? bpf_map_pop_elem(&table, &value) : bpf_map_peek_elem(&table, &value);
            op->is_found = op->result == 0;
            op->found = value.w[0];
        }"
    } else {
        r"
        if (op->what == 1) {
            op->result = bpf_map_update_elem(&table, &op->key, &value, op->flags);
        } else if (op->what == 2) {
            op->result = bpf_map_delete_elem(&table, &op->key);
        } else {
            struct value *v = bpf_map_lookup_elem(&table, &op->key);
            if (v)
                value = *v;
            op->is_found = v != 0;
            op->found = value.w[0];
        }"
    };
    let source = format!(
        r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct value {{ __u64 w[{words}]; }};
struct operation {{
    __u64 what, flags, key, value;
    __s64 result;
    __u64 is_found, found, began, ended;
}};
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, {operations});
    __type(key, __u32);
    __type(value, struct operation);
}} operations SEC(".maps");
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
}} clock SEC(".maps");
struct {{
    __uint(type, {number});
    __uint(max_entries, {entries});
    {key}
    __type(value, struct value);
}} table SEC(".maps");
SEC("gpu/entry/*")
int run(struct wbpf_kernel_ctx *ctx)
{{
    __u32 thread = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
    for (__u32 i = 0; i < {PER_THREAD}; i++) {{
        __u32 at = thread * {PER_THREAD} + i, zero = 0;
        struct operation *op = bpf_map_lookup_elem(&operations, &at);
        __u64 *now = bpf_map_lookup_elem(&clock, &zero);
        struct value value;
        if (!op || !now)
            return 0;
        for (int w = 0; w < {words}; w++)
            value.w[w] = op->value;
        op->began = __sync_fetch_and_add(now, 1);
        {act}
        op->ended = __sync_fetch_and_add(now, 1);
        for (int w = 1; w < {words}; w++)
            if (value.w[w] != value.w[0])
                op->result = 1;
    }}
    return 0;
}}
"#,
        operations = threads * PER_THREAD,
        number = map_type as u32,
    );
    let name = format!("history-{}-{entries}-{words}-{threads}", map_type.name());
    let object = clang(&name, &source, "v3");
    if !is_list {
        return Case::object(&object, 1);
    }
    let maps = object.maps.iter().map(|def| {
        let layout = match MapType::from_number(def.map_type) {
            Some(MapType::Array) => common::array(def.value_size, def.max_entries).1,
            _ => MapLayout::Queue(QueueLayout {
                max_entries: entries,
                value_size: words as u32 * 8,
                lifo: map_type == MapType::Stack,
            }),
        };
        (def.clone(), layout)
    });
    Case::prove(object.programs[0].clone(), maps.collect(), None)
}

/// A device with a schedule. With one multiprocessor the seed says all of it; several are run by
/// two threads of the host, and then nobody foresees how they meet.
fn device(case: &Case<Program>, seed: u64, sms: u32) -> Device {
    let config = Config {
        sms,
        threads: sms.min(2) as usize,
        seed: Some(seed),
        memory: 1 << 25,
        step_limit: Some(100_000_000),
        ..Config::default()
    };
    Device::new(case, config)
}

/// Does the operations, each thread its own one after the other.
fn run(device: &Device, todo: &[Todo], block: usize) -> Vec<Done> {
    let mut bytes = Vec::new();
    for (i, op) in todo.iter().enumerate() {
        let mut words = [0; RECORD];
        words[..4].copy_from_slice(&[op.what as u64, op.flags, op.key, i as u64 + 1]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    // Area 0 is the environment; maps are in the order of their first use.
    device.write(1, 0, &bytes);
    let blocks = todo.len() / PER_THREAD / block;
    device.launch([blocks as u32, 1, 1], [block as u32, 1, 1]);
    let ran = device.maps();
    let done = todo.iter().enumerate().map(|(i, op)| {
        let word = |at: usize| ran.u64(0, ((i * RECORD + at) * 8) as u64);
        Done {
            what: op.what,
            flags: op.flags,
            key: op.key,
            value: word(3),
            result: word(4) as i64,
            found: (word(5) != 0).then(|| word(6)),
            began: word(7),
            ended: word(8),
        }
    });
    done.collect()
}

/// Those that did something: who was overtaken too often, or found no room, was told so.
fn effective(history: &[Done]) -> Vec<Done> {
    let refused = |done: &&Done| match done.what {
        What::Update | What::Push => [EBUSY, E2BIG].contains(&done.result),
        What::Delete | What::Pop | What::Peek => done.result == EBUSY,
        What::Lookup => false,
    };
    history
        .iter()
        .filter(|done| !refused(done))
        .copied()
        .collect()
}

/// Tries workloads of these operations; each history is handed to `check`. Lanes must have met, and
/// most operations been done.
fn try_all(
    cases: &[Case<Program>],
    op: impl Strategy<Value = Todo>,
    check: impl Fn(&[Done]) -> bool,
) {
    let workload = prop::collection::vec(op, THREADS * PER_THREAD);
    let schedule = (any::<u64>(), prop_oneof![Just(1u32), Just(3)]);
    // Lanes of one warp meet most, as a schedule parts them anywhere.
    let block = prop_oneof![Just(2usize), Just(3), Just(6)];
    let input = (workload, schedule, 0..cases.len(), block);
    let config = Cases {
        cases: CASES,
        failure_persistence: None,
        ..Cases::default()
    };
    let (met, did, all) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let result = TestRunner::new(config).run(&input, |(todo, (seed, sms), case, block)| {
        let history = run(&device(&cases[case], seed, sms), &todo, block);
        let done = effective(&history);
        met.set(met.get() + overlaps(&done));
        did.set(did.get() + done.len());
        all.set(all.get() + history.len());
        prop_assert!(check(&done), "no order explains {history:#?}");
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(met.get() * 2 > all.get(), "{} pairs met", met.get());
    assert!(
        did.get() * 2 > all.get(),
        "{} of {} were done",
        did.get(),
        all.get()
    );
}

fn of_hash() -> impl Strategy<Value = Todo> {
    let update = (0..3u64).prop_map(|flags| (What::Update, flags));
    let what = prop_oneof![
        3 => update,
        2 => Just((What::Delete, 0)),
        2 => Just((What::Lookup, 0)),
    ];
    (what, 0..3u64).prop_map(|((what, flags), key)| Todo { what, flags, key })
}

fn of_list() -> impl Strategy<Value = Todo> {
    let what = prop_oneof![4 => Just(What::Push), 3 => Just(What::Pop), 1 => Just(What::Peek)];
    what.prop_map(|what| Todo {
        what,
        flags: BPF_ANY,
        key: 0,
    })
}

/// Keys are ordered each by itself, from nothing on.
fn by_key(history: &[Done]) -> bool {
    by_key_from(Key(None), history)
}

fn by_key_from(first: Key, history: &[Done]) -> bool {
    let mut keys: BTreeMap<u64, Vec<Done>> = BTreeMap::new();
    for done in history {
        keys.entry(done.key).or_default().push(*done);
    }
    keys.values().all(|key| is_linearizable(first.clone(), key))
}

/// A word of an array is there from the beginning, and stays.
#[test]
fn operations_on_an_element_of_an_array_have_an_order() {
    let what = prop_oneof![
        3 => (0..3u64).prop_map(|flags| (What::Update, flags)),
        3 => Just((What::Lookup, 0)),
    ];
    let op = (what, 0..3u64).prop_map(|((what, flags), key)| Todo { what, flags, key });
    let types = [MapType::Array, MapType::GpuArray, MapType::GpuHostArray];
    let cases = types.map(|map_type| machine(map_type, 3, 1, THREADS));
    try_all(&cases, op, |history| by_key_from(Key(Some(0)), history));
}

/// A large value is replaced by another node, so what a lookup found is what the key had then.
#[test]
fn operations_on_a_key_of_a_hash_have_an_order() {
    let cases = [2, 3, 16].map(|entries| machine(MapType::Hash, entries, 3, THREADS));
    try_all(&cases, of_hash(), by_key);
}

/// A small value is overwritten in place: a lookup gives a pointer, and what is read there may be a
/// later value. So here it only says whether the key is there.
#[test]
fn operations_on_a_key_with_a_small_value_have_an_order() {
    let cases = [3, 16].map(|entries| machine(MapType::Hash, entries, 1, THREADS));
    try_all(&cases, of_hash(), |history| {
        let whether: Vec<Done> = history
            .iter()
            .map(|done| Done {
                value: 1,
                found: done.found.map(|_| 1),
                ..*done
            })
            .collect();
        by_key(&whether)
    });
}

/// Large enough for no key to be dropped. Nodes are used again at once, so of a lookup it is known
/// only that the key was there.
#[test]
fn operations_on_a_key_of_an_lru_hash_have_an_order() {
    let cases = [machine(MapType::LruHash, 64, 1, THREADS)];
    try_all(&cases, of_hash(), |history| {
        let whether: Vec<Done> = history
            .iter()
            .map(|done| Done {
                value: 1,
                found: done.found.map(|_| 1),
                ..*done
            })
            .collect();
        by_key(&whether)
    });
}

#[test]
fn operations_on_a_queue_have_an_order() {
    let cases = [1, 3, 64].map(|entries| machine(MapType::Queue, entries, 3, THREADS));
    try_all(&cases, of_list(), |history| {
        is_linearizable(List::default(), history)
    });
}

#[test]
fn operations_on_a_stack_have_an_order() {
    let cases = [1, 3, 64].map(|entries| machine(MapType::Stack, entries, 3, THREADS));
    try_all(&cases, of_list(), |history| {
        let stack = List {
            lifo: true,
            ..List::default()
        };
        is_linearizable(stack, history)
    });
}

/// Random operations of many lanes, with a schedule.
fn stress(op: impl Strategy<Value = Todo>) -> impl Strategy<Value = (Vec<Todo>, u64, u32, usize)> {
    let workload = prop::collection::vec(op, STRESS_THREADS * PER_THREAD);
    let block = prop_oneof![Just(32usize), Just(48), Just(96)];
    (workload, any::<u64>(), 1..=4u32, block)
}

fn try_stress(
    op: impl Strategy<Value = Todo>,
    check: impl Fn(&[Todo], u64, u32, usize) -> Result<(), TestCaseError>,
) {
    let config = Cases {
        cases: 16,
        failure_persistence: None,
        ..Cases::default()
    };
    let result = TestRunner::new(config).run(&stress(op), |(todo, seed, sms, block)| {
        check(&todo, seed, sms, block)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// A key comes and goes: it is there in the end if it came once more than it went.
#[test]
fn stress_leaves_the_keys_that_came_and_did_not_go() {
    let what = prop_oneof![
        3 => Just((What::Update, BPF_NOEXIST)),
        3 => Just((What::Delete, 0)),
        1 => Just((What::Update, BPF_EXIST)),
        1 => Just((What::Lookup, 0)),
    ];
    let op =
        (what, 0..PER_THREAD as u64).prop_map(|((what, flags), key)| Todo { what, flags, key });
    let hash = machine(MapType::Hash, 64, 3, STRESS_THREADS);
    let small = machine(MapType::GpuHash, 64, 1, STRESS_THREADS);
    try_stress(op, |todo, seed, sms, block| {
        for case in [&hash, &small] {
            let device = device(case, seed, sms);
            let done = run(&device, todo, block);
            let look = |key| Todo {
                what: What::Lookup,
                flags: 0,
                key,
            };
            let looks: Vec<Todo> = (0..PER_THREAD as u64).map(look).collect();
            for there in run(&device, &looks, 1) {
                let of_key = || done.iter().filter(|done| done.key == there.key);
                let times = |what, flags| {
                    let right = |d: &&Done| d.what == what && d.flags == flags && d.result == 0;
                    of_key().filter(right).count()
                };
                let (came, went) = (times(What::Update, BPF_NOEXIST), times(What::Delete, 0));
                prop_assert_eq!(came, went + usize::from(there.found.is_some()));
                // What is there was written to this key.
                let written = |value| {
                    of_key().any(|d| d.what == What::Update && d.result == 0 && d.value == value)
                };
                prop_assert!(there.found.is_none_or(written), "{there:?}");
                let known = [0, EEXIST, ENOENT, EBUSY, E2BIG];
                prop_assert!(
                    of_key().all(|d| known.contains(&d.result)),
                    "a torn value, or a strange error"
                );
            }
        }
        Ok(())
    });
}

/// What was pushed comes out once, during the run or after it.
#[test]
fn stress_loses_no_value_and_gets_none_twice() {
    let lists: Vec<_> = [
        (MapType::Queue, 40),
        (MapType::Stack, 40),
        (MapType::Queue, 700),
        (MapType::Stack, 700),
    ]
    .map(|(map_type, entries)| machine(map_type, entries, 3, STRESS_THREADS))
    .into();
    try_stress(of_list(), |todo, seed, sms, block| {
        for case in &lists {
            let device = device(case, seed, sms);
            let done = run(&device, todo, block);
            let pop = Todo {
                what: What::Pop,
                flags: BPF_ANY,
                key: 0,
            };
            // By one thread, some at a time, until nothing is left.
            let mut left = Vec::new();
            loop {
                let popped = run(&device, &[pop; PER_THREAD], 1);
                left.extend(popped.iter().filter_map(|done| done.found));
                if popped.iter().any(|done| done.result == ENOENT) {
                    break;
                }
            }
            let pushed: BTreeSet<u64> = done
                .iter()
                .filter(|d| d.what == What::Push && d.result == 0)
                .map(|d| d.value)
                .collect();
            let popped = done
                .iter()
                .filter(|d| d.what == What::Pop)
                .filter_map(|d| d.found);
            let mut out: Vec<u64> = popped.chain(left).collect();
            out.sort_unstable();
            prop_assert_eq!(out, pushed.iter().copied().collect::<Vec<u64>>());
            let known = [0, ENOENT, EBUSY, E2BIG];
            prop_assert!(
                done.iter().all(|d| known.contains(&d.result)),
                "a torn value, or a strange error"
            );
        }
        Ok(())
    });
}

/// The search itself: histories that no map of one lane explains are found.
#[test]
fn wrong_histories_are_found() {
    let done = |what, value: u64, found: Option<u64>, result, began, ended| Done {
        what,
        flags: 0,
        key: 0,
        value,
        result,
        found,
        began,
        ended,
    };
    let push = |value, began, ended| done(What::Push, value, None, 0, began, ended);
    let pop = |value, began, ended| done(What::Pop, 0, Some(value), 0, began, ended);
    let none = |began, ended| done(What::Pop, 0, None, ENOENT, began, ended);
    let queue = |history: &[Done]| is_linearizable(List::default(), history);
    let stack = |history: &[Done]| {
        let stack = List {
            lifo: true,
            ..List::default()
        };
        is_linearizable(stack, history)
    };
    let in_a_row = [push(1, 0, 1), push(2, 2, 3), pop(1, 4, 5), pop(2, 6, 7)];
    assert!(queue(&in_a_row) && !stack(&in_a_row));
    let reversed = [push(1, 0, 1), push(2, 2, 3), pop(2, 4, 5), pop(1, 6, 7)];
    assert!(!queue(&reversed) && stack(&reversed));
    // Pushes at once may be in any order.
    let at_once = [push(1, 0, 3), push(2, 1, 2), pop(2, 4, 5), pop(1, 6, 7)];
    assert!(queue(&at_once) && stack(&at_once));
    // Something was there all the time: a pop that found nothing is wrong, unless it began before.
    assert!(!queue(&[push(1, 0, 1), none(2, 3), pop(1, 4, 5)]));
    assert!(queue(&[push(1, 1, 2), none(0, 3), pop(1, 4, 5)]));
    // Twice, and what nobody pushed.
    assert!(!queue(&[push(1, 0, 1), pop(1, 2, 3), pop(1, 4, 5)]));
    assert!(!queue(&[push(1, 0, 1), pop(9, 2, 3)]));
    let update = |value, began, ended| done(What::Update, value, None, 0, began, ended);
    let lookup = |found, began, ended| done(What::Lookup, 0, found, 0, began, ended);
    let key = |history: &[Done]| is_linearizable(Key(None), history);
    assert!(key(&[
        update(1, 0, 1),
        update(2, 2, 5),
        lookup(Some(1), 3, 4),
        lookup(Some(2), 6, 7)
    ]));
    // The new value and then the old one again.
    assert!(!key(&[
        update(1, 0, 1),
        update(2, 2, 7),
        lookup(Some(2), 3, 4),
        lookup(Some(1), 5, 6)
    ]));
    assert!(!key(&[
        update(1, 0, 1),
        update(2, 2, 3),
        lookup(Some(1), 4, 5)
    ]));
    let delete = |result, began, ended| done(What::Delete, 0, None, result, began, ended);
    assert!(!key(&[update(1, 0, 1), delete(0, 2, 3), delete(0, 4, 5)]));
    assert!(!key(&[update(1, 0, 1), delete(0, 2, 5), delete(0, 3, 4)]));
    assert!(key(&[
        update(1, 0, 1),
        delete(0, 2, 5),
        delete(ENOENT, 3, 4)
    ]));
    assert_eq!(overlaps(&at_once), 1);
}
