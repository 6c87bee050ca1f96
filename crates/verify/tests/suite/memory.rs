//! Programs that run by themselves, on memory of their own; misaligned accesses; and what the log
//! tells.

use crate::common::{accept, attempt, code, lookup, maps, platform, refuse_on};
use warpbpf_ebpf::Pc;
use warpbpf_verify::{InsnFact, LogStep, Place, Platform, Region, verify_logged};

fn with_memory() -> Platform {
    platform().with_memory(20)
}

#[test]
fn memory_is_in_r1_and_its_size_in_r2() {
    let text = "if r2 != 20 goto never\nr0 = *(u64 *)(r1 + 8)\n*(u32 *)(r1 + 16) = r0\nr3 = 1\nlock *(u64 *)(r1 + 8) += r3\nexit\nnever:\nr0 = r9\nexit";
    let verified = attempt(text, &with_memory()).unwrap_or_else(|r| panic!("{}", r.render()));
    let place = |offset| {
        InsnFact::Access(Place {
            region: Region::Memory,
            offset: Some(offset),
            align: 8,
        })
    };
    let main = &verified.facts().instances[0];
    assert_eq!(
        (main.at(Pc(1)), main.at(Pc(2)), main.at(Pc(4))),
        (&place(8), &place(16), &place(8))
    );
}

#[test]
fn memory_has_bounds_and_takes_no_pointer() {
    refuse_on(
        &with_memory(),
        "r0 = *(u64 *)(r1 + 13)\nexit",
        0,
        "read of 8 bytes at offset 13 of the program's memory, which has 20 bytes",
    );
    refuse_on(
        &with_memory(),
        "r2 = 0\nr1 += -1\n*(u8 *)(r1 + 0) = r2\nr0 = 0\nexit",
        2,
        "write of 1 byte at offset -1 of the program's memory, which has 20 bytes",
    );
    refuse_on(
        &with_memory(),
        "*(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
        0,
        "the pointer in `r10` (a pointer to r10+0 of the stack) would be stored to offset 0 of the program's memory",
    );
    refuse_on(
        &with_memory(),
        "r0 = r1\nexit",
        1,
        "`r0` is a pointer to the program's memory at exit; a program returns a number",
    );
    refuse_on(
        &platform().with_memory(0),
        "r0 = *(u8 *)(r1 + 0)\nexit",
        0,
        "read of 1 byte at offset 0 of the program's memory, which has 0 bytes",
    );
}

#[test]
fn the_alignment_that_holds_on_every_path_is_told() {
    let verified = accept(&format!(
        "r6 = *(u32 *)(r1 + 48)\n{}if r6 > 3 goto odd\nr0 += 4\ngoto at\nodd:\nr0 += 2\nat:\nr0 = *(u32 *)(r0 + 0)\nexit",
        lookup(8)
    ));
    assert_eq!(
        verified.facts().instances[0].at(Pc(13)),
        &InsnFact::Access(Place {
            region: Region::MapValue { map: 8 },
            offset: None,
            align: 2,
        })
    );
    let warnings: Vec<_> = verified.warnings().iter().map(|w| &w.message[..]).collect();
    assert_eq!(
        warnings,
        [
            "this access of 4 bytes is only known to be aligned to 2: it is split into 2 accesses, which other threads can see one by one"
        ]
    );
}

#[test]
fn the_log_tells_the_state_before_each_instruction() {
    let mut steps: Vec<LogStep> = Vec::new();
    let text = "r0 = 7\n*(u32 *)(r10 - 4) = r0\nr0 = *(u32 *)(r1 + 48)\nexit";
    let verified = verify_logged(code(text), &maps(), &platform(), &mut |step| {
        steps.push(step.clone());
    });
    assert!(verified.is_ok());
    let told: Vec<_> = steps
        .iter()
        .map(|s| {
            let registers: Vec<_> = s
                .registers
                .iter()
                .map(|(r, v)| format!("{r}: {v}"))
                .collect();
            let stack: Vec<_> = s
                .stack
                .iter()
                .map(|(at, bytes, v)| format!("{at} ({bytes}): {v}"))
                .collect();
            (
                s.pass,
                s.slot,
                s.depth,
                s.cost,
                registers.join("; "),
                stack.join("; "),
            )
        })
        .collect();
    let fp = "r10: a pointer to r10+0 of the stack";
    let told_of = |slot, registers: &str, stack: &str| {
        (
            1,
            slot,
            0,
            u64::from(slot),
            format!("{registers}{fp}"),
            stack.to_owned(),
        )
    };
    assert_eq!(
        told,
        [
            told_of(0, "r1: the context; ", ""),
            told_of(1, "r0: the number 7; r1: the context; ", ""),
            told_of(
                2,
                "r0: the number 7; r1: the context; ",
                "-4 (4): the number 7"
            ),
            told_of(3, "r0: the number 0..=31; r1: the context; ", ""),
        ]
    );
    assert_eq!(steps[1].insn, "*(u32 *)(r10 - 4) = r0");
}
