//! The process's soft GPUs and everything that a program made on them. This crate is a driver: it
//! is one of the few that hold global state, and this is the file where it stands.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use warpbpf_softgpu::{Gpu, MemError};

use crate::config;
use crate::driver::arrays::Array;
use crate::driver::capture::Capture;
use crate::driver::images::Object;
use crate::driver::linker::Link;
use crate::driver::module::{Function, KernelObject, Library, LoadedModule};
use crate::driver::objects::{Pool, UserObject};
use crate::error::{CuError, CuResult};
use crate::graph::{Exec, Graph};
use crate::per_thread::Stack;
use crate::stream::{Event, Stream};

/// Every handle is a number that looks like a pointer, is never null and never used twice: a stale
/// one is told from a live one, and nothing is ever dereferenced because a program says so.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x5c00_0000_0000);

/// A handle as it crosses the API (`CUcontext`, `CUmodule`, …).
pub type Handle = usize;

pub(crate) fn new_handle() -> Handle {
    NEXT_HANDLE.fetch_add(0x40, Ordering::Relaxed)
}

/// Poisoning says that a panic was caught at the boundary; the tables behind these locks are never
/// left half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Live objects of one kind.
pub(crate) struct Handles<T> {
    live: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Handles<T> {
    fn new() -> Handles<T> {
        Handles {
            live: RwLock::new(HashMap::new()),
        }
    }

    pub(crate) fn add(&self, handle: Handle, object: Arc<T>) {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, object);
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<T>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle)
            .cloned()
    }

    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.live
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, object| keep(object));
    }
}

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
    fn new(device: usize, primary: bool, uses: u32, flags: u32) -> Arc<Context> {
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

    /// As a driver does where it loads code or frees memory: waits for all that runs here, and lets
    /// nobody launch.
    pub(crate) fn alone(&self) -> Result<Alone<'_>, CuError> {
        let soft = soft()?;
        *lock(&self.alone) += 1;
        let alone = Alone(self);
        self.wait_for_all(soft);
        Ok(alone)
    }

    /// A kernel or a graph is about to be launched.
    pub(crate) fn enter(&self) {
        let mut alone = lock(&self.alone);
        while *alone > 0 {
            let woken = self.not_alone.wait(alone);
            alone = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_for_all(&self, soft: &Soft) {
        self.null_stream.synchronize();
        for stream in soft.streams.all() {
            if stream.context == self.handle {
                stream.synchronize();
            }
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

    /// Waits for all work of this context.
    pub(crate) fn synchronize(&self) -> CuResult {
        self.wait_for_all(soft()?);
        self.flush_printed();
        self.check()
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

/// A device.
pub(crate) struct Device {
    pub gpu: Gpu,
    pub primary: Arc<Context>,
}

/// Devices and tables.
pub(crate) struct Soft {
    /// By ordinal; there is at least one.
    pub devices: Vec<Device>,
    pub config: config::Config,
    pub contexts: Handles<Context>,
    pub modules: Handles<LoadedModule>,
    pub libraries: Handles<Library>,
    pub functions: Handles<Function>,
    pub kernels: Handles<KernelObject>,
    pub streams: Handles<Stream>,
    pub events: Handles<Event>,
    pub links: Handles<Link>,
    pub arrays: Handles<Array>,
    /// Texture and surface objects by their number.
    pub images: Handles<Object>,
    pub graphs: Handles<Graph>,
    /// The graph of each node.
    pub nodes: Handles<Graph>,
    pub execs: Handles<Exec>,
    pub user_objects: Handles<UserObject>,
    /// Those that programs made.
    pub pools: Handles<Pool>,
    /// Captures that have begun and not ended, and how many they are: looked at by every call, so
    /// without a lock.
    pub captures: Mutex<Vec<Arc<Capture>>>,
    pub n_captures: AtomicUsize,
    pub allocations: Mutex<BTreeMap<u64, Allocation>>,
    pub next_grid: AtomicU64,
    pub next_allocation: AtomicU64,
}

impl Soft {
    /// The device of a context.
    pub(crate) fn gpu(&self, context: &Context) -> &Gpu {
        &self.devices[context.device].gpu
    }

    /// Ordinal of the device in whose memory an address lies, allocated or not.
    pub(crate) fn device_at(&self, address: u64) -> Option<usize> {
        let has = |device: &Device| device.gpu.addresses().contains(&address);
        self.devices.iter().position(has)
    }

    /// The device that knows an address: of memory of the host, which all know, the first.
    fn gpu_at(&self, address: u64) -> &Gpu {
        &self.devices[self.device_at(address).unwrap_or(0)].gpu
    }

    /// Start and size of the live allocation or mapping that holds an address.
    pub(crate) fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        self.gpu_at(address).range_of(address)
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) -> Result<(), MemError> {
        self.gpu_at(address).write(address, data)
    }

    pub(crate) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemError> {
        self.gpu_at(address).read(address, out)
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), MemError> {
        self.gpu_at(address).fill(address, byte, bytes)
    }

    /// Gives device memory back.
    pub(crate) fn free(&self, address: u64) -> Result<(), MemError> {
        self.gpu_at(address).free(address)
    }

    /// Shows memory of the host to every device, at its own address.
    ///
    /// # Safety
    /// As for [`Gpu::map_host`], for all of them.
    pub(crate) unsafe fn map_host(&self, host: *mut u8, bytes: u64) -> u64 {
        for device in &self.devices {
            // SAFETY: the caller's promise.
            unsafe { device.gpu.map_host(host, bytes) };
        }
        host as u64
    }

    /// Ends what [`Soft::map_host`] began.
    pub(crate) fn unmap_host(&self, address: u64) {
        for device in &self.devices {
            // The tables said that it is there; nothing else ends it.
            let _ = device.gpu.unmap_host(address);
        }
    }
}

static SOFT: OnceLock<Soft> = OnceLock::new();
/// A child of `fork` has the tables but neither the threads nor the right to them: for it CUDA is
/// not initialised.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The process is in its exit handlers. From then on nothing waits for kernels, which may never
/// end.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Whether the process is in its exit handlers.
pub(crate) fn exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}

/// Makes the devices, on the first `cuInit`.
pub(crate) fn initialize() -> Result<&'static Soft, CuError> {
    let soft = SOFT.get_or_init(|| {
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Release);
        }
        extern "C" fn at_exit() {
            EXITING.store(true, Ordering::Release);
        }
        // SAFETY: registers functions of this library, which is never unloaded once initialised.
        // Exit handlers run in reverse order: this one before those that the program's start-up
        // code registered.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
        let config = config::Config::from_environment();
        let devices = (0..config.sms.len()).map(|ordinal| Device {
            gpu: Gpu::new(config.device(ordinal)),
            primary: Context::new(ordinal, true, 0, 0),
        });
        let soft = Soft {
            devices: devices.collect(),
            config,
            contexts: Handles::new(),
            modules: Handles::new(),
            libraries: Handles::new(),
            functions: Handles::new(),
            kernels: Handles::new(),
            streams: Handles::new(),
            events: Handles::new(),
            links: Handles::new(),
            arrays: Handles::new(),
            images: Handles::new(),
            graphs: Handles::new(),
            nodes: Handles::new(),
            execs: Handles::new(),
            user_objects: Handles::new(),
            pools: Handles::new(),
            captures: Mutex::new(Vec::new()),
            n_captures: AtomicUsize::new(0),
            allocations: Mutex::new(BTreeMap::new()),
            next_grid: AtomicU64::new(1),
            next_allocation: AtomicU64::new(1),
        };
        for Device { primary, .. } in &soft.devices {
            soft.contexts.add(primary.handle, Arc::clone(primary));
        }
        soft
    });
    if FORKED.load(Ordering::Acquire) {
        Err(CuError::NOT_INITIALIZED)
    } else {
        Ok(soft)
    }
}

