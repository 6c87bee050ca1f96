//! Maps as bpftrace shows them: a line for each key, sorted by value, and histograms with bars.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::results::{Cell, Key, bounds};
use crate::typed::{Kind, Map};

/// Columns of a line, if nothing else is known.
pub const COLUMNS: usize = 80;
/// Columns of a histogram's labels, its counts, and its longest bars.
const LABEL: usize = 16;
const COUNT: usize = 8;
const BAR: usize = 52;

/// Keys with their values, in the order in which they are shown: smaller values first, at most
/// `top` of the largest.
pub fn sorted(kind: Kind, cells: &BTreeMap<Key, Cell>, top: Option<u64>) -> Vec<(&Key, &Cell)> {
    let mut all: Vec<(&Key, &Cell)> = cells
        .iter()
        .filter(|(_, cell)| !cell.is_empty(kind))
        .collect();
    all.sort_by_key(|(_, cell)| cell.rank(kind));
    let top = top.and_then(|top| usize::try_from(top).ok());
    let left_out = all.len().saturating_sub(top.unwrap_or(all.len()));
    all.split_off(left_out)
}

/// `a, b`
pub fn key_text(key: &Key) -> String {
    let parts: Vec<String> = key.iter().map(ToString::to_string).collect();
    parts.join(", ")
}

/// A whole map, in lines of so many columns.
pub fn text(map: &Map, cells: &BTreeMap<Key, Cell>, top: Option<u64>, columns: usize) -> String {
    let mut out = String::new();
    let all = sorted(map.kind, cells, top);
    if all.is_empty() {
        let _ = writeln!(out, "{}: nothing", map.name);
    }
    for (number, (key, cell)) in all.into_iter().enumerate() {
        let name = match key.is_empty() {
            true => map.name.clone(),
            false => format!("{}[{}]", map.name, key_text(key)),
        };
        let _ = match map.kind {
            Kind::Hist | Kind::Lhist { .. } => {
                // Histograms stand apart.
                let apart = if number > 0 { "\n" } else { "" };
                writeln!(
                    out,
                    "{apart}{name}:\n{}",
                    histogram(map.kind, cell, columns).trim_end_matches('\n')
                )
            }
            Kind::Stats => writeln!(
                out,
                "{name}: count {}, average {}, total {}",
                cell.count,
                cell.average(),
                cell.number
            ),
            kind => writeln!(out, "{name}: {}", value_text(kind, cell)),
        };
    }
    out
}

/// One value, which is no histogram.
pub fn value_text(kind: Kind, cell: &Cell) -> String {
    match (kind, &cell.name) {
        (Kind::Value(_), Some(name)) => name.clone(),
        (Kind::Count, _) => cell.count.to_string(),
        (kind, _) => cell.rank(kind).to_string(),
    }
}

/// A number in few characters: `2K` is 2,048.
fn short(number: i64) -> String {
    const UNITS: [(&str, u32); 6] = [
        ("E", 60),
        ("P", 50),
        ("T", 40),
        ("G", 30),
        ("M", 20),
        ("K", 10),
    ];
    for (unit, bits) in UNITS {
        let size = 1i64 << bits;
        if number >= size && number % size == 0 {
            return format!("{}{unit}", number / size);
        }
    }
    number.to_string()
}

/// `[2, 4)`
pub fn label(kind: Kind, bucket: u32) -> String {
    let name = |number: i64| match kind {
        Kind::Hist => short(number),
        _ => number.to_string(),
    };
    match bounds(kind, bucket) {
        (Some(from), Some(to)) if kind == Kind::Hist && to == from.saturating_add(1) => {
            format!("[{}]", name(from))
        }
        (Some(from), Some(to)) => format!("[{}, {})", name(from), name(to)),
        (Some(from), None) => format!("[{}, ...)", name(from)),
        (None, Some(to)) => format!("(..., {})", name(to)),
        (None, None) => "(...)".into(),
    }
}

