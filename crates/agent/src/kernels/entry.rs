//! A kernel of an image, and what runs in its place in each context. Read by launches without a
//! lock.
//!
//! A library's kernel has one handle in all contexts, so what stands for a handle must know the
//! contexts itself: a list to which places are only ever added, at its front. It is as long as the
//! contexts that ran the kernel are many.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_session::LoadedVariant;
use warpbpf_session::choices::Choices;
use warpbpf_session::client::OWN;
use warpbpf_wire::{LaunchKind, LaunchRow, LaunchWriter};

use crate::kernels::clients::{KernelRequest, Tallies, Tally, VariantClient};
use crate::kernels::generation::Generation;
use crate::sys::list::List;

/// No context's handle.
const NO_CONTEXT: usize = usize::MAX;

/// A kernel that programs want, in one image. It lives as long as the agent, because a launch may
/// be looking at it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Name in the image.
    pub(crate) mangled: String,
    /// Launches that the application asked for, of all kernels of this name.
    pub(crate) made: &'static AtomicU64,
    /// Launches of the original.
    tallies: Tallies,
    /// Where launches are counted for the tool at once.
    shared: Option<&'static LaunchWriter>,
    /// Handles under which it is in the table.
    handles: Mutex<Vec<Handle>>,
    places: List<Place>,
    /// The last generation whose probes took longer than the user allows (`watchdog`); 0 if none
    /// did.
    pub(crate) too_dear: AtomicU64,
    pub(crate) told_failed: AtomicBool,
    pub(crate) told_residency: AtomicBool,
    /// Launches that programs would be in, where it is measured what they cost.
    pub(crate) candidates: AtomicU64,
    pub(crate) told_context: AtomicBool,
    pub(crate) told_overlap: AtomicBool,
    pub(crate) told_compaction: AtomicBool,
    /// Some run without those who came later.
    pub(crate) told_alone: AtomicBool,
}

/// A handle and the context that it is of, which is `None` for that of a library's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) value: usize,
    pub(crate) context: Option<usize>,
}

/// What became of a kernel in one context.
#[derive(Debug)]
pub(crate) struct Place {
    /// [`NO_CONTEXT`] once it has ended.
    context: AtomicUsize,
    /// The number of its maps.
    pub(crate) number: u32,
    /// The programs in it: launches of another generation have places of their own.
    pub(crate) generation: u64,
    /// What runs in the kernel's place; `None` if that could not be made, which the user was told,
    /// or if nobody wants it.
    pub(crate) variant: Option<Arc<LoadedVariant>>,
    /// Of the programs that want the kernel, whether it could be made or not, and whether they are
    /// in it: what nobody chose is no fallback.
    pub(crate) choices: Choices,
    /// By choice of the variant's programs, its bit among those; empty if they are the same.
    bits: Box<[u32]>,
    /// A program wants the kernel.
    wanted: AtomicBool,
    /// The generation whose programs it waits for, if those before did not want it; 0 if it is not
    /// there for that.
    awaited: AtomicU64,
    /// A graph got the variant, and may launch it for as long as it likes.
    pub(crate) in_graphs: AtomicBool,
    /// Multiprocessors of its device.
    pub(crate) sms: u32,
    /// Launches of the variant.
    pub(crate) launches: AtomicU64,
    /// Of those, by choice of its programs, those that it takes; none where the choices do not
    /// differ.
    taken: Box<[AtomicU64]>,
    /// What counts launches of the variant in memory that the tool sees: all, and behind that,
    /// parallel to `taken`, those. Empty where there is none.
    shared: Box<[&'static AtomicU64]>,
    /// Whose programs are in the variant.
    clients: Box<[VariantClient]>,
    /// Who wants the kernel; not all need be in the variant.
    wanted_by: Box<[u32]>,
    /// Those who are not: their choices are bits of [`Place::choices`], and counted is what they
    /// would have been in.
    absent: Box<[VariantClient]>,
    /// What runs where the variant with programs of several tools cannot: that without those who
    /// came later.
    pub(crate) alone: Option<&'static Place>,
}

impl Place {
    pub(crate) fn new(
        context: usize,
        (number, sms): (u32, u32),
        generation: u64,
        (variant, choices): (Option<Arc<LoadedVariant>>, Choices),
    ) -> Place {
        let of_variant = variant.as_ref().map(|variant| &variant.choices);
        let bits = of_variant.map(|own| own.bits_in(&choices));
        let (choices, bits) = match (of_variant, bits) {
            // There are too many to tell apart: what others want that are not in it does not count.
            (Some(own), Some(None)) => (own.clone(), Vec::new()),
            (_, bits) => (choices, bits.flatten().unwrap_or_default()),
        };
        let differ = of_variant.filter(|own| own.differ());
        let taken = differ.map_or(0, |own| own.all().len());
        let clients = of_variant.map(|own| VariantClient::all(own, &[]));
        Place {
            context: AtomicUsize::new(context),
            number,
            generation,
            variant,
            choices,
            bits: bits.into(),
            wanted: AtomicBool::new(true),
            awaited: AtomicU64::new(0),
            in_graphs: AtomicBool::new(false),
            sms,
            launches: AtomicU64::new(0),
            taken: (0..taken).map(|_| AtomicU64::new(0)).collect(),
            shared: Box::default(),
            clients: clients.unwrap_or_default(),
            wanted_by: Box::default(),
            absent: Box::default(),
            alone: None,
        }
    }

