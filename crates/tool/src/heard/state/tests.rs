//! What is taken in of an agent, and what is not.

use std::time::Duration;

use warpbpf_wire::{
    AgentConnection, GraphNode, GraphNodes, Hello, PROTOCOL, SharedWriter, ToAgent,
};

use super::*;

/// Appends a chunk of records of 8 bytes that tell their numbers; a header of `None` is none that a
/// device writes.
fn chunk(writer: &mut SharedWriter, map: u32, records: &[Option<u64>]) {
    let words: Vec<u64> = records
        .iter()
        .flat_map(|record| [record.map_or(1 << 31, |_| 8), record.unwrap_or_default()])
        .collect();
    let mut chunks = writer.chunks();
    let [span, over] = chunks.reserve(map, 0, words.len() as u64 * 8).unwrap();
    assert_eq!(over.bytes, 0);
    // SAFETY: the room is reserved, aligned and large enough.
    unsafe { std::ptr::copy(words.as_ptr(), span.start.cast(), words.len()) };
    chunks.publish();
}

/// What a tool has of an application that said all it had to say, and is gone before anybody
/// listened.
fn gone() -> ToolConnection {
    let (tool, agent) = ToolConnection::pair().unwrap();
    let mut agent = AgentConnection::trusted(agent).unwrap();
    let hello = Hello {
        protocol: PROTOCOL,
        pid: 7,
        exe: "/bin/gone".into(),
        argv: Vec::new(),
        device: None,
    };
    let reason = "exit".into();
    for message in [ToTool::Hello(hello), ToTool::Bye { reason }] {
        agent
            .send(&message, &[], None, Duration::from_secs(60))
            .unwrap();
    }
    tool
}

#[test]
fn last_words_are_heard_by_who_speaks_first() {
    let heard = |state: &State| (state.pid, state.complete, state.connection.is_some());
    let mut state = State::new(Some(gone()), None);
    assert!(!state.send(&ToAgent::Detach, &[]).unwrap());
    assert_eq!(heard(&state), (7, true, false));
    // What could not be sent before is still to be sent.
    let mut state = State::new(Some(gone()), None);
    let connection = state.connection.as_mut().unwrap();
    connection.queue(&ToAgent::Detach, &[], None).unwrap();
    state.pump();
    assert_eq!(heard(&state), (7, true, false));
    let process = crate::handles::process::Process::new(0, Some(gone()), None);
    process.detach().unwrap_err();
    assert_eq!(heard(&process.lock()), (7, true, false));
}

#[test]
fn where_the_agent_failed_its_good_bye_does_not_mean_that_all_is_there() {
    let (tool, agent) = ToolConnection::pair().unwrap();
    let process = crate::handles::process::Process::new(0, Some(tool), None);
    let mut agent = AgentConnection::trusted(agent).unwrap();
    let reason = "exit".to_owned();
    for message in [ToTool::Failed, ToTool::Bye { reason }] {
        agent
            .send(&message, &[], None, Duration::from_secs(60))
            .unwrap();
    }
    process.pump();
    assert_eq!(process.lock().farewell, "exit");
    assert!(!process.is_complete());
}

#[test]
fn damaged_chunks_are_told_once_and_what_is_good_comes() {
    let (mut writer, fd) = SharedWriter::create(&[0, 0], 4096).unwrap();
    chunk(&mut writer, 0, &[Some(1), Some(2), None, Some(3)]);
    chunk(&mut writer, 1, &[Some(4)]);
    chunk(&mut writer, 0, &[None]);
    chunk(&mut writer, 0, &[Some(5)]);
    let mut state = State::default();
    let context = ContextInfo {
        number: 0,
        device: 0,
        name: "a device".into(),
        sms: 1,
        cpus: 1,
        device_bytes: 0,
    };
    state.open(context, Some(fd));
    let mut batch = Batch::default();
    let mut numbers = |state: &mut State, wanted| {
        state.events(wanted, &mut batch);
        let number = |payload: &[u8]| u64::from(payload[0]);
        batch
            .iter()
            .map(|e| number(e.payload))
            .collect::<Vec<u64>>()
    };
    assert_eq!(numbers(&mut state, Some(0)), [1, 2, 5]);
    let [note] = &state.notes[..] else {
        panic!("{:?}", state.notes);
    };
    assert_eq!(
        note.text,
        "the record header 0x80000000 at 288 of the event ring is damaged (map 0, ring 0); 32 bytes were skipped"
    );
    chunk(&mut writer, 1, &[Some(6)]);
    assert_eq!(numbers(&mut state, None), [4, 6]);
}

/// Mappings of shared memory in this process.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("/memfd:warpbpf "));
    shared.count()
}

