//! Kernels with probes at their loads and stores: what the probe is told, against what the twin of
//! the kernel says of itself; and the same results as without.
//!
//! Each case runs in a process of its own and for a limited time, so that an instruction which the
//! GPU refuses, or a warp that waits for ever, ends one case.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use warpbpf_driver::{DriverError, Function, open, sys};
use warpbpf_sass::{Change, Hook, Probe, splice_accesses};

use crate::{BLOCK, Bench, GRID, OUTPUTS, THREADS, USAGE, hexadecimal, read, written};

const KERNELS: &[&str] = &[
    "copy",
    "vecadd",
    "sizes",
    "guards",
    "diverge",
    "together",
    "registers",
    "stack",
    "calls",
    "barriers",
    "uniform",
    "exits",
    "table",
    "floats",
    "beside",
];
const PROBES: &[&str] = &["tells", "clobber", "branches", "keeps", "yields"];
/// Launches of each kernel with each probe.
const ROUNDS: u32 = 20;
/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes in which twins and probes tell of loads, and behind those of stores; then, by probes
/// alone, eight for each instruction of a kernel.
const TOLD: usize = 64;
const PLACES: usize = 128;
/// What they tell of each.
const TOLD_OF: [&str; 4] = ["accesses", "bytes", "addresses (xor)", "addresses (sum)"];

/// Runs all cases and prints a table.
pub fn run(folder: &Path) -> Result<String, String> {
    let kernels = read(&folder.join("accesses.sm_90.cubin"))?;
    let probes = read(&folder.join("access_probes.sm_90.cubin"))?;
    if let Some(why) = skipped() {
        return Ok(why);
    }
    say!("kernel     probe     places others guarded stack registers  result");
    let (mut right, mut all) = (0, 0);
    for kernel in KERNELS {
        for name in PROBES {
            let probe = Probe::parse(&probes, name).map_err(|e| e.to_string())?;
            let hook = Hook {
                probe: &probe,
                userdata: 0,
            };
            let change = match splice_accesses(&kernels, kernel, hook) {
                Ok(spliced) => spliced.change,
                Err(refusal) => {
                    say!("{kernel:10} {name:9} refused: {refusal}");
                    continue;
                }
            };
            all += 1;
            let result = apart(folder, kernel, name);
            right += u32::from(result.is_ok());
            let (before, after) = change.registers;
            let result = result.unwrap_or_else(|reason| format!("FAIL: {reason}"));
            say!(
                "{kernel:10} {name:9} {:6} {:6} {:7} {:5} {before:4} -> {after:3}  {result}",
                change.accesses.len(),
                change.other_accesses,
                change.guarded,
                change.stack
            );
        }
    }
    let told = format!("{right} of {all} kernels with probes at their accesses are right");
    if right == all { Ok(told) } else { Err(told) }
}

/// Writes one cubin.
pub fn make(words: &[&str]) -> Result<String, String> {
    let &[cubin, kernel, probes, probe, userdata, into] = words else {
        return Err(USAGE.to_owned());
    };
    let (cubin, probes) = (read(Path::new(cubin))?, read(Path::new(probes))?);
    let probe = Probe::parse(&probes, probe).map_err(|e| e.to_string())?;
    let hook = Hook {
        probe: &probe,
        userdata: hexadecimal(userdata)?,
    };
    let spliced = splice_accesses(&cubin, kernel, hook).map_err(|e| e.to_string())?;
    written(kernel, &spliced, into)
}

/// Why nothing runs here.
fn skipped() -> Option<String> {
    let Ok(driver) = open("libcuda.so.1") else {
        return Some("skipped: no GPU".to_owned());
    };
    if driver.init().is_err() || driver.device_count() == Ok(0) {
        return Some("skipped: no GPU".to_owned());
    }
    let info = driver.device_info(0).ok()?;
    (info.capability != (9, 0)).then(|| format!("skipped: {} is not sm_90", info.name))
}

