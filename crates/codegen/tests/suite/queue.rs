//! Queues, stacks and bloom filters on the soft GPU: one thread against a model, many lanes under
//! several schedules.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Case, Device, Ran, array, map, seeds};
use warpbpf_abi::layout::{BloomLayout, MapLayout, QueueLayout};
use warpbpf_abi::maps::{E2BIG, EBUSY, EINVAL, ENOENT, MapType};
use warpbpf_object::MapDef;
use warpbpf_softgpu::Config;

/// `bpf_gpu_thread_id`.
const THREAD_ID: u32 = 539;

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

fn queue(value_size: u32, max_entries: u32) -> (MapDef, MapLayout) {
    list(MapType::Queue, value_size, max_entries)
}

fn stack(value_size: u32, max_entries: u32) -> (MapDef, MapLayout) {
    list(MapType::Stack, value_size, max_entries)
}

fn list(map_type: MapType, value_size: u32, max_entries: u32) -> (MapDef, MapLayout) {
    let layout = MapLayout::Queue(QueueLayout {
        max_entries,
        value_size,
        lifo: map_type == MapType::Stack,
    });
    (map(map_type, 0, value_size, max_entries), layout)
}

fn bloom(value_size: u32, max_entries: u32, hashes: u32) -> (MapDef, MapLayout) {
    let layout = MapLayout::Bloom(BloomLayout {
        max_entries,
        value_size,
        hashes,
    });
    (
        map(MapType::BloomFilter, 0, value_size, max_entries),
        layout,
    )
}

/// Layout of map 0.
fn layout(case: &Case) -> QueueLayout {
    match case.env.maps[0].layout {
        MapLayout::Queue(layout) => layout,
        other => panic!("{other:?}"),
    }
}

/// Runs operations one after the other in one thread: a number is pushed with flags, `None` pops,
/// and `Peek` peeks. Gives for each its result and what is in the 8 bytes after it.
#[derive(Clone, Copy, Debug)]
enum Do {
    Push(u64, u64),
    Pop,
    Peek,
}

fn one_by_one(of: (MapDef, MapLayout), ops: &[Do]) -> (Vec<(i64, u64)>, Ran, Case) {
    let mut asm = String::new();
    for (i, op) in ops.iter().enumerate() {
        // What was there before must not stay.
        asm.push_str("r1 = 77 ll\n*(u64 *)(r10 - 8) = r1\n");
        asm.push_str(&match op {
            Do::Push(value, flags) => format!(
                "r1 = {value} ll\n*(u64 *)(r10 - 8) = r1\nr1 = map[0]\nr2 = r10\nr2 += -8\nr3 = {flags}\ncall 87\n"
            ),
            Do::Pop => "r1 = map[0]\nr2 = r10\nr2 += -8\ncall 88\n".to_owned(),
            Do::Peek => "r1 = map[0]\nr2 = r10\nr2 += -8\ncall 89\n".to_owned(),
        });
        asm.push_str(&format!(
            "r1 = map[1][0] + {}\n*(u64 *)(r1 + 0) = r0\nr2 = *(u64 *)(r10 - 8)\n*(u64 *)(r1 + 8) = r2\n",
            i * 16
        ));
    }
    asm.push_str("r0 = 0\nexit");
    let case = Case::new(&asm, vec![of, array(ops.len() as u32 * 16, 1)]);
    let ran = case.run(config(None), [1, 1, 1], [1, 1, 1]);
    let told = (0..ops.len() as u64)
        .map(|i| (ran.u64(1, i * 16) as i64, ran.u64(1, i * 16 + 8)))
        .collect();
    (told, ran, case)
}

