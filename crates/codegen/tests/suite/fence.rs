//! Reads of the application's memory on the soft GPU: what lives is read exactly, everything else
//! is refused.

use crate::common::{Case, Device, array};
use warpbpf_abi::access::Space;
use warpbpf_abi::layout::{env, fence};
use warpbpf_abi::maps::EFAULT;
use warpbpf_softgpu::{Config, Gpu};

/// Bytes of a request: address, space, size.
const REQUEST: u64 = 24;
/// Bytes of an answer: result, and what was read.
const ANSWER: u64 = 8 + 64;
/// Requests of one launch: one per thread.
const THREADS: u32 = 64;

/// Each thread reads what the value of its own index in map 0 asks for. `call` reads to `r9 + 8`, a
/// value of map 1, with the address in r7, the space in r8 and the size in r6, and leaves the
/// result in r0.
fn program(call: &str) -> String {
    format!(
        "r6 = *(u32 *)(r1 + 24)
        *(u32 *)(r10 - 4) = r6
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto out
        r7 = *(u64 *)(r0 + 0)
        r8 = *(u64 *)(r0 + 8)
        r6 = *(u64 *)(r0 + 16)
        r2 = r10
        r2 += -4
        r1 = map[1]
        call 1
        if r0 == 0 goto out
        r9 = r0
        {call}
        *(u64 *)(r9 + 0) = r0
        out:
        r0 = 0
        exit"
    )
}

/// A read of a constant number of bytes into the map.
fn constant(size: u32) -> String {
    program(&format!(
        "r1 = r9
        r1 += 8
        r2 = {size}
        r3 = r7
        r4 = r8
        call 520"
    ))
}

/// A read of as many bytes as the request says into the map.
const VARYING: &str = "
        r1 = r9
        r1 += 8
        r2 = r6
        if r2 > 64 goto out
        r3 = r7
        r4 = r8
        call 520";

/// A read of a constant number of bytes into the stack, which stays in registers.
const TO_STACK: &str = "
        r1 = r10
        r1 += -20
        r2 = 12
        r3 = r7
        call 113
        r1 = *(u64 *)(r10 - 20)
        *(u64 *)(r9 + 8) = r1
        r1 = *(u32 *)(r10 - 12)
        *(u32 *)(r9 + 16) = r1";

/// As many bytes as the request says into the stack, which is in memory then.
const VARYING_TO_STACK: &str = "
        *(u64 *)(r10 - 24) = -1
        *(u64 *)(r10 - 16) = -1
        r1 = r10
        r1 += -24
        r2 = r6
        if r2 > 16 goto out
        r3 = r7
        call 4
        r1 = *(u64 *)(r10 - 24)
        *(u64 *)(r9 + 8) = r1
        r1 = *(u64 *)(r10 - 16)
        *(u64 *)(r9 + 16) = r1";

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

/// The application: two allocations of 100 and 5 bytes, of which the table knows, and one that it
/// does not know.
struct World {
    device: Device,
    fence: u64,
    first: u64,
    second: u64,
    unknown: u64,
}

fn byte(i: u64) -> u8 {
    (i * 7 + 3) as u8
}

fn case(asm: &str) -> Case {
    let maps = [REQUEST, ANSWER].map(|bytes| array(bytes as u32, THREADS));
    Case::new(asm, maps.into())
}

impl World {
    fn new(asm: &str, seed: Option<u64>) -> World {
        World::of(&case(asm), seed)
    }

    fn of(case: &Case, seed: Option<u64>) -> World {
        let device = Device::new(case, config(seed));
        let gpu = device.gpu();
        let allocate = |bytes: u64| {
            let at = gpu.alloc(bytes).unwrap();
            let data: Vec<u8> = (0..bytes).map(byte).collect();
            gpu.write(at, &data).unwrap();
            at
        };
        let (first, second, unknown) = (allocate(100), allocate(5), allocate(100));
        let fence = gpu.alloc(fence::SIZE).unwrap();
        gpu.fill(fence, 0, fence::SIZE).unwrap();
        let world = World {
            fence,
            first,
            second,
            unknown,
            device,
        };
        world.device.write(0, env::FENCE, &fence.to_le_bytes());
        world.table(0, &[first..first + 100, second..second + 5]);
        world
    }

