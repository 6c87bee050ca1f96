//! Images that go, with what of ours was made for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::Context;
use warpbpf_driver::sys::{CUcontext, CUfunction};

use crate::device::context_registry::ContextState;
use crate::instrument::modules::enter::enter;
use crate::kernels::entry::{self, Entry};
use crate::runtime::agent::Agent;
use crate::sources::images::{Handle, Image};
use crate::sys::lock::lock;

/// An image that is about to be unloaded: nothing of it is launched by us any more.
pub(crate) struct Leaving {
    image: Arc<Image>,
    /// Handles of the image itself.
    names: Vec<Handle>,
    /// Handles of its kernels.
    kernels: Vec<(entry::Handle, &'static Entry)>,
}

/// Takes an image out, before the driver forgets it: another thread may get the same handles at
/// once.
pub(crate) fn forget(agent: &Agent, handle: Handle) -> Option<Leaving> {
    let mut images = lock(&agent.images.by_handle);
    warpbpf_faults::bug("agent/unload-panics");
    let image = images.remove(&handle)?;
    let mut names = vec![handle];
    // A library's modules are aliases of it.
    images.retain(|name, other| {
        let alias = Arc::ptr_eq(other, &image);
        if alias {
            names.push(*name);
        }
        !alias
    });
    drop(images);
    if image.waits() {
        agent.count_pending(-1);
    }
    // From here on no thread of ours asks for its kernels, or enters their handles.
    image.standing.set(false);
    let mut kernels = Vec::new();
    for entry in lock(&image.entries).values() {
        for handle in entry.take_handles() {
            agent.table.remove(handle.value);
            kernels.push((handle, *entry));
        }
    }
    Some(Leaving {
        image,
        names,
        kernels,
    })
}

impl Leaving {
    /// The driver has unloaded it. Our code for it goes too: the application promised that none of
    /// it runs or will.
    pub(crate) fn gone(self, agent: &Agent) {
        let images = &agent.images;
        images
            .unwanted
            .fetch_sub(self.image.bytes, Ordering::Relaxed);
        let entries: Vec<&'static Entry> = lock(&self.image.entries).values().copied().collect();
        agent.kernel_registry.retire(&entries);
        for place in entries.iter().flat_map(|entry| entry.places()) {
            let Some((context, variant)) = place.context().zip(place.variant.as_ref()) else {
                continue;
            };
            let context = Context(context as CUcontext);
            let Some(shard) = agent.context_registry.of(context) else {
                continue;
            };
            // It goes with its context if that ends first.
            let state = shard.read();
            if let ContextState::Here(_) = &*state {
                agent.graphs.forget(variant.function.0);
                agent.driver.within(context, || {
                    // What cannot be unloaded costs memory until the context ends.
                    let _ = variant.unload(&agent.driver);
                });
            }
        }
    }

    /// The driver kept it: everything is as it was.
    pub(crate) fn stays(self, agent: &Agent) {
        let mut images = lock(&agent.images.by_handle);
        for name in self.names {
            images.insert(name, Arc::clone(&self.image));
        }
        drop(images);
        self.image.standing.set(true);
        if self.image.waits() {
            agent.count_pending(1);
        }
        for (handle, entry) in self.kernels {
            enter(agent, entry, handle.value as CUfunction, handle.context);
        }
    }
}

/// A context is gone, and all modules and functions in it. Libraries and their kernels are of no
/// context: they go on in others.
pub(crate) fn context_gone(agent: &Agent, context: usize) {
    let mut images = lock(&agent.images.by_handle);
    let mut dead: Vec<&'static Entry> = Vec::new();
    images.retain(|handle, image| {
        for entry in lock(&image.entries).values() {
            for variant in entry.places_in(context).filter_map(|p| p.variant.as_ref()) {
                agent.graphs.forget(variant.function.0);
            }
            for handle in entry.leave(context) {
                agent.table.remove(handle);
            }
        }
        let waited = image.waits();
        lock(&image.instrumented_in).retain(|(there, _)| *there != context);
        match (handle, image.home) {
            (_, Some(home)) if home == context => {
                dead.extend(lock(&image.entries).values().copied());
                if waited {
                    agent.count_pending(-1);
                }
                image.standing.set(false);
                agent
                    .images
                    .unwanted
                    .fetch_sub(image.bytes, Ordering::Relaxed);
                false
            }
            // A library's module in the dead context.
            (Handle::Module(_), None) => !agent.images.is_alias_in(*handle, context),
            _ => true,
        }
    });
    drop(images);
    agent.graphs.context_gone(context);
    agent.kernel_registry.retire(&dead);
}
