//! Programs of Linux in the same object as programs in kernels: they run in Linux, and share maps
//! with those.
//!
//! This command loads them, because it may have the privilege, which the application need not have.
//! They end with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use warpbpf_abi::maps::MapType;
use warpbpf_linux::PlaceError;
use warpbpf_linux::carry::Carrier;
use warpbpf_linux::section::Attach;
use warpbpf_linux::side::{Begun, Side, SideMap, Use};
use warpbpf_linux::sys::Host;
use warpbpf_linux::types::KernelTypes;
use warpbpf_linux::{LinuxError, Tracefs, maps_of_all};
use warpbpf_maps::MapView;
use warpbpf_object::{
    Btf, InitialValue, LoadOptions, MapKind, Object, ObjectError, Program, hide, load_with,
};
use warpbpf_session::PlannedProgram;
use warpbpf_tool::{MapOp, OpCode, Process, Tool};

use crate::flags::ObjectFlags;
use crate::programs::objects::{self, Loaded};
use crate::report::contents::Filling;
use crate::report::model;
use crate::report::news::{News, Records, fresh};
use crate::report::pretty::Printer;
use crate::term::error::CliError;

/// Times that rings are emptied in a row.
const ROUNDS: usize = 16;
/// The variable that is the application's process.
const APP_PID: &str = "wbpf_app_pid";

/// An object without what Linux runs of it, and that part.
pub struct Split {
    /// What applications get.
    pub loaded: Loaded,
    /// The rest, if there is some.
    pub linux: Option<ForLinux>,
}

/// Programs of an object that Linux runs. Nothing but their names is read before they are brought
/// there: who leaves them out need not have what they take.
pub struct ForLinux {
    /// Name and section of each.
    programs: Vec<(String, String)>,
    /// The whole object, in which no field has been adapted.
    whole: Vec<u8>,
    /// Names of its other programs.
    others: Vec<String>,
}

impl ForLinux {
    /// Name and section of each.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &str)> {
        let programs = self.programs.iter();
        programs.map(|(name, section)| (name.as_str(), section.as_str()))
    }

    /// All maps of the object, and these programs alone, whose fields are as in `kernel`, or why
    /// there are no such types.
    fn object(&self, kernel: Result<&KernelTypes, &PlaceError>) -> Result<Object, ObjectError> {
        let others: Vec<&str> = self.others.iter().map(String::as_str).collect();
        let why = kernel.err().map(ToString::to_string);
        let options = LoadOptions {
            target_btf: kernel.ok().map(KernelTypes::types),
            no_target: why.as_deref(),
        };
        load_with(&hide(&self.whole, &others, &[])?, &options)
    }
}

impl Split {
    /// Reads objects as [`objects::bring`] does, and takes them apart. Fields of what Linux runs
    /// are left as they are: they are the running kernel's, and who leaves that part out need not
    /// have types for it.
    ///
    /// # Errors
    /// As [`objects::bring`]; a section that is wrong, or the part of applications that cannot be
    /// read by itself.
    pub fn bring(flags: &ObjectFlags) -> Result<Split, CliError> {
        let (loaded, target) = objects::read_all(flags)?;
        let Split { loaded, linux } = Split::of(loaded)?;
        Ok(Split {
            loaded: loaded.adapted(target.as_ref())?,
            linux,
        })
    }

