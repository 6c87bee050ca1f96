//! What an agent said, kept for whoever asks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use warpbpf_wire::{
    Changed, ContextInfo, Device, Frame, HostStacks, Kernel, KernelCount, LaunchReader, MapInfo,
    Missing, MoreMaps, NoteLevel, Operations, PRINTK, Program, Ranges, SharedError, SharedReader,
    Sites, ToTool, ToolConnection, WireError,
};

use crate::heard::agreed::{MOST_MAPS, check_maps, check_shared, most_shared};
use crate::heard::bounds;
use crate::heard::client_views::ClientViews;
use crate::heard::events::{Batch, Losses};
use crate::heard::functions::OfProcess;
use crate::heard::kept::{Kept, MOST_CONTEXTS, MOST_NOTES};
use crate::heard::launches::{Counted, told_of, untold};
use crate::heard::note::Note;
use crate::heard::seen::InContext;
use crate::heard::silence::Silence;
use crate::system::number;

/// Bytes of events that are kept for handles that have not asked for them, and what each takes
/// besides.
const MOST_PARKED: usize = 64 << 20;
const PARKED: usize = 64;
/// How long one agent is listened to at once: others have something to say too, and nobody waits
/// for one that never ends.
const TURN: Duration = Duration::from_millis(20);

/// One agent.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) connection: Option<ToolConnection>,
    /// Its number as this tool sees it; 0 before it has spoken.
    pub(crate) pid: u32,
    /// Its number as it sees itself, where that is another one.
    pub(crate) inner_pid: Option<u32>,
    /// The process at the other end of the connection.
    pub(crate) peer: Option<u32>,
    pub(crate) exe: String,
    pub(crate) argv: Vec<String>,
    pub(crate) device: Option<Device>,
    pub(crate) kernels: Vec<Kernel>,
    /// Launches and fallbacks by mangled name.
    pub(crate) counts: HashMap<String, KernelCount>,
    /// Where they are counted.
    pub(crate) launches: Counted,
    pub(crate) programs: Vec<Program>,
    /// What there is to know of several tools in it.
    pub(crate) client_views: ClientViews,
    /// How many sets of programs there were; 0 before the first is known.
    pub(crate) generation: u64,
    /// The object in its kernels, with what became of it.
    pub(crate) object: Option<crate::object::Object>,
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
    /// Something of the agent failed, so that the data is not complete whatever it says at the end.
    pub(crate) failed: bool,
    /// Why, in the agent's words.
    pub(crate) farewell: String,
    /// Whether it is at its last words.
    pub(crate) silence: Silence,
    /// The process of the tool whose client this one is in it.
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
    /// How much it has said.
    pub(crate) kept: Kept,
    /// Bytes of its ring, if some were requested.
    pub(crate) ring_bytes: Option<u64>,
    /// No kernel that is known is of an earlier generation.
    least_generation: Option<u64>,
    /// Events that found no room among the parked ones, by map.
    pub(crate) dropped: HashMap<u32, u64>,
    /// Memory of the last copy of a map that was read whole: whoever reads a large one again and
    /// again need not ask the system for it each time.
    pub(crate) spare: Vec<Vec<u8>>,
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

impl State {
    pub(crate) fn new(
        connection: Option<ToolConnection>,
        object: Option<crate::object::Object>,
    ) -> State {
        State {
            peer: connection.as_ref().and_then(ToolConnection::process),
            connection,
            object,
            ..State::default()
        }
    }

    /// Takes in the messages that are there, for a moment, and sends what could not be sent before.
    pub(crate) fn pump(&mut self) {
        let end = Instant::now() + TURN;
        while let Some(connection) = &mut self.connection {
            // Who hears nothing any more may have said much before.
            let heard = connection.flush().is_ok();
            match connection.try_recv() {
                Ok(Some(frame)) => {
                    self.hear(frame);
                    if Instant::now() >= end {
                        return;
                    }
                }
                Ok(None) if heard => return,
                Err(error @ (WireError::Frame { .. } | WireError::TooLong { .. })) => {
                    self.stop_listening(&error.to_string());
                }
                // The process ended, with or without a good-bye: what it wrote is in the shared
                // memory.
                Ok(None) | Err(_) => {
                    self.connection = None;
                    self.end_launches();
                    self.close_memory();
                    if let Some(host) = self.host.filter(|_| !self.complete) {
                        self.note(NoteLevel::Warning, lost_host(host, self.pid));
                    }
                }
            }
        }
    }

