//! A proved program and where it wants to be.

use std::sync::Arc;

use warpbpf_abi::attach::Site;
use warpbpf_abi::choice::Choice;
use warpbpf_ebpf::Pc;
use warpbpf_object::Program;
use warpbpf_verify::{SourceLine, Subject, Verified};

use crate::plan::section::AttachSpec;

/// The number of the tool that began the session.
pub const OWN: u32 = 0;

/// A proved program and where it wants to be.
#[derive(Debug, Clone)]
pub struct PlannedProgram {
    /// Where.
    pub spec: AttachSpec,
    /// What.
    pub verified: Verified<Program>,
    /// Heads of its loops that are ended when they run (`Options::bound_loops`).
    pub bounded: Vec<Pc>,
    /// Which launches it is in.
    pub choice: Arc<Choice>,
    /// Whose it is ([`crate::plan::client`]).
    pub client: u32,
}

impl PlannedProgram {
    /// The C function's name.
    pub fn name(&self) -> &str {
        &self.verified.program().name
    }
    /// Where the loops begin that are ended when they run, as far as the object says.
    pub fn bounded_lines(&self) -> Vec<Option<SourceLine>> {
        let program = self.verified.program();
        let heads = self.bounded.iter();
        heads.map(|head| Subject::line_of(program, *head)).collect()
    }
    /// It is at sites in the middle of kernels, of which there may be any number; at a kernel's
    /// start and end there always is one.
    pub(crate) fn has_sites(&self) -> bool {
        !matches!(self.spec.site, Site::Entry | Site::Exit)
    }
    /// The section name.
    pub fn section(&self) -> &str {
        &self.verified.program().section
    }
}
