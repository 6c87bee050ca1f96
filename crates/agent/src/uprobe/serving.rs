//! Which library serves the application, where a program is at another copy: by its path a tool
//! names one file, and the application may have loaded another of that name, or have the CUDA
//! runtime in itself.

use std::path::PathBuf;

use warpbpf_hook::maps::{Mapping, mappings};

/// Bytes of an executable that are looked through.
const MOST: u64 = 64 << 20;
/// In every copy of the CUDA runtime, which gives it out as the name of an error. Backwards, so
/// that it is not found in this agent.
const RUNTIME: &[u8] = b"\0noitcnuFeciveDdilavnIrorrEaduc";

/// A library's name without its version.
fn stem(name: &str) -> Option<&str> {
    Some(name.split_once(".so")?.0)
}

/// Files with code that are called as this one but for the version, each once, by a
/// `/proc/PID/maps` text. A file is known by device and inode.
fn copies<'m>(maps: &'m [u8], name: &str) -> Vec<Mapping<'m>> {
    let Some(wanted) = stem(name) else {
        return Vec::new();
    };
    let mut found: Vec<Mapping<'_>> = Vec::new();
    for mapping in mappings(maps).filter(|mapping| mapping.is_file() && mapping.is_code()) {
        let path = mapping.path();
        let is_one = path
            .file_name()
            .and_then(|name| stem(name.to_str()?))
            .is_some_and(|stem| stem == wanted);
        let same =
            |other: &Mapping<'_>| (other.device, other.inode) == (mapping.device, mapping.inode);
        if is_one && !found.iter().any(same) {
            found.push(mapping);
        }
    }
    found
}

fn names<'m>(all: impl Iterator<Item = &'m Mapping<'m>>) -> String {
    let names = all.map(|mapping| format!("`{}`", mapping.path().display()));
    names.collect::<Vec<_>>().join(", ")
}

/// Why a program is nowhere whose file the application has not loaded.
pub(crate) fn not_loaded(maps: &[u8], name: &str) -> String {
    let copies = copies(maps, name);
    let why = "the application has not loaded that file when its first kernels are loaded";
    if !copies.is_empty() {
        return format!(
            "{why}; it is served by {}: probe that",
            names(copies.iter())
        );
    }
    if stem(name) != Some("libcudart") {
        return why.to_owned();
    }
    match with_runtime() {
        Some(path) => format!(
            "{why}; `{}` has the CUDA runtime in itself: link it with `nvcc -cudart shared`, or probe functions of that file or of the driver (libcuda.so.1)",
            path.display()
        ),
        None => format!(
            "{why}, nor any other CUDA runtime: it may be in one of the application's libraries, or the application uses the driver alone (libcuda.so.1)"
        ),
    }
}

/// The executable, if the CUDA runtime is in it.
fn with_runtime() -> Option<PathBuf> {
    let path = std::fs::read_link("/proc/self/exe").ok()?;
    let file = warpbpf_descriptor::open(&path).ok()?;
    has_runtime(std::io::Read::take(file, MOST)).then_some(path)
}

fn has_runtime(mut file: impl std::io::Read) -> bool {
    let mut bytes = Vec::new();
    let mut part = vec![0; 1 << 20];
    while let Ok(count @ 1..) = file.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        let is_it = |part: &[u8]| part.iter().rev().eq(RUNTIME);
        if bytes.windows(RUNTIME.len()).any(is_it) {
            return true;
        }
        // It may lie across two parts.
        let rest = bytes.len().saturating_sub(RUNTIME.len());
        bytes.drain(..rest);
    }
    false
}

/// A sentence about other copies of a library, of which a program at `address` sees nothing.
pub(crate) fn others(maps: &[u8], path: &str, address: usize) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut copies = copies(maps, name);
    let own = mappings(maps).find(|mapping| mapping.range.contains(&address))?;
    copies.retain(|copy| (copy.device, copy.inode) != (own.device, own.inode));
    (!copies.is_empty()).then(|| {
        format!(
            "the application has loaded {}, too: calls that are served there are not seen",
            names(copies.iter())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0005000 r-xp 00001000 08:01 77  /bin/app
7f0000000000-7f0000004000 r-xp 00001000 08:02 78  /opt/cuda/libcudart.so.13.0.48
7f0000004000-7f0000005000 r-xp 00005000 08:02 78  /opt/cuda/libcudart.so.13.0.48
7f0000010000-7f0000014000 r--p 00001000 08:02 79  /data/libcudart.so.13
7f0000020000-7f0000024000 r-xp 00001000 08:02 80  /venv/libcudart.so.12
7f0000030000-7f0000034000 r-xp 00001000 08:02 81  /venv/libcudart_other.so.12
7f0000040000-7f0000044000 r-xp 00001000 08:02 82  /usr/lib/libcuda.so.1
";

    #[test]
    fn it_is_said_which_copy_serves() {
        let why = "the application has not loaded that file when its first kernels are loaded";
        assert_eq!(
            not_loaded(MAPS, "libcudart.so"),
            format!(
                "{why}; it is served by `/opt/cuda/libcudart.so.13.0.48`, `/venv/libcudart.so.12`: probe that"
            )
        );
        assert_eq!(not_loaded(MAPS, "libother.so"), why);
        assert_eq!(not_loaded(MAPS, "app"), why);
        assert!(not_loaded(b"", "libcudart.so.13").contains("it may be in one of"));
        let others = |path, address| others(MAPS, path, address);
        assert_eq!(
            others("/opt/cuda/libcudart.so.13", 0x7f00_0000_4010).unwrap(),
            "the application has loaded `/venv/libcudart.so.12`, too: calls that are served there are not seen"
        );
        assert_eq!(others("/usr/lib/libcuda.so.1", 0x7f00_0004_0000), None);
        assert_eq!(others("/bin/app", 0x55d0_c000_0000), None);
    }

    #[test]
    fn a_runtime_in_a_file_is_found_across_parts() {
        let mut file = vec![1; (1 << 20) - 7];
        assert!(!has_runtime(&file[..]));
        file.extend(RUNTIME.iter().rev());
        file.extend_from_slice(&[2; 100]);
        assert!(has_runtime(&file[..]));
    }
}
