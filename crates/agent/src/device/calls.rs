//! The thread that answers programs which ask the host for keys. It is here, in the application's
//! process, so nothing waits for the tool; if the whole process is stopped, calls run out of time.

use std::sync::Arc;

use warpbpf_session::Calls;

use crate::sys::thread;

/// Starts it. It ends when the maps are gone.
pub(crate) fn start(calls: Arc<Calls>) -> std::io::Result<()> {
    thread::start("warpbpf-calls", move || calls.keep_serving())
}
