//! Images: read when the application loads them, instrumented when they have a context, forgotten when they go.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpbpf_driver::sys::{self, CUfunction, CUlibrary, CUmodule, CUresult};
use warpbpf_driver::{JitOptions, Library, Module};
use warpbpf_session::{
    ImageInfo, KernelSummary, LoadedVariant, Prepared, PreparedKernel, Session, inspect,
};
use warpbpf_wire::{Kernel, NoteLevel, Occupancy, Sites, ToTool};

use crate::agent::{Absent, Agent, LiveState, Mode};
use crate::guard::Outcome;
use crate::launch::{Entry, NO_CONTEXT};
use crate::observe;

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
    /// Set by the thread that instruments it.
    settled: AtomicBool,
    entries: Mutex<HashMap<String, &'static Entry>>,
    /// Those that counted launches until it was instrumented; a launch may still be looking at one.
    waited: Mutex<Vec<&'static Entry>>,
    /// The text that the driver was given, where the application promised to keep its own.
    _text: Option<CString>,
}

impl Image {
    /// It was loaded in another context than the maps live in.
    fn is_elsewhere(&self, entries: &HashMap<String, &'static Entry>) -> bool {
        entries
            .values()
            .any(|e| e.context.load(Ordering::Relaxed) == NO_CONTEXT)
    }
}

