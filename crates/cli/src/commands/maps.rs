//! `warpbpf maps`: maps of applications that run under another `warpbpf`, read, changed and watched
//! from here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, ENOENT, MapType};
use warpbpf_maps::{MapPlan, stops};
use warpbpf_object::{MapDef, Object};
use warpbpf_tool::control::{ProcessInfo, TOOL_PATIENCE};
use warpbpf_tool::{Control, MapInfo, MapOp, OpCode, SessionInfo, errno_text};

use crate::flags::{MapsFlags, MapsVerb};
use crate::report::contents::fill;
use crate::report::map_text;
use crate::report::model;
use crate::report::pretty::Printer;
use crate::report::render::numbers;
use crate::report::table::Table;
use crate::report::values::Shape;
use crate::term::error::CliError;
use crate::term::output::{say, tell};
use crate::term::plain;

/// Does what the flags say. Exit status 1 where a key is not there.
pub fn run(flags: &MapsFlags) -> Result<u8, CliError> {
    let mut sessions = Session::find(flags.pid)?;
    let (name, verb) = match &flags.verb {
        MapsVerb::List => return Ok(list(flags, &sessions)),
        verb @ (MapsVerb::Dump { map, .. }
        | MapsVerb::Lookup { map, .. }
        | MapsVerb::Update { map, .. }
        | MapsVerb::Delete { map, .. }
        | MapsVerb::Push { map, .. }
        | MapsVerb::Pop { map }
        | MapsVerb::Peek { map }
        | MapsVerb::Watch { map, .. }) => (map, verb),
    };
    let mut map = Map::find(&mut sessions, name)?;
    let said = |value: &Value| {
        if flags.json {
            format!("{value}\n")
        } else {
            format!("{}\n", map_text::line(value))
        }
    };
    match verb {
        MapsVerb::List => {}
        MapsVerb::Dump { per_device, .. } => {
            let contents = map.contents()?;
            if *per_device && !flags.json && !contents.contexts.is_empty() {
                for part in model::Report::of_map(contents).per_device().maps() {
                    say(&shown(false, part));
                }
            } else {
                say(&shown(flags.json, &contents));
            }
        }
        MapsVerb::Lookup { key, .. } => {
            let key = map.key(key)?;
            return Ok(answered(name, map.value_of(OpCode::Lookup, &key)?, &said));
        }
        MapsVerb::Peek { .. } => {
            return Ok(answered(name, map.value_of(OpCode::Peek, &[])?, &said));
        }
        MapsVerb::Pop { .. } => return Ok(answered(name, map.value_of(OpCode::Pop, &[])?, &said)),
        MapsVerb::Update {
            key,
            value,
            noexist,
            exist,
            ..
        } => {
            let flags = match (noexist, exist) {
                (true, _) => BPF_NOEXIST,
                (_, true) => BPF_EXIST,
                (false, false) => BPF_ANY,
            };
            let key = map.key(std::slice::from_ref(key))?;
            // Fields that are not named stay as they are.
            let base = map.operate(OpCode::Lookup, &key, &[], 0)?;
            let base = present(base).map_err(|errno| map.wrong(errno_text(errno)))?;
            let value = map.value(value, base)?;
            map.change(OpCode::Update, &key, &value, flags)?;
        }
        MapsVerb::Delete { key, .. } => {
            let key = map.key(key)?;
            map.change(OpCode::Delete, &key, &[], 0)?;
        }
        MapsVerb::Push { value, .. } => {
            let value = map.value(value, None)?;
            map.change(OpCode::Push, &[], &value, 0)?;
        }
        MapsVerb::Watch {
            interval, count, ..
        } => watch(flags, &mut map, *interval, *count)?,
    }
    Ok(0)
}

