//! The answering side: the tool hears commands and second tools, and asks the agent where it must.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use warpbpf_wire::{Acceptor, WireError};

use super::clients::{Clients, Joining};
use super::protocol::{ProcessInfo, Reply, Request, SOCKET, ServerConnection, SessionInfo, failed};
use super::replace::{self, Pending};
use crate::error::Error;
use crate::handles::process::Process;
use crate::object::Object;

/// How long the agent may take to answer an operation of a command: its own limit for one on the
/// device, 2 s, and some. The thread that waits is the one that begins handshakes with
/// applications, which themselves wait only 10 s.
const AGENT: Duration = Duration::from_secs(3);
/// How long a command may take to read its answer.
const READING: Duration = Duration::from_secs(1);
/// After this long, requests that are left wait until applications have been heard.
const TURN: Duration = Duration::from_secs(1);
/// Commands that are let in at once; others wait for the next turn.
const LET_IN: usize = 32;
/// Commands that may be connected and ask nothing for longer than this: each has a descriptor,
/// which applications lack.
const MOST_IDLE: usize = 64;
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 2000 });
/// The answering side.
#[derive(Debug)]
pub(crate) struct Server {
    acceptor: Acceptor,
    requesters: Vec<Requester>,
    clients: Clients,
}

/// A command, and what it waits for.
#[derive(Debug)]
struct Requester {
    connection: ServerConnection,
    waits: Option<Waits>,
    /// When it asked something, or came.
    heard: Instant,
}

impl Requester {
    fn is_idle(&self) -> bool {
        self.waits.is_none() && self.heard.elapsed() > IDLE
    }
}

/// What a command waits for.
#[derive(Debug)]
enum Waits {
    Replace(Pending),
    Join(Joining),
}

impl Waits {
    /// The answer, and the descriptor that goes with it, if it is there.
    fn answer(&mut self, clients: &mut Clients) -> Option<(Reply, Option<OwnedFd>)> {
        match self {
            Waits::Replace(pending) => Some((pending.answer()?, None)),
            Waits::Join(joining) => clients.join(joining),
        }
    }
}

impl Server {
    /// Listens beside the agents' socket.
    pub(crate) fn bind(agents: &Path) -> Result<Server, WireError> {
        Ok(Server {
            acceptor: Acceptor::bind(&agents.with_file_name(SOCKET))?,
            requesters: Vec::new(),
            clients: Clients::default(),
        })
    }

