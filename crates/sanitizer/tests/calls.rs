//! What the library is told, in which order, and what its errors become: over a table of functions
//! that take notes.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use warpbpf_sanitizer::sys::{
    CONTEXT_DESTROY_STARTING, CallbackFunc, DOMAIN_GRAPHS, DOMAIN_LAUNCH, DOMAIN_RESOURCE,
    GraphNodeLaunchData, Instruction, LAUNCH_BEGIN, LaunchData, NODE_KERNEL, NODE_LAUNCH_BEGIN,
    Table,
};
use warpbpf_sanitizer::{Patch, Sanitizer, SanitizerError};

/// One thread's library.
#[derive(Default)]
struct Library {
    calls: Vec<String>,
    /// This call fails so.
    fails: Option<(&'static str, u32)>,
    subscriber: Option<(CallbackFunc, usize)>,
}

thread_local! {
    static LIBRARY: RefCell<Library> = RefCell::default();
}

fn note(name: &str, call: String) -> u32 {
    LIBRARY.with_borrow_mut(|library| {
        library.calls.push(call);
        match library.fails {
            Some((failing, code)) if failing == name => code,
            _ => 0,
        }
    })
}

fn calls() -> Vec<String> {
    LIBRARY.with_borrow_mut(|library| std::mem::take(&mut library.calls))
}

fn fail(name: &'static str, code: u32) {
    LIBRARY.with_borrow_mut(|library| library.fails = Some((name, code)));
}

unsafe extern "C" fn subscribe(to: *mut *mut c_void, call: CallbackFunc, own: *mut c_void) -> u32 {
    LIBRARY.with_borrow_mut(|library| library.subscriber = Some((call, own as usize)));
    // SAFETY: the caller's local.
    unsafe { to.write(0x77 as *mut c_void) };
    note("subscribe", "subscribe".into())
}

unsafe extern "C" fn unsubscribe(subscriber: *mut c_void) -> u32 {
    note("unsubscribe", format!("unsubscribe {subscriber:?}"))
}

unsafe extern "C" fn enable(on: u32, subscriber: *mut c_void, domain: u32, id: u32) -> u32 {
    note(
        "enable",
        format!("enable {on} {subscriber:?} {domain} {id}"),
    )
}

unsafe extern "C" fn add(image: *const c_void, context: *mut c_void) -> u32 {
    // SAFETY: the tests' images are single bytes.
    let image = unsafe { image.cast::<u8>().read() };
    note("add", format!("add {image} {context:?}"))
}

unsafe extern "C" fn instructions(id: u32, module: *mut c_void, name: *const c_char) -> u32 {
    // SAFETY: NUL-terminated, as the API wants it.
    let name = unsafe { CStr::from_ptr(name) };
    note("instructions", format!("at {id} {module:?} {name:?}"))
}

unsafe extern "C" fn patch(module: *mut c_void) -> u32 {
    note("patch", format!("patch {module:?}"))
}

unsafe extern "C" fn data(function: *mut c_void, data: *const c_void) -> u32 {
    note("data", format!("data {function:?} {data:?}"))
}

unsafe extern "C" fn launch(
    launch: *mut c_void,
    function: *mut c_void,
    stream: *mut c_void,
    data: *const c_void,
) -> u32 {
    note(
        "launch",
        format!("launch {launch:?} {function:?} {stream:?} {data:?}"),
    )
}

const TABLE: Table = Table {
    subscribe,
    unsubscribe,
    enable_callback: enable,
    add_patches: add,
    patch_instructions: instructions,
    patch_module: patch,
    set_callback_data: data,
    set_launch_callback_data: launch,
    later: true,
};

/// The library calls back.
fn tell<T>(domain: u32, id: u32, data: &T) {
    let (call, own) = LIBRARY.with_borrow(|library| library.subscriber).unwrap();
    // SAFETY: what was subscribed with, and data as the API documents them.
    unsafe {
        call(
            own as *mut c_void,
            domain,
            id,
            std::ptr::from_ref(data).cast(),
        );
    }
}

fn a_launch(function: usize) -> LaunchData {
    LaunchData {
        context: std::ptr::null_mut(),
        stream: std::ptr::null_mut(),
        stream_handle: 0x5 as *mut c_void,
        module: std::ptr::null_mut(),
        function: function as *mut c_void,
        function_name: std::ptr::null(),
        dimensions: [1; 9],
        grid_id: 1,
        launch: 0x9 as *mut c_void,
    }
}

const ENTRY: Patch<'_> = Patch {
    instruction: Instruction::BlockEnter,
    name: "one",
    cubin: b"A",
};
/// A place that the first versions do not know.
const LATER: Patch<'_> = Patch {
    instruction: Instruction::ClusterBarrierWait,
    name: "three",
    cubin: b"C",
};
const ACCESS: Patch<'_> = Patch {
    instruction: Instruction::SharedMemoryAccess,
    name: "two",
    cubin: b"B",
};

