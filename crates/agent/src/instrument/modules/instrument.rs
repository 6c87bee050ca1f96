//! Instruments the kernels of an image in a context, for one generation of programs, and puts the
//! variants where launches find them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{CUfunction, CUlibrary, CUmodule};
use warpbpf_driver::{Context, Library, Module};
use warpbpf_session::Method;
use warpbpf_session::client::OWN;
use warpbpf_session::{Live, LoadError, LoadedVariant, Prepared, PreparedKernel, Session};

use crate::instrument::modules::enter::{enter, enter_known_handles};
use crate::instrument::modules::failure::Failure;
use crate::instrument::modules::report::{Summaries, report, tell_left_out};
use crate::kernels::entry::{Entry, Place};
use crate::runtime::agent::{Absent, Agent};
use crate::sources::images::{Handle, Image};
use crate::sources::version::Version;
use crate::sys::lock::lock;

type Results = HashMap<String, Result<Arc<LoadedVariant>, Failure>>;

/// What others have alone, by kernel: it runs where a variant with a second tool's programs too
/// cannot.
type Alone = HashMap<String, Arc<LoadedVariant>>;

/// What stands for a kernel of an image, made now if nobody wanted it before: launches by the
/// handles that are known already are counted from here on.
pub(crate) fn enlist(
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
        let entry = agent.kernel_registry.add(mangled, agent.launches.get());
        entry.told_context.store(quietly, Ordering::Relaxed);
        agent.graphs.expect();
        entries.insert(mangled.to_owned(), entry);
        entry
    };
    enter_known_handles(agent, image, entry);
    entry
}

/// Instruments an image in the current context with the programs in force, if that was not done yet
/// and the context is alive. Never waits for another thread that does.
pub(crate) fn instrument_here(agent: &'static Agent, image: &Image) {
    loop {
        let generation = agent.generations.now().number;
        if let Some(version) = image.version(generation) {
            instrument_for(agent, image, &version);
        }
        // If others came into force meanwhile, whoever put them there may not have seen this one.
        if agent.generations.now().number == generation {
            return;
        }
    }
}

/// The same with the programs of a version.
pub(crate) fn instrument_for(agent: &'static Agent, image: &Image, version: &Version) {
    let Some(context) = agent.driver.current() else {
        return;
    };
    let (here, generation) = (context.0 as usize, version.generation());
    // Off, nobody would fetch data: then no device side is made either.
    if image.is_instrumented(here, generation) || !agent.is_on() {
        return;
    }
    let instrumented = agent.with_live(&version.session, |live| {
        instrument_in(agent, image, version, live);
    });
    if let Err(Absent::Gone(why)) = instrumented
        && image.claim(here, generation)
    {
        let results = failures(&version.prepared, &Failure::NoMaps { why });
        register(agent, image, version, context, &results, &Alone::new());
        pends_no_more(agent, image);
    }
}

/// The same in a context that has maps, is current and cannot end meanwhile.
pub(crate) fn instrument_in(agent: &'static Agent, image: &Image, version: &Version, live: &Live) {
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
        None => failures(&version.prepared, &LoadError::Unloading.into()),
        Some(Ok(_)) if capability != Some(image.capability) => {
            let read_for = image.capability;
            failures(&version.prepared, &Failure::OtherDevice { read_for })
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
            let made = made.into_iter();
            results.extend(made.map(|(name, made)| (name, made.map_err(Failure::from))));
            fall_back(agent, image, version, here, &mut results);
            if let Some(own) = own_alone(version, image, &results) {
                let made = live.instrument_for(
                    &version.session,
                    &own,
                    (module, &image.standing),
                    &image.jit,
                    &|_| true,
                );
                take_own(agent, image, version, made, &mut results);
            }
            results
        }
        Some(Err(error)) => failures(&version.prepared, &LoadError::Driver(error).into()),
    };
    let alone = alone(image, version, here, &results);
    register(agent, image, version, context, &results, &alone);
    pends_no_more(agent, image);
}

