//! Launch arguments of functions that Compute Sanitizer calls. Such a function gets one argument,
//! the address of a table. So each launch has a table of its own: first what is the same for all
//! launches, then the launch arguments.
//!
//! A table is written in the launch's stream, in front of the kernel. A later launch of that stream
//! may use it again, because by the stream's order nobody reads it any more. Threads that launch in
//! one stream at the same time have a table each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_abi::layout::launch;
use warpbpf_driver::sys::CUresult;
use warpbpf_driver::{Driver, Stream};
use warpbpf_patch::HiddenParam;
use warpbpf_sanitizer::Sanitizer;

use crate::runtime::launch_records::LaunchRecords;

/// Threads that can be about to launch one kernel in one stream.
const MOST_AT_ONCE: usize = 16;

/// Words of a launch: a number for each of [`launch`].
pub type Words = [u64; launch::param_size(true) as usize / 8];

/// The tables of a kernel's launches.
#[derive(Debug)]
pub struct Tables {
    sanitizer: &'static Sanitizer,
    /// The kernel's function.
    function: usize,
    /// The launch arguments that it needs.
    pub(crate) needs: HiddenParam,
    /// What each begins with.
    common: Vec<u64>,
    records: Arc<LaunchRecords>,
    of_streams: Mutex<HashMap<Stream, Vec<Piece>>>,
}

/// A table in memory, and whether a thread is about to launch with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    address: u64,
    taken: bool,
}

/// A table for a launch that is about to be made.
#[derive(Debug)]
pub struct Table<'t> {
    tables: &'t Tables,
    stream: Stream,
    address: u64,
}

impl Tables {
    pub(crate) fn new(
        (sanitizer, function): (&'static Sanitizer, usize),
        needs: HiddenParam,
        common: Vec<u64>,
        records: Arc<LaunchRecords>,
    ) -> Tables {
        Tables {
            sanitizer,
            function,
            needs,
            common,
            records,
            of_streams: Mutex::default(),
        }
    }

    /// A table for a launch in the stream `handle`, which `key` names. `None` if no memory is left
    /// or the driver does not write it: the original must run.
    pub fn table(
        &self,
        driver: &Driver,
        (key, handle): (Stream, Stream),
        words: Words,
    ) -> Option<Table<'_>> {
        let mut streams = self
            .of_streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = (self.common.iter().chain(&words))
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let room = || self.records.take(bytes.len() as u64);
        let address = take(streams.entry(key).or_default(), room)?;
        drop(streams);
        // What goes back if it is not written.
        let table = Table {
            tables: self,
            stream: key,
            address,
        };
        // SAFETY: a copy out of memory that is not page-locked has left it when the call returns
        // (CUDA Driver API, "API synchronization behavior").
        let written = driver.relaxed(|| unsafe { driver.start_write(address, &bytes, handle) });
        written.ok().map(|()| table)
    }
}

/// One that nobody is about to launch with, or a new one.
fn take(pieces: &mut Vec<Piece>, room: impl FnOnce() -> Option<u64>) -> Option<u64> {
    if let Some(piece) = pieces.iter_mut().find(|piece| !piece.taken) {
        piece.taken = true;
        return Some(piece.address);
    }
    let address = (pieces.len() < MOST_AT_ONCE).then(room)??;
    pieces.push(Piece {
        address,
        taken: true,
    });
    Some(address)
}

impl Table<'_> {
    /// The launch, whose functions get this table.
    pub fn launch(self, run: impl FnOnce() -> CUresult) -> CUresult {
        let Tables {
            sanitizer,
            function,
            ..
        } = self.tables;
        sanitizer.telling(*function, self.address, run)
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        let streams = self.tables.of_streams.lock();
        let mut streams = streams.unwrap_or_else(PoisonError::into_inner);
        let mut own = streams.get_mut(&self.stream).into_iter().flatten();
        if let Some(piece) = own.find(|piece| piece.address == self.address) {
            piece.taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_launch_at_once_have_a_table_each() {
        let mut pieces = Vec::new();
        let mut next = 0;
        let mut take = |pieces: &mut Vec<Piece>, full: bool| {
            take(pieces, || {
                next += if full { 0 } else { 256 };
                (!full).then_some(next)
            })
        };
        assert_eq!(take(&mut pieces, false), Some(256));
        assert_eq!(take(&mut pieces, false), Some(512));
        // What was launched with serves the next one.
        pieces[0].taken = false;
        assert_eq!(take(&mut pieces, false), Some(256));
        assert_eq!(take(&mut pieces, true), None);
        assert_eq!(pieces.len(), 2);
        for number in 3..=MOST_AT_ONCE as u64 {
            assert_eq!(take(&mut pieces, false), Some(256 * number));
        }
        assert_eq!(take(&mut pieces, false), None);
        pieces[7].taken = false;
        assert_eq!(take(&mut pieces, false), Some(256 * 8));
    }
}
