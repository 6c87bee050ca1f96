//! How a process ends, and what its report says of the data that did not come home: the launches
//! are exact whatever ends it, and how many launches' data are missing is told.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use serde_json::Value;
use warpbpf_tool::{Object, Options, Tool};

use crate::attach::number;
use crate::faults::agent_has_sites;
use crate::library::failed;
use crate::process::Signal;
use crate::replace::start;
use crate::run::{Bench, Case, Run, Told, same, says};

const LAUNCHES: u64 = 10;
const THREADS: u64 = 640;
/// Kernels of `live.cu`.
const KERNELS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);
/// No copy of the maps comes home.
const NO_COPY: (&str, &str) = ("WARPBPF_FAULT", "agent/copy:1+");

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("endings: killed by a signal", |bench| {
            died(bench, &["leave", "kill"])
        }),
        case("endings: abort", |bench| died(bench, &["leave", "abort"])),
        case("endings: a system call of its own", |bench| {
            died(bench, &["leave", "system"])
        }),
        case("endings: killed after launches of a graph", |bench| {
            died(bench, &["graph", "kill"])
        }),
        case("endings: killed after a copy", copied),
        case("endings: _exit and quick_exit", |bench| {
            whole(bench, &[&["leave", "_exit"], &["leave", "quick"]])
        }),
        case("endings: exit, and a return from main", |bench| {
            whole(bench, &[&["leave", "exit"], &["plain"], &["graph", "exit"]])
        }),
        case("endings: another program takes its place", executes),
        case("endings: _exit while a kernel runs", running),
        case("endings: launches in exit handlers and destructors", late),
        case("endings: no memory to count launches in", untold),
    ]
}

/// What a report says of a process.
#[derive(Debug, PartialEq)]
struct Said {
    /// With programs, and without.
    launches: [u64; 2],
    missing: Option<u64>,
    kernels_ran: Option<bool>,
    complete: bool,
}

fn said(process: &Value) -> Said {
    let kernels = || process["kernels"].as_array().into_iter().flatten();
    let sum = |field: &str| kernels().map(|kernel| number(&kernel[field])).sum();
    Said {
        launches: ["launches", "uninstrumented"].map(sum),
        missing: process["missing_launches"].as_u64(),
        kernels_ran: process["kernels_ran_at_last_copy"].as_bool(),
        complete: process["complete"] == true,
    }
}

/// How the process ended, as `warpbpf run` says it.
fn shell(status: ExitStatus) -> Option<i32> {
    status.code().or(status.signal().map(|number| 128 + number))
}

/// The application's output and how it ended are what they are without us.
fn both(bench: &Bench, arguments: &[&str]) -> Result<Run, String> {
    let mut command = Command::new(bench.app("odd"));
    command.args(arguments);
    command.envs(bench.variables.iter().map(|(name, value)| (name, value)));
    if bench.soft {
        command.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
    }
    let alone = command.output().map_err(|e| format!("odd: {e}"))?;
    let object = bench.object("launchcount");
    let run = bench.probed(&[], &object, &bench.app("odd"), arguments)?;
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    same("output", text(&run.output), text(&alone))?;
    let status = run.output.status.code();
    same("status", status, shell(alone.status))
        .map_err(|why| format!("{why}; {}", run.errors()))?;
    Ok(run)
}

/// A sentence about data that are missing.
fn tells(run: &Run, sentence: &str) -> Result<(), String> {
    let pid = number(&run.process()["pid"]);
    says(&run.notes(), &format!("process {pid}{sentence}"))
}

fn tells_nothing(run: &Run) -> Result<(), String> {
    match run.notes().contains("missing") {
        false => Ok(()),
        true => Err(run.notes()),
    }
}

/// Nothing of ours gets to know of its end.
fn died(bench: &Bench, arguments: &[&str]) -> Told {
    let run = both(bench, arguments)?;
    let found = said(run.process());
    // How many came home by then depends on when that was.
    let missing = found.missing.filter(|missing| *missing <= LAUNCHES);
    let expected = Said {
        launches: [LAUNCHES, 0],
        missing,
        kernels_ran: found.kernels_ran.filter(|ran| !ran),
        complete: false,
    };
    same("of a process that is gone", &found, &expected)?;
    same("missing is a number", missing.is_some(), true)?;
    if !agent_has_sites(bench) {
        return Ok("at most ten launches' data are missing".into());
    }
    let run = both(&bench.with(&[NO_COPY]), arguments)?;
    let expected = Said {
        launches: [LAUNCHES, 0],
        missing: Some(LAUNCHES),
        kernels_ran: Some(false),
        complete: false,
    };
    same("of one without a copy", said(run.process()), expected)?;
    tells(
        &run,
        " ended without a good-bye: the data of its last 10 launches are missing",
    )?;
    Ok("all launches are counted, and those without data".into())
}