/// What a lookup gave, if there is something. All other failures leave open what is there.
fn present(looked_up: Result<Vec<u8>, i32>) -> Result<Option<Vec<u8>>, i32> {
    match looked_up {
        Ok(bytes) => Ok(Some(bytes)),
        Err(errno) if i64::from(errno) == ENOENT => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn answered(name: &str, value: Option<Value>, said: &dyn Fn(&Value) -> String) -> u8 {
    match value {
        Some(value) => {
            say(&said(&value));
            0
        }
        None => {
            tell!("warpbpf: map `{name}`: there is no such key, or nothing in it");
            1
        }
    }
}

/// A session that answers.
struct Session {
    control: Control,
    info: SessionInfo,
    object: Option<Object>,
}

impl Session {
    /// All of this user, or those with a process of this id.
    fn find(pid: Option<u32>) -> Result<Vec<Session>, CliError> {
        let mut sessions = Vec::new();
        let asked = Control::ask_all(TOOL_PATIENCE, &|| true);
        if let Some(silence) = asked.silence() {
            tell!("warpbpf: {silence}");
        }
        for tool in asked.answered {
            let (control, mut info, bytes) = (tool.control, tool.session, tool.object);
            let chosen = pid.filter(|pid| *pid != info.tool);
            if let Some(pid) = chosen {
                info.processes.retain(|process| process.pid == pid);
            }
            if chosen.is_none() || !info.processes.is_empty() {
                let object = warpbpf_object::load(&bytes).ok();
                sessions.push(Session {
                    control,
                    info,
                    object,
                });
            }
        }
        match (sessions.is_empty(), pid) {
            (false, _) => Ok(sessions),
            (true, None) => Err(warpbpf_tool::Error::NoSession.into()),
            (true, Some(pid)) => Err(CliError::Other(format!(
                "no session of warpbpf has a process {pid}; `warpbpf maps list` shows all"
            ))),
        }
    }
}

/// The maps of a process with their numbers, without those that count for the session itself:
/// nobody else may change them, and the report says what they hold.
fn shown_of(process: &ProcessInfo) -> impl Iterator<Item = (u32, &MapInfo)> {
    let all = (0..).zip(&process.maps);
    all.filter(|(_, map)| stops::program_of(&map.name).is_none())
}

fn list(flags: &MapsFlags, sessions: &[Session]) -> u8 {
    let kind = |map: &MapInfo| MapType::from_number(map.map_type).map_or("unknown", MapType::name);
    if flags.json {
        let sessions: Vec<Value> = sessions.iter().map(|s| list_json(&s.info, &kind)).collect();
        say(&format!(
            "{}\n",
            json!({ "ok": true, "sessions": sessions })
        ));
        return 0;
    }
    for Session { info, .. } in sessions {
        for process in &info.processes {
            let mut text = format!(
                "{} of `{}` in {} (process {}{})\n",
                if process.maps.is_empty() {
                    "no maps yet"
                } else {
                    "maps"
                },
                plain::name(&info.object),
                plain::name(&process.exe),
                numbers(process.pid, process.inner_pid),
                if process.running { "" } else { ", ended" }
            );
            let mut table = Table::new(&["map", "type", "key", "value", "entries"]);
            for (_, map) in shown_of(process) {
                table.row(vec![
                    map.name.clone(),
                    kind(map).to_owned(),
                    format!("{} B", map.key_size),
                    format!("{} B", map.value_size),
                    map.max_entries.to_string(),
                ]);
            }
            table.write(&mut text);
            say(&text);
        }
        if info.processes.is_empty() {
            say(&format!(
                "`{}` waits for its application to load CUDA code (process {})\n",
                plain::name(&info.object),
                info.tool
            ));
        }
    }
    0
}

fn list_json(info: &SessionInfo, kind: &dyn Fn(&MapInfo) -> &'static str) -> Value {
    let process = |process: &ProcessInfo| {
        let map = |map: &MapInfo| {
            json!({ "name": map.name, "type": kind(map), "key_bytes": map.key_size,
                    "value_bytes": map.value_size, "max_entries": map.max_entries, "bytes": map.bytes })
        };
        json!({ "pid": process.pid, "inner_pid": process.inner_pid, "exe": process.exe, "running": process.running,
                "maps": shown_of(process).map(|(_, one)| map(one)).collect::<Vec<_>>() })
    };
    json!({ "tool": info.tool, "command": info.command, "object": info.object,
            "processes": info.processes.iter().map(process).collect::<Vec<_>>() })
}

/// A map in a session.
struct Map<'s> {
    session: &'s mut Session,
    process: ProcessInfo,
    index: u32,
    info: MapInfo,
    plan: MapPlan,
}

impl<'s> Map<'s> {
    /// The only map of this name.
    fn find(sessions: &'s mut [Session], name: &str) -> Result<Map<'s>, CliError> {
        let mut found = Vec::new();
        let mut names = Vec::new();
        for (at, session) in sessions.iter().enumerate() {
            for process in &session.info.processes {
                for (index, map) in shown_of(process) {
                    // Of a data section its end is enough: the object's name stands before it.
                    if map.name == name || (name.starts_with('.') && map.name.ends_with(name)) {
                        found.push((at, process.clone(), index, map.clone()));
                    }
                    names.push(format!("`{}`", map.name));
                }
            }
        }
        names.sort();
        names.dedup();
        let (at, process, index, info) = match found.as_slice() {
            [one] => one.clone(),
            [] if names.is_empty() => {
                return Err(CliError::Other(
                    "no application has maps yet: they are made when it loads its first kernel"
                        .into(),
                ));
            }
            [] => {
                return Err(CliError::Other(format!(
                    "there is no map `{name}`; there are {}",
                    names.join(", ")
                )));
            }
            several => {
                let pids: Vec<String> = several.iter().map(|f| f.1.pid.to_string()).collect();
                return Err(CliError::Other(format!(
                    "map `{name}` is in several processes; choose one with `--pid`: {}",
                    pids.join(", ")
                )));
            }
        };
        let plan = warpbpf_tool::plan_of(&info).ok_or_else(|| {
            CliError::Other(format!("map `{name}` is of a type that is not known here"))
        })?;
        Ok(Map {
            session: &mut sessions[at],
            process,
            index,
            info,
            plan,
        })
    }

    fn def(&self) -> Option<&MapDef> {
        self.session.object.as_ref()?.maps.get(self.index as usize)
    }

    fn shape(&self, what: &'static str) -> Shape<'_> {
        let def = self.def();
        let (ty, size) = match what {
            "key" => (def.and_then(|d| d.key_type), self.info.key_size),
            _ => (def.and_then(|d| d.value_type), self.info.value_size),
        };
        Shape {
            what,
            printer: self.printer(),
            ty,
            size: size as usize,
            // A record of the host is as long as it is.
            any_size: self.info.map_type == MapType::UserRingbuf as u32,
        }
    }

    fn wrong(&self, reason: String) -> CliError {
        CliError::Other(format!("map `{}`: {reason}", self.info.name))
    }

    fn key(&self, words: &[String]) -> Result<Vec<u8>, CliError> {
        self.shape("key")
            .bytes(words, None)
            .map_err(|e| self.wrong(e))
    }

    fn value(&self, words: &[String], base: Option<Vec<u8>>) -> Result<Vec<u8>, CliError> {
        let base = base.filter(|base| base.len() == self.info.value_size as usize);
        self.shape("value")
            .bytes(words, base)
            .map_err(|e| self.wrong(e))
    }

    /// What an operation gave, or its error number.
    fn operate(
        &mut self,
        code: OpCode,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<Result<Vec<u8>, i32>, CliError> {
        let op = MapOp {
            code,
            flags,
            key,
            value,
        };
        let outcomes = self
            .session
            .control
            .operate(&self.process, self.index, &[op])?;
        let outcome = outcomes.into_iter().next().unwrap_or_default();
        Ok(match outcome.errno {
            0 => Ok(outcome.bytes),
            errno => Err(errno),
        })
    }

    fn change(
        &mut self,
        code: OpCode,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), CliError> {
        match self.operate(code, key, value, flags)? {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.wrong(errno_text(errno))),
        }
    }

    fn printer(&self) -> Printer<'_> {
        Printer {
            btf: self.session.object.as_ref().and_then(|o| o.btf.as_ref()),
            kernels: &self.process.kernels,
            sites: &self.process.sites,
        }
    }

    /// Of a process that has ended, as it was then.
    fn value_of(&mut self, code: OpCode, key: &[u8]) -> Result<Option<Value>, CliError> {
        let bytes = match self.operate(code, key, &[], 0) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(errno)) if i64::from(errno) == ENOENT => return Ok(None),
            Ok(Err(errno)) => return Err(self.wrong(errno_text(errno))),
            Err(CliError::Tool(warpbpf_tool::Error::Ended { .. })) if code == OpCode::Lookup => {
                let printer = self.printer();
                let shown = printer.json(self.def().and_then(|d| d.key_type), key);
                let contents = self.copied()?;
                let entry = contents
                    .entries
                    .into_iter()
                    .find(|entry| entry.key == shown);
                return Ok(entry.map(|entry| entry.value));
            }
            Err(error) => return Err(error),
        };
        let ty = self.def().and_then(|d| d.value_type);
        let (size, printer) = (self.info.value_size as usize, self.printer());
        Ok(Some(if bytes.len() == size {
            printer.json(ty, &bytes)
        } else {
            let values = bytes.chunks(size.next_multiple_of(8).max(1));
            values
                .map(|value| printer.json(ty, &value[..size]))
                .collect()
        }))
    }

    /// Everything in it now; of a process that has ended, as it was then.
    fn contents(&mut self) -> Result<model::Map, CliError> {
        match self.operate(OpCode::Snapshot, &[], &[], 0) {
            Ok(Ok(_)) | Err(CliError::Tool(warpbpf_tool::Error::Ended { .. })) => self.copied(),
            Ok(Err(_)) if self.info.bytes == 0 => {
                Err(self
                    .wrong("its records are events, which `warpbpf run` shows as they come".into()))
            }
            Ok(Err(errno)) => Err(self.wrong(errno_text(errno))),
            Err(error) => Err(error),
        }
    }

    fn copied(&mut self) -> Result<model::Map, CliError> {
        let mut parts = Vec::new();
        for place in 0..self.process.contexts.len() as u32 {
            let control = &mut self.session.control;
            let memory = control.memory(self.process.process, place)?;
            let (index, mut bytes) = (self.index as usize, Vec::new());
            let copied = match index < memory.maps() {
                // Its process may write what it likes there.
                true if memory.snapshot_bytes(index) != Some(self.info.bytes) => {
                    return Err(self.wrong("its memory is not as long as was said".into()));
                }
                true => memory.snapshot(index, &mut bytes),
                // The context ended before the map came.
                false => Ok(None),
            };
            match copied.map_err(warpbpf_tool::Error::from)? {
                Some(_) => parts.push(bytes),
                // It has just come.
                None => parts.push(vec![0; self.plan.snapshot_bytes() as usize]),
            }
        }
        let mut map = model::Map {
            name: self.info.name.clone(),
            kind: self.plan.map_type.name().into(),
            max_entries: self.info.max_entries,
            ..model::Map::default()
        };
        // One that a replacement brought is in no object that is known here.
        let def = self.def().cloned();
        let def = def.unwrap_or_else(|| warpbpf_tool::untyped_map(&self.info));
        fill(&mut map, &self.plan, &def, &parts, &self.printer());
        for (context, part) in self.process.contexts.iter().zip(&parts) {
            if parts.len() > 1 {
                let mut own = model::Map::default();
                let part = std::slice::from_ref(part);
                fill(&mut own, &self.plan, &def, part, &self.printer());
                let part = own.into_part(context.number, context.device);
                map.contexts.push(part);
            }
        }
        Ok(map)
    }
}

