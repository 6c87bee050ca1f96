//! The library of Compute Sanitizer, which is looked for here, in the tool, and loaded in applications.

use std::path::{Path, PathBuf};

use crate::python;

/// Names the library, or its folder, before any other place is looked at.
pub const SANITIZER: &str = "WARPBPF_SANITIZER";
const LIBRARY: &str = "libsanitizer-public.so";
/// Where packages of PyPI have it, in the folder of a Python's packages.
const IN_PACKAGES: [&str; 3] = [
    "nvidia/cu13/compute-sanitizer",
    "nvidia/cu13/lib",
    "nvidia/cuda_sanitizer_api/lib",
];

/// Finds the library: where [`SANITIZER`] says, or else in the CUDA toolkit that `CUDA_HOME` or `CUDA_PATH` names, where toolkits are installed, or among the
/// packages of the `python3` in `PATH`.
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
