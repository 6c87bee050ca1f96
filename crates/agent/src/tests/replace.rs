//! What is kept and what is unloaded when programs are replaced, and what comes with them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use warpbpf_session::{ProgramChange, Session};
use warpbpf_wire::{
    Change, Changed, MapOp, MoreMaps, OpCode, Options, SharedReader, ToAgent, ToTool,
    decode_outcomes, encode_ops,
};

use super::attached::{Application, compile};
use crate::instrument::modules;
use crate::kernels::entry::Place;

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
    compile(&format!("replace-{name}"), &text)
}

pub(super) fn started(name: &str) -> (Application, usize) {
    let mut app = Application::with(Options::default(), &object(name, "inc"), &[]);
    let module = app.load();
    let function = app.function(module);
    (app, function)
}

/// Replaces programs, and unloads what is left of the old ones.
pub(super) fn replace(app: &mut Application, change: Change, object: Vec<u8>) {
    let before = app.agent.generations.now();
    assert_eq!(asked(app, change, &object).0.refused, None);
    // The thread does this too, after its answer; who comes second finds nothing.
    assert!(before.is_left());
    modules::retire(app.agent, before.number);
    std::thread::sleep(Duration::from_millis(100));
}

/// A program with maps of its own.
fn bringing(name: &str, entries: u32) -> Vec<u8> {
    let maps = format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, {entries});
            __type(key, __u32); __type(value, __u64); }} keys SEC(\".maps\");
        struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 40000);
            __type(key, __u32); __type(value, __u64); }} cells SEC(\".maps\");
        __u64 seen = 5;
        const volatile __u64 step = 3;
        SEC(\"gpu"
    );
    let text = PROGRAM.replace("KERNEL", "inc").replace("NAME", name);
    let text = text.replacen("SEC(\"gpu", &maps, 1).replace(
        "__u32 key = 1;",
        "__u32 key = 1;
        __u64 *cell = bpf_map_lookup_elem(&cells, &key);
        seen += step;
        if (cell) bpf_map_update_elem(&keys, &key, cell, BPF_ANY);",
    );
    compile(&format!("replace-{name}-{entries}"), &text)
}

/// Asks for a replacement: what is answered, and the memory of maps that came before the answer.
pub(super) fn asked(
    app: &mut Application,
    change: Change,
    object: &[u8],
) -> (Changed, Vec<(MoreMaps, OwnedFd)>) {
    let limit = Duration::from_secs(20);
    app.agent.change_programs(1, change, object.to_vec(), limit);
    let tool = app.tool.as_mut().unwrap();
    let mut came = Vec::new();
    loop {
        let frame = tool.recv(limit).unwrap().expect("an answer");
        match frame.message {
            ToTool::Changed(changed) => return (changed, came),
            ToTool::Maps(maps) => came.push((maps, frame.fd.expect("memory"))),
            _ => {}
        }
    }
}

/// Reads what the tool is sent until the memory of so many contexts came.
fn memories(app: &mut Application, contexts: usize) -> Vec<SharedReader> {
    let tool = app.tool.as_mut().unwrap();
    let mut all = Vec::new();
    while all.len() < contexts {
        let frame = tool.recv(Duration::from_secs(20)).unwrap().expect("memory");
        if let ToTool::Ready(_) | ToTool::Context(_) = frame.message {
            all.push(SharedReader::open(frame.fd.unwrap()).unwrap());
        }
    }
    all
}

/// Operations on a map: error numbers and bytes.
fn operated(app: &mut Application, map: u32, ops: &[MapOp<'_>]) -> Vec<(i32, Vec<u8>)> {
    let tool = app.tool.as_mut().unwrap();
    let (limit, message) = (Duration::from_secs(20), ToAgent::MapOps { token: 9, map });
    tool.send(&message, &encode_ops(ops), None, limit).unwrap();
    loop {
        let frame = tool.recv(limit).unwrap().expect("an answer");
        if let ToTool::MapOps { error, .. } = frame.message {
            assert_eq!(error, None);
            let outcomes = decode_outcomes(&frame.blob).unwrap();
            return outcomes.into_iter().map(|o| (o.errno, o.bytes)).collect();
        }
    }
}

fn with_host_ops(name: &str) -> (Application, usize) {
    let options = Options {
        host_ops: true,
        ..Options::default()
    };
    let mut app = Application::with(options, &object(name, "inc"), &[]);
    let module = app.load();
    (app, module)
}

/// The slices that are loaded, which hold the kernel's own code too.
pub(super) fn slices(app: &Application) -> usize {
    let all = app.world.modules();
    let is_slice = |text: &&String| text.contains("wbpf") && text.contains("red.global.add.u32");
    all.iter().filter(is_slice).count()
}

pub(super) fn places(app: &Application, function: usize) -> Vec<&'static Place> {
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
    replace(&mut app, Change::Add, object("beside", "another"));
    let variants = places(&app, function);
    let variants: Vec<_> = variants.iter().filter_map(|p| p.variant.as_ref()).collect();
    assert!(
        variants.len() == 2 && Arc::ptr_eq(variants[0], variants[1]),
        "one for both generations"
    );
    // A kernel of the first generation may still run.
    replace(&mut app, remove("kept"), Vec::new());
    assert_eq!(slices(&app), 1);
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 1);
}

