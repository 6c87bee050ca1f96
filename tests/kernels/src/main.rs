//! `warpbpf-kernels soft|gpu BUNDLE` runs the corpus; `warpbpf-kernels text BUNDLE PTXAS` checks
//! its PTX without a device.

#[path = "../../../xtask/src/say.rs"]
#[macro_use]
mod say;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpbpf_kernels::bench::Bench;
use warpbpf_kernels::corpus::{self, Outcome};
use warpbpf_kernels::groups::{GROUPS, Group};
use warpbpf_kernels::ledger::{self, Entry};
use warpbpf_kernels::mutants::{self, Plan};
use warpbpf_kernels::probes::{PROBES, Probe};
use warpbpf_kernels::texts;

const USAGE: &str = "\
usage: warpbpf-kernels soft|gpu BUNDLE [GROUP…] [--probes NAME,…]   results and counts, on a device
       warpbpf-kernels text BUNDLE PTXAS [GROUP…]                   round trip, and what `ptxas` says of spliced kernels
       warpbpf-kernels mutants soft|gpu BUNDLE [--seed N] [--from INDEX] [--count N] [--seconds N] [--keep FOLDER] [--ptxas PTXAS]
                                                                    kernels that a fuzzer changed, with programs
";

fn main() -> ExitCode {
    say::status(work())
}

fn work() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [device @ ("soft" | "gpu"), folder, rest @ ..] => chosen(rest)
            .and_then(|(groups, probes)| on_device(*device == "soft", folder, &groups, &probes)),
        ["text", folder, ptxas, rest @ ..] => {
            chosen(rest).and_then(|(groups, _)| without_device(folder, ptxas, &groups))
        }
        ["mutants", device @ ("soft" | "gpu"), folder, rest @ ..] => {
            mutant_plan(*device == "soft", folder, rest).and_then(|plan| mutate(&plan))
        }
        _ => {
            crate::say::write(2, format_args!("{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            crate::say::write(2, format_args!("warpbpf-kernels: {reason}\n"));
            ExitCode::from(2)
        }
    }
}

fn mutant_plan(soft: bool, folder: &str, words: &[&str]) -> Result<Plan, String> {
    let mut plan = Plan {
        bundle: PathBuf::from(folder),
        soft,
        seed: 1,
        first: 0,
        count: u64::MAX,
        time: Duration::from_secs(60),
        keep: None,
        ptxas: None,
    };
    for pair in words.chunks(2) {
        let &[name, value] = pair else {
            return Err(format!("`{}` needs a value", pair[0]));
        };
        let number = || {
            let number = value.parse::<u64>();
            number.map_err(|_| format!("`{name} {value}`: give a number"))
        };
        match name {
            "--seed" => plan.seed = number()?,
            "--from" => plan.first = number()?,
            "--count" => plan.count = number()?,
            "--seconds" => plan.time = Duration::from_secs(number()?),
            "--keep" => plan.keep = Some(PathBuf::from(value)),
            "--ptxas" => plan.ptxas = Some(value.to_owned()),
            _ => return Err(format!("`{name}` is not known")),
        }
    }
    Ok(plan)
}

fn mutate(plan: &Plan) -> Result<bool, String> {
    let summary = mutants::run(plan, |text| say!("{text}"))?;
    crate::say::write(1, format_args!("{}", summary.table()));
    // A few mutants cannot be compared because they do not end; where it is most of them, something
    // else is wrong.
    let compared: u64 = summary.compared.values().sum();
    Ok(summary.wrong == 0 && summary.made > 0 && compared * 2 >= summary.made)
}

/// Groups and probes by name, all of them where none is named.
fn chosen(words: &[&str]) -> Result<(Vec<Group>, Vec<Probe>), String> {
    let (mut groups, mut probes) = (Vec::new(), PROBES.to_vec());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "--probes" {
            let names = words.next().ok_or("`--probes` needs names")?;
            probes.clear();
            for name in names.split(',').filter(|name| !name.is_empty()) {
                let known = PROBES.iter().find(|p| p.name == name);
                probes.push(*known.ok_or_else(|| format!("there is no probe `{name}`"))?);
            }
        } else {
            let known = GROUPS.iter().find(|g| g.name == *word);
            groups.push(*known.ok_or_else(|| format!("there is no group `{word}`"))?);
        }
    }
    if groups.is_empty() {
        groups = GROUPS.to_vec();
    }
    Ok((groups, probes))
}

