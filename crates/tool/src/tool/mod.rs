//! The listening side: one object, any number of applications with it in their kernels.

mod choose;
mod client;
mod handshake;
mod handshakes;
mod shared;
mod turn;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use warpbpf_abi::choice::{Choice, ChoiceRequest};
use warpbpf_wire::{CacheRequest, Listener, MapOp, Options, ToolConnection, encode_ops};

use crate::control::{Server, TOOL_PATIENCE};
use crate::error::Error;
use crate::handles::process::Process;
use crate::heard::functions::{Assembler, AtStart, Function, Functions};
use crate::live::{AttachError, Change};
use crate::lock::lock;
use crate::machine::{self, Device, DeviceChoice};
use crate::object::Object;
use crate::start::{self, Before, Entry, Inject, Surroundings, Variables};
use crate::system::folders;
use crate::tool::choose::check_choose;
use crate::tool::client::{Found, Host, Patience, silent_tools};
use crate::tool::handshakes::Handshakes;
use crate::tool::shared::{ATTACHED, Beginning, Shared};

/// How long to wait for an agent's last words after its application has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Waits for agents, tells each what to do, and keeps what they say. Dropping it ends the
/// connections: from then on the applications run without probes.
#[derive(Debug)]
pub struct Tool {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Tool {
    /// Puts `object` into the kernels of every application that comes.
    ///
    /// # Errors
    /// [`Error::Choose`]: `options` choose launches of a program that there is not, or twice.
    /// [`Error::Wire`]: no socket can be made.
    pub fn attach(object: Object, options: Options) -> Result<Tool, Error> {
        let names = object.parsed().programs.iter().map(|p| p.name.as_str());
        check_choose(&options.choose, &names.collect::<Vec<_>>())?;
        Tool::new(Some(object), options)
    }

    /// Only lists the kernels of every application that comes.
    ///
    /// # Errors
    /// [`Error::Wire`]: no socket can be made.
    pub fn observe() -> Result<Tool, Error> {
        Tool::new(None, Options::default())
    }

    /// Changes no kernel, and has agents tell what the device does and when
    /// ([`Process::take_operations`]).
    ///
    /// # Errors
    /// [`Error::Wire`]: no socket can be made.
    pub fn timeline() -> Result<Tool, Error> {
        let options = Options {
            timeline: true,
            ..Options::default()
        };
        Tool::new(None, options)
    }

    /// As [`Tool::timeline`], and has them tell from where on the CPU each operation was asked for
    /// ([`Process::stacks`]).
    ///
    /// # Errors
    /// [`Error::Wire`]: no socket can be made.
    pub fn timeline_with_stacks() -> Result<Tool, Error> {
        let options = Options {
            timeline: true,
            stacks: true,
            ..Options::default()
        };
        Tool::new(None, options)
    }

