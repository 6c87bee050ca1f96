//! Images: read when the application loads them, instrumented when they have a context, forgotten when they go.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpbpf_driver::sys::{self, CUcontext, CUfunction, CUlibrary};
use warpbpf_driver::{Context, JitOptions};
use warpbpf_hook::maps;
use warpbpf_session::{ImageInfo, Prepared, Session, Standing, inspect_compiled, machine_code};
use warpbpf_wire::NoteLevel;

use crate::agent::{Agent, Mode};
use crate::context_registry::{ContextState, Shard};
use crate::entry::{self, Entry};
use crate::jit_outputs::JitOutput;
use crate::lock::lock;
use crate::{artefacts, observe, vendor_check};

mod instrument;
mod load;
mod replace_images;
mod report;
mod version;

pub(crate) use instrument::place_at_launch;
use instrument::{enlist, instrument_here};
pub(crate) use load::load;
pub(crate) use replace_images::{
    IN_A_SECTION, catch_up, forgot_images, make_maps, make_ready, n_kept, put_in_force, retire,
    take_back, unload_together, unmade, without,
};
#[cfg(test)]
pub(crate) use report::has_reported;
use report::{Summaries, report, send_site_names};
pub(crate) use report::{own_handle, send_kernel};
use version::Version;

/// Bytes of text and of machine code that are kept of images in which no program wants a kernel: one may later. A framework has thousands of images.
const MOST_UNWANTED: usize = 64 << 20;

/// A module or a library, by its driver handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    Module(usize),
    Library(usize),
}

/// A loaded image with kernels that programs want, or may want later.
#[derive(Debug)]
pub(crate) struct Image {
    handle: Handle,
    info: ImageInfo,
    /// What was made of it for the programs in force, and for those that come; the newest is the last.
    versions: Mutex<Vec<Arc<Version>>>,
    /// What the application asked the compiler for.
    jit: JitOptions,
    /// The machine code that was chosen from it is for this compute capability.
    capability: (u32, u32),
    /// The context that a module was loaded in; a library is of none.
    home: Option<usize>,
    /// Contexts in which it is instrumented, or it is known that it cannot be, each with the generation of the programs; set
    /// by the thread that sees to it.
    instrumented_in: Mutex<HashSet<(usize, u64)>>,
    /// It was instrumented in some context, which may have ended since.
    was_instrumented: AtomicBool,
    /// It is among those that may have to be instrumented in a context that comes.
    pends: AtomicBool,
    /// Whether it is loaded, or is being unloaded.
    standing: Standing,
    entries: Mutex<HashMap<String, &'static Entry>>,
    /// Kernels that programs want and that run without, with the reason and the programs' generation.
    without: Mutex<Vec<(u64, String, String)>>,
    /// Bytes that it takes of [`MOST_UNWANTED`].
    bytes: usize,
    /// The text that the driver was given, where the application promised to keep its own.
    _text: Option<CString>,
}

impl Image {
    /// What was made of it for a generation.
    fn version(&self, generation: u64) -> Option<Arc<Version>> {
        let versions = lock(&self.versions);
        let found = versions.iter().find(|v| v.generation() == generation);
        found.cloned()
    }

    /// This thread is the one that instruments it in this context.
    fn claim(&self, context: usize, generation: u64) -> bool {
        self.was_instrumented.store(true, Ordering::Relaxed);
        lock(&self.instrumented_in).insert((context, generation))
    }

    /// It is counted as one that may still have to be instrumented in some context.
    fn waits(&self) -> bool {
        let instrumented = |home: &usize| {
            lock(&self.instrumented_in)
                .iter()
                .any(|(there, _)| there == home)
        };
        self.pends.load(Ordering::Relaxed) && !self.home.as_ref().is_some_and(instrumented)
    }

    /// Nothing is to be done for it in this context.
    fn is_instrumented(&self, context: usize, generation: u64) -> bool {
        !self.standing.is_loaded()
            || self.home.is_some_and(|home| home != context)
            || lock(&self.instrumented_in).contains(&(context, generation))
            || self
                .version(generation)
                .is_none_or(|v| v.wants_nothing() && !v.watches_host() && !self.has_entries())
    }

    /// Some program wants a kernel of it, or did.
    fn has_entries(&self) -> bool {
        !lock(&self.entries).is_empty()
    }
}

