//! Flags of tools, and the verbs themselves, which the list of tools makes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, Subcommand, ValueEnum};

use super::choice::ChoiceFlags;
use super::code::CodeFlags;
use super::program::{DeviceChoice, Inject, ProgramFlags};
use crate::tools::list::TOOLS;
use crate::tools::tool::Tool;

/// When heads are bold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Flags of each tool.
#[derive(Debug, Args)]
pub struct ToolFlags {
    /// Attach to this process instead of starting an application
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// With `-p`: print the table after this many seconds, instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "pid")]
    pub duration: Option<f64>,
    /// Only kernels that this glob names, mangled or not
    #[arg(long, value_name = "GLOB")]
    pub kernel: Option<String>,
    /// What each row is about; `warpbpf TOOL --help` lists the columns
    #[arg(long, value_name = "COLUMN")]
    pub by: Option<String>,
    /// The column that rows are sorted by
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Rows to show [default: 10, with --json all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON with raw values (docs/tools.md)
    #[arg(long)]
    pub json: bool,
    /// Write the table to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Heads in bold
    #[arg(long, value_enum, default_value = "auto")]
    pub color: Colour,
    /// Print the script that the tool runs, for `warpbpf trace`, and run nothing
    #[arg(long)]
    pub script: bool,
    /// Keys that each map has room for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub keys: Option<u32>,
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto", hide = true)]
    pub inject: Inject,
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub code: CodeFlags,
    #[command(flatten)]
    pub choice: ChoiceFlags,
    /// The application and its arguments
    #[arg(last = true, value_name = "APP")]
    pub command: Vec<OsString>,
}

/// A tool and its flags.
#[derive(Debug)]
pub struct ToolCommand {
    /// Which.
    pub tool: &'static Tool,
    /// How.
    pub flags: Box<ToolFlags>,
}

/// Flags that `--help` of a tool shows; the others are those of `warpbpf trace`.
const SHOWN: [&str; 13] = [
    "pid", "duration", "kernel", "by", "sort", "top", "json", "output", "color", "script", "keys",
    "device", "command",
];

fn verb(tool: &'static Tool) -> clap::Command {
    let verb = ToolFlags::augment_args(clap::Command::new(tool.name));
    let verb = verb.mut_args(|arg| match SHOWN.contains(&arg.get_id().as_str()) {
        true => arg,
        false => arg.hide(true),
    });
    let by: Vec<&str> = tool.by.iter().map(|by| by.name()).collect();
    let columns: Vec<&str> = tool.columns.iter().map(|column| column.name).collect();
    let list = |names: &[&str]| names.join(", ");
    verb.about(tool.about).after_help(format!(
        "Rows (`--by`): {} [default: {}]
Columns (`--sort`): {} [default: {}]

Examples:
  warpbpf {name} -- ./app
  warpbpf {name} -p PID --duration 5

Flags of `warpbpf trace` from `--backend` on work, too. docs/tools.md has the output and what to do
about it.",
        list(&by),
        by[tool.default_by],
        list(&columns),
        tool.sort,
        name = tool.name
    ))
}

impl FromArgMatches for ToolCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ToolCommand, clap::Error> {
        let found = matches.subcommand().and_then(|(name, matches)| {
            let tool = TOOLS.iter().find(|tool| tool.name == name)?;
            Some((tool, matches))
        });
        let Some((tool, matches)) = found else {
            return Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand));
        };
        Ok(ToolCommand {
            tool,
            flags: Box::new(ToolFlags::from_arg_matches(matches)?),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ToolCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for ToolCommand {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        command.subcommands(TOOLS.iter().map(verb))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        ToolCommand::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        TOOLS.iter().any(|tool| tool.name == name)
    }
}
