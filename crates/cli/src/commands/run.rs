//! `warpbpf run`: an application, unchanged, with a program inside its kernels.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpbpf::{Functions, Launch, Options, Tool};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::NO_SITE;
use warpbpf_session::section::Form;

use crate::assemble::{Callers, Maker};
use crate::backend::{self, Moment};
use crate::code::Occupancy;
use crate::collect::Collector;
use crate::error::CliError;
use crate::flags::{ObjectFlags, OutputFlags, RunFlags, TargetFlags, WishFlags, WorkFlags};
use crate::linux::{Beside, ForLinux, Split};
use crate::machine::{self, Device};
use crate::model::{self, Report};
use crate::objects;
use crate::output::say;
use crate::render;
use crate::target::{Entry, Surroundings};
use crate::timeline;

/// How long a message or an agent's last words may take.
const TICK: Duration = Duration::from_millis(20);
/// How long to wait for agents after the application has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs the application; its exit status is ours.
pub fn run(flags: &RunFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let attachment = Attachment::wished(&flags.wish, &flags.work, Moment::Start)?;
    let tool = &attachment.tool;
    let live = flags.work.live();
    let mut report = observe(
        &flags.target,
        surroundings,
        tool,
        attachment.linux.as_ref(),
        (flags.work.events, live),
    )?;
    attachment.conclude(&mut report);
    attachment.write_timeline(&flags.wish, &mut report)?;
    show(&flags.work, &report)?;
    Ok(report.status.unwrap_or(125) as u8)
}

/// Writes the report of a run.
pub fn show(flags: &WorkFlags, report: &Report) -> Result<(), CliError> {
    let shown = |report: &Report, rows| match flags.per_device {
        true => render::report(&report.per_device(), rows),
        false => render::report(report, rows),
    };
    write(&flags.output, report, flags.rows, &shown)
}

