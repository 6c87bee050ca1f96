//! A process launches a program of the tool's itself: `warpbpf launch-inside`.

use std::time::Duration;

use rustix::io::Errno;

use super::global::{kernel, live};
use super::polling::wait;

/// How long after a launch its agent may take to say what became of the kernel.
const LAUNCHED: Duration = Duration::from_secs(2);

/// A process wants to launch a program of the tool's itself.
///
/// # Errors
/// `EBUSY` while an application runs, which has maps of its own; else the kernel's.
pub fn launch_wanted(pid: u32, name: &str) -> Result<i64, Errno> {
    if live().runs() {
        return Err(Errno::BUSY);
    }
    let mut kernel = kernel();
    // The end of one that has ended may not have been noticed yet.
    kernel.launches.retain(|pid, _| is_there(*pid));
    kernel.launch_wanted(pid, name)
}

fn is_there(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// It has launched it.
///
/// # Errors
/// `EIO` if that did not run the program.
pub fn launched(pid: u32) -> Result<i64, Errno> {
    match wait(LAUNCHED, || live().launched(pid) == Some(true)) {
        true => Ok(0),
        false => Err(Errno::IO),
    }
}
