//! Operations of the host on live maps.
//!
//! Maps with a fixed place for each value (arrays, per-thread arrays, data sections) are read and
//! written by copies of aligned words, which go on while kernels run; so are lookups in small maps,
//! and few at once in larger hashes, and what is done to maps of maps, which programs only read.
//! For all else the host does what a program would: it has the helper called, in a kernel made from
//! an eBPF program that is assembled here ([`program`]), verified and compiled as any other. Each
//! thread of it has a record of its own with the operation, the key, the value and the result. So
//! an operation of the host is as atomic for the application's lanes as theirs are for each other,
//! and a map type needs only its helpers.
//!
//! Loading a module waits for running kernels, so the kernels are loaded with the maps, if the tool
//! asked for them. They need room on the GPU: where kernels that never end fill it, an operation is
//! given up after a while and answered with `-ETIMEDOUT`; those that follow are answered with
//! `-EBUSY` until it has been done. Its memory is not used for anything else before.

use crate::runtime::host_ops::op::{
    At, BLOCK, COPIED, Loaded, Memory, answered, fail_all, has_copies, is_keyed, looked_up,
    reads_once,
};
use crate::runtime::host_ops::state::{Batch, HostOps, OnDevice};

pub use op::{Action, Answer, HostOp};
use std::collections::HashSet;
use std::time::Instant;

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{EBUSY, EINVAL, EIO, EOPNOTSUPP, ETIMEDOUT};
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::{MapPlan, inner};

use crate::plan::session::Session;
use crate::runtime::held::Held;

mod copies;
pub mod error;
mod indexed;
mod load;
pub(crate) mod op;
mod outer;
mod program;
pub(crate) mod state;

use copies::{Copies, too_large};
use error::HostOpsError;
use state::Reduced;

pub(crate) use load::load;

/// Bytes of page-locked memory for values of arrays: most bytes between the first and the last copy
/// of a value that are read by one copy. A copy costs as much to start as this does to be moved.
const STAGING: u64 = 128 << 10;
/// Largest map that several lookups at once copy whole: that takes less time than a copy for each
/// of them.
const SMALL: u64 = 64 << 10;
/// Largest map that one lookup copies whole: of this much, nearly all of a copy's time is its
/// start.
const TINY: u64 = 4 << 10;
/// Most lookups in a hash larger than these that are done by copies of what each needs: a kernel
/// that does many costs as much as some of these.
const FEW: usize = 64;

/// What does the operations on maps that come, by map; or why nothing does.
pub(crate) type Came = Result<Vec<Result<Loaded, HostOpsError>>, DriverError>;

/// How far a batch is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done: an answer for each operation.
    Done(Vec<Answer>),
    /// Being done on the device: ask again.
    Waiting,
}

impl Batch {
    /// What was neither done nor refused has failed.
    fn fail_rest(mut self) -> Vec<Answer> {
        for index in self.flying.into_iter().chain(self.next..self.ops.len()) {
            self.answers[index] = Err(EIO);
        }
        self.answers
    }
}

impl HostOps {
    /// Allocates, and loads the kernels if the session is to have them. `addresses` are those of
    /// the environment and of all maps, by slot; `copies` is a stream for copies.
    pub(crate) fn new(
        driver: &Driver,
        held: &mut Held<'_>,
        session: &Session,
        addresses: &[u64],
        copies: Stream,
    ) -> Result<HostOps, DriverError> {
        let stream = held.stream()?;
        let values = Memory::new(held, STAGING)?;
        let made = match session.options.host_ops {
            true => load(driver, held, session, addresses, stream, 0),
            false => Ok(Vec::new()),
        };
        // The probes need none of it.
        let (device, failed) = match made {
            Ok(kernels) => (OnDevice::new(kernels), None),
            Err(error) => (None, Some(error)),
        };
        Ok(HostOps {
            copies,
            stream,
            values,
            device,
            failed,
        })
    }

