//! Kernels of which there is only machine code: what gets calls, and why others do not. Programs
//! are compiled by clang, kernels and functions assembled by `ptxas`; nothing runs.

use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpbpf_driver::DeviceInfo;
use warpbpf_sanitizer::sys::{CallbackFunc, Table};
use warpbpf_session::backends::without_ptx;
use warpbpf_session::{
    Arch, Assembled, CompiledFrom, ImageInfo, LoadError, Means, Method, Options, Prepared,
    Sanitizer, Session, inspect, inspect_compiled, kernel_names, machine_code,
};

mod refused;

const KERNELS: &str = "
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.const .align 4 .b32 numbers[2] = {1, 2};
.global .align 1 .b8 $str[6] = {104, 101, 108, 108, 111, 0};
.visible .entry prints()
{
	.reg .b64 %rd<3>;
	mov.u64 %rd1, $str;
	cvta.global.u64 %rd2, %rd1;
	{
	.param .b64 a;
	.param .b64 b;
	.param .b32 r;
	st.param.b64 [a], %rd2;
	st.param.b64 [b], 0;
	call.uni (r), vprintf, (a, b);
	}
	ret;
}
.visible .entry plain(.param .u64 p, .param .u32 n)
{
	.reg .pred %p1;
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 exit;
	st.global.u32 [%rd1], %r2;
	ret;
}
.visible .entry constant(.param .u64 p)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [p];
	ld.const.u32 %r2, [numbers+4];
	st.global.u32 [%rd1], %r2;
	ret;
}
";

const PROGRAMS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 16);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");
static __always_inline int count(struct wbpf_kernel_ctx *ctx, __u32 what) {
    __u32 key = (__u32)ctx->kernel_id * 4 + what;
    __u64 *n = bpf_map_lookup_elem(&counts, &key);
    if (n)
        *n += 1;
    return 0;
}
PROGRAMS
char LICENSE[] SEC("license") = "GPL";
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scratch(end: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("warpbpf-machine-{}-{number}.{end}", std::process::id());
    std::env::temp_dir().join(name)
}

fn done(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{what}: {error}; run `cargo xtask setup`"));
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn ptxas(text: &str, arch: Arch, options: &[&str]) -> Result<Vec<u8>, String> {
    ptxas_for(text, arch.number(), options)
}

fn ptxas_for(text: &str, sm: u32, options: &[&str]) -> Result<Vec<u8>, String> {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| root().join(".toolchain/cuda/nvidia/cu13"));
    let (source, cubin) = (scratch("ptx"), scratch("cubin"));
    std::fs::write(&source, text).unwrap();
    let mut ptxas = Command::new(home.join("bin/ptxas"));
    ptxas
        .arg(format!("-arch=sm_{sm}"))
        .args(options)
        .arg("-o")
        .args([&cubin, &source]);
    let assembled = done(&mut ptxas, "ptxas");
    let bytes = std::fs::read(&cubin);
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&cubin));
    assembled.map(|()| bytes.unwrap())
}

fn object(programs: &str) -> Vec<u8> {
    let source = scratch("bpf.c");
    std::fs::write(&source, PROGRAMS.replace("PROGRAMS", programs)).unwrap();
    let bytes = compiled(&source);
    let _ = std::fs::remove_file(&source);
    bytes
}

fn compiled(source: &Path) -> Vec<u8> {
    let object = scratch("bpf.o");
    let chosen = std::env::var("WARPBPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let mut clang = Command::new(chosen);
    clang
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .arg(source)
        .arg("-o")
        .arg(&object);
    done(&mut clang, "clang").unwrap();
    let bytes = std::fs::read(&object).unwrap();
    let _ = std::fs::remove_file(&object);
    bytes
}

/// Programs, one for each section and the key that it counts in.
fn programs(sections: &[(&str, u32)]) -> Vec<u8> {
    let all = sections.iter().enumerate().map(|(number, (section, key))| {
        format!("SEC(\"{section}\") int p{number}(struct wbpf_kernel_ctx *ctx) {{ return count(ctx, {key}); }}\n")
    });
    object(&all.collect::<String>())
}

fn session(object: &[u8], assembled: Option<Assembled>, arch: Arch) -> Session {
    session_by(object, assembled, arch, None)
}

fn by_functions(assembled: Option<Assembled>) -> Means {
    Means {
        assembled: assembled.map(Arc::new),
        ..Means::default()
    }
}

fn session_by(
    object: &[u8],
    assembled: Option<Assembled>,
    arch: Arch,
    sanitizer: Option<&'static Sanitizer>,
) -> Session {
    let means = Means {
        assembled: assembled.map(Arc::new),
        sanitizer,
        ..Means::default()
    };
    Session::with(object, &Options::default(), means, &device(arch)).unwrap()
}

/// One that does nothing: only the file is looked at here.
fn sanitizer() -> &'static Sanitizer {
    unsafe extern "C" fn subscribe(_: *mut *mut c_void, _: CallbackFunc, _: *mut c_void) -> u32 {
        0
    }
    unsafe extern "C" fn one(_: *mut c_void) -> u32 {
        0
    }
    unsafe extern "C" fn enable(_: u32, _: *mut c_void, _: u32, _: u32) -> u32 {
        0
    }
    unsafe extern "C" fn add(_: *const c_void, _: *mut c_void) -> u32 {
        0
    }
    unsafe extern "C" fn instructions(_: u32, _: *mut c_void, _: *const c_char) -> u32 {
        0
    }
    unsafe extern "C" fn data(_: *mut c_void, _: *const c_void) -> u32 {
        0
    }
    unsafe extern "C" fn launch(
        _: *mut c_void,
        _: *mut c_void,
        _: *mut c_void,
        _: *const c_void,
    ) -> u32 {
        0
    }
    Sanitizer::with(Table {
        subscribe,
        unsubscribe: one,
        enable_callback: enable,
        add_patches: add,
        patch_instructions: instructions,
        patch_module: one,
        set_callback_data: data,
        set_launch_callback_data: launch,
        later: true,
    })
    .unwrap()
}

