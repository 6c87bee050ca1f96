//! Whose launches a kernel's launches are, where several tools have programs in one application:
//! each is told what it would be told alone.
//!
//! A launch of a variant is of every tool that has a program in it which takes the launch. One that
//! ran the original is noted with the generation of programs that it was of, because who wanted the
//! kernel then says whose it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_session::Session;
use warpbpf_session::choices::Choices;
use warpbpf_wire::Choice;

use crate::sys::list::List;

/// A tool with programs in a variant.
#[derive(Debug)]
pub(crate) struct VariantClient {
    /// [`warpbpf_session::client::OWN`] or the number of a client.
    pub(crate) client: u32,
    /// The choices of its programs.
    pub(crate) mask: u64,
    /// Launches that those take; `None` where that is all of them.
    pub(crate) taken: Option<AtomicU64>,
}

impl VariantClient {
    /// Of a variant with these choices, without those of `idle`, whose programs have no place in
    /// it.
    pub(crate) fn all(choices: &Choices, idle: &[u32]) -> Box<[VariantClient]> {
        let mut all: Vec<VariantClient> = Vec::new();
        for ((_, bit), client) in choices.programs().iter().zip(choices.clients()) {
            let mask = bit_of(*bit);
            match all.iter_mut().find(|one| one.client == *client) {
                Some(one) => one.mask |= mask,
                None => all.push(VariantClient {
                    client: *client,
                    mask,
                    taken: None,
                }),
            }
        }
        let alone = all.len() == 1;
        all.retain(|one| !idle.contains(&one.client));
        if choices.differ() && !alone {
            for one in &mut all {
                one.taken = Some(AtomicU64::new(0));
            }
        }
        all.into()
    }

    /// One without programs in a variant, where `all` are the choices of all who want the kernel.
    pub(crate) fn absent(client: u32, all: &Choices) -> VariantClient {
        let programs = all.programs().iter().zip(all.clients());
        let own = programs.filter(|(_, of)| **of == client);
        let mask = own.fold(0, |mask, ((_, bit), _)| mask | bit_of(*bit));
        VariantClient {
            client,
            // Where its choices have no bits of their own, it would be in all of them, for all that
            // is known.
            mask: if mask == 0 { u64::MAX } else { mask },
            taken: Some(AtomicU64::new(0)),
        }
    }

    /// Its programs choose different launches.
    pub(crate) fn differs(&self) -> bool {
        self.mask.count_ones() > 1
    }
}

/// The bit of a choice: the last one is that of all for which there is none.
pub(crate) fn bit_of(choice: u32) -> u64 {
    1 << choice.min(63)
}

/// A tool that wants a kernel, and its launches that ran the original.
#[derive(Debug)]
pub(crate) struct KernelRequest {
    pub(crate) client: u32,
    /// What its programs choose.
    choices: Vec<Arc<Choice>>,
    /// Launches that count as uninstrumented, which it would not have had anyway.
    not_for_it: AtomicU64,
}

impl KernelRequest {
    /// Who wants a kernel.
    pub(crate) fn all(session: &Session, mangled: &str) -> Box<[KernelRequest]> {
        let programs = session.matching(mangled);
        let clients = session.clients_of(&programs).into_iter();
        let request = |client| {
            let own = programs.iter().map(|program| &session.programs()[*program]);
            let own = own.filter(|program| program.client == client);
            KernelRequest {
                client,
                choices: own.map(|program| Arc::clone(&program.choice)).collect(),
                not_for_it: AtomicU64::new(0),
            }
        };
        clients.map(request).collect()
    }

    /// Launches among the uninstrumented ones that it did not want.
    pub(crate) fn not_for_it(&self) -> u64 {
        self.not_for_it.load(Ordering::Relaxed)
    }
}

/// Counters in memory that the tool sees, of uninstrumented, skipped and unwanted launches.
pub(crate) type Shared = Option<[&'static AtomicU64; 3]>;

/// Launches of a kernel that ran the original, of one generation of programs. It lives as long as
/// the agent, because a launch may be looking at it.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) generation: u64,
    /// Who wanted the kernel.
    pub(crate) requests: Box<[KernelRequest]>,
    /// There was nothing else to run.
    pub(crate) uninstrumented: AtomicU64,
    /// The user wanted no probes in them.
    pub(crate) skipped: AtomicU64,
    /// No program wanted the kernel.
    pub(crate) unwanted: AtomicU64,
    /// What counts the same in memory that the tool sees.
    pub(crate) shared: Shared,
}

