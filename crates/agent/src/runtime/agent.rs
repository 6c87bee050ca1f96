//! The agent of a process: what it knows, and how its parts find each other.
//!
//! It is off until the application loads its first image; then it says hello to the tool and does
//! what it is told. It is off again, for good, when the tool goes away, and in a forked child.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_driver::{Context, DeviceInfo, Driver};
use warpbpf_session::{Session, SessionError};
use warpbpf_wire::{NoteLevel, SharedError, ToTool};

use crate::device::bound::MemoryBound;
use crate::device::context_registry::{ContextRegistry, ContextState};
use crate::device::drain::Drain;
use crate::device::drivers::Drivers;
use crate::device::end_requests::Ends;
use crate::device::graphs::state::Graphs;
use crate::device::launch_barrier::LaunchBarrier;
use crate::device::memory::Memory;
use crate::device::quiet::Quiet;
use crate::device::retains::Retains;
use crate::device::streams::Streams;
use crate::device::watchdog::Watchdog;
use crate::kernels::entry::Entry;
use crate::kernels::generation::Generations;
use crate::kernels::kernel_registry::KernelRegistry;
use crate::kernels::launches::SharedLaunches;
use crate::kernels::notes::{Said, internal_failure};
use crate::kernels::outbox::{Outbox, Outgoing};
use crate::kernels::replacement::Replacement;
use crate::sources::images::Images;
use crate::sources::jit_outputs::JitOutputs;
use crate::sources::links::Links;
use crate::sources::preloaded::jobs::Preloaded;
use crate::sys::descriptors::{FileThread, Identity, OwnDescriptor};
use crate::sys::lock::lock;
use crate::sys::symbols::Symbols;
use crate::sys::table::{EmptyTable, Table};

/// How the tool is reached.
#[derive(Debug)]
pub(crate) enum Tool {
    /// By the path of its control socket.
    Path(PathBuf),
    /// By a socket that is connected already; taken by the first handshake.
    Socket(Mutex<Option<OwnDescriptor>>),
}

/// What the tool wants.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Nothing: it is not there, or its program was refused.
    PassThrough,
    /// A list of kernels.
    Observe,
    /// Programs in kernels.
    Attached(Arc<Session>),
}

/// What the agent asks of what is above it: who starts it says who does that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Above {
    /// Asks the tool what it wants.
    pub(crate) ask: fn(&'static Agent) -> Mode,
    /// The driver as our threads have it.
    pub(crate) wrap: fn(Driver) -> Driver,
    /// Looks for the functions by which a process ends.
    pub(crate) ends: fn() -> Ends,
    /// What runs in the place of the driver's functions.
    pub(crate) replacements: fn() -> Vec<usize>,
}

/// Why nothing can be done on the device side now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// No context is current, or the one that is is not alive.
    NoContext,
    /// A thread of ours makes something there, and makes up for this.
    Busy,
    /// There is no device side in this context, for this reason.
    Gone(&'static str),
}

/// Why the device side could not be made.
pub(crate) struct Unmade(pub(crate) String);

impl From<SessionError> for Unmade {
    fn from(error: SessionError) -> Unmade {
        Unmade(error.to_string())
    }
}

impl From<SharedError> for Unmade {
    fn from(error: SharedError) -> Unmade {
        Unmade(error.to_string())
    }
}

/// How far the end is.
#[derive(Debug, Default)]
pub(crate) struct Finish {
    /// The control thread is to finish, for this reason.
    pub(crate) wanted: Option<String>,
    /// The control thread has ended.
    pub(crate) done: bool,
}

