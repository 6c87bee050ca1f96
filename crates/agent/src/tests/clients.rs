//! A second tool's programs beside those of the first: what runs, what is kept for the first, and
//! whose launches are whose.

use std::sync::Arc;
use std::time::Duration;

use warpbpf_wire::{Change, Choice, KernelCount, Options, ToAgent, ToTool};

use super::attached::Application;
use super::replace::{object, places, replace, slices, started};
use crate::kernels::stream_name::StreamName;

/// What has programs in every so many launches.
fn every(every: u64) -> Options {
    let choice = Choice {
        every,
        ..Choice::default()
    };
    Options {
        choice,
        ..Options::default()
    }
}

fn join(app: &mut Application, client: u32, name: &str) {
    join_for(app, client, name, Options::default());
}

pub(super) fn join_for(app: &mut Application, client: u32, name: &str, options: Options) {
    let options = Box::new(options);
    replace(app, Change::Join { client, options }, object(name, "inc"));
}

fn leave(app: &mut Application, client: u32) {
    replace(app, Change::Leave { client }, Vec::new());
}

/// Launches with programs of each tool, uninstrumented, skipped and unwanted ones, by its number.
pub(super) fn told(app: &Application) -> Vec<(u32, [u64; 4])> {
    let clients = app.agent.kernel_registry.counts().clients.into_iter();
    let of = |count: &KernelCount| {
        [
            count.launches,
            count.uninstrumented,
            count.skipped,
            count.unwanted,
        ]
    };
    let mut all: Vec<_> = clients
        .map(|one| (one.client, one.kernels.first().map_or([0; 4], of)))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn what_has_no_room_for_all_has_the_first_tools_alone() {
    let (mut app, function) = started("hosts");
    app.launch(function, 2, 64);
    let alone = places(&app, function)[0].variant.clone().unwrap();
    join(&mut app, 1, "clients");
    let all = places(&app, function)[0].variant.clone().unwrap();
    assert!(!Arc::ptr_eq(&all, &alone));
    assert_eq!(all.choices.clients(), [0, 1]);
    // Of 4 SMs each has room for 8 blocks, for 6 with the first tool's programs, and for 4 with
    // all.
    app.world.set_room(all.function.0 as usize, 4);
    for blocks in [16, 17, 24, 25] {
        app.launch(function, blocks, 64);
    }
    let launched = app.world.launched();
    let [joint, single] = [&all, &alone].map(|variant| variant.function.0 as usize);
    assert_eq!(launched, [single, joint, single, single, function]);
    assert_eq!(told(&app), [(0, [4, 1, 0, 0]), (1, [1, 3, 0, 0])]);
    drain(&mut app, 7);
    let said = drained(&mut app, 7).into_iter();
    let said = said.filter(|text| text.contains("launched with") || text.contains("all tools"));
    let said: Vec<String> = said.collect();
    let [with_some, without] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(
        with_some,
        "kernel `inc`: some launches cannot have the programs of all tools (all blocks of a grid would not run at once any more); they run with those that were there before, and count as uninstrumented for this one"
    );
    // The first tool's own launch without probes, of which nothing was said yet.
    assert!(
        without.starts_with("kernel `inc` was launched with 25 blocks"),
        "{without}"
    );

    // What it had is still there.
    let loaded = app.world.calls()["cuModuleLoadDataEx"];
    leave(&mut app, 1);
    let again = places(&app, function)[0].variant.clone().unwrap();
    assert!(Arc::ptr_eq(&again, &alone));
    assert_eq!(app.world.calls()["cuModuleLoadDataEx"], loaded);
    // The client's was launched, and may run.
    assert_eq!(slices(&app), 2);
    app.launch(function, 24, 64);
    assert_eq!(told(&app), [(0, [5, 1, 0, 0]), (1, [1, 3, 0, 0])]);
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn a_kernel_of_a_client_alone_is_none_of_the_first_tools() {
    let mut app = Application::with(Options::default(), &object("apart", "another"), &[]);
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 1, 32);
    join(&mut app, 1, "one");
    app.launch(function, 1, 32);
    join(&mut app, 2, "two");
    app.launch(function, 1, 32);
    leave(&mut app, 1);
    app.launch(function, 1, 32);
    leave(&mut app, 2);
    app.launch(function, 1, 32);
    assert_eq!(app.world.with_probes(), 3);
    // Launches that no other tool would have noticed are the first tool's for nothing.
    let expected = [(0, [0, 0, 0, 4]), (1, [2, 0, 0, 0]), (2, [2, 0, 0, 0])];
    assert_eq!(told(&app), expected);
}

#[test]
fn code_that_the_driver_does_not_load_leaves_what_is_there() {
    let (mut app, function) = started("stays");
    app.launch(function, 1, 32);
    let before = places(&app, function)[0].variant.clone().unwrap();
    app.world.fail(
        "cuModuleLoadDataEx",
        app.world.calls()["cuModuleLoadDataEx"] + 1,
    );
    join(&mut app, 1, "fails");
    let after = places(&app, function)[0].variant.clone().unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    app.launch(function, 1, 32);
    assert_eq!(told(&app), [(0, [2, 0, 0, 0]), (1, [0, 1, 0, 0])]);
    // The next one may have more luck, and then it is in.
    leave(&mut app, 1);
    join(&mut app, 2, "enters");
    app.launch(function, 1, 32);
    let expected = [(0, [3, 0, 0, 0]), (1, [0, 1, 0, 0]), (2, [1, 0, 0, 0])];
    assert_eq!(told(&app), expected);
}

#[test]
fn code_that_the_driver_does_not_load_is_made_without_clients() {
    let (mut app, function) = started("anew");
    join(&mut app, 1, "beside");
    app.launch(function, 1, 32);
    let loads = app.world.calls()["cuModuleLoadDataEx"];
    app.world.fail("cuModuleLoadDataEx", loads + 1);
    replace(&mut app, Change::Replace, object("newer", "inc"));
    assert_eq!(app.world.calls()["cuModuleLoadDataEx"], loads + 2);
    let now = places(&app, function)[0].variant.clone().unwrap();
    assert_eq!(now.choices.clients(), [0]);
    app.launch(function, 1, 32);
    assert_eq!(app.world.with_probes(), 2);
    assert_eq!(told(&app), [(0, [2, 0, 0, 0]), (1, [1, 1, 0, 0])]);
    // It goes from what it is not in.
    leave(&mut app, 1);
    app.launch(function, 1, 32);
    assert_eq!(told(&app), [(0, [3, 0, 0, 0]), (1, [1, 1, 0, 0])]);
    assert_eq!(app.world.calls()["cuModuleLoadDataEx"], loads + 2);
}

#[test]
fn what_is_chosen_for_who_has_no_place_is_uninstrumented_for_it_alone() {
    // The first tool's are 1, 5 and 9. The other one came for 3, 5, 7 and 9, or for 4 and 7.
    for (of_client, uninstrumented) in [(2, 4), (3, 2)] {
        let mut app = Application::with(every(4), &object("fourth", "inc"), &[]);
        let module = app.load();
        let function = app.function(module);
        app.launch(function, 1, 32);
        app.world.fail(
            "cuModuleLoadDataEx",
            app.world.calls()["cuModuleLoadDataEx"] + 1,
        );
        join_for(&mut app, 1, "second", every(of_client));
        for _ in 2..=9 {
            app.launch(function, 1, 32);
        }
        assert_eq!(app.world.with_probes(), 3);
        let expected = [
            (0, [3, 0, 6, 0]),
            (1, [0, uninstrumented, 8 - uninstrumented, 0]),
        ];
        assert_eq!(told(&app), expected, "one in {of_client}");
    }
}

#[test]
fn who_runs_alone_is_in_the_launches_that_it_chose() {
    let mut app = Application::with(every(2), &object("half", "inc"), &[]);
    let module = app.load();
    let function = app.function(module);
    app.launch(function, 2, 64);
    let alone = places(&app, function)[0].variant.clone().unwrap();
    join(&mut app, 1, "whole");
    let all = places(&app, function)[0].variant.clone().unwrap();
    // As above: there is room for 24 blocks with the first tool's programs, and for 16 with all.
    app.world.set_room(all.function.0 as usize, 4);
    for blocks in [16, 17, 17, 25] {
        app.launch(function, blocks, 64);
    }
    let launched = app.world.launched();
    let [joint, single] = [&all, &alone].map(|variant| variant.function.0 as usize);
    assert_eq!(launched, [single, joint, single, function, function]);
    assert_eq!(told(&app), [(0, [2, 1, 2, 0]), (1, [1, 3, 0, 0])]);
}

const LIMIT: Duration = Duration::from_secs(20);

/// Asks that kernels have ended.
fn drain(app: &mut Application, token: u64) {
    let tool = app.tool.as_mut().unwrap();
    let message = ToAgent::Drain { token };
    tool.send(&message, &[], None, LIMIT).unwrap();
}

/// What is said until that is answered.
fn drained(app: &mut Application, asked: u64) -> Vec<String> {
    let (tool, mut notes) = (app.tool.as_mut().unwrap(), Vec::new());
    loop {
        match tool.recv(LIMIT).unwrap().expect("an answer").message {
            ToTool::Snapshotted { token } if token == asked => return notes,
            ToTool::Note { text, .. } => notes.push(text),
            _ => {}
        }
    }
}

/// Waits for the whole context, completion events behind all of it, and questions to those.
fn asked(app: &Application) -> [u32; 3] {
    let calls = app.world.calls();
    let asked = ["cuCtxSynchronize", "cuCtxRecordEvent", "cuEventQuery"];
    asked.map(|name| calls.get(name).copied().unwrap_or(0))
}

fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Something is captured, or is no more.
fn capture(app: &Application, goes_on: bool) {
    let own = StreamName {
        stream: std::ptr::null_mut(),
        null_is_per_thread: true,
    };
    let captures = &app.agent.graphs.captures;
    captures.note(app.context, own.key(), goes_on);
}

#[test]
fn kernels_of_who_goes_are_waited_for_beside_captures() {
    let (mut app, function) = started("captures");
    join(&mut app, 1, "waits");
    app.world.set_busy(true);
    app.launch(function, 1, 32);
    leave(&mut app, 1);
    capture(&app, true);
    let before = asked(&app);
    drain(&mut app, 7);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(asked(&app), before, "something is captured");
    capture(&app, false);
    wait_until(|| asked(&app)[2] > before[2] + 1);
    // One that begins now is no hindrance.
    capture(&app, true);
    app.world.set_busy(false);
    assert_eq!(drained(&mut app, 7), [""; 0]);
    let [waits, events, _] = asked(&app);
    assert_eq!([waits, events], [before[0], before[1] + 1]);
}

#[test]
fn a_driver_without_marks_has_its_contexts_waited_for() {
    let (mut app, function) = started("old");
    join(&mut app, 1, "waits");
    app.launch(function, 1, 32);
    app.world.refuse("cuCtxRecordEvent", 801);
    let before = asked(&app);
    drain(&mut app, 7);
    assert_eq!(drained(&mut app, 7), [""; 0]);
    assert_eq!(asked(&app), [before[0] + 1, before[1] + 1, before[2]]);
}

#[test]
fn nobody_waits_where_no_second_tool_had_a_launch() {
    let (mut app, function) = started("none");
    app.launch(function, 1, 32);
    join(&mut app, 1, "idle");
    let before = asked(&app);
    app.world.set_busy(true);
    drain(&mut app, 7);
    assert_eq!(drained(&mut app, 7), [""; 0]);
    assert_eq!(asked(&app), before);
}

#[test]
fn launches_under_way_are_waited_for_too() {
    let (mut app, function) = started("under_way");
    join(&mut app, 1, "slow");
    app.launch(function, 1, 32);
    let flight = app.agent.generations.enter();
    let (answer, _) = super::replace::asked(&mut app, Change::Leave { client: 1 }, &[]);
    assert_eq!(answer.refused, None);
    let before = asked(&app);
    drain(&mut app, 7);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(asked(&app), before, "it is in no stream yet");
    drop(flight);
    assert_eq!(drained(&mut app, 7), [""; 0]);
    assert_eq!(asked(&app)[1], before[1] + 1);
}

#[test]
fn what_cannot_be_known_of_who_goes_is_said_to_it() {
    let (mut app, function) = started("unknown");
    join(&mut app, 1, "goes");
    join(&mut app, 2, "stays");
    app.launch(function, 1, 32);
    leave(&mut app, 1);
    app.world.refuse("cuCtxRecordEvent", 719);
    drain(&mut app, 7);
    let tool = app.tool.as_mut().unwrap();
    let (text, clients) = loop {
        match tool.recv(LIMIT).unwrap().expect("an answer").message {
            ToTool::Note { text, clients, .. } => break (text, clients),
            ToTool::Snapshotted { .. } => panic!("nothing was said"),
            _ => {}
        }
    };
    assert!(
        text.starts_with("what is shown is as it was copied last, the kernels that ran at the end were not waited for: `cuCtxRecordEvent` failed"),
        "{text}"
    );
    assert_eq!(clients, [1]);
}
