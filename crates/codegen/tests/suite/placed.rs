//! bpftime's arrays under many lanes on the soft GPU: one copy that is never sharded, wherever it
//! lies, and a value for each thread.

use crate::common::{self, Case, map};
use warpbpf_abi::layout::{ArrayLayout, MapLayout, PerThreadLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;
use warpbpf_softgpu::Config;

/// Values of an array: the first half are added to, the others written.
const ENTRIES: u32 = 32;
const GRID: u32 = 6;
const BLOCK: u32 = 100;

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

fn array(map_type: MapType) -> (MapDef, MapLayout) {
    let layout = MapLayout::Array(ArrayLayout {
        max_entries: ENTRIES,
        value_size: 8,
        shards: 1,
        summed: false,
    });
    (map(map_type, 4, 8, ENTRIES), layout)
}

/// Each thread adds its number plus one to entry `thread % 16`, and gives entry `16 + thread % 16`
/// that remainder plus 1000; a key outside is refused and not found.
fn busy(map_type: MapType) -> Case {
    let asm = "
        call 539
        r6 = r0
        r7 = r0
        r7 &= 15
        *(u32 *)(r10 - 4) = r7
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto wrong
        r1 = r6
        r1 += 1
        lock *(u64 *)(r0 + 0) += r1
        r1 = r7
        r1 += 16
        *(u32 *)(r10 - 4) = r1
        r1 = r7
        r1 += 1000
        *(u64 *)(r10 - 16) = r1
        r1 = map[0]
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call 2
        if r0 != 0 goto wrong
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto wrong
        r1 = *(u64 *)(r0 + 0)
        r2 = r7
        r2 += 1000
        if r1 != r2 goto wrong
        *(u32 *)(r10 - 4) = 32
        r1 = map[0]
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call 2
        if r0 != -7 goto wrong
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        wrong:
        r1 = map[1][0] + 0
        r2 = 1
        lock *(u64 *)(r1 + 0) += r2
        out:
        r0 = 0
        exit";
    Case::new(asm, vec![array(map_type), common::array(8, 1)])
}

#[test]
fn arrays_of_one_copy_count_every_thread() {
    for map_type in [
        MapType::GpuArray,
        MapType::GpuKernelArray,
        MapType::GpuHostArray,
    ] {
        let case = busy(map_type);
        case.assembles();
        for &seed in common::seeds() {
            let ran = case.run(config(seed), [GRID, 1, 1], [BLOCK, 1, 1]);
            assert_eq!(ran.u64(1, 0), 0, "{} {seed:?}", map_type.name());
            let found: Vec<u64> = (0..u64::from(ENTRIES)).map(|i| ran.u64(0, i * 8)).collect();
            let sum = |key: u64| -> u64 {
                let threads = 0..u64::from(GRID * BLOCK);
                threads.filter(|t| t % 16 == key).map(|t| t + 1).sum()
            };
            let expected: Vec<u64> = (0..16).map(sum).chain(1000..1016).collect();
            assert_eq!(found, expected, "{} {seed:?}", map_type.name());
        }
    }
}

/// Three additions by each thread to a value of its own; threads beyond the last value find none,
/// and are counted.
#[test]
fn a_value_for_each_thread_is_its_own() {
    let add = "
        *(u32 *)(r10 - 4) = 1
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto none
        r1 = *(u64 *)(r0 + 0)
        r1 += r6
        *(u64 *)(r0 + 0) = r1
        ";
    let asm = format!(
        "call 539
        r6 = r0
        r6 += 1
        {add}{add}{add}
        goto out
        none:
        r1 = map[1][0] + 0
        r2 = 1
        lock *(u64 *)(r1 + 0) += r2
        out:
        r0 = 0
        exit"
    );
    let threads = u64::from(GRID * BLOCK);
    let beyond = 40;
    for map_type in [MapType::PerThreadArray, MapType::PerThreadHostArray] {
        let layout = PerThreadLayout {
            max_entries: 2,
            value_size: 8,
            threads: threads - beyond,
        };
        let of = (map(map_type, 4, 8, 2), MapLayout::PerThread(layout));
        let case = Case::new(&asm, vec![of, common::array(8, 1)]);
        case.assembles();
        for &seed in common::seeds() {
            let ran = case.run(config(seed), [GRID, 1, 1], [BLOCK, 1, 1]);
            assert_eq!(ran.u64(1, 0), beyond, "{} {seed:?}", map_type.name());
            for thread in 0..threads - beyond {
                let value = |key: u32| ran.u64(0, layout.value(key, thread));
                assert_eq!(
                    [value(0), value(1)],
                    [0, 3 * (thread + 1)],
                    "{} thread {thread} {seed:?}",
                    map_type.name()
                );
            }
        }
    }
}
