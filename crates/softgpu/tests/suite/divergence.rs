//! Random structured programs whose lanes go different ways, against a plain interpreter that knows
//! no warps.

use std::fmt::Write;

use crate::common::{Params, Rig, config, header};
use proptest::prelude::*;
use warpbpf_softgpu::Config;

const VARIABLES: usize = 4;

#[derive(Debug, Clone)]
enum Stmt {
    /// `d = a OP b`
    Set {
        op: &'static str,
        d: usize,
        a: usize,
        b: usize,
    },
    /// Runs one of two lists, by a bit of a variable.
    If {
        v: usize,
        bit: u32,
        yes: Vec<Stmt>,
        no: Vec<Stmt>,
    },
    /// Runs the list as often as the low bits of a variable say.
    Loop { v: usize, body: Vec<Stmt> },
    /// `d = f(a)` by a call; the function itself branches.
    Call { d: usize, a: usize },
    /// Exchanges a variable among all lanes.
    Swap { d: usize, a: usize },
    /// `d = number of threads of the block whose variable is odd`
    Count { d: usize, a: usize },
    /// Stores a constant if a variable has some value.
    Mark { v: usize },
}

fn statements(depth: u32, uniform: bool) -> BoxedStrategy<Vec<Stmt>> {
    let v = 0..VARIABLES;
    let set = (
        prop::sample::select(vec![
            "add.u32",
            "sub.u32",
            "mul.lo.u32",
            "xor.b32",
            "max.s32",
        ]),
        v.clone(),
        v.clone(),
        v.clone(),
    )
        .prop_map(|(op, d, a, b)| Stmt::Set { op, d, a, b });
    let call = (v.clone(), v.clone()).prop_map(|(d, a)| Stmt::Call { d, a });
    let mut choices = vec![(4, set.boxed()), (1, call.boxed())];
    if uniform {
        // Only where all lanes come by: the outermost list.
        choices.push((
            1,
            (v.clone(), v.clone())
                .prop_map(|(d, a)| Stmt::Swap { d, a })
                .boxed(),
        ));
        choices.push((
            1,
            (v.clone(), v.clone())
                .prop_map(|(d, a)| Stmt::Count { d, a })
                .boxed(),
        ));
    } else {
        choices.push((1, v.clone().prop_map(|v| Stmt::Mark { v }).boxed()));
    }
    if depth > 0 {
        let inner = || statements(depth - 1, false);
        choices.push((
            2,
            (v.clone(), 0..6u32, inner(), inner())
                .prop_map(|(v, bit, yes, no)| Stmt::If { v, bit, yes, no })
                .boxed(),
        ));
        choices.push((
            2,
            (v, inner())
                .prop_map(|(v, body)| Stmt::Loop { v, body })
                .boxed(),
        ));
    }
    prop::collection::vec(prop::strategy::Union::new_weighted(choices), 1..5).boxed()
}

fn emit(list: &[Stmt], text: &mut String, labels: &mut usize) {
    for stmt in list {
        *labels += 1;
        let n = *labels;
        let _ = match stmt {
            Stmt::Set { op, d, a, b } => writeln!(text, "{op} v{d}, v{a}, v{b};"),
            Stmt::Call { d, a } => writeln!(
                text,
                "{{ .param .b32 x; .param .b32 y; st.param.b32 [x], v{a}; call (y), f, (x); ld.param.b32 v{d}, [y]; }}"
            ),
            Stmt::Swap { d, a } => writeln!(text, "shfl.sync.bfly.b32 v{d}, v{a}, 7, 31, -1;"),
            Stmt::Count { d, a } => {
                writeln!(
                    text,
                    "and.b32 t, v{a}, 1; setp.ne.u32 p, t, 0; bar.red.popc.u32 v{d}, 0, p;"
                )
            }

            Stmt::Mark { v } => writeln!(
                text,
                "and.b32 t, v{v}, 63; setp.eq.u32 p, t, 33; @p st.global.u32 [o], t;"
            ),
            Stmt::If { v, bit, yes, no } => {
                let _ = writeln!(
                    text,
                    "and.b32 t, v{v}, {}; setp.eq.u32 p, t, 0; @p bra N{n};",
                    1u32 << bit
                );
                emit(yes, text, labels);
                let _ = writeln!(text, "bra E{n}; N{n}:");
                emit(no, text, labels);
                writeln!(text, "E{n}:")
            }
            Stmt::Loop { v, body } => {
                let _ = writeln!(
                    text,
                    "{{ .reg .b32 i; .reg .pred q; and.b32 i, v{v}, 3; T{n}: setp.eq.u32 q, i, 0; @q bra L{n}; sub.u32 i, i, 1;"
                );
                emit(body, text, labels);
                writeln!(text, "bra T{n}; L{n}: }}")
            }
        };
    }
}

