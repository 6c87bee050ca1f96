//! Processes that run already: which there are, and how programs are taken out of them again.

use std::collections::HashMap;
use std::time::Duration;

use warpbpf_inject::{Done, InjectError, Subject, folder, mappings, status_field, text};

use crate::control::{Asked, Asker, TOOL_PATIENCE};
use crate::error::Error;
use crate::system::number;

/// Why a tool's programs are not in a process that runs, or still are. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It cannot be attached to, or not be left.
    #[error("{message}")]
    Process {
        /// Its number.
        pid: u32,
        /// Why, and what to do.
        message: String,
    },
    /// Something is missing here.
    #[error("{0}")]
    Tool(#[from] Error),
}

impl AttachError {
    pub(crate) fn of(pid: u32, error: &InjectError) -> AttachError {
        AttachError::Process {
            pid,
            message: error.to_string(),
        }
    }
}

/// What was done to a process that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// From first to last.
    pub took: Duration,
    /// How long the thread of it stood that stood longest.
    pub pause: Duration,
    /// Places of its code that were changed.
    pub places: usize,
    /// What else is to be known; may be empty.
    pub said: String,
    /// The process of the tool that had programs in it before, and that keeps them there: nothing
    /// of the process itself was changed.
    pub host: Option<u32>,
}

impl Change {
    pub(crate) fn of(done: &Done) -> Change {
        Change {
            took: done.took,
            pause: done.pause,
            places: done.patches,
            said: done.said.clone(),
            host: None,
        }
    }
}

/// Takes programs out of a process, whoever put them in: its launches are of originals, its code is
/// as it was, and the memory of maps is given back. A tool that is connected with it is told, and
/// has its data.
///
/// # Errors
/// [`AttachError::Process`].
pub fn detach(pid: u32) -> Result<Change, AttachError> {
    detach_while(pid, &|| true)
}

/// As [`detach`], as long as it `goes_on`, which is asked often: what was not done by then is left,
/// and can be done again.
///
/// # Errors
/// As [`detach`].
pub fn detach_while(pid: u32, goes_on: &(dyn Fn() -> bool + Sync)) -> Result<Change, AttachError> {
    let done = warpbpf_inject::detach(pid, goes_on);
    let done = done.map_err(|error| AttachError::of(pid, &error))?;
    Ok(Change::of(&done))
}

/// A process that has loaded the CUDA driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaProcess {
    /// Its number.
    pub pid: u32,
    /// The number by which it knows itself, where that is another one.
    pub inner_pid: Option<u32>,
    /// Its command line.
    pub command: Vec<String>,
    /// It has opened a device. The soft GPU has none.
    pub has_device: bool,
    /// An agent is in it, at work or not.
    pub has_agent: bool,
    /// The process of the tool whose programs are in it.
    pub tool: Option<u32>,
    /// Why it cannot be attached to, if so.
    pub obstacle: Option<String>,
    /// Number of its effective user.
    pub user: Option<u32>,
    /// When it was started, in ticks since the machine was: with its number, nobody else's.
    pub started: u64,
    /// It is a child by `fork` without `exec` of a process that has loaded the driver, and has no
    /// thread of the driver's own: CUDA was not started in it.
    pub forked: bool,
}

/// The processes that have loaded the CUDA driver, as far as they can be looked into: this user's,
/// or everybody's for root.
pub fn processes() -> Vec<CudaProcess> {
    Lookout::default().processes(&|| true)
}

/// Who looks at [`processes`] again and again: a tool that does not answer is waited for once.
#[derive(Debug, Default)]
pub struct Lookout {
    asker: Asker,
}

impl Lookout {
    /// As [`processes`]; tools are waited for as long as it `goes_on`.
    pub fn processes(&mut self, goes_on: &dyn Fn() -> bool) -> Vec<CudaProcess> {
        let tools = tools(&self.asker.ask(TOOL_PATIENCE, goes_on));
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut all: Vec<CudaProcess> = pids.filter_map(|pid| look(pid, &tools)).collect();
        all.sort_unstable_by_key(|process| process.pid);
        all
    }
}

/// Tools by the processes that they have programs in.
fn tools(asked: &Asked) -> HashMap<u32, u32> {
    let mut tools = HashMap::new();
    for tool in &asked.answered {
        let session = &tool.session;
        let running = session.processes.iter().filter(|process| process.running);
        tools.extend(running.map(|process| (process.pid, session.tool)));
    }
    tools
}

fn look(pid: u32, tools: &HashMap<u32, u32>) -> Option<CudaProcess> {
    let maps = mappings(pid).ok()?;
    let seccomp = false;
    let subject = Subject { pid, seccomp, maps };
    if pid == std::process::id() || !subject.has_driver() {
        return None;
    }
    let status = text(format!("/proc/{pid}/status")).ok()?;
    // Where the first thread has ended, others have these.
    let there = folder(pid);
    let arguments = std::fs::read(there.join("cmdline")).unwrap_or_default();
    let words = arguments.split(|byte| *byte == 0);
    let mut command: Vec<String> = words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    // The list ends with a NUL.
    command.pop();
    if command.is_empty() {
        command.extend(status_field(&status, "Name"));
    }
    let files = std::fs::read_dir(there.join("fd"));
    let mut files = files.into_iter().flatten().flatten();
    let has_device = files.any(|file| {
        let path = std::fs::read_link(file.path()).unwrap_or_default();
        path.to_string_lossy().starts_with("/dev/nvidia")
    });
    let stat = Stat::of(pid)?;
    let user = status_field(&status, "Uid");
    let user = user.and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
    let obstacle = Subject::look(pid).err().map(|error| error.to_string());
    Some(CudaProcess {
        pid,
        inner_pid: number::inside(pid),
        command,
        has_device,
        has_agent: subject.agent().is_some(),
        tool: tools.get(&pid).copied(),
        obstacle,
        user,
        started: stat.started,
        forked: stat.forked && maps_driver(stat.parent) && !has_driver_thread(pid),
    })
}

/// The parent of a process, if it can be seen.
pub fn parent(pid: u32) -> Option<u32> {
    Some(Stat::of(pid)?.parent)
}

fn maps_driver(pid: u32) -> bool {
    let maps = mappings(pid).unwrap_or_default();
    let seccomp = false;
    Subject { pid, seccomp, maps }.has_driver()
}

/// NVIDIA's driver starts threads of such names when it is initialised.
fn has_driver_thread(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        std::fs::read(task.path().join("comm")).is_ok_and(|name| name.starts_with(b"cuda"))
    })
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// It has not called `exec` since it was forked.
    forked: bool,
    started: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&text(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        /// `PF_FORKNOEXEC`
        const FORKED: u64 = 0x40;
        // The name stands in parentheses, and may have some itself.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The state is the third field of all.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            parent: u32::try_from(field(4)?).ok()?,
            forked: field(9)? & FORKED != 0,
            started: field(22)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_behind_the_name() {
        let line = "77 (a) b) S 12 77 77 0 -1 4194368 100 0 0 0 1 2 0 0 20 0 1 0 98765 1 2";
        let stat = Stat {
            parent: 12,
            forked: true,
            started: 98765,
        };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("77 (a"), None);
        let own = Stat::of(std::process::id()).unwrap();
        assert!(!own.forked && own.started > 0);
        assert_eq!(parent(std::process::id()), Some(own.parent));
    }
}
