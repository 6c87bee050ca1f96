//! A session in one context: its maps in device memory, its variants, its rings being drained.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpbpf_abi::layout::{HostedLayout, MapLayout, SumField, env, gate, slots};
use warpbpf_driver::{Context, Driver, DriverError, JitOptions, Module, Stream};
use warpbpf_maps::ring::Lost;
use warpbpf_maps::{MapPlan, Placement, inner};

use crate::plan::SessionError;
use crate::plan::prepared::{Prepared, PreparedKernel};
use crate::plan::session::Session;
use crate::runtime::allocations::Fence;
use crate::runtime::calls::{self, Calls};
use crate::runtime::clock::{Clock, Reading};
use crate::runtime::device_gate::DeviceGate;
use crate::runtime::device_slots::Unwritten;
use crate::runtime::drain::{DrainStats, Landing, RingEvent, Rings};
use crate::runtime::duplicate::Once;
use crate::runtime::ground::Ground;
use crate::runtime::grown::{Founding, Grown, Now};
use crate::runtime::held::{Held, Kept};
use crate::runtime::host_memory::HostMemory;
use crate::runtime::host_ops::error::HostOpsError;
use crate::runtime::host_ops::op::{At, HostOp};
use crate::runtime::host_ops::state::HostOps;
use crate::runtime::host_ops::{self, Came, Progress};
use crate::runtime::launch_records::LaunchRecords;
use crate::runtime::load_error::LoadError;
use crate::runtime::standing::Standing;
use crate::runtime::user_ring::{Filled, UserRing};
use crate::runtime::variant::{Addresses, LoadedVariant, Loading};

/// Device state of a session. All methods make its context current where they need it and leave it
/// so.
#[derive(Debug)]
pub struct Live {
    pub(crate) driver: Driver,
    session: Arc<Session>,
    context: Context,
    stream: Stream,
    pub(crate) env: u64,
    /// Base addresses: the session's maps, then the printk ring.
    maps: Vec<u64>,
    /// Those of maps that sessions after it brought.
    pub(crate) grown: Grown,
    /// It is the first of its session: what is added up over contexts begins here.
    first: bool,
    /// The memory of those that lie on the host.
    in_host: Vec<Option<HostMemory>>,
    rings: Mutex<Rings>,
    /// The host's ends of user ring buffers, by map.
    filled: Vec<Option<Filled>>,
    clock: Mutex<Clock>,
    fence: Option<Fence>,
    /// What kernels that run look at, if it was asked for.
    pub(crate) gate: Option<DeviceGate>,
    host_ops: Mutex<HostOps>,
    calls: Option<Arc<Calls>>,
    records: OnceLock<Result<Arc<LaunchRecords>, DriverError>>,
    /// All that it took from the context but the launch records and what variants loaded.
    kept: Mutex<Kept>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map as a reader outside the process needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLayoutInfo {
    /// Name.
    pub name: String,
    /// Whose it is ([`crate::plan::client`]).
    pub client: u32,
    /// Type number.
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// As declared.
    pub max_entries: u32,
    /// Bytes of a snapshot; 0 for rings, whose records come as events, or go to programs, and for
    /// constants that came with a replacement: each version is a map of its own.
    pub snapshot_bytes: u64,
    /// Layout.
    pub layout: MapLayout,
    /// Fields to add up over the shards of a summed array.
    pub sum_fields: Vec<SumField>,
    /// Fields to add up over devices.
    pub added: Vec<SumField>,
}

impl Live {
    /// Allocates and initialises everything in the current context.
    ///
    /// # Errors
    /// [`SessionError::Driver`]: no context, or no memory; what was allocated is given back.
    pub fn new(driver: &Driver, session: Arc<Session>) -> Result<Live, SessionError> {
        let (live, ()) = Live::new_with(driver, session, true, |_| Ok::<_, SessionError>(()))?;
        Ok(live)
    }

