//! Tools that end at a bad moment: killed behind any of their calls, or where the application does
//! not answer. It goes on, and others may come.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::attach::{Application, Attached, kernel, number, skipped, until_counted};
use crate::process::Signal;
use crate::run::{Bench, Case, Told, is_deep, same, says};

/// How often each tool is killed.
const KILLED: usize = 7;
/// Fewer calls than this are no attach and no detach.
const FEW: usize = 60;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attach: killed behind any call", attaches),
        case("detach: killed behind any call", detaches),
        case("attach: Ctrl-C, and the application is stopped", stopped),
    ]
}

/// How a run of a tool ended.
enum Ended {
    ByItself { calls: usize },
    Killed,
    Skipped(String),
}

/// Runs a tool, which is killed behind its call with this number, if it makes as many.
fn run(bench: &Bench, mut command: Command, kill_at: usize) -> Result<Ended, String> {
    use std::os::unix::process::ExitStatusExt as _;
    let count = bench.scratch("calls");
    command
        .env("LD_PRELOAD", bench.folder().join("apps/libkiller.so"))
        .env("KILL_AT", kill_at.to_string())
        .env("KILL_COUNT", &count);
    let output = command.output().map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(reason) = skipped(&errors) {
        return Ok(Ended::Skipped(reason));
    }
    if output.status.signal() == Some(9) {
        return Ok(Ended::Killed);
    }
    if !output.status.success() {
        return Err(format!(
            "killed behind call {kill_at}: {}: {errors}",
            output.status
        ));
    }
    let calls = std::fs::read_to_string(&count).map_err(|e| e.to_string())?;
    let calls = calls.trim().parse().map_err(|e| format!("{calls}: {e}"))?;
    Ok(Ended::ByItself { calls })
}

/// Kills what `command` makes behind some of its calls, or behind each; the application launches
/// each time, and its results are right. Each time
/// `before` makes it what it is to be.
fn each(
    bench: &Bench,
    application: &mut Application,
    mut before: impl FnMut(&Application) -> Result<(), String>,
    mut command: impl FnMut() -> Command,
) -> Told {
    before(application)?;
    let calls = match run(bench, command(), 0)? {
        Ended::ByItself { calls } if calls >= FEW => calls,
        Ended::ByItself { calls } => return Err(format!("{calls} calls are all that it makes")),
        Ended::Killed => return Err("it was killed, and nobody was to".into()),
        Ended::Skipped(reason) => return Ok(reason),
    };
    let step = match is_deep() {
        true => 1,
        false => calls / KILLED,
    };
    let mut killed = 0;
    for at in (1..=calls).step_by(step) {
        before(application)?;
        match run(bench, command(), at)? {
            Ended::Killed => killed += 1,
            // It may make fewer calls this time.
            Ended::ByItself { .. } | Ended::Skipped(_) => {}
        }
        let launched = application.launch(2);
        launched.map_err(|error| format!("killed behind call {at} of {calls}: {error}"))?;
    }
    match killed * 2 >= calls / step {
        true => Ok(format!("{killed} times of {calls} calls")),
        false => Err(format!("killed {killed} times only, of {calls} calls")),
    }
}

/// Whoever comes next counts as ever, and leaves the code as it was.
fn goes_on(bench: &Bench, mut application: Application, before: &[u8]) -> Result<(), String> {
    let attached = Attached::start(bench, &application, "scopes")?;
    until_counted(bench, &mut application, "counts")?;
    let report = attached.interrupt()?;
    let launches = number(&kernel(&report, "step")?["launches"]);
    same("launches with programs", launches > 0, true)?;
    let same_code = application.driver_code()? == before;
    same("the driver's code is as before", same_code, true)?;
    application.launch(3)?;
    application.end().map(drop)
}

fn attaches(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let pid = application.pid();
    let as_it_is = |_: &Application| Ok(());
    let told = each(bench, &mut application, as_it_is, || {
        let mut command = bench.warpbpf("attach");
        command.args(["-p", &pid, "--duration", "0"]);
        command.arg(bench.object("launchcount"));
        command
    })?;
    if told.starts_with("skipped") {
        return Ok(told);
    }
    goes_on(bench, application, &before)?;
    Ok(told)
}

fn detaches(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let code = application.driver_code()?;
    let pid = application.pid();
    // A tool that is killed leaves its hooks.
    let hooked =
        |application: &Application| Attached::start(bench, application, "launchcount").map(drop);
    let told = each(bench, &mut application, hooked, || {
        let mut command = bench.warpbpf("detach");
        command.args(["-p", &pid]);
        command
    });
    let told = match told {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        told => told?,
    };
    goes_on(bench, application, &code)?;
    Ok(told)
}

/// Who says nothing is not waited for as long as others.
fn stopped(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let before = application.driver_code()?;
    let attached = match Attached::start(bench, &application, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        attached => attached?,
    };
    until_counted(bench, &mut application, "counts")?;
    application.signal(Signal::Stop)?;
    let begun = Instant::now();
    let report = attached.interrupt()?;
    let took = begun.elapsed();
    application.signal(Signal::GoOn)?;
    if took > Duration::from_secs(40) {
        return Err(format!("it waited for {took:?}"));
    }
    let pid = application.pid();
    let wanted = format!(
        "process {pid} is stopped: continue it first (`kill -CONT {pid}`); `warpbpf detach -p {pid}` tries again"
    );
    says(&report["notes"].to_string(), &wanted)?;
    application.launch(3)?;
    let output = bench.warpbpf("detach").args(["-p", &pid]).output();
    same(
        "exit status of detach",
        output.map_err(|e| e.to_string())?.status.code(),
        Some(0),
    )?;
    goes_on(bench, application, &before)?;
    Ok("left, and detached later".into())
}
