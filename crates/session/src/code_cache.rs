//! Machine code that earlier processes compiled, as a session uses it: what goes wrong is told
//! once, and costs a compilation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use warpbpf_cache::{Entry, Found, Key, PutError, Recipe, Store};
use warpbpf_driver::{DriverError, JitOptions};

/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: i32 = 2;
/// What a context answers that a kernel broke, or that is gone: from `CUDA_ERROR_ILLEGAL_ADDRESS`
/// on.
const ELSEWHERE: std::ops::RangeInclusive<i32> = 700..=719;

/// Runs what it is given, once, on a thread to which a call on a file brings no signal of the
/// application's.
pub type Elsewhere = Box<dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync>;

/// See the module.
pub struct CodeCache {
    store: Store,
    elsewhere: Elsewhere,
    driver: String,
    notes: Mutex<Vec<String>>,
    /// Something was not kept: no more is, so that a full disk is not tried again and again.
    full: AtomicBool,
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeCache")
            .field("store", &self.store)
            .field("driver", &self.driver)
            .finish_non_exhaustive()
    }
}

impl CodeCache {
    /// Over a folder. `driver` tells drivers apart whose compilers may differ.
    pub fn new(store: Store, driver: String, elsewhere: Elsewhere) -> CodeCache {
        CodeCache {
            store,
            elsewhere,
            driver,
            notes: Mutex::default(),
            full: AtomicBool::new(false),
        }
    }

    /// What a user should know since the last time that this was asked.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, text: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(text);
    }

    /// The key of a text for a device of this compute capability.
    pub(crate) fn key(&self, text: &str, capability: (u32, u32), jit: &JitOptions) -> Key {
        let recipe = Recipe {
            text,
            capability,
            options: jit.pairs(),
            driver: &self.driver,
        };
        recipe.key()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Entry> {
        let folder = self.store.path().display();
        match self.with(|| self.store.get(key)) {
            Found::Entry(entry) => return Some(entry),
            Found::Nothing => {}
            Found::Damaged(damage) => self.note(format!(
                "compiled code in `{folder}` was damaged, taken away and compiled again: {damage}"
            )),
            Found::Unsafe(why) => self.note(format!(
                "compiled code in `{folder}` is not used, as it could be anybody's: `{key}`: {why}"
            )),
            Found::Unreadable(errno) => self.note(format!(
                "compiled code in `{folder}` cannot be read: {errno}"
            )),
        }
        None
    }

    pub(crate) fn put(&self, key: &Key, entry: &Entry) {
        if self.full.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.with(|| self.store.put(key, entry)) {
            let full = matches!(error, PutError::Write { .. });
            self.full.fetch_or(full, Ordering::Relaxed);
            self.note(error.to_string());
        }
    }

    /// The driver does not take an entry's code.
    pub(crate) fn refused(&self, key: &Key, error: &DriverError) {
        // One that has no memory, or no context any more, says nothing of the code.
        if !ELSEWHERE.contains(&error.code) && error.code != OUT_OF_MEMORY {
            self.with(|| self.store.remove(key));
        }
        self.note(format!(
            "the driver refuses compiled code from `{}`; it was compiled again: {error}",
            self.store.path().display()
        ));
    }

    /// What `work` gives, which uses the store.
    fn with<T: Send>(&self, work: impl Fn() -> T + Sync) -> T {
        let mut result = None;
        (self.elsewhere)(&mut || result = Some(work()));
        result.unwrap_or_else(work)
    }

    /// The driver does not give code.
    pub(crate) fn not_linked(&self, error: &DriverError) {
        self.note(format!("compiled code is not kept: {error}"));
    }
}
