//! All threads of a process stopped at once, for as long as it takes to change its code.

use std::ops::Range;
use std::time::{Duration, Instant};

use warpbpf_wire::late::Patch;

use crate::error::InjectError;
use crate::goes_on::GoesOn;
use crate::machine;
use crate::memory::{Bytes as _, Memory};
use crate::place::{Places, Word};
use crate::proc;
use crate::process;
use crate::remote::{STOP, is_ours};
use crate::tracee::{Tracee, ends_by_a_stop};

/// How often it is tried again when a thread stands in the way, and after what time.
const TRIES: usize = 200;
const PAUSE: Duration = Duration::from_millis(3);

/// What a change of code came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changed {
    /// How long the thread stood that stood longest.
    pub(crate) pause: Duration,
    /// No thread but the agent's own was in `watched`.
    pub(crate) quiet: bool,
}

/// All threads, held. They go on when it is dropped.
pub(crate) struct Stopped(Vec<Tracee>);

impl Stopped {
    fn all(pid: u32) -> Result<Stopped, InjectError> {
        Stopped::all_but(pid, 0)
    }

    /// All but one that is held already.
    pub(crate) fn all_but(pid: u32, held: u32) -> Result<Stopped, InjectError> {
        let mut stopped = Stopped(Vec::new());
        // A thread that is not stopped yet may start others.
        loop {
            let known = stopped.0.len();
            for thread in process::threads(pid)? {
                if thread == held || stopped.0.iter().any(|t| t.thread == thread) {
                    continue;
                }
                // Its call ends by our stop: it is told to make it again before anything else is
                // done, as we may be killed.
                let hurry = ends_by_a_stop(pid, thread);
                let Some(mut tracee) = Tracee::seize(pid, thread)? else {
                    continue;
                };
                if !hurry || tracee.settle(STOP)? {
                    stopped.0.push(tracee);
                }
            }
            let new = stopped.0.len();
            if new == known {
                return Ok(stopped);
            }
            let mut gone = Vec::new();
            for tracee in &mut stopped.0[known..] {
                if !tracee.is_settled() && !tracee.settle(STOP)? {
                    gone.push(tracee.thread);
                }
            }
            stopped.0.retain(|t| !gone.contains(&t.thread));
        }
    }

    fn release(mut self) -> Duration {
        let pauses = self.0.drain(..).map(Tracee::release);
        pauses.max().unwrap_or_default()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for tracee in self.0.drain(..) {
            tracee.release();
        }
    }
}

/// Makes changes of code, all or none, while no thread stands inside one, and says whether a thread
/// was in `watched`. Where there is nothing to change, it is looked for a while until none is: who
/// wants that has hooks taken out first, as a thread may go in and out of them all the time. `own`
/// is a thread that does not count.
///
/// # Errors
/// [`InjectError::InTheWay`], [`InjectError::Changed`], [`InjectError::Unstoppable`]: nothing was
/// changed.
pub(crate) fn change(
    pid: u32,
    memory: &Memory,
    places: &Places,
    (patches, watched): (&[Patch], &[Range<u64>]),
    own: u32,
    goes_on: GoesOn<'_>,
) -> Result<Changed, InjectError> {
    // The first byte may be where a thread stands: it is the first of the new code, too.
    let windows: Vec<Range<u64>> = patches.iter().map(|p| p.at + 1..p.at + p.length).collect();
    let mut pause = Duration::ZERO;
    let mut last = None;
    for attempt in 0..TRIES {
        let stopped = Stopped::all(pid)?;
        let inside = |code: &[Range<u64>], word: Word| {
            stopped.0.iter().find(|t| {
                let at = machine::pc(&t.registers);
                let here = code.iter().any(|range| range.contains(&at));
                (here || places.on_stack(memory, t, code, word))
                    && t.thread != own
                    && !is_ours(pid, t.thread)
            })
        };
        let in_the_way = (!windows.is_empty()).then(|| inside(&windows, Word::Any));
        let quiet = watched.is_empty() || inside(watched, Word::Return).is_none();
        match in_the_way.flatten() {
            Some(tracee) => last = Some(machine::pc(&tracee.registers)),
            None if quiet || !patches.is_empty() || attempt + 1 == TRIES => {
                let written = write(pid, memory, patches);
                let pause = pause.max(stopped.release());
                return written.map(|()| Changed { pause, quiet });
            }
            None => {}
        }
        pause = pause.max(stopped.release());
        if !goes_on() {
            return Err(InjectError::Interrupted { pid });
        }
        std::thread::sleep(PAUSE);
    }
    Err(InjectError::InTheWay {
        pid,
        at: last.unwrap_or(0),
    })
}

/// Writes all, or none. What stands there already as it is to be is left alone.
fn write(pid: u32, memory: &Memory, patches: &[Patch]) -> Result<(), InjectError> {
    let mut wanted = Vec::new();
    for patch in patches {
        let length = patch.length as usize;
        let mut there = vec![0; length];
        memory.read(patch.at, &mut there)?;
        if there == patch.before[..length] {
            wanted.push(*patch);
        } else if there != patch.after[..length] {
            return Err(InjectError::Changed { pid, at: patch.at });
        }
    }
    for (done, patch) in wanted.iter().enumerate() {
        let length = patch.length as usize;
        if let Err(error) = memory.write(patch.at, &patch.after[..length]) {
            for patch in &wanted[..done] {
                // What could be written once can be again.
                let _ = memory.write(patch.at, &patch.before[..patch.length as usize]);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Waits until a thread is gone, which is known by its number in the process's own namespace.
pub(crate) fn wait_for_end(pid: u32, own: u32, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while thread_of(pid, own).is_some() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    true
}

/// The thread that has this number in its own namespace.
pub(crate) fn thread_of(pid: u32, own: u32) -> Option<u32> {
    let mut all = process::threads(pid).ok()?.into_iter();
    all.find(|thread| {
        let status = proc::thread_status(pid, *thread).unwrap_or_default();
        let numbers = proc::status_field(&status, "NSpid").unwrap_or_default();
        let number = numbers.split_ascii_whitespace().last();
        number.and_then(|n| n.parse().ok()) == Some(own)
    })
}
