//! Processes that run already, into which `warpbpf loader --pid` puts a tool's programs: the agent's end of the connection stays in the
//! process, ours is handed to the tool.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use warpbpf::Change;
use warpbpf_inject::{InjectError, Subject};
use warpbpf_wire::{Given, Giver};

use crate::commands::attach::{is_there, leave, told};
use crate::error::CliError;
use crate::machine;
use crate::output::tell;

/// How long the tool may take to accept what it is handed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process.
struct Target {
    pid: u32,
    /// What was done to it, once an agent is in it.
    change: Option<Change>,
    /// The agent in it has ended its work.
    left: bool,
}

/// The processes that were asked for.
pub struct Late(Vec<Target>);

impl Late {
    /// Looks at processes without touching them, so that nothing is started if one cannot be attached to.
    ///
    /// # Errors
    /// Which one, and why.
    pub fn look(pids: &[u32]) -> Result<Late, CliError> {
        let mut targets: Vec<Target> = Vec::new();
        for pid in pids.iter().copied() {
            let subject = Subject::look(pid).map_err(other)?;
            if !subject.has_driver() {
                return Err(other(InjectError::NoDriver { pid }));
            }
            if targets.iter().all(|target| target.pid != pid) {
                targets.push(Target {
                    pid,
                    change: None,
                    left: false,
                });
            }
        }
        Ok(Late(targets))
    }

    /// There is one.
    pub fn is_wanted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Puts an agent into each, and hands the tool the connection with it.
    ///
    /// # Errors
    /// Which one cannot be attached to, and why. Those before it have an agent.
    pub fn begin(&mut self, tool: &UnixStream) -> Result<(), CliError> {
        if !self.is_wanted() {
            return Ok(());
        }
        let agent = machine::agent()?;
        let agent = std::fs::canonicalize(&agent).unwrap_or(agent);
        let socket = tool.try_clone().map_err(other)?;
        let mut giver = Giver::trusted(socket.into()).map_err(other)?;
        for target in &mut self.0 {
            let pid = target.pid;
            let done = warpbpf_inject::attach(pid, &agent, &|| true).map_err(other)?;
            if !done.said.is_empty() {
                tell!("warpbpf: {}", done.said);
            }
            target.change = Some(Change {
                took: done.took,
                pause: done.pause,
                places: done.patches,
                said: done.said,
                host: None,
            });
            let sent = giver.send(&Given { pid }, &[], done.socket, PATIENCE);
            sent.map_err(|error| {
                CliError::Other(format!(
                    "the tool cannot be told of process {pid}: {error}; it has ended, or what reads its programs is no longer at work"
                ))
            })?;
        }
        Ok(())
    }

    /// What the tool says of one: a line that begins with `what` and has its number.
    ///
    /// # Errors
    /// It will not have the tool's programs.
    pub fn take(&mut self, what: &str, pid: &str) -> Result<(), CliError> {
        let target = self.0.iter_mut().find(|t| t.pid.to_string() == pid);
        let Some(target) = target else { return Ok(()) };
        match (what, &target.change) {
            ("attached", Some(change)) => {
                tell!("warpbpf: {}", told(target.pid, "attached to", change));
            }
            ("refused", _) => {
                return Err(CliError::Other(format!(
                    "process {pid} does not take the tool's programs; why is said above"
                )));
            }
            ("left", _) => target.left = true,
            _ => {}
        }
        Ok(())
    }

    /// Nothing more comes from any of them.
    pub fn have_ended(&self) -> bool {
        self.0.iter().all(|t| t.left || !is_there(t.pid))
    }

    /// Their numbers, for people.
    pub fn names(&self) -> String {
        let names: Vec<String> = self
            .0
            .iter()
            .map(|t| format!("process {}", t.pid))
            .collect();
        names.join(", ")
    }

    /// Puts the code of those that live back as it was.
    pub fn leave(&mut self) {
        for target in self.0.iter_mut().filter(|target| target.change.is_some()) {
            for line in leave(target.pid) {
                tell!("warpbpf: {line}");
            }
        }
    }
}

fn other(error: impl std::fmt::Display) -> CliError {
    CliError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_attached_to_is_known_before_anything_is_started() {
        assert!(!Late::look(&[]).unwrap().is_wanted());
        let said = |pid| Late::look(&[pid]).err().map(|error| error.to_string());
        assert_eq!(
            said(u32::MAX),
            Some(format!("there is no process {}", u32::MAX))
        );
        let own = std::process::id();
        let said = said(own).unwrap_or_default();
        assert!(
            said.starts_with(&format!("process {own} has not loaded the CUDA driver")),
            "{said}"
        );
    }

    #[test]
    fn what_the_tool_says_of_processes_is_taken_by_their_number() {
        let target = |pid| Target {
            pid,
            change: None,
            left: false,
        };
        // Numbers that no process has.
        let mut late = Late(vec![target(u32::MAX), target(u32::MAX - 1)]);
        assert_eq!(late.names(), "process 4294967295, process 4294967294");
        late.take("left", "7").unwrap();
        assert!(late.0.iter().all(|target| !target.left));
        late.take("left", "4294967294").unwrap();
        assert!(late.0[1].left && late.have_ended());
        let refused = late.take("refused", "4294967295").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "process 4294967295 does not take the tool's programs; why is said above"
        );
    }
}