    /// Takes in what does the operations on the last of so many maps, or why nothing does.
    pub(crate) fn grow(&mut self, came: Came, maps: usize) {
        let none = self.failed.clone();
        let none = none.map_or(HostOpsError::NoKernel, HostOpsError::Driver);
        let device = match (&mut self.device, &came) {
            (Some(device), _) => device,
            (None, Ok(came)) if came.iter().all(Result::is_err) => return,
            (device @ None, _) => device.insert(OnDevice::default()),
        };
        let (came, reason) = match came {
            Ok(came) => (came, none),
            Err(error) => (Vec::new(), HostOpsError::Driver(error)),
        };
        let before = maps.saturating_sub(came.len());
        // Where they were the first that need one, those before have none.
        device.kernels.resize_with(before, || Err(reason.clone()));
        device.kernels.extend(came);
    }

    /// Why operations cannot be done on a map, if that is known beforehand and for all operations
    /// alike.
    pub(crate) fn refused(&self, at: &At<'_>, ops: &[HostOp]) -> Option<HostOpsError> {
        let plan = at.plan();
        if Reduced::new(plan).is_some()
            || inner::is_outer(plan)
            || matches!(plan.layout, MapLayout::Hosted(_) | MapLayout::UserRing(_))
        {
            return None;
        }
        if too_large(plan, ops) {
            return Some(HostOpsError::TooLarge {
                bytes: plan.bytes(),
            });
        }
        if ops.iter().all(|op| op.action == Action::Lookup) {
            return None;
        }
        match &self.device {
            Some(device) => device.kernels[at.index].as_ref().err().cloned(),
            None => self.failed.clone().map(HostOpsError::Driver),
        }
    }

    /// Nothing is in flight, and no launch that was given up is waiting for room on the device.
    pub(crate) fn is_idle(&self, driver: &Driver) -> bool {
        let flying = self.device.as_ref().is_some_and(|d| d.batch.is_some());
        !flying && matches!(driver.is_idle(self.stream), Ok(true))
    }

    /// Begins a batch; nothing may be in flight.
    pub(crate) fn submit(&mut self, at: &At<'_>, ops: Vec<HostOp>) -> Progress {
        let lookups = ops.iter().all(|op| op.action == Action::Lookup);
        if !lookups && inner::is_outer(at.plan()) {
            return Progress::Done(self.outer(at, &ops));
        }
        if let Some(reduced) = Reduced::new(at.plan()) {
            return Progress::Done(self.indexed(at, &reduced, &ops));
        }
        if lookups
            && ops.len() <= FEW
            && at.plan().bytes()
                > if ops.len() == 1 && reads_once(at.plan()) {
                    TINY
                } else {
                    SMALL
                }
            && let Some(answers) = self.by_parts(at, &ops)
        {
            return Progress::Done(answers);
        }
        if lookups && self.better_copied(at) {
            return Progress::Done(self.copied(at, &ops));
        }
        let Some(device) = &mut self.device else {
            return Progress::Done(fail_all(&ops, EOPNOTSUPP));
        };
        if device.late {
            device.late = !matches!(at.driver.is_idle(self.stream), Ok(true));
        }
        if device.late || device.batch.is_some() {
            return Progress::Done(fail_all(&ops, EBUSY));
        }
        if device.kernels[at.index].is_err() {
            return Progress::Done(fail_all(&ops, EINVAL));
        }
        let answers = vec![Err(EBUSY); ops.len()];
        let (ops, copies) = match has_copies(at.plan()) {
            true if too_large(at.plan(), &ops) => return Progress::Done(fail_all(&ops, EINVAL)),
            true => Copies::split(at, ops),
            false => (ops, None),
        };
        device.batch = Some(Batch {
            map: at.index,
            ops,
            answers,
            flying: Vec::new(),
            next: 0,
            since: Instant::now(),
            copies,
        });
        self.progress(at.driver)
    }

