//! Helpers that tell of the machine, the host and the group, on the soft GPU: exact values,
//! whatever the schedule.

use std::collections::BTreeSet;

use crate::common::{Case, Device, Ran, TARGETS, array, seeds, sharded};
use warpbpf_abi::attach::Scope;
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::{MapLayout, env, fence};
use warpbpf_abi::maps::EFAULT;
use warpbpf_codegen::Target;
use warpbpf_softgpu::Config;

/// Bytes that a thread writes.
const ANSWER: u32 = 128;
/// Most threads that do.
const THREADS: u32 = 512;
/// Threads of a launch: not all warps are full.
const GRID: u32 = 3;
const BLOCK: u32 = 96 + 5;

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

/// `body` with the context in r6 and in r9 this thread's `ANSWER` bytes of map 0; r7 and r8 are
/// free. All lanes of a group come to the body together.
fn each_thread(body: &str) -> String {
    format!(
        "r6 = r1
        call 539
        r9 = map[0][0] + 0
        r0 &= {}
        r0 *= {ANSWER}
        r9 += r0
        {body}
        out:
        r0 = 0
        exit",
        THREADS - 1
    )
}

fn answers() -> (warpbpf_object::MapDef, MapLayout) {
    array(ANSWER * THREADS, 1)
}

/// Stores what a helper without arguments gives as word `i`.
fn note(helper: u32, i: u32) -> String {
    format!("call {helper}\n*(u64 *)(r9 + {}) = r0\n", i * 8)
}

fn case(body: &str) -> Case {
    Case::new(&each_thread(body), vec![answers()])
}

fn on(mut case: Case, sm: u32, ptx: (u32, u32)) -> Case {
    case.env.target = Target { ptx, sm };
    case
}

fn word(ran: &Ran, thread: u32, i: u32) -> u64 {
    ran.u64(0, u64::from(thread * ANSWER + i * 8))
}

/// The value of a thread: any bits, with carries between the parts of a sum.
const VALUE: &str = "
        call 539
        r8 = r0
        r8 += 3
        r1 = 0xfedcba9876543211 ll
        r8 *= r1
        ";

fn value(thread: u32) -> u64 {
    (u64::from(thread) + 3).wrapping_mul(0xfedc_ba98_7654_3211)
}

fn group_program() -> String {
    let mut body = String::from("r0 = *(u32 *)(r6 + 60)\n*(u64 *)(r9 + 0) = r0\n");
    for (i, helper) in (522..=524).enumerate() {
        body += &note(helper, 1 + i as u32);
    }
    body += VALUE;
    for (i, helper) in (527..=532).enumerate() {
        body += "r1 = r8\n";
        body += &note(helper, 4 + i as u32);
    }
    // Whose value is odd in its upper half; who has the same rest by 3.
    body += "r1 = r8\nr1 >>= 32\nr1 &= 1\n";
    body += &note(525, 10);
    body += "r1 = *(u32 *)(r6 + 24)\nr1 %= 3\n";
    body + &note(526, 11)
}

fn check_groups(ran: &Ran) {
    for thread in 0..GRID * BLOCK {
        let lane = thread % BLOCK % 32;
        let first = thread - lane;
        let mask = word(ran, thread, 0) as u32;
        assert_eq!(mask >> lane & 1, 1, "thread {thread}");
        let group: Vec<u32> = (0..32)
            .filter(|l| mask >> l & 1 == 1)
            .map(|l| first + l)
            .collect();
        let values = || group.iter().map(|&t| value(t));
        let bits = |holds: &dyn Fn(u32) -> bool| {
            group
                .iter()
                .filter(|&&t| holds(t))
                .fold(0u64, |bits, &t| bits | 1 << (t - first))
        };
        let expected = [
            u64::from(mask),
            group.len() as u64,
            group.iter().filter(|&&t| t < thread).count() as u64,
            u64::from(group[0] == thread),
            value(group[0]),
            values().fold(0, u64::wrapping_add),
            values().min().unwrap_or(0),
            values().max().unwrap_or(0),
            values().fold(u64::MAX, |a, b| a & b),
            values().fold(0, |a, b| a | b),
            bits(&|t| value(t) >> 32 & 1 == 1),
            bits(&|t| t % BLOCK % 3 == thread % BLOCK % 3),
        ];
        let found: Vec<u64> = (0..12).map(|i| word(ran, thread, i)).collect();
        assert_eq!(found, expected, "thread {thread}");
    }
}