/// One case in a process of its own.
fn apart(folder: &Path, kernel: &str, probe: &str) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    command.arg("memory").arg(folder).args([kernel, probe]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let started = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if started.elapsed() > LIMIT {
            // It may have ended by now, and is waited for in any case.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not end in {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = child.wait_with_output().map_err(|e| e.to_string())?;
    let told = String::from_utf8_lossy(&done.stdout);
    let told = told.trim().trim_start_matches("FAIL").trim().to_owned();
    match done.status.success() {
        true => Ok(told),
        false => Err(format!("{told} ({})", done.status)),
    }
}

/// One kernel with one probe.
pub fn one(folder: &Path, kernel: &str, probe: &str) -> Result<String, String> {
    let say = |e: DriverError| e.to_string();
    let kernels = read(&folder.join("accesses.sm_90.cubin"))?;
    let probes = read(&folder.join("access_probes.sm_90.cubin"))?;
    let probe = Probe::parse(&probes, probe).map_err(|e| e.to_string())?;
    let driver = open("libcuda.so.1").map_err(|e| e.to_string())?;
    driver.init().map_err(say)?;
    let context = driver.retain_primary(0).map_err(say)?;
    driver.set_current(context).map_err(say)?;
    let bench = Bench::new(driver).map_err(say)?;

    let plain = bench.load(&kernels).map_err(say)?;
    let twin = bench.driver.function(plain, &format!("{kernel}_told"));
    let plain = bench.driver.function(plain, kernel).map_err(say)?;
    // A kernel has no more instructions than that.
    let bytes = PLACES + 8 * (1 << 16);
    let stream = bench.stream;
    let table = bench.driver.alloc_zeroed(bytes as u64, stream);
    let table = Table {
        bench: &bench,
        address: table.map_err(say)?,
        bytes,
    };
    let (expected, _) = table.launch(plain)?;
    let (output, told) = table.launch(twin.map_err(say)?)?;
    if output != expected {
        return Err("the twin gives another result".to_owned());
    }

    let hook = Hook {
        probe: &probe,
        userdata: table.address,
    };
    let spliced = splice_accesses(&kernels, kernel, hook).map_err(|e| e.to_string())?;
    let module = bench.load(&spliced.cubin).map_err(say)?;
    let function = bench.driver.function(module, kernel).map_err(say)?;
    let registers = bench.driver.attribute(function, sys::FUNC_REGISTERS);
    if registers.map_err(say)? != spliced.change.registers.1 as i32 {
        return Err("another number of registers".to_owned());
    }
    let mut count = 0;
    for round in 0..ROUNDS {
        let in_round = |reason: String| format!("round {round}: {reason}");
        let (output, found) = table.launch(function).map_err(in_round)?;
        if let Some(at) = output.iter().zip(&expected).position(|(a, b)| a != b) {
            return Err(in_round(format!("byte {at:#x} of the output differs")));
        }
        count = compare(&found, &told, &spliced.change).map_err(in_round)?;
    }
    Ok(format!(
        "right, {count} accesses in each of {ROUNDS} launches"
    ))
}

/// What the probe told is what the twin did, and the places fit; gives how many accesses there
/// were.
fn compare(found: &[u8], told: &[u8], change: &Change) -> Result<u64, String> {
    let mut count = 0;
    for (at, what) in [(0, "loads"), (TOLD, "stores")] {
        for (index, of) in TOLD_OF.iter().enumerate() {
            let at = at + 8 * index;
            let (found, expected) = (word(found, at), word(told, at));
            if found != expected {
                return Err(format!("{what}, {of}: {found:#x}, expected {expected:#x}"));
            }
        }
        count += word(found, at);
    }
    let mut stores = 0;
    for place in 0..(found.len() - PLACES) / 8 {
        let came = word(found, PLACES + 8 * place);
        let access = change.accesses.iter().find(|a| a.at == 16 * place as u64);
        match access {
            Some(access) if access.is_store => stores += came,
            Some(_) => {}
            None if came == 0 => {}
            None => {
                return Err(format!(
                    "{came} accesses at {:#x}, where none is",
                    16 * place
                ));
            }
        }
    }
    match word(found, TOLD) == stores {
        true => Ok(count),
        false => Err(format!("{stores} stores at their places")),
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 8].try_into().unwrap_or([0; 8]);
    u64::from_le_bytes(bytes)
}

/// Where probes and twins tell.
struct Table<'b> {
    bench: &'b Bench,
    address: u64,
    bytes: usize,
}

impl Table<'_> {
    /// Output and table of one launch over cleared memory.
    fn launch(&self, function: Function) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (driver, stream) = (&self.bench.driver, self.bench.stream);
        let say = |e: DriverError| e.to_string();
        let mut output = vec![0; (4 * OUTPUTS * THREADS) as usize];
        let mut told = vec![0; self.bytes];
        driver
            .write(self.bench.output, &output, stream)
            .map_err(say)?;
        driver.write(self.address, &told, stream).map_err(say)?;
        let mut arguments = [self.bench.output, self.bench.input, THREADS, self.address];
        // SAFETY: the kernels take (out, in, n, told) and stay within them.
        let launched = unsafe {
            driver.launch(
                function,
                [GRID, 1, 1],
                [BLOCK, 1, 1],
                stream,
                &mut arguments,
            )
        };
        launched.map_err(say)?;
        driver.wait(stream).map_err(say)?;
        driver
            .read(self.bench.output, &mut output, stream)
            .map_err(say)?;
        driver.read(self.address, &mut told, stream).map_err(say)?;
        Ok((output, told))
    }
}
