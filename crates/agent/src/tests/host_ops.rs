//! Operations of the tool on live maps, as the control thread serves them, where kernels do not
//! come to run.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use warpbpf_wire::{
    MapOp, OpCode, Options, Outcome, Ready, SharedReader, ToAgent, ToTool, decode_outcomes,
    encode_ops,
};

use super::attached::{Application, compile};
use super::world::World;

const SECOND: Duration = Duration::from_secs(1);

const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} plain SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 5000);
    __type(key, __u32);
    __type(value, __u64);
} keys SEC(".maps");
struct large { __u64 words[131072]; };
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct large);
} vast SEC(".maps");
SEC("gpu/entry/inc")
int enter(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = 1;
    __u64 one = 1, *value = bpf_map_lookup_elem(&plain, &key);
    if (value)
        one = *value;
    bpf_map_update_elem(&keys, &key, &one, BPF_ANY);
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn object() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("host_ops", PROGRAM))
}

/// An application whose maps can be operated on, and what the tool knows of them.
struct Bench {
    app: Application,
    ready: Ready,
    shared: SharedReader,
    token: u64,
}

impl Bench {
    fn new(before: &[(ToAgent, Vec<u8>)]) -> Bench {
        Bench::with(before, |_| {})
    }

    fn with(before: &[(ToAgent, Vec<u8>)], spoil: impl FnOnce(&World)) -> Bench {
        let options = Options {
            host_ops: true,
            ..Options::default()
        };
        let mut app = Application::with(options, object(), before);
        spoil(&app.world);
        app.load();
        let tool = app.tool.as_mut().unwrap();
        loop {
            let frame = tool.recv(5 * SECOND).unwrap().expect("ready");
            match frame.message {
                ToTool::Ready(ready) => {
                    let shared = SharedReader::open(frame.fd.unwrap()).unwrap();
                    return Bench {
                        app,
                        ready,
                        shared,
                        token: 100,
                    };
                }
                ToTool::Hello(_) | ToTool::Launches | ToTool::Kernel(_) | ToTool::Note { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn map(&self, name: &str) -> u32 {
        let found = self.ready.maps.iter().position(|map| map.name == name);
        found.unwrap() as u32
    }

    /// Sends a blob, and gives what is answered to it.
    fn blob(&mut self, map: u32, blob: &[u8]) -> (Option<String>, Vec<u8>) {
        self.token += 1;
        let token = self.token;
        let tool = self.app.tool.as_mut().unwrap();
        let message = ToAgent::MapOps { token, map };
        tool.send(&message, blob, None, SECOND).unwrap();
        loop {
            let frame = tool.recv(10 * SECOND).unwrap().expect("an answer");
            if let ToTool::MapOps { token, error } = frame.message {
                assert_eq!(token, self.token);
                return (error, frame.blob);
            }
        }
    }

    fn one(&mut self, map: &str, code: OpCode, key: u32, value: &[u8]) -> Outcome {
        let key = key.to_le_bytes();
        let op = MapOp {
            code,
            flags: 0,
            key: &key,
            value,
        };
        let (error, blob) = self.blob(self.map(map), &encode_ops(&[op]));
        assert_eq!(error, None);
        let [outcome] = decode_outcomes(&blob).unwrap().try_into().unwrap();
        outcome
    }
}

fn snapshot() -> Vec<u8> {
    let op = MapOp {
        code: OpCode::Snapshot,
        flags: 0,
        key: &[],
        value: &[],
    };
    encode_ops(&[op])
}

#[test]
fn a_kernel_that_does_not_come_to_run_costs_two_seconds_once() {
    let mut bench = Bench::new(&[]);
    let value = 5u64.to_le_bytes();
    // Nothing runs in this world, so nothing is changed either: the record comes back as it was,
    // with a result of 0.
    assert_eq!(
        bench.one("keys", OpCode::Update, 1, &value),
        Outcome::done(Vec::new())
    );
    bench.app.world.set_busy(true);
    let began = Instant::now();
    assert_eq!(
        bench.one("keys", OpCode::Update, 1, &value),
        Outcome::failed(-110)
    );
    let waited = began.elapsed();
    assert!(waited >= 2 * SECOND && waited < 8 * SECOND, "{waited:?}");
    let began = Instant::now();
    assert_eq!(
        bench.one("keys", OpCode::Update, 1, &value),
        Outcome::failed(-16)
    );
    assert_eq!(
        bench.one("keys", OpCode::Delete, 1, &[]),
        Outcome::failed(-16)
    );
    // Copies need no kernel: arrays are served, and hashes can be read.
    assert_eq!(
        bench.one("plain", OpCode::Update, 1, &value),
        Outcome::done(Vec::new())
    );
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 1, &[]),
        Outcome::done(value.to_vec())
    );
    assert_eq!(
        bench.one("keys", OpCode::Lookup, 1, &[]),
        Outcome::failed(-2)
    );
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    // What was late is done: everything works again.
    bench.app.world.set_busy(false);
    assert_eq!(
        bench.one("keys", OpCode::Update, 1, &value),
        Outcome::done(Vec::new())
    );
    assert!(bench.app.answers.iter().all(|code| *code == 0));
}

#[test]
fn without_kernels_of_the_host_the_probes_are_there() {
    // The first module is for the clock.
    let mut bench = Bench::with(&[], |world| world.fail("cuModuleLoadDataEx", 2));
    let key = 1u32.to_le_bytes();
    let op = |code| MapOp {
        code,
        flags: 0,
        key: &key,
        value: &[],
    };
    let (error, blob) = bench.blob(bench.map("keys"), &encode_ops(&[op(OpCode::Delete)]));
    assert_eq!(
        (error.as_deref(), blob.len()),
        (
            Some("the host cannot do this: `cuModuleLoadDataEx` failed with CUDA_ERROR_FAKE (999)"),
            0
        )
    );
    assert_eq!(
        bench.one("keys", OpCode::Lookup, 1, &[]),
        Outcome::failed(-2)
    );
    assert_eq!(bench.app.world.with_probes(), 0);
    let module = bench.app.load();
    let function = bench.app.function(module);
    bench.app.launch(function, 1, 32);
    assert_eq!(bench.app.world.with_probes(), 1);
}

#[test]
fn requests_that_make_no_sense_are_answered() {
    let mut bench = Bench::new(&[]);
    let plain = bench.map("plain");
    let refused = |answer: (Option<String>, Vec<u8>)| {
        assert!(answer.1.is_empty());
        answer.0.unwrap()
    };
    assert_eq!(
        refused(bench.blob(9, &encode_ops(&[]))),
        "map 9 does not exist: the session has 3"
    );
    assert_eq!(
        refused(bench.blob(plain, b"x")),
        "the operations end at byte 1, in the middle of number 0"
    );
    let mut two = snapshot();
    two.extend_from_within(4..);
    two[0] = 2;
    assert_eq!(
        refused(bench.blob(plain, &two)),
        "a snapshot stands alone in its batch"
    );
    let (error, blob) = bench.blob(plain, &encode_ops(&[]));
    assert_eq!((error, decode_outcomes(&blob)), (None, Ok(Vec::new())));
    // The context of the maps goes: so do operations.
    bench.app.destroy();
    assert_eq!(
        refused(bench.blob(plain, &encode_ops(&[]))),
        "the context of the maps was destroyed"
    );
}

#[test]
fn long_answers_and_a_tool_that_reads_late_end_nothing() {
    let mut bench = Bench::new(&[]);
    let vast = bench.map("vast");
    let lookups = |count: usize| {
        let op = MapOp {
            code: OpCode::Lookup,
            flags: 0,
            key: &[0; 4],
            value: &[],
        };
        encode_ops(&vec![op; count])
    };
    let (error, blob) = bench.blob(vast, &lookups(32));
    assert_eq!(
        (error.as_deref(), blob.len()),
        (
            Some(
                "the answer to 32 operations can take 33554816 bytes, the limit is 33554432: ask for fewer values at a time, or for a snapshot of the map"
            ),
            0
        )
    );
    // More than a connection keeps, and nobody reads at first.
    let (blob, tool) = (lookups(8), bench.app.tool.as_mut().unwrap());
    for token in 0..16 {
        let message = ToAgent::MapOps { token, map: vast };
        tool.send(&message, &blob, None, SECOND).unwrap();
    }
    std::thread::sleep(SECOND / 2);
    let mut next = 0;
    while next < 16 {
        let frame = tool.recv(5 * SECOND).unwrap().expect("an answer");
        if let ToTool::MapOps { token, error } = frame.message {
            assert_eq!((token, error), (next, None));
            assert_eq!(frame.blob.len(), 4 + 8 * ((1 << 20) + 8));
            next += 1;
        }
    }
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 0, &[]),
        Outcome::done(vec![0; 8])
    );
}