fn f(x: u32) -> u32 {
    if x & 1 == 0 {
        x >> 1
    } else {
        x.wrapping_mul(3).wrapping_add(1)
    }
}

struct Thread {
    v: [u32; VARIABLES],
    out: u32,
}

/// Runs statements that need no other thread.
fn run_alone(list: &[Stmt], t: &mut Thread) {
    for stmt in list {
        match stmt {
            Stmt::Set { op, d, a, b } => {
                let (a, b) = (t.v[*a], t.v[*b]);
                t.v[*d] = match *op {
                    "add.u32" => a.wrapping_add(b),
                    "sub.u32" => a.wrapping_sub(b),
                    "mul.lo.u32" => a.wrapping_mul(b),
                    "xor.b32" => a ^ b,
                    _ => (a as i32).max(b as i32) as u32,
                };
            }
            Stmt::Call { d, a } => t.v[*d] = f(t.v[*a]),
            Stmt::If { v, bit, yes, no } => {
                run_alone(if t.v[*v] >> bit & 1 == 1 { yes } else { no }, t)
            }
            Stmt::Loop { v, body } => (0..t.v[*v] & 3).for_each(|_| run_alone(body, t)),
            Stmt::Mark { v } => {
                if t.v[*v] & 63 == 33 {
                    t.out = 33;
                }
            }
            Stmt::Swap { .. } | Stmt::Count { .. } => unreachable!("only in the outermost list"),
        }
    }
}

fn simulate(list: &[Stmt], threads: &mut [Thread]) {
    for stmt in list {
        match stmt {
            Stmt::Swap { d, a } => {
                let values: Vec<u32> = threads.iter().map(|t| t.v[*a]).collect();
                threads
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, t)| t.v[*d] = values[i ^ 7]);
            }
            Stmt::Count { d, a } => {
                let odd = threads.iter().filter(|t| t.v[*a] & 1 == 1).count() as u32;
                threads.iter_mut().for_each(|t| t.v[*d] = odd);
            }
            other => threads
                .iter_mut()
                .for_each(|t| run_alone(std::slice::from_ref(other), t)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lanes_do_what_threads_would(list in statements(3, true), seed in prop::option::of(0..1000u64)) {
        let mut body = String::new();
        emit(&list, &mut body, &mut 0);
        let text = header(&format!(
            ".func (.param .b32 y) f(.param .b32 x) {{ .reg .pred p; .reg .b32 r<3>; ld.param.b32 r0, [x];
                and.b32 r1, r0, 1; setp.eq.u32 p, r1, 0; @p bra EVEN;
                mad.lo.u32 r0, r0, 3, 1; st.param.b32 [y], r0; ret;
                EVEN: shr.u32 r0, r0, 1; st.param.b32 [y], r0; ret; }}
             .visible .entry k(.param .u64 out) {{ .reg .pred p; .reg .b32 v<{VARIABLES}>; .reg .b32 t; .reg .b64 o;
                mov.u32 t, %tid.x; ld.param.u64 o, [out]; mad.wide.u32 o, t, 20, o;
                mov.u32 v0, t; mul.lo.u32 v1, t, 7; xor.b32 v2, t, 21; mad.lo.u32 v3, t, t, 5;
                {body}
                st.global.u32 [o+4], v0; st.global.u32 [o+8], v1; st.global.u32 [o+12], v2; st.global.u32 [o+16], v3; ret; }}"
        ));
        let mut threads: Vec<Thread> =
            (0..64u32).map(|t| Thread { v: [t, t * 7, t ^ 21, t * t + 5], out: 0 }).collect();
        simulate(&list, &mut threads);
        let expected: Vec<u32> = threads.iter().flat_map(|t| [t.out, t.v[0], t.v[1], t.v[2], t.v[3]]).collect();
        let mut rig = Rig::with(Config { seed, memory: 1 << 20, ..config() }, &text);
        let out = rig.zeroes(64 * 5);
        rig.run("k", 1, 64, &Params::default().u64(out));
        prop_assert_eq!(rig.read_u32(out, 64 * 5), expected);
    }
}

