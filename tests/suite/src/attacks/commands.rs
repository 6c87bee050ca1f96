//! What becomes of a command's output where it cannot go: nothing is lost without a word, and the
//! exit status says so.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::{ARGUMENTS, PATIENCE, each};
use crate::process::{Owned, Signal, signal};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: standard streams that are closed or full", streams),
        case("attacks: a report's place that goes away", places),
        case("attacks: JSON and nothing else", purity),
        case("attacks: applications that cannot start", absent),
        case("attacks: a report for a FIFO that nobody reads", unread),
    ]
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// The command by a shell, which does something with its streams.
fn by_shell(
    bench: &Bench,
    redirected: &str,
    flags: &[&str],
    app: &[&str],
) -> Result<(Option<i32>, String, String), String> {
    let mut run = bench.warpbpf("run");
    run.args(flags)
        .arg(bench.object("threadhist"))
        .arg("--")
        .args(app);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$@\" {redirected}"), "sh"]);
    command.arg(run.get_program()).args(run.get_args());
    let output = command.output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn threads(text: &str) -> Option<u64> {
    let report: Value = serde_json::from_str(text.trim()).ok()?;
    report["processes"][0]["maps"][0]["threads"]["count"].as_u64()
}

fn streams(bench: &Bench) -> Told {
    let app = bench.app("vectoradd").display().to_string();
    let app = [app.as_str(), "1000", "1"];
    let on_error = |redirected: &str| {
        let (status, _, errors) = by_shell(bench, redirected, &["--json", "-o", "-"], &app)?;
        let line = errors.lines().find(|line| line.starts_with('{'));
        same("threads", threads(line.unwrap_or_default()), Some(1024))
            .map_err(|why| format!("{why}: {errors}"))?;
        same("status", status, Some(125))?;
        says(&errors, "warpbpf: cannot write `-`: ")?;
        Ok("125, and the report is on standard error".to_owned())
    };
    each(&[
        ("standard output closed, and a report for it", &|| {
            on_error("</dev/null >&-")
        }),
        ("standard output full, and a report for it", &|| {
            on_error(">/dev/full")
        }),
        ("standard error closed, and a report for it", &|| {
            let (status, out, errors) = by_shell(bench, "2>&-", &[], &app)?;
            same("status", (status, errors.as_str()), (Some(125), ""))?;
            let alone = bench.plain("vectoradd", ARGUMENTS)?;
            same("output", out.as_bytes() == alone, true)?;
            Ok("125".to_owned())
        }),
        ("all of them closed", &|| {
            let file = bench.scratch("closed.json");
            let path = file.display().to_string();
            let (status, ..) =
                by_shell(bench, "<&- >&- 2>&-", &["--json", "-o", &path], &["true"])?;
            same("status", status, Some(0))?;
            let report = std::fs::read(&file).map_err(failed)?;
            let report: Value = serde_json::from_slice(&report).map_err(|e| e.to_string())?;
            same("status", report["status"].as_i64(), Some(0))?;
            Ok("the report is in its file".to_owned())
        }),
    ])
}

