//! What the tests share: the compiler, the disassembler, and cubins that they make of our own
//! sources.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A tool of the CUDA compiler.
pub fn cuda(name: &str) -> PathBuf {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map_or_else(
        || workspace().join(".toolchain/cuda/nvidia/cu13"),
        PathBuf::from,
    );
    there(home.join("bin").join(name))
}

/// Whole corpora are compared, and not what a gate needs (`cargo xtask test --deep`).
pub fn is_deep() -> bool {
    std::env::var_os("WARPBPF_DEEP").is_some()
}

/// The disassembler, which is for code that was made here from our own sources.
pub fn nvdisasm() -> PathBuf {
    there(std::env::var_os("WARPBPF_NVDISASM").map_or_else(
        || workspace().join(".toolchain/nvdisasm/nvidia/cu13/bin/nvdisasm"),
        PathBuf::from,
    ))
}

fn there(path: PathBuf) -> PathBuf {
    assert!(
        path.exists(),
        "`{}` is not there: run `cargo xtask setup`",
        path.display()
    );
    path
}

/// A file of this test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sass");
    std::fs::create_dir_all(&folder).expect("a folder for tests");
    folder.join(name)
}

/// Standard output of a command that succeeds.
pub fn output(command: &mut Command) -> String {
    let done = command.output().expect("it starts");
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stderr),
        String::from_utf8_lossy(&done.stdout)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Assembles PTX.
pub fn ptxas(name: &str, text: &str, arch: &str, options: &[&str]) -> Vec<u8> {
    let name = format!("{name}.{:?}", std::thread::current().id());
    let source = scratch(&format!("{name}.{arch}.ptx"));
    let cubin = scratch(&format!("{name}.{arch}.cubin"));
    std::fs::write(&source, text).expect("a scratch file");
    output(
        Command::new(cuda("ptxas"))
            .arg(format!("-arch={arch}"))
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&cubin),
    );
    std::fs::read(&cubin).expect("what ptxas made")
}

/// A function for putting into kernels.
pub fn probe_cubin(name: &str, body: &str, arch: &str) -> Vec<u8> {
    let text = format!(
        ".version 8.0\n.target {arch}\n.address_size 64\n{}",
        body.replace("PROBE", name)
    );
    ptxas(name, &text, arch, &["--compile-as-tools-patch"])
}

/// A counter without branches.
pub const COUNT: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [ud];
    red.global.add.u64 [%rd1], 1;
    st.param.b32 [r], 0;
    ret;
}";

/// One that lanes go through differently, with memory of its own and all registers that it may
/// have.
pub const BRANCHES: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<20>;
    .reg .b32 %r<20>;
    .reg .pred %p<4>;
    .local .align 8 .b8 own[40];
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [pc];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    mul.wide.u32 %rd3, %r2, 8;
    mov.u64 %rd4, own;
    add.u64 %rd5, %rd4, %rd3;
    st.local.u64 [%rd4], %rd2;
    st.local.u64 [%rd5+8], %rd1;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra L2;
L1:
    red.global.add.u64 [%rd1+8], %rd3;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra L1;
L2:
    ld.local.u64 %rd6, [%rd5];
    red.global.add.u64 [%rd1+16], %rd6;
    st.param.b32 [r], 0;
    ret;
}";

/// One that calls a function twice.
pub const CALLS: &str = "
.func (.param .b64 r) helper(.param .b64 a, .param .b64 b) {
    .reg .b64 %rd<8>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
L:
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u64 %rd3, [%rd1];
    setp.ne.u64 %p1, %rd3, 0;
    @%p1 bra L;
    st.param.b64 [r], %rd1;
    ret;
}
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [pc];
    { .param .b64 x; .param .b64 y; .param .b64 z;
      st.param.b64 [x], %rd1; st.param.b64 [y], %rd2;
      call (z), helper, (x, y);
      ld.param.b64 %rd3, [z]; }
    { .param .b64 x; .param .b64 y; .param .b64 z;
      st.param.b64 [x], %rd3; st.param.b64 [y], %rd1;
      call (z), helper, (x, y);
      ld.param.b64 %rd4, [z]; }
    st.global.u64 [%rd1], %rd4;
    st.param.b32 [r], 0;
    ret;
}";

/// One that divides in a loop: the barriers of the loop are kept over the calls.
pub const KEEPS: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc) {
    .reg .b64 %rd<9>;
    .reg .b32 %r<4>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [pc];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    cvt.u64.u32 %rd3, %r1;
    cvt.u64.u32 %rd4, %r2;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra L2;
L1:
    rem.u64 %rd5, %rd3, %rd4;
    add.u64 %rd2, %rd2, %rd5;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra L1;
    red.global.add.u64 [%rd1+8], %rd2;
L2:
    st.param.b32 [r], 0;
    ret;
}";

