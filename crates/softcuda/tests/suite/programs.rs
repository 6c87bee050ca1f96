//! Programs built by `nvcc -cudart shared`, unmodified, on the two libraries as they are shipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn toolkit() -> PathBuf {
    let home = std::env::var_os("WARPBPF_CUDA_HOME").map_or_else(
        || Path::new(HERE).join("../../.toolchain/cuda/nvidia/cu13"),
        PathBuf::from,
    );
    assert!(
        home.join("bin/nvcc").exists(),
        "no nvcc under `{}`: run `cargo xtask setup`, or set WARPBPF_CUDA_HOME",
        home.display()
    );
    home.canonicalize().expect("toolkit")
}

fn run(command: &mut Command) -> Output {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    done
}

fn temporary(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("temporary folder");
    folder
}

/// The folder with `libcuda.so.1` and `libcudart.so.13`, made once from the static library beside
/// this test.
fn soft() -> &'static Path {
    static SOFT: OnceLock<PathBuf> = OnceLock::new();
    SOFT.get_or_init(|| {
        let test = std::env::current_exe().expect("path of the test");
        let archive = test
            .parent()
            .expect("its folder")
            .join("libwarpbpf_softcuda.a");
        assert!(archive.exists(), "cargo left no `{}`", archive.display());
        let folder = temporary("soft");
        run(Command::new(Path::new(HERE).join("link/assemble.sh"))
            .arg(archive)
            .arg(&folder));
        folder
    })
}

/// Builds `tests/programs/NAME.cu` with `flags` beside the usual ones.
fn build(name: &str, flags: &[&str]) -> PathBuf {
    // A comma in a path would be a separator to nvcc.
    let kind: String = flags
        .concat()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .collect();
    let folder = temporary(&format!("{name}-{kind}"));
    let program = folder.join(name);
    // The toolkit's wheels have no `libcudart.so`; ours is the same to the linker.
    let links = folder.join("lib");
    std::fs::create_dir_all(&links).expect("folder");
    for (link, target) in [
        ("libcudart.so", soft().join("libcudart.so.13")),
        ("libcudadevrt.a", toolkit().join("lib/libcudadevrt.a")),
    ] {
        let link = links.join(link);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(target, link).expect("link");
    }
    run(Command::new(toolkit().join("bin/nvcc"))
        .args(["-cudart", "shared"])
        .args(if flags.contains(&"-gencode") {
            &[][..]
        } else {
            &["-arch=sm_90"]
        })
        .args(flags)
        .arg("-L")
        .arg(links)
        .arg(
            Path::new(HERE)
                .join("tests/programs")
                .join(format!("{name}.cu")),
        )
        .arg("-o")
        .arg(&program));
    program
}

fn on_soft(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", soft());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WARPBPF_SOFT_") || name == "CUDA_INJECTION64_PATH" {
            command.env_remove(name);
        }
    }
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn vector_add_runs_from_every_kind_of_fatbin() {
    for mode in ["none", "speed", "balance", "size"] {
        let flag = format!("--compress-mode={mode}");
        let program = build("vector_add", &[&flag]);
        let done = run(on_soft(&program).arg("5000"));
        // An empty stderr also says that glibc found the symbol versions it looks for.
        assert_eq!(
            texts(&done),
            ("vector_add: 5000 elements, 0 wrong\n".into(), String::new()),
            "{mode}"
        );
    }
}

#[test]
fn machine_code_alone_is_refused_with_the_reason() {
    let program = build("vector_add", &["-gencode", "arch=compute_90,code=sm_90"]);
    let done = on_soft(&program).output().expect("runs");
    let (out, said) = texts(&done);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(
        out,
        "cudaGetLastError(): cudaErrorNoKernelImageForDevice (no kernel image is available for execution on the device)\n"
    );
    assert_eq!(
        said,
        "warpbpf soft GPU: a module cannot be loaded: the soft GPU runs PTX only: the driver runs `sm_90`, \
         compiled from `compute_90`, and the file holds no PTX\n"
    );
}

