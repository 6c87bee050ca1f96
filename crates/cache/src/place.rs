//! Where the folder is: what the user said, or where such things lie on this machine. Pure: the environment is given.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that names the folder, or says `off`.
pub const VARIABLE: &str = "WARPBPF_CACHE";
/// Bytes that entries may take unless the user says something else.
pub const DEFAULT_BYTES: u64 = 512 << 20;

/// Where entries are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: the user wants none.
    Off,
    /// In this folder.
    Folder(PathBuf),
}

/// Why there is no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum PlaceError {
    #[error("the folder for compiled code must be an absolute path or `off`, and it is `{given}`")]
    Relative { given: String },
    #[error(
        "no folder for compiled code: neither `XDG_CACHE_HOME` nor `HOME` is set to an absolute path; name one by `--cache` or `WARPBPF_CACHE`"
    )]
    Homeless,
}

impl Place {
    /// The place that a user named by an option or the variable.
    ///
    /// # Errors
    /// [`PlaceError::Relative`]: applications have working directories of their own.
    pub fn named(text: &Path) -> Result<Place, PlaceError> {
        match text {
            off if off == Path::new("off") => Ok(Place::Off),
            folder if folder.is_absolute() => Ok(Place::Folder(folder.to_owned())),
            other => Err(PlaceError::Relative {
                given: other.display().to_string(),
            }),
        }
    }

    /// The place of who has this environment.
    ///
    /// # Errors
    /// [`PlaceError`]
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Place, PlaceError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(named) = set(VARIABLE) {
            return Place::named(Path::new(&named));
        }
        // A relative path is to be ignored here, says the XDG specification.
        let absolute = |name: &str| set(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let folder = absolute("XDG_CACHE_HOME");
        let folder = folder.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        let folder = folder.ok_or(PlaceError::Homeless)?;
        Ok(Place::Folder(folder.join("warpbpf")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Place, PlaceError> {
        Place::of_environment(|name| {
            let found = variables.iter().find(|(there, _)| *there == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn folder(path: &str) -> Result<Place, PlaceError> {
        Ok(Place::Folder(path.into()))
    }

    #[test]
    fn the_folder_is_found() {
        let home = ("HOME", "/home/u");
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(of(&[home]), folder("/home/u/.cache/warpbpf"));
        assert_eq!(of(&[home, xdg]), folder("/x/warpbpf"));
        let empty = ("XDG_CACHE_HOME", "");
        assert_eq!(of(&[home, empty]), folder("/home/u/.cache/warpbpf"));
        let relative = ("XDG_CACHE_HOME", "x");
        assert_eq!(of(&[home, relative]), folder("/home/u/.cache/warpbpf"));
        assert_eq!(of(&[home, xdg, (VARIABLE, "/c")]), folder("/c"));
        assert_eq!(of(&[home, (VARIABLE, "off")]), Ok(Place::Off));
    }

    #[test]
    fn what_is_no_folder_is_told() {
        assert_eq!(
            of(&[(VARIABLE, "./c")]).unwrap_err().to_string(),
            "the folder for compiled code must be an absolute path or `off`, and it is `./c`"
        );
        assert_eq!(of(&[("HOME", "home")]), Err(PlaceError::Homeless));
    }
}
