//! What the tool's user is told.

use std::io::Write as _;

/// Says something to the tool's user. The tool's standard error is the only place that there is.
pub fn tell(text: &str) {
    let line = format!("warpbpf: {}\n", plain(text));
    // Nobody to tell is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Names are others', and a terminal acts on control characters.
fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let acts = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(acts) {
        return text.into();
    }
    let mut out = String::new();
    for character in text.chars() {
        match acts(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_reach_no_terminal() {
        assert_eq!(plain("`k\x1b[2J\u{9b}`\n\tb"), "`k\\u{1b}[2J\\u{9b}`\n\tb");
        assert!(matches!(plain("plain"), std::borrow::Cow::Borrowed(_)));
    }
}
