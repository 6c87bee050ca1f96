//! Frames over a stream socket: a 16-byte header, JSON, a blob, at most one file descriptor.
//!
//! The socket never blocks by itself. What cannot be sent at once is kept and sent by the next
//! [`Connection::flush`], so that a tool that is stopped in a debugger does not stop the
//! application.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use warpbpf_descriptor::OwnDescriptor;

use crate::message::{ToAgent, ToTool};
use crate::peer::peer;

/// First four bytes of a frame: `WBPF`.
const MAGIC: u32 = u32::from_le_bytes(*b"WBPF");
/// Bytes of the header: magic, JSON bytes, blob bytes, number of descriptors, each a little-endian
/// u32.
const HEADER: usize = 16;
/// Most blob bytes of any frame. A BPF object or a batch of a map's values is far smaller; more
/// means a stranger talks.
pub const MOST_BLOB: usize = 256 << 20;
/// Most JSON bytes of a frame: it becomes several times as much memory. A list of all kernels of a
/// large application is smaller.
const TEXT_LIMIT: usize = 64 << 20;
/// Descriptors that may be waiting for their frames: that of one which is not whole, and that of
/// the next.
const WAITING: usize = 2;
/// Most bytes kept for a peer that does not read.
const BACKLOG: usize = 64 << 20;

/// How long a listener that takes nobody in is waited for.
const CONNECTING: Duration = Duration::from_secs(2);

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum WireError {
    #[error("the other side of the control socket is gone")]
    Closed,
    #[error(
        "the control socket is of a process of user {peer}, and this one is of user {own}: run both as the same user"
    )]
    Peer { peer: u32, own: u32 },
    #[error("the control socket carries something that is no warpbpf frame: {what}")]
    Frame { what: String },
    #[error("the message has {bytes} bytes, the limit is {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("the other side has not read the last {bytes} bytes of messages")]
    Stalled { bytes: usize },
    #[error("nothing was heard from the other side for {seconds} s")]
    Timeout { seconds: u64 },
    #[error("cannot {what} the control socket `{path}`: {errno}")]
    Path {
        what: &'static str,
        path: String,
        errno: Errno,
    },
    #[error("`{path}` is there already: another tool is found by it, or it is no link to one")]
    Occupied { path: String },
    #[error("the control socket failed in `{call}`: {errno}")]
    Os { call: &'static str, errno: Errno },
}

/// What may come with a message.
pub trait Message {
    /// Most bytes of its blob.
    fn most_blob(&self) -> usize;
}

impl Message for ToAgent {
    fn most_blob(&self) -> usize {
        MOST_BLOB
    }
}

impl Message for ToTool {
    fn most_blob(&self) -> usize {
        match self {
            ToTool::MapOps { .. } => MOST_BLOB,
            _ => 0,
        }
    }
}

/// Nothing is said.
impl Message for () {
    fn most_blob(&self) -> usize {
        0
    }
}

/// The agent's end of a connection.
pub type AgentConnection = Connection<ToTool, ToAgent>;
/// The tool's end of a connection.
pub type ToolConnection = Connection<ToAgent, ToTool>;

/// A received message.
#[derive(Debug)]
pub struct Frame<R> {
    /// What it says.
    pub message: R,
    /// The bytes that came with it.
    pub blob: Vec<u8>,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
    /// Bytes of its text.
    pub bytes: usize,
}

struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fd: Option<OwnDescriptor>,
}

/// One end: sends `S`, receives `R`.
pub struct Connection<S, R> {
    socket: OwnDescriptor,
    inbox: Vec<u8>,
    /// The message at the front of the inbox, whose blob is not there yet.
    begun: Option<R>,
    descriptors: VecDeque<OwnedFd>,
    outbox: VecDeque<Outgoing>,
    backlog: usize,
    messages: PhantomData<fn(S) -> R>,
}

impl<S, R> std::fmt::Debug for Connection<S, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("socket", &self.socket)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

impl<S: Serialize, R: DeserializeOwned + Message> Connection<S, R> {
    /// Connects to a listener's path and checks who is there.
    pub fn connect(path: &Path) -> Result<Connection<S, R>, WireError> {
        Connection::new(connect_to_own(path)?)
    }