/// How often lanes of a warp were not together at the end of a round, of 60: a kernel whose lanes
/// all go round, and whose first lane is busy in `work` meanwhile. `after` stands behind the
/// kernel's end.
fn times_apart(work: &str, after: &str, functions: &str) -> u32 {
    let text = header(&format!(
        "{functions}
         .visible .entry k(.param .u64 out) {{
            .reg .pred p, q; .reg .b32 r<10>; .reg .b64 a;
            ld.param.u64 a, [out];
            mov.u32 r0, 0; mov.u32 r1, %laneid;
            ROUND: setp.ne.u32 p, r1, 0; mov.u32 r2, 0;
            {work}
            JOIN: activemask.b32 r3; setp.ne.u32 q, r3, -1; @q atom.global.add.u32 r4, [a], 1;
            add.u32 r0, r0, 1; setp.lt.u32 q, r0, 60; @q bra ROUND;
            ret;
            {after} }}"
    ));
    let mut rig = Rig::new(&text);
    let out = rig.zeroes(1);
    rig.run("k", 2, 96, &Params::default().u64(out));
    rig.read_u32(out, 1)[0]
}

#[test]
fn lanes_wait_for_those_on_their_way_however_long_it_takes() {
    let busy = "BUSY: add.u32 r2, r2, 1; setp.lt.u32 q, r2, 700; @q bra BUSY;";
    assert_eq!(
        times_apart(&format!("@p bra JOIN; {busy}"), "", ""),
        0,
        "in line"
    );
    assert_eq!(
        times_apart("@!p bra AWAY;", &format!("AWAY: {busy} bra JOIN;"), ""),
        0,
        "out of line"
    );
    let function = ".func (.reg .b32 o) f(.reg .b32 i) { .reg .pred q; BUSY: add.u32 i, i, 1; setp.lt.u32 q, i, 700; @q bra BUSY; mov.b32 o, i; ret; }";
    assert_eq!(
        times_apart("@!p call (r2), f, (r2);", "", function),
        0,
        "in a function"
    );
    let sleeps = "BUSY: nanosleep.u32 1; add.u32 r2, r2, 1; setp.lt.u32 q, r2, 9; @q bra BUSY;";
    assert_eq!(
        times_apart(&format!("@p bra JOIN; {sleeps}"), "", ""),
        0,
        "asleep"
    );
    // All lanes have work, each more than the one before.
    let unequal = "BUSY: add.u32 r2, r2, 1; setp.le.u32 q, r2, r1; @q bra BUSY;";
    assert_eq!(times_apart(unequal, "", ""), 0, "unequal");
}

/// A lock that lanes of one warp, and of several, try for: who has it stands where the others come
/// by.
fn locks(pause: &str, threads: u32) -> u32 {
    let text = header(&format!(
        ".visible .entry k(.param .u64 out) {{
            .reg .pred p; .reg .b32 r<10>; .reg .b64 a;
            ld.param.u64 a, [out];
            mov.u32 r5, 0;
            TRY: {pause} atom.global.cas.b32 r0, [a], 0, 1; setp.ne.u32 p, r0, 0; @p bra TRY;
            ld.volatile.global.u32 r1, [a+4]; add.u32 r1, r1, 1; st.volatile.global.u32 [a+4], r1;
            membar.gl; atom.global.exch.b32 r0, [a], 0;
            ret; }}"
    ));
    let mut rig = Rig::with(
        Config {
            step_limit: Some(200_000_000),
            ..config()
        },
        &text,
    );
    let out = rig.zeroes(2);
    rig.run("k", 1, threads, &Params::default().u64(out));
    rig.read_u32(out, 2)[1]
}

#[test]
fn lanes_that_wait_for_held_lanes_get_what_they_wait_for() {
    assert_eq!(locks("", 64), 64);
    assert_eq!(locks("nanosleep.u32 20;", 64), 64);
    // Who counts its rounds is not seen to wait: time decides.
    assert_eq!(locks("add.u32 r5, r5, 1;", 3), 3);
}
