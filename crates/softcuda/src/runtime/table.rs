//! The runtime API, one row per entry point: see `runtime_api!`. Most rows are the driver's
//! function of the same purpose; what needs more is in the modules beside this one.
#![expect(non_snake_case, reason = "names are CUDA's")]
#![expect(
    unused_imports,
    unused_unsafe,
    reason = "each row gets what most rows need"
)]

use std::ffi::{c_char, c_int, c_void};

use crate::driver::graph_exec::{InstantiateParams, UpdateResult};
use crate::driver::graph_nodes::HostParams;
use crate::driver::launch_config::LaunchConfig;
use crate::driver::memory::Location;
use crate::driver::objects::PoolProperties;
use crate::error::{self, CuError};
use crate::objects::fill::FillParams;
use crate::objects::handle::Handle;
use crate::objects::kernel_call::AttributeValue;
use crate::objects::work::EdgeData;
use crate::runtime::device::{self, FunctionAttributes, Properties};
use crate::runtime::graphs::{self, Place, RuntimeKernel, RuntimeNode};
use crate::runtime::images::{self, ChannelFormat, InArray, RuntimeResource, RuntimeSampling};
use crate::runtime::link::{
    Driver, HostFunction, StreamCallback, current_device, driver, retain_primary,
};
use crate::runtime::memory::{self, Box3d, PitchedPointer, PointerAttributes};
use crate::runtime::register::{configuration_error, launch, pop_configuration};
use crate::runtime::registered::{self, kernel_of, kernel_or_handle, symbol};
use crate::runtime::rows::{Extent, Rows};
use crate::runtime::{Dim3, RUNTIME_VERSION, last_error, runtime_api, take_last_error};
use crate::state::{put, put_if};

/// `cudaGetLastError` as in CUDA's reference.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> u32 {
    take_last_error()
}

/// `cudaPeekAtLastError` as in CUDA's reference.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> u32 {
    last_error()
}

/// `cudaGetErrorName` as in CUDA's reference.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    error::runtime_name(code)
        .unwrap_or(c"unrecognized error code")
        .as_ptr()
}

/// `cudaGetErrorString` as in CUDA's reference.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    let text = error::runtime_name(code).and_then(|_| error::text(code));
    text.unwrap_or(c"unrecognized error code").as_ptr()
}

/// `cudaCreateChannelDesc` as in CUDA's reference.
#[unsafe(no_mangle)]
pub extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat {
        bits: [x, y, z, w],
        kind,
    }
}

/// A rectangle of which one side is an array: the other side's address and pitch.
fn to_rows(to: *mut c_void, to_pitch: usize, width: usize, height: usize) -> Rows {
    Rows {
        to,
        to_pitch,
        from: std::ptr::null(),
        from_pitch: 0,
        width,
        height,
    }
}

/// As above, for the source.
fn from_rows(from: *const c_void, from_pitch: usize, width: usize, height: usize) -> Rows {
    Rows {
        to: std::ptr::null_mut(),
        to_pitch: 0,
        from,
        from_pitch,
        width,
        height,
    }
}

/// A place in an array: bytes, rows.
fn within(array: Handle, x: usize, y: usize) -> Option<InArray> {
    Some(InArray { array, at: [x, y] })
}

/// A pointer that the driver fills with an address.
fn address(to: *mut *mut c_void) -> *mut u64 {
    to.cast()
}

/// Limits the runtime's priorities of streams to what the driver has: nothing to do but to ask it.
fn stream(driver: &Driver, to: *mut Handle, flags: u32, priority: c_int) -> crate::error::CuResult {
    // SAFETY: the caller's pointer, which the driver checks for null.
    unsafe { driver.cuStreamCreateWithPriority(to, flags, priority) }
}

