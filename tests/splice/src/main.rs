//! Kernels with probes in their machine code, on a GPU: the same results as without, and exact
//! counts.
//!
//! It loads cubins with the driver as an application would, so it needs a GPU; the soft one runs
//! PTX only.

#[path = "../../../xtask/src/say.rs"]
#[macro_use]
mod say;

mod accesses;

use std::path::Path;
use std::ptr;

use warpbpf_driver::{Driver, DriverError, Function, Module, Stream, open, sys};
use warpbpf_sass::{Hook, Probe, Spliced, splice};

/// Threads of a block, and blocks: a few for each multiprocessor.
const BLOCK: u32 = 256;
const GRID: u32 = 528;
const THREADS: u64 = BLOCK as u64 * GRID as u64;
/// Outputs per thread: the kernel with the most.
const OUTPUTS: u64 = 48;
/// Bytes that a probe counts in.
const COUNTS: usize = 128;
/// Launches of each kernel with each pair of probes: a register that is changed too early is not
/// changed so each time.
const ROUNDS: u32 = 20;

const KERNELS: &[&str] = &[
    "vecadd",
    "together",
    "registers",
    "exits",
    "stack",
    "calls",
    "table",
];
/// Probes at entry and exit.
const PAIRS: &[(Option<&str>, Option<&str>)] = &[
    (Some("count"), None),
    (None, Some("count")),
    (Some("count"), Some("count")),
    (Some("clobber"), Some("clobber")),
    (Some("branches"), Some("branches")),
    (Some("branches"), Some("clobber")),
    (Some("keeps"), None),
    (Some("keeps"), Some("keeps")),
    (Some("yields"), None),
    (Some("yields"), Some("yields")),
];

const USAGE: &str = "\
usage: warpbpf-splice FOLDER-OF-CUBINS
       warpbpf-splice memory FOLDER-OF-CUBINS [KERNEL PROBE]
       warpbpf-splice make CUBIN KERNEL PROBES ENTRY|- EXIT|- USERDATA INTO
       warpbpf-splice make-memory CUBIN KERNEL PROBES PROBE USERDATA INTO

The first runs kernels with probes at entry and exits. The second runs kernels with probes at their loads and stores, each in a process of its own, or one of them. The others write a cubin with functions of the cubin PROBES in one kernel, and need no GPU.
";

fn main() -> std::process::ExitCode {
    say::status(work())
}

