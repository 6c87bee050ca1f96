//! Loops that are bounded when they run: which get a bound, what the program becomes, and that it
//! does what the proof says.

use std::sync::Arc;

use warpbpf_ebpf::interp::stack_regions;
use warpbpf_ebpf::memory::{FlatMemory, Memory, Region};
use warpbpf_ebpf::{Callback, Insn, Limits, Machine, Outcome, Pc, TrapKind, Width, listing, run};
use warpbpf_object::{LineInfo, MapDef, Program};
use warpbpf_verify::{Bounded, Platform, Rejection, Rule, prove_bounded, verify};

use crate::common::{code, maps, platform, program};

/// Index of the counter, behind the maps that all tests have.
const COUNTER: u32 = 9;

fn all_maps() -> Vec<MapDef> {
    let mut maps = maps();
    let counts = maps[0].clone();
    maps.push(MapDef {
        name: "stops".into(),
        max_entries: 1,
        ..counts
    });
    maps
}

fn bound_on(program: &Program, platform: &Platform) -> Result<Bounded, Box<Rejection>> {
    let maps = all_maps();
    prove_bounded(program, COUNTER, |program| verify(program, &maps, platform))
}

fn bound(text: &str) -> Bounded {
    bound_on(&program(text, &[0]), &platform()).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn heads(bounded: &Bounded) -> Vec<u32> {
    bounded.heads.iter().map(|head| head.0).collect()
}

/// The name of the rule by which a program is refused, bounds or not.
fn refused(text: &str, functions: &[u32]) -> &'static str {
    match bound_on(&program(text, functions), &platform()) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(rejection) => rejection.rule.name(),
    }
}

/// The counter and `.bss`, whose words a program reads and writes.
struct World(FlatMemory);

const AT: [(u32, u64); 2] = [(4, 0x1_0000), (COUNTER, 0x2_0000)];

impl Memory for World {
    fn load(&mut self, address: u64, width: Width) -> Result<u64, TrapKind> {
        self.0.load(address, width)
    }
    fn store(&mut self, address: u64, width: Width, value: u64) -> Result<(), TrapKind> {
        self.0.store(address, width, value)
    }
}

impl Machine for World {
    fn call_helper(&mut self, id: u32, _: [u64; 5], _: &mut Callback<'_>) -> Result<u64, TrapKind> {
        Err(TrapKind::NoHelper { id })
    }
    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        let at = AT.iter().find(|(of, _)| *of == map);
        at.map(|(_, base)| base + u64::from(offset))
            .ok_or(TrapKind::NoMap { map })
    }
}

/// What it returns, its result in the second word of `.bss`, and the counter; `n` is in the first.
/// It executes no more than was proved.
fn ran(bounded: &Bounded, n: u64) -> (u64, u64, u64) {
    let mut world = World(FlatMemory::new());
    for region in stack_regions() {
        assert!(world.0.add(region));
    }
    let bss = [n, 0].iter().flat_map(|x| x.to_le_bytes()).collect();
    for ((_, base), bytes) in AT.iter().zip([bss, vec![0; 8]]) {
        assert!(world.0.add(Region {
            base: *base,
            bytes,
            writable: true
        }));
    }
    let facts = bounded.verified.facts();
    let limits = Limits {
        fuel: facts.cost,
        may_goto: facts.may_goto_rounds.into(),
    };
    let code = &bounded.verified.program().code;
    let Ok(Outcome::Return(r0)) = run(code, Pc(0), &[0], &mut world, limits) else {
        panic!("n = {n}\n{}", listing(code));
    };
    let mut word = |at| world.0.load(at, Width::W64).unwrap();
    (r0, word(AT[0].1 + 8), word(AT[1].1))
}

/// As many rounds as `.bss` says, and then their sum is stored.
const SUM: &str = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nr9 = 0\nif r7 == 0 goto out\nagain:\nr9 += r8\nr8 += 1\nif r8 != r7 goto again\nout:\n*(u64 *)(r6 + 8) = r9\nr0 = 7\nexit";

