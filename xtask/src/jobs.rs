//! Runs the steps of a chore side by side, each as soon as what it needs is done: a line for each
//! when it ends, a table of their times at the end. What a step's programs print goes into a file,
//! which is shown where the step fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::log::Log;
use crate::shell::{Failure, failure};

/// What a step says when it is done: a few words for its line, or why it failed.
pub type StepResult = Result<String, Failure>;

type Run<'p> = Box<dyn FnOnce(&Log) -> StepResult + Send + 'p>;

/// Which others a step cannot run beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Any.
    Any,
    /// One at a time: cargo locks its folder.
    Cargo,
}

struct Step<'p> {
    name: &'static str,
    after: &'static [&'static str],
    kind: Kind,
    run: Mutex<Option<Run<'p>>>,
}

/// Steps, in the order in which they begin where they could begin at the same time.
pub struct Plan<'p> {
    steps: Vec<Step<'p>>,
}

/// A step that has ended.
struct Done {
    name: &'static str,
    took: Duration,
    /// `None`: something that it needs failed.
    well: Option<bool>,
}

#[derive(Default)]
struct State {
    begun: BTreeSet<&'static str>,
    running: Vec<(&'static str, Kind, Instant, PathBuf)>,
    ended: Vec<Done>,
    is_over: bool,
}

impl<'p> Plan<'p> {
    /// No steps.
    pub fn new() -> Plan<'p> {
        Plan { steps: Vec::new() }
    }

    /// A step that runs behind those that it names. Steps that are not in the plan are not waited
    /// for.
    pub fn step(
        &mut self,
        name: &'static str,
        after: &'static [&'static str],
        run: impl FnOnce(&Log) -> StepResult + Send + 'p,
    ) {
        self.add(name, after, Kind::Any, Box::new(run));
    }

    /// A step that calls cargo.
    pub fn cargo(
        &mut self,
        name: &'static str,
        after: &'static [&'static str],
        run: impl FnOnce(&Log) -> StepResult + Send + 'p,
    ) {
        self.add(name, after, Kind::Cargo, Box::new(run));
    }

    fn add(
        &mut self,
        name: &'static str,
        after: &'static [&'static str],
        kind: Kind,
        run: Run<'p>,
    ) {
        let run = Mutex::new(Some(run));
        self.steps.push(Step {
            name,
            after,
            kind,
            run,
        });
    }

    /// Runs all of them, as many at once as there are processors, and one more, as each waits at
    /// times. All are run but those that need one that failed.
    ///
    /// # Errors
    /// The names of those that failed.
    pub fn run(self) -> Result<(), Failure> {
        let start = Instant::now();
        let slots = processors() + 1;
        let shared = (Mutex::new(State::default()), Condvar::new());
        std::thread::scope(|scope| {
            for _ in 0..slots.min(self.steps.len()) {
                scope.spawn(|| self.work(&shared));
            }
            if std::io::stdout().is_terminal() {
                show_progress(&shared.0, self.steps.len(), start);
            }
        });
        let state = lock(&shared.0);
        say!("{}", table(&state.ended, start.elapsed()));
        let failed: Vec<&str> = state
            .ended
            .iter()
            .filter(|done| done.well == Some(false))
            .map(|done| done.name)
            .collect();
        if failed.is_empty() {
            Ok(())
        } else {
            failure(format!("failed: {}", failed.join(", ")))
        }
    }

    fn work(&self, (state, changed): &(Mutex<State>, Condvar)) {
        loop {
            let mut guard = lock(state);
            let step = loop {
                match self.next(&mut guard) {
                    Some(step) => break step,
                    None if guard.begun.len() == self.steps.len() => {
                        guard.is_over = guard.running.is_empty();
                        changed.notify_all();
                        return;
                    }
                    None => {
                        guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            let log = Log::new(step.name);
            let start = Instant::now();
            guard
                .running
                .push((step.name, step.kind, start, log.path().to_owned()));
            drop(guard);
            let run = lock(&step.run).take();
            let told = run.map_or_else(|| Ok(String::new()), |run| run(&log));
            let took = start.elapsed();
            let mut guard = lock(state);
            guard.running.retain(|(name, ..)| *name != step.name);
            clear_line();
            tell(step.name, took, &told, &log);
            guard.ended.push(Done {
                name: step.name,
                took,
                well: Some(told.is_ok()),
            });
            guard.is_over = guard.ended.len() == self.steps.len();
            changed.notify_all();
        }
    }

    /// The next step that can begin. Steps that never can are ended.
    fn next(&self, state: &mut State) -> Option<&Step<'p>> {
        loop {
            let hopeless = self.steps.iter().find(|step| {
                !state.begun.contains(step.name)
                    && step.after.iter().any(|needed| {
                        let done = state.ended.iter().find(|done| done.name == *needed);
                        done.is_some_and(|done| done.well != Some(true))
                    })
            });
            let Some(step) = hopeless else { break };
            state.begun.insert(step.name);
            say!("{:<12} not run", step.name);
            state.ended.push(Done {
                name: step.name,
                took: Duration::ZERO,
                well: None,
            });
        }
        let is_done = |needed: &&str| {
            state.ended.iter().any(|done| done.name == *needed)
                || !self.steps.iter().any(|step| step.name == *needed)
        };
        let cargo_runs = state
            .running
            .iter()
            .any(|(_, kind, ..)| *kind == Kind::Cargo);
        let next = self.steps.iter().find(|step| {
            !state.begun.contains(step.name)
                && step.after.iter().all(is_done)
                && !(step.kind == Kind::Cargo && cargo_runs)
        })?;
        state.begun.insert(next.name);
        Some(next)
    }
}

/// Processors of this machine that may be used.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does something for each item, several at once. The first failure is the result, when those that
/// had begun have ended.
pub fn each<T: Sync>(
    items: &[T],
    run: impl Fn(&T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = Mutex::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..processors().min(items.len()) {
            scope.spawn(|| {
                loop {
                    let mut at = lock(&next);
                    let Some(item) = items.get(*at) else { return };
                    *at += 1;
                    drop(at);
                    if let Err(error) = run(item) {
                        *lock(&next) = items.len();
                        lock(&failed).get_or_insert(error);
                    }
                }
            });
        }
    });
    let first = lock(&failed).take();
    first.map_or(Ok(()), Err)
}

