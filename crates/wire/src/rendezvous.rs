//! How a tool and an application that were started apart find each other by a name that both have in their environment, as
//! bpftime's do: the tool leaves a link to its control socket at a place that follows from the name.

use std::path::{Path, PathBuf};

/// bpftime's variable: the name that a tool and its applications share.
pub const SHM_NAME: &str = "BPFTIME_GLOBAL_SHM_NAME";
/// Most bytes of a name.
const LONGEST: usize = 100;

/// Where the link of this name can be, the first place first: an application may have been started without the tool's
/// `XDG_RUNTIME_DIR`. `None` if the name cannot be part of a file's name: it has letters, digits, `_`, `-` and `.`, 100 at most.
pub fn places(name: &str) -> Option<Vec<PathBuf>> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_dir());
    let user = rustix::process::geteuid().as_raw();
    places_in(name, runtime.as_deref(), &std::env::temp_dir(), user)
}

fn places_in(name: &str, runtime: Option<&Path>, shared: &Path, user: u32) -> Option<Vec<PathBuf>> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > LONGEST || !name.bytes().all(fits) {
        return None;
    }
    // Other users have names of their own in the folder that all share; whom the socket belongs to is looked at in any case.
    let shared = shared.join(format!("warpbpf-{user}-shm-{name}"));
    let own = runtime.map(|folder| folder.join(format!("warpbpf-shm-{name}")));
    Some(own.into_iter().chain([shared]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
