//! Containers that the pinned toolkit writes: every compression, every suffix, and metadata against
//! what `ptxas -v` says about the same compilation.

use std::path::{Path, PathBuf};
use std::process::Command;

use warpbpf_fatbin::{
    Choice, Compression, Cubin, Entry, EntryKind, ImageKind, Param, choose, cubin_len, entries,
    fatbin_len, sniff,
};

const SOURCE: &str = r"
struct Big { int a[5]; double d; };
struct Huge { char a[20000]; };
__device__ int total;
__global__ void vec_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void __launch_bounds__(128) shared_sum(Big b, char q, int *out) {
    __shared__ int s[256];
    s[threadIdx.x] = b.a[threadIdx.x % 5];
    __syncthreads();
    out[threadIdx.x] = s[255 - threadIdx.x] + q + (int)b.d;
    atomicAdd(&total, 1);
}
__global__ void frame(int *out, int n) {
    int local[64];
    for (int i = 0; i < 64; i++) local[i] = out[i];
    out[n] = local[(n * 7) % 64];
    local[n] = 3;
    out[n + 1] = local[out[3]];
}
";

fn toolkit() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = std::env::var_os("WARPBPF_CUDA_HOME")
        .map_or_else(|| root.join(".toolchain/cuda/nvidia/cu13"), PathBuf::from);
    assert!(
        home.join("bin/nvcc").exists(),
        "no nvcc under `{}`: run `cargo xtask setup`, or set WARPBPF_CUDA_HOME",
        home.display()
    );
    home
}

/// Runs `nvcc` with `args` on [`SOURCE`] plus `extra`; the output's bytes and what was said on
/// stderr.
fn nvcc(test: &str, extra: &str, args: &[&str]) -> (Vec<u8>, String) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&dir).expect("test folder");
    std::fs::write(dir.join("a.cu"), format!("{SOURCE}{extra}")).expect("source");
    let done = Command::new(toolkit().join("bin/nvcc"))
        .args(args)
        .args(["a.cu", "-o", "out"])
        .current_dir(&dir)
        .output()
        .expect("nvcc runs");
    let said =
        String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "nvcc: {said}");
    (std::fs::read(dir.join("out")).expect("output"), said)
}

const FIVE: &[&str] = &[
    "-fatbin",
    "-gencode",
    "arch=compute_75,code=sm_75",
    "-gencode",
    "arch=compute_90,code=[sm_90,compute_90]",
    "-gencode",
    "arch=compute_90a,code=[sm_90a,compute_90a]",
];

fn compressed(mode: &str) -> Vec<u8> {
    let mode = format!("--compress-mode={mode}");
    nvcc(&mode[2..], "", &[FIVE, &[mode.as_str()]].concat()).0
}

#[test]
fn every_compression_gives_the_same_images() {
    let plain = compressed("none");
    assert_eq!(sniff(&plain), ImageKind::Fatbin);
    assert_eq!(fatbin_len(&plain[..16]), Ok(plain.len()));
    let plain: Vec<(String, Vec<u8>)> = entries(&plain)
        .expect("reads")
        .iter()
        .map(|entry| {
            assert_eq!(entry.compression, Compression::None);
            (
                entry.arch_name(),
                entry.payload().expect("plain").into_owned(),
            )
        })
        .collect();
    let mut names: Vec<_> = plain.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["compute_90", "compute_90a", "sm_75", "sm_90", "sm_90a"]
    );
    for (name, image) in &plain {
        if name.starts_with("sm") {
            assert_eq!(sniff(image), ImageKind::Cubin, "{name}");
            assert_eq!(cubin_len(&image[..64]), Some(image.len()), "{name}");
        } else {
            assert_eq!(sniff(image), ImageKind::PtxText, "{name}");
            assert!(
                image.ends_with(b"}\n\n") || image.ends_with(b"}\n"),
                "{name}: text ends in padding"
            );
        }
    }
    for (mode, method) in [
        ("speed", Compression::Lz4),
        ("balance", Compression::Zstd),
        ("size", Compression::Zstd),
    ] {
        let bytes = compressed(mode);
        let read = entries(&bytes).expect("reads");
        assert!(
            read.iter().any(|entry| entry.compression == method),
            "{mode} compresses nothing"
        );
        assert_eq!(read.len(), plain.len());
        for entry in &read {
            let (_, image) = plain
                .iter()
                .find(|(name, _)| *name == entry.arch_name())
                .expect("same entries");
            let found = entry
                .payload()
                .unwrap_or_else(|error| panic!("{mode}: {error}"));
            assert!(
                *found == **image,
                "{mode}: {} differs from the uncompressed one",
                entry.arch_name()
            );
        }
    }
}

