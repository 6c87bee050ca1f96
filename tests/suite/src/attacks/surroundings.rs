//! What is missing or odd around an application: file systems, folders, variables, descriptors that
//! it was started with. It computes the same.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;

use super::limits::{Way, compared};
use super::{ARGUMENTS, each, notes};
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: file systems that are missing or full", systems),
        case("attacks: folders and variables that are missing", folders),
        case("attacks: names that are no text", names),
        case(
            "attacks: dispositions of signals that are inherited",
            dispositions,
        ),
    ]
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// Runs the application where these commands were run in folders of its own.
fn beyond(bench: &Bench, commands: &str) -> Told {
    let tried = Command::new("unshare")
        .args(["-m", "sh", "-c", commands])
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return Ok("skipped: folders of its own cannot be had here (only root can)".into());
    }
    let script = format!("{commands}; exec \"$@\"");
    compared(
        bench,
        &Way {
            wrapper: &["unshare", "-m", "sh", "-c", &script, "sh"],
            mode: &["plain"],
        },
    )
}

/// What the agent is told of its own memory is missing, which it says by the file's name.
fn without_proc(bench: &Bench) -> Told {
    const WHY: &str = "the same without programs, told: nothing was instrumented in process N: the CUDA driver cannot be hooked: it is not known where memory is free: `/proc/thread-self/maps` cannot be read: No such file or directory (os error 2)";
    let what = beyond(bench, "mount -t tmpfs none /proc")?;
    if what.starts_with("skipped: ") {
        return Ok(what);
    }
    let parts = what.split("process ");
    let parts = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    let unnumbered = parts.collect::<Vec<_>>().join("process N");
    // Once for each way in.
    same(
        "what is told",
        unnumbered.as_str(),
        &format!("{WHY}; {WHY}"),
    )?;
    Ok(WHY.to_owned())
}

fn systems(bench: &Bench) -> Told {
    let root = bench.scratch("root");
    std::fs::create_dir_all(&root).map_err(failed)?;
    let root = root.display().to_string();
    each(&[
        ("no /proc", &|| without_proc(bench)),
        ("a full /dev/shm", &|| {
            beyond(
                bench,
                "mount -t tmpfs -o size=4k none /dev/shm; head -c 4096 /dev/zero >/dev/shm/all",
            )
        }),
        ("no /dev", &|| beyond(bench, "mount -t tmpfs none /dev")),
        ("no /sys and no /run", &|| {
            beyond(bench, "mount -t tmpfs none /sys; mount -t tmpfs none /run")
        }),
        ("`chroot` into an empty folder after a launch", &|| {
            compared(
                bench,
                &Way {
                    wrapper: &[],
                    mode: &["root", &root],
                },
            )
        }),
    ])
}

fn folders(bench: &Bench) -> Told {
    let with = |wrapper: &[&str]| {
        compared(
            bench,
            &Way {
                wrapper,
                mode: &["plain"],
            },
        )
    };
    let unwritable = bench.scratch("unwritable");
    std::fs::create_dir_all(&unwritable).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o500);
    std::fs::set_permissions(&unwritable, mode).map_err(failed)?;
    let unwritable = format!("TMPDIR={}", unwritable.display());
    each(&[
        ("no HOME and no user", &|| {
            with(&[
                "-u",
                "HOME",
                "-u",
                "USER",
                "-u",
                "LOGNAME",
                "-u",
                "XDG_RUNTIME_DIR",
            ])
        }),
        (
            "folders for temporary files that nobody may write to",
            &|| with(&[&unwritable]),
        ),
        ("folders that are not there", &|| {
            with(&[
                "TMPDIR=/none",
                "HOME=/none",
                "XDG_CACHE_HOME=/none",
                "XDG_RUNTIME_DIR=/none",
            ])
        }),
        ("folders that are devices", &|| {
            with(&[
                "TMPDIR=/dev/null",
                "HOME=/dev/null",
                "XDG_RUNTIME_DIR=/dev/null",
            ])
        }),
        ("a working folder that is gone", &|| {
            compared(
                bench,
                &Way {
                    wrapper: &[],
                    mode: &["folder"],
                },
            )
        }),
    ])
}

