//! Images when programs are replaced: everything for the new programs is made beside what is in
//! force, put in force at once, or taken back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::CUcontext;
use warpbpf_driver::{Context, Driver};
use warpbpf_session::Method;
use warpbpf_session::choices::Choices;
use warpbpf_session::{KernelSummary, Live, LoadedVariant, Session};

use crate::contexts::growth::GrowthError;
use crate::instrument::modules::enter::enter_known_handles;
use crate::instrument::modules::instrument::{enlist, instrument_for, instrument_in};
use crate::instrument::modules::report::report;
use crate::instrument::modules::report::{Summaries, send_site_names, tell_left_out};
use crate::kernels::entry::Place;
use crate::kernels::generation::Generation;
use crate::runtime::agent::Agent;
use crate::sources::images::Image;
use crate::sources::version::Version;
use crate::sys::lock::lock;

/// What a kernel would need that was loaded without room for code beside it.
const ADVICE: &str = "its image is loaded already: start the application with these programs";

/// All images, each once.
fn all(agent: &Agent) -> Vec<Arc<Image>> {
    let by_handle = lock(&agent.images.by_handle);
    let mut images: Vec<Arc<Image>> = Vec::new();
    let mut seen = HashSet::new();
    for image in by_handle.values() {
        if seen.insert(Arc::as_ptr(image)) {
            images.push(Arc::clone(image));
        }
    }
    images
}

/// Makes all that launches need once a session's programs are in force, as long as `goes_on`. True
/// when nothing is left to do.
pub(crate) fn make_ready(
    agent: &'static Agent,
    session: &Arc<Session>,
    goes_on: &dyn Fn() -> bool,
) -> bool {
    let before = agent.generations.now().number;
    for image in all(agent) {
        if !goes_on() {
            return false;
        }
        if image.standing.is_loaded() {
            make_image_ready(agent, &image, before, session);
        }
    }
    all(agent)
        .iter()
        .all(|image| image.is_ready(before, session))
}

fn make_image_ready(agent: &'static Agent, image: &Image, before: u64, session: &Arc<Session>) {
    let version = match image.version(session.generation()) {
        Some(version) => version,
        None => {
            let version = Arc::new(next_version(image, before, session));
            send_site_names(agent, session);
            lock(&image.versions).push(Arc::clone(&version));
            tell(agent, image, &version);
            version
        }
    };
    let had_nothing = image.version(before).is_none_or(|v| v.wants_nothing());
    let mut contexts = image.lacks(before, session.generation());
    if had_nothing && !version.wants_nothing() {
        // Nobody wanted it anywhere: now it is wanted wherever it may be.
        match image.home {
            Some(home) => contexts.push(home),
            None => contexts.extend(agent.known_contexts().iter().map(|c| c.0 as usize)),
        }
        if !image.pends.swap(true, Ordering::Relaxed) {
            agent.count_pending(1);
        }
    }
    for context in contexts {
        let wait = || await_programs(agent, image, &version, context, before);
        let handle = Context(context as CUcontext);
        let shard = agent.context_registry.of(handle);
        let instrument = |live: &Live| {
            wait();
            instrument_in(agent, image, &version, live);
        };
        let instrumented = shard.and_then(|shard| agent.with_ours(&shard, instrument));
        if instrumented.is_none() {
            agent.driver.within(handle, || {
                wait();
                instrument_for(agent, image, &version);
            });
        }
    }
}

/// Has launches of kernels that nobody wanted so far counted as uninstrumented, until their
/// programs come into force.
fn await_programs(
    agent: &'static Agent,
    image: &Image,
    version: &Version,
    context: usize,
    before: u64,
) {
    let shard = agent.context_registry.of(Context(context as CUcontext));
    let number = shard
        .and_then(|shard| shard.number.get().copied())
        .unwrap_or(0);
    for kernel in version
        .prepared
        .kernels
        .iter()
        .filter(|k| !k.programs.is_empty())
    {
        let entry = enlist(agent, image, &kernel.mangled, true);
        match entry.place(context, before) {
            None => {
                let place = Place::new(context, (number, 0), before, (None, Choices::default()));
                place.await_programs(version.generation());
                entry.add(place);
            }
            // A replacement that was refused left it.
            Some(place) if place.has_waited() => place.await_programs(version.generation()),
            Some(_) => {}
        }
        enter_known_handles(agent, image, entry);
    }
}

