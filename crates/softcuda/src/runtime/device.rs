//! The runtime's view of the device: properties, the choice of a device, kernel attributes.

use std::ffi::{c_char, c_int, c_void};

use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::runtime::link::{Driver, driver, retain_primary};
use crate::runtime::ready::enter;
use crate::runtime::registered::kernel_or_handle;
use crate::state::put;

/// `cudaDeviceProp` of CUDA 13.0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_mask: u32,
    global_memory: usize,
    shared_per_block: usize,
    registers_per_block: c_int,
    warp_size: c_int,
    pitch: usize,
    max_threads: c_int,
    max_block: [c_int; 3],
    max_grid: [c_int; 3],
    const_memory: usize,
    major: c_int,
    minor: c_int,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    multiprocessors: c_int,
    integrated: c_int,
    can_map_host: c_int,
    texture_1d: c_int,
    texture_1d_mipmap: c_int,
    texture_2d: [c_int; 2],
    texture_2d_mipmap: [c_int; 2],
    texture_2d_linear: [c_int; 3],
    texture_2d_gather: [c_int; 2],
    texture_3d: [c_int; 3],
    texture_3d_alternate: [c_int; 3],
    texture_cubemap: c_int,
    texture_1d_layered: [c_int; 2],
    texture_2d_layered: [c_int; 3],
    texture_cubemap_layered: [c_int; 2],
    surface_1d: c_int,
    surface_2d: [c_int; 2],
    surface_3d: [c_int; 3],
    surface_1d_layered: [c_int; 2],
    surface_2d_layered: [c_int; 3],
    surface_cubemap: c_int,
    surface_cubemap_layered: [c_int; 2],
    surface_alignment: usize,
    concurrent_kernels: c_int,
    ecc: c_int,
    pci_bus: c_int,
    pci_device: c_int,
    pci_domain: c_int,
    tcc: c_int,
    async_engines: c_int,
    unified_addressing: c_int,
    bus_width: c_int,
    l2_size: c_int,
    persisting_l2_size: c_int,
    threads_per_multiprocessor: c_int,
    stream_priorities: c_int,
    global_l1: c_int,
    local_l1: c_int,
    shared_per_multiprocessor: usize,
    registers_per_multiprocessor: c_int,
    managed_memory: c_int,
    multi_gpu_board: c_int,
    multi_gpu_board_group: c_int,
    host_native_atomics: c_int,
    pageable_access: c_int,
    concurrent_managed: c_int,
    preemption: c_int,
    host_pointer_for_registered: c_int,
    cooperative: c_int,
    shared_per_block_optin: usize,
    pageable_by_host_tables: c_int,
    direct_managed: c_int,
    blocks_per_multiprocessor: c_int,
    access_policy_window: c_int,
    reserved_shared: usize,
    host_register: c_int,
    sparse_arrays: c_int,
    host_register_read_only: c_int,
    timeline_semaphores: c_int,
    memory_pools: c_int,
    rdma: c_int,
    rdma_flush: u32,
    rdma_ordering: c_int,
    pool_handle_types: u32,
    deferred_arrays: c_int,
    ipc_events: c_int,
    clusters: c_int,
    unified_functions: c_int,
    numa_config: c_int,
    numa_id: c_int,
    mps: c_int,
    host_numa_id: c_int,
    pci_device_id: u32,
    pci_subsystem_id: u32,
    host_numa_ipc: c_int,
    reserved: [c_int; 56],
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn properties(driver: &Driver, to: *mut Properties, device: c_int) -> CuResult {
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: a valid pointer.
        unsafe { driver.cuDeviceGetAttribute(&raw mut value, which, device) }.map(|()| value)
    };
    let bytes = |which: c_int| attribute(which).map(|value| value as usize);
    let mut name = [0u8; 256];
    let mut uuid = [0u8; 16];
    let mut global_memory = 0;
    // SAFETY: valid pointers, the buffer as long as said.
    unsafe {
        driver.cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), 256, device)?;
        driver.cuDeviceGetUuid_v2(&raw mut uuid, device)?;
        driver.cuDeviceTotalMem_v2(&raw mut global_memory, device)?;
    }
    let found = Properties {
        name,
        uuid,
        luid: [0; 8],
        luid_mask: 0,
        global_memory,
        shared_per_block: bytes(8)?,
        registers_per_block: attribute(12)?,
        warp_size: attribute(10)?,
        pitch: bytes(11)?,
        max_threads: attribute(1)?,
        max_block: [attribute(2)?, attribute(3)?, attribute(4)?],
        max_grid: [attribute(5)?, attribute(6)?, attribute(7)?],
        const_memory: bytes(9)?,
        major: attribute(75)?,
        minor: attribute(76)?,
        texture_alignment: bytes(14)?,
        texture_pitch_alignment: bytes(51)?,
        multiprocessors: attribute(16)?,
        integrated: attribute(18)?,
        can_map_host: attribute(19)?,
        texture_1d: attribute(21)?,
        texture_1d_mipmap: attribute(77)?,
        texture_2d: [attribute(22)?, attribute(23)?],
        texture_2d_mipmap: [attribute(73)?, attribute(74)?],
        texture_2d_linear: [attribute(70)?, attribute(71)?, attribute(72)?],
        texture_2d_gather: [attribute(45)?, attribute(46)?],
        texture_3d: [attribute(24)?, attribute(25)?, attribute(26)?],
        texture_3d_alternate: [attribute(47)?, attribute(48)?, attribute(49)?],
        texture_cubemap: attribute(52)?,
        texture_1d_layered: [attribute(42)?, attribute(43)?],
        texture_2d_layered: [attribute(27)?, attribute(28)?, attribute(29)?],
        texture_cubemap_layered: [attribute(53)?, attribute(54)?],
        surface_1d: attribute(55)?,
        surface_2d: [attribute(56)?, attribute(57)?],
        surface_3d: [attribute(58)?, attribute(59)?, attribute(60)?],
        surface_1d_layered: [attribute(61)?, attribute(62)?],
        surface_2d_layered: [attribute(63)?, attribute(64)?, attribute(65)?],
        surface_cubemap: attribute(66)?,
        surface_cubemap_layered: [attribute(67)?, attribute(68)?],
        surface_alignment: bytes(30)?,
        concurrent_kernels: attribute(31)?,
        ecc: attribute(32)?,
        pci_bus: attribute(33)?,
        pci_device: attribute(34)?,
        pci_domain: attribute(50)?,
        tcc: attribute(35)?,
        async_engines: attribute(40)?,
        unified_addressing: attribute(41)?,
        bus_width: attribute(37)?,
        l2_size: attribute(38)?,
        persisting_l2_size: attribute(108)?,
        threads_per_multiprocessor: attribute(39)?,
        stream_priorities: attribute(78)?,
        global_l1: attribute(79)?,
        local_l1: attribute(80)?,
        shared_per_multiprocessor: bytes(81)?,
        registers_per_multiprocessor: attribute(82)?,
        managed_memory: attribute(83)?,
        multi_gpu_board: attribute(84)?,
        multi_gpu_board_group: attribute(85)?,
        host_native_atomics: attribute(86)?,
        pageable_access: attribute(88)?,
        concurrent_managed: attribute(89)?,
        preemption: attribute(90)?,
        host_pointer_for_registered: attribute(91)?,
        cooperative: attribute(95)?,
        shared_per_block_optin: bytes(97)?,
        pageable_by_host_tables: attribute(100)?,
        direct_managed: attribute(101)?,
        blocks_per_multiprocessor: attribute(106)?,
        access_policy_window: attribute(109)?,
        reserved_shared: bytes(111)?,
        host_register: attribute(99)?,
        sparse_arrays: attribute(112)?,
        host_register_read_only: attribute(113)?,
        timeline_semaphores: attribute(114)?,
        memory_pools: attribute(115)?,
        rdma: attribute(116)?,
        rdma_flush: attribute(117)? as u32,
        rdma_ordering: attribute(118)?,
        pool_handle_types: attribute(119)? as u32,
        deferred_arrays: attribute(121)?,
        ipc_events: attribute(125)?,
        clusters: attribute(120)?,
        unified_functions: attribute(129)?,
        numa_config: attribute(130)?,
        numa_id: attribute(131)?,
        mps: attribute(133)?,
        host_numa_id: attribute(134)?,
        pci_device_id: attribute(139)? as u32,
        pci_subsystem_id: attribute(140)? as u32,
        host_numa_ipc: attribute(143)?,
        reserved: [0; 56],
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, found) }
}

