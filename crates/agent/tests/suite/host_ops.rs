//! Operations of the host on the maps of a session on the soft GPU, without an application around
//! it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::common;
use warpbpf_driver::{Driver, sys::Api};
use warpbpf_session::{Action, Answer, HostOp, Live, Options, Progress, Session};
use warpbpf_softcuda as _;

unsafe extern "C" {
    fn cuGetProcAddress_v2(
        name: *const c_char,
        address: *mut *mut c_void,
        version: c_int,
        flags: u64,
        status: *mut c_int,
    ) -> c_int;
}

fn find(symbol: &'static str) -> *const c_void {
    let name = CString::new(symbol).unwrap();
    let (mut address, mut status) = (ptr::null_mut(), 0);
    // SAFETY: a NUL-terminated name and locals.
    let code = unsafe { cuGetProcAddress_v2(name.as_ptr(), &mut address, 12000, 0, &mut status) };
    assert_eq!(code, 0, "{symbol}");
    address
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        // SAFETY: the soft driver's own functions.
        let driver = Driver::new(unsafe { Api::resolve(find) }.unwrap());
        driver.init().unwrap();
        driver
    })
}

const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#define MAP(name, kind, entries, K, V) struct { \
    __uint(type, kind); __uint(max_entries, entries); __type(key, K); __type(value, V); } name SEC(".maps")
struct wide { __u64 words[3]; __u32 tail; __u16 end; };
struct vast { __u64 words[40]; };
MAP(plain, BPF_MAP_TYPE_ARRAY, 4, __u32, __u64);
MAP(sums, BPF_MAP_TYPE_ARRAY, 4, __u32, __u64);
struct mixed { __u64 words[3]; };
MAP(mixed, BPF_MAP_TYPE_ARRAY, 2, __u32, struct mixed);
MAP(each, BPF_MAP_TYPE_PERCPU_ARRAY, 2, __u32, __u32);
MAP(keys, BPF_MAP_TYPE_HASH, 64, __u32, __u64);
MAP(wides, BPF_MAP_TYPE_HASH, 3000, __u64, struct wide);
MAP(vasts, BPF_MAP_TYPE_HASH, 500, __u64, struct vast);
struct huge { __u64 words[5000]; };
MAP(huges, BPF_MAP_TYPE_HASH, 40, __u32, struct huge);
MAP(shares, BPF_MAP_TYPE_PERCPU_HASH, 16, __u32, __u64);
MAP(recent, BPF_MAP_TYPE_LRU_HASH, 64, __u32, __u64);
struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 4); __type(value, __u64); } line SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_STACK); __uint(max_entries, 4); __type(value, __u32); } pile SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_BLOOM_FILTER); __uint(max_entries, 100); __type(value, __u64); } bloom SEC(".maps");
struct inside { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 3); __type(key, __u32); __type(value, __u64); }
    one SEC(".maps"), two SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 2); __type(key, __u32); __array(values, struct inside); }
    by_index SEC(".maps") = { .values = { [0] = &one } };
struct { __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS); __uint(max_entries, 2); __type(key, __u32); __array(values, struct inside); }
    by_key SEC(".maps");
static __always_inline void inside(void *outer, __u32 key, __u32 index)
{
    void *map = bpf_map_lookup_elem(outer, &key);
    __u64 *value = map ? bpf_map_lookup_elem(map, &index) : 0;
    if (value)
        __sync_fetch_and_add(value, 1);
}
__u32 setting = 3;
const volatile __u32 fixed = 9;
SEC("gpu/run")
int work(void *ctx)
{
    __u32 zero = 0;
    __u64 one = 1;
    __u64 *n = bpf_map_lookup_elem(&sums, &zero), *p = bpf_map_lookup_elem(&plain, &zero);
    __u32 *c = bpf_map_lookup_elem(&each, &zero);
    struct wide w = {};
    if (n)
        *n += 1;
    __u32 second = 1;
    struct mixed *m = bpf_map_lookup_elem(&mixed, &second);
    if (m)
        m->words[1] += 1;
    if (p)
        one += *p;
    if (c)
        *c += setting;
    zero = fixed;
    bpf_map_update_elem(&keys, &zero, &one, BPF_NOEXIST);
    bpf_map_lookup_elem(&wides, &one);
    bpf_map_lookup_elem(&vasts, &one);
    __u64 *share = bpf_map_lookup_elem(&shares, &zero);
    if (share)
        *share += 1;
    bpf_map_update_elem(&recent, &zero, &one, 0);
    bpf_map_push_elem(&line, &one, 0);
    __u32 low = one;
    bpf_map_push_elem(&pile, &low, 0);
    bpf_map_push_elem(&bloom, &one, 0);
    inside(&by_index, 0, 0);
    inside(&by_index, 1, 1);
    inside(&by_key, 77, 2);
    bpf_map_lookup_elem(&two, &zero);
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| common::compile("host_ops", PROGRAM))
}

