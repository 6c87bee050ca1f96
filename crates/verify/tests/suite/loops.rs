//! Loops that something else counts: callbacks, iterators over numbers, and `may_goto`.

use std::collections::BTreeMap;

use crate::common::{accept, attempt, code, lookup, maps, platform, refuse, refuse_on};
use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::Pc;
use warpbpf_object::MapDef;
use warpbpf_verify::{ArgFact, HelperUse, InsnFact, Place, Region, helpers_used, verify};

/// `bpf_loop(count, f, ctx, 0)`.
fn call_loop(count: u32, context: &str) -> String {
    format!("r1 = {count}\nr2 = subprog[f]\n{context}\nr4 = 0\ncall 181\n")
}

const AT_16: &str = "r3 = r10\nr3 += -16";

fn stack(frame: u32, offset: i64) -> Place {
    Place {
        region: Region::Stack { frame },
        offset: Some(offset),
        align: 8,
    }
}

#[test]
fn a_callback_is_an_instance_of_its_own() {
    let verified = accept(&format!(
        "*(u64 *)(r10 - 16) = 0\n{}r0 = *(u64 *)(r10 - 16)\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0\nexit",
        call_loop(4, AT_16)
    ));
    let facts = verified.facts();
    assert_eq!(facts.instances.len(), 2);
    assert_eq!(facts.instances[0].calls, BTreeMap::from([(Pc(6), 1)]));
    let InsnFact::Call(call) = facts.instances[0].at(Pc(6)) else {
        panic!("a call")
    };
    assert_eq!(
        (call.helper, call.args),
        (
            HelperId::Loop,
            [
                ArgFact::Scalar {
                    value: Some(4),
                    max: 4
                },
                ArgFact::Callback,
                ArgFact::Pointer(stack(0, -16)),
                ArgFact::Scalar {
                    value: Some(0),
                    max: 0
                },
                ArgFact::Unused,
            ]
        )
    );
    let callback = &facts.instances[1];
    assert_eq!((callback.start, callback.frame), (Pc(9), 1));
    assert_eq!(callback.at(Pc(9)), &InsnFact::Access(stack(0, -16)));
    // Seven before the call, the helper's own 10, four rounds of 6 around 5, two after.
    assert_eq!(facts.cost, 6 + 10 + 4 * (6 + 5) + 2);
    assert_eq!(facts.may_goto_rounds, 0);
}

#[test]
fn the_cost_of_a_long_loop_is_multiplied() {
    let text = format!(
        "{}r0 = 0\nexit\nf:\nr0 = 0\nexit",
        call_loop(1000, "r3 = 0")
    );
    let platform = platform().with_budget(100_000);
    let facts = attempt(&text, &platform)
        .map(|verified| verified.facts().cost)
        .unwrap_or_default();
    // 4 and the helper's 10; a round has 8; 2 after.
    assert_eq!(facts, 4 + 10 + 1000 * 8 + 2);
    refuse(
        &text,
        0,
        "one invocation may execute 8016 instructions on this path; the budget is 4096",
    );
}

#[test]
fn what_a_callback_does_to_the_stack_is_known_after_the_call() {
    // It may have been called or not: the index is 3 or 40.
    let index = |body: &str| {
        format!(
            "*(u64 *)(r10 - 16) = 3\n{}{}r6 = *(u64 *)(r10 - 16)\nr0 += r6\nr0 = *(u8 *)(r0 + 0)\nexit\nf:\n{body}\nr0 = 0\nexit",
            call_loop(100, AT_16).replace("exit", ""),
            lookup(8)
        )
    };
    let wide = platform().with_budget(1 << 20);
    assert!(attempt(&index("*(u64 *)(r2 + 0) = 40"), &wide).is_ok());
    refuse_on(
        &wide,
        &index("*(u64 *)(r2 + 0) = 64"),
        19,
        "read of 1 byte at offset 64 of a value of map `big`, which has 64 bytes",
    );
    // It counts up, with a check.
    let counted =
        "r3 = *(u64 *)(r2 + 0)\nif r3 >= 63 goto stop\nr3 += 1\n*(u64 *)(r2 + 0) = r3\nstop:";
    assert!(attempt(&index(counted), &wide).is_ok());
    // Without a check it can get anywhere.
    let rejection = attempt(
        &index("r3 = *(u64 *)(r2 + 0)\nr3 += 1\n*(u64 *)(r2 + 0) = r3"),
        &wide,
    )
    .err()
    .map(|r| r.rule.name());
    assert_eq!(rejection, Some("out-of-bounds"));
}