/// What the tool does for Compute Sanitizer.
fn patches(object: &[u8], arch: Arch) -> Assembled {
    let mut all = Assembled::default();
    for text in session(object, None, arch).patch_texts(arch.number()) {
        let cubin = ptxas(&text, arch, &["--compile-as-tools-patch"]);
        cubin.as_ref().unwrap();
        all.add(text, cubin);
    }
    all
}

fn device(arch: Arch) -> DeviceInfo {
    DeviceInfo {
        name: String::new(),
        capability: (arch.number() / 10, arch.number() % 10),
        sms: 4,
        driver_version: 13000,
    }
}

/// What the tool does.
fn assembled(object: &[u8], arch: Arch) -> Assembled {
    let mut all = Assembled::default();
    for text in session(object, None, arch).probe_texts(arch) {
        let cubin = ptxas(&text, arch, &["--compile-as-tools-patch"]);
        all.add(text, cubin);
    }
    all
}

fn image(arch: Arch) -> ImageInfo {
    let number = arch.number();
    let text = format!(".version 8.0\n.target sm_{number}\n.address_size 64\n{KERNELS}");
    let cubin = ptxas(&text, arch, &[]).unwrap();
    let capability = (number / 10, number % 10);
    ImageInfo {
        machine_code: machine_code(&cubin, capability),
        ..inspect(&cubin, capability).unwrap()
    }
}

#[test]
fn names_alone_are_those_that_a_whole_look_finds() {
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{KERNELS}");
    let cubin = ptxas(&text, Arch::Sm90, &[]).unwrap();
    for image in [text.as_bytes(), &cubin] {
        let whole = inspect(image, (9, 0)).unwrap().kernels;
        let whole: Vec<String> = whole.into_iter().map(|kernel| kernel.mangled).collect();
        assert!(whole.len() > 1);
        assert_eq!(kernel_names(image, (9, 0)).unwrap(), whole);
    }
    let (names, whole) = (kernel_names(b"no", (9, 0)), inspect(b"no", (9, 0)));
    assert_eq!(
        names.unwrap_err().to_string(),
        whole.unwrap_err().to_string()
    );
}

fn method(prepared: &Prepared, kernel: &str) -> String {
    let mut kernels = prepared.kernels.iter();
    let kernel = kernels.find(|k| k.mangled == kernel).unwrap();
    kernel.method.to_string()
}

#[test]
fn entries_and_exits_get_calls_on_both_architectures() {
    let object = programs(&[
        ("gpu/entry/*", 0),
        ("gpu/exit/*", 1),
        ("gpu/entry.block/pl*", 2),
    ]);
    for arch in [Arch::Sm80, Arch::Sm90] {
        let session = session(&object, Some(assembled(&object, arch)), arch);
        // One for all kernels at the entry, one for `pl*` there, both, and one at the exits.
        assert_eq!(session.probe_texts(arch).len(), 4);
        let prepared = session.prepare(&image(arch));
        assert!(prepared.uses_machine_code());
        assert_eq!(method(&prepared, "plain"), "splice");
        let plain = prepared.kernels.iter().find(|k| k.mangled == "plain");
        let plain = plain.unwrap();
        assert!(plain.wanted && plain.machine_code);
        // Each program once at the entry, and at both ways out.
        assert_eq!(plain.placed, [(0, 1), (1, 2), (2, 1)]);
        // Its string is the same in the copy, and so is the driver's function.
        assert_eq!(method(&prepared, "prints"), "splice");
        assert_eq!(
            method(&prepared, "constant"),
            "refused: the image is a cubin: machine code without PTX; it reads `__constant__` variables, and would have its own ones in the copy that is loaded beside it"
        );
    }
}

/// The example's, which PyTorch's kernels get.
#[test]
fn block_times_are_for_machine_code() {
    let object = compiled(&root().join("examples/torch/blocktimes.bpf.c"));
    for arch in [Arch::Sm80, Arch::Sm90] {
        let splice = session(&object, Some(assembled(&object, arch)), arch);
        let prepared = splice.prepare(&image(arch));
        let plain = prepared.kernels.iter().find(|k| k.mangled == "plain");
        let plain = plain.unwrap();
        assert_eq!(plain.method, Method::Splice);
        // At the entry, and at both ways out.
        assert_eq!(plain.placed, [(0, 1), (1, 2)]);
        let patches = Some(patches(&object, arch));
        let sanitizer = session_by(&object, patches, arch, Some(sanitizer()));
        assert_eq!(
            method(&sanitizer.prepare(&image(arch)), "plain"),
            "sanitizer"
        );
    }
}

