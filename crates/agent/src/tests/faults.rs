//! Whatever of ours fails, the application gets the same answers from its driver.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpbpf_wire::ToTool;

use super::attached::{Application, notes};
use super::world::World;
use crate::device::context_registry::ContextState;
use crate::device::pump::NO_SHARED_MEMORY;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The nth call of ours of a driver function.
    Driver(&'static str, u32),
    SharedMemory,
    ToolGoneAtOnce,
    ToolGoneAfterLoad,
    ToolGoneAfterLaunch,
    ToolTalksNonsense,
}

/// The life of an application. Returns its world and how much of ours was left in a context where
/// we gave up.
fn live(fault: Fault) -> (Arc<World>, Vec<c_int>, usize) {
    let mut app = Application::new();
    NO_SHARED_MEMORY.set(fault == Fault::SharedMemory);
    match fault {
        Fault::Driver(symbol, call) => app.world.fail(symbol, call),
        Fault::ToolGoneAtOnce => drop(app.tool.take()),
        Fault::ToolTalksNonsense => {
            let tool = app.tool.as_ref().unwrap();
            // Behind its request, so that the control thread is the one that hears it.
            rustix::io::write(tool.socket().unwrap(), b"what is this? no frame begins so").unwrap();
        }
        Fault::None
        | Fault::SharedMemory
        | Fault::ToolGoneAfterLoad
        | Fault::ToolGoneAfterLaunch => {}
    }
    for round in 0..2 {
        let module = app.load();
        if fault == Fault::ToolGoneAfterLoad {
            drop(app.tool.take());
        }
        let function = app.function(module);
        assert_ne!(function, 0);
        for _ in 0..3 {
            app.launch(function, 2, 64);
            // Time for the control thread.
            std::thread::sleep(Duration::from_millis(20));
        }
        if fault == Fault::ToolGoneAfterLaunch {
            drop(app.tool.take());
        }
        if round == 0 {
            app.unload(module);
        }
    }
    let gave_up = app.agent.context_registry.all().iter().any(|shard| {
        matches!(
            &*shard.read(),
            ContextState::Gone("its maps could not be made")
        )
    });
    let left = if gave_up { app.world.held() } else { 0 };
    app.destroy();
    if app.tool.is_some() {
        app.said();
    }
    (app.world, app.answers, left)
}

#[test]
fn a_failure_of_ours_is_told_once_and_nothing_is_complete() {
    let mut app = Application::new();
    let module = app.load();
    assert_ne!(app.function(module), 0);
    for _ in 0..2 {
        app.agent.failed("its thread `x`", "why");
    }
    let said = app.said();
    let failed = said.iter().filter(|m| matches!(m, ToTool::Failed));
    assert_eq!(failed.count(), 1);
    let told = "warpbpf failed internally in its thread `x`: `why`; what that had to do is missing. Please report this with the program";
    assert_eq!(notes(&said).last(), Some(&told));
    app.destroy();
}

#[test]
fn whatever_of_ours_fails_the_application_gets_the_same_answers() {
    let (clean, answers, _) = live(Fault::None);
    assert_eq!(answers, [0; 12]);
    assert_eq!((clean.launched().len(), clean.with_probes()), (6, 6));
    let calls = clean.calls();
    assert!(calls.len() >= 20, "{calls:?}");
    let mut faults = vec![
        Fault::SharedMemory,
        Fault::ToolGoneAtOnce,
        Fault::ToolGoneAfterLoad,
        Fault::ToolGoneAfterLaunch,
        Fault::ToolTalksNonsense,
    ];
    for (symbol, times) in &calls {
        // The first calls make the device side and the slice; later ones repeat.
        let first = (1..=*times).take(8);
        faults.extend(first.map(|call| Fault::Driver(symbol, call)));
    }
    assert!(faults.len() >= 60, "{}", faults.len());
    let next = Mutex::new(faults.into_iter());
    // Faults that cost probes, and those that cost all of them: a fault that nobody notices proves
    // nothing.
    let (felt, fatal) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let Some(fault) = next.lock().unwrap().next() else {
                        return;
                    };
                    let (world, answers, left) = live(fault);
                    assert_eq!(answers, [0; 12], "{fault:?}");
                    assert_eq!(world.launched().len(), 6, "{fault:?}");
                    assert_eq!(left, 0, "{fault:?}");
                    let probed = world.with_probes();
                    felt.fetch_add(usize::from(probed < 6), Ordering::Relaxed);
                    fatal.fetch_add(usize::from(probed == 0), Ordering::Relaxed);
                }
            });
        }
    });
    let (felt, fatal) = (felt.into_inner(), fatal.into_inner());
    assert!(felt >= 25 && fatal >= 15, "{felt} felt, {fatal} fatal");
}
