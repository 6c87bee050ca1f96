//! Memory that comes and goes, as a program on the device may read it: in the table before the
//! application has it, out of it before the driver takes it, and never taken while somebody reads.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "a table with one range is meant"
)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warpbpf_abi::layout::fence;
use warpbpf_driver::sys::CUresult;
use warpbpf_wire::{Options, ToAgent, ToTool, ToolConnection};

use super::attached::compile;
use super::fake;
use super::world::World;
use crate::control::ends::at_exit;
use crate::device::context_registry::ContextState;
use crate::hooks::memory_hooks;
use crate::hooks::{contexts, loads};
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original::trampolines;
use crate::sys::original::{AccessDescription, IpcHandle};

const SECOND: Duration = Duration::from_secs(1);

const PTX: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry inc(.param .u64 p)
{
ret;
}
";

/// Reads memory, and does not.
const PROGRAMS: [&str; 2] = [
    r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
__u64 seen;
SEC("gpu/entry/inc")
int enter(struct wbpf_kernel_ctx *ctx)
{
    __u64 value = 0;
    if (!bpf_probe_read_kernel(&value, sizeof(value), (void *)8))
        seen = value;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#,
    r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
__u64 seen;
SEC("gpu/entry/inc")
int enter(struct wbpf_kernel_ctx *ctx)
{
    seen = 1;
    return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#,
];

fn object(reads: bool) -> &'static [u8] {
    static OBJECTS: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
    let which = usize::from(!reads);
    OBJECTS[which].get_or_init(|| compile(["reads", "counts"][which], PROGRAMS[which]))
}

/// The driver of one test, which runs on one thread.
#[derive(Default)]
struct Driver {
    /// Address of the fence block.
    fence: u64,
    /// Address and number of bytes that the next calls give.
    give: (u64, usize),
    /// What they answer.
    code: CUresult,
    capturing: bool,
    /// Calls so far, and what was readable then.
    calls: Vec<(&'static str, Vec<Range<u64>>)>,
}

thread_local! {
    static DRIVER: RefCell<Driver> = RefCell::default();
}

/// A word of the fence block, which in this world is host memory.
fn word(base: u64, at: u64) -> u64 {
    // SAFETY: the block lives as long as the session, and other threads of a test write it by
    // atomics only.
    unsafe { ptr::read_volatile((base + at) as *const u64) }
}

/// What a reader finds now.
fn table(base: u64) -> Vec<Range<u64>> {
    if base == 0 {
        return Vec::new();
    }
    let current = word(base, fence::CURRENT);
    let at = |i: u64| fence::TABLES + (current & 1) * fence::TABLE + i * fence::RANGE;
    (0..current >> 1)
        .map(|i| word(base, at(i))..word(base, at(i) + 8))
        .collect()
}

fn call(name: &'static str) -> CUresult {
    DRIVER.with_borrow_mut(|driver| {
        let seen = table(driver.fence);
        driver.calls.push((name, seen));
        driver.code
    })
}

/// A call that gives an address.
unsafe fn gives<T>(name: &'static str, to: *mut T) -> CUresult {
    let code = call(name);
    if code == 0 {
        let given = DRIVER.with_borrow(|d| d.give.0);
        // SAFETY: the tests pass locals of eight bytes.
        unsafe { *to.cast::<u64>() = given };
    }
    code
}

/// # Safety
/// The arguments of the driver function that calls this are what CUDA asks for.
unsafe fn as_cuda_asks() {}

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($arg:ident : $ty:ty),*) $body:block)*) => {
        $(unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            // SAFETY: the tests pass what CUDA asks for.
            unsafe {
                as_cuda_asks();
                $body
            }
        })*

        fn connect() {
            $(trampolines::$name.store($name as *const () as usize, Ordering::Relaxed);)*
        }
    };
}

