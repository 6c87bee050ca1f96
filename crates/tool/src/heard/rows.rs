//! Kernels and launches of an application as one of its tools has them.

use warpbpf_wire::{Kernel, KernelCount, Method};

use crate::heard::client_views::OWN;
use crate::heard::state::State;

impl State {
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
    use warpbpf_wire::{ClientCounts, Program};

    use super::*;
    use crate::heard::client_views::LISTS;

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
