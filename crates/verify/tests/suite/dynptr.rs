//! Dynptrs on the stack: what may be done with them, and that a record behind one is given back
//! exactly once.

use crate::common::{accept, attempt, platform};

/// Makes a dynptr of a record of `events` at `r10-16`.
const RESERVE: &str = "r1 = map[1]\nr2 = 16\nr3 = 0\nr4 = r10\nr4 += -16\ncall 198\n";
/// Gives it back.
const SUBMIT: &str = "r1 = r10\nr1 += -16\nr2 = 0\ncall 199\n";
/// Makes one of the 16 bytes of `.bss` at `r10-32`.
const LOCAL: &str = "r1 = map[4][0] + 0\nr2 = 16\nr3 = 0\nr4 = r10\nr4 += -32\ncall 197\n";
const END: &str = "r0 = 0\nexit\n";

fn refuse(text: &str, message: &str) {
    match attempt(text, &platform()) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejection) => assert_eq!(rejection.rule.to_string(), message, "{text}"),
    }
}

/// The piece of 8 bytes from `offset` on of the dynptr at `r10+at`.
fn data(at: i32, offset: &str) -> String {
    format!("r1 = r10\nr1 += {at}\nr2 = {offset}\nr3 = 8\ncall 203\n")
}

#[test]
fn a_record_is_given_back_once() {
    accept(&format!("{RESERVE}{SUBMIT}{END}"));
    accept(&format!("{RESERVE}{}{END}", SUBMIT.replace("199", "200")));
    // Again in the same place.
    accept(&format!("{RESERVE}{SUBMIT}{RESERVE}{SUBMIT}{END}"));
    let given =
        "a dynptr that `bpf_ringbuf_reserve_dynptr` made; `r1` is a pointer to r10-16 of the stack";
    refuse(
        &format!("{RESERVE}{SUBMIT}{SUBMIT}{END}"),
        &format!("argument 1 of `bpf_ringbuf_submit_dynptr` must be {given}"),
    );
    refuse(
        &format!("{RESERVE}{SUBMIT}{}{END}", SUBMIT.replace("199", "200")),
        &format!("argument 1 of `bpf_ringbuf_discard_dynptr` must be {given}"),
    );
    let held =
        "the record reserved at instruction 6 in map `events` is neither submitted nor discarded";
    refuse(&format!("{RESERVE}{END}"), &format!("{held} on this path"));
    refuse(
        &format!("{RESERVE}if r0 == 0 goto +4\n{SUBMIT}{END}"),
        &format!("{held} on this path"),
    );
    // A second one in its place would hide it.
    refuse(
        &format!("{RESERVE}{RESERVE}{SUBMIT}{END}"),
        "argument 4 of `bpf_ringbuf_reserve_dynptr` must be 16 bytes of the stack, at a constant multiple of 8: write of 16 \
         bytes at r10-16 of the stack: these bytes are part of the dynptr made at instruction 6",
    );
}

#[test]
fn a_function_gives_back_what_is_on_its_stack_and_may_give_back_the_callers() {
    let calls = |before: &str, after: &str, function: &str| {
        format!("{before}r1 = r10\nr1 += -16\ncall take\n{after}{END}take:\n{function}{END}")
    };
    accept(&calls(RESERVE, "", "r2 = 0\ncall 199\n"));
    accept(&calls(
        "",
        SUBMIT,
        "r4 = r1\nr1 = map[1]\nr2 = 16\nr3 = 0\ncall 198\n",
    ));
    refuse(
        &calls("", "", RESERVE),
        "the record reserved at instruction 11 in map `events` is neither submitted nor discarded before the function \
         returns",
    );
    // One that holds nothing goes with its stack.
    accept(&calls("", "", LOCAL));
    refuse(
        &calls(
            "",
            "",
            &format!("r6 = r1\n{LOCAL}{}*(u64 *)(r6 + 0) = r0\n", data(-32, "0")),
        )
        .replacen(END, "r1 = *(u64 *)(r10 - 16)\nr0 = 0\nexit\n", 1),
        "read of 8 bytes at r10-16 of the stack: the byte at r10-16 was never written",
    );
}

