//! Which entry a driver takes, and whether the PTX beside it may stand in for it.
//!
//! Machine code wins over PTX, so an application usually runs SASS that was compiled on another
//! machine. Instrumenting it through PTX is honest only if that PTX is the text the SASS was made
//! from: another virtual architecture takes other `__CUDA_ARCH__` branches and is another program.

use crate::container::{Entry, EntryKind};
use crate::cubin::Cubin;

/// Result of [`choose`]; indices into the slice given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// The machine code that the driver runs.
    pub sass: Option<usize>,
    /// The PTX that the driver compiles if there is no such machine code, or from which that
    /// machine code was made.
    pub ptx: Option<usize>,
    /// Why `ptx` is `None`, for the user.
    pub why_no_ptx: Option<String>,
}

/// What a driver does with `entries` on a device of compute capability `device`.
///
/// SASS runs within its major version, from its own minor version up; with `a` on exactly its own.
/// The highest minor wins, and of equals `a`, then `f`, then none. PTX runs on everything from its
/// number up; with `a` on exactly its own, with `f` within the major version.
/// <https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities>
pub fn choose(entries: &[Entry<'_>], device: (u32, u32)) -> Choice {
    let sass = machine_code(entries, device);
    // One that is damaged says nothing.
    let cubin = sass.and_then(|index| entries[index].payload().ok());
    choose_unpacked(entries, device, cubin.as_deref())
}

/// [`choose`], where somebody has the `cubin` that [`machine_code`] names, and it need not be
/// decompressed again.
pub fn choose_unpacked(entries: &[Entry<'_>], device: (u32, u32), cubin: Option<&[u8]>) -> Choice {
    let sass = machine_code(entries, device);
    let (ptx, why_no_ptx) = match sass {
        Some(index) => source_of(entries, &entries[index], cubin),
        None => match best(entries, EntryKind::Ptx, |entry| ptx_runs(entry, device)) {
            Some(index) => (Some(index), None),
            None => (None, Some(nothing_fits(entries, device))),
        },
    };
    Choice {
        sass,
        ptx,
        why_no_ptx,
    }
}

/// The machine code that the driver runs: [`Choice::sass`], for which nothing is decompressed.
pub fn machine_code(entries: &[Entry<'_>], device: (u32, u32)) -> Option<usize> {
    best(entries, EntryKind::Elf, |entry| sass_runs(entry, device))
}

fn best(
    entries: &[Entry<'_>],
    kind: EntryKind,
    runs: impl Fn(&Entry<'_>) -> bool,
) -> Option<usize> {
    entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.kind == kind && runs(entry))
        // Of equals the first in the file: `max_by_key` would keep the last.
        .rev()
        .max_by_key(|(_, entry)| (entry.arch, rank(entry.suffix)))
        .map(|(index, _)| index)
}

/// The PTX entry whose virtual architecture is the one `sass` was compiled from.
fn source_of(
    entries: &[Entry<'_>],
    sass: &Entry<'_>,
    cubin: Option<&[u8]>,
) -> (Option<usize>, Option<String>) {
    // The cubin says from which `compute_N`; one too old or damaged to say so counts as made from
    // its own number.
    let virtual_arch = cubin
        .and_then(|bytes| Cubin::parse(bytes).ok())
        .and_then(|cubin| cubin.virtual_arch)
        .unwrap_or(sass.arch);
    let found = entries.iter().position(|entry| {
        entry.kind == EntryKind::Ptx && entry.arch == virtual_arch && entry.suffix == sass.suffix
    });
    if found.is_some() {
        return (found, None);
    }
    let suffix = sass.suffix.map(String::from).unwrap_or_default();
    let have = names(entries, EntryKind::Ptx);
    let rule = format!(
        "the driver runs `{}`, compiled from `compute_{virtual_arch}{suffix}`",
        sass.arch_name()
    );
    let why = if have.is_empty() {
        format!("{rule}, and the file holds no PTX")
    } else {
        format!("{rule}, and the file's PTX is for {have} only")
    };
    (None, Some(why))
}

fn nothing_fits(entries: &[Entry<'_>], (major, minor): (u32, u32)) -> String {
    let all = [
        names(entries, EntryKind::Elf),
        names(entries, EntryKind::Ptx),
    ];
    let all = all
        .iter()
        .filter(|names| !names.is_empty())
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if all.is_empty() {
        "the file holds neither machine code nor PTX".to_owned()
    } else {
        format!("nothing in the file runs on compute capability `{major}.{minor}`: it holds {all}")
    }
}

fn names(entries: &[Entry<'_>], kind: EntryKind) -> String {
    let names = entries
        .iter()
        .filter(|entry| entry.kind == kind)
        .map(|entry| format!("`{}`", entry.arch_name()));
    names.collect::<Vec<_>>().join(", ")
}

fn sass_runs(entry: &Entry<'_>, (major, minor): (u32, u32)) -> bool {
    match entry.suffix {
        Some('a') => entry.arch == major * 10 + minor,
        _ => entry.arch / 10 == major && entry.arch % 10 <= minor,
    }
}

fn ptx_runs(entry: &Entry<'_>, (major, minor): (u32, u32)) -> bool {
    match entry.suffix {
        Some('a') => entry.arch == major * 10 + minor,
        Some(_) => entry.arch / 10 == major && entry.arch % 10 <= minor,
        None => entry.arch <= major * 10 + minor,
    }
}

fn rank(suffix: Option<char>) -> u32 {
    match suffix {
        Some('a') => 2,
        Some(_) => 1,
        None => 0,
    }
}
