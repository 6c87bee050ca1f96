//! Gaps in variables that a helper reads: zeroed and told, and what is no gap is refused as before.

use crate::common::{maps, platform, program};
use warpbpf_verify::{Rejection, Verified, prove_padded, verify};

fn prove(
    text: &str,
    functions: &[u32],
) -> Result<Verified<warpbpf_object::Program>, Box<Rejection>> {
    prove_padded(program(text, functions), &mut |program| {
        verify(program, &maps(), &platform().with_budget(100_000))
    })
}

const OUTPUT: &str = "r1 = map[1]\nr2 = r10\nr2 += -16\nr3 = 16\nr4 = 0\ncall 130\n";

#[test]
fn gaps_are_zeroed_and_told() {
    // Behind the last field, between two, of each size.
    for (fields, gaps) in [
        (
            "*(u64 *)(r10 - 16) = 1\n*(u32 *)(r10 - 8) = 2\n",
            &[(-4, 4)][..],
        ),
        (
            "*(u32 *)(r10 - 16) = 1\n*(u64 *)(r10 - 8) = 2\n",
            &[(-12, 4)],
        ),
        (
            "*(u8 *)(r10 - 16) = 1\n*(u64 *)(r10 - 8) = 2\n",
            &[(-15, 7)],
        ),
        (
            "*(u8 *)(r10 - 16) = 1\n*(u16 *)(r10 - 14) = 1\n*(u32 *)(r10 - 12) = 3\n*(u16 *)(r10 - 8) = 2\n*(u8 *)(r10 - 6) = 2\n*(u32 *)(r10 - 4) = 2\n",
            &[(-15, 1), (-5, 1)],
        ),
    ] {
        let text = format!("{fields}{OUTPUT}r0 = 0\nexit");
        let verified = prove(&text, &[0]).unwrap_or_else(|r| panic!("{}", r.render()));
        let told: Vec<&str> = verified
            .warnings()
            .iter()
            .map(|w| w.message.as_str())
            .collect();
        let want: Vec<String> = gaps
            .iter()
            .map(|(at, bytes)| {
                format!("argument 2 of `bpf_ringbuf_output` has a gap that was never written: {bytes} bytes at r10{at:+}; they are set to zero")
            })
            .collect();
        assert_eq!(told, want);
        // They are at the call.
        let calls = verified.warnings().iter().map(|w| w.insn.as_str());
        assert!(
            calls.clone().all(|insn| insn == "call 130"),
            "{:?}",
            calls.collect::<Vec<_>>()
        );
    }
}

#[test]
fn keys_in_functions_and_callbacks_have_gaps_too() {
    let key = "*(u64 *)(r10 - 16) = 1\n*(u32 *)(r10 - 8) = 2\n";
    // A key of eight bytes with one of them unwritten, in a function that is called twice, and one
    // in a loop at its start.
    let text = format!(
        "call f\ncall f\nr1 = 2\nr2 = subprog[g]\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\nf:\nagain:\n{key}{OUTPUT}call 7\nif r0 == 0 goto out\nmay_goto out\ngoto again\nout:\nr0 = 0\nexit\ng:\n{key}{OUTPUT}r0 = 0\nexit"
    );
    let verified = prove(&text, &[0, 9, 23]).unwrap_or_else(|r| panic!("{}", r.render()));
    assert_eq!(
        verified
            .warnings()
            .iter()
            .filter(|w| w.name == "padding")
            .count(),
        2
    );
    // The stores stand where the functions begin, and once a call: not where a jump comes back.
    let program = verified.program();
    let starts: Vec<u32> = program.functions.iter().map(|f| f.start.0).collect();
    assert_eq!(starts, [0, 9, 24]);
    let store = "*(u32 *)(r10 - 4) = 0";
    for start in &program.functions[1..] {
        assert_eq!(
            warpbpf_ebpf::disasm::disassemble(&program.code, start.start),
            store
        );
    }
}

