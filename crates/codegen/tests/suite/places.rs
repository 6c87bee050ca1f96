//! Accesses that are not aligned, narrow or atomic, in each kind of memory that programs reach.

use crate::common::{self, Case, Device, Ran, array, hash, per_thread, ring, rodata};
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_softgpu::Config;

fn config() -> Config {
    Config {
        sms: 1,
        threads: 1,
        memory: 1 << 26,
        step_limit: Some(10_000_000),
        ..Config::default()
    }
}

fn run(case: &Case) -> Ran {
    case.assembles();
    case.run(config(), [1, 1, 1], [1, 1, 1])
}

fn layout_of(case: &Case) -> RingLayout {
    match case.env.maps[0].layout {
        MapLayout::Ring(layout) => layout,
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_at_any_offset() {
    // Stores that overlap each other, loads in between, atomics; at known and at varying offsets.
    let case = Case::new(
        "r6 = *(u32 *)(r1 + 12)
        r1 = map[0]
        r2 = 48
        r3 = 0
        call 131
        if r0 == 0 goto out
        r1 = 0x0807060504030201 ll
        *(u64 *)(r0 + 0) = r1
        *(u64 *)(r0 + 8) = r1
        *(u64 *)(r0 + 16) = r1
        *(u64 *)(r0 + 24) = 0
        *(u64 *)(r0 + 32) = 0
        *(u64 *)(r0 + 40) = 0
        *(u32 *)(r0 + 3) = -1
        *(u16 *)(r0 + 7) = 0x5aa5
        r2 = *(u64 *)(r0 + 5)
        *(u64 *)(r0 + 25) = r2
        r3 = r6
        r3 &= 1
        r3 += r0
        *(u32 *)(r3 + 35) = 0x11223344
        r2 = *(s16 *)(r3 + 36)
        *(u64 *)(r0 + 40) = r2
        r2 = 7
        lock *(u32 *)(r0 + 16) += r2
        r2 = 9
        r2 = atomic_fetch_xor((u64 *)(r0 + 8), r2)
        r4 = r0
        r0 = 5
        r0 = cmpxchg_64(r4 + 16, r0, r2)
        r1 = r4
        r2 = 0
        call 132
        out:
        r0 = 0
        exit",
        vec![ring(1 << 16, 1)],
    );
    let ran = run(&case);
    let layout = layout_of(&case);
    let at = (layout.data_at() + RingLayout::HEADER) as usize;
    let mut expected = vec![0u8; 48];
    for word in 0..3 {
        for i in 0..8 {
            expected[word * 8 + i] = i as u8 + 1;
        }
    }
    expected[3..7].fill(0xff);
    expected[7..9].copy_from_slice(&[0xa5, 0x5a]);
    let word: Vec<u8> = expected[5..13].to_vec();
    expected[25..33].copy_from_slice(&word);
    // `blockDim.x` is 1.
    expected[36..40].copy_from_slice(&0x1122_3344u32.to_le_bytes());
    let read = i16::from_le_bytes([expected[37], expected[38]]);
    expected[40..48].copy_from_slice(&i64::from(read).to_le_bytes());
    expected[16] += 7;
    expected[8] ^= 9;
    assert_eq!(ran.areas[0][at..at + 48], expected);
}

#[test]
fn keys_and_values_at_any_address() {
    // A key of 7 bytes at r10-21, a value of 11 bytes at an address that varies.
    let case = Case::new(
        "r6 = *(u32 *)(r1 + 12)
        r1 = 0x1716151413121110 ll
        *(u64 *)(r10 - 24) = r1
        r1 += 7
        *(u64 *)(r10 - 16) = r1
        *(u64 *)(r10 - 8) = r1
        r1 = map[0]
        r2 = r10
        r2 += -21
        r6 &= 1
        r3 = r10
        r3 += -16
        r3 += r6
        r4 = 0
        call 2
        r7 = r0
        r1 = map[0]
        r2 = r10
        r2 += -21
        call 1
        if r0 == 0 goto out
        r1 = *(u64 *)(r0 + 3)
        *(u32 *)(r0 + 5) = r1
        r1 = load_acquire((u16 *)(r0 + 2))
        store_release((u8 *)(r0 + 10), r1)
        out:
        r0 = 0
        exit",
        vec![hash(7, 11, 16)],
    );
    let ran = run(&case);
    let MapLayout::Hash(layout) = case.maps[0].1 else {
        panic!("a hash")
    };
    let mut stack = Vec::new();
    for add in [0u64, 7, 7] {
        stack.extend((0x1716_1514_1312_1110u64 + add).to_le_bytes());
    }
    let key = &stack[3..10];
    let mut value = stack[9..20].to_vec();
    let word: Vec<u8> = value[3..7].to_vec();
    value[5..9].copy_from_slice(&word);
    value[10] = value[2];
    let at = common::node(&layout, &ran, 0, key).expect("the key");
    let at = (at + layout.key_stride()) as usize;
    assert_eq!(ran.areas[0][at..at + 11], value);
}

#[test]
fn parts_of_the_context() {
    let mut asm = String::from("r6 = r1\nr9 = map[0][0] + 0\n");
    let reads = [
        ("u8", 24),
        ("u8", 25),
        ("s8", 24),
        ("u16", 24),
        ("s16", 26),
        ("s32", 24),
        ("u8", 63),
        ("u16", 66),
        ("u32", 64),
        ("s16", 70),
        ("u8", 72),
        ("s8", 13),
    ];
    for (i, (width, offset)) in reads.iter().enumerate() {
        asm.push_str(&format!(
            "r1 = *({width} *)(r6 + {offset})\n*(u64 *)(r9 + {}) = r1\n",
            i * 8
        ));
    }
    asm.push_str("r0 = 0\nexit");
    let mut case = Case::new(&asm, vec![array(96, 1)]);
    case.env.kernel_id = 0x8899_aabb_ccdd_eeff;
    case.assembles();
    let device = Device::new(&case, config());
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    let words: Vec<u64> = (0..reads.len() as u64).map(|i| ran.u64(0, i * 8)).collect();
    let sign = |v: i64| v as u64;
    assert_eq!(
        words,
        [
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0xccdd,
            0xccdd_eeff,
            sign(-0x7767),
            5,
            0
        ]
    );
    // The thread index itself, in a map of values per thread.
    let asm = "r6 = r1
        *(u32 *)(r10 - 4) = 0
        r1 = map[0]
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto out
        r1 = *(u8 *)(r6 + 24)
        *(u8 *)(r0 + 0) = r1
        r1 = *(s8 *)(r6 + 24)
        *(u32 *)(r0 + 4) = r1
        r1 = *(u8 *)(r6 + 25)
        *(u8 *)(r0 + 1) = r1
        r1 = *(u16 *)(r6 + 60)
        *(u16 *)(r0 + 2) = r1
        out:
        r0 = 0
        exit";
    let case = Case::new(asm, vec![per_thread(8, 1, 512)]);
    let MapLayout::PerThread(layout) = case.env.maps[0].layout else {
        panic!("per thread")
    };
    let device = Device::new(&case, config());
    device.launch([1, 1, 1], [320, 1, 1]);
    let ran = device.maps();
    for thread in 0..320u64 {
        let word = ran.u64(0, layout.value(0, thread));
        let signed = u64::from(thread as u8 as i8 as u32) << 32;
        assert_eq!(word, thread | 0xffff << 16 | signed, "thread {thread}");
    }
}

/// What a callback has in `r2` can be passed on as a key, or copied.
#[test]
fn keys_of_arrays_are_numbers() {
    let case = Case::new(
        "r1 = map[1]
        r2 = subprog[callback]
        r3 = 0
        r4 = 0
        call 164
        r0 = 0
        exit
        callback:
        r6 = r2
        r7 = *(u64 *)(r3 + 0)
        r1 = map[0]
        r2 = r6
        r3 = 4
        r4 = 0
        call 130
        r7 &= 3
        r7 += 1
        r1 = map[0]
        r2 = r6
        r3 = r7
        r4 = 0
        call 130
        r0 = 0
        exit",
        vec![ring(1 << 16, 1), array(8, 3)],
    );
    case.assembles();
    let device = Device::new(&case, config());
    for (key, size) in [(0, 0u64), (1, 2), (2, 3)] {
        device.write(2, key * 8, &size.to_le_bytes());
    }
    device.launch([1, 1, 1], [1, 1, 1]);
    let ran = device.maps();
    let layout = layout_of(&case);
    let mut at = layout.data_at();
    for (key, size) in [(0u32, 4), (0, 1), (1, 4), (1, 3), (2, 4), (2, 4)] {
        assert_eq!(ran.u32(0, at), size as u32);
        let payload = (at + RingLayout::HEADER) as usize;
        assert_eq!(
            ran.areas[0][payload..payload + size],
            key.to_le_bytes()[..size]
        );
        at += RingLayout::record_bytes(size as u64);
    }
}

/// Loads of what never changes are numbers, those of which the place varies are loads as ever, and
/// both give the same.
#[test]
fn constants_are_not_loaded() {
    let bytes = [
        0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x11, 0x12, 0,
    ];
    let program = |add: &str| {
        format!(
            "r8 = *(u32 *)(r1 + 0)
            r8 &= 1
            *(u32 *)(r10 - 4) = 0
            r1 = map[1]
            r2 = r10
            r2 += -4
            call 1
            if r0 == 0 goto out
            r1 = map[0][0] + 0
            {add}
            r2 = *(u64 *)(r1 + 0)
            *(u64 *)(r0 + 0) = r2
            r2 = *(u32 *)(r1 + 4)
            *(u64 *)(r0 + 8) = r2
            r2 = *(s16 *)(r1 + 6)
            *(u64 *)(r0 + 16) = r2
            r2 = *(s8 *)(r1 + 9)
            *(u64 *)(r0 + 24) = r2
            out:
            r0 = 0
            exit"
        )
    };
    for (add, loads) in [("", false), ("r1 += r8", true)] {
        let case = Case::new(&program(add), vec![rodata(&bytes), array(32, 1)]);
        let text = case.module("sm_90", (8, 0));
        assert_eq!(text.contains("ld.relaxed.gpu.global"), loads, "{text}");
        case.assembles();
        let device = Device::new(&case, config());
        // What is in memory does not matter to numbers.
        if !loads {
            device.write(1, 0, &[0; 11]);
        }
        device.launch([1, 1, 1], [1, 1, 1]);
        let ran = device.maps();
        let values = [
            0x8887_8685_8483_8281,
            0x8887_8685,
            0xffff_ffff_ffff_8887,
            0x12,
        ];
        for (at, value) in values.into_iter().enumerate() {
            assert_eq!(ran.u64(1, 8 * at as u64), value, "{add} {at}");
        }
    }
}
