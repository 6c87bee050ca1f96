//! Why an agent cannot be put into a running process, or be taken out of it.

use std::path::PathBuf;

use warpbpf_wire::late::CLOSED;

use crate::proc;

/// A refusal or a failure. The process is as it was, unless the message says otherwise.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum InjectError {
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    #[error("process {pid} has ended")]
    Ended { pid: u32 },
    #[error(
        "process {pid} belongs to user {owner}, and this is user {own}: run as that user, or as root"
    )]
    OtherUser { pid: u32, owner: u32, own: u32 },
    #[error(
        "process {pid} may not be traced ({why}): be its parent, have CAP_SYS_PTRACE (`sudo`, or `--cap-add SYS_PTRACE` for a container), or write 0 to /proc/sys/kernel/yama/ptrace_scope"
    )]
    NotPermitted { pid: u32, why: String },
    #[error(
        "process {pid} is traced by process {tracer} (a debugger or `strace`): detach that first"
    )]
    Traced { pid: u32, tracer: u32 },
    #[error("process {pid} is stopped: continue it first (`kill -CONT {pid}`)")]
    Stopped { pid: u32 },
    #[error("process {pid} is a kernel thread or a zombie: it has no code")]
    NoCode { pid: u32 },
    #[error("process {pid} runs {found} code; only {ARCH} processes can be attached to", ARCH = std::env::consts::ARCH)]
    OtherMachine { pid: u32, found: &'static str },
    #[error(
        "process {pid} has not loaded the C library (it is statically linked): start it under `warpbpf run`"
    )]
    Static { pid: u32 },
    #[error("the C library of process {pid} has no `{function}`: start it under `warpbpf run`")]
    NoFunction { pid: u32, function: &'static str },
    #[error("process {pid} is in strict seccomp mode: nothing can be loaded into it")]
    Strict { pid: u32 },
    #[error(
        "process {pid} has not loaded the CUDA driver: attach when it has, or start it under `warpbpf run`"
    )]
    NoDriver { pid: u32 },
    #[error("there is no agent in process {pid}")]
    NoAgent { pid: u32 },
    #[error("the agent's file `{path}` cannot be read: {source}")]
    Agent {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the agent's path `{path}` is longer than a loader takes")]
    LongPath { path: PathBuf },
    #[error(
        "no thread of process {pid} came to a place where a call is safe within {seconds} s: {why}"
    )]
    NoSafeThread { pid: u32, seconds: u64, why: String },
    #[error(
        "thread {thread} of process {pid} does not stop within {seconds} s (state {state}): it is in an uninterruptible call; try again"
    )]
    Unstoppable {
        pid: u32,
        thread: u32,
        seconds: u64,
        state: char,
    },
    #[error(
        "threads of process {pid} keep standing in code that is to be changed (at {at:#x}); try again"
    )]
    InTheWay { pid: u32, at: u64 },
    #[error(
        "the code at {at:#x} of process {pid} is not what the agent saw: another tool changed it"
    )]
    Changed { pid: u32, at: u64 },
    #[error(
        "process {pid} has put something else in the place of the {what} that was made in it for the agent"
    )]
    Swapped { pid: u32, what: &'static str },
    #[error(
        "the main thread of process {pid} has ended, and its descriptors cannot be had from its other threads: Linux 6.9 or later is needed for that"
    )]
    MainThread { pid: u32 },
    #[error("process {pid} may not call `{call}`{}: {source}", hint(*.seccomp))]
    Refused {
        pid: u32,
        call: &'static str,
        seccomp: bool,
        source: std::io::Error,
    },
    #[error(
        "a call in process {pid} ended by signal {signal}; its thread was put back where it was"
    )]
    Crashed { pid: u32, signal: i32 },
    #[error("a call in process {pid} did not return within {seconds} s")]
    Stuck { pid: u32, seconds: u64 },
    #[error("the agent cannot be loaded into process {pid}: {reason}")]
    NotLoaded { pid: u32, reason: String },
    #[error("the agent in process {pid} refuses: {reason}")]
    AgentRefuses { pid: u32, reason: String },
    #[error("the agent in process {pid} did not answer within {seconds} s")]
    Silent { pid: u32, seconds: u64 },
    #[error(
        "interrupted: what was begun in process {pid} ends by itself, and `warpbpf detach -p {pid}` takes out what is left of it"
    )]
    Interrupted { pid: u32 },
    #[error("a table of a library, at {at:#x}, leads beyond the last address")]
    Table { at: u64 },
    #[error("{call} of process {pid} failed: {source}")]
    Os {
        pid: u32,
        call: &'static str,
        source: std::io::Error,
    },
}

fn hint(seccomp: bool) -> &'static str {
    match seccomp {
        true => " (it has a seccomp filter, which may forbid it)",
        false => "",
    }
}

impl InjectError {
    /// Somebody in the process has closed a descriptor, or opened another file in its place, while
    /// it was in use.
    pub(crate) fn is_of_descriptors(&self) -> bool {
        // What glibc says where the file that it reads is not there any more, or is another one.
        const NOT_READ: [&str; 6] = [
            "cannot read file data",
            "file too short",
            "invalid ELF header",
            "cannot stat shared object",
            "failed to map segment from shared object: Bad file descriptor",
            "cannot open shared object file: Bad file descriptor",
        ];
        match self {
            InjectError::Swapped { .. } => true,
            InjectError::NotLoaded { reason, .. } => {
                NOT_READ.iter().any(|text| reason.contains(text))
            }
            InjectError::AgentRefuses { reason, .. } => reason.contains(CLOSED),
            _ => false,
        }
    }

    /// What the operating system said of a call on a process; one that is gone is
    /// [`InjectError::Ended`].
    pub(crate) fn os(pid: u32, call: &'static str, source: std::io::Error) -> InjectError {
        match source.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Ended { pid },
            // Nothing is mapped there, which is how the memory of a process looks that is about to
            // end.
            Some(libc::EIO) if proc::ends(pid) => InjectError::Ended { pid },
            _ => InjectError::Os { pid, call, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_of_closed_descriptors_is_known() {
        let pid = 7;
        let loaded = |reason: &str| InjectError::NotLoaded {
            pid,
            reason: reason.into(),
        };
        let refuses = |reason: &str| InjectError::AgentRefuses {
            pid,
            reason: reason.into(),
        };
        for error in [
            InjectError::Swapped {
                pid,
                what: "socket",
            },
            loaded("/lib/agent.so: cannot read file data: Bad file descriptor"),
            loaded("/lib/agent.so: invalid ELF header"),
            refuses(CLOSED),
        ] {
            assert!(error.is_of_descriptors(), "{error}");
        }
        for error in [
            InjectError::Ended { pid },
            loaded("/lib/agent.so: undefined symbol: f"),
            refuses("a tool has its programs in it already"),
        ] {
            assert!(!error.is_of_descriptors(), "{error}");
        }
    }
}
