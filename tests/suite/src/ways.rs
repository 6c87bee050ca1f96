//! Ways into applications: children of every kind, applications that others start, trees of
//! processes, other namespaces.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attach::{Application, Attached, until_seen};
use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same, says};

/// How long something may take that others do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of a launch in `forks.cu`.
const THREADS: u64 = 2 * 32;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("ways: children that start programs", programs),
        case("ways: children that only compute", loaders),
        case("ways: children that start CUDA after fork", workers),
        case("ways: applications that others start", served),
        case("ways: attached to a tree of processes", tree),
        case("ways: a bound on the device's memory", memory),
        case("ways: a bound on what probes cost", overhead),
        case("ways: attached to a container", container),
        case("ways: started in a container", started),
    ]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Of each process: launches of `tick` with probes, uninstrumented ones, and the threads that the
/// program counted.
fn counted(report: &Value) -> Vec<(u64, u64, u64)> {
    let processes = report["processes"].as_array();
    let one = |process: &Value| {
        let kernels = process["kernels"].as_array();
        let tick = kernels.into_iter().flatten().find(|k| k["name"] == "tick");
        let sum = |what: &str| tick.map_or(0, |kernel| number(&kernel[what]));
        (
            sum("launches"),
            sum("uninstrumented"),
            threads(&process["maps"]),
        )
    };
    processes.into_iter().flatten().map(one).collect()
}

/// Threads of all kernels in the map of `launchcount`.
fn threads(maps: &Value) -> u64 {
    let map = maps.as_array().into_iter().flatten();
    let mut map = map.filter(|map| map["name"] == "kernels");
    let entries = map.next().and_then(|map| map["entries"].as_array());
    let all = entries.into_iter().flatten();
    all.map(|entry| number(&entry["value"]["threads"])).sum()
}

/// Every process said good-bye, and each counted what it launched.
fn all_counted(report: &Value, launches: &[u64]) -> Result<(), String> {
    let expected: Vec<_> = launches.iter().map(|n| (*n, 0, n * THREADS)).collect();
    same(
        "launches, uninstrumented and threads",
        counted(report),
        expected,
    )?;
    let processes = report["processes"].as_array().into_iter().flatten();
    let complete = processes.filter(|process| process["complete"] == true);
    same("complete", complete.count(), launches.len())
}

fn programs(bench: &Bench) -> Told {
    for inject in ["env", "preload"] {
        let flags = ["--inject", inject];
        let run = bench.both_with(&flags, "launchcount", "forks", &["exec", "3"])?;
        all_counted(&run.report, &[6, 1, 2, 3])?;
        let together = threads(&run.report["together"]);
        same("threads together", together, 12 * THREADS)?;
    }
    Ok("4 processes, each by itself and together".into())
}

fn loaders(bench: &Bench) -> Told {
    for inject in ["env", "preload"] {
        let flags = ["--inject", inject];
        let run = bench.both_with(&flags, "launchcount", "forks", &["loaders", "6"])?;
        all_counted(&run.report, &[7])?;
    }
    Ok("6 children, nobody noticed".into())
}

fn workers(bench: &Bench) -> Told {
    for inject in ["env", "preload"] {
        let flags = ["--inject", inject];
        let run = bench.both_with(&flags, "launchcount", "forks", &["workers", "3"])?;
        all_counted(&run.report, &[1, 2, 3, 1])?;
    }
    Ok("3 children and their parent, each a process of its own".into())
}

/// `warpbpf serve`, at work, with what applications need.
pub(crate) struct Served {
    pub(crate) child: Owned,
    pub(crate) variables: Vec<(String, String)>,
}

impl Served {
    pub(crate) fn start(mut command: Command) -> Result<Served, String> {
        let child = Owned::spawn(command.stderr(Stdio::piped()));
        let mut child = child.map_err(|e| e.to_string())?;
        let mut errors = BufReader::new(child.stderr.take().ok_or("no errors")?).lines();
        let mut said = String::new();
        let mut variables: Vec<(String, String)> = Vec::new();
        for line in errors.by_ref() {
            let line = line.map_err(|e| e.to_string())?;
            if line.contains("Ctrl-C ends this") {
                break;
            }
            match line.split_once('=').filter(|_| !line.contains(' ')) {
                Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
                None => said += &line,
            }
        }
        std::thread::spawn(move || errors.count());
        match variables.len() {
            0 => Err(said),
            _ => Ok(Served { child, variables }),
        }
    }
}

