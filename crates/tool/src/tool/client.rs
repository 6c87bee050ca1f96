//! A tool whose programs go into an application that another tool has: it becomes that one's
//! client. What it began with is not its to choose, so requests that a client cannot have are
//! refused by name, before anything is changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpbpf_inject::{Subject, mappings};
use warpbpf_wire::{Options, ToolConnection};

use crate::control::SessionInfo;
use crate::control::{Control, JoinRequest, ProcessInfo};
use crate::error::Error;
use crate::handles::process::Process;
use crate::handles::replace::REPLACE_LIMIT;
use crate::live::{AttachError, Change};
use crate::lock::lock;
use crate::tool::shared::{ATTACHED, Shared};

/// Between two questions whether a tool is still at work.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks for an answer.
const TICK: Duration = Duration::from_millis(1);

/// Whom a tool waits for that wants to be a client.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'g> {
    /// How long the other tool may say nothing.
    pub(crate) limit: Duration,
    /// Somebody still wants it.
    pub(crate) goes_on: &'g (dyn Fn() -> bool + Sync),
}

/// What other tools say of an application.
pub(crate) enum Found {
    /// One has it.
    Host(Box<Host>),
    /// None of those that have answered. These tools have not.
    Nobody(Vec<u32>),
}

/// A tool that lets others in, and the application.
pub(crate) struct Host {
    control: Control,
    session: SessionInfo,
    process: ProcessInfo,
}

/// What this tool asks for.
struct ClientRequest<'w> {
    options: &'w Options,
    /// It has an object.
    programs: bool,
    /// Maps are to begin with something.
    presets: bool,
    /// Functions are made for kernels without PTX.
    functions: bool,
    /// Something was said of compiled code.
    cache: bool,
}

impl ClientRequest<'_> {
    /// The first one that a client cannot have: what a user calls it, and why.
    fn not_for_clients(&self) -> Option<(&'static str, &'static str)> {
        const BEGUN: &str = "what the first tool began with holds for all";
        let options = self.options;
        let all = [
            (
                options.timeline,
                "`--timeline`",
                "one tool has the timeline of an application",
            ),
            (
                !self.programs,
                "observing it",
                "the first tool is told of its kernels",
            ),
            (options.gate, "`--gate`", BEGUN),
            (options.slots, "`--slots`", BEGUN),
            (options.host_ops, "`--host-ops`", BEGUN),
            (options.max_registers.is_some(), "`--max-registers`", BEGUN),
            (options.out_of_line, "`--out-of-line`", BEGUN),
            (options.live_sums, "`--live-sums`", BEGUN),
            (
                !options.map_memory.is_empty(),
                "`--map-memory`",
                "maps in the host's memory are made when a session begins",
            ),
            (
                options.max_overhead_ppm.is_some(),
                "`--max-overhead`",
                "launches are measured with the programs of all tools",
            ),
            (
                options.max_device_memory.is_some(),
                "`--max-device-memory`",
                BEGUN,
            ),
            (options.caches, "`--caches`", BEGUN),
            (
                options.occupancy_instrumented,
                "`--occupancy instrumented`",
                "applications are answered as the first tool began",
            ),
            (options.ranges, "`--ranges`", BEGUN),
            (
                options.ring_bytes.is_some(),
                "a size of the event ring",
                BEGUN,
            ),
            (self.functions, "`--backend`", BEGUN),
            (self.cache, "what is said of compiled code", BEGUN),
            (
                self.presets,
                "contents that maps begin with (programs of Linux in the object, too)",
                "a client's maps begin empty",
            ),
        ];
        let mut all = all.into_iter();
        let (_, what, why) = all.find(|(requested, ..)| *requested)?;
        Some((what, why))
    }
}

impl Host {
    /// The tool that has an application.
    pub(crate) fn of(pid: u32, patience: Patience<'_>) -> Found {
        // Without an agent in it nobody has it, and no tool is waited for.
        let agent = mappings(pid).ok().and_then(|maps| {
            let seccomp = false;
            Subject { pid, seccomp, maps }.agent()
        });
        if agent.is_none() {
            return Found::Nobody(Vec::new());
        }
        let has = |process: &&ProcessInfo| process.pid == pid && process.running;
        let asked = Control::ask_all(patience.limit, patience.goes_on);
        for tool in asked.answered {
            if let Some(process) = tool.session.processes.iter().find(has).cloned() {
                return Found::Host(Box::new(Host {
                    control: tool.control,
                    session: tool.session,
                    process,
                }));
            }
        }
        Found::Nobody(asked.silent)
    }

