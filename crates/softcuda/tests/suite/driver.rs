//! The driver API, called in this process through its exported functions. Each test has a context
//! of its own, so that one test's trap is not another's error.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Context, Sharing};
use warpbpf_softcuda::Handle;
use warpbpf_softcuda::driver::table::*;

const PTX: &str = r"
.version 8.0
.target sm_80
.address_size 64

.global .u32 total = 5;
.const .align 4 .b8 table[16] = {1, 0, 0, 0, 2};

.visible .entry add(.param .u64 add_out, .param .u32 add_value, .param .u8 add_byte) {
    .reg .u64 %rd<4>;
    .reg .u32 %r<8>;
    ld.param.u64 %rd1, [add_out];
    ld.param.u32 %r1, [add_value];
    ld.param.u8 %r2, [add_byte];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ntid.x;
    mad.lo.u32 %r3, %r4, %r5, %r3;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd1, %rd1, %rd2;
    add.u32 %r1, %r1, %r2;
    add.u32 %r1, %r1, %r3;
    st.global.u32 [%rd1], %r1;
    ret;
}

.visible .entry bump() {
    .reg .u32 %r<2>;
    red.global.add.u32 [total], 1;
    ret;
}

.visible .entry stops() {
    trap;
}

.visible .entry bounded() .maxntid 64, 1, 1 {
    .shared .align 4 .b8 own[256];
    .reg .u32 %r<2>;
    mov.u32 %r1, own;
    st.shared.u32 [%r1], 0;
    ret;
}
";

fn load(text: &str) -> Handle {
    let text = CString::new(text).expect("no NUL");
    let mut module = 0;
    // SAFETY: a valid pointer and a C string.
    let code = unsafe { cuModuleLoadData(&raw mut module, text.as_ptr().cast()) };
    assert_eq!(code, 0);
    module
}

fn function(module: Handle, name: &CStr) -> Handle {
    let mut function = 0;
    // SAFETY: a valid pointer and a C string.
    let code = unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
    assert_eq!(code, 0);
    function
}

fn launch(function: Handle, grid: u32, block: u32, args: &mut [*mut c_void]) -> u32 {
    let params = if args.is_empty() {
        null_mut()
    } else {
        args.as_mut_ptr()
    };
    // SAFETY: each argument points to a value of its parameter's type.
    unsafe { cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, 0, params, null_mut()) }
}

fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut address, bytes) }, 0);
    address
}

fn words(address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0u32; count];
    // SAFETY: the buffer is as long as said.
    let code = unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, 4 * count) };
    assert_eq!(code, 0);
    words
}

fn add_arguments<'a>(out: &'a mut u64, value: &'a mut u32, byte: &'a mut u8) -> [*mut c_void; 3] {
    [
        (&raw mut *out).cast(),
        (&raw mut *value).cast(),
        (&raw mut *byte).cast(),
    ]
}

#[test]
fn a_module_is_loaded_launched_and_read_back() {
    let _context = Context::new();
    let module = load(PTX);
    let (mut out, mut value, mut byte) = (alloc(64 * 4), 1000, 7);
    let add = function(module, c"add");
    assert_eq!(
        launch(
            add,
            4,
            16,
            &mut add_arguments(&mut out, &mut value, &mut byte)
        ),
        0
    );
    assert_eq!(words(out, 64), (1007..1071).collect::<Vec<u32>>());

    // The same by a parameter buffer: value at 8, byte at 12.
    let mut buffer = [0u8; 13];
    buffer[..8].copy_from_slice(&out.to_ne_bytes());
    buffer[8..12].copy_from_slice(&1u32.to_ne_bytes());
    buffer[12] = 2;
    let mut size = buffer.len();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        buffer.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut size).cast(),
        null_mut(),
    ];
    // SAFETY: the list is as CUDA describes it.
    unsafe {
        assert_eq!(
            cuLaunchKernel(add, 1, 1, 1, 2, 1, 1, 0, 0, null_mut(), extra.as_mut_ptr()),
            0
        );
        assert_eq!(words(out, 3), [3, 4, 1009]);
        let mut short = 12usize;
        extra[3] = (&raw mut short).cast();
        assert_eq!(
            cuLaunchKernel(add, 1, 1, 1, 2, 1, 1, 0, 0, null_mut(), extra.as_mut_ptr()),
            1,
            "too short"
        );
        assert_eq!(cuMemFree_v2(out), 0);
        assert_eq!(cuMemFree_v2(out), 1, "a second time");
        assert_eq!(cuModuleUnload(module), 0);
        assert_eq!(cuModuleUnload(module), 400);
    }
    assert_eq!(launch(add, 1, 1, &mut []), 400, "its module is gone");
}

