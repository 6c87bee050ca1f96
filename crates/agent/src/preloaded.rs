//! Preloaded kernels: those of images that were loaded before the agent came. The agent notices
//! such a kernel at its first launch, looks for its image in the files that are mapped, and
//! instruments it on a background thread, while the application goes on with the original.
//!
//! Nobody saw these loads. So which image it was is inferred from the kernel's name, and from what
//! the driver says of it. Where two images are possible, none is taken. There are slices only: a
//! clone would have to be in a module that is loaded already.

mod caches;
mod files;

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use warpbpf_driver::sys::{
    self, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult, FUNC_REGISTERS,
};
use warpbpf_driver::{Context, JitOptions};
use warpbpf_session::{ImageInfo, Session, inspect, names};
use warpbpf_wire::{Kernel, Method, NoteLevel, ToTool};

use crate::agent::Agent;
use crate::contexts;
use crate::entry::Entry;
use crate::late::text;
use crate::lock::lock;
use crate::modules::{self, Handle};
use crate::table::Table;
use files::Files;

/// How often it is looked whether the tool is still there.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks whether what is worked on is done.
const PAUSE: Duration = Duration::from_millis(2);
/// How long it is tried to load the code of one kernel beside kernels that run.
const LOADS: Duration = Duration::from_secs(30);
/// What to do about a kernel that cannot be had this way.
const ADVICE: &str = "start the application under `warpbpf run`";

/// See the module.
#[derive(Debug)]
pub(crate) struct Preloaded {
    /// Handles are asked for.
    open: AtomicBool,
    /// Kernels are looked for in compilers' caches, too.
    caches: AtomicBool,
    /// Handles that were asked for, whatever came of it.
    seen: Table<()>,
    driver: OnceLock<Questions>,
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// Held while one is worked on: its image must not be unloaded meanwhile.
    working: Mutex<()>,
    /// Kernels that the tool was told of, by image and name; true if that was as the session ended, before anything came of them.
    told: Mutex<HashMap<(Handle, String), bool>>,
}

impl Default for Preloaded {
    fn default() -> Preloaded {
        Preloaded {
            open: AtomicBool::new(false),
            caches: AtomicBool::new(false),
            seen: Table::new(),
            driver: OnceLock::new(),
            waiting: Mutex::default(),
            more: Condvar::new(),
            working: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// What is worked on.
    at: Option<Job>,
    /// Entries that only count, by image: with the handles that they stand for.
    counting: HashMap<Handle, Vec<usize>>,
}

/// A preloaded kernel that was launched.
#[derive(Debug, Clone)]
struct Job {
    image: Handle,
    function: usize,
    context: Context,
    name: String,
    /// No program wants it: its context alone is to have maps.
    only_watched: bool,
}

// SAFETY: handles, which are the driver's affair.
unsafe impl Send for Job {}

/// What the driver is asked about a handle; not every driver can be.
#[derive(Debug, Clone, Copy)]
struct Questions {
    func_name: Ask<*mut *const c_char>,
    func_module: Ask<*mut CUmodule>,
    kernel_name: Option<Ask<*mut *const c_char>>,
    kernel_library: Option<Ask<*mut CUlibrary>>,
    func_param: Option<AskParam>,
    kernel_param: Option<AskParam>,
}

/// Of a parameter by its index: where it is to say its offset, and its bytes.
type AskParam = unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> CUresult;
type Ask<T> = unsafe extern "C" fn(T, CUfunction) -> CUresult;

impl Questions {
    fn new(agent: &Agent) -> Option<Questions> {
        warpbpf_faults::check("late/questions", || ()).ok()?;
        // SAFETY: the driver's functions of these names have these signatures.
        unsafe {
            let name = |symbol| -> Option<Ask<*mut *const c_char>> {
                Some(std::mem::transmute::<usize, Ask<*mut *const c_char>>(
                    agent.symbol(symbol)?,
                ))
            };
            let param = |symbol| -> Option<AskParam> {
                Some(std::mem::transmute::<usize, AskParam>(
                    agent.symbol(symbol)?,
                ))
            };
            Some(Questions {
                func_name: name("cuFuncGetName")?,
                func_module: std::mem::transmute::<usize, Ask<*mut CUmodule>>(
                    agent.symbol("cuFuncGetModule")?,
                ),
                kernel_name: name("cuKernelGetName"),
                kernel_library: agent
                    .symbol("cuKernelGetLibrary")
                    .map(|address| std::mem::transmute::<usize, Ask<*mut CUlibrary>>(address)),
                func_param: param("cuFuncGetParamInfo"),
                kernel_param: param("cuKernelGetParamInfo"),
            })
        }
    }

    /// The kernel's parameters, each with its offset and bytes, if the driver says them (CUDA 12.4).
    fn params(&self, job: &Job) -> Option<Vec<(usize, usize)>> {
        let ask = match job.image {
            Handle::Module(_) => self.func_param?,
            Handle::Library(_) => self.kernel_param?,
        };
        let mut all = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: a handle that the application launches by, and writable locals.
            let code = unsafe {
                ask(
                    job.function as CUfunction,
                    all.len(),
                    &mut offset,
                    &mut bytes,
                )
            };
            match code {
                sys::SUCCESS => all.push((offset, bytes)),
                // There are no more.
                sys::INVALID_VALUE => return Some(all),
                _ => return None,
            }
        }
    }

    /// The kernel's name, and what it is of. A handle may be a function of a context, or a library's kernel.
    fn ask(&self, handle: CUfunction) -> Option<(String, Handle)> {
        warpbpf_faults::check("late/name", || ()).ok()?;
        if let (Some(of), Some(name)) = (self.kernel_library, self.kernel_name) {
            let mut library: CUlibrary = ptr::null_mut();
            // SAFETY: a handle that the application launches by, and writable locals. The driver knows handles of each kind.
            if unsafe { of(&mut library, handle as CUkernel) } == sys::SUCCESS && !library.is_null()
            {
                // SAFETY: as above.
                let name = text(|to| unsafe { name(to, handle) })?;
                return Some((name, Handle::Library(library as usize)));
            }
        }
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: as above.
        if unsafe { (self.func_module)(&mut module, handle) } != sys::SUCCESS {
            return None;
        }
        // SAFETY: as above.
        let name = text(|to| unsafe { (self.func_name)(to, handle) })?;
        Some((name, Handle::Module(module as usize)))
    }
}

impl Preloaded {
    /// This handle has not been asked for, and shall be.
    #[inline]
    pub(crate) fn is_new(&self, handle: usize) -> bool {
        self.open.load(Ordering::Relaxed) && self.seen.get(handle).is_none()
    }

