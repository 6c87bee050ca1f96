//! Images that wait for their context: what is launched until then is counted, and what is launched
//! then has probes.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use warpbpf_driver::Context;

use super::attached::{Application, context_number, counts, notes};
use super::world::World;
use crate::device::context_registry::ContextState;
use crate::hooks::contexts;
use crate::instrument::modules;
use crate::runtime::agent::Agent;
use crate::sources::images::Handle;
use crate::sys::guard::Outcome;

#[test]
fn each_context_has_maps_and_variants_of_its_own() {
    let mut app = Application::new();
    let module = app.load();
    let first = app.context;
    let second = app.world.another_context();
    let other = app.load();
    assert!(!app.agent.has_pending(), "a module belongs to one context");
    let other = app.function(other);
    app.launch(other, 1, 32);
    let library = app.library();
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    assert!(app.agent.has_pending(), "a library may go to others");
    app.world.switch_to(first);
    app.launch(kernel, 1, 32);
    assert_eq!(
        app.world.with_probes(),
        3,
        "an eager driver put it there, too"
    );
    app.launch(kernel, 1, 32);
    let function = app.function(module);
    app.launch(function, 1, 32);
    let variants: Vec<usize> = app.world.launched();
    assert_eq!(
        (variants.len(), app.world.with_probes()),
        (5, 5),
        "{variants:?}"
    );
    let loaded = app.world.modules().len();
    modules::instrument_pending(app.agent);
    assert_eq!(app.world.modules().len(), loaded, "once in each context");
    // Each launch by the library's one handle ran the variant of its context.
    assert_ne!(variants[1], variants[3]);
    app.world.switch_to(second);
    app.launch(kernel, 1, 32);
    assert_eq!(app.world.launched()[5], variants[1]);
    app.unload_library(library);
    assert!(!app.agent.has_pending());
    assert!(app.agent.table.get(kernel).is_none());
    assert_eq!(
        app.world.modules().len(),
        loaded - 3,
        "its slices went, too"
    );
    assert!(app.answers.iter().all(|code| *code == 0));
    let said = app.said();
    assert_eq!(
        said.iter().filter_map(context_number).collect::<Vec<_>>(),
        [0, 1]
    );
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (6, 0));
    assert_eq!(inc.contexts, [(0, 3), (1, 3)]);
}

#[test]
fn a_driver_that_loads_lazily_gets_a_librarys_variants_with_the_first_launch_in_a_context() {
    let mut app = Application::new();
    app.agent.lazy.set(true).unwrap();
    app.load();
    let first = app.context;
    app.world.another_context();
    let library = app.library();
    let kernel = app.kernel(library);
    let loaded = app.world.modules().len();
    app.world.switch_to(first);
    for launches in 1..3 {
        app.launch(kernel, 1, 32);
        assert_eq!(app.world.with_probes(), launches);
        assert_eq!(app.world.modules().len(), loaded + 1, "its one slice");
    }
    let said = app.said();
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (2, 0));
    assert_eq!(inc.contexts, [(0, 2)]);
}

/// Does something while a thread of ours does `work` in a context, and then lets it go on.
fn meanwhile(
    (agent, world, context): (&'static Agent, &World, usize),
    work: impl FnOnce(&dyn Fn()) + Send,
    meanwhile: impl FnOnce(),
) {
    let at_work = Barrier::new(2);
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| {
            world.switch_to(context);
            let _background = agent.work_in_background_for(Duration::from_secs(60));
            work(&|| {
                at_work.wait();
                at_work.wait();
            });
        });
        at_work.wait();
        world.switch_to(context);
        meanwhile();
        at_work.wait();
        ours.join().unwrap();
    });
}

#[test]
fn a_launch_does_not_wait_for_a_thread_of_ours_which_may_wait_for_it() {
    let mut app = Application::new();
    app.agent.lazy.set(true).unwrap();
    app.load();
    let first = app.context;
    app.world.another_context();
    let library = app.library();
    let kernel = app.kernel(library);
    let loaded = app.world.modules().len();
    let shard = app
        .agent
        .context_registry
        .of(Context(first as *mut _))
        .unwrap();
    let (agent, world) = (app.agent, Arc::clone(&app.world));
    let work = |wait: &dyn Fn()| {
        let hold = || {
            let _state = shard.state.write().unwrap();
            wait();
        };
        (shard.ours).make(hold, || modules::instrument_pending(agent));
    };
    meanwhile((agent, &world, first), work, || {
        app.launch(kernel, 1, 32);
        assert_eq!(world.with_probes(), 0);
    });
    assert_eq!(world.modules().len(), loaded + 1, "ours made up for it");
    app.launch(kernel, 1, 32);
    assert_eq!(world.with_probes(), 1);
    let said = app.said();
    let notes = notes(&said);
    let unknown = |note: &&str| note.contains("without maps");
    assert!(!notes.iter().any(unknown), "it is on its way: {notes:?}");
    let [inc] = counts(&said).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (1, 1));
}

