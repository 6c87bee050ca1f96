//! The applications: one thread that listens for their agents, sends each the object, and hands on
//! events; and the copies of maps that commands are answered from.
//!
//! Lock order: the kernel's, then the state here. The thread takes the kernel's only while it holds
//! nothing.

mod after;
mod asked;
mod ends;
mod events;
pub mod replace;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf::plan_of;
use warpbpf_maps::MapPlan;
use warpbpf_wire::{
    Changed, ContextInfo, Listener, MapInfo, MapOp, NoteLevel, OpCode, SharedReader, ToAgent,
    ToTool, ToolConnection, WireError, decode_outcomes, encode_ops,
};

use self::asked::FRESH;
use self::ends::End;
use self::replace::Running;
use crate::app::feed::Feed;
use crate::app::offer::Offer;
use crate::kernel::{Kernel, Tell};
use crate::objects::sink::{Queue, Sink};

/// How long an agent may take to answer. Where Linux answers, such calls do not fail, so this is
/// for one that stands still, and not for one that gets little of the CPU.
const PATIENCE: Duration = Duration::from_secs(10);
/// Said where a program is not launched after all.
const NOT_ALONE: &str =
    "`launch-inside` gets no program: an application has come, which has maps of its own";
/// How long the thread sleeps when nothing comes.
const NAP: Duration = Duration::from_millis(2);

/// A map's bytes in each context.
type Parts = Arc<Vec<Vec<u8>>>;

/// Copies of them, with the numbers that they had.
struct Copies {
    sequences: Vec<u64>,
    parts: Parts,
}

struct Agent {
    connection: Option<ToolConnection>,
    offer: Offer,
    /// Number of its process: as it is seen from here, if that is known.
    pid: u32,
    /// What has become of it, until somebody asks.
    arrival: Option<&'static str>,
    /// It is in one that ran already, and has not been said to have left.
    given: bool,
    /// It will not have any program.
    refused: bool,
    /// Some kernel of it has programs.
    instrumented: bool,
    /// Some kernel was to have programs and has none: that was told with the reason.
    failed: bool,
    /// Kernels that it loaded, as people write them.
    kernels: BTreeSet<String>,
    /// It was told that all have ended.
    left: bool,
    /// Who attaches others was told so.
    left_told: bool,
    /// What stands in no map of the tool has been said.
    end_told: bool,
    /// That is news to who started the tool.
    word_due: bool,
    running: Running,
    sms: u32,
    /// By number; `None` for a type that is not known here.
    maps: Vec<Option<Arc<MapPlan>>>,
    /// The contexts that have maps, in their order.
    contexts: Vec<(ContextInfo, SharedReader)>,
    /// A damaged chunk of events was met, and told.
    damaged: bool,
    /// `None` once an operation has changed something.
    refreshed: Option<Instant>,
    /// How old copies may become.
    fresh: Duration,
    /// Lookups one by one since the last change.
    singles: u32,
    copies: HashMap<u32, Copies>,
    /// Changes after the application has ended.
    after: HashMap<u32, Parts>,
    /// Events for whose sink there was no room, by map.
    queues: BTreeMap<u32, Queue>,
    /// It has what was sent before its programs.
    ready: bool,
    /// The operation whose answer is awaited, and that answer.
    asked: Option<u64>,
    answer: Option<Result<Vec<u8>, String>>,
    /// The last copy that was asked for only to hear of contexts.
    looked: u64,
    snapshotted: u64,
    /// What became of a replacement.
    changed: Option<Changed>,
}

#[derive(Default)]
struct State {
    listener: Option<Listener>,
    /// Connections that were not made by way of the listener, each with the number of its process.
    given: VecDeque<(u32, OwnedFd)>,
    /// Those of them for which there is nothing.
    turned_away: Vec<u32>,
    agents: Vec<Agent>,
    token: u64,
}

/// All applications.
pub struct Live {
    state: Mutex<State>,
    tell: Tell,
}

