//! Aggregates over a block: every thread of the block makes the call exactly once, or the program
//! is refused.

use warpbpf_abi::attach::{SITES, Scope, Site};
use warpbpf_abi::helpers::{HELPERS, Warp};
use warpbpf_verify::{ArgFact, InsnFact, Platform};

use crate::common::{accept, attempt, lookup, platform, refuse, refuse_on};

/// `r0` = an aggregate of what is in `r1`, whose result goes to the top of the stack.
const CALL: &str = "r2 = r10\nr2 += -8\ncall 546\n";

fn message(why: &str) -> String {
    format!("each thread of the block must call `bpf_gpu_block_sum` exactly once, {why}")
}

#[test]
fn it_is_for_the_ends_of_kernels_in_scope_thread() {
    let text = format!("r1 = 1\n{CALL}r0 = 0\nexit");
    for &site in SITES {
        for scope in [Scope::Thread, Scope::Warp, Scope::Block] {
            let platform = Platform::new(site).with_budget(4096).with_scope(scope);
            let place = match site.is_in_middle() {
                true => format!(
                    "and threads come to `gpu/{}` as often as they like",
                    site.word()
                ),
                false => format!("and in scope `{}` one thread runs for others", scope.word()),
            };
            match attempt(&text, &platform) {
                Ok(_) => assert!(!site.is_in_middle() && scope == Scope::Thread, "{place}"),
                Err(rejection) => {
                    assert_eq!(rejection.rule.to_string(), message(&place));
                    assert_eq!(rejection.rule.name(), "not-once");
                    let advice = match site.is_in_middle() {
                        true => "use it in a program at `gpu/entry` or `gpu/exit`",
                        false => "attach with scope `thread`",
                    };
                    assert_eq!(rejection.rule.help(), advice);
                }
            }
        }
    }
    refuse_on(
        &platform().with_memory(16),
        &text,
        3,
        &message("and this program runs by itself, not in a kernel that is launched"),
    );
}

#[test]
fn all_of_them_keep_the_rule() {
    let all = HELPERS.iter().filter(|h| h.warp == Warp::WholeBlock);
    let mut count = 0;
    for helper in all {
        count += 1;
        let call = format!("r1 = 1\nr2 = r10\nr2 += -8\ncall {}\n", helper.id);
        accept(&format!("{call}r0 = *(u64 *)(r10 - 8)\nexit"));
        let around =
            format!("r6 = *(u32 *)(r1 + 0)\nif r6 == 7 goto out\n{call}out:\nr0 = 0\nexit");
        let rejection = attempt(&around, &platform()).unwrap_err();
        assert_eq!(rejection.rule.name(), "not-once", "{}", helper.name);
    }
    assert_eq!(count, 5);
}

#[test]
fn every_path_goes_through_the_call() {
    // One of two ways, whoever takes it.
    for field in [0, 48] {
        let text = format!(
            "r6 = *(u32 *)(r1 + {field})\nif r6 == 7 goto out\nr1 = 1\n{CALL}out:\nr0 = 0\nexit"
        );
        let rejection = refuse(
            &text,
            5,
            &message("and the branch at instruction 1 leads past it"),
        );
        assert_eq!(
            rejection.rule.help(),
            "make the call on every path, with a value that changes nothing where it is not wanted (`wanted ? x : 0`)"
        );
    }
    // Each way has a call: two calls, and each is passed by.
    let text = format!(
        "r6 = *(u32 *)(r1 + 48)\nif r6 == 7 goto other\nr1 = 1\n{CALL}r0 = 0\nexit\nother:\nr1 = 2\n{CALL}r0 = 0\nexit"
    );
    refuse(
        &text,
        5,
        &message("and the branch at instruction 1 leads past it"),
    );
    // The proof knows that only one way can be taken.
    accept(&format!(
        "r6 = 3\nif r6 == 7 goto out\nr1 = 1\n{CALL}out:\nr0 = 0\nexit"
    ));
    // A value that changes nothing, in those that do not want it.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 48)\nr1 = 0\nif r6 == 7 goto +1\nr1 = r6\n{CALL}r0 = 0\nexit"
    ));
    // The program may end early behind the call.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 48)\nr1 = 1\n{CALL}if r0 == 0 goto out\nr0 = 0\nexit\nout:\nr0 = 1\nexit"
    ));
}

#[test]
fn a_thread_that_ends_does_not_come() {
    let ends = |text: &str| attempt(text, &platform().with_allow_modify(true));
    let before =
        format!("r6 = *(u32 *)(r1 + 48)\nif r6 != 7 goto +1\ncall 507\nr1 = 1\n{CALL}r0 = 0\nexit");
    assert_eq!(
        ends(&before).unwrap_err().rule.to_string(),
        message("and the branch at instruction 1 leads past it")
    );
    assert!(ends(&format!("r1 = 1\n{CALL}call 507")).is_ok());
}