    /// Takes an object apart.
    ///
    /// # Errors
    /// A section that is wrong, or the part of applications that cannot be read by itself.
    pub fn of(loaded: Loaded) -> Result<Split, CliError> {
        let object = &loaded.object;
        let (mut of_linux, mut others) = (Vec::new(), Vec::new());
        for program in &object.programs {
            match Attach::parse(&program.name, &program.section) {
                None => others.push(program),
                Some(Ok(_)) => of_linux.push(program),
                Some(Err(error)) => return Err(loaded.refused(error)),
            }
        }
        if of_linux.is_empty() {
            return Ok(Split {
                loaded,
                linux: None,
            });
        }
        if others.is_empty() {
            return Err(loaded.refused(
                "all of its programs are for Linux; one at least must be for kernels or functions of the application (`SEC(\"gpu/entry/KERNEL\")` or the like)",
            ));
        }
        let elsewhere = maps_of_all(object, others.iter().copied());
        let hidden = maps_of_all(object, of_linux.iter().copied());
        let hidden = hidden.difference(&elsewhere);
        let hidden = hidden.filter_map(|map| object.maps.get(*map as usize));
        let declared = hidden.filter(|def| def.kind == MapKind::User);
        let hidden: Vec<&str> = declared.map(|def| def.name.as_str()).collect();
        let programs = of_linux.iter();
        let programs = programs.map(|p| (p.name.clone(), p.section.clone()));
        let programs = programs.collect();
        let of_linux: Vec<&str> = of_linux.iter().map(|p| p.name.as_str()).collect();
        let others = others.iter().map(|p| p.name.clone()).collect();
        let refused = |error| loaded.refused(error);
        let bytes = hide(&loaded.bytes, &of_linux, &hidden).map_err(refused)?;
        let gpu = warpbpf_object::load(&bytes).map_err(refused)?;
        Ok(Split {
            loaded: Loaded {
                name: loaded.name,
                bytes,
                object: gpu,
            },
            linux: Some(ForLinux {
                programs,
                whole: loaded.bytes,
                others,
            }),
        })
    }
}

/// Programs of Linux that are loaded, and what came of them.
#[derive(Debug)]
pub struct Beside {
    side: Side,
    types: Option<Btf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of each process: one that does not answer keeps no others waiting.
    carriers: BTreeMap<u64, Carrier>,
    /// Of each ring.
    events: BTreeMap<u32, model::Events>,
    /// Kept events of each that were told already.
    told: BTreeMap<u32, usize>,
    /// Of each map, what went wrong first.
    faults: BTreeMap<String, String>,
}

impl State {
    fn note(&mut self, map: &str, what: &str, error: Errno) {
        fault(&mut self.faults, map, what, error);
    }
}

fn fault(faults: &mut BTreeMap<String, String>, map: &str, what: &str, error: Errno) {
    let text = || format!("{map}: {what}: {error}");
    faults.entry(map.to_owned()).or_insert_with(text);
}

impl Beside {
    /// Has Linux prove the programs. They do not run before [`Beside::attach`].
    ///
    /// # Errors
    /// Why Linux does not, and what to do.
    pub fn load(
        linux: &ForLinux,
        loaded: &Loaded,
        session: &[PlannedProgram],
    ) -> Result<Beside, CliError> {
        let fails = |error: LinuxError| refused(loaded, &error);
        let host = Host::ask().map_err(|errno| {
            let (program, section) = linux.programs().next().unwrap_or_default();
            fails(LinuxError::NotPermitted {
                program: program.to_owned(),
                section: section.to_owned(),
                errno,
            })
        })?;
        let kernel = KernelTypes::read();
        let kernel = kernel.as_ref();
        let object = linux.object(kernel);
        let object = object.map_err(|error| refused(loaded, &error))?;
        let uses = uses(&loaded.object, session);
        let others = (0..).zip(&object.maps);
        let others = others.filter_map(|(index, def)| Some((index, *uses.get(def.name.as_str())?)));
        let side = Side::load(
            Arc::new(host),
            &object,
            &others.collect(),
            kernel,
            Tracefs::default(),
        );
        Ok(Beside {
            side: side.map_err(fails)?,
            types: object.btf,
            state: Mutex::default(),
        })
    }

    /// They run from now on.
    ///
    /// # Errors
    /// As [`Beside::load`].
    pub fn attach(&mut self, loaded: &Loaded) -> Result<(), CliError> {
        self.side.attach().map_err(|error| refused(loaded, &error))
    }

