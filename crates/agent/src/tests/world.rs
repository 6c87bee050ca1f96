//! A driver with contexts, memory and modules in which nothing runs. Each test has a world of its
//! own, which is the context that is current on its threads; any call of ours in it can be made to
//! fail.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use warpbpf_driver::sys::CUresult;

/// What calls of ours answer that were made to fail: `CUDA_ERROR_UNKNOWN`.
pub(super) const FAULT: CUresult = 999;
/// What the driver answers in a primary context that nobody holds:
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const CONTEXT_IS_DESTROYED: CUresult = 709;

#[derive(Debug, Default)]
pub(super) struct World {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Calls of ours so far, by symbol.
    calls: BTreeMap<&'static str, u32>,
    /// The call that fails: symbol and number from 1.
    fault: Option<(&'static str, u32)>,
    /// All calls of it fail so.
    refused: Option<(&'static str, CUresult)>,
    /// Text of each loaded module.
    modules: HashMap<usize, String>,
    /// Functions that were handed out.
    functions: HashMap<(usize, String), usize>,
    /// Live allocations and streams.
    held: HashMap<usize, Vec<u64>>,
    /// The last allocation, if nothing was filled since.
    fresh: usize,
    /// Functions that were launched by the application, or in their place; and were those ours?
    launched: Vec<(usize, bool)>,
    /// Which of the parameters of ours is looked at, and what was found there.
    args_at: Option<usize>,
    launch_args: Vec<[u64; 4]>,
    /// How often the primary context is held; the first context is it.
    retains: i32,
    /// The primary context is current but not alive until it is held.
    asleep: bool,
    /// Blocks of a function that an SM has room for, where it is not as of all others.
    rooms: HashMap<usize, c_int>,
    /// What is in streams is not done.
    busy: bool,
    /// Copies of so many bytes to the device fail so many times, halfway.
    torn: Option<(usize, u32)>,
    /// Options of each load of ours: pairs of number and value, logs left out.
    jit: Vec<Vec<(c_int, usize)>>,
}

static WORLDS: Mutex<BTreeMap<usize, Arc<World>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(0x10_0000);

thread_local! {
    /// Stack of contexts; the last one is current.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn handle() -> usize {
    NEXT.fetch_add(16, Ordering::Relaxed)
}

impl World {
    /// A world whose context is current on this thread. Returns its context too.
    pub(super) fn enter() -> (Arc<World>, usize) {
        let (world, context) = (Arc::new(World::default()), handle());
        WORLDS.lock().unwrap().insert(context, Arc::clone(&world));
        CURRENT.with_borrow_mut(|stack| *stack = vec![context]);
        (world, context)
    }

    /// Another context of this world, current on this thread from now on.
    pub(super) fn another_context(self: &Arc<World>) -> usize {
        let context = handle();
        WORLDS.lock().unwrap().insert(context, Arc::clone(self));
        CURRENT.set(vec![context]);
        context
    }

    /// Makes a context of this world current on this thread.
    pub(super) fn switch_to(&self, context: usize) {
        CURRENT.set(vec![context]);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(super) fn fail(&self, symbol: &'static str, call: u32) {
        self.lock().fault = Some((symbol, call));
    }

    /// All calls of a function fail.
    pub(super) fn refuse(&self, symbol: &'static str, code: CUresult) {
        self.lock().refused = Some((symbol, code));
    }

    /// Calls that need the primary context fail until the application holds it.
    pub(super) fn fall_asleep(&self) {
        self.lock().asleep = true;
    }

    /// The next copies of so many bytes to the device fail halfway.
    pub(super) fn tear(&self, bytes: usize, times: u32) {
        self.lock().torn = Some((bytes, times));
    }

    /// Copies that are still to fail.
    pub(super) fn torn_left(&self) -> u32 {
        self.lock().torn.map_or(0, |(_, times)| times)
    }

    /// The allocation of so many bytes, of which there is one.
    pub(super) fn memory_of(&self, bytes: usize) -> *mut u8 {
        let inner = self.lock();
        let mut found = (inner.held.iter()).filter(|(_, memory)| memory.len() * 8 == bytes);
        let (address, _) = found.next().unwrap();
        assert!(found.next().is_none(), "two of {bytes} bytes");
        *address as *mut u8
    }

    /// An SM has room for so many blocks of a function.
    pub(super) fn set_room(&self, function: usize, blocks: c_int) {
        self.lock().rooms.insert(function, blocks);
    }

    /// What is in streams is done, or not.
    pub(super) fn set_busy(&self, busy: bool) {
        self.lock().busy = busy;
    }

    /// The handle of a kernel or function, got in a way that is not hooked.
    pub(super) fn found(&self, module: usize, name: &str) -> usize {
        self.function(module, name).unwrap()
    }

    pub(super) fn calls(&self) -> BTreeMap<&'static str, u32> {
        self.lock().calls.clone()
    }

    pub(super) fn modules(&self) -> Vec<String> {
        self.lock().modules.values().cloned().collect()
    }

    /// The driver forgets a module by itself.
    pub(super) fn forget_module(&self, module: usize) {
        self.lock().modules.remove(&module);
    }

    /// Live allocations and streams.
    pub(super) fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Where the allocation of so many bytes is.
    pub(super) fn allocation(&self, bytes: usize) -> usize {
        let inner = self.lock();
        let mut of_size = inner
            .held
            .iter()
            .filter(|(_, m)| m.len() == bytes.div_ceil(8));
        let (address, _) = of_size.next().expect("there is none");
        assert!(
            of_size.next().is_none(),
            "there are several of {bytes} bytes"
        );
        *address
    }

    pub(super) fn launched(&self) -> Vec<usize> {
        self.lock().launched.iter().map(|(f, _)| *f).collect()
    }

    /// From now on the hidden parameter of whatever runs in a kernel's place is looked at, which is
    /// behind so many.
    pub(super) fn look_at_parameter(&self, own: usize) {
        self.lock().args_at = Some(own);
    }

    /// The launch arguments of such launches.
    pub(super) fn launch_args(&self) -> Vec<[u64; 4]> {
        self.lock().launch_args.clone()
    }

    /// Launches that ran a slice.
    pub(super) fn with_probes(&self) -> usize {
        self.lock()
            .launched
            .iter()
            .filter(|(_, ours)| *ours)
            .count()
    }

    pub(super) fn jit(&self) -> Vec<Vec<(c_int, usize)>> {
        self.lock().jit.clone()
    }

    fn load(&self, text: String) -> usize {
        let module = handle();
        self.lock().modules.insert(module, text);
        module
    }

    fn function(&self, module: usize, name: &str) -> Option<usize> {
        let mut inner = self.lock();
        if !inner.modules.get(&module)?.contains(name) {
            return None;
        }
        let key = (module, name.to_string());
        Some(*inner.functions.entry(key).or_insert_with(handle))
    }

    /// The function's module is one of ours.
    fn is_slice(&self, function: usize) -> bool {
        let inner = self.lock();
        let found = inner.functions.iter().find(|(_, f)| **f == function);
        found.is_some_and(|((module, _), _)| {
            let text = inner.modules.get(module);
            text.is_some_and(|t| t.contains("wbpf"))
        })
    }

    fn allocate(&self, bytes: usize) -> usize {
        let memory = vec![0u64; bytes.div_ceil(8)];
        let address = memory.as_ptr() as usize;
        let mut inner = self.lock();
        inner.held.insert(address, memory);
        inner.fresh = address;
        address
    }
}

fn current() -> Option<usize> {
    CURRENT.with_borrow(|stack| stack.last().copied().filter(|c| *c != 0))
}

/// A world is current on this thread.
pub(super) fn is_entered() -> bool {
    current().is_some()
}

/// A call of ours of which the world knows nothing, but when it fails; all is well where there is
/// none.
pub(super) fn answer(symbol: &'static str) -> Result<(), CUresult> {
    match is_entered() {
        true => ours(symbol).map(|_| ()),
        false => Ok(()),
    }
}

/// A call of ours that is answered by whether what is in streams is done.
pub(super) fn is_busy(symbol: &'static str) -> bool {
    ours(symbol).is_ok_and(|world| world.lock().busy)
}

fn world() -> Option<Arc<World>> {
    WORLDS.lock().unwrap().get(&current()?).cloned()
}

/// A call of ours: it fails if it was told to.
fn ours(symbol: &'static str) -> Result<Arc<World>, CUresult> {
    let world = world().ok_or(201)?;
    let mut inner = world.lock();
    let calls = inner.calls.entry(symbol).or_default();
    *calls += 1;
    let now = (symbol, *calls);
    if inner.fault == Some(now) {
        return Err(FAULT);
    }
    if let Some((_, code)) = inner.refused.filter(|(name, _)| *name == symbol) {
        return Err(code);
    }
    // A library's kernels are of no context.
    if inner.asleep && symbol != "cuLibraryGetKernel" {
        return Err(CONTEXT_IS_DESTROYED);
    }
    drop(inner);
    Ok(world)
}

fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(0)
}

/// # Safety
/// NUL-terminated.
unsafe fn text(pointer: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

/// An image as text: of machine code only names can be read.
///
/// # Safety
/// What CUDA asks of an image.
unsafe fn image_text(image: *const c_char) -> String {
    // SAFETY: the caller's promise.
    let bytes = unsafe { crate::sources::image::bytes(image.cast()) };
    String::from_utf8_lossy(&bytes.unwrap()).into_owned()
}

/// # Safety
/// The arguments of the driver function that calls this are what CUDA asks for.
unsafe fn as_cuda_asks() {}

macro_rules! driver {
    ($($name:ident = $symbol:literal ( $($arg:ident : $ty:ty),* ) |$world:ident| $body:block)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                code(ours($symbol).and_then(|$world| {
                    // SAFETY: callers pass what CUDA asks for.
                    unsafe {
                        as_cuda_asks();
                        $body
                    }
                }))
            }
        )*
        /// The function behind our own calls of `symbol`.
        pub(super) fn address(symbol: &str) -> Option<usize> {
            match symbol {
                $($symbol => Some($name as *const () as usize),)*
                "cuCtxGetCurrent" => Some(ctx_get_current as *const () as usize),
                "cuCtxPopCurrent_v2" => Some(ctx_pop as *const () as usize),
                _ => None,
            }
        }
    };
}