fn tell(name: &str, took: Duration, told: &StepResult, log: &Log) {
    let seconds = took.as_secs_f64();
    match told {
        Ok(words) => say!("{name:<12} {seconds:>7.1} s  {words}"),
        Err(Failure(reason)) => {
            say!("{name:<12} {seconds:>7.1} s  FAILED");
            crate::say::write(1, format_args!("{}", log.text()));
            say!("{name}: {reason}\n{name}: the above is {}", log.shown());
        }
    }
}

/// All steps with their times, the longest first.
fn table(ended: &[Done], total: Duration) -> String {
    let mut rows: Vec<&Done> = ended.iter().collect();
    rows.sort_by_key(|done| std::cmp::Reverse(done.took));
    let mut text = String::from("\nstep            time\n");
    for Done { name, took, well } in rows {
        let note = match well {
            Some(true) => "",
            Some(false) => "  failed",
            None => "  not run",
        };
        let _ = writeln!(text, "{name:<12} {:>5.1} s{note}", took.as_secs_f64());
    }
    let _ = write!(text, "{:<12} {:>5.1} s", "all", total.as_secs_f64());
    text
}

/// Columns of a line that is replaced: one that wraps cannot be.
const COLUMNS: usize = 79;

/// On a terminal, a line that says what runs, until all is done.
fn show_progress(state: &Mutex<State>, steps: usize, start: Instant) {
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let state = lock(state);
        if state.is_over {
            break;
        }
        let line = progress_line(&state, steps, start);
        clear_line();
        crate::say::write(1, format_args!("{line}"));
        let _ = std::io::stdout().flush();
    }
    clear_line();
}

/// How many steps have ended, and what runs, for how long and how far it is.
fn progress_line(state: &State, steps: usize, start: Instant) -> String {
    let running = state.running.iter().map(|(name, _, since, log)| {
        let words = progress(log).map_or_else(String::new, |words| format!(" ({words})"));
        format!("{name}{words} {} s", since.elapsed().as_secs())
    });
    let running: Vec<String> = running.collect();
    let line = format!(
        "[{}/{steps}, {} s] {}",
        state.ended.len(),
        start.elapsed().as_secs(),
        running.join(", ")
    );
    line.chars().take(COLUMNS).collect()
}

/// What a step says of how far it is.
fn progress(log: &Path) -> Option<String> {
    std::fs::read_to_string(Log::progress_of(log)).ok()
}

fn clear_line() {
    if std::io::stdout().is_terminal() {
        crate::say::write(1, format_args!("\r\x1b[K"));
    }
}

/// A step that panicked has said so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where logs are.
pub fn log_folder() -> PathBuf {
    crate::artifacts::target_dir().join("log")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn steps_run_behind_what_they_need_and_not_behind_what_failed() {
        let order = Mutex::new(Vec::new());
        let note = |name: &'static str| {
            let order = &order;
            move |_: &Log| {
                lock(order).push(name);
                Ok(String::new())
            }
        };
        let mut plan = Plan::new();
        plan.step("test-last", &["test-first", "test-absent"], note("last"));
        plan.step("test-never", &["test-bad"], note("never"));
        plan.step("test-too", &["test-never"], note("too"));
        plan.step("test-first", &[], note("first"));
        plan.cargo("test-bad", &[], |_| failure("it is bad"));
        let result = plan.run();
        assert_eq!(*lock(&order), ["first", "last"]);
        assert!(matches!(result, Err(Failure(text)) if text == "failed: test-bad"));
    }

    #[test]
    fn the_line_of_progress_says_what_runs_and_how_far_it_is() {
        let (first, second) = (Log::new("test-progress"), Log::new("test-silent"));
        first.progress("7/30");
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let mut state = State::default();
        for (name, since, log) in [("cargo", 12, &first), ("cuda", 3, &second)] {
            let path = log.path().to_owned();
            state.running.push((name, Kind::Any, ago(since), path));
        }
        let line = progress_line(&state, 9, ago(20));
        assert_eq!(line, "[0/9, 20 s] cargo (7/30) 12 s, cuda 3 s");
        first.progress(&"x".repeat(200));
        assert_eq!(progress_line(&state, 9, ago(20)).len(), COLUMNS);
    }

    #[test]
    fn each_item_is_done_once_and_a_failure_is_told() {
        let sum = Mutex::new(0);
        let add = |n: &u64| {
            *lock(&sum) += n;
            Ok(())
        };
        each(&[1, 2, 3, 4, 5], add).unwrap();
        assert_eq!(*lock(&sum), 15);
        let failed = each(&[1, 2], |n| failure(format!("no {n}")));
        assert!(failed.is_err());
    }
}
