//! Several devices in one process, one of its own: apart in memory and contexts, together in one
//! address space.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use crate::common::in_a_process;
use warpbpf_softcuda::Handle;
use warpbpf_softcuda::driver::table::*;

const PTX: &str = r"
.version 8.0
.target sm_80
.address_size 64

.global .u32 mine;

.visible .entry put(.param .u64 put_out, .param .u32 put_value) {
    .reg .u64 %rd<2>;
    .reg .u32 %r<3>;
    ld.param.u64 %rd1, [put_out];
    ld.param.u32 %r1, [put_value];
    st.global.u32 [%rd1], %r1;
    red.global.add.u32 [mine], %r1;
    mov.u32 %r2, %nsmid;
    ret;
}
";

const ILLEGAL_ADDRESS: u32 = 700;

/// Calls with pointers to locals only.
macro_rules! call {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: pointers are to locals of the types that CUDA asks for.
        unsafe { $name($($arg),*) } as u32
    };
}

fn attribute(which: c_int, device: c_int) -> c_int {
    let mut value = -1;
    assert_eq!(call!(cuDeviceGetAttribute(&mut value, which, device)), 0);
    value
}

fn bus(device: c_int) -> String {
    let mut text = [0 as c_char; 32];
    assert_eq!(call!(cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, device)), 0);
    let bytes = text.iter().take_while(|c| **c != 0).map(|c| *c as u8);
    String::from_utf8(bytes.collect()).unwrap()
}

fn primary(device: c_int) -> Handle {
    let mut context = 0;
    assert_eq!(call!(cuDevicePrimaryCtxRetain(&mut context, device)), 0);
    context
}

fn enter(context: Handle) {
    assert_eq!(call!(cuCtxSetCurrent(context)), 0);
}

fn allocate() -> u64 {
    let mut at = 0;
    assert_eq!(call!(cuMemAlloc_v2(&mut at, 256)), 0);
    assert_eq!(call!(cuMemsetD8_v2(at, 0, 256)), 0);
    at
}

fn read(at: u64) -> u32 {
    let mut value = 0u32;
    let to: *mut c_void = (&raw mut value).cast();
    assert_eq!(call!(cuMemcpyDtoH_v2(to, at, 4)), 0);
    value
}

fn put(kernel: Handle, at: u64, value: u32) -> u32 {
    let (mut at, mut value) = (at, value);
    let mut params: [*mut c_void; 2] = [(&raw mut at).cast(), (&raw mut value).cast()];
    let code = call!(cuLaunchKernel(
        kernel,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        0,
        params.as_mut_ptr(),
        null_mut()
    ));
    match code {
        0 => call!(cuCtxSynchronize()),
        code => code,
    }
}

fn device_of(at: u64) -> c_int {
    let mut device = -1;
    let to: *mut c_void = (&raw mut device).cast();
    assert_eq!(call!(cuPointerGetAttribute(to, 9, at)), 0);
    device
}

#[test]
fn two_devices_are_apart_and_reach_each_other_when_asked() {
    in_a_process(
        "devices::two_devices_are_apart_and_reach_each_other_when_asked",
        two_devices,
    );
}

