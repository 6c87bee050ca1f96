//! How a tool and an application that were started apart find each other by a name that both have
//! in their environment, as bpftime's do: the tool leaves a link to its control socket at a place
//! that follows from the name.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{symlink, unlink};
use rustix::net::SocketAddrUnix;

use crate::connection::WireError;

/// bpftime's variable: the name that a tool and its applications share.
pub const SHM_NAME: &str = "BPFTIME_GLOBAL_SHM_NAME";
/// Most bytes of a name.
const LONGEST: usize = 100;

/// The user's folder for sockets (`XDG_RUNTIME_DIR`), if it is this user's: `su` and `sudo -E`
/// leave the variable of who has called them, who may rename what is in that folder.
pub fn runtime_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    is_of(&folder, rustix::process::geteuid().as_raw()).then_some(folder)
}

fn is_of(folder: &Path, user: u32) -> bool {
    let there = std::fs::metadata(folder);
    there.is_ok_and(|there| there.is_dir() && there.uid() == user)
}

/// Where the link of this name can be, the first place first: an application may have been started
/// without the tool's `XDG_RUNTIME_DIR`. `None` if the name cannot be part of a file's name: it has
/// letters, digits, `_`, `-` and `.`, 100 at most.
pub fn places(name: &str) -> Option<Vec<PathBuf>> {
    let runtime = runtime_folder();
    let user = rustix::process::geteuid().as_raw();
    places_in(name, runtime.as_deref(), &std::env::temp_dir(), user)
}

fn places_in(name: &str, runtime: Option<&Path>, shared: &Path, user: u32) -> Option<Vec<PathBuf>> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(fits) {
        return None;
    }
    // Other users have names of their own in the folder that all share; whom the socket belongs to
    // is looked at in any case.
    let shared = shared.join(format!("warpbpf-{user}-shm-{name}"));
    let own = runtime.map(|folder| folder.join(format!("warpbpf-shm-{name}")));
    Some(own.into_iter().chain([shared]).collect())
}

/// A file name that leads to a control socket, for applications that are told of it before there is
/// a tool. Dropping it takes it away, if it still leads there.
#[derive(Debug)]
pub struct Signpost {
    place: PathBuf,
    control: PathBuf,
}

impl Signpost {
    /// Puts it up. One that a killed tool left behind is replaced.
    ///
    /// # Errors
    /// [`WireError::Occupied`] if there is a tool already, or a file that is no such link;
    /// [`WireError::Path`] if it cannot be made, or is longer than the address of a socket.
    pub fn put_up(place: &Path, control: &Path) -> Result<Signpost, WireError> {
        let failed = |what: &'static str| {
            let path = place.display().to_string();
            move |errno| WireError::Path { what, path, errno }
        };
        SocketAddrUnix::new(place).map_err(failed("name"))?;
        match std::fs::symlink_metadata(place) {
            Ok(there) if there.is_symlink() && !is_listening(place) => {
                unlink(place).map_err(failed("replace"))?;
            }
            Ok(_) => {
                return Err(WireError::Occupied {
                    path: place.display().to_string(),
                });
            }
            Err(_) => {}
        }
        symlink(control, place).map_err(failed("make a link at"))?;
        Ok(Signpost {
            place: place.to_owned(),
            control: control.to_owned(),
        })
    }
}

/// Somebody listens at the socket that a link leads to. To knock there would look like an
/// application that comes.
fn is_listening(place: &Path) -> bool {
    let Ok(to) = std::fs::read_link(place) else {
        return false;
    };
    let sockets = std::fs::read("/proc/net/unix").unwrap_or_default();
    let name = [b" ", to.as_os_str().as_bytes()].concat();
    let mut lines = sockets.split(|byte| *byte == b'\n');
    lines.any(|line| line.ends_with(&name))
}

impl Drop for Signpost {
    fn drop(&mut self) {
        if std::fs::read_link(&self.place).is_ok_and(|to| to == self.control) {
            // Somebody else may have removed it.
            let _ = unlink(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_signpost_stands_as_long_as_its_tool() {
        let folder = std::env::temp_dir().join(format!("warpbpf-signpost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (place, control) = (folder.join("here"), folder.join("control"));
        let listener = UnixListener::bind(&control).unwrap();
        let post = Signpost::put_up(&place, &control).unwrap();
        assert_eq!(std::fs::read_link(&place).unwrap(), control);
        let second = Signpost::put_up(&place, &control).unwrap_err();
        let expected = format!(
            "`{}` is there already: another tool is found by it, or it is no link to one",
            place.display()
        );
        assert_eq!(second.to_string(), expected);
        // A killed tool leaves both behind, and nobody listens.
        drop(listener);
        let other = folder.join("other");
        let new = Signpost::put_up(&place, &other).unwrap();
        drop(post);
        assert_eq!(
            std::fs::read_link(&place).unwrap(),
            other,
            "it is not the first one's"
        );
        drop(new);
        assert!(!place.is_symlink());
        let long = folder.join("x".repeat(120));
        let error = Signpost::put_up(&long, &other).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot name the control socket"),
            "{error}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_name_leads_to_the_same_places() {
        let of = |name: &str, runtime: Option<&str>| {
            places_in(name, runtime.map(Path::new), Path::new("/tmp"), 7)
        };
        let paths = |all: &[&str]| Some(all.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(
            of("bpftime_maps_shm", Some("/run/user/7")),
            paths(&[
                "/run/user/7/warpbpf-shm-bpftime_maps_shm",
                "/tmp/warpbpf-7-shm-bpftime_maps_shm"
            ])
        );
        assert_eq!(of("a-1.b", None), paths(&["/tmp/warpbpf-7-shm-a-1.b"]));
        for name in ["", "/a", "a/../b", "a b", "ä", &"a".repeat(101)] {
            assert_eq!(of(name, None), None, "{name}");
        }
    }

    #[test]
    fn the_runtime_folder_is_ones_own() {
        let own = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("warpbpf-runtime-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(is_of(&folder, own) && !is_of(&folder, own + 1));
        std::fs::write(folder.join("file"), "").unwrap();
        assert!(!is_of(&folder.join("file"), own) && !is_of(&folder.join("none"), own));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
