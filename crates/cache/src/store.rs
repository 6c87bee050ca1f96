//! Entries in a folder that many processes use. Nobody waits: what one of them makes twice is there
//! once.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::entry::{Damage, Entry};
use crate::evict;
use crate::folder::{Content, Folder, FolderError, Unsafe};
use crate::recipe::Key;

/// What there is for a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// The entry, whole.
    Entry(Entry),
    /// A file that is not what was written; it was taken away.
    Damaged(Damage),
    /// A file that somebody else could have written. It stays, as it is not ours to take away.
    Unsafe(Unsafe),
    /// The file cannot be read.
    Unreadable(Errno),
}

/// Why an entry was not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum PutError {
    #[error("compiled code cannot be kept in `{}`: {errno}", path.display())]
    Write { path: PathBuf, errno: Errno },
    #[error("compiled code of {bytes} bytes is not kept, as the cache may have {limit}")]
    TooLarge { bytes: u64, limit: u64 },
}

/// See the module.
#[derive(Debug)]
pub struct Store {
    pub(crate) folder: Folder,
    limit: u64,
    /// Bytes in the folder as far as this process knows; `None` before it looked.
    used: Mutex<Option<u64>>,
}

impl Store {
    /// The store in a folder, which is made if it is not there. Its entries may have `limit` bytes.
    ///
    /// # Errors
    /// [`FolderError`]
    pub fn open(path: &Path, limit: u64) -> Result<Store, FolderError> {
        Store::open_or(path, limit, true)
    }

    pub(crate) fn open_or(path: &Path, limit: u64, make: bool) -> Result<Store, FolderError> {
        Ok(Store {
            folder: Folder::open(path, make)?,
            limit,
            used: Mutex::new(None),
        })
    }

    /// What there is for a key. An entry that is found counts as used now.
    pub fn get(&self, key: &Key) -> Found {
        let name = key.file();
        let found = self.look(key);
        match found {
            Found::Entry(_) => self.folder.touch(&name),
            // Another process may have put a good one there meanwhile, which is made again then.
            Found::Damaged(_) => {
                self.folder.remove(&name);
            }
            Found::Nothing | Found::Unsafe(_) | Found::Unreadable(_) => {}
        }
        found
    }

    /// As [`Store::get`], and changes nothing.
    pub(crate) fn look(&self, key: &Key) -> Found {
        match self.folder.read(&key.file()) {
            Ok(None) => Found::Nothing,
            Ok(Some(Content::Unsafe(why))) => Found::Unsafe(why),
            Ok(Some(Content::Bytes(mut bytes))) => {
                if warpbpf_faults::strikes("cache/damaged") {
                    bytes.pop();
                }
                Entry::decode(&bytes, key).map_or_else(Found::Damaged, Found::Entry)
            }
            Err(errno) => Found::Unreadable(errno),
        }
    }

    /// Keeps an entry, in place of one with the same key. Entries that were not used for the
    /// longest time go if there is no room.
    ///
    /// # Errors
    /// [`PutError`]; nothing of the entry is left.
    pub fn put(&self, key: &Key, entry: &Entry) -> Result<(), PutError> {
        let bytes = entry.encode(key);
        let size = bytes.len() as u64;
        if size > self.limit || u32::try_from(size).is_err() {
            return Err(PutError::TooLarge {
                bytes: size,
                limit: self.limit,
            });
        }
        let failed = |errno| PutError::Write {
            path: self.folder.path.clone(),
            errno,
        };
        self.folder.write(&key.file(), &bytes).map_err(failed)?;
        let mut used = self.used.lock().unwrap_or_else(|e| e.into_inner());
        // What others put there meanwhile is seen when this process has no room left by its own
        // account.
        let now = used.map(|used| used + size);
        *used = match now {
            Some(now) if now <= self.limit => Some(now),
            // The entry is kept, whatever comes of making room.
            _ => evict::make_room(&self.folder, self.limit).unwrap_or(now),
        };
        Ok(())
    }

