//! `warpbpf replace`, `add`, `remove`, `gate`, `slots` and `programs`: the programs of applications
//! that run under another `warpbpf`.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use warpbpf_tool::control::{ProcessInfo, ProgramChange, TOOL_PATIENCE};
use warpbpf_tool::{Control, Replaced};

use crate::flags::{
    GateFlags, GateState, ProgramsFlags, RemoveFlags, ReplaceFlags, SlotsVerb, ToFlags,
};
use crate::programs::objects;
use crate::report::render::numbers;
use crate::report::table::Table;
use crate::term::error::CliError;
use crate::term::output::{say, tell};
use crate::term::plain;

/// An application, and the session that it is in.
struct Found {
    control: Control,
    process: ProcessInfo,
    /// The process of the tool whose session it is.
    tool: u32,
    /// What that tool has started, if it did.
    command: Vec<String>,
}

/// Puts the programs of an object in place of those that are there.
pub fn replace(flags: &ReplaceFlags) -> Result<u8, CliError> {
    let loaded = objects::bring(&flags.object)?;
    let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
    apply(&flags.to, &ProgramChange::Replace, object)
}

/// Puts the programs of an object beside those that are there.
pub fn add(flags: &ReplaceFlags) -> Result<u8, CliError> {
    let loaded = objects::bring(&flags.object)?;
    let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
    apply(&flags.to, &ProgramChange::Add, object)
}

/// Takes programs out.
pub fn remove(flags: &RemoveFlags) -> Result<u8, CliError> {
    let programs = flags.programs.clone();
    apply(&flags.to, &ProgramChange::Remove { programs }, None)
}

/// Stops programs in kernels that run, or lets them go on.
pub fn gate(flags: &GateFlags) -> Result<u8, CliError> {
    let open = flags.to_be == GateState::On;
    let programs = flags.programs.clone();
    apply(&flags.to, &ProgramChange::Gate { open, programs }, None)
}

/// Puts programs into slots of kernels that run, or takes them out.
pub fn slots(verb: &SlotsVerb) -> Result<u8, CliError> {
    match verb {
        SlotsVerb::Load(flags) => {
            let loaded = objects::bring(&flags.object)?;
            let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
            apply(&flags.to, &ProgramChange::Slots, object)
        }
        SlotsVerb::Clear(to) => apply(to, &ProgramChange::Clear, None),
    }
}

/// Lists programs.
pub fn programs(flags: &ProgramsFlags) -> Result<u8, CliError> {
    let found = find(flags.pid, |_| true)?;
    if flags.json {
        let processes: Vec<Value> = found.iter().map(|found| listed(&found.process)).collect();
        say(&format!(
            "{}\n",
            json!({ "ok": true, "processes": processes })
        ));
        return Ok(0);
    }
    for Found { process, .. } in &found {
        let mut text = format!(
            "{} (process {}), generation {}\n",
            plain::name(&process.exe),
            numbers(process.pid, process.inner_pid),
            process.generation
        );
        let mut table = Table::new(&["program", "section", "launches"]);
        for program in &process.programs {
            table.row(vec![
                program.name.clone(),
                program.section.clone(),
                program.launches.to_string(),
            ]);
        }
        table.write(&mut text);
        for client in &process.clients {
            text += &format!(
                "…@c{} is of `{}`, by process {}\n",
                client.client,
                plain::name(&client.object),
                client.tool
            );
        }
        say(&text);
    }
    Ok(0)
}

fn listed(process: &ProcessInfo) -> Value {
    let program = |program: &warpbpf_tool::control::ProgramInfo| json!({ "name": program.name, "section": program.section, "launches": program.launches });
    let programs: Vec<Value> = process.programs.iter().map(program).collect();
    let client = |client: &warpbpf_tool::control::ClientInfo| json!({ "client": client.client, "tool": client.tool, "object": client.object });
    let clients: Vec<Value> = process.clients.iter().map(client).collect();
    json!({ "pid": process.pid, "inner_pid": process.inner_pid, "exe": process.exe, "generation": process.generation, "programs": programs, "clients": clients })
}

/// A session of this user, not one that root can only reach.
fn is_own(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|socket| socket.uid() == user)
}

