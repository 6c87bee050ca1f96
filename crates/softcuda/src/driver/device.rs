//! The devices: names, attributes, primary contexts. Numbers are an H200's where a program may
//! compute with them; how many multiprocessors there are is up to the environment.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::state::{Device, Soft, put, put_if, soft};

/// Shown to users: nobody should take it for a real one.
pub(crate) const NAME: &str = warpbpf_abi::names::SOFT_DEVICE;
/// Compute capability, which also decides what is taken from a fatbin.
pub(crate) const CAPABILITY: (u32, u32) = (9, 0);
/// The first one's, the same in every run: programs compare it.
pub(crate) const UUID: [u8; 16] = *b"warpbpf-soft-gpu";

/// Text of a device's place on a bus: each is alone on one.
fn bus_id(device: c_int) -> String {
    format!("0000:{device:02x}:00.0")
}

/// The device of an ordinal.
pub(crate) fn find(device: c_int) -> Result<(&'static Soft, &'static Device), CuError> {
    let soft = check(device)?;
    Ok((soft, &soft.devices[device as usize]))
}

pub(crate) fn check(device: c_int) -> Result<&'static Soft, CuError> {
    let soft = soft()?;
    if usize::try_from(device).is_ok_and(|device| device < soft.devices.len()) {
        Ok(soft)
    } else {
        Err(CuError::INVALID_DEVICE)
    }
}

pub(crate) unsafe fn count(to: *mut c_int) -> CuResult {
    let count = soft()?.devices.len();
    // SAFETY: the caller's pointer.
    unsafe { put(to, count as c_int) }
}

pub(crate) unsafe fn get(to: *mut c_int, ordinal: c_int) -> CuResult {
    check(ordinal)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, ordinal) }
}

/// Copies a text into a buffer of `length` bytes, cut if need be, with its NUL.
///
/// # Safety
/// `to` must be valid for `length` bytes.
pub(crate) unsafe fn put_text(to: *mut c_char, length: c_int, text: &str) -> CuResult {
    let length = usize::try_from(length)
        .ok()
        .filter(|&n| n > 0 && !to.is_null())
        .ok_or(CuError::INVALID_VALUE)?;
    let shown = text.len().min(length - 1);
    // SAFETY: `shown + 1 <= length` bytes are written.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), shown);
        to.add(shown).write(0);
    }
    Ok(())
}

pub(crate) unsafe fn name(to: *mut c_char, length: c_int, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's buffer.
    unsafe { put_text(to, length, NAME) }
}

pub(crate) unsafe fn uuid(to: *mut [u8; 16], device: c_int) -> CuResult {
    check(device)?;
    let mut uuid = UUID;
    uuid[15] += device as u8;
    // SAFETY: the caller's pointer.
    unsafe { put(to, uuid) }
}

pub(crate) unsafe fn total_memory(to: *mut usize, device: c_int) -> CuResult {
    let (_, device) = find(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, device.gpu.memory_info().0 as usize) }
}

pub(crate) unsafe fn capability(major: *mut c_int, minor: *mut c_int, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put(major, CAPABILITY.0 as c_int)?;
        put(minor, CAPABILITY.1 as c_int)
    }
}

pub(crate) unsafe fn pci_bus_id(to: *mut c_char, length: c_int, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's buffer.
    unsafe { put_text(to, length, &bus_id(device)) }
}

/// Domain, bus, device and function of a text; `0:1:0.0` and `01:00.0` mean the same place.
fn place(text: &str) -> Option<[c_int; 4]> {
    let numbers = text.split([':', '.']);
    let mut numbers = numbers
        .map(|n| c_int::from_str_radix(n, 16).ok())
        .collect::<Option<Vec<_>>>()?;
    if numbers.len() == 3 {
        numbers.insert(0, 0);
    }
    numbers.try_into().ok()
}

