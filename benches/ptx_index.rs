//! Speed and memory of opening a large module: `cargo bench -p warpbpf-ptx --bench ptx_index [--
//! MEGABYTES]`.
//!
//! The module is what nvcc makes of the parser's corpus, over and over: as compiled, with line
//! information and with full debug information, whose sections are most of the text. Prints the
//! best and the median of several runs, and the most memory that the index held besides the text.
//! Needs the CUDA toolkit of `cargo xtask setup`; no GPU.

#![expect(clippy::print_stdout, reason = "a benchmark prints its measurements")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use warpbpf_ptx::{index, parse_body};

/// Counts the bytes that are allocated, and the most there ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FILES: [&str; 4] = ["memory.cu", "numbers.cu", "calls.cu", "control.cu"];
const RUNS: usize = 15;

fn main() {
    let megabytes = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(100usize);
    for (what, flag) in [
        ("plain", None),
        ("-lineinfo", Some("-lineinfo")),
        ("-G", Some("-G")),
    ] {
        measure(what, &module(megabytes * 1_000_000, flag));
    }
    measure("matrices", &matrices(megabytes * 1_000_000));
}

fn measure(what: &str, text: &str) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let module = index(black_box(text)).expect("nvcc's text is read");
            let time = start.elapsed();
            drop(black_box(module));
            time
        })
        .collect();
    let memory = MOST.load(Ordering::Relaxed) - before;
    times.sort_unstable();

    let module = index(text).expect("nvcc's text is read");
    let start = Instant::now();
    let mut bytes = 0;
    for function in module.functions.iter().take(200) {
        bytes += function.body.clone().map_or(0, |body| body.len());
        black_box(parse_body(&module, function).expect("nvcc's body is read"));
    }
    let bodies = start.elapsed();

    let speed = |bytes: usize, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{what:10} {:6.1} MB, {:6} functions: index {:6.0} MB/s best, {:6.0} median; {:5.2} of the text in memory besides it; bodies {:4.0} MB/s",
        text.len() as f64 / 1e6,
        module.functions.len(),
        speed(text.len(), times[0]),
        speed(text.len(), times[RUNS / 2]),
        memory as f64 / text.len() as f64,
        speed(bytes, bodies),
    );
}

/// A text of at least so many bytes.
fn module(bytes: usize, flag: Option<&str>) -> String {
    let parts: Vec<String> = FILES.iter().map(|name| compile(name, flag)).collect();
    let header = &parts[0][..index(&parts[0]).expect("nvcc's text is read").header_end];
    let mut text = header.to_owned();
    text.reserve_exact(bytes + 1_000_000);
    for part in parts.iter().cycle() {
        if text.len() >= bytes {
            break;
        }
        let body = index(part).expect("nvcc's text is read").header_end;
        text.push_str(&part[body..]);
    }
    text
}

/// The most braces that a body holds: nothing but matrix instructions, 500 to a kernel.
fn matrices(bytes: usize) -> String {
    let lines: String = (0..500)
        .map(|i| {
            format!(
                "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{i}, %f1, %f2, %f3}}, {{%r{i}, %r1, %r2, %r3}}, \
                 {{%r4, %r5}}, {{%f{i}, %f1, %f2, %f3}};\n"
            )
        })
        .collect();
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    text.reserve_exact(bytes + 1_000_000);
    while text.len() < bytes {
        text.push_str("\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n");
        text.push_str(&lines);
        text.push_str("\tret;\n\n}\n");
    }
    text
}

fn compile(name: &str, flag: Option<&str>) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    let nvcc = home.join("bin/nvcc");
    assert!(
        nvcc.exists(),
        "no nvcc under `{}`: run `cargo xtask setup`",
        home.display()
    );
    let out = std::env::temp_dir().join(format!("warpbpf-bench-{}-{name}.ptx", std::process::id()));
    let run = Command::new(nvcc)
        .args(["-ptx", "-std=c++17", "-arch=sm_90", "-I"])
        .arg(home.join("include"))
        .args(flag)
        .arg(root.join("crates/ptx/tests/corpus").join(name))
        .arg("-o")
        .arg(&out)
        .output()
        .expect("nvcc starts");
    assert!(
        run.status.success(),
        "nvcc refuses `{name}`: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    let text = std::fs::read_to_string(&out).expect("nvcc writes its output");
    std::fs::remove_file(&out).expect("the output can be removed");
    text
}