    /// Goes on with the batch that is in flight.
    pub(crate) fn progress(&mut self, driver: &Driver) -> Progress {
        let Some(device) = &mut self.device else {
            return Progress::Done(Vec::new());
        };
        let Some(mut batch) = device.batch.take() else {
            return Progress::Done(Vec::new());
        };
        loop {
            if !batch.flying.is_empty() {
                match driver.is_idle(self.stream) {
                    Ok(true) => {
                        let done = device.collect(&mut batch);
                        if let Some(copies) = &mut batch.copies {
                            copies.fill(driver, self.copies, &batch.ops, &done, &mut batch.answers);
                        }
                    }
                    Ok(false) if batch.since.elapsed() < device.limit => {
                        device.batch = Some(batch);
                        return Progress::Waiting;
                    }
                    Ok(false) => {
                        device.late = true;
                        for index in batch.flying {
                            batch.answers[index] = Err(ETIMEDOUT);
                        }
                        return Progress::Done(batch.answers);
                    }
                    Err(_) => {
                        device.late = true;
                        return Progress::Done(batch.fail_rest());
                    }
                }
            }
            if let Some(copies) = &mut batch.copies {
                if copies.exhausted() {
                    // Of the rest nothing was begun: it is answered with `-EBUSY`.
                    return Progress::Done(batch.answers);
                }
                let lookups = batch.ops[batch.next..]
                    .iter()
                    .take_while(|op| op.action == Action::Lookup)
                    .count();
                if lookups > 0 {
                    let range = batch.next..batch.next + lookups;
                    let answers = copies.look_up(driver, self.copies, &batch.ops[range.clone()]);
                    batch.answers.splice(range, answers);
                    batch.next += lookups;
                }
            }
            if batch.next == batch.ops.len() {
                return Progress::Done(batch.answers);
            }
            if device.launch(driver, self.stream, &mut batch).is_err() {
                // Part of it may have been started: the memory is not used again before the stream
                // is idle.
                device.late = true;
                return Progress::Done(batch.fail_rest());
            }
        }
    }

    /// A lookup reads a copy of the whole map: it is small, or each multiprocessor has a value, of
    /// which a kernel would see one, or no kernel can do it.
    fn better_copied(&self, at: &At<'_>) -> bool {
        let plan = at.plan();
        let bytes = plan.bytes();
        let many = has_copies(plan);
        let no_kernel = self.device.as_ref().is_none_or(|device| {
            let late = device.late && !matches!(at.driver.is_idle(self.stream), Ok(true));
            late || device.kernels[at.index].is_err()
        });
        (bytes <= SMALL || many || no_kernel) && bytes <= COPIED && is_keyed(plan)
    }

    /// Copies what lies from `offset` on, by page-locked memory if that is large enough: a copy to
    /// any other is several.
    fn fetch(&mut self, at: &At<'_>, offset: u64, into: &mut [u8]) -> Result<(), DriverError> {
        let bytes = into.len() as u64;
        if at.in_host.is_some() || bytes > self.values.bytes {
            return at.read(offset, into, self.copies);
        }
        into.copy_from_slice(self.stage(at, offset, bytes)?);
        Ok(())
    }

    /// Lookups that read what they need of a hash and no more.
    fn by_parts(&mut self, at: &At<'_>, ops: &[HostOp]) -> Option<Vec<Answer>> {
        let plan = at.plan();
        let mut one = |op: &HostOp| {
            let read = |offset, into: &mut [u8]| self.fetch(at, offset, into);
            Some(match warpbpf_maps::look_up(plan, &op.key, read)? {
                Ok(found) => answered(plan, found),
                Err(_) => Err(EIO),
            })
        };
        ops.iter().map(&mut one).collect()
    }

    fn copied(&mut self, at: &At<'_>, ops: &[HostOp]) -> Vec<Answer> {
        let plan = at.plan();
        if at.in_host.is_none() && plan.bytes() <= self.values.bytes {
            return match self.stage(at, 0, plan.bytes()) {
                Ok(bytes) => looked_up(plan, bytes, ops),
                Err(_) => fail_all(ops, EIO),
            };
        }
        let mut bytes = vec![0; plan.bytes() as usize];
        if self.fetch(at, 0, &mut bytes).is_err() {
            return fail_all(ops, EIO);
        }
        looked_up(plan, &bytes, ops)
    }
}

