//! Maps, rings and helpers on the soft GPU with many lanes at once: exact counts, whatever the
//! schedule.

use crate::common::{self, Case, Device, Ran, array, hash, per_thread, ring, rodata, sharded};
use warpbpf_abi::attach::Scope;
use warpbpf_abi::layout::{HashLayout, MapLayout, PerThreadLayout, RingLayout, env, printk};
use warpbpf_abi::maps::{E2BIG, EEXIST, EINVAL, ENOENT};
use warpbpf_softgpu::Config;

fn config(seed: Option<u64>) -> Config {
    Config {
        sms: 4,
        threads: 2,
        seed,
        memory: 1 << 26,
        step_limit: Some(50_000_000),
        ..Config::default()
    }
}

/// Runs under several schedules.
fn schedules(case: &Case, grid: u32, block: u32, check: impl Fn(&Ran)) {
    for &seed in common::seeds() {
        check(&case.run(config(seed), [grid, 1, 1], [block, 1, 1]));
    }
}

/// A lookup with key 0 of map 0, then `body` with the value in r0.
fn with_value(body: &str) -> String {
    format!(
        "r6 = r1
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto out
        {body}
        out:
        r0 = 0
        exit"
    )
}

const INCREMENT: &str = "r1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1";

#[test]
fn a_shared_counter_counts_every_thread() {
    let case = Case::new(&with_value(INCREMENT), vec![array(8, 1)]);
    // One instruction: ptxas aggregates it over the lanes.
    assert_eq!(case.compile().body.matches("red.").count(), 1);
    assert!(!case.compile().body.contains("activemask"));
    schedules(&case, 7, 96 + 5, |ran| assert_eq!(ran.u64(0, 0), 7 * 101));
}

#[test]
fn a_sharded_counter_sums_to_every_thread() {
    let shards = 3;
    let case = Case::new(&with_value(INCREMENT), vec![sharded(8, 1, shards)]);
    let MapLayout::Array(layout) = case.env.maps[0].layout else {
        panic!("an array")
    };
    schedules(&case, 9, 64, |ran| {
        // Four SMs and three copies: the last is shared.
        let counts: Vec<u64> = (0..shards)
            .map(|s| ran.u64(0, layout.value(s, 0)))
            .collect();
        assert_eq!(counts.iter().sum::<u64>(), 9 * 64, "{counts:?}");
    });
}

#[test]
fn divergent_and_varying_additions_are_exact() {
    // Odd threads add their index to a u32, the others subtract 1 from a u64.
    let body = "
        r1 = *(u32 *)(r6 + 24)
        r2 = r1
        r2 &= 1
        if r2 == 0 goto even
        r3 = *(u32 *)(r0 + 8)
        r3 += r1
        *(u32 *)(r0 + 8) = r3
        goto out
        even:
        r3 = *(u64 *)(r0 + 0)
        r3 -= 1
        *(u64 *)(r0 + 0) = r3";
    let case = Case::new(&with_value(body), vec![array(16, 1)]);
    schedules(&case, 5, 64, |ran| {
        assert_eq!(ran.u64(0, 0) as i64, -(5 * 32));
        assert_eq!(ran.u32(0, 8), 5 * (1..64).step_by(2).sum::<u32>());
    });
}

#[test]
fn the_old_value_of_an_increment_is_a_ticket() {
    // `n = (*v)++; slots[n] = 1`: every ticket is drawn once.
    let asm = "
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto out
        r7 = *(u64 *)(r0 + 0)
        r1 = r7
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        *(u32 *)(r10 - 4) = r7
        r2 = r10
        r2 += -4
        r1 = map[1]
        call 1
        if r0 == 0 goto out
        r1 = 1
        lock *(u64 *)(r0 + 0) += r1
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(8, 1), array(8, 200)]);
    schedules(&case, 3, 64, |ran| {
        assert_eq!(ran.u64(0, 0), 192);
        for key in 0..200 {
            assert_eq!(ran.u64(1, key * 8), u64::from(key < 192), "ticket {key}");
        }
    });
}

#[test]
fn per_thread_values_and_strangers() {
    let case = Case::new(&with_value(INCREMENT), vec![per_thread(8, 1, 100)]);
    let layout = PerThreadLayout {
        max_entries: 1,
        value_size: 8,
        threads: 100,
    };
    let device = Device::new(&case, config(Some(4)));
    device.launch([2, 2, 1], [8, 2, 2]);
    device.launch([2, 2, 1], [8, 2, 2]);
    let ran = device.maps();
    assert_eq!(ran.u64(0, PerThreadLayout::REFUSED), 2 * 28);
    for thread in 0..100 {
        assert_eq!(ran.u64(0, layout.value(0, thread)), 2, "thread {thread}");
    }
}

