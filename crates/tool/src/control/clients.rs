//! Programs of second tools in this tool's applications: each hears by a connection of its own what
//! it would hear of an agent, with its programs and maps alone in it, and they go when that ends.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{EBUSY, EINVAL};
use warpbpf_wire::{AgentConnection, MOST_CLIENTS, NoteLevel, ToAgent, ToTool};

use super::protocol::{ClientInfo, JoinRequest, Reply, failed};
use super::replace::Pending;
use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::replacement::Replacement;
use crate::heard::state::Answer;
use crate::object::Object;

mod news;
#[cfg(test)]
mod tests;

use news::Told;

/// How long it may take to take programs out, before it is tried again.
const LEAVING: Duration = Duration::from_secs(30);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// The same where others are being replaced just now.
const BUSY: Duration = Duration::from_millis(100);
/// How long the last words to a second tool may be unread.
const UNREAD: Duration = Duration::from_secs(10);
/// How long kernels that were launched with a second tool's programs are waited for, for what they
/// count.
const DRAINING: Duration = Duration::from_secs(60);

/// All second tools.
#[derive(Debug, Default)]
pub(super) struct Clients {
    all: Vec<Client>,
    /// Numbers that were given.
    given: u32,
}

/// A second tool that wants to come.
#[derive(Debug)]
pub(super) struct Joining {
    info: ClientInfo,
    pending: Pending,
    process: Process,
    /// Others may be replaced until then.
    until: Instant,
    /// They were, and it is tried again then.
    again: Option<Instant>,
    /// Remarks from here on may be about its programs.
    notes: usize,
}

#[derive(Debug)]
struct Client {
    info: ClientInfo,
    process: Process,
    /// `None` once it is gone.
    connection: Option<AgentConnection>,
    told: Told,
    /// Its requests that the agent works on: numbers of its own, and ours.
    asked: Vec<(u64, u64)>,
    /// It has said that it goes, or is gone.
    goes: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    There,
    /// Its programs are being taken out.
    Leaving(Pending),
    /// They could not be, and that is tried again then.
    Again(Instant),
    /// Its last kernels are waited for, until then.
    Draining(u64, Instant),
    /// All was said, and is to be read until then.
    Gone(Instant),
}

impl Clients {
    /// Those in an application.
    pub(super) fn of(&self, process: &Process) -> Vec<ClientInfo> {
        let here = |client: &&Client| client.process.number() == process.number();
        let here = self.all.iter().filter(here);
        here.map(|client| client.info.clone()).collect()
    }

