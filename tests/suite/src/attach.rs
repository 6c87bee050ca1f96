//! Programs in an application that runs already: put in, taken out, put in again, and an
//! application that does not notice.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use warpbpf_tool::{Object, Options, Tool};

use crate::library::failed;
use crate::process::{self, Owned, Signal};
use crate::replace::start;
use crate::run::{Bench, Case, Told, same, says};
use crate::tree;

/// How long something may take that others do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of a launch of `step` in `live.cu`, and what one adds.
const THREADS: u64 = BLOCKS * 64;
/// Blocks of one.
pub(crate) const BLOCKS: u64 = 4;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attach: twice to one that runs, and out again", twice),
        case("attach: a graph that was there before", older_graph),
        case("attach: a tool that was killed", killed),
        case("attach: one that has programs in it", taken),
        case("attach: one that ends meanwhile", ends),
        case("attach: a timeline with stacks", timeline),
    ]
}

/// The application, and what it has been told so far. It does not stay behind, whatever goes wrong.
pub struct Application {
    child: Owned,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) launches: u64,
}

impl Application {
    pub fn start(mut command: Command) -> Result<Application, String> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Owned::spawn(command).map_err(|e| e.to_string())?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().ok_or("no output")?;
        Ok(Application {
            child,
            orders,
            answers: BufReader::new(answers),
            launches: 0,
        })
    }

    pub(crate) fn plain(bench: &Bench) -> Result<Application, String> {
        Application::by(bench, Command::new(bench.app("live")))
    }

    /// The same, by a command that becomes it.
    pub(crate) fn by(bench: &Bench, mut command: Command) -> Result<Application, String> {
        if bench.soft {
            command.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
        }
        let mut application = Application::start(command)?;
        application.launch(3)?;
        Ok(application)
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        process::signal(self.child.id(), signal)
    }

    /// Number of the only process that it has started.
    pub(crate) fn inner(&self) -> Option<u32> {
        tree::children(self.child.id()).first().copied()
    }

    /// So many launches more of each kernel of `live.cu`; their results are what they would be
    /// without us.
    pub fn launch(&mut self, count: u64) -> Result<(), String> {
        self.launch_as("", count)
    }

    /// The same, as what `live.cu` understands by a letter.
    pub(crate) fn launch_as(&mut self, how: &str, count: u64) -> Result<(), String> {
        let line = self.ask(&format!("{how}{count}"))?;
        self.launches += count;
        let all = self.launches;
        // Sums of thread numbers: 0 to 63 four times, 0 to 31 twice and times three.
        let expected = format!("{} {} {}", all * 8064, all * 2976, all * 4);
        same("results", line, expected)
    }

    /// The line that it answers a line with.
    pub(crate) fn ask(&mut self, order: &str) -> Result<String, String> {
        let orders = self.orders.as_mut().ok_or("its input is closed")?;
        writeln!(orders, "{order}").map_err(|e| e.to_string())?;
        self.next_line()
    }

    /// What it says next.
    pub(crate) fn next_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        read.map_err(|e| e.to_string())?;
        Ok(line.trim_end().to_owned())
    }

    /// Its last words.
    pub fn end(mut self) -> Result<String, String> {
        self.orders = None;
        let mut said = String::new();
        let read = self.answers.read_to_string(&mut said);
        read.map_err(|e| e.to_string())?;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        same("exit status", status.code(), Some(0))?;
        Ok(said)
    }

    /// Ends it if it lives longer than that, so that whoever waits for its answer gets none.
    pub fn watch(&self, limit: Duration) -> Watch {
        let (watch, over) = std::sync::mpsc::channel();
        let leader = self.child.id();
        std::thread::spawn(move || {
            if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let _ = process::signal_group(leader, Signal::Kill);
            }
        });
        Watch(watch)
    }

    /// The driver's code as it lies in its memory.
    pub(crate) fn driver_code(&self) -> Result<Vec<u8>, String> {
        let folder = format!("/proc/{}", self.pid());
        let text = |e: std::io::Error| e.to_string();
        let maps = std::fs::read_to_string(format!("{folder}/maps")).map_err(text)?;
        let memory = std::fs::File::open(format!("{folder}/mem")).map_err(text)?;
        let mut code = Vec::new();
        for line in maps
            .lines()
            .filter(|l| l.contains("libcuda.so") && l.contains(" r-xp "))
        {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            let (low, high) = range.ok_or("an odd mapping")?;
            let hex = |digits| u64::from_str_radix(digits, 16).map_err(|e| e.to_string());
            let (low, high) = (hex(low)?, hex(high)?);
            let mut bytes = vec![0; (high - low) as usize];
            memory.read_exact_at(&mut bytes, low).map_err(text)?;
            code.extend(bytes);
        }
        Ok(code)
    }
}