#[test]
fn what_cannot_be_is_told_by_its_name() {
    let arch = Arch::Sm90;
    let without = "refused: the image is a cubin: machine code without PTX";
    let entry = programs(&[("gpu/entry/*", 0)]);
    // Nobody asked for it.
    let plain = session(&entry, None, arch).prepare(&image(arch));
    assert_eq!(method(&plain, "plain"), without);
    assert!(!plain.uses_machine_code());
    // The tool has made other functions, or none.
    let other = assembled(&programs(&[("gpu/entry/*", 3)]), arch);
    let prepared = session(&entry, Some(other), arch).prepare(&image(arch));
    assert_eq!(
        method(&prepared, "plain"),
        format!(
            "{without}; no function was assembled for just these programs; let them be for the same kernels"
        )
    );
    let mut refused = Assembled::default();
    for text in session(&entry, None, arch).probe_texts(arch) {
        refused.add(text, Err("`ptxas` is not there".to_owned()));
    }
    let prepared = session(&entry, Some(refused), arch).prepare(&image(arch));
    assert_eq!(
        method(&prepared, "plain"),
        format!("{without}; `ptxas` is not there")
    );
    // Places that only PTX shows, and what only a kernel's PTX has.
    for (section, reason) in [
        (
            "gpu/barrier/*",
            "program `p0` is at places of kind `barrier`, which are found in PTX only",
        ),
        (
            "gpu/branch/*",
            "program `p0` is at places of kind `branch`, which are found in PTX only",
        ),
    ] {
        let object = programs(&[(section, 0)]);
        let session = session(&object, Some(assembled(&object, arch)), arch);
        let prepared = session.prepare(&image(arch));
        assert_eq!(method(&prepared, "plain"), format!("{without}; {reason}"));
    }
    // Nothing there could close a gate.
    let options = Options {
        gate: true,
        ..Options::default()
    };
    let means = by_functions(Some(assembled(&entry, arch)));
    let gated = Session::with(&entry, &options, means, &device(arch)).unwrap();
    assert_eq!(
        method(&gated.prepare(&image(arch)), "plain"),
        format!("{without}; programs behind a gate (`--gate`, `--slots`) are put into PTX only")
    );
    // Names of parameters are PTX's.
    let named = programs(&[("gpu/entry/*|args=n", 0)]);
    let named = session(&named, Some(Assembled::default()), arch).prepare(&image(arch));
    assert_eq!(
        method(&named, "plain"),
        format!(
            "{without}; program `p0`: parameters by name are not to be had in a kernel without PTX"
        )
    );
    // Somebody else's.
    let theirs = ImageInfo {
        untouchable: Some("it is part of a library that is left alone".to_owned()),
        ..image(arch)
    };
    let prepared = session(&entry, Some(assembled(&entry, arch)), arch).prepare(&theirs);
    assert_eq!(
        method(&prepared, "plain"),
        format!("{without}; it is part of a library that is left alone")
    );
}

/// Kernels with a store of each size of four and eight bytes and a load, and one with an atomic
/// beside them.
const ACCESSES: &str = "
.visible .entry moves(.param .u64 p)
{
	.reg .b64 %rd<3>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [p];
	ld.volatile.global.u32 %r1, [%rd1];
	st.global.u32 [%rd1+4], %r1;
	cvt.u64.u32 %rd2, %r1;
	st.global.u64 [%rd1+8], %rd2;
	ret;
}
.visible .entry adds(.param .u64 p)
{
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	st.global.u64 [%rd1+8], 7;
	red.global.add.u32 [%rd1], 1;
	ret;
}
";

#[test]
fn loads_and_stores_get_calls_where_that_is_asked_for() {
    let arch = Arch::Sm90;
    let both = |arch: Arch| {
        let number = arch.number();
        let text = format!(".version 8.0\n.target sm_{number}\n.address_size 64\n{ACCESSES}");
        let cubin = ptxas(&text, arch, &[]).unwrap();
        let capability = (number / 10, number % 10);
        ImageInfo {
            machine_code: machine_code(&cubin, capability),
            ..inspect(&cubin, capability).unwrap()
        }
    };
    let by = |sections: &[(&str, u32)], splice_memory, arch: Arch| {
        let object = programs(sections);
        let session = |assembled| {
            let options = Options {
                splice_memory,
                ..Options::default()
            };
            Session::with(&object, &options, by_functions(assembled), &device(arch)).unwrap()
        };
        let mut all = Assembled::default();
        for text in session(None).probe_texts(arch) {
            let cubin = ptxas(&text, arch, &["--compile-as-tools-patch"]);
            all.add(text, cubin);
        }
        session(Some(all)).prepare(&both(arch))
    };
    let section = "gpu/mem/*|space=global,kind=load+store";
    let stores = "gpu/mem/*|space=global,kind=store,size=8";
    let prepared = by(&[(section, 0), (stores, 1)], true, arch);
    assert_eq!(method(&prepared, "moves"), "splice");
    let moves = prepared.kernels.iter().find(|k| k.mangled == "moves");
    assert_eq!(moves.unwrap().placed, [(0, 3), (1, 1)]);
    let without = "refused: the image is a cubin: machine code without PTX";
    let refused = |why: &str| format!("{without}; {why}");
    assert_eq!(
        method(&prepared, "adds"),
        refused(
            "1 of its instructions access memory in ways of which `--splice-memory` does not tell"
        )
    );
    let (edited, failed) = prepared.edited_machine_code(8, &nothing_there).unwrap();
    assert!(failed.is_empty());
    let facts = |bytes: &[u8]| warpbpf_fatbin::Cubin::parse(bytes).unwrap();
    assert!(facts(&edited).kernel("moves").unwrap().frame_size >= 96);
    assert_eq!(facts(&edited).kernel("adds").unwrap().frame_size, 0);

    let found = "program `p0` is at places of kind `mem`, which are found in PTX only";
    assert_eq!(
        method(&by(&[(section, 0)], false, arch), "moves"),
        refused(found)
    );
    assert_eq!(
        method(
            &by(&[(section, 0), ("gpu/entry/*", 1)], true, arch),
            "moves"
        ),
        refused(
            "programs at its accesses by `--splice-memory` do not go with others at its entry or exits"
        )
    );
    assert_eq!(
        method(&by(&[("gpu/mem/*|kind=store", 0)], true, arch), "moves"),
        refused(
            "an access of every space is not to be had in a kernel without PTX; say `space=global`, whose instructions are found"
        )
    );
    assert_eq!(
        method(&by(&[(section, 0)], true, Arch::Sm80), "moves"),
        refused("probes at accesses are for `sm_90` only, and the kernel is for `sm_80`")
    );
}