#[test]
fn a_callback_gives_back_what_it_reserves() {
    let calls = |function: &str| {
        format!(
            "r1 = 3\nr2 = subprog[take]\nr3 = r10\nr3 += -16\nr4 = 0\ncall 181\nr0 = 0\nexit\ntake:\nr6 = r2\n{function}r0 = 0\nexit"
        )
    };
    accept(&calls(&format!("{RESERVE}{SUBMIT}")));
    refuse(
        &calls("r1 = map[1]\nr2 = 16\nr3 = 0\nr4 = r6\ncall 198\n"),
        "the record reserved at instruction 15 in map `events` is neither submitted nor discarded before the callback \
         returns",
    );
}

#[test]
fn its_bytes_are_its_own() {
    let part = "these bytes are part of the dynptr made at instruction 6";
    for (insn, access) in [
        ("r6 = *(u8 *)(r10 - 1)", "read of 1 byte at r10-1"),
        ("*(u8 *)(r10 - 9) = 1", "write of 1 byte at r10-9"),
        (
            "r1 = 1\nlock *(u64 *)(r10 - 16) += r1",
            "atomic operation of 8 bytes at r10-16",
        ),
    ] {
        refuse(
            &format!("{RESERVE}{insn}\n{SUBMIT}{END}"),
            &format!("{access} of the stack: {part}"),
        );
    }
    // What holds nothing may be written over, and is no dynptr then; and so it is not read.
    accept(&format!(
        "{LOCAL}*(u64 *)(r10 - 24) = 1\nr1 = *(u64 *)(r10 - 24)\n{END}"
    ));
    let local = "these bytes are part of the dynptr made at instruction 6";
    refuse(
        &format!("{LOCAL}r1 = *(u64 *)(r10 - 24)\n{END}"),
        &format!("read of 8 bytes at r10-24 of the stack: {local}"),
    );
    refuse(
        &format!("{LOCAL}*(u64 *)(r10 - 24) = 1\n{}{END}", data(-32, "0")),
        "argument 1 of `bpf_dynptr_data` must be a dynptr; `r1` is a pointer to r10-32 of the stack",
    );
    // Where it is not known which bytes are written, none of them may be.
    refuse(
        &format!("{LOCAL}call 7\nr0 &= 8\nr1 = r10\nr1 -= r0\n*(u8 *)(r1 - 17) = 1\n{END}"),
        &format!("write of 1 byte at r10 plus -25..=-17 of the stack: {local}"),
    );
    // An iterator wants the bytes for itself too.
    refuse(
        &format!("{RESERVE}r1 = r10\nr1 += -8\nr2 = 0\nr3 = 3\ncall kfunc[1]\n{END}"),
        &format!("write of 8 bytes at r10-8 of the stack: {part}"),
    );
    refuse(
        &format!("r1 = r10\nr1 += -8\nr2 = 0\nr3 = 3\ncall kfunc[1]\n{RESERVE}{END}"),
        "argument 4 of `bpf_ringbuf_reserve_dynptr` must be 16 bytes of the stack, at a constant multiple of 8: write of 16 \
         bytes at r10-16 of the stack: these bytes are part of the iterator made at instruction 4",
    );
}

