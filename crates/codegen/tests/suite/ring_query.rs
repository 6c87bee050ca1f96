//! `bpf_ringbuf_query` on the soft GPU: exact numbers of an empty ring, of one that is written to,
//! and of the ring of each multiprocessor; and that what is not asked for costs nothing.

use crate::common::{Case, Device, Ran, array, ring};
use warpbpf_abi::helpers::{HelperId, map_op};
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_softgpu::Config;

const BYTES: u64 = 64 << 10;

fn device(case: &Case, sms: u32) -> Device {
    Device::new(
        case,
        Config {
            sms,
            threads: 1,
            memory: 1 << 26,
            step_limit: Some(1_000_000),
            ..Config::default()
        },
    )
}

/// Asks for each of `flags` and keeps the answers in map 1 from word `at` on.
fn ask(at: usize, flags: &[u64]) -> String {
    let asked = flags.iter().zip(at..).map(|(flags, word)| {
        format!(
            "r1 = map[0]
            r2 = {flags} ll
            call 134
            *(u64 *)(r9 + {}) = r0\n",
            word * 8
        )
    });
    asked.collect()
}

/// Reserves a record of `size` bytes into r6, or goes to `out`.
fn reserve(size: u64) -> String {
    format!("r1 = map[0]\nr2 = {size}\nr3 = 0\ncall 131\nif r0 == 0 goto out\nr6 = r0\n")
}

fn give_back(call: u32) -> String {
    format!("r1 = r6\nr2 = 0\ncall {call}\n")
}

fn words<const N: usize>(ran: &Ran) -> [u64; N] {
    std::array::from_fn(|i| ran.u64(1, i as u64 * 8))
}

#[test]
fn one_lane_sees_what_it_reserves_and_what_the_host_takes() {
    // Record and header are 32 bytes, then 112.
    let (first, second) = (20, 100);
    let asm = [
        "r9 = map[1][0] + 0\n".to_owned(),
        ask(0, &[0, 1, 2, 3, 4, u64::MAX, 1 << 32]),
        reserve(first),
        ask(7, &[0, 2, 3]),
        give_back(132),
        ask(10, &[0, 2, 3]),
        reserve(second),
        give_back(133),
        ask(13, &[0, 1, 2, 3]),
        "out:\nr0 = 0\nexit".to_owned(),
    ];
    let case = Case::new(&asm.concat(), vec![ring(BYTES as u32, 1), array(136, 1)]);
    case.assembles();
    let device = device(&case, 1);
    device.launch([1, 1, 1], [1, 1, 1]);
    assert_eq!(
        words(&device.maps()),
        [
            0, BYTES, 0, 0, 0, 0, 0, //
            32, 0, 32, // reserved
            32, 0, 32, // submitted
            144, BYTES, 0, 144 // discarded
        ]
    );
    let MapLayout::Ring(layout) = case.maps[0].1 else {
        panic!("a ring");
    };
    let taken = |bytes: u64| device.write(1, layout.consumed_at(), &bytes.to_le_bytes());
    taken(32);
    device.launch([1, 1, 1], [1, 1, 1]);
    assert_eq!(
        words(&device.maps()),
        [
            112, BYTES, 32, 144, 0, 0, 0, //
            144, 32, 176, //
            144, 32, 176, //
            256, BYTES, 32, 288
        ]
    );
    // The host stands where a lane that read `reserved` before has not seen anything reserved yet.
    taken(1 << 20);
    device.launch([1, 1, 1], [1, 1, 1]);
    assert_eq!(words(&device.maps()), [0, BYTES, 1 << 20, 288, 0, 0, 0]);
}

#[test]
fn flags_of_run_time_differ_between_lanes() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        *(u32 *)(r10 - 4) = r6
        r1 = map[1]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r9 = r0
        r2 = *(u64 *)(r9 + 0)
        r1 = map[0]
        call 134
        *(u64 *)(r9 + 0) = r0
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![ring(BYTES as u32, 1), array(8, 8)]);
    case.assembles();
    let device = device(&case, 1);
    let MapLayout::Ring(layout) = case.maps[0].1 else {
        panic!("a ring");
    };
    device.write(1, RingLayout::RESERVED, &5000u64.to_le_bytes());
    device.write(1, layout.consumed_at(), &4096u64.to_le_bytes());
    let asked = [3, 0, 1 << 32 | 1, 2, 4, 1, u64::MAX, 0];
    for (flags, at) in asked.into_iter().zip((0..).step_by(8)) {
        device.write(2, at, &u64::to_le_bytes(flags));
    }
    device.launch([1, 1, 1], [8, 1, 1]);
    assert_eq!(
        words(&device.maps()),
        [5000, 904, 0, 4096, 0, BYTES, 0, 904]
    );
}

