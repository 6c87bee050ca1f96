//! The images that are loaded, and what is known of each.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use warpbpf_driver::JitOptions;
use warpbpf_session::{ImageInfo, Session, Standing};
use warpbpf_wire::Method;

use crate::kernels::entry::Entry;
use crate::sources::version::Version;
use crate::sys::lock::lock;

/// Bytes of text and of machine code that are kept of images in which no program wants a kernel:
/// one may later. A framework has thousands of images.
pub(crate) const MOST_UNWANTED: usize = 64 << 20;

/// A module or a library, by its driver handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Handle {
    Module(usize),
    Library(usize),
}

/// A loaded image with kernels that programs want, or may want later.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) handle: Handle,
    pub(crate) info: ImageInfo,
    /// What was made of it for the programs in force, and for those that come; the newest is the
    /// last.
    pub(crate) versions: Mutex<Vec<Arc<Version>>>,
    /// What the application asked the compiler for.
    pub(crate) jit: JitOptions,
    /// The machine code that was chosen from it is for this compute capability.
    pub(crate) capability: (u32, u32),
    /// The context that a module was loaded in; a library is of none.
    pub(crate) home: Option<usize>,
    /// Contexts in which it is instrumented, or it is known that it cannot be, each with the
    /// generation of the programs; set by the thread that sees to it.
    pub(crate) instrumented_in: Mutex<HashSet<(usize, u64)>>,
    /// It was instrumented in some context, which may have ended since.
    pub(crate) was_instrumented: AtomicBool,
    /// It is among those that may have to be instrumented in a context that comes.
    pub(crate) pends: AtomicBool,
    /// Whether it is loaded, or is being unloaded.
    pub(crate) standing: Standing,
    pub(crate) entries: Mutex<HashMap<String, &'static Entry>>,
    /// Kernels that programs want and that run without, with the reason and the programs'
    /// generation.
    pub(crate) without: Mutex<Vec<(u64, String, String)>>,
    /// Bytes that it takes of [`MOST_UNWANTED`].
    pub(crate) bytes: usize,
    /// The text that the driver was given, where the application promised to keep its own.
    pub(crate) _text: Option<CString>,
}

impl Image {
    /// What was made of it for a generation.
    pub(crate) fn version(&self, generation: u64) -> Option<Arc<Version>> {
        let versions = lock(&self.versions);
        let found = versions.iter().find(|v| v.generation() == generation);
        found.cloned()
    }

    /// This thread is the one that instruments it in this context.
    pub(crate) fn claim(&self, context: usize, generation: u64) -> bool {
        self.was_instrumented.store(true, Ordering::Relaxed);
        lock(&self.instrumented_in).insert((context, generation))
    }

    /// It is counted as one that may still have to be instrumented in some context.
    pub(crate) fn waits(&self) -> bool {
        let instrumented = |home: &usize| {
            lock(&self.instrumented_in)
                .iter()
                .any(|(there, _)| there == home)
        };
        self.pends.load(Ordering::Relaxed) && !self.home.as_ref().is_some_and(instrumented)
    }

    /// Nothing is to be done for it in this context.
    pub(crate) fn is_instrumented(&self, context: usize, generation: u64) -> bool {
        !self.standing.is_loaded()
            || self.home.is_some_and(|home| home != context)
            || lock(&self.instrumented_in).contains(&(context, generation))
            || self
                .version(generation)
                .is_none_or(|v| v.wants_nothing() && !v.watches_host() && !self.has_entries())
    }

    /// Some program wants a kernel of it, or did.
    pub(crate) fn has_entries(&self) -> bool {
        !lock(&self.entries).is_empty()
    }

    /// Contexts in which it has the programs of one generation and lacks those of another.
    pub(crate) fn lacks(&self, before: u64, next: u64) -> Vec<usize> {
        let instrumented = lock(&self.instrumented_in);
        let had = instrumented
            .iter()
            .filter(|(_, generation)| *generation == before);
        let lacks = had.filter(|(context, _)| !instrumented.contains(&(*context, next)));
        lacks.map(|(context, _)| *context).collect()
    }

    /// Nothing is to be done for it before a session's programs come into force.
    pub(crate) fn is_ready(&self, before: u64, session: &Session) -> bool {
        let next = session.generation();
        !self.standing.is_loaded()
            || (self.version(next).is_some() && self.lacks(before, next).is_empty())
    }
}

/// The images that are loaded now.
#[derive(Debug, Default)]
pub(crate) struct Images {
    pub(crate) by_handle: Mutex<HashMap<Handle, Arc<Image>>>,
    /// The contexts that modules of libraries are in.
    pub(crate) aliases: Mutex<HashMap<usize, usize>>,
    /// How many were loaded so far.
    pub(crate) loads: AtomicU64,
    /// Bytes that are kept of images in which nobody wants a kernel.
    pub(crate) unwanted: AtomicUsize,
    /// An image was not kept, as there were too many.
    pub(crate) too_many: AtomicBool,
    pub(crate) reported: Mutex<HashSet<Key>>,
    /// Numbers of sites whose names were sent.
    pub(crate) named: Mutex<Named>,
}

impl Images {
    /// A library's module was in this context, and is known there no longer.
    pub(crate) fn is_alias_in(&self, handle: Handle, context: usize) -> bool {
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
    pub(crate) fn keeps(&self, info: &ImageInfo) -> Option<usize> {
        let ptx = info.ptx.as_ref().map(String::len);
        let machine_code = info.machine_code.as_ref().map(|code| code.len());
        self.keeps_bytes(ptx.or(machine_code)?)
    }

    /// So many bytes that nobody uses are kept.
    pub(crate) fn keeps_bytes(&self, bytes: usize) -> Option<usize> {
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

    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<Image>> {
        lock(&self.by_handle).get(&handle).cloned()
    }
}

/// What tells reports apart: name, source, method, whose they are, and the programs' generation.
pub(crate) type Key = (String, String, Method, u32, u64);

/// What was sent of sites.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Up to this number.
    pub(crate) sites: usize,
    /// Bytes of their names.
    pub(crate) bytes: usize,
}
