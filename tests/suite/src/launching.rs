//! Ways to load images and to launch kernels, and what stands between launches: with programs in
//! kernels an application computes, waits and is told the same as alone, and each launch is
//! counted, or falls back for a reason that is given.

use crate::attach::{Application, Attached, until_counted};
use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("launching: host functions in their order", host_functions),
        case("launching: variables that everybody changes", variables),
        case("launching: managed variables", managed),
        case(
            "launching: explicit contexts, every way to load",
            every_way_to_load,
        ),
        case("launching: launches that overlap, and clusters", overlap),
        case("launching: what kernels are said to need", questions),
        case(
            "launching: what is said of kernels with programs",
            instrumented,
        ),
        case("launching: what is said of them, attached", attached),
        case("launching: beside an allocator of one's own", allocator),
    ]
}

/// The application's output.
fn text(run: &Run) -> String {
    String::from_utf8_lossy(&run.output.stdout).into_owned()
}

/// What `ways.bpf.c` counted: each thread and each block once at its begin and once at its end.
fn counted(run: &Run, threads: u64, blocks: u64) -> Result<(), String> {
    let found: Vec<u64> = (0..4)
        .map(|what| run.value("counts", what))
        .collect::<Result<_, _>>()?;
    let expected = vec![threads, blocks, threads, blocks];
    same("threads and blocks, begun and ended", found, expected)
}

/// Launches of a kernel with programs, and uninstrumented ones.
fn launches(run: &Run, kernel: &str) -> Result<(u64, u64), String> {
    let row = run.kernel(kernel)?;
    let number = |what: &str| row[what].as_u64().ok_or(format!("{kernel}: no {what}"));
    Ok((number("launches")?, number("uninstrumented")?))
}

/// Each host function of `hostorder.cu` looks itself, with programs and without.
fn host_functions(bench: &Bench) -> Told {
    // Two launches in each of three streams in six rounds; two in each of two graphs, which are
    // launched thrice.
    let all = 2 * 3 * 6 + 2 * 2 * 3;
    let run = bench.both("ways", "hostorder", &[])?;
    says(&text(&run), &format!("host functions: {all}, wrong: 0"))?;
    same("launches", launches(&run, "probedCount")?, (all, 0))?;
    counted(&run, all * 4 * 64, all * 4)?;
    Ok(format!("{all} host functions, each behind its kernels"))
}

fn variables(bench: &Bench) -> Told {
    let run = bench.both("ways", "symbols", &[])?;
    says(&text(&run), "all as expected")?;
    same("words", launches(&run, "probedWords")?, (8, 0))?;
    same("factors", launches(&run, "probedFactors")?, (4, 0))?;
    for (kernel, method) in [("probedWords", "slice"), ("probedFactors", "clone")] {
        says(
            run.kernel(kernel)?["method"].as_str().unwrap_or_default(),
            method,
        )?;
    }
    counted(&run, 12 * 64, 12)?;
    Ok("device and constant variables, by a slice and by a clone".into())
}

fn managed(bench: &Bench) -> Told {
    let run = bench.both("ways", "managed", &[])?;
    says(&text(&run), "0 wrong")?;
    same("words", launches(&run, "probedWords")?, (11, 0))?;
    same("scaled", launches(&run, "probedScaled")?, (5, 0))?;
    for (kernel, method) in [("probedWords", "slice"), ("probedScaled", "clone")] {
        says(
            run.kernel(kernel)?["method"].as_str().unwrap_or_default(),
            method,
        )?;
    }
    counted(&run, 16 * 64, 16)?;
    Ok("16 launches between the host's own accesses".into())
}

/// Launches of `loading.cu`: modules in turn, libraries, contexts at once, modules beside others.
const LOADING: u64 = 24 + 32 + 20 + 22;