/// What was copied is there, and what was launched behind that is missing.
fn copied(bench: &Bench) -> Told {
    for more in [0, 5] {
        let object = Object::open(bench.object("launchcount")).map_err(failed)?;
        let tool = Tool::attach(object, Options::default()).map_err(failed)?;
        let mut application = start(bench, &tool, &["live"])?;
        application.launch(4)?;
        let processes = tool.processes();
        let process = processes.first().ok_or("it has not come")?;
        process.snapshot().map_err(failed)?;
        same("missing behind a copy", process.missing_launches(), Some(0))?;
        if more > 0 {
            application.launch(more)?;
        }
        application.signal(Signal::Kill)?;
        same("last words", tool.wait_last_words(PATIENCE), true)?;
        let launches = process.kernels().into_iter().map(|kernel| kernel.launches);
        same("launches", launches.sum(), (4 + more) * KERNELS)?;
        let missing = process.missing_launches().ok_or("nothing is known")?;
        // Another copy may have come meanwhile.
        let most = more * KERNELS;
        same("missing in the end", missing.min(most), missing)?;
        same("kernels ran", process.kernels_ran_at_last_copy(), None)?;
        same("complete", process.is_complete(), false)?;
    }
    Ok("nothing is missing of what was copied".into())
}

/// All comes home, and nothing is said.
fn whole(bench: &Bench, all: &[&[&str]]) -> Told {
    for arguments in all {
        let run = both(bench, arguments)?;
        let expected = Said {
            launches: [LAUNCHES, 0],
            missing: Some(0),
            kernels_ran: Some(false),
            complete: true,
        };
        let told = arguments.join(" ");
        same(&told, said(run.process()), expected)?;
        tells_nothing(&run)?;
        if !agent_has_sites(bench) {
            continue;
        }
        // It says good-bye, and its data cannot be copied.
        let run = both(&bench.with(&[NO_COPY]), arguments)?;
        let expected = Said {
            launches: [LAUNCHES, 0],
            missing: Some(LAUNCHES),
            kernels_ran: Some(false),
            complete: false,
        };
        same(&told, said(run.process()), expected)?;
        tells(&run, ": the data of its last 10 launches are missing")?;
    }
    Ok("0 are missing".into())
}

fn executes(bench: &Bench) -> Told {
    let run = both(bench, &["leave", "exec"])?;
    let expected = Said {
        launches: [LAUNCHES, 0],
        missing: Some(0),
        kernels_ran: Some(false),
        // Nobody knew that the other program would be there.
        complete: false,
    };
    same("of another program", said(run.process()), expected)?;
    tells_nothing(&run)?;
    let (_, value) = run.entries("kernels")?.pop().ok_or("nothing is counted")?;
    same("threads", value["threads"].as_u64(), Some(THREADS))?;
    Ok("0 are missing".into())
}

fn running(bench: &Bench) -> Told {
    if !bench.soft {
        return Ok("skipped: the kernel never ends, and a GPU may be kept by it".into());
    }
    let run = both(&bench.with(&[("WARPBPF_SOFT_ASYNC", "1")]), &["running"])?;
    let expected = Said {
        launches: [LAUNCHES + 1, 0],
        // That of the kernel which runs, or a part of it: nobody can say how many more there are.
        missing: Some(0),
        kernels_ran: Some(true),
        complete: false,
    };
    same("while a kernel runs", said(run.process()), expected)?;
    tells(
        &run,
        " ended while kernels ran: some of their data are missing",
    )?;
    Ok("it is not complete, and why is said".into())
}

fn late(bench: &Bench) -> Told {
    // The agent's handler runs before `early` and `static`, as it was registered later.
    for what in ["handler", "destructor", "early", "static"] {
        let run = both(bench, &["late", what])?;
        let output = String::from_utf8_lossy(&run.output.stdout);
        let ran = output.matches("sum ").count() == 2;
        // NVIDIA's runtime refuses launches in handlers that were registered before it was loaded.
        let may_be_refused = !bench.soft && ["early", "static"].contains(&what);
        same("the late launch runs", ran || may_be_refused, true)?;
        let expected = Said {
            launches: [LAUNCHES + u64::from(ran), 0],
            missing: Some(0),
            kernels_ran: Some(false),
            complete: true,
        };
        same(what, said(run.process()), expected)?;
        tells_nothing(&run)?;
    }
    Ok("counted".into())
}

/// Without memory that is shared, launches are told once a second, and nobody knows what is
/// missing.
fn untold(bench: &Bench) -> Told {
    if !agent_has_sites(bench) {
        return Ok("skipped: a release build has no fault sites".into());
    }
    let without = bench.with(&[("WARPBPF_FAULT", "agent/launches:1+")]);
    for (how, complete) in [("exit", true), ("kill", false)] {
        let run = both(&without, &["leave", how])?;
        let found = said(run.process());
        let expected = Said {
            // Of one that is killed, those of which was told.
            launches: [found.launches[0].min(LAUNCHES), 0],
            missing: complete.then_some(0),
            kernels_ran: complete.then_some(false),
            complete,
        };
        same(how, &found, &expected)?;
        same(
            "all launches",
            !complete || found.launches[0] == LAUNCHES,
            true,
        )?;
        says(
            &run.remarks(),
            "if the process is killed, its last launches may be missing in the report",
        )?;
    }
    Ok("known of one that says good-bye".into())
}
