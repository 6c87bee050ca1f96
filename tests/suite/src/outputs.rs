//! What the command has to say arrives, or its exit status says that it did not; and the
//! application never notices.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("outputs: a report that cannot be written", unwritable),
        case("outputs: a place that is not there", no_place),
        case("outputs: a standard error that is gone", no_error),
        case("outputs: JSON has every event", every_event),
        case("outputs: a line for each event", lines),
        case("outputs: a timeline of a command that is killed", killed),
        case("outputs: nothing was instrumented", nothing),
        case("serve: more applications than descriptors", many),
    ]
}

/// One launch with 1,000 elements.
const ARGUMENTS: &[&str] = &["1000", "1"];
const THREADS: u64 = 1024;

fn full() -> Result<File, String> {
    let file = OpenOptions::new().write(true).open("/dev/full");
    file.map_err(|e| e.to_string())
}

fn run(bench: &Bench, flags: &[&str], object: &str) -> Command {
    let mut command = bench.warpbpf("run");
    command.args(flags).arg(bench.object(object));
    command
        .arg("--")
        .arg(bench.app("vectoradd"))
        .args(ARGUMENTS);
    command
}

/// Status, standard output and standard error.
fn end(command: &mut Command) -> Result<(Option<i32>, String, String), String> {
    let output = command.output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn alone(bench: &Bench) -> Result<String, String> {
    let said = bench.plain("vectoradd", ARGUMENTS)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The threads that a report has seen.
fn threads(report: &str) -> Option<u64> {
    let report: Value = serde_json::from_str(report).ok()?;
    report["processes"][0]["maps"][0]["threads"]["count"].as_u64()
}

fn unwritable(bench: &Bench) -> Told {
    let flags = ["--json", "-o", "/dev/full"];
    let (status, out, error) = end(&mut run(bench, &flags, "threadhist"))?;
    same("status", status, Some(125))?;
    same("output", out, alone(bench)?)?;
    says(
        &error,
        "warpbpf: cannot write `/dev/full`: No space left on device (os error 28)",
    )?;
    let report = error.lines().find(|line| line.starts_with('{'));
    same(
        "threads",
        threads(report.unwrap_or_default()),
        Some(THREADS),
    )?;
    // The application's status is more than ours.
    let mut command = bench.warpbpf("run");
    command.args(flags).arg(bench.object("threadhist"));
    let (status, ..) = end(command.args(["--", "sh", "-c", "exit 3"]))?;
    same("the application's status", status, Some(3))?;
    let mut command = run(bench, &["--json", "-o", "-"], "threadhist");
    let (status, out, error) = end(&mut command)?;
    same("status", status, Some(0))?;
    let report = out.lines().last().unwrap_or_default();
    same("threads", threads(report), Some(THREADS))?;
    same(
        "reports on standard error",
        error.contains("{\"version\""),
        false,
    )?;
    Ok("the report is on standard error, and the status is not 0".into())
}

fn no_place(bench: &Bench) -> Told {
    let none = bench.scratch("none/file");
    let none = none.display().to_string();
    let file = bench.scratch("file").display().to_string();
    let said = format!("cannot write `{none}`: No such file or directory");
    for flags in [
        &["-o", none.as_str()][..],
        &["--json=lines", "-o", &none],
        &["--timeline", &none],
        &["--timeline", &file, "--folded", &none],
        &["--folded", &none],
    ] {
        let (status, out, error) = end(&mut run(bench, flags, "threadhist"))?;
        same("status", (status, out.as_str()), (Some(125), ""))?;
        says(&error, &said)?;
    }
    for (flag, both) in [
        ("--timeline", "`-o` and `--timeline`"),
        ("--folded", "`-o` and `--folded`"),
    ] {
        let (status, out, error) = end(&mut run(bench, &[flag, &file, "-o", &file], "threadhist"))?;
        same("status", (status, out.as_str()), (Some(125), ""))?;
        says(&error, &format!("{both} name the same file"))?;
    }
    Ok("refused before the application starts".into())
}

fn no_error(bench: &Bench) -> Told {
    let file = bench.scratch("report.json");
    let path = file.display().to_string();
    let expected = alone(bench)?;
    let broken = || -> Result<Stdio, String> {
        let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
        drop(reader);
        Ok(writer.into())
    };
    // Without a word for it, a full standard error loses nothing.
    let (_, _, said) = end(&mut run(bench, &["--json", "-o", &path], "threadhist"))?;
    let lost = if said.is_empty() { 0 } else { 125 };
    for (name, error, status) in [
        ("full", full()?.into(), Some(lost)),
        ("broken", broken()?, Some(0)),
    ] {
        let mut command = run(bench, &["--json", "-o", &path], "threadhist");
        let (ended, out, _) = end(command.stderr(error))?;
        same(name, (ended, out), (status, expected.clone()))?;
        let report = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
        same("threads", threads(&report), Some(THREADS))?;
    }
    // The report itself would have been there.
    for error in [full()?.into(), broken()?] {
        let mut command = run(bench, &[], "threadhist");
        let (ended, out, _) = end(command.stderr(error))?;
        same("status", (ended, out), (Some(125), expected.clone()))?;
    }
    Ok("the application's output is whole".into())
}

fn every_event(bench: &Bench) -> Told {
    for (flags, kept) in [(&[][..], THREADS), (&["--events", "5"], 5)] {
        let run = bench.both_with(flags, "kernelretsnoop", "vectoradd", ARGUMENTS)?;
        let events = &run.map("events")?["events"];
        let there = events["first"].as_array().map_or(0, Vec::len) as u64;
        let left_out = events["left_out"].as_u64().unwrap_or(0);
        same("received", events["received"].as_u64(), Some(THREADS))?;
        same("there, left out", (there, left_out), (kept, THREADS - kept))?;
    }
    Ok("and says how many are left out where fewer are asked for".into())
}

fn lines(bench: &Bench) -> Told {
    let file = bench.scratch("lines.json");
    let path = file.display().to_string();
    let flags = ["--json=lines", "-o", &path];
    let (status, out, _) = end(&mut run(bench, &flags, "kernelretsnoop"))?;
    same("status", (status, out), (Some(0), alone(bench)?))?;
    let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    let parsed = text.lines().map(serde_json::from_str::<Value>);
    let parsed: Vec<Value> = parsed
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let events = parsed.iter().filter(|line| line["type"] == "event");
    let with_fields =
        events.filter(|line| line["map"] == "events" && line["value"]["block"].is_u64());
    same("events", with_fields.count() as u64, THREADS)?;
    let last = parsed.last().ok_or("there are no lines")?;
    same("the last line", &last["type"], &Value::from("report"))?;
    let maps = last["report"]["processes"][0]["maps"].as_array();
    let ring = maps
        .into_iter()
        .flatten()
        .find(|map| map["name"] == "events");
    let received = ring.and_then(|ring| ring["events"]["received"].as_u64());
    same("received", received, Some(THREADS))?;
    Ok(format!("{} lines", parsed.len()))
}

/// Calls in a timeline's file.
fn calls(path: &Path) -> Result<usize, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let timeline: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let events = timeline["traceEvents"].as_array();
    let calls = events.into_iter().flatten();
    Ok(calls
        .filter(|event| event["cat"] == "call" && event["ph"] == "X")
        .count())
}

fn killed(bench: &Bench) -> Told {
    let file = bench.scratch("timeline.json");
    let app = bench.app("vectoradd");
    // It launches, waits until that is written, and kills the command.
    let script = "\"$@\"; i=0; while [ $i -lt 100 ] && ! grep -q cuLaunchKernel \"$FILE\"; do sleep 0.1; i=$((i+1)); done; kill -KILL $PPID";
    for there in ["", "old"] {
        if !there.is_empty() {
            std::fs::write(&file, there).map_err(|e| e.to_string())?;
        }
        let written = match there {
            "" => file.clone(),
            _ => bench.scratch("timeline.json.part"),
        };
        let mut command = bench.warpbpf("run");
        command.arg("--timeline").arg(&file).env("FILE", &written);
        command
            .args(["--", "sh", "-c", script, "sh"])
            .arg(&app)
            .args(["1000", "3"]);
        let status = command
            .stdout(Stdio::null())
            .status()
            .map_err(|e| e.to_string())?;
        same("status", status.code(), None)?;
        let found = calls(&written)?;
        if found < 3 {
            return Err(format!("only {found} calls are in the file"));
        }
        if !there.is_empty() {
            let old = std::fs::read(&file).map_err(|e| e.to_string())?;
            same("what was there", old.as_slice(), there.as_bytes())?;
        }
    }
    Ok("it can be read, and what was there before is there".into())
}

fn nothing(bench: &Bench) -> Told {
    let file = bench.scratch("report.json");
    let path = file.display().to_string();
    let of = |flags: &[&str], object: &str, app: &[&str]| {
        let mut command = bench.warpbpf("run");
        command.args(["--json", "-o", &path]).args(flags);
        command.arg(bench.object(object)).arg("--").args(app);
        let status = end(&mut command)?.0;
        let bytes = std::fs::read(&file).map_err(|e| e.to_string())?;
        let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        let first = report["notes"][0].as_str().unwrap_or_default().to_owned();
        Ok::<_, String>((status, first))
    };
    let app = bench.app("vectoradd").display().to_string();
    let app = [app.as_str(), "1000", "1"];
    let unmatched =
        "nothing was instrumented: `noSuchKernel` matched no kernel; kernels seen: vectorAdd";
    same(
        "no kernel",
        of(&[], "nomatch", &app)?,
        (Some(0), unmatched.into()),
    )?;
    same(
        "strict",
        of(&["--strict"], "nomatch", &app)?,
        (Some(123), unmatched.into()),
    )?;
    let (status, said) = of(&["--strict"], "threadhist", &["true"])?;
    same("no CUDA", status, Some(123))?;
    says(
        &said,
        "nothing was instrumented: `true` loaded no CUDA code",
    )?;
    let (status, said) = of(&["--strict", "--after", "9"], "threadhist", &app)?;
    same("no launch", status, Some(123))?;
    says(&said, "nothing was instrumented: `vectorAdd")?;
    says(&said, "was launched 1 times, each without programs")?;
    same(
        "the application's own",
        of(&["--strict"], "threadhist", &["false"])?.0,
        Some(1),
    )?;
    same(
        "all is well",
        of(&["--strict"], "threadhist", &app)?.0,
        Some(0),
    )?;
    for (app, expected) in [("vectoradd", 0), ("rounds", 123)] {
        let Some(tool) = crate::loader::tools(bench, "counter").into_iter().next() else {
            break;
        };
        let mut command = bench.warpbpf("loader");
        command.arg("--strict").arg(tool).arg("--");
        let status = end(command.arg(bench.app(app)).args(["2", "1"]))?.0;
        same("loader", status, Some(expected))?;
    }
    Ok("the reason comes first, and `--strict` makes it 123".into())
}

/// Each application has descriptors in the tool while it runs, and none when it has ended.
fn many(bench: &Bench) -> Told {
    const APPLICATIONS: usize = 16;
    let (socket, file) = (bench.scratch("many"), bench.scratch("report.json"));
    let serve = bench.warpbpf("serve");
    let mut command = Command::new("sh");
    // Far fewer than two for each.
    command.args(["-c", "ulimit -n 36; exec \"$@\"", "sh"]);
    command.arg(serve.get_program()).args(serve.get_args());
    command
        .arg("--socket")
        .arg(&socket)
        .args(["--json", "-o"])
        .arg(&file);
    command.arg(bench.object("launchcount"));
    let mut serve = Owned::spawn(command.stderr(Stdio::piped())).map_err(|e| e.to_string())?;
    let errors = BufReader::new(serve.stderr.take().ok_or("no errors")?);
    let mut lines = errors.lines().map_while(Result::ok);
    let mut variables: Vec<(String, String)> = Vec::new();
    for line in lines.by_ref() {
        if let Some((name, value)) = line.split_once('=') {
            variables.push((name.to_owned(), value.to_owned()));
        }
        if line.contains("Ctrl-C ends this") {
            break;
        }
    }
    for _ in 0..APPLICATIONS {
        let mut command = Command::new(bench.app("vectoradd"));
        command.args(ARGUMENTS).envs(variables.iter().cloned());
        let (status, out, _) = end(&mut command)?;
        same("the application", (status, out), (Some(0), alone(bench)?))?;
    }
    process::signal(serve.id(), Signal::Interrupt)?;
    let status = serve.wait().map_err(|e| e.to_string())?;
    same("status", status.code(), Some(0))?;
    let report = std::fs::read(&file).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&report).map_err(|e| e.to_string())?;
    let processes = report["processes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let launched = processes
        .iter()
        .filter(|process| process["kernels"][0]["launches"].as_u64() == Some(1));
    same("with programs", launched.count(), APPLICATIONS)?;
    Ok(format!("{APPLICATIONS} applications with 36 descriptors"))
}