/// What is made of an image for a session's programs.
fn next_version(image: &Image, before: u64, session: &Arc<Session>) -> Version {
    let old = image.version(before);
    // Of each kernel, the programs that it has now, and whether it had the same.
    // A kernel may have fewer programs than want it.
    let in_code: HashMap<&str, &[usize]> = match &old {
        Some(old) => old.in_code().collect(),
        None => HashMap::new(),
    };
    let programs = |kernel: &KernelSummary| {
        let is = session.matching(&kernel.mangled);
        let same = old.as_ref().and_then(|old| {
            let was = old.session.matching(&kernel.mangled);
            let had = in_code.get(kernel.mangled.as_str());
            let had = had.map_or(&was[..], |programs| *programs);
            let ids = session.program_ids(&is);
            let had = old.session.program_ids(had);
            let same = old.session.program_ids(&was) == ids || !had.is_empty() && had == ids;
            same.then(|| session.numbers(&had)).flatten()
        });
        let (is, same) = match same {
            Some(had) => (had, true),
            None => (is, false),
        };
        (kernel.mangled.clone(), (is, same))
    };
    let programs: HashMap<String, (Vec<usize>, bool)> =
        image.info.kernels.iter().map(programs).collect();
    let unchanged = |mangled: &str| match programs.get(mangled) {
        Some((is, true)) => Some(is.clone()),
        _ => None,
    };
    let mut prepared = session.prepare_for(&image.info, &|mangled| match programs.get(mangled) {
        Some((is, false)) => is.clone(),
        _ => Vec::new(),
    });
    // What runs in its module by now is of the programs that it was loaded with.
    prepared.refuse_clones(ADVICE);
    if let Some(old) = &old {
        prepared.inherit(&old.prepared, unchanged);
    }
    let mut left_out = match &old {
        // What others have in a kernel is not to be lost because of a second tool.
        Some(old) => prepared.fall_back(&old.prepared, |mangled, before| {
            session.may_keep(mangled, &old.session.program_ids(before))
        }),
        None => Vec::new(),
    };
    let same = prepared.kernels.iter().map(|k| k.mangled.clone());
    let kept = |name: &String| left_out.iter().any(|(of, _)| of == name);
    let same = same.filter(|name| unchanged(name).is_some() || kept(name));
    let same = same.collect();
    // Nor are its own new programs.
    left_out.extend(session.without_clients_where_refused(&image.info, &mut prepared, ADVICE));
    Version {
        same,
        left_out,
        prepared,
        before,
        session: Arc::clone(session),
    }
}

/// Why a kernel has no programs.
fn why(method: &Method) -> String {
    method
        .why_not()
        .map_or_else(|| method.to_string(), str::to_owned)
}

/// Tells what becomes of kernels that get no variant: they run as they are from then on.
fn tell(agent: &Agent, image: &Image, version: &Version) {
    let summaries = Summaries::of(image);
    for (mangled, method) in &version.left_out {
        let mut kernels = version.prepared.kernels.iter();
        if let Some(kernel) = kernels.find(|k| k.mangled == *mangled) {
            tell_left_out(agent, &summaries, version, kernel, method);
            let name = kernel.demangled.clone();
            lock(&image.without).push((version.generation(), name, why(method)));
        }
    }
    for kernel in version.prepared.kernels.iter().filter(|k| !k.wanted) {
        let known = lock(&image.entries).contains_key(&kernel.mangled);
        if !known && kernel.programs.is_empty() {
            continue;
        }
        report(agent, &summaries, version, kernel, None);
        if !kernel.programs.is_empty() {
            let name = kernel.demangled.clone();
            lock(&image.without).push((version.generation(), name, why(&kernel.method)));
        }
    }
}