fn work() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["make", rest @ ..] if rest.len() == 7 => make(rest),
        ["make-memory", rest @ ..] if rest.len() == 6 => accesses::make(rest),
        ["memory", folder] => accesses::run(Path::new(folder)),
        ["memory", folder, kernel, probe] => accesses::one(Path::new(folder), kernel, probe),
        [folder] => run(Path::new(folder)),
        _ => {
            crate::say::write(2, format_args!("{USAGE}"));
            return std::process::ExitCode::from(2);
        }
    };
    match done {
        Ok(told) => {
            say!("{told}");
            std::process::ExitCode::SUCCESS
        }
        Err(reason) => {
            say!("FAIL  {reason}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes one cubin.
fn make(words: &[&str]) -> Result<String, String> {
    let &[cubin, kernel, probes, entry, exit, userdata, into] = words else {
        return Err(USAGE.to_owned());
    };
    let userdata = hexadecimal(userdata)?;
    let (cubin, probes) = (read(Path::new(cubin))?, read(Path::new(probes))?);
    let parse = |name: &str| {
        let parsed = (name != "-").then(|| Probe::parse(&probes, name));
        parsed.transpose().map_err(|e| e.to_string())
    };
    let (entry, exit) = (parse(entry)?, parse(exit)?);
    let hook = |probe| Hook { probe, userdata };
    let spliced = splice(
        &cubin,
        kernel,
        entry.as_ref().map(hook),
        exit.as_ref().map(hook),
    )
    .map_err(|e| e.to_string())?;
    written(kernel, &spliced, into)
}

fn hexadecimal(number: &str) -> Result<u64, String> {
    let digits = number.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|e| format!("`{number}`: {e}"))
}

/// Writes a cubin, and says what was changed of the kernel.
fn written(kernel: &str, spliced: &Spliced, into: &str) -> Result<String, String> {
    std::fs::write(into, &spliced.cubin).map_err(|e| format!("{into}: {e}"))?;
    let change = &spliced.change;
    let ((old, new), (before, after)) = (change.registers, change.code_bytes);
    Ok(format!(
        "{kernel}: {old} -> {new} registers, {before} -> {after} bytes of code, {} more bytes of stack, {} exits, {} accesses, {} instructions with a barrier",
        change.stack,
        change.exits.len(),
        change.accesses.len(),
        change.guarded
    ))
}

fn run(folder: &Path) -> Result<String, String> {
    let Ok(driver) = open("libcuda.so.1") else {
        return Ok("skipped: no GPU".to_owned());
    };
    if driver.init().is_err() || driver.device_count() == Ok(0) {
        return Ok("skipped: no GPU".to_owned());
    }
    let say = |e: DriverError| e.to_string();
    let info = driver.device_info(0).map_err(say)?;
    let sm = info.capability.0 * 10 + info.capability.1;
    if !matches!(sm, 80 | 90) {
        return Ok(format!("skipped: {} is neither sm_80 nor sm_90", info.name));
    }
    let kernels = read(&folder.join(format!("kernels.sm_{sm}.cubin")))?;
    let probes = read(&folder.join(format!("probes.sm_{sm}.cubin")))?;
    let context = driver.retain_primary(0).map_err(say)?;
    driver.set_current(context).map_err(say)?;
    let bench = Bench::new(driver).map_err(say)?;
    let mut launches = 0;
    for kernel in KERNELS {
        let plain = bench.load(&kernels).map_err(say)?;
        let function = driver.function(plain, kernel).map_err(say)?;
        let expected = bench.launch(function).map_err(say)?;
        let registers = driver
            .attribute(function, sys::FUNC_REGISTERS)
            .map_err(say)?;
        for pair in PAIRS {
            let case = Case {
                kernel,
                pair: *pair,
            };
            let told = |reason: String| format!("{kernel} with {pair:?}: {reason}");
            bench
                .check(&kernels, &probes, &case, &expected, registers)
                .map_err(told)?;
            launches += ROUNDS;
        }
    }
    Ok(format!(
        "{} kernels, {launches} launches with probes, each of {THREADS} threads",
        KERNELS.len()
    ))
}

struct Case<'a> {
    kernel: &'a str,
    pair: (Option<&'a str>, Option<&'a str>),
}

struct Bench {
    driver: Driver,
    stream: Stream,
    input: u64,
    output: u64,
    /// Where the probes at entry count, and those at exit.
    counts: [u64; 2],
}

impl Bench {
    fn new(driver: Driver) -> Result<Bench, DriverError> {
        let stream = driver.stream()?;
        let alloc = |bytes: u64| driver.alloc_zeroed(bytes, stream);
        let bench = Bench {
            driver,
            stream,
            input: alloc(4 * THREADS)?,
            output: alloc(4 * OUTPUTS * THREADS)?,
            counts: [alloc(COUNTS as u64)?, alloc(COUNTS as u64)?],
        };
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let input: Vec<u8> = (0..THREADS)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state as u32).to_le_bytes()
            })
            .collect();
        driver.write(bench.input, &input, stream)?;
        Ok(bench)
    }

    fn load(&self, cubin: &[u8]) -> Result<Module, DriverError> {
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole ELF, whose length is in it; no options.
        let code = unsafe {
            (self.driver.api.module_load)(
                &mut module,
                cubin.as_ptr().cast(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if code == 0 {
            return Ok(Module(module));
        }
        Err(DriverError {
            call: "cuModuleLoadDataEx",
            code,
            name: self.driver.error_name(code),
            detail: String::new(),
        })
    }

    /// The output of one launch over cleared memory.
    fn launch(&self, function: Function) -> Result<Vec<u8>, DriverError> {
        let bytes = (4 * OUTPUTS * THREADS) as usize;
        let mut output = vec![0; bytes];
        self.driver.write(self.output, &output, self.stream)?;
        let mut arguments = [self.output, self.input, THREADS];
        // SAFETY: the kernels take (out, in, n) and stay within both.
        unsafe {
            self.driver.launch(
                function,
                [GRID, 1, 1],
                [BLOCK, 1, 1],
                self.stream,
                &mut arguments,
            )?;
        }
        self.driver.wait(self.stream)?;
        self.driver.read(self.output, &mut output, self.stream)?;
        Ok(output)
    }

    fn check(
        &self,
        kernels: &[u8],
        probes: &[u8],
        case: &Case<'_>,
        expected: &[u8],
        registers: i32,
    ) -> Result<(), String> {
        let say = |e: DriverError| e.to_string();
        let parse = |name: Option<&str>| {
            let parsed = name.map(|name| Probe::parse(probes, name));
            parsed.transpose().map_err(|e| e.to_string())
        };
        let (entry, exit) = (parse(case.pair.0)?, parse(case.pair.1)?);
        let hook = |probe, userdata| Hook { probe, userdata };
        let spliced = splice(
            kernels,
            case.kernel,
            entry.as_ref().map(|p| hook(p, self.counts[0])),
            exit.as_ref().map(|p| hook(p, self.counts[1])),
        )
        .map_err(|e| e.to_string())?;
        let module = self.load(&spliced.cubin).map_err(say)?;
        let function = self.driver.function(module, case.kernel).map_err(say)?;
        let now = self
            .driver
            .attribute(function, sys::FUNC_REGISTERS)
            .map_err(say)?;
        if now != registers.max(24) {
            return Err(format!("{now} registers, and {registers} before"));
        }
        for round in 0..ROUNDS {
            for counts in self.counts {
                self.driver
                    .write(counts, &[0; COUNTS], self.stream)
                    .map_err(say)?;
            }
            let output = self.launch(function).map_err(say)?;
            if let Some(at) = output.iter().zip(expected).position(|(a, b)| a != b) {
                return Err(format!("round {round}: byte {at:#x} of the output differs"));
            }
            let ends = [(case.pair.0, self.counts[0]), (case.pair.1, self.counts[1])];
            for (probe, counts) in ends {
                self.counted(probe, counts, counts == self.counts[0])?;
            }
        }
        self.driver.unload(module).map_err(say)
    }

    /// What a probe must have counted.
    fn counted(&self, probe: Option<&str>, counts: u64, at_entry: bool) -> Result<(), String> {
        let mut bytes = [0; COUNTS];
        let read = self.driver.read(counts, &mut bytes, self.stream);
        read.map_err(|e| e.to_string())?;
        let word = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().unwrap_or([0; 8]);
            u64::from_le_bytes(bytes)
        };
        let place = if at_entry { "entry" } else { "exit" };
        let same = |what: &str, found: u64, expected: u64| {
            if found == expected {
                Ok(())
            } else {
                Err(format!("{what} at {place}: {found}, expected {expected}"))
            }
        };
        same(
            "threads",
            word(0),
            if probe.is_some() { THREADS } else { 0 },
        )?;
        match probe {
            Some("branches") => {
                // 0 + 1 + 2 + 3 for each four threads.
                same("the sum of tid.x & 3", word(8), THREADS / 4 * 6)?;
                same("threads with memory of their own", word(16), THREADS)
            }
            // 1 + 4 + 9 for each four threads.
            Some("keeps") => same("the sum of remainders", word(8), THREADS / 4 * 14),
            Some("count") if at_entry => same("the sum of places", word(24), 0),
            Some("count") if word(24) < THREADS * 16 => {
                Err(format!("the sum of places at exit: {}", word(24)))
            }
            _ => Ok(()),
        }
    }
}
