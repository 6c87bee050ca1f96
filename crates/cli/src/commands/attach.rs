//! `warpbpf attach`: a program inside the kernels of an application that somebody else started, and out again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpbpf::{Change, Process};

use crate::collect::Collector;
use crate::commands::run::{Attachment, show};
use crate::error::CliError;
use crate::flags::{AttachFlags, DetachFlags};
use crate::model::{self, Report};
use crate::render;

/// How long a message may take.
const TICK: Duration = Duration::from_millis(20);
/// How long the agent may take to bring everything home: as long as kernels run, and some.
const LAST_WORDS: Duration = Duration::from_secs(70);

/// Attaches, shows what comes, and detaches.
pub fn run(flags: &AttachFlags) -> Result<u8, CliError> {
    let attachment = Attachment::bring(
        &flags.object,
        &flags.program,
        &flags.code,
        &flags.choice,
        flags.host_ops,
    )?;
    let tool = &attachment.tool;
    // From here on Ctrl-C must not leave programs behind.
    Interrupted::watch();
    let change = tool.attach_to(flags.pid).map_err(other)?;
    let mut notes = vec![told(flags.pid, "attached to", &change)];
    eprintln!("warpbpf: {}", notes[0]);
    if !change.said.is_empty() {
        eprintln!("warpbpf: {}", change.said);
    }
    let mut collector = Collector::new(tool, flags.events);
    let interval = flags.output.live(flags.interval);
    let end = flags
        .duration
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.max(0.0)));
    let left = follow(&mut collector, interval, end);
    if left {
        for process in tool.processes() {
            // It may have ended just now.
            let _ = process.detach();
        }
    }
    let patience = Instant::now() + LAST_WORDS;
    while collector.connected() && Instant::now() < patience {
        collector.poll(TICK);
    }
    collector.poll(Duration::ZERO);
    if left && is_there(flags.pid) {
        match warpbpf::live::detach(flags.pid) {
            Ok(change) => {
                notes.push(told(flags.pid, "detached from", &change));
                if !change.said.is_empty() {
                    notes.push(change.said);
                }
            }
            Err(_) if !is_there(flags.pid) => {}
            Err(error) => notes.push(format!(
                "its code is not as it was before: {error}; `warpbpf detach -p {}` tries again",
                flags.pid
            )),
        }
    }
    let mut report = Report {
        version: model::VERSION,
        command: command(&tool.processes()),
        status: None,
        programs: Vec::new(),
        processes: collector.processes(),
        notes: collector.notes(),
        remarks: collector.remarks(),
    };
    for (pid, message) in collector.refusals() {
        report.notes.insert(
            0,
            format!("nothing was instrumented in process {pid}: {message}"),
        );
    }
    attachment.conclude(&mut report);
    report.notes.extend(notes);
    show(&flags.output, &report, flags.rows, flags.per_device)?;
    Ok(0)
}

/// Takes programs out.
pub fn detach(flags: &DetachFlags) -> Result<u8, CliError> {
    let change = warpbpf::live::detach(flags.pid).map_err(other)?;
    eprintln!("warpbpf: {}", told(flags.pid, "detached from", &change));
    if !change.said.is_empty() {
        eprintln!("warpbpf: {}", change.said);
    }
    Ok(0)
}

/// Shows what comes. True if the application goes on without us from here, false if it, or somebody else, has ended it.
fn follow(collector: &mut Collector<'_>, interval: Option<Duration>, end: Option<Instant>) -> bool {
    let mut next = interval.map(|i| Instant::now() + i);
    loop {
        collector.poll(TICK);
        if interval.is_some() {
            for line in collector.news() {
                eprintln!("{line}");
            }
        }
        if Interrupted::was() || end.is_some_and(|end| Instant::now() >= end) {
            return true;
        }
        if !collector.connected() {
            return false;
        }
        if let (Some(at), Some(every)) = (next, interval)
            && Instant::now() >= at
        {
            eprint!("{}", render::summary(&collector.processes()));
            next = Some(Instant::now() + every);
        }
    }
}

fn other(error: impl std::fmt::Display) -> CliError {
    CliError::Other(error.to_string())
}

fn command(processes: &[Process]) -> Vec<String> {
    processes
        .first()
        .map(Process::arguments)
        .unwrap_or_default()
}

fn is_there(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/exe")).exists()
}

fn told(pid: u32, what: &str, change: &Change) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!(
        "{what} process {pid} in {:.0} ms, no thread of it stood longer than {:.1} ms",
        ms(change.took),
        ms(change.pause)
    )
}

/// Somebody wants this to end.
struct Interrupted;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_it(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

impl Interrupted {
    fn watch() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler only stores.
            unsafe { libc::signal(signal, note_it as *const () as libc::sighandler_t) };
        }
    }

    fn was() -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}
