//! From what was found to rows, sorted.

use std::cmp::Ordering;

use warpbpf_script::results::{Key, Part};

use crate::tools::found::Found;
use crate::tools::tool::{By, Of, Tool};

/// What a row has in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A name.
    Name(String),
    /// A place in source; none without line information.
    Line(Option<(String, i64)>),
    /// A number that was counted.
    Whole(i64),
    /// A number that was computed.
    Real(f64),
    /// It is not known.
    None,
}

impl Cell {
    /// Larger numbers first, then names in their order; what is not known comes last.
    fn order(&self, other: &Cell) -> Ordering {
        let number = |cell: &Cell| match cell {
            Cell::Whole(number) => Some(*number as f64),
            Cell::Real(number) => Some(*number),
            _ => None,
        };
        match (self, other) {
            (Cell::Whole(a), Cell::Whole(b)) => b.cmp(a),
            (Cell::Name(a), Cell::Name(b)) => a.cmp(b),
            (Cell::Line(a), Cell::Line(b)) => a.cmp(b),
            _ => match (number(self), number(other)) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        }
    }
}

/// All rows, each with a cell for each of [`Tool::heads`], sorted by the column with this head.
pub fn rows(tool: &Tool, found: &Found<'_>, by: usize, sort: &str) -> Vec<Vec<Cell>> {
    let parts = tool.parts(by);
    let keys = found.keys(tool.rows, parts);
    let mut rows: Vec<Vec<Cell>> = keys.iter().map(|key| row(tool, found, by, key)).collect();
    let heads = tool.heads(by);
    if let Some(at) = heads.iter().position(|head| *head == sort) {
        // Rows come in the order of their keys, and equal ones stay so.
        rows.sort_by(|a, b| a[at].order(&b[at]));
    }
    rows
}

fn row(tool: &Tool, found: &Found<'_>, by: usize, key: &Key) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut parts = key.iter();
    for by in &tool.by[..=by] {
        let first = parts.next();
        cells.push(match (by, first) {
            (_, None) => Cell::None,
            (By::Part(_), Some(Part::Name(name))) => Cell::Name(name.clone()),
            (By::Part(_), Some(Part::Number(number))) => Cell::Whole(*number),
            (By::Line, Some(file)) => match parts.next() {
                Some(Part::Number(line)) if *line > 0 => {
                    Cell::Line(Some((file.to_string(), *line)))
                }
                _ => Cell::Line(None),
            },
        });
    }
    cells.extend(
        tool.columns
            .iter()
            .map(|column| cell(&column.of, found, key)),
    );
    cells
}

fn cell(of: &Of, found: &Found<'_>, key: &Key) -> Cell {
    let whole = |number: Option<i64>| number.map_or(Cell::None, Cell::Whole);
    let part = |of: i64, all: i64| match all {
        0 => Cell::None,
        all => Cell::Real(of as f64 / all as f64),
    };
    match of {
        Of::Map(map) => whole(found.number(map, key)),
        Of::Words(map, words) => Cell::Whole(found.words(map, key, words)),
        Of::Count(map) => Cell::Whole(found.count(map, key) as i64),
        Of::Mean(map) => part(
            found.number(map, key).unwrap_or(0),
            found.count(map, key) as i64,
        ),
        Of::Share(map) => part(
            found.number(map, key).unwrap_or(0),
            found.number(map, &[]).unwrap_or(0),
        ),
        Of::Rate(map, of) => part(
            found.number(map, key).unwrap_or(0),
            found.count(of, key) as i64,
        ),
        Of::Below(map, share, most) => {
            let most = found.number(most, key).unwrap_or(i64::MAX);
            whole(found.below(map, key, *share).map(|n| n.min(most)))
        }
        Of::By(says) => says(found, key).map_or(Cell::None, Cell::Real),
    }
}
