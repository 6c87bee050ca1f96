//! What a run says when something is wrong, and what maps do on every engine.

use std::collections::BTreeMap;

use warpbpf_codegen::Target;
use warpbpf_conformance::build::{BuildError, Built, Effort, build};
use warpbpf_conformance::device::{Bench, DriverDevice, RunError, SoftDevice};
use warpbpf_conformance::test::{Input, MapSpec, Output, Test};
use warpbpf_conformance::world::{WorldError, interpret};
use warpbpf_ebpf::assemble;

const TARGET: Target = Target {
    ptx: (7, 8),
    sm: 90,
};

fn test(asm: &str, memory: u32, maps: &[MapSpec]) -> Test {
    Test {
        code: assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}")),
        memory,
        maps: maps.to_vec(),
    }
}

fn input(test: &Test, threads: usize) -> Input {
    Input {
        threads: vec![vec![0; test.memory as usize]; threads],
        maps: vec![BTreeMap::new(); test.maps.len()],
    }
}

fn built(test: &Test) -> Built {
    build(test, TARGET, Effort::SUITE).unwrap_or_else(|error| panic!("{error}"))
}

/// What both engines say of one thread.
fn agreed(test: &Test) -> Output {
    let input = input(test, 1);
    let built = built(test);
    let expected = interpret(test, &input, built.rounds).unwrap_or_else(|error| panic!("{error}"));
    let mut bench = Bench::new(SoftDevice::new(None));
    let ran = bench.run_all(&[(&built, &input)], TARGET);
    let mut ran = ran.unwrap_or_else(|error| panic!("{error}"));
    let ran = ran.remove(0).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.difference(&expected, "soft GPU", "interpreter"), None);
    ran
}

/// `r0` is the result of a call of helper `helper` with key 1, value 5 and `flags`, after the same
/// keys were made in `before` calls.
fn update(map: MapSpec, keys: &[i32], flags: i32) -> i64 {
    let mut asm = String::new();
    for (n, key) in keys.iter().enumerate() {
        let flags = if n + 1 == keys.len() { flags } else { 0 };
        asm.push_str(&format!(
            "*(u64 *)(r10 - 8) = {key}\n*(u64 *)(r10 - 16) = 5\nr1 = map[0]\nr2 = r10\nr2 += -8\nr3 = r10\n\
             r3 += -16\nr4 = {flags}\ncall 2\n"
        ));
    }
    asm.push_str("exit\n");
    agreed(&test(&asm, 8, &[map])).threads[0].0 as i64
}

#[test]
fn updates_answer_as_linux_does() {
    let array = MapSpec::Array {
        value_size: 8,
        max_entries: 2,
    };
    let hash = MapSpec::Hash {
        key_size: 8,
        value_size: 8,
        max_entries: 2,
    };
    assert_eq!(update(array, &[1], 0), 0);
    assert_eq!(update(array, &[1], 1), -17);
    assert_eq!(update(array, &[1], 2), 0);
    assert_eq!(update(array, &[2], 0), -7);
    assert_eq!(update(array, &[1], 3), -22);
    assert_eq!(update(hash, &[1], 0), 0);
    assert_eq!(update(hash, &[1], 2), -2);
    assert_eq!(update(hash, &[1, 1], 1), -17);
    assert_eq!(update(hash, &[1, 1], 2), 0);
    assert_eq!(update(hash, &[1, 2, 3], 0), -7);
    assert_eq!(update(hash, &[1], 3), -22);
}

#[test]
fn what_maps_hold_is_compared() {
    let hash = MapSpec::Hash {
        key_size: 4,
        value_size: 8,
        max_entries: 4,
    };
    let asm = "*(u64 *)(r10 - 8) = 3\n*(u64 *)(r10 - 16) = 77\nr1 = map[0]\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\n\
               r4 = 0\ncall 2\nr0 = 0\nexit\n";
    let output = agreed(&test(asm, 0, &[hash]));
    let expected = BTreeMap::from([(vec![3, 0, 0, 0], vec![77, 0, 0, 0, 0, 0, 0, 0])]);
    assert_eq!(output.maps, [expected]);
    let mut other = output.clone();
    other.maps[0].clear();
    assert_eq!(
        output.difference(&other, "one", "other").as_deref(),
        Some("map 0: key 03000000 has 4d00000000000000 on the one, no value on the other")
    );
}