pub(crate) unsafe fn by_pci_bus_id(to: *mut c_int, id: *const c_char) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointers.
    unsafe {
        let id: &CStr = crate::state::name(id)?;
        let place = place(id.to_str().unwrap_or_default());
        match place {
            Some([0, bus, 0, 0]) if check(bus).is_ok() => put(to, bus),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

/// `CU_DEVICE_ATTRIBUTE_…` by number; what is not listed is 0, as for a feature that is not there.
pub(crate) fn attribute_value(
    soft: &Soft,
    attribute: c_int,
    device: c_int,
) -> Result<c_int, CuError> {
    const LAST: c_int = 147;
    let clamp = |bytes: u64| c_int::try_from(bytes).unwrap_or(c_int::MAX);
    if !(1..=LAST).contains(&attribute) {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(match attribute {
        1..=3 => warpbpf_softgpu::MAX_THREADS_PER_BLOCK as c_int,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => c_int::MAX,
        12 | 82 => 65_536,
        // Clocks in kHz.
        13 => 1_980_000,
        36 => 3_201_000,
        14 | 30 => 512,
        15 | 19 | 31 | 41 | 44 => 1,
        16 => clamp(u64::from(soft.config.sms[device as usize])),
        33 => device,
        // Largest textures and surfaces.
        21 | 69 => 131_072,
        22 | 42 | 45 | 46 | 27 | 28 | 52 | 53 | 55 | 57 | 61 | 63 | 64 | 66 | 67 | 77 | 73 | 74 => {
            32_768
        }
        23 => 65_536,
        24 | 25 | 26 | 47 | 48 | 49 | 58 | 59 | 60 => 16_384,
        29 | 43 | 54 | 62 | 65 | 68 => 2_048,
        37 => 6_144,
        38 => 50 << 20,
        39 => warpbpf_softgpu::MAX_THREADS_PER_SM as c_int,
        40 => 3,
        51 => 32,
        56 => 131_072,
        70 | 71 => 131_072,
        72 => 2_097_120,
        75 => CAPABILITY.0 as c_int,
        76 => CAPABILITY.1 as c_int,
        78 | 79 | 80 | 83 | 90 | 95 | 99 | 115 | 120 | 127 => 1,
        81 => warpbpf_softgpu::SHARED_PER_SM as c_int,
        87 => 2,
        89 => 1,
        91 => 1,
        97 => warpbpf_softgpu::MAX_SHARED_PER_BLOCK as c_int,
        106 => warpbpf_softgpu::MAX_BLOCKS_PER_SM as c_int,
        108 => 0,
        111 => warpbpf_softgpu::RESERVED_SHARED as c_int,
        118 => 0,
        126 => 1,
        131 | 134 => -1,
        _ => 0,
    })
}

pub(crate) unsafe fn attribute(to: *mut c_int, attribute: c_int, device: c_int) -> CuResult {
    let soft = check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, attribute_value(soft, attribute, device)?) }
}

pub(crate) unsafe fn can_access_peer(to: *mut c_int, device: c_int, peer: c_int) -> CuResult {
    check(device)?;
    check(peer)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, c_int::from(device != peer)) }
}

pub(crate) unsafe fn exec_affinity(to: *mut c_int, _kind: c_int, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, 0) }
}

pub(crate) unsafe fn primary_retain(to: *mut Handle, device: c_int) -> CuResult {
    let (_, device) = find(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, device.primary.handle) }?;
    device.primary.uses.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) unsafe fn primary_set_flags(device: c_int, flags: u32) -> CuResult {
    let (_, device) = find(device)?;
    device.primary.flags.store(flags, Ordering::Release);
    Ok(())
}

pub(crate) unsafe fn primary_state(device: c_int, flags: *mut u32, active: *mut c_int) -> CuResult {
    let (_, device) = find(device)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(flags, device.primary.flags.load(Ordering::Acquire));
        put_if(
            active,
            c_int::from(device.primary.uses.load(Ordering::Acquire) > 0),
        );
    }
    Ok(())
}

/// Each device's only memory pool: allocation from it is ordinary allocation. Handles of pools go
/// down from here.
const FIRST_POOL: Handle = 0x5c00_0000_0000 - 0x40;

/// Ordinal of the device that a pool is of.
pub(crate) fn of_pool(soft: &Soft, pool: Handle) -> Result<usize, CuError> {
    let is = |device: &usize| FIRST_POOL - device * 0x40 == pool;
    let found = (0..soft.devices.len()).find(is);
    let made = || soft.pools.get(pool).map(|pool| pool.device);
    found.or_else(made).ok_or(CuError::INVALID_VALUE)
}

pub(crate) unsafe fn memory_pool(to: *mut Handle, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, FIRST_POOL - device as usize * 0x40) }
}

pub(crate) unsafe fn set_memory_pool(device: c_int, pool: Handle) -> CuResult {
    match of_pool(check(device)?, pool)? == device as usize {
        true => Ok(()),
        false => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn pool_trim(pool: Handle, _keep: usize) -> CuResult {
    of_pool(soft()?, pool).map(|_| ())
}

pub(crate) unsafe fn pool_attribute(pool: Handle, attribute: c_int, value: *mut u64) -> CuResult {
    let soft = soft()?;
    let gpu = &soft.devices[of_pool(soft, pool)?].gpu;
    // SAFETY: the caller's pointer; the reuse policies (1..=3) are ints, the rest 64-bit counts.
    unsafe {
        match attribute {
            1..=3 => put(value.cast::<c_int>(), 1),
            4 => put(value, 0),
            5..=8 => put(value, gpu.memory_info().1),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

pub(crate) unsafe fn set_pool_attribute(
    pool: Handle,
    attribute: c_int,
    value: *mut u64,
) -> CuResult {
    of_pool(soft()?, pool)?;
    let known = (1..=8).contains(&attribute) && !value.is_null();
    if known {
        Ok(())
    } else {
        Err(CuError::INVALID_VALUE)
    }
}
