//! What clang makes of ordinary C: the examples, and the ways in which people write counters.

use crate::common::{self, Case, Device, clang, workspace};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{MapLayout, SumField};
use warpbpf_codegen::map_uses;
use warpbpf_softgpu::Config;

const CPUS: [&str; 3] = ["v2", "v3", "v4"];

fn config() -> Config {
    Config {
        seed: Some(5),
        memory: 1 << 26,
        step_limit: Some(50_000_000),
        ..Config::default()
    }
}

fn example(name: &str) -> String {
    let path = workspace()
        .join("examples")
        .join(name)
        .join(format!("{name}.bpf.c"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn examples_assemble() {
    for name in ["threadhist", "kernelretsnoop", "launchcount"] {
        for cpu in CPUS {
            let case = Case::object(&clang(name, &example(name), cpu), 132);
            assert_eq!(
                case.compile().local_bytes,
                0,
                "{name}: the stack became registers"
            );
            common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
        }
    }
}

#[test]
fn threadhist_counts_threads_and_blocks() {
    for cpu in CPUS {
        let case = Case::object(&clang("threadhist", &example("threadhist"), cpu), 4);
        let device = Device::new(&case, config());
        device.launch([3, 2, 1], [64, 1, 1]);
        let ran = device.maps();
        let MapLayout::PerThread(threads) = case.env.maps[0].layout else {
            panic!("per thread")
        };
        for thread in 0..3 * 2 * 64 {
            assert_eq!(ran.u64(0, threads.value(0, thread)), 1);
        }
        for block in 0..6 {
            assert_eq!(ran.u64(1, block * 8), 64);
        }
    }
}

#[test]
fn launchcount_counts_once_per_block() {
    for cpu in CPUS {
        let case = Case::object(&clang("launchcount", &example("launchcount"), cpu), 4)
            .scope(Scope::Block);
        let MapLayout::Hash(layout) = case.env.maps[0].layout else {
            panic!("a hash")
        };
        let device = Device::new(&case, config());
        // The splicer elects one thread of each block; here a block is one thread.
        device.launch([5, 3, 1], [1, 1, 1]);
        device.launch([5, 3, 1], [1, 1, 1]);
        let ran = device.maps();
        let nodes: Vec<u64> = (0..layout.slots())
            .filter_map(|slot| layout.node_of(slot, ran.u64(0, layout.slot(slot))))
            .collect();
        let [node] = nodes[..] else {
            panic!("one key: {nodes:?}")
        };
        let words: Vec<u64> = (0..4).map(|i| ran.u64(0, node + i * 8)).collect();
        assert_eq!(words, [7, 2, 30, 30]);
    }
}

/// Each way of counting is exact, whatever clang makes of it.
#[test]
fn counters_as_people_write_them() {
    let source = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct v { __u64 a; __u32 b; __u32 c; __s64 d; __u64 bytes; };
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, struct v);
} m SEC(".maps");
__u64 global_count;
static __u32 small_count;
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = ctx->thread_idx[0] & 3;
    struct v *v = bpf_map_lookup_elem(&m, &key);
    if (!v)
        return 0;
    (*v).a++;
    v->b += ctx->lane;
    v->c = v->c + 1;
    v->d -= 3;
    __sync_fetch_and_add(&v->bytes, ctx->block_dim[0] * 4);
    global_count += 2;
    if (ctx->thread_idx[0] % 3 == 0)
        small_count++;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    for cpu in CPUS {
        let object = clang("counters", source, cpu);
        let case = Case::object(&object, 4);
        let device = Device::new(&case, config());
        device.launch([10, 1, 1], [64, 1, 1]);
        let ran = device.maps();
        for key in 0..4u64 {
            let at = key * 32;
            let lanes: u64 = (0..64).filter(|t| t % 4 == key).map(|t| t % 32).sum();
            assert_eq!(ran.u64(0, at), 160);
            assert_eq!(u64::from(ran.u32(0, at + 8)), 10 * lanes);
            assert_eq!(ran.u32(0, at + 12), 160);
            assert_eq!(ran.u64(0, at + 16) as i64, -480);
            assert_eq!(ran.u64(0, at + 24), 160 * 256);
        }
        let bss = object
            .maps
            .iter()
            .position(|map| map.name.ends_with(".bss"))
            .expect(".bss");
        let mut words: Vec<u64> = (0..2).map(|i| ran.u64(bss, i * 8)).collect();
        words.sort();
        assert_eq!(words, [10 * 22, 2 * 640]);

        let uses = map_uses(&case.program, Site::Entry, object.maps.len());
        assert_eq!(uses[0].not_summable, None);
        let fields = [(0, 8), (8, 4), (12, 4), (16, 8), (24, 8)];
        assert_eq!(
            uses[0].adds,
            fields
                .map(|(offset, size)| SumField { offset, size })
                .into()
        );
        assert_eq!(uses[bss].not_summable, None);
    }
}

#[test]
fn keys_of_sums_may_come_and_go_by_helpers() {
    let source = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#define HASH(name) struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); \
    __type(key, __u64); __type(value, __u32); } name SEC(".maps")
HASH(counts); HASH(stored); HASH(read); HASH(gone);
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u64 key = ctx->sm;
    __u32 one = 1, *n;
    if ((n = bpf_map_lookup_elem(&counts, &key))) __sync_fetch_and_add(n, 1);
    else bpf_map_update_elem(&counts, &key, &one, BPF_ANY);
    if ((n = bpf_map_lookup_elem(&stored, &key))) *n = ctx->lane;
    else bpf_map_update_elem(&stored, &key, &one, BPF_ANY);
    if ((n = bpf_map_lookup_elem(&read, &key)) && __sync_fetch_and_add(n, 1) == 3)
        bpf_map_delete_elem(&read, &key);
    if ((n = bpf_map_lookup_elem(&gone, &key))) *n += 2;
    bpf_map_delete_elem(&gone, &key);
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let object = clang("keyed", source, "v3");
    let case = Case::object(&object, 4);
    let uses = map_uses(&case.program, Site::Entry, object.maps.len());
    let of = |name: &str| {
        let at = object.maps.iter().position(|map| map.name == name);
        &uses[at.expect("it is there")]
    };
    let field = SumField { offset: 0, size: 4 };
    for (name, more) in [
        ("counts", false),
        ("stored", true),
        ("read", true),
        ("gone", false),
    ] {
        assert_eq!(of(name).more_than_adds, more, "{name}");
        // An array with them would have one copy.
        assert!(of(name).not_summable.is_some(), "{name}");
    }
    assert_eq!(of("counts").adds, [field].into());
    assert_eq!(of("gone").adds, [field].into());
}

