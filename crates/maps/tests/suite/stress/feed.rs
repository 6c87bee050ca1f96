//! A user ring buffer that many threads drain: every record that the host pushed is taken once,
//! whole, in the host's order.

use proptest::prelude::*;
use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_ANY, EBUSY};
use warpbpf_maps::user_ring::Producer;

use super::device::Device;
use super::work::{Machine, PER_THREAD, Parts, STRESS_THREADS, Todo, What, try_stress};

/// Records that are numbered, at most.
const RECORDS: usize = 1200;

/// `seen[n]` is when record `n` was taken, from 1 on; `faults` counts what cannot be.
const DECLARED: &str = r#"
struct {
    __uint(type, BPF_MAP_TYPE_USER_RINGBUF);
    __uint(max_entries, 4096);
} table SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1200);
    __type(key, __u32);
    __type(value, __u64);
} seen SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} faults SEC(".maps");
static long take(struct bpf_dynptr *sample, void *context)
{
    __u64 words[2] = {};
    __u32 zero = 0, one = 1;
    __u64 *fault = bpf_map_lookup_elem(&faults, &zero), *taken = bpf_map_lookup_elem(&faults, &one);
    if (!fault || !taken)
        return 1;
    if (bpf_dynptr_read(words, sizeof(words), sample, 0, 0) || words[1] != ~words[0])
        __sync_fetch_and_add(fault, 1);
    __u32 number = words[0];
    __u64 *when = bpf_map_lookup_elem(&seen, &number);
    if (!when) {
        __sync_fetch_and_add(fault, 1);
        return 0;
    }
    __u64 ticket = __sync_fetch_and_add(taken, 1) + 1;
    if (__sync_val_compare_and_swap(when, 0, ticket))
        __sync_fetch_and_add(fault, 1);
    return 0;
}
"#;

/// Pushes records of these sizes, in order, until one finds no room; zero is a record that is
/// discarded. Gives how many were done with.
fn push(
    producer: &mut Producer,
    device: &Device,
    area: usize,
    sizes: &[usize],
    next: &mut u64,
) -> usize {
    let range = producer.consumer();
    let mut word = [0; 8];
    device
        .gpu()
        .read(device.address(area) + range.start, &mut word)
        .expect("the ring");
    producer.consumed(u64::from_le_bytes(word));
    let mut done = 0;
    for size in sizes {
        let Ok(mut sample) = producer.reserve(16 + size) else {
            break;
        };
        done += 1;
        if *size == 0 {
            producer.discard(sample);
            continue;
        }
        sample.payload[..8].copy_from_slice(&next.to_le_bytes());
        sample.payload[8..16].copy_from_slice(&(!*next).to_le_bytes());
        *next += 1;
        producer.submit(sample);
    }
    for write in producer.writes() {
        device.write(area, write.offset, &write.bytes);
    }
    done
}

#[test]
fn stress_takes_each_record_once_and_in_order() {
    let machines = Machine::stress(&Parts {
        name: "feed",
        declared: DECLARED,
        act: "op->result = bpf_user_ringbuf_drain(&table, take, 0, 0);",
    });
    // What an operation drains is not its own; its key is a size, of which the host makes records.
    let op = prop_oneof![1 => Just(0), 6 => 1..40u64, 1 => 200..600u64].prop_map(|key| Todo {
        what: What::Drain,
        flags: BPF_ANY,
        key,
        value: 0,
    });
    try_stress(&machines, op, |machine, todo, seed, block| {
        let MapLayout::UserRing(layout) = machine.layout("table") else {
            panic!("a user ring");
        };
        let device = machine.device(seed);
        let area = machine.map("table") + 1;
        let mut producer = Producer::new(layout, 0, 0).expect("an empty ring");
        let sizes: Vec<usize> = todo.iter().map(|op| op.key as usize).collect();
        let (mut pushed, mut next, mut taken, mut rounds) = (0, 0, 0, 0);
        loop {
            pushed += push(&mut producer, &device, area, &sizes[pushed..], &mut next);
            let done = machine.run(&device, &todo, block);
            for drain in &done {
                prop_assert!(drain.result == EBUSY || (0..=16).contains(&drain.result));
                taken += drain.result.max(0) as u64;
            }
            rounds += 1;
            let empty = machine.view(&device, |view| view.undrained()) == Some(0);
            if pushed == sizes.len() && empty {
                break;
            }
            // Somebody drains in each round, at least 16 records or what is there.
            prop_assert!(
                rounds < 2 * STRESS_THREADS * PER_THREAD,
                "{pushed} pushed, {taken} taken"
            );
        }
        prop_assert_eq!(taken, next);
        let ran = device.maps();
        let (seen, faults) = (machine.map("seen"), machine.map("faults"));
        prop_assert_eq!((ran.u64(faults, 0), ran.u64(faults, 8)), (0, next));
        for number in 0..RECORDS as u64 {
            let wanted = if number < next { number + 1 } else { 0 };
            prop_assert_eq!(ran.u64(seen, number * 8), wanted, "record {}", number);
        }
        for at in [UserRingLayout::TAKEN_OVER, UserRingLayout::BROKEN] {
            prop_assert_eq!(ran.u64(area - 1, at), 0);
        }
        Ok(())
    });
}
