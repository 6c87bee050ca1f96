//! `warpbpf run`: an application, unchanged, with a program inside its kernels.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_driver::DeviceInfo;
use warpbpf_session::section::Form as ProgramForm;
use warpbpf_tool::{Functions, Launch, Tool};

use crate::application::machine::{self, Device};
use crate::application::start::{Entry, Surroundings};
use crate::application::users::Users;
use crate::backend::assemble::{Callers, Maker};
use crate::backend::choose::{self, Moment};
use crate::collect::collector::{Collector, Reader};
use crate::flags::{Form, ObjectFlags, RequestFlags, RunFlags, TargetFlags, WorkFlags};
use crate::programs::linux::{Beside, ForLinux, Split};
use crate::programs::objects;
use crate::report::model::{self, Report};
use crate::report::news::Records;
use crate::report::nowhere::{self, NOTHING};
use crate::report::outlet::Outlet;
use crate::report::render;
use crate::term::error::{CliError, FAILED};
use crate::term::inherited;
use crate::term::output::{tell, tell_lines};
use crate::term::signals::{self, Signals};
use crate::timeline::Timeline;

/// How long a message or an agent's last words may take.
const TICK: Duration = Duration::from_millis(20);
/// The exit status of `--strict` where no launch had programs.
pub const NOTHING_INSTRUMENTED: u8 = 123;
/// How long to wait for agents after the application has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs the application; its exit status is ours.
pub fn run(flags: &RunFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let mut signals = Signals::begin();
    inherited::raise_file_limit();
    let mut outlet = Outlet::open(&flags.work.output)?;
    let timeline = Timeline::open(&flags.request, &outlet)?;
    let attachment = Attachment::requested(&flags.request, &flags.work, Moment::Start)?;
    let tool = &attachment.tool;
    let mut watched = Watched {
        outlet: &mut outlet,
        timeline,
        records: flags.work.records(),
        interval: flags.work.live(),
        reader: None,
    };
    let mut report = observe(
        &flags.target,
        surroundings,
        tool,
        attachment.linux.as_ref(),
        &mut watched,
        &mut signals,
    )?;
    let status = report.status.map_or(FAILED, |status| status as u8);
    let status = attachment.conclude(&mut report, flags.work.strict, status);
    watched.end(tool, &mut report);
    show(&flags.work, &report, &mut outlet);
    Ok(status)
}

/// Writes the report of a run.
pub fn show(flags: &WorkFlags, report: &Report, outlet: &mut Outlet) {
    outlet.write(report, &|report: &Report| match flags.per_device {
        true => render::report(&report.per_device(), flags.rows),
        false => render::report(report, flags.rows),
    });
}

impl WorkFlags {
    /// Time between live summaries, if there are any.
    pub fn live(&self) -> Option<Duration> {
        let text = self.output.form() == Form::Text;
        (self.interval > 0.0 && text && std::io::stderr().is_terminal())
            .then(|| Duration::from_secs_f64(self.interval))
    }

    /// What becomes of records.
    pub fn records(&self) -> Records {
        Records::requested(self.events, self.output.form())
    }
}

/// What is shown while something is watched, and what is kept.
pub struct Watched<'o> {
    /// Where it goes.
    pub outlet: &'o mut Outlet,
    /// What the device does.
    pub timeline: Option<Timeline>,
    /// What becomes of records.
    pub records: Records,
    /// Time between live summaries, if there are any.
    pub interval: Option<Duration>,
    /// Who takes in what comes, if it is not only shown.
    pub reader: Option<&'o mut dyn Reader>,
}

impl Watched<'_> {
    /// Writes the timeline, if one is asked for.
    pub fn end(&mut self, tool: &Tool, report: &mut Report) {
        if let Some(timeline) = self.timeline.take() {
            timeline.write(&tool.processes(), report);
        }
    }

    /// Shows what has come.
    pub fn turn(&mut self, collector: &mut Collector<'_>) {
        if let Some(timeline) = &mut self.timeline {
            timeline.turn(&collector.live());
        }
        if let Some(reader) = &mut self.reader {
            return reader.turn(collector);
        }
        if self.interval.is_some() {
            for news in collector.news() {
                tell!("{}", news.line());
            }
        } else if self.records == Records::HandedOn {
            self.outlet.news(&collector.news());
        }
    }
}