#[test]
fn a_queue_gives_back_what_was_pushed_in_order() {
    use Do::{Peek, Pop, Push};
    let ops = [
        Pop,
        Peek,
        Push(1, 0),
        Push(2, 2),
        Peek,
        Push(3, 0),
        Push(4, 0),
        Push(5, 2),
        Push(6, 1),
        Push(6, 3),
        Pop,
        Peek,
        Pop,
        Pop,
        Pop,
        Push(7, 0),
        Pop,
        Pop,
    ];
    let (told, ran, _) = one_by_one(queue(8, 3), &ops);
    let expected = [
        (ENOENT, 0),
        (ENOENT, 0),
        (0, 1),
        (0, 2),
        (0, 1),
        (0, 3),
        (E2BIG, 4),
        // Drops 1.
        (0, 5),
        (EINVAL, 6),
        (EINVAL, 6),
        (0, 2),
        (0, 3),
        (0, 3),
        (0, 5),
        (ENOENT, 0),
        (0, 7),
        (0, 7),
        (ENOENT, 0),
    ];
    assert_eq!(told, expected);
    assert_eq!(ran.u64(0, QueueLayout::COUNT_FULL), 1);
    assert_eq!(ran.u64(0, QueueLayout::COUNT_BUSY), 0);
}

#[test]
fn a_stack_gives_back_the_last_first() {
    use Do::{Peek, Pop, Push};
    let ops = [
        Pop,
        Peek,
        Push(1, 0),
        Push(2, 0),
        Peek,
        Push(3, 0),
        Push(4, 2),
        Pop,
        Peek,
        Pop,
        Pop,
        Pop,
        Push(9, 0),
        Pop,
    ];
    let (told, ran, _) = one_by_one(stack(8, 3), &ops);
    let expected = [
        (ENOENT, 0),
        (ENOENT, 0),
        (0, 1),
        (0, 2),
        (0, 2),
        (0, 3),
        // The oldest is at the bottom, out of reach.
        (E2BIG, 4),
        (0, 3),
        (0, 2),
        (0, 2),
        (0, 1),
        (ENOENT, 0),
        (0, 9),
        (0, 9),
    ];
    assert_eq!(told, expected);
    assert_eq!(ran.u64(0, QueueLayout::COUNT_FULL), 1);
}

#[test]
fn a_queue_of_one_goes_round_its_cells() {
    let mut ops = Vec::new();
    let mut expected = Vec::new();
    for i in 0..40 {
        ops.extend([Do::Push(i, 0), Do::Push(100, 0), Do::Peek, Do::Pop, Do::Pop]);
        expected.extend([(0, i), (E2BIG, 100), (0, i), (0, i), (ENOENT, 0)]);
    }
    assert_eq!(one_by_one(queue(8, 1), &ops).0, expected);
    assert_eq!(one_by_one(stack(8, 1), &ops).0, expected);
}

/// Rounds of each thread in the tests with many lanes.
const ROUNDS: u64 = 4;

/// Each thread pushes `thread * ROUNDS + round + 1` with `flags`, looks at the next value and pops
/// one, [`ROUNDS`] times, and writes down three results and two values for each.
fn busy(of: (MapDef, MapLayout), flags: u64, threads: u32) -> Case {
    let mut asm = String::from(
        "call THREAD
        r7 = r0
        *(u32 *)(r10 - 4) = r7
        r2 = r10
        r2 += -4
        r1 = map[1]
        call 1
        if r0 == 0 goto out
        r8 = r0
        r7 *= 4
        ",
    )
    .replace("call THREAD", &format!("call {THREAD_ID}"));
    for round in 0..ROUNDS {
        let at = round * 40;
        asm.push_str(&format!(
            "r7 += 1
            *(u64 *)(r10 - 16) = r7
            r1 = map[0]
            r2 = r10
            r2 += -16
            r3 = {flags}
            call 87
            *(u64 *)(r8 + {at}) = r0
            r1 = map[0]
            r2 = r10
            r2 += -16
            call 89
            *(u64 *)(r8 + {}) = r0
            r1 = *(u64 *)(r10 - 16)
            *(u64 *)(r8 + {}) = r1
            r1 = map[0]
            r2 = r10
            r2 += -16
            call 88
            *(u64 *)(r8 + {}) = r0
            r1 = *(u64 *)(r10 - 16)
            *(u64 *)(r8 + {}) = r1
            ",
            at + 8,
            at + 16,
            at + 24,
            at + 32
        ));
    }
    asm.push_str("out:\nr0 = 0\nexit");
    Case::new(&asm, vec![of, array(ROUNDS as u32 * 40, threads)])
}

