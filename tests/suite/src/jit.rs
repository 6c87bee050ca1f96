//! Kernels that are compiled while the application runs: each way in which NVRTC, nvJitLink and the
//! driver's linker hand them out, with exact counts.

use std::path::PathBuf;

use crate::run::{Bench, Case, Run, TOOLKIT, Told, same, says};

const LAUNCHES: u64 = 5;
const BLOCKS: u64 = 10;
const THREADS: u64 = 640;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("jit: PTX of NVRTC", |bench| {
            compiled(bench, "ptx", "PTX text")
        }),
        case("jit: machine code of NVRTC", |bench| {
            compiled(bench, "cubin", "NVRTC, PTX")
        }),
        case("jit: machine code of an NVRTC that comes late", |bench| {
            compiled(bench, "late", "NVRTC, PTX")
        }),
        case("jit: PTX of nvJitLink", |bench| {
            compiled(bench, "lto", "PTX text")
        }),
        case("jit: machine code of nvJitLink", linked),
        case("jit: the driver links a text", |bench| {
            by_driver(bench, "data")
        }),
        case("jit: the driver links a file of a text", |bench| {
            by_driver(bench, "file")
        }),
        case("jit: the driver links a text for few registers", |bench| {
            by_driver(bench, "bounded")
        }),
        case("jit: the driver links two texts", by_driver_of_two),
        case("jit: CuPy's kernels", cupy),
        case("jit: libraries come and go", libraries),
    ]
}

/// Where the compilers are.
fn folder(bench: &Bench) -> Option<PathBuf> {
    let toolkit = PathBuf::from(TOOLKIT);
    let mut all = [bench.folder().join("jit"), toolkit].into_iter();
    all.find(|folder| folder.join("libnvrtc.so.13").exists())
}

fn compiled(bench: &Bench, how: &str, source: &str) -> Told {
    let Some(folder) = folder(bench) else {
        return Ok("skipped: no NVRTC of CUDA 13".to_owned());
    };
    let (launches, folder) = (LAUNCHES.to_string(), folder.display().to_string());
    let run = bench.both("launchcount", "jit", &[how, &launches, &folder])?;
    counted(&run, "jit_add", source)
}