    pub(crate) fn sockets<'s>(&'s self, into: &mut Vec<BorrowedFd<'s>>) {
        into.push(self.acceptor.as_fd());
        into.extend(
            self.requesters
                .iter()
                .filter_map(|requester| requester.connection.socket().ok()),
        );
        self.clients.sockets(into);
    }

    /// The tool ends: who has programs beside its own is told what there is, and that it ends.
    pub(crate) fn farewell(&mut self) {
        self.clients.farewell(READING);
    }

    /// Answers what was asked, until it has taken [`TURN`]: at most [`AGENT`] and [`READING`]
    /// longer. A command that does not keep to the protocol, or is gone, is dropped.
    pub(crate) fn turn(
        &mut self,
        processes: &[Process],
        command: &[String],
        object: Option<&Object>,
    ) {
        for _ in 0..LET_IN {
            let Ok(Some(socket)) = self.acceptor.accept() else {
                break;
            };
            if let Ok(connection) = ServerConnection::new(socket) {
                self.requesters.push(Requester {
                    connection,
                    waits: None,
                    heard: Instant::now(),
                });
            }
        }
        let end = Instant::now() + TURN;
        let clients = &mut self.clients;
        self.requesters.retain_mut(|requester| {
            loop {
                if Instant::now() > end {
                    return true;
                }
                let connection = &mut requester.connection;
                if let Some(waits) = &mut requester.waits {
                    let Some((reply, fd)) = waits.answer(clients) else {
                        return true;
                    };
                    requester.waits = None;
                    if connection
                        .send(&reply, &[], fd.map(Into::into), READING)
                        .is_err()
                    {
                        return false;
                    }
                }
                match connection.try_recv() {
                    Ok(Some(frame)) => {
                        requester.heard = Instant::now();
                        let of = |number: u32| own(processes, number);
                        let begun = match &frame.message {
                            Request::Replace(request) => {
                                let process = of(request.process);
                                let begun = Pending::begin(process, request, &frame.blob);
                                Some(begun.map(Waits::Replace))
                            }
                            Request::Join(request) => {
                                let process = of(request.process);
                                let begun = clients.begin(process, request, &frame.blob);
                                Some(begun.map(Waits::Join))
                            }
                            Request::Session | Request::Memory { .. } | Request::MapOps { .. } => {
                                None
                            }
                        };
                        let (reply, blob, fd) = match begun {
                            Some(Ok(waits)) => {
                                requester.waits = Some(waits);
                                return true;
                            }
                            Some(Err(error)) => (failed(&error), Vec::new(), None),
                            None => {
                                let asked = (&frame.message, &frame.blob[..]);
                                answer(asked, (processes, clients), command, object)
                            }
                        };
                        if connection
                            .send(&reply, &blob, fd.map(Into::into), READING)
                            .is_err()
                        {
                            return false;
                        }
                    }
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        });
        self.clients.turn();
        self.part_with_idle();
        // Who asks without end does not keep the others out.
        if Instant::now() > end && !self.requesters.is_empty() {
            self.requesters.rotate_left(1);
        }
    }

    /// Lets those go that ask nothing, the longest idle first, if there are many.
    fn part_with_idle(&mut self) {
        let mut idle: Vec<Instant> = self
            .requesters
            .iter()
            .filter(|c| c.is_idle())
            .map(|c| c.heard)
            .collect();
        let Some(surplus) = idle.len().checked_sub(MOST_IDLE).filter(|n| *n > 0) else {
            return;
        };
        idle.sort_unstable();
        let last = idle[surplus - 1];
        self.requesters
            .retain(|requester| !(requester.is_idle() && requester.heard <= last));
    }
}

/// The application of a number. Where this tool is a second one itself, the first answers.
fn own(processes: &[Process], number: u32) -> Option<&Process> {
    let process = processes.get(number as usize)?;
    Some(process).filter(|process| process.host().is_none())
}

fn answer(
    (request, blob): (&Request, &[u8]),
    (processes, clients): (&[Process], &Clients),
    command: &[String],
    object: Option<&Object>,
) -> (Reply, Vec<u8>, Option<OwnedFd>) {
    let failed = |error: &Error| (failed(error), Vec::new(), None);
    let find = |process: u32| own(processes, process);
    match request {
        Request::Session => {
            let session = SessionInfo {
                tool: std::process::id(),
                command: command.to_vec(),
                object: object.map_or_else(String::new, |o| o.name().to_owned()),
                processes: (0..)
                    .zip(processes)
                    .filter(|(_, process)| process.host().is_none())
                    .map(|each| describe(each, clients))
                    .collect(),
            };
            let bytes = object.map_or_else(Vec::new, |o| o.bytes().to_vec());
            (Reply::Session(session), bytes, None)
        }
        Request::Memory {
            process,
            context,
            part,
        } => {
            let memory = find(*process).and_then(|p| {
                let state = p.lock();
                let context = state.contexts.get(*context as usize)?;
                let all = &context.memory;
                if all.is_empty() && *part == 0 {
                    return Some((1, context.copied(&state.maps).ok()?));
                }
                let parts = all.len() as u32;
                Some((parts, all.get(*part as usize)?.try_clone().ok()?))
            });
            match memory {
                Some((parts, memory)) => (Reply::Memory { parts }, Vec::new(), Some(memory)),
                None => failed(&Error::NotReady { pid: 0 }),
            }
        }
        Request::MapOps { process, map } => match find(*process) {
            Some(process) => match process.map_ops(*map, blob, AGENT) {
                Ok((error, outcomes)) => (Reply::MapOps { error }, outcomes, None),
                Err(error) => failed(&error),
            },
            None => failed(&Error::NotReady { pid: 0 }),
        },
        // Answered when the agent has.
        Request::Replace(_) | Request::Join(_) => failed(&Error::NotReady { pid: 0 }),
    }
}

fn describe((number, process): (u32, &Process), clients: &Clients) -> ProcessInfo {
    let clients = clients.of(process);
    let state = process.lock();
    ProcessInfo {
        process: number,
        pid: state.pid,
        inner_pid: state.inner_pid,
        exe: state.exe.clone(),
        running: state.connection.is_some() && !state.complete,
        maps: state.maps.clone(),
        kernels: state.kernel_names.clone(),
        sites: state.site_names.clone(),
        contexts: state.contexts.iter().map(|c| c.info.clone()).collect(),
        programs: replace::programs(&state),
        generation: state.generation,
        clients,
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::RequesterConnection;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(15);

    #[test]
    fn a_command_that_does_not_read_is_dropped_and_others_are_answered() {
        let listener = warpbpf_wire::Listener::bind(&std::env::temp_dir()).unwrap();
        let mut server = Server::bind(listener.path()).unwrap();
        let path = listener.path().with_file_name(SOCKET);
        let mut deaf = RequesterConnection::connect(&path).unwrap();
        let mut polite = RequesterConnection::connect(&path).unwrap();
        for requester in [&mut deaf, &mut polite] {
            requester
                .send(&Request::Session, &[], None, READING)
                .unwrap();
        }
        // More than a socket holds.
        let command = vec!["x".repeat(2 << 20)];
        let reader = std::thread::spawn(move || polite.recv(PATIENCE).unwrap().unwrap().message);
        let begun = Instant::now();
        while !reader.is_finished() || !server.requesters.is_empty() {
            let turn = Instant::now();
            server.turn(&[], &command, None);
            assert!(turn.elapsed() < TURN + 2 * READING, "{:?}", turn.elapsed());
            assert!(begun.elapsed() < PATIENCE);
        }
        let Reply::Session(session) = reader.join().unwrap() else {
            panic!("another answer");
        };
        assert_eq!(session.command, command);
        assert!(begun.elapsed() >= READING);
    }

    #[test]
    fn commands_that_ask_nothing_are_let_go_if_there_are_many() {
        let listener = warpbpf_wire::Listener::bind(&std::env::temp_dir()).unwrap();
        let mut server = Server::bind(listener.path()).unwrap();
        let path = listener.path().with_file_name(SOCKET);
        let connect = || RequesterConnection::connect(&path).unwrap();
        let mut first = connect();
        let mut silent: Vec<RequesterConnection> = Vec::new();
        for _ in 0..MOST_IDLE + 3 {
            silent.push(connect());
            server.turn(&[], &[], None);
        }
        assert_eq!(server.requesters.len(), MOST_IDLE + 4);
        std::thread::sleep(2 * IDLE);
        // This one has been there for longer, and has something to ask.
        first.send(&Request::Session, &[], None, READING).unwrap();
        server.turn(&[], &[], None);
        assert!(first.recv(READING).unwrap().is_some());
        assert_eq!(server.requesters.len(), MOST_IDLE + 1);
        let gone = silent.iter_mut().filter_map(|c| c.try_recv().err());
        assert_eq!(gone.count(), 3);
        for requester in &mut silent[..3] {
            assert!(matches!(requester.try_recv(), Err(WireError::Closed)));
        }
    }
}
