//! What became of an image's kernels for one set of programs.

use std::collections::HashSet;
use std::sync::Arc;

use warpbpf_session::Method;
use warpbpf_session::{Prepared, Session};

/// What was made of an image for one generation of programs.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) session: Arc<Session>,
    pub(crate) prepared: Prepared,
    /// Kernels that have the same programs as in the generation before, whose number this is.
    pub(crate) same: HashSet<String>,
    pub(crate) before: u64,
    /// Kernels that a second tool wants and that keep what others have in them, and why.
    pub(crate) left_out: Vec<(String, Method)>,
}

impl Version {
    pub(crate) fn generation(&self) -> u64 {
        self.session.generation()
    }

    /// Kernels with code for programs, and those programs.
    pub(crate) fn in_code(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let kernels = self.prepared.kernels.iter().filter(|kernel| kernel.wanted);
        kernels.map(|kernel| (kernel.mangled.as_str(), &kernel.programs[..]))
    }

    /// No program wants any of its kernels.
    pub(crate) fn wants_nothing(&self) -> bool {
        self.prepared.kernels.iter().all(|k| k.programs.is_empty())
    }

    /// Programs on the CPU, or a timeline, need what a context gets with an image, whatever is in
    /// it.
    pub(crate) fn watches_host(&self) -> bool {
        !self.session.host_programs().is_empty() || self.session.timeline()
    }
}
