//! Applications that leave little room, or forbid what a tool would like to do: they compute the
//! same and end the same; what was launched is counted, or the reason is told.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ONLY_ROOT, SOMEBODY, each, is_root};
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case(
            "attacks: descriptors of ours replaced and inherited",
            descriptors,
        ),
        case("attacks: few descriptors, little memory, no threads", rooms),
        case("attacks: system calls that a filter forbids", filters),
        case("attacks: odd states of threads", threads),
        case("attacks: children and programs at odd moments", children),
        case(
            "attacks: an application that nobody may look into",
            undumpable,
        ),
    ]
}

const LAUNCHES: u64 = 10;

/// The wrapper, if there is one, and the application with its mode.
pub(crate) struct Way<'w> {
    pub(crate) wrapper: &'w [&'w str],
    pub(crate) mode: &'w [&'w str],
}

/// Alone and with programs, however they come in: the same output and status. What it does alone
/// may fail, then there is nothing to compare.
pub(crate) fn compared(bench: &Bench, way: &Way<'_>) -> Told {
    let app = bench.app("strange");
    let in_wrapper = |command: &mut Command| {
        command.args(way.wrapper).arg(&app).args(way.mode);
    };
    let mut plain = Command::new("env");
    in_wrapper(&mut plain);
    if bench.soft {
        plain.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
    }
    let plain = plain.output().map_err(|e| e.to_string())?;
    if plain.status.code() != Some(0) {
        let errors = String::from_utf8_lossy(&plain.stderr).into_owned();
        return Ok(format!(
            "skipped: alone it does not run here: {}",
            errors.trim()
        ));
    }
    let mut all = Vec::new();
    for inject in ["env", "preload"] {
        let saved = bench.scratch("strange.json");
        let _ = std::fs::remove_file(&saved);
        let mut command = bench.warpbpf("run");
        command
            .args(["--inject", inject, "--json", "-o"])
            .arg(&saved);
        command.arg(bench.object("launchcount")).args(["--", "env"]);
        in_wrapper(&mut command);
        let output = command.output().map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ended = (output.status.code(), text(&output.stdout));
        same(inject, ended, (Some(0), text(&plain.stdout)))
            .map_err(|why| format!("{why}: {}", text(&output.stderr)))?;
        all.push(counted(&saved, inject)?);
    }
    all.dedup();
    Ok(all.join("; "))
}

