//! User ring buffers on the soft GPU: what one thread drains, what many lanes drain together, and
//! what a broken ring, a thread that ended and one that was stopped leave.

use crate::common::{self, Case, Device, Ran, clang};
use warpbpf_abi::layout::UserRingLayout;
use warpbpf_object::Program;
use warpbpf_softgpu::Config;

const BYTES: u32 = UserRingLayout::LEAST;
const BUSY: u32 = UserRingLayout::BUSY;
const DISCARDED: u32 = UserRingLayout::DISCARDED;

const HEAD: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_USER_RINGBUF);
    __uint(max_entries, 4096);
} jobs SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u64);
} out SEC(".maps");
static void put(__u32 key, __u64 result)
{
    __u64 *v = bpf_map_lookup_elem(&out, &key);
    if (v)
        *v = result;
}
static void add(__u32 key, __u64 n)
{
    __u64 *v = bpf_map_lookup_elem(&out, &key);
    if (v)
        __sync_fetch_and_add(v, n);
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Sums what it reads in both ways; stops at 99.
const SUMS: &str = r#"
struct job { __u64 number; __u32 weight; __u8 tail[4]; };
struct sum { __u64 total; __u64 weights; __u64 short_ones; __u64 differ; __u64 tails; };
static long take(struct bpf_dynptr *sample, void *ctx)
{
    struct sum *s = ctx;
    struct job job;
    __u32 tail = 0;
    if (bpf_dynptr_read(&job, sizeof(job), sample, 0, 0)) {
        s->short_ones++;
        return 0;
    }
    __u64 *number = bpf_dynptr_data(sample, 0, 8);
    __u32 *weight = bpf_dynptr_data(sample, 8, 4);
    if (!number || !weight || *number != job.number || *weight != job.weight)
        s->differ++;
    if (bpf_dynptr_read(&tail, 3, sample, 13, 0) == 0)
        s->tails += tail;
    s->total = s->total * 31 + job.number;
    s->weights += job.weight;
    return job.weight == 99;
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    struct sum s = {};
    put(5, bpf_user_ringbuf_drain(&jobs, take, &s, 8));
    put(0, bpf_user_ringbuf_drain(&jobs, take, &s, BPF_RB_NO_WAKEUP));
    put(1, s.total);
    put(2, s.weights);
    put(3, s.short_ones);
    put(4, s.differ);
    put(6, s.tails);
    return 0;
}
"#;

fn case(name: &str, source: &str) -> Case<Program> {
    let case = Case::object(&clang(name, &format!("{HEAD}{source}"), "v3"), 4);
    common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
    case
}

fn device(case: &Case<Program>, seed: Option<u64>) -> Device {
    Device::new(case, config(seed))
}

fn config(seed: Option<u64>) -> Config {
    Config {
        seed,
        memory: 1 << 26,
        step_limit: Some(50_000_000),
        // Who drains is judged by it, however long a test takes.
        clock: || 5 * UserRingLayout::STALE_NS,
        ..Config::default()
    }
}

fn area(case: &Case<Program>, name: &str) -> usize {
    let found = case.maps.iter().position(|(def, _)| def.name == name);
    found.expect("the map")
}

/// A record: length with flags, payload, padding.
fn record(flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u64::from(payload.len() as u32 | flags)
        .to_le_bytes()
        .to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(
        UserRingLayout::record_bytes(payload.len() as u64) as usize,
        0xee,
    );
    bytes
}

fn job(number: u64, weight: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend_from_slice(&weight.to_le_bytes());
    bytes.extend_from_slice(&[0xaa, 1, 2, 3]);
    bytes
}

struct Ring<'a> {
    device: &'a Device,
    area: usize,
}

impl Ring<'_> {
    fn set(&self, at: u64, value: u64) {
        self.device.write(self.area + 1, at, &value.to_le_bytes());
    }

    /// Writes records from position `from` on, which are there from now on; gives the position
    /// behind them.
    fn fill(&self, from: u64, records: &[Vec<u8>]) -> u64 {
        let mut at = from;
        for record in records {
            let place = at % u64::from(BYTES);
            assert!(place + record.len() as u64 <= BYTES.into());
            self.device
                .write(self.area + 1, UserRingLayout::DATA + place, record);
            at += record.len() as u64;
        }
        self.set(UserRingLayout::CONSUMER, from);
        self.set(UserRingLayout::PRODUCER, at);
        at
    }
}

fn ring<'a>(case: &Case<Program>, device: &'a Device) -> Ring<'a> {
    Ring {
        device,
        area: area(case, "jobs"),
    }
}

/// Runs one thread; gives the first values of `out`, and the ring's consumer, lock and counts of
/// takeovers and of breaks.
fn alone(case: &Case<Program>, device: &Device) -> ([i64; 7], [u64; 4]) {
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    (outs(case, &ran), controls(case, &ran))
}