driver! {
    mem_alloc = "alloc"(to: *mut u64, _bytes: usize) { gives("alloc", to) }
    mem_alloc_managed = "managed"(to: *mut u64, _bytes: usize, _flags: c_uint) { gives("managed", to) }
    mem_alloc_pitch = "pitch"(to: *mut u64, pitch: *mut usize, _w: usize, _h: usize, _e: c_uint) {
        *pitch = 512;
        gives("pitch", to)
    }
    mem_free = "free"(_address: u64) { call("free") }
    mem_alloc_async = "async"(to: *mut u64, _bytes: usize, _stream: *mut c_void) { gives("async", to) }
    mem_alloc_from_pool = "pool"(to: *mut u64, _bytes: usize, _pool: *mut c_void, _stream: *mut c_void) { gives("pool", to) }
    mem_free_async = "free_async"(_address: u64, _stream: *mut c_void) { call("free_async") }
    mem_alloc_async_ptsz = "async"(to: *mut u64, _bytes: usize, _stream: *mut c_void) { gives("async", to) }
    mem_alloc_from_pool_ptsz = "pool"(to: *mut u64, _bytes: usize, _pool: *mut c_void, _stream: *mut c_void) { gives("pool", to) }
    mem_free_async_ptsz = "free_async"(_address: u64, _stream: *mut c_void) { call("free_async") }
    mem_alloc_host = "alloc_host"(to: *mut *mut c_void, _bytes: usize) { gives("alloc_host", to) }
    host_alloc = "host_alloc"(to: *mut *mut c_void, _bytes: usize, _flags: c_uint) { gives("host_alloc", to) }
    free_host = "free_host"(_pointer: *mut c_void) { call("free_host") }
    host_register = "register"(_pointer: *mut c_void, _bytes: usize, _flags: c_uint) { call("register") }
    host_unregister = "unregister"(_pointer: *mut c_void) { call("unregister") }
    ipc_open = "ipc_open"(to: *mut u64, _handle: IpcHandle, _flags: c_uint) { gives("ipc_open", to) }
    ipc_close = "ipc_close"(_address: u64) { call("ipc_close") }
    mem_create = "create"(to: *mut u64, _bytes: usize, _properties: *const c_void, _flags: u64) { gives("create", to) }
    mem_release = "release"(_handle: u64) { call("release") }
    mem_map = "map"(_address: u64, _bytes: usize, _offset: usize, _handle: u64, _flags: u64) { call("map") }
    mem_unmap = "unmap"(_address: u64, _bytes: usize) { call("unmap") }
    mem_set_access = "access"(_address: u64, _bytes: usize, _access: *const AccessDescription, _count: usize) { call("access") }
    attach_async = "attach"(_stream: *mut c_void, _address: u64, _bytes: usize, _flags: c_uint) { call("attach") }
    attach_async_ptsz = "attach"(_stream: *mut c_void, _address: u64, _bytes: usize, _flags: c_uint) { call("attach") }
    module_global = "global"(to: *mut u64, bytes: *mut usize, _module: *mut c_void, _name: *const c_char) {
        if !bytes.is_null() {
            *bytes = DRIVER.with_borrow(|d| d.give.1);
        }
        if to.is_null() { call("global") } else { gives("global", to) }
    }
    library_global = "global"(to: *mut u64, bytes: *mut usize, _library: *mut c_void, _name: *const c_char) {
        *bytes = DRIVER.with_borrow(|d| d.give.1);
        gives("global", to)
    }
    primary_reset = "reset"(_device: c_int) { call("reset") }
    library_get_module = "module"(to: *mut *mut c_void, _library: *mut c_void) { gives("module", to) }
}

unsafe extern "C" fn is_capturing(_stream: *mut c_void, status: *mut c_int) -> CUresult {
    // SAFETY: the caller passes a local.
    unsafe { *status = DRIVER.with_borrow(|d| c_int::from(d.capturing)) };
    0
}
unsafe extern "C" fn attribute(to: *mut c_int, _which: c_int, address: u64) -> CUresult {
    // SAFETY: as above. Memory above 2^32 is another device's.
    unsafe { *to = c_int::from(address >> 32 != 0) };
    0
}
unsafe extern "C" fn address_range(base: *mut u64, bytes: *mut usize, _address: u64) -> CUresult {
    // SAFETY: as above.
    unsafe { (*base, *bytes) = DRIVER.with_borrow(|d| d.give) };
    0
}

