//! Launches that an agent counts in memory which it shares: what its messages told is a second old,
//! and the last second of a process that is killed is there alone. And how many launches' data are
//! missing of one that has ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use warpbpf_wire::{Kernel, KernelCount, LaunchKind, LaunchReader, Launches, Method, Missing};

use crate::heard::kept::{ELEMENT, Kept};

/// When launches came that had no programs any more.
const LATE: &str = "in exit handlers or destructors, when all others had been brought home";
/// Sets of programs whose launches are told one by one, as agents do.
const GENERATIONS: usize = 8;

/// What there is of them.
#[derive(Debug, Default)]
pub(crate) enum Counted {
    /// Nothing.
    #[default]
    Nowhere,
    /// The memory.
    Shared(LaunchReader),
    /// What was missing in the end.
    Kept(Missing),
}

/// Raises a number in a list that is in order. True if it is new there.
fn raise<K: Ord>(list: &mut Vec<(K, u64)>, key: K, number: u64) -> bool {
    match list.binary_search_by(|(known, _)| known.cmp(&key)) {
        Ok(at) => {
            list[at].1 = list[at].1.max(number);
            false
        }
        Err(at) => {
            list.insert(at, (key, number));
            true
        }
    }
}

/// Launches of one kernel by their rows.
#[derive(Debug, Default)]
struct Sums<'a> {
    contexts: BTreeMap<u32, u64>,
    generations: BTreeMap<u64, u64>,
    programs: BTreeMap<(&'a str, u32), u64>,
    /// Its programs are in different launches.
    differ: bool,
    without: [u64; 3],
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, number: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(number);
}

impl<'a> Sums<'a> {
    fn by_kernel(launches: &'a Launches) -> HashMap<&'a str, Sums<'a>> {
        let mut all: HashMap<&str, Sums<'_>> = HashMap::new();
        for (row, number) in launches
            .rows
            .iter()
            .filter(|(row, _)| !row.kernel.is_empty())
        {
            let sums = all.entry(&row.kernel).or_default();
            let mut without = |kind: usize| {
                sums.without[kind] = sums.without[kind].saturating_add(*number);
            };
            match row.kind {
                LaunchKind::With => {
                    add(&mut sums.contexts, row.context, *number);
                    add(&mut sums.generations, row.generation, *number);
                }
                LaunchKind::Chosen => sums.differ = true,
                LaunchKind::Uninstrumented => without(0),
                LaunchKind::Skipped => without(1),
                LaunchKind::Unwanted => without(2),
            }
            for program in &row.programs {
                add(&mut sums.programs, (program, row.context), *number);
            }
        }
        all
    }

    /// What was told, where that is more, or this. The bytes of what is new.
    fn raise(self, count: &mut KernelCount) -> usize {
        for (context, number) in self.contexts.into_iter().filter(|(_, n)| *n > 0) {
            raise(&mut count.contexts, context, number);
        }
        let all = count.contexts.iter().map(|(_, number)| *number);
        count.launches = count.launches.max(all.fold(0, u64::saturating_add));
        for (generation, number) in self.generations.into_iter().filter(|(_, n)| *n > 0) {
            raise(&mut count.generations, generation, number);
        }
        let surplus = count.generations.len().saturating_sub(GENERATIONS);
        count.generations.drain(..surplus);
        let [uninstrumented, skipped, unwanted] = self.without;
        count.uninstrumented = count.uninstrumented.max(uninstrumented);
        count.skipped = count.skipped.max(skipped);
        count.unwanted = count.unwanted.max(unwanted);
        let mut bytes = 0;
        if !self.differ {
            return bytes;
        }
        let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
        for ((program, context), number) in self.programs {
            add(&mut programs, program, number);
            if count.contexts.iter().all(|(known, _)| *known != context) {
                continue;
            }
            let of = &mut count.context_programs;
            let at = of.iter().position(|(known, _)| *known == context);
            let at = at.unwrap_or_else(|| {
                of.push((context, Vec::new()));
                of.len() - 1
            });
            if raise(&mut of[at].1, program.to_owned(), number) {
                bytes += program.len() + ELEMENT;
            }
        }
        for (program, number) in programs {
            if raise(&mut count.programs, program.to_owned(), number) {
                bytes += program.len() + ELEMENT;
            }
        }
        bytes
    }
}