impl WorkFlags {
    /// Time between live summaries, if there are any.
    pub fn live(&self) -> Option<Duration> {
        (self.interval > 0.0 && !self.output.json && std::io::stderr().is_terminal())
            .then(|| Duration::from_secs_f64(self.interval))
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
        let WorkFlags {
            program,
            code,
            choice,
            host_ops,
            ..
        } = work;
        let host_ops = *host_ops;
        let Split {
            loaded,
            linux: for_linux,
        } = Split::bring(object)?;
        // The agent proves everything again; here the user learns of a refusal before the application is touched.
        let proving = warpbpf_session::Options {
            gate: code.gate,
            slots: code.slots,
            ..program.options()
        };
        let (session, _) = warpbpf_session::plan::prove(loaded.object.clone(), &proving)
            .map_err(|e| loaded.refused(crate::explain::refusal(&e)))?;
        choice.check_programs(&session)?;
        let (wanted, left_out) = match work.skip_linux {
            true => (None, for_linux),
            false => (for_linux, None),
        };
        let linux = wanted.map(|linux| Beside::load(&linux, &loaded, &session));
        let mut linux = linux.transpose()?;
        let host_ops = host_ops || linux.as_ref().is_some_and(Beside::needs_host_ops);
        let chosen = backend::choose(code, &session, moment).map_err(CliError::Other)?;
        let options = Options {
            allow_modify: program.allow_modify,
            budget: program.budget,
            bound_loops: program.bound_loops,
            threads: program.threads,
            ring_bytes: None,
            max_registers: code.max_registers,
            out_of_line: code.out_of_line,
            host_ops,
            live_sums: code.live_sums,
            gate: code.gate,
            slots: code.slots,
            place: program.place.clone(),
            call_limit_us: Some(program.call_limit * 1000),
            choice: choice.choice(),
            choose: choice.choose.clone(),
            ranges: choice.ranges,
            max_overhead_ppm: choice.max_overhead,
            max_device_memory: choice.max_device_memory,
            timeline,
            stacks,
            occupancy_instrumented: code.occupancy == Occupancy::Instrumented,
            splice: false,
            splice_first: chosen.splice_first,
            caches: code.caches,
            splice_variables: code.splice_variables,
            splice_memory: code.splice_memory,
        };
        let planned = warpbpf_session::Options {
            max_registers: code.max_registers,
            out_of_line: code.out_of_line,
            host_ops,
            live_sums: code.live_sums,
            timeline,
            splice_memory: code.splice_memory,
            choice: choice.choice(),
            choose: choice.choose.clone(),
            ..program.options()
        };
        let object =
            warpbpf::Object::from_parsed(&loaded.name, loaded.bytes.clone(), loaded.object.clone());
        let bytes = loaded.bytes.clone();
        let tool = Tool::attach(object, options)?;
        if let Some(ptxas) = chosen.ptxas {
            let (known, hang) = (Mutex::new(HashMap::new()), Arc::default());
            let library = chosen.library;
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
        if let Some(wish) = code.keep.wish() {
            tool.keep_code(wish);
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
    pub fn wished(
        wish: &WishFlags,
        work: &WorkFlags,
        moment: Moment,
    ) -> Result<Attachment, CliError> {
        match (&wish.timeline, wish.objects.is_empty()) {
            (Some(_), true) => Attachment::without_programs(wish.stacks),
            (timeline, _) => {
                let what = (timeline.is_some(), wish.stacks);
                Attachment::bring(&wish.object(), work, what, moment)
            }
        }
    }

    /// Writes the timeline, if one is wished for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_timeline(&self, wish: &WishFlags, report: &mut Report) -> Result<(), CliError> {
        let Some(path) = &wish.timeline else {
            return Ok(());
        };
        timeline::write(path, wish.folded.as_deref(), &self.tool.processes(), report)
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

    /// Adds to a report what is known of the programs.
    pub fn conclude(&self, report: &mut Report) {
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
            (self.session.iter()).partition(|p| p.spec.form == Form::Run);
        let globs: Vec<String> = probes.iter().map(|p| p.spec.kernels.clone()).collect();
        note_unmatched(report, &globs);
        note_no_site(report);
        report.notes.extend(own.iter().map(|program| {
            format!(
                "program `{}` is a kernel itself ({}) and in none of the application's: run it by `warpbpf launch`",
                program.name(),
                program.section()
            )
        }));
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
/// Only what happens before the application runs; afterwards problems become notes, and data is never dropped.
pub fn observe(
    flags: &TargetFlags,
    surroundings: &Surroundings,
    tool: &Tool,
    linux: Option<&Arc<Beside>>,
    (events, interval): (u64, Option<Duration>),
) -> Result<Report, CliError> {
    let device = machine::choose(flags.device)?;
    if let Device::Soft { why, .. } = &device {
        eprintln!("warpbpf: running on the soft GPU ({why})");
    }
    let mut launch = Launch::new(&flags.command).inject(flags.inject.into());
    if let Some(linux) = linux {
        let linux = Arc::clone(linux);
        // SAFETY: it looks a variable up in what is there and stores to memory; nothing is allocated and no lock taken.
        launch = unsafe { launch.before(move |pid| linux.tell_process(pid)) };
    }
    let mut app = tool.start_on(&launch, device, surroundings)?;
    let entry = app.entry();
    let mut collector = Collector::new(tool, events, linux.map(|linux| &**linux));
    let status = follow(app.child(), &mut collector, interval);
    let device = app.device();
    let end = Instant::now() + LAST_WORDS;
    // A child of the application may outlive it: its agent is given the same grace, no more.
    while collector.connected() && Instant::now() < end {
        collector.poll(TICK);
    }
    collector.poll(Duration::ZERO);
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
        report.notes.push(nobody_came(flags, &entry, device));
    } else if let Entry::Preload(why) = entry {
        report
            .notes
            .push(format!("the agent came in by LD_PRELOAD: {why}"));
    }
    Ok(report)
}

fn nobody_came(flags: &TargetFlags, entry: &Entry, device: &Device) -> String {
    let program = flags
        .command
        .first()
        .map(|w| w.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut note = format!("nothing was instrumented: `{program}` loaded no CUDA code");
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
    interval: Option<Duration>,
) -> Option<ExitStatus> {
    let mut next = interval.map(|i| Instant::now() + i);
    let ignore = InterruptsIgnored::new();
    let status = loop {
        collector.poll(TICK);
        if interval.is_some() {
            for line in collector.news() {
                eprintln!("{line}");
            }
        }
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) => {}
            Err(_) => break None,
        }
        if let (Some(at), Some(every)) = (next, interval)
            && Instant::now() >= at
        {
            eprint!("{}", render::summary(&collector.processes()));
            next = Some(Instant::now() + every);
        }
    };
    drop(ignore);
    status
}

/// Ctrl-C goes to the application too: it decides, and we live to show the data.
pub struct InterruptsIgnored {
    old: libc::sighandler_t,
}

extern "C" fn nothing(_: libc::c_int) {}

impl InterruptsIgnored {
    /// Until it is dropped.
    pub fn new() -> InterruptsIgnored {
        // SAFETY: the handler does nothing. A handler, unlike SIG_IGN, is not inherited by what we start.
        let old = unsafe { libc::signal(libc::SIGINT, nothing as *const () as libc::sighandler_t) };
        InterruptsIgnored { old }
    }
}

impl Drop for InterruptsIgnored {
    fn drop(&mut self) {
        // SAFETY: puts back what was there.
        unsafe { libc::signal(libc::SIGINT, self.old) };
    }
}

/// As a shell says it.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|s| 128 + s))
        .unwrap_or(125)
}

/// Kernels that are named where a program stands in none of many.
const SHOWN: usize = 5;

/// Globs that matched nothing are said, with the kernels that were there.
fn note_unmatched(report: &mut Report, globs: &[String]) {
    let seen: Vec<&model::Kernel> = report.processes.iter().flat_map(|p| &p.kernels).collect();
    let mut notes = Vec::new();
    for glob in globs {
        if report.processes.is_empty()
            || seen
                .iter()
                .any(|k| warpbpf_session::names::matches(glob, &k.mangled))
        {
            continue;
        }
        let mut names: Vec<&str> = seen.iter().map(|k| k.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let list = if names.is_empty() {
            "none".to_string()
        } else {
            names.join(", ")
        };
        notes.push(format!("`{glob}` matched no kernel; kernels seen: {list}"));
    }
    notes.dedup();
    report.notes.extend(notes);
}

/// Programs that were put nowhere leave nothing in their maps: that is said, with the way to find out why.
fn note_no_site(report: &mut Report) {
    let kernels = || report.processes.iter().flat_map(|p| &p.kernels);
    let none = |k: &model::Kernel| k.way == NO_SITE && k.left_out.is_empty();
    if kernels().any(|k| k.instrumented) {
        return note_program_without_site(report);
    }
    if !kernels().any(none) {
        return;
    }
    let app = report.command.first().map_or("APP", String::as_str);
    let mut note = format!(
        "no kernel has a site that a program wants: `warpbpf sites {app}` lists what there is"
    );
    if report.programs.iter().any(|p| p.section.contains("at=")) {
        note += "; `at=` needs line information (`nvcc -lineinfo`)";
    }
    report.notes.push(note);
}

/// So is a program that stands nowhere while another one does: its maps are as empty, and nothing else says why.
fn note_program_without_site(report: &mut Report) {
    let app = report.command.first().map_or("APP", String::as_str);
    let kernels: Vec<&model::Kernel> = report.processes.iter().flat_map(|p| &p.kernels).collect();
    let mut notes = Vec::new();
    for (index, program) in report.programs.iter().enumerate() {
        let matching = kernels.iter().filter_map(|kernel| {
            let (_, count) = kernel.placed.iter().find(|(at, _)| *at == index)?;
            Some((kernel.name.as_str(), *count))
        });
        let matching: Vec<(&str, u32)> = matching.collect();
        if matching.is_empty() || matching.iter().any(|(_, count)| *count > 0) {
            continue;
        }
        let mut names: Vec<&str> = matching.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(SHOWN);
        let mut note = format!(
            "program `{}` (`{}`) stands nowhere: there is no {} in {}{more}; `warpbpf sites {app}` lists what there is",
            program.name,
            program.section,
            looked_for(&program.section),
            names.join(", "),
        );
        if program.section.contains("at=") {
            note += "; `at=` needs line information (`nvcc -lineinfo`)";
        }
        notes.push(note);
    }
    report.notes.extend(notes);
}

/// `mem` place with `kind=load,size>16`: of a section, what a kernel must have.
fn looked_for(section: &str) -> String {
    let (place, selectors) = match section.split_once('|') {
        Some((place, selectors)) => (place, Some(selectors)),
        None => (section, None),
    };
    let kind = place.strip_prefix("gpu/").unwrap_or(place);
    let kind = kind.split(['/', '.']).next().unwrap_or(kind);
    match selectors {
        Some(selectors) => format!("`{kind}` place with `{selectors}` that may have code"),
        None => format!("`{kind}` place that may have code"),
    }
}

/// Writes a report to standard error or a file, as text or JSON.
pub fn write<T: serde::Serialize>(
    flags: &OutputFlags,
    data: &T,
    rows: usize,
    text: &dyn Fn(&T, usize) -> String,
) -> Result<(), CliError> {
    let mut out = if flags.json {
        serde_json::to_string(data).map_err(|e| CliError::Other(e.to_string()))? + "\n"
    } else {
        text(data, rows)
    };
    match &flags.output {
        None => {
            if flags.json {
                say(&out);
            } else {
                // As with `say`: a reader that went away has seen enough.
                let _ = std::io::stderr().write_all(out.as_bytes());
            }
            Ok(())
        }
        Some(path) => {
            out = out.trim_start_matches('\n').to_string();
            std::fs::write(path, out).map_err(|source| CliError::Write {
                path: path.display().to_string(),
                source,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stands_nowhere_is_named() {
        let program = |name: &str, section: &str| model::Program {
            name: name.into(),
            section: section.into(),
            ..model::Program::default()
        };
        let kernel = |name: &str, placed: &[(usize, u32)]| model::Kernel {
            name: name.into(),
            instrumented: true,
            placed: placed.to_vec(),
            ..model::Kernel::default()
        };
        let noted = |kernels: &[model::Kernel]| {
            let mut report = Report {
                command: vec!["./app".into()],
                programs: vec![
                    program("at_entry", "gpu/entry/*"),
                    program("wide", "gpu/mem.warp/*|kind=load,size>16"),
                    program("there", "gpu/line/k*|at=k.cu:7"),
                    program("barriers", "gpu/barrier/*"),
                ],
                processes: vec![model::Process {
                    kernels: kernels.to_vec(),
                    ..model::Process::default()
                }],
                ..Report::default()
            };
            note_no_site(&mut report);
            report.notes
        };
        assert_eq!(
            noted(&[
                kernel("b", &[(0, 1), (1, 0), (2, 0), (3, 0)]),
                kernel("a", &[(0, 1), (1, 0), (3, 2)])
            ]),
            [
                "program `wide` (`gpu/mem.warp/*|kind=load,size>16`) stands nowhere: there is no `mem` place with `kind=load,size>16` \
                 that may have code in a, b; `warpbpf sites ./app` lists what there is",
                "program `there` (`gpu/line/k*|at=k.cu:7`) stands nowhere: there is no `line` place with `at=k.cu:7` that may have \
                 code in b; `warpbpf sites ./app` lists what there is; `at=` needs line information (`nvcc -lineinfo`)"
            ]
        );
        let many: Vec<model::Kernel> = (0..7)
            .map(|n| kernel(&format!("k{n}"), &[(3, 0)]))
            .collect();
        assert_eq!(
            noted(&many),
            [
                "program `barriers` (`gpu/barrier/*`) stands nowhere: there is no `barrier` place that may have code in k0, k1, k2, k3, \
                 k4 and 2 more; `warpbpf sites ./app` lists what there is"
            ]
        );
        assert_eq!(
            noted(&[kernel("a", &[(0, 1), (1, 3)])]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn programs_without_a_site_are_not_passed_over() {
        let kernel = |way: &str, left_out: &[(&str, u32)]| model::Kernel {
            way: way.into(),
            left_out: left_out.iter().map(|(r, n)| ((*r).into(), *n)).collect(),
            ..model::Kernel::default()
        };
        let noted = |section: &str, kernels: &[model::Kernel]| {
            let mut report = Report {
                command: vec!["./app".into()],
                programs: vec![model::Program {
                    section: section.into(),
                    ..model::Program::default()
                }],
                processes: vec![model::Process {
                    kernels: kernels.to_vec(),
                    ..model::Process::default()
                }],
                ..Report::default()
            };
            note_no_site(&mut report);
            report.notes
        };
        let without = kernel(NO_SITE, &[]);
        let other = kernel("not matched", &[]);
        let said =
            "no kernel has a site that a program wants: `warpbpf sites ./app` lists what there is";
        assert_eq!(
            noted("gpu/mem/*", &[without.clone(), other.clone()]),
            [said]
        );
        assert_eq!(
            noted("gpu/line/*|at=k.cu:7", std::slice::from_ref(&without)),
            [format!(
                "{said}; `at=` needs line information (`nvcc -lineinfo`)"
            )]
        );
        let probed = model::Kernel {
            instrumented: true,
            ..kernel("slice", &[])
        };
        let left_out = kernel(NO_SITE, &[("inside a wgmma group", 2)]);
        for kernels in [vec![without, probed], vec![left_out], vec![other], vec![]] {
            assert_eq!(noted("gpu/mem/*", &kernels), Vec::<String>::new());
        }
    }
}
