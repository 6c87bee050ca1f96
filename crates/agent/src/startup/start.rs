//! What an agent is started with: the parts above it.

use crate::contexts::exclusive::with_launch_barrier;
use crate::control::control_thread::ask;
use crate::control::ends;
use crate::hooks::exports;
use crate::runtime::agent::{Above, Agent, Mode};
use crate::trace::nvtx;

/// See the module.
pub(crate) const ABOVE: Above = Above {
    ask: decide,
    wrap: with_launch_barrier,
    ends: ends::look,
    replacements: exports::replacements,
};

/// Asks the tool what it wants, and tells who has to know.
fn decide(agent: &'static Agent) -> Mode {
    let mode = ask(agent).unwrap_or_else(|_| {
        // Nobody to tell it to: the tool is what could not be reached.
        agent.turn_off();
        Mode::PassThrough
    });
    if matches!(mode, Mode::PassThrough) {
        agent.files.close();
    }
    let session = match &mode {
        Mode::Attached(session) => Some(session),
        Mode::Observe | Mode::PassThrough => None,
    };
    agent.memory.decide(session.map(|session| &**session));
    let timeline = session.is_some_and(|session| session.timeline());
    let ranges = session.is_some_and(|session| session.needs_nvtx());
    nvtx::decide(timeline, ranges);
    mode
}