/// The images that are loaded now.
#[derive(Debug, Default)]
pub(crate) struct Images {
    by_handle: Mutex<HashMap<Handle, Arc<Image>>>,
    /// The contexts that modules of libraries are in.
    aliases: Mutex<HashMap<usize, usize>>,
    /// How many were loaded so far.
    loads: AtomicU64,
    /// Bytes that are kept of images in which nobody wants a kernel.
    unwanted: AtomicUsize,
    /// An image was not kept, as there were too many.
    too_many: AtomicBool,
    reported: Mutex<HashSet<report::Key>>,
    /// Numbers of sites whose names were sent.
    named: Mutex<report::Named>,
}

impl Images {
    /// A library's module was in this context, and is known there no longer.
    fn is_alias_in(&self, handle: Handle, context: usize) -> bool {
        let Handle::Module(module) = handle else {
            return false;
        };
        let mut aliases = lock(&self.aliases);
        let there = aliases.get(&module) == Some(&context);
        if there {
            aliases.remove(&module);
        }
        there
    }

    /// An image is known.
    pub(crate) fn has(&self, handle: Handle) -> bool {
        lock(&self.by_handle).contains_key(&handle)
    }

    /// An image in which nobody wants a kernel is kept; its bytes.
    fn keeps(&self, info: &ImageInfo) -> Option<usize> {
        let ptx = info.ptx.as_ref().map(String::len);
        let machine_code = info.machine_code.as_ref().map(|code| code.len());
        self.keeps_bytes(ptx.or(machine_code)?)
    }

    /// So many bytes that nobody uses are kept.
    fn keeps_bytes(&self, bytes: usize) -> Option<usize> {
        let all = self.unwanted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all <= MOST_UNWANTED {
            return Some(bytes);
        }
        self.unwanted.fetch_sub(bytes, Ordering::Relaxed);
        self.too_many.store(true, Ordering::Relaxed);
        None
    }

    /// No image is known any more.
    pub(crate) fn clear(&self) {
        lock(&self.by_handle).clear();
    }

    fn get(&self, handle: Handle) -> Option<Arc<Image>> {
        lock(&self.by_handle).get(&handle).cloned()
    }
}

/// An image about to be loaded.
pub(crate) struct Incoming {
    session: Arc<Session>,
    capability: (u32, u32),
    info: ImageInfo,
    pub(crate) prepared: Prepared,
    pub(crate) text: Option<CString>,
    /// It was loaded before we came, and is launched without probes for a while: that is no news.
    pub(crate) late: bool,
}

/// Reads an image. `None` when the load is none of our business.
fn read(
    agent: &'static Agent,
    bytes: Option<&[u8]>,
    output: Option<&JitOutput>,
) -> Option<Incoming> {
    let mode = agent.mode();
    let capability = agent.device()?.capability;
    let session = match mode {
        Mode::PassThrough => return None,
        Mode::Observe => None,
        Mode::Attached(_) => agent.generations.now().session.get(),
    };
    let Some(bytes) = bytes else {
        agent.note(
            NoteLevel::Warning,
            "an image with a damaged header was loaded; its kernels run without probes".into(),
        );
        return None;
    };
    warpbpf_faults::bug("agent/read-panics");
    // Half an image cannot be read.
    let cut = usize::from(warpbpf_faults::strikes("agent/image"));
    let compiled_from = output.map(JitOutput::compiled_from);
    let read = inspect_compiled(&bytes[..bytes.len() >> cut], capability, compiled_from);
    let info = match read {
        Ok(info) => info,
        Err(error) => {
            agent.note(
                NoteLevel::Warning,
                format!("an image was loaded that cannot be read: {error}"),
            );
            return None;
        }
    };
    let Some(session) = session else {
        observe::report(agent, &with_machine_code(agent, bytes, info));
        return None;
    };
    let info = artefacts::with_text(bytes, info, capability, session);
    Some(prepare(
        agent,
        session,
        with_vendor_check(agent, session, bytes, info),
    ))
}

/// Notes what machine code an image is and whose, where that may get probes.
fn with_vendor_check(agent: &Agent, session: &Session, bytes: &[u8], info: ImageInfo) -> ImageInfo {
    if !session.splices() {
        return info;
    }
    let mut info = with_machine_code(agent, bytes, info);
    if session.sanitizes() {
        // It does not read it, and Compute Sanitizer is NVIDIA's.
        info.unread = info.untouchable.take();
    }
    info
}

