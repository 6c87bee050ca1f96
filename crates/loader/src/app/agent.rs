//! One application: its connection, what it has said, and what is known of its maps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_maps::MapPlan;
use warpbpf_tool::plan_of;
use warpbpf_wire::{
    Changed, ContextInfo, MapInfo, NoteLevel, SharedReader, ToAgent, ToTool, ToolConnection,
    decode_outcomes,
};

use super::feed::Feed;
use super::offer::Offer;
use super::running::Running;
use crate::kernel::Tell;
use crate::objects::sink::Queue;

/// How long an agent may take to answer. Where Linux answers, such calls do not fail, so this is
/// for one that stands still, and not for one that gets little of the CPU.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long lookups are answered from a copy, at least.
pub(super) const FRESH: Duration = Duration::from_millis(1);

/// A map's bytes in each context.
pub(super) type Parts = Arc<Vec<Vec<u8>>>;

/// Copies of them, with the numbers that they had.
pub(super) struct Copies {
    pub(super) sequences: Vec<u64>,
    pub(super) parts: Parts,
}

pub(super) struct Agent {
    pub(super) connection: Option<ToolConnection>,
    pub(super) offer: Offer,
    /// Number of its process: as it is seen from here, if that is known.
    pub(super) pid: u32,
    /// What has become of it, until somebody asks.
    pub(super) arrival: Option<&'static str>,
    /// It is in one that ran already, and has not been said to have left.
    pub(super) given: bool,
    /// It will not have any program.
    pub(super) refused: bool,
    /// Some kernel of it has programs.
    pub(super) instrumented: bool,
    /// Some kernel was to have programs and has none: that was told with the reason.
    pub(super) failed: bool,
    /// Kernels that it loaded, as people write them.
    pub(super) kernels: BTreeSet<String>,
    /// It was told that all have ended.
    pub(super) left: bool,
    /// Who attaches others was told so.
    pub(super) left_told: bool,
    /// What stands in no map of the tool has been said.
    pub(super) end_told: bool,
    /// That is news to who started the tool.
    pub(super) word_due: bool,
    pub(super) running: Running,
    pub(super) sms: u32,
    /// By number; `None` for a type that is not known here.
    pub(super) maps: Vec<Option<Arc<MapPlan>>>,
    /// The contexts that have maps, in their order.
    pub(super) contexts: Vec<(ContextInfo, SharedReader)>,
    /// A damaged chunk of events was met, and told.
    pub(super) damaged: bool,
    /// `None` once an operation has changed something.
    pub(super) refreshed: Option<Instant>,
    /// How old copies may become.
    pub(super) fresh: Duration,
    /// Lookups one by one since the last change.
    pub(super) singles: u32,
    pub(super) copies: HashMap<u32, Copies>,
    /// Changes after the application has ended.
    pub(super) after: HashMap<u32, Parts>,
    /// Events for whose sink there was no room, by map.
    pub(super) queues: BTreeMap<u32, Queue>,
    /// It has what was sent before its programs.
    pub(super) ready: bool,
    /// The operation whose answer is awaited, and that answer.
    pub(super) asked: Option<u64>,
    pub(super) answer: Option<Result<Vec<u8>, String>>,
    /// The last copy that was asked for only to hear of contexts.
    pub(super) looked: u64,
    pub(super) snapshotted: u64,
    /// What became of a replacement.
    pub(super) changed: Option<Changed>,
}

/// Whose end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The agent has said good-bye, or is gone without. The tool may read what is here.
    Application,
    /// The tool ends, and reads nothing more.
    Tool,
}

fn plans(maps: &[MapInfo]) -> Vec<Option<Arc<MapPlan>>> {
    let plan = |info| Some(Arc::new(plan_of(info)?));
    maps.iter().map(plan).collect()
}

impl Agent {
    /// One that has said nothing yet.
    pub(super) fn new(
        connection: ToolConnection,
        offer: Offer,
        pid: Option<u32>,
        given: bool,
    ) -> Agent {
        Agent {
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
        }
    }

    /// Sends what it is given at first.
    pub(super) fn give(&mut self, message: &ToAgent, blob: &[u8], tell: Tell) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Err(error) = connection.send(message, blob, None, PATIENCE * 5) {
            tell(&error.to_string());
            self.connection = None;
        }
    }

    pub(super) fn take_messages(&mut self, tell: Tell) {
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
    pub(super) fn wait(&mut self, tell: Tell, done: impl Fn(&Agent) -> bool) -> Result<(), Errno> {
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

    pub(super) fn send(&mut self, message: &ToAgent, blob: &[u8]) -> Result<(), Errno> {
        let connection = self.connection.as_mut().ok_or(Errno::IO)?;
        connection
            .send(message, blob, None, PATIENCE)
            .map_err(|_| Errno::IO)
    }
}
