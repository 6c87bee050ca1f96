//! Launches of graphs that not everybody chose, where the originals run: what each tool counts as
//! uninstrumented, and what as skipped.

use warpbpf_driver::sys::NODE_CONDITIONAL;
use warpbpf_wire::{Choice, Options};

use super::super::attached::Application;
use super::super::{clients, replace};
use super::{Test, driver};

/// Wants grids of so many blocks.
fn from_blocks(min_blocks: u64) -> Options {
    let choice = Choice {
        min_blocks,
        ..Choice::default()
    };
    Options {
        choice,
        ..Options::default()
    }
}

#[test]
fn what_a_second_tool_did_not_choose_is_no_fallback_for_it() {
    let mut test = Test::new();
    clients::join_for(&mut test.app, 1, "large", from_blocks(100));
    driver(|d| d.refuse_others = true);
    let node = test.add(1, 4);
    test.add(1, 200);
    let exec = test.instantiate(1, 0);
    test.launch(exec, 1000);
    let told = |test: &Test| clients::told(&test.app);
    assert_eq!(told(&test), [(0, [0, 2000, 0, 0]), (1, [0, 1000, 1000, 0])]);
    assert_eq!(test.change(exec, node, 100), 0);
    test.launch(exec, 10);
    assert_eq!(told(&test), [(0, [0, 2020, 0, 0]), (1, [0, 1020, 1000, 0])]);
    // Refused in a body: once for each time that they are put there.
    test.add_any(2, NODE_CONDITIONAL, [0, 2 << 32]);
    test.add(71, 4);
    test.add(71, 100);
    assert_eq!(told(&test), [(0, [0, 2022, 0, 0]), (1, [0, 1021, 1001, 0])]);
}

#[test]
fn what_nobody_chose_is_skipped_in_bodies_too() {
    let object = replace::object("chosen", "inc");
    let test = Test::of(Application::with(from_blocks(100), &object, &[]));
    test.add_any(1, NODE_CONDITIONAL, [0, 2 << 32]);
    test.add(71, 4);
    test.add(71, 100);
    let [count] = &test.app.agent.kernel_registry.counts().kernels[..] else {
        panic!("one kernel");
    };
    assert_eq!([count.uninstrumented, count.skipped], [0, 1]);
}