#[test]
fn compute_sanitizer_gets_functions_for_all_that_it_tells_of() {
    let object = programs(&[
        ("gpu/entry/*", 0),
        ("gpu/exit/*", 1),
        ("gpu/entry.block/pl*", 2),
        ("gpu/mem.warp/*|space=global+shared", 3),
        ("gpu/barrier.warp/*", 3),
        ("gpu/func.warp/*", 3),
    ]);
    for arch in [Arch::Sm80, Arch::Sm90] {
        let by = session_by(
            &object,
            Some(patches(&object, arch)),
            arch,
            Some(sanitizer()),
        );
        // Of entries, alone and both, and of exits; of accesses of two spaces, for which the
        // program does not ask, of copies between them, of rows of matrices and of prefetches; of
        // every barrier, but that both halves of a cluster's are alike to this one; of calls. Names
        // are their own.
        let texts = by.patch_texts(arch.number());
        assert_eq!(texts.len(), 4 + 3 + 7 + 1);
        let name = |text: &String| {
            let start = text.find(" wbpf_result) ").unwrap() + 14;
            text[start..start + 21].to_owned()
        };
        let names: std::collections::BTreeSet<String> = texts.iter().map(name).collect();
        assert_eq!(names.len(), texts.len());
        let prepared = by.prepare(&image(arch));
        assert!(prepared.uses_machine_code());
        assert_eq!(method(&prepared, "plain"), "sanitizer");
        assert_eq!(method(&prepared, "prints"), "sanitizer");
        let plain = prepared.kernels.iter().find(|k| k.mangled == "plain");
        let plain = plain.unwrap();
        assert!(plain.wanted && plain.machine_code && plain.kernel_id.is_some());
        assert_eq!(
            method(&prepared, "constant"),
            "refused: the image is a cubin: machine code without PTX; it reads `__constant__` variables, and would have its own ones in the copy that is loaded beside it"
        );
        // Nobody looks who of the kernels it is that reads them where the code is not to be read.
        let theirs = ImageInfo {
            unread: Some("it is NVIDIA's".to_owned()),
            ..image(arch)
        };
        assert_eq!(
            method(&by.prepare(&theirs), "plain"),
            method(&prepared, "constant")
        );
    }
}

#[test]
fn each_kernel_gets_the_back_end_that_can_serve_it() {
    let arch = Arch::Sm90;
    let object = programs(&[
        ("gpu/entry/*", 0),
        ("gpu/mem/prints|space=global,kind=store", 1),
    ]);
    let by = |splice_first, all| {
        let options = Options {
            splice_first,
            ..Options::default()
        };
        let means = Means {
            sanitizer: Some(sanitizer()),
            ..by_functions(Some(all))
        };
        Session::with(&object, &options, means, &device(arch)).unwrap()
    };
    let functions = |splice: &dyn Fn(&str) -> Result<Vec<u8>, String>| {
        let mut all = patches(&object, arch);
        for text in session(&object, None, arch).probe_texts(arch) {
            let cubin = splice(&text);
            all.add(text, cubin);
        }
        all
    };
    let both = || functions(&|text| ptxas(text, arch, &["--compile-as-tools-patch"]));
    let methods = |prepared: &Prepared| {
        ["plain", "prints", "constant"].map(|kernel| method(prepared, kernel).to_owned())
    };
    let own = "it reads `__constant__` variables, and would have its own ones in the copy that is loaded beside it";
    let refused =
        |why: &str| format!("refused: the image is a cubin: machine code without PTX; {why}");
    let prepared = by(true, both()).prepare(&image(arch));
    assert_eq!(
        methods(&prepared),
        ["splice".to_owned(), "sanitizer".to_owned(), refused(own)]
    );
    assert_eq!(prepared.unmade(), None);
    // Each is in the copy of its back end.
    let (edited, failed) = prepared.edited_machine_code(8, &nothing_there).unwrap();
    assert!(failed.is_empty() && edited != image(arch).machine_code.unwrap()[..]);
    // Nobody asked for two.
    let prepared = by(false, both()).prepare(&image(arch));
    assert_eq!(
        methods(&prepared),
        ["sanitizer".to_owned(), "sanitizer".to_owned(), refused(own)]
    );
    // What is not to be edited, and what `ptxas` did not make, is the other one's.
    let theirs = ImageInfo {
        unread: Some("it is part of a library that is left alone".to_owned()),
        ..image(arch)
    };
    let prepared = by(true, both()).prepare(&theirs);
    let both_refuse =
        format!("by `splice`: it is part of a library that is left alone; by `sanitizer`: {own}");
    assert_eq!(method(&prepared, "plain"), refused(&both_refuse));
    let missing = || functions(&|_| Err("`ptxas` is not there".to_owned()));
    let prepared = by(true, missing()).prepare(&image(arch));
    assert_eq!(method(&prepared, "plain"), "sanitizer");
    assert_eq!(prepared.unmade(), None);
    let unserved = Assembled::default();
    let prepared = by(true, unserved).prepare(&image(arch));
    let text =
        "no function was assembled for just these programs; let them be for the same kernels";
    assert_eq!(method(&prepared, "plain"), refused(text));
}