impl Counted {
    /// Brings what is known of launches up to date, and tells what is missing. What is new in
    /// `counts` is more than is kept where there is an error.
    pub(crate) fn look(
        &mut self,
        counts: &mut HashMap<String, KernelCount>,
        kept: &mut Kept,
    ) -> (Option<Missing>, Result<(), String>) {
        let launches = match self {
            Counted::Nowhere => return (None, Ok(())),
            Counted::Shared(reader) => reader.look(),
            Counted::Kept(missing) => return (Some(*missing), Ok(())),
        };
        let missing = launches.missing();
        let mut bytes = 0;
        for (kernel, sums) in Sums::by_kernel(&launches) {
            let count = counts.entry(kernel.to_owned()).or_insert_with(|| {
                bytes += kernel.len() + ELEMENT;
                KernelCount {
                    mangled: kernel.to_owned(),
                    ..KernelCount::default()
                }
            });
            bytes += sums.raise(count);
        }
        // Names that come again and again are not an agent's.
        let kept = kept.keep(bytes);
        if kept.is_err() {
            *self = Counted::Kept(missing);
        }
        (Some(missing), kept)
    }
}

/// Kernels whose launches are counted, and of which nothing was told.
pub(crate) fn untold(
    counts: &HashMap<String, KernelCount>,
    kernels: &[Kernel],
    generation: u64,
) -> Vec<Kernel> {
    let told: HashSet<&str> = kernels.iter().map(|k| k.mangled.as_str()).collect();
    let unknown = counts.values();
    let unknown =
        unknown.filter(|count| count.launches > 0 && !told.contains(count.mangled.as_str()));
    let mut unknown: Vec<Kernel> = unknown
        .map(|count| Kernel {
            mangled: count.mangled.clone(),
            demangled: count.mangled.clone(),
            method: Method::NotTold,
            instrumented: true,
            generation,
            ..Kernel::default()
        })
        .collect();
    unknown.sort_unstable_by(|a, b| a.mangled.cmp(&b.mangled));
    unknown
}

/// What a person should know of data that are missing.
pub(crate) fn told_of(pid: u32, missing: Missing, said_goodbye: bool) -> Vec<String> {
    let Missing {
        launches,
        kernels_ran,
        late,
    } = missing;
    let counted = |number: u64| match number {
        1 => "launch".to_owned(),
        many => format!("{many} launches"),
    };
    let mut texts = Vec::new();
    let ended = match said_goodbye {
        true => "",
        false => " ended without a good-bye",
    };
    match (launches, kernels_ran) {
        (0, Some(true)) if !said_goodbye => texts.push(format!(
            "process {pid} ended while kernels ran: some of their data are missing"
        )),
        (0, None) if !said_goodbye => texts.push(format!(
            "process {pid}{ended}: if kernels still ran at the last copy of its data, some of theirs are missing"
        )),
        (0, _) => {}
        (_, kernels_ran) => {
            let more = match kernels_ran {
                Some(false) => "",
                Some(true) => ", and some of kernels that still ran at the last copy before",
                None => {
                    ", and some of kernels that still ran at the last copy before, if any did"
                }
            };
            let last = counted(launches);
            texts.push(format!(
                "process {pid}{ended}: the data of its last {last} are missing{more}"
            ));
        }
    }
    if late > 0 {
        let number = match late {
            1 => "1 launch".to_owned(),
            many => counted(many),
        };
        texts.push(format!(
            "process {pid}: the data of {number} are missing that came {LATE}"
        ));
    }
    texts
}

#[cfg(test)]
mod tests;