    pub(super) fn sockets<'s>(&'s self, into: &mut Vec<BorrowedFd<'s>>) {
        let connections = self
            .all
            .iter()
            .filter_map(|client| client.connection.as_ref()?.socket().ok());
        into.extend(connections);
    }

    /// Begins to put programs of another tool into an application.
    pub(super) fn begin(
        &mut self,
        process: Option<&Process>,
        request: &JoinRequest,
        object: &[u8],
    ) -> Result<Joining, Error> {
        let process = process.ok_or(Error::NotReady { pid: 0 })?.clone();
        if !process.is_ready() {
            return Err(Error::NotReady { pid: process.pid() });
        }
        if self.of(&process).len() >= MOST_CLIENTS {
            return Err(Error::Answered {
                message: format!(
                    "{MOST_CLIENTS} other tools have programs in process {} already, and no more may: end one",
                    process.pid()
                ),
                errno: EBUSY as i32,
            });
        }
        self.given += 1;
        let client = self.given;
        let object = Object::from_bytes(&request.name, object)?;
        let replacement = Replacement::Join {
            client,
            object,
            options: Box::new(request.options.clone()),
        };
        let limit = Duration::from_millis(request.limit_ms);
        let notes = process.notes().len();
        Ok(Joining {
            info: ClientInfo {
                client,
                tool: request.tool,
                object: request.name.clone(),
            },
            pending: Pending::of(process.clone(), replacement, limit)?,
            process,
            until: Instant::now() + limit,
            again: None,
            notes,
        })
    }

    /// The answer to one who wants to come, and its connection.
    pub(super) fn join(&mut self, joining: &mut Joining) -> Option<(Reply, Option<OwnedFd>)> {
        let now = Instant::now();
        if let Some(again) = joining.again {
            if now < again {
                return None;
            }
            joining.again = None;
            // It is proved and compiled once more: the agent keeps nothing of what it refuses.
            if let Err(error) = joining
                .pending
                .again(joining.until.saturating_duration_since(now))
            {
                return joining.refused(error, now);
            }
        }
        if let Err(error) = joining.pending.done()? {
            return joining.refused(error, now);
        }
        let (connection, theirs) = match AgentConnection::pair() {
            Ok((connection, theirs)) => (Some(connection), Some(theirs)),
            Err(_) => (None, None),
        };
        let client = joining.info.client;
        self.all.push(Client {
            told: Told::new(client, joining.notes),
            info: joining.info.clone(),
            process: joining.process.clone(),
            connection,
            asked: Vec::new(),
            goes: false,
            stage: Stage::There,
        });
        // One without a connection goes at the next turn.
        Some((Reply::Joined { client }, theirs))
    }

    /// Hears and tells all.
    pub(super) fn turn(&mut self) {
        self.all.retain_mut(|client| client.turn());
    }

    /// They are told what there is, and that the tool ends. So long is waited for all together.
    pub(super) fn farewell(&mut self, patience: Duration) {
        for client in &mut self.all {
            if !client.process.is_complete() {
                client.note(format!(
                    "the tool (process {}) beside whose programs these were has ended, and they are out of process {}: what is shown is as it was copied last",
                    std::process::id(),
                    client.info_pid()
                ));
            }
            client.tell();
            client.bye("the first tool has ended");
        }
        let end = Instant::now() + patience;
        loop {
            self.all.retain_mut(|client| match &mut client.connection {
                Some(connection) => matches!(connection.flush(), Ok(false)),
                None => false,
            });
            if self.all.is_empty() || Instant::now() >= end {
                return self.all.clear();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Joining {
    /// The answer to one who does not come; none yet where others are being replaced, and there is
    /// time to try again.
    fn refused(&mut self, error: Error, now: Instant) -> Option<(Reply, Option<OwnedFd>)> {
        let again = now + BUSY;
        if is_busy(&error) && again < self.until {
            self.again = Some(again);
            return None;
        }
        Some((failed(&error), None))
    }
}

/// Others are being replaced just now.
fn is_busy(error: &Error) -> bool {
    error.errno() == EBUSY as i32
}

impl Client {
    fn info_pid(&self) -> u32 {
        self.process.pid()
    }

    /// False once nothing is left to do for it.
    fn turn(&mut self) -> bool {
        self.hear();
        self.answer();
        self.tell();
        self.go_on();
        if let Some(connection) = &mut self.connection
            && connection.flush().is_err()
        {
            self.connection = None;
        }
        let Stage::Gone(until) = self.stage else {
            return true;
        };
        let reads = self.connection.as_ref().is_some_and(|c| c.backlog() > 0);
        // One that stands still is not waited for.
        if reads && Instant::now() < until {
            return true;
        }
        let client = self.info.client;
        let mut state = self.process.lock();
        state.client_views.forget(client);
        // The application is gone if that cannot be said, and nobody tells of launches.
        let _ = state.send(&ToAgent::Forget { client }, &[]);
        false
    }

    /// Does what it asks for. Whoever is gone, or does not keep to the protocol, is taken out.
    fn hear(&mut self) {
        while let Some(connection) = &mut self.connection {
            let frame = match connection.try_recv() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => {
                    self.connection = None;
                    break;
                }
            };
            let token = match &frame.message {
                ToAgent::Detach => {
                    self.goes = true;
                    continue;
                }
                ToAgent::Change { token, .. } => {
                    let message = "programs beside those of another tool are not replaced: end them, and attach with others";
                    let refused = warpbpf_wire::Changed {
                        token: *token,
                        refused: Some(warpbpf_wire::Refusal {
                            errno: EINVAL as i32,
                            message: message.to_owned(),
                        }),
                        ..warpbpf_wire::Changed::default()
                    };
                    self.say(&ToTool::Changed(refused), &[], None);
                    continue;
                }
                ToAgent::Snapshot { token }
                | ToAgent::Drain { token }
                | ToAgent::MapOps { token, .. } => *token,
                // What comes before an attach.
                ToAgent::Attach { .. }
                | ToAgent::Observe
                | ToAgent::Preset { .. }
                | ToAgent::Probe { .. }
                | ToAgent::Sanitize
                | ToAgent::Cache(_)
                | ToAgent::Forget { .. } => continue,
            };
            let areas = &self.told.areas;
            let asked = match frame.message {
                ToAgent::MapOps { map, .. } => match areas.get(map as usize).copied() {
                    Some(map) => {
                        let message = |token| ToAgent::MapOps { token, map };
                        self.process.begin(message, &frame.blob)
                    }
                    None => Err(Error::NotReady {
                        pid: self.info_pid(),
                    }),
                },
                ToAgent::Drain { .. } => self.process.begin(|token| ToAgent::Drain { token }, &[]),
                _ => self.process.begin(|token| ToAgent::Snapshot { token }, &[]),
            };
            match asked {
                Ok(own) => self.asked.push((token, own)),
                // Its connection ends with the application's.
                Err(Error::Ended { .. }) => {}
                Err(error) => {
                    let error = Some(error.to_string());
                    self.say(&ToTool::MapOps { token, error }, &[], None);
                }
            }
        }
        if self.goes || self.connection.is_none() {
            self.leave();
        }
    }

    /// Hands on what the agent has answered.
    fn answer(&mut self) {
        let process = self.process.clone();
        if self.connection.is_none() {
            // Nobody is left to hear them.
            self.asked
                .drain(..)
                .for_each(|(_, own)| process.forget_answer(own));
        }
        let mut answers = Vec::new();
        self.asked
            .retain(|(token, own)| match process.take_answer(*own) {
                None => true,
                Some(answer) => {
                    answers.push((*token, answer));
                    false
                }
            });
        for (token, answer) in answers {
            match answer {
                Ok(Answer::MapOps { error, blob }) => {
                    self.say(&ToTool::MapOps { token, error }, &blob, None);
                }
                Ok(Answer::Snapshotted) => {
                    self.tell();
                    self.say(&ToTool::Snapshotted { token }, &[], None);
                }
                Ok(Answer::Waiting | Answer::Changed(_)) | Err(_) => {}
            }
        }
    }

    /// Begins to take its programs out.
    fn leave(&mut self) {
        match self.stage {
            Stage::There => {}
            Stage::Again(at) if Instant::now() >= at => {}
            Stage::Again(_) | Stage::Leaving(_) | Stage::Draining(..) | Stage::Gone(_) => return,
        }
        let client = self.info.client;
        let pending = Pending::of(self.process.clone(), Replacement::Leave { client }, LEAVING);
        self.stage = match pending {
            Ok(pending) => Stage::Leaving(pending),
            Err(error) if is_busy(&error) => Stage::Again(Instant::now() + BUSY),
            // With the application, as a rule, of whose end is heard elsewhere.
            Err(_) => Stage::Again(Instant::now() + PAUSE),
        };
    }

    /// Goes on with its end, or with that of the application.
    fn go_on(&mut self) {
        if !matches!(self.stage, Stage::Gone(_)) && !self.process.is_connected() {
            return self.application_gone();
        }
        match &mut self.stage {
            Stage::There | Stage::Again(_) | Stage::Gone(_) => {}
            Stage::Leaving(pending) => match pending.done() {
                None => {}
                Some(Ok(_)) if self.connection.is_some() => {
                    let drained = self.process.begin(|token| ToAgent::Drain { token }, &[]);
                    match drained {
                        Ok(token) => {
                            self.stage = Stage::Draining(token, Instant::now() + DRAINING);
                        }
                        Err(_) => self.application_gone(),
                    }
                }
                Some(Ok(_)) => self.gone(),
                Some(Err(error)) if is_busy(&error) => {
                    self.stage = Stage::Again(Instant::now() + BUSY);
                }
                Some(Err(error)) => {
                    self.stage = Stage::Again(Instant::now() + PAUSE);
                    self.note(format!(
                        "programs are still in process {}: {error}; it is tried again, by the tool that was there first",
                        self.info_pid()
                    ));
                    self.bye("its programs are still there");
                }
            },
            Stage::Draining(token, until) => {
                let late = Instant::now() >= *until;
                if self.process.take_answer(*token).is_some() || late {
                    if late {
                        self.process.forget_answer(*token);
                        self.note(format!(
                            "kernels that were launched before still run in process {} with programs: what is shown is as it was copied last",
                            self.info_pid()
                        ));
                    }
                    self.tell();
                    self.bye("detached");
                    self.gone();
                }
            }
        }
    }

    /// The agent is gone, with a word or without, and so are all programs.
    fn application_gone(&mut self) {
        let (complete, farewell) = {
            let state = self.process.lock();
            (state.complete, state.farewell.clone())
        };
        if farewell == "detached" && !self.goes {
            self.note(format!(
                "the tool (process {}) beside whose programs these were has let go of process {}: programs of all tools are out of it",
                std::process::id(),
                self.info_pid()
            ));
        }
        self.tell();
        match complete {
            true => self.bye(&farewell),
            false => self.connection = None,
        }
        self.gone();
    }

    /// Nothing more is said to it.
    fn gone(&mut self) {
        self.stage = Stage::Gone(Instant::now() + UNREAD);
    }

    /// Tells what is new.
    fn tell(&mut self) {
        if self.connection.is_none() {
            return;
        }
        let news = self.told.news(&self.process.lock());
        for news::News { message, fd } in news {
            self.say(&message, &[], fd);
        }
    }

    fn note(&mut self, text: String) {
        let level = NoteLevel::Warning;
        let note = ToTool::Note {
            level,
            text,
            clients: Vec::new(),
        };
        self.say(&note, &[], None);
    }

    fn bye(&mut self, reason: &str) {
        let reason = reason.to_owned();
        self.say(&ToTool::Bye { reason }, &[], None);
    }

    fn say(&mut self, message: &ToTool, blob: &[u8], fd: Option<OwnedFd>) {
        if let Some(connection) = &mut self.connection
            && connection.queue(message, blob, fd.map(Into::into)).is_err()
        {
            // It reads nothing.
            self.connection = None;
        }
    }
}
