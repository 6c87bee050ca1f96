//! Rings whose writers wait for room, on the soft GPU: with a host that takes what is there, and
//! with one that is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Case, Device, ring};
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_softgpu::Config;

const BYTES: u64 = 64 << 10;

/// Each thread writes so many records of 8 bytes; the ring is map 0.
fn writes(records: u32, wait_us: u32) -> (Case, RingLayout) {
    let (def, layout) = ring(BYTES as u32, 1);
    let MapLayout::Ring(layout) = layout else {
        panic!("{layout:?}");
    };
    let layout = layout.with_wait(wait_us);
    let case = Case::new(
        &format!(
            "r6 = 0
            again:
            *(u64 *)(r10 - 8) = r6
            r1 = map[0]
            r2 = r10
            r2 += -8
            r3 = 8
            r4 = 0
            call 130
            r6 += 1
            if r6 != {records} goto again
            r0 = 0
            exit"
        ),
        vec![(def, MapLayout::Ring(layout))],
    );
    case.assembles();
    (case, layout)
}

fn device(case: &Case, seed: Option<u64>) -> Device {
    Device::new(
        case,
        Config {
            sms: 1,
            threads: 1,
            seed,
            memory: 1 << 26,
            step_limit: Some(500_000_000),
            ..Config::default()
        },
    )
}

/// Lost because the ring was full, because others won; the mark of a wait that was given up.
fn control(device: &Device) -> [u64; 3] {
    let ran = device.maps();
    [
        RingLayout::LOST_FULL,
        RingLayout::LOST_BUSY,
        RingLayout::GAVE_UP,
    ]
    .map(|at| ran.u64(0, at))
}

#[test]
fn a_host_that_is_gone_costs_one_wait() {
    let (case, layout) = writes(1, 100);
    let device = device(&case, None);
    let set = |at: u64, value: u64| device.write(1, at, &value.to_le_bytes());
    let launch = || device.launch_clusters([1, 1, 1], [32, 1, 1], [1, 1, 1]);
    let room = launch();
    assert_eq!(control(&device), [0, 0, 0]);
    // Full: the warp waits, gives up, and counts each lane's record.
    set(RingLayout::RESERVED, BYTES);
    let waited = launch();
    assert_eq!(control(&device), [32, 0, 1]);
    // Nobody waits again for a host that has not moved since.
    let refused = launch();
    assert_eq!(control(&device), [64, 0, 1]);
    assert!(
        refused < room + 40 && waited > refused,
        "{room} steps with room, {waited} with a wait, {refused} after it"
    );
    // It comes back, and there is room.
    set(layout.consumed_at(), BYTES);
    launch();
    assert_eq!(control(&device), [64, 0, 1]);
    // It stops again, where it stands now: one more wait.
    set(RingLayout::RESERVED, 2 * BYTES);
    // How often it looks in that time is up to the machine.
    assert!(launch() > refused);
    assert_eq!(control(&device), [96, 0, BYTES + 1]);
}

/// Instructions from `from` up to the branch to `to` that is `turn`-th behind it.
fn path(text: &str, from: &str, to: &str) -> usize {
    let mut lines = text.lines().map(str::trim);
    let label = |line: &str, name: &str| line.trim_end_matches(':').contains(name);
    lines
        .by_ref()
        .find(|line| line.ends_with(':') && label(line, from))
        .unwrap();
    let is_last = |line: &&str| line.contains("bra ") && label(line, to);
    1 + lines.position(|line| is_last(&line)).unwrap()
}

/// Instructions between two labels.
fn through(text: &str, from: &str, to: &str) -> usize {
    let is = |line: &str, name: &str| line.ends_with(':') && line.contains(name);
    let lines = text.lines().map(str::trim);
    let between = lines
        .skip_while(|line| !is(line, from))
        .skip(1)
        .take_while(|line| !is(line, to));
    between.count()
}

#[test]
fn a_look_costs_what_the_budget_counts() {
    let (case, _) = writes(1, 100);
    let text = case.module("sm_90", (8, 0));
    // Up to where there is no room, or through a try in vain that was the last, and from there to
    // the next look.
    let to_the_next = path(&text, "full", "try");
    assert!(path(&text, "try", "full") < through(&text, "try", "full"));
    let look = through(&text, "try", "full") + to_the_next;
    assert_eq!(look, RingLayout::LOOK_COST as usize);
}

#[test]
fn without_a_wait_nobody_waits() {
    let (case, _) = writes(1, 0);
    assert!(!case.module("sm_90", (8, 0)).contains("nanosleep"));
    let device = device(&case, None);
    let launch = || device.launch_clusters([1, 1, 1], [32, 1, 1], [1, 1, 1]);
    let room = launch();
    device.write(1, RingLayout::RESERVED, &BYTES.to_le_bytes());
    assert!(launch() < room + 40);
    assert_eq!(control(&device), [32, 0, 0]);
}

#[test]
fn nothing_is_lost_while_the_host_takes_what_is_there() {
    let (case, layout) = writes(200, 1_000_000);
    let records = 128 * 200;
    let bytes = records * RingLayout::record_bytes(8);
    assert!(bytes > 4 * BYTES, "more than the ring holds");
    for seed in [None, Some(3)] {
        let device = device(&case, seed);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let end = Instant::now() + Duration::from_secs(120);
                while !ended.load(Ordering::Acquire) && Instant::now() < end {
                    // What is committed is copied first: where it is all that was reserved, nobody
                    // writes.
                    let commits = device.maps();
                    let reserved = device.maps().u64(0, RingLayout::RESERVED);
                    let commits = (0..RingLayout::SUBS)
                        .map(|sub| commits.u64(0, layout.commits_at() + sub * 8));
                    if commits.sum::<u64>() == reserved {
                        device.write(1, layout.consumed_at(), &reserved.to_le_bytes());
                    }
                }
            });
            device.launch([4, 1, 1], [32, 1, 1]);
            ended.store(true, Ordering::Release);
        });
        assert_eq!(control(&device), [0, 0, 0], "{seed:?}");
        let ran = device.maps();
        assert!(ran.u64(0, RingLayout::RESERVED) >= bytes);
    }
}