/// Functions that the agent looks up by name.
pub(super) fn address(symbol: &str) -> Option<usize> {
    match symbol {
        "cuStreamIsCapturing" => Some(is_capturing as *const () as usize),
        "cuPointerGetAttribute" => Some(attribute as *const () as usize),
        "cuMemGetAddressRange_v2" => Some(address_range as *const () as usize),
        _ => None,
    }
}

struct Test {
    agent: &'static Agent,
    context: usize,
    tool: Option<ToolConnection>,
    outcome: Outcome,
}

impl Test {
    /// An application that has loaded nothing yet.
    fn new(reads: bool) -> Test {
        let (_world, context) = World::enter();
        let (agent, mut tool) = fake::agent();
        connect();
        DRIVER.set(Driver::default());
        let options = Options {
            ring_bytes: Some(4096),
            ..Options::default()
        };
        tool.send(&ToAgent::Attach { options }, object(reads), None, SECOND)
            .unwrap();
        Test {
            agent,
            context,
            tool: Some(tool),
            outcome: Outcome::default(),
        }
    }

    /// One with the program in a kernel.
    fn attached() -> Test {
        let mut test = Test::new(true);
        test.load();
        assert_ne!(DRIVER.with_borrow(|d| d.fence), 0);
        test
    }

    fn load(&mut self) -> usize {
        let (code, module) = fake::load_module(self.agent, PTX);
        assert_eq!(code, 0);
        let shards = self.agent.context_registry.all();
        let state = shards[0].read();
        let ContextState::Here(live) = &*state else {
            panic!("{state:?}")
        };
        let base = live.fence().map_or(0, |fence| fence.base());
        DRIVER.with_borrow_mut(|d| d.fence = base);
        module
    }

    fn give(&self, address: u64, bytes: usize) {
        DRIVER.with_borrow_mut(|d| d.give = (address, bytes));
    }

    fn answer(&self, code: CUresult) {
        DRIVER.with_borrow_mut(|d| d.code = code);
    }

    fn readable(&self) -> Vec<Range<u64>> {
        table(DRIVER.with_borrow(|d| d.fence))
    }

    /// What was readable when the driver was called last.
    fn at_call(&self, name: &str) -> Vec<Range<u64>> {
        let (last, seen) = DRIVER.with_borrow(|d| d.calls.last().cloned()).unwrap();
        assert_eq!(last, name);
        seen
    }

    fn alloc(&self, address: u64, bytes: usize) {
        self.give(address, bytes);
        let mut got = 0;
        // SAFETY: a local.
        let code = unsafe { memory_hooks::alloc(self.agent, &self.outcome, &mut got, bytes) };
        assert_eq!(code, DRIVER.with_borrow(|d| d.code));
    }

    fn free(&self, address: u64) -> CUresult {
        // SAFETY: nothing is behind the address.
        unsafe { memory_hooks::free(self.agent, &self.outcome, address) }
    }

    /// What the tool was told of memory until the end.
    fn notes(mut self) -> Vec<String> {
        let mut tool = self.tool.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut notes = Vec::new();
            while let Ok(Some(frame)) = tool.recv(Duration::from_secs(20)) {
                match frame.message {
                    ToTool::Note { text, .. } if text.contains("memory") => notes.push(text),
                    ToTool::Bye { .. } => break,
                    _ => {}
                }
            }
            notes
        });
        at_exit(self.agent);
        reader.join().unwrap()
    }
}

fn none() -> *mut c_void {
    ptr::null_mut()
}

const RANGE: Range<u64> = 0x1_0000..0x1_0100;

