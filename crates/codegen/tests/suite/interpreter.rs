//! The interpreter for the device as PTX: ptxas takes it for every target, and it costs registers
//! only where it is called.

use crate::common;
use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::{self, FieldSource};
use warpbpf_abi::layout::{ArrayLayout, HashLayout, LruLayout, MapLayout};
use warpbpf_codegen::interpreter::{Interpreter, NotInterpreted, holds, translate_for_slot};
use warpbpf_codegen::kernel::kernel;
use warpbpf_codegen::{Env, Input, SlotSpace, Target};
use warpbpf_ebpf::{Code, asm::assemble};
use warpbpf_verify::{Platform, Verified, verify};

fn env(target: Target, input: Input) -> Env {
    Env {
        target,
        site: Site::Entry,
        scope: Scope::Thread,
        kernel_id: 0,
        maps: Vec::new(),
        printk: None,
        slots: SlotSpace::Const,
        input,
        keep_sums: false,
        meets: true,
        args: Vec::new(),
    }
}

const MEMORY: Input = Input::Memory {
    slot: 1,
    size: 16,
    stride: 32,
};

fn layouts() -> Vec<MapLayout> {
    let hash = |key_size, value_size| {
        MapLayout::Hash(HashLayout {
            max_entries: 64,
            key_size,
            value_size,
            copies: 1,
            dense: false,
        })
    };
    let array = MapLayout::Array(ArrayLayout {
        max_entries: 4,
        value_size: 8,
        shards: 1,
        summed: false,
    });
    let lru = MapLayout::Lru(LruLayout {
        max_entries: 64,
        key_size: 8,
        value_size: 16,
        copies: 1,
    });
    vec![array, hash(4, 8), hash(20, 40), lru]
}

#[test]
fn ptxas_takes_it() {
    for (name, target) in [
        (
            "sm_75",
            Target {
                ptx: (6, 3),
                sm: 75,
            },
        ),
        (
            "sm_80",
            Target {
                ptx: (7, 0),
                sm: 80,
            },
        ),
        (
            "sm_90",
            Target {
                ptx: (8, 0),
                sm: 90,
            },
        ),
    ] {
        for layouts in [Vec::new(), layouts()] {
            let interpreter = Interpreter::new(&layouts, target);
            let env = env(target, MEMORY);
            let fragment = interpreter.fragment(&env, 2).expect("it has memory");
            common::ptxas(&kernel("k", name, &fragment, &env).unwrap(), name, &[]);
        }
    }
}

#[test]
fn functions_of_other_layouts_have_other_names() {
    let target = Target {
        ptx: (8, 0),
        sm: 90,
    };
    let names = |layouts: &[MapLayout]| -> Vec<String> {
        let interpreter = Interpreter::new(layouts, target);
        interpreter.functions().keys().cloned().collect()
    };
    let (none, all) = (names(&[]), names(&layouts()));
    // Of each table a lookup, an update and a delete, and the interpreter.
    assert_eq!((none.len(), all.len()), (1, 10));
    assert!(!all.contains(&none[0]), "{all:?}");
    assert_eq!(names(&layouts()[..1]), none, "arrays need no function");
}

#[test]
fn it_is_for_programs_with_memory() {
    let target = Target {
        ptx: (8, 0),
        sm: 90,
    };
    let interpreter = Interpreter::new(&[], target);
    assert_eq!(interpreter.fragment(&env(target, Input::Context), 2), None);
}

#[test]
fn ptxas_takes_what_stands_at_a_site_with_a_slot() {
    for (name, ptx, sm) in [("sm_75", (6, 3), 75), ("sm_90", (8, 0), 90)] {
        let target = Target { ptx, sm };
        let interpreter = Interpreter::new(&layouts(), target);
        for site in [
            Site::Entry,
            Site::Mem,
            Site::Barrier,
            Site::Insn,
            Site::Branch,
            Site::Line,
        ] {
            for scope in [Scope::Thread, Scope::Warp] {
                let env = Env {
                    site,
                    scope,
                    ..env(target, Input::Context)
                };
                let fragment = interpreter.slot(&env, 7);
                assert_eq!(fragment.uses_group_mask, scope == Scope::Warp);
                common::ptxas(&kernel("k", name, &fragment, &env).unwrap(), name, &[]);
            }
        }
    }
}

