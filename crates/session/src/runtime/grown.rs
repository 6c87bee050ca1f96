//! The maps of a context: those that it began with, and those that came since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use warpbpf_maps::Write;

use crate::plan::session::Session;
use crate::runtime::held::Kept;

/// What a context has beside the maps that it began with.
#[derive(Debug)]
pub(crate) struct Grown {
    /// Maps that sessions after its own brought, by the maps' identities.
    pub(crate) made: Mutex<HashMap<u64, Made>>,
    /// Held while one of those is made, which may take as long as kernels run: nobody waits so who
    /// needs only what is there.
    pub(crate) making: Mutex<()>,
    pub(crate) now: RwLock<Arc<Now>>,
}

#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) address: u64,
    pub(crate) kept: Kept,
}

/// What goes by numbers of maps.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) session: Arc<Session>,
    /// By number.
    pub(crate) maps: Vec<u64>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grown {
    /// Of a context that begins with a session's maps, at these addresses.
    pub(crate) fn new(session: Arc<Session>, maps: Vec<u64>) -> Grown {
        Grown {
            made: Mutex::default(),
            making: Mutex::default(),
            now: RwLock::new(Arc::new(Now { session, maps })),
        }
    }

    pub(crate) fn now(&self) -> Arc<Now> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// All that maps took, to be given back.
    pub(crate) fn take_kept(&self) -> Kept {
        let mut kept = Kept::default();
        for (_, made) in lock(&self.made).drain() {
            kept.add(made.kept);
        }
        kept
    }
}

/// The maps whose first contents a context is about to write: another one does if it fails.
pub(crate) struct Founding<'s> {
    pub(crate) session: &'s Session,
    pub(crate) founded: Vec<u64>,
}

impl<'s> Founding<'s> {
    pub(crate) fn new(session: &'s Session) -> Founding<'s> {
        Founding {
            session,
            founded: Vec::new(),
        }
    }

    /// First contents of a map in a context that is, or is not, the first of all.
    pub(crate) fn contents(&mut self, map: usize, first: bool) -> &'s [Write] {
        let session: &'s Session = self.session;
        let plan = &session.maps()[map];
        let founds = match map < session.first_maps() {
            true => first,
            false => {
                let id = session.map_id(map);
                let new = lock(&session.lineage.founders.0).insert(id);
                self.founded.extend(new.then_some(id));
                new
            }
        };
        if founds { &plan.image } else { &plan.further }
    }

    /// They are written.
    pub(crate) fn done(mut self) {
        self.founded.clear();
    }
}

impl Drop for Founding<'_> {
    fn drop(&mut self) {
        let mut founders = lock(&self.session.lineage.founders.0);
        for id in &self.founded {
            founders.remove(id);
        }
    }
}