/// Who looks for compilers reads the linker's list while other threads load and unload libraries,
/// one of them with its program headers in no segment, as tools that edit files leave them.
fn libraries(bench: &Bench) -> Told {
    let from = bench.folder().join("apps/libothertool.so");
    let bytes = std::fs::read(&from).map_err(|e| format!("{}: {e}", from.display()))?;
    let odd = with_headers_at_the_end(bytes.clone()).ok_or("no program headers")?;
    let mut files = Vec::new();
    for (name, bytes) in [("plain", &bytes), ("odd", &odd), ("other", &odd)] {
        let file = bench.scratch(&format!("lib{name}.so"));
        std::fs::write(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
        files.push(file.display().to_string());
    }
    let mut arguments = vec!["3000"];
    arguments.extend(files.iter().map(String::as_str));
    let run = bench.both("launchcount", "libraries", &arguments)?;
    let errors = String::from_utf8_lossy(&run.output.stderr).into_owned();
    let launches = errors.lines().find_map(|l| l.strip_prefix("launches: "));
    let launches: u64 = launches.and_then(|n| n.parse().ok()).ok_or("no number")?;
    let kernel = run.kernel("together")?;
    same("launches", kernel["launches"].as_u64(), Some(launches))?;
    Ok(format!("{launches} launches beside 9000 loads"))
}

/// A file of 64 bits whose program headers are copied to its end.
fn with_headers_at_the_end(mut file: Vec<u8>) -> Option<Vec<u8>> {
    let number = |at: usize, size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(file.get(at..at + size)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    // `e_phoff`, `e_phentsize`, `e_phnum`
    let (at, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let headers = file.get(at..at + size * count)?.to_vec();
    file.resize(file.len().next_multiple_of(8), 0);
    let end = file.len() as u64;
    file.extend(headers);
    file[32..40].copy_from_slice(&end.to_le_bytes());
    Some(file)
}

/// Each launch of the kernel counted, and by which text.
fn counted(run: &Run, name: &str, source: &str) -> Told {
    let kernel = run.kernel(name)?;
    let told = kernel["source"].as_str().unwrap_or_default();
    says(told, source)?;
    same("method", &kernel["method"], &"slice".into())?;
    same("launches", &kernel["launches"], &LAUNCHES.into())?;
    same("uninstrumented", &kernel["uninstrumented"], &0.into())?;
    let entries = run.entries("kernels")?;
    let [(counted, value)] = entries.as_slice() else {
        return Err(format!("{} kernels counted", entries.len()));
    };
    same("kernel", counted.as_str(), Some(name))?;
    let counts = ["launches", "blocks", "threads"].map(|field| value[field].as_u64());
    let expected = [1, BLOCKS, THREADS].map(|each| Some(each * LAUNCHES));
    same("launches, blocks and threads", counts, expected)?;
    Ok(format!("{LAUNCHES} launches; {told}"))
}

/// Several texts, linked to machine code: there is no PTX of it, which is told.
fn linked(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and nothing else runs machine code without PTX".to_owned());
    }
    let Some(folder) = folder(bench) else {
        return Ok("skipped: no nvJitLink of CUDA 13".to_owned());
    };
    let (launches, folder) = (LAUNCHES.to_string(), folder.display().to_string());
    let run = bench.both("launchcount", "jit", &["linked", &launches, &folder])?;
    let kernel = run.kernel("jit_add")?;
    let method = kernel["method"].as_str().unwrap_or_default();
    says(method, "the image is a cubin: machine code without PTX")?;
    same(
        "uninstrumented",
        &kernel["uninstrumented"],
        &LAUNCHES.into(),
    )?;
    Ok(method.to_owned())
}

/// One text that the driver links. What the soft GPU's linker gives is the text.
fn by_driver(bench: &Bench, how: &str) -> Told {
    let source = if bench.soft {
        "PTX text 8.0 sm_80"
    } else {
        "linked, PTX 8.0 sm_80; cubin"
    };
    let run = bench.both("launchcount", "linked", &[how, &LAUNCHES.to_string()])?;
    counted(&run, "linked_add", source)
}

/// No one of several stands for what is linked, which is told.
fn by_driver_of_two(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and nothing else links several texts".to_owned());
    }
    let arguments = ["several", &LAUNCHES.to_string()];
    let run = bench.both("launchcount", "linked", &arguments)?;
    let kernel = run.kernel("linked_add")?;
    let method = kernel["method"].as_str().unwrap_or_default();
    let why = "the image is a cubin: machine code without PTX; its link was given 2 inputs";
    says(method, why)?;
    same(
        "uninstrumented",
        &kernel["uninstrumented"],
        &LAUNCHES.into(),
    )?;
    Ok(method.to_owned())
}

/// CuPy has NVRTC compile to machine code, without line information.
fn cupy(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and nothing else runs machine code without PTX".to_owned());
    }
    let script = (
        "cupy_kernels.py",
        include_str!("../../apps/cupy_kernels.py"),
    );
    let needs = ("cupy", "CUPY_CACHE_DIR");
    let run = bench.both_in_python(needs, "launchcount", script, &[&LAUNCHES.to_string()])?;
    let Some(run) = run else {
        return Ok("skipped: no CuPy".to_owned());
    };
    let entries = run.entries("kernels")?;
    for (name, threads) in [("ours_saxpy", Some(385 * 256)), ("ours_squares", None)] {
        let kernel = run.kernel(name)?;
        let told = kernel["source"].as_str().unwrap_or_default();
        says(told, "NVRTC, PTX")?;
        same("uninstrumented", &kernel["uninstrumented"], &0.into())?;
        same("launches", &kernel["launches"], &LAUNCHES.into())?;
        let counted = entries.iter().find(|(key, _)| key == name);
        let (_, value) = counted.ok_or("a kernel that was not counted")?;
        same(
            "counted launches",
            value["launches"].as_u64(),
            Some(LAUNCHES),
        )?;
        if let Some(threads) = threads {
            same(
                "threads",
                value["threads"].as_u64(),
                Some(LAUNCHES * threads),
            )?;
        }
    }
    Ok(format!(
        "{} kernels",
        run.process()["kernels"].as_array().map_or(0, Vec::len)
    ))
}