#[test]
fn the_budget_ends_what_a_map_bounds() {
    let bounded = bound(SUM);
    assert_eq!(
        listing(&bounded.verified.program().code),
        "    0: r6 = map[4][0] + 0\n    2: r7 = *(u64 *)(r6 + 0)\n    3: r8 = 0\n    4: r9 = 0\n    5: if r7 == 0 goto +4\n\
         \x20   6: may_goto +6\n    7: r9 += r8\n    8: r8 += 1\n    9: if r8 != r7 goto -4\n   10: *(u64 *)(r6 + 8) = r9\n\
         \x20  11: r0 = 7\n   12: exit\n   13: r1 = map[9][0] + 0\n   15: r0 = 1\n   16: lock *(u64 *)(r1 + 0) += r0\n   17: r0 = 0\n   18: exit\n"
    );
    assert_eq!(heads(&bounded), [5]);
    let rounds = u64::from(bounded.verified.facts().may_goto_rounds);
    // Of 4096: six for a round, but for those that were followed before states repeated.
    assert_eq!(rounds, 659);
    assert!((4090..=4096).contains(&bounded.verified.facts().cost));
    for n in [0, 1, 2, rounds - 1, rounds] {
        assert_eq!(ran(&bounded, n), (7, (n * n - n.min(n * n)) / 2, 0), "{n}");
    }
    for n in [rounds + 1, 1 << 40, u64::MAX] {
        assert_eq!(ran(&bounded, n), (0, 0, 1), "{n}");
    }
}

#[test]
fn a_larger_budget_is_more_rounds() {
    let program = program(SUM, &[0]);
    for (budget, rounds) in [(200, 10), (1 << 20, 172_691)] {
        let bounded = bound_on(&program, &platform().with_budget(budget)).unwrap();
        assert_eq!(bounded.verified.facts().may_goto_rounds, rounds);
        assert!(bounded.verified.facts().cost <= budget);
        assert_eq!(ran(&bounded, rounds.into()).2, 0);
        assert_eq!(ran(&bounded, u64::from(rounds) + 1), (0, 0, 1));
    }
}

#[test]
fn what_ends_by_itself_stays_as_it_is() {
    let text = "r6 = 0\nagain:\nr6 += 1\nif r6 < 20 goto again\nr0 = 0\nexit";
    let bounded = bound(text);
    assert_eq!(bounded.verified.program().code, code(text));
    assert_eq!(heads(&bounded), [0; 0]);
}

#[test]
fn a_loop_that_is_tested_at_its_top_is_entered_through_the_check() {
    let bounded = bound(
        "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\ngoto test\nbody:\nr8 += 1\ntest:\nif r8 != r7 goto body\n*(u64 *)(r6 + 8) = r8\nr0 = 7\nexit",
    );
    let rounds = u64::from(bounded.verified.facts().may_goto_rounds);
    // The test is made once more than the body is run.
    assert_eq!(ran(&bounded, rounds - 1), (7, rounds - 1, 0));
    assert_eq!(ran(&bounded, rounds), (0, 0, 1));
}

/// Rounds of the outer and the inner loop; a number of `.bss` where 0.
fn nested(outer: u32, inner: u32) -> Bounded {
    let set = |reg: &str, count: u32| match count {
        0 => format!("{reg} = *(u64 *)(r6 + 0)\n"),
        count => format!("{reg} = {count}\n"),
    };
    bound(&format!(
        "r6 = map[4][0] + 0\nr9 = 0\nr7 = 0\nouter:\nr8 = 0\ninner:\nr9 += 1\nr8 += 1\n{}if r8 < r1 goto inner\nr7 += 1\n{}if r7 < r1 goto outer\n*(u64 *)(r6 + 8) = r9\nr0 = 7\nexit",
        set("r1", inner),
        set("r1", outer),
    ))
}

#[test]
fn of_nested_loops_those_get_a_bound_that_need_one() {
    let (outer, inner, both) = (nested(0, 5), nested(5, 0), nested(0, 0));
    assert_eq!((heads(&outer), heads(&inner)), (vec![3], vec![4]));
    // Each round of the outer loop takes rounds of the inner one.
    assert_eq!(heads(&both), [4]);
    assert_eq!(ran(&outer, 9), (7, 45, 0));
    assert_eq!(ran(&inner, 9), (7, 45, 0));
    assert_eq!(ran(&both, 9), (7, 81, 0));
    for bounded in [outer, inner, both] {
        assert_eq!(ran(&bounded, 1 << 30), (0, 0, 1));
    }
}