fn named(read: &[Entry<'_>], index: Option<usize>) -> Option<String> {
    index.map(|index| read[index].arch_name())
}

#[test]
fn the_choice_follows_device_and_suffix() {
    let bytes = compressed("balance");
    let read = entries(&bytes).expect("reads");
    let on = |device| {
        let Choice {
            sass,
            ptx,
            why_no_ptx,
        } = choose(&read, device);
        (named(&read, sass), named(&read, ptx), why_no_ptx)
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(on((9, 0)), (some("sm_90a"), some("compute_90a"), None));
    assert_eq!(on((10, 0)), (None, some("compute_90"), None));
    assert_eq!(
        on((7, 5)),
        (
            some("sm_75"),
            None,
            some(
                "the driver runs `sm_75`, compiled from `compute_75`, \
                 and the file's PTX is for `compute_90`, `compute_90a` only"
            )
        )
    );
    assert_eq!(
        on((7, 0)),
        (
            None,
            None,
            some(
                "nothing in the file runs on compute capability `7.0`: \
                 it holds `sm_75`, `sm_90`, `sm_90a`, `compute_90`, `compute_90a`"
            )
        )
    );
}

#[test]
fn ptx_belongs_to_the_sass_that_was_made_from_it() {
    let args = [
        "-fatbin",
        "-gencode",
        "arch=compute_80,code=[sm_86,compute_80]",
    ];
    let (bytes, _) = nvcc("virtual", "", &args);
    let read = entries(&bytes).expect("reads");
    let choice = choose(&read, (8, 9));
    assert_eq!(named(&read, choice.sass).as_deref(), Some("sm_86"));
    assert_eq!(named(&read, choice.ptx).as_deref(), Some("compute_80"));
    let choice = choose(&read, (8, 0));
    assert_eq!(
        (choice.sass, named(&read, choice.ptx).as_deref()),
        (None, Some("compute_80"))
    );
}

#[test]
fn a_family_suffix_runs_within_its_major_version() {
    let (bytes, _) = nvcc(
        "family",
        "",
        &[
            "-fatbin",
            "-gencode",
            "arch=compute_120f,code=[sm_120f,compute_120f]",
        ],
    );
    let read = entries(&bytes).expect("reads");
    assert!(
        read.iter().all(|entry| entry.suffix == Some('f')),
        "{read:?}"
    );
    let choice = choose(&read, (12, 1));
    assert_eq!(named(&read, choice.sass).as_deref(), Some("sm_120f"));
    assert_eq!(named(&read, choice.ptx).as_deref(), Some("compute_120f"));
    assert_eq!(choose(&read, (13, 0)).sass, None);
}

#[test]
fn the_source_name_is_found() {
    let (bytes, _) = nvcc("name", "", &["-fatbin", "-lineinfo", "-arch=sm_90"]);
    for entry in entries(&bytes).expect("reads") {
        assert_eq!(entry.name, Some("a.cu"), "{}", entry.arch_name());
        assert!(
            entry.version == (9, 0) || entry.kind == EntryKind::Elf,
            "{entry:?}"
        );
    }
}

/// Registers, static shared memory and stack frame of `kernel` as `ptxas -v` printed them.
fn said_by_ptxas(said: &str, kernel: &str) -> (u32, u32, u32) {
    let from = said
        .find(&format!("Compiling entry function '{kernel}'"))
        .expect("ptxas names the kernel");
    let part = &said[from + 1..];
    let part = &part[..part.find("Compiling entry").unwrap_or(part.len())];
    let before = |unit: &str| {
        part.find(unit).map_or(0, |at| {
            let digits = part[..at].trim_end();
            let digits = digits
                .rsplit(|c: char| !c.is_ascii_digit())
                .next()
                .expect("a number");
            digits.parse().expect("a number")
        })
    };
    (
        before(" registers"),
        before(" bytes smem"),
        before(" bytes stack frame"),
    )
}

#[test]
fn metadata_is_what_ptxas_said() {
    for arch in ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"] {
        let flag = format!("-arch={arch}");
        let (bytes, said) = nvcc(
            &format!("info-{arch}"),
            "",
            &["-cubin", "-Xptxas", "-v", &flag],
        );
        let cubin = Cubin::parse(&bytes).expect("cubin");
        let number: u32 = arch[3..].parse().expect("number");
        assert_eq!((cubin.arch, cubin.virtual_arch), (number, Some(number)));
        assert_eq!(cubin.kernels.len(), 3);
        for kernel in &cubin.kernels {
            let found = (
                kernel.registers.expect("registers"),
                kernel.static_shared,
                kernel.frame_size,
            );
            assert_eq!(
                found,
                said_by_ptxas(&said, &kernel.name),
                "{arch} {}",
                kernel.name
            );
            assert!(
                !kernel.exits.is_empty()
                    && kernel
                        .exits
                        .iter()
                        .all(|&at| u64::from(at) < kernel.code_bytes)
            );
        }
        let vec_add = cubin.kernel("_Z7vec_addPKfS0_Pfi").expect("kernel");
        let layout: Vec<_> = vec_add.params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(layout, [(0, 8), (8, 8), (16, 8), (24, 4)]);
        assert_eq!((vec_add.param_bytes, vec_add.max_threads), (28, None));
        let sum = cubin.kernel("_Z10shared_sum3BigcPi").expect("kernel");
        let layout: Vec<_> = sum.params.iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(layout, [(0, 32), (32, 1), (40, 8)]);
        assert_eq!(
            (sum.max_threads, sum.static_shared),
            (Some([128, 1, 1]), 1024)
        );
        let frame = cubin.kernel("_Z5framePii").expect("kernel");
        assert!(
            frame.frame_size >= 256 && frame.min_stack >= frame.frame_size,
            "{frame:?}"
        );
    }
}

#[test]
fn large_parameters_use_the_second_form() {
    let (bytes, _) = nvcc(
        "large",
        "__global__ void huge(Huge h, int *o) { o[0] = h.a[o[1]]; }",
        &["-cubin", "-arch=sm_90"],
    );
    let cubin = Cubin::parse(&bytes).expect("cubin");
    let huge = cubin.kernel("_Z4huge4HugePi").expect("kernel");
    assert_eq!(
        huge.params,
        [
            Param {
                offset: 0,
                size: 20_000
            },
            Param {
                offset: 20_000,
                size: 8
            }
        ]
    );
    assert_eq!(huge.param_bytes, 20_008);
}

#[test]
fn dynamic_shared_memory_and_callees_are_not_static() {
    let extra = "extern __shared__ int dyn[];
        __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        __global__ void dynamic(int *o) { dyn[threadIdx.x] = fib(o[0]); __syncthreads(); o[1] = dyn[1]; }";
    let (bytes, _) = nvcc("dynamic", extra, &["-cubin", "-arch=sm_90"]);
    let cubin = Cubin::parse(&bytes).expect("cubin");
    assert_eq!(cubin.kernels.len(), 4, "a device function is not a kernel");
    assert_eq!(
        cubin
            .kernel("_Z7dynamicPi")
            .map(|kernel| kernel.static_shared),
        Some(0)
    );
}

#[test]
fn an_attribute_that_runs_over_is_named() {
    let (mut bytes, _) = nvcc("attribute", "", &["-cubin", "-arch=sm_90"]);
    // The first attribute of `.nv.info`: sized, REGCOUNT, 8 bytes.
    let at = bytes
        .windows(4)
        .position(|window| window == [4, 0x2f, 8, 0])
        .expect("a register count");
    bytes[at + 2..at + 4].fill(0xff);
    let error = Cubin::parse(&bytes).expect_err("damaged");
    assert_eq!(
        error.to_string(),
        "section `.nv.info`: attribute `0x2f` at offset `0x0` does not fit"
    );
}

#[test]
fn a_damaged_cubin_is_refused_or_read_but_never_a_panic() {
    let (bytes, _) = nvcc("damaged", "", &["-cubin", "-arch=sm_90"]);
    for length in (0..bytes.len()).step_by(97) {
        let _ = Cubin::parse(&bytes[..length]);
    }
    let mut seed = 1u64;
    for _ in 0..2000 {
        let mut copy = bytes.clone();
        for _ in 0..4 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % copy.len();
            copy[at] = (seed >> 20) as u8;
        }
        let _ = Cubin::parse(&copy);
        if let Some(header) = copy.get(..64) {
            let _ = cubin_len(header);
        }
    }
}

