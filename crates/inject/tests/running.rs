//! A process with threads of many kinds is attached to, refused by its agent, and detached from: it does not notice, and
//! nothing stays behind that was not wanted.

#![expect(
    clippy::print_stderr,
    reason = "where processes may not be traced, that is said"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use warpbpf_inject::{Done, InjectError, Subject, detach, load};

/// Where the tests' C programs are built, one folder for each test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn compile(to: &Path, source: &str, flags: &[&str]) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-pthread", "-o"])
        .arg(to)
        .arg(from)
        .args(flags)
        .status();
    assert!(done.unwrap().success(), "{source}");
}

struct Target {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Target {
    fn start(folder: &Path) -> Target {
        let program = folder.join("target");
        compile(&program, "target.c", &["-rdynamic"]);
        Target::run(Command::new(program))
    }

    fn run(mut command: Command) -> Target {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut target = Target {
            child,
            orders,
            answers,
        };
        assert!(target.line().starts_with("ready "));
        target
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.line()
    }

    /// How often each answer is given from now on; some answer is.
    /// Of a thread that had its answer before a change and tells of it only now, as on a machine
    /// with much to do, a later moment knows nothing.
    fn given(&mut self) -> (u64, u64) {
        self.given_since();
        let mut given = self.given_since();
        for _ in 0..50 {
            if given.0 == 0 || given.1 == 0 {
                break;
            }
            given = self.given_since();
        }
        given
    }

    fn given_since(&mut self) -> (u64, u64) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let line = self.order("a");
            let (one, two) = line.split_once(' ').unwrap();
            let given = (one.parse().unwrap(), two.parse().unwrap());
            if given != (0, 0) {
                return given;
            }
            assert!(Instant::now() < end, "nobody answers");
        }
    }

    fn end(mut self) {
        writeln!(self.orders, "q").unwrap();
        assert_eq!(self.line(), "errors 0");
        assert!(self.child.wait().unwrap().success());
    }

    /// What must be as before: threads, descriptors, mapped memory without stacks and heaps, which are its own affair.
    fn look(&self) -> (usize, usize, Vec<String>) {
        let count = |what: &str| {
            let entries = std::fs::read_dir(format!("/proc/{}/{what}", self.pid()));
            entries.unwrap().count()
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let files = maps.lines().filter_map(|line| {
            let name = line.splitn(6, ' ').nth(5)?.trim_start();
            let rights = line.split(' ').nth(1)?;
            // Files, and whatever is code.
            (name.starts_with('/') || rights.contains('x')).then(|| line.to_owned())
        });
        (count("task"), count("fd"), files.collect())
    }
}

/// Whether processes may be traced here, as a machine or a container may forbid.
fn permitted(result: &Result<Done, InjectError>) -> bool {
    if let Err(InjectError::NotPermitted { why, .. }) = result {
        eprintln!("skipped: ptrace is not permitted ({why})");
        return false;
    }
    true
}

