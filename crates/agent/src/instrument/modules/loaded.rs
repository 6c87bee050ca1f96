//! An image is loaded, and handles of it are given out.

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use warpbpf_driver::JitOptions;
use warpbpf_driver::sys::CUfunction;
use warpbpf_session::Standing;

use crate::instrument::modules::enter::{enter, enter_here};
use crate::instrument::modules::instrument::{enlist, instrument_here};
use crate::instrument::modules::read::Incoming;
use crate::instrument::modules::report::Summaries;
use crate::instrument::modules::report::report;
use crate::runtime::agent::Agent;
use crate::sources::images::{Handle, Image};
use crate::sources::version::Version;
use crate::sys::lock::lock;

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
    // A driver that does not load lazily has put the library into all contexts now. So is what
    // stands in for it, since later, at a launch, a load could wait for kernels which wait for this
    // launch.
    if image.home.is_none() && !agent.loads_lazily() {
        for context in agent.known_contexts() {
            agent
                .driver
                .within(context, || instrument_here(agent, &image));
        }
    }
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