#[test]
fn each_kind_of_memory_comes_and_goes() {
    let test = Test::attached();
    let (agent, outcome) = (test.agent, &test.outcome);
    let (mut at, mut pointer, mut pitch) = (0u64, none(), 0usize);
    let (start, bytes) = (RANGE.start, 0x100);
    let handle = IpcHandle::default();
    let host = start as *mut c_void;
    // Each pair: how it comes, how it goes, and the name of the driver's call by which it goes.
    type Step<'t> = Box<dyn FnMut() -> CUresult + 't>;
    // SAFETY: locals everywhere; nothing is behind the addresses.
    let pairs: Vec<(Step<'_>, Step<'_>, &str)> = unsafe {
        let at: *mut u64 = &mut at;
        let pointer: *mut *mut c_void = &mut pointer;
        let pitch: *mut usize = &mut pitch;
        vec![
            (
                Box::new(move || memory_hooks::alloc(agent, outcome, at, bytes)) as Step<'_>,
                Box::new(move || memory_hooks::free(agent, outcome, start)) as Step<'_>,
                "free",
            ),
            (
                Box::new(move || memory_hooks::alloc_managed(agent, outcome, at, bytes, 1)),
                Box::new(move || memory_hooks::free(agent, outcome, start)),
                "free",
            ),
            (
                Box::new(move || memory_hooks::alloc_managed(agent, outcome, at, bytes, 1)),
                Box::new(move || memory_hooks::attach_async(agent, outcome, none(), start, 0, 4)),
                "attach",
            ),
            (
                Box::new(move || memory_hooks::alloc_async(agent, outcome, at, bytes, none())),
                Box::new(move || memory_hooks::free_async(agent, outcome, start, none())),
                "free_async",
            ),
            (
                Box::new(move || memory_hooks::alloc_async_ptsz(agent, outcome, at, bytes, none())),
                Box::new(move || memory_hooks::free_async_ptsz(agent, outcome, start, none())),
                "free_async",
            ),
            (
                Box::new(move || {
                    memory_hooks::alloc_from_pool(agent, outcome, at, bytes, none(), none())
                }),
                Box::new(move || memory_hooks::free(agent, outcome, start)),
                "free",
            ),
            (
                Box::new(move || {
                    memory_hooks::alloc_from_pool_ptsz(agent, outcome, at, bytes, none(), none())
                }),
                Box::new(move || memory_hooks::free_async(agent, outcome, start, none())),
                "free_async",
            ),
            (
                Box::new(move || memory_hooks::alloc_host(agent, outcome, pointer, bytes)),
                Box::new(move || memory_hooks::free_host(agent, outcome, host)),
                "free_host",
            ),
            (
                Box::new(move || memory_hooks::host_alloc(agent, outcome, pointer, bytes, 0)),
                Box::new(move || memory_hooks::free_host(agent, outcome, host)),
                "free_host",
            ),
            (
                Box::new(move || memory_hooks::host_register(agent, outcome, host, bytes, 0)),
                Box::new(move || memory_hooks::host_unregister(agent, outcome, host)),
                "unregister",
            ),
            (
                Box::new(move || memory_hooks::ipc_open(agent, outcome, at, handle, 0)),
                Box::new(move || memory_hooks::ipc_close(agent, outcome, start)),
                "ipc_close",
            ),
            (
                Box::new(move || memory_hooks::alloc_pitch(agent, outcome, at, pitch, 100, 2, 4)),
                Box::new(move || memory_hooks::free(agent, outcome, start)),
                "free",
            ),
        ]
    };
    let count = pairs.len();
    for (i, (mut comes, mut goes, name)) in pairs.into_iter().enumerate() {
        test.give(start, bytes);
        assert_eq!(comes(), 0);
        // Two rows of 512 bytes in the last one.
        let expected = if i + 1 == count {
            start..start + 1024
        } else {
            RANGE
        };
        assert_eq!(test.readable(), std::slice::from_ref(&expected), "pair {i}");
        // The driver keeps it.
        test.answer(700);
        assert_eq!(goes(), 700);
        assert_eq!(
            test.at_call(name),
            [],
            "pair {i}: not while the driver takes it"
        );
        assert_eq!(test.readable(), [expected], "pair {i}: put back");
        // What was not given out is not there.
        assert_eq!(goes(), 700);
        test.answer(0);
        assert_eq!(goes(), 0);
        assert_eq!(
            (test.at_call(name), test.readable()),
            (vec![], vec![]),
            "pair {i}"
        );
        test.answer(2);
        assert_eq!(comes(), 2);
        assert_eq!(test.readable(), [], "pair {i}: no memory was given");
        test.answer(0);
    }
    assert_eq!(test.notes(), Vec::<String>::new());
}

