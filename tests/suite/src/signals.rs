//! Signals to the command are the application's, each once, whoever else got them; and the
//! application inherits what the command did.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{Owned, Signal, signal, signal_group};
use crate::run::{Bench, Case, Told, same, says};
use crate::tree::children;

/// How long something may take that others do.
const PATIENCE: Duration = Duration::from_secs(30);

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("signals: to the command alone", alone),
        case("signals: to the whole group", to_the_group),
        case("signals: as a container's first process", first_process),
        case("signals: typed at a terminal, which goes away", terminal),
        case("signals: that end the application", ending),
        case("signals: under loader", under_loader),
        case("signals: that end an application or its tool", last_words),
        case("signals: Ctrl-Z and `fg` of a shell", job),
        case("signals: stop and go on, to one or to all", stops),
        case("inherited: mask, ignored signals, limits", inherited),
    ]
}

/// Counts signals, sends `$1` what `kill` calls so (`0` is the group), waits, uses CUDA and says
/// the counts.
const COUNTS: &str = r#"
for s in HUP INT QUIT USR1 USR2 TERM; do eval "n$s=0"; trap "n$s=\$((n$s+1))" $s; done
to=$1; shift
[ "$to" = parent ] && to=$PPID
if [ "$to" != none ]; then for s in HUP INT QUIT USR1 USR2 TERM; do kill -$s $to; done; fi
i=0; while [ $i -lt 12 ]; do sleep 0.05; i=$((i+1)); done
"$@"
echo "HUP $nHUP INT $nINT QUIT $nQUIT USR1 $nUSR1 USR2 $nUSR2 TERM $nTERM"
exit 7
"#;
const ONCE: &str = "HUP 1 INT 1 QUIT 1 USR1 1 USR2 1 TERM 1";
/// One launch of `vectoradd` with 1,000 elements.
const THREADS: u64 = 1024;

fn counting(bench: &Bench, command: &mut Command, to: &str) {
    // What is ignored when it begins a shell cannot trap, and who runs this in the background
    // ignores some.
    command.args(["--", "env", "--default-signal", "sh", "-c"]);
    command.args([COUNTS, "counts", to]);
    command.arg(bench.app("vectoradd")).args(["1000", "1"]);
}

fn run(bench: &Bench, report: &Path) -> Command {
    let mut command = bench.warpbpf("run");
    command.args(["--json", "-o"]).arg(report);
    command.arg(bench.object("threadhist"));
    command
}

/// The application has got each signal once, its status is that of the command, and the report is
/// whole.
fn check(report: &Path, output: &Output) -> Result<(), String> {
    says(&String::from_utf8_lossy(&output.stdout), ONCE)?;
    same("status", output.status.code(), Some(7))?;
    whole(report)
}

fn whole(report: &Path) -> Result<(), String> {
    let bytes = std::fs::read(report).map_err(|e| format!("{}: {e}", report.display()))?;
    let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let process = &report["processes"][0];
    same("complete", &process["complete"], &Value::Bool(true))?;
    same(
        "threads",
        process["maps"][0]["threads"]["count"].as_u64(),
        Some(THREADS),
    )
}

fn alone(bench: &Bench) -> Told {
    let report = bench.scratch("report.json");
    let mut command = run(bench, &report);
    counting(bench, &mut command, "parent");
    let output = command.output().map_err(|e| e.to_string())?;
    check(&report, &output)?;
    Ok("six signals, each passed on once".into())
}

fn to_the_group(bench: &Bench) -> Told {
    let report = bench.scratch("report.json");
    let mut command = run(bench, &report);
    counting(bench, &mut command, "0");
    let output = command.process_group(0).output();
    check(&report, &output.map_err(|e| e.to_string())?)?;
    Ok("six signals, none of them twice".into())
}

fn first_process(bench: &Bench) -> Told {
    let own = |command: &mut Command| {
        command.args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ]);
    };
    let mut tried = Command::new("unshare");
    own(&mut tried);
    if !tried.arg("true").output().is_ok_and(|o| o.status.success()) {
        return Ok("skipped: no namespaces of processes can be made here".into());
    }
    let report = bench.scratch("report.json");
    let inside = run(bench, &report);
    let mut command = Command::new("unshare");
    own(&mut command);
    command.arg(inside.get_program()).args(inside.get_args());
    counting(bench, &mut command, "parent");
    let output = command.output().map_err(|e| e.to_string())?;
    check(&report, &output)?;
    // So does one that ends it.
    let mut command = Command::new("unshare");
    own(&mut command);
    let ended = bench.warpbpf("kernels");
    command.arg(ended.get_program()).args(ended.get_args());
    command.args(["--", "sh", "-c", "kill -TERM $PPID; exec sleep 60"]);
    let output = command.output().map_err(|e| e.to_string())?;
    same("status", output.status.code(), Some(128 + 15))?;
    Ok("passed on by process 1".into())
}

