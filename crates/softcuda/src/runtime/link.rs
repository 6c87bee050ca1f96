//! The driver as this library sees it: found by name, entered through its exported symbols.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock};

use crate::driver::graph_exec::{InstantiateParams, UpdateResult};
use crate::driver::graph_nodes::{HostParams, KernelParams2, NodeParams};
use crate::driver::images::View;
use crate::driver::launch_config::LaunchConfig;
use crate::driver::memory::Location;
use crate::driver::objects::PoolProperties;
use crate::driver::rows::Copy2d;
use crate::error::{CuError, CuResult};
use crate::objects::fill::FillParams;
use crate::objects::handle::{Handle, lock};
use crate::objects::image::{Descriptor3d, Resource, Sampling};
use crate::objects::kernel_call::AttributeValue;
use crate::objects::transfer::Copy3d;
use crate::objects::work::EdgeData;

pub(crate) type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
pub(crate) type StreamCallback = Option<unsafe extern "C" fn(Handle, u32, *mut c_void)>;

macro_rules! imports {
    ($( $name:ident ($($arg:ident : $ty:ty),* $(,)?); )*) => {
        /// Entry points of `libcuda.so.1`, under their exported names.
        #[expect(non_snake_case, reason = "names are CUDA's")]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> u32,)*
        }

        #[expect(non_snake_case, clippy::too_many_arguments, reason = "names and signatures are CUDA's")]
        impl Driver {
            /// # Safety
            /// `library` must be an open CUDA driver library that is never closed.
            unsafe fn resolve(library: *mut c_void) -> Result<Driver, &'static str> {
                Ok(Driver {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0");
                        // SAFETY: the library is open; the name ends in NUL.
                        let address = unsafe { libc::dlsym(library, symbol.as_ptr().cast()) };
                        if address.is_null() {
                            return Err(stringify!($name));
                        }
                        // SAFETY: a driver library's symbol of that name has this signature.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> u32>(address) }
                    },)*
                })
            }

            $(
                /// # Safety
                /// As for the driver's function.
                pub(crate) unsafe fn $name(&self $(, $arg: $ty)*) -> CuResult {
                    // SAFETY: the caller's promise.
                    match unsafe { (self.$name)($($arg),*) } {
                        0 => Ok(()),
                        code => Err(CuError(code)),
                    }
                }
            )*
        }
    };
}