    fn new(object: Option<Object>, options: Options) -> Result<Tool, Error> {
        let folder = folders::runtime_folder();
        folders::left_folders(&folder);
        let listener = Listener::bind(&folder)?;
        let shared = Arc::new(Shared {
            listener,
            object,
            options,
            presets: Mutex::default(),
            beginning: OnceLock::new(),
            numbers: AtomicU64::new(0),
            assembler: OnceLock::new(),
            cache: Mutex::default(),
            processes: Mutex::default(),
            server: Mutex::default(),
            command: Mutex::default(),
            handshakes: Handshakes::default(),
            patience: Mutex::new(TOOL_PATIENCE),
            deaf: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let in_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("warpbpf-tool".into())
            .spawn(move || {
                while !in_thread.ends.load(Ordering::Relaxed) {
                    in_thread.turn();
                }
                in_thread.farewell();
            });
        let thread = thread.map_err(|source| Error::Read {
            path: "a new thread".into(),
            source,
        })?;
        Ok(Tool {
            shared,
            thread: Some(thread),
        })
    }

    /// Operations on a map of applications that come from now on, before any of their kernels runs:
    /// updates of its first contents. What cannot be done makes the attach fail
    /// ([`Process::refused`]).
    pub fn preset(&self, map: &str, ops: &[MapOp<'_>]) {
        lock(&self.shared.presets).push((map.to_owned(), encode_ops(ops)));
    }

    /// As [`Tool::preset`], for contents that change: asked for each application when it comes,
    /// with the number that it will have ([`Process::number`]), for several at once if they come
    /// so. The first `begin` counts.
    pub fn preset_each(
        &self,
        begin: impl Fn(u64, &mut dyn FnMut(&str, &[MapOp<'_>])) + Send + Sync + 'static,
    ) {
        self.shared
            .beginning
            .get_or_init(|| Beginning(Box::new(begin)));
    }

    /// Has kernels of which there is only machine code get programs, too, at their entry and exits,
    /// in applications that come from now on. Once for each of them, `assemble` is told the device,
    /// and gives the functions that programs become there one by one: of each the text and the
    /// cubin that `ptxas` made of it, or why there is none. The application waits, at its first
    /// load, as long as they come; others that come meanwhile ask at once. Programs that a
    /// replacement brings do not get there: see [`Tool::functions`].
    pub fn splice(
        &self,
        assemble: impl Fn(&warpbpf_wire::Device, &mut dyn FnMut(Function)) + Send + Sync + 'static,
    ) {
        self.functions_at_start(None, assemble);
    }

    /// As [`Tool::splice`], at accesses of memory, barriers and calls, too, but Compute Sanitizer,
    /// whose library this is, calls the functions in applications that are started from now on: it
    /// must be there before their first context is.
    pub fn sanitize(
        &self,
        library: &Path,
        assemble: impl Fn(&warpbpf_wire::Device, &mut dyn FnMut(Function)) + Send + Sync + 'static,
    ) {
        self.functions_at_start(Some(library), assemble);
    }

    fn functions_at_start(
        &self,
        sanitizer: Option<&Path>,
        assemble: impl Fn(&warpbpf_wire::Device, &mut dyn FnMut(Function)) + Send + Sync + 'static,
    ) {
        let assemble = Arc::new(assemble);
        self.functions(sanitizer, move |device| {
            Arc::new(AtStart {
                assemble: Arc::clone(&assemble),
                device: device.clone(),
            })
        });
    }

    /// As [`Tool::splice`], or with a library of Compute Sanitizer as [`Tool::sanitize`], for
    /// programs that a replacement brings ([`Process::replace`]), too: `of` says, for each
    /// application that comes, who makes its functions, now and before each replacement. Of several
    /// who say where functions come from the first counts.
    pub fn functions(
        &self,
        sanitizer: Option<&Path>,
        of: impl Fn(&warpbpf_wire::Device) -> Arc<dyn Functions> + Send + Sync + 'static,
    ) {
        self.shared.assembler.get_or_init(|| Assembler {
            of: Box::new(of),
            sanitizer: sanitizer.map(Path::to_owned),
        });
    }

    /// What an application on such a device needs in its environment besides what
    /// [`start::environment`] says. The soft GPU has no Compute Sanitizer.
    pub fn more_variables(&self, device: &Device) -> Variables {
        let assembler = self.shared.assembler.get();
        let library = assembler.and_then(|assembler| assembler.sanitizer.as_ref());
        let library = library.filter(|_| !matches!(device, Device::Soft { .. }));
        let library = library.map(|path| (start::SANITIZER, path.clone().into_os_string()));
        library.into_iter().collect()
    }

    /// What is to become of compiled code in applications that come from now on. Else their
    /// environment decides.
    pub fn keep_code(&self, request: CacheRequest) {
        *lock(&self.shared.cache) = Some(request);
    }

    /// Lets other commands of this user (`warpbpf maps`) reach the maps of this tool's
    /// applications, and other tools put programs beside its own.
    ///
    /// # Errors
    /// [`Error::Wire`]: no socket can be made.
    pub fn serve(&self) -> Result<(), Error> {
        let server = Server::bind(self.shared.listener.path())?;
        *lock(&self.shared.server) = Some(server);
        Ok(())
    }

    /// The socket that agents connect to.
    pub fn socket(&self) -> &Path {
        self.shared.listener.path()
    }

    /// The object.
    pub fn object(&self) -> Option<&Object> {
        self.shared.object.as_ref()
    }

    /// The variables that an application which somebody else starts needs in its environment.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::NoGpu`].
    pub fn environment(&self, device: DeviceChoice, inject: Inject) -> Result<Variables, Error> {
        let device = machine::choose(device)?;
        let surroundings = Surroundings::look();
        let ranges = self.wants_ranges();
        let of = start::environment(&device, inject, self.socket(), &surroundings, ranges)?;
        let mut variables = of.0;
        variables.extend(self.more_variables(&device));
        Ok(variables)
    }

    /// The NVTX ranges of applications matter: to a timeline, or to which launches get probes, now
    /// or by a replacement.
    pub fn wants_ranges(&self) -> bool {
        let options = &self.shared.options;
        options.timeline || options.ranges || self.chooses_by_nvtx()
    }

    /// Which launches get probes depends on what applications say by NVTX: as the options have it,
    /// or a program's section.
    pub fn chooses_by_nvtx(&self) -> bool {
        let options = &self.shared.options;
        options.choice.needs_nvtx() || self.choices().any(|(_, choice)| choice.needs_nvtx())
    }

    /// Which launches each of the object's programs is in, by its name.
    pub fn choices(&self) -> impl Iterator<Item = (&str, Choice)> {
        let Options { choice, choose, .. } = &self.shared.options;
        let programs = self.object().map(|object| &object.parsed().programs);
        programs.into_iter().flatten().map(move |program| {
            let section = ChoiceRequest::of_section(&program.section);
            let own = choice.of_program(&program.name, &section, choose);
            (program.name.as_str(), own)
        })
    }

    /// Starts an application. Its standard streams are ours.
    ///
    /// # Errors
    /// [`Error::NoProgram`], [`Error::BadProgram`], [`Error::Missing`], [`Error::NoGpu`]; nothing
    /// was started then.
    pub fn start<'t>(&'t self, launch: &Launch) -> Result<App<'t>, Error> {
        let device = machine::choose(launch.device)?;
        self.start_on(launch, device, &Surroundings::look())
    }

    /// As [`Tool::start`], on a device that was chosen, with surroundings that were looked at.
    ///
    /// # Errors
    /// As [`Tool::start`].
    pub fn start_on<'t>(
        &'t self,
        launch: &Launch,
        device: Device,
        surroundings: &Surroundings,
    ) -> Result<App<'t>, Error> {
        *lock(&self.shared.command) = launch
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let (child, entry) = start::spawn(
            &launch.command,
            &device,
            launch.inject,
            self.socket(),
            surroundings,
            (self.wants_ranges(), self.more_variables(&device)),
            launch.before.clone(),
        )?;
        Ok(App {
            tool: self,
            child,
            entry,
            device,
        })
    }

    /// Puts the agent into a process that runs already, as if it had been started here: it is one
    /// of [`Tool::processes`] then. What it loads from now on gets programs as always; kernels that
    /// are loaded already, when they are launched and a thread of the agent has come to it.
    ///
    /// Where another tool has its programs in it, and lets others in ([`Tool::serve`], as `warpbpf
    /// run`, `attach` and `serve` do), these are put beside them, with maps of their own
    /// ([`Change::host`]). They go when this tool ends or the process is
    /// [detached](Process::detach).
    ///
    /// # Errors
    /// [`AttachError`]: why it cannot be, or the agent is not built.
    pub fn attach_to(&self, pid: u32) -> Result<Change, AttachError> {
        self.attach_while(pid, &|| true)
    }

    /// As [`Tool::attach_to`], as long as it `goes_on`, which is asked often: a process that is
    /// stuck is left then.
    ///
    /// # Errors
    /// As [`Tool::attach_to`].
    pub fn attach_while(
        &self,
        pid: u32,
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Change, AttachError> {
        let patience = Patience {
            limit: *lock(&self.shared.patience),
            goes_on,
        };
        let silent = match Host::of(pid, patience) {
            Found::Host(host) => return self.shared.join(*host, pid, patience),
            Found::Nobody(silent) => silent,
        };
        let agent = machine::agent()?;
        let agent = std::fs::canonicalize(&agent).unwrap_or(agent);
        let done = warpbpf_inject::attach(pid, &agent, goes_on);
        let done = done.map_err(|error| match silent.is_empty() {
            true => AttachError::of(pid, &error),
            false => AttachError::Process {
                pid,
                message: silent_tools(&error.to_string(), &silent, patience.limit),
            },
        })?;
        let change = Change::of(&done);
        let Some(socket) = done.socket else {
            return Ok(change);
        };
        let connection = ToolConnection::trusted(socket).map_err(Error::Wire)?;
        let number = self.shared.next_number();
        let process = self.shared.welcome(number, connection);
        // The agent has said why if it will not come to that soon.
        let end = Instant::now() + ATTACHED;
        let waits = || change.said.is_empty() && !process.is_attached() && goes_on();
        while waits() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(change)
    }

    /// How long another tool may say nothing that may have an application which [`Tool::attach_to`]
    /// is for: 5 s where nobody says.
    pub fn wait_for_tools(&self, patience: Duration) {
        *lock(&self.shared.patience) = patience;
    }

    /// Every process that ever came, in the order in which they were told what to do;
    /// [`Process::number`] is that in which they came.
    pub fn processes(&self) -> Vec<Process> {
        lock(&self.shared.processes).clone()
    }

    /// The first process whose maps exist.
    ///
    /// # Errors
    /// [`Error::NobodyCame`] within `timeout`, [`Error::Refused`].
    pub fn wait_ready(&self, timeout: Duration) -> Result<Process, Error> {
        let end = Instant::now() + timeout;
        loop {
            for process in self.processes() {
                if process.is_ready() {
                    return Ok(process);
                }
                if let Some(message) = process.refused() {
                    let pid = process.pid();
                    return Err(Error::Refused { pid, message });
                }
            }
            if Instant::now() >= end {
                return Err(Error::NobodyCame {
                    seconds: timeout.as_secs(),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Why applications that came could not be let in, which then ran without programs; `None`
    /// where all were.
    pub fn unheard(&self) -> Option<String> {
        lock(&self.shared.deaf).clone()
    }

    /// Waits until no agent is connected any more, at most `timeout`; false if one still is.
    pub fn wait_last_words(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let in_handshake = || self.shared.handshakes.are_there();
        while in_handshake() || self.processes().iter().any(Process::is_connected) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told already.
            let _ = thread.join();
        }
        self.shared.handshakes.join();
        for process in lock(&self.shared.processes).iter() {
            process.lock().connection = None;
        }
    }
}

/// An application to be started.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    command: Vec<OsString>,
    device: DeviceChoice,
    inject: Inject,
    before: Option<Before>,
}

impl Launch {
    /// A program, found as a shell does, and its arguments.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        Launch {
            command: command.into_iter().map(Into::into).collect(),
            ..Launch::default()
        }
    }

    /// Where its kernels run.
    pub fn device(self, device: DeviceChoice) -> Launch {
        Launch { device, ..self }
    }

    /// How the agent gets in.
    pub fn inject(self, inject: Inject) -> Launch {
        Launch { inject, ..self }
    }

    /// Has the new process do this before it becomes the application, with its number: to write
    /// that where somebody waits for it.
    ///
    /// # Safety
    /// It runs between `fork` and `exec` of a process with several threads: it may only do what a
    /// signal's handler may.
    pub unsafe fn before(self, what: impl Fn(u32) + Send + Sync + 'static) -> Launch {
        Launch {
            before: Some(Before(Arc::new(what))),
            ..self
        }
    }
}

/// A running application that was started here. Dropping it leaves it running.
#[derive(Debug)]
pub struct App<'t> {
    tool: &'t Tool,
    child: Child,
    entry: Entry,
    device: Device,
}

impl App<'_> {
    /// The child process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
    /// How the agent gets in.
    pub fn entry(&self) -> Entry {
        self.entry
    }
    /// Where its kernels run.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits until the maps of one of its processes exist.
    ///
    /// # Errors
    /// As [`Tool::wait_ready`]; at once when the application has ended without.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<Process, Error> {
        let end = Instant::now() + timeout;
        loop {
            let ended = !matches!(self.child.try_wait(), Ok(None));
            match self.tool.wait_ready(Duration::from_millis(5)) {
                Err(Error::NobodyCame { .. }) if !ended && Instant::now() < end => {}
                Err(Error::NobodyCame { .. }) => {
                    return Err(Error::NobodyCame {
                        seconds: timeout.as_secs(),
                    });
                }
                done => return done,
            }
        }
    }

    /// Waits until it has ended and its agents have said all that they know. Its exit status, as a
    /// shell shows it: 128 and the signal if one killed it.
    ///
    /// # Errors
    /// [`Error::Read`]: its status cannot be had.
    pub fn wait(&mut self) -> Result<i32, Error> {
        let status = self.child.wait().map_err(|source| Error::Read {
            path: "the application's exit status".into(),
            source,
        })?;
        // A child of the application may outlive it: its agent is given some grace, no more.
        self.tool.wait_last_words(LAST_WORDS);
        Ok(shell_status(status))
    }
}

/// As a shell shows it.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
