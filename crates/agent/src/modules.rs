//! Images: read when the application loads them, instrumented when they have a context, forgotten when they go.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_driver::sys::{self, CUcontext, CUfunction, CUlibrary, CUmodule, CUresult};
use warpbpf_driver::{Context, JitOptions, Library, Module};
use warpbpf_session::{ImageInfo, LoadedVariant, Prepared, Session, inspect};
use warpbpf_wire::NoteLevel;

use crate::agent::{Absent, Agent, Mode};
use crate::entry::{self, Entry, Place};
use crate::guard::Outcome;
use crate::lives::{LiveState, Shard};
use crate::observe;

mod report;

pub(crate) use report::send_kernel;
use report::{Summaries, report, send_site_names};

/// A module or a library, by its driver handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    Module(usize),
    Library(usize),
}

/// A loaded image with kernels that programs want.
#[derive(Debug)]
pub(crate) struct Image {
    handle: Handle,
    session: Arc<Session>,
    info: ImageInfo,
    prepared: Prepared,
    /// What the application asked the compiler for.
    jit: JitOptions,
    /// The machine code that was chosen from it is for this compute capability.
    capability: (u32, u32),
    /// The context that a module was loaded in; a library is of none.
    home: Option<usize>,
    /// Contexts in which it is instrumented, or it is known that it cannot be; set by the thread that sees to it.
    settled: Mutex<HashSet<usize>>,
    /// It was settled in some context, which may have ended since.
    was_settled: AtomicBool,
    /// It is being unloaded.
    leaves: AtomicBool,
    entries: Mutex<HashMap<String, &'static Entry>>,
    /// The text that the driver was given, where the application promised to keep its own.
    _text: Option<CString>,
}

impl Image {
    /// This thread is the one that settles it in this context.
    fn claim(&self, context: usize) -> bool {
        self.was_settled.store(true, Ordering::Relaxed);
        lock(&self.settled).insert(context)
    }

    /// It may still have to be settled in some context.
    fn waits(&self) -> bool {
        self.home
            .is_none_or(|home| !lock(&self.settled).contains(&home))
    }