#[test]
fn update_flags_and_errors() {
    // One thread; each call's result goes into the next word of map 1.
    let mut asm =
        String::from("r9 = map[1][0] + 0\n*(u64 *)(r10 - 8) = 3\n*(u64 *)(r10 - 16) = 42\n");
    let mut call = |setup: &str, flags: i32, id: u32, at: u32| {
        asm.push_str(&format!(
            "{setup}
            r2 = r10
            r2 += -8
            r3 = r10
            r3 += -16
            r4 = {flags}
            call {id}
            *(u64 *)(r9 + {at}) = r0\n"
        ));
    };
    let (hash_map, array_map) = ("r1 = map[0]", "r1 = map[2]");
    call(hash_map, 2, 2, 0);
    call(hash_map, 1, 2, 8);
    call(hash_map, 1, 2, 16);
    call(hash_map, 2, 2, 24);
    call(hash_map, 3, 2, 32);
    call(hash_map, 0, 3, 40);
    call(hash_map, 0, 3, 48);
    call(array_map, 1, 2, 56);
    call(array_map, 3, 2, 64);
    call(array_map, 2, 2, 72);
    call(array_map, 0, 3, 80);
    call("*(u64 *)(r10 - 8) = 4\nr1 = map[2]", 0, 2, 88);
    asm.push_str("r0 = 0\nexit");
    let case = Case::new(&asm, vec![hash(8, 8, 8), array(96, 1), array(8, 4)]);
    let ran = case.run(config(None), [1, 1, 1], [1, 1, 1]);
    let results: Vec<i64> = (0..12).map(|i| ran.u64(1, i * 8) as i64).collect();
    assert_eq!(
        results,
        [
            ENOENT, 0, EEXIST, 0, EINVAL, 0, ENOENT, EEXIST, EINVAL, 0, EINVAL, E2BIG
        ]
    );
    assert_eq!(ran.u64(2, 3 * 8), 42);
    assert_eq!(ran.u64(0, HashLayout::COUNT_FULL), 0);
}

/// What the host may read of a ring: all records, if the commit counts add up.
fn records(layout: &RingLayout, ran: &Ran, map: usize) -> Vec<(u32, Vec<u8>)> {
    let mut list = Vec::new();
    for shard in 0..u64::from(layout.shards) {
        let reserved = ran.u64(
            map,
            shard * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED,
        );
        let commits: u64 = (0..RingLayout::SUBS)
            .map(|sub| {
                ran.u64(
                    map,
                    layout.commits_at() + (shard * RingLayout::SUBS + sub) * 8,
                )
            })
            .sum();
        assert_eq!(commits, reserved, "ring {shard}");
        let mut at = 0;
        while at < reserved {
            let place = layout.data_at() + shard * layout.shard_bytes + at % layout.shard_bytes;
            let header = ran.u32(map, place);
            assert_eq!(ran.u32(map, place + 4), 0);
            let length = u64::from(header & RingLayout::LENGTH_MASK);
            let payload =
                ran.areas[map][place as usize + 8..(place + 8 + length) as usize].to_vec();
            assert_eq!(
                at / layout.sub_bytes(),
                (at + 7 + length) / layout.sub_bytes(),
                "crosses a sub-buffer"
            );
            list.push((header & !RingLayout::LENGTH_MASK, payload));
            at += RingLayout::record_bytes(length);
        }
        assert_eq!(at, reserved);
    }
    list
}

fn lost(layout: &RingLayout, ran: &Ran, map: usize) -> (u64, u64) {
    let sum = |word| {
        (0..u64::from(layout.shards))
            .map(|s| ran.u64(map, s * RingLayout::CONTROL_STRIDE + word))
            .sum()
    };
    (sum(RingLayout::LOST_FULL), sum(RingLayout::LOST_BUSY))
}

/// Reserves, fills with block and thread, and submits; threads that divide by 5 discard.
const EVENT: &str = "
    r6 = *(u32 *)(r1 + 0)
    r7 = *(u32 *)(r1 + 24)
    r1 = map[0]
    r2 = 40
    r3 = 0
    call 131
    if r0 == 0 goto out
    *(u64 *)(r0 + 0) = r6
    *(u64 *)(r0 + 8) = r7
    r1 = r7
    r1 += r6
    *(u64 *)(r0 + 16) = r1
    *(u64 *)(r0 + 24) = 0
    *(u64 *)(r0 + 32) = 0
    r1 = r0
    r2 = 0
    r7 %= 5
    if r7 == 0 goto discard
    call 132
    goto out
    discard:
    call 133
    out:
    r0 = 0
    exit";

