//! What a person does with the entries: look at them, check them, take them away.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::evict;
use crate::folder::FolderError;
use crate::recipe::Key;
use crate::store::{Found, Store};

/// An entry as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its key.
    pub key: Key,
    /// Of its file.
    pub bytes: u64,
    /// Since it was used.
    pub age: Duration,
    /// What it is of, or what is wrong with it.
    pub label: Result<String, String>,
}

/// Why nothing could be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum TendError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot read the folder for compiled code, `{path}`: {errno}")]
    List { path: String, errno: Errno },
    #[error(
        "the folder for compiled code, `{path}`, is being cleaned up by another process; try again"
    )]
    Busy { path: String },
}

/// The entries of a folder.
#[derive(Debug)]
pub struct Tended(Store);

impl Tended {
    /// The entries in a folder; `None` if there is no folder, and so no entry.
    ///
    /// # Errors
    /// [`TendError::Folder`]
    pub fn open(path: &Path) -> Result<Option<Tended>, TendError> {
        match Store::open_or(path, 0, false) {
            Ok(store) => Ok(Some(Tended(store))),
            Err(FolderError::Open {
                errno: Errno::NOENT,
                ..
            }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All entries, the one that was used last first. Each is read and checked.
    ///
    /// # Errors
    /// [`TendError::List`]
    pub fn items(&self) -> Result<Vec<Item>, TendError> {
        let mut listed = self.entries()?;
        listed.sort_by(|a, b| (b.used, &a.name).cmp(&(a.used, &b.name)));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let items = listed.into_iter().filter_map(|file| {
            let key = Key::of_file(&file.name)?;
            let label = match self.0.look(&key) {
                // It went meanwhile.
                Found::Nothing => return None,
                Found::Entry(entry) => Ok(entry.label),
                Found::Damaged(damage) => Err(damage.to_string()),
                Found::Unsafe(why) => Err(why.to_string()),
                Found::Unreadable(errno) => Err(errno.to_string()),
            };
            let used = Duration::new(
                u64::try_from(file.used.0).unwrap_or(0),
                u32::try_from(file.used.1).unwrap_or(0),
            );
            Some(Item {
                key,
                bytes: file.bytes,
                age: now.saturating_sub(used),
                label,
            })
        });
        Ok(items.collect())
    }

    /// Takes an entry away. False if that cannot be done.
    pub fn remove(&self, key: &Key) -> bool {
        self.0.folder.remove(&key.file())
    }

    /// Takes entries away, those first that were not used for the longest time, until the rest has
    /// at most `bytes`. How many bytes there were and are.
    ///
    /// # Errors
    /// [`TendError`]
    pub fn prune(&self, bytes: u64) -> Result<(u64, u64), TendError> {
        let held = self
            .0
            .folder
            .try_lock()
            .map_err(|errno| self.failed(errno))?;
        let Some(_held) = held else {
            let path = self.0.path().display().to_string();
            return Err(TendError::Busy { path });
        };
        let entries = self.entries()?;
        let before = entries.iter().map(|file| file.bytes).sum();
        let after = evict::shrink(&self.0.folder, entries, before, bytes);
        Ok((before, after.map_err(|errno| self.failed(errno))?))
    }

    fn entries(&self) -> Result<Vec<crate::folder::Listed>, TendError> {
        evict::entries(&self.0.folder).map_err(|errno| self.failed(errno))
    }

    fn failed(&self, errno: Errno) -> TendError {
        let path = self.0.path().display().to_string();
        TendError::List { path, errno }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::store::tests::{Scratch, THOUSAND, entry, key};

    #[test]
    fn entries_are_listed_and_taken_away() {
        let scratch = Scratch::new("tend");
        assert!(Tended::open(&scratch.0.join("none")).unwrap().is_none());
        let store = Store::open(&scratch.0, 1 << 20).unwrap();
        for number in 0..3 {
            store.put(&key(number), &entry(number, 910)).unwrap();
            let file = std::fs::File::open(scratch.0.join(key(number).file())).unwrap();
            let at = UNIX_EPOCH + Duration::from_secs(1000 + number as u64);
            file.set_modified(at).unwrap();
        }
        let short = scratch.0.join(key(3).file());
        std::fs::write(&short, "short").unwrap();
        std::fs::set_permissions(&short, Permissions::from_mode(0o600)).unwrap();
        let tended = Tended::open(&scratch.0).unwrap().unwrap();
        let items = tended.items().unwrap();
        let labels: Vec<(u64, Result<&str, &str>)> = items
            .iter()
            .map(|i| (i.bytes, i.label.as_deref().map_err(String::as_str)))
            .collect();
        assert_eq!(
            labels,
            [
                (5, Err("it has 5 bytes where 88 were written")),
                (THOUSAND, Ok("k2")),
                (THOUSAND, Ok("k1")),
                (THOUSAND, Ok("k0")),
            ]
        );
        assert!(tended.remove(&key(3)) && !tended.remove(&key(3)));
        assert_eq!(tended.prune(2 * THOUSAND), Ok((3 * THOUSAND, 2 * THOUSAND)));
        let left = tended.items().unwrap();
        assert_eq!(
            left.iter().map(|i| i.key).collect::<Vec<_>>(),
            [key(2), key(1)]
        );
        let held = store.folder.try_lock().unwrap();
        assert!(matches!(tended.prune(0), Err(TendError::Busy { .. })));
        drop(held);
        assert_eq!(tended.prune(0), Ok((2 * THOUSAND, 0)));
    }
}
