//! The agent whole, in a program that carries the soft GPU: real hooks in its driver functions, a
//! real program in its kernels, a tool at the other end. One test in a process of its own, because
//! the hooks are the process's.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use crate::common;
use warpbpf_softcuda as _;
use warpbpf_wire::{
    Counts, Kernel, LaunchReader, Listener, Options, Ready, SharedReader, Sites, ToAgent, ToTool,
    ToolConnection,
};

type Handle = *mut c_void;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuGetProcAddress_v2(
        name: *const c_char,
        address: *mut Handle,
        version: c_int,
        flags: u64,
        status: *mut c_int,
    ) -> c_int;
}

/// The soft driver's functions, linked into this program.
fn find(symbol: &str) -> Option<usize> {
    // It takes a symbol with its suffix for exactly that; one without means what it meant in CUDA
    // 12.0.
    let name = CString::new(symbol).unwrap();
    let mut address = ptr::null_mut();
    let mut status = 0;
    // SAFETY: a NUL-terminated name and locals.
    let code = unsafe { cuGetProcAddress_v2(name.as_ptr(), &mut address, 12000, 0, &mut status) };
    (code == 0 && !address.is_null()).then_some(address as usize)
}

macro_rules! call {
    ($symbol:literal ( $($arg:expr => $ty:ty),* )) => {{
        let address = find($symbol).expect($symbol);
        // SAFETY: the driver's function of this name has this signature, and the arguments are as
        // CUDA asks.
        unsafe {
            let function: unsafe extern "C" fn($($ty),*) -> c_int = std::mem::transmute(address);
            function($($arg),*)
        }
    }};
}

/// Adds `n` to `*p` in every thread.
const PTX: &str = "\
.version 8.0
.target sm_75
.address_size 64
.visible .entry inc(.param .u64 p, .param .u32 n)
{
.reg .b64 %rd<2>;
.reg .b32 %r<3>;
ld.param.u64 %rd1, [p];
cvta.to.global.u64 %rd1, %rd1;
ld.param.u32 %r2, [n];
red.global.add.u32 [%rd1], %r2;
ret;
}
.visible .entry other()
{
ret;
}
";

/// Counts entries per thread, exits per block and additions per thread; the second needs a launch
/// record.
const PROGRAM: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 3);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 65536);
} events SEC(".maps");
SEC("gpu/entry/inc")
int enter(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = 0;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value)
        *value += 1;
    return 0;
}
SEC("gpu/exit.block/inc")
int leave(struct wbpf_kernel_ctx *ctx)
{
    __u32 key = 1;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value)
        *value += 1;
    __u64 *event = bpf_ringbuf_reserve(&events, 8, 0);
    if (event) {
        *event = ctx->block_idx[0];
        bpf_ringbuf_submit(event, 0);
    }
    return 0;
}
SEC("gpu/mem/inc|kind=reduction")
int added(struct wbpf_mem_ctx *ctx)
{
    __u32 key = 2;
    __u64 *value = bpf_map_lookup_elem(&counts, &key);
    if (value)
        *value += ctx->site;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// What the tool saw.
#[derive(Default)]
struct Seen {
    ready: Option<(Ready, SharedReader)>,
    kernels: Vec<Kernel>,
    counts: Counts,
    notes: Vec<String>,
    sites: Vec<Sites>,
    bye: Option<String>,
}

/// Reads until `enough`.
fn read(tool: &mut ToolConnection, seen: &mut Seen, enough: impl Fn(&Seen) -> bool) {
    while !enough(seen) {
        let frame = tool.recv(Duration::from_secs(20)).unwrap();
        let frame = frame.expect("a message within 20 s");
        match frame.message {
            ToTool::Hello(hello) => assert!(hello.device.unwrap().soft),
            ToTool::Launches => drop(LaunchReader::open(frame.fd.unwrap()).unwrap()),
            ToTool::Ready(ready) => {
                seen.ready = Some((ready, SharedReader::open(frame.fd.unwrap()).unwrap()));
            }
            ToTool::Context(context) => panic!("one context is used, and there is {context:?}"),
            ToTool::Kernel(kernel) => seen.kernels.push(kernel),
            ToTool::Sites(sites) => seen.sites.push(sites),
            ToTool::Counts(counts) => seen.counts = counts,
            ToTool::Note { text, .. } => seen.notes.push(text),
            ToTool::Bye { reason } => seen.bye = Some(reason),
            ToTool::Snapshotted { token } => assert_eq!(token, 1),
            ToTool::Leaving { silent } => assert!(silent),
            ToTool::MapOps { .. }
            | ToTool::Attached
            | ToTool::Failed
            | ToTool::Operations(_)
            | ToTool::Ranges(_)
            | ToTool::Stacks(_)
            | ToTool::Maps(_)
            | ToTool::Changed(_) => {
                panic!("nobody asked")
            }
            ToTool::Refused { message } => panic!("refused: {message}"),
        }
    }
}

/// Launches `inc` with 2 blocks of 64 threads each.
fn launch(symbol: &str, function: Handle, params: *mut Handle, extra: *mut Handle) {
    let address = find(symbol).unwrap();
    type Launch = unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut Handle,
        *mut Handle,
    ) -> c_int;
    // SAFETY: the function's signature and its kernel's parameters.
    let code = unsafe {
        let launch: Launch = std::mem::transmute(address);
        launch(
            function,
            2,
            1,
            1,
            64,
            1,
            1,
            0,
            ptr::null_mut(),
            params,
            extra,
        )
    };
    assert_eq!(code, 0);
}

