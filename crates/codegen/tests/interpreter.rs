//! The interpreter for the device as PTX: ptxas takes it for every target, and it costs registers only where it is called.

mod common;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::{ArrayLayout, HashLayout, LruLayout, MapLayout};
use warpbpf_codegen::interpreter::Interpreter;
use warpbpf_codegen::kernel::kernel;
use warpbpf_codegen::{Env, Input, SlotSpace, Target};

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
            common::ptxas(&kernel("k", name, &fragment, &env), name, &[]);
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