/// The application itself does something to where its report is to be.
fn places(bench: &Bench) -> Told {
    let folder = bench.scratch("place");
    let file = folder.join("report.json");
    let app = bench.app("vectoradd").display().to_string();
    let changed = |script: &str| {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let (path, folder) = (file.display().to_string(), folder.display().to_string());
        let script = format!("{script}; exec \"$@\"");
        let with = ["sh", "-c", &script, &folder, &app, "1000", "1"];
        by_shell(bench, "", &["--json", "-o", &path], &with)
    };
    let is_told = |script: &str| {
        let (status, _, errors) = changed(script)?;
        same("status", status, Some(125)).map_err(|why| format!("{why}: {errors}"))?;
        let line = errors.lines().find(|line| line.starts_with('{'));
        same("threads", threads(line.unwrap_or_default()), Some(1024))?;
        says(
            &errors,
            &format!("warpbpf: cannot write `{}`: ", file.display()),
        )?;
        Ok("125, and the report is on standard error".to_owned())
    };
    let precious = bench.scratch("precious");
    each(&[
        ("the report's folder is taken away", &|| {
            is_told("rmdir \"$0\"")
        }),
        ("a folder takes the report's place", &|| {
            is_told("mkdir \"$0/report.json\"")
        }),
        ("a link to a file takes the report's place", &|| {
            std::fs::write(&precious, "mine").map_err(failed)?;
            let link = format!("ln -s '{}' \"$0/report.json\"", precious.display());
            let (status, ..) = changed(&link)?;
            same("status", status, Some(0))?;
            let text = std::fs::read_to_string(&file).map_err(failed)?;
            same("threads", threads(&text), Some(1024))?;
            let kept = std::fs::read(&precious).map_err(failed)?;
            same("the file", kept.as_slice(), &b"mine"[..])?;
            Ok("the link is replaced, and the file is as it was".to_owned())
        }),
        (
            "the report's folder is made one that nobody may write to",
            &|| {
                if super::is_root() {
                    return Ok("skipped: root may write everywhere".into());
                }
                let told = is_told("chmod 500 \"$0\"");
                let own = std::fs::Permissions::from_mode(0o700);
                std::fs::set_permissions(&folder, own).map_err(failed)?;
                told
            },
        ),
        ("a report's name of odd bytes", &|| {
            let file = folder.join(std::ffi::OsStr::from_bytes(b"r\xff\n\x1b[2J.json"));
            std::fs::create_dir_all(&folder).map_err(failed)?;
            let mut command = bench.warpbpf("run");
            command.args(["--json", "-o"]).arg(&file);
            command
                .arg(bench.object("threadhist"))
                .arg("--")
                .arg(&app)
                .args(ARGUMENTS);
            let output = command.output().map_err(failed)?;
            same("status", output.status.code(), Some(0))?;
            let text = std::fs::read_to_string(&file).map_err(failed)?;
            same("threads", threads(&text), Some(1024))?;
            let names = std::fs::read_dir(&folder).map_err(failed)?;
            let left = names
                .flatten()
                .filter(|e| e.file_name().as_bytes().starts_with(b"."));
            same("files that are left", left.count(), 0)?;
            Ok("there under its name".to_owned())
        }),
    ])
}

/// Standard output has one JSON document, whatever happens.
fn purity(bench: &Bench) -> Told {
    let alone = |name: &str, command: &mut Command, status: i32| {
        let output = command.output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same("status", output.status.code(), Some(status))
            .map_err(|why| format!("{name}: {why}: {text} {errors}"))?;
        serde_json::from_str::<Value>(&text).map_err(|e| format!("{name}: {e}: {text}"))?;
        same("lines", text.lines().count(), 1)?;
        Ok::<_, String>("one document".to_owned())
    };
    let run = |app: &[&str], status| {
        let mut command = bench.warpbpf("run");
        command
            .args(["--json", "-o", "-"])
            .arg(bench.object("launchcount"))
            .arg("--")
            .args(app);
        alone("run", &mut command, status)
    };
    let missing = bench.scratch("missing.bpf.o");
    let vectoradd = bench.app("vectoradd").display().to_string();
    each(&[
        ("`-o -` of an application that says nothing", &|| {
            run(&["true"], 0)
        }),
        ("`-o -` of one that fails", &|| run(&["false"], 1)),
        ("`-o -` of one that is killed", &|| {
            run(&["sh", "-c", "kill -KILL $$"], 137)
        }),
        ("`-o -` of one whose streams are elsewhere", &|| {
            let script = format!("exec {vectoradd} 1000 1 >/dev/null 2>&1");
            run(&["sh", "-c", &script], 0)
        }),
        ("`verify --json` of nothing", &|| {
            alone(
                "verify",
                bench.warpbpf("verify").arg("--json").arg(&missing),
                125,
            )
        }),
        ("`verify --json` of random bytes", &|| {
            alone(
                "verify",
                bench.warpbpf("verify").args(["--json", "/bin/true"]),
                1,
            )
        }),
        ("`sites --json` of a text", &|| {
            alone(
                "sites",
                bench.warpbpf("sites").args(["--json", "/etc/passwd"]),
                1,
            )
        }),
        ("`ps --json`", &|| {
            alone("ps", bench.warpbpf("ps").arg("--json"), 0)
        }),
    ])
}