fn on_device(soft: bool, folder: &str, groups: &[Group], probes: &[Probe]) -> Result<bool, String> {
    let list = ledger::parse(ledger::COMMITTED).map_err(|e| e.to_string())?;
    let outcomes = in_parallel(groups, |group| {
        let bench = Bench::new(folder, soft, group.name)?;
        let listed: Vec<&Entry> = list
            .iter()
            .filter(|entry| soft && entry.group == group.name)
            .collect();
        Ok(corpus::run(&bench, group, &listed, probes))
    });
    let mut total = Total::default();
    for (group, outcome) in groups.iter().zip(outcomes) {
        let outcome = outcome?;
        print(group, &outcome);
        total.add(&outcome);
    }
    say!(
        "{} kernels ran, {} results the same with programs in them, {} counts exact, {} kernels not on the soft GPU, {} wrong",
        total.ran,
        total.same,
        total.exact,
        total.not_run,
        total.wrong
    );
    let methods: Vec<String> = total
        .methods
        .iter()
        .map(|(method, n)| format!("{n} {method}"))
        .collect();
    say!("instrumented as: {}", methods.join(", "));
    Ok(total.wrong == 0 && total.ran > 0)
}

/// Groups know nothing of each other: one at a time for each processor. Results are in the order of
/// the groups.
fn in_parallel<T: Send>(
    groups: &[Group],
    run: impl Fn(&Group) -> Result<T, String> + Sync,
) -> Vec<Result<T, String>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<T, String>>>> =
        Mutex::new(groups.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(groups.len()) {
            scope.spawn(|| {
                while let Some((at, group)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    groups.get(at).map(|group| (at, group))
                } {
                    let result = run(group);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results[at] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err("it was not run".into())))
        .collect()
}

#[derive(Default)]
struct Total {
    ran: usize,
    same: usize,
    exact: usize,
    not_run: usize,
    wrong: usize,
    methods: BTreeMap<String, usize>,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.ran += outcome.ran.len();
        self.same += outcome.same;
        self.exact += outcome.exact;
        self.not_run += outcome.not_run.len();
        self.wrong += outcome.wrong.len();
        for row in outcome.rows.values() {
            *self.methods.entry(row.method.clone()).or_default() += 1;
        }
    }
}

fn print(group: &Group, outcome: &Outcome) {
    say!(
        "{} ({}): {} kernels, {} results the same with programs in them",
        group.name,
        group.about,
        outcome.ran.len(),
        outcome.same
    );
    for (kernel, row) in &outcome.rows {
        say!("  {kernel}: {}", row.method);
        for (probe, counts) in row.counts.iter().filter(|(_, counts)| !counts.is_empty()) {
            say!("    {probe:<12} {counts}");
        }
    }
    if !outcome.not_run.is_empty() {
        say!("  not on the soft GPU: {}", outcome.not_run.join(", "));
    }
    for reason in &outcome.wrong {
        say!("  WRONG {reason}");
    }
}

fn without_device(folder: &str, ptxas: &str, groups: &[Group]) -> Result<bool, String> {
    let folder = Path::new(folder);
    let each = in_parallel(groups, |group| {
        let files = texts::files(folder, group)?;
        let check =
            |file: PathBuf| texts::check(folder, &file, ptxas).map(|checked| (file, checked));
        files
            .into_iter()
            .map(check)
            .collect::<Result<Vec<_>, String>>()
    });
    let mut wrong = 0;
    let (mut files, mut bytes, mut spliced) = (0, 0, 0);
    for of_group in each {
        for (file, checked) in of_group? {
            files += 1;
            bytes += checked.bytes;
            spliced += checked.accepted.len();
            say!(
                "{}: {} bytes, {} kernels: {}",
                file.file_name().unwrap_or_default().to_string_lossy(),
                checked.bytes,
                checked.kernels,
                checked.accepted.join(", ")
            );
            for reason in &checked.wrong {
                say!("  WRONG {reason}");
            }
            wrong += checked.wrong.len();
        }
    }
    say!(
        "{files} files, {bytes} bytes come back as they are, ptxas accepts {spliced} instrumented texts, {wrong} wrong"
    );
    Ok(wrong == 0 && files > 0)
}