    /// Other programs are in force: what was not wanted before may be now.
    pub(crate) fn ask_again(&self) {
        self.seen.clear();
    }

    /// What the user said of compilers' caches.
    pub(crate) fn look_into_caches(&self, yes: bool) {
        self.caches.store(yes, Ordering::Relaxed);
    }

    /// Nothing is asked any more.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
    }

    /// The tool is about to be told what came of a kernel. False if it was told as the session ended that nothing had.
    pub(crate) fn may_tell(&self, image: Handle, name: &str) -> bool {
        // Only those that nobody saw coming are told as waiting.
        if self.driver.get().is_none() {
            return true;
        }
        let mut told = lock(&self.told);
        !*told.entry((image, name.to_owned())).or_insert(false)
    }

    /// Nothing comes of a kernel any more. False if the tool was told of it already.
    fn gives_up(&self, image: Handle, name: &str) -> bool {
        let mut first = false;
        let mut told = lock(&self.told);
        told.entry((image, name.to_owned())).or_insert_with(|| {
            first = true;
            true
        });
        first
    }

    /// An image is about to be unloaded: nothing of it is worked on from here on.
    pub(crate) fn leaves(&self, agent: &Agent, image: Handle) {
        // Open or not any more: something may still be worked on.
        if self.driver.get().is_none() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        waiting.jobs.retain(|job| job.image != image);
        for handle in waiting.counting.remove(&image).unwrap_or_default() {
            agent.table.remove(handle);
        }
        let is_at = waiting.at.as_ref().is_some_and(|job| job.image == image);
        drop(waiting);
        if is_at {
            drop(lock(&self.working));
        }
        // The next image may have its handle.
        lock(&self.told).retain(|(of, _), _| *of != image);
    }