fn outs(case: &Case<Program>, ran: &Ran) -> [i64; 7] {
    let out = area(case, "out");
    std::array::from_fn(|i| ran.u64(out, i as u64 * 8) as i64)
}

fn controls(case: &Case<Program>, ran: &Ran) -> [u64; 4] {
    let jobs = area(case, "jobs");
    [
        UserRingLayout::CONSUMER,
        UserRingLayout::LOCK,
        UserRingLayout::TAKEN_OVER,
        UserRingLayout::BROKEN,
    ]
    .map(|at| ran.u64(jobs, at))
}

const TAIL: i64 = 0x03_02_01;
const EINVAL: i64 = -22;
const EBUSY: i64 = -16;

#[test]
fn one_thread_drains_in_order() {
    let case = case("drains", SUMS);
    let device = device(&case, None);
    let ring = ring(&case, &device);
    // Nothing is there.
    assert_eq!(alone(&case, &device), ([0, 0, 0, 0, 0, EINVAL, 0], [0; 4]));
    // A discarded record is skipped, a short one is called for, and what follows comes in order.
    let end = ring.fill(
        0,
        &[
            record(0, &job(7, 1)),
            record(DISCARDED, &[9; 20]),
            record(0, &[5; 4]),
            record(0, &job(8, 2)),
            record(0, &[]),
        ],
    );
    let expected = [4, 7 * 31 + 8, 3, 2, 0, EINVAL, 2 * TAIL];
    assert_eq!(alone(&case, &device), (expected, [end, 0, 0, 0]));
    // The callback ends it; the record it was called for is gone.
    let jobs = [job(1, 1), job(2, 99), job(3, 1)].map(|job| record(0, &job));
    ring.fill(end, &jobs);
    let expected = [2, 33, 100, 0, 0, EINVAL, 2 * TAIL];
    assert_eq!(alone(&case, &device), (expected, [end + 48, 0, 0, 0]));
    // A record that is not submitted holds back what follows.
    ring.fill(0, &[record(0, &job(4, 4)), record(BUSY, &job(5, 5))]);
    let expected = [1, 4, 4, 0, 0, EINVAL, TAIL];
    assert_eq!(alone(&case, &device), (expected, [24, 0, 0, 0]));
}

#[test]
fn one_call_is_bounded() {
    let case = case("bounded", SUMS);
    let device = device(&case, None);
    let ring = ring(&case, &device);
    let many: Vec<Vec<u8>> = (0..40).map(|i| record(0, &job(i, 1))).collect();
    ring.fill(0, &many);
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(alone(&case, &device).0[0]);
    }
    assert_eq!(calls, [16, 16, 8, 0]);
    // Discarded records are no calls, and have a bound of their own.
    let mut many = vec![record(DISCARDED, &[]); 20];
    many.push(record(0, &job(1, 1)));
    let end = ring.fill(0, &many);
    assert_eq!(alone(&case, &device).0[0], 0);
    let (out, [consumer, ..]) = alone(&case, &device);
    assert_eq!((out[0], consumer), (1, end));
}

#[test]
fn a_broken_ring_is_told_and_goes_on_with_what_comes_later() {
    let case = case("broken", SUMS);
    let device = device(&case, None);
    let ring = ring(&case, &device);
    let breaks = std::cell::Cell::new(0);
    let run = |header: u32, from: u64, length: u64| {
        ring.fill(from, &[record(0, &job(1, 1))]);
        let place = UserRingLayout::DATA + from % u64::from(BYTES);
        let header = u64::from(header).to_le_bytes();
        device.write(ring.area + 1, place, &header);
        ring.set(UserRingLayout::PRODUCER, from.wrapping_add(length));
        let (out, [consumer, lock, _, broken]) = alone(&case, &device);
        breaks.set(breaks.get() + 1);
        let end = from.wrapping_add(length);
        assert_eq!((consumer, lock, broken), (end, 0, breaks.get()));
        assert_eq!(out[2], 0, "nobody was called for it");
        out[0]
    };
    // Longer than what is there, than the ring, than what is left up to its end.
    assert_eq!(run(17, 0, 24), EINVAL);
    assert_eq!(run(DISCARDED - 1, 0, 24), EINVAL);
    assert_eq!(run(BYTES, 0, 1 << 20), EINVAL);
    assert_eq!(run(100, 8192 - 64, 1 << 20), EINVAL);
    // A position between records is still read inside the ring.
    assert_eq!(
        run(DISCARDED - 1, 4096 * 7 + 8, (u64::MAX / 4) & !7),
        EINVAL
    );
    assert_eq!(run(17, 40, 24), EINVAL);
    let end = ring.fill(64, &[record(0, &job(7, 1))]);
    let (out, controls) = alone(&case, &device);
    assert_eq!((out[0], out[1]), (1, 7));
    assert_eq!(controls, [end, 0, 0, breaks.get()]);
}

