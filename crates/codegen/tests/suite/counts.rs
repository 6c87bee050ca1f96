//! Look-up, add, write back, as bpftrace compiles `count()`, `sum()` and `hist()`: exact with many
//! warps at once, and left alone where it may be something else.

use warpbpf_abi::layout::{HashLayout, MapLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_codegen::{Target, dump_ir};
use warpbpf_softgpu::Config;

use crate::common::{Case, array, node, table};

const SMS: u32 = 4;
const KEYS: u64 = 7;
const GRID: u32 = 24;
const BLOCK: u32 = 96;

/// Each thread counts one under its number modulo [`KEYS`]; `behind` stands between the look-up's
/// two ways and the update.
fn counts(behind: &str) -> String {
    format!(
        "r7 = *(u32 *)(r1 + 24)
r7 %= {KEYS}
*(u64 *)(r10 - 16) = r7
r6 = r7
r6 += 1
r1 = map[0]
r2 = r10
r2 += -16
call 1
{behind}
*(u64 *)(r10 - 8) = r6
r1 = map[0]
r2 = r10
r2 += -16
r3 = r10
r3 += -8
r4 = 0
call 2
r0 = 0
exit
"
    )
}

/// Added on the way on which something was found.
const ON_THE_WAY: &str = "if r0 == 0 goto +2
r1 = *(u64 *)(r0 + 0)
r6 += r1";
/// Added behind, to zero if nothing was found.
const BEHIND: &str = "r8 = 0
if r0 == 0 goto +1
r8 = *(u64 *)(r0 + 0)
r6 += r8";

/// As bpftrace 0.21 does, and programs in C: added in place, inserted where nothing was found.
fn in_place() -> String {
    let text = counts(
        "if r0 == 0 goto +4
r1 = *(u64 *)(r0 + 0)
r1 += r6
*(u64 *)(r0 + 0) = r1
goto out",
    );
    text.replacen("r0 = 0\nexit", "out: r0 = 0\nexit", 1)
}

fn config(seed: Option<u64>) -> Config {
    Config {
        sms: SMS,
        threads: 2,
        seed,
        memory: 1 << 26,
        step_limit: Some(200_000_000),
        ..Config::default()
    }
}

fn case(text: &str, kind: MapType) -> Case {
    Case::new(text, vec![table(kind, 8, 8, 64, SMS)])
}

/// What a key has, of all copies.
fn total(layout: &HashLayout, ran: &crate::common::Ran, key: u64) -> u64 {
    let node = node(layout, ran, 0, &key.to_le_bytes()).expect("every key is there");
    let first = node + layout.key_stride();
    let copies = 0..u64::from(layout.copies);
    copies
        .map(|copy| ran.u64(0, first + copy * layout.value_stride()))
        .sum()
}

#[test]
fn every_thread_counts() {
    for kind in [MapType::Hash, MapType::GpuHash, MapType::PercpuHash] {
        for (form, text) in [
            ("on the way", counts(ON_THE_WAY)),
            ("behind", counts(BEHIND)),
            ("in place", in_place()),
        ] {
            let case = case(&text, kind);
            let MapLayout::Hash(layout) = case.env.maps[0].layout else {
                panic!("{kind:?} has another layout");
            };
            for seed in [None, Some(1), Some(2), Some(3)] {
                let ran = case.run(config(seed), [GRID, 1, 1], [BLOCK, 1, 1]);
                for key in 0..KEYS {
                    let threads = (0..BLOCK).filter(|tid| u64::from(*tid) % KEYS == key);
                    let each = u64::from(GRID) * threads.count() as u64;
                    assert_eq!(
                        total(&layout, &ran, key),
                        each * (key + 1),
                        "{kind:?}, {form}, seed {seed:?}, key {key}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_thread_counts_in_dense_slots() {
    for ptx in [(7, 0), (8, 3)] {
        let case = case(&counts(ON_THE_WAY), MapType::Hash).dense(Target { ptx, sm: 90 });
        let MapLayout::Hash(layout) = case.env.maps[0].layout else {
            panic!("another layout");
        };
        assert!(layout.dense);
        for seed in [None, Some(1), Some(2)] {
            let ran = case.run(config(seed), [GRID, 1, 1], [BLOCK, 1, 1]);
            let mut sums: Vec<u64> = (0..layout.slots())
                .filter(|slot| ran.u64(0, layout.slot(*slot)) != 0)
                .map(|slot| ran.u64(0, layout.slot(slot) + HashLayout::DENSE_VALUE))
                .collect();
            sums.sort_unstable();
            let mut expected: Vec<u64> = (0..KEYS)
                .map(|key| {
                    let threads = (0..BLOCK).filter(|tid| u64::from(*tid) % KEYS == key);
                    u64::from(GRID) * threads.count() as u64 * (key + 1)
                })
                .collect();
            expected.sort_unstable();
            assert_eq!(sums, expected, "seed {seed:?}");
        }
    }
}

/// Additions to the map when both passes are done that make some.
fn is_made_of(text: &str) -> usize {
    let case = case(text, MapType::PercpuHash);
    let text = dump_ir(&case.program, &case.env, Some("opt_atomics"));
    let lines = text.lines().filter(|line| !line.starts_with(';'));
    lines.filter(|line| line.contains("atomic")).count()
}

/// The pass makes an addition of it.
fn is_made(text: &str, maps: Vec<(warpbpf_object::MapDef, MapLayout)>) -> bool {
    let case = Case::new(text, maps);
    let text = dump_ir(&case.program, &case.env, Some("opt_counts"));
    text.contains("atomic")
}

#[test]
fn what_may_be_something_else_is_left_alone() {
    let maps = || vec![table(MapType::PercpuHash, 8, 8, 64, SMS), array(8, 1)];
    let good = counts(ON_THE_WAY);
    assert!(is_made(&good, maps()));
    assert!(is_made(&counts(BEHIND), maps()));
    assert!(
        is_made_of(&in_place()) > 1,
        "an addition and one behind the insertion"
    );
    let other = in_place().replacen("r1 += r6", "r1 += 7", 1);
    assert_eq!(is_made_of(&other), 1, "something else is added in place");
    let change = |from: &str, to: &str| {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from}");
        changed
    };
    let update_key = "r1 = map[0]\nr2 = r10\nr2 += -16\nr3";
    for (why, text) in [
        ("the flags", change("r4 = 0", "r4 = 2")),
        ("a product", change("r6 += r1", "r6 *= r1")),
        ("a difference", change("r6 += r1", "r1 -= r6\nr6 = r1").replace("goto +2", "goto +3")),
        ("half of it", change("*(u64 *)(r0 + 0)", "*(u32 *)(r0 + 0)")),
        ("twice the old value", change("r6 += r1", "r6 += r1\nr6 += r1").replace("goto +2", "goto +3")),
        (
            "another key",
            change(update_key, "r1 = map[0]\nr7 += 1\n*(u64 *)(r10 - 16) = r7\nr2 = r10\nr2 += -16\nr3"),
        ),
        (
            "something else is added where nothing was found",
            change("if r0 == 0", "r9 = r6\nr6 = 100\nif r0 == 0").replace("r6 += r1", "r6 = r9\nr6 += r1").replace("goto +2", "goto +3"),
        ),
        (
            "the old value is used",
            change("r6 += r1", "r6 += r1\n*(u64 *)(r10 - 24) = r1").replace("goto +2", "goto +3").replace("r0 = 0\nexit", "r0 = 0\nr1 = r6\n*(u64 *)(r10 - 32) = r1\nr1 = map[1]\nr2 = r10\nr2 += -40\n*(u32 *)(r10 - 40) = 0\nr3 = r10\nr3 += -32\nr4 = 0\ncall 2\nr0 = 0\nexit"),
        ),
        (
            "a store between",
            change(
                "*(u64 *)(r10 - 8) = r6",
                "*(u64 *)(r10 - 8) = r6\n*(u32 *)(r10 - 40) = 0\nr1 = map[1]\nr2 = r10\nr2 += -40\nr3 = r10\nr3 += -16\nr4 = 0\ncall 2",
            ),
        ),
    ] {
        let case = Case::new(&text, maps());
        let ir = dump_ir(&case.program, &case.env, Some("opt_counts"));
        assert!(!ir.contains("atomic"), "{why}:\n{text}\n{ir}");
    }
    // A value that is more than the number.
    let wide = good.replacen(
        "*(u64 *)(r10 - 8) = r6",
        "*(u64 *)(r10 - 32) = r6\n*(u64 *)(r10 - 24) = r6",
        1,
    );
    let wide = wide.replacen("r3 += -8", "r3 += -32", 1);
    assert!(!is_made(
        &wide,
        vec![table(MapType::PercpuHash, 8, 16, 64, SMS)]
    ));
}
