//! Launches per kernel, over all images that were ever loaded.
//!
//! An entry lives as long as the agent, because a launch may be looking at it. But an image that is
//! loaded and unloaded again and again must not make the sums slower: what its kernels counted is
//! kept by name, and the entries are no longer looked at.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_session::LoadedVariant;
use warpbpf_session::client::OWN;
use warpbpf_wire::{ClientCounts, Counts, KernelCount, LaunchWriter};

use crate::kernels::entry::Entry;
use crate::sys::arena::Arena;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct KernelRegistry {
    inner: Mutex<Inner>,
    /// All that there were.
    kept: Arena<Entry>,
    numbers: Arena<AtomicU64>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<&'static Entry>,
    /// Launches of kernels whose images are gone.
    retired: HashMap<String, Sums>,
    /// The same as each tool has them.
    retired_of: BTreeMap<u32, HashMap<String, Sums>>,
    /// Second tools that are there, and those that have gone and are told their last launches.
    clients: Vec<u32>,
    gone: Vec<u32>,
    /// There was one: what launches are the first tool's is no longer what all are.
    shared: bool,
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
    uninstrumented: u64,
    skipped: u64,
    unwanted: u64,
}

/// Generations whose launches are told one by one: a tool that wants older ones has been told
/// before.
const GENERATIONS: usize = 8;

impl Sums {
    fn add(&mut self, entry: &Entry) {
        for (number, generation, count) in entry.launches() {
            self.add_launches(number, generation, count);
        }
        self.add_programs(entry, None);
        let [uninstrumented, skipped, unwanted] = entry.without();
        self.uninstrumented += uninstrumented;
        self.skipped += skipped;
        self.unwanted += unwanted;
    }

    /// What a tool would be told if it were alone: launches of others' programs are some of the
    /// original for it.
    fn add_as_of(&mut self, entry: &Entry, client: u32) {
        for place in entry.places() {
            // First, and so that what else counts these launches is seen as well.
            let all = place.launches.load(Ordering::Acquire);
            match place.launches_of(client) {
                Some(own) => {
                    self.add_launches(place.number, place.generation, own);
                    // The counters are not read at one moment.
                    self.skipped += all.saturating_sub(own);
                }
                None => match place.launches_without(client) {
                    Some(uninstrumented) => {
                        self.uninstrumented += uninstrumented;
                        self.skipped += all.saturating_sub(uninstrumented);
                    }
                    None if client == OWN => self.unwanted += all,
                    None => {}
                },
            }
        }
        self.add_programs(entry, Some(client));
        for tally in entry.tallies() {
            let [uninstrumented, skipped, unwanted] = tally.all();
            match tally
                .requests
                .iter()
                .find(|request| request.client == client)
            {
                Some(request) => {
                    let not_for_it = request.not_for_it().min(uninstrumented);
                    self.uninstrumented += uninstrumented - not_for_it;
                    self.skipped += skipped + not_for_it;
                    self.unwanted += unwanted;
                }
                None if client == OWN => self.unwanted += uninstrumented + skipped + unwanted,
                None => {}
            }
        }
    }

    fn add_launches(&mut self, number: u32, generation: u64, count: u64) {
        if count == 0 {
            return;
        }
        *self.launches.entry(number).or_default() += count;
        *self.generations.entry(generation).or_default() += count;
        if self.generations.len() > GENERATIONS {
            self.generations.pop_first();
        }
    }

