//! The driver API, one row per entry point: see `driver_api!` for the columns. Names and versions
//! are those of `cuda.h` of CUDA 13.0; where that header maps a name to `_vN`, the row carries
//! both.
#![expect(non_snake_case, reason = "names and signatures are CUDA's")]

use std::ffi::{c_char, c_int, c_void};

use crate::driver::arrays::Descriptor;
use crate::driver::graph_exec::{InstantiateParams, UpdateResult};
use crate::driver::graph_nodes::{HostParams, KernelParams, KernelParams2, NodeParams};
use crate::driver::images::View;
use crate::driver::launch_config::LaunchConfig;
use crate::driver::memory::Location;
use crate::driver::rows::Copy2d;
use crate::driver::tensor_map::{self, Encoded};
use crate::driver::{
    arrays, capture, context, copy, device, fill, function, graph_exec, graph_nodes, graphs,
    images, init, launch, linker, memory, module, objects, peers, procs, rows, streams, virtuals,
};
use crate::error::CuResult;
use crate::objects::fill::FillParams;
use crate::objects::handle::Handle;
use crate::objects::image::{Descriptor3d, Resource, Sampling};
use crate::objects::kernel_call::AttributeValue;
use crate::objects::transfer::Copy3d;
use crate::objects::work::EdgeData;
use crate::stub::driver_api;

type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;
type StreamCallback = Option<unsafe extern "C" fn(Handle, u32, *mut c_void)>;
type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// This table is where entry points are found.
unsafe fn get_proc_address(
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { procs::get_proc_address(ENTRIES, symbol, to, version, flags) }
}

unsafe fn get_proc_address_v2(
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: as above.
    unsafe { procs::get_proc_address_v2(ENTRIES, symbol, to, version, flags, status) }
}

