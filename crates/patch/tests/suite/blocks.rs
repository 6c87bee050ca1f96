//! Aggregates over blocks, from the program to what its variant counts on the soft GPU: each call
//! gives its result once per block, and it is what a model says, however threads leave and however
//! the schedule splits the warps.

use std::fmt::Write as _;

use crate::common::{OPTIONS, counter, every, nvcc, ptxas, scratch};
use crate::device::{SHAPES, Session, Shape, alloc, gpu, read, run};
use crate::random;
use proptest::prelude::*;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{ArrayLayout, MapLayout};
use warpbpf_abi::maps::MapType;
use warpbpf_codegen::{Env, Fragment, Input, MapBinding, SlotSpace, Target, compile};
use warpbpf_object::{MapDef, MapKind};
use warpbpf_patch::{Attachment, Options, Variant, clone_in_module, slice};
use warpbpf_softgpu::Module;
use warpbpf_verify::{Platform, verify};

/// Words that each block has in the counters: two for each call, the total and how often there was
/// one.
const WORDS: usize = 16;
/// Where the counters of programs that fire once per warp and per block at exit lie.
const SCOPED: [usize; 2] = [200, 201];

/// An aggregate: its helper, and what values are together.
#[derive(Clone, Copy, Debug)]
struct Call {
    helper: u32,
    merge: fn(u64, u64) -> u64,
}

const CALLS: [Call; 5] = [
    Call {
        helper: 546,
        merge: u64::wrapping_add,
    },
    Call {
        helper: 547,
        merge: u64::min,
    },
    Call {
        helper: 548,
        merge: u64::max,
    },
    Call {
        helper: 549,
        merge: |a, b| a & b,
    },
    Call {
        helper: 550,
        merge: |a, b| a | b,
    },
];

/// What thread `thread` of the grid brings to a call.
fn value(call: Call, thread: u64) -> u64 {
    let mixed = thread.wrapping_add(1).wrapping_mul(FACTOR as u64);
    match call.helper {
        // Else all bits of some, and none of all, are set.
        549 => mixed | 0x00ff_0000_0000_0001,
        550 => mixed & 0x7f00_ffff_0000_fff0,
        _ => mixed,
    }
}

const FACTOR: i64 = -1_640_531_527;

/// A program with `calls`, each with its number among those of the kernel.
fn program(calls: &[(usize, Call)]) -> String {
    let mut text = String::new();
    for (number, call) in calls {
        let mask = match call.helper {
            549 => "r7 = 0x00ff000000000001 ll\nr1 |= r7\n",
            550 => "r7 = 0x7f00ffff0000fff0 ll\nr1 &= r7\n",
            _ => "",
        };
        let (total, count) = (number * 16, number * 16 + 8);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "call 539\nr1 = r0\nr1 += 1\nr1 *= {FACTOR}\n{mask}r2 = r10\nr2 += -8\ncall {}\n\
             r8 = *(u64 *)(r10 - 8)\nif r0 == 1 goto last{number}\nif r8 == 0 goto next{number}\nr8 = 1\n\
             r3 = map[0][0] + {}\nlock *(u64 *)(r3 + 0) += r8\ngoto next{number}\n\
             last{number}:\ncall 538\nif r0 > 11 goto next{number}\nr0 *= {}\nr3 = map[0][0] + 0\nr3 += r0\n\
             lock *(u64 *)(r3 + {total}) += r8\nr8 = 1\nlock *(u64 *)(r3 + {count}) += r8\nnext{number}:\n",
            call.helper,
            STRAY * 8,
            WORDS * 8,
        );
    }
    text + "r0 = 0\nexit\n"
}

/// The counter of threads that got a total and were not the last.
const STRAY: usize = 202;