/// `cudaFuncAttributes`
#[repr(C)]
pub struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode_ca: c_int,
    max_dynamic_shared: c_int,
    carveout: c_int,
    cluster_must_be_set: c_int,
    cluster: [c_int; 3],
    cluster_policy: c_int,
    non_portable_cluster: c_int,
    reserved: [c_int; 16],
}

/// # Safety
/// `to` must be null or valid for a write.
pub(crate) unsafe fn function_attributes(
    driver: &Driver,
    to: *mut FunctionAttributes,
    host: *const c_void,
) -> CuResult {
    let kernel = kernel_or_handle(driver, host)?;
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: a valid pointer.
        unsafe { driver.cuKernelGetAttribute(&raw mut value, which, kernel, 0) }.map(|()| value)
    };
    let bytes = |which: c_int| attribute(which).map(|value| value as usize);
    let found = FunctionAttributes {
        shared: bytes(1)?,
        constant: bytes(2)?,
        local: bytes(3)?,
        max_threads: attribute(0)?,
        registers: attribute(4)?,
        ptx_version: attribute(5)?,
        binary_version: attribute(6)?,
        cache_mode_ca: attribute(7)?,
        max_dynamic_shared: attribute(8)?,
        carveout: attribute(9)?,
        cluster_must_be_set: attribute(10)?,
        cluster: [attribute(11)?, attribute(12)?, attribute(13)?],
        cluster_policy: attribute(15)?,
        non_portable_cluster: attribute(14)?,
        reserved: [0; 16],
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, found) }
}

/// The driver's function of a host function, for the entry points that take no kernel.
pub(crate) fn function_of(driver: &Driver, host: *const c_void) -> Result<Handle, CuError> {
    let kernel = kernel_or_handle(driver, host)?;
    let mut function = 0;
    // SAFETY: a valid pointer.
    unsafe { driver.cuKernelGetFunction(&raw mut function, kernel) }?;
    Ok(function)
}

/// `cudaSetDevice`: since CUDA 12 the call itself brings the primary context to life and makes it
/// the thread's.
pub(crate) fn set_device(device: c_int) -> CuResult {
    let mut count = 0;
    // SAFETY: a valid pointer.
    unsafe { driver()?.cuDeviceGetCount(&raw mut count) }?;
    if (0..count).contains(&device) {
        enter(device).map(|_| ())
    } else {
        Err(CuError::INVALID_DEVICE)
    }
}

/// `cudaDeviceEnablePeerAccess` and its opposite.
pub(crate) fn peer_access(driver: &Driver, peer: c_int, flags: Option<u32>) -> CuResult {
    let peer = retain_primary(driver, peer)?;
    // SAFETY: the driver checks handles.
    unsafe {
        match flags {
            Some(flags) => driver.cuCtxEnablePeerAccess(peer, flags),
            None => driver.cuCtxDisablePeerAccess(peer),
        }
    }
}
