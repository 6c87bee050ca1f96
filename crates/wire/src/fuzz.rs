//! Bytes from another process: whoever has the other end of a socket, or of shared memory, may send
//! anything.

use std::io::{IoSlice, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, socketpair};
use warpbpf_fuzz::{Bounds, Target};

use crate::message::{Hello, KernelCount};
use crate::{
    AgentConnection, Change, ContextInfo, Counts, Kernel, LastCopy, LaunchKind, LaunchReader,
    LaunchRow, LaunchWriter, MapOp, MoreMaps, NoteLevel, OpCode, Operations, Options, Outcome,
    Ranges, SharedReader, SharedWriter, Sites, ToAgent, ToTool, ToolConnection, decode_ops,
    decode_outcomes, encode_ops, encode_outcomes,
};

/// Messages of many kinds.
fn to_agent() -> Vec<ToAgent> {
    let options = Options {
        threads: Some(1 << 20),
        max_registers: Some(40),
        map_memory: vec![("m".into(), crate::Placement::Host)],
        ..Options::default()
    };
    let change = Change::Join {
        client: 2,
        options: Box::new(options.clone()),
    };
    vec![
        ToAgent::Attach { options },
        ToAgent::Snapshot { token: u64::MAX },
        ToAgent::Preset { map: "m".into() },
        ToAgent::MapOps { token: 1, map: 0 },
        ToAgent::Change {
            token: 2,
            change,
            limit_ms: 1000,
        },
        ToAgent::Change {
            token: 3,
            change: Change::Remove {
                programs: vec!["a".into(), "b".into()],
            },
            limit_ms: 0,
        },
    ]
}

fn to_tool() -> Vec<ToTool> {
    let hello = Hello {
        protocol: crate::PROTOCOL,
        pid: 7,
        exe: "/a/b".into(),
        argv: vec!["b".into(), "-c".into()],
        device: None,
    };
    let counts = Counts {
        kernels: vec![KernelCount {
            mangled: "k".into(),
            launches: u64::MAX,
            uninstrumented: 1,
            skipped: 0,
            contexts: vec![(0, 1), (1, 2)],
            unwanted: 0,
            generations: vec![(1, 2)],
            programs: vec![("p".into(), 3)],
            context_programs: Vec::new(),
        }],
        clients: Vec::new(),
    };
    vec![
        ToTool::Hello(hello),
        ToTool::Launches,
        ToTool::Context(ContextInfo::default()),
        ToTool::Maps(MoreMaps::default()),
        ToTool::Kernel(Kernel::default()),
        ToTool::Sites(Sites::default()),
        ToTool::Note {
            level: NoteLevel::Warning,
            text: "a\nb".into(),
            clients: vec![1],
        },
        ToTool::Counts(counts),
        ToTool::Operations(Operations::default()),
        ToTool::Ranges(Ranges::default()),
        ToTool::MapOps {
            token: 1,
            error: None,
        },
        ToTool::Leaving { silent: true },
        ToTool::Bye {
            reason: "exit".into(),
        },
    ]
}

