//! What a kernel needs of the machine, before and after a probe, and how many of its blocks run at
//! once for that.
//!
//! A grid whose blocks wait for each other needs all of them resident. So before a variant that
//! needs more than its original is launched, somebody must ask whether the grid still fits; the
//! answers are kept, because a launch asks.

use std::sync::{Mutex, PoisonError};

use warpbpf_driver::{Driver, DriverError, Function, sys};

/// Block size that occupancy is reported for, where the kernel allows it.
const USUAL_BLOCK: u32 = 256;
/// Answers kept per variant. An application uses few shapes of one kernel; one with very many asks
/// the driver again.
const MOST_ANSWERS: usize = 64;

/// What a kernel needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub shared: u32,
    /// Local memory of a thread, bytes: stack frame and spills.
    pub local: u32,
    /// Most threads of a block that it can be launched with.
    pub max_threads: u32,
    /// Blocks of [`Change::block_threads`] threads, without dynamic shared memory, that one SM runs
    /// at once.
    pub blocks_per_sm: u32,
}

/// Resources of an original and of its variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Of the original.
    pub before: Resources,
    /// Of the variant.
    pub after: Resources,
    /// Threads of the block that `blocks_per_sm` of both is about: 256, or less where the original
    /// allows less.
    pub block_threads: u32,
}

impl Resources {
    /// Registers that a thread can have: of 65,536, blocks of as many threads as are allowed, in
    /// steps of 8 (CUDA C++ Programming Guide, "Compute Capabilities").
    fn most_registers(&self) -> u32 {
        (65_536 / self.max_threads.max(1) / 8 * 8).clamp(8, 255)
    }
}

impl Change {
    /// Asks the driver.
    pub(crate) fn measure(
        driver: &Driver,
        original: Function,
        variant: Function,
    ) -> Result<Change, DriverError> {
        let limit = driver.attribute(original, sys::FUNC_MAX_THREADS)? as u32;
        let block_threads = limit.clamp(1, USUAL_BLOCK);
        Ok(Change {
            before: resources(driver, original, block_threads)?,
            after: resources(driver, variant, block_threads)?,
            block_threads,
        })
    }

    /// The variant may have less room than the original.
    pub fn needs_more(&self) -> bool {
        self.after.registers > self.before.registers
            || self.after.shared > self.before.shared
            || self.after.local > self.before.local
            || self.after.blocks_per_sm < self.before.blocks_per_sm
    }

    /// There may be a block of which more fit than of the original: it needs less of something.
    pub fn has_more_room(&self) -> bool {
        self.after.registers < self.before.registers
            || self.after.shared < self.before.shared
            || self.after.max_threads > self.before.max_threads
    }

    /// Says what a person should know, if programs cost occupancy or spilled registers.
    pub fn warning(&self, kernel: &str) -> Option<String> {
        let Change { before, after, .. } = self;
        let slower = after.blocks_per_sm < before.blocks_per_sm;
        // Below that, local memory holds what programs keep on their stacks.
        let spills = after.local > before.local && after.registers >= after.most_registers();
        if !slower && !spills {
            return None;
        }
        let mut parts = vec![format!(
            "registers {} → {}",
            before.registers, after.registers
        )];
        if slower {
            parts.push(format!(
                "blocks of {} threads per SM {} → {}",
                self.block_threads, before.blocks_per_sm, after.blocks_per_sm
            ));
        }
        if spills {
            parts.push(format!(
                "local memory per thread {} → {} bytes",
                before.local, after.local
            ));
        }
        Some(format!(
            "kernel `{kernel}`: {}; part of what it takes longer comes from that",
            parts.join(", ")
        ))
    }
}

fn resources(
    driver: &Driver,
    function: Function,
    block_threads: u32,
) -> Result<Resources, DriverError> {
    let attribute = |which| driver.attribute(function, which).map(|v| v as u32);
    Ok(Resources {
        registers: attribute(sys::FUNC_REGISTERS)?,
        shared: attribute(sys::FUNC_SHARED)?,
        local: attribute(sys::FUNC_LOCAL)?,
        max_threads: attribute(sys::FUNC_MAX_THREADS)?,
        // A variant that cannot run such a block at all has room for none.
        blocks_per_sm: driver.occupancy(function, block_threads, 0).unwrap_or(0),
    })
}