    /// The same, wanted by these tools, of which the `idle` ones have no place in it.
    pub(crate) fn of(mut self, wanted_by: &[u32], idle: &[u32]) -> Place {
        if let Some(variant) = self.variant.as_ref().filter(|_| !idle.is_empty()) {
            self.clients = VariantClient::all(&variant.choices, idle);
        }
        let wanted_by = wanted_by.iter().filter(|client| !idle.contains(client));
        self.wanted_by = wanted_by.copied().collect();
        let is_in = |client: &u32| self.clients.iter().any(|one| one.client == *client);
        let absent = self.wanted_by.iter().filter(|client| !is_in(client));
        let absent = absent.map(|client| VariantClient::absent(*client, &self.choices));
        self.absent = absent.collect();
        self
    }

    /// What counts a launch of the variant beside [`Place::launches`].
    fn parts(&self, chosen: Chosen) -> impl Iterator<Item = &AtomicU64> {
        let taken = self.taken.iter().enumerate();
        let taken = taken.filter(move |(bit, _)| chosen.own >> bit & 1 != 0);
        let shared = self.shared.iter().enumerate();
        let shared = shared.filter(move |(at, _)| *at == 0 || chosen.own >> (at - 1) & 1 != 0);
        let clients = (self.clients.iter()).filter(move |p| chosen.own & p.mask != 0);
        let absent = (self.absent.iter()).filter(move |p| chosen.all & p.mask != 0);
        taken
            .map(|(_, counter)| counter)
            .chain(shared.map(|(_, counter)| *counter))
            .chain(clients.filter_map(|one| one.taken.as_ref()))
            .chain(absent.filter_map(|one| one.taken.as_ref()))
    }

    /// Of the choices of all programs that want the kernel, those of the programs in its variant:
    /// what launches of it are told, and counted by.
    #[inline]
    pub(crate) fn of_variant(&self, chosen: u64) -> u64 {
        if self.bits.is_empty() || chosen == u64::MAX {
            return chosen;
        }
        let bits = self.bits.iter().enumerate();
        bits.fold(0, |mask, (own, bit)| mask | (chosen >> bit & 1) << own)
    }

    /// Launches of the variant that a tool had a program in; `None` if it has none in it.
    pub(crate) fn launches_of(&self, client: u32) -> Option<u64> {
        let one = self.clients.iter().find(|one| one.client == client)?;
        let counter = one.taken.as_ref().unwrap_or(&self.launches);
        Some(counter.load(Ordering::Relaxed))
    }

    /// Second tools have programs in the variant.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients.iter().any(|one| one.client != OWN)
    }

    /// Second tools with programs in the variant that have none in that of `other`.
    pub(crate) fn clients_beside(&self, other: &Place) -> Vec<u32> {
        let clients = self.clients.iter().map(|one| one.client);
        let lacks = |client: &u32| other.clients.iter().all(|one| one.client != *client);
        clients
            .filter(|client| *client != OWN && lacks(client))
            .collect()
    }

