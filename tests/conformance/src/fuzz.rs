//! Differential fuzzing: what verifies must do on a GPU what it does in the interpreter, and
//! nothing may panic.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use warpbpf_abi::attach::Site;
use warpbpf_abi::helpers::{self, HelperId};
use warpbpf_codegen::Target;
use warpbpf_ebpf::{Callee, Insn};
use warpbpf_verify::{Platform, verify};

use crate::build::{BuildError, Built, Effort, build, panic_text};
use crate::device::{Bench, Device, RunError};
use crate::generate::{generate, input};
use crate::minimise::minimise;
use crate::mutate::{damage_bytes, mutate};
use crate::rng::Rng;
use crate::test::{Input, Output, Test};
use crate::world::interpret;

/// Inputs of a program that runs one thread at a time.
const INPUTS_ALONE: usize = 3;
/// Attempts at making one failure smaller.
const ATTEMPTS: u32 = 3000;
/// Disagreements of one kind that are made smaller and told; others are only counted.
const TOLD: u64 = 3;
/// Disagreements after which a run ends.
const ENOUGH: u64 = 500;

/// Stack of a host thread: a driver compiles in it, recursively.
const STACK: usize = 64 << 20;

/// How a run is limited and what it is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the random numbers begin. Program `index` of a seed is the same in every run.
    pub seed: u64,
    /// First index.
    pub first: u64,
    /// Most programs.
    pub count: u64,
    /// Most time.
    pub time: Duration,
    /// Programs per module.
    pub batch: usize,
    /// Objects whose damaged copies are loaded and verified, with their names.
    pub objects: Vec<(String, Vec<u8>)>,
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Programs made.
    pub generated: u64,
    /// Of these, damaged copies of others.
    pub mutated: u64,
    /// Damaged objects that were loaded or refused.
    pub objects: u64,
    /// Programs that were accepted, compiled and run.
    pub verified: u64,
    /// Launches.
    pub launches: u64,
    /// Threads in them.
    pub threads: u64,
    /// Refusals by rule.
    pub refused: BTreeMap<&'static str, u64>,
    /// Failures.
    pub disagreements: u64,
}

impl Summary {
    fn add(&mut self, other: Summary) {
        self.generated += other.generated;
        self.mutated += other.mutated;
        self.objects += other.objects;
        self.verified += other.verified;
        self.launches += other.launches;
        self.threads += other.threads;
        for (rule, n) in other.refused {
            *self.refused.entry(rule).or_default() += n;
        }
        self.disagreements += other.disagreements;
    }
}

/// Collects failures of all host threads and tells of each kind the first few.
struct Reporter<F> {
    kinds: Mutex<BTreeMap<String, u64>>,
    told: F,
    seed: u64,
}

impl<F: Fn(&str)> Reporter<F> {
    /// Counts a failure; `more` is asked for its text if it is one of the first of its kind.
    fn fail(&self, summary: &mut Summary, index: u64, what: &str, more: impl FnOnce() -> String) {
        summary.disagreements += 1;
        // Numbers differ from program to program.
        let digit = |c: &char| !c.is_ascii_hexdigit();
        let kind: String = what.chars().filter(digit).collect();
        let seen = match self.kinds.lock() {
            Ok(mut kinds) => {
                let seen = kinds.entry(kind).or_default();
                *seen += 1;
                *seen
            }
            Err(_) => 1,
        };
        if seen <= TOLD {
            (self.told)(&format!(
                "seed {} index {index}: {what}\n{}",
                self.seed,
                more()
            ));
        }
    }
}

/// A program with what goes into it and what must come out.
struct Job {
    index: u64,
    test: Test,
    built: Built,
    runs: Vec<(Input, Output)>,
}

