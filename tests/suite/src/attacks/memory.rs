//! Memory that a hostile agent shares: numbers in it that lead outside, files that are none, memory
//! that goes away or changes while the tool reads it. Nothing is read that is not there, and nobody
//! gets a signal.

use std::os::fd::{AsRawFd as _, OwnedFd};

use serde_json::json;

use super::hostile::{HONEST, Hostile, Lies, context, frame, map, put, ready};
use super::{Served, good_ones, notes, told};
use crate::run::{Bench, Case, Told, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: memory with numbers that lie", numbers),
        case("attacks: memory that is none", files),
        case("attacks: memory that changes while it is read", changes),
    ]
}

const NOT_OURS: &str = "the shared area is not one of this warpbpf: ";

/// Sends the memory of one context.
fn share(agent: &mut Hostile, number: u32, memory: &OwnedFd) -> Result<(), String> {
    let text = context(number).to_string();
    agent.write_with(&frame(text.as_bytes(), 0, 1), &[memory.as_raw_fd()])
}

/// Each memory comes with an agent of its own, which is hung up on; the reasons are in the report.
fn refused(bench: &Bench, all: Vec<(&str, Option<OwnedFd>, &str)>) -> Told {
    let tool = Served::start(bench)?;
    let (mut expected, mut skipped) = (Vec::new(), 0);
    for (name, memory, why) in all {
        let Some(memory) = memory else {
            told(name, "skipped: this system has no such memory");
            skipped += 1;
            continue;
        };
        let mut agent = Hostile::agent(&tool.socket()?)?;
        let done = share(&mut agent, 0, &memory).and_then(|()| agent.is_hung_up_on());
        done.map_err(|why| format!("{name}: {why}"))?;
        expected.push((name, why));
    }
    tool.serves(bench)?;
    tool.holds_no_more()?;
    let peak = tool.peak();
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    let notes = notes(&report);
    let prefix = "what is said by the agent in it is not listened to any more: ";
    let heard: Vec<&str> = notes
        .iter()
        .filter_map(|note| note.strip_prefix(prefix))
        .collect();
    same("reasons", heard.len(), expected.len()).map_err(|why| format!("{why}: {notes:?}"))?;
    for ((name, why), heard) in expected.iter().zip(heard) {
        same(name, heard, why)?;
        told(name, heard);
    }
    match peak < 300 {
        true => Ok(format!("{} refused, {skipped} skipped", expected.len())),
        false => Err(format!("the tool had {peak} MiB")),
    }
}

fn numbers(bench: &Bench) -> Told {
    let one = |lies: Lies| lies.make();
    let no_seal = Lies {
        seals: libc::F_SEAL_GROW,
        ..HONEST
    };
    let sized = |bytes| Lies { bytes, ..HONEST };
    let ring = |ring, ring_bytes| Lies {
        ring,
        ring_bytes,
        ..HONEST
    };
    let area = |area| Lies {
        maps: 1,
        area,
        ..HONEST
    };
    let of_maps = |maps| Lies { maps, ..HONEST };
    refused(
        bench,
        vec![
            (
                "memory that may shrink",
                one(no_seal)?,
                &format!("{NOT_OURS}its file may shrink"),
            ),
            (
                "memory of a terabyte",
                one(sized(1 << 40))?,
                &format!("{NOT_OURS}it has 1099511627776 bytes"),
            ),
            (
                "empty memory",
                one(sized(0))?,
                &format!("{NOT_OURS}it has 0 bytes"),
            ),
            (
                "memory that is too short",
                one(sized(4088))?,
                &format!("{NOT_OURS}it has 4088 bytes"),
            ),
            (
                "a ring behind the end",
                one(ring(u64::MAX - 7, 4096))?,
                &format!("{NOT_OURS}its ring is outside the file"),
            ),
            (
                "a ring of no power of two",
                one(ring(8192, 4097))?,
                &format!("{NOT_OURS}its ring is outside the file"),
            ),
            (
                "a ring of no bytes",
                one(ring(8192, 0))?,
                &format!("{NOT_OURS}its ring is outside the file"),
            ),
            (
                "more maps than fit",
                one(of_maps(1 << 16))?,
                &format!("{NOT_OURS}its map table is outside the file"),
            ),
            (
                "maps without number",
                one(of_maps(u64::MAX))?,
                &format!("{NOT_OURS}its map table is outside the file"),
            ),
            (
                "a map behind the end",
                one(area([8192, 8, 1 << 20]))?,
                &format!("{NOT_OURS}map 0 is outside the file"),
            ),
            (
                "a map whose end is in front of its begin",
                one(area([u64::MAX - 7, 8, 8]))?,
                &format!("{NOT_OURS}map 0 is outside the file"),
            ),
            (
                "copies of a map that overlap",
                one(area([8192, 4096, 8]))?,
                &format!("{NOT_OURS}map 0 is outside the file"),
            ),
            (
                "a map at an odd place",
                one(area([8193, 8, 8]))?,
                &format!("{NOT_OURS}map 0 is outside the file"),
            ),
        ],
    )
}