/// See [`Application::watch`]; nobody watches any more when it is gone.
pub struct Watch(
    #[expect(dead_code, reason = "its end is what is heard")] std::sync::mpsc::Sender<()>,
);

/// `warpbpf attach`, at work. It is ended as above, with all that it has begun.
pub(crate) struct Attached {
    child: Owned,
    saved: std::path::PathBuf,
    /// What it says on standard error.
    lines: Receiver<String>,
}

/// Why a case cannot be run here.
pub(crate) fn skipped(errors: &str) -> Option<String> {
    errors
        .contains("may not be traced")
        .then(|| "skipped: ptrace is not permitted".to_owned())
}

impl Attached {
    /// Attaches and waits until that is done. An error may begin with `skipped: `.
    pub(crate) fn start(
        bench: &Bench,
        application: &Application,
        object: &str,
    ) -> Result<Attached, String> {
        Attached::to(bench, &["-p", &application.pid()], object)
    }

    /// The same, to whom flags say.
    pub(crate) fn to(bench: &Bench, whom: &[&str], object: &str) -> Result<Attached, String> {
        let saved = bench.scratch(&format!("attached-{object}.json"));
        let _ = std::fs::remove_file(&saved);
        let mut command = bench.warpbpf("attach");
        command.args(whom).args(["--json", "-o"]);
        command.arg(&saved).arg(bench.object(object));
        Attached::by(command, saved)
    }

    /// The same by a command, whose report will be in a file.
    pub(crate) fn by(mut command: Command, saved: std::path::PathBuf) -> Result<Attached, String> {
        let child = Owned::spawn(command.stderr(Stdio::piped()));
        let mut child = child.map_err(|e| e.to_string())?;
        let errors = BufReader::new(child.stderr.take().ok_or("no errors")?);
        let (tell, lines) = channel();
        // It must not be stopped by a pipe that nobody reads.
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                // Who has heard enough is gone.
                let _ = tell.send(line);
            }
        });
        let mut attached = Attached {
            child,
            saved,
            lines,
        };
        let said = attached.says("attached to process");
        said.map_err(|said| skipped(&said).unwrap_or(said))?;
        Ok(attached)
    }

    /// It says this, maybe behind other things; else all that it says until its end or until nobody
    /// waits any more.
    pub(crate) fn says(&mut self, what: &str) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let mut others: Vec<String> = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(what) => return Ok(()),
                Ok(line) => others.push(line),
                Err(RecvTimeoutError::Disconnected) => {
                    // Nobody has its standard error any more.
                    let _ = self.child.wait();
                    return Err(others.join("\n"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it does not say `{what}`: {}", others.join("\n")));
                }
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        process::signal(self.child.id(), signal)
    }

    /// Number of its process.
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Number of the only process that it has started.
    pub(crate) fn inner(&self) -> Option<u32> {
        tree::children(self.child.id()).first().copied()
    }

    /// Ctrl-C, and its report.
    pub(crate) fn interrupt(self) -> Result<Value, String> {
        self.signal(Signal::Interrupt)?;
        self.report()
    }

    /// Its report, when it ends.
    pub(crate) fn report(mut self) -> Result<Value, String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        same("exit status of attach", status.code(), Some(0))?;
        let text = std::fs::read(&self.saved).map_err(|e| e.to_string())?;
        serde_json::from_slice(&text).map_err(|e| e.to_string())
    }
}