#[test]
fn random_schedules_give_the_same_result() {
    let program = build("vector_add", &["-lineinfo"]);
    for (seed, threads) in [("1", "1"), ("77", "2")] {
        let mut command = on_soft(&program);
        command
            .env("WARPBPF_SOFT_SEED", seed)
            .env("WARPBPF_SOFT_THREADS", threads)
            .env("WARPBPF_SOFT_SMS", "7");
        assert_eq!(
            texts(&run(&mut command)).0,
            "vector_add: 10000 elements, 0 wrong\n"
        );
    }
}

const TOUR: &str = "\
versions 13000 13000, devices 1, device 0, sms 4 4
warpbpf soft GPU 9.0 warp 32 shared 49152 232448 threads 1024 reserved 1024
set device 1: cudaErrorInvalidDevice
peeked at: cudaErrorInvalidDevice
last error: cudaErrorInvalidDevice
then: cudaSuccess
scaled 10 20 30 40 20 40 60 80
counter 327, table 256 bytes, 0x1010101 0x1010101
sums 8128 24512 40896 57280, host calls 10, time passed, query cudaSuccess, priority kept
pitch 512, rows 10 13 -, 30 33 -
managed sum 256, type 3, ours 0
zero copy sum 8128
max threads 128, static shared 0, blocks 16, best block 1024
large shared: cudaSuccess
too large shared: cudaErrorInvalidValue
too many threads: cudaErrorInvalidConfiguration
beyond the bounds: cudaErrorInvalidValue
no direction: cudaErrorInvalidMemcpyDirection
too far: cudaErrorInvalidValue
free of nothing: cudaSuccess
free of a stranger: cudaErrorInvalidValue
before
hello from block 0
hello from block 1
after
after a reset the counter is 8
";

#[test]
fn the_runtime_in_breadth() {
    let program = build("runtime_tour", &[]);
    assert_eq!(
        texts(&run(&mut on_soft(&program))),
        (TOUR.into(), String::new())
    );
    let in_background = run(on_soft(&program).env("WARPBPF_SOFT_ASYNC", "1"));
    assert_eq!(texts(&in_background).0, TOUR, "with a thread per stream");
}

#[test]
fn the_runtime_with_a_default_stream_per_thread() {
    let program = build("runtime_tour", &["-default-stream=per-thread"]);
    assert_eq!(texts(&run(&mut on_soft(&program))).0, TOUR);
}

#[test]
fn a_trap_is_an_error_and_a_line() {
    let program = build("trap", &[]);
    let (out, said) = texts(&run(&mut on_soft(&program)));
    assert_eq!(
        out,
        "launch: cudaSuccess\n\
         synchronize: an illegal memory access was encountered\n\
         malloc: cudaErrorIllegalAddress\n\
         reset: cudaSuccess\n\
         malloc: cudaSuccess\n"
    );
    let line = said.strip_suffix('\n').expect("a line");
    assert!(!line.contains('\n'), "{said}");
    assert!(
        line.starts_with(
            "warpbpf soft GPU: kernel `_Z5strayPii`, block (2,0,0), thread (2,0,0), PTX line "
        ),
        "{line}"
    );
    assert!(line.contains("4-byte store"), "{line}");
}

#[test]
fn a_kernel_can_wait_for_the_host() {
    let program = build("spin", &[]);
    let done = run(on_soft(&program).env("WARPBPF_SOFT_ASYNC", "1"));
    assert_eq!(
        texts(&done).0,
        "running: cudaErrorNotReady\ndone: cudaSuccess\nanswer 42\n"
    );
}

#[test]
fn a_kernel_that_never_ends_does_not_keep_the_process() {
    let program = build("never_ends", &[]);
    let done = on_soft(&program)
        .env("WARPBPF_SOFT_ASYNC", "1")
        .output()
        .expect("runs");
    assert_eq!(
        (done.status.code(), texts(&done).0),
        (Some(7), "launched: cudaSuccess\n".into())
    );
}