/// The images that are loaded now.
#[derive(Debug, Default)]
pub(crate) struct Images {
    by_handle: Mutex<HashMap<Handle, Arc<Image>>>,
    reported: Mutex<HashSet<(String, String, String)>>,
    /// Numbers of sites whose names were sent.
    named: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Images {
    fn get(&self, handle: Handle) -> Option<Arc<Image>> {
        lock(&self.by_handle).get(&handle).cloned()
    }
}

/// An image about to be loaded.
struct Incoming {
    session: Arc<Session>,
    info: ImageInfo,
    prepared: Prepared,
    text: Option<CString>,
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
    let copies_tensors =
        |ptx: &String| ptx.contains(".bulk.tensor.") || ptx.contains(".prefetch.tensor.");
    if info.ptx.as_ref().is_some_and(copies_tensors)
        && !session.learn_tensor_maps(&agent.driver, agent.live_context())
    {
        agent.note(
            NoteLevel::Warning,
            "the driver's tensor maps are not understood; tensor copies are said to move 0 bytes"
                .into(),
        );
    }
    let mut prepared = session.prepare(&info);
    send_site_names(agent, session);
    let text = prepared.rewritten.take().and_then(|text| {
        let text = CString::new(text);
        if text.is_err() {
            agent.note(
                NoteLevel::Warning,
                "an image's PTX holds a NUL byte; it is loaded unchanged".into(),
            );
        }
        text.ok()
    });
    Some(Incoming {
        session: Arc::clone(session),
        info,
        prepared,
        text,
    })
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
fn loaded(agent: &'static Agent, incoming: Incoming, jit: JitOptions, handle: Handle) {
    let Incoming {
        session,
        info,
        prepared,
        text,
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
    let image = Arc::new(Image {
        handle,
        session,
        info,
        prepared,
        jit,
        settled: AtomicBool::new(false),
        entries: Mutex::default(),
        waited: Mutex::default(),
        _text: text,
    });
    lock(&agent.images.by_handle).insert(handle, Arc::clone(&image));
    agent.count_pending(1);
    settle(agent, &image);
    if !image.settled.load(Ordering::Acquire) {
        wait(agent, &image);
    }
}

/// Launches of a library's kernels before it is instrumented run the original, and are counted as missed.
fn wait(agent: &Agent, image: &Image) {
    for kernel in image.prepared.kernels.iter().filter(|k| k.wanted) {
        let made = agent.roster.made(&kernel.mangled);
        let entry = Entry::new(kernel.mangled.clone(), None, NO_CONTEXT, made);
        add_entry(agent, image, Box::leak(Box::new(entry)));
    }
}

/// Has the launches of a kernel counted by this entry from now on.
fn add_entry(agent: &Agent, image: &Image, entry: &'static Entry) {
    agent.roster.add(entry);
    agent.graphs.expect();
    let waited = lock(&image.entries).insert(entry.mangled.clone(), entry);
    enter_known_handles(agent, image, entry);
    if let Some(waited) = waited {
        for handle in std::mem::take(&mut *lock(&waited.handles)) {
            enter(agent, entry, handle as CUfunction);
        }
        lock(&image.waited).push(waited);
    }
}

/// Instruments an image, if that was not done yet and its context is current. Never waits for another thread that does.
fn settle(agent: &'static Agent, image: &Image) {
    // Off, nobody would fetch data: then no device side is made either.
    if image.settled.load(Ordering::Acquire) || !agent.is_on() {
        return;
    }
    let instrumented = agent.with_live(&image.session, |live| {
        if image.settled.swap(true, Ordering::AcqRel) {
            return;
        }
        agent.count_pending(-1);
        let module = match image.handle {
            Handle::Module(module) => Ok(Module(module as CUmodule)),
            Handle::Library(library) => agent.driver.library_module(Library(library as CUlibrary)),
        };
        let results = match module {
            Ok(module) => live
                .instrument(&image.prepared, module, &image.jit)
                .into_iter()
                .collect(),
            Err(error) => failures(image, &error.to_string()),
        };
        register(agent, image, live.context().0 as usize, &results);
    });
    let why = match (instrumented, image.handle) {
        (Ok(()) | Err(Absent::NoContext), _) => return,
        // A library may still be used in the context of the maps; a module belongs to one context.
        (Err(Absent::Elsewhere), Handle::Library(_)) => return,
        (Err(Absent::Elsewhere), Handle::Module(_)) => {
            "it was loaded in another context than its maps live in"
        }
        (Err(Absent::Gone(why)), _) => why,
    };
    if !image.settled.swap(true, Ordering::AcqRel) {
        agent.count_pending(-1);
        register(agent, image, NO_CONTEXT, &failures(image, why));
    }
}

type Results = HashMap<String, Result<Arc<LoadedVariant>, String>>;

fn failures(image: &Image, why: &str) -> Results {
    let wanted = image.prepared.kernels.iter().filter(|k| k.wanted);
    wanted
        .map(|k| (k.mangled.clone(), Err(why.to_string())))
        .collect()
}

/// From now on the launches of an image's kernels are seen.
fn register(agent: &'static Agent, image: &Image, context: usize, results: &Results) {
    let summaries = Summaries::of(&image.info);
    for kernel in &image.prepared.kernels {
        if kernel.programs.is_empty() {
            continue;
        }
        let result = results.get(&kernel.mangled);
        if kernel.wanted {
            report(agent, &summaries, kernel, result);
        }
        let variant = result.and_then(|r| r.as_ref().ok()).cloned();
        let entry: &'static Entry = Box::leak(Box::new(Entry::new(
            kernel.mangled.clone(),
            variant,
            context,
            agent.roster.made(&kernel.mangled),
        )));
        add_entry(agent, image, entry);
    }
}

/// Enters the handles that the application will launch by, before it asks for them: it may get them in ways that are not
/// hooked.
fn enter_known_handles(agent: &Agent, image: &Image, entry: &'static Entry) {
    if let Some(variant) = entry.usable() {
        agent.graphs.know(variant.function.0, entry);
        enter(agent, entry, variant.original.0);
    }
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
                entry.kernel.store(kernel as usize, Ordering::Relaxed);
                enter(agent, entry, kernel);
                if (api.kernel_function)(&mut function, kernel) == sys::SUCCESS {
                    enter(agent, entry, function);
                }
            }
        }
    }
}

pub(crate) fn enter(agent: &Agent, entry: &'static Entry, handle: CUfunction) {
    let mut handles = lock(&entry.handles);
    if !handles.contains(&(handle as usize)) {
        handles.push(handle as usize);
    }
    agent.table.insert(handle as usize, entry);
}

