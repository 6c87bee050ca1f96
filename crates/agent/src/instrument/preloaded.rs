//! Preloaded kernels: those of images that were loaded before the agent came. The agent notices
//! such a kernel at its first launch, looks for its image in the files that are mapped, and
//! instruments it on a background thread, while the application goes on with the original.
//!
//! Nobody saw these loads. So which image it was is inferred from the kernel's name, and from what
//! the driver says of it. Where two images are possible, none is taken. There are slices only: a
//! clone would have to be in a module that is loaded already.

mod caches;
mod not_found;

use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbpf_driver::JitOptions;
use warpbpf_driver::sys::CUfunction;
use warpbpf_session::{ImageInfo, Session, inspect, names};
use warpbpf_wire::{Kernel, Method, NoteLevel, ToTool};

use crate::instrument::preloaded::not_found::NotFound;
use crate::instrument::{modules, watch};
use crate::kernels::entry::Entry;
use crate::runtime::agent::Agent;
use crate::sources::preloaded::files::Files;
use crate::sources::preloaded::jobs::{ADVICE, Job, Questions, are_same, registers};
use crate::sys::lock::lock;

/// How long it is tried to load the code of one kernel beside kernels that run.
const LOADS: Duration = Duration::from_secs(30);

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
        if watch::is_to_be_watched(agent, context) {
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
    let Some(questions) = Questions::new(&agent.symbols) else {
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
    watch::watch_those_there(agent);
    agent.send(ToTool::Attached, None);
    let mut files = None;
    while let Some(job) = agent.preloaded.next(|| agent.is_on()) {
        let _working = lock(&agent.preloaded.working);
        if !agent.is_on() {
            return;
        }
        // Its context may have ended.
        if agent.driver.set_current(job.context).is_err() {
            continue;
        }
        watch::was_there(agent, job.context);
        if job.only_watched {
            watch::watch_here(agent);
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
            Err(error) => {
                if agent.preloaded.may_tell(job.image, &job.name) {
                    refuse(agent, &job, &error.to_string());
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

/// Tells of the kernels that were launched and for which nothing has come of it yet, as the session
/// ends: libraries with thousands of kernels take seconds.
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
) -> Result<ImageInfo, NotFound> {
    let device = agent.device().ok_or(NotFound::Device)?;
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
            false => Err(NotFound::NoFile),
        };
    }
    let all = found.len();
    if found.len() > 1 {
        // Only machine code that is the driver's own says something of registers.
        let registers = registers(&agent.driver, job);
        found.retain(|info| has_registers(info, &job.name, registers));
    }
    match (found.len(), found.pop()) {
        (1, Some(info)) => Ok(info),
        _ => Err(NotFound::Several { images: all }),
    }
}

fn has_registers(info: &ImageInfo, name: &str, registers: Option<u32>) -> bool {
    let kernel = info.kernels.iter().find(|k| k.mangled == name);
    let said = kernel.and_then(|k| k.registers);
    said.is_none() || registers.is_none() || said == registers
}
