//! `/proc/PID/maps` line by line, because several parts ask what lies where, each with a question
//! of its own. It is bytes and no text: a file may have any name.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// How the kernel writes a line's end within a name.
const LINE_END: &[u8] = b"\\012";

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping<'m> {
    /// Its addresses.
    pub range: Range<usize>,
    /// As `r-xp`.
    pub rights: &'m str,
    /// Where in the file it begins.
    pub offset: u64,
    /// As `08:01`.
    pub device: &'m str,
    /// The file's number on it.
    pub inode: u64,
    /// The last word, which may hold spaces; empty for memory of no file, and no path where it
    /// begins with `[`.
    pub name: &'m [u8],
}

impl<'m> Mapping<'m> {
    /// It is of a file.
    pub fn is_file(&self) -> bool {
        self.name.starts_with(b"/")
    }

    /// The file.
    pub fn path(&self) -> Cow<'m, Path> {
        let name = self.name;
        let ends = |at: &usize| name[*at..].starts_with(LINE_END);
        let Some(first) = (0..name.len()).find(ends) else {
            return Cow::Borrowed(Path::new(OsStr::from_bytes(name)));
        };
        let mut bytes = name[..first].to_vec();
        let mut at = first;
        while at < name.len() {
            let is_end = ends(&at);
            bytes.push(if is_end { b'\n' } else { name[at] });
            at += if is_end { LINE_END.len() } else { 1 };
        }
        Cow::Owned(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// Threads may run in it.
    pub fn is_code(&self) -> bool {
        self.rights.contains('x')
    }

    /// What cannot be read cannot be judged.
    pub fn is_readable_code(&self) -> bool {
        self.rights.starts_with('r') && self.is_code()
    }
}

/// Where that stands.
const OWN: &str = "/proc/thread-self/maps";

/// What this process has mapped.
///
/// # Errors
/// The system's, with the file's name.
pub fn own() -> Result<Vec<u8>, Unread> {
    read(OWN)
}

/// The same, from a file of this name.
///
/// # Errors
/// The system's, with the file's name.
pub fn read(path: &'static str) -> Result<Vec<u8>, Unread> {
    warpbpf_descriptor::read_file(path).map_err(|error| Unread {
        path,
        error: error.to_string(),
    })
}

/// Why it is not known what this process has mapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be read: {error}")]
pub struct Unread {
    path: &'static str,
    error: String,
}

/// All lines. One that cannot be read is passed over.
pub fn mappings(maps: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut word = || words.next().and_then(|word| std::str::from_utf8(word).ok());
        let (start, end) = word()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            range: address(start)?..address(end)?,
            rights: word()?,
            offset: u64::from_str_radix(word()?, 16).ok()?,
            device: word()?,
            inode: word()?.parse().ok()?,
            name: words.next().unwrap_or_default().trim_ascii_start(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let unread = read("/proc/none/maps").unwrap_err();
        assert_eq!(
            unread.to_string(),
            "`/proc/none/maps` cannot be read: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn lines_are_taken_apart() {
        let maps = b"\
7f0000000000-7f0000004000 r-xp 00001000 08:02 77                         /opt/my libs/a.so
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
damaged
7f0000005000-7f0000006000 r--p 00000000 00:00 0                          [vvar]
7f0000006000-7f0000007000 r--p 00000000 08:02 78                         /opt/\xff\\012b\\0123
";
        let all: Vec<Mapping<'_>> = mappings(maps).collect();
        let first = Mapping {
            range: 0x7f00_0000_0000..0x7f00_0000_4000,
            rights: "r-xp",
            offset: 0x1000,
            device: "08:02",
            inode: 77,
            name: b"/opt/my libs/a.so",
        };
        assert_eq!(all[0], first);
        let facts = all
            .iter()
            .map(|m| (m.is_file(), m.is_readable_code(), m.path()));
        let facts: Vec<_> = facts.collect();
        let path = |bytes: &'static [u8]| Cow::from(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(
            facts,
            [
                (true, true, path(b"/opt/my libs/a.so")),
                (false, false, path(b"")),
                (false, false, path(b"[vvar]")),
                // Whatever stands behind it, that is how a line's end is written.
                (true, false, path(b"/opt/\xff\nb\n3")),
            ]
        );
    }
}
