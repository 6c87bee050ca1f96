//! What threads of ours load and free beside an application waits until nothing runs, and the
//! application never waits for that for long.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use warpbpf_driver::sys::{self, CUstream};
use warpbpf_driver::{Module, Stream};

use super::attached::Application;
use crate::kernels::stream_name::StreamName;

/// How often the driver was asked to free something, whose kernels may still run.
fn frees(app: &Application) -> u32 {
    app.world.calls().get("cuMemFree_v2").copied().unwrap_or(0)
}

fn stream() -> StreamName {
    StreamName {
        stream: 0x7770 as CUstream,
        null_is_per_thread: false,
    }
}

fn some_memory(app: &Application) -> u64 {
    app.agent
        .driver
        .alloc_zeroed(64, Stream(std::ptr::null_mut()))
        .unwrap()
}

#[test]
fn a_thread_of_the_applications_waits_for_nobody() {
    let app = Application::new();
    let memory = some_memory(&app);
    app.world.set_busy(true);
    app.agent.driver.free(memory).unwrap();
    assert_eq!(frees(&app), 1);
    assert!(!app.agent.launch_barrier.is_used());
    assert!(!app.agent.driver.works_in_background());
}

#[test]
fn what_runs_is_waited_for_and_then_the_work_is_done_once() {
    let app = Application::new();
    let memory = some_memory(&app);
    app.world.set_busy(true);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| {
            app.world.switch_to(app.context);
            let _background = app.agent.work_in_background_for(Duration::from_secs(60));
            assert!(app.agent.driver.works_in_background());
            app.agent.driver.free(memory).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        // Launches go on meanwhile, between the tries: more of them than there are tries in their
        // time.
        while !app.agent.launch_barrier.is_used() {
            std::thread::yield_now();
        }
        for _ in 0..50 {
            drop(app.agent.begin_launch(stream()));
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(!done.load(Ordering::SeqCst));
        assert_eq!(frees(&app), 0);
        app.world.set_busy(false);
        ours.join().unwrap();
    });
    assert_eq!(frees(&app), 1);
    drop(app.agent.begin_launch(stream()));
}

#[test]
fn without_a_moment_for_it_nothing_is_called_and_the_error_says_why() {
    let app = Application::new();
    let memory = some_memory(&app);
    app.world.set_busy(true);
    let _background = app.agent.work_in_background_for(Duration::from_millis(5));
    let error = app.agent.driver.free(memory).unwrap_err();
    assert_eq!((error.call, error.code), ("cuMemFree", sys::NOT_READY));
    assert!(
        error.to_string().ends_with(
            "it waits for all kernels that run and lets none begin meanwhile, and kernels ran all the while"
        ),
        "{error}"
    );
    assert_eq!(frees(&app), 0);
    let module = Module(0x99 as *mut _);
    let error = app.agent.driver.unload(module).unwrap_err();
    assert_eq!((error.call, error.code), ("cuModuleUnload", sys::NOT_READY));
    assert_eq!(app.world.calls().get("cuModuleUnload"), None);
    // The launch barrier is open.
    drop(app.agent.begin_launch(stream()));
    app.world.set_busy(false);
    app.agent.driver.free(memory).unwrap();
    assert_eq!(frees(&app), 1);
}

#[test]
fn where_nothing_can_be_asked_calls_within_a_section_are_made_at_once() {
    let app = Application::new();
    let (first, second) = (some_memory(&app), some_memory(&app));
    app.world.refuse("cuEventCreate", 999);
    assert!(app.agent.driver.new_completion_event().is_err());
    // For longer than the test may take.
    let _background = app.agent.work_in_background_for(Duration::from_secs(3600));
    let free = || {
        app.agent.driver.free(first).unwrap();
        app.agent.driver.free(second).unwrap();
    };
    app.agent.driver.while_nothing_runs("both", free).unwrap();
    assert_eq!(frees(&app), 2);
}

