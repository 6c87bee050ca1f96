//! `/proc/PID/maps` line by line, because several parts ask what lies where, each with a question of its own.

use std::ops::Range;

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