    /// Takes a connected unix stream socket. Fails if the peer runs as another user.
    pub fn new(socket: impl Into<OwnDescriptor>) -> Result<Connection<S, R>, WireError> {
        let socket = socket.into();
        let credentials = fault("wire/peercred", Errno::NOPROTOOPT)
            .and_then(|()| peer(socket.here()?))
            .map_err(|errno| WireError::Os {
                call: "getsockopt(SO_PEERCRED)",
                errno,
            })?;
        check_user(credentials.uid, rustix::process::geteuid().as_raw())?;
        Connection::trusted(socket)
    }

    /// Takes one end of a pair that was made for this: whoever has the other end was chosen by us.
    pub fn trusted(socket: impl Into<OwnDescriptor>) -> Result<Connection<S, R>, WireError> {
        let socket = socket.into();
        fault("wire/nonblocking", Errno::NOTTY)
            .and_then(|()| rustix::io::ioctl_fionbio(socket.here()?, true))
            .map_err(|errno| WireError::Os {
                call: "ioctl(FIONBIO)",
                errno,
            })?;
        Ok(Connection {
            socket,
            inbox: Vec::new(),
            begun: None,
            descriptors: VecDeque::new(),
            outbox: VecDeque::new(),
            backlog: 0,
            messages: PhantomData,
        })
    }

    /// One end of a new pair, and the other, to be given away.
    pub fn pair() -> Result<(Connection<S, R>, OwnedFd), WireError> {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let (own, other) = pair.map_err(|errno| WireError::Os {
            call: "socketpair",
            errno,
        })?;
        Ok((Connection::trusted(own)?, other))
    }

    /// Keeps a message for [`Connection::flush`].
    pub fn queue(
        &mut self,
        message: &S,
        blob: &[u8],
        fd: Option<OwnDescriptor>,
    ) -> Result<(), WireError> {
        warpbpf_faults::check("wire/too-long", || WireError::TooLong {
            bytes: MOST_BLOB + 1,
            limit: MOST_BLOB,
        })?;
        let json = serde_json::to_vec(message).map_err(|error| WireError::Frame {
            what: error.to_string(),
        })?;
        check_lengths(json.len(), blob.len())?;
        if self.backlog > BACKLOG || warpbpf_faults::strikes("wire/stalled") {
            return Err(WireError::Stalled {
                bytes: self.backlog,
            });
        }
        let mut bytes = Vec::with_capacity(HEADER + json.len() + blob.len());
        for word in [
            MAGIC,
            json.len() as u32,
            blob.len() as u32,
            u32::from(fd.is_some()),
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(blob);
        self.backlog += bytes.len();
        self.outbox.push_back(Outgoing { bytes, sent: 0, fd });
        Ok(())
    }

    /// Bytes of messages that the socket has not taken yet.
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Sends what the socket takes now. True when nothing is left.
    pub fn flush(&mut self) -> Result<bool, WireError> {
        while let Some(front) = self.outbox.front_mut() {
            match send_some(&self.socket, front) {
                Ok(n) => {
                    front.sent += n;
                    self.backlog -= n;
                    front.fd = None;
                    if front.sent == front.bytes.len() {
                        self.outbox.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::BADF) => {
                    return Err(WireError::Closed);
                }
                Err(errno) => {
                    return Err(WireError::Os {
                        call: "sendmsg",
                        errno,
                    });
                }
            }
        }
        Ok(true)
    }

    /// Sends a message and waits until the socket has taken all of it.
    pub fn send(
        &mut self,
        message: &S,
        blob: &[u8],
        fd: Option<OwnDescriptor>,
        timeout: Duration,
    ) -> Result<(), WireError> {
        self.queue(message, blob, fd)?;
        let end = Instant::now() + timeout;
        while !self.flush()? {
            if !self.wait(PollFlags::OUT, end)? {
                return Err(WireError::Timeout {
                    seconds: timeout.as_secs(),
                });
            }
        }
        Ok(())
    }

    /// The next message if it is there already.
    pub fn try_recv(&mut self) -> Result<Option<Frame<R>>, WireError> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next message; `None` when `timeout` passed without one.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Frame<R>>, WireError> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(frame) = self.try_recv()? {
                return Ok(Some(frame));
            }
            if !self.wait(PollFlags::IN, end)? {
                return Ok(None);
            }
        }
    }

