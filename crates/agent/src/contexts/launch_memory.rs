//! The memory that launches are counted in ([`crate::kernels::launches`]): new, or of a session
//! that has ended.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{self, CUresult};
use warpbpf_wire::{AgentConnection, LaunchWriter, NoteLevel, SharedError, ToTool, WireError};

use crate::kernels::entry::{Entry, Runs};
use crate::runtime::agent::Agent;
use crate::sys::descriptors::{OwnDescriptor, keep};
use crate::sys::lock::{lock, tried};

/// Those of sessions that have ended, each with its agent, if that is still there. Only tried: in a
/// forked child it may be locked for ever.
static FREE: Mutex<Vec<(&'static LaunchWriter, Option<&'static Agent>)>> = Mutex::new(Vec::new());

/// The agent is about to be freed: no launch of its session is under way.
pub(crate) fn forget(agent: &'static Agent) {
    for (_, its) in lock(&FREE).iter_mut() {
        if its.is_some_and(|its| std::ptr::eq(its, agent)) {
            *its = None;
        }
    }
}

/// One that nobody counts in, or a new one.
fn made() -> Result<(&'static LaunchWriter, OwnDescriptor), SharedError> {
    warpbpf_faults::check("agent/launches", || SharedError::TooLarge {
        bytes: 1 << 70,
    })?;
    let free = tried(FREE.try_lock()).and_then(|mut free| {
        let mut all = free.iter();
        let left = all.position(|(_, agent)| agent.is_none_or(Agent::no_launch_is_under_way))?;
        Some(free.swap_remove(left).0)
    });
    if let Some(writer) = free {
        return Ok((writer, keep(writer.renew()?)));
    }
    let (writer, fd) = LaunchWriter::create()?;
    Ok((Box::leak(Box::new(writer)), keep(fd)))
}

impl Agent {
    /// Has launches counted in memory that the tool gets. Without it the tool is told of them once
    /// a second.
    pub(crate) fn share_launches(&self, connection: &mut AgentConnection) -> Result<(), WireError> {
        match self.files.run(made) {
            Ok((writer, fd)) => {
                let _ = self.launches.writer.set(writer);
                connection.queue(&ToTool::Launches, &[], Some(fd))?;
                connection.flush()?;
            }
            Err(error) => self.note(
                NoteLevel::Info,
                format!("if the process is killed, its last launches may be missing in the report, and their number: {error}"),
            ),
        }
        Ok(())
    }

    /// Launches with programs so far, by the number of the context.
    pub(crate) fn counted(&self) -> Vec<u64> {
        let launches = self.launches.get();
        let of = |number| launches.map_or(0, |launches| launches.launches(number));
        (0..self.context_registry.made()).map(of).collect()
    }

    /// The data came home at the end of the process, and the connection with the tool ends with
    /// that: launches of kernels that programs match are counted until then.
    pub(crate) fn begin_late(&self) {
        self.launches.late.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_late(&self) -> bool {
        let late = &self.launches.late;
        late.load(Ordering::Relaxed) && !self.is_forked() && self.is_of_this_process()
    }

    /// A launch came when the agent is off: it has no programs, and `code` is what the driver
    /// answered. If it is late, it counts among those whose data are missing.
    pub(crate) fn count_late(&self, entry: &Entry, code: CUresult) -> CUresult {
        let launches = self.launches.get().filter(|_| self.is_late());
        if let Some(launches) = launches.filter(|_| code == sys::SUCCESS && self.is_wanted(entry)) {
            Runs::Original(entry.tally(self.generations.now()), 0).count();
            launches.late().fetch_add(1, Ordering::Relaxed);
        }
        code
    }
}

/// Nobody counts here any more, but launches that are under way.
pub(crate) fn give_back(agent: &'static Agent) {
    if let (Some(writer), Some(mut free)) = (agent.launches.get(), tried(FREE.try_lock())) {
        free.push((writer, Some(agent)));
    }
}