/// A terminal whose first process is the command. What it types comes to the group; its end comes
/// to the command alone.
const TERMINAL: &str = r#"
import os, pty, sys, time
out, command = sys.argv[1], sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    file = os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(file, 1); os.dup2(file, 2)
    os.execv(command[0], command)
deadline = time.time() + 60
open(out, "ab").close()
while b"ready" not in open(out, "rb").read() and time.time() < deadline: time.sleep(0.02)
os.write(master, b"\x03\x1c")
time.sleep(0.3)
os.close(master)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

fn terminal(bench: &Bench) -> Told {
    if Command::new("python3").arg("--version").output().is_err() {
        return Ok("skipped: no python3".into());
    }
    let (report, said) = (bench.scratch("report.json"), bench.scratch("said"));
    let run = run(bench, &report);
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(&said);
    command.arg(run.get_program()).args(run.get_args());
    let script = COUNTS
        .replace("i=0;", "echo ready; i=0;")
        .replace("-lt 12", "-lt 20");
    command.arg("--").args([
        "env",
        "--default-signal",
        "sh",
        "-c",
        &script,
        "counts",
        "none",
    ]);
    command.arg(bench.app("vectoradd")).args(["1000", "1"]);
    let output = command.output().map_err(|e| e.to_string())?;
    let said = std::fs::read_to_string(&said).map_err(|e| e.to_string())?;
    says(&said, "HUP 1 INT 1 QUIT 1 USR1 0 USR2 0 TERM 0")
        .map_err(|e| format!("{e} {}", String::from_utf8_lossy(&output.stderr)))?;
    same("status", output.status.code(), Some(7))?;
    whole(&report)?;
    Ok("Ctrl-C and Ctrl-\\ once, and the terminal's end".into())
}

/// A shell with one job, in whose terminal Ctrl-Z is typed: it says how that job and its children
/// stand, and lets it go on.
const SHELL: &str = r#"
import os, pty, signal, sys, time
out, command = sys.argv[1], sys.argv[2:]
def state(pid): return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
def children(pid): return open(f"/proc/{pid}/task/{pid}/children").read().split()
shell, master = pty.fork()
if shell == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.dup2(file, 1); os.dup2(file, 2)
        os.execv(command[0], command)
    for turn in range(2):
        _, status = os.waitpid(job, os.WUNTRACED)
        stands = os.WIFSTOPPED(status) and [state(child) for child in children(job)]
        os.write(file, f"{turn} {stands}\n".encode())
        if not os.WIFSTOPPED(status): break
        os.tcsetpgrp(0, os.getpgrp())
        time.sleep(0.1)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
        if turn: _, status = os.waitpid(job, 0)
    os._exit(os.waitstatus_to_exitcode(status))
deadline = time.time() + 60
for word, key in (b"ready 1", b"\x1a"), (b"0 [", b"\n"), (b"ready 2", b"\x1a"), (b"1 [", b"\n"):
    while time.time() < deadline and not (os.path.exists(out) and word in open(out, "rb").read()): time.sleep(0.02)
    os.write(master, key)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]))
"#;

/// Says that it is ready and waits for a line, twice, uses CUDA, and ends with its own status. It
/// is stopped while it waits: a shell that starts a process just then waits in `vfork` for a
/// stopped child, and does not stop itself.
const STOPPED: &str = "echo ready 1; read line; echo ready 2; read line; \"$@\"; exit 7";

fn job(bench: &Bench) -> Told {
    if Command::new("python3").arg("--version").output().is_err() {
        return Ok("skipped: no python3".into());
    }
    let (report, said) = (bench.scratch("report.json"), bench.scratch("said"));
    let run = run(bench, &report);
    let mut command = Command::new("python3");
    command.args(["-c", SHELL]).arg(&said);
    command.arg(run.get_program()).args(run.get_args());
    command.args(["--", "sh", "-c", STOPPED, "sh"]);
    command.arg(bench.app("vectoradd")).args(["1000", "1"]);
    let output = command.output().map_err(|e| e.to_string())?;
    let said = std::fs::read_to_string(&said).map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for turn in ["0 ['T']", "1 ['T']"] {
        says(&said, turn).map_err(|e| format!("{e} {errors}"))?;
    }
    same(&said, output.status.code(), Some(7))?;
    whole(&report)?;
    Ok("twice: both stand, both go on".into())
}

