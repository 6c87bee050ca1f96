//! What is kept and what is unloaded when programs are exchanged.

use std::sync::Arc;
use std::time::Duration;

use warpbpf_session::{ProgramChange, Session};
use warpbpf_wire::{Change, Options, ToTool};

use super::attached::{Application, compile};
use crate::entry::Place;
use crate::modules;

/// Of a kernel; `NAME` and `KERNEL` are put in.
const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");
SEC("gpu/entry/KERNEL")
int NAME(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = 1;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value)
        *value += 1;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

pub(super) fn object(name: &str, kernel: &str) -> Vec<u8> {
    let text = PROGRAM.replace("KERNEL", kernel).replace("NAME", name);
    compile(&format!("exchange-{name}"), &text)
}

fn started(name: &str) -> (Application, usize) {
    let mut app = Application::with(Options::default(), &object(name, "inc"), &[]);
    let module = app.load();
    let function = app.function(module);
    (app, function)
}

/// Exchanges programs, and unloads what is left of the old ones.
fn exchange(app: &mut Application, change: Change, object: Vec<u8>) {
    let before = app.agent.generations.now();
    let limit = Duration::from_secs(20);
    app.agent.change_programs(1, change, object, limit);
    let tool = app.tool.as_mut().unwrap();
    loop {
        let frame = tool.recv(limit).unwrap().expect("an answer");
        if let ToTool::Changed(changed) = frame.message {
            assert_eq!(changed.refused, None);
            break;
        }
    }
    // The thread does this too, after its answer; who comes second finds nothing.
    assert!(before.is_left());
    modules::retire(app.agent, before.number);
    std::thread::sleep(Duration::from_millis(100));
}

/// The slices that are loaded, which hold the kernel's own code too.
fn slices(app: &Application) -> usize {
    let all = app.world.modules();
    let is_slice = |text: &&String| text.contains("wbpf") && text.contains("red.global.add.u32");
    all.iter().filter(is_slice).count()
}

fn places(app: &Application, function: usize) -> Vec<&'static Place> {
    app.agent.table.get(function).unwrap().places().collect()
}

fn remove(name: &str) -> Change {
    Change::Remove {
        programs: vec![name.to_owned()],
    }
}

#[test]
fn a_variant_that_was_launched_in_an_earlier_generation_stays() {
    let (mut app, function) = started("kept");
    app.launch(function, 2, 64);
    assert_eq!((slices(&app), app.world.with_probes()), (1, 1));
    exchange(&mut app, Change::Add, object("beside", "another"));
    let variants = places(&app, function);
    let variants: Vec<_> = variants.iter().filter_map(|p| p.variant.as_ref()).collect();
    assert!(
        variants.len() == 2 && Arc::ptr_eq(variants[0], variants[1]),
        "one for both generations"
    );
    // A kernel of the first generation may still run.
    exchange(&mut app, remove("kept"), Vec::new());
    assert_eq!(slices(&app), 1);
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 1);
}

#[test]
fn a_variant_that_nobody_launched_goes_with_the_last_generation_that_has_it() {
    let (mut app, function) = started("unused");
    exchange(&mut app, Change::Add, object("besides", "another"));
    assert_eq!(slices(&app), 1, "it goes on");
    exchange(&mut app, remove("unused"), Vec::new());
    assert_eq!(slices(&app), 0);
    let gone = |place: &&Place| place.variant.is_some() && place.context().is_some();
    assert!(!places(&app, function).iter().any(gone));
}

#[test]
fn what_is_taken_back_leaves_what_it_shared() {
    let (mut app, function) = started("shared");
    let session: Arc<Session> = Arc::clone(app.agent.generations.now().session.get().unwrap());
    let other = object("refused", "another");
    for _ in 0..2 {
        let next = session.succeeded(ProgramChange::Add(&other)).unwrap();
        let next = Arc::new(next);
        modules::make_maps(app.agent, &next).unwrap();
        assert!(modules::make_ready(app.agent, &next, &|| true));
        assert_eq!(places(&app, function)[0].context(), Some(app.context));
        modules::take_back(app.agent, next.generation());
        let places = places(&app, function);
        assert_eq!(places[0].generation, 2);
        assert_eq!(places[0].context(), None);
    }
    assert_eq!(slices(&app), 1);
    // Both attempts had one number, and both told of the kernel: so its report is not kept back from a third.
    let all = places(&app, function);
    let kept = all.iter().find(|place| place.generation == 1).unwrap();
    let variant = kept.variant.as_ref().unwrap();
    let known = app.agent.graphs.place_of(variant.function.0).unwrap();
    assert!(std::ptr::eq(known, *kept), "graphs know the one in force");
    assert!(!modules::has_reported(app.agent, 2) && modules::has_reported(app.agent, 1));
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 1);
}

#[test]
fn a_refused_exchange_leaves_kernels_to_nobody() {
    let mut app = Application::with(Options::default(), &object("elsewhere", "another"), &[]);
    let module = app.load();
    let function = app.function(module);
    let session: Arc<Session> = Arc::clone(app.agent.generations.now().session.get().unwrap());
    let other = object("wanted", "inc");
    for attempt in 1..3 {
        let next = session.succeeded(ProgramChange::Add(&other)).unwrap();
        let next = Arc::new(next);
        modules::make_maps(app.agent, &next).unwrap();
        assert!(modules::make_ready(app.agent, &next, &|| true));
        // Missed until the program comes, skipped by nobody, and wanted by nobody once it does not come.
        app.launch(function, 1, 32);
        let entry = app.agent.table.get(function).unwrap();
        assert_eq!(entry.without(), [attempt, 0, attempt - 1]);
        modules::take_back(app.agent, next.generation());
        app.launch(function, 1, 32);
        assert_eq!(entry.without(), [attempt, 0, attempt]);
    }
    exchange(&mut app, Change::Add, other);
    app.launch(function, 1, 32);
    let entry = app.agent.table.get(function).unwrap();
    assert_eq!((entry.without(), app.world.with_probes()), ([2, 0, 2], 1));
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn maps_that_an_exchange_brings_count_for_the_bound() {
    let (app, _) = started("bounded");
    let taken = app.agent.bound.of(app.context);
    let session: Arc<Session> = Arc::clone(app.agent.generations.now().session.get().unwrap());
    // Constants are a map of their own.
    let text = PROGRAM.replace("KERNEL", "inc").replace("NAME", "more");
    let text = text.replace("SEC(\"gpu", "const volatile __u64 step = 7;\nSEC(\"gpu");
    let text = text.replace("+= 1", "+= step");
    let next = compile("exchange-more", &text);
    let next = Arc::new(session.succeeded(ProgramChange::Add(&next)).unwrap());
    app.agent.bound.set(Some(taken));
    let refused = modules::make_maps(app.agent, &next).unwrap_err();
    assert!(
        refused.contains(&format!("`--max-device-memory` allows {taken}")),
        "{refused}"
    );
    assert_eq!(app.agent.bound.of(app.context), taken);
    app.agent.bound.set(None);
    modules::make_maps(app.agent, &next).unwrap();
    assert!(app.agent.bound.of(app.context) > taken);
}