/// A session on the soft GPU. One at a time: its context is the process's.
struct Bench {
    live: Live,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(host_ops: bool) -> Bench {
        Bench::with(host_ops, |_| {})
    }

    fn with(host_ops: bool, change: impl FnOnce(&mut Session)) -> Bench {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = driver();
        let context = driver.retain_primary(0).unwrap();
        driver.set_current(context).unwrap();
        let info = driver.device_info(0).unwrap();
        let options = Options {
            host_ops,
            budget: Some(1 << 16),
            ..Options::default()
        };
        let mut session = Session::new(object(), &options, &info).unwrap();
        change(&mut session);
        Bench {
            live: Live::new(driver, Arc::new(session)).unwrap(),
            _alone: alone,
        }
    }

    fn map(&self, name: &str) -> usize {
        let maps = self.live.session().maps();
        maps.iter().position(|map| map.name == name).expect(name)
    }

    fn all(&self, map: &str, ops: Vec<HostOp>) -> Vec<Answer> {
        let mut progress = self.live.host_ops(self.map(map), ops);
        loop {
            match progress {
                Progress::Done(answers) => return answers,
                Progress::Waiting => progress = self.live.host_progress(),
            }
        }
    }

    fn one(&self, map: &str, op: HostOp) -> Answer {
        let [answer] = self.all(map, vec![op]).try_into().unwrap();
        answer
    }

    /// Runs the program in so many threads.
    fn run(&self, blocks: u32, threads: u32) {
        let session = self.live.session();
        let own = session.own_kernel(0, (9, 0)).unwrap();
        let driver = driver();
        let module = driver.load_ptx(&own.text).unwrap();
        let jit = warpbpf_driver::JitOptions::default();
        let mut made = self.live.instrument(&own.prepared, module, &jit);
        let variant = made.pop().unwrap().1.unwrap();
        // SAFETY: the kernel takes no parameters.
        unsafe {
            let stream = self.live.stream();
            driver
                .launch(
                    variant.function,
                    [blocks, 1, 1],
                    [threads, 1, 1],
                    stream,
                    &mut [],
                )
                .unwrap();
            driver.wait(stream).unwrap();
        }
    }
}

fn op(action: Action, key: &[u8], value: &[u8], flags: u64) -> HostOp {
    HostOp {
        action,
        flags,
        key: key.to_vec(),
        value: value.to_vec(),
    }
}
fn lookup(key: &[u8]) -> HostOp {
    op(Action::Lookup, key, &[], 0)
}
fn update(key: &[u8], value: &[u8]) -> HostOp {
    op(Action::Update, key, value, 0)
}
fn k(key: u32) -> [u8; 4] {
    key.to_le_bytes()
}
fn v(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}
const DONE: Answer = Ok(Vec::new());

