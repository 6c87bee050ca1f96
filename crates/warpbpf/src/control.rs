//! How a second command reaches the maps of a session: a socket beside the one for agents, in the
//! folder that only this user may enter. The tool answers, and asks the agent where it must.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpbpf_wire::{
    Acceptor, Connection, ContextInfo, MOST_BLOB, MapInfo, Message, SharedReader, WireError,
};

use crate::error::Error;
use crate::object::Object;
use crate::process::Process;
use crate::replace::Replaced;

mod asked;
mod clients;
mod find;
mod replace;

pub(crate) use asked::Asker;
pub use asked::{Answered, Asked, TOOL_PATIENCE};
pub use clients::{ClientInfo, JoinRequest};
use clients::{Clients, Joining};
use replace::Pending;
pub use replace::{ProgramInfo, ReplaceRequest};
pub use warpbpf_wire::Change as ProgramChange;

/// How long an answer to `warpbpf maps` may take: the agent's patience and some.
const PATIENCE: Duration = Duration::from_secs(15);
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
/// Name of the socket in a session's folder.
const SOCKET: &str = "maps";
/// How the folders of sessions begin.
const FOLDER: &str = "warpbpf-";

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// What is there.
    Session,
    /// The shared memory of a process, in one of its contexts.
    Memory {
        /// Which one.
        process: u32,
        /// The place in [`ProcessInfo::contexts`].
        #[serde(default)]
        context: u32,
        /// That of the first maps, or of those that came by the first replacement that brought
        /// some, and so on.
        #[serde(default)]
        part: u32,
    },
    /// Operations on a map; the blob is a batch.
    MapOps {
        /// Which one.
        process: u32,
        /// Index of the map.
        map: u32,
    },
    /// Programs are to be replaced.
    Replace(ReplaceRequest),
    /// A second tool wants to have programs in an application; the blob is the object file.
    Join(Box<JoinRequest>),
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Session`]; the blob is the object file.
    Session(SessionInfo),
    /// To [`Request::Memory`]; the descriptor is the memory's.
    Memory {
        /// How many parts there are.
        #[serde(default)]
        parts: u32,
    },
    /// To [`Request::MapOps`]; the blob holds the outcomes.
    MapOps {
        /// Why there are none.
        error: Option<String>,
    },
    /// To [`Request::Replace`]: as [`Replaced`].
    Replaced {
        /// How many sets of programs there were.
        generation: u64,
        /// The programs that are there now.
        programs: Vec<String>,
        /// Kernels that run without, and why.
        without: Vec<(String, String)>,
        /// Programs in slots.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        slots: Vec<String>,
    },
    /// To [`Request::Join`]; the descriptor is the second tool's connection, at whose other end is
    /// what an agent would be.
    Joined {
        /// Its number.
        client: u32,
    },
    /// It cannot be answered.
    Failed {
        /// Why.
        message: String,
        /// Linux's number for it, negative.
        errno: i32,
    },
}

/// A session of some tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Process id of the tool.
    pub tool: u32,
    /// What it started, if it did.
    pub command: Vec<String>,
    /// Name of the object.
    pub object: String,
    /// The applications in it.
    pub processes: Vec<ProcessInfo>,
}

/// An application in a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// What requests call it.
    pub process: u32,
    /// Its process id, as the tool sees it.
    pub pid: u32,
    /// Its process id as it sees itself, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Path of its executable.
    pub exe: String,
    /// It still runs.
    pub running: bool,
    /// Its maps, in the object's order; empty before they exist.
    pub maps: Vec<MapInfo>,
    /// Names of kernels by number.
    pub kernels: Vec<String>,
    /// Names of sites by number.
    pub sites: Vec<String>,
    /// The contexts that have maps of their own, in their order.
    #[serde(default)]
    pub contexts: Vec<ContextInfo>,
    /// The programs in its kernels.
    #[serde(default)]
    pub programs: Vec<ProgramInfo>,
    /// How many sets of programs it has had.
    #[serde(default)]
    pub generation: u64,
    /// Other tools that have programs in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientInfo>,
}

impl Message for Request {
    fn most_blob(&self) -> usize {
        MOST_BLOB
    }
}

impl Message for Reply {
    fn most_blob(&self) -> usize {
        MOST_BLOB
    }
}

type ServerConnection = Connection<Reply, Request>;
type RequesterConnection = Connection<Request, Reply>;

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

fn failed(error: &Error) -> Reply {
    Reply::Failed {
        message: error.to_string(),
        errno: error.errno(),
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

/// The asking side: one session of some tool.
#[derive(Debug)]
pub struct Control {
    connection: RequesterConnection,
    path: PathBuf,
}

impl Control {
    /// The session behind a socket.
    ///
    /// # Errors
    /// [`Error::Wire`]: nobody answers there.
    pub fn connect(path: &Path) -> Result<Control, Error> {
        Ok(Control {
            connection: RequesterConnection::connect(path)?,
            path: path.to_owned(),
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the programs of an application, as [`Process::replace_within`] does: `object` is
    /// its name and its file.
    ///
    /// # Errors
    /// [`Error::Wire`], [`Error::Answered`] and nothing has changed.
    pub fn replace(
        &mut self,
        process: &ProcessInfo,
        change: &ProgramChange,
        object: Option<(&str, &[u8])>,
        limit: Duration,
    ) -> Result<Replaced, Error> {
        let (name, bytes) = object.unwrap_or(("", &[]));
        let request = Request::Replace(ReplaceRequest {
            process: process.process,
            change: change.clone(),
            name: name.to_owned(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        });
        match self.ask_for(&request, bytes, limit + PATIENCE)?.0 {
            Reply::Replaced {
                generation,
                programs,
                without,
                slots,
            } => Ok(Replaced {
                generation,
                programs,
                without,
                slots,
            }),
            Reply::Failed { message, errno } => Err(Error::Answered { message, errno }),
            other => Err(unexpected(other)),
        }
    }

    /// Asks to have a second tool's programs put into an application, without waiting.
    pub(crate) fn begin_join(&mut self, request: JoinRequest, object: &[u8]) -> Result<(), Error> {
        let request = Request::Join(Box::new(request));
        self.connection.queue(&request, object, None)?;
        self.connection.flush()?;
        Ok(())
    }

    /// What became of that, if it is known: the second tool's connection, by which it hears what it
    /// would of an agent.
    pub(crate) fn joined(&mut self) -> Result<Option<OwnedFd>, Error> {
        self.connection.flush()?;
        let Some(frame) = self.connection.try_recv()? else {
            return Ok(None);
        };
        match (frame.message, frame.fd) {
            (Reply::Joined { .. }, Some(connection)) => Ok(Some(connection)),
            (Reply::Failed { message, errno }, _) => Err(Error::Answered { message, errno }),
            (other, _) => Err(unexpected(other)),
        }
    }

    fn ask(
        &mut self,
        request: &Request,
        blob: &[u8],
    ) -> Result<(Reply, Vec<u8>, Option<OwnedFd>), Error> {
        self.ask_for(request, blob, PATIENCE)
    }

    fn ask_for(
        &mut self,
        request: &Request,
        blob: &[u8],
        patience: Duration,
    ) -> Result<(Reply, Vec<u8>, Option<OwnedFd>), Error> {
        self.connection.send(request, blob, None, PATIENCE)?;
        let frame = self.connection.recv(patience)?;
        let frame = frame.ok_or(Error::Wire(WireError::Timeout {
            seconds: patience.as_secs(),
        }))?;
        Ok((frame.message, frame.blob, frame.fd))
    }

    /// What is in it, and the object file.
    ///
    /// # Errors
    /// [`Error::Wire`].
    pub fn session(&mut self) -> Result<(SessionInfo, Vec<u8>), Error> {
        match self.ask(&Request::Session, &[])? {
            (Reply::Session(session), object, _) => Ok((session, object)),
            (other, ..) => Err(unexpected(other)),
        }
    }

    /// The shared memory of a process in one of its contexts: map snapshots, to be read while or
    /// after it runs. Its events belong to the tool.
    ///
    /// # Errors
    /// [`Error::Wire`], [`Error::Shared`].
    #[doc(hidden)]
    pub fn memory(&mut self, process: u32, context: u32) -> Result<SharedReader, Error> {
        let (mut memory, parts) = self.part(process, context, 0)?;
        for part in 1..parts {
            memory.append(self.part(process, context, part)?.0);
        }
        Ok(memory)
    }

    /// A part of it, and how many there are.
    fn part(
        &mut self,
        process: u32,
        context: u32,
        part: u32,
    ) -> Result<(SharedReader, u32), Error> {
        let request = Request::Memory {
            process,
            context,
            part,
        };
        match self.ask(&request, &[])? {
            (Reply::Memory { parts }, _, Some(fd)) => Ok((SharedReader::open(fd)?, parts)),
            (other, ..) => Err(unexpected(other)),
        }
    }

    /// Operations on a map, in order: an outcome for each.
    ///
    /// # Errors
    /// [`Error::Wire`], [`Error::Answer`], [`Error::Map`], [`Error::Ended`].
    pub fn operate(
        &mut self,
        process: &ProcessInfo,
        map: u32,
        ops: &[warpbpf_wire::MapOp<'_>],
    ) -> Result<Vec<warpbpf_wire::Outcome>, Error> {
        let request = Request::MapOps {
            process: process.process,
            map,
        };
        let name = process.maps.get(map as usize).map_or("", |m| &m.name);
        match self.ask(&request, &warpbpf_wire::encode_ops(ops))? {
            (Reply::MapOps { error: None }, blob, _) => Ok(warpbpf_wire::decode_outcomes(&blob)?),
            (
                Reply::MapOps {
                    error: Some(message),
                },
                ..,
            ) => Err(Error::Map {
                map: name.to_owned(),
                message,
            }),
            (Reply::Failed { errno, .. }, ..)
                if errno == -rustix::io::Errno::NODEV.raw_os_error() =>
            {
                Err(Error::Ended { pid: process.pid })
            }
            (other, ..) => Err(unexpected(other)),
        }
    }
}

fn unexpected(reply: Reply) -> Error {
    let what = match reply {
        Reply::Failed { message, .. } => message,
        Reply::Session(_)
        | Reply::Memory { .. }
        | Reply::MapOps { .. }
        | Reply::Joined { .. }
        | Reply::Replaced { .. } => "the answer is to another question".to_owned(),
    };
    Error::Wire(WireError::Frame { what })
}

#[cfg(test)]
mod tests {
    use super::*;

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
