//! `warpbpf attach`: a program inside the kernels of an application that somebody else started, and out again.

use std::time::{Duration, Instant};

use warpbpf::{AttachError, Change, Process, Tool};

use crate::backend::Moment;
use crate::collect::Collector;
use crate::commands::run::{Attachment, Watched, show};
use crate::error::CliError;
use crate::flags::{AttachFlags, DetachFlags, SessionFlags};
use crate::inherited;
use crate::output::tell;
use crate::render;
use crate::signals::Interrupted;
use crate::timeline::Timeline;
use crate::tree::{Watch, Whom};

/// How long a message may take.
const TICK: Duration = Duration::from_millis(20);
/// How long the agent may take to bring everything home: as long as kernels run, and some.
const LAST_WORDS: Duration = Duration::from_secs(70);
/// Between two looks for processes that came later.
const LOOK: Duration = Duration::from_millis(500);

/// Attaches, shows what comes, and detaches.
pub fn run(flags: &AttachFlags) -> Result<u8, CliError> {
    let session = &flags.session;
    let whom = Whom::of(flags)?;
    inherited::raise_file_limit();
    let mut outlet = session.work.output.open()?;
    let timeline = Timeline::open(&session.wish, &outlet)?;
    let attachment = Attachment::wished(&session.wish, &session.work, Moment::Late)?;
    let tool = &attachment.tool;
    session.work.choice.check_late(tool)?;
    if let (Some(linux), Whom::One(pid) | Whom::Tree(pid)) = (&attachment.linux, whom) {
        linux.tell_process(pid);
    }
    // From here on Ctrl-C must not leave programs behind.
    Interrupted::watch();
    let mut targets = Targets::new(tool, whom);
    targets.begin()?;
    let records = session.work.records();
    let mut collector = Collector::new(tool, records, attachment.linux.as_deref());
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline,
        records,
        interval: session.work.live(),
    };
    watch(session, &mut collector, &mut watched, &mut || {
        targets.go_on()
    });
    let_go(tool, &mut collector);
    watched.turn(&mut collector);
    targets.leave();
    let mut report = collector.report(command(&tool.processes()), None);
    let status = attachment.conclude(&mut report, session.work.strict, 0);
    report.notes.extend(targets.notes);
    watched.end(tool, &mut report);
    show(&session.work, &report, &mut outlet);
    Ok(status)
}

/// Shows what comes, until the user, the time that was given, or `goes_on` ends it.
pub fn watch(
    flags: &SessionFlags,
    collector: &mut Collector<'_>,
    watched: &mut Watched<'_>,
    goes_on: &mut dyn FnMut() -> bool,
) {
    let seconds = |seconds: f64| Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
    let end = flags.duration.map(seconds);
    follow(collector, watched, end, goes_on);
}

/// Ends programs in all processes, and hears what their agents say at the end.
pub fn let_go(tool: &Tool, collector: &mut Collector<'_>) {
    for process in tool.processes() {
        // It may have ended just now, or long ago.
        let _ = process.detach();
    }
    let patience = Instant::now() + LAST_WORDS;
    while collector.connected() && Instant::now() < patience {
        collector.poll(TICK);
    }
    collector.poll(Duration::ZERO);
}

/// The processes that programs were put into.
struct Targets<'t> {
    tool: &'t Tool,
    whom: Whom,
    watch: Watch,
    /// Numbers of those that were attached to.
    attached: Vec<u32>,
    /// For the report.
    notes: Vec<String>,
    next_look: Instant,
}

