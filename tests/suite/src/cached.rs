//! Kernels of which only Triton's cache has the PTX: found by their machine code when they are
//! loaded, and by their names in an application that runs already, if the user wants that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::attach::{Application, Attached, kernel, number, until_seen, value};
use crate::run::{Bench, Case, Told, same, says};

const KERNEL: &str = "cached_add";
/// Threads of a launch, each of which adds [`STEP`].
const THREADS: u64 = 4 * 64;
const STEP: u64 = 3;

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attach: a kernel of Triton's cache", late),
        case("attach: what Triton's cache does not tell", unsure),
        case("machine code: the PTX in Triton's cache", by_its_bytes),
    ]
}

/// A cache with one version of the kernel or several, each with its text.
fn cache(bench: &Bench, name: &str, versions: &[&str]) -> Result<PathBuf, String> {
    let folder = bench.scratch(name);
    let _ = std::fs::remove_dir_all(&folder);
    for version in versions {
        let into = folder.join(version);
        let said = |e: std::io::Error| format!("{}: {e}", into.display());
        std::fs::create_dir_all(&into).map_err(said)?;
        std::fs::copy(made(bench, version), into.join(format!("{KERNEL}.cubin"))).map_err(said)?;
        let text = match *version {
            "cached.other.cubin" => "cached.other.ptx",
            _ => "cached.ptx",
        };
        std::fs::copy(made(bench, text), into.join(format!("{KERNEL}.ptx"))).map_err(said)?;
    }
    Ok(folder)
}

fn made(bench: &Bench, name: &str) -> PathBuf {
    bench.folder().join("splice").join(name)
}

/// The application with a kernel of this file, and what it has been told.
struct Running {
    application: Application,
    launches: u64,
}

impl Running {
    fn start(bench: &Bench, file: &str, cache: &Path) -> Result<Running, String> {
        let mut command = Command::new(bench.app("cached"));
        command.arg(made(bench, file)).arg(KERNEL);
        command.env("TRITON_CACHE_DIR", cache);
        if bench.soft {
            command.env("LD_LIBRARY_PATH", bench.folder().join("soft"));
        }
        let mut running = Running {
            application: Application::start(command)?,
            launches: 0,
        };
        running.launch(2)?;
        Ok(running)
    }

    /// Its results are what they would be without us.
    fn launch(&mut self, count: u64) -> Result<(), String> {
        let said = self.application.ask(&count.to_string())?;
        self.launches += count;
        same("sum", said, (self.launches * THREADS * STEP).to_string())
    }

    /// Attaches, does something, and gives the report.
    fn attached(
        &mut self,
        bench: &Bench,
        flags: &[&str],
        work: impl FnOnce(&mut Running) -> Result<(), String>,
    ) -> Result<Value, String> {
        let pid = self.application.pid();
        let whom = [flags, &["-p", &pid]].concat();
        let attached = Attached::to(bench, &whom, "scopes")?;
        work(self)?;
        attached.interrupt()
    }
}

/// What a case is if this machine has no way in.
fn or_skipped(told: Told) -> Told {
    match told {
        Err(reason) if reason.starts_with("skipped: ") => Ok(reason),
        told => told,
    }
}

fn late(bench: &Bench) -> Told {
    or_skipped(found(bench))
}

fn found(bench: &Bench) -> Told {
    let cache = cache(bench, "triton-one", &["cached.cubin"])?;
    let mut running = Running::start(bench, "cached.cubin", &cache)?;
    let before = running.launches;
    let report = running.attached(bench, &["--caches"], |running| {
        let pid = running.application.pid();
        until_seen(bench, (&pid, "counts"), || running.launch(1))?;
        running.launch(20)
    })?;
    let kernel = kernel(&report, KERNEL)?;
    let source = kernel["source"].as_str().unwrap_or_default();
    says(source, "Triton's cache, PTX 9.0 sm_90; cubin, in `")?;
    says(source, "triton-one/cached.cubin/cached_add.cubin`")?;
    same("method", &kernel["method"], &"slice".into())?;
    let (launches, uninstrumented) = (
        number(&kernel["launches"]),
        number(&kernel["uninstrumented"]),
    );
    let made = running.launches - before;
    same(
        "launches with and without programs",
        launches + uninstrumented,
        made,
    )?;
    same("launches with programs", launches >= 21, true)?;
    let key = number(&kernel["id"]) * 8;
    for (at, what) in [(0, "threads at the entry"), (4, "threads at the exit")] {
        same(what, value(&report, "counts", key + at), launches * THREADS)?;
    }
    running.launch(1)?;
    running.application.end()?;
    Ok(format!("{launches} of {made} launches"))
}

