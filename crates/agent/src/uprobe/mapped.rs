//! What lies where in the process.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use warpbpf_hook::maps::Mapping;
use warpbpf_hook::maps::mappings;

/// Where code of a file lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) address: usize,
    /// Bytes from there to the end of the mapping.
    pub(crate) left: usize,
}

/// The address at which code of a file lies, by a `/proc/PID/maps` text; `place` is device and
/// inode as it has them.
pub(crate) fn mapped_at(maps: &[u8], place: &str, offset: u64) -> Option<Mapped> {
    mappings(maps).find_map(|mapping| {
        let there = format!("{} {}", mapping.device, mapping.inode) == place;
        if !mapping.is_readable_code() || !there {
            return None;
        }
        let behind = usize::try_from(offset.checked_sub(mapping.offset)?).ok()?;
        let address = mapping.range.start.checked_add(behind)?;
        (address < mapping.range.end).then(|| Mapped {
            address,
            left: mapping.range.end - address,
        })
    })
}

/// The file whose code lies around an address, and where that code lies, by a `/proc/PID/maps`
/// text.
pub(crate) fn mapped_around(maps: &[u8], address: usize) -> Option<(Cow<'_, Path>, Range<usize>)> {
    let mut code = mappings(maps).filter(Mapping::is_readable_code);
    let around = code.find(|mapping| mapping.is_file() && mapping.range.contains(&address));
    around.map(|mapping| (mapping.path(), mapping.range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_its_file() {
        let maps = b"\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 77  /bin/app
55d0c0001000-55d0c0005000 r-xp 00001000 08:01 77  /bin/app
55d0c0005000-55d0c0006000 rw-p 00005000 08:01 77  /bin/app
7f0000000000-7f0000004000 r-xp 00001000 08:02 77  /lib/other.so
7f0000100000-7f0000101000 --xp 00001000 08:03 77  /lib/hidden.so
";
        let at = |place, offset| mapped_at(maps, place, offset).map(|m| (m.address, m.left));
        assert_eq!(at("08:01 77", 0x1234), Some((0x55d0_c000_1234, 0x3dcc)));
        assert_eq!(at("08:02 77", 0x1234), Some((0x7f00_0000_0234, 0x3dcc)));
        assert_eq!(at("08:01 77", 0x234), None, "no code");
        assert_eq!(at("08:01 77", 0x5000), None, "behind it");
        assert_eq!(at("08:01 78", 0x1234), None);
        assert_eq!(at("08:03 77", 0x1000), None, "not readable");
        let around = |address| mapped_around(maps, address);
        let code = 0x7f00_0000_0000..0x7f00_0000_4000;
        assert_eq!(
            around(0x7f00_0000_0010),
            Some((Path::new("/lib/other.so").into(), code))
        );
        assert_eq!(around(0x7f00_0010_0000), None, "not readable");
        assert_eq!(around(0x55d0_c000_5000), None, "no code");
    }
}
