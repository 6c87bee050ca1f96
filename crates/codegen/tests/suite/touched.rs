//! Sectors and conflicts of the lanes of a group: exact numbers, against what sets of numbers say,
//! whatever the schedule parts a warp into.

use std::collections::BTreeSet;

use warpbpf_abi::attach::Scope;
use warpbpf_softgpu::Config;

use crate::common::{Case, Device, Ran, array, seeds};

const SECTORS: u32 = 552;
const CONFLICTS: u32 = 553;
/// Bytes that a thread writes: the lanes of its group, and what both helpers say.
const ANSWER: u32 = 24;
/// Threads of a launch: not all warps are full.
const GRID: u32 = 2;
const BLOCK: u32 = 64 + 7;

/// What a lane accesses: the instructions that put its address into `r1` and its size into `r2`,
/// where `r6` is its lane, and the same as numbers.
struct Access {
    asm: String,
    of: Box<dyn Fn(u64) -> (u64, u64)>,
}

/// `base + lane * stride`, with so many bytes.
fn strided(base: u64, stride: u64, size: u64) -> Access {
    Access {
        asm: format!("r1 = r6\nr1 *= {stride}\nr2 = {base} ll\nr1 += r2\nr2 = {size}\n"),
        of: Box::new(move |lane| (base + lane * stride, size)),
    }
}

/// Any addresses below `1 << bits`, and any sizes below `most`, a power of two.
fn scattered(bits: u64, most: u64) -> Access {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    Access {
        asm: format!(
            "r2 = r6\nr2 += 11\nr3 = {FACTOR:#x} ll\nr2 *= r3\nr1 = r2\nr1 >>= {}\nr2 >>= 20\nr2 &= {}\n",
            64 - bits,
            most - 1
        ),
        of: Box::new(move |lane| {
            let mixed = (lane + 11).wrapping_mul(FACTOR);
            (mixed >> (64 - bits), mixed >> 20 & (most - 1))
        }),
    }
}

fn config(seed: Option<u64>) -> Config {
    Config {
        sms: 2,
        threads: 2,
        seed,
        memory: 1 << 24,
        step_limit: Some(50_000_000),
        ..Config::default()
    }
}

fn case(access: &Access) -> Case {
    let ask = |helper: u32, at: u32| {
        format!(
            "{}call {helper}\n*(u64 *)(r9 + {at}) = r0\n",
            access.asm.as_str()
        )
    };
    let asm = format!(
        "r7 = *(u32 *)(r1 + 60)
        r6 = *(u32 *)(r1 + 48)
        call 539
        r9 = map[0][0] + 0
        r0 &= 255
        r0 *= {ANSWER}
        r9 += r0
        *(u64 *)(r9 + 0) = r7
        {}{}
        r0 = 0
        exit",
        ask(SECTORS, 8),
        ask(CONFLICTS, 16)
    );
    Case::new(&asm, vec![array(ANSWER * 256, 1)])
}

/// The parts of `1 << shift` bytes that an access touches.
fn parts((address, size): (u64, u64), shift: u64) -> std::ops::Range<u64> {
    match size {
        0 => 0..0,
        size => address >> shift..((address + size - 1) >> shift) + 1,
    }
}

fn sectors(accesses: &[(u64, u64)]) -> u64 {
    let all = accesses.iter().map(|access| parts(*access, 5));
    let near = all.clone().flat_map(|all| all.take(32));
    let beyond: u64 = all
        .map(|all| (all.end - all.start).saturating_sub(32))
        .sum();
    near.collect::<BTreeSet<u64>>().len() as u64 + beyond
}

fn conflicts(accesses: &[(u64, u64)]) -> u64 {
    let all = accesses
        .iter()
        .flat_map(|access| parts(*access, 2).take(32));
    let mut banks = [0; 32];
    for word in all.collect::<BTreeSet<u64>>() {
        banks[word as usize % 32] += 1;
    }
    banks.into_iter().max().unwrap_or(0)
}