fn u64_of(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[test]
fn ring_records_are_whole_and_none_is_lost_uncounted() {
    let case = |scope, shards| Case::new(EVENT, vec![ring(1 << 19, shards)]).scope(scope);
    let cases = [
        (case(Scope::Thread, 4), 4),
        (case(Scope::Thread, 4).apart(), 4),
        (case(Scope::Thread, 1), 1),
        (case(Scope::Warp, 3), 3),
    ];
    for (case, shards) in cases {
        let layout = RingLayout::new(1 << 19, shards);
        schedules(&case, 40, 128, |ran| {
            // A host thread that is held up can run out of attempts to reserve; what it loses must
            // be counted.
            let (full, busy) = lost(&layout, ran, 0);
            assert_eq!(full, 0);
            let mut seen = vec![0; 40 * 128];
            for (flags, payload) in records(&layout, ran, 0) {
                if flags == RingLayout::PADDING {
                    continue;
                }
                assert_eq!(payload.len(), 40);
                let (block, thread) = (u64_of(&payload, 0), u64_of(&payload, 8));
                assert_eq!(u64_of(&payload, 16), block + thread);
                let discarded = if thread % 5 == 0 {
                    RingLayout::DISCARDED
                } else {
                    0
                };
                assert_eq!(flags, discarded, "thread {thread}");
                seen[(block * 128 + thread) as usize] += 1;
            }
            assert!(seen.iter().all(|n| *n <= 1));
            let missing = seen.iter().filter(|n| **n == 0).count() as u64;
            assert_eq!(missing, busy);
        });
    }
}

#[test]
fn ring_losses_are_counted() {
    let case = Case::new(EVENT, vec![ring(1 << 16, 1)]);
    let layout = RingLayout::new(1 << 16, 1);
    schedules(&case, 16, 128, |ran| {
        let kept = records(&layout, ran, 0)
            .iter()
            .filter(|(flags, _)| *flags != RingLayout::PADDING)
            .count() as u64;
        let (full, busy) = lost(&layout, ran, 0);
        assert_eq!(kept + full + busy, 16 * 128);
        assert!(full > 0 && kept > 1000, "{kept} kept, {full} lost");
    });
}

#[test]
fn ring_wraps_when_the_host_consumes() {
    let case = Case::new(EVENT, vec![ring(1 << 16, 1)]);
    let layout = RingLayout::new(1 << 16, 1);
    let device = Device::new(&case, config(Some(9)));
    for round in 1..=8 {
        device.launch([6, 1, 1], [128, 1, 1]);
        let ran = device.maps();
        assert_eq!(lost(&layout, &ran, 0), (0, 0), "round {round}");
        let reserved = ran.u64(0, RingLayout::RESERVED);
        assert!(reserved >= round * 6 * 128 * 48);
        device.write(1, layout.consumed_at(), &reserved.to_le_bytes());
    }
}

#[test]
fn ring_output_copies_constant_and_varying_sizes() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        r7 = r6
        r7 <<= 32
        r7 |= 0x5a
        *(u64 *)(r10 - 8) = r7
        *(u32 *)(r10 - 20) = r6
        *(u64 *)(r10 - 16) = 0x77
        r1 = map[0]
        r2 = r10
        r2 += -20
        r3 = 20
        r4 = 0
        call 130
        r8 = r0
        r6 &= 7
        r6 += 1
        r1 = map[0]
        r2 = r10
        r2 += -8
        r3 = r6
        r4 = 0
        call 130
        r0 = 0
        exit";
    let case = Case::new(asm, vec![ring(1 << 16, 2)]);
    let layout = RingLayout::new(1 << 16, 2);
    schedules(&case, 1, 64, |ran| {
        assert_eq!(lost(&layout, ran, 0), (0, 0));
        let (mut fixed, mut varying) = (0, 0);
        for (flags, payload) in records(&layout, ran, 0)
            .into_iter()
            .filter(|(f, _)| *f != RingLayout::PADDING)
        {
            assert_eq!(flags, 0);
            if payload.len() == 20 {
                fixed += 1;
                let thread = u64::from(u32::from_le_bytes(
                    payload[..4].try_into().expect("4 bytes"),
                ));
                assert_eq!(u64_of(&payload, 4), 0x77);
                assert_eq!(u64_of(&payload, 12), thread << 32 | 0x5a);
            } else {
                varying += 1;
                assert_eq!(payload[0], 0x5a);
                if payload.len() >= 5 {
                    assert_eq!(usize::from(payload[4]) % 8 + 1, payload.len());
                }
            }
        }
        assert_eq!((fixed, varying), (64, 64));
    });
}