/// The applications that run with programs, of those whose socket `takes`, or those that `pid`
/// means.
fn find(pid: Option<u32>, takes: fn(&Path) -> bool) -> Result<Vec<Found>, CliError> {
    let mut found = Vec::new();
    let asked = Control::ask_all(TOOL_PATIENCE, &|| true);
    if let Some(silence) = asked.silence() {
        tell!("warpbpf: {silence}");
    }
    for tool in asked.answered {
        let (control, session) = (tool.control, tool.session);
        if pid.is_none() && !takes(control.path()) {
            continue;
        }
        let wanted = |process: &ProcessInfo| {
            let named = pid.is_none_or(|pid| pid == session.tool || pid == process.pid);
            named && process.running && !process.maps.is_empty()
        };
        let mut processes = session.processes.iter().filter(|p| wanted(p)).cloned();
        let Some(first) = processes.next() else {
            continue;
        };
        let rest: Vec<ProcessInfo> = processes.collect();
        let path = control.path().to_owned();
        let of = |control, process| Found {
            control,
            process,
            tool: session.tool,
            command: session.command.clone(),
        };
        found.push(of(control, first));
        for process in rest {
            found.push(of(Control::connect(&path)?, process));
        }
    }
    match (found.is_empty(), pid) {
        (false, _) => Ok(found),
        (true, None) => Err(warpbpf_tool::Error::NoSession.into()),
        (true, Some(pid)) => Err(CliError::Other(format!(
            "no application with programs in it belongs to process {pid}; `warpbpf programs` shows all"
        ))),
    }
}

fn apply(
    to: &ToFlags,
    change: &ProgramChange,
    object: Option<(&str, &[u8])>,
) -> Result<u8, CliError> {
    let mut found = find(to.pid, is_own)?;
    let tools = found.iter().map(|found| found.control.path());
    let tools: std::collections::BTreeSet<_> = tools.collect();
    if tools.len() > 1 {
        let pids: Vec<String> = found
            .iter()
            .map(|Found { process, .. }| format!("{} ({})", process.pid, process.exe))
            .collect();
        return Err(CliError::Other(format!(
            "several sessions run; choose one by `--pid`: {}",
            pids.join(", ")
        )));
    }
    // Nobody has named it.
    if let (None, Some(first), false) = (to.pid, found.first(), to.json) {
        tell!("warpbpf: in {}", session_name(first.tool, &first.command));
    }
    let mut done = Vec::new();
    for Found {
        control,
        process,
        tool,
        ..
    } in &mut found
    {
        let limit = Duration::from_secs(to.limit);
        let replaced = control.replace(process, change, object, limit)?;
        if !to.json {
            match change {
                ProgramChange::Gate { open, programs } => {
                    let what = match (open, programs.len()) {
                        (true, 0) => "programs run".to_owned(),
                        (false, 0) => "no program runs".to_owned(),
                        (true, _) => format!("`{}` run", programs.join("`, `")),
                        (false, _) => format!("`{}` do not run", programs.join("`, `")),
                    };
                    say(&format!(
                        "process {}: {}\n",
                        process.pid,
                        plain::name(&what)
                    ));
                }
                ProgramChange::Slots | ProgramChange::Clear => {
                    let what = match replaced.slots.is_empty() {
                        true => "nothing is in slots".to_owned(),
                        false => format!("`{}` in slots", replaced.slots.join("`, `")),
                    };
                    say(&format!(
                        "process {}: {}\n",
                        process.pid,
                        plain::name(&what)
                    ));
                }
                ProgramChange::Replace
                | ProgramChange::Add
                | ProgramChange::Remove { .. }
                | ProgramChange::Join { .. }
                | ProgramChange::Leave { .. }
                | ProgramChange::OnCpu { .. } => {
                    tell_programs(process, &replaced);
                }
            }
        }
        done.push(json!({ "pid": process.pid, "tool": tool, "generation": replaced.generation, "programs": replaced.programs,
                          "without": replaced.without, "slots": replaced.slots }));
    }
    if to.json {
        say(&format!("{}\n", json!({ "ok": true, "processes": done })));
    }
    Ok(0)
}

/// A session, as its user knows it.
fn session_name(tool: u32, command: &[String]) -> String {
    let name = match command.is_empty() {
        true => String::new(),
        false => format!(": {}", command.join(" ")),
    };
    format!("the session of process {tool}{name}")
}

fn tell_programs(process: &ProcessInfo, replaced: &Replaced) {
    let programs: Vec<String> = replaced.programs.iter().map(|p| format!("`{p}`")).collect();
    let programs = match programs.is_empty() {
        true => "no programs".to_owned(),
        false => programs.join(", "),
    };
    say(&format!(
        "process {}: {} (generation {})\n",
        process.pid,
        plain::name(&programs),
        replaced.generation
    ));
    for (kernel, reason) in &replaced.without {
        tell!("warpbpf: kernel `{kernel}` runs without probes: {reason}");
    }
}
