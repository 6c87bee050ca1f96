//! Code behind `bpf_gpu_exit`: nothing reaches it, and the compiler does not stumble over it.

use crate::common::{Case, array};
use warpbpf_softgpu::Config;

/// Every thread of 50 runs `program`, which has the thread's index in `r6` and the map's value in
/// `r7`; `functions` follow it. Gives the value's two words.
fn run(program: &str, functions: &str) -> [u64; 2] {
    let asm = format!(
        "r6 = *(u32 *)(r1 + 24)
        r7 = map[0][0] + 0
        r8 = 1
        {program}
        r0 = 0
        exit
        {functions}"
    );
    let case = Case::new(&asm, vec![array(16, 1)]);
    let config = Config {
        sms: 2,
        threads: 1,
        memory: 1 << 24,
        step_limit: Some(10_000_000),
        ..Config::default()
    };
    let ran = case.run(config, [1, 1, 1], [50, 1, 1]);
    [ran.u64(0, 0), ran.u64(0, 8)]
}

const FIRST: &str = "lock *(u64 *)(r7 + 0) += r8";
const SECOND: &str = "lock *(u64 *)(r7 + 8) += r8";

#[test]
fn a_dead_jump_follows() {
    // As clang writes `if (x) exit(); else …`: the goto is dead, its target is not.
    let found = run(
        &format!(
            "if r6 > 9 goto count
            call 507
            goto after
            count:
            {FIRST}
            after:
            {SECOND}"
        ),
        "",
    );
    assert_eq!(found, [40, 40]);
}

#[test]
fn a_jump_to_dead_code_alone_follows() {
    let found = run(
        &format!(
            "{FIRST}
            call 507
            goto dead
            {SECOND}
            dead:
            {SECOND}"
        ),
        "",
    );
    assert_eq!(found, [50, 0]);
}

#[test]
fn a_dead_condition_and_a_dead_call_follow() {
    let found = run(
        &format!(
            "if r6 > 9 goto after
            call 507
            if r6 == 3 goto after
            r1 = 1
            call never
            {SECOND}
            after:
            {FIRST}"
        ),
        "never:
        r0 = 1
        exit",
    );
    assert_eq!(found, [40, 0]);
}

#[test]
fn live_code_follows() {
    // The next instruction belongs to the other path.
    let found = run(
        &format!(
            "{FIRST}
            if r6 > 9 goto after
            call 507
            after:
            {SECOND}"
        ),
        "",
    );
    assert_eq!(found, [50, 40]);
}

const NEVER: &str = "never:
    call 507
    r0 = 7
    exit";

#[test]
fn a_function_that_never_returns() {
    let found = run(
        &format!(
            "{FIRST}
            r1 = 1
            call never
            r1 = map[0]
            {SECOND}"
        ),
        NEVER,
    );
    assert_eq!(found, [50, 0]);
}

#[test]
fn a_function_that_never_returns_on_one_path() {
    let found = run(
        &format!(
            "{FIRST}
            if r6 > 9 goto after
            r1 = 1
            call never
            after:
            {SECOND}"
        ),
        NEVER,
    );
    assert_eq!(found, [50, 40]);
}

#[test]
fn functions_that_never_return_call_each_other() {
    let found = run(
        &format!(
            "{FIRST}
            call outer
            {SECOND}"
        ),
        &format!(
            "outer:
            r1 = 1
            call never
            r0 = 3
            exit
            {NEVER}"
        ),
    );
    assert_eq!(found, [50, 0]);
}

#[test]
fn a_callback_that_never_returns() {
    // Thread 0 has no rounds.
    let found = run(
        &format!(
            "{FIRST}
            r1 = r6
            r2 = subprog[never]
            r3 = 0
            r4 = 0
            call 181
            {SECOND}"
        ),
        NEVER,
    );
    assert_eq!(found, [50, 1]);
}
