//! Room: entries that were not used for the longest time go first. One process at a time makes
//! room; others go on without.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::folder::{Folder, Listed};
use crate::recipe::Key;

/// Who was writing a file for so long is dead.
const ABANDONED_SECONDS: i64 = 3600;

/// Takes entries away if there are more than `limit` bytes, until an eighth of them is free: a full
/// folder is not to be looked through for each entry. Bytes that are left; `None` if another
/// process is at it.
pub(crate) fn make_room(folder: &Folder, limit: u64) -> Result<Option<u64>, Errno> {
    let Some(_held) = folder.try_lock()? else {
        return Ok(None);
    };
    let entries = entries(folder)?;
    let used = entries.iter().map(|entry| entry.bytes).sum();
    match used > limit {
        true => shrink(folder, entries, used, limit - limit / 8).map(Some),
        false => Ok(Some(used)),
    }
}

/// Takes entries away until the rest has at most `goal` bytes; how many the rest has.
pub(crate) fn shrink(
    folder: &Folder,
    mut entries: Vec<Listed>,
    mut used: u64,
    goal: u64,
) -> Result<u64, Errno> {
    warpbpf_faults::check("cache/evict", || Errno::IO)?;
    entries.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
    for entry in &entries {
        if used <= goal {
            break;
        }
        folder.remove(&entry.name);
        used -= entry.bytes;
    }
    Ok(used)
}

/// The entries; what a killed process left half written goes.
pub(crate) fn entries(folder: &Folder) -> Result<Vec<Listed>, Errno> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as i64);
    let mut all = folder.list()?;
    all.retain(|file| {
        if file.is_new() && file.used.0 + ABANDONED_SECONDS < now {
            folder.remove(&file.name);
        }
        Key::of_file(&file.name).is_some()
    });
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;
    use crate::store::tests::{Scratch, THOUSAND, entry, key};
    use crate::store::{Found, Store};

    fn there(store: &Store) -> Vec<usize> {
        (0..12)
            .filter(|n| store.look(&key(*n)) != Found::Nothing)
            .collect()
    }

    fn used_at(scratch: &Scratch, name: &str, seconds: u64) {
        let file = File::options()
            .write(true)
            .open(scratch.0.join(name))
            .unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(at).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let scratch = Scratch::new("evict");
        let store = Store::open(&scratch.0, 8 * THOUSAND).unwrap();
        for number in 0..8 {
            store.put(&key(number), &entry(number, 910)).unwrap();
            used_at(&scratch, &key(number).file(), 1000 + number as u64);
        }
        assert_eq!(there(&store), [0, 1, 2, 3, 4, 5, 6, 7], "the limit is met");
        // Used now.
        assert!(matches!(store.get(&key(0)), Found::Entry(_)));
        store.put(&key(8), &entry(8, 910)).unwrap();
        // Nine are one too many, and one more goes to have an eighth free.
        assert_eq!(there(&store), [0, 3, 4, 5, 6, 7, 8]);
        store.put(&key(9), &entry(9, 910)).unwrap();
        assert_eq!(there(&store), [0, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn who_makes_room_already_is_not_disturbed() {
        let scratch = Scratch::new("evict-locked");
        let store = Store::open(&scratch.0, 2 * THOUSAND).unwrap();
        let held = store.folder.try_lock().unwrap();
        for number in 0..4 {
            store.put(&key(number), &entry(number, 910)).unwrap();
        }
        assert_eq!(there(&store), [0, 1, 2, 3]);
        drop(held);
        store.put(&key(4), &entry(4, 910)).unwrap();
        assert_eq!(there(&store).len(), 1);
    }

    #[test]
    fn what_is_no_entry_stays_unless_it_was_abandoned() {
        let scratch = Scratch::new("evict-others");
        let store = Store::open(&scratch.0, 2 * THOUSAND).unwrap();
        for name in [".new-1-1", ".new-1-2", "README", &key(7).file()[..20]] {
            std::fs::write(scratch.0.join(name), [0; 5000]).unwrap();
        }
        used_at(&scratch, ".new-1-1", 1000);
        used_at(&scratch, "README", 1000);
        store.put(&key(1), &entry(1, 910)).unwrap();
        store.put(&key(2), &entry(2, 910)).unwrap();
        assert_eq!(there(&store), [1, 2]);
        let is_there = |name: &str| scratch.0.join(name).exists();
        assert!(!is_there(".new-1-1") && is_there(".new-1-2") && is_there("README"));
    }
}