#[test]
fn the_index_of_a_loop_is_below_its_number() {
    let array = |count: u32| {
        format!(
            "{}*(u64 *)(r10 - 16) = r0\n{}r0 = 0\nexit\nf:\nr3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u8 *)(r3 + 0) = 1\nr0 = 0\nexit",
            lookup(8),
            call_loop(count, AT_16)
        )
    };
    accept(&array(64));
    accept(&array(20));
    refuse(
        &array(65),
        21,
        "write of 1 byte at offset 0..=64 of a value of map `big`, which has 64 bytes",
    );
}

#[test]
fn a_callback_returns_0_or_1() {
    let returning =
        |value: &str| format!("{}r0 = 0\nexit\nf:\n{value}\nexit", call_loop(3, "r3 = 0"));
    accept(&returning("r0 = 1"));
    accept(&returning("r0 = r1\nr0 &= 1"));
    let r = refuse(
        &returning("r0 = 2"),
        9,
        "the callback returns the number 2; it must return 0 to go on or 1 to stop",
    );
    assert_eq!(r.help(), "return 0 or 1 on every path of the callback");
    refuse(
        &returning("r0 = r10"),
        9,
        "the callback returns a pointer to r10+0 of the stack; it must return 0 to go on or 1 to stop",
    );
    refuse(
        &returning("r1 = 0"),
        9,
        "`r0` is read but holds nothing: nothing was written to it",
    );
}

#[test]
fn a_callback_that_stops_is_called_once() {
    let verified = accept(&format!(
        "{}if r0 > 1 goto never\nr0 = 0\nexit\nnever:\nr0 = r9\nexit\nf:\nr0 = 1\nexit",
        call_loop(30, "r3 = 0")
    ));
    assert_eq!(verified.facts().cost, 4 + 10 + 6 + 2 + 3);
}

#[test]
fn records_of_a_callback_are_given_back_in_it() {
    let body = |end: &str| {
        format!(
            "{}r0 = 0\nexit\nf:\nr1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto out\n*(u64 *)(r0 + 0) = 1\n{end}out:\nr0 = 0\nexit",
            call_loop(2, "r3 = 0")
        )
    };
    accept(&body("r1 = r0\nr2 = 0\ncall 132\n"));
    refuse(
        &body(""),
        16,
        "the record reserved at instruction 12 in map `events` is neither submitted nor discarded before the callback returns",
    );
}

#[test]
fn elements_come_with_key_and_value() {
    let each = |map: u32, body: &str| {
        format!(
            "r1 = map[{map}]\nr2 = subprog[f]\nr3 = 0\nr4 = 0\ncall 164\nr0 = 0\nexit\nf:\n{body}\nr0 = 0\nexit"
        )
    };
    let verified = accept(&each(
        0,
        "r5 = *(u32 *)(r2 + 0)\nr0 = *(u64 *)(r3 + 0)\nr0 += r5\n*(u64 *)(r3 + 0) = r0",
    ));
    let callback = &verified.facts().instances[1];
    assert_eq!(
        callback.insns[0],
        InsnFact::Access(Place {
            region: Region::MapKey { map: 0 },
            offset: Some(0),
            align: 8,
        })
    );
    assert_eq!(
        callback.insns[1],
        InsnFact::Access(Place {
            region: Region::MapValue { map: 0 },
            offset: Some(0),
            align: 8,
        })
    );
    refuse(
        &each(0, "*(u32 *)(r2 + 0) = 1"),
        9,
        "write of 4 bytes at a key of map `counts`: a callback may only read it",
    );
    refuse(
        &each(0, "r0 = *(u64 *)(r2 + 0)"),
        9,
        "read of 8 bytes at offset 0 of a key of map `counts`, which has 4 bytes",
    );
    refuse(
        &each(1, ""),
        6,
        "`bpf_for_each_map_elem` does not take map `events`, a map of type ringbuf",
    );
}