unsafe extern "C" fn ctx_get_current(context: *mut *mut c_void) -> CUresult {
    // SAFETY: callers pass a local.
    unsafe { *context = current().unwrap_or(0) as *mut c_void };
    0
}

unsafe extern "C" fn ctx_pop(context: *mut *mut c_void) -> CUresult {
    let popped = CURRENT.with_borrow_mut(Vec::pop).unwrap_or(0);
    // SAFETY: callers pass a local.
    unsafe { *context = popped as *mut c_void };
    0
}

pub(super) unsafe extern "C" fn ctx_set_current(context: *mut c_void) -> CUresult {
    let before = CURRENT.with_borrow_mut(|stack| std::mem::replace(stack, vec![context as usize]));
    if let Err(code) = ours("cuCtxSetCurrent") {
        CURRENT.set(before);
        return code;
    }
    0
}

pub(super) unsafe extern "C" fn ctx_push(context: *mut c_void) -> CUresult {
    CURRENT.with_borrow_mut(|stack| stack.push(context as usize));
    if let Err(code) = ours("cuCtxPushCurrent_v2") {
        CURRENT.with_borrow_mut(Vec::pop);
        return code;
    }
    0
}

driver! {
    ctx_get_device = "cuCtxGetDevice"(device: *mut c_int) |_world| { *device = 0; Ok(()) }
    ctx_synchronize = "cuCtxSynchronize"() |_world| { Ok(()) }
    capture_mode = "cuThreadExchangeStreamCaptureMode"(_mode: *mut c_int) |_world| { Ok(()) }
    stream_create = "cuStreamCreate"(stream: *mut usize, _flags: c_uint) |world| {
        *stream = world.allocate(8);
        Ok(())
    }
    stream_destroy = "cuStreamDestroy_v2"(stream: usize) |world| {
        world.lock().held.remove(&stream).map(|_| ()).ok_or(400)
    }
    stream_query = "cuStreamQuery"(_stream: usize) |world| {
        if world.lock().busy { Err(600) } else { Ok(()) }
    }
    stream_synchronize = "cuStreamSynchronize"(_stream: usize) |_world| { Ok(()) }
    mem_alloc = "cuMemAlloc_v2"(address: *mut u64, bytes: usize) |world| {
        *address = world.allocate(bytes) as u64;
        Ok(())
    }
    mem_free = "cuMemFree_v2"(address: u64) |world| {
        world.lock().held.remove(&(address as usize)).map(|_| ()).ok_or(1)
    }
    host_alloc = "cuMemHostAlloc"(pointer: *mut usize, bytes: usize, _flags: c_uint) |world| {
        *pointer = world.allocate(bytes);
        Ok(())
    }
    host_free = "cuMemFreeHost"(pointer: usize) |world| {
        world.lock().held.remove(&pointer).map(|_| ()).ok_or(1)
    }
    host_register = "cuMemHostRegister_v2"(pointer: usize, _bytes: usize, _flags: c_uint) |world| {
        world.lock().held.insert(pointer, Vec::new());
        Ok(())
    }
    host_unregister = "cuMemHostUnregister"(pointer: usize) |world| {
        world.lock().held.remove(&pointer).map(|_| ()).ok_or(713)
    }
    host_device_pointer = "cuMemHostGetDevicePointer_v2"(address: *mut u64, pointer: usize, _flags: c_uint) |_world| {
        *address = pointer as u64;
        Ok(())
    }
    memset_d8 = "cuMemsetD8Async"(address: u64, value: u8, bytes: usize, _stream: usize) |world| {
        // New memory is zero already, and pages that nobody writes to cost nothing.
        let fresh = std::mem::take(&mut world.lock().fresh);
        if value != 0 || fresh != address as usize {
            std::ptr::write_bytes(address as *mut u8, value, bytes);
        }
        Ok(())
    }
    copy_to_device = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const u8, bytes: usize, _stream: usize) |world| {
        if let Some((size, left)) = &mut world.lock().torn
            && *size == bytes
            && *left > 0
        {
            *left -= 1;
            std::ptr::copy(from, to as *mut u8, bytes / 2);
            return Err(FAULT);
        }
        std::ptr::copy(from, to as *mut u8, bytes);
        Ok(())
    }
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut u8, from: u64, bytes: usize, _stream: usize) |_world| {
        std::ptr::copy(from as *const u8, to, bytes);
        Ok(())
    }
    copy_rows = "cuMemcpy2DAsync_v2"(copy: *const warpbpf_driver::sys::CUDA_MEMCPY2D, _stream: usize) |_world| {
        let copy = &*copy;
        for row in 0..copy.height {
            let from = copy.src_device as usize + row * copy.src_pitch;
            let to = copy.dst_host as usize + row * copy.dst_pitch;
            std::ptr::copy(from as *const u8, to as *mut u8, copy.width_in_bytes);
        }
        Ok(())
    }
    module_load = "cuModuleLoadDataEx"(module: *mut usize, image: *const c_char, count: c_uint, options: *mut c_int, values: *mut usize) |world| {
        let pairs = (0..count as usize).map(|i| (*options.add(i), *values.add(i)));
        let jit = pairs.filter(|(o, _)| !(5..=6).contains(o)).collect();
        world.lock().jit.push(jit);
        let mut text = image_text(image);
        if text.contains("\u{7f}ELF") {
            // Machine code has no names of ours in it.
            text.insert_str(0, "wbpf ");
        }
        *module = world.load(text);
        Ok(())
    }
    module_unload = "cuModuleUnload"(module: usize) |world| {
        world.lock().modules.remove(&module).map(|_| ()).ok_or(400)
    }
    module_function = "cuModuleGetFunction"(function: *mut usize, module: usize, name: *const c_char) |world| {
        *function = world.function(module, &text(name)).ok_or(500)?;
        Ok(())
    }
    module_global = "cuModuleGetGlobal_v2"(address: *mut u64, bytes: *mut usize, _module: usize, _name: *const c_char) |_world| {
        // Somebody may write there, and nobody frees it.
        *address = Box::leak(Box::new([0u64; 512])).as_ptr() as u64;
        *bytes = 4096;
        Ok(())
    }
    func_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: usize) |world| {
        *value = match (attribute, world.is_slice(function)) {
            (0, _) => 1024,
            (4, false) => 12,
            (4, true) => 40,
            (9, false) => 50,
            _ => 0,
        };
        Ok(())
    }
    func_set_attribute = "cuFuncSetAttribute"(_function: usize, _attribute: c_int, _value: c_int) |_world| { Ok(()) }
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(blocks: *mut c_int, function: usize, _block: c_int, _shared: usize) |world| {
        let rooms = world.lock().rooms.get(&function).copied();
        *blocks = rooms.unwrap_or(if world.is_slice(function) { 6 } else { 8 });
        Ok(())
    }
    library_module = "cuLibraryGetModule"(module: *mut usize, library: usize) |_world| {
        *module = library;
        Ok(())
    }
    library_kernel = "cuLibraryGetKernel"(kernel: *mut usize, library: usize, name: *const c_char) |world| {
        *kernel = world.function(library, &text(name)).ok_or(500)?;
        Ok(())
    }
    kernel_function = "cuKernelGetFunction"(function: *mut usize, kernel: usize) |_world| {
        *function = kernel;
        Ok(())
    }
    primary_state = "cuDevicePrimaryCtxGetState"(_device: c_int, _flags: *mut c_uint, active: *mut c_int) |world| {
        *active = c_int::from(world.lock().retains > 0);
        Ok(())
    }
    launch = "cuLaunchKernel"() |_world| { Ok(()) }
}