/// A program before it runs.
enum Made {
    Ready(Box<Job>),
    Refused(&'static str),
    /// What failed, and the program with an input that shows it.
    Failed(String, Test, Input),
}

/// Runs until the plan is done, one device per host thread. `told` gets each failure at once.
///
/// # Errors
/// A device that cannot be opened or used.
pub fn fuzz<D: Device>(
    plan: &Plan,
    threads: usize,
    open: impl Fn(usize) -> Result<D, RunError> + Sync,
    told: impl Fn(&str) + Sync,
) -> Result<Summary, RunError> {
    let next = AtomicU64::new(plan.first);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Summary::default());
    let broken = Mutex::new(None);
    let end = Instant::now().checked_add(plan.time);
    let reporter = Reporter {
        kinds: Mutex::new(BTreeMap::new()),
        told,
        seed: plan.seed,
    };
    // One after the other: a driver's start is the least tried part of it.
    let opening = Mutex::new(());
    std::thread::scope(|scope| {
        for thread in 0..threads.max(1) {
            let (next, stop, total, broken) = (&next, &stop, &total, &broken);
            let (open, opening, reporter) = (&open, &opening, &reporter);
            let worker = std::thread::Builder::new().stack_size(STACK);
            let spawned = worker.spawn_scoped(scope, move || {
                let work = || -> Result<(), RunError> {
                    let device = {
                        let _one = opening.lock();
                        open(thread)?
                    };
                    let mut bench = Bench::new(device);
                    while !stop.load(Ordering::Relaxed)
                        && end.is_none_or(|end| Instant::now() < end)
                    {
                        let batch = plan.batch.max(1) as u64;
                        let from = next.fetch_add(batch, Ordering::Relaxed);
                        let to = (from + batch).min(plan.first.saturating_add(plan.count));
                        if from >= to {
                            break;
                        }
                        let summary = slice(plan, from..to, &mut bench, reporter, stop)?;
                        if let Ok(mut total) = total.lock() {
                            total.add(summary);
                            if total.disagreements >= ENOUGH {
                                stop.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                    Ok(())
                };
                if let Err(error) = work() {
                    stop.store(true, Ordering::Relaxed);
                    if let Ok(mut broken) = broken.lock() {
                        broken.get_or_insert(error);
                    }
                }
            });
            if let Err(error) = spawned
                && let Ok(mut broken) = broken.lock()
            {
                broken.get_or_insert(RunError::Machinery {
                    what: "starting a thread",
                    reason: error.to_string(),
                });
            }
        }
    });
    match broken.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(total.into_inner().unwrap_or_default()),
    }
}

/// Some programs, in one module.
fn slice<D: Device>(
    plan: &Plan,
    indices: std::ops::Range<u64>,
    bench: &mut Bench<D>,
    reporter: &Reporter<impl Fn(&str)>,
    stop: &AtomicBool,
) -> Result<Summary, RunError> {
    let mut summary = Summary::default();
    if bench.device().is_slow() {
        // A driver's compiler can take the process down with it: the last of these lines says what
        // it was given.
        (reporter.told)(&format!("batch from {}", indices.start));
    }
    let newest = bench.device().target();
    // One target per module; over the run, all that code is generated for.
    let target =
        targets(newest)[indices.start as usize / plan.batch.max(1) % targets(newest).len()];
    let mut jobs = Vec::new();
    for index in indices {
        let mut rng = Rng::new(plan.seed, index);
        if !plan.objects.is_empty() && rng.one_in(8) {
            summary.objects += 1;
            let (name, bytes) = &plan.objects[rng.below(plan.objects.len())];
            let damaged = damage_bytes(&mut rng, bytes);
            if let Err(panic) = damaged_object(&damaged) {
                let what = format!("`{name}`, damaged: {panic}");
                reporter.fail(&mut summary, index, &what, String::new);
            }
            continue;
        }
        summary.generated += 1;
        let (test, inputs, mutant) = program(&mut rng);
        summary.mutated += u64::from(mutant);
        match make(index, test, inputs, target) {
            Made::Ready(job) => {
                summary.verified += 1;
                jobs.push(job);
            }
            Made::Refused(rule) => *summary.refused.entry(rule).or_default() += 1,
            Made::Failed(what, test, input) => reporter.fail(&mut summary, index, &what, || {
                let (test, input) = smaller_unrun(&test, &input, target);
                test.describe(&input, 0)
            }),
        }
    }
    let flat: Vec<(&Built, &Input)> = jobs
        .iter()
        .flat_map(|job| job.runs.iter().map(|(input, _)| (&job.built, input)))
        .collect();
    let ran = catch_unwind(AssertUnwindSafe(|| bench.run_all(&flat, target)));
    let mut outputs = match ran {
        Ok(outputs) => outputs?.into_iter(),
        Err(panic) => {
            let which: Vec<u64> = jobs.iter().map(|job| job.index).collect();
            let what = format!("engine panicked: {} (in {which:?})", panic_text(&*panic));
            let index = which.first().copied().unwrap_or(0);
            reporter.fail(&mut summary, index, &what, String::new);
            return Ok(summary);
        }
    };
    for job in &jobs {
        for (input, expected) in &job.runs {
            let Some(output) = outputs.next() else { break };
            summary.launches += 1;
            summary.threads += input.threads.len() as u64;
            let Some(what) = disagreement(expected, &output) else {
                continue;
            };
            let fatal = matches!(output, Err(RunError::Trap { .. })) && !bench.device().survives();
            reporter.fail(&mut summary, job.index, &what, || {
                if fatal {
                    stop.store(true, Ordering::Relaxed);
                    job.test.describe(input, 0)
                } else {
                    smaller(&job.test, input, target, bench)
                }
            });
            if fatal {
                return Ok(summary);
            }
            break;
        }
    }
    Ok(summary)
}

/// Program `index` of a seed, with its inputs.
pub fn inputs_of(seed: u64, index: u64) -> (Test, Vec<Input>) {
    let (test, inputs, _) = program(&mut Rng::new(seed, index));
    (test, inputs)
}

/// Targets of the same capabilities or fewer.
pub fn targets(newest: Target) -> Vec<Target> {
    let known = [(75, (6, 3)), (80, (7, 0)), (90, (7, 8))];
    let older = known.iter().filter(|(sm, _)| *sm < newest.sm);
    let older = older.map(|&(sm, ptx)| Target { ptx, sm });
    std::iter::once(newest).chain(older).collect()
}

/// Program and inputs of an index, and whether it is a damaged one.
fn program(rng: &mut Rng) -> (Test, Vec<Input>, bool) {
    let generated = generate(rng);
    let (mut test, mut alone) = (generated.test, generated.alone);
    let mut mutant = false;
    if rng.one_in(4)
        && let Some(code) = mutate(rng, &test.code)
    {
        mutant = true;
        test.code = code;
        // Nobody knows what it does to the maps.
        alone |= !test.maps.is_empty();
    }
    let inputs = if alone {
        (0..INPUTS_ALONE).map(|_| input(rng, &test, 1)).collect()
    } else {
        let threads = rng.pick(&[32, 64, 64, 47, 128]);
        vec![input(rng, &test, threads)]
    };
    (test, inputs, mutant)
}

fn make(index: u64, test: Test, inputs: Vec<Input>, target: Target) -> Made {
    if !is_reproducible(&test) {
        return Made::Refused("(not comparable)");
    }
    let built = match build(&test, target, Effort::FUZZ) {
        Ok(built) => built,
        Err(BuildError::Refused { rule, .. }) => return Made::Refused(rule),
        Err(error) => {
            let input = inputs.into_iter().next().unwrap_or(Input {
                threads: Vec::new(),
                maps: Vec::new(),
            });
            return Made::Failed(error.to_string(), test, input);
        }
    };
    let mut runs = Vec::new();
    for input in inputs {
        match expect(&test, &input, built.rounds) {
            Ok(output) => runs.push((input, output)),
            Err(what) => return Made::Failed(what, test, input),
        }
    }
    Made::Ready(Box::new(Job {
        index,
        test,
        built,
        runs,
    }))
}

/// The program calls only what gives the same on every engine: no clock, no place in the machine. A
/// damaged one may.
fn is_reproducible(test: &Test) -> bool {
    let known = [
        HelperId::MapLookupElem,
        HelperId::MapUpdateElem,
        HelperId::MapDeleteElem,
        HelperId::ForEachMapElem,
        HelperId::Loop,
        HelperId::GpuBlockIdx,
        HelperId::GpuBlockDim,
        HelperId::GpuThreadIdx,
        HelperId::GpuGridDim,
        HelperId::GpuMembar,
        HelperId::GpuLaneId,
    ];
    let offered = |id: u32| helpers::by_id(id).is_none_or(|helper| known.contains(&helper.kind));
    test.code.insns().iter().all(|insn| match insn {
        Insn::Call {
            callee: Callee::Helper(id),
        } => offered(*id),
        _ => true,
    })
}

/// What the interpreter says. A verified program that traps there is a hole in the verifier.
fn expect(test: &Test, input: &Input, rounds: u32) -> Result<Output, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| interpret(test, input, rounds)));
    match ran {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(format!("the interpreter traps: {error}")),
        Err(panic) => Err(format!("the interpreter panicked: {}", panic_text(&*panic))),
    }
}