#[test]
fn groups_agree() {
    for (sm, ptx, target) in [(75, (6, 3), "sm_75"), (80, (7, 0), "sm_80")] {
        let case = on(case(&group_program()), sm, ptx);
        let redux = case.compile().body.contains("redux.sync");
        assert_eq!(redux, sm >= 80);
        for &seed in seeds() {
            let device = Device::of(&case, config(seed), target);
            device.launch([GRID, 1, 1], [BLOCK, 1, 1]);
            check_groups(&device.maps());
        }
    }
}

#[test]
fn one_lane_is_its_own_group() {
    for scope in [Scope::Warp, Scope::Block] {
        let case = case(&group_program()).scope(scope);
        assert!(!case.compile().body.contains(".sync"));
        let ran = case.run(config(None), [GRID, 1, 1], [BLOCK, 1, 1]);
        for thread in 0..GRID * BLOCK {
            let own = 1 << (thread % BLOCK % 32);
            let v = value(thread);
            let odd = if v >> 32 & 1 == 1 { own } else { 0 };
            let found: Vec<u64> = (1..12).map(|i| word(&ran, thread, i)).collect();
            assert_eq!(found, [1, 0, 1, v, v, v, v, v, v, odd, own], "{thread}");
        }
    }
}

#[test]
fn a_sum_of_the_group_counts_every_lane_once() {
    // The leader adds what the group has: as many atomics as groups, and an exact sum.
    let asm = "
        r1 = *(u32 *)(r1 + 24)
        call 528
        r6 = r0
        call 524
        if r0 == 0 goto out
        r0 = map[0][0] + 0
        lock *(u64 *)(r0 + 0) += r6
        r1 = 1
        lock *(u64 *)(r0 + 8) += r1
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(16, 1)]);
    for &seed in seeds() {
        let ran = case.run(config(seed), [GRID, 1, 1], [BLOCK, 1, 1]);
        let all: u32 = (0..BLOCK).sum();
        assert_eq!(ran.u64(0, 0), u64::from(GRID * all));
        let groups = ran.u64(0, 8);
        assert!(groups >= u64::from(GRID * 4), "{groups}");
        if seed.is_none() {
            assert_eq!(groups, u64::from(GRID * 4));
        }
    }
}

#[test]
fn active_lanes_are_those_of_the_branch() {
    let body = format!(
        "r7 = *(u32 *)(r6 + 48)
        r7 &= 1
        if r7 == 0 goto even
        {}goto out
        even:
        {}",
        note(521, 0),
        note(521, 1)
    );
    let case = case(&body);
    for &seed in seeds() {
        let ran = case.run(config(seed), [1, 1, 1], [64, 1, 1]);
        for thread in 0..64u32 {
            let even = thread % 2 == 0;
            let mask = word(&ran, thread, u32::from(even)) as u32;
            assert_eq!(word(&ran, thread, u32::from(!even)), 0);
            let side = if even { 0x5555_5555 } else { 0xaaaa_aaaa };
            assert_eq!(mask & !side, 0, "thread {thread}");
            assert_eq!(mask >> (thread % 32) & 1, 1, "thread {thread}");
            if seed.is_none() {
                assert_eq!(mask, side);
            }
        }
    }
}

#[test]
fn places_in_the_grid() {
    let mut body = String::new();
    for (i, helper) in [538, 539, 540, 541, 545, 42, 544].into_iter().enumerate() {
        body += &note(helper, i as u32);
    }
    let case = case(&body);
    let device = Device::new(&case, config(None));
    device.write(0, env::SM_COUNT, &132u64.to_le_bytes());
    device.launch([GRID, 1, 1], [BLOCK, 1, 1]);
    let ran = device.maps();
    for thread in 0..GRID * BLOCK {
        let found: Vec<u64> = (0..7).map(|i| word(&ran, thread, i)).collect();
        let block = u64::from(thread / BLOCK);
        assert_eq!(found, [block, u64::from(thread), 7, 5, 32, 0, 132]);
    }
}

/// What the host alone knows comes from the site, as fields of the context do.
#[test]
fn the_node_of_a_graph_is_captured() {
    let captures = |helper| case(&note(helper, 0)).compile().captures;
    assert_eq!(captures(551), BTreeSet::from([Capture::Node]));
    assert_eq!(captures(541), BTreeSet::new());
}

