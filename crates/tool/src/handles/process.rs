//! An application that uses CUDA, seen from outside.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warpbpf_wire::{
    ContextInfo, Device, HostStacks, Kernel, Operations, Outcome, PRINTK, Program, Ranges, ToAgent,
    ToolConnection,
};

use crate::error::Error;
use crate::heard::client_views::OWN;
use crate::heard::events::{Batch, Event};
use crate::heard::note::Note;
use crate::heard::state::{Answer, State};
use crate::lock::lock;

/// How long an answer may take. The agent answers within two seconds, or it is busy with a very
/// large map.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest sleep between two looks at a ring that another process fills without a word.
const TICK: Duration = Duration::from_millis(1);

/// A process with an agent in it. A handle: all clones speak of the same process.
#[derive(Debug, Clone)]
pub struct Process(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    number: u64,
    state: Mutex<State>,
    /// The socket once more, to wait for it without the lock, as long as somebody is there.
    socket: Mutex<Option<Arc<OwnedFd>>>,
    came: Instant,
}

/// A kernel of the application, and its launches so far.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelInfo {
    /// What it is and what was done with it.
    pub kernel: Kernel,
    /// With probes.
    pub launches: u64,
    /// Of the original, although a program matches.
    pub uninstrumented: u64,
    /// Of the original, because [`Options::choice`](crate::Options::choice) left them out.
    pub skipped: u64,
    /// Those with probes by the number of the context that they were in ([`Process::contexts`]).
    pub contexts: Vec<(u32, u64)>,
    /// Of the original, because no program in force wanted it; others did before or do now.
    pub unwanted: u64,
    /// Those with probes by the set of programs that they ran ([`Process::generation`]), of the
    /// last few.
    pub generations: Vec<(u64, u64)>,
    /// Those with probes that each program was in, by its name; empty where that was all of them
    /// for all programs.
    pub programs: Vec<(String, u64)>,
    /// The same by the number of the context.
    pub context_programs: Vec<(u32, Vec<(String, u64)>)>,
}

