//! Programs in the middle of kernels on the soft GPU: on kernels whose accesses, branches and
//! barriers are known in closed form every count and every captured value is exact, and the results
//! stay what they were.

use crate::common::{OPTIONS, nvcc, ptxas, scratch};
use crate::device::{COUNTERS, SHAPES, Session, Shape, alloc, gpu, read, run};
use crate::words::{Wanted, attached, wanted};
use warpbpf_patch::{Options, Variant, clone_in_module, slice};

const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n";

/// A block that is no whole number of warps, twice.
const SHAPE: Shape = Shape {
    grid: [2, 1, 1],
    block: [50, 1, 1],
    n: 0,
};

/// `%r1`: number of the thread; `%rd1`: the buffer; `%rd2`: this thread's 8 bytes of it.
const START: &str = "\t.reg .pred %p<5>;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n\
    \tmov.u32 %r2, %ctaid.x;\n\tmov.u32 %r3, %ntid.x;\n\tmov.u32 %r4, %tid.x;\n\tmad.lo.s32 %r1, %r2, %r3, %r4;\n\
    \tld.param.u64 %rd1, [p];\n\tmad.wide.u32 %rd2, %r1, 8, %rd1;\n";

struct Made {
    text: String,
    variant: Variant,
}

/// Slice and clone of kernel `k`, inline and out of line, with what the words ask for: the first
/// one counts from counter 0 on, the next behind it.
fn make(text: &str, words: &[(&str, usize)]) -> Vec<Made> {
    let all: Vec<Wanted> = words
        .iter()
        .map(|(word, base)| wanted(word, *base))
        .collect();
    let module = warpbpf_ptx::index(text).unwrap();
    let mut made = Vec::new();
    for out_of_line in [false, true] {
        let options = Options {
            out_of_line,
            ..OPTIONS
        };
        let (text, variant) = slice(&module, "k", &attached(&all), &options).unwrap();
        made.push(Made { text, variant });
        let requests = [("k", attached(&all))];
        let (text, mut variants) = clone_in_module(&module, &requests, &options).unwrap();
        let variant = variants.remove(0);
        made.push(Made { text, variant });
    }
    made
}

/// Runs `k(p)` of `text` with a buffer of 8 bytes per thread that holds `input`, and every variant
/// of it in several schedules: the buffer ends up the same, and the counters are what `expected`
/// says, given the buffer's address.
fn check(
    text: &str,
    words: &[(&str, usize)],
    input: impl Fn(u64, u64) -> u64,
    expected: impl Fn(u64) -> Vec<u64>,
) {
    let threads = SHAPE.blocks() * SHAPE.threads();
    for made in make(text, words) {
        for seed in [None, Some(1), Some(2)] {
            let gpu = gpu(seed);
            let session = Session::new(&gpu);
            let buffer = alloc(&gpu, threads * 8);
            let fill = || {
                for i in 0..threads {
                    let value = input(buffer, i).to_le_bytes();
                    gpu.write(buffer + i * 8, &value).unwrap();
                }
            };
            let original = gpu.load(text).unwrap();
            fill();
            run(&gpu, &original, "k", &SHAPE, &buffer.to_le_bytes());
            let results = read(&gpu, buffer, threads * 8);
            fill();
            let module = gpu.load(&made.text).unwrap();
            session.bind(&module, &original, &made.variant);
            let counts = session.launch(&module, &made.variant, &SHAPE, &buffer.to_le_bytes());
            let what = format!("seed {seed:?}, {}\n{}", made.variant.entry, made.text);
            assert!(read(&gpu, buffer, threads * 8) == results, "{what}");
            let mut wanted = expected(buffer);
            wanted.resize(COUNTERS, 0);
            assert_eq!(counts, wanted, "{what}");
        }
    }
}

fn kernel(body: &str) -> String {
    format!("{HEAD}.visible .entry k(.param .u64 p)\n{{\n{START}{body}\tret;\n}}\n")
}

const THREADS: u64 = 100;

fn sum(values: impl Fn(u64) -> u64) -> u64 {
    (0..THREADS).map(values).fold(0, u64::wrapping_add)
}

