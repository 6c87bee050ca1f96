//! Launches per kernel, over all images that were ever loaded.
//!
//! An entry is never freed, because a launch may be looking at it. But an image that is loaded and unloaded again and
//! again must not make the sums slower: what its kernels counted is kept by name, and the entries are let go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_session::LoadedVariant;
use warpbpf_wire::{Counts, KernelCount};

use crate::entry::Entry;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<&'static Entry>,
    /// Launches of kernels whose images are gone.
    retired: HashMap<String, Sums>,
    /// Sum of the above.
    retired_launches: u64,
    /// Launches that were asked for, by name: numbers go on when an image is loaded again.
    made: HashMap<String, &'static AtomicU64>,
}

/// Launches by the number of their maps, and those without probes.
#[derive(Debug, Clone, Default)]
struct Sums {
    launches: BTreeMap<u32, u64>,
    /// The same by generation, of the last few.
    generations: BTreeMap<u64, u64>,
    /// Those that programs were in, by the number of the maps.
    programs: BTreeMap<String, BTreeMap<u32, u64>>,
    /// Programs were in different ones: by now, what each was in before counts as well.
    differ: bool,
    missed: u64,
    skipped: u64,
    unwanted: u64,
}

/// Generations whose launches are told one by one: a tool that wants older ones has been told before.
const GENERATIONS: usize = 8;

impl Sums {
    fn add(&mut self, entry: &Entry) {
        for (number, generation, count) in entry.launches().filter(|(.., count)| *count > 0) {
            *self.launches.entry(number).or_default() += count;
            *self.generations.entry(generation).or_default() += count;
            if self.generations.len() > GENERATIONS {
                self.generations.pop_first();
            }
        }
        self.differ |= entry.programs_differ();
        for (number, program, count) in entry.launches_of_programs() {
            if !self.programs.contains_key(program) {
                self.programs.insert(program.to_owned(), BTreeMap::new());
            }
            if let Some(sums) = self.programs.get_mut(program) {
                *sums.entry(number).or_default() += count;
            }
        }
        let [missed, skipped, unwanted] = entry.without();
        self.missed += missed;
        self.skipped += skipped;
        self.unwanted += unwanted;
    }

    fn into_count(self, mangled: &str) -> KernelCount {
        let programs = match self.differ {
            true => self.programs,
            false => BTreeMap::new(),
        };
        let contexts: Vec<(u32, u64)> = self.launches.into_iter().filter(|(_, n)| *n > 0).collect();
        let in_context = |context: u32| {
            let of = |sums: &BTreeMap<u32, u64>| sums.get(&context).copied().unwrap_or(0);
            let all = programs.iter();
            all.map(|(program, sums)| (program.clone(), of(sums)))
                .collect()
        };
        let context_programs = match programs.is_empty() {
            true => Vec::new(),
            false => contexts
                .iter()
                .map(|(context, _)| (*context, in_context(*context)))
                .collect(),
        };
        KernelCount {
            mangled: mangled.into(),
            launches: contexts.iter().map(|(_, count)| count).sum(),
            missed: self.missed,
            skipped: self.skipped,
            unwanted: self.unwanted,
            generations: self.generations.into_iter().collect(),
            context_programs,
            programs: (programs.into_iter())
                .map(|(program, sums)| (program, sums.into_values().sum()))
                .collect(),
            contexts,
        }
    }
}

