//! Attaching to many at once, among processes that are to be left alone; and to processes with a
//! filter for system calls.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use warpbpf_tool::{Object, Options, Tool};

use crate::attach::{Application, Attached, number, skipped, until_counted};
use crate::library::{PATIENCE, failed};
use crate::process::{self, Owned, Signal};
use crate::run::{Bench, Case, Told, same, says};
use crate::tree;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attach: all processes of a user, and no others", of_a_user),
        case("attach: all processes", all),
        case("attach: a filter that forbids what nobody needs", harmless),
        case("attach: a filter that forbids what is needed", forbidden),
        case("attach: detached while something is captured", captures),
        case("attach: to one that is capturing", capturing),
        case("attach: a timeline without programs", timeline_alone),
        case("attach: odd names and no main thread", odd),
    ]
}

/// Without a program nothing is ever loaded there that would make the context's memory; the
/// timeline has all launches from the first on.
fn timeline_alone(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let (saved, file) = (bench.scratch("report.json"), bench.scratch("late.json"));
    let mut command = bench.warpbpf("attach");
    command
        .args(["-p", &application.pid(), "--json", "-o"])
        .arg(&saved);
    command.arg("--timeline").arg(&file);
    let attached = match Attached::by(command, saved) {
        Err(error) if error.starts_with("skipped") => return Ok(error),
        attached => attached?,
    };
    application.launch(4)?;
    let report = attached.interrupt()?;
    application.launch(1)?;
    application.end()?;
    says(&report["remarks"].to_string(), "operations, ")?;
    let text = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    let trace: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let events = trace["traceEvents"].as_array();
    let kernels = events.into_iter().flatten();
    let steps = kernels.filter(|event| event["cat"] == "kernel" && event["name"] == "step");
    same("launches of `step`", steps.count(), 4)?;
    Ok("each launch with its times".into())
}

/// Users that nobody is.
const USERS: [&str; 2] = ["54321", "54322"];

/// Processes that see only each other, so that who attaches to all of them attaches to none of the
/// machine's others.
struct Room {
    /// With it all that is in there ends.
    holder: Owned,
    /// The first process in there, by its number here.
    first: String,
    sockets: std::path::PathBuf,
}

impl Room {
    /// `Ok(Err(_))`: why there can be none here.
    fn new(bench: &Bench) -> Result<Result<Room, String>, String> {
        let sockets = bench.scratch("room");
        std::fs::create_dir_all(&sockets).map_err(|e| format!("{}: {e}", sockets.display()))?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
        // The last thing that is done before it is there.
        let done = ["sh", "-c", "echo there; exec sleep 100000"];
        let holder = command
            .args(done)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let holder = match Owned::spawn(holder.stderr(Stdio::null())) {
            Ok(holder) => holder,
            Err(error) => return Ok(Err(format!("skipped: `unshare`: {error}"))),
        };
        let mut room = Room {
            holder,
            first: String::new(),
            sockets,
        };
        let mut said = String::new();
        if let Some(output) = room.holder.stdout.take() {
            let mut output = std::io::BufReader::new(output);
            std::io::BufRead::read_line(&mut output, &mut said).map_err(|e| e.to_string())?;
        }
        if said != "there\n" {
            let why = "skipped: no processes of their own can be had here (only root can)";
            return Ok(Err(why.to_owned()));
        }
        let first = tree::children(room.holder.id()).first().copied();
        room.first = first.ok_or("the first process has ended")?.to_string();
        Ok(Ok(room))
    }

    /// The same command in there.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        // The root may not be that of the mounts: in a `chroot` it is not.
        inside.args(["--target", &self.first, "--pid", "--mount", "--root", "--"]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        inside.env("XDG_RUNTIME_DIR", &self.sockets);
        inside
    }

    /// An application of a user. `None` if such a user may not see its file.
    fn application(&self, bench: &Bench, user: &str) -> Result<Option<Application>, String> {
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        let as_user = |program: &std::path::Path| {
            let mut command = Command::new("setpriv");
            command
                .args(&ids)
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        };
        let seen = as_user("test".as_ref())
            .arg("-x")
            .arg(bench.app("live"))
            .status();
        if !seen.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let live = self.inside(&as_user(&bench.app("live")));
        Application::by(bench, live).map(Some)
    }