    /// Waits until nothing is worked on, at most so long; nothing is begun once the agent is off.
    pub(crate) fn wait_until_idle(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while let Err(TryLockError::WouldBlock) = self.working.try_lock() {
            if Instant::now() >= end {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A kernel waits whose image nobody looks for.
    #[cfg(test)]
    pub(crate) fn waits(&self, name: &str, context: Context) {
        lock(&self.waiting).jobs.push(Job {
            image: Handle::Module(7),
            function: 7,
            context,
            name: name.to_owned(),
            only_watched: false,
        });
    }

    fn next(&self, agent: &Agent) -> Option<Job> {
        let mut waiting = lock(&self.waiting);
        waiting.at = None;
        loop {
            if !agent.is_on() {
                return None;
            }
            if !waiting.jobs.is_empty() {
                let job = waiting.jobs.remove(0);
                waiting.at = Some(job.clone());
                return Some(job);
            }
            let woken = self.more.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A launch by the handle of a preloaded kernel: asks the driver what it is. If programs want it,
/// an entry counts its launches as uninstrumented until there is a variant to launch.
pub(crate) fn ask(agent: &Agent, function: CUfunction) -> Option<&'static Entry> {
    static SEEN: () = ();
    let preloaded = &agent.preloaded;
    if !preloaded.is_new(function as usize) {
        return None;
    }
    preloaded.seen.insert(function as usize, &SEEN);
    let (name, image) = preloaded.driver.get()?.ask(function)?;
    let session = agent.generations.now().session.get()?;
    let context = agent.driver.current()?;
    if session.matching(&name).is_empty() {
        if contexts::is_to_be_watched(agent, context) {
            let job = Job {
                image,
                function: function as usize,
                context,
                name,
                only_watched: true,
            };
            lock(&preloaded.waiting).jobs.push(job);
            preloaded.more.notify_one();
        }
        return None;
    }
    let entry = agent.kernel_registry.add(&name, agent.launches.get());
    // That it is not instrumented yet is no news.
    entry.told_context.store(true, Ordering::Relaxed);
    agent.table.insert(function as usize, entry);
    let mut waiting = lock(&preloaded.waiting);
    let counting = waiting.counting.entry(image).or_default();
    counting.push(function as usize);
    waiting.jobs.push(Job {
        image,
        function: function as usize,
        context,
        name,
        only_watched: false,
    });
    drop(waiting);
    preloaded.more.notify_one();
    Some(entry)
}

/// Instruments what is asked for until the tool goes away. On a thread of its own.
pub(crate) fn serve(agent: &'static Agent) {
    let Some(questions) = Questions::new(agent) else {
        agent.send(ToTool::Attached, None);
        agent.note(
            NoteLevel::Warning,
            "the driver is older than CUDA 12.3 and does not say what a kernel is called: only what is loaded from now on gets programs".into(),
        );
        return;
    };
    agent.preloaded.driver.get_or_init(|| questions);
    let _background = agent.work_in_background_for(LOADS);
    agent.preloaded.open.store(true, Ordering::Relaxed);
    contexts::watch_those_there(agent);
    agent.send(ToTool::Attached, None);
    let mut files = None;
    while let Some(job) = agent.preloaded.next(agent) {
        let _working = lock(&agent.preloaded.working);
        if !agent.is_on() {
            return;
        }
        // Its context may have ended.
        if agent.driver.set_current(job.context).is_err() {
            continue;
        }
        contexts::was_there(agent, job.context);
        if job.only_watched {
            contexts::watch_here(agent);
            continue;
        }
        if agent.images.has(job.image) {
            know(agent, &job);
            continue;
        }
        let Some(session) = agent.generations.now().session.get() else {
            return;
        };
        match find(agent, session, &mut files, &job) {
            Ok(info) => {
                let mut incoming = modules::prepare(agent, session, info);
                incoming.prepared.refuse_clones(ADVICE);
                incoming.text = None;
                incoming.late = true;
                modules::loaded(agent, incoming, JitOptions::default(), job.image);
                know(agent, &job);
            }
            Err(reason) => {
                if agent.preloaded.may_tell(job.image, &job.name) {
                    refuse(agent, &job, &reason);
                }
            }
        }
    }
}

/// Has launches by the job's handle found, now that its image is known.
fn know(agent: &'static Agent, job: &Job) {
    if let Ok(name) = CString::new(job.name.as_str()) {
        modules::named(agent, job.image, job.function as CUfunction, &name);
    }
    if let Some(entry) = agent.table.get(job.function) {
        entry.told_context.store(false, Ordering::Relaxed);
    }
    let mut waiting = lock(&agent.preloaded.waiting);
    if let Some(counting) = waiting.counting.get_mut(&job.image) {
        counting.retain(|handle| *handle != job.function);
    }
}

/// Tells of the kernels that were launched and for which nothing has come of it yet, as the session ends: libraries with thousands of kernels take seconds.
pub(crate) fn report_waiting(agent: &Agent) {
    let waiting = {
        let mut waiting = lock(&agent.preloaded.waiting);
        // It stays there: its image must not go while it is worked on.
        let at = waiting.at.clone();
        at.into_iter()
            .chain(waiting.jobs.drain(..))
            .collect::<Vec<Job>>()
    };
    // An image's kernels are told one by one, when their programs are made or refused.
    for job in waiting.into_iter().filter(|job| !job.only_watched) {
        let image = modules::own_handle(agent, job.image);
        if !agent.preloaded.gives_up(image, &job.name) {
            continue;
        }
        let reason = match agent.images.has(job.image) {
            true => "its programs were still being made when they went",
            false => {
                "its image was still being looked for among the files that are mapped when the programs went"
            }
        };
        refuse(agent, &job, reason);
    }
}

fn refuse(agent: &Agent, job: &Job, reason: &str) {
    modules::send_kernel(
        agent,
        Kernel {
            mangled: job.name.clone(),
            demangled: names::demangle(&job.name),
            source: "loaded before".into(),
            method: Method::refused(reason),
            ..Kernel::default()
        },
    );
}

/// The image that the kernel came from.
fn find(
    agent: &'static Agent,
    session: &Session,
    files: &mut Option<Files>,
    job: &Job,
) -> Result<ImageInfo, String> {
    let device = agent.device().ok_or("its device is not known")?;
    let capability = device.capability;
    let wanted = |name: &str| !session.matching(name).is_empty();
    let goes_on = || agent.is_on();
    let index = |known: Option<Files>| Files::index(known, capability, &wanted, &goes_on);
    let known = files.take();
    // Libraries are loaded all the time.
    let known = match known {
        Some(known) if known.has(&job.name) => known,
        other => index(other),
    };
    let known = files.insert(known);
    let mut found: Vec<ImageInfo> = Vec::new();
    for image in known.with(&job.name) {
        let Ok(mut info) = inspect(image.bytes(), capability) else {
            continue;
        };
        if found.iter().any(|other| are_same(other, &info)) {
            continue;
        }
        // It was inferred from names, which is not enough to run other machine code in its place.
        if info.ptx.is_none() {
            info.untouchable = Some(format!("it was loaded before; {ADVICE}"));
        }
        for kernel in &mut info.kernels {
            kernel.source = format!("{}, in `{}`", kernel.source, image.path());
        }
        found.push(info);
    }
    if found.is_empty() {
        return match agent.preloaded.caches.load(Ordering::Relaxed) {
            true => caches::find(agent, job, &device.name, capability),
            false => Err(format!(
                "it was loaded before, and no file that is mapped has it (was it made at run time?); {ADVICE}, or look for what Triton made by `--caches`"
            )),
        };
    }
    let all = found.len();
    if found.len() > 1 {
        // Only machine code that is the driver's own says something of registers.
        let registers = registers(agent, job);
        found.retain(|info| has_registers(info, &job.name, registers));
    }
    match (found.len(), found.pop()) {
        (1, Some(info)) => Ok(info),
        _ => Err(format!(
            "it was loaded before, and {all} images that are mapped have a kernel of this name, which differ; {ADVICE}"
        )),
    }
}

/// They cannot be told apart by what is known of them.
fn are_same(one: &ImageInfo, other: &ImageInfo) -> bool {
    let known = |info: &ImageInfo| info.kernels.iter().map(|k| k.registers).collect::<Vec<_>>();
    one.ptx == other.ptx && known(one) == known(other)
}

/// Registers of the kernel, as the driver says.
fn registers(agent: &Agent, job: &Job) -> Option<u32> {
    let mut value = 0;
    // SAFETY: a handle that the application launches by, and a writable local.
    let code = unsafe {
        (agent.driver.api.func_attribute)(&mut value, FUNC_REGISTERS, job.function as CUfunction)
    };
    (code == sys::SUCCESS).then_some(value as c_uint)
}

fn has_registers(info: &ImageInfo, name: &str, registers: Option<u32>) -> bool {
    let kernel = info.kernels.iter().find(|k| k.mangled == name);
    let said = kernel.and_then(|k| k.registers);
    said.is_none() || registers.is_none() || said == registers
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn no_text(_to: *mut *const c_char, _of: CUfunction) -> CUresult {
        sys::NOT_READY
    }

    unsafe extern "C" fn no_module(_to: *mut CUmodule, _of: CUfunction) -> CUresult {
        sys::NOT_READY
    }

    #[test]
    fn a_kernel_is_told_as_waiting_or_with_what_came_of_it() {
        let preloaded = Preloaded::default();
        let (one, other) = (Handle::Module(1), Handle::Library(1));
        assert!(preloaded.may_tell(one, "k"), "nobody came late");
        preloaded.driver.get_or_init(|| Questions {
            func_name: no_text,
            func_module: no_module,
            kernel_name: None,
            kernel_library: None,
            func_param: None,
            kernel_param: None,
        });
        assert!(preloaded.gives_up(one, "k") && !preloaded.gives_up(one, "k"));
        assert!(
            !preloaded.may_tell(one, "k"),
            "its programs are made too late"
        );
        assert!(preloaded.may_tell(one, "other"));
        // One of the same name in another image is another one.
        assert!(preloaded.may_tell(other, "k") && preloaded.may_tell(other, "k"));
        assert!(!preloaded.gives_up(other, "k"));
    }
}