impl Tally {
    /// Uninstrumented, skipped and unwanted launches. What else counts those is seen as well
    /// ([`crate::kernels::entry::Runs::count`]).
    pub(crate) fn all(&self) -> [u64; 3] {
        [&self.uninstrumented, &self.skipped, &self.unwanted].map(|n| n.load(Ordering::Acquire))
    }

    /// Who would not have a launch that counts as uninstrumented, where tools want different ones:
    /// a bit for each request. `takes` says whether a choice takes it. Requests behind those
    /// that have a bit count it with the others.
    pub(crate) fn not_for(&self, takes: impl Fn(&Choice) -> bool) -> u64 {
        if self.requests.len() < 2 {
            return 0;
        }
        let requests = (0..u64::BITS).zip(&self.requests);
        let others =
            requests.filter(|(_, request)| !request.choices.iter().any(|choice| takes(choice)));
        others.fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// What counts an uninstrumented launch for these requests.
    pub(crate) fn counters_of(&self, not_for: u64) -> impl Iterator<Item = &AtomicU64> {
        let requests = (0..u64::BITS).zip(&self.requests);
        let others = requests.filter(move |(bit, _)| not_for >> bit & 1 != 0);
        others.map(|(_, request)| &request.not_for_it)
    }
}

/// All of a kernel, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Tallies(List<Tally>);

impl Tallies {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Tally> {
        // SAFETY: they are a part of a kernel's entry, which is a part of an agent.
        unsafe { self.0.iter() }
    }

    /// That of a generation. Two threads may make one each at the same moment: what they count is
    /// added up anyway.
    pub(crate) fn of(
        &self,
        generation: u64,
        made: impl FnOnce() -> (Box<[KernelRequest]>, Shared),
    ) -> &'static Tally {
        if let Some(known) = self.iter().find(|tally| tally.generation == generation) {
            return known;
        }
        let (requests, shared) = made();
        let tally = Tally {
            generation,
            requests,
            shared,
            uninstrumented: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            unwanted: AtomicU64::new(0),
        };
        // SAFETY: as above.
        unsafe { self.0.push(tally) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_has_a_tally_of_its_own() {
        let tallies = Tallies::default();
        let request = |client, every| KernelRequest {
            client,
            choices: vec![Arc::new(Choice {
                every,
                ..Choice::default()
            })],
            not_for_it: AtomicU64::new(0),
        };
        let first = tallies.of(1, Default::default);
        first.uninstrumented.fetch_add(2, Ordering::Relaxed);
        let second = tallies.of(2, || ([request(0, 2), request(1, 1)].into(), None));
        second.unwanted.fetch_add(1, Ordering::Relaxed);
        assert!(std::ptr::eq(tallies.of(1, Default::default), first));
        let all: Vec<_> = tallies.iter().map(|t| (t.generation, t.all())).collect();
        assert_eq!(all, [(2, [0, 0, 1]), (1, [2, 0, 0])]);
        // Of those that were uninstrumented the first tool would not have had one.
        let not_for = second.not_for(|choice| choice.every == 1);
        assert_eq!((not_for, second.not_for(|_| true)), (1, 0));
        for counter in second.counters_of(not_for) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let not_for = second
            .requests
            .iter()
            .map(|request| (request.client, request.not_for_it()));
        assert_eq!(not_for.collect::<Vec<_>>(), [(0, 1), (1, 0)]);
        // Nobody is told apart from one alone.
        let third = tallies.of(3, || ([request(1, 1)].into(), None));
        assert_eq!(third.not_for(|_| false), 0);
        let many = tallies.of(4, || {
            ((0..70).map(|client| request(client, 2)).collect(), None)
        });
        let all = many.not_for(|_| false);
        assert_eq!((all, many.counters_of(all).count()), (u64::MAX, 64));
    }
}