    fn attach(&self, bench: &Bench, whom: &[&str]) -> Result<Attached, String> {
        let saved = bench.scratch("attached-many.json");
        let _ = std::fs::remove_file(&saved);
        let mut command = bench.warpbpf("attach");
        command.args(whom).args(["--json", "-o"]);
        command.arg(&saved).arg(bench.object("scopes"));
        Attached::by(self.inside(&command), saved)
    }
}

/// Ctrl-C for what was begun in a room, whose report then comes.
fn interrupt(attached: Attached) -> Result<Value, String> {
    let pid = attached.inner().ok_or("attach has ended")?;
    process::signal(pid, Signal::Interrupt)?;
    attached.report()
}

/// An agent is in the application that was begun in a room.
fn has_agent(application: &Application) -> Result<bool, String> {
    let pid = application.inner().ok_or("the application has ended")?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| e.to_string())?;
    Ok(maps.contains("warpbpf_agent"))
}

/// Launches of `step` in each process of a report, with probes and without, and the threads that
/// were counted are those with.
fn launches(report: &Value) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for process in report["processes"].as_array().into_iter().flatten() {
        let mut kernels = process["kernels"].as_array().into_iter().flatten();
        let step = kernels.find(|kernel| kernel["name"] == "step");
        let step = step.ok_or_else(|| format!("no `step` in {process}"))?;
        let (with, without) = (number(&step["launches"]), number(&step["uninstrumented"]));
        let mut maps = process["maps"].as_array().into_iter().flatten();
        let counts = maps
            .find(|map| map["name"] == "counts")
            .map(|map| &map["entries"]);
        let mut counts = counts.and_then(Value::as_array).into_iter().flatten();
        let key = number(&step["id"]) * 8;
        let threads = counts.find(|entry| number(&entry["key"]) == key);
        let threads = threads.map_or(0, |entry| number(&entry["value"]));
        same("threads of `step`", threads, with * 4 * 64)?;
        all.push(with + without);
    }
    all.sort_unstable();
    Ok(all)
}

/// Why a case cannot go on, or what went wrong.
macro_rules! try_here {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
            Err(error) => return Err(error),
        }
    };
}

const UNSEEN: &str = "skipped: other users may not see the tests' files";

fn of_a_user(bench: &Bench) -> Told {
    let room = try_here!(Room::new(bench)?);
    let Some(mut first) = room.application(bench, USERS[0])? else {
        return Ok(UNSEEN.to_owned());
    };
    let mut other = room.application(bench, USERS[1])?.ok_or(UNSEEN)?;
    let mut attached = try_here!(room.attach(bench, &["--user", USERS[0]]));
    first.launch(5)?;
    other.launch(4)?;
    // One that comes later.
    let mut second = room.application(bench, USERS[0])?.ok_or(UNSEEN)?;
    attached.says("attached to process")?;
    second.launch(7)?;
    let agents = [&first, &other, &second].map(has_agent);
    same("agents", agents, [Ok(true), Ok(false), Ok(true)])?;
    let report = interrupt(attached)?;
    // The one that came later launched three times as it began, some of them maybe after it was
    // attached to.
    let counted = launches(&report)?;
    same("of the first", counted.first(), Some(&5))?;
    let of_second = &counted[1..];
    if !matches!(of_second, [7..=10]) {
        return Err(format!("of the second: {of_second:?}, expected 7 to 10"));
    }
    for application in [&mut first, &mut other, &mut second] {
        application.launch(2)?;
    }
    for application in [first, other, second] {
        application.end()?;
    }
    Ok("two of a user, one of them later, and not another's".to_owned())
}

