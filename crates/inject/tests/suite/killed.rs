//! A tool that is killed behind any of its calls: whichever thread it has borrowed goes on as if
//! nothing had been.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use warpbpf_inject::{detach, load};

use crate::target::{Target, compile, folder, permitted};

/// How often a tool is killed in a test that is not long.
const KILLED: usize = 8;

/// A tool in a process of its own: this program again, as the test below.
struct Tool<'t> {
    folder: &'t Path,
    agent: PathBuf,
    pid: u32,
}

/// What [`Tool`] runs. By itself it finds no order, and does nothing.
#[test]
fn as_a_tool() {
    let Ok(order) = std::env::var("INJECT_ORDER") else {
        return;
    };
    let mut words = order.splitn(3, ' ');
    let (what, pid) = (words.next().unwrap(), words.next().unwrap());
    let (pid, agent) = (pid.parse().unwrap(), Path::new(words.next().unwrap()));
    match what {
        "attach" => load(pid, agent).unwrap(),
        _ => detach(pid, &|| true).unwrap(),
    };
}

impl Tool<'_> {
    /// Kills it behind one of its calls, if it makes as many.
    fn run(&self, what: &str, kill_at: usize) -> ExitStatus {
        let agent = self.agent.display();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "killed::as_a_tool"])
            .env("INJECT_ORDER", format!("{what} {} {agent}", self.pid))
            .env("LD_PRELOAD", self.folder.join("killer.so"))
            .env("KILL_AT", kill_at.to_string())
            .env("KILL_COUNT", self.folder.join("count"))
            .stdout(Stdio::null());
        command.process_group(0).status().unwrap()
    }

    /// How many calls it makes.
    fn count(&self, what: &str) -> usize {
        assert!(self.run(what, 0).success(), "{what}");
        let count = std::fs::read_to_string(self.folder.join("count")).unwrap();
        count.trim().parse().unwrap()
    }

    /// Kills it `times` times while it attaches, and while it detaches; `lives` looks at the
    /// process each time.
    fn killed(&self, times: usize, mut lives: impl FnMut(&str)) {
        for what in ["attach", "detach"] {
            let calls = self.count(what);
            assert!(calls > 30, "{what}: {calls} calls");
            let step = (calls / times).max(1);
            for at in (1..=calls).rev().step_by(step) {
                let status = self.run(what, at);
                // Threads come and go, so that it may be done before.
                let signal = status.signal();
                assert!(
                    signal == Some(libc::SIGKILL) || status.success(),
                    "{status}"
                );
                lives(&format!("{what}, killed behind call {at} of {calls}"));
            }
        }
    }
}

/// The agent, and what kills.
fn prepare(name: &str) -> PathBuf {
    let folder = folder(name);
    compile(
        &folder.join("libwarpbpf_agent.so"),
        "agent.c",
        &["-shared", "-fPIC"],
    );
    compile(
        &folder.join("killer.so"),
        "../../../../tests/apps/killer.c",
        &["-shared", "-fPIC", "-ldl"],
    );
    folder
}

/// A process with one thread that does this: false where none may be traced.
fn alone(work: &str, times: usize) -> bool {
    let folder = prepare(&format!("killed-{work}"));
    let program = folder.join("alone");
    compile(&program, "alone.c", &["-rdynamic", "-lm"]);
    let mut command = Command::new(program);
    command.arg(work);
    let mut target = Target::run(command);
    let pid = target.pid();
    let tool = Tool {
        folder: &folder,
        agent: folder.join("libwarpbpf_agent.so"),
        pid,
    };
    if !permitted(&load(pid, &tool.agent)) {
        return false;
    }
    tool.killed(times, |when| {
        let ended = target.child.try_wait().unwrap();
        assert!(ended.is_none(), "{work}: {when}: {ended:?}");
    });
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGUSR1) }, 0);
    assert_eq!(target.line(), "errors 0", "{work}");
    assert!(target.child.wait().unwrap().success());
    true
}

/// Threads of many kinds: the one is borrowed that would lose nothing.
fn many(times: usize) {
    let folder = prepare("killed-many");
    let mut command = Target::many(&folder);
    command.env("TOOLS_ARE_KILLED", "1");
    let mut target = Target::run(command);
    let tool = Tool {
        folder: &folder,
        agent: folder.join("libwarpbpf_agent.so"),
        pid: target.pid(),
    };
    if !permitted(&load(target.pid(), &tool.agent)) {
        return;
    }
    tool.killed(times, |when| {
        let (one, two) = target.given();
        assert!(one + two > 0, "{when}");
    });
    target.end();
}

const WORKS: [&str; 5] = ["sleeps", "polls", "waits", "suspends", "computes"];

#[test]
fn a_tool_killed_behind_any_call_leaves_a_process_that_goes_on() {
    many(KILLED);
}

#[test]
fn a_lone_thread_finds_home_from_any_wait() {
    for work in WORKS {
        if !alone(work, KILLED / 2) {
            return;
        }
    }
}

#[test]
#[ignore = "cargo xtask test --deep"]
fn a_tool_killed_behind_every_call() {
    many(usize::MAX);
    for work in WORKS {
        if !alone(work, usize::MAX) {
            return;
        }
    }
}
