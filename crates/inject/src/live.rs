//! The choreography: a block of memory in the process, a thread of its own that loads the agent,
//! changes of code when the agent asks for them, and everything else as it was.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use warpbpf_wire::late::{
    CONTROL_ENTRY, CONTROL_TEXT, CONTROL_VERSION, Control, Patch, operation, state,
};

use crate::descriptors::Taken;
use crate::elf::Library;
use crate::error::InjectError;
use crate::gate::Gate;
use crate::goes_on::GoesOn;
use crate::machine;
use crate::memory::{Bytes as _, Memory};
use crate::place::Places;
use crate::process::{AGENT_MEMORY, Subject};
use crate::remote::{Borrowed, Purpose, borrow};
use crate::stop::{Stopped, change, thread_of, wait_for_end};

/// Bytes of each of the two pieces of memory.
const PAGE: u64 = 4096;
/// How long the agent may take. A detach waits for kernels.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long its thread may take to end when it has said its last word.
const LAST: Duration = Duration::from_secs(5);
/// Between two looks at what it says.
const TICK: Duration = Duration::from_micros(500);
/// From here on are numbers of ours.
const HIGH: u64 = 900;
/// More changes than there are functions of the driver.
const MOST_PATCHES: u64 = 1 << 14;

/// What was done to a process.
#[derive(Debug)]
pub struct Done {
    /// The tool's end of the connection with the agent, of an attach.
    pub socket: Option<OwnedFd>,
    /// From first to last.
    pub took: Duration,
    /// How long the thread stood that stood longest.
    pub pause: Duration,
    /// Places of its code that were changed.
    pub patches: usize,
    /// What the agent has to say.
    pub said: String,
}

/// Functions of libc that are needed, in the order in which they stand in [`Control`].
const FUNCTIONS: [(&str, usize); 5] = [
    ("dlopen", offset_of!(Control, dlopen)),
    ("dlsym", offset_of!(Control, dlsym)),
    ("dlerror", offset_of!(Control, dlerror)),
    ("pthread_self", offset_of!(Control, pthread_self)),
    ("pthread_detach", offset_of!(Control, pthread_detach)),
];

/// What lies in the process while this goes on.
#[derive(Debug, Default)]
struct Block {
    control: u64,
    code: u64,
    /// The agent's end of the connection, a descriptor of the process.
    theirs: Option<Taken>,
    /// Ours, which the process does not have any more.
    socket: Option<OwnedFd>,
    /// The agent's file, where it cannot see it.
    file: Option<Taken>,
}

impl Block {
    /// Number of the agent's end.
    fn number(&self) -> Option<i32> {
        self.theirs.as_ref().map(|taken| taken.number)
    }
}

struct Live<'g> {
    goes_on: GoesOn<'g>,
    subject: Subject,
    memory: Memory,
    places: Places,
    gate: Gate,
    create: u64,
    functions: Vec<(usize, u64)>,
    block: Block,
    pause: Duration,
}

/// Puts an agent into a process, or wakes the one that is there.
pub(crate) fn attach(pid: u32, agent: &Path, goes_on: GoesOn<'_>) -> Result<Done, InjectError> {
    let began = Instant::now();
    let subject = Subject::look(pid)?;
    if !subject.has_driver() {
        return Err(InjectError::NoDriver { pid });
    }
    load(subject, agent, false, began, goes_on)
}

/// Loads a library with the agent's function, whatever else is loaded; its file is brought along if
/// the process cannot see it, or is said not to.
pub(crate) fn load(
    subject: Subject,
    agent: &Path,
    unseen: bool,
    began: Instant,
    goes_on: GoesOn<'_>,
) -> Result<Done, InjectError> {
    let mut live = Live::new(subject, goes_on)?;
    let done = live.attach(agent, unseen);
    live.finish(done, began)
}

/// Has the agent of a process take its hooks out.
pub(crate) fn detach(pid: u32, goes_on: GoesOn<'_>) -> Result<Done, InjectError> {
    let began = Instant::now();
    let mut live = Live::new(Subject::look(pid)?, goes_on)?;
    let done = live.detach();
    live.finish(done, began)
}