/// Blocks of one shape that one SM runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of the original.
    pub before: u32,
    /// Of the variant.
    pub after: u32,
}

/// Answers to a question that every launch asks: room by threads of a block and its dynamic shared
/// memory.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<Vec<((u32, u32), Room)>>);

impl Rooms {
    /// The room for a shape, from `ask` if it was not asked before. Failures are not kept.
    pub(crate) fn get<E>(
        &self,
        shape: (u32, u32),
        ask: impl FnOnce() -> Result<Room, E>,
    ) -> Result<Room, E> {
        let known = |rooms: &Vec<_>| {
            rooms
                .iter()
                .find_map(|(s, room)| (*s == shape).then_some(*room))
        };
        if let Some(room) = known(&self.lock()) {
            return Ok(room);
        }
        let room = ask()?;
        let mut rooms = self.lock();
        if known(&rooms).is_none() {
            if rooms.len() == MOST_ANSWERS {
                rooms.clear();
            }
            rooms.push((shape, room));
        }
        Ok(room)
    }

    /// Forgets all answers, because an attribute changed that they depend on.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<((u32, u32), Room)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(registers: (u32, u32), local: (u32, u32), blocks: (u32, u32)) -> Change {
        let one = |registers, local, blocks_per_sm| Resources {
            registers,
            shared: 0,
            local,
            max_threads: 1024,
            blocks_per_sm,
        };
        Change {
            before: one(registers.0, local.0, blocks.0),
            after: one(registers.1, local.1, blocks.1),
            block_threads: 256,
        }
    }

    #[test]
    fn the_warning_has_the_numbers() {
        assert_eq!(change((12, 12), (0, 0), (8, 8)).warning("x"), None);
        assert_eq!(change((12, 30), (0, 0), (8, 8)).warning("x"), None);
        assert_eq!(change((12, 30), (0, 64), (8, 8)).warning("x"), None);
        let full = change((30, 64), (0, 64), (8, 8)).warning("x");
        assert!(full.is_some(), "64 is the most that a block of 1024 allows");
        assert_eq!(
            change((12, 40), (0, 0), (8, 6)).warning("x").unwrap(),
            "kernel `x`: registers 12 → 40, blocks of 256 threads per SM 8 → 6; part of what it takes longer comes from that"
        );
        assert_eq!(
            change((255, 255), (0, 64), (1, 1)).warning("x").unwrap(),
            "kernel `x`: registers 255 → 255, local memory per thread 0 → 64 bytes; part of what it takes longer comes from that"
        );
    }

    #[test]
    fn equal_resources_need_no_question() {
        assert!(!change((12, 12), (0, 0), (8, 8)).needs_more());
        assert!(!change((12, 10), (8, 8), (8, 8)).needs_more());
        assert!(change((12, 13), (0, 0), (8, 8)).needs_more());
        assert!(change((12, 12), (0, 8), (8, 8)).needs_more());
        assert!(change((12, 12), (0, 0), (8, 7)).needs_more());
        assert!(!change((12, 40), (0, 8), (8, 6)).has_more_room());
        assert!(change((12, 10), (0, 8), (8, 8)).has_more_room());
    }

    #[test]
    fn a_shape_is_asked_once_and_failures_again() {
        let rooms = Rooms::default();
        let room = |after| Room { before: 8, after };
        assert_eq!(rooms.get((64, 0), || Err("busy")), Err("busy"));
        assert_eq!(rooms.get((64, 0), || Ok::<_, ()>(room(6))), Ok(room(6)));
        assert_eq!(rooms.get((64, 0), || Err("asked")), Ok(room(6)));
        assert_eq!(rooms.get((64, 16), || Ok::<_, ()>(room(5))), Ok(room(5)));
        rooms.clear();
        assert_eq!(rooms.get((64, 0), || Ok::<_, ()>(room(4))), Ok(room(4)));
        for shared in 0..1000 {
            assert_eq!(rooms.get((1, shared), || Ok::<_, ()>(room(1))), Ok(room(1)));
        }
        assert!(rooms.lock().len() <= MOST_ANSWERS);
    }
}
