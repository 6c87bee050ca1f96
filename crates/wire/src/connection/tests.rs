//! What arrives, what is refused, and what is closed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::message::{ToAgent, ToTool};
use crate::{AgentConnection, Options, ToolConnection};

fn pair() -> (AgentConnection, ToolConnection) {
    let (a, b) = UnixStream::pair().unwrap();
    (Connection::new(a).unwrap(), Connection::new(b).unwrap())
}

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn message_blob_and_descriptor_arrive_together() {
    let (mut agent, mut tool) = pair();
    let (mut keep, give) = UnixStream::pair().unwrap();
    let attach = ToAgent::Attach {
        options: Options::default(),
    };
    tool.send(&attach, b"\x7fELF", Some(give.into()), SHORT)
        .unwrap();
    tool.send(&ToAgent::Detach, &[], None, SHORT).unwrap();
    let frame = agent.recv(SHORT).unwrap().unwrap();
    assert_eq!(frame.message, attach);
    assert_eq!(frame.blob, b"\x7fELF");
    let mut other = UnixStream::from(frame.fd.unwrap());
    other.write_all(b"hi").unwrap();
    let mut got = [0; 2];
    keep.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hi");
    let frame = agent.recv(SHORT).unwrap().unwrap();
    assert_eq!(frame.message, ToAgent::Detach);
    assert!(frame.fd.is_none() && frame.blob.is_empty());
    assert!(agent.try_recv().unwrap().is_none());
    assert!(agent.recv(Duration::from_millis(1)).unwrap().is_none());
}

#[test]
fn a_reader_that_sleeps_blocks_nobody_and_gets_all_of_it_later() {
    let (mut agent, mut tool) = pair();
    let blob = vec![7u8; 8 << 20];
    let note = ToTool::MapOps {
        token: 7,
        error: None,
    };
    agent.queue(&note, &blob, None).unwrap();
    assert!(!agent.flush().unwrap());
    assert!(!agent.flush().unwrap());
    let reader = std::thread::spawn(move || tool.recv(Duration::from_secs(10)).unwrap().unwrap());
    while !agent.flush().unwrap() {
        std::thread::yield_now();
    }
    let frame = reader.join().unwrap();
    assert_eq!(frame.message, note);
    assert_eq!(frame.blob, blob);
}

#[test]
fn a_backlog_ends_in_stalled() {
    let (mut agent, _tool) = pair();
    let note = ToTool::Snapshotted { token: 1 };
    let blob = vec![0u8; BACKLOG];
    agent.queue(&note, &blob, None).unwrap();
    let error = agent.queue(&note, &[], None).unwrap_err();
    assert!(matches!(error, WireError::Stalled { bytes } if bytes > BACKLOG));
}

#[test]
fn a_closed_peer_is_closed_for_both_directions() {
    let (mut agent, tool) = pair();
    drop(tool);
    let note = ToTool::Snapshotted { token: 1 };
    assert!(matches!(
        agent.send(&note, &[], None, SHORT),
        Err(WireError::Closed)
    ));
    assert!(matches!(agent.try_recv(), Err(WireError::Closed)));
}

#[test]
fn messages_before_the_close_are_read_first() {
    let (mut agent, mut tool) = pair();
    let bye = ToTool::Bye {
        reason: "exit".into(),
    };
    agent.send(&bye, &[], None, SHORT).unwrap();
    drop(agent);
    assert_eq!(tool.recv(SHORT).unwrap().unwrap().message, bye);
    assert!(matches!(tool.recv(SHORT), Err(WireError::Closed)));
}

fn refuse(bytes: &[u8]) -> String {
    let (mut a, b) = UnixStream::pair().unwrap();
    let mut tool: ToolConnection = Connection::new(b).unwrap();
    a.write_all(bytes).unwrap();
    tool.try_recv().unwrap_err().to_string()
}

fn header(json: u32, blob: u32, fds: u32) -> Vec<u8> {
    [MAGIC, json, blob, fds]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect()
}

