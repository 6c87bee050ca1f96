//! Everything that agents say and show while an application runs, kept until the report is made.

use std::time::Duration;

use warpbpf_tool::{KernelInfo, NoteLevel, Process, Tool};

use crate::collect::together::Together;
use crate::programs::linux::Beside;
use crate::report::contents::{begun, fill};
use crate::report::model;
use crate::report::news::{News, Records, fresh};
use crate::report::pretty::Printer;

/// Messages of `bpf_printk` that are kept.
const MAX_MESSAGES: usize = 10_000;
/// Longest sleep between two looks at what Linux's programs have written.
const BESIDE: Duration = Duration::from_millis(4);

/// Takes in what comes while something is watched.
pub trait Reader {
    /// Called again and again, and once when all has come.
    fn turn(&mut self, collector: &mut Collector<'_>);
}

/// All agents of a run.
pub struct Collector<'t> {
    tool: &'t Tool,
    records: Records,
    agents: Vec<Agent>,
    /// Programs that Linux runs.
    linux: Option<&'t Beside>,
}

/// What came out of one process's rings.
#[derive(Default)]
struct Agent {
    rings: Vec<model::Events>,
    messages: Vec<String>,
    messages_left_out: u64,
    /// Kept events per ring, and messages, that were told already.
    told: (Vec<usize>, usize),
}

impl<'t> Collector<'t> {
    /// Ready for the tool's agents.
    pub fn new(tool: &'t Tool, records: Records, linux: Option<&'t Beside>) -> Collector<'t> {
        Collector {
            tool,
            records,
            agents: Vec::new(),
            linux,
        }
    }

    /// Takes in what is there; sleeps for `patience` if nothing is.
    pub fn poll(&mut self, patience: Duration) {
        let processes = self.tool.processes();
        self.agents.resize_with(processes.len(), Agent::default);
        let mut events = 0;
        for (agent, process) in self.agents.iter_mut().zip(&processes) {
            events += agent.take_events(process, self.records);
        }
        let mut patience = patience;
        if let Some(linux) = self.linux {
            // Its records keep nobody awake: a program at each system call would see what we do
            // with them.
            linux.turn(&processes, self.records.most());
            patience = patience.min(BESIDE);
        }
        if events == 0 {
            std::thread::sleep(patience);
        }
    }

    /// The applications' processes.
    pub fn live(&self) -> Vec<Process> {
        self.tool.processes()
    }

    /// An agent that is still connected.
    pub fn connected(&self) -> bool {
        self.tool.processes().iter().any(Process::is_connected)
    }

    /// Some agent ever came.
    pub fn any(&self) -> bool {
        !self.tool.processes().is_empty()
    }

    /// Processes in which the agent refused to do anything, and why. Beside another agent in the
    /// same process that is no news: the other one serves it.
    fn refusals(&self) -> Vec<(u32, String)> {
        let processes = self.tool.processes();
        let served = |pid: u32| {
            let mut all = processes.iter();
            all.any(|p| p.pid() == pid && p.refused().is_none())
        };
        let refusing = processes
            .iter()
            .filter_map(|p| Some((p.pid(), p.refused()?)));
        refusing.filter(|(pid, _)| !served(*pid)).collect()
    }

    /// Warnings and errors of all agents.
    fn notes(&self) -> Vec<String> {
        self.told(|level| matches!(level, NoteLevel::Warning | NoteLevel::Error))
    }

    /// What agents say that is no warning.
    fn remarks(&self) -> Vec<String> {
        self.told(|level| level == NoteLevel::Info)
    }

    fn told(&self, wanted: impl Fn(NoteLevel) -> bool) -> Vec<String> {
        let notes = self.tool.processes().into_iter().flat_map(|p| p.notes());
        notes
            .filter(|note| wanted(note.level))
            .map(|note| note.text)
            .collect()
    }

    /// Everything so far, for what was started by this command line.
    pub fn report(&self, command: Vec<String>, status: Option<i32>) -> model::Report {
        let processes = self.processes();
        // Each process has Linux's contents in them, which count once: in Linux's part.
        let shared = self.linux.map(Beside::shared).unwrap_or_default();
        let mut live = self.tool.processes();
        live.sort_by_key(Process::number);
        let Together { maps, remarks } = Together::of(&live, &processes, &shared);
        let mut report = model::Report {
            version: model::VERSION,
            command,
            status,
            programs: Vec::new(),
            processes,
            together: maps,
            linux: (self.linux).map(|linux| linux.report(&self.tool.processes())),
            notes: self.notes(),
            remarks: self.remarks(),
        };
        report.remarks.extend(remarks);
        if let Some(error) = self.tool.unheard() {
            report.notes.push(format!(
                "applications could not be let in for a while ({error}): those that came meanwhile may have run without programs; raise the limit of open files (`ulimit -n`)"
            ));
        }
        for (pid, message) in self.refusals() {
            report.notes.insert(
                0,
                format!("nothing was instrumented in process {pid}: {message}"),
            );
        }
        report
    }

    /// Events and messages that came since the last call, of those that are kept. What is handed on
    /// is not kept any longer.
    pub fn news(&mut self) -> Vec<News> {
        let processes = self.tool.processes();
        let records = self.records;
        let agents = self.agents.iter_mut().zip(&processes);
        let news = agents.flat_map(|(agent, process)| agent.news(process, records));
        let of_linux = self.linux.map(|linux| linux.news(records));
        news.chain(of_linux.into_iter().flatten()).collect()
    }

    /// The state of each process now.
    pub fn processes(&self) -> Vec<model::Process> {
        let processes = self.tool.processes();
        let mut agents: Vec<_> = self.agents.iter().zip(&processes).collect();
        // As they came, however long it took to tell each what to do.
        agents.sort_by_key(|(_, process)| process.number());
        agents
            .into_iter()
            .map(|(agent, process)| agent.process_now(process))
            .collect()
    }
}