    /// As [`Live::new`], with something that must be made together with it: if `more` fails,
    /// nothing of both stays. Of several of one session one is the `first`: only it begins with
    /// what sums begin with.
    ///
    /// # Errors
    /// As [`Live::new`], and what `more` says.
    pub fn new_with<T, E: From<SessionError>>(
        driver: &Driver,
        session: Arc<Session>,
        first: bool,
        more: impl FnOnce(&Live) -> Result<T, E>,
    ) -> Result<(Live, T), E> {
        driver.relaxed(|| {
            let mut held = Held::new(driver);
            let mut founding = Founding::new(&session);
            let live = Live::allocate(
                driver,
                Arc::clone(&session),
                (first, &mut founding),
                &mut held,
            );
            let live = live.map_err(|e| E::from(SessionError::Driver(e)))?;
            let made = more(&live)?;
            founding.done();
            *lock(&live.kept) = held.keep();
            Ok((live, made))
        })
    }

    fn allocate(
        driver: &Driver,
        session: Arc<Session>,
        (first, founding): (bool, &mut Founding<'_>),
        held: &mut Held<'_>,
    ) -> Result<Live, DriverError> {
        let Some(context) = driver.current() else {
            return Err(DriverError {
                call: "cuCtxGetCurrent",
                code: 201,
                name: "CUDA_ERROR_INVALID_CONTEXT".into(),
                detail: "no context is current on this thread".into(),
            });
        };
        let stream = held.stream()?;
        let mut ground = match &session.means.cache {
            Some(_) => Ground::new(held, session.on_device().map(|(_, bytes)| bytes), stream),
            None => Ground::default(),
        };
        let gate_bytes = if session.has_gate() { gate::SIZE } else { 0 };
        let slot_bytes = if session.has_slots() { slots::SIZE } else { 0 };
        let env = ground.zeroed(held, env::SIZE + gate_bytes + slot_bytes, stream)?;
        let gate = match session.has_gate() {
            true => Some(DeviceGate::new(env, held.stream()?, session.has_slots())),
            false => None,
        };
        for (at, bytes) in &session.process {
            driver.write(env + at, bytes, stream)?;
        }
        let device = driver.device_info(driver.current_device()?)?;
        let sms = u64::from(device.sms).to_le_bytes();
        driver.write(env + env::SM_COUNT, &sms, stream)?;
        let mut maps = Vec::new();
        let mut in_host = Vec::new();
        let mut rings = Vec::new();
        for (index, plan) in session.maps().iter().chain(session.printk()).enumerate() {
            let (base, at, host) = match (plan.placement, plan.layout) {
                (Placement::Device, _) => {
                    let base = ground.zeroed(held, plan.bytes(), stream)?;
                    (base, base, None)
                }
                (Placement::Host, layout) => {
                    let memory = HostMemory::zeroed(held, plan.bytes())?;
                    let base = match layout {
                        MapLayout::Hosted(_) => {
                            let base = ground.zeroed(held, HostedLayout::CONTROL_BYTES, stream)?;
                            let control = calls::control(&session, memory.address);
                            driver.write(base, &control, stream)?;
                            base
                        }
                        _ => memory.address,
                    };
                    (base, memory.address, Some(memory))
                }
            };
            in_host.push(host);
            let contents = match index < session.map_count() {
                true => founding.contents(index, first),
                false if first => &plan.image,
                false => &plan.further,
            };
            for write in contents {
                driver.write(at + write.offset, &write.bytes, stream)?;
            }
            if let MapLayout::Ring(layout) = plan.layout {
                let map = if index < session.map_count() {
                    index as u32
                } else {
                    RingEvent::PRINTK
                };
                rings.push((map, base, layout));
            }
            maps.push(base);
        }
        for (plan, base) in session.maps().iter().zip(&maps) {
            let address = |map: u32| maps.get(map as usize).copied();
            for write in inner::resolve(plan, address) {
                driver.write(base + write.offset, &write.bytes, stream)?;
            }
        }
        let filled = session.maps().iter().zip(&maps);
        let filled = filled
            .map(|(plan, base)| Filled::new(plan, *base))
            .collect();
        let rings = Rings::new(&rings, stream, held)?;
        let clock = Clock::new(driver, held, env, stream)?;
        let fence = match session.reads_application() {
            true => Some(Fence::new(driver, held)?),
            false => None,
        };
        if let Some(fence) = &fence {
            let base = fence.base().to_le_bytes();
            driver.write(env + env::FENCE, &base, stream)?;
        }
        let (own, printk) = maps.split_at(session.map_count());
        let addresses = session.in_slots(env, own, printk.first().copied());
        let host_ops = HostOps::new(driver, held, &session, &addresses, stream)?;
        let calls = Calls::new(&session, &in_host).map(Arc::new);
        let grown = Grown::new(Arc::clone(&session), own.to_vec());
        let live = Live {
            driver: *driver,
            session,
            context,
            stream,
            env,
            maps,
            grown,
            first,
            in_host,
            rings: Mutex::new(rings),
            filled,
            clock: Mutex::new(clock),
            fence,
            gate,
            host_ops: Mutex::new(host_ops),
            calls,
            records: OnceLock::new(),
            kept: Mutex::default(),
        };
        // Nobody can be in a slot yet.
        match live.write_gate() {
            Ok(()) | Err(Unwritten::Busy | Unwritten::Missing) => Ok(live),
            Err(Unwritten::Driver(error)) => Err(error),
        }
    }

    /// Gives the context back all that this took from it. The context must be current, and its
    /// kernels have ended.
    ///
    /// # Safety
    /// Nothing of it is used any more, on the device or here: no variant is launched, who answers
    /// calls has been stopped.
    pub unsafe fn free(&self) {
        let mut kept = std::mem::take(&mut *lock(&self.kept));
        kept.add(self.grown.take_kept());
        self.driver.relaxed(|| {
            if let Some(Ok(records)) = self.records.get() {
                records.free(&self.driver);
            }
            kept.give_back(&self.driver);
        });
    }

    /// Its context has ended, and all in it: gives back what does not end with a context.
    pub fn context_ended(&self) {
        lock(&self.kept).give_back_fixed(&self.driver);
    }

    /// The context it lives in.
    pub fn context(&self) -> Context {
        self.context
    }
    /// The stream of its copies, which never synchronises with the application's default stream.
    pub fn stream(&self) -> Stream {
        self.stream
    }
    /// The fence around the application's memory, if some program reads it.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }
    /// Who answers programs that ask the host for keys, if one does: a thread must be in
    /// [`Calls::keep_serving`] while kernels run.
    pub fn calls(&self) -> Option<&Arc<Calls>> {
        self.calls.as_ref()
    }
    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Loads every wanted kernel of a prepared image; `original` is the image as the application
    /// (or its rewritten text) is loaded in this context. The context must be current. `jit` is
    /// what the application chose for the image's PTX.
    pub fn instrument(
        &self,
        prepared: &Prepared,
        original: Module,
        jit: &JitOptions,
    ) -> Vec<(String, Result<Arc<LoadedVariant>, LoadError>)> {
        let wanted = &|_: &PreparedKernel| true;
        self.instrument_for(
            &self.session,
            prepared,
            (original, &Standing::default()),
            jit,
            wanted,
        )
    }

    /// As [`Live::instrument`], with the programs of a session that followed this one's, and only
    /// kernels that `wanted` says yes to. The image may be unloaded meanwhile, which `original`
    /// tells.
    pub fn instrument_for(
        &self,
        session: &Session,
        prepared: &Prepared,
        original: (Module, &Standing),
        jit: &JitOptions,
        wanted: &dyn Fn(&PreparedKernel) -> bool,
    ) -> Vec<(String, Result<Arc<LoadedVariant>, LoadError>)> {
        let kernels = (prepared.kernels.iter()).filter(|k| k.wanted && wanted(k));
        let kernels: Vec<&PreparedKernel> = kernels.collect();
        let fixed = match self.addresses(session) {
            Ok(fixed) => fixed,
            Err(error) => {
                return (kernels.iter())
                    .map(|k| (k.mangled.clone(), Err(LoadError::Maps(error.clone()))))
                    .collect();
            }
        };
        let (original, standing) = original;
        let duplicates = Once::default();
        let loading = Loading {
            driver: &self.driver,
            original,
            standing,
            addresses: Addresses { fixed: &fixed },
            jit,
            max_registers: self.session.options.max_registers,
            stream: self.stream,
            kernels: &kernels,
            duplicate: &duplicates,
            unmade: &prepared.unmade,
            cache: self.session.means.cache.as_deref(),
            clones: prepared.commented.as_ref(),
            clone_log: OnceLock::new(),
            plain_log: OnceLock::new(),
        };
        let made = self.driver.relaxed(|| {
            (kernels.iter())
                .map(|kernel| {
                    let records = if kernel.needs_launch_record() {
                        self.launch_records().map(Some)
                    } else {
                        Ok(None)
                    };
                    let records = records.map_err(LoadError::Driver);
                    let variant = records.and_then(|records| loading.load(kernel, records));
                    (kernel.mangled.clone(), variant.map(Arc::new))
                })
                .collect()
        });
        self.driver.relaxed(|| duplicates.let_go(&self.driver));
        made
    }

    /// The map of this number and identity, if it is one that this began with.
    pub(crate) fn began_with(&self, map: usize, id: u64) -> Option<u64> {
        let same = map < self.session.map_count() && self.session.map_id(map) == id;
        same.then(|| self.maps[map])
    }

    /// The ring of messages.
    pub(crate) fn printk(&self) -> Option<u64> {
        self.maps.get(self.session.map_count()).copied()
    }

    /// It is the first of its session.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Keeps what it took from the context, until that ends or it is freed.
    pub(crate) fn keep(&self, more: Kept) {
        lock(&self.kept).add(more);
    }

    /// Loads what the host's operations on maps from this number on need, if they were asked for;
    /// `addresses` are those of all slots.
    pub(crate) fn host_kernels(
        &self,
        held: &mut Held<'_>,
        session: &Session,
        addresses: &[u64],
        first: usize,
    ) -> Came {
        match session.options.host_ops && first < session.map_count() {
            true => host_ops::load(&self.driver, held, session, addresses, self.stream, first),
            false => Ok(Vec::new()),
        }
    }

    /// Takes that over; there are so many maps then.
    pub(crate) fn take_host_kernels(&self, kernels: Came, maps: usize) {
        lock(&self.host_ops).grow(kernels, maps);
    }

    fn launch_records(&self) -> Result<Arc<LaunchRecords>, DriverError> {
        let made = self
            .records
            .get_or_init(|| LaunchRecords::new(&self.driver, self.stream).map(Arc::new));
        made.clone()
    }

    /// How each map lies in memory, for readers outside.
    pub fn layouts(&self) -> Vec<MapLayoutInfo> {
        self.adopted().layouts()
    }

    /// Copies the device bytes of map `map` from `offset` on into `into`. While kernels run, each
    /// aligned 8-byte word is one that a program wrote; words may be of different moments.
    ///
    /// # Errors
    /// [`DriverError`] of the copy.
    pub fn snapshot(&self, map: usize, offset: u64, into: &mut [u8]) -> Result<(), DriverError> {
        if let Some(memory) = self.in_host(map) {
            // Entries that the host keeps do not change meanwhile; values that programs write to
            // do.
            let _quiet = self.calls.as_ref().map(|calls| calls.pause());
            memory.read(offset, into);
            return Ok(());
        }
        let base = self.grown.now().maps[map];
        self.driver.read(base + offset, into, self.stream)
    }

    /// The map's memory on the host, if it lies there: one that came with a replacement never does.
    fn in_host(&self, map: usize) -> Option<&HostMemory> {
        let began = map < self.session.map_count();
        self.in_host.get(map).filter(|_| began)?.as_ref()
    }

    /// The map lies in memory of the host.
    pub(crate) fn is_in_host(&self, map: usize) -> bool {
        self.in_host(map).is_some()
    }

    /// Writes all of a map that lies on the device, by one copy.
    pub(crate) fn write_map(&self, map: usize, bytes: &[u8]) -> Result<(), DriverError> {
        let write = || self.driver.write(self.maps[map], bytes, self.stream);
        self.driver.relaxed(write)
    }

    /// No operation of the host is on the device, or is still waiting there.
    pub fn host_is_idle(&self) -> bool {
        let host_ops = self.host_ops.lock().unwrap_or_else(PoisonError::into_inner);
        self.driver.relaxed(|| host_ops.is_idle(&self.driver))
    }

    /// Begins operations of the host on map `map`, of which those on one key are done in their
    /// order; others may be done at once, or in another. Unless it answers at once,
    /// [`Live::host_progress`] must be asked until it does; what is begun meanwhile is answered
    /// with `-EBUSY`.
    pub fn host_ops(&self, map: usize, ops: Vec<HostOp>) -> Progress {
        let answered = self.calls.as_ref().and_then(|c| c.host_ops(map, &ops));
        if let Some(answers) = answered {
            return Progress::Done(answers);
        }
        if let Some(ring) = self.user_ring(map) {
            return Progress::Done(self.driver.relaxed(|| ring.host_ops(&ops)));
        }
        let now = self.grown.now();
        let at = self.at(&now, map);
        let mut host_ops = self.host_ops.lock().unwrap_or_else(PoisonError::into_inner);
        self.driver.relaxed(|| host_ops.submit(&at, ops))
    }

    /// Most bytes of values that `ops` on map `map` can be answered with.
    pub fn host_answer_bytes(&self, map: usize, ops: &[HostOp]) -> u64 {
        host_ops::most_answered(&self.grown.now().session.maps()[map], ops)
    }

    /// Why the host cannot do `ops` on map `map`, although the session was prepared for them: its
    /// code cannot be made, or the map is too large for what they need.
    pub fn host_ops_refused(&self, map: usize, ops: &[HostOp]) -> Option<HostOpsError> {
        let now = self.grown.now();
        let host_ops = self.host_ops.lock().unwrap_or_else(PoisonError::into_inner);
        host_ops.refused(&self.at(&now, map), ops)
    }

    /// The user ring buffer that map `map` is.
    pub fn user_ring(&self, map: usize) -> Option<UserRing<'_>> {
        let filled = self.filled.get(map)?.as_ref()?;
        Some(UserRing {
            driver: &self.driver,
            stream: self.stream,
            filled,
        })
    }

