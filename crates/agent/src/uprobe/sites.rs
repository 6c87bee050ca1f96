//! Functions of the process with probes, of which one agent at a time has some.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use warpbpf_hook::Kind;
use warpbpf_session::Session;

use crate::runtime::agent::Agent;
use crate::trace::stacks::Stacks;
use crate::trace::timeline::Timeline;
use crate::uprobe::function::Function;
use crate::uprobe::lost::Lost;

/// A function with probes.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where it is.
    pub(crate) address: usize,
    pub(crate) kind: Kind,
    /// What its stub goes on to: the original.
    pub(crate) original: usize,
    /// What its callers return to, if it has probes at its end.
    pub(crate) after: usize,
    /// Programs at its start, by number.
    pub(crate) starts: Vec<usize>,
    /// Programs at its end.
    pub(crate) ends: Vec<usize>,
    /// It is of the driver API.
    pub(crate) api: Option<Function>,
    /// What it puts into a stream is timed.
    pub(crate) timed: bool,
}

impl Site {
    pub(crate) fn at(address: usize, kind: Kind) -> Site {
        Site {
            address,
            kind,
            original: 0,
            after: 0,
            starts: Vec::new(),
            ends: Vec::new(),
            api: None,
            timed: false,
        }
    }

    pub(crate) fn add(&mut self, number: usize, at_end: bool) {
        match at_end {
            true => self.ends.push(number),
            false => self.starts.push(number),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Sites {
    pub(crate) agent: &'static Agent,
    pub(crate) session: Arc<Session>,
    pub(crate) all: Vec<Site>,
    /// What came to nothing, by program.
    pub(crate) lost: Vec<Lost>,
    /// Programs that do not run now.
    pub(crate) paused: Vec<AtomicBool>,
    /// The tool wants to know when the device does what.
    pub(crate) timeline: Option<Timeline>,
    /// And from where on the CPU that was asked for.
    pub(crate) stacks: Option<Stacks>,
}

static SITES: AtomicPtr<Sites> = AtomicPtr::new(std::ptr::null_mut());

/// All that are there, once they are.
pub(crate) fn sites() -> Option<&'static Sites> {
    // SAFETY: null, or leaked by `install`.
    unsafe { SITES.load(Ordering::Acquire).as_ref() }
}

/// Those that run, by name, if the tool has said so.
pub(crate) static CHOSEN: Mutex<Option<Vec<String>>> = Mutex::new(None);

impl Sites {
    pub(crate) fn choose(&self, names: &[String]) {
        for (program, paused) in self.session.host_programs().iter().zip(&self.paused) {
            let runs = names.contains(&program.program.name);
            paused.store(!runs, Ordering::Release);
        }
    }

    pub(crate) fn is_paused(&self, number: usize) -> bool {
        self.paused[number].load(Ordering::Acquire)
    }
}

/// They are there from now on.
pub(crate) fn publish(sites: &'static Sites) {
    SITES.store(std::ptr::from_ref(sites).cast_mut(), Ordering::Release);
}

/// The timeline of an agent, if its tool wants one and is there: nothing is asked for it any more
/// when that is gone.
pub(crate) fn timeline_served(agent: &Agent) -> Option<&'static Timeline> {
    timeline_of(agent).filter(|_| agent.is_on())
}

/// The timeline of an agent, if its tool wants one.
pub(crate) fn timeline_of(agent: &Agent) -> Option<&'static Timeline> {
    let sites = sites().filter(|sites| std::ptr::eq(sites.agent, agent))?;
    sites.timeline.as_ref()
}

/// Stacks of an agent, if its tool wants them.
pub(crate) fn stacks_of(agent: &Agent) -> Option<&'static Stacks> {
    let sites = sites().filter(|sites| std::ptr::eq(sites.agent, agent))?;
    sites.stacks.as_ref()
}