/// Launches one by one until the kernel is seen to be instrumented by the tool, as `warpbpf maps`
/// shows it: some value of the map is not 0.
pub(crate) fn until_counted(
    bench: &Bench,
    application: &mut Application,
    map: &str,
) -> Result<(), String> {
    let pid = application.pid();
    until_seen(bench, (&pid, map), || application.launch(1))
}

/// The same of a process and what launches there.
pub(crate) fn until_seen(
    bench: &Bench,
    (pid, map): (&str, &str),
    mut launch: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        launch()?;
        let mut command = bench.warpbpf("maps");
        command.args(["--pid", pid, "--json", "dump", map]);
        let output = command.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let counted = text.contains("\"value\":") && output.status.success();
        let zeros = text.matches("\"value\":0").count() == text.matches("\"value\":").count();
        if counted && !zeros {
            return Ok(());
        }
        if Instant::now() > end {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("nothing is counted: {text} {errors}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until other commands find a process by its number: a tool learns of its application on a
/// thread of its own, which gets to run when it does.
pub(crate) fn until_known(bench: &Bench, pid: &str) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut command = bench.warpbpf("programs");
        let output = command.args(["--pid", pid]).output();
        let output = output.map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kernel<'r>(report: &'r Value, name: &str) -> Result<&'r Value, String> {
    let kernels = report["processes"][0]["kernels"].as_array();
    let found = kernels.into_iter().flatten().find(|k| k["name"] == name);
    found.ok_or_else(|| format!("`{name}` is not among the kernels: {report}"))
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The value of a key.
pub(crate) fn value(report: &Value, map: &str, key: u64) -> u64 {
    let maps = report["processes"][0]["maps"].as_array();
    let map = maps.into_iter().flatten().find(|m| m["name"] == map);
    let entries = map.and_then(|map| map["entries"].as_array());
    let mut entries = entries.into_iter().flatten();
    let found = entries.find(|entry| number(&entry["key"]) == key);
    found.map_or(0, |entry| number(&entry["value"]))
}

/// From some moment on every launch is in the file, with a stack that comes from the application's
/// `main`.
fn timeline(bench: &Bench) -> Told {
    const BEHIND: u64 = 20;
    let mut application = Application::plain(bench)?;
    let before = application.launches;
    let (trace, folded) = (bench.scratch("late.json"), bench.scratch("late.folded"));
    let (pid, path) = (application.pid(), trace.display().to_string());
    let folded_path = folded.display().to_string();
    let flags = [
        "-p",
        &pid,
        "--timeline",
        &path,
        "--stacks",
        "--folded",
        &folded_path,
    ];
    let attached = match Attached::to(bench, &flags, "launchcount") {
        Err(error) if error.starts_with("skipped") => return Ok(error),
        attached => attached?,
    };
    until_counted(bench, &mut application, "kernels")?;
    application.launch(BEHIND)?;
    let report = attached.interrupt()?;
    let remarks = report["remarks"].to_string();
    says(&remarks, "operations, ")?;
    application.launch(1)?;
    let launched = application.launches - before;
    application.end()?;
    let read = |path| std::fs::read_to_string(path).map_err(|e| format!("{e}"));
    let file: Value = serde_json::from_str(&read(&trace)?).map_err(|e| e.to_string())?;
    let events = file["traceEvents"].as_array().cloned().unwrap_or_default();
    let kernels = events.iter().filter(|event| event["cat"] == "kernel");
    let steps = kernels.filter(|event| event["name"] == "step").count() as u64;
    // All behind the first that was counted, for where there are variants there are events; and
    // none behind the detach.
    let untimed = &file["otherData"]["processes"][0]["untimed"];
    if steps < BEHIND || steps >= launched {
        return Err(format!(
            "{steps} launches of `step` in the file, of {launched}, of which {BEHIND} came when there were programs; not timed: {untimed}"
        ));
    }
    let folded = read(&folded)?;
    let of_step: Vec<&str> = folded
        .lines()
        .filter(|line| line.contains(";step "))
        .collect();
    if of_step.is_empty() || of_step.iter().any(|line| !line.contains(";main;")) {
        return Err(format!("stacks of `step`: {folded}"));
    }
    Ok("launches of an application that ran already".to_owned())
}

fn twice(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let mut told = Vec::new();
    for round in 0..2 {
        let launched = application.launches;
        let attached = match Attached::start(bench, &application, "scopes") {
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            attached => attached?,
        };
        let hooked = application.driver_code()?;
        same(
            "the driver's code while attached is as before",
            hooked == before,
            false,
        )?;
        until_counted(bench, &mut application, "counts")?;
        application.launch(50)?;
        let report = attached.interrupt()?;
        let made = application.launches - launched;
        let step = kernel(&report, "step")?;
        let (launches, uninstrumented) =
            (number(&step["launches"]), number(&step["uninstrumented"]));
        same(
            "launches of step, with and without probes",
            launches + uninstrumented,
            made,
        )?;
        if launches < 51 {
            return Err(format!(
                "{launches} launches of {made} had probes: {report}"
            ));
        }
        let key = number(&step["id"]) * 8;
        same(
            "threads at the entry",
            value(&report, "counts", key),
            launches * THREADS,
        )?;
        same(
            "threads at the exit",
            value(&report, "counts", key + 4),
            launches * THREADS,
        )?;
        same(
            "blocks at the exit",
            value(&report, "counts", key + 6),
            launches * 4,
        )?;
        let scaled = kernel(&report, "scaled")?;
        same(
            "uninstrumented launches of a clone",
            number(&scaled["uninstrumented"]),
            made,
        )?;
        let method = scaled["method"].as_str().unwrap_or("");
        says(method, "start the application under `warpbpf run`")?;
        let notes = report["notes"].to_string();
        says(
            &notes,
            &format!("detached from process {}", application.pid()),
        )?;
        let after = application.driver_code()?;
        same("the driver's code is as before", after == before, true)?;
        // Out, nothing is counted and all goes on.
        application.launch(5)?;
        told.push(format!("round {round}: {launches} of {made}"));
    }
    application.end()?;
    Ok(told.join(", "))
}

/// What is in an executable graph that was instantiated before cannot be known, which is told; one
/// that is instantiated again has programs.
fn older_graph(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    application.launch_as("g", 4)?;
    let attached = match Attached::start(bench, &application, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    application.launch_as("g", 7)?;
    until_counted(bench, &mut application, "counts")?;
    let before = application.launches;
    application.launch_as("G", 9)?;
    application.launch_as("g", 2)?;
    let in_graph = application.launches - before;
    let report = attached.interrupt()?;
    let step = kernel(&report, "step")?;
    let (launches, uninstrumented) = (number(&step["launches"]), number(&step["uninstrumented"]));
    // Three and four came before the attach, and seven are the graph's.
    same(
        "launches of step",
        launches + uninstrumented,
        application.launches - 14,
    )?;
    if launches < in_graph {
        return Err(format!("{launches} launches had probes: {report}"));
    }
    let key = number(&step["id"]) * 8;
    let counted = value(&report, "counts", key);
    same("threads at the entry", counted, launches * THREADS)?;
    let notes = report["notes"].to_string();
    says(
        &notes,
        "7 launches of a graph that was instantiated before the programs came ran without them",
    )?;
    application.end()?;
    Ok(format!("7 launches told of, {launches} with programs"))
}

fn killed(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let mut attached = match Attached::start(bench, &application, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "counts")?;
    attached.signal(Signal::Kill)?;
    let _ = attached.child.wait();
    // Nobody to speak to: originals.
    application.launch(20)?;
    let same_code = application.driver_code()? == before;
    same("the driver's code is as before", same_code, false)?;
    let mut detach = bench.warpbpf("detach");
    let output = detach.args(["-p", &application.pid()]).output();
    let output = output.map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    same("exit status of detach", output.status.code(), Some(0))?;
    says(
        &errors,
        &format!("detached from process {}", application.pid()),
    )?;
    let same_code = application.driver_code()? == before;
    same("the driver's code is as before", same_code, true)?;
    application.launch(20)?;
    // Another tool can come.
    let attached = Attached::start(bench, &application, "scopes")?;
    until_counted(bench, &mut application, "counts")?;
    let report = attached.interrupt()?;
    same(
        "launches",
        number(&kernel(&report, "step")?["launches"]) > 0,
        true,
    )?;
    application.end()?;
    Ok("detached from outside, and attached again".into())
}

fn taken(bench: &Bench) -> Told {
    let mut command = bench.warpbpf("run");
    let saved = bench.scratch("taken.json");
    command.args(["--json", "-o"]).arg(&saved);
    command.arg(bench.object("scopes")).arg("--");
    command.arg(bench.app("live"));
    let mut application = Application::start(command)?;
    application.launch(3)?;
    // The application is the tool's child.
    let list = bench.warpbpf("ps").arg("--json").output();
    let list = list.map_err(|e| e.to_string())?;
    let all: Value = serde_json::from_slice(&list.stdout).map_err(|e| e.to_string())?;
    let tool = u64::from(application.child.id());
    let mut rows = all.as_array().into_iter().flatten();
    let row = rows.find(|row| number(&row["tool"]) == tool);
    let row = row.ok_or_else(|| format!("nobody is served by {tool}: {all}"))?;
    same("agent", row["has_agent"].as_bool(), Some(true))?;
    application.launch(3)?;
    application.end()?;
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    same("launches", number(&kernel(&report, "step")?["launches"]), 6)?;

    // One whose tool lets no other in.
    let object = Object::open(bench.object("scopes")).map_err(failed)?;
    let tool = Tool::attach(object, Options::default()).map_err(failed)?;
    let mut application = start(bench, &tool, &["live"])?;
    application.launch(3)?;
    let pid = application.pid();
    let output = bench
        .warpbpf("attach")
        .args(["-p", &pid])
        .arg(bench.object("scopes"))
        .output();
    let errors = String::from_utf8_lossy(&output.map_err(|e| e.to_string())?.stderr).into_owned();
    if let Some(reason) = skipped(&errors) {
        return Ok(reason);
    }
    let expected =
        format!("the agent in process {pid} refuses: a tool has its programs in it already");
    says(&errors, &expected)?;
    application.launch(3)?;
    application.end()?;
    same("last words", tool.wait_last_words(PATIENCE), true)?;
    let step = tool.processes()[0].kernels().into_iter();
    let mut step = step.filter(|kernel| kernel.kernel.demangled == "step");
    same(
        "launches",
        step.next().map(|kernel| kernel.launches),
        Some(6),
    )?;
    Ok("refused, and nobody noticed".into())
}

/// The application's end is the tool's, and its last data come home.
fn ends(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let launched = application.launches;
    let attached = match Attached::start(bench, &application, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "counts")?;
    application.launch(10)?;
    let made = application.launches - launched;
    application.end()?;
    let report = attached.report()?;
    same(
        "complete",
        report["processes"][0]["complete"].as_bool(),
        Some(true),
    )?;
    let step = kernel(&report, "step")?;
    let (launches, uninstrumented) = (number(&step["launches"]), number(&step["uninstrumented"]));
    same(
        "launches of step, with and without probes",
        launches + uninstrumented,
        made,
    )?;
    let key = number(&step["id"]) * 8;
    same(
        "threads at the entry",
        value(&report, "counts", key),
        launches * THREADS,
    )?;
    Ok(format!("{launches} of {made}, all of them told"))
}