#[test]
fn a_walk_over_a_hash_counts_all_its_slots() {
    let hash = |max_entries: u32| MapDef {
        max_entries,
        ..maps()[2].clone()
    };
    let text = |stop: u32| {
        format!(
            "r1 = map[0]\nr2 = subprog[f]\nr3 = 0\nr4 = 0\ncall 164\nr0 = 0\nexit\nf:\nr0 = {stop}\nexit"
        )
    };
    let prove = |max_entries: u32, stop: u32, budget: u64| {
        let platform = platform().with_budget(budget);
        verify(code(&text(stop)), &[hash(max_entries)], &platform)
    };
    let cost = |max_entries: u32, stop: u32| {
        let verified =
            prove(max_entries, stop, 1 << 30).unwrap_or_else(|r| panic!("{}", r.render()));
        verified.facts().cost
    };
    // 4 instructions before the call and 2 after it, the helper, 19 for each slot; in each round 6,
    // 11 for the node, and the callback's 2.
    let expected = |slots: u64, rounds: u64| 4 + 2 + 20 + slots * 19 + rounds * (6 + 11 + 2);
    assert_eq!(cost(1, 0), expected(256, 1));
    assert_eq!(cost(16, 0), expected(256, 16));
    assert_eq!(cost(64, 0), expected(256, 64));
    assert_eq!(cost(65, 0), expected(256, 65));
    assert_eq!(cost(129, 0), expected(512, 129));
    assert_eq!(cost(1025, 0), expected(4096, 1025));
    // It stops at the first element, which may be in the last slot.
    assert_eq!(cost(16, 1), expected(256, 1));
    assert_eq!(cost(1_000_000, 1), expected(1 << 21, 1));

    let needed = expected(256, 1);
    let maps = [hash(1)];
    let verified = prove(1, 0, needed).unwrap_or_else(|r| panic!("{}", r.render()));
    assert_eq!(
        helpers_used(verified.facts(), &maps),
        [HelperUse {
            helper: HelperId::ForEachMapElem,
            map: Some(0),
            places: 1,
            counted: 20 + 256 * 19,
            at_most: 20 + 256 * 19,
        }]
    );
    let refused = |max_entries: u32, budget: u64| match prove(max_entries, 0, budget) {
        Ok(_) => panic!("accepted"),
        Err(rejection) => (rejection.rule.name(), rejection.slot, rejection.to_string()),
    };
    let help = "raise the budget (`--budget N`), or make the map smaller: it has at least 2 slots for each of `max_entries`, and a hash at least 256";
    assert_eq!(
        refused(1_000_000, 4096),
        (
            "budget",
            6,
            format!(
                "`program` is refused: instruction 6: `bpf_for_each_map_elem` looks at 2097152 slots of map `table`, with which one invocation may execute 39845912 instructions on this path; the budget is 4096; {help}"
            )
        )
    );
    // The walk fits, what follows does not.
    assert_eq!(refused(1, needed - 1).0, "loop-budget");
}

#[test]
fn functions_are_called_back_and_nothing_else() {
    refuse(
        "r1 = 1\nr2 = 5\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit",
        4,
        "argument 2 of `bpf_loop` must be a function of this program; `r2` is the number 5",
    );
    refuse(
        &format!(
            "{}r1 = subprog[f]\n*(u64 *)(r0 + 0) = r1\nr0 = 0\nexit\nf:\nr0 = 0\nexit",
            lookup(0)
        ),
        11,
        "the pointer in `r1` (the function at instruction 14) would be stored to offset 0 of a value of map `counts`",
    );
    refuse(
        "r1 = subprog[f]\nr1 += 8\nr0 = 0\nexit\nf:\nr0 = 0\nexit",
        2,
        "`+=` on `r1`, which is the function at instruction 5",
    );
    refuse(
        "r1 = subprog[f]\nr0 = *(u64 *)(r1 + 0)\nexit\nf:\nr0 = 0\nexit",
        2,
        "read of 8 bytes at offset 0 of the function at instruction 4, which has 0 bytes",
    );
    refuse(
        &format!("{}r0 = 0\nexit\nf:\nr0 = 0\nexit", call_loop(1, "r3 = 7")),
        5,
        "argument 3 of `bpf_loop` must be a pointer into the stack, or 0; `r3` is the number 7",
    );
}

/// An iterator from `start` to `end` at r10-8; `body` runs with the number's address in `r0`.
fn iterate(start: &str, end: &str, body: &str) -> String {
    format!(
        "{start}\n{end}\nr1 = r10\nr1 += -8\ncall kfunc[1]\nagain:\nr1 = r10\nr1 += -8\ncall kfunc[2]\nif r0 == 0 goto done\n{body}\ngoto again\ndone:\nr1 = r10\nr1 += -8\ncall kfunc[3]\nr0 = 0\nexit"
    )
}

#[test]
fn an_iterator_gives_its_numbers() {
    let verified = accept(&iterate(
        "r2 = 0",
        "r3 = 10",
        "r6 = *(u32 *)(r0 + 0)\nif r6 > 9 goto never\ngoto on\nnever:\nr0 = r9\non:",
    ));
    let main = &verified.facts().instances[0];
    assert_eq!(main.at(Pc(4)), &InsnFact::Access(stack(0, -8)));
    assert_eq!(main.at(Pc(7)), &InsnFact::Access(stack(0, -8)));
    assert_eq!(main.stack_bytes, 8);
    // Ten rounds of 8 for `next` and 6 more.
    let around = 4 + 8 + (2 + 8 + 1) + 2 + 8 + 2;
    assert_eq!(verified.facts().cost, around + 10 * (2 + 8 + 1 + 3 + 1));
}