#[test]
fn what_is_there_before_the_program_can_be_read() {
    let mut test = Test::new(true);
    test.alloc(0x1_0000, 0x100);
    test.alloc(0x2_0000, 0x100);
    assert_eq!(test.free(0x1_0000), 0);
    test.load();
    assert_eq!(test.readable(), [0x2_0000..0x2_0100]);
    test.alloc(0x2_0100, 0x10);
    assert_eq!(test.readable(), [0x2_0000..0x2_0110]);
}

#[test]
fn without_a_reading_program_nothing_is_done() {
    let mut test = Test::new(false);
    test.alloc(0x1_0000, 0x100);
    assert!(test.agent.memory.is_watched(), "not known yet");
    test.load();
    assert_eq!(DRIVER.with_borrow(|d| d.fence), 0);
    assert!(!test.agent.memory.is_watched());
}

#[test]
fn what_cannot_be_read_is_not_readable() {
    let test = Test::attached();
    let (agent, outcome) = (test.agent, &test.outcome);
    let mut at = 0u64;
    test.give(0x1_0000, 0x100);
    let host = 0x1_0000 as *mut c_void;
    // SAFETY: locals; nothing is behind the addresses.
    unsafe {
        // Managed memory of the host or of one stream.
        for flags in [2, 4] {
            memory_hooks::alloc_managed(agent, outcome, &mut at, 0x100, flags);
            assert_eq!(test.readable(), []);
        }
        // Registers of a device.
        memory_hooks::host_register(agent, outcome, host, 0x100, 4);
        assert_eq!(test.readable(), []);
        // A node of a graph.
        DRIVER.with_borrow_mut(|d| d.capturing = true);
        memory_hooks::alloc_async(agent, outcome, &mut at, 0x100, none());
        memory_hooks::alloc_async_ptsz(agent, outcome, &mut at, 0x100, none());
        memory_hooks::alloc_from_pool(agent, outcome, &mut at, 0x100, none(), none());
        DRIVER.with_borrow_mut(|d| d.capturing = false);
        assert_eq!(test.readable(), []);
        // Another device's pool.
        test.give(1 << 32, 0x100);
        memory_hooks::alloc_from_pool(agent, outcome, &mut at, 0x100, none(), none());
        assert_eq!(test.readable(), []);
        // Null pointers, which a driver would have refused.
        memory_hooks::alloc(agent, outcome, &mut at, 0);
        assert_eq!(test.readable(), []);
        // The end of the address space.
        test.give(u64::MAX - 0x10, 0x100);
        memory_hooks::alloc(agent, outcome, &mut at, 0x100);
        assert_eq!(test.readable(), []);
    }
}

