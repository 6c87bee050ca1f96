//! Contexts, and memory that was allocated in one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::stream::Stream;

/// A context. Those of one device share its memory, and all share one address space; what is per
/// context is what dies with it.
pub(crate) struct Context {
    pub handle: Handle,
    pub id: u64,
    /// Ordinal of its device.
    pub device: usize,
    pub primary: bool,
    pub flags: AtomicU32,
    /// The error of the first trap: from then on every call that needs the device returns it, as on
    /// a real GPU.
    pub sticky: AtomicU32,
    /// For the primary context: how often it is retained. For others 1.
    pub uses: AtomicU32,
    pub limits: Mutex<HashMap<u32, usize>>,
    pub cache_config: AtomicU32,
    /// What kernels printed and no synchronisation has brought to the program's stdout yet.
    pub printed: Mutex<Vec<u8>>,
    /// The NULL stream.
    pub null_stream: Arc<Stream>,
    /// Contexts whose memory its kernels may access.
    pub peers: Mutex<HashSet<Handle>>,
    /// Who loads or frees just now: nobody launches meanwhile.
    alone: Mutex<u32>,
    not_alone: Condvar,
}

/// Nobody launches in a context while this lives.
pub(crate) struct Alone<'c>(&'c Context);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        *lock(&self.0.alone) -= 1;
        self.0.not_alone.notify_all();
    }
}

impl Context {
    pub(crate) fn new(device: usize, primary: bool, uses: u32, flags: u32) -> Arc<Context> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let handle = new_handle();
        Arc::new(Context {
            handle,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            primary,
            flags: AtomicU32::new(flags),
            sticky: AtomicU32::new(0),
            uses: AtomicU32::new(uses),
            limits: Mutex::new(HashMap::new()),
            cache_config: AtomicU32::new(0),
            printed: Mutex::new(Vec::new()),
            null_stream: Stream::new(handle, 0, 0),
            peers: Mutex::default(),
            alone: Mutex::default(),
            not_alone: Condvar::new(),
        })
    }

    /// Lets nobody launch from now on.
    pub(crate) fn keep_out(&self) -> Alone<'_> {
        *lock(&self.alone) += 1;
        Alone(self)
    }

    /// A kernel or a graph is about to be launched.
    pub(crate) fn enter(&self) {
        let mut alone = lock(&self.alone);
        while *alone > 0 {
            let woken = self.not_alone.wait(alone);
            alone = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Brings what kernels printed to the program's own `stdout`, by C's buffer, so that the order
    /// among the host's and the device's lines is the one that a GPU gives.
    pub(crate) fn flush_printed(&self) {
        unsafe extern "C" {
            static stdout: *mut libc::FILE;
        }
        let text = std::mem::take(&mut *lock(&self.printed));
        if !text.is_empty() {
            // SAFETY: C's stdout is valid for the process's life; the buffer is.
            unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout) };
        }
    }

    pub(crate) fn check(&self) -> CuResult {
        match self.sticky.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(CuError(code)),
        }
    }
}

/// What kind of memory an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// In the device's arena.
    Device,
    /// Page-locked, allocated here.
    Host,
    /// Page-locked, the program's own.
    Registered,
    /// One address for both.
    Managed,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub base: u64,
    pub size: u64,
    pub kind: MemoryKind,
    pub context: Handle,
    /// Ordinal of its device; of memory of the host, of the device of its context.
    pub device: usize,
    pub flags: u32,
    pub id: u64,
}
