//! Allocation, host memory and questions about pointers. Device memory is the emulator's arena;
//! page-locked and managed memory is the host's own, mapped for the device at the same address.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::{capture, device, stream_handles};
use crate::error::{CuError, CuResult};
use crate::objects::context::{Allocation, Context, MemoryKind};
use crate::objects::handle::{Handle, lock};
use crate::objects::stream::Stream;
use crate::state::{Soft, current, put, put_if, soft};

/// Rows of a pitched allocation begin at multiples of this.
const PITCH: usize = 512;
const PAGE: usize = 4096;

fn remember(
    soft: &Soft,
    context: &Context,
    base: u64,
    size: u64,
    kind: MemoryKind,
    flags: u32,
) -> CuResult {
    let id = soft.next_allocation.fetch_add(1, Ordering::Relaxed);
    lock(&soft.allocations).insert(
        base,
        Allocation {
            base,
            size,
            kind,
            context: context.handle,
            device: context.device,
            flags,
            id,
        },
    );
    Ok(())
}

/// The allocation that holds an address.
pub(crate) fn find(soft: &Soft, address: u64) -> Option<Allocation> {
    let allocations = lock(&soft.allocations);
    let (_, found) = allocations.range(..=address).next_back()?;
    (address - found.base < found.size.max(1)).then_some(*found)
}

/// Takes an allocation out of the table and gives its memory back.
pub(crate) fn release(soft: &Soft, allocation: &Allocation) {
    lock(&soft.allocations).remove(&allocation.base);
    match allocation.kind {
        MemoryKind::Device => {
            // The table said that it is live; nothing else frees arena memory.
            let _ = soft.free(allocation.base);
        }
        MemoryKind::Registered => {
            soft.unmap_host(allocation.base);
        }
        MemoryKind::Host | MemoryKind::Managed => {
            soft.unmap_host(allocation.base);
            // SAFETY: `map_pages` made it with this size; it is mapped for the device no longer.
            unsafe { libc::munmap(allocation.base as *mut c_void, allocation.size as usize) };
        }
    }
}

pub(crate) unsafe fn alloc(to: *mut u64, bytes: usize) -> CuResult {
    let context = current()?;
    // SAFETY: the caller's pointer.
    unsafe { alloc_in(&context, to, bytes) }
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn alloc_in(context: &Context, to: *mut u64, bytes: usize) -> CuResult {
    let soft = soft()?;
    capture::unsafe_call(soft)?;
    if bytes == 0 || to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let address = soft.gpu(context).alloc(bytes as u64);
    let address = address.ok_or(CuError::OUT_OF_MEMORY)?;
    remember(soft, context, address, bytes as u64, MemoryKind::Device, 0)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, address) }
}

/// The stream of an allocation or a free, which no graph can hold.
fn in_order(stream: Handle) -> Result<Arc<Stream>, CuError> {
    let (soft, context, stream) = stream_handles::known(stream)?;
    capture::refuse(soft, &context, &stream)?;
    Ok(stream)
}

pub(crate) unsafe fn alloc_async(to: *mut u64, bytes: usize, stream: Handle) -> CuResult {
    in_order(stream)?;
    // SAFETY: the caller's pointer.
    unsafe { alloc(to, bytes) }
}

pub(crate) unsafe fn alloc_from_pool(
    to: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    stream_handles::find(soft, &context, stream)?;
    let device = device::of_pool(soft, pool)?;
    // Of another device, it is memory of that device's primary context.
    let there = match device == context.device {
        true => &context,
        false => &soft.devices[device].primary,
    };
    // SAFETY: the caller's pointer.
    unsafe { alloc_in(there, to, bytes) }
}