#[test]
fn variables_are_found_and_shared_by_kernels() {
    let _context = Context::new();
    let module = load(PTX);
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: valid pointers and C strings.
    unsafe {
        assert_eq!(
            cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"total".as_ptr()),
            0
        );
        assert_eq!((bytes, words(address, 1)), (4, vec![5]));
        assert_eq!(launch(function(module, c"bump"), 3, 32, &mut []), 0);
        assert_eq!(words(address, 1), [5 + 96]);
        assert_eq!(
            cuModuleGetGlobal_v2(&raw mut address, null_mut(), module, c"table".as_ptr()),
            0
        );
        assert_eq!(words(address, 4), [1, 2, 0, 0]);
        assert_eq!(
            cuModuleGetGlobal_v2(
                &raw mut address,
                &raw mut bytes,
                module,
                c"nothing".as_ptr()
            ),
            500
        );
        let mut missing = 0;
        assert_eq!(
            cuModuleGetFunction(&raw mut missing, module, c"nothing".as_ptr()),
            500
        );
        assert_eq!(
            cuModuleGetFunction(&raw mut missing, 12345, c"add".as_ptr()),
            400
        );
    }
}

/// A library of any text.
fn library_of(text: &str) -> usize {
    let text = CString::new(text).expect("no NUL");
    let mut library = 0;
    // SAFETY: valid pointers and a C string.
    let loaded = unsafe {
        cuLibraryLoadData(
            &raw mut library,
            text.as_ptr().cast(),
            null(),
            null_mut(),
            0,
            null(),
            null_mut(),
            0,
        )
    };
    assert_eq!(loaded, 0);
    library
}

/// As NVIDIA's driver, which loads lazily: any text becomes a library, and what is wrong with it is
/// told to who asks for a kernel.
#[test]
fn a_library_of_a_bad_text_is_refused_when_its_kernels_are_wanted() {
    let _context = Context::new();
    let bad_list = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k( { ret; }\n";
    for (text, code) in [("?", 200), (bad_list, 218)] {
        let library = library_of(text);
        let (mut kernel, mut module, mut count) = (0, 0, 7);
        // SAFETY: valid pointers and C strings throughout.
        unsafe {
            let asked = cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr());
            assert_eq!(asked, code, "{text:?}");
            assert_eq!(cuLibraryGetModule(&raw mut module, library), code);
            assert_eq!(cuLibraryGetKernelCount(&raw mut count, library), 0);
            assert_eq!(cuLibraryUnload(library), 0);
        }
    }
}

#[test]
fn libraries_hand_out_kernels_that_pass_for_functions() {
    let _context = Context::new();
    let library = library_of(PTX);
    let (mut kernel, mut count) = (0, 0);
    // SAFETY: valid pointers and C strings throughout.
    unsafe {
        assert_eq!(cuLibraryGetKernelCount(&raw mut count, library), 0);
        assert_eq!(count, 4);
        let mut all = [0; 8];
        assert_eq!(cuLibraryEnumerateKernels(all.as_mut_ptr(), 8, library), 0);
        assert_eq!(all.iter().filter(|&&handle| handle != 0).count(), 4);
        assert_eq!(
            cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()),
            0
        );
        assert!(all.contains(&kernel), "a kernel has one handle");
        let mut name: *const c_char = null();
        assert_eq!(cuKernelGetName(&raw mut name, kernel), 0);
        assert_eq!(CStr::from_ptr(name), c"add");
        let mut of = 0;
        assert_eq!((cuKernelGetLibrary(&raw mut of, kernel), of), (0, library));
        let (mut offset, mut size) = (0, 0);
        assert_eq!(
            cuKernelGetParamInfo(kernel, 1, &raw mut offset, &raw mut size),
            0
        );
        assert_eq!((offset, size), (8, 4));
        assert_eq!(
            cuKernelGetParamInfo(kernel, 3, &raw mut offset, &raw mut size),
            1
        );

        let (mut out, mut value, mut byte) = (alloc(8), 1, 1);
        assert_eq!(
            launch(
                kernel,
                1,
                2,
                &mut add_arguments(&mut out, &mut value, &mut byte)
            ),
            0
        );
        assert_eq!(words(out, 2), [2, 3]);
        let mut function = 0;
        assert_eq!(cuKernelGetFunction(&raw mut function, kernel), 0);
        assert_ne!(function, kernel);
        let (mut module, mut same) = (0, 0);
        assert_eq!(cuLibraryGetModule(&raw mut module, library), 0);
        assert_eq!(
            (cuFuncGetModule(&raw mut same, function), same),
            (0, module)
        );
        assert_eq!(cuModuleUnload(module), 800, "a library's module is its own");
        let (mut address, mut bytes) = (0, 0);
        assert_eq!(
            cuLibraryGetGlobal(&raw mut address, &raw mut bytes, library, c"total".as_ptr()),
            0
        );
        assert_eq!(words(address, 1), [5]);
        assert_eq!(
            cuLibraryGetManaged(&raw mut address, null_mut(), library, c"total".as_ptr()),
            500,
            "not one of the host's"
        );
        assert_eq!(
            cuLibraryGetKernel(&raw mut kernel, library, c"nothing".as_ptr()),
            500
        );
        assert_eq!(cuLibraryUnload(library), 0);
        assert_eq!(
            cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()),
            400
        );
    }
}