/// Kernels whose code with second tools' programs too the driver does not load keep what others
/// have in them.
fn fall_back(
    agent: &'static Agent,
    image: &Image,
    version: &Version,
    context: usize,
    results: &mut Results,
) {
    let summaries = Summaries::of(image);
    for (name, result) in results {
        let Err(error) = result else { continue };
        let reason = error.to_string();
        let variant = {
            // Who gives up code that nobody has counts its owners under this lock.
            let entries = lock(&image.entries);
            let entry = entries.get(name);
            let before = entry.and_then(|entry| entry.place(context, version.before));
            before.and_then(|place| place.variant.clone())
        };
        let Some(variant) = variant else {
            continue;
        };
        let mut kernels = version.prepared.kernels.iter();
        let kernel = kernels.find(|kernel| kernel.mangled == *name);
        let programs = version.session.may_keep(name, variant.choices.ids());
        if let Some((kernel, programs)) = kernel.zip(programs) {
            let mut kept = kernel.clone();
            kept.programs = programs;
            tell_left_out(
                agent,
                &summaries,
                version,
                &kept,
                &Method::Failed {
                    reason: reason.clone(),
                },
            );
            let failure = (version.generation(), kernel.demangled.clone(), reason);
            lock(&image.without).push(failure);
            *result = Ok(variant);
        }
    }
}

/// Kernels whose code with second tools' programs too the driver does not load, and of which there
/// is none without: the same with the first tool's programs alone.
fn own_alone(version: &Version, image: &Image, results: &Results) -> Option<Prepared> {
    let is_lost = |name: &str| results.get(name).is_some_and(Result::is_err);
    if !version.session.has_clients() || results.values().all(Result::is_ok) {
        return None;
    }
    let mut own = version.session.prepare_own(&image.info, &is_lost);
    // The image is as it was loaded.
    own.refuse_clones("its image is loaded already");
    Some(own)
}

/// What came of that.
fn take_own(
    agent: &'static Agent,
    image: &Image,
    version: &Version,
    made: Vec<(String, Result<Arc<LoadedVariant>, LoadError>)>,
    results: &mut Results,
) {
    let summaries = Summaries::of(image);
    for (name, made) in made {
        let mut kernels = version.prepared.kernels.iter();
        let kernel = kernels.find(|kernel| kernel.mangled == name);
        let (Ok(variant), Some(kernel), Some(Err(error))) = (made, kernel, results.get(&name))
        else {
            continue;
        };
        let programs = version.session.numbers(variant.choices.ids());
        let mut kept = kernel.clone();
        kept.programs = programs.unwrap_or_default();
        let method = Method::Failed {
            reason: error.to_string(),
        };
        tell_left_out(agent, &summaries, version, &kept, &method);
        results.insert(name, Ok(variant));
    }
}

/// Of kernels that a second tool has programs in, what those had before that it came to; of its own
/// programs the first tool's are all there.
fn alone(image: &Image, version: &Version, context: usize, results: &Results) -> Alone {
    let entries = lock(&image.entries);
    let of = |(name, result): (&String, &Result<Arc<LoadedVariant>, Failure>)| {
        let choices = &result.as_ref().ok()?.choices;
        if choices.clients().iter().all(|client| *client == OWN) {
            return None;
        }
        let serves = |variant: &LoadedVariant| {
            let ids = variant.choices.ids();
            let fewer = ids.len() < choices.ids().len();
            let own = choices.ids().iter().zip(choices.clients());
            let mut own = own.filter(|(_, client)| **client == OWN);
            fewer
                && ids.iter().all(|id| choices.ids().contains(id))
                && own.all(|(id, _)| ids.contains(id))
        };
        let before = entries.get(name)?.place(context, version.before)?;
        let alone = before.alone.and_then(|place| place.variant.clone());
        let found = alone.filter(|variant| serves(variant));
        let found = found.or_else(|| before.variant.clone().filter(|variant| serves(variant)));
        Some((name.clone(), found?))
    };
    results.iter().filter_map(of).collect()
}

