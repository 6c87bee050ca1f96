//! Maps found in maps of maps, on the soft GPU: every helper works on what was found, at an address
//! of run time.

use crate::common::{Case, Device, Ran, array, hash, map, ring, table};
use warpbpf_abi::layout::{ArrayLayout, MapLayout, QueueLayout, RingLayout, inner};
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;
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

/// An array of maps like `of`.
fn outer(of: &MapDef, entries: u32) -> (MapDef, MapLayout) {
    let layout = MapLayout::Array(ArrayLayout {
        max_entries: entries,
        value_size: inner::VALUE,
        shards: 1,
        summed: false,
    });
    let mut def = map(MapType::ArrayOfMaps, 4, 4, entries);
    def.inner = Some(Box::new(of.clone()));
    (def, layout)
}

/// A program whose map 0 is an array of maps like map 1. Map `i + 1` stands at index `i` of it, for
/// `i` below `filled`.
struct Nested {
    case: Case,
    filled: u32,
}

impl Nested {
    fn new(asm: &str, entries: u32, filled: u32, maps: Vec<(MapDef, MapLayout)>) -> Nested {
        let of = maps[0].clone();
        let mut all = vec![outer(&of.0, entries)];
        all.extend(maps);
        let mut case = Case::new(asm, all);
        case.env.maps[0].inner = Some(of.1);
        Nested { case, filled }
    }

    fn run(&self, seed: Option<u64>, grid: u32, block: u32) -> Ran {
        let device = Device::new(&self.case, config(seed));
        for i in 0..self.filled {
            // The environment block is area 0, the outer map area 1.
            let address = device.address(i as usize + 2).to_le_bytes();
            let at = u64::from(i) * u64::from(inner::VALUE);
            device.write(1, at + inner::ADDRESS, &address);
            device.write(1, at + inner::INDEX, &(i + 2).to_le_bytes());
        }
        device.launch([grid, 1, 1], [block, 1, 1]);
        device.maps()
    }
}

/// Looks up the map at index `threadIdx.x % 5` into r8, and goes to `out` without one.
const FIND: &str = "
    r6 = r1
    r7 = *(u32 *)(r1 + 24)
    r2 = r7
    r2 %= 5
    *(u32 *)(r10 - 4) = r2
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 1
    if r0 == 0 goto out
    r8 = r0
";
const OUT: &str = "out:\nr0 = 0\nexit";

/// Three arrays; index 3 is empty and 4 is outside.
#[test]
fn counters_in_arrays() {
    let asm = format!(
        "{FIND}
        r2 = r7
        r2 &= 1
        *(u32 *)(r10 - 4) = r2
        r1 = r8
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r1 = 1
        lock *(u64 *)(r0 + 0) += r1
        *(u32 *)(r10 - 4) = 2
        *(u64 *)(r10 - 16) = r7
        r1 = r8
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call 2
        r9 = map[4][0] + 0
        r1 = 1
        lock *(u64 *)(r9 + 0) += r1
        {OUT}"
    );
    let maps = vec![array(8, 3), array(8, 3), array(8, 3), array(8, 1)];
    let nested = Nested::new(&asm, 4, 3, maps);
    nested.case.assembles();
    for seed in [None, Some(1), Some(2)] {
        let ran = nested.run(seed, 3, 100);
        for i in 0..3u64 {
            let threads: Vec<u64> = (0..100).filter(|t| t % 5 == i).collect();
            let odd = threads.iter().filter(|t| *t % 2 == 1).count() as u64;
            let map = i as usize + 1;
            assert_eq!(ran.u64(map, 0), 3 * (threads.len() as u64 - odd));
            assert_eq!(ran.u64(map, 8), 3 * odd);
            assert!(threads.contains(&ran.u64(map, 16)));
        }
        assert_eq!(ran.u64(4, 0), 3 * 60);
    }
}

