//! Tools that use libbpf, unchanged, under `warpbpf loader`: what they print is known in closed form.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::run::{Bench, Case, Told, same, says};

/// `vectoradd` with 1,000 elements: four blocks of 256 threads, three launches.
const APP: (&str, &[&str]) = ("vectoradd", &["1000", "3"]);
const THREADS: u64 = 4 * 256 * 3;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("loader: counter, a hash by process", counter),
        case("loader: retsnoop, ring_buffer__poll", retsnoop),
        case("loader: losses are counted and said", losses),
        case("loader: perthread, bpftime's 1502", perthread),
        case("loader: globals, a skeleton's variables", globals),
        case("loader: gpuprobe, SEC(\"gpu/…\")", gpuprobe),
        case("loader: sharedmap, bpftime's 1503 and 1501", sharedmap),
        case("loader: perfbuf, perf buffer and 1527", perfbuf),
        case("loader: directly, bpftime's special names", directly),
        case("loader: mixed with probes of the host", mixed),
        case("loader: the verifier's text in log_buf", refused),
        case("loader: statuses", statuses),
        case("loader: an application started by others", apart),
        case("loader: bpftool reads a running tool", bpftool),
    ]
}

/// Tools that were built, with the libbpf that they bring along, and on the machine that built them with a shared one.
fn tools(bench: &Bench, name: &str) -> Vec<PathBuf> {
    let folder = bench.folder.join("libbpf");
    let mut tools = vec![folder.join(name)];
    if bench.soft {
        tools.push(folder.join(format!("{name}-shared")));
    }
    tools.retain(|tool| tool.exists());
    tools
}