    /// Maps of applications begin with what Linux's hold then.
    pub fn begin(self: &Arc<Beside>, tool: &Tool) {
        let beside = Arc::clone(self);
        tool.preset_each(move |number, preset| {
            let begun = beside.side.begin(number);
            let begun = begun.unwrap_or_else(|error| {
                let what = "its first contents are not Linux's";
                beside.state().note("all maps", what, error);
                Begun::default()
            });
            for (map, why) in begun.without {
                let text = format!("{map}: an application began with it empty: {why}");
                let faults = &mut beside.state().faults;
                faults.entry(map.to_owned()).or_insert(text);
            }
            for (map, entries) in begun.contents {
                let ops: Vec<MapOp<'_>> = entries
                    .iter()
                    .map(|(key, value)| MapOp {
                        code: OpCode::Update,
                        flags: 0,
                        key,
                        value,
                    })
                    .collect();
                preset(map, &ops);
            }
        });
    }

    /// Changes of hashes must reach kernels that run.
    pub fn needs_host_ops(&self) -> bool {
        self.side.writes_to_devices()
    }

    /// The programs' variable for the application's process gets its number, if they have one. Only
    /// stores to memory.
    pub fn tell_process(&self, pid: u32) {
        let types = self.types.as_ref();
        if let Some(variable) = types.and_then(|types| self.side.variable(types, APP_PID)) {
            variable.set(pid.into());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in records, of which so many are kept, and brings values from one side to the other.
    pub fn turn(&self, processes: &[Process], kept: usize) {
        let mut state = self.state();
        // Others fill the rings meanwhile, and this comes again.
        for _ in 0..ROUNDS {
            if !self.side.draw_records() {
                break;
            }
            self.take_records(&mut state.events, kept);
        }
        let State {
            carriers, faults, ..
        } = &mut *state;
        let live = |process: &&Process| process.is_ready() && process.is_connected();
        let live: Vec<&Process> = processes.iter().filter(live).collect();
        for process in &live {
            let carrier = carriers.entry(process.number()).or_default();
            carrier.round(live.len() as u32, || Some(self.carry(process, faults)));
        }
    }

    fn take_records(&self, events: &mut BTreeMap<u32, model::Events>, kept: usize) {
        let printer = self.printer(&[], &[]);
        for (index, map) in self.side.maps() {
            let Some((records, lost)) = map.take_records() else {
                continue;
            };
            let events = events.entry(index).or_default();
            events.lost += lost;
            for record in &records {
                events.take(kept, || printer.json(map.def.value_type, record));
            }
        }
    }

    /// `EIO` if the application does not answer, which is asked no more then.
    fn carry(&self, process: &Process, faults: &mut BTreeMap<String, String>) -> Result<(), Errno> {
        for (index, side) in self.side.maps().filter(|(_, side)| side.is_shared()) {
            let Ok(map) = process.map(&side.def.name) else {
                continue;
            };
            // What came by a replacement was not asked whether it only reads.
            if side.other() == Some(Use::Read) && process.generation() > 1 {
                continue;
            }
            let mut write = |key: &[u8], value: Option<&[u8]>| match value {
                Some(value) => map.update(key, value, 0).map_err(errno),
                None => map.delete(key).map(drop).map_err(errno),
            };
            let mut device = |take: &mut dyn FnMut(&MapView<'_>)| {
                let snapshot = map.snapshot().map_err(errno)?;
                take(&snapshot.view().map_err(errno)?);
                Ok(())
            };
            match (self.side).carry(process.number(), index, &mut write, &mut device) {
                Ok(()) => {}
                Err(Errno::IO) => return Err(Errno::IO),
                Err(error) => {
                    let what = "values do not go from one side to the other";
                    fault(faults, &side.def.name, what, error);
                }
            }
        }
        Ok(())
    }

    fn printer<'p>(&'p self, kernels: &'p [String], sites: &'p [String]) -> Printer<'p> {
        Printer {
            btf: self.types.as_ref(),
            kernels,
            sites,
        }
    }

