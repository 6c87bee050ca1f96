//! The way into a process that runs already, and the way out: a function that is called on a thread
//! of its own, by whoever loaded us (`warpbpf-inject`).
//!
//! Other threads run meanwhile, so nothing of the driver's code is changed from here: the changes
//! are prepared, and made from outside while all threads stand still. What was taken from the
//! driver is given back when none of them is in our code.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use warpbpf_driver::sys::Api;
use warpbpf_driver::{Driver, own_memory};
use warpbpf_wire::late::{CLOSED, CONTROL_VERSION, Control, Patch, operation, state};

use crate::contexts::drain_wait;
use crate::device::drain::{self, NotDrained};
use crate::hooks::hook_rows::{Hooks, Moment};
use crate::instrument::{modules, nvrtc, preloaded};
use crate::runtime::agent::{Agent, Mode, Tool};
use crate::runtime::published::{agent, publish};
use crate::startup::install::{claim, watch_the_end};
use crate::startup::retired::retire;
use crate::startup::start::ABOVE;
use crate::sys::descriptors::FileThread;
use crate::sys::guard::quietly;
use crate::sys::original::hooked_api;
use crate::sys::symbols::{Library, Symbols};
use crate::sys::thread;
use crate::uprobe::sites::{sites, timeline_of};

/// Why nothing is attached, or taken out. `Display` is what the tool tells its user.
#[derive(Debug, thiserror::Error)]
enum LateError {
    #[error("it is of another release than the tool")]
    OtherRelease,
    #[error("it does not know the operation {operation}")]
    Operation { operation: u32 },
    #[error("the CUDA driver is not loaded")]
    NoDriver,
    #[error("the CUDA driver is older than CUDA 12")]
    OldDriver,
    #[error(
        "a tool has its programs in it already, and these cannot be beside them: end that first, or `warpbpf detach`"
    )]
    OtherTool,
    #[error("it was started with an agent that waits for its tool")]
    Waits,
    /// The application has closed the socket.
    #[error("{CLOSED}")]
    Closed,
    #[error("its socket cannot be used: {0}")]
    Socket(Errno),
    /// What must be hooked cannot be.
    #[error("{reason}")]
    Obstacle { reason: String },
    #[error("the code could not be changed")]
    NotChanged,
    #[error("whoever was to change the code is gone")]
    CallerGone,
    #[error("no thread can be started: {0}")]
    NoThread(std::io::Error),
}

/// How long whoever called us may take for the changes; after that it is taken for dead.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether they are made.
const TICK: Duration = Duration::from_micros(200);
/// How long a replacement that is given up may take to end; it waits for kernels, which may never
/// do.
const BRIEFLY: Duration = Duration::from_secs(5);
/// How long data may take to come home: as long as kernels run.
const HOME: Duration = Duration::from_secs(60);

/// Attaches or detaches, as the control block says.
///
/// # Safety
/// `control` is a [`Control`] of the caller's, which stays until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpbpf_live(control: *mut Control) {
    // SAFETY: the caller's promise.
    let call = Call(control);
    let done = quietly(|| {
        // Nothing is printed in the application, not even by a panic.
        std::panic::set_hook(Box::new(|_| {}));
        call.run()
    });
    match done {
        Some(Ok(said)) => call.end(state::DONE, &said),
        Some(Err(error)) => call.end(state::REFUSED, &error.to_string()),
        None => call.end(state::REFUSED, "it failed internally"),
    }
}

/// The caller's side. The block is read and written by another process too.
struct Call(*mut Control);

impl Call {
    fn control(&self) -> &Control {
        // SAFETY: it lives as long as the call; what changes from outside is atomic.
        unsafe { &*self.0 }
    }

    fn run(&self) -> Result<String, LateError> {
        let control = self.control();
        // It waits here for whoever may be gone, and is not taken for one of the application's
        // then.
        let _ = rustix::thread::set_name(c"warpbpf-late");
        if control.version != CONTROL_VERSION {
            return Err(LateError::OtherRelease);
        }
        match control.operation {
            operation::ATTACH => self.attach(),
            operation::DETACH => self.detach(),
            operation => Err(LateError::Operation { operation }),
        }
    }

    fn end(&self, how: u32, text: &str) {
        // SAFETY: this thread is the only writer of the text until the state says that it is there.
        let to = unsafe { &mut (*self.0).text };
        let bytes = text.as_bytes();
        let count = bytes.len().min(to.len() - 1);
        to[..count].copy_from_slice(&bytes[..count]);
        to[count] = 0;
        self.control().state.store(how, Ordering::Release);
    }