fn files(bench: &Bench) -> Told {
    let failed = |e: std::io::Error| e.to_string();
    let path = bench.scratch("memory");
    std::fs::write(&path, vec![0; 1 << 20]).map_err(failed)?;
    let plain = std::fs::File::options().read(true).write(true).open(&path);
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/zero");
    let (pipe, _writer) = std::io::pipe().map_err(failed)?;
    let socket = std::os::unix::net::UnixDatagram::unbound().map_err(failed)?;
    let none = "the shared area cannot be set up: `fcntl(F_GET_SEALS)` failed with Invalid argument (os error 22)";
    let huge = Lies {
        flags: libc::MFD_HUGETLB,
        bytes: 1 << 21,
        ..HONEST
    };
    let written = Lies {
        seals: HONEST.seals | libc::F_SEAL_WRITE,
        ..HONEST
    };
    let executed = format!("{NOT_OURS}its file is not of plain memory");
    refused(
        bench,
        vec![
            (
                "a file as memory",
                Some(plain.map_err(failed)?.into()),
                none,
            ),
            (
                "a device as memory",
                Some(device.map_err(failed)?.into()),
                none,
            ),
            ("a pipe as memory", Some(pipe.into()), none),
            ("a socket as memory", Some(socket.into()), none),
            (
                "huge pages, of which there may be none",
                huge.make()?,
                &executed,
            ),
            (
                "memory that nobody may write",
                written.make()?,
                "the shared area cannot be set up: `mmap` failed with Operation not permitted (os error 1)",
            ),
        ],
    )
}

/// Its agent is connected and changes what the tool looks at all the time.
fn changes(bench: &Bench) -> Told {
    let tool = Served::start(bench)?;
    let (mut agents, mut kept) = (Vec::new(), Vec::new());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut work = || -> Result<(), String> {
            // A ring whose end runs away, and whose begin is behind it.
            let ring = Lies {
                bytes: 8192 + (1 << 20),
                ring_bytes: 1 << 20,
                ..HONEST
            };
            for (number, begins) in [(0u32, 0u64), (1, u64::MAX - 4095)] {
                let memory = ring.make()?.ok_or("no memory")?;
                put(&memory, 128, &[begins.wrapping_add(1 << 19)])?;
                put(&memory, 256, &[begins])?;
                put(&memory, 8192, &[u64::MAX; 4096])?;
                let mut agent = Hostile::agent(&tool.socket()?)?;
                share(&mut agent, number, &memory)?;
                agents.push(agent);
                kept.push(memory);
            }
            // The map of the object, announced as it is, and published ever again.
            let bytes = 1024 * 64;
            let area = Lies {
                bytes: 12288 + 2 * bytes,
                ring: 8192 + 2 * bytes,
                maps: 1,
                area: [8192, bytes, bytes],
                ..HONEST
            };
            let memory = area.make()?.ok_or("no memory")?;
            let mut agent = Hostile::agent(&tool.socket()?)?;
            let text = ready(&[map(json!({}))]).to_string();
            agent.write_with(&frame(text.as_bytes(), 0, 1), &[memory.as_raw_fd()])?;
            agents.push(agent);
            kept.push(memory);
            Ok(())
        };
        let begun = work();
        let changing = &kept;
        let over = &over;
        let changer = scope.spawn(move || {
            let mut number = 1u64;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for memory in changing {
                    // Head, tail and what stands between; the sequence of the first map; holes
                    // where there was something.
                    let _ = put(memory, 128, &[number << 10]);
                    let _ = put(memory, 256, &[number.wrapping_mul(4096)]);
                    let _ = put(memory, 4096 + 24, &[number]);
                    // SAFETY: a descriptor of ours.
                    unsafe {
                        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                        libc::fallocate(memory.as_raw_fd(), flags, 8192, 4096);
                    }
                }
                number += 1;
            }
        });
        let served = begun.and_then(|()| tool.serves(bench));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = changer.join();
        served
    })?;
    drop(agents);
    tool.holds_no_more()?;
    let peak = tool.peak();
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    if peak > 300 {
        return Err(format!("the tool had {peak} MiB"));
    }
    told(
        "a ring whose ends run about",
        "a good application is served",
    );
    told(
        "a map that is published ever again",
        "a good application is served",
    );
    told(
        "holes punched into what is read",
        "a good application is served",
    );
    Ok(format!("the tool had {peak} MiB"))
}