/// The devices, if `cuInit` was called in this process.
pub(crate) fn soft() -> Result<&'static Soft, CuError> {
    if FORKED.load(Ordering::Acquire) {
        return Err(CuError::NOT_INITIALIZED);
    }
    SOFT.get().ok_or(CuError::NOT_INITIALIZED)
}

thread_local! {
    /// The thread's stack of contexts, the current one last.
    static STACK: RefCell<ContextStack> = const { RefCell::new(Stack::new()) };
}

type ContextStack = Stack<Handle, 16>;

/// Handle of the current context, 0 if none.
pub(crate) fn current_handle() -> Handle {
    STACK.with_borrow(|stack| stack.last().unwrap_or(0))
}

/// Runs `change` on the thread's stack of contexts.
pub(crate) fn with_stack<T>(change: impl FnOnce(&mut ContextStack) -> T) -> T {
    STACK.with_borrow_mut(change)
}

/// The current context, whatever its state.
pub(crate) fn current_any() -> Result<Arc<Context>, CuError> {
    let soft = soft()?;
    match current_handle() {
        0 => Err(CuError::INVALID_CONTEXT),
        handle => context(soft, handle),
    }
}

/// The current context, ready for work: not destroyed, and no kernel of it has trapped.
pub(crate) fn current() -> Result<Arc<Context>, CuError> {
    let context = current_any()?;
    context.check()?;
    Ok(context)
}

