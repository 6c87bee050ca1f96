//! Old names do not come back. `docs/internals/glossary.md` gives each thing one name. What is
//! listed here was replaced by a name from there. Comments and strings are not looked at: the
//! same words may be ordinary English in them.

/// Parts of names in code and of names of files, and the word of the glossary.
const OLD: &[(&str, &str)] = &[
    ("guest", "client"),
    ("guests", "client"),
    ("greeting", "handshake"),
    ("parties", "client"),
    ("pace", "poll_interval"),
    ("succeed", "replace"),
    ("roster", "kernel_registry"),
    ("wish", "request"),
    ("wishes", "request"),
];

/// Parts of names that are old in one folder. Elsewhere the same word may mean something else.
const OLD_IN: &[(&str, &str, &str)] = &[
    ("crates/agent", "door", "launch_barrier"),
    ("crates/agent", "missed", "uninstrumented"),
    ("crates/agent", "settle", "instrument` or `drain"),
    ("crates/agent", "settled", "instrumented` or `drained"),
    ("crates/agent", "unsettled", "not drained"),
    ("crates/loader", "bell", "notify"),
    ("crates/loader", "twin", "shadow"),
    ("crates/session", "recovered", "embedded_ptx"),
    ("crates/tool", "missed", "uninstrumented"),
    ("crates/warpbpf", "missed", "uninstrumented"),
    ("crates/wire", "missed", "uninstrumented"),
];

/// Whole names in code that are old below a folder.
const OLD_NAMES: &[(&str, &str, &str)] = &[
    ("", "MadeFrom", "CompiledFrom"),
    ("", "Miss", "FallbackReason"),
    ("", "edit_told", "edit_with_launch_args"),
    ("", "told_at_launch", "args_at_launch"),
    ("", "told_to_kernel", "launch_args_of_kernel"),
    ("", "told_words", "launch_arg_words"),
    ("crates/agent", "Beside", "Background"),
    ("crates/agent", "LiveState", "ContextState"),
    ("crates/agent", "Lives", "ContextRegistry"),
    ("crates/agent", "Made", "JitOutputs"),
    ("crates/agent", "lives", "context_registry"),
    ("crates/cli", "way", "method"),
    ("crates/patch/src", "Told", "LaunchArgs"),
    ("crates/patch/src", "Way", "Method"),
    ("crates/session", "Told", "LaunchArgs"),
    ("crates/session", "way", "method"),
    ("crates/session/src", "Way", "Method"),
    ("crates/tool", "way", "method"),
    ("crates/warpbpf", "way", "method"),
    ("crates/wire", "way", "method"),
];

/// Names of files and folders that are old below a folder.
const OLD_FILES: &[(&str, &str, &str)] = &[
    ("", "aside", "background"),
    ("", "beside", "background` or `exclusive"),
    ("", "crowds", "stress"),
    ("", "exchange", "replace"),
    ("", "made", "jit_outputs"),
    ("", "mark", "completion_event"),
    ("", "recovered", "embedded_ptx"),
    ("", "settle", "instrument"),
    ("", "settled", "drain"),
    ("", "swap", "replace"),
    ("", "told", "launch_args"),
    ("crates/agent", "answers", "occupancy"),
    ("crates/agent", "origin", "vendor_check"),
    ("crates/agent", "unknown", "preloaded"),
];

/// Findings in one Rust file: its own name, and the names in its code.
pub fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    for path_part in name.split('/') {
        let stem = path_part.strip_suffix(".rs").unwrap_or(path_part);
        if let Some((old, new)) = old_in(name, stem).or_else(|| old_as(OLD_FILES, name, stem)) {
            findings.push(format!(
                "{name}: `{old}` is called `{new}` (docs/internals/glossary.md); rename the file"
            ));
        }
    }
    let code = code(text);
    for (at, line) in code.lines().enumerate() {
        for ident in identifiers(line) {
            if let Some((old, new)) = old_in(name, ident).or_else(|| old_as(OLD_NAMES, name, ident))
            {
                findings.push(format!(
                    "{name}:{}: `{ident}`: `{old}` is called `{new}` (docs/internals/glossary.md)",
                    at + 1
                ));
            }
        }
    }
}

/// An old word, and the one that replaced it.
type Old = (&'static str, &'static str);

/// The first old word among the parts of a name in a file.
fn old_in(file: &str, name: &str) -> Option<Old> {
    let parts = parts(name);
    let is_part = |(old, _): &Old| parts.iter().any(|part| part == old);
    let here = OLD_IN.iter().filter(|(folder, ..)| is_in(file, folder));
    let here = here.map(|(_, old, new)| (*old, *new));
    OLD.iter().copied().chain(here).find(is_part)
}

/// A name as a whole is old in a file.
fn old_as(all: &[(&str, &'static str, &'static str)], file: &str, name: &str) -> Option<Old> {
    let is_old = |(folder, old, _): &&(&str, &str, &str)| *old == name && is_in(file, folder);
    all.iter().find(is_old).map(|(_, old, new)| (*old, *new))
}