    /// Launches of the variant that a tool would have a program in which has none in it; `None` if
    /// it does not want the kernel.
    pub(crate) fn launches_without(&self, client: u32) -> Option<u64> {
        let one = self.absent.iter().find(|one| one.client == client)?;
        Some(one.taken.as_ref()?.load(Ordering::Relaxed))
    }

    /// Launches that each program was in, of one tool or all.
    fn launches_of_programs(&self, client: Option<u32>) -> impl Iterator<Item = (&str, u64)> {
        let variant = self.variant.iter();
        let programs = variant.flat_map(|variant| {
            let choices = &variant.choices;
            choices.programs().iter().zip(choices.clients())
        });
        let programs = programs.filter(move |(_, of)| client.is_none_or(|client| client == **of));
        programs.map(|((program, bit), _)| {
            let counter = self.taken.get(*bit as usize).unwrap_or(&self.launches);
            (program.as_str(), counter.load(Ordering::Relaxed))
        })
    }

    /// A program wants the kernel.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// A program wants it, or none does.
    pub(crate) fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// It is there so that launches count as uninstrumented until the programs of a generation
    /// come.
    pub(crate) fn await_programs(&self, generation: u64) {
        self.awaited.store(generation, Ordering::Relaxed);
        self.set_wanted(true);
    }

    /// It waits for programs of this generation, or did.
    pub(crate) fn awaits(&self, generation: u64) -> bool {
        self.awaited.load(Ordering::Relaxed) == generation
    }

    /// It waits for programs, or did.
    pub(crate) fn has_waited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) != 0
    }

    /// The programs that it waits for do not come: nobody wants the kernel.
    pub(crate) fn give_up_waiting(&self) {
        self.set_wanted(false);
    }

    /// No launch is of it: its programs did not come into force, or are no more and were left.
    pub(crate) fn void(&self) {
        self.context.store(NO_CONTEXT, Ordering::Relaxed);
    }

    /// Its variant was launched, or is in a graph.
    fn was_used(&self) -> bool {
        self.launches.load(Ordering::SeqCst) > 0 || self.in_graphs.load(Ordering::SeqCst)
    }

    /// The same variant runs here.
    fn has(&self, variant: &Arc<LoadedVariant>) -> bool {
        let own = self.variant.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, variant))
    }

    /// The context, unless it has ended.
    pub(crate) fn context(&self) -> Option<usize> {
        let context = self.context.load(Ordering::Relaxed);
        (context != NO_CONTEXT).then_some(context)
    }
}

/// The choices that take a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    /// Of the programs in the variant, by their bits there: what its code is told.
    pub(crate) own: u64,
    /// Of all programs that want the kernel, by their bits in [`Place::choices`].
    pub(crate) all: u64,
}

/// What of a kernel runs in a node of a graph.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runs {
    /// The variant of a context, and the choices that take the launches.
    Variant(&'static Place, Chosen),
    /// The original, for lack of a variant, and the requests that the launches are not for
    /// ([`Tally::not_for`]).
    Original(&'static Tally, u64),
    /// The original, because the user wanted that.
    Skipped(&'static Tally),
    /// The original, because no program wants it.
    Unwanted(&'static Tally),
}

impl Runs {
    /// Where the variant lives that runs.
    pub(crate) fn place(self) -> Option<&'static Place> {
        match self {
            Runs::Variant(place, _) => Some(place),
            Runs::Original(..) | Runs::Skipped(_) | Runs::Unwanted(_) => None,
        }
    }

    /// What counts its launches, whoever is told them.
    pub(crate) fn total(self) -> &'static AtomicU64 {
        match self {
            Runs::Variant(place, _) => &place.launches,
            Runs::Original(tally, _) => &tally.uninstrumented,
            Runs::Skipped(tally) => &tally.skipped,
            Runs::Unwanted(tally) => &tally.unwanted,
        }
    }

    /// What counts them beside that, for some tools or programs.
    pub(crate) fn parts(self) -> impl Iterator<Item = &'static AtomicU64> {
        let (of_variant, without) = match self {
            Runs::Variant(place, chosen) => (Some(place.parts(chosen)), None),
            Runs::Original(tally, not_for) => (None, Some(tally.counters_of(not_for))),
            Runs::Skipped(_) | Runs::Unwanted(_) => (None, None),
        };
        let shared = match self {
            Runs::Variant(..) => None,
            Runs::Original(tally, _) => tally.shared.map(|[uninstrumented, _, _]| uninstrumented),
            Runs::Skipped(tally) => tally.shared.map(|[_, skipped, _]| skipped),
            Runs::Unwanted(tally) => tally.shared.map(|[_, _, unwanted]| unwanted),
        };
        let without = without.into_iter().flatten().chain(shared);
        of_variant.into_iter().flatten().chain(without)
    }

    /// Counts a launch. The total comes last: counts are made again when totals have changed, so
    /// who has seen it in the total finds it in all the others too.
    pub(crate) fn count(self) {
        for part in self.parts() {
            part.fetch_add(1, Ordering::Relaxed);
        }
        self.total().fetch_add(1, Ordering::Release);
    }
}

