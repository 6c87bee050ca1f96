//! Strings on the soft GPU: comparisons, strings of the application, texts made on the device,
//! messages. The host's formatting (`abi::format`) is the oracle for the device's.

use crate::common::{self, Case, Device, Ran, array, rodata};
use warpbpf_abi::format::{Conversion, Piece, pieces};
use warpbpf_abi::layout::{RingLayout, env, fence, printk};
use warpbpf_abi::maps::EFAULT;
use warpbpf_object::MapDef;
use warpbpf_softgpu::Config;

/// Bytes of a request: up to 12 values, a size.
const REQUEST: u64 = 128;
/// Where in it the size is.
const SIZE: u64 = 96;
/// Bytes of an answer: a result, and up to 120 of text.
const ANSWER: u64 = 128;
/// Requests of a launch.
const THREADS: u64 = 64;
/// What answers are filled with.
const FILL: u8 = 0xee;

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

/// `body` with this thread's request (map 1) in r8 and its answer (map 2) in r9; what it leaves in
/// r0 is the result. Map 0 are the constant strings.
fn each_thread(body: &str) -> String {
    format!(
        "r7 = *(u32 *)(r1 + 24)
        r7 &= {}
        r7 *= 128
        r8 = map[1][0] + 0
        r8 += r7
        r9 = map[2][0] + 0
        r9 += r7
        {body}
        *(u64 *)(r9 + 0) = r0
        out:
        r0 = 0
        exit",
        THREADS - 1
    )
}

struct World {
    device: Device,
    /// An allocation of the application, and its bytes.
    memory: u64,
}

/// Bytes of the application's memory.
const MEMORY: &[u8] = b"first\0\0second string\0no end";

impl World {
    fn new(constants: &[u8], body: &str, seed: Option<u64>) -> World {
        let case = case(constants, body);
        let device = Device::new(&case, config(seed));
        let gpu = device.gpu();
        let memory = gpu.alloc(MEMORY.len() as u64).unwrap();
        gpu.write(memory, MEMORY).unwrap();
        let table = gpu.alloc(fence::SIZE).unwrap();
        gpu.fill(table, 0, fence::SIZE).unwrap();
        for (at, word) in [
            (fence::TABLES, memory),
            (fence::TABLES + 8, memory + MEMORY.len() as u64),
            (fence::CURRENT, 1 << 1),
        ] {
            gpu.write(table + at, &word.to_le_bytes()).unwrap();
        }
        device.write(0, env::FENCE, &table.to_le_bytes());
        World { device, memory }
    }

    /// Answers to requests of values and a size.
    fn ask(&self, requests: &[(Vec<u64>, u64)]) -> Vec<(i64, Vec<u8>)> {
        assert!(requests.len() as u64 <= THREADS);
        let fill = vec![FILL; (ANSWER * THREADS) as usize];
        self.device.write(3, 0, &fill);
        for (i, (values, size)) in requests.iter().enumerate() {
            let at = i as u64 * REQUEST;
            for (k, value) in values.iter().enumerate() {
                self.device
                    .write(2, at + k as u64 * 8, &value.to_le_bytes());
            }
            self.device.write(2, at + SIZE, &size.to_le_bytes());
        }
        self.device.launch([1, 1, 1], [requests.len() as u32, 1, 1]);
        let ran = self.device.maps();
        (0..requests.len() as u64)
            .map(|i| {
                let at = (i * ANSWER) as usize;
                let text = ran.areas[2][at + 8..at + ANSWER as usize].to_vec();
                (ran.u64(2, i * ANSWER) as i64, text)
            })
            .collect()
    }
}

fn maps(constants: &[u8]) -> Vec<(MapDef, warpbpf_abi::layout::MapLayout)> {
    vec![
        rodata(constants),
        array((REQUEST * THREADS) as u32, 1),
        array((ANSWER * THREADS) as u32, 1),
    ]
}

fn case(constants: &[u8], body: &str) -> Case {
    Case::new(&each_thread(body), maps(constants))
}