impl Agent {
    fn take_events(&mut self, process: &Process, records: Records) -> usize {
        let most_messages = match records {
            Records::Kept(_) => MAX_MESSAGES,
            Records::HandedOn => usize::MAX,
        };
        let Some(object) = process.object() else {
            return 0;
        };
        let (kernels, sites) = (process.kernel_names(), process.site_names());
        let printer = Printer {
            btf: object.btf(),
            kernels: &kernels,
            sites: &sites,
        };
        process.poll(Duration::ZERO, |event| {
            if event.is_message() {
                let message = event.message(&object);
                match self.messages.len() < most_messages {
                    true => self.messages.extend(message.map(|m| m.to_string())),
                    false => self.messages_left_out += u64::from(message.is_some()),
                }
                return;
            }
            let map = event.map as usize;
            let Some(def) = object.parsed().maps.get(map) else {
                return;
            };
            if self.rings.len() <= map {
                self.rings.resize(map + 1, model::Events::default());
            }
            let value = || printer.json(def.value_type, event.payload);
            self.rings[map].take(records.most(), value);
        })
    }

    fn news(&mut self, process: &Process, records: Records) -> Vec<News> {
        let mut news = Vec::new();
        let (events, messages) = &mut self.told;
        events.resize(self.rings.len(), 0);
        let pid = Some(process.pid());
        let maps = process.maps();
        for ((ring, map), told) in self.rings.iter_mut().zip(&maps).zip(events) {
            let name = Some(map.name().to_owned());
            news.extend(fresh(&mut ring.first, told, records).map(|value| News {
                process: pid,
                map: name.clone(),
                value,
            }));
        }
        news.extend(
            fresh(&mut self.messages, messages, records).map(|text| News {
                process: pid,
                map: None,
                value: text.into(),
            }),
        );
        news
    }

