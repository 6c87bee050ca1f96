//! The hash family on the soft GPU. One lane at a time against a model, operation by operation;
//! then many lanes at once, under schedules that part warps anywhere: what must hold whatever
//! happens in between.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Case, Device, Ran, clang, table};
use warpbpf_abi::layout::{HashLayout, LruLayout, MapLayout, hash, unhash};
use warpbpf_abi::maps::{
    BPF_ANY, BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, EINVAL, ENOENT, MapType,
};
use warpbpf_codegen::Target;
use warpbpf_object::{Object, Program};
use warpbpf_softgpu::Config;

const TYPES: [MapType; 5] = [
    MapType::Hash,
    MapType::GpuHash,
    MapType::PercpuHash,
    MapType::LruHash,
    MapType::LruPercpuHash,
];
const SMS: u32 = 4;

fn config(seed: Option<u64>, sms: u32) -> Config {
    Config {
        sms,
        threads: 2,
        seed,
        memory: 1 << 27,
        step_limit: Some(200_000_000),
        ..Config::default()
    }
}

/// Where the maps of the programs are: in the order of their first use.
const OPERATIONS: usize = 0;
const TABLE: usize = 1;

/// Words of a key and of a value in an operation's record.
const KEY_WORDS: usize = 3;
const VALUE_WORDS: usize = 4;
/// Words of a record: what to do, flags, result, what was found, key, value.
const RECORD: usize = 3 + VALUE_WORDS + KEY_WORDS + VALUE_WORDS;

const LOOKUP: u64 = 1;
const UPDATE: u64 = 2;
const DELETE: u64 = 3;
/// Adds one to the first word of the value, if there is one.
const COUNT: u64 = 4;
/// Inserts a zero if the key is not there, and adds one.
const COUNT_NEW: u64 = 5;

/// An operation and what came of it.
#[derive(Clone, Copy, Default, Debug)]
struct Record {
    what: u64,
    flags: u64,
    result: i64,
    found: [u64; VALUE_WORDS],
    key: [u64; KEY_WORDS],
    value: [u64; VALUE_WORDS],
}

impl Record {
    fn new(what: u64, key: u64) -> Record {
        Record {
            what,
            key: spread(key),
            ..Record::default()
        }
    }
    fn update(key: u64, value: [u64; VALUE_WORDS], flags: u64) -> Record {
        Record {
            flags,
            value,
            ..Record::new(UPDATE, key)
        }
    }
    fn words(&self) -> [u64; RECORD] {
        let mut words = [0; RECORD];
        words[..3].copy_from_slice(&[self.what, self.flags, self.result as u64]);
        words[3..3 + VALUE_WORDS].copy_from_slice(&self.found);
        words[3 + VALUE_WORDS..][..KEY_WORDS].copy_from_slice(&self.key);
        words[3 + VALUE_WORDS + KEY_WORDS..].copy_from_slice(&self.value);
        words
    }
    fn read(ran: &Ran, at: u64) -> Record {
        let word = |i: usize| ran.u64(OPERATIONS, at + i as u64 * 8);
        Record {
            what: word(0),
            flags: word(1),
            result: word(2) as i64,
            found: std::array::from_fn(|i| word(3 + i)),
            key: std::array::from_fn(|i| word(3 + VALUE_WORDS + i)),
            value: std::array::from_fn(|i| word(3 + VALUE_WORDS + KEY_WORDS + i)),
        }
    }
}

/// A key whose words differ only together, so that one that is half another's is no key at all.
fn spread(key: u64) -> [u64; KEY_WORDS] {
    [key, key.wrapping_mul(3), key.wrapping_mul(5)]
}

/// A table, and a program in which each thread does `per_thread` operations from an array of
/// `threads * per_thread`.
fn machine(
    map_type: MapType,
    key_words: usize,
    value_words: usize,
    entries: u32,
    threads: u32,
    per_thread: u32,
) -> Case<Program> {
    let number = map_type as u32;
    let operations = threads * per_thread;
    let source = format!(
        r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct key {{ __u64 w[{key_words}]; }};
struct value {{ __u64 w[{value_words}]; }};
struct operation {{
    __u64 what, flags;
    __s64 result;
    __u64 found[{VALUE_WORDS}], key[{KEY_WORDS}], value[{VALUE_WORDS}];
}};
struct {{
    __uint(type, {number});
    __uint(max_entries, {entries});
    __type(key, struct key);
    __type(value, struct value);
}} table SEC(".maps");
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, {operations});
    __type(key, __u32);
    __type(value, struct operation);
}} operations SEC(".maps");
SEC("gpu/entry/*")
int run(struct wbpf_kernel_ctx *ctx)
{{
    __u32 thread = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
    for (__u32 i = 0; i < {per_thread}; i++) {{
        __u32 at = thread * {per_thread} + i;
        struct operation *op = bpf_map_lookup_elem(&operations, &at);
        if (!op)
            return 0;
        void *key = op->key;
        struct value *v;
        if (op->what == {UPDATE}) {{
            op->result = bpf_map_update_elem(&table, key, op->value, op->flags);
            continue;
        }}
        if (op->what == {DELETE}) {{
            op->result = bpf_map_delete_elem(&table, key);
            continue;
        }}
        v = bpf_map_lookup_elem(&table, key);
        if (!v && op->what == {COUNT_NEW}) {{
            struct value zero = {{}};
            op->flags = bpf_map_update_elem(&table, key, &zero, BPF_NOEXIST);
            v = bpf_map_lookup_elem(&table, key);
        }}
        if (!v)
            continue;
        op->result = 1;
        if (op->what != {LOOKUP}) {{
            __sync_fetch_and_add(&v->w[0], 1);
            continue;
        }}
        for (int w = 0; w < {value_words}; w++)
            op->found[w] = v->w[w];
    }}
    return 0;
}}
"#
    );
    let name = format!(
        "hash-{}-{key_words}-{value_words}-{entries}-{threads}-{per_thread}",
        map_type.name()
    );
    let object: Object = clang(&name, &source, "v3");
    Case::object(&object, SMS)
}

/// The slots that such a table can have, and how they are published: a word beside the key, and
/// where keys and values fit, dense ones by claims and by 128-bit atomics.
fn shapes(case: &Case<Program>) -> Vec<Case<Program>> {
    let targets = [((6, 3), 75), ((8, 3), 90)].map(|(ptx, sm)| Target { ptx, sm });
    let dense = targets.map(|target| case.dense(target));
    let is_dense = |case: &Case<Program>| {
        case.env
            .maps
            .iter()
            .any(|map| matches!(map.layout, MapLayout::Hash(l) if l.dense))
    };
    let plain = case.dense(targets[0]);
    let plain = Case {
        maps: case.maps.clone(),
        env: case.env.clone(),
        ..plain
    };
    std::iter::once(plain)
        .chain(dense.into_iter().filter(is_dense))
        .collect()
}