impl<'g> Live<'g> {
    fn new(subject: Subject, goes_on: GoesOn<'g>) -> Result<Live<'g>, InjectError> {
        let pid = subject.pid;
        let memory = Memory::open(pid)?;
        let is_libc = |name: &str| name == "libc.so.6" || name.starts_with("libc-2.");
        let libc = subject
            .base_of(is_libc)
            .ok_or(InjectError::Static { pid })?;
        let beside = ["libpthread", "libdl"].map(|part| {
            subject.base_of(|name: &str| {
                name.strip_prefix(part)
                    .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-'))
            })
        });
        let libraries: Vec<Library<'_>> = std::iter::once(Some(libc))
            .chain(beside)
            .flatten()
            .filter_map(|base| Library::at(&memory, base))
            .collect();
        let find = |function: &'static str| -> Result<u64, InjectError> {
            for library in &libraries {
                if let Some(found) = library.function(function)? {
                    return Ok(found.start);
                }
            }
            Err(InjectError::NoFunction { pid, function })
        };
        let mut functions = Vec::new();
        for (name, offset) in FUNCTIONS {
            functions.push((offset, find(name)?));
        }
        let create = find("pthread_create")?;
        let gate = Gate::find(&subject, &memory, libc)?;
        let places = Places::new(&subject, &memory, libc)?;
        Ok(Live {
            goes_on,
            gate,
            create,
            functions,
            places,
            memory,
            subject,
            block: Block::default(),
            pause: Duration::ZERO,
        })
    }

    fn attach(&mut self, agent: &Path, unseen: bool) -> Result<Done, InjectError> {
        let pid = self.subject.pid;
        let image = fs::read(agent).map_err(|source| InjectError::Agent {
            path: agent.to_owned(),
            source,
        })?;
        let entry = self.entry()?;
        let by_path = entry != 0 || (self.subject.sees(agent) && !unseen);
        self.make_block(!by_path)?;
        let (Some(theirs), Some(socket)) = (self.block.number(), self.block.socket.take()) else {
            return Err(InjectError::Ended { pid });
        };
        let path = match &self.block.file {
            None => agent.to_string_lossy().into_owned(),
            Some(file) => {
                // The loader knows a file by its name, and descriptors are used again.
                file.fill(&image)?;
                format!("/proc/thread-self/./fd/{}", file.number)
            }
        };
        if path.len() >= CONTROL_TEXT {
            return Err(InjectError::LongPath {
                path: agent.to_owned(),
            });
        }
        self.write_block(operation::ATTACH, theirs, entry, &path)?;
        self.start()?;
        let (patches, said) = self.follow()?;
        Ok(Done {
            socket: Some(socket),
            took: Duration::ZERO,
            pause: Duration::ZERO,
            patches,
            said,
        })
    }

    fn detach(&mut self) -> Result<Done, InjectError> {
        let pid = self.subject.pid;
        let entry = self.entry()?;
        if entry == 0 {
            return Err(InjectError::NoAgent { pid });
        }
        self.make_block(false)?;
        // By our end the agent learns that we are gone.
        let (Some(theirs), Some(_socket)) = (self.block.number(), self.block.socket.take()) else {
            return Err(InjectError::Ended { pid });
        };
        self.write_block(operation::DETACH, theirs, entry, "")?;
        self.start()?;
        let (patches, said) = self.follow()?;
        Ok(Done {
            socket: None,
            took: Duration::ZERO,
            pause: Duration::ZERO,
            patches,
            said,
        })
    }

    /// The function of an agent that is there; 0 if there is none.
    fn entry(&self) -> Result<u64, InjectError> {
        let Some(base) = self.subject.agent() else {
            return Ok(0);
        };
        let library = Library::at(&self.memory, base);
        let found = library.map(|library| library.function(CONTROL_ENTRY));
        match found.transpose()?.flatten() {
            Some(function) => Ok(function.start),
            None => Err(InjectError::AgentRefuses {
                pid: self.subject.pid,
                reason: "it is of another release, which cannot be attached to".into(),
            }),
        }
    }