#[test]
fn the_runtime_needs_a_driver_of_its_age() {
    let program = build("vector_add", &["-O2"]);
    let folder = temporary("no_driver");
    run(Command::new("cc")
        .args(["-shared", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(Path::new(HERE).join("tests/programs/no_driver.c")));
    std::fs::copy(
        soft().join("libcudart.so.13"),
        folder.join("libcudart.so.13"),
    )
    .expect("copy");
    let done = on_soft(&program)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("runs");
    let (out, said) = texts(&done);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        out.contains("cudaErrorInsufficientDriver (CUDA driver version is insufficient"),
        "{out}"
    );
    assert_eq!(
        said,
        "warpbpf soft GPU: the CUDA driver has no `cuInit`: it is older than CUDA 13\n"
    );
}

#[test]
fn the_injected_library_is_called_inside_cu_init() {
    let program = build("vector_add", &["-O1"]);
    let library = temporary("injected").join("libinjected.so");
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(Path::new(HERE).join("tests/programs/injected.c")));
    let done = run(on_soft(&program).env("CUDA_INJECTION64_PATH", &library));
    assert_eq!(
        texts(&done),
        (
            "vector_add: 10000 elements, 0 wrong\n".into(),
            "injected: version 13000, init 0\n".into()
        )
    );
    let done = on_soft(&program)
        .env("CUDA_INJECTION64_PATH", "/nowhere/at.all")
        .output()
        .expect("runs");
    let (out, said) = texts(&done);
    assert_eq!(done.status.code(), Some(1));
    assert!(out.contains("cudaErrorSharedObjectInitFailed"), "{out}");
    assert!(
        said.starts_with(
            "warpbpf soft GPU: CUDA_INJECTION64_PATH=`/nowhere/at.all` cannot be loaded: "
        ),
        "{said}"
    );
}

/// The texts beside these programs are what they print on an H200.
#[test]
fn tensor_copies_as_on_the_h200() {
    let program = build("tma", &["-w"]);
    let (out, said) = texts(&run(&mut on_soft(&program)));
    assert_eq!(out, include_str!("../programs/tma.txt"));
    let first = "warpbpf soft GPU: a tensor map cannot be encoded: data type `99` does not exist\n";
    assert!(said.starts_with(first), "{said}");
    assert_eq!(said.lines().count(), 13, "{said}");
}

