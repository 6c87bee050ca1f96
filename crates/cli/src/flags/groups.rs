//! The list of verbs that `warpbpf --help` shows, by what they are for.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::cli::Cli;
use crate::tools::list::TOOLS;

/// Columns of the list.
const WIDE: usize = 100;
/// In front of what a verb does.
const NAMES: usize = 17;

/// What verbs are for, and which they are. Tools stand behind `trace`.
const GROUPS: &[(&str, &[&str])] = &[
    ("Observe an application", &["trace"]),
    (
        "Put programs into applications",
        &["run", "attach", "serve", "detach", "loader"],
    ),
    (
        "Look at and change what runs",
        &[
            "ps",
            "maps",
            "programs",
            "replace",
            "add",
            "remove",
            "gate",
            "slots",
            "launch-inside",
        ],
    ),
    (
        "Look at code and machines",
        &["kernels", "sites", "doctor", "report", "cache"],
    ),
    (
        "Develop programs",
        &["new", "verify", "compile", "link", "launch"],
    ),
    ("Shells and manuals", &["completions", "man", "help"]),
];

/// The command line, whose help has verbs in groups.
pub fn command() -> Command {
    let mut cli = Cli::command();
    let list = list(&cli);
    cli = cli.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{list}\nOptions:\n{{options}}{{after-help}}"
    ));
    cli
}

/// Verbs with what they do, in groups.
pub fn list(cli: &Command) -> String {
    let header = cli.get_styles().get_header();
    let literal = cli.get_styles().get_literal();
    let mut out = String::new();
    for (head, verbs) in groups() {
        let _ = writeln!(out, "\n{header}{head}:{header:#}");
        for verb in verbs {
            let fill = " ".repeat(NAMES - 2 - verb.len());
            let about = match verb {
                "help" => "Print this list, or the help of a verb".to_owned(),
                verb => cli
                    .find_subcommand(verb)
                    .and_then(Command::get_about)
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            };
            let _ = write!(out, "  {literal}{verb}{literal:#}{fill}");
            let mut used = NAMES;
            for word in about.split(' ') {
                if used + word.len() > WIDE {
                    out.truncate(out.trim_end().len());
                    let _ = write!(out, "\n{}", " ".repeat(NAMES));
                    used = NAMES;
                }
                let _ = write!(out, "{word} ");
                used += word.len() + 1;
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
    out
}

fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let groups = GROUPS.iter().map(|(head, verbs)| {
        let tools = TOOLS.iter().map(|tool| tool.name);
        let tools = tools.filter(|_| verbs.contains(&"trace"));
        (*head, verbs.iter().copied().chain(tools).collect())
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group() {
        let listed = groups().into_iter().flat_map(|(_, verbs)| verbs);
        let mut listed: Vec<&str> = listed.filter(|verb| *verb != "help").collect();
        let cli = Cli::command();
        let mut verbs: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(listed, verbs);
    }

    #[test]
    fn the_list_fits_a_terminal() {
        let help = command().render_long_help().to_string();
        assert!(
            help.contains("\nObserve an application:\n  trace"),
            "{help}"
        );
        for line in list(&Cli::command().styles(clap::builder::Styles::plain())).lines() {
            assert!(line.len() <= WIDE, "{line}");
        }
    }
}
