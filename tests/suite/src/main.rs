//! The end-to-end suite: real programs, the real command, exact numbers; the same cases on the soft
//! GPU and on a GPU.
//!
//! It is a program and not a `#[test]`, because a machine with a GPU has no Rust: it travels in the
//! bundle.

#[path = "../../../xtask/src/say.rs"]
#[macro_use]
mod say;

mod attach;
mod attach_killed;
mod attach_more;
mod attacks;
mod backends;
mod bad_input;
mod blocks;
mod bpftime;
mod cache;
mod cached;
mod choice;
mod churn;
mod clients;
mod counts;
mod devices;
mod documents;
mod drain;
mod driver_api;
mod endings;
mod extension;
mod faults;
mod gate;
mod graphs;
mod helpers;
mod host_ops;
mod instructions;
mod jit;
mod late_tools;
mod launching;
mod library;
mod links;
mod linux;
mod list;
mod loader;
mod loader_maps;
mod lookup;
mod many;
mod maps_hash;
mod maps_host;
mod maps_inner;
mod maps_more;
mod memory;
mod outputs;
mod places;
mod pool;
mod process;
mod ranges;
mod ranges_later;
mod replace;
mod run;
mod selectors;
mod signals;
mod slots;
mod soak;
mod splice;
mod splice_maps;
mod splice_replace;
mod tensors;
mod timeline;
mod together;
mod tools;
mod torch;
mod touched;
mod trace;
mod trace_more;
mod tree;
mod unharmed;
mod uprobes;
mod user_ring;
mod waits;
mod ways;

use std::process::ExitCode;

use run::{Bench, Case};

const USAGE: &str = "\
usage: warpbpf-suite soft|gpu BUNDLE [PART-OF-A-NAME|K/N] [--quick] [--jobs N] [--show]
       warpbpf-suite list [PART-OF-A-NAME|K/N] [--quick]
       warpbpf-suite faults soft|gpu BUNDLE [SCENARIO [SITE:PASS]]
       warpbpf-suite soak soft|gpu BUNDLE SECONDS

  --quick   a dozen cases that pass through every part
  --jobs N  cases at once; without it as many as there are processors, on a GPU four at most
  --show    what a case printed is shown though the case passed";

/// Which cases: those with a part of their names, or each `N`th from the `K`th on, so that `N`
/// processes share all of them.
enum Chosen<'a> {
    Named(&'a str),
    Share(usize, usize),
}

impl Chosen<'_> {
    fn of(word: &str) -> Chosen<'_> {
        let share = word.split_once('/').and_then(|(share, of)| {
            let (share, of): (usize, usize) = (share.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&share).then_some((share, of))
        });
        share.map_or(Chosen::Named(word), |(share, of)| Chosen::Share(share, of))
    }

    fn takes(&self, index: usize, case: &Case) -> bool {
        match *self {
            Chosen::Named(part) => case.name.contains(part),
            Chosen::Share(share, of) => index % of == share - 1,
        }
    }
}

/// What was asked for by flags.
#[derive(Default)]
struct Flags {
    is_quick: bool,
    shows: bool,
    jobs: Option<usize>,
}

impl Flags {
    /// Takes the flags out of the arguments; `None` if one makes no sense.
    fn of(arguments: &mut Vec<String>) -> Option<Flags> {
        let mut flags = Flags::default();
        let mut words = std::mem::take(arguments).into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => flags.is_quick = true,
                "--show" => flags.shows = true,
                "--jobs" => flags.jobs = Some(words.next()?.parse().ok().filter(|n| *n > 0)?),
                flag if flag.starts_with("--") => return None,
                _ => arguments.push(word),
            }
        }
        Some(flags)
    }
}

fn main() -> ExitCode {
    say::status(work())
}