/// Stores of every width in an order that a generator chooses, into records of every size: what
/// arrives is what they wrote, whatever became of them.
#[test]
fn ring_records_are_byte_exact() {
    for size in 1..=40u32 {
        let mut seed = u64::from(size);
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % below
        };
        let mut body = String::new();
        let mut expected = vec![vec![0u8; size as usize]; 64];
        let value = |thread: u64| thread.wrapping_mul(0x0123_4567_89ab_cdef) ^ 0x55aa;
        for step in 0..size / 2 + 4 {
            let width = 1 << random(4);
            if width > u64::from(size) {
                continue;
            }
            let off = random(u64::from(size) / width) * width;
            let constant = (random(2) == 0).then(|| random(1 << 31));
            match constant {
                Some(c) => body += &format!("*(u{} *)(r7 + {off}) = {c}\n", width * 8),
                None => body += &format!("*(u{} *)(r7 + {off}) = r8\n", width * 8),
            }
            for (thread, bytes) in expected.iter_mut().enumerate() {
                let value = constant.unwrap_or(value(thread as u64)).to_le_bytes();
                let (off, width) = (off as usize, width as usize);
                bytes[off..off + width].copy_from_slice(&value[..width]);
            }
            // A read in between: what was stored before has to be there.
            if step % 5 == 4 {
                body += &format!("r1 = *(u8 *)(r7 + {off})\n*(u8 *)(r7 + 0) = r1\n");
                for bytes in &mut expected {
                    bytes[0] = bytes[off as usize];
                }
            }
            if step % 7 == 6 {
                body += &format!(
                    "if r6 > {} goto next{step}\n*(u8 *)(r7 + 0) = r6\nnext{step}:\n",
                    size
                );
                for (thread, bytes) in expected.iter_mut().enumerate() {
                    if thread <= size as usize {
                        bytes[0] = thread as u8;
                    }
                }
            }
        }
        // Whole warps submit, or every other lane discards.
        let discards = [1, 0][size as usize / 8 % 2];
        let asm = format!(
            "r6 = *(u32 *)(r1 + 24)
            r8 = 0x0123456789abcdef ll
            r8 *= r6
            r8 ^= 0x55aa
            r1 = map[0]
            r2 = {size}
            r3 = 0
            call 131
            if r0 == 0 goto out
            r7 = r0
            {body}
            r1 = r7
            r2 = 0
            r6 &= {discards}
            if r6 != 0 goto discard
            call 132
            goto out
            discard:
            call 133
            out:
            r0 = 0
            exit"
        );
        // A small ring and one in which reservations are adds.
        for bytes in [1 << 16, 1 << 21] {
            let case = Case::new(&asm, vec![ring(bytes, 1)]);
            let layout = RingLayout::new(bytes, 1);
            let ran = case.run(config(Some(u64::from(size))), [1, 1, 1], [64, 1, 1]);
            assert_eq!(lost(&layout, &ran, 0), (0, 0));
            let mut found: Vec<_> = records(&layout, &ran, 0);
            let mut wanted: Vec<(u32, Vec<u8>)> = expected
                .iter()
                .enumerate()
                .map(|(thread, payload)| {
                    let flags = [0, RingLayout::DISCARDED][thread & discards];
                    (flags, payload.clone())
                })
                .collect();
            found.retain(|(flags, _)| *flags != RingLayout::PADDING);
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{size} bytes\n{asm}");
        }
    }
}

/// Whole warps write each other's records at the commit; lanes of a warp that has split write their
/// own.
#[test]
fn ring_records_written_by_two_lanes_are_whole() {
    for (words, limit) in [(3, 96), (3, 41), (7, 96), (7, 70)] {
        let stores: String = (0..words)
            .map(|i| format!("*(u64 *)(r0 + {}) = r8\nr8 += r9\n", i * 8))
            .collect();
        let asm = format!(
            "r6 = *(u32 *)(r1 + 24)
            if r6 >= {limit} goto out
            r8 = r6
            r9 = 0x100000000 ll
            r9 += 1000
            r1 = map[0]
            r2 = {}
            r3 = 0
            call 131
            if r0 == 0 goto out
            {stores}
            r1 = r0
            r2 = 0
            call 132
            out:
            r0 = 0
            exit",
            words * 8
        );
        for bytes in [1 << 16, 1 << 21] {
            let case = Case::new(&asm, vec![ring(bytes, 1)]);
            assert!(case.compile().body.contains("shfl.sync.bfly.b32"));
            let layout = RingLayout::new(bytes, 1);
            schedules(&case, 3, 96, |ran| {
                assert_eq!(lost(&layout, ran, 0), (0, 0));
                let mut found: Vec<Vec<u64>> = records(&layout, ran, 0)
                    .iter()
                    .filter(|(flags, _)| *flags == 0)
                    .map(|(_, payload)| (0..words).map(|i| u64_of(payload, i * 8)).collect())
                    .collect();
                found.sort();
                let wanted: Vec<Vec<u64>> = (0..limit * 3)
                    .map(|n| {
                        (0..words as u64)
                            .map(|i| n / 3 + i * 0x1_0000_03e8)
                            .collect()
                    })
                    .collect();
                assert_eq!(found, wanted);
            });
        }
    }
}

