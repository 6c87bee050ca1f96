//! Everything that agents say and show while an application runs, kept until the report is made.

use std::time::Duration;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::MapType;
use warpbpf_maps::MapPlan;
use warpbpf_object::{MapKind, Object};
use warpbpf_wire::{
    Listener, MapInfo, NoteLevel, Options, PRINTK, SharedReader, Sites, ToAgent, ToTool,
    ToolConnection, WireError,
};

use crate::contents::{fill, printk};
use crate::model;
use crate::pretty::Printer;

/// Messages of `bpf_printk` that are kept.
const MAX_MESSAGES: usize = 10_000;

/// What agents are asked to do.
#[derive(Debug)]
pub struct Request<'a> {
    /// Object file and its parsed form; `None` to observe only.
    pub object: Option<(&'a [u8], &'a Object)>,
    /// Options of the session.
    pub options: Options,
    /// Events to keep per ring.
    pub events: u64,
}

/// All agents of a run.
pub struct Collector<'a> {
    listener: &'a Listener,
    request: Request<'a>,
    agents: Vec<Agent>,
}

struct Agent {
    connection: Option<ToolConnection>,
    process: model::Process,
    kernel_names: Vec<String>,
    site_names: Vec<String>,
    shared: Option<SharedReader>,
    maps: Vec<MapInfo>,
    rings: Vec<model::Events>,
    notes: Vec<(NoteLevel, String)>,
    refused: Option<String>,
    /// Kept events per ring, and messages, that were told already.
    told: (Vec<usize>, usize),
}

impl<'a> Collector<'a> {
    /// Ready to accept agents.
    pub fn new(listener: &'a Listener, request: Request<'a>) -> Collector<'a> {
        Collector {
            listener,
            request,
            agents: Vec::new(),
        }
    }

    /// Takes in what is there; waits up to `patience` if nothing is.
    ///
    /// # Errors
    /// [`WireError`] of the listening socket. A connection that breaks only ends that connection.
    pub fn poll(&mut self, patience: Duration) -> Result<(), WireError> {
        if let Some(mut connection) = self.listener.accept(patience)? {
            let (message, blob) = match self.request.object {
                Some((bytes, _)) => (
                    ToAgent::Attach {
                        options: self.request.options.clone(),
                    },
                    bytes,
                ),
                None => (ToAgent::Observe, &[][..]),
            };
            let sent = connection.send(&message, blob, None, Duration::from_secs(10));
            self.agents
                .push(Agent::new(sent.is_ok().then_some(connection)));
        }
        for agent in &mut self.agents {
            agent.take_messages();
            agent.take_events(&self.request);
        }
        Ok(())
    }

    /// An agent that is still connected.
    pub fn connected(&self) -> bool {
        self.agents.iter().any(|a| a.connection.is_some())
    }

    /// Some agent ever came.
    pub fn any(&self) -> bool {
        !self.agents.is_empty()
    }

    /// Processes in which the agent refused to do anything, and why. Beside another agent in the same process that is no
    /// news: the other one serves it.
    pub fn refusals(&self) -> Vec<(u32, &str)> {
        let served = |pid: u32| {
            self.agents
                .iter()
                .any(|a| a.process.pid == pid && a.refused.is_none())
        };
        let refusing = self
            .agents
            .iter()
            .filter_map(|a| Some((a.process.pid, a.refused.as_deref()?)));
        refusing.filter(|(pid, _)| !served(*pid)).collect()
    }

    /// Warnings and errors of all agents.
    pub fn notes(&self) -> Vec<String> {
        let told = |level: &NoteLevel| matches!(level, NoteLevel::Warning | NoteLevel::Error);
        self.agents
            .iter()
            .flat_map(|a| &a.notes)
            .filter(|(level, _)| told(level))
            .map(|(_, text)| text.clone())
            .collect()
    }

    /// Events and messages that came since the last call, a line each, of those that are kept.
    pub fn news(&mut self) -> Vec<String> {
        self.agents.iter_mut().flat_map(Agent::news).collect()
    }

    /// The state of each process now.
    pub fn processes(&self) -> Vec<model::Process> {
        self.agents
            .iter()
            .map(|a| a.process_now(&self.request))
            .collect()
    }
}

