//! Probes in the machine code of all kernels of a large file: `cargo bench -p warpbpf-sass --bench
//! splice_file [-- KERNELS]`.
//!
//! The file is what nvcc makes of `many.cu`. Prints how long it takes to look at each kernel alone,
//! as when an application loads the file, and to write them all in one pass; and for comparison by
//! a pass for each kernel. Needs the CUDA toolkit of `cargo xtask setup`; no GPU.

#![expect(clippy::print_stdout, reason = "a benchmark prints its measurements")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use warpbpf_fatbin::Cubin;
use warpbpf_sass::{Addresses, File, Hook, Probe, splice};

/// Kernels of which each gets a pass of its own.
const ALONE: usize = 20;

const PROBE: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .func (.param .b32 r) count(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [ud];
    red.global.add.u64 [%rd1], 1;
    st.param.b32 [r], 0;
    ret;
}";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kernels = arguments.find_map(|argument| argument.parse::<usize>().ok());
    let kernels = kernels.unwrap_or(300);
    let define = format!("-DKERNELS={kernels}");
    let source = root().join("benches/many.cu");
    let flags = ["-O2", "-std=c++17", "-cubin", "-arch=sm_90", &define];
    let cubin = compiled("nvcc", &flags, source);
    let text = scratch("ptx");
    std::fs::write(&text, PROBE).expect("a scratch file");
    let probe = compiled("ptxas", &["-arch=sm_90", "--compile-as-tools-patch"], text);
    let probe = Probe::parse(&probe, "count").expect("a probe");
    measure(&cubin, &probe);
}

fn measure(cubin: &[u8], probe: &Probe) {
    let timed = |what: &str, begun: Instant| {
        println!("{what}: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    };
    let begun = Instant::now();
    let facts = Cubin::parse(cubin).expect("a cubin");
    let names: Vec<&str> = facts.kernels.iter().map(|k| k.name.as_str()).collect();
    println!("{} kernels, {} bytes", names.len(), cubin.len());
    timed("kernels listed", begun);

    let begun = Instant::now();
    let file = File::parse(cubin).expect("a cubin");
    timed("file read", begun);
    let begun = Instant::now();
    let hook = |userdata| Some(Hook { probe, userdata });
    let edits = names.iter().map(|name| {
        assert_eq!(file.shared_data(name), None, "{name}");
        file.edit(name, hook(1), hook(1)).expect("an edit")
    });
    let edits: Vec<_> = edits.collect();
    timed("each kernel looked at", begun);
    let begun = Instant::now();
    let written = file.write(&edits, &Addresses::new()).expect("a file");
    timed("all written and checked", begun);
    assert!(written.left_out.is_empty());
    println!("{} pass, {} bytes", written.passes, written.cubin.len());

    let few = names.len().min(ALONE);
    let begun = Instant::now();
    let mut by_one = cubin.to_vec();
    for name in &names[..few] {
        by_one = splice(&by_one, name, hook(1), hook(1))
            .expect("an edit")
            .cubin;
    }
    timed(&format!("{few} kernels with a pass for each"), begun);
    let together = file
        .write(&edits[..few], &Addresses::new())
        .expect("a file");
    assert!(by_one == together.cubin, "the same bytes");
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scratch(end: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warpbpf-splice-file-{}.{end}", std::process::id()))
}

/// What a tool of the CUDA compiler makes of a file.
fn compiled(tool: &str, flags: &[&str], source: PathBuf) -> Vec<u8> {
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root().join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    let cubin = scratch("cubin");
    let mut command = Command::new(home.join("bin").join(tool));
    command.args(flags).arg("-o").args([&cubin, &source]);
    let status = command.status().expect("the toolkit: `cargo xtask setup`");
    assert!(status.success(), "{tool}");
    std::fs::read(&cubin).expect("what was compiled")
}