#[test]
fn maps_that_cannot_be_summed() {
    let source = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#define ARRAY(name) struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); \
    __type(key, __u32); __type(value, __u64[8]); } name SEC(".maps")
ARRAY(a_read); ARRAY(b_store); ARRAY(c_update); ARRAY(d_result); ARRAY(e_index); ARRAY(f_passed); ARRAY(g_or); ARRAY(h_unused);
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 65536); } ring SEC(".maps");
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = ctx->sm & 3;
    __u64 (*v)[8], sum = 0, big[8] = {};
    if ((v = bpf_map_lookup_elem(&a_read, &key))) sum = (*v)[2];
    if ((v = bpf_map_lookup_elem(&b_store, &key))) (*v)[1] = sum;
    bpf_map_update_elem(&c_update, &key, big, 0);
    if ((v = bpf_map_lookup_elem(&d_result, &key))) { if ((*v)[0]++ == 3) bpf_gpu_membar(); }
    if ((v = bpf_map_lookup_elem(&e_index, &key))) (*v)[ctx->lane & 7] += 1;
    if ((v = bpf_map_lookup_elem(&f_passed, &key))) bpf_ringbuf_output(&ring, v, 8, 0);
    if ((v = bpf_map_lookup_elem(&g_or, &key))) (*v)[3] |= 4;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let object = clang("unsummable", source, "v3");
    let case = Case::object(&object, 4);
    common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
    let uses = map_uses(&case.program, Site::Entry, object.maps.len());
    let reasons: Vec<(&str, Option<&str>)> = object
        .maps
        .iter()
        .zip(&uses)
        .map(|(map, u)| (map.name.as_str(), u.not_summable.as_deref()))
        .collect();
    assert_eq!(
        reasons[..9],
        [
            ("a_read", Some("the program reads its value at offset 16")),
            (
                "b_store",
                Some("the program stores to its value at offset 8")
            ),
            ("c_update", Some("`bpf_map_update_elem` changes it")),
            (
                "d_result",
                Some("the program uses what an addition at offset 0 returns")
            ),
            ("e_index", Some("the program adds at an offset that varies")),
            (
                "f_passed",
                Some("a pointer to its value is passed to `bpf_ringbuf_output`")
            ),
            ("ring", None),
            (
                "g_or",
                Some("the program changes its value at offset 24 other than by adding")
            ),
            ("h_unused", None),
        ]
    );
}
