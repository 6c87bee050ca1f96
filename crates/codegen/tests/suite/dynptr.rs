//! Dynptrs on the stack, on the soft GPU: what each call gives and leaves, byte for byte, and
//! records of many lanes.

use std::collections::BTreeMap;

use crate::common::{Case, Device, Ran, clang};
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_object::Program;
use warpbpf_softgpu::Config;

const HEAD: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct bytes { __u8 b[64]; };
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct bytes);
} data SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u64);
} out SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 65536);
} events SEC(".maps");
static void put(__u32 key, __u64 result)
{
    __u64 *v = bpf_map_lookup_elem(&out, &key);
    if (v)
        *v = result;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn case(name: &str, source: &str) -> Case<Program> {
    let case = Case::object(&clang(name, &format!("{HEAD}{source}"), "v3"), 4);
    case.assembles();
    case
}

fn device(case: &Case<Program>, seed: Option<u64>) -> Device {
    Device::new(
        case,
        Config {
            seed,
            memory: 1 << 26,
            step_limit: Some(50_000_000),
            ..Config::default()
        },
    )
}

fn area(case: &Case<Program>, name: &str) -> usize {
    let found = case.maps.iter().position(|(def, _)| def.name == name);
    found.expect("the map")
}

fn outs<const N: usize>(case: &Case<Program>, ran: &Ran) -> [i64; N] {
    let out = area(case, "out");
    std::array::from_fn(|i| ran.u64(out, i as u64 * 8) as i64)
}

/// Headers' flags and payloads, in the order of their reservation in each ring; and the records
/// that found no room.
fn records(case: &Case<Program>, ran: &Ran) -> (Vec<(u32, Vec<u8>)>, u64) {
    let map = area(case, "events");
    let MapLayout::Ring(ring) = case.maps[map].1 else {
        panic!("a ring");
    };
    let (mut list, mut lost) = (Vec::new(), 0);
    for shard in 0..u64::from(ring.shards) {
        let control = shard * RingLayout::CONTROL_STRIDE;
        lost += ran.u64(map, control + RingLayout::LOST_FULL);
        let reserved = ran.u64(map, control + RingLayout::RESERVED);
        let committed: u64 = (0..RingLayout::SUBS)
            .map(|sub| {
                ran.u64(
                    map,
                    ring.commits_at() + (shard * RingLayout::SUBS + sub) * 8,
                )
            })
            .sum();
        assert_eq!(committed, reserved, "what was reserved was given back");
        let mut at = 0;
        while at < reserved {
            let place = ring.data_at() + shard * ring.shard_bytes + at % ring.shard_bytes;
            let header = ran.u32(map, place);
            let length = u64::from(header & RingLayout::LENGTH_MASK);
            let from = (place + RingLayout::HEADER) as usize;
            let payload = ran.areas[map][from..from + length as usize].to_vec();
            // Filler at the end of a sub-buffer is nobody's.
            if header & RingLayout::PADDING == 0 {
                list.push((header & !RingLayout::LENGTH_MASK, payload));
            }
            at += RingLayout::record_bytes(length);
        }
    }
    (list, lost)
}

const E2BIG: i64 = -7;
const EINVAL: i64 = -22;

/// A part of a value that begins and ends within a word.
const LOCAL: &str = r#"
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    struct bpf_dynptr local, none;
    __u32 zero = 0;
    __u64 x = 0x1122334455667788, y = 1;
    __u8 *byte;
    __u64 *word;
    struct bytes *v = bpf_map_lookup_elem(&data, &zero);

    if (!v)
        return 0;
    put(0, bpf_dynptr_from_mem(v->b + 4, 58, 0, &local));
    put(1, bpf_dynptr_from_mem(v->b, 64, 1, &none));
    put(2, bpf_dynptr_read(&y, 8, &none, 0, 0));
    put(3, y);
    put(4, bpf_dynptr_write(&none, 0, &x, 8, 0));
    put(5, !!bpf_dynptr_data(&none, 0, 1));
    put(6, bpf_dynptr_write(&local, 3, &x, 8, 0));
    put(7, bpf_dynptr_read(&y, 8, &local, 3, 0));
    put(8, y);
    put(9, bpf_dynptr_read(&y, 8, &local, 51, 0));
    put(10, y);
    put(11, bpf_dynptr_write(&local, 0xffffffff, &x, 8, 0));
    put(12, bpf_dynptr_write(&local, 0, &x, 8, 4));
    put(13, bpf_dynptr_read(&y, 8, &local, 0, 4));
    word = bpf_dynptr_data(&local, 50, 8);
    if (word)
        *word = 0x0807060504030201;
    put(14, !!word);
    put(15, !!bpf_dynptr_data(&local, 51, 8));
    byte = bpf_dynptr_data(&local, x & 15, 1);
    if (byte)
        *byte = 0xee;
    put(16, !!byte);
    /* At an offset and of an array that differ. */
    put(17, bpf_dynptr_read(&y, 3, &local, bpf_gpu_lane_id() + 2, 0));
    put(18, y);
    return 0;
}
"#;