    fn gpu(&self) -> &Gpu {
        self.device.gpu()
    }

    fn table(&self, index: u64, ranges: &[std::ops::Range<u64>]) {
        let at = self.fence + fence::TABLES + index * fence::TABLE;
        for (i, range) in ranges.iter().enumerate() {
            let at = at + i as u64 * fence::RANGE;
            self.gpu().write(at, &range.start.to_le_bytes()).unwrap();
            self.gpu().write(at + 8, &range.end.to_le_bytes()).unwrap();
        }
        self.set(fence::CURRENT, (ranges.len() as u64) << 1 | index);
    }

    fn set(&self, at: u64, value: u64) {
        self.gpu()
            .write(self.fence + at, &value.to_le_bytes())
            .unwrap();
    }

    /// Answers to requests of (address, space, size). The memory for answers is filled with 0xee
    /// before.
    fn ask(&self, requests: &[(u64, u64, u64)]) -> Vec<(i64, Vec<u8>)> {
        assert!(requests.len() <= THREADS as usize);
        for i in 0..u64::from(THREADS) {
            self.device.write(2, i * ANSWER, &[0xee; ANSWER as usize]);
        }
        for (i, &(address, space, size)) in requests.iter().enumerate() {
            for (k, word) in [address, space, size].into_iter().enumerate() {
                let at = i as u64 * REQUEST + k as u64 * 8;
                self.device.write(1, at, &word.to_le_bytes());
            }
        }
        self.device.launch([1, 1, 1], [THREADS, 1, 1]);
        let mut readers = vec![0; 2 * fence::SET as usize];
        self.gpu()
            .read(self.fence + fence::READERS, &mut readers)
            .unwrap();
        assert!(readers.iter().all(|b| *b == 0), "everybody has left");
        let ran = self.device.maps();
        (0..requests.len() as u64)
            .map(|i| {
                let result = ran.u64(1, i * ANSWER) as i64;
                let at = (i * ANSWER + 8) as usize;
                (result, ran.areas[1][at..at + 64].to_vec())
            })
            .collect()
    }
}

/// `size` bytes of an allocation from `from` on, in memory that was 0xee.
fn read(from: u64, size: u64) -> (i64, Vec<u8>) {
    let data = (from..from + size).map(byte);
    (0, filled(data))
}

fn refused(size: u64) -> (i64, Vec<u8>) {
    (EFAULT, filled((0..size).map(|_| 0)))
}

fn filled(data: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut bytes: Vec<u8> = data.collect();
    bytes.resize(64, 0xee);
    bytes
}

const GENERIC: u64 = Space::Generic as u64;
const GLOBAL: u64 = Space::Global as u64;
const SHARED: u64 = Space::Shared as u64;
/// Where the soft GPU has the windows of shared and local memory.
const SHARED_WINDOW: u64 = 1 << 56;
const LOCAL_WINDOW: u64 = 2 << 56;

/// Every kind of address, and what a read of `size` bytes there gives.
type Expected = Vec<((u64, u64, u64), (i64, Vec<u8>))>;

fn everywhere(w: &World, size: u64) -> Expected {
    let mut list = Vec::new();
    let mut ask = |address: u64, space: u64, answer: (i64, Vec<u8>)| {
        list.push(((address, space, size), answer));
    };
    let fits = |base: u64, room: u64, at: u64| {
        let _ = base;
        if at + size <= room {
            read(at, size)
        } else {
            refused(size)
        }
    };
    for space in [GENERIC, GLOBAL] {
        for at in [0, 1, 2, 3, 4, 7, 8, 100 - size, 101 - size, 99, 100] {
            ask(w.first + at, space, fits(w.first, 100, at));
        }
        ask(w.second, space, fits(w.second, 5, 0));
        ask(w.second + 4, space, fits(w.second, 5, 4));
        for bad in [
            w.first - 1,
            w.first - size,
            w.second - 1,
            w.unknown,
            w.fence,
            0,
            8,
            u64::MAX,
            u64::MAX - (size.max(1) - 1),
            1 << 63,
            LOCAL_WINDOW,
            SHARED_WINDOW,
        ] {
            ask(bad, space, refused(size));
        }
    }
    // Every other space, and what only looks like one in its lower half.
    for space in 2..=7 {
        ask(w.first, space, refused(size));
    }
    ask(w.first, GENERIC | 1 << 32, fits(w.first, 100, 0));
    list
}

