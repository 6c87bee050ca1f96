//! The table on the device that says which memory lives: what goes is out of every reader's hands
//! before the driver hears of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbpf_driver::DriverError;
use warpbpf_driver::sys::{self, CUresult};
use warpbpf_session::{Allocation, Fence, Live, Taken};
use warpbpf_wire::NoteLevel;

use crate::device::context_registry::ContextState;
use crate::device::memory::Known;
use crate::runtime::agent::Agent;

/// How long the application waits for lanes that read memory which it gives back. They are out
/// within microseconds, unless they are suspended.
const PATIENCE: Duration = Duration::from_secs(2);

/// `CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`: what every call in a context says
/// once a kernel has broken it.
const BROKEN: std::ops::RangeInclusive<CUresult> = 700..=719;

/// Something is there now.
pub(crate) fn add(agent: &Agent, change: impl FnOnce(&mut Known)) {
    with_table(agent, false, |known| {
        change(known);
        true
    });
}

/// An allocation is there, in the context that is current.
pub(crate) fn add_here(agent: &Agent, allocation: Allocation) {
    add(agent, |known| known.set.add(allocation));
}

/// Something goes: when this returns, no lane reads it and none will.
pub(crate) fn withdraw(agent: &Agent, take: impl FnOnce(&mut Known) -> Taken) -> Taken {
    let mut taken = Taken::default();
    with_table(agent, true, |known| {
        taken = take(known);
        !taken.is_empty()
    });
    taken
}

/// The driver's answer to what was to go.
pub(crate) fn put_back_if_refused(agent: &Agent, taken: Taken, code: CUresult) -> CUresult {
    if code != sys::SUCCESS && !taken.is_empty() {
        add(agent, |known| known.set.put_back(taken));
    }
    code
}

/// A context has ended, and with it what lived in it.
pub(crate) fn context_gone(agent: &Agent, context: usize) {
    if agent.memory.is_watched() {
        // The driver has taken it already; of the context that programs run in, no kernel is left.
        let _ = withdraw(agent, |known| {
            known.published.remove(&context);
            known.libraries.retain(|_, (_, of)| *of != context);
            known.set.take_context(context)
        });
    }
}

/// A device's primary context has ended.
pub(crate) fn primary_gone(agent: &Agent, device: i32) {
    if !agent.memory.is_watched() {
        return;
    }
    let context = agent.memory.lock().primaries.remove(&device);
    if let Some(context) = context {
        context_gone(agent, context);
    }
    let _ = withdraw(agent, |known| known.set.take_device(device));
}

/// The device side was made: what is known so far can be read in it.
pub(crate) fn publish_all(agent: &Agent, live: &Live) {
    if let Some(fence) = live.fence() {
        let mut known = agent.memory.lock();
        synchronise(agent, live, fence, &mut known, false);
    }
}

/// Changes what is known and, if `change` says that something changed, the table on the device.
fn with_table(agent: &Agent, wait: bool, change: impl FnOnce(&mut Known) -> bool) {
    // In this order everywhere.
    let shards = agent.context_registry.all();
    let states: Vec<_> = shards.iter().map(|shard| shard.read()).collect();
    let mut known = agent.memory.lock();
    if !agent.memory.is_watched() || !change(&mut known) {
        return;
    }
    for state in &states {
        if let ContextState::Here(live) = &**state
            && let Some(fence) = live.fence()
        {
            synchronise(agent, live, fence, &mut known, wait);
        }
    }
}

/// Makes the table say what is known; `wait`s until nobody reads by the one before.
fn synchronise(agent: &Agent, live: &Live, fence: &Fence, known: &mut Known, wait: bool) {
    let context = live.context().0 as usize;
    let readable = known.set.readable(context, fence.device());
    if known.published.get(&context) == Some(&readable.ranges) {
        return;
    }
    if readable.left_out > 0 {
        agent.note(
            NoteLevel::Warning,
            format!(
                "the application has more than {} separate ranges of memory; programs cannot read the others",
                readable.ranges.len()
            ),
        );
    }
    let driver = &agent.driver;
    let result = driver.within(live.context(), || {
        driver.relaxed(|| -> Result<bool, DriverError> {
            if !fence.publish(driver, &readable.ranges, PATIENCE)? {
                // The table cannot be replaced: then nothing is readable.
                fence.shut(driver)?;
                known.published.remove(&context);
                return Ok(false);
            }
            known.published.insert(context, readable.ranges);
            Ok(!wait || fence.wait(driver, PATIENCE)?)
        })
    });
    match result {
        Some(Ok(true)) => {}
        Some(Ok(false)) => late(agent),
        Some(Err(error)) => {
            known.published.remove(&context);
            // In a context that a kernel broke nothing runs any more.
            if !BROKEN.contains(&error.code) {
                unfenced(agent, &error.to_string());
            }
        }
        None => {
            known.published.remove(&context);
            unfenced(agent, "its context cannot be made current");
        }
    }
}

/// The table on the device cannot be kept true: a program could read what the application has given
/// back, and break it. So no kernel runs with programs any more.
fn unfenced(agent: &Agent, why: &str) {
    agent.table.close();
    agent.note(
        NoteLevel::Warning,
        format!(
            "programs cannot be kept from memory that the application gives back ({why}): from here on all kernels run without probes and are not counted"
        ),
    );
}

fn late(agent: &Agent) {
    let times = agent.memory.late.fetch_add(1, Ordering::Relaxed) + 1;
    // Each text is told once: told at 1, 2, 4, 8, … it stays a few.
    if times.is_power_of_two() {
        agent.note(
            NoteLevel::Warning,
            format!(
                "a kernel was still reading the application's memory {} s after it was to be given back; it is given \
                 back all the same (times so far: {times})",
                PATIENCE.as_secs()
            ),
        );
    }
}