#[test]
fn arrays_are_read_and_written_by_copies() {
    // Without kernels of ours: nothing here needs one.
    let bench = Bench::new(false);
    assert_eq!(bench.one("plain", update(&k(3), &v(7))), DONE);
    assert_eq!(bench.one("plain", lookup(&k(3))), Ok(v(7).to_vec()));
    assert_eq!(bench.one("plain", lookup(&k(2))), Ok(v(0).to_vec()));
    assert_eq!(bench.one("plain", lookup(&k(4))), Err(-2));
    assert_eq!(bench.one("plain", update(&k(4), &v(7))), Err(-7));
    assert_eq!(
        bench.one("plain", op(Action::Update, &k(3), &v(8), 1)),
        Err(-17)
    );
    assert_eq!(
        bench.one("plain", op(Action::Update, &k(3), &v(8), 2)),
        DONE
    );
    assert_eq!(
        bench.one("plain", op(Action::Update, &k(3), &v(8), 9)),
        Err(-22)
    );
    assert_eq!(bench.one("plain", update(&k(3), b"abc")), Err(-22));
    assert_eq!(bench.one("plain", lookup(b"abc")), Err(-22));
    assert_eq!(
        bench.one("plain", op(Action::Delete, &k(3), &[], 0)),
        Err(-22)
    );
    assert_eq!(bench.one("plain", op(Action::Pop, &[], &[], 0)), Err(-22));
    // Programs add to copies of each multiprocessor; the host sees and sets their sum.
    bench.run(8, 32);
    assert_eq!(bench.one("sums", lookup(&k(0))), Ok(v(256).to_vec()));
    assert_eq!(bench.one("sums", update(&k(0), &v(1000))), DONE);
    bench.run(8, 32);
    assert_eq!(bench.one("sums", lookup(&k(0))), Ok(v(1256).to_vec()));
}

#[test]
fn words_of_a_value_are_changed_and_the_others_stay() {
    let bench = Bench::new(true);
    let words = |key: u32, value: &[u64], meant: &[usize]| {
        let value: Vec<u8> = value.iter().flat_map(|word| word.to_le_bytes()).collect();
        let packed = warpbpf_maps::words::pack(&value, meant.iter().copied());
        op(Action::Words, &k(key), &packed, 0)
    };
    let seen = |key: u32| -> Vec<u64> {
        let value = bench.one("mixed", lookup(&k(key))).unwrap();
        let chunks = value.chunks_exact(8);
        chunks
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    };
    // Programs add to the second word, so each multiprocessor has copies, which the host's change
    // of the others leaves alone.
    bench.run(8, 32);
    assert_eq!(seen(1), [0, 256, 0]);
    assert_eq!(bench.one("mixed", words(1, &[7, 9, 8], &[0, 2])), DONE);
    assert_eq!(seen(1), [7, 256, 8]);
    assert_eq!(bench.one("mixed", words(1, &[1, 1, 1], &[])), DONE);
    bench.run(8, 32);
    assert_eq!(seen(1), [7, 512, 8]);
    // It is set, too, and added to from there.
    assert_eq!(bench.one("mixed", words(1, &[0, 1000, 0], &[1])), DONE);
    bench.run(8, 32);
    assert_eq!(seen(1), [7, 1256, 8]);
    assert_eq!(seen(0), [0, 0, 0]);
    assert_eq!(bench.one("mixed", words(2, &[1, 1, 1], &[0])), Err(-7));
    let value = [0; 24];
    assert_eq!(
        bench.one("mixed", op(Action::Words, &k(1), &value, 0)),
        Err(-22)
    );
    // Where values have no fixed place, or one for each multiprocessor.
    for map in ["keys", "each", "line", "bloom"] {
        assert_eq!(bench.one(map, words(0, &[1], &[0])), Err(-22), "{map}");
    }
}

#[test]
fn values_per_multiprocessor_come_one_behind_the_other() {
    let bench = Bench::new(false);
    bench.run(8, 32);
    let values = |bytes: Vec<u8>| -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    };
    let sms = driver().device_info(0).unwrap().sms as usize;
    let seen = values(bench.one("each", lookup(&k(0))).unwrap());
    assert_eq!((seen.len(), seen.iter().sum::<u64>()), (sms, 3 * 256));
    assert_eq!(bench.one("each", update(&k(1), &5u32.to_le_bytes())), DONE);
    assert_eq!(
        values(bench.one("each", lookup(&k(1))).unwrap()),
        vec![5; sms]
    );
    let mut all = vec![0; 8 * sms];
    all[8] = 9;
    assert_eq!(bench.one("each", update(&k(1), &all)), DONE);
    assert_eq!(bench.one("each", lookup(&k(1))), Ok(all));
}

