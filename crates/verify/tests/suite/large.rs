//! Programs made to take too much room or time: each limit, and that what is below it is judged as
//! ever.

use std::fmt::Write;

use crate::common::{attempt, platform, refuse, refuse_on};

fn repeated(text: &mut String, times: usize, line: impl Fn(usize) -> String) {
    for i in 0..times {
        let _ = writeln!(text, "{}", line(i));
    }
}

/// All 512 bytes of the stack, each stored by itself.
fn fill_stack(text: &mut String) {
    repeated(text, 512, |i| {
        format!("*(u8 *)(r10 - {}) = {}", i + 1, i % 100)
    });
}

#[test]
fn dead_calls_count_as_inlined() {
    let program = |calls: usize| {
        let mut text = String::from("r0 = 0\nexit\n");
        repeated(&mut text, calls, |_| "call f".to_owned());
        text += "exit\nf:\n";
        repeated(&mut text, 2000, |_| "r0 = 1".to_owned());
        text + "exit"
    };
    let verified = attempt(&program(31), &platform()).unwrap_or_else(|r| panic!("{}", r.render()));
    let facts = verified.facts();
    assert_eq!((facts.instances.len(), facts.cost), (32, 2));
    // 2003 instructions and 31 times 2001 fit into 65536, not 32 times.
    refuse(
        &program(2000),
        33,
        "inlining all calls gives more than 65536 instructions",
    );
}

#[test]
fn large_states_do_not_wait_without_limit() {
    let program = |branches: usize| {
        let mut text = String::from("r6 = *(u32 *)(r1 + 64)\n");
        fill_stack(&mut text);
        repeated(&mut text, branches, |i| format!("if r6 == {i} goto out"));
        text + "out:\nr0 = 0\nexit"
    };
    // 11 registers and 512 values each: 2,004 of them are less than 2^20, 2,005 are more.
    let wide = platform().with_budget(1 << 20);
    let verified = attempt(&program(2004), &wide).unwrap_or_else(|r| panic!("{}", r.render()));
    assert_eq!(verified.facts().cost, 1 + 512 + 2004 + 2);
    refuse_on(
        &wide,
        &program(30_000),
        513 + 2005,
        "the proof needs more than 1000000 steps",
    );
}

#[test]
fn a_chain_of_full_stacks_is_refused_where_it_gets_too_deep() {
    // Reading `r9` is never reached: the limit holds during the proof, not only after it.
    let rejection = refuse(
        "*(u64 *)(r10 - 256) = 1\nr0 = 0\ncall f\nexit\nf:\n*(u64 *)(r10 - 264) = 1\nr0 = r9\nexit",
        2,
        "this chain of calls uses 520 bytes of stack; at most 512",
    );
    assert_eq!(
        rejection.help(),
        "use smaller buffers, or a per-thread map for them"
    );
    // The caller's own stack grows under a call that has a pointer to it.
    refuse(
        "*(u64 *)(r10 - 8) = 1\nr1 = r10\ncall f\nexit\nf:\n*(u64 *)(r10 - 256) = 1\n*(u64 *)(r1 - 264) = 1\nr0 = r9\nexit",
        2,
        "this chain of calls uses 520 bytes of stack; at most 512",
    );
}

#[test]
fn loops_in_a_row_are_judged_one_by_one() {
    let mut text = String::from("r0 = 0\n");
    repeated(&mut text, 10_000, |i| {
        format!("h{i}:\nif r0 != 0 goto h{i}")
    });
    let wide = platform().with_budget(1 << 20);
    let verified = attempt(&(text + "exit"), &wide).unwrap_or_else(|r| panic!("{}", r.render()));
    assert_eq!(verified.facts().cost, 10_002);
}

#[test]
fn rounds_of_a_small_program_do_not_cost_their_square() {
    // Loops that share instructions and are left by numbers that nobody knows: a proof of a million
    // steps, each of which looked at all rounds before it.
    let text = "r0 = 0\nr6 = 0\nr7 = 0\nr8 = r1\n*(u64 *)(r10 - 16) = 0\nfirst:\nr0 = *(u32 *)(r8 + 48)\nr6 &= 3\nr7 += r0\nif r6 < 100000 goto middle\nsecond:\nif r7 < 10 goto first\nr6 += 2\nif r7 s> r6 goto second\nmay_goto second\nmiddle:\nmay_goto last\nr6 = *(u64 *)(r10 - 16)\nlast:\nr6 = *(u64 *)(r10 - 16)\nif r0 == 0 goto second\nr0 = 0\nexit";
    let refused = attempt(text, &platform().with_budget(1 << 20)).expect_err("no bound");
    assert_eq!(refused.rule.name(), "too-complex");
}