    /// Process of that tool.
    fn tool(&self) -> u32 {
        self.session.tool
    }

    /// It is the tool with this socket.
    fn is_at(&self, socket: &std::path::Path) -> bool {
        self.control.path().parent() == socket.parent()
    }

    /// Has programs put in beside its own. What was done, and the connection by which is told what
    /// an agent would tell.
    ///
    /// # Errors
    /// Why not; nothing was changed then.
    fn join(
        mut self,
        requests: &ClientRequest<'_>,
        (name, object): (&str, &[u8]),
        patience: Patience<'_>,
    ) -> Result<(Change, ToolConnection), AttachError> {
        let begun = Instant::now();
        let (pid, tool) = (self.process.pid, self.session.tool);
        let refused = |why: String| AttachError::Process {
            pid,
            message: format!("process {pid} has programs of another tool (process {tool}): {why}"),
        };
        if let Some((what, why)) = requests.not_for_clients() {
            return Err(refused(format!(
                "{what} cannot be had beside those, since {why}; do without, or attach when that has ended"
            )));
        }
        let request = JoinRequest {
            process: self.process.process,
            tool: std::process::id(),
            name: name.to_owned(),
            options: requests.options.clone(),
            limit_ms: u64::try_from(REPLACE_LIMIT.as_millis()).unwrap_or(u64::MAX),
        };
        let failed = |error: Error| refused(error.to_string());
        self.control.begin_join(request, object).map_err(failed)?;
        let mut alive = Alive::new(self.control.path(), patience.limit);
        let joined = loop {
            if let Some(joined) = self.control.joined().map_err(failed)? {
                break joined;
            }
            if !(patience.goes_on)() {
                return Err(refused(
                    "interrupted; if that tool has put programs of this one in, it takes them out again".into(),
                ));
            }
            if !alive.look() {
                return Err(refused(format!(
                    "that tool does not answer ({} s): it is stopped or stuck; let it go on (`kill -CONT {tool}`) or end it, then attach again",
                    patience.limit.as_secs_f64()
                )));
            }
            if begun.elapsed() > REPLACE_LIMIT + ATTACHED {
                return Err(refused(format!(
                    "that tool has not put them in within {} s",
                    (REPLACE_LIMIT + ATTACHED).as_secs()
                )));
            }
            std::thread::sleep(TICK);
        };
        let connection = ToolConnection::trusted(joined).map_err(Error::Wire)?;
        let change = Change {
            took: begun.elapsed(),
            pause: Duration::ZERO,
            places: 0,
            said: format!(
                "beside the programs of another tool (process {tool}), which stay as they are"
            ),
            host: Some(tool),
        };
        Ok((change, connection))
    }
}

/// Whether a tool that has much to do for us is still at work: it is asked by a connection of its
/// own.
struct Alive {
    path: PathBuf,
    limit: Duration,
    /// A question that was not answered yet.
    question: Option<Control>,
    /// When it answered last, and when it was asked.
    answered: Instant,
    asked: Instant,
}

impl Alive {
    fn new(path: &Path, limit: Duration) -> Alive {
        let now = Instant::now();
        Alive {
            path: path.to_owned(),
            limit,
            question: None,
            answered: now,
            asked: now,
        }
    }

    /// False once it has not answered for too long.
    fn look(&mut self) -> bool {
        let now = Instant::now();
        match &mut self.question {
            Some(control) => match control.hear() {
                Ok(None) => {}
                // One that is gone is heard of by whoever waits for it.
                Ok(Some(_)) | Err(_) => {
                    self.question = None;
                    self.answered = now;
                }
            },
            None if now.duration_since(self.asked) >= LOOK.min(self.limit / 2) => {
                self.asked = now;
                let control = Control::connect(&self.path).ok();
                self.question =
                    control.and_then(|mut control| control.begin().ok().map(|()| control));
            }
            None => {}
        }
        // Nothing was asked for a while before this question.
        let since = self.answered.max(self.asked);
        self.question.is_none() || now.duration_since(since) < self.limit
    }
}

