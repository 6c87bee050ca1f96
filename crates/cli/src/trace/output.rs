//! Where results of a script go, and in which form.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use warpbpf_script::results::{Cell, Key};
use warpbpf_script::typed::Map;
use warpbpf_script::{json, show};
use warpbpf_tool::Process;

use crate::flags::TraceFormat;
use crate::term::error::CliError;
use crate::term::output::{json_line, lose, say, tell_error};
use crate::term::plain;

/// Writes results as they come.
#[derive(Debug)]
pub struct Printer {
    format: TraceFormat,
    file: Option<(String, File)>,
    columns: usize,
}

/// What shows results of a script.
pub trait Shows {
    /// Text of a `printf`.
    fn printed(&mut self, text: &str);
    /// A map, or its largest entries.
    fn map(&mut self, map: &Map, cells: &BTreeMap<Key, Cell>, top: Option<u64>);
    /// All maps at the end, with the processes that they are from.
    fn end(&mut self, maps: &[(&Map, &BTreeMap<Key, Cell>)], processes: &[Process]);
}

/// Columns of a terminal, by the variable that shells set.
pub fn columns() -> usize {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|columns| columns.parse().ok());
    said.filter(|columns| *columns > 0).unwrap_or(show::COLUMNS)
}

impl Printer {
    /// To a file, or to standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(format: TraceFormat, path: Option<&Path>) -> Result<Printer, CliError> {
        let open = |path: &Path| {
            let name = path.display().to_string();
            let file = File::create(path).map_err(|source| CliError::Write {
                path: name.clone(),
                source,
            })?;
            Ok::<_, CliError>((name, file))
        };
        Ok(Printer {
            format,
            file: path.map(open).transpose()?,
            columns: columns(),
        })
    }

    fn write(&mut self, text: &str) {
        match &mut self.file {
            None => say(text),
            Some((path, file)) => {
                if let Err(source) = file.write_all(plain::output(text).as_bytes()) {
                    let path = path.clone();
                    lose();
                    tell_error(&CliError::Write { path, source });
                    self.file = None;
                }
            }
        }
    }
}

impl Shows for Printer {
    fn printed(&mut self, text: &str) {
        match self.format {
            TraceFormat::Text => self.write(text),
            TraceFormat::Json => self.write(&json_line(&json::printed(text))),
        }
    }

    fn map(&mut self, map: &Map, cells: &BTreeMap<Key, Cell>, top: Option<u64>) {
        match self.format {
            TraceFormat::Text => self.write(&show::text(map, cells, top, self.columns)),
            TraceFormat::Json => self.write(&json_line(&json::map(map, cells, top))),
        }
    }

    /// Maps of several lines stand apart.
    fn end(&mut self, maps: &[(&Map, &BTreeMap<Key, Cell>)], _: &[Process]) {
        let mut several = None;
        for (map, cells) in maps {
            let now = cells.len() > 1 || map.kind.buckets().is_some();
            if several.is_some_and(|before| before || now) && self.format == TraceFormat::Text {
                self.write("\n");
            }
            several = Some(now);
            self.map(map, cells, None);
        }
    }
}