/// Why ranges are not known.
pub const NVTX_TAKEN: &str = "the application's NVTX ranges are not known: NVTX_INJECTION64_PATH names another tool, which gets them";

/// Programs that were proved, and the tool that puts them into applications.
pub struct Attachment {
    /// The tool.
    pub tool: Tool,
    session: Vec<warpbpf_session::PlannedProgram>,
    programs: Vec<model::Program>,
    /// What was chosen for kernels without PTX.
    machine_code: Option<String>,
    /// Programs that Linux runs.
    pub linux: Option<Arc<Beside>>,
    /// Those that it does not, because the user wants none of them.
    left_out: Vec<String>,
}

impl Attachment {
    /// Reads and proves.
    ///
    /// # Errors
    /// A file cannot be read, or its programs are refused.
    pub fn bring(
        object: &ObjectFlags,
        work: &WorkFlags,
        (timeline, stacks): (bool, bool),
        moment: Moment,
    ) -> Result<Attachment, CliError> {
        Attachment::of(Split::bring(object)?, work, (timeline, stacks), moment)
    }

    /// Proves what was read.
    ///
    /// # Errors
    /// Its programs are refused.
    pub fn of(
        split: Split,
        work: &WorkFlags,
        (timeline, stacks): (bool, bool),
        moment: Moment,
    ) -> Result<Attachment, CliError> {
        let WorkFlags {
            program,
            code,
            choice,
            ..
        } = work;
        let Split {
            loaded,
            linux: for_linux,
        } = split;
        // The agent proves everything again; here the user learns of a refusal before the
        // application is touched.
        let mut options = work.options();
        let (session, _) = warpbpf_session::plan::prove(loaded.object.clone(), &options)
            .map_err(|e| loaded.refused(crate::term::explain::refusal(&e)))?;
        choice.check_programs(&session)?;
        let (wanted, left_out) = match work.skip_linux {
            true => (None, for_linux),
            false => (for_linux, None),
        };
        let linux = wanted.map(|linux| Beside::load(&linux, &loaded, &session));
        let mut linux = linux.transpose()?;
        options.host_ops |= linux.as_ref().is_some_and(Beside::needs_host_ops);
        let chosen = choose::choose(code, &session, moment).map_err(CliError::Other)?;
        options.splice_first = chosen.splice_first;
        (options.timeline, options.stacks) = (timeline, stacks);
        let planned = options.clone();
        let object = warpbpf_tool::Object::from_parsed(
            &loaded.name,
            loaded.bytes.clone(),
            loaded.object.clone(),
        );
        let bytes = loaded.bytes.clone();
        let tool = Tool::attach(object, options)?;
        if let Some(ptxas) = chosen.ptxas {
            let (known, hang) = (Mutex::new(HashMap::new()), Arc::default());
            let (library, by_default) = (chosen.library, chosen.by_default);
            let callers = Callers {
                splice: library.is_none() || chosen.splice_first,
                sanitizer: library.is_some(),
            };
            tool.functions(library.as_deref(), move |device| {
                let device = DeviceInfo {
                    name: device.name.clone(),
                    capability: device.capability,
                    sms: device.cpus.max(device.sms),
                    driver_version: device.driver_version,
                };
                // It runs PTX alone.
                if by_default && device.name == warpbpf_abi::names::SOFT_DEVICE {
                    return Arc::new(Maker::none(&ptxas)) as Arc<dyn Functions>;
                }
                // All processes on devices of one kind begin with the same.
                let kind = (device.capability, device.sms);
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let maker = known.entry(kind).or_insert_with(|| {
                    Arc::new(Maker::new(
                        &ptxas, &hang, callers, &bytes, &planned, &device,
                    ))
                });
                Arc::clone(maker) as Arc<dyn Functions>
            });
        }
        if let Some(request) = code.keep.request() {
            tool.keep_code(request);
        }
        tool.serve()?;
        if let Some(linux) = &mut linux {
            linux.attach(&loaded)?;
        }
        let linux = linux.map(Arc::new);
        if let Some(linux) = &linux {
            linux.begin(&tool);
        }
        let left_out = left_out.iter().flat_map(ForLinux::programs);
        let left_out = left_out.map(|(name, section)| {
            format!("program `{name}` (`{section}`) does not run: `--skip-linux`")
        });
        let programs = session.iter().map(|planned| model::Program {
            name: planned.name().to_owned(),
            section: planned.section().to_owned(),
            cost: planned.verified.facts().cost,
            budget: super::verify::budget(planned, program),
            budget_chosen: program.budget.is_some(),
            modifies: planned.verified.facts().modifies,
        });
        Ok(Attachment {
            tool,
            programs: programs.chain(on_the_host(&loaded)?).collect(),
            session,
            machine_code: chosen.note,
            linux,
            left_out: left_out.collect(),
        })
    }

