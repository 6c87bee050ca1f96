//! Executable graphs that the application had instantiated before we came: the driver does not say
//! what is in one, so their kernels stay as they are. Their launches are counted, which is all that
//! can be told of them.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use warpbpf_driver::sys::CUgraphExec;

use crate::sys::lock::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Older {
    /// We came late, so there may be some.
    wanted: AtomicBool,
    graphs: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Instantiated since, or made of a graph that was seen.
    newer: HashSet<usize>,
    /// Launches of the others.
    launches: HashMap<usize, u64>,
    /// Those that are gone, and launches of them.
    gone: (u64, u64),
}

impl Older {
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// From here on; hooks see what is instantiated.
    pub(crate) fn begin(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Nobody is told any more, and no lock is taken.
    pub(crate) fn end(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// What is in it is known.
    pub(crate) fn is_newer(&self, exec: CUgraphExec) {
        if self.is_wanted() {
            lock(&self.graphs).newer.insert(exec as usize);
        }
    }

    /// The handle may be that of another one soon.
    pub(crate) fn is_gone(&self, exec: CUgraphExec) {
        if !self.is_wanted() {
            return;
        }
        let mut graphs = lock(&self.graphs);
        graphs.newer.remove(&(exec as usize));
        if let Some(launches) = graphs.launches.remove(&(exec as usize)) {
            graphs.gone.0 += 1;
            graphs.gone.1 += launches;
        }
    }

    /// One was launched. Programs that came into a single node of an older one since do not make it
    /// a newer one.
    pub(crate) fn launched(&self, exec: CUgraphExec) {
        if !self.is_wanted() {
            return;
        }
        let mut graphs = lock(&self.graphs);
        if !graphs.newer.contains(&(exec as usize)) {
            *graphs.launches.entry(exec as usize).or_default() += 1;
        }
    }

    /// How many there were, and how many launches of them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let graphs = lock(&self.graphs);
        let (gone, launches) = graphs.gone;
        let there = graphs.launches.len() as u64;
        (
            gone + there,
            launches + graphs.launches.values().sum::<u64>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_graphs_that_were_there_before_are_counted() {
        let older = Older::default();
        let graph = |number: usize| number as CUgraphExec;
        older.launched(graph(1));
        assert_eq!(older.counts(), (0, 0), "nobody came late");
        older.begin();
        older.is_newer(graph(2));
        for number in [1, 1, 2, 3] {
            older.launched(graph(number));
        }
        assert_eq!(older.counts(), (2, 3));
        // The handle of one that is gone is that of a new one.
        older.is_gone(graph(3));
        older.is_newer(graph(3));
        older.launched(graph(3));
        assert_eq!(older.counts(), (2, 3));
        // And one that was new is gone, and one that is not known has its handle.
        older.is_gone(graph(2));
        older.launched(graph(2));
        assert_eq!(older.counts(), (3, 4));
        older.end();
        older.launched(graph(1));
        assert_eq!(older.counts(), (3, 4));
    }
}
