//! Why a function of the process has no programs.

/// Why a program cannot be at a function. `Display` is what the user is told of the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FunctionError {
    #[error(
        "functions of `{name}` are called by the driver itself; probes are for functions of the application, its libraries and CUDA"
    )]
    BelowDriver { name: String },
    #[error("the driver has no function of this name")]
    NoApi,
    /// What the system says of its file.
    #[error("{error}")]
    System { error: String },
    #[error("`{path}` cannot be read: {error}")]
    Unread { path: String, error: String },
    /// No file of the name is mapped.
    #[error("{why}")]
    NotLoaded { why: String },
    #[error("no part of the file that is loaded is there")]
    NotInFile,
    #[error("that is inside of {of}, and only the start and the end of functions are served")]
    Inside { of: String },
    #[error(
        "how long that function is is not known: it has no symbol with a size and no entry in `.eh_frame`"
    )]
    NoLength,
    #[error("by its file it has {bytes} bytes, and {mapped} are mapped")]
    NotMapped { bytes: usize, mapped: usize },
    #[error(
        "that is an entry of a procedure linkage table, which has no end; take the function that it is for"
    )]
    EndOfEntry,
    #[error(
        "entries of `{name}` are called by the driver itself, with its locks held; take the function that it is for"
    )]
    EntryOfDriver { name: String },
}