driver_api! {
    cuInit @ 2000: cuInit(flags: u32) = init::init;
    cuDriverGetVersion @ 2020: cuDriverGetVersion(version: *mut c_int) = init::driver_version;
    cuGetErrorName @ 6000: cuGetErrorName(code: u32, text: *mut *const c_char) = init::error_name;
    cuGetErrorString @ 6000: cuGetErrorString(code: u32, text: *mut *const c_char) = init::error_string;
    cuGetExportTable @ 3000: cuGetExportTable(to: *mut *const c_void, id: *const c_void) = init::export_table;
    cuGetProcAddress @ 11030: cuGetProcAddress(symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64)
        = get_proc_address;
    cuGetProcAddress @ 12000: cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz(
        symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int)
        = get_proc_address_v2;
    cuThreadExchangeStreamCaptureMode @ 10010: cuThreadExchangeStreamCaptureMode(mode: *mut c_int)
        = capture::exchange_mode;
    cuProfilerStart @ 4000: cuProfilerStart() = init::profiler;
    cuProfilerStop @ 4000: cuProfilerStop() = init::profiler;

    cuDeviceGet @ 2000: cuDeviceGet(to: *mut c_int, ordinal: c_int) = device::get;
    cuDeviceGetCount @ 2000: cuDeviceGetCount(to: *mut c_int) = device::count;
    cuDeviceGetName @ 2000: cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) = device::name;
    cuDeviceGetUuid @ 9020: cuDeviceGetUuid(to: *mut [u8; 16], device: c_int) = device::uuid;
    cuDeviceGetUuid @ 11040: cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int) = device::uuid;
    cuDeviceTotalMem @ 3020: cuDeviceTotalMem_v2(to: *mut usize, device: c_int) = device::total_memory;
    cuDeviceGetAttribute @ 2000: cuDeviceGetAttribute(to: *mut c_int, which: c_int, device: c_int) = device::attribute;
    cuDeviceComputeCapability @ 2000: cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: c_int)
        = device::capability;
    cuDeviceGetPCIBusId @ 4010: cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) = device::pci_bus_id;
    cuDeviceGetByPCIBusId @ 4010: cuDeviceGetByPCIBusId(to: *mut c_int, id: *const c_char) = device::by_pci_bus_id;
    cuDeviceCanAccessPeer @ 4000: cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int)
        = device::can_access_peer;
    cuDeviceGetP2PAttribute @ 8000: cuDeviceGetP2PAttribute(to: *mut c_int, which: c_int, from: c_int, peer: c_int)
        = peers::attribute;
    cuDeviceGetExecAffinitySupport @ 11040: cuDeviceGetExecAffinitySupport(to: *mut c_int, kind: c_int, device: c_int)
        = device::exec_affinity;
    cuDeviceGetDefaultMemPool @ 11020: cuDeviceGetDefaultMemPool(to: *mut Handle, device: c_int) = device::memory_pool;
    cuDeviceGetMemPool @ 11020: cuDeviceGetMemPool(to: *mut Handle, device: c_int) = memory::pool_of_context;
    cuDeviceSetMemPool @ 11020: cuDeviceSetMemPool(device: c_int, pool: Handle) = device::set_memory_pool;
    cuMemPoolCreate @ 11020: cuMemPoolCreate(to: *mut Handle, properties: *const objects::PoolProperties)
        = objects::create_pool;
    cuMemPoolDestroy @ 11020: cuMemPoolDestroy(pool: Handle) = objects::destroy_pool;
    cuMemPoolSetAccess @ 11020: cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize)
        = objects::set_pool_access;
    cuMemPoolGetAccess @ 11020: cuMemPoolGetAccess(to: *mut c_int, pool: Handle, location: *const [c_int; 2])
        = objects::get_pool_access;
    cuMemRangeGetAttribute @ 8000: cuMemRangeGetAttribute(
        to: *mut c_void, bytes: usize, which: c_int, address: u64, length: usize) = objects::range_attribute;
    cuMemRangeGetAttributes @ 8000: cuMemRangeGetAttributes(
        to: *const *mut c_void, bytes: *const usize, which: *const c_int, count: usize, address: u64, length: usize)
        = objects::range_attributes;
    cuMemcpyBatchAsync @ 12080: cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz(
        to: *const u64, from: *const u64, bytes: *const usize, count: usize, attributes: *const c_void,
        first_with: *const usize, n_attributes: usize, failed: *mut usize, stream: Handle) = objects::copy_batch_v1;
    cuMemcpyBatchAsync @ 13000: cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz(
        to: *const u64, from: *const u64, bytes: *const usize, count: usize, attributes: *const c_void,
        first_with: *const usize, n_attributes: usize, stream: Handle) = objects::copy_batch;
    cuUserObjectCreate @ 11030: cuUserObjectCreate(
        to: *mut Handle, data: *mut c_void, destroy: HostFunction, count: u32, flags: u32)
        = objects::create_user_object;
    cuUserObjectRetain @ 11030: cuUserObjectRetain(object: Handle, count: u32) = objects::retain_user_object;
    cuUserObjectRelease @ 11030: cuUserObjectRelease(object: Handle, count: u32) = objects::release_user_object;
    cuGraphRetainUserObject @ 11030: cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32)
        = objects::graph_retain;
    cuGraphReleaseUserObject @ 11030: cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32)
        = objects::graph_release;
    cuStreamGetAttribute @ 11000: cuStreamGetAttribute / cuStreamGetAttribute_ptsz(
        stream: Handle, which: u32, to: *mut AttributeValue) = objects::get_attribute;
    cuStreamSetAttribute @ 11000: cuStreamSetAttribute / cuStreamSetAttribute_ptsz(
        stream: Handle, which: u32, value: *const AttributeValue) = objects::set_attribute;
    cuMemPoolTrimTo @ 11020: cuMemPoolTrimTo(pool: Handle, keep: usize) = device::pool_trim;
    cuMemPoolGetAttribute @ 11020: cuMemPoolGetAttribute(pool: Handle, which: c_int, to: *mut u64)
        = device::pool_attribute;
    cuMemPoolSetAttribute @ 11020: cuMemPoolSetAttribute(pool: Handle, which: c_int, value: *mut u64)
        = device::set_pool_attribute;
    cuDevicePrimaryCtxRetain @ 7000: cuDevicePrimaryCtxRetain(to: *mut Handle, device: c_int) = device::primary_retain;
    cuDevicePrimaryCtxRelease @ 7000: cuDevicePrimaryCtxRelease(device: c_int) = context::primary_release;
    cuDevicePrimaryCtxRelease @ 11000: cuDevicePrimaryCtxRelease_v2(device: c_int) = context::primary_release;
    cuDevicePrimaryCtxReset @ 7000: cuDevicePrimaryCtxReset(device: c_int) = context::primary_reset;
    cuDevicePrimaryCtxReset @ 11000: cuDevicePrimaryCtxReset_v2(device: c_int) = context::primary_reset;
    cuDevicePrimaryCtxSetFlags @ 7000: cuDevicePrimaryCtxSetFlags(device: c_int, flags: u32) = device::primary_set_flags;
    cuDevicePrimaryCtxSetFlags @ 11000: cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: u32)
        = device::primary_set_flags;
    cuDevicePrimaryCtxGetState @ 7000: cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int)
        = device::primary_state;

    cuCtxCreate @ 3020: cuCtxCreate_v2(to: *mut Handle, flags: u32, device: c_int) = context::create_v2;
    cuCtxCreate @ 11040: cuCtxCreate_v3(
        to: *mut Handle, affinities: *const c_void, n_affinities: c_int, flags: u32, device: c_int)
        = context::create_v3;
    cuCtxCreate @ 12050: cuCtxCreate_v4(to: *mut Handle, params: *const c_void, flags: u32, device: c_int)
        = context::create_v4;
    cuCtxDestroy @ 2000: cuCtxDestroy(context: Handle) = context::destroy;
    cuCtxDestroy @ 4000: cuCtxDestroy_v2(context: Handle) = context::destroy;
    cuCtxGetCurrent @ 4000: cuCtxGetCurrent(to: *mut Handle) = context::get_current;
    cuCtxSetCurrent @ 4000: cuCtxSetCurrent(context: Handle) = context::set_current;
    cuCtxPushCurrent @ 2000: cuCtxPushCurrent(context: Handle) = context::push;
    cuCtxPushCurrent @ 4000: cuCtxPushCurrent_v2(context: Handle) = context::push;
    cuCtxPopCurrent @ 4000: cuCtxPopCurrent_v2(to: *mut Handle) = context::pop;
    cuCtxGetDevice @ 2000: cuCtxGetDevice(to: *mut c_int) = context::get_device;
    cuCtxGetDevice @ 13000: cuCtxGetDevice_v2(to: *mut c_int, context: Handle) = context::get_device_v2;
    cuCtxSynchronize @ 2000: cuCtxSynchronize() = context::synchronize;
    cuCtxSynchronize @ 13000: cuCtxSynchronize_v2(context: Handle) = context::synchronize_v2;
    cuCtxRecordEvent @ 12050: cuCtxRecordEvent(context: Handle, event: Handle) = streams::context_event;
    cuCtxGetFlags @ 7000: cuCtxGetFlags(to: *mut u32) = context::flags;
    cuCtxSetFlags @ 12010: cuCtxSetFlags(flags: u32) = context::set_flags;
    cuCtxGetId @ 12000: cuCtxGetId(context: Handle, to: *mut u64) = context::id;
    cuCtxGetApiVersion @ 3020: cuCtxGetApiVersion(context: Handle, to: *mut u32) = context::api_version;
    cuCtxGetLimit @ 3010: cuCtxGetLimit(to: *mut usize, limit: u32) = context::get_limit;
    cuCtxSetLimit @ 3010: cuCtxSetLimit(limit: u32, value: usize) = context::set_limit;
    cuCtxGetCacheConfig @ 3020: cuCtxGetCacheConfig(to: *mut u32) = context::get_cache_config;
    cuCtxSetCacheConfig @ 3020: cuCtxSetCacheConfig(config: u32) = context::set_cache_config;
    cuCtxGetSharedMemConfig @ 4020: cuCtxGetSharedMemConfig(to: *mut u32) = context::get_shared_config;
    cuCtxSetSharedMemConfig @ 4020: cuCtxSetSharedMemConfig(config: u32) = context::set_shared_config;
    cuCtxGetStreamPriorityRange @ 5050: cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int)
        = context::priority_range;
    cuCtxResetPersistingL2Cache @ 11000: cuCtxResetPersistingL2Cache() = context::reset_persisting_l2;
    cuCtxEnablePeerAccess @ 4000: cuCtxEnablePeerAccess(peer: Handle, flags: u32) = peers::enable;
    cuCtxDisablePeerAccess @ 4000: cuCtxDisablePeerAccess(peer: Handle) = peers::disable;

    cuModuleLoad @ 2000: cuModuleLoad(to: *mut Handle, path: *const c_char) = module::load_file;
    cuModuleLoadData @ 2000: cuModuleLoadData(to: *mut Handle, image: *const c_void) = module::load_data;
    cuModuleLoadDataEx @ 2010: cuModuleLoadDataEx(
        to: *mut Handle, image: *const c_void, count: u32, options: *const c_int, values: *mut *mut c_void)
        = module::load_data_ex;
    cuModuleLoadFatBinary @ 2000: cuModuleLoadFatBinary(to: *mut Handle, image: *const c_void) = module::load_data;
    cuModuleUnload @ 2000: cuModuleUnload(module: Handle) = module::unload;
    cuModuleGetLoadingMode @ 11070: cuModuleGetLoadingMode(to: *mut c_int) = module::loading_mode;
    cuModuleGetFunction @ 2000: cuModuleGetFunction(to: *mut Handle, module: Handle, name: *const c_char)
        = module::get_function;
    cuModuleGetFunctionCount @ 12040: cuModuleGetFunctionCount(to: *mut u32, module: Handle) = module::function_count;
    cuModuleEnumerateFunctions @ 12040: cuModuleEnumerateFunctions(to: *mut Handle, room: u32, module: Handle)
        = module::enumerate_functions;
    cuModuleGetGlobal @ 3020: cuModuleGetGlobal_v2(
        address: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char) = module::get_global;

    cuLibraryLoadData @ 12000: cuLibraryLoadData(
        to: *mut Handle, image: *const c_void, options: *const c_int, values: *mut *mut c_void, count: u32,
        library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32)
        = module::library_load_data;
    cuLibraryLoadFromFile @ 12000: cuLibraryLoadFromFile(
        to: *mut Handle, path: *const c_char, options: *const c_int, values: *mut *mut c_void, count: u32,
        library_options: *const c_int, library_values: *mut *mut c_void, library_count: u32)
        = module::library_load_file;
    cuLibraryUnload @ 12000: cuLibraryUnload(library: Handle) = module::library_unload;
    cuLibraryGetKernel @ 12000: cuLibraryGetKernel(to: *mut Handle, library: Handle, name: *const c_char)
        = module::library_get_kernel;
    cuLibraryGetKernelCount @ 12040: cuLibraryGetKernelCount(to: *mut u32, library: Handle)
        = module::library_kernel_count;
    cuLibraryEnumerateKernels @ 12040: cuLibraryEnumerateKernels(to: *mut Handle, room: u32, library: Handle)
        = module::library_enumerate;
    cuLibraryGetModule @ 12000: cuLibraryGetModule(to: *mut Handle, library: Handle) = module::library_get_module;
    cuLibraryGetGlobal @ 12000: cuLibraryGetGlobal(
        address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char) = module::library_get_global;
    cuLibraryGetManaged @ 12000: cuLibraryGetManaged(
        address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char) = module::library_get_managed;
    cuLibraryGetUnifiedFunction @ 12000: cuLibraryGetUnifiedFunction(
        to: *mut *mut c_void, library: Handle, name: *const c_char) = module::library_get_unified;
    cuKernelGetFunction @ 12000: cuKernelGetFunction(to: *mut Handle, kernel: Handle) = module::kernel_get_function;
    cuKernelGetLibrary @ 12050: cuKernelGetLibrary(to: *mut Handle, kernel: Handle) = module::kernel_get_library;
    cuKernelGetName @ 12030: cuKernelGetName(to: *mut *const c_char, kernel: Handle) = module::kernel_get_name;
    cuKernelGetParamInfo @ 12040: cuKernelGetParamInfo(
        kernel: Handle, index: usize, offset: *mut usize, size: *mut usize) = module::param_info;
    cuKernelGetAttribute @ 12000: cuKernelGetAttribute(to: *mut c_int, which: c_int, kernel: Handle, device: c_int)
        = function::kernel_get_attribute;
    cuKernelSetAttribute @ 12000: cuKernelSetAttribute(which: c_int, value: c_int, kernel: Handle, device: c_int)
        = function::kernel_set_attribute;
    cuKernelSetCacheConfig @ 12000: cuKernelSetCacheConfig(kernel: Handle, config: c_int, device: c_int)
        = function::kernel_set_cache_config;

    cuLinkCreate @ 6050: cuLinkCreate_v2(count: u32, options: *const c_int, values: *mut *mut c_void, to: *mut Handle)
        = linker::create;
    cuLinkAddData @ 6050: cuLinkAddData_v2(
        link: Handle, kind: c_int, data: *const c_void, bytes: usize, name: *const c_char, count: u32,
        options: *const c_int, values: *mut *mut c_void) = linker::add_data;
    cuLinkAddFile @ 6050: cuLinkAddFile_v2(
        link: Handle, kind: c_int, path: *const c_char, count: u32, options: *const c_int, values: *mut *mut c_void)
        = linker::add_file;
    cuLinkComplete @ 5050: cuLinkComplete(link: Handle, image: *mut *const c_void, bytes: *mut usize)
        = linker::complete;
    cuLinkDestroy @ 5050: cuLinkDestroy(link: Handle) = linker::destroy;

    cuFuncGetName @ 12030: cuFuncGetName(to: *mut *const c_char, function: Handle) = module::function_get_name;
    cuFuncGetModule @ 11000: cuFuncGetModule(to: *mut Handle, function: Handle) = module::function_get_module;
    cuFuncGetParamInfo @ 12040: cuFuncGetParamInfo(
        function: Handle, index: usize, offset: *mut usize, size: *mut usize) = module::param_info;
    cuFuncIsLoaded @ 12040: cuFuncIsLoaded(to: *mut c_int, function: Handle) = module::function_is_loaded;
    cuFuncLoad @ 12040: cuFuncLoad(function: Handle) = module::function_load;
    cuFuncGetAttribute @ 2020: cuFuncGetAttribute(to: *mut c_int, which: c_int, function: Handle)
        = function::get_attribute;
    cuFuncSetAttribute @ 9000: cuFuncSetAttribute(function: Handle, which: c_int, value: c_int)
        = function::set_attribute;
    cuFuncSetCacheConfig @ 3000: cuFuncSetCacheConfig(function: Handle, config: c_int) = function::set_cache_config;
    cuFuncSetSharedMemConfig @ 4020: cuFuncSetSharedMemConfig(function: Handle, config: c_int)
        = function::set_cache_config;

    cuOccupancyMaxActiveBlocksPerMultiprocessor @ 6050: cuOccupancyMaxActiveBlocksPerMultiprocessor(
        to: *mut c_int, function: Handle, threads: c_int, shared: usize) = function::max_active_blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags @ 7000: cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, function: Handle, threads: c_int, shared: usize, flags: u32)
        = function::max_active_blocks_flags;
    cuOccupancyMaxPotentialBlockSize @ 6050: cuOccupancyMaxPotentialBlockSize(
        min_grid: *mut c_int, block: *mut c_int, function: Handle, shared_of: BlockToShared, shared: usize,
        limit: c_int) = function::potential_block_size;
    cuOccupancyMaxPotentialBlockSizeWithFlags @ 7000: cuOccupancyMaxPotentialBlockSizeWithFlags(
        min_grid: *mut c_int, block: *mut c_int, function: Handle, shared_of: BlockToShared, shared: usize,
        limit: c_int, flags: u32) = function::potential_block_size_flags;
    cuOccupancyAvailableDynamicSMemPerBlock @ 10020: cuOccupancyAvailableDynamicSMemPerBlock(
        to: *mut usize, function: Handle, blocks: c_int, threads: c_int) = function::available_shared;
    cuOccupancyMaxPotentialClusterSize @ 11070: cuOccupancyMaxPotentialClusterSize(
        to: *mut c_int, function: Handle, config: *const LaunchConfig) = function::potential_cluster_size;
    cuOccupancyMaxActiveClusters @ 11070: cuOccupancyMaxActiveClusters(
        to: *mut c_int, function: Handle, config: *const LaunchConfig) = function::max_active_clusters;

    cuLaunchKernel @ 4000: cuLaunchKernel / cuLaunchKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
        params: *mut *mut c_void, extra: *mut *mut c_void) = launch::kernel;
    cuLaunchKernelEx @ 11060: cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: *const LaunchConfig, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void)
        = launch::kernel_ex;
    cuLaunchCooperativeKernel @ 9000: cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle,
        params: *mut *mut c_void) = launch::cooperative;
    cuLaunchHostFunc @ 10000: cuLaunchHostFunc / cuLaunchHostFunc_ptsz(
        stream: Handle, function: HostFunction, data: *mut c_void) = launch::host_function;

    cuMemAlloc @ 3020: cuMemAlloc_v2(to: *mut u64, bytes: usize) = memory::alloc;
    cuMemAllocPitch @ 3020: cuMemAllocPitch_v2(
        to: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) = memory::alloc_pitch;
    cuMemFree @ 3020: cuMemFree_v2(address: u64) = memory::free;
    cuMemAllocAsync @ 11020: cuMemAllocAsync / cuMemAllocAsync_ptsz(to: *mut u64, bytes: usize, stream: Handle)
        = memory::alloc_async;
    cuMemAllocFromPoolAsync @ 11020: cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        to: *mut u64, bytes: usize, pool: Handle, stream: Handle) = memory::alloc_from_pool;
    cuMemFreeAsync @ 11020: cuMemFreeAsync / cuMemFreeAsync_ptsz(address: u64, stream: Handle) = memory::free_async;
    cuMemAllocManaged @ 6000: cuMemAllocManaged(to: *mut u64, bytes: usize, flags: u32) = memory::alloc_managed;
    cuMemAllocHost @ 3020: cuMemAllocHost_v2(to: *mut *mut c_void, bytes: usize) = memory::alloc_host;
    cuMemHostAlloc @ 2020: cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: u32) = memory::host_alloc;
    cuMemFreeHost @ 2000: cuMemFreeHost(pointer: *mut c_void) = memory::free_host;
    cuMemHostRegister @ 6050: cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32)
        = memory::host_register;
    cuMemHostUnregister @ 4000: cuMemHostUnregister(pointer: *mut c_void) = memory::host_unregister;
    cuMemHostGetDevicePointer @ 3020: cuMemHostGetDevicePointer_v2(to: *mut u64, pointer: *mut c_void, flags: u32)
        = memory::host_device_pointer;
    cuMemHostGetFlags @ 2030: cuMemHostGetFlags(to: *mut u32, pointer: *mut c_void) = memory::host_flags;
    cuMemGetAllocationGranularity @ 10020: cuMemGetAllocationGranularity(
        to: *mut usize, properties: *const virtuals::Properties, option: c_int) = virtuals::granularity;
    cuMemCreate @ 10020: cuMemCreate(
        to: *mut u64, bytes: usize, properties: *const virtuals::Properties, flags: u64) = virtuals::create;
    cuMemRelease @ 10020: cuMemRelease(handle: u64) = virtuals::release;
    cuMemAddressReserve @ 10020: cuMemAddressReserve(
        to: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64) = virtuals::reserve;
    cuMemAddressFree @ 10020: cuMemAddressFree(address: u64, bytes: usize) = virtuals::free;
    cuMemMap @ 10020: cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) = virtuals::map;
    cuMemUnmap @ 10020: cuMemUnmap(address: u64, bytes: usize) = virtuals::unmap;
    cuMemSetAccess @ 10020: cuMemSetAccess(
        address: u64, bytes: usize, access: *const virtuals::Access, count: usize) = virtuals::set_access;
    cuMemGetAddressRange @ 3020: cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64)
        = memory::address_range;
    cuMemGetInfo @ 3020: cuMemGetInfo_v2(free: *mut usize, total: *mut usize) = memory::info;
    cuPointerGetAttribute @ 4000: cuPointerGetAttribute(to: *mut c_void, which: c_int, address: u64)
        = memory::pointer_attribute;
    cuPointerGetAttributes @ 7000: cuPointerGetAttributes(
        count: u32, attributes: *const c_int, to: *const *mut c_void, address: u64) = memory::pointer_attributes;
    cuPointerSetAttribute @ 6000: cuPointerSetAttribute(value: *const c_void, which: c_int, address: u64)
        = memory::set_pointer_attribute;
    cuMemPrefetchAsync @ 8000: cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(
        address: u64, bytes: usize, device: c_int, stream: Handle) = memory::prefetch_v1;
    cuMemPrefetchAsync @ 12020: cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        address: u64, bytes: usize, location: Location, flags: u32, stream: Handle) = memory::prefetch;
    cuMemAdvise @ 8000: cuMemAdvise(address: u64, bytes: usize, advice: c_int, device: c_int) = memory::advise_v1;
    cuMemAdvise @ 12020: cuMemAdvise_v2(address: u64, bytes: usize, advice: c_int, location: Location)
        = memory::advise;

    cuMemcpy @ 4000: cuMemcpy / cuMemcpy_ptds(to: u64, from: u64, bytes: usize) = copy::unified;
    cuMemcpyAsync @ 4000: cuMemcpyAsync / cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: Handle)
        = copy::unified_async;
    cuMemcpyHtoD @ 3020: cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: u64, from: *const c_void, bytes: usize)
        = copy::host_to_device;
    cuMemcpyHtoDAsync @ 3020: cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(
        to: u64, from: *const c_void, bytes: usize, stream: Handle) = copy::host_to_device_async;
    cuMemcpyDtoH @ 3020: cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: u64, bytes: usize)
        = copy::device_to_host;
    cuMemcpyDtoHAsync @ 3020: cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(
        to: *mut c_void, from: u64, bytes: usize, stream: Handle) = copy::device_to_host_async;
    cuMemcpyDtoD @ 3020: cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize)
        = copy::device_to_device;
    cuMemcpyDtoDAsync @ 3020: cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(
        to: u64, from: u64, bytes: usize, stream: Handle) = copy::device_to_device_async;
    cuMemcpyPeer @ 4000: cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize) = copy::peer;
    cuMemcpyPeerAsync @ 4000: cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle)
        = copy::peer_async;
    cuMemcpy2D @ 3020: cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: *const Copy2d) = rows::copy_2d;
    cuMemcpy2DUnaligned @ 3020: cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: *const Copy2d)
        = rows::copy_2d;
    cuMemcpy2DAsync @ 3020: cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: *const Copy2d, stream: Handle)
        = rows::copy_2d_async;
    cuMemcpy3D @ 3020: cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: *const Copy3d) = rows::copy_3d;
    cuMemcpy3DAsync @ 3020: cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: *const Copy3d, stream: Handle)
        = rows::copy_3d_async;
    cuArrayCreate @ 3020: cuArrayCreate_v2(to: *mut Handle, descriptor: *const Descriptor) = arrays::create;
    cuArrayGetDescriptor @ 3020: cuArrayGetDescriptor_v2(to: *mut Descriptor, array: Handle) = arrays::get_descriptor;
    cuArray3DCreate @ 3020: cuArray3DCreate_v2(to: *mut Handle, descriptor: *const Descriptor3d) = arrays::create_3d;
    cuArray3DGetDescriptor @ 3020: cuArray3DGetDescriptor_v2(to: *mut Descriptor3d, array: Handle)
        = arrays::get_descriptor_3d;
    cuArrayDestroy @ 2000: cuArrayDestroy(array: Handle) = arrays::destroy;
    cuMipmappedArrayCreate @ 5000: cuMipmappedArrayCreate(
        to: *mut Handle, descriptor: *const Descriptor3d, levels: u32) = arrays::create_mipmapped;
    cuDeviceGetTexture1DLinearMaxWidth @ 11010: cuDeviceGetTexture1DLinearMaxWidth(
        to: *mut usize, format: u32, channels: u32, device: c_int) = arrays::linear_max_width;
    cuMemcpyDtoA @ 3020: cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds(to: Handle, offset: usize, from: u64, bytes: usize)
        = arrays::from_device;
    cuMemcpyAtoD @ 3020: cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds(to: u64, from: Handle, offset: usize, bytes: usize)
        = arrays::to_device;
    cuMemcpyHtoA @ 3020: cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(
        to: Handle, offset: usize, from: *const c_void, bytes: usize) = arrays::from_host;
    cuMemcpyAtoH @ 3020: cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(
        to: *mut c_void, from: Handle, offset: usize, bytes: usize) = arrays::to_host;
    cuMemcpyAtoA @ 3020: cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds(
        to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize) = arrays::to_array;
    cuMemcpyHtoAAsync @ 3020: cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz(
        to: Handle, offset: usize, from: *const c_void, bytes: usize, stream: Handle) = arrays::from_host_async;
    cuMemcpyAtoHAsync @ 3020: cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz(
        to: *mut c_void, from: Handle, offset: usize, bytes: usize, stream: Handle) = arrays::to_host_async;

    cuTexObjectCreate @ 5000: cuTexObjectCreate(
        to: *mut u64, resource: *const Resource, sampling: *const Sampling, view: *const View)
        = images::texture_create;
    cuTexObjectDestroy @ 5000: cuTexObjectDestroy(object: u64) = images::texture_destroy;
    cuTexObjectGetResourceDesc @ 5000: cuTexObjectGetResourceDesc(to: *mut Resource, object: u64)
        = images::texture_resource;
    cuTexObjectGetTextureDesc @ 5000: cuTexObjectGetTextureDesc(to: *mut Sampling, object: u64)
        = images::texture_sampling;
    cuTexObjectGetResourceViewDesc @ 5000: cuTexObjectGetResourceViewDesc(to: *mut View, object: u64)
        = images::texture_view;
    cuSurfObjectCreate @ 5000: cuSurfObjectCreate(to: *mut u64, resource: *const Resource) = images::surface_create;
    cuSurfObjectDestroy @ 5000: cuSurfObjectDestroy(object: u64) = images::surface_destroy;
    cuSurfObjectGetResourceDesc @ 5000: cuSurfObjectGetResourceDesc(to: *mut Resource, object: u64)
        = images::surface_resource;

    cuTensorMapEncodeTiled @ 12000: cuTensorMapEncodeTiled(
        to: *mut Encoded, element: u32, rank: u32, address: *mut c_void, size: *const u64, pitch: *const u64,
        moved: *const u32, strides: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32)
        = tensor_map::encode_tiled;
    cuTensorMapEncodeIm2col @ 12000: cuTensorMapEncodeIm2col(
        to: *mut Encoded, element: u32, rank: u32, address: *mut c_void, size: *const u64, pitch: *const u64,
        lower: *const c_int, upper: *const c_int, channels: u32, pixels: u32, strides: *const u32, interleave: u32,
        swizzle: u32, promotion: u32, fill: u32) = tensor_map::encode_im2col;
    cuTensorMapEncodeIm2colWide @ 12080: cuTensorMapEncodeIm2colWide(
        to: *mut Encoded, element: u32, rank: u32, address: *mut c_void, size: *const u64, pitch: *const u64,
        lower: c_int, upper: c_int, channels: u32, pixels: u32, strides: *const u32, interleave: u32, mode: u32,
        swizzle: u32, promotion: u32, fill: u32) = tensor_map::encode_im2col_wide;
    cuTensorMapReplaceAddress @ 12000: cuTensorMapReplaceAddress(map: *mut Encoded, address: *mut c_void)
        = tensor_map::replace_address;

    cuMemsetD8 @ 3020: cuMemsetD8_v2 / cuMemsetD8_v2_ptds(address: u64, value: u8, count: usize) = fill::set_8;
    cuMemsetD16 @ 3020: cuMemsetD16_v2 / cuMemsetD16_v2_ptds(address: u64, value: u16, count: usize) = fill::set_16;
    cuMemsetD32 @ 3020: cuMemsetD32_v2 / cuMemsetD32_v2_ptds(address: u64, value: u32, count: usize) = fill::set_32;
    cuMemsetD8Async @ 3020: cuMemsetD8Async / cuMemsetD8Async_ptsz(
        address: u64, value: u8, count: usize, stream: Handle) = fill::set_8_async;
    cuMemsetD16Async @ 3020: cuMemsetD16Async / cuMemsetD16Async_ptsz(
        address: u64, value: u16, count: usize, stream: Handle) = fill::set_16_async;
    cuMemsetD32Async @ 3020: cuMemsetD32Async / cuMemsetD32Async_ptsz(
        address: u64, value: u32, count: usize, stream: Handle) = fill::set_32_async;
    cuMemsetD2D8 @ 3020: cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(
        address: u64, pitch: usize, value: u8, width: usize, height: usize) = fill::set_2d_8;
    cuMemsetD2D16 @ 3020: cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(
        address: u64, pitch: usize, value: u16, width: usize, height: usize) = fill::set_2d_16;
    cuMemsetD2D32 @ 3020: cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(
        address: u64, pitch: usize, value: u32, width: usize, height: usize) = fill::set_2d_32;
    cuMemsetD2D8Async @ 3020: cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) = fill::set_2d_8_async;
    cuMemsetD2D16Async @ 3020: cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) = fill::set_2d_16_async;
    cuMemsetD2D32Async @ 3020: cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) = fill::set_2d_32_async;

    cuStreamCreate @ 2000: cuStreamCreate(to: *mut Handle, flags: u32) = streams::create;
    cuStreamCreateWithPriority @ 5050: cuStreamCreateWithPriority(to: *mut Handle, flags: u32, priority: c_int)
        = streams::create_with_priority;
    cuStreamDestroy @ 2000: cuStreamDestroy(stream: Handle) = streams::destroy;
    cuStreamDestroy @ 4000: cuStreamDestroy_v2(stream: Handle) = streams::destroy;
    cuStreamSynchronize @ 2000: cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: Handle) = streams::synchronize;
    cuStreamQuery @ 2000: cuStreamQuery / cuStreamQuery_ptsz(stream: Handle) = streams::query;
    cuStreamGetPriority @ 5050: cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: Handle, to: *mut c_int)
        = streams::priority;
    cuStreamGetFlags @ 5050: cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: Handle, to: *mut u32) = streams::flags;
    cuStreamGetId @ 12000: cuStreamGetId / cuStreamGetId_ptsz(stream: Handle, to: *mut u64) = streams::id;
    cuStreamGetDevice @ 12080: cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: Handle, to: *mut c_int)
        = streams::device;
    cuStreamGetCtx @ 9020: cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: Handle, to: *mut Handle)
        = streams::context_of;
    cuStreamGetCtx @ 12050: cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(
        stream: Handle, to: *mut Handle, green: *mut Handle) = streams::context_of_v2;
    cuStreamWaitEvent @ 3020: cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32)
        = streams::wait_event;
    cuStreamAddCallback @ 5000: cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: Handle, callback: StreamCallback, data: *mut c_void, flags: u32) = launch::add_callback;
    cuStreamAttachMemAsync @ 6000: cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        stream: Handle, address: u64, bytes: usize, flags: u32) = streams::attach_memory;
    cuStreamCopyAttributes @ 11000: cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz(to: Handle, from: Handle)
        = streams::copy_attributes;
    cuStreamBeginCapture @ 10010: cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int)
        = capture::begin;
    cuStreamBeginCaptureToGraph @ 12030: cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, mode: c_int)
        = capture::begin_to_graph;
    cuStreamEndCapture @ 10000: cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle)
        = capture::end;
    cuStreamIsCapturing @ 10000: cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: Handle, to: *mut c_int)
        = capture::is_capturing;
    cuStreamGetCaptureInfo @ 10010: cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        stream: Handle, status: *mut c_int, id: *mut u64) = capture::info_v1;
    cuStreamGetCaptureInfo @ 11030: cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle,
        count: *mut usize) = capture::info_v2;
    cuStreamGetCaptureInfo @ 12030: cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle, nodes: *mut *const Handle,
        data: *mut *const EdgeData, count: *mut usize) = capture::info_v3;
    cuStreamUpdateCaptureDependencies @ 11030: cuStreamUpdateCaptureDependencies
        / cuStreamUpdateCaptureDependencies_ptsz(stream: Handle, nodes: *const Handle, count: usize, flags: u32)
        = capture::update_v1;
    cuStreamUpdateCaptureDependencies @ 12030: cuStreamUpdateCaptureDependencies_v2
        / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: Handle, nodes: *const Handle, data: *const EdgeData, count: usize, flags: u32) = capture::update_v2;

    cuGraphCreate @ 10000: cuGraphCreate(to: *mut Handle, flags: u32) = graphs::create;
    cuGraphDestroy @ 10000: cuGraphDestroy(graph: Handle) = graphs::destroy;
    cuGraphClone @ 10000: cuGraphClone(to: *mut Handle, graph: Handle) = graphs::clone;
    cuGraphNodeFindInClone @ 10000: cuGraphNodeFindInClone(to: *mut Handle, node: Handle, copy: Handle)
        = graphs::find_in_clone;
    cuGraphNodeGetType @ 10000: cuGraphNodeGetType(node: Handle, to: *mut c_int) = graphs::node_type;
    cuGraphDestroyNode @ 10000: cuGraphDestroyNode(node: Handle) = graphs::destroy_node;
    cuGraphGetNodes @ 10000: cuGraphGetNodes(graph: Handle, to: *mut Handle, count: *mut usize) = graphs::get_nodes;
    cuGraphGetRootNodes @ 10000: cuGraphGetRootNodes(graph: Handle, to: *mut Handle, count: *mut usize)
        = graphs::get_root_nodes;
    cuGraphGetEdges @ 10000: cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize)
        = graphs::get_edges;
    cuGraphGetEdges @ 12030: cuGraphGetEdges_v2(
        graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize)
        = graphs::get_edges_v2;
    cuGraphNodeGetDependencies @ 10000: cuGraphNodeGetDependencies(
        node: Handle, from: *mut Handle, count: *mut usize) = graphs::get_dependencies;
    cuGraphNodeGetDependencies @ 12030: cuGraphNodeGetDependencies_v2(
        node: Handle, from: *mut Handle, data: *mut EdgeData, count: *mut usize) = graphs::get_dependencies_v2;
    cuGraphNodeGetDependentNodes @ 10000: cuGraphNodeGetDependentNodes(
        node: Handle, to: *mut Handle, count: *mut usize) = graphs::get_dependents;
    cuGraphNodeGetDependentNodes @ 12030: cuGraphNodeGetDependentNodes_v2(
        node: Handle, to: *mut Handle, data: *mut EdgeData, count: *mut usize) = graphs::get_dependents_v2;
    cuGraphAddDependencies @ 10000: cuGraphAddDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize) = graphs::add_dependencies;
    cuGraphAddDependencies @ 12030: cuGraphAddDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData, count: usize)
        = graphs::add_dependencies_v2;
    cuGraphRemoveDependencies @ 10000: cuGraphRemoveDependencies(
        graph: Handle, from: *const Handle, to: *const Handle, count: usize) = graphs::remove_dependencies;
    cuGraphRemoveDependencies @ 12030: cuGraphRemoveDependencies_v2(
        graph: Handle, from: *const Handle, to: *const Handle, data: *const EdgeData, count: usize)
        = graphs::remove_dependencies_v2;

    cuGraphAddNode @ 12020: cuGraphAddNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *mut NodeParams)
        = graph_nodes::add_any;
    cuGraphAddNode @ 12030: cuGraphAddNode_v2(
        to: *mut Handle, graph: Handle, nodes: *const Handle, data: *const EdgeData, count: usize,
        params: *mut NodeParams) = graph_nodes::add_any_v2;
    cuGraphConditionalHandleCreate @ 12030: cuGraphConditionalHandleCreate(
        to: *mut u64, graph: Handle, context: Handle, default: u32, flags: u32) = graph_nodes::create_condition;
    cuGraphNodeSetParams @ 12020: cuGraphNodeSetParams(node: Handle, params: *mut NodeParams) = graph_nodes::set_any;
    cuGraphAddKernelNode @ 10000: cuGraphAddKernelNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const KernelParams)
        = graph_nodes::add_kernel_v1;
    cuGraphAddKernelNode @ 12000: cuGraphAddKernelNode_v2(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const KernelParams2)
        = graph_nodes::add_kernel;
    cuGraphKernelNodeGetParams @ 10000: cuGraphKernelNodeGetParams(node: Handle, to: *mut KernelParams)
        = graph_nodes::get_kernel_v1;
    cuGraphKernelNodeGetParams @ 12000: cuGraphKernelNodeGetParams_v2(node: Handle, to: *mut KernelParams2)
        = graph_nodes::get_kernel;
    cuGraphKernelNodeSetParams @ 10000: cuGraphKernelNodeSetParams(node: Handle, params: *const KernelParams)
        = graph_nodes::set_kernel_v1;
    cuGraphKernelNodeSetParams @ 12000: cuGraphKernelNodeSetParams_v2(node: Handle, params: *const KernelParams2)
        = graph_nodes::set_kernel;
    cuGraphKernelNodeGetAttribute @ 11000: cuGraphKernelNodeGetAttribute(
        node: Handle, which: u32, to: *mut AttributeValue) = graph_nodes::get_attribute;
    cuGraphKernelNodeSetAttribute @ 11000: cuGraphKernelNodeSetAttribute(
        node: Handle, which: u32, value: *const AttributeValue) = graph_nodes::set_attribute;
    cuGraphKernelNodeCopyAttributes @ 11000: cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle)
        = graph_nodes::copy_attributes;
    cuGraphAddMemcpyNode @ 10000: cuGraphAddMemcpyNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const Copy3d, context: Handle)
        = graph_nodes::add_copy;
    cuGraphMemcpyNodeGetParams @ 10000: cuGraphMemcpyNodeGetParams(node: Handle, to: *mut Copy3d)
        = graph_nodes::get_copy;
    cuGraphMemcpyNodeSetParams @ 10000: cuGraphMemcpyNodeSetParams(node: Handle, params: *const Copy3d)
        = graph_nodes::set_copy;
    cuGraphAddMemsetNode @ 10000: cuGraphAddMemsetNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const FillParams,
        context: Handle) = graph_nodes::add_fill;
    cuGraphMemsetNodeGetParams @ 10000: cuGraphMemsetNodeGetParams(node: Handle, to: *mut FillParams)
        = graph_nodes::get_fill;
    cuGraphMemsetNodeSetParams @ 10000: cuGraphMemsetNodeSetParams(node: Handle, params: *const FillParams)
        = graph_nodes::set_fill;
    cuGraphAddHostNode @ 10000: cuGraphAddHostNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, params: *const HostParams)
        = graph_nodes::add_host;
    cuGraphHostNodeGetParams @ 10000: cuGraphHostNodeGetParams(node: Handle, to: *mut HostParams)
        = graph_nodes::get_host;
    cuGraphHostNodeSetParams @ 10000: cuGraphHostNodeSetParams(node: Handle, params: *const HostParams)
        = graph_nodes::set_host;
    cuGraphAddChildGraphNode @ 10000: cuGraphAddChildGraphNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, child: Handle) = graph_nodes::add_graph;
    cuGraphChildGraphNodeGetGraph @ 10000: cuGraphChildGraphNodeGetGraph(node: Handle, to: *mut Handle)
        = graph_nodes::get_graph;
    cuGraphAddEmptyNode @ 10000: cuGraphAddEmptyNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize) = graph_nodes::add_empty;
    cuGraphAddEventRecordNode @ 11010: cuGraphAddEventRecordNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle) = graph_nodes::add_record;
    cuGraphEventRecordNodeGetEvent @ 11010: cuGraphEventRecordNodeGetEvent(node: Handle, to: *mut Handle)
        = graph_nodes::get_record;
    cuGraphEventRecordNodeSetEvent @ 11010: cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle)
        = graph_nodes::set_record;
    cuGraphAddEventWaitNode @ 11010: cuGraphAddEventWaitNode(
        to: *mut Handle, graph: Handle, nodes: *const Handle, count: usize, event: Handle) = graph_nodes::add_wait;
    cuGraphEventWaitNodeGetEvent @ 11010: cuGraphEventWaitNodeGetEvent(node: Handle, to: *mut Handle)
        = graph_nodes::get_wait;
    cuGraphEventWaitNodeSetEvent @ 11010: cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle)
        = graph_nodes::set_wait;

    cuGraphInstantiate @ 10000: cuGraphInstantiate(
        to: *mut Handle, graph: Handle, error_node: *mut Handle, log: *mut c_char, room: usize)
        = graph_exec::instantiate_v1;
    cuGraphInstantiate @ 11000: cuGraphInstantiate_v2(
        to: *mut Handle, graph: Handle, error_node: *mut Handle, log: *mut c_char, room: usize)
        = graph_exec::instantiate_v1;
    cuGraphInstantiate @ 12000: cuGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, flags: u64)
        = graph_exec::instantiate;
    cuGraphInstantiateWithParams @ 12000: cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        to: *mut Handle, graph: Handle, params: *mut InstantiateParams) = graph_exec::instantiate_with_params;
    cuGraphExecGetFlags @ 12000: cuGraphExecGetFlags(exec: Handle, to: *mut u64) = graph_exec::flags;
    cuGraphExecDestroy @ 10000: cuGraphExecDestroy(exec: Handle) = graph_exec::destroy;
    cuGraphUpload @ 11010: cuGraphUpload / cuGraphUpload_ptsz(exec: Handle, stream: Handle) = graph_exec::upload;
    cuGraphLaunch @ 10000: cuGraphLaunch / cuGraphLaunch_ptsz(exec: Handle, stream: Handle) = graph_exec::launch;
    cuGraphExecUpdate @ 10020: cuGraphExecUpdate(
        exec: Handle, graph: Handle, node: *mut Handle, result: *mut u32) = graph_exec::update_v1;
    cuGraphExecUpdate @ 12000: cuGraphExecUpdate_v2(exec: Handle, graph: Handle, result: *mut UpdateResult)
        = graph_exec::update_v2;
    cuGraphNodeSetEnabled @ 11060: cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32)
        = graph_exec::set_enabled;
    cuGraphNodeGetEnabled @ 11060: cuGraphNodeGetEnabled(exec: Handle, node: Handle, to: *mut u32)
        = graph_exec::get_enabled;
    cuGraphExecNodeSetParams @ 12020: cuGraphExecNodeSetParams(exec: Handle, node: Handle, params: *mut NodeParams)
        = graph_nodes::set_any_in_exec;
    cuGraphExecKernelNodeSetParams @ 10010: cuGraphExecKernelNodeSetParams(
        exec: Handle, node: Handle, params: *const KernelParams) = graph_nodes::set_kernel_in_exec_v1;
    cuGraphExecKernelNodeSetParams @ 12000: cuGraphExecKernelNodeSetParams_v2(
        exec: Handle, node: Handle, params: *const KernelParams2) = graph_nodes::set_kernel_in_exec;
    cuGraphExecMemcpyNodeSetParams @ 10020: cuGraphExecMemcpyNodeSetParams(
        exec: Handle, node: Handle, params: *const Copy3d, context: Handle) = graph_nodes::set_copy_in_exec;
    cuGraphExecMemsetNodeSetParams @ 10020: cuGraphExecMemsetNodeSetParams(
        exec: Handle, node: Handle, params: *const FillParams, context: Handle) = graph_nodes::set_fill_in_exec;
    cuGraphExecHostNodeSetParams @ 10020: cuGraphExecHostNodeSetParams(
        exec: Handle, node: Handle, params: *const HostParams) = graph_nodes::set_host_in_exec;
    cuGraphExecChildGraphNodeSetParams @ 11010: cuGraphExecChildGraphNodeSetParams(
        exec: Handle, node: Handle, child: Handle) = graph_nodes::set_graph_in_exec;
    cuGraphExecEventRecordNodeSetEvent @ 11010: cuGraphExecEventRecordNodeSetEvent(
        exec: Handle, node: Handle, event: Handle) = graph_nodes::set_record_in_exec;
    cuGraphExecEventWaitNodeSetEvent @ 11010: cuGraphExecEventWaitNodeSetEvent(
        exec: Handle, node: Handle, event: Handle) = graph_nodes::set_wait_in_exec;

    cuStreamWriteValue32 @ 11070: cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz(
        stream: Handle, address: u64, value: u32, flags: u32) = fill::write_value_32;
    cuStreamWriteValue64 @ 11070: cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz(
        stream: Handle, address: u64, value: u64, flags: u32) = fill::write_value_64;
    cuStreamWaitValue32 @ 11070: cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz(
        stream: Handle, address: u64, value: u32, flags: u32) = fill::wait_value_32;
    cuStreamWaitValue64 @ 11070: cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz(
        stream: Handle, address: u64, value: u64, flags: u32) = fill::wait_value_64;

    cuEventCreate @ 2000: cuEventCreate(to: *mut Handle, flags: u32) = streams::event_create;
    cuEventDestroy @ 4000: cuEventDestroy_v2(event: Handle) = streams::event_destroy;
    cuEventRecord @ 2000: cuEventRecord / cuEventRecord_ptsz(event: Handle, stream: Handle) = streams::event_record;
    cuEventRecordWithFlags @ 11010: cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(
        event: Handle, stream: Handle, flags: u32) = streams::event_record_flags;
    cuEventQuery @ 2000: cuEventQuery(event: Handle) = streams::event_query;
    cuEventSynchronize @ 2000: cuEventSynchronize(event: Handle) = streams::event_synchronize;
    cuEventElapsedTime @ 2000: cuEventElapsedTime(to: *mut f32, start: Handle, end: Handle) = streams::event_elapsed;
    cuEventElapsedTime @ 12080: cuEventElapsedTime_v2(to: *mut f32, start: Handle, end: Handle)
        = streams::event_elapsed;
}
