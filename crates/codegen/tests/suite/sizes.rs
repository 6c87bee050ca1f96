//! Helpers with a size: what they copy and fill, byte for byte, and that a call executes no more
//! than the budget counts for it. What is long is a loop, so that the code does not grow with the
//! size.

use crate::common::{Case, Device, Ran, array, ring};
use warpbpf_abi::layout::{MapLayout, RingLayout, env};
use warpbpf_ebpf::Code;
use warpbpf_softgpu::Config;

/// Bytes of the value of map 0, which a run finds filled with [`pattern`].
const BYTES: u32 = 8192;
const NAME: [u8; 16] = *b"application-run\0";
/// Instructions of the kernel around the program, and a few that the compiler adds to a program of
/// this length.
const AROUND: u64 = 24;

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|i| (i * 7 + i / 256) as u8 | 1).collect()
}

/// Runs a program in one thread: what is left in the maps. It may cost what the proof says.
fn run(case: &Case<Code>) -> Ran {
    let device = Device::new(
        case,
        Config {
            memory: 1 << 26,
            ..Config::default()
        },
    );
    device.write(0, env::COMM, &NAME);
    device.write(1, 0, &pattern());
    let steps = device.launch_clusters([1, 1, 1], [1, 1, 1], [1, 1, 1]);
    let counted = case.program.facts().cost;
    assert!(
        steps <= counted + AROUND,
        "{steps} executed, {counted} counted\n{}",
        case.compile().body
    );
    device.maps()
}

fn case(asm: &str) -> Case<Code> {
    let asm = format!("{asm}\nr0 = 0\nexit");
    Case::new(
        &asm,
        vec![
            array(BYTES, 1),
            array(16, 4),
            array(5000, 2),
            ring(1 << 18, 4),
        ],
    )
}

/// What is in map 0 after a run.
fn value(asm: &str) -> Vec<u8> {
    run(&case(asm)).areas[0][..BYTES as usize].to_vec()
}

#[test]
fn names_are_padded_to_any_size() {
    for size in [1, 15, 16, 17, 24, 511, 512, 513, 520, 4096, 4099] {
        for at in [0, 1, 4, 8] {
            let mut want = pattern();
            let kept = NAME.len().min(size - 1);
            want[at..at + size].fill(0);
            want[at..at + kept].copy_from_slice(&NAME[..kept]);
            let found = value(&format!("r1 = map[0][0] + {at}\nr2 = {size}\ncall 16"));
            assert!(found == want, "{size} bytes at {at}");
        }
    }
    case("r1 = map[0][0] + 3\nr2 = 4099\ncall 16").assembles();
}

/// The bytes `from` of `len` bytes copied to `to`, as if all were read first.
fn moved(from: usize, to: usize, len: usize) -> Vec<u8> {
    let mut want = pattern();
    want.copy_within(from..from + len, to);
    want
}

/// Places that are apart, overlap in both directions, and are aligned in different ways.
const PLACES: [(usize, usize); 7] = [
    (0, 4096),
    (4096, 0),
    (0, 8),
    (8, 0),
    (16, 19),
    (1, 1027),
    (1030, 4),
];

#[test]
fn dynptrs_are_read_and_written_at_any_length() {
    let made = |at: usize, len: usize| {
        format!("r1 = map[0][0] + {at}\nr2 = {len}\nr3 = 0\nr4 = r10\nr4 += -16\ncall 197\n")
    };
    for len in [16, 512, 513, 1024, 3001] {
        for (from, to) in PLACES {
            let read = format!(
                "{}r1 = map[0][0] + {to}\nr2 = {len}\nr3 = r10\nr3 += -16\nr4 = 0\nr5 = 0\ncall 201",
                made(from, len)
            );
            assert!(
                value(&read) == moved(from, to, len),
                "read {len} {from} {to}"
            );
            let write = format!(
                "{}r1 = r10\nr1 += -16\nr2 = 0\nr3 = map[0][0] + {from}\nr4 = {len}\nr5 = 0\ncall 202",
                made(to, len)
            );
            assert!(
                value(&write) == moved(from, to, len),
                "write {len} {from} {to}"
            );
        }
        // What is not there is read as zeros, and nothing is written.
        let short = made(4096, len - 1);
        let mut zeros = pattern();
        zeros[..len].fill(0);
        let read = format!(
            "{short}r1 = map[0][0] + 0\nr2 = {len}\nr3 = r10\nr3 += -16\nr4 = 0\nr5 = 0\ncall 201"
        );
        assert!(value(&read) == zeros, "outside, {len}");
        let write = format!(
            "{short}r1 = r10\nr1 += -16\nr2 = 0\nr3 = map[0][0] + 0\nr4 = {len}\nr5 = 0\ncall 202"
        );
        assert!(value(&write) == pattern(), "outside, {len}");
    }
}

