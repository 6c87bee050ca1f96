//! Compiled code that is kept: found again, never trusted, and never in the way.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::Owned;
use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("cache: a second run compiles nothing", again),
        case("cache: many kernels, many times", many),
        case("cache: a damaged entry is compiled again", damaged),
        case("cache: a folder that cannot be used", unusable),
        case("cache: off", off),
        case("cache: several applications at once", at_once),
        case("cache: another driver", another_driver),
        case("cache: what a person does with it", tended),
    ]
}

/// Of `vectoradd 1000 4`.
const LAUNCHES: u64 = 4;
const BLOCKS: u64 = 4;

/// An empty folder for a case.
fn folder(bench: &Bench, name: &str) -> PathBuf {
    let folder = bench.scratch(&format!("cache-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn counted(bench: &Bench, cache: &Path) -> Result<Run, String> {
    let cache = cache.display().to_string();
    let flags = ["--cache", cache.as_str()];
    let run = bench.both_with(&flags, "scopes", "vectoradd", &["1000", "4"])?;
    let id = run.kernel("vectorAdd")?["id"].as_u64().ok_or("no number")?;
    let counts = [0, 2, 4, 6].map(|what| run.value("counts", id * 8 + what));
    let counts: Vec<u64> = counts.into_iter().collect::<Result<_, _>>()?;
    let (threads, blocks) = (LAUNCHES * BLOCKS * 256, LAUNCHES * BLOCKS);
    same("counts", counts, vec![threads, blocks, threads, blocks])?;
    Ok(run)
}

/// Whether the kernel's code was in the cache.
fn cached(run: &Run) -> Result<Option<bool>, String> {
    Ok(run.kernel("vectorAdd")?["cached"].as_bool())
}

/// Notes on compiled code.
fn said(run: &Run) -> String {
    let notes = run.notes();
    let ours = notes.lines().filter(|note| note.contains("compiled"));
    ours.collect::<Vec<_>>().join("\n")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = all.map(|file| file.path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == "code"));
    all.sort();
    all
}

fn again(bench: &Bench) -> Told {
    let folder = folder(bench, "again");
    let first = counted(bench, &folder)?;
    same("the first time", cached(&first)?, Some(false))?;
    same("notes", said(&first).as_str(), "")?;
    same("entries", files(&folder).len(), 1)?;
    let second = counted(bench, &folder)?;
    same("the second time", cached(&second)?, Some(true))?;
    same("notes", said(&second).as_str(), "")?;
    same("entries", files(&folder).len(), 1)?;
    // As a person reads it.
    let mut command = bench.warpbpf("run");
    command.arg("--cache").arg(&folder);
    command.arg(bench.object("scopes")).arg("--");
    command.arg(bench.app("vectoradd")).args(["1000", "4"]);
    let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    says(&text, "1 variant from the cache, 0 compiled")?;
    // Other options of the compiler make other code.
    let cache = folder.display().to_string();
    let flags = ["--cache", cache.as_str(), "--max-registers", "32"];
    let fewer = bench.both_with(&flags, "scopes", "vectoradd", &["1000", "4"])?;
    same("with fewer registers", cached(&fewer)?, Some(false))?;
    same("entries", files(&folder).len(), 2)?;
    Ok("1 compiled, then 2 from the cache".into())
}

/// Kernels in modules, libraries and clones. What a kernel's own variables are at is not ours to
/// choose, so on a GPU some may be compiled again.
fn many(bench: &Bench) -> Told {
    let folder = folder(bench, "many").display().to_string();
    let flags = ["--cache", folder.as_str()];
    let seen = |run: &Run| -> Vec<(String, Option<bool>)> {
        let kernels = run.process()["kernels"].as_array().into_iter().flatten();
        let row = |kernel: &Value| {
            let name = kernel["mangled"].as_str().unwrap_or_default();
            (name.to_owned(), kernel["cached"].as_bool())
        };
        kernels.map(row).collect()
    };
    let run = || bench.both_with(&flags, "scopes", "variants", &[]);
    let first = run()?;
    let before = seen(&first);
    let slices: Vec<&String> = before
        .iter()
        .filter(|k| k.1.is_some())
        .map(|k| &k.0)
        .collect();
    if slices.len() < 2 {
        return Err(format!("too few slices: {before:?}"));
    }
    let second = run()?;
    let kept = files(Path::new(&folder)).len();
    let hits = seen(&second).iter().filter(|k| k.1 == Some(true)).count();
    let least = if bench.soft {
        kept.min(slices.len())
    } else {
        1
    };
    if kept == 0 || hits < least {
        return Err(format!("{kept} entries, {hits} found: {:?}", seen(&second)));
    }
    same(
        "counts",
        second.entries("counts")?,
        first.entries("counts")?,
    )?;
    Ok(format!(
        "{} slices, {kept} kept, {hits} found again",
        slices.len()
    ))
}

fn damaged(bench: &Bench) -> Told {
    let folder = folder(bench, "damaged");
    let told = [
        ("a flipped bit", "its bytes are not those that were written"),
        ("cut short", "bytes where"),
        ("another kind of file", "it does not begin as an entry does"),
    ];
    counted(bench, &folder)?;
    for (number, (what, reason)) in told.into_iter().enumerate() {
        let file = files(&folder).pop().ok_or("nothing was kept")?;
        let whole = std::fs::read(&file).map_err(|e| e.to_string())?;
        let mut bytes = whole.clone();
        match number {
            0 => bytes[whole.len() - 2] ^= 1,
            1 => bytes.truncate(whole.len() - 1),
            _ => bytes[..4].copy_from_slice(b"\x7fELF"),
        }
        std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
        let run = counted(bench, &folder)?;
        same(what, cached(&run)?, Some(false))?;
        says(&run.notes(), "was damaged, taken away and compiled again")?;
        says(&run.notes(), reason)?;
        let after = counted(bench, &folder)?;
        same("afterwards", cached(&after)?, Some(true))?;
        same("notes", said(&after).as_str(), "")?;
    }
    // A file that somebody else could have written is not looked at, and stays.
    let file = files(&folder).pop().ok_or("nothing was kept")?;
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&file, open).map_err(|e| e.to_string())?;
    let run = counted(bench, &folder)?;
    same("a file of anybody", cached(&run)?, Some(false))?;
    says(&run.notes(), "is not used, as it could be anybody's")?;
    says(&run.notes(), "others may write to it (mode 666)")?;
    Ok("3 kinds of damage and a file of anybody's".into())
}

