//! Text tests: `filetests/codegen/NAME.s` is a program in assembler, `NAME.ptx` what becomes of it.
//!
//! Lines of the program that begin with `; map`, `; scope`, `; memory`, `; dense` and `; apart`
//! make the environment; `WARPBPF_BLESS=1` writes the outputs.

use crate::common::{self, Case, array, golden, hash, per_thread, ring, sharded, workspace};
use warpbpf_abi::attach::Scope;
use warpbpf_abi::layout::MapLayout;
use warpbpf_codegen::kernel::{Kernel, module, slot_count};
use warpbpf_codegen::{Fragment, Target, dump_ir, pass_names};
use warpbpf_object::MapDef;

fn map_of(line: &str) -> (MapDef, MapLayout) {
    let mut words = line.split_whitespace();
    let kind = words.next().expect("a kind of map");
    let fields: Vec<(&str, u64)> = words
        .map(|word| {
            let (name, value) = word
                .split_once('=')
                .unwrap_or_else(|| panic!("`{word}` is not `name=number`"));
            (
                name,
                value
                    .parse()
                    .unwrap_or_else(|_| panic!("`{word}` is not `name=number`")),
            )
        })
        .collect();
    let field = |name: &str, default: u64| {
        fields
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(default, |(_, v)| *v)
    };
    let small =
        |name: &str, default: u64| u32::try_from(field(name, default)).expect("a small number");
    match kind {
        "array" if small("shards", 1) == 1 => array(small("value", 8), small("entries", 1)),
        "array" => sharded(small("value", 8), small("entries", 1), small("shards", 1)),
        "hash" => hash(small("key", 8), small("value", 8), small("entries", 1)),
        "per_thread" => per_thread(
            small("value", 8),
            small("entries", 1),
            field("threads", 1 << 20),
        ),
        "ring" => ring(small("bytes", 1 << 16), small("shards", 1)),
        _ => panic!("`{kind}` is no kind of map"),
    }
}

fn case_of(text: &str) -> Case {
    let maps = text
        .lines()
        .filter_map(|line| line.strip_prefix("; map "))
        .map(map_of)
        .collect();
    let scope = match text.lines().find_map(|line| line.strip_prefix("; scope ")) {
        None | Some("thread") => Scope::Thread,
        Some("warp") => Scope::Warp,
        Some("block") => Scope::Block,
        Some(other) => panic!("`{other}` is no scope"),
    };
    let memory = text.lines().find_map(|line| line.strip_prefix("; memory "));
    let case = match memory.map(|bytes| bytes.parse().expect("a number of bytes")) {
        None => Case::new(text, maps).scope(scope),
        Some(bytes) => {
            let code = warpbpf_ebpf::asm::assemble(text)
                .unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
            Case::alone(code, maps, bytes)
        }
    };
    let says = |what| text.lines().any(|line| line == what);
    // Hashes have dense slots, in a module that has 128-bit atomics.
    let dense = Target {
        ptx: (8, 3),
        sm: 90,
    };
    let case = match says("; dense") {
        true => case.dense(dense),
        false => case,
    };
    match says("; apart") {
        true => case.apart(),
        false => case,
    }
}

/// The programs of `filetests/codegen` with their names.
fn all() -> Vec<(String, Case)> {
    let folder = workspace().join("filetests/codegen");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .filter_map(|entry| entry.expect("a file").file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".s").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 14, "{names:?}");
    let case = |name: String| {
        let path = folder.join(format!("{name}.s"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let case = case_of(&text);
        (name, case)
    };
    names.into_iter().map(case).collect()
}

#[test]
fn programs() {
    for (name, case) in all() {
        let fragment = case.compile();
        let functions: String = fragment.functions.values().cloned().collect();
        golden(
            &format!("{name}.ptx"),
            &format!("{functions}{}", fragment.body),
        );
    }
}

/// All of them are kernels of one module, on every target.
#[test]
fn one_module() {
    let mut cases = all();
    for (target, sm, version) in common::TARGETS {
        let mut env = cases[0].1.env.clone();
        env.target.ptx = *version;
        let fragments: Vec<(&String, Fragment)> = cases
            .iter_mut()
            .map(|(name, case)| {
                case.env.target = Target {
                    ptx: *version,
                    sm: *sm,
                };
                (&*name, case.compile())
            })
            .collect();
        let kernels: Vec<Kernel<'_>> = fragments
            .iter()
            .filter(|(_, fragment)| fragment.block_cells == 0)
            .map(|(name, fragment)| Kernel::new(name, fragment).unwrap())
            .collect();
        assert_eq!(kernels.len() + 1, fragments.len(), "one has cells");
        // The environment, a map, and the printk ring or the memory.
        assert_eq!(slot_count(&env, &kernels), 3);
        let text = module(target, &env, &kernels);
        assert_eq!(text.matches(".visible .entry ").count(), kernels.len());
        common::ptxas(&text, target, &["-O1"]);
    }
}

/// The IR of the sharded counter after the passes that matter to it.
#[test]
fn ir() {
    let path = workspace().join("filetests/codegen/counter_sharded.s");
    let case = case_of(&std::fs::read_to_string(path).expect("the program"));
    let passes = ["from_ebpf", "opt_dce", "opt_dce.3"];
    let text: String = passes
        .iter()
        .map(|pass| dump_ir(&case.program, &case.env, Some(pass)))
        .collect();
    golden("counter_sharded.ir", &text);
    let all = dump_ir(&case.program, &case.env, None);
    for pass in pass_names() {
        assert!(all.contains(&format!("; after {pass}\n")), "{pass}");
    }
}
