//! The verbs that are ready-made tools: a script of ours in the kernels of an application, and what
//! it found as one table.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};

use warpbpf_script::results::{self, Key};
use warpbpf_script::typed::Map;
use warpbpf_tool::Process;

use crate::application::start::Surroundings;
use crate::commands::trace::{Ended, compiled, notes, with_script};
use crate::flags::{Colour, ToolCommand, ToolFlags, TraceFlags, TraceFormat};
use crate::term::error::CliError;
use crate::term::output::{json_line, lose, say, say_drawn, tell, tell_error};
use crate::term::plain;
use crate::tools::found::Found;
use crate::tools::json::json;
use crate::tools::rows::rows;
use crate::tools::text::{Look, text};
use crate::tools::tool::Tool;
use crate::trace::{Session, Shows, columns, now};

/// The exit status of a command line that makes no sense.
const NO_SENSE: u8 = 2;
/// Rows of a table, if not said.
const TOP: usize = 10;
/// A note on a probe of ours that a kernel has no place for says nothing.
const NO_PLACE: &str = "stands nowhere";
/// A note on how fast kernels run says nothing of counts.
const SLOWER: &str = "part of what it takes longer comes from that";

/// Runs a tool.
pub fn run(command: ToolCommand, surroundings: &Surroundings) -> Result<u8, CliError> {
    let ToolCommand { tool, flags } = command;
    let asked = match Asked::by(tool, &flags) {
        Ok(asked) => asked,
        Err(message) => {
            tell!("warpbpf: {}: {message}", tool.name);
            return Ok(NO_SENSE);
        }
    };
    let Asked { by, sort, source } = asked;
    if flags.script {
        say(&source);
        return Ok(0);
    }
    let start = now();
    let keys = flags.keys.unwrap_or(tool.keys);
    let compiled = compiled(&source, tool.name, start, keys)?;
    let file = match &flags.output {
        None => None,
        Some(path) => {
            let path = path.display().to_string();
            let file = File::create(&path);
            let file = file.map_err(|source| CliError::Write {
                path: path.clone(),
                source,
            })?;
            Some((path, file))
        }
    };
    let table = Table {
        tool,
        by,
        sort,
        top: flags.top,
        as_json: flags.json,
        colour: is_coloured(&flags, file.is_some()),
        file: RefCell::new(file),
    };
    let over = Cell::new(false);
    let mut session = Session::new(&compiled, Box::new(table), start, &over);
    let flags = as_trace(*flags, source, keys);
    let ended = with_script(
        flags,
        surroundings,
        tool.name,
        &compiled,
        &mut session,
        &over,
    )?;
    let Ended { report, status } = ended;
    if let Some(mut report) = report {
        let is_noise =
            |note: &String| note.contains(NO_PLACE) || !tool.is_timed && note.contains(SLOWER);
        report.notes.retain(|note| !is_noise(note));
        notes(&report);
        let mut kernels = report.processes.iter().flat_map(|process| &process.kernels);
        if kernels.any(|kernel| kernel.uninstrumented > 0 && kernel.launches == 0) {
            tell!("warpbpf: {}", tool.machine_code);
        }
    }
    Ok(status)
}

/// What was asked for, which makes sense.
struct Asked {
    by: usize,
    sort: &'static str,
    source: String,
}

impl Asked {
    fn by(tool: &'static Tool, flags: &ToolFlags) -> Result<Asked, String> {
        let by = level(tool, flags.by.as_deref())?;
        if flags.pid.is_none() && flags.command.is_empty() && !flags.script {
            return Err("name an application (`-- APP`) or a process (`-p PID`)".into());
        }
        Ok(Asked {
            by,
            sort: sorting(tool, by, flags.sort.as_deref())?,
            source: tool.script_for(flags.kernel.as_deref())?,
        })
    }
}

/// What a row is.
fn level(tool: &Tool, by: Option<&str>) -> Result<usize, String> {
    let Some(by) = by else {
        return Ok(tool.default_by);
    };
    let found = tool.by.iter().position(|level| level.name() == by);
    found.ok_or_else(|| {
        let names: Vec<&str> = tool.by.iter().map(|by| by.name()).collect();
        format!("there is no row by `{by}`; there are {}", names.join(", "))
    })
}

/// The column that rows are sorted by.
fn sorting(tool: &Tool, by: usize, sort: Option<&str>) -> Result<&'static str, String> {
    let sort = sort.unwrap_or(tool.sort);
    let heads = tool.heads(by);
    let found = heads.iter().find(|head| **head == sort).copied();
    found.ok_or_else(|| {
        format!(
            "there is no column `{sort}`; the columns are {}",
            heads.join(", ")
        )
    })
}

fn is_coloured(flags: &ToolFlags, to_file: bool) -> bool {
    match flags.color {
        Colour::Always => !flags.json,
        Colour::Never => false,
        Colour::Auto => {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            wanted && !to_file && !flags.json && std::io::stdout().is_terminal()
        }
    }
}

fn as_trace(flags: ToolFlags, source: String, keys: u32) -> TraceFlags {
    TraceFlags {
        list: None,
        file: None,
        expression: Some(source),
        pid: flags.pid,
        duration: flags.duration,
        dump: false,
        format: TraceFormat::Text,
        output: None,
        keys,
        device: flags.device,
        inject: flags.inject,
        program: flags.program,
        code: flags.code,
        choice: flags.choice,
        command: flags.command,
    }
}

/// Shows what maps hold as the tool's table.
struct Table {
    tool: &'static Tool,
    by: usize,
    sort: &'static str,
    top: Option<usize>,
    as_json: bool,
    colour: bool,
    file: RefCell<Option<(String, File)>>,
}

impl Table {
    fn write(&self, text: &str) {
        let Some((path, file)) = &mut *self.file.borrow_mut() else {
            return say_drawn(text);
        };
        if let Err(source) = file.write_all(plain::drawn(text).as_bytes()) {
            lose();
            let path = path.clone();
            tell_error(&CliError::Write { path, source });
        }
    }
}

impl Shows for Table {
    fn printed(&mut self, text: &str) {
        self.write(text);
    }

    fn map(&mut self, _: &Map, _: &BTreeMap<Key, results::Cell>, _: Option<u64>) {}

    fn end(&mut self, maps: &[(&Map, &BTreeMap<Key, results::Cell>)], processes: &[Process]) {
        let devices = processes.iter().filter_map(Process::device);
        let sms = devices.map(|device| device.sms).max().unwrap_or(0);
        let found = Found::new(maps, sms);
        let mut rows = rows(self.tool, &found, self.by, self.sort);
        let shown = match self.as_json {
            true => {
                rows.truncate(self.top.unwrap_or(rows.len()));
                json_line(&json(self.tool, self.by, &rows))
            }
            false => {
                let look = Look {
                    columns: columns(),
                    top: self.top.unwrap_or(TOP),
                    colour: self.colour,
                };
                text(self.tool, self.by, self.sort, &rows, look)
            }
        };
        self.write(&shown);
    }
}