/// All launches were counted, or a note says why not.
fn counted(saved: &Path, inject: &str) -> Result<String, String> {
    let bytes = std::fs::read(saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let empty = Vec::new();
    let processes = report["processes"].as_array().unwrap_or(&empty);
    let kernels = processes
        .iter()
        .flat_map(|p| p["kernels"].as_array().into_iter().flatten());
    let launches = kernels.filter_map(|kernel| kernel["launches"].as_u64());
    let launches: Vec<u64> = launches.collect();
    let notes = super::notes(&report);
    // The connection may be lost, which the report says by that.
    let whole = processes.iter().all(|p| p["complete"] == true);
    match (launches.as_slice(), whole, notes.first()) {
        ([LAUNCHES], ..) => Ok(format!("the same, {LAUNCHES} launches counted")),
        (launches, false, _) if !processes.is_empty() && launches.iter().sum::<u64>() > 0 => {
            Ok("the same, and the report is not complete".into())
        }
        (_, _, Some(why)) => Ok(format!("the same without programs, told: {why}")),
        (launches, _, None) => Err(format!(
            "{inject}: launches {launches:?}, and nothing is told: {report}"
        )),
    }
}

fn mode(bench: &Bench, mode: &[&str]) -> Told {
    compared(bench, &Way { wrapper: &[], mode })
}

const OWN: &str = "skipped: the GPU's driver does not do without its own descriptors";

fn descriptors(bench: &Bench) -> Told {
    if !bench.soft {
        return Ok(OWN.to_owned());
    }
    each(&[
        ("`dup2` over each descriptor", &|| mode(bench, &["over"])),
        (
            "each descriptor inherited by a program that writes to it",
            &|| mode(bench, &["inherited"]),
        ),
    ])
}

fn rooms(bench: &Bench) -> Told {
    let shell = |limit: &str, word: &str| {
        let script = format!("{limit}; exec \"$@\"");
        compared(
            bench,
            &Way {
                wrapper: &["sh", "-c", &script, "sh"],
                mode: &[word],
            },
        )
    };
    each(&[
        ("no descriptor more", &|| mode(bench, &["files", "0"])),
        ("one descriptor more", &|| mode(bench, &["files", "1"])),
        ("three descriptors more", &|| mode(bench, &["files", "3"])),
        ("2048 MiB of address space more", &|| {
            mode(bench, &["memory", "2048"])
        }),
        ("4096 MiB of address space more", &|| {
            mode(bench, &["memory", "4096"])
        }),
        ("32768 MiB of address space more", &|| {
            mode(bench, &["memory", "32768"])
        }),
        (
            "no thread more, as a user with a limit",
            &|| match is_root() {
                false => mode(bench, &["processes", "1"]),
                true => {
                    Ok(ONLY_ROOT.replace("only root can be two users", "root has no such limit"))
                }
            },
        ),
        ("a stack of 128 KiB", &|| shell("ulimit -s 128", "plain")),
        ("no core, no locked memory", &|| {
            shell("ulimit -c 0; ulimit -l 0", "plain")
        }),
        ("little time left", &|| shell("ulimit -t 60", "plain")),
    ])
}

fn filters(bench: &Bench) -> Told {
    each(&[
        ("sockets are forbidden", &|| {
            mode(bench, &["filter", "sockets"])
        }),
        ("memory files are forbidden", &|| {
            mode(bench, &["filter", "memfd"])
        }),
        ("reading of a process's memory is forbidden", &|| {
            mode(bench, &["filter", "vm"])
        }),
        ("alternate signal stacks are forbidden", &|| {
            mode(bench, &["filter", "signals"])
        }),
        ("opening of files is forbidden", &|| {
            mode(bench, &["filter", "files"])
        }),
    ])
}

fn threads(bench: &Bench) -> Told {
    each(&[
        ("launches in a signal handler, on 24 KiB", &|| {
            mode(bench, &["handler", "24"])
        }),
        ("launches in a signal handler, on 64 KiB", &|| {
            mode(bench, &["handler", "64"])
        }),
        ("all signals blocked, and some that wait", &|| {
            mode(bench, &["blocked"])
        }),
        ("threads that are cancelled", &|| {
            mode(bench, &["cancelled"])
        }),
        ("threads with names of odd bytes", &|| {
            mode(bench, &["renamed"])
        }),
    ])
}

fn children(bench: &Bench) -> Told {
    each(&[
        ("`fork` between any two calls", &|| mode(bench, &["forks"])),
        ("`vfork` and `exec` beside launches", &|| {
            mode(bench, &["vforks"])
        }),
        ("`execve` of what is not there", &|| {
            mode(bench, &["missing"])
        }),
    ])
}

fn undumpable(bench: &Bench) -> Told {
    let as_somebody = || match is_root() {
        false => Ok(ONLY_ROOT.to_owned()),
        true => {
            let user = SOMEBODY.to_string();
            let id = [format!("--reuid={user}"), format!("--regid={user}")];
            compared(
                bench,
                &Way {
                    wrapper: &["setpriv", &id[0], &id[1], "--clear-groups", "--"],
                    mode: &["undumpable"],
                },
            )
        }
    };
    each(&[
        ("`PR_SET_DUMPABLE`, by the same user", &|| {
            mode(bench, &["undumpable"])
        }),
        ("an application that gives its user up", &as_somebody),
    ])
}