    /// Has changes made; true if no thread was in our code at that moment.
    fn patch(&self, patches: &[Patch]) -> Result<bool, LateError> {
        // SAFETY: this thread is the only writer until the state says that they are there.
        unsafe {
            (*self.0).patches = patches.as_ptr() as u64;
            (*self.0).n_patches = patches.len() as u64;
        }
        if warpbpf_faults::strikes("late/patch") {
            return Err(LateError::NotChanged);
        }
        let word = &self.control().state;
        word.store(state::PREPARED, Ordering::Release);
        let end = Instant::now() + PATIENCE;
        loop {
            match word.load(Ordering::Acquire) {
                state::PATCHED => return Ok(true),
                state::PATCHED_BUSY => return Ok(false),
                state::NOT_PATCHED => return Err(LateError::NotChanged),
                _ if Instant::now() >= end || self.is_alone() => {
                    return Err(LateError::CallerGone);
                }
                _ => std::thread::sleep(TICK),
            }
        }
    }

    /// Whoever called has ended: nobody has the other end of its socket.
    fn is_alone(&self) -> bool {
        let socket = self.control().socket;
        if socket < 0 {
            return false;
        }
        // SAFETY: a descriptor that the caller made for us; one that the application has closed is
        // only not asked.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
        let at_once = Timespec::default();
        let polled = poll(&mut set, Some(&at_once));
        // What the application has under that number by now is not asked.
        polled.is_ok()
            && set[0].revents().contains(PollFlags::HUP)
            && socket_domain(socket) == Ok(AddressFamily::UNIX)
    }

    fn attach(&self) -> Result<String, LateError> {
        warpbpf_faults::bug("late/attach-panics");
        let library = Library::driver().ok_or(LateError::NoDriver)?;
        if let Some(there) = agent().filter(|there| there.is_on()) {
            return Err(match there.is_connected() {
                true => LateError::OtherTool,
                false => LateError::Waits,
            });
        }
        let symbols = Symbols::new(move |symbol| library.address(symbol));
        // SAFETY: a descriptor that the caller made for us.
        let socket = unsafe { BorrowedFd::borrow_raw(self.control().socket) };
        let started = warpbpf_faults::check("late/socket", || Errno::MFILE)
            .and_then(|()| FileThread::start(Some(socket)));
        let (files, socket) = started.map_err(|errno| match errno {
            Errno::BADF => LateError::Closed,
            _ => LateError::Socket(errno),
        })?;
        let tool = Tool::Socket(Mutex::new(socket));
        let done = self.attach_with(&symbols, tool, &files);
        if done.is_err() {
            files.close();
        }
        done
    }

    fn attach_with(
        &self,
        symbols: &Symbols,
        tool: Tool,
        files: &Arc<FileThread>,
    ) -> Result<String, LateError> {
        // The driver may still call us when it is initialised: one agent is enough.
        claim();
        let in_force = warpbpf_hook::in_force().clone();
        let agent = match !in_force.is_empty() {
            // A tool died and left them, maybe not all of them.
            true => {
                let agent = make(hooked_api(symbols), symbols, tool, files)?;
                let missing = |patch: &&Patch| reads(patch, &patch.before);
                let missing: Vec<Patch> = in_force.iter().filter(missing).copied().collect();
                if !missing.is_empty()
                    && let Err(error) = self.patch(&missing)
                {
                    agent.turn_off();
                    agent.hang_up();
                    return Err(error);
                }
                agent
            }
            false => {
                let hooks = Hooks::stage(symbols, Moment::InsideInit);
                if let Some(reason) = hooks.obstacle() {
                    return Err(LateError::Obstacle { reason });
                }
                let agent = make(hooks.api(symbols), symbols, tool, files)?;
                let patches = hooks.staged.patches();
                if let Err(error) = self.patch(&patches) {
                    agent.turn_off();
                    agent.hang_up();
                    // Whoever made the changes may have been killed in the midst of them. The next
                    // one makes the others, or takes them all out.
                    if patches.iter().any(|patch| reads(patch, &patch.after)) {
                        warpbpf_hook::in_force().extend(patches);
                    }
                    return Err(error);
                }
                warpbpf_hook::in_force().extend(patches);
                hooks.tell_unhooked(agent);
                agent
            }
        };
        publish(agent);
        watch_the_end();
        // The tool answers only when this call is over.
        thread::start_large("warpbpf-late", move || begin(agent)).map_err(LateError::NoThread)?;
        Ok(match agent.driver.device_count() {
            Ok(_) => String::new(),
            Err(_) => "the application has not initialised the CUDA driver yet".into(),
        })
    }

