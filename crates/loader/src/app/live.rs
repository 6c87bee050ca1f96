//! The applications: one thread that listens for their agents, sends each the object, and hands on
//! events; and the copies of maps that commands are answered from.
//!
//! Lock order: the kernel's, then the state here. The thread takes the kernel's only while it holds
//! nothing.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use warpbpf_wire::{Listener, MapOp, OpCode, ToAgent, ToolConnection, WireError, encode_ops};

use super::agent::{Agent, PATIENCE};
use super::offer::{Offer, OfferError};
use crate::kernel::{Kernel, Tell};
use crate::objects::sink::{Queue, Sink};

/// How long the thread sleeps when nothing comes.
const NAP: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct State {
    pub(super) listener: Option<Listener>,
    /// Connections that were not made by way of the listener, each with the number of its process.
    pub(super) given: VecDeque<(u32, OwnedFd)>,
    /// Those of them for which there is nothing.
    pub(super) turned_away: Vec<u32>,
    pub(super) agents: Vec<Agent>,
    pub(super) token: u64,
}

/// All applications.
pub struct Live {
    pub(super) state: Mutex<State>,
    pub(super) tell: Tell,
}

impl Live {
    /// No application yet.
    pub fn new(tell: Tell) -> Live {
        Live {
            state: Mutex::default(),
            tell,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for who may be in the middle of a call that has it: waits a short time only.
    pub(super) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
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
    /// As [`Offer::new`].
    pub fn offer(&self, kernel: &mut Kernel, pid: Option<u32>) -> Result<Offer, OfferError> {
        // Another one may have come since it asked whether it may launch.
        match kernel.programs_for(pid).1 && self.runs() {
            true => Err(OfferError::NotAlone { pid }),
            false => Offer::new(kernel, pid),
        }
    }

    /// One round of the thread: `offer` makes what a new agent is given, in a process of this
    /// number if that is known. True if something came.
    pub fn round(&self, offer: &mut dyn FnMut(Option<u32>) -> Result<Offer, OfferError>) -> bool {
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
                Err(error) => {
                    (self.tell)(&error.to_string());
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
        let mut agent = Agent::new(connection, offer, pid, given);
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
