//! What an agent said, kept for whoever asks.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use warpbpf_wire::{
    Changed, ContextInfo, Device, HostStacks, Kernel, KernelCount, MapInfo, MoreMaps, NoteLevel,
    Operations, PRINTK, Program, Ranges, SharedError, SharedReader, SharedWriter, Sites, ToTool,
    ToolConnection, WireError,
};

use crate::events::{Batch, Losses};
use crate::functions::OfProcess;
use crate::guest::lost_host;
use crate::number;
use crate::parties::Parties;
use crate::process::Note;

/// Bytes of events that are kept for handles that have not asked for them.
const MOST_PARKED: usize = 64 << 20;

/// One agent.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) connection: Option<ToolConnection>,
    /// Its number as this tool sees it; 0 before it has spoken.
    pub(crate) pid: u32,
    /// Its number as it sees itself, where that is another one.
    pub(crate) inner_pid: Option<u32>,
    /// The process at the other end of the connection.
    peer: Option<u32>,
    pub(crate) exe: String,
    pub(crate) argv: Vec<String>,
    pub(crate) device: Option<Device>,
    pub(crate) kernels: Vec<Kernel>,
    /// Launches and misses by mangled name.
    pub(crate) counts: HashMap<String, KernelCount>,
    pub(crate) programs: Vec<Program>,
    /// What there is to know of several tools in it.
    pub(crate) parties: Parties,
    /// How many sets of programs there were; 0 before the first is known.
    pub(crate) generation: u64,
    /// The object in its kernels, with what became of it.
    pub(crate) object: Option<crate::Object>,
    pub(crate) maps: Vec<MapInfo>,
    pub(crate) kernel_names: Vec<String>,
    pub(crate) site_names: Vec<String>,
    pub(crate) notes: Vec<Note>,
    /// Operations that nobody has taken yet.
    pub(crate) operations: Operations,
    /// Ranges that nobody has taken yet.
    pub(crate) ranges: Ranges,
    /// All stacks.
    pub(crate) stacks: HostStacks,
    pub(crate) refused: Option<String>,
    /// The agent came late, and sees all launches by now.
    pub(crate) attached: bool,
    pub(crate) complete: bool,
    /// Why, in the agent's words.
    pub(crate) farewell: String,
    /// The process of the tool whose guest this one is in it.
    pub(crate) host: Option<u32>,
    /// The contexts that have maps, by number.
    pub(crate) contexts: Vec<InContext>,
    pub(crate) next_token: u64,
    /// What makes functions for its kernels without PTX.
    pub(crate) functions: OfProcess,
    /// Answers that somebody waits for.
    pub(crate) answers: HashMap<u64, Answer>,
    /// Events of rings that nobody asked for yet, by map.
    parked: HashMap<u32, VecDeque<(u32, Vec<u8>)>>,
    parked_bytes: usize,
    /// A damaged chunk of events was met, and told.
    damaged: bool,
    /// Events that found no room among the parked ones, by map.
    pub(crate) dropped: HashMap<u32, u64>,
    /// Memory of the last copy of a map that was read whole: whoever reads a large one again and again need not ask the system for it each time.
    pub(crate) spare: Vec<Vec<u8>>,
}

/// What there is of a context.
#[derive(Debug)]
pub(crate) struct InContext {
    pub(crate) info: ContextInfo,
    pub(crate) shared: SharedReader,
    /// The shared memory once more, to be given to others: that of the first maps, then of those that came. Empty once the application has ended.
    pub(crate) memory: Vec<OwnedFd>,
    /// Parallel to it: the numbers of their first maps.
    pub(crate) firsts: Vec<u32>,
    /// The ring is damaged, or another tool reads it.
    no_events: bool,
}

/// An answer of the agent.
#[derive(Debug)]
pub(crate) enum Answer {
    Waiting,
    Snapshotted,
    MapOps {
        error: Option<String>,
        blob: Vec<u8>,
    },
    Changed(Box<Changed>),
}

