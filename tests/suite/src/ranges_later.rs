//! NVTX ranges for programs that nobody knew of when the application was started: those of libbpf's
//! tools, and those that a replacement brings.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use warpbpf_tool::{Object, Options, Tool};

use crate::attach::Application;
use crate::late_tools::into;
use crate::library::{PATIENCE, failed};
use crate::loader::{SKIPPED, interrupt, tools};
use crate::process::Owned;
use crate::replace::start;
use crate::run::{Bench, Case, Told, same, says};
use crate::ways::Served;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("replace: a program in NVTX ranges comes", replaced),
        case("loader: inranges, NVTX ranges in sections", by_tool),
        case("loader: inranges, attached to what runs", by_tool_later),
        case("loader: inranges, into what runs", into_what_runs),
        case("loader: inranges, what to set for others", by_others),
        case("serve: NVTX ranges for programs that come", served),
    ]
}

/// Why a program in ranges does not come.
const TOO_LATE: &str = "program `forward` is for launches that NVTX tells of (nvtx=step/forward+captured), and the application's calls of NVTX do not come to us: that is decided when it starts; start it with `--ranges`";

/// Threads of a launch of `step` in `live.cu`.
const THREADS: u64 = 4 * 64;

fn replaced(bench: &Bench) -> Told {
    for ranges in [true, false] {
        let object = Object::open(bench.object("replace")).map_err(failed)?;
        let options = Options {
            ranges,
            ..Options::default()
        };
        let tool = Tool::attach(object, options).map_err(failed)?;
        let mut application = start(bench, &tool, &["live"])?;
        application.launch(2)?;
        let process = tool.wait_ready(PATIENCE).map_err(failed)?;
        same("a range", application.ask("+step")?.as_str(), "in step")?;
        application.launch(1)?;
        let other = Object::open(bench.object("links_ranges")).map_err(failed)?;
        let added = process.add(&other);
        let mut launches = |order: &str, answer: &str, number| -> Result<(), String> {
            same(order, application.ask(order)?.as_str(), answer)?;
            application.launch(number)
        };
        // The outer one began before the replacement.
        launches("+forward", "in forward", 3)?;
        launches("-", "out", 2)?;
        launches("+forward", "in forward", 4)?;
        if ranges {
            let programs = added.map_err(failed)?.programs;
            let names = ["enter", "leave", "each", "forward", "by_default", "copies"];
            same("programs", programs, names.map(String::from).to_vec())?;
            let map = process.map("counts").map_err(failed)?;
            let map = map.typed::<u32, u64>().map_err(failed)?;
            let counts = [0, 1].map(|number| map.get(&number).map_err(failed));
            let [each, forward] = counts;
            let expected = (Some(9 * THREADS), Some(7 * THREADS));
            same("all and in the range", (each?, forward?), expected)?;
        } else {
            let error = added.err().ok_or("it came")?;
            says(&error.to_string(), TOO_LATE)?;
        }
        application.end()?;
    }
    Ok("7 launches in the range; without its calls refused".to_owned())
}

fn by_tool(bench: &Bench) -> Told {
    let tools = tools(bench, "inranges");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    for tool in &tools {
        let mut command = bench.warpbpf("loader");
        command.arg(tool).arg("--").arg(bench.app("ranges"));
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        same("status", output.status.code(), Some(0))?;
        // Two launches of each kernel: the range of a capture counts for each launch of its graph.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        says(&text, &format!("each {} forward {}\n", 32 * 16, 32 * 4))?;
    }
    let other = bench.folder().join("apps/libothertool.so");
    let bench = bench.with(&[("NVTX_INJECTION64_PATH", &other.display().to_string())]);
    let mut command = bench.warpbpf("loader");
    command.arg(&tools[0]).arg("--").arg(bench.app("ranges"));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    says(
        &said,
        "NVTX_INJECTION64_PATH names another tool, which gets them",
    )?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    says(&text, &format!("each {} forward 0\n", 32 * 16))?;
    Ok("4 launches in ranges".to_owned())
}