#[test]
fn a_variant_that_nobody_launched_goes_with_the_last_generation_that_has_it() {
    let (mut app, function) = started("unused");
    replace(&mut app, Change::Add, object("besides", "another"));
    assert_eq!(slices(&app), 1, "it goes on");
    replace(&mut app, remove("unused"), Vec::new());
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
        let next = session.replaced(ProgramChange::Add(&other)).unwrap();
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
    // Both attempts had one number, and both told of the kernel: so its report is not kept back
    // from a third.
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
fn a_refused_replacement_leaves_kernels_to_nobody() {
    let mut app = Application::with(Options::default(), &object("elsewhere", "another"), &[]);
    let module = app.load();
    let function = app.function(module);
    let session: Arc<Session> = Arc::clone(app.agent.generations.now().session.get().unwrap());
    let other = object("wanted", "inc");
    for attempt in 1..3 {
        let next = session.replaced(ProgramChange::Add(&other)).unwrap();
        let next = Arc::new(next);
        modules::make_maps(app.agent, &next).unwrap();
        assert!(modules::make_ready(app.agent, &next, &|| true));
        // Uninstrumented until the program comes, skipped by nobody, and wanted by nobody once it
        // does not come.
        app.launch(function, 1, 32);
        let entry = app.agent.table.get(function).unwrap();
        assert_eq!(entry.without(), [attempt, 0, attempt - 1]);
        modules::take_back(app.agent, next.generation());
        app.launch(function, 1, 32);
        assert_eq!(entry.without(), [attempt, 0, attempt]);
    }
    replace(&mut app, Change::Add, other);
    app.launch(function, 1, 32);
    let entry = app.agent.table.get(function).unwrap();
    assert_eq!((entry.without(), app.world.with_probes()), ([2, 0, 2], 1));
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn maps_that_a_replacement_brings_count_for_the_bound() {
    let (app, _) = started("bounded");
    let taken = app.agent.bound.of(app.context);
    let session: Arc<Session> = Arc::clone(app.agent.generations.now().session.get().unwrap());
    // Constants are a map of their own.
    let text = PROGRAM.replace("KERNEL", "inc").replace("NAME", "more");
    let text = text.replace("SEC(\"gpu", "const volatile __u64 step = 7;\nSEC(\"gpu");
    let text = text.replace("+= 1", "+= step");
    let next = compile("replace-more", &text);
    let next = Arc::new(session.replaced(ProgramChange::Add(&next)).unwrap());
    app.agent.bound.set(Some(taken));
    let refused = modules::make_maps(app.agent, &next)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&format!("`--max-device-memory` allows {taken}")),
        "{refused}"
    );
    assert_eq!(app.agent.bound.of(app.context), taken);
    app.agent.bound.set(None);
    modules::make_maps(app.agent, &next).unwrap();
    assert!(app.agent.bound.of(app.context) > taken);
}

