//! The safe floor: handles are plain values, sizes are checked, failures say which call it was.
//!
//! All methods act on the calling thread's current context, as the driver does, unless they take a
//! [`Context`].

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;

use crate::exclusive::ExclusiveSection;
use crate::handles::{Context, Function, Module, Stream};
use crate::jit::JitOptions;
use crate::result::DriverError;
use crate::sys::{self, Api, CUdeviceptr, CUresult};

/// What is asked of a device once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Marketing name: `NVIDIA H200`.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// `cuDriverGetVersion`: 13000 for CUDA 13.0.
    pub driver_version: i32,
}

/// A driver behind its table.
#[derive(Clone, Copy)]
pub struct Driver {
    /// The raw table.
    pub api: Api,
    /// When calls are made that wait for kernels and hold up launches; at once without.
    pub(crate) exclusive: Option<ExclusiveSection>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

/// Room for what the compiler says.
pub(crate) const LOG_BYTES: usize = 8192;

/// A log up to its NUL.
pub(crate) fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// A text as the driver takes it.
pub(crate) fn text_image(call: &'static str, ptx: &str) -> Result<CString, DriverError> {
    CString::new(ptx).map_err(|_| DriverError {
        call,
        code: sys::INVALID_VALUE,
        name: "CUDA_ERROR_INVALID_VALUE".into(),
        detail: "the PTX text holds a NUL byte".into(),
    })
}

/// Options of a compilation whose logs go to these buffers; an empty `info` is not asked for.
pub(crate) fn logged(
    jit: &JitOptions,
    log: &mut [u8],
    info: &mut [u8],
) -> (Vec<c_int>, Vec<*mut c_void>) {
    let mut options = vec![
        sys::JIT_ERROR_LOG_BUFFER,
        sys::JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values: Vec<*mut c_void> = vec![log.as_mut_ptr().cast(), log.len() as *mut c_void];
    if !info.is_empty() {
        options.extend([
            sys::JIT_INFO_LOG_BUFFER,
            sys::JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ]);
        values.extend([info.as_mut_ptr().cast(), info.len() as *mut c_void]);
    }
    for (option, value) in jit.pairs() {
        options.push(*option);
        values.push(*value as usize as *mut c_void);
    }
    (options, values)
}

impl Driver {
    /// Wraps a filled table.
    pub fn new(api: Api) -> Driver {
        #[cfg(debug_assertions)]
        let api = match warpbpf_faults::armed() {
            true => api.faulty(),
            false => api,
        };
        Driver {
            api,
            exclusive: None,
        }
    }

    pub(crate) fn check(
        &self,
        call: &'static str,
        code: CUresult,
        detail: impl FnOnce() -> String,
    ) -> Result<(), DriverError> {
        if code == sys::SUCCESS {
            return Ok(());
        }
        Err(DriverError {
            call,
            code,
            name: self.error_name(code),
            detail: detail(),
        })
    }

    /// The driver's name of a result code.
    pub fn error_name(&self, code: CUresult) -> String {
        let mut name = ptr::null();
        // SAFETY: `name` is writable; the string that comes back is static.
        unsafe {
            if (self.api.error_name)(code, &mut name) == sys::SUCCESS && !name.is_null() {
                return CStr::from_ptr(name).to_string_lossy().into_owned();
            }
        }
        format!("CUDA error {code}")
    }

    /// `cuInit(0)`
    pub fn init(&self) -> Result<(), DriverError> {
        // SAFETY: no pointers.
        self.check("cuInit", unsafe { (self.api.init)(0) }, String::new)
    }

    /// Number of devices.
    pub fn device_count(&self) -> Result<u32, DriverError> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        let code = unsafe { (self.api.device_count)(&mut count) };
        self.check("cuDeviceGetCount", code, String::new)?;
        Ok(count as u32)
    }

    /// `cuDriverGetVersion`
    pub fn version(&self) -> Result<i32, DriverError> {
        let mut version = 0;
        // SAFETY: `version` is writable.
        let code = unsafe { (self.api.driver_version)(&mut version) };
        self.check("cuDriverGetVersion", code, String::new)?;
        Ok(version)
    }

    /// Name, capability and size of a device by ordinal.
    pub fn device_info(&self, ordinal: i32) -> Result<DeviceInfo, DriverError> {
        let mut device = 0;
        let mut name = [0 as std::ffi::c_char; 128];
        let mut values = [0; 3];
        let attributes = [
            sys::ATTRIBUTE_CC_MAJOR,
            sys::ATTRIBUTE_CC_MINOR,
            sys::ATTRIBUTE_MULTIPROCESSOR_COUNT,
        ];
        // SAFETY: every pointer is to a local of the size given.
        unsafe {
            self.check(
                "cuDeviceGet",
                (self.api.device_get)(&mut device, ordinal),
                || format!("device {ordinal}"),
            )?;
            self.check(
                "cuDeviceGetName",
                (self.api.device_name)(name.as_mut_ptr(), 128, device),
                String::new,
            )?;
            for (value, attribute) in values.iter_mut().zip(attributes) {
                let code = (self.api.device_attribute)(value, attribute, device);
                self.check("cuDeviceGetAttribute", code, || {
                    format!("attribute {attribute}")
                })?;
            }
        }
        let bytes: Vec<u8> = name
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| *c as u8)
            .collect();
        Ok(DeviceInfo {
            name: String::from_utf8_lossy(&bytes).into_owned(),
            capability: (values[0] as u32, values[1] as u32),
            sms: values[2] as u32,
            driver_version: self.version()?,
        })
    }

