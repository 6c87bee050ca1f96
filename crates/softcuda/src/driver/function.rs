//! What a program may ask and set of a kernel, and occupancy.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use warpbpf_softgpu::{MAX_SHARED_PER_BLOCK, MAX_THREADS_PER_BLOCK, SHARED_PER_SM};

use crate::driver::launch_config::LaunchConfig;
use crate::driver::module::resolve;
use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, lock};
use crate::objects::module::{Function, Settings};
use crate::state::{Soft, put, soft};

/// Dynamic shared memory without asking for more.
const DEFAULT_SHARED: u32 = 48 << 10;

/// `CU_FUNC_ATTRIBUTE_…`
mod attribute {
    use std::ffi::c_int;
    pub const MAX_THREADS: c_int = 0;
    pub const SHARED: c_int = 1;
    pub const CONST: c_int = 2;
    pub const LOCAL: c_int = 3;
    pub const REGISTERS: c_int = 4;
    pub const PTX_VERSION: c_int = 5;
    pub const BINARY_VERSION: c_int = 6;
    pub const CACHE_MODE_CA: c_int = 7;
    pub const MAX_DYNAMIC_SHARED: c_int = 8;
    pub const CARVEOUT: c_int = 9;
    pub const CLUSTER_MUST_BE_SET: c_int = 10;
    pub const CLUSTER_WIDTH: c_int = 11;
    pub const CLUSTER_HEIGHT: c_int = 12;
    pub const CLUSTER_DEPTH: c_int = 13;
    pub const NON_PORTABLE_CLUSTER: c_int = 14;
    pub const CLUSTER_POLICY: c_int = 15;
}

impl Function {
    /// Dynamic shared memory that a launch may ask for, in bytes.
    pub(crate) fn dynamic_shared_limit(&self) -> Result<u32, CuError> {
        let fixed = self.info()?.static_shared;
        let set = lock(&self.settings).max_dynamic_shared;
        Ok(set.unwrap_or(DEFAULT_SHARED.saturating_sub(fixed)))
    }
}

fn value(function: &Function, wanted: c_int) -> Result<c_int, CuError> {
    let info = function.info()?;
    let settings = *lock(&function.settings);
    let target: u32 = info
        .target
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap_or(90);
    Ok(match wanted {
        attribute::MAX_THREADS => info.max_threads as c_int,
        attribute::SHARED => info.static_shared as c_int,
        attribute::CONST | attribute::CACHE_MODE_CA => 0,
        attribute::LOCAL => info.local as c_int,
        attribute::REGISTERS => info.registers as c_int,
        attribute::PTX_VERSION => target as c_int,
        attribute::BINARY_VERSION => 90,
        attribute::MAX_DYNAMIC_SHARED => function.dynamic_shared_limit()? as c_int,
        attribute::CARVEOUT => settings.carveout,
        attribute::CLUSTER_MUST_BE_SET
        | attribute::CLUSTER_WIDTH
        | attribute::CLUSTER_HEIGHT
        | attribute::CLUSTER_DEPTH => 0,
        attribute::NON_PORTABLE_CLUSTER => settings.non_portable_cluster,
        attribute::CLUSTER_POLICY => settings.cluster_policy,
        _ => return Err(CuError::INVALID_VALUE),
    })
}

fn set(settings: &Mutex<Settings>, fixed: u32, which: c_int, value: c_int) -> CuResult {
    let mut settings = lock(settings);
    match which {
        attribute::MAX_DYNAMIC_SHARED => {
            let bytes = u32::try_from(value).map_err(|_| CuError::INVALID_VALUE)?;
            if bytes.saturating_add(fixed) > MAX_SHARED_PER_BLOCK {
                return Err(CuError::INVALID_VALUE);
            }
            settings.max_dynamic_shared = Some(bytes);
        }
        attribute::CARVEOUT if (-1..=100).contains(&value) => settings.carveout = value,
        attribute::NON_PORTABLE_CLUSTER => settings.non_portable_cluster = value,
        attribute::CLUSTER_POLICY => settings.cluster_policy = value,
        _ => return Err(CuError::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn get_attribute(to: *mut c_int, which: c_int, function: Handle) -> CuResult {
    let function = resolve(soft()?, function)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, value(&function, which)?) }
}

pub(crate) unsafe fn set_attribute(function: Handle, which: c_int, value: c_int) -> CuResult {
    let function = resolve(soft()?, function)?;
    set(
        &function.settings,
        function.info()?.static_shared,
        which,
        value,
    )
}

pub(crate) unsafe fn kernel_get_attribute(
    to: *mut c_int,
    which: c_int,
    kernel: Handle,
    device: c_int,
) -> CuResult {
    crate::driver::device::check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { get_attribute(to, which, kernel) }
}

pub(crate) unsafe fn kernel_set_attribute(
    which: c_int,
    value: c_int,
    kernel: Handle,
    device: c_int,
) -> CuResult {
    crate::driver::device::check(device)?;
    // SAFETY: no pointers.
    unsafe { set_attribute(kernel, which, value) }
}

pub(crate) unsafe fn set_cache_config(function: Handle, _config: c_int) -> CuResult {
    resolve(soft()?, function).map(|_| ())
}

pub(crate) unsafe fn kernel_set_cache_config(
    kernel: Handle,
    _config: c_int,
    device: c_int,
) -> CuResult {
    crate::driver::device::check(device)?;
    resolve(soft()?, kernel).map(|_| ())
}

/// Multiprocessors of the device that a function is on.
fn sms(soft: &Soft, function: &Function) -> Result<u32, CuError> {
    let context = soft.contexts.get(function.module.context);
    let context = context.ok_or(CuError::CONTEXT_IS_DESTROYED)?;
    Ok(soft.config.sms[context.device])
}

fn blocks(soft: &Soft, function: &Function, threads: u32, dynamic: usize) -> Result<u32, CuError> {
    function.info()?;
    let dynamic = u32::try_from(dynamic).unwrap_or(u32::MAX);
    let context = soft.contexts.get(function.module.context);
    let context = context.ok_or(CuError::CONTEXT_IS_DESTROYED)?;
    soft.gpu(&context)
        .blocks_per_sm(&function.kernel, threads, dynamic)
        .map_err(|_| CuError::NOT_SUPPORTED)
}

pub(crate) unsafe fn max_active_blocks(
    to: *mut c_int,
    function: Handle,
    threads: c_int,
    dynamic: usize,
) -> CuResult {
    let soft = soft()?;
    let function = resolve(soft, function)?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, blocks(soft, &function, threads, dynamic)? as c_int) }
}

