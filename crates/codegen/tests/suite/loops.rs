//! Callbacks, iterators and `may_goto` as clang writes them, on the soft GPU.

use crate::common::{self, Case, Device, clang};
use warpbpf_softgpu::Config;

const CPUS: [&str; 3] = ["v2", "v3", "v4"];
const THREADS: u64 = 48;

const HEAD: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u64);
} out SEC(".maps");
static void put(struct wbpf_kernel_ctx *ctx, __u64 result)
{
    __u32 key = ctx->thread_idx[0];
    __u64 *v = bpf_map_lookup_elem(&out, &key);
    if (v)
        *v = result;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Each thread's result equals `expected`, for every version of the instruction set.
fn check(name: &str, source: &str, expected: impl Fn(u64) -> u64) {
    for cpu in CPUS {
        let case = Case::object(&clang(name, &format!("{HEAD}{source}"), cpu), 4);
        common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
        let device = Device::new(
            &case,
            Config {
                seed: Some(5),
                memory: 1 << 26,
                step_limit: Some(50_000_000),
                ..Config::default()
            },
        );
        device.launch([1, 1, 1], [THREADS as u32, 1, 1]);
        let ran = device.maps();
        let out = case.maps.iter().position(|(def, _)| def.name == "out");
        let out = out.expect("the map");
        for thread in 0..THREADS {
            assert_eq!(
                ran.u64(out, thread * 8),
                expected(thread),
                "thread {thread}, {cpu}"
            );
        }
    }
}

#[test]
fn nested_loops_share_the_callers_stack() {
    let source = r#"
struct sum { __u64 total; __u32 limit; __u32 calls; };
static long inner(__u64 j, struct sum *s)
{
    s->total += j + 1;
    return 0;
}
static long outer(__u64 i, struct sum *s)
{
    __u64 before = s->total;
    s->calls++;
    bpf_loop(i & 3, inner, s, 0);
    s->total += before & 7;
    return i + 1 == s->limit;
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    struct sum s = { .limit = 9 };
    long n = bpf_loop(ctx->thread_idx[0], outer, &s, 0);
    long bad = bpf_loop(3, outer, &s, 1);
    put(ctx, s.total << 24 | s.calls << 16 | n << 8 | (bad == -22));
    return 0;
}
"#;
    check("nested", source, |thread| {
        let n = thread.min(9);
        let mut total = 0u64;
        for i in 0..n {
            let before = total;
            total += (1..=i & 3).sum::<u64>();
            total += before & 7;
        }
        total << 24 | n << 16 | n << 8 | 1
    });
}

#[test]
fn elements_of_maps() {
    let source = r#"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 10);
    __type(key, __u32);
    __type(value, __u64);
} numbers SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 200);
    __type(key, __u64);
    __type(value, __u64);
} table SEC(".maps");
struct seen { __u64 keys; __u64 values; __u32 stop; };
static long number(void *map, __u32 *key, __u64 *value, struct seen *s)
{
    s->keys += *key;
    s->values += *value;
    return *key == s->stop;
}
static long entry(void *map, __u64 *key, __u64 *value, struct seen *s)
{
    if ((*key & 0xff) != s->stop)
        return 0;
    s->keys += *key >> 8;
    s->values ^= *value;
    return 0;
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 t = ctx->thread_idx[0];
    struct seen s = { .stop = t & 15 };
    /* Each thread has its own entries of the hash, two of which stay. */
    for (int i = 0; i < 3; i++) {
        __u64 key = t | (i + 1) << 8, value = (i + 5) * (t + 1);
        bpf_map_update_elem(&table, &key, &value, 0);
    }
    __u64 gone = t | 2 << 8;
    bpf_map_delete_elem(&table, &gone);
    long n = bpf_for_each_map_elem(&numbers, number, &s, 0);
    struct seen h = { .stop = t };
    bpf_for_each_map_elem(&table, entry, &h, 0);
    put(ctx, s.keys | n << 8 | s.values << 16 | h.keys << 32 | h.values << 40);
    return 0;
}
"#;
    check("elements", source, |thread| {
        let stop = thread & 15;
        let calls = (stop + 1).min(10);
        let keys: u64 = (0..calls).sum();
        let values = (5 * (thread + 1)) ^ (7 * (thread + 1));
        keys | calls << 8 | 4 << 32 | values << 40
    });
}