/// A tool with an application, which must do as it does alone.
fn run(bench: &Bench, tool: &PathBuf, words: &[&str]) -> Result<Output, String> {
    let expected = bench.plain(APP.0, APP.1)?;
    let mut command = bench.warpbpf("loader");
    command
        .arg(tool)
        .args(words)
        .arg("--")
        .arg(bench.app(APP.0));
    let output = command
        .args(APP.1)
        .output()
        .map_err(|e| format!("warpbpf: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "it ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let line = String::from_utf8_lossy(&expected).into_owned();
    says(&text(&output), line.trim_end())?;
    Ok(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs every form of a tool; the last lines that it prints must be these.
fn ends_with(bench: &Bench, name: &str, words: &[&str], expected: &[&str]) -> Told {
    let tools = tools(bench, name);
    if tools.is_empty() {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    }
    for tool in &tools {
        let output = run(bench, tool, words)?;
        let app = bench.plain(APP.0, APP.1)?;
        let app = String::from_utf8_lossy(&app).into_owned();
        let text = text(&output);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| *line != app.trim_end())
            .collect();
        let last = &lines[lines.len().saturating_sub(expected.len())..];
        same(&tool.display().to_string(), last, expected)?;
    }
    Ok(format!("{} forms: {}", tools.len(), expected.join("; ")))
}

fn counter(bench: &Bench) -> Told {
    let lines = ["calls", "returns"].map(|name| format!("{name} pid=set {THREADS}"));
    ends_with(bench, "counter", &[], &[&lines[0], &lines[1]])
}

fn retsnoop(bench: &Bench) -> Told {
    let line = format!("records {THREADS}, strange 0, each thread 3 to 3 times");
    ends_with(bench, "retsnoop", &["4", "256"], &[&line])
}

/// More records than fit: what came and what was lost are all there were.
fn losses(bench: &Bench) -> Told {
    let tools = tools(bench, "retsnoop");
    let Some(tool) = tools.first() else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    let mut command = bench.warpbpf("loader");
    command.arg(tool).args(["391", "256"]).arg("--");
    command.arg(bench.app(APP.0)).args(["100000", "3"]);
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let number = |text: &str, before: &str| -> u64 {
        let parts = text.split(before).skip(1);
        let digits = parts.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        digits.filter_map(|d| d?.parse::<u64>().ok()).sum()
    };
    let came = number(&text(&output), "records ");
    let lost = number(&String::from_utf8_lossy(&output.stderr), "map `records`: ");
    same("records that came or were lost", came + lost, 391 * 256 * 3)?;
    Ok(format!("{came} came, {lost} were lost"))
}

fn perthread(bench: &Bench) -> Told {
    let sum = format!("sum of 1024: {THREADS}");
    let lines = ["Thread 0: 3", "Thread 1: 3", "Thread 2: 3", &sum];
    ends_with(bench, "perthread", &[], &lines)
}

fn globals(bench: &Bench) -> Told {
    let line = format!("count {}, weight 7", THREADS * 3 * 7);
    ends_with(bench, "globals", &[], &[&line])
}

fn gpuprobe(bench: &Bench) -> Told {
    // Eight warps of each block; two loads of four bytes in each thread that has an element.
    let line = format!("groups {}, loads 6000, bytes 24000", THREADS / 32);
    ends_with(bench, "gpuprobe", &[], &[&line])
}

fn sharedmap(bench: &Bench) -> Told {
    let mut lines = vec![format!("counter[0]={THREADS}")];
    lines.extend((1..10).map(|key| format!("counter[{key}]={}", if key <= 4 { 768 } else { 0 })));
    lines.push(format!("blocks: calls {THREADS}, left 2, deleted -2"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    ends_with(bench, "sharedmap", &[], &lines)
}

fn perfbuf(bench: &Bench) -> Told {
    // Blocks 0 to 3, 256 threads each, three times.
    let sum = (1 + 2 + 3) * 256 * 3;
    let line = format!("perf {THREADS} sum {sum} lost 0, ring {THREADS} sum {sum}, strange 0");
    ends_with(bench, "perfbuf", &[], &[&line])
}

fn directly(bench: &Bench) -> Told {
    // Four parameters in each thread, two loads and a store in each with an element. The program that is a kernel is
    // launched by nobody.
    let line = format!("accesses {}, runs 0", 3 * (1024 * 4 + 1000 * 3));
    ends_with(bench, "directly", &[], &[&line])
}

fn mixed(bench: &Bench) -> Told {
    let tools = tools(bench, "mixed");
    let Some(tool) = tools.first() else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    let output = run(bench, tool, &[])?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    says(
        &errors,
        "program `on_exit` does not run: `do_exit` is a function of Linux",
    )?;
    says(
        &errors,
        "program `on_switch` does not run: it is for a tracepoint",
    )?;
    let text = text(&output);
    says(&text, "batch of 8\nfrozen: Operation not permitted\n")?;
    says(&text, "pinned pinned of 2, listed\n")?;
    says(&text, &format!("gpu {THREADS}, host 0\n"))?;
    Ok("batches, freezing, pins and ids".into())
}

fn refused(bench: &Bench) -> Told {
    let tools = tools(bench, "refused");
    let Some(tool) = tools.first() else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    let mut command = bench.warpbpf("loader");
    command.arg(tool).arg("--").arg(bench.app(APP.0));
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    same("status", output.status.code(), Some(3))?;
    let text = text(&output);
    says(&text, "load: Permission denied\n")?;
    says(&text, "error[maybe-null]: `r0` may be null here")?;
    says(&text, "refused.bpf.c:19:9")?;
    if text.contains("vectoradd:") {
        return Err("the application was started".into());
    }
    says(
        &String::from_utf8_lossy(&output.stderr),
        "the tool has ended before it attached a program to a kernel; the application was not started",
    )?;
    Ok("EACCES, the C line, and no application".into())
}

fn statuses(bench: &Bench) -> Told {
    let folder = bench.folder.join("libbpf");
    let status = |tool: &str, app: &[&str]| -> Result<(Option<i32>, String), String> {
        let mut command = bench.warpbpf("loader");
        command.arg(tool);
        if !app.is_empty() {
            command.arg("--").args(app);
        }
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), errors))
    };
    let (code, errors) = status("/nowhere/tool", &[])?;
    same("a tool that is not there", code, Some(127))?;
    says(&errors, "`/nowhere/tool` was not found")?;
    let (code, _) = status("true", &["true"])?;
    same("a tool that attaches nothing", code, Some(125))?;
    let (code, _) = status("false", &["true"])?;
    same("a tool that fails", code, Some(1))?;
    let fixed = folder.join("static");
    let counter = folder.join("counter");
    if !fixed.exists() || !counter.exists() {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    }
    let (code, errors) = status(&fixed.display().to_string(), &[])?;
    same("a static tool", code, Some(126))?;
    says(&errors, "it is linked statically with libc")?;
    let counter = counter.display().to_string();
    let (code, errors) = status(&counter, &["sh", "-c", "exit 7"])?;
    same("an application that fails", code, Some(7))?;
    says(&errors, "the application loaded no CUDA code")?;
    Ok("127, 126, 125, 1, 7".into())
}

/// The tool is started by one command, the application by another that knows a file name.
fn apart(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "counter").pop() else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    let socket = bench.scratch("socket");
    let mut command = bench.warpbpf("loader");
    command.arg("--socket").arg(&socket).arg(&tool);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("warpbpf: {e}"))?;
    let told = apart_with(bench, &mut child);
    interrupt(child.id());
    let ended = child.wait().map_err(|e| e.to_string())?;
    let lines = told?;
    same("status", ended.code(), Some(0))?;
    same("the socket's name after it", socket.exists(), false)?;
    Ok(format!("seen after {lines} lines"))
}