/// One for accesses, without branches.
pub const TELLS: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc, .param .b64 ptr, .param .b32 size, .param .b32 flags, .param .b64 data) {
    .reg .b64 %rd<6>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [pc];
    ld.param.u64 %rd3, [ptr];
    ld.param.u32 %r1, [size];
    ld.param.u32 %r2, [flags];
    ld.param.u64 %rd4, [data];
    red.global.add.u64 [%rd1], %rd2;
    red.global.add.u64 [%rd1+8], %rd3;
    red.global.add.u32 [%rd1+16], %r1;
    red.global.add.u32 [%rd1+20], %r2;
    red.global.add.u64 [%rd1+24], %rd4;
    st.param.b32 [r], 0;
    ret;
}";

/// One for accesses through which lanes go differently, with memory of its own.
pub const PARTS: &str = "
.visible .func (.param .b32 r) PROBE(.param .b64 ud, .param .b64 pc, .param .b64 ptr, .param .b32 size, .param .b32 flags, .param .b64 data) {
    .reg .b64 %rd<9>;
    .reg .b32 %r<5>;
    .reg .pred %p<4>;
    .local .align 8 .b8 own[40];
    ld.param.u64 %rd1, [ud];
    ld.param.u64 %rd2, [ptr];
    ld.param.u32 %r1, [flags];
    mov.u64 %rd4, own;
    and.b64 %rd3, %rd2, 12;
    add.u64 %rd5, %rd4, %rd3;
    st.local.u32 [%rd5], %r1;
    setp.eq.u64 %p1, %rd3, 0;
    @%p1 bra L2;
L1:
    red.global.add.u64 [%rd1+8], %rd3;
    sub.u64 %rd3, %rd3, 4;
    setp.ne.u64 %p2, %rd3, 0;
    @%p2 bra L1;
L2:
    ld.local.u32 %r2, [%rd5];
    red.global.add.u32 [%rd1+16], %r2;
    st.param.b32 [r], 0;
    ret;
}";

/// The headers of CUTLASS.
fn cutlass() -> PathBuf {
    let headers = ".toolchain/cutlass/cutlass_library/source/include";
    let named = std::env::var_os("WARPBPF_CUTLASS").map(PathBuf::from);
    there(named.unwrap_or_else(|| workspace().join(headers)))
}

/// Files that tests make once for all of them.
static FILES: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// Does something while nobody else does with this file.
fn alone<T>(file: &Path, run: impl FnOnce() -> T) -> T {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let lock = Arc::clone(files.entry(file.to_owned()).or_default());
    drop(files);
    let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// The file was made of the other one as it is now.
fn is_made(file: &Path, of: &Path) -> bool {
    let time = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let times = time(file).zip(time(of));
    times.is_some_and(|(made, from)| made > from)
}

/// A cubin of one of our sources: what `cargo xtask build tests` made, or what is made here, once.
pub fn nvcc(source: &Path, arch: &str) -> Vec<u8> {
    let name = source.file_stem().expect("a name").to_string_lossy();
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug");
    let built = ["cubins", "splice"].map(|f| built.join(f).join(format!("{name}.{arch}.cubin")));
    if let Some(built) = built.iter().find(|built| is_made(built, source)) {
        return std::fs::read(built).expect("what nvcc made");
    }
    let cubin = scratch(&format!("{name}.{arch}.nvcc.cubin"));
    alone(&cubin, || compile(source, arch, &cubin))
}

fn compile(source: &Path, arch: &str, cubin: &Path) -> Vec<u8> {
    if !is_made(cubin, source) {
        let partial = cubin.with_extension(format!("{}.part", std::process::id()));
        output(
            Command::new(cuda("nvcc"))
                .args(["-O2", "-std=c++17", "-cubin"])
                .arg(format!("-arch={arch}"))
                // One of them is made of CUTLASS.
                .arg("--expt-relaxed-constexpr")
                .arg("-isystem")
                .arg(cutlass())
                .arg("-o")
                .arg(&partial)
                .arg(source),
        );
        std::fs::rename(&partial, cubin).expect("a scratch file");
    }
    std::fs::read(cubin).expect("what nvcc made")
}

/// An instruction as the disassembler prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: u64,
    pub text: String,
    pub word: u128,
}

/// No register beyond those that are declared: of them the last two cannot be named, and who does
/// so ends with an illegal instruction.
pub fn names_what_it_has(lines: &[Line], declared: Option<u32>) -> bool {
    const RESERVED: u32 = 2;
    let words = |line: &'_ Line| {
        let words = line.text.split(|c: char| !c.is_ascii_alphanumeric());
        let named = words.filter_map(|word| word.strip_prefix('R')?.parse().ok());
        named.collect::<Vec<u32>>()
    };
    let last = lines.iter().flat_map(words).max().unwrap_or(0);
    declared.is_some_and(|declared| last + RESERVED < declared)
}

/// What the disassembler prints, or printed in an earlier run for the same bytes: of a whole corpus
/// it takes minutes.
fn disassembled(file: &Path, cubin: &[u8]) -> String {
    let (tool, kept) = (nvdisasm(), file.with_extension("txt"));
    let is_same = std::fs::read(file).is_ok_and(|there| there == cubin);
    if is_same && is_made(&kept, file) && is_made(&kept, &tool) {
        return std::fs::read_to_string(&kept).expect("what was printed");
    }
    std::fs::write(file, cubin).expect("a scratch file");
    let text = output(Command::new(tool).args(["-c", "-hex"]).arg(file));
    let partial = file.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&partial, &text).expect("a scratch file");
    std::fs::rename(&partial, kept).expect("a scratch file");
    text
}