imports! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: *mut c_int);
    cuGetProcAddress_v2(symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    cuDeviceGetCount(to: *mut c_int);
    cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int);
    cuDeviceTotalMem_v2(to: *mut usize, device: c_int);
    cuDeviceGetAttribute(to: *mut c_int, which: c_int, device: c_int);
    cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetByPCIBusId(to: *mut c_int, id: *const c_char);
    cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int);
    cuDeviceGetDefaultMemPool(to: *mut Handle, device: c_int);
    cuDeviceGetMemPool(to: *mut Handle, device: c_int);
    cuDeviceSetMemPool(device: c_int, pool: Handle);
    cuMemPoolTrimTo(pool: Handle, keep: usize);
    cuMemPoolGetAttribute(pool: Handle, which: c_int, to: *mut u64);
    cuMemPoolSetAttribute(pool: Handle, which: c_int, value: *mut u64);
    cuCtxGetDevice(to: *mut c_int);
    cuCtxEnablePeerAccess(peer: Handle, flags: u32);
    cuCtxDisablePeerAccess(peer: Handle);
    cuDeviceGetP2PAttribute(to: *mut c_int, which: c_int, from: c_int, peer: c_int);
    cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxReset(device: c_int);
    cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: u32);
    cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int);
    cuCtxGetCurrent(to: *mut Handle);
    cuCtxSetCurrent(context: Handle);
    cuCtxSynchronize();
    cuCtxGetLimit(to: *mut usize, limit: u32);
    cuCtxSetLimit(limit: u32, value: usize);
    cuCtxGetCacheConfig(to: *mut u32);
    cuCtxSetCacheConfig(config: u32);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxResetPersistingL2Cache();
    cuLibraryLoadData(to: *mut Handle, image: *const c_void, options: *const c_int, values: *mut *mut c_void,
        count: u32, library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32);
    cuLibraryLoadFromFile(to: *mut Handle, path: *const c_char, options: *const c_int, values: *mut *mut c_void,
        count: u32, library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32);
    cuLibraryUnload(library: Handle);
    cuLibraryGetKernel(to: *mut Handle, library: Handle, name: *const c_char);
    cuLibraryGetKernelCount(to: *mut u32, library: Handle);
    cuLibraryEnumerateKernels(to: *mut Handle, room: u32, library: Handle);
    cuLibraryGetGlobal(address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    cuLibraryGetManaged(address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    cuLibraryGetUnifiedFunction(to: *mut *mut c_void, library: Handle, name: *const c_char);
    cuKernelGetFunction(to: *mut Handle, kernel: Handle);
    cuKernelGetName(to: *mut *const c_char, kernel: Handle);
    cuKernelGetParamInfo(kernel: Handle, index: usize, offset: *mut usize, size: *mut usize);
    cuKernelGetAttribute(to: *mut c_int, which: c_int, kernel: Handle, device: c_int);
    cuKernelSetAttribute(which: c_int, value: c_int, kernel: Handle, device: c_int);
    cuKernelSetCacheConfig(kernel: Handle, config: c_int, device: c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, function: Handle, threads: c_int, shared: usize, flags: u32);
    cuOccupancyAvailableDynamicSMemPerBlock(to: *mut usize, function: Handle, blocks: c_int, threads: c_int);
    cuOccupancyMaxPotentialClusterSize(to: *mut c_int, function: Handle, config: *const LaunchConfig);
    cuOccupancyMaxActiveClusters(to: *mut c_int, function: Handle, config: *const LaunchConfig);
    cuLaunchKernel(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx(config: *const LaunchConfig, function: Handle, params: *mut *mut c_void,
        extra: *mut *mut c_void);
    cuLaunchCooperativeKernel(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: Handle, params: *mut *mut c_void);
    cuLaunchHostFunc(stream: Handle, function: HostFunction, data: *mut c_void);
    cuMemAlloc_v2(to: *mut u64, bytes: usize);
    cuMemAllocPitch_v2(to: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
    cuMemFree_v2(address: u64);
    cuMemAllocAsync(to: *mut u64, bytes: usize, stream: Handle);
    cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: Handle, stream: Handle);
    cuMemFreeAsync(address: u64, stream: Handle);
    cuMemAllocManaged(to: *mut u64, bytes: usize, flags: u32);
    cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: u32);
    cuMemFreeHost(pointer: *mut c_void);
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32);
    cuMemHostUnregister(pointer: *mut c_void);
    cuMemHostGetDevicePointer_v2(to: *mut u64, pointer: *mut c_void, flags: u32);
    cuMemHostGetFlags(to: *mut u32, pointer: *mut c_void);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuPointerGetAttributes(count: u32, attributes: *const c_int, to: *const *mut c_void, address: u64);
    cuMemPrefetchAsync_v2(address: u64, bytes: usize, location: Location, flags: u32, stream: Handle);
    cuMemAdvise_v2(address: u64, bytes: usize, advice: c_int, location: Location);
    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpy2DUnaligned_v2(copy: *const Copy2d);
    cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: Handle);
    cuMemcpy3D_v2(copy: *const Copy3d);
    cuMemcpy3DAsync_v2(copy: *const Copy3d, stream: Handle);
    cuArray3DCreate_v2(to: *mut Handle, descriptor: *const Descriptor3d);
    cuArray3DGetDescriptor_v2(to: *mut Descriptor3d, array: Handle);
    cuArrayDestroy(array: Handle);
    cuDeviceGetTexture1DLinearMaxWidth(to: *mut usize, format: u32, channels: u32, device: c_int);
    cuTexObjectCreate(to: *mut u64, resource: *const Resource, sampling: *const Sampling, view: *const View);
    cuTexObjectDestroy(object: u64);
    cuTexObjectGetResourceDesc(to: *mut Resource, object: u64);
    cuTexObjectGetTextureDesc(to: *mut Sampling, object: u64);
    cuSurfObjectCreate(to: *mut u64, resource: *const Resource);
    cuSurfObjectDestroy(object: u64);
    cuSurfObjectGetResourceDesc(to: *mut Resource, object: u64);
    cuMemsetD8_v2(address: u64, value: u8, count: usize);
    cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD2D8_v2(address: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async(address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
    cuStreamCreate(to: *mut Handle, flags: u32);
    cuStreamCreateWithPriority(to: *mut Handle, flags: u32, priority: c_int);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamGetPriority(stream: Handle, to: *mut c_int);
    cuStreamGetFlags(stream: Handle, to: *mut u32);
    cuStreamGetId(stream: Handle, to: *mut u64);
    cuStreamGetDevice(stream: Handle, to: *mut c_int);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuStreamAddCallback(stream: Handle, callback: StreamCallback, data: *mut c_void, flags: u32);
    cuStreamAttachMemAsync(stream: Handle, address: u64, bytes: usize, flags: u32);
    cuStreamCopyAttributes(to: Handle, from: Handle);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_int);
    cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData,
        count: usize, mode: c_int);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuStreamIsCapturing(stream: Handle, to: *mut c_int);
    cuStreamGetCaptureInfo_v3(stream: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle,
        nodes: *mut *const Handle, data: *mut *const EdgeData, count: *mut usize);
    cuStreamUpdateCaptureDependencies_v2(stream: Handle, nodes: *const Handle, data: *const EdgeData, count: usize,
        flags: u32);
    cuGraphCreate(to: *mut Handle, flags: u32);
    cuGraphDestroy(graph: Handle);
    cuGraphClone(to: *mut Handle, graph: Handle);
    cuGraphNodeFindInClone(to: *mut Handle, node: Handle, copy: Handle);
    cuGraphNodeGetType(node: Handle, to: *mut c_int);
    cuGraphDestroyNode(node: Handle);
    cuGraphGetNodes(graph: Handle, to: *mut Handle, count: *mut usize);
    cuGraphGetRootNodes(graph: Handle, to: *mut Handle, count: *mut usize);
    cuGraphGetEdges_v2(graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize);
    cuGraphNodeGetDependencies_v2(node: Handle, from: *mut Handle, data: *mut EdgeData, count: *mut usize);
    cuGraphNodeGetDependentNodes_v2(node: Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize);
    cuGraphAddDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData,
        count: usize);
    cuGraphRemoveDependencies_v2(graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData,
        count: usize);
    cuGraphAddNode_v2(to: *mut Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize,
        params: *mut NodeParams);
    cuGraphNodeSetParams(node: Handle, params: *mut NodeParams);
    cuGraphAddKernelNode_v2(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize,
        params: *const KernelParams2);
    cuGraphKernelNodeGetParams_v2(node: Handle, to: *mut KernelParams2);
    cuGraphKernelNodeSetParams_v2(node: Handle, params: *const KernelParams2);
    cuGraphKernelNodeGetAttribute(node: Handle, which: u32, to: *mut AttributeValue);
    cuGraphKernelNodeSetAttribute(node: Handle, which: u32, value: *const AttributeValue);
    cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle);
    cuGraphAddMemcpyNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const Copy3d,
        context: Handle);
    cuGraphMemcpyNodeSetParams(node: Handle, params: *const Copy3d);
    cuGraphAddMemsetNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize,
        params: *const FillParams, context: Handle);
    cuGraphMemsetNodeGetParams(node: Handle, to: *mut FillParams);
    cuGraphMemsetNodeSetParams(node: Handle, params: *const FillParams);
    cuGraphAddHostNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const HostParams);
    cuGraphHostNodeGetParams(node: Handle, to: *mut HostParams);
    cuGraphHostNodeSetParams(node: Handle, params: *const HostParams);
    cuGraphAddChildGraphNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, child: Handle);
    cuGraphChildGraphNodeGetGraph(node: Handle, to: *mut Handle);
    cuGraphAddEmptyNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize);
    cuGraphAddEventRecordNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle);
    cuGraphEventRecordNodeGetEvent(node: Handle, to: *mut Handle);
    cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle);
    cuGraphAddEventWaitNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle);
    cuGraphEventWaitNodeGetEvent(node: Handle, to: *mut Handle);
    cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle);
    cuGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, flags: u64);
    cuGraphInstantiateWithParams(to: *mut Handle, graph: Handle, params: *mut InstantiateParams);
    cuGraphExecGetFlags(exec: Handle, to: *mut u64);
    cuGraphExecDestroy(exec: Handle);
    cuGraphUpload(exec: Handle, stream: Handle);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: *mut UpdateResult);
    cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32);
    cuMemPoolCreate(to: *mut Handle, properties: *const PoolProperties);
    cuMemPoolDestroy(pool: Handle);
    cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize);
    cuMemPoolGetAccess(to: *mut c_int, pool: Handle, location: *const [c_int; 2]);
    cuMemRangeGetAttribute(to: *mut c_void, bytes: usize, which: c_int, address: u64, length: usize);
    cuMemRangeGetAttributes(to: *const *mut c_void, bytes: *const usize, which: *const c_int, count: usize, address: u64,
        length: usize);
    cuMemcpyBatchAsync_v2(to: *const u64, from: *const u64, bytes: *const usize, count: usize, attributes: *const c_void,
        first_with: *const usize, n_attributes: usize, stream: Handle);
    cuUserObjectCreate(to: *mut Handle, data: *mut c_void, destroy: HostFunction, count: u32, flags: u32);
    cuUserObjectRetain(object: Handle, count: u32);
    cuUserObjectRelease(object: Handle, count: u32);
    cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32);
    cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32);
    cuStreamGetAttribute(stream: Handle, which: u32, to: *mut AttributeValue);
    cuStreamSetAttribute(stream: Handle, which: u32, value: *const AttributeValue);
    cuCtxGetSharedMemConfig(to: *mut u32);
    cuCtxSetSharedMemConfig(config: u32);
    cuGraphConditionalHandleCreate(to: *mut u64, graph: Handle, context: Handle, default: u32, flags: u32);
    cuGraphNodeGetEnabled(exec: Handle, node: Handle, to: *mut u32);
    cuGraphExecNodeSetParams(exec: Handle, node: Handle, params: *mut NodeParams);
    cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: *const KernelParams2);
    cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, params: *const Copy3d, context: Handle);
    cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, params: *const FillParams, context: Handle);
    cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: *const HostParams);
    cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle);
    cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle);
    cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle);
    cuEventCreate(to: *mut Handle, flags: u32);
    cuEventDestroy_v2(event: Handle);
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventQuery(event: Handle);
    cuEventSynchronize(event: Handle);
    cuEventElapsedTime_v2(to: *mut f32, start: Handle, end: Handle);
    cuProfilerStart();
    cuProfilerStop();
}

