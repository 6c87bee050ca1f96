//! The `warpbpf` command: flags, one file per verb, and everything that a person reads.
//!
//! Nothing here knows how a kernel is instrumented; it speaks to the agent through `wire` and to
//! the libraries.
//!
//! Layers, each uses only those to its right: `commands → trace → timeline → collect → programs →
//! report → backend → application → flags → tools → term`.
mod application;
mod backend;
mod collect;
mod commands;
mod flags;
mod programs;
mod report;
mod term;
mod timeline;
mod tools;
mod trace;

use std::io::Write as _;

use clap::FromArgMatches as _;

use application::start;
use flags::{Cli, Command, renamed};
use term::output;

fn main() -> std::process::ExitCode {
    // SAFETY: there is one thread yet.
    let surroundings = unsafe { start::Surroundings::take() };
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(answer) => {
            if let Some(advice) = renamed::advice(&answer) {
                output::tell_line(&format!("warpbpf: {advice}"));
                return std::process::ExitCode::from(
                    output::final_status(answer.exit_code() as u8),
                );
            }
            return std::process::ExitCode::from(answered(&answer));
        }
    };
    let done = match cli.command {
        Command::Run(flags) => commands::run::run(&flags, &surroundings),
        Command::Trace(flags) => commands::trace::run(flags, &surroundings),
        Command::Tool(command) => commands::tool::run(command, &surroundings),
        Command::Attach(flags) => commands::attach::run(&flags),
        Command::Serve(flags) => commands::serve::run(&flags, &surroundings),
        Command::Detach(flags) => commands::attach::detach(&flags),
        Command::Ps(flags) => output::answer(flags.json, commands::ps::run(&flags)),
        Command::Kernels(flags) => commands::kernels::run(&flags, &surroundings),
        Command::Sites(flags) => output::answer(flags.json, commands::sites::run(&flags)),
        Command::Loader(flags) => commands::loader::run(&flags, &surroundings),
        Command::Cache(flags) => output::answer(flags.json, commands::cache::run(&flags)),
        Command::Maps(flags) => output::answer(flags.json, commands::maps::run(&flags)),
        Command::Programs(flags) => output::answer(flags.json, commands::replace::programs(&flags)),
        Command::Replace(flags) => {
            output::answer(flags.to.json, commands::replace::replace(&flags))
        }
        Command::Add(flags) => output::answer(flags.to.json, commands::replace::add(&flags)),
        Command::Remove(flags) => output::answer(flags.to.json, commands::replace::remove(&flags)),
        Command::Gate(flags) => output::answer(flags.to.json, commands::replace::gate(&flags)),
        Command::Slots(flags) => {
            output::answer(flags.verb.to().json, commands::replace::slots(&flags.verb))
        }
        Command::Launch(flags) => {
            output::answer(flags.output.json.is_some(), commands::launch::run(&flags))
        }
        Command::LaunchInside(flags) => commands::launch_inside::run(&flags),
        Command::New(flags) => commands::new::run(&flags),
        Command::Verify(flags) => output::answer(flags.json, commands::verify::run(&flags)),
        Command::Compile(flags) => output::answer(flags.json, commands::compile::run(&flags)),
        Command::Link(flags) => output::answer(flags.json, commands::link::run(&flags)),
        Command::Doctor(flags) => commands::doctor::run(&flags),
        Command::Report(flags) => commands::report::run(&flags),
        Command::Completions(flags) => commands::generate::completions(&flags),
        Command::Man(flags) => commands::generate::man(&flags),
    };
    let status = match done {
        Ok(status) => status,
        Err(error) => {
            output::tell_error(&error);
            error.exit_code()
        }
    };
    std::process::ExitCode::from(output::final_status(status))
}

fn parsed() -> Result<Cli, clap::Error> {
    let mut command = flags::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// What is no command is answered by help, the version, or what is wrong with it.
fn answered(answer: &clap::Error) -> u8 {
    let shown = answer.print().and_then(|()| std::io::stdout().flush());
    if let Err(error) = shown
        && !output::is_read_no_more(&error)
    {
        output::lose();
        output::tell_line(&format!("warpbpf: cannot write: {error}"));
    }
    output::final_status(answer.exit_code() as u8)
}