/// Makes the maps that a session brought in all contexts that there are.
///
/// # Errors
/// Why not.
pub(crate) fn make_maps(agent: &'static Agent, session: &Arc<Session>) -> Result<(), GrowthError> {
    for shard in agent.context_registry.all() {
        let made = agent.with_ours(&shard, |live| agent.prepare(&shard, live, session));
        made.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Puts a session's programs in force, unless `agreed` says no, or something has come up that they
/// are not made for and `patient` lets it. What was in force before.
pub(crate) fn put_in_force(
    agent: &Agent,
    session: &Arc<Session>,
    patient: bool,
    agreed: impl FnOnce() -> bool,
) -> Option<&'static Generation> {
    // Images enter with the programs in force while this is held.
    let by_handle = lock(&agent.images.by_handle);
    let before = agent.generations.now().number;
    let mut images = by_handle.values();
    if patient && !images.all(|image| image.is_ready(before, session)) || !agreed() {
        return None;
    }
    Some(agent.generations.switch(Arc::clone(session)))
}

/// After that: what was instrumented meanwhile with the old programs only, and what is no longer
/// needed of them.
pub(crate) fn catch_up(agent: &'static Agent, session: &Arc<Session>, before: u64) {
    let next = session.generation();
    for image in all(agent) {
        if !image.is_ready(before, session) {
            make_image_ready(agent, &image, before, session);
        }
        for entry in lock(&image.entries).values() {
            for told in [
                &entry.told_context,
                &entry.told_failed,
                &entry.told_residency,
                &entry.told_alone,
            ] {
                told.store(false, Ordering::Relaxed);
            }
        }
        lock(&image.versions).retain(|version| version.generation() >= next);
        lock(&image.instrumented_in).retain(|(_, generation)| *generation >= next);
        lock(&image.without).retain(|(generation, ..)| *generation >= next);
    }
    // Libraries in which nobody wanted a kernel may be in contexts that come.
    agent.images.loads.fetch_add(1, Ordering::Relaxed);
}

/// Kernels that programs of a generation want and that run without, and why, each once.
pub(crate) fn without(agent: &Agent, generation: u64) -> Vec<(String, String)> {
    let mut all_without: Vec<(String, String)> = Vec::new();
    for image in all(agent) {
        for (of, name, reason) in lock(&image.without).iter() {
            let told = all_without.iter().any(|(known, _)| known == name);
            if *of == generation && !told {
                all_without.push((name.clone(), reason.clone()));
            }
        }
    }
    all_without.sort();
    all_without
}

/// Why kernels of which there is only machine code would lose their programs by a replacement,
/// though nothing is wrong with them. Images of which some had none before for such a reason do not
/// count.
pub(crate) fn unmade(agent: &Agent, generation: u64) -> Option<String> {
    let now = agent.generations.now().number;
    let loaded = all(agent).into_iter();
    let mut loaded = loaded.filter(|image| image.standing.is_loaded());
    loaded.find_map(|image| {
        let lacked = image
            .version(now)
            .is_some_and(|v| v.prepared.unmade().is_some());
        let version = image.version(generation).filter(|_| !lacked)?;
        version.prepared.unmade().map(str::to_owned)
    })
}

/// Images were loaded that are not known any more, because no program wanted a kernel of them and
/// there were too many.
pub(crate) fn forgot_images(agent: &Agent) -> bool {
    agent.images.too_many.load(Ordering::Relaxed)
}

/// Takes back what was made for programs that did not come into force.
pub(crate) fn take_back(agent: &'static Agent, generation: u64) {
    let now = agent.generations.now().number;
    let mut unneeded = Vec::new();
    for image in all(agent) {
        for entry in lock(&image.entries).values() {
            // Kernels that these programs alone wanted count as uninstrumented no more.
            let awaiting = entry.places().filter(|place| place.awaits(generation));
            awaiting.for_each(Place::give_up_waiting);
            let taken: Vec<&'static Place> = entry
                .places()
                .filter(|place| place.generation == generation)
                .collect();
            let contexts: Vec<usize> = taken.iter().filter_map(|place| place.context()).collect();
            unneeded.extend(entry.part_with(generation));
            // What was shared with one in force is voided here alone.
            taken.iter().for_each(|place| place.void());
            // Graphs find what goes on by the place that was registered last.
            for context in contexts {
                if let Some(kept) = entry.place(context, now) {
                    agent.graphs.know(entry, kept);
                }
            }
        }
        lock(&image.versions).retain(|version| version.generation() != generation);
        lock(&image.instrumented_in).retain(|(_, of)| *of != generation);
        lock(&image.without).retain(|(of, ..)| *of != generation);
    }
    unload_all(agent, unneeded);
    // The next attempt has the same number, and tells of the same kernels.
    lock(&agent.images.reported).retain(|(.., of)| *of != generation);
    // No code has addresses of maps that came for them any more.
    agent.shed();
}

/// Unloads what of a generation that is in force no more was never launched, and is in no graph.
/// The driver does not tell when a kernel has ended, and an unload that waited for one could stand
/// in the way of launches: so what was launched stays until its image goes, or its context. No
/// launch of that generation is under way.
pub(crate) fn retire(agent: &'static Agent, generation: u64) {
    let mut unneeded = Vec::new();
    for image in all(agent) {
        let entries = lock(&image.entries);
        unneeded.extend(entries.values().flat_map(|e| e.part_with(generation)));
    }
    unload_all(agent, unneeded);
}

/// Variants that are there because they were launched once, and that no launch runs any more.
pub(crate) fn n_kept(agent: &Agent) -> usize {
    let now = agent.generations.now().number;
    // Kernels whose programs stay the same have one variant in many generations.
    let of_entry = |entry: &&'static crate::kernels::entry::Entry| {
        let (mut in_force, mut kept) = (HashSet::new(), HashSet::new());
        for place in entry.places().filter(|place| place.context().is_some()) {
            let variants = match place.generation == now {
                true => &mut in_force,
                false => &mut kept,
            };
            variants.extend(place.variant.as_ref().map(Arc::as_ptr));
        }
        kept.difference(&in_force).count()
    };
    let of_image = |image: &Arc<Image>| lock(&image.entries).values().map(of_entry).sum::<usize>();
    all(agent).iter().map(of_image).sum()
}