#[test]
fn a_load_gives_address_bytes_and_value() {
    let text = kernel(
        "\tld.global.u64 %rd3, [%rd2];\n\tadd.s64 %rd3, %rd3, 1;\n\tst.global.u64 [%rd2], %rd3;\n",
    );
    let words = [
        (
            "mem.thread:address,bytes,kind,space|kind=load|space=global",
            0,
        ),
        ("mem.thread:address,value0,valuebytes|kind=store", 5),
        ("mem.thread:value0|kind=load|space=global|after", 9),
    ];
    check(
        &text,
        &words,
        |_, i| i * i,
        |buffer| {
            let addresses = sum(|i| buffer + i * 8);
            vec![
                THREADS,
                addresses,
                THREADS * 8,
                THREADS,
                THREADS,
                THREADS,
                addresses,
                sum(|i| i * i + 1),
                THREADS * 8,
                THREADS,
                sum(|i| i * i),
            ]
        },
    );
}

#[test]
fn what_a_predicate_holds_back_is_not_counted() {
    let text = kernel(
        "\tand.b32 %r5, %r1, 3;\n\tsetp.eq.u32 %p1, %r5, 1;\n\t@%p1 st.global.u32 [%rd2], %r1;\n\
         \t@!%p1 ld.global.v2.u32 {%r6, %r7}, [%rd2];\n\t@!%p1 st.global.v2.u32 [%rd2], {%r7, %r6};\n",
    );
    let words = [
        ("mem.thread:value0|op=st.global.u32", 0),
        ("mem.thread:value0|op=st.global.v2.u32", 2),
        ("mem.thread:address,value0|op=ld.global.v2.u32|after", 4),
        ("mem.warp|op=st.global.u32|lanes", 8),
    ];
    // The group counts are the schedule's business; lanes of counter 9 are not.
    let text_one = text.clone();
    let threads = |keep: bool| move |i: u64| u64::from((i % 4 == 1) == keep);
    let without = &words[..3];
    check(
        &text_one,
        without,
        |_, i| i << 32 | (i + 7),
        |buffer| {
            vec![
                sum(threads(true)),
                sum(|i| threads(true)(i) * i),
                sum(threads(false)),
                sum(|i| threads(false)(i) * ((i + 7) << 32 | i)),
                sum(threads(false)),
                sum(|i| threads(false)(i) * (buffer + i * 8)),
                sum(|i| threads(false)(i) * (i << 32 | (i + 7))),
            ]
        },
    );
    for made in make(&text, &words[3..]) {
        for seed in [None, Some(3)] {
            let gpu = gpu(seed);
            let session = Session::new(&gpu);
            let buffer = alloc(&gpu, THREADS * 8);
            let module = gpu.load(&made.text).unwrap();
            session.bind(&module, &module, &made.variant);
            let counts = session.launch(&module, &made.variant, &SHAPE, &buffer.to_le_bytes());
            assert_eq!(counts[9], sum(threads(true)));
            // Blocks of a whole warp and of 18 threads.
            assert!(counts[8] >= 4, "{}", counts[8]);
            assert!(seed.is_some() || counts[8] == 4, "{}", counts[8]);
        }
    }
}

#[test]
fn an_address_is_taken_before_the_load_overwrites_it() {
    // Each thread's word points to the next thread's, and that one's is read through it.
    let text = kernel(
        "\tmov.b64 %rd4, %rd2;\n\tld.global.u64 %rd2, [%rd2];\n\tld.global.u64 %rd2, [%rd2];\n\
         \tbar.sync 0;\n\tst.global.u64 [%rd4], %rd2;\n",
    );
    let next = |i: u64| if i.is_multiple_of(50) { i } else { i - 1 };
    let words = [("mem.thread:address,value0|op=ld.global.u64|after", 0)];
    check(
        &text,
        &words,
        |buffer, i| buffer + next(i) * 8,
        |buffer| {
            vec![
                2 * THREADS,
                sum(|i| buffer + i * 8 + buffer + next(i) * 8),
                sum(|i| buffer + next(i) * 8 + buffer + next(next(i)) * 8),
            ]
        },
    );
}

#[test]
fn an_atomic_is_executed_once() {
    let text = kernel("\tmov.u32 %r5, 3;\n\tatom.global.add.u32 %r5, [%rd1], %r5;\n");
    let words = [
        ("mem.thread:value0,value1,valuebytes|op=atom.*|after", 0),
        ("mem.thread:value0,valuebytes|op=atom.*", 4),
        ("insn.thread:op1,opcount|op=atom.*|after", 7),
    ];
    check(
        &text,
        &words,
        |_, _| 0,
        |_| {
            vec![
                THREADS,
                THREADS * 3,
                // 0, 3, 6 …
                sum(|i| i * 3),
                THREADS * 12,
                THREADS,
                THREADS * 3,
                THREADS * 4,
                THREADS,
                THREADS * 3,
                THREADS * 2,
            ]
        },
    );
}