/// A live context. A primary one counts as live only while somebody retains it.
pub(crate) fn context(soft: &Soft, handle: Handle) -> Result<Arc<Context>, CuError> {
    let context = soft
        .contexts
        .get(handle)
        .ok_or(CuError::CONTEXT_IS_DESTROYED)?;
    if context.uses.load(Ordering::Acquire) == 0 {
        return Err(CuError::CONTEXT_IS_DESTROYED);
    }
    Ok(context)
}

/// A new context on a device, in the table.
pub(crate) fn new_context(soft: &Soft, device: usize, flags: u32) -> Arc<Context> {
    let context = Context::new(device, false, 1, flags);
    soft.contexts.add(context.handle, Arc::clone(&context));
    context
}

/// Ends all that belongs to a context: work, modules, memory, streams, events.
pub(crate) fn clear_context(soft: &Soft, context: &Context) {
    let _ = context.synchronize();
    let own = context.handle;
    soft.functions
        .retain(|function| function.module.context != own);
    for library in soft.libraries.all() {
        library.forget_context(own);
    }
    soft.modules.retain(|module| module.context != own);
    for stream in soft
        .streams
        .all()
        .iter()
        .filter(|stream| stream.context == own)
    {
        stream.close();
    }
    soft.streams.retain(|stream| stream.context != own);
    crate::driver::capture::forget_context(soft, own);
    soft.events.retain(|event| event.context != own);
    crate::driver::peers::forget_context(soft, context);
    crate::driver::images::forget_context(soft, own);
    crate::driver::arrays::forget_context(soft, own);
    let allocations: Vec<Allocation> = lock(&soft.allocations)
        .values()
        .filter(|allocation| allocation.context == own)
        .copied()
        .collect();
    for allocation in allocations {
        crate::driver::memory::release(soft, &allocation);
    }
    lock(&context.limits).clear();
    context.sticky.store(0, Ordering::Release);
}

/// Writes a result through a pointer that the caller gave.
///
/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> CuResult {
    if to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by the caller's promise; CUDA asks for the type's alignment.
    unsafe { to.write(value) };
    Ok(())
}

/// As [`put`], for results that a caller may decline by a null pointer.
///
/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn put_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as in `put`.
        unsafe { to.write(value) };
    }
}

/// A name that the caller gave.
///
/// # Safety
/// `text` must be null or a C string that outlives the result.
pub(crate) unsafe fn name<'a>(text: *const c_char) -> Result<&'a CStr, CuError> {
    if text.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; a C string by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) })
}