#[test]
fn a_library_has_one_module_per_context() {
    let first = Context::new();
    let text = CString::new(PTX).expect("no NUL");
    let (mut library, mut bump, mut one, mut two) = (0, 0, 0, 0);
    // SAFETY: valid pointers and C strings throughout.
    unsafe {
        let image = text.as_ptr().cast();
        assert_eq!(
            cuLibraryLoadData(
                &raw mut library,
                image,
                null(),
                null_mut(),
                0,
                null(),
                null_mut(),
                0
            ),
            0
        );
        assert_eq!(
            cuLibraryGetKernel(&raw mut bump, library, c"bump".as_ptr()),
            0
        );
        assert_eq!(launch(bump, 1, 1, &mut []), 0);
        assert_eq!(
            cuLibraryGetGlobal(&raw mut one, null_mut(), library, c"total".as_ptr()),
            0
        );
        let second = Context::new();
        assert_eq!(launch(bump, 10, 1, &mut []), 0);
        assert_eq!(
            cuLibraryGetGlobal(&raw mut two, null_mut(), library, c"total".as_ptr()),
            0
        );
        assert_ne!(one, two);
        assert_eq!((words(one, 1), words(two, 1)), (vec![6], vec![15]));
        drop(second);
        assert_eq!(cuCtxSetCurrent(first.handle), 0);
        assert_eq!(words(one, 1), [6]);
        assert_eq!(cuLibraryUnload(library), 0);
    }
}

#[test]
fn images_that_cannot_run_are_refused_with_words() {
    let _context = Context::new();
    let mut log = [0u8; 200];
    let mut attempt = |text: &str| {
        let text = CString::new(text).expect("no NUL");
        let mut module = 0;
        let options: [c_int; 2] = [5, 6];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
        // SAFETY: as many values as options, the buffer as long as said.
        let code = unsafe {
            cuModuleLoadDataEx(
                &raw mut module,
                text.as_ptr().cast(),
                2,
                options.as_ptr(),
                values.as_mut_ptr(),
            )
        };
        let length = values[1] as usize;
        (code, String::from_utf8_lossy(&log[..length]).into_owned())
    };
    assert_eq!(
        attempt(&PTX.replace("8.0", "9.9")),
        (
            222,
            "`.version 9.9` is newer than `9.0`, the newest that this driver takes".into()
        )
    );
    let (code, words) = attempt(&PTX.replace("ret;", "ret; }"));
    assert_eq!(code, 218);
    assert!(!words.is_empty());
    assert_eq!(attempt("garbage").0, 200);
    assert_eq!(attempt(PTX), (0, String::new()));
    let mut module = 0;
    // SAFETY: a null image is refused; a path that does not exist too.
    unsafe {
        assert_eq!(cuModuleLoadData(&raw mut module, null()), 1);
        assert_eq!(
            cuModuleLoad(&raw mut module, c"/nowhere/at.all".as_ptr()),
            301
        );
    }
}

#[test]
fn a_trap_sticks_to_its_context_only() {
    let good = Context::new();
    let bad = Context::new();
    let stops = function(load(PTX), c"stops");
    assert_eq!(launch(stops, 1, 1, &mut []), 0, "a launch does not tell");
    let mut address = 0;
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(cuCtxSynchronize(), 719);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 719);
        assert_eq!(cuCtxSynchronize(), 719, "it stays");
        assert_eq!(cuCtxSetCurrent(good.handle), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
        assert_eq!(cuCtxDestroy_v2(bad.handle), 0);
        assert_eq!(cuCtxSetCurrent(bad.handle), 709);
    }
}

#[test]
fn impossible_launches_are_refused() {
    let _context = Context::new();
    let module = load(PTX);
    let (bump, bounded, add) = (
        function(module, c"bump"),
        function(module, c"bounded"),
        function(module, c"add"),
    );
    let geometry = |function, grid: [u32; 3], block: [u32; 3], shared: u32| {
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        // SAFETY: kernels without parameters.
        unsafe {
            cuLaunchKernel(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shared,
                0,
                null_mut(),
                null_mut(),
            )
        }
    };
    assert_eq!(geometry(bump, [1, 1, 1], [1, 1, 1], 0), 0);
    assert_eq!(geometry(bump, [0, 1, 1], [1, 1, 1], 0), 1);
    assert_eq!(geometry(bump, [1, 65_536, 1], [1, 1, 1], 0), 1);
    assert_eq!(geometry(bump, [1, 1, 1], [1, 1, 65], 0), 1);
    assert_eq!(geometry(bump, [1, 1, 1], [1025, 1, 1], 0), 1);
    assert_eq!(geometry(bump, [1, 1, 1], [32, 32, 2], 0), 1);
    assert_eq!(geometry(bounded, [1, 1, 1], [64, 1, 1], 0), 0);
    assert_eq!(geometry(bounded, [1, 1, 1], [65, 1, 1], 0), 1);
    assert_eq!(geometry(bump, [1, 1, 1], [1, 1, 1], 48 << 10), 0);
    assert_eq!(geometry(bump, [1, 1, 1], [1, 1, 1], (48 << 10) + 1), 1);
    assert_eq!(geometry(add, [1, 1, 1], [1, 1, 1], 0), 1, "no parameters");
    assert_eq!(geometry(77, [1, 1, 1], [1, 1, 1], 0), 400);
    // SAFETY: valid handles and pointers.
    unsafe {
        assert_eq!(
            cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, 99, null_mut(), null_mut()),
            400,
            "no such stream"
        );
        assert_eq!(
            cuFuncSetAttribute(bounded, 8, 227 << 10),
            1,
            "with the 256 bytes of its own too much"
        );
        assert_eq!(cuFuncSetAttribute(bounded, 8, (227 << 10) - 256), 0);
        assert_eq!(
            geometry(bounded, [1, 1, 1], [1, 1, 1], (227 << 10) - 256),
            0
        );
        let mut value = 0;
        for (attribute, expected) in [
            (0, 64),
            (1, 256),
            (5, 80),
            (6, 90),
            (8, (227 << 10) - 256),
            (9, -1),
        ] {
            assert_eq!(cuFuncGetAttribute(&raw mut value, attribute, bounded), 0);
            assert_eq!(value, expected, "attribute {attribute}");
        }
        assert_eq!(cuFuncGetAttribute(&raw mut value, 99, bounded), 1);
        assert_eq!(
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut value, bump, 256, 0),
            0
        );
        assert_eq!(value, 8);
        let too_many = 8 * 4 + 1;
        assert_eq!(
            cuLaunchCooperativeKernel(bump, too_many, 1, 1, 256, 1, 1, 0, 0, null_mut()),
            720
        );
        assert_eq!(
            cuLaunchCooperativeKernel(bump, too_many - 1, 1, 1, 256, 1, 1, 0, 0, null_mut()),
            0
        );
    }
}