/// Instruments what waits for the context that is current now.
pub(crate) fn settle_pending(agent: &'static Agent) {
    if let Err(Absent::Elsewhere) = agent.with_existing(|_| ()) {
        // Only libraries wait, and not for this context.
        return;
    }
    let waiting: Vec<Arc<Image>> = lock(&agent.images.by_handle)
        .values()
        .filter(|image| !image.settled.load(Ordering::Relaxed))
        .cloned()
        .collect();
    for image in waiting {
        settle(agent, &image);
    }
}

/// Reports wanted kernels that never got a context.
pub(crate) fn report_unsettled(agent: &Agent) {
    let images: Vec<Arc<Image>> = lock(&agent.images.by_handle).values().cloned().collect();
    for image in images.iter().filter(|i| !i.settled.load(Ordering::Relaxed)) {
        let summaries = Summaries::of(&image.info);
        for kernel in image.prepared.kernels.iter().filter(|k| k.wanted) {
            let why =
                Err("its image was never used in the context that its maps live in".to_string());
            report(agent, &summaries, kernel, Some(&why));
        }
    }
}

/// What an image says of its kernels, by name: an image may have thousands.
struct Summaries<'i>(HashMap<&'i str, &'i KernelSummary>);

impl Summaries<'_> {
    fn of(info: &ImageInfo) -> Summaries<'_> {
        Summaries(
            info.kernels
                .iter()
                .map(|k| (k.mangled.as_str(), k))
                .collect(),
        )
    }
}

fn report(
    agent: &Agent,
    summaries: &Summaries<'_>,
    kernel: &PreparedKernel,
    result: Option<&Result<Arc<LoadedVariant>, String>>,
) {
    let summary = summaries.0.get(kernel.mangled.as_str());
    let (way, variant) = match result {
        None => (kernel.way.clone(), None),
        Some(Ok(variant)) => (kernel.way.clone(), Some(variant)),
        Some(Err(reason)) => (format!("failed: {reason}"), None),
    };
    let change = variant.map(|v| v.resources);
    if let Some(warning) = change.and_then(|c| c.warning(&kernel.demangled)) {
        agent.note(NoteLevel::Warning, warning);
    }
    let registers_before = change
        .map(|c| c.before.registers)
        .or_else(|| summary.and_then(|s| s.registers));
    send_kernel(
        agent,
        Kernel {
            kernel_id: kernel.kernel_id.map(|id| id as u32),
            mangled: kernel.mangled.clone(),
            demangled: kernel.demangled.clone(),
            source: summary.map(|s| s.source.clone()).unwrap_or_default(),
            registers_before,
            registers_after: change.map(|c| c.after.registers),
            occupancy: change.map(|c| Occupancy {
                block_threads: c.block_threads,
                before: c.before.blocks_per_sm,
                after: c.after.blocks_per_sm,
            }),
            local_bytes: change.map(|c| (c.before.local, c.after.local)),
            shared_bytes: change.map(|c| (c.before.shared, c.after.shared)),
            compiler_warnings: variant.map_or_else(Vec::new, |v| v.compiler_warnings.clone()),
            sites: kernel.sites,
            left_out: kernel.left_out.clone(),
            placed: kernel.placed.clone(),
            way,
            instrumented: variant.is_some(),
            programs: kernel.programs.clone(),
        },
    );
}

/// Sends the names that the session gave to sites since the last time.
fn send_site_names(agent: &Agent, session: &Session) {
    let mut sent = lock(&agent.images.named);
    let names = session.site_names();
    // No site has the number 0.
    let first = (*sent).max(1);
    if names.len() > first {
        let sites = Sites {
            first: first as u32,
            names: names[first..].to_vec(),
        };
        agent.send(ToTool::Sites(sites), None);
        *sent = names.len();
    }
}

/// Sends a kernel's report, the same one once.
pub(crate) fn send_kernel(agent: &Agent, kernel: Kernel) {
    let key = (
        kernel.mangled.clone(),
        kernel.source.clone(),
        kernel.way.clone(),
    );
    if lock(&agent.images.reported).insert(key) {
        agent.send(ToTool::Kernel(kernel), None);
    }
}