fn every_way_to_load(bench: &Bench) -> Told {
    let run = bench.both("ways", "loading", &[])?;
    let told = format!("{LOADING} launches of 4 blocks of 64 threads");
    says(&text(&run), &told)?;
    // The codes are the driver's, and the same as alone; none of these calls may work.
    let text = text(&run);
    let codes: Vec<&str> = ["refused: ", "refused late: "]
        .iter()
        .filter_map(|of| text.lines().find_map(|l| l.strip_prefix(of)))
        .flat_map(|codes| codes.split(' '))
        .collect();
    same("refused calls", codes.len(), 6)?;
    same("refused calls that worked", codes.contains(&"0"), false)?;
    counted(&run, LOADING * 4 * 64, LOADING * 4)?;
    let rows = run.process()["kernels"].as_array().cloned();
    let sum = |what: &str| -> u64 {
        let rows = rows.iter().flatten();
        rows.map(|row| row[what].as_u64().unwrap_or(0)).sum()
    };
    same(
        "launches",
        (sum("launches"), sum("uninstrumented")),
        (LOADING, 0),
    )?;
    Ok(format!("{LOADING} launches in 5 contexts"))
}

/// A program that counts a launch's blocks cannot follow launches that overlap; one that only
/// counts threads can. In a graph each node has what it needs.
fn overlap(bench: &Bench) -> Told {
    const CHAIN: u64 = 6;
    const IN_GRAPHS: u64 = 3 * CHAIN;
    const CLUSTERS: u64 = 3;
    const BLOCKS: u64 = 8;
    const THREADS: u64 = BLOCKS * 64;
    let run = bench.both("ways", "overlap", &[])?;
    let with = 1 + IN_GRAPHS;
    let found = launches(&run, "probedChain")?;
    same("of a chain", found, (with, CHAIN - 1))?;
    says(
        &run.notes(),
        "was launched to overlap with the kernel before it; what counts the threads of warps or blocks cannot follow that, those launches run without probes",
    )?;
    let found = launches(&run, "probedCluster")?;
    same("in clusters", found, (CLUSTERS, 0))?;
    let all = with + CLUSTERS;
    counted(&run, all * THREADS, all * BLOCKS)?;

    let run = bench.both("ways_begin", "overlap", &[])?;
    let all = CHAIN + IN_GRAPHS + CLUSTERS;
    same("threads", run.value("counts", 0)?, all * THREADS)?;
    let found = launches(&run, "probedChain")?;
    same("of a chain", found, (CHAIN + IN_GRAPHS, 0))?;
    Ok(format!(
        "{all} launches, {} of them uninstrumented",
        CHAIN - 1
    ))
}

/// The answers are those without programs, so a grid that was made by them may be one that only the
/// original can run.
fn questions(bench: &Bench) -> Told {
    let run = bench.both("ways", "queries", &[])?;
    let text = text(&run);
    let words: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
    let threads: u64 = match words[..] {
        ["2", "launches", "of", threads, ..] => threads.parse().map_err(|_| text.clone())?,
        _ => return Err(text),
    };
    let (with, uninstrumented) = launches(&run, "probedWork")?;
    same("launches", with + uninstrumented, 3)?;
    let found = run.value("counts", 0)?;
    if uninstrumented == 0 {
        same("threads", found, threads + 3 * 96)?;
        return Ok("the same answers; what they allow runs with programs".into());
    }
    says(&run.notes(), "all of them run at once without probes")?;
    if found < 3 * 96 || found >= threads + 3 * 96 {
        return Err(format!(
            "{found} threads with {uninstrumented} launches uninstrumented"
        ));
    }
    Ok(format!(
        "the same answers; {uninstrumented} launches that the original alone has room for"
    ))
}

