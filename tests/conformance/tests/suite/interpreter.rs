//! Programs on the interpreter of the device: generated ones, and what it refuses.

use std::collections::BTreeMap;

use warpbpf_codegen::Target;
use warpbpf_conformance::build::{BuildError, Built, Effort, Way, build_for};
use warpbpf_conformance::device::{Bench, SoftDevice};
use warpbpf_conformance::fuzz::inputs_of;
use warpbpf_conformance::test::{Input, MapSpec, Test};
use warpbpf_conformance::world::interpret;
use warpbpf_ebpf::assemble;

const TARGET: Target = Target {
    ptx: (7, 8),
    sm: 90,
};

fn build(test: &Test) -> Result<Built, BuildError> {
    build_for(test, TARGET, Effort::FUZZ, Way::Interpreted)
}

/// What differs between the reference and the device, if something does.
fn difference(test: &Test, built: &Built, input: &Input, seed: Option<u64>) -> Option<String> {
    let expected = interpret(test, input, built.rounds).unwrap_or_else(|error| panic!("{error}"));
    let mut bench = Bench::new(SoftDevice::new(seed));
    let ran = bench.run_all(&[(built, input)], TARGET);
    let ran = ran.unwrap_or_else(|error| panic!("{error}")).remove(0);
    match ran {
        Ok(ran) => expected.difference(&ran, "reference", "device's interpreter"),
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn generated_programs_do_what_they_do_elsewhere() {
    let (mut ran, mut refused) = (0, BTreeMap::<&str, u32>::new());
    let programs = if crate::is_deep() { 400 } else { 100 };
    for index in 0..programs {
        let (test, inputs) = inputs_of(0x1e7e, index);
        let built = match build(&test) {
            Ok(built) => built,
            Err(BuildError::NotInterpreted(why)) => {
                let why = why.to_string();
                // What generated programs call and it does not have; damaged ones call any helper.
                let known = ["bpf_for_each_map_elem`", "calls `bpf_"];
                let kind = known.into_iter().find(|kind| why.contains(kind));
                let kind = kind.unwrap_or_else(|| panic!("index {index}: {why}"));
                *refused.entry(kind).or_default() += 1;
                continue;
            }
            Err(BuildError::Refused { .. }) => continue,
            Err(error) => panic!("index {index}: {error}"),
        };
        for input in &inputs {
            for seed in [None, Some(index)] {
                let found = difference(&test, &built, input, seed);
                assert_eq!(found, None, "index {index}\n{}", test.describe(input, 0));
            }
        }
        ran += 1;
    }
    assert!(ran >= programs / 4, "{ran} programs ran, {refused:?}");
}

fn reason(asm: &str, maps: &[MapSpec]) -> String {
    let test = Test {
        code: assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}")),
        memory: 0,
        maps: maps.to_vec(),
    };
    match build(&test) {
        Err(BuildError::NotInterpreted(why)) => why.to_string(),
        other => panic!("{:?}", other.map(|_| "it is interpreted")),
    }
}

#[test]
fn what_it_cannot_do_is_named() {
    let why = reason("call 7\nr0 = 0\nexit\n", &[]);
    assert!(
        why.starts_with("instruction `pc0` calls `bpf_get_prandom_u32`, which programs in a slot cannot; they can call `bpf_map_lookup_elem`, "),
        "{why}"
    );
    let large = MapSpec::Hash {
        key_size: 72,
        value_size: 8,
        max_entries: 4,
    };
    let mut asm = String::new();
    for at in (8..=72).step_by(8) {
        asm.push_str(&format!("*(u64 *)(r10 - {at}) = 0\n"));
    }
    asm.push_str("r1 = map[0]\nr2 = r10\nr2 += -72\ncall 1\nr0 = 0\nexit\n");
    let why = reason(&asm, &[large]);
    assert!(
        why.starts_with("instruction `pc12` calls `bpf_map_lookup_elem` on map `0`, which programs in a slot can only for arrays and for hashes"),
        "{why}"
    );
}