#[test]
fn globals_are_arrays_of_one_and_constants_stay() {
    let bench = Bench::new(false);
    let data = bench.live.session().maps().iter().map(|m| m.name.clone());
    let section = |end: &str| data.clone().find(|name| name.ends_with(end)).unwrap();
    let (data, rodata) = (section(".data"), section(".rodata"));
    assert_eq!(
        bench.one(&data, lookup(&k(0))),
        Ok(3u32.to_le_bytes().to_vec())
    );
    assert_eq!(bench.one(&data, update(&k(0), &10u32.to_le_bytes())), DONE);
    assert_eq!(
        bench.one(&rodata, update(&k(0), &10u32.to_le_bytes())),
        Err(-1)
    );
    assert_eq!(
        bench.one(&rodata, lookup(&k(0))),
        Ok(9u32.to_le_bytes().to_vec())
    );
    bench.run(1, 32);
    let each = bench.one("each", lookup(&k(0))).unwrap();
    assert_eq!(
        each.chunks(8)
            .map(|w| u64::from(w[0]) + (u64::from(w[1]) << 8))
            .sum::<u64>(),
        320
    );
}

#[test]
fn hashes_are_changed_on_the_device() {
    let bench = Bench::new(true);
    assert_eq!(bench.one("keys", lookup(&k(9))), Err(-2));
    bench.run(1, 1);
    assert_eq!(bench.one("keys", lookup(&k(9))), Ok(v(1).to_vec()));
    assert_eq!(
        bench.one("keys", op(Action::Update, &k(9), &v(5), 1)),
        Err(-17)
    );
    assert_eq!(bench.one("keys", op(Action::Update, &k(9), &v(5), 2)), DONE);
    assert_eq!(
        bench.one("keys", op(Action::Update, &k(8), &v(5), 2)),
        Err(-2)
    );
    assert_eq!(bench.one("keys", lookup(&k(9))), Ok(v(5).to_vec()));
    assert_eq!(bench.one("keys", op(Action::Delete, &k(9), &[], 0)), DONE);
    assert_eq!(
        bench.one("keys", op(Action::Delete, &k(9), &[], 0)),
        Err(-2)
    );
    assert_eq!(bench.one("keys", op(Action::Push, &[], &v(5), 0)), Err(-22));
    assert_eq!(bench.one("keys", update(&k(9), b"short")), Err(-22));
    // What concerns one key is done in order.
    let batch = vec![
        update(&k(1), &v(10)),
        update(&k(2), &v(20)),
        lookup(&k(1)),
        update(&k(1), &v(11)),
        op(Action::LookupAndDelete, &k(1), &[], 0),
        lookup(&k(1)),
        op(Action::Update, &k(1), b"odd", 0),
        lookup(&k(2)),
    ];
    assert_eq!(
        bench.all("keys", batch),
        [
            DONE,
            DONE,
            Ok(v(10).to_vec()),
            DONE,
            Ok(v(11).to_vec()),
            Err(-2),
            Err(-22),
            Ok(v(20).to_vec()),
        ]
    );
    assert_eq!(bench.all("keys", Vec::new()), []);
}

#[test]
fn long_batches_go_in_parts_and_values_of_odd_sizes_survive() {
    let bench = Bench::new(true);
    let wide = |n: u64| -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..32).map(|i| (n * 31 + i) as u8).collect();
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        bytes
    };
    let ops = (0..3000).map(|n| update(&v(n * 7), &wide(n))).collect();
    assert_eq!(bench.all("wides", ops), vec![DONE; 3000]);
    let ops = (0..3000).map(|n| lookup(&v(n * 7))).collect();
    let expected: Vec<Answer> = (0..3000).map(|n| Ok(wide(n))).collect();
    assert_eq!(bench.all("wides", ops), expected);
    assert_eq!(bench.one("wides", update(&v(1), &wide(1))), Err(-7));
    // Values that are copied in a loop, from a map too large to be copied whole.
    let vast = |n: u64| -> Vec<u8> { (0..40).flat_map(|i| v(n << 32 | i)).collect() };
    let ops = (0..400).map(|n| update(&v(n), &vast(n))).collect();
    assert_eq!(bench.all("vasts", ops), vec![DONE; 400]);
    assert_eq!(bench.one("vasts", lookup(&v(399))), Ok(vast(399)));
    assert_eq!(bench.one("vasts", lookup(&v(400))), Err(-2));
}

