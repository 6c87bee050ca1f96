//! `warpbpf attach`: a program inside the kernels of an application that somebody else started, and
//! out again.

use std::sync::atomic::AtomicBool;
use std::thread::Scope;
use std::time::{Duration, Instant};

use warpbpf_inject::GoesOn;
use warpbpf_tool::{Change, Process, Tool};

use crate::application::coming::{Coming, Ended};
use crate::application::tree::{Watch, Whom};
use crate::backend::choose::Moment;
use crate::collect::collector::Collector;
use crate::commands::run::{Attachment, Watched, show};
use crate::flags::{AttachFlags, DetachFlags, SessionFlags};
use crate::report::model::Report;
use crate::report::outlet::Outlet;
use crate::report::render;
use crate::term::error::CliError;
use crate::term::inherited;
use crate::term::output::{tell, tell_lines};
use crate::term::signals::Interrupted;
use crate::timeline::Timeline;

/// How long a message may take.
const TICK: Duration = Duration::from_millis(20);
/// How long the agent may take to bring everything home: as long as kernels run, and some.
const LAST_WORDS: Duration = Duration::from_secs(70);
/// Between two looks for processes that came later.
const LOOK: Duration = Duration::from_millis(500);
/// How long an agent may take that neither says nor copies anything.
const STUCK: Duration = Duration::from_secs(10);
/// How long last words are waited for in silence.
const SILENCE: Duration = Duration::from_secs(3);

/// Attaches, shows what comes, and detaches.
pub fn run(flags: &AttachFlags) -> Result<u8, CliError> {
    let session = &flags.session;
    // What makes no sense is said first.
    Whom::of(flags)?;
    inherited::raise_file_limit();
    let mut outlet = Outlet::open(&session.work.output)?;
    let timeline = Timeline::open(&session.request, &outlet)?;
    let attachment = Attachment::requested(&session.request, &session.work, Moment::Late)?;
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline,
        records: session.work.records(),
        interval: session.work.live(),
        reader: None,
    };
    let (mut report, status) = attend(flags, &attachment, &mut watched, &|| true)?;
    watched.end(&attachment.tool, &mut report);
    show(&session.work, &report, &mut outlet);
    Ok(status)
}

/// Attaches, watches until the user, the time that was given, or `goes_on` ends it, and detaches.
/// What came of it, and the exit status.
///
/// # Errors
/// The one process that was named cannot be attached to.
pub fn attend(
    flags: &AttachFlags,
    attachment: &Attachment,
    watched: &mut Watched<'_>,
    goes_on: &dyn Fn() -> bool,
) -> Result<(Report, u8), CliError> {
    let session = &flags.session;
    let whom = Whom::of(flags)?;
    let tool = &attachment.tool;
    session.work.choice.check_late(tool)?;
    tool.wait_for_tools(Duration::from_secs(flags.tool_timeout));
    if let (Some(linux), Whom::One(pid) | Whom::Tree(pid)) = (&attachment.linux, whom) {
        linux.tell_process(pid);
    }
    // From here on Ctrl-C must not leave programs behind.
    Interrupted::watch();
    let records = watched.records;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut targets = Targets::new(tool, whom, scope, &over);
        targets.begin()?;
        let mut collector = Collector::new(tool, records, attachment.linux.as_deref());
        watch(session, &mut collector, watched, &mut || {
            targets.go_on() && goes_on()
        });
        targets.settle();
        let_go(tool, &mut collector);
        watched.turn(&mut collector);
        targets.leave();
        let mut report = collector.report(command(&tool.processes()), None);
        let status = attachment.conclude(&mut report, session.work.strict, 0);
        report.notes.extend(targets.notes);
        Ok((report, status))
    })
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
    let began = Instant::now();
    let mut told = false;
    while collector.connected() && began.elapsed() < LAST_WORDS && !Interrupted::again() {
        collector.poll(TICK);
        for process in connected(tool) {
            process.give_up_if_silent(STUCK);
        }
        let silent = began.elapsed() > SILENCE;
        // Who is stopped says nothing, for as long as somebody likes.
        if silent && connected(tool).all(|process| is_stopped(process.pid())) {
            break;
        }
        if silent && !std::mem::replace(&mut told, true) {
            let names: Vec<String> = connected(tool).map(|p| p.pid().to_string()).collect();
            let names = names.join(", ");
            tell!(
                "warpbpf: waiting for the last words of process {names}, at most {} s; Ctrl-C ends that",
                LAST_WORDS.as_secs()
            );
        }
    }
    collector.poll(Duration::ZERO);
}

fn connected(tool: &Tool) -> impl Iterator<Item = Process> {
    tool.processes().into_iter().filter(Process::is_connected)
}

/// All of the process stands still, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let status = warpbpf_inject::text(warpbpf_inject::folder(pid).join("status"));
    let state = status
        .ok()
        .and_then(|s| warpbpf_inject::status_field(&s, "State"));
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

