//! Which programs an application runs, as far as is known.

use std::collections::BTreeSet;
use std::time::Instant;

use warpbpf_session::cpu::is_on_cpu;

use super::offer::Offer;
use crate::objects::prog::Programs;

/// What an application runs.
pub(super) struct Running {
    /// The kernel's version that it has, or has refused.
    pub(super) version: u64,
    /// `None` if that is not known.
    pub(super) in_kernels: Option<Programs>,
    /// What the former are called there.
    pub(super) names: Vec<String>,
    /// Those on the CPU that it began with, what they are called there, and whether they run.
    pub(super) on_cpu: Vec<((usize, String), String, bool)>,
    pub(super) asked: Option<Asked>,
    /// What it has not answered in time.
    pub(super) late: Option<Asked>,
    /// When it is asked again for the end of programs.
    pub(super) again: Option<Instant>,
    /// It was told that some have not ended.
    pub(super) told_running: bool,
    /// What it has refused last.
    pub(super) refused: Option<Programs>,
    /// Programs of which it was told that they cannot come in.
    pub(super) told: BTreeSet<usize>,
}

/// A replacement under way.
pub(super) struct Asked {
    pub(super) token: u64,
    pub(super) since: Instant,
    pub(super) version: u64,
    pub(super) in_kernels: Programs,
    pub(super) names: Vec<String>,
    /// Nothing is to come.
    pub(super) only_ends: bool,
}

impl Running {
    /// What it begins with.
    pub(super) fn of(offer: &Offer) -> Running {
        let all = offer.programs.iter().zip(&offer.gathered.programs);
        let (on_cpu, in_kernels): (Vec<_>, Vec<_>) =
            all.partition(|((_, section), _)| is_on_cpu(section));
        let begun =
            |(program, name): (&(usize, String), &String)| (program.clone(), name.clone(), true);
        Running {
            version: offer.version,
            names: in_kernels
                .into_iter()
                .map(|(_, name)| name.clone())
                .collect(),
            in_kernels: Some(apart(offer.programs.clone()).1),
            on_cpu: on_cpu.into_iter().map(begun).collect(),
            asked: None,
            late: None,
            again: None,
            told_running: false,
            refused: None,
            told: BTreeSet::new(),
        }
    }

    /// It has what it was asked for.
    pub(super) fn take(&mut self, asked: Asked) {
        self.in_kernels = Some(asked.in_kernels);
        self.names = asked.names;
        self.told_running = false;
        if !asked.only_ends {
            self.refused = None;
        }
    }

    /// Those that are wanted no more are to go, and nothing is to come: the programs that stay,
    /// their names, and names of those that go.
    pub(super) fn without(&self, wanted: &Programs) -> (Programs, Vec<String>, Vec<String>) {
        if self.in_kernels.is_none() && wanted.is_empty() {
            return (Programs::new(), Vec::new(), self.names.clone());
        }
        let there = self.in_kernels.iter().flatten().zip(&self.names);
        let (stay, go): (Vec<_>, Vec<_>) = there.partition(|(program, _)| wanted.contains(program));
        let names = |all: &[(&(usize, String), &String)]| -> Vec<String> {
            all.iter().map(|(_, name)| (*name).clone()).collect()
        };
        let (stay_names, go_names) = (names(&stay), names(&go));
        let stay = stay.into_iter().map(|(program, _)| program.clone());
        (stay.collect(), stay_names, go_names)
    }
}

/// Programs on the CPU, and those in kernels.
pub(super) fn apart(programs: Programs) -> (Programs, Programs) {
    let on_cpu = |(_, section): &(usize, String)| is_on_cpu(section);
    programs.into_iter().partition(on_cpu)
}