#[test]
fn a_fresh_snapshot_shows_what_was_written_before() {
    let mut bench = Bench::new(&[]);
    let plain = bench.map("plain");
    let value = 77u64.to_le_bytes();
    assert_eq!(
        bench.one("plain", OpCode::Update, 1, &value),
        Outcome::done(Vec::new())
    );
    let (error, blob) = bench.blob(plain, &snapshot());
    assert_eq!(error, None);
    let [outcome] = decode_outcomes(&blob).unwrap().try_into().unwrap();
    let sequence = u64::from_le_bytes(outcome.bytes.try_into().unwrap());
    let mut bytes = Vec::new();
    let seen = bench
        .shared
        .snapshot(plain as usize, &mut bytes)
        .unwrap()
        .unwrap();
    assert!(seen >= sequence && sequence > 0);
    assert_eq!(&bytes[8..16], value);
}

#[test]
fn what_a_context_left_gives_way_when_nobody_else_has_it() {
    let mut bench = Bench::new(&[]);
    let value = |n: u64| n.to_le_bytes().to_vec();
    let done = || Outcome::done(Vec::new());
    assert_eq!(bench.one("plain", OpCode::Update, 1, &value(5)), done());
    let first = bench.app.context;
    let second = bench.app.world.another_context();
    bench.app.load();
    assert_eq!(bench.one("plain", OpCode::Update, 0, &value(6)), done());
    bench.app.world.switch_to(first);
    bench.app.destroy();
    bench.app.world.switch_to(second);
    // One came from the first alone, one is in both.
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 1, &[]),
        Outcome::done(value(5))
    );
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 0, &[]),
        Outcome::done(value(6))
    );
    // Nothing is done while another thread is at what was left, and nothing is lost by that.
    let held = bench.app.agent.context_registry.operate().unwrap();
    let (plain, key) = (bench.map("plain"), 1u32.to_le_bytes());
    let op = |code, value| MapOp {
        code,
        flags: 0,
        key: &key,
        value,
    };
    let seven = value(7);
    let message = ToAgent::MapOps {
        token: 7,
        map: plain,
    };
    let ops = encode_ops(&[op(OpCode::Update, &seven), op(OpCode::Lookup, &[])]);
    let tool = bench.app.tool.as_mut().unwrap();
    tool.send(&message, &ops, None, SECOND).unwrap();
    let said = std::iter::from_fn(|| tool.recv(SECOND / 20).ok().flatten());
    let answers = said.filter(|frame| matches!(frame.message, ToTool::MapOps { .. }));
    assert_eq!(answers.count(), 0);
    drop(held);
    let answer = loop {
        let frame = tool.recv(10 * SECOND).unwrap().expect("an answer");
        if let ToTool::MapOps { token, error } = frame.message {
            assert_eq!((token, error), (7, None));
            break decode_outcomes(&frame.blob).unwrap();
        }
    };
    assert_eq!(answer, [done(), Outcome::done(seven)]);
    assert_eq!(
        bench.one("plain", OpCode::Delete, 1, &[]),
        Outcome::failed(-22)
    );
    assert_eq!(bench.one("plain", OpCode::Update, 1, &value(0)), done());
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 1, &[]),
        Outcome::done(value(0))
    );
}