/// Whoever asks for shared memory of other blocks alone has a function that does nothing called at
/// all other accesses.
#[test]
fn accesses_to_other_blocks_come_with_all_others() {
    let arch = Arch::Sm90;
    let object = programs(&[("gpu/mem/*|space=cluster", 0)]);
    let texts = session(&object, None, arch).patch_texts(arch.number());
    let (empty, own): (Vec<_>, Vec<_>) = texts.iter().partition(|text| !text.contains("red."));
    assert_eq!((empty.len(), own.len()), (1, 1));
    let by = |all: Assembled| {
        let by = session_by(&object, Some(all), arch, Some(sanitizer()));
        method(&by.prepare(&image(arch)), "plain").to_owned()
    };
    assert_eq!(by(patches(&object, arch)), "sanitizer");
    let mut without = Assembled::default();
    let cubin = ptxas(own[0], arch, &["--compile-as-tools-patch"]);
    without.add(own[0].clone(), cubin);
    let why = by(without);
    assert!(why.contains("no function was assembled"), "{why}");
    // Who asks for another space has no such function.
    let object = programs(&[("gpu/mem/*|space=global,kind=load", 0)]);
    let texts = session(&object, None, arch).patch_texts(arch.number());
    assert_eq!(texts.len(), 1);
}

#[test]
fn lanes_of_a_function_for_machine_code_can_add_up() {
    let text = "SEC(\"gpu/entry/*\") int p(struct wbpf_kernel_ctx *ctx) { return count(ctx, bpf_gpu_warp_sum(1) & 3); }\n";
    let object = object(text);
    for arch in [Arch::Sm80, Arch::Sm90] {
        let by = session_by(
            &object,
            Some(patches(&object, arch)),
            arch,
            Some(sanitizer()),
        );
        assert_eq!(method(&by.prepare(&image(arch)), "plain"), "sanitizer");
    }
}

#[test]
fn machine_code_is_told_which_programs_are_in_a_launch() {
    let arch = Arch::Sm90;
    let differ = programs(&[
        ("gpu/entry/*", 0),
        ("gpu/entry/*|every=2", 1),
        ("gpu/exit.block/*|every=3", 2),
        ("gpu/exit.warp/*", 3),
    ]);
    let alike = programs(&[("gpu/entry/*|every=2", 0), ("gpu/entry/*|every=2", 1)]);
    let spliced = |object: &[u8]| {
        let session = session(object, Some(assembled(object, arch)), arch);
        method(&session.prepare(&image(arch)), "plain").to_owned()
    };
    let patched = |object: &[u8]| {
        let functions = Some(patches(object, arch));
        let session = session_by(object, functions, arch, Some(sanitizer()));
        method(&session.prepare(&image(arch)), "plain").to_owned()
    };
    assert_eq!(
        (spliced(&differ), patched(&differ)),
        ("splice".into(), "sanitizer".into())
    );
    assert_eq!(
        (spliced(&alike), patched(&alike)),
        ("splice".into(), "sanitizer".into())
    );
}

/// Parameters of the kernel `plain` in a file: where each is, and its bytes.
fn parameters(file: &[u8]) -> Vec<(u32, u32)> {
    let cubin = warpbpf_fatbin::Cubin::parse(file).unwrap();
    let params = &cubin.kernel("plain").unwrap().params;
    params.iter().map(|p| (p.offset, p.size)).collect()
}

#[test]
fn what_a_launch_tells_is_one_more_parameter_of_the_copy() {
    let own = [(0, 8), (8, 4)];
    let numbered = object(
        "SEC(\"gpu/entry/*\") int p0(struct wbpf_kernel_ctx *ctx) { return count(ctx, ctx->launch_id & 3); }",
    );
    for arch in [Arch::Sm80, Arch::Sm90] {
        let told = |object: &[u8]| {
            let session = session(object, Some(assembled(object, arch)), arch);
            let prepared = session.prepare(&image(arch));
            assert_eq!(method(&prepared, "plain"), "splice");
            let (file, failed) = prepared.edited_machine_code(8, &nothing_there).unwrap();
            assert!(failed.is_empty());
            let mut all = parameters(&file);
            assert_eq!(all.drain(..2).collect::<Vec<_>>(), own);
            all
        };
        let texts = |sections: &[(&str, u32)]| {
            let object = programs(sections);
            session(&object, None, arch).probe_texts(arch).len()
        };
        // Who counts at exits, and who asks for the launch's number.
        for scope in ["warp", "block"] {
            let section = format!("gpu/exit.{scope}/*");
            assert_eq!(told(&programs(&[(&section, 0)])), [(16, 24)], "{scope}");
        }
        assert_eq!(told(&numbered), [(16, 24)]);
        // Programs of different launches, and all of it together.
        let differ = [("gpu/entry/*", 0), ("gpu/exit/*|every=2", 1)];
        assert_eq!(told(&programs(&differ)), [(16, 32)]);
        let all = [
            ("gpu/entry.warp/*", 0),
            ("gpu/exit.warp/*", 1),
            ("gpu/exit/*", 2),
            ("gpu/exit.block/*|every=3", 3),
        ];
        assert_eq!(told(&programs(&all)), [(16, 32)]);
        // Nobody asks.
        let alike = [("gpu/entry.block/*|every=2", 0), ("gpu/exit/*|every=2", 1)];
        assert_eq!(told(&programs(&alike)), []);
        // Programs of other kernels choose others: those of this one are as they would be alone.
        let others = [("gpu/entry/pl*", 0), ("gpu/entry/pr*|every=2", 1)];
        assert_eq!(told(&programs(&others)), []);
        // A set of programs that could be in a kernel alone has two functions, and one of different
        // launches one.
        assert_eq!((texts(&alike), texts(&differ), texts(&others)), (2, 4, 5));
    }
}

