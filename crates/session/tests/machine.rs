//! Kernels of which there is only machine code: what gets calls, and why others do not. Programs are compiled by clang, kernels and functions
//! assembled by `ptxas`; nothing runs.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{
    Arch, Assembled, ImageInfo, Options, Prepared, Session, inspect, machine_code,
};

const KERNELS: &str = "
.const .align 4 .b32 numbers[2] = {1, 2};
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
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| root().join(".toolchain/cuda/nvidia/cu13"));
    let (source, cubin) = (scratch("ptx"), scratch("cubin"));
    std::fs::write(&source, text).unwrap();
    let mut ptxas = Command::new(home.join("bin/ptxas"));
    ptxas
        .arg(format!("-arch=sm_{}", arch.number()))
        .args(options)
        .arg("-o")
        .args([&cubin, &source]);
    let assembled = done(&mut ptxas, "ptxas");
    let bytes = std::fs::read(&cubin);
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&cubin));
    assembled.map(|()| bytes.unwrap())
}

fn object(programs: &str) -> Vec<u8> {
    let (source, object) = (scratch("bpf.c"), scratch("bpf.o"));
    std::fs::write(&source, PROGRAMS.replace("PROGRAMS", programs)).unwrap();
    let chosen = std::env::var("WARPBPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let mut clang = Command::new(chosen);
    clang
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .args([&source, &PathBuf::from("-o"), &object]);
    done(&mut clang, "clang").unwrap();
    let bytes = std::fs::read(&object).unwrap();
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&object));
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
    let options = Options {
        assembled: assembled.map(Arc::new),
        ..Options::default()
    };
    Session::new(object, &options, &device(arch)).unwrap()
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

fn way<'p>(prepared: &'p Prepared, kernel: &str) -> &'p str {
    let mut kernels = prepared.kernels.iter();
    &kernels.find(|k| k.mangled == kernel).unwrap().way
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
        assert_eq!(way(&prepared, "plain"), "splice");
        let plain = prepared.kernels.iter().find(|k| k.mangled == "plain");
        let plain = plain.unwrap();
        assert!(plain.wanted && plain.machine_code);
        // Each program once at the entry, and at both ways out.
        assert_eq!(plain.placed, [(0, 1), (1, 2), (2, 1)]);
        assert_eq!(
            way(&prepared, "constant"),
            "refused: the image is a cubin: machine code without PTX; it reads `__constant__` variables, and would have its own ones in the copy that is loaded beside it"
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
    assert_eq!(way(&plain, "plain"), without);
    assert!(!plain.uses_machine_code());
    // The tool has made other functions, or none.
    let other = assembled(&programs(&[("gpu/entry/*", 3)]), arch);
    let prepared = session(&entry, Some(other), arch).prepare(&image(arch));
    assert_eq!(
        way(&prepared, "plain"),
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
        way(&prepared, "plain"),
        format!("{without}; `ptxas` is not there")
    );
    // Places that only PTX shows, and what only a kernel's PTX has.
    for (section, reason) in [
        (
            "gpu/barrier/*",
            "program `p0` is at places of kind `barrier`, which are found in PTX only",
        ),
        (
            "gpu/exit.block/*",
            "`block` scope at exit is not to be had in a kernel without PTX; use `thread` scope, since arrivals are counted in a parameter that the kernel does not have",
        ),
    ] {
        let object = programs(&[(section, 0)]);
        let session = session(&object, Some(assembled(&object, arch)), arch);
        let prepared = session.prepare(&image(arch));
        assert_eq!(way(&prepared, "plain"), format!("{without}; {reason}"));
    }
    // Nothing there could close a gate.
    let options = Options {
        assembled: Some(Arc::new(assembled(&entry, arch))),
        gate: true,
        ..Options::default()
    };
    let gated = Session::new(&entry, &options, &device(arch)).unwrap();
    assert_eq!(
        way(&gated.prepare(&image(arch)), "plain"),
        format!("{without}; programs behind a gate (`--gate`) are put into PTX only")
    );
    // Names of parameters are PTX's.
    let named = programs(&[("gpu/entry/*|args=n", 0)]);
    let named = session(&named, Some(Assembled::default()), arch).prepare(&image(arch));
    assert_eq!(
        way(&named, "plain"),
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
        way(&prepared, "plain"),
        format!("{without}; it is part of a library that is left alone")
    );
}