impl InContext {
    /// What there is of all maps, in memory that is made now: for who asks when the application has ended.
    pub(crate) fn copied(&self, maps: &[MapInfo]) -> Result<OwnedFd, SharedError> {
        let there = maps.iter().take(self.shared.maps());
        let sizes: Vec<u64> = there.map(|map| map.bytes).collect();
        let (mut memory, file) = SharedWriter::create(&sizes, 0)?;
        let mut bytes = Vec::new();
        for map in (0..sizes.len()).filter(|map| sizes[*map] > 0) {
            if self.shared.snapshot(map, &mut bytes)?.is_some() {
                memory.publish(map, &bytes)?;
            }
        }
        Ok(file)
    }
}

impl State {
    pub(crate) fn new(connection: Option<ToolConnection>, object: Option<crate::Object>) -> State {
        let peer = connection.as_ref().map(warpbpf_wire::peer);
        State {
            connection,
            peer: peer.and_then(|peer| peer.ok()?.pid),
            object,
            ..State::default()
        }
    }

    /// Takes in every message that is there, and sends what could not be sent before.
    pub(crate) fn pump(&mut self) {
        while let Some(connection) = &mut self.connection {
            // Who hears nothing any more may have said much before.
            let heard = connection.flush().is_ok();
            match connection.try_recv() {
                Ok(Some(frame)) => self.take(frame.message, frame.blob, frame.fd),
                Ok(None) if heard => return,
                // The process ended, with or without a good-bye: what it wrote is in the shared memory.
                Ok(None) | Err(_) => {
                    self.connection = None;
                    self.close_memory();
                    if let Some(host) = self.host.filter(|_| !self.complete) {
                        self.note(NoteLevel::Warning, lost_host(host, self.pid));
                    }
                }
            }
        }
    }

    /// Nobody writes there any more, and what is there is mapped: applications that have ended need no descriptors.
    fn close_memory(&mut self) {
        for context in &mut self.contexts {
            context.memory = Vec::new();
            context.firsts = Vec::new();
        }
    }

    /// It has said who it is.
    pub(crate) fn has_spoken(&self) -> bool {
        self.pid != 0
    }

