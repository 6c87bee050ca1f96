//! What `/proc` says of a process: what is mapped where, which threads it has, what they do.
//!
//! Names there are the process's own, so they are bytes and nothing is opened by them: what lies
//! behind a name may wait for ever (a FIFO, a file system of the process's own), or be a device.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<u64>,
    /// May be executed.
    pub code: bool,
    /// Where it begins in its file.
    pub offset: u64,
    /// Device and inode; inode 0 is no file.
    pub file: (String, u64),
    /// The file's path as the process sees it, or a name in brackets; may be empty.
    pub name: String,
}

impl Mapping {
    /// The last part of its path, without what the kernel adds to deleted files.
    pub fn file_name(&self) -> &str {
        let name = self.name.strip_suffix(" (deleted)").unwrap_or(&self.name);
        name.rsplit('/').next().unwrap_or(name)
    }
}

/// A text of `/proc`, whatever bytes are in it: names there need not be UTF-8.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
        // Lines and numbers stay what they are.
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    }))
}

/// The folder of `/proc` that has what belongs to a process as a whole. Where its first thread has
/// ended and others live, that is the folder of one of those: the first one's is empty.
pub fn folder(pid: u32) -> PathBuf {
    let whole = PathBuf::from(format!("/proc/{pid}"));
    if !has_ended(pid, pid) {
        return whole;
    }
    let living = living_thread(pid);
    living.map_or_else(
        || whole.clone(),
        |thread| whole.join(format!("task/{thread}")),
    )
}

/// A thread of a process that has not ended: the first one, if it has not.
pub(crate) fn living_thread(pid: u32) -> Option<u32> {
    let all = std::iter::once(pid).chain(threads(pid).unwrap_or_default());
    all.into_iter().find(|thread| !has_ended(pid, *thread))
}

fn has_ended(pid: u32, thread: u32) -> bool {
    matches!(state(pid, thread), 'Z' | 'X')
}

/// Some thread of the process lives.
pub fn lives(pid: u32) -> bool {
    living_thread(pid).is_some()
}

/// What is mapped, in order.
///
/// # Errors
/// The process is gone, or may not be looked into.
pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    Ok(parse_maps(&text(folder(pid).join("maps"))?))
}

/// A path as it stands in `/proc/PID/maps`.
pub(crate) fn in_maps(path: &Path) -> String {
    path.to_string_lossy().replace('\n', "\\012")
}

pub(crate) fn parse_maps(text: &str) -> Vec<Mapping> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let parse = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (low, high) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let offset = hex(words.next()?)?;
        let device = words.next()?.to_owned();
        let inode = words.next()?.parse().ok()?;
        Some(Mapping {
            range: hex(low)?..hex(high)?,
            code: rights.as_bytes().get(2) == Some(&b'x'),
            offset,
            file: (device, inode),
            name: words.next().unwrap_or("").trim_start().to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// A field of `/proc/PID/status`.
pub fn status_field(status: &str, field: &str) -> Option<String> {
    let line = status.lines().find(|line| {
        line.strip_prefix(field)
            .is_some_and(|rest| rest.starts_with(':'))
    })?;
    Some(line[field.len() + 1..].trim().to_owned())
}

/// The status of one thread.
pub(crate) fn thread_status(pid: u32, thread: u32) -> io::Result<String> {
    text(format!("/proc/{pid}/task/{thread}/status"))
}

/// Its threads that live.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut all: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    all.sort_unstable();
    Ok(all)
}

/// It is a zombie with all of its threads, or gone, or is so within a moment.
pub(crate) fn ends(pid: u32) -> bool {
    (0..20).any(|_| {
        let over = !lives(pid);
        if !over {
            std::thread::sleep(Duration::from_millis(5));
        }
        over
    })
}

/// What one word says of a thread: `R`, `S`, `D`, `Z` …; `X` if it is gone.
pub(crate) fn state(pid: u32, thread: u32) -> char {
    let status = thread_status(pid, thread).unwrap_or_default();
    status_field(&status, "State")
        .and_then(|state| state.chars().next())
        .unwrap_or('X')
}
