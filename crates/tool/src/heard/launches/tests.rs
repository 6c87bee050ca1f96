//! What a tool makes of launches that an agent counts, and of one that lies.

use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbpf_wire::{
    AgentConnection, Counts, Hello, LastCopy, LaunchRow, LaunchWriter, PROTOCOL, ToTool,
    ToolConnection,
};

use super::*;
use crate::handles::process::Process;
use crate::heard::state::State;

fn row(kind: LaunchKind, context: u32, generation: u64, programs: &[&str]) -> LaunchRow {
    LaunchRow {
        kind,
        context,
        generation,
        kernel: "k".into(),
        programs: programs.iter().map(|p| (*p).to_owned()).collect(),
    }
}

/// An agent that counts in shared memory, and the tool's side of it.
struct Agent {
    process: Process,
    connection: Option<AgentConnection>,
    writer: LaunchWriter,
}

impl Agent {
    fn new() -> Agent {
        let (tool, agent) = ToolConnection::pair().unwrap();
        let mut agent = Agent {
            process: Process::new(0, Some(tool), None),
            connection: Some(AgentConnection::trusted(agent).unwrap()),
            writer: LaunchWriter::create().unwrap().0,
        };
        let (writer, fd) = LaunchWriter::create().unwrap();
        agent.writer = writer;
        agent.say(&ToTool::Hello(Hello {
            protocol: PROTOCOL,
            pid: 7,
            exe: "/a".into(),
            argv: Vec::new(),
            device: None,
        }));
        let connection = agent.connection.as_mut().unwrap();
        connection
            .queue(&ToTool::Launches, &[], Some(fd.into()))
            .unwrap();
        connection.flush().unwrap();
        agent.process.pump();
        agent
    }

    fn say(&mut self, message: &ToTool) {
        let connection = self.connection.as_mut().unwrap();
        let minute = Duration::from_secs(60);
        connection.send(message, &[], None, minute).unwrap();
        self.process.pump();
    }