#[test]
fn line_information_holds_the_ptx() {
    let flags = ["-cubin", "-lineinfo", "-arch=sm_90"];
    let (cubin, _) = nvcc("embedded", "", &flags);
    let (ptx, _) = nvcc("embedded", "", &["-ptx", "-lineinfo", "-arch=sm_90"]);
    let ptx = String::from_utf8(ptx).expect("text");
    // Up to what `.file` begins, without comments and what says where lines come from.
    let lines = |text: &str| -> Vec<String> {
        let code = text.lines().map(|line| match line.find("//") {
            Some(comment) => line[..comment].trim().to_owned(),
            None => line.trim().to_owned(),
        });
        let told = |line: &String| {
            !line.is_empty()
                && [".loc", ".file"]
                    .iter()
                    .all(|start| !line.starts_with(start))
        };
        let code = code.take_while(|line| !line.starts_with(".section"));
        code.filter(told).collect()
    };
    let embedded = warpbpf_fatbin::embedded_ptx(&cubin).expect("PTX");
    assert_eq!(lines(&embedded), lines(&ptx));
    let (plain, _) = nvcc("embedded", "", &["-cubin", "-arch=sm_90"]);
    assert_eq!(warpbpf_fatbin::embedded_ptx(&plain), None);
    assert_eq!(warpbpf_fatbin::embedded_ptx(b"\x7fELF"), None);
}
