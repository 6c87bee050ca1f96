//! Text of others on a terminal: names, command lines and messages come from applications, object
//! files and kernels, and a control character in one of them would move the cursor, change colours
//! or hide what stands before it.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A character that a terminal acts on, or by which one line looks like another.
fn acts(character: char) -> bool {
    matches!(character,
        // C0, DEL and C1.
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Line and paragraph separators, marks and overrides of the writing direction.
        | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_escaped(out: &mut String, character: char) {
    let _ = match character {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\0'..='\x1f' => write!(out, "\\x{:02x}", u32::from(character)),
        // As JSON has it, which leaves these as they are. All of them are below U+10000.
        _ => write!(out, "\\u{:04x}", u32::from(character)),
    };
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |character: char| acts(character) && !stays(character);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match bad(character) {
            true => push_escaped(&mut out, character),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// A name, or anything else that stands in a line of ours: it can neither act on a terminal nor
/// begin a line.
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// A message that may have several lines: those behind the first are indented, so that none can
/// pass for a line of ours.
pub fn message(text: &str) -> Cow<'_, str> {
    let text = escaped(text, |character| matches!(character, '\n' | '\t'));
    let whole = text.trim_end_matches('\n');
    match whole.contains('\n') || whole.len() < text.len() {
        true => Cow::Owned(whole.replace('\n', "\n  ")),
        false => text,
    }
}

/// Whole output, whose lines are ours. JSON stays JSON that says the same: what is escaped in it is
/// in its strings.
pub fn output(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

/// What a refusal is drawn with: colours, bold, and neither of them.
const DRAWN: [&str; 7] = [
    "\x1b[0m", "\x1b[1m", "\x1b[91m", "\x1b[92m", "\x1b[93m", "\x1b[94m", "\x1b[96m",
];

/// As [`output`], and what it is drawn with stays: nothing can be hidden by that.
pub fn drawn(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, part) in text.split('\x1b').enumerate() {
        let mut rest = part;
        if number > 0 {
            let own = DRAWN.iter().find(|code| part.starts_with(&code[1..]));
            out += own.copied().unwrap_or("\\x1b");
            rest = &part[own.map_or(0, |code| code.len() - 1)..];
        }
        out += &output(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        assert_eq!(
            name("k\x1b[2J\u{9b}31m\x07\r\n\t\x7f"),
            "k\\x1b[2J\\u009b31m\\x07\\r\\n\\t\\u007f"
        );
        assert_eq!(
            name("a\u{202e}b\u{2066}c\u{2028}"),
            "a\\u202eb\\u2066c\\u2028"
        );
        assert!(matches!(name("größe <int>, 日本"), Cow::Borrowed(_)));
        assert_eq!(output("a\tb\nc\x1b"), "a\tb\nc\\x1b");
    }

    #[test]
    fn what_is_drawn_stays_and_nothing_else() {
        let text = "\x1b[1m\x1b[91merror\x1b[0m\n \x1b[8mhidden\x1b[2J\x1b]0;t\x07\x1b";
        let expected = "\x1b[1m\x1b[91merror\x1b[0m\n \\x1b[8mhidden\\x1b[2J\\x1b]0;t\\x07\\x1b";
        assert_eq!(drawn(text), expected);
        assert_eq!(drawn("plain\tü\r"), "plain\tü\\r");
    }

    #[test]
    fn lines_of_others_do_not_pass_for_ours() {
        assert_eq!(
            message("first\nwarpbpf: forged\n"),
            "first\n  warpbpf: forged"
        );
        assert_eq!(message("one\r\n"), "one\\r");
        assert!(matches!(message("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_says_the_same_with_escapes() {
        let value = serde_json::json!({ "n\u{9b}": "\x1b[0m \u{7f}\u{202e} ü" });
        let text = value.to_string();
        let safe = output(&text);
        assert!(!safe.contains(acts), "{safe:?}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }
}
