//! Tools that use libbpf, unchanged, under `warpbpf loader`: what they print is known in closed
//! form.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::late_tools::REFUSED;
use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same, says};
use crate::tree;

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
        case("loader: walk, every key of a large hash", walk),
        case("loader: gpuprobe, SEC(\"gpu/…\")", gpuprobe),
        case("loader: sharedmap, bpftime's 1503 and 1501", sharedmap),
        case("loader: perfbuf, perf buffer and 1527", perfbuf),
        case("loader: directly, bpftime's special names", directly),
        case("loader: memtrace, bpftime's memory captures", memtrace),
        case("loader: kerneltrace, a record of each thread", kerneltrace),
        case("loader: cudagraph, a kernel in a graph", cudagraph),
        case("loader: atomizer, a part of the blocks", atomizer),
        case("loader: templates, a kernel's long name", templates),
        case("loader: launchlate, a probe on the CPU", launchlate),
        case("loader: faulty probes on the CPU", faulty),
        case("loader: userring, records of a tool", userring),
        case("loader: linuxside, programs of Linux too", linuxside),
        case("loader: hostside, fentry and a lone kprobe", hostside),
        case("loader: update, another program for a link", update),
        case("loader: mixed with probes of the host", mixed),
        case("loader: the verifier's text in log_buf", refused),
        case("loader: a kernel that is not there", unmatched),
        case("loader: statuses", statuses),
        case("loader: numbers, descriptors moved and closed", numbers),
        case("loader: an application started by others", apart),
        case("loader: bpftool reads a running tool", bpftool),
        case("loader: bpftrace and a kernel", bpftrace),
    ]
}

/// Said where there are no tools.
pub(crate) const SKIPPED: &str = "skipped: the tools were not built, because there was no bpftool";

/// Tools that were built, with the libbpf that they bring along, and on the machine that built them
/// with a shared one.
pub(crate) fn tools(bench: &Bench, name: &str) -> Vec<PathBuf> {
    let folder = bench.folder.join("libbpf");
    let mut tools = vec![folder.join(name)];
    if bench.soft {
        tools.push(folder.join(format!("{name}-shared")));
    }
    tools.retain(|tool| tool.exists());
    tools
}