/// Names of files, arguments and variables of any bytes.
fn names(bench: &Bench) -> Told {
    let expected = bench.plain("strange", &["plain"])?;
    let named = |name: &[u8]| {
        let folder = bench.scratch("names").join(OsStr::from_bytes(name));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let app = folder.join(OsStr::from_bytes(name));
        let _ = std::fs::remove_file(&app);
        std::fs::copy(bench.app("strange"), &app).map_err(failed)?;
        let saved = folder.join(OsStr::from_bytes(&[name, b".json"].concat()));
        let mut command = bench.warpbpf("run");
        command.args(["--json", "-o"]).arg(&saved);
        command.arg(bench.object("launchcount")).arg("--").arg(&app);
        command.arg("plain").arg(OsStr::from_bytes(name));
        command.env("ODD", OsStr::from_bytes(name));
        let output = command.output().map_err(failed)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same("status", output.status.code(), Some(0)).map_err(|why| format!("{why}: {errors}"))?;
        same("output", output.stdout == expected, true)?;
        let acts = |c: char| c.is_control() && c != '\n';
        same("what a terminal acts on", errors.find(acts), None)?;
        let report = std::fs::read(&saved).map_err(failed)?;
        let report: Value = serde_json::from_slice(&report).map_err(|e| e.to_string())?;
        let launches = report["processes"][0]["kernels"][0]["launches"].as_u64();
        same("launches", launches, Some(10))
            .map_err(|why| format!("{why}: {:?}", notes(&report)))?;
        let exe = report["processes"][0]["exe"].as_str();
        let whole = String::from_utf8_lossy(app.as_os_str().as_bytes()).into_owned();
        same("its name", exe, Some(whole.as_str()))?;
        Ok("counted under its name, in a report of that name".to_owned())
    };
    each(&[
        ("a name that is not UTF-8", &|| named(b"a\xff\xfe\xc3(")),
        ("a name with a newline", &|| named(b"a\nwarpbpf: b")),
        ("a name with escapes", &|| named(b"\x1b[2J\x1b]0;c\x07\r")),
        ("a name with spaces and quotes", &|| {
            named(b" a' \"$(b) ;c\\ ")
        }),
        ("a name as long as may be", &|| named(&[b'n'; 100])),
        ("a name like a flag", &|| named(b"--json")),
    ])
}

/// Who starts the command has these ignored or blocked; the status of the application is that of
/// the command.
fn dispositions(bench: &Bench) -> Told {
    let under = |trap: &str, script: &str, expected: i32| {
        let saved = bench.scratch("dispositions.json");
        let _ = std::fs::remove_file(&saved);
        let run = bench.warpbpf("run");
        let mut command = Command::new("env");
        command
            .arg(format!("--ignore-signal={trap}"))
            .arg(run.get_program())
            .args(run.get_args());
        command.args(["--json", "-o"]).arg(&saved);
        command.arg(bench.object("launchcount"));
        command.args(["--", "sh", "-c", script, "sh"]);
        command.arg(bench.app("vectoradd")).args(ARGUMENTS);
        let output = command.output().map_err(failed)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same("status", output.status.code(), Some(expected))
            .map_err(|why| format!("{why}: {errors}"))?;
        let report = std::fs::read(&saved).map_err(failed)?;
        let report: Value = serde_json::from_slice(&report).map_err(|e| e.to_string())?;
        same(
            "launches",
            report["processes"][0]["kernels"][0]["launches"].as_u64(),
            Some(1),
        )?;
        same("status", report["status"].as_i64(), Some(expected.into()))?;
        Ok(format!("status {expected}"))
    };
    each(&[
        ("SIGCHLD ignored", &|| under("CHLD", "\"$@\"; exit 7", 7)),
        ("SIGPIPE ignored", &|| {
            under("PIPE", "\"$@\" | true; exit 7", 7)
        }),
        ("all that can be ignored", &|| {
            under(
                "HUP,INT,QUIT,USR1,USR2,TERM,ALRM,CHLD,PIPE,TSTP",
                "\"$@\"; exit 7",
                7,
            )
        }),
        (
            "an application that kills itself, with SIGCHLD ignored",
            &|| under("CHLD", "\"$@\"; kill -KILL $$", 128 + 9),
        ),
    ])
}