/// Unloads variants that nobody launches, in the contexts where they are. The driver may take its
/// time: the caller holds no lock that a launch, or a context that ends, waits for.
fn unload_all(agent: &'static Agent, variants: Vec<(usize, Arc<LoadedVariant>)>) {
    let mut by_context: BTreeMap<usize, Vec<Arc<LoadedVariant>>> = BTreeMap::new();
    for (context, variant) in variants {
        if variant.has_own_module() {
            by_context.entry(context).or_default().push(variant);
        }
    }
    for (context, variants) in by_context {
        let handle = Context(context as CUcontext);
        let Some(shard) = agent.context_registry.of(handle) else {
            continue;
        };
        for some in variants.chunks(IN_A_SECTION) {
            // They go with their context if that ends first, and it may between two exclusive
            // sections.
            let unloaded = agent.with_ours(&shard, |_| {
                for variant in some {
                    agent.graphs.forget(variant.function.0);
                }
                unload_together(&agent.driver, some)
            });
            if unloaded != Some(true) {
                break;
            }
        }
    }
}

/// So many variants are unloaded in one exclusive section, as each holds launches up: an unload
/// takes some tens of microseconds.
pub(crate) const IN_A_SECTION: usize = 16;

/// Unloads them in the current context, in one exclusive section. False where there was none, which
/// goes on for as long as kernels run: what is not unloaded costs memory until the context ends.
pub(crate) fn unload_together(driver: &Driver, variants: &[Arc<LoadedVariant>]) -> bool {
    let unload = || {
        for variant in variants {
            let _ = variant.unload(driver);
        }
    };
    driver.while_nothing_runs("cuModuleUnload", unload).is_ok()
}