/// An application and its arguments.
type App = (&'static str, &'static [&'static str]);

/// A tool with the application, which must do as it does alone.
fn run(bench: &Bench, tool: &PathBuf, words: &[&str]) -> Result<Output, String> {
    run_with(bench, tool, words, APP)
}

/// The same with another application.
fn run_with(bench: &Bench, tool: &PathBuf, words: &[&str], app: App) -> Result<Output, String> {
    let expected = bench.plain(app.0, app.1)?;
    let mut command = bench.warpbpf("loader");
    command
        .arg(tool)
        .args(words)
        .arg("--")
        .arg(bench.app(app.0));
    let output = command
        .args(app.1)
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
    ends_with_app(bench, name, words, APP, expected)
}

/// The same with another application.
fn ends_with_app(bench: &Bench, name: &str, words: &[&str], app: App, expected: &[&str]) -> Told {
    let tools = tools(bench, name);
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    for tool in &tools {
        let output = run_with(bench, tool, words, app)?;
        let alone = bench.plain(app.0, app.1)?;
        let alone = String::from_utf8_lossy(&alone).into_owned();
        let text = text(&output);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| *line != alone.trim_end())
            .collect();
        let last = &lines[lines.len().saturating_sub(expected.len())..];
        same(&tool.display().to_string(), last, expected)?;
    }
    Ok(format!("{} forms: {}", tools.len(), expected.join("; ")))
}

/// Threads of a launch of `step` in `live.cu`.
const STEP: u64 = 4 * 64;

/// Launches before and after a link got another program, in an application that runs: each thread
/// is counted by the program of its time, also by one that has another map.
fn update(bench: &Bench) -> Told {
    let tools = tools(bench, "update");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    for tool in &tools {
        for other in [false, true] {
            let enough = (3 * STEP).to_string();
            let mut command = bench.warpbpf("loader");
            command
                .arg(tool)
                .arg(&enough)
                .args(other.then_some("other"));
            command.arg("--").arg(bench.app("live"));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = Owned::spawn(command.stderr(Stdio::piped()));
            let mut child = child.map_err(|e| e.to_string())?;
            let mut orders = child.stdin.take().ok_or("no input")?;
            let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
            let errors = child.stderr.take().ok_or("no errors")?;
            let errors = std::thread::spawn(move || std::io::read_to_string(errors));
            let mut until = |wanted: &str| -> Result<(), String> {
                let mut said = Vec::new();
                for line in lines.by_ref().map_while(Result::ok) {
                    if line == wanted {
                        return Ok(());
                    }
                    said.push(line);
                }
                Err(format!("`{wanted}` was not said: {}", said.join("; ")))
            };
            let order = |orders: &mut std::process::ChildStdin, text: &[u8]| {
                orders.write_all(text).map_err(|e| e.to_string())
            };
            order(&mut orders, b"3\n")?;
            until("updated")?;
            order(&mut orders, b"5\n")?;
            drop(orders);
            let (second, third) = if other { (0, 5 * STEP) } else { (5 * STEP, 0) };
            until(&format!("first {} second {second} third {third}", 3 * STEP))?;
            let status = child.wait().map_err(|e| e.to_string())?;
            same("exit status", status.code(), Some(0))?;
            let errors = errors.join().map_err(|_| "a panic")?.unwrap_or_default();
            same("nothing is refused", errors.contains(REFUSED), false)?;
        }
    }
    Ok("3 launches with the first, 5 with another".to_owned())
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
        return Ok(SKIPPED.into());
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

/// A hash whose copy is far larger than what a lookup needs, through which a tool goes while the
/// application lives.
fn walk(bench: &Bench) -> Told {
    let keys: u64 = if bench.soft { 40_000 } else { 1_000_000 };
    let sum = keys * (keys - 1) / 2;
    let mut expected = ["keys", "keys and values", "batches"]
        .map(|how| format!("{how}: keys {keys}, sum {sum}, wrong 0"))
        .to_vec();
    expected.push("taken: keys 100, wrong 0".into());
    expected.push(format!("left: keys {}", keys - 100));
    let mut told = vec![format!("{keys} keys")];
    let tools = tools(bench, "walk");
    for tool in &tools {
        let end = bench.scratch("walk-ends");
        let _ = std::fs::remove_file(&end);
        let mut command = bench.warpbpf("loader");
        command.arg(tool).arg(keys.to_string()).arg(&end);
        command.arg("--").arg(bench.app("million"));
        command.arg(keys.to_string()).arg(&end);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let (shown, errors) = (text(&output), String::from_utf8_lossy(&output.stderr));
        same(&errors, output.status.code(), Some(0))?;
        let lines: Vec<String> = shown.lines().map(Into::into).collect();
        same(&format!("what it found ({errors})"), &lines, &expected)?;
        told.extend(errors.lines().map(Into::into));
    }
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    Ok(told.join("; "))
}

fn gpuprobe(bench: &Bench) -> Told {
    // Eight warps of each block; two loads of four bytes in each thread that has an element; and
    // one of three launches.
    let line = format!(
        "groups {}, loads 6000, bytes 24000, chosen {}",
        THREADS / 32,
        THREADS / 3
    );
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
    // Four parameters in each thread, two loads and a store in each with an element. In the
    // application the programs that are kernels are launched by nobody.
    let line = format!("accesses {}, runs 5", 3 * (1024 * 4 + 1000 * 3));
    let lines = [
        "returned 7, took some time",
        "VecAdd C[999]=3996, wrong 0",
        "GEMM C[0]=-62, wrong 0",
        &line,
    ];
    // One of them has a loop that only a map bounds.
    let bench = &bench.with(&[("WARPBPF_LOADER_BOUND_LOOPS", "1")]);
    ends_with(bench, "directly", &[], &lines)
}

/// The driver's library.
pub(crate) fn driver(bench: &Bench) -> String {
    match bench.soft {
        true => bench.folder.join("soft/libcuda.so.1").display().to_string(),
        false => "libcuda.so.1".to_owned(),
    }
}

/// Programs on the CPU that err end there, and the application goes on.
fn faulty(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "faulty").pop() else {
        return Ok(SKIPPED.into());
    };
    let library = driver(bench);
    let output = run(bench, &tool, &[&library, "cuLaunchKernel"])?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in [
        "program `reads` ended: load of 4 bytes at 0x",
        ", where no memory is (",
        "faulty.bpf.c:15)",
        "program `asks` does not run: program `asks` calls `bpf_get_current_task`, which programs on the CPU are not served",
        "program `is_inside` does not run at",
        "that is inside of `cuLaunchKernel`, and only the start and the end of functions are served",
    ] {
        says(&errors, expected)?;
    }
    says(&text(&output), "begun 3, ended 0, inside 0\n")?;
    Ok("three errors, three launches".into())
}

/// A function of the runtime, and one of the driver, which the agent hooks itself.
fn launchlate(bench: &Bench) -> Told {
    let name = bench.app(APP.0);
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let lines = [
        "Monitoring CUDA kernel launch latency".to_owned(),
        format!("Total samples: {THREADS}, of threads {THREADS}, early 0"),
        format!(
            "launches 3 by {}, returns 3, failures 0, events 3, strange 0",
            &name[..name.len().min(15)]
        ),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let soft = |library: &str| bench.folder.join("soft").join(library);
    if !bench.soft {
        // The runtime is in the application, where its functions are too short for a jump.
        let words = [&*driver(bench), "cuLaunchKernel"];
        return ends_with(bench, "launchlate", &words, &lines);
    }
    for (library, function) in [
        ("libcudart.so.13", "__cudaLaunchKernel"),
        ("libcuda.so.1", "cuLaunchKernel"),
    ] {
        let library = soft(library).display().to_string();
        ends_with(bench, "launchlate", &[&library, function], &lines)?;
    }
    let Some(tool) = tools(bench, "launchlate").pop() else {
        return Ok(SKIPPED.into());
    };
    // Nothing but a warning where it cannot be.
    for (file, function, why) in [
        (
            "libc.so.6".to_owned(),
            "malloc",
            "functions of `libc.so.6` are called by the driver itself",
        ),
        (
            bench.app("matmul").display().to_string(),
            "main",
            "the application has not loaded that file",
        ),
    ] {
        let mut command = bench.warpbpf("loader");
        command.arg(&tool).args([&file, function]).arg("--");
        command.arg(bench.app(APP.0)).args(APP.1);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        says(&errors, "program `on_launch` does not run at")?;
        says(&errors, why)?;
        says(&text(&output), "vectoradd: 1000 elements")?;
    }
    Ok(lines.join("; "))
}

fn memtrace(bench: &Bench) -> Told {
    // As above: parameters, loads and stores.
    let line = format!("counter[0]={}", 3 * (1024 * 4 + 1000 * 3));
    ends_with(bench, "memtrace", &[], &[&line, "counter[1]=0"])
}

fn kerneltrace(bench: &Bench) -> Told {
    let line = format!("total events: {THREADS}, strange 0");
    ends_with(bench, "kerneltrace", &[], &[&line])
}

/// A graph that is launched five times, of which the first thread counts.
fn cudagraph(bench: &Bench) -> Told {
    let app = ("cudagraph", &["5"][..]);
    same(
        "the application alone",
        String::from_utf8_lossy(&bench.plain(app.0, app.1)?).as_ref(),
        "C[0]=0 C[1]=3\n",
    )?;
    let line = "calls: 5, entered and not left: 0, timed: 1";
    ends_with_app(bench, "cudagraph", &[], app, &[line])
}

/// Of four blocks the second half runs; the application's sum is another one.
fn atomizer(bench: &Bench) -> Told {
    let tools = tools(bench, "atomizer");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    let alone = bench.plain(APP.0, APP.1)?;
    let alone = String::from_utf8_lossy(&alone).into_owned();
    for tool in &tools {
        let under = |flags: &[&str]| -> Result<Output, String> {
            let mut command = bench.warpbpf("loader");
            command.args(flags).arg(tool).args(["2", "1"]).arg("--");
            command.arg(bench.app(APP.0)).args(APP.1);
            command.output().map_err(|e| format!("warpbpf: {e}"))
        };
        let refused = under(&[])?;
        same("status without permission", refused.status.code(), Some(1))?;
        says(&String::from_utf8_lossy(&refused.stderr), "--allow-modify")?;
        let output = under(&["--allow-modify"])?;
        let shown = text(&output);
        says(&shown, &format!("entered {0}, exited {0}\n", THREADS / 2))?;
        says(
            &String::from_utf8_lossy(&output.stderr),
            "Exited block_id=1, L=2, H=4",
        )?;
        says(&shown, "vectoradd: 1000 elements")?;
        if shown.contains(alone.trim_end()) {
            return Err("the application computed all".into());
        }
    }
    Ok(format!("{} forms: half of the blocks", tools.len()))
}

fn templates(bench: &Bench) -> Told {
    // 48 × 48 threads for 40 × 40 elements.
    let line = format!("CUTLASS launches: 4, threads {}", 4 * 48 * 48);
    ends_with_app(
        bench,
        "templates",
        &[],
        ("templates", &["40", "4"]),
        &[&line],
    )
}

/// Records of a tool, from its own ring to a kernel that runs until the tool ends it.
fn userring(bench: &Bench) -> Told {
    let tools = tools(bench, "userring");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    let count = 3000u64;
    let expected = [
        "sizes: Invalid argument, the consumer's position: Operation not permitted".to_owned(),
        format!(
            "records {count}, sum {}, last {count}, out of order 0, short 0, text {}",
            3 * count * (count + 1) / 2,
            count / 2 * 5
        ),
    ];
    for tool in &tools {
        let mut command = bench.warpbpf("loader");
        command
            .args(["--allow-modify", "--budget", "20000"])
            .arg(tool);
        command.arg("--").arg(bench.app("longrun")).arg("120000");
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same(&errors, output.status.code(), Some(0))?;
        for line in &expected {
            says(&text(&output), &format!("{line}\n"))?;
        }
    }
    Ok(format!("{} forms: {}", tools.len(), expected[1]))
}

/// A program of Linux and one of the GPU, and maps of both. Linux counts 100 calls of the tool
/// before, while and after.
fn linuxside(bench: &Bench) -> Told {
    let tools = tools(bench, "linuxside");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    let expected = [
        "calls 300, per CPU 300".to_owned(),
        format!(
            "hash: both {}, gpu {THREADS}, linux 300, keys 3",
            THREADS + 300
        ),
        format!(
            "array: both {}, gpu {THREADS}, linux 300, keys 3",
            THREADS + 300
        ),
        format!(
            "variables: together {}, gpu {THREADS}, linux 1300, seen {}",
            THREADS + 300,
            THREADS * 2
        ),
        format!("records: linux 300, gpu {THREADS}, strange 0"),
        format!("samples: linux 300, gpu {THREADS}"),
    ];
    let alone = bench.plain(APP.0, APP.1)?;
    let alone = String::from_utf8_lossy(&alone).into_owned();
    for tool in &tools {
        let mut command = bench.warpbpf("loader");
        command
            .args(["--budget", "8192"])
            .arg(tool)
            .arg("--")
            .arg(bench.app(APP.0))
            .args(APP.1);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let shown = text(&output);
        if output.status.code() == Some(77) {
            // Without the permission the tool is told why.
            if let Some((_, log)) = shown.split_once("load: Operation not permitted: ") {
                says(log, "`bpf()` is not permitted here")?;
            }
            return Ok("skipped: Linux does not let its programs in here".into());
        }
        same(&shown, output.status.code(), Some(0))?;
        says(&shown, alone.trim_end())?;
        for line in &expected {
            says(&shown, &format!("{line}\n"))?;
        }
    }
    Ok(format!("{} forms: {}", tools.len(), expected.join("; ")))
}

/// Programs of Linux that a tool has one of: exact where Linux takes them, and told where it does
/// not.
fn hostside(bench: &Bench) -> Told {
    let tools = tools(bench, "hostside");
    let Some(tool) = tools.first() else {
        return Ok(SKIPPED.into());
    };
    let mut said = Vec::new();
    for (kind, counted) in [
        ("fentry", "entered 100, probed 0"),
        ("kprobe", "entered 0, probed 100"),
    ] {
        let mut command = bench.warpbpf("loader");
        command.arg(tool).arg(kind).arg("--");
        command.arg(bench.app(APP.0)).args(APP.1);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let (shown, errors) = (text(&output), String::from_utf8_lossy(&output.stderr));
        if output.status.code() == Some(77) {
            // By Linux, which does not load it for the tool alone either.
            same("refused", kind, "fentry")?;
            says(&shown, "load: Operation not permitted: ")?;
            let mut alone = Command::new(tool);
            let alone = alone.arg(kind).output().map_err(|e| e.to_string())?;
            same("the tool alone", alone.status.code(), Some(77))?;
            said.push("fentry refused");
        } else if errors.contains("program `on_probe` does not run: ") {
            same("does not run", kind, "kprobe")?;
            says(&errors, "`__x64_sys_getpgid` is a function of Linux, and ")?;
            says(&shown, &format!("entered 0, probed 0, gpu {THREADS}\n"))?;
            said.push("kprobe not run");
        } else {
            same(&errors, output.status.code(), Some(0))?;
            says(&shown, &format!("{counted}, gpu {THREADS}\n"))?;
            said.push(counted);
        }
    }
    Ok(said.join("; "))
}

fn mixed(bench: &Bench) -> Told {
    let tools = tools(bench, "mixed");
    let Some(tool) = tools.first() else {
        return Ok(SKIPPED.into());
    };
    let output = run(bench, tool, &[])?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // Programs of Linux run where it lets them, or it is said that they do not.
    let told = |what: &str| errors.contains(what);
    let exits = !told("program `on_exit` does not run: `do_exit` is a function of Linux, and ");
    let switches = !told("program `on_switch` does not run: it is for a tracepoint, and ");
    let text = text(&output);
    says(&text, "batch of 8\nfrozen: Operation not permitted\n")?;
    says(&text, "pinned pinned of 2, listed\n")?;
    let (_, host) = (text.split_once(&format!("gpu {THREADS}, host ")))
        .ok_or_else(|| format!("no `gpu {THREADS}` in {text}"))?;
    if switches || !exits {
        same("something of Linux was counted", host != "0\n", switches)?;
    }
    Ok("batches, freezing, pins and ids".into())
}

fn refused(bench: &Bench) -> Told {
    let tools = tools(bench, "refused");
    let Some(tool) = tools.first() else {
        return Ok(SKIPPED.into());
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
        return Ok(SKIPPED.into());
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

/// libc's functions and calls by number do the same.
fn numbers(bench: &Bench) -> Told {
    let tool = bench.folder.join("libbpf/numbers");
    if !tool.exists() {
        return Ok(SKIPPED.into());
    }
    let output = bench.warpbpf("loader").arg(&tool).output();
    let output = output.map_err(|e| format!("warpbpf: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    same("output", text.as_str(), "in a child: 0\ndone\n")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    says(
        &errors,
        "(SCM_RIGHTS), which does not know maps, programs and links of that tool: it is not followed",
    )?;
    const NOTE: &str = "warpbpf: note: this tool uses `io_uring`: descriptors of its maps, programs and links that it passes by that (IORING_OP_FIXED_FD_INSTALL, IORING_OP_MSG_RING, IORING_OP_SENDMSG with SCM_RIGHTS) or closes (IORING_OP_CLOSE) are not followed";
    let notes = errors.lines().filter(|line| *line == NOTE).count();
    same("notes of `io_uring`", notes, 1).map_err(|why| format!("{why}: {errors}"))?;
    Ok("eleven ways to another number, five to close one".to_owned())
}

/// The tool is started by one command, the application by another that knows a file name.
fn apart(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "counter").pop() else {
        return Ok(SKIPPED.into());
    };
    let socket = bench.scratch("socket");
    let mut command = bench.warpbpf("loader");
    command.arg("--socket").arg(&socket).arg(&tool);
    let child = Owned::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut child = child.map_err(|e| format!("warpbpf: {e}"))?;
    let lines = apart_with(bench, &mut child)?;
    interrupt(child.id());
    let ended = child.wait().map_err(|e| e.to_string())?;
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

pub(crate) fn interrupt(pid: u32) {
    // The command ends its tool; it ignores the signal itself, so the whole group gets it from a
    // terminal. Here the children are asked for.
    for child in tree::children(pid) {
        // One that has ended by itself hears nothing, which is as well.
        let _ = process::signal(child, Signal::Interrupt);
    }
}

/// Debian's bpftrace, as it is: what it counts, adds and sorts into a histogram has every thread,
/// each once.
fn bpftrace(bench: &Bench) -> Told {
    const SHORT: App = ("vectoradd", &["20000", "3"]);
    // Blocks are whole.
    const EACH: u64 = 20_000u64.next_multiple_of(256) * 3;
    let found = Command::new("bpftrace").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        return Ok("skipped: bpftrace is not installed".into());
    }
    let said = |actions: &str| {
        let program = format!("kprobe:_Z9vectorAddPKfS0_Pfi {{ {actions} }}");
        let output = run_with(bench, &"bpftrace".into(), &["-e", &program], SHORT)?;
        Ok::<_, String>(text(&output))
    };
    // One program with all of it would be more than one invocation may have.
    let said = said("@n[1] = count(); @s = sum(3); @x++;")?
        + &said("@h = hist(5); @spread = hist(nsecs % 256);")?;
    let number = |name: &str| {
        let count = said.lines().find_map(|line| line.strip_prefix(name));
        count.and_then(|count| count.trim().parse::<u64>().ok())
    };
    same("count()", number("@n[1]: "), Some(EACH))?;
    same("sum()", number("@s: "), Some(EACH * 3))?;
    same("++", number("@x: "), Some(EACH))?;
    // `[4, 8)     123 |@@@ |`, with `K` and more in the intervals only.
    let buckets = |name: &str| {
        let lines = said.lines().skip_while(|line| *line != name).skip(1);
        let lines = lines.take_while(|line| line.starts_with(['[', '(']));
        let counts = lines.filter_map(|line| {
            line.split_once([')', ']'])?
                .1
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        counts.collect::<Vec<u64>>()
    };
    same("hist(5)", buckets("@h: "), vec![EACH])?;
    same(
        "hist() of all",
        buckets("@spread: ").iter().sum::<u64>(),
        EACH,
    )?;
    Ok(format!("{EACH} threads, each once"))
}

/// A name that no kernel has is said, with those that there were.
fn unmatched(bench: &Bench) -> Told {
    let tools = tools(bench, "counter");
    if tools.is_empty() {
        return Ok(SKIPPED.into());
    }
    for tool in &tools {
        let other = run_with(bench, tool, &[], ("rounds", &["2", "1"]))?;
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        says(
            &said,
            "warpbpf: no kernel has `gpu/entry/_Z9vectorAddPKfS0_Pfi`, `gpu/exit/_Z9vectorAddPKfS0_Pfi`; kernels seen: `add`\n",
        )?;
        let own = run(bench, tool, &[])?;
        let said = String::from_utf8_lossy(&own.stderr);
        same(
            "said of its own kernel",
            said.contains("no kernel has"),
            false,
        )?;
    }
    Ok(format!("{} forms", tools.len()))
}

/// bpftool, if it is there.
pub(crate) fn installed() -> Option<&'static str> {
    // Debian has it where only root looks.
    ["bpftool", "/usr/sbin/bpftool"].into_iter().find(|path| {
        let said = Command::new(path).arg("version").output();
        said.is_ok_and(|said| said.status.success())
    })
}

fn bpftool(bench: &Bench) -> Told {
    let Some(tool) = tools(bench, "counter").pop() else {
        return Ok(SKIPPED.into());
    };
    let Some(reader) = installed() else {
        return Ok("skipped: bpftool is not installed".into());
    };
    let socket = bench.scratch("bpftool-socket");
    let mut command = bench.warpbpf("loader");
    command.arg("--socket").arg(&socket).arg(&tool);
    let child = Owned::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut child = child.map_err(|e| format!("warpbpf: {e}"))?;
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
    apart_with(bench, &mut child).and_then(|_| {
        let dumped = ask(&["map", "dump", "name", "returns"])?;
        says(&dumped, &format!("\"value\": {THREADS}"))?;
        let maps = ask(&["map", "show"])?;
        says(&maps, "hash  name calls  flags 0x0")?;
        says(&maps, "key 4B  value 8B  max_entries 1024")?;
        // The process is the one key.
        let pid = dumped.split_once("\"key\": ").map_or("", |(_, rest)| rest);
        let pid: u32 = pid[..pid.find(',').unwrap_or(0)]
            .parse()
            .map_err(|_| format!("no key in {dumped}"))?;
        let bytes = pid.to_ne_bytes().map(|byte| byte.to_string());
        let mut words = vec!["map", "lookup", "name", "returns", "key"];
        words.extend(bytes.iter().map(String::as_str));
        says(&ask(&words)?, &format!("\"value\": {THREADS}"))?;
        says(&ask(&["btf", "show"])?, "map_ids ")?;
        says(&ask(&["prog", "show"])?, "kprobe  name cuda__enter")?;
        says(
            &ask(&["btf", "dump", "prog", "name", "cuda__enter"])?,
            "FUNC 'cuda__enter'",
        )?;
        says(&ask(&["link", "show"])?, "perf_event  prog")
    })?;
    interrupt(child.id());
    let _ = child.wait();
    Ok("map show, dump and lookup, prog show, btf show and dump, link show".into())
}