    /// Records that came since the last call, of those that are kept.
    pub fn news(&self, records: Records) -> Vec<News> {
        let State { events, told, .. } = &mut *self.state();
        let mut news = Vec::new();
        for (index, map) in self.side.maps() {
            let Some(events) = events.get_mut(&index) else {
                continue;
            };
            let told = told.entry(index).or_default();
            news.extend(fresh(&mut events.first, told, records).map(|value| News {
                process: None,
                map: Some(map.def.name.clone()),
                value,
            }));
        }
        news
    }

    /// Names of the maps that programs elsewhere have, too.
    pub fn shared(&self) -> BTreeSet<&str> {
        let shared = self.side.maps().filter(|(_, map)| map.is_shared());
        shared.map(|(_, map)| map.def.name.as_str()).collect()
    }

    /// What a person should know.
    pub fn notes(&self) -> Vec<String> {
        let state = self.state();
        let faults = state.faults.values();
        faults
            .map(|text| format!("maps shared with Linux: {text}"))
            .collect()
    }

    /// Programs, and what maps hold.
    pub fn report(&self, processes: &[Process]) -> model::Linux {
        let programs = self.side.programs().into_iter();
        let programs = programs.map(|standing| model::LinuxProgram {
            name: standing.name,
            section: standing.section,
            place: standing.place,
        });
        let ready = processes.iter().find(|process| process.is_ready());
        let names = ready.map(|p| (p.kernel_names(), p.site_names()));
        let (kernels, sites) = names.unwrap_or_default();
        let printer = self.printer(&kernels, &sites);
        let mut report = model::Linux {
            programs: programs.collect(),
            ..model::Linux::default()
        };
        let state = self.state();
        for (index, side) in self.side.maps() {
            if side.def.is_constant() {
                continue;
            }
            let map = self.map_now(index, side, processes, &printer, &state);
            match side.is_shared() {
                true => report.shared.push(map),
                false => report.maps.push(map),
            }
        }
        report
    }

    fn map_now(
        &self,
        index: u32,
        side: &SideMap,
        processes: &[Process],
        printer: &Printer<'_>,
        state: &State,
    ) -> model::Map {
        let def = &side.def;
        let mut now = model::Map {
            name: def.name.clone(),
            kind: MapType::from_number(def.map_type).map_or_else(
                || format!("type {}", def.map_type),
                |kind| kind.name().into(),
            ),
            max_entries: side.linux().spec().max_entries,
            ..model::Map::default()
        };
        if matches!(
            side.linux().spec().kind(),
            Some(MapType::Ringbuf | MapType::PerfEventArray)
        ) {
            now.events = Some(state.events.get(&index).cloned().unwrap_or_default());
            return now;
        }
        // Of other kinds nothing can be shown.
        let spec = side.linux().spec();
        if !(spec.has_indices() || spec.kind().is_some_and(MapType::is_hash)) {
            return now;
        }
        // What is only read there is as it is in Linux, or is about to be.
        let changes =
            |process: &&Process| side.other() == Some(Use::Written) || process.generation() > 1;
        let snapshots: Vec<_> = processes
            .iter()
            .filter(changes)
            .filter_map(|p| Some((p.number(), p.map(&def.name).ok()?.last_snapshot().ok()?)))
            .collect();
        let views = snapshots.iter();
        let views: Vec<_> = views
            .filter_map(|(number, snapshot)| Some((*number, snapshot.view().ok()?)))
            .collect();
        let all = match self.side.together(index, &views) {
            Ok(all) => all,
            Err(error) => {
                now.warnings
                    .push(format!("Linux does not show it: {error}"));
                return now;
            }
        };
        let mut filling = Filling::new(&mut now, def, printer);
        for (key, values) in &all {
            let zeros = values.iter().flatten().all(|byte| *byte == 0);
            match values.as_slice() {
                _ if zeros && spec.has_indices() => {}
                [value] if !spec.is_percpu() => filling.one(key, value),
                values => filling.several(key, values),
            }
        }
        filling.end();
        now
    }
}