fn all(bench: &Bench) -> Told {
    let room = try_here!(Room::new(bench)?);
    let Some(mut first) = room.application(bench, USERS[0])? else {
        return Ok(UNSEEN.to_owned());
    };
    let mut second = room.application(bench, USERS[1])?.ok_or(UNSEEN)?;
    let mut attached = try_here!(room.attach(bench, &["--all"]));
    attached.says("attached to process")?;
    first.launch(3)?;
    second.launch(6)?;
    let report = interrupt(attached)?;
    same("launches", launches(&report)?, vec![3, 6])?;
    for application in [&mut first, &mut second] {
        application.launch(2)?;
    }
    first.end()?;
    second.end()?;
    Ok("two users' at once".to_owned())
}

/// One that may not make a system call from now on.
fn filtered(bench: &Bench, call: &str) -> Result<Application, String> {
    let mut command = Command::new(bench.app("live"));
    // The soft GPU would begin threads for a launch.
    command.env("WARPBPF_SOFT_THREADS", "1");
    let mut application = Application::by(bench, command)?;
    same(
        "a filter",
        application.ask(&format!("!{call}"))?,
        "forbidden".to_owned(),
    )?;
    Ok(application)
}

fn harmless(bench: &Bench) -> Told {
    let mut application = filtered(bench, "reboot")?;
    let attached = try_here!(Attached::to(bench, &["-p", &application.pid()], "scopes"));
    application.launch(5)?;
    same("launches", launches(&attached.interrupt()?)?, vec![5])?;
    application.launch(2)?;
    application.end()?;
    Ok("attached to, and left".to_owned())
}

/// Each is refused by the name of what is forbidden, and the application goes on with the driver's
/// own code.
fn forbidden(bench: &Bench) -> Told {
    let mut told = Vec::new();
    for (call, named) in [("socketpair", "socketpair"), ("clone3", "pthread_create")] {
        let mut application = filtered(bench, call)?;
        let before = application.driver_code()?;
        let pid = application.pid();
        let refused = match Attached::to(bench, &["-p", &pid], "scopes") {
            Ok(_) => return Err(format!("attached without `{call}`")),
            Err(refused) => refused,
        };
        if refused.starts_with("skipped: ") {
            return Ok(refused);
        }
        says(
            &refused,
            &format!(
                "process {pid} may not call `{named}` (it has a seccomp filter, which may forbid it): Operation not permitted"
            ),
        )?;
        same(
            "the driver's code is as before",
            application.driver_code()? == before,
            true,
        )?;
        application.launch(4)?;
        application.end()?;
        told.push(named);
    }
    Ok(format!("refused for {}", told.join(", ")))
}

/// What is captured when a tool goes is waited for, and not spoilt; the graph works afterwards,
/// with its programs.
fn captures(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    let launched = application.launches;
    let attached = try_here!(Attached::start(bench, &application, "scopes"));
    until_counted(bench, &mut application, "counts")?;
    application.launch(3)?;
    let made = application.launches - launched;
    same("a capture", application.ask("(")?.as_str(), "capturing")?;
    attached.signal(Signal::Interrupt)?;
    // It would have been spoilt by now.
    std::thread::sleep(Duration::from_millis(500));
    same("its end", application.ask(")")?.as_str(), "captured")?;
    let report = attached.report()?;
    let complete = report["processes"][0]["complete"].as_bool();
    same("complete", complete, Some(true))?;
    same("launches", launches(&report)?, vec![made])?;
    let notes = report["notes"].to_string();
    if notes.contains("waited for") {
        return Err(format!("kernels were not waited for: {notes}"));
    }
    application.launch_as("g", 4)?;
    application.launch(2)?;
    application.end()?;
    Ok(format!("{made} launches, and 4 of the graph"))
}

