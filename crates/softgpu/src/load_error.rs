//! Why a module cannot be loaded.

use warpbpf_ptx::PtxError;
use warpbpf_ptx::constant::ConstantError;

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
    /// A variable's declaration that says nothing of its size.
    #[error("variable `{name}` (line {line}): its size is not known")]
    VariableSize {
        /// Its name.
        name: String,
        /// Line of the declaration.
        line: usize,
    },
    /// A variable's initialiser that cannot be evaluated.
    #[error("variable `{name}` (line {line}): {source}")]
    Initialiser {
        /// Its name.
        name: String,
        /// Line of the declaration.
        line: usize,
        /// What is wrong.
        source: InitialiserError,
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

/// Why an initialiser cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum InitialiserError {
    #[error("initialiser: {0}")]
    Constant(ConstantError),
    #[error("initialiser of unknown type `{ty}`")]
    Type { ty: String },
    #[error("initialiser has more than {elements} elements, which do not fit")]
    Elements { elements: usize },
    #[error("initialiser: an integer where the type is `{ty}`")]
    Integer { ty: String },
    #[error("initialiser: a floating point number where the type is `{ty}`")]
    Float { ty: String },
    #[error("initialiser refers to `{name}`, which has no address in this module")]
    Address { name: String },
    #[error("initialiser does not fit")]
    Size,
}