/// What is left in a queue or stack, in no order.
fn left(layout: &QueueLayout, ran: &Ran) -> Vec<u64> {
    let value = |node: u64| ran.u64(0, layout.node(node));
    let mut left = Vec::new();
    if layout.lifo {
        let mut next = ran.u64(0, QueueLayout::VALUES) & 0xffff_ffff;
        while next != 0 {
            left.push(value(next - 1));
            next = ran
                .u32(0, layout.link(next - 1) + QueueLayout::BELOW)
                .into();
        }
        return left;
    }
    for cell in 0..layout.cells() {
        let word = ran.u64(0, layout.values_at() + cell * 8);
        if word & layout.node_mask() != 0 {
            left.push(value((word & layout.node_mask()) - 1));
        }
    }
    left
}

/// Everything that was pushed came out once or is still there; what the map counted is what the
/// threads were told.
fn nothing_lost(layout: &QueueLayout, ran: &Ran, threads: u64, drops: bool) {
    let mut pushed = BTreeSet::new();
    let mut popped = Vec::new();
    let mut told: BTreeMap<i64, u64> = BTreeMap::new();
    for thread in 0..threads {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for round in 0..ROUNDS {
            let at = (thread * ROUNDS + round) * 40;
            let results = [0, 8, 24].map(|skip| ran.u64(1, at + skip) as i64);
            for result in results {
                *told.entry(result).or_default() += 1;
            }
            let [push, peek, pop] = results;
            assert!([0, E2BIG, EBUSY].contains(&push), "push: {push}");
            assert!([0, ENOENT, EBUSY].contains(&peek), "peek: {peek}");
            assert!([0, ENOENT, EBUSY].contains(&pop), "pop: {pop}");
            if push == 0 {
                pushed.insert(thread * ROUNDS + round + 1);
            }
            let (seen, value) = (ran.u64(1, at + 16), ran.u64(1, at + 32));
            assert_eq!(seen == 0, peek != 0, "{seen}");
            assert_eq!(value == 0, pop != 0, "{value}");
            assert!(seen <= threads * ROUNDS, "{seen}");
            if pop == 0 {
                popped.push(value);
                // Of one producer a consumer gets values in their order.
                let producer = (value - 1) / ROUNDS;
                let before = last.insert(producer, value);
                assert!(layout.lifo || before.is_none_or(|before| before < value));
            }
        }
    }
    let left = left(layout, ran);
    assert!(left.len() as u64 <= u64::from(layout.max_entries));
    let mut out: Vec<u64> = popped.iter().chain(&left).copied().collect();
    out.sort_unstable();
    if drops {
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]), "twice");
        assert!(out.iter().all(|value| pushed.contains(value)));
    } else {
        assert_eq!(out, pushed.into_iter().collect::<Vec<u64>>());
    }
    let count = |result| told.get(&result).copied().unwrap_or(0);
    assert_eq!(ran.u64(0, QueueLayout::COUNT_FULL), count(E2BIG));
    assert_eq!(ran.u64(0, QueueLayout::COUNT_BUSY), count(EBUSY));
}

#[test]
fn many_lanes_lose_nothing_and_get_nothing_twice() {
    let (grid, block) = (6, 50);
    let threads = grid * block;
    for entries in [1, 3, 40, 2000] {
        let queue = busy(queue(8, entries), 0, threads);
        let stack = busy(stack(8, entries), 0, threads);
        for case in [&queue, &stack, &stack.apart()] {
            let layout = layout(case);
            for &seed in seeds() {
                let ran = case.run(config(seed), [grid, 1, 1], [block, 1, 1]);
                nothing_lost(&layout, &ran, threads.into(), false);
            }
        }
    }
}

