//! Hashes through which ever new keys come are made anew while nothing runs that uses them.
//!
//! A key that was deleted keeps its slot (`maps::hash`), so such a map runs out of slots. Whoever
//! calls this has proved that no kernel with programs is running and that none begins; how is not
//! known here. The map is copied, made anew on the host, and written back as a whole by one copy,
//! because its address stands in the code of programs. If that copy fails, the old map is written
//! back by the same means.

use warpbpf_abi::layout::MapLayout;
use warpbpf_driver::DriverError;
use warpbpf_maps::hash;

use crate::runtime::live::Live;

/// Largest map that is made anew. What takes long is done with no kernel waiting for it, but a
/// context that ends meanwhile does.
const MOST: u64 = 64 << 20;

/// A map as it was copied, and as it is to be.
#[derive(Debug)]
pub struct Compacted {
    map: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A map that is neither as it was nor as it was to be.
#[derive(Debug, thiserror::Error)]
#[error("map `{map}` could not be written: {error}")]
pub struct Torn {
    /// Its name.
    pub map: String,
    /// What the driver said when the old map was written back.
    pub error: DriverError,
}

impl Live {
    /// Numbers of the maps that can be made anew.
    pub fn compactable(&self) -> impl Iterator<Item = usize> {
        let maps = self.session().maps().iter().enumerate();
        maps.filter(|(index, plan)| {
            let hash = matches!(plan.layout, MapLayout::Hash(_));
            hash && !self.is_in_host(*index) && plan.bytes() <= MOST
        })
        .map(|(index, _)| index)
    }

    /// So much of a map is used up that it should be made anew. Reads a part of it, and may be
    /// asked while kernels run.
    ///
    /// # Errors
    /// [`DriverError`] of the copy.
    pub fn wants_compaction(&self, map: usize) -> Result<bool, DriverError> {
        let MapLayout::Hash(layout) = self.session().maps()[map].layout else {
            return Ok(false);
        };
        let mut bytes = vec![0; hash::sample(&layout) as usize];
        self.snapshot(map, 0, &mut bytes)?;
        Ok(hash::wants_compaction(&layout, &bytes))
    }

    /// Copies a quiet map. It may be used again as soon as this returns.
    ///
    /// # Errors
    /// [`DriverError`] of the copy.
    pub fn copy_for_compaction(&self, map: usize) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0; self.session().maps()[map].bytes() as usize];
        self.snapshot(map, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The map of such a copy anew; `None` if its keys collide so much that it cannot be made.
    /// Takes a while and asks no driver.
    pub fn compacted(&self, map: usize, before: Vec<u8>) -> Option<Compacted> {
        let plan = &self.session().maps()[map];
        let MapLayout::Hash(layout) = plan.layout else {
            return None;
        };
        let after = hash::compact(&plan.name, &layout, &before).ok()?;
        Some(Compacted { map, before, after })
    }

    /// Puts a map in place that is as it was copied. False if the driver did not take it, and then
    /// it is as it was.
    ///
    /// # Errors
    /// [`Torn`]: it is neither.
    pub fn put_compacted(&self, compacted: &Compacted) -> Result<bool, Torn> {
        if self.write_map(compacted.map, &compacted.after).is_ok() {
            return Ok(true);
        }
        match self.write_map(compacted.map, &compacted.before) {
            Ok(()) => Ok(false),
            Err(error) => Err(Torn {
                map: self.session().maps()[compacted.map].name.clone(),
                error,
            }),
        }
    }
}