#[test]
fn a_long_iterator_repeats_and_its_numbers_are_in_range() {
    let wide = platform().with_budget(1 << 20);
    let text = |end: u32| {
        let start = format!("{}r8 = r0\nr2 = 0", lookup(8));
        iterate(
            &start,
            &format!("r3 = {end}"),
            "r6 = *(u32 *)(r0 + 0)\nr7 = r8\nr7 += r6\n*(u8 *)(r7 + 0) = 1",
        )
    };
    assert!(attempt(&text(64), &wide).is_ok());
    refuse_on(
        &wide,
        &text(65),
        22,
        "write of 1 byte at offset 0..=64 of a value of map `big`, which has 64 bytes",
    );
    // The bound of a loop whose end is only bounded is the largest end.
    let cost = |end: &str| {
        let text = format!(
            "r9 = *(u32 *)(r1 + 48)\n{}",
            iterate("r2 = 0", end, "r6 = *(u32 *)(r0 + 0)")
        );
        attempt(&text, &wide).map(|verified| verified.facts().cost)
    };
    let bounded = cost("r3 = r9\nr3 <<= 4").unwrap_or_default();
    assert_eq!(bounded, 37 + 496 * 13);
}

#[test]
fn iterators_are_made_once_and_destroyed() {
    let make = "r2 = 0\nr3 = 3\nr1 = r10\nr1 += -8\ncall kfunc[1]\n";
    refuse(
        &format!("{make}r0 = 0\nexit"),
        6,
        "the iterator made at instruction 4 is not destroyed on this path",
    );
    refuse(
        &format!("{make}{make}r0 = 0\nexit"),
        9,
        "making an iterator at r10-8 of the stack: these bytes are part of the iterator made at instruction 4",
    );
    refuse(
        &format!("{make}*(u32 *)(r10 - 4) = 1\nr0 = 0\nexit"),
        5,
        "write of 4 bytes at r10-4 of the stack: these bytes are part of the iterator made at instruction 4",
    );
    refuse(
        &format!("{make}r0 = *(u64 *)(r10 - 8)\nexit"),
        5,
        "read of 8 bytes at r10-8 of the stack: these bytes are part of the iterator made at instruction 4",
    );
    refuse(
        "r1 = r10\nr1 += -8\ncall kfunc[2]\nr0 = 0\nexit",
        2,
        "argument 1 of `bpf_iter_num_next` must be an iterator that `bpf_iter_num_new` made; `r1` is a pointer to r10-8 of the stack",
    );
    refuse(
        "r2 = 0\nr3 = 3\nr1 = r10\nr1 += -4\ncall kfunc[1]\nr0 = 0\nexit",
        4,
        "argument 1 of `bpf_iter_num_new` must be 8 bytes of the stack; `r1` is a pointer to r10-4 of the stack",
    );
    let end = "r1 = r10\nr1 += -8\ncall kfunc[3]\n";
    refuse(
        &format!("{make}{end}{end}r0 = 0\nexit"),
        10,
        "argument 1 of `bpf_iter_num_destroy` must be an iterator that `bpf_iter_num_new` made; `r1` is a pointer to r10-8 of the stack",
    );
    refuse(
        &format!("{make}{end}r0 = *(u64 *)(r10 - 8)\nexit"),
        8,
        "read of 8 bytes at r10-8 of the stack: the byte at r10-8 was never written",
    );
    let next = "r1 = r10\nr1 += -8\ncall kfunc[2]\n";
    refuse(
        &format!("{make}{next}if r0 == 0 goto out\n*(u32 *)(r0 + 0) = 1\nout:\n{end}r0 = 0\nexit"),
        9,
        "write of 4 bytes at the number that an iterator gave: it may only be read",
    );
    refuse(
        &format!("{make}{next}r6 = r0\n{end}r0 = *(u32 *)(r6 + 0)\nexit"),
        12,
        "`r6` is read but holds nothing: instruction 11 destroyed its iterator",
    );
}

#[test]
fn making_iterators_without_end_is_refused() {
    let text = "again:\nr2 = 0\nr3 = 100\nr1 = r10\nr1 += -8\ncall kfunc[1]\nr1 = r10\nr1 += -8\ncall kfunc[2]\nr1 = r10\nr1 += -8\ncall kfunc[3]\ngoto again";
    let rejection = attempt(text, &platform().with_budget(1 << 40));
    assert_eq!(
        rejection.err().map(|r| r.rule.to_string()).as_deref(),
        Some("the loop may not end: nothing changes between two rounds of it")
    );
}

