//! Several tools in one application: what each is told of kernels and launches, out of what the
//! agent tells of all.
//!
//! The tool that the agent speaks to is [`OWN`], others are its clients, by number
//! ([`warpbpf_wire::Change::Join`]). A kernel's row names programs by their places in the list of
//! its generation, so those lists are kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use warpbpf_wire::{ClientCounts, Kernel, KernelCount, Method, Program};

use crate::kept::{of_counts, of_programs};
use crate::process::Note;
use crate::state::State;

/// The tool that the agent speaks to.
pub(crate) const OWN: u32 = 0;

/// Lists of programs that are kept though no row is about them: one may still be on its way.
const LISTS: u64 = 16;

/// What is known of the tools in an application.
#[derive(Debug, Default)]
pub(crate) struct ClientViews {
    /// The programs of each generation.
    programs: BTreeMap<u64, Vec<Program>>,
    /// Launches as each tool has them, by the kernel's name; empty while there is but one.
    counts: BTreeMap<u32, HashMap<String, KernelCount>>,
    /// Kernels that clients want and have no program in.
    left_out: Vec<Kernel>,
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
    fn know(&mut self, generation: u64, programs: &[Program], is_used: impl Fn(u64) -> bool) {
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
    fn row_of(&self, kernel: &Kernel, client: u32) -> Option<Kernel> {
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
    fn left_out_of(&self, kernel: &Kernel, client: u32) -> Option<&Kernel> {
        let mut all = self.left_out.iter();
        all.find(|row| {
            (row.client, &row.mangled, &row.source) == (client, &kernel.mangled, &kernel.source)
        })
    }
}

impl State {
    /// The programs that there are, are those of this generation.
    pub(crate) fn know(&mut self, generation: u64) {
        let used: HashSet<u64> = self.kernels.iter().map(|k| k.generation).collect();
        let is_used = |of| used.contains(&of);
        self.client_views.know(generation, &self.programs, is_used);
    }

    /// All kernels as a tool sees them that has no program but its own.
    pub(crate) fn kernels_of(&self, client: u32) -> Vec<Kernel> {
        self.rows_of(client).into_iter().flatten().collect()
    }

    /// The same at their places in the list of all.
    pub(crate) fn rows_of(&self, client: u32) -> Vec<Option<Kernel>> {
        let row = |kernel: &Kernel| {
            let row = self.client_views.row_of(kernel, client)?;
            let wanted = row.programs.is_empty() && client != OWN;
            let left_out = wanted.then(|| self.client_views.left_out_of(kernel, client));
            let Some(left_out) = left_out.flatten() else {
                return Some(row);
            };
            // That may be about programs that come just now.
            Some(Kernel {
                kernel_id: kernel.kernel_id,
                client: OWN,
                ..self.client_views.row_of(left_out, client)?
            })
        };
        self.kernels.iter().map(row).collect()
    }

    /// The tool's own launches of a kernel, if its programs have to do with it.
    pub(crate) fn own_count(&self, kernel: &Kernel) -> Option<&KernelCount> {
        let alone = !self.client_views.counts.contains_key(&OWN);
        let count = match alone {
            true => self.counts.get(&kernel.mangled),
            false => self.client_views.counts[&OWN].get(&kernel.mangled),
        };
        count.filter(|count| {
            let had = count.launches + count.uninstrumented + count.skipped > 0;
            kernel.method != Method::NotMatched || kernel.generation > 1 && (alone || had)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, client: u32) -> Program {
        Program {
            name: name.into(),
            section: String::new(),
            glob: String::new(),
            client,
        }
    }

    fn know(state: &mut State, generation: u64, programs: &[Program]) {
        state.programs = programs.to_vec();
        state.know(generation);
    }

    fn row(mangled: &str, placed: &[(usize, u32)], generation: u64) -> Kernel {
        Kernel {
            mangled: mangled.into(),
            method: Method::Slice,
            instrumented: true,
            programs: placed.iter().map(|(program, _)| *program).collect(),
            placed: placed.to_vec(),
            generation,
            ..Kernel::default()
        }
    }

    #[test]
    fn each_tool_sees_its_own_programs_in_kernels() {
        let mut state = State::default();
        let list = [program("a", 0), program("b@c1", 1), program("c", 0)];
        know(&mut state, 1, &list[..1]);
        know(&mut state, 2, &list);
        know(&mut state, 4, &list[..1]);
        state.kernels = vec![
            row("both", &[(0, 1), (1, 2), (2, 3)], 2),
            row("clients", &[(1, 1)], 2),
            row("no_site", &[(0, 0), (1, 4)], 2),
            row("own", &[(2, 1)], 2),
            // Nobody can say yet what this is about.
            row("later", &[(1, 1)], 3),
            // Its image went before the client came, or it has programs that came when the client
            // had gone.
            row("before", &[(0, 1)], 1),
            row("behind", &[(0, 1)], 4),
        ];
        let seen = |state: &State, client| {
            let rows = state.kernels_of(client).into_iter();
            let rows = rows.map(|k| (k.mangled, k.method.to_string(), k.placed));
            rows.collect::<Vec<_>>()
        };
        let told = |name: &str, method: &str, placed: &[(usize, u32)]| {
            (name.to_owned(), method.to_owned(), placed.to_vec())
        };
        let own = [
            told("both", "slice", &[(0, 1), (1, 3)]),
            told("clients", "not matched", &[]),
            told("no_site", "no site", &[]),
            told("own", "slice", &[(1, 1)]),
            told("later", "slice", &[(1, 1)]),
            told("before", "slice", &[(0, 1)]),
            told("behind", "slice", &[(0, 1)]),
        ];
        assert_eq!(seen(&state, OWN), own);
        // Told to the client alone.
        state.client_views.left_out(Kernel {
            method: Method::refused("why"),
            instrumented: false,
            client: 1,
            ..row("own", &[], 2)
        });
        let of_client = [
            told("both", "slice", &[(0, 2)]),
            told("clients", "slice", &[(0, 1)]),
            told("no_site", "slice", &[(0, 4)]),
            told("own", "refused: why", &[]),
        ];
        assert_eq!(seen(&state, 1), of_client);
        // What comes with a replacement that is not over yet is not told.
        state.client_views.left_out(Kernel {
            method: Method::refused("again"),
            client: 1,
            ..row("own", &[], 7)
        });
        state.client_views.left_out[0].programs = vec![0];
        assert_eq!(seen(&state, 1), of_client[..3]);
        state.client_views.forget(1);
        assert_eq!(seen(&state, 1)[3], told("own", "not matched", &[]));
    }

    #[test]
    fn launches_of_a_client_are_not_the_tools() {
        let mut state = State::default();
        let count = |mangled: &str, launches| KernelCount {
            mangled: mangled.into(),
            launches,
            ..KernelCount::default()
        };
        let total = count("k", 7);
        state.counts.insert("k".into(), total.clone());
        let kernel = row("k", &[(0, 1)], 1);
        let launches = |state: &State, kernel: &Kernel| {
            let count = state.own_count(kernel);
            count.map(|count| count.launches)
        };
        assert_eq!(launches(&state, &kernel), Some(7));
        let of_client = |client, launches| ClientCounts {
            client,
            kernels: vec![count("k", launches)],
        };
        state
            .client_views
            .count(vec![of_client(1, 5), of_client(OWN, 2)]);
        assert_eq!(launches(&state, &kernel), Some(2));
        assert_eq!(state.client_views.counts_of(1).next().unwrap().launches, 5);
        // Without the client nothing would be said of one that no program of the tool matches.
        state.client_views.count(vec![of_client(OWN, 0)]);
        let other = Kernel {
            method: Method::NotMatched,
            generation: 2,
            ..kernel.clone()
        };
        assert_eq!(launches(&state, &other), None);
        assert_eq!(
            state.client_views.counts_of(1).next(),
            None,
            "it is told no more"
        );
    }

    #[test]
    fn lists_that_no_row_is_about_are_not_kept() {
        let mut state = State::default();
        let list = [program("a", OWN)];
        know(&mut state, 1, &list);
        know(&mut state, 2, &list);
        know(&mut state, 3, &list);
        state.kernels = vec![row("k", &[(0, 1)], 2)];
        state.client_views.left_out(Kernel {
            client: 1,
            ..row("k", &[], 3)
        });
        know(&mut state, 3 + LISTS, &list);
        let kept: Vec<u64> = state.client_views.programs.keys().copied().collect();
        assert_eq!(kept, [2, 3, 3 + LISTS]);
        // Its client has gone.
        state.client_views.forget(1);
        know(&mut state, 4 + LISTS, &list);
        let kept: Vec<u64> = state.client_views.programs.keys().copied().collect();
        assert_eq!(kept, [2, 3 + LISTS, 4 + LISTS]);
    }
}