#[test]
fn linear_numbers_of_a_grid_with_three_sides() {
    let body = note(538, 0) + &note(539, 1);
    let case = case(&body);
    let ran = case.run(config(Some(5)), [2, 3, 2], [3, 2, 2]);
    for thread in 0..2 * 3 * 2 * 12 {
        let found = [word(&ran, thread, 0), word(&ran, thread, 1)];
        assert_eq!(found, [u64::from(thread / 12), u64::from(thread)]);
    }
}

/// Three components of four helpers, and the rank.
fn cluster_program() -> String {
    let mut body = String::new();
    for (i, helper) in (533..=536).enumerate() {
        for argument in 1..=3 {
            body += &format!(
                "r{argument} = r9\nr{argument} += {}\n",
                (i * 3 + argument - 1) * 8
            );
        }
        body += &format!("call {helper}\n");
    }
    // The rank takes the place of the last component, which is 1.
    body + &note(537, 11)
}

#[test]
fn blocks_in_clusters() {
    let case = on(case(&cluster_program()), 90, (7, 8));
    let device = Device::of(&case, config(Some(1)), "sm_90");
    device.launch_clusters([4, 2, 1], [1, 1, 1], [2, 2, 1]);
    let ran = device.maps();
    for block in 0..8u32 {
        let (x, y) = (block % 4, block / 4);
        let found: Vec<u64> = (0..12).map(|i| word(&ran, block, i)).collect();
        let rank = y % 2 * 2 + x % 2;
        let expected = [x / 2, y / 2, 0, 2, 1, 1, x % 2, y % 2, 0, 2, 2, rank].map(u64::from);
        assert_eq!(found, expected, "block {block}");
    }
}

#[test]
fn a_block_without_a_cluster_is_one() {
    let old = case(&cluster_program());
    assert!(!old.compile().body.contains("cluster"));
    let new = on(case(&cluster_program()), 90, (7, 8));
    for (case, target) in [(old, "sm_75"), (new, "sm_90")] {
        let device = Device::of(&case, config(None), target);
        device.launch([4, 2, 1], [1, 1, 1]);
        let ran = device.maps();
        for block in 0..8u32 {
            let (x, y) = (u64::from(block % 4), u64::from(block / 4));
            let found: Vec<u64> = (0..12).map(|i| word(&ran, block, i)).collect();
            assert_eq!(found, [x, y, 0, 4, 2, 1, 0, 0, 0, 1, 1, 0], "block {block}");
        }
    }
}

#[test]
fn what_the_host_tells() {
    let mut body = String::new();
    for (i, helper) in [15, 125, 160, 208].into_iter().enumerate() {
        body += &note(helper, i as u32);
    }
    // The name in a buffer of its size, in a longer one, and cut.
    for (at, size) in [(32, 16), (48, 24), (72, 5)] {
        body += &format!("r1 = r9\nr1 += {at}\nr2 = {size}\ncall 16\n");
    }
    body += "r1 = r10\nr1 += -32\nr2 = 11\ncall 16\n*(u64 *)(r9 + 88) = r0\nr0 = *(u64 *)(r10 - 32)\n*(u64 *)(r9 + 80) = r0\n";
    let case = case(&body);
    let device = Device::new(
        &case,
        Config {
            clock: || 5_000,
            ..config(None)
        },
    );
    device.write(0, env::UID_GID, &(100u64 << 32 | 1000).to_le_bytes());
    device.write(0, env::COMM, b"fifteen letters\0");
    device.write(0, env::BOOT_OFFSET, &70_000u64.to_le_bytes());
    device.write(0, env::TAI_OFFSET, &900_000u64.to_le_bytes());
    device.write(
        0,
        env::TIME + env::TIME_BASE_DEVICE,
        &4_000u64.to_le_bytes(),
    );
    device.write(0, env::TIME + env::TIME_BASE_HOST, &10_000u64.to_le_bytes());
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    let words: Vec<u64> = (0..4).map(|i| word(&ran, 0, i)).collect();
    assert_eq!(words, [100 << 32 | 1000, 81_000, 11_000, 911_000]);
    let bytes = &ran.areas[0];
    assert_eq!(&bytes[32..48], b"fifteen letters\0");
    assert_eq!(&bytes[48..72], b"fifteen letters\0\0\0\0\0\0\0\0\0");
    assert_eq!(&bytes[72..77], b"fift\0");
    assert_eq!(&bytes[77..80], [0; 3]);
    assert_eq!(&bytes[80..96], b"fifteen \0\0\0\0\0\0\0\0");
}

