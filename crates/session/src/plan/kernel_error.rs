//! Why a kernel gets no programs.

use std::sync::Arc;

use warpbpf_abi::choice::Choice;
use warpbpf_abi::layout::launch;
use warpbpf_codegen::CodegenError;
use warpbpf_patch::PatchError;
use warpbpf_sass::error::{ElfError, Refusal, SharedData};

/// Why no code with programs is made of a kernel. `Display` is the reason in [`Method::refused`]:
/// the kernel is named beside it.
///
/// [`Method::refused`]: warpbpf_abi::method::Method::refused
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum KernelError {
    /// Of the image: who made it does not want its code to be read or changed.
    #[error("{reason}")]
    Untouchable { reason: String },
    #[error("its machine code is not there")]
    NoMachineCode,
    #[error("it gets probes only with `--backend splice`")]
    NoSplice,
    #[error("it has no back end")]
    NoBackEnd,
    /// Each of two back ends has a reason of its own.
    #[error("by `splice`: {splice}; by `sanitizer`: {sanitizer}")]
    BackEnds {
        splice: Box<KernelError>,
        sanitizer: Box<KernelError>,
    },
    #[error("programs behind a gate (`--gate`, `--slots`) are put into PTX only")]
    Gate,
    #[error("{0}")]
    Choice(#[from] ChoiceError),

    #[error("program `{program}`: {source}")]
    Program {
        program: String,
        source: ProgramError,
    },
    #[error("program `{program}` is at places of kind `{site}`, which are found in PTX only")]
    PtxOnly { program: String, site: &'static str },
    #[error(
        "program `{program}` is at places of kind `{site}`, which Compute Sanitizer does not tell of; use `entry`, `exit`, `mem`, `barrier`, `func` or `funcret`"
    )]
    NoEvent { program: String, site: &'static str },
    #[error(
        "program `{program}` wants what there is not: no `{site}` is of such a kind and of such a space; leave out one of them"
    )]
    NoSuchEvent { program: String, site: &'static str },

    #[error("its `.target` is not an `sm_NN`")]
    Target,
    #[error("{0}")]
    Patch(#[from] PatchError),
    /// Neither method for PTX is possible.
    #[error("{reason}; {advice}")]
    Method { reason: String, advice: String },

    #[error("{0}")]
    Elf(#[from] ElfError),
    #[error("{0}")]
    Edit(#[from] Refusal),
    #[error("{0}, and would have its own ones in the copy that is loaded beside it")]
    Shared(SharedData),
    #[error(
        "programs at its accesses by `--splice-memory` do not go with others at its entry or exits"
    )]
    AccessesAlone,
    /// A program would miss what it asks for, and nobody could tell.
    #[error(
        "{count} of its instructions access memory in ways of which `--splice-memory` does not tell"
    )]
    OtherAccesses { count: usize },
    #[error(
        "its file uses `{function}`: kernels and graphs that the device launches would give our functions a wrong argument"
    )]
    DeviceLaunches { function: String },

    #[error("no functions were assembled")]
    NoFunctions,
    #[error("no function was assembled for just these programs; let them be for the same kernels")]
    NotAssembled,
    /// What the assembler said, or the tool that ran it.
    #[error("{said}")]
    Assembler { said: String },
    #[error("the function that the tool sent: {0}")]
    Sent(ElfError),
    #[error("the function that the tool sent: a segment of the cubin ends behind it")]
    SentShort,

    #[error("its code cannot be made")]
    Fault,
    /// A bug of ours.
    #[error("warpbpf failed internally: `{said}`; please report this with the program")]
    Panicked { said: String },
}

/// Why a program cannot be in a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum ProgramError {
    #[error("{0}")]
    Compile(CodegenError),
    #[error("parameters by name are not to be had in a kernel without PTX")]
    NoParameters,
    #[error(
        "the kernel has no parameter `{name}`: the names are not in its PTX (`nvcc -G` and `clang -g` put them there); use positions"
    )]
    NoNames { name: String },
    #[error("the kernel has no parameter `{name}`: it has `{}`", there.join("`, `"))]
    Parameter { name: String, there: Vec<String> },
}

/// Why launches cannot be chosen for each program of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum ChoiceError {
    #[error(
        "its programs choose different launches (`{}`: {}; `{}`: {}), and what is in slots cannot be told apart; choose the same for all of them",
        one.0, one.1, other.0, other.1
    )]
    InSlots {
        /// A program's name, and what it chooses.
        one: (String, Arc<Choice>),
        other: (String, Arc<Choice>),
    },
    #[error(
        "its programs choose launches in {ways} ways, and {} can be told apart; choose the same for more of them",
        launch::MOST_CHOICES
    )]
    TooMany { ways: usize },
    #[error(
        "programs choose launches in {ways} ways, and {} can be told apart in machine code; choose the same for more of them",
        launch::MOST_CHOICES
    )]
    TooManyInMachineCode { ways: usize },
}