#[test]
fn own_memory_is_read_like_that_of_the_application() {
    for helper in [4, 112, 113] {
        let text = format!(
            "r1 = map[0][0] + 64\nr2 = 24\nr3 = map[0][0] + 0\ncall {helper}\nr1 = map[1][0] + 0\n*(u64 *)(r1 + 0) = r0"
        );
        let ran = run(&case(&text));
        assert_eq!(ran.u64(1, 0), 0);
        assert!(ran.areas[0][..BYTES as usize] == moved(0, 64, 24));
    }
    for len in [0, 1, 7, 16, 512, 513, 2000] {
        for (from, to) in PLACES {
            let known =
                format!("r1 = map[0][0] + {to}\nr2 = {len}\nr3 = map[0][0] + {from}\ncall 113");
            assert!(value(&known) == moved(from, to, len), "{len} {from} {to}");
        }
    }
    // A size that is only known as it runs, from the map.
    for (from, to) in PLACES {
        let text = format!(
            "r1 = map[1][0] + 0\n*(u64 *)(r1 + 8) = 700\nr2 = *(u64 *)(r1 + 8)\nr2 &= 1023\nr1 = map[0][0] + {to}\nr3 = map[0][0] + {from}\ncall 113"
        );
        assert!(value(&text) == moved(from, to, 700), "{from} {to}");
    }
    // The stack, in registers and in memory, to the stack and to a map.
    let text = "r1 = 0x1122334455667788 ll\n*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 12) = 9\nr1 = r10\nr1 += -32\nr2 = 12\nr3 = r10\nr3 += -12\ncall 113\nr3 = *(u64 *)(r10 - 32)\nr1 = map[1][0] + 0\n*(u64 *)(r1 + 0) = r3\nr2 = 8\nr3 = r10\nr3 += -8\nr1 += 8\ncall 113";
    let ran = run(&case(text));
    assert_eq!(ran.u64(1, 0), 0x5566_7788_0000_0009);
    assert_eq!(ran.u64(1, 8), 0x1122_3344_5566_7788);
    let text = "*(u64 *)(r10 - 16) = 1\n*(u64 *)(r10 - 8) = 2\nr1 = map[1][0] + 0\n*(u64 *)(r1 + 8) = 9\nr2 = *(u64 *)(r1 + 8)\nr2 &= 15\nr3 = r10\nr3 += -16\ncall 113";
    let ran = run(&case(text));
    assert_eq!((ran.u64(1, 0), ran.u64(1, 8)), (1, 2));
}

/// The pattern with a NUL at `nul`, before and after a string of `size` bytes is read from `from`
/// to `to`, and the result.
fn read_string(nul: usize, from: usize, to: usize, size: usize) -> (Vec<u8>, u64) {
    let mut bytes = pattern();
    bytes[nul] = 0;
    if size == 0 {
        return (bytes, 0);
    }
    let text: Vec<u8> = bytes[from..from + size - 1]
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect();
    bytes[to..to + size].fill(0);
    bytes[to..to + text.len()].copy_from_slice(&text);
    (bytes, text.len() as u64 + 1)
}