/// Four multiprocessors of which the host counted three: the last ring is shared, as it is by those
/// that write.
#[test]
fn each_multiprocessor_is_told_of_its_own_ring() {
    let asm = format!(
        "call 8
        *(u32 *)(r10 - 4) = r0
        r1 = map[1]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r9 = r0
        {}out:
        r0 = 0
        exit",
        ask(0, &[0, 1, 2, 3])
    );
    let case = Case::new(&asm, vec![ring(BYTES as u32, 3), array(32, 4)]);
    case.assembles();
    let device = device(&case, 4);
    let MapLayout::Ring(layout) = case.maps[0].1 else {
        panic!("a ring");
    };
    for shard in 0..3 {
        let reserved = 1000 * (shard + 1);
        let control = shard * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED;
        device.write(1, control, &u64::to_le_bytes(reserved));
        let consumed = layout.consumed_at() + shard * 8;
        device.write(1, consumed, &u64::to_le_bytes(reserved - 10 * shard));
    }
    device.launch([16, 1, 1], [64, 1, 1]);
    let ran = device.maps();
    let told: [[u64; 4]; 4] = std::array::from_fn(|sm| {
        std::array::from_fn(|i| ran.u64(1, sm as u64 * 32 + i as u64 * 8))
    });
    assert_eq!(
        told,
        [
            [0, BYTES, 1000, 1000],
            [10, BYTES, 1990, 2000],
            [20, BYTES, 2980, 3000],
            [20, BYTES, 2980, 3000],
        ]
    );
}

/// How often the host's word and the lanes' are loaded.
fn loads(flags: &str) -> (usize, usize) {
    let asm = format!(
        "r9 = map[1][0] + 0
        {flags}
        r1 = map[0]
        call 134
        *(u64 *)(r9 + 8) = r0
        r0 = 0
        exit"
    );
    let case = Case::new(&asm, vec![ring(BYTES as u32, 4), array(16, 1)]);
    let body = case.compile().body;
    let count = |what| body.matches(what).count();
    (
        count("ld.relaxed.sys.global.u64"),
        count("ld.relaxed.gpu.global.u64"),
    )
}

#[test]
fn only_what_is_asked_for_is_loaded() {
    assert_eq!(loads("r2 = 0"), (1, 1));
    assert_eq!(loads("r2 = 1"), (0, 0));
    assert_eq!(loads("r2 = 2"), (1, 0));
    assert_eq!(loads("r2 = 3"), (0, 1));
    assert_eq!(loads("r2 = 4"), (0, 0));
    // Flags that only the proof knows, from the stack.
    assert_eq!(
        loads("*(u64 *)(r10 - 8) = 3\nr2 = *(u64 *)(r10 - 8)"),
        (0, 1)
    );
    // The flags themselves are one load more.
    assert_eq!(loads("r2 = *(u64 *)(r9 + 0)"), (1, 2));
}

#[test]
fn a_call_costs_what_the_budget_counts() {
    let instructions = |call: &str| {
        let asm = format!(
            "r9 = map[1][0] + 0
            r2 = *(u64 *)(r9 + 0)
            {call}
            *(u64 *)(r9 + 8) = r0
            r0 = 0
            exit"
        );
        let case = Case::new(&asm, vec![ring(BYTES as u32, 4), array(16, 1)]);
        let body = case.compile().body;
        let is_one = |line: &&str| line.ends_with(';') && !line.trim_start().starts_with('.');
        body.lines().filter(is_one).count()
    };
    let with = instructions("r1 = map[0]\ncall 134");
    let without = instructions("r0 = r2");
    let row = map_op(HelperId::RingbufQuery, MapType::Ringbuf).expect("its row");
    let counted = row.cost as usize;
    assert!(
        with - without <= counted && counted < 2 * (with - without),
        "{with} less {without}, {counted} counted"
    );
}