/// All threads use one stack at once: lanes that are together go as one, so all get through, and
/// nearly all where a schedule parts lanes wherever it can.
#[test]
fn a_stack_under_stress() {
    let (grid, block) = (8, 128);
    let threads = grid * block;
    let case = busy(stack(8, 2 * threads), 0, threads);
    let layout = layout(&case);
    for &seed in seeds() {
        let ran = case.run(config(seed), [grid, 1, 1], [block, 1, 1]);
        nothing_lost(&layout, &ran, threads.into(), false);
        let refused = ran.u64(0, QueueLayout::COUNT_BUSY);
        let operations = u64::from(threads) * ROUNDS * 3;
        let most = seed.map_or(0, |_| operations / 50);
        assert!(refused <= most, "{refused} of {operations}, {seed:?}");
    }
}

/// The module of a case in which lanes rest before they put into a cell, and between the two steps
/// that close one: meanwhile others go round all the cells.
fn slowed(case: &Case) -> String {
    let mut text = String::new();
    for (number, line) in case
        .module("sm_75", case.env.target.ptx)
        .lines()
        .enumerate()
    {
        let rest = format!(
            "\tmov.u32 %wbpf_w0, %clock;
            and.b32 %wbpf_w0, %wbpf_w0, 255;
            $rest_{number}:
            add.s32 %wbpf_w0, %wbpf_w0, -1;
            setp.gt.s32 %wbpf_p0, %wbpf_w0, 0;
            @%wbpf_p0 bra $rest_{number};\n"
        );
        let closes = line.contains("atom.acq_rel.gpu.global.max.u64");
        if closes {
            text.push_str(&rest);
        }
        text.push_str(line);
        text.push('\n');
        if line.trim_end().ends_with("_swap:") {
            text.push_str(&rest);
        }
    }
    assert!(text.matches("%clock").count() > 4, "{text}");
    text
}

/// A put of one lap may come to a cell that a take of the next one is closing.
#[test]
fn lanes_that_are_overtaken_by_a_lap_lose_nothing() {
    let (grid, block) = (4, 1024);
    let threads = grid * block;
    let case = busy(queue(8, 120), 0, threads);
    let (layout, text) = (layout(&case), slowed(&case));
    assert_eq!(layout.cells(), 256);
    for &seed in seeds() {
        let config = Config {
            threads: 1,
            step_limit: None,
            ..config(seed)
        };
        let device = Device::with(&case, config, &text);
        device.launch([grid, 1, 1], [block, 1, 1]);
        let ran = device.maps();
        nothing_lost(&layout, &ran, threads.into(), false);
        // Nor did a node get lost: each is where it was never handed out, in the ring of free ones,
        // or among the spare ones.
        let held = |at: u64| {
            let word = |cell: u64| ran.u64(0, at + cell * 8) & layout.node_mask();
            (0..layout.cells()).filter(|&cell| word(cell) != 0).count() as u32
        };
        let fresh = 120 - ran.u32(0, QueueLayout::NEXT_NODE).min(120);
        let known = held(QueueLayout::CELLS) + held(layout.values_at());
        assert_eq!(fresh + known + ran.u32(0, QueueLayout::SPARES), 120);
    }
}

#[test]
fn a_full_queue_drops_its_oldest_and_nothing_else() {
    let (grid, block) = (4, 64);
    let threads = grid * block;
    for entries in [1, 2, 5] {
        let case = busy(queue(8, entries), 2, threads);
        let layout = layout(&case);
        for &seed in seeds() {
            let ran = case.run(config(seed), [grid, 1, 1], [block, 1, 1]);
            nothing_lost(&layout, &ran, threads.into(), true);
            assert_eq!(ran.u64(0, QueueLayout::COUNT_FULL), 0);
        }
    }
}