/// A frame as it goes over the socket.
fn frame(json: &[u8], blob: &[u8]) -> Vec<u8> {
    let mut bytes = b"WBPF".to_vec();
    for word in [json.len() as u32, blob.len() as u32, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(json);
    bytes.extend(blob);
    bytes
}

fn ops() -> Vec<u8> {
    let op = |code, key, value| MapOp {
        code,
        flags: 1,
        key,
        value,
    };
    encode_ops(&[
        op(OpCode::Update, &[1, 2, 3, 4], &[5; 8]),
        op(OpCode::Lookup, &[1, 2, 3, 4], &[]),
        op(OpCode::Pop, &[], &[]),
    ])
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Everything that comes of these bytes, until the connection is over.
fn receive<S, R>(
    bytes: &[u8],
    end: fn(OwnedFd) -> Result<crate::Connection<S, R>, crate::WireError>,
) where
    S: serde::Serialize,
    R: serde::de::DeserializeOwned + crate::Message,
{
    let (ours, theirs) = pair();
    let mut connection = end(ours).unwrap();
    for part in bytes.chunks(4096) {
        rustix::net::sendmsg(
            &theirs,
            &[IoSlice::new(part)],
            &mut rustix::net::SendAncillaryBuffer::new(&mut []),
            SendFlags::NOSIGNAL,
        )
        .unwrap();
        while let Ok(Some(_)) = connection.try_recv() {}
    }
    rustix::net::shutdown(&theirs, Shutdown::Write).unwrap();
    // Nothing that came leaves it waiting.
    while let Ok(Some(_)) = connection.recv(Duration::from_secs(1)) {}
}

#[test]
fn wire_frames() {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let told = to_tool().into_iter().map(|m| serde_json::to_vec(&m));
    let asked = to_agent().into_iter().map(|m| serde_json::to_vec(&m));
    for json in told.chain(asked) {
        seeds.push(frame(&json.unwrap(), &[]));
    }
    let map_ops = serde_json::to_vec(&ToTool::MapOps {
        token: 1,
        error: None,
    })
    .unwrap();
    let mut two = frame(&map_ops, &encode_outcomes(&[Outcome::failed(-2)]));
    two.extend(frame(&map_ops, &[]));
    seeds.push(two);
    let asked = serde_json::to_vec(&ToAgent::MapOps { token: 1, map: 2 }).unwrap();
    seeds.push(frame(&asked, &ops()));
    let words: &[&[u8]] = &[
        b"WBPF",
        b"\"type\":\"map_ops\"",
        b"{\"type\":\"detach\"}",
        b"[[[[[[[[",
    ];
    Target::new("wire-frames", seeds).words(words).run(|bytes| {
        receive(bytes, AgentConnection::trusted);
        receive(bytes, ToolConnection::trusted);
    });
}

#[test]
fn wire_messages() {
    let told = to_tool().into_iter().map(|m| serde_json::to_vec(&m));
    let asked = to_agent().into_iter().map(|m| serde_json::to_vec(&m));
    let mut seeds: Vec<Vec<u8>> = told.chain(asked).map(Result::unwrap).collect();
    seeds.push(ops());
    seeds.push(encode_outcomes(&[
        Outcome::failed(-2),
        Outcome::done(vec![1, 2, 3]),
    ]));
    let words: &[&[u8]] = &[
        b"null",
        b"18446744073709551616",
        b"-1",
        b"1e400",
        b"[[[[",
        b"\\ud800",
    ];
    Target::new("wire-messages", seeds)
        .words(words)
        .run(|bytes| {
            // What is read is what is written, and reads again as the same.
            if let Ok(message) = serde_json::from_slice::<ToTool>(bytes) {
                let again = serde_json::to_vec(&message).unwrap();
                assert_eq!(serde_json::from_slice::<ToTool>(&again).ok(), Some(message));
            }
            if let Ok(message) = serde_json::from_slice::<ToAgent>(bytes) {
                let again = serde_json::to_vec(&message).unwrap();
                assert_eq!(
                    serde_json::from_slice::<ToAgent>(&again).ok(),
                    Some(message)
                );
            }
            if let Ok(ops) = decode_ops(bytes) {
                assert_eq!(decode_ops(&encode_ops(&ops)).as_ref(), Ok(&ops));
            }
            if let Ok(outcomes) = decode_outcomes(bytes) {
                let again = encode_outcomes(&outcomes);
                assert_eq!(decode_outcomes(&again).as_ref(), Ok(&outcomes));
            }
        });
}

/// A file as an agent shares it: sealed, with these bytes.
fn shared(bytes: &[u8]) -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create(c"fuzz", flags).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).unwrap();
    let fd = OwnedFd::from(file);
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    fd
}

