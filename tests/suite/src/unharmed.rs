//! Applications that are odd in one way each: with programs in them they compute the same, and what
//! is theirs (files, pipes, standard output) is left alone.

use std::process::Command;
use std::time::Duration;

use crate::attach::{Application, Attached};
use crate::run::{Bench, Case, Run, Told, same};

const LAUNCHES: u64 = 10;
const THREADS: u64 = 640;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("unharmed: descriptors are closed before CUDA", |bench| {
            closed(bench, "close-before")
        }),
        case("unharmed: descriptors are closed after a launch", |bench| {
            closed(bench, "close-after")
        }),
        case("unharmed: descriptors are closed all the time", |bench| {
            closed(bench, "close-often")
        }),
        case("unharmed: pipes take the numbers of descriptors", |bench| {
            closed(bench, "pipes")
        }),
        case("unharmed: started without standard streams", streams),
        case("unharmed: a thread with a small stack", |bench| {
            small(bench, "thread", &[24, 32, 64])
        }),
        case("unharmed: a small stack of its own making", |bench| {
            small(bench, "context", &[16, 32, 64])
        }),
        case("unharmed: the main thread has ended", |bench| {
            counted(bench, "env", &["leader"])
        }),
        case("unharmed: no file may grow", sizes),
        case("unharmed: attached to again and again", again),
        case("unharmed: ends without handlers", ends),
        case("unharmed: workers that end without handlers", workers),
    ]
}

/// The same output with programs in it, and all counted.
fn counted(bench: &Bench, inject: &str, arguments: &[&str]) -> Told {
    let run = bench.both_with(&["--inject", inject], "launchcount", "odd", arguments)?;
    all_of(&run).map_err(|why| format!("{why}; {}", run.notes()))
}

fn all_of(run: &Run) -> Told {
    same("status", run.output.status.code(), Some(0))?;
    let entries = run.entries("kernels")?;
    let [(_, value)] = entries.as_slice() else {
        return Err(format!("{} kernels counted", entries.len()));
    };
    let counts = ["launches", "threads"].map(|field| value[field].as_u64());
    same(
        "launches and threads",
        counts,
        [Some(LAUNCHES), Some(THREADS)],
    )?;
    Ok(format!("{LAUNCHES} launches"))
}

/// NVIDIA's driver keeps descriptors in the application's table, and does not do without them.
const OWN: &str = "skipped: the GPU's driver does not do without its own descriptors";

fn closed(bench: &Bench, mode: &str) -> Told {
    if !bench.soft {
        return Ok(OWN.to_owned());
    }
    let folder = bench.scratch("own");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folder = folder.display().to_string();
    for inject in ["env", "preload"] {
        let flags = ["--inject", inject];
        // The output says whether its files and pipes are its own.
        let run = bench.both_with(&flags, "launchcount", "odd", &[mode, &folder])?;
        same("status", run.output.status.code(), Some(0))?;
        // The connection with the tool may be lost, which is told.
        if run.process()["complete"].as_bool() != Some(false) {
            all_of(&run).map_err(|why| format!("{inject}: {why}"))?;
        }
    }
    Ok("its files and pipes are its own".to_owned())
}

/// 0, 1 and 2 are closed, one at a time and all: what the application has there is its own
/// business.
fn streams(bench: &Bench) -> Told {
    let files = [bench.scratch("plain.txt"), bench.scratch("probed.txt")];
    // The first file that it opens is its standard output, if that is closed.
    let script = |closed: &str, app: &str, file: &std::path::Path| {
        format!(
            "exec {closed}; {app} plain >/dev/null 2>&1; {app} plain 7>&-; exec 9>>'{}'; echo last >&9",
            file.display()
        )
    };
    let odd = bench.app("odd").display().to_string();
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"] {
        for file in &files {
            let _ = std::fs::remove_file(file);
        }
        let mut plain = Command::new("sh");
        plain.arg("-c").arg(script(closed, &odd, &files[0]));
        if bench.soft {
            plain.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
        }
        let alone = plain.output().map_err(|e| format!("sh: {e}"))?;
        let text = script(closed, &odd, &files[1]);
        let object = bench.object("launchcount");
        let run = bench.probed(&[], &object, "sh".as_ref(), &["-c", &text])?;
        same("status", run.output.status.code(), alone.status.code())?;
        let [plain, probed] = files.each_ref().map(std::fs::read);
        same(closed, probed.ok(), plain.ok())?;
        let output = String::from_utf8_lossy(&run.output.stdout).into_owned();
        let expected = String::from_utf8_lossy(&alone.stdout).into_owned();
        same(closed, output, expected)?;
    }
    Ok("as alone".to_owned())
}