#[test]
fn applications_that_have_ended_take_no_mapping_and_keep_what_they_had() {
    let context = |number| ContextInfo {
        number,
        device: 0,
        name: "a device".into(),
        sms: 1,
        cpus: 1,
        device_bytes: 0,
    };
    // Other tests may have some.
    let before = mappings();
    let mut ended = Vec::new();
    for number in 0..300_u32 {
        let (tool, agent) = ToolConnection::pair().unwrap();
        let mut state = State::new(Some(tool), None);
        let (mut writer, fd) = SharedWriter::create(&[8, 4096], 4096).unwrap();
        writer.publish(0, &u64::from(number).to_le_bytes()).unwrap();
        writer.count_lost(1);
        chunk(&mut writer, 0, &[Some(1), Some(2)]);
        state.open(context(number), Some(fd));
        drop((agent, writer));
        state.pump();
        ended.push(state);
    }
    // Their events were not read yet.
    assert!(mappings() >= 300, "{before}");
    let mut batch = Batch::default();
    for state in &mut ended {
        state.events(Some(0), &mut batch);
        assert_eq!(batch.len(), 2);
        state.events(None, &mut batch);
        assert_eq!(batch.len(), 0);
    }
    assert!(mappings() < before + 200, "{before} {}", mappings());
    let mut bytes = Vec::new();
    for (number, state) in (0..).zip(&ended) {
        let context = &state.contexts[0];
        assert!(matches!(context.shared, crate::heard::seen::Seen::Kept(_)));
        context.shared.snapshot(0, &mut bytes).unwrap();
        assert_eq!(bytes, u64::to_le_bytes(number));
        assert_eq!(state.losses(1).sum(), 1);
        assert!(context.may_hold(0, 8) && !context.may_hold(0, 16));
        let copied = context.copied(&[]).unwrap();
        warpbpf_wire::SharedReader::open(copied).unwrap();
    }
}

#[test]
fn lists_of_graphs_that_come_in_parts_are_whole() {
    let mut state = State::default();
    let part = |number: u32, nodes: std::ops::Range<u32>| GraphNodes {
        number,
        graph: number + 10,
        nodes: nodes
            .map(|node| GraphNode {
                node,
                ..GraphNode::default()
            })
            .collect(),
    };
    for graphs in [
        vec![part(1, 0..2), part(2, 0..3)],
        vec![part(2, 3..5)],
        vec![],
        vec![part(2, 5..6), part(3, 0..0), part(4, 0..1)],
    ] {
        let told = Operations {
            graphs,
            ..Operations::default()
        };
        state.take(ToTool::Operations(told), Vec::new(), None);
    }
    let whole = [part(1, 0..2), part(2, 0..6), part(3, 0..0), part(4, 0..1)];
    assert_eq!(state.operations.graphs, whole);
}

#[test]
fn memory_of_maps_that_come_is_that_of_their_context() {
    let mut state = State::default();
    let (mut writer, fd) = SharedWriter::create(&[8], 4096).unwrap();
    let info = ContextInfo {
        number: 3,
        ..ContextInfo::default()
    };
    state.open(info, Some(fd));
    let more = |state: &mut State, context, first| {
        let (more, fd) = SharedWriter::create(&[16], 0).unwrap();
        let maps = MoreMaps {
            context,
            first,
            device_bytes: 88,
        };
        state.take(ToTool::Maps(maps), Vec::new(), Some(fd));
        more
    };
    writer.append(more(&mut state, 3, 1));
    writer.publish(1, &[9; 16]).unwrap();
    let mut bytes = Vec::new();
    let shared = &state.contexts[0].shared;
    assert_eq!(shared.snapshot(1, &mut bytes).unwrap(), Some(1));
    assert_eq!((bytes, state.contexts[0].memory.len()), (vec![9; 16], 2));
    assert_eq!(state.contexts[0].info.device_bytes, 88);
    assert!(state.notes.is_empty());
    // Of a context that nobody knows, and with a hole in front.
    more(&mut state, 4, 2);
    more(&mut state, 3, 3);
    let notes: Vec<&str> = state.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        notes,
        [
            "the agent sent no shared memory",
            "the agent sent memory of maps from number 3 on, and the context has 2"
        ]
    );
    assert_eq!(state.contexts[0].shared.maps(), 2);
}

#[test]
fn an_agent_of_another_version_is_refused() {
    let mut state = State::default();
    let hello = warpbpf_wire::Hello {
        protocol: 1,
        pid: 5,
        exe: String::new(),
        argv: Vec::new(),
        device: None,
    };
    state.take(ToTool::Hello(hello), Vec::new(), None);
    let refused = state.refused.unwrap_or_default();
    assert!(refused.contains("is of another warpbpf"), "{refused}");
    assert!(state.connection.is_none());
}

#[test]
fn names_of_sites_come_in_parts() {
    let mut names = Vec::new();
    let part = |first, names: &[&str]| Sites {
        first,
        names: names.iter().map(|n| (*n).to_owned()).collect(),
    };
    place(&mut names, part(1, &["a", "b"]));
    place(&mut names, part(3, &["c"]));
    place(&mut names, part(u32::MAX, &["far"]));
    assert_eq!(names, ["", "a", "b", "c"]);
}

/// An agent that says what it likes, and the tool's end.
fn hostile(object: Option<crate::object::Object>) -> (AgentConnection, State) {
    let (agent, socket) = AgentConnection::pair().unwrap();
    let state = State::new(Some(ToolConnection::trusted(socket).unwrap()), object);
    (agent, state)
}

