//! Device memory at an address of our choice, so that what has addresses in it is the same in each
//! process.

use crate::handles::Stream;
use crate::result::DriverError;
use crate::safe::Driver;
use crate::sys::{self, CUdeviceptr, MemoryAccess, MemoryProperties};

/// Addresses are taken by whole ones of these: a driver gives fewer out of ranges that it has
/// already, wherever one asks for them (driver 580: 2 MiB never where asked for, 1 GiB always).
/// They are only addresses; memory is behind those that are used.
const SPAN: u64 = 1 << 30;

/// What is reserved for so many bytes.
fn span(bytes: u64) -> usize {
    bytes.next_multiple_of(SPAN) as usize
}

impl Driver {
    /// Zeroed memory of the current context's device at `address`, and how many bytes it has:
    /// `bytes` rounded up. `None` if that address cannot be had. It does not end with the context:
    /// see [`Driver::free_fixed`].
    ///
    /// # Errors
    /// [`DriverError`]; then nothing is left of it.
    pub fn alloc_fixed(
        &self,
        address: CUdeviceptr,
        bytes: u64,
        stream: Stream,
    ) -> Result<Option<u64>, DriverError> {
        let device = self.current_device()?;
        let properties = MemoryProperties {
            kind: sys::MEMORY_PINNED,
            handle_types: 0,
            location_kind: sys::MEMORY_ON_DEVICE,
            location: device,
            windows: std::ptr::null(),
            flags: [0; 8],
        };
        let mut unit = 0;
        // SAFETY: a writable local, and properties that are there.
        let code =
            unsafe { (self.api.mem_granularity)(&mut unit, &properties, sys::GRANULARITY_MINIMUM) };
        self.check("cuMemGetAllocationGranularity", code, String::new)?;
        let size = bytes.next_multiple_of((unit as u64).max(1));
        let mut there = 0;
        // SAFETY: a writable local.
        let code = unsafe { (self.api.mem_reserve)(&mut there, span(size), 0, address, 0) };
        self.check("cuMemAddressReserve", code, || format!("for {size} bytes"))?;
        if there != address {
            self.unreserve(there, size)?;
            return Ok(None);
        }
        let filled = self.fill_reserved(address, size, &properties, stream);
        match filled {
            Ok(()) => Ok(Some(size)),
            Err(error) => {
                // Addresses of a process are plenty, if these stay.
                let _ = self.unreserve(address, size);
                Err(error)
            }
        }
    }

    fn fill_reserved(
        &self,
        address: CUdeviceptr,
        size: u64,
        properties: &MemoryProperties,
        stream: Stream,
    ) -> Result<(), DriverError> {
        let mut memory = 0;
        // SAFETY: a writable local, and properties that are there.
        let code = unsafe { (self.api.mem_create)(&mut memory, size as usize, properties, 0) };
        self.check("cuMemCreate", code, || format!("{size} bytes"))?;
        // SAFETY: reserved addresses in which nothing is, and memory of that size.
        let code = unsafe { (self.api.mem_map)(address, size as usize, 0, memory, 0) };
        // SAFETY: from here on the mapping keeps it, if there is one.
        unsafe { (self.api.mem_release)(memory) };
        self.check("cuMemMap", code, String::new)?;
        let access = MemoryAccess {
            location_kind: sys::MEMORY_ON_DEVICE,
            location: properties.location,
            flags: sys::MEMORY_READ_WRITE,
        };
        // SAFETY: what was mapped just now, and one description.
        let code = unsafe { (self.api.mem_access)(address, size as usize, &access, 1) };
        let opened = self.check("cuMemSetAccess", code, String::new);
        let zeroed = opened.and_then(|()| {
            // SAFETY: the fill covers exactly the new memory.
            let code = unsafe { (self.api.memset_d8)(address, 0, size as usize, stream.0) };
            self.check("cuMemsetD8Async", code, || format!("{size} bytes"))?;
            self.wait(stream)
        });
        if zeroed.is_err() {
            // SAFETY: nobody knows of it yet.
            unsafe { (self.api.mem_unmap)(address, size as usize) };
        }
        zeroed
    }

    /// Gives memory from [`Driver::alloc_fixed`] back, with its size as it was told. No context
    /// need be current.
    ///
    /// # Errors
    /// [`DriverError`]; it is then lost until the process ends.
    pub fn free_fixed(&self, address: CUdeviceptr, size: u64) -> Result<(), DriverError> {
        // SAFETY: the driver checks the address.
        let code = unsafe { (self.api.mem_unmap)(address, size as usize) };
        self.check("cuMemUnmap", code, || format!("{size} bytes"))?;
        self.unreserve(address, size)
    }

    fn unreserve(&self, address: CUdeviceptr, size: u64) -> Result<(), DriverError> {
        // SAFETY: the driver checks the address.
        let code = unsafe { (self.api.mem_unreserve)(address, span(size)) };
        self.check("cuMemAddressFree", code, || format!("for {size} bytes"))
    }
}
