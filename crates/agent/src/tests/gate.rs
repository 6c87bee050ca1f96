//! The gate's word in device memory: what a tool wants of it, and what becomes of it when the tool
//! goes.

use std::time::{Duration, Instant};

use warpbpf_abi::layout::{env, gate};
use warpbpf_wire::{Change, Options, ToAgent, ToTool};

use super::attached::{Application, compile};
use super::world::World;

const LIMIT: Duration = Duration::from_secs(20);

const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
SEC("gpu/entry/inc")
int first(struct wbpf_kernel_ctx *ctx) { return 0; }
SEC("gpu/entry/inc")
int second(struct wbpf_kernel_ctx *ctx) { return 0; }
char LICENSE[] SEC("license") = "GPL";
"#;

fn started(name: &str) -> Application {
    let options = Options {
        gate: true,
        ..Options::default()
    };
    let object = compile(&format!("gate-{name}"), PROGRAM);
    let mut app = Application::with(options, &object, &[]);
    app.load();
    app
}

/// The word, which is the same in all copies.
fn word(world: &World) -> u64 {
    let memory = world.memory_of((env::SIZE + gate::SIZE) as usize);
    let copies: Vec<u64> = (0..gate::COPIES)
        .map(|copy| {
            let at = gate::COPIES_AT + copy * gate::STRIDE;
            // SAFETY: inside the allocation, and a multiple of 8; nobody writes it while it is
            // looked at.
            unsafe { memory.add(at as usize).cast::<u64>().read() }
        })
        .collect();
    assert!(copies.iter().all(|copy| *copy == copies[0]), "{copies:x?}");
    copies[0]
}

/// Why it was refused, if it was.
fn set(app: &mut Application, open: bool, programs: &[&str]) -> Option<(i32, String)> {
    let change = Change::Gate {
        open,
        programs: programs.iter().map(|name| (*name).to_owned()).collect(),
    };
    app.agent.change_programs(7, change, Vec::new(), LIMIT);
    let tool = app.tool.as_mut().unwrap();
    loop {
        let frame = tool.recv(LIMIT).unwrap().expect("an answer");
        if let ToTool::Changed(changed) = frame.message {
            assert_eq!((changed.token, changed.generation), (7, 1));
            return changed.refused.map(|r| (r.errno, r.message));
        }
    }
}

fn gone(app: &Application) {
    let end = Instant::now() + LIMIT;
    while app.agent.is_on() {
        assert!(Instant::now() < end, "it is still on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn programs_are_closed_and_opened_in_every_context() {
    let mut app = started("set");
    assert_eq!(word(&app.world), 0);
    assert_eq!(set(&mut app, false, &["second"]), None);
    assert_eq!(word(&app.world), 0b10);
    assert_eq!(set(&mut app, false, &[]), None);
    assert_eq!(word(&app.world), gate::CLOSED);
    // One that comes begins as the others are.
    let (later, context) = World::enter();
    let first = std::mem::replace(&mut app.world, later);
    app.context = context;
    app.load();
    assert_eq!(word(&app.world), gate::CLOSED);
    assert_eq!(set(&mut app, true, &["first"]), None);
    assert_eq!([word(&first), word(&app.world)], [!1; 2]);
    assert_eq!(set(&mut app, true, &[]), None);
    assert_eq!([word(&first), word(&app.world)], [0; 2]);
    assert!(app.answers.iter().all(|code| *code == 0));
}

#[test]
fn a_gate_that_cannot_be_written_is_told() {
    let mut app = started("torn");
    app.world.tear(gate::SIZE as usize, 1);
    let (errno, message) = set(&mut app, false, &[]).expect("a refusal");
    assert_eq!(errno, -5);
    assert!(
        message.starts_with(
            "the gate cannot be written, and kernels that run may go on as they were: "
        ),
        "{message}"
    );
    // It was noted: the next one writes it.
    assert_eq!(set(&mut app, false, &["first"]), None);
    assert_eq!(word(&app.world), gate::CLOSED);
}

#[test]
fn a_tool_that_goes_closes_it() {
    let mut app = started("detached");
    let tool = app.tool.as_mut().unwrap();
    tool.send(&ToAgent::Detach, &[], None, LIMIT).unwrap();
    gone(&app);
    assert_eq!(word(&app.world), gate::CLOSED);
}

#[test]
fn a_tool_that_dies_closes_it() {
    let mut app = started("died");
    app.tool = None;
    gone(&app);
    assert_eq!(word(&app.world), gate::CLOSED);
}
