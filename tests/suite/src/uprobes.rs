//! Uprobes of Linux at functions of the driver that the agent hooks, set before it comes: programs
//! and uprobes both count all calls.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use serde_json::Value;

use crate::attach::{Application, Attached, BLOCKS, kernel, number, until_counted, value};
use crate::run::{Bench, Case, Told, same};

/// Threads of a launch of `step` in `live.cu`.
const THREADS: u64 = BLOCKS * 64;
/// What the uprobes are at: without it no kernel gets programs.
const FUNCTION: &str = "cuLaunchKernel";

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("linux: a uprobe that is there when we start", started),
        case("linux: a uprobe that is there when we attach", attached),
    ]
}

/// A uprobe in all processes that map a file, until it is dropped: an event for each processor.
struct Uprobe(Vec<File>);

impl Uprobe {
    /// At a function of a library; an error may begin with `skipped: `.
    fn at(library: &Path, function: &str) -> Result<Uprobe, String> {
        let offset = offset_of(library, function)?;
        let read = |path: &str| {
            let text = std::fs::read_to_string(path);
            text.map_err(|e| format!("skipped: this Linux has no uprobes by events: {path}: {e}"))
        };
        let kind = read("/sys/bus/event_source/devices/uprobe/type")?;
        let kind: u32 = kind.trim().parse().map_err(|_| kind)?;
        let path = library.display().to_string() + "\0";
        // `perf_event_attr` of its first version but for `config2`: type, size, then the path and
        // the place in it.
        let mut words = [0u64; 14];
        words[0] = u64::from(kind) | (size_of_val(&words) as u64) << 32;
        words[7] = path.as_ptr() as u64;
        words[8] = offset;
        let open = |processor: usize| {
            let (all, nobody, cloexec) = (-1i32, -1i32, 8u64);
            // SAFETY: the kernel reads the words and the path, which are there, and gives a
            // descriptor.
            let fd = unsafe {
                let number = libc::SYS_perf_event_open;
                let processor = processor as i32;
                libc::syscall(number, words.as_ptr(), all, processor, nobody, cloexec)
            };
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                return Err(format!("skipped: Linux lets no uprobe be set: {error}"));
            }
            // SAFETY: it has just been opened, and nobody else knows it.
            Ok(unsafe { File::from_raw_fd(fd as i32) })
        };
        let online = read("/sys/devices/system/cpu/online")?;
        let processors = processors(online.trim()).ok_or(online)?;
        let events = processors.into_iter().map(open);
        Ok(Uprobe(events.collect::<Result<_, _>>()?))
    }

    /// Calls so far.
    fn calls(&mut self) -> Result<u64, String> {
        let mut sum = 0;
        for event in &mut self.0 {
            let mut word = [0; 8];
            event.read_exact(&mut word).map_err(|e| e.to_string())?;
            sum += u64::from_ne_bytes(word);
        }
        Ok(sum)
    }
}

/// Numbers of a list such as `0-3,5`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?)
    });
    let ranges: Option<Vec<_>> = ranges.collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Where a function that a library exports lies in its file.
fn offset_of(library: &Path, function: &str) -> Result<u64, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", library.display());
    let bytes = std::fs::read(library).map_err(|e| failed(&e))?;
    let elf: ElfFile64<'_, object::Endianness> =
        ElfFile64::parse(&*bytes).map_err(|e| failed(&e))?;
    let mut symbols = elf.dynamic_symbols();
    let symbol = symbols.find(|s| s.name() == Ok(function) && s.is_definition());
    let address = symbol.ok_or_else(|| failed(&"no such function"))?.address();
    let offset = elf.segments().find_map(|segment| {
        let into = address.checked_sub(segment.address())?;
        (into < segment.size()).then_some(segment.file_range().0 + into)
    });
    offset.ok_or_else(|| failed(&"the function is in no segment"))
}

