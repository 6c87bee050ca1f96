//! Launches in memory that the tool sees (`warpbpf_wire::LaunchWriter`), so that none is missing in
//! its report, whatever ends the process; and those that come behind the end of the session, when
//! the process ends.
//!
//! A launch may be looking at counters of a session that has ended. So their memory stays, and a
//! later session in the process counts in the same place.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use warpbpf_wire::LaunchWriter;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SharedLaunches {
    /// None where there are no programs, or there is no such memory.
    pub(crate) writer: OnceLock<&'static LaunchWriter>,
    /// The data came home at the end of the process, which goes on: launches that come are counted,
    /// and are all that is done.
    pub(crate) late: AtomicBool,
}

impl SharedLaunches {
    pub(crate) fn get(&self) -> Option<&'static LaunchWriter> {
        self.writer.get().copied()
    }
}