/// Each thread pushes its number plus one into a queue that is smaller than a warp, or than a few,
/// and notes the result. Nobody pops.
#[test]
fn a_tiny_queue_keeps_some_of_the_latest() {
    let asm = format!(
        "call {THREAD_ID}
        r7 = r0
        *(u32 *)(r10 - 4) = r7
        r2 = r10
        r2 += -4
        r1 = map[1]
        call 1
        if r0 == 0 goto out
        r8 = r0
        r7 += 1
        *(u64 *)(r10 - 16) = r7
        r1 = map[0]
        r2 = r10
        r2 += -16
        r3 = 2
        call 87
        *(u64 *)(r8 + 0) = r0
        out:
        r0 = 0
        exit"
    );
    let (grid, block) = (4, 64);
    let threads = u64::from(grid * block);
    for entries in [1, 2, 7, 40] {
        let case = Case::new(&asm, vec![queue(8, entries), array(8, grid * block)]);
        let layout = layout(&case);
        for &seed in seeds() {
            let ran = case.run(config(seed), [grid, 1, 1], [block, 1, 1]);
            let result = |thread: u64| ran.u64(1, thread * 8) as i64;
            let busy = (0..threads).filter(|thread| result(*thread) == EBUSY);
            let (busy, done) = (
                busy.count() as u64,
                (0..threads).filter(|thread| result(*thread) == 0).count() as u64,
            );
            assert_eq!(busy + done, threads, "0 or -EBUSY");
            assert_eq!(ran.u64(0, QueueLayout::COUNT_BUSY), busy);
            assert_eq!(ran.u64(0, QueueLayout::COUNT_FULL), 0);
            let mut left = left(&layout, &ran);
            left.sort_unstable();
            assert!(left.windows(2).all(|pair| pair[0] < pair[1]), "{left:?}");
            assert!(left.iter().all(|value| result(value - 1) == 0), "{left:?}");
            let most = u64::from(entries).min(done);
            assert!(left.len() as u64 <= most, "{left:?} of {done}");
            // Only a push that gave up at the last moment takes a value away without putting one.
            assert!(left.len() as u64 == most || busy > 0, "{left:?} of {done}");
        }
    }
}

/// Pushes of many lanes into an empty queue that is large enough.
#[test]
fn a_queue_with_room_takes_everything() {
    let asm = format!(
        "call {THREAD_ID}
        r0 += 1
        *(u64 *)(r10 - 8) = r0
        r1 = map[0]
        r2 = r10
        r2 += -8
        r3 = 0
        call 87
        if r0 == 0 goto out
        r1 = map[1][0] + 0
        r2 = 1
        lock *(u64 *)(r1 + 0) += r2
        out:
        r0 = 0
        exit"
    );
    let case = Case::new(&asm, vec![queue(8, 512), array(8, 1)]);
    let layout = layout(&case);
    for &seed in seeds() {
        let ran = case.run(config(seed), [8, 1, 1], [64, 1, 1]);
        assert_eq!(ran.u64(1, 0), 0, "pushes refused");
        let mut left = left(&layout, &ran);
        left.sort_unstable();
        assert_eq!(left, (1..=512).collect::<Vec<u64>>());
    }
}

/// Values of other sizes, to and from places of any alignment.
#[test]
fn values_of_every_size() {
    for size in [1u32, 4, 7, 12, 16, 30] {
        let words = u64::from(size).div_ceil(8) * 8;
        let mut asm = String::new();
        for at in (0..words).step_by(8) {
            asm.push_str(&format!(
                "r1 = {} ll\n*(u64 *)(r10 - {}) = r1\n",
                0x0807_0605_0403_0201 + at,
                words - at
            ));
        }
        asm.push_str(&format!(
            "r1 = map[0]
            r2 = r10
            r2 += -{words}
            r3 = 0
            call 87
            r6 = map[1][0] + 0
            r1 = map[0]
            r2 = r6
            r2 += 3
            call 88
            *(u64 *)(r6 + 48) = r0
            r0 = 0
            exit"
        ));
        let case = Case::new(&asm, vec![queue(size, 2), array(56, 1)]);
        let ran = case.run(config(None), [1, 1, 1], [1, 1, 1]);
        assert_eq!(ran.u64(1, 48), 0);
        let mut expected = vec![0u8; 48];
        for at in 0..size as usize {
            let word = 0x0807_0605_0403_0201u64 + (at as u64 / 8) * 8;
            expected[3 + at] = word.to_le_bytes()[at % 8];
        }
        assert_eq!(ran.areas[1][..48], expected, "{size} bytes");
    }
}