#[test]
fn variables_of_callers_have_gaps_too() {
    // The entry function's record goes through two functions; its own one is sent by a function
    // that is called by both; and a callback sends what its caller has.
    let send = "r2 = r1\nr1 = map[1]\nr3 = 16\nr4 = 0\ncall 130\nr0 = 0\nexit\n";
    let pass = "*(u64 *)(r10 - 32) = 1\n*(u32 *)(r10 - 24) = 3\nr6 = r1\nr1 = r10\nr1 += -32\ncall send\nr1 = r6\ncall send\nr0 = 0\nexit\n";
    let callback = "r1 = map[1]\nr3 = 16\nr4 = 0\ncall 130\nr0 = 0\nexit\n";
    let text = format!(
        "*(u64 *)(r10 - 16) = 1\n*(u16 *)(r10 - 8) = 2\n*(u32 *)(r10 - 4) = 2\nr1 = r10\nr1 += -16\ncall pass\n\
         *(u32 *)(r10 - 48) = 1\n*(u64 *)(r10 - 40) = 1\nr1 = 3\nr2 = subprog[callback]\nr3 = r10\nr3 += -48\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
         pass:\n{pass}send:\n{send}callback:\n{callback}"
    );
    let verified = prove(&text, &[0, 16, 26, 33]).unwrap_or_else(|r| panic!("{}", r.render()));
    let mut told: Vec<&str> = verified
        .warnings()
        .iter()
        .map(|w| w.message.as_str())
        .collect();
    told.sort_unstable();
    let gap = |bytes, at| {
        format!(
            "argument 2 of `bpf_ringbuf_output` has a gap that was never written: {bytes} bytes at r10{at:+} of a caller; they are set to zero"
        )
    };
    assert_eq!(told, [gap(2, -6), gap(4, -20), gap(4, -44)]);
    // Each is zeroed where the function begins whose variable it is.
    let program = verified.program();
    let first = |n: usize, count: u32| -> Vec<String> {
        let start = program.functions[n].start.0;
        let pcs = (start..start + count).map(warpbpf_ebpf::Pc);
        pcs.map(|pc| warpbpf_ebpf::disasm::disassemble(&program.code, pc))
            .collect()
    };
    let mut entry = first(0, 2);
    entry.sort_unstable();
    assert_eq!(entry, ["*(u16 *)(r10 - 6) = 0", "*(u32 *)(r10 - 44) = 0"]);
    assert_eq!(first(1, 1), ["*(u32 *)(r10 - 20) = 0"]);
}

#[test]
fn what_is_no_gap_is_refused() {
    let refused = |fields: &str, rule: &str| {
        let text = format!("{fields}{OUTPUT}r0 = 0\nexit");
        let refused = prove(&text, &[0]).map(|_| ()).expect_err("refused");
        assert_eq!(refused.rule.name(), rule, "{}", refused.render());
    };
    // Nothing of it was written, or the first half not, or a whole field.
    refused("", "argument-memory");
    refused("*(u64 *)(r10 - 8) = 1\n", "argument-memory");
    refused("*(u64 *)(r10 - 16) = 1\n", "argument-memory");
    refused(
        "*(u64 *)(r10 - 16) = 1\n*(u32 *)(r10 - 4) = 1\n*(u8 *)(r10 - 8) = 1\nr1 = r10\n*(u64 *)(r10 - 16) = r1\n",
        "argument-memory",
    );
    // Half of a number of eight bytes is no padding of one of four.
    let text = "*(u32 *)(r10 - 8) = 1\nr1 = map[2]\nr2 = r10\nr2 += -8\ncall 1\nr0 = 0\nexit";
    let refused = prove(text, &[0]).map(|_| ()).expect_err("refused");
    assert_eq!(refused.rule.name(), "wrong-size");
    // What was part of a pointer is not zero, whatever was there at first.
    let text = format!(
        "*(u64 *)(r10 - 8) = r10\n*(u64 *)(r10 - 16) = 1\n*(u32 *)(r10 - 8) = 2\n{OUTPUT}r0 = 0\nexit"
    );
    let refused = prove(&text, &[0]).map(|_| ()).expect_err("refused");
    assert_eq!(refused.rule.name(), "padding");
}