fn unusable(bench: &Bench) -> Told {
    let folder = folder(bench, "unusable");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let file = folder.join("file");
    std::fs::write(&file, "").map_err(|e| e.to_string())?;
    let open = folder.join("open");
    std::fs::create_dir(&open).map_err(|e| e.to_string())?;
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&open, mode).map_err(|e| e.to_string())?;
    for (place, reason) in [
        (
            file.join("below"),
            "cannot make the folder for compiled code",
        ),
        (open.clone(), "others may write to it (mode 777)"),
    ] {
        let run = counted(bench, &place)?;
        same("without a cache", cached(&run)?, None)?;
        says(&run.notes(), reason)?;
        says(&run.notes(), "kernels are compiled anew each time")?;
    }
    same(
        "files",
        std::fs::read_dir(&open).map_or(9, Iterator::count),
        0,
    )?;
    // A folder in which nobody can make a file.
    let run = counted(bench, Path::new("/proc"))?;
    same("what cannot be kept", cached(&run)?, Some(false))?;
    says(&run.notes(), "compiled code cannot be kept in `/proc`")?;
    Ok("3 folders".into())
}

fn off(bench: &Bench) -> Told {
    let folder = folder(bench, "off");
    let named = folder.display().to_string();
    let bench = bench.with(&[("WARPBPF_CACHE", &named)]);
    let run = counted(&bench, Path::new("off"))?;
    same("off", cached(&run)?, None)?;
    same("notes", said(&run).as_str(), "")?;
    same("the folder", folder.exists(), false)?;
    // The variable alone.
    for expected in [false, true] {
        let run = bench.both("scopes", "vectoradd", &["1000", "4"])?;
        same("by the variable", cached(&run)?, Some(expected))?;
    }
    Ok("by flag and variable".into())
}