    fn at<'a>(&'a self, now: &'a Now, map: usize) -> At<'a> {
        At {
            driver: &self.driver,
            session: &now.session,
            index: map,
            bases: &now.maps,
            in_host: self.in_host(map),
        }
    }

    /// Goes on with what [`Live::host_ops`] began.
    pub fn host_progress(&self) -> Progress {
        let mut host_ops = self.host_ops.lock().unwrap_or_else(PoisonError::into_inner);
        self.driver.relaxed(|| host_ops.progress(&self.driver))
    }

    /// Has the copy engine bring home what the rings hold, as far as there is room, many copies at
    /// once. Nobody looks at what comes.
    ///
    /// # Errors
    /// [`DriverError`] of a copy. Before [`Landing::landed`] was called nothing has left its ring.
    pub fn bring(&self, landing: &mut dyn Landing) -> Result<DrainStats, DriverError> {
        self.rings().bring(&self.driver, landing)
    }

    /// Hands out every record that is complete.
    ///
    /// # Errors
    /// [`DriverError`] of a copy; records handed out before stay handed out, none is lost.
    pub fn drain(&self, sink: &mut dyn FnMut(RingEvent<'_>)) -> Result<DrainStats, DriverError> {
        self.rings().drain(&self.driver, sink)
    }

    /// Bytes of a chunk that a [`Landing`] must have room for at some time, or it may never fit; 0
    /// if the session has no rings.
    pub fn largest_chunk(&self) -> u64 {
        self.rings().largest()
    }

    /// What each ring lost on the device since the start, as of the last drain: map
    /// ([`RingEvent::PRINTK`] for messages) and losses.
    pub fn losses(&self) -> Vec<(u32, Lost)> {
        self.rings().losses()
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the device clock against the host's again and publishes the result to running
    /// programs.
    ///
    /// # Errors
    /// [`DriverError`] of the measuring kernel.
    pub fn recalibrate(&self) -> Result<(), DriverError> {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.renew(&self.driver, self.env, self.stream)
    }

    /// The last clock measurement; its error is half the shortest round trip.
    pub fn clock(&self) -> Reading {
        self.clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last()
    }
}

impl Session {
    /// How each map lies in memory, for readers outside.
    pub fn layouts(&self) -> Vec<MapLayoutInfo> {
        let describe = |(map, plan): (usize, &MapPlan)| MapLayoutInfo {
            name: plan.name.clone(),
            client: self.map_client(map),
            map_type: plan.map_type as u32,
            key_size: plan.key_size,
            value_size: plan.value_size,
            max_entries: plan.max_entries,
            snapshot_bytes: match map >= self.first_maps() && self.map_defs()[map].is_constant() {
                true => 0,
                false => plan.snapshot_bytes(),
            },
            layout: plan.layout,
            sum_fields: plan.sum_fields.clone(),
            added: plan.added.clone(),
        };
        self.maps().iter().enumerate().map(describe).collect()
    }
}
