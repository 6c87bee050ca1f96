//! The library of Compute Sanitizer, which is looked for here, in the tool, and loaded in
//! applications.

use std::path::{Path, PathBuf};

use crate::backend::python;

/// Names the library, or its folder, before any other place is looked at.
pub const SANITIZER: &str = "WARPBPF_SANITIZER";
const LIBRARY: &str = "libsanitizer-public.so";
/// Where packages of PyPI have it, in the folder of a Python's packages.
const IN_PACKAGES: [&str; 3] = [
    "nvidia/cu13/compute-sanitizer",
    "nvidia/cu13/lib",
    "nvidia/cuda_sanitizer_api/lib",
];

/// Finds the library: where [`SANITIZER`] says, or else in the CUDA toolkit that `CUDA_HOME` or
/// `CUDA_PATH` names, where toolkits are installed, or among the packages of the `python3` in
/// `PATH`.
///
/// # Errors
/// It is in none of these; what to do, for the user.
pub fn library() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(SANITIZER).filter(|name| !name.is_empty()) {
        return named_library(Path::new(&named));
    }
    let toolkits = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(std::env::var_os);
    let toolkits = toolkits
        .map(PathBuf::from)
        .chain(["/usr/local/cuda".into()]);
    let mut places: Vec<PathBuf> = toolkits
        .map(|home| home.join("compute-sanitizer"))
        .collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(python::places(&path, &IN_PACKAGES));
    let mut files = places.iter().map(|place| place.join(LIBRARY));
    files.find(|file| file.is_file()).ok_or_else(|| {
        format!(
            "`{LIBRARY}` is not there: install the CUDA toolkit or `pip install nvidia-cuda-sanitizer-api`, or name the file in {SANITIZER}"
        )
    })
}

/// The version of CUDA that a library is of, as far as it says so to who does not load it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Of this one.
    Exactly(u32, u32),
    /// 12.2 or newer.
    Later,
    /// 12.1 or older.
    Earlier,
}

/// What the file says: the compiler's version stands in the code for GPUs that NVIDIA's library
/// brings along, unless it is compressed; then a name of a function tells older ones from newer
/// ones.
///
/// # Errors
/// It is not a library, or cannot be read; for the user.
pub fn release(library: &Path) -> Result<Release, String> {
    let named = library.display();
    let bytes = std::fs::read(library).map_err(|error| format!("{named}: {error}"))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(format!("`{named}` is no library"));
    }
    let compilers = places(&bytes, COMPILER);
    let releases = compilers.filter_map(|at| number_pair(&bytes[at + COMPILER.len()..]));
    Ok(match releases.max() {
        Some((major, minor)) => Release::Exactly(major, minor),
        None if places(&bytes, CAME_LATER).next().is_some() => Release::Later,
        None => Release::Earlier,
    })
}

/// What stands in front of the compiler's version in machine code.
const COMPILER: &[u8] = b"Cuda compilation tools, release ";
/// The only function that came with CUDA 12.2.
const CAME_LATER: &[u8] = b"sanitizerSetDeviceGraphData\0";

/// Where `part` stands in `bytes`.
fn places<'b>(bytes: &'b [u8], part: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let windows = bytes.windows(part.len()).enumerate();
    windows.filter_map(move |(at, window)| (window == part).then_some(at))
}

/// `13.0, V` and so on.
fn number_pair(bytes: &[u8]) -> Option<(u32, u32)> {
    let end = bytes.iter().position(|byte| *byte == b',')?;
    let (major, minor) = std::str::from_utf8(&bytes[..end]).ok()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn named_library(named: &Path) -> Result<PathBuf, String> {
    let mut files = [named.to_owned(), named.join(LIBRARY)].into_iter();
    let missing = || {
        format!(
            "{SANITIZER} names `{}`, which is neither a file nor a folder with `{LIBRARY}`",
            named.display()
        )
    };
    files.find(|file| file.is_file()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_says_of_which_release_it_is() {
        let file = std::env::temp_dir().join(format!("warpbpf-release-{}", std::process::id()));
        let of = |parts: &[&[u8]]| {
            std::fs::write(&file, parts.concat()).unwrap();
            release(&file).map_err(|why| why.replace(&*file.to_string_lossy(), "FILE"))
        };
        let elf: &[u8] = b"\x7fELF...";
        let by = |release: &str| format!("{}{release}, V1", COMPILER.escape_ascii()).into_bytes();
        let found = [
            of(&[elf, &by("12.8"), b"...", &by("13.0"), &by("x.y"), COMPILER]),
            of(&[elf, COMPILER, b"13", b"\0sanitizerSetDeviceGraphData\0"]),
            of(&[elf, b"sanitizerSetDeviceGraphDataOther"]),
            of(&[b"no library"]),
        ];
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            found,
            [
                Ok(Release::Exactly(13, 0)),
                Ok(Release::Later),
                Ok(Release::Earlier),
                Err("`FILE` is no library".to_owned())
            ]
        );
        assert_eq!(
            of_missing(&file),
            "FILE: No such file or directory (os error 2)"
        );
    }

    fn of_missing(file: &Path) -> String {
        release(file)
            .map_err(|why| why.replace(&*file.to_string_lossy(), "FILE"))
            .unwrap_err()
    }

    #[test]
    fn a_file_or_its_folder_may_be_named() {
        let folder = std::env::temp_dir().join(format!("warpbpf-sanitizer-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let missing = named_library(&folder);
        let file = folder.join(LIBRARY);
        std::fs::write(&file, b"").unwrap();
        let found = (named_library(&folder), named_library(&file));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            missing,
            Err(format!(
                "WARPBPF_SANITIZER names `{}`, which is neither a file nor a folder with `libsanitizer-public.so`",
                folder.display()
            ))
        );
        assert_eq!(found, (Ok(file.clone()), Ok(file)));
    }
}
