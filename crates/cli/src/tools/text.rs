//! A tool's table for people: as wide as the terminal, with units, and a line that says how to read
//! it.

use std::fmt::Write as _;

use crate::term::digits::group;
use crate::term::plain;
use crate::tools::rows::Cell;
use crate::tools::tool::{Tool, Unit};

/// Fewer columns of the terminal than this are not served.
const NARROW: usize = 40;
/// Names are not made shorter than this.
const NAME: usize = 12;
/// Between columns.
const GAP: usize = 2;
/// Stands for what was left out of a name.
const LEFT_OUT: char = '…';
/// What is not known.
const UNKNOWN: &str = "-";

/// How a table is shown.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal.
    pub columns: usize,
    /// Rows at most.
    pub top: usize,
    /// Heads in bold.
    pub colour: bool,
}

/// The table, how much of it there is, and how to read it.
pub fn text(tool: &Tool, by: usize, sort: &str, rows: &[Vec<Cell>], look: Look) -> String {
    let wide = look.columns.max(NARROW);
    if rows.is_empty() {
        return wrapped(tool.nothing, wide);
    }
    let heads = tool.heads(by);
    let keys = by + 1;
    let shown = &rows[..rows.len().min(look.top)];
    let cells: Vec<Vec<String>> = shown.iter().map(|row| written(tool, keys, row)).collect();
    let mut widths: Vec<usize> = (0..heads.len())
        .map(|at| {
            let cells = cells.iter().map(|row| length(&row[at]));
            cells.max().unwrap_or(0).max(length(heads[at]))
        })
        .collect();
    let left_out = fit(&mut widths, keys, &heads, sort, wide);
    let is_name = |at: usize| at < keys && !matches!(shown[0][at], Cell::Whole(_));
    let mut out = String::new();
    let mut line = |cells: &[String], bold: bool| {
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate().filter(|(at, _)| widths[*at] > 0) {
            if !text.is_empty() {
                text += &" ".repeat(GAP);
            }
            let cell = shortened(cell, widths[at]);
            let fill = " ".repeat(widths[at] - length(&cell));
            match is_name(at) {
                true => text += &format!("{cell}{fill}"),
                false => text += &format!("{fill}{cell}"),
            }
        }
        let text = text.trim_end();
        let _ = match bold {
            true => writeln!(out, "\x1b[1m{text}\x1b[0m"),
            false => writeln!(out, "{text}"),
        };
    };
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    line(&heads, look.colour);
    for cells in &cells {
        line(cells, false);
    }
    let mut notes = Vec::new();
    if shown.len() < rows.len() {
        notes.push(format!(
            "{} of {} rows, by {sort}; `--top N` and `--sort COLUMN` show others.",
            group(shown.len() as u128),
            group(rows.len() as u128)
        ));
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} columns are left out: the terminal is narrow."
        ));
    }
    if rows.iter().any(|row| row.contains(&Cell::Line(None))) {
        notes.push("A line of `-` is not known: compile with `nvcc -lineinfo`.".to_owned());
    }
    notes.push(tool.reading.to_owned());
    out.push('\n');
    for note in notes {
        out += &wrapped(&note, wide);
    }
    out
}