fn compiled(text: &str, site: Site) -> Fragment {
    let words = crate::device::COUNTERS as u32;
    let map = MapDef {
        name: "counters".into(),
        map_type: MapType::Array as u32,
        key_size: 4,
        value_size: words * 8,
        max_entries: 1,
        flags: 0,
        kind: MapKind::User,
        extra: Default::default(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    };
    let code = warpbpf_ebpf::assemble(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let platform = Platform::new(site).with_budget(1 << 20);
    let verified = verify(code, &[map], &platform).unwrap_or_else(|e| panic!("{}", e.render()));
    let layout = MapLayout::Array(ArrayLayout {
        max_entries: 1,
        value_size: words * 8,
        shards: 1,
        summed: false,
    });
    let env = Env {
        target: Target {
            ptx: (8, 3),
            sm: 90,
        },
        site,
        scope: Scope::Thread,
        kernel_id: 0,
        maps: vec![MapBinding {
            slot: 1,
            session_index: 0,
            layout,
            inner: None,
        }],
        printk: None,
        slots: SlotSpace::Const,
        input: Input::Context,
        keep_sums: false,
        meets: true,
        args: Vec::new(),
    };
    compile(&verified, &env).unwrap_or_else(|e| panic!("{e}"))
}

/// Two programs at entry and two at exit with seven calls, and what counts at exit by its scope.
struct Programs(Vec<(Site, Scope, Fragment)>);

/// The calls in the order of their numbers.
const NUMBERED: [Call; 7] = [
    CALLS[0], CALLS[1], CALLS[2], CALLS[3], CALLS[4], CALLS[0], CALLS[1],
];

impl Programs {
    fn new(at_exit: bool) -> Programs {
        let made = |site, numbers: &[usize]| {
            let calls: Vec<(usize, Call)> = numbers.iter().map(|i| (*i, NUMBERED[*i])).collect();
            (site, Scope::Thread, compiled(&program(&calls), site))
        };
        let mut all = vec![made(Site::Entry, &[1, 0]), made(Site::Entry, &[2])];
        if at_exit {
            all.push(made(Site::Exit, &[3, 4, 5]));
            all.push((Site::Exit, Scope::Block, counter(SCOPED[1], false)));
            all.push(made(Site::Exit, &[6]));
            all.push((Site::Exit, Scope::Warp, counter(SCOPED[0], false)));
        } else {
            all.push(made(Site::Entry, &[3, 4, 5, 6]));
        }
        Programs(all)
    }

    fn attachments(&self) -> Vec<Attachment<'_>> {
        let all = self.0.iter();
        all.map(|(site, scope, fragment)| Attachment {
            site: *site,
            scope: *scope,
            select: every(),
            fragment,
            gate: None,
            choice: None,
        })
        .collect()
    }
}

fn check(counts: &[u64], shape: &Shape, at_exit: bool, what: &str) {
    for block in 0..shape.blocks() {
        for (number, call) in NUMBERED.iter().enumerate() {
            let threads = block * shape.threads()..(block + 1) * shape.threads();
            let expected = threads
                .map(|thread| value(*call, thread))
                .reduce(call.merge)
                .unwrap();
            let at = block as usize * WORDS + number * 2;
            assert_eq!(
                (counts[at], counts[at + 1]),
                (expected, 1),
                "{what}: block {block}, call {number}: {call:?}"
            );
        }
    }
    assert_eq!(counts[STRAY], 0, "{what}: a total in another thread");
    let scoped = SCOPED.map(|at| counts[at]);
    let fired = match at_exit {
        true => [shape.blocks() * shape.warps(), shape.blocks()],
        false => [0; 2],
    };
    assert_eq!(scoped, fired, "{what}: exit.warp, exit.block");
}

/// Runs kernel `name (int* out, int n)` of `text` as slice and as clone in every shape and
/// schedule, inline and by calls.
fn compare(text: &str, name: &str, at_exit: bool, shapes: &[Shape], seeds: &[Option<u64>]) {
    let ast = warpbpf_ptx::index(text).unwrap();
    let programs = Programs::new(at_exit);
    for out_of_line in [false, true] {
        let options = Options {
            out_of_line,
            ..OPTIONS
        };
        let attachments = programs.attachments();
        let (slice_ptx, of_slice) = slice(&ast, name, &attachments, &options).unwrap();
        let (clone_ptx, of_clone) =
            clone_in_module(&ast, &[(name, attachments)], &options).unwrap();
        assert_eq!(of_slice.hidden.unwrap().block_cells, NUMBERED.len() as u32);
        for (shape, seed) in shapes
            .iter()
            .flat_map(|s| seeds.iter().map(move |i| (s, i)))
        {
            let gpu = gpu(*seed);
            let session = Session::new(&gpu);
            let bytes = (shape.blocks() * shape.threads()).max(u64::from(shape.n)) * 4;
            let out = alloc(&gpu, bytes);
            let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
            let original = gpu.load(text).unwrap();
            run(&gpu, &original, name, shape, &params);
            let expected = read(&gpu, out, bytes);
            let both: [(&str, &str, &Variant); 2] = [
                ("slice", &slice_ptx, &of_slice),
                ("clone", &clone_ptx, &of_clone[0]),
            ];
            for (kind, ptx, variant) in both {
                let what = format!("{kind} of {name}, called {out_of_line}, {seed:?}, {shape:?}");
                let module = gpu.load(ptx).unwrap();
                let original: &Module = if kind == "slice" { &original } else { &module };
                session.bind(&module, original, variant);
                gpu.fill(out, 0, bytes).unwrap();
                let counts = session.launch(&module, variant, shape, &params);
                check(&counts, shape, at_exit, &what);
                assert!(read(&gpu, out, bytes) == expected, "{what}: the output");
            }
        }
    }
}

const SEEDS: [Option<u64>; 3] = [None, Some(1), Some(2)];

fn compare_source(source: &str, name: &str, at_exit: bool) {
    let text = nvcc(&scratch("blocks"), source, "90", &[]);
    compare(&text, name, at_exit, &SHAPES, &SEEDS);
}

#[test]
fn threads_that_leave_early() {
    compare_source("exits.cu", "early", true);
}

#[test]
fn threads_that_leave_in_a_function() {
    compare_source("exits.cu", "in_function", true);
}

#[test]
fn threads_that_wait_for_others() {
    compare_source("barriers.cu", "loop_exit", true);
}

#[test]
fn only_at_entry() {
    compare_source("exits.cu", "predicated", false);
}

#[test]
fn a_kernel_that_knows_its_own_pointers_is_cloned() {
    let text = nvcc(&scratch("blocks"), "closures.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let programs = Programs::new(true);
    let requests = ["make_shapes", "virtuals"].map(|name| (name, programs.attachments()));
    let (ptx, variants) = clone_in_module(&ast, &requests, &OPTIONS).unwrap();
    for seed in SEEDS {
        let gpu = gpu(seed);
        let session = Session::new(&gpu);
        let module = gpu.load(&ptx).unwrap();
        session.bind(&module, &module, &variants[0]);
        let one = Shape {
            grid: [1, 1, 1],
            block: [1, 1, 1],
            n: 1,
        };
        check(
            &session.launch(&module, &variants[0], &one, &[]),
            &one,
            true,
            "one thread",
        );
        for shape in &SHAPES[..2] {
            let out = alloc(&gpu, shape.blocks() * shape.threads() * 4);
            let counts = session.launch(&module, &variants[1], shape, &out.to_le_bytes());
            check(&counts, shape, true, &format!("{seed:?}, {shape:?}"));
        }
    }
}

#[test]
fn ptxas_takes_it() {
    let dir = scratch("blocks");
    for out_of_line in [false, true] {
        let text = nvcc(&dir, "barriers.cu", "90", &[]);
        let ast = warpbpf_ptx::index(&text).unwrap();
        let options = Options {
            out_of_line,
            ..OPTIONS
        };
        let programs = Programs::new(true);
        let made = slice(&ast, "early_loop", &programs.attachments(), &options);
        ptxas(&dir, "blocks", &made.unwrap().0, "90", &[]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_kernels(
        program in random::programs(true),
        seed in any::<Option<u64>>(),
        grid in (1..4u32, 1..3u32, 1..3u32),
        block in (1..50u32, 1..4u32, 1..3u32),
    ) {
        let shape = Shape {
            grid: [grid.0, grid.1, grid.2],
            block: [block.0, block.1, block.2],
            n: 0,
        };
        compare(&program.text(), "k", true, &[shape], &[seed]);
    }
}