#[test]
fn what_compute_sanitizer_does_not_tell_of_is_refused() {
    let arch = Arch::Sm90;
    let without = "refused: the image is a cubin: machine code without PTX";
    for (section, reason) in [
        (
            "gpu/branch/*",
            "program `p0` is at places of kind `branch`, which Compute Sanitizer does not tell of; use `entry`, `exit`, `mem`, `barrier`, `func` or `funcret`",
        ),
        (
            "gpu/mem/*|kind=texture",
            "`kind=texture` is not to be had in a kernel without PTX; use `load`, `store`, `atomic` (reductions are among them), `prefetch`, `async_copy`, `matrix_load` or `matrix_store`",
        ),
        (
            "gpu/mem/*|func=f*",
            "`func=` is not to be had in a kernel without PTX; do without it",
        ),
        (
            "gpu/mem/*|space=const",
            "`space=const` is not to be had in a kernel without PTX; use `global`, `shared`, `cluster` or `local`, one of which each access is of, whatever its instruction says",
        ),
        (
            "gpu/mem/*|space=global,kind=matrix_load",
            "program `p0` wants what there is not: no `mem` is of such a kind and of such a space; leave out one of them",
        ),
        (
            "gpu/barrier/*|when=after",
            "`when=after` is not to be had in a kernel without PTX; use `when=before`",
        ),
        (
            "gpu/barrier/*|kind=arrive",
            "`kind=arrive` is not to be had in a kernel without PTX; leave it out, as barriers at which a thread does not wait are not told of",
        ),
        (
            "gpu/func/*|func=f*",
            "`func=` is not to be had in a kernel without PTX; do without it",
        ),
    ] {
        let object = programs(&[(section, 0)]);
        let by = session_by(
            &object,
            Some(patches(&object, arch)),
            arch,
            Some(sanitizer()),
        );
        let prepared = by.prepare(&image(arch));
        assert_eq!(method(&prepared, "plain"), format!("{without}; {reason}"));
    }
    // One that would never run is left out and named; the other runs.
    let both = programs(&[("gpu/entry/*", 0), ("gpu/mem/*|space=const", 1)]);
    let by = session_by(&both, Some(patches(&both, arch)), arch, Some(sanitizer()));
    let prepared = by.prepare(&image(arch));
    assert_eq!(method(&prepared, "plain"), "sanitizer");
    let plain = prepared.kernels.iter().find(|k| k.mangled == "plain");
    let plain = plain.unwrap();
    assert_eq!(plain.placed, [(0, 1), (1, 0)]);
    let why = "`space=const` is not to be had in a kernel without PTX; use `global`, `shared`, `cluster` or `local`, one of which each access is of, whatever its instruction says";
    assert_eq!(plain.left_out, [(why.to_owned(), 1)]);
    // The tool did not send what it should have.
    let entry = programs(&[("gpu/entry/*", 0)]);
    let text = session(&entry, None, arch).patch_texts(arch.number());
    let whole = ptxas(&text[0], arch, &["--compile-as-tools-patch"]).unwrap();
    let mut long = whole.clone();
    // The size in the file of the first segment.
    let segments = u64::from_le_bytes(whole[32..40].try_into().unwrap()) as usize;
    long[segments + 32..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for (sent, reason) in [
        (b"\x7fELF".to_vec(), "not a 64-bit ELF"),
        (whole[..whole.len() / 2].to_vec(), "its tables are damaged"),
        (long, "a segment of the cubin ends behind it"),
    ] {
        let mut all = Assembled::default();
        all.add(text[0].clone(), Ok(sent));
        let by = session_by(&entry, Some(all), arch, Some(sanitizer()));
        assert_eq!(
            method(&by.prepare(&image(arch)), "plain"),
            format!("{without}; the function that the tool sent: {reason}")
        );
    }
    let by = session_by(&entry, Some(Assembled::default()), arch, Some(sanitizer()));
    assert_eq!(
        method(&by.prepare(&image(arch)), "plain"),
        format!(
            "{without}; no function was assembled for just these programs; let them be for the same kernels"
        )
    );
    // Inferred files have no code.
    let inferred = ImageInfo {
        untouchable: Some("it was loaded before".to_owned()),
        ..image(arch)
    };
    assert_eq!(
        method(&by.prepare(&inferred), "plain"),
        format!("{without}; it was loaded before")
    );
}

fn nothing_there(_: &str) -> Result<(u64, u64), LoadError> {
    Err(LoadError::Unloading)
}

/// Each gets its own table in the file that is loaded, and what cannot get calls costs the others
/// nothing.
#[test]
fn hundreds_of_kernels_of_a_file_get_calls() {
    let arch = Arch::Sm90;
    let object = programs(&[("gpu/entry/*", 0), ("gpu/exit/*", 1)]);
    let session = session(&object, Some(assembled(&object, arch)), arch);
    let count = 400;
    let odd = |number: usize| number % 100 == 7;
    let kernels = (0..count).map(|number| {
        let load = match odd(number) {
            true => "ld.const.u32 %r1, [numbers+4]",
            false => "mov.u32 %r1, %tid.x",
        };
        format!(
            ".visible .entry kernel_{number}(.param .u64 p)\n{{\n\t.reg .b64 %rd<2>;\n\t.reg .b32 %r<3>;\n\tld.param.u64 %rd1, [p];\n\t{load};\n\t\
             add.u32 %r2, %r1, {number};\n\tst.global.u32 [%rd1], %r2;\n\tret;\n}}\n"
        )
    });
    let text: String = kernels.collect();
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.const .align 4 .b32 numbers[2] = {{1, 2}};\n{text}"
    );
    let cubin = ptxas(&text, arch, &[]).unwrap();
    let image = ImageInfo {
        machine_code: machine_code(&cubin, (9, 0)),
        ..inspect(&cubin, (9, 0)).unwrap()
    };
    let prepared = session.prepare(&image);
    assert_eq!(prepared.kernels.len(), count);
    let table = 0x7f12_3456_7890;
    let (edited, failed) = prepared.edited_machine_code(table, &nothing_there).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let facts = warpbpf_fatbin::Cubin::parse;
    let (before, after) = (facts(&cubin).unwrap(), facts(&edited).unwrap());
    for number in 0..count {
        let name = format!("kernel_{number}");
        let bytes = |cubin: &warpbpf_fatbin::Cubin| cubin.kernel(&name).unwrap().code_bytes;
        let longer = bytes(&after) > bytes(&before);
        assert_eq!(longer, !odd(number), "{name}");
        match odd(number) {
            true => assert!(
                method(&prepared, &name).contains("`__constant__`"),
                "{name}"
            ),
            false => assert_eq!(method(&prepared, &name), "splice"),
        }
    }
    // Moves of the table's lower half, one at the entry and one at the exit: `MOV R4, 0x34567890`.
    let halves = edited.windows(8);
    let halves = halves.filter(|w| *w == [0x02, 0x78, 0x04, 0x00, 0x90, 0x78, 0x56, 0x34]);
    assert_eq!(halves.count(), 2 * (count - count / 100));
    // Nobody wants any of them.
    let none = session.prepare_for(&image, &|_| Vec::new());
    assert_eq!(
        none.edited_machine_code(table, &nothing_there),
        Err(LoadError::NoKernel)
    );
}

