//! Operations of the host on live maps.
//!
//! Maps with a fixed place for each value (arrays, per-thread arrays, data sections) are read and written by copies of
//! aligned words, which go on while kernels run. For all others the host does what a program would: it has the helper
//! called, in a kernel made from an eBPF program that is assembled here ([`program`]), verified and compiled as any other.
//! Each thread of it has a record of its own with the operation, the key, the value and the result. So an operation of the
//! host is as atomic for the application's lanes as theirs are for each other, and a map type needs only its helpers.
//!
//! Loading a module waits for running kernels, so the kernels are loaded with the maps, if the tool asked for them. They
//! need room on the GPU: where kernels that never end fill it, an operation is given up after a while
//! and answered with `-ETIMEDOUT`; those that follow are answered with `-EBUSY` until it has been done. Its
//! memory is not used for anything else before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{BPF_EXIST, E2BIG, EBUSY, EINVAL, ENOENT, MapType};
use warpbpf_driver::{Driver, DriverError, Function, Stream};
use warpbpf_maps::{MapPlan, MapView, Value};
use warpbpf_object::MapKind;

use crate::held::Held;
use crate::plan::Session;

mod program;

pub(crate) use program::{Kernel, Kernels, Record};

/// `-EPERM`
const EPERM: i64 = -1;
/// `-EIO`
const EIO: i64 = -5;
/// `-EOPNOTSUPP`
const EOPNOTSUPP: i64 = -95;
/// `-ETIMEDOUT`
const ETIMEDOUT: i64 = -110;

/// Bytes of page-locked memory for records, and as many on the device; a batch that is longer goes in parts.
const RECORDS: u64 = 1 << 20;
/// Bytes of page-locked memory for values of arrays.
const STAGING: u64 = 64 << 10;
/// Most bytes between the first and the last copy of a value that are read by one copy: a copy costs as much to start as
/// this does to be moved.
const ONE_COPY: u64 = 128 << 10;
/// Largest map that a lookup copies whole rather than launch a kernel: that takes about as long.
const SMALL: u64 = 64 << 10;
/// Largest map that is copied whole for lookups where no kernel can run.
const COPIED: u64 = 1 << 30;
/// Threads of a block of operations.
const BLOCK: u32 = 32;

/// How long the operations of one launch may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What is to be done. Queues, stacks and bloom filters take `Lookup`, `Update` and `LookupAndDelete` for `Peek`, `Push`
/// and `Pop`, as Linux does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The value of a key.
    Lookup,
    /// Gives a key a value.
    Update,
    /// Removes a key.
    Delete,
    /// Adds a value.
    Push,
    /// Takes the next value out.
    Pop,
    /// The next value, which stays; of a bloom filter, whether a value is in it.
    Peek,
    /// The value of a key, which is removed.
    LookupAndDelete,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOp {
    /// What.
    pub action: Action,
    /// `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`, as the operation takes them.
    pub flags: u64,
    /// Bytes of the key.
    pub key: Vec<u8>,
    /// Bytes of the value.
    pub value: Vec<u8>,
}

/// What it gave: bytes (none for changes), or Linux's error number, negative.
pub type Answer = Result<Vec<u8>, i64>;

/// How far a batch is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Done: an answer for each operation.
    Done(Vec<Answer>),
    /// Being done on the device: ask again.
    Waiting,
}

/// What operations of the host need on a device.
#[derive(Debug)]
pub(crate) struct HostOps {
    /// Of copies that need no kernel: not the kernels' own, which one that does not come to run blocks.
    copies: Stream,
    /// Of the kernels.
    stream: Stream,
    /// For values of arrays.
    values: Memory,
    device: Option<OnDevice>,
}

/// The kernels and their records.
#[derive(Debug)]
struct OnDevice {
    /// By map.
    kernels: Vec<Result<Loaded, String>>,
    /// Page-locked; touched only when nothing is in flight.
    host: Memory,
    records: u64,
    batch: Option<Batch>,
    /// A launch that was given up and has not ended.
    late: bool,
    limit: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Loaded {
    function: Function,
    record: Record,
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    pointer: *mut u8,
    bytes: u64,
}
// SAFETY: page-locked memory that belongs to this value; whoever touches it holds the lock around `HostOps`.
unsafe impl Send for Memory {}

impl Memory {
    fn new(held: &mut Held<'_>, bytes: u64) -> Result<Memory, DriverError> {
        let (pointer, _) = held.host_alloc(bytes as usize)?;
        Ok(Memory { pointer, bytes })
    }

