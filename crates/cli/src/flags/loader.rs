//! Flags of `warpbpf loader`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::program::{DeviceChoice, Inject};

/// `warpbpf loader`
#[derive(Debug, Args)]
pub struct LoaderFlags {
    /// Accept programs that can change what the application computes
    #[arg(long)]
    pub allow_modify: bool,
    /// Instructions that one invocation may execute, instead of the attach point's default
    #[arg(long, value_name = "N")]
    pub budget: Option<u64>,
    /// Accept loops that nothing bounds: one that uses up the budget ends its program, which is
    /// counted and told
    #[arg(long)]
    pub bound_loops: bool,
    /// Have the application's NVTX ranges and names known, though no program that the tool has
    /// attached by then needs them: such that it attaches later may
    #[arg(long)]
    pub ranges: bool,
    /// A file name for the control socket, the same each time, for applications that are started by
    /// others
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// Let the tool's `bpf()` be answered by another tool that runs, by its control socket
    /// (`--socket`): for `bpftool`
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub inside: Option<PathBuf>,
    /// Put the tool's programs into the process with this number, which runs already, when the tool
    /// has attached them; can be given several times. Programs are taken out again when the tool
    /// ends
    #[arg(short, long, value_name = "PID", conflicts_with = "inside")]
    pub pid: Vec<u32>,
    /// End with exit status 123 instead of 0 if no kernel of the application had one of the tool's
    /// programs
    #[arg(long)]
    pub strict: bool,
    /// Seconds that the tool gets to show what it has after the application has ended; then it is
    /// interrupted
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub linger: f64,
    /// Where kernels run
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
    /// How the agent gets in
    #[arg(long, value_enum, default_value = "auto")]
    pub inject: Inject,
    /// The tool and its arguments; behind `--` the application and its own, started when the tool
    /// has attached its programs. Without an application or `--pid`, what to set in its environment
    /// is said instead
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "TOOL [ARGS] [-- APP [ARGS]]"
    )]
    pub command: Vec<OsString>,
}

impl LoaderFlags {
    /// The tool's words and the application's.
    pub fn tool_and_app(&self) -> (&[OsString], &[OsString]) {
        match self.command.iter().position(|word| word == "--") {
            Some(at) => (&self.command[..at], &self.command[at + 1..]),
            None => (&self.command, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::flags::{Cli, Command};

    #[test]
    fn a_tool_and_an_application_stand_on_one_line() {
        let split = |words: &[&str]| {
            let cli = Cli::parse_from([&["warpbpf", "loader"], words].concat());
            let Command::Loader(flags) = cli.command else {
                panic!("another verb");
            };
            let text = |words: &[std::ffi::OsString]| {
                let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
                words.join(" ")
            };
            let (tool, app) = flags.tool_and_app();
            (flags.allow_modify, flags.pid.clone(), text(tool), text(app))
        };
        let expect = |modify: bool, tool: &str, app: &str| {
            (modify, Vec::new(), tool.to_owned(), app.to_owned())
        };
        assert_eq!(
            split(&["--allow-modify", "./tool", "-v", "--", "./app", "--", "x"]),
            expect(true, "./tool -v", "./app -- x")
        );
        assert_eq!(
            split(&["./tool", "--linger", "1"]),
            expect(false, "./tool --linger 1", "")
        );
        assert_eq!(
            split(&["-p", "5", "--pid", "6", "./tool", "-p", "7"]),
            (false, vec![5, 6], "./tool -p 7".to_owned(), String::new())
        );
    }
}