/// The same where nothing else is to be had.
fn with_machine_code(agent: &Agent, bytes: &[u8], mut info: ImageInfo) -> ImageInfo {
    if info.ptx.is_none() {
        let capability = agent.device().map_or((0, 0), |device| device.capability);
        info.machine_code = machine_code(bytes, capability);
        let maps = maps::own().unwrap_or_default();
        info.untouchable = vendor_check::untouchable(bytes.as_ptr() as usize, &maps, &info);
    }
    info
}

/// Makes the texts for an image, which is for the current device.
pub(crate) fn prepare(agent: &Agent, session: &Arc<Session>, info: ImageInfo) -> Incoming {
    let capability = agent.device().map_or((0, 0), |device| device.capability);
    let copies_tensors =
        |ptx: &String| ptx.contains(".bulk.tensor.") || ptx.contains(".prefetch.tensor.");
    if info.ptx.as_ref().is_some_and(copies_tensors)
        && !session.learn_tensor_maps(&agent.driver, agent.some_live_context())
    {
        agent.note(
            NoteLevel::Warning,
            "the driver's tensor maps are not understood; tensor copies are said to move 0 bytes"
                .into(),
        );
    }
    let mut prepared = session.prepare(&info);
    let mut info = info;
    if info.untouchable.is_some() {
        // It may be large, and nobody will want it.
        info.machine_code = None;
    }
    send_site_names(agent, session);
    // A library with our text in place of machine code for each kind of device would run on one kind only.
    let alike = agent.devices().iter().all(|d| d.capability == capability);
    let text = prepared.rewritten.take().filter(|_| alike);
    let text = text.and_then(|text| {
        let text = CString::new(text);
        if text.is_err() {
            agent.note(
                NoteLevel::Warning,
                "an image's PTX holds a NUL byte; it is loaded unchanged".into(),
            );
        }
        text.ok()
    });
    Incoming {
        session: Arc::clone(session),
        capability,
        info,
        prepared,
        text,
        late: false,
    }
}

/// An image is loaded: its kernels are reported, and instrumented if they are wanted.
pub(crate) fn loaded(agent: &'static Agent, incoming: Incoming, jit: JitOptions, handle: Handle) {
    let Incoming {
        mut session,
        capability,
        mut info,
        mut prepared,
        text,
        late,
    } = incoming;
    warpbpf_faults::bug("agent/loaded-panics");
    // Programs are replaced only while nobody holds this: what is entered is of those in force.
    let mut by_handle = lock(&agent.images.by_handle);
    while let Some(now) = agent.generations.now().session.get()
        && now.generation() != session.generation()
    {
        drop(by_handle);
        session = Arc::clone(now);
        prepared = session.prepare(&info);
        prepared.refuse_clones("programs were replaced while it was loaded");
        by_handle = lock(&agent.images.by_handle);
    }
    let none = !prepared.kernels.iter().any(|k| !k.programs.is_empty());
    let home = match handle {
        Handle::Module(_) => agent.driver.current().map(|c| c.0 as usize),
        Handle::Library(_) => None,
    };
    let version = Version {
        session,
        prepared,
        same: HashSet::new(),
        before: 0,
        left_out: Vec::new(),
    };
    let unused = none && text.is_none() && !version.watches_host();
    let bytes = match &info.machine_code {
        _ if unused => agent.images.keeps(&info),
        // No program stands in it, but one may later.
        Some(code) if !version.prepared.uses_machine_code() => {
            let kept = agent.images.keeps_bytes(code.len());
            if kept.is_none() {
                info.machine_code = None;
            }
            kept.or(Some(0))
        }
        _ => Some(0),
    };
    let version = Arc::new(version);
    let image = Arc::new(Image {
        handle,
        info,
        versions: Mutex::new(vec![Arc::clone(&version)]),
        jit,
        capability,
        home,
        instrumented_in: Mutex::default(),
        was_instrumented: AtomicBool::new(false),
        pends: AtomicBool::new(!unused),
        standing: Standing::default(),
        entries: Mutex::default(),
        without: Mutex::default(),
        bytes: bytes.unwrap_or(0),
        _text: text,
    });
    if bytes.is_some() {
        by_handle.insert(handle, Arc::clone(&image));
    }
    drop(by_handle);
    let summaries = Summaries::of(&image);
    for kernel in version.prepared.kernels.iter().filter(|k| !k.wanted) {
        // A kernel that programs want and that was refused falls back at every launch.
        report(agent, &summaries, &version, kernel, None);
    }
    if unused {
        return;
    }
    agent.count_pending(1);
    agent.images.loads.fetch_add(1, Ordering::Relaxed);
    // Launches run the original until it is instrumented, and are counted as uninstrumented.
    for kernel in version.prepared.kernels.iter() {
        if !kernel.programs.is_empty() {
            enlist(agent, &image, &kernel.mangled, late);
        }
    }
    instrument_here(agent, &image);
    // A driver that does not load lazily has put the library into all contexts now. So is what stands in for it, since later,
    // at a launch, a load could wait for kernels which wait for this launch.
    if image.home.is_none() && !agent.loads_lazily() {
        for context in agent.known_contexts() {
            agent
                .driver
                .within(context, || instrument_here(agent, &image));
        }
    }
}