#[test]
fn iterators() {
    let source = r#"
struct bpf_iter_num { __u64 opaque[1]; } __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __weak __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __weak __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __weak __ksym;
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 t = ctx->thread_idx[0];
    struct bpf_iter_num it, in;
    __u64 sum = 0, rounds = 0;
    int *v, *w;
    int bad = bpf_iter_num_new(&it, 5, 4);
    if (bpf_iter_num_next(&it))
        rounds = 1000;
    bpf_iter_num_destroy(&it);
    bpf_iter_num_new(&it, -2, t);
    while ((v = bpf_iter_num_next(&it))) {
        bpf_iter_num_new(&in, 0, 3);
        while ((w = bpf_iter_num_next(&in)))
            sum += *v * 4 + *w;
        bpf_iter_num_destroy(&in);
        rounds++;
        if (*v == 20)
            break;
    }
    bpf_iter_num_destroy(&it);
    put(ctx, sum << 16 | rounds << 8 | (bad == -22));
    return 0;
}
"#;
    check("iterators", source, |thread| {
        let last = (thread as i64 - 1).min(20);
        let sum: i64 = (-2..=last).map(|v| 12 * v + 3).sum();
        let rounds = last + 3;
        (sum << 16) as u64 | (rounds as u64) << 8 | 1
    });
}

#[test]
fn may_goto_ends_what_nothing_else_would() {
    let source = r#"
#define may_goto_or(label) asm volatile goto("may_goto %l[" #label "]" :::: label)
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 n = ctx->thread_idx[0] + 1;
    __u64 steps = 0;
    while (n != 1) {
        may_goto_or(out);
        n = n & 1 ? 3 * n + 1 : n >> 1;
        steps++;
    }
out:
    put(ctx, steps << 32 | n);
    return 0;
}
"#;
    let collatz = |thread: u64| {
        let (mut n, mut steps) = (thread + 1, 0u64);
        while n != 1 {
            n = if n & 1 == 1 { 3 * n + 1 } else { n >> 1 };
            steps += 1;
        }
        steps << 32 | 1
    };
    for cpu in ["v4"] {
        let object = clang("may_goto", &format!("{HEAD}{source}"), cpu);
        let case = Case::object(&object, 4);
        assert!(case.program.facts().may_goto_rounds > 120);
        let device = Device::new(&case, Config::default());
        device.launch([1, 1, 1], [THREADS as u32, 1, 1]);
        let ran = device.maps();
        for thread in 0..THREADS {
            assert_eq!(ran.u64(0, thread * 8), collatz(thread), "thread {thread}");
        }
    }
}

#[test]
fn a_bound_at_run_time_is_the_proofs_in_compiled_code() {
    let source = r#"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u64);
} bounds SEC(".maps");
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = ctx->thread_idx[0];
    __u64 *count = bpf_map_lookup_elem(&bounds, &key), sum = 1;
    if (!count)
        return 0;
    for (__u64 k = 0, n = *count; k < n; k++)
        sum = (sum ^ k) * 3;
    put(ctx, sum);
    return 0;
}
"#;
    for cpu in CPUS {
        let object = clang("bounded", &format!("{HEAD}{source}"), cpu);
        let case = Case::bounded(&object, 4, 4096);
        common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
        let rounds = u64::from(case.program.facts().may_goto_rounds);
        let device = Device::new(&case, Config::default());
        let map = |name: &str| {
            let found = object.maps.iter().position(|def| def.name == name);
            found.expect("the map")
        };
        // Around the bound, and far from it.
        let count = |thread: u64| match thread {
            0 => 0,
            1 => u64::MAX,
            _ => rounds + thread - THREADS / 2,
        };
        for thread in 0..THREADS {
            let bytes = count(thread).to_le_bytes();
            device.write(map("bounds") + 1, thread * 8, &bytes);
        }
        device.launch([1, 1, 1], [THREADS as u32, 1, 1]);
        let ran = device.maps();
        let mut ended = 0;
        for thread in 0..THREADS {
            let n = count(thread);
            ended += u64::from(n > rounds);
            let sum = || (0..n).fold(1u64, |sum, k| (sum ^ k).wrapping_mul(3));
            let expected = if n > rounds { 0 } else { sum() };
            let result = ran.u64(map("out"), thread * 8);
            assert_eq!(result, expected, "thread {thread}, {cpu}");
        }
        assert_eq!(ended, THREADS / 2);
        let stride = 128;
        let counted: u64 = (0..4)
            .map(|shard| ran.u64(object.maps.len(), shard * stride))
            .sum();
        assert_eq!(counted, ended, "{cpu}");
    }
}