#[test]
fn hashes_queues_and_rings() {
    let insert = format!(
        "{FIND}
        *(u64 *)(r10 - 16) = r7
        r1 = r8
        r2 = r10
        r2 += -16
        r3 = r10
        r3 += -16
        r4 = 0
        call 2
        r1 = r8
        r2 = r10
        r2 += -16
        call 1
        if r0 == 0 goto out
        r1 = 1000
        lock *(u64 *)(r0 + 0) += r1
        {OUT}"
    );
    let nested = Nested::new(&insert, 5, 2, vec![hash(8, 8, 64), hash(8, 8, 64)]);
    nested.case.assembles();
    for seed in [None, Some(1)] {
        let ran = nested.run(seed, 1, 100);
        for map in [1, 2] {
            let has = |word: u64| {
                let bytes = word.to_le_bytes();
                ran.areas[map].chunks(8).any(|chunk| chunk == bytes)
            };
            for thread in 0..100u64 {
                let here = thread % 5 == map as u64 - 1;
                assert_eq!(has(thread + 1000), here, "{thread} in {map}");
            }
        }
    }

    let push = format!(
        "{FIND}
        *(u64 *)(r10 - 16) = r7
        r1 = r8
        r2 = r10
        r2 += -16
        r3 = 0
        call 87
        {OUT}"
    );
    let layout = QueueLayout {
        max_entries: 64,
        value_size: 8,
        lifo: false,
    };
    let queue = (map(MapType::Queue, 0, 8, 64), MapLayout::Queue(layout));
    let nested = Nested::new(&push, 5, 2, vec![queue.clone(), queue]);
    for seed in [None, Some(1)] {
        let ran = nested.run(seed, 1, 100);
        for map in [1, 2] {
            let mut values: Vec<u64> = (0..20).map(|n| ran.u64(map, layout.node(n))).collect();
            values.sort_unstable();
            let expected = (0..20).map(|i| i * 5 + map as u64 - 1);
            assert_eq!(values, expected.collect::<Vec<u64>>());
        }
    }

    let output = format!(
        "{FIND}
        *(u64 *)(r10 - 16) = r7
        r1 = r8
        r2 = r10
        r2 += -16
        r3 = 8
        r4 = 0
        call 130
        {OUT}"
    );
    let nested = Nested::new(&output, 5, 1, vec![ring(1 << 16, 4)]);
    let ran = nested.run(None, 1, 100);
    let reserved: u64 = (0..4)
        .map(|shard| ran.u64(1, shard * RingLayout::CONTROL_STRIDE))
        .sum();
    assert_eq!(reserved, 20 * RingLayout::record_bytes(8));

    let query = format!(
        "{FIND}
        *(u64 *)(r10 - 16) = r7
        r1 = r8
        r2 = r10
        r2 += -16
        r3 = 8
        r4 = 0
        call 130
        r1 = r8
        r2 = 3
        call 134
        r9 = map[2][0] + 0
        *(u64 *)(r9 + 0) = r0
        {OUT}"
    );
    let nested = Nested::new(&query, 5, 1, vec![ring(1 << 16, 4), array(8, 1)]);
    nested.case.assembles();
    let told = nested.run(None, 1, 1).u64(2, 0);
    assert_eq!(told, RingLayout::record_bytes(8));
}

/// A hash with these keys, as a program leaves it: how it lies in memory is no matter of this test.
fn hash_of(entries: u32, keys: &[(u32, u64, u32)]) -> Vec<u8> {
    let mut asm = String::new();
    for (key, address, index) in keys {
        asm.push_str(&format!(
            "*(u32 *)(r10 - 4) = {key}
            r1 = {address} ll
            *(u64 *)(r10 - 24) = r1
            r1 = {index}
            *(u64 *)(r10 - 16) = r1
            r1 = map[0]
            r2 = r10
            r2 += -4
            r3 = r10
            r3 += -24
            r4 = 1
            call 2
            "
        ));
    }
    asm.push_str("r0 = 0\nexit");
    let case = Case::new(
        &asm,
        vec![table(MapType::Hash, 4, inner::VALUE, entries, 1)],
    );
    let ran = case.run(config(None), [1, 1, 1], [1, 1, 1]);
    ran.areas[0].clone()
}

/// Keys 2 and 5 have maps; each thread looks for key `threadIdx.x % 7`, and counts in what it
/// finds.
#[test]
fn a_hash_of_maps() {
    assert_eq!((inner::ADDRESS, inner::INDEX, inner::VALUE), (0, 8, 16));
    let asm = FIND.replace("r2 %= 5", "r2 %= 7")
        + "r1 = r8
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r1 = 1
        lock *(u64 *)(r0 + 0) += r1
        "
        + OUT;
    let (mut def, layout) = table(MapType::Hash, 4, inner::VALUE, 8, 1);
    let of = array(8, 1);
    def.map_type = MapType::HashOfMaps as u32;
    def.value_size = 4;
    def.inner = Some(Box::new(of.0.clone()));
    let mut case = Case::new(&asm, vec![(def, layout), of.clone(), of.clone()]);
    case.env.maps[0].inner = Some(of.1);
    case.assembles();
    // Nothing is in it.
    let ran = case.run(config(None), [1, 1, 1], [64, 1, 1]);
    assert_eq!((ran.u64(1, 0), ran.u64(2, 0)), (0, 0));
    let (grid, block) = (6, 101);
    for seed in [None, Some(1), Some(2), Some(3)] {
        let device = Device::new(&case, config(seed));
        // The environment block is area 0, the hash area 1.
        let filled = hash_of(8, &[(2, device.address(2), 2), (5, device.address(3), 3)]);
        device.write(1, 0, &filled);
        device.launch([grid, 1, 1], [block, 1, 1]);
        let ran = device.maps();
        let with = |key: u32| u64::from(grid) * (0..block).filter(|t| t % 7 == key).count() as u64;
        assert_eq!((ran.u64(1, 0), ran.u64(2, 0)), (with(2), with(5)));
        assert!(with(2) > with(5));
    }
}