    /// # Safety
    /// No copy of the device into it is under way.
    unsafe fn read(&self, at: u64, bytes: u64) -> &[u8] {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: inside the allocation; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer.add(at as usize), bytes as usize) }
    }

    /// # Safety
    /// No copy of the device from or into it is under way.
    unsafe fn write(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(at + bytes.len() as u64 <= self.bytes);
        // SAFETY: inside the allocation; the caller's promise.
        unsafe {
            let to = self.pointer.add(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

/// A batch that is being done on the device.
#[derive(Debug)]
struct Batch {
    map: usize,
    ops: Vec<HostOp>,
    answers: Vec<Answer>,
    /// Operations in flight: indices of `ops`, by record.
    flying: Vec<usize>,
    /// The first operation that was not launched yet.
    next: usize,
    since: Instant,
    copies: Option<Copies>,
}

/// Updates of a map with a value per multiprocessor: the kernel makes the key, with the value of the one that it runs on;
/// then all values are written as those of an array are.
#[derive(Debug)]
struct Copies {
    plan: MapPlan,
    base: u64,
    /// By operation: all values.
    values: Vec<Vec<u8>>,
}

impl Copies {
    /// What the kernel does, and what is left to do.
    fn split(at: &At<'_>, mut ops: Vec<HostOp>) -> (Vec<HostOp>, Option<Copies>) {
        let size = at.plan().value_size as usize;
        let mut values = Vec::with_capacity(ops.len());
        for op in &mut ops {
            let first = op.value.len().min(size);
            values.push(std::mem::take(&mut op.value));
            op.value = values.last().map_or(&[][..], |all| &all[..first]).to_vec();
        }
        let copies = Copies {
            plan: at.plan().clone(),
            base: at.base,
            values,
        };
        (ops, Some(copies))
    }

    fn fill(self, driver: &Driver, stream: Stream, ops: &[HostOp], answers: &mut [Answer]) {
        let wanted =
            |(op, answer): (&HostOp, &Answer)| op.action == Action::Update && answer.is_ok();
        if !ops.iter().zip(&*answers).any(wanted) {
            return;
        }
        let mut bytes = vec![0; self.plan.bytes() as usize];
        let read = driver.read(self.base, &mut bytes, stream);
        for ((op, answer), values) in ops.iter().zip(answers).zip(&self.values) {
            if op.action != Action::Update || answer.is_err() {
                continue;
            }
            let writes = warpbpf_maps::update(&self.plan, &bytes, &op.key, values, BPF_EXIST);
            let done = match (&read, writes) {
                (Ok(()), Ok(writes)) => writes.into_iter().try_for_each(|write| {
                    let to = self.base + write.offset;
                    driver.write(to, &write.bytes, stream).map_err(|_| EIO)
                }),
                (Err(_), _) => Err(EIO),
                // It was removed again meanwhile, or the values are too few.
                (Ok(()), Err(error)) => Err(error.errno()),
            };
            if let Err(errno) = done {
                *answer = Err(errno);
            }
        }
    }
}

/// A map, where it is, and where its operations are done.
pub(crate) struct At<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) session: &'a Session,
    pub(crate) index: usize,
    pub(crate) base: u64,
}

impl At<'_> {
    fn plan(&self) -> &MapPlan {
        &self.session.maps()[self.index]
    }
}

impl HostOps {
    /// Allocates, and loads the kernels if the session is to have them. `addresses` are those of the environment and of all
    /// maps, by slot; `copies` is a stream for copies.
    pub(crate) fn new(
        driver: &Driver,
        held: &mut Held<'_>,
        session: &Session,
        addresses: &[u64],
        copies: Stream,
    ) -> Result<HostOps, DriverError> {
        let stream = held.stream()?;
        let values = Memory::new(held, STAGING)?;
        let device = match session.options.host_ops {
            true => OnDevice::new(driver, held, session, addresses, stream)?,
            false => None,
        };
        Ok(HostOps {
            copies,
            stream,
            values,
            device,
        })
    }

