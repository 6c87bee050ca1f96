//! Processes that run already, into which `warpbpf loader --pid` puts a tool's programs: the
//! agent's end of the connection stays in the process, ours is handed to the tool. Each process is
//! attached to by a thread of its own.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::thread::Scope;
use std::time::{Duration, Instant};

use warpbpf_inject::{Done, GoesOn, InjectError, Subject};
use warpbpf_tool::Change;
use warpbpf_wire::{Given, Giver};

use crate::application::coming::Coming;
use crate::application::machine;
use crate::commands::attach::{is_there, leave, tell_slow, told};
use crate::term::error::CliError;
use crate::term::output::tell;
use crate::term::signals::Signals;

/// How long the tool may take to accept what it is handed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long those that came wait for those before them.
const ORDER: Duration = Duration::from_secs(1);
/// Between two looks at processes that are left.
const TICK: Duration = Duration::from_millis(5);

/// A process.
struct Target {
    pid: u32,
    /// What was done to it, once an agent is in it.
    change: Option<Change>,
    /// The agent in it has ended its work.
    left: bool,
    /// It does not have the tool's programs, and gets none.
    failed: bool,
}

/// What the threads of a [`Late`] are told.
#[derive(Default)]
pub struct Ends {
    /// No process is attached to any more.
    attach: AtomicBool,
    /// None is waited for that is left.
    leave: AtomicBool,
}

/// The processes that were asked for.
pub struct Late<'s, 't> {
    targets: Vec<Target>,
    coming: Coming<'s, 't, Done>,
    /// Those with an agent that the tool was not told of yet, and since when.
    ready: Vec<(u32, Done, Instant)>,
    leaving: Coming<'s, 't, Vec<String>>,
    /// To the tool, once there is something to hand over.
    giver: Option<Giver>,
}

impl<'s, 't> Late<'s, 't> {
    /// Looks at processes without touching them, so that nothing is started if one cannot be
    /// attached to.
    ///
    /// # Errors
    /// Which one, and why.
    pub fn look(
        pids: &[u32],
        scope: &'s Scope<'s, 't>,
        ends: &'t Ends,
    ) -> Result<Late<'s, 't>, CliError> {
        let mut targets: Vec<Target> = Vec::new();
        for pid in pids.iter().copied() {
            let subject = Subject::look(pid).map_err(other)?;
            if !subject.has_driver() {
                return Err(other(InjectError::NoDriver { pid }));
            }
            if targets.iter().all(|target| target.pid != pid) {
                targets.push(Target::new(pid));
            }
        }
        Ok(Late {
            targets,
            coming: Coming::new(scope, &ends.attach),
            ready: Vec::new(),
            leaving: Coming::new(scope, &ends.leave),
            giver: None,
        })
    }

    /// There is one.
    pub fn is_wanted(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Begins to put an agent into each. [`Late::take_in`] does the rest.
    ///
    /// # Errors
    /// None can be put anywhere.
    pub fn begin(&mut self, tool: &UnixStream) -> Result<(), CliError> {
        if !self.is_wanted() {
            return Ok(());
        }
        let agent = machine::agent()?;
        let agent = std::fs::canonicalize(&agent).unwrap_or(agent);
        let socket = tool.try_clone().map_err(other)?;
        self.giver = Some(Giver::trusted(socket).map_err(other)?);
        for target in 0..self.targets.len() {
            let (pid, agent) = (self.targets[target].pid, agent.clone());
            let attach = move |goes_on: GoesOn<'_>| {
                let done = warpbpf_inject::attach(pid, &agent, goes_on);
                done.map_err(|error| error.to_string())
            };
            if let Err(reason) = self.coming.begin(pid, attach) {
                self.fail(pid, reason)?;
            }
        }
        Ok(())
    }

    /// Hands the tool the connections with the agents that have come.
    ///
    /// # Errors
    /// None of the processes can be attached to, or the tool takes nothing.
    pub fn take_in(&mut self) -> Result<(), CliError> {
        for (pid, result) in self.coming.take_in() {
            match result {
                Ok(done) => self.ready.push((pid, done, Instant::now())),
                Err(reason) => self.fail(pid, reason)?,
            }
        }
        while let Some(at) = self.next_ready() {
            let (pid, done, _) = self.ready.remove(at);
            self.came(pid, done)?;
        }
        self.coming.slow().into_iter().for_each(tell_slow);
        Ok(())
    }

    /// The next one that the tool is to be told of. It sees the maps of the one that came last, so
    /// the order is that of the command line, unless one takes long.
    fn next_ready(&self) -> Option<usize> {
        for target in &self.targets {
            let place = self.ready.iter().position(|(pid, ..)| *pid == target.pid);
            if place.is_some() {
                return place;
            }
            let open = target.change.is_none() && !target.failed;
            if open && self.ready.iter().all(|(.., since)| since.elapsed() < ORDER) {
                return None;
            }
        }
        None
    }

    fn target(&mut self, pid: u32) -> Option<&mut Target> {
        self.targets.iter_mut().find(|target| target.pid == pid)
    }

