//! Virtual memory management: addresses, memory and access come and go apart from each other. In a
//! process of its own, because it keeps the primary context, which another test counts.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::common::in_a_process;
use warpbpf_softcuda::driver::table::*;

const PIECE: usize = 2 << 20;
const INVALID_VALUE: u32 = 1;

/// `CUmemAllocationProp` of memory on the device, with its size rounded up to words.
fn properties() -> [c_int; 8] {
    [1, 0, 1, 0, 0, 0, 0, 0]
}

/// `CUmemAccessDesc`
fn access(flags: c_int) -> [c_int; 3] {
    [1, 0, flags]
}

/// Calls with pointers to locals only.
macro_rules! call {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: pointers are to locals of the types that CUDA asks for.
        unsafe { $name($($arg),*) } as u32
    };
}

fn create() -> u64 {
    let (mut handle, properties) = (0, properties());
    let code = call!(cuMemCreate(
        &mut handle,
        PIECE,
        properties.as_ptr().cast(),
        0
    ));
    assert_eq!(code, 0);
    handle
}

fn reserve(pieces: usize) -> u64 {
    let mut at = 0;
    let code = call!(cuMemAddressReserve(&mut at, pieces * PIECE, 0, 0, 0));
    assert_eq!((code, at % PIECE as u64), (0, 0));
    at
}

fn write(at: u64, value: u64) -> u32 {
    let from: *const c_void = (&raw const value).cast();
    call!(cuMemcpyHtoD_v2(at, from, 8))
}

fn read(at: u64) -> Result<u64, u32> {
    let mut value = 0u64;
    let to: *mut c_void = (&raw mut value).cast();
    match call!(cuMemcpyDtoH_v2(to, at, 8)) {
        0 => Ok(value),
        code => Err(code),
    }
}

#[test]
fn mapped_memory_is_seen_while_access_is_granted() {
    in_a_process(
        "virtuals::mapped_memory_is_seen_while_access_is_granted",
        mapped_memory,
    );
}

fn mapped_memory() {
    let mut context = 0;
    assert_eq!(call!(cuInit(0)), 0);
    assert_eq!(call!(cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(call!(cuCtxSetCurrent(context)), 0);
    let (mut granularity, wanted) = (0usize, properties());
    let wanted = wanted.as_ptr().cast();
    assert_eq!(
        call!(cuMemGetAllocationGranularity(&mut granularity, wanted, 0)),
        0
    );
    assert_eq!(granularity, PIECE);

    let window = reserve(3);
    let second = window + PIECE as u64;
    let (one, two) = (create(), create());
    assert_eq!(call!(cuMemMap(window, PIECE, 0, one, 0)), 0);
    assert_eq!(call!(cuMemMap(second, PIECE, 0, two, 0)), 0);
    assert_ne!(write(window, 5), 0, "nobody may access it");
    let (all, none) = (access(3), access(0));
    let set = |at: u64, pieces: usize, access: &[c_int; 3]| {
        call!(cuMemSetAccess(
            at,
            pieces * PIECE,
            access.as_ptr().cast(),
            1
        ))
    };
    assert_eq!(set(window, 2, &all), 0);
    assert_eq!((write(window, 5), write(second, 6)), (0, 0));
    assert_eq!((read(window), read(second)), (Ok(5), Ok(6)));
    assert_eq!(set(window, 1, &none), 0);
    assert!(read(window).is_err());
    assert_eq!(read(second), Ok(6));
    assert_eq!(set(window, 1, &access(1)), 0);
    assert_eq!(read(window), Ok(5), "what was there is there again");

    // Memory outlives its handle, and can be at another place.
    assert_eq!(call!(cuMemRelease(two)), 0);
    assert_eq!(call!(cuMemUnmap(window, 2 * PIECE)), 0);
    assert!(read(window).is_err());
    assert!(read(second).is_err());
    assert_eq!(call!(cuMemMap(second, PIECE, 0, one, 0)), 0);
    assert_eq!(set(second, 1, &all), 0);
    assert_eq!(read(second), Ok(5));

    // An address that is free is had for a large piece, and a taken one is not.
    let (hint, large) = (0x3070_0000_0000, 1 << 30);
    let mut at = [0u64; 3];
    for (at, bytes) in at.iter_mut().zip([PIECE, large, large]) {
        assert_eq!(call!(cuMemAddressReserve(at, bytes, 0, hint, 0)), 0);
    }
    assert_eq!(at.map(|at| at == hint), [false, true, false]);
    assert_eq!(call!(cuMemMap(hint, PIECE, 0, one, 0)), 0);
    assert_eq!(set(hint, 1, &all), 0);
    assert_eq!(read(hint), Ok(5));
    // It is given back whatever context is current.
    assert_eq!(call!(cuCtxSetCurrent(0)), 0);
    assert_eq!(call!(cuMemUnmap(hint, PIECE)), 0);
    assert_eq!(call!(cuCtxSetCurrent(context)), 0);
    for (at, bytes) in at.into_iter().zip([PIECE, large, large]) {
        assert_eq!(call!(cuMemAddressFree(at, bytes)), 0);
    }
    let (mut handle, huge) = (0, 1usize << 45);
    let code = call!(cuMemCreate(&mut handle, huge, wanted, 0));
    assert_eq!(code, 2, "more than there is");

    // What a driver refuses.
    let third = second + PIECE as u64;
    let refused = [
        call!(cuMemMap(second, PIECE, 0, one, 0)),
        call!(cuMemMap(third + PIECE as u64, PIECE, 0, one, 0)),
        call!(cuMemMap(third, PIECE, 0, two, 0)),
        call!(cuMemMap(third, PIECE, 4096, one, 0)),
        call!(cuMemMap(third, 2 * PIECE, 0, one, 0)),
        call!(cuMemMap(third, 100, 0, one, 0)),
        call!(cuMemUnmap(third, PIECE)),
        call!(cuMemUnmap(second, 2 * PIECE)),
        call!(cuMemRelease(two)),
        call!(cuMemAddressFree(window, 3 * PIECE)),
        call!(cuMemAddressFree(window, PIECE)),
        call!(cuMemAddressReserve(null_mut(), PIECE, 0, 0, 0)),
        call!(cuMemCreate(null_mut(), PIECE, wanted, 0)),
        set(third, 1, &all),
        set(second, 1, &access(7)),
        set(second, 1, &[2, 0, 3]),
    ];
    assert_eq!(refused, [INVALID_VALUE; 16]);
    let (mut handle, elsewhere) = (0, [1, 0, 1, 5, 0, 0, 0, 0]);
    let elsewhere: *const c_int = elsewhere.as_ptr();
    for (bytes, wanted) in [(PIECE, elsewhere.cast()), (100, wanted), (0, wanted)] {
        assert_eq!(
            call!(cuMemCreate(&mut handle, bytes, wanted, 0)),
            INVALID_VALUE
        );
    }

    assert_eq!(call!(cuMemUnmap(second, PIECE)), 0);
    assert_eq!(call!(cuMemRelease(one)), 0);
    assert_eq!(call!(cuMemAddressFree(window, 3 * PIECE)), 0);
}