#[test]
fn no_loop_goes_through_the_call() {
    let looped = "and it stands in a loop or in a callback";
    refuse(
        &format!("r6 = 0\nagain:\nr1 = 1\n{CALL}r6 += 1\nif r6 < 4 goto again\nr0 = 0\nexit"),
        4,
        &message(looped),
    );
    // Even where the first round is the last.
    refuse(
        &format!(
            "r6 = *(u32 *)(r1 + 48)\nagain:\nr1 = 1\n{CALL}may_goto out\nif r6 == 7 goto again\nout:\nr0 = 0\nexit"
        ),
        4,
        &message(looped),
    );
    refuse(
        &format!(
            "r1 = 3\nr2 = subprog[f]\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\nf:\nr1 = 1\n{CALL}r0 = 0\nexit"
        ),
        11,
        &message(looped),
    );
    // Before and behind loops, those that end by `may_goto` included.
    accept(&format!(
        "r6 = *(u32 *)(r1 + 48)\nr1 = 1\n{CALL}again:\nmay_goto out\nr6 -= 1\nif r6 > 7 goto again\nout:\nr1 = r6\n{CALL}r0 = 0\nexit"
    ));
    // A way out of a loop that goes around the call.
    refuse(
        &format!(
            "r6 = 0\nr7 = *(u32 *)(r1 + 48)\nagain:\nr6 += 1\nif r7 == r6 goto out\nif r6 < 4 goto again\nr1 = 1\n{CALL}out:\nr0 = 0\nexit"
        ),
        8,
        &message("and the branch at instruction 3 leads past it"),
    );
}

#[test]
fn each_call_of_a_function_counts_for_itself() {
    let function = format!("f:\n{CALL}exit");
    accept(&format!(
        "r1 = 1\ncall f\nr1 = 2\ncall f\nr0 = 0\nexit\n{function}"
    ));
    refuse(
        &format!(
            "r6 = *(u32 *)(r1 + 48)\nr1 = 1\ncall f\nif r6 == 7 goto out\nr1 = 2\ncall f\nout:\nr0 = 0\nexit\n{function}"
        ),
        10,
        &message("and the branch at instruction 3 leads past it"),
    );
}

#[test]
fn what_it_gives_is_a_truth_value_and_a_number_that_differ_between_lanes() {
    let verified = accept(&format!(
        "r6 = 0\nr1 = 1\n{CALL}if r0 < 2 goto +1\nr6 = *(u64 *)(r6 + 0)\nr7 = *(u64 *)(r10 - 8)\nr0 = 0\nexit"
    ));
    let facts = &verified.facts().instances[0];
    let InsnFact::Call(call) = facts.at(warpbpf_ebpf::Pc(4)) else {
        panic!("{:?}", facts.at(warpbpf_ebpf::Pc(4)));
    };
    assert!(matches!(call.args[1], ArgFact::Pointer(_)), "{call:?}");
    assert!(!verified.warp().at(0, warpbpf_ebpf::Pc(4)).uniform);
    assert!(verified.warp().at(0, warpbpf_ebpf::Pc(4)).together);
    assert!(!verified.warp().at(0, warpbpf_ebpf::Pc(7)).uniform);
    // So what needs the group is refused where only the last thread goes.
    let text = format!("r1 = 1\n{CALL}if r0 == 0 goto out\nr1 = 1\ncall 528\nout:\nr0 = 0\nexit");
    let rejection = attempt(&text, &Platform::new(Site::Exit)).unwrap_err();
    assert_eq!(rejection.rule.name(), "not-together");
}

#[test]
fn what_it_gives_goes_to_the_stack() {
    let message = |pointer: &str| {
        format!(
            "argument 2 of `bpf_gpu_block_sum` must be 8 bytes of the stack, because every thread of the block writes them; `r2` is {pointer}"
        )
    };
    let call = "r1 = 1\nr2 = r6\ncall 546\nr0 = 0\nexit";
    // A global variable, a value that was looked up, one that each thread has for itself, and a
    // record.
    let global = format!("r6 = map[4][0] + 8\n{call}");
    let value = format!("{}r6 = r0\n{call}", lookup(0));
    let own = format!("{}r6 = r0\n{call}", lookup(6));
    let record = "r1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto out\nr6 = r0\nr1 = 1\nr2 = r6\ncall 546\nr1 = r6\nr2 = 0\ncall 132\nout:\nr0 = 0\nexit";
    for (text, slot, pointer) in [
        (global, 4, "a pointer to offset 8 of a value of map `.bss`"),
        (value, 12, "a pointer to a value of map `counts`"),
        (own, 12, "a pointer to a value of map `mine`"),
        (
            record.to_owned(),
            9,
            "a pointer to a record of map `events`",
        ),
    ] {
        let rejection = refuse(&text, slot, &message(pointer));
        assert_eq!(rejection.rule.name(), "total-shared");
        assert_eq!(
            rejection.rule.help(),
            "let it write a local variable, and store that where the helper returned 1"
        );
    }
    // A caller's part of the stack is of the thread, too; and other helpers write where they are
    // told.
    accept(
        "r1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nexit\nf:\nr2 = r1\nr1 = 1\ncall 546\nexit",
    );
    accept(&format!(
        "{}r6 = r0\nr1 = r6\nr2 = r6\nr3 = r6\ncall 503\nr0 = 0\nexit",
        lookup(0)
    ));
}

#[test]
fn a_loop_that_is_ended_early_leads_past_it() {
    let advice = "make the call before the loop, or give the loop a constant bound";
    let rejection = refuse(
        &format!(
            "r6 = *(u32 *)(r1 + 48)\nagain:\nmay_goto out\nr6 -= 1\nif r6 > 7 goto again\nr1 = r6\n{CALL}out:\nr0 = 0\nexit"
        ),
        7,
        &message("and the loop that is ended early at instruction 1 leads past it"),
    );
    assert_eq!(rejection.rule.help(), advice);
}