#[test]
fn a_link_of_texts_gives_an_image() {
    let _context = Context::new();
    let (mut link, mut image, mut bytes, mut module) = (0, null(), 0, 0);
    let mut log = [0u8; 100];
    let options: [c_int; 2] = [5, 6];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    let add = |link, text: &str| {
        // SAFETY: the text is as long as said; no options.
        unsafe {
            cuLinkAddData_v2(
                link,
                1,
                text.as_ptr().cast(),
                text.len(),
                null(),
                0,
                null(),
                null_mut(),
            )
        }
    };
    // SAFETY: valid pointers; the log lives as long as the link.
    unsafe {
        assert_eq!(
            cuLinkCreate_v2(2, options.as_ptr(), values.as_mut_ptr(), &raw mut link),
            0
        );
        assert_eq!(
            cuLinkComplete(link, &raw mut image, &raw mut bytes),
            1,
            "nothing to link"
        );
        assert_eq!(add(link, PTX), 0);
        assert_eq!(cuLinkComplete(link, &raw mut image, &raw mut bytes), 0);
        assert_eq!(bytes, PTX.len() + 1);
        assert_eq!(cuModuleLoadData(&raw mut module, image), 0);
        assert_eq!(
            cuLinkAddFile_v2(link, 1, c"/nowhere/at.all".as_ptr(), 0, null(), null_mut()),
            301
        );
        // Again with another text, of which the first does not know.
        let more = ".version 8.3\n.target sm_90\n.address_size 64\n.visible .func more() { ret; } .visible .entry other() { ret; }";
        assert_eq!(add(link, more), 0);
        assert_eq!(cuLinkDestroy(link), 0);
        let mut linked = 0;
        let parts = [
            ".version 8.3\n.target sm_90\n.address_size 64\n.extern .func more(); .visible .entry first() { call more; ret; }",
            more,
        ];
        assert_eq!(
            cuLinkCreate_v2(2, options.as_ptr(), values.as_mut_ptr(), &raw mut link),
            0
        );
        for part in parts {
            assert_eq!(add(link, part), 0);
        }
        assert_eq!(cuLinkComplete(link, &raw mut image, &raw mut bytes), 0);
        assert_eq!(cuModuleLoadData(&raw mut linked, image), 0);
        let mut function = 0;
        for name in [c"first", c"other"] {
            assert_eq!(
                cuModuleGetFunction(&raw mut function, linked, name.as_ptr()),
                0
            );
        }
        assert_eq!(add(link, more), 0);
        assert_eq!(cuLinkDestroy(link), 0);
        values[1] = log.len() as *mut c_void;
        assert_eq!(
            cuLinkCreate_v2(2, options.as_ptr(), values.as_mut_ptr(), &raw mut link),
            0
        );
        assert_eq!((add(link, more), add(link, more)), (0, 0));
        assert_eq!(cuLinkComplete(link, &raw mut image, &raw mut bytes), 218);
        assert_eq!(
            str::from_utf8(&log[..values[1] as usize]),
            Ok("`more` is defined by module 0 and by module 1")
        );
        assert_eq!(cuLinkDestroy(link), 0);
        assert_eq!(cuLinkDestroy(link), 400);
        assert_eq!(add(link, PTX), 400);
    }
    function(module, c"add");
}

/// `CUlaunchConfig` and its attribute as C sees them.
#[repr(C)]
struct Config {
    sizes: [u32; 7],
    stream: Handle,
    attributes: *const [u32; 18],
    n_attributes: u32,
}