    fn borrow<T>(
        &mut self,
        purpose: Purpose,
        work: impl FnOnce(&mut Borrowed<'_>, &Memory, &mut Block) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let (subject, memory, block) = (&self.subject, &self.memory, &mut self.block);
        let (done, pause) = borrow(
            subject,
            memory,
            &self.places,
            self.gate,
            (purpose, self.goes_on),
            |thread| work(thread, memory, block),
        )?;
        self.pause = self.pause.max(pause);
        Ok(done)
    }

    /// Memory in the process, and what else it needs. What was made stands in the block, even after
    /// an error.
    fn make_block(&mut self, file: bool) -> Result<(), InjectError> {
        let pid = self.subject.pid;
        self.borrow(Purpose::Syscalls, |thread, memory, block| {
            let mut map = |rights: i32| {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let arguments = [0, PAGE, rights as u64, flags as u64, u64::MAX, 0];
                thread.syscall("mmap", libc::SYS_mmap, arguments)
            };
            block.control = map(libc::PROT_READ | libc::PROT_WRITE)?;
            block.code = map(libc::PROT_READ | libc::PROT_EXEC)?;
            // Until ours have numbers that nobody else's get, no other thread opens or closes
            // anything.
            let others = Stopped::all_but(pid, thread.id())?;
            if file {
                let mut name = AGENT_MEMORY.as_bytes().to_vec();
                name.push(0);
                memory.write(block.control, &name)?;
                let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
                let arguments = [block.control, flags, 0, 0, 0, 0];
                let made = thread.syscall("memfd_create", libc::SYS_memfd_create, arguments)?;
                block.file = Some(Taken::memory(pid, above(thread, made)?)?);
            }
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            let arguments = [libc::AF_UNIX as u64, kind as u64, 0, block.control, 0, 0];
            thread.syscall("socketpair", libc::SYS_socketpair, arguments)?;
            let theirs = above(thread, memory.half(block.control)?.into())?;
            let ours = above(thread, memory.half(block.control + 4)?.into())?;
            let taken = Taken::socket(pid, ours);
            close(thread, ours);
            block.theirs = Some(Taken::socket(pid, theirs)?);
            block.socket = Some(taken?.own);
            drop(others);
            Ok(())
        })
    }

    fn write_block(
        &self,
        operation: u32,
        socket: i32,
        entry: u64,
        path: &str,
    ) -> Result<(), InjectError> {
        let mut bytes = vec![0; size_of::<Control>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Control, version), &CONTROL_VERSION.to_le_bytes());
        put(offset_of!(Control, operation), &operation.to_le_bytes());
        put(offset_of!(Control, state), &state::BEGUN.to_le_bytes());
        put(offset_of!(Control, socket), &socket.to_le_bytes());
        put(offset_of!(Control, entry), &entry.to_le_bytes());
        put(offset_of!(Control, name), CONTROL_ENTRY.as_bytes());
        put(offset_of!(Control, path), path.as_bytes());
        for (offset, address) in &self.functions {
            put(*offset, &address.to_le_bytes());
        }
        self.memory.write(self.block.control, &bytes)?;
        self.memory.write(self.block.code, &machine::code())
    }

    /// Starts the thread.
    fn start(&mut self) -> Result<(), InjectError> {
        let (pid, create) = (self.subject.pid, self.create);
        let code = self.block.code;
        let answer = self.borrow(Purpose::Call, |thread, _, block| {
            let control = block.control;
            let handle = control + offset_of!(Control, handle) as u64;
            let arguments = [handle, 0, code + machine::START, control];
            thread.call(
                code + machine::CALL,
                code + machine::DONE,
                create,
                arguments,
            )
        })?;
        match answer as i32 {
            0 => Ok(()),
            error => Err(InjectError::Refused {
                pid,
                call: "pthread_create",
                seccomp: self.subject.seccomp,
                source: io::Error::from_raw_os_error(error),
            }),
        }
    }

    /// Does what the agent asks for until it has said its last word.
    fn follow(&mut self) -> Result<(usize, String), InjectError> {
        let pid = self.subject.pid;
        let at = |offset: usize| self.block.control + offset as u64;
        let text = || {
            self.memory
                .text(at(offset_of!(Control, text)), CONTROL_TEXT)
        };
        let end = Instant::now() + PATIENCE;
        let mut changed = Ok(0);
        let mut pause = Duration::ZERO;
        let said = loop {
            match self.memory.half(at(offset_of!(Control, state)))? {
                state::NOT_LOADED => {
                    return Err(InjectError::NotLoaded {
                        pid,
                        reason: text(),
                    });
                }
                state::REFUSED => {
                    // It refuses because what it asked for could not be done.
                    changed?;
                    return Err(InjectError::AgentRefuses {
                        pid,
                        reason: text(),
                    });
                }
                state::PREPARED => {
                    let done = self.patch();
                    let answer = match &done {
                        Ok((_, change)) if change.quiet => state::PATCHED,
                        Ok(_) => state::PATCHED_BUSY,
                        Err(_) => state::NOT_PATCHED,
                    };
                    self.memory
                        .write(at(offset_of!(Control, state)), &answer.to_le_bytes())?;
                    changed = done.map(|(count, change)| {
                        pause = pause.max(change.pause);
                        changed.unwrap_or_default().max(count)
                    });
                }
                state::DONE => break text(),
                _ => {}
            }
            if !(self.goes_on)() {
                return Err(InjectError::Interrupted { pid });
            }
            if Instant::now() >= end {
                return Err(InjectError::Silent {
                    pid,
                    seconds: PATIENCE.as_secs(),
                });
            }
            std::thread::sleep(TICK);
        };
        self.pause = self.pause.max(pause);
        Ok((changed?, said))
    }

