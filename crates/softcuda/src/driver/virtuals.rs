//! Virtual memory management: addresses are reserved in the process, memory is a file without a
//! name, and a mapping is seen by the device once access to it was granted.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use crate::error::{CuError, CuResult};
use crate::objects::handle::lock;
use crate::state::{Soft, current, put, soft};

/// What memory is made and mapped in multiples of, as on a real device.
const GRANULARITY: usize = 2 << 20;

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
    windows: *const c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    location_kind: c_int,
    location: c_int,
    flags: c_int,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`, `…_READ`, `…_READWRITE`
const ACCESSES: [c_int; 3] = [0, 1, 3];

#[derive(Debug)]
struct Mapping {
    bytes: usize,
    /// Devices that see it, by ordinal.
    open: Vec<bool>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Memory by handle, with its size. A mapping keeps its memory after the handle is gone.
    made: HashMap<u64, (OwnedFd, usize)>,
    last: u64,
    /// Reserved ranges: start and size.
    reserved: BTreeMap<u64, usize>,
    mapped: BTreeMap<u64, Mapping>,
}

static TABLES: Mutex<Option<Tables>> = Mutex::new(None);

fn with<T>(work: impl FnOnce(&Soft, &mut Tables) -> Result<T, CuError>) -> Result<T, CuError> {
    let soft = soft()?;
    let mut tables = lock(&TABLES);
    work(soft, tables.get_or_insert_default())
}

fn whole(bytes: usize) -> CuResult {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(())
}

/// The device that is asked for.
///
/// # Safety
/// `properties` is null or readable.
unsafe fn check(properties: *const Properties) -> Result<usize, CuError> {
    if properties.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's promise. Programs need not align it as a pointer in it would have to be.
    let wanted = unsafe { properties.read_unaligned() };
    if wanted.kind != PINNED || wanted.location_kind != ON_DEVICE {
        return Err(CuError::INVALID_VALUE);
    }
    crate::driver::device::check(wanted.location).map_err(|_| CuError::INVALID_VALUE)?;
    Ok(wanted.location as usize)
}

pub(crate) unsafe fn granularity(
    to: *mut usize,
    properties: *const Properties,
    _option: c_int,
) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointers.
    unsafe {
        check(properties)?;
        put(to, GRANULARITY)
    }
}

pub(crate) unsafe fn create(
    to: *mut u64,
    bytes: usize,
    properties: *const Properties,
    flags: u64,
) -> CuResult {
    whole(bytes)?;
    // SAFETY: the caller's pointer.
    let device = unsafe { check(properties)? };
    if to.is_null() || flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let handle = with(|soft, tables| {
        let (capacity, used) = soft.devices[device].gpu.memory_info();
        if bytes as u64 > capacity.saturating_sub(used) {
            return Err(CuError::OUT_OF_MEMORY);
        }
        // SAFETY: a NUL-terminated name.
        let file = unsafe { libc::memfd_create(c"softcuda".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(CuError::OUT_OF_MEMORY);
        }
        // SAFETY: a descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = libc::off_t::try_from(bytes).map_err(|_| CuError::OUT_OF_MEMORY)?;
        // SAFETY: a live descriptor.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(CuError::OUT_OF_MEMORY);
        }
        tables.last += 1;
        tables.made.insert(tables.last, (file, bytes));
        Ok(tables.last)
    })?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, handle) }
}

pub(crate) unsafe fn release(handle: u64) -> CuResult {
    let found = with(|_, tables| Ok(tables.made.remove(&handle)))?;
    found.map(drop).ok_or(CuError::INVALID_VALUE)
}

/// Pages that nobody may touch.
fn forbid(at: *mut c_void, bytes: usize) -> Result<u64, CuError> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new mapping, or one in place of pages that this module reserved.
    let start = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(CuError::OUT_OF_MEMORY);
    }
    Ok(start as u64)
}

/// Pages at this address that nobody may touch. False if something is there.
fn forbid_free(at: u64, bytes: usize) -> bool {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = kind | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, in place of nothing.
    let start = unsafe { libc::mmap(at as *mut c_void, bytes, libc::PROT_NONE, flags, -1, 0) };
    if start != libc::MAP_FAILED && start as u64 != at {
        // SAFETY: mapped just now: a kernel before 4.17 takes the address for a hint.
        unsafe { give_back(start as u64, bytes as u64) };
    }
    start as u64 == at
}

/// # Safety
/// The pages are this module's and nobody uses them.
unsafe fn give_back(at: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(at as *mut c_void, bytes as usize) };
    }
}

/// Fewer bytes are not reserved where one asks for them to be, as with NVIDIA's driver.
const HEEDED: usize = 1 << 30;

pub(crate) unsafe fn reserve(
    to: *mut u64,
    bytes: usize,
    alignment: usize,
    hint: u64,
    flags: u64,
) -> CuResult {
    whole(bytes)?;
    let alignment = alignment.max(GRANULARITY);
    if to.is_null() || flags != 0 || !alignment.is_power_of_two() {
        return Err(CuError::INVALID_VALUE);
    }
    let start = with(|_, tables| {
        let heeded = hint != 0 && bytes >= HEEDED && hint.is_multiple_of(alignment as u64);
        if heeded && forbid_free(hint, bytes) {
            tables.reserved.insert(hint, bytes);
            return Ok(hint);
        }
        let room = bytes.checked_add(alignment).ok_or(CuError::OUT_OF_MEMORY)?;
        let first = forbid(std::ptr::null_mut(), room)?;
        let start = first.next_multiple_of(alignment as u64);
        let (end, last) = (start + bytes as u64, first + room as u64);
        // SAFETY: the pages around the reserved ones were mapped just now.
        unsafe {
            give_back(first, start - first);
            give_back(end, last - end);
        }
        tables.reserved.insert(start, bytes);
        Ok(start)
    })?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, start) }
}

pub(crate) unsafe fn free(address: u64, bytes: usize) -> CuResult {
    with(|_, tables| {
        let end = address.saturating_add(bytes as u64);
        let used = tables.mapped.range(address..end).next().is_some();
        if used || tables.reserved.get(&address) != Some(&bytes) {
            return Err(CuError::INVALID_VALUE);
        }
        tables.reserved.remove(&address);
        // SAFETY: reserved by `reserve`, with nothing mapped in it.
        unsafe { give_back(address, bytes as u64) };
        Ok(())
    })
}

pub(crate) unsafe fn map(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> CuResult {
    whole(bytes)?;
    with(|_, tables| {
        let end = address
            .checked_add(bytes as u64)
            .ok_or(CuError::INVALID_VALUE)?;
        let reserved = tables
            .reserved
            .range(..=address)
            .next_back()
            .is_some_and(|(start, size)| end <= start + *size as u64);
        let taken = tables
            .mapped
            .range(..end)
            .next_back()
            .is_some_and(|(start, m)| start + m.bytes as u64 > address);
        let (file, size) = tables.made.get(&handle).ok_or(CuError::INVALID_VALUE)?;
        if !reserved
            || taken
            || flags != 0
            || offset != 0
            || bytes > *size
            || !address.is_multiple_of(GRANULARITY as u64)
        {
            return Err(CuError::INVALID_VALUE);
        }
        // SAFETY: in place of reserved pages that hold nothing.
        let start = unsafe {
            libc::mmap(
                address as *mut c_void,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(CuError::OUT_OF_MEMORY);
        }
        tables.mapped.insert(
            address,
            Mapping {
                bytes,
                open: Vec::new(),
            },
        );
        Ok(())
    })
}

/// The mappings that make up a range; whole ones only, with nothing between them.
fn mappings(tables: &Tables, address: u64, bytes: usize) -> Result<Vec<u64>, CuError> {
    whole(bytes)?;
    let end = address.saturating_add(bytes as u64);
    let mut at = address;
    let mut found = Vec::new();
    for (start, mapping) in tables.mapped.range(address..end) {
        if *start != at {
            return Err(CuError::INVALID_VALUE);
        }
        at = start + mapping.bytes as u64;
        found.push(*start);
    }
    if at == end {
        Ok(found)
    } else {
        Err(CuError::INVALID_VALUE)
    }
}

fn show(soft: &Soft, start: u64, mapping: &mut Mapping, device: usize, open: bool) {
    mapping.open.resize(soft.devices.len(), false);
    if open != mapping.open[device] {
        let gpu = &soft.devices[device].gpu;
        if open {
            // SAFETY: the pages stay until `unmap`, which takes them from the device first.
            unsafe { gpu.map_host(start as *mut u8, mapping.bytes as u64) };
        } else {
            let _ = gpu.unmap_host(start);
        }
        mapping.open[device] = open;
    }
}

pub(crate) unsafe fn set_access(
    address: u64,
    bytes: usize,
    access: *const Access,
    count: usize,
) -> CuResult {
    if access.is_null() || count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's array.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    for a in access {
        if a.location_kind != ON_DEVICE || !ACCESSES.contains(&a.flags) {
            return Err(CuError::INVALID_VALUE);
        }
        crate::driver::device::check(a.location).map_err(|_| CuError::INVALID_VALUE)?;
    }
    let context = current()?;
    with(|soft, tables| {
        let all = mappings(tables, address, bytes)?;
        if access.iter().any(|a| a.flags == 0) {
            // What still runs may use it; its failure is for the next call to tell.
            let _ = context.synchronize();
        }
        for start in all {
            if let Some(mapping) = tables.mapped.get_mut(&start) {
                for a in access {
                    show(soft, start, mapping, a.location as usize, a.flags != 0);
                }
            }
        }
        Ok(())
    })
}

pub(crate) unsafe fn unmap(address: u64, bytes: usize) -> CuResult {
    with(|soft, tables| {
        let all = mappings(tables, address, bytes)?;
        // Where no context is current, what used it has ended with its own.
        if let Ok(context) = current() {
            let _ = context.synchronize();
        }
        for start in all {
            if let Some(mut mapping) = tables.mapped.remove(&start) {
                for device in 0..soft.devices.len() {
                    show(soft, start, &mut mapping, device, false);
                }
                forbid(start as *mut c_void, mapping.bytes)?;
            }
        }
        Ok(())
    })
}