#[test]
fn launch_ex_reads_its_attributes() {
    let _context = Context::new();
    let module = load(PTX);
    let bump = function(module, c"bump");
    let launch = |grid: u32, attributes: &[[u32; 18]]| {
        let config = Config {
            sizes: [grid, 1, 1, 1, 1, 1, 0],
            stream: 0,
            attributes: attributes.as_ptr(),
            n_attributes: attributes.len() as u32,
        };
        // SAFETY: laid out as `CUlaunchConfig`.
        unsafe { cuLaunchKernelEx((&raw const config).cast(), bump, null_mut(), null_mut()) }
    };
    let attribute = |id: u32, value: [u32; 3]| {
        let mut attribute = [0; 18];
        attribute[0] = id;
        attribute[2..5].copy_from_slice(&value);
        attribute
    };
    assert_eq!(launch(4, &[]), 0);
    assert_eq!(launch(4, &[attribute(4, [2, 1, 1])]), 0);
    assert_eq!(
        launch(5, &[attribute(4, [2, 1, 1])]),
        912,
        "the cluster does not divide the grid"
    );
    assert_eq!(launch(1000, &[attribute(2, [1, 0, 0])]), 720, "cooperative");
    // SAFETY: a null configuration is refused.
    let code = unsafe { cuLaunchKernelEx(null(), bump, null_mut(), null_mut()) };
    assert_eq!(code, 1);
    let mut address = 0;
    // SAFETY: valid pointers and a C string.
    unsafe { cuModuleGetGlobal_v2(&raw mut address, null_mut(), module, c"total".as_ptr()) };
    assert_eq!(words(address, 1), [5 + 8]);
}

#[test]
fn fills_and_copies_stay_inside_allocations() {
    let _context = Context::new();
    let memory = alloc(64);
    // SAFETY: valid device ranges, or refused.
    unsafe {
        assert_eq!(cuMemsetD32_v2(memory, 0x0102_0304, 16), 0);
        assert_eq!(cuMemsetD16_v2(memory + 4, 0xabcd, 2), 0);
        assert_eq!(cuMemsetD8_v2(memory + 8, 0xee, 3), 0);
        assert_eq!(
            words(memory, 4),
            [0x0102_0304, 0xabcd_abcd, 0x01ee_eeee, 0x0102_0304]
        );
        assert_eq!(cuMemsetD32_v2(memory, 0, 17), 1);
        assert_eq!(cuMemsetD32_v2(memory + 2, 0, 1), 1, "not aligned");
        assert_eq!(cuMemcpyDtoD_v2(memory + 32, memory, 16), 0);
        assert_eq!(words(memory + 32, 2), [0x0102_0304, 0xabcd_abcd]);
        let source = [7u32, 8];
        assert_eq!(cuMemcpyHtoD_v2(memory + 60, source.as_ptr().cast(), 8), 1);
        assert_eq!(cuMemcpyHtoD_v2(memory + 56, source.as_ptr().cast(), 8), 0);
        assert_eq!(words(memory + 56, 2), [7, 8]);
        let mut sink = [0u32; 2];
        assert_eq!(cuMemcpy(sink.as_mut_ptr() as u64, memory + 56, 8), 0);
        assert_eq!(sink, [7, 8]);
        assert_eq!(cuMemsetD2D8_v2(memory, 16, 0x11, 2, 3), 0);
        assert_eq!(words(memory + 16, 2), [0x0102_1111, 0x0102_0304]);
        let (mut base, mut bytes) = (0, 0);
        assert_eq!(
            cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, memory + 63),
            0
        );
        assert_eq!((base, bytes), (memory, 64));
        assert_eq!(
            cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, memory + 64),
            500
        );
        assert_eq!(cuMemAlloc_v2(&raw mut base, 0), 1);
        assert_eq!(cuMemAlloc_v2(&raw mut base, 1 << 45), 2);
    }
}

#[test]
fn host_memory_has_one_address_for_both_sides() {
    let _context = Context::new();
    let module = load(PTX);
    let add = function(module, c"add");
    let mut pointer = null_mut();
    let mut address = 0;
    // SAFETY: valid pointers; host memory as allocated.
    unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut pointer, 100, 2), 0);
        assert_eq!(
            cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0),
            0
        );
        let (mut value, mut byte) = (40, 2);
        assert_eq!(
            launch(
                add,
                1,
                1,
                &mut add_arguments(&mut address, &mut value, &mut byte)
            ),
            0
        );
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(pointer.cast::<u32>().read(), 42);
        let mut kind = 0u32;
        assert_eq!(cuPointerGetAttribute((&raw mut kind).cast(), 2, address), 0);
        assert_eq!(kind, 1);
        let device = alloc(16);
        assert_eq!(
            cuPointerGetAttribute((&raw mut kind).cast(), 2, device + 3),
            0
        );
        assert_eq!(kind, 2);
        let mut own = vec![0u32; 64];
        let start = own.as_mut_ptr().cast::<c_void>();
        assert_eq!(
            cuPointerGetAttribute((&raw mut kind).cast(), 2, start as u64),
            1
        );
        assert_eq!(cuMemHostRegister_v2(start, 256, 0), 0);
        assert_eq!(cuMemHostRegister_v2(start, 256, 0), 712);
        let mut out = start as u64;
        value = 50;
        assert_eq!(
            launch(
                add,
                1,
                64,
                &mut add_arguments(&mut out, &mut value, &mut byte)
            ),
            0
        );
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(own, (52..116).collect::<Vec<u32>>());
        assert_eq!(cuMemHostUnregister(start), 0);
        assert_eq!(cuMemHostUnregister(start), 713);
        assert_eq!(cuMemFreeHost(pointer), 0);
        assert_eq!(cuMemFreeHost(pointer), 1);
        assert_eq!(cuMemAllocManaged(&raw mut address, 8, 1), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut kind).cast(), 8, address), 0);
        assert_eq!(kind, 1);
        assert_eq!(cuMemFree_v2(address), 0);
    }
}