#[test]
fn cycles_pass() {
    let case = case(&(note(542, 0) + &note(542, 1)));
    let ran = case.run(config(Some(2)), [GRID, 1, 1], [BLOCK, 1, 1]);
    for thread in 0..GRID * BLOCK {
        assert!(word(&ran, thread, 0) < word(&ran, thread, 1), "{thread}");
    }
}

#[test]
fn random_numbers_differ_and_are_even() {
    let body: String = (0..12).map(|i| note(7, i)).collect();
    let case = case(&body);
    let ran = case.run(config(None), [GRID, 1, 1], [BLOCK, 1, 1]);
    let numbers: Vec<u64> = (0..GRID * BLOCK)
        .flat_map(|thread| (0..12).map(move |i| (thread, i)))
        .map(|(thread, i)| word(&ran, thread, i))
        .collect();
    assert!(numbers.iter().all(|n| *n <= u64::from(u32::MAX)));
    // Of 3636 numbers of 32 bits one pair may meet.
    let distinct: BTreeSet<&u64> = numbers.iter().collect();
    assert!(distinct.len() + 2 >= numbers.len(), "{}", distinct.len());
    let half = numbers.len() as f64 / 2.0;
    // Five standard deviations.
    let bound = 5.0 * (numbers.len() as f64).sqrt() / 2.0;
    for bit in 0..32 {
        let ones = numbers.iter().filter(|n| *n >> bit & 1 == 1).count() as f64;
        assert!((ones - half).abs() < bound, "bit {bit}: {ones}");
        // Nor does a bit tell the same bit of the next number.
        let same = numbers
            .windows(2)
            .filter(|w| (w[0] ^ w[1]) >> bit & 1 == 0)
            .count() as f64;
        assert!((same - half).abs() < bound, "bit {bit}: {same} alike");
    }
}

#[test]
fn values_of_other_multiprocessors() {
    // Each copy and key holds its number; copy 3 and key 2 are not there.
    let (def, layout) = sharded(8, 2, 3);
    let MapLayout::Array(array_layout) = layout else {
        panic!("an array")
    };
    let mut def = def;
    def.map_type = warpbpf_abi::maps::MapType::PercpuArray as u32;
    let layout = MapLayout::Array(warpbpf_abi::layout::ArrayLayout {
        summed: false,
        ..array_layout
    });
    let mut body = String::new();
    for (i, (copy, key)) in [(0u32, 0u32), (2, 1), (1, 0), (3, 0), (0, 2), (u32::MAX, 0)]
        .into_iter()
        .enumerate()
    {
        body += &format!(
            "*(u32 *)(r10 - 8) = {key}
            r1 = map[1]
            r2 = r10
            r2 += -8
            r3 = 0xff{copy:08x} ll
            call 195
            r1 = -1
            if r0 == 0 goto none{i}
            r1 = *(u64 *)(r0 + 0)
            none{i}:
            *(u64 *)(r9 + {}) = r1\n",
            i * 8
        );
    }
    let case = Case::new(&each_thread(&body), vec![answers(), (def, layout)]);
    let device = Device::new(&case, config(None));
    for copy in 0..3 {
        for key in 0..2 {
            let number = u64::from(copy * 10 + key);
            device.write(2, array_layout.value(copy, key), &number.to_le_bytes());
        }
    }
    device.launch([1, 1, 1], [4, 1, 1]);
    let ran = device.maps();
    for thread in 0..4 {
        let found: Vec<i64> = (0..6).map(|i| word(&ran, thread, i) as i64).collect();
        assert_eq!(found, [0, 21, 10, -1, -1, -1]);
    }
}

#[test]
fn prefetches_only_where_something_lives() {
    let body = "
        r1 = *(u64 *)(r9 + 0)
        call 543
        *(u64 *)(r9 + 0) = r0";
    let case = case(body);
    assert!(case.compile().body.contains("prefetch.global.L2"));
    let device = Device::new(&case, config(Some(1)));
    let gpu = device.gpu();
    let (memory, fenced) = (gpu.alloc(64).unwrap(), gpu.alloc(fence::SIZE).unwrap());
    gpu.fill(fenced, 0, fence::SIZE).unwrap();
    for (at, word) in [
        (fence::TABLES, memory),
        (fence::TABLES + 8, memory + 64),
        (fence::CURRENT, 1 << 1),
    ] {
        gpu.write(fenced + at, &word.to_le_bytes()).unwrap();
    }
    let ask = || {
        for (thread, at) in [memory, memory + 63, memory + 64, 0, u64::MAX]
            .into_iter()
            .enumerate()
        {
            device.write(1, thread as u64 * u64::from(ANSWER), &at.to_le_bytes());
        }
        device.launch([1, 1, 1], [5, 1, 1]);
        let ran = device.maps();
        (0..5)
            .map(|thread| word(&ran, thread, 0) as i64)
            .collect::<Vec<_>>()
    };
    // Without a table nothing lives.
    assert_eq!(ask(), [EFAULT; 5]);
    device.write(0, env::FENCE, &fenced.to_le_bytes());
    assert_eq!(ask(), [0, 0, EFAULT, EFAULT, EFAULT]);
    let mut readers = vec![0; 2 * fence::SET as usize];
    gpu.read(fenced + fence::READERS, &mut readers).unwrap();
    assert!(readers.iter().all(|b| *b == 0), "everybody has left");
}