/// Every way to write over a range of the stack, which has one that holds nothing and one with a
/// record, in both orders.
#[test]
fn a_write_over_several_loses_no_record() {
    // The reserved one at `r10-16`, the other at `r10-32`; and the other way round.
    let low = format!("{LOCAL}{RESERVE}");
    let high = format!("{RESERVE}{LOCAL}").replace("-16", "-48");
    let first = format!("{RESERVE}{LOCAL}");
    for (made, start) in [(low, -32), (first, -32), (high, -48)] {
        // The bytes from `start` on; `r6` says how many.
        let from = |write: &str| format!("{made}r1 = r10\nr1 += {start}\n{write}{END}");
        let middle = |write: &str| format!("{made}r1 = r10\nr1 += {}\n{write}{END}", start + 8);
        for text in [
            // `bpf_get_current_comm`, `bpf_probe_read` and `bpf_dynptr_read`, which fill memory.
            from("r2 = 32\ncall 16\n"),
            middle("r2 = 16\ncall 16\n"),
            from("r2 = 32\nr3 = 0\ncall 4\n"),
            from("r2 = 24\nr3 = 0\nr4 = 0\ncall 520\n"),
            // Places of 8 bytes.
            middle("r2 = r1\nr2 += 8\nr3 = r10\nr3 += -64\ncall 505\n"),
            // A dynptr in the middle of both.
            middle("r4 = r1\nr1 = map[4][0] + 0\nr2 = 16\nr3 = 0\ncall 197\n"),
            middle("r4 = r1\nr1 = map[1]\nr2 = 16\nr3 = 0\ncall 198\n"),
            // Stores, one over both of them, and one of a byte, at a place that is not known.
            middle("*(u64 *)(r1 + 4) = 0\n"),
            middle("r0 &= 8\nr1 += r0\n*(u8 *)(r1 + 0) = 0\n"),
            // A function and a callback that get the address.
            format!(
                "{made}r1 = r10\nr1 += {start}\ncall fill\n{END}fill:\nr2 = 32\ncall 16\n{END}"
            ),
            format!(
                "{made}r1 = 1\nr2 = subprog[fill]\nr3 = r10\nr3 += {start}\nr4 = 0\ncall 181\n{END}fill:\nr1 = r2\nr2 = 32\ncall 16\n{END}"
            ),
        ] {
            match attempt(&text, &platform()) {
                Ok(_) => panic!("accepted:\n{text}"),
                Err(r) => {
                    let message = r.rule.to_string();
                    assert!(
                        message.contains("these bytes are part of the dynptr made at instruction"),
                        "{message}\n{text}"
                    );
                }
            }
        }
    }
    // Beside it, and where nothing is written, it stays.
    accept(&format!(
        "{LOCAL}{RESERVE}r1 = r10\nr1 += -32\nr2 = 16\ncall 16\n{SUBMIT}{END}"
    ));
    accept(&format!(
        "{RESERVE}r1 = r10\nr1 += -8\nr2 = 0\nr3 = 0\ncall 4\n{SUBMIT}{END}"
    ));
}

#[test]
fn where_and_of_what_one_is_made() {
    let place = |change: &str| {
        let text = RESERVE.replace("r4 += -16\n", change);
        format!("{text}{END}")
    };
    let expected = "argument 4 of `bpf_ringbuf_reserve_dynptr` must be 16 bytes of the stack, at a constant multiple of 8";
    refuse(
        &place("r4 += -12\n"),
        &format!("{expected}; `r4` is a pointer to r10-12 of the stack"),
    );
    refuse(
        &place("r4 += -8\n"),
        &format!("{expected}; `r4` is a pointer to r10-8 of the stack"),
    );
    refuse(
        &place("r4 = 0\n"),
        &format!("{expected}; `r4` is the number 0"),
    );
    let of = |memory: &str| LOCAL.replace("r1 = map[4][0] + 0\n", memory) + END;
    refuse(
        &of("r1 = r10\nr1 += -64\n"),
        "argument 1 of `bpf_dynptr_from_mem` must be a value of a map; `r1` is a pointer to r10-64 of the stack",
    );
    refuse(
        &of("r1 = map[4][0] + 8\n"),
        "argument 1 of `bpf_dynptr_from_mem` must be 16 writable bytes of a map's value: write of 16 bytes at offset 8 of a \
         value of map `.bss`, which has 16 bytes",
    );
    refuse(
        &of("r1 = map[3][0] + 0\n"),
        "argument 1 of `bpf_dynptr_from_mem` must be 16 writable bytes of a map's value: write of 16 bytes at offset 0 of a \
         value of map `.rodata`: map `.rodata` is read-only data",
    );
    refuse(
        &format!("{LOCAL}r1 = r10\nr1 += -32\nr2 = 0\ncall 199\n{END}"),
        "argument 1 of `bpf_ringbuf_submit_dynptr` must be a dynptr that `bpf_ringbuf_reserve_dynptr` made; `r1` is a pointer \
         to r10-32 of the stack",
    );
}