fn histogram(kind: Kind, cell: &Cell, columns: usize) -> String {
    let used = cell.buckets.iter().filter(|(_, count)| **count > 0);
    let used: Vec<u32> = used.map(|(bucket, _)| *bucket).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else {
        return String::new();
    };
    let count = |bucket: u32| cell.buckets.get(&bucket).copied().unwrap_or(0);
    let most = (*first..=*last).map(count).max().unwrap_or(1).max(1);
    let rows = (*first..=*last).map(|bucket| (label(kind, bucket), count(bucket)));
    let rows: Vec<(String, u64)> = rows.collect();
    let labels = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let counts = most.to_string().len().max(COUNT);
    let labels = labels.max(LABEL);
    // Around a bar there are two strokes, in front of it two blanks.
    let bar = columns.saturating_sub(labels + counts + 4).clamp(1, BAR);
    let mut out = String::new();
    for (label, count) in rows {
        let length = (u128::from(count) * bar as u128 / u128::from(most)) as usize;
        let shown = "@".repeat(length);
        let _ = writeln!(out, "{label:<labels$} {count:>counts$} |{shown:<bar$}|");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Part;
    use crate::typed::Type;

    fn map(kind: Kind) -> Map {
        Map {
            name: "@us".into(),
            kind,
            key: Vec::new(),
            only_added: true,
        }
    }

    fn buckets(counts: &[(u32, u64)]) -> BTreeMap<Key, Cell> {
        let cell = Cell {
            buckets: counts.iter().copied().collect(),
            ..Cell::default()
        };
        BTreeMap::from([(Vec::new(), cell)])
    }

    #[test]
    fn histograms_fit_the_line() {
        let cells = buckets(&[(1, 1), (3, 4), (13, 2)]);
        let shown = text(&map(Kind::Hist), &cells, None, 80);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "@us:");
        assert_eq!(
            lines[1],
            format!("[0]                     1 |{:<52}|", "@".repeat(13))
        );
        assert_eq!(lines[2], format!("[1]                     0 |{:<52}|", ""));
        assert_eq!(
            lines[3],
            format!("[2, 4)                  4 |{}|", "@".repeat(52))
        );
        assert_eq!(
            lines[13],
            format!("[2K, 4K)                2 |{:<52}|", "@".repeat(26))
        );
        assert!(lines.iter().all(|line| line.len() <= 80));
        let narrow = text(&map(Kind::Hist), &cells, None, 40);
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
        assert!(
            narrow.contains("[2, 4)                  4 |@@@@@@@@@@@@|"),
            "{narrow}"
        );
    }

    #[test]
    fn labels_say_the_bounds() {
        let shown = |bucket| label(Kind::Hist, bucket);
        assert_eq!(shown(0), "(..., 0)");
        assert_eq!(shown(1), "[0]");
        assert_eq!(shown(2), "[1]");
        assert_eq!(shown(3), "[2, 4)");
        assert_eq!(shown(12), "[1K, 2K)");
        assert_eq!(shown(64), "[4E, ...)");
        let linear = Kind::Lhist {
            min: 0,
            max: 30,
            step: 10,
        };
        let shown: Vec<String> = (0..5).map(|bucket| label(linear, bucket)).collect();
        assert_eq!(
            shown,
            ["(..., 0)", "[0, 10)", "[10, 20)", "[20, 30)", "[30, ...)"]
        );
    }

    #[test]
    fn keys_are_sorted_by_value_and_the_largest_stay() {
        let keyed = Map {
            key: vec![Type::Kernel, Type::Number],
            ..map(Kind::Count)
        };
        let cell = |count| Cell {
            count,
            ..Cell::default()
        };
        let key = |name: &str, number| vec![Part::Name(name.into()), Part::Number(number)];
        let cells = BTreeMap::from([
            (key("a", 1), cell(7)),
            (key("b", -2), cell(5)),
            (key("c", 3), cell(9)),
        ]);
        assert_eq!(
            text(&keyed, &cells, None, 80),
            "@us[b, -2]: 5\n@us[a, 1]: 7\n@us[c, 3]: 9\n"
        );
        assert_eq!(text(&keyed, &cells, Some(1), 80), "@us[c, 3]: 9\n");
        assert_eq!(text(&keyed, &BTreeMap::new(), None, 80), "@us: nothing\n");
    }
}