    /// As [`Attachment::bring`], or with a timeline alone.
    ///
    /// # Errors
    /// As there.
    pub fn requested(
        request: &RequestFlags,
        work: &WorkFlags,
        moment: Moment,
    ) -> Result<Attachment, CliError> {
        match (request.recorded(), request.objects.is_empty()) {
            ((true, stacks), true) => Attachment::without_programs(stacks),
            (what, _) => Attachment::bring(&request.object(), work, what, moment),
        }
    }

    /// A tool that changes no kernel and is told what the device does.
    ///
    /// # Errors
    /// No socket can be made.
    fn without_programs(stacks: bool) -> Result<Attachment, CliError> {
        Ok(Attachment {
            tool: match stacks {
                true => Tool::timeline_with_stacks()?,
                false => Tool::timeline()?,
            },
            session: Vec::new(),
            programs: Vec::new(),
            machine_code: None,
            linux: None,
            left_out: Vec::new(),
        })
    }

    /// Adds to a report what is known of the programs. The exit status, where that of the
    /// application is `status`: with `strict` that of [`NOTHING_INSTRUMENTED`] instead of 0, if no
    /// launch had programs.
    pub fn conclude(&self, report: &mut Report, strict: bool, status: u8) -> u8 {
        report.programs = self.programs.clone();
        report.notes.extend(self.machine_code.clone());
        report.notes.extend(self.left_out.clone());
        let of_linux = self.linux.as_ref().map(|linux| linux.notes());
        report.notes.extend(of_linux.into_iter().flatten());
        for program in &self.session {
            let warnings = program.verified.warnings().iter();
            report
                .notes
                .extend(warnings.map(|w| format!("program `{}`, {w}", program.name())));
        }
        let (own, probes): (Vec<_>, Vec<_>) =
            (self.session.iter()).partition(|p| p.spec.form == ProgramForm::Run);
        let globs: Vec<String> = probes.iter().map(|p| p.spec.kernels.clone()).collect();
        let choices = self.tool.choices();
        let choices: Vec<(&str, String)> = choices
            .filter(|(_, choice)| !choice.is_all())
            .map(|(program, choice)| (program, choice.to_string()))
            .collect();
        let nothing = nowhere::note_all(report, &globs, &choices, strict) && !globs.is_empty();
        report.notes.extend(own.iter().map(|program| {
            format!(
                "program `{}` is a kernel itself ({}) and in none of the application's: run it by `warpbpf launch`",
                program.name(),
                program.section()
            )
        }));
        match strict && nothing && status == 0 {
            true => NOTHING_INSTRUMENTED,
            false => status,
        }
    }
}

/// Programs on the CPU, which are not proved and may take as long as the interpreter lets them.
fn on_the_host(loaded: &objects::Loaded) -> Result<Vec<model::Program>, CliError> {
    let taken = warpbpf_session::cpu::take(&mut loaded.object.clone());
    let taken = taken.map_err(|error| loaded.refused(error))?;
    let programs = taken.into_iter().map(|host| model::Program {
        name: host.program.name,
        section: host.program.section,
        cost: 0,
        budget: warpbpf_session::cpu::FUEL,
        budget_chosen: false,
        modifies: false,
    });
    Ok(programs.collect())
}