impl Live {
    /// No application yet.
    pub fn new(tell: Tell) -> Live {
        Live {
            state: Mutex::default(),
            tell,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for who may be in the middle of a call that has it: waits a short time only.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        for _ in 0..100 {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }

    /// Opens the door for applications and says where it is.
    ///
    /// # Errors
    /// The socket's.
    pub fn listen(&self, folder: &Path) -> Result<PathBuf, WireError> {
        let mut state = self.state();
        let listener = match state.listener.take() {
            Some(listener) => listener,
            None => Listener::bind(folder)?,
        };
        let path = listener.path().to_path_buf();
        state.listener = Some(listener);
        Ok(path)
    }

    /// Removes the socket, and says where it was.
    pub fn close(&self) -> Option<PathBuf> {
        let listener = self.state().listener.take()?;
        Some(listener.path().to_path_buf())
    }

    /// The end of a connection with the agent in a process that ran already.
    pub fn give(&self, pid: u32, socket: OwnedFd) {
        self.state().given.push_back((pid, socket));
    }

    /// What is new of processes that ran already, in a word: `attached`, each launch is seen from
    /// now on; `refused`; `left`.
    pub fn arrivals(&self) -> Vec<(u32, &'static str)> {
        let mut state = self.state();
        let away = std::mem::take(&mut state.turned_away);
        let mut news: Vec<_> = away.into_iter().map(|pid| (pid, "refused")).collect();
        for agent in state.agents.iter_mut().filter(|agent| agent.given) {
            news.extend(agent.arrival.take().map(|word| (agent.pid, word)));
            if agent.connection.is_none() {
                agent.given = false;
                // One that the tool itself has let go may live on, and so may the tool.
                news.extend((!agent.left).then_some((agent.pid, "left")));
            }
        }
        news
    }

    /// Some application runs.
    pub fn runs(&self) -> bool {
        let mut state = self.state();
        let mut agents = state.agents.iter_mut();
        agents.any(|agent| {
            // One that has ended may not have been noticed yet.
            agent.take_messages(self.tell);
            agent.connection.is_some()
        })
    }

    /// The process of this number that launches a program has done so, with that program in it.
    /// `None` if it is not here.
    pub fn launched(&self, pid: u32) -> Option<bool> {
        let state = self.state();
        let mut agents = state.agents.iter().rev();
        let agent = agents.find(|agent| agent.offer.launches && agent.pid == pid)?;
        Some(agent.instrumented)
    }

    /// All launches are of originals from now on, but for those of a program that is not attached
    /// at all.
    pub fn detach(&self) {
        let mut state = self.state();
        let agents = state.agents.iter_mut();
        agents
            .filter(|agent| !agent.offer.launches)
            .for_each(Agent::let_go);
    }

    /// Some application came.
    pub fn any(&self) -> bool {
        !self.state().agents.is_empty()
    }

    /// An application came, all have ended, and the tool has read all their events.
    pub fn is_over(&self) -> bool {
        let state = self.state();
        let ended = |agent: &Agent| {
            agent.connection.is_none()
                && agent.queues.values().all(Queue::is_empty)
                && agent.offer.sinks.iter().all(Sink::is_read)
        };
        !state.agents.is_empty() && state.agents.iter().all(ended)
    }

    /// What the application in the process of this number is given, if that is known.
    ///
    /// # Errors
    /// Text for the tool's author.
    pub fn offer(&self, kernel: &mut Kernel, pid: Option<u32>) -> Result<Offer, String> {
        // Another one may have come since it asked whether it may launch.
        match kernel.programs_for(pid).1 && self.runs() {
            true => Err(NOT_ALONE.to_owned()),
            false => Offer::new(kernel, pid),
        }
    }

    /// One round of the thread: `offer` makes what a new agent is given, in a process of this
    /// number if that is known. True if something came.
    pub fn round(&self, offer: &mut dyn FnMut(Option<u32>) -> Result<Offer, String>) -> bool {
        let (accepted, mut busy) = {
            let mut state = self.state();
            let accepted = state.accept(self.tell);
            let mut busy = accepted.is_some();
            for agent in &mut state.agents {
                agent.take_messages(self.tell);
                agent.settle(self.tell);
                busy |= agent.take_events(self.tell);
            }
            busy |= state.feed(self.tell);
            (accepted, busy)
        };
        if let Some((pid, connection)) = accepted {
            let peer = connection.process();
            let given = pid.is_some();
            match offer(peer.filter(|_| !given)) {
                Ok(offer) => self.welcome(pid.or(peer), given, connection, offer),
                Err(text) => {
                    (self.tell)(&text);
                    self.state().turned_away.extend(pid);
                }
            }
            busy = true;
        }
        if !busy {
            std::thread::sleep(NAP);
        }
        busy
    }

    /// Does the handshake with an agent and sends it everything.
    fn welcome(&self, pid: Option<u32>, given: bool, connection: ToolConnection, offer: Offer) {
        let mut agent = Agent {
            connection: Some(connection),
            running: Running::of(&offer),
            offer,
            pid: pid.unwrap_or(0),
            arrival: None,
            given,
            refused: false,
            instrumented: false,
            failed: false,
            kernels: BTreeSet::new(),
            left: false,
            left_told: false,
            end_told: false,
            word_due: false,
            sms: 0,
            maps: Vec::new(),
            contexts: Vec::new(),
            damaged: false,
            refreshed: None,
            fresh: FRESH,
            singles: 0,
            copies: HashMap::new(),
            after: HashMap::new(),
            queues: BTreeMap::new(),
            ready: false,
            asked: None,
            answer: None,
            looked: 0,
            snapshotted: 0,
            changed: None,
        };
        let end = Instant::now() + PATIENCE;
        while agent.sms == 0 && agent.connection.is_some() && Instant::now() < end {
            agent.take_messages(self.tell);
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut messages: Vec<(ToAgent, Vec<u8>)> = Vec::new();
        for preset in &agent.offer.presets {
            let values = preset.entries.iter().map(|(key, value)| {
                let bytes = preset.percpu.map_or(value.len(), |stride| {
                    (stride * agent.sms.max(1) as usize).min(value.len())
                });
                (key, &value[..bytes])
            });
            let ops: Vec<MapOp<'_>> = values
                .map(|(key, value)| MapOp {
                    code: OpCode::Update,
                    flags: 0,
                    key,
                    value,
                })
                .collect();
            let map = preset.map.clone();
            messages.push((ToAgent::Preset { map }, encode_ops(&ops)));
        }
        for feed in &mut agent.offer.feeds {
            if let Some(blob) = feed.first(self.tell) {
                let map = feed.name.clone();
                messages.push((ToAgent::Preset { map }, blob));
            }
        }
        for (message, blob) in &messages {
            agent.give(message, blob, self.tell);
        }
        let options = agent.offer.options.clone();
        let object = agent.offer.gathered.object.clone();
        // Who looks at a map once it launches finds it here.
        let mut state = self.state();
        agent.give(&ToAgent::Attach { options }, &object, self.tell);
        state.agents.push(agent);
    }
}

fn plans(maps: &[MapInfo]) -> Vec<Option<Arc<MapPlan>>> {
    let plan = |info| Some(Arc::new(plan_of(info)?));
    maps.iter().map(plan).collect()
}

impl Agent {
    /// Sends what it is given at first.
    fn give(&mut self, message: &ToAgent, blob: &[u8], tell: Tell) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Err(error) = connection.send(message, blob, None, PATIENCE * 5) {
            tell(&error.to_string());
            self.connection = None;
        }
    }

    fn take_messages(&mut self, tell: Tell) {
        while let Some(connection) = &mut self.connection {
            match connection.try_recv() {
                Ok(Some(frame)) => self.take_message(frame.message, frame.blob, frame.fd, tell),
                Ok(None) => return,
                Err(_) => {
                    self.connection = None;
                    self.tell_end(End::Application, tell);
                }
            }
        }
        self.offer.feeds.iter_mut().for_each(Feed::failed);
    }

    fn take_message(&mut self, message: ToTool, blob: Vec<u8>, fd: Option<OwnedFd>, tell: Tell) {
        match message {
            ToTool::Hello(hello) => {
                if let Some(why) = hello.refusal() {
                    self.refused = true;
                    self.arrival = Some("refused");
                    self.connection = None;
                    tell(&format!("nothing is instrumented: {why}"));
                }
                self.sms = hello.device.map_or(1, |d| d.cpus.max(d.sms).max(1));
                if self.pid == 0 {
                    self.pid = hello.pid;
                }
            }
            ToTool::Refused { message } => {
                self.refused = true;
                self.arrival = Some("refused");
                tell(&format!("nothing is instrumented: {message}"));
            }
            ToTool::Attached => self.arrival = Some("attached"),
            ToTool::Ready(ready) => {
                self.ready = true;
                self.offer.feeds.iter_mut().for_each(Feed::arrived);
                self.maps = plans(&ready.maps);
                self.open(ready.context, fd, tell);
            }
            ToTool::Context(context) => self.open(context, fd, tell),
            // Its maps are those that it was given when the application came: no replacement of
            // ours brings others.
            ToTool::Maps(_) => {}
            ToTool::Kernel(kernel) => {
                self.instrumented |= !kernel.placed.is_empty();
                if kernel.method.why_not().is_some() {
                    self.failed = true;
                    tell(&format!("`{}`: {}", kernel.demangled, kernel.method));
                }
                self.kernels.insert(kernel.demangled);
            }
            ToTool::Note { level, text, .. } => match level {
                NoteLevel::Info => {}
                NoteLevel::Warning | NoteLevel::Error => tell(&text),
            },
            ToTool::Snapshotted { token } => self.snapshotted = self.snapshotted.max(token),
            ToTool::MapOps { token, error } => {
                // Nobody waits any more for an answer that comes too late.
                if self.asked == Some(token) {
                    self.answer = Some(error.map_or(Ok(blob), Err));
                    return;
                }
                let outcomes = error.map_or_else(
                    || decode_outcomes(&blob).map_err(|error| error.to_string()),
                    Err,
                );
                for feed in &mut self.offer.feeds {
                    feed.answered(token, &outcomes, tell);
                }
            }
            ToTool::Changed(changed) => {
                // With other programs other fields are added up, also where nobody waits for the
                // answer any more.
                if changed.refused.is_none() && !changed.maps.is_empty() {
                    self.maps = plans(&changed.maps);
                }
                self.changed = Some(changed);
            }
            // No timeline is asked for, and nobody reports launches.
            ToTool::Sites(_)
            | ToTool::Failed
            | ToTool::Launches
            | ToTool::Counts(_)
            | ToTool::Operations(_)
            | ToTool::Ranges(_)
            | ToTool::Stacks(_)
            | ToTool::Leaving { .. } => {}
            // The connection's end follows; what is in the shared memory is final.
            ToTool::Bye { .. } => self.tell_end(End::Application, tell),
        }
    }

    fn open(&mut self, context: ContextInfo, fd: Option<OwnedFd>, tell: Tell) {
        match fd.map(SharedReader::open) {
            Some(Ok(reader)) => {
                self.contexts.push((context, reader));
                // Copies are without it.
                self.refreshed = None;
            }
            Some(Err(error)) => tell(&error.to_string()),
            None => tell("the agent sent no shared memory"),
        }
    }

    /// Waits until `done` says so, or the agent is gone or late.
    fn wait(&mut self, tell: Tell, done: impl Fn(&Agent) -> bool) -> Result<(), Errno> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.take_messages(tell);
            if done(self) {
                return Ok(());
            }
            if self.connection.is_none() || Instant::now() > end {
                return Err(Errno::IO);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn send(&mut self, message: &ToAgent, blob: &[u8]) -> Result<(), Errno> {
        let connection = self.connection.as_mut().ok_or(Errno::IO)?;
        connection
            .send(message, blob, None, PATIENCE)
            .map_err(|_| Errno::IO)
    }
}

impl State {
    /// Somebody who wants to be served, with the number of its process if it was given.
    fn accept(&mut self, tell: Tell) -> Option<(Option<u32>, ToolConnection)> {
        if let Some((pid, socket)) = self.given.pop_front() {
            return match ToolConnection::trusted(socket) {
                Ok(connection) => Some((Some(pid), connection)),
                Err(error) => {
                    tell(&error.to_string());
                    None
                }
            };
        }
        let accepted = self.listener.as_ref()?.accept(Duration::ZERO);
        Some((None, accepted.ok().flatten()?))
    }

    /// Sends the application that came last what the tool has for it. True if there was something.
    fn feed(&mut self, tell: Tell) -> bool {
        let mut token = self.token;
        let Some(agent) = self.agents.last_mut().filter(|agent| agent.ready) else {
            return false;
        };
        let Some(connection) = &mut agent.connection else {
            return false;
        };
        for feed in &mut agent.offer.feeds {
            let Some(blob) = feed.next(token + 1, tell) else {
                continue;
            };
            token += 1;
            let map = feed.number;
            if connection
                .send(&ToAgent::MapOps { token, map }, &blob, None, PATIENCE)
                .is_err()
            {
                // Whether it came there is not known; that it is gone is noticed by reading.
                feed.failed();
            }
        }
        token != std::mem::replace(&mut self.token, token)
    }
}
