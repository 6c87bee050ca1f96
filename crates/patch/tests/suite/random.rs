//! Random kernels that leave in many places: whatever their shape, every thread is counted once at
//! every site, and the output is that of the original.

use std::fmt::Write as _;

use crate::common::{OPTIONS, attach, counter, counters, every};
use crate::device::{Session, Shape, alloc, check, gpu, read, run};
use crate::words::{attached, wanted};
use proptest::prelude::*;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_patch::{Attachment, clone_in_module, slice};

/// Something that a kernel does; `p` is `tid % modulus == rest`.
#[derive(Clone, Debug)]
enum Step {
    /// `@p ret` or `@!p exit`, perhaps in a scope of its own.
    Leave {
        negated: bool,
        exit: bool,
        nested: bool,
    },
    /// `@p bra` to a label further on.
    Skip(usize),
    /// Adds to the thread's result, and stores it.
    Add(u32),
    /// `@p st` of the result, raised by one.
    Store { negated: bool },
    /// `@p ld` of what was stored last into the result.
    Load { negated: bool },
    /// Waits for the threads that are still there.
    Barrier,
    /// Calls a function that ends some threads.
    Call,
}

#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<(Step, u32, u32)>,
    end: &'static str,
}

pub fn programs(calls: bool) -> impl Strategy<Value = Program> {
    let step = prop_oneof![
        3 => any::<(bool, bool, bool)>().prop_map(|(negated, exit, nested)| Step::Leave { negated, exit, nested }),
        3 => (0..6usize).prop_map(Step::Skip),
        3 => (1..100u32).prop_map(Step::Add),
        2 => any::<bool>().prop_map(|negated| Step::Store { negated }),
        2 => any::<bool>().prop_map(|negated| Step::Load { negated }),
        1 => Just(Step::Barrier),
        1 => Just(if calls { Step::Call } else { Step::Add(7) }),
    ];
    let steps = proptest::collection::vec((step, 2..9u32, 0..9u32), 0..12);
    let end = prop::sample::select(vec![
        "ret;",
        "exit;",
        "ret.uni;",
        "",
        "bra.uni END;\nEND: ret;",
    ]);
    (steps, end).prop_map(|(steps, end)| Program { steps, end })
}

impl Program {
    /// `k(out, n)`: thread i writes its result to out[i] after each step.
    pub fn text(&self) -> String {
        let mut t = String::from(
            ".version 8.3\n.target sm_90\n.address_size 64\n\
             .func leave (.param .b32 x)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\tld.param.u32 %r1, [x];\n\
             \trem.u32 %r2, %r1, 5;\n\tsetp.eq.u32 %p1, %r2, 1;\n\t@%p1 exit;\n\tret;\n}\n\
             .visible .entry k(.param .u64 out, .param .u32 n)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<20>;\n\
             \t.reg .b64 %rd<4>;\n",
        );
        // Linear thread in the grid.
        for (register, special) in [
            (1, "ctaid.z"),
            (2, "nctaid.y"),
            (3, "ctaid.y"),
            (4, "nctaid.x"),
            (5, "ctaid.x"),
        ] {
            let _ = writeln!(t, "\tmov.u32 %r{register}, %{special};");
        }
        t.push_str("\tmad.lo.u32 %r1, %r1, %r2, %r3;\n\tmad.lo.u32 %r1, %r1, %r4, %r5;\n");
        for (register, special) in [
            (2, "ntid.z"),
            (3, "tid.z"),
            (4, "ntid.y"),
            (5, "tid.y"),
            (6, "ntid.x"),
            (7, "tid.x"),
        ] {
            let _ = writeln!(t, "\tmov.u32 %r{register}, %{special};");
        }
        t.push_str("\tmad.lo.u32 %r1, %r1, %r2, %r3;\n\tmad.lo.u32 %r1, %r1, %r4, %r5;\n\tmad.lo.u32 %r1, %r1, %r6, %r7;\n");
        t.push_str(
            "\tld.param.u64 %rd1, [out];\n\tmad.wide.u32 %rd1, %r1, 4, %rd1;\n\tmov.u32 %r8, 0;\n",
        );
        for (index, (step, modulus, rest)) in self.steps.iter().enumerate() {
            let _ = writeln!(
                t,
                "L{index}:\n\trem.u32 %r9, %r1, {modulus};\n\tsetp.eq.u32 %p1, %r9, {};",
                rest % modulus
            );
            match step {
                Step::Leave {
                    negated,
                    exit,
                    nested,
                } => {
                    let (not, word) = (
                        if *negated { "!" } else { "" },
                        if *exit { "exit" } else { "ret" },
                    );
                    let (open, close) = if *nested {
                        ("{ .reg .b32 %r1; ", " }")
                    } else {
                        ("", "")
                    };
                    let _ = writeln!(t, "\t{open}@{not}%p1 {word};{close}");
                }
                Step::Skip(far) => {
                    let _ = writeln!(
                        t,
                        "\t@%p1 bra L{};",
                        (index + 1 + far).min(self.steps.len())
                    );
                }
                Step::Add(n) => {
                    let _ = writeln!(t, "\tadd.u32 %r8, %r8, {n};\n\tst.global.u32 [%rd1], %r8;");
                }
                Step::Store { negated } => {
                    let not = if *negated { "!" } else { "" };
                    let _ = writeln!(
                        t,
                        "\tadd.u32 %r8, %r8, 1;\n\t@{not}%p1 st.global.u32 [%rd1], %r8;"
                    );
                }
                Step::Load { negated } => {
                    let not = if *negated { "!" } else { "" };
                    let _ = writeln!(t, "\t@{not}%p1 ld.global.u32 %r8, [%rd1];");
                }
                Step::Barrier => t.push_str("\tbarrier.sync 0;\n"),
                Step::Call => t.push_str(
                    "\t{\n\t.param .b32 a;\n\tst.param.b32 [a], %r1;\n\tcall leave, (a);\n\t}\n",
                ),
            }
        }
        let _ = writeln!(t, "L{}:\n\t{}\n}}", self.steps.len(), self.end);
        t
    }
}

