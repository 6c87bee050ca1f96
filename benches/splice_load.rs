//! What an application waits for when it loads a large file without PTX under `--backend splice`:
//! `cargo bench -p warpbpf-session --bench splice_load [-- KERNELS [ROUNDS]]`.
//!
//! The file is what nvcc makes of `many.cu`, the programs count threads at entries and exits of all
//! kernels. Prints the shortest of some rounds for finding out what each kernel can have, and for
//! making the copy that would be loaded; the driver has no part in it. Needs clang and the CUDA
//! toolkit of `cargo xtask setup`; no GPU.

#![allow(
    clippy::disallowed_methods,
    reason = "the bench's own files, which nobody closes"
)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its measurements")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{
    Arch, Assembled, ImageInfo, LoadError, Means, Method, Options, Session, inspect, machine_code,
};

const DEVICE: (u32, u32) = (9, 0);

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|n| n.parse().ok());
    let (kernels, rounds) = (numbers.next().unwrap_or(300), numbers.next().unwrap_or(10));
    let define = format!("-DKERNELS={kernels}");
    let flags = ["-O2", "-std=c++17", "-cubin", "-arch=sm_90", &define];
    let cubin = compiled("nvcc", &flags, &root().join("benches/many.cu"));
    let session = session();
    let image = ImageInfo {
        machine_code: machine_code(&cubin, DEVICE),
        ..inspect(&cubin, DEVICE).expect("an image")
    };
    println!("{} kernels, {} bytes", image.kernels.len(), cubin.len());
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..rounds {
        let begun = Instant::now();
        let prepared = session.prepare(&image);
        let looked = begun.elapsed();
        assert!(
            prepared
                .kernels
                .iter()
                .all(|kernel| kernel.method == Method::Splice)
        );
        let begun = Instant::now();
        let none = |_: &str| Err(LoadError::NoKernel);
        let (copy, failed) = prepared
            .edited_machine_code(0x10_0000, &none)
            .expect("a copy");
        let made = begun.elapsed();
        assert!(copy.len() > cubin.len() && failed.is_empty());
        shortest = [shortest[0].min(looked), shortest[1].min(made)];
    }
    let [looked, made] = shortest.map(|time| time.as_secs_f64() * 1e3);
    println!("each kernel looked at: {looked:.1} ms");
    println!("the copy made and checked: {made:.1} ms");
    println!(
        "together: {:.3} ms for each kernel",
        (looked + made) / f64::from(kernels)
    );
}

/// With programs, and the functions that they become.
fn session() -> Session {
    let source = root().join("tests/programs/machine.bpf.c");
    let object = scratch("o");
    let clang = std::env::var("WARPBPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let mut clang = Command::new(clang);
    clang
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ));
    let status = clang.arg(&source).arg("-o").arg(&object).status();
    assert!(status.expect("clang: `cargo xtask setup`").success());
    let object = std::fs::read(object).expect("an object");
    let info = DeviceInfo {
        name: String::new(),
        capability: DEVICE,
        sms: 132,
        driver_version: 13000,
    };
    let session =
        |means| Session::with(&object, &Options::default(), means, &info).expect("a session");
    let mut assembled = Assembled::default();
    for text in session(Means::default()).probe_texts(Arch::Sm90) {
        let source = scratch("ptx");
        std::fs::write(&source, &text).expect("a scratch file");
        let flags = ["-arch=sm_90", "--compile-as-tools-patch"];
        assembled.add(text, Ok(compiled("ptxas", &flags, &source)));
    }
    let means = Means {
        assembled: Some(assembled.into()),
        ..Means::default()
    };
    session(means)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scratch(end: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warpbpf-splice-load-{}.{end}", std::process::id()))
}

/// What a tool of the CUDA compiler makes of a file.
fn compiled(tool: &str, flags: &[&str], source: &Path) -> Vec<u8> {
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root().join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    let cubin = scratch("cubin");
    let mut command = Command::new(home.join("bin").join(tool));
    command.args(flags).arg("-o").arg(&cubin).arg(source);
    let status = command.status().expect("the toolkit: `cargo xtask setup`");
    assert!(status.success(), "{tool}");
    std::fs::read(&cubin).expect("what was compiled")
}
