//! Ends that branches share, taken apart: what the program becomes, where its instructions come
//! from, and what stays refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpbpf_ebpf::{Pc, listing};
use warpbpf_object::{LineInfo, Program};
use warpbpf_verify::{Rejection, Rule, Verified, prove_apart, verify};

use crate::common::{maps, platform, program};

fn prove(program: &Program) -> Result<Verified<Program>, Box<Rejection>> {
    let maps = maps();
    prove_apart(program.clone(), &mut |program| {
        verify(program, &maps, &platform())
    })
}

fn proved(text: &str, functions: &[u32]) -> Program {
    match prove(&program(text, functions)) {
        Ok(verified) => verified.program().clone(),
        Err(rejection) => panic!("{}", rejection.render()),
    }
}

/// The rule by which it is refused, and where: as it is told of the program that was given.
fn refused(text: &str) -> (&'static str, u32) {
    match prove(&program(text, &[0])) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejection) => (rejection.rule.name(), rejection.pc.0),
    }
}

/// Instructions 10 to 12 write to a value of either of two maps.
const SHARED: &str = "
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    if r6 > 3 goto other
    r1 = map[0]
    r2 = r10
    r2 += -4
    goto same
other:
    r1 = map[6]
    r2 = r10
    r2 += -4
same:
    call 1
    if r0 == 0 goto +1
    *(u64 *)(r0 + 0) = 1
    r0 = 0
    exit
";

#[test]
fn a_lookup_in_either_of_two_maps_becomes_two() {
    let plain = verify(program(SHARED, &[0]), &maps(), &platform());
    assert!(matches!(plain.unwrap_err().rule, Rule::Mixed { .. }));
    let apart = proved(SHARED, &[0]);
    // The jump has the call for itself; then the store is mixed, and is taken apart with the test
    // before it.
    let text = listing(&apart.code);
    let counts = |words| text.matches(words).count();
    assert_eq!((counts("call 1"), counts("if r0 == 0")), (2, 2), "{text}");
    assert_eq!(apart.functions[0].end.index(), apart.code.insns().len());
}

#[test]
fn each_text_has_a_call_and_each_copy_its_line() {
    let text = "
    r6 = *(u32 *)(r1 + 48)
    *(u64 *)(r10 - 8) = 97
    if r6 == 0 goto on
    *(u8 *)(r10 - 8) = 98
    *(u8 *)(r10 - 7) = 0
on:
    r1 = r10
    r1 += -8
    call 501
    call second
    r0 = 0
    exit
second:
    r0 = 0
    exit
";
    let mut given = program(text, &[0, 11]);
    let line = |pc, line| LineInfo {
        pc: Pc(pc),
        file: Arc::from("a.c"),
        line,
        column: 1,
        text: Arc::from(""),
    };
    given.lines = vec![line(0, 1), line(5, 2), line(8, 3), line(11, 4)];
    given.unresolved = BTreeMap::from([(Pc(12), "nothing".into())]);
    let apart = prove(&given).unwrap_or_else(|r| panic!("{}", r.render()));
    let apart = apart.program();
    assert_eq!(
        listing(&apart.code).lines().count() - listing(&given.code).lines().count(),
        4,
        "two instructions, the call and the way back:\n{}",
        listing(&apart.code)
    );
    let lines = (0..apart.code.insns().len() as u32).map(|pc| apart.line_of(Pc(pc)).unwrap().line);
    let lines: Vec<u32> = lines.collect();
    assert_eq!(lines, [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 2, 2, 2, 4, 4]);
    let ends: Vec<(u32, u32)> = (apart.functions.iter())
        .map(|function| (function.start.0, function.end.0))
        .collect();
    assert_eq!(ends, [(0, 15), (15, 17)]);
    let unresolved: Vec<u32> = apart.unresolved.keys().map(|pc| pc.0).collect();
    assert_eq!(unresolved, [16]);
}

#[test]
fn what_one_way_leads_to_stays_refused_where_it_was() {
    // The ways have met before the line that leads to the call.
    let early = SHARED
        .replace("    r6 =", "    r7 = *(u32 *)(r1 + 52)\n    r6 =")
        .replace(
            "    call 1\n",
            "    if r7 == 7 goto on\n    r0 = 0\n    exit\non:\n    call 1\n",
        );
    assert_eq!(refused(&early), ("mixed", 14));
    // Another rule is broken, which the proof comes to first.
    let other = SHARED.replace("*(u64 *)(r0 + 0) = 1", "*(u64 *)(r0 + 8) = 1");
    assert_eq!(refused(&other), ("out-of-bounds", 12));
}
