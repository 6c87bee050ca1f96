//! The one device: name, attributes, primary context. Numbers are an H200's where a program may compute with them;
//! how many multiprocessors there are is up to the environment.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use crate::error::{CuError, CuResult};
use crate::state::{Handle, Soft, clear_context, put, put_if, soft};

/// Shown to users: nobody should take it for a real one.
pub(crate) const NAME: &str = warpbpf_abi::names::SOFT_DEVICE;
/// Compute capability, which also decides what is taken from a fatbin.
pub(crate) const CAPABILITY: (u32, u32) = (9, 0);
/// The same in every run: programs compare it.
pub(crate) const UUID: [u8; 16] = *b"warpbpf-soft-gpu";
const PCI_BUS_ID: &str = "0000:00:00.0";

pub(crate) fn check(device: c_int) -> Result<&'static Soft, CuError> {
    let soft = soft()?;
    if device == 0 {
        Ok(soft)
    } else {
        Err(CuError::INVALID_DEVICE)
    }
}

pub(crate) unsafe fn count(to: *mut c_int) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, 1) }
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
    // SAFETY: the caller's pointer.
    unsafe { put(to, UUID) }
}

pub(crate) unsafe fn total_memory(to: *mut usize, device: c_int) -> CuResult {
    let soft = check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, soft.gpu.memory_info().0 as usize) }
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
    unsafe { put_text(to, length, PCI_BUS_ID) }
}

pub(crate) unsafe fn by_pci_bus_id(to: *mut c_int, id: *const c_char) -> CuResult {
    soft()?;
    // SAFETY: the caller's pointers.
    unsafe {
        let id: &CStr = crate::state::name(id)?;
        // `0:0:0.0` and `00:00.0` mean the same place.
        let zero = id
            .to_bytes()
            .iter()
            .all(|byte| matches!(byte, b'0' | b':' | b'.'));
        if zero && !id.is_empty() {
            put(to, 0)
        } else {
            Err(CuError::INVALID_VALUE)
        }
    }
}

/// `CU_DEVICE_ATTRIBUTE_…` by number; what is not listed is 0, as for a feature that is not there.
pub(crate) fn attribute_value(soft: &Soft, attribute: c_int) -> Result<c_int, CuError> {
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
        16 => clamp(u64::from(soft.config.sms)),
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
        111 => 1024,
        118 => 0,
        126 => 1,
        131 | 134 => -1,
        _ => 0,
    })
}

pub(crate) unsafe fn attribute(to: *mut c_int, attribute: c_int, device: c_int) -> CuResult {
    let soft = check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, attribute_value(soft, attribute)?) }
}

pub(crate) unsafe fn can_access_peer(to: *mut c_int, device: c_int, peer: c_int) -> CuResult {
    check(device)?;
    check(peer)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, 0) }
}

pub(crate) unsafe fn exec_affinity(to: *mut c_int, _kind: c_int, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, 0) }
}

pub(crate) unsafe fn primary_retain(to: *mut Handle, device: c_int) -> CuResult {
    let soft = check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, soft.primary.handle) }?;
    soft.primary.uses.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) unsafe fn primary_release(device: c_int) -> CuResult {
    let soft = check(device)?;
    let released = soft
        .primary
        .uses
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
            uses.checked_sub(1)
        });
    match released {
        Err(_) => Err(CuError::INVALID_CONTEXT),
        Ok(1) => {
            clear_context(soft, &soft.primary);
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

pub(crate) unsafe fn primary_reset(device: c_int) -> CuResult {
    let soft = check(device)?;
    clear_context(soft, &soft.primary);
    Ok(())
}

pub(crate) unsafe fn primary_set_flags(device: c_int, flags: u32) -> CuResult {
    let soft = check(device)?;
    soft.primary.flags.store(flags, Ordering::Release);
    Ok(())
}

pub(crate) unsafe fn primary_state(device: c_int, flags: *mut u32, active: *mut c_int) -> CuResult {
    let soft = check(device)?;
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(flags, soft.primary.flags.load(Ordering::Acquire));
        put_if(
            active,
            c_int::from(soft.primary.uses.load(Ordering::Acquire) > 0),
        );
    }
    Ok(())
}

/// The device's only memory pool: allocation from it is ordinary allocation.
pub(crate) const DEFAULT_POOL: Handle = 0x5c00_0000_0000 - 0x40;

pub(crate) unsafe fn memory_pool(to: *mut Handle, device: c_int) -> CuResult {
    check(device)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, DEFAULT_POOL) }
}

pub(crate) unsafe fn set_memory_pool(device: c_int, pool: Handle) -> CuResult {
    check(device)?;
    if pool == DEFAULT_POOL {
        Ok(())
    } else {
        Err(CuError::INVALID_VALUE)
    }
}

pub(crate) unsafe fn pool_trim(pool: Handle, _keep: usize) -> CuResult {
    soft()?;
    if pool == DEFAULT_POOL {
        Ok(())
    } else {
        Err(CuError::INVALID_VALUE)
    }
}

pub(crate) unsafe fn pool_attribute(pool: Handle, attribute: c_int, value: *mut u64) -> CuResult {
    let soft = soft()?;
    if pool != DEFAULT_POOL {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer; the reuse policies (1..=3) are ints, the rest 64-bit counts.
    unsafe {
        match attribute {
            1..=3 => put(value.cast::<c_int>(), 1),
            4 => put(value, 0),
            5..=8 => put(value, soft.gpu.memory_info().1),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

pub(crate) unsafe fn set_pool_attribute(
    pool: Handle,
    attribute: c_int,
    value: *mut u64,
) -> CuResult {
    soft()?;
    let known = pool == DEFAULT_POOL && (1..=8).contains(&attribute) && !value.is_null();
    if known {
        Ok(())
    } else {
        Err(CuError::INVALID_VALUE)
    }
}