#[test]
fn mappings_follow_their_access() {
    let test = Test::attached();
    let (agent, outcome) = (test.agent, &test.outcome);
    let access = |location_type, location, flags| AccessDescription {
        location_type,
        location,
        flags,
    };
    // SAFETY: locals; nothing is behind the addresses.
    unsafe {
        let map = |at, bytes, handle| memory_hooks::map(agent, outcome, at, bytes, 0, handle, 0);
        let set = |at, bytes, list: &[AccessDescription]| {
            memory_hooks::set_access(agent, outcome, at, bytes, list.as_ptr(), list.len())
        };
        let mut handle = 0u64;
        test.give(77, 0);
        memory_hooks::create(agent, outcome, &mut handle, 0x4000, none(), 0);
        map(0x1_0000, 0x4000, handle);
        assert_eq!(test.readable(), []);
        // Another device, the host, and no access.
        set(
            0x1_0000,
            0x4000,
            &[access(1, 1, 3), access(2, 0, 3), access(1, 0, 0)],
        );
        assert_eq!(test.readable(), []);
        set(0x1_0000, 0x2000, &[access(1, 0, 1)]);
        set(0x1_3000, 0x1000, &[access(1, 0, 3)]);
        assert_eq!(test.readable(), [0x1_0000..0x1_2000, 0x1_3000..0x1_4000]);
        // Access is taken away, or not.
        test.answer(1);
        set(0x1_0000, 0x1000, &[access(1, 0, 0)]);
        assert_eq!(
            test.at_call("access"),
            [0x1_1000..0x1_2000, 0x1_3000..0x1_4000]
        );
        assert_eq!(test.readable(), [0x1_0000..0x1_2000, 0x1_3000..0x1_4000]);
        set(0x1_2000, 0x1000, &[access(1, 0, 3)]);
        assert_eq!(test.readable(), [0x1_0000..0x1_2000, 0x1_3000..0x1_4000]);
        memory_hooks::unmap(agent, outcome, 0x1_0000, 0x4000);
        assert_eq!(test.at_call("unmap"), []);
        assert_eq!(test.readable(), [0x1_0000..0x1_2000, 0x1_3000..0x1_4000]);
        test.answer(0);
        memory_hooks::unmap(agent, outcome, 0x1_0000, 0x4000);
        assert_eq!(test.readable(), []);
        set(0x1_0000, 0x4000, &[access(1, 0, 3)]);
        assert_eq!(test.readable(), [], "nothing is mapped");
        // Memory that the application did not make: a multicast object looks the same.
        map(0x1_0000, 0x4000, 78);
        set(0x1_0000, 0x4000, &[access(1, 0, 3)]);
        assert_eq!(test.readable(), []);
        memory_hooks::release(agent, outcome, handle);
        map(0x2_0000, 0x4000, handle);
        set(0x2_0000, 0x4000, &[access(1, 0, 3)]);
        assert_eq!(
            test.readable(),
            [],
            "a number that may mean something else by now"
        );
    }
}

#[test]
fn variables_go_with_their_module() {
    let mut test = Test::attached();
    let module = test.load();
    let (agent, outcome) = (test.agent, &test.outcome);
    let name = c"v".as_ptr();
    let (mut at, mut bytes) = (0u64, 0usize);
    // SAFETY: locals, and a name.
    unsafe {
        let (module, library) = (module as *mut c_void, 0x77 as *mut c_void);
        test.give(0x1_0000, 24);
        memory_hooks::module_global(agent, outcome, &mut at, ptr::null_mut(), module, name);
        assert_eq!(test.readable(), [0x1_0000..0x1_0018]);
        memory_hooks::module_global(agent, outcome, ptr::null_mut(), &mut bytes, module, name);
        assert_eq!(test.readable(), [0x1_0000..0x1_0018]);
        test.give(0x2_0000, 8);
        memory_hooks::library_global(agent, outcome, &mut at, &mut bytes, library, name);
        // The module that the library is here.
        let mut inner = none();
        test.give(0x99, 0);
        loads::library_get_module(agent, outcome, &mut inner, library);
        assert_eq!(inner as usize, 0x99);
        test.give(0x3_0000, 8);
        memory_hooks::module_global(agent, outcome, &mut at, &mut bytes, inner, name);
        assert_eq!(
            test.readable(),
            [0x1_0000..0x1_0018, 0x2_0000..0x2_0008, 0x3_0000..0x3_0008]
        );
        // The driver knows no such library.
        assert_ne!(loads::library_unload(agent, outcome, library), 0);
        assert_eq!(test.readable().len(), 3);
        assert_eq!(loads::module_unload(agent, outcome, module), 0);
        assert_eq!(test.readable(), [0x2_0000..0x2_0008, 0x3_0000..0x3_0008]);
    }
}

