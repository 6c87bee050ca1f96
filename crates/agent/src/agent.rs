//! The agent of a process: what it knows, and how its parts find each other.
//!
//! It is off until the application loads its first image; then it says hello to the tool and does what it is told. It is
//! off again, for good, when the tool goes away, and in a forked child.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use warpbpf_driver::{Context, DeviceInfo, Driver};
use warpbpf_session::{Live, Session};
use warpbpf_wire::{
    AgentConnection, Counts, Device, Hello, KernelCount, NoteLevel, PROTOCOL, Ready, ToAgent,
    ToTool, WireError,
};

use crate::launch::Entry;
use crate::modules::Images;
use crate::pump::{self, Pump};
use crate::symbols::Symbols;
use crate::table::{EmptyTable, Table};
use crate::{control, guard};

/// How long the application's first load waits for the tool's wish.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Notes of different text that are sent; more would be a loop.
const MOST_NOTES: usize = 1000;

/// How the tool is reached.
#[derive(Debug)]
pub(crate) enum Tool {
    /// By the path of its control socket.
    Path(PathBuf),
    /// By a socket that is connected already; taken by the first handshake.
    #[cfg(test)]
    Socket(Mutex<Option<OwnedFd>>),
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

/// The device side of the session.
#[derive(Debug, Default)]
pub(crate) enum LiveState {
    /// No context was current yet.
    #[default]
    NotYet,
    /// Maps live in this context.
    Here(Box<Live>),
    /// Its context was destroyed, or it could not be made.
    Gone,
}

/// Something to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: ToTool,
    pub(crate) fd: Option<OwnedFd>,
}