/// See the module. It is freed when no thread can be in its code any more
/// ([`crate::startup::retired`]).
#[derive(Debug)]
pub(crate) struct Agent {
    /// The parts above it.
    pub(crate) above: Above,
    /// Our own calls: trampolines where a function is hooked.
    pub(crate) driver: Driver,
    pub(crate) symbols: Symbols,
    pub(crate) tool: Tool,
    on: AtomicBool,
    /// The process that it is of. Children by `_Fork` or `clone` come without a word.
    pid: u32,
    /// This is a child that was forked while the agent was here.
    forked: AtomicBool,
    /// The child has an agent of its own.
    handed_over: AtomicBool,
    /// From kernel handles to their replacement.
    pub(crate) table: Table<Entry>,
    spare: EmptyTable<Entry>,
    pub(crate) graphs: Graphs,
    /// Which programs are in force.
    pub(crate) generations: Generations,
    pub(crate) replacement: Replacement,
    pub(crate) drain: Drain,
    /// Where launches wait while a thread of ours loads.
    pub(crate) launch_barrier: LaunchBarrier,
    /// The process ends.
    at_exit: AtomicBool,
    pub(crate) mode: OnceLock<Mode>,
    /// All that the driver knows, by ordinal.
    pub(crate) devices: OnceLock<Vec<DeviceInfo>>,
    /// See [`Agent::loads_lazily`].
    pub(crate) lazy: OnceLock<bool>,
    /// Operations in a timeline have their stacks on the CPU.
    pub(crate) stacks: AtomicBool,
    /// See [`Agent::answers_for_variant`].
    pub(crate) occupancy_of_variants: AtomicBool,
    /// What a session may take of devices' memory.
    pub(crate) bound: MemoryBound,
    /// What it may cost in time.
    pub(crate) watchdog: Watchdog,
    pub(crate) context_registry: ContextRegistry,
    pub(crate) images: Images,
    pub(crate) links: Links,
    pub(crate) jit_outputs: JitOutputs,
    pub(crate) retains: Retains,
    /// The application's memory, for programs that read it.
    pub(crate) memory: Memory,
    /// Whether kernels with programs run.
    pub(crate) quiet: Quiet,
    /// Kernels of images that were loaded before we came.
    pub(crate) preloaded: Preloaded,
    /// Images that may have to be instrumented in a context that comes.
    pending: AtomicIsize,
    pub(crate) kernel_registry: KernelRegistry,
    pub(crate) launches: SharedLaunches,
    pub(crate) streams: Streams,
    pub(crate) outbox: Outbox,
    pub(crate) said: Said,
    pub(crate) finish: Mutex<Finish>,
    pub(crate) finished: Condvar,
    /// Copies of the driver that are loaded and not hooked.
    pub(crate) drivers: Drivers,
    /// Ends without handlers.
    pub(crate) ends: Ends,
    /// What works with descriptors for other threads.
    pub(crate) files: Arc<FileThread>,
    drowsy: AtomicBool,
    /// Launches of executable graphs that were asked for.
    graph_launches: AtomicU64,
    /// The control socket, for a forked child to close; set when a tool has said what it wants.
    pub(crate) socket: OnceLock<(RawFd, Identity)>,
    pub(crate) ring_bytes: AtomicUsize,
    /// Threads of ours that were started: nobody waits for one that was not.
    threads: AtomicU32,
    /// `cuEventElapsedTime`: who asks the tool must not wait for the dynamic loader.
    pub(crate) elapsed: Option<usize>,
}

