//! Launches that are counted in memory which the tool sees: at once, and how many of them have
//! their data at home.

use std::time::Duration;

use warpbpf_wire::{LaunchKind, LaunchReader, LaunchRow, Missing, Options, ToTool};

use super::attached::{Application, compile, counts, notes};

/// What the tool looks at; what is said before is not heard any more.
fn opened(app: &mut Application) -> LaunchReader {
    let tool = app.tool.as_mut().unwrap();
    loop {
        let frame = tool.recv(Duration::from_secs(60)).unwrap();
        let frame = frame.expect("a message");
        if frame.message == ToTool::Launches {
            return LaunchReader::open(frame.fd.unwrap()).unwrap();
        }
    }
}

fn row(kind: LaunchKind, context: u32, programs: &[&str]) -> LaunchRow {
    let is_with = matches!(kind, LaunchKind::With | LaunchKind::Chosen);
    LaunchRow {
        kind,
        context,
        generation: u64::from(is_with),
        kernel: "inc".into(),
        programs: programs.iter().map(|p| (*p).to_owned()).collect(),
    }
}

/// Rows that have counted something.
fn counted(reader: &LaunchReader) -> Vec<(LaunchRow, u64)> {
    let mut rows = reader.look().rows;
    rows.retain(|(_, launches)| *launches > 0);
    rows
}

const NOTHING: Missing = Missing {
    launches: 0,
    kernels_ran: Some(false),
    late: 0,
};

#[test]
fn each_launch_is_counted_at_once() {
    let mut app = Application::new();
    let module = app.load();
    let reader = opened(&mut app);
    let function = app.function(module);
    let with = row(LaunchKind::With, 0, &["leave"]);
    for launches in 1..=3 {
        app.launch(function, 2, 64);
        assert_eq!(counted(&reader), [(with.clone(), launches)]);
    }
    // All blocks would be there at once only without programs.
    app.launch(function, 25, 256);
    let uninstrumented = row(LaunchKind::Uninstrumented, 0, &[]);
    assert_eq!(
        counted(&reader),
        [(with.clone(), 3), (uninstrumented.clone(), 1)]
    );
    // The kernel of another image counts as the same one, in each context by itself.
    app.unload(module);
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 2, 64);
    app.world.another_context();
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 2, 64);
    let elsewhere = row(LaunchKind::With, 1, &["leave"]);
    assert_eq!(
        counted(&reader),
        [(with, 4), (uninstrumented, 1), (elsewhere, 1)]
    );
    let said = app.said();
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (5, 1));
    assert_eq!(reader.look().missing(), NOTHING);
}

#[test]
fn programs_that_choose_different_launches_have_rows_of_their_own() {
    let program = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
SEC("gpu/entry/inc|every=2")
int second(struct wbpf_kernel_ctx *ctx) { return 0; }
SEC("gpu/entry/inc")
int all(struct wbpf_kernel_ctx *ctx) { return 0; }
char LICENSE[] SEC("license") = "GPL";
"#;
    let object = compile("choose-rows", program);
    let mut app = Application::with(Options::default(), &object, &[]);
    let module = app.load();
    let reader = opened(&mut app);
    let function = app.function(module);
    for _ in 0..4 {
        app.launch(function, 2, 64);
    }
    let with = row(LaunchKind::With, 0, &[]);
    let second = row(LaunchKind::Chosen, 0, &["second"]);
    let all = row(LaunchKind::Chosen, 0, &["all"]);
    assert_eq!(counted(&reader), [(with, 4), (second, 2), (all, 4)]);
    let said = app.said();
    let [inc] = counts(&said).try_into().unwrap();
    let programs = [("all".to_owned(), 4), ("second".to_owned(), 2)];
    assert_eq!(inc.programs, programs);
}

#[test]
fn what_cannot_be_copied_is_missing() {
    let mut app = Application::new();
    let module = app.load();
    let reader = opened(&mut app);
    let function = app.function(module);
    app.world.refuse("cuMemcpyDtoHAsync_v2", 999);
    for _ in 0..3 {
        app.launch(function, 2, 64);
    }
    app.said();
    let missing = reader.look().missing();
    assert_eq!(missing.launches, 3, "{missing:?}");
}

#[test]
fn where_kernels_run_at_the_end_it_is_known() {
    for busy in [false, true] {
        let mut app = Application::new();
        let module = app.load();
        let reader = opened(&mut app);
        let function = app.function(module);
        app.launch(function, 2, 64);
        app.world.set_busy(busy);
        app.agent.ends.before(&app.agent.files, false);
        let missing = Missing {
            kernels_ran: Some(busy),
            ..NOTHING
        };
        // The thread of ours that goes on may have copied once more, when nobody knew.
        let found = reader.look().missing();
        let unknown = Missing {
            kernels_ran: None,
            ..NOTHING
        };
        assert!(found == missing || busy && found == unknown, "{found:?}");
    }
}

#[test]
fn launches_behind_the_end_are_counted_as_missing() {
    let mut app = Application::new();
    let module = app.load();
    let reader = opened(&mut app);
    let function = app.function(module);
    app.launch(function, 2, 64);
    app.agent.begin_exit();
    app.said();
    assert_eq!(reader.look().missing(), NOTHING);
    assert!(!app.agent.is_on());
    app.launch(function, 2, 64);
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 1);
    let late = Missing { late: 2, ..NOTHING };
    assert_eq!(reader.look().missing(), late);
    let rows = [
        (row(LaunchKind::With, 0, &["leave"]), 1),
        (row(LaunchKind::Uninstrumented, 0, &[]), 2),
    ];
    assert_eq!(counted(&reader), rows);
    // The connection ends with the process, and not with the good-bye.
    let tool = app.tool.as_mut().unwrap();
    assert!(matches!(tool.recv(Duration::from_millis(1)), Ok(None)));
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn after_a_detach_nothing_is_counted() {
    let mut app = Application::new();
    let module = app.load();
    let reader = opened(&mut app);
    let function = app.function(module);
    app.launch(function, 2, 64);
    let said = app.said();
    app.launch(function, 2, 64);
    assert_eq!(reader.look().missing(), NOTHING);
    assert_eq!(counted(&reader).len(), 1);
    assert!(notes(&said).iter().all(|note| !note.contains("missing")));
}
