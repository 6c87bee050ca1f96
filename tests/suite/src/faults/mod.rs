//! Whatever of ours fails, the application goes on as if we were not there, and the user is told.
//!
//! Every build of the agent but a release build has sites that can be made to fail
//! (`warpbpf-faults`). A run without a fault tells which sites there are and how often each is
//! passed; then each is made to fail at several of its passes, for good, and at some the tool is
//! killed. Nothing here knows a site by its name but where a fault is none that a program can
//! survive.

mod judge;
mod live;
mod plan;
mod scenario;
mod trial;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::run::{Bench, Case, Told, is_deep};
use plan::{Fault, Site};
use scenario::{SCENARIOS, Scenario};
use trial::Trial;
pub use trial::agent_has_sites;

/// Faults of the small set, which is part of the suite: in each run, and in a deep one.
const FEW: [usize; 2] = [24, 80];
/// What a whole run must have had, or it is no proof.
const LEAST_FAULTS: usize = 500;
const LEAST_SITES: usize = 60;
/// For how many seconds trials of a whole run begin, where a machine is lent for less than all of
/// them take. What is left out is said.
const SECONDS: &str = "WARPBPF_FAULTS_SECONDS";
/// Trials at once.
const AT_ONCE: usize = 4;

/// The small set.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "faults: a few of the quick scenarios",
        check: |bench| match trial::agent_has_sites(bench) {
            true => few(bench),
            false => Ok("skipped: a release build has no sites that can fail".into()),
        },
    }]
}

/// What came of many faults.
#[derive(Debug, Default)]
struct Tally {
    /// That happened.
    struck: usize,
    /// Of these, those that cost something.
    felt: usize,
    sites: BTreeSet<String>,
    /// For want of time.
    left_out: usize,
    /// What was not as it has to be.
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.struck += other.struck;
        self.felt += other.felt;
        self.sites.extend(other.sites);
        self.left_out += other.left_out;
        self.wrong.extend(other.wrong);
    }

    fn text(&self) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            n => format!(", {n} left out for want of time"),
        };
        format!(
            "{} faults at {} sites: {} cost something and were told, {} cost nothing{left_out}",
            self.struck,
            self.sites.len(),
            self.felt,
            self.struck - self.felt
        )
    }
}

fn few(bench: &Bench) -> Told {
    let mut all: Vec<(Trial<'_>, Fault)> = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| s.is_quick) {
        let (trial, sites) = prepare(bench, scenario)?;
        all.extend(
            plan::faults(&sites)
                .into_iter()
                .map(|fault| (trial.clone(), fault)),
        );
    }
    let few = FEW[usize::from(is_deep())];
    let step = (all.len() / few).max(1);
    let chosen: Vec<(Trial<'_>, Fault)> = all.into_iter().step_by(step).collect();
    let tally = run_all(&chosen, None);
    match tally.wrong.first() {
        Some(first) => Err(format!(
            "{} of {}: {first}",
            tally.wrong.len(),
            tally.text()
        )),
        None if tally.struck < few / 2 => Err(format!("too few happened: {}", tally.text())),
        None => Ok(tally.text()),
    }
}

/// Everything, as a command: `warpbpf-suite faults soft|gpu BUNDLE [SCENARIO]`. True if all is
/// well.
pub fn all(bench: &Bench, only: &str) -> bool {
    if !trial::agent_has_sites(bench) {
        say!(
            "a release build has no sites that can fail: build with `cargo xtask build tests` or `cargo xtask gpu-bundle dev`"
        );
        return false;
    }
    let mut total = Tally::default();
    let seconds = std::env::var(SECONDS).ok();
    let until = seconds
        .and_then(|s| s.parse().ok())
        .map(|s| Instant::now() + Duration::from_secs(s));
    for scenario in SCENARIOS.iter().filter(|s| s.name.contains(only)) {
        let tally = match prepare(bench, scenario) {
            Ok((trial, sites)) => {
                let faults = plan::faults(&sites).into_iter();
                let faults: Vec<_> = faults.map(|fault| (trial.clone(), fault)).collect();
                run_all(&faults, until)
            }
            Err(reason) if reason.starts_with("skipped: ") => {
                say!("{:<10} {reason}", scenario.name);
                continue;
            }
            Err(reason) => {
                say!("  WRONG without a fault: {reason}");
                Tally {
                    wrong: vec![reason],
                    ..Tally::default()
                }
            }
        };
        say!("{:<10} {}", scenario.name, tally.text());
        total.add(tally);
    }
    say!(
        "{:<10} {}, {} wrong",
        "all",
        total.text(),
        total.wrong.len()
    );
    let enough = total.struck >= LEAST_FAULTS && total.sites.len() >= LEAST_SITES;
    if only.is_empty() && !enough {
        say!("too few: {LEAST_FAULTS} faults at {LEAST_SITES} sites are needed");
    }
    total.wrong.is_empty() && (enough || !only.is_empty())
}

/// One fault, by its text, with everything that came of it shown.
pub fn one(bench: &Bench, name: &str, fault: &str) -> bool {
    let Some(scenario) = SCENARIOS.iter().find(|s| s.name == name) else {
        say!("there is no scenario `{name}`");
        return false;
    };
    let done = prepare(bench, scenario).map(|(trial, _)| trial.run(&Fault::new(fault), 0));
    say!("{done:#?}");
    done.is_ok_and(|done| done.wrong.is_none())
}

/// Runs a scenario without a fault.
fn prepare<'b>(
    bench: &'b Bench,
    scenario: &'static Scenario,
) -> Result<(Trial<'b>, Vec<Site>), String> {
    let trial = Trial::new(bench, scenario)?;
    let sites = trial.sites.clone();
    Ok((trial, sites))
}

/// Begins none after `until`.
fn run_all(faults: &[(Trial<'_>, Fault)], until: Option<Instant>) -> Tally {
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let stride = stride(faults.len());
    let at_once = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(AT_ONCE);
    std::thread::scope(|scope| {
        for worker in 0..at_once {
            let (next, tally) = (&next, &tally);
            scope.spawn(move || {
                loop {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= faults.len() {
                        break;
                    }
                    let (trial, fault) = &faults[at * stride % faults.len()];
                    let done = trial.run(fault, worker);
                    let mut one = Tally::default();
                    if done.struck {
                        one.struck = 1;
                        one.felt = usize::from(done.felt);
                        one.sites.insert(fault.site.clone());
                    }
                    // Also where the fault did not happen: then the same run is to be as without
                    // it.
                    if let Some(reason) = done.wrong {
                        crate::say::write(
                            2,
                            format_args!(
                                "  WRONG {} {}: {reason}\n",
                                trial.scenario.name, fault.text
                            ),
                        );
                        one.wrong
                            .push(format!("{} {}: {reason}", trial.scenario.name, fault.text));
                    }
                    if let Ok(mut tally) = tally.lock() {
                        tally.add(one);
                    }
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap_or_default();
    tally.left_out = faults.len().saturating_sub(next.into_inner());
    tally
}

/// A step that comes to each of so many, far from the one before: what is left out is then left out
/// everywhere.
fn stride(of: usize) -> usize {
    let coprime = |step: &usize| {
        let (mut a, mut b) = (*step, of);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    (of * 2 / 5 + 1..).find(coprime).unwrap_or(1)
}