    fn process_now(&self, process: &Process) -> model::Process {
        let mut now = model::Process {
            pid: process.pid(),
            inner_pid: process.inner_pid(),
            exe: process.exe(),
            complete: process.is_complete(),
            missing_launches: process.missing_launches(),
            kernels_ran_at_last_copy: process.kernels_ran_at_last_copy(),
            kernels: process.kernels().into_iter().map(kernel).collect(),
            messages: self.messages.clone(),
            messages_left_out: self.messages_left_out,
            ..model::Process::default()
        };
        if let Some(device) = process.device() {
            let (major, minor) = device.capability;
            now.soft = device.soft;
            now.device = format!(
                "{}, sm_{major}{minor}, {} SMs, driver {}.{}",
                device.name,
                device.sms,
                device.driver_version / 1000,
                device.driver_version % 1000 / 10
            );
        }
        if !process.is_ready() {
            return now;
        }
        let contexts = process.contexts();
        now.device_bytes = contexts.iter().map(|context| context.device_bytes).sum();
        if contexts.len() > 1 {
            now.contexts = contexts.iter().map(model::Context::of).collect();
        } else {
            for kernel in &mut now.kernels {
                kernel.contexts.clear();
                kernel.context_programs.clear();
            }
        }
        let (kernels, sites) = (process.kernel_names(), process.site_names());
        let object = process.object();
        let printer = Printer {
            btf: object.as_ref().and_then(warpbpf_tool::Object::btf),
            kernels: &kernels,
            sites: &sites,
        };
        let maps = process.maps();
        now.maps = maps
            .iter()
            .filter_map(|map| self.map_now(map, &printer))
            .collect();
        now.messages_lost = process.messages_lost();
        let stopped = process.stopped().into_iter();
        now.stopped = stopped
            .map(|(program, times)| model::Stopped { program, times })
            .collect();
        now.clock_error_ns = process.clock_error();
        now
    }

    /// `None` for constants.
    fn map_now(&self, map: &warpbpf_tool::Map, printer: &Printer<'_>) -> Option<model::Map> {
        let (def, mut now) = begun(map)?;
        if map.info().bytes == 0 {
            let events = self.rings.get(map.index() as usize);
            let mut events = events.cloned().unwrap_or_default();
            let losses = map.losses();
            events.lost = losses.sum();
            events.lost_full = losses.full;
            events.lost_busy = losses.busy;
            events.lost_unread = losses.unread;
            now.events = Some(events);
        } else if let (Ok(snapshot), Some(plan)) = (map.last_snapshot(), map.plan()) {
            fill(&mut now, &plan, &def, snapshot.parts(), printer);
            for (context, part) in map.contexts().unwrap_or_default() {
                if snapshot.parts().len() > 1 {
                    let mut own = model::Map::default();
                    fill(&mut own, &plan, &def, part.parts(), printer);
                    let part = own.into_part(context.number, context.device);
                    now.contexts.push(part);
                }
            }
        }
        Some(now)
    }
}

fn kernel(info: KernelInfo) -> model::Kernel {
    let KernelInfo {
        kernel,
        launches,
        uninstrumented,
        skipped,
        contexts,
        unwanted,
        generations: _,
        programs,
        context_programs,
    } = info;
    model::Kernel {
        id: kernel.kernel_id,
        name: kernel.demangled,
        mangled: kernel.mangled,
        source: kernel.source,
        method: kernel.method,
        instrumented: kernel.instrumented,
        registers: kernel
            .registers_before
            .map(|before| (before, kernel.registers_after.unwrap_or(before))),
        local_bytes: kernel.local_bytes,
        shared_bytes: kernel.shared_bytes,
        occupancy: kernel.occupancy,
        compiler_warnings: kernel.compiler_warnings,
        cached: kernel.cached,
        loaded_us: kernel.loaded_us,
        sites: kernel.sites,
        left_out: kernel.left_out,
        placed: kernel.placed,
        launches,
        uninstrumented,
        skipped,
        unwanted,
        contexts,
        programs,
        context_programs,
    }
}