runtime_api! {
    cudaDriverGetVersion(to: *mut c_int) = | | driver()?.cuDriverGetVersion(to);
    cudaRuntimeGetVersion(to: *mut c_int) = | | put(to, RUNTIME_VERSION);
    cudaGetDeviceCount(to: *mut c_int) = | | driver()?.cuDeviceGetCount(to);
    cudaGetDevice(to: *mut c_int) = | | put(to, current_device(driver()?));
    cudaSetDevice(device: c_int) = | | device::set_device(device);
    cudaInitDevice(device: c_int, _device_flags: u32, _flags: u32) = | | {
        let driver = driver()?;
        retain_primary(driver, device).map(|_| ())
    };
    cudaChooseDevice(to: *mut c_int, _wanted: *const Properties) = | | { driver()?; put(to, 0) };
    cudaSetValidDevices(_devices: *mut c_int, _count: c_int) = | | driver().map(|_| ());
    cudaSetDeviceFlags(flags: u32) = | | {
        let driver = driver()?;
        driver.cuDevicePrimaryCtxSetFlags_v2(current_device(driver), flags)
    };
    cudaGetDeviceFlags(to: *mut u32) = |driver|
        driver.cuDevicePrimaryCtxGetState(current_device(driver), to, std::ptr::null_mut());
    cudaGetDeviceProperties(to: *mut Properties, ordinal: c_int) = | | device::properties(driver()?, to, ordinal);
    cudaDeviceGetAttribute(to: *mut c_int, which: c_int, device: c_int)
        = | | driver()?.cuDeviceGetAttribute(to, which, device);
    cudaDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int)
        = | | driver()?.cuDeviceGetPCIBusId(to, length, device);
    cudaDeviceGetByPCIBusId(to: *mut c_int, id: *const c_char) = | | driver()?.cuDeviceGetByPCIBusId(to, id);
    cudaDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int)
        = | | driver()?.cuDeviceCanAccessPeer(to, device, peer);
    cudaDeviceGetP2PAttribute(to: *mut c_int, which: c_int, from: c_int, peer: c_int)
        = | | driver()?.cuDeviceGetP2PAttribute(to, which, from, peer);
    cudaDeviceEnablePeerAccess(peer: c_int, flags: u32) = |driver| device::peer_access(driver, peer, Some(flags));
    cudaDeviceDisablePeerAccess(peer: c_int) = |driver| device::peer_access(driver, peer, None);
    cudaDeviceSynchronize() = |driver| driver.cuCtxSynchronize();
    cudaDeviceReset() = |driver| driver.cuDevicePrimaryCtxReset(current_device(driver));
    cudaDeviceGetLimit(to: *mut usize, limit: u32) = |driver| driver.cuCtxGetLimit(to, limit);
    cudaDeviceSetLimit(limit: u32, value: usize) = |driver| driver.cuCtxSetLimit(limit, value);
    cudaDeviceGetCacheConfig(to: *mut u32) = |driver| driver.cuCtxGetCacheConfig(to);
    cudaDeviceSetCacheConfig(config: u32) = |driver| driver.cuCtxSetCacheConfig(config);
    cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int)
        = |driver| driver.cuCtxGetStreamPriorityRange(least, greatest);
    cudaCtxResetPersistingL2Cache() = |driver| driver.cuCtxResetPersistingL2Cache();
    cudaDeviceGetDefaultMemPool(to: *mut Handle, device: c_int) = | | driver()?.cuDeviceGetDefaultMemPool(to, device);
    cudaDeviceGetMemPool(to: *mut Handle, device: c_int) = |driver| driver.cuDeviceGetMemPool(to, device);
    cudaDeviceSetMemPool(device: c_int, pool: Handle) = | | driver()?.cuDeviceSetMemPool(device, pool);
    cudaMemPoolCreate(to: *mut Handle, properties: *const PoolProperties) = |driver| driver.cuMemPoolCreate(to, properties);
    cudaMemPoolDestroy(pool: Handle) = |driver| driver.cuMemPoolDestroy(pool);
    cudaMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize)
        = |driver| driver.cuMemPoolSetAccess(pool, access, count);
    cudaMemPoolGetAccess(to: *mut c_int, pool: Handle, location: *const [c_int; 2])
        = |driver| driver.cuMemPoolGetAccess(to, pool, location);
    cudaMemRangeGetAttribute(to: *mut c_void, bytes: usize, which: c_int, address: *const c_void, length: usize)
        = |driver| driver.cuMemRangeGetAttribute(to, bytes, which, address as u64, length);
    cudaMemRangeGetAttributes(
        to: *const *mut c_void, bytes: *const usize, which: *const c_int, count: usize, address: *const c_void, length: usize)
        = |driver| driver.cuMemRangeGetAttributes(to, bytes, which, count, address as u64, length);
    cudaMemcpyBatchAsync / cudaMemcpyBatchAsync_ptsz(
        to: *const u64, from: *const u64, bytes: *const usize, count: usize, attributes: *const c_void,
        first_with: *const usize, n_attributes: usize, stream: Handle)
        = |driver| driver.cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, first_with, n_attributes, stream);
    cudaUserObjectCreate(to: *mut Handle, data: *mut c_void, destroy: HostFunction, count: u32, flags: u32)
        = |driver| driver.cuUserObjectCreate(to, data, destroy, count, flags);
    cudaUserObjectRetain(object: Handle, count: u32) = |driver| driver.cuUserObjectRetain(object, count);
    cudaUserObjectRelease(object: Handle, count: u32) = |driver| driver.cuUserObjectRelease(object, count);
    cudaGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32)
        = |driver| driver.cuGraphRetainUserObject(graph, object, count, flags);
    cudaGraphReleaseUserObject(graph: Handle, object: Handle, count: u32)
        = |driver| driver.cuGraphReleaseUserObject(graph, object, count);
    cudaStreamGetAttribute / cudaStreamGetAttribute_ptsz(stream: Handle, which: u32, to: *mut AttributeValue)
        = |driver| driver.cuStreamGetAttribute(stream, which, to);
    cudaStreamSetAttribute / cudaStreamSetAttribute_ptsz(stream: Handle, which: u32, value: *const AttributeValue)
        = |driver| driver.cuStreamSetAttribute(stream, which, value);
    cudaDeviceGetSharedMemConfig(to: *mut u32) = |driver| driver.cuCtxGetSharedMemConfig(to);
    cudaDeviceSetSharedMemConfig(config: u32) = |driver| driver.cuCtxSetSharedMemConfig(config);
    cudaFuncSetSharedMemConfig(host: *const c_void, _config: u32) = |driver| kernel_or_handle(driver, host).map(|_| ());
    cudaMemPoolTrimTo(pool: Handle, keep: usize) = | | driver()?.cuMemPoolTrimTo(pool, keep);
    cudaMemPoolGetAttribute(pool: Handle, which: c_int, to: *mut u64)
        = | | driver()?.cuMemPoolGetAttribute(pool, which, to);
    cudaMemPoolSetAttribute(pool: Handle, which: c_int, value: *mut u64)
        = | | driver()?.cuMemPoolSetAttribute(pool, which, value);
    cudaGetDriverEntryPoint / cudaGetDriverEntryPoint_ptsz(
        name: *const c_char, to: *mut *mut c_void, flags: u64, status: *mut c_int)
        = | | driver()?.cuGetProcAddress_v2(name, to, RUNTIME_VERSION, flags, status);
    cudaGetDriverEntryPointByVersion / cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char, to: *mut *mut c_void, version: u32, flags: u64, status: *mut c_int)
        = | | driver()?.cuGetProcAddress_v2(name, to, version as c_int, flags, status);
    cudaGetExportTable(to: *mut *const c_void, _id: *const c_void)
        = | | { put_if(to, std::ptr::null()); Err(CuError::NOT_SUPPORTED) };
    cudaProfilerStart() = |driver| driver.cuProfilerStart();
    cudaProfilerStop() = |driver| driver.cuProfilerStop();
    cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) = | | driver()?.cuThreadExchangeStreamCaptureMode(mode);

    __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut Handle)
        = | | pop_configuration(grid, block, shared, stream);
    __cudaGetKernel(to: *mut Handle, host: *const c_void) = |driver| registered::get_kernel(driver, to, host);
    __cudaLaunchKernel / __cudaLaunchKernel_ptsz(
        kernel: Handle, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize, stream: Handle)
        = |driver| launch(registered::loaded(driver, kernel)?, grid, block, args, shared, stream, false);
    cudaLaunchKernel / cudaLaunchKernel_ptsz(
        host: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize, stream: Handle)
        = |driver| launch(kernel_or_handle(driver, host)?, grid, block, args, shared, stream, false);
    cudaLaunchCooperativeKernel / cudaLaunchCooperativeKernel_ptsz(
        host: *const c_void, grid: Dim3, block: Dim3, args: *mut *mut c_void, shared: usize, stream: Handle)
        = |driver| launch(kernel_or_handle(driver, host)?, grid, block, args, shared, stream, true);
    cudaLaunchKernelExC / cudaLaunchKernelExC_ptsz(
        config: *const LaunchConfig, host: *const c_void, args: *mut *mut c_void) = |driver| {
        if config.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        // `cudaLaunchConfig_t` is laid out as the driver's; its shared memory has 64 bits, of which
        // no launch needs more than the 32 that both have at the same place.
        let ([gx, gy, gz], [bx, by, bz]) = ((*config).grid, (*config).block);
        driver
            .cuLaunchKernelEx(config, kernel_or_handle(driver, host)?, args, std::ptr::null_mut())
            .map_err(|error| configuration_error(error, Dim3 { x: gx, y: gy, z: gz }, Dim3 { x: bx, y: by, z: bz }))
    };
    cudaLaunchHostFunc / cudaLaunchHostFunc_ptsz(stream: Handle, function: HostFunction, data: *mut c_void)
        = |driver| driver.cuLaunchHostFunc(stream, function, data);
    cudaFuncGetAttributes(to: *mut FunctionAttributes, host: *const c_void)
        = |driver| device::function_attributes(driver, to, host);
    cudaFuncSetAttribute(host: *const c_void, which: c_int, value: c_int)
        = |driver| driver.cuKernelSetAttribute(which, value, kernel_or_handle(driver, host)?, current_device(driver));
    cudaFuncSetCacheConfig(host: *const c_void, config: c_int)
        = |driver| driver.cuKernelSetCacheConfig(kernel_or_handle(driver, host)?, config, current_device(driver));
    cudaFuncGetName(to: *mut *const c_char, host: *const c_void)
        = |driver| driver.cuKernelGetName(to, kernel_or_handle(driver, host)?);
    cudaFuncGetParamInfo(host: *const c_void, index: usize, offset: *mut usize, size: *mut usize)
        = |driver| driver.cuKernelGetParamInfo(kernel_or_handle(driver, host)?, index, offset, size);
    cudaGetFuncBySymbol(to: *mut Handle, host: *const c_void)
        = |driver| put(to, device::function_of(driver, host)?);
    cudaGetKernel(to: *mut Handle, host: *const c_void) = |driver| put(to, kernel_of(driver, host)?);
    cudaKernelSetAttributeForDevice(kernel: Handle, which: c_int, value: c_int, device: c_int)
        = |driver| driver.cuKernelSetAttribute(which, value, kernel, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        to: *mut c_int, host: *const c_void, threads: c_int, shared: usize) = |driver| {
        let function = device::function_of(driver, host)?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to, function, threads, shared, 0)
    };
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, host: *const c_void, threads: c_int, shared: usize, flags: u32) = |driver| {
        let function = device::function_of(driver, host)?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to, function, threads, shared, flags)
    };
    cudaOccupancyAvailableDynamicSMemPerBlock(to: *mut usize, host: *const c_void, blocks: c_int, threads: c_int)
        = |driver| {
        driver.cuOccupancyAvailableDynamicSMemPerBlock(to, device::function_of(driver, host)?, blocks, threads)
    };
    cudaOccupancyMaxPotentialClusterSize(to: *mut c_int, host: *const c_void, config: *const LaunchConfig)
        = |driver| driver.cuOccupancyMaxPotentialClusterSize(to, device::function_of(driver, host)?, config);
    cudaOccupancyMaxActiveClusters(to: *mut c_int, host: *const c_void, config: *const LaunchConfig)
        = |driver| driver.cuOccupancyMaxActiveClusters(to, device::function_of(driver, host)?, config);
    cudaLibraryLoadData(
        to: *mut Handle, image: *const c_void, options: *const c_int, values: *mut *mut c_void, count: u32,
        library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32) = |driver|
        driver.cuLibraryLoadData(to, image, options, values, count, library_options, library_values, library_count);
    cudaLibraryLoadFromFile(
        to: *mut Handle, path: *const c_char, options: *const c_int, values: *mut *mut c_void, count: u32,
        library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32) = |driver|
        driver.cuLibraryLoadFromFile(to, path, options, values, count, library_options, library_values, library_count);
    cudaLibraryUnload(library: Handle) = |driver| driver.cuLibraryUnload(library);
    cudaLibraryGetKernel(to: *mut Handle, library: Handle, name: *const c_char)
        = |driver| driver.cuLibraryGetKernel(to, library, name);
    cudaLibraryGetKernelCount(to: *mut u32, library: Handle) = |driver| driver.cuLibraryGetKernelCount(to, library);
    cudaLibraryEnumerateKernels(to: *mut Handle, room: u32, library: Handle)
        = |driver| driver.cuLibraryEnumerateKernels(to, room, library);
    cudaLibraryGetGlobal(to: *mut *mut c_void, bytes: *mut usize, library: Handle, name: *const c_char)
        = |driver| driver.cuLibraryGetGlobal(address(to), bytes, library, name);
    cudaLibraryGetManaged(to: *mut *mut c_void, bytes: *mut usize, library: Handle, name: *const c_char)
        = |driver| driver.cuLibraryGetManaged(address(to), bytes, library, name);
    cudaLibraryGetUnifiedFunction(to: *mut *mut c_void, library: Handle, name: *const c_char)
        = |driver| driver.cuLibraryGetUnifiedFunction(to, library, name);

    cudaMalloc(to: *mut *mut c_void, bytes: usize) = |driver| memory::malloc(driver, to, bytes);
    cudaFree(pointer: *mut c_void) = |driver| driver.cuMemFree_v2(pointer as u64);
    cudaMallocPitch(to: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize)
        = |driver| memory::malloc_pitch(driver, to, pitch, width, height);
    cudaMalloc3D(to: *mut PitchedPointer, extent: Extent) = |driver| memory::malloc_3d(driver, to, extent);
    cudaMallocAsync / cudaMallocAsync_ptsz(to: *mut *mut c_void, bytes: usize, stream: Handle)
        = |driver| driver.cuMemAllocAsync(address(to), bytes, stream);
    cudaMallocFromPoolAsync / cudaMallocFromPoolAsync_ptsz(
        to: *mut *mut c_void, bytes: usize, pool: Handle, stream: Handle)
        = |driver| driver.cuMemAllocFromPoolAsync(address(to), bytes, pool, stream);
    cudaFreeAsync / cudaFreeAsync_ptsz(pointer: *mut c_void, stream: Handle)
        = |driver| driver.cuMemFreeAsync(pointer as u64, stream);
    cudaMallocManaged(to: *mut *mut c_void, bytes: usize, flags: u32)
        = |driver| driver.cuMemAllocManaged(address(to), bytes, flags);
    cudaMallocHost(to: *mut *mut c_void, bytes: usize) = |driver| driver.cuMemHostAlloc(to, bytes, 0);
    cudaHostAlloc(to: *mut *mut c_void, bytes: usize, flags: u32) = |driver| driver.cuMemHostAlloc(to, bytes, flags);
    cudaFreeHost(pointer: *mut c_void) = |driver| {
        if pointer.is_null() { Ok(()) } else { driver.cuMemFreeHost(pointer) }
    };
    cudaHostRegister(pointer: *mut c_void, bytes: usize, flags: u32)
        = |driver| driver.cuMemHostRegister_v2(pointer, bytes, flags);
    cudaHostUnregister(pointer: *mut c_void) = |driver| driver.cuMemHostUnregister(pointer);
    cudaHostGetDevicePointer(to: *mut *mut c_void, pointer: *mut c_void, flags: u32)
        = |driver| driver.cuMemHostGetDevicePointer_v2(address(to), pointer, flags);
    cudaHostGetFlags(to: *mut u32, pointer: *mut c_void) = |driver| driver.cuMemHostGetFlags(to, pointer);
    cudaMemGetInfo(free: *mut usize, total: *mut usize) = |driver| driver.cuMemGetInfo_v2(free, total);
    cudaPointerGetAttributes(to: *mut PointerAttributes, pointer: *const c_void)
        = |driver| memory::pointer_attributes(driver, to, pointer);
    cudaMemPrefetchAsync / cudaMemPrefetchAsync_ptsz(
        pointer: *const c_void, bytes: usize, location: Location, flags: u32, stream: Handle)
        = |driver| driver.cuMemPrefetchAsync_v2(pointer as u64, bytes, location, flags, stream);
    cudaMemAdvise(pointer: *const c_void, bytes: usize, advice: c_int, location: Location)
        = |driver| driver.cuMemAdvise_v2(pointer as u64, bytes, advice, location);

    cudaMemcpy / cudaMemcpy_ptds(to: *mut c_void, from: *const c_void, bytes: usize, kind: u32)
        = |driver| memory::copy(driver, to, from, bytes, kind, None);
    cudaMemcpyAsync / cudaMemcpyAsync_ptsz(
        to: *mut c_void, from: *const c_void, bytes: usize, kind: u32, stream: Handle)
        = |driver| memory::copy(driver, to, from, bytes, kind, Some(stream));
    cudaMemcpyPeer(to: *mut c_void, _to_device: c_int, from: *const c_void, _from_device: c_int, bytes: usize)
        = |driver| driver.cuMemcpyDtoD_v2(to as u64, from as u64, bytes);
    cudaMemcpyPeerAsync(
        to: *mut c_void, _to_device: c_int, from: *const c_void, _from_device: c_int, bytes: usize, stream: Handle)
        = |driver| driver.cuMemcpyDtoDAsync_v2(to as u64, from as u64, bytes, stream);
    cudaMemcpy2D / cudaMemcpy2D_ptds(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: u32)
        = |driver| memory::copy_rows(driver, &Rows { to, to_pitch, from, from_pitch, width, height }, kind, None);
    cudaMemcpy2DAsync / cudaMemcpy2DAsync_ptsz(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: u32, stream: Handle) = |driver| {
        memory::copy_rows(driver, &Rows { to, to_pitch, from, from_pitch, width, height }, kind, Some(stream))
    };
    cudaMemcpy3D / cudaMemcpy3D_ptds(copy: *const Box3d) = |driver| memory::copy_box(driver, copy, None);
    cudaMemcpy3DAsync / cudaMemcpy3DAsync_ptsz(copy: *const Box3d, stream: Handle)
        = |driver| memory::copy_box(driver, copy, Some(stream));
    cudaMallocArray(to: *mut Handle, format: *const ChannelFormat, width: usize, height: usize, flags: u32)
        = |driver| images::malloc_array(driver, to, format, [width, height, 0], flags);
    cudaMalloc3DArray(to: *mut Handle, format: *const ChannelFormat, extent: Extent, flags: u32)
        = |driver| images::malloc_array(driver, to, format, [extent.width, extent.height, extent.depth], flags);
    cudaMallocMipmappedArray(_to: *mut Handle, _format: *const ChannelFormat, _extent: Extent, _levels: u32, _flags: u32)
        = | | { crate::say::say("mipmapped arrays are not there"); Err(CuError::NOT_SUPPORTED) };
    cudaFreeArray(array: Handle) = |driver| if array == 0 { Ok(()) } else { driver.cuArrayDestroy(array) };
    cudaArrayGetInfo(format: *mut ChannelFormat, extent: *mut Extent, flags: *mut u32, array: Handle)
        = |driver| images::array_info(driver, format, extent, flags, array);
    cudaGetChannelDesc(to: *mut ChannelFormat, array: Handle) = |driver| images::channel_format(driver, to, array);
    cudaDeviceGetTexture1DLinearMaxWidth(to: *mut usize, format: *const ChannelFormat, device: c_int)
        = |driver| images::linear_max_width(driver, to, format, device);
    cudaMemcpy2DToArray / cudaMemcpy2DToArray_ptds(
        to: Handle, x: usize, y: usize, from: *const c_void, pitch: usize, width: usize, height: usize, kind: u32)
        = |driver| images::copy_rows(
            driver, &from_rows(from, pitch, width, height), [within(to, x, y), None], kind, None);
    cudaMemcpy2DToArrayAsync / cudaMemcpy2DToArrayAsync_ptsz(
        to: Handle, x: usize, y: usize, from: *const c_void, pitch: usize, width: usize, height: usize, kind: u32,
        stream: Handle)
        = |driver| images::copy_rows(
            driver, &from_rows(from, pitch, width, height), [within(to, x, y), None], kind, Some(stream));
    cudaMemcpy2DFromArray / cudaMemcpy2DFromArray_ptds(
        to: *mut c_void, pitch: usize, from: Handle, x: usize, y: usize, width: usize, height: usize, kind: u32)
        = |driver| images::copy_rows(
            driver, &to_rows(to, pitch, width, height), [None, within(from, x, y)], kind, None);
    cudaMemcpy2DFromArrayAsync / cudaMemcpy2DFromArrayAsync_ptsz(
        to: *mut c_void, pitch: usize, from: Handle, x: usize, y: usize, width: usize, height: usize, kind: u32,
        stream: Handle)
        = |driver| images::copy_rows(
            driver, &to_rows(to, pitch, width, height), [None, within(from, x, y)], kind, Some(stream));
    cudaMemcpy2DArrayToArray / cudaMemcpy2DArrayToArray_ptds(
        to: Handle, to_x: usize, to_y: usize, from: Handle, from_x: usize, from_y: usize, width: usize, height: usize,
        kind: u32)
        = |driver| images::copy_rows(
            driver, &to_rows(std::ptr::null_mut(), 0, width, height),
            [within(to, to_x, to_y), within(from, from_x, from_y)], kind, None);
    cudaMemcpyToArray / cudaMemcpyToArray_ptds(
        to: Handle, x: usize, y: usize, from: *const c_void, bytes: usize, kind: u32)
        = |driver| images::copy_bytes(
            driver, InArray { array: to, at: [x, y] }, [std::ptr::null_mut(), from.cast_mut()], bytes, kind, None);
    cudaMemcpyToArrayAsync / cudaMemcpyToArrayAsync_ptsz(
        to: Handle, x: usize, y: usize, from: *const c_void, bytes: usize, kind: u32, stream: Handle)
        = |driver| images::copy_bytes(
            driver, InArray { array: to, at: [x, y] }, [std::ptr::null_mut(), from.cast_mut()], bytes, kind,
            Some(stream));
    cudaMemcpyFromArray / cudaMemcpyFromArray_ptds(
        to: *mut c_void, from: Handle, x: usize, y: usize, bytes: usize, kind: u32)
        = |driver| images::copy_bytes(
            driver, InArray { array: from, at: [x, y] }, [to, std::ptr::null_mut()], bytes, kind, None);
    cudaMemcpyFromArrayAsync / cudaMemcpyFromArrayAsync_ptsz(
        to: *mut c_void, from: Handle, x: usize, y: usize, bytes: usize, kind: u32, stream: Handle)
        = |driver| images::copy_bytes(
            driver, InArray { array: from, at: [x, y] }, [to, std::ptr::null_mut()], bytes, kind, Some(stream));
    cudaCreateTextureObject(
        to: *mut u64, resource: *const RuntimeResource, sampling: *const RuntimeSampling, view: *const c_void)
        = |driver| images::create_texture(driver, to, resource, sampling, view);
    cudaDestroyTextureObject(object: u64) = |driver| driver.cuTexObjectDestroy(object);
    cudaGetTextureObjectResourceDesc(to: *mut RuntimeResource, object: u64)
        = |driver| images::texture_resource(driver, to, object);
    cudaGetTextureObjectTextureDesc(to: *mut RuntimeSampling, object: u64)
        = |driver| images::texture_sampling(driver, to, object);
    cudaCreateSurfaceObject(to: *mut u64, resource: *const RuntimeResource)
        = |driver| images::create_surface(driver, to, resource);
    cudaDestroySurfaceObject(object: u64) = |driver| driver.cuSurfObjectDestroy(object);
    cudaGetSurfaceObjectResourceDesc(to: *mut RuntimeResource, object: u64)
        = |driver| images::surface_resource(driver, to, object);
    cudaMemcpyToSymbol / cudaMemcpyToSymbol_ptds(
        symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: u32)
        = |driver| memory::copy_to_symbol(driver, symbol, from, bytes, offset, kind, None);
    cudaMemcpyFromSymbol / cudaMemcpyFromSymbol_ptds(
        to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: u32)
        = |driver| memory::copy_from_symbol(driver, to, symbol, bytes, offset, kind, None);
    cudaMemcpyToSymbolAsync / cudaMemcpyToSymbolAsync_ptsz(
        symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: u32, stream: Handle)
        = |driver| memory::copy_to_symbol(driver, symbol, from, bytes, offset, kind, Some(stream));
    cudaMemcpyFromSymbolAsync / cudaMemcpyFromSymbolAsync_ptsz(
        to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: u32, stream: Handle)
        = |driver| memory::copy_from_symbol(driver, to, symbol, bytes, offset, kind, Some(stream));
    cudaGetSymbolAddress(to: *mut *mut c_void, host: *const c_void)
        = |driver| put(to, symbol(driver, host)?.0 as *mut c_void);
    cudaGetSymbolSize(to: *mut usize, host: *const c_void) = |driver| put(to, symbol(driver, host)?.1);
    cudaMemset / cudaMemset_ptds(pointer: *mut c_void, value: c_int, bytes: usize)
        = |driver| driver.cuMemsetD8_v2(pointer as u64, value as u8, bytes);
    cudaMemsetAsync / cudaMemsetAsync_ptsz(pointer: *mut c_void, value: c_int, bytes: usize, stream: Handle)
        = |driver| driver.cuMemsetD8Async(pointer as u64, value as u8, bytes, stream);
    cudaMemset2D / cudaMemset2D_ptds(pointer: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize)
        = |driver| driver.cuMemsetD2D8_v2(pointer as u64, pitch, value as u8, width, height);
    cudaMemset2DAsync / cudaMemset2DAsync_ptsz(
        pointer: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle)
        = |driver| driver.cuMemsetD2D8Async(pointer as u64, pitch, value as u8, width, height, stream);
    cudaMemset3D / cudaMemset3D_ptds(pointer: PitchedPointer, value: c_int, extent: Extent)
        = |driver| memory::set_box(driver, pointer, value, extent, None);
    cudaMemset3DAsync / cudaMemset3DAsync_ptsz(
        pointer: PitchedPointer, value: c_int, extent: Extent, stream: Handle)
        = |driver| memory::set_box(driver, pointer, value, extent, Some(stream));

    cudaStreamCreate(to: *mut Handle) = |driver| driver.cuStreamCreate(to, 0);
    cudaStreamCreateWithFlags(to: *mut Handle, flags: u32) = |driver| driver.cuStreamCreate(to, flags);
    cudaStreamCreateWithPriority(to: *mut Handle, flags: u32, priority: c_int)
        = |driver| stream(driver, to, flags, priority);
    cudaStreamDestroy(stream: Handle) = |driver| driver.cuStreamDestroy_v2(stream);
    cudaStreamSynchronize / cudaStreamSynchronize_ptsz(stream: Handle) = |driver| driver.cuStreamSynchronize(stream);
    cudaStreamQuery / cudaStreamQuery_ptsz(stream: Handle) = |driver| driver.cuStreamQuery(stream);
    cudaStreamGetPriority / cudaStreamGetPriority_ptsz(stream: Handle, to: *mut c_int)
        = |driver| driver.cuStreamGetPriority(stream, to);
    cudaStreamGetFlags / cudaStreamGetFlags_ptsz(stream: Handle, to: *mut u32)
        = |driver| driver.cuStreamGetFlags(stream, to);
    cudaStreamGetId / cudaStreamGetId_ptsz(stream: Handle, to: *mut u64) = |driver| driver.cuStreamGetId(stream, to);
    cudaStreamGetDevice / cudaStreamGetDevice_ptsz(stream: Handle, to: *mut c_int)
        = |driver| driver.cuStreamGetDevice(stream, to);
    cudaStreamWaitEvent / cudaStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32)
        = |driver| driver.cuStreamWaitEvent(stream, event, flags);
    cudaStreamAddCallback / cudaStreamAddCallback_ptsz(
        stream: Handle, callback: StreamCallback, data: *mut c_void, flags: u32)
        = |driver| driver.cuStreamAddCallback(stream, callback, data, flags);
    cudaStreamAttachMemAsync / cudaStreamAttachMemAsync_ptsz(
        stream: Handle, pointer: *mut c_void, bytes: usize, flags: u32)
        = |driver| driver.cuStreamAttachMemAsync(stream, pointer as u64, bytes, flags);
    cudaStreamCopyAttributes / cudaStreamCopyAttributes_ptsz(to: Handle, from: Handle)
        = |driver| driver.cuStreamCopyAttributes(to, from);
    cudaStreamBeginCapture / cudaStreamBeginCapture_ptsz(stream: Handle, mode: c_int)
        = |driver| driver.cuStreamBeginCapture_v2(stream, mode);
    cudaStreamEndCapture / cudaStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle)
        = |driver| driver.cuStreamEndCapture(stream, graph);
    cudaStreamIsCapturing / cudaStreamIsCapturing_ptsz(stream: Handle, to: *mut c_int)
        = |driver| driver.cuStreamIsCapturing(stream, to);
    cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_ptsz(
        stream: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle,
        data: *mut *const EdgeData, count: *mut usize)
        = |driver| driver.cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, data, count);
    cudaStreamBeginCaptureToGraph / cudaStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, mode: c_int)
        = |driver| driver.cuStreamBeginCaptureToGraph(stream, graph, nodes, data, count, mode);
    cudaStreamUpdateCaptureDependencies / cudaStreamUpdateCaptureDependencies_ptsz(
        stream: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, flags: u32)
        = |driver| driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes, data, count, flags);

    cudaGraphCreate(to: *mut Handle, flags: u32) = |driver| driver.cuGraphCreate(to, flags);
    cudaGraphDestroy(graph: Handle) = |driver| driver.cuGraphDestroy(graph);
    cudaGraphClone(to: *mut Handle, graph: Handle) = |driver| driver.cuGraphClone(to, graph);
    cudaGraphNodeFindInClone(to: *mut Handle, node: Handle, copy: Handle)
        = |driver| driver.cuGraphNodeFindInClone(to, node, copy);
    cudaGraphNodeGetType(node: Handle, to: *mut c_int) = |driver| driver.cuGraphNodeGetType(node, to);
    cudaGraphDestroyNode(node: Handle) = |driver| driver.cuGraphDestroyNode(node);
    cudaGraphGetNodes(graph: Handle, to: *mut Handle, count: *mut usize)
        = |driver| driver.cuGraphGetNodes(graph, to, count);
    cudaGraphGetRootNodes(graph: Handle, to: *mut Handle, count: *mut usize)
        = |driver| driver.cuGraphGetRootNodes(graph, to, count);
    cudaGraphGetEdges(
        graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize)
        = |driver| driver.cuGraphGetEdges_v2(graph, from, to, data, count);
    cudaGraphNodeGetDependencies(node: Handle, from: *mut Handle, data: *mut EdgeData, count: *mut usize)
        = |driver| driver.cuGraphNodeGetDependencies_v2(node, from, data, count);
    cudaGraphNodeGetDependentNodes(node: Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize)
        = |driver| driver.cuGraphNodeGetDependentNodes_v2(node, to, data, count);
    cudaGraphAddDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData, count: usize)
        = |driver| driver.cuGraphAddDependencies_v2(graph, from, to, data, count);
    cudaGraphRemoveDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData, count: usize)
        = |driver| driver.cuGraphRemoveDependencies_v2(graph, from, to, data, count);
    cudaGraphAddNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize,
        params: *mut RuntimeNode)
        = |driver| graphs::add_any(driver, Place { to, graph, nodes, count }, data, params);
    cudaGraphConditionalHandleCreate(to: *mut u64, graph: Handle, default: u32, flags: u32)
        = |driver| driver.cuGraphConditionalHandleCreate(to, graph, 0, default, flags);
    cudaGraphNodeSetParams(node: Handle, params: *mut RuntimeNode)
        = |driver| graphs::set_any(driver, None, node, params);
    cudaGraphAddKernelNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const RuntimeKernel)
        = |driver| graphs::add_kernel(driver, Place { to, graph, nodes, count }, params);
    cudaGraphKernelNodeGetParams(node: Handle, to: *mut RuntimeKernel)
        = |driver| graphs::get_kernel(driver, node, to);
    cudaGraphKernelNodeSetParams(node: Handle, params: *const RuntimeKernel)
        = |driver| graphs::set_kernel(driver, None, node, params);
    cudaGraphKernelNodeGetAttribute(node: Handle, which: u32, to: *mut AttributeValue)
        = |driver| driver.cuGraphKernelNodeGetAttribute(node, which, to);
    cudaGraphKernelNodeSetAttribute(node: Handle, which: u32, value: *const AttributeValue)
        = |driver| driver.cuGraphKernelNodeSetAttribute(node, which, value);
    cudaGraphKernelNodeCopyAttributes(to: Handle, from: Handle)
        = |driver| driver.cuGraphKernelNodeCopyAttributes(to, from);
    cudaGraphAddMemcpyNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const Box3d)
        = |driver| graphs::add_copy(driver, Place { to, graph, nodes, count }, params);
    cudaGraphAddMemcpyNode1D(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, target: *mut c_void,
        source: *const c_void, bytes: usize, kind: u32)
        = |driver| graphs::add_row(
            driver, Place { to, graph, nodes, count }, [target as u64, source as u64], bytes, kind);
    cudaGraphAddMemcpyNodeToSymbol(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, symbol: *const c_void,
        source: *const c_void, bytes: usize, offset: usize, kind: u32) = |driver| {
        let target = memory::part_of_symbol(driver, symbol, bytes, offset)?;
        graphs::add_row(driver, Place { to, graph, nodes, count }, [target, source as u64], bytes, kind)
    };
    cudaGraphAddMemcpyNodeFromSymbol(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, target: *mut c_void,
        symbol: *const c_void, bytes: usize, offset: usize, kind: u32) = |driver| {
        let source = memory::part_of_symbol(driver, symbol, bytes, offset)?;
        graphs::add_row(driver, Place { to, graph, nodes, count }, [target as u64, source], bytes, kind)
    };
    cudaGraphMemcpyNodeSetParams(node: Handle, params: *const Box3d)
        = |driver| graphs::set_copy(driver, None, node, params);
    cudaGraphMemcpyNodeSetParams1D(
        node: Handle, target: *mut c_void, source: *const c_void, bytes: usize, kind: u32)
        = |driver| graphs::set_row(driver, None, node, [target as u64, source as u64], bytes, kind);
    cudaGraphAddMemsetNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const FillParams)
        = |driver| driver.cuGraphAddMemsetNode(to, graph, nodes, count, params, graphs::current(driver)?);
    cudaGraphMemsetNodeGetParams(node: Handle, to: *mut FillParams)
        = |driver| driver.cuGraphMemsetNodeGetParams(node, to);
    cudaGraphMemsetNodeSetParams(node: Handle, params: *const FillParams)
        = |driver| driver.cuGraphMemsetNodeSetParams(node, params);
    cudaGraphAddHostNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const HostParams)
        = |driver| driver.cuGraphAddHostNode(to, graph, nodes, count, params);
    cudaGraphHostNodeGetParams(node: Handle, to: *mut HostParams) = |driver| driver.cuGraphHostNodeGetParams(node, to);
    cudaGraphHostNodeSetParams(node: Handle, params: *const HostParams)
        = |driver| driver.cuGraphHostNodeSetParams(node, params);
    cudaGraphAddChildGraphNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, child: Handle)
        = |driver| driver.cuGraphAddChildGraphNode(to, graph, nodes, count, child);
    cudaGraphChildGraphNodeGetGraph(node: Handle, to: *mut Handle)
        = |driver| driver.cuGraphChildGraphNodeGetGraph(node, to);
    cudaGraphAddEmptyNode(to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize)
        = |driver| driver.cuGraphAddEmptyNode(to, graph, nodes, count);
    cudaGraphAddEventRecordNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle)
        = |driver| driver.cuGraphAddEventRecordNode(to, graph, nodes, count, event);
    cudaGraphEventRecordNodeGetEvent(node: Handle, to: *mut Handle)
        = |driver| driver.cuGraphEventRecordNodeGetEvent(node, to);
    cudaGraphEventRecordNodeSetEvent(node: Handle, event: Handle)
        = |driver| driver.cuGraphEventRecordNodeSetEvent(node, event);
    cudaGraphAddEventWaitNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle)
        = |driver| driver.cuGraphAddEventWaitNode(to, graph, nodes, count, event);
    cudaGraphEventWaitNodeGetEvent(node: Handle, to: *mut Handle)
        = |driver| driver.cuGraphEventWaitNodeGetEvent(node, to);
    cudaGraphEventWaitNodeSetEvent(node: Handle, event: Handle)
        = |driver| driver.cuGraphEventWaitNodeSetEvent(node, event);
    cudaGraphInstantiate(to: *mut Handle, graph: Handle, flags: u64)
        = |driver| driver.cuGraphInstantiateWithFlags(to, graph, flags);
    cudaGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, flags: u64)
        = |driver| driver.cuGraphInstantiateWithFlags(to, graph, flags);
    cudaGraphInstantiateWithParams / cudaGraphInstantiateWithParams_ptsz(
        to: *mut Handle, graph: Handle, params: *mut InstantiateParams)
        = |driver| driver.cuGraphInstantiateWithParams(to, graph, params);
    cudaGraphExecGetFlags(exec: Handle, to: *mut u64) = |driver| driver.cuGraphExecGetFlags(exec, to);
    cudaGraphExecDestroy(exec: Handle) = |driver| driver.cuGraphExecDestroy(exec);
    cudaGraphUpload / cudaGraphUpload_ptsz(exec: Handle, stream: Handle)
        = |driver| driver.cuGraphUpload(exec, stream);
    cudaGraphLaunch / cudaGraphLaunch_ptsz(exec: Handle, stream: Handle)
        = |driver| driver.cuGraphLaunch(exec, stream);
    cudaGraphExecUpdate(exec: Handle, graph: Handle, result: *mut UpdateResult)
        = |driver| driver.cuGraphExecUpdate_v2(exec, graph, result);
    cudaGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32)
        = |driver| driver.cuGraphNodeSetEnabled(exec, node, enabled);
    cudaGraphNodeGetEnabled(exec: Handle, node: Handle, to: *mut u32)
        = |driver| driver.cuGraphNodeGetEnabled(exec, node, to);
    cudaGraphExecNodeSetParams(exec: Handle, node: Handle, params: *mut RuntimeNode)
        = |driver| graphs::set_any(driver, Some(exec), node, params);
    cudaGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: *const RuntimeKernel)
        = |driver| graphs::set_kernel(driver, Some(exec), node, params);
    cudaGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, params: *const Box3d)
        = |driver| graphs::set_copy(driver, Some(exec), node, params);
    cudaGraphExecMemcpyNodeSetParams1D(
        exec: Handle, node: Handle, target: *mut c_void, source: *const c_void, bytes: usize, kind: u32)
        = |driver| graphs::set_row(driver, Some(exec), node, [target as u64, source as u64], bytes, kind);
    cudaGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, params: *const FillParams)
        = |driver| driver.cuGraphExecMemsetNodeSetParams(exec, node, params, graphs::current(driver)?);
    cudaGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: *const HostParams)
        = |driver| driver.cuGraphExecHostNodeSetParams(exec, node, params);
    cudaGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle)
        = |driver| driver.cuGraphExecChildGraphNodeSetParams(exec, node, child);
    cudaGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle)
        = |driver| driver.cuGraphExecEventRecordNodeSetEvent(exec, node, event);
    cudaGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle)
        = |driver| driver.cuGraphExecEventWaitNodeSetEvent(exec, node, event);

    cudaEventCreate(to: *mut Handle) = |driver| driver.cuEventCreate(to, 0);
    cudaEventCreateWithFlags(to: *mut Handle, flags: u32) = |driver| driver.cuEventCreate(to, flags);
    cudaEventDestroy(event: Handle) = |driver| driver.cuEventDestroy_v2(event);
    cudaEventRecord / cudaEventRecord_ptsz(event: Handle, stream: Handle) = |driver| driver.cuEventRecord(event, stream);
    cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: u32)
        = |driver| driver.cuEventRecordWithFlags(event, stream, flags);
    cudaEventQuery(event: Handle) = |driver| driver.cuEventQuery(event);
    cudaEventSynchronize(event: Handle) = |driver| driver.cuEventSynchronize(event);
    cudaEventElapsedTime(to: *mut f32, start: Handle, end: Handle)
        = |driver| driver.cuEventElapsedTime_v2(to, start, end);
}
