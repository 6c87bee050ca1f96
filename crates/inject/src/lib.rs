//! Puts an agent into a process that runs, and takes it out, by `ptrace`, so that the process does
//! not notice.
//!
//! One thread of the process is stopped for some microseconds where that is safe (`place`), and
//! made to start a new thread (`remote`). That thread loads the agent while all others run. When
//! the agent knows what is to be changed of the process's code, all threads are stopped at once,
//! and the few bytes are written from outside (`stop`): text is never writable. The two sides speak
//! through a block of memory in the process (`warpbpf_wire::late`), and the tool gets one end of a
//! socket pair that was made in the process, so that neither files nor networks have to be shared
//! with it.
//!
//! Whatever fails, the process goes on as before.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "registers and code are those of x86-64 and AArch64; other processors need their own `machine`"
);

mod goes_on;
mod proc;

mod error;

mod descriptors;
mod elf;
mod memory;
mod process;

mod gate;
mod hindrance;
mod machine;
mod place;
mod remote;
mod stop;
mod tracee;

mod live;

#[cfg(test)]
mod fuzz;

use std::path::Path;
use std::time::Instant;

pub use error::InjectError;
pub use goes_on::GoesOn;
pub use live::Done;
pub use proc::{Mapping, folder, lives, mappings, status_field, text};
pub use process::Subject;

/// How often an attach is tried that failed because the process closed what the agent, or the
/// dynamic linker, had open in it.
const TRIES: u32 = 8;
/// In between.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Puts the agent in the file `agent` into a process that has loaded the CUDA driver.
///
/// # Errors
/// [`InjectError`]; the process is as it was.
pub fn attach(pid: u32, agent: &Path, goes_on: GoesOn<'_>) -> Result<Done, InjectError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match on_thread(|| live::attach(pid, agent, goes_on)) {
            // The process is as it was, and closes descriptors only now and then.
            Err(error) if error.is_of_descriptors() && tries < TRIES && goes_on() => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Takes the agent's hooks out of a process, whoever put them in.
///
/// # Errors
/// [`InjectError`].
pub fn detach(pid: u32, goes_on: GoesOn<'_>) -> Result<Done, InjectError> {
    on_thread(|| live::detach(pid, goes_on))
}

/// Loads any library that has the agent's function into a process.
///
/// # Errors
/// As [`attach`].
pub fn load(pid: u32, library: &Path) -> Result<Done, InjectError> {
    let began = Instant::now();
    on_thread(|| live::load(Subject::look(pid)?, library, false, began, &|| true))
}

/// As [`load`], for a process that cannot see the file.
///
/// # Errors
/// As [`attach`].
pub fn load_as_memory(pid: u32, library: &Path) -> Result<Done, InjectError> {
    let began = Instant::now();
    on_thread(|| live::load(Subject::look(pid)?, library, true, began, &|| true))
}

/// Runs `work` on a thread of its own: when that ends, whatever happened, the kernel lets go of all
/// that it held.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