/// A lane that reserves in a loop has the commit of an earlier turn's record behind it, others are
/// still before it.
#[test]
fn ring_commits_in_loops_are_exact() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        r9 = r6
        r9 &= 3
        r8 = 0
        again:
        r1 = map[0]
        r2 = 12
        r3 = 0
        call 131
        if r0 == 0 goto out
        *(u32 *)(r0 + 0) = r6
        *(u32 *)(r0 + 4) = r8
        r2 = r6
        r2 += r8
        *(u32 *)(r0 + 8) = r2
        r2 &= 7
        if r2 > 4 goto even
        *(u32 *)(r0 + 8) = 77
        even:
        r1 = r0
        r2 = 0
        call 132
        r8 += 1
        if r8 > r9 goto out
        if r8 < 8 goto again
        out:
        r0 = 0
        exit";
    for bytes in [1 << 16, 1 << 21] {
        let case = Case::new(asm, vec![ring(bytes, 1)]);
        let layout = RingLayout::new(bytes, 1);
        schedules(&case, 2, 64, |ran| {
            assert_eq!(lost(&layout, ran, 0), (0, 0));
            let mut found: Vec<Vec<u8>> = records(&layout, ran, 0)
                .into_iter()
                .filter(|(flags, _)| *flags == 0)
                .map(|(_, payload)| payload)
                .collect();
            let mut wanted = Vec::new();
            for thread in 0..64u32 {
                for turn in 0..=thread % 4 {
                    let sum = thread + turn;
                    let sum = if sum & 7 > 4 { sum } else { 77 };
                    let payload = [thread, turn, sum].map(u32::to_le_bytes).concat();
                    wanted.extend([payload.clone(), payload]);
                }
            }
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted);
        });
    }
}

#[test]
fn printk_records() {
    let asm = "
        r3 = *(u32 *)(r1 + 24)
        r4 = -2
        r1 = map[0][0] + 0
        r2 = 9
        call 6
        r6 = r0
        r1 = map[0][0] + 9
        call 501
        r1 = map[1][0] + 0
        *(u64 *)(r1 + 0) = r6
        r0 = 0
        exit";
    let case = Case::new(asm, vec![rodata(b"a %d %ld\0bc\0"), array(8, 1)]);
    let layout = RingLayout::new(1 << 16, 4);
    let ran = case.run(config(Some(3)), [2, 1, 1], [33, 1, 1]);
    assert_eq!(lost(&layout, &ran, 2), (0, 0));
    assert_eq!(ran.u64(1, 0), printk::size(2));
    let list = records(&layout, &ran, 2);
    let list: Vec<_> = list
        .iter()
        .filter(|(flags, _)| *flags != RingLayout::PADDING)
        .collect();
    assert_eq!(list.len(), 2 * 2 * 33);
    let word = |payload: &[u8], at: u64| {
        let at = at as usize;
        u32::from_le_bytes(payload[at..at + 4].try_into().expect("4 bytes"))
    };
    let mut threads = 0;
    for (flags, payload) in list {
        assert_eq!(*flags, 0);
        assert_eq!(word(payload, printk::FORMAT_MAP), 100);
        match word(payload, printk::ARGS) {
            2 => {
                assert_eq!(payload.len() as u64, printk::size(2));
                assert_eq!(word(payload, printk::FORMAT_OFFSET), 0);
                assert_eq!(word(payload, printk::FORMAT_SIZE), 9);
                assert_eq!(
                    u64_of(payload, printk::ARG as usize),
                    u64::from(word(payload, printk::THREAD))
                );
                assert_eq!(u64_of(payload, printk::ARG as usize + 8) as i64, -2);
                threads += word(payload, printk::THREAD) + 100 * word(payload, printk::BLOCK);
            }
            printk::VERBATIM => {
                assert_eq!(payload.len() as u64, printk::size(0));
                assert_eq!(word(payload, printk::FORMAT_OFFSET), 9);
                assert_eq!(word(payload, printk::FORMAT_SIZE), 0);
            }
            n => panic!("{n} arguments"),
        }
    }
    assert_eq!(threads, 2 * (0..33).sum::<u32>() + 33 * 100);
}