/// What the runtime does for a program whose first call is a launch: the code is loaded while the
/// primary context is current but held by nobody, then it is held, and the kernel is launched by
/// the handle that there was before. Returns memory that the kernel added to.
fn launch_first() -> u64 {
    let mut context: Handle = ptr::null_mut();
    let retain = |context: &mut Handle| call!("cuDevicePrimaryCtxRetain"(context => *mut Handle, 0 => c_int));
    assert_eq!(retain(&mut context), 0);
    assert_eq!(call!("cuDevicePrimaryCtxRelease_v2"(0 => c_int)), 0);
    assert_eq!(call!("cuCtxSetCurrent"(context => Handle)), 0);
    let text = CString::new(PTX).unwrap();
    let (mut library, mut kernel): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
    let none: Handle = ptr::null_mut();
    let code = call!("cuLibraryLoadData"(&mut library => *mut Handle, text.as_ptr() => *const c_char, none => Handle, none => Handle, 0 => c_uint, none => Handle, none => Handle, 0 => c_uint));
    assert_eq!(code, 0);
    let code = call!("cuLibraryGetKernel"(&mut kernel => *mut Handle, library => Handle, c"inc".as_ptr() => *const c_char));
    assert_eq!(code, 0);
    let mut value = 0u64;
    let allocate = |value: &mut u64| call!("cuMemAlloc_v2"(value => *mut u64, 4 => usize));
    assert_eq!(allocate(&mut value), 709, "nobody holds the context");
    assert_eq!(retain(&mut context), 0);
    assert_eq!(allocate(&mut value), 0);
    assert_eq!(call!("cuMemsetD8_v2"(value => u64, 0 => u8, 4 => usize)), 0);
    let (mut p, mut n) = (value, 2u32);
    let mut params: [Handle; 2] = [ptr::from_mut(&mut p).cast(), ptr::from_mut(&mut n).cast()];
    launch(
        "cuLaunchKernel",
        kernel,
        params.as_mut_ptr(),
        ptr::null_mut(),
    );
    assert_eq!(call!("cuCtxSynchronize"()), 0);
    value
}

/// Loads the module, launches `inc` in four ways, and unloads it.
fn use_module(value: u64) {
    let text = CString::new(PTX).unwrap();
    let (mut module, mut function): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
    let code =
        call!("cuModuleLoadData"(&mut module => *mut Handle, text.as_ptr() => *const c_char));
    assert_eq!(code, 0);
    let code = call!("cuModuleGetFunction"(&mut function => *mut Handle, module => Handle, c"inc".as_ptr() => *const c_char));
    assert_eq!(code, 0);
    let (mut p, mut n) = (value, 2u32);
    let mut params: [Handle; 2] = [ptr::from_mut(&mut p).cast(), ptr::from_mut(&mut n).cast()];
    for symbol in ["cuLaunchKernel", "cuLaunchKernel_ptsz"] {
        launch(symbol, function, params.as_mut_ptr(), ptr::null_mut());
    }
    let mut buffer = [0u8; 12];
    buffer[..8].copy_from_slice(&value.to_le_bytes());
    buffer[8..].copy_from_slice(&2u32.to_le_bytes());
    let mut size = buffer.len();
    let mut extra: [Handle; 5] = [
        1 as Handle,
        buffer.as_mut_ptr().cast(),
        2 as Handle,
        ptr::from_mut(&mut size).cast(),
        ptr::null_mut(),
    ];
    launch(
        "cuLaunchKernel",
        function,
        ptr::null_mut(),
        extra.as_mut_ptr(),
    );
    let config = warpbpf_driver::sys::CUlaunchConfig {
        grid_dim_x: 2,
        grid_dim_y: 1,
        grid_dim_z: 1,
        block_dim_x: 64,
        block_dim_y: 1,
        block_dim_z: 1,
        shared_mem_bytes: 0,
        stream: ptr::null_mut(),
        attrs: ptr::null_mut(),
        num_attrs: 0,
    };
    let code = call!("cuLaunchKernelEx"(&config => *const warpbpf_driver::sys::CUlaunchConfig, function => Handle, params.as_mut_ptr() => *mut Handle, ptr::null_mut() => *mut Handle));
    assert_eq!(code, 0);
    assert_eq!(call!("cuCtxSynchronize"()), 0);
    assert_eq!(call!("cuModuleUnload"(module => Handle)), 0);
}