    /// Nothing is to be done for it in this context.
    fn is_settled(&self, context: usize) -> bool {
        self.leaves.load(Ordering::Relaxed)
            || self.home.is_some_and(|home| home != context)
            || lock(&self.settled).contains(&context)
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
    reported: Mutex<HashSet<(String, String, String)>>,
    /// Numbers of sites whose names were sent.
    named: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
fn read(agent: &'static Agent, bytes: Option<&[u8]>) -> Option<Incoming> {
    let mode = agent.mode();
    let capability = agent.device()?.capability;
    let session = match mode {
        Mode::PassThrough => return None,
        Mode::Observe => None,
        Mode::Attached(session) => Some(session),
    };
    let Some(bytes) = bytes else {
        agent.note(
            NoteLevel::Warning,
            "an image with a damaged header was loaded; its kernels run without probes".into(),
        );
        return None;
    };
    let info = match inspect(bytes, capability) {
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
        observe::report(agent, &info);
        return None;
    };
    Some(prepare(agent, session, info))
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

/// Loads an image by `load`, which is given our text or null for the application's own image.
pub(crate) fn load(
    agent: &'static Agent,
    outcome: &Outcome,
    bytes: Option<&[u8]>,
    jit: JitOptions,
    mut load: impl FnMut(*const c_void) -> (CUresult, Handle),
) -> CUresult {
    let Some(mut incoming) = read(agent, bytes) else {
        return outcome.keep(load(ptr::null()).0);
    };
    if let Some(text) = &incoming.text {
        let (code, handle) = load(text.as_ptr().cast());
        if code == sys::SUCCESS {
            outcome.keep(code);
            loaded(agent, incoming, jit, handle);
            return code;
        }
        agent.note(
            NoteLevel::Warning,
            format!(
                "the driver refuses an image with instrumented kernels ({}); it is loaded unchanged",
                agent.driver.error_name(code)
            ),
        );
        incoming.text = None;
    }
    let (code, handle) = load(ptr::null());
    outcome.keep(code);
    if code == sys::SUCCESS {
        loaded(agent, incoming, jit, handle);
    }
    code
}

/// An image is loaded: its kernels are reported, and instrumented if they are wanted.
pub(crate) fn loaded(agent: &'static Agent, incoming: Incoming, jit: JitOptions, handle: Handle) {
    let Incoming {
        session,
        capability,
        info,
        prepared,
        text,
        late,
    } = incoming;
    let summaries = Summaries::of(&info);
    for kernel in prepared.kernels.iter().filter(|k| !k.wanted) {
        // A kernel that programs want and that was refused is missed at every launch.
        report(agent, &summaries, kernel, None);
    }
    // Programs on the CPU need the maps as soon as there may be any.
    let none = !prepared.kernels.iter().any(|k| !k.programs.is_empty());
    if none && text.is_none() && session.host_programs().is_empty() {
        return;
    }
    let home = match handle {
        Handle::Module(_) => agent.driver.current().map(|c| c.0 as usize),
        Handle::Library(_) => None,
    };
    let image = Arc::new(Image {
        handle,
        session,
        info,
        prepared,
        jit,
        capability,
        home,
        settled: Mutex::default(),
        was_settled: AtomicBool::new(false),
        leaves: AtomicBool::new(false),
        entries: Mutex::default(),
        _text: text,
    });
    lock(&agent.images.by_handle).insert(handle, Arc::clone(&image));
    agent.count_pending(1);
    agent.images.loads.fetch_add(1, Ordering::Relaxed);
    // Launches run the original until it is instrumented, and are counted as missed.
    for kernel in image.prepared.kernels.iter() {
        if !kernel.programs.is_empty() {
            let made = agent.roster.made(&kernel.mangled);
            let entry = Box::leak(Box::new(Entry::new(kernel.mangled.clone(), made)));
            entry.told_context.store(late, Ordering::Relaxed);
            agent.roster.add(entry);
            agent.graphs.expect();
            lock(&image.entries).insert(entry.mangled.clone(), entry);
            enter_known_handles(agent, &image, entry);
        }
    }
    settle(agent, &image);
    // A driver that does not load lazily has put the library into all contexts now. So is what stands in for it, since later,
    // at a launch, a load could wait for kernels which wait for this launch.
    if image.home.is_none() && !agent.loads_lazily() {
        for context in agent.known_contexts() {
            agent.driver.within(context, || settle(agent, &image));
        }
    }
}

/// The place of a kernel in a context where it is launched for the first time. A driver that loads lazily loads the kernel itself
/// now, and applications that cannot bear this ask it not to; any other has loaded it long ago, and nothing is done here.
pub(crate) fn place_at_launch(
    agent: &'static Agent,
    entry: &Entry,
    context: usize,
) -> Option<&'static Place> {
    if !agent.loads_lazily() {
        return None;
    }
    let handle = Context(context as CUcontext);
    agent.driver.within(handle, || settle_pending(agent));
    entry.place(context)
}

/// Instruments an image in the current context, if that was not done yet and the context is alive. Never waits for another
/// thread that does.
fn settle(agent: &'static Agent, image: &Image) {
    let Some(context) = agent.driver.current() else {
        return;
    };
    let here = context.0 as usize;
    // Off, nobody would fetch data: then no device side is made either.
    if image.is_settled(here) || !agent.is_on() {
        return;
    }
    let instrumented = agent.with_live(&image.session, |live| {
        if !image.claim(here) {
            return false;
        }
        let module = match image.handle {
            Handle::Module(module) => Ok(Module(module as CUmodule)),
            Handle::Library(library) => agent.driver.library_module(Library(library as CUlibrary)),
        };
        let capability = agent.device().map(|device| device.capability);
        let results = match module {
            Ok(_) if capability != Some(image.capability) => {
                let (major, minor) = image.capability;
                failures(image, &format!("it was read for a device of sm_{major}{minor}, and it is used on one of another kind, too"))
            }
            Ok(module) => live
                .instrument(&image.prepared, module, &image.jit)
                .into_iter()
                .collect(),
            Err(error) => failures(image, &error.to_string()),
        };
        register(agent, image, context, &results);
        true
    });
    let settled = match instrumented {
        Ok(settled) => settled,
        Err(Absent::Gone(why)) if image.claim(here) => {
            register(agent, image, context, &failures(image, why));
            true
        }
        Err(_) => false,
    };
    // A library may still be used in other contexts.
    if settled && image.home.is_some() {
        agent.count_pending(-1);
    }
}

type Results = HashMap<String, Result<Arc<LoadedVariant>, String>>;

fn failures(image: &Image, why: &str) -> Results {
    let wanted = image.prepared.kernels.iter().filter(|k| k.wanted);
    wanted
        .map(|k| (k.mangled.clone(), Err(why.to_string())))
        .collect()
}

/// Puts what came of an image's kernels in a context where launches find it.
fn register(agent: &'static Agent, image: &Image, context: Context, results: &Results) {
    let summaries = Summaries::of(&image.info);
    let shard = agent.lives.of(context);
    let number = shard.and_then(|shard| shard.number.get().copied());
    let sms = agent.device().map_or(0, |device| device.sms);
    for kernel in &image.prepared.kernels {
        let entry = lock(&image.entries).get(&kernel.mangled).copied();
        let Some(entry) = entry else { continue };
        let result = results.get(&kernel.mangled);
        if kernel.wanted {
            report(agent, &summaries, kernel, result);
        }
        let variant = result.and_then(|r| r.as_ref().ok()).cloned();
        let original = variant.as_ref().map(|variant| variant.original.0);
        let context = context.0 as usize;
        let place = entry.add(Place::new(context, number.unwrap_or(0), sms, variant));
        agent.graphs.know(entry, place);
        if let Some(original) = original {
            enter(agent, entry, original, Some(context));
        }
        enter_known_handles(agent, image, entry);
    }
}

/// Enters the handles that the application will launch by, before it asks for them: it may get them in ways that are not
/// hooked.
fn enter_known_handles(agent: &Agent, image: &Image, entry: &'static Entry) {
    let Ok(name) = CString::new(entry.mangled.as_str()) else {
        return;
    };
    if let Handle::Library(library) = image.handle {
        let api = &agent.driver.api;
        let (mut kernel, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live library, a NUL-terminated name and writable locals.
        unsafe {
            let library = library as CUlibrary;
            if (api.library_kernel)(&mut kernel, library, name.as_ptr()) == sys::SUCCESS {
                enter(agent, entry, kernel, None);
                if (api.kernel_function)(&mut function, kernel) == sys::SUCCESS {
                    enter_here(agent, entry, function);
                }
            }
        }
    }
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
pub(crate) fn settle_pending(agent: &'static Agent) {
    let Some(context) = agent.driver.current() else {
        return;
    };
    let loads = agent.images.loads.load(Ordering::Relaxed);
    let seen = |shard: &Shard| shard.seen.load(Ordering::Relaxed) == loads;
    if agent.lives.of(context).is_some_and(|shard| seen(&shard)) {
        return;
    }
    let waiting: Vec<Arc<Image>> = lock(&agent.images.by_handle)
        .values()
        .filter(|image| !image.is_settled(context.0 as usize))
        .cloned()
        .collect();
    for image in &waiting {
        settle(agent, image);
    }
    let settled = |image: &Arc<Image>| image.is_settled(context.0 as usize);
    if waiting.iter().all(settled)
        && let Some(shard) = agent.lives.of(context)
    {
        shard.seen.store(loads, Ordering::Relaxed);
    }
}

/// Reports wanted kernels that never got a context.
pub(crate) fn report_unsettled(agent: &Agent) {
    let images: Vec<Arc<Image>> = lock(&agent.images.by_handle).values().cloned().collect();
    let settled = |image: &&Arc<Image>| image.was_settled.load(Ordering::Relaxed);
    for image in images.iter().filter(|image| !settled(image)) {
        let summaries = Summaries::of(&image.info);
        for kernel in image.prepared.kernels.iter().filter(|k| k.wanted) {
            let why = Err("its image was never used in a context that was alive".to_string());
            report(agent, &summaries, kernel, Some(&why));
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
    image.leaves.store(true, Ordering::Relaxed);
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
        let entries: Vec<&'static Entry> = lock(&self.image.entries).values().copied().collect();
        agent.roster.retire(&entries);
        for place in entries.iter().flat_map(|entry| entry.places()) {
            let Some((context, variant)) = place.context().zip(place.variant.as_ref()) else {
                continue;
            };
            let context = Context(context as CUcontext);
            let Some(shard) = agent.lives.of(context) else {
                continue;
            };
            // It goes with its context if that ends first.
            let state = shard.read();
            if let LiveState::Here(_) = &*state {
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
        self.image.leaves.store(false, Ordering::Relaxed);
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
            let variant = entry.place(context).and_then(|p| p.variant.as_ref());
            if let Some(variant) = variant {
                agent.graphs.forget(variant.function.0);
            }
            for handle in entry.leave(context) {
                agent.table.remove(handle);
            }
        }
        lock(&image.settled).remove(&context);
        match (handle, image.home) {
            (_, Some(home)) if home == context => {
                dead.extend(lock(&image.entries).values().copied());
                if image.waits() {
                    agent.count_pending(-1);
                }
                false
            }
            // A library's module in the dead context.
            (Handle::Module(_), None) => !agent.images.is_alias_in(*handle, context),
            _ => true,
        }
    });
    drop(images);
    agent.graphs.context_gone(context);
    agent.roster.retire(&dead);
}

/// The driver gave out `function` for the kernel `name` of an image.
pub(crate) fn named(agent: &'static Agent, handle: Handle, function: CUfunction, name: &CStr) {
    let Some(image) = agent.images.get(handle) else {
        return;
    };
    settle(agent, &image);
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
        settle(agent, &image);
        lock(&agent.images.by_handle).insert(module, image);
        if let (Handle::Module(module), Some(context)) = (module, agent.driver.current()) {
            lock(&agent.images.aliases).insert(module, context.0 as usize);
        }
    }
}
