//! What a breakpoint stands on: a uprobe of Linux, or a debugger, has put it over a function's
//! first instruction.
//!
//! That instruction stays where it is, and so does the breakpoint: Linux runs the instruction from
//! a copy of its own and goes on behind it, where our jump stands. So only who reads the function
//! needs to know the instruction, and so does the trampoline that it is moved to. It is in the file
//! that is mapped there, as Linux changes a copy of the page.

use std::borrow::Cow;

use crate::error::BeneathError;
use crate::machine;
use crate::maps::{self, mappings};
use crate::patch::in_force;

/// Bytes of a function that must be those of the file, so that it is the file which was loaded. A
/// file that was replaced by another has its path, and device and inode are not compared because an
/// overlay's are not those that `/proc` shows.
const COMPARED: usize = 64;

/// The code of the function at `address`, which begins with `code`, as it is without a breakpoint
/// at its beginning.
///
/// # Errors
/// Why that is not known.
pub(crate) fn code(address: usize, code: &[u8]) -> Result<Cow<'_, [u8]>, BeneathError> {
    let Some(covered) = machine::breakpoint(code) else {
        return Ok(Cow::Borrowed(code));
    };
    let maps = maps::own().map_err(BeneathError::Maps)?;
    under(&maps, address, code, covered).map(Cow::Owned)
}

/// The same, by a `/proc/PID/maps` text.
fn under(
    maps: &[u8],
    address: usize,
    code: &[u8],
    covered: usize,
) -> Result<Vec<u8>, BeneathError> {
    let mut all = mappings(maps);
    let mapping = all.find(|mapping| mapping.range.contains(&address));
    let mapping = mapping.filter(|mapping| mapping.is_file());
    let mapping = mapping.ok_or(BeneathError::NoFile)?;
    let file = mapping.path();
    let path = || file.display().to_string();
    let unread = |error: std::io::Error| BeneathError::File {
        path: path(),
        error: error.to_string(),
    };
    let mut there = vec![0; COMPARED.min(code.len()).min(mapping.range.end - address)];
    let at = mapping.offset + (address - mapping.range.start) as u64;
    let open = warpbpf_descriptor::open(&file).map_err(unread)?;
    open.read_exact_at(&mut there, at).map_err(unread)?;
    if there.get(covered..) != without_ours(address, code).get(covered..there.len()) {
        return Err(BeneathError::Other { path: path() });
    }
    let mut whole = code.to_vec();
    whole[..covered].copy_from_slice(&there[..covered]);
    Ok(whole)
}

/// Code as it was before we changed it.
fn without_ours(address: usize, code: &[u8]) -> Vec<u8> {
    let mut code = code.to_vec();
    for patch in in_force().iter() {
        let into = (patch.at as usize).checked_sub(address);
        let length = patch.length as usize;
        let Some(place) = into.and_then(|into| code.get_mut(into..)?.get_mut(..length)) else {
            continue;
        };
        if *place == patch.after[..length] {
            place.copy_from_slice(&patch.before[..length]);
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `bytes` from its second page on, and the text that says that they lie at
    /// `address`.
    fn mapped(name: &str, bytes: &[u8], address: usize) -> (std::path::PathBuf, Vec<u8>) {
        let name = format!("warpbpf-beneath-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut all = vec![0; 0x1000];
        all.extend(bytes);
        std::fs::write(&path, all).unwrap();
        let line = format!(
            "{address:x}-{:x} r-xp 00001000 08:01 7 {}\n",
            address + 0x1000,
            path.display()
        );
        (path, line.into_bytes())
    }

    #[test]
    fn what_the_file_has_is_beneath() {
        const AT: usize = 0x7000_0000;
        let file: Vec<u8> = (0x50..0xb0).collect();
        let (path, maps) = mapped("found", &file, AT - 0x10);
        let in_memory = |covered: usize| {
            let mut code = file[0x10..].to_vec();
            code[..covered].fill(0xcc);
            code
        };
        for covered in [1, 4] {
            let found = under(&maps, AT, &in_memory(covered), covered);
            assert_eq!(found.unwrap(), file[0x10..]);
        }
        // A breakpoint of one byte does not stand on four.
        let other = BeneathError::Other {
            path: path.display().to_string(),
        };
        assert_eq!(under(&maps, AT, &in_memory(4), 1), Err(other.clone()));
        // Anything else in the first bytes, and nothing behind them.
        let mut changed = in_memory(1);
        changed[COMPARED] ^= 1;
        let kept = under(&maps, AT, &changed, 1).unwrap();
        assert_eq!((kept[0], &kept[1..]), (file[0x10], &changed[1..]));
        changed[COMPARED - 1] ^= 1;
        assert_eq!(under(&maps, AT, &changed, 1), Err(other));
        assert_eq!(
            under(&maps, AT - 0x11, &in_memory(1), 1),
            Err(BeneathError::NoFile)
        );
        assert_eq!(
            under(
                format!("{AT:x}-{:x} r-xp 0 00:00 0 [vdso]", AT + 4).as_bytes(),
                AT,
                &in_memory(1),
                1
            ),
            Err(BeneathError::NoFile)
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            under(&maps, AT, &in_memory(1), 1).unwrap_err().to_string(),
            format!(
                "`{}` cannot be read: No such file or directory (os error 2)",
                path.display()
            )
        );
    }

    #[test]
    fn code_without_a_breakpoint_is_not_looked_for() {
        // `endbr64` and `bti c`; the address is nowhere.
        let code = if cfg!(target_arch = "aarch64") {
            [0x5f, 0x24, 0x03, 0xd5]
        } else {
            [0xf3, 0x0f, 0x1e, 0xfa]
        };
        assert_eq!(super::code(0x1000, &code), Ok(Cow::Borrowed(&code[..])));
    }
}