#[test]
fn a_slot_holds_where_a_thread_is_and_what_a_place_is() {
    let lacks = |site: Site| {
        let fields = context::of(site).fields.iter();
        let lacks = fields.filter(|field| !holds(field)).map(|field| field.name);
        let lacks: Vec<&str> = lacks.filter(|name| !name.starts_with("args[")).collect();
        lacks.join(" ")
    };
    assert_eq!(lacks(Site::Entry), "launch_id");
    assert_eq!(lacks(Site::Line), "launch_id");
    assert_eq!(
        lacks(Site::Mem),
        "launch_id value[0] value[1] value[2] value[3] target target_space value_bytes"
    );
    assert_eq!(lacks(Site::Barrier), "launch_id waited threads");
    assert_eq!(lacks(Site::Branch), "launch_id taken_mask taken");
    // What costs nothing at a site that passes by is held wherever it is.
    for (context, _) in context::CONTEXTS {
        let free = context
            .fields
            .iter()
            .filter(|field| !matches!(field.source, FieldSource::Captured(_)));
        assert!(free.clone().count() > 20 && free.clone().all(holds));
    }
}

fn proved(asm: &str, site: Site) -> Verified<Code> {
    let code = assemble(asm).unwrap_or_else(|errors| panic!("{errors:?}"));
    verify(code, &[], &Platform::new(site)).unwrap_or_else(|error| panic!("{error:?}"))
}

fn in_slot(programs: &[&Verified<Code>], site: Site) -> Result<usize, (usize, String)> {
    let target = Target {
        ptx: (8, 0),
        sm: 90,
    };
    let interpreter = Interpreter::new(&[], target);
    let form = translate_for_slot(programs, &[], &interpreter, site);
    form.map(|form| form.size() / 16)
        .map_err(|(number, why): (usize, NotInterpreted)| (number, why.to_string()))
}

#[test]
fn programs_of_a_slot_run_one_after_the_other() {
    let reads = proved("r0 = *(u32 *)(r1 + 24)\nexit", Site::Mem);
    let address = proved("r0 = *(u64 *)(r1 + 248)\nexit", Site::Mem);
    let one = in_slot(&[&reads], Site::Mem).unwrap();
    let two = in_slot(&[&reads, &address], Site::Mem).unwrap();
    // Each has as many instructions; the second begins with what the first was given, and the
    // header is there once.
    assert_eq!(two, 2 * one - 1);
    assert_eq!(in_slot(&[], Site::Mem), Ok(1));
}

#[test]
fn what_cannot_run_in_a_slot_is_named() {
    let reads = proved("r0 = *(u32 *)(r1 + 24)\nexit", Site::Mem);
    let value = proved("r0 = *(u64 *)(r1 + 272)\nexit", Site::Mem);
    assert_eq!(
        in_slot(&[&reads, &value], Site::Mem),
        Err((1, "instruction `pc0` reads `value[0]` of its context, which a slot does not have: it has where the thread is, the kernel's numbers, and of the place its number, line, address, bytes and kinds".to_owned()))
    );
    let random = proved("call 7\nexit", Site::Mem);
    assert_eq!(
        in_slot(&[&random], Site::Mem),
        Err((0, "instruction `pc0` calls `bpf_get_prandom_u32`, which programs in a slot cannot; they can call `bpf_map_lookup_elem`, `bpf_map_update_elem`, `bpf_map_delete_elem`, `bpf_loop`, `bpf_ktime_get_ns`, `bpf_gpu_membar`, `bpf_gpu_lane_id`, `bpf_gpu_block_idx`, `bpf_gpu_block_dim`, `bpf_gpu_thread_idx`, `bpf_gpu_grid_dim`".to_owned()))
    );
    let node = proved("call 551\nexit", Site::Entry);
    let (_, why) = in_slot(&[&node], Site::Entry).unwrap_err();
    let refused = "instruction `pc0` calls `bpf_gpu_graph_node`, which programs in a slot cannot;";
    assert!(why.starts_with(refused), "{why}");
    // A function is written out at each place that calls it.
    let mut long = "call f\n".repeat(200) + "r0 = 0\nexit\nf:\n";
    long.push_str(&("r0 = 1\n".repeat(100) + "exit\n"));
    let code = assemble(&long).unwrap_or_else(|errors| panic!("{errors:?}"));
    let platform = Platform::new(Site::Entry).with_budget(1 << 20);
    let long = verify(code, &[], &platform).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(
        in_slot(&[&long], Site::Entry),
        Err((0, "it becomes more than 16384 instructions, because functions are written out where they are called: make it smaller".to_owned()))
    );
}
