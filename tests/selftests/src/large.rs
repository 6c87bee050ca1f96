//! Large real programs of the kernel's tree: profilers that walk the stacks of interpreters, loops
//! of every kind. Nothing is expected of the verdict; what the proof takes must stay within its
//! limits, accepted or refused.

use std::fmt::Write as _;

use warpbpf_abi::maps::MapType;
use warpbpf_object::{MapDef, load};

use crate::compile::{Tools, compile_one};
use crate::expect::Verdict;
use crate::platform::{adapted, kind_of};
use crate::report::{Findings, MEMORY_LIMIT, WORST_LIMIT};
use crate::run::{Ours, Outcome, Took, compare};

const FILES: &[&str] = &[
    "pyperf50.c",
    "pyperf100.c",
    "pyperf180.c",
    "pyperf600.c",
    "pyperf600_bpf_loop.c",
    "pyperf600_nounroll.c",
    "pyperf_global.c",
    "pyperf_subprogs.c",
    "strobemeta.c",
    "strobemeta_bpf_loop.c",
    "strobemeta_nounroll1.c",
    "strobemeta_nounroll2.c",
    "strobemeta_subprogs.c",
    "loop1.c",
    "loop2.c",
    "loop3.c",
    "loop4.c",
    "loop5.c",
    "loop6.c",
    "test_sysctl_loop1.c",
    "test_sysctl_loop2.c",
    "test_verif_scale1.c",
    "test_verif_scale2.c",
    "test_verif_scale3.c",
];

/// One program.
#[derive(Debug)]
pub struct Large {
    name: String,
    /// What we do and what it took, or why it was not tried.
    result: Result<(Ours, Took), String>,
}

/// Verifies them all.
pub fn cases(tools: &Tools) -> Vec<Large> {
    let mut all = Vec::new();
    for file in FILES {
        let object = compile_one(tools, file)
            .map_err(|why| format!("not compiled: {why}"))
            .and_then(|bytes| load(&bytes).map_err(|why| format!("not loaded: {why}")));
        let object = match object {
            Ok(object) => object,
            Err(why) => {
                all.push(Large {
                    name: (*file).to_owned(),
                    result: Err(why),
                });
                continue;
            }
        };
        let maps: Vec<MapDef> = object.maps.iter().map(stand_in).collect();
        for program in &object.programs {
            let name = format!("{file} {}", program.name);
            let result = match kind_of(&program.section) {
                Err(word) => Err(format!("type of program: {word}")),
                Ok(kind) => {
                    match compare(program, &maps, kind, Verdict::Accepts, Default::default()) {
                        Outcome::Compared { ours, took, .. } => Ok((ours, took)),
                        Outcome::LeftOut(why) => Err(why),
                    }
                }
            };
            all.push(Large { name, result });
        }
    }
    all
}

/// Maps that are only handed to helpers count as arrays.
fn stand_in(map: &MapDef) -> MapDef {
    adapted(map).unwrap_or_else(|_| MapDef {
        map_type: MapType::Array as u32,
        key_size: 4,
        value_size: 4,
        // Whatever is written into it fits.
        max_entries: 1 << 24,
        ..map.clone()
    })
}

/// The table; false if a proof took more than it may.
pub fn table(all: &[Large]) -> (String, bool) {
    let mut text = "large program                                      instructions       ms      MB  verdict\n".to_owned();
    let mut within = true;
    for large in all {
        match &large.result {
            Ok((ours, took)) => {
                within &= took.time <= WORST_LIMIT && took.bytes <= MEMORY_LIMIT;
                let verdict = match ours {
                    Ours::Accepts => "accepted".to_owned(),
                    Ours::Refuses { rule, message } => format!("{rule}: {message}"),
                    Ours::Panics => "PANICS".to_owned(),
                };
                within &= !matches!(ours, Ours::Panics);
                let verdict: String = verdict.chars().take(90).collect();
                let _ = writeln!(
                    text,
                    "{:<50} {:>12} {:>8.1} {:>7.1}  {verdict}",
                    large.name,
                    took.insns,
                    took.time.as_secs_f64() * 1e3,
                    took.bytes as f64 / 1e6
                );
            }
            Err(why) => {
                let _ = writeln!(
                    text,
                    "{:<50} {:>12} {:>8} {:>7}  {why}",
                    large.name, "-", "-", "-"
                );
            }
        }
    }
    (text, within)
}

/// What proofs cost against the size of programs, a line for each doubling: median and worst.
pub fn plot(findings: &Findings, large: &[Large]) -> String {
    let selftests = findings
        .cases
        .iter()
        .filter_map(|case| match &case.outcome {
            Outcome::Compared { took, .. } if took.insns > 0 => Some(*took),
            Outcome::Compared { .. } | Outcome::LeftOut(_) => None,
        });
    let others = large
        .iter()
        .filter_map(|l| l.result.as_ref().ok())
        .map(|(_, took)| *took);
    let mut buckets: Vec<Vec<Took>> = Vec::new();
    for took in selftests.chain(others) {
        let bucket = took.insns.ilog2() as usize;
        if buckets.len() <= bucket {
            buckets.resize_with(bucket + 1, Vec::new);
        }
        buckets[bucket].push(took);
    }
    let mut text =
        "cost against size (instructions; a bar's length is the logarithm of the microseconds)\n"
            .to_owned();
    for (bucket, mut took) in buckets
        .into_iter()
        .enumerate()
        .filter(|(_, b)| !b.is_empty())
    {
        took.sort();
        let micros = |took: &Took| took.time.as_secs_f64() * 1e6;
        let (median, worst) = (micros(&took[took.len() / 2]), micros(&took[took.len() - 1]));
        let length = |micros: f64| (micros.max(1.0).log10() * 8.0) as usize;
        let bar = "█".repeat(length(median)) + &"░".repeat(length(worst) - length(median));
        let _ = writeln!(
            text,
            "{:>6} and more {:>5} programs  median {median:>9.0} µs  worst {worst:>9.0} µs  {bar}",
            1usize << bucket,
            took.len(),
        );
    }
    text
}
