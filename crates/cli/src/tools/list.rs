//! The tools.

use crate::tools::tool::{By, Column, Of, Tool, Unit};

const fn column(name: &'static str, unit: Unit, of: Of) -> Column {
    Column { name, unit, of }
}

const KERNEL: By = By::Part("kernel");
/// Rows of kernels or of their lines.
const LINES: &[By] = &[KERNEL, By::Line];

/// Of their lines, of loads and stores apart.
const ACCESSES: &[By] = &[KERNEL, By::Line, By::Part("access")];

const NO_PTX: &str =
    "kernels without PTX have no programs in their middle: `--backend sanitizer` reaches them";
const NO_ENTRY: &str =
    "kernels without PTX have no programs: `--backend splice` reaches their blocks";

/// All, in the order of the help.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "blocks",
        about: "How long the blocks of each kernel run, and how evenly the GPU is used",
        script: include_str!("blocks.wt"),
        keys: 65_536,
        rows: "@ns",
        by: &[KERNEL, By::Part("sm")],
        default_by: 0,
        columns: &[
            column("blocks", Unit::Number, Of::Count("@ns")),
            column("p50", Unit::Time, Of::Below("@times", 0.5, "@max")),
            column("p99", Unit::Time, Of::Below("@times", 0.99, "@max")),
            column("longest", Unit::Time, Of::Map("@max")),
            column(
                "block",
                Unit::Number,
                Of::By(|found, key| {
                    let longest = found.number("@longest", key)?;
                    Some((longest & 0x7fff_ffff) as f64)
                }),
            ),
            column("total", Unit::Time, Of::Map("@ns")),
            column(
                "empty",
                Unit::Share,
                Of::By(|found, key| {
                    let span = found.number("@span", &key[..1])? as f64;
                    let busy = found.number("@busy", key)? as f64;
                    let sms = if key.len() > 1 { 1 } else { found.sms };
                    let all = span * f64::from(sms);
                    (all > 0.0).then(|| (1.0 - busy / all).max(0.0))
                }),
            ),
        ],
        sort: "total",
        reading: "p50, p99: half and 99 % of the blocks took no longer (within 6 %). block: the number of the longest. total: of all blocks. empty: the part of the kernel's time that SMs had none of its blocks.",
        nothing: "No block ended in a kernel with programs.",
        machine_code: NO_ENTRY,
        is_timed: true,
    },
    Tool {
        name: "traffic",
        about: "Bytes that kernels load from and store to global memory, by source line",
        script: include_str!("traffic.wt"),
        keys: 16_384,
        rows: "@bytes",
        by: LINES,
        default_by: 1,
        columns: &[
            column(
                "load",
                Unit::Bytes,
                Of::Words(
                    "@bytes",
                    &[
                        "load",
                        "async_copy",
                        "bulk_copy",
                        "tensor_copy",
                        "wmma_load",
                    ],
                ),
            ),
            column(
                "store",
                Unit::Bytes,
                Of::Words("@bytes", &["store", "wmma_store"]),
            ),
            column(
                "atomic",
                Unit::Bytes,
                Of::Words("@bytes", &["atomic", "reduction"]),
            ),
            column("total", Unit::Bytes, Of::Map("@bytes")),
            column("share", Unit::Share, Of::Share("@bytes")),
        ],
        sort: "total",
        reading: "Bytes that instructions ask for, before caches; load includes copies between global and shared memory. share: of all rows.",
        nothing: "No kernel with programs accessed global memory.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "divergence",
        about: "At which branches the lanes of a warp part, and how many lanes are together",
        script: include_str!("divergence.wt"),
        keys: 16_384,
        rows: "@lanes",
        by: LINES,
        default_by: 1,
        columns: &[
            column("branches", Unit::Number, Of::Count("@lanes")),
            column("lanes", Unit::Mean, Of::Mean("@lanes")),
            column("splits", Unit::Number, Of::Map("@split")),
            column("split", Unit::Share, Of::Rate("@split", "@lanes")),
        ],
        sort: "splits",
        reading: "branches: how often warps came to a branch. lanes: together there, of 32, on average. splits, split: how often some lanes took it and others did not.",
        nothing: "No kernel with programs came to a branch.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "coalescing",
        about: "Memory that warps move for nothing, because lanes do not access it side by side",
        script: include_str!("coalescing.wt"),
        keys: 16_384,
        rows: "@sectors",
        by: ACCESSES,
        default_by: 2,
        columns: &[
            column("accesses", Unit::Number, Of::Count("@sectors")),
            column("sectors", Unit::Mean, Of::Mean("@sectors")),
            column("best", Unit::Mean, Of::Mean("@best")),
            column("moved", Unit::Bytes, Of::Map("@moved")),
            column("extra", Unit::Bytes, Of::Map("@extra")),
        ],
        sort: "extra",
        reading: "sectors: of 32 bytes, that a warp touches at once, on average. best: as many as its bytes need, side by side. moved: bytes of the sectors. extra: those beyond the best.",
        nothing: "No kernel with programs accessed global memory.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "bankconflicts",
        about: "Where lanes of a warp wait for each other at a bank of shared memory",
        script: include_str!("bankconflicts.wt"),
        keys: 16_384,
        rows: "@turns",
        by: ACCESSES,
        default_by: 2,
        columns: &[
            column("accesses", Unit::Number, Of::Count("@turns")),
            column("turns", Unit::Mean, Of::Mean("@turns")),
            column("worst", Unit::Number, Of::Map("@worst")),
            column("extra", Unit::Number, Of::Map("@extra")),
            column("conflicts", Unit::Share, Of::Rate("@conflicts", "@turns")),
        ],
        sort: "extra",
        reading: "turns: how often the busiest bank is asked by one access of a warp, on average and at worst. extra: turns beyond those that the bytes need. conflicts: accesses with some.",
        nothing: "No kernel with programs accessed shared memory.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "atomics",
        about: "Atomic operations, by source line: how many, and how many lanes at once",
        script: include_str!("atomics.wt"),
        keys: 16_384,
        rows: "@lanes",
        by: LINES,
        default_by: 1,
        columns: &[
            column("warps", Unit::Number, Of::Count("@lanes")),
            column("lanes", Unit::Mean, Of::Mean("@lanes")),
            column("operations", Unit::Number, Of::Map("@lanes")),
            column(
                "global",
                Unit::Number,
                Of::Words("@lanes", &["global", "generic"]),
            ),
            column(
                "shared",
                Unit::Number,
                Of::Words("@lanes", &["shared", "cluster"]),
            ),
            column("share", Unit::Share, Of::Share("@lanes")),
        ],
        sort: "operations",
        reading: "warps: how often a warp came to it. lanes: together there, on average. operations: of all lanes; in global and in shared memory. share: of all rows.",
        nothing: "No kernel with programs made an atomic operation.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "barriers",
        about: "Cycles that warps wait at barriers, by source line",
        script: include_str!("barriers.wt"),
        keys: 16_384,
        rows: "@cycles",
        by: LINES,
        default_by: 1,
        columns: &[
            column("waits", Unit::Number, Of::Count("@cycles")),
            column("average", Unit::Mean, Of::Mean("@cycles")),
            column("longest", Unit::Number, Of::Map("@max")),
            column("cycles", Unit::Number, Of::Map("@cycles")),
            column("share", Unit::Share, Of::Share("@cycles")),
        ],
        sort: "cycles",
        reading: "waits: warps that came to a barrier. average, longest, cycles: clock cycles that they waited there. share: of all rows.",
        nothing: "No kernel with programs came to a barrier.",
        machine_code: NO_PTX,
        is_timed: true,
    },
    Tool {
        name: "lines",
        about: "Instructions that warps execute, by source line (slow)",
        script: include_str!("lines.wt"),
        keys: 16_384,
        rows: "@lanes",
        by: LINES,
        default_by: 1,
        columns: &[
            column("instructions", Unit::Number, Of::Count("@lanes")),
            column("lanes", Unit::Mean, Of::Mean("@lanes")),
            column(
                "share",
                Unit::Share,
                Of::By(|found, key| {
                    let all = found.count("@lanes", &[]);
                    (all > 0).then(|| found.count("@lanes", key) as f64 / all as f64)
                }),
            ),
        ],
        sort: "instructions",
        reading: "instructions: of PTX, each counted once for a group of lanes of a warp. lanes: that execute them together, of 32, on average. share: of all instructions.",
        nothing: "No kernel with programs ran.",
        machine_code: NO_PTX,
        is_timed: false,
    },
    Tool {
        name: "launches",
        about: "Each kernel's launches: how many, how large, how long, and the gaps before them",
        script: include_str!("launches.wt"),
        keys: 16_384,
        rows: "@launches",
        by: &[KERNEL],
        default_by: 0,
        columns: &[
            column("launches", Unit::Number, Of::Map("@launches")),
            column("blocks", Unit::Number, Of::Map("@blocks")),
            column("threads", Unit::Number, Of::Map("@threads")),
            column("time", Unit::Time, Of::Map("@span")),
            column("share", Unit::Share, Of::Share("@span")),
            column("gap", Unit::Time, Of::Map("@gap")),
        ],
        sort: "time",
        reading: "blocks: of all launches. threads: of the largest block. time: while blocks of the kernel ran. gap: before its launches, while no kernel with programs ran.",
        nothing: "No kernel with programs was launched.",
        machine_code: NO_ENTRY,
        is_timed: true,
    },
    Tool {
        name: "launchlate",
        about: "How long it takes from a launch's call on the CPU to its first block on the GPU",
        script: include_str!("launchlate.wt"),
        keys: 16_384,
        rows: "@ns",
        by: &[KERNEL],
        default_by: 0,
        columns: &[
            column("launches", Unit::Number, Of::Count("@ns")),
            column("average", Unit::Time, Of::Mean("@ns")),
            column("p50", Unit::Time, Of::Below("@times", 0.5, "@max")),
            column("p99", Unit::Time, Of::Below("@times", 0.99, "@max")),
            column("longest", Unit::Time, Of::Map("@max")),
            column("total", Unit::Time, Of::Map("@ns")),
        ],
        sort: "total",
        reading: "From the call of cuLaunchKernel to the first block. p50, p99: half and 99 % of the launches came no later (within 6 %). Launches by graphs are not here.",
        nothing: "No kernel with programs was launched by a call.",
        machine_code: NO_ENTRY,
        is_timed: true,
    },
    Tool {
        name: "api",
        about: "Calls of the CUDA driver: how many, how long they take, and how many fail",
        script: include_str!("api.wt"),
        keys: 16_384,
        rows: "@ns",
        by: &[By::Part("function")],
        default_by: 0,
        columns: &[
            column("calls", Unit::Number, Of::Count("@ns")),
            column("errors", Unit::Number, Of::Map("@errors")),
            column("average", Unit::Time, Of::Mean("@ns")),
            column("longest", Unit::Time, Of::Map("@max")),
            column("total", Unit::Time, Of::Map("@ns")),
            column("share", Unit::Share, Of::Share("@ns")),
        ],
        sort: "total",
        reading: "Calls of the driver, which those of the runtime become, from the first CUDA code on that the application loads. errors: results other than success and \"not ready\".",
        nothing: "The application called no function of the driver after it had loaded CUDA code.",
        machine_code: "calls of the driver are seen whatever kernels are made of",
        is_timed: true,
    },
];

