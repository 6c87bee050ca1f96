//! A tool whose programs go into an application that another tool has: it becomes that one's guest. What it began with is not its to
//! choose, so wishes that a guest cannot have are refused by name, before anything is changed.

use std::time::{Duration, Instant};

use warpbpf_inject::{Subject, mappings};
use warpbpf_wire::{Options, ToolConnection};

use crate::control::{Client, JoinRequest, ProcessInfo};
use crate::exchange::EXCHANGE_LIMIT;
use crate::live::{AttachError, Change};
use crate::tool::{ATTACHED, Shared, lock};
use crate::{Error, Process, SessionInfo};

/// A tool that lets others in, and the application.
pub(crate) struct Host {
    client: Client,
    session: SessionInfo,
    process: ProcessInfo,
}

/// What this tool wishes.
struct Wishes<'w> {
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

impl Wishes<'_> {
    /// The first one that a guest cannot have: what a user calls it, and why.
    fn not_for_guests(&self) -> Option<(&'static str, &'static str)> {
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
                !options.place.is_empty(),
                "`--place`",
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
                "a guest's maps begin empty",
            ),
        ];
        let mut all = all.into_iter();
        let (_, what, why) = all.find(|(wished, ..)| *wished)?;
        Some((what, why))
    }
}

impl Host {
    /// The tool that has an application, if it can be asked.
    pub(crate) fn of(pid: u32) -> Option<Host> {
        // Without an agent in it nobody has it, and tools that do not answer are not waited for.
        let (maps, seccomp) = (mappings(pid).ok()?, false);
        Subject { pid, seccomp, maps }.agent()?;
        let has = |process: &&ProcessInfo| process.pid == pid && process.running;
        Client::find().into_iter().find_map(|mut client| {
            // One that ends while it is asked has nothing.
            let (session, _) = client.session().ok()?;
            let process = session.processes.iter().find(has)?.clone();
            Some(Host {
                client,
                session,
                process,
            })
        })
    }

    /// Process of that tool.
    fn tool(&self) -> u32 {
        self.session.tool
    }

    /// It is the tool with this socket.
    fn is_at(&self, socket: &std::path::Path) -> bool {
        self.client.path().parent() == socket.parent()
    }

    /// Has programs put in beside its own. What was done, and the connection by which is told what an agent would tell.
    ///
    /// # Errors
    /// Why not; nothing was changed then.
    fn join(
        mut self,
        wishes: &Wishes<'_>,
        (name, object): (&str, &[u8]),
    ) -> Result<(Change, ToolConnection), AttachError> {
        let begun = Instant::now();
        let (pid, tool) = (self.process.pid, self.session.tool);
        let refused = |why: String| AttachError::Process {
            pid,
            message: format!("process {pid} has programs of another tool (process {tool}): {why}"),
        };
        if let Some((what, why)) = wishes.not_for_guests() {
            return Err(refused(format!(
                "{what} cannot be had beside those, since {why}; do without, or attach when that has ended"
            )));
        }
        let request = JoinRequest {
            process: self.process.process,
            tool: std::process::id(),
            name: name.to_owned(),
            options: wishes.options.clone(),
            limit_ms: u64::try_from(EXCHANGE_LIMIT.as_millis()).unwrap_or(u64::MAX),
        };
        let joined = self.client.join(request, object, EXCHANGE_LIMIT);
        let joined = joined.map_err(|error| refused(error.to_string()))?;
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

impl Shared {
    /// Puts the programs into a process beside those of another tool.
    pub(crate) fn join(&self, host: Host, pid: u32) -> Result<Change, AttachError> {
        if host.is_at(self.listener.path()) {
            return Err(AttachError::Process {
                pid,
                message: format!("process {pid} has the programs of this tool already"),
            });
        }
        let wishes = Wishes {
            options: &self.options,
            programs: self.object.is_some(),
            presets: !lock(&self.presets).is_empty() || self.beginning.get().is_some(),
            functions: self.assembler.get().is_some(),
            cache: lock(&self.cache).is_some(),
        };
        let object = self.object.as_ref();
        let object = object.map_or(("", &[][..]), |object| (object.name(), object.bytes()));
        let tool = host.tool();
        let (change, connection) = host.join(&wishes, object)?;
        let process = Process::new(self.next_number(), Some(connection), self.object.clone());
        process.lock().host = Some(tool);
        lock(&self.processes).push(process.clone());
        let end = Instant::now() + ATTACHED;
        while !process.is_attached() && Instant::now() < end {
            process.pump();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(change)
    }
}

/// The first tool has gone without a word.
pub(crate) fn lost_host(host: u32, pid: u32) -> String {
    format!(
        "the tool (process {host}) beside whose programs these were has ended without a word, or process {pid} has: what is shown is as it was copied last"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_that_a_guest_cannot_have_are_named() {
        let options = Options::default();
        let plain = |options| Wishes {
            options,
            programs: true,
            presets: false,
            functions: false,
            cache: false,
        };
        assert_eq!(plain(&options).not_for_guests(), None);
        let bounded = Options {
            budget: Some(7),
            allow_modify: true,
            call_limit_us: Some(1),
            ..Options::default()
        };
        assert_eq!(plain(&bounded).not_for_guests(), None);
        let gate = Options {
            gate: true,
            ..Options::default()
        };
        let named = |wishes: &Wishes<'_>| wishes.not_for_guests().map(|(what, _)| what);
        assert_eq!(named(&plain(&gate)), Some("`--gate`"));
        let by_backend = Wishes {
            functions: true,
            ..plain(&options)
        };
        assert_eq!(named(&by_backend), Some("`--backend`"));
    }
}