/// Nothing is started, the status says why as a shell's would, and a report that is there stays as
/// it was.
fn absent(bench: &Bench) -> Told {
    let folder = bench.scratch("absent");
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let (text, other) = (folder.join("text"), folder.join("other"));
    std::fs::write(&text, "echo hello\n").map_err(failed)?;
    std::fs::write(&other, "#!/none/none\n").map_err(failed)?;
    let run = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&other, run).map_err(failed)?;
    let name = |path: &std::path::Path| path.display().to_string();
    let report = folder.join("report.json");
    let refused = |app: &str, status: i32| {
        std::fs::write(&report, "old").map_err(failed)?;
        let path = report.display().to_string();
        let (ended, out, errors) = by_shell(bench, "", &["--json", "-o", &path], &[app])?;
        same("status", (ended, out.as_str()), (Some(status), ""))
            .map_err(|why| format!("{why}: {errors}"))?;
        same(
            "lines",
            errors.lines().count() >= 1 && errors.starts_with("warpbpf: "),
            true,
        )?;
        let kept = std::fs::read(&report).map_err(failed)?;
        same("the report that was there", kept.as_slice(), &b"old"[..])?;
        Ok(format!(
            "{status}, {}",
            errors.lines().next().unwrap_or_default()
        ))
    };
    each(&[
        ("an application that is not there", &|| {
            refused("/none/none", 127)
        }),
        ("an application of no name", &|| refused("", 127)),
        ("a file that may not be run", &|| refused(&name(&text), 126)),
        ("a script whose interpreter is not there", &|| {
            refused(&name(&other), 126)
        }),
        ("a folder in place of an application", &|| {
            refused(&name(&folder), 127)
        }),
        ("a device in place of an application", &|| {
            refused("/dev/null", 127)
        }),
    ])
}

/// Whoever wants it to end can end it.
fn unread(bench: &Bench) -> Told {
    let fifo = bench.scratch("unread");
    let made = Command::new("mkfifo").arg(&fifo).status().map_err(failed)?;
    same("mkfifo", made.success(), true)?;
    let ended_by = |kind: Signal| {
        let mut command = bench.warpbpf("run");
        command
            .args(["--json", "-o"])
            .arg(&fifo)
            .arg(bench.object("launchcount"));
        command.args(["--", "sh", "-c", "echo done"]);
        let mut child =
            Owned::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).map_err(failed)?;
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            let mut output = std::io::BufReader::new(output);
            std::io::BufRead::read_line(&mut output, &mut said).map_err(failed)?;
        }
        same("the application", said.as_str(), "done\n")?;
        let end = Instant::now() + PATIENCE;
        while child.try_wait().map_err(failed)?.is_none() {
            if Instant::now() > end {
                return Err(format!("it does not end by {kind:?}"));
            }
            // Before its application has ended they are the application's.
            signal(child.id(), kind)?;
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let output = child.output().map_err(failed)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same("the command ends well", output.status.success(), false)?;
        let path = fifo.display();
        says(
            &errors,
            &format!("warpbpf: cannot write `{path}`: nobody reads it"),
        )?;
        let line = errors.lines().find(|line| line.starts_with('{'));
        let report: Value =
            serde_json::from_str(line.unwrap_or_default()).map_err(|e| e.to_string())?;
        same("the report", report["command"][0].as_str(), Some("sh"))?;
        Ok("the command ends, and the report is on standard error".to_owned())
    };
    let read = || {
        let mut command = bench.warpbpf("run");
        command
            .args(["--json", "-o"])
            .arg(&fifo)
            .arg(bench.object("threadhist"));
        command
            .arg("--")
            .arg(bench.app("vectoradd"))
            .args(ARGUMENTS);
        let child = Owned::spawn(command.stdout(Stdio::null())).map_err(failed)?;
        let text = std::fs::read_to_string(&fifo).map_err(failed)?;
        let output = child.output().map_err(failed)?;
        same("status", output.status.code(), Some(0))?;
        same("threads", threads(&text), Some(1024))?;
        Ok("all of it comes to who reads".to_owned())
    };
    each(&[
        ("a FIFO that somebody reads", &read),
        ("Ctrl-C for a command whose report nobody reads", &|| {
            ended_by(Signal::Interrupt)
        }),
    ])
}
