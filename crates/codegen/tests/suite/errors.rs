//! What is refused, with the whole message.

use crate::common::{Case, array, hash, per_thread, ring, rodata};
use warpbpf_abi::attach::Site;
use warpbpf_abi::layout::{MapLayout, RingLayout};
use warpbpf_codegen::kernel::{Kernel, kernel};
use warpbpf_codegen::{CodegenError, Target, compile, dump_ir};
use warpbpf_ebpf::{Pc, assemble};
use warpbpf_verify::{Platform, verify};

const LOOKUP: &str = "
    *(u64 *)(r10 - 8) = 0
    r2 = r10
    r2 += -8
    r1 = map[0]
    call 1
    r0 = 0
    exit";

fn error(case: &Case) -> CodegenError {
    compile(&case.program, &case.env).expect_err("an error")
}

#[test]
fn old_targets() {
    let mut case = Case::new("r0 = 0\nexit", vec![]);
    case.env.target = Target {
        ptx: (8, 0),
        sm: 61,
    };
    assert_eq!(error(&case), CodegenError::TargetTooOld { sm: 61 });
    assert_eq!(
        error(&case).to_string(),
        "target `sm_61` is older than `sm_70`, which is the first with scoped memory operations: compile the \
         application for a newer GPU"
    );
    case.env.target = Target {
        ptx: (6, 1),
        sm: 70,
    };
    assert_eq!(
        error(&case).to_string(),
        "PTX version `6.1` is older than 6.2, which is the first with `activemask`: compile the application with \
         CUDA 9.2 or newer"
    );
    case.env.target = Target {
        ptx: (6, 2),
        sm: 70,
    };
    assert!(compile(&case.program, &case.env).is_ok());
}

#[test]
fn maps_that_are_not_bound() {
    let mut case = Case::new(LOOKUP, vec![array(8, 1)]);
    case.env.maps.clear();
    assert_eq!(
        error(&case),
        CodegenError::MapNotBound {
            pc: Pc(4),
            map: 0,
            bound: 0
        }
    );
    assert_eq!(
        error(&case).to_string(),
        "instruction `pc4` uses map `0`, but the environment binds only `0` maps: bind every map of the object"
    );
    assert_eq!(
        dump_ir(&case.program, &case.env, None),
        format!("{}\n", error(&case))
    );
}

#[test]
fn layouts_that_do_not_serve() {
    let mut case = Case::new(LOOKUP, vec![hash(8, 8, 8)]);
    case.env.maps[0].layout = MapLayout::Ring(RingLayout::new(1 << 16, 1));
    assert_eq!(
        error(&case).to_string(),
        "instruction `pc4` calls `bpf_map_lookup_elem` on map `0`, whose layout does not serve it: give the map a \
         fitting type"
    );
    let reserve = "r1 = map[0]\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto out\nr1 = r0\nr2 = 0\ncall 132\nout:\nr0 = 0\nexit";
    let mut case = Case::new(reserve, vec![ring(1 << 16, 1)]);
    case.env.maps[0].layout = array(8, 1).1;
    assert_eq!(
        error(&case),
        CodegenError::WrongLayout {
            pc: Pc(3),
            helper: "ringbuf_reserve",
            map: 0
        }
    );
    let value = "r1 = map[0][0] + 0\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit";
    let mut case = Case::new(value, vec![array(8, 1)]);
    case.env.maps[0].layout = per_thread(8, 1, 8).1;
    assert_eq!(
        error(&case),
        CodegenError::WrongLayout {
            pc: Pc(0),
            helper: "map_lookup_elem",
            map: 0
        }
    );
}

#[test]
fn printk_needs_its_ring() {
    let asm = "r1 = map[0][0] + 0\nr2 = 3\ncall 6\nr0 = 0\nexit";
    let mut case = Case::new(asm, vec![rodata(b"hi\0")]);
    case.env.printk = None;
    assert_eq!(
        error(&case).to_string(),
        "instruction `pc2` calls `bpf_trace_printk`, but the environment has no printk ring: bind one"
    );
}

#[test]
fn hash_arguments_have_a_limit() {
    let mut asm = String::from("r6 = map[1][0] + 0\n*(u64 *)(r10 - 8) = 1\n");
    asm.push_str("r1 = map[0]\nr2 = r10\nr2 += -8\nr3 = r6\nr4 = 0\ncall 2\nr0 = 0\nexit");
    // The verifier refuses what a function of the device cannot be given, so nothing that it
    // accepts fails here.
    let maps = [hash(8, 1024, 8).0, array(1024, 1).0];
    let code = assemble(&asm).expect("it assembles");
    let refused = verify(code, &maps, &Platform::new(Site::Entry)).expect_err("too large");
    assert_eq!(
        refused.rule.to_string(),
        "`bpf_map_update_elem` passes 1032 bytes of key and value of map `hash_map` to a function of the device, which takes 1008 at most"
    );
    // With what the proof does not know, the code generator says so.
    let mut case = Case::new(&asm, vec![hash(8, 1000, 8), array(1024, 1)]);
    case.env.maps[0].layout = hash(8, 1024, 8).1;
    assert_eq!(
        error(&case).to_string(),
        "instruction `pc7` passes `1032` bytes of key and value to a hash, more than the `1008` that a device \
         function takes: use a smaller key or value, or look the value up and write its fields"
    );
    Case::new(&asm, vec![hash(8, 1000, 8), array(1024, 1)]).assembles();
}

#[test]
fn kernels_of_our_own_have_no_launch_record() {
    let sum = "r2 = r10\nr2 += -8\ncall 546\n";
    let case = Case::new(&format!("r1 = 1\n{sum}r1 = 2\n{sum}r0 = 0\nexit"), vec![]);
    let fragment = case.compile();
    let refused = CodegenError::NoLaunchRecord {
        kernel: "k".into(),
        cells: 2,
    };
    assert_eq!(Kernel::new("k", &fragment).unwrap_err(), refused);
    assert_eq!(
        kernel("k", "sm_90", &fragment, &case.env),
        Err(refused.clone())
    );
    assert_eq!(
        refused.to_string(),
        "kernel `k` has no launch record, where its program counts the threads of blocks in 2 cells: use the program at a \
         kernel's start or end"
    );
}
