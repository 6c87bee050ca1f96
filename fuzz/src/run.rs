//! One target from its seeds to its last mutant.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use crate::bounds::{Watch, own_cpu};
use crate::coverage::Coverage;
use crate::folder::{Folder, State, hash, inputs};
use crate::mutate::mutant;
use crate::rng::Rng;
use crate::{FOLDER, QUICK, SECONDS, Target};

/// Of all mutants of plain runs, and of the first ones of long runs.
const SEED: u64 = 20_261_120;

pub(crate) fn run(target: &Target<'_>, work: &dyn Fn(&[u8])) {
    let seconds = std::env::var(SECONDS)
        .ok()
        .and_then(|text| text.parse().ok());
    let all = std::env::var_os(FOLDER).map(PathBuf::from);
    let folder = all.as_deref().map(|all| {
        Folder::open(all, target.name).unwrap_or_else(|error| panic!("{}: {error}", all.display()))
    });
    let faulty = all.unwrap_or_else(std::env::temp_dir);
    let watch = Watch::new(target.bounds, faulty.join(format!("{}-harm", target.name)));
    let one =
        |input: &[u8]| catch_unwind(AssertUnwindSafe(|| watch.bounded(input, || work(input))));
    let mut coverage = Coverage::default();
    let mut corpus = target.seeds.clone();
    corpus.extend(inputs(&committed(target.name)));
    corpus.extend(folder.iter().flat_map(Folder::inputs));
    assert!(!corpus.is_empty(), "`{}` has no seed", target.name);
    for input in &corpus {
        Coverage::clear();
        if let Err(panic) = one(input) {
            tell(
                target,
                &faulty,
                input,
                "an input of the corpus",
                &one,
                panic,
            );
        }
        coverage.add();
    }
    let began = own_cpu();
    let mut state = folder.as_ref().map_or_else(State::default, Folder::state);
    let before = state;
    let goes_on = |state: State| match seconds {
        Some(seconds) => own_cpu() - began < Duration::from_secs(seconds),
        None => state.next - before.next < QUICK,
    };
    let mut kept = Duration::ZERO;
    while goes_on(state) {
        let mut rng = Rng::new(SEED, state.next);
        // What was found last is where new code is nearest.
        let at = match rng.below(2) {
            0 => rng.below(corpus.len()),
            _ => corpus.len() - 1 - rng.below(corpus.len().min(32)),
        };
        let other = rng.below(corpus.len());
        let input = mutant(&corpus[at], &corpus[other], target.words, &mut rng);
        Coverage::clear();
        if let Err(panic) = one(&input) {
            let which = format!("mutant {} of seed {SEED}", state.next);
            tell(target, &faulty, &input, &which, &one, panic);
        }
        state.next += 1;
        state.spent = before.spent + (own_cpu() - began);
        if Coverage::is_known() && coverage.add() {
            if let Some(folder) = &folder {
                folder
                    .keep(&input)
                    .unwrap_or_else(|error| panic!("cannot keep an input: {error}"));
            }
            corpus.push(input);
        }
        if state.spent - kept > Duration::from_secs(5) {
            keep(folder.as_ref(), state);
            kept = state.spent;
        }
    }
    keep(folder.as_ref(), state);
    if seconds.is_some() {
        println_told(target, state, before, corpus.len(), coverage.edges());
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a line of a test's output, which `cargo xtask fuzz` reads"
)]
fn println_told(target: &Target<'_>, state: State, before: State, corpus: usize, edges: usize) {
    println!(
        "fuzz: {:<14} {:>10} inputs in {:>6.1} s of CPU, {:.2} hours in all; corpus {corpus}, {edges} edges",
        target.name,
        state.next - before.next,
        (state.spent - before.spent).as_secs_f64(),
        state.spent.as_secs_f64() / 3600.0,
    );
}

fn keep(folder: Option<&Folder>, state: State) {
    if let Some(folder) = folder {
        folder
            .keep_state(state)
            .unwrap_or_else(|error| panic!("cannot keep the state: {error}"));
    }
}

/// The inputs in the repository.
fn committed(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

/// A panic, with an input that still has it and is as small as it can be made quickly.
fn tell(
    target: &Target<'_>,
    faulty: &Path,
    input: &[u8],
    which: &str,
    one: &dyn Fn(&[u8]) -> std::thread::Result<()>,
    panic: Box<dyn std::any::Any + Send>,
) -> ! {
    let small = quietly(|| smaller(input, |input| one(input).is_err()));
    let path = faulty.join(format!("{}-{:016x}", target.name, hash(&small)));
    let told = match std::fs::write(&path, &small) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("nowhere ({}: {error})", path.display()),
    };
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    panic!(
        "`{}`: {which} does harm: {}; its {} bytes are in {told}",
        target.name,
        words.unwrap_or("a panic"),
        small.len(),
    )
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Panics of this thread say nothing meanwhile: there are thousands, and what a test says is kept
/// in memory.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let done = work();
    QUIET.set(false);
    done
}

/// Leaves out parts, halves first, as long as the fault is still there.
fn smaller(input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut small = input.to_vec();
    let (mut part, mut tries) = (small.len() / 2, 0);
    while part > 0 && tries < 2000 {
        let mut at = 0;
        while at < small.len() && tries < 2000 {
            let mut less = small.clone();
            less.drain(at..(at + part).min(small.len()));
            tries += 1;
            if fails(&less) {
                small = less;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn a_fault_is_found_and_made_small() {
        let seeds = vec![b"length 12, and much more that does not matter".to_vec()];
        let found = catch_unwind(|| {
            Target::new("self-test", seeds)
                .run(|input| assert!(!input.contains(&0xff), "ff is there"));
        });
        let words = found.unwrap_err();
        let words = words.downcast_ref::<String>().unwrap();
        assert!(
            words.contains("ff is there; its 1 bytes are in "),
            "{words}"
        );
        let path = words.rsplit("are in ").next().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), [0xff]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_does_no_harm_passes() {
        let n = std::cell::Cell::new(0);
        Target::new("self-test", vec![vec![1, 2, 3]]).run(|_| n.set(n.get() + 1));
        assert_eq!(n.get(), 1 + QUICK);
    }

    #[test]
    fn what_takes_too_long_is_harm() {
        let bounds = crate::Bounds {
            time: Duration::from_millis(1),
            ..crate::Bounds::default()
        };
        let found = catch_unwind(|| {
            let target = Target::new("self-test-slow", vec![vec![1]]).bounds(bounds);
            target.run(|_| {
                let began = own_cpu();
                while own_cpu() - began < Duration::from_micros(1500) {}
            });
        });
        let words = found.unwrap_err();
        let words = words.downcast_ref::<String>().unwrap();
        assert!(words.contains("and 1ms is its bound"), "{words}");
        let path = words.rsplit("are in ").next().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