    /// Its launches are counted there.
    pub(crate) fn open_launches(&mut self, fd: Option<OwnedFd>) {
        let opened = fd.map(LaunchReader::open);
        match (&self.launches, opened) {
            (Counted::Nowhere, Some(Ok(reader))) => self.launches = Counted::Shared(reader),
            (Counted::Nowhere, Some(Err(error))) => self.stop_listening(&error.to_string()),
            (Counted::Nowhere, None) => {
                self.note(NoteLevel::Error, "the agent sent no shared memory".into());
            }
            (Counted::Shared(_) | Counted::Kept(_), _) => {
                self.stop_listening("it counts its launches in two places");
            }
        }
    }

    /// Brings what is known of launches up to date.
    pub(crate) fn count_launches(&mut self) -> Option<Missing> {
        let (missing, kept) = self.launches.look(&mut self.counts, &mut self.kept);
        if let Err(why) = kept {
            self.stop_listening(&why);
        }
        missing
    }

    /// Nobody looks at the memory any more.
    fn stop_counting(&mut self) {
        if let Some(missing) = self.count_launches() {
            self.launches = Counted::Kept(missing);
        }
    }

    /// It has ended: what is missing is known for good.
    fn end_launches(&mut self) {
        let Counted::Shared(_) = &self.launches else {
            return;
        };
        let Some(missing) = self.count_launches() else {
            return;
        };
        self.launches = Counted::Kept(missing);
        let unknown = untold(&self.counts, &self.kernels, self.generation);
        self.kernels.extend(unknown);
        for text in told_of(self.pid, missing, self.complete) {
            self.note(NoteLevel::Warning, text);
        }
    }

    fn close_memory(&mut self) {
        self.contexts.iter_mut().for_each(InContext::close);
        self.unmap();
    }

    /// Of an application that has ended nothing stays mapped once its events were read. A client's
    /// first tool may have gone before the agent has written all.
    fn unmap(&mut self) {
        if self.connection.is_none() && self.host.is_none() {
            self.contexts.iter_mut().for_each(InContext::unmap);
        }
    }

    /// Takes in what an agent says, if it is not too much by now.
    pub(crate) fn hear(&mut self, frame: Frame<ToTool>) {
        let Frame {
            mut message,
            blob,
            fd,
            bytes,
        } = frame;
        bounds::clamp(&mut message);
        self.silence.messages += 1;
        self.silence.announced = matches!(message, ToTool::Leaving { silent: true });
        let counts = &self.counts;
        let counted = self.kept.count(&message, bytes, |name| counts.get(name));
        if let Err(why) = counted {
            self.stop_listening(&why);
            return;
        }
        let is_of_many = matches!(
            message,
            ToTool::Counts(_) | ToTool::Ready(_) | ToTool::Changed(_)
        );
        match self
            .kept
            .notes_are_full()
            .filter(|_| matches!(message, ToTool::Note { .. }))
        {
            None => self.take(message, blob, fd),
            Some(true) => self.note(
                NoteLevel::Warning,
                format!(
                    "it has more than {MOST_NOTES} things to be known: no further ones are kept"
                ),
            ),
            Some(false) => {}
        }
        if is_of_many {
            let (clients, lists) = self.client_views.take_up();
            if let Err(why) = self.kept.stays(clients, lists) {
                self.stop_listening(&why);
            }
        }
    }

    /// What was asked of it, by which is judged what it says.
    pub(crate) fn expect(&mut self, options: &warpbpf_wire::Options) {
        self.ring_bytes = options.ring_bytes;
        self.kept.untimed = !options.timeline && !options.ranges;
    }

