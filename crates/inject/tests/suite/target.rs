//! Programs in C that the tests look into, and what must be as before in them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use warpbpf_inject::{Done, InjectError};

/// Where the tests' C programs are built, one folder for each test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn compile(to: &Path, source: &str, flags: &[&str]) {
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

pub(crate) struct Target {
    pub(crate) child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Target {
    pub(crate) fn start(folder: &Path) -> Target {
        Target::run(Target::many(folder))
    }

    /// A program with threads of many kinds.
    pub(crate) fn many(folder: &Path) -> Command {
        let program = folder.join("target");
        compile(&program, "target.c", &["-rdynamic"]);
        Command::new(program)
    }

    pub(crate) fn run(mut command: Command) -> Target {
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

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.line()
    }

    /// How often each answer is given from now on; some answer is.
    /// Of a thread that had its answer before a change and tells of it only now, as on a machine
    /// with much to do, a later moment knows nothing.
    pub(crate) fn given(&mut self) -> (u64, u64) {
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

    pub(crate) fn end(mut self) {
        writeln!(self.orders, "q").unwrap();
        assert_eq!(self.line(), "errors 0");
        assert!(self.child.wait().unwrap().success());
    }

    /// What must be as before: threads, descriptors, mapped memory without stacks and heaps, which
    /// are its own affair.
    pub(crate) fn look(&self) -> (usize, usize, Vec<String>) {
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
pub(crate) fn permitted(result: &Result<Done, InjectError>) -> bool {
    if let Err(InjectError::NotPermitted { why, .. }) = result {
        eprintln!("skipped: ptrace is not permitted ({why})");
        return false;
    }
    true
}
