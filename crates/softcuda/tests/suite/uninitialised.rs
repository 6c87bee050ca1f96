//! What the driver says before `cuInit`; a process of its own, because it can be said only once.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::common::in_a_process;
use warpbpf_softcuda::driver::table::*;

#[test]
fn nothing_works_before_cu_init() {
    in_a_process("uninitialised::nothing_works_before_cu_init", nothing_works);
}

fn nothing_works() {
    let mut number: c_int = -1;
    let mut handle = 0;
    // SAFETY: valid pointers; every call is refused or has none.
    unsafe {
        assert_eq!(cuDeviceGetCount(&raw mut number), 3);
        assert_eq!(cuCtxGetCurrent(&raw mut handle), 3);
        assert_eq!(cuMemFree_v2(0), 3);
        assert_eq!(
            cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, null_mut(), null_mut()),
            3
        );
        assert_eq!(number, -1);
        assert_eq!(
            cuDriverGetVersion(&raw mut number),
            0,
            "the version needs no initialisation"
        );
        assert_eq!(number, 13_000);
        assert_eq!(cuInit(1), 1);
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuInit(0), 0, "a second time");
        assert_eq!(cuDeviceGetCount(&raw mut number), 0);
        assert_eq!(number, 1);
        // A child of `fork` has no CUDA until it executes a program of its own.
        let child = libc::fork();
        if child == 0 {
            libc::_exit((cuDeviceGetCount(&raw mut number) + 100) as c_int);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 103);
    }
}
