//! Maps that come to a context while its kernels run, with programs that are replaced.
//!
//! A context has the maps that it began with where they were made together, and of those that come each by itself. They are made before the programs
//! that use them are in force ([`Live::grow`]); what goes by a map's number sees them from [`Live::adopt`] on, or never ([`Live::shed`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use warpbpf_driver::DriverError;
use warpbpf_maps::Write;

use crate::held::{Held, Kept};
use crate::host_ops::Loaded;
use crate::live::Live;
use crate::plan::Session;

/// What a context has beside the maps that it began with.
#[derive(Debug)]
pub(crate) struct Grown {
    /// Maps that sessions after its own brought, by the maps' identities.
    made: Mutex<HashMap<u64, Made>>,
    /// Held while one of those is made, which may take as long as kernels run: nobody waits so who needs only what is there.
    making: Mutex<()>,
    now: RwLock<Arc<Now>>,
}

#[derive(Debug)]
struct Made {
    address: u64,
    kept: Kept,
}

/// What goes by numbers of maps.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) session: Arc<Session>,
    /// By number.
    pub(crate) maps: Vec<u64>,
}

/// What was made in a context for a session that is not in force yet. It must be adopted or shed: dropped, it stays until the context ends.
#[derive(Debug)]
pub struct Growth {
    now: Now,
    /// Of the maps behind those that there were: what does the host's operations.
    kernels: Result<Vec<Result<Loaded, String>>, String>,
    kept: Kept,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

/// Which contexts began with what: what is added up over contexts begins in one of them. Of maps that came since, in the first
/// that gets them.
#[derive(Debug, Default)]
pub(crate) struct Founders(Mutex<BTreeSet<u64>>);

/// The maps whose first contents a context is about to write: another one does if it fails.
pub(crate) struct Founding<'s> {
    session: &'s Session,
    founded: Vec<u64>,
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

impl Live {
    /// The session whose maps it has by number: the one that it began with, or the last one that it adopted.
    pub fn adopted(&self) -> Arc<Session> {
        Arc::clone(&self.grown.now().session)
    }

    /// What stands in a session's slots: the environment, its maps, and the ring of messages. Maps that this has not got yet
    /// are made; the context must be current.
    ///
    /// # Errors
    /// [`DriverError`]: they cannot be made.
    pub fn addresses(&self, session: &Session) -> Result<Vec<u64>, DriverError> {
        let maps = self.map_addresses(session)?;
        Ok(session.in_slots(self.env, &maps, self.printk()))
    }

    /// Where a session's maps are. Those that this has not got yet are made; the context must be current.
    pub(crate) fn map_addresses(&self, session: &Session) -> Result<Vec<u64>, DriverError> {
        let all = 0..session.map_count();
        all.map(|map| self.map_address(session, map)).collect()
    }

    fn map_address(&self, session: &Session, map: usize) -> Result<u64, DriverError> {
        let id = session.map_id(map);
        if let Some(address) = self.known_map(map, id) {
            return Ok(address);
        }
        let _making = lock(&self.grown.making);
        // Somebody else may have made it meanwhile.
        if let Some(address) = self.known_map(map, id) {
            return Ok(address);
        }
        let made = self.driver.relaxed(|| self.make_map(session, map))?;
        let address = made.address;
        lock(&self.grown.made).insert(id, made);
        Ok(address)
    }

    /// Where a map is, if it has been made.
    fn known_map(&self, map: usize, id: u64) -> Option<u64> {
        match self.began_with(map, id) {
            Some(address) => Some(address),
            None => lock(&self.grown.made).get(&id).map(|made| made.address),
        }
    }

    fn make_map(&self, session: &Session, map: usize) -> Result<Made, DriverError> {
        let mut held = Held::new(&self.driver);
        let address = held.alloc_zeroed(session.maps()[map].bytes(), self.stream())?;
        let mut founding = Founding::new(session);
        for write in founding.contents(map, self.is_first()) {
            let at = address + write.offset;
            self.driver.write(at, &write.bytes, self.stream())?;
        }
        founding.done();
        let kept = held.keep();
        Ok(Made { address, kept })
    }

    /// Makes all that a session's maps need here and that there is not yet. The context must be current.
    ///
    /// # Errors
    /// [`DriverError`]: a map cannot be made. Those that were made stay until this is told to [`Live::shed`] them.
    pub fn grow(&self, session: &Arc<Session>) -> Result<Growth, DriverError> {
        let maps = self.map_addresses(session)?;
        let before = self.grown.now().maps.len();
        let mut held = Held::new(&self.driver);
        let slots = session.in_slots(self.env, &maps, self.printk());
        // Programs need none of it.
        let kernels = self
            .driver
            .relaxed(|| self.host_kernels(&mut held, session, &slots, before))
            .map_err(|error| error.to_string());
        Ok(Growth {
            now: Now {
                session: Arc::clone(session),
                maps,
            },
            kernels,
            kept: held.keep(),
        })
    }

    /// From now on its maps by number are those of the session that this was made for.
    pub fn adopt(&self, growth: Growth) {
        let Growth { now, kernels, kept } = growth;
        self.take_host_kernels(kernels, now.maps.len());
        self.keep(kept);
        let mut before = self
            .grown
            .now
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *before = Arc::new(now);
    }

    /// Gives back what was made for a session that does not come into force, while this one is: nothing that could be launched has an
    /// address of it. The context must be current.
    pub fn shed(&self, growth: Option<Growth>, in_force: &Session) {
        let all = 0..in_force.map_count();
        let stay: BTreeSet<u64> = all.map(|map| in_force.map_id(map)).collect();
        let mut unneeded = growth.map_or_else(Kept::default, |growth| growth.kept);
        let mut made = lock(&self.grown.made);
        let gone = made.extract_if(|id, _| !stay.contains(id));
        gone.for_each(|(_, made)| unneeded.add(made.kept));
        drop(made);
        self.driver.relaxed(|| unneeded.give_back(&self.driver));
    }
}