    /// Begins a batch; nothing may be in flight.
    pub(crate) fn submit(&mut self, at: &At<'_>, ops: Vec<HostOp>) -> Progress {
        if let Some(reduced) = Reduced::new(at.plan()) {
            return Progress::Done(self.indexed(at, &reduced, &ops));
        }
        let lookups = ops.iter().all(|op| op.action == Action::Lookup);
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
                    Ok(true) => device.collect(&mut batch),
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
                        for answer in &mut batch.answers {
                            *answer = Err(EIO);
                        }
                        return Progress::Done(batch.answers);
                    }
                }
            }
            if batch.next == batch.ops.len() {
                if let Some(copies) = batch.copies {
                    copies.fill(driver, self.copies, &batch.ops, &mut batch.answers);
                }
                return Progress::Done(batch.answers);
            }
            if device.launch(driver, self.stream, &mut batch).is_err() {
                // Part of it may have been started: the memory is not used again before the stream is idle.
                device.late = true;
                let unanswered = batch
                    .flying
                    .iter()
                    .copied()
                    .chain(batch.next..batch.ops.len());
                for index in unanswered {
                    batch.answers[index] = Err(EIO);
                }
                return Progress::Done(batch.answers);
            }
        }
    }

    /// A lookup reads a copy of the whole map: it is small, or each multiprocessor has a value, of which a kernel would see
    /// one, or no kernel can do it.
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

    fn copied(&self, at: &At<'_>, ops: &[HostOp]) -> Vec<Answer> {
        let plan = at.plan();
        let mut bytes = vec![0; plan.bytes() as usize];
        if at.driver.read(at.base, &mut bytes, self.copies).is_err() {
            return fail_all(ops, EIO);
        }
        let view = MapView::new(plan, &bytes);
        let lookup = |op: &HostOp| match view.as_ref().map(|view| view.lookup(&op.key)) {
            Ok(Ok(Some(value))) => Ok(flat(plan, value)),
            Ok(Ok(None)) => Err(ENOENT),
            Ok(Err(error)) => Err(error.errno()),
            Err(error) => Err(error.errno()),
        };
        ops.iter().map(lookup).collect()
    }

    /// Operations on a map whose values have fixed places.
    fn indexed(&mut self, at: &At<'_>, reduced: &Reduced, ops: &[HostOp]) -> Vec<Answer> {
        let read_only = matches!(
            at.session.map_defs()[at.index].kind,
            MapKind::Data {
                read_only: true,
                ..
            }
        );
        let mut answers = Vec::with_capacity(ops.len());
        for op in ops {
            let plan = at.plan();
            let key: Option<[u8; 4]> = op.key.as_slice().try_into().ok();
            let inside = key
                .map(u32::from_le_bytes)
                .filter(|key| *key < plan.max_entries);
            answers.push(match (op.action, inside) {
                _ if key.is_none() => Err(EINVAL),
                (Action::Lookup, Some(key)) => self.read_value(at, reduced, key),
                (Action::Lookup, None) => Err(ENOENT),
                (Action::Update, _) if read_only => Err(EPERM),
                (Action::Update, Some(key)) => self.write_value(at, reduced, key, op),
                (Action::Update, None) => Err(E2BIG),
                (
                    Action::Delete
                    | Action::Push
                    | Action::Pop
                    | Action::Peek
                    | Action::LookupAndDelete,
                    _,
                ) => Err(EINVAL),
            });
        }
        answers
    }

    /// One copy, and none of a byte in between: the application's kernels may keep the copy engine busy.
    fn read_value(&mut self, at: &At<'_>, reduced: &Reduced, key: u32) -> Answer {
        let pieces = reduced.pieces(key);
        let mut bytes = vec![0; reduced.plan.bytes() as usize];
        let (first, last) = (
            pieces.first,
            pieces.first + pieces.stride * (pieces.count - 1),
        );
        let span = last + pieces.bytes - first;
        let copied = if span <= self.values.bytes.min(ONE_COPY) {
            self.stage(at, first, span).map(|staged| {
                for (i, to) in (0..pieces.count).zip(pieces.reduced(&reduced.plan)) {
                    let from = (i * pieces.stride) as usize;
                    let piece = &staged[from..from + pieces.bytes as usize];
                    bytes[to..to + piece.len()].copy_from_slice(piece);
                }
            })
        } else {
            let mut done = Ok(());
            for (i, to) in (0..pieces.count).zip(pieces.reduced(&reduced.plan)) {
                let from = at.base + first + i * pieces.stride;
                let into = &mut bytes[to..to + pieces.bytes as usize];
                done = done.and_then(|()| at.driver.read(from, into, self.copies));
            }
            done
        };
        copied.map_err(|_| EIO)?;
        let view = MapView::new(&reduced.plan, &bytes).map_err(|error| error.errno())?;
        let value = view
            .lookup(&0u32.to_le_bytes())
            .map_err(|error| error.errno())?;
        value.map(|value| flat(&reduced.plan, value)).ok_or(ENOENT)
    }

    /// Copies bytes of a map into page-locked memory, by one copy.
    fn stage(&mut self, at: &At<'_>, offset: u64, bytes: u64) -> Result<&[u8], DriverError> {
        // SAFETY: the span fits, and it is waited for below.
        unsafe {
            let into = self.values.pointer;
            at.driver
                .start_read(at.base + offset, into, bytes, self.copies)?;
        }
        at.driver.wait(self.copies)?;
        // SAFETY: the copy has been waited for.
        Ok(unsafe { self.values.read(0, bytes) })
    }

    fn write_value(&mut self, at: &At<'_>, reduced: &Reduced, key: u32, op: &HostOp) -> Answer {
        let bytes = vec![0; reduced.plan.bytes() as usize];
        let at_zero = 0u32.to_le_bytes();
        let writes = warpbpf_maps::update(&reduced.plan, &bytes, &at_zero, &op.value, op.flags)
            .map_err(|error| error.errno())?;
        let pieces = reduced.pieces(key);
        for write in writes {
            // Whole words, so that a lane sees the old one or the new one.
            let mut words = write.bytes;
            words.resize(words.len().next_multiple_of(8), 0);
            let to = at.base + pieces.original(&reduced.plan, write.offset);
            let staged = words.len() as u64 <= self.values.bytes;
            let done = if staged {
                // SAFETY: every copy was waited for.
                unsafe { self.values.write(0, &words) };
                // SAFETY: the copy is waited for before the memory is used again.
                let from = unsafe { self.values.read(0, words.len() as u64) };
                at.driver.write(to, from, self.copies)
            } else {
                at.driver.write(to, &words, self.copies)
            };
            done.map_err(|_| EIO)?;
        }
        Ok(Vec::new())
    }
}