#[test]
fn a_part_of_a_value() {
    let case = case("local", LOCAL);
    let device = device(&case, None);
    let bytes: Vec<u8> = (100..164).collect();
    device.write(area(&case, "data") + 1, 0, &bytes);
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    let x = 0x1122_3344_5566_7788;
    let last = i64::from_le_bytes([106, 0x88, 0x77, 0, 0, 0, 0, 0]);
    assert_eq!(
        outs(&case, &ran),
        [
            0, EINVAL, EINVAL, 0, EINVAL, 0, 0, 0, x, E2BIG, 0, E2BIG, EINVAL, EINVAL, 1, 0, 1, 0,
            last
        ]
    );
    let mut expected = bytes;
    expected[7..15].copy_from_slice(&x.to_le_bytes());
    expected[54..62].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    expected[4 + 8] = 0xee;
    assert_eq!(ran.areas[area(&case, "data")][..64], expected);
}

/// Records that are there, and all that are not.
const RECORDS: &str = r#"
static long at_caller(struct bpf_dynptr *ptr, __u32 size)
{
    return bpf_ringbuf_reserve_dynptr(&events, size, 0, ptr);
}
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    struct bpf_dynptr ptr;
    char text[16] = "sixteen letters";
    __u32 *tail;

    put(0, bpf_ringbuf_reserve_dynptr(&events, 20, 0, &ptr));
    put(1, bpf_dynptr_write(&ptr, 0, text, 16, 0));
    put(2, bpf_dynptr_write(&ptr, 5, text, 16, 0));
    tail = bpf_dynptr_data(&ptr, 16, 4);
    if (tail)
        *tail = 0xaabbccdd;
    put(3, !!tail);
    bpf_ringbuf_submit_dynptr(&ptr, 0);
    put(4, bpf_ringbuf_reserve_dynptr(&events, 20, 1, &ptr));
    put(5, bpf_dynptr_write(&ptr, 0, text, 16, 0));
    bpf_ringbuf_submit_dynptr(&ptr, 0);
    put(6, bpf_ringbuf_reserve_dynptr(&events, 1 << 24, 0, &ptr));
    put(7, !!bpf_dynptr_data(&ptr, 0, 8));
    bpf_ringbuf_discard_dynptr(&ptr, 0);
    /* Larger than the ring. */
    put(8, at_caller(&ptr, 1 << 20));
    put(9, bpf_dynptr_read(text, 8, &ptr, 0, 0));
    bpf_ringbuf_submit_dynptr(&ptr, 0);
    put(10, at_caller(&ptr, 0));
    put(11, !!bpf_dynptr_data(&ptr, 0, 1));
    bpf_ringbuf_submit_dynptr(&ptr, 0);
    put(12, at_caller(&ptr, 8));
    put(13, bpf_dynptr_write(&ptr, 0, "discards", 8, 0));
    bpf_ringbuf_discard_dynptr(&ptr, 0);
    return 0;
}
"#;

