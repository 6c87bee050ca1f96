//! The committed list of disagreements: each with a reason that a person wrote.
//!
//! One line each: `refused FILE PROGRAM RULE # reason` for what warpbpf refuses and the kernel
//! accepts, and `accepted FILE PROGRAM [KERNEL'S MESSAGE] # reason` the other way round. A line
//! that is no longer true is an error, as is one that is missing or has no reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which way the two differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// The kernel refuses it, we accept it.
    Accepted,
    /// The kernel accepts it, we refuse it.
    Refused,
}

/// A disagreement: file, program, way.
pub type Key = (String, String, Way);

/// A disagreement's further words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Our rule, or the kernel's message in brackets.
    pub detail: String,
    /// Why; empty if nobody has said yet.
    pub reason: String,
}

/// The list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Lines before the first entry.
    pub preamble: String,
    /// The entries.
    pub entries: BTreeMap<Key, Entry>,
}

impl Way {
    /// How a reason may begin. There is none for "we miss what makes a program unsafe".
    pub fn classes(self) -> &'static [&'static str] {
        match self {
            Way::Accepted => &["not a safety rule: ", "more exact: ", "speculation: "],
            Way::Refused => &["leak: ", "less exact: ", "limit: ", "kernel objects: "],
        }
    }
}

/// What a new entry's reason says.
const UNEXPLAINED: &str = "?";

