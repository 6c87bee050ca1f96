//! `warpbpf replace`, `add`, `remove`, `gate`, `slots` and `programs`: the programs of applications that run under another `warpbpf`.

use std::time::Duration;

use serde_json::{Value, json};
use warpbpf::control::{ProcessInfo, ProgramChange};
use warpbpf::{Client, Exchanged};

use crate::error::CliError;
use crate::exchange::{
    ExchangeFlags, GateFlags, GateState, ProgramsFlags, RemoveFlags, SlotsVerb, ToFlags,
};
use crate::objects;
use crate::output::say;
use crate::render::numbers;
use crate::table::Table;

/// An application, and the session that it is in.
type Found = (Client, ProcessInfo);

/// Puts the programs of an object in place of those that are there.
pub fn replace(flags: &ExchangeFlags) -> Result<u8, CliError> {
    let loaded = objects::bring(&flags.object)?;
    let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
    exchange(&flags.to, &ProgramChange::Replace, object)
}

/// Puts the programs of an object beside those that are there.
pub fn add(flags: &ExchangeFlags) -> Result<u8, CliError> {
    let loaded = objects::bring(&flags.object)?;
    let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
    exchange(&flags.to, &ProgramChange::Add, object)
}

/// Takes programs out.
pub fn remove(flags: &RemoveFlags) -> Result<u8, CliError> {
    let programs = flags.programs.clone();
    exchange(&flags.to, &ProgramChange::Remove { programs }, None)
}

/// Stops programs in kernels that run, or lets them go on.
pub fn gate(flags: &GateFlags) -> Result<u8, CliError> {
    let open = flags.to_be == GateState::On;
    let programs = flags.programs.clone();
    exchange(&flags.to, &ProgramChange::Gate { open, programs }, None)
}

/// Puts programs into slots of kernels that run, or takes them out.
pub fn slots(verb: &SlotsVerb) -> Result<u8, CliError> {
    match verb {
        SlotsVerb::Put(flags) => {
            let loaded = objects::bring(&flags.object)?;
            let object = Some((loaded.name.as_str(), loaded.bytes.as_slice()));
            exchange(&flags.to, &ProgramChange::Slots, object)
        }
        SlotsVerb::Clear(to) => exchange(to, &ProgramChange::Clear, None),
    }
}

/// Lists programs.
pub fn programs(flags: &ProgramsFlags) -> Result<u8, CliError> {
    let found = find(flags.pid)?;
    if flags.json {
        let processes: Vec<Value> = found.iter().map(|(_, process)| listed(process)).collect();
        say(&format!(
            "{}\n",
            json!({ "ok": true, "processes": processes })
        ));
        return Ok(0);
    }
    for (_, process) in &found {
        let mut text = format!(
            "{} (process {}), generation {}\n",
            process.exe,
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
        for guest in &process.guests {
            text += &format!(
                "…@g{} is of `{}`, by process {}\n",
                guest.guest, guest.object, guest.tool
            );
        }
        say(&text);
    }
    Ok(0)
}

fn listed(process: &ProcessInfo) -> Value {
    let program = |program: &warpbpf::control::ProgramInfo| json!({ "name": program.name, "section": program.section, "launches": program.launches });
    let programs: Vec<Value> = process.programs.iter().map(program).collect();
    let guest = |guest: &warpbpf::control::GuestInfo| json!({ "guest": guest.guest, "tool": guest.tool, "object": guest.object });
    let guests: Vec<Value> = process.guests.iter().map(guest).collect();
    json!({ "pid": process.pid, "inner_pid": process.inner_pid, "exe": process.exe, "generation": process.generation, "programs": programs, "guests": guests })
}

/// The applications that run with programs, or those that `pid` means.
fn find(pid: Option<u32>) -> Result<Vec<Found>, CliError> {
    let mut found = Vec::new();
    for mut client in Client::find() {
        // One that ends while it is asked is not there.
        let Ok((session, _)) = client.session() else {
            continue;
        };
        let wanted = |process: &ProcessInfo| {
            let named = pid.is_none_or(|pid| pid == session.tool || pid == process.pid);
            named && process.running && !process.maps.is_empty()
        };
        let mut processes = session.processes.iter().filter(|p| wanted(p)).cloned();
        let Some(first) = processes.next() else {
            continue;
        };
        let rest: Vec<ProcessInfo> = processes.collect();
        let path = client.path().to_owned();
        found.push((client, first));
        for process in rest {
            found.push((Client::connect(&path)?, process));
        }
    }
    match (found.is_empty(), pid) {
        (false, _) => Ok(found),
        (true, None) => Err(warpbpf::Error::NoSession.into()),
        (true, Some(pid)) => Err(CliError::Other(format!(
            "no application with programs in it belongs to process {pid}; `warpbpf programs` shows all"
        ))),
    }
}

fn exchange(
    to: &ToFlags,
    change: &ProgramChange,
    object: Option<(&str, &[u8])>,
) -> Result<u8, CliError> {
    let mut found = find(to.pid)?;
    let tools = found.iter().map(|(client, _)| client.path());
    let tools: std::collections::BTreeSet<_> = tools.collect();
    if tools.len() > 1 {
        let pids: Vec<String> = found
            .iter()
            .map(|(_, p)| format!("{} ({})", p.pid, p.exe))
            .collect();
        return Err(CliError::Other(format!(
            "several sessions run; choose one by `--pid`: {}",
            pids.join(", ")
        )));
    }
    let mut done = Vec::new();
    for (client, process) in &mut found {
        let limit = Duration::from_secs(to.limit);
        let exchanged = client.exchange(process, change, object, limit)?;
        if !to.json {
            match change {
                ProgramChange::Gate { open, programs } => {
                    let what = match (open, programs.len()) {
                        (true, 0) => "programs run".to_owned(),
                        (false, 0) => "no program runs".to_owned(),
                        (true, _) => format!("`{}` run", programs.join("`, `")),
                        (false, _) => format!("`{}` do not run", programs.join("`, `")),
                    };
                    say(&format!("process {}: {what}\n", process.pid));
                }
                ProgramChange::Slots | ProgramChange::Clear => {
                    let what = match exchanged.slots.is_empty() {
                        true => "nothing is in slots".to_owned(),
                        false => format!("`{}` in slots", exchanged.slots.join("`, `")),
                    };
                    say(&format!("process {}: {what}\n", process.pid));
                }
                ProgramChange::Replace
                | ProgramChange::Add
                | ProgramChange::Remove { .. }
                | ProgramChange::Join { .. }
                | ProgramChange::Leave { .. }
                | ProgramChange::OnCpu { .. } => {
                    tell(process, &exchanged);
                }
            }
        }
        done.push(json!({ "pid": process.pid, "generation": exchanged.generation, "programs": exchanged.programs,
                          "without": exchanged.without, "slots": exchanged.slots }));
    }
    if to.json {
        say(&format!("{}\n", json!({ "ok": true, "processes": done })));
    }
    Ok(0)
}

fn tell(process: &ProcessInfo, exchanged: &Exchanged) {
    let programs: Vec<String> = exchanged
        .programs
        .iter()
        .map(|p| format!("`{p}`"))
        .collect();
    let programs = match programs.is_empty() {
        true => "no programs".to_owned(),
        false => programs.join(", "),
    };
    say(&format!(
        "process {}: {programs} (generation {})\n",
        process.pid, exchanged.generation
    ));
    for (kernel, reason) in &exchanged.without {
        eprintln!("warpbpf: kernel `{kernel}` runs without probes: {reason}");
    }
}
