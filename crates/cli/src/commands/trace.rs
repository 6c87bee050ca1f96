//! `warpbpf trace`: a script in the kernels of an application, and what it found.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::IsTerminal as _;

use warpbpf_object::LoadOptions;
use warpbpf_script::{Compiled, Options, compile};

use crate::application::start::Surroundings;
use crate::backend::choose::Moment;
use crate::collect::collector::Reader;
use crate::commands::attach::attend;
use crate::commands::run::{Attachment, Watched, observe};
use crate::commands::trace_list::list;
use crate::flags::{
    AttachFlags, OutputFlags, RequestFlags, SessionFlags, TargetFlags, TraceFlags, ValueFlags,
    WhomFlags, WorkFlags,
};
use crate::programs::linux::Split;
use crate::programs::objects::Loaded;
use crate::report::model::Report;
use crate::report::news::Records;
use crate::report::notes::alike;
use crate::report::outlet::Outlet;
use crate::term::error::{CliError, FAILED};
use crate::term::inherited;
use crate::term::output::{say, tell};
use crate::term::signals::Signals;
use crate::trace::{Printer, Session, now};

/// Instructions that one run of a program may execute: a key of a hash costs more than what stands
/// in the middle of a kernel may take by default.
const BUDGET: u64 = 1 << 16;

/// Compiles, runs, and prints.
pub fn run(flags: TraceFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    if let Some(probe) = &flags.list {
        return list(probe, flags.command.first().map(OsString::as_os_str));
    }
    let (name, source) = script(&flags)?;
    let start = now();
    let compiled = compiled(&source, &name, start, flags.keys)?;
    if flags.dump {
        say(&compiled.listing);
        return Ok(0);
    }
    let printer = Printer::open(flags.format, flags.output.as_deref())?;
    let over = Cell::new(false);
    let mut session = Session::new(&compiled, Box::new(printer), start, &over);
    if compiled.object.is_empty() {
        session.begin();
        session.end(&[]);
        return Ok(0);
    }
    if flags.pid.is_none() && flags.command.is_empty() {
        return Err(CliError::Other(
            "nothing to trace: name an application (`-- APP`) or a process (`-p PID`)".into(),
        ));
    }
    let ended = with_script(flags, surroundings, &name, &compiled, &mut session, &over)?;
    if let Some(report) = &ended.report {
        notes(report);
    }
    Ok(ended.status)
}

/// Text of a script to what runs; `start` is when it began.
///
/// # Errors
/// What is wrong with it, drawn.
pub fn compiled(source: &str, name: &str, start: u64, keys: u32) -> Result<Compiled, CliError> {
    let options = Options {
        start,
        keys,
        function: &function,
    };
    let colour = std::io::stderr().is_terminal();
    compile(source, name, &options).map_err(|errors| {
        let shown = errors.iter().map(|e| e.render(name, source, colour));
        CliError::Script {
            shown: shown.collect::<Vec<_>>().join("\n\n"),
        }
    })
}

/// How a script has ended.
pub struct Ended {
    /// The exit status.
    pub status: u8,
    /// What is known of the applications, if programs were in some.
    pub report: Option<Report>,
}

