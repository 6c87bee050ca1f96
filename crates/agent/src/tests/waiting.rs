//! Images that wait for their context: what is launched until then is counted, and what is launched then has probes.

use std::ffi::c_void;
use std::ptr;

use warpbpf_wire::ToTool;

use super::attached::{Application, counts};
use crate::agent::LiveState;
use crate::contexts;
use crate::guard::Outcome;
use crate::modules::{self, Handle};

#[test]
fn a_module_of_another_context_is_missed_and_a_library_waits_for_its_own() {
    let mut app = Application::new();
    let module = app.load();
    let first = app.context;
    app.world.another_context();
    let other = app.load();
    assert!(!app.agent.has_pending(), "a module belongs to one context");
    let function = app.function(other);
    app.launch(function, 1, 32);
    let library = app.library();
    assert!(app.agent.has_pending());
    app.world.switch_to(first);
    modules::settle_pending(app.agent);
    assert!(!app.agent.has_pending());
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    let function = app.function(module);
    app.launch(function, 1, 32);
    assert_eq!(
        (app.world.launched().len(), app.world.with_probes()),
        (3, 2)
    );
    assert!(app.answers.iter().all(|code| *code == 0));
    let said = app.said();
    let ways: Vec<&str> = said
        .iter()
        .filter_map(|m| match m {
            ToTool::Kernel(kernel) => Some(kernel.way.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        ways,
        [
            "slice",
            "failed: it was loaded in another context than its maps live in"
        ]
    );
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.missed), (2, 1));
}

#[test]
fn launches_of_a_library_that_waits_are_missed() {
    let mut app = Application::new();
    // The maps live in the first context.
    let module = app.load();
    let first = app.context;
    let other = app.world.another_context();
    let library = app.library();
    assert!(app.agent.has_pending());
    // By a handle that nobody saw it get, and by the one that it is given.
    let found = app.world.found(library, "inc");
    app.launch(found, 1, 32);
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    let counted = |app: &Application| {
        let [inc] = app.agent.roster.counts().kernels.try_into().unwrap();
        (inc.launches, inc.missed)
    };
    assert_eq!((counted(&app), app.world.with_probes()), ((0, 2), 0));
    // One that the driver gives out once.
    let once = 0x70 as *mut c_void;
    modules::named(app.agent, Handle::Library(library), once, c"inc");
    // In its context it waits no longer. What counted until then is kept, and so are the handles.
    app.world.switch_to(first);
    modules::settle_pending(app.agent);
    assert!(!app.agent.has_pending());
    app.launch(kernel, 1, 32);
    app.launch(once as usize, 1, 32);
    assert_eq!((counted(&app), app.world.with_probes()), ((2, 2), 2));
    app.world.switch_to(other);
    app.launch(kernel, 1, 32);
    assert_eq!((counted(&app), app.world.with_probes()), ((2, 3), 2));
    // It takes all of its entries with it, and leaves their counts.
    assert_eq!(app.agent.roster.entries(), 3);
    app.unload_library(library);
    assert_eq!((counted(&app), app.agent.roster.entries()), ((2, 3), 1));
    for handle in [kernel, once as usize] {
        assert!(app.agent.table.get(handle).is_none());
    }
    app.world.switch_to(first);
    app.unload(module);
    assert!(app.answers.iter().all(|code| *code == 0));
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.missed), (2, 3));
}

#[test]
fn a_library_that_goes_while_it_waits_leaves_what_it_missed() {
    let mut app = Application::new();
    app.load();
    app.world.another_context();
    let library = app.library();
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    app.unload_library(library);
    assert!(!app.agent.has_pending());
    // The module's entry.
    assert_eq!(app.agent.roster.entries(), 1);
    assert_eq!(app.answers, [0; 5]);
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.missed), (0, 1));
}

#[test]
fn what_was_loaded_before_the_primary_context_lived_is_instrumented_when_it_is_held() {
    let mut app = Application::new();
    app.world.fall_asleep();
    let library = app.library();
    let kernel = app.kernel(library);
    let module = app.load();
    let function = app.function(module);
    let not_yet = |app: &Application| {
        let live = app.agent.live.read().unwrap();
        matches!(&*live, LiveState::NotYet)
    };
    assert_eq!((app.agent.has_pending(), not_yet(&app)), (true, true));
    let (outcome, mut context) = (Outcome::default(), ptr::null_mut());
    // SAFETY: a local.
    let code = unsafe { contexts::primary_retain(app.agent, &outcome, &mut context, 0) };
    app.answers.push(code);
    assert_eq!((app.agent.has_pending(), not_yet(&app)), (false, false));
    for launched in [kernel, function, kernel] {
        app.launch(launched, 1, 32);
    }
    assert_eq!(app.world.with_probes(), 3);
    assert_eq!(app.answers, [0; 8]);
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.missed), (3, 0));
}