/// How a process stands, by the letter that Linux has for it.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > end {
            return Err(format!("{what}: it is not so"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// SIGTSTP and SIGCONT to the command alone, and to its whole group. One that takes no notice of
/// the first goes on.
fn stops(bench: &Bench) -> Told {
    let tool = crate::loader::tools(bench, "counter").into_iter().next();
    let mut told = "run".to_owned();
    for loader in [false, true] {
        for (to_all, trap) in [(false, ""), (true, ""), (false, "trap '' TSTP;")] {
            let report = bench.scratch("report.json");
            let mut command = match (loader, &tool) {
                (false, _) => run(bench, &report),
                (true, None) => continue,
                (true, Some(tool)) => {
                    told = "run and loader".into();
                    let mut command = bench.warpbpf("loader");
                    command.arg(tool);
                    command
                }
            };
            let go = bench.scratch("go");
            let _ = std::fs::remove_file(&go);
            let made = Command::new("mkfifo").arg(&go).status();
            same("mkfifo", made.is_ok_and(|status| status.success()), true)?;
            // It starts no process while it waits: a shell whose `vfork` is stopped between is in
            // no state of those that stand.
            let script = format!("{trap} echo ready; read line <\"$0\"; \"$@\"; exit 7");
            command.args(["--", "env", "--default-signal", "sh", "-c", &script]);
            command
                .arg(&go)
                .arg(bench.app("vectoradd"))
                .args(["1000", "1"]);
            let child = Owned::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
            let mut child = child.map_err(|e| e.to_string())?;
            let output = child.stdout.take().ok_or("no output")?;
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            if !lines.any(|line| line == "ready") {
                return Err("it does not say that it is ready".into());
            }
            let send = |what| match to_all {
                false => signal(child.id(), what),
                true => signal_group(child.id(), what),
            };
            let all = || [vec![child.id()], children(child.id())].concat();
            let stand = || all().into_iter().all(|pid| state(pid) == Some('T'));
            send(Signal::Terminal)?;
            if trap.is_empty() {
                until("all stand", stand)?;
                send(Signal::GoOn)?;
                until("all go on", || {
                    !all().into_iter().any(|pid| state(pid) == Some('T'))
                })?;
            } else {
                // Longer than a signal waits.
                std::thread::sleep(Duration::from_millis(200));
                same("the command stands", state(child.id()) == Some('T'), false)?;
                send(Signal::GoOn)?;
            }
            std::fs::write(&go, "go\n").map_err(|e| e.to_string())?;
            lines.for_each(drop);
            let status = child.wait().map_err(|e| e.to_string())?;
            same(trap, status.code(), Some(7))?;
            if !loader {
                whole(&report)?;
            }
        }
    }
    Ok(told)
}

fn ending(bench: &Bench) -> Told {
    let report = bench.scratch("report.json");
    for (signal, number) in [("TERM", 15), ("USR2", 12), ("KILL", 9)] {
        let to = if signal == "KILL" { "$$" } else { "$PPID" };
        let mut command = run(bench, &report);
        let script = format!("kill -{signal} {to}; exec sleep 60");
        let output = command.args(["--", "sh", "-c", &script]).output();
        let output = output.map_err(|e| e.to_string())?;
        same(signal, output.status.code(), Some(128 + number))?;
        let bytes = std::fs::read(&report).map_err(|e| e.to_string())?;
        let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        same(
            "status",
            report["status"].as_i64(),
            Some(128 + i64::from(number)),
        )?;
        let notes = report["notes"].to_string();
        says(
            &notes,
            &format!("the application was killed by signal {number}"),
        )?;
    }
    Ok("128 and the signal".into())
}

fn under_loader(bench: &Bench) -> Told {
    let Some(tool) = crate::loader::tools(bench, "counter").into_iter().next() else {
        return Ok(crate::loader::SKIPPED.into());
    };
    for to in ["parent", "0"] {
        let mut command = bench.warpbpf("loader");
        command.arg(&tool);
        counting(bench, &mut command, to);
        let output = command.process_group(0).output();
        let output = output.map_err(|e| e.to_string())?;
        says(&String::from_utf8_lossy(&output.stdout), ONCE)
            .map_err(|e| format!("{to}: {e} {}", String::from_utf8_lossy(&output.stderr)))?;
        same("status", output.status.code(), Some(7))?;
    }
    // Without an application they are the tool's.
    let mut command = bench.warpbpf("loader");
    command.args(["sh", "-c", "kill -USR1 $PPID; exec sleep 60"]);
    let output = command.output().map_err(|e| e.to_string())?;
    same("the tool's status", output.status.code(), Some(128 + 10))?;
    Ok("the application's, and the tool's where it is alone".into())
}

/// Launches kernels that nobody wants, and has a signal end itself, or the tool beside it before it
/// ends.
const UNWANTED: &str = r#"
mkfifo "$FIFO"
whom=$1 parent=$PPID self=$$; shift
(
  exec 3>"$FIFO"; echo 3 >&3
  until [ -s "$FIFO.out" ]; do sleep 0.05; done; sleep 0.6
  case $whom in
  app) kill -KILL $self;;
  tool) for pid in $(cat /proc/$parent/task/$parent/children); do
      [ "$(cat /proc/$pid/comm)" = counter ] && kill -KILL $pid; done;;
  esac
) &
exec "$@" <"$FIFO" >"$FIFO.out"
"#;