/// Runs a script in an application that is started or runs already.
///
/// # Errors
/// Only what happens before programs are in it.
pub fn with_script(
    flags: TraceFlags,
    surroundings: &Surroundings,
    name: &str,
    compiled: &Compiled,
    session: &mut Session<'_>,
    over: &Cell<bool>,
) -> Result<Ended, CliError> {
    // Before anything is a thread.
    let mut signals = flags.pid.is_none().then(Signals::begin);
    inherited::raise_file_limit();
    let TraceFlags {
        pid,
        duration,
        device,
        inject,
        mut program,
        code,
        choice,
        command,
        ..
    } = flags;
    program.budget.get_or_insert(BUDGET);
    let output = OutputFlags {
        json: None,
        output: None,
    };
    let mut outlet = Outlet::open(&output)?;
    let work = WorkFlags {
        program,
        code,
        choice,
        host_ops: false,
        skip_linux: false,
        strict: false,
        output,
        events: None,
        rows: 20,
        per_device: false,
        interval: 0.0,
    };
    let moment = match pid {
        Some(_) => Moment::Late,
        None => Moment::Start,
    };
    let object = warpbpf_object::load_all(&compiled.object, &LoadOptions::default());
    let object = object.map_err(|error| CliError::Refused {
        path: name.to_owned(),
        message: error.to_string(),
    })?;
    let loaded = Loaded {
        name: name.to_owned(),
        bytes: compiled.object.clone(),
        object,
    };
    let attachment = Attachment::of(Split::of(loaded)?, &work, (false, false), moment)?;
    // What is refused is told before a block runs.
    if !session.begin() {
        session.end(&[]);
        return Ok(Ended {
            status: 0,
            report: None,
        });
    }
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline: None,
        records: Records::HandedOn,
        interval: None,
        reader: Some(session as &mut dyn Reader),
    };
    let (report, status) = match (pid, &mut signals) {
        (None, Some(signals)) => {
            let target = TargetFlags {
                device,
                inject,
                command,
            };
            let linux = attachment.linux.as_ref();
            let tool = &attachment.tool;
            let mut report = observe(&target, surroundings, tool, linux, &mut watched, signals)?;
            let status = report.status.map_or(FAILED, |status| status as u8);
            let status = attachment.conclude(&mut report, false, status);
            (report, status)
        }
        _ => {
            let late = late(pid, duration, work);
            attend(&late, &attachment, &mut watched, &|| !over.get())?
        }
    };
    session.end(&attachment.tool.processes());
    Ok(Ended {
        status,
        report: Some(report),
    })
}

/// As `warpbpf attach -p PID` has it.
fn late(pid: Option<u32>, duration: Option<f64>, work: WorkFlags) -> AttachFlags {
    AttachFlags {
        whom: WhomFlags {
            pid,
            user: None,
            all: false,
        },
        children: false,
        tool_timeout: warpbpf_tool::control::TOOL_PATIENCE.as_secs(),
        session: SessionFlags {
            request: RequestFlags {
                objects: Vec::new(),
                values: ValueFlags {
                    set: Vec::new(),
                    btf: None,
                },
                timeline: None,
                stacks: false,
                folded: None,
            },
            work,
            duration,
        },
    }
}

/// What a script is called, and its text.
fn script(flags: &TraceFlags) -> Result<(String, String), CliError> {
    match (&flags.expression, &flags.file) {
        (Some(text), _) => Ok(("script".to_owned(), text.clone())),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let bytes = crate::term::error::read(path)?;
            let text = String::from_utf8(bytes).map_err(|_| CliError::Refused {
                path: name.clone(),
                message: "a script is UTF-8 text, and this is not".into(),
            })?;
            Ok((name, text))
        }
        (None, None) => Err(CliError::Other("there is no script".into())),
    }
}

/// Where a function is, as the section of a probe says it.
fn function(file: &str, function: &str) -> Result<String, String> {
    let path = std::fs::canonicalize(file).map_err(|error| format!("`{file}`: {error}"))?;
    let offset = warpbpf_linux::function_offset(&path, function);
    let offset = offset.map_err(|error| error.to_string())?;
    Ok(format!("{}+{offset:#x}", path.display()))
}

/// What a person must know to believe the results: which launches had no programs, and what went
/// wrong.
pub fn notes(report: &Report) {
    for process in &report.processes {
        if !process.complete {
            tell!(
                "warpbpf: process {} ended without a good-bye: these are the data read until then",
                process.pid
            );
        }
        for kernel in &process.kernels {
            let all = kernel.launches + kernel.uninstrumented + kernel.skipped;
            if kernel.uninstrumented > 0 {
                let why = match kernel.launches {
                    0 => format!(": {}", kernel.method),
                    _ => String::new(),
                };
                tell!(
                    "warpbpf: {} of {all} launches of `{}` ran without programs{why}",
                    kernel.uninstrumented,
                    kernel.name
                );
            }
            for (why, places) in &kernel.left_out {
                tell!(
                    "warpbpf: {places} places of `{}` have no program: {why}",
                    kernel.name
                );
            }
        }
    }
    // That was told when it was done.
    let told = |note: &&String| !note.starts_with("attached to process ");
    let notes: Vec<String> = report.notes.iter().filter(told).cloned().collect();
    for note in alike(&notes) {
        tell!("warpbpf: {note}");
    }
}