    /// Makes the changes that the agent asks for.
    fn patch(&self) -> Result<(usize, crate::stop::Changed), InjectError> {
        let (pid, control) = (self.subject.pid, self.block.control);
        let word = |offset: usize| self.memory.word(control + offset as u64);
        let (at, count) = (
            word(offset_of!(Control, patches))?,
            word(offset_of!(Control, n_patches))?,
        );
        let mut bytes = vec![0; (count.min(MOST_PATCHES) as usize) * size_of::<Patch>()];
        self.memory.read(at, &mut bytes)?;
        let (all, _) = bytes.as_chunks();
        let patches: Vec<Patch> = all.iter().map(Patch::from_bytes).collect();
        let own = self
            .memory
            .half(control + offset_of!(Control, thread) as u64)?;
        let detaches = self
            .memory
            .half(control + offset_of!(Control, operation) as u64)?
            == operation::DETACH;
        let agent = self.subject.agent().filter(|_| detaches);
        let watched = agent.map_or_else(Vec::new, |base| self.subject.code_of(base));
        let own = thread_of(pid, own).unwrap_or(0);
        let what = (patches.as_slice(), watched.as_slice());
        let changed = change(pid, &self.memory, &self.places, what, own, self.goes_on)?;
        Ok((patches.len(), changed))
    }

    /// Takes out what is left of ours, whatever happened.
    fn finish(
        mut self,
        done: Result<Done, InjectError>,
        began: Instant,
    ) -> Result<Done, InjectError> {
        use InjectError::{Ended, Interrupted, Silent, Stuck};
        if let Err(Ended { .. } | Silent { .. } | Stuck { .. } | Interrupted { .. }) = &done {
            // Gone, or something of it may still run what is ours.
            return done;
        }
        let control = self.block.control;
        if control != 0 {
            let thread = self
                .memory
                .half(control + offset_of!(Control, thread) as u64);
            let ended = match thread {
                Ok(0) | Err(_) => true,
                Ok(own) => wait_for_end(self.subject.pid, own, LAST),
            };
            // What a thread may still run or read stays.
            if ended {
                let cleaned = self.clean();
                done.as_ref().ok().map(|_| cleaned).transpose()?;
            }
        }
        let pause = self.pause;
        done.map(|done| Done {
            took: began.elapsed(),
            pause,
            ..done
        })
    }

    fn clean(&mut self) -> Result<(), InjectError> {
        self.borrow(Purpose::Syscalls, |thread, _, block| {
            for taken in [block.theirs.take(), block.file.take()]
                .into_iter()
                .flatten()
                .filter(Taken::is_there)
            {
                close(thread, taken.number);
            }
            for page in [&mut block.code, &mut block.control] {
                if *page != 0 {
                    let arguments = [*page, PAGE, 0, 0, 0, 0];
                    thread.syscall("munmap", libc::SYS_munmap, arguments)?;
                    *page = 0;
                }
            }
            Ok(())
        })
    }
}

/// The same file by a number that the process's next files do not get; as it is where its limit
/// allows none.
fn above(thread: &mut Borrowed<'_>, low: u64) -> Result<i32, InjectError> {
    let arguments = [low, libc::F_DUPFD_CLOEXEC as u64, HIGH, 0, 0, 0];
    match thread.syscall("fcntl", libc::SYS_fcntl, arguments) {
        Ok(high) => {
            close(thread, low as i32);
            Ok(high as i32)
        }
        Err(InjectError::Refused { .. }) => Ok(low as i32),
        Err(error) => Err(error),
    }
}

/// Closes a descriptor of the process that was made by us. The process may have closed it already.
fn close(thread: &mut Borrowed<'_>, descriptor: i32) {
    let _ = thread.syscall("close", libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]);
}
