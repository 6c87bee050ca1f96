//! What became of an image's kernels for one set of programs.

use std::collections::HashSet;
use std::sync::Arc;

use warpbpf_session::Method;
use warpbpf_session::{Prepared, Session};

/// What was made of an image for one generation of programs.
#[derive(Debug)]
pub(crate) struct Version {
    pub(super) session: Arc<Session>,
    pub(super) prepared: Prepared,
    /// Kernels that have the same programs as in the generation before, whose number this is.
    pub(super) same: HashSet<String>,
    pub(super) before: u64,
    /// Kernels that a second tool wants and that keep what others have in them, and why.
    pub(super) left_out: Vec<(String, Method)>,
}

impl Version {
    pub(super) fn generation(&self) -> u64 {
        self.session.generation()
    }

    /// Kernels with code for programs, and those programs.
    pub(super) fn in_code(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let kernels = self.prepared.kernels.iter().filter(|kernel| kernel.wanted);
        kernels.map(|kernel| (kernel.mangled.as_str(), &kernel.programs[..]))
    }

    /// No program wants any of its kernels.
    pub(super) fn wants_nothing(&self) -> bool {
        self.prepared.kernels.iter().all(|k| k.programs.is_empty())
    }

    /// Programs on the CPU, or a timeline, need what a context gets with an image, whatever is in it.
    pub(super) fn watches_host(&self) -> bool {
        !self.session.host_programs().is_empty() || self.session.timeline()
    }
}