fn apart_with(bench: &Bench, child: &mut std::process::Child) -> Result<usize, String> {
    let errors = child.stderr.take().ok_or("no standard error")?;
    let mut variables = Vec::new();
    let mut lines = BufReader::new(errors).lines();
    let wanted = if bench.soft { 3 } else { 2 };
    while variables.len() < wanted {
        let line = lines
            .next()
            .ok_or("it ended too early")?
            .map_err(|e| e.to_string())?;
        if let Some((name, value)) = line.trim().split_once('=')
            && line.starts_with("  ")
        {
            variables.push((name.to_owned(), value.to_owned()));
        }
    }
    let output = Command::new(bench.app(APP.0))
        .args(APP.1)
        .envs(variables)
        .output()
        .map_err(|e| e.to_string())?;
    same("the application", output.status.code(), Some(0))?;
    let wanted = format!("returns pid=set {THREADS}");
    // Only lent: the tool must not be without a reader when it is interrupted.
    let shown = child.stdout.as_mut().ok_or("no standard output")?;
    for (count, line) in BufReader::new(shown).lines().enumerate().take(1000) {
        if line.map_err(|e| e.to_string())? == wanted {
            return Ok(count);
        }
    }
    Err(format!("`{wanted}` was never shown"))
}

fn interrupt(pid: u32) {
    // The command ends its tool; it ignores the signal itself, so the whole group gets it from a terminal. Here the
    // children are asked for.
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        let kill = format!("kill -INT {child}");
        let _ = Command::new("sh").args(["-c", &kill]).status();
    }
}

fn bpftool(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "counter").pop() else {
        return Ok("skipped: the tools were not built, because there was no bpftool".into());
    };
    // Debian has it where only root looks.
    let found = ["bpftool", "/usr/sbin/bpftool"].into_iter().find(|path| {
        let said = Command::new(path).arg("version").output();
        said.is_ok_and(|said| said.status.success())
    });
    let Some(reader) = found else {
        return Ok("skipped: bpftool is not installed".into());
    };
    let socket = bench.scratch("bpftool-socket");
    let mut command = bench.warpbpf("loader");
    command.arg("--socket").arg(&socket).arg(&tool);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("warpbpf: {e}"))?;
    let ask = |words: &[&str]| -> Result<String, String> {
        let mut command = bench.warpbpf("loader");
        command.arg("--inside").arg(&socket).arg(reader).args(words);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        if output.status.success() {
            return Ok(text(&output));
        }
        Err(format!(
            "bpftool {words:?}: {}{}",
            text(&output),
            String::from_utf8_lossy(&output.stderr)
        ))
    };
    let told = apart_with(bench, &mut child).and_then(|_| {
        says(
            &ask(&["map", "dump", "name", "returns"])?,
            &format!("\"value\": {THREADS}"),
        )?;
        says(&ask(&["prog", "show"])?, "kprobe  name cuda__enter")?;
        says(
            &ask(&["btf", "dump", "prog", "name", "cuda__enter"])?,
            "FUNC 'cuda__enter'",
        )?;
        says(&ask(&["link", "show"])?, "perf_event  prog")
    });
    interrupt(child.id());
    let _ = child.wait();
    told?;
    Ok("map dump, prog show, btf dump, link show".into())
}
