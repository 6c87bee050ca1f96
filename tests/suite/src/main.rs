//! The end-to-end suite: real programs, the real command, exact numbers; the same cases on the soft GPU and on a GPU.
//!
//! It is a program and not a `#[test]`, because a machine with a GPU has no Rust: it travels in the bundle.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]

mod attach;
mod attach_more;
mod backends;
mod bad_input;
mod blocks;
mod bpftime;
mod cache;
mod cached;
mod choice;
mod churn;
mod counts;
mod devices;
mod drain;
mod driver_api;
mod extension;
mod faults;
mod gate;
mod graphs;
mod guests;
mod helpers;
mod host_ops;
mod instructions;
mod jit;
mod late_tools;
mod launching;
mod library;
mod links;
mod linux;
mod loader;
mod loader_maps;
mod lookup;
mod maps_hash;
mod maps_host;
mod maps_inner;
mod maps_more;
mod memory;
mod places;
mod ranges;
mod ranges_later;
mod run;
mod selectors;
mod slots;
mod splice;
mod splice_maps;
mod splice_swap;
mod swap;
mod tensors;
mod timeline;
mod together;
mod torch;
mod uprobes;
mod user_ring;
mod waits;
mod ways;

use run::{Bench, Case};

const USAGE: &str = "\
usage: warpbpf-suite soft|gpu BUNDLE [PART-OF-A-NAME|K/N]
       warpbpf-suite faults soft|gpu BUNDLE [SCENARIO [SITE:PASS]]";

/// Which cases: those with a part of their names, or each `N`th from the `K`th on, so that `N` processes share all of them.
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

/// `faults`: everything that can be made to fail, or one fault.
fn faults_alone(arguments: &[String]) -> Option<std::process::ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let bench = |device: &str, folder: &str| Bench::new(folder, device == "soft");
    let well = match words[..] {
        ["faults", device @ ("soft" | "gpu"), folder] => faults::all(&bench(device, folder), ""),
        ["faults", device @ ("soft" | "gpu"), folder, name] => {
            faults::all(&bench(device, folder), name)
        }
        ["faults", device @ ("soft" | "gpu"), folder, name, fault] => {
            faults::one(&bench(device, folder), name, fault)
        }
        _ => return None,
    };
    Some(std::process::ExitCode::from(u8::from(!well)))
}

fn main() -> std::process::ExitCode {
    // Each run compiles what it runs, unless a case is about what is kept, or whoever runs all of it wants it to be kept.
    if std::env::var_os("WARPBPF_CACHE").is_none() {
        // SAFETY: there is one thread yet.
        unsafe { std::env::set_var("WARPBPF_CACHE", "off") };
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = faults_alone(&arguments) {
        return code;
    }
    let (device, folder, only) = match arguments.as_slice() {
        [device, folder] if device == "soft" || device == "gpu" => {
            (device.clone(), folder.clone(), String::new())
        }
        [device, folder, only] if device == "soft" || device == "gpu" => {
            (device.clone(), folder.clone(), only.clone())
        }
        _ => {
            eprintln!("{USAGE}");
            return std::process::ExitCode::from(2);
        }
    };
    let bench = Bench::new(&folder, device == "soft");
    let mut cases: Vec<Case> = Vec::new();
    cases.extend(counts::cases());
    cases.extend(helpers::cases());
    cases.extend(maps_more::cases());
    cases.extend(maps_hash::cases());
    cases.extend(churn::cases());
    cases.extend(maps_host::cases());
    cases.extend(maps_inner::cases());
    cases.extend(memory::cases());
    cases.extend(host_ops::cases());
    cases.extend(library::cases());
    cases.extend(together::cases());
    cases.extend(user_ring::cases());
    cases.extend(bpftime::cases());
    cases.extend(lookup::cases());
    cases.extend(drain::cases());
    cases.extend(graphs::cases());
    cases.extend(blocks::cases());
    cases.extend(cache::cases());
    cases.extend(choice::cases());
    cases.extend(links::cases());
    cases.extend(ranges::cases());
    cases.extend(ranges_later::cases());
    cases.extend(devices::cases());
    cases.extend(driver_api::cases());
    cases.extend(jit::cases());
    cases.extend(launching::cases());
    cases.extend(linux::cases());
    cases.extend(uprobes::cases());
    cases.extend(places::cases());
    cases.extend(tensors::cases());
    cases.extend(timeline::cases());
    cases.extend(torch::cases());
    cases.extend(extension::cases());
    cases.extend(waits::cases());
    cases.extend(selectors::cases());
    cases.extend(splice::cases());
    cases.extend(backends::cases());
    cases.extend(splice_maps::cases());
    cases.extend(splice_swap::cases());
    cases.extend(instructions::cases());
    cases.extend(loader::cases());
    cases.extend(loader_maps::cases());
    cases.extend(late_tools::cases());
    cases.extend(attach::cases());
    cases.extend(cached::cases());
    cases.extend(attach_more::cases());
    cases.extend(ways::cases());
    cases.extend(swap::cases());
    cases.extend(guests::cases());
    cases.extend(gate::cases());
    cases.extend(slots::cases());
    cases.extend(bad_input::cases());
    cases.extend(faults::cases());
    let (mut passed, mut skipped) = (0, 0);
    let mut failed: Vec<String> = Vec::new();
    let chosen = Chosen::of(&only);
    let taken = cases.iter().enumerate();
    for (_, case) in taken.filter(|(index, case)| chosen.takes(*index, case)) {
        match (case.check)(&bench) {
            Ok(told) if told.starts_with("skipped: ") => {
                skipped += 1;
                println!("{:<44} skip  {told}", case.name);
            }
            Ok(told) => {
                passed += 1;
                println!("{:<44} ok    {told}", case.name);
            }
            Err(reason) => {
                let line = format!("{:<44} FAIL  {reason}", case.name);
                println!("{line}");
                failed.push(line);
            }
        }
    }
    // Again, where whoever reads only the end of a long log sees them.
    for line in &failed {
        println!("{line}");
    }
    println!(
        "{passed} passed, {} failed, {skipped} skipped",
        failed.len()
    );
    std::process::ExitCode::from(u8::from(!failed.is_empty() || passed == 0))
}