    fn add_programs(&mut self, entry: &Entry, client: Option<u32>) {
        self.differ |= entry.programs_differ(client);
        for (number, program, count) in entry.launches_of_programs(client) {
            if !self.programs.contains_key(program) {
                self.programs.insert(program.to_owned(), BTreeMap::new());
            }
            if let Some(sums) = self.programs.get_mut(program) {
                *sums.entry(number).or_default() += count;
            }
        }
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
            uninstrumented: self.uninstrumented,
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

/// By name.
fn told(sums: HashMap<&str, Sums>) -> Vec<KernelCount> {
    let kernels = sums
        .into_iter()
        .map(|(mangled, sums)| sums.into_count(mangled));
    let mut kernels: Vec<KernelCount> = kernels.collect();
    kernels.sort_unstable_by(|a, b| a.mangled.cmp(&b.mangled));
    kernels
}

impl Inner {
    /// Launches as a tool has them: of a client, kernels that it wants or wanted.
    fn counts_of(&self, client: u32) -> ClientCounts {
        let known = self.retired_of.get(&client).into_iter().flatten();
        let mut sums: HashMap<&str, Sums> = known
            .map(|(name, sums)| (name.as_str(), sums.clone()))
            .collect();
        for entry in &self.entries {
            if client == OWN || entry.clients().any(|of| of == client) {
                let sums = sums.entry(&entry.mangled).or_default();
                sums.add_as_of(entry, client);
            }
        }
        ClientCounts {
            client,
            kernels: told(sums),
        }
    }
}

impl KernelRegistry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What numbers the launches of the kernels of this name. It lives as long as the agent, as
    /// entries do: there is one for each name.
    pub(crate) fn made(&self, mangled: &str) -> &'static AtomicU64 {
        let mut inner = self.lock();
        let made = inner.made.entry(mangled.to_owned());
        // SAFETY: the kernel registry is a part of an agent.
        made.or_insert_with(|| unsafe { self.numbers.keep(AtomicU64::default()) })
    }