impl Process {
    pub(crate) fn new(
        number: u64,
        connection: Option<ToolConnection>,
        object: Option<crate::object::Object>,
    ) -> Process {
        let socket = connection
            .as_ref()
            .and_then(|c| c.socket().ok()?.try_clone_to_owned().ok());
        Process(Arc::new(Shared {
            number,
            state: Mutex::new(State::new(connection, object)),
            socket: Mutex::new(socket.map(Arc::new)),
            came: Instant::now(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the agent said.
    pub(crate) fn pump(&self) {
        self.lock().pump();
    }

    /// It has connected so long ago, and has not said who it is. Agents do at once.
    pub(crate) fn is_silent_for(&self, time: Duration) -> bool {
        let state = self.lock();
        state.connection.is_some() && !state.has_spoken() && self.0.came.elapsed() > time
    }

    /// It is connected, has said who it is, and this process is at the other end.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        let state = self.lock();
        state.connection.is_some() && state.has_spoken() && state.peer == Some(pid)
    }

    /// Nothing is heard from it any more.
    pub(crate) fn hang_up(&self) {
        self.lock().connection = None;
        self.socket();
    }

    /// What it hears from, to be waited for; `None` once nobody is there.
    pub(crate) fn socket(&self) -> Option<Arc<OwnedFd>> {
        let connected = self.is_connected();
        let mut socket = lock(&self.0.socket);
        if !connected {
            *socket = None;
        }
        socket.clone()
    }

    /// Its number among all that came to the tool; no two have the same.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Its process id, as this process sees it; as it sees itself, where that cannot be known.
    pub fn pid(&self) -> u32 {
        self.lock().pid
    }
    /// Its process id as it sees itself, where that is another one: it is in a pid namespace of its
    /// own.
    pub fn inner_pid(&self) -> Option<u32> {
        self.lock().inner_pid
    }
    /// Path of its executable.
    pub fn exe(&self) -> String {
        self.lock().exe.clone()
    }
    /// Its command line.
    pub fn arguments(&self) -> Vec<String> {
        self.lock().argv.clone()
    }
    /// The device that it uses, once it said so.
    pub fn device(&self) -> Option<Device> {
        self.lock().device.clone()
    }
    /// The contexts that have maps of their own, in the order in which they came: one, unless it
    /// uses several GPUs, or several contexts one after the other. [`Map`] shows all as one, and
    /// [`Map::contexts`] each.
    pub fn contexts(&self) -> Vec<ContextInfo> {
        let state = self.lock();
        state.contexts.iter().map(|c| c.info.clone()).collect()
    }
    /// The object in its kernels; `None` if it is only observed. Once programs were replaced, its
    /// maps are all that there are and were, by number.
    pub fn object(&self) -> Option<crate::object::Object> {
        self.lock().object.clone()
    }
    /// Why nothing was instrumented in it, if so.
    pub fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }
    /// Nothing more is to be waited for after an attach: it sees launches, or never will.
    pub(crate) fn is_attached(&self) -> bool {
        let state = self.lock();
        state.attached || state.refused.is_some() || state.connection.is_none()
    }
    /// Its maps exist.
    pub fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }
    /// The agent can still be asked.
    pub fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }
    /// The agent said good-bye: the data is complete.
    pub fn is_complete(&self) -> bool {
        let mut state = self.lock();
        let missing = state.count_launches().unwrap_or_default();
        state.complete && !state.failed && (missing.launches, missing.late) == (0, 0)
    }
    /// Launches whose data are not here: those with probes that were counted after the last copy of
    /// its maps and rings had begun, and those that came when its last data were here. `None` where
    /// that is not known.
    pub fn missing_launches(&self) -> Option<u64> {
        let mut state = self.lock();
        match state.count_launches() {
            Some(missing) => Some(missing.launches.saturating_add(missing.late)),
            None => (state.complete && !state.failed).then_some(0),
        }
    }
    /// Kernels with probes ran while that copy was made, which has a part of their data. `None`
    /// where that is not known.
    pub fn kernels_ran_at_last_copy(&self) -> Option<bool> {
        let mut state = self.lock();
        match state.count_launches() {
            Some(missing) => missing.kernels_ran,
            None => (state.complete && !state.failed).then_some(false),
        }
    }
    /// What a person should know, in order.
    pub fn notes(&self) -> Vec<Note> {
        self.lock().notes.clone()
    }
    /// Operations of the device that were told since the last call
    /// ([`Options::timeline`](crate::Options)), and what there is to know of all so far, what
    /// graphs have in them among it.
    pub fn take_operations(&self) -> Operations {
        let told = &mut self.lock().operations;
        Operations {
            operations: std::mem::take(&mut told.operations),
            ..told.clone()
        }
    }
    /// NVTX ranges that were told since the last call ([`Options::timeline`](crate::Options)), with
    /// all names of threads and streams, and what is not known, so far.
    pub fn take_ranges(&self) -> Ranges {
        let told = &mut self.lock().ranges;
        Ranges {
            ranges: std::mem::take(&mut told.ranges),
            ..told.clone()
        }
    }
    /// All stacks on the CPU that operations were called from so far
    /// ([`Options::stacks`](crate::Options)).
    pub fn stacks(&self) -> HostStacks {
        self.lock().stacks.clone()
    }
    /// The programs in its kernels, in the object's order. Those of other tools are not among them.
    pub fn programs(&self) -> Vec<Program> {
        let programs = self.lock().programs.clone();
        let own = programs.into_iter().filter(|program| program.client == OWN);
        own.collect()
    }
    /// The process of the tool beside whose programs this one's are, where that was there first
    /// ([`Tool::attach_to`](crate::Tool::attach_to)).
    pub fn host(&self) -> Option<u32> {
        self.lock().host
    }
    /// How many sets of programs it has had: 1 from the start, one more at each replacement
    /// ([`Process::replace`]); 0 before its maps exist.
    pub fn generation(&self) -> u64 {
        self.lock().generation
    }
    /// Names of kernels by their number (`kernel_id` in programs).
    pub fn kernel_names(&self) -> Vec<String> {
        self.lock().kernel_names.clone()
    }
    /// Names of sites by their number (`site` in programs); that of 0 is empty.
    pub fn site_names(&self) -> Vec<String> {
        self.lock().site_names.clone()
    }
    /// Bound of the error of host time on the device, in ns, once it was measured.
    pub fn clock_error(&self) -> Option<u64> {
        let state = self.lock();
        let errors = state.contexts.iter().map(|c| c.shared.clock_error());
        errors.max().flatten()
    }

    /// Its kernels, in the order in which they were loaded. A kernel whose image was loaded again
    /// is there again.
    pub fn kernels(&self) -> Vec<KernelInfo> {
        let mut state = self.lock();
        state.count_launches();
        let state = &*state;
        let with_counts = |kernel: Kernel| {
            let counts = state.own_count(&kernel);
            KernelInfo {
                launches: counts.map_or(0, |c| c.launches),
                uninstrumented: counts.map_or(0, |c| c.uninstrumented),
                skipped: counts.map_or(0, |c| c.skipped),
                contexts: counts.map_or_else(Vec::new, |c| c.contexts.clone()),
                unwanted: counts.map_or(0, |c| c.unwanted),
                generations: counts.map_or_else(Vec::new, |c| c.generations.clone()),
                programs: counts.map_or_else(Vec::new, |c| c.programs.clone()),
                context_programs: counts.map_or_else(Vec::new, |c| c.context_programs.clone()),
                kernel,
            }
        };
        state.kernels_of(OWN).into_iter().map(with_counts).collect()
    }

    /// Brings the shared area up to date: maps, rings and counts.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::NoAnswer`].
    pub fn snapshot(&self) -> Result<(), Error> {
        match self.ask(|token| ToAgent::Snapshot { token }, &[], PATIENCE)? {
            Answer::Snapshotted => Ok(()),
            Answer::Waiting | Answer::MapOps { .. } | Answer::Changed(_) => Err(self.no_answer()),
        }
    }

    /// Operations on a map, in order, all in one message: one outcome each.
    pub(crate) fn map_ops(
        &self,
        map: u32,
        ops: &[u8],
        patience: Duration,
    ) -> Result<(Option<String>, Vec<u8>), Error> {
        match self.ask(|token| ToAgent::MapOps { token, map }, ops, patience)? {
            Answer::MapOps { error, blob } => Ok((error, blob)),
            Answer::Waiting | Answer::Snapshotted | Answer::Changed(_) => Err(self.no_answer()),
        }
    }

    /// As [`Process::map_ops`], with the outcomes read.
    pub(crate) fn operate(&self, map: u32, name: &str, ops: &[u8]) -> Result<Vec<Outcome>, Error> {
        let (error, blob) = self.map_ops(map, ops, PATIENCE)?;
        match error {
            Some(message) => Err(Error::Map {
                map: name.to_owned(),
                message,
            }),
            None => Ok(warpbpf_wire::decode_outcomes(&blob)?),
        }
    }

    pub(crate) fn no_answer(&self) -> Error {
        Error::NoAnswer {
            pid: self.pid(),
            seconds: PATIENCE.as_secs(),
        }
    }

    /// Sends a request, whose answer [`Process::take_answer`] gives.
    pub(crate) fn begin(
        &self,
        message: impl FnOnce(u64) -> ToAgent,
        blob: &[u8],
    ) -> Result<u64, Error> {
        let mut state = self.lock();
        state.pump();
        let token = state.next_token;
        state.next_token += 1;
        let pid = state.pid;
        if state.complete || !state.send(&message(token), blob)? {
            return Err(Error::Ended { pid });
        }
        state.answers.insert(token, Answer::Waiting);
        Ok(token)
    }

    /// The answer to a request; nothing while it may still come.
    pub(crate) fn take_answer(&self, token: u64) -> Option<Result<Answer, Error>> {
        let mut state = self.lock();
        state.pump();
        let waiting = matches!(state.answers.get(&token), Some(Answer::Waiting));
        if waiting && state.connection.is_some() && !state.complete {
            return None;
        }
        let ended = Error::Ended { pid: state.pid };
        match state.answers.remove(&token) {
            Some(Answer::Waiting) | None => Some(Err(ended)),
            Some(answer) => Some(Ok(answer)),
        }
    }

    /// Nobody waits for the answer to a request any more.
    pub(crate) fn forget_answer(&self, token: u64) {
        self.lock().answers.remove(&token);
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(
        &self,
        message: impl FnOnce(u64) -> ToAgent,
        blob: &[u8],
        patience: Duration,
    ) -> Result<Answer, Error> {
        let token = self.begin(message, blob)?;
        self.await_answer(token, patience)
    }

    /// Waits for the answer to a request.
    pub(crate) fn await_answer(&self, token: u64, patience: Duration) -> Result<Answer, Error> {
        let end = Instant::now() + patience;
        loop {
            if let Some(answer) = self.take_answer(token) {
                return answer;
            }
            if Instant::now() > end {
                let mut state = self.lock();
                state.answers.remove(&token);
                return Err(Error::NoAnswer {
                    pid: state.pid,
                    seconds: patience.as_secs(),
                });
            }
            // Another thread may take the message in meanwhile, so the wait is short.
            self.wait(TICK);
        }
    }

    /// Waits until the agent says something.
    fn wait(&self, at_most: Duration) {
        match lock(&self.0.socket).clone() {
            Some(socket) => {
                let timeout = Timespec {
                    tv_sec: at_most.as_secs() as i64,
                    tv_nsec: i64::from(at_most.subsec_nanos()),
                };
                // An interrupted wait is a short one.
                let _ = poll(&mut [PollFd::new(&*socket, PollFlags::IN)], Some(&timeout));
            }
            None => std::thread::sleep(at_most),
        }
    }

    /// Hands out every record of every ring, and every message, that is there; waits up to
    /// `timeout` for the first one. Returns how many there were. Records of one multiprocessor come
    /// in their order.
    ///
    /// `each` may use this process and its maps.
    pub fn poll(&self, timeout: Duration, each: impl FnMut(Event<'_>)) -> usize {
        self.poll_map(None, timeout, each)
    }

    /// As [`Process::poll`], for one ring; records of others wait for whoever asks for them.
    pub(crate) fn poll_map(
        &self,
        map: Option<u32>,
        timeout: Duration,
        mut each: impl FnMut(Event<'_>),
    ) -> usize {
        let end = Instant::now() + timeout;
        let mut batch = Batch::default();
        let mut count = 0;
        loop {
            let over = {
                let mut state = self.lock();
                state.pump();
                state.events(map, &mut batch);
                // What was written before the good-bye is there when the good-bye is.
                state.connection.is_none()
            };
            batch.iter().for_each(&mut each);
            count += batch.len();
            if batch.is_full() {
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if count > 0 || over || left.is_zero() {
                return count;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Messages of `bpf_printk` that did not reach this tool, wherever they were lost.
    pub fn messages_lost(&self) -> u64 {
        self.lock().messages_lost()
    }

    /// Messages of `bpf_printk` that are there; waits up to `timeout` for the first one.
    pub fn messages(&self, timeout: Duration) -> Vec<crate::heard::events::Message> {
        let mut messages = Vec::new();
        let Some(object) = self.object() else {
            return messages;
        };
        self.poll_map(Some(PRINTK), timeout, |event| {
            messages.extend(event.message(&object));
        });
        messages
    }

    /// All launches run the original from now on. Maps stay as they are, to be read.
    ///
    /// # Errors
    /// [`Error::Ended`]: nobody is there any more.
    pub fn detach(&self) -> Result<(), Error> {
        let mut state = self.lock();
        state.pump();
        let pid = state.pid;
        if !state.has_spoken() {
            // It has not come so far, and nothing is to be brought home: it finds nobody when it
            // does.
            state.connection = None;
            return Ok(());
        }
        match state.send(&ToAgent::Detach, &[])? {
            true => Ok(()),
            false => Err(Error::Ended { pid }),
        }
    }
}