impl Agent {
    fn new(connection: Option<ToolConnection>) -> Agent {
        Agent {
            connection,
            process: model::Process::default(),
            kernel_names: Vec::new(),
            site_names: Vec::new(),
            shared: None,
            maps: Vec::new(),
            rings: Vec::new(),
            notes: Vec::new(),
            refused: None,
            told: (Vec::new(), 0),
        }
    }

    fn news(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let (events, messages) = &mut self.told;
        events.resize(self.rings.len(), 0);
        for ((ring, map), told) in self.rings.iter().zip(&self.maps).zip(events) {
            let new = ring.first.iter().skip(*told);
            lines.extend(new.map(|event| format!("{}: {}", map.name, crate::render::line(event))));
            *told = ring.first.len();
        }
        lines.extend(self.process.messages.iter().skip(*messages).cloned());
        *messages = self.process.messages.len();
        lines
    }

    fn take_messages(&mut self) {
        while let Some(connection) = &mut self.connection {
            match connection.try_recv() {
                Ok(Some(frame)) => self.take_message(frame.message, frame.fd),
                Ok(None) => return,
                // The process ended, with or without a good-bye: what it wrote is in the shared memory.
                Err(_) => self.connection = None,
            }
        }
    }

    fn take_message(&mut self, message: ToTool, fd: Option<std::os::fd::OwnedFd>) {
        match message {
            ToTool::Hello(hello) => {
                self.process.pid = hello.pid;
                self.process.exe = hello.exe;
                if let Some(device) = hello.device {
                    let (major, minor) = device.capability;
                    self.process.soft = device.soft;
                    self.process.device = format!(
                        "{}, sm_{major}{minor}, {} SMs, driver {}.{}",
                        device.name,
                        device.sms,
                        device.driver_version / 1000,
                        device.driver_version % 1000 / 10
                    );
                }
            }
            ToTool::Refused { message } => self.refused = Some(message),
            ToTool::Ready(ready) => {
                self.rings = ready
                    .maps
                    .iter()
                    .map(|_| model::Events::default())
                    .collect();
                self.maps = ready.maps;
                match fd.map(SharedReader::open) {
                    Some(Ok(reader)) => self.shared = Some(reader),
                    Some(Err(error)) => self.notes.push((NoteLevel::Error, error.to_string())),
                    None => self
                        .notes
                        .push((NoteLevel::Error, "the agent sent no shared memory".into())),
                }
            }
            ToTool::Kernel(kernel) => {
                if let Some(id) = kernel.kernel_id {
                    let id = id as usize;
                    if self.kernel_names.len() <= id {
                        self.kernel_names.resize(id + 1, String::new());
                    }
                    self.kernel_names[id].clone_from(&kernel.demangled);
                }
                self.process.kernels.push(model::Kernel {
                    id: kernel.kernel_id,
                    name: kernel.demangled,
                    mangled: kernel.mangled,
                    source: kernel.source,
                    way: kernel.way,
                    instrumented: kernel.instrumented,
                    registers: kernel
                        .registers_before
                        .map(|before| (before, kernel.registers_after.unwrap_or(before))),
                    local_bytes: kernel.local_bytes,
                    shared_bytes: kernel.shared_bytes,
                    occupancy: kernel.occupancy,
                    compiler_warnings: kernel.compiler_warnings,
                    sites: kernel.sites,
                    left_out: kernel.left_out,
                    launches: 0,
                    missed: 0,
                });
            }
            ToTool::Sites(sites) => place(&mut self.site_names, sites),
            ToTool::Note { level, text } => self.notes.push((level, text)),
            ToTool::Counts(counts) => {
                for count in counts.kernels {
                    for kernel in self
                        .process
                        .kernels
                        .iter_mut()
                        .filter(|k| k.mangled == count.mangled && k.way != "not matched")
                    {
                        kernel.launches = count.launches;
                        kernel.missed = count.missed;
                    }
                }
            }
            ToTool::Snapshotted { .. } => {}
            ToTool::Bye { .. } => self.process.complete = true,
        }
    }

