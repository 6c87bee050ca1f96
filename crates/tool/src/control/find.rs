//! Where the tools of this user are: folders of theirs among what everybody may put into a folder.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::ask::Control;
use super::protocol::{FOLDER, SOCKET};

impl Control {
    /// All sessions of this user on this machine that answer. Whoever may write to a folder that
    /// all share may put links there to sockets of this user's that are none of ours, so only
    /// folders of this user's are looked into, and no link is followed.
    pub fn find() -> Vec<Control> {
        let mut folders = vec![
            crate::system::folders::runtime_folder(),
            std::env::temp_dir(),
        ];
        let user = rustix::process::getuid().as_raw();
        folders.push(PathBuf::from(format!("/run/user/{user}")));
        folders.sort();
        folders.dedup();
        let mut paths: Vec<PathBuf> = folders
            .iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.starts_with(FOLDER))
            })
            .filter(|folder| is_own_folder(folder))
            .map(|folder| folder.join(SOCKET))
            .filter(|socket| {
                let there = std::fs::symlink_metadata(socket);
                there.is_ok_and(|there| there.file_type().is_socket())
            })
            .collect();
        paths.sort();
        // A tool that was killed leaves its folder behind, and nobody answers there.
        paths
            .iter()
            .filter_map(|path| Control::connect(path).ok())
            .collect()
    }
}

/// A folder, and no link to one, of this user's that nobody else may write to.
fn is_own_folder(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let there = std::fs::symlink_metadata(path);
    there.is_ok_and(|there| there.is_dir() && there.uid() == own && there.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_folders_of_others_are_not_looked_into() {
        use std::os::unix::fs::PermissionsExt as _;
        let base = std::env::temp_dir().join(format!("own-folder-{}", std::process::id()));
        let (folder, link) = (base.join("folder"), base.join("link"));
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(is_own_folder(&folder) && !is_own_folder(&link));
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, open).unwrap();
        assert!(!is_own_folder(&folder));
        std::fs::write(base.join("file"), "").unwrap();
        assert!(!is_own_folder(&base.join("file")) && !is_own_folder(&base.join("none")));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