fn work() -> ExitCode {
    // Each run compiles what it runs, unless a case is about what is kept, or whoever runs all of
    // it wants it to be kept.
    if std::env::var_os("WARPBPF_CACHE").is_none() {
        // SAFETY: there is one thread yet.
        unsafe { std::env::set_var("WARPBPF_CACHE", "off") };
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let flags = Flags::of(&mut arguments);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let bench = |device: &str, folder: &str| Bench::new(folder, device == "soft");
    let done = match (flags, &words[..]) {
        (Some(_), ["faults", device @ ("soft" | "gpu"), folder]) => {
            Some(faults::all(&bench(device, folder), ""))
        }
        (Some(_), ["faults", device @ ("soft" | "gpu"), folder, name]) => {
            Some(faults::all(&bench(device, folder), name))
        }
        (Some(_), ["faults", device @ ("soft" | "gpu"), folder, name, fault]) => {
            Some(faults::one(&bench(device, folder), name, fault))
        }
        (Some(_), ["soak", device @ ("soft" | "gpu"), folder, seconds]) => seconds
            .parse()
            .ok()
            .map(|seconds| soaked(&bench(device, folder), seconds)),
        (Some(_), ["case", device @ ("soft" | "gpu"), folder, name, told]) => {
            one(&bench(device, folder), name, told)
        }
        (Some(flags), ["list", rest @ ..]) if rest.len() < 2 => {
            let cases = list::all();
            for case in choose(&cases, rest.first().copied(), &flags) {
                say!("{}", case.name);
            }
            Some(true)
        }
        (Some(flags), [device @ ("soft" | "gpu"), folder, rest @ ..]) if rest.len() < 2 => {
            Some(suite(device, folder, rest.first().copied(), &flags))
        }
        _ => None,
    };
    match done {
        Some(well) => ExitCode::from(u8::from(!well)),
        None => {
            crate::say::write(2, format_args!("{USAGE}\n"));
            ExitCode::from(2)
        }
    }
}

/// The cases that are asked for.
fn choose<'c>(cases: &'c [Case], word: Option<&str>, flags: &Flags) -> Vec<&'c Case> {
    let chosen = Chosen::of(word.unwrap_or_default());
    let numbered = cases.iter().enumerate();
    let taken = numbered.filter(|(index, case)| chosen.takes(*index, case));
    let quick = taken.filter(|(_, case)| !flags.is_quick || list::QUICK.contains(&case.name));
    quick.map(|(_, case)| case).collect()
}

/// The soak for so long; says what came of it.
fn soaked(bench: &Bench, seconds: u64) -> bool {
    let done = soak::soak(bench, std::time::Duration::from_secs(seconds));
    match &done {
        Ok(told) => say!("ok   {told}"),
        Err(reason) => say!("FAIL {reason}"),
    }
    done.is_ok()
}

/// What a process of a case does.
fn one(bench: &Bench, name: &str, told: &str) -> Option<bool> {
    let cases = list::all();
    let case = cases.iter().find(|case| case.name == name)?;
    Some(pool::inside(bench, case, told.as_ref()))
}

/// Runs cases and prints a line for each, in the order of the list. True if all is well.
fn suite(device: &str, folder: &str, word: Option<&str>, flags: &Flags) -> bool {
    let cases = list::all();
    let chosen = choose(&cases, word, flags);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let most = if device == "soft" {
        processors
    } else {
        processors.min(4)
    };
    let way = pool::Way {
        device: device.to_owned(),
        folder: folder.to_owned(),
        jobs: flags.jobs.unwrap_or(most),
        shows: flags.shows,
    };
    let (mut passed, mut skipped) = (0, 0);
    let mut failed: Vec<String> = Vec::new();
    pool::handle_signals();
    let left = pool::run(&way, &chosen, |case, done| {
        let line = |word: &str, told: &str| {
            let seconds = done.took.as_secs_f64();
            format!("{:<56} {word} {seconds:>6.1} s  {told}", case.name)
        };
        crate::say::write(1, format_args!("{}", done.output));
        if way.shows || done.told.is_err() {
            crate::say::write(1, format_args!("{}", done.errors));
        }
        match &done.told {
            Ok(told) if told.starts_with("skipped: ") => {
                skipped += 1;
                say!("{}", line("skip", told));
            }
            Ok(told) => {
                passed += 1;
                say!("{}", line("ok  ", told));
            }
            Err(reason) => {
                let line = line("FAIL", reason);
                say!("{line}");
                failed.push(line);
            }
        }
    });
    // Again, where whoever reads only the end of a long log sees them.
    for line in &failed {
        say!("{line}");
    }
    say!(
        "{passed} passed, {} failed, {skipped} skipped",
        failed.len()
    );
    if left > 0 {
        say!("{left} not run: a signal ended the suite");
    }
    failed.is_empty() && passed > 0 && left == 0
}