impl Shared {
    /// Puts the programs into a process beside those of another tool.
    pub(crate) fn join(
        &self,
        host: Host,
        pid: u32,
        patience: Patience<'_>,
    ) -> Result<Change, AttachError> {
        if host.is_at(self.listener.path()) {
            return Err(AttachError::Process {
                pid,
                message: format!("process {pid} has the programs of this tool already"),
            });
        }
        let requests = ClientRequest {
            options: &self.options,
            programs: self.object.is_some(),
            presets: !lock(&self.presets).is_empty() || self.beginning.get().is_some(),
            functions: self.assembler.get().is_some(),
            cache: lock(&self.cache).is_some(),
        };
        let object = self.object.as_ref();
        let object = object.map_or(("", &[][..]), |object| (object.name(), object.bytes()));
        let tool = host.tool();
        let (change, connection) = host.join(&requests, object, patience)?;
        let process = Process::new(self.next_number(), Some(connection), self.object.clone());
        process.lock().host = Some(tool);
        lock(&self.processes).push(process.clone());
        let end = Instant::now() + ATTACHED;
        while !process.is_attached() && Instant::now() < end && (patience.goes_on)() {
            process.pump();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(change)
    }
}

/// Why a process cannot be attached to, where `reason` says so, and tools have said nothing of
/// which one may have it.
pub(crate) fn silent_tools(reason: &str, silent: &[u32], limit: Duration) -> String {
    let all: Vec<String> = silent.iter().map(u32::to_string).collect();
    let (all, many) = (all.join(", "), silent.len() > 1);
    format!(
        "{reason}; {} {all} may have {}, and did not answer within {} s: let {} go on (`kill -CONT`) or end {}, then attach again",
        if many {
            "the tools of processes"
        } else {
            "the tool of process"
        },
        if many {
            "programs there"
        } else {
            "its programs there"
        },
        limit.as_secs_f64(),
        if many { "them" } else { "it" },
        if many { "them" } else { "it" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::TOOL_PATIENCE;

    #[test]
    fn a_tool_that_stands_still_is_found_out() {
        let listener = warpbpf_wire::Listener::bind(&std::env::temp_dir()).unwrap();
        let mut server = crate::control::Server::bind(listener.path()).unwrap();
        let limit = Duration::from_millis(300);
        let path = listener.path().with_file_name("maps");
        let mut alive = Alive::new(&path, limit);
        let mut answers = 0;
        while answers < 3 {
            server.turn(&[], &[], None);
            let asked = alive.question.is_some();
            assert!(alive.look());
            answers += u32::from(asked && alive.question.is_none());
        }
        // From here on it does nothing.
        while alive.look() {
            std::thread::sleep(TICK);
        }
        assert!(alive.question.is_some() && alive.asked.elapsed() >= limit);
    }

    #[test]
    fn tools_that_said_nothing_are_named() {
        let said = |silent: &[u32]| silent_tools("refused", silent, TOOL_PATIENCE);
        assert_eq!(
            said(&[7]),
            "refused; the tool of process 7 may have its programs there, and did not answer within 5 s: let it go on (`kill -CONT`) or end it, then attach again"
        );
        assert!(said(&[7, 9]).contains("the tools of processes 7, 9 may have programs there"));
    }

    #[test]
    fn requests_that_a_client_cannot_have_are_named() {
        let options = Options::default();
        let plain = |options| ClientRequest {
            options,
            programs: true,
            presets: false,
            functions: false,
            cache: false,
        };
        assert_eq!(plain(&options).not_for_clients(), None);
        let bounded = Options {
            budget: Some(7),
            allow_modify: true,
            hostcall_timeout_us: Some(1),
            ..Options::default()
        };
        assert_eq!(plain(&bounded).not_for_clients(), None);
        let gate = Options {
            gate: true,
            ..Options::default()
        };
        let named = |requests: &ClientRequest<'_>| requests.not_for_clients().map(|(what, _)| what);
        assert_eq!(named(&plain(&gate)), Some("`--gate`"));
        let by_backend = ClientRequest {
            functions: true,
            ..plain(&options)
        };
        assert_eq!(named(&by_backend), Some("`--backend`"));
    }
}