impl OnDevice {
    /// Nothing if no map needs it.
    fn new(kernels: Vec<Result<Loaded, HostOpsError>>) -> Option<OnDevice> {
        kernels.iter().any(Result::is_ok).then(|| OnDevice {
            kernels,
            ..OnDevice::default()
        })
    }

    /// Launches as many operations as may be done at once and find room, in the order of the batch.
    fn launch(
        &mut self,
        driver: &Driver,
        stream: Stream,
        batch: &mut Batch,
    ) -> Result<(), DriverError> {
        let Ok(Loaded {
            function,
            record,
            mut host,
            records: on_device,
        }) = self.kernels[batch.map].clone()
        else {
            batch.next = batch.ops.len();
            return Ok(());
        };
        let blocks = host.bytes / (record.stride() * u64::from(BLOCK));
        let room = (blocks * u64::from(BLOCK)) as usize;
        let mut records = Vec::new();
        let mut keys: HashSet<&[u8]> = HashSet::new();
        while let Some(op) = batch.ops.get(batch.next)
            && batch.flying.len() < room
        {
            // Lookups of values per multiprocessor are not the kernel's: what comes before them is
            // done first.
            if batch.copies.is_some() && op.action == Action::Lookup {
                break;
            }
            match record.encode(op) {
                // What concerns the same key waits for the next launch. All of a queue concerns the
                // same, the empty one.
                Ok(_) if !keys.insert(&op.key) => break,
                Ok(bytes) => {
                    records.extend(bytes);
                    batch.flying.push(batch.next);
                }
                Err(errno) => batch.answers[batch.next] = Err(errno),
            }
            batch.next += 1;
        }
        if batch.flying.is_empty() {
            return Ok(());
        }
        let blocks = (batch.flying.len() as u32).div_ceil(BLOCK);
        // Records beyond the last operation hold no operation.
        records.resize((u64::from(blocks * BLOCK) * record.stride()) as usize, 0);
        let bytes = records.len() as u64;
        // SAFETY: nothing is in flight.
        unsafe { host.write(0, &records) };
        batch.since = Instant::now();
        // SAFETY: the page-locked memory is not touched before the stream is idle; the kernel takes
        // no arguments, and what it touches was proved: the records and the maps.
        unsafe {
            let sent = host.read(0, bytes);
            driver.start_write(on_device, sent, stream)?;
            driver.launch(function, [blocks, 1, 1], [BLOCK, 1, 1], stream, &mut [])?;
            driver.start_read(on_device, host.pointer, bytes, stream)?;
        }
        Ok(())
    }

    /// Reads the results of a launch that has ended, and says of which operations they are.
    fn collect(&self, batch: &mut Batch) -> Vec<usize> {
        if let Ok(Loaded { record, host, .. }) = &self.kernels[batch.map] {
            for (number, index) in (0..).zip(&batch.flying) {
                // SAFETY: the stream is idle.
                let bytes = unsafe { host.read(number * record.stride(), record.stride()) };
                batch.answers[*index] = record.decode(&batch.ops[*index], bytes);
            }
        }
        std::mem::take(&mut batch.flying)
    }
}

/// Most bytes that operations on a map can be answered with.
pub(crate) fn most_answered(plan: &MapPlan, ops: &[HostOp]) -> u64 {
    let gives = ops.iter().filter(|op| op.action.gives()).count() as u64;
    let stride = u64::from(plan.value_size).next_multiple_of(8);
    let values = match plan.layout {
        MapLayout::PerThread(layout) => layout.threads,
        MapLayout::Array(layout) if !layout.summed => u64::from(layout.shards),
        MapLayout::Hash(layout) => u64::from(layout.copies),
        MapLayout::Lru(layout) => u64::from(layout.copies),
        MapLayout::Array(_)
        | MapLayout::Hosted(_)
        | MapLayout::Queue(_)
        | MapLayout::Bloom(_)
        | MapLayout::Ring(_)
        | MapLayout::UserRing(_) => 1,
    };
    gives.saturating_mul(stride.saturating_mul(values))
}