/// As C's `strncmp`, but for the size of the result.
fn strncmp(a: &[u8], size: u64, b: &[u8]) -> i64 {
    let byte = |text: &[u8], i: usize| text.get(i).copied().unwrap_or(0);
    for i in 0..size as usize {
        match byte(a, i).cmp(&byte(b, i)) {
            std::cmp::Ordering::Less => return -1,
            std::cmp::Ordering::Greater => return 1,
            std::cmp::Ordering::Equal if byte(a, i) == 0 => return 0,
            std::cmp::Ordering::Equal => {}
        }
    }
    0
}

/// Requests whose values hold a text, with sizes.
fn texts(texts: &[&[u8]], sizes: &[u64]) -> Vec<(Vec<u64>, u64)> {
    let words = |text: &[u8]| -> Vec<u64> {
        let mut bytes = text.to_vec();
        bytes.resize(32, 0);
        let word = |c: &[u8]| u64::from_le_bytes(c.try_into().expect("8 bytes"));
        bytes.chunks(8).map(word).collect()
    };
    let of = |text: &&[u8]| {
        let words = words(text);
        sizes.iter().map(move |&size| (words.clone(), size))
    };
    texts.iter().flat_map(of).collect()
}

#[test]
fn strings_compare() {
    let list: &[&[u8]] = &[
        b"",
        b"a",
        b"warp",
        b"warpbpf",
        b"warpbpf!",
        b"warpbpf is her",
        b"warpbpf is here",
        b"warpbpf is here too",
        b"warpbpf is hero",
        b"warpBpf is here",
        b"zebra",
        b"warpbpf\xff",
    ];
    for constant in [&b""[..], b"warp", b"warpbpf", b"warpbpf is here"] {
        let constants = [constant, b"\0"].concat();
        for size in [1, 4, 7, 8, 9, 16, 20, 32] {
            let body = format!("r1 = r8\nr2 = {size}\nr3 = map[0][0] + 0\ncall 182");
            let world = World::new(&constants, &body, None);
            let requests = texts(list, &[0]);
            for (text, (found, _)) in list.iter().zip(world.ask(&requests)) {
                assert_eq!(
                    found,
                    strncmp(text, size, constant),
                    "{text:?} {size} {constant:?}"
                );
            }
        }
        // A size that is known when the program runs.
        let body = format!(
            "r2 = *(u64 *)(r8 + {SIZE})
            if r2 > 24 goto out
            if r2 == 0 goto out
            r1 = r8
            r3 = map[0][0] + 0
            call 182"
        );
        let world = World::new(&constants, &body, Some(1));
        let sizes = [1, 3, 8, 12, 24];
        let requests = texts(list, &sizes);
        for (i, (found, _)) in world.ask(&requests).into_iter().enumerate() {
            let (text, size) = (list[i / sizes.len()], sizes[i % sizes.len()]);
            assert_eq!(found, strncmp(text, size, constant), "{text:?} {size}");
        }
    }
}

#[test]
fn a_string_on_the_stack_compares_in_registers() {
    let body = "
        r1 = *(u64 *)(r8 + 0)
        *(u64 *)(r10 - 16) = r1
        r1 = *(u64 *)(r8 + 8)
        *(u64 *)(r10 - 8) = r1
        r1 = r10
        r1 += -16
        r2 = 16
        r3 = map[0][0] + 0
        call 182";
    let case = case(b"warpbpf\0", body);
    assert_eq!(case.compile().local_bytes, 0);
    let world = World::new(b"warpbpf\0", body, Some(2));
    let found = world.ask(&texts(&[b"warpbpf", b"warp", b"warpbpf8"], &[0]));
    assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [0, -1, 1]);
}

/// What Linux's helper does with `MEMORY` from `at` on.
fn read_string(at: usize, size: u64) -> (i64, Vec<u8>) {
    if size == 0 {
        return (0, Vec::new());
    }
    let rest = MEMORY.get(at..).unwrap_or_default();
    let looked = &rest[..rest.len().min(size as usize)];
    let mut text = vec![0; size as usize];
    match looked.iter().position(|&b| b == 0) {
        Some(end) => {
            text[..end].copy_from_slice(&looked[..end]);
            (end as i64 + 1, text)
        }
        None if looked.len() as u64 == size => {
            let end = looked.len() - 1;
            text[..end].copy_from_slice(&looked[..end]);
            (size as i64, text)
        }
        None => (EFAULT, text),
    }
}