static ORDER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn slowly(value: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(30));
    // SAFETY: the test's own integer.
    unsafe {
        value
            .cast::<u32>()
            .write(ORDER.fetch_add(1, Ordering::AcqRel) + 1)
    };
}

#[test]
fn host_functions_hold_their_stream_and_events_tell() {
    let _context = Context::new();
    let (mut stream, mut start, mut stop) = (0, 0, 0);
    let mut seen = 0u32;
    let memory = alloc(4);
    let mut source = null_mut();
    // SAFETY: valid pointers and handles.
    unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut source, 4, 0), 0);
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        assert_eq!(cuEventCreate(&raw mut start, 0), 0);
        assert_eq!(cuEventCreate(&raw mut stop, 0), 0);
        let mut ms = 0.0;
        assert_eq!(
            cuEventElapsedTime_v2(&raw mut ms, start, stop),
            400,
            "never recorded"
        );
        assert_eq!(cuEventRecord(start, stream), 0);
        assert_eq!(
            cuLaunchHostFunc(stream, Some(slowly), (&raw mut seen).cast()),
            0
        );
        assert_eq!(cuMemsetD32Async(memory, 9, 1, stream), 0);
        assert_eq!(cuEventRecord(stop, stream), 0);
        assert_eq!(cuStreamQuery(stream), 600, "the host function sleeps");
        assert_eq!(cuEventQuery(start), 0);
        assert_eq!(cuEventQuery(stop), 600);
        assert_eq!(cuEventElapsedTime_v2(&raw mut ms, start, stop), 600);
        // Another stream waits for it through the event.
        let mut other = 0;
        assert_eq!(cuStreamCreateWithPriority(&raw mut other, 1, -100), 0);
        let mut priority = 0;
        assert_eq!(
            (cuStreamGetPriority(other, &raw mut priority), priority),
            (0, -5)
        );
        assert_eq!(cuStreamWaitEvent(other, stop, 0), 0);
        assert_eq!(cuMemcpyDtoHAsync_v2(source, memory, 4, other), 0);
        assert_eq!(cuStreamSynchronize(other), 0);
        assert_eq!(source.cast::<u32>().read(), 9);
        assert_eq!(seen, 1);
        assert_eq!(cuEventSynchronize(stop), 0);
        assert_eq!(cuEventElapsedTime_v2(&raw mut ms, start, stop), 0);
        assert!(ms >= 30.0, "{ms}");
        assert_eq!(cuStreamWaitValue32_v2(stream, memory, 10, 1), 0);
        assert_eq!(cuStreamQuery(stream), 600);
        assert_eq!(cuStreamWriteValue32_v2(other, memory, 10, 0), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        let mut status = 7;
        assert_eq!(cuStreamIsCapturing(stream, &raw mut status), 0);
        assert_eq!(status, 0);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
        assert_eq!(cuStreamDestroy_v2(stream), 400);
        assert_eq!(cuStreamSynchronize(stream), 400);
        assert_eq!(cuEventDestroy_v2(stop), 0);
        assert_eq!(cuEventRecord(stop, 0), 400);
    }
}

#[test]
fn contexts_form_a_stack_per_thread() {
    let first = Context::new();
    let second = Context::new();
    let mut handle = 0;
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(
            (cuCtxGetCurrent(&raw mut handle), handle),
            (0, second.handle)
        );
        assert_eq!(
            (cuCtxPopCurrent_v2(&raw mut handle), handle),
            (0, second.handle)
        );
        assert_eq!(
            (cuCtxGetCurrent(&raw mut handle), handle),
            (0, first.handle)
        );
        assert_eq!(cuCtxPushCurrent_v2(second.handle), 0);
        std::thread::spawn(|| {
            let (mut handle, mut address) = (1, 0);
            assert_eq!((cuCtxGetCurrent(&raw mut handle), handle), (0, 0));
            assert_eq!(
                cuMemAlloc_v2(&raw mut address, 4),
                201,
                "no context on this thread"
            );
            assert_eq!(cuCtxPopCurrent_v2(&raw mut handle), 201);
        })
        .join()
        .expect("thread");
        let mut value = 0;
        assert_eq!(cuCtxGetLimit(&raw mut value, 1), 0);
        assert_eq!(value, 1 << 20);
        assert_eq!(cuCtxSetLimit(1, 4096), 0);
        assert_eq!((cuCtxGetLimit(&raw mut value, 1), value), (0, 4096));
        assert_eq!(cuCtxGetLimit(&raw mut value, 99), 215);
    }
}

