//! Which captures are known to go on, however they begin and end.

use warpbpf_driver::Stream;
use warpbpf_driver::sys::CUstream;

use super::attached::Application;
use crate::device::graphs::captures::Captures;
use crate::kernels::stream_name::StreamName;

fn own_of_a_thread() -> Stream {
    let name = StreamName {
        stream: std::ptr::null_mut(),
        null_is_per_thread: true,
    };
    name.key()
}

#[test]
fn threads_capture_into_streams_of_their_own() {
    let app = Application::new();
    let (captures, context) = (&app.agent.graphs.captures, app.context);
    let [first, second] = [(); 2].map(|()| {
        std::thread::spawn(|| own_of_a_thread().0 as usize)
            .join()
            .unwrap()
    });
    let stream = |key: usize| Stream(key as CUstream);
    captures.note(context, stream(first), true);
    captures.note(context, stream(second), true);
    captures.note(context, stream(first), false);
    assert!(captures.is_any(&app.agent.driver), "the other goes on");
    captures.note(context, stream(second), false);
    assert!(!captures.is_any(&app.agent.driver));
}

#[test]
fn what_ended_otherwise_is_asked_for_or_seen() {
    let app = Application::new();
    let (captures, context) = (&app.agent.graphs.captures, app.context);
    let stream = Stream(0x5550 as CUstream);
    // The driver says that it captures nothing.
    captures.note(context, stream, true);
    assert!(captures.is_used() && !captures.is_any(&app.agent.driver));
    assert!(!captures.is_used());
    captures.note(context, stream, true);
    captures.note(context, own_of_a_thread(), true);
    captures.stream_goes(0x5550);
    assert!(captures.is_any(&app.agent.driver), "another stream's");
    captures.context_gone(context);
    assert!(!captures.is_any(&app.agent.driver));
}

#[test]
fn captures_that_were_there_before_us_are_found() {
    let app = Application::new();
    let captures = Captures::default();
    let stream = StreamName {
        stream: std::ptr::null_mut(),
        null_is_per_thread: true,
    };
    captures.found(&app.agent.driver, stream);
    assert!(!captures.may_be_any(), "all were seen to begin");
    captures.come_late();
    assert!(captures.may_be_any() && !captures.is_any(&app.agent.driver));
    captures.found(&app.agent.driver, stream);
    assert!(captures.is_any(&app.agent.driver));
}

#[test]
fn what_no_thread_can_tell_any_more_is_forgotten() {
    let app = Application::new();
    let (captures, context) = (&app.agent.graphs.captures, app.context);
    std::thread::scope(|scope| {
        let begins = || captures.note(context, own_of_a_thread(), true);
        scope.spawn(begins).join().unwrap();
    });
    assert!(captures.is_used());
    // The kernel may keep a thread for a moment that was waited for.
    while captures.is_any(&app.agent.driver) {
        std::thread::yield_now();
    }
    assert!(!captures.is_used());
}

#[test]
fn a_stream_that_came_into_a_known_capture_is_not_kept_in_mind() {
    let app = Application::new();
    let captures = Captures::default();
    captures.come_late();
    let (known, own) = (Stream(0x5550 as CUstream), std::ptr::null_mut());
    let own = StreamName {
        stream: own,
        null_is_per_thread: true,
    };
    captures.note(app.context, known, true);
    captures.found(&app.agent.driver, own);
    captures.note(app.context, known, false);
    assert!(!captures.is_used());
    // One that was there before us, and is over.
    captures.found(&app.agent.driver, own);
    assert!(captures.is_any(&app.agent.driver));
    captures.not_found(&app.agent.driver, own);
    assert!(!captures.is_used());
}

#[test]
fn one_that_begins_counts_until_it_is_known() {
    let app = Application::new();
    let captures = Captures::default();
    let begins = captures.begins();
    assert!(captures.is_any(&app.agent.driver));
    drop(begins);
    assert!(!captures.is_any(&app.agent.driver));
}
