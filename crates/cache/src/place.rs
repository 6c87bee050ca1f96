//! Where the folder is: what the user said, or where such things lie on this machine. Pure: the
//! environment is given.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that names the folder, or says `on` or `off`.
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
    #[error(
        "the folder for compiled code must be an absolute path, `on` or `off`, and it is `{given}`"
    )]
    Relative { given: String },
    #[error(
        "no folder for compiled code: neither `XDG_CACHE_HOME` nor `HOME` is set to an absolute path; name one by `--cache` or `WARPBPF_CACHE`"
    )]
    Homeless,
}

impl Place {
    /// The place that a user named by an option or the variable. `on` is the folder of who has this
    /// environment.
    ///
    /// # Errors
    /// [`PlaceError`]: applications have working directories of their own, so a relative path is
    /// none.
    pub fn named(
        text: &Path,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Place, PlaceError> {
        match text {
            off if off == Path::new("off") => Ok(Place::Off),
            on if on == Path::new("on") => Place::own(variable),
            folder if folder.is_absolute() => Ok(Place::Folder(folder.to_owned())),
            other => Err(PlaceError::Relative {
                given: other.display().to_string(),
            }),
        }
    }

    /// What the variable says in this environment; nothing is kept where it is not set.
    ///
    /// # Errors
    /// [`PlaceError`]
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Place, PlaceError> {
        match variable(VARIABLE).filter(|value| !value.is_empty()) {
            Some(named) => Place::named(Path::new(&named), variable),
            None => Ok(Place::Off),
        }
    }

    /// The folder of who has this environment, among those of other programs.
    ///
    /// # Errors
    /// [`PlaceError::Homeless`]
    pub fn own(variable: impl Fn(&str) -> Option<OsString>) -> Result<Place, PlaceError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
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
        let on = (VARIABLE, "on");
        assert_eq!(of(&[home, on]), folder("/home/u/.cache/warpbpf"));
        assert_eq!(of(&[home, xdg, on]), folder("/x/warpbpf"));
        let empty = ("XDG_CACHE_HOME", "");
        assert_eq!(of(&[home, empty, on]), folder("/home/u/.cache/warpbpf"));
        let relative = ("XDG_CACHE_HOME", "x");
        assert_eq!(of(&[home, relative, on]), folder("/home/u/.cache/warpbpf"));
        assert_eq!(of(&[home, xdg]), Ok(Place::Off));
        assert_eq!(of(&[home, xdg, (VARIABLE, "/c")]), folder("/c"));
        assert_eq!(of(&[home, (VARIABLE, "off")]), Ok(Place::Off));
    }

    #[test]
    fn what_is_no_folder_is_told() {
        assert_eq!(
            of(&[(VARIABLE, "./c")]).unwrap_err().to_string(),
            "the folder for compiled code must be an absolute path, `on` or `off`, and it is `./c`"
        );
        assert_eq!(
            of(&[("HOME", "home"), (VARIABLE, "on")]),
            Err(PlaceError::Homeless)
        );
    }
}