#[test]
fn the_primary_context_is_counted() {
    let _sharing = Sharing::new();
    let mut context = 0;
    let mut again = 0;
    let (mut flags, mut active) = (0, 0);
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut again, 0), 0);
        assert_eq!(context, again);
        assert_eq!(
            cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active),
            0
        );
        assert_eq!(active, 1);
        assert_eq!(cuCtxSetCurrent(context), 0);
        let memory = alloc(4);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
        assert_eq!(cuMemsetD8_v2(memory, 0, 4), 0, "still retained");
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
        assert_eq!(cuMemsetD8_v2(memory, 0, 4), 709);
        assert_eq!(
            cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active),
            0
        );
        assert_eq!(active, 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut again, 7), 101);
    }
}

#[test]
fn entry_points_are_found_by_name() {
    let mut address = null_mut();
    let mut status = -1;
    // SAFETY: valid pointers and C strings.
    unsafe {
        let name = c"cuMemAlloc".as_ptr();
        assert_eq!(
            cuGetProcAddress_v2(name, &raw mut address, 13_000, 0, &raw mut status),
            0
        );
        assert_eq!(
            (address as usize, status),
            (cuMemAlloc_v2 as *const () as usize, 0)
        );
        let name = c"cuLaunchKernel".as_ptr();
        assert_eq!(
            cuGetProcAddress_v2(name, &raw mut address, 13_000, 2, &raw mut status),
            0
        );
        assert_eq!(address as usize, cuLaunchKernel_ptsz as *const () as usize);
        let name = c"cuNothing".as_ptr();
        assert_eq!(
            cuGetProcAddress_v2(name, &raw mut address, 13_000, 0, &raw mut status),
            0
        );
        assert_eq!((address, status), (null_mut(), 1));
        assert_eq!(cuGetProcAddress(name, &raw mut address, 13_000, 0), 500);
        assert_eq!(
            cuGetProcAddress_v2(null(), &raw mut address, 13_000, 0, &raw mut status),
            1
        );
        let mut table = std::ptr::without_provenance(1);
        assert_eq!(cuGetExportTable(&raw mut table, null()), 500);
        assert!(table.is_null());
        let mut text: *const c_char = null();
        assert_eq!(cuGetErrorName(700, &raw mut text), 0);
        assert_eq!(CStr::from_ptr(text), c"CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(cuGetErrorString(1, &raw mut text), 0);
        assert_eq!(CStr::from_ptr(text), c"invalid argument");
        assert_eq!(cuGetErrorName(12_345, &raw mut text), 1);
        assert!(text.is_null());
        let mut mode = 2;
        assert_eq!(
            (cuThreadExchangeStreamCaptureMode(&raw mut mode), mode),
            (0, 0)
        );
        assert_eq!(
            (cuThreadExchangeStreamCaptureMode(&raw mut mode), mode),
            (0, 2)
        );
        mode = 3;
        assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), 1);
    }
}

#[test]
fn the_device_tells_who_it_is() {
    let mut name = [0 as c_char; 8];
    let mut value = 0;
    let mut uuid = [0; 16];
    let mut bytes = 0;
    // SAFETY: valid pointers, buffers as long as said.
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 8, 0), 0);
        assert_eq!(
            CStr::from_ptr(name.as_ptr()),
            c"warpbpf",
            "cut to the buffer"
        );
        assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 0, 0), 1);
        assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 8, 1), 101);
        for (attribute, expected) in [
            (10, 32),
            (16, 4),
            (75, 9),
            (76, 0),
            (97, 227 << 10),
            (20, 0),
        ] {
            assert_eq!(cuDeviceGetAttribute(&raw mut value, attribute, 0), 0);
            assert_eq!(value, expected, "attribute {attribute}");
        }
        assert_eq!(cuDeviceGetAttribute(&raw mut value, 5000, 0), 1);
        assert_eq!(cuDeviceGetUuid_v2(&raw mut uuid, 0), 0);
        assert_eq!(&uuid, b"warpbpf-soft-gpu");
        assert_eq!(cuDeviceTotalMem_v2(&raw mut bytes, 0), 0);
        assert_eq!(bytes, 2 << 30);
        assert_eq!(cuDeviceGet(&raw mut value, 1), 101);
        assert_eq!(
            cuDeviceGetByPCIBusId(&raw mut value, c"0000:00:00.0".as_ptr()),
            0
        );
        assert_eq!(
            cuDeviceGetByPCIBusId(&raw mut value, c"0000:17:00.0".as_ptr()),
            1
        );
    }
}

unsafe extern "C" fn counts(calls: *mut c_void) {
    // SAFETY: the test gives a counter that outlives the object.
    unsafe { *calls.cast::<u32>() += 1 };
}