#[test]
fn what_no_program_can_pass_the_host_cannot_change() {
    let bench = Bench::new(true);
    let change = [op(Action::Delete, &k(1), &[], 0)];
    let refused = |name| {
        let refused = bench.live.host_ops_refused(bench.map(name), &change);
        refused.map(|error| error.to_string())
    };
    let reason = refused("huges").unwrap();
    assert!(
        reason.contains("passes 40004 bytes of key and value of map `huges` to a function"),
        "{reason}"
    );
    assert_eq!(bench.one("huges", update(&k(1), &[0; 40_000])), Err(-22));
    assert_eq!(bench.one("huges", lookup(&k(1))), Err(-2));
    for map in ["plain", "keys", "line", "bloom", "shares"] {
        assert_eq!(refused(map), None, "{map}");
    }
    // It can be read all the same.
    let huges = bench.map("huges");
    let reading = bench.live.host_ops_refused(huges, &[lookup(&k(1))]);
    assert!(reading.is_none(), "{reading:?}");
}

#[test]
fn without_kernels_hashes_are_read_and_not_changed() {
    let bench = Bench::new(false);
    bench.run(1, 1);
    assert_eq!(bench.one("keys", lookup(&k(9))), Ok(v(1).to_vec()));
    assert_eq!(bench.one("keys", update(&k(9), &v(5))), Err(-95));
    assert_eq!(bench.one("vasts", lookup(&v(400))), Err(-2));
}

/// What an operation of the host on a map of maps does is what the next kernel finds; no kernel of
/// ours is needed for it.
#[test]
fn maps_in_maps_are_replaced() {
    let bench = Bench::new(false);
    let number = |name: &str| (bench.map(name) as u32 + 1).to_le_bytes();
    let (one, two) = (number("one"), number("two"));
    let counts = |name: &str| {
        let value = |key| bench.one(name, lookup(&k(key))).unwrap();
        [0, 1, 2].map(|key| u64::from_le_bytes(value(key).try_into().unwrap()))
    };
    bench.run(1, 32);
    assert_eq!((counts("one"), counts("two")), ([32, 0, 0], [0; 3]));
    let ops = vec![
        update(&k(0), &two),
        lookup(&k(0)),
        update(&k(1), &one),
        update(&k(2), &one),
        update(&k(1), &number("plain")),
        update(&k(1), &[0; 4]),
        update(&k(1), &9999u32.to_le_bytes()),
        update(&k(1), &v(1)),
        op(Action::Push, &k(1), &one, 0),
    ];
    assert_eq!(
        bench.all("by_index", ops),
        [
            DONE,
            Ok(two.to_vec()),
            DONE,
            Err(-7),
            Err(-22),
            Err(-22),
            Err(-22),
            Err(-22),
            Err(-22),
        ]
    );
    assert_eq!(bench.one("by_key", update(&k(77), &two)), DONE);
    bench.run(1, 32);
    assert_eq!((counts("one"), counts("two")), ([32, 32, 0], [32, 0, 32]));
    let ops = vec![
        op(Action::Update, &k(77), &one, 1),
        op(Action::Update, &k(78), &one, 2),
        op(Action::LookupAndDelete, &k(77), &[], 0),
        op(Action::Delete, &k(77), &[], 0),
        update(&k(78), &one),
        update(&k(79), &one),
        update(&k(80), &one),
    ];
    assert_eq!(
        bench.all("by_key", ops),
        [
            Err(-17),
            Err(-2),
            Ok(two.to_vec()),
            Err(-2),
            DONE,
            DONE,
            Err(-7)
        ]
    );
    assert_eq!(bench.one("by_key", lookup(&k(77))), Err(-2));
    assert_eq!(bench.one("by_key", lookup(&k(78))), Ok(one.to_vec()));
    let delete = op(Action::Delete, &k(0), &[], 0);
    assert_eq!(bench.one("by_index", delete.clone()), DONE);
    assert_eq!(bench.one("by_index", delete), Err(-2));
    bench.run(1, 32);
    assert_eq!((counts("one"), counts("two")), ([32, 64, 0], [32, 0, 32]));
}

