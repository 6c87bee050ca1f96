//! Images that wait for a context.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::Context;
use warpbpf_driver::sys::CUcontext;

use crate::device::context_registry::Shard;
use crate::instrument::modules::instrument::instrument_here;
use crate::kernels::entry::{Entry, Place};
use crate::runtime::agent::Agent;
use crate::sources::images::Image;
use crate::sys::lock::lock;

/// Instruments what waits for the context that is current now.
pub(crate) fn instrument_pending(agent: &'static Agent) {
    let Some(context) = agent.driver.current() else {
        return;
    };
    let loads = agent.images.loads.load(Ordering::Relaxed);
    let generation = agent.generations.now().number;
    let seen = |shard: &Shard| shard.seen.load(Ordering::Relaxed) == loads;
    if agent
        .context_registry
        .of(context)
        .is_some_and(|shard| seen(&shard))
    {
        return;
    }
    let waiting: Vec<Arc<Image>> = lock(&agent.images.by_handle)
        .values()
        .filter(|image| !image.is_instrumented(context.0 as usize, generation))
        .cloned()
        .collect();
    for image in &waiting {
        instrument_here(agent, image);
    }
    let instrumented = |image: &Arc<Image>| image.is_instrumented(context.0 as usize, generation);
    if waiting.iter().all(instrumented)
        && let Some(shard) = agent.context_registry.of(context)
    {
        shard.seen.store(loads, Ordering::Relaxed);
    }
}

/// The place of a kernel in a context where it is launched for the first time. A driver that loads
/// lazily loads the kernel itself now, and applications that cannot bear this ask it not to; any
/// other has loaded it long ago, and nothing is done here.
pub(crate) fn place_at_launch(
    agent: &'static Agent,
    entry: &Entry,
    (context, generation): (usize, u64),
) -> Option<&'static Place> {
    if !agent.loads_lazily() {
        return None;
    }
    let handle = Context(context as CUcontext);
    agent.driver.within(handle, || instrument_pending(agent));
    entry.place(context, generation)
}