impl Roster {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What numbers the launches of the kernels of this name. Never freed, as entries are not: there is one for each name.
    pub(crate) fn made(&self, mangled: &str) -> &'static AtomicU64 {
        let mut inner = self.lock();
        let made = inner.made.entry(mangled.to_owned());
        made.or_insert_with(|| Box::leak(Box::default()))
    }

    /// Remembers an entry.
    pub(crate) fn add(&self, entry: &'static Entry) {
        self.lock().entries.push(entry);
    }

    /// These are launched no more.
    pub(crate) fn retire(&self, gone: &[&'static Entry]) {
        let mut inner = self.lock();
        let leaving: HashSet<*const Entry> = gone.iter().map(|e| std::ptr::from_ref(*e)).collect();
        inner
            .entries
            .retain(|e| !leaving.contains(&std::ptr::from_ref(*e)));
        for entry in gone {
            inner.retired_launches += entry.launched();
            let sums = inner.retired.entry(entry.mangled.clone()).or_default();
            sums.add(entry);
        }
    }

    /// All that runs in kernels' places in a context.
    pub(crate) fn variants(&self, context: usize) -> Vec<Arc<LoadedVariant>> {
        let inner = self.lock();
        let places = inner.entries.iter().flat_map(|e| e.places_in(context));
        places.filter_map(|place| place.variant.clone()).collect()
    }

    /// Launches so far, per kernel name, by name.
    pub(crate) fn counts(&self) -> Counts {
        let inner = self.lock();
        let mut sums: HashMap<&str, Sums> = inner
            .retired
            .iter()
            .map(|(name, sums)| (name.as_str(), sums.clone()))
            .collect();
        for entry in &inner.entries {
            sums.entry(&entry.mangled).or_default().add(entry);
        }
        let mut kernels: Vec<KernelCount> = sums
            .into_iter()
            .map(|(mangled, sums)| sums.into_count(mangled))
            .collect();
        kernels.sort_unstable_by(|a, b| a.mangled.cmp(&b.mangled));
        Counts { kernels }
    }

    /// Launches that were asked for so far, with or without a variant.
    pub(crate) fn begun(&self) -> u64 {
        let inner = self.lock();
        inner
            .made
            .values()
            .map(|made| made.load(Ordering::Relaxed))
            .sum()
    }

    /// Sum of all launches so far.
    pub(crate) fn launched(&self) -> u64 {
        let inner = self.lock();
        let live: u64 = inner.entries.iter().map(|entry| entry.launched()).sum();
        inner.retired_launches + live
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.lock().entries.len()
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_session::choices::Choices;

    use super::*;
    use crate::entry::Place;

    #[test]
    fn what_is_retired_still_counts() {
        let roster = Roster::default();
        let leak = |name: &str| -> &'static Entry {
            let made = roster.made(name);
            Box::leak(Box::new(Entry::new(name.into(), made)))
        };
        let (a, again, b) = (leak("a"), leak("a"), leak("b"));
        for entry in [a, again, b] {
            roster.add(entry);
        }
        a.add(Place::new(16, (0, 4), 1, (None, Choices::default())));
        b.add(Place::new(16, (0, 4), 1, (None, Choices::default())));
        b.add(Place::new(32, (1, 4), 1, (None, Choices::default())));
        let launch = |entry: &Entry, context, count| {
            let place = entry.place(context, 1).unwrap();
            place.launches.store(count, Ordering::Relaxed);
        };
        launch(a, 16, 5);
        again.missed.store(2, Ordering::Relaxed);
        launch(b, 32, 1);
        let expected = |roster: &Roster| {
            let counts = roster.counts().kernels.into_iter();
            counts
                .map(|k| (k.mangled, k.launches, k.missed, k.contexts))
                .collect::<Vec<_>>()
        };
        let all = [
            ("a".to_string(), 5, 2, vec![(0, 5)]),
            ("b".to_string(), 1, 0, vec![(1, 1)]),
        ];
        assert_eq!((expected(&roster), roster.launched()), (all.to_vec(), 8));
        roster.retire(&[a, b]);
        assert_eq!((expected(&roster), roster.launched()), (all.to_vec(), 8));
        assert_eq!(roster.entries(), 1);
    }

    #[test]
    fn numbers_go_on_by_name() {
        let roster = Roster::default();
        let (a, b) = (roster.made("a"), roster.made("b"));
        assert_eq!(a.fetch_add(3, Ordering::Relaxed), 0);
        assert_eq!(b.fetch_add(1, Ordering::Relaxed), 0);
        assert_eq!(roster.made("a").load(Ordering::Relaxed), 3);
        assert_eq!(roster.begun(), 4);
        assert!(std::ptr::eq(roster.made("a"), a));
    }
}