#[test]
fn only_maps_like_the_declared_one_are_preset() {
    let bench = Bench::with(false, |session| {
        let number = |session: &Session, name: &str| {
            let at = session.maps().iter().position(|map| map.name == name);
            (at.unwrap() as u32 + 1).to_le_bytes()
        };
        let two = number(session, "two");
        session.preset("by_key", &[update(&k(77), &two)]).unwrap();
        let plain = number(session, "plain");
        let there = session.maps().len();
        let mut refused = |value: &[u8]| {
            let error = session.preset("by_key", &[update(&k(1), value)]);
            error.unwrap_err().to_string()
        };
        assert_eq!(
            refused(&plain),
            "operation 0 cannot be done: map `plain` cannot be in `by_key`: its `max_entries` is 4 but `by_key` declares 3; make them equal"
        );
        assert_eq!(
            refused(&[0; 4]),
            format!(
                "operation 0 on map `by_key` names map 0: a value is 1 to {there}, a map's place in the object plus one"
            )
        );
    });
    bench.run(1, 32);
    let value = bench.one("two", lookup(&k(2)));
    assert_eq!(value, Ok(v(32).to_vec()));
}

#[test]
fn presets_are_there_before_the_first_kernel() {
    let bench = Bench::with(false, |session| {
        session.preset("plain", &[update(&k(0), &v(41))]).unwrap();
        let keys = [
            update(&k(5), &v(6)),
            update(&k(6), &v(7)),
            op(Action::Delete, &k(5), &[], 0),
        ];
        session.preset("keys", &keys).unwrap();
        let refused = |session: &mut Session, map: &str, op: HostOp| {
            session.preset(map, &[op]).unwrap_err().to_string()
        };
        let said = refused(session, "none", lookup(&k(0)));
        assert!(
            said.starts_with("map `none` cannot be preset: there is none; there are `")
                && said.contains("`plain`, `"),
            "{said}"
        );
        assert_eq!(
            refused(session, "plain", lookup(&k(0))),
            "operation 0 on map `plain` is no update or delete"
        );
        assert_eq!(
            refused(session, "keys", op(Action::Update, &k(6), &v(0), 1)),
            "operation 0 cannot be done: map `keys`: the key exists"
        );
        let rodata = session
            .maps()
            .iter()
            .find(|m| m.name.ends_with(".rodata"))
            .unwrap()
            .name
            .clone();
        assert_eq!(
            refused(session, &rodata, update(&k(0), &k(0))),
            format!(
                "map `{rodata}` cannot be preset: it is read-only; set its variables in the object"
            )
        );
    });
    assert_eq!(bench.one("keys", lookup(&k(6))), Ok(v(7).to_vec()));
    assert_eq!(bench.one("keys", lookup(&k(5))), Err(-2));
    bench.run(1, 1);
    assert_eq!(bench.one("keys", lookup(&k(9))), Ok(v(42).to_vec()));
}

