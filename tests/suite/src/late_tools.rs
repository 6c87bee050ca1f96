//! Tools that use libbpf and applications that run already: links that begin and end one by one,
//! and `warpbpf loader -p`.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::attach::Application;
use crate::loader::{SKIPPED, driver, interrupt, tools};
use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same, says};
use crate::tree;

/// How long something may take that others do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of a launch of `step` in `live.cu`.
const STEP: u64 = 4 * 64;

/// Said where an application does not take what is attached.
pub(crate) const REFUSED: &str = "does not get what is attached now";

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("loader: links begin and end one by one", links),
        case("loader: links end while the application stands", stands),
        case(
            "loader: the last program in kernels ends, and one on the CPU",
            on_cpu,
        ),
        case("loader: -p, programs come into one that runs", late),
        case("loader: -p, whom it refuses", refused),
        case("loader: -p, one of two that is stuck", stuck),
        case("loader: a probe at a copy that serves nobody", copy),
        case(
            "bpftime: threadscheduling_dynamic_hook, one that runs",
            dynamic_hook,
        ),
        case(
            "bpftime: directly_run_on_gpu, with a running tool's maps",
            run_inside,
        ),
    ]
}

/// A tool under `warpbpf loader`, and all that came to its standard error so far.
pub(crate) struct Tool {
    pub(crate) child: Owned,
    orders: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Tool {
    fn start(mut command: Command) -> Result<Tool, String> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Owned::spawn(command.stderr(Stdio::piped()));
        let mut child = child.map_err(|e| format!("warpbpf: {e}"))?;
        let errors = Arc::new(Mutex::new(String::new()));
        let said = BufReader::new(child.stderr.take().ok_or("no errors")?);
        let kept = Arc::clone(&errors);
        let reader = std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                *kept += &line;
                *kept += "\n";
            }
        });
        Ok(Tool {
            orders: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().ok_or("no output")?).lines(),
            child,
            errors,
            reader: Some(reader),
        })
    }

    fn errors(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.clone()
    }

    /// Waits until that was said on standard error.
    fn until_said(&mut self, text: &str) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !self.errors().contains(text) {
            let ended = self.child.try_wait().map_err(|e| e.to_string())?.is_some();
            if ended || Instant::now() > end {
                return Err(format!("`{text}` was not said: {}", self.errors()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(crate) fn line(&mut self) -> Result<String, String> {
        let line = self.lines.next().ok_or("the tool has ended")?;
        line.map_err(|e| e.to_string())
    }

    /// What it answers a line with.
    fn ask(&mut self, order: &str) -> Result<String, String> {
        let orders = self.orders.as_mut().ok_or("its input is closed")?;
        writeln!(orders, "{order}").map_err(|e| e.to_string())?;
        self.line()
    }

    /// What it answers a signal with.
    fn question(&mut self) -> Result<String, String> {
        let tool = tree::children(self.child.id()).first().copied();
        process::signal(tool.ok_or("the tool has ended")?, Signal::Question)?;
        self.line()
    }

    /// Something that it does.
    fn does(&mut self, order: &str) -> Result<(), String> {
        let word = order.split(' ').next().unwrap_or(order);
        let result = if word == "more" { "ok" } else { "0" };
        same(order, self.ask(order)?, format!("{word}: {result}"))
    }

    /// What its programs have counted.
    fn counted(&mut self, [first, second, third, all]: [u64; 4]) -> Result<(), String> {
        let expected = format!("first {first} second {second} third {third} all {all}");
        same("counts", self.ask("show")?, expected)
    }

    /// What they have counted in variables, one of which some add to and one that is the tool's
    /// own.
    fn variables(&mut self, [all, thirds]: [u64; 2], mine: u64) -> Result<(), String> {
        let [all, thirds] = [all, thirds].map(|n| n * STEP);
        let expected = format!("all {all} thirds {thirds} mine {mine}");
        same("variables", self.ask("variables")?, expected)
    }

    /// What the command ends with, and all of its standard error.
    pub(crate) fn end(mut self) -> Result<(Option<i32>, String), String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        let reader = self.reader.take().ok_or("nobody reads")?;
        reader.join().map_err(|_| "a panic")?;
        Ok((status.code(), self.errors()))
    }
}

/// Variables that the command says an application needs.
fn variables(tool: &mut Tool, wanted: usize) -> Result<Vec<(String, String)>, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let errors = tool.errors();
        let lines = errors.lines().filter(|line| line.starts_with("  "));
        let pairs = lines.filter_map(|line| line.trim().split_once('='));
        let found: Vec<(String, String)> =
            pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        if found.len() == wanted {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("the variables were not said: {errors}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Each link takes effect in an application that runs when its call returns: at its begin, at its
/// end, and again.
fn links(bench: &Bench) -> Told {
    let all = tools(bench, "links");
    if all.is_empty() {
        return Ok(SKIPPED.into());
    }
    for tool in &all {
        links_of(bench, tool).map_err(|error| format!("{}: {error}", tool.display()))?;
    }
    Ok(format!("{} forms: begun, ended and begun again", all.len()))
}

/// A tool that can be found by that name, and an application of its.
fn both(
    bench: &Bench,
    name: &str,
    path: &Path,
    words: &[&str],
) -> Result<(Tool, Application), String> {
    let mut command = bench.warpbpf("loader");
    command.arg("--socket").arg(bench.scratch(name)).arg(path);
    command.args(words);
    let mut tool = Tool::start(command)?;
    let variables = variables(&mut tool, if bench.soft { 3 } else { 2 })?;
    let mut command = Command::new(bench.app("live"));
    command.envs(variables);
    Ok((tool, Application::start(command)?))
}

/// The application answers nothing: calls that end links return, the tool ends, and all is well
/// when it goes on.
fn stands(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    let (mut tool, mut app) = both(bench, "stands-socket", &path, &[])?;
    app.launch(2)?;
    tool.counted([2, 2, 0, 4].map(|n| n * STEP))?;
    app.signal(Signal::Stop)?;
    for order in ["end second", "end first"] {
        tool.does(order)?;
    }
    tool.orders = None;
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    app.signal(Signal::GoOn)?;
    app.launch(3)?;
    app.end()?;
    Ok("two ended in one that stood".to_owned())
}

/// With no program in kernels any more, one on the CPU goes on, and others come into kernels again.
fn on_cpu(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    let library = driver(bench);
    let (mut tool, mut app) = both(bench, "cpu-socket", &path, &[&library])?;
    let calls = |tool: &mut Tool, app: &Application| {
        // There are two kernels.
        same(
            "calls",
            tool.ask("calls")?,
            format!("calls {}", app.launches * 2),
        )
    };
    app.launch(2)?;
    tool.counted([2, 2, 0, 4].map(|n| n * STEP))?;
    calls(&mut tool, &app)?;
    tool.does("end second")?;
    tool.does("end first")?;
    app.launch(3)?;
    tool.counted([2, 2, 0, 4].map(|n| n * STEP))?;
    calls(&mut tool, &app)?;
    tool.does("attach first")?;
    app.launch(1)?;
    tool.counted([3, 2, 0, 5].map(|n| n * STEP))?;
    calls(&mut tool, &app)?;
    // Then it ends on the CPU, which the kernels' programs do not notice, and begins again.
    let counted = app.launches * 2;
    tool.does("quiet")?;
    app.launch(4)?;
    tool.counted([7, 2, 0, 9].map(|n| n * STEP))?;
    same("calls", tool.ask("calls")?, format!("calls {counted}"))?;
    tool.does("listen")?;
    app.launch(1)?;
    tool.counted([8, 2, 0, 10].map(|n| n * STEP))?;
    let counted = counted + 2;
    same("calls", tool.ask("calls")?, format!("calls {counted}"))?;
    // Both at once, as far as the application is concerned.
    tool.does("quiet")?;
    tool.does("attach second")?;
    app.launch(1)?;
    tool.counted([9, 3, 0, 12].map(|n| n * STEP))?;
    same("calls", tool.ask("calls")?, format!("calls {counted}"))?;
    app.end()?;
    tool.orders = None;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    same("nothing is refused", errors.contains(REFUSED), false)?;
    Ok("14 calls, 10 launches with programs".to_owned())
}

/// The tool probes another copy of the driver than the application has: it is told which one that
/// is.
fn copy(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    if !bench.soft {
        return Ok("skipped: the driver is NVIDIA's, and is not copied".into());
    }
    let used = driver(bench);
    let copy = bench.scratch("libcuda.so.1");
    std::fs::copy(&used, &copy).map_err(|e| format!("{used}: {e}"))?;
    let copy = copy.display().to_string();
    let (mut tool, mut app) = both(bench, "copy-socket", &path, &[&copy])?;
    app.launch(1)?;
    tool.counted([1, 1, 0, 2].map(|n| n * STEP))?;
    same("calls", tool.ask("calls")?.as_str(), "calls 0")?;
    app.end()?;
    tool.orders = None;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    says(&errors, &format!("does not run at `{copy}+"))?;
    says(&errors, &format!("it is served by `{used}`: probe that"))?;
    Ok("named, and nothing counted".to_owned())
}

fn links_of(bench: &Bench, path: &Path) -> Result<(), String> {
    let (mut tool, mut app) = both(bench, "links-socket", path, &[])?;
    app.launch(3)?;
    tool.counted([3, 3, 0, 6].map(|n| n * STEP))?;
    // One of two ends; its map is still there, to be read and changed.
    tool.does("end second")?;
    app.launch(4)?;
    tool.counted([7, 3, 0, 10].map(|n| n * STEP))?;
    tool.does("set second 5")?;
    app.launch(1)?;
    tool.counted([8 * STEP, 5, 0, 11 * STEP])?;
    tool.does("attach second")?;
    app.launch(5)?;
    tool.counted([13 * STEP, 5 + 5 * STEP, 0, 21 * STEP])?;
    // One that was loaded and never attached before the application came.
    tool.does("attach third")?;
    app.launch(2)?;
    tool.counted([15 * STEP, 5 + 7 * STEP, 2 * STEP, 27 * STEP])?;
    tool.variables([27, 2], 0)?;
    tool.does("mine 77")?;
    tool.variables([27, 2], 77)?;
    tool.does("detach first")?;
    app.launch(1)?;
    tool.variables([29, 3], 77)?;
    tool.counted([15 * STEP, 5 + 8 * STEP, 3 * STEP, 29 * STEP])?;
    // One with maps that the application does not have.
    const STAYS_OUT: &str = "program `cuda__first` is only in applications that start from now on: this one has no map `first`, `links_bp.bss`, and maps are made when an application starts; load the program before";
    same("told before", tool.errors().contains(STAYS_OUT), false)?;
    tool.does("more")?;
    tool.until_said(&format!("process {}: {STAYS_OUT}\n", app.pid()))?;
    app.launch(1)?;
    tool.counted([15 * STEP, 5 + 9 * STEP, 4 * STEP, 31 * STEP])?;
    tool.does("less")?;
    // The last one: the application is let go, for good.
    tool.does("end third")?;
    app.launch(1)?;
    tool.counted([15 * STEP, 5 + 10 * STEP, 4 * STEP, 32 * STEP])?;
    tool.does("end second")?;
    app.launch(2)?;
    tool.counted([15 * STEP, 5 + 10 * STEP, 4 * STEP, 32 * STEP])?;
    tool.does("attach first")?;
    tool.until_said("applications in which all programs have ended get no more")?;
    app.launch(1)?;
    tool.counted([15 * STEP, 5 + 10 * STEP, 4 * STEP, 32 * STEP])?;
    app.end()?;
    tool.orders = None;
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    same("stays out", errors.matches(STAYS_OUT).count(), 1)?;
    same("nothing is refused", errors.contains(REFUSED), false)
}

/// Why a case cannot be run here.
fn skipped(errors: &str) -> Option<String> {
    errors
        .contains("may not be traced")
        .then(|| "skipped: ptrace is not permitted".to_owned())
}

/// A tool whose programs come into processes that run. An error may begin with `skipped: `.
pub(crate) fn into(
    bench: &Bench,
    flags: &[&str],
    tool: &Path,
    pids: &[String],
) -> Result<Tool, String> {
    let mut command = bench.warpbpf("loader");
    command.args(flags);
    for pid in pids {
        command.args(["-p", pid]);
    }
    command.arg(tool);
    let mut tool = Tool::start(command)?;
    for pid in pids {
        let attached = tool.until_said(&format!("attached to process {pid} in "));
        attached.map_err(|error| skipped(&error).unwrap_or(error))?;
    }
    Ok(tool)
}

/// Launches of `step` until one is counted, which is then the only one: instrumentation of what was
/// loaded before takes a moment.
fn until_counted(app: &mut Application, tool: &mut Tool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        app.launch(1)?;
        let said = tool.ask("show")?;
        if said == format!("first {STEP} second {STEP} third 0 all {}", 2 * STEP) {
            return Ok(());
        }
        same("counts", said.as_str(), "first 0 second 0 third 0 all 0")?;
        if Instant::now() > end {
            return Err("nothing is counted".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Into one that runs, with links that end and begin there; out when the tool ends, and in again;
/// and the application's end first.
fn late(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    let mut app = Application::plain(bench)?;
    let before = app.driver_code()?;
    for round in 0..2 {
        let mut tool = match into(bench, &[], &path, &[app.pid()]) {
            Err(why) if why.starts_with("skipped: ") => return Ok(why),
            tool => tool?,
        };
        until_counted(&mut app, &mut tool)?;
        app.launch(5)?;
        tool.counted([6, 6, 0, 12].map(|n| n * STEP))?;
        tool.does("end second")?;
        app.launch(2)?;
        tool.counted([8, 6, 0, 14].map(|n| n * STEP))?;
        tool.does("attach third")?;
        app.launch(1)?;
        tool.counted([9, 6, 1, 16].map(|n| n * STEP))?;
        if round == 0 {
            // Ctrl-C.
            interrupt(tool.child.id());
            same("the last line", tool.line()?.as_str(), "ends")?;
        } else {
            tool.orders = None;
        }
        let (status, errors) = tool.end()?;
        same(&errors, status, Some(0))?;
        says(&errors, &format!("detached from process {}", app.pid()))?;
        same(
            "the driver's code is as before",
            app.driver_code()? == before,
            true,
        )?;
        // All goes on without programs, with the same results.
        app.launch(5)?;
    }
    // Its last link ends while the process lives: it goes on by itself.
    let mut tool = into(bench, &["--linger", "0"], &path, &[app.pid()])?;
    until_counted(&mut app, &mut tool)?;
    tool.does("end second")?;
    tool.does("end first")?;
    for _ in 0..3 {
        app.launch(1)?;
        tool.counted([1, 1, 0, 2].map(|n| n * STEP))?;
    }
    tool.orders = None;
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    // Beside one that comes by the tool's socket. The process that was named ends by force; the
    // tool goes on until the other ends.
    let mut victim = Application::plain(bench)?;
    let socket = bench.scratch("late-socket").display().to_string();
    let flags = ["--socket", &socket, "--linger", "0"];
    let mut tool = into(bench, &flags, &path, &[victim.pid()])?;
    until_counted(&mut victim, &mut tool)?;
    let variables = variables(&mut tool, if bench.soft { 3 } else { 2 })?;
    let mut command = Command::new(bench.app("live"));
    command.envs(variables);
    let mut other = Application::start(command)?;
    other.launch(2)?;
    // Variables are the tool's own memory: they begin as the first one has left them.
    tool.counted([2, 2, 0, 2 + 4].map(|n| n * STEP))?;
    drop(victim);
    other.launch(1)?;
    tool.counted([3, 3, 0, 2 + 6].map(|n| n * STEP))?;
    other.end()?;
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    // Two at once, which end before the tool does.
    let mut apps = [Application::plain(bench)?, Application::plain(bench)?];
    let pids = [apps[0].pid(), apps[1].pid()];
    let mut tool = into(bench, &["--linger", "60"], &path, &pids)?;
    // The tool sees what the one has that came last.
    until_counted(&mut apps[1], &mut tool)?;
    apps[0].launch(4)?;
    tool.counted([1, 1, 0, 2].map(|n| n * STEP))?;
    for app in apps {
        app.end()?;
    }
    // It is interrupted once it has had its round.
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    app.end()?;
    Ok("in and out twice, beside another, two at once".to_owned())
}

/// Runs `warpbpf loader` with words: its status, what it wrote, and its errors.
type With<'w> = &'w dyn Fn(&[&str]) -> Result<(Option<i32>, String, String), String>;

/// What is refused before anything is started, of a process `own` without CUDA among others.
fn refusals(with: With<'_>, tool: &str, own: &str) -> Result<(), String> {
    for (words, expected) in [
        (
            vec!["-p", "999999999", tool],
            "there is no process 999999999",
        ),
        (
            vec!["-p", own, tool],
            "has not loaded the CUDA driver: attach when it has",
        ),
        (
            vec!["-p", own, tool, "--", "true"],
            "`--pid` names an application that runs already, and the one behind `--` is to be started: give one of the two",
        ),
    ] {
        let (status, output, errors) = with(&words)?;
        same(&errors, status, Some(125))?;
        says(&errors, expected)?;
        same("the tool was not started", output.as_str(), "")?;
    }
    let (status, _, errors) = with(&["-p", own, "--inside", "/nowhere", tool])?;
    same(&errors, status, Some(2))
}

/// A process that takes for ever to load anything, as its loader's lock is taken.
const STUCK: &str = r#"
import ctypes, os, sys, threading, time
ctypes.CDLL(sys.argv[1])
callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def holds(*_):
    print("holds", flush=True)
    while True: time.sleep(1000)
hold = callback(holds)
threading.Thread(target=lambda: ctypes.CDLL(None).dl_iterate_phdr(hold, None), daemon=True).start()
sys.stdin.read()
os._exit(0)
"#;

/// One that is stuck holds up neither the other nor Ctrl-C, and the other is as before.
fn stuck(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    if Command::new("python3").arg("--version").output().is_err() {
        return Ok("skipped: no python3".into());
    }
    let mut python = Command::new("python3");
    python.args(["-c", STUCK]).arg(driver(bench));
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stuck = Owned::spawn(&mut python).map_err(|e| format!("python3: {e}"))?;
    let output = stuck.stdout.take().ok_or("no output")?;
    let line = BufReader::new(output).lines().next();
    if !line.is_some_and(|line| line.is_ok_and(|line| line == "holds")) {
        return Ok("skipped: python3 has no ctypes".into());
    }
    let mut app = Application::plain(bench)?;
    let before = app.driver_code()?;
    let mut command = bench.warpbpf("loader");
    command.args(["-p", &stuck.id().to_string(), "-p", &app.pid()]);
    command.arg(&path);
    let mut tool = Tool::start(command)?;
    let attached = tool.until_said(&format!("attached to process {} in ", app.pid()));
    if let Err(error) = attached {
        return skipped(&error).ok_or(error);
    }
    until_counted(&mut app, &mut tool)?;
    interrupt(tool.child.id());
    same("the last line", tool.line()?.as_str(), "ends")?;
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(125))?;
    says(
        &errors,
        &format!("what was begun in process {} ends by itself", stuck.id()),
    )?;
    says(&errors, &format!("detached from process {}", app.pid()))?;
    same(
        "the driver's code is as before",
        app.driver_code()? == before,
        true,
    )?;
    app.launch(1)?;
    app.end()?;
    Ok("the other had its programs, and lost them".to_owned())
}

/// Processes that cannot be attached to: nothing is started, and it is said why.
fn refused(bench: &Bench) -> Told {
    let Some(path) = tools(bench, "links").into_iter().next() else {
        return Ok(SKIPPED.into());
    };
    let with = |words: &[&str]| -> Result<(Option<i32>, String, String), String> {
        let mut command = bench.warpbpf("loader");
        let output = command.args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("warpbpf: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        ))
    };
    let tool = path.display().to_string();
    // The suite itself may have asked the driver what GPUs there are.
    let idle = Owned::spawn(Command::new("sleep").arg("60")).map_err(|e| format!("sleep: {e}"))?;
    refusals(&with, &tool, &idle.id().to_string())?;
    drop(idle);
    // A tool that attaches nothing.
    let mut app = Application::plain(bench)?;
    let pid = app.pid();
    let (status, _, errors) = with(&["-p", &pid, "true"])?;
    if let Some(why) = skipped(&errors) {
        return Ok(why);
    }
    same(&errors, status, Some(125))?;
    says(
        &errors,
        &format!("before it attached a program to a kernel; nothing was put into process {pid}"),
    )?;
    // One that another tool has: the second is told, and ends its own.
    let mut first = into(bench, &[], &path, std::slice::from_ref(&pid))?;
    let mut command = bench.warpbpf("loader");
    command.args(["-p", &pid, &tool]);
    // Its input stays open, so that it does not end by itself.
    let (status, errors) = Tool::start(command)?.end()?;
    same(&errors, status, Some(125))?;
    says(&errors, &format!("the agent in process {pid} refuses: "))?;
    until_counted(&mut app, &mut first)?;
    interrupt(first.child.id());
    let (status, errors) = first.end()?;
    same(&errors, status, Some(0))?;
    app.launch(1)?;
    app.end()?;
    Ok("gone, without CUDA, taken, and what does not go together".to_owned())
}

/// A launch of `addlines`: blocks, threads of each.
const SHAPE: [u64; 2] = [4, 256];

/// bpftime's tool for 1501 with a process that has launched before.
fn dynamic_hook(bench: &Bench) -> Told {
    let all = tools(bench, "mapping");
    let mut told = SKIPPED.to_owned();
    for path in &all {
        told = match dynamic_hook_of(bench, path) {
            Err(why) if why.starts_with("skipped: ") => return Ok(why),
            told => told.map_err(|error| format!("{}: {error}", path.display()))?,
        };
    }
    Ok(told)
}

fn dynamic_hook_of(bench: &Bench, path: &Path) -> Told {
    let threads = SHAPE[0] * SHAPE[1];
    let mut command = Command::new(bench.app("addlines"));
    command.args(SHAPE.map(|extent| extent.to_string()));
    if bench.soft {
        command.env("LD_LIBRARY_PATH", bench.folder.join("soft"));
    }
    let mut app = Application::start(command)?;
    let mut all = 0;
    let mut launch = |app: &mut Application, count: u64| -> Result<(), String> {
        all += count;
        let sum = 3 * threads * (threads - 1) / 2;
        let expected = format!("{all} launches of {threads} threads, sum {sum}");
        same("results", app.ask(&count.to_string())?, expected)
    };
    launch(&mut app, 3)?;
    // Two histograms and a map of places are more than the default of one invocation.
    let mut tool = into(bench, &["--budget", "8192"], path, &[app.pid()])?;
    same("it began", tool.line()?.as_str(), "mapping probe started")?;
    let question = |tool: &mut Tool| -> Result<u64, String> {
        let line = tool.question()?;
        let number = line.strip_prefix("so far ").and_then(|n| n.parse().ok());
        number.ok_or(format!("`{line}` has no number"))
    };
    let end = Instant::now() + PATIENCE;
    let mut launched = 0;
    // The first that is counted is the only one then.
    loop {
        launch(&mut app, 1)?;
        launched += 1;
        match question(&mut tool)? {
            0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            found => break same("threads of the first launch", found, threads)?,
        }
    }
    launch(&mut app, 5)?;
    same("threads of six", question(&mut tool)?, 6 * threads)?;
    interrupt(tool.child.id());
    let mut lines = Vec::new();
    while let Ok(line) = tool.line() {
        lines.push(line);
    }
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))?;
    let expected = format!(
        "threads {threads}, calls {0}, of warps {0}, strange 0",
        6 * threads
    );
    same("the last line", lines.last(), Some(&expected))?;
    launch(&mut app, 2)?;
    app.end()?;
    Ok(format!("6 launches of {} since the attach", launched + 5))
}

/// A tool's programs as kernels, with the maps of that tool: each begins with what the one before
/// has left.
fn run_inside(bench: &Bench) -> Told {
    let all = tools(bench, "directly");
    if all.is_empty() {
        return Ok(SKIPPED.into());
    }
    for path in &all {
        run_inside_of(bench, path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(format!(
        "{} forms: 1000 sums, then 96 runs beside them",
        all.len()
    ))
}

fn run_inside_of(bench: &Bench, path: &Path) -> Result<(), String> {
    let socket = bench.scratch("launch-socket");
    let launch = |words: &[&str]| -> Result<(Option<i32>, String), String> {
        let mut command = bench.warpbpf("launch-inside");
        let output = command.arg(&socket).args(words).output();
        let output = output.map_err(|e| format!("warpbpf: {e}"))?;
        let said = [output.stdout, output.stderr].concat();
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    };
    let (status, said) = launch(&["cuda__run"])?;
    same(&said, status, Some(125))?;
    says(&said, "no tool is at `")?;
    let mut command = bench.warpbpf("loader");
    command.args(["--bound-loops", "--socket"]);
    command.arg(&socket).arg(path);
    let mut tool = Tool::start(command)?;
    let variables = variables(&mut tool, if bench.soft { 3 } else { 2 })?;
    // It has computed with other numbers, on the CPU.
    while tool.line()?.as_str() != "GEMM C[0]=-62, wrong 0" {}
    same(
        "before",
        tool.question()?.as_str(),
        "launched: C[999]=3996, wrong 999, runs 5",
    )?;
    let (status, said) = launch(&["cuda__vec_add", "--grid", "4", "--block", "256"])?;
    same(&said, status, Some(0))?;
    says(
        &said,
        "launched `cuda__vec_add` 1 times: grid 4,1,1, block 256,1,1\n",
    )?;
    same(
        "the sums",
        tool.question()?.as_str(),
        "launched: C[999]=5994, wrong 0, runs 5",
    )?;
    let (status, said) = launch(&["cuda__run", "--count", "3", "--block", "32"])?;
    same(&said, status, Some(0))?;
    same(
        "the runs",
        tool.question()?.as_str(),
        "launched: C[999]=5994, wrong 0, runs 101",
    )?;
    let printed = tool.errors().matches("directly run on GPU").count();
    same("messages", printed, 5 + 96)?;
    let refused = |program: &str, why: &str| -> Result<(), String> {
        let (status, said) = launch(&[program])?;
        same(&said, status, Some(125))?;
        says(&said, &format!("`{program}` cannot be launched: {why}"))
    };
    refused(
        "cuda__none",
        "the tool has not loaded a program of this name",
    )?;
    let mut command = Command::new(bench.app("live"));
    command.envs(variables);
    let mut app = Application::start(command)?;
    app.launch(1)?;
    refused(
        "cuda__run",
        "an application runs with the tool's programs, which has maps of its own: launch it when that has ended",
    )?;
    app.end()?;
    interrupt(tool.child.id());
    let (status, errors) = tool.end()?;
    same(&errors, status, Some(0))
}