fn at_once(bench: &Bench) -> Told {
    const APPLICATIONS: usize = 4;
    let folder = folder(bench, "at-once");
    let mut running = Vec::new();
    for number in 0..APPLICATIONS {
        let report = bench.scratch(&format!("cache-at-once-{number}.json"));
        let mut command = bench.warpbpf("run");
        command
            .arg("--cache")
            .arg(&folder)
            .arg("--json")
            .arg("-o")
            .arg(&report);
        command.arg(bench.object("scopes")).arg("--");
        command.arg(bench.app("variants"));
        command.stdout(std::process::Stdio::null());
        let child = Owned::spawn(&mut command).map_err(|e| format!("warpbpf: {e}"))?;
        running.push((child, report));
    }
    let mut counts = Vec::new();
    for (mut child, report) in running {
        let status = child.wait().map_err(|e| e.to_string())?;
        same("status", status.code(), Some(0))?;
        let text = std::fs::read(&report).map_err(|e| e.to_string())?;
        let report: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        if report["notes"].to_string().contains("compiled") {
            return Err(report["notes"].to_string());
        }
        let maps = report["processes"][0]["maps"].as_array().cloned();
        let map = |map: &Value| map["name"] == "counts";
        counts.push(maps.into_iter().flatten().find(map).ok_or("no counts")?["entries"].clone());
    }
    if counts.iter().any(|of| *of != counts[0]) {
        return Err(format!("different counts: {counts:?}"));
    }
    let verified = bench
        .warpbpf("cache")
        .arg("verify")
        .arg("--cache")
        .arg(&folder)
        .output();
    let verified = verified.map_err(|e| e.to_string())?;
    says(&String::from_utf8_lossy(&verified.stdout), "0 damaged")?;
    same("status of verify", verified.status.code(), Some(0))?;
    let kept = files(&folder).len();
    Ok(format!("{APPLICATIONS} applications, {kept} entries"))
}

fn another_driver(bench: &Bench) -> Told {
    if !bench.soft {
        return Ok("skipped: there is one driver".into());
    }
    let folder = folder(bench, "driver");
    counted(bench, &folder)?;
    let other = bench.with(&[("WARPBPF_SOFT_DRIVER", "13010")]);
    for (number, expected) in [false, true].into_iter().enumerate() {
        let run = counted(&other, &folder)?;
        same("with another driver", cached(&run)?, Some(expected))?;
        same("entries", files(&folder).len(), 2)?;
        same("notes", said(&run).as_str(), "").map_err(|e| format!("{number}: {e}"))?;
    }
    let run = counted(bench, &folder)?;
    same("with the first one", cached(&run)?, Some(true))?;
    Ok("2 drivers, 2 entries".into())
}

fn tended(bench: &Bench) -> Told {
    let folder = folder(bench, "tended");
    counted(bench, &folder)?;
    let ask = |words: &[&str]| -> Result<(String, Option<i32>), String> {
        let mut command = bench.warpbpf("cache");
        command.args(words).arg("--cache").arg(&folder);
        let output = command.output().map_err(|e| format!("warpbpf: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text, output.status.code()))
    };
    let file = files(&folder).pop().ok_or("nothing was kept")?;
    let bytes = std::fs::metadata(&file).map_err(|e| e.to_string())?.len();
    let (text, _) = ask(&["list"])?;
    says(&text, "1 kernel in ")?;
    says(&text, "vectorAdd")?;
    says(&text, "sm_90")?;
    let (text, _) = ask(&["--json"])?;
    let list: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    same("bytes", list["entries"][0]["bytes"].as_u64(), Some(bytes))?;
    let size = bytes.to_string();
    let (text, _) = ask(&["prune", "--cache-size", &size])?;
    same("prune", text.starts_with("0 bytes taken away"), true)?;
    std::fs::write(&file, "?").map_err(|e| e.to_string())?;
    let (text, status) = ask(&["verify"])?;
    says(&text, "1 kernel checked, 1 damaged and taken away")?;
    same("status", status, Some(1))?;
    counted(bench, &folder)?;
    let (text, status) = ask(&["clear"])?;
    says(&text, "0 are left")?;
    same("status", (status, files(&folder).len()), (Some(0), 0))?;
    let (text, _) = ask(&["list"])?;
    says(&text, "0 kernels in ")?;
    Ok("list, prune, verify, clear".into())
}