#[test]
fn memory_goes_with_its_context() {
    let mut test = Test::new(true);
    let (agent, outcome) = (test.agent, &test.outcome);
    let first = test.context;
    test.alloc(0x1_0000, 0x100);
    // SAFETY: no pointers.
    let destroyed = unsafe { contexts::destroy(agent, outcome, first as *mut c_void) };
    assert_eq!(destroyed, 0);
    let (_world, context) = World::enter();
    test.alloc(0x2_0000, 0x100);
    let mut primary = none();
    // SAFETY: a local.
    let retained = unsafe { contexts::primary_retain(agent, outcome, &mut primary, 0) };
    assert_eq!(retained, 0);
    assert_eq!(primary as usize, context);
    test.load();
    assert_eq!(test.readable(), [0x2_0000..0x2_0100]);
    // SAFETY: no pointers.
    let reset = unsafe { contexts::primary_reset(test.agent, &test.outcome, 0) };
    assert_eq!(reset, 0);
    let known = test.agent.memory.lock();
    let left = known.set.readable(context, 0).ranges;
    assert_eq!(left, [], "with the context, everything has gone");
}

/// The counter of readers on one multiprocessor, in one set.
fn counter(set: u64, sm: u64) -> &'static std::sync::atomic::AtomicU32 {
    let base = DRIVER.with_borrow(|d| d.fence);
    let at = base + fence::READERS + set * fence::SET + sm * fence::COUNTER_STRIDE;
    // SAFETY: aligned, and lives as long as the session.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(at as *mut u32) }
}

#[test]
fn memory_that_is_being_read_is_not_freed_yet() {
    for set in [0, 1] {
        let test = Test::attached();
        test.alloc(0x1_0000, 0x100);
        let reader = counter(set, 200);
        reader.store(3, Ordering::SeqCst);
        let begun = Instant::now();
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            reader.store(0, Ordering::SeqCst);
        });
        assert_eq!(test.free(0x1_0000), 0);
        assert!(begun.elapsed() >= Duration::from_millis(100), "set {set}");
        leaving.join().unwrap();
        assert_eq!(test.notes(), Vec::<String>::new());
    }
}

#[test]
fn the_application_does_not_wait_for_ever() {
    let test = Test::attached();
    test.alloc(0x1_0000, 0x100);
    test.alloc(0x2_0000, 0x100);
    test.alloc(0x3_0000, 0x100);
    counter(1, 0).store(1, Ordering::SeqCst);
    let begun = Instant::now();
    assert_eq!(test.free(0x1_0000), 0);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // The other table cannot be written while somebody may read it: then nothing is readable.
    assert_eq!(test.free(0x2_0000), 0);
    assert_eq!(test.readable(), []);
    counter(1, 0).store(0, Ordering::SeqCst);
    test.alloc(0x4_0000, 0x100);
    assert_eq!(test.readable(), [0x3_0000..0x3_0100, 0x4_0000..0x4_0100]);
    assert_eq!(
        test.notes(),
        [1, 2].map(|times| format!(
            "a kernel was still reading the application's memory 2 s after it was to be given back; it is given back all \
             the same (times so far: {times})"
        ))
    );
}

#[test]
fn too_many_ranges_are_told() {
    let test = Test::attached();
    let mut known = test.agent.memory.lock();
    for i in 0..fence::CAPACITY {
        known.set.add(warpbpf_session::Allocation {
            kind: warpbpf_session::Kind::Device,
            name: 0x100_0000 + i * 0x20,
            range: 0x100_0000 + i * 0x20..0x100_0010 + i * 0x20,
            context: test.context,
            owner: 0,
        });
    }
    drop(known);
    test.alloc(0x1_0000, 0x100);
    let readable = test.readable();
    assert_eq!(readable.len() as u64, fence::CAPACITY);
    assert_eq!(readable[..2], [0x1_0000..0x1_0100, 0x100_0000..0x100_0010]);
    assert_eq!(
        test.notes(),
        [
            "the application has more than 16384 separate ranges of memory; programs cannot read the others"
        ]
    );
}