fn check(ran: &Ran, access: &Access) {
    for thread in 0..GRID * BLOCK {
        let word = |i: u32| ran.u64(0, u64::from(thread * ANSWER + i * 8));
        let mask = word(0);
        let lanes = (0..32).filter(|lane| mask >> lane & 1 == 1);
        let accesses: Vec<(u64, u64)> = lanes.map(|lane| (access.of)(lane)).collect();
        assert_eq!(
            (word(1), word(2)),
            (sectors(&accesses), conflicts(&accesses)),
            "thread {thread}, {mask:#x}: {}",
            access.asm
        );
    }
}

/// What a whole warp is told, if it comes together.
fn of_a_warp(access: &Access) -> (u64, u64) {
    let device = Device::new(&case(access), config(None));
    device.launch([1, 1, 1], [32, 1, 1]);
    let ran = device.maps();
    assert_eq!(ran.u64(0, 0), u64::from(u32::MAX));
    (ran.u64(0, 8), ran.u64(0, 16))
}

#[test]
fn what_everybody_knows() {
    const BASE: u64 = 0x7f00_0000_1000;
    // Four bytes of each lane, side by side; every other one; a column; one too far.
    assert_eq!(of_a_warp(&strided(BASE, 4, 4)).0, 4);
    assert_eq!(of_a_warp(&strided(BASE, 8, 4)).0, 8);
    assert_eq!(of_a_warp(&strided(BASE, 128, 4)).0, 32);
    assert_eq!(of_a_warp(&strided(BASE + 4, 4, 4)).0, 5);
    assert_eq!(of_a_warp(&strided(BASE, 0, 4)).0, 1);
    assert_eq!(of_a_warp(&strided(BASE, 16, 16)).0, 16);
    assert_eq!(of_a_warp(&strided(BASE, 0, 0)).0, 0);
    // A row, a column of 32, a column of 33, one word for all, 8 and 16 bytes of each.
    assert_eq!(of_a_warp(&strided(64, 4, 4)).1, 1);
    assert_eq!(of_a_warp(&strided(64, 128, 4)).1, 32);
    assert_eq!(of_a_warp(&strided(64, 132, 4)).1, 1);
    assert_eq!(of_a_warp(&strided(64, 0, 4)).1, 1);
    assert_eq!(of_a_warp(&strided(64, 8, 4)).1, 2);
    assert_eq!(of_a_warp(&strided(64, 8, 8)).1, 2);
    assert_eq!(of_a_warp(&strided(64, 16, 16)).1, 4);
    // Bytes of one word are the word's.
    assert_eq!(of_a_warp(&strided(64, 1, 1)), (1, 1));
}

#[test]
fn any_accesses_of_any_group() {
    let all = [
        strided(0xffff_ffff_f000, 4, 4),
        strided(3, 20, 16),
        strided(1 << 40, 1 << 20, 8),
        strided(0, 1024, 1 << 14),
        scattered(9, 8),
        scattered(12, 64),
        scattered(14, 2048),
    ];
    for access in &all {
        let case = case(access);
        for &seed in seeds() {
            let device = Device::new(&case, config(seed));
            device.launch([GRID, 1, 1], [BLOCK, 1, 1]);
            check(&device.maps(), access);
        }
    }
}

#[test]
fn one_lane_is_its_own_group() {
    for (access, expected) in [
        (strided(30, 0, 4), (2, 1)),
        (strided(30, 0, 0), (0, 0)),
        (strided(0, 0, 1 << 14), (512, 1)),
    ] {
        let case = case(&access).scope(Scope::Warp);
        assert!(!case.compile().body.contains(".sync"));
        let ran = case.run(config(None), [1, 1, 1], [32, 1, 1]);
        assert_eq!((ran.u64(0, 8), ran.u64(0, 16)), expected);
    }
}

#[test]
fn costs_are_upper_bounds() {
    for access in [strided(0, 4, 4), strided(7, 1 << 12, 1 << 14)] {
        let case = case(&access);
        let device = Device::new(&case, config(None));
        let steps = device.launch_clusters([1, 1, 1], [32, 1, 1], [1, 1, 1]);
        let counted = case.program.facts().cost;
        assert!(steps <= counted + 4, "{steps} of {counted}");
    }
}

#[test]
fn ptxas_takes_it() {
    case(&scattered(12, 64)).assembles();
}
