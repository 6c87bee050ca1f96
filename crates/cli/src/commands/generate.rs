//! `warpbpf completions` and `warpbpf man`: what shells and `man` want to know of the command line,
//! made of the same definitions as `--help`.

use clap::CommandFactory as _;

use crate::flags::{Cli, CompletionsFlags, ManFlags};
use crate::term::error::CliError;
use crate::term::output;

/// `warpbpf completions`
///
/// # Errors
/// Standard output cannot be written to.
pub fn completions(flags: &CompletionsFlags) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "warpbpf", &mut script);
    output::standard_output(&script).map_err(|error| {
        CliError::Other(format!(
            "the script cannot be written to standard output: {error}"
        ))
    })?;
    Ok(0)
}

/// `warpbpf man`
///
/// # Errors
/// A page cannot be written.
pub fn man(flags: &ManFlags) -> Result<u8, CliError> {
    let folder = &flags.folder;
    let failed = |error: std::io::Error| {
        CliError::Other(format!(
            "manual pages cannot be written to `{}`: {error}",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    Ok(0)
}