#[test]
fn textures_and_surfaces_as_on_the_h200() {
    let program = build("textures", &["-w"]);
    let (out, said) = texts(&run(&mut on_soft(&program)));
    assert_eq!(out, include_str!("../programs/textures.txt"));
    assert!(
        said.contains(
            "4-byte store at byte 0, row 4, slice 0, layer 0 is out of bounds: the surface has rows of 64 bytes"
        ),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_not_there_says_so_by_name() {
    let program = build("refused", &["-w"]);
    let (out, said) = texts(&run(&mut on_soft(&program)));
    assert_eq!(
        out,
        "tensor maps: 801 801 801 801 1 1 1 0 801\n\
         arrays: cudaErrorNotSupported cudaErrorNotSupported cudaErrorInvalidValue cudaSuccess\n\
         textures: cudaErrorNotSupported cudaErrorNotSupported cudaErrorNotSupported cudaErrorInvalidValue \
         cudaErrorInvalidValue\n"
    );
    let map = |reason: &str| format!("a tensor map cannot be encoded: {reason}");
    let lines = [
        map("CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B is not there"),
        map("CU_TENSOR_MAP_INTERLEAVE_16B is not there"),
        map("CU_TENSOR_MAP_INTERLEAVE_32B is not there"),
        map("CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B is not there"),
        map("rank `2` is not 3 to 5"),
        map("`pixelBoxLowerCorner` of `-200` is not -128 to 127"),
        map("`16` channels of `2000` pixels are not 1 to 256 of 1 to 1024"),
        map("im2col wide mode needs a device of capability 10.0"),
        "mipmapped arrays are not there".into(),
        "array flags `0x4` are not there: cubemaps, depth textures, colour attachments and sparse or deferred mapping"
            .into(),
        "textures with CU_TRSF_SRGB are not there".into(),
        "texture objects with a resource view are not there".into(),
        "textures of mipmapped arrays are not there".into(),
    ];
    let wanted: String = lines
        .iter()
        .map(|line| format!("warpbpf soft GPU: {line}\n"))
        .collect();
    assert_eq!(said, wanted);
}

#[test]
fn each_library_exports_its_own_names_only() {
    for (library, own) in [("libcuda.so.1", "cu"), ("libcudart.so.13", "cuda")] {
        let listed = run(Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(soft().join(library)));
        let (names, _) = texts(&listed);
        let names: Vec<&str> = names
            .lines()
            .filter_map(|line| line.rsplit(' ').next())
            .collect();
        assert!(names.len() > 150, "{library} exports {} names", names.len());
        for name in names.iter().filter(|name| !name.starts_with("libcudart")) {
            let bare = name.strip_prefix("__").unwrap_or(name);
            let driver =
                bare.starts_with("cu") && bare[2..].starts_with(|c: char| c.is_ascii_uppercase());
            assert_eq!(driver, own == "cu", "{library} exports `{name}`");
            assert_eq!(name.ends_with("@@libcudart.so.13"), own == "cuda", "{name}");
        }
    }
}

#[test]
fn calls_work_until_the_process_is_gone() {
    let program = build("exits", &[]);
    let places = [
        "main",
        "thread",
        "thread-local object",
        "key",
        "key",
        "thread-local object of the first thread",
        "exit handler",
        "static object",
    ];
    let lines = places.iter().enumerate();
    let expected: String = lines
        .map(|(n, place)| format!("{place}: 0 0 0 0, device 0, {}\n", 64 * (n + 1)))
        .collect();
    for background in ["0", "1"] {
        let done = run(on_soft(&program).env("WARPBPF_SOFT_ASYNC", background));
        assert_eq!(texts(&done), (expected.clone(), String::new()));
    }
}

#[test]
fn programs_of_several_parts_are_linked_and_launch_kernels_from_kernels() {
    let other = Path::new(HERE).join("tests/programs/parts_other.cu");
    let other = other.to_str().expect("a path");
    let program = build("parts", &["-rdc=true", "-lcudadevrt", other]);
    // 2 children of 32 threads, each of whose blocks launches 2 blocks, twice.
    let expected = "0 0 0: 103 229, 1056 2112 4224\n";
    assert_eq!(
        texts(&run(&mut on_soft(&program))),
        (expected.into(), String::new())
    );
}

/// Exported functions and the types of their parameters, with their names, as the tables of the two
/// libraries have them.
fn signatures(table: &'static str) -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut found = Vec::new();
    for row in table.split(';') {
        // A row's name is the last word before its first parenthesis, or the one before `/
        // PER_THREAD`.
        let Some((before, rest)) = row.split_once('(') else {
            continue;
        };
        let Some((parameters, _)) = rest.split_once(")") else {
            continue;
        };
        let before = before.split('/').next().unwrap_or(before);
        let name = before.split_whitespace().last().unwrap_or("");
        if !name.trim_start_matches('_').starts_with("cu") || !row.contains('=') {
            continue;
        }
        let parameters = parameters.split(',').filter_map(|one| {
            let (name, ty) = one.split_once(':')?;
            Some((name.trim(), ty.trim()))
        });
        found.push((name, parameters.collect()));
    }
    found
}

/// Calls with nulls, with pointers to zeroes, and with numbers that no enumeration and no handle
/// has.
fn odd_calls(name: &str, parameters: &[(&str, &str)]) -> Vec<String> {
    let is_pointer = |ty: &str| ty.starts_with('*');
    // They say how much is behind a pointer, or call what they are given.
    let is_size = |name: &str, ty: &str| {
        ty.contains("usize")
            || ["count", "length", "room"]
                .iter()
                .any(|part| name.contains(part))
    };
    let calls_back = |ty: &str| {
        ty.contains("Function") || ty.contains("Callback") || ty.contains("BlockToShared")
    };
    // Two words of an argument, `dim3`.
    let parameters = parameters.iter().flat_map(|parameter| match parameter.1 {
        "Dim3" => vec![*parameter; 2],
        _ => vec![*parameter],
    });
    let parameters: Vec<(&str, &str)> = parameters.collect();
    let plain: Vec<&str> = parameters
        .iter()
        .map(|(_, ty)| if is_pointer(ty) { "p" } else { "0" })
        .collect();
    let mut calls = vec![name.to_owned(), format!("{name} {}", plain.join(" "))];
    let is_number =
        |parameter: &str, ty: &str| !is_pointer(ty) && !calls_back(ty) && !is_size(parameter, ty);
    for most in ["0x7fffffff", "-1"] {
        let all = parameters.iter().zip(&plain);
        let all = all.map(|((parameter, ty), plain)| match is_number(parameter, ty) {
            true => most,
            false => *plain,
        });
        calls.push(format!("{name} {}", all.collect::<Vec<_>>().join(" ")));
    }
    for (at, (parameter, ty)) in parameters.iter().enumerate() {
        let values: &[&str] = match () {
            () if calls_back(ty) || is_size(parameter, ty) => &[],
            () if is_pointer(ty) => &["0"],
            () if *ty == "Handle" => &["0x123456789", "1"],
            () => &["1", "-1", "0x7fffffff", "77"],
        };
        for value in values {
            let mut arguments = plain.clone();
            arguments[at] = value;
            calls.push(format!("{name} {}", arguments.join(" ")));
        }
    }
    calls
}

#[test]
fn every_function_tolerates_nulls_and_what_no_enumeration_has() {
    use std::io::Write;
    let program = temporary("nulls").join("nulls");
    run(Command::new("cc")
        .args(["-w", "-o"])
        .arg(&program)
        .arg(Path::new(HERE).join("tests/programs/nulls.c"))
        .arg("-ldl"));
    for (library, table, least) in [
        (
            "libcuda.so.1",
            include_str!("../../src/driver/table.rs"),
            280,
        ),
        (
            "libcudart.so.13",
            include_str!("../../src/runtime/table.rs"),
            200,
        ),
    ] {
        let functions = signatures(table);
        assert!(
            functions.len() > least,
            "{library}: {} rows are read",
            functions.len()
        );
        let calls = functions
            .iter()
            .flat_map(|(name, parameters)| odd_calls(name, parameters));
        let calls: Vec<String> = calls.collect();
        let mut child = on_soft(&program)
            .arg(library)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        let mut input = child.stdin.take().expect("piped");
        input
            .write_all(calls.join("\n").as_bytes())
            .expect("written");
        drop(input);
        let done = child.wait_with_output().expect("ends");
        let expected = format!("{} calls\n", calls.len());
        assert_eq!(texts(&done).0, expected, "{library}");
    }
}

#[test]
fn parts_of_graphs_run_as_values_on_the_device_say() {
    let program = build("conditional", &["-rdc=true", "-lcudadevrt"]);
    let expected = "loop: 3 rounds, sum 30\n\
        again: 3 rounds, sum 30\n\
        copy: 3 rounds, sum 30\n\
        switch: 0 rounds, sum 1\n\
        switch: 0 rounds, sum 2\n\
        switch: 0 rounds, sum 4\n\
        switch: 0 rounds, sum 0\n\
        type 13\n\
        conditional node: cudaErrorInvalidValue\n\
        conditional node: cudaErrorInvalidValue\n\
        conditional node: cudaErrorInvalidValue\n";
    for background in ["0", "1"] {
        let done = run(on_soft(&program).env("WARPBPF_SOFT_ASYNC", background));
        assert_eq!(texts(&done), (expected.into(), String::new()));
    }
}