#[test]
fn threads_have_their_own_memory() {
    let test = test(
        "r0 = *(u64 *)(r1 + 0)\nr0 += 1\n*(u64 *)(r1 + 8) = r0\nexit\n",
        16,
        &[],
    );
    let mut input = input(&test, 128);
    for (thread, memory) in input.threads.iter_mut().enumerate() {
        memory[0] = thread as u8;
    }
    let built = built(&test);
    let mut bench = Bench::new(SoftDevice::new(Some(1)));
    let mut ran = bench
        .run_all(&[(&built, &input)], TARGET)
        .unwrap_or_else(|error| panic!("{error}"));
    let output = ran.remove(0).unwrap_or_else(|error| panic!("{error}"));
    for (thread, (r0, memory)) in output.threads.iter().enumerate() {
        assert_eq!(*r0, thread as u64 + 1);
        assert_eq!(memory[8..], (thread as u64 + 1).to_le_bytes());
    }
    assert_eq!(interpret(&test, &input, built.rounds), Ok(output));
}

#[test]
fn a_store_outside_the_memory_is_noticed() {
    let test = test("*(u64 *)(r1 + 8) = 1\nr0 = 0\nexit\n", 16, &[]);
    let mut built = built(&test);
    // As if the program had been given half of what it was verified for.
    built.memory = 8;
    let input = Input {
        threads: vec![vec![0; 8]; 2],
        maps: Vec::new(),
    };
    let mut bench = Bench::new(SoftDevice::new(None));
    let ran = bench.run_all(&[(&built, &input)], TARGET);
    assert_eq!(ran, Ok(vec![Err(RunError::Outside { thread: 0 })]));
}

#[test]
fn a_kernel_that_does_not_load_costs_only_itself() {
    let good = test("r0 = 7\nexit\n", 0, &[]);
    let fine = built(&good);
    let mut bad = fine.clone();
    bad.fragment.body = "{ } }".to_owned();
    let input = input(&good, 1);
    let mut bench = Bench::new(SoftDevice::new(None));
    let ran = bench.run_all(&[(&fine, &input), (&bad, &input), (&fine, &input)], TARGET);
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    let seven = |ran: &Result<Output, RunError>| ran.as_ref().is_ok_and(|o| o.threads[0].0 == 7);
    assert!(seven(&ran[0]) && seven(&ran[2]), "{ran:?}");
    assert!(matches!(ran[1], Err(RunError::Load { .. })), "{ran:?}");
}

#[test]
fn refusals_and_traps_say_why() {
    let unsafe_one = test("r0 = *(u64 *)(r1 + 16)\nexit\n", 16, &[]);
    let Err(BuildError::Refused { rule, reason }) = build(&unsafe_one, TARGET, Effort::SUITE)
    else {
        panic!("it reads beyond its memory")
    };
    assert_eq!(rule, "out-of-bounds");
    assert!(reason.contains("instruction 0"), "{reason}");
    let error = interpret(&unsafe_one, &input(&unsafe_one, 2), 0).expect_err("a trap");
    assert!(matches!(error, WorldError::Trap { thread: 0, .. }));
    assert_eq!(
        error.to_string(),
        "thread 0: pc0: load of 8 bytes at 0x10000010, where no memory is"
    );
    let threads = input(&test("exit\n", 0, &[]), 65);
    let fine = built(&test("r0 = 0\nexit\n", 0, &[]));
    let mut bench = Bench::new(SoftDevice::new(None));
    let ran = bench.run_all(&[(&fine, &threads)], TARGET);
    assert_eq!(
        ran.map(|mut ran| ran.remove(0).map_err(|e| e.to_string())),
        Ok(Err(
            "launching: 65 threads are no whole blocks of 64".to_owned()
        ))
    );
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    let Err(error) = DriverDevice::open("libno-such-driver.so.1") else {
        panic!("there is no such driver")
    };
    let text = error.to_string();
    assert!(
        text.starts_with(
            "opening the driver: cannot open the CUDA driver `libno-such-driver.so.1`: "
        ),
        "{text}"
    );
}