/// A file is below a folder; an empty one stands for all.
fn is_in(file: &str, folder: &str) -> bool {
    let rest = file.strip_prefix(folder);
    rest.is_some_and(|rest| folder.is_empty() || rest.starts_with('/'))
}

/// `LaunchRecord`, `launch_record` and `launch-record` have the parts `launch` and `record`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut()
            && c.is_alphanumeric()
        {
            part.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    parts
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// The text without comments and without what is in strings and characters; lines stay lines.
fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let was_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = skipped(rest, was_word);
        if length > 0 {
            let lines = rest[..length].chars().filter(|c| *c == '\n');
            code.push(' ');
            code.extend(lines);
            at += length;
        } else {
            let Some(c) = rest.chars().next() else { break };
            code.push(c);
            at += c.len_utf8();
        }
    }
    code
}

/// How many bytes a comment, a string or a character has that begins here; 0 if none does.
fn skipped(rest: &str, was_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if let Some(inner) = rest.strip_prefix('"') {
        return 1 + quoted(inner, '"');
    }
    if !was_word && let Some(length) = raw_string(rest) {
        return length;
    }
    // A lifetime has no second quote behind one character.
    let mut chars = rest.strip_prefix('\'').unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => 1 + quoted(&rest[1..], '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// Block comments may be in each other.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Up to behind the quote that ends it.
fn quoted(rest: &str, end: char) -> usize {
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == end {
            return at + c.len_utf8();
        }
    }
    rest.len()
}

/// `r"…"` and `r#"…"#`, with a `b` or a `c` before it or without.
fn raw_string(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let behind = behind.strip_prefix('r')?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let inner = behind[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inner.find(&end).map_or(inner.len(), |at| at + end.len());
    Some(rest.len() - inner.len() + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_are_found_in_code_and_in_names_of_files() {
        let text = "//! A guest of the guests.\nfn of_guest(x: GuestInfo) {}\nlet parties = 1;\n";
        let mut findings = Vec::new();
        check("crates/a/src/guest/b.rs", text, &mut findings);
        assert_eq!(
            findings,
            [
                "crates/a/src/guest/b.rs: `guest` is called `client` (docs/internals/glossary.md); rename the file",
                "crates/a/src/guest/b.rs:2: `of_guest`: `guest` is called `client` (docs/internals/glossary.md)",
                "crates/a/src/guest/b.rs:2: `GuestInfo`: `guest` is called `client` (docs/internals/glossary.md)",
                "crates/a/src/guest/b.rs:3: `parties`: `parties` is called `client` (docs/internals/glossary.md)",
            ]
        );
    }

    #[test]
    fn some_names_are_old_as_a_whole_or_in_a_folder_only() {
        let found = |name: &str, text: &str| {
            let mut findings = Vec::new();
            check(name, text, &mut findings);
            let says = " (docs/internals/glossary.md)";
            let short = |f: String| f.replace(says, "").replace(&format!("{name}:"), "");
            findings.into_iter().map(short).collect::<Vec<_>>()
        };
        let text = "fn is_settled(way: Miss) { told(told_words, in_the_way, dismissed) }";
        let miss = "1: `Miss`: `Miss` is called `FallbackReason`";
        let words = "1: `told_words`: `told_words` is called `launch_arg_words`";
        assert_eq!(found("crates/verify/src/unknown.rs", text), [miss, words]);
        assert_eq!(found("crates/agents/src/b.rs", text), [miss, words]);
        assert_eq!(
            found("crates/agent/src/unknown/b.rs", text),
            [
                " `unknown` is called `preloaded`; rename the file",
                "1: `is_settled`: `settled` is called `instrumented` or `drained`",
                miss,
                words,
            ]
        );
        assert_eq!(
            found("crates/wire/src/told.rs", text),
            [
                " `told` is called `launch_args`; rename the file",
                "1: `way`: `way` is called `method`",
                miss,
                words,
            ]
        );
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = r##"
            /// A guest.
            fn f<'guests>(a: &'guests str) -> char { /* guest /* guest */ guest */ '\'' }
            const A: &str = "guest \" guest"; const B: &str = r#"guest " guest"#;
            const C: char = '"'; fn suggest() { guest } // guest
        "##;
        let mut findings = Vec::new();
        check("crates/a/src/b.rs", text, &mut findings);
        let found: Vec<&str> = findings
            .iter()
            .map(|f| &f[.."crates/a/src/b.rs:3: `guests`".len()])
            .collect();
        assert_eq!(
            found,
            [
                "crates/a/src/b.rs:3: `guests`",
                "crates/a/src/b.rs:3: `guests`",
                "crates/a/src/b.rs:5: `guest`:",
            ]
        );
    }
}
