//! Names on the command line that do not exist: who writes one that was renamed is told the new
//! one, and of a verb that is misspelt the one that was meant.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};
use warpbpf_abi::nearest::nearest;

use super::cli::Cli;

/// The command that it belongs to, if it is one's alone, what it was called, and what it is called.
const RENAMED: &[(&str, &str, &str)] = &[
    ("", "--place", "--map-memory"),
    ("", "--call-limit", "--hostcall-timeout"),
    ("warpbpf slots", "put", "load"),
];

/// What to say of a command line that was refused because of such a name.
pub fn advice(refused: &clap::Error) -> Option<String> {
    renamed(refused).or_else(|| misspelt(refused))
}

/// clap finds the nearest name only among those that begin alike.
fn misspelt(refused: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = refused.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    if refused.get(ContextKind::SuggestedSubcommand).is_some() {
        return None;
    }
    let usage = refused.get(ContextKind::Usage).map(ToString::to_string);
    let usage = usage.unwrap_or_default();
    let cli = Cli::command();
    let inner = cli.get_subcommands().find(|verb| {
        let name = format!("warpbpf {} ", verb.get_name());
        verb.has_subcommands() && usage.contains(&name)
    });
    let of = inner.map_or_else(
        || "warpbpf".to_owned(),
        |verb| format!("warpbpf {}", verb.get_name()),
    );
    let verbs = inner
        .unwrap_or(&cli)
        .get_subcommands()
        .map(clap::Command::get_name);
    let meant = nearest(word, verbs)?;
    Some(format!(
        "`{of}` has no `{word}`; did you mean `{meant}`? `{of} --help` lists all"
    ))
}

fn renamed(refused: &clap::Error) -> Option<String> {
    let text = |kind| match refused.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        _ => String::new(),
    };
    let unknown = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].map(text);
    let usage = text(ContextKind::Usage);
    let (command, old, new) = RENAMED
        .iter()
        .find(|(command, old, _)| usage.contains(command) && unknown.iter().any(|u| u == old))?;
    let command = command.strip_prefix("warpbpf ").map(|c| format!("{c} "));
    let command = command.unwrap_or_default();
    Some(format!("`{command}{old}` is called `{command}{new}` now"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::Cli;

    #[test]
    fn an_old_name_is_refused_with_the_new_one() {
        let said = |line: &str| {
            let refused = Cli::try_parse_from(line.split(' ')).err()?;
            advice(&refused)
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(
            said("warpbpf run --place a=host x.bpf.o -- ./app"),
            told("`--place` is called `--map-memory` now")
        );
        assert_eq!(
            said("warpbpf attach --call-limit=20 -p 1 x.bpf.o"),
            told("`--call-limit` is called `--hostcall-timeout` now")
        );
        assert_eq!(
            said("warpbpf slots put x.bpf.o"),
            told("`slots put` is called `slots load` now")
        );
        assert_eq!(
            said("warpbpf rnu x.bpf.o"),
            told("`warpbpf` has no `rnu`; did you mean `run`? `warpbpf --help` lists all")
        );
        assert_eq!(
            said("warpbpf maps opp"),
            told(
                "`warpbpf maps` has no `opp`; did you mean `pop`? `warpbpf maps --help` lists all"
            )
        );
        for other in [
            "warpbpf nothing-like-it x.bpf.o",
            "warpbpf run --plaice a=host x.bpf.o",
            "warpbpf slots",
        ] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