/// How far the end is.
#[derive(Debug, Default)]
pub(crate) struct Finish {
    /// The control thread is to finish, for this reason.
    pub(crate) wanted: Option<String>,
    /// The control thread has ended.
    pub(crate) done: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Our own calls: trampolines where a function is hooked.
    pub(crate) driver: Driver,
    symbols: Symbols,
    tool: Tool,
    on: AtomicBool,
    /// From kernel handles to their replacement.
    pub(crate) table: Table<Entry>,
    spare: &'static EmptyTable<Entry>,
    mode: OnceLock<Mode>,
    device: OnceLock<DeviceInfo>,
    pub(crate) live: RwLock<LiveState>,
    pub(crate) pump: Mutex<Option<Pump>>,
    pub(crate) images: Images,
    /// Images that wait for a context.
    pending: AtomicUsize,
    entries: Mutex<Vec<&'static Entry>>,
    outbox: Mutex<Vec<Outgoing>>,
    said: Mutex<HashSet<String>>,
    pub(crate) finish: Mutex<Finish>,
    pub(crate) finished: Condvar,
    /// Written to wake the control thread.
    pub(crate) wake: OwnedFd,
    drowsy: AtomicBool,
    /// The control socket, for a forked child to close; -1 without one.
    socket: AtomicI32,
    ring_bytes: AtomicUsize,
    /// Threads of ours that were started: nobody waits for one that was not.
    threads: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    /// An agent that lives as long as the process.
    pub(crate) fn leak(
        driver: Driver,
        symbols: Symbols,
        tool: Tool,
    ) -> Result<&'static Agent, rustix::io::Errno> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        Ok(Box::leak(Box::new(Agent {
            driver,
            symbols,
            tool,
            on: AtomicBool::new(true),
            table: Table::new(),
            spare: Box::leak(Box::new(EmptyTable::new())),
            mode: OnceLock::new(),
            device: OnceLock::new(),
            live: RwLock::default(),
            pump: Mutex::default(),
            images: Images::default(),
            pending: AtomicUsize::new(0),
            entries: Mutex::default(),
            outbox: Mutex::default(),
            said: Mutex::default(),
            finish: Mutex::default(),
            finished: Condvar::new(),
            wake,
            drowsy: AtomicBool::new(false),
            socket: AtomicI32::new(-1),
            ring_bytes: AtomicUsize::new(warpbpf_wire::DEFAULT_RING_BYTES as usize),
            threads: AtomicU32::new(0),
        })))
    }

    /// Hooks have work to do.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Images wait for a context.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn count_pending(&self, more: isize) {
        if more >= 0 {
            self.pending.fetch_add(more as usize, Ordering::Relaxed);
        } else {
            self.pending
                .fetch_sub(more.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Every launch runs the original from now on, and every other hook passes through.
    pub(crate) fn turn_off(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.table.close();
    }

    /// In a forked child: as [`Agent::turn_off`], but no lock is taken and only async-signal-safe calls are made.
    pub(crate) fn turn_off_in_child(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.table.replace_after_fork(self.spare);
        let socket = self.socket.swap(-1, Ordering::Relaxed);
        if socket >= 0 {
            // SAFETY: the thread that owns the descriptor does not exist in this process.
            unsafe { libc::close(socket) };
        }
    }

    /// What the tool wants. The first call asks it; that needs an initialised driver.
    pub(crate) fn mode(&'static self) -> &'static Mode {
        self.mode.get_or_init(|| {
            self.handshake().unwrap_or_else(|_| {
                // Nobody to tell it to: the tool is what could not be reached.
                self.turn_off();
                Mode::PassThrough
            })
        })
    }

    /// A function of the driver that is not in [`Driver`]'s table.
    pub(crate) fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols.address(name)
    }

    /// The device, once the handshake asked for it.
    pub(crate) fn device(&self) -> Option<&DeviceInfo> {
        self.device.get()
    }

    /// Multiprocessors of the device.
    pub(crate) fn sms(&self) -> u32 {
        self.device().map_or(0, |d| d.sms)
    }

    fn connect(&self) -> Result<AgentConnection, WireError> {
        match &self.tool {
            Tool::Path(path) => AgentConnection::connect(path),
            #[cfg(test)]
            Tool::Socket(socket) => {
                let socket = lock(socket).take().ok_or(WireError::Closed)?;
                AgentConnection::new(socket)
            }
        }
    }

    fn handshake(&'static self) -> Result<Mode, WireError> {
        let mut connection = self.connect()?;
        let ordinal = self.driver.current_device().unwrap_or(0);
        let device = match self.driver.device_info(ordinal) {
            Ok(device) => device,
            Err(error) => {
                hello(&mut connection, None)?;
                let message = format!("the device cannot be asked what it is: {error}");
                self.refuse(&mut connection, message)?;
                return Ok(Mode::PassThrough);
            }
        };
        let device = self.device.get_or_init(|| device);
        hello(&mut connection, Some(device))?;
        let end = Instant::now() + HANDSHAKE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let frame = connection.recv(left)?.ok_or(WireError::Timeout {
                seconds: HANDSHAKE.as_secs(),
            })?;
            let mode = match frame.message {
                ToAgent::Observe => Mode::Observe,
                ToAgent::Attach { options } => {
                    if let Some(bytes) = options.ring_bytes {
                        self.ring_bytes.store(bytes as usize, Ordering::Relaxed);
                    }
                    let options = warpbpf_session::Options {
                        allow_modify: options.allow_modify,
                        budget: options.budget,
                        threads: options.threads,
                    };
                    match Session::new(&frame.blob, &options, device) {
                        Ok(session) => Mode::Attached(Arc::new(session)),
                        Err(error) => {
                            self.refuse(&mut connection, error.to_string())?;
                            return Ok(Mode::PassThrough);
                        }
                    }
                }
                ToAgent::Detach => {
                    self.turn_off();
                    return Ok(Mode::PassThrough);
                }
                ToAgent::Snapshot { .. } => continue,
            };
            let socket = std::os::fd::AsFd::as_fd(&connection).as_raw_fd();
            self.socket.store(socket, Ordering::Relaxed);
            if control::start(self, connection).is_err() {
                self.turn_off();
                return Ok(Mode::PassThrough);
            }
            self.threads.fetch_add(1, Ordering::Relaxed);
            crate::install::bring_home_at_exit();
            return Ok(mode);
        }
    }

    fn refuse(&self, connection: &mut AgentConnection, message: String) -> Result<(), WireError> {
        self.turn_off();
        let second = Duration::from_secs(1);
        connection.send(&ToTool::Refused { message }, &[], None, second)?;
        let reason = "nothing was injected".into();
        connection.send(&ToTool::Bye { reason }, &[], None, second)
    }

    /// Says hello and why nothing will happen, where not even the hooks could be set.
    pub(crate) fn refuse_at_once(&self, message: String) {
        if let Ok(mut connection) = self.connect() {
            // Nobody to tell it to if this fails.
            let _ =
                hello(&mut connection, None).and_then(|()| self.refuse(&mut connection, message));
        }
        self.turn_off();
    }

    /// Runs `work` with the device side, made now if it does not exist yet. `None` without a current context, or when the
    /// current one is not the one that the maps live in.
    pub(crate) fn with_live<T>(
        &self,
        session: &Arc<Session>,
        work: impl FnOnce(&Live) -> T,
    ) -> Option<T> {
        let context = self.driver.current()?;
        {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            match &*live {
                LiveState::Here(live) if live.context() == context => return Some(work(live)),
                LiveState::Here(_) | LiveState::Gone => return None,
                LiveState::NotYet => {}
            }
        }
        self.make_live(session);
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        match &*live {
            LiveState::Here(live) if live.context() == context => Some(work(live)),
            LiveState::Here(_) | LiveState::Gone | LiveState::NotYet => None,
        }
    }

    fn make_live(&self, session: &Arc<Session>) {
        let mut state = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, LiveState::NotYet) {
            return;
        }
        let made = Live::new(&self.driver, Arc::clone(session)).map_err(|e| e.to_string());
        let made = made.and_then(|live| {
            let ring = self.ring_bytes.load(Ordering::Relaxed) as u64;
            let (pump, fd) = Pump::new(&live, ring).map_err(|e| e.to_string())?;
            Ok((live, pump, fd))
        });
        match made {
            Ok((live, pump, fd)) => {
                self.send(ToTool::Ready(ready(session, &live)), Some(fd));
                *lock(&self.pump) = Some(pump);
                *state = LiveState::Here(Box::new(live));
            }
            Err(message) => {
                *state = LiveState::Gone;
                self.send(ToTool::Refused { message }, None);
                self.table.close();
            }
        }
    }

    /// The context of the maps, while it lives.
    pub(crate) fn live_context(&self) -> Option<Context> {
        match &*self.live.read().unwrap_or_else(PoisonError::into_inner) {
            LiveState::Here(live) => Some(live.context()),
            LiveState::NotYet | LiveState::Gone => None,
        }
    }

    /// Remembers an entry for the counts.
    pub(crate) fn add_entry(&self, entry: &'static Entry) {
        lock(&self.entries).push(entry);
    }

    /// Launches so far, per kernel name.
    pub(crate) fn counts(&self) -> Counts {
        let mut kernels: Vec<KernelCount> = Vec::new();
        for entry in lock(&self.entries).iter() {
            let launches = entry.launches.load(Ordering::Relaxed);
            let missed = entry.missed.load(Ordering::Relaxed);
            match kernels.iter_mut().find(|k| k.mangled == entry.mangled) {
                Some(known) => {
                    known.launches += launches;
                    known.missed += missed;
                }
                None => kernels.push(KernelCount {
                    mangled: entry.mangled.clone(),
                    launches,
                    missed,
                }),
            }
        }
        Counts { kernels }
    }

    /// All launches of kernels that programs want.
    pub(crate) fn launched(&self) -> u64 {
        let entries = lock(&self.entries);
        let count =
            |e: &&Entry| e.launches.load(Ordering::Relaxed) + e.missed.load(Ordering::Relaxed);
        entries.iter().map(count).sum()
    }

    /// The control thread will sleep for a while: the next launch of a variant shall wake it, because rings fill fast.
    pub(crate) fn set_drowsy(&self) {
        self.drowsy.store(true, Ordering::Relaxed);
    }

    /// A variant was launched.
    #[inline]
    pub(crate) fn launch_happened(&self) {
        if self.drowsy.load(Ordering::Relaxed) && self.drowsy.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        // It fails if the counter is full: then the thread is awake anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Has the control thread send a message.
    pub(crate) fn send(&self, message: ToTool, fd: Option<OwnedFd>) {
        if self.is_on() {
            lock(&self.outbox).push(Outgoing { message, fd });
        }
    }

    /// Tells the user something, each text once.
    pub(crate) fn note(&self, level: NoteLevel, text: String) {
        let mut said = lock(&self.said);
        if said.len() < MOST_NOTES && said.insert(text.clone()) {
            drop(said);
            self.send(ToTool::Note { level, text }, None);
        }
    }

    pub(crate) fn take_outbox(&self) -> Vec<Outgoing> {
        std::mem::take(&mut lock(&self.outbox))
    }

    /// Has the control thread bring everything home and say good-bye, and waits for it at most `limit`.
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

    /// Before the context of the maps ends: waits for its kernels and brings everything home, on this thread, then runs
    /// `end`. The device side is gone if `ended` says so afterwards.
    pub(crate) fn context_ends<T>(
        &self,
        context: Context,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        let mut state = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let LiveState::Here(live) = &*state else {
            return end();
        };
        if live.context() != context {
            return end();
        }
        // SAFETY: a live context; it is popped again below.
        let pushed = unsafe { (self.driver.api.ctx_push)(context.0) } == 0;
        if pushed {
            // A context that is broken already has nothing to bring home.
            let _ = self.driver.relaxed(|| self.driver.synchronize());
            if let Some(pump) = &mut *lock(&self.pump) {
                pump::empty(&self.driver, live, pump);
            }
            let mut popped = std::ptr::null_mut();
            // SAFETY: `popped` is writable.
            unsafe { (self.driver.api.ctx_pop)(&mut popped) };
        }
        let result = end();
        if ended(&result) {
            self.table.clear();
            // Its handles died with the context: nothing in it may be called any more.
            std::mem::forget(std::mem::replace(&mut *state, LiveState::Gone));
            drop(state);
            self.note(
                NoteLevel::Info,
                "the context of the maps was destroyed; kernels in later contexts run without probes"
                    .into(),
            );
        }
        result
    }
}