/// With answers of the instrumented kernel, a grid that is sized by them has programs, which
/// without that the original alone had room for.
fn instrumented(bench: &Bench) -> Told {
    // Without a bound of them as many blocks fit whatever a kernel needs.
    let bench = bench.with(&[("WARPBPF_SOFT_REGISTERS", "64K")]);
    let asked = |which: &str| {
        let flags = ["--occupancy", which];
        let object = bench.object("crowded");
        let run = bench.probed(&flags, &object, &bench.app("queries"), &[])?;
        same(&run.errors(), run.output.status.code(), Some(0))?;
        let text = text(&run);
        let last: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
        let threads: u64 = match last[..] {
            ["2", "launches", "of", threads, ..] => threads.parse().map_err(|_| text.clone())?,
            _ => return Err(text),
        };
        Ok((run, text, threads))
    };
    let plain = bench.plain("queries", &[])?;
    let plain = String::from_utf8_lossy(&plain).into_owned();
    let (run, text, of_original) = asked("original")?;
    same("answers of the original", &text, &plain)?;
    let kernel = run.kernel("probedWork")?;
    let registers = &kernel["registers"];
    let (with, uninstrumented) = launches(&run, "probedWork")?;
    same(
        "launches with programs, and without",
        (with, uninstrumented),
        (1, 2),
    )?;
    same("threads", run.value("counts", 0)?, 3 * 96)?;
    says(&run.notes(), "all of them run at once without probes")?;

    let (run, text, threads) = asked("instrumented")?;
    same("all have programs", launches(&run, "probedWork")?, (3, 0))?;
    same("threads", run.value("counts", 0)?, threads + 3 * 96)?;
    same("the grid is smaller", threads < of_original, true)?;
    let (before, after) = (&registers[0], &registers[1]);
    says(&plain, &format!("before: {before} registers"))?;
    for when in ["before", "after launches", "after a change"] {
        says(&text, &format!("{when}: {after} registers"))?;
    }
    same("notes", run.notes().contains("are not hooked"), false)?;
    Ok(format!(
        "{threads} threads in place of {of_original}, {after} registers in place of {before}"
    ))
}

/// The hooks of questions about kernels come with an attach that asks for them, and go with it.
fn attached(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let changed = |code: &[u8]| code.iter().zip(&before).filter(|(a, b)| a != b).count();
    let mut counts = Vec::new();
    for which in ["original", "instrumented"] {
        let flags = ["-p", &application.pid(), "--occupancy", which];
        let tool = match Attached::to(bench, &flags, "scopes") {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            tool => tool?,
        };
        until_counted(bench, &mut application, "counts")?;
        counts.push(changed(&application.driver_code()?));
        let report = tool.interrupt()?;
        let notes = report["notes"].to_string();
        same("notes", notes.contains("are not hooked"), false)?;
        let back = changed(&application.driver_code()?);
        same("bytes of the driver that are not as before", back, 0)?;
        application.launch(1)?;
    }
    application.end()?;
    let [without, with] = counts[..] else {
        return Err(format!("{counts:?}"));
    };
    same("more functions are hooked", with > without, true)?;
    Ok(format!("{without} bytes of the driver changed, and {with}"))
}

/// Nothing that the agent or the tool frees or gives is of another allocator.
fn allocator(bench: &Bench) -> Told {
    let library = bench.folder().join("apps/liballocator.so");
    let library = library.display().to_string();
    // It clears all that it gives, and so a device's whole memory.
    let with = bench.with(&[("LD_PRELOAD", &library), ("WARPBPF_SOFT_MEMORY", "256M")]);
    let arguments = ["100000", "3"];
    let alone = bench.plain("vectoradd", &arguments)?;
    for inject in ["env", "preload"] {
        let run = with.both_with(&["--inject", inject], "threadhist", "vectoradd", &arguments)?;
        same("output", run.output.stdout == alone, true)?;
        let sum = run.map("threads")?["sum"].as_u64();
        same("threads", sum, Some(391 * 256 * 3))?;
        let name = bench.app("vectoradd");
        let name = name.file_name().unwrap_or_default().display().to_string();
        for process in [name.as_str(), "warpbpf"] {
            let told = format!("allocator: {process}: more than 100 blocks, 0 wrong");
            says(&run.errors(), &told)?;
        }
        same("complete", run.process()["complete"].as_bool(), Some(true))?;
    }
    Ok("by LD_PRELOAD beside it and by the driver".into())
}