/// The driver, initialised by the first call.
pub(crate) fn driver() -> Result<&'static Driver, CuError> {
    static DRIVER: OnceLock<Result<Driver, CuError>> = OnceLock::new();
    let found = DRIVER.get_or_init(|| {
        const LIBRARY: &CStr = c"libcuda.so.1";
        // SAFETY: opens the driver by its name; it is never closed.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            // What the runtime tells where no driver is installed.
            return Err(CuError::INSUFFICIENT_DRIVER);
        }
        // SAFETY: as opened above.
        let driver = unsafe { Driver::resolve(library) }.map_err(|symbol| {
            crate::say::say(&format!(
                "the CUDA driver has no `{symbol}`: it is older than CUDA 13"
            ));
            CuError::INSUFFICIENT_DRIVER
        })?;
        // SAFETY: no pointers.
        unsafe { driver.cuInit(0) }?;
        Ok(driver)
    });
    found.as_ref().map_err(|&error| error)
}

/// A primary context's handle, held by nobody unless the program does.
pub(crate) fn unretained(driver: &Driver, device: c_int) -> Result<Handle, CuError> {
    let mut context = 0;
    // SAFETY: a valid pointer.
    unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
    // SAFETY: no pointers.
    unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) }?;
    Ok(context)
}

/// Primary contexts that the runtime holds, by device.
static HELD: Mutex<BTreeMap<c_int, Handle>> = Mutex::new(BTreeMap::new());

/// The runtime holds the primary context of a device.
pub(crate) fn is_retained(device: c_int) -> bool {
    lock(&HELD).contains_key(&device)
}

/// Holds a primary context, once for the process.
pub(crate) fn retain_primary(driver: &Driver, device: c_int) -> Result<Handle, CuError> {
    if let Some(held) = lock(&HELD).get(&device) {
        return Ok(*held);
    }
    let mut context = 0;
    // SAFETY: a valid pointer.
    unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
    let earlier = lock(&HELD).insert(device, context);
    if earlier.is_some() {
        // Another thread was faster.
        // SAFETY: no pointers.
        unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) }?;
    }
    Ok(context)
}

/// The device of the context that is current; the first if none is.
pub(crate) fn current_device(driver: &Driver) -> c_int {
    let mut device = 0;
    // SAFETY: a valid pointer.
    match unsafe { driver.cuCtxGetDevice(&raw mut device) } {
        Ok(()) => device,
        Err(_) => 0,
    }
}