#[test]
fn strangers_are_refused() {
    assert_eq!(
        refuse(b"GET / HTTP/1.1\r\n"),
        "the control socket carries something that is no warpbpf frame: it starts with 0x20544547, not 0x46504257"
    );
    assert_eq!(
        refuse(&header(u32::MAX, 0, 0)),
        format!(
            "the message has {} bytes, the limit is {TEXT_LIMIT}",
            u32::MAX
        )
    );
    assert_eq!(
        refuse(&header(2, 0, 9)),
        "the control socket carries something that is no warpbpf frame: it announces 9 descriptors"
    );
    let mut bytes = header(2, 0, 0);
    bytes.extend_from_slice(b"{}");
    assert_eq!(
        refuse(&bytes),
        "the control socket carries something that is no warpbpf frame: missing field `type` at line 1 column 2"
    );
    let mut bytes = header(31, 0, 1);
    bytes.extend_from_slice(br#"{"type":"snapshotted","token":1}"#);
    bytes[4] = 32;
    assert_eq!(
        refuse(&bytes),
        "the control socket carries something that is no warpbpf frame: a descriptor was announced and did not come"
    );
}

#[test]
fn a_blob_that_nobody_expects_is_refused_before_it_is_there() {
    let (mut a, b) = UnixStream::pair().unwrap();
    let mut tool: ToolConnection = Connection::new(b).unwrap();
    let json = br#"{"type":"snapshotted","token":1}"#;
    a.write_all(&header(json.len() as u32, 200 << 20, 0))
        .unwrap();
    assert!(tool.try_recv().unwrap().is_none());
    a.write_all(json).unwrap();
    let error = tool.try_recv().unwrap_err();
    assert!(
        matches!(error, WireError::TooLong { limit: 0, .. }),
        "{error}"
    );
    let too_long = refuse(&header(TEXT_LIMIT as u32 + 1, 0, 0));
    assert!(too_long.ends_with("the limit is 67108864"), "{too_long}");
}

/// Sends bytes with a descriptor so many times.
fn with_descriptors(socket: &UnixStream, bytes: &[u8], given: &UnixStream, count: usize) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let own = vec![std::os::fd::AsFd::as_fd(&given); count];
    assert!(control.push(SendAncillaryMessage::ScmRights(&own)));
    let sent = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::empty(),
    );
    assert_eq!(sent, Ok(bytes.len()));
}

#[test]
fn descriptors_that_no_message_announces_end_it_and_are_closed() {
    let json = br#"{"type":"snapshotted","token":1}"#;
    let frame = |fds| [header(json.len() as u32, 0, fds), json.to_vec()].concat();
    // With a whole message, with half of one, and more than one that was announced.
    for (bytes, count) in [
        (frame(0), 1),
        (frame(0)[..20].to_vec(), 1),
        (frame(1), 2),
        (frame(1), 4),
    ] {
        let (a, b) = UnixStream::pair().unwrap();
        let mut tool: ToolConnection = Connection::new(b).unwrap();
        let (mut keep, give) = UnixStream::pair().unwrap();
        with_descriptors(&a, &bytes, &give, count);
        let error = loop {
            match tool.try_recv() {
                Ok(Some(frame)) => drop(frame),
                Ok(None) => panic!("{count} descriptors were taken in"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(
            error.ends_with("descriptors came that no message announces"),
            "{error}"
        );
        drop((tool, a, give));
        // Nobody has the other end any more.
        assert_eq!(keep.read(&mut [0]).unwrap(), 0);
    }
    // One that was announced is in its frame, also behind another message and in two parts.
    let (mut a, b) = UnixStream::pair().unwrap();
    let mut tool: ToolConnection = Connection::new(b).unwrap();
    a.write_all(&frame(0)).unwrap();
    let announced = frame(1);
    let (_keep, give) = UnixStream::pair().unwrap();
    with_descriptors(&a, &announced[..5], &give, 1);
    assert!(tool.try_recv().unwrap().unwrap().fd.is_none());
    assert!(tool.try_recv().unwrap().is_none());
    a.write_all(&announced[5..]).unwrap();
    assert!(tool.try_recv().unwrap().unwrap().fd.is_some());
    assert!(tool.try_recv().unwrap().is_none());
}

#[test]
fn another_user_is_refused() {
    assert_eq!(
        check_user(1000, 0).unwrap_err().to_string(),
        "the control socket is of a process of user 1000, and this one is of user 0: run both as the same user"
    );
    assert!(check_user(5, 5).is_ok());
}

#[test]
fn a_socket_of_another_user_is_not_connected_to() {
    let own = rustix::process::geteuid();
    let listener = std::env::temp_dir().join(format!("warpbpf-others-{}", std::process::id()));
    let _ = std::fs::remove_file(&listener);
    let socket = std::os::unix::net::UnixListener::bind(&listener).unwrap();
    socket.set_nonblocking(true).unwrap();
    // Who is not root has files of root's.
    let (path, owner) = match own.is_root() {
        true => (listener.as_path(), 54321),
        false => (Path::new("/"), 0),
    };
    if own.is_root() {
        std::os::unix::fs::chown(path, Some(owner), None).unwrap();
    }
    let error = connect_to_own(path).unwrap_err();
    let own = own.as_raw();
    assert!(
        matches!(error, WireError::Peer { peer, own: found } if (peer, found) == (owner, own)),
        "{error}"
    );
    assert!(socket.accept().is_err(), "nobody came");
    std::fs::remove_file(&listener).unwrap();
}

#[test]
fn a_listener_that_takes_nobody_in_is_waited_for_briefly() {
    let folder = std::env::temp_dir().join(format!("warpbpf-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let listener = listener.unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let first = AgentConnection::connect(&path);
    assert!(first.is_ok());
    let error = AgentConnection::connect(&path).unwrap_err().to_string();
    let wanted = format!(
        "cannot connect to the control socket `{}`: Connection timed out (os error 110)",
        path.display()
    );
    assert_eq!(error, wanted);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn connecting_to_nothing_names_the_path() {
    let error = AgentConnection::connect(Path::new("/nonexistent/socket")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot connect to the control socket `/nonexistent/socket`: No such file or directory (os error 2)"
    );
}
