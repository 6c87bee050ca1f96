//! Tools that come and go while an application launches from all its threads: every launch is
//! somebody's, and counted once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpbpf_tool::{Options, Process, Tool};

use super::{counted, told};
use crate::devices;
use crate::library::{PATIENCE, failed};
use crate::replace::{start, version};
use crate::run::{Bench, Told, same};

/// Launches with a tool's programs of each kernel, and those without.
fn of_kernels(process: &Process) -> BTreeMap<String, [u64; 2]> {
    let kernels = process.kernels().into_iter().map(|kernel| {
        let without = kernel.uninstrumented + kernel.skipped + kernel.unwanted;
        (kernel.kernel.demangled, [kernel.launches, without])
    });
    // A kernel whose image was loaded again is there again, with the counts of all.
    kernels.collect()
}

pub(super) fn stress(bench: &Bench) -> Told {
    stressed(bench, &[])
}

pub(super) fn stress_of_two(bench: &Bench) -> Told {
    let bench = devices::bench_of_two(bench, "12");
    match devices::are_two(&bench)? {
        true => stressed(&bench, &["everywhere"]),
        false => devices::skipped(),
    }
}

/// One client stays, others come and go, while `replacestress.cu` launches from all its threads:
/// what the application made is what the first tool was told, and what programs counted is what
/// each tool was told.
fn stressed(bench: &Bench, words: &[&str]) -> Told {
    let (threads, rounds) = match bench.soft {
        true => ("4", 8),
        false => ("32", 50),
    };
    let tool = Tool::attach(version(bench, 1)?, Options::default()).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let mut command = vec!["replacestress", threads];
    command.extend(words);
    let application = start(bench, &tool, &command)?;
    let pid: u32 = application.pid().parse().map_err(|_| "no number")?;
    let process = tool.wait_ready(PATIENCE).map_err(failed)?;
    let come = |number: u32| {
        let tool = Tool::attach(version(bench, number)?, Options::default()).map_err(failed)?;
        tool.attach_to(pid).map_err(|error| told(&error))?;
        let process = tool.wait_ready(PATIENCE).map_err(failed)?;
        Ok::<_, String>((tool, process))
    };
    let (staying, stays) = come(2)?;
    for round in 0..rounds {
        let (passing, passes) = come(3)?;
        let end = Instant::now() + PATIENCE;
        while counted(&passes, 3)?[1] == 0 {
            if Instant::now() > end {
                return Err(format!("no launch had the programs in round {round}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        passes.detach().map_err(failed)?;
        same("last words", passing.wait_last_words(PATIENCE), true)?;
        same("complete", passes.is_complete(), true)?;
        let launches: u64 = of_kernels(&passes).values().map(|[with, _]| with).sum();
        same("it was told of launches", launches > 0, true)?;
    }
    let said = application.end()?;
    for tool in [&tool, &staying] {
        same("last words", tool.wait_last_words(PATIENCE), true)?;
    }
    let of_first = of_kernels(&process);
    let (mut all, mut probed) = (0, 0);
    for line in said.lines().filter(|line| *line != "running") {
        let (name, made) = line.split_once(' ').ok_or("an odd line")?;
        let made: u64 = made
            .parse()
            .map_err(|_| format!("an odd number of {name}"))?;
        let mut counts = of_first.iter();
        let counts = counts.find(|(kernel, _)| kernel.split('(').next() == Some(name));
        let [with, without] = counts.map(|(_, counts)| *counts).unwrap_or_default();
        same(&format!("launches of `{name}`"), with + without, made)?;
        all += made;
        probed += with;
    }
    same("what the first counted", counted(&process, 1)?, [probed; 2])?;
    let with_client: u64 = of_kernels(&stays).values().map(|[with, _]| with).sum();
    same(
        "what the client counted",
        counted(&stays, 2)?,
        [with_client; 2],
    )?;
    if with_client == 0 || with_client > probed {
        return Err(format!(
            "{with_client} of {probed} launches had the client's programs"
        ));
    }
    Ok(format!(
        "{all} launches, {probed} with the first tool's programs, {with_client} with a client's, and {rounds} clients came and went"
    ))
}