/// The same, and each where no lane waits for another.
fn kinds(case: &Case<Program>) -> Vec<Case<Program>> {
    let shapes = shapes(case);
    let apart: Vec<_> = shapes.iter().map(Case::apart).collect();
    shapes.into_iter().chain(apart).collect()
}

/// Puts operations into the array.
fn give(device: &Device, records: &[Record]) {
    let bytes: Vec<u8> = records
        .iter()
        .flat_map(Record::words)
        .flat_map(u64::to_le_bytes)
        .collect();
    // Area 0 is the environment.
    device.write(OPERATIONS + 1, 0, &bytes);
}

/// What came of them.
fn answers(ran: &Ran, count: usize) -> Vec<Record> {
    (0..count)
        .map(|i| Record::read(ran, (i * RECORD * 8) as u64))
        .collect()
}

/// Does the operations, `threads` at a time.
fn run(
    case: &Case<Program>,
    config: Config,
    threads: u32,
    records: &[Record],
) -> (Vec<Record>, Ran) {
    let device = Device::new(case, config);
    give(&device, records);
    let block = threads.min(128);
    device.launch([threads / block, 1, 1], [block, 1, 1]);
    let ran = device.maps();
    (answers(&ran, records.len()), ran)
}

/// An entry of the table in memory: all words of the value, copy by copy.
type Contents = BTreeMap<u64, Vec<u64>>;

/// Keys and values; checks that no key is there twice, that each is where lookups find it, and the
/// counts.
fn contents(case: &Case<Program>, ran: &Ran) -> Contents {
    let layout = case.env.maps[TABLE].layout;
    let mut map = Contents::new();
    let mut add = |at: u64, key_bytes: u64, value_bytes: u64| {
        let key: Vec<u8> = ran.areas[TABLE][at as usize..(at + key_bytes) as usize].to_vec();
        let first = ran.u64(TABLE, at);
        assert_eq!(
            key,
            spread(first)
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .take(key.len())
                .collect::<Vec<u8>>(),
            "a torn key"
        );
        let values = (0..value_bytes / 8).map(|i| ran.u64(TABLE, at + key_bytes + i * 8));
        assert!(
            map.insert(first, values.collect()).is_none(),
            "key {first} is there twice"
        );
        hash(&key)
    };
    match layout {
        MapLayout::Hash(l) if l.dense => {
            map = dense_contents(&l, ran);
            check_used(ran, map.len());
        }
        MapLayout::Hash(l) => {
            let mut owners = BTreeSet::new();
            for slot in 0..l.slots() {
                let word = ran.u64(TABLE, l.slot(slot));
                if let Some(at) = l.node_of(slot, word) {
                    let value = l.value_stride() * u64::from(l.copies);
                    let hash = add(at, l.key_stride(), value);
                    assert_eq!(hash >> 32, word >> 32, "tag");
                    let reach = slot.wrapping_sub(hash) & (l.slots() - 1);
                    assert!((0..=reach).all(|i| {
                        ran.u64(TABLE, l.slot(hash.wrapping_add(i) & (l.slots() - 1))) != 0
                    }));
                } else if word != 0 {
                    // Nobody has left a claim behind.
                    assert_eq!(word & HashLayout::CLAIMED, HashLayout::DEAD, "{word:#x}");
                }
                let place = l.place_of(slot, word);
                assert_eq!(place.is_none(), word == 0, "{word:#x}");
                let key =
                    place.map(|at| ran.areas[TABLE][at as usize..][..l.key_size as usize].to_vec());
                if let Some(key) = key {
                    assert!(owners.insert(key), "two slots belong to one key");
                }
            }
            check_used(ran, map.len());
        }
        MapLayout::Lru(l) => {
            let mut nodes = BTreeSet::new();
            for slot in 0..l.slots() {
                let (bucket, way) = (slot / LruLayout::WAYS, slot % LruLayout::WAYS);
                let word = ran.u64(TABLE, l.slot(bucket, way));
                let Some(node) = l.node_of(word) else {
                    assert_eq!(word & !LruLayout::LAP_MASK, 0);
                    continue;
                };
                assert!(nodes.insert(node), "node {node} is there twice");
                let value = l.value_stride() * u64::from(l.copies);
                let hash = add(l.node(node) + LruLayout::KEY, l.key_stride(), value);
                assert_eq!(hash >> LruLayout::TAG_SHIFT, word >> LruLayout::TAG_SHIFT);
                assert_eq!(hash & (l.buckets() - 1), bucket);
            }
            let taken: BTreeSet<u64> = (0..l.nodes())
                .filter(|n| ran.u32(TABLE, l.taken_at() + n / 32 * 4) >> (n % 32) & 1 != 0)
                .collect();
            assert_eq!(nodes, taken, "nodes in use");
            assert_eq!(ran.u32(TABLE, LruLayout::LIVE) as usize, map.len());
            assert!(map.len() <= l.max_entries as usize, "too many keys");
        }
        other => panic!("{other:?}"),
    }
    map
}

/// The upper half counts what is pending: nothing.
fn check_used(ran: &Ran, keys: usize) {
    let used: i64 = (0..HashLayout::SHARDS)
        .map(|s| ran.u64(TABLE, HashLayout::control(s) + HashLayout::USED) as i64)
        .sum();
    assert_eq!(used, keys as i64, "counted keys");
}

/// [`contents`] of dense slots.
fn dense_contents(l: &HashLayout, ran: &Ran) -> Contents {
    let (mut map, mut owners) = (Contents::new(), BTreeSet::new());
    for slot in 0..l.slots() {
        let at = l.slot(slot);
        let (word, value) = (
            ran.u64(TABLE, at),
            ran.u64(TABLE, at + HashLayout::DENSE_VALUE),
        );
        if word == 0 {
            assert_eq!(value, 0, "an empty slot has no value");
            continue;
        }
        let key = l.dense_key(slot, word).expect("a key");
        assert!(owners.insert(key), "two slots belong to one key");
        let hash = hash(&key.to_le_bytes()[..l.key_size as usize]);
        let reach = slot.wrapping_sub(hash) & (l.slots() - 1);
        let alive = l.dense_word(hash, reach);
        assert!(
            (0..=reach)
                .all(|i| { ran.u64(TABLE, l.slot(hash.wrapping_add(i) & (l.slots() - 1))) != 0 })
        );
        // Nobody has left a claim behind.
        if word == alive {
            map.insert(key, vec![value]);
        } else {
            assert_eq!(word, alive | HashLayout::GONE, "{word:#x}");
        }
    }
    map
}