#[test]
fn constant_sizes() {
    for size in [1, 2, 3, 4, 5, 7, 8, 12, 31, 64] {
        for seed in [None, Some(size.into())] {
            let world = World::new(&constant(size), seed);
            let expected = everywhere(&world, size.into());
            let requests: Vec<_> = expected.iter().map(|(r, _)| *r).collect();
            for ((request, expected), found) in expected.iter().zip(world.ask(&requests)) {
                assert_eq!(&found, expected, "{request:x?}");
            }
        }
    }
}

#[test]
fn sizes_of_the_moment() {
    let case = case(&program(VARYING));
    // Lanes that are together are counted together, or each by itself.
    for case in [&case, &case.apart()] {
        let world = World::of(case, Some(1));
        for size in [0, 1, 5, 8, 13, 64] {
            let requests = everywhere(&world, size);
            let asked: Vec<_> = requests.iter().map(|(r, _)| *r).collect();
            for ((request, expected), found) in requests.iter().zip(world.ask(&asked)) {
                // Of nothing, everything can be read.
                let nothing = (0, filled(std::iter::empty()));
                let expected = if size == 0 { &nothing } else { expected };
                assert_eq!(&found, expected, "{request:x?}");
            }
        }
    }
}

#[test]
fn into_the_stack() {
    let case = case(&program(TO_STACK));
    assert_eq!(
        case.compile().local_bytes,
        0,
        "a buffer that is not in memory"
    );
    case.assembles();
    let world = World::new(&program(TO_STACK), Some(2));
    let answers = world.ask(&[(world.first + 5, 0, 0), (world.unknown, 0, 0)]);
    assert_eq!(answers, [read(5, 12), refused(12)]);

    let world = World::new(&program(VARYING_TO_STACK), Some(3));
    let answers = world.ask(&[
        (world.first + 5, 0, 9),
        (world.unknown, 0, 3),
        (world.unknown, 0, 0),
    ]);
    let ones = |(result, data): (i64, Vec<u8>), from: usize| {
        let mut data = data;
        data[from..16].fill(0xff);
        (result, data)
    };
    assert_eq!(
        answers,
        [
            ones(read(5, 9), 9),
            ones(refused(3), 3),
            (0, filled([0xff; 16].into_iter()))
        ]
    );
}

#[test]
fn a_size_of_zero_is_no_read() {
    let world = World::new(&constant(0), None);
    assert_eq!(
        world.ask(&[(0, 9, 0), (world.first, 0, 0)]),
        [(0, vec![0xee; 64]), (0, vec![0xee; 64])]
    );
    let case = Case::new(
        &constant(0),
        vec![
            array(REQUEST as u32, THREADS),
            array(ANSWER as u32, THREADS),
        ],
    );
    assert!(case.compile().functions.is_empty());
}

#[test]
fn many_bytes_are_copied() {
    // 80 bytes, from the map's own address: a value is not in the table, so it is refused; then the
    // table knows it.
    let asm = "
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0]
        call 1
        if r0 == 0 goto out
        r9 = r0
        r1 = r9
        r1 += 8
        r2 = 80
        r3 = *(u64 *)(r9 + 0)
        call 112
        *(u64 *)(r9 + 88) = r0
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(96, 1)]);
    assert_eq!(case.compile().body.matches("ld.volatile.u8").count(), 1);
    let device = Device::new(&case, config(None));
    let gpu = device.gpu();
    let block = gpu.alloc(fence::SIZE).unwrap();
    gpu.fill(block, 0, fence::SIZE).unwrap();
    device.write(0, env::FENCE, &block.to_le_bytes());
    let source = gpu.alloc(96).unwrap();
    let data: Vec<u8> = (0..96).map(byte).collect();
    gpu.write(source, &data).unwrap();
    let ask = |from: u64| {
        device.write(1, 0, &from.to_le_bytes());
        device.launch([1, 1, 1], [1, 1, 1]);
        let ran = device.maps();
        (ran.u64(0, 88) as i64, ran.areas[0][8..88].to_vec())
    };
    device.write(1, 8, &[0xee; 80]);
    assert_eq!(ask(source), (EFAULT, vec![0; 80]), "the table is empty");
    let table = block + fence::TABLES;
    gpu.write(table, &source.to_le_bytes()).unwrap();
    gpu.write(table + 8, &(source + 96).to_le_bytes()).unwrap();
    gpu.write(block + fence::CURRENT, &2u64.to_le_bytes())
        .unwrap();
    assert_eq!(ask(source + 16), (0, data[16..].to_vec()));
    assert_eq!(ask(source + 17), (EFAULT, vec![0; 80]));
}