/// Launches of `inc` at a moment, as the maps and the tool see them.
fn check(seen: &mut Seen, launches: u64) {
    let (_, shared) = seen.ready.as_mut().unwrap();
    let mut bytes = Vec::new();
    shared.snapshot(0, &mut bytes).unwrap().unwrap();
    // A summed array: the values of its shards add up.
    let (ready, _) = seen.ready.as_ref().unwrap();
    let stride = match ready.maps[0].layout.into() {
        warpbpf_abi::layout::MapLayout::Array(layout) => layout.shard_stride() as usize,
        other => panic!("{other:?}"),
    };
    let sum = |key: usize| -> u64 {
        let shard = |s: &[u8]| u64::from_le_bytes(s[key * 8..key * 8 + 8].try_into().unwrap());
        bytes.chunks(stride).map(shard).sum()
    };
    // Its only place has the number 1.
    assert_eq!(
        (sum(0), sum(1), sum(2)),
        (launches * 128, launches * 2, launches * 128)
    );
    let counts: Vec<_> = seen
        .counts
        .kernels
        .iter()
        .map(|k| (k.launches, k.uninstrumented))
        .collect();
    assert_eq!(counts, [(launches, 0)]);
}

#[test]
fn a_program_in_the_kernels_of_the_soft_gpu() {
    common::in_a_process("soft::a_program_in_the_kernels_of_the_soft_gpu", attached);
}

fn attached() {
    let object = common::compile("soft", PROGRAM);
    let listener = Listener::bind(&std::env::temp_dir()).unwrap();
    // SAFETY: no other thread of this program reads the environment now.
    unsafe { std::env::set_var("WARPBPF_SOCKET", listener.path()) };
    // SAFETY: the addresses are the driver's own, and nobody is in them.
    unsafe { warpbpf_agent::install_into(find) };

    // SAFETY: no pointers.
    assert_eq!(unsafe { cuInit(0) }, 0);
    let tool = std::thread::spawn(move || {
        let mut tool = listener.accept(Duration::from_secs(20)).unwrap().unwrap();
        let options = Options::default();
        let second = Duration::from_secs(1);
        tool.send(&ToAgent::Attach { options }, &object, None, second)
            .unwrap();
        (tool, listener)
    });
    let value = launch_first();
    use_module(value);
    let (mut tool, _listener) = tool.join().unwrap();
    let mut seen = Seen::default();
    read(&mut tool, &mut seen, |s| {
        s.counts
            .kernels
            .iter()
            .any(|k| k.launches + k.uninstrumented == 5)
    });

    // Again, and again: the driver may give out the same handles, and each time they are the new
    // module's.
    use_module(value);
    use_module(value);
    let second_wait = Duration::from_secs(1);
    tool.send(&ToAgent::Snapshot { token: 1 }, &[], None, second_wait)
        .unwrap();
    read(&mut tool, &mut seen, |s| {
        s.counts
            .kernels
            .iter()
            .any(|k| k.launches + k.uninstrumented == 13)
    });

    tool.send(&ToAgent::Detach, &[], None, second_wait).unwrap();
    read(&mut tool, &mut seen, |s| s.bye.is_some());
    assert_eq!(seen.bye.as_deref(), Some("detached"));
    check(&mut seen, 13);
    assert_eq!(seen.notes, Vec::<String>::new());
    let kernels: Vec<_> = seen
        .kernels
        .iter()
        .map(|k| {
            (
                k.mangled.as_str(),
                k.method.to_string(),
                k.instrumented,
                k.programs.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        kernels,
        [
            ("other", "not matched".to_owned(), false, &[][..]),
            ("inc", "slice".to_owned(), true, &[0, 1, 2][..])
        ]
    );
    // Without line information a place is told by the line of the text; the same text again has the
    // same numbers.
    let names = vec!["inc+11 red.global.add.u32".to_owned()];
    assert_eq!(seen.sites, [Sites { first: 1, names }]);
    let (ready, shared) = seen.ready.as_mut().unwrap();
    let names: Vec<_> = ready.programs.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["enter", "leave", "added"]);
    let mut blocks = [0u64; 2];
    let events = shared
        .events(|event| {
            assert_eq!(event.map, 1);
            let block = u64::from_le_bytes(event.payload[..8].try_into().unwrap());
            blocks[block as usize] += 1;
        })
        .unwrap();
    assert_eq!((events, blocks), (26, [13, 13]));

    // After the detach the original runs, and nothing is counted.
    use_module(value);
    check(&mut seen, 13);
    let mut total = 0u32;
    let code = call!("cuMemcpyDtoH_v2"(ptr::from_mut(&mut total).cast() => Handle, value => u64, 4 => usize));
    assert_eq!(code, 0);
    // The first launch and four rounds of four, of 128 threads that each add 2: the application
    // computes what it did without us.
    assert_eq!(total, (1 + 4 * 4) * 128 * 2);
}