#[test]
fn no_launch_is_on_its_way_while_the_work_is_done() {
    const THREADS: usize = 4;
    let app = Application::new();
    let (launching, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let begun = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                begun.wait();
                while !over.load(Ordering::Relaxed) {
                    let flight = app.agent.begin_launch(stream());
                    launching.fetch_add(1, Ordering::SeqCst);
                    std::hint::spin_loop();
                    launching.fetch_sub(1, Ordering::SeqCst);
                    drop(flight);
                }
            });
        }
        begun.wait();
        let _background = app.agent.work_in_background_for(Duration::from_secs(60));
        let mut most = 0;
        for _ in 0..200 {
            let work = || most = most.max(launching.load(Ordering::SeqCst));
            app.agent.driver.while_nothing_runs("work", work).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(most, 0);
    });
}

#[test]
fn one_section_is_enough_for_calls_within_it() {
    let app = Application::new();
    let memory = some_memory(&app);
    let _background = app.agent.work_in_background();
    let free = || app.agent.driver.free(memory);
    let freed = app.agent.driver.while_nothing_runs("both", free);
    freed.unwrap().unwrap();
    assert_eq!(frees(&app), 1);
    assert_eq!(app.world.calls().get("cuCtxRecordEvent"), Some(&1));
}

#[test]
fn a_capture_is_not_spoilt_by_a_mark() {
    let app = Application::new();
    let memory = some_memory(&app);
    let begins = app.agent.graphs.captures.begins();
    let background = app.agent.work_in_background_for(Duration::from_millis(5));
    let error = app.agent.driver.free(memory).unwrap_err();
    assert_eq!(error.code, sys::NOT_READY);
    assert_eq!(app.world.calls().get("cuCtxRecordEvent"), None);
    drop(background);
    drop(begins);
    // One after the other, for longer than any single one is waited for.
    let stream = Stream((1usize << 63 | 1) as *mut _);
    let capture = |goes_on| {
        let captures = &app.agent.graphs.captures;
        captures.note(app.context, stream, goes_on);
    };
    let over = AtomicBool::new(false);
    capture(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                capture(true);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _background = app
            .agent
            .work_in_background_for(Duration::from_millis(1200));
        let freed = app.agent.driver.free(memory);
        over.store(true, Ordering::Relaxed);
        assert_eq!(freed.unwrap_err().code, sys::NOT_READY);
    });
    // One that goes on for long is no reason to wait for ever.
    capture(true);
    let background = app.agent.work_in_background_for(Duration::from_secs(60));
    app.agent.driver.free(memory).unwrap();
    assert_eq!(app.world.calls().get("cuCtxRecordEvent"), None);
    drop(background);
    capture(false);
    let memory = some_memory(&app);
    let _background = app.agent.work_in_background();
    app.agent.driver.free(memory).unwrap();
    assert_eq!(app.world.calls().get("cuCtxRecordEvent"), Some(&1));
}

#[test]
fn a_driver_without_marks_is_called_as_it_is() {
    let app = Application::new();
    let memory = some_memory(&app);
    app.world.refuse("cuCtxRecordEvent", sys::NOT_SUPPORTED);
    app.world.set_busy(true);
    let _background = app.agent.work_in_background_for(Duration::from_millis(5));
    app.agent.driver.free(memory).unwrap();
    assert_eq!(frees(&app), 1);
}

#[test]
fn what_is_made_for_a_tool_ends_with_it_and_what_is_taken_back_does_not() {
    let app = Application::new();
    let (one, two) = (some_memory(&app), some_memory(&app));
    app.world.set_busy(true);
    app.agent.turn_off();
    {
        let _background = app.agent.work_in_background_for(Duration::from_secs(3600));
        assert_eq!(app.agent.driver.free(one).unwrap_err().code, sys::NOT_READY);
    }
    app.world.set_busy(false);
    let _background = app.agent.work_in_background();
    app.agent.driver.free(two).unwrap();
    assert_eq!(frees(&app), 1);
}

#[test]
fn what_nobody_saw_begin_is_not_spoilt_by_a_mark() {
    let app = Application::new();
    let memory = some_memory(&app);
    app.agent.graphs.captures.come_late();
    app.world.set_busy(true);
    let _background = app.agent.work_in_background_for(Duration::from_secs(60));
    app.agent.driver.free(memory).unwrap();
    assert_eq!(frees(&app), 1);
    assert_eq!(app.world.calls().get("cuCtxRecordEvent"), None);
    // The launch barrier is open.
    drop(app.agent.begin_launch(stream()));
}