#[test]
fn nobody_waits_for_who_drains() {
    let case = case("locked", SUMS);
    let config = Config {
        clock: || 5_000,
        ..config(None)
    };
    let device = Device::new(&case, config);
    let ring = ring(&case, &device);
    ring.fill(0, &[record(0, &job(7, 1))]);
    // Whoever drains took it after this launch began, by another multiprocessor's clock: the one
    // here is far behind.
    let soon = UserRingLayout::STALE_NS - 1;
    ring.set(UserRingLayout::LOCK, soon);
    let (out, [consumer, lock, over, _]) = alone(&case, &device);
    assert_eq!((out[0], out[2]), (EBUSY, 0));
    assert_eq!((consumer, lock, over), (0, soon, 0));
    // A time so far ahead was never taken.
    ring.set(UserRingLayout::LOCK, i64::MAX as u64);
    let (out, [consumer, lock, over, _]) = alone(&case, &device);
    assert_eq!((out[0], out[2]), (1, 1));
    assert_eq!((consumer, lock, over), (24, 0, 1));
}

/// Each thread drains once, and keeps count.
const MANY: &str = r#"
static long take(struct bpf_dynptr *sample, void *ctx)
{
    __u64 *number = bpf_dynptr_data(sample, 0, 8);
    if (number) {
        add(0, 1);
        add(1, *number);
        add(2, *number * *number);
    }
    return 0;
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    long n = bpf_user_ringbuf_drain(&jobs, take, 0, 0);
    if (n > 0)
        add(3, n);
    if (n == -16)
        add(4, 1);
    if (n < 0 && n != -16)
        add(5, 1);
    return 0;
}
"#;

#[test]
fn each_record_is_drained_once() {
    let case = case("many", MANY);
    for seed in [None, Some(1), Some(2), Some(3), Some(4), Some(5)] {
        let device = device(&case, seed);
        let ring = ring(&case, &device);
        let (mut numbers, mut squares, mut count, mut at) = (0u64, 0u64, 0u64, 0);
        for round in 0..4u64 {
            // All rounds together do not fill the ring, so no record crosses its end.
            let jobs: Vec<u64> = (1..=20).map(|i| round * 1000 + i).collect();
            let records: Vec<Vec<u8>> = jobs.iter().map(|n| record(0, &job(*n, 0))).collect();
            at = ring.fill(at, &records);
            numbers += jobs.iter().sum::<u64>();
            squares += jobs.iter().map(|n| n * n).sum::<u64>();
            count += 20;
            device.launch([4, 1, 1], [96, 1, 1]);
            device.launch([1, 1, 1], [1, 1, 1]);
            let ran = device.maps();
            let out = outs(&case, &ran).map(|n| n as u64);
            assert_eq!(out[..4], [count, numbers, squares, count], "{seed:?}");
            assert_eq!(out[5], 0);
            assert_eq!(controls(&case, &ran), [at, 0, 0, 0]);
        }
    }
}

/// The thread that drains first ends in its callback.
const ENDS: &str = r#"
static long take(struct bpf_dynptr *sample, void *ctx)
{
    __u64 *number = bpf_dynptr_data(sample, 0, 8);
    add(0, 1);
    if (number && *number == 13)
        bpf_gpu_exit();
    return 0;
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    put(1, bpf_user_ringbuf_drain(&jobs, take, 0, 0));
    return 0;
}
"#;

#[test]
fn a_thread_that_ended_is_taken_over() {
    let case = case("ends", ENDS);
    let device = device(&case, None);
    let ring = ring(&case, &device);
    ring.fill(0, &[record(0, &job(13, 0)), record(0, &job(1, 0))]);
    let (out, [consumer, lock, over, _]) = alone(&case, &device);
    assert_eq!((out[0], out[1], consumer, over), (1, 0, 0, 0));
    assert_ne!(lock, 0, "it holds the ring for ever");
    // Soon after that it is taken to be at work,
    let (out, [_, still, ..]) = alone(&case, &device);
    assert_eq!((out[0], out[1], still), (1, EBUSY, lock));
    // and later not.
    ring.set(
        UserRingLayout::LOCK,
        lock.wrapping_sub(UserRingLayout::STALE_NS),
    );
    ring.fill(0, &[record(0, &job(12, 0)), record(0, &job(1, 0))]);
    let (out, [consumer, lock, over, _]) = alone(&case, &device);
    assert_eq!((out[0], out[1]), (3, 2));
    assert_eq!((consumer, lock, over), (48, 0, 1));
}
