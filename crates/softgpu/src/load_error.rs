//! Why a module cannot be loaded.

use warpbpf_ptx::PtxError;

/// Why a module or a kernel of it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The text is not PTX.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// Only 64-bit modules are run.
    #[error("`.address_size {bits}` is not supported: compile for 64 bits")]
    AddressSize {
        /// What the module says.
        bits: u32,
    },
    /// No room for a variable.
    #[error("variable `{name}` needs `{bytes}` bytes of device memory, which are not there")]
    OutOfMemory {
        /// Its name.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// A variable that only another module could define.
    #[error("variable `{name}` (line {line}) is `.extern` and the module does not define it")]
    ExternVariable {
        /// Its name.
        name: String,
        /// Line of the declaration.
        line: usize,
    },
    /// A variable's declaration or initialiser that cannot be evaluated.
    #[error("variable `{name}` (line {line}): {reason}")]
    Variable {
        /// Its name.
        name: String,
        /// Line of the declaration.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A function that refers to something that is not declared, or is malformed.
    #[error("function `{function}`, PTX line {line}: {reason}")]
    Body {
        /// Mangled name.
        function: String,
        /// Line of the statement.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}