fn hello(connection: &mut AgentConnection, device: Option<&DeviceInfo>) -> Result<(), WireError> {
    let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let mut argv: Vec<String> = arguments
        .split(|b| *b == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect();
    // The list ends with a NUL.
    argv.pop();
    let hello = Hello {
        protocol: PROTOCOL,
        pid: std::process::id(),
        exe: exe.display().to_string(),
        argv,
        device: device.map(|d| Device {
            name: d.name.clone(),
            capability: d.capability,
            sms: d.sms,
            driver_version: d.driver_version,
            soft: d.name == warpbpf_abi::names::SOFT_DEVICE,
        }),
    };
    connection.send(&ToTool::Hello(hello), &[], None, Duration::from_secs(1))
}

fn ready(session: &Session, live: &Live) -> Ready {
    let maps = live.layouts().into_iter().map(|map| warpbpf_wire::MapInfo {
        name: map.name,
        map_type: map.map_type,
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        layout: map.layout.into(),
        summed: map.sum_fields.into_iter().map(Into::into).collect(),
        bytes: map.snapshot_bytes,
    });
    let programs = session.programs().iter().map(|p| warpbpf_wire::Program {
        name: p.name().into(),
        section: p.section().into(),
        glob: p.spec.kernels.clone(),
    });
    Ready {
        maps: maps.collect(),
        programs: programs.collect(),
    }
}

/// Brings everything home at the end of the process.
pub(crate) fn at_exit(agent: &Agent) {
    if agent.is_on() {
        let _ = guard::quietly(|| agent.finish("exit", Duration::from_secs(60)));
    }
}
