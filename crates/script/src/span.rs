//! Places in a script, so that every message can point at the text that it is about.

/// Bytes of the script, from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of another one.
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end.max(self.start),
        }
    }

    /// Its text.
    pub fn text(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or("")
    }
}

/// A line and a column, both counted from 1; the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// Where the byte `at` is.
pub fn position(source: &str, at: usize) -> Position {
    let before = source.get(..at).unwrap_or(source);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Position {
        line: before.matches('\n').count() as u32 + 1,
        column: before[start..].chars().count() as u32 + 1,
    }
}

/// The text of a line, counted from 1, without its end.
pub fn line_text(source: &str, line: u32) -> &str {
    let mut lines = source.lines();
    lines.nth((line as usize).saturating_sub(1)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_from_one() {
        let source = "a\nbä c\n";
        assert_eq!(position(source, 0), Position { line: 1, column: 1 });
        assert_eq!(position(source, 2), Position { line: 2, column: 1 });
        assert_eq!(position(source, 6), Position { line: 2, column: 4 });
        assert_eq!(line_text(source, 2), "bä c");
        assert_eq!(line_text(source, 9), "");
    }
}