#[test]
fn records_that_are_there_and_records_that_are_not() {
    let case = case("records", RECORDS);
    let device = device(&case, None);
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    assert_eq!(
        outs(&case, &ran),
        [
            0, 0, E2BIG, 1, EINVAL, EINVAL, E2BIG, 0, EINVAL, EINVAL, 0, 0, 0, 0
        ]
    );
    let (found, lost) = records(&case, &ran);
    let mut first = b"sixteen letters\0".to_vec();
    first.extend_from_slice(&[0xdd, 0xcc, 0xbb, 0xaa]);
    let expected = [
        (0, first),
        (0, Vec::new()),
        (RingLayout::DISCARDED, b"discards".to_vec()),
    ];
    assert_eq!(found, expected);
    assert_eq!(lost, 1);
}

/// Each thread sends a record of a size of its own, of which it copies a part from another thread's
/// like; some throw it away.
const MANY: &str = r#"
SEC("gpu/entry/*")
int f(struct wbpf_kernel_ctx *ctx)
{
    struct bpf_dynptr ptr;
    __u64 thread = bpf_gpu_thread_id(), back = 0;
    __u32 size = 9 + thread % 50;
    __u8 last = thread * 7;
    __u64 *word;

    bpf_ringbuf_reserve_dynptr(&events, size, 0, &ptr);
    bpf_dynptr_write(&ptr, 0, &thread, 8, 0);
    bpf_dynptr_write(&ptr, size - 1, &last, 1, 0);
    bpf_dynptr_read(&back, 8, &ptr, 0, 0);
    word = bpf_dynptr_data(&ptr, 0, 8);
    if (word)
        *word += back << 32;
    if (thread % 5)
        bpf_ringbuf_submit_dynptr(&ptr, 0);
    else
        bpf_ringbuf_discard_dynptr(&ptr, 0);
    return 0;
}
"#;

#[test]
fn lanes_have_records_of_their_own_sizes() {
    many("many", 9);
}

/// All of a warp together are larger than a sub-buffer.
#[test]
fn lanes_whose_records_do_not_fit_together_reserve_alone() {
    many("apart", 300);
}

fn many(name: &str, least: u64) {
    let sizes = format!("{least} + thread % 50");
    assert!(MANY.contains("9 + thread % 50"));
    let case = case(name, &MANY.replace("9 + thread % 50", &sizes));
    for seed in [None, Some(1), Some(2), Some(3)] {
        let device = device(&case, seed);
        device.launch([4, 1, 1], [96, 1, 1]);
        let ran = device.maps();
        let (found, lost) = records(&case, &ran);
        assert_eq!((found.len() as u64 + lost, lost), (384, 0), "{seed:?}");
        let mut threads = BTreeMap::new();
        for (flags, payload) in found {
            let word = u64::from_le_bytes(payload[..8].try_into().expect("8 bytes"));
            let thread = word & 0xffff_ffff;
            assert_eq!(word >> 32, thread);
            assert_eq!(payload.len() as u64, least + thread % 50);
            assert_eq!(payload.last().copied(), Some((thread * 7) as u8));
            let discarded = if thread % 5 == 0 {
                RingLayout::DISCARDED
            } else {
                0
            };
            assert_eq!(flags, discarded);
            assert_eq!(threads.insert(thread, ()), None, "{thread} twice");
        }
        assert_eq!(threads.len(), 384);
    }
}

#[test]
fn what_finds_no_room_is_counted_and_given_back_all_the_same() {
    let case = case("full", MANY);
    let device = device(&case, None);
    device.launch([40, 1, 1], [256, 1, 1]);
    let ran = device.maps();
    let (found, lost) = records(&case, &ran);
    assert_eq!(found.len() as u64 + lost, 40 * 256);
    assert!(lost > 0, "the ring is smaller than that");
}