    /// Sends a message; false if nobody is there any more.
    pub(crate) fn send(
        &mut self,
        message: &warpbpf_wire::ToAgent,
        blob: &[u8],
    ) -> Result<bool, WireError> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        match connection
            .queue(message, blob, None)
            .and_then(|()| connection.flush())
        {
            Ok(_) => Ok(true),
            Err(WireError::Closed) => {
                // Its last words are there still.
                self.pump();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn take(&mut self, message: ToTool, blob: Vec<u8>, fd: Option<OwnedFd>) {
        match message {
            ToTool::Hello(mut hello) => {
                let told = hello.pid;
                self.inner_pid = match self.host {
                    // The tool that speaks of it says its own number of it, which is ours, too.
                    Some(_) => number::inside(told),
                    None => {
                        hello.pid = number::outside(self.peer, told);
                        (hello.pid != told).then_some(told)
                    }
                };
                self.refused = hello.refusal();
                if self.refused.is_some() {
                    // Its next message may be none that is known here.
                    self.connection = None;
                }
                self.pid = hello.pid;
                self.exe = hello.exe;
                self.argv = hello.argv;
                self.device = hello.device;
            }
            ToTool::Refused { message } => self.refused = Some(message),
            ToTool::Attached => self.attached = true,
            ToTool::Ready(ready) => {
                self.maps = ready.maps;
                self.programs = ready.programs;
                self.parties.areas = ready.areas;
                self.generation = self.generation.max(1);
                self.know(self.generation);
                self.open(ready.context, fd);
            }
            ToTool::Context(context) => self.open(context, fd),
            ToTool::Maps(maps) => self.open_more(maps, fd),
            ToTool::Kernel(kernel) if kernel.guest != 0 => self.parties.left_out(kernel),
            ToTool::Kernel(kernel) => {
                self.parties.changes += 1;
                if let Some(id) = kernel.kernel_id {
                    let id = id as usize;
                    if self.kernel_names.len() <= id {
                        self.kernel_names.resize(id + 1, String::new());
                    }
                    self.kernel_names[id].clone_from(&kernel.demangled);
                }
                // With other programs in it, it is still the same kernel.
                let same = |before: &&mut Kernel| {
                    before.generation < kernel.generation
                        && (&before.mangled, &before.source) == (&kernel.mangled, &kernel.source)
                };
                match self.kernels.iter_mut().find(same) {
                    Some(before) => *before = kernel,
                    None => self.kernels.push(kernel),
                }
            }
            ToTool::Sites(sites) => place(&mut self.site_names, sites),
            ToTool::Note {
                level,
                text,
                guests,
            } => match guests.is_empty() {
                true => self.note(level, text),
                false => self.parties.notes.push((guests, Note { level, text })),
            },
            ToTool::Counts(counts) => {
                let kernels = counts.kernels.into_iter();
                self.counts.extend(kernels.map(|c| (c.mangled.clone(), c)));
                self.parties.count(counts.parties);
            }
            ToTool::Operations(told) => {
                self.operations.operations.extend(told.operations);
                for part in told.graphs {
                    let lists = &mut self.operations.graphs;
                    match lists.last_mut().filter(|last| last.number == part.number) {
                        Some(begun) => begun.nodes.extend(part.nodes),
                        None => lists.push(part),
                    }
                }
                (self.operations.error, self.operations.untimed) = (told.error, told.untimed);
                self.operations.unlisted = told.unlisted;
            }
            ToTool::Stacks(told) => {
                self.stacks.stacks.extend(told.stacks);
                if !told.modules.is_empty() {
                    self.stacks.modules = told.modules;
                }
                self.stacks.crowded = told.crowded;
            }
            ToTool::Ranges(told) => {
                self.ranges.ranges.extend(told.ranges);
                if !told.threads.is_empty() {
                    self.ranges.threads = told.threads;
                }
                let streams = &mut self.ranges.streams;
                streams.retain(|(old, _)| told.streams.iter().all(|(new, _)| new != old));
                streams.extend(told.streams);
                self.ranges.lost = told.lost;
            }
            ToTool::Snapshotted { token } => self.answer(token, Answer::Snapshotted),
            ToTool::MapOps { token, error } => self.answer(token, Answer::MapOps { error, blob }),
            ToTool::Changed(changed) => {
                // A gate's answer may come behind that to a later exchange.
                if changed.refused.is_none() && changed.generation >= self.generation {
                    self.generation = changed.generation;
                    self.programs.clone_from(&changed.programs);
                    self.know(changed.generation);
                    self.maps.clone_from(&changed.maps);
                }
                self.functions.changed(&changed);
                self.answer(changed.token, Answer::Changed(Box::new(changed)));
            }
            ToTool::Bye { reason } => (self.complete, self.farewell) = (true, reason),
        }
    }

    pub(crate) fn note(&mut self, level: NoteLevel, text: String) {
        self.notes.push(Note { level, text });
    }

    /// Answers that nobody waits for any more are dropped.
    pub(crate) fn answer(&mut self, token: u64, answer: Answer) {
        if let Some(waiting) = self.answers.get_mut(&token) {
            *waiting = answer;
        }
    }

    fn open(&mut self, info: ContextInfo, fd: Option<OwnedFd>) {
        let Some(memory) = fd else {
            self.note(NoteLevel::Error, "the agent sent no shared memory".into());
            return;
        };
        match SharedReader::open(&memory) {
            Ok(shared) => self.contexts.push(InContext {
                info,
                shared,
                memory: vec![memory],
                firsts: vec![0],
                // The first tool reads them.
                no_events: self.host.is_some(),
            }),
            Err(error) => self.note(NoteLevel::Error, error.to_string()),
        }
    }

    /// Takes in the memory of maps that came to a context.
    fn open_more(&mut self, maps: MoreMaps, fd: Option<OwnedFd>) {
        let context = self
            .contexts
            .iter_mut()
            .find(|c| c.info.number == maps.context);
        let (Some(context), Some(memory)) = (context, fd) else {
            self.note(NoteLevel::Error, "the agent sent no shared memory".into());
            return;
        };
        match SharedReader::open(&memory) {
            Ok(shared) if maps.first as usize == context.shared.maps() => {
                context.shared.append(shared);
                context.info.device_bytes = maps.device_bytes;
                context.memory.push(memory);
                context.firsts.push(maps.first);
            }
            Ok(_) => {
                let text = format!(
                    "the agent sent memory of maps from number {} on, and the context has {}",
                    maps.first,
                    context.shared.maps()
                );
                self.note(NoteLevel::Error, text);
            }
            Err(error) => self.note(NoteLevel::Error, error.to_string()),
        }
    }

    /// The maps exist.
    pub(crate) fn is_ready(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Events that are there, of one map or (with `None`) of all rings and messages, at most as many as a batch holds.
    pub(crate) fn events(&mut self, wanted: Option<u32>, batch: &mut Batch) {
        batch.clear();
        let maps: Vec<u32> = match wanted {
            Some(map) => vec![map],
            None => {
                let mut maps: Vec<u32> = self.parked.keys().copied().collect();
                maps.sort_unstable();
                maps
            }
        };
        for map in maps {
            while let Some(queue) = self.parked.get_mut(&map)
                && !batch.is_full()
                && let Some((shard, payload)) = queue.pop_front()
            {
                self.parked_bytes -= payload.len();
                batch.push(map, shard, &payload);
            }
        }
        let (parked, parked_bytes, dropped) =
            (&mut self.parked, &mut self.parked_bytes, &mut self.dropped);
        let mut errors = Vec::new();
        for context in self.contexts.iter_mut().filter(|c| !c.no_events) {
            let first = context.info.number * context.info.cpus;
            while !batch.is_full() {
                let taken = context.shared.events_while(|event| {
                    let cpu = first + event.shard;
                    if wanted.is_none_or(|map| map == event.map) {
                        batch.push(event.map, cpu, event.payload);
                    } else if *parked_bytes + event.payload.len() <= MOST_PARKED {
                        *parked_bytes += event.payload.len();
                        let queue = parked.entry(event.map).or_default();
                        queue.push_back((cpu, event.payload.to_vec()));
                    } else {
                        *dropped.entry(event.map).or_default() += 1;
                    }
                    !batch.is_full()
                });
                match taken {
                    // What lies behind a damaged chunk is still good. Who damages one may damage many: the first is told.
                    Err(error @ SharedError::Record { .. }) => {
                        if !std::mem::replace(&mut self.damaged, true) {
                            errors.push(error);
                        }
                    }
                    Err(error) => {
                        errors.push(error);
                        context.no_events = true;
                        break;
                    }
                    Ok(_) => break,
                }
            }
        }
        for error in errors {
            self.note(NoteLevel::Error, error.to_string());
        }
    }

    /// Records of a ring that did not reach us.
    pub(crate) fn losses(&self, map: u32) -> Losses {
        if self.host.is_some() {
            // It has no rings, and those that there are, are not its own.
            return Losses::default();
        }
        let mut losses = Losses {
            unread: self.dropped.get(&map).copied().unwrap_or(0),
            ..Losses::default()
        };
        for context in &self.contexts {
            let device = context.shared.device_losses(map);
            losses.full += device.full;
            losses.busy += device.busy;
            losses.unread += context.shared.lost(map);
        }
        losses
    }

    pub(crate) fn messages_lost(&self) -> u64 {
        self.losses(PRINTK).sum()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warpbpf_wire::{AgentConnection, GraphNode, GraphNodes, Hello, PROTOCOL, ToAgent};

    use super::*;

    /// Appends a chunk of records of 8 bytes that tell their numbers; a header of `None` is none that a device writes.
    fn chunk(writer: &mut SharedWriter, map: u32, records: &[Option<u64>]) {
        let words: Vec<u64> = records
            .iter()
            .flat_map(|record| [record.map_or(1 << 31, |_| 8), record.unwrap_or_default()])
            .collect();
        let mut chunks = writer.chunks();
        let [span, over] = chunks.reserve(map, 0, words.len() as u64 * 8).unwrap();
        assert_eq!(over.bytes, 0);
        // SAFETY: the room is reserved, aligned and large enough.
        unsafe { std::ptr::copy(words.as_ptr(), span.start.cast(), words.len()) };
        chunks.publish();
    }

    /// What a tool has of an application that said all it had to say, and is gone before anybody listened.
    fn gone() -> ToolConnection {
        let (tool, agent) = ToolConnection::pair().unwrap();
        let mut agent = AgentConnection::trusted(agent).unwrap();
        let hello = Hello {
            protocol: PROTOCOL,
            pid: 7,
            exe: "/bin/gone".into(),
            argv: Vec::new(),
            device: None,
        };
        let reason = "exit".into();
        for message in [ToTool::Hello(hello), ToTool::Bye { reason }] {
            agent
                .send(&message, &[], None, Duration::from_secs(60))
                .unwrap();
        }
        tool
    }

    #[test]
    fn last_words_are_heard_by_who_speaks_first() {
        let heard = |state: &State| (state.pid, state.complete, state.connection.is_some());
        let mut state = State::new(Some(gone()), None);
        assert!(!state.send(&ToAgent::Detach, &[]).unwrap());
        assert_eq!(heard(&state), (7, true, false));
        // What could not be sent before is still to be sent.
        let mut state = State::new(Some(gone()), None);
        let connection = state.connection.as_mut().unwrap();
        connection.queue(&ToAgent::Detach, &[], None).unwrap();
        state.pump();
        assert_eq!(heard(&state), (7, true, false));
        let process = crate::Process::new(0, Some(gone()), None);
        process.detach().unwrap_err();
        assert_eq!(heard(&process.lock()), (7, true, false));
    }

    #[test]
    fn damaged_chunks_are_told_once_and_what_is_good_comes() {
        let (mut writer, fd) = SharedWriter::create(&[0, 0], 4096).unwrap();
        chunk(&mut writer, 0, &[Some(1), Some(2), None, Some(3)]);
        chunk(&mut writer, 1, &[Some(4)]);
        chunk(&mut writer, 0, &[None]);
        chunk(&mut writer, 0, &[Some(5)]);
        let mut state = State::default();
        let context = ContextInfo {
            number: 0,
            device: 0,
            name: "a device".into(),
            sms: 1,
            cpus: 1,
            device_bytes: 0,
        };
        state.open(context, Some(fd));
        let mut batch = Batch::default();
        let mut numbers = |state: &mut State, wanted| {
            state.events(wanted, &mut batch);
            let number = |payload: &[u8]| u64::from(payload[0]);
            batch
                .iter()
                .map(|e| number(e.payload))
                .collect::<Vec<u64>>()
        };
        assert_eq!(numbers(&mut state, Some(0)), [1, 2, 5]);
        let [note] = &state.notes[..] else {
            panic!("{:?}", state.notes);
        };
        assert_eq!(
            note.text,
            "the record header 0x80000000 at 288 of the event ring is damaged (map 0, ring 0); 32 bytes were skipped"
        );
        chunk(&mut writer, 1, &[Some(6)]);
        assert_eq!(numbers(&mut state, None), [4, 6]);
    }

    #[test]
    fn lists_of_graphs_that_come_in_parts_are_whole() {
        let mut state = State::default();
        let part = |number: u32, nodes: std::ops::Range<u32>| GraphNodes {
            number,
            graph: number + 10,
            nodes: nodes
                .map(|node| GraphNode {
                    node,
                    ..GraphNode::default()
                })
                .collect(),
        };
        for graphs in [
            vec![part(1, 0..2), part(2, 0..3)],
            vec![part(2, 3..5)],
            vec![],
            vec![part(2, 5..6), part(3, 0..0), part(4, 0..1)],
        ] {
            let told = Operations {
                graphs,
                ..Operations::default()
            };
            state.take(ToTool::Operations(told), Vec::new(), None);
        }
        let whole = [part(1, 0..2), part(2, 0..6), part(3, 0..0), part(4, 0..1)];
        assert_eq!(state.operations.graphs, whole);
    }

    #[test]
    fn memory_of_maps_that_come_is_that_of_their_context() {
        let mut state = State::default();
        let (mut writer, fd) = SharedWriter::create(&[8], 4096).unwrap();
        let info = ContextInfo {
            number: 3,
            ..ContextInfo::default()
        };
        state.open(info, Some(fd));
        let more = |state: &mut State, context, first| {
            let (more, fd) = SharedWriter::create(&[16], 0).unwrap();
            let maps = MoreMaps {
                context,
                first,
                device_bytes: 88,
            };
            state.take(ToTool::Maps(maps), Vec::new(), Some(fd));
            more
        };
        writer.append(more(&mut state, 3, 1));
        writer.publish(1, &[9; 16]).unwrap();
        let mut bytes = Vec::new();
        let shared = &state.contexts[0].shared;
        assert_eq!(shared.snapshot(1, &mut bytes).unwrap(), Some(1));
        assert_eq!((bytes, state.contexts[0].memory.len()), (vec![9; 16], 2));
        assert_eq!(state.contexts[0].info.device_bytes, 88);
        assert!(state.notes.is_empty());
        // Of a context that nobody knows, and with a hole in front.
        more(&mut state, 4, 2);
        more(&mut state, 3, 3);
        let notes: Vec<&str> = state.notes.iter().map(|note| note.text.as_str()).collect();
        assert_eq!(
            notes,
            [
                "the agent sent no shared memory",
                "the agent sent memory of maps from number 3 on, and the context has 2"
            ]
        );
        assert_eq!(state.contexts[0].shared.maps(), 2);
    }

    #[test]
    fn an_application_that_has_ended_has_no_descriptors_and_its_maps_are_read() {
        let mut state = State::default();
        let (mut writer, fd) = SharedWriter::create(&[8, 0, 16], 4096).unwrap();
        state.open(ContextInfo::default(), Some(fd));
        writer.publish(0, &[7; 8]).unwrap();
        writer.publish(2, &[9; 16]).unwrap();
        state.close_memory();
        let context = &state.contexts[0];
        assert!(context.memory.is_empty() && context.firsts.is_empty());
        let map = |bytes| MapInfo {
            name: String::new(),
            map_type: 2,
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
            bytes,
            guest: 0,
        };
        let copy = context.copied(&[map(8), map(0), map(16)]).unwrap();
        let copy = SharedReader::open(&copy).unwrap();
        let mut bytes = Vec::new();
        assert!(copy.snapshot(0, &mut bytes).unwrap().is_some());
        assert_eq!(bytes, [7; 8]);
        assert!(copy.snapshot(2, &mut bytes).unwrap().is_some());
        assert_eq!((bytes, copy.maps()), (vec![9; 16], 3));
    }

    #[test]
    fn an_agent_of_another_version_is_refused() {
        let mut state = State::default();
        let hello = warpbpf_wire::Hello {
            protocol: 1,
            pid: 5,
            exe: String::new(),
            argv: Vec::new(),
            device: None,
        };
        state.take(ToTool::Hello(hello), Vec::new(), None);
        let refused = state.refused.unwrap_or_default();
        assert!(refused.contains("is of another warpbpf"), "{refused}");
        assert!(state.connection.is_none());
    }

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