    /// Takes away an entry that the driver refused.
    pub fn remove(&self, key: &Key) {
        self.folder.remove(&key.file());
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder.path
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Recipe;

    /// A folder that goes when the test ends.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Scratch {
            let name = format!("warpbpf-cache-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            Folder::open(&path, true).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(crate) fn key(number: usize) -> Key {
        let text = format!("text {number}");
        let recipe = Recipe {
            text: &text,
            capability: (9, 0),
            options: &[],
            driver: "1",
        };
        recipe.key()
    }

    pub(crate) fn entry(number: usize, bytes: usize) -> Entry {
        Entry {
            label: format!("k{number}"),
            warnings: Vec::new(),
            code: vec![number as u8; bytes],
        }
    }

    /// Bytes of the file of `entry(n, 910)`, for n < 10.
    pub(crate) const THOUSAND: u64 = 1000;

    #[test]
    fn entries_are_kept() {
        let scratch = Scratch::new("kept");
        let store = Store::open(&scratch.0, 1 << 20).unwrap();
        assert_eq!(store.get(&key(1)), Found::Nothing);
        store.put(&key(1), &entry(1, 910)).unwrap();
        assert_eq!(store.get(&key(1)), Found::Entry(entry(1, 910)));
        assert_eq!(store.get(&key(2)), Found::Nothing);
        let again = Store::open(&scratch.0, 1 << 20).unwrap();
        assert_eq!(again.get(&key(1)), Found::Entry(entry(1, 910)));
        store.put(&key(1), &entry(2, 5)).unwrap();
        assert_eq!(again.get(&key(1)), Found::Entry(entry(2, 5)));
        assert_eq!(
            std::fs::read_dir(&scratch.0).unwrap().count(),
            2,
            "and the lock"
        );
    }

    #[test]
    fn a_damaged_entry_goes() {
        let scratch = Scratch::new("damaged");
        let store = Store::open(&scratch.0, 1 << 20).unwrap();
        store.put(&key(1), &entry(1, 910)).unwrap();
        let file = scratch.0.join(key(1).file());
        let mut bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len() as u64, THOUSAND);
        bytes[500] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(store.get(&key(1)), Found::Damaged(Damage::Digest));
        assert_eq!((store.get(&key(1)), file.exists()), (Found::Nothing, false));
        // Under the name of another.
        store.put(&key(1), &entry(1, 910)).unwrap();
        std::fs::rename(&file, scratch.0.join(key(2).file())).unwrap();
        assert_eq!(
            store.get(&key(2)),
            Found::Damaged(Damage::Key { found: key(1) })
        );
        assert_eq!(store.get(&key(2)), Found::Nothing);
    }

    #[test]
    fn what_has_no_room_is_told() {
        let scratch = Scratch::new("large");
        let store = Store::open(&scratch.0, THOUSAND).unwrap();
        store.put(&key(1), &entry(1, 910)).unwrap();
        let error = store.put(&key(2), &entry(2, 911)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "compiled code of 1001 bytes is not kept, as the cache may have 1000"
        );
        assert_eq!(store.get(&key(1)), Found::Entry(entry(1, 910)));
    }

    #[test]
    fn a_folder_that_goes_away_is_told() {
        let scratch = Scratch::new("gone");
        let store = Store::open(&scratch.0, 1 << 20).unwrap();
        std::fs::remove_dir_all(&scratch.0).unwrap();
        let error = store.put(&key(1), &entry(1, 910)).unwrap_err();
        assert_eq!(
            error,
            PutError::Write {
                path: scratch.0.clone(),
                errno: Errno::NOENT
            }
        );
        assert_eq!(store.get(&key(1)), Found::Nothing);
    }

    #[test]
    fn many_use_one_folder() {
        let scratch = Scratch::new("many");
        let limit = 20 * THOUSAND;
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = &scratch.0;
                scope.spawn(move || {
                    // As many stores as there would be processes.
                    let store = Store::open(path, limit).unwrap();
                    for round in 0..200 {
                        let number = (round * 7 + thread * 3) % 40;
                        match store.get(&key(number)) {
                            Found::Entry(found) => assert_eq!(found, entry(number, 900)),
                            Found::Nothing => store.put(&key(number), &entry(number, 900)).unwrap(),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        let store = Store::open(&scratch.0, limit).unwrap();
        store.put(&key(99), &entry(99, 900)).unwrap();
        let listed = store.folder.list().unwrap();
        assert!(listed.iter().all(|file| !file.is_new()));
        let bytes: u64 = listed.iter().map(|file| file.bytes).sum();
        assert!(bytes <= limit, "{bytes}");
        for number in 0..40 {
            let found = store.get(&key(number));
            assert!(
                matches!(found, Found::Entry(_) | Found::Nothing),
                "{found:?}"
            );
        }
    }
}
