//! An image in a context: its kernels are instrumented there, for one generation of programs, and put where launches find them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{CUcontext, CUfunction, CUlibrary, CUmodule};
use warpbpf_driver::{Context, Library, Module};
use warpbpf_session::{Live, LoadedVariant, Prepared};

use super::report::{Summaries, report};
use super::{Handle, Image, Version, enter, enter_known_handles, lock, settle_pending};
use crate::agent::{Absent, Agent};
use crate::entry::{Entry, Place};

type Results = HashMap<String, Result<Arc<LoadedVariant>, String>>;

/// The place of a kernel in a context where it is launched for the first time. A driver that loads lazily loads the kernel itself
/// now, and applications that cannot bear this ask it not to; any other has loaded it long ago, and nothing is done here.
pub(crate) fn place_at_launch(
    agent: &'static Agent,
    entry: &Entry,
    (context, generation): (usize, u64),
) -> Option<&'static Place> {
    if !agent.loads_lazily() {
        return None;
    }
    let handle = Context(context as CUcontext);
    agent.driver.within(handle, || settle_pending(agent));
    entry.place(context, generation)
}

/// What stands for a kernel of an image, made now if nobody wanted it before: launches by the handles that are known already
/// are counted from here on.
pub(super) fn enlist(
    agent: &'static Agent,
    image: &Image,
    mangled: &str,
    quietly: bool,
) -> &'static Entry {
    let entry = {
        let mut entries = lock(&image.entries);
        if let Some(entry) = entries.get(mangled) {
            return entry;
        }
        let made = agent.roster.made(mangled);
        let entry: &'static Entry = Box::leak(Box::new(Entry::new(mangled.to_owned(), made)));
        entry.told_context.store(quietly, Ordering::Relaxed);
        agent.roster.add(entry);
        agent.graphs.expect();
        entries.insert(mangled.to_owned(), entry);
        entry
    };
    enter_known_handles(agent, image, entry);
    entry
}

/// Instruments an image in the current context with the programs in force, if that was not done yet and the context is alive.
/// Never waits for another thread that does.
pub(super) fn settle(agent: &'static Agent, image: &Image) {
    loop {
        let generation = agent.generations.now().number;
        if let Some(version) = image.version(generation) {
            settle_for(agent, image, &version);
        }
        // If others came into force meanwhile, whoever put them there may not have seen this one.
        if agent.generations.now().number == generation {
            return;
        }
    }
}

/// The same with the programs of a version.
pub(super) fn settle_for(agent: &'static Agent, image: &Image, version: &Version) {
    let Some(context) = agent.driver.current() else {
        return;
    };
    let (here, generation) = (context.0 as usize, version.generation());
    // Off, nobody would fetch data: then no device side is made either.
    if image.is_settled(here, generation) || !agent.is_on() {
        return;
    }
    let settled = agent.with_live(&version.session, |live| {
        settle_in(agent, image, version, live);
    });
    if let Err(Absent::Gone(why)) = settled
        && image.claim(here, generation)
    {
        let results = failures(&version.prepared, why);
        register(agent, image, version, context, &results);
        pends_no_more(agent, image);
    }
}

/// The same in a context that has maps, is current and cannot end meanwhile.
pub(super) fn settle_in(agent: &'static Agent, image: &Image, version: &Version, live: &Live) {
    let (context, generation) = (live.context(), version.generation());
    let here = context.0 as usize;
    if !agent.is_on() || !image.claim(here, generation) {
        return;
    }
    let module = match image.handle {
        Handle::Module(module) => Some(Ok(Module(module as CUmodule))),
        Handle::Library(library) => image.standing.while_loaded(|| {
            let library = Library(library as CUlibrary);
            agent.driver.library_module(library)
        }),
    };
    let capability = agent.device().map(|device| device.capability);
    let results = match module {
        None => failures(&version.prepared, "its image is being unloaded"),
        Some(Ok(_)) if capability != Some(image.capability) => {
            let (major, minor) = image.capability;
            let why = format!(
                "it was read for a device of sm_{major}{minor}, and it is used on one of another kind, too"
            );
            failures(&version.prepared, &why)
        }
        Some(Ok(module)) => {
            // What has the same programs as before is the same.
            let mut results = unchanged(image, version, here);
            let made = live.instrument_for(
                &version.session,
                &version.prepared,
                (module, &image.standing),
                &image.jit,
                &|kernel| !results.contains_key(&kernel.mangled),
            );
            results.extend(made);
            results
        }
        Some(Err(error)) => failures(&version.prepared, &error.to_string()),
    };
    register(agent, image, version, context, &results);
    pends_no_more(agent, image);
}

/// An image was settled in a context. A library may still be used in others.
fn pends_no_more(agent: &Agent, image: &Image) {
    if image.home.is_some() && image.pends.swap(false, Ordering::Relaxed) {
        agent.count_pending(-1);
    }
}

fn failures(prepared: &Prepared, why: &str) -> Results {
    let wanted = prepared.kernels.iter().filter(|k| k.wanted);
    wanted
        .map(|k| (k.mangled.clone(), Err(why.to_string())))
        .collect()
}

/// What runs in a context in place of kernels whose programs are those of the version before.
fn unchanged(image: &Image, version: &Version, context: usize) -> Results {
    let entries = lock(&image.entries);
    let kept = version.same.iter().filter_map(|name| {
        let place = entries.get(name)?.place(context, version.before)?;
        Some((name.clone(), Ok(place.variant.clone()?)))
    });
    kept.collect()
}

/// Puts what came of an image's kernels in a context where launches find it.
fn register(
    agent: &'static Agent,
    image: &Image,
    version: &Version,
    context: Context,
    results: &Results,
) {
    let summaries = Summaries::of(image);
    let shard = agent.lives.of(context);
    let number = shard.and_then(|shard| shard.number.get().copied());
    let sms = agent.device().map_or(0, |device| device.sms);
    for kernel in &version.prepared.kernels {
        let known = lock(&image.entries).get(&kernel.mangled).copied();
        let wanted = !kernel.programs.is_empty();
        let entry = match known {
            Some(entry) => entry,
            None if wanted => enlist(agent, image, &kernel.mangled, false),
            None => continue,
        };
        let result = results.get(&kernel.mangled);
        if kernel.wanted {
            report(agent, &summaries, version, kernel, result);
        }
        if let Some(Err(reason)) = result {
            let failure = (
                version.generation(),
                kernel.demangled.clone(),
                reason.clone(),
            );
            lock(&image.without).push(failure);
        }
        let variant = result.and_then(|r| r.as_ref().ok()).cloned();
        let original = variant.as_ref().map(|variant| variant.original.0);
        let context = context.0 as usize;
        let numbers = (number.unwrap_or(0), sms);
        let choices = match &variant {
            Some(variant) => variant.choices.clone(),
            None => version.session.choices_of(&kernel.programs),
        };
        let made = (variant, choices);
        let place = Place::new(context, numbers, version.generation(), made);
        place.set_wanted(wanted);
        let place = entry.add(place);
        agent.graphs.know(entry, place);
        if let Some(original) = original {
            // Not if it has been unloaded meanwhile: the handle may be another's by now.
            image
                .standing
                .while_loaded(|| enter(agent, entry, original as CUfunction, Some(context)));
        }
        enter_known_handles(agent, image, entry);
    }
}
