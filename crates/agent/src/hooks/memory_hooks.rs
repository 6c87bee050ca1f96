//! The hooks by which memory comes and goes. What comes is told to [`crate::device::memory`] after
//! the driver has made it, what goes before the driver takes it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use warpbpf_driver::sys::{self, CUdeviceptr, CUlibrary, CUmodule, CUresult, CUstream};
use warpbpf_session::{Allocation, Kind};

use crate::contexts::memory_table::{add, add_here, put_back_if_refused, withdraw};
use crate::device::graphs::captures::is_capturing;
use crate::instrument::nvrtc;
use crate::instrument::watch::look_for_life;
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original::{self, AccessDescription, IpcHandle};

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_DEVICE: c_int = 1;
/// Bit of `CU_MEM_ACCESS_FLAGS_PROT_READ` and `…_READWRITE`.
const READ: c_int = 1;
/// `CU_MEM_ATTACH_GLOBAL`: any stream may access it.
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: reading a device's registers can change them.
const REGISTER_IO: c_uint = 4;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`
const DEVICE_ORDINAL: c_int = 9;

/// An allocation of `bytes` in the context that is current.
fn here(agent: &Agent, kind: Kind, name: u64, address: u64, bytes: u64) -> Option<Allocation> {
    Some(Allocation {
        kind,
        name,
        range: address..address.checked_add(bytes)?,
        context: agent.driver.current()?.0 as usize,
        owner: 0,
    })
}

/// Notes device memory that the driver has just given out.
///
/// # Safety
/// If `code` is success, `address` is readable or null.
unsafe fn note(agent: &Agent, code: CUresult, address: *const CUdeviceptr, bytes: u64) {
    if code == sys::SUCCESS && !address.is_null() {
        // SAFETY: the caller's promise.
        let address = unsafe { *address };
        if let Some(found) = here(agent, Kind::Device, address, address, bytes) {
            add_here(agent, found);
        }
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn alloc(
    agent: &'static Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    bytes: usize,
) -> CUresult {
    look_for_life(agent);
    nvrtc::look(agent);
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_alloc(address, bytes) });
    // SAFETY: the driver has written it.
    unsafe { note(agent, code, address, bytes as u64) };
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn alloc_pitch(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code =
        outcome.keep(unsafe { original::mem_alloc_pitch(address, pitch, width, height, element) });
    if code == sys::SUCCESS && !pitch.is_null() {
        // SAFETY: the driver has written it.
        let row = unsafe { *pitch } as u64;
        // SAFETY: as above.
        unsafe { note(agent, code, address, row.saturating_mul(height as u64)) };
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn alloc_managed(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_alloc_managed(address, bytes, flags) });
    if flags & ATTACH_GLOBAL != 0 {
        // SAFETY: the driver has written it.
        unsafe { note(agent, code, address, bytes as u64) };
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn free(agent: &Agent, outcome: &Outcome, address: CUdeviceptr) -> CUresult {
    let taken = withdraw(agent, |known| known.set.take(Kind::Device, address));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::mem_free(address) });
    put_back_if_refused(agent, taken, code)
}

/// An allocation in the order of a stream: in a capture it is a node of a graph, and nothing lives
/// yet.
///
/// # Safety
/// If `code` is success, `address` is readable or null.
unsafe fn note_pooled(
    agent: &Agent,
    code: CUresult,
    address: *const CUdeviceptr,
    bytes: usize,
    stream: StreamName,
) {
    // If the driver does not say, it is taken for a capture: then its memory is not readable.
    let captured = || is_capturing(&agent.driver, stream).unwrap_or(true);
    if code != sys::SUCCESS || address.is_null() || captured() {
        return;
    }
    // SAFETY: the caller's promise.
    let found = unsafe { *address };
    // A pool may be another device's.
    if device_of(agent, found) == agent.driver.current_device().ok() {
        // SAFETY: as above.
        unsafe { note(agent, code, address, bytes as u64) };
    }
}

/// The device that memory is on, by ordinal.
fn device_of(agent: &Agent, address: CUdeviceptr) -> Option<i32> {
    type GetAttribute = unsafe extern "C" fn(*mut c_void, c_int, CUdeviceptr) -> CUresult;
    let found = agent.symbol("cuPointerGetAttribute")?;
    // SAFETY: the driver's function of this name has this signature.
    let get_attribute: GetAttribute = unsafe { std::mem::transmute(found) };
    let mut device: c_int = -1;
    // SAFETY: the attribute is an `int`.
    let code =
        unsafe { get_attribute((&raw mut device).cast::<c_void>(), DEVICE_ORDINAL, address) };
    (code == sys::SUCCESS).then_some(device)
}

macro_rules! pooled {
    ($alloc:ident, $from_pool:ident, $free:ident, $default:expr, $driver_alloc:ident, $driver_from_pool:ident, $driver_free:ident) => {
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $alloc(
            agent: &Agent,
            outcome: &Outcome,
            address: *mut CUdeviceptr,
            bytes: usize,
            stream: CUstream,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$driver_alloc(address, bytes, stream) });
            // SAFETY: the driver has written it.
            unsafe {
                note_pooled(
                    agent,
                    code,
                    address,
                    bytes,
                    StreamName {
                        stream,
                        null_is_per_thread: $default,
                    },
                )
            };
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $from_pool(
            agent: &Agent,
            outcome: &Outcome,
            address: *mut CUdeviceptr,
            bytes: usize,
            pool: *mut c_void,
            stream: CUstream,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = unsafe { original::$driver_from_pool(address, bytes, pool, stream) };
            outcome.keep(code);
            // SAFETY: the driver has written it.
            unsafe {
                note_pooled(
                    agent,
                    code,
                    address,
                    bytes,
                    StreamName {
                        stream,
                        null_is_per_thread: $default,
                    },
                )
            };
            code
        }

        /// Withdrawn at once, though the memory goes later, in the order of the stream.
        ///
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $free(
            agent: &Agent,
            outcome: &Outcome,
            address: CUdeviceptr,
            stream: CUstream,
        ) -> CUresult {
            let taken = withdraw(agent, |known| known.set.take(Kind::Device, address));
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$driver_free(address, stream) });
            put_back_if_refused(agent, taken, code)
        }
    };
}

pooled! {
    alloc_async, alloc_from_pool, free_async, false,
    mem_alloc_async, mem_alloc_from_pool, mem_free_async
}
pooled! {
    alloc_async_ptsz, alloc_from_pool_ptsz, free_async_ptsz, true,
    mem_alloc_async_ptsz, mem_alloc_from_pool_ptsz, mem_free_async_ptsz
}

/// Host memory has an address on the device too, mostly the same.
fn note_host(agent: &Agent, kind: Kind, pointer: *mut c_void, bytes: usize) {
    let mut address = 0;
    // SAFETY: a writable local and memory that the driver has just made known.
    let code = unsafe { (agent.driver.api.host_device_pointer)(&mut address, pointer, 0) };
    if code == sys::SUCCESS
        && let Some(found) = here(agent, kind, pointer as u64, address, bytes as u64)
    {
        add_here(agent, found);
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn alloc_host(
    agent: &'static Agent,
    outcome: &Outcome,
    pointer: *mut *mut c_void,
    bytes: usize,
) -> CUresult {
    look_for_life(agent);
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_alloc_host(pointer, bytes) });
    if code == sys::SUCCESS && !pointer.is_null() {
        // SAFETY: the driver has written it.
        note_host(agent, Kind::Host, unsafe { *pointer }, bytes);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn host_alloc(
    agent: &'static Agent,
    outcome: &Outcome,
    pointer: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    look_for_life(agent);
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::host_alloc(pointer, bytes, flags) });
    if code == sys::SUCCESS && !pointer.is_null() {
        // SAFETY: the driver has written it.
        note_host(agent, Kind::Host, unsafe { *pointer }, bytes);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn free_host(agent: &Agent, outcome: &Outcome, pointer: *mut c_void) -> CUresult {
    let taken = withdraw(agent, |known| known.set.take(Kind::Host, pointer as u64));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::free_host(pointer) });
    put_back_if_refused(agent, taken, code)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn host_register(
    agent: &Agent,
    outcome: &Outcome,
    pointer: *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::host_register(pointer, bytes, flags) });
    if code == sys::SUCCESS && flags & REGISTER_IO == 0 {
        note_host(agent, Kind::Registered, pointer, bytes);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn host_unregister(
    agent: &Agent,
    outcome: &Outcome,
    pointer: *mut c_void,
) -> CUresult {
    let taken = withdraw(agent, |known| {
        known.set.take(Kind::Registered, pointer as u64)
    });
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::host_unregister(pointer) });
    put_back_if_refused(agent, taken, code)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn ipc_open(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    handle: IpcHandle,
    flags: c_uint,
) -> CUresult {
    type GetRange = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::ipc_open(address, handle, flags) });
    if code != sys::SUCCESS || address.is_null() {
        return code;
    }
    // SAFETY: the driver has written it.
    let name = unsafe { *address };
    let Some(found) = agent.symbol("cuMemGetAddressRange_v2") else {
        return code;
    };
    // SAFETY: the driver's function of this name has this signature.
    let get_range: GetRange = unsafe { std::mem::transmute(found) };
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: writable locals.
    if unsafe { get_range(&mut base, &mut bytes, name) } == sys::SUCCESS
        && let Some(opened) = here(agent, Kind::Ipc, name, base, bytes as u64)
    {
        add_here(agent, opened);
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn ipc_close(agent: &Agent, outcome: &Outcome, address: CUdeviceptr) -> CUresult {
    let taken = withdraw(agent, |known| known.set.take(Kind::Ipc, address));
    // SAFETY: the application's own argument.
    let code = outcome.keep(unsafe { original::ipc_close(address) });
    put_back_if_refused(agent, taken, code)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn create(
    agent: &Agent,
    outcome: &Outcome,
    handle: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_create(handle, bytes, properties, flags) });
    if code == sys::SUCCESS && !handle.is_null() {
        // SAFETY: the driver has written it.
        agent.memory.lock().made.insert(unsafe { *handle });
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn release(agent: &Agent, outcome: &Outcome, handle: u64) -> CUresult {
    // Before the driver has it: it may give the number out again.
    agent.memory.lock().made.remove(&handle);
    // SAFETY: the application's own argument.
    outcome.keep(unsafe { original::mem_release(handle) })
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn map(
    agent: &Agent,
    outcome: &Outcome,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_map(address, bytes, offset, handle, flags) });
    if code == sys::SUCCESS
        && let Some(end) = address.checked_add(bytes as u64)
    {
        add(agent, |known| {
            if known.made.contains(&handle) {
                known.set.map(address..end);
            }
        });
    }
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn unmap(
    agent: &Agent,
    outcome: &Outcome,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let range = address..address.saturating_add(bytes as u64);
    let taken = withdraw(agent, |known| known.set.unmap(&range));
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_unmap(address, bytes) });
    put_back_if_refused(agent, taken, code)
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn set_access(
    agent: &Agent,
    outcome: &Outcome,
    address: CUdeviceptr,
    bytes: usize,
    access: *const AccessDescription,
    count: usize,
) -> CUresult {
    let range = address..address.saturating_add(bytes as u64);
    let access_of: &[AccessDescription] = if access.is_null() {
        &[]
    } else {
        // SAFETY: the application's own array.
        unsafe { std::slice::from_raw_parts(access, count) }
    };
    let devices = |reads: bool| {
        access_of
            .iter()
            .filter(move |a| a.location_type == ON_DEVICE && (a.flags & READ != 0) == reads)
            .map(|a| a.location)
    };
    let taken: Vec<_> = devices(false)
        .map(|device| withdraw(agent, |known| known.set.close(device, &range)))
        .collect();
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::mem_set_access(address, bytes, access, count) });
    for taken in taken {
        put_back_if_refused(agent, taken, code);
    }
    if code == sys::SUCCESS {
        add(agent, |known| {
            for device in devices(true) {
                known.set.open(device, &range);
            }
        });
    }
    code
}

/// Managed memory that only one stream, or the host, may access is readable no longer.
fn attach(
    agent: &Agent,
    address: CUdeviceptr,
    flags: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if flags & ATTACH_GLOBAL != 0 {
        return call();
    }
    let taken = withdraw(agent, |known| known.set.take(Kind::Device, address));
    put_back_if_refused(agent, taken, call())
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn attach_async(
    agent: &Agent,
    outcome: &Outcome,
    stream: CUstream,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    attach(agent, address, flags, || {
        // SAFETY: the application's own arguments.
        outcome.keep(unsafe { original::attach_async(stream, address, bytes, flags) })
    })
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn attach_async_ptsz(
    agent: &Agent,
    outcome: &Outcome,
    stream: CUstream,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    attach(agent, address, flags, || {
        // SAFETY: the application's own arguments.
        outcome.keep(unsafe { original::attach_async_ptsz(stream, address, bytes, flags) })
    })
}

/// A variable whose address the driver has given out. `ask` asks again, for both address and size:
/// the application may want only one of them.
fn note_variable(
    agent: &Agent,
    code: CUresult,
    owner: usize,
    ask: impl FnOnce(*mut CUdeviceptr, *mut usize) -> CUresult,
) {
    if code != sys::SUCCESS {
        return;
    }
    let (mut address, mut bytes) = (0, 0);
    if ask(&mut address, &mut bytes) == sys::SUCCESS
        && let Some(found) = here(agent, Kind::Variable, address, address, bytes as u64)
    {
        add(agent, |known| {
            let owner = known.owner(owner);
            known.set.add(Allocation { owner, ..found });
        });
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn module_global(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::module_global(address, bytes, module, name) });
    note_variable(agent, code, module as usize, |address, bytes| {
        // SAFETY: as above, with locals.
        unsafe { original::module_global(address, bytes, module, name) }
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_global(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::library_global(address, bytes, library, name) });
    note_variable(agent, code, library as usize, |address, bytes| {
        // SAFETY: as above, with locals.
        unsafe { original::library_global(address, bytes, library, name) }
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn library_managed(
    agent: &Agent,
    outcome: &Outcome,
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::library_managed(address, bytes, library, name) });
    note_variable(agent, code, library as usize, |address, bytes| {
        // SAFETY: as above, with locals.
        unsafe { original::library_managed(address, bytes, library, name) }
    });
    code
}
