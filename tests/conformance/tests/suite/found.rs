//! What the fuzzer has found, in the smallest form, where it takes more than a case of
//! `suites/found`.

use std::collections::BTreeMap;

use warpbpf_codegen::Target;
use warpbpf_conformance::build::{Effort, build};
use warpbpf_conformance::device::{Bench, SoftDevice};
use warpbpf_conformance::test::{Input, MapSpec, Test};
use warpbpf_conformance::world::interpret;
use warpbpf_ebpf::assemble;

const TARGET: Target = Target {
    ptx: (7, 8),
    sm: 90,
};

/// Both engines agree on `threads` threads, with and without warps that split; `r0` of the first.
fn agree(asm: &str, maps: &[MapSpec], threads: usize) -> u64 {
    let test = Test {
        code: assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}")),
        memory: 16,
        maps: maps.to_vec(),
    };
    let input = Input {
        threads: (0..threads).map(|n| vec![n as u8; 16]).collect(),
        maps: vec![BTreeMap::new(); maps.len()],
    };
    let built = build(&test, TARGET, Effort::SUITE).unwrap_or_else(|error| panic!("{error}"));
    let expected = interpret(&test, &input, built.rounds).unwrap_or_else(|error| panic!("{error}"));
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut bench = Bench::new(SoftDevice::new(seed));
        let ran = bench.run_all(&[(&built, &input)], TARGET);
        let ran = ran.unwrap_or_else(|error| panic!("{error}")).remove(0);
        let ran = ran.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(expected.difference(&ran, "interpreter", "soft GPU"), None);
    }
    expected.threads[0].0
}

/// The code generator asked for facts about a callback that no path reaches.
#[test]
fn a_callback_that_is_never_called() {
    let callbacks = [
        "*(u64 *)(r10 - 8) = 1\nr0 = 0\nexit\n",
        "goto next\nnext:\nr0 = 0\nexit\n",
    ];
    for callback in callbacks {
        let asm = format!(
            "r1 = 0\nr2 = subprog[callback]\nr3 = r10\nr4 = 0\ncall 181\nexit\ncallback:\n{callback}"
        );
        assert_eq!(agree(&asm, &[], 1), 0);
    }
}

/// Adding a zero that only the optimiser sees became a load and a store, which took back what
/// others had added.
#[test]
fn adding_nothing_loses_nothing() {
    let value = MapSpec::Array {
        value_size: 8,
        max_entries: 1,
    };
    let lookup =
        "*(u64 *)(r10 - 8) = 0\nr1 = map[0]\nr2 = r10\nr2 += -8\ncall 1\nif r0 == 0 goto out\n";
    for (op, identity) in [("+=", 0), ("-=", 0), ("|=", 0), ("^=", 0), ("&=", -1)] {
        let asm = format!(
            "r6 = r1\n{lookup}r7 = r0\nr3 = 1\nlock *(u64 *)(r7 + 0) += r3\nr8 = *(u8 *)(r6 + 0)\nif r8 & 1 goto odd\n\
             lock *(u64 *)(r7 + 0) += r3\nodd:\nr1 = *(u64 *)(r7 + 0)\nr2 = {identity}\nr1 {op} r2\n\
             *(u64 *)(r7 + 0) = r1\nout:\nr0 = 0\nexit\n"
        );
        agree(&asm, &[value], 128);
    }
}