#[cfg(test)]
mod tests {
    use warpbpf_script::{Options, compile};

    use super::TOOLS;

    #[test]
    fn each_script_compiles_and_has_the_maps_of_its_table() {
        for tool in TOOLS {
            for kernel in [None, Some("void f<int, 4>*")] {
                let Ok(source) = tool.script_for(kernel) else {
                    assert_eq!(tool.name, "api");
                    continue;
                };
                let options = Options {
                    start: 0,
                    keys: tool.keys,
                    function: &|_, _| Err(String::new()),
                };
                let compiled = compile(&source, tool.name, &options).unwrap();
                let maps = &compiled.script.maps;
                assert!(
                    maps.iter().any(|map| map.name == tool.rows),
                    "{}",
                    tool.name
                );
                let programs = compiled.script.programs.iter();
                let sections: Vec<&str> =
                    programs.map(|program| program.section.as_str()).collect();
                let any = sections.iter().any(|section| section.ends_with("/*"));
                assert!(kernel.is_none() || !any, "{}: {sections:?}", tool.name);
            }
            let heads = tool.heads(tool.default_by);
            assert!(heads.contains(&tool.sort), "{}", tool.name);
            assert!(
                heads.iter().all(|head| !head.contains(' ')),
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn globs_that_no_probe_can_have_are_refused() {
        let tool = &TOOLS[0];
        for glob in ["", "a\"b", "a|b", "a\nb"] {
            assert!(tool.script_for(Some(glob)).is_err(), "{glob}");
        }
        let other = tool.script_for(Some("k*")).unwrap();
        assert!(other.contains("gpu:exit.block:\"k*\" {"), "{other}");
    }
}
