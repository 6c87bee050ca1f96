//! From a kernel handle to what replaces it. Read by every launch, without a lock and without a
//! write.
//!
//! Open addressing over atomics. Writers hold a lock; a full table is replaced by a larger one.
//! Replaced tables stay as long as the agent, because a launch on another thread may be looking at
//! them: all tables together are at most twice the last one.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::sys::arena::Arena;

/// A map from non-null handles to values that live as long as the agent.
#[derive(Debug)]
pub(crate) struct Table<T: 'static> {
    current: AtomicPtr<Slots<T>>,
    /// Those that were current, and the one that is.
    all: Arena<Slots<T>>,
    /// Held by writers; the value says whether the table is closed for good.
    writer: Mutex<bool>,
}

#[derive(Debug)]
struct Slots<T: 'static> {
    slots: Box<[Slot<T>]>,
    /// Slots whose key is set. Only touched under the writer lock.
    used: AtomicUsize,
}

#[derive(Debug)]
struct Slot<T> {
    key: AtomicUsize,
    /// Null when the key was removed.
    value: AtomicPtr<T>,
}

/// Slots of the first table; a power of two.
const FIRST: usize = 256;

impl<T> Slots<T> {
    fn new(size: usize) -> Slots<T> {
        let slot = || Slot {
            key: AtomicUsize::new(0),
            value: AtomicPtr::new(ptr::null_mut()),
        };
        Slots {
            slots: (0..size).map(|_| slot()).collect(),
            used: AtomicUsize::new(0),
        }
    }

    /// The slot of `key`, or the first empty one of its probe. There always is one: a quarter is
    /// kept empty.
    fn find(&self, key: usize) -> &Slot<T> {
        let mask = self.slots.len() - 1;
        let mut at = hash(key) & mask;
        loop {
            let slot = &self.slots[at];
            let there = slot.key.load(Ordering::Acquire);
            if there == key || there == 0 {
                return slot;
            }
            at = (at + 1) & mask;
        }
    }

    fn put(&self, key: usize, value: *mut T) {
        let slot = self.find(key);
        slot.value.store(value, Ordering::Release);
        if slot.key.load(Ordering::Relaxed) == 0 {
            slot.key.store(key, Ordering::Release);
            self.used.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Handles are aligned pointers or small numbers: their low bits alone would collide.
fn hash(key: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32
}

impl<T: Sync> Table<T> {
    pub(crate) fn new() -> Table<T> {
        let table = Table {
            current: AtomicPtr::new(ptr::null_mut()),
            all: Arena::default(),
            writer: Mutex::new(false),
        };
        table.put_in_force(FIRST);
        table
    }

    /// An empty one is current from now on.
    fn put_in_force(&self, size: usize) {
        self.store(self.make(size));
    }

    fn make(&self, size: usize) -> &'static Slots<T> {
        // SAFETY: the table is a part of an agent.
        unsafe { self.all.keep(Slots::new(size)) }
    }

    fn store(&self, slots: &Slots<T>) {
        self.current
            .store(ptr::from_ref(slots).cast_mut(), Ordering::Release);
    }

    /// What stands for `key`.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&'static T> {
        // SAFETY: whatever pointer was current lives as long as the table.
        let slots = unsafe { &*self.current.load(Ordering::Acquire) };
        let slot = slots.find(key);
        if slot.key.load(Ordering::Relaxed) != key || key == 0 {
            return None;
        }
        // SAFETY: null, or a reference of static lifetime that `insert` was given.
        unsafe { slot.value.load(Ordering::Acquire).as_ref() }
    }

    /// Sets what stands for `key`, unless the table was closed.
    pub(crate) fn insert(&self, key: usize, value: &'static T) {
        let closed = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed || key == 0 {
            return;
        }
        // SAFETY: as in `get`.
        let mut slots = unsafe { &*self.current.load(Ordering::Relaxed) };
        if slots.used.load(Ordering::Relaxed) * 4 >= slots.slots.len() * 3 {
            slots = self.grow(slots);
        }
        slots.put(key, ptr::from_ref(value).cast_mut());
    }

    /// Removes `key`, for instance because the driver may give the handle to another kernel.
    pub(crate) fn remove(&self, key: usize) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `get`.
        let slots = unsafe { &*self.current.load(Ordering::Relaxed) };
        let slot = slots.find(key);
        // The key stays, so that probes that pass over it still find what lies behind.
        slot.value.store(ptr::null_mut(), Ordering::Release);
    }

