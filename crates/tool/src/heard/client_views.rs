//! Several tools in one application: what each is told of kernels and launches, out of what the
//! agent tells of all.
//!
//! The tool that the agent speaks to is [`OWN`], others are its clients, by number
//! ([`warpbpf_wire::Change::Join`]). A kernel's row names programs by their places in the list of
//! its generation, so those lists are kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use warpbpf_wire::{ClientCounts, Kernel, KernelCount, Method, Program};

use crate::heard::kept::{of_counts, of_programs};
use crate::heard::note::Note;

/// The tool that the agent speaks to.
pub(crate) const OWN: u32 = 0;

/// Lists of programs that are kept though no row is about them: one may still be on its way.
pub(crate) const LISTS: u64 = 16;

/// What is known of the tools in an application.
#[derive(Debug, Default)]
pub(crate) struct ClientViews {
    /// The programs of each generation.
    pub(crate) programs: BTreeMap<u64, Vec<Program>>,
    /// Launches as each tool has them, by the kernel's name; empty while there is but one.
    pub(crate) counts: BTreeMap<u32, HashMap<String, KernelCount>>,
    /// Kernels that clients want and have no program in.
    pub(crate) left_out: Vec<Kernel>,
    /// What clients alone are to know, and which.
    pub(crate) notes: Vec<(Vec<u32>, Note)>,
    /// Of a client: where its maps are in the shared memory.
    pub(crate) areas: Vec<u32>,
    /// How often something of kernels was told.
    pub(crate) changes: u64,
    /// How often launches were told.
    pub(crate) counted: u64,
}

impl ClientViews {
    /// The programs of a generation are these. Lists of earlier ones stay where a row `is_used`.
    pub(crate) fn know(
        &mut self,
        generation: u64,
        programs: &[Program],
        is_used: impl Fn(u64) -> bool,
    ) {
        self.programs.insert(generation, programs.to_vec());
        let left_out: HashSet<u64> = self.left_out.iter().map(|k| k.generation).collect();
        self.programs.retain(|of, _| {
            let of = *of;
            of.saturating_add(LISTS) > generation || is_used(of) || left_out.contains(&of)
        });
        self.changes += 1;
    }

    /// Clients have no program in a kernel.
    pub(crate) fn left_out(&mut self, kernel: Kernel) {
        let same = |known: &Kernel| {
            (known.client, &known.mangled, &known.source)
                == (kernel.client, &kernel.mangled, &kernel.source)
        };
        self.left_out.retain(|known| !same(known));
        self.left_out.push(kernel);
        self.changes += 1;
    }

    /// Launches so far, of all tools that are to know them.
    pub(crate) fn count(&mut self, counts: Vec<ClientCounts>) {
        self.counted += 1;
        let told: HashSet<u32> = counts.iter().map(|of_client| of_client.client).collect();
        self.counts.retain(|client, _| told.contains(client));
        for of_client in counts {
            let of = self.counts.entry(of_client.client).or_default();
            let kernels = of_client.kernels.into_iter();
            of.extend(kernels.map(|count| (count.mangled.clone(), count)));
        }
    }

    /// What launches of several tools and lists of programs take up.
    pub(crate) fn take_up(&self) -> (usize, usize) {
        let counts = self.counts.values().map(of_counts);
        let lists = self.programs.values().map(|list| of_programs(list));
        (counts.sum(), lists.sum())
    }

    /// Launches as a tool has them, by the kernel's name.
    pub(crate) fn counts_of(&self, client: u32) -> impl Iterator<Item = &KernelCount> {
        self.counts
            .get(&client)
            .into_iter()
            .flat_map(HashMap::values)
    }

    /// Where a map is in the shared memory.
    pub(crate) fn area(&self, map: u32) -> usize {
        let area = self.areas.get(map as usize);
        area.map_or(map, |area| *area) as usize
    }

    /// A client has gone, and nobody asks for it any more.
    pub(crate) fn forget(&mut self, client: u32) {
        self.counts.remove(&client);
        self.left_out.retain(|kernel| kernel.client != client);
    }

    /// A kernel's row as a tool sees it that has no program but its own; nothing while the programs
    /// that it is about are not known.
    pub(crate) fn row_of(&self, kernel: &Kernel, client: u32) -> Option<Kernel> {
        if kernel.programs.is_empty() {
            return Some(kernel.clone());
        }
        let Some(list) = self.programs.get(&kernel.generation) else {
            // An agent of old, which knows of no clients.
            return (client == OWN).then(|| kernel.clone());
        };
        if client != OWN && list.iter().all(|program| program.client != client) {
            // Its image went before the tool came, or the tool has gone.
            return None;
        }
        let is_own = |program: usize| list.get(program).is_some_and(|p| p.client == client);
        // Its place among those of the same tool.
        let own_before = list.iter().scan(0, |count, program| {
            let before = *count;
            *count += usize::from(program.client == client);
            Some(before)
        });
        let own_before: Vec<usize> = own_before.collect();
        let number = |program: usize| own_before.get(program).copied().unwrap_or(list.len());
        let own = kernel.programs.iter().filter(|program| is_own(**program));
        let programs: Vec<usize> = own.map(|program| number(*program)).collect();
        let placed = kernel.placed.iter().filter(|(program, _)| is_own(*program));
        let placed: Vec<(usize, u32)> = placed.map(|(p, count)| (number(*p), *count)).collect();
        let none_placed = placed.iter().all(|(_, count)| *count == 0);
        let others_placed = kernel.placed.iter().any(|(_, count)| *count > 0);
        let method = match programs.is_empty() {
            true => Method::NotMatched,
            false if none_placed && others_placed => Method::NoSite,
            false => {
                return Some(Kernel {
                    programs,
                    placed,
                    ..kernel.clone()
                });
            }
        };
        Some(Kernel {
            kernel_id: kernel.kernel_id,
            mangled: kernel.mangled.clone(),
            demangled: kernel.demangled.clone(),
            source: kernel.source.clone(),
            registers_before: kernel.registers_before,
            method,
            generation: kernel.generation,
            ..Kernel::default()
        })
    }

    /// What was told of a kernel that a client wants and is not in.
    pub(crate) fn left_out_of(&self, kernel: &Kernel, client: u32) -> Option<&Kernel> {
        let mut all = self.left_out.iter();
        all.find(|row| {
            (row.client, &row.mangled, &row.source) == (client, &kernel.mangled, &kernel.source)
        })
    }
}
