//! Flags of the verbs that write what shells and `man` want to know.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `warpbpf completions`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  warpbpf completions bash > ~/.local/share/bash-completion/completions/warpbpf
  warpbpf completions zsh > ~/.zfunc/_warpbpf
  warpbpf completions fish > ~/.config/fish/completions/warpbpf.fish")]
pub struct CompletionsFlags {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `warpbpf new`
#[derive(Debug, Args)]
#[command(after_help = "Example:
  warpbpf new hello && make -C hello && warpbpf run hello/hello.bpf.o -- ./app")]
pub struct NewFlags {
    /// The folder to make; its name is that of the program
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// `warpbpf man`
#[derive(Debug, Args)]
#[command(after_help = "Example:
  warpbpf man ~/.local/share/man/man1 && man warpbpf-run")]
pub struct ManFlags {
    /// Where `warpbpf.1` and a page for each verb (`warpbpf-run.1`, …) are written; made if it is
    /// not there
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}