    /// Removes everything and ignores every later insert.
    pub(crate) fn close(&self) {
        let mut closed = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        self.put_in_force(FIRST);
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_in_force(FIRST);
    }

    /// [`Table::close`] for a forked child, where the lock may be held by a thread that does not
    /// exist there. `empty` was made before the fork.
    pub(crate) fn replace_after_fork(&self, empty: &EmptyTable<T>) {
        self.store(&empty.0);
    }

    fn grow(&self, old: &'static Slots<T>) -> &'static Slots<T> {
        let live: Vec<(usize, *mut T)> = old
            .slots
            .iter()
            .map(|s| {
                (
                    s.key.load(Ordering::Relaxed),
                    s.value.load(Ordering::Relaxed),
                )
            })
            .filter(|(_, value)| !value.is_null())
            .collect();
        let size = (live.len() * 4).next_power_of_two().max(FIRST);
        let new = self.make(size);
        for (key, value) in live {
            new.put(key, value);
        }
        self.store(new);
        new
    }
}

/// An empty table in reserve, see [`Table::replace_after_fork`]. It lives as long as the table that
/// it is for.
#[derive(Debug)]
pub(crate) struct EmptyTable<T: 'static>(Box<Slots<T>>);

impl<T> EmptyTable<T> {
    pub(crate) fn new() -> EmptyTable<T> {
        EmptyTable(Box::new(Slots::new(FIRST)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn leak(value: u64) -> &'static u64 {
        Box::leak(Box::new(value))
    }

    #[test]
    fn handles_come_go_and_come_back_as_others() {
        let table = Table::new();
        assert_eq!(table.get(16), None);
        assert_eq!(table.get(0), None);
        table.insert(16, leak(1));
        table.insert(32, leak(2));
        table.insert(0, leak(9));
        assert_eq!((table.get(16), table.get(32)), (Some(&1), Some(&2)));
        assert_eq!(table.get(0), None);
        table.remove(16);
        table.remove(48);
        assert_eq!((table.get(16), table.get(32)), (None, Some(&2)));
        table.insert(16, leak(3));
        assert_eq!(table.get(16), Some(&3));
        table.insert(16, leak(4));
        assert_eq!(table.get(16), Some(&4));
        table.clear();
        assert_eq!((table.get(16), table.get(32)), (None, None));
        table.insert(16, leak(5));
        assert_eq!(table.get(16), Some(&5));
        table.close();
        assert_eq!((table.get(16), table.get(32)), (None, None));
        table.insert(16, leak(6));
        assert_eq!(table.get(16), None);
    }

    #[test]
    fn removed_keys_do_not_fill_the_table_for_ever() {
        let table = Table::new();
        let value = leak(7);
        for key in 1..20_000usize {
            table.insert(key, value);
            table.remove(key);
        }
        // SAFETY: it lives as long as the table.
        let slots = unsafe { &*table.current.load(Ordering::Relaxed) };
        assert_eq!(slots.slots.len(), FIRST);
        assert!((1..20_000).all(|key| table.get(key).is_none()));
    }

    #[test]
    fn a_forked_child_sees_nothing() {
        let table = Table::new();
        let empty = Box::leak(Box::new(EmptyTable::new()));
        table.insert(8, leak(1));
        let _held = table.writer.lock().unwrap();
        table.replace_after_fork(empty);
        assert_eq!(table.get(8), None);
    }

    #[test]
    fn readers_always_see_the_right_value_or_none() {
        let table: &'static Table<u64> = Box::leak(Box::new(Table::new()));
        let done = AtomicBool::new(false);
        // Values are made before the race; key k always stands for value k.
        let values: Vec<&'static u64> = (0..4000).map(leak).collect();
        std::thread::scope(|scope| {
            for start in 0..2usize {
                let done = &done;
                scope.spawn(move || {
                    let mut key = start;
                    while !done.load(Ordering::Acquire) {
                        key = (key + 7) % 4000;
                        if let Some(value) = table.get(key) {
                            assert_eq!(*value, key as u64);
                        }
                    }
                });
            }
            for round in 0..3 {
                for (key, value) in values.iter().enumerate().skip(1) {
                    table.insert(key, value);
                    if key % 3 == round {
                        table.remove(key);
                    }
                }
            }
            done.store(true, Ordering::Release);
        });
        for key in 1..4000usize {
            let expected = (key % 3 != 2).then_some(key as u64);
            assert_eq!(table.get(key).copied(), expected);
        }
    }
}
