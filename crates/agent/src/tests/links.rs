//! PTX that an application has the driver link: its kernels get programs where one text went in,
//! and a reason where not.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{CUlinkState, CUresult};
use warpbpf_driver::{jit, sys};
use warpbpf_wire::{Kernel, Method, ToTool};

use super::attached::{Application, PTX};
use super::machine::{cubin, ptxas};
use crate::hooks::link_hooks as links;
use crate::sys::guard::Outcome;
use crate::sys::original::trampolines;

/// A link of the driver that always gives the same.
struct Driver {
    image: &'static [u8],
}

thread_local! {
    /// What the links of this thread give.
    static IMAGE: Cell<&'static [u8]> = const { Cell::new(&[]) };
}

unsafe extern "C" fn create(
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    link: *mut CUlinkState,
) -> CUresult {
    let made = Box::new(Driver { image: IMAGE.get() });
    // SAFETY: the tests pass a local.
    unsafe { *link = Box::into_raw(made).cast() };
    0
}
/// Takes all data but none.
unsafe extern "C" fn add_data(
    _link: CUlinkState,
    _kind: c_int,
    _data: *mut c_void,
    bytes: usize,
    _name: *const c_char,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> CUresult {
    if bytes == 0 { 1 } else { 0 }
}
unsafe extern "C" fn add_file(
    _link: CUlinkState,
    _kind: c_int,
    _path: *const c_char,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> CUresult {
    0
}
unsafe extern "C" fn complete(
    link: CUlinkState,
    image: *mut *mut c_void,
    bytes: *mut usize,
) -> CUresult {
    // SAFETY: a link of `create`; the tests pass a local for the image, and for its length or null.
    unsafe {
        let made = (*link.cast::<Driver>()).image;
        *image = made.as_ptr().cast_mut().cast();
        if let Some(bytes) = bytes.as_mut() {
            *bytes = made.len();
        }
    }
    0
}
unsafe extern "C" fn destroy(link: CUlinkState) -> CUresult {
    // SAFETY: a link of `create`, which is destroyed once.
    drop(unsafe { Box::from_raw(link.cast::<Driver>()) });
    0
}

/// What goes into a link.
enum Input<'a> {
    Data(c_int, &'a str),
    File(&'a str),
}

/// Calls a hook as an application does the function.
macro_rules! call {
    ($app:ident.$hook:ident($($argument:expr),*)) => {{
        // SAFETY: locals, and what the functions above ask for.
        let code = unsafe { links::$hook($app.agent, &Outcome::default(), $($argument),*) };
        $app.answers.push(code);
        code
    }};
}

/// Links these inputs, at most so many registers a thread, to this image.
fn link(
    app: &mut Application,
    inputs: &[Input<'_>],
    registers: Option<usize>,
    image: &'static [u8],
) -> Vec<u8> {
    for (slot, function) in [
        (&trampolines::link_create, create as *const () as usize),
        (&trampolines::link_add_data, add_data as *const () as usize),
        (&trampolines::link_add_file, add_file as *const () as usize),
        (&trampolines::link_complete, complete as *const () as usize),
        (&trampolines::link_destroy, destroy as *const () as usize),
    ] {
        slot.store(function, Ordering::Relaxed);
    }
    IMAGE.set(image);
    let mut link: CUlinkState = null_mut();
    let mut options = [jit::MAX_REGISTERS];
    let mut values = [registers.unwrap_or(0) as *mut c_void];
    let count = c_uint::from(registers.is_some());
    call!(app.link_create(count, options.as_mut_ptr(), values.as_mut_ptr(), &mut link));
    for input in inputs {
        let no = (null_mut(), null_mut());
        match input {
            Input::Data(kind, text) => {
                let data = text.as_ptr().cast_mut().cast();
                call!(app.link_add_data(link, *kind, data, text.len(), null(), 0, no.0, no.1));
            }
            Input::File(path) => {
                let path = CString::new(*path).unwrap();
                let path = path.as_ptr();
                call!(app.link_add_file(link, sys::INPUT_PTX, path, 0, no.0, no.1));
            }
        }
    }
    let (mut made, mut bytes) = (null_mut(), 0usize);
    call!(app.link_complete(link, &mut made, &mut bytes));
    // SAFETY: so many bytes are there until the link is destroyed. Applications copy them.
    let copy = unsafe { std::slice::from_raw_parts(made.cast::<u8>(), bytes) }.to_vec();
    call!(app.link_destroy(link));
    copy
}

/// What is told of the kernel when such a link's image is loaded, and how many of its launches had
/// probes.
fn told(inputs: &[Input<'_>], registers: Option<usize>, image: &'static [u8]) -> (Kernel, usize) {
    let mut app = Application::new();
    let made = link(&mut app, inputs, registers, image);
    let module = app.load_image(&made);
    let function = app.function(module);
    app.launch(function, 2, 64);
    let with_probes = app.world.with_probes();
    let said = app.said();
    let mut kernels = said.into_iter().filter_map(|message| match message {
        ToTool::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let kernel = kernels.next().expect("a kernel");
    assert_eq!(kernels.next(), None);
    (kernel, with_probes)
}

fn one_text() -> [Input<'static>; 1] {
    [Input::Data(sys::INPUT_PTX, PTX)]
}

#[test]
fn what_was_linked_of_one_text_has_programs() {
    let (kernel, with_probes) = told(&one_text(), None, cubin());
    assert_eq!(kernel.source, "linked, PTX 8.0 sm_90; cubin");
    assert_eq!((kernel.method, with_probes), (Method::Slice, 1));
}

#[test]
fn so_has_what_was_linked_of_a_file() {
    let path = std::env::temp_dir().join(format!("warpbpf-agent-link-{}.ptx", std::process::id()));
    std::fs::write(&path, PTX).unwrap();
    let (kernel, with_probes) = told(&[Input::File(path.to_str().unwrap())], None, cubin());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(kernel.source, "linked, PTX 8.0 sm_90; cubin");
    assert_eq!((kernel.method, with_probes), (Method::Slice, 1));
}

#[test]
fn why_other_links_give_no_ptx_is_told() {
    let other = PTX.replace("inc", "other");
    let [text] = one_text();
    let cases: [(&[Input<'_>], &str); 4] = [
        (
            &[text, Input::Data(sys::INPUT_PTX, &other)],
            "its link was given 2 inputs",
        ),
        (
            &[Input::Data(4, PTX)],
            "its link was given a library, not PTX text",
        ),
        (
            &[Input::Data(sys::INPUT_PTX, "")],
            "the driver refused what its link was given",
        ),
        (
            &[Input::Data(sys::INPUT_PTX, &other)],
            "the PTX that is known of it is not what it was made from: it has no kernel `inc`",
        ),
    ];
    for (inputs, reason) in cases {
        let (kernel, with_probes) = told(inputs, None, cubin());
        assert_eq!((kernel.source.as_str(), with_probes), ("cubin", 0));
        let why = format!("the image is a cubin: machine code without PTX; {reason}");
        assert!(
            kernel.method.to_string().ends_with(&why),
            "{}",
            kernel.method
        );
    }
}

#[test]
fn a_text_stands_for_the_bytes_that_were_linked_and_no_others() {
    let mut app = Application::new();
    link(&mut app, &one_text(), None, cubin());
    let others = ptxas(&PTX.replace("red.", "// once more\nred."), &["-O0"]);
    assert_ne!(others, cubin());
    let module = app.load_image(&others);
    let function = app.function(module);
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 0);
}

#[test]
fn variants_are_compiled_with_the_links_options() {
    let mut app = Application::new();
    let made = link(&mut app, &one_text(), Some(40), cubin());
    let known = app.agent.jit_outputs.of(&made).expect("it is known");
    let jit = known.jit.as_ref().map(|jit| jit.pairs());
    assert_eq!(jit, Some(&[(jit::MAX_REGISTERS, 40)][..]));
    let module = app.load_image(&made);
    let function = app.function(module);
    app.launch(function, 2, 64);
    assert_eq!(app.world.with_probes(), 1);
    assert!(app.answers.iter().all(|code| *code == 0));
    // With the tool all of it goes.
    app.agent.turn_off();
    assert_eq!(app.agent.jit_outputs.of(&made), None);
}

#[test]
fn a_text_is_not_loaded_in_place_of_what_was_linked_with_options() {
    let constant = ".const .align 4 .u32 constant;\n.visible .entry";
    let text = PTX.replace(".visible .entry", constant);
    let text = text.replace("red.", "ld.const.u32 %r1, [constant];\nred.");
    let text = text.replace(".reg .b64", ".reg .b32 %r<2>;\n.reg .b64");
    let image: &'static [u8] = ptxas(&text, &[]).leak();
    let inputs = [Input::Data(sys::INPUT_PTX, &text)];
    let (kernel, with_probes) = told(&inputs, None, image);
    assert_eq!(with_probes, 1);
    assert!(
        matches!(kernel.method, Method::Clone { .. }),
        "{}",
        kernel.method
    );
    let (kernel, with_probes) = told(&inputs, Some(40), image);
    assert_eq!(with_probes, 0);
    let why = "it was linked with options, which a load of its PTX would be without";
    assert!(kernel.method.to_string().contains(why), "{}", kernel.method);
}
