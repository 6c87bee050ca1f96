//! Agents that lie to a tool: frames that are none, messages with numbers that nothing has, floods.
//! The tool hangs up or keeps little, says why, and serves a good application meanwhile.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::hostile::{HONEST, Hostile, context, frame, hello, map, put, ready, said};
use super::{Served, good_ones, notes, told, until};
use crate::run::{Bench, Case, Told, is_deep, same};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: frames that are none", |bench| lies(bench, FRAMES)),
        case("attacks: messages that no agent sends", |bench| {
            lies(bench, MESSAGES)
        }),
        case("attacks: numbers at their ends", numbers),
        case("attacks: floods of messages", floods),
        case("attacks: an agent of another protocol", protocol),
        case("attacks: silence in the middle of a frame", silence),
        case("attacks: an agent that never answers", unanswered),
        case("attacks: thousands of connections", many),
        case("attacks: names that act on a terminal", escapes),
    ]
}

/// What a hostile agent does, and why the tool listens no longer.
struct Lie {
    name: &'static str,
    tell: fn(&mut Hostile) -> Result<(), String>,
    /// The note says this; all of it, but for what a library words.
    why: &'static str,
}

const FRAMES: &[Lie] = &[
    Lie {
        name: "another protocol's handshake",
        tell: |agent| agent.write(b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n"),
        why: "the control socket carries something that is no warpbpf frame: it starts with 0x20544547, not 0x46504257",
    },
    Lie {
        name: "a text of 4 GiB",
        tell: |agent| agent.write(b"WBPF\xff\xff\xff\xff\0\0\0\0\0\0\0\0"),
        why: "the message has 4294967295 bytes, the limit is 67108864",
    },
    Lie {
        name: "a blob of 4 GiB",
        tell: |agent| agent.write(b"WBPF\x02\0\0\0\xff\xff\xff\xff\0\0\0\0{}"),
        why: "the message has 4294967295 bytes, the limit is 268435456",
    },
    Lie {
        name: "a blob with a note",
        tell: |agent| {
            let note = json!({ "type": "note", "level": "info", "text": "" }).to_string();
            agent.write(&frame(note.as_bytes(), 1 << 20, 0))
        },
        why: "the message has 1048576 bytes, the limit is 0",
    },
    Lie {
        name: "two descriptors with a message",
        tell: |agent| agent.write(&frame(b"{}", 0, 2)),
        why: "the control socket carries something that is no warpbpf frame: it announces 2 descriptors",
    },
    Lie {
        name: "a descriptor that does not come",
        tell: |agent| agent.write(&frame(context(0).to_string().as_bytes(), 0, 1)),
        why: "the control socket carries something that is no warpbpf frame: a descriptor was announced and did not come",
    },
    Lie {
        name: "descriptors that nobody announced",
        tell: |agent| agent.write_with(&said(&hello()), &[0, 0, 0, 0]),
        why: "the control socket carries something that is no warpbpf frame: descriptors came that no message announces",
    },
    Lie {
        name: "half of a message as a whole one",
        tell: |agent| agent.write(&frame(b"{\"type\":", 0, 0)),
        why: "the control socket carries something that is no warpbpf frame: EOF while parsing a value at line 1 column 8",
    },
    Lie {
        name: "lists in lists without end",
        tell: |agent| {
            let text = format!("{{\"a\":{}", "[".repeat(1 << 20));
            agent.write(&frame(text.as_bytes(), 0, 0))
        },
        why: "the control socket carries something that is no warpbpf frame: recursion limit exceeded at line 1 column 132",
    },
    Lie {
        name: "text that is not UTF-8",
        tell: |agent| agent.write(&frame(b"{\"type\":\"\xff\xfe\"}", 0, 0)),
        why: "the control socket carries something that is no warpbpf frame: invalid unicode code point at line 1 column 10",
    },
];

const MESSAGES: &[Lie] = &[
    Lie {
        name: "a message that there is not",
        tell: |agent| agent.say(&json!({ "type": "explode" })),
        why: "the control socket carries something that is no warpbpf frame: unknown variant `explode`",
    },
    Lie {
        name: "a negative number",
        tell: |agent| agent.say(&json!({ "type": "snapshotted", "token": -1 })),
        why: "the control socket carries something that is no warpbpf frame: invalid value: integer `-1`, expected u64",
    },
    Lie {
        name: "a number that is too large",
        tell: |agent| {
            let text = br#"{"type":"snapshotted","token":99999999999999999999999}"#;
            agent.write(&frame(text, 0, 0))
        },
        why: "the control socket carries something that is no warpbpf frame: invalid type: floating point",
    },
    Lie {
        name: "a kernel with the last number",
        tell: |agent| agent.say(&kernel(u32::MAX, "k")),
        why: "it told of a kernel with a number that no session gives",
    },
    Lie {
        name: "sites with the last numbers",
        tell: |agent| {
            agent.say(&json!({ "type": "sites", "first": u32::MAX, "names": ["a", "b"] }))
        },
        why: "it told of sites with numbers that no session gives",
    },
    Lie {
        name: "more programs than there are",
        tell: |agent| {
            let mut ready = ready(&[]);
            let program = json!({ "name": "", "section": "", "glob": "" });
            ready["programs"] = vec![program; (1 << 14) + 1].into();
            agent.say(&ready)
        },
        why: "it has more than 16384 programs",
    },
    Lie {
        name: "a map that is another one",
        tell: |agent| agent.say(&ready(&[map(json!({ "name": "other" }))])),
        why: "its map `other` is not that of the object, `kernels`",
    },
    Lie {
        name: "a map with keys of 4 GiB",
        tell: |agent| agent.say(&ready(&[map(json!({ "key_size": u32::MAX }))])),
        why: "its map `kernels` has keys of 4294967295 and values of 24 bytes",
    },
    Lie {
        name: "a layout without entries",
        tell: |agent| layout(agent, json!({ "max_entries": 0 })),
        why: "its map `kernels` has a layout that no map has",
    },
    Lie {
        name: "a layout with 4 billion copies",
        tell: |agent| layout(agent, json!({ "copies": u32::MAX })),
        why: "its map `kernels` has a layout that no map has",
    },
    Lie {
        name: "a layout of terabytes",
        tell: |agent| {
            layout(
                agent,
                json!({ "max_entries": u32::MAX, "value_size": 1 << 20 }),
            )
        },
        why: "its map `kernels` would have 4504166562004860 bytes",
    },
    Lie {
        name: "a map that is laid out as another",
        tell: |agent| {
            let queue = json!({ "kind": "queue", "max_entries": 7, "value_size": 8, "lifo": true });
            agent.say(&ready(&[map(json!({ "layout": queue }))]))
        },
        why: "its map `kernels` is of type hash and is not laid out so",
    },
    Lie {
        name: "sums behind the value's end",
        tell: |agent| {
            let sum = json!({ "offset": u32::MAX, "size": 8 });
            agent.say(&ready(&[map(json!({ "summed": [sum] }))]))
        },
        why: "its map `kernels` has sums outside of its values",
    },
    Lie {
        name: "a map of more bytes than its layout has",
        tell: |agent| agent.say(&ready(&[map(json!({ "bytes": 1u64 << 40 }))])),
        why: "its map `kernels` would have ",
    },
];

fn kernel(id: u32, name: &str) -> Value {
    json!({ "type": "kernel", "kernel_id": id, "mangled": name, "demangled": name, "source": "s", "registers_before": 1,
            "registers_after": 2, "method": "slice", "instrumented": true, "programs": [0] })
}

fn layout(agent: &mut Hostile, otherwise: Value) -> Result<(), String> {
    let mut map = map(json!({}));
    if let (Some(layout), Value::Object(otherwise)) = (map["layout"].as_object_mut(), otherwise) {
        layout.extend(otherwise);
    }
    agent.say(&ready(&[map]))
}

const NOT_HEARD: &str = "what is said by the agent in it is not listened to any more: ";

/// Each lie is told by an agent of its own, which is hung up on; the report has the reasons in
/// their order.
fn lies(bench: &Bench, all: &[Lie]) -> Told {
    let tool = Served::start(bench)?;
    let socket = tool.socket()?;
    for Lie { name, tell, .. } in all {
        let mut agent = Hostile::agent(&socket)?;
        let done = tell(&mut agent).and_then(|()| agent.is_hung_up_on());
        done.map_err(|why| format!("{name}: {why}"))?;
    }
    tool.serves(bench)?;
    tool.holds_no_more()?;
    let peak = tool.peak();
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    let notes = notes(&report);
    let mut heard = notes.iter().filter_map(|note| note.strip_prefix(NOT_HEARD));
    for Lie { name, why, .. } in all {
        let note = heard
            .next()
            .ok_or_else(|| format!("{name}: it is not told: {notes:?}"))?;
        if !note.starts_with(why) {
            return Err(format!("{name}: `{note}`, expected `{why}`"));
        }
        told(name, &format!("hung up on, {note}"));
    }
    same("further notes", heard.next(), None)?;
    below(peak, 300)?;
    Ok(format!("{} lies, the tool had {peak} MiB", all.len()))
}

/// In MiB.
fn below(peak: u64, most: u64) -> Result<(), String> {
    match (1..most).contains(&peak) {
        true => Ok(()),
        false => Err(format!(
            "the tool had {peak} MiB, and at most {most} are to be"
        )),
    }
}

/// A second agent of the same process, hostile with a good one beside: what is kept of it is
/// bounded.
fn flood(
    bench: &Bench,
    name: &str,
    tell: &dyn Fn(&mut Hostile) -> Result<(), String>,
    (most, why): (u64, &str),
) -> Result<(), String> {
    let tool = Served::start(bench)?;
    let mut agent = Hostile::agent(&tool.socket()?)?;
    tell(&mut agent)?;
    tool.serves(bench)?;
    drop(agent);
    tool.holds_no_more()?;
    let peak = tool.peak();
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    let notes = notes(&report);
    let count = notes.iter().filter(|note| note.contains(why)).count();
    same(why, count, 1)?;
    below(peak, most)?;
    told(name, &format!("{why}, {peak} MiB"));
    Ok(())
}

fn floods(bench: &Bench) -> Told {
    let notes = |agent: &mut Hostile| {
        let all = (0..12_000)
            .map(|n| said(&json!({ "type": "note", "level": "warning", "text": n.to_string() })));
        agent.write(&all.flatten().collect::<Vec<u8>>())
    };
    let full = "it has more than 10000 things to be known: no further ones are kept";
    flood(bench, "12,000 notes", &notes, (300, full))?;
    if is_deep() {
        let clients = |agent: &mut Hostile| {
            // To whom it is news takes as much as what it says.
            let numbers = vec!["1"; 7 << 20].join(",");
            let text =
                format!(r#"{{"type":"note","level":"info","text":"","clients":[{numbers}]}}"#);
            agent.write(&frame(text.as_bytes(), 0, 0))?;
            agent.is_hung_up_on()
        };
        let too_much = "it has told more than 256 MiB";
        flood(
            bench,
            "a note for millions of tools",
            &clients,
            (700, too_much),
        )?;
        let counts = |agent: &mut Hostile| {
            // Each kernel's launches take the place of those before, and of each there are many
            // numbers.
            for kernel in 0..9 {
                let numbers = vec!["[0,1]"; 1 << 20].join(",");
                let text = format!(
                    r#"{{"type":"counts","kernels":[{{"mangled":"k{kernel}","launches":1,"uninstrumented":0,"contexts":[{numbers}]}}]}}"#
                );
                agent.write(&frame(text.as_bytes(), 0, 0))?;
            }
            agent.is_hung_up_on()
        };
        flood(
            bench,
            "launches in millions of contexts",
            &counts,
            (700, too_much),
        )?;
        let kernels = |agent: &mut Hostile| {
            let name = "k".repeat(1000);
            for id in 0..300_000 {
                agent.write(&said(&kernel(id, &format!("{id}{name}"))))?;
            }
            agent.is_hung_up_on()
        };
        flood(bench, "300,000 kernels", &kernels, (1200, too_much))?;
    }
    Ok("bounded and told".into())
}

/// Every number that an agent can say is the smallest or the largest: the tool adds up and divides,
/// and shows what it has.
fn numbers(bench: &Bench) -> Told {
    for form in [&["--json"][..], &[]] {
        for (name, small, large) in [("zeros", 0, 0), ("the largest", u32::MAX, u64::MAX)] {
            let tool = Served::with(bench, form, |_| {})?;
            for _ in 0..2 {
                let mut agent = Hostile::come(&tool.socket()?)?;
                let mut hello = hello();
                hello["device"] = json!({ "name": "d", "capability": [small, small], "sms": small, "cpus": small,
                    "driver_version": small.cast_signed() >> 1, "soft": true });
                agent.say(&hello)?;
                // Counts of losses, too, and the error of the clock.
                let memory = HONEST.make()?.ok_or("no memory")?;
                put(&memory, 48, &[large])?;
                put(&memory, 384, &[large; 3])?;
                let mut context = context(0);
                for field in ["number", "device", "sms", "cpus"] {
                    context[field] = small.into();
                }
                context["device_bytes"] = large.into();
                for _ in 0..2 {
                    let text = context.to_string();
                    agent.write_with(&frame(text.as_bytes(), 0, 1), &[memory.as_raw_fd()])?;
                }
                for kernel in ["a", "b"] {
                    let mut told = self::kernel(0, kernel);
                    for field in ["registers_before", "registers_after", "sites"] {
                        told[field] = small.into();
                    }
                    told["occupancy"] =
                        json!({ "block_threads": small, "before": small, "after": small });
                    told["local_bytes"] = json!([small, small]);
                    told["shared_bytes"] = json!([small, small]);
                    (told["loaded_us"], told["generation"]) = (large.into(), large.into());
                    told["placed"] = json!([[large, small]]);
                    told["programs"] = json!([large]);
                    told["left_out"] = json!([["why", small], ["not", small]]);
                    agent.say(&told)?;
                }
                let count = |name: &str| {
                    json!({ "mangled": name, "launches": large, "uninstrumented": large, "skipped": large, "unwanted": large,
                            "contexts": [[small, large], [small, large]], "generations": [[large, large]],
                            "programs": [["p", large], ["p", large]], "context_programs": [[small, [["p", large]]]] })
                };
                let one = json!({ "client": 0, "kernels": [count("a"), count("b")] });
                agent.say(&json!({ "type": "counts", "kernels": [count("a"), count("b")], "clients": [one] }))?;
                agent.say(&json!({ "type": "sites", "first": 0, "names": [] }))?;
                agent.say(&json!({ "type": "snapshotted", "token": large }))?;
                agent.say(&json!({ "type": "map_ops", "token": large }))?;
                agent.say(&json!({ "type": "bye", "reason": "exit" }))?;
            }
            tool.holds_no_more()?;
            tool.serves(bench)?;
            let report = tool.end_as_it_is()?;
            let what = if form.is_empty() { "a table" } else { "JSON" };
            let text = String::from_utf8_lossy(&report).into_owned();
            same("the good application", text.contains("vectorAdd"), true)?;
            told(
                &format!("{name} in every message, shown as {what}"),
                "shown",
            );
        }
    }
    Ok("zeros and the largest".into())
}

/// It is refused by the numbers of both protocols.
fn protocol(bench: &Bench) -> Told {
    let tool = Served::start(bench)?;
    for protocol in [0, warpbpf_wire::PROTOCOL + 1, u32::MAX] {
        let mut agent = Hostile::come(&tool.socket()?)?;
        let mut hello = hello();
        hello["protocol"] = protocol.into();
        agent.say(&hello)?;
        agent.is_hung_up_on()?;
    }
    tool.holds_no_more()?;
    let report = tool.end()?;
    let notes = notes(&report);
    for protocol in [0, warpbpf_wire::PROTOCOL + 1, u32::MAX] {
        let said = format!(
            "its messages are of version {protocol}, and this tool's of version {}",
            warpbpf_wire::PROTOCOL
        );
        same(
            &said,
            notes.iter().filter(|note| note.contains(&said)).count(),
            1,
        )
        .map_err(|why| format!("{why}: {notes:?}"))?;
        told(&format!("protocol {protocol}"), "refused by its number");
    }
    Ok("three numbers".into())
}

/// Each is cut somewhere else, and the tool neither waits for the rest nor fails at its end.
fn silence(bench: &Bench) -> Told {
    let tool = Served::start(bench)?;
    let whole = said(&hello());
    let mut agents = Vec::new();
    for cut in [0, 1, 15, 16, 17, whole.len() - 1] {
        let mut agent = Hostile::come(&tool.socket()?)?;
        agent.write(&whole[..cut])?;
        agents.push(agent);
    }
    // This one says all of it, byte by byte, and half of another message.
    let mut slow = Hostile::come(&tool.socket()?)?;
    for byte in &whole {
        slow.write(std::slice::from_ref(byte))?;
    }
    slow.write(&frame(&vec![b' '; 32 << 20], 0, 0)[..16 << 20])?;
    tool.serves(bench)?;
    let peak = tool.peak();
    // Who has said who it is, has last words that are waited for.
    drop(slow);
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    let processes = report["processes"].as_array().map_or(0, Vec::len);
    // Those that never said who they are, are no applications that anybody knows of, and are there
    // all the same.
    same("processes", processes, agents.len() + 2)?;
    below(peak, 300)?;
    told(
        "frames cut at every kind of place",
        "nobody waits for the rest",
    );
    told("a handshake byte by byte", "taken");
    Ok(format!("{} agents that fell silent", agents.len() + 1))
}

/// It says who it is, or what it has, too, and does not answer when it is to let go: the tool ends
/// all the same, and says of which process it knows no more.
fn unanswered(bench: &Bench) -> Told {
    let tool = Served::start(bench)?;
    let socket = tool.socket()?;
    let _says_who = Hostile::agent(&socket)?;
    let mut says_more = Hostile::agent(&socket)?;
    let memory = HONEST.make()?.ok_or("no memory")?;
    let text = context(0).to_string();
    says_more.write_with(&frame(text.as_bytes(), 0, 1), &[memory.as_raw_fd()])?;
    says_more.say(&json!({ "type": "leaving", "silent": true }))?;
    says_more.say(&json!({ "type": "snapshotted", "token": 1 }))?;
    tool.serves(bench)?;
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    let note = format!(
        "process {} has not answered for 10 s when it was to let go of its programs, and is not waited for: what is shown of it is as it was copied last",
        std::process::id()
    );
    let mut notes = notes(&report);
    notes.retain(|note| note.starts_with("process "));
    same("notes of processes", notes, vec![note; 2])?;
    told("an agent that says who it is, and no more", "is named");
    told("an agent that has maps, and never answers", "is named");
    Ok("the tool ends, and names both".into())
}

/// Connections by one process, which has nothing to say or says who it is each time, to both
/// sockets of a tool with few descriptors.
fn many(bench: &Bench) -> Told {
    let few = |command: &mut std::process::Command| limited(command, 200);
    for speaks in [false, true] {
        let tool = Served::with(bench, &["--json"], few)?;
        let socket = tool.socket()?;
        let mut agents = Vec::new();
        for _ in 0..if is_deep() { 1000 } else { 250 } {
            let mut agent = Hostile::come(&socket)?;
            if speaks {
                agent.say(&hello())?;
            }
            agents.push(agent);
            // As many as a shell may have open.
            if agents.len() > 300 {
                agents.remove(0);
            }
        }
        tool.serves(bench)?;
        drop(agents);
        tool.holds_no_more()?;
        let report = tool.end()?;
        same("good applications", good_ones(&report), 1)
            .map_err(|why| format!("{why}; speaks: {speaks}, {:?}", notes(&report)))?;
        let crowd = format!(
            "process {} is connected 16 times, and is not let in again",
            std::process::id()
        );
        let told_of = notes(&report).contains(&crowd);
        same("the crowd is told of", told_of, speaks)?;
        let name = match speaks {
            false => "connections that say nothing",
            true => "agents of one process",
        };
        told(name, "a good application is served with 200 descriptors");
    }
    let tool = Served::with(bench, &["--json"], few)?;
    let maps = std::fs::canonicalize(tool.socket()?).map_err(|e| e.to_string())?;
    let maps = maps.with_file_name("maps");
    let mut commands = Vec::new();
    for number in 0..if is_deep() { 1000 } else { 250 } {
        let connect = UnixStream::connect(&maps).map_err(|e| format!("{number}: {e}"))?;
        commands.push(connect);
        if commands.len() > 300 {
            commands.remove(0);
        }
    }
    tool.serves(bench)?;
    let listed = listed(bench, &maps)?;
    same(
        "the session is listed",
        listed.contains("launchcount"),
        true,
    )?;
    drop(commands);
    tool.holds_no_more()?;
    let report = tool.end()?;
    same("good applications", good_ones(&report), 1)?;
    told(
        "commands that ask nothing",
        "a good application and another command are served",
    );
    Ok("with 200 descriptors".into())
}

/// Has a command run with so many descriptors.
fn limited(command: &mut std::process::Command, most: u64) {
    use std::os::unix::process::CommandExt as _;
    let limit = move || {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a system call with memory that lives.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: nothing but a system call is done there.
    unsafe { command.pre_exec(limit) };
}

/// What `warpbpf maps list` says, as JSON, with a tool among those that are there.
fn listed(bench: &Bench, socket: &Path) -> Result<String, String> {
    let folder = socket.parent().and_then(Path::parent).ok_or("no folder")?;
    let mut command = bench.warpbpf("maps");
    command
        .args(["--json", "list"])
        .env("XDG_RUNTIME_DIR", folder);
    let output = command.output().map_err(|e| e.to_string())?;
    same("status of `maps list`", output.status.code(), Some(0))?;
    String::from_utf8(output.stdout).map_err(|e| e.to_string())
}

/// Everything that an agent can name has what a terminal acts on: none of it is in what is shown,
/// and no line is forged.
fn escapes(bench: &Bench) -> Told {
    const EVIL: &str = "\x1b[2J\x1b]0;PWNED\x07\u{9b}31m\u{202e}\r\nwarpbpf: forged";
    let mut shown = Vec::new();
    for json in [false, true] {
        let form: &[&str] = if json { &["--json"] } else { &[] };
        let tool = Served::with(bench, form, |_| {})?;
        let mut agent = Hostile::come(&tool.socket()?)?;
        let mut hello = hello();
        (hello["exe"], hello["argv"]) = (EVIL.into(), json!([EVIL]));
        hello["device"]["name"] = EVIL.into();
        agent.say(&hello)?;
        let mut told = kernel(0, EVIL);
        for field in ["source", "method"] {
            told[field] = EVIL.into();
        }
        told["compiler_warnings"] = json!([EVIL]);
        told["left_out"] = json!([[EVIL, 1]]);
        agent.say(&told)?;
        agent.say(&json!({ "type": "counts", "kernels": [{ "mangled": EVIL, "launches": 1, "uninstrumented": 0 }] }))?;
        agent.say(&json!({ "type": "note", "level": "warning", "text": EVIL }))?;
        agent.say(&json!({ "type": "note", "level": "info", "text": EVIL }))?;
        agent.say(&json!({ "type": "refused", "message": EVIL }))?;
        let maps = std::fs::canonicalize(tool.socket()?).map_err(|e| e.to_string())?;
        let folder = maps.parent().and_then(Path::parent).ok_or("no folder")?;
        let mut listed = Vec::new();
        until("the tool has heard it", || {
            let list = || {
                let mut command = bench.warpbpf("maps");
                let command = command.args(["--pid", &tool.pid().to_string(), "list"]);
                command.env("XDG_RUNTIME_DIR", folder).output()
            };
            listed = list().map(|output| output.stdout).unwrap_or_default();
            String::from_utf8_lossy(&listed).contains("PWNED")
        })?;
        shown.push(("`maps list`", listed));
        agent.say(&json!({ "type": "bye", "reason": EVIL }))?;
        drop(agent);
        tool.holds_no_more()?;
        let bytes = tool.end_as_it_is()?;
        if json {
            let report: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
            same(
                "the name",
                report["processes"][0]["exe"].as_str(),
                Some(EVIL),
            )?;
        }
        let what = if json {
            "the report as JSON"
        } else {
            "the report"
        };
        shown.push((what, bytes));
    }
    for (what, bytes) in &shown {
        let text = String::from_utf8(bytes.clone()).map_err(|e| format!("{what}: {e}"))?;
        same("it is named", text.contains("PWNED"), true)?;
        let acts = |c: &char| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c);
        same(what, text.chars().find(acts), None).map_err(|why| format!("{why}: {text:?}"))?;
        let forged = text
            .lines()
            .find(|line| line.starts_with("warpbpf: forged"));
        same(what, forged, None)?;
        told(what, "neither escapes nor forged lines");
    }
    Ok(format!("{} texts", shown.len()))
}