/// An image that is about to be unloaded: nothing of it is launched by us any more.
pub(crate) struct Leaving {
    image: Arc<Image>,
    /// Handles of the image itself.
    names: Vec<Handle>,
    was_settled: bool,
    /// Handles of its kernels.
    kernels: Vec<(usize, &'static Entry)>,
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
    let was_settled = image.settled.swap(true, Ordering::AcqRel);
    if !was_settled {
        agent.count_pending(-1);
    }
    let mut kernels = Vec::new();
    for entry in lock(&image.entries).values() {
        let handles = std::mem::take(&mut *lock(&entry.handles));
        for handle in handles {
            agent.table.remove(handle);
            kernels.push((handle, *entry));
        }
    }
    Some(Leaving {
        image,
        names,
        was_settled,
        kernels,
    })
}

impl Leaving {
    /// The driver has unloaded it. Our code for it goes too: the application promised that none of it runs or will.
    pub(crate) fn gone(self, agent: &Agent) {
        let entries: Vec<&'static Entry> = lock(&self.image.entries).values().copied().collect();
        agent.roster.retire(&entries);
        agent
            .roster
            .retire(&std::mem::take(&mut *lock(&self.image.waited)));
        let live = agent.live.read().unwrap_or_else(PoisonError::into_inner);
        let LiveState::Here(live) = &*live else {
            // It went with its context.
            return;
        };
        agent.driver.within(live.context(), || {
            for variant in entries.iter().filter_map(|e| e.usable()) {
                agent.graphs.forget(variant.function.0);
                // What cannot be unloaded costs memory until the context ends.
                let _ = variant.unload(&agent.driver);
            }
        });
    }

    /// The driver kept it: everything is as it was.
    pub(crate) fn stays(self, agent: &Agent) {
        let mut images = lock(&agent.images.by_handle);
        for name in self.names {
            images.insert(name, Arc::clone(&self.image));
        }
        drop(images);
        if !self.was_settled {
            self.image.settled.store(false, Ordering::Release);
            agent.count_pending(1);
        }
        for (handle, entry) in self.kernels {
            enter(agent, entry, handle as CUfunction);
        }
    }
}

/// The context of the maps is gone, and all modules and functions in it. Libraries and their kernels are of no context:
/// their launches go on, and are counted as missed.
pub(crate) fn context_gone(agent: &Agent) {
    let mut images = lock(&agent.images.by_handle);
    let mut dead: Vec<&'static Entry> = Vec::new();
    let mut remaining: Vec<(usize, &'static Entry)> = Vec::new();
    images.retain(|handle, image| {
        let entries = lock(&image.entries);
        match (handle, image.handle) {
            (Handle::Library(_), _) => {
                for entry in entries.values() {
                    entry.context.store(NO_CONTEXT, Ordering::Relaxed);
                    lock(&entry.handles).clear();
                    remaining.push((entry.kernel.load(Ordering::Relaxed), *entry));
                }
                true
            }
            // A library's module in the dead context.
            (Handle::Module(_), Handle::Library(_)) => false,
            (Handle::Module(_), Handle::Module(_)) if image.is_elsewhere(&entries) => {
                for entry in entries.values() {
                    remaining.extend(lock(&entry.handles).iter().map(|h| (*h, *entry)));
                }
                true
            }
            (Handle::Module(_), Handle::Module(_)) => {
                for entry in entries.values() {
                    entry.context.store(NO_CONTEXT, Ordering::Relaxed);
                }
                dead.extend(entries.values().copied());
                false
            }
        }
    });
    drop(images);
    agent.roster.retire(&dead);
    // Not asked from the driver: perhaps no context is current here any more.
    for (handle, entry) in remaining.into_iter().filter(|(handle, _)| *handle != 0) {
        enter(agent, entry, handle as CUfunction);
    }
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
        if let Handle::Library(_) = handle {
            entry.kernel.store(function as usize, Ordering::Relaxed);
        }
        enter(agent, entry, function);
    }
}

/// The driver gave out the module that a library is in the current context.
pub(crate) fn alias(agent: &'static Agent, library: Handle, module: Handle) {
    if let Some(image) = agent.images.get(library) {
        settle(agent, &image);
        lock(&agent.images.by_handle).insert(module, image);
    }
}
