//! What stops a command, in words for its user, and the exit status that scripts see.

/// What scripts see of all verbs.
pub const STATUSES: &str = "\
Exit status:
    0  done
       run, kernels, loader: that of the application, or 128 + N if signal N has ended it; loader: that of the tool, if it alone has failed
    1  no: a program is refused, a key is not there, doctor or cache verify has found something wrong
    2  the command line makes no sense
  123  with --strict: all went well, and no launch (loader: no kernel) had programs
  125  this command itself has failed, or something that it had to say or to write is lost
  126  the application cannot be run
  127  there is no such application";

/// The exit status where the command itself fails, and where its output is lost.
pub const FAILED: u8 = 125;

/// A failure of ours, as opposed to the application's.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("cannot read `{path}`: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("cannot write `{path}`: {source}")]
    Write {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: {message}")]
    Refused { path: String, message: String },
    /// Refused by the verifier or the planner, with all that they know.
    #[error("{path}: {}", crate::term::explain::refusal(error))]
    Rejected {
        path: String,
        error: Box<warpbpf_session::SessionError>,
    },
    /// A script that is wrong, drawn.
    #[error("{shown}")]
    Script { shown: String },
    #[error("`{program}` cannot be run: {reason}")]
    BadProgram { program: String, reason: String },
    #[error("{0}")]
    Tool(#[from] warpbpf_tool::Error),
    #[error("`{path}` is not a warpbpf report: {reason}")]
    NotAReport { path: String, reason: String },
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// As `env` and `timeout` do: 127 not found, 126 not runnable, 125 our own failure; 1 for a
    /// refused program.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Tool(warpbpf_tool::Error::NoProgram { .. }) => 127,
            CliError::BadProgram { .. }
            | CliError::Tool(warpbpf_tool::Error::BadProgram { .. }) => 126,
            CliError::Refused { .. } | CliError::Rejected { .. } | CliError::Script { .. } => 1,
            CliError::Read { .. }
            | CliError::Write { .. }
            | CliError::Tool(_)
            | CliError::NotAReport { .. }
            | CliError::Other(_) => FAILED,
        }
    }
}

/// Reads a file or says which.
pub fn read(path: &std::path::Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|source| CliError::Read {
        path: path.display().to_string(),
        source,
    })
}