#[test]
fn a_launch_does_not_wait_for_the_first_maps_that_a_thread_of_ours_makes() {
    let mut app = Application::new();
    app.agent.lazy.set(true).unwrap();
    let first = app.context;
    app.world.fall_asleep();
    let library = app.library();
    let kernel = app.kernel(library);
    let (outcome, mut held) = (Outcome::default(), ptr::null_mut());
    let (agent, world) = (app.agent, Arc::clone(&app.world));
    let work = |wait: &dyn Fn()| {
        let hold = || {
            let _founding = agent.context_registry.founding.lock().unwrap();
            wait();
        };
        (agent.context_registry.founders).make(hold, || agent.instrument_elsewhere());
    };
    meanwhile((agent, &world, first), work, || {
        // SAFETY: a local.
        let code = unsafe { contexts::primary_retain(agent, &outcome, &mut held, 0) };
        app.answers.push(code);
        app.launch(kernel, 1, 32);
        assert_eq!((agent.context_registry.made(), world.with_probes()), (0, 0));
    });
    assert_eq!(agent.context_registry.made(), 1, "ours made up for it");
    app.launch(kernel, 1, 32);
    assert_eq!(world.with_probes(), 1);
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (1, 1));
}

#[test]
fn launches_of_a_library_that_waits_are_uninstrumented() {
    let mut app = Application::new();
    app.world.fall_asleep();
    let library = app.library();
    assert!(app.agent.has_pending());
    // By a handle that nobody saw it get, and by the one that it is given.
    let found = app.world.found(library, "inc");
    app.launch(found, 1, 32);
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    let counted = |app: &Application| {
        let [inc] = app
            .agent
            .kernel_registry
            .counts()
            .kernels
            .try_into()
            .unwrap();
        (inc.launches, inc.uninstrumented)
    };
    assert_eq!((counted(&app), app.world.with_probes()), ((0, 2), 0));
    // One that the driver gives out once.
    let once = 0x70 as *mut c_void;
    modules::named(app.agent, Handle::Library(library), once, c"inc");
    // In a context that lives it waits no longer. What counted until then is kept, and so are the
    // handles.
    let (outcome, mut context) = (Outcome::default(), ptr::null_mut());
    // SAFETY: a local.
    let code = unsafe { contexts::primary_retain(app.agent, &outcome, &mut context, 0) };
    app.answers.push(code);
    app.launch(kernel, 1, 32);
    app.launch(once as usize, 1, 32);
    assert_eq!((counted(&app), app.world.with_probes()), ((2, 2), 2));
    // It takes its entry with it, and leaves its counts.
    assert_eq!(app.agent.kernel_registry.entries(), 1);
    app.unload_library(library);
    assert_eq!(
        (counted(&app), app.agent.kernel_registry.entries()),
        ((2, 2), 0)
    );
    for handle in [kernel, once as usize] {
        assert!(app.agent.table.get(handle).is_none());
    }
    assert!(app.answers.iter().all(|code| *code == 0));
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (2, 2));
}

#[test]
fn a_library_that_goes_while_it_waits_leaves_its_counts() {
    let mut app = Application::new();
    app.world.fall_asleep();
    let library = app.library();
    let kernel = app.kernel(library);
    app.launch(kernel, 1, 32);
    app.unload_library(library);
    assert!(!app.agent.has_pending());
    assert_eq!(app.agent.kernel_registry.entries(), 0);
    assert_eq!(app.answers, [0; 4]);
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (0, 1));
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
        let all = app.agent.context_registry.all();
        all.iter()
            .all(|shard| matches!(&*shard.read(), ContextState::NotYet))
    };
    assert_eq!((app.agent.has_pending(), not_yet(&app)), (true, true));
    let (outcome, mut context) = (Outcome::default(), ptr::null_mut());
    // SAFETY: a local.
    let code = unsafe { contexts::primary_retain(app.agent, &outcome, &mut context, 0) };
    app.answers.push(code);
    // The library may come to further contexts.
    assert_eq!((app.agent.has_pending(), not_yet(&app)), (true, false));
    for launched in [kernel, function, kernel] {
        app.launch(launched, 1, 32);
    }
    assert_eq!(app.world.with_probes(), 3);
    assert_eq!(app.answers, [0; 8]);
    let [inc] = counts(&app.said()).try_into().unwrap();
    assert_eq!((inc.launches, inc.uninstrumented), (3, 0));
}