#[test]
fn the_current_table_counts_and_either_set_of_readers() {
    let world = World::new(&constant(8), Some(5));
    let (good, gone) = (read(0, 8), refused(8));
    let ask = || world.ask(&[(world.first, 0, 0)]).remove(0);
    assert_eq!(ask(), good);
    world.set(fence::CURRENT, 2 << 1 | 1);
    assert_eq!(ask(), gone, "the other table is empty, whatever its length");
    world.set(fence::EPOCH, 1);
    assert_eq!(ask(), gone);
    world.set(fence::CURRENT, 2 << 1);
    assert_eq!(ask(), good);
    world.set(fence::EPOCH, 7);
    assert_eq!(ask(), good);
}

#[test]
fn a_session_without_a_fence_refuses_everything() {
    for call in [constant(8), program(VARYING)] {
        let world = World::new(&call, None);
        world.device.write(0, env::FENCE, &0u64.to_le_bytes());
        let answers = world.ask(&[(world.first, 0, 8), (SHARED_WINDOW, SHARED, 8)]);
        assert_eq!(answers, [refused(8), refused(8)]);
    }
}

/// Tables of every length around powers of two: each range is found, and nothing between.
#[test]
fn long_tables() {
    let world = World::new(&constant(1), None);
    let room = world.gpu().alloc(4096).unwrap();
    let data: Vec<u8> = (0..4096).map(byte).collect();
    world.gpu().write(room, &data).unwrap();
    for count in [1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 127, 128, 1000] {
        let ranges: Vec<_> = (0..count).map(|i| room + 4 * i..room + 4 * i + 3).collect();
        world.table(0, &ranges);
        let picked: Vec<u64> = [0, 1, count / 2, count - 1]
            .into_iter()
            .filter(|i| *i < count)
            .collect();
        for i in picked {
            let at = |byte: u64| (room + 4 * i + byte, 0, 0);
            let answers = world.ask(&[at(0), at(2), at(3)]);
            let expected = [read(4 * i, 1), read(4 * i + 2, 1), refused(1)];
            assert_eq!(answers, expected, "range {i} of {count}");
        }
    }
}

#[test]
fn the_longest_table() {
    let world = World::new(&constant(1), None);
    // One range that lives, in front of and behind as many others as there is room for.
    let far = |i: u64| (1 << 45) + i * 32..(1 << 45) + i * 32 + 16;
    let near = |i: u64| 4096 + i * 32..4096 + i * 32 + 16;
    let live = world.first..world.first + 100;
    for before in [0, 1, fence::CAPACITY / 2, fence::CAPACITY - 1] {
        let mut ranges: Vec<_> = (0..before).map(near).collect();
        ranges.push(live.clone());
        ranges.extend((before + 1..fence::CAPACITY).map(far));
        assert_eq!(ranges.len() as u64, fence::CAPACITY);
        world.table(0, &ranges);
        let answers = world.ask(&[(live.start, 0, 0), (live.end - 1, 0, 0), (live.end, 0, 0)]);
        assert_eq!(answers, [read(0, 1), read(99, 1), refused(1)], "{before}");
    }
}

#[test]
fn everything_assembles() {
    for asm in [
        constant(1),
        constant(64),
        program(VARYING),
        program(VARYING_TO_STACK),
    ] {
        let maps = || {
            vec![
                array(REQUEST as u32, THREADS),
                array(ANSWER as u32, THREADS),
            ]
        };
        Case::new(&asm, maps()).assembles();
    }
}