/// Kernels that use variables of their module, a constant of it, and a function that a linker would
/// bring.
const VARIABLES: &str = "
.const .align 4 .b32 numbers[2] = {1, 2};
.global .align 4 .u32 counter;
.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry counts()
{
	red.global.add.u32 [counter], 1;
	ret;
}
.visible .entry looks(.param .u64 p)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [table+8];
	st.global.u32 [%rd1], %r1;
	red.global.add.u32 [counter], 1;
	ret;
}
.visible .entry constant(.param .u64 p)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<3>;
	ld.param.u64 %rd1, [p];
	ld.const.u32 %r2, [numbers+4];
	st.global.u32 [%rd1], %r2;
	red.global.add.u32 [counter], 1;
	ret;
}
";

#[test]
fn a_copy_can_have_the_variables_of_its_module() {
    let object = programs(&[("gpu/entry/*", 0)]);
    for arch in [Arch::Sm80, Arch::Sm90] {
        let number = arch.number();
        let text = format!(".version 8.0\n.target sm_{number}\n.address_size 64\n{VARIABLES}");
        let cubin = ptxas(&text, arch, &[]).unwrap();
        let capability = (number / 10, number % 10);
        let image = ImageInfo {
            machine_code: machine_code(&cubin, capability),
            ..inspect(&cubin, capability).unwrap()
        };
        let by = |splice_variables| {
            let options = Options {
                splice_variables,
                ..Options::default()
            };
            let means = by_functions(Some(assembled(&object, arch)));
            let session = Session::with(&object, &options, means, &device(arch)).unwrap();
            session.prepare(&image)
        };
        let refused = |what| {
            format!(
                "refused: the image is a cubin: machine code without PTX; it {what}, and would have its own ones in the copy that is loaded beside it"
            )
        };
        let addresses = refused("uses variables of its module, or functions by their address");
        // What it comes to first says why, where nobody wants more.
        let prepared = by(false);
        for kernel in ["counts", "looks"] {
            assert_eq!(method(&prepared, kernel), addresses);
        }
        let prepared = by(true);
        assert_eq!(method(&prepared, "counts"), "splice");
        assert_eq!(method(&prepared, "looks"), "splice");
        assert_eq!(
            method(&prepared, "constant"),
            refused("reads `__constant__` variables")
        );

        let (counter, table) = (0x7f00_1122_3344_u64, 0x7f00_5566_7788_u64);
        let edited = |table: Result<(u64, u64), LoadError>| {
            let find = |name: &str| match name {
                "counter" => Ok((counter, 4)),
                _ => table.clone(),
            };
            prepared.edited_machine_code(8, &find).unwrap()
        };
        let has = |cubin: &[u8], address: u64| {
            let mut there = cubin.windows(8);
            there.any(|bytes| bytes == address.to_le_bytes())
        };
        let (both, failed) = edited(Ok((table, 16)));
        assert!(failed.is_empty(), "{failed:?}");
        assert!(has(&both, counter) && has(&both, table));
        assert!(!has(&cubin, counter) && !has(&cubin, table));
        // One whose variable the driver does not know, or knows to be another, gets no calls; the
        // other kernel does.
        for (found, why) in [
            (Err(LoadError::Unloading), "its image is being unloaded"),
            (
                Ok((table, 12)),
                "its variable `table` has 16 bytes in its file and 12 for the driver",
            ),
        ] {
            let (one, failed) = edited(found);
            let failed = failed.into_iter();
            let failed: Vec<_> = failed.map(|(name, why)| (name, why.to_string())).collect();
            assert_eq!(failed, [("looks".to_owned(), why.to_owned())]);
            assert!(has(&one, counter) && !has(&one, table));
            let facts = |bytes: &[u8]| warpbpf_fatbin::Cubin::parse(bytes).unwrap();
            let (before, after) = (facts(&cubin), facts(&one));
            assert_eq!(before.kernel("looks"), after.kernel("looks"));
            assert_ne!(before.kernel("counts"), after.kernel("counts"));
        }
    }
}