    /// Waits for `interest` or a hang-up until `end`.
    fn wait(&self, interest: PollFlags, end: Instant) -> Result<bool, WireError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // Also where `poll` says that there is something and there never is.
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut set = [PollFd::from_borrowed_fd(self.socket()?, interest)];
            let polled = fault("wire/poll", Errno::NOMEM)
                .and_then(|()| fault("wire/poll-interrupted", Errno::INTR))
                .and_then(|()| poll(&mut set, Some(&timeout)));
            match polled {
                Ok(n) => return Ok(n > 0),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(WireError::Os {
                        call: "poll",
                        errno,
                    });
                }
            }
        }
    }

    /// Reads what is there; false when there is nothing.
    fn fill(&mut self) -> Result<bool, WireError> {
        let mut buffer = [0u8; 16384];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        loop {
            let received = faults_of_recv().and_then(|()| {
                recvmsg(
                    self.socket.here()?,
                    &mut [IoSliceMut::new(&mut buffer)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )
            });
            match received {
                Ok(message) => {
                    for part in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = part {
                            self.descriptors.extend(fds);
                        }
                    }
                    if self.descriptors.len() > WAITING {
                        return Err(unannounced());
                    }
                    if message.bytes == 0 {
                        return Err(WireError::Closed);
                    }
                    self.inbox.extend_from_slice(&buffer[..message.bytes]);
                    return Ok(true);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET | Errno::BADF) => return Err(WireError::Closed),
                Err(errno) => {
                    return Err(WireError::Os {
                        call: "recvmsg",
                        errno,
                    });
                }
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<Frame<R>>, WireError> {
        let Some(header) = self.inbox.first_chunk::<HEADER>() else {
            // The beginning of a header may announce one.
            return self.waits_for(usize::from(!self.inbox.is_empty()));
        };
        let word = |i: usize| {
            u32::from_le_bytes([
                header[i * 4],
                header[i * 4 + 1],
                header[i * 4 + 2],
                header[i * 4 + 3],
            ])
        };
        if word(0) != MAGIC || warpbpf_faults::strikes("wire/frame") {
            return Err(WireError::Frame {
                what: format!("it starts with {:#010x}, not {MAGIC:#010x}", word(0)),
            });
        }
        let (json, blob, fds) = (word(1) as usize, word(2) as usize, word(3));
        check_lengths(json, blob)?;
        if fds > 1 {
            return Err(WireError::Frame {
                what: format!("it announces {fds} descriptors"),
            });
        }
        let (begin, end) = (HEADER + json, HEADER + json + blob);
        if self.begun.is_none() && self.inbox.len() >= begin {
            // Half of a message is none.
            let cut = usize::from(warpbpf_faults::strikes("wire/parse")) * (json / 2);
            let message: R =
                serde_json::from_slice(&self.inbox[HEADER..begin - cut]).map_err(|error| {
                    WireError::Frame {
                        what: error.to_string(),
                    }
                })?;
            // Before anything of it is taken in.
            let most = message.most_blob();
            if blob > most {
                return Err(WireError::TooLong {
                    bytes: blob,
                    limit: most,
                });
            }
            self.begun = Some(message);
        }
        if self.inbox.len() < end {
            return self.waits_for(fds as usize);
        }
        let Some(message) = self.begun.take() else {
            return Ok(None);
        };
        let fd = if fds == 1 {
            let fd = self.descriptors.pop_front();
            Some(fd.ok_or_else(|| WireError::Frame {
                what: "a descriptor was announced and did not come".into(),
            })?)
        } else {
            None
        };
        let blob = self.inbox[begin..end].to_vec();
        self.inbox.drain(..end);
        // What was taken for a large message is given back.
        self.inbox.shrink_to(LEFT);
        Ok(Some(Frame {
            message,
            blob,
            fd,
            bytes: json,
        }))
    }

    /// Nothing whole is there. A descriptor comes with the first byte of its frame, so more of them
    /// than the frame announces are nobody's.
    fn waits_for(&self, announced: usize) -> Result<Option<Frame<R>>, WireError> {
        match self.descriptors.len() > announced {
            true => Err(unannounced()),
            false => Ok(None),
        }
    }
}

impl<S, R> Connection<S, R> {
    /// The socket, to wait for.
    ///
    /// # Errors
    /// [`WireError::Closed`]: the process has closed it.
    pub fn socket(&self) -> Result<BorrowedFd<'_>, WireError> {
        self.socket.get().ok_or(WireError::Closed)
    }

    /// The process at the other end, if it can be seen from here.
    pub fn process(&self) -> Option<u32> {
        peer(self.socket.get()?).ok()?.pid
    }
}

/// Bytes of the inbox that stay there for the next message.
const LEFT: usize = 1 << 20;

fn check_lengths(json: usize, blob: usize) -> Result<(), WireError> {
    let too_long = |bytes, limit| Err(WireError::TooLong { bytes, limit });
    match (json > TEXT_LIMIT, blob > MOST_BLOB) {
        (true, _) => too_long(json, TEXT_LIMIT),
        (false, true) => too_long(blob, MOST_BLOB),
        (false, false) => Ok(()),
    }
}

fn unannounced() -> WireError {
    WireError::Frame {
        what: "descriptors came that no message announces".into(),
    }
}

/// The error of a call that a test makes fail.
fn fault(site: &'static str, errno: Errno) -> Result<(), Errno> {
    warpbpf_faults::check(site, || errno)
}

fn faults_of_recv() -> Result<(), Errno> {
    fault("wire/receive", Errno::NOMEM)?;
    fault("wire/receive-closed", Errno::CONNRESET)?;
    fault("wire/receive-later", Errno::AGAIN)?;
    fault("wire/receive-interrupted", Errno::INTR)
}

/// Connects to a socket of this user's, by its path. Nobody else's is asked for anything: its owner
/// could let this process wait. Nor is a listener waited for that takes nobody in, for longer than
/// two seconds. The socket does not block.
///
/// # Errors
/// [`WireError::Path`]: there is none, or nobody takes connections. [`WireError::Peer`]: it belongs
/// to another user.
pub fn connect_to_own(path: &Path) -> Result<OwnedFd, WireError> {
    let failed = |errno| WireError::Path {
        what: "connect to",
        path: path.display().to_string(),
        errno,
    };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let file = rustix::fs::stat(path).map_err(failed)?;
    check_user(file.st_uid, rustix::process::geteuid().as_raw())?;
    fault("wire/socket", Errno::MFILE).map_err(failed)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(failed)?;
    let socket = OwnDescriptor::new(socket);
    let end = Instant::now() + CONNECTING;
    loop {
        let done = fault("wire/connect", Errno::CONNREFUSED);
        match done.and_then(|()| connect(socket.here()?, &address)) {
            Ok(()) => return socket.into_fd().map_err(failed),
            // Its queue is full.
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(CONNECTING / 400),
            Err(Errno::AGAIN) => return Err(failed(Errno::TIMEDOUT)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

fn check_user(peer: u32, own: u32) -> Result<(), WireError> {
    if peer == own {
        Ok(())
    } else {
        Err(WireError::Peer { peer, own })
    }
}

fn send_some(socket: &OwnDescriptor, frame: &Outgoing) -> Result<usize, Errno> {
    fault("wire/send", Errno::NOBUFS)?;
    fault("wire/send-closed", Errno::PIPE)?;
    fault("wire/send-full", Errno::AGAIN)?;
    fault("wire/send-interrupted", Errno::INTR)?;
    let mut end = frame.bytes.len();
    if warpbpf_faults::strikes("wire/send-part") {
        end = frame.sent + 1;
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = match &frame.fd {
        // The application has closed it.
        Some(fd) => Some([fd.here()?]),
        None => None,
    };
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(
        socket.here()?,
        &[IoSlice::new(&frame.bytes[frame.sent..end])],
        &mut control,
        SendFlags::NOSIGNAL,
    )
}

#[cfg(test)]
mod tests;
