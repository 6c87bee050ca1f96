//! What a tool is: a script, and how its maps become one table.

use crate::tools::found::Found;
use warpbpf_script::results::Key;

/// A verb that runs a script of ours.
#[derive(Debug)]
pub struct Tool {
    /// The verb.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// The script, as `warpbpf trace` takes it.
    pub script: &'static str,
    /// Keys that each map of the script has room for.
    pub keys: u32,
    /// The map whose keys are the rows.
    pub rows: &'static str,
    /// What keys of maps begin with, from the outermost on.
    pub by: &'static [By],
    /// Which of them a row is, if `--by` does not say it: an index.
    pub default_by: usize,
    /// Columns behind those of the key.
    pub columns: &'static [Column],
    /// The column that rows are sorted by.
    pub sort: &'static str,
    /// How to read the table.
    pub reading: &'static str,
    /// What it means that there is no row.
    pub nothing: &'static str,
    /// What kernels without PTX lack here.
    pub machine_code: &'static str,
    /// Times are in the table, so that it matters whether kernels run slower.
    pub is_timed: bool,
}

/// A level of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// One part of the key, with this name.
    Part(&'static str),
    /// Two parts, a file and a line, shown as `file:line`.
    Line,
}

impl By {
    /// Its column.
    pub const fn name(self) -> &'static str {
        match self {
            By::Part(name) => name,
            By::Line => "line",
        }
    }

    /// Parts of the key.
    pub const fn parts(self) -> usize {
        match self {
            By::Part(_) => 1,
            By::Line => 2,
        }
    }
}

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Its head, one word.
    pub name: &'static str,
    /// What its numbers are.
    pub unit: Unit,
    /// Where they come from.
    pub of: Of,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// How many, or a number that only names something.
    Number,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
    /// A part of 1, shown in percent.
    Share,
    /// An average.
    Mean,
}

/// Where a number comes from. Maps are named with `@`; all entries whose keys begin with the row's
/// are put together.
#[derive(Debug)]
pub enum Of {
    /// The number of a map.
    Map(&'static str),
    /// The sum of those entries whose key goes on with one of these words.
    Words(&'static str, &'static [&'static str]),
    /// How often something was added.
    Count(&'static str),
    /// The average.
    Mean(&'static str),
    /// The part that the row has of all rows' sum.
    Share(&'static str),
    /// The sum of one map as a part of how often another was added to.
    Rate(&'static str, &'static str),
    /// The number below which this part of the counts in buckets is ([`Found::below`]), at most the
    /// number of another map.
    Below(&'static str, f64, &'static str),
    /// What this says.
    By(fn(&Found<'_>, &Key) -> Option<f64>),
}

impl Tool {
    /// Parts of the key of a row at this level.
    pub fn parts(&self, by: usize) -> usize {
        self.by[..=by].iter().map(|by| by.parts()).sum()
    }

    /// Heads of all columns at this level.
    pub fn heads(&self, by: usize) -> Vec<&'static str> {
        let keys = self.by[..=by].iter().map(|by| by.name());
        keys.chain(self.columns.iter().map(|column| column.name))
            .collect()
    }

    /// The script with the kernels that probes are in.
    ///
    /// # Errors
    /// A glob that no probe can have, and one for a tool without probes in kernels.
    pub fn script_for(&self, kernel: Option<&str>) -> Result<String, String> {
        let Some(kernel) = kernel else {
            return Ok(self.script.to_owned());
        };
        let quoted = match kernel {
            glob if glob.contains(['"', '|', '\n']) || glob.is_empty() => {
                return Err(format!("`{glob}` is no glob over kernels"));
            }
            glob => format!(":\"{glob}\""),
        };
        let mut is_any = false;
        let lines = self.script.lines().map(|line| {
            let in_kernels = line.starts_with("gpu:");
            is_any |= in_kernels;
            match in_kernels {
                true => line.replacen(":*", &quoted, 1) + "\n",
                false => line.to_owned() + "\n",
            }
        });
        let script = lines.collect();
        match is_any {
            true => Ok(script),
            false => Err("it looks at no kernels".into()),
        }
    }
}