/// The smallest program that fails before a GPU sees it, at the same stage.
fn smaller_unrun(test: &Test, input: &Input, target: Target) -> (Test, Input) {
    let stage = |test: &Test, input: &Input| match build(test, target, Effort::FUZZ) {
        Ok(built) => expect(test, input, built.rounds).is_err().then_some("run"),
        Err(BuildError::Refused { .. } | BuildError::NotInterpreted(_)) => None,
        Err(BuildError::Codegen { .. }) => Some("code"),
        Err(BuildError::Panic { part, .. }) => Some(part),
        Err(BuildError::Map { .. }) => Some("map"),
    };
    let first = stage(test, input);
    let mut attempts = ATTEMPTS;
    minimise(test, input, |test, input| {
        attempts = attempts.saturating_sub(1);
        attempts > 0 && first.is_some() && stage(test, input) == first
    })
}

fn disagreement(expected: &Output, ran: &Result<Output, RunError>) -> Option<String> {
    match ran {
        Ok(output) => expected.difference(output, "interpreter", "GPU"),
        Err(error) => Some(format!("the GPU fails: {error}")),
    }
}

/// The smallest program that still differs, with its input.
pub fn smallest<D: Device>(
    test: &Test,
    input: &Input,
    target: Target,
    bench: &mut Bench<D>,
) -> (Test, Input) {
    let (small, small_input, _) = made_smaller(test, input, target, bench);
    (small, small_input)
}