fn shown(json: bool, map: &model::Map) -> String {
    if json {
        return format!("{}\n", json!({ "ok": true, "map": map }));
    }
    let mut text = String::new();
    map_text::map_text(&mut text, map, usize::MAX);
    text.trim_start_matches('\n').to_owned()
}

/// Prints what is new, changed or gone since the last look.
fn watch(
    flags: &MapsFlags,
    map: &mut Map<'_>,
    interval: f64,
    count: Option<u64>,
) -> Result<(), CliError> {
    let mut before: BTreeMap<String, Value> = BTreeMap::new();
    let mut looks = 0;
    while count.is_none_or(|count| looks < count) {
        if looks > 0 {
            std::thread::sleep(Duration::from_secs_f64(interval.clamp(0.0, 1e6)));
        }
        looks += 1;
        let contents = map.contents();
        let contents = match contents {
            Ok(contents) => contents,
            // The tool has ended, and with it what could be watched.
            Err(CliError::Tool(warpbpf_tool::Error::Wire(_))) if looks > 1 => return Ok(()),
            Err(error) => return Err(error),
        };
        let entries = contents.entries.into_iter();
        let now: BTreeMap<String, Value> = entries
            .map(|entry| (map_text::line(&entry.key), entry.value))
            .collect();
        let mut lines = Vec::new();
        for (key, value) in &now {
            if before.get(key) != Some(value) {
                lines.push((key, Some(value)));
            }
        }
        let gone = before.keys().filter(|key| !now.contains_key(*key));
        lines.extend(gone.map(|key| (key, None)));
        for (key, value) in lines {
            say(&match (flags.json, value) {
                (true, value) => format!("{}\n", json!({ "key": key, "value": value })),
                (false, Some(value)) => format!("{key}: {}\n", map_text::line(value)),
                (false, None) => format!("{key}: gone\n"),
            });
        }
        before = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_for_the_session_is_no_map_of_the_user() {
        let map = |name: &str| MapInfo {
            name: name.to_owned(),
            map_type: MapType::Array as u32,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            layout: warpbpf_wire::Layout::Array {
                max_entries: 1,
                value_size: 8,
                shards: 1,
                summed: false,
            },
            summed: Vec::new(),
            added: Vec::new(),
            bytes: 8,
            client: 0,
        };
        let process = ProcessInfo {
            maps: ["a", "wbpf.stops.walks", "b"].map(map).to_vec(),
            ..ProcessInfo::default()
        };
        let shown: Vec<(u32, &str)> = shown_of(&process)
            .map(|(number, map)| (number, map.name.as_str()))
            .collect();
        assert_eq!(shown, [(0, "a"), (2, "b")]);
    }

    #[test]
    fn only_a_missing_key_has_no_value() {
        assert_eq!(present(Ok(vec![1])), Ok(Some(vec![1])));
        assert_eq!(present(Err(-2)), Ok(None));
        for errno in [-5, -16, -110] {
            assert_eq!(present(Err(errno)), Err(errno));
        }
    }
}
