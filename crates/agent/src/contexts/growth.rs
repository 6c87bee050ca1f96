//! Maps that a replacement brings, in the contexts that there are: they are made while the old
//! programs run, come into force with the programs that use them, or are freed.
//!
//! A context that comes meanwhile gets the maps that are in force when it comes; what it lacks then
//! it gets as soon as the replacement is done.

use std::sync::Arc;

use warpbpf_driver::DriverError;
use warpbpf_session::{Live, Session};
use warpbpf_wire::{MoreMaps, NoteLevel, SharedError, ToTool};

use crate::device::background::is_background;
use crate::device::bound::OverBound;
use crate::device::context_registry::{Growing, Shard};
use crate::runtime::agent::Agent;
use crate::sys::lock::{lock, tried};

/// Why a context does not get the maps of programs that come next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowthError {
    #[error("{0}")]
    Bound(#[from] OverBound),
    #[error("the maps that they bring cannot be made: {0}")]
    Driver(#[from] DriverError),
    /// The memory that the tool reads them in.
    #[error("the maps that they bring cannot be made: {0}")]
    Shared(SharedError),
}

impl Agent {
    /// Makes what the maps of programs that come next need in a context, which is current.
    ///
    /// # Errors
    /// Why not; nothing of it is kept but maps, which [`Agent::shed`] gives back.
    pub(crate) fn prepare(
        &self,
        shard: &Shard,
        live: &Live,
        session: &Arc<Session>,
    ) -> Result<(), GrowthError> {
        // What it came with may be older than what is in force.
        self.catch_up(shard, live);
        let _turn = lock(&shard.turn);
        self.grow(shard, live, session)
    }

    fn grow(&self, shard: &Shard, live: &Live, session: &Arc<Session>) -> Result<(), GrowthError> {
        self.bound
            .take_for(&self.driver, shard.context.0 as usize, session)?;
        let growth = live.grow(session)?;
        let more = match &*shard.pump() {
            Some(pump) => pump.more(session, &self.files),
            // Nothing is copied out of it any more.
            None => Ok(None),
        };
        match more {
            Ok(more) => {
                let more = more.map(|(mut more, fd)| {
                    self.driver.relaxed(|| more.lock_pages(&self.driver));
                    (more, fd)
                });
                *lock(&shard.growing) = Some(Growing {
                    generation: session.generation(),
                    growth,
                    more,
                });
                Ok(())
            }
            Err(error) => {
                live.shed(Some(growth), session);
                Err(GrowthError::Shared(error))
            }
        }
    }

    /// Takes over what was made in a context, which is current, for the programs that are in force
    /// now, and tells the tool.
    fn adopt(&self, shard: &Shard, live: &Live) {
        let Some(number) = shard.number.get() else {
            return;
        };
        let Some(Growing { growth, more, .. }) = lock(&shard.growing).take() else {
            return;
        };
        let first = {
            let mut pump = shard.pump();
            live.adopt(growth);
            more.and_then(|(more, fd)| {
                self.driver.relaxed(|| match &mut *pump {
                    Some(pump) => Some((pump.append(&self.driver, more), fd)),
                    None => {
                        more.give_up(&self.driver);
                        None
                    }
                })
            })
        };
        if let Some((first, fd)) = first {
            // What a context leaves is looked at when it has ended.
            shard.share(&fd);
            let maps = MoreMaps {
                context: *number,
                first: first as u32,
                device_bytes: self.bound.of(shard.context.0 as usize),
            };
            self.send(ToTool::Maps(maps), Some(fd));
            if !self.is_on() {
                // The tool has gone meanwhile.
                shard.keep_no_memory();
            }
        }
    }

    /// Has all contexts take over what was made in them for the programs that are in force, and
    /// made in those that came meanwhile.
    pub(crate) fn adopt_all(&'static self) {
        for shard in self.context_registry.all() {
            self.with_ours(&shard, |live| self.catch_up(&shard, live));
        }
    }

    /// The same in one context, which cannot end meanwhile.
    pub(crate) fn catch_up(&self, shard: &Shard, live: &Live) {
        let Some(session) = self.generations.now().session.get() else {
            return;
        };
        // Whoever has the turn does so for whatever is in force next, and the application's threads
        // do not wait for that.
        let turn = match is_background() {
            true => Some(lock(&shard.turn)),
            false => tried(shard.turn.try_lock()),
        };
        let Some(_turn) = turn else { return };
        if live.adopted().generation() >= session.generation() {
            return;
        }
        self.driver.within(shard.context, || {
            let made = lock(&shard.growing).as_ref().map(|made| made.generation);
            let made = match made == Some(session.generation()) {
                true => Ok(()),
                false => self.grow(shard, live, session),
            };
            match made {
                Ok(()) => self.adopt(shard, live),
                Err(why) => self.note(
                    NoteLevel::Warning,
                    // Kernels make a map that they need and that is not there yet, and are told of
                    // where that fails.
                    format!("a context that came while programs were replaced did not get all that comes with their new maps: {why}; no tool sees what kernels put into those there, until another replacement makes up for it"),
                ),
            }
        });
    }

    /// Gives back what was made in all contexts for programs that did not come into force.
    pub(crate) fn shed(&'static self) {
        let Some(in_force) = self.generations.now().session.get() else {
            return;
        };
        for shard in self.context_registry.all() {
            self.with_ours(&shard, |live| {
                let growing = lock(&shard.growing).take();
                let growth = growing.map(|Growing { growth, more, .. }| {
                    if let Some((more, _)) = more {
                        more.give_up(&self.driver);
                    }
                    growth
                });
                live.shed(growth, in_force);
                // It was noted before, so it fits.
                let _ = self
                    .bound
                    .take_for(&self.driver, shard.context.0 as usize, in_force);
            });
        }
    }
}