/// The code of each section, by the section's name. Labels are replaced by the offsets that they
/// stand for.
pub fn disassemble(name: &str, cubin: &[u8]) -> Vec<(String, Vec<Line>)> {
    let file = scratch(&format!("{name}.dis.cubin"));
    let text = alone(&file, || disassembled(&file, cubin));
    let mut sections: Vec<(String, Vec<Line>)> = Vec::new();
    let mut labels = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    for line in text.lines() {
        let bare = line.trim();
        if let Some(rest) = bare.strip_prefix(".section\t") {
            let section = rest.trim().split(',').next().unwrap_or_default();
            sections.push((section.to_owned(), Vec::new()));
            continue;
        }
        if let Some(label) = bare.strip_suffix(':') {
            pending.push(label.to_owned());
            continue;
        }
        let Some((_, lines)) = sections.last_mut() else {
            continue;
        };
        let hex = |text: &str| {
            let start = text.rfind("/* 0x")?;
            let end = text.rfind(" */")?;
            u64::from_str_radix(text.get(start + 5..end)?, 16).ok()
        };
        if let Some(rest) = bare.strip_prefix("/*")
            && let Some((at, rest)) = rest.split_once("*/")
            && let (Ok(at), Some(low)) = (u64::from_str_radix(at, 16), hex(rest))
        {
            labels.extend(pending.drain(..).map(|label| (label, at)));
            // Where an indirect branch leads is told behind it, in labels.
            let text = rest.split("/*").next().unwrap_or_default();
            let text = text.split("(*").next().unwrap_or_default().replace(';', "");
            lines.push(Line {
                at,
                text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                word: low.into(),
            });
        } else if let (Some(high), Some(last)) = (hex(bare), lines.last_mut()) {
            last.word |= u128::from(high) << 64;
        }
    }
    let labels: BTreeMap<String, u64> = labels.into_iter().collect();
    for line in sections.iter_mut().flat_map(|(_, lines)| lines) {
        let Some((before, rest)) = line.text.split_once("`(") else {
            continue;
        };
        if let Some((label, after)) = rest.split_once(')')
            && let Some(at) = labels.get(label).filter(|_| label.starts_with(".L_"))
        {
            line.text = format!("{before}{at:#x}{after}");
        }
    }
    sections
}

/// Sources of kernels that only `sm_90` has, and those of them that need what only `sm_90a` has.
const NEEDS_90: &[&str] = &[
    "async",
    "clusters",
    "counted",
    "tensor",
    "wgmma",
    "specialised",
];
const NEEDS_90A: &[&str] = &["wgmma", "specialised"];
/// Sources of loads and stores of all sizes, and of predicates that the compiler saves.
const ALWAYS: &[&str] = &["accesses", "doubles"];
/// Compiled for the device linker only; and an application whose kernels are of instructions that
/// others here have one by one.
const LEFT_OUT: &[&str] = &["device_launch", "instructions"];

/// Cubins of all our kernels, with their names. `arch` is 80 or 90.
pub fn corpus(arch: u32) -> Vec<(String, Vec<u8>)> {
    let mut sources = Vec::new();
    for folder in [
        "examples/apps",
        "tests/apps",
        "tests/splice",
        "tests/kernels/sources",
    ] {
        let entries = std::fs::read_dir(workspace().join(folder)).expect("our sources");
        sources.extend(
            entries
                .map(|e| e.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|e| e == "cu")),
        );
    }
    sources.sort();
    // The gate has an eighth of them for one processor and another for the other, whose table is
    // the same but for a few rows; and what has instructions that others have not. A name decides,
    // so that a new source moves no other.
    let (step, first) = match (is_deep(), arch) {
        (true, _) => (1, 0),
        (false, 80) => (8, 0),
        (false, _) => (8, 2),
    };
    let mut wanted = Vec::new();
    for source in sources {
        let name = source
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let of_all = NEEDS_90.contains(&name.as_str()) || ALWAYS.contains(&name.as_str());
        let part = name.bytes().map(u32::from).sum::<u32>() % step;
        if part != first && !of_all {
            continue;
        }
        if LEFT_OUT.contains(&name.as_str()) || arch < 90 && NEEDS_90.contains(&name.as_str()) {
            continue;
        }
        let suffix = if NEEDS_90A.contains(&name.as_str()) {
            "a"
        } else {
            ""
        };
        wanted.push((name, source, format!("sm_{arch}{suffix}")));
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((_, source, arch)) = wanted.get(next.fetch_add(1, Relaxed)) {
                    nvcc(source, arch);
                }
            });
        }
    });
    let made = wanted.into_iter();
    let made: Vec<_> = made
        .map(|(name, source, arch)| (name, nvcc(&source, &arch)))
        .collect();
    assert!(
        made.len() > 25 / step as usize,
        "only {} sources were found",
        made.len()
    );
    made
}