/// The driver as the application calls it: nothing that was told to fail fails here.
pub(super) mod application {
    use super::*;

    pub(in super::super) unsafe extern "C" fn load(
        module: *mut usize,
        image: *const c_char,
    ) -> CUresult {
        let Some(world) = world() else { return 201 };
        // SAFETY: the tests pass a local and a whole image.
        unsafe { *module = world.load(image_text(image)) };
        0
    }

    pub(in super::super) unsafe extern "C" fn unload(module: usize) -> CUresult {
        let Some(world) = world() else { return 201 };
        match world.lock().modules.remove(&module) {
            Some(_) => 0,
            None => 400,
        }
    }

    pub(in super::super) unsafe extern "C" fn get_function(
        function: *mut usize,
        module: usize,
        name: *const c_char,
    ) -> CUresult {
        let Some(world) = world() else { return 201 };
        // SAFETY: as above.
        match world.function(module, &unsafe { text(name) }) {
            Some(found) => {
                // SAFETY: as above.
                unsafe { *function = found };
                0
            }
            None => 500,
        }
    }

    pub(in super::super) unsafe extern "C" fn launch(
        function: usize,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _stream: usize,
        params: *const *const [u64; 4],
    ) -> CUresult {
        let Some(world) = world() else { return 201 };
        let ours = world.is_slice(function);
        let mut inner = world.lock();
        inner.launched.push((function, ours));
        if let Some(at) = inner.args_at.filter(|_| ours) {
            // SAFETY: the test says that what is launched in place of a kernel has so many
            // parameters, and the hidden one there.
            let args = unsafe { (*params.add(at)).read_unaligned() };
            inner.launch_args.push(args);
        }
        0
    }

    pub(in super::super) unsafe extern "C" fn destroy(context: usize) -> CUresult {
        match WORLDS.lock().unwrap().remove(&context) {
            Some(_) => 0,
            None => 201,
        }
    }

    pub(in super::super) unsafe extern "C" fn retain(
        context: *mut usize,
        _device: c_int,
    ) -> CUresult {
        let Some(world) = world() else { return 201 };
        let mut inner = world.lock();
        inner.retains += 1;
        inner.asleep = false;
        drop(inner);
        // SAFETY: as above.
        unsafe { *context = current().unwrap_or(0) };
        0
    }

    pub(in super::super) unsafe extern "C" fn release(_device: c_int) -> CUresult {
        let Some(world) = world() else { return 201 };
        world.lock().retains -= 1;
        0
    }

    pub(in super::super) unsafe extern "C" fn library_unload(library: usize) -> CUresult {
        // SAFETY: a library is a module here.
        unsafe { unload(library) }
    }
}
