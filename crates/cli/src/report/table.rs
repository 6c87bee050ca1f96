//! Columns and numbers as people read them.

use std::fmt::Write as _;

use serde_json::Value;

pub use crate::term::digits::group;

/// `1 site`, `2 sites`, `2 entries`, `2 launches`.
pub fn counted(count: u128, what: &str) -> String {
    let (stem, plural) = match what.strip_suffix('y') {
        _ if count == 1 => (what, ""),
        Some(stem) => (stem, "ies"),
        None if what.ends_with("ch") => (what, "es"),
        None => (what, "s"),
    };
    format!("{} {stem}{plural}", group(count))
}

/// A cell is a name of others', or a value.
fn safe(text: String) -> String {
    match crate::term::plain::name(&text) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(escaped) => escaped,
    }
}

/// Rows under heads, in columns as wide as they need to be; numbers on the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One with these heads.
    pub fn new(heads: &[&str]) -> Table {
        Table {
            rows: vec![heads.iter().map(|h| safe((*h).to_string())).collect()],
        }
    }

    /// Heads from the fields of the first value.
    pub fn for_values(before: &[&str], values: &[Value]) -> Table {
        let mut heads: Vec<&str> = before.to_vec();
        match values.first() {
            Some(Value::Object(fields)) => heads.extend(fields.keys().map(String::as_str)),
            _ => heads.push("value"),
        }
        Table::new(&heads)
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(safe).collect());
    }

    /// Appends it to a text; nothing if it has no rows.
    pub fn write(&self, out: &mut String) {
        if self.rows.len() < 2 {
            return;
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows
                .iter()
                .filter_map(|r| r.get(c))
                .map(|t| t.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |c: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|r| r.get(c));
            cells.all(|t| {
                t.starts_with(|d: char| d.is_ascii_digit())
                    && t.chars().all(|d| d.is_ascii_digit() || d == ',')
            })
        };
        let right: Vec<bool> = (0..columns).map(numeric).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (c, text) in row.iter().enumerate() {
                let fill = " ".repeat(widths[c] - text.chars().count());
                let _ = if right[c] {
                    write!(line, " {fill}{text}")
                } else {
                    write!(line, " {text}{fill}")
                };
                line.push(' ');
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(0, "site"), "0 sites");
        assert_eq!(counted(1, "site"), "1 site");
        assert_eq!(counted(1200, "site"), "1,200 sites");
        assert_eq!(counted(1, "entry"), "1 entry");
        assert_eq!(counted(1_200, "entry"), "1,200 entries");
        assert_eq!(counted(0, "launch"), "0 launches");
    }
}