fn last_words(bench: &Bench) -> Told {
    let Some(tool) = crate::loader::tools(bench, "counter").into_iter().next() else {
        return Ok(crate::loader::SKIPPED.into());
    };
    let unmatched = "warpbpf: no kernel has `gpu/entry/_Z9vectorAddPKfS0_Pfi`, `gpu/exit/_Z9vectorAddPKfS0_Pfi`; kernels seen: ";
    for (whom, status, said) in [
        ("app", 128 + 9, unmatched),
        ("tool", 128 + 9, "warpbpf: the tool was ended by signal 9"),
        ("nobody", 0, unmatched),
    ] {
        let mut command = bench.warpbpf("loader");
        command
            .arg(&tool)
            .args(["--", "sh", "-c", UNWANTED, "sh", whom]);
        command
            .arg(bench.app("live"))
            .env("FIFO", bench.scratch(whom));
        let output = command.output().map_err(|e| e.to_string())?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        same(whom, output.status.code(), Some(status))?;
        says(&errors, said)?;
        same(whom, errors.matches(unmatched).count(), 1).map_err(|e| format!("{e}: {errors}"))?;
    }
    Ok("what no map has is said all the same, once".into())
}

fn inherited(bench: &Bench) -> Told {
    let odd = "import os,signal,sys
for s in (signal.SIGUSR2, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN if sys.argv[1] == 'odd' else signal.SIG_DFL)
if sys.argv[1] == 'odd': signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGRTMIN + 2])
os.execvp(sys.argv[2], sys.argv[2:])";
    if Command::new("python3").arg("--version").output().is_err() {
        return Ok("skipped: no python3".into());
    }
    let show = "grep -E 'SigBlk|SigIgn' /proc/self/status; ulimit -n; ulimit -Hn; umask";
    for how in ["odd", "plain"] {
        let said = |inner: &Command| {
            let mut command = Command::new("python3");
            command.args(["-c", odd, how, "bash", "-c"]);
            command.args(["ulimit -Sn 500; umask 027; exec \"$@\"", "bash"]);
            command.arg(inner.get_program()).args(inner.get_args());
            command.args(["bash", "-c", show]);
            let output = command.output().map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The C library's own, 32 and 33, are ignored in what `posix_spawn` starts.
            let line = |line: &str| match line.strip_prefix("SigIgn:\t") {
                Some(mask) => {
                    let mask = u64::from_str_radix(mask, 16).unwrap_or(u64::MAX);
                    format!("SigIgn {:x}", mask & !(3 << 31))
                }
                None => line.to_owned(),
            };
            Ok::<_, String>(text.lines().map(line).collect::<Vec<_>>())
        };
        let expected = said(&Command::new("env"))?;
        same("lines", expected.len(), 5)?;
        let mut command = run(bench, &bench.scratch("report.json"));
        command.arg("--");
        same(how, said(&command)?, expected)?;
    }
    Ok("the same with and without the command".into())
}