    /// What it says is not what an agent says: from now on it is as if it had ended.
    pub(crate) fn stop_listening(&mut self, why: &str) {
        let text = format!("what is said by the agent in it is not listened to any more: {why}");
        self.note(NoteLevel::Error, text);
        self.hang_up();
    }

    /// Nothing is heard of it any more, and what is there is looked at for the last time.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
        self.stop_counting();
        self.close_memory();
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
            ToTool::Launches => self.open_launches(fd),
            ToTool::Refused { message } => self.refused = Some(message),
            ToTool::Attached => self.attached = true,
            ToTool::Failed => self.failed = true,
            ToTool::Leaving { .. } => {}
            ToTool::Ready(ready) => {
                let object = self.object.as_ref().filter(|_| self.host.is_none());
                let defs = object.map(|object| object.parsed().maps.as_slice());
                if let Err(why) = check_maps(&ready.maps, defs) {
                    self.stop_listening(&why);
                    return;
                }
                self.maps = ready.maps;
                self.programs = ready.programs;
                self.client_views.areas = ready.areas;
                self.generation = self.generation.max(1);
                self.know(self.generation);
                self.open(ready.context, fd);
            }
            ToTool::Context(context) => self.open(context, fd),
            ToTool::Maps(maps) => self.open_more(maps, fd),
            ToTool::Kernel(kernel) if kernel.client != 0 => self.client_views.left_out(kernel),
            ToTool::Kernel(kernel) => {
                self.client_views.changes += 1;
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
                let least = *self.least_generation.get_or_insert(kernel.generation);
                self.least_generation = Some(least.min(kernel.generation));
                let mut earlier = match least < kernel.generation {
                    true => self.kernels.iter_mut(),
                    false => [].iter_mut(),
                };
                match earlier.find(same) {
                    Some(before) => *before = kernel,
                    None => self.kernels.push(kernel),
                }
            }
            ToTool::Sites(sites) => place(&mut self.site_names, sites),
            ToTool::Note {
                level,
                text,
                clients,
            } => match clients.is_empty() {
                true => self.note(level, text),
                false => self
                    .client_views
                    .notes
                    .push((clients, Note { level, text })),
            },
            ToTool::Counts(counts) => {
                let kernels = counts.kernels.into_iter();
                self.counts.extend(kernels.map(|c| (c.mangled.clone(), c)));
                self.client_views.count(counts.clients);
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
                let new: HashSet<_> = told.streams.iter().map(|(new, _)| *new).collect();
                let streams = &mut self.ranges.streams;
                streams.retain(|(old, _)| !new.contains(old));
                streams.extend(told.streams);
                self.ranges.lost = told.lost;
            }
            ToTool::Snapshotted { token } => self.answer(token, Answer::Snapshotted),
            ToTool::MapOps { token, error } => self.answer(token, Answer::MapOps { error, blob }),
            ToTool::Changed(changed) => {
                // A gate's answer may come behind that to a later replacement.
                if let Err(why) = check_maps(&changed.maps, None) {
                    self.stop_listening(&why);
                    return;
                }
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

    /// The programs that there are, are those of this generation.
    pub(crate) fn know(&mut self, generation: u64) {
        let used: HashSet<u64> = self.kernels.iter().map(|k| k.generation).collect();
        let is_used = |of| used.contains(&of);
        self.client_views.know(generation, &self.programs, is_used);
    }

    pub(crate) fn note(&mut self, level: NoteLevel, text: String) {
        self.notes.push(Note { level, text });
    }

    /// The same, if it was not noted before.
    pub(crate) fn note_once(&mut self, text: String) {
        if self.notes.iter().all(|note| note.text != text) {
            self.note(NoteLevel::Warning, text);
        }
    }

    /// Answers that nobody waits for any more are dropped.
    pub(crate) fn answer(&mut self, token: u64, answer: Answer) {
        if let Some(waiting) = self.answers.get_mut(&token) {
            *waiting = answer;
        }
    }

    pub(crate) fn open(&mut self, info: ContextInfo, fd: Option<OwnedFd>) {
        let Some(memory) = fd else {
            self.note(NoteLevel::Error, "the agent sent no shared memory".into());
            return;
        };
        if self.contexts.len() >= MOST_CONTEXTS {
            self.stop_listening(&format!("it has more than {MOST_CONTEXTS} contexts"));
            return;
        }
        match self.shared(&memory, 0) {
            Ok(shared) => {
                // The first tool reads them.
                let no_events = self.host.is_some();
                let context = InContext::new(info, shared, memory, no_events);
                self.contexts.push(context);
            }
            Err(why) => self.stop_listening(&why),
        }
    }

    /// The memory of maps from one on, if it is what was agreed. What a client is shown is its
    /// host's.
    fn shared(&self, memory: &OwnedFd, first: usize) -> Result<SharedReader, String> {
        let most = match (self.host, first) {
            (None, 0) => most_shared(&self.maps, self.ring_bytes),
            _ => u64::MAX,
        };
        let shared = SharedReader::open_bounded(memory, most).map_err(|error| error.to_string())?;
        if self.host.is_none() {
            check_shared(&shared, &self.maps, first)?;
        }
        Ok(shared)
    }

    /// Takes in the memory of maps that came to a context.
    fn open_more(&mut self, maps: MoreMaps, fd: Option<OwnedFd>) {
        let opened = fd
            .as_ref()
            .map(|memory| self.shared(memory, maps.first as usize));
        let context = self
            .contexts
            .iter_mut()
            .find(|c| c.info.number == maps.context);
        let (Some(context), Some(memory), Some(opened)) = (context, fd, opened) else {
            self.note(NoteLevel::Error, "the agent sent no shared memory".into());
            return;
        };
        if context.memory.len() >= MOST_CONTEXTS {
            self.stop_listening("it sends memory of maps again and again");
            return;
        }
        match opened {
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
            Err(why) => self.stop_listening(&why),
        }
    }

    /// The maps exist.
    pub(crate) fn is_ready(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Events that are there, of one map or (with `None`) of all rings and messages, at most as
    /// many as a batch holds.
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
                self.parked_bytes -= payload.len() + PARKED;
                batch.push(map, shard, &payload);
            }
        }
        let (parked, parked_bytes, dropped) =
            (&mut self.parked, &mut self.parked_bytes, &mut self.dropped);
        let mut errors = Vec::new();
        let known = |map: u32| map == PRINTK || (map as usize) < MOST_MAPS;
        for context in self.contexts.iter_mut().filter(|c| !c.no_events) {
            let first = context.info.number.wrapping_mul(context.info.cpus);
            while !batch.is_full() {
                let taken = context.shared.events_while(|event| {
                    let cpu = first.wrapping_add(event.shard);
                    if !known(event.map) {
                        return !batch.is_full();
                    }
                    if wanted.is_none_or(|map| map == event.map) {
                        batch.push(event.map, cpu, event.payload);
                    } else if *parked_bytes + event.payload.len() + PARKED <= MOST_PARKED {
                        *parked_bytes += event.payload.len() + PARKED;
                        let queue = parked.entry(event.map).or_default();
                        queue.push_back((cpu, event.payload.to_vec()));
                    } else {
                        *dropped.entry(event.map).or_default() += 1;
                    }
                    !batch.is_full()
                });
                match taken {
                    // What lies behind a damaged chunk is still good. Who damages one may damage
                    // many: the first is told.
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
        self.unmap();
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
            losses.full = losses.full.saturating_add(device.full);
            losses.busy = losses.busy.saturating_add(device.busy);
            let lost = context.shared.lost(map);
            losses.unread = losses.unread.saturating_add(lost);
        }
        losses
    }

    pub(crate) fn messages_lost(&self) -> u64 {
        self.losses(PRINTK).sum()
    }
}

/// The first tool has gone without a word.
fn lost_host(host: u32, pid: u32) -> String {
    format!(
        "the tool (process {host}) beside whose programs these were has ended without a word, or process {pid} has: what is shown is as it was copied last"
    )
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
mod tests;