impl<'t> Targets<'t> {
    fn new(tool: &'t Tool, whom: Whom) -> Targets<'t> {
        Targets {
            tool,
            whom,
            watch: Watch::new(whom),
            attached: Vec::new(),
            notes: Vec::new(),
            next_look: Instant::now(),
        }
    }

    /// Attaches to what is there. One process that was named must be attached to.
    fn begin(&mut self) -> Result<(), CliError> {
        if let Whom::One(pid) = self.whom {
            return self.attach(pid).map_err(other);
        }
        if let Some(root) = self.whom.root().filter(|root| !is_there(*root)) {
            return Err(CliError::Other(format!("there is no process {root}")));
        }
        self.look();
        if self.attached.is_empty() {
            tell!(
                "warpbpf: nothing to attach to yet: waiting for processes that load the CUDA driver"
            );
        }
        Ok(())
    }

    /// Attaches to what is new.
    fn look(&mut self) {
        self.next_look = Instant::now() + LOOK;
        for new in self.watch.news() {
            let told = match new {
                Ok(pid) => self.attach(pid).map_err(|error| error.to_string()),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = told {
                tell!("warpbpf: {reason}");
                self.notes.push(reason);
            }
        }
    }

    fn attach(&mut self, pid: u32) -> Result<(), AttachError> {
        let change = self.tool.attach_to(pid)?;
        let note = told(pid, "attached to", &change);
        tell!("warpbpf: {note}");
        if !change.said.is_empty() {
            tell!("warpbpf: {}", change.said);
        }
        self.notes.push(note);
        match change.host {
            // Its code is the first tool's affair.
            Some(_) => self.notes.push(change.said),
            None => self.attached.push(pid),
        }
        Ok(())
    }

    /// Looks for more from time to time. False when nothing is there and nothing can come.
    fn go_on(&mut self) -> bool {
        if self.whom.grows() && Instant::now() >= self.next_look {
            self.look();
        }
        let connected = self.tool.processes().iter().any(Process::is_connected);
        match self.whom {
            Whom::One(_) => connected,
            Whom::Tree(root) => connected || is_there(root),
            Whom::User(_) | Whom::All => true,
        }
    }

    /// Puts the code of those that live back as it was.
    fn leave(&mut self) {
        for pid in std::mem::take(&mut self.attached) {
            self.notes.extend(leave(pid));
        }
    }
}

/// Puts the code of a process back as it was, if it lives, and says what was done.
pub fn leave(pid: u32) -> Vec<String> {
    if !is_there(pid) {
        return Vec::new();
    }
    match warpbpf::live::detach(pid) {
        Ok(change) => {
            let done = told(pid, "detached from", &change);
            let said = [done, change.said].into_iter();
            said.filter(|text| !text.is_empty()).collect()
        }
        Err(_) if !is_there(pid) => Vec::new(),
        Err(error) => vec![format!(
            "its code is not as it was before: {error}; `warpbpf detach -p {pid}` tries again"
        )],
    }
}

/// Takes programs out.
pub fn detach(flags: &DetachFlags) -> Result<u8, CliError> {
    let change = warpbpf::live::detach(flags.pid).map_err(other)?;
    tell!("warpbpf: {}", told(flags.pid, "detached from", &change));
    if !change.said.is_empty() {
        tell!("warpbpf: {}", change.said);
    }
    Ok(0)
}

/// Shows what comes, as long as `goes_on` says so, until it is interrupted or over.
pub fn follow(
    collector: &mut Collector<'_>,
    watched: &mut Watched<'_>,
    end: Option<Instant>,
    goes_on: &mut dyn FnMut() -> bool,
) {
    let mut next = watched.interval.map(|i| Instant::now() + i);
    loop {
        collector.poll(TICK);
        watched.turn(collector);
        let over = end.is_some_and(|end| Instant::now() >= end);
        if Interrupted::was() || over || !goes_on() {
            return;
        }
        if let (Some(at), Some(every)) = (next, watched.interval)
            && Instant::now() >= at
        {
            tell!("{}", render::summary(&collector.processes()).trim_end());
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

/// The process lives.
pub fn is_there(pid: u32) -> bool {
    warpbpf_inject::lives(pid)
}

/// What was done, in words.
pub fn told(pid: u32, what: &str, change: &Change) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!(
        "{what} process {pid} in {:.0} ms, no thread of it stood longer than {:.1} ms",
        ms(change.took),
        ms(change.pause)
    )
}