#[test]
fn a_function_is_added_once_in_a_context_and_again_in_one_that_follows() {
    let sanitizer = Sanitizer::with(TABLE).unwrap();
    assert_eq!(
        calls(),
        [
            "subscribe",
            "enable 1 0x77 3 4",
            "enable 1 0x77 5 1",
            "enable 1 0x77 10 4"
        ]
    );
    sanitizer.patch(0x10, 0x20, &[ENTRY, ACCESS]).unwrap();
    assert_eq!(
        calls(),
        [
            "add 65 0x10",
            "at 1 0x20 \"one\"",
            "add 66 0x10",
            "at 4 0x20 \"two\"",
            "patch 0x20"
        ]
    );
    sanitizer.patch(0x10, 0x21, &[ENTRY]).unwrap();
    assert_eq!(calls(), ["at 1 0x21 \"one\"", "patch 0x21"]);
    tell(DOMAIN_RESOURCE, CONTEXT_DESTROY_STARTING, &[0x11usize, 0]);
    sanitizer.patch(0x10, 0x22, &[ENTRY]).unwrap();
    assert_eq!(calls(), ["at 1 0x22 \"one\"", "patch 0x22"]);
    tell(DOMAIN_RESOURCE, CONTEXT_DESTROY_STARTING, &[0x10usize, 0]);
    sanitizer.patch(0x10, 0x23, &[ENTRY]).unwrap();
    assert_eq!(calls(), ["add 65 0x10", "at 1 0x23 \"one\"", "patch 0x23"]);
}

#[test]
fn launches_and_nodes_of_graphs_are_told_the_argument() {
    let sanitizer = Sanitizer::with(TABLE).unwrap();
    sanitizer.set_data(0x10, 0x30, 0x7f00).unwrap();
    calls();
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x30));
    // One of the application's own.
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x31));
    let node = |node_type, function| GraphNodeLaunchData {
        graph_exec: std::ptr::null_mut(),
        launch_id: 0,
        node: std::ptr::null_mut(),
        node_type,
        launch: a_launch(function),
    };
    tell(DOMAIN_GRAPHS, NODE_LAUNCH_BEGIN, &node(NODE_KERNEL, 0x30));
    // A copy: what stands there is no launch.
    tell(DOMAIN_GRAPHS, NODE_LAUNCH_BEGIN, &node(1, 0x30));
    let told = "launch 0x9 0x30 0x5 0x7f00";
    assert_eq!(calls(), [told, told]);
    assert_eq!(sanitizer.refused(), None);
    fail("launch", 3);
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x30));
    calls();
    assert_eq!(
        sanitizer.refused().unwrap().to_string(),
        "`sanitizerSetLaunchCallbackData` failed: SANITIZER_ERROR_INVALID_CONTEXT (3)"
    );
    sanitizer.forget(0x30);
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x30));
    assert_eq!(calls(), [""; 0]);
}

#[test]
fn a_launch_is_told_what_is_said_of_it_alone() {
    let sanitizer = Sanitizer::with(TABLE).unwrap();
    for function in [0x30, 0x32] {
        sanitizer.set_data(0x10, function, 0).unwrap();
    }
    calls();
    let launched = |function| tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(function));
    let code = sanitizer.telling(0x30, 0x7f40, || {
        launched(0x30);
        // What the driver launches beside it, and another one within.
        launched(0x32);
        sanitizer.telling(0x32, 0x7f60, || launched(0x32));
        launched(0x30);
        7
    });
    assert_eq!(code, 7);
    launched(0x30);
    let panics =
        std::panic::AssertUnwindSafe(|| sanitizer.telling(0x30, 0x7f80, || panic!("told")));
    assert!(std::panic::catch_unwind(panics).is_err());
    launched(0x30);
    let told = |function: usize, data: usize| {
        let data = data as *const c_void;
        format!("launch 0x9 {:?} 0x5 {data:?}", function as *const c_void)
    };
    assert_eq!(
        calls(),
        [
            told(0x30, 0x7f40),
            told(0x32, 0),
            told(0x32, 0x7f60),
            told(0x30, 0x7f40),
            told(0x30, 0),
            told(0x30, 0)
        ]
    );
}

#[test]
fn functions_of_a_context_that_ended_are_told_nothing() {
    let sanitizer = Sanitizer::with(TABLE).unwrap();
    sanitizer.set_data(0x10, 0x30, 0x7f00).unwrap();
    sanitizer.set_data(0x11, 0x31, 0x7f80).unwrap();
    tell(DOMAIN_RESOURCE, CONTEXT_DESTROY_STARTING, &[0x10usize, 0]);
    calls();
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x30));
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x31));
    assert_eq!(calls(), ["launch 0x9 0x31 0x5 0x7f80"]);
}