#[test]
fn queues_stacks_and_filters_take_and_give_in_order() {
    let bench = Bench::new(true);
    let push = |value: &[u8], flags| op(Action::Push, &[], value, flags);
    let pop = || op(Action::Pop, &[], &[], 0);
    let peek = || op(Action::Peek, &[], &[], 0);
    let batch = vec![
        push(&v(1), 0),
        push(&v(2), 0),
        push(&v(3), 0),
        peek(),
        pop(),
        op(Action::Update, &[], &v(4), 0),
        push(&v(5), 0),
        push(&v(6), 0),
        push(&v(6), 2),
        op(Action::Lookup, &[], &[], 0),
        op(Action::LookupAndDelete, &[], &[], 0),
        pop(),
        pop(),
        pop(),
        pop(),
        op(Action::Delete, &[], &[], 0),
        push(b"odd", 0),
    ];
    let value = |n| Ok(v(n).to_vec());
    assert_eq!(
        bench.all("line", batch),
        [
            DONE,
            DONE,
            DONE,
            value(1),
            value(1),
            DONE,
            DONE,
            Err(-7),
            DONE,
            value(3),
            value(3),
            value(4),
            value(5),
            value(6),
            Err(-2),
            Err(-22),
            Err(-22)
        ]
    );
    let batch = vec![push(&k(1), 0), push(&k(2), 0), peek(), pop(), pop(), pop()];
    let value = |n| Ok(k(n).to_vec());
    assert_eq!(
        bench.all("pile", batch),
        [DONE, DONE, value(2), value(2), value(1), Err(-2)]
    );
    // What a program pushed, the host pops.
    bench.run(1, 1);
    assert_eq!(bench.one("line", pop()), Ok(v(1).to_vec()));
    let asks = |n| op(Action::Peek, &[], &v(n), 0);
    assert_eq!(bench.one("bloom", push(&v(77), 0)), DONE);
    for (n, there) in [(1, true), (77, true), (78, false), (79, false)] {
        assert_eq!(bench.one("bloom", asks(n)).is_ok(), there, "{n}");
    }
    assert_eq!(bench.one("bloom", pop()), Err(-22));
    // A filter is asked for a value, not for none.
    assert_eq!(bench.one("bloom", push(&v(0), 0)), DONE);
    assert_eq!(bench.one("bloom", asks(0)), Ok(v(0).to_vec()));
    assert_eq!(bench.one("bloom", peek()), Err(-22));
}

#[test]
fn hashes_with_a_value_per_multiprocessor_take_one_or_all() {
    let bench = Bench::new(true);
    let sms = driver().device_info(0).unwrap().sms as usize;
    assert_eq!(bench.one("shares", update(&k(9), &v(5))), DONE);
    assert_eq!(bench.one("shares", lookup(&k(9))), Ok(v(5).repeat(sms)));
    bench.run(8, 32);
    let words = |bytes: Vec<u8>| -> Vec<u64> {
        let words = bytes.chunks_exact(8);
        words
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect()
    };
    let seen = words(bench.one("shares", lookup(&k(9))).unwrap());
    assert_eq!(seen.iter().sum::<u64>(), 5 * sms as u64 + 256);
    let all: Vec<u8> = (0..sms as u64).flat_map(v).collect();
    assert_eq!(bench.one("shares", update(&k(3), &all)), DONE);
    assert_eq!(bench.one("shares", lookup(&k(3))), Ok(all.clone()));
    assert_eq!(bench.one("shares", update(&k(3), &[1; 12])), Err(-22));
    assert_eq!(
        bench.one("shares", op(Action::Update, &k(3), &v(1), 1)),
        Err(-17)
    );
    assert_eq!(
        bench.one("shares", op(Action::LookupAndDelete, &k(3), &[], 0)),
        Err(-22)
    );
    assert_eq!(bench.one("shares", op(Action::Delete, &k(3), &[], 0)), DONE);
    assert_eq!(bench.one("shares", lookup(&k(3))), Err(-2));
    // In one batch too, in the order of each key; values of a wrong length make no key.
    let batch = vec![
        update(&k(1), &v(7)),
        lookup(&k(1)),
        op(Action::Delete, &k(1), &[], 0),
        lookup(&k(1)),
        update(&k(2), &[1; 12]),
        lookup(&k(2)),
        update(&k(2), &all),
        update(&k(2), &v(6)),
        op(Action::Delete, &k(9), &[], 0),
        lookup(&k(2)),
    ];
    assert_eq!(
        bench.all("shares", batch),
        [
            DONE,
            Ok(v(7).repeat(sms)),
            DONE,
            Err(-2),
            Err(-22),
            Err(-2),
            DONE,
            DONE,
            DONE,
            Ok(v(6).repeat(sms)),
        ]
    );
    let (map, ops) = (bench.map("shares"), [lookup(&k(2)), update(&k(2), &v(6))]);
    assert_eq!(bench.live.host_answer_bytes(map, &ops), 8 * sms as u64);
    assert_eq!(bench.one("recent", update(&k(3), &v(8))), DONE);
    assert_eq!(bench.one("recent", lookup(&k(3))), Ok(v(8).to_vec()));
}