#[test]
fn may_goto_ends_a_loop() {
    let verified = accept("r0 = 0\nagain:\nmay_goto out\nr0 += 1\ngoto again\nout:\nexit");
    let facts = verified.facts();
    let main = &facts.instances[0];
    assert_eq!(
        main.at(Pc(1)),
        &InsnFact::Branch {
            taken: true,
            falls: true,
            null_check: false
        }
    );
    // A round has 5: as many as the budget of 4096 allows.
    assert_eq!(
        (facts.may_goto_rounds, facts.cost),
        (818, 1 + 818 * 5 + 3 + 1)
    );
    // With room, as many as in Linux.
    let wide = platform().with_budget(1 << 40);
    let text = "r0 = 0\nagain:\nmay_goto out\nr0 += 1\ngoto again\nout:\nexit";
    let rounds = attempt(text, &wide).map(|v| v.facts().may_goto_rounds);
    assert_eq!(rounds.ok(), Some(8 << 20));
}

#[test]
fn a_loop_with_a_bound_of_its_own_needs_no_rounds() {
    let verified =
        accept("r6 = 0\nagain:\nmay_goto out\nr6 += 1\nif r6 < 20 goto again\nout:\nr0 = 0\nexit");
    assert_eq!(
        (verified.facts().may_goto_rounds, verified.facts().cost),
        (8 << 20, 1 + 20 * 5 + 2)
    );
    // A loop around it starts no new counter: both end by the same.
    let nested = accept(
        "r6 = 0\nouter:\nmay_goto out\ninner:\nmay_goto outer\nr6 += 1\ngoto inner\nout:\nr0 = 0\nexit",
    );
    assert!(nested.facts().cost <= 4096 && nested.facts().may_goto_rounds > 100);
}

#[test]
fn each_call_has_rounds_of_its_own() {
    let verified = accept(
        "r6 = 0\nagain:\nr6 += 1\ncall f\nif r6 < 3 goto again\nr0 = 0\nexit\nf:\nr0 = 0\nround:\nmay_goto out\nr0 += 1\ngoto round\nout:\nexit",
    );
    let facts = verified.facts();
    assert!(facts.cost <= 4096, "{}", facts.cost);
    assert!(
        (200..=272).contains(&facts.may_goto_rounds),
        "{}",
        facts.may_goto_rounds
    );
}

#[test]
fn indices_under_may_goto_are_checked() {
    let text = |check: &str| {
        format!(
            "{}r6 = 0\nagain:\nmay_goto out\n{check}r1 = r0\nr1 += r6\n*(u8 *)(r1 + 0) = 1\nr6 += 1\ngoto again\nout:\nr0 = 0\nexit",
            lookup(8)
        )
    };
    accept(&text("if r6 > 63 goto out\n"));
    let r = attempt(&text(""), &platform()).err().map(|r| r.rule.name());
    assert_eq!(r, Some("out-of-bounds"));
}

/// Loops in loops that `may_goto` counts, with numbers that nothing bounds: they repeat once copies
/// that drift apart are no longer told to be copies.
#[test]
fn nested_loops_of_may_goto_repeat() {
    let nested = |end: &str| {
        format!(
            "r7 = 0\nr6 = 0\ngoto test\nouter:\nr7 += 1\ntest:\nmay_goto out\ncall 7\nr0 &= 1\nr8 = 0\nif r0 == 0 goto +1\nr8 = r7\nr8 += r6\nr9 = r8\ngoto count\ninner:\nr6 = r9\ncall 7\nr0 &= 1\nif r0 != 0 goto outer\nr9 += -1\ncount:\nr6 = r8\nmay_goto outer\ngoto inner\nout:\n{end}r0 = 0\nexit"
        )
    };
    // The number is added, stored, or decides.
    for end in [
        "r1 = map[4][0] + 0\nlock *(u64 *)(r1 + 0) += r6\n",
        "r1 = map[4][0] + 0\n*(u64 *)(r1 + 0) = r6\n",
        "if r6 > 5 goto +1\nr6 = 5\n",
    ] {
        for budget in [4096, 1_000_000] {
            let verified = attempt(&nested(end), &platform().with_budget(budget));
            let verified = verified.unwrap_or_else(|r| panic!("{}", r.render()));
            let cost = verified.facts().cost;
            assert!(cost <= budget && cost > budget / 2, "{cost} of {budget}");
        }
    }
}
