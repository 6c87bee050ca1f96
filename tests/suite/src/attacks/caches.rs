//! Folders of compiled code that others may have written to: what is in them would run with the
//! application's rights.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{ONLY_ROOT, SOMEBODY, each, is_root};
use crate::run::{Bench, Case, Run, Told, same, says};

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |name, check| Case { name, check };
    vec![
        case("attacks: folders of compiled code", folders),
        case("attacks: entries of compiled code", entries),
    ]
}

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

/// Runs with that folder, and computes the same.
fn run(bench: &Bench, folder: &Path) -> Result<Run, String> {
    let named = folder.display().to_string();
    let run = bench.both_with(&["--cache", &named], "scopes", "vectoradd", &["1000", "2"])?;
    same("status", run.output.status.code(), Some(0))?;
    same(
        "launches",
        run.process()["kernels"][0]["launches"].as_u64(),
        Some(2),
    )?;
    Ok(run)
}

fn cached(run: &Run) -> &Value {
    &run.process()["kernels"][0]["cached"]
}

fn fresh(bench: &Bench, name: &str) -> Result<PathBuf, String> {
    let folder = bench.scratch(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let own = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&folder, own).map_err(failed)?;
    Ok(folder)
}

fn folders(bench: &Bench) -> Told {
    let refused = |folder: &Path, why: &str| {
        let run = run(bench, folder)?;
        same("what is kept", cached(&run), &Value::Null)?;
        says(&run.notes(), why)?;
        Ok(format!("not used: {why}"))
    };
    let open = fresh(bench, "open")?;
    let mode = std::fs::Permissions::from_mode(0o770);
    std::fs::set_permissions(&open, mode).map_err(failed)?;
    let link = bench.scratch("link");
    let _ = std::fs::remove_file(&link);
    symlink(&open, &link).map_err(failed)?;
    let theirs = fresh(bench, "theirs")?;
    let to_theirs = bench.scratch("to-theirs");
    let _ = std::fs::remove_file(&to_theirs);
    symlink(&theirs, &to_theirs).map_err(failed)?;
    if is_root() {
        chown(&theirs, Some(SOMEBODY), None).map_err(failed)?;
    }
    let fifo = bench.scratch("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().map_err(failed)?;
    same("mkfifo", made.success(), true)?;
    let owner = format!("it belongs to user {SOMEBODY}, and this is user 0");
    let of_somebody = |folder: &Path| match is_root() {
        true => refused(folder, &owner),
        false => Ok(ONLY_ROOT.to_owned()),
    };
    each(&[
        ("a folder that a group may write to", &|| {
            refused(&open, "others may write to it (mode 770)")
        }),
        ("a link to a folder that a group may write to", &|| {
            refused(&link, "others may write to it (mode 770)")
        }),
        ("a folder of another user's", &|| of_somebody(&theirs)),
        ("a link to a folder of another user's", &|| {
            of_somebody(&to_theirs)
        }),
        ("a FIFO in place of a folder", &|| {
            refused(&fifo, "the folder for compiled code")
        }),
    ])
}

/// What was kept is replaced by something else; it is compiled anew, and what a link leads to is as
/// it was.
fn entries(bench: &Bench) -> Told {
    let precious = bench.scratch("precious");
    let replaced = |name: &str, by: &dyn Fn(&Path) -> Result<(), String>| {
        let folder = fresh(bench, name)?;
        same(
            "at first",
            cached(&run(bench, &folder)?),
            &Value::Bool(false),
        )?;
        std::fs::write(&precious, "mine").map_err(failed)?;
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                by(&entry.path())?;
                count += 1;
            }
        }
        same("entries", count > 0, true)?;
        same("then", cached(&run(bench, &folder)?), &Value::Bool(false))?;
        let kept = std::fs::read(&precious).map_err(failed)?;
        same("what a link leads to", kept.as_slice(), &b"mine"[..])?;
        Ok("compiled anew".to_owned())
    };
    let instead = |entry: &Path, make: &dyn Fn(&Path) -> Result<(), String>| {
        std::fs::remove_file(entry).map_err(failed)?;
        make(entry)
    };
    each(&[
        ("an entry that is a link", &|| {
            let link = |entry: &Path| symlink(&precious, entry).map_err(failed);
            replaced("links", &|entry| instead(entry, &link))
        }),
        ("an entry that is a FIFO", &|| {
            let fifo = |entry: &Path| {
                let made = Command::new("mkfifo").arg(entry).status().map_err(failed)?;
                same("mkfifo", made.success(), true)
            };
            replaced("fifos", &|entry| instead(entry, &fifo))
        }),
        ("an entry that is a folder", &|| {
            let folder = |entry: &Path| std::fs::create_dir(entry).map_err(failed);
            replaced("folders", &|entry| instead(entry, &folder))
        }),
        ("an entry that others may write to", &|| {
            replaced("open", &|entry| {
                let mode = std::fs::Permissions::from_mode(0o666);
                std::fs::set_permissions(entry, mode).map_err(failed)
            })
        }),
        ("an entry of another user's", &|| match is_root() {
            false => Ok(ONLY_ROOT.into()),
            true => replaced("given", &|entry| {
                chown(entry, Some(SOMEBODY), None).map_err(failed)
            }),
        }),
    ])
}