/// A program that is attached when the application runs: with and without a word that such will
/// come.
fn by_tool_later(bench: &Bench) -> Told {
    let tools = tools(bench, "inranges");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    for (tool, flags) in tools
        .iter()
        .flat_map(|tool| [(tool, &["--ranges"][..]), (tool, &[])])
    {
        let mut command = bench.warpbpf("loader");
        command.args(flags).arg(tool).arg((2 * THREADS).to_string());
        command.arg("--").arg(bench.app("live"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Owned::spawn(command.stderr(Stdio::piped()));
        let mut child = child.map_err(|e| e.to_string())?;
        let mut orders = child.stdin.take().ok_or("no input")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let errors = child.stderr.take().ok_or("no errors")?;
        let errors = std::thread::spawn(move || std::io::read_to_string(errors));
        let mut until = |wanted: &str| -> Result<(), String> {
            let found = lines.by_ref().map_while(Result::ok).any(|l| l == wanted);
            found.then_some(()).ok_or(format!("no line `{wanted}`"))
        };
        writeln!(orders, "+step\n2").map_err(|e| e.to_string())?;
        until("attached")?;
        writeln!(orders, "+forward\n3\n-\n1").map_err(|e| e.to_string())?;
        drop(orders);
        let inside = if flags.is_empty() { 0 } else { 3 * THREADS };
        until(&format!("each {} forward {inside}", 6 * THREADS))?;
        let status = child.wait().map_err(|e| e.to_string())?;
        same("exit status", status.code(), Some(0))?;
        let errors = errors.join().map_err(|_| "a panic")?.unwrap_or_default();
        let refused = errors.contains("start it with `--ranges`");
        same(&errors, refused, flags.is_empty())?;
    }
    Ok("3 launches in the range; without its calls refused".to_owned())
}

/// One that runs already has no ranges for us, which is said at once.
fn into_what_runs(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "inranges").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    let mut app = Application::plain(bench)?;
    let pid = app.pid();
    let mut tool = match into(bench, &[], &path, std::slice::from_ref(&pid)) {
        Err(why) if why.starts_with("skipped: ") => return Ok(why),
        tool => tool?,
    };
    same("the tool", tool.line()?.as_str(), "attached")?;
    for range in ["step", "forward"] {
        let answer = app.ask(&format!("+{range}"))?;
        same("a range", answer, format!("in {range}"))?;
    }
    app.launch(3)?;
    interrupt(tool.child.id());
    let last = tool.line()?;
    same(&last, last.ends_with(" forward 0"), true)?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    let text = format!(
        "programs that choose launches by NVTX ranges or names are in none of process {pid}, unless it was started with our NVTX_INJECTION64_PATH: it has decided before who gets its NVTX calls"
    );
    says(&errors, &text)?;
    app.end()?;
    Ok("said at once".to_owned())
}

/// Who starts the application himself is told what it needs for that.
fn by_others(bench: &Bench) -> Told {
    for (tool, flags, is_said) in [
        ("inranges", &[][..], true),
        ("gpuprobe", &["--ranges"], true),
        ("gpuprobe", &[], false),
    ] {
        let Some(path) = tools(bench, tool).pop() else {
            return Ok(SKIPPED.into());
        };
        let socket = bench.scratch("socket");
        let mut command = bench.warpbpf("loader");
        command.args(flags).arg("--socket").arg(&socket).arg(&path);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
        let errors = child.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
        let begun = lines.any(|line| line.ends_with("start the application with"));
        // They are said at once, and the name of the socket is the first.
        let wanted = 2 + usize::from(bench.soft) + usize::from(is_said);
        let mut variables: Vec<String> = lines.by_ref().take(wanted).collect();
        interrupt(child.id());
        variables.extend(lines);
        let _ = child.wait();
        same("it is ready", begun, true)?;
        let told = variables
            .iter()
            .any(|line| line.starts_with("  NVTX_INJECTION64_PATH="));
        same(&variables.join("; "), told, is_said)?;
    }
    Ok("one variable more".to_owned())
}

fn served(bench: &Bench) -> Told {
    for flags in [&["--ranges"][..], &[]] {
        let mut command = bench.warpbpf("serve");
        command.args(flags).arg("--socket");
        command.arg(bench.scratch("served"));
        command.arg(bench.object("replace")).stdout(Stdio::null());
        let mut tool = Served::start(command)?;
        // Nobody came, so there is nothing to wait for.
        tool.child.kill().map_err(|e| e.to_string())?;
        tool.child.wait().map_err(|e| e.to_string())?;
        let mut names = tool.variables.iter().map(|(name, _)| name);
        let told = names.any(|name| name == "NVTX_INJECTION64_PATH");
        same("it is said", told, !flags.is_empty())?;
    }
    Ok("one variable more".to_owned())
}
