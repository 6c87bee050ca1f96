//! Memory that a stream still fills is not given back when the driver does not wait: against a
//! driver that does next to nothing.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use warpbpf_driver::sys::{Api, CUdeviceptr, CUresult, CUstream, MemoryProperties, NOT_READY};
use warpbpf_driver::{Driver, Stream};

const UNKNOWN: CUresult = 999;
/// Questions until what was begun is done.
const QUESTIONS: u32 = 3;

/// Questions that are still answered with "not ready".
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
/// Calls that gave memory back, and what was under way when they came.
static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);
static TOO_EARLY: AtomicU32 = AtomicU32::new(0);
static RESERVED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn fine() -> CUresult {
    0
}

unsafe extern "C" fn granularity(
    unit: *mut usize,
    _: *const MemoryProperties,
    _: c_int,
) -> CUresult {
    // SAFETY: a writable local of the caller's.
    unsafe { *unit = 1 << 21 };
    0
}

unsafe extern "C" fn reserve(
    there: *mut CUdeviceptr,
    _: usize,
    _: usize,
    hint: CUdeviceptr,
    _: u64,
) -> CUresult {
    RESERVED.store(hint, SeqCst);
    // SAFETY: a writable local of the caller's.
    unsafe { *there = hint };
    0
}

unsafe extern "C" fn alloc(address: *mut CUdeviceptr, _: usize) -> CUresult {
    // SAFETY: a writable local of the caller's.
    unsafe { *address = 0x10_0000 };
    0
}

unsafe extern "C" fn begin(_: CUdeviceptr, _: u8, _: usize, _: CUstream) -> CUresult {
    UNDER_WAY.store(QUESTIONS, SeqCst);
    0
}

unsafe extern "C" fn does_not_wait(_: CUstream) -> CUresult {
    UNKNOWN
}

unsafe extern "C" fn query(_: CUstream) -> CUresult {
    let left = UNDER_WAY.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    match left {
        Ok(_) => NOT_READY,
        Err(_) => 0,
    }
}

unsafe extern "C" fn give_back() -> CUresult {
    GIVEN_BACK.fetch_add(1, SeqCst);
    TOO_EARLY.fetch_add(UNDER_WAY.load(SeqCst), SeqCst);
    0
}

#[test]
fn memory_is_given_back_when_nothing_fills_it_any_more() {
    // SAFETY: what looks at arguments has the signature; the others take none into account.
    let api = unsafe {
        Api::resolve(|symbol| match symbol {
            "cuMemGetAllocationGranularity" => granularity as *const c_void,
            "cuMemAddressReserve" => reserve as *const c_void,
            "cuMemAlloc_v2" => alloc as *const c_void,
            "cuMemsetD8Async" => begin as *const c_void,
            "cuStreamSynchronize" => does_not_wait as *const c_void,
            "cuStreamQuery" => query as *const c_void,
            "cuMemUnmap" | "cuMemAddressFree" | "cuMemFree_v2" => give_back as *const c_void,
            _ => fine as *const c_void,
        })
    };
    let driver = Driver::new(api.unwrap());
    let stream = Stream(std::ptr::null_mut());

    let error = driver.alloc_fixed(1 << 40, 4096, stream).unwrap_err();
    assert_eq!((error.call, error.code), ("cuStreamSynchronize", UNKNOWN));
    assert_eq!(RESERVED.load(SeqCst), 1 << 40);
    assert_eq!(GIVEN_BACK.swap(0, SeqCst), 2);
    assert_eq!(TOO_EARLY.load(SeqCst), 0);

    let error = driver.alloc_zeroed(4096, stream).unwrap_err();
    assert_eq!((error.call, error.code), ("cuStreamSynchronize", UNKNOWN));
    assert_eq!(GIVEN_BACK.swap(0, SeqCst), 1);
    assert_eq!(TOO_EARLY.load(SeqCst), 0);
}