#[test]
fn strings_of_the_application() {
    let to_map = format!(
        "r2 = *(u64 *)(r8 + {SIZE})
        if r2 > 100 goto out
        r1 = r9
        r1 += 8
        r3 = *(u64 *)(r8 + 0)
        call 115"
    );
    let offsets = [0, 3, 5, 6, 7, 10, 20, 21, 26, 27, 28, 1000];
    for seed in [None, Some(1)] {
        let world = World::new(b"\0", &to_map, seed);
        for size in [0, 1, 2, 6, 7, 14, 15, 100] {
            let at = |offset: &u64| (vec![world.memory + offset], size);
            let requests: Vec<_> = offsets.iter().map(at).collect();
            for (offset, (result, text)) in offsets.iter().zip(world.ask(&requests)) {
                let (expected, bytes) = read_string(*offset as usize, size);
                assert_eq!(result, expected, "{offset} {size}");
                let (read, rest) = text.split_at(size as usize);
                assert_eq!(read, bytes, "{offset} {size}");
                assert!(rest.iter().all(|b| *b == FILL), "{offset} {size}");
            }
        }
        let nowhere = world.ask(&[(vec![0], 4), (vec![u64::MAX], 4)]);
        assert!(nowhere.iter().all(|f| f.0 == EFAULT && f.1[..4] == [0; 4]));
    }
    // Into the stack, by each of the three names.
    for helper in [45, 114, 115] {
        let body = format!(
            "r1 = r10
            r1 += -16
            r2 = 12
            r3 = *(u64 *)(r8 + 0)
            call {helper}
            r1 = *(u64 *)(r10 - 16)
            *(u64 *)(r9 + 8) = r1
            r1 = *(u32 *)(r10 - 8)
            *(u32 *)(r9 + 16) = r1"
        );
        let world = World::new(b"\0", &body, Some(3));
        let found = world.ask(&[(vec![world.memory + 7], 0), (vec![world.memory], 0)]);
        assert_eq!(found[0].0, 12);
        assert_eq!(&found[0].1[..13], b"second stri\0\xee");
        assert_eq!(found[1].0, 6);
        assert_eq!(&found[1].1[..13], b"first\0\0\0\0\0\0\0\xee");
    }
}

/// A text of the values of the request into the answer, in a buffer of the request's size.
fn print_to_map(values: usize) -> String {
    format!(
        "r2 = *(u64 *)(r8 + {SIZE})
        if r2 > 100 goto out
        r1 = r9
        r1 += 8
        r3 = map[0][0] + 0
        r4 = r8
        r5 = {}
        call 165",
        values * 8
    )
}

/// The whole text, with `string` for each `%s`.
fn print(format: &[u8], values: &[u64], string: &dyn Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut values = values.iter();
    for piece in pieces(format) {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Value { spec, .. } => {
                let value = *values.next().expect("a value");
                if spec.conversion == Conversion::String {
                    spec.print_text(&string(value), &mut out);
                } else {
                    spec.print(value, &mut out);
                }
            }
            Piece::Refused { .. } => panic!("{format:?}"),
        }
    }
    out
}

fn check_text(found: &(i64, Vec<u8>), whole: &[u8], room: u64, what: &str) {
    assert_eq!(found.0, whole.len() as i64 + 1, "{what}");
    let mut expected = vec![FILL; found.1.len()];
    if room > 0 {
        let cut = whole.len().min(room as usize - 1);
        expected[..cut].copy_from_slice(&whole[..cut]);
        expected[cut] = 0;
    }
    assert_eq!(found.1, expected, "{what} in {room} bytes");
}