/// Enters the handles that the application will launch by, before it asks for them: it may get them in ways that are not
/// hooked.
fn enter_known_handles(agent: &Agent, image: &Image, entry: &'static Entry) {
    let Ok(name) = CString::new(entry.mangled.as_str()) else {
        return;
    };
    let Handle::Library(library) = image.handle else {
        return;
    };
    let api = &agent.driver.api;
    let (mut kernel, mut function) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live library, a NUL-terminated name and writable locals.
    image.standing.while_loaded(|| unsafe {
        let library = library as CUlibrary;
        if (api.library_kernel)(&mut kernel, library, name.as_ptr()) == sys::SUCCESS {
            enter(agent, entry, kernel, None);
            if (api.kernel_function)(&mut function, kernel) == sys::SUCCESS {
                enter_here(agent, entry, function);
            }
        }
    });
}

/// Has launches by this handle, which is of the current context, found.
pub(crate) fn enter_here(agent: &Agent, entry: &'static Entry, handle: CUfunction) {
    let context = agent.driver.current().map(|c| c.0 as usize);
    enter(agent, entry, handle, context);
}

fn enter(agent: &Agent, entry: &'static Entry, handle: CUfunction, context: Option<usize>) {
    let value = handle as usize;
    entry.note(entry::Handle { value, context });
    agent.table.insert(value, entry);
}

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

/// Reports wanted kernels that never got a context.
pub(crate) fn report_never_instrumented(agent: &Agent) {
    let images: Vec<Arc<Image>> = lock(&agent.images.by_handle).values().cloned().collect();
    let instrumented = |image: &&Arc<Image>| image.was_instrumented.load(Ordering::Relaxed);
    for image in images.iter().filter(|image| !instrumented(image)) {
        let summaries = Summaries::of(image);
        let Some(version) = lock(&image.versions).last().cloned() else {
            continue;
        };
        for kernel in version.prepared.kernels.iter().filter(|k| k.wanted) {
            let why = Err("its image was never used in a context that was alive".to_string());
            report(agent, &summaries, &version, kernel, Some(&why));
        }
    }
}

/// An image that is about to be unloaded: nothing of it is launched by us any more.
pub(crate) struct Leaving {
    image: Arc<Image>,
    /// Handles of the image itself.
    names: Vec<Handle>,
    /// Handles of its kernels.
    kernels: Vec<(entry::Handle, &'static Entry)>,
}

/// Takes an image out, before the driver forgets it: another thread may get the same handles at once.
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
    /// The driver has unloaded it. Our code for it goes too: the application promised that none of it runs or will.
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

/// A context is gone, and all modules and functions in it. Libraries and their kernels are of no context: they go on in
/// others.
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

/// The driver gave out `function` for the kernel `name` of an image.
pub(crate) fn named(agent: &'static Agent, handle: Handle, function: CUfunction, name: &CStr) {
    let Some(image) = agent.images.get(handle) else {
        return;
    };
    instrument_here(agent, &image);
    let name = name.to_str().ok();
    let entry = name.and_then(|name| lock(&image.entries).get(name).copied());
    if let Some(entry) = entry {
        match handle {
            Handle::Library(_) => enter(agent, entry, function, None),
            Handle::Module(_) => enter_here(agent, entry, function),
        }
    }
}

/// The driver gave out the module that a library is in the current context.
pub(crate) fn alias(agent: &'static Agent, library: Handle, module: Handle) {
    if let Some(image) = agent.images.get(library) {
        instrument_here(agent, &image);
        lock(&agent.images.by_handle).insert(module, image);
        if let (Handle::Module(module), Some(context)) = (module, agent.driver.current()) {
            lock(&agent.images.aliases).insert(module, context.0 as usize);
        }
    }
}