/// What programs in kernels and in applications do with maps, by name.
fn uses<'o>(object: &'o Object, session: &[PlannedProgram]) -> BTreeMap<&'o str, Use> {
    let mut uses: BTreeMap<&str, Use> = BTreeMap::new();
    let mut note = |map: u32, what: Use| {
        if let Some(def) = object.maps.get(map as usize) {
            let known = uses.entry(&def.name).or_insert(what);
            *known = what.max(*known);
        }
    };
    for planned in session {
        let program = planned.verified.program();
        program.maps().for_each(|map| note(map, Use::Read));
        let written = planned.verified.facts().written_maps(&program.code);
        written.into_iter().for_each(|map| note(map, Use::Written));
    }
    // Nothing is proved of programs on the CPU.
    let proved = |name: &str| session.iter().any(|planned| planned.name() == name);
    for program in object.programs.iter().filter(|p| !proved(&p.name)) {
        program.maps().for_each(|map| note(map, Use::Written));
    }
    // A proof does not say which of the maps in a map it was.
    let named = object.programs.iter().flat_map(Program::maps);
    let named = named.filter_map(|map| object.maps.get(map as usize));
    for entry in named.flat_map(|def| &def.initial) {
        if let InitialValue::Map(held) = entry.value {
            note(held, Use::Written);
        }
    }
    uses
}

fn refused(loaded: &Loaded, error: &dyn Display) -> CliError {
    loaded.refused(format!(
        "{error}\nwith `--skip-linux` the others run without the programs for Linux"
    ))
}

/// `EIO` if nobody answers, and for nothing else.
fn errno(error: warpbpf_tool::Error) -> Errno {
    use warpbpf_tool::Error::{Ended, NoAnswer, NotReady, Wire};
    if let Ended { .. } | NoAnswer { .. } | NotReady { .. } | Wire(_) = &error {
        return Errno::IO;
    }
    match Errno::from_raw_os_error(error.errno().abs()) {
        Errno::IO => Errno::REMOTEIO,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_object::{InitialEntry, MapDef};

    use super::*;

    #[test]
    fn maps_in_a_map_are_used_where_that_is() {
        let map = |name: &str, initial: Vec<InitialEntry>| MapDef {
            name: name.into(),
            map_type: MapType::Array as u32,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            flags: 0,
            kind: MapKind::User,
            extra: BTreeMap::new(),
            key_type: None,
            value_type: None,
            inner: None,
            initial,
        };
        let held = InitialEntry {
            index: 0,
            value: InitialValue::Map(1),
        };
        // Names the map 0, and ends.
        let mut code = vec![0x18, 0x11];
        code.extend([0; 14]);
        code.extend([0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
        let program = Program {
            name: "p".into(),
            section: "uprobe/x:f".into(),
            functions: Vec::new(),
            code: warpbpf_ebpf::decode(&code).expect("it is code"),
            lines: Vec::new(),
            unresolved: BTreeMap::new(),
        };
        let object = Object {
            programs: vec![program],
            maps: vec![
                map("outer", vec![held]),
                map("inner", Vec::new()),
                map("alone", Vec::new()),
            ],
            ..Object::default()
        };
        let expected = [("inner", Use::Written), ("outer", Use::Written)];
        assert_eq!(uses(&object, &[]), expected.into());
    }

    #[test]
    fn silence_is_told_from_what_an_application_answers() {
        let operation = |number: Errno| warpbpf_tool::Error::Operation {
            map: "m".into(),
            what: "an update",
            errno: -number.raw_os_error(),
        };
        let silent = warpbpf_tool::Error::NoAnswer {
            pid: 1,
            seconds: 10,
        };
        assert_eq!(errno(silent), Errno::IO);
        assert_eq!(errno(warpbpf_tool::Error::Ended { pid: 1 }), Errno::IO);
        assert_eq!(errno(operation(Errno::TOOBIG)), Errno::TOOBIG);
        assert_eq!(errno(operation(Errno::IO)), Errno::REMOTEIO);
        let map = warpbpf_tool::Error::Map {
            map: "m".into(),
            message: "no".into(),
        };
        assert_eq!(errno(map), Errno::INVAL);
    }
}