#[test]
fn an_agent_that_says_too_much_holds_nobody_up_and_is_not_listened_to() {
    let (mut agent, mut state) = hostile(None);
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = ends.clone();
    let flood = std::thread::spawn(move || {
        let mut number = 0u64;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let note = ToTool::Note {
                level: NoteLevel::Warning,
                text: number.to_string(),
                clients: Vec::new(),
            };
            number += 1;
            if agent
                .send(&note, &[], None, Duration::from_secs(1))
                .is_err()
            {
                return;
            }
        }
    });
    // One call ends while more comes.
    while state.notes.len() <= MOST_NOTES {
        state.pump();
    }
    state.pump();
    ends.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!(state.notes.len(), MOST_NOTES + 1);
    let last = &state.notes[MOST_NOTES].text;
    assert!(last.ends_with("no further ones are kept"), "{last}");

    let (mut agent, mut state) = hostile(None);
    let kernel = ToTool::Kernel(Kernel {
        kernel_id: Some(u32::MAX),
        ..Kernel::default()
    });
    agent
        .send(&kernel, &[], None, Duration::from_secs(1))
        .unwrap();
    state.pump();
    assert!(state.connection.is_none() && state.kernels.is_empty());
    assert_eq!(
        state.notes[0].text,
        "what is said by the agent in it is not listened to any more: it told of a kernel with a number that no session gives"
    );
}

#[test]
fn maps_and_memory_are_what_was_agreed_or_nothing() {
    use warpbpf_wire::{Layout, Ready};
    let context = ContextInfo::default();
    let told = |info: MapInfo, sizes: &[u64], ring| {
        let mut state = State::default();
        let ready = Ready {
            maps: vec![info],
            programs: Vec::new(),
            areas: Vec::new(),
            context: context.clone(),
        };
        state.ring_bytes = Some(4096);
        let (_, memory) = SharedWriter::create(sizes, ring).unwrap();
        state.take(ToTool::Ready(ready), Vec::new(), Some(memory));
        let notes: Vec<String> = state.notes.iter().map(|note| note.text.clone()).collect();
        (state.is_ready(), notes.join("; "))
    };
    assert_eq!(told(info(16, 128), &[128], 4096), (true, String::new()));
    let refused = |info, sizes: &[u64], ring| {
        let (ready, why) = told(info, sizes, ring);
        assert!(!ready);
        why.rsplit_once("any more: ")
            .map(|(_, why)| why.to_owned())
            .unwrap_or(why)
    };
    assert_eq!(
        refused(info(16, 1 << 40), &[128], 4096),
        "its map `counts` would have 128 bytes, and 1099511627776 are said"
    );
    let large = refused(info(u32::MAX, 8 * u64::from(u32::MAX)), &[128], 4096);
    assert!(large.starts_with("its map `counts` would have"), "{large}");
    assert_eq!(
        refused(info(16, 128), &[256], 4096),
        "its map `counts` has 256 bytes, and 128 were said"
    );
    // A ring that nobody requested, in a file that is longer than all that is there.
    let long = refused(info(16, 128), &[128], 1 << 30);
    assert!(
        long.starts_with("the shared area is not one of this warpbpf: it has "),
        "{long}"
    );
    let mut other = info(16, 128);
    other.layout = Layout::Hash {
        max_entries: 7,
        key_size: u32::MAX,
        value_size: u32::MAX,
        copies: u32::MAX,
        dense: false,
    };
    assert_eq!(
        refused(other, &[128], 4096),
        "its map `counts` has a layout that no map has"
    );
}

#[test]
fn an_application_that_has_ended_has_no_descriptors_and_its_maps_are_read() {
    let mut state = State::default();
    let (mut writer, fd) = SharedWriter::create(&[8, 0, 16], 4096).unwrap();
    state.open(ContextInfo::default(), Some(fd));
    writer.publish(0, &[7; 8]).unwrap();
    writer.publish(2, &[9; 16]).unwrap();
    state.close_memory();
    let context = &state.contexts[0];
    assert!(context.memory.is_empty() && context.firsts.is_empty());
    let copy = context
        .copied(&[info(1, 8), info(1, 0), info(1, 16)])
        .unwrap();
    let copy = SharedReader::open(&copy).unwrap();
    let mut bytes = Vec::new();
    assert!(copy.snapshot(0, &mut bytes).unwrap().is_some());
    assert_eq!(bytes, [7; 8]);
    assert!(copy.snapshot(2, &mut bytes).unwrap().is_some());
    assert_eq!((bytes, copy.maps()), (vec![9; 16], 3));
}

/// An array, of which so many bytes are copied.
fn info(max_entries: u32, bytes: u64) -> MapInfo {
    MapInfo {
        name: "counts".into(),
        map_type: 2,
        key_size: 4,
        value_size: 8,
        max_entries,
        layout: warpbpf_wire::Layout::Array {
            max_entries,
            value_size: 8,
            shards: 1,
            summed: false,
        },
        summed: Vec::new(),
        added: Vec::new(),
        bytes,
        client: 0,
    }
}