/// Text of constants on the stack is in no map, so the record has it: behind the values, to a
/// multiple of 8 bytes.
#[test]
fn messages_carry_a_text_that_was_made_on_the_stack() {
    let asm = "
        r3 = *(u32 *)(r1 + 24)
        r1 = 7216209657926148460 ll
        *(u64 *)(r10 - 16) = r1
        *(u8 *)(r10 - 8) = 0
        r1 = r10
        r1 += -16
        r2 = 9
        call 6
        r1 = map[0][0] + 0
        *(u64 *)(r1 + 0) = r0
        *(u32 *)(r10 - 16) = 6581861
        r1 = r10
        r1 += -16
        call 501
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(8, 1)]);
    // Nothing is left of the stores.
    assert_eq!(case.compile().local_bytes, 0);
    let device = Device::new(&case, config(Some(3)));
    let steps = device.launch_clusters([1, 1, 1], [1, 1, 1], [1, 1, 1]);
    let counted = case.program.facts().cost;
    assert!(steps <= counted, "{steps} of {counted}");
    let layout = RingLayout::new(1 << 16, 4);
    let ran = case.run(config(Some(3)), [2, 1, 1], [33, 1, 1]);
    assert_eq!(lost(&layout, &ran, 1), (0, 0));
    assert_eq!(ran.u64(0, 0), printk::size(1) + 16);
    let list = records(&layout, &ran, 1);
    let list: Vec<_> = list
        .iter()
        .filter(|(flags, _)| *flags != RingLayout::PADDING)
        .collect();
    assert_eq!(list.len(), 2 * 2 * 33);
    let word = |payload: &[u8], at: u64| {
        let at = at as usize;
        u32::from_le_bytes(payload[at..at + 4].try_into().expect("4 bytes"))
    };
    let mut threads = 0;
    for (_, payload) in list {
        assert_eq!(word(payload, printk::FORMAT_MAP), printk::CARRIED);
        assert_eq!(word(payload, printk::FORMAT_OFFSET), 0);
        match word(payload, printk::ARGS) {
            1 => {
                threads += u64_of(payload, printk::ARG as usize);
                assert_eq!(word(payload, printk::FORMAT_SIZE), 9);
                let text = &payload[printk::size(1) as usize..];
                assert_eq!(text, b"lanes %d\0\0\0\0\0\0\0\0");
            }
            printk::VERBATIM => {
                assert_eq!(word(payload, printk::FORMAT_SIZE), 4);
                assert_eq!(&payload[printk::size(0) as usize..], b"end\0\0\0\0\0");
            }
            n => panic!("{n} arguments"),
        }
    }
    assert_eq!(threads, 2 * (0..33).sum::<u64>());
    case.assembles();
}

#[test]
fn ktime_follows_the_current_record() {
    let asm = "
        call 5
        r6 = r0
        call 14
        r1 = map[0][0] + 0
        *(u64 *)(r1 + 0) = r6
        *(u64 *)(r1 + 8) = r0
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(16, 1)]);
    let device = Device::new(
        &case,
        Config {
            clock: || 5_000_000,
            ..config(None)
        },
    );
    let record = env::TIME + env::TIME_STRIDE;
    device.write(0, env::TIME_INDEX, &1u64.to_le_bytes());
    device.write(
        0,
        record + env::TIME_BASE_DEVICE,
        &1_000_000u64.to_le_bytes(),
    );
    device.write(
        0,
        record + env::TIME_BASE_HOST,
        &7_000_000_000u64.to_le_bytes(),
    );
    device.write(0, record + env::TIME_DRIFT, &(-(1i64 << 22)).to_le_bytes());
    device.write(0, env::PID_TGID, &(77u64 << 32 | 77).to_le_bytes());
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    // 4 ms later, and the host's clock is slower by 2^-10.
    let elapsed = 4_000_000i64;
    assert_eq!(
        ran.u64(0, 0) as i64,
        7_000_000_000 + elapsed + ((elapsed * -(1 << 22)) >> 32)
    );
    assert_eq!(ran.u64(0, 8), 77 << 32 | 77);
}

#[test]
fn context_fields_and_machine_helpers() {
    // Thread (3, 1, 1) of block (1, 2, 0) writes what it sees.
    let asm = "
        r0 = map[0][0] + 0
        r2 = *(u32 *)(r1 + 24)
        if r2 != 3 goto out
        r2 = *(u32 *)(r1 + 28)
        if r2 != 1 goto out
        r2 = *(u32 *)(r1 + 32)
        if r2 != 1 goto out
        r2 = *(u32 *)(r1 + 0)
        if r2 != 1 goto out
        r2 = *(u32 *)(r1 + 4)
        if r2 != 2 goto out
        r2 = *(u32 *)(r1 + 48)
        *(u64 *)(r0 + 0) = r2
        r2 = *(u32 *)(r1 + 52)
        *(u64 *)(r0 + 8) = r2
        r2 = *(u64 *)(r1 + 64)
        *(u64 *)(r0 + 16) = r2
        r2 = *(u64 *)(r1 + 72)
        *(u64 *)(r0 + 24) = r2
        r2 = *(u32 *)(r1 + 60)
        *(u64 *)(r0 + 32) = r2
        r1 = r0
        r1 += 40
        r2 = r0
        r2 += 48
        r3 = r0
        r3 += 56
        call 508
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(64, 1)]);
    let ran = case.run(config(None), [2, 3, 1], [20, 2, 2]);
    let thread = 3 + 20 + 40;
    let words: Vec<u64> = (0..8).map(|i| ran.u64(0, i * 8)).collect();
    // 80 threads: the second warp is full.
    assert_eq!(
        words,
        [thread % 32, thread / 32, 7, 5, 0xffff_ffff, 2, 3, 1]
    );
}

