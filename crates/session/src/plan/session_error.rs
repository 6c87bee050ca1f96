//! Why an object cannot become a session.

use warpbpf_driver::DriverError;
use warpbpf_maps::MapError;
use warpbpf_object::ObjectError;
use warpbpf_verify::Rejection;

use crate::cpu::error::CpuError;
use crate::plan::section::SectionError;

/// Why an object cannot become a session. `Display` is the whole message for the user.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SessionError {
    #[error("the object cannot be loaded: {source}")]
    Object { source: ObjectError },
    #[error(
        "the object has no programs; a program is a function with `SEC(\"gpu/entry/KERNEL\")` or the like"
    )]
    Empty,
    #[error("{0}")]
    Section(Box<SectionError>),
    #[error("{0}")]
    Map(MapError),
    #[error("map `{map}` cannot be placed: the object has none of this name; it has {there}")]
    Place { map: String, there: String },
    #[error("program `{}` was refused\n{}", rejection.program, rejection.render())]
    Rejected { rejection: Box<Rejection> },
    /// One for each program, or each map, that is refused.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Several { errors: Vec<SessionError> },
    #[error(
        "program `{program}` calls `bpf_{helper}`, which counts all threads of a block, and a gate (`--gate`, `--slots`) may keep some of them from it: do without the gate, or add to a value of a map"
    )]
    Gated {
        program: String,
        helper: &'static str,
    },
    #[error(
        "program `{program}` calls `bpf_{helper}`, which counts all threads of a block in a launch record, and a kernel of its own (`gpu/run`) has none: use it in a program at `gpu/entry` or `gpu/exit`, or add to a value of a map"
    )]
    Uncounted {
        program: String,
        helper: &'static str,
    },
    #[error("{0}")]
    Cpu(CpuError),
    #[error("{0}")]
    Driver(DriverError),
}