#[test]
fn maps_come_to_every_context_with_memory_that_the_tool_sees() {
    let (mut app, _) = with_host_ops("began");
    let first = app.context;
    app.world.another_context();
    app.load();
    let mut shared = memories(&mut app, 2);
    let taken = app.agent.bound.of(first);

    let (changed, came) = asked(&mut app, Change::Add, &bringing("more", 64));
    assert_eq!(changed.refused, None);
    let names: Vec<&str> = changed.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["counts", "cells", "keys", ".data", ".rodata"]);
    // Constants are each version's own, and are not shown.
    assert!(changed.maps[..4].iter().all(|map| map.bytes > 0));
    assert_eq!(changed.maps[4].bytes, 0);
    let told: Vec<(u32, u32)> = came.iter().map(|(m, _)| (m.context, m.first)).collect();
    assert_eq!(told, [(0, 1), (1, 1)]);
    assert_eq!(came[0].0.device_bytes, app.agent.bound.of(first));
    assert!(app.agent.bound.of(first) > taken);
    for (all, (_, fd)) in shared.iter_mut().zip(came) {
        all.append(SharedReader::open(&fd).unwrap());
        assert_eq!(all.maps(), 5);
    }

    // A value is written in both, and what is added up over contexts began in the first.
    let key = 7u32.to_le_bytes();
    let op = |code, value| MapOp {
        code,
        flags: 0,
        key: &key,
        value,
    };
    let value = 300u64.to_le_bytes();
    let outcomes = operated(
        &mut app,
        1,
        &[op(OpCode::Update, &value), op(OpCode::Lookup, &[])],
    );
    assert_eq!(outcomes[0].0, 0);
    assert_eq!(outcomes[1], (0, value.to_vec()));
    let snapshot = MapOp {
        code: OpCode::Snapshot,
        flags: 0,
        key: &[],
        value: &[],
    };
    for map in [1, 3] {
        assert_eq!(operated(&mut app, map, &[snapshot])[0].0, 0);
    }
    let read = |shared: &SharedReader, map, at: usize| {
        let mut bytes = Vec::new();
        assert!(shared.snapshot(map, &mut bytes).unwrap().is_some());
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    };
    let written: Vec<u64> = shared.iter().map(|shared| read(shared, 1, 56)).collect();
    assert_eq!(written, [300, 300]);
    let began: Vec<u64> = shared.iter().map(|shared| read(shared, 3, 0)).collect();
    assert_eq!(began, [5, 0]);
    // Constants that came are there for operations that name them, without a copy to be had.
    assert_ne!(operated(&mut app, 4, &[snapshot])[0].0, 0);

    // A context that comes later has all from its start.
    app.world.another_context();
    app.load();
    let later = memories(&mut app, 1);
    assert_eq!(later[0].maps(), 5);
    assert_eq!(operated(&mut app, 3, &[snapshot])[0].0, 0);
    assert_eq!(read(&later[0], 3, 0), 0);

    // Another replacement brings one more, behind those that each has.
    let text = String::from_utf8_lossy(PROGRAM.as_bytes()).replace("counts", "counts_too");
    let text = text.replace("KERNEL", "inc").replace("NAME", "third");
    let (changed, came) = asked(&mut app, Change::Add, &compile("replace-third", &text));
    assert_eq!(changed.refused, None);
    let told: Vec<(u32, u32)> = came.iter().map(|(m, _)| (m.context, m.first)).collect();
    assert_eq!(told, [(0, 5), (1, 5), (2, 5)]);
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn a_replacement_that_fails_anywhere_leaves_no_maps() {
    let more = bringing("failing", 64);
    let began = |name: &str| {
        let (mut app, _) = with_host_ops(name);
        memories(&mut app, 1);
        app
    };
    // Which calls there are to fail.
    let mut app = began("whole");
    let before = app.world.calls();
    assert_eq!(asked(&mut app, Change::Add, &more).0.refused, None);
    let after = app.world.calls();
    let (mut refused, mut taken) = (0, 0);
    for symbol in [
        "cuMemAlloc_v2",
        "cuMemsetD8Async",
        "cuMemcpyHtoDAsync_v2",
        "cuMemHostAlloc",
        "cuMemHostRegister_v2",
        "cuModuleLoadDataEx",
    ] {
        let calls = before.get(symbol).copied().unwrap_or(0);
        for call in calls + 1..=after.get(symbol).copied().unwrap_or(0) {
            let mut app = began("part");
            let (held, bound) = (app.world.held(), app.agent.bound.of(app.context));
            app.world.fail(symbol, call);
            let (changed, came) = asked(&mut app, Change::Add, &more);
            let was_refused = changed.refused.is_some();
            if was_refused {
                refused += 1;
                assert!(came.is_empty(), "{symbol} {call}");
                assert_eq!(changed.generation, 1, "{symbol} {call}");
                assert_eq!(app.world.held(), held, "{symbol} {call}");
                assert_eq!(app.agent.bound.of(app.context), bound, "{symbol} {call}");
            } else {
                taken += 1;
            }
            // Either way the next one is as if nothing had been.
            let (changed, came) = asked(&mut app, Change::Replace, &more);
            assert_eq!(changed.refused, None, "{symbol} {call}");
            assert_eq!(changed.maps.len(), 5, "{symbol} {call}");
            let came: Vec<u32> = came.iter().map(|(maps, _)| maps.first).collect();
            let expected: &[u32] = if was_refused { &[1] } else { &[] };
            assert_eq!(came, expected, "{symbol} {call}");
        }
    }
    // Three maps; what the host's operations need may fail by itself.
    assert!(refused >= 3 && taken >= 1, "{refused} and {taken}");
}