/// A driver's library that has the uprobe, and the folder that it is in: on the soft GPU a copy, as
/// nobody else is to be counted.
fn driver(bench: &Bench, name: &str) -> Result<PathBuf, String> {
    const LIBRARY: &str = "libcuda.so.1";
    if bench.soft {
        let (from, to) = (bench.folder().join("soft"), bench.scratch(name));
        std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
        for library in [LIBRARY, "libcudart.so.13"] {
            std::fs::copy(from.join(library), to.join(library)).map_err(|e| e.to_string())?;
        }
        return Ok(to.join(LIBRARY));
    }
    let known = Command::new("ldconfig").arg("-p").output();
    let known = known.map_err(|e| format!("skipped: no `ldconfig`: {e}"))?;
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    let mut lines = known.lines().filter(|line| line.contains("x86-64"));
    let line = lines.find(|line| line.trim_start().starts_with(&format!("{LIBRARY} ")));
    let path = line.and_then(|line| line.split(" => ").nth(1));
    let path = path.ok_or("skipped: `ldconfig -p` knows no driver")?;
    std::fs::canonicalize(path).map_err(|e| e.to_string())
}

/// The uprobe, and the application with the driver that has it.
struct Probed {
    uprobe: Uprobe,
    folder: PathBuf,
    /// Calls for three launches and the five behind them.
    calls: u64,
}

const FIRST: u64 = 3;
const MORE: u64 = 5;

impl Probed {
    fn new(bench: &Bench, name: &str) -> Result<Probed, String> {
        let library = driver(bench, name)?;
        let uprobe = Uprobe::at(&library, FUNCTION)?;
        let folder = library.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut probed = Probed {
            uprobe,
            folder,
            calls: 0,
        };
        let mut application = Application::start(probed.alone(bench))?;
        application.launch(FIRST)?;
        application.launch(MORE)?;
        application.end()?;
        probed.calls = probed.uprobe.calls()?;
        // Each launch is one of both kernels.
        same("calls without programs", probed.calls, 2 * (FIRST + MORE))?;
        Ok(probed)
    }

    fn alone(&self, bench: &Bench) -> Command {
        let mut command = Command::new(bench.app("live"));
        if bench.soft {
            command.env("LD_LIBRARY_PATH", &self.folder);
        }
        command
    }

    /// The uprobe has counted all launches since `before`, and programs as many as the report says.
    fn agrees(&mut self, before: u64, launched: u64, report: &Value) -> Result<u64, String> {
        let calls = self.uprobe.calls()? - before;
        same("calls that the uprobe saw", calls, 2 * launched)?;
        let step = kernel(report, "step")?;
        let launches = number(&step["launches"]);
        let key = number(&step["id"]) * 8;
        let counted = [key, key + 4].map(|key| value(report, "counts", key));
        same("threads", counted, [launches * THREADS; 2])?;
        Ok(launches)
    }
}

fn started(bench: &Bench) -> Told {
    let mut probed = match Probed::new(bench, "started") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        probed => probed?,
    };
    let saved = bench.scratch("under-uprobe.json");
    let mut command = bench.warpbpf("run");
    if bench.soft {
        command.env("WARPBPF_SOFT_DIR", &probed.folder);
    }
    command.args(["--json", "-o"]).arg(&saved);
    command.arg(bench.object("scopes")).arg("--");
    command.arg(bench.app("live"));
    let mut application = Application::start(command)?;
    application.launch(FIRST)?;
    application.launch(MORE)?;
    application.end()?;
    let text = std::fs::read(&saved).map_err(|e| e.to_string())?;
    let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let launches = probed.agrees(probed.calls, FIRST + MORE, &report)?;
    same("launches with programs", launches, FIRST + MORE)?;
    Ok(format!("{launches} launches counted by both"))
}

fn attached(bench: &Bench) -> Told {
    let mut probed = match Probed::new(bench, "attached") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        probed => probed?,
    };
    let mut application = Application::start(probed.alone(bench))?;
    application.launch(FIRST)?;
    let code = application.driver_code()?;
    let tool = match Attached::start(bench, &application, "scopes") {
        Err(reason) if reason.starts_with("skipped: ") => return Ok(reason),
        tool => tool?,
    };
    until_counted(bench, &mut application, "counts")?;
    application.launch(MORE)?;
    let report = tool.interrupt()?;
    let back = application.driver_code()? == code;
    same("the driver's code is as before", back, true)?;
    application.launch(1)?;
    let launched = application.launches;
    application.end()?;
    let launches = probed.agrees(probed.calls, launched, &report)?;
    let uninstrumented = number(&kernel(&report, "step")?["uninstrumented"]);
    // Three came before, and one behind.
    let seen = launched - FIRST - 1;
    same(
        "launches with and without programs",
        launches + uninstrumented,
        seen,
    )?;
    same("some had programs", launches > MORE, true)?;
    Ok(format!(
        "{launches} launches of {launched} with programs, all seen by the uprobe"
    ))
}