#[test]
fn costs_are_upper_bounds() {
    // One warp: what it executes is what the group does together.
    for (body, threads) in [
        (note(7, 0), 1),
        ("r1 = r9\nr2 = 40\ncall 16\n".to_owned(), 1),
        (note(125, 0) + &note(208, 1) + &note(160, 2), 1),
        (
            note(521, 0) + &note(522, 1) + &note(523, 2) + &note(524, 3),
            32,
        ),
        (format!("{VALUE}r1 = r8\n{}", note(528, 0)), 32),
        (format!("{VALUE}r1 = r8\n{}", note(530, 0)), 32),
        (format!("{VALUE}r1 = r8\n{}", note(526, 0)), 32),
        (note(538, 0) + &note(539, 1), 1),
        ("r1 = 4096\ncall 543\n".to_owned(), 1),
    ] {
        let case = case(&body);
        let device = Device::new(&case, config(None));
        let steps = device.launch_clusters([1, 1, 1], [threads, 1, 1], [1, 1, 1]);
        let counted = case.program.facts().cost;
        assert!(steps <= counted + 4, "{body}: {steps} of {counted}");
    }
}

#[test]
fn helpers_of_bpftime() {
    let mut body = String::new();
    for (i, helper) in [503, 504, 505, 508].into_iter().enumerate() {
        for argument in 1..=3 {
            let at = (i as u32 * 3 + argument - 1) * 8;
            body += &format!("r{argument} = r9\nr{argument} += {at}\n");
        }
        body += &format!("call {helper}\n");
    }
    for (i, helper) in [502, 506, 509, 510].into_iter().enumerate() {
        body += &note(helper, 12 + i as u32);
    }
    // The lane takes the place of the fence's result, which is 0.
    body += "r7 = *(u64 *)(r9 + 104)\n";
    body += "call 511\nr0 += r7\n*(u64 *)(r9 + 104) = r0\n";
    let case = case(&body);
    let device = Device::new(
        &case,
        Config {
            clock: || 77_000,
            ..config(Some(3))
        },
    );
    device.launch([2, 3, 2], [4, 3, 3]);
    let ran = device.maps();
    for index in 0..2 * 3 * 2 * 36u32 {
        let (block, thread) = (index / 36, index % 36);
        let expected = [
            [block % 2, block / 2 % 3, block / 6],
            [4, 3, 3],
            [thread % 4, thread / 4 % 3, thread / 12],
            [2, 3, 2],
        ];
        let found: Vec<u64> = (0..12).map(|i| word(&ran, index, i)).collect();
        let expected: Vec<u64> = expected.into_iter().flatten().map(u64::from).collect();
        assert_eq!(found, expected, "thread {thread} of block {block}");
        assert_eq!(word(&ran, index, 12), 77_000);
        assert_eq!(word(&ran, index, 13), u64::from(thread % 32));
        assert!(word(&ran, index, 14) < 4);
        assert_eq!(word(&ran, index, 15), u64::from(thread / 32));
    }
}

#[test]
fn ptxas_takes_them_all() {
    case(&group_program()).assembles();
    case(&group_program()).scope(Scope::Warp).assembles();
    case(&cluster_program()).assembles();
    let mut body = String::new();
    for (i, helper) in [7, 15, 42, 125, 160, 208, 521, 538, 539, 541, 542, 544]
        .into_iter()
        .enumerate()
    {
        body += &note(helper, i as u32);
    }
    body += "r1 = r9\nr2 = 20\ncall 16\nr1 = r6\nr1 = *(u64 *)(r9 + 0)\ncall 543\n";
    case(&body).assembles();
    assert!(TARGETS.len() >= 9);
}