/// The same, and how it differs.
fn made_smaller<D: Device>(
    test: &Test,
    input: &Input,
    target: Target,
    bench: &mut Bench<D>,
) -> (Test, Input, String) {
    let mut attempts = if bench.device().is_slow() {
        ATTEMPTS / 10
    } else {
        ATTEMPTS
    };
    let mut last = String::new();
    let (small, small_input) = minimise(test, input, |test, input| {
        attempts = attempts.saturating_sub(1);
        if attempts == 0 {
            return false;
        }
        let Ok(built) = build(test, target, Effort::FUZZ) else {
            return false;
        };
        let Ok(expected) = expect(test, input, built.rounds) else {
            return false;
        };
        let batch = [(&built, input)];
        let ran = catch_unwind(AssertUnwindSafe(|| bench.run_all(&batch, target)));
        let Ok(Ok(mut outputs)) = ran else {
            return false;
        };
        match outputs.pop().map(|output| disagreement(&expected, &output)) {
            Some(Some(what)) => {
                last = what;
                true
            }
            _ => false,
        }
    });
    (small, small_input, last)
}

/// The smallest program that still differs, as text.
fn smaller<D: Device>(test: &Test, input: &Input, target: Target, bench: &mut Bench<D>) -> String {
    let (small, small_input, last) = made_smaller(test, input, target, bench);
    let (major, minor) = target.ptx;
    let mut text = format!(
        "made smaller: {last} (sm_{}, PTX {major}.{minor})\n{}",
        target.sm,
        small.describe(&small_input, 0)
    );
    if !test.maps.is_empty() && small_input.threads.len() > 1 {
        // Without an instruction that was there, threads may race, and that is no fault of an
        // engine.
        text.push_str("as it was:\n");
        text.push_str(&test.describe(input, 0));
    }
    text
}

/// Loads a damaged object and verifies what is in it. Refusals are fine.
fn damaged_object(bytes: &[u8]) -> Result<(), String> {
    let work = || {
        let Ok(object) = warpbpf_object::load(bytes) else {
            return;
        };
        let mut platform = Platform::new(Site::Entry).with_allow_modify(true);
        platform.effort = Effort::FUZZ.effort;
        for program in &object.programs {
            // Either answer is an answer.
            let _ = verify(program, &object.maps, &platform);
        }
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("panic: {}", panic_text(&*panic)))
}