/// On whatever stack it works alone, it works with programs.
fn small(bench: &Bench, how: &str, all: &[u32]) -> Told {
    let mut worked = Vec::new();
    for kib in all {
        let size = kib.to_string();
        if bench.plain("odd", &[how, &size]).is_err() {
            continue;
        }
        for inject in ["env", "preload"] {
            counted(bench, inject, &[how, &size]).map_err(|why| format!("{kib} KiB: {why}"))?;
        }
        worked.push(size);
    }
    match worked.is_empty() {
        true => Err("it works alone with none of them".to_owned()),
        false => Ok(format!("with {} KiB", worked.join(", "))),
    }
}

/// What a process did last comes home, by whatever function of libc it ends, and its report says
/// that this is all. Where it asks the system itself, the report says that something is missing.
fn ends(bench: &Bench) -> Told {
    for how in ["_exit", "quick", "handler", "exec", "system"] {
        let run = bench.both("launchcount", "odd", &["leave", how])?;
        let complete = run.process()["complete"].as_bool();
        match how {
            "system" => same(how, complete, Some(false))?,
            // Nobody knows that the other program will be there.
            "exec" => {
                all_of(&run).map_err(|why| format!("{how}: {why}"))?;
            }
            _ => {
                all_of(&run).map_err(|why| format!("{how}: {why}"))?;
                same(how, complete, Some(true))?;
            }
        }
    }
    Ok("all that was counted came home".to_owned())
}

fn workers(bench: &Bench) -> Told {
    for how in ["_exit", "quick", "exec"] {
        let run = bench.both("launchcount", "odd", &["workers", how])?;
        let processes = run.report["processes"].as_array().map_or(0, Vec::len);
        same("processes", processes, 2)?;
        for process in 0..processes {
            let kernels = run.report["processes"][process]["kernels"].as_array();
            let launches = kernels
                .into_iter()
                .flatten()
                .map(|k| k["launches"].as_u64());
            same(how, launches.collect::<Vec<_>>(), vec![Some(LAUNCHES)])?;
            let maps = run.report["processes"][process]["maps"].as_array();
            let map = maps
                .into_iter()
                .flatten()
                .find(|map| map["name"] == "kernels");
            let threads = map.map(|map| map["entries"][0]["value"]["threads"].as_u64());
            same(how, threads, Some(Some(THREADS)))?;
        }
    }
    Ok("all that two workers counted came home".to_owned())
}

/// What an attach needs in the process goes with it: after the first few there are as many
/// descriptors, threads and mappings as there were.
fn again(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let folder = format!("/proc/{}", application.pid());
    let held = || -> std::io::Result<[usize; 3]> {
        let count = |name: &str| std::fs::read_dir(format!("{folder}/{name}")).map(Iterator::count);
        let maps = std::fs::read(format!("{folder}/maps"))?;
        let mappings = maps.iter().filter(|byte| **byte == b'\n').count();
        Ok([count("fd")?, count("task")?, mappings])
    };
    let mut first: Option<[usize; 3]> = None;
    for round in 0..12 {
        match Attached::start(bench, &application, "launchcount") {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            attached => {
                let attached = attached?;
                application.launch(2)?;
                attached.interrupt()?;
            }
        }
        let look = || held().map_err(|e| format!("{folder}: {e}"));
        let mut now = look()?;
        // What works with descriptors ends last.
        for _ in 0..100 {
            if first.is_none_or(|[descriptors, ..]| now[0] <= descriptors) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            now = look()?;
        }
        match (round, first) {
            (3, _) => first = Some(now),
            (11, Some([descriptors, threads, mappings])) => {
                same("descriptors", now[0], descriptors)?;
                // The soft GPU's own come and go with streams.
                if now[1] > threads + 1 || now[2] > mappings + 8 {
                    return Err(format!("{now:?} threads and mappings, {first:?} before"));
                }
            }
            _ => {}
        }
    }
    application.end()?;
    Ok("twelve times".to_owned())
}

/// The limit is for files; what is shared with the tool is none of the application's, and brings it
/// no signal.
fn sizes(bench: &Bench) -> Told {
    for most in ["0", "4096", "1048576", "100000000"] {
        for inject in ["env", "preload"] {
            let flags = ["--inject", inject];
            let run = bench.both_with(&flags, "launchcount", "odd", &["sizes", most])?;
            same("status", run.output.status.code(), Some(0))?;
            // It is counted, or the reason is told.
            if !run.notes().contains("RLIMIT_FSIZE") {
                all_of(&run).map_err(|why| format!("{most} bytes: {why}"))?;
            }
        }
    }
    Ok("no signal".to_owned())
}