    fn take_events(&mut self, request: &Request<'_>) {
        let (Some(shared), Some((_, object))) = (&mut self.shared, request.object) else {
            return;
        };
        let printer = Printer {
            btf: object.btf.as_ref(),
            kernels: &self.kernel_names,
            sites: &self.site_names,
        };
        let (rings, messages) = (&mut self.rings, &mut self.process.messages);
        let taken = shared.events(|event| {
            if event.map == PRINTK {
                if messages.len() < MAX_MESSAGES {
                    messages.extend(printk(object, event.payload));
                }
            } else if let Some(ring) = rings.get_mut(event.map as usize) {
                ring.received += 1;
                if ring.first.len() < request.events as usize {
                    let ty = object
                        .maps
                        .get(event.map as usize)
                        .and_then(|m| m.value_type);
                    ring.first.push(printer.json(ty, event.payload));
                }
            }
        });
        if let Err(error) = taken {
            self.notes.push((NoteLevel::Error, error.to_string()));
            self.shared = None;
        }
    }

    fn process_now(&self, request: &Request<'_>) -> model::Process {
        let mut process = self.process.clone();
        let (Some(shared), Some((_, object))) = (&self.shared, request.object) else {
            return process;
        };
        let printer = Printer {
            btf: object.btf.as_ref(),
            kernels: &self.kernel_names,
            sites: &self.site_names,
        };
        let mut bytes = Vec::new();
        for (index, info) in self.maps.iter().enumerate() {
            let Some(def) = object.maps.get(index) else {
                continue;
            };
            let mut map = model::Map {
                name: info.name.clone(),
                kind: MapType::from_number(info.map_type)
                    .map_or("unknown", MapType::name)
                    .into(),
                max_entries: info.max_entries,
                ..model::Map::default()
            };
            if info.bytes == 0 {
                let mut events = self.rings[index].clone();
                events.lost = lost(shared, index as u32);
                map.events = Some(events);
            } else if matches!(
                def.kind,
                MapKind::Data {
                    read_only: true,
                    ..
                }
            ) {
                continue;
            } else if let Ok(Some(_)) = shared.snapshot(index, &mut bytes) {
                fill(&mut map, &plan_of(info), def, &bytes, &printer);
            }
            process.maps.push(map);
        }
        process.messages_lost = lost(shared, PRINTK);
        process.clock_error_ns = shared.clock_error();
        process
    }
}

/// Puts names to their numbers.
fn place(names: &mut Vec<String>, sites: Sites) {
    // Numbers come one after the other: a message with a hole in front of it is not from our agent.
    let first = sites.first as usize;
    if first <= names.len().max(1) {
        names.resize(first, String::new());
        names.extend(sites.names);
    }
}

/// Records of a ring that did not reach us, wherever they were lost.
fn lost(shared: &SharedReader, map: u32) -> u64 {
    let device = shared.device_losses(map);
    shared.lost(map) + device.full + device.busy
}

/// The plan that a view needs, from what the agent sent.
fn plan_of(info: &MapInfo) -> MapPlan {
    MapPlan {
        name: info.name.clone(),
        map_type: MapType::from_number(info.map_type).unwrap_or(MapType::Array),
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        read_only: false,
        layout: MapLayout::from(info.layout),
        sum_fields: info.summed.iter().map(|f| (*f).into()).collect(),
        not_summed: None,
        image: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sites_come_in_parts() {
        let mut names = Vec::new();
        let part = |first, names: &[&str]| Sites {
            first,
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        };
        place(&mut names, part(1, &["a", "b"]));
        place(&mut names, part(3, &["c"]));
        place(&mut names, part(u32::MAX, &["far"]));
        assert_eq!(names, ["", "a", "b", "c"]);
    }
}