#[test]
fn branches_say_who_takes_them() {
    let text = kernel(
        "\trem.u32 %r5, %r1, 3;\n\tsetp.eq.u32 %p1, %r5, 0;\n\t@%p1 bra A;\n\tst.global.u64 [%rd2], 5;\nA:\n\
         \tsetp.lt.u32 %p2, %r1, 70;\n\t@!%p2 bra B;\n\tst.global.u64 [%rd2], 6;\nB:\n",
    );
    let words = [("branch.thread:taken", 0), ("branch.warp:takenmask", 2)];
    let taken = |i: u64| [i.is_multiple_of(3), i >= 70];
    let all = make(&text, &words);
    for made in all {
        for seed in [None, Some(1), Some(2), Some(3)] {
            let gpu = gpu(seed);
            let session = Session::new(&gpu);
            let buffer = alloc(&gpu, THREADS * 8);
            let module = gpu.load(&made.text).unwrap();
            session.bind(&module, &module, &made.variant);
            let counts = session.launch(&module, &made.variant, &SHAPE, &buffer.to_le_bytes());
            assert_eq!(counts[0], 2 * THREADS);
            assert_eq!(
                counts[1],
                sum(|i| taken(i).iter().filter(|t| **t).count() as u64)
            );
            // The groups of one branch have no lane in common, so their masks add up to the mask of
            // all lanes.
            let masks = sum(|i| {
                let lane = 1u64 << (i % 50 % 32);
                taken(i).iter().filter(|t| **t).count() as u64 * lane
            });
            assert_eq!(counts[3], masks, "seed {seed:?}");
        }
    }
}

#[test]
fn barriers_are_counted_and_timed() {
    let text = kernel(
        "\tmov.u32 %r5, 2;\nLOOP:\n\tbar.sync 0;\n\tbarrier.sync %r5, 64;\n\tbar.warp.sync -1;\n\tsub.u32 %r5, %r5, 1;\n\
         \tsetp.ne.u32 %p1, %r5, 0;\n\t@%p1 bra LOOP;\n\tst.global.u32 [%rd2], %r1;\n",
    );
    let text = text.replace("barrier.sync %r5, 64", "barrier.sync %r5");
    let words = [
        ("barrier.thread:barkind,barid,barthreads", 0),
        ("barrier.block|op=bar.sync", 4),
        ("barrier.thread|after", 5),
    ];
    check(
        &text,
        &words,
        |_, _| 0,
        |_| {
            vec![
                THREADS * 6,
                THREADS * (1 + 1 + 3) * 2,
                THREADS * 3,
                0,
                4,
                THREADS * 6,
            ]
        },
    );
    let words = [("barrier.thread:waited|after", 0)];
    for made in make(&text, &words) {
        let gpu = gpu(Some(1));
        let session = Session::new(&gpu);
        let buffer = alloc(&gpu, THREADS * 8);
        let module = gpu.load(&made.text).unwrap();
        session.bind(&module, &module, &made.variant);
        let counts = session.launch(&module, &made.variant, &SHAPE, &buffer.to_le_bytes());
        assert_eq!(counts[0], THREADS * 6);
        assert!(counts[1] > 0 && counts[1] < 1 << 40, "{}", counts[1]);
    }
}