#[test]
fn what_fails_is_named() {
    let subscribed = |name, code| {
        fail(name, code);
        Sanitizer::with(TABLE).unwrap_err().to_string()
    };
    assert_eq!(
        subscribed("subscribe", 10),
        "another tool subscribed to Compute Sanitizer in this application before; there can be one, run it without that tool"
    );
    assert_eq!(
        subscribed("subscribe", 13),
        "`sanitizerSubscribe` says that the library does not fit the driver; use that of the driver's own CUDA version (`pip install nvidia-cuda-sanitizer-api`)"
    );
    calls();
    assert_eq!(
        subscribed("enable", 5),
        "`sanitizerEnableCallback` failed: SANITIZER_ERROR_INVALID_CALLBACK_ID (5)"
    );
    // Nobody stays subscribed who hears nothing.
    assert_eq!(calls().last().unwrap(), "unsubscribe 0x77");
    fail("", 0);
    let sanitizer = Sanitizer::with(TABLE).unwrap();
    let patched = |name, code| {
        fail(name, code);
        sanitizer.patch(1, 2, &[ENTRY]).unwrap_err().to_string()
    };
    calls();
    assert_eq!(
        patched("add", 6),
        "`sanitizerAddPatches` failed: SANITIZER_ERROR_INVALID_OPERATION (6)"
    );
    assert_eq!(calls(), ["add 65 0x1"]);
    // It was not added, so it is tried again.
    assert_eq!(
        patched("instructions", 1),
        "`sanitizerPatchInstructions` failed: SANITIZER_ERROR_INVALID_PARAMETER (1)"
    );
    assert_eq!(calls(), ["add 65 0x1", "at 1 0x2 \"one\""]);
    assert_eq!(
        patched("patch", 77),
        "`sanitizerPatchModule` failed: an error without a known name (77)"
    );
    let nul = Patch {
        name: "a\0b",
        ..ENTRY
    };
    assert_eq!(sanitizer.patch(1, 2, &[nul]), Err(SanitizerError::Name));
    fail("data", 2);
    assert_eq!(
        sanitizer.set_data(0x10, 0x40, 8).unwrap_err().to_string(),
        "`sanitizerSetCallbackData` failed: SANITIZER_ERROR_INVALID_DEVICE (2)"
    );
    calls();
    // So launches of it are told nothing.
    tell(DOMAIN_LAUNCH, LAUNCH_BEGIN, &a_launch(0x40));
    assert_eq!(calls(), [""; 0]);
}

#[test]
fn what_a_version_does_not_tell_of_is_refused_before_anything_is_done() {
    let sanitizer = Sanitizer::with(Table {
        later: false,
        ..TABLE
    });
    let sanitizer = sanitizer.unwrap();
    calls();
    assert_eq!(
        sanitizer
            .patch(1, 2, &[ENTRY, LATER])
            .unwrap_err()
            .to_string(),
        "this version of the library does not tell of `ClusterBarrierWait` (instruction 22): use that of CUDA 12.2 or newer (`pip install nvidia-cuda-sanitizer-api`), or leave such places out by `kind=`"
    );
    assert_eq!(calls(), [""; 0]);
    sanitizer.patch(1, 2, &[ENTRY]).unwrap();
    let newer = Sanitizer::with(TABLE).unwrap();
    calls();
    newer.patch(1, 2, &[LATER]).unwrap();
    assert_eq!(calls(), ["add 67 0x1", "at 22 0x2 \"three\"", "patch 0x2"]);
}

#[test]
fn the_version_of_a_library_is_told_by_what_it_has() {
    let resolved = |later: bool| {
        // SAFETY: functions of the API's signatures that nobody calls.
        let table = unsafe {
            Table::resolve(|name| match name.to_bytes() {
                b"sanitizerSetDeviceGraphData" if !later => std::ptr::null(),
                _ => patch as *const c_void,
            })
        };
        table.unwrap().later
    };
    assert!(resolved(true) && !resolved(false));
}

#[test]
fn a_library_that_is_none_is_refused() {
    let missing = Table::open(Path::new("/nowhere/libsanitizer-public.so")).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("`/nowhere/libsanitizer-public.so` cannot be loaded: "),
        "{missing}"
    );
    // One that is there and is something else.
    let other = Table::open(Path::new("libc.so.6")).unwrap_err();
    assert_eq!(
        other.to_string(),
        "the library has no `sanitizerSubscribe`; it must be of CUDA 12 or newer, use that of `pip install nvidia-cuda-sanitizer-api`"
    );
}
