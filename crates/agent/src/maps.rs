//! `/proc/PID/maps` line by line, because several parts ask what lies where, each with a question of its own.
//!
//! Names of files are bytes. Linux writes a line's end in one as `\012`, and so do we with all that is no text, so that the rest can be read;
//! [`on_disk`] gives the file's name back.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// What is mapped in this process.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read() -> io::Result<String> {
    std::fs::read("/proc/self/maps").map(|bytes| as_text(&bytes))
}

/// Bytes that are no text as three octal digits behind a backslash.
fn as_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        text.push_str(part.valid());
        for byte in part.invalid() {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text
}

/// The file that is meant by a path in a text of maps.
pub(crate) fn on_disk(path: &str) -> PathBuf {
    let mut name = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind.first_chunk().filter(|_| *first == b'\\');
        let number = digits.and_then(|digits: &[u8; 3]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        name.push(number.unwrap_or(*first));
        rest = &behind[if number.is_some() { 3 } else { 0 }..];
    }
    OsString::from_vec(name).into()
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping<'m> {
    pub(crate) range: Range<usize>,
    /// As `r-xp`.
    pub(crate) rights: &'m str,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// As `08:01`.
    pub(crate) device: &'m str,
    pub(crate) inode: u64,
    /// The last word, which may hold spaces; empty for memory of no file, and no path where it begins with `[`.
    pub(crate) path: &'m str,
}

impl Mapping<'_> {
    /// It is of a file.
    pub(crate) fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    /// Threads may run in it.
    pub(crate) fn is_code(&self) -> bool {
        self.rights.contains('x')
    }

    /// What cannot be read cannot be judged.
    pub(crate) fn is_readable_code(&self) -> bool {
        self.rights.starts_with('r') && self.is_code()
    }
}

/// All of a text. A line that cannot be read is passed over.
pub(crate) fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            range: address(start)?..address(end)?,
            rights: words.next()?,
            offset: u64::from_str_radix(words.next()?, 16).ok()?,
            device: words.next()?,
            inode: words.next()?.parse().ok()?,
            path: words.next().unwrap_or_default().trim_start(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_found_again() {
        for name in [
            &b"/a/plain one"[..],
            b"/a/m\xff\xfe",
            b"/a/new\nline",
            b"/a/\xe4\xb8\xad\x80x",
            b"/a/back\\slash",
        ] {
            // As Linux writes it.
            let mut line = b"7f0000000000-7f0000001000 r-xp 00000000 08:01 77 ".to_vec();
            for byte in name {
                match byte {
                    b'\n' => line.extend(b"\\012"),
                    byte => line.push(*byte),
                }
            }
            line.extend(b"\n7f0000002000-7f0000003000 r-xp 00000000 08:01 78 /b\n");
            let text = as_text(&line);
            let paths: Vec<&str> = mappings(&text).map(|mapping| mapping.path).collect();
            assert_eq!(paths.len(), 2);
            assert_eq!(on_disk(paths[0]).into_os_string().into_vec(), name);
            assert_eq!(paths[1], "/b");
        }
    }

    #[test]
    fn lines_are_taken_apart() {
        let maps = "\
7f0000000000-7f0000004000 r-xp 00001000 08:02 77                         /opt/my libs/a.so
7f0000004000-7f0000005000 rw-p 00000000 00:00 0 
damaged
7f0000005000-7f0000006000 r--p 00000000 00:00 0                          [vvar]
";
        let all: Vec<Mapping<'_>> = mappings(maps).collect();
        let first = Mapping {
            range: 0x7f00_0000_0000..0x7f00_0000_4000,
            rights: "r-xp",
            offset: 0x1000,
            device: "08:02",
            inode: 77,
            path: "/opt/my libs/a.so",
        };
        assert_eq!(all[0], first);
        let facts = all
            .iter()
            .map(|m| (m.is_file(), m.is_readable_code(), m.path));
        let facts: Vec<_> = facts.collect();
        assert_eq!(
            facts,
            [
                (true, true, "/opt/my libs/a.so"),
                (false, false, ""),
                (false, false, "[vvar]")
            ]
        );
    }
}