#[test]
fn strings_of_own_memory_end_at_a_nul() {
    let check = |nul: usize, from: usize, to: usize, size: usize, set: &str, helper: u32| {
        let text = format!(
            "r1 = map[0][0] + {nul}\n*(u8 *)(r1 + 0) = 0\n{set}r1 = map[0][0] + {to}\nr3 = map[0][0] + {from}\ncall {helper}\nr1 = map[1][0] + 0\n*(u64 *)(r1 + 0) = r0"
        );
        let ran = run(&case(&text));
        let (bytes, result) = read_string(nul, from, to, size);
        let what = format!("NUL at {nul}, {size} bytes from {from} to {to}, helper {helper}");
        assert_eq!(ran.u64(1, 0), result, "{what}");
        assert!(ran.areas[0][..BYTES as usize] == bytes, "{what}");
    };
    for helper in [45, 114, 115] {
        check(8, 0, 64, 24, "r2 = 24\n", helper);
    }
    // Each byte of a word, the first and the last of all, and none.
    for nul in (0..9).chain([15, 16, 17, 22, 23, 24, 200]) {
        for (from, to) in [(0, 64), (3, 65), (0, 5), (5, 0), (0, 0)] {
            for size in [0, 1, 7, 8, 9, 16, 23, 24] {
                check(nul, from, to, size, &format!("r2 = {size}\n"), 115);
            }
        }
    }
    for (from, to) in PLACES {
        for nul in [
            from,
            from + 1,
            from + 511,
            from + 512,
            from + 599,
            from + 600,
            8000,
        ] {
            for size in [512, 513, 600] {
                check(nul, from, to, size, &format!("r2 = {size}\n"), 115);
            }
            // A size that is only known as it runs, from the map.
            for size in [0, 1, 600] {
                let set = format!(
                    "r1 = map[1][0] + 0\n*(u64 *)(r1 + 8) = {size}\nr2 = *(u64 *)(r1 + 8)\nr2 &= 1023\n"
                );
                check(nul, from, to, size, &set, 115);
            }
        }
    }
    case("r1 = map[0][0] + 1\nr2 = 29\nr3 = map[0][0] + 64\ncall 115").assembles();
    case("r1 = map[0][0] + 1\nr2 = 900\nr3 = map[0][0] + 64\ncall 115").assembles();
}

#[test]
fn strings_of_the_stack_are_read_in_registers() {
    // "warpbpf", a NUL, and what is behind it.
    let text = "r1 = 0x0066706270726177 ll\n*(u64 *)(r10 - 16) = r1\n*(u64 *)(r10 - 8) = -1\nr1 = r10\nr1 += -32\nr2 = 16\nr3 = r10\nr3 += -16\ncall 115\nr1 = map[1][0] + 0\nr2 = *(u64 *)(r10 - 32)\n*(u64 *)(r1 + 0) = r2\nr2 = *(u64 *)(r10 - 24)\n*(u64 *)(r1 + 8) = r2\nr3 = map[0][0] + 0\n*(u64 *)(r3 + 0) = r0";
    let program = case(text);
    assert_eq!(program.compile().local_bytes, 0);
    let ran = run(&program);
    assert_eq!(ran.u64(0, 0), 8);
    assert_eq!((ran.u64(1, 0), ran.u64(1, 8)), (0x0066_7062_7072_6177, 0));
    // A size that is only known as it runs, and a string that is cut.
    let text = "r1 = 0x6766656463626161 ll\n*(u64 *)(r10 - 16) = r1\n*(u64 *)(r10 - 8) = -1\nr1 = map[1][0] + 0\n*(u64 *)(r1 + 8) = 5\nr2 = *(u64 *)(r1 + 8)\nr2 &= 15\nr3 = r10\nr3 += -16\ncall 115\nr1 = map[0][0] + 0\n*(u64 *)(r1 + 0) = r0";
    let ran = run(&case(text));
    assert_eq!(ran.u64(0, 0), 5);
    assert_eq!(ran.u64(1, 0), 0x0000_0000_6362_6161);
}

#[test]
fn long_values_are_copied_into_arrays() {
    for from in [0, 3, 8] {
        let text = format!(
            "*(u32 *)(r10 - 4) = 1\nr1 = map[2]\nr2 = r10\nr2 += -4\nr3 = map[0][0] + {from}\nr4 = 0\ncall 2"
        );
        let ran = run(&case(&text));
        assert!(ran.areas[2][5000..10000] == pattern()[from..from + 5000]);
        assert!(ran.areas[2][..5000].iter().all(|byte| *byte == 0));
    }
}