/// So many loops one behind the other, each of as many rounds as `.bss` says, tested at the bottom
/// or at the top; in the end their rounds are stored.
fn sequence(count: usize, rotated: bool) -> String {
    let mut text = "r6 = map[4][0] + 0\nr9 = 0\n".to_owned();
    for n in 0..count {
        let read = "r7 = *(u64 *)(r6 + 0)\nr8 = 0\n";
        let round = "r9 += 1\nr8 += 1\n";
        text += &match rotated {
            true => format!(
                "{read}if r7 == 0 goto out{n}\nagain{n}:\n{round}if r8 != r7 goto again{n}\nout{n}:\n"
            ),
            false => {
                format!("{read}again{n}:\nif r8 == r7 goto out{n}\n{round}goto again{n}\nout{n}:\n")
            }
        };
    }
    text + "*(u64 *)(r6 + 8) = r9\nr0 = 7\nexit"
}

#[test]
fn loops_one_behind_the_other_each_get_a_bound() {
    for (count, rotated) in [(2, true), (2, false), (3, true), (3, false)] {
        let program = program(&sequence(count, rotated), &[0]);
        for budget in [256, 4096] {
            let bounded = bound_on(&program, &platform().with_budget(budget));
            let bounded = bounded.unwrap_or_else(|error| panic!("{budget}: {}", error.render()));
            assert_eq!(bounded.heads.len(), count, "{budget}");
            let facts = bounded.verified.facts();
            assert!(facts.cost <= budget);
            // They share the rounds.
            let (rounds, loops) = (u64::from(facts.may_goto_rounds), count as u64);
            assert!(rounds > 0);
            for n in [
                0,
                1,
                rounds / loops,
                rounds / loops + 1,
                rounds + 1,
                1 << 60,
            ] {
                // At the top, the test that ends a loop is made after the check.
                let fits = loops * (n + u64::from(!rotated)) <= rounds;
                let expected = if fits { (7, n * loops, 0) } else { (0, 0, 1) };
                assert_eq!(ran(&bounded, n), expected, "{budget}, {n}");
            }
        }
    }
}

#[test]
fn what_joining_alone_takes_for_a_fault_does_not_stop_the_search() {
    let program = program(&sequence(2, true), &[0]);
    let maps = all_maps();
    // As if the pass took one for it as long as one loop alone has a bound.
    let may_goto = |insn: &&Insn| matches!(insn, Insn::MayGoto { .. });
    let proof = |budget: u64| {
        prove_bounded(&program, COUNTER, |program| {
            let one = program.code.insns().iter().filter(may_goto).count() == 1;
            let platform = platform().with_budget(budget);
            verify(program, &maps, &platform).map_err(|mut rejection| {
                if one {
                    rejection.rule = Rule::StackReturned;
                }
                rejection
            })
        })
    };
    assert_eq!(proof(4096).unwrap().heads.len(), 2);
    // And it is what is told if bounds do not help.
    assert_eq!(proof(20).unwrap_err().rule.name(), "stack-returned");
}

#[test]
fn a_program_counts_its_rounds_itself_or_not_at_all() {
    let loops = |own: &str| {
        format!(
            "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nfirst:\n{own}r8 += 1\nif r8 != r7 goto first\nout:\nr8 = 0\nsecond:\nr8 += 1\nif r8 != r7 goto second\nr0 = 0\nexit"
        )
    };
    assert_eq!(heads(&bound(&loops(""))).len(), 2);
    let text = loops("may_goto out\n");
    assert_eq!(refused(&text, &[0]), "unsupported");
    let error = bound_on(&program(&text, &[0]), &platform()).unwrap_err();
    assert_eq!(error.pc, Pc(3));
    let text = error.render();
    assert!(
        text.contains(
            "`can_loop` (`may_goto`) beside a loop that `--bound-loops` ends is not served"
        )
    );
    assert!(text.contains("each loop that has no bound of its own, or of none"));
    // It is proved as it is where that is enough.
    let alone = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nfirst:\nmay_goto out\nr8 += 1\nif r8 != r7 goto first\nout:\nr0 = 0\nexit";
    let bounded = bound(alone);
    assert_eq!(bounded.verified.program().code, code(alone));
    assert_eq!(heads(&bounded), [0; 0]);
}