impl Agent {
    /// An agent that lives until it is [freed](Agent::free).
    pub(crate) fn leak(
        driver: Driver,
        symbols: Symbols,
        tool: Tool,
        files: Arc<FileThread>,
        above: Above,
    ) -> &'static Agent {
        let elapsed = symbols.address("cuEventElapsedTime");
        Box::leak(Box::new(Agent {
            driver: (above.wrap)(driver),
            symbols,
            tool,
            on: AtomicBool::new(true),
            pid: std::process::id(),
            forked: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            table: Table::new(),
            spare: EmptyTable::new(),
            graphs: Graphs::default(),
            generations: Generations::default(),
            replacement: Replacement::default(),
            drain: Drain::default(),
            launch_barrier: LaunchBarrier::default(),
            at_exit: AtomicBool::new(false),
            mode: OnceLock::new(),
            devices: OnceLock::new(),
            lazy: OnceLock::new(),
            stacks: AtomicBool::new(false),
            occupancy_of_variants: AtomicBool::new(false),
            bound: MemoryBound::default(),
            watchdog: Watchdog::default(),
            context_registry: ContextRegistry::default(),
            images: Images::default(),
            links: Links::default(),
            jit_outputs: JitOutputs::default(),
            retains: Retains::default(),
            memory: Memory::default(),
            quiet: Quiet::default(),
            preloaded: Preloaded::default(),
            pending: AtomicIsize::new(0),
            kernel_registry: KernelRegistry::default(),
            launches: SharedLaunches::default(),
            streams: Streams::default(),
            outbox: Outbox::default(),
            said: Said::default(),
            finish: Mutex::default(),
            finished: Condvar::new(),
            drivers: Drivers::default(),
            ends: (above.ends)(),
            above,
            files,
            drowsy: AtomicBool::new(false),
            graph_launches: AtomicU64::new(0),
            socket: OnceLock::new(),
            ring_bytes: AtomicUsize::new(warpbpf_wire::DEFAULT_RING_BYTES as usize),
            threads: AtomicU32::new(0),
            elapsed,
        }))
    }

    /// Hooks have work to do.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // In one order with launches under way.
        self.on.load(Ordering::SeqCst)
    }

    /// The process ends.
    pub(crate) fn begin_exit(&self) {
        self.at_exit.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_at_exit(&self) -> bool {
        self.at_exit.load(Ordering::Relaxed)
    }

    /// Images may have to be instrumented in a context that comes: libraries, and what was loaded
    /// before its context lived.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Counts such images. May fall below zero by those that waited when everything was turned off.
    pub(crate) fn count_pending(&self, more: isize) {
        self.pending.fetch_add(more, Ordering::Relaxed);
    }

    /// Every launch runs the original from now on, and every other hook passes through.
    pub(crate) fn turn_off(&self) {
        self.on.store(false, Ordering::SeqCst);
        self.preloaded.close();
        self.graphs.forget_older();
        self.pending.store(0, Ordering::Relaxed);
        if !self.is_late() {
            self.table.close();
        }
        self.quiet.forget();
        self.memory.forget_if_unused();
        self.links.forget();
        self.jit_outputs.forget();
    }

    /// A hook of ours failed in a way that nobody thought of, and may have left half of something
    /// behind: no kernel runs with programs any more. What was counted until now comes home.
    pub(crate) fn broke(&self, symbol: &str, said: &str) {
        self.table.close();
        self.preloaded.close();
        self.note(
            NoteLevel::Warning,
            format!(
                "warpbpf failed internally in `{symbol}`: `{said}`; from here on all kernels run without probes and are not counted. Please report this with the program"
            ),
        );
        self.send(ToTool::Failed, None);
    }

    /// In a forked child: as [`Agent::turn_off`], but no lock is taken and only async-signal-safe
    /// calls are made.
    pub(crate) fn turn_off_in_child(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.on.store(false, Ordering::Relaxed);
        self.preloaded.close();
        self.pending.store(0, Ordering::Relaxed);
        self.table.replace_after_fork(&self.spare);
        self.quiet.forget();
        self.launch_barrier.forget_in_child();
        self.graphs.forget_in_child();
        self.memory.forget_in_child();
        if let Some((socket, place)) = self.socket.get() {
            // Else the connection would last as long as the child does.
            place.close(*socket);
        }
    }

    /// This process is the one that it is of, and no child of it that came by whatever call.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// This process is a forked child of the one that it is of.
    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// True for the first who asks: there is one agent to come after this one.
    pub(crate) fn hand_over(&self) -> bool {
        !self.handed_over.swap(true, Ordering::Relaxed)
    }

    /// As the parent had it: its functions of the driver, and the path of its tool, if it goes by a
    /// path.
    pub(crate) fn inherited(&self) -> Option<(&Symbols, &Path)> {
        match &self.tool {
            Tool::Path(path) => Some((&self.symbols, path)),
            Tool::Socket(_) => None,
        }
    }

    /// What the tool wants. The first call asks it; that needs an initialised driver.
    pub(crate) fn mode(&'static self) -> &'static Mode {
        self.mode.get_or_init(|| (self.above.ask)(self))
    }

    /// The tool was asked, whatever came of it.
    pub(crate) fn is_decided(&self) -> bool {
        self.mode.get().is_some()
    }

    /// A tool has said what it wants.
    pub(crate) fn is_connected(&self) -> bool {
        self.socket.get().is_some()
    }

    /// The tool will not be asked.
    pub(crate) fn hang_up(&self) {
        if let Tool::Socket(socket) = &self.tool {
            drop(lock(socket).take());
        }
    }

    /// A function of the driver that is not in [`Driver`]'s table.
    pub(crate) fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols.address(name)
    }

    /// All devices by ordinal, once the handshake asked for them.
    pub(crate) fn devices(&self) -> &[DeviceInfo] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    /// The device of the current context; the first if none is current.
    pub(crate) fn device(&self) -> Option<&DeviceInfo> {
        let ordinal = self.driver.current_device().unwrap_or(0);
        self.devices().get(usize::try_from(ordinal).ok()?)
    }

    /// The driver serves launches until the process ends. NVIDIA's ends in an exit handler.
    pub(crate) fn serves_behind_handlers(&self) -> bool {
        let devices = self.devices();
        devices
            .first()
            .is_some_and(|d| d.name == warpbpf_abi::names::SOFT_DEVICE)
    }

    /// Multiprocessors of the largest device: as many CPU numbers has each context.
    pub(crate) fn cpus(&self) -> u32 {
        self.devices().iter().map(|d| d.sms).max().unwrap_or(0)
    }

    /// A program in force wants this kernel.
    pub(crate) fn is_wanted(&self, entry: &Entry) -> bool {
        let session = self.generations.now().session.get();
        session.is_none_or(|session| !session.matching(&entry.mangled).is_empty())
    }

    /// Some context whose maps live.
    pub(crate) fn some_live_context(&self) -> Option<Context> {
        let all = self.context_registry.all();
        let found = all
            .iter()
            .find(|shard| matches!(shard.look().as_deref(), Some(ContextState::Here(_))));
        found.map(|shard| shard.context)
    }

    /// Bytes of the ring of events in shared memory.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring_bytes.load(Ordering::Relaxed) as u64
    }

    /// The control thread will sleep for a while: the next launch of a variant shall wake it,
    /// because rings fill fast.
    pub(crate) fn set_drowsy(&self) {
        self.drowsy.store(true, Ordering::Relaxed);
    }

    /// Launches that were asked for and launches that were done, of everything: while one number
    /// stays, nothing was launched.
    pub(crate) fn launch_steps(&self) -> u64 {
        self.graph_launches.load(Ordering::Relaxed)
            + self.kernel_registry.begun()
            + self.kernel_registry.launched()
    }

    /// An executable graph is about to be launched.
    pub(crate) fn graph_launch_begins(&self) {
        self.graph_launches.fetch_add(1, Ordering::Relaxed);
        self.launch_happened();
    }

    /// A variant is about to be launched, or was. Both matter: a driver that was told to wait for
    /// each kernel (`CUDA_LAUNCH_BLOCKING`), or that has no room for more of them, comes back late,
    /// and rings fill meanwhile.
    #[inline]
    pub(crate) fn launch_happened(&self) {
        if self.drowsy.load(Ordering::Relaxed) && self.drowsy.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Has the control thread look at all that is to be done.
    pub(crate) fn wake(&self) {
        if warpbpf_faults::strikes("agent/wake") {
            return;
        }
        self.files.ring();
    }

    /// There is a thread that speaks with the tool: at the end it is waited for.
    pub(crate) fn goes_on(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the control thread bring everything home and say good-bye, and waits for it at most
    /// `limit`.
    pub(crate) fn finish(&self, reason: &str, limit: Duration) {
        if self.threads.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut finish = lock(&self.finish);
        finish.wanted.get_or_insert_with(|| reason.into());
        self.wake();
        let end = Instant::now() + limit;
        while !finish.done {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            finish = self
                .finished
                .wait_timeout(finish, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Tells the user something, each text once.
    pub(crate) fn note(&self, level: NoteLevel, text: String) {
        self.note_to(&[], level, text);
    }

    /// The same for these second tools alone; for all tools if there is none.
    pub(crate) fn note_to(&self, clients: &[u32], level: NoteLevel, text: String) {
        if let Some(clients) = self.said.new_for(clients, &text) {
            let note = ToTool::Note {
                level,
                text,
                clients,
            };
            self.send(note, None);
        }
    }

    /// A thread of ours, or what we do in a call of the application's (`whose`), failed in a way
    /// that nobody thought of: the tool is told once, and the application is not.
    pub(crate) fn failed(&self, whose: &str, said: &str) {
        // In a forked child another thread may have had the locks.
        if !self.is_on() {
            return;
        }
        let text = internal_failure(whose, said);
        if let Some(clients) = self.said.new_for(&[], &text) {
            let level = NoteLevel::Error;
            let note = ToTool::Note {
                level,
                text,
                clients,
            };
            self.send(note, None);
            self.send(ToTool::Failed, None);
            self.wake();
        }
    }

    /// Has the control thread send a message.
    pub(crate) fn send(&self, message: ToTool, fd: Option<OwnDescriptor>) {
        // In a forked child nobody lets go of the lock.
        if !self.is_on() {
            return;
        }
        let mut outbox = lock(&self.outbox.0);
        // Who ends the session empties it behind this.
        if self.is_on() {
            outbox.push(Outgoing { message, fd });
        }
    }

    pub(crate) fn take_outbox(&self) -> Vec<Outgoing> {
        std::mem::take(&mut lock(&self.outbox.0))
    }

    /// Nobody speaks with a tool any more, and no tool will look at what a context leaves. An agent
    /// may live on as long as the process, and there may be many one after the other: what of it
    /// has a descriptor ends here.
    pub(crate) fn nobody_listens(&self) {
        self.turn_off();
        self.files.close();
        drop(self.take_outbox());
        for shard in self.context_registry.all() {
            shard.keep_no_memory();
        }
    }
}
