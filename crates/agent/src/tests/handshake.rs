//! What the agent and a tool say first, and what becomes of it when the tool does not answer as
//! expected.

use std::time::Duration;

use warpbpf_wire::{NoteLevel, Options, PROTOCOL, ToAgent, ToTool, ToolConnection, WireError};

use super::fake::{agent, load_module};
use crate::runtime::agent::Mode;

const SECOND: Duration = Duration::from_secs(1);

fn next(tool: &mut ToolConnection) -> ToTool {
    tool.recv(5 * SECOND).unwrap().expect("a message").message
}

fn attach(tool: &mut ToolConnection, object: &[u8]) {
    let options = Options::default();
    tool.send(&ToAgent::Attach { options }, object, None, SECOND)
        .unwrap();
}

#[test]
fn hello_says_who_and_on_what_device() {
    let (agent, mut tool) = agent();
    tool.send(&ToAgent::Observe, &[], None, SECOND).unwrap();
    assert!(matches!(agent.mode(), Mode::Observe));
    let ToTool::Hello(hello) = next(&mut tool) else {
        panic!("no hello");
    };
    assert_eq!(hello.protocol, PROTOCOL);
    assert_eq!(hello.pid, std::process::id());
    assert_eq!(
        hello.exe,
        std::env::current_exe().unwrap().display().to_string()
    );
    assert_eq!(hello.argv, std::env::args().collect::<Vec<_>>());
    let device = hello.device.unwrap();
    assert_eq!(
        (
            device.name.as_str(),
            device.capability,
            device.sms,
            device.driver_version,
            device.soft
        ),
        ("Fake GPU", (9, 0), 4, 13000, false)
    );
    agent.finish("exit", SECOND);
    assert_eq!(next(&mut tool), ToTool::Counts(Default::default()));
    assert_eq!(
        next(&mut tool),
        ToTool::Bye {
            reason: "exit".into()
        }
    );
    assert!(!agent.is_on());
    // A second end has nothing to wait for.
    agent.finish("exit", SECOND);
}

#[test]
fn a_bad_object_is_refused_with_its_reason_and_the_application_goes_on() {
    let (agent, mut tool) = agent();
    attach(&mut tool, b"not an object");
    let (code, module) = load_module(agent, ".version 8.0\n.target sm_90\n");
    assert_eq!(code, 0);
    assert_ne!(module, 0);
    assert!(matches!(agent.mode(), Mode::PassThrough));
    assert!(!agent.is_on());
    assert!(matches!(next(&mut tool), ToTool::Hello(_)));
    let ToTool::Refused { message } = next(&mut tool) else {
        panic!("not refused");
    };
    assert!(
        message.starts_with("the object cannot be loaded: "),
        "{message}"
    );
    assert_eq!(
        next(&mut tool),
        ToTool::Bye {
            reason: "nothing was injected".into()
        }
    );
    assert!(matches!(tool.recv(SECOND), Err(WireError::Closed)));
}

#[test]
fn a_tool_that_is_gone_leaves_the_application_alone() {
    let (agent, tool) = agent();
    drop(tool);
    let (code, module) = load_module(agent, ".version 8.0\n");
    assert_eq!(code, 0);
    assert_ne!(module, 0);
    assert!(!agent.is_on());
}

#[test]
fn a_detach_instead_of_an_attach_is_an_end() {
    let (agent, mut tool) = agent();
    let token = 1;
    tool.send(&ToAgent::Snapshot { token }, &[], None, SECOND)
        .unwrap();
    let operate = ToAgent::MapOps { token: 2, map: 0 };
    tool.send(&operate, &[0; 4], None, SECOND).unwrap();
    tool.send(&ToAgent::Detach, &[], None, SECOND).unwrap();
    assert!(matches!(agent.mode(), Mode::PassThrough));
    assert!(!agent.is_on());
    assert!(matches!(next(&mut tool), ToTool::Hello(_)));
    // Whoever asks waits for an answer.
    assert_eq!(next(&mut tool), ToTool::Snapshotted { token });
    let error = Some("there are no maps before an object is attached".into());
    assert_eq!(next(&mut tool), ToTool::MapOps { token: 2, error });
}

#[test]
fn a_tool_that_dies_later_turns_everything_off() {
    let (agent, mut tool) = agent();
    tool.send(&ToAgent::Observe, &[], None, SECOND).unwrap();
    assert!(matches!(agent.mode(), Mode::Observe));
    assert!(agent.is_on());
    drop(tool);
    let mut waited = 0;
    while agent.is_on() {
        std::thread::sleep(Duration::from_millis(10));
        waited += 1;
        assert!(waited < 500, "still on after 5 s");
    }
}

#[test]
fn a_snapshot_is_answered_and_a_detach_says_good_bye() {
    let (agent, mut tool) = agent();
    tool.send(&ToAgent::Observe, &[], None, SECOND).unwrap();
    assert!(matches!(agent.mode(), Mode::Observe));
    assert!(matches!(next(&mut tool), ToTool::Hello(_)));
    let token = 77;
    tool.send(&ToAgent::Snapshot { token }, &[], None, SECOND)
        .unwrap();
    assert_eq!(next(&mut tool), ToTool::Snapshotted { token: 77 });
    agent.note(NoteLevel::Info, "once".into());
    agent.note(NoteLevel::Info, "once".into());
    tool.send(&ToAgent::Detach, &[], None, SECOND).unwrap();
    let note = ToTool::Note {
        level: NoteLevel::Info,
        text: "once".into(),
        clients: Vec::new(),
    };
    assert_eq!(next(&mut tool), note);
    assert_eq!(next(&mut tool), ToTool::Counts(Default::default()));
    let reason = "detached".into();
    assert_eq!(next(&mut tool), ToTool::Bye { reason });
    agent.finish("exit", 5 * SECOND);
    assert!(!agent.is_on());
}

#[test]
fn hooks_that_cannot_be_set_are_told_before_anything_else() {
    let (agent, mut tool) = agent();
    agent.refuse_at_once("the CUDA driver cannot be hooked: x".into());
    let ToTool::Hello(hello) = next(&mut tool) else {
        panic!("no hello");
    };
    assert_eq!(hello.device, None);
    let message = "the CUDA driver cannot be hooked: x".into();
    assert_eq!(next(&mut tool), ToTool::Refused { message });
    assert!(!agent.is_on());
}

#[test]
fn a_forked_child_is_silent() {
    let (agent, mut tool) = agent();
    tool.send(&ToAgent::Observe, &[], None, SECOND).unwrap();
    assert!(matches!(agent.mode(), Mode::Observe));
    assert!(matches!(next(&mut tool), ToTool::Hello(_)));
    // SAFETY: the child only does what the fork handler does, then leaves without running anything
    // else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        agent.turn_off_in_child();
        let quiet = !agent.is_on() && agent.table.get(16).is_none();
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(if quiet { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: our own child and a local.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(agent.is_on());
    let token = 5;
    tool.send(&ToAgent::Snapshot { token }, &[], None, SECOND)
        .unwrap();
    assert_eq!(next(&mut tool), ToTool::Snapshotted { token: 5 });
}
