//! Null tests of pointers that the proof cannot decide: a register that holds a pointer on one path
//! and null on the other. Whatever a pointer points to, as a number it is not 0.

use crate::common::{Case, Ran, array, hash};
use warpbpf_softgpu::Config;

const THREADS: u32 = 40;

fn run(case: &Case) -> Ran {
    let config = Config {
        sms: 2,
        threads: 1,
        memory: 1 << 24,
        step_limit: Some(10_000_000),
        ..Config::default()
    };
    case.run(config, [1, 1, 1], [THREADS, 1, 1])
}

/// Threads with an odd index have in `r8` what `pointer` makes of `r8`, the context, and the others
/// null. Word 0 of the map counts who finds null, word 1 who does not.
fn merged(pointer: &str) -> Case {
    let asm = format!(
        "r6 = *(u32 *)(r1 + 24)
        r6 &= 1
        r8 = r1
        {pointer}
        if r6 != 0 goto merge
        r8 = 0
        merge:
        r7 = map[0][0] + 0
        r1 = 1
        if r8 == 0 goto null
        lock *(u64 *)(r7 + 8) += r1
        goto out
        null:
        lock *(u64 *)(r7 + 0) += r1
        out:
        r0 = 0
        exit"
    );
    Case::new(&asm, vec![array(16, 1), array(8, 1)])
}

fn check(pointer: &str) {
    let case = merged(pointer);
    let ran = run(&case);
    let found = [ran.u64(0, 0), ran.u64(0, 8)];
    assert_eq!(found, [u64::from(THREADS) / 2; 2], "{pointer}");
}

#[test]
fn the_context() {
    merged("").assembles();
    check("");
    check("r8 += 8");
}

#[test]
fn stack_addresses() {
    merged("r8 = r10").assembles();
    check("r8 = r10");
    // The frame's last byte, what is stored below it, what nobody ever touches, and outside of any
    // frame.
    for off in [1, 8, 16, 24, 32, 512, 520, 1 << 20] {
        check(&format!(
            "*(u64 *)(r10 - 8) = 1
            r8 = r10
            r8 += -{off}"
        ));
    }
    check("r8 = r10\nr8 += 8");
}

#[test]
fn maps_and_their_values() {
    check("r8 = map[1]");
    check("r8 = map[1][0] + 0");
}

/// The stack stays in memory where its offset varies; then `q` is null or points to its first word.
#[test]
fn a_stack_in_memory_is_used_behind_its_null_test() {
    let asm = "
        r6 = *(u32 *)(r1 + 24)
        r6 &= 1
        *(u64 *)(r10 - 16) = 7
        *(u64 *)(r10 - 8) = 9
        r2 = r6
        r2 <<= 3
        r3 = r10
        r3 += r2
        r3 += -16
        *(u8 *)(r3 + 0) = 3
        r8 = 0
        if r6 == 0 goto merge
        r8 = r10
        r8 += -16
        merge:
        r7 = map[0][0] + 0
        r1 = 1000
        if r8 == 0 goto add
        r1 = *(u64 *)(r8 + 0)
        r2 = *(u64 *)(r8 + 8)
        *(u64 *)(r8 + 0) = r2
        r3 = *(u64 *)(r10 - 16)
        r1 += r3
        add:
        lock *(u64 *)(r7 + 0) += r1
        r0 = 0
        exit";
    let case = Case::new(asm, vec![array(8, 1)]);
    case.assembles();
    // Odd threads: 7 at the first word, 3 at the second, which is then copied.
    let expected = u64::from(THREADS) / 2 * (1000 + 7 + 3);
    assert_eq!(run(&case).u64(0, 0), expected);
}

/// Calls back for each entry of the map; a callback adds 1 to its value if what it has of the key
/// is not null, else 1000.
fn keys(read: &str, map: (warpbpf_object::MapDef, warpbpf_abi::layout::MapLayout)) -> Case {
    let asm = format!(
        "r6 = *(u32 *)(r1 + 24)
        r6 &= 1
        *(u64 *)(r10 - 8) = r6
        r1 = map[0]
        r2 = subprog[callback]
        r3 = r10
        r3 += -8
        r4 = 0
        call 164
        r0 = 0
        exit
        callback:
        r4 = *(u64 *)(r4 + 0)
        r8 = 0
        if r4 == 0 goto merge
        r8 = r2
        merge:
        r1 = 1000
        if r8 == 0 goto add
        r1 = 1
        {read}
        add:
        lock *(u64 *)(r3 + 0) += r1
        r0 = 0
        exit"
    );
    Case::new(&asm, vec![map])
}

#[test]
fn keys_of_an_array() {
    keys("r1 = *(u32 *)(r8 + 0)", array(8, 0x102)).assembles();
    for (read, own) in [
        ("", 1),
        ("r1 = *(u32 *)(r8 + 0)\nr1 += 1", 0x102),
        ("r1 = *(u16 *)(r8 + 0)\nr1 += 1", 0x102),
        ("r1 = *(u8 *)(r8 + 1)\nr1 += 1", 2),
        ("r8 += 1\nr1 = *(u8 *)(r8 + 0)\nr1 += 1", 2),
        ("r8 += 1\nr1 = *(u8 *)(r8 - 1)\nr1 += 1", 2),
    ] {
        let case = keys(read, array(8, 0x102));
        let ran = run(&case);
        let half = u64::from(THREADS) / 2;
        assert_eq!(ran.u64(0, 0), half * 1001, "index 0, {read}");
        // The last byte of the last index is 1.
        assert_eq!(ran.u64(0, 0x101 * 8), half * (1000 + own), "{read}");
    }
}

#[test]
fn keys_of_a_hash() {
    // Nothing is in it: that is enough to see that the code is right for `ptxas`.
    keys("", hash(8, 8, 4)).assembles();
}