fn served(bench: &Bench) -> Told {
    let (socket, saved) = (bench.scratch("served"), bench.scratch("served.json"));
    let serve = || {
        let mut command = bench.warpbpf("serve");
        command.arg("--socket").arg(&socket).args(["--json", "-o"]);
        command.arg(&saved).arg(bench.object("launchcount"));
        command
    };
    let mut tool = Served::start(serve())?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(bench.app("forks"));
        command.args(arguments).env_clear();
        command.envs(tool.variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().map_err(|e| e.to_string())?;
        let plain = bench.plain("forks", arguments)?;
        same("the application's output", output.stdout == plain, true)
    };
    run(&["exec", "1"])?;
    run(&["workers", "1"])?;
    let second = serve().output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    says(&said, "is there already: another tool is found by it")?;
    process::signal(tool.child.id(), Signal::Interrupt)?;
    let status = tool.child.wait().map_err(|e| e.to_string())?;
    same("exit status of serve", status.code(), Some(0))?;
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    all_counted(&report, &[6, 1, 1, 1])?;
    same("the way to it is gone", socket.is_symlink(), false)?;
    // A service goes on without its tool.
    run(&["exec", "1"])?;
    Ok(format!("{} variables, 4 processes", tool.variables.len()))
}

/// Launches in each application until its map has values, as `warpbpf maps` shows it by a process
/// id.
fn until_all_count(
    bench: &Bench,
    applications: &mut [Application],
    pid: &dyn Fn(&Application) -> String,
) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    for application in applications {
        loop {
            application.launch(1)?;
            let mut command = bench.warpbpf("maps");
            command.args(["--pid", &pid(application), "--json", "dump", "counts"]);
            let output = command.output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let zeros = text.matches("\"value\":0").count();
            if output.status.success() && text.matches("\"value\":").count() > zeros {
                break;
            }
            if Instant::now() > end {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("nothing is counted: {text} {errors}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Of each process: launches of `step` with probes, and threads at its entry.
fn steps(report: &Value) -> Vec<(u64, u64)> {
    let processes = report["processes"].as_array().into_iter().flatten();
    let one = |process: &Value| {
        let kernels = process["kernels"].as_array().into_iter().flatten();
        let mut steps = kernels.filter(|kernel| kernel["name"] == "step");
        let Some(step) = steps.next() else {
            return (0, 0);
        };
        let maps = process["maps"].as_array().into_iter().flatten();
        let mut counts = maps.filter(|map| map["name"] == "counts");
        let entries = counts.next().and_then(|map| map["entries"].as_array());
        let mut entries = entries.into_iter().flatten();
        let key = number(&step["id"]) * 8;
        let at_entry = entries.find(|entry| number(&entry["key"]) == key);
        let threads = at_entry.map_or(0, |entry| number(&entry["value"]));
        (number(&step["launches"]), threads)
    };
    processes.map(one).collect()
}

/// The suite is the root of the tree.
fn tree(bench: &Bench) -> Told {
    let mut applications = vec![Application::plain(bench)?, Application::plain(bench)?];
    let root = std::process::id().to_string();
    let tool = match Attached::to(bench, &["-p", &root, "--children"], "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        tool => tool?,
    };
    until_all_count(bench, &mut applications, &Application::pid)?;
    // One that comes later.
    applications.push(Application::plain(bench)?);
    until_all_count(bench, &mut applications, &Application::pid)?;
    let mut report = tool.interrupt()?;
    // The root is this process, which may have asked the driver itself what there is.
    if let Some(processes) = report["processes"].as_array_mut() {
        processes.retain(|process| process["pid"] != std::process::id());
    }
    let steps = steps(&report);
    same("processes", steps.len(), 3)?;
    for (launches, threads) in &steps {
        same("they were launched", *launches > 0, true)?;
        same("threads at the entry", *threads, launches * 256)?;
    }
    for mut application in applications {
        let left = format!("detached from process {}", application.pid());
        says(&report["notes"].to_string(), &left)?;
        application.launch(2)?;
        application.end()?;
    }
    let mut nobody = bench.warpbpf("attach");
    nobody.args(["--user", "nobody-of-this-name"]);
    let nobody = nobody.arg(bench.object("scopes")).output();
    let said = nobody.map_err(|e| e.to_string())?.stderr;
    says(
        &String::from_utf8_lossy(&said),
        "there is no user `nobody-of-this-name`",
    )?;
    Ok(format!("3 processes, one of which came later: {steps:?}"))
}

/// Its own processes, its own files, and nothing of ours among them.
fn container(bench: &Bench) -> Told {
    let inside = bench.scratch("container");
    let text = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(&inside).map_err(text)?;
    std::fs::copy(bench.app("live"), inside.join("live")).map_err(text)?;
    if bench.soft {
        for library in ["libcuda.so.1", "libcudart.so.13"] {
            let from = bench.folder().join("soft").join(library);
            std::fs::copy(from, inside.join(library)).map_err(text)?;
        }
    }
    let hidden = std::fs::canonicalize(bench.folder()).map_err(text)?;
    let script = "mount -t tmpfs none \"$1\" && test ! -e \"$1/warpbpf\" && exec \"$2/live\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "-p", "--fork", "--kill-child", "--mount-proc"]);
    command
        .args(["sh", "-c", script, "sh"])
        .arg(&hidden)
        .arg(&inside);
    if bench.soft {
        command.env("LD_LIBRARY_PATH", &inside);
    }
    let mut application = match Application::start(command) {
        Ok(application) => application,
        Err(reason) => return Ok(format!("skipped: no `unshare`: {reason}")),
    };
    if let Err(reason) = application.launch(3) {
        return Ok(format!("skipped: no namespaces can be made here: {reason}"));
    }
    let whom = ["-p", &application.pid(), "--children"];
    let tool = match Attached::to(bench, &whom, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        tool => tool?,
    };
    let pid = number_outside(bench, &inside.join("live"), &tool)?;
    let mut applications = [application];
    until_all_count(bench, &mut applications, &|_| pid.clone())?;
    // Everybody knows it by the number that it has for them, and is shown the other.
    let as_seen = |what: &str, process: &Value| {
        let found = ["pid", "inner_pid"].map(|name| number(&process[name]));
        same(what, found[0].to_string(), pid.clone())?;
        same(what, found[1], 1)
    };
    let asked = |verb: &str, more: &[&str]| {
        let mut command = bench.warpbpf(verb);
        let output = command.args(["--pid", &pid, "--json"]).args(more).output();
        let output = output.map_err(|e| e.to_string())?;
        same(verb, output.status.code(), Some(0))?;
        serde_json::from_slice::<Value>(&output.stdout).map_err(|e| e.to_string())
    };
    let listed = asked("maps", &["list"])?;
    as_seen("maps", &listed["sessions"][0]["processes"][0])?;
    as_seen("programs", &asked("programs", &[])?["processes"][0])?;
    let client = Attached::to(bench, &["-p", &pid], "launchcount")?;
    until_seen(bench, (&pid, "kernels@c1"), || applications[0].launch(1))?;
    let clients = client.interrupt()?;
    as_seen("a second tool's report", &clients["processes"][0])?;
    let detached = bench.warpbpf("detach").args(["-p", &pid]).output();
    let detached = detached.map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&detached.stderr).into_owned();
    says(&said, &format!("detached from process {pid}"))?;
    let report = tool.interrupt()?;
    let steps = steps(&report);
    same("processes", steps.len(), 1)?;
    same("threads at the entry", steps[0].1, steps[0].0 * 256)?;
    as_seen("the report", &report["processes"][0])?;
    let [mut application] = applications;
    application.launch(2)?;
    application.end()?;
    Ok(format!(
        "{} launches of a process that sees nothing of us",
        steps[0].0
    ))
}

/// The number for us of the process that runs a file and has a tool's programs, by `warpbpf ps`,
/// which shows the other one, too.
fn number_outside(bench: &Bench, file: &Path, tool: &Attached) -> Result<String, String> {
    let list = bench.warpbpf("ps").arg("--json").output();
    let list = list.map_err(|e| e.to_string())?;
    let all: Value = serde_json::from_slice(&list.stdout).map_err(|e| e.to_string())?;
    let mut rows = all.as_array().into_iter().flatten();
    let row = rows.find(|row| row["command"][0].as_str().map(Path::new) == Some(file));
    let row = row.ok_or_else(|| format!("it is not in the list: {all}"))?;
    same("its number in its namespace", number(&row["inner_pid"]), 1)?;
    let by = number(&row["tool"]).to_string();
    same("whose programs it has", by, tool.pid())?;
    Ok(number(&row["pid"]).to_string())
}

/// With process numbers of its own, where the tool has none.
fn started(bench: &Bench) -> Told {
    const FLAGS: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let tried = Command::new("unshare").args(FLAGS).arg("true").output();
    match tried {
        Ok(output) if output.status.success() => {}
        Ok(_) => return Ok("skipped: no namespaces can be made here".to_owned()),
        Err(reason) => return Ok(format!("skipped: no `unshare`: {reason}")),
    }
    let application = bench.app("vectoradd");
    let application = application.to_str().ok_or("a path that is no text")?;
    let arguments = [FLAGS.as_slice(), &[application, "1000", "5"]].concat();
    let run = bench.probed(
        &[],
        &bench.object("launchcount"),
        Path::new("unshare"),
        &arguments,
    )?;
    let plain = bench.plain("vectoradd", &["1000", "5"])?;
    same("the application's output", run.output.stdout == plain, true)?;
    same("its number there", number(&run.process()["inner_pid"]), 1)?;
    let pid = number(&run.process()["pid"]);
    same("it has another here", pid > 1, true)?;
    same("launches", number(&run.kernel("vectorAdd")?["launches"]), 5)?;
    Ok("5 launches of process 1".to_owned())
}

fn memory(bench: &Bench) -> Told {
    let run = bench.both("launchcount", "vectoradd", &["100000", "10"])?;
    let used = number(&run.process()["device_bytes"]);
    same("something is used", used > 0, true)?;
    let exactly = used.to_string();
    let flags = ["--max-device-memory", &exactly];
    let run = bench.both_with(&flags, "launchcount", "vectoradd", &["100000", "10"])?;
    same(
        "launches",
        number(&run.kernel("vectorAdd")?["launches"]),
        10,
    )?;
    let less = (used - 1).to_string();
    let flags = ["--max-device-memory", &less];
    let run = bench.both_with(&flags, "launchcount", "vectoradd", &["100000", "10"])?;
    let expected = format!(
        "the programs need {used} bytes of device 0's memory, and `--max-device-memory` allows {less}: map `kernels` "
    );
    says(&run.notes(), &expected)?;
    Ok(format!("{used} bytes"))
}

/// A program that does much at each access, and one that does nearly nothing.
fn overhead(bench: &Bench) -> Told {
    // On a GPU all would be over before anybody has looked.
    let launches = if bench.soft { 320 } else { 200_000 };
    let count = launches.to_string();
    // On a GPU so many that events are little of a kernel's time, and memory the rest of it.
    let (elements, tight) = match bench.soft {
        true => ("100000", "40%"),
        false => ("4000000", "5%"),
    };
    let arguments = [elements, count.as_str()];
    let run = |object: &str, bound: &str| -> Result<(u64, u64, String), String> {
        let flags = ["--max-overhead", bound];
        let run = bench.both_with(&flags, object, "vectoradd", &arguments)?;
        let kernel = run.kernel("vectorAdd")?;
        let sum = |what: &str| number(&kernel[what]);
        let (with, skipped) = (sum("launches"), sum("skipped"));
        same(
            "all launches",
            with + skipped + sum("uninstrumented"),
            launches,
        )?;
        Ok((with, skipped, run.notes()))
    };
    let (with, skipped, notes) = run("memcount", tight)?;
    says(
        &notes,
        "runs without probes from here on, and counts as skipped: with them it took ",
    )?;
    same("most launches are without", skipped > with, true)?;
    let (light, left_out, notes) = run("launchcount", "1000%")?;
    same(
        "nothing is said of the light one",
        notes.contains("from here on"),
        false,
    )?;
    // One in eight of the first 256 launches, and one in 64 of the others, is the original.
    let most = 256 / 8 + launches / 64 + 1;
    same("few are without", left_out > 0 && left_out <= most, true)?;
    Ok(format!(
        "{with} of {launches} with the heavy one, {light} with the light one"
    ))
}