pub(crate) unsafe fn alloc_pitch(
    to: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> CuResult {
    if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 || pitch.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let row = width
        .checked_next_multiple_of(PITCH)
        .ok_or(CuError::INVALID_VALUE)?;
    let bytes = row.checked_mul(height).ok_or(CuError::OUT_OF_MEMORY)?;
    // SAFETY: the caller's pointers.
    unsafe {
        alloc(to, bytes)?;
        put(pitch, row)
    }
}

/// A live allocation of these kinds that begins there.
fn allocated(
    soft: &Soft,
    address: u64,
    kinds: &[MemoryKind],
    wrong: CuError,
) -> Result<Allocation, CuError> {
    let found = lock(&soft.allocations).get(&address).copied();
    let found = found.filter(|found| kinds.contains(&found.kind));
    found.ok_or(wrong)
}

fn free_one(address: u64, kinds: &[MemoryKind], wrong: CuError) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    capture::unsafe_call(soft)?;
    let found = allocated(soft, address, kinds, wrong)?;
    // What failed is for the next call to tell.
    let _alone = context.alone()?;
    context.flush_printed();
    release(soft, &found);
    Ok(())
}

/// What `cuMemAlloc` and its like give.
const OF_DEVICE: [MemoryKind; 2] = [MemoryKind::Device, MemoryKind::Managed];

pub(crate) unsafe fn free(address: u64) -> CuResult {
    if address == 0 {
        current()?;
        return Ok(());
    }
    free_one(address, &OF_DEVICE, CuError::INVALID_VALUE)
}

/// Behind what is in the stream; others go on.
pub(crate) unsafe fn free_async(address: u64, stream: Handle) -> CuResult {
    in_order(stream)?.synchronize();
    let soft = soft()?;
    current()?;
    if address != 0 {
        let found = allocated(soft, address, &OF_DEVICE, CuError::INVALID_VALUE)?;
        release(soft, &found);
    }
    Ok(())
}

/// Fresh zeroed pages, seen by the device.
fn map_pages(soft: &Soft, bytes: usize, kind: MemoryKind, flags: u32) -> Result<u64, CuError> {
    let size = bytes
        .checked_next_multiple_of(PAGE)
        .ok_or(CuError::OUT_OF_MEMORY)?;
    let context = current()?;
    capture::unsafe_call(soft)?;
    // SAFETY: a new anonymous mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(CuError::OUT_OF_MEMORY);
    }
    // SAFETY: the pages stay until `release`, which takes them from the device first.
    let address = unsafe { soft.map_host(start.cast(), size as u64) };
    remember(soft, &context, address, size as u64, kind, flags)?;
    Ok(address)
}

pub(crate) unsafe fn host_alloc(to: *mut *mut c_void, bytes: usize, flags: u32) -> CuResult {
    let soft = soft()?;
    if bytes == 0 || to.is_null() || flags & !7 != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let address = map_pages(soft, bytes, MemoryKind::Host, flags)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, address as *mut c_void) }
}

pub(crate) unsafe fn alloc_host(to: *mut *mut c_void, bytes: usize) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { host_alloc(to, bytes, 0) }
}

pub(crate) unsafe fn alloc_managed(to: *mut u64, bytes: usize, flags: u32) -> CuResult {
    let soft = soft()?;
    if bytes == 0 || to.is_null() || !matches!(flags, 1 | 2 | 4) {
        return Err(CuError::INVALID_VALUE);
    }
    let address = map_pages(soft, bytes, MemoryKind::Managed, flags)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, address) }
}

pub(crate) unsafe fn free_host(pointer: *mut c_void) -> CuResult {
    free_one(pointer as u64, &[MemoryKind::Host], CuError::INVALID_VALUE)
}

pub(crate) unsafe fn host_register(pointer: *mut c_void, bytes: usize, flags: u32) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    let base = pointer as u64;
    if base == 0 || bytes == 0 || base.checked_add(bytes as u64).is_none() || flags & !0xf != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let overlaps = lock(&soft.allocations)
        .range(..base + bytes as u64)
        .next_back()
        .is_some_and(|(_, last)| last.base + last.size > base);
    if overlaps {
        return Err(CuError::HOST_MEMORY_ALREADY_REGISTERED);
    }
    // SAFETY: the program promises that its memory stays until it unregisters it.
    unsafe { soft.map_host(pointer.cast(), bytes as u64) };
    remember(
        soft,
        &context,
        base,
        bytes as u64,
        MemoryKind::Registered,
        flags,
    )
}

pub(crate) unsafe fn host_unregister(pointer: *mut c_void) -> CuResult {
    free_one(
        pointer as u64,
        &[MemoryKind::Registered],
        CuError::HOST_MEMORY_NOT_REGISTERED,
    )
}

