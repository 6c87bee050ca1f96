//! Why the host cannot do operations on a map.

use warpbpf_codegen::CodegenError;
use warpbpf_driver::DriverError;
use warpbpf_ebpf::AsmError;
use warpbpf_verify::Rejection;

use super::op::COPIED;

/// Why operations on a map have no kernel, or are refused for another reason.
#[derive(Debug, Clone, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum HostOpsError {
    #[error("its operations need no kernel")]
    NoKernel,
    #[error("its records come as events")]
    Events,
    #[error("it is filled by copies")]
    Copies,
    #[error("programs cannot change it")]
    Constant,
    #[error(
        "it has a value per multiprocessor, and {bytes} bytes; to see or set them all it is copied, at most {COPIED} bytes of it"
    )]
    TooLarge { bytes: u64 },
    /// The program of the operations: a bug of ours, as the two that follow.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Assemble(Vec<AsmError>),
    #[error("{rejection}")]
    Rejected { rejection: Box<Rejection> },
    #[error("{0}")]
    Compile(CodegenError),
    /// Their kernels were not loaded.
    #[error("{0}")]
    Driver(DriverError),
}