impl Entry {
    pub(crate) fn new(mangled: String, made: &'static AtomicU64) -> Entry {
        Entry {
            mangled,
            made,
            tallies: Tallies::default(),
            shared: None,
            handles: Mutex::default(),
            places: List::default(),
            too_dear: AtomicU64::new(0),
            told_failed: AtomicBool::new(false),
            told_residency: AtomicBool::new(false),
            candidates: AtomicU64::new(0),
            told_context: AtomicBool::new(false),
            told_overlap: AtomicBool::new(false),
            told_compaction: AtomicBool::new(false),
            told_alone: AtomicBool::new(false),
        }
    }

    /// The same, whose launches are counted there, too.
    pub(crate) fn counted_in(mut self, shared: Option<&'static LaunchWriter>) -> Entry {
        self.shared = shared;
        self
    }

    /// What counts the launches of a place there ([`Place::shared`]).
    fn shared_of(&self, place: &Place) -> Box<[&'static AtomicU64]> {
        let (Some(shared), Some(variant)) = (self.shared, &place.variant) else {
            return Box::default();
        };
        // The bits of programs without a counter of their own stand behind all others.
        let programs = |wanted: Option<usize>| {
            let all = variant.choices.programs().iter();
            let of = all.filter(|(_, bit)| {
                let bit = *bit as usize;
                wanted == Some(bit) || wanted.is_none() && bit >= place.taken.len()
            });
            of.map(|(program, _)| program.clone()).collect()
        };
        let row = |kind, wanted| {
            shared.row(LaunchRow {
                kind,
                context: place.number,
                generation: place.generation,
                kernel: self.mangled.clone(),
                programs: programs(wanted),
            })
        };
        let chosen = (0..place.taken.len()).map(|bit| row(LaunchKind::Chosen, Some(bit)));
        [row(LaunchKind::With, None)]
            .into_iter()
            .chain(chosen)
            .collect()
    }

    /// Launches of this generation run without probes from now on, because of what those cost.
    #[inline]
    pub(crate) fn is_too_dear(&self, generation: u64) -> bool {
        self.too_dear.load(Ordering::Relaxed) == generation
    }

    /// The number of the launch that is being asked for.
    pub(crate) fn next_launch(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// All places, those of contexts that have ended too.
    pub(crate) fn places(&self) -> impl Iterator<Item = &'static Place> {
        // SAFETY: an entry is a part of an agent.
        unsafe { self.places.iter() }
    }