    /// The current context of this thread, if there is one.
    pub fn current(&self) -> Option<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: `context` is writable.
        let code = unsafe { (self.api.ctx_get_current)(&mut context) };
        (code == sys::SUCCESS && !context.is_null()).then_some(Context(context))
    }

    /// Makes a context current on this thread.
    pub fn set_current(&self, context: Context) -> Result<(), DriverError> {
        // SAFETY: a context handle from this driver.
        self.check(
            "cuCtxSetCurrent",
            unsafe { (self.api.ctx_set_current)(context.0) },
            String::new,
        )
    }

    /// Takes part in the primary context of a device by ordinal, which is what a CUDA program has.
    /// It stays until the process ends.
    pub fn retain_primary(&self, ordinal: i32) -> Result<Context, DriverError> {
        let (mut device, mut context) = (0, ptr::null_mut());
        // SAFETY: both pointers are to locals of the size given.
        unsafe {
            self.check(
                "cuDeviceGet",
                (self.api.device_get)(&mut device, ordinal),
                || format!("device {ordinal}"),
            )?;
            self.check(
                "cuDevicePrimaryCtxRetain",
                (self.api.primary_retain)(&mut context, device),
                || format!("device {ordinal}"),
            )?;
        }
        Ok(Context(context))
    }

    /// Runs `work` in the primary context of a device, which is given back at once: if nobody else
    /// holds it, it ends again.
    pub fn within_primary<T>(&self, ordinal: i32, work: impl FnOnce() -> T) -> Option<T> {
        let context = self.retain_primary(ordinal).ok()?;
        let result = self.within(context, work);
        let mut device = 0;
        // SAFETY: a writable local; what is released was retained above.
        unsafe {
            if (self.api.device_get)(&mut device, ordinal) == sys::SUCCESS {
                (self.api.primary_release)(device);
            }
        }
        result
    }

    /// Ordinal of the current context's device.
    pub fn current_device(&self) -> Result<i32, DriverError> {
        let mut device = 0;
        // SAFETY: `device` is writable.
        let code = unsafe { (self.api.ctx_get_device)(&mut device) };
        self.check("cuCtxGetDevice", code, String::new)?;
        Ok(device)
    }

    /// Runs `work` with this thread's stream-capture mode relaxed, so that our own calls never
    /// invalidate a capture of the application.
    pub fn relaxed<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut mode: c_int = sys::CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is read and written.
        let exchanged = unsafe { (self.api.capture_mode)(&mut mode) } == sys::SUCCESS;
        let result = work();
        if exchanged {
            // SAFETY: as above; `mode` holds what was there before.
            unsafe { (self.api.capture_mode)(&mut mode) };
        }
        result
    }

    /// Waits for everything in the current context.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: no pointers.
        self.check(
            "cuCtxSynchronize",
            unsafe { (self.api.ctx_synchronize)() },
            String::new,
        )
    }

    /// Runs `work` with a context current on this thread and leaves the one that was. `None` if the
    /// driver does not make it current: then `work` did not run.
    pub fn within<T>(&self, context: Context, work: impl FnOnce() -> T) -> Option<T> {
        // SAFETY: a context handle from this driver.
        if unsafe { (self.api.ctx_push)(context.0) } != sys::SUCCESS {
            return None;
        }
        let result = work();
        let mut popped = ptr::null_mut();
        // SAFETY: a writable local; it pops what was pushed above. Once more if it fails: with our
        // context current instead of its own the application could not go on.
        unsafe {
            if (self.api.ctx_pop)(&mut popped) != sys::SUCCESS {
                (self.api.ctx_pop)(&mut popped);
            }
        }
        Some(result)
    }

    /// Loads PTX text of kernels of our own. On failure the error carries the JIT's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module, DriverError> {
        let jit = JitOptions::default();
        if self.works_in_background()
            && let Ok((code, _)) = self.link_ptx(ptx, &jit)
        {
            return self.load_image(&code);
        }
        self.load_ptx_with(ptx, &jit)
    }

    /// As [`Driver::load_ptx`], with options of the compiler.
    pub fn load_ptx_with(&self, ptx: &str, jit: &JitOptions) -> Result<Module, DriverError> {
        self.load_text(ptx, jit, &mut [])
    }

    /// As [`Driver::load_ptx_with`], and what the compiler said of a text that it accepted: its
    /// warnings. Nothing where the driver had the machine code in its cache.
    pub fn load_ptx_logged(
        &self,
        ptx: &str,
        jit: &JitOptions,
    ) -> Result<(Module, String), DriverError> {
        let mut info = vec![0u8; LOG_BYTES];
        let module = self.load_text(ptx, jit, &mut info)?;
        Ok((module, log_text(&info)))
    }

    /// An empty `info` is not asked for.
    fn load_text(
        &self,
        ptx: &str,
        jit: &JitOptions,
        info: &mut [u8],
    ) -> Result<Module, DriverError> {
        let image = text_image("cuModuleLoadDataEx", ptx)?;
        let mut log = vec![0u8; LOG_BYTES];
        let (mut options, mut values) = logged(jit, &mut log, info);
        let mut module = ptr::null_mut();
        // SAFETY: the image is NUL-terminated; both option arrays have the length given, and the
        // logs their own.
        let code = self.while_nothing_runs("cuModuleLoadDataEx", || unsafe {
            (self.api.module_load)(
                &mut module,
                image.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        })?;
        self.check("cuModuleLoadDataEx", code, || log_text(&log))?;
        Ok(Module(module))
    }

    /// Unloads a module of ours.
    pub fn unload(&self, module: Module) -> Result<(), DriverError> {
        // SAFETY: a handle from `load_ptx`.
        let unload = || unsafe { (self.api.module_unload)(module.0) };
        let code = self.while_nothing_runs("cuModuleUnload", unload)?;
        self.check("cuModuleUnload", code, String::new)
    }

    /// A kernel of a module by name.
    pub fn function(&self, module: Module, name: &str) -> Result<Function, DriverError> {
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: a live module and a NUL-terminated name.
        let code = unsafe { (self.api.module_function)(&mut function, module.0, symbol.as_ptr()) };
        self.check("cuModuleGetFunction", code, || format!("`{name}`"))?;
        Ok(Function(function))
    }

    /// Address and size of a module's variable.
    pub fn global(&self, module: Module, name: &str) -> Result<(CUdeviceptr, u64), DriverError> {
        let symbol = CString::new(name).unwrap_or_default();
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: a live module, a NUL-terminated name, two writable locals.
        let code = unsafe {
            (self.api.module_global)(&mut address, &mut bytes, module.0, symbol.as_ptr())
        };
        self.check("cuModuleGetGlobal", code, || format!("`{name}`"))?;
        Ok((address, bytes as u64))
    }

    /// One attribute of a kernel, see the `FUNC_*` constants.
    pub fn attribute(&self, function: Function, attribute: c_int) -> Result<i32, DriverError> {
        let mut value = 0;
        // SAFETY: a live function, a writable local.
        let code = unsafe { (self.api.func_attribute)(&mut value, attribute, function.0) };
        self.check("cuFuncGetAttribute", code, || {
            format!("attribute {attribute}")
        })?;
        Ok(value)
    }

    /// Blocks of `block` threads and `shared` dynamic bytes that one SM runs at once.
    pub fn occupancy(
        &self,
        function: Function,
        block: u32,
        shared: u64,
    ) -> Result<u32, DriverError> {
        let mut blocks = 0;
        // SAFETY: a live function, a writable local.
        let code = unsafe {
            (self.api.occupancy)(&mut blocks, function.0, block as c_int, shared as usize)
        };
        self.check(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            code,
            String::new,
        )?;
        Ok(blocks as u32)
    }

    /// A stream that never synchronises with the application's default stream.
    pub fn stream(&self) -> Result<Stream, DriverError> {
        let mut stream = ptr::null_mut();
        // SAFETY: a writable local.
        let code = unsafe { (self.api.stream_create)(&mut stream, sys::STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", code, String::new)?;
        Ok(Stream(stream))
    }

    /// Destroys a stream of ours.
    pub fn destroy(&self, stream: Stream) -> Result<(), DriverError> {
        // SAFETY: a handle from `stream`; the driver finishes what is in it.
        let code = unsafe { (self.api.stream_destroy)(stream.0) };
        self.check("cuStreamDestroy", code, String::new)
    }

    /// Device memory, zeroed. `bytes` must not be 0.
    pub fn alloc_zeroed(&self, bytes: u64, stream: Stream) -> Result<CUdeviceptr, DriverError> {
        let mut address = 0;
        // SAFETY: a writable local.
        let code = unsafe { (self.api.mem_alloc)(&mut address, bytes as usize) };
        self.check("cuMemAlloc", code, || format!("{bytes} bytes"))?;
        // SAFETY: the fill covers exactly the new allocation.
        let code = unsafe { (self.api.memset_d8)(address, 0, bytes as usize, stream.0) };
        let filled = self.check("cuMemsetD8Async", code, || format!("{bytes} bytes"));
        match filled.and_then(|()| self.wait(stream)) {
            Ok(()) => Ok(address),
            Err(error) => {
                // The application's memory must not shrink by what we cannot use.
                let _ = self.free(address);
                Err(error)
            }
        }
    }

    /// Frees device memory of ours.
    pub fn free(&self, address: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: the driver checks the address.
        let free = || unsafe { (self.api.mem_free)(address) };
        let code = self.while_nothing_runs("cuMemFree", free)?;
        self.check("cuMemFree", code, String::new)
    }

    /// Copies to the device and waits.
    pub fn write(&self, to: CUdeviceptr, bytes: &[u8], stream: Stream) -> Result<(), DriverError> {
        // SAFETY: the source is a live slice, and we wait before it can go away.
        let code =
            unsafe { (self.api.copy_to_device)(to, bytes.as_ptr().cast(), bytes.len(), stream.0) };
        self.check("cuMemcpyHtoDAsync", code, || {
            format!("{} bytes", bytes.len())
        })?;
        self.wait(stream)
    }

    /// Starts a copy to the device; [`Driver::wait`] tells when it is done. Copies in one stream
    /// happen one after the other.
    ///
    /// # Safety
    /// `bytes` are there and do not change until the stream has been waited for.
    pub unsafe fn start_write(
        &self,
        to: CUdeviceptr,
        bytes: &[u8],
        stream: Stream,
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        let code =
            unsafe { (self.api.copy_to_device)(to, bytes.as_ptr().cast(), bytes.len(), stream.0) };
        self.check("cuMemcpyHtoDAsync", code, || {
            format!("{} bytes", bytes.len())
        })
    }

    /// Copies from the device and waits.
    pub fn read(
        &self,
        from: CUdeviceptr,
        into: &mut [u8],
        stream: Stream,
    ) -> Result<(), DriverError> {
        // SAFETY: the target is a live slice, and we wait before it can go away.
        let code = unsafe {
            (self.api.copy_to_host)(into.as_mut_ptr().cast(), from, into.len(), stream.0)
        };
        self.check("cuMemcpyDtoHAsync", code, || {
            format!("{} bytes", into.len())
        })?;
        self.wait(stream)
    }

    /// Starts a copy from the device; [`Driver::wait`] tells when it is done.
    ///
    /// # Safety
    /// `into` is valid for `bytes` bytes and untouched until the stream has been waited for.
    pub unsafe fn start_read(
        &self,
        from: CUdeviceptr,
        into: *mut u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.api.copy_to_host)(into.cast(), from, bytes as usize, stream.0) };
        self.check("cuMemcpyDtoHAsync", code, || format!("{bytes} bytes"))
    }

    /// Starts a copy of `rows` rows of `bytes` bytes that lie `pitch` bytes apart on the device, at
    /// most 2^31 - 1, one behind the other into the host's memory; [`Driver::wait`] tells when it
    /// is done.
    ///
    /// # Safety
    /// `into` is valid for all rows and untouched until the stream has been waited for.
    pub unsafe fn start_read_rows(
        &self,
        (from, pitch): (CUdeviceptr, u64),
        into: *mut u8,
        (rows, bytes): (u64, u64),
        stream: Stream,
    ) -> Result<(), DriverError> {
        let copy = sys::CUDA_MEMCPY2D {
            src_x_in_bytes: 0,
            src_y: 0,
            src_memory_type: sys::MEMORYTYPE_DEVICE,
            src_host: ptr::null(),
            src_device: from,
            src_array: ptr::null_mut(),
            src_pitch: pitch as usize,
            dst_x_in_bytes: 0,
            dst_y: 0,
            dst_memory_type: sys::MEMORYTYPE_HOST,
            dst_host: into.cast(),
            dst_device: 0,
            dst_array: ptr::null_mut(),
            dst_pitch: bytes as usize,
            width_in_bytes: bytes as usize,
            height: rows as usize,
        };
        // SAFETY: a description that lives, and the caller's promise.
        let code = unsafe { (self.api.copy_rows)(&copy, stream.0) };
        self.check("cuMemcpy2DAsync", code, || {
            format!("{rows} rows of {bytes} bytes")
        })
    }

    /// Page-locked host memory that the device sees: `(host pointer, device address)`.
    pub fn host_alloc(&self, bytes: usize) -> Result<(*mut u8, CUdeviceptr), DriverError> {
        let mut pointer = ptr::null_mut();
        let mut address = 0;
        // SAFETY: a writable local.
        let code = unsafe { (self.api.host_alloc)(&mut pointer, bytes, sys::HOSTALLOC_DEVICEMAP) };
        self.check("cuMemHostAlloc", code, || format!("{bytes} bytes"))?;
        // SAFETY: a writable local; the pointer is the allocation just made.
        let code = unsafe { (self.api.host_device_pointer)(&mut address, pointer, 0) };
        if let Err(error) = self.check("cuMemHostGetDevicePointer", code, String::new) {
            // SAFETY: nobody has seen it yet.
            let _ = unsafe { self.host_free(pointer.cast()) };
            return Err(error);
        }
        Ok((pointer.cast(), address))
    }

    /// Frees memory from [`Driver::host_alloc`].
    ///
    /// # Safety
    /// Nobody uses the memory any more, on host or device.
    pub unsafe fn host_free(&self, pointer: *mut u8) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        let free = || unsafe { (self.api.host_free)(pointer.cast()) };
        let code = self.while_nothing_runs("cuMemFreeHost", free)?;
        self.check("cuMemFreeHost", code, String::new)
    }

    /// Locks pages of memory of ours, so that copies from the device need no memory in between.
    ///
    /// # Safety
    /// The memory stays until it is unlocked or the current context ends.
    pub unsafe fn host_register(&self, pointer: *mut u8, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        let code = unsafe { (self.api.host_register)(pointer.cast(), bytes as usize, 0) };
        self.check("cuMemHostRegister", code, || format!("{bytes} bytes"))
    }

    /// Unlocks what [`Driver::host_register`] has locked in the current context. No copy may be
    /// under way.
    pub fn host_unregister(&self, pointer: *mut u8) -> Result<(), DriverError> {
        // SAFETY: the driver knows what is registered.
        let unlock = || unsafe { (self.api.host_unregister)(pointer.cast()) };
        let code = self.while_nothing_runs("cuMemHostUnregister", unlock)?;
        self.check("cuMemHostUnregister", code, String::new)
    }

    /// Launches a kernel of ours with 64-bit arguments.
    ///
    /// # Safety
    /// The kernel takes exactly these arguments and touches only memory it may touch.
    pub unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        stream: Stream,
        arguments: &mut [u64],
    ) -> Result<(), DriverError> {
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|a| ptr::from_mut(a).cast())
            .collect();
        let [gx, gy, gz]: [c_uint; 3] = grid;
        let [bx, by, bz]: [c_uint; 3] = block;
        // SAFETY: the caller's promise; the driver copies the arguments before it returns.
        let code = unsafe {
            (self.api.launch)(
                function.0,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                0,
                stream.0,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", code, String::new)
    }
}

impl Driver {
    /// The same driver, whose calls of this kind are made when the section says.
    pub fn with_exclusive_sections(self, section: ExclusiveSection) -> Driver {
        Driver {
            exclusive: Some(section),
            ..self
        }
    }

    /// The calling thread works beside an application. What takes long in a load is compilation,
    /// and the linker does that without holding anybody up.
    pub fn works_in_background(&self) -> bool {
        self.exclusive.is_some_and(|section| (section.is_needed)())
    }

    /// `work`, which makes such calls, as one of them.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` where the section had no moment for it: nothing was called.
    pub fn while_nothing_runs<T>(
        &self,
        call: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, DriverError> {
        let Some(section) = self.exclusive.filter(|section| (section.is_needed)()) else {
            return Ok(work());
        };
        let (mut work, mut done) = (Some(work), None);
        let mut once = || done = work.take().map(|work| work());
        (section.open)(&mut once);
        done.ok_or_else(|| DriverError {
            call,
            code: sys::NOT_READY,
            name: self.error_name(sys::NOT_READY),
            detail: "it waits for all kernels that run and lets none begin meanwhile, and kernels ran all the while".into(),
        })
    }
}