#[test]
fn what_falls_off_its_end_does_not_fall_into_the_stop() {
    let text = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nagain:\nr8 += 1\nif r8 != r7 goto again\nr0 = 0";
    let error = bound_on(&program(text, &[0]), &platform()).unwrap_err();
    assert_eq!((error.rule.name(), error.pc), ("falls-off", Pc(5)));
    let jump = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nr0 = 0\ngoto again\nout:\nexit\nagain:\nr8 += 1\nif r8 == r7 goto out\nif r8 != 0 goto again";
    assert_eq!(refused(jump, &[0]), "falls-off");
    // Where nothing comes, nothing falls.
    let dead = format!("{SUM}\nr0 = 1");
    assert_eq!(heads(&bound(&dead)), [5]);
}

#[test]
fn a_wait_behind_a_loop_is_refused_at_each_budget() {
    let text = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nagain:\nr8 += 1\nif r8 != r7 goto again\nwait:\nr7 = *(u64 *)(r6 + 8)\nif r7 == 0 goto wait\nr0 = 0\nexit";
    for budget in [64, 256, 1024, 4096, 1 << 16] {
        let error = bound_on(&program(text, &[0]), &platform().with_budget(budget)).unwrap_err();
        assert_eq!(error.rule.name(), "spin", "{budget}");
    }
}

#[test]
fn a_wait_that_is_one_loop_with_what_counts_is_ended() {
    // As many times as `.bss` says, until its second word is another one than 0.
    let text = "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nif r7 == 0 goto out\nhead:\nr1 = *(u64 *)(r6 + 8)\nif r1 == 0 goto head\nr8 += 1\nif r8 != r7 goto head\nout:\nr0 = 7\nexit";
    let plain = verify(&program(text, &[0]), &all_maps(), &platform()).unwrap_err();
    assert_eq!(plain.rule.name(), "loop-budget");
    let bounded = bound(text);
    assert_eq!((ran(&bounded, 0), ran(&bounded, 1)), ((7, 0, 0), (0, 0, 1)));
}

#[test]
fn only_loops_of_the_entry_function_can_end_the_program() {
    let with = |caller: &str, callee: &str| {
        format!(
            "r6 = map[4][0] + 0\nr7 = 0\nagain:\ncall f\nr7 += 1\n{caller}r0 = 0\nexit\nf:\nr0 = map[4][0] + 0\nr1 = *(u64 *)(r0 + 0)\nr0 = 0\nround:\nr0 += 1\n{callee}exit"
        )
    };
    let on = |count: &str| format!("if r0 != {count} goto round\n");
    let back = "r1 = *(u64 *)(r6 + 0)\nif r7 != r1 goto again\n";
    let start = |text: &str| text.lines().position(|l| l == "f:").unwrap() as u32 - 1;
    let endless = with("", &on("r1"));
    assert_eq!(refused(&endless, &[0, start(&endless)]), "loop-budget");
    // The callee's own ends by itself, and is only met so often because of the caller's.
    let text = with(back, &on("8"));
    let program = program(&text, &[0, start(&text)]);
    let bounded = bound_on(&program, &platform()).unwrap();
    assert_eq!(heads(&bounded), [2]);
    assert_eq!(ran(&bounded, 3), (0, 0, 0));
    assert_eq!(ran(&bounded, 1 << 30), (0, 0, 1));
    let functions = &bounded.verified.program().functions;
    assert_eq!(
        (functions[0].end, functions[1].start),
        (functions[1].start, Pc(start(&text) + 6))
    );
}