    fn detach(&self) -> Result<String, LateError> {
        let agent = agent();
        let until = Instant::now() + HOME;
        if let Some(agent) = agent.filter(|agent| agent.is_on()) {
            agent.table.close();
            agent.shut_gates();
            agent.finish("detached", HOME);
            agent.turn_off();
            agent.hang_up();
            agent.preloaded.wait_until_idle(HOME);
            agent.replacement.wait_until_idle(BRIEFLY);
            nvrtc::wait_until_idle(BRIEFLY);
        }
        // While captures that begin are still seen.
        let kernels = agent.map_or(Ok(()), |agent| {
            agent.wait_for_kernels(until.max(Instant::now() + BRIEFLY))
        });
        let in_force = warpbpf_hook::in_force().clone();
        let back: Vec<Patch> = in_force.iter().rev().map(|patch| patch.back()).collect();
        let quiet = self.patch(&back)?;
        warpbpf_hook::in_force().retain(|patch| !in_force.contains(patch));
        // Who was in a hook leaves it, and nobody comes any more.
        let quiet = quiet || self.patch(&[]).unwrap_or(false);
        nvrtc::taken_out();
        let Some(agent) = agent else {
            return Ok(String::new());
        };
        if agent.graphs.may_hold() {
            return Ok("graphs of the application hold instrumented kernels, which go on as they are; their memory is kept".into());
        }
        if !quiet {
            return Ok("a thread is in a call of the driver that began with probes; the memory of maps is kept".into());
        }
        if let Err(why) = kernels {
            return Ok(format!(
                "kernels with probes were not waited for: {why}; the memory of maps is kept"
            ));
        }
        agent.give_back();
        // Programs on the CPU and a timeline know it for good.
        if !sites().is_some_and(|sites| std::ptr::eq(sites.agent, agent)) {
            // No hook is in any more: all threads are looked at once again.
            let have_ended = || thread::with_an_agent() == 0;
            retire(agent, have_ended, || self.patch(&[]).unwrap_or(false));
        }
        Ok(String::new())
    }
}

/// These bytes stand where a change is made.
fn reads(patch: &Patch, bytes: &[u8]) -> bool {
    let length = patch.length as usize;
    let mut there = vec![0; length];
    own_memory::read(patch.at as usize, &mut there) && bytes.get(..length) == Some(&there[..])
}

fn make(
    api: Option<Api>,
    symbols: &Symbols,
    tool: Tool,
    files: &Arc<FileThread>,
) -> Result<&'static Agent, LateError> {
    let api = api.ok_or(LateError::OldDriver)?;
    let agent = Agent::leak(
        Driver::new(api),
        symbols.clone(),
        tool,
        Arc::clone(files),
        ABOVE,
    );
    agent.graphs.come_late();
    Ok(agent)
}

/// Asks the tool what it wants, if the driver can be asked for its devices by now; else the first
/// load does, as always.
fn begin(agent: &'static Agent) {
    if agent.driver.device_count().is_err() {
        return;
    }
    if let Mode::Attached(_) = agent.mode() {
        preloaded::serve(agent);
    }
}

impl Agent {
    /// Waits for what was launched so far, and for launches that are under way: none begins any
    /// more.
    pub(crate) fn wait_for_kernels(&self, until: Instant) -> Result<(), NotDrained> {
        while !self.no_launch_is_under_way() {
            if Instant::now() >= until {
                return Err(NotDrained::Running);
            }
            std::thread::sleep(TICK);
        }
        drain::all(drain_wait::wait_for(self, until, |_| true))
    }

    /// Gives the driver back what a session has there. No thread is in our code, no graph holds a
    /// variant, nothing of it will be launched any more, and what was has ended.
    pub(crate) fn give_back(&'static self) {
        let _background = self.work_in_background();
        for shard in self.context_registry.all() {
            let mut there = shard.state.write().unwrap_or_else(PoisonError::into_inner);
            let crate::device::context_registry::ContextState::Here(live) = &*there else {
                continue;
            };
            let context = shard.context.0 as usize;
            let give_back = || {
                if let Some(completion_event) = shard.set_completion_event(None) {
                    self.driver.forget(completion_event);
                }
                self.watchdog.give_timers_back(&self.driver, context);
                if let Some(calls) = live.calls() {
                    calls.pause().close();
                }
                let variants = self.kernel_registry.variants(context);
                for some in variants.chunks(modules::IN_A_SECTION) {
                    if !modules::unload_together(&self.driver, some) {
                        break;
                    }
                }
                // SAFETY: no kernel of the variants runs, or will, loaded as some may still be, and
                // the thread that answers calls has been told to end; the control thread has ended.
                unsafe { live.free() };
                if let Some(timeline) = timeline_of(self) {
                    timeline.give_back(self, shard.context);
                }
            };
            // Others' captures forbid what frees memory to threads that do not say so.
            self.driver
                .within(shard.context, || self.driver.relaxed(give_back));
            self.bound.give_back(context);
            *there = crate::device::context_registry::ContextState::Gone("the tool detached");
            // Memory that was shared with the tool: the thread that used it has ended, and programs
            // on the CPU are off.
            *shard.pump() = None;
        }
        self.images.clear();
    }
}
