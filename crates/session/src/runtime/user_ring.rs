//! Records of the host for programs: the producer of a user ring buffer, whose bytes go to the
//! device by copies. They go beside running kernels, need no room on the GPU, and wait for no
//! program: a full ring says so at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_RB_WAKEUPS, EINVAL, EIO, ENOSPC};
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::MapPlan;
use warpbpf_maps::user_ring::{NoRoom, Producer, Sample};

use crate::runtime::host_ops::op::{Action, Answer, HostOp};

/// What keeps a record from the ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserRingError {
    /// There is no room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A copy failed: the context is lost.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// The host's end of one ring.
#[derive(Debug)]
pub(crate) struct Filled {
    base: u64,
    producer: Mutex<Producer>,
}

impl Filled {
    /// `None` if the map is of another type. `base` is where it lies.
    pub(crate) fn new(plan: &MapPlan, base: u64) -> Option<Filled> {
        let MapLayout::UserRing(layout) = plan.layout else {
            return None;
        };
        // What was pushed before there was a device is in its first contents.
        let filled = plan
            .image
            .iter()
            .rev()
            .find(|write| write.offset == UserRingLayout::PRODUCER)
            .and_then(|write| write.bytes.as_slice().try_into().ok())
            .map_or(0, u64::from_le_bytes);
        // Nobody but us has written there: what was pushed fits.
        let producer = Producer::new(layout, filled, 0).ok()?;
        Some(Filled {
            base,
            producer: Mutex::new(producer),
        })
    }
}

/// A user ring buffer as the host fills it, in the manner of libbpf's `user_ring_buffer`.
#[derive(Debug, Clone, Copy)]
pub struct UserRing<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) stream: Stream,
    pub(crate) filled: &'a Filled,
}

impl UserRing<'_> {
    fn lock(&self) -> MutexGuard<'_, Producer> {
        let producer = &self.filled.producer;
        producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a record of `size` bytes; never waits. It must be submitted or discarded.
    ///
    /// # Errors
    /// [`UserRingError`].
    pub fn reserve(&self, size: usize) -> Result<Sample, UserRingError> {
        self.reserved(&mut self.lock(), size)
    }

    fn reserved(&self, producer: &mut Producer, size: usize) -> Result<Sample, UserRingError> {
        if let Ok(sample) = producer.reserve(size) {
            return Ok(sample);
        }
        let mut position = [0; 8];
        let at = self.filled.base + producer.consumer().start;
        self.driver.read(at, &mut position, self.stream)?;
        producer.consumed(u64::from_le_bytes(position));
        let found = producer.reserve(size);
        // It may have made a filler in front of the ring's end that programs have to skip first.
        self.write(producer)?;
        Ok(found?)
    }

    /// Gives the record to programs, once all that were reserved before it are given back.
    ///
    /// # Errors
    /// [`UserRingError::Driver`].
    pub fn submit(&self, sample: Sample) -> Result<(), UserRingError> {
        let mut producer = self.lock();
        producer.submit(sample);
        Ok(self.write(&mut producer)?)
    }

    /// Gives the record's room back; no program sees it.
    ///
    /// # Errors
    /// [`UserRingError::Driver`].
    pub fn discard(&self, sample: Sample) -> Result<(), UserRingError> {
        let mut producer = self.lock();
        producer.discard(sample);
        Ok(self.write(&mut producer)?)
    }

    /// Each write has come to its place before the next begins: the last is the position of those
    /// before it.
    fn write(&self, producer: &mut Producer) -> Result<(), DriverError> {
        for write in producer.writes() {
            let to = self.filled.base + write.offset;
            self.driver.write(to, &write.bytes, self.stream)?;
        }
        Ok(())
    }

    /// Pushes records, as far as there is room; those that found room go to the device together.
    /// What stands behind one that found none is not tried: it would come out before it.
    pub(crate) fn host_ops(&self, ops: &[HostOp]) -> Vec<Answer> {
        let mut producer = self.lock();
        let mut answers: Vec<Answer> = Vec::with_capacity(ops.len());
        for op in ops {
            let answer = self.host_op(&mut producer, op);
            let full = answer == Err(ENOSPC);
            answers.push(answer);
            if full {
                answers.resize(ops.len(), Err(ENOSPC));
                break;
            }
        }
        if self.write(&mut producer).is_err() {
            answers.fill(Err(EIO));
        }
        answers
    }

    fn host_op(&self, producer: &mut Producer, op: &HostOp) -> Answer {
        match op.action {
            // As for queues: Linux's `BPF_MAP_UPDATE_ELEM` without a key pushes.
            Action::Push | Action::Update => {}
            Action::Lookup
            | Action::Delete
            | Action::Pop
            | Action::Peek
            | Action::LookupAndDelete
            | Action::Words => return Err(EINVAL),
        }
        if op.flags & !BPF_RB_WAKEUPS != 0 {
            return Err(EINVAL);
        }
        match self.reserved(producer, op.value.len()) {
            Ok(mut sample) => {
                sample.payload.copy_from_slice(&op.value);
                producer.submit(sample);
                Ok(Vec::new())
            }
            Err(UserRingError::NoRoom(why)) => Err(why.errno()),
            Err(UserRingError::Driver(_)) => Err(EIO),
        }
    }
}