/// An image was instrumented in a context. A library may still be used in others.
fn pends_no_more(agent: &Agent, image: &Image) {
    if image.home.is_some() && image.pends.swap(false, Ordering::Relaxed) {
        agent.count_pending(-1);
    }
}

fn failures(prepared: &Prepared, why: &Failure) -> Results {
    let wanted = prepared.kernels.iter().filter(|k| k.wanted);
    wanted
        .map(|k| (k.mangled.clone(), Err(why.clone())))
        .collect()
}

/// What runs in a context in place of kernels whose programs are those of the version before.
fn unchanged(image: &Image, version: &Version, context: usize) -> Results {
    let entries = lock(&image.entries);
    let kept = version.same.iter().filter_map(|name| {
        let place = entries.get(name)?.place(context, version.before)?;
        Some((name.clone(), Ok(place.variant.clone()?)))
    });
    let mut kept: Results = kept.collect();
    // Programs that were there before others came beside them are in code that is still loaded, as
    // a rule.
    for kernel in version.prepared.kernels.iter().filter(|k| k.wanted) {
        let Some(entry) = entries.get(&kernel.mangled) else {
            continue;
        };
        let ids = version.session.program_ids(&kernel.programs);
        let mut variants = entry.places_in(context).filter_map(|p| p.variant.as_ref());
        if let Some(variant) = variants.find(|variant| variant.choices.ids() == ids) {
            let kept = kept.entry(kernel.mangled.clone());
            kept.or_insert_with(|| Ok(Arc::clone(variant)));
        }
    }
    kept
}

/// Tools whose programs want a kernel, and have no place in it, where others' have.
fn idle(session: &Session, kernel: &PreparedKernel) -> Vec<u32> {
    let mut clients = session.clients_of(&kernel.programs);
    if clients.len() > 1 {
        let placed = kernel.placed.iter().filter(|(_, count)| *count > 0);
        let placed: Vec<usize> = placed.map(|(program, _)| *program).collect();
        let placed = session.clients_of(&placed);
        clients.retain(|client| !placed.contains(client));
    } else {
        clients.clear();
    }
    clients
}

/// Puts what came of an image's kernels in a context where launches find it.
fn register(
    agent: &'static Agent,
    image: &Image,
    version: &Version,
    context: Context,
    results: &Results,
    alone: &Alone,
) {
    let summaries = Summaries::of(image);
    let shard = agent.context_registry.of(context);
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
        if let Some(Err(error)) = result {
            let (generation, name) = (version.generation(), kernel.demangled.clone());
            let failure = (generation, name, error.to_string());
            lock(&image.without).push(failure);
        }
        let variant = result.and_then(|r| r.as_ref().ok()).cloned();
        let original = variant.as_ref().map(|variant| variant.original.0);
        let context = context.0 as usize;
        let numbers = (number.unwrap_or(0), sms);
        let session = &version.session;
        let wanted_by = match wanted {
            true => session.matching(&kernel.mangled),
            false => Vec::new(),
        };
        let left_out = wanted_by.iter().filter(|p| !kernel.programs.contains(p));
        let all: Vec<usize> = kernel.programs.iter().chain(left_out).copied().collect();
        let choices = session.choices_of(&all);
        let wanted_by = session.clients_of(&wanted_by);
        let idle = idle(session, kernel);
        let place = |variant| {
            let made = (variant, choices.clone());
            let place = Place::new(context, numbers, version.generation(), made);
            place.set_wanted(wanted);
            place.of(&wanted_by, &idle)
        };
        // Launches find the last one that was added.
        let alone = alone.get(&kernel.mangled).map(|alone| {
            let place = entry.add(place(Some(Arc::clone(alone))));
            agent.graphs.know(entry, place);
            place
        });
        let mut place = place(variant);
        place.alone = alone;
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