#[test]
fn objects_of_the_program_live_as_long_as_somebody_holds_them() {
    let _context = Context::new();
    let mut calls = 0u32;
    let data: *mut c_void = (&raw mut calls).cast();
    let (mut object, mut graph, mut copy, mut exec) = (0, 0, 0, 0);
    // SAFETY: valid pointers; the counter lives until the end.
    unsafe {
        let told = || std::ptr::read_volatile(data.cast::<u32>());
        assert_eq!(cuUserObjectCreate(&raw mut object, data, None, 1, 1), 1);
        assert_eq!(
            cuUserObjectCreate(&raw mut object, data, Some(counts), 0, 1),
            1
        );
        assert_eq!(
            cuUserObjectCreate(&raw mut object, data, Some(counts), 2, 0),
            1
        );
        assert_eq!(
            cuUserObjectCreate(&raw mut object, data, Some(counts), 2, 1),
            0
        );
        assert_eq!(cuUserObjectRetain(object, 1), 0);
        assert_eq!(cuUserObjectRelease(object, 4), 1, "more than there are");
        assert_eq!(cuUserObjectRelease(object, 2), 0);
        assert_eq!(cuGraphCreate(&raw mut graph, 0), 0);
        // The last one of the program's becomes the graph's.
        assert_eq!(cuGraphRetainUserObject(graph, object, 1, 1), 0);
        assert_eq!(cuGraphReleaseUserObject(graph, object, 2), 1);
        assert_eq!(cuGraphClone(&raw mut copy, graph), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(told(), 0);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut exec, copy, 0), 0);
        assert_eq!(cuGraphReleaseUserObject(copy, object, 1), 0);
        assert_eq!(cuGraphDestroy(copy), 0);
        assert_eq!(told(), 0, "the executable graph holds it");
        assert_eq!(cuGraphExecDestroy(exec), 0);
        assert_eq!(told(), 1);
        assert_eq!(cuUserObjectRetain(object, 1), 1);
    }
}

#[test]
fn streams_have_attributes_and_pools_memory() {
    let _context = Context::new();
    let (mut one, mut two, mut pool, mut at) = (0, 0, 0, 0u64);
    let mut value = [0u64; 8];
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(cuStreamCreateWithPriority(&raw mut one, 0, -1), 0);
        assert_eq!(cuStreamCreate(&raw mut two, 0), 0);
        assert_eq!(cuStreamSetAttribute(one, 3, &[2, 0, 0, 0, 0, 0, 0, 0]), 0);
        assert_eq!(cuStreamGetAttribute(one, 3, &raw mut value), 0);
        assert_eq!(value[0], 2);
        assert_eq!(cuStreamGetAttribute(one, 8, &raw mut value), 0);
        assert_eq!(value[0] as u32 as i32, -1, "its priority");
        assert_eq!(cuStreamGetAttribute(two, 3, &raw mut value), 0);
        assert_eq!(value[0], 0);
        assert_eq!(cuStreamCopyAttributes(two, one), 0);
        assert_eq!(cuStreamGetAttribute(two, 3, &raw mut value), 0);
        assert_eq!(value[0], 2);
        assert_eq!(cuStreamGetAttribute(one, 77, &raw mut value), 1);
        assert_eq!(cuStreamSetAttribute(one, 3, null()), 1);
        let properties: [c_int; 22] =
            std::array::from_fn(|at| [1, 0, 1, 0].get(at).copied().unwrap_or(0));
        assert_eq!(
            cuMemPoolCreate(&raw mut pool, properties.as_ptr().cast()),
            0
        );
        assert_eq!(cuMemAllocFromPoolAsync(&raw mut at, 64, pool, one), 0);
        let mut access = 0;
        assert_eq!(cuMemPoolGetAccess(&raw mut access, pool, &[1, 0]), 0);
        assert_eq!(access, 3);
        // Two copies in a batch, of what the host has.
        let (mut host, back) = ([7u32, 8], [0u32; 2]);
        let (to, from) = (
            [at, at + 4],
            [host.as_ptr() as u64, host.as_ptr() as u64 + 4],
        );
        let attributes = [0u64; 8];
        let batch = |to: &[u64], from: &[u64], stream| {
            cuMemcpyBatchAsync_v2(
                to.as_ptr(),
                from.as_ptr(),
                [4usize, 4].as_ptr(),
                2,
                attributes.as_ptr().cast(),
                [0usize].as_ptr(),
                1,
                stream,
            )
        };
        assert_eq!(batch(&to, &from, 0), 1, "not in the null stream");
        assert_eq!(batch(&to, &from, one), 0);
        host = [0, 0];
        let there = [back.as_ptr() as u64, back.as_ptr() as u64 + 4];
        assert_eq!(batch(&there, &to, one), 0);
        assert_eq!(cuStreamSynchronize(one), 0);
        assert_eq!((std::ptr::read_volatile(&back), host), ([7, 8], [0, 0]));
        assert_eq!(cuMemFree_v2(at), 0);
        assert_eq!((cuMemPoolDestroy(pool), cuMemPoolDestroy(pool)), (0, 1));
        let mut managed = 0;
        assert_eq!(cuMemAllocManaged(&raw mut managed, 64, 1), 0);
        let mut told: c_int = 5;
        let place: *mut c_void = (&raw mut told).cast();
        assert_eq!(cuMemRangeGetAttribute(place, 4, 1, managed, 64), 0);
        assert_eq!(told, 0);
        assert_eq!(cuMemRangeGetAttribute(place, 4, 2, managed, 64), 0);
        assert_eq!(told, -2);
        assert_eq!(cuMemRangeGetAttribute(place, 4, 1, 8, 64), 1);
        // What is not there says so.
        assert_eq!(warpbpf_softcuda::driver::missing::cuIpcGetMemHandle(), 801);
    }
}