/// A capture that began before the tool came is seen when something is launched into it: that is no
/// launch, and its programs stay where they are.
fn capturing(bench: &Bench) -> Told {
    let mut application = Application::plain(bench)?;
    application.launch(1)?;
    same("a capture", application.ask("[")?.as_str(), "capturing")?;
    let object = Object::open(bench.object("scopes")).map_err(failed)?;
    let tool = Tool::attach(object, Options::default()).map_err(failed)?;
    tool.serve().map_err(failed)?;
    let pid = application.pid().parse().map_err(|_| "no number")?;
    if let Err(error) = tool.attach_to(pid) {
        let text = error.to_string();
        return skipped(&text).ok_or(text);
    }
    let step = || {
        let process = tool.processes().into_iter().next();
        let mut kernels = process.iter().flat_map(|process| process.kernels());
        kernels.find(|kernel| kernel.kernel.demangled == "step")
    };
    // The context is seen to live by what is launched there, and the first of that is captured as
    // it is.
    let (end, mut nodes) = (Instant::now() + PATIENCE, 1);
    while step().is_none_or(|kernel| kernel.kernel.registers_after.is_none()) {
        if Instant::now() > end {
            return Err("`step` gets no programs".into());
        }
        application.ask("|")?;
        nodes += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    same("its end", application.ask("]")?.as_str(), "captured")?;
    let seen = step().map(|kernel| (kernel.launches, kernel.uninstrumented));
    same("launches while it is captured", seen, Some((0, 0)))?;
    // Each launches all nodes.
    let launch = |application: &mut Application, count: u64| {
        application.launches += (nodes - 1) * count;
        application.launch_as("g", count)
    };
    launch(&mut application, 4)?;
    let process = tool.processes().into_iter().next().ok_or("no process")?;
    process.snapshot().map_err(failed)?;
    process.detach().map_err(failed)?;
    tool.wait_last_words(PATIENCE);
    let step = step().ok_or("no `step`")?;
    same("launches", step.launches + step.uninstrumented, 4 * nodes)?;
    if step.launches < 4 {
        return Err(format!("{} launches with programs", step.launches));
    }
    // It has its programs for ever.
    launch(&mut application, 3)?;
    application.launch(2)?;
    application.end()?;
    Ok(format!(
        "{} launches of its nodes with programs, {} without",
        step.launches, step.uninstrumented
    ))
}

/// A key that is shown as a kernel's name is found by it, as text and as JSON.
fn keys_as_shown(bench: &Bench, pid: &str) -> Result<(), String> {
    let lookup = |key: &str| {
        let mut command = bench.warpbpf("maps");
        command.args(["--pid", pid, "--json", "lookup", "kernels", key]);
        let output = command.output().map_err(|e| e.to_string())?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok::<_, String>((value, output.status.code(), error))
    };
    let (value, status, error) = lookup("step")?;
    same("status", (status, error.as_str()), (Some(0), ""))?;
    same("launches", value["launches"].as_u64() > Some(0), true)?;
    same("by JSON", lookup("\"step\"")?.0, value)?;
    let (value, status, _) = lookup("nobody")?;
    same("status", status, Some(125))?;
    says(
        &value.to_string(),
        "map `kernels`: `key`: `nobody` is not a number",
    )
}

/// Its main thread has ended, and its file has a name that is no text.
fn odd(bench: &Bench) -> Told {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let program = bench.scratch("").join(OsStr::from_bytes(b"m\xff\n\xfe"));
    std::fs::copy(bench.app("live"), &program).map_err(|e| e.to_string())?;
    let mut command = Command::new(&program);
    command.arg("ends");
    let mut application = Application::by(bench, command)?;
    let before = application.launches;
    let attached = match Attached::start(bench, &application, "launchcount") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        // Before Linux 6.9 that is all.
        Err(reason) if reason.contains("Linux 6.9 or later is needed") => {
            return Ok("refused, with what is needed".into());
        }
        attached => attached?,
    };
    until_counted(bench, &mut application, "kernels")?;
    keys_as_shown(bench, &application.pid())?;
    application.launch(5)?;
    let report = attached.interrupt()?;
    let step = crate::attach::kernel(&report, "step")?;
    let (launches, uninstrumented) = (number(&step["launches"]), number(&step["uninstrumented"]));
    same(
        "launches, with and without programs",
        launches + uninstrumented,
        application.launches - before,
    )?;
    same("with programs", launches > 5, true)?;
    application.end()?;
    Ok(format!("{launches} launches with programs"))
}