fn unsure(bench: &Bench) -> Told {
    or_skipped(refused(bench))
}

/// Why the kernel gets no programs, once it has been looked for.
fn reason(bench: &Bench, running: &mut Running, flags: &[&str]) -> Result<String, String> {
    for pause in [0, 50, 200, 1000, 5000, 20_000] {
        let report = running.attached(bench, flags, |running| {
            running.launch(1)?;
            std::thread::sleep(Duration::from_millis(pause));
            running.launch(1)
        })?;
        // Launches in the first moments are not seen.
        let Ok(kernel) = kernel(&report, KERNEL) else {
            continue;
        };
        same("launches with programs", number(&kernel["launches"]), 0)?;
        let method = kernel["method"].as_str().unwrap_or_default();
        if !method.contains("was still being looked for") {
            return Ok(method.to_owned());
        }
    }
    Err("it was looked for all the time".to_owned())
}

fn refused(bench: &Bench) -> Told {
    let advice = "start the application under `warpbpf run`";
    let none = cache(bench, "triton-none", &[])?;
    let two = cache(bench, "triton-two", &["cached.cubin", "cached.other.cubin"])?;
    for (cache, flags, expected) in [
        (
            &two,
            &[][..],
            format!(
                "no file that is mapped has it (was it made at run time?); {advice}, or look for what Triton made by `--caches`"
            ),
        ),
        (
            &two,
            &["--caches"],
            format!(
                "2 kernels of this name in Triton's cache ({}) have its parameters and as many registers; {advice}",
                two.display()
            ),
        ),
        (
            &none,
            &["--caches"],
            format!(
                "neither a file that is mapped nor Triton's cache ({}) has it; {advice}",
                none.display()
            ),
        ),
    ] {
        let mut running = Running::start(bench, "cached.cubin", cache)?;
        let said = reason(bench, &mut running, flags)?;
        same(
            "method",
            said,
            format!("refused: it was loaded before, and {expected}"),
        )?;
        running.application.end()?;
    }
    Ok("three reasons".to_owned())
}

/// Machine code without PTX is known by its bytes; the other version's is another.
fn by_its_bytes(bench: &Bench) -> Told {
    if bench.soft {
        return Ok("skipped: no GPU, and the soft one runs no machine code".to_owned());
    }
    for (version, source) in [
        ("cached.bare.cubin", "Triton's cache, PTX 9.0 sm_90; cubin"),
        ("cached.cubin", "cubin"),
    ] {
        let cache = cache(bench, "triton-bare", &[version])?;
        let cache = cache.display().to_string();
        let bench = bench.with(&[("TRITON_CACHE_DIR", &cache)]);
        let file = made(&bench, "cached.bare.cubin").display().to_string();
        let mut command = bench.warpbpf("run");
        let saved = bench.scratch("bare.json");
        command.args(["--json", "-o"]).arg(&saved);
        command.arg(bench.object("scopes")).arg("--");
        command
            .arg(bench.app("cached"))
            .args([file.as_str(), KERNEL]);
        let mut application = Application::start(command)?;
        for launches in 1..=5 {
            let expected = (launches * THREADS * STEP).to_string();
            same("sum", application.ask("1")?, expected)?;
        }
        application.end()?;
        let text = std::fs::read(&saved).map_err(|e| format!("{}: {e}", saved.display()))?;
        let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let kernel = kernel(&report, KERNEL)?;
        same("source", &kernel["source"], &source.into())?;
        let probed = number(&kernel["launches"]);
        let expected = if version == "cached.cubin" { 0 } else { 5 };
        same("launches with programs", probed, expected)?;
        let key = number(&kernel["id"]) * 8;
        let threads = value(&report, "counts", key);
        same("threads at the entry", threads, probed * THREADS)?;
    }
    Ok("5 launches by the text, none by another version's".to_owned())
}