impl OnDevice {
    /// Nothing if no map needs it.
    fn new(
        driver: &Driver,
        held: &mut Held<'_>,
        session: &Session,
        addresses: &[u64],
        stream: Stream,
    ) -> Result<Option<OnDevice>, DriverError> {
        let info = driver.device_info(driver.current_device()?)?;
        let made = session.host_kernels(info.capability);
        let Kernels {
            text,
            slots,
            memory_slot,
            kernels,
        } = made;
        if kernels.iter().all(Result::is_err) {
            return Ok(None);
        }
        let module = held.load_ptx(&text)?;
        let host = Memory::new(held, RECORDS)?;
        let records = held.alloc_zeroed(RECORDS, stream)?;
        let mut table = vec![0u64; slots as usize];
        for (slot, address) in table.iter_mut().zip(addresses) {
            *slot = *address;
        }
        table[memory_slot as usize] = records;
        let bytes: Vec<u8> = table.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let (address, _) = driver.global(module, warpbpf_abi::names::SLOTS)?;
        driver.write(address, &bytes, stream)?;
        let load = |kernel: Result<Kernel, String>| -> Result<_, DriverError> {
            Ok(match kernel {
                Ok(Kernel { name, record, .. }) => Ok(Loaded {
                    function: driver.function(module, &name)?,
                    record,
                }),
                Err(reason) => Err(reason),
            })
        };
        let kernels = kernels.into_iter().map(load).collect::<Result<_, _>>()?;
        Ok(Some(OnDevice {
            kernels,
            host,
            records,
            batch: None,
            late: false,
            limit: LIMIT,
        }))
    }

