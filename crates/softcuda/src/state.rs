//! The process's soft GPUs and everything that a program made on them. This crate is a driver: it
//! is one of the few that hold global state, and this is the file where it stands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use warpbpf_softgpu::{Gpu, MemError};

use crate::config;
use crate::error::{CuError, CuResult};
use crate::objects::context::{Allocation, Alone, Context};
use crate::objects::executable::Exec;
use crate::objects::handle::{Handle, Handles};
use crate::objects::image::{Array, Object};
use crate::objects::link::Link;
use crate::objects::module::{Function, KernelObject, Library, LoadedModule};
use crate::objects::pool::Pool;
use crate::objects::stream::Stream;
use crate::objects::user_object::UserObject;
use crate::objects::work::{Capture, Event, Graph};
use crate::per_thread::Stack;

impl Context {
    /// As a driver does where it loads code or frees memory: waits for all that runs here, and lets
    /// nobody launch.
    pub(crate) fn alone(&self) -> Result<Alone<'_>, CuError> {
        let soft = soft()?;
        let alone = self.keep_out();
        self.wait_for_all(soft);
        Ok(alone)
    }

    fn wait_for_all(&self, soft: &Soft) {
        self.null_stream.synchronize();
        for stream in soft.streams.all() {
            if stream.context == self.handle {
                stream.synchronize();
            }
        }
    }

    /// Waits for all work of this context.
    pub(crate) fn synchronize(&self) -> CuResult {
        self.wait_for_all(soft()?);
        self.flush_printed();
        self.check()
    }
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
