//! The application's memory, for programs that read it: what lives is in a table on the device, and what goes is taken
//! out, and out of every reader's hands, before the driver hears of it.
//!
//! Until the tool has said what it wants, what lives is only noted. If no program reads memory, nothing is done at all.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpbpf_driver::DriverError;
use warpbpf_driver::sys::{self, CUresult};
use warpbpf_session::{Allocation, Allocations, Fence, Live, Taken};
use warpbpf_wire::NoteLevel;

use crate::agent::{Agent, Mode};
use crate::context_registry::ContextState;

/// How long the application waits for lanes that read memory which it gives back. They are out within microseconds,
/// unless they are suspended.
const PATIENCE: Duration = Duration::from_secs(2);

/// `CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`: what every call in a context says once a kernel has broken it.
const BROKEN: std::ops::RangeInclusive<CUresult> = 700..=719;

/// Not asked yet: memory is noted.
const UNKNOWN: u8 = 0;
/// A program reads memory.
const WATCHING: u8 = 1;
/// None does, or none can any more.
const OFF: u8 = 2;

/// What is known of memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    mode: AtomicU8,
    known: Mutex<Known>,
    /// How often somebody was still reading after [`PATIENCE`].
    late: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) set: Allocations,
    /// What the table in each context says, where that is known.
    published: HashMap<usize, Vec<Range<u64>>>,
    /// The primary context of each device.
    primaries: HashMap<i32, usize>,
    /// Handles of memory that the application made. Others may be of multicast objects, which cannot be read.
    pub(crate) made: HashSet<u64>,
    /// The library that a module belongs to, and the module's context.
    libraries: HashMap<usize, (usize, usize)>,
}

impl Known {
    /// What a variable of a module goes with.
    pub(crate) fn owner(&self, module: usize) -> usize {
        let library = self.libraries.get(&module);
        library.map_or(module, |(library, _)| *library)
    }
}

impl Memory {
    /// Hooks have work to do. That goes on after the tool is gone: a kernel that it left behind may still read.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != OFF
    }

    /// What the tool wants is known.
    pub(crate) fn decide(&self, mode: &Mode) {
        match mode {
            Mode::Attached(session) if session.reads_application() => {
                self.mode.store(WATCHING, Ordering::Relaxed);
            }
            Mode::Attached(_) | Mode::Observe | Mode::PassThrough => self.forget_all(),
        }
    }

    /// Nothing will be read that is not read already.
    pub(crate) fn forget_if_unused(&self) {
        // It fails if a program reads memory: then its kernels may still run.
        let changed =
            self.mode
                .compare_exchange(UNKNOWN, OFF, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            *self.lock() = Known::default();
        }
    }

    /// Nothing is read: no program does.
    pub(crate) fn forget_all(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
        *self.lock() = Known::default();
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.mode.store(OFF, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary context of a device is this one.
    pub(crate) fn note_primary(&self, device: i32, context: usize) {
        if self.is_watched() {
            self.lock().primaries.insert(device, context);
        }
    }

    /// A module is what a library is in a context.
    pub(crate) fn note_library(&self, module: usize, library: usize, context: usize) {
        if self.is_watched() {
            let mut known = self.lock();
            known.libraries.insert(module, (library, context));
        }
    }
}

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

/// The table on the device cannot be kept true: a program could read what the application has given back, and break it. So no kernel
/// runs with programs any more.
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