#[test]
fn a_running_process_is_attached_to_and_does_not_notice() {
    let folder = folder("attached");
    // It has the agent's name, so that it is found again.
    let agent = folder.join("libwarpbpf_agent.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let before = target.look();
    let refused = detach(target.pid());
    if !permitted(&refused) {
        return;
    }
    let message = refused.unwrap_err().to_string();
    assert_eq!(
        message,
        format!("there is no agent in process {}", target.pid())
    );
    assert_eq!(target.look(), before);
    assert_eq!(target.given().1, 0);
    for round in 0..20 {
        let done = load(target.pid(), &agent).unwrap();
        assert_eq!(
            done.said,
            format!("call {} by a quiet process", round * 2 + 1)
        );
        assert_eq!(done.patches, 1);
        let mut hello = String::new();
        let mut socket = std::os::unix::net::UnixStream::from(done.socket.unwrap());
        socket.read_to_string(&mut hello).unwrap();
        assert_eq!(hello, "hello", "and nobody else has the other end");
        assert!(done.pause <= done.took);
        let (one, two) = target.given();
        assert!(one == 0 && two > 0, "{one} {two}");
        let done = detach(target.pid()).unwrap();
        assert_eq!((done.patches, done.socket.is_none()), (1, true));
        assert_eq!(
            done.said,
            format!("call {} by a quiet process", round * 2 + 2)
        );
        let (one, two) = target.given();
        assert!(two == 0 && one > 0, "{one} {two}");
    }
    let after = target.look();
    assert_eq!(
        (after.0, after.1),
        (before.0, before.1),
        "threads and descriptors"
    );
    let ours = |line: &&String| line.contains("libwarpbpf_agent.so");
    let rest: Vec<String> = after.2.iter().filter(|l| !ours(l)).cloned().collect();
    assert_eq!(rest, before.2, "no code but the agent's came");
    assert!(after.2.iter().any(|line| ours(&line)), "which stays");
    let subject = Subject::look(target.pid()).unwrap();
    assert!(subject.agent().is_some() && !subject.has_driver());
    target.end();
}

#[test]
fn whatever_fails_leaves_the_process_as_it_was() {
    let folder = folder("refused");
    // Not the agent's name: so it is loaded anew each time.
    let agent = folder.join("other.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let pid = target.pid();
    let before = target.look();
    let first = load(pid, Path::new("/no/such/agent.so"));
    if !permitted(&first) {
        return;
    }
    let message = first.unwrap_err().to_string();
    assert!(message.starts_with("the agent's file `/no/such/agent.so` cannot be read"));
    assert_eq!(target.look(), before);
    // A file that is no library, and a library that is no agent.
    let text = folder.join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    let message = load(pid, &text).unwrap_err().to_string();
    let said = format!("the agent cannot be loaded into process {pid}: ");
    assert!(
        message.starts_with(&said) && message.contains("text.so"),
        "{message}"
    );
    assert_eq!(target.look(), before);
    target.order("1");
    let message = load(pid, &agent).unwrap_err().to_string();
    assert_eq!(
        message,
        format!("the agent in process {pid} refuses: not today")
    );
    // The library stays: a loader cannot know who else has come to use it.
    let loaded = target.look();
    assert_eq!((loaded.0, loaded.1), (before.0, before.1));
    target.order("2");
    let error = load(pid, &agent).unwrap_err();
    assert!(matches!(error, InjectError::Changed { .. }), "{error}");
    assert_eq!(target.look(), loaded);
    assert_eq!(target.given().1, 0, "its code is as it was");
    target.end();
}

#[test]
fn a_file_that_the_process_cannot_see_comes_as_memory() {
    let folder = folder("unseen");
    let agent = folder.join("seen.so");
    compile(&agent, "agent.c", &["-shared", "-fPIC"]);
    let mut target = Target::start(&folder);
    let first = warpbpf_inject::load_as_memory(target.pid(), &agent);
    if !permitted(&first) {
        return;
    }
    assert_eq!(first.unwrap().said, "call 1 by a quiet process");
    let subject = Subject::look(target.pid()).unwrap();
    assert!(subject.agent().is_some(), "it is found again");
    let fds = target.look().1;
    let done = detach(target.pid()).unwrap();
    assert_eq!(done.said, "call 2 by a quiet process");
    assert_eq!(target.look().1, fds);
    assert_eq!(target.given().1, 0);
    target.end();
}

#[test]
fn refusals_come_before_anything_is_touched() {
    let folder = folder("none");
    // Nothing is loaded into a program without a C library of its own to load it with.
    let program = folder.join("static");
    compile(&program, "target.c", &["-static"]);
    let target = Target::run(Command::new(&program));
    let refused = load(target.pid(), Path::new("/x.so"));
    if !permitted(&refused) {
        return;
    }
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!(
            "process {} has not loaded the C library (it is statically linked): start it under `warpbpf run`",
            target.pid()
        )
    );
    target.end();
    let target = Target::start(&folder);
    let error = warpbpf_inject::attach(target.pid(), Path::new("/x.so")).unwrap_err();
    assert!(matches!(error, InjectError::NoDriver { .. }), "{error}");
    target.end();
}

#[test]
fn a_process_that_is_traced_is_refused_by_its_tracers_name() {
    let folder = folder("traced");
    let target = Target::start(&folder);
    let pid = target.pid();
    // SAFETY: a child of ours is seized, and let go at the end of this thread.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid as i32, 0, 0) };
    if seized != 0 {
        eprintln!("skipped: ptrace is not permitted");
        return;
    }
    let began = Instant::now();
    let message = load(pid, Path::new("/x.so")).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "process {pid} is traced by process {} (a debugger or `strace`): detach that first",
            // SAFETY: it only answers.
            unsafe { libc::gettid() }
        )
    );
    assert!(began.elapsed() < Duration::from_secs(2));
    // SAFETY: as above; it must be stopped for that.
    unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid as i32, 0, 0);
        libc::waitpid(pid as i32, std::ptr::null_mut(), libc::__WALL);
        libc::ptrace(libc::PTRACE_DETACH, pid as i32, 0, 0);
    }
    target.end();
}