    /// The place in a context, of launches of a generation. The last one comes first.
    #[inline]
    pub(crate) fn place(&self, context: usize, generation: u64) -> Option<&'static Place> {
        self.places_in(context)
            .find(|place| place.generation == generation)
    }

    /// All places in a context, those of programs that are in force no more too.
    pub(crate) fn places_in(&self, context: usize) -> impl Iterator<Item = &'static Place> {
        self.places()
            .filter(move |place| place.context.load(Ordering::Relaxed) == context)
    }

    /// Launches in its context and of its generation are of `place` from now on.
    pub(crate) fn add(&self, mut place: Place) -> &'static Place {
        place.shared = self.shared_of(&place);
        // SAFETY: an entry is a part of an agent.
        unsafe { self.places.push(place) }
    }

    /// Gives up the places of a generation of which no launch is under way or comes, but those
    /// whose variants were used. Returns variants that may go, with their contexts: a kernel whose
    /// programs stay the same has one variant in many generations, and it may go when it was used
    /// in none, and none has it.
    pub(crate) fn part_with(&self, generation: u64) -> Vec<(usize, Arc<LoadedVariant>)> {
        let mut unneeded = Vec::new();
        for place in self.places().filter(|p| p.generation == generation) {
            let Some(context) = place.context() else {
                continue;
            };
            let Some(variant) = &place.variant else {
                place.void();
                continue;
            };
            let with_it = || self.places().filter(|other| other.has(variant));
            if with_it().any(Place::was_used) {
                continue;
            }
            place.void();
            // Who has looked it up will put it in a place of a generation that comes, or has done
            // so by the next line.
            let is_wanted = Arc::strong_count(variant) > with_it().count();
            let goes_on = with_it().any(|other| other.context().is_some());
            if !is_wanted && !goes_on {
                unneeded.push((context, Arc::clone(variant)));
            }
        }
        unneeded
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is in the table under this handle.
    pub(crate) fn note(&self, handle: Handle) {
        let mut handles = self.handles();
        if !handles.contains(&handle) {
            handles.push(handle);
        }
    }

    /// The library's kernel that it is, if it is of a library.
    pub(crate) fn library_kernel(&self) -> Option<usize> {
        let handles = self.handles();
        let kernel = handles.iter().find(|handle| handle.context.is_none());
        kernel.map(|kernel| kernel.value)
    }

    /// Takes out all handles that it is known by.
    pub(crate) fn take_handles(&self) -> Vec<Handle> {
        std::mem::take(&mut *self.handles())
    }

    /// A context has ended: what was in it is launched no more. The handles that it had alone,
    /// which the driver may give to others.
    pub(crate) fn leave(&self, context: usize) -> Vec<usize> {
        for place in self.places_in(context) {
            place.context.store(NO_CONTEXT, Ordering::Relaxed);
        }
        let mut handles = self.handles();
        let (gone, stay) = handles
            .drain(..)
            .partition(|handle: &Handle| handle.context == Some(context));
        *handles = stay;
        let gone: Vec<Handle> = gone;
        let stays = |value: &usize| handles.iter().any(|handle| handle.value == *value);
        let gone = gone.into_iter().map(|handle| handle.value);
        gone.filter(|value| !stays(value)).collect()
    }

    /// Launches with probes: of each place the number of its maps, its generation, and how many.
    /// What else counts those is seen as well ([`Runs::count`]).
    pub(crate) fn launches(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.places().map(|place| {
            let count = place.launches.load(Ordering::Acquire);
            (place.number, place.generation, count)
        })
    }

    /// Launches that each program was in, of one tool or all, by the number of the maps.
    pub(crate) fn launches_of_programs(
        &self,
        client: Option<u32>,
    ) -> impl Iterator<Item = (u32, &'static str, u64)> {
        self.places().flat_map(move |place| {
            let programs = place.launches_of_programs(client);
            programs.map(|(program, count)| (place.number, program, count))
        })
    }

    /// Its programs, of one tool or all, are, or were, in different launches.
    pub(crate) fn programs_differ(&self, client: Option<u32>) -> bool {
        self.places().any(|place| match client {
            None => !place.taken.is_empty(),
            Some(client) => {
                let mut clients = place.clients.iter();
                clients.any(|one| one.client == client && one.differs())
            }
        })
    }

    /// Where launches of a generation are counted that run the original.
    pub(crate) fn tally(&self, generation: &Generation) -> &'static Tally {
        self.tallies.of(generation.number, || {
            let session = generation.session.get();
            let requests = session.map(|session| KernelRequest::all(session, &self.mangled));
            let kinds = [
                LaunchKind::Uninstrumented,
                LaunchKind::Skipped,
                LaunchKind::Unwanted,
            ];
            let row = |shared: &'static LaunchWriter| {
                kinds.map(|kind| {
                    shared.row(LaunchRow {
                        kind,
                        context: 0,
                        generation: 0,
                        kernel: self.mangled.clone(),
                        programs: Vec::new(),
                    })
                })
            };
            (requests.unwrap_or_default(), self.shared.map(row))
        })
    }

    /// All such counts.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = &'static Tally> {
        self.tallies.iter()
    }

    /// Whoever wanted it at any time, clients alone.
    pub(crate) fn clients(&self) -> impl Iterator<Item = u32> {
        let places = self
            .places()
            .flat_map(|place| place.wanted_by.iter().copied());
        let tallies = self.tallies();
        let tallies = tallies.flat_map(|tally| tally.requests.iter().map(|request| request.client));
        places.chain(tallies).filter(|client| *client != OWN)
    }

    /// Launches without: those that were uninstrumented, skipped, and wanted by nobody.
    pub(crate) fn without(&self) -> [u64; 3] {
        self.tallies().fold([0; 3], |sums, tally| {
            let all = tally.all();
            [0, 1, 2].map(|kind| sums[kind] + all[kind])
        })
    }

    /// All launches.
    pub(crate) fn launched(&self) -> u64 {
        let launches: u64 = self.launches().map(|(_, _, count)| count).sum();
        launches + self.without().iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_context_has_a_place_until_it_ends() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let entry = Entry::new("k".into(), &MADE);
        assert!(entry.place(16, 1).is_none());
        for (number, context) in [(0, 16), (1, 32)] {
            entry.add(Place::new(
                context,
                (number, 4),
                1,
                (None, Choices::default()),
            ));
        }
        let of = |context| entry.place(context, 1).map(|place| place.number);
        assert_eq!((of(16), of(32), of(48)), (Some(0), Some(1), None));
        entry
            .place(32, 1)
            .unwrap()
            .launches
            .store(5, Ordering::Relaxed);
        let tally = |generation| entry.tallies.of(generation, Default::default);
        tally(1).uninstrumented.store(2, Ordering::Relaxed);
        let handle = |value, context| Handle { value, context };
        // A driver may use one handle for both.
        entry.note(handle(1, Some(32)));
        for known in [
            handle(1, None),
            handle(2, Some(16)),
            handle(3, Some(32)),
            handle(2, Some(16)),
        ] {
            entry.note(known);
        }
        assert_eq!(entry.leave(32), [3]);
        assert_eq!((of(16), of(32)), (Some(0), None));
        // The driver may use a context's handle again.
        entry.add(Place::new(32, (2, 4), 1, (None, Choices::default())));
        assert_eq!(of(32), Some(2));
        tally(1).skipped.store(1, Ordering::Relaxed);
        tally(2).unwanted.store(3, Ordering::Relaxed);
        let launches: Vec<_> = entry.launches().collect();
        assert_eq!(launches, [(2, 1, 0), (1, 1, 5), (0, 1, 0)]);
        assert_eq!((entry.without(), entry.launched()), ([2, 1, 3], 11));
        assert_eq!(entry.take_handles(), [handle(1, None), handle(2, Some(16))]);
    }

    #[test]
    fn who_has_seen_a_launch_finds_it_in_all_that_counts_it() {
        const LAUNCHES: u64 = 100_000;
        static MADE: AtomicU64 = AtomicU64::new(0);
        let entry = Entry::new("k".into(), &MADE);
        let place = Place::new(16, (0, 4), 1, (None, Choices::default()));
        let place = entry.add(place.of(&[1, 2], &[]));
        let runs = Runs::Variant(place, Chosen { own: 1, all: 1 });
        assert!(runs.parts().all(|part| !std::ptr::eq(part, runs.total())));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..LAUNCHES).for_each(|_| runs.count()));
            let mut seen = 0;
            while seen < LAUNCHES {
                seen = entry.launched();
                for client in [1, 2] {
                    assert!(place.launches_without(client) >= Some(seen));
                }
            }
        });
        assert_eq!(place.launches_without(2), Some(LAUNCHES));
    }

    #[test]
    fn each_generation_has_a_place_of_its_own() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let entry = Entry::new("k".into(), &MADE);
        for generation in [1, 2] {
            entry.add(Place::new(
                16,
                (0, 4),
                generation,
                (None, Choices::default()),
            ));
        }
        let generation = |wanted| entry.place(16, wanted).map(|place| place.generation);
        assert_eq!([1, 2, 3].map(generation), [Some(1), Some(2), None]);
        entry.leave(16);
        assert_eq!([1, 2].map(generation), [None, None]);
    }
}