    /// Launches as many operations as may be done at once and find room, in the order of the batch.
    fn launch(
        &mut self,
        driver: &Driver,
        stream: Stream,
        batch: &mut Batch,
    ) -> Result<(), DriverError> {
        let Ok(Loaded { function, record }) = self.kernels[batch.map].clone() else {
            batch.next = batch.ops.len();
            return Ok(());
        };
        let room = (RECORDS / record.stride() / u64::from(BLOCK) * u64::from(BLOCK)) as usize;
        let mut records = Vec::new();
        let mut keys: HashSet<&[u8]> = HashSet::new();
        while let Some(op) = batch.ops.get(batch.next)
            && batch.flying.len() < room
        {
            match record.encode(op) {
                // What concerns the same key waits for the next launch. All of a queue concerns the same, the empty one.
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
        unsafe { self.host.write(0, &records) };
        batch.since = Instant::now();
        // SAFETY: the page-locked memory is not touched before the stream is idle; the kernel takes no arguments, and what
        // it touches was proved: the records and the maps.
        unsafe {
            let sent = self.host.read(0, bytes);
            driver.start_write(self.records, sent, stream)?;
            driver.launch(function, [blocks, 1, 1], [BLOCK, 1, 1], stream, &mut [])?;
            driver.start_read(self.records, self.host.pointer, bytes, stream)?;
        }
        Ok(())
    }

    /// Reads the results of a launch that has ended.
    fn collect(&self, batch: &mut Batch) {
        if let Ok(Loaded { record, .. }) = &self.kernels[batch.map] {
            for (number, index) in (0..).zip(&batch.flying) {
                // SAFETY: the stream is idle.
                let bytes = unsafe { self.host.read(number * record.stride(), record.stride()) };
                batch.answers[*index] = record.decode(&batch.ops[*index], bytes);
            }
        }
        batch.flying.clear();
    }
}

/// A map of the same type with room for one key, to read and write single values of a large one by the same code.
#[derive(Debug)]
struct Reduced {
    layout: MapLayout,
    plan: MapPlan,
}

/// Where the copies of one value lie.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    first: u64,
    stride: u64,
    count: u64,
    /// Bytes of one, whole words.
    bytes: u64,
}

impl Reduced {
    /// `None` for maps whose values have no fixed place.
    fn new(plan: &MapPlan) -> Option<Reduced> {
        let layout = plan.layout;
        let reduced = match layout {
            MapLayout::Array(mut l) => {
                l.max_entries = 1;
                MapLayout::Array(l)
            }
            MapLayout::PerThread(mut l) => {
                l.max_entries = 1;
                MapLayout::PerThread(l)
            }
            _ => return None,
        };
        let plan = MapPlan {
            max_entries: 1,
            layout: reduced,
            image: Vec::new(),
            ..plan.clone()
        };
        Some(Reduced { layout, plan })
    }

    fn pieces(&self, key: u32) -> Pieces {
        match self.layout {
            MapLayout::Array(l) => Pieces {
                first: l.value(0, key),
                stride: l.shard_stride(),
                count: u64::from(l.shards),
                bytes: l.value_stride(),
            },
            MapLayout::PerThread(l) => Pieces {
                first: l.value(key, 0),
                stride: 0,
                count: 1,
                bytes: l.threads * l.value_stride(),
            },
            // There is no such `Reduced`.
            _ => Pieces {
                first: 0,
                stride: 0,
                count: 0,
                bytes: 0,
            },
        }
    }
}

impl Pieces {
    /// Where they lie in the reduced map.
    fn reduced(self, plan: &MapPlan) -> impl Iterator<Item = usize> + use<> {
        let (first, stride) = match plan.layout {
            MapLayout::Array(l) => (l.value(0, 0), l.shard_stride()),
            MapLayout::PerThread(l) => (l.value(0, 0), 0),
            _ => (0, 0),
        };
        (0..self.count).map(move |i| (first + i * stride) as usize)
    }

    /// Where a value of the reduced map lies in the map itself.
    fn original(self, plan: &MapPlan, offset: u64) -> u64 {
        match plan.layout {
            MapLayout::Array(l) => self.first + offset / l.shard_stride() * self.stride,
            _ => self.first,
        }
    }
}

/// It has a value per multiprocessor, and no fixed places.
fn has_copies(plan: &MapPlan) -> bool {
    matches!(plan.map_type, MapType::PercpuHash | MapType::LruPercpuHash)
}

/// Keys say where values are; a queue has none.
fn is_keyed(plan: &MapPlan) -> bool {
    plan.key_size > 0
}

fn fail_all(ops: &[HostOp], errno: i64) -> Vec<Answer> {
    vec![Err(errno); ops.len()]
}

/// The bytes of a value; of several, each padded to 8 bytes, one behind the other.
fn flat(plan: &MapPlan, value: Value) -> Vec<u8> {
    let stride = (plan.value_size as usize).next_multiple_of(8);
    match value {
        Value::One(value) => value,
        Value::PerSm(values) => {
            let mut all = vec![0; stride * values.len()];
            for (to, value) in all.chunks_mut(stride).zip(&values) {
                to[..value.len()].copy_from_slice(value);
            }
            all
        }
        Value::PerThread(values) => {
            let threads = match plan.layout {
                MapLayout::PerThread(l) => l.threads as usize,
                _ => 0,
            };
            let mut all = vec![0; stride * threads];
            for (thread, value) in values {
                let at = thread as usize * stride;
                all[at..at + value.len()].copy_from_slice(&value);
            }
            all
        }
    }
}