#[test]
fn which_back_ends_take_a_kernel_is_told_without_a_program() {
    for arch in [Arch::Sm80, Arch::Sm90] {
        let told = |image: &ImageInfo, kernel: &str| {
            let at = image.kernels.iter().position(|k| k.mangled == kernel);
            without_ptx(image).swap_remove(at.unwrap())
        };
        let image = image(arch);
        let taken = "`--backend splice` takes it at `entry` and `exit`; `--backend sanitizer` takes it at `entry`, `exit`, `mem`, `barrier`, `func` and `funcret`";
        assert_eq!(told(&image, "plain"), taken);
        assert_eq!(told(&image, "prints"), taken);
        assert_eq!(
            told(&image, "constant"),
            "neither `--backend splice` nor `sanitizer` takes it: it reads `__constant__` variables"
        );
        // Of a library that is left alone only tables are read, which do not say who reads the
        // constant.
        let theirs = ImageInfo {
            untouchable: Some("it is theirs".to_owned()),
            ..image.clone()
        };
        assert_eq!(
            told(&theirs, "plain"),
            "`--backend splice` does not: it is theirs; `--backend sanitizer` does not: it reads `__constant__` variables"
        );
        let nothing = ImageInfo {
            machine_code: None,
            ..image.clone()
        };
        assert_eq!(
            told(&nothing, "plain"),
            "neither `--backend splice` nor `sanitizer` takes it: its machine code is not there"
        );

        let number = arch.number();
        let of = |kernels: &str| {
            let text = format!(".version 8.0\n.target sm_{number}\n.address_size 64\n{kernels}");
            let cubin = ptxas(&text, arch, &[]).unwrap();
            let capability = (number / 10, number % 10);
            ImageInfo {
                machine_code: machine_code(&cubin, capability),
                ..inspect(&cubin, capability).unwrap()
            }
        };
        assert_eq!(
            told(&of(VARIABLES), "counts"),
            "`--backend splice` takes it at `entry` and `exit`, with `--splice-variables`; `--backend sanitizer` does not: it uses variables of its module, or functions by their address"
        );
        // Nothing tells when a surface store has read its registers.
        let surface = of(
            ".visible .entry stores(.param .u64 s)\n{\n\t.reg .b64 %rd1;\n\t.reg .b32 %r<3>;\n\tld.param.u64 %rd1, [s];\n\tmov.u32 %r1, %tid.x;\n\tmov.u32 %r2, %tid.y;\n\t\
             sust.b.2d.b32.trap [%rd1, {%r1, %r2}], {%r1};\n\tret;\n}\n",
        );
        let told = told(&surface, "stores");
        let start = "`--backend splice` takes it at `entry`, not at `exit`: nothing tells when the instruction at `0x";
        assert!(told.starts_with(start), "{told}");
    }
}

/// What is compiled again out of a text would have more registers than the application's launches
/// have room for.
#[test]
fn a_limit_of_registers_that_no_text_says_keeps_a_text_out_of_the_images_place() {
    let object = programs(&[("gpu/entry/*", 0)]);
    let session = session(&object, None, Arch::Sm90);
    let text = KERNELS.replace("vprintf", "outside");
    let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}");
    let start = text.find(".extern").unwrap()..text.find(".const").unwrap();
    let body =
        text.find(".visible .entry prints").unwrap()..text.find(".visible .entry plain").unwrap();
    let mut text = text.clone();
    text.replace_range(body, "");
    text.replace_range(start, "");
    let prepared = |options: &[&str], text: &str| {
        let cubin = ptxas(text, Arch::Sm90, options).unwrap();
        let made = CompiledFrom {
            by: "NVRTC",
            text: Ok(text),
            not_instead: None,
        };
        let image = inspect_compiled(&cubin, (9, 0), Some(made)).unwrap();
        assert!(image.kernels[0].source.starts_with("NVRTC, PTX 8.0 sm_90"));
        session.prepare(&image)
    };
    let free = prepared(&[], &text);
    assert!(
        method(&free, "constant").starts_with("clone"),
        "{}",
        method(&free, "constant")
    );
    assert_eq!(method(&free, "plain"), "slice");
    let limited = prepared(&["-maxrregcount=40"], &text);
    let told = method(&limited, "constant");
    assert!(
        told.starts_with("refused: it needs a clone")
            && told.contains("compiled for at most 40 registers"),
        "{told}"
    );
    assert_eq!(
        (&*method(&limited, "plain"), limited.rewritten.is_none()),
        ("slice", true)
    );
    // Its own bounds are in the text.
    let bounded = text.replace(
        "(.param .u64 p)\n{",
        "(.param .u64 p)\n.maxntid 128, 1, 1\n{",
    );
    let bounded = bounded.replace(
        "(.param .u64 p, .param .u32 n)\n{",
        "(.param .u64 p, .param .u32 n)\n.maxntid 128, 1, 1\n{",
    );
    let bounded = prepared(&["-maxrregcount=40"], &bounded);
    assert!(
        method(&bounded, "constant").starts_with("clone"),
        "{}",
        method(&bounded, "constant")
    );
}
