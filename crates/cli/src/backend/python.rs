//! What packages of PyPI brought: CUDA's tools come by them, too. No Python is started; its folders
//! are looked at.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where `places`, which are in a folder of packages, may be for the `python3` that is first in
/// `path`: its environment first.
pub fn places(path: &OsStr, places: &[&str]) -> Vec<PathBuf> {
    let mut pythons = std::env::split_paths(path).map(|folder| folder.join("python3"));
    let python = pythons.find(|python| python.is_file());
    python.map_or_else(Vec::new, |python| of(&python, places))
}

fn of(python: &Path, places: &[&str]) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(python).unwrap_or_else(|_| python.to_owned());
    let mut found = Vec::new();
    for python in [python, real.as_path()] {
        let Some(home) = python.parent().and_then(Path::parent) else {
            continue;
        };
        for library in [home.join("lib"), home.join("local/lib")] {
            let entries = std::fs::read_dir(library).into_iter().flatten().flatten();
            let versions =
                entries.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"python3"));
            let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
            // One order for all file systems.
            versions.sort();
            for version in versions {
                for kind in ["site-packages", "dist-packages"] {
                    let packages = version.join(kind);
                    found.extend(places.iter().map(|place| packages.join(place)));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_an_environment_are_found() {
        let home = std::env::temp_dir().join(format!("warpbpf-packages-{}", std::process::id()));
        let package = home.join("lib/python3.12/site-packages/nvidia/cu13/compute-sanitizer");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir_all(home.join("bin")).unwrap();
        let path = std::env::join_paths([home.join("nothing"), home.join("bin")]).unwrap();
        let none = places(&path, &["nvidia/cu13/compute-sanitizer"]);
        std::fs::write(home.join("bin/python3"), b"").unwrap();
        let found = places(&path, &["nvidia/cu13/compute-sanitizer"]);
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(none, Vec::<PathBuf>::new());
        assert!(found.contains(&package), "{found:?}");
    }
}
