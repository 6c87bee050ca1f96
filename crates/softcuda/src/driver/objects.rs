//! What programs attach to graphs and streams, and pools and ranges of memory as they are asked
//! about.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::graphs::graph;
use crate::driver::{copy, device, memory, stream_handles};
use crate::error::{CuError, CuResult};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::kernel_call::AttributeValue;
use crate::objects::pool::Pool;
use crate::objects::user_object::{Held, UserObject};
use crate::state::{Soft, current, put, soft};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which every object must have.
const NO_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`
const MOVE: u32 = 1;

pub(crate) unsafe fn create_user_object(
    to: *mut Handle,
    data: *mut c_void,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    count: u32,
    flags: u32,
) -> CuResult {
    let soft = soft()?;
    let destroy = destroy.ok_or(CuError::INVALID_VALUE)?;
    if to.is_null() || count == 0 || count > i32::MAX as u32 || flags != NO_SYNC {
        return Err(CuError::INVALID_VALUE);
    }
    let handle = new_handle();
    let object = UserObject {
        handle,
        holders: AtomicU32::new(count),
        destroy,
        data: data as usize,
    };
    soft.user_objects.add(handle, Arc::new(object));
    // SAFETY: the caller's pointer.
    unsafe { put(to, handle) }
}

fn object(soft: &Soft, handle: Handle, count: u32) -> Result<Arc<UserObject>, CuError> {
    if count == 0 || count > i32::MAX as u32 {
        return Err(CuError::INVALID_VALUE);
    }
    soft.user_objects.get(handle).ok_or(CuError::INVALID_VALUE)
}

pub(crate) unsafe fn retain_user_object(handle: Handle, count: u32) -> CuResult {
    object(soft()?, handle, count)?.hold(count);
    Ok(())
}

pub(crate) unsafe fn release_user_object(handle: Handle, count: u32) -> CuResult {
    let soft = soft()?;
    let object = object(soft, handle, count)?;
    if object.holders.load(Ordering::Acquire) < count {
        return Err(CuError::INVALID_VALUE);
    }
    object.release(soft, count);
    Ok(())
}

pub(crate) unsafe fn graph_retain(of: Handle, handle: Handle, count: u32, flags: u32) -> CuResult {
    let object = object(soft()?, handle, count)?;
    if flags & !MOVE != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if flags & MOVE == 0 {
        object.hold(count);
    }
    graph(of)?.hold(Held { object, count });
    Ok(())
}

pub(crate) unsafe fn graph_release(of: Handle, handle: Handle, count: u32) -> CuResult {
    object(soft()?, handle, count)?;
    graph(of)?.release_held(|held| held.object.handle == handle && held.count == count)
}

/// `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`, `…SYNCHRONIZATION_POLICY`, `…PRIORITY`,
/// `…MEM_SYNC_DOMAIN_MAP`, `…MEM_SYNC_DOMAIN`
const OF_STREAMS: &[u32] = &[1, 3, 8, 9, 10];
/// The priority of a stream is its own.
const PRIORITY: u32 = 8;

pub(crate) unsafe fn get_attribute(
    stream: Handle,
    which: u32,
    to: *mut AttributeValue,
) -> CuResult {
    let (_, _, stream) = stream_handles::known(stream)?;
    if !OF_STREAMS.contains(&which) {
        return Err(CuError::INVALID_VALUE);
    }
    let mut value = lock(&stream.attributes)
        .get(&which)
        .copied()
        .unwrap_or_default();
    if which == PRIORITY {
        value[0] = u64::from(stream.priority as u32);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, value) }
}

pub(crate) unsafe fn set_attribute(
    stream: Handle,
    which: u32,
    value: *const AttributeValue,
) -> CuResult {
    let (_, _, stream) = stream_handles::known(stream)?;
    // SAFETY: the caller's pointer.
    let value = *unsafe { value.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    if !OF_STREAMS.contains(&which) || which == PRIORITY {
        return Err(CuError::INVALID_VALUE);
    }
    lock(&stream.attributes).insert(which, value);
    Ok(())
}

/// The first words of `CUmemPoolProps`.
#[repr(C)]
pub struct PoolProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;

pub(crate) unsafe fn create_pool(to: *mut Handle, properties: *const PoolProperties) -> CuResult {
    let soft = soft()?;
    // SAFETY: the caller's pointer.
    let wanted = unsafe { properties.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    if to.is_null() || wanted.kind != PINNED || wanted.location_kind != ON_DEVICE {
        return Err(CuError::INVALID_VALUE);
    }
    if wanted.handle_types != 0 {
        // Other processes cannot have it.
        return Err(CuError::NOT_SUPPORTED);
    }
    device::check(wanted.location).map_err(|_| CuError::INVALID_VALUE)?;
    let (handle, device) = (new_handle(), wanted.location as usize);
    soft.pools.add(handle, Arc::new(Pool { device }));
    // SAFETY: the caller's pointer.
    unsafe { put(to, handle) }
}

pub(crate) unsafe fn destroy_pool(pool: Handle) -> CuResult {
    soft()?
        .pools
        .remove(pool)
        .map(|_| ())
        .ok_or(CuError::INVALID_VALUE)
}

/// Devices that may access the pool: the answer is the same for all of a process.
pub(crate) unsafe fn set_pool_access(
    pool: Handle,
    access: *const c_void,
    count: usize,
) -> CuResult {
    device::of_pool(soft()?, pool)?;
    match access.is_null() && count > 0 {
        true => Err(CuError::INVALID_VALUE),
        false => Ok(()),
    }
}

pub(crate) unsafe fn get_pool_access(
    to: *mut c_int,
    pool: Handle,
    location: *const [c_int; 2],
) -> CuResult {
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
    const READ_WRITE: c_int = 3;
    device::of_pool(soft()?, pool)?;
    // SAFETY: the caller's pointer.
    let [kind, of] = *unsafe { location.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    if kind != ON_DEVICE {
        return Err(CuError::INVALID_VALUE);
    }
    device::check(of)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, READ_WRITE) }
}

/// What was advised for managed memory: nothing is kept, so each answer is the one of memory that
/// was never advised.
pub(crate) unsafe fn range_attribute(
    to: *mut c_void,
    bytes: usize,
    which: c_int,
    address: u64,
    length: usize,
) -> CuResult {
    /// `CU_DEVICE_INVALID`
    const NOWHERE: c_int = -2;
    let soft = soft()?;
    current()?;
    if to.is_null() || length == 0 || !memory::is_managed(soft, address) {
        return Err(CuError::INVALID_VALUE);
    }
    let word = match which {
        // Read mostly.
        1 => 0,
        // Preferred location, accessed by, last prefetched to; kinds of places and their numbers.
        2..=4 => NOWHERE,
        5 | 7 => 0,
        6 | 8 => NOWHERE,
        _ => return Err(CuError::INVALID_VALUE),
    };
    if bytes < 4 || !bytes.is_multiple_of(4) || (which != 3 && bytes != 4) {
        return Err(CuError::INVALID_VALUE);
    }
    for at in 0..bytes / 4 {
        // SAFETY: the caller's buffer of that length.
        unsafe { to.cast::<c_int>().add(at).write_unaligned(word) };
    }
    Ok(())
}

pub(crate) unsafe fn range_attributes(
    to: *const *mut c_void,
    bytes: *const usize,
    which: *const c_int,
    count: usize,
    address: u64,
    length: usize,
) -> CuResult {
    if count == 0 || to.is_null() || bytes.is_null() || which.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    for at in 0..count {
        // SAFETY: the caller's arrays of that length.
        unsafe { range_attribute(*to.add(at), *bytes.add(at), *which.add(at), address, length)? };
    }
    Ok(())
}

/// Copies one after the other. What else is said of them changes nothing here.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn copy_batch(
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    count: usize,
    attributes: *const c_void,
    first_with: *const usize,
    n_attributes: usize,
    stream: Handle,
) -> CuResult {
    let none = to.is_null() || from.is_null() || bytes.is_null();
    let unsaid = attributes.is_null() || first_with.is_null() || n_attributes == 0;
    if none || count == 0 || unsaid || n_attributes > count || stream == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    for at in 0..count {
        // SAFETY: the caller's arrays of that length.
        unsafe { copy::unified_async(*to.add(at), *from.add(at), *bytes.add(at), stream)? };
    }
    Ok(())
}

/// The same, which tells the number of the copy that failed.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn copy_batch_v1(
    to: *const u64,
    from: *const u64,
    bytes: *const usize,
    count: usize,
    attributes: *const c_void,
    first_with: *const usize,
    n_attributes: usize,
    failed: *mut usize,
    stream: Handle,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe {
        crate::state::put_if(failed, usize::MAX);
        copy_batch(
            to,
            from,
            bytes,
            count,
            attributes,
            first_with,
            n_attributes,
            stream,
        )
    }
}