#[test]
fn a_bound_is_no_pardon() {
    let body = |body: &str| {
        format!(
            "r6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nagain:\n{body}r8 += 1\nif r8 != r7 goto again\nr0 = 0\nexit"
        )
    };
    assert_eq!(
        refused(&body("r1 = r6\nr1 += r8\n*(u8 *)(r1 + 0) = 1\n"), &[0]),
        "out-of-bounds"
    );
    assert_eq!(
        refused(&body("r9 = *(u64 *)(r10 - 8)\n"), &[0]),
        "stack-uninitialised"
    );
    // What is held where the program may be ended.
    let held = "r1 = map[1]\nr2 = 8\nr3 = 0\ncall 131\nr9 = r0\nif r9 == 0 goto out\nr6 = map[4][0] + 0\nr7 = *(u64 *)(r6 + 0)\nr8 = 0\nagain:\nr8 += 1\nif r8 != r7 goto again\nr1 = r9\nr2 = 0\ncall 133\nout:\nr0 = 0\nexit";
    assert_eq!(refused(held, &[0]), "record-held");
    // Rounds do not make another thread write.
    let spins =
        "r6 = map[4][0] + 0\nagain:\nr7 = *(u64 *)(r6 + 0)\nif r7 == 0 goto again\nr0 = 0\nexit";
    assert_eq!(refused(spins, &[0]), "spin");
    // Around a loop there may be too much for any round.
    let tight = platform().with_budget(5);
    let error = bound_on(&program(SUM, &[0]), &tight).unwrap_err();
    assert_eq!(error.rule.name(), "budget");
}

#[test]
fn a_proof_without_end_is_one_of_a_loop_without_end() {
    let platform = Platform {
        effort: 20_000,
        ..platform().with_budget(1 << 30)
    };
    let program = program(SUM, &[0]);
    let maps = all_maps();
    let plain = verify(&program, &maps, &platform).unwrap_err();
    assert_eq!((plain.rule.name(), plain.pc), ("too-complex", Pc(5)));
    let bounded = bound_on(&program, &platform).unwrap();
    assert_eq!(heads(&bounded), [5]);
    assert_eq!(ran(&bounded, 1000), (7, 499_500, 0));
}

#[test]
fn lines_and_what_is_unresolved_move_with_the_code() {
    let mut program = program(SUM, &[0]);
    let line = |pc: u32| LineInfo {
        pc: Pc(pc),
        file: Arc::from("p.c"),
        line: 10 + pc,
        column: 1,
        text: Arc::from(""),
    };
    program.lines = [0, 5, 6, 8].map(line).to_vec();
    program.unresolved.insert(Pc(6), "a field".to_owned());
    let bounded = bound_on(&program, &platform()).unwrap();
    let program = bounded.verified.program();
    let lines: Vec<u32> = (0..17)
        .map(|pc| program.line_of(Pc(pc)).unwrap().line)
        .collect();
    assert_eq!(
        lines,
        [
            10, 10, 10, 10, 10, 15, 15, 16, 16, 18, 18, 18, 15, 15, 15, 15, 15
        ]
    );
    assert_eq!(program.unresolved.keys().collect::<Vec<_>>(), [&Pc(7)]);
}

#[test]
fn what_all_threads_must_call_stands_before_a_loop_that_is_ended() {
    let sum = "r1 = r6\nr2 = r10\nr2 += -8\ncall 546\n";
    let walk = "again:\nr6 = *(u64 *)(r10 - 16)\nr6 -= 1\n*(u64 *)(r10 - 16) = r6\nif r6 != 0 goto again\n";
    let begun = "r6 = map[4][0] + 0\nr6 = *(u64 *)(r6 + 0)\n*(u64 *)(r10 - 16) = r6\n";
    let behind = format!("{begun}{walk}{sum}r0 = 0\nexit");
    let rejection = bound_on(&program(&behind, &[0]), &platform()).expect_err("refused");
    assert_eq!(
        rejection.rule.to_string(),
        "each thread of the block must call `bpf_gpu_block_sum` exactly once, and the loop that is ended early at instruction 4 leads past it"
    );
    assert_eq!(
        rejection.rule.help(),
        "make the call before the loop, or give the loop a constant bound"
    );
    assert_eq!(
        heads(&bound(&format!("{begun}{sum}{walk}r0 = 0\nexit"))).len(),
        1
    );
    // A loop that ends by itself gets no bound, and the call may stand behind it.
    let counted = "r7 = 0\nagain:\nr7 += 1\nif r7 < 9 goto again\n";
    assert_eq!(
        heads(&bound(&format!("{begun}{counted}{sum}r0 = 0\nexit"))),
        Vec::<u32>::new()
    );
}