    /// An agent is in one.
    fn came(&mut self, pid: u32, done: Done) -> Result<(), CliError> {
        if !done.said.is_empty() {
            tell!("warpbpf: {}", done.said);
        }
        if let Some(target) = self.target(pid) {
            target.change = Some(change(&done));
        }
        let Some(giver) = &mut self.giver else {
            return Ok(());
        };
        let sent = giver.send(&Given { pid }, &[], done.socket.map(Into::into), PATIENCE);
        sent.map_err(|error| {
            CliError::Other(format!(
                "the tool cannot be told of process {pid}: {error}; it has ended, or what reads its programs is no longer at work"
            ))
        })
    }

    /// One does not get the programs. The others do.
    fn fail(&mut self, pid: u32, reason: String) -> Result<(), CliError> {
        if let Some(target) = self.target(pid) {
            target.failed = true;
        }
        if self.targets.iter().all(|target| target.failed) {
            return Err(CliError::Other(reason));
        }
        tell!("warpbpf: {reason}");
        Ok(())
    }

    /// Some process does not have the programs, though others do.
    pub fn has_failed(&self) -> bool {
        self.targets.iter().any(|target| target.failed)
    }

    /// What the tool says of one: a line that begins with `what` and has its number.
    ///
    /// # Errors
    /// None will have the tool's programs.
    pub fn take(&mut self, what: &str, pid: &str) -> Result<(), CliError> {
        let Ok(pid) = pid.parse() else { return Ok(()) };
        let Some(target) = self.target(pid) else {
            return Ok(());
        };
        match (what, &target.change) {
            ("attached", Some(change)) => {
                tell!("warpbpf: {}", told(pid, "attached to", change));
            }
            ("refused", _) => {
                return self.fail(
                    pid,
                    format!("process {pid} does not take the tool's programs; why is said above"),
                );
            }
            ("left", _) => target.left = true,
            _ => {}
        }
        Ok(())
    }

    /// Nothing more comes from any of them.
    pub fn have_ended(&self) -> bool {
        let mut all = self.targets.iter();
        self.coming.is_empty()
            && self.ready.is_empty()
            && all.all(|t| t.left || t.failed || !is_there(t.pid))
    }

    /// Their numbers, for people.
    pub fn names(&self) -> String {
        let names = self.targets.iter().map(|t| format!("process {}", t.pid));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Puts the code of those that live back as it was, all at once. Whoever sends a signal that
    /// ends commands waits for none of them.
    pub fn leave(&mut self, signals: &mut Signals) {
        let ready = std::mem::take(&mut self.ready).into_iter();
        let ready = ready.map(|(pid, done, _)| (pid, Ok(done)));
        for (pid, result) in ready.chain(self.coming.settle()) {
            match (result, self.target(pid)) {
                (Ok(done), Some(target)) => target.change = Some(change(&done)),
                (Err(reason), Some(target)) => {
                    target.failed = true;
                    tell!("warpbpf: {reason}");
                }
                (_, None) => {}
            }
        }
        signals.forget();
        let there = self.targets.iter().filter(|target| target.change.is_some());
        for pid in there.map(|target| target.pid) {
            let begun = self
                .leaving
                .begin(pid, move |goes_on| Ok(leave(pid, goes_on)));
            if let Err(reason) = begun {
                tell!("warpbpf: {reason}; `warpbpf detach -p {pid}` puts its code back as it was");
            }
        }
        while !self.leaving.is_empty() {
            let ended = match signals.hurried() {
                true => self.leaving.settle(),
                false => self.leaving.take_in(),
            };
            for line in ended
                .into_iter()
                .flat_map(|(_, lines)| lines.unwrap_or_else(|e| vec![e]))
            {
                tell!("warpbpf: {line}");
            }
            std::thread::sleep(TICK);
        }
    }
}

fn change(done: &Done) -> Change {
    Change {
        took: done.took,
        pause: done.pause,
        places: done.patches,
        said: done.said.clone(),
        host: None,
    }
}

impl Target {
    fn new(pid: u32) -> Target {
        Target {
            pid,
            change: None,
            left: false,
            failed: false,
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
        let ends = Ends::default();
        std::thread::scope(|scope| {
            assert!(!Late::look(&[], scope, &ends).unwrap().is_wanted());
            let said = |pid| {
                let looked = Late::look(&[pid], scope, &ends);
                looked.err().map(|error| error.to_string())
            };
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
        });
    }

    #[test]
    fn what_the_tool_says_of_processes_is_taken_by_their_number() {
        let ends = Ends::default();
        std::thread::scope(|scope| {
            let mut late = Late::look(&[], scope, &ends).unwrap();
            // Numbers that no process has.
            late.targets = vec![Target::new(u32::MAX), Target::new(u32::MAX - 1)];
            assert_eq!(late.names(), "process 4294967295, process 4294967294");
            late.take("left", "7").unwrap();
            assert!(late.targets.iter().all(|target| !target.left));
            late.take("left", "4294967294").unwrap();
            assert!(late.targets[1].left && late.have_ended());
            // One of two: the other goes on.
            assert!(!late.has_failed());
            late.take("refused", "4294967295").unwrap();
            assert!(late.has_failed());
            let refused = late.take("refused", "4294967294").unwrap_err();
            assert_eq!(
                refused.to_string(),
                "process 4294967294 does not take the tool's programs; why is said above"
            );
        });
    }
}
