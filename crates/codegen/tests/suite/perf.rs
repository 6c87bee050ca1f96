//! Events by `bpf_perf_event_output` on the soft GPU: exact sets, each with the multiprocessor that
//! wrote it.

use crate::common::{Case, Ran, array, map};
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_abi::maps::{EINVAL, ENOSPC, MapType};
use warpbpf_object::MapDef;
use warpbpf_softgpu::Config;

const SMS: u32 = 4;

fn config(seed: Option<u64>) -> Config {
    Config {
        sms: SMS,
        threads: 2,
        seed,
        memory: 1 << 26,
        step_limit: Some(50_000_000),
        ..Config::default()
    }
}

fn events(map_type: MapType, layout: RingLayout) -> (MapDef, MapLayout) {
    (map(map_type, 4, 4, 0), MapLayout::Ring(layout))
}

/// Rings of the smallest size.
fn small() -> RingLayout {
    RingLayout {
        shards: SMS,
        shard_bytes: 64 << 10,
        wait_us: 0,
    }
}

/// Shard and payload of each record, in the order of its ring, and how many were lost.
fn records(layout: &RingLayout, ran: &Ran, map: usize) -> (Vec<(u32, Vec<u8>)>, u64) {
    let (mut list, mut lost) = (Vec::new(), 0);
    for shard in 0..layout.shards {
        let control = u64::from(shard) * RingLayout::CONTROL_STRIDE;
        let reserved = ran.u64(map, control + RingLayout::RESERVED);
        lost += ran.u64(map, control + RingLayout::LOST_FULL);
        lost += ran.u64(map, control + RingLayout::LOST_BUSY);
        let mut at = 0;
        while at < reserved {
            let place = layout.data_at() + u64::from(shard) * layout.shard_bytes + at;
            let header = ran.u32(map, place);
            let length = u64::from(header & RingLayout::LENGTH_MASK);
            if header & RingLayout::PADDING == 0 {
                let payload = place as usize + 8..(place + 8 + length) as usize;
                list.push((shard, ran.areas[map][payload].to_vec()));
            }
            at += RingLayout::record_bytes(length);
        }
    }
    (list, lost)
}

/// Each thread sends two events of its number and its multiprocessor; the sum of the results is
/// kept.
fn two_events(flags: u64) -> String {
    let send = |number: u32| {
        format!(
            "r1 = {number}
            *(u64 *)(r10 - 8) = r1
            r1 = r6
            r2 = map[0]
            r3 = {flags} ll
            r4 = r10
            r4 += -24
            r5 = 24
            call 25
            lock *(u64 *)(r9 + 0) += r0
            "
        )
    };
    format!(
        "r6 = r1
        r9 = map[1][0] + 0
        call 539
        *(u64 *)(r10 - 24) = r0
        call 8
        *(u64 *)(r10 - 16) = r0
        {}{}
        r0 = 0
        exit",
        send(1),
        send(2)
    )
}

#[test]
fn every_event_arrives_with_its_multiprocessor_in_order() {
    for (map_type, flags) in [
        (MapType::PerfEventArray, 0xffff_ffff),
        (MapType::GpuRingbuf, 0),
    ] {
        let layout = RingLayout::events(SMS);
        let maps = vec![events(map_type, layout), array(8, 1)];
        let case = Case::new(&two_events(flags), maps);
        for seed in [None, Some(1), Some(2), Some(3)] {
            let ran = case.run(config(seed), [12, 1, 1], [70, 1, 1]);
            let (list, lost) = records(&layout, &ran, 0);
            assert_eq!(lost, 0);
            assert_eq!(ran.u64(1, 0), 0);
            let mut last = vec![0u64; 12 * 70];
            for (shard, payload) in &list {
                let word = |i: usize| {
                    u64::from_le_bytes(payload[i * 8..i * 8 + 8].try_into().expect("8 bytes"))
                };
                assert_eq!(payload.len(), 24);
                assert_eq!(word(1), u64::from(*shard));
                // A block stays on its multiprocessor here, so a thread's events are in one ring,
                // in their order.
                let thread = &mut last[word(0) as usize];
                assert_eq!(word(2), *thread + 1);
                *thread += 1;
            }
            assert!(last.iter().all(|count| *count == 2));
        }
    }
}

#[test]
fn flags_beyond_the_index_are_invalid() {
    let maps = vec![events(MapType::PerfEventArray, small()), array(8, 1)];
    let case = Case::new(&two_events(1 << 32), maps);
    let ran = case.run(config(None), [1, 1, 1], [32, 1, 1]);
    assert_eq!(ran.u64(1, 0) as i64, 64 * EINVAL);
    assert_eq!(records(&small(), &ran, 0), (Vec::new(), 0));
}

/// 400 events of 1000 bytes and a varying rest for each multiprocessor, whose ring holds 64 KiB.
#[test]
fn what_finds_no_room_is_counted_and_told() {
    let asm = "
        r6 = r1
        r9 = map[1][0] + 0
        r7 = *(u32 *)(r1 + 24)
        r7 &= 7
        r1 = r6
        r2 = map[0]
        r3 = -1
        r3 >>= 32
        r4 = r9
        r4 += 16
        r5 = r7
        r5 += 1000
        call 25
        lock *(u64 *)(r9 + 0) += r0
        r1 = r6
        r2 = map[0]
        r3 = 0
        r4 = r9
        r5 = 0
        call 25
        lock *(u64 *)(r9 + 8) += r0
        r0 = 0
        exit";
    let maps = vec![events(MapType::PerfEventArray, small()), array(1032, 1)];
    let case = Case::new(asm, maps);
    case.assembles();
    for seed in [None, Some(5)] {
        let ran = case.run(config(seed), [16, 1, 1], [100, 1, 1]);
        let (list, lost) = records(&small(), &ran, 0);
        let large = list.iter().filter(|(_, payload)| payload.len() >= 1000);
        let empty = list.iter().filter(|(_, payload)| payload.is_empty());
        let (large, empty) = (large.count() as i64, empty.count() as i64);
        assert_eq!(list.len() as i64, large + empty);
        assert_eq!(ran.u64(1, 0) as i64, (1600 - large) * ENOSPC);
        assert_eq!(ran.u64(1, 8) as i64, (1600 - empty) * ENOSPC);
        assert_eq!(lost as i64, 3200 - large - empty);
        assert!(large > 100 && large < 300, "{large}");
    }
}