pub(crate) unsafe fn host_device_pointer(
    to: *mut u64,
    pointer: *mut c_void,
    flags: u32,
) -> CuResult {
    let soft = soft()?;
    current()?;
    let known = find(soft, pointer as u64).is_some_and(|found| found.kind != MemoryKind::Device);
    if flags != 0 || !known {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, pointer as u64) }
}

pub(crate) unsafe fn host_flags(to: *mut u32, pointer: *mut c_void) -> CuResult {
    let soft = soft()?;
    let found = find(soft, pointer as u64).filter(|found| found.kind == MemoryKind::Host);
    // SAFETY: the caller's pointer.
    unsafe { put(to, found.ok_or(CuError::INVALID_VALUE)?.flags | 2) }
}

pub(crate) unsafe fn address_range(base: *mut u64, bytes: *mut usize, address: u64) -> CuResult {
    let soft = soft()?;
    current()?;
    // A module's variables are allocations too, known to the emulator only.
    let (start, size) = soft.range_of(address).ok_or(CuError::NOT_FOUND)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(base, start);
        put_if(bytes, size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn info(free: *mut usize, total: *mut usize) -> CuResult {
    let (capacity, used) = soft()?.gpu(&*current()?).memory_info();
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(free, (capacity - used.min(capacity)) as usize);
        put_if(total, capacity as usize);
    }
    Ok(())
}

/// `CU_POINTER_ATTRIBUTE_…`
mod attribute {
    use std::ffi::c_int;
    pub const CONTEXT: c_int = 1;
    pub const MEMORY_TYPE: c_int = 2;
    pub const DEVICE_POINTER: c_int = 3;
    pub const HOST_POINTER: c_int = 4;
    pub const SYNC_MEMOPS: c_int = 6;
    pub const BUFFER_ID: c_int = 7;
    pub const IS_MANAGED: c_int = 8;
    pub const DEVICE_ORDINAL: c_int = 9;
    pub const IPC_CAPABLE: c_int = 10;
    pub const RANGE_START: c_int = 11;
    pub const RANGE_SIZE: c_int = 12;
    pub const MAPPED: c_int = 13;
    pub const HANDLE_TYPES: c_int = 14;
    pub const RDMA_CAPABLE: c_int = 15;
    pub const ACCESS_FLAGS: c_int = 16;
    pub const POOL: c_int = 17;
}

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`
const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// What is known of an address, module variables included.
fn describe(soft: &Soft, address: u64) -> Option<Allocation> {
    find(soft, address).or_else(|| {
        let (base, size) = soft.range_of(address)?;
        let device = soft.device_at(address).unwrap_or(0);
        let context = soft.devices[device].primary.handle;
        Some(Allocation {
            base,
            size,
            kind: MemoryKind::Device,
            context,
            device,
            flags: 0,
            id: 0,
        })
    })
}

/// # Safety
/// `to` must be valid for the attribute's type.
unsafe fn put_attribute(soft: &Soft, to: *mut c_void, which: c_int, address: u64) -> CuResult {
    let found = describe(soft, address).ok_or(CuError::INVALID_VALUE)?;
    let on_host = matches!(found.kind, MemoryKind::Host | MemoryKind::Registered);
    // SAFETY: the caller's pointer, of the type that CUDA gives the attribute.
    unsafe {
        match which {
            attribute::CONTEXT => put(to.cast(), found.context),
            attribute::MEMORY_TYPE => put(to.cast(), if on_host { TYPE_HOST } else { TYPE_DEVICE }),
            attribute::DEVICE_POINTER => put(to.cast(), address),
            attribute::HOST_POINTER => match found.kind {
                MemoryKind::Device => Err(CuError::INVALID_VALUE),
                MemoryKind::Host | MemoryKind::Registered | MemoryKind::Managed => {
                    put(to.cast(), address)
                }
            },
            attribute::SYNC_MEMOPS | attribute::IPC_CAPABLE | attribute::RDMA_CAPABLE => {
                put(to.cast::<u32>(), 0)
            }
            attribute::BUFFER_ID => put(to.cast(), found.id),
            attribute::IS_MANAGED => put(to.cast(), u32::from(found.kind == MemoryKind::Managed)),
            attribute::DEVICE_ORDINAL => put(to.cast::<c_int>(), found.device as c_int),
            attribute::RANGE_START => put(to.cast(), found.base),
            attribute::RANGE_SIZE => put(to.cast(), found.size),
            attribute::MAPPED => put(to.cast::<u32>(), 1),
            attribute::HANDLE_TYPES => put(to.cast::<u64>(), 0),
            attribute::ACCESS_FLAGS => put(to.cast::<u32>(), 3),
            attribute::POOL => put(to.cast::<Handle>(), 0),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

pub(crate) unsafe fn pointer_attribute(to: *mut c_void, which: c_int, address: u64) -> CuResult {
    let soft = soft()?;
    // SAFETY: the caller's pointer.
    unsafe { put_attribute(soft, to, which, address) }
}

/// Unlike the single query, an address that is not CUDA's is no error: what it has none of reads as
/// zero.
pub(crate) unsafe fn pointer_attributes(
    count: u32,
    attributes: *const c_int,
    to: *const *mut c_void,
    address: u64,
) -> CuResult {
    let soft = soft()?;
    if count == 0 || attributes.is_null() || to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    for at in 0..count as usize {
        // SAFETY: both arrays have `count` elements.
        unsafe {
            let (which, to) = (*attributes.add(at), *to.add(at));
            if put_attribute(soft, to, which, address).is_err() {
                match which {
                    attribute::CONTEXT
                    | attribute::DEVICE_POINTER
                    | attribute::HOST_POINTER
                    | attribute::BUFFER_ID
                    | attribute::RANGE_START
                    | attribute::RANGE_SIZE
                    | attribute::HANDLE_TYPES
                    | attribute::POOL => put(to.cast::<u64>(), 0)?,
                    attribute::DEVICE_ORDINAL => put(to.cast::<c_int>(), -2)?,
                    _ => put(to.cast::<u32>(), 0)?,
                }
            }
        }
    }
    Ok(())
}

pub(crate) unsafe fn set_pointer_attribute(
    _value: *const c_void,
    _which: c_int,
    address: u64,
) -> CuResult {
    let soft = soft()?;
    describe(soft, address)
        .map(|_| ())
        .ok_or(CuError::INVALID_VALUE)
}

/// `CUmemLocation`, passed in a register.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

fn managed(address: u64, bytes: usize) -> CuResult {
    let soft = soft()?;
    current()?;
    let found = find(soft, address).filter(|found| found.kind == MemoryKind::Managed);
    let found = found.ok_or(CuError::INVALID_VALUE)?;
    let fits = bytes as u64 <= found.base + found.size - address;
    if fits {
        Ok(())
    } else {
        Err(CuError::INVALID_VALUE)
    }
}

/// Managed memory is always on both sides.
pub(crate) unsafe fn prefetch(
    address: u64,
    bytes: usize,
    _location: Location,
    _flags: u32,
    stream: Handle,
) -> CuResult {
    managed(address, bytes)?;
    let soft = soft()?;
    stream_handles::find(soft, &current()?, stream).map(|_| ())
}

pub(crate) unsafe fn prefetch_v1(
    address: u64,
    bytes: usize,
    device: c_int,
    stream: Handle,
) -> CuResult {
    // SAFETY: no pointers.
    unsafe {
        prefetch(
            address,
            bytes,
            Location {
                kind: 1,
                id: device,
            },
            0,
            stream,
        )
    }
}

pub(crate) unsafe fn advise(
    address: u64,
    bytes: usize,
    _advice: c_int,
    _location: Location,
) -> CuResult {
    managed(address, bytes)
}

pub(crate) unsafe fn advise_v1(
    address: u64,
    bytes: usize,
    _advice: c_int,
    _device: c_int,
) -> CuResult {
    managed(address, bytes)
}

pub(crate) unsafe fn pool_of_context(to: *mut Handle, device: c_int) -> CuResult {
    current()?;
    // SAFETY: the caller's pointer.
    unsafe { device::memory_pool(to, device) }
}

/// The address is in memory that the host and the device have at one address.
pub(crate) fn is_managed(soft: &Soft, address: u64) -> bool {
    find(soft, address).is_some_and(|found| found.kind == MemoryKind::Managed)
}
