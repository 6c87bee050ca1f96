//! The agent of a process: what it knows, and how its parts find each other.
//!
//! It is off until the application loads its first image; then it says hello to the tool and does what it is told. It is
//! off again, for good, when the tool goes away, and in a forked child.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use warpbpf_driver::{Context, DeviceInfo, Driver};
use warpbpf_session::{Live, Placement, Session, SessionError};
use warpbpf_wire::{AgentConnection, NoteLevel, Place, SharedError, ToAgent, ToTool, WireError};

use crate::contexts::Retains;
use crate::graphs::Graphs;
use crate::greeting::{hello, ready};
use crate::launch::Entry;
use crate::memory::Memory;
use crate::modules::Images;
use crate::pump::{self, Pump};
use crate::quiet::Quiet;
use crate::roster::Roster;
use crate::symbols::Symbols;
use crate::table::{EmptyTable, Table};
use crate::{control, guard, host_ops, memory, modules};

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
    /// It will not come (again), for this reason.
    Gone(&'static str),
}

/// Why nothing can be done on the device side now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// No context is current.
    NoContext,
    /// The current context is not the one that the maps live in.
    Elsewhere,
    /// There is no device side any more, for this reason.
    Gone(&'static str),
}

/// Why the device side could not be made.
struct Unmade(String);

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
    /// This is a child that was forked while the agent was at work.
    forked: AtomicBool,
    /// From kernel handles to their replacement.
    pub(crate) table: Table<Entry>,
    spare: &'static EmptyTable<Entry>,
    pub(crate) graphs: Graphs,
    mode: OnceLock<Mode>,
    device: OnceLock<DeviceInfo>,
    pub(crate) live: RwLock<LiveState>,
    pub(crate) pump: Mutex<Option<Pump>>,
    pub(crate) images: Images,
    pub(crate) retains: Retains,
    /// The application's memory, for programs that read it.
    pub(crate) memory: Memory,
    /// Whether kernels with programs run.
    pub(crate) quiet: Quiet,
    /// Images that wait for a context.
    pending: AtomicIsize,
    pub(crate) roster: Roster,
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
            forked: AtomicBool::new(false),
            table: Table::new(),
            spare: Box::leak(Box::new(EmptyTable::new())),
            graphs: Graphs::default(),
            mode: OnceLock::new(),
            device: OnceLock::new(),
            live: RwLock::default(),
            pump: Mutex::default(),
            images: Images::default(),
            retains: Retains::default(),
            memory: Memory::default(),
            quiet: Quiet::default(),
            pending: AtomicIsize::new(0),
            roster: Roster::default(),
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
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Counts images that wait. May fall below zero by those that waited when everything was turned off.
    pub(crate) fn count_pending(&self, more: isize) {
        self.pending.fetch_add(more, Ordering::Relaxed);
    }

    /// Every launch runs the original from now on, and every other hook passes through.
    pub(crate) fn turn_off(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.table.close();
        self.quiet.forget();
        self.memory.forget_if_unused();
    }

    /// In a forked child: as [`Agent::turn_off`], but no lock is taken and only async-signal-safe calls are made.
    pub(crate) fn turn_off_in_child(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.on.store(false, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.table.replace_after_fork(self.spare);
        self.quiet.forget();
        self.graphs.forget_in_child();
        self.memory.forget_in_child();
        let socket = self.socket.swap(-1, Ordering::Relaxed);
        if socket >= 0 {
            // SAFETY: the thread that owns the descriptor does not exist in this process.
            unsafe { libc::close(socket) };
        }
    }

    /// What the tool wants. The first call asks it; that needs an initialised driver.
    pub(crate) fn mode(&'static self) -> &'static Mode {
        self.mode.get_or_init(|| {
            let mode = self.handshake().unwrap_or_else(|_| {
                // Nobody to tell it to: the tool is what could not be reached.
                self.turn_off();
                Mode::PassThrough
            });
            self.memory.decide(&mode);
            mode
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
        let mut presets: Vec<(String, Vec<u8>)> = Vec::new();
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
                        max_registers: options.max_registers,
                        out_of_line: options.out_of_line,
                        host_ops: options.host_ops,
                        live_sums: options.live_sums,
                        place: options.place.into_iter().map(placement).collect(),
                        call_limit: options.call_limit_us.map(Duration::from_micros),
                    };
                    let made = Session::new(&frame.blob, &options, device)
                        .map_err(|error| error.to_string())
                        .and_then(|session| host_ops::preset(session, &presets));
                    match made {
                        Ok(session) => Mode::Attached(Arc::new(session)),
                        Err(message) => {
                            self.refuse(&mut connection, message)?;
                            return Ok(Mode::PassThrough);
                        }
                    }
                }
                ToAgent::Detach => {
                    self.turn_off();
                    return Ok(Mode::PassThrough);
                }
                ToAgent::Preset { map } => {
                    presets.push((map, frame.blob));
                    continue;
                }
                ToAgent::Snapshot { token } => {
                    // There is nothing yet that could be out of date.
                    connection.queue(&ToTool::Snapshotted { token }, &[], None)?;
                    connection.flush()?;
                    continue;
                }
                ToAgent::MapOps { token, .. } => {
                    let error = Some("there are no maps before an object is attached".into());
                    connection.queue(&ToTool::MapOps { token, error }, &[], None)?;
                    connection.flush()?;
                    continue;
                }
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

    /// Runs `work` with the device side, made now if it does not exist yet.
    ///
    /// # Errors
    /// [`Absent`]: then `work` did not run.
    pub(crate) fn with_live<T>(
        &'static self,
        session: &Arc<Session>,
        work: impl FnOnce(&Live) -> T,
    ) -> Result<T, Absent> {
        let not_yet = matches!(
            &*self.live.read().unwrap_or_else(PoisonError::into_inner),
            LiveState::NotYet
        );
        if not_yet && self.context_is_usable() {
            self.make_live(session);
        }
        self.with_existing(work)
    }

    /// A context is current and alive. The runtime makes a primary context current before it is retained, and until then
    /// everything in it fails as if it were destroyed: the next occasion comes.
    fn context_is_usable(&self) -> bool {
        const CONTEXT_IS_DESTROYED: i32 = 709;
        if self.driver.current().is_none() {
            return false;
        }
        match self.driver.relaxed(|| self.driver.stream()) {
            Ok(stream) => {
                // A stream too many costs nothing but its memory.
                let _ = self.driver.destroy(stream);
                true
            }
            Err(error) => error.code != CONTEXT_IS_DESTROYED,
        }
    }

    /// As [`Agent::with_live`], but makes nothing.
    pub(crate) fn with_existing<T>(&self, work: impl FnOnce(&Live) -> T) -> Result<T, Absent> {
        let context = self.driver.current();
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        match (&*live, context) {
            (LiveState::Gone(why), _) => Err(Absent::Gone(why)),
            (LiveState::NotYet, _) | (_, None) => Err(Absent::NoContext),
            (LiveState::Here(live), Some(context)) if live.context() == context => Ok(work(live)),
            (LiveState::Here(_), Some(_)) => Err(Absent::Elsewhere),
        }
    }

    fn make_live(&'static self, session: &Arc<Session>) {
        // Nobody is to wait while files are read.
        let probes = crate::uprobe::prepare(session);
        let mut state = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, LiveState::NotYet) {
            return;
        }
        let ring = self.ring_bytes.load(Ordering::Relaxed) as u64;
        let made = Live::new_with(&self.driver, Arc::clone(session), |live| {
            Pump::new(live, ring).map_err(Unmade::from)
        });
        match made {
            Ok((live, (mut pump, fd))) => {
                self.send(ToTool::Ready(ready(session, &live)), Some(fd));
                let locked = self.driver.relaxed(|| pump.lock_pages(&self.driver, &live));
                if let Err(error) = locked {
                    self.note(
                        NoteLevel::Warning,
                        format!(
                            "events come home more slowly: their memory cannot be locked ({error})"
                        ),
                    );
                }
                *lock(&self.pump) = Some(pump);
                memory::publish_all(self, &live);
                if live.compactable().next().is_some() {
                    self.quiet.watch();
                }
                if let Some(calls) = live.calls()
                    && let Err(error) = crate::calls::start(Arc::clone(calls))
                {
                    self.note(
                        NoteLevel::Warning,
                        format!("nobody answers calls to maps on the host, they will time out: no thread could be started ({error})"),
                    );
                }
                *state = LiveState::Here(Box::new(live));
                crate::uprobe::install(self, session, probes);
            }
            Err(Unmade(message)) => {
                *state = LiveState::Gone("its maps could not be made");
                self.send(ToTool::Refused { message }, None);
                self.table.close();
            }
        }
    }

    /// The context of the maps, while it lives.
    pub(crate) fn live_context(&self) -> Option<Context> {
        match &*self.live.read().unwrap_or_else(PoisonError::into_inner) {
            LiveState::Here(live) => Some(live.context()),
            LiveState::NotYet | LiveState::Gone(_) => None,
        }
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

    /// Waits for the kernels in the maps' context, which is current, and brings everything home.
    pub(crate) fn bring_home(&self, live: &Live, pump: &mut Pump) {
        // A broken context has nothing more to give; what was copied before stays.
        let ended = self.driver.relaxed(|| self.driver.synchronize()).is_ok();
        let stuck = pump::empty(&self.driver, live, pump);
        if ended && stuck > 0 {
            self.note(
                NoteLevel::Warning,
                format!(
                    "{stuck} bytes of rings are lost: threads claimed room and ended before they wrote it, \
                     and what came behind it on their multiprocessors could not be read"
                ),
            );
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
        let state = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let LiveState::Here(live) = &*state else {
            return end();
        };
        if live.context() != context {
            return end();
        }
        self.driver.within(context, || {
            if let Some(pump) = &mut *lock(&self.pump) {
                self.bring_home(live, pump);
            }
        });
        let calls = live.calls().cloned();
        let pause = calls.as_ref().map(|calls| calls.pause());
        let result = end();
        if ended(&result) {
            if let Some(pause) = pause {
                pause.close();
            }
            self.bury(state);
        }
        result
    }

    /// Runs `end`, after which the context of the maps may be gone, without having waited for its kernels. If `ended` says so,
    /// nothing in it may be called any more; who answers calls to the host stands still until that is known.
    pub(crate) fn context_may_end<T>(
        &self,
        context: Context,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        let state = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let LiveState::Here(live) = &*state else {
            return end();
        };
        if live.context() != context {
            return end();
        }
        let pause = live.calls().map(|calls| calls.pause());
        let result = end();
        let gone = ended(&result);
        if let Some(pause) = pause.filter(|_| gone) {
            pause.close();
        }
        if gone {
            self.bury(state);
        }
        result
    }

    fn bury(&self, mut state: RwLockWriteGuard<'_, LiveState>) {
        self.table.clear();
        self.quiet.forget();
        self.graphs.forget_all();
        let gone = LiveState::Gone("the context of the maps was destroyed");
        // Its handles died with the context: not even its destructors may use them.
        std::mem::forget(std::mem::replace(&mut *state, gone));
        drop(state);
        self.memory.forget_all();
        modules::context_gone(self);
        self.note(
            NoteLevel::Info,
            "the context of the maps was destroyed; kernels in later contexts run without probes"
                .into(),
        );
    }
}

/// Nobody answers calls to the host any more.
fn stop_calls(live: &Live) {
    if let Some(calls) = live.calls() {
        calls.pause().close();
    }
}

fn placement((map, place): (String, Place)) -> (String, Placement) {
    let place = match place {
        Place::Device => Placement::Device,
        Place::Host => Placement::Host,
    };
    (map, place)
}

/// Brings everything home at the end of the process.
pub(crate) fn at_exit(agent: &Agent) {
    // A thread that does not exist in this process may hold any lock.
    if agent.forked.load(Ordering::Relaxed) {
        return;
    }
    if agent.is_on() {
        let _ = guard::quietly(|| agent.finish("exit", Duration::from_secs(60)));
    }
    // The driver takes its memory away next. Who holds the lock ends a context, and closes them itself.
    if let Ok(live) = agent.live.try_read()
        && let LiveState::Here(live) = &*live
    {
        stop_calls(live);
    }
}
