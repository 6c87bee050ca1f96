//! The asking side: one session of some tool.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpbpf_wire::{Change, SharedReader, WireError};

use super::protocol::{
    JoinRequest, ProcessInfo, ReplaceRequest, Reply, Request, RequesterConnection, SessionInfo,
};
use crate::error::Error;
use crate::heard::replacement::Replaced;

/// How long an answer to `warpbpf maps` may take: the agent's patience and some.
const PATIENCE: Duration = Duration::from_secs(15);

/// The asking side: one session of some tool.
#[derive(Debug)]
pub struct Control {
    pub(super) connection: RequesterConnection,
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

    /// Replaces the programs of an application, as [`crate::Process::replace_within`] does:
    /// `object` is its name and its file.
    ///
    /// # Errors
    /// [`Error::Wire`], [`Error::Answered`] and nothing has changed.
    pub fn replace(
        &mut self,
        process: &ProcessInfo,
        change: &Change,
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

pub(super) fn unexpected(reply: Reply) -> Error {
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