impl Ledger {
    /// Reads the list.
    ///
    /// # Errors
    /// The number of the first line that is no entry, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Ledger, String> {
        let mut ledger = Ledger::default();
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                if ledger.entries.is_empty() && line.starts_with('#') {
                    let _ = writeln!(ledger.preamble, "{line}");
                }
                continue;
            }
            let (head, reason) = line.split_once(" # ").unwrap_or((line, ""));
            let mut words = head.splitn(4, ' ');
            let way = match words.next() {
                Some("refused") => Way::Refused,
                Some("accepted") => Way::Accepted,
                other => {
                    let other = other.unwrap_or("");
                    return Err(format!(
                        "line {}: `{other}` must be `refused` or `accepted`",
                        i + 1
                    ));
                }
            };
            let (Some(file), Some(program), Some(detail)) =
                (words.next(), words.next(), words.next())
            else {
                return Err(format!(
                    "line {}: file, program and rule are expected after `{}`",
                    i + 1,
                    head.split(' ').next().unwrap_or("")
                ));
            };
            let entry = Entry {
                detail: detail.trim().to_owned(),
                reason: match reason.trim() {
                    UNEXPLAINED => String::new(),
                    reason => reason.to_owned(),
                },
            };
            let key = (file.to_owned(), program.to_owned(), way);
            if ledger.entries.insert(key, entry).is_some() {
                return Err(format!("line {}: `{file} {program}` is there twice", i + 1));
            }
        }
        Ok(ledger)
    }

    /// The list as text.
    pub fn render(&self) -> String {
        let mut text = self.preamble.clone();
        for ((file, program, way), entry) in &self.entries {
            let way = match way {
                Way::Refused => "refused",
                Way::Accepted => "accepted",
            };
            let reason = if entry.reason.is_empty() {
                UNEXPLAINED
            } else {
                &entry.reason
            };
            let _ = writeln!(text, "{way} {file} {program} {} # {reason}", entry.detail);
        }
        text
    }

    /// The list of what was found now, with the reasons of this one.
    pub fn blessed(&self, found: &BTreeMap<Key, String>) -> Ledger {
        let entries = found
            .iter()
            .map(|(key, detail)| {
                let reason = self
                    .entries
                    .get(key)
                    .map_or(String::new(), |old| old.reason.clone());
                let entry = Entry {
                    detail: detail.clone(),
                    reason,
                };
                (key.clone(), entry)
            })
            .collect();
        Ledger {
            preamble: self.preamble.clone(),
            entries,
        }
    }

    /// Where the list and what was found differ, one line each.
    pub fn differences(&self, found: &BTreeMap<Key, String>) -> Vec<String> {
        let mut lines = Vec::new();
        for ((file, program, way), detail) in found {
            let what = match way {
                Way::Refused => "refused, but the kernel accepts it",
                Way::Accepted => "accepted, but the kernel refuses it",
            };
            match self.entries.get(&(file.clone(), program.clone(), *way)) {
                None => lines.push(format!(
                    "{file} {program}: {what}: {detail}; not in the list"
                )),
                Some(entry) if entry.detail != *detail => lines.push(format!(
                    "{file} {program}: {what}: {detail}; the list says {}",
                    entry.detail
                )),
                Some(entry) if entry.reason.is_empty() => {
                    lines.push(format!("{file} {program}: {what}: no reason is given"));
                }
                Some(entry) if !way.classes().iter().any(|c| entry.reason.starts_with(c)) => {
                    lines.push(format!(
                        "{file} {program}: {what}: the reason must begin with `{}`",
                        way.classes().join("`, `")
                    ));
                }
                Some(_) => {}
            }
        }
        for key @ (file, program, _) in self.entries.keys() {
            if !found.contains_key(key) {
                lines.push(format!(
                    "{file} {program}: in the list, but the two agree now"
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# about\naccepted a.c p [unreachable insn] # not a safety rule: it never runs\nrefused a.c q budget # ?\nrefused b.c p misaligned # limit: too strict\n";

    fn key(file: &str, program: &str, way: Way) -> Key {
        (file.to_owned(), program.to_owned(), way)
    }

    #[test]
    fn the_list_survives_a_round_trip() {
        let ledger = Ledger::parse(TEXT).expect("the list is well formed");
        assert_eq!(ledger.entries.len(), 3);
        let entry = &ledger.entries[&key("a.c", "p", Way::Accepted)];
        assert_eq!(entry.detail, "[unreachable insn]");
        assert_eq!(entry.reason, "not a safety rule: it never runs");
        assert_eq!(ledger.render(), TEXT);
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(
            Ledger::parse("\nmaybe a.c p x # y"),
            Err("line 2: `maybe` must be `refused` or `accepted`".to_owned())
        );
        assert_eq!(
            Ledger::parse("refused a.c p"),
            Err("line 1: file, program and rule are expected after `refused`".to_owned())
        );
        assert_eq!(
            Ledger::parse("refused a.c p x # y\nrefused a.c p z # y"),
            Err("line 2: `a.c p` is there twice".to_owned())
        );
    }

    #[test]
    fn every_difference_is_told() {
        let ledger = Ledger::parse(TEXT).expect("the list is well formed");
        let found = BTreeMap::from([
            (key("a.c", "q", Way::Refused), "budget".to_owned()),
            (key("b.c", "p", Way::Refused), "out-of-bounds".to_owned()),
            (key("c.c", "p", Way::Refused), "budget".to_owned()),
        ]);
        assert_eq!(
            ledger.differences(&found),
            [
                "a.c q: refused, but the kernel accepts it: no reason is given",
                "b.c p: refused, but the kernel accepts it: out-of-bounds; the list says misaligned",
                "c.c p: refused, but the kernel accepts it: budget; not in the list",
                "a.c p: in the list, but the two agree now",
            ]
        );
    }

    #[test]
    fn a_reason_is_of_a_class() {
        let text = "accepted a.c p [x] # we miss it\nrefused a.c q y # leak: of an address\n";
        let ledger = Ledger::parse(text).expect("the list is well formed");
        let found = BTreeMap::from([
            (key("a.c", "p", Way::Accepted), "[x]".to_owned()),
            (key("a.c", "q", Way::Refused), "y".to_owned()),
        ]);
        assert_eq!(
            ledger.differences(&found),
            [
                "a.c p: accepted, but the kernel refuses it: the reason must begin with `not a safety rule: `, `more exact: `, `speculation: `"
            ]
        );
    }

    #[test]
    fn blessing_keeps_reasons() {
        let ledger = Ledger::parse(TEXT).expect("the list is well formed");
        let found = BTreeMap::from([
            (key("b.c", "p", Way::Refused), "out-of-bounds".to_owned()),
            (key("c.c", "p", Way::Refused), "budget".to_owned()),
        ]);
        assert_eq!(
            ledger.blessed(&found).render(),
            "# about\nrefused b.c p out-of-bounds # limit: too strict\nrefused c.c p budget # ?\n"
        );
    }
}
