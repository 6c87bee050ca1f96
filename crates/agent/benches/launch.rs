//! What a hooked launch of a kernel that no program wants costs on top of the launch: the price
//! that everybody pays.
//!
//! The driver here is one empty function with the prologue of a real one. `cargo bench -p
//! warpbpf-agent` prints nanoseconds per call, without and with the hook, and their difference; the
//! target is 100 ns.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::ffi::c_void;
use std::time::Instant;

const CALLS: u32 = 50_000_000;

macro_rules! driver_functions {
    ($($name:ident)*) => { $(
        /// An empty driver function. Not the same function as its neighbours: one address is hooked
        /// once.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> i32 {
            core::arch::naked_asm!(
                "push rbp", "mov rbp, rsp", "push r12", "sub rsp, 8",
                "xor eax, eax",
                "add rsp, 8", "pop r12", "pop rbp", "ret",
            )
        }
    )* };
}

driver_functions! { launch anything }

type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> i32;

fn nanoseconds_per_launch() -> f64 {
    // SAFETY: the function ignores its arguments.
    let launch: Launch = unsafe { std::mem::transmute(launch as *const ()) };
    let launch = std::hint::black_box(launch);
    let null = std::ptr::null_mut();
    let start = Instant::now();
    for i in 0..CALLS {
        let function = (0x5000 + (i & 63) as usize * 64) as *mut c_void;
        // SAFETY: as above.
        unsafe {
            launch(
                function,
                1,
                1,
                1,
                32,
                1,
                1,
                0,
                null,
                null.cast(),
                null.cast(),
            )
        };
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn main() {
    let bare = nanoseconds_per_launch();
    // SAFETY: no other thread exists. Nobody listens at this path: the agent is never asked for
    // anything.
    unsafe { std::env::set_var("WARPBPF_SOCKET", "/nonexistent") };
    let find = |symbol: &str| {
        let function = if symbol == "cuLaunchKernel" {
            launch
        } else {
            anything
        };
        Some(function as *const () as usize)
    };
    // SAFETY: nothing but `cuLaunchKernel` is called below, and nobody is in it.
    unsafe { warpbpf_agent::install_into(find) };
    let hooked = nanoseconds_per_launch();
    println!(
        "launch: {bare:.2} ns, hooked: {hooked:.2} ns, the hook: {:.2} ns",
        hooked - bare
    );
}