/// The processes that programs were put into. Each is attached to by a thread of its own: one that
/// is stuck holds up no other.
struct Targets<'s, 't> {
    tool: &'t Tool,
    whom: Whom,
    watch: Watch,
    scope: &'s Scope<'s, 't>,
    /// Those that are being attached to.
    coming: Coming<'s, 't, Change>,
    /// Numbers of those that were attached to.
    attached: Vec<u32>,
    /// For the report.
    notes: Vec<String>,
    next_look: Instant,
}

impl<'s, 't> Targets<'s, 't> {
    fn new(
        tool: &'t Tool,
        whom: Whom,
        scope: &'s Scope<'s, 't>,
        over: &'t AtomicBool,
    ) -> Targets<'s, 't> {
        Targets {
            scope,
            coming: Coming::new(scope, over),
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
            let done = self.tool.attach_while(pid, &|| !Interrupted::was());
            return self.came(pid, &done.map_err(other)?);
        }
        if let Some(root) = self.whom.root().filter(|root| !is_there(*root)) {
            return Err(CliError::Other(format!("there is no process {root}")));
        }
        self.look();
        if self.coming.is_empty() {
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
            match new {
                Ok(pid) => self.attach(pid),
                Err(reason) => self.failed(reason),
            }
        }
    }

    fn failed(&mut self, reason: String) {
        tell!("warpbpf: {reason}");
        self.notes.push(reason);
    }

    /// Begins to attach to one.
    fn attach(&mut self, pid: u32) {
        let tool = self.tool;
        let attach = move |goes_on: GoesOn<'_>| {
            let done = tool.attach_while(pid, goes_on);
            done.map_err(|error| error.to_string())
        };
        if let Err(reason) = self.coming.begin(pid, attach) {
            self.failed(reason);
        }
    }

    /// Takes in what became of those that were being attached to.
    fn take_in(&mut self, ended: Ended<Change>) {
        for (pid, result) in ended {
            let told = result.and_then(|change| {
                let came = self.came(pid, &change);
                came.map_err(|error| error.to_string())
            });
            if let Err(reason) = told {
                self.failed(reason);
            }
        }
    }

    /// Nobody else comes: those that are on their way are waited for briefly, as they are told.
    fn settle(&mut self) {
        let rest = self.coming.settle();
        self.take_in(rest);
    }

    fn came(&mut self, pid: u32, change: &Change) -> Result<(), CliError> {
        let note = told(pid, "attached to", change);
        tell!("warpbpf: {note}");
        if !change.said.is_empty() {
            tell!("warpbpf: {}", change.said);
        }
        self.notes.push(note);
        match change.host {
            // Its code is the first tool's affair.
            Some(_) => self.notes.push(change.said.clone()),
            None => self.attached.push(pid),
        }
        Ok(())
    }

    /// Looks for more from time to time. False when nothing is there and nothing can come.
    fn go_on(&mut self) -> bool {
        let ended = self.coming.take_in();
        self.take_in(ended);
        self.coming.slow().into_iter().for_each(tell_slow);
        if self.whom.grows() && Instant::now() >= self.next_look {
            self.look();
        }
        let connected = self.tool.processes().iter().any(Process::is_connected);
        match self.whom {
            Whom::One(_) => connected,
            Whom::Tree(root) => connected || !self.coming.is_empty() || is_there(root),
            Whom::User(_) | Whom::All => true,
        }
    }

    /// Puts the code of those that live back as it was.
    fn leave(&mut self) {
        // All at once, as each waits for its kernels.
        let begin = |pid| {
            self.scope
                .spawn(move || leave(pid, &|| !Interrupted::again()))
        };
        let all: Vec<_> = std::mem::take(&mut self.attached)
            .into_iter()
            .map(begin)
            .collect();
        for thread in all {
            // A panic of it was told already.
            self.notes.extend(thread.join().unwrap_or_default());
        }
    }
}

/// Puts the code of a process back as it was, if it lives, and says what was done.
pub fn leave(pid: u32, goes_on: GoesOn<'_>) -> Vec<String> {
    if !is_there(pid) {
        return Vec::new();
    }
    match warpbpf_tool::live::detach_while(pid, goes_on) {
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
    // What was begun goes on in the process; only who waits for it is interrupted.
    Interrupted::watch();
    let goes_on = || !Interrupted::was();
    let change = warpbpf_tool::live::detach_while(flags.pid, &goes_on).map_err(other)?;
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
            tell_lines(render::summary(&collector.processes()).trim_end());
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

/// Says that one is waited for, and no other for it.
pub fn tell_slow(pid: u32) {
    tell!(
        "warpbpf: process {pid} takes long to be attached to; nothing else waits for it, and Ctrl-C ends that"
    );
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