#[test]
fn functions_begin_and_return() {
    let function = ".func (.param .b32 r) half(.param .b32 a)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\
        \tld.param.u32 %r1, [a];\n\tand.b32 %r2, %r1, 1;\n\tsetp.eq.u32 %p1, %r2, 1;\n\tshr.u32 %r2, %r1, 1;\n\
        \tst.param.b32 [r], %r2;\n\t@%p1 ret;\n\tadd.u32 %r2, %r2, 1000;\n\tst.param.b32 [r], %r2;\n\tret;\n}\n";
    let text = kernel(
        "\tsetp.lt.u32 %p1, %r1, 60;\n\t@!%p1 bra OUT;\n\t{\n\t.param .b32 a;\n\t.param .b32 b;\n\
         \tst.param.b32 [a], %r1;\n\tcall.uni (b), half, (a);\n\tld.param.b32 %r5, [b];\n\t}\n\
         \tst.global.u32 [%rd2], %r5;\nOUT:\n",
    );
    let text = text.replace(HEAD, &format!("{HEAD}{function}"));
    let words = [
        ("func.thread:argc", 0),
        ("funcret.thread:site", 2),
        ("insn.thread|op=shr.*", 4),
    ];
    check(
        &text,
        &words,
        |_, _| 0,
        |_| {
            // Sites are numbered from 1: start, shift, one `ret`, the other.
            vec![60, 60, 60, 30 * 3 + 30 * 4, 60]
        },
    );
}

#[test]
fn lines_count_each_pass() {
    let text = kernel(
        "\t.loc 1 10 1\n\tmov.u32 %r5, 0;\n\t.loc 1 11 1\nLOOP:\n\tadd.u32 %r5, %r5, 1;\n\t.loc 1 12 1\n\
         \tsetp.gt.u32 %p1, %r1, 30;\n\t@%p1 st.global.u32 [%rd2], %r5;\n\t.loc 1 11 9\n\tsetp.lt.u32 %p2, %r5, 4;\n\
         \t@%p2 bra LOOP;\n\t.loc 1 13 1\n\t@%p1 ld.global.u32 %r6, [%rd2];\n",
    ) + "\t.file 1 \"/src/a.cu\"\n";
    let words = [
        ("line.thread:line|at=a.cu:10", 0),
        ("line.thread:line|at=a.cu:11", 2),
        ("line.thread|at=src/a.cu:12", 4),
        ("mem.thread|at=a.cu:12", 5),
        // Control passes the line, though its first instruction does nothing for some.
        ("line.thread|at=/src/a.cu:13", 6),
        ("line.thread|at=c.cu:13", 7),
    ];
    check(
        &text,
        &words,
        |_, _| 0,
        |_| {
            vec![
                THREADS,
                THREADS * 10,
                THREADS * 8,
                THREADS * 88,
                THREADS * 4,
                69 * 4,
                THREADS,
                0,
            ]
        },
    );
}

#[test]
fn arguments_are_read_everywhere_in_the_kernel() {
    let text = kernel("\tst.global.u32 [%rd2], %r1;\n");
    let words = [
        ("entry.thread:arg0,argc", 0),
        ("mem.thread:arg0,argc,arg1|kind=store", 3),
        ("exit.thread:arg0,site", 7),
    ];
    check(
        &text,
        &words,
        |_, _| 0,
        |buffer| {
            let all = THREADS * buffer;
            vec![
                THREADS, all, THREADS, THREADS, all, THREADS, 0, THREADS, all, 0,
            ]
        },
    );
}

#[test]
fn hundreds_of_sites_in_one_function() {
    let mut body = String::new();
    for at in 0..300 {
        let guard = if at % 3 == 0 { "@%p1 " } else { "" };
        body += &format!("\tsetp.lt.u32 %p1, %r1, {};\n", at % 100);
        body += &format!("\t{guard}atom.global.add.u32 %r5, [%rd1], {at};\n");
    }
    let text = kernel(&body);
    let words = [
        ("mem.thread:value0|op=atom.*", 0),
        ("insn.thread|op=setp.*", 2),
    ];
    let runs = |at: u64| {
        if at.is_multiple_of(3) {
            at % 100
        } else {
            THREADS
        }
    };
    check(
        &text,
        &words,
        |_, _| 0,
        |_| {
            vec![
                (0..300).map(runs).sum(),
                (0..300).map(|at| runs(at) * at).sum(),
                300 * THREADS,
            ]
        },
    );
    let words = [
        ("mem.warp:address,value0|after", 0),
        ("insn.warp:op0,op1|after", 4),
    ];
    // The slice with its programs inline, and the clone that calls them.
    for (number, made) in make(&text, &words).iter().enumerate().step_by(3) {
        ptxas(
            &scratch("middle"),
            &format!("hundreds{number}"),
            &made.text,
            "90",
            &[],
        );
        assert_eq!(made.variant.sites.len(), 301 + 300 * 2 + 6);
    }
}

