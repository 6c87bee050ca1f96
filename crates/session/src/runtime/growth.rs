//! Maps that come to a context while its kernels run, with programs that are replaced.
//!
//! A context has the maps that it began with where they were made together, and of those that come
//! each by itself. They are made before the programs that use them are in force ([`Live::grow`]);
//! what goes by a map's number sees them from [`Live::adopt`] on, or never ([`Live::shed`]).

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use warpbpf_driver::DriverError;

use crate::plan::session::Session;
use crate::runtime::grown::{Founding, Made, Now, lock};
use crate::runtime::held::{Held, Kept};
use crate::runtime::host_ops::Came;
use crate::runtime::live::Live;

/// What was made in a context for a session that is not in force yet. It must be adopted or shed:
/// dropped, it stays until the context ends.
#[derive(Debug)]
pub struct Growth {
    now: Now,
    /// Of the maps behind those that there were: what does the host's operations.
    kernels: Came,
    kept: Kept,
}

impl Live {
    /// The session whose maps it has by number: the one that it began with, or the last one that it
    /// adopted.
    pub fn adopted(&self) -> Arc<Session> {
        Arc::clone(&self.grown.now().session)
    }

    /// What stands in a session's slots: the environment, its maps, and the ring of messages. Maps
    /// that this has not got yet are made; the context must be current.
    ///
    /// # Errors
    /// [`DriverError`]: they cannot be made.
    pub fn addresses(&self, session: &Session) -> Result<Vec<u64>, DriverError> {
        let maps = self.map_addresses(session)?;
        Ok(session.in_slots(self.env, &maps, self.printk()))
    }

    /// Where a session's maps are. Those that this has not got yet are made; the context must be
    /// current.
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

    /// Makes all that a session's maps need here and that there is not yet. The context must be
    /// current.
    ///
    /// # Errors
    /// [`DriverError`]: a map cannot be made. Those that were made stay until this is told to
    /// [`Live::shed`] them.
    pub fn grow(&self, session: &Arc<Session>) -> Result<Growth, DriverError> {
        let maps = self.map_addresses(session)?;
        let before = self.grown.now().maps.len();
        let mut held = Held::new(&self.driver);
        let slots = session.in_slots(self.env, &maps, self.printk());
        // Programs need none of it.
        let kernels = self
            .driver
            .relaxed(|| self.host_kernels(&mut held, session, &slots, before));
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

    /// Gives back what was made for a session that does not come into force, while this one is:
    /// nothing that could be launched has an address of it. The context must be current.
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
