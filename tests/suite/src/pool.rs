//! Runs cases several at once, each in a process of its own with folders of its own, and tells of
//! them in their order.
//!
//! A process, because what a case leaves behind or breaks must not reach the next one, and because
//! one that hangs can be ended with all that it started. Orphans become children of this process,
//! which knows by a variable whose they are.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::run::{Bench, Case};
use crate::tree;

/// Says in the environment of all that a case starts which case it is.
const MARK: &str = "WARPBPF_SUITE_CASE";
/// Between two looks at a case.
const TICK: Duration = Duration::from_millis(5);

/// How cases are run.
pub struct Way {
    /// `soft` or `gpu`.
    pub device: String,
    /// The bundle.
    pub folder: String,
    /// Cases at once.
    pub jobs: usize,
    /// What a case printed is shown though it passed.
    pub shows: bool,
}

/// What came of a case.
#[derive(Debug)]
pub struct Done {
    /// As the case says it; an error says what is wrong.
    pub told: Result<String, String>,
    /// What it wrote to standard output.
    pub output: String,
    /// What it and what it started wrote to standard error.
    pub errors: String,
    pub took: Duration,
}

/// SIGTERM or SIGINT came: no case is started any more.
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Lets SIGTERM and SIGINT end the cases that run, and keeps what is known by then.
pub fn handle_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler writes one atomic flag.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Runs all of them and calls `tell` for each in its order, as soon as those before it have been
/// told. Returns how many were not started, because a signal ended the run; those that had ended by
/// then have been told of.
pub fn run(way: &Way, cases: &[&Case], mut tell: impl FnMut(&Case, &Done) + Send) -> usize {
    let pool = Pool::new(way);
    let results: Mutex<(Vec<Option<Done>>, usize)> =
        Mutex::new((cases.iter().map(|_| None).collect(), 0));
    let tell = Mutex::new(&mut tell);
    let finish = |index: usize, done: Done| {
        let tell = &mut *lock(&tell);
        let (results, told) = &mut *lock(&results);
        results[index] = Some(done);
        while let Some(Some(done)) = results.get(*told) {
            tell(cases[*told], done);
            *told += 1;
        }
    };
    let soft = way.device == "soft";
    let beside = |alone: bool| {
        let numbers = 0..cases.len();
        let chosen: Vec<usize> = numbers
            .filter(|at| cases[*at].is_alone(soft) == alone)
            .collect();
        chosen
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pool.reap());
        // Also where a worker panics: the scope waits for who reaps.
        let _over = Over(&pool.is_over);
        for (chosen, jobs) in [(beside(false), way.jobs), (beside(true), 1)] {
            let next = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..jobs.min(chosen.len()) {
                    scope.spawn(|| {
                        while !STOPPED.load(Ordering::Relaxed)
                            && let Some(index) = chosen.get(next.fetch_add(1, Ordering::Relaxed))
                        {
                            finish(*index, pool.run(cases[*index], *index));
                        }
                    });
                }
            });
        }
    });
    let (results, told) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tell = tell.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (case, done) in cases.iter().zip(&results).skip(told) {
        if let Some(done) = done {
            tell(case, done);
        }
    }
    results.iter().filter(|done| done.is_none()).count()
}

/// Says that it is over when it is dropped.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a case's process does: the case, whose word goes into a file.
pub fn inside(bench: &Bench, case: &Case, told: &Path) -> bool {
    let done = (case.check)(bench);
    let text = match &done {
        Ok(text) => format!("ok {text}"),
        Err(reason) => format!("no {reason}"),
    };
    let written = std::fs::write(told, text);
    tree::end_descendants(std::process::id());
    done.is_ok() && written.is_ok()
}

struct Pool<'w> {
    way: &'w Way,
    /// Folder of this run. Sockets are in folders below it, and their names have an end.
    base: PathBuf,
    /// Processes of cases. Whatever else is a child of this process is an orphan.
    cases: Mutex<BTreeSet<u32>>,
    is_over: AtomicBool,
}