/// What one thread does, or all together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deeds {
    stores: u64,
    stored: u64,
    loads: u64,
    loaded: u64,
    branches: u64,
    taken: u64,
}

impl Program {
    /// Adds what thread `i` does.
    fn run(&self, i: u32, deeds: &mut Deeds) {
        let (mut result, mut cell, mut at) = (0u32, 0u32, 0);
        while let Some((step, modulus, rest)) = self.steps.get(at) {
            let p = i % modulus == rest % modulus;
            at += 1;
            match step {
                Step::Leave { negated, .. } if p != *negated => return,
                Step::Leave { .. } | Step::Barrier => {}
                Step::Skip(far) => {
                    deeds.branches += 1;
                    deeds.taken += u64::from(p);
                    at = if p {
                        (at + far).min(self.steps.len())
                    } else {
                        at
                    };
                }
                Step::Add(n) => {
                    result = result.wrapping_add(*n);
                    cell = result;
                    deeds.stores += 1;
                    deeds.stored += u64::from(result);
                }
                Step::Store { negated } => {
                    result = result.wrapping_add(1);
                    if p != *negated {
                        cell = result;
                        deeds.stores += 1;
                        deeds.stored += u64::from(result);
                    }
                }
                Step::Load { negated } if p != *negated => {
                    result = cell;
                    deeds.loads += 1;
                    deeds.loaded += u64::from(result);
                }
                Step::Load { .. } => {}
                Step::Call if i % 5 == 1 => return,
                Step::Call => {}
            }
        }
    }
}

fn try_program(program: &Program, calls: bool, seed: Option<u64>, shape: &Shape) {
    let text = program.text();
    let module = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let lanes = counter(10, true);
    let mut attachments = attach(&fragments, |site, scope| {
        !calls || site == Site::Entry || scope == Scope::Thread
    });
    attachments.push(Attachment {
        site: Site::Entry,
        scope: Scope::Warp,
        select: every(),
        fragment: &lanes,
        gate: None,
        choice: None,
    });
    let middle = [
        ("mem.thread:value0|op=st.global.*", 6),
        ("mem.warp|op=st.global.*|lanes", 8),
        ("mem.thread:value0|op=ld.global.*|after", 12),
        ("branch.thread:taken", 14),
        ("mem.thread|op=st.global.*|sum", 16),
        ("branch.thread|sum", 18),
    ];
    let middle = middle.map(|(word, base)| wanted(word, base));
    attachments.extend(attached(&middle));
    let mut deeds = Deeds::default();
    for i in 0..shape.blocks() * shape.threads() {
        program.run(i as u32, &mut deeds);
    }
    let (sliced, slice_variant) = slice(&module, "k", &attachments, &OPTIONS).unwrap();
    let (cloned, clone_variants) =
        clone_in_module(&module, &[("k", attachments)], &OPTIONS).unwrap();
    let gpu = gpu(seed);
    let session = Session::new(&gpu);
    let bytes = shape.blocks() * shape.threads() * 4;
    let out = alloc(&gpu, bytes);
    let params = [&out.to_le_bytes()[..], &0u32.to_le_bytes()].concat();
    let original = gpu.load(&text).unwrap();
    run(&gpu, &original, "k", shape, &params);
    let expected = read(&gpu, out, bytes);
    for (ptx, variant) in [(&sliced, &slice_variant), (&cloned, &clone_variants[0])] {
        gpu.fill(out, 0, bytes).unwrap();
        let module = gpu.load(ptx).unwrap();
        session.bind(&module, &original, variant);
        let counts = session.launch(&module, variant, shape, &params);
        check(&counts, shape, seed.is_some(), !calls, &text);
        assert_eq!(
            counts[9], counts[6],
            "lanes of the groups that store: {text}"
        );
        let counted = Deeds {
            stores: counts[6],
            stored: counts[7],
            loads: counts[12],
            loaded: counts[13],
            branches: counts[14],
            taken: counts[15],
        };
        assert_eq!(counted, deeds, "{text}");
        // Sums that threads keep, with a copy for each of two multiprocessors.
        let kept = |at: usize| counts[at] + counts[at + 32];
        assert_eq!(
            (kept(16), kept(18)),
            (deeds.stores, deeds.branches),
            "{text}"
        );
        assert_eq!(kept(17) as u32, (deeds.stores as u32) << 30, "{text}");
        assert!(
            read(&gpu, out, bytes) == expected,
            "the output differs: {text}"
        );
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1..3u32, 1..3u32, 1..50u32, 1..3u32, 1..3u32).prop_map(|(gx, gz, bx, by, bz)| Shape {
        grid: [gx, 1, gz],
        block: [bx, by, bz],
        n: 0,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn every_thread_warp_and_block_is_counted(program in programs(false), seed: Option<u64>, shape in shapes()) {
        try_program(&program, false, seed, &shape);
    }

    #[test]
    fn every_thread_is_counted_where_functions_end_threads(program in programs(true), seed: Option<u64>, shape in shapes()) {
        try_program(&program, true, seed, &shape);
    }
}