#[test]
fn exit_ends_the_thread() {
    // Threads below 10 end before they count.
    let asm = with_value(&format!(
        "r7 = *(u32 *)(r6 + 24)
        if r7 > 9 goto count
        r8 = r0
        call 507
        r0 = r8
        count:
        {INCREMENT}"
    ));
    let case = Case::new(&asm.replace("r0 = r8\n", "exit\n"), vec![array(8, 1)]);
    let ran = case.run(config(None), [2, 1, 1], [50, 1, 1]);
    assert_eq!(ran.u64(0, 0), 2 * 40);
}

#[test]
fn local_calls_get_pointers_into_their_callers_stack() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        *(u64 *)(r10 - 8) = r6
        r1 = r10
        r1 += -8
        call square
        r1 = r10
        r1 += -8
        call square
        r7 = *(u64 *)(r10 - 8)
        r7 += r0
        r1 = map[0][0] + 0
        lock *(u64 *)(r1 + 0) += r7
        r0 = 0
        exit
        square:
        r2 = *(u64 *)(r1 + 0)
        r2 *= r2
        *(u64 *)(r10 - 8) = r2
        r3 = *(u64 *)(r10 - 8)
        *(u64 *)(r1 + 0) = r3
        r0 = r6
        r0 = 1
        exit";
    let case = Case::new(&asm.replace("r0 = r6\n", ""), vec![array(8, 1)]);
    assert_eq!(case.compile().local_bytes, 0, "the stack became registers");
    schedules(&case, 1, 32, |ran| {
        assert_eq!(ran.u64(0, 0), (0..32u64).map(|t| t.pow(4) + 1).sum::<u64>())
    });
}

#[test]
fn loops_and_variable_stack_offsets() {
    // Fills eight bytes one by one through a moving pointer: that frame has to stay in memory.
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        *(u64 *)(r10 - 8) = 0
        r2 = r6
        r2 &= 7
        r3 = r10
        r3 += -8
        r3 += r2
        *(u8 *)(r3 + 0) = 9
        r4 = 0
        r5 = 0
        again:
        r5 += r4
        r4 += 1
        if r4 < 10 goto again
        r7 = *(u64 *)(r10 - 8)
        r1 = map[0][0] + 0
        lock *(u64 *)(r1 + 0) += r7
        lock *(u64 *)(r1 + 8) += r5
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(16, 1)]);
    assert!(case.compile().local_bytes > 0);
    schedules(&case, 1, 32, |ran| {
        assert_eq!(ran.u64(0, 0), 4 * 0x0909_0909_0909_0909);
        assert_eq!(ran.u64(0, 8), 32 * 45);
    });
}

#[test]
fn atomics_with_results() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        r9 = map[0][0] + 0
        r1 = 1
        r1 = atomic_fetch_add((u64 *)(r9 + 0), r1)
        lock *(u64 *)(r9 + 8) += r1
        r2 = r6
        w2 = xchg32_32(r9 + 16, w2)
        lock *(u64 *)(r9 + 24) += r2
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(32, 1)]);
    schedules(&case, 1, 64, |ran| {
        assert_eq!(ran.u64(0, 0), 64);
        assert_eq!(ran.u64(0, 8), (0..64).sum::<u64>());
        // Every value but the last was taken out again.
        assert_eq!(
            ran.u64(0, 24) + u64::from(ran.u32(0, 16)),
            (0..64).sum::<u64>()
        );
    });
}

/// A program that reserves `size` bytes and writes its thread into the first eight.
fn reserve(size: u32) -> String {
    format!(
        "r7 = *(u32 *)(r1 + 24)
        r1 = map[0]
        r2 = {size}
        r3 = 0
        call 131
        if r0 == 0 goto out
        *(u64 *)(r0 + 0) = r7
        r1 = r0
        r2 = 0
        call 132
        out:
        r0 = 0
        exit"
    )
}

#[test]
fn large_records_are_reserved_lane_by_lane() {
    // 32 of them do not fit into a sub-buffer, so lanes commit to different ones.
    let case = Case::new(&reserve(1000), vec![ring(1 << 17, 1)]);
    let layout = RingLayout::new(1 << 17, 1);
    schedules(&case, 1, 96, |ran| {
        assert_eq!(lost(&layout, ran, 0), (0, 0));
        let mut threads: Vec<u64> = records(&layout, ran, 0)
            .iter()
            .filter(|(flags, _)| *flags == 0)
            .map(|(_, payload)| u64_of(payload, 0))
            .collect();
        threads.sort();
        assert_eq!(threads, (0..96).collect::<Vec<u64>>());
    });
}