    /// What stands for a kernel of this name in another image than those before.
    /// Its launches are counted in `shared`, too.
    pub(crate) fn add(
        &self,
        mangled: &str,
        shared: Option<&'static LaunchWriter>,
    ) -> &'static Entry {
        let entry = Entry::new(mangled.to_owned(), self.made(mangled)).counted_in(shared);
        // SAFETY: the kernel registry is a part of an agent.
        let entry = unsafe { self.kept.keep(entry) };
        self.lock().entries.push(entry);
        entry
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
            let mut clients: Vec<u32> = entry.clients().chain([OWN]).collect();
            clients.sort_unstable();
            clients.dedup();
            // Who has been forgotten is told nothing.
            let is_told = |client: &u32| {
                *client == OWN || inner.clients.contains(client) || inner.gone.contains(client)
            };
            clients.retain(is_told);
            for client in clients {
                let of = inner.retired_of.entry(client).or_default();
                let sums = of.entry(entry.mangled.clone()).or_default();
                sums.add_as_of(entry, client);
            }
        }
    }

    /// A second tool has come, which is told its launches.
    pub(crate) fn welcome(&self, client: u32) {
        let mut inner = self.lock();
        inner.clients.push(client);
        inner.shared = true;
    }

    /// It has gone, and wants to know its last ones.
    pub(crate) fn farewell(&self, client: u32) {
        let mut inner = self.lock();
        inner.clients.retain(|there| *there != client);
        inner.gone.push(client);
    }

    /// It knows them.
    pub(crate) fn forget(&self, client: u32) {
        let mut inner = self.lock();
        if inner.clients.contains(&client) {
            return;
        }
        inner.gone.retain(|gone| *gone != client);
        inner.retired_of.remove(&client);
    }

    /// Second tools that have gone and are told their last launches.
    pub(crate) fn leaving(&self) -> Vec<u32> {
        self.lock().gone.clone()
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
        let known = inner.retired.iter();
        let mut sums: HashMap<&str, Sums> = known
            .map(|(name, sums)| (name.as_str(), sums.clone()))
            .collect();
        for entry in &inner.entries {
            sums.entry(&entry.mangled).or_default().add(entry);
        }
        let clients = inner.clients.iter().chain(&inner.gone).copied();
        let clients = clients.chain(inner.shared.then_some(OWN));
        Counts {
            kernels: told(sums),
            clients: clients.map(|client| inner.counts_of(client)).collect(),
        }
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
    use crate::kernels::entry::Place;

    #[test]
    fn what_is_retired_still_counts() {
        let kernel_registry = KernelRegistry::default();
        let (a, again, b) = (
            kernel_registry.add("a", None),
            kernel_registry.add("a", None),
            kernel_registry.add("b", None),
        );
        a.add(Place::new(16, (0, 4), 1, (None, Choices::default())));
        b.add(Place::new(16, (0, 4), 1, (None, Choices::default())));
        b.add(Place::new(32, (1, 4), 1, (None, Choices::default())));
        let launch = |entry: &Entry, context, count| {
            let place = entry.place(context, 1).unwrap();
            place.launches.store(count, Ordering::Relaxed);
        };
        launch(a, 16, 5);
        let generations = crate::kernels::generation::Generations::default();
        let tally = again.tally(generations.now());
        tally.uninstrumented.store(2, Ordering::Relaxed);
        launch(b, 32, 1);
        let expected = |kernel_registry: &KernelRegistry| {
            let counts = kernel_registry.counts().kernels.into_iter();
            counts
                .map(|k| (k.mangled, k.launches, k.uninstrumented, k.contexts))
                .collect::<Vec<_>>()
        };
        let all = [
            ("a".to_string(), 5, 2, vec![(0, 5)]),
            ("b".to_string(), 1, 0, vec![(1, 1)]),
        ];
        assert_eq!(
            (expected(&kernel_registry), kernel_registry.launched()),
            (all.to_vec(), 8)
        );
        kernel_registry.retire(&[a, b]);
        assert_eq!(
            (expected(&kernel_registry), kernel_registry.launched()),
            (all.to_vec(), 8)
        );
        assert_eq!(kernel_registry.entries(), 1);
    }

    #[test]
    fn nothing_is_kept_of_who_is_told_no_more() {
        let kernel_registry = KernelRegistry::default();
        let wanted = || -> &'static Entry {
            let entry = kernel_registry.add("a", None);
            let place = Place::new(16, (0, 4), 1, (None, Choices::default()));
            entry.add(place.of(&[1, 2], &[]));
            entry
        };
        kernel_registry.welcome(1);
        kernel_registry.welcome(2);
        kernel_registry.farewell(1);
        kernel_registry.retire(&[wanted()]);
        let known = |kernel_registry: &KernelRegistry| {
            kernel_registry
                .lock()
                .retired_of
                .keys()
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(known(&kernel_registry), [OWN, 1, 2]);
        let clients_of = |kernel_registry: &KernelRegistry| {
            let clients = kernel_registry.counts().clients.into_iter();
            clients.map(|one| one.client).collect::<Vec<_>>()
        };
        assert_eq!(
            (kernel_registry.leaving(), clients_of(&kernel_registry)),
            (vec![1], vec![2, 1, OWN])
        );
        kernel_registry.forget(1);
        // It is still there, and its end will be heard of.
        kernel_registry.forget(2);
        kernel_registry.retire(&[wanted()]);
        assert_eq!(known(&kernel_registry), [OWN, 2]);
        assert_eq!(
            (kernel_registry.leaving(), clients_of(&kernel_registry)),
            (vec![], vec![2, OWN])
        );
        kernel_registry.farewell(2);
        kernel_registry.forget(2);
        // What clients alone were in is no launch of the first tool's, for good.
        assert_eq!(clients_of(&kernel_registry), [OWN]);
    }

    #[test]
    fn numbers_go_on_by_name() {
        let kernel_registry = KernelRegistry::default();
        let (a, b) = (kernel_registry.made("a"), kernel_registry.made("b"));
        assert_eq!(a.fetch_add(3, Ordering::Relaxed), 0);
        assert_eq!(b.fetch_add(1, Ordering::Relaxed), 0);
        assert_eq!(kernel_registry.made("a").load(Ordering::Relaxed), 3);
        assert_eq!(kernel_registry.begun(), 4);
        assert!(std::ptr::eq(kernel_registry.made("a"), a));
    }
}