#[test]
fn pieces_die_with_it() {
    let write = "if r0 == 0 goto +1\n*(u64 *)(r0 + 0) = 1\n";
    accept(&format!("{RESERVE}{}{write}{SUBMIT}{END}", data(-16, "0")));
    refuse(
        &format!(
            "{RESERVE}{}*(u64 *)(r0 + 0) = 1\n{SUBMIT}{END}",
            data(-16, "0")
        ),
        "`r0` may be null here: it is a pointer to a dynptr's record of map `events`, or null",
    );
    refuse(
        &format!(
            "{RESERVE}{}r6 = r0\nif r6 == 0 goto +4\n{SUBMIT}*(u64 *)(r6 + 0) = 1\n{END}",
            data(-16, "0")
        ),
        "`r6` is read but holds nothing: instruction 17 gave its record back",
    );
    refuse(
        &format!(
            "{LOCAL}{}r6 = r0\n*(u64 *)(r10 - 32) = 1\nif r6 == 0 goto +1\nr0 = *(u64 *)(r6 + 0)\n{END}",
            data(-32, "0")
        ),
        "`r6` is read but holds nothing: the dynptr that it came from is no more",
    );
    refuse(
        &format!(
            "{RESERVE}{}if r0 == 0 goto +1\n*(u8 *)(r0 + 8) = 1\n{SUBMIT}{END}",
            data(-16, "0")
        ),
        "write of 1 byte at offset 8 of a dynptr's record of map `events`, which has 8 bytes",
    );
}

#[test]
fn atomics_need_an_aligned_piece() {
    let add = "if r0 == 0 goto +2\nr1 = 1\nlock *(u64 *)(r0 + 0) += r1\n";
    accept(&format!("{RESERVE}{}{add}{SUBMIT}{END}", data(-16, "8")));
    accept(&format!("{LOCAL}{}{add}{END}", data(-32, "8")));
    refuse(
        &format!("{RESERVE}{}{add}{SUBMIT}{END}", data(-16, "4")),
        "atomic operation of 8 bytes at offset 0 of a dynptr's record of map `events`: the address must be a multiple of 8",
    );
    let odd = LOCAL.replace("+ 0\nr2 = 16", "+ 4\nr2 = 12");
    refuse(
        &format!("{odd}{}{add}{END}", data(-32, "0")),
        "atomic operation of 8 bytes at offset 0 of a dynptr's part of a value of map `.bss`: the address must be a multiple of 8",
    );
}

#[test]
fn what_copies_cost() {
    let read = |offset: u32| {
        format!(
            "r1 = r10\nr1 += -64\nr2 = 16\nr3 = r10\nr3 += -32\nr4 = {offset}\nr5 = 0\ncall 201\n"
        )
    };
    let cost = |text: String| accept(&text).facts().cost;
    let plain = cost(format!("{LOCAL}{END}"));
    assert_eq!(
        cost(format!("{LOCAL}{}{END}", read(0))),
        plain + 7 + 16 + 2 * 4
    );
    assert_eq!(
        cost(format!("{LOCAL}{}{END}", read(4))),
        plain + 7 + 16 + 2 * 28
    );
    let odd = LOCAL.replace("+ 0\nr2 = 16", "+ 4\nr2 = 12");
    assert_eq!(
        cost(format!("{odd}{}{END}", read(0))),
        plain + 7 + 16 + 2 * 28
    );
}