impl Pool<'_> {
    fn new(way: &Way) -> Pool<'_> {
        // SAFETY: a flag of this process: those whose parents end become its children.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let base = std::env::temp_dir().join(format!("warpbpf-suite-{}", std::process::id()));
        Pool {
            way,
            base,
            cases: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    fn run(&self, case: &Case, index: usize) -> Done {
        let start = Instant::now();
        let folder = self.base.join(format!("c{index:03}"));
        let result = self.process(case, &folder);
        let read = |name: &str| {
            let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let told = match (result, read("told").split_once(' ')) {
            (Err(reason), _) => Err(reason),
            (Ok(_), Some(("ok", text))) => Ok(text.to_owned()),
            (Ok(_), Some((_, reason))) => Err(reason.to_owned()),
            (Ok(status), None) => Err(format!("the case's process ended with {status}")),
        };
        let (output, errors) = (read("output"), read("errors"));
        let _ = std::fs::remove_dir_all(&folder);
        Done {
            told,
            output,
            errors,
            took: start.elapsed(),
        }
    }

    /// Runs a case's process to its end, or ends it.
    fn process(&self, case: &Case, folder: &Path) -> Result<ExitStatus, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        make(folder, 0o755).map_err(failed)?;
        // Other users write there, too, as in the folder for temporary files of a machine.
        let (temporary, runtime) = (folder.join("t"), folder.join("r"));
        make(&temporary, 0o1777).map_err(failed)?;
        make(&runtime, 0o700).map_err(failed)?;
        let file = |name: &str| std::fs::File::create(folder.join(name)).map_err(failed);
        let mut command = Command::new("/proc/self/exe");
        command.args(["case", &self.way.device, &self.way.folder, case.name]);
        command.arg(folder.join("told"));
        command
            .env("TMPDIR", temporary)
            .env("XDG_RUNTIME_DIR", runtime)
            .env(MARK, folder);
        command.stdin(Stdio::null());
        command.stdout(file("output")?).stderr(file("errors")?);
        let mut child = {
            let mut cases = lock(&self.cases);
            let child = command.spawn().map_err(failed)?;
            cases.insert(child.id());
            child
        };
        let limit = Duration::from_secs(case.seconds());
        let done = self.wait(&mut child, limit, folder);
        lock(&self.cases).remove(&child.id());
        self.end_orphans(Some(folder));
        done
    }

    /// Waits for a case's process. One that takes too long is ended with all that it started; the
    /// error says what it waited for.
    fn wait(
        &self,
        child: &mut Child,
        limit: Duration,
        folder: &Path,
    ) -> Result<ExitStatus, String> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Ok(status);
            }
            if Instant::now() >= end || STOPPED.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(TICK);
        }
        let reason = if STOPPED.load(Ordering::Relaxed) {
            "it ran when a signal ended the suite".to_owned()
        } else {
            format!("it did not end within {limit:?}")
        };
        let pid = child.id();
        let mut processes = vec![pid];
        processes.extend(tree::descendants(pid));
        for orphan in self.orphans(Some(folder)) {
            processes.push(orphan);
            processes.extend(tree::descendants(orphan));
        }
        let waits = tree::waits(&processes);
        tree::end_descendants(pid);
        let _ = child.kill();
        let _ = child.wait();
        Err(format!(
            "{reason} and was killed. Its processes:\n{}",
            waits.trim_end()
        ))
    }

    /// Children of this process that no case's process is: all, or those of one case.
    fn orphans(&self, of: Option<&Path>) -> Vec<u32> {
        let cases = lock(&self.cases);
        let all = tree::children(std::process::id()).into_iter();
        let orphans = all.filter(|pid| !cases.contains(pid));
        let marked = orphans.filter(|pid| {
            of.is_none_or(|folder| {
                let mark = format!("{MARK}={}", folder.display());
                tree::has_variable(*pid, &mark)
            })
        });
        marked.collect()
    }

    /// Ends what is left of a case, or of all.
    fn end_orphans(&self, of: Option<&Path>) {
        for pid in self.orphans(of) {
            tree::end_descendants(pid);
            tree::kill(pid);
        }
    }

    /// Takes orphans that have ended out of the table of processes, as others would wait for that.
    fn reap(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let cases = lock(&self.cases);
            // One that has ended, whichever comes first. That of a case is taken out by who waits
            // for it.
            while let Some(pid) = tree::ended_child().filter(|pid| !cases.contains(pid)) {
                // SAFETY: plain numbers, and a child of this process that nobody else waits for.
                unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), libc::WNOHANG) };
            }
            drop(cases);
            std::thread::sleep(4 * TICK);
        }
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        self.end_orphans(None);
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

fn make(folder: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))
}

/// A thread that panicked is told of by the panic itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    /// It ends what it started, too, also where the one between has ended; and it says what each of
    /// them did.
    #[test]
    fn a_case_that_hangs_is_ended_at_its_deadline() {
        let way = Way {
            device: "soft".to_owned(),
            folder: String::new(),
            jobs: 1,
            shows: false,
        };
        // Dropped, it would end the children of other tests.
        let pool = ManuallyDrop::new(Pool::new(&way));
        let folder = pool.base.join("hangs");
        let script = "(sleep 1002 &) ; sleep 1003 & sleep 1004; true";
        let mut hanging = Command::new("sh");
        hanging.args(["-c", script]).env(MARK, &folder);
        let mut child = hanging.stdin(Stdio::null()).spawn().unwrap();
        lock(&pool.cases).insert(child.id());
        let started = || {
            let below = tree::descendants(child.id()).len();
            below == 2 && pool.orphans(Some(&folder)).len() == 1
        };
        while !started() {
            std::thread::sleep(TICK);
        }
        let limit = Duration::from_millis(300);
        let reason = pool.wait(&mut child, limit, &folder).unwrap_err();
        let (first, processes) = reason.split_once('\n').unwrap();
        assert_eq!(
            first,
            "it did not end within 300ms and was killed. Its processes:"
        );
        assert_eq!(processes.lines().count(), 4, "{reason}");
        for sleeps in [
            "sleeps `sleep 1002`",
            "sleeps `sleep 1003`",
            "sleeps `sleep 1004`",
        ] {
            assert!(processes.contains(sleeps), "{reason}");
        }
        assert!(tree::descendants(child.id()).is_empty());
        pool.end_orphans(Some(&folder));
        // A signal is sent and returns; the process ends when it next runs.
        let end = Instant::now() + Duration::from_secs(60);
        while !pool.orphans(Some(&folder)).is_empty() {
            assert!(Instant::now() < end, "an orphan outlived its case");
            std::thread::sleep(TICK);
        }
    }
}