#[test]
fn a_bloom_filter_never_says_no_to_what_is_in_it() {
    let asm = format!(
        "call {THREAD_ID}
        r7 = r0
        *(u64 *)(r10 - 8) = r7
        *(u32 *)(r10 - 16) = r7
        r1 = map[0]
        r2 = r10
        r2 += -8
        r3 = 0
        call 87
        r6 = r0
        r1 = map[0]
        r2 = r10
        r2 += -8
        call 89
        r6 += r0
        r9 = map[1][0] + 0
        lock *(u64 *)(r9 + 0) += r6
        r1 = map[0]
        r2 = r10
        r2 += -8
        r3 = 1
        call 87
        lock *(u64 *)(r9 + 8) += r0
        r7 += 1000000
        *(u64 *)(r10 - 8) = r7
        r1 = map[0]
        r2 = r10
        r2 += -8
        call 89
        lock *(u64 *)(r9 + 16) += r0
        r0 = 0
        exit"
    );
    let case = Case::new(&asm, vec![bloom(8, 1000, 5), array(24, 1)]);
    let MapLayout::Bloom(filter) = case.env.maps[0].layout else {
        panic!("a bloom filter")
    };
    assert_eq!(filter.bits(), 8192);
    case.assembles();
    for &seed in seeds() {
        let ran = case.run(config(seed), [4, 1, 1], [100, 1, 1]);
        assert_eq!(ran.u64(1, 0), 0, "a value that was pushed is missing");
        assert_eq!(ran.u64(1, 8) as i64, 400 * EINVAL);
        let mut bits = vec![0u8; 1024];
        for value in 0..400u64 {
            for place in filter.places(&value.to_le_bytes()) {
                bits[place as usize / 8] |= 1 << (place % 8);
            }
        }
        assert_eq!(ran.areas[0], bits);
        let absent = |value: u64| {
            let mut places = filter.places(&value.to_le_bytes());
            places.any(|p| bits[p as usize / 8] >> (p % 8) & 1 == 0)
        };
        let absent = (0..400).filter(|t| absent(t + 1_000_000)).count() as i64;
        assert_eq!(ran.u64(1, 16) as i64, absent * ENOENT);
        assert!(absent > 360, "{absent}");
    }
}

/// One value that differs from others in its upper bits only is in the filter: they are not.
#[test]
fn upper_bits_of_a_value_choose_bits_of_the_filter() {
    let values: [u64; 7] = [1 << 48, 7 << 48, 123 << 52, 1 << 63, 1 << 32, 3 << 40, 0];
    let mut asm = String::from("r6 = 0\n");
    let on = |value: u64, call: &str| {
        format!(
            "r1 = {value} ll\n*(u64 *)(r10 - 8) = r1\nr1 = map[0]\nr2 = r10\nr2 += -8\n{call}\n"
        )
    };
    asm.push_str(&on(values[0], "r3 = 0\ncall 87"));
    for (i, value) in values.iter().enumerate() {
        asm.push_str(&on(*value, "call 89"));
        asm.push_str(&format!(
            "r1 = map[1][0] + {}\n*(u64 *)(r1 + 0) = r0\n",
            i * 8
        ));
    }
    asm.push_str("r0 = 0\nexit");
    let case = Case::new(&asm, vec![bloom(8, 1000, 5), array(56, 1)]);
    let MapLayout::Bloom(filter) = case.env.maps[0].layout else {
        panic!("a bloom filter")
    };
    let ran = case.run(config(None), [1, 1, 1], [1, 1, 1]);
    let mut bits = vec![0u8; 1024];
    for place in filter.places(&values[0].to_le_bytes()) {
        bits[place as usize / 8] |= 1 << (place % 8);
    }
    assert_eq!(ran.areas[0], bits);
    let found: Vec<i64> = (0..7).map(|i| ran.u64(1, i * 8) as i64).collect();
    assert_eq!(found, [0, ENOENT, ENOENT, ENOENT, ENOENT, ENOENT, ENOENT]);
}

#[test]
fn every_function_assembles() {
    for of in [
        queue(8, 1000),
        stack(5, 1000),
        queue(4, 1),
        stack(1, 1 << 20),
    ] {
        busy(of, 0, 16).assembles();
    }
}