const NUMBERS: [u64; 12] = [
    0,
    1,
    9,
    10,
    255,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

#[test]
fn texts_are_those_of_the_host() {
    for format in [
        "%d",
        "%i|",
        "%u",
        "%x",
        "%X",
        "%o",
        "%hhd %hd",
        "%hhu:%hx",
        "%lld",
        "%llu",
        "%lx",
        "%zX",
        "%llo",
        "%5d",
        "%-5d|",
        "%05d",
        "%+d % d",
        "%+05lld|",
        "%-08x|",
        "%020llu",
        "%#x %#X %#o",
        "%#010x",
        "%-#10llx|",
        "%p",
        "%px|%20p|%-20p|",
        "%c",
        "[%3c|%-3c]",
        "100%% of a longer text: %d, and behind it",
        "",
        "no value",
        "%30d",
    ] {
        let count = pieces(format.as_bytes())
            .filter(|p| matches!(p, Piece::Value { .. }))
            .count();
        let constants = [format.as_bytes(), b"\0"].concat();
        let world = World::new(&constants, &print_to_map(count), None);
        let rooms = [100, 0, 1, 7];
        let requests: Vec<(Vec<u64>, u64)> = NUMBERS
            .iter()
            .enumerate()
            .flat_map(|(i, _)| {
                let values = (0..count).map(|k| NUMBERS[(i + 5 * k) % NUMBERS.len()]);
                let values: Vec<u64> = values.collect();
                rooms.map(|room| (values.clone(), room))
            })
            .collect();
        for (found, (values, room)) in world.ask(&requests).iter().zip(&requests) {
            let whole = print(format.as_bytes(), values, &|_| Vec::new());
            check_text(found, &whole, *room, &format!("`{format}` of {values:x?}"));
        }
    }
}

#[test]
fn twelve_values() {
    let format = b"%d %d %d %d %d %d %d %d %d %d %d %d\0";
    let world = World::new(format, &print_to_map(12), Some(1));
    let values: Vec<u64> = (1..=12).collect();
    let found = world.ask(&[(values, 100)]);
    check_text(&found[0], b"1 2 3 4 5 6 7 8 9 10 11 12", 100, "twelve");
}

#[test]
fn strings_in_texts() {
    let format = b"<%s|%8s|%-8s>\0";
    let world = World::new(format, &print_to_map(3), Some(2));
    let at = |offset: u64| world.memory + offset;
    let requests = [
        (vec![at(0), at(0), at(7)], 100),
        (vec![at(7), at(6), at(0)], 100),
        (vec![0, at(21), u64::MAX], 100),
        (vec![at(7), at(7), at(7)], 30),
        (vec![at(7), at(7), at(7)], 0),
    ];
    // All look at as many bytes as the largest buffer has.
    let string = |address: u64| {
        let rest = address
            .checked_sub(world.memory)
            .and_then(|at| MEMORY.get(at as usize..))
            .unwrap_or_default();
        match rest.iter().position(|&b| b == 0) {
            Some(end) => rest[..end].to_vec(),
            None => Vec::new(),
        }
    };
    for (found, (values, room)) in world.ask(&requests).iter().zip(&requests) {
        let whole = print(format, values, &string);
        check_text(found, &whole, *room, &format!("{values:x?}"));
    }
    // A buffer of 9 bytes looks at 9: a longer string counts as that long.
    let body = "
        r1 = r10
        r1 += -16
        r2 = 9
        r3 = map[0][0] + 0
        r4 = r8
        r5 = 8
        call 165
        r1 = *(u64 *)(r10 - 16)
        *(u64 *)(r9 + 8) = r1
        r1 = *(u8 *)(r10 - 8)
        *(u8 *)(r9 + 16) = r1";
    let world = World::new(b"%s\0", body, None);
    let found = world.ask(&[(vec![world.memory + 7], 0), (vec![world.memory], 0)]);
    assert_eq!(found[0].0, 10);
    assert_eq!(&found[0].1[..10], b"second s\0\xee");
    assert_eq!(found[1].0, 6);
    // What is behind the NUL stays as it was.
    assert_eq!(&found[1].1[..6], b"first\0");
}

#[test]
fn values_may_lie_in_the_buffer() {
    let body = "
        r1 = *(u64 *)(r8 + 0)
        *(u64 *)(r10 - 16) = r1
        r1 = *(u64 *)(r8 + 8)
        *(u64 *)(r10 - 8) = r1
        r1 = r10
        r1 += -16
        r2 = 16
        r3 = map[0][0] + 0
        r4 = r1
        r5 = 16
        call 165
        r1 = *(u64 *)(r10 - 16)
        *(u64 *)(r9 + 8) = r1
        r1 = *(u64 *)(r10 - 8)
        *(u64 *)(r9 + 16) = r1";
    let world = World::new(b"%d and %d\0", body, Some(1));
    let found = world.ask(&[(vec![1234, 567], 0)]);
    assert_eq!(found[0].0, 13);
    assert_eq!(&found[0].1[..13], b"1234 and 567\0");
}

/// Payloads in the ring of messages.
fn messages(ran: &Ran, ring: usize) -> Vec<Vec<u8>> {
    let layout = RingLayout::new(1 << 16, 4);
    let mut list = Vec::new();
    for shard in 0..4 {
        let reserved = ran.u64(
            ring,
            shard * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED,
        );
        let mut at = 0;
        while at < reserved {
            let place = layout.data_at() + shard * layout.shard_bytes + at;
            let header = ran.u32(ring, place);
            let length = u64::from(header & RingLayout::LENGTH_MASK);
            if header & !RingLayout::LENGTH_MASK == 0 {
                let bytes = place as usize + 8..(place + 8 + length) as usize;
                list.push(ran.areas[ring][bytes].to_vec());
            }
            at += RingLayout::record_bytes(length);
        }
    }
    list
}

#[test]
fn messages_carry_values_and_constant_strings() {
    // Odd threads name another string; the array carries five values, or strings too.
    let constants = b"%s is %lld\0one\0other\0%d %d %d %d %d\0%5s=%d %s\0";
    let body = "
        r7 = *(u64 *)(r8 + 0)
        r3 = map[0][0] + 11
        if r7 == 0 goto one
        r3 += 4
        one:
        r4 = r7
        r6 = r3
        r1 = map[0][0] + 0
        r2 = 11
        call 6
        *(u64 *)(r9 + 8) = r0
        *(u64 *)(r10 - 24) = r6
        *(u64 *)(r10 - 16) = r7
        r1 = map[0][0] + 11
        *(u64 *)(r10 - 8) = r1
        r1 = map[0][0] + 36
        r2 = 10
        r3 = r10
        r3 += -24
        r4 = 24
        call 177
        r1 = map[0][0] + 21
        r2 = 15
        r3 = r8
        r4 = 48
        call 177";
    let case = case(constants, body);
    assert_eq!(case.compile().local_bytes, 0);
    let device = Device::new(&case, config(Some(1)));
    for k in 0..6u64 {
        device.write(2, REQUEST + k * 8, &(k + 70).to_le_bytes());
    }
    device.launch([1, 1, 1], [2, 1, 1]);
    let ran = device.maps();
    for thread in 0..2 {
        assert_eq!(ran.u64(2, thread * ANSWER), printk::size(5));
        assert_eq!(ran.u64(2, thread * ANSWER + 8), printk::size(2));
    }
    let word = |payload: &[u8], at: u64| {
        u64::from_le_bytes(payload[at as usize..at as usize + 8].try_into().unwrap())
    };
    let mut found: Vec<Vec<u64>> = messages(&ran, 3)
        .iter()
        .map(|payload| {
            let args = (payload.len() as u64 - printk::ARG) / 8;
            assert_eq!(word(payload, printk::FORMAT_SIZE) >> 32, args);
            (0..args)
                .map(|i| word(payload, printk::ARG + i * 8))
                .collect()
        })
        .collect();
    found.sort();
    // The session's number of the map is 100.
    let place = |offset: u64| 100 << 32 | offset;
    let expected = vec![
        vec![0; 5],
        (70..75).collect(),
        vec![place(11), 0],
        vec![place(11), 0, place(11)],
        vec![place(15), 70],
        vec![place(15), 70, place(11)],
    ];
    assert_eq!(found, expected);
}

/// What the verifier counts covers what is executed, where it takes longest.
#[test]
fn costs_are_upper_bounds() {
    let to_stack = |helper: u32, size: u32, address: &str| {
        format!(
            "r1 = r10\nr1 += -{size}\nr2 = {size}\nr3 = *(u64 *)(r8 + {address})\ncall {helper}"
        )
    };
    let print = |size: u32, values: u32| {
        format!(
            "r1 = r10\nr1 += -{size}\nr2 = {size}\nr3 = map[0][0] + 0\nr4 = r8\nr5 = {}\ncall 165",
            values * 8
        )
    };
    let number = u64::MAX;
    for (constants, body, values) in [
        // A string that goes on where nothing lives, and one that fills the buffer.
        (&b"\0"[..], to_stack(115, 200, "0"), vec![21]),
        (b"\0", to_stack(115, 8, "0"), vec![7]),
        (b"%d\0", print(8, 1), vec![number]),
        (b"%llu%lld%llo%llx\0", print(96, 4), vec![number; 4]),
        (b"%p%100d%-100d%c\0", print(200, 4), vec![number; 4]),
        (
            b"twelve of them and a text of more than one word\0",
            print(64, 0),
            vec![],
        ),
        (b"%s%s\0", print(96, 2), vec![7, 7]),
        (
            b"%#llo%+lld%#llX%020d\0",
            print(96, 4),
            vec![i64::MIN as u64; 4],
        ),
        (
            b"a text of thirty-two characters!\0",
            "r1 = r8\nr2 = 64\nr3 = map[0][0] + 0\ncall 182".to_owned(),
            vec![number],
        ),
    ] {
        let case = case(constants, &body);
        let world = World::new(constants, &body, None);
        let strings = constants.windows(2).any(|w| w == b"%s") || body.contains("call 115");
        for (k, value) in values.iter().enumerate() {
            let value = if strings {
                world.memory + value
            } else {
                *value
            };
            world.device.write(2, k as u64 * 8, &value.to_le_bytes());
        }
        let steps = world
            .device
            .launch_clusters([1, 1, 1], [1, 1, 1], [1, 1, 1]);
        let counted = case.program.facts().cost;
        let text = String::from_utf8_lossy(constants);
        assert!(steps <= counted, "{text:?}: {steps} of {counted}");
        // Nor is it counted many times over.
        assert!(counted < 8 * steps + 400, "{text:?}: {steps} of {counted}");
    }
}

/// The suite's program, for any clang's code: all threads agree with it on everything.
#[test]
fn programs_in_c_use_the_macros_of_libbpf() {
    let path = common::workspace().join("tests/programs/helpers_more.bpf.c");
    let source = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{e}"));
    for cpu in ["v2", "v3", "v4"] {
        let object = common::clang("helpers_more", &source, cpu);
        let index = |name: &str| {
            let found = object.maps.iter().position(|m| m.name == name);
            found.unwrap_or_else(|| panic!("map `{name}`"))
        };
        let (results, lanes) = (index("results"), index("lanes"));
        let case = Case::object(&object, 4);
        let device = Device::new(&case, config(Some(7)));
        device.write(0, env::COMM, b"vectoradd-share\0");
        device.write(0, env::SM_COUNT, &4u64.to_le_bytes());
        device.write(0, env::TAI_OFFSET, &1u64.to_le_bytes());
        device.launch([2, 2, 1], [8, 5, 2]);
        let ran = device.maps();
        let threads = 2 * 2 * 80;
        let agreed: Vec<u64> = (0..10).map(|check| ran.u64(results, check * 8)).collect();
        assert_eq!(agreed, [threads; 10], "-mcpu={cpu}");
        assert_eq!(ran.u64(lanes, 0), threads);
        common::ptxas(&case.module("sm_90", (8, 0)), "sm_90", &[]);
    }
}

#[test]
fn ptxas_takes_them_all() {
    case(b"%d %5s %#llx %c\0", &print_to_map(4)).assembles();
    let body = "
        *(u64 *)(r10 - 16) = 0
        *(u64 *)(r10 - 8) = 0
        r1 = r10
        r1 += -16
        r2 = 16
        r3 = *(u64 *)(r8 + 0)
        call 115
        r1 = r10
        r1 += -16
        r2 = 16
        r3 = map[0][0] + 3
        call 182
        *(u64 *)(r10 - 8) = r0
        r1 = r10
        r1 += -16
        r2 = 16
        r3 = map[0][0] + 0
        r4 = r10
        r4 += -8
        r5 = 8
        call 165";
    case(b"%d\0name\0", body).assembles();
}