    fn launch(&self, row: &LaunchRow, launches: u64) {
        let counter = self.writer.row(row.clone());
        counter.fetch_add(launches, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.connection = None;
        self.process.pump();
        assert!(!self.process.is_connected());
    }

    fn missing(&self) -> (Option<u64>, Option<bool>, bool) {
        let process = &self.process;
        (
            process.missing_launches(),
            process.kernels_ran_at_last_copy(),
            process.is_complete(),
        )
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.process.notes().into_iter();
        notes.map(|note| note.text).collect()
    }
}

fn kernel(mangled: &str) -> ToTool {
    ToTool::Kernel(Kernel {
        mangled: mangled.into(),
        demangled: mangled.into(),
        method: Method::Slice,
        ..Kernel::default()
    })
}

#[test]
fn what_was_told_is_brought_up_to_date() {
    let mut agent = Agent::new();
    agent.say(&kernel("k"));
    agent.say(&ToTool::Counts(Counts {
        kernels: vec![KernelCount {
            mangled: "k".into(),
            launches: 5,
            uninstrumented: 9,
            contexts: vec![(0, 5)],
            generations: vec![(1, 5)],
            ..KernelCount::default()
        }],
        clients: Vec::new(),
    }));
    let with = row(LaunchKind::With, 0, 1, &[]);
    agent.launch(&with, 7);
    agent.launch(&row(LaunchKind::With, 1, 2, &["b"]), 2);
    agent.launch(&row(LaunchKind::Chosen, 0, 1, &["a"]), 3);
    agent.launch(&row(LaunchKind::Uninstrumented, 0, 0, &[]), 8);
    agent.launch(&row(LaunchKind::Skipped, 0, 0, &[]), 1);
    agent.launch(&row(LaunchKind::Unwanted, 0, 0, &[]), 4);
    let [known] = agent.process.kernels().try_into().unwrap();
    assert_eq!((known.launches, known.contexts), (9, vec![(0, 7), (1, 2)]));
    assert_eq!(
        (known.uninstrumented, known.skipped, known.unwanted),
        (9, 1, 4)
    );
    assert_eq!(known.generations, [(1, 7), (2, 2)]);
    let program = |name: &str, launches| (name.to_owned(), launches);
    assert_eq!(known.programs, [program("a", 3), program("b", 2)]);
    let by_context = [(0, vec![program("a", 3)]), (1, vec![program("b", 2)])];
    assert_eq!(known.context_programs, by_context);
    // What ends it does not matter.
    agent.launch(&with, 1);
    agent.end();
    agent.launch(&with, 100);
    assert_eq!(agent.process.kernels()[0].launches, 10);
}

#[test]
fn how_many_launches_data_are_missing_is_told_at_the_end() {
    let with = row(LaunchKind::With, 0, 1, &[]);
    let cases = [
        (
            (3, Some(false), 0),
            vec!["process 7 ended without a good-bye: the data of its last 3 launches are missing"],
        ),
        (
            (1, Some(true), 0),
            vec![
                "process 7 ended without a good-bye: the data of its last launch are missing, and some of kernels that still ran at the last copy before",
            ],
        ),
        (
            (2, None, 1),
            vec![
                "process 7 ended without a good-bye: the data of its last 2 launches are missing, and some of kernels that still ran at the last copy before, if any did",
                "process 7: the data of 1 launch are missing that came in exit handlers or destructors, when all others had been brought home",
            ],
        ),
        (
            (0, Some(true), 0),
            vec!["process 7 ended while kernels ran: some of their data are missing"],
        ),
        (
            (0, None, 0),
            vec![
                "process 7 ended without a good-bye: if kernels still ran at the last copy of its data, some of theirs are missing",
            ],
        ),
        ((0, Some(false), 0), vec![]),
    ];
    for ((missing, kernels_ran, late), notes) in cases {
        let mut agent = Agent::new();
        agent.launch(&with, 5 + missing);
        let copy = LastCopy {
            launches: 5,
            kernels_ran,
        };
        agent.writer.copied(0, copy);
        agent.writer.late().store(late, Ordering::Relaxed);
        agent.end();
        assert_eq!(agent.missing(), (Some(missing + late), kernels_ran, false));
        assert_eq!(agent.notes(), notes);
    }
}

#[test]
fn a_good_bye_without_all_data_is_not_complete() {
    let with = row(LaunchKind::With, 0, 1, &[]);
    let copy = LastCopy {
        launches: 5,
        kernels_ran: Some(false),
    };
    for (launches, notes) in [
        (5, vec![]),
        (
            6,
            vec!["process 7: the data of its last launch are missing"],
        ),
    ] {
        let mut agent = Agent::new();
        agent.launch(&with, launches);
        agent.writer.copied(0, copy);
        let reason = "exit".to_owned();
        agent.say(&ToTool::Bye { reason });
        agent.end();
        let missing = launches - 5;
        assert_eq!(agent.missing(), (Some(missing), Some(false), missing == 0));
        assert_eq!(agent.notes(), notes);
    }
    // One that shares nothing, and says that this is all.
    let (tool, agent) = ToolConnection::pair().unwrap();
    let process = Process::new(0, Some(tool), None);
    let mut agent = AgentConnection::trusted(agent).unwrap();
    process.pump();
    assert_eq!(process.missing_launches(), None);
    let reason = "exit".to_owned();
    let minute = Duration::from_secs(60);
    agent
        .send(&ToTool::Bye { reason }, &[], None, minute)
        .unwrap();
    process.pump();
    assert_eq!(process.missing_launches(), Some(0));
}

#[test]
fn a_kernel_that_the_agent_had_no_time_to_tell_of_is_counted() {
    let mut agent = Agent::new();
    agent.say(&kernel("other"));
    agent.launch(&row(LaunchKind::With, 0, 1, &[]), 4);
    assert_eq!(agent.process.kernels().len(), 1);
    agent.end();
    let kernels = agent.process.kernels().into_iter();
    let kernels: Vec<_> = kernels
        .map(|known| {
            (
                known.kernel.mangled,
                known.launches,
                known.kernel.method.to_string(),
            )
        })
        .collect();
    let expected = [
        ("other", 0, "slice"),
        ("k", 4, "not known: the process ended before it was told"),
    ]
    .map(|(name, launches, method)| (name.to_owned(), launches, method.to_owned()));
    assert_eq!(kernels, expected);
}

#[test]
fn who_counts_in_what_is_no_such_memory_is_not_listened_to() {
    let (_, other) = warpbpf_wire::SharedWriter::create(&[], 0).unwrap();
    let (_, again) = LaunchWriter::create().unwrap();
    for (fd, why) in [
        (Some(other), "the shared area is not one of this warpbpf"),
        (Some(again), "it counts its launches in two places"),
    ] {
        let mut state = State::default();
        if why.starts_with("it") {
            state.open_launches(LaunchWriter::create().ok().map(|(_, fd)| fd));
        }
        state.open_launches(fd);
        let [note] = &state.notes[..] else {
            panic!("{:?}", state.notes);
        };
        assert!(note.text.contains(why), "{}", note.text);
    }
}