pub(crate) unsafe fn max_active_blocks_flags(
    to: *mut c_int,
    function: Handle,
    threads: c_int,
    dynamic: usize,
    _flags: u32,
) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { max_active_blocks(to, function, threads, dynamic) }
}

type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

pub(crate) unsafe fn potential_block_size(
    min_grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    shared_of: BlockToShared,
    dynamic: usize,
    limit: c_int,
) -> CuResult {
    let soft = soft()?;
    let function = resolve(soft, function)?;
    let most = function.info()?.max_threads.min(MAX_THREADS_PER_BLOCK);
    let most = u32::try_from(limit)
        .ok()
        .filter(|&n| n > 0)
        .map_or(most, |limit| limit.min(most));
    let mut best = (0u32, 0u32, 0u32);
    // From the largest: of equal occupancy the larger block, as NVIDIA's calculator.
    let mut size = most;
    while size > 0 {
        let shared = match shared_of {
            // SAFETY: the caller's function.
            Some(shared_of) => unsafe { shared_of(size as c_int) },
            None => dynamic,
        };
        let resident = blocks(soft, &function, size, shared)?;
        if resident * size > best.0 {
            best = (resident * size, size, resident);
        }
        size = size.saturating_sub(1) / 32 * 32;
    }
    // SAFETY: the caller's pointers.
    unsafe {
        put(min_grid, (best.2 * sms(soft, &function)?) as c_int)?;
        put(block, best.1 as c_int)
    }
}

pub(crate) unsafe fn potential_block_size_flags(
    min_grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    shared_of: BlockToShared,
    dynamic: usize,
    limit: c_int,
    _flags: u32,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { potential_block_size(min_grid, block, function, shared_of, dynamic, limit) }
}

pub(crate) unsafe fn available_shared(
    to: *mut usize,
    function: Handle,
    resident: c_int,
    threads: c_int,
) -> CuResult {
    let function = resolve(soft()?, function)?;
    let resident = u32::try_from(resident)
        .ok()
        .filter(|&n| n > 0)
        .ok_or(CuError::INVALID_VALUE)?;
    if threads <= 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let per_block = (SHARED_PER_SM / resident)
        .saturating_sub(warpbpf_softgpu::RESERVED_SHARED)
        .min(MAX_SHARED_PER_BLOCK);
    let free = per_block.saturating_sub(function.info()?.static_shared);
    // SAFETY: the caller's pointer.
    unsafe { put(to, free as usize) }
}

pub(crate) unsafe fn potential_cluster_size(
    to: *mut c_int,
    function: Handle,
    _config: *const LaunchConfig,
) -> CuResult {
    let function = resolve(soft()?, function)?;
    let largest = if lock(&function.settings).non_portable_cluster != 0 {
        16
    } else {
        8
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, largest) }
}

pub(crate) unsafe fn max_active_clusters(
    to: *mut c_int,
    function: Handle,
    config: *const LaunchConfig,
) -> CuResult {
    let soft = soft()?;
    let function = resolve(soft, function)?;
    if config.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let config = unsafe { &*config };
    let threads = config.block.iter().product();
    let resident =
        blocks(soft, &function, threads, config.shared as usize)? * sms(soft, &function)?;
    // SAFETY: the attributes of a valid configuration.
    let attributes = unsafe { config.attributes() };
    let cluster: u32 = attributes.cluster.iter().product::<u32>().max(1);
    // SAFETY: the caller's pointer.
    unsafe { put(to, (resident / cluster) as c_int) }
}

/// Blocks of a grid that can run at once on the whole device: what a cooperative launch must fit
/// in.
pub(crate) fn resident_blocks(
    soft: &Soft,
    function: &Arc<Function>,
    threads: u32,
    dynamic: u32,
) -> Result<u64, CuError> {
    let per_sm = blocks(soft, function, threads, dynamic as usize)?;
    Ok(u64::from(per_sm) * u64::from(sms(soft, function)?))
}