/// Makes columns fit: the widest name becomes shorter, then the last columns go. How many went.
fn fit(widths: &mut [usize], keys: usize, heads: &[&str], sort: &str, wide: usize) -> usize {
    let mut left_out = 0;
    loop {
        let used: Vec<usize> = widths.iter().copied().filter(|width| *width > 0).collect();
        let all = used.iter().sum::<usize>() + GAP * used.len().saturating_sub(1);
        if all <= wide {
            return left_out;
        }
        let names = widths[..keys].iter().copied().enumerate();
        let widest = names.max_by_key(|(_, width)| *width);
        if let Some((at, width)) = widest.filter(|(_, width)| *width > NAME) {
            let others = widths[..keys].iter().enumerate();
            let next = others.filter(|(other, _)| *other != at).map(|(_, w)| *w);
            let next = next.max().unwrap_or(0).clamp(NAME, width - 1);
            widths[at] = next.max(width.saturating_sub(all - wide));
            continue;
        }
        let last = (keys..widths.len())
            .rev()
            .find(|at| widths[*at] > 0 && heads[*at] != sort);
        match last {
            Some(at) => {
                widths[at] = 0;
                left_out += 1;
            }
            None => return left_out,
        }
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A name of at most so many characters, without its middle.
fn shortened(name: &str, most: usize) -> String {
    let length = length(name);
    if length <= most {
        return name.to_owned();
    }
    let kept = most.saturating_sub(1);
    // The end of a place is its line.
    let tail = kept / 2;
    let head: String = name.chars().take(kept - tail).collect();
    let tail: String = name.chars().skip(length - tail).collect();
    format!("{head}{LEFT_OUT}{tail}")
}

fn written(tool: &Tool, keys: usize, row: &[Cell]) -> Vec<String> {
    let units = tool.columns.iter().map(|column| column.unit);
    let units = std::iter::repeat_n(Unit::Number, keys).chain(units);
    let cells = row.iter().zip(units).enumerate();
    cells
        .map(|(at, (cell, unit))| match cell {
            Cell::Name(name) => plain::name(name).into_owned(),
            Cell::Line(Some((file, line))) => format!("{}:{line}", plain::name(file)),
            Cell::Line(None) | Cell::None => UNKNOWN.to_owned(),
            // A number of a key names something.
            Cell::Whole(number) if at < keys => number.to_string(),
            Cell::Whole(number) => whole(*number, unit),
            Cell::Real(number) => real(*number, unit),
        })
        .collect()
}

fn whole(number: i64, unit: Unit) -> String {
    match unit {
        Unit::Number if number >= 0 => group(number.unsigned_abs().into()),
        Unit::Number => number.to_string(),
        _ => real(number as f64, unit),
    }
}

fn real(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Number => format!("{number:.0}"),
        Unit::Mean => format!("{number:.1}"),
        Unit::Share => format!("{:.1}%", 100.0 * number),
        Unit::Bytes => scaled(number, &["B", "KB", "MB", "GB", "TB", "PB"]),
        Unit::Time => match number / 1e9 {
            seconds if seconds >= 1.0 => format!("{seconds:.2}s"),
            _ => scaled(number, &["ns", "µs", "ms"]),
        },
    }
}

/// With the largest unit that leaves at least 1; each is a thousand times the one before it.
fn scaled(number: f64, units: &[&str]) -> String {
    let (mut number, mut at) = (number, 0);
    while number >= 999.95 && at + 1 < units.len() {
        number /= 1000.0;
        at += 1;
    }
    match at {
        0 => format!("{number:.0}{}", units[0]),
        _ => format!("{number:.1}{}", units[at]),
    }
}

/// Lines of at most so many columns.
fn wrapped(text: &str, wide: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = length(word);
        if used > 0 && used + 1 + length > wide {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::list::TOOLS;

    fn shown(columns: usize, top: usize) -> String {
        let tool = TOOLS.iter().find(|tool| tool.name == "traffic").unwrap();
        let row = |kernel: &str, place: Option<(String, i64)>, bytes: i64| {
            let numbers = [bytes, 0, 0, bytes].map(Cell::Whole);
            let names = [Cell::Name(kernel.into()), Cell::Line(place)];
            let share = [Cell::Real(bytes as f64 / 2e6)];
            names.into_iter().chain(numbers).chain(share).collect()
        };
        let rows = [
            row(
                "void gemm<float, Tile<128, 64>, ns::Epilogue>",
                Some(("matrix/gemm.cuh".into(), 1234)),
                1_234_567,
            ),
            row("small", None, 765_433),
        ];
        let look = Look {
            columns,
            top,
            colour: false,
        };
        text(tool, 1, "total", &rows, look)
    }

    #[test]
    fn tables_fit_the_terminal() {
        let lines = |columns| -> Vec<String> {
            let text = shown(columns, 10);
            text.lines().map(str::to_owned).collect()
        };
        assert_eq!(
            lines(100)[..3],
            [
                "kernel                                  line                     load  store  atomic    total  share",
                "void gemm<float, Ti…64>, ns::Epilogue>  matrix/gemm.cuh:1234    1.2MB     0B      0B    1.2MB  61.7%",
                "small                                   -                     765.4KB     0B      0B  765.4KB  38.3%",
            ]
        );
        assert_eq!(
            lines(40)[..3],
            [
                "kernel        line            total",
                "void g…ogue>  matrix…:1234    1.2MB",
                "small         -             765.4KB",
            ]
        );
        for columns in 40..120 {
            for line in lines(columns) {
                assert!(length(&line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_told() {
        let text = shown(100, 1);
        assert!(text.contains("1 of 2 rows, by total"), "{text}");
        assert!(text.contains("nvcc -lineinfo"), "{text}");
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(whole(1_234_567, Unit::Number), "1,234,567");
        assert_eq!(whole(999, Unit::Bytes), "999B");
        assert_eq!(whole(1_000, Unit::Bytes), "1.0KB");
        assert_eq!(whole(999_960, Unit::Bytes), "1.0MB");
        assert_eq!(whole(640, Unit::Time), "640ns");
        assert_eq!(whole(12_345, Unit::Time), "12.3µs");
        assert_eq!(whole(12_345_678, Unit::Time), "12.3ms");
        assert_eq!(whole(1_234_567_890, Unit::Time), "1.23s");
        assert_eq!(real(0.1234, Unit::Share), "12.3%");
        assert_eq!(real(31.96, Unit::Mean), "32.0");
    }

    #[test]
    fn names_lose_their_middle() {
        assert_eq!(shortened("kernel", 6), "kernel");
        assert_eq!(shortened("a_long_kernel", 7), "a_l…nel");
    }
}
