//! What a detach leaves behind: nothing of ours in the context, and an agent that does nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_driver::Context;
use warpbpf_wire::ToTool;

use super::attached::Application;
use crate::device::drain::NotDrained;
use crate::sys::descriptors::keep;

#[test]
fn what_a_session_took_is_given_back() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    for _ in 0..3 {
        app.launch(function, 2, 64);
    }
    assert!(app.world.held() > 0);
    assert_eq!(
        (app.world.modules().len() > 1, app.world.with_probes()),
        (true, 3)
    );
    assert!(!app.agent.graphs.may_hold());
    app.agent.finish("detached", Duration::from_secs(20));
    app.agent.turn_off();
    app.agent.give_back();
    assert_eq!(app.world.held(), 0);
    assert_eq!(app.world.modules().len(), 1, "the application's own");
    // A second time there is nothing.
    app.agent.give_back();
    app.launch(function, 2, 64);
    assert_eq!(
        (app.world.launched().len(), app.world.with_probes()),
        (4, 3)
    );
    assert_eq!(app.answers, [0; 6]);
    app.said();
}

#[test]
fn what_was_to_be_sent_ends_with_the_connection() {
    let app = Application::new();
    let send = || {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let writer = keep(writer.into());
        app.agent.send(ToTool::Attached, Some(writer));
        reader
    };
    let waits = send();
    app.agent.nobody_listens();
    // A thread of the application may come to it behind the end.
    let late = send();
    for reader in [waits, late] {
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Ok(0), "closed");
    }
}

#[test]
fn launches_with_earlier_programs_are_waited_for_too() {
    let mut app = Application::new();
    app.load();
    let generations = &app.agent.generations;
    let session = Arc::clone(generations.now().session.get().unwrap());
    let flight = generations.enter();
    generations.switch(session);
    let soon = || Instant::now() + Duration::from_millis(20);
    let waited = app.agent.wait_for_kernels(soon());
    assert_eq!(waited, Err(NotDrained::Running));
    drop(flight);
    assert_eq!(app.agent.wait_for_kernels(soon()), Ok(()));
}

#[test]
fn the_driver_is_asked_for_handles_only_where_a_tool_came_late() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    assert!(app.agent.has_launch(function));
    assert!(!app.agent.has_launch(0x77_0000));
    app.launch(0x77_0000, 1, 32);
    assert_eq!(app.world.with_probes(), 0);
    app.agent.turn_off();
    assert!(!app.agent.has_launch(function));
}

#[test]
fn a_kernel_that_is_still_looked_for_at_the_end_is_told() {
    let mut app = Application::new();
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 1, 32);
    let context = Context(app.context as *mut _);
    app.agent.preloaded.waits("_Z5firstPf", context);
    app.agent.preloaded.waits("second", context);
    // Of another image than the one that was launched.
    app.agent.preloaded.waits("inc", context);
    let said = app.said();
    let kernels = said.iter().filter_map(|message| match message {
        ToTool::Kernel(kernel) => Some((kernel.demangled.as_str(), kernel.method.to_string())),
        _ => None,
    });
    let why = "refused: its image was still being looked for among the files that are mapped when the programs went";
    let told: Vec<_> = kernels.collect();
    assert_eq!(told[0].0, "inc");
    assert_ne!(told[0].1, why);
    assert_eq!(
        told[1..],
        ["first", "second", "inc"].map(|name| (name, why.to_owned()))
    );
}
