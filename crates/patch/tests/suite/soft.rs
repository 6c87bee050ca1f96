//! Variants run on the soft GPU: every count is exact, results and global state are those of the
//! original, and the launch record is zero again, however the schedule splits the warps.

use crate::common::{OPTIONS, attach, counter, counters, every, nvcc, scratch};
use crate::device::{SHAPES, Session, Shape, alloc, check, gpu, read, run};
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_patch::{Attachment, clone_in_module, slice};
use warpbpf_softgpu::Module;

/// Runs kernel `name (int* out, int n)` of `source` as slice and as clone in every shape and
/// schedule.
fn compare(source: &str, name: &str, counted: bool) {
    let dir = scratch("soft");
    let text = nvcc(&dir, source, "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let lanes = counter(10, true);
    let mut attachments = attach(&fragments, |site, scope| {
        counted || site == Site::Entry || scope == Scope::Thread
    });
    attachments.push(Attachment {
        site: Site::Entry,
        scope: Scope::Warp,
        select: every(),
        fragment: &lanes,
        gate: None,
        choice: None,
    });
    let (slice_ptx, slice_variant) = slice(&ast, name, &attachments, &OPTIONS).unwrap();
    let (clone_ptx, clone_variants) =
        clone_in_module(&ast, &[(name, attachments)], &OPTIONS).unwrap();
    for seed in [None, Some(1), Some(2), Some(3)] {
        for shape in &SHAPES {
            let gpu = gpu(seed);
            let session = Session::new(&gpu);
            let bytes = (shape.blocks() * shape.threads()).max(u64::from(shape.n)) * 4;
            let out = alloc(&gpu, bytes);
            let params = [&out.to_le_bytes()[..], &shape.n.to_le_bytes()].concat();
            let state = |module: &Module| -> Vec<Vec<u8>> {
                let names = slice_variant
                    .globals
                    .iter()
                    .map(|(_, name)| module.global(name).unwrap());
                names
                    .map(|(address, size)| read(&gpu, address, size))
                    .collect()
            };

            let plain = gpu.load(&text).unwrap();
            run(&gpu, &plain, name, shape, &params);
            let expected = read(&gpu, out, bytes);

            let original = gpu.load(&text).unwrap();
            let sliced = gpu.load(&slice_ptx).unwrap();
            session.bind(&sliced, &original, &slice_variant);
            gpu.fill(out, 0, bytes).unwrap();
            let counts = session.launch(&sliced, &slice_variant, shape, &params);
            let what = format!("slice of {name}, seed {seed:?}, block {:?}", shape.block);
            check(&counts, shape, seed.is_some(), counted, &what);
            assert!(
                read(&gpu, out, bytes) == expected,
                "{what}: the output differs"
            );
            assert_eq!(state(&original), state(&plain), "{what}: global state");

            let cloned = gpu.load(&clone_ptx).unwrap();
            session.bind(&cloned, &cloned, &clone_variants[0]);
            gpu.fill(out, 0, bytes).unwrap();
            let counts = session.launch(&cloned, &clone_variants[0], shape, &params);
            let what = format!("clone of {name}, seed {seed:?}, block {:?}", shape.block);
            check(&counts, shape, seed.is_some(), counted, &what);
            assert!(
                read(&gpu, out, bytes) == expected,
                "{what}: the output differs"
            );
        }
    }
}

#[test]
fn early_returns() {
    compare("exits.cu", "early", true);
}

#[test]
fn predicated_exits() {
    compare("exits.cu", "predicated", true);
}

#[test]
fn exits_in_a_function() {
    compare("exits.cu", "in_function", false);
}

#[test]
fn exits_before_a_barrier() {
    compare("barriers.cu", "early_barrier", true);
}

#[test]
fn exits_around_a_loop() {
    compare("barriers.cu", "early_loop", true);
}

#[test]
fn exits_between_barriers() {
    compare("barriers.cu", "loop_exit", true);
}

#[test]
fn globals_are_shared_with_the_original() {
    compare("globals.cu", "use_globals", true);
}

#[test]
fn a_slice_sees_what_the_original_wrote_and_the_other_way_round() {
    let dir = scratch("soft");
    let text = nvcc(&dir, "globals.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let attachments = attach(&fragments, |_, _| true);
    let (ptx, variant) = slice(&ast, "prepare", &attachments, &OPTIONS).unwrap();
    let shape = Shape {
        grid: [1, 1, 1],
        block: [64, 1, 1],
        n: 64,
    };
    let gpu = gpu(None);
    let session = Session::new(&gpu);
    let original = gpu.load(&text).unwrap();
    let sliced = gpu.load(&ptx).unwrap();
    session.bind(&sliced, &original, &variant);
    session.launch(&sliced, &variant, &shape, &2.5f32.to_le_bytes());
    run(&gpu, &original, "prepare", &shape, &2.5f32.to_le_bytes());
    let out = alloc(&gpu, 256);
    let params = [&out.to_le_bytes()[..], &64u32.to_le_bytes()].concat();
    run(&gpu, &original, "use_globals", &shape, &params);
    let bytes = read(&gpu, out, 4);
    // scale * table[3] + tile[0], table raised by 100 twice, once by each.
    assert_eq!(f32::from_le_bytes(bytes.try_into().unwrap()), 2.5 * 201.0);
}

/// Runs `kernels` of closures.cu and their clones on what `make_shapes` and its clone made.
fn shared_closures(kernels: &[&str]) {
    let dir = scratch("soft");
    let text = nvcc(&dir, "closures.cu", "90", &[]);
    let ast = warpbpf_ptx::index(&text).unwrap();
    let fragments = counters();
    let all = || attach(&fragments, |_, _| true);
    let mut requests = vec![("make_shapes", all())];
    requests.extend(kernels.iter().map(|k| (*k, all())));
    let (ptx, variants) = clone_in_module(&ast, &requests, &OPTIONS).unwrap();
    let gpu = gpu(None);
    let session = Session::new(&gpu);
    let module = gpu.load(&ptx).unwrap();
    session.bind(&module, &module, &variants[0]);
    let one = Shape {
        grid: [1, 1, 1],
        block: [1, 1, 1],
        n: 1,
    };
    let shape = Shape {
        grid: [2, 1, 1],
        block: [70, 1, 1],
        n: 70,
    };
    let out = alloc(&gpu, 280);
    for (kernel, variant) in kernels.iter().zip(&variants[1..]) {
        // Objects and pointers made by the original, used by the clone; then the other way round.
        run(&gpu, &module, "make_shapes", &one, &[]);
        let counts = session.launch(&module, variant, &shape, &out.to_le_bytes());
        assert_eq!(counts[..6], [140, 6, 2, 140, 6, 2], "{kernel}");
        let by_clone = read(&gpu, out, 280);
        gpu.fill(out, 0, 280).unwrap();
        let counts = session.launch(&module, &variants[0], &one, &[]);
        assert_eq!(counts[..6], [1; 6]);
        run(&gpu, &module, kernel, &shape, &out.to_le_bytes());
        let by_original = read(&gpu, out, 280);
        assert!(
            by_original == by_clone && by_clone.iter().any(|b| *b != 0),
            "{kernel}"
        );
    }
}

#[test]
fn constants_are_those_of_the_original() {
    shared_closures(&["constants"]);
}

#[test]
fn function_pointers_are_those_of_the_original() {
    shared_closures(&["pointers"]);
}

#[test]
fn objects_made_by_one_are_called_by_the_other() {
    shared_closures(&["virtuals"]);
}

#[test]
fn prints_of_both() {
    shared_closures(&["prints"]);
}