/// Starts the application and collects until it has ended and its agents have said all.
///
/// # Errors
/// Only what happens before the application runs; afterwards problems become notes, and data is
/// never dropped.
pub fn observe(
    flags: &TargetFlags,
    surroundings: &Surroundings,
    tool: &Tool,
    linux: Option<&Arc<Beside>>,
    watched: &mut Watched<'_>,
    signals: &mut Signals,
) -> Result<Report, CliError> {
    let device = machine::choose(flags.device)?;
    machine::tell_of(&device, flags.device);
    let launch = Launch::new(&flags.command).inject(flags.inject.into());
    let (linux_too, inherited) = (linux.map(Arc::clone), signals.inherited);
    // SAFETY: it looks a variable up in what is there and stores to memory; nothing is allocated
    // and no lock taken. The rest is system calls.
    let launch = unsafe {
        launch.before(move |pid| {
            if let Some(linux) = &linux_too {
                linux.tell_process(pid);
            }
            inherited.give();
        })
    };
    signals.start();
    let mut app = tool.start_on(&launch, device, surroundings)?;
    signals::is_waited_for(app.child().id());
    let entry = app.entry();
    let mut collector = Collector::new(tool, watched.records, linux.map(|linux| &**linux));
    let mut users = Users::new();
    let status = follow(app.child(), &mut collector, watched, signals, &mut users);
    let device = app.device();
    let end = Instant::now() + LAST_WORDS;
    signals.forget();
    // A child of the application may outlive it: its agent is given the same grace, no more.
    while collector.connected() && Instant::now() < end && !signals.hurried() {
        collector.poll(TICK);
    }
    collector.poll(Duration::ZERO);
    watched.turn(&mut collector);
    let words = flags.command.iter();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let mut report = collector.report(words.collect(), status.map(shell_status));
    if let Some(status) = status
        && let Some(signal) = status.signal()
    {
        report
            .notes
            .push(format!("the application was killed by signal {signal}"));
    }
    if tool.wants_ranges() && surroundings.nvtx_taken {
        report.notes.push(NVTX_TAKEN.into());
    }
    if surroundings.another_warpbpf {
        report
            .notes
            .push("another warpbpf surrounds this one: it sees nothing of this application".into());
    }
    if !collector.any() {
        report
            .notes
            .push(nobody_came(flags, &entry, device, &users));
    } else if let Entry::Preload(why) = entry {
        report
            .notes
            .push(format!("the agent came in by LD_PRELOAD: {why}"));
    }
    Ok(report)
}

fn nobody_came(flags: &TargetFlags, entry: &Entry, device: &Device, users: &Users) -> String {
    let program = flags
        .command
        .first()
        .map(|w| w.to_string_lossy().into_owned())
        .unwrap_or_default();
    if let Some(reason) = users.reason(&program) {
        return format!("{NOTHING}: {reason}");
    }
    let mut note = format!("{NOTHING}: `{program}` loaded no CUDA code");
    if *entry == Entry::Env {
        note += ", or something in it took the injection slot (try `--inject preload`)";
    }
    if matches!(device, Device::Soft { .. }) {
        note += "; on the soft GPU a program needs the shared CUDA runtime (`nvcc -cudart shared`) or the driver API";
    }
    note
}

fn follow(
    child: &mut Child,
    collector: &mut Collector<'_>,
    watched: &mut Watched<'_>,
    signals: &mut Signals,
    users: &mut Users,
) -> Option<ExitStatus> {
    let mut next = watched.interval.map(|i| Instant::now() + i);
    loop {
        collector.poll(TICK);
        watched.turn(collector);
        if !collector.any() {
            users.look(child.id());
        }
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => {}
            Err(_) => return None,
        }
        // The application decides what becomes of it, and we live to show the data.
        for signal in signals.due() {
            signals::pass(child, signal);
        }
        signals.stop_with(child);
        if let (Some(at), Some(every)) = (next, watched.interval)
            && Instant::now() >= at
        {
            tell_lines(render::summary(&collector.processes()).trim_end());
            next = Some(Instant::now() + every);
        }
    }
}

/// As a shell says it.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|s| 128 + s))
        .unwrap_or(125)
}