fn two_devices() {
    // SAFETY: no other thread of this process reads the environment yet.
    unsafe {
        std::env::set_var("WARPBPF_SOFT_DEVICES", "2");
        std::env::set_var("WARPBPF_SOFT_SMS", "3,5");
        std::env::set_var("WARPBPF_SOFT_MEMORY", "16M");
    }
    assert_eq!(call!(cuInit(0)), 0);
    let (mut count, mut device) = (0, -1);
    assert_eq!(call!(cuDeviceGetCount(&mut count)), 0);
    assert_eq!(count, 2);
    assert_eq!(call!(cuDeviceGet(&mut device, 1)), 0);
    assert_eq!(device, 1);
    assert_eq!(call!(cuDeviceGet(&mut device, 2)), 101);

    // What tells them apart.
    assert_eq!((attribute(16, 0), attribute(16, 1)), (3, 5));
    assert_eq!((attribute(33, 0), attribute(33, 1)), (0, 1));
    assert_eq!(
        (bus(0), bus(1)),
        ("0000:00:00.0".into(), "0000:01:00.0".into())
    );
    for (text, expected) in [
        ("0000:01:00.0", Some(1)),
        ("00:00.0", Some(0)),
        ("2:0.0", None),
    ] {
        let text = CString::new(text).unwrap();
        let code = call!(cuDeviceGetByPCIBusId(&mut device, text.as_ptr()));
        assert_eq!((code == 0).then_some(device), expected, "{text:?}");
    }
    let (mut one, mut two) = ([0u8; 16], [0u8; 16]);
    assert_eq!(call!(cuDeviceGetUuid_v2(&mut one, 0)), 0);
    assert_eq!(call!(cuDeviceGetUuid_v2(&mut two, 1)), 0);
    assert_eq!((&one, &two), (b"warpbpf-soft-gpu", b"warpbpf-soft-gpv"));

    // Memory, modules and kernels of each.
    let contexts = [primary(0), primary(1)];
    assert_ne!(contexts[0], contexts[1]);
    let text = CString::new(PTX).unwrap();
    let mut library = 0;
    enter(contexts[0]);
    let code = call!(cuLibraryLoadData(
        &mut library,
        text.as_ptr().cast(),
        std::ptr::null(),
        null_mut(),
        0,
        std::ptr::null(),
        null_mut(),
        0
    ));
    assert_eq!(code, 0);
    let mut kernel = 0;
    let name = c"put".as_ptr();
    assert_eq!(call!(cuLibraryGetKernel(&mut kernel, library, name)), 0);
    let mut memory = [0; 2];
    let mut variable = [0; 2];
    for (device, context) in contexts.into_iter().enumerate() {
        enter(context);
        let (mut found, mut bytes, mut free, mut total) = (-1, 0, 0, 0);
        assert_eq!(call!(cuCtxGetDevice(&mut found)), 0);
        assert_eq!(call!(cuMemGetInfo_v2(&mut free, &mut total)), 0);
        memory[device] = allocate();
        let mut left = 0;
        assert_eq!(call!(cuMemGetInfo_v2(&mut left, &mut total)), 0);
        assert_eq!((free - left, total), (512, 16 << 20));
        let (at, name) = (&mut variable[device], c"mine".as_ptr());
        assert_eq!(call!(cuLibraryGetGlobal(at, &mut bytes, library, name)), 0);
        let wanted = device as c_int;
        assert_eq!(found, wanted);
        assert_eq!(device_of(memory[device]), wanted);
        assert_eq!(device_of(variable[device]), wanted);
        assert_eq!(put(kernel, memory[device], 7 + device as u32), 0);
    }
    // Copies know by the address where things are, whichever context is current.
    assert_eq!((read(memory[0]), read(memory[1])), (7, 8));
    assert_eq!((read(variable[0]), read(variable[1])), (7, 8));
    let [first, second] = contexts;
    assert_eq!(
        call!(cuMemcpyPeer(memory[1], second, memory[0], first, 4)),
        0
    );
    assert_eq!(read(memory[1]), 7);
    assert_eq!(call!(cuMemcpy(memory[0] + 4, memory[1], 4)), 0);
    assert_eq!(read(memory[0] + 4), 7);

    // Kernels reach the other device while they may.
    let mut can = [-1; 2];
    assert_eq!(call!(cuDeviceCanAccessPeer(&mut can[0], 0, 1)), 0);
    assert_eq!(call!(cuDeviceCanAccessPeer(&mut can[1], 1, 1)), 0);
    assert_eq!(can, [1, 0]);
    assert_eq!(call!(cuCtxEnablePeerAccess(first, 0)), 0);
    assert_eq!(put(kernel, memory[0], 11), 0);
    assert_eq!(read(memory[0]), 11);
    assert_eq!(call!(cuCtxEnablePeerAccess(first, 0)), 704);
    assert_eq!(call!(cuCtxDisablePeerAccess(first)), 0);
    assert_eq!(call!(cuCtxDisablePeerAccess(first)), 705);
    assert_eq!(put(kernel, memory[0], 12), ILLEGAL_ADDRESS);
    enter(first);
    assert_eq!(read(memory[0]), 11);
    assert_eq!(put(kernel, memory[0], 13), 0, "the other device goes on");
    // Reset, the second device is as new, and the first keeps what it has.
    assert_eq!(call!(cuDevicePrimaryCtxReset_v2(1)), 0);
    assert_eq!(read(memory[0]), 13);
    let mut value = 0u32;
    let to: *mut c_void = (&raw mut value).cast();
    assert_eq!(call!(cuMemcpyDtoH_v2(to, memory[1], 4)), 1);
    enter(second);
    let fresh = allocate();
    assert_eq!(put(kernel, fresh, 14), 0);
    assert_eq!(read(fresh), 14);
}