/// What a writer has written, without pages that are all zero at its end: those come back before it
/// is read.
fn written() -> Vec<Vec<u8>> {
    use std::io::{Read as _, Seek as _};
    let mut all = Vec::new();
    for with_chunk in [false, true] {
        let (mut writer, fd) = SharedWriter::create(&[13, 0, 64], 4096).unwrap();
        writer.publish(0, &[7; 13]).unwrap();
        writer.publish(2, &[9; 64]).unwrap();
        for n in 0..4u32 {
            assert!(writer.push(n % 3, n, &[n as u8; 40]));
        }
        if with_chunk {
            let mut chunks = writer.chunks();
            let spans = chunks.reserve(1, 2, 64).unwrap();
            let mut records = [0u8; 64];
            records[..4].copy_from_slice(&16u32.to_le_bytes());
            records[24..28].copy_from_slice(&32u32.to_le_bytes());
            let mut from = &records[..];
            for span in spans {
                let (part, rest) = from.split_at(span.bytes as usize);
                // SAFETY: the span is the writer's own memory, which nobody else uses yet.
                unsafe { span.start.copy_from(part.as_ptr(), part.len()) };
                from = rest;
            }
            chunks.publish();
        }
        let mut file = std::fs::File::from(fd);
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        all.push(bytes);
    }
    all
}

#[test]
fn shared_memory() {
    let numbers: &[&[u8]] = &[&[0xff; 8], &[0; 8], &4096u64.to_le_bytes(), b"wbpfshm\0"];
    // A hostile file may be sparse and large: what is copied out of it is bounded by its own size.
    let bounds = Bounds {
        bytes: 8 << 20,
        per_byte: 8,
        ..Bounds::default()
    };
    let target = Target::new("shared-memory", written());
    target.words(numbers).bounds(bounds).run(|bytes| {
        let whole = bytes.len().next_multiple_of(8);
        let mut padded = bytes.to_vec();
        padded.resize(whole, 0);
        let fd = shared(&padded);
        let Ok(mut reader) = SharedReader::open_bounded(&fd, 1 << 20) else {
            return;
        };
        let mut copy = Vec::new();
        // A hostile table may have many maps over the same bytes.
        for map in 0..reader.maps().min(64) {
            let _ = reader.snapshot(map, &mut copy);
            assert!(copy.len() <= whole);
            let _ = (reader.sequence(map), reader.lost(map as u32));
            let _ = (reader.device_losses(map as u32), reader.clock_error());
        }
        let mut bytes_of_events = 0;
        for _ in 0..4 {
            // After a damaged chunk it goes on behind that.
            if let Ok(0) = reader.events(|event| bytes_of_events += event.payload.len()) {
                break;
            }
        }
        assert!(bytes_of_events <= whole, "events come more than once");
    });
}

/// What a writer of launches has written.
fn counted() -> Vec<u8> {
    use std::io::{Read as _, Seek as _};
    let (writer, fd) = LaunchWriter::create().unwrap();
    for (number, kind) in [LaunchKind::With, LaunchKind::Skipped]
        .into_iter()
        .enumerate()
    {
        let row = LaunchRow {
            kind,
            context: number as u32,
            generation: 3,
            kernel: "_Z6kernelPi".into(),
            programs: vec!["entry".into(); number],
        };
        writer.row(row).store(40, Ordering::Relaxed);
    }
    let copy = LastCopy {
        launches: 30,
        kernels_ran: Some(true),
    };
    writer.copied(0, copy);
    writer.late().store(1, Ordering::Relaxed);
    let mut file = std::fs::File::from(fd);
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn launches() {
    let seed = counted();
    let size = seed.len();
    let numbers: &[&[u8]] = &[&[0xff; 8], &[0; 8], &[1, 0, 0, 0], b"wbpflnch"];
    let target = Target::new("launches", vec![seed]);
    target.words(numbers).run(|bytes| {
        let mut padded = bytes.to_vec();
        padded.resize(size, 0);
        let Ok(reader) = LaunchReader::open(shared(&padded)) else {
            return;
        };
        let found = reader.look();
        let names = found.rows.iter().map(|(row, _)| {
            row.kernel.len()
                + row
                    .programs
                    .iter()
                    .map(|name| name.len() + 1)
                    .sum::<usize>()
        });
        assert!(names.sum::<usize>() <= size, "texts come more than once");
        let missing = found.missing();
        let counted = found.rows.iter().map(|(_, launches)| launches).sum::<u64>()
            + found
                .contexts
                .iter()
                .map(|(_, launches, _)| launches)
                .sum::<u64>();
        assert!(missing.launches <= counted, "{missing:?} of {counted}");
    });
}