#[test]
fn records_larger_than_a_sub_buffer_are_lost_and_counted() {
    // The verifier refuses them for the map as declared; a smaller ring may be bound.
    let bound = MapLayout::Ring(RingLayout::new(1 << 16, 2));
    let case = Case::new(&reserve(10_000), vec![(ring(1 << 20, 2).0, bound)]);
    case.assembles();
    let layout = RingLayout::new(1 << 16, 2);
    schedules(&case, 2, 40, |ran| {
        assert_eq!(lost(&layout, ran, 0), (80, 0));
        assert_eq!(records(&layout, ran, 0), []);
    });
}

#[test]
fn additions_in_loops_and_behind_branches_are_exact() {
    // The addend is the same in all lanes only as long as they turn together, and the number of
    // turns varies.
    let body = "
        r7 = *(u32 *)(r6 + 24)
        r7 &= 7
        r8 = 0
        r9 = 5
        again:
        r8 += 1
        r1 = *(u64 *)(r0 + 0)
        r1 += r8
        *(u64 *)(r0 + 0) = r1
        if r8 > r7 goto done
        if r8 < 8 goto again
        done:
        if r7 > 3 goto high
        r9 = 2
        high:
        r1 = *(u64 *)(r0 + 8)
        r1 += r9
        *(u64 *)(r0 + 8) = r1";
    let case = Case::new(&with_value(body), vec![array(16, 1)]);
    schedules(&case, 3, 64, |ran| {
        let turns = |t: u64| (1..=(t % 8 + 1).min(8)).sum::<u64>();
        assert_eq!(ran.u64(0, 0), 3 * (0..64).map(turns).sum::<u64>());
        assert_eq!(ran.u64(0, 8), 3 * (32 * 2 + 32 * 5));
    });
}

#[test]
fn per_thread_update_and_delete() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        *(u32 *)(r10 - 4) = 1
        *(u64 *)(r10 - 16) = r6
        r1 = map[0]
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call 2
        r7 = r0
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 3
        r1 = map[1][0] + 0
        if r7 == 0 goto fine
        r8 = 1
        lock *(u64 *)(r1 + 0) += r8
        fine:
        lock *(u64 *)(r1 + 8) += r0
        r0 = 0
        exit";
    let case = Case::new(asm, vec![per_thread(8, 2, 20), array(16, 1)]);
    let layout = PerThreadLayout {
        max_entries: 2,
        value_size: 8,
        threads: 20,
    };
    schedules(&case, 1, 32, |ran| {
        for thread in 0..20 {
            assert_eq!(ran.u64(0, layout.value(1, thread)), thread);
            assert_eq!(ran.u64(0, layout.value(0, thread)), 0);
        }
        assert_eq!(ran.u64(0, PerThreadLayout::REFUSED), 12);
        assert_eq!(ran.u64(1, 0), 12);
        assert_eq!(ran.u64(1, 8) as i64, 32 * EINVAL);
    });
}

#[test]
fn keys_and_values_of_any_size() {
    // Keys of 12 bytes at an odd place in the stack, values of 5 bytes.
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        *(u64 *)(r10 - 32) = 0
        *(u64 *)(r10 - 24) = 0
        *(u64 *)(r10 - 16) = 0
        *(u64 *)(r10 - 8) = 0
        *(u8 *)(r10 - 31) = r6
        *(u8 *)(r10 - 20) = 7
        *(u8 *)(r10 - 5) = 9
        *(u8 *)(r10 - 1) = r6
        r1 = map[0]
        r2 = r10
        r2 += -31
        r3 = r10
        r3 += -5
        r4 = 0
        call 2
        r1 = map[0]
        r2 = r10
        r2 += -31
        call 1
        if r0 == 0 goto out
        r7 = *(u8 *)(r0 + 4)
        r1 = map[1][0] + 0
        lock *(u64 *)(r1 + 0) += r7
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![hash(12, 5, 64), array(8, 1)]);
    let MapLayout::Hash(layout) = case.maps[0].1 else {
        panic!("a hash")
    };
    case.assembles();
    schedules(&case, 1, 64, |ran| {
        assert_eq!(ran.u64(1, 0), (0..64).sum::<u64>());
        for thread in 0..64u8 {
            let mut key = [0; 12];
            (key[0], key[11]) = (thread, 7);
            let found = common::node(&layout, ran, 0, &key).expect("the key") as usize;
            assert_eq!(ran.areas[0][found + 16..found + 21], [9, 0, 0, 0, thread]);
        }
    });
}
