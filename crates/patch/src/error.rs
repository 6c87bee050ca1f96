//! Why a kernel was left as it is.

use warpbpf_ptx::{PtxError, SpliceError};

/// A variant that was not made. The original is untouched in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// No such `.entry`.
    #[error("the module has no kernel `{kernel}`")]
    NoKernel {
        /// Name asked for.
        kernel: String,
    },
    /// The text of a function could not be read.
    #[error("kernel `{kernel}`: cannot read function `{function}`: {source}")]
    Parse {
        /// The kernel asked for.
        kernel: String,
        /// The function that it reaches.
        function: String,
        /// What is wrong in the text.
        #[source]
        source: PtxError,
    },
    /// The module holds our names already.
    #[error(
        "the module is instrumented already: it declares `{name}`; detach the other warpbpf first"
    )]
    AlreadyInstrumented {
        /// A symbol of ours.
        name: String,
    },
    /// 32-bit addresses.
    #[error(
        "the module has {bits}-bit addresses; only 64-bit modules can be instrumented, recompile with `-m64`"
    )]
    AddressSize {
        /// `.address_size`
        bits: u32,
    },
    /// A slice was asked for where only a clone keeps the kernel's meaning.
    #[error("kernel `{kernel}` cannot be a module of its own: {}", reasons.join("; "))]
    NeedsClone {
        /// The kernel.
        kernel: String,
        /// One sentence each.
        reasons: Vec<String>,
    },
    /// Asked for where there is only machine code.
    #[error("{what} is not to be had in a kernel without PTX; {advice}")]
    MachineCode {
        /// What the program asks for.
        what: String,
        /// What would make it possible.
        advice: String,
    },
    /// Neither method is possible.
    #[error("kernel `{kernel}` cannot be instrumented: {reason}; {advice}")]
    Refused {
        /// The kernel.
        kernel: String,
        /// What stands against it.
        reason: String,
        /// What would make it possible.
        advice: String,
    },
    /// An instruction that our code needs is newer than the module.
    #[error(
        "kernel `{kernel}`: {what} needs PTX {needs} but the module is PTX {major}.{minor}; use `thread` scope or \
         compile the kernel with a newer nvcc"
    )]
    TooOld {
        /// The kernel.
        kernel: String,
        /// What needs it.
        what: &'static str,
        /// Version needed.
        needs: &'static str,
        /// `.version`, major.
        major: u32,
        /// `.version`, minor.
        minor: u32,
    },
    /// The hidden parameter does not fit.
    #[error(
        "kernel `{kernel}`: its parameters take {bytes} bytes and with the launch's record and number {total}, more than \
         the {limit} that PTX allows; use `thread` scope, which needs no launch record, and do without `launch_id`, \
         `bpf_gpu_graph_node` and aggregates over blocks"
    )]
    Parameters {
        /// The kernel.
        kernel: String,
        /// Bytes of the original's parameters.
        bytes: u64,
        /// Bytes with the hidden one.
        total: u64,
        /// Limit.
        limit: u64,
    },
    /// A parameter whose place in the buffer is not known.
    #[error("kernel `{kernel}`: parameter `{param}` has type `{ty}`, whose size is not known")]
    ParameterType {
        /// The kernel.
        kernel: String,
        /// Parameter name.
        param: String,
        /// Its type.
        ty: String,
    },
    /// The slot table does not fit beside the module's constants.
    #[error(
        "the module's constants take {constants} bytes, and with the slot table {total} do not fit the constant bank of \
         {limit}; put the slot table into `.global`"
    )]
    ConstantBank {
        /// Bytes of the module's `.const` variables.
        constants: u64,
        /// Bytes with the slot table.
        total: u64,
        /// Bytes of the bank.
        limit: u64,
    },
    /// One kernel in two requests: a bug of the caller.
    #[error("kernel `{kernel}` is requested twice; put all attachments into one request")]
    Twice {
        /// The kernel.
        kernel: String,
    },
    /// Two fragments bring different functions of one name: a bug of ours.
    #[error("two fragments define the function `{name}` differently")]
    FunctionClash {
        /// Its name.
        name: String,
    },
    /// A fragment uses a slot that belongs to the module's globals: a bug of ours.
    #[error("a fragment reads slot {slot}, but slots from {first_global_slot} on are for globals")]
    SlotClash {
        /// Slot read.
        slot: u32,
        /// First slot of the globals.
        first_global_slot: u32,
    },
    /// Edits that do not fit each other: a bug of ours.
    #[error("kernel `{kernel}`: the edits do not fit: {source}")]
    Splice {
        /// The kernel.
        kernel: String,
        /// Which edits.
        #[source]
        source: SpliceError,
    },
    /// A slot without an address where the text is to be made final: a bug of ours.
    #[error("`{line}` reads a slot that has no address; this is a bug in warpbpf")]
    Slots {
        /// The statement.
        line: String,
    },
}
