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

/// The address at which code of a file lies, by a `/proc/PID/maps` text; `place` is device and inode as it has them.
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

/// The file whose code lies around an address, and where that code lies, by a `/proc/PID/maps` text.
pub(crate) fn mapped_around(maps: &[u8], address: usize) -> Option<(Cow<'_, Path>, Range<usize>)> {
    let mut code = mappings(maps).filter(Mapping::is_readable_code);
    let around = code.find(|mapping| mapping.is_file() && mapping.range.contains(&address));
    around.map(|mapping| (mapping.path(), mapping.range))
}