/// The payloads in the ring of multiprocessor 0.
fn records(ran: &Ran, ring: RingLayout) -> Vec<Vec<u8>> {
    let (mut at, mut all) = (0, Vec::new());
    let reserved = (0..u64::from(ring.shards))
        .map(|shard| ran.u64(3, shard * RingLayout::CONTROL_STRIDE + RingLayout::RESERVED))
        .collect::<Vec<_>>();
    let shard = reserved.iter().position(|end| *end > 0).expect("a record") as u64;
    while at < reserved[shard as usize] {
        let place = ring.data_at() + shard * ring.shard_bytes + at;
        let length = u64::from(ran.u32(3, place) & RingLayout::LENGTH_MASK);
        let from = (place + RingLayout::HEADER) as usize;
        all.push(ran.areas[3][from..from + length as usize].to_vec());
        at += RingLayout::record_bytes(length);
    }
    all
}

#[test]
fn records_have_any_length() {
    for (from, len) in [(0, 100), (0, 512), (0, 513), (5, 2001)] {
        let call =
            |size: &str| format!("{size}r1 = map[3]\nr2 = map[0][0] + {from}\nr4 = 0\ncall 130");
        let known = case(&call(&format!("r3 = {len}\n")));
        let varying = case(&call(&format!(
            "r1 = map[1][0] + 0\n*(u64 *)(r1 + 0) = {len}\nr3 = *(u64 *)(r1 + 0)\nr3 &= 2047\nif r3 == 0 goto +6\n"
        )));
        for case in [known, varying] {
            let MapLayout::Ring(layout) = case.maps[3].1 else {
                panic!("a ring");
            };
            assert_eq!(
                records(&run(&case), layout),
                [pattern()[from..from + len].to_vec()]
            );
        }
    }
}

#[test]
fn a_record_may_have_another_size_on_another_path() {
    let text = "r2 = *(u32 *)(r1 + 0)\nr3 = 16\nif r2 == 0 goto +1\nr3 = 64\nr2 = r3\nr1 = map[3]\nr3 = 0\ncall 131\nif r0 == 0 goto +5\n*(u64 *)(r0 + 0) = 5\n*(u64 *)(r0 + 8) = 6\nr1 = r0\nr2 = 0\ncall 132";
    let case = case(text);
    let MapLayout::Ring(layout) = case.maps[3].1 else {
        panic!("a ring");
    };
    let found = records(&run(&case), layout);
    let want: Vec<u8> = [5u64, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(found, [want]);
    case.assembles();
}

#[test]
fn code_does_not_grow_with_a_size() {
    let lines = |size: u32| {
        let text = format!(
            "r1 = map[0][0] + 0\nr2 = {size}\ncall 16\nr1 = map[0][0] + 0\nr2 = {size}\nr3 = map[0][0] + 8\ncall 113\nr1 = map[1]\nr2 = map[0][0] + 0\nr3 = {size}\nr4 = 0\ncall 130\nr0 = 0\nexit"
        );
        let case = Case::new(&text, vec![array(1 << 24, 1), ring(1 << 28, 4)]);
        case.compile().body.lines().count()
    };
    assert_eq!(lines(10_000), lines(64_000));
    assert!(lines(10_000) < 200, "{}", lines(10_000));
}

/// A program of many blocks, each with something to look at: passes that look at all of the program
/// for each instruction would take minutes for it.
#[test]
fn a_switch_of_many_cases_is_compiled() {
    const CASES: usize = 800;
    let mut asm = String::from("r6 = *(u32 *)(r1 + 24)\nr7 = 0\n");
    for case in 0..CASES {
        asm += &format!(
            "if r6 != {case} goto n{case}\ncall 7\nr0 *= {}\nr7 = r0\ngoto out\nn{case}:\n",
            case * 77 + 1
        );
    }
    asm += "out:\nr1 = map[1][0] + 0\nr2 = *(u64 *)(r1 + 0)\nr2 += r7\n*(u64 *)(r1 + 0) = r2";
    let body = case(&asm).compile().body;
    // The addition at the end is one atomic operation still.
    assert_eq!(body.matches("red.relaxed.gpu.global.add.u64").count(), 1);
    assert_eq!(body.matches("%clock64").count(), CASES);
}