#[test]
fn presets_are_applied_or_refuse_the_attach() {
    let preset = |map: &str, key: u32, value: &[u8]| {
        let key = key.to_le_bytes();
        let op = MapOp {
            code: OpCode::Update,
            flags: 0,
            key: &key,
            value,
        };
        (ToAgent::Preset { map: map.into() }, encode_ops(&[op]))
    };
    let value = 12u64.to_le_bytes();
    let mut bench = Bench::new(&[preset("plain", 1, &value), preset("keys", 3, &value)]);
    assert_eq!(
        bench.one("plain", OpCode::Lookup, 1, &[]),
        Outcome::done(value.to_vec())
    );
    bench.app.world.set_busy(true);
    assert_eq!(
        bench.one("keys", OpCode::Update, 4, &value),
        Outcome::failed(-110)
    );
    assert_eq!(
        bench.one("keys", OpCode::Lookup, 3, &[]),
        Outcome::done(value.to_vec())
    );

    for (before, why) in [
        (
            preset("none", 1, &value),
            "map `none` cannot be preset: there is none; there are ",
        ),
        (
            preset("plain", 9, &value),
            "operation 0 cannot be done: map `plain`: the key is not below `max_entries`, 2",
        ),
        (
            (
                ToAgent::Preset {
                    map: "plain".into(),
                },
                snapshot(),
            ),
            "a snapshot is no update",
        ),
    ] {
        let mut app = Application::with(Options::default(), object(), &[before]);
        app.load();
        assert_eq!(app.answers, [0], "the application goes on");
        let tool = app.tool.as_mut().unwrap();
        let said = std::iter::from_fn(|| tool.recv(5 * SECOND).ok().flatten());
        let messages: Vec<ToTool> = said.map(|frame| frame.message).collect();
        let refused = messages.iter().find_map(|message| match message {
            ToTool::Refused { message } => Some(message.as_str()),
            _ => None,
        });
        assert!(
            refused.is_some_and(|text| text.starts_with(why)),
            "{messages:?}"
        );
    }
}
