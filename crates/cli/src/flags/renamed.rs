//! Flags and verbs that once had other names: who writes an old one is told the new one.

use clap::error::{ContextKind, ContextValue};

/// The command that it belongs to, if it is one's alone, what it was called, and what it is called.
const RENAMED: &[(&str, &str, &str)] = &[
    ("", "--place", "--map-memory"),
    ("", "--call-limit", "--hostcall-timeout"),
    ("warpbpf slots", "put", "load"),
];

/// What to say of a command line that was refused because of an old name.
pub fn advice(refused: &clap::Error) -> Option<String> {
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
        for other in [
            "warpbpf put x.bpf.o",
            "warpbpf run --plaice a=host x.bpf.o",
            "warpbpf slots",
        ] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
