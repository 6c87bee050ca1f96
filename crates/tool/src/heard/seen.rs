//! What an application shows of its maps, rings and losses: shared memory while it runs, and what a
//! report needs of that once it has ended, so that a tool which sees thousands come and go has no
//! mapping for each.

use std::os::fd::OwnedFd;

use warpbpf_wire::{
    ContextInfo, DeviceLosses, Event, Kept, MapInfo, SharedError, SharedReader, SharedWriter,
};

/// What there is of a context.
#[derive(Debug)]
pub(crate) struct InContext {
    pub(crate) info: ContextInfo,
    pub(crate) shared: Seen,
    /// Bytes that were in its memory when that was closed here.
    held: u64,
    /// The shared memory once more, to be given to others: that of the first maps, then of those
    /// that came. Empty once the application has ended.
    pub(crate) memory: Vec<OwnedFd>,
    /// Parallel to it: the numbers of their first maps.
    pub(crate) firsts: Vec<u32>,
    /// The ring is damaged, or another tool reads it.
    pub(crate) no_events: bool,
}

/// Bytes of a map that are made room for without a look whether they are there.
const FEW: u64 = 64 << 20;

impl InContext {
    pub(crate) fn new(
        info: ContextInfo,
        shared: SharedReader,
        memory: OwnedFd,
        no_events: bool,
    ) -> InContext {
        InContext {
            info,
            shared: Seen::Shared(shared),
            held: 0,
            memory: vec![memory],
            firsts: vec![0],
            no_events,
        }
    }

    /// Bytes of its memory that are there.
    fn holds(&self) -> u64 {
        let blocks = |memory: &OwnedFd| rustix::fs::fstat(memory).map_or(0, |s| s.st_blocks);
        let held: i64 = self.memory.iter().map(blocks).sum();
        self.held.max(u64::try_from(held).unwrap_or(0) * 512)
    }

    /// The snapshots of a map are as long as they should be, and what was published is there: the
    /// file itself may be much longer than what its process has written.
    pub(crate) fn may_hold(&self, map: usize, bytes: u64) -> bool {
        self.shared.snapshot_bytes(map) == Some(bytes)
            && (bytes <= FEW || self.shared.sequence(map) == 0 || self.holds() >= bytes)
    }

    /// Nobody writes there any more, and what is there is mapped: applications that have ended need
    /// no descriptors.
    pub(crate) fn close(&mut self) {
        self.held = self.holds();
        self.memory = Vec::new();
        self.firsts = Vec::new();
    }

    /// A number that changes when the agent brings something home.
    pub(crate) fn progress(&self) -> u64 {
        let Seen::Shared(shared) = &self.shared else {
            return 0;
        };
        let copies = (0..shared.maps()).map(|map| shared.sequence(map));
        copies.fold(shared.written(), u64::wrapping_add)
    }

    /// Gives the mapping up, where nothing is in it any more that was not read.
    pub(crate) fn unmap(&mut self) {
        let Seen::Shared(shared) = &self.shared else {
            return;
        };
        // Who still has its descriptors may still be told of more.
        let in_use = !self.memory.is_empty() || !self.no_events && !shared.is_drained();
        if in_use {
            return;
        }
        let published = (0..shared.maps()).filter(|map| shared.sequence(*map) > 0);
        let bytes = published.filter_map(|map| shared.snapshot_bytes(map));
        // Whoever says more than there is has its holes looked at by nobody.
        let bytes = bytes.fold(0, u64::saturating_add);
        if bytes > self.held {
            return;
        }
        if let Ok(kept) = Kept::of(shared) {
            self.shared = Seen::Kept(kept);
        }
    }

    /// What there is of all maps, in memory that is made now: for who asks when the application has
    /// ended.
    pub(crate) fn copied(&self, maps: &[MapInfo]) -> Result<OwnedFd, SharedError> {
        let there = maps.iter().take(self.shared.maps());
        let sizes: Vec<u64> = there.map(|map| map.bytes).collect();
        let (mut memory, file) = SharedWriter::create(&sizes, 0)?;
        let mut bytes = Vec::new();
        for map in (0..sizes.len()).filter(|map| sizes[*map] > 0) {
            if self.shared.snapshot(map, &mut bytes)?.is_some() {
                memory.publish(map, &bytes)?;
            }
        }
        Ok(file)
    }
}

/// Shared memory, or what is left of it.
#[derive(Debug)]
pub(crate) enum Seen {
    /// It is mapped.
    Shared(SharedReader),
    /// It is not.
    Kept(Kept),
}

/// What both can be asked.
macro_rules! asked {
    ($(fn $name:ident($($argument:ident: $ty:ty),*) -> $result:ty;)*) => {
        $(pub(crate) fn $name(&self, $($argument: $ty),*) -> $result {
            match self {
                Seen::Shared(shared) => shared.$name($($argument),*),
                Seen::Kept(kept) => kept.$name($($argument),*),
            }
        })*
    };
}

impl Seen {
    asked! {
        fn maps() -> usize;
        fn snapshot(map: usize, into: &mut Vec<u8>) -> Result<Option<u64>, SharedError>;
        fn snapshot_bytes(map: usize) -> Option<u64>;
        fn sequence(map: usize) -> u64;
        fn lost(map: u32) -> u64;
        fn device_losses(map: u32) -> DeviceLosses;
        fn clock_error() -> Option<u64>;
    }

    /// As [`SharedReader::append`]: nothing comes where the application has ended.
    pub(crate) fn append(&mut self, maps: SharedReader) {
        if let Seen::Shared(shared) = self {
            shared.append(maps);
        }
    }

    /// As [`SharedReader::events_while`]: there are none where all were read.
    pub(crate) fn events_while(
        &mut self,
        sink: impl FnMut(Event<'_>) -> bool,
    ) -> Result<u64, SharedError> {
        match self {
            Seen::Shared(shared) => shared.events_while(sink),
            Seen::Kept(_) => Ok(0),
        }
    }
}