#[test]
fn programs_at_ways_out_keep_no_thread_from_leaving() {
    // Some threads leave by a branch to the common end while the others wait for each other.
    let text = kernel(
        "\tsetp.lt.u32 %p1, %r4, 7;\n\t@%p1 bra OUT;\n\tbar.sync 0;\n\tst.global.u32 [%rd2], %r1;\n\tbar.sync 0;\nOUT:\n",
    );
    check(
        &text,
        &[("insn.thread|op=ret", 0)],
        |_, _| 9,
        |_| vec![THREADS],
    );
    let words = [
        ("insn.thread|op=ret", 0),
        ("exit.thread:arg0", 3),
        ("exit.block:argc", 6),
    ];
    check(
        &text,
        &words,
        |_, _| 9,
        |buffer| vec![THREADS, 0, 0, THREADS, THREADS * buffer, 0, 2, 2],
    );
    for made in make(&text, &words[..1]) {
        // One copy for the branch, one before the `ret`.
        assert_eq!(made.text.matches("wbpf_exit_").count(), 2, "{}", made.text);
    }
}

/// Every kind of site in what nvcc makes: results stay, and per site kind each thread is in one
/// group.
fn compare(source: &str, name: &str) {
    let text = nvcc(&scratch("middle"), source, "90", &["-lineinfo"]);
    let module = warpbpf_ptx::index(&text).unwrap();
    let mut words = Vec::new();
    for (site, base) in [("mem", 0), ("branch", 3), ("barrier", 6), ("line", 9)] {
        words.push(wanted(&format!("{site}.thread"), base));
        words.push(wanted(&format!("{site}.warp|lanes"), base + 1));
    }
    words.push(wanted("insn.thread|op=ret", 15));
    words.push(wanted("insn.thread|after", 12));
    words.push(wanted("mem.thread|after", 13));
    words.push(wanted("exit.thread:site", 14));
    let (sliced, slice_variant) = slice(&module, name, &attached(&words), &OPTIONS).unwrap();
    let options = Options {
        out_of_line: true,
        ..OPTIONS
    };
    let requests = [(name, attached(&words))];
    let (cloned, clone_variants) = clone_in_module(&module, &requests, &options).unwrap();
    for seed in [None, Some(1)] {
        for shape in &SHAPES {
            let gpu = gpu(seed);
            let session = Session::new(&gpu);
            let bytes = (shape.blocks() * shape.threads()).max(u64::from(shape.n)) * 4;
            let out = alloc(&gpu, bytes);
            let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
            let plain = gpu.load(&text).unwrap();
            run(&gpu, &plain, name, shape, &params);
            let expected = read(&gpu, out, bytes);
            let mut all = Vec::new();
            for (ptx, variant) in [(&sliced, &slice_variant), (&cloned, &clone_variants[0])] {
                let original = gpu.load(&text).unwrap();
                let module = gpu.load(ptx).unwrap();
                session.bind(&module, &original, variant);
                if variant.globals.is_empty() {
                    session.bind(&module, &module, variant);
                }
                gpu.fill(out, 0, bytes).unwrap();
                let counts = session.launch(&module, variant, shape, &params);
                let what = format!("{name}, seed {seed:?}, block {:?}", shape.block);
                assert!(
                    read(&gpu, out, bytes) == expected,
                    "{what}: the output differs"
                );
                for base in [0, 3, 6, 9] {
                    assert_eq!(counts[base], counts[base + 2], "{what}: {base}");
                }
                assert!(counts[0] > 0 && counts[3] > 0 && counts[9] > 0, "{what}");
                assert_eq!(counts[13], counts[0], "{what}");
                // A thread leaves by `ret` where nothing ends it elsewhere, and functions return.
                if name != "in_function" {
                    assert_eq!(counts[15], shape.blocks() * shape.threads(), "{what}");
                }
                all.push([counts[0], counts[3], counts[6], counts[9], counts[12]]);
            }
            assert_eq!(all[0], all[1], "{name}: slice and clone");
        }
    }
}

#[test]
fn kernels_with_early_returns() {
    compare("exits.cu", "early");
}

#[test]
fn kernels_with_exits_in_functions() {
    compare("exits.cu", "in_function");
}

#[test]
fn kernels_with_barriers() {
    compare("barriers.cu", "early_barrier");
    compare("barriers.cu", "early_loop");
    compare("barriers.cu", "loop_exit");
}