/// `(full, busy)` as the map counted them.
fn counted(case: &Case<Program>, ran: &Ran) -> (u64, u64) {
    match case.env.maps[TABLE].layout {
        MapLayout::Lru(_) => (
            ran.u64(TABLE, LruLayout::COUNT_FULL),
            ran.u64(TABLE, LruLayout::COUNT_BUSY),
        ),
        _ => (
            ran.u64(TABLE, HashLayout::COUNT_FULL),
            ran.u64(TABLE, HashLayout::COUNT_BUSY),
        ),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// One lane, all types, keys and values of several sizes: each result is the model's.
#[test]
fn one_lane_agrees_with_a_model() {
    const OPERATIONS: u32 = 96;
    for map_type in TYPES {
        for (key_words, value_words) in [(1, 1), (2, 3), (3, 4), (1, 2)] {
            let entries = 24;
            for case in kinds(&machine(
                map_type,
                key_words,
                value_words,
                entries,
                1,
                OPERATIONS,
            )) {
                for seed in 1..4 {
                    let mut random = Random(seed);
                    let records: Vec<Record> = (0..OPERATIONS)
                        .map(|_| {
                            let key = random.below(12);
                            let value = std::array::from_fn(|_| random.below(1 << 20));
                            match random.below(6) {
                                0 => Record::new(LOOKUP, key),
                                1 => Record::new(DELETE, key),
                                2 => Record::new(COUNT, key),
                                _ => Record::update(key, value, random.below(4)),
                            }
                        })
                        .collect();
                    let (answers, ran) = run(&case, config(Some(seed), 1), 1, &records);
                    let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
                    for (i, answer) in answers.iter().enumerate() {
                        let (key, there) = (answer.key[0], model.contains_key(&answer.key[0]));
                        let expected = match (answer.what, answer.flags) {
                            (UPDATE, 3) => EINVAL,
                            (UPDATE, BPF_NOEXIST) if there => EEXIST,
                            (UPDATE, BPF_EXIST) if !there => ENOENT,
                            (UPDATE, _) => {
                                model.insert(key, answer.value[..value_words].to_vec());
                                0
                            }
                            (DELETE, _) => model.remove(&key).map_or(ENOENT, |_| 0),
                            (COUNT, _) => model.get_mut(&key).map_or(0, |value| {
                                value[0] += 1;
                                1
                            }),
                            _ => i64::from(there),
                        };
                        assert_eq!(
                            answer.result,
                            expected,
                            "{} {i}: {answer:?}",
                            map_type.name()
                        );
                        if let (LOOKUP, Some(value)) = (answer.what, model.get(&key)) {
                            assert_eq!(answer.found[..value_words], value[..], "{i}: {answer:?}");
                        }
                    }
                    let found: BTreeMap<u64, Vec<u64>> = contents(&case, &ran)
                        .into_iter()
                        .map(|(key, values)| {
                            assert!(
                                values[value_words..].iter().all(|w| *w == 0),
                                "other copies"
                            );
                            (key, values[..value_words].to_vec())
                        })
                        .collect();
                    assert_eq!(found, model);
                    assert_eq!(counted(&case, &ran), (0, 0));
                }
            }
        }
    }
}

/// Each thread counts under keys that it shares with others. Exact, although all insert them at
/// once.
#[test]
fn counts_by_key_are_exact() {
    for map_type in TYPES {
        for (key_words, keys, entries) in [(1, 1, 4), (1, 16, 16), (2, 37, 64), (3, 96, 96)] {
            // An LRU map that is as large as its keys may drop one on the way.
            let lru = matches!(map_type, MapType::LruHash | MapType::LruPercpuHash);
            let entries = if lru { entries * 4 } else { entries };
            for case in kinds(&machine(map_type, key_words, 1, entries, 512, 2)) {
                let records: Vec<Record> = (0..1024)
                    .map(|i| Record::new(COUNT_NEW, i % keys))
                    .collect();
                for &seed in common::seeds() {
                    let (answers, ran) = run(&case, config(seed, SMS), 512, &records);
                    assert!(answers.iter().all(|a| a.result == 1), "{}", map_type.name());
                    let sums: BTreeMap<u64, u64> = contents(&case, &ran)
                        .into_iter()
                        .map(|(key, copies)| (key, copies.iter().sum()))
                        .collect();
                    let expected: BTreeMap<u64, u64> = (0..keys)
                        .map(|key| (key, (0..1024).filter(|i| i % keys == key).count() as u64))
                        .collect();
                    assert_eq!(sums, expected, "{}, {seed:?}", map_type.name());
                    assert_eq!(counted(&case, &ran), (0, 0));
                }
            }
        }
    }
}

/// Values of one SM are not another's.
#[test]
fn per_sm_values_are_the_callers() {
    for map_type in [MapType::PercpuHash, MapType::LruPercpuHash] {
        let case = machine(map_type, 1, 1, 16, 512, 1);
        let records: Vec<Record> = (0..512).map(|_| Record::new(COUNT_NEW, 5)).collect();
        let (_, ran) = run(&case, config(None, SMS), 512, &records);
        let copies = contents(&case, &ran).remove(&5).expect("the key");
        // Four blocks on four SMs.
        assert_eq!(copies, [128; 4]);
        // A program that runs where there are more SMs than copies shares the last one.
        let (_, ran) = run(&case, config(None, 8), 512, &records);
        let copies = contents(&case, &ran).remove(&5).expect("the key");
        assert_eq!(copies.iter().sum::<u64>(), 512);
    }
}

/// Of many inserts and deletes of the same keys, each key is there as often as it was put in and
/// not taken out: 0 or 1.
#[test]
fn inserts_and_deletes_balance() {
    for map_type in TYPES {
        for (key_words, value_words) in [(1, 1), (2, 1), (2, 3)] {
            for case in kinds(&machine(map_type, key_words, value_words, 2048, 256, 4)) {
                let mut random = Random(9);
                let records: Vec<Record> = (0..1024)
                    .map(|i| {
                        let key = random.below(6);
                        match i % 2 {
                            0 => Record::update(key, [i; VALUE_WORDS], BPF_NOEXIST),
                            _ => Record::new(DELETE, key),
                        }
                    })
                    .collect();
                for &seed in common::seeds() {
                    let (answers, ran) = run(&case, config(seed, SMS), 256, &records);
                    let map = contents(&case, &ran);
                    let mut balance: BTreeMap<u64, i64> = BTreeMap::new();
                    for a in &answers {
                        let expected = if a.what == UPDATE { EEXIST } else { ENOENT };
                        match a.result {
                            0 => {
                                *balance.entry(a.key[0]).or_default() +=
                                    if a.what == UPDATE { 1 } else { -1 };
                            }
                            other => assert_eq!(other, expected, "{} {a:?}", map_type.name()),
                        }
                    }
                    for (key, balance) in balance {
                        let there = i64::from(map.contains_key(&key));
                        assert_eq!(balance, there, "{} key {key}, {seed:?}", map_type.name());
                    }
                    assert_eq!(counted(&case, &ran), (0, 0));
                }
            }
        }
    }
}

/// A value of several words is overwritten as a whole: who looks it up sees one that was put there.
#[test]
fn large_values_are_never_torn() {
    for map_type in [MapType::Hash, MapType::GpuHash] {
        for key_words in [1, 3] {
            let case = machine(map_type, key_words, 4, 512, 256, 4);
            let records: Vec<Record> = (0..1024u64)
                .map(|i| {
                    let key = i / 7 % 3;
                    match i % 2 {
                        0 => Record::update(key, [i; VALUE_WORDS], i / 2 % 2 * BPF_EXIST),
                        _ => Record::new(LOOKUP, key),
                    }
                })
                .collect();
            for &seed in common::seeds() {
                let (answers, ran) = run(&case, config(seed, SMS), 256, &records);
                for a in &answers {
                    match a.what {
                        UPDATE if a.flags == BPF_EXIST => {
                            assert!(a.result == 0 || a.result == ENOENT, "{a:?}");
                        }
                        UPDATE => assert_eq!(a.result, 0, "{a:?}"),
                        _ if a.result == 1 => {
                            assert!(a.found.iter().all(|w| *w == a.found[0]), "{a:?}");
                            let from = a.found[0];
                            assert_eq!((from % 2, from / 7 % 3), (0, a.key[0]), "{a:?}");
                        }
                        _ => {}
                    }
                }
                for (key, value) in contents(&case, &ran) {
                    assert!(value.iter().all(|w| *w == value[0]), "{value:?}");
                    assert_eq!((value[0] % 2, value[0] / 7 % 3), (0, key));
                }
            }
        }
    }
}

/// A hash that is full says so, keeps what it has, and counts.
#[test]
fn a_full_hash_refuses_and_counts() {
    for map_type in [MapType::Hash, MapType::GpuHash, MapType::PercpuHash] {
        for entries in [1, 10, 40] {
            for case in kinds(&machine(map_type, 1, 1, entries, 128, 1)) {
                let records: Vec<Record> = (0..128)
                    .map(|i| Record::update(i, [i; VALUE_WORDS], BPF_ANY))
                    .collect();
                for &seed in common::seeds() {
                    let (answers, ran) = run(&case, config(seed, SMS), 128, &records);
                    let map = contents(&case, &ran);
                    assert_eq!(map.len(), entries as usize, "{}", map_type.name());
                    let refused = answers.iter().filter(|a| a.result == E2BIG);
                    assert_eq!(refused.count(), 128 - entries as usize);
                    let full = 128 - u64::from(entries);
                    assert_eq!(counted(&case, &ran), (full, 0));
                    for a in &answers {
                        assert_eq!(map.contains_key(&a.key[0]), a.result == 0);
                    }
                }
            }
        }
    }
}

/// In a large map lanes take room from their own multiprocessor's share, then from those of others,
/// and in the end there is none: never more keys than may be.
#[test]
fn room_is_never_overdrawn() {
    const ENTRIES: u32 = 65_536;
    const EACH: u32 = ENTRIES / HashLayout::SHARDS;
    let (threads, per_thread) = (128, 24);
    let case = machine(MapType::Hash, 1, 1, ENTRIES, threads, per_thread);
    let records: Vec<Record> = (0..u64::from(threads * per_thread))
        .map(|i| Record::update(i, [i; VALUE_WORDS], BPF_ANY))
        .collect();
    for case in kinds(&case).iter().skip(1) {
        for &seed in common::seeds() {
            let device = Device::new(case, config(seed, 1));
            give(&device, &records);
            // Those of other multiprocessors are full, but for the last one's, which has room for
            // ten.
            for shard in 1..HashLayout::SHARDS {
                let used = EACH - if shard == 31 { 10 } else { 0 };
                let at = HashLayout::control(shard) + HashLayout::USED;
                device.write(TABLE + 1, at, &u64::from(used).to_le_bytes());
            }
            device.launch([1, 1, 1], [threads, 1, 1]);
            let ran = device.maps();
            let answers = answers(&ran, records.len());
            let count = |result| answers.iter().filter(|a| a.result == result).count() as u32;
            let (done, full) = (EACH + 10, threads * per_thread - EACH - 10);
            assert_eq!((count(0), count(E2BIG)), (done, full), "{seed:?}");
            assert_eq!(counted(case, &ran), (u64::from(full), 0));
            for shard in 0..HashLayout::SHARDS {
                let at = HashLayout::control(shard) + HashLayout::USED;
                assert_eq!(ran.u64(TABLE, at), EACH.into(), "shard {shard}");
            }
        }
    }
}

/// Room that a delete makes is found again, whichever SM made it.
#[test]
fn room_that_was_made_is_found() {
    for case in kinds(&machine(MapType::Hash, 1, 1, 40, 1, 96)) {
        let mut records: Vec<Record> = (0..40)
            .map(|i| Record::update(i, [i; VALUE_WORDS], BPF_ANY))
            .collect();
        records.push(Record::update(99, [0; VALUE_WORDS], BPF_ANY));
        records.extend((0..15).map(|i| Record::new(DELETE, i)));
        records.extend((100..115).map(|i| Record::update(i, [i; VALUE_WORDS], BPF_ANY)));
        records.push(Record::update(99, [0; VALUE_WORDS], BPF_ANY));
        records.resize(96, Record::default());
        let (answers, ran) = run(&case, config(None, 1), 1, &records);
        let results: Vec<i64> = answers.iter().take(72).map(|a| a.result).collect();
        let mut expected = [0; 72];
        (expected[40], expected[71]) = (E2BIG, E2BIG);
        assert_eq!(results, expected);
        assert_eq!(contents(&case, &ran).len(), 40);
        assert_eq!(counted(&case, &ran), (2, 0));
    }
}

/// A map whose nodes are used up gives up, counts it, and keeps what it has.
#[test]
fn used_up_nodes_are_counted() {
    // Each thread overwrites a key of its own, so nothing but nodes can be short.
    let case = machine(MapType::Hash, 1, 4, 16, 16, 256);
    let MapLayout::Hash(layout) = case.env.maps[TABLE].layout else {
        panic!("a hash")
    };
    let records: Vec<Record> = (0..4096)
        .map(|i| Record::update(i / 256, [i; VALUE_WORDS], BPF_ANY))
        .collect();
    let (answers, ran) = run(&case, config(Some(1), SMS), 16, &records);
    // The first of each key is in its slot's home.
    let busy = 4096 - 16 - layout.nodes();
    let refused = answers.iter().filter(|a| a.result == EBUSY).count() as u64;
    assert_eq!(refused, busy);
    assert!(answers.iter().all(|a| a.result == EBUSY || a.result == 0));
    assert_eq!(counted(&case, &ran), (0, busy));
    let map = contents(&case, &ran);
    assert_eq!(map.len(), 16);
    for (key, value) in map {
        let last = answers.iter().rfind(|a| a.key[0] == key && a.result == 0);
        assert_eq!(last.map(|a| a.value.to_vec()), Some(value));
    }
}

/// A key that comes and goes finds its slot again, and where values are written in place its place
/// too: homes, and nodes where there are none.
#[test]
fn a_key_comes_and_goes() {
    const TIMES: usize = 200;
    for (map_type, key_words, value_words) in [
        (MapType::Hash, 1, 1),
        (MapType::Hash, 3, 1),
        (MapType::Hash, 1, 4),
        (MapType::PercpuHash, 1, 1),
        (MapType::PercpuHash, 3, 2),
    ] {
        for case in kinds(&machine(
            map_type,
            key_words,
            value_words,
            16,
            1,
            2 * TIMES as u32 + 1,
        )) {
            let MapLayout::Hash(layout) = case.env.maps[TABLE].layout else {
                panic!("a hash")
            };
            assert_eq!(
                layout.homes(),
                (key_words, value_words) != (3, 2) && !layout.dense
            );
            let mut records: Vec<Record> = (0..TIMES as u64)
                .flat_map(|i| {
                    [
                        Record::update(7, [i; VALUE_WORDS], BPF_NOEXIST),
                        Record::new(DELETE, 7),
                    ]
                })
                .collect();
            records.push(Record::update(7, [77; VALUE_WORDS], BPF_NOEXIST));
            let (answers, ran) = run(&case, config(None, 1), 1, &records);
            assert!(answers.iter().all(|a| a.result == 0));
            assert_eq!(counted(&case, &ran), (0, 0));
            let map = contents(&case, &ran);
            let mut value = vec![77; value_words];
            value.resize(value_words * layout.copies as usize, 0);
            assert_eq!(map, BTreeMap::from([(7, value)]));
            let slots = (0..layout.slots()).filter(|slot| ran.u64(TABLE, layout.slot(*slot)) != 0);
            assert_eq!(slots.count(), 1);
            let taken: u32 = (0..HashLayout::SHARDS)
                .map(|s| ran.u32(TABLE, HashLayout::control(s) + HashLayout::NEXT_NODE))
                .sum();
            let expected = match (layout.homes(), layout.swaps()) {
                (true, false) => 0,
                _ if layout.dense => 0,
                (false, false) => 1,
                // All but the first.
                _ => TIMES as u32,
            };
            assert_eq!(taken, expected, "{}", map_type.name());
        }
    }
}

/// Few keys come and go from many lanes at once, far more often than there are slots: what was put
/// in and not taken out is there.
#[test]
fn few_keys_come_and_go_from_many_lanes() {
    const EACH: u32 = 72;
    // The last of them is not the soft GPU's own order.
    let seeds = common::seeds();
    let seeds = if common::is_deep() {
        seeds
    } else {
        &seeds[1..]
    };
    for (map_type, key_words, value_words) in [
        (MapType::Hash, 1, 1),
        (MapType::GpuHash, 3, 1),
        (MapType::PercpuHash, 1, 1),
        (MapType::PercpuHash, 3, 2),
    ] {
        for keys in [1, 5] {
            // Each lane may have deleted a key that is still counted: there is room for all of
            // them.
            for case in kinds(&machine(map_type, key_words, value_words, 512, 256, EACH)) {
                let mut random = Random(keys);
                let records: Vec<Record> = (0..256 * EACH)
                    .map(|i| {
                        let key = random.below(keys);
                        match random.below(8) {
                            0..4 => Record::update(key, [i.into(); VALUE_WORDS], BPF_NOEXIST),
                            4..7 => Record::new(DELETE, key),
                            _ => Record::new(LOOKUP, key),
                        }
                    })
                    .collect();
                for &seed in seeds {
                    let (answers, ran) = run(&case, config(seed, SMS), 256, &records);
                    let map = contents(&case, &ran);
                    let (mut balance, mut came, mut busy) = (BTreeMap::<u64, i64>::new(), 0, 0);
                    for a in &answers {
                        let key = balance.entry(a.key[0]).or_default();
                        match (a.what, a.result) {
                            (UPDATE, 0) => (*key, came) = (*key + 1, came + 1),
                            (DELETE, 0) => *key -= 1,
                            (UPDATE, EBUSY) => busy += 1,
                            (UPDATE, EEXIST) | (DELETE, ENOENT) | (LOOKUP, 0 | 1) => {}
                            _ => panic!("{} {a:?}", map_type.name()),
                        }
                    }
                    for (key, balance) in balance {
                        let there = i64::from(map.contains_key(&key));
                        assert_eq!(balance, there, "{} key {key}, {seed:?}", map_type.name());
                    }
                    assert_eq!(counted(&case, &ran), (0, busy));
                    // Each key had but one slot, which held out for all of it.
                    let most = u64::from(HashLayout::PROBES);
                    assert!(
                        came > most && busy * 100 < came,
                        "{came} times, {busy} busy, {seed:?}"
                    );
                }
            }
        }
    }
}

/// Keys that are refused use up nothing: however often many lanes want the last place, one gets it,
/// and when it is deleted there is a place again.
#[test]
fn refused_inserts_use_up_no_slot() {
    const LANES: u32 = 64;
    // More than a probe has places.
    let rounds = if common::is_deep() { 1000 } else { 300 };
    for (map_type, key_words, value_words) in [
        (MapType::Hash, 1, 1),
        (MapType::Hash, 1, 4),
        (MapType::PercpuHash, 3, 2),
    ] {
        // One key stays, so that the map has one place left.
        for case in kinds(&machine(map_type, key_words, value_words, 2, LANES, 1)) {
            let MapLayout::Hash(layout) = case.env.maps[TABLE].layout else {
                panic!("a hash");
            };
            let in_use = |ran: &Ran| {
                let words = (0..layout.slots()).map(|slot| ran.u64(TABLE, layout.slot(slot)));
                words.filter(|word| *word != 0).count() as u64
            };
            let device = Device::new(&case, config(Some(5), SMS));
            let round_of = |records: &[Record]| {
                give(&device, records);
                device.launch([1, 1, 1], [LANES, 1, 1]);
                let ran = device.maps();
                (answers(&ran, records.len()), ran)
            };
            let stays = vec![Record::update(1 << 40, [1; VALUE_WORDS], BPF_ANY); LANES as usize];
            round_of(&stays);
            for round in 0..rounds {
                // The same keys each time, so that what is used up is told by the slots of keys
                // that were never there.
                let wanted: Vec<Record> = (0..u64::from(LANES))
                    .map(|lane| Record::update(lane, [round; VALUE_WORDS], BPF_NOEXIST))
                    .collect();
                let (got, ran) = round_of(&wanted);
                let placed: Vec<u64> = got
                    .iter()
                    .filter(|a| a.result == 0)
                    .map(|a| a.key[0])
                    .collect();
                let refused = got.iter().filter(|a| a.result == E2BIG).count();
                assert_eq!(
                    (placed.len(), refused),
                    (1, LANES as usize - 1),
                    "round {round}: {got:?}"
                );
                assert!(
                    in_use(&ran) <= round + 2,
                    "{} slots in round {round}",
                    in_use(&ran)
                );
                let deletes = vec![Record::new(DELETE, placed[0]); LANES as usize];
                let (gone, ran) = round_of(&deletes);
                assert_eq!(gone.iter().filter(|a| a.result == 0).count(), 1);
                assert_eq!(contents(&case, &ran).len(), 1);
                if round == rounds - 1 {
                    let full = rounds * u64::from(LANES - 1);
                    assert_eq!(counted(&case, &ran), (full, 0));
                }
            }
        }
    }
}

/// A stress test that inserts one key after the other gives back the nodes that it did not need.
#[test]
fn stress_gives_its_nodes_back() {
    for map_type in [MapType::Hash, MapType::PercpuHash, MapType::LruHash] {
        for value_words in [1, 4] {
            for case in kinds(&machine(map_type, 1, value_words, 8, 4096, 1)) {
                let device = Device::new(&case, config(Some(2), SMS));
                for key in 0..6 {
                    let records: Vec<Record> = (0..4096)
                        .map(|i| Record::update(key, [i; VALUE_WORDS], BPF_NOEXIST))
                        .collect();
                    give(&device, &records);
                    device.launch([32, 1, 1], [128, 1, 1]);
                    let ran = device.maps();
                    let answers = answers(&ran, 4096);
                    assert_eq!(answers.iter().filter(|a| a.result == 0).count(), 1);
                    assert!(answers.iter().all(|a| a.result == 0 || a.result == EEXIST));
                    let map = contents(&case, &ran);
                    assert_eq!(map.len() as u64, key + 1);
                    let winner = answers.iter().find(|a| a.result == 0).expect("one");
                    // Nodes that came back have no trace of who had them.
                    let value = &map[&key];
                    assert_eq!(value.iter().filter(|w| **w != 0).count() as u64, {
                        let zero = winner.value[0] == 0;
                        if zero { 0 } else { value_words as u64 }
                    });
                    if let MapLayout::Hash(l) = case.env.maps[TABLE].layout
                        && !l.dense
                    {
                        let free: u32 = (0..l.free_words())
                            .map(|i| ran.u32(TABLE, l.free_at() + i * 4).count_ones())
                            .sum();
                        let out: u32 = (0..HashLayout::SHARDS)
                            .map(|s| ran.u32(TABLE, HashLayout::control(s) + HashLayout::NEXT_NODE))
                            .map(|next| next.min(l.shard_nodes() as u32))
                            .sum();
                        let in_pool = (0..l.slots())
                            .map(|slot| ran.u64(TABLE, l.slot(slot)))
                            .filter(|word| {
                                *word != 0 && word & HashLayout::PLACE != HashLayout::HOME
                            })
                            .count() as u32;
                        // Who goes past a claim leaves the claimant's node behind, once for a key
                        // at most.
                        let left = if l.homes() { 0 } else { key as u32 + 1 };
                        let in_use = in_pool..=in_pool + left;
                        assert!(
                            in_use.contains(&(out - free)),
                            "{} of {in_use:?}",
                            out - free
                        );
                    }
                }
            }
        }
    }
}

/// An LRU map keeps to its size, keeps what is used, and runs for ever.
#[test]
fn lru_keeps_hot_keys() {
    for map_type in [MapType::LruHash, MapType::LruPercpuHash] {
        for entries in [1, 2, 8, 64, 100] {
            let case = machine(map_type, 2, 1, entries, 1, 64);
            let device = Device::new(&case, config(None, 1));
            // A quarter of the entries is looked up all the time, the rest of the stream is seen
            // once.
            let hot = u64::from(entries) / 4;
            let mut next = 1000;
            for round in 0..40 {
                let records: Vec<Record> = (0..64u64)
                    .map(|i| {
                        if i % 2 == 0 && hot > 0 {
                            let key = (round * 32 + i / 2) % hot;
                            return Record::new(COUNT_NEW, key);
                        }
                        next += 1;
                        Record::update(next, [next; VALUE_WORDS], BPF_ANY)
                    })
                    .collect();
                give(&device, &records);
                device.launch([1, 1, 1], [1, 1, 1]);
                let ran = device.maps();
                let map = contents(&case, &ran);
                assert_eq!(counted(&case, &ran), (0, 0));
                if round > 8 {
                    assert_eq!(map.len(), entries as usize, "{}", map_type.name());
                    for key in 0..hot {
                        let sum: u64 = map[&key].iter().sum();
                        let before = (0..(round + 1) * 32).filter(|i| i % hot == key).count();
                        assert_eq!(sum, before as u64, "hot key {key} of {hot} was dropped");
                    }
                }
                // What was put in last is there.
                assert_eq!(map.get(&next).map(|v| v[0]), Some(next));
                // And others' copies of a node that was used before are zero.
                assert!(map.values().all(|v| v[1..].iter().all(|w| *w == 0)));
            }
        }
    }
}

/// Many lanes in an LRU map that is too small for them: results, sizes and nodes are right, nothing
/// is lost.
#[test]
fn lru_under_pressure() {
    for map_type in [MapType::LruHash, MapType::LruPercpuHash] {
        for entries in [1, 4, 50, 500] {
            for value_words in [1, 4] {
                let case = machine(map_type, 2, value_words, entries, 512, 2);
                let mut random = Random(4);
                let records: Vec<Record> = (0..1024)
                    .map(|i| {
                        let key = random.below(700) + 1;
                        match i % 4 {
                            0 => Record::new(LOOKUP, key),
                            1 => Record::new(DELETE, key),
                            _ => Record::update(key, [key; VALUE_WORDS], random.below(3)),
                        }
                    })
                    .collect();
                for &seed in common::seeds() {
                    let (answers, ran) = run(&case, config(seed, SMS), 512, &records);
                    let (mut full, mut busy) = (0, 0);
                    for a in &answers {
                        let allowed: &[i64] = match a.what {
                            UPDATE if a.flags == BPF_NOEXIST => &[0, EEXIST],
                            UPDATE if a.flags == BPF_EXIST => &[0, ENOENT],
                            UPDATE => &[0],
                            DELETE => &[0, ENOENT],
                            _ => &[0, 1],
                        };
                        match a.result {
                            EBUSY => busy += 1,
                            warpbpf_abi::maps::ENOMEM => full += 1,
                            result => assert!(allowed.contains(&result), "{a:?}"),
                        }
                    }
                    assert_eq!(counted(&case, &ran), (full, busy));
                    // All of them in one bucket or two may try too often, or find nothing to drop
                    // while a block that was just counted does not run.
                    let bound = if entries < 50 { 200 } else { 0 };
                    assert!(busy + full <= bound, "{busy} busy, {full} full");
                    for (key, values) in contents(&case, &ran) {
                        // A per-SM value is overwritten in place, where another key may be by then.
                        let others = map_type == MapType::LruPercpuHash;
                        let right = |w: &u64| *w == key || *w == 0 || others && *w <= 700;
                        assert!(values.iter().all(right), "{key}: {values:?}");
                        assert!(others || values[0] == key, "{key}: {values:?}");
                    }
                }
            }
        }
    }
}

/// The kinds of a table with one word in its keys and values: plain, dense by claims, dense by
/// 128-bit atomics.
fn three_kinds(entries: u32, threads: u32, per_thread: u32) -> [Case<Program>; 3] {
    let case = machine(MapType::Hash, 1, 1, entries, threads, per_thread);
    let three = shapes(&case).try_into();
    three.unwrap_or_else(|kinds: Vec<_>| panic!("{} kinds", kinds.len()))
}

/// Modules with 128-bit atomics and such without insert the same keys into one map at the same
/// time.
#[test]
fn both_ways_to_publish_work_in_one_map() {
    const KEYS: u64 = 37;
    let [_, claims, wide] = three_kinds(64, 512, 2);
    assert!(wide.module("sm_90", (8, 3)).contains(".cas.b128"));
    assert!(!claims.module("sm_75", (6, 3)).contains(".b128"));
    let records: Vec<Record> = (0..1024)
        .map(|i| Record::new(COUNT_NEW, i % KEYS))
        .collect();
    for &seed in common::seeds() {
        let device = Device::new(&wide, config(seed, SMS));
        give(&device, &records);
        let other = device.beside(&claims);
        device.launch_with(&other, [4, 1, 1], [128, 1, 1]);
        let ran = device.maps();
        let expected: Contents = (0..KEYS)
            .map(|key| {
                (
                    key,
                    vec![2 * (0..1024).filter(|i| i % KEYS == key).count() as u64],
                )
            })
            .collect();
        assert_eq!(contents(&wide, &ran), expected, "{seed:?}");
        assert_eq!(counted(&wide, &ran), (0, 0));
    }
}

/// Pointers that were held over a delete do not keep a key from coming back, and what it gets is
/// what was put there.
#[test]
fn a_key_comes_back_under_additions_to_what_it_was() {
    let [_, claims, wide] = three_kinds(512, 256, 8);
    for case in [claims, wide] {
        let mut random = Random(3);
        let records: Vec<Record> = (0..2048)
            .map(|_| {
                let key = random.below(3);
                match random.below(4) {
                    0 => Record::update(key, [1 << 32; VALUE_WORDS], BPF_NOEXIST),
                    1 => Record::new(DELETE, key),
                    _ => Record::new(COUNT, key),
                }
            })
            .collect();
        for &seed in common::seeds() {
            let (answers, ran) = run(&case, config(seed, SMS), 256, &records);
            let counts = answers.iter().filter(|a| a.what == COUNT && a.result == 1);
            let counts = counts.count() as u64;
            let mut left = 0;
            for (key, value) in contents(&case, &ran) {
                // A whole value, and additions to it.
                assert_eq!(value[0] >> 32, 1, "key {key}: {value:?}");
                left += value[0] & 0xffff_ffff;
            }
            assert!(left <= counts, "{left} of {counts}");
            assert_eq!(counted(&case, &ran).0, 0);
        }
    }
}

/// Where all slots in reach are other keys', a key is refused, and no word is taken for its own:
/// not the one behind the last distance either.
#[test]
fn a_dense_probe_that_is_used_up_finds_nobody_elses_key() {
    let [_, claims, wide] = three_kinds(512, 1, 134);
    for case in [claims, wide] {
        let MapLayout::Hash(layout) = case.env.maps[TABLE].layout else {
            panic!("a hash");
        };
        let key_of = |rest: u64, first: u64| unhash(rest << layout.slot_bits() | first, 8);
        // The last slot that is looked at for the key is this one's first, with a word as of the
        // key one farther.
        let (rest, first, last) = (1000, 5, u64::from(HashLayout::PROBES) - 1);
        let key = key_of(rest, first);
        let mut records = vec![Record::update(
            key_of(rest + 1, first + last),
            [1; VALUE_WORDS],
            BPF_ANY,
        )];
        records
            .extend((0..last).map(|i| Record::update(key_of(i, first), [i; VALUE_WORDS], BPF_ANY)));
        records.extend([
            Record::new(LOOKUP, key),
            Record::new(DELETE, key),
            Record::update(key, [7; VALUE_WORDS], BPF_EXIST),
            Record::update(key, [7; VALUE_WORDS], BPF_ANY),
            Record::new(LOOKUP, key_of(rest + 1, first + last)),
            Record::new(LOOKUP, key_of(last - 1, first)),
        ]);
        let (answers, ran) = run(&case, config(None, 1), 1, &records);
        let results: Vec<i64> = answers.iter().map(|a| a.result).collect();
        let mut expected = vec![0; 128];
        expected.extend([0, ENOENT, ENOENT, EBUSY, 1, 1]);
        assert_eq!(results, expected);
        assert_eq!(answers[133].found[0], last - 1);
        assert_eq!(contents(&case, &ran).len(), 128);
        assert_eq!(counted(&case, &ran), (0, 1));
    }
}

/// A claim whose lane is gone, in a kernel that was ended: its key is not there, and who wants to
/// insert it does not wait for ever.
#[test]
fn a_dense_claim_without_a_lane_is_counted() {
    let [_, claims, wide] = three_kinds(16, 1, 5);
    for case in [claims, wide] {
        let MapLayout::Hash(layout) = case.env.maps[TABLE].layout else {
            panic!("a hash");
        };
        let device = Device::new(&case, config(None, 1));
        let key_hash = hash(&7u64.to_le_bytes());
        let slot = layout.slot(key_hash & (layout.slots() - 1));
        let claim = layout.dense_word(key_hash, 0) | HashLayout::MAKING;
        device.write(TABLE + 1, slot, &claim.to_le_bytes());
        let records = [
            Record::new(LOOKUP, 7),
            Record::new(DELETE, 7),
            Record::update(7, [1; VALUE_WORDS], BPF_EXIST),
            Record::update(7, [1; VALUE_WORDS], BPF_ANY),
            Record::update(8, [2; VALUE_WORDS], BPF_ANY),
        ];
        give(&device, &records);
        device.launch([1, 1, 1], [1, 1, 1]);
        let ran = device.maps();
        let results: Vec<i64> = answers(&ran, 5).iter().map(|a| a.result).collect();
        assert_eq!(results, [0, ENOENT, ENOENT, EBUSY, 0]);
        assert_eq!(counted(&case, &ran), (0, 1));
        assert_eq!(ran.u64(TABLE, slot), claim);
        // Nothing is pending.
        check_used(&ran, 1);
    }
}

/// All elements are called for, whatever type the map has.
#[test]
fn walks_see_all() {
    for map_type in TYPES {
        let number = map_type as u32;
        let source = format!(
            r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {{
    __uint(type, {number});
    __uint(max_entries, 64);
    __type(key, __u64);
    __type(value, __u64);
}} table SEC(".maps");
struct {{
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64[4]);
}} out SEC(".maps");
struct sums {{ __u64 keys, values; }};
static long each(void *map, const __u64 *key, __u64 *value, struct sums *sums)
{{
    sums->keys += *key;
    sums->values += *value;
    *value += 1;
    return 0;
}}
SEC("gpu/entry/*")
int run(struct wbpf_kernel_ctx *ctx)
{{
    __u32 zero = 0;
    __u64 *o = bpf_map_lookup_elem(&out, &zero);
    if (!o)
        return 0;
    for (__u64 i = 0; i < 40; i++) {{
        __u64 v = i * 100;
        bpf_map_update_elem(&table, &i, &v, BPF_ANY);
    }}
    for (__u64 i = 0; i < 40; i += 4)
        bpf_map_delete_elem(&table, &i);
    struct sums sums = {{}};
    o[0] = bpf_for_each_map_elem(&table, each, &sums, 0);
    o[1] = sums.keys;
    o[2] = sums.values;
    __u64 key = 7, *v = bpf_map_lookup_elem(&table, &key);
    if (v)
        o[3] = *v;
    return 0;
}}
"#
        );
        let object = clang(&format!("walk-{}", map_type.name()), &source, "v3");
        for case in kinds(&Case::object(&object, SMS)) {
            let ran = case.run(config(Some(3), 1), [1, 1, 1], [1, 1, 1]);
            let keys: u64 = (0..40).filter(|i| i % 4 != 0).sum();
            let seen: Vec<u64> = (0..4).map(|i| ran.u64(OPERATIONS, i * 8)).collect();
            assert_eq!(seen, [30, keys, keys * 100, 701], "{}", map_type.name());
        }
    }
}

/// ptxas takes all functions, on all targets, with keys and values of all kinds.
#[test]
fn all_functions_assemble() {
    let program = "
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = r6
    *(u64 *)(r10 - 16) = r6
    *(u64 *)(r10 - 24) = r6
    *(u64 *)(r10 - 32) = r6
    *(u64 *)(r10 - 40) = r6
    *(u64 *)(r10 - 48) = r6
    *(u64 *)(r10 - 56) = r6
    r1 = map[0]
    r2 = r10
    r2 += -24
    r3 = r10
    r3 += -56
    r4 = r6
    call 2
    r1 = map[0]
    r2 = r10
    r2 += -24
    call 1
    if r0 == 0 goto out
    r1 = 1
    *(u8 *)(r0 + 0) = r1
    r1 = map[0]
    r2 = r10
    r2 += -24
    call 3
out:
    r0 = 0
    exit";
    for map_type in TYPES {
        Case::new(program, vec![table(map_type, 12, 17, 1000, 132)]).assembles();
        for (key, value) in [(4, 4), (8, 8), (16, 32)] {
            let case = Case::new(program, vec![table(map_type, key, value, 1000, 132)]);
            common::ptxas(&case.module("sm_90", (7, 8)), "sm_90", &[]);
        }
    }
    for (key, value) in [(4, 4), (8, 8), (1, 3)] {
        let case = Case::new(program, vec![table(MapType::Hash, key, value, 1 << 26, 1)]);
        let targets = [
            ("sm_75", 75, (6, 3)),
            ("sm_90", 90, (8, 2)),
            ("sm_90", 90, (8, 3)),
            ("sm_100", 100, (8, 6)),
            ("sm_120", 120, (9, 0)),
        ];
        for (target, sm, ptx) in targets {
            let case = case.dense(Target { ptx, sm });
            let text = case.module(target, ptx);
            assert_eq!(
                text.contains(".cas.b128"),
                ptx >= (8, 3),
                "{target} {ptx:?}"
            );
            common::ptxas(&text, target, &[]);
        }
    }
    // As large as a map may be: offsets beyond 32 bits.
    for (map_type, entries) in [(MapType::Hash, 1 << 26), (MapType::LruHash, 1 << 26)] {
        let case = Case::new(program, vec![table(map_type, 8, 8, entries, 1)]);
        common::ptxas(&case.module("sm_90", (7, 8)), "sm_90", &[]);
    }
}
