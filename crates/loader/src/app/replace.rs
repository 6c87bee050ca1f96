//! Other programs for applications that run, when the tool attaches one, ends one of several, or
//! gives a link another one. Maps keep their names and numbers there, so only programs come in
//! whose maps an application had from its start; one that comes later gets what is attached then in
//! any case.
//!
//! The thread that serves applications asks for replacements, one at a time of each application,
//! and always for what is attached by then. So calls that follow each other quickly cost fewer
//! replacements than there are calls, and none if no application runs.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_wire::{Change, ToAgent};

use super::agent::Agent;
use super::live::Live;
use super::running::{Asked, apart};
use crate::kernel::gather::{Gathered, MapNames};
use crate::kernel::program_error::GatherError;
use crate::kernel::{Kernel, Tell};
use crate::objects::prog::Programs;

/// How long an application may take: code of every kernel is compiled, and loaded while none runs.
const LIMIT: Duration = Duration::from_secs(30);
/// How much longer it may take to say so.
const GRACE: Duration = Duration::from_secs(5);

/// How long after programs could not be taken out that is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The token of what nobody waits for.
const NOBODY: u64 = 0;

/// How long a call that brings a program waits for applications.
pub const BEGIN: Duration = LIMIT.saturating_add(GRACE);
/// How long one that ends a program does. Tools end all that they have, one after the other, when
/// they end themselves.
pub const END: Duration = Duration::from_secs(1);

/// What is to run now.
pub struct Wanted {
    /// The kernel's version that this is of.
    version: u64,
    /// Programs in kernels.
    in_kernels: Programs,
    /// Programs at functions on the CPU.
    on_cpu: Programs,
    /// Programs in kernels that cannot come in, with what is told.
    strange: Vec<(usize, String)>,
    /// The first ones as an object.
    gathered: Result<Gathered, GatherError>,
}

/// Why an application is not asked for what is attached now.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    /// The programs cannot be made one object.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// It does not take the request.
    #[error("it cannot be told: {errno}")]
    Tell {
        /// What became of the message.
        errno: Errno,
    },
}

impl Wanted {
    /// What is attached now, for an application that knows maps by these names.
    pub fn new(kernel: &mut Kernel, names: &MapNames) -> Wanted {
        kernel.note_more_written();
        let (on_cpu, mut in_kernels) = apart(kernel.attached());
        let mut strange = Vec::new();
        in_kernels.retain(|(at, _)| {
            let unknown = kernel.unknown_maps(*at, names);
            let name = kernel.progs.get(*at).map_or("", |prog| &prog.name);
            let missing = unknown.join("`, `");
            let text = format!(
                "program `{name}` is only in applications that start from now on: this one has no map `{missing}`, and maps are made when an application starts; load the program before"
            );
            strange.extend((!unknown.is_empty()).then_some((*at, text)));
            unknown.is_empty()
        });
        Wanted {
            version: kernel.version,
            gathered: kernel.gather_beside(&in_kernels, &[], names),
            in_kernels,
            on_cpu,
            strange,
        }
    }
}

impl Wanted {
    /// Nothing is attached any more.
    pub fn ends_all(&self) -> bool {
        self.in_kernels.is_empty() && self.on_cpu.is_empty() && self.strange.is_empty()
    }
}

impl Live {
    /// Applications that do not have this version of what is attached and can be asked for it, each
    /// with its names of maps.
    pub fn behind(&self, version: u64) -> Vec<(usize, MapNames)> {
        let state = self.state();
        let behind = (state.agents.iter().enumerate())
            .filter(|(_, agent)| agent.is_behind(version) || agent.is_due())
            .filter(|(_, agent)| agent.running.asked.is_none());
        let names = |agent: &Agent| {
            let known = &agent.offer.gathered;
            let name = |(at, number): (&usize, &u32)| {
                Some((*at, known.names.get(*number as usize)?.clone()))
            };
            known.numbers.iter().filter_map(name).collect()
        };
        behind.map(|(at, agent)| (at, names(agent))).collect()
    }

    /// Asks one of them for it.
    pub fn ask_for(&self, at: usize, wanted: Wanted) {
        let mut state = self.state();
        state.token += 1;
        let token = state.token;
        if let Some(agent) = state.agents.get_mut(at) {
            agent.ask_for(wanted, token, self.tell);
        }
    }

    /// Every application that runs has this version, or will not.
    pub fn is_settled(&self, version: u64) -> bool {
        let state = self.state();
        !state.agents.iter().any(|agent| agent.is_behind(version))
    }

    /// A replacement takes longer than who ends a program waits.
    pub fn is_slow(&self) -> bool {
        let state = self.state();
        let mut asked = (state.agents.iter()).filter_map(|agent| agent.running.asked.as_ref());
        asked.any(|asked| asked.since.elapsed() > END)
    }

    /// Every application that was told that all have ended launches originals only.
    pub fn is_let_go(&self) -> bool {
        let state = self.state();
        !(state.agents.iter()).any(|agent| agent.left && agent.connection.is_some())
    }

    /// Programs have been taken out of an application for good, as all of them had ended, since
    /// this was last asked.
    pub fn was_left(&self) -> bool {
        let mut state = self.state();
        let mut agents = state.agents.iter_mut();
        let new = agents.any(|agent| agent.left && !agent.left_told);
        agents = state.agents.iter_mut();
        agents.for_each(|agent| agent.left_told = agent.left);
        new
    }
}

impl Agent {
    /// It takes what is attached.
    fn goes_on(&self) -> bool {
        let stays = self.left || self.refused || self.offer.launches;
        self.connection.is_some() && !stays
    }

    fn is_behind(&self, version: u64) -> bool {
        self.goes_on() && self.running.version < version
    }

    /// It may be asked again for the end of programs; nobody waits for that.
    fn is_due(&self) -> bool {
        self.goes_on() && (self.running.again).is_some_and(|at| at <= Instant::now())
    }

    /// Tells it that all have ended, once.
    pub(super) fn let_go(&mut self) {
        if self.connection.is_some() && !self.left {
            self.left = true;
            // An agent that is gone has nothing attached either.
            let _ = self.send(&ToAgent::Detach, &[]);
        }
    }

    fn ask_for(&mut self, wanted: Wanted, token: u64, tell: Tell) {
        let version = wanted.version;
        (self.running.again, self.running.late) = (None, None);
        let known = |program: &(usize, String)| {
            self.running
                .on_cpu
                .iter()
                .any(|(known, ..)| known == program)
        };
        let mut new = wanted.on_cpu.iter().filter(|program| !known(program));
        if new.any(|(at, _)| self.running.told.insert(*at)) {
            tell(&format!(
                "process {}: programs at functions on the CPU come in when an application starts; what the tool attaches there now is only in applications that start from now on",
                self.pid
            ));
        }
        for (at, text) in &wanted.strange {
            if self.running.told.insert(*at) {
                tell(&format!("process {}: {text}", self.pid));
            }
        }
        match self.send_change(wanted, token) {
            Ok(Some(asked)) => self.running.asked = Some(asked),
            Ok(None) => self.running.version = version,
            Err(why) => {
                let why = why.to_string();
                self.running.version = version;
                match self.running.again {
                    Some(_) => self.tell_running(&why, tell),
                    None => self.tell_kept(&why, tell),
                }
            }
        }
    }

    /// `None` if there is nothing to replace.
    fn send_change(&mut self, wanted: Wanted, token: u64) -> Result<Option<Asked>, ChangeError> {
        let running = &self.running;
        // When all have ended, applications are let go.
        let ended = wanted.ends_all();
        let in_kernels = wanted.in_kernels;
        if ended {
            // It has not been, if it came while they ended.
            self.let_go();
            return Ok(None);
        }
        let turns = |(program, _, runs): &(_, _, bool)| wanted.on_cpu.contains(program) != *runs;
        let turned = running.on_cpu.iter().any(turns);
        if running.in_kernels.as_ref() == Some(&in_kernels) {
            if !turned {
                return Ok(None);
            }
            let names = running.names.clone();
            self.turn_on_cpu(&wanted.on_cpu, token)?;
            return Ok(Some(Asked {
                token,
                since: Instant::now(),
                version: wanted.version,
                in_kernels,
                names,
                only_ends: true,
            }));
        }
        if turned {
            // It does things in order, so the answer to what follows is one to this, too.
            self.turn_on_cpu(&wanted.on_cpu, NOBODY)?;
        }
        let running = &self.running;
        let there = |program| running.in_kernels.iter().flatten().any(|p| p == program);
        // Where what comes was refused, those that have ended end all the same.
        let only_ends =
            in_kernels.iter().all(there) || running.refused.as_ref() == Some(&in_kernels);
        let (change, object, in_kernels, names) = match only_ends {
            true => {
                let (stay, names, programs) = running.without(&in_kernels);
                if programs.is_empty() {
                    return Ok(None);
                }
                (Change::Remove { programs }, Vec::new(), stay, names)
            }
            false => {
                let gathered = wanted.gathered?;
                let Gathered {
                    object, programs, ..
                } = gathered;
                (Change::Replace, object, in_kernels, programs)
            }
        };
        self.changed = None;
        let message = ToAgent::Change {
            token,
            change,
            limit_ms: LIMIT.as_millis() as u64,
        };
        if let Err(errno) = self.send(&message, &object) {
            // It may get there all the same.
            self.running.in_kernels = None;
            self.running.again = only_ends.then(|| Instant::now() + PAUSE);
            return Err(ChangeError::Tell { errno });
        }
        Ok(Some(Asked {
            token,
            since: Instant::now(),
            version: wanted.version,
            in_kernels,
            names,
            only_ends,
        }))
    }

    /// Tells it which of the programs on the CPU that it began with run.
    fn turn_on_cpu(&mut self, wanted: &Programs, token: u64) -> Result<(), ChangeError> {
        let mut programs = Vec::new();
        for (program, name, runs) in &mut self.running.on_cpu {
            *runs = wanted.contains(program);
            programs.extend(runs.then(|| name.clone()));
        }
        self.changed = None;
        let message = ToAgent::Change {
            token,
            change: Change::OnCpu { programs },
            limit_ms: LIMIT.as_millis() as u64,
        };
        let sent = self.send(&message, &[]);
        sent.map_err(|errno| ChangeError::Tell { errno })
    }

    /// Looks what became of what it was asked for.
    pub(super) fn settle(&mut self, tell: Tell) {
        self.settle_late();
        let Some(asked) = &self.running.asked else {
            return;
        };
        let changed = self.changed.take_if(|changed| changed.token == asked.token);
        let late = asked.since.elapsed() > BEGIN;
        // One that has ended launches nothing any more.
        if changed.is_none() && self.connection.is_some() && !late {
            return;
        }
        let Some(asked) = self.running.asked.take() else {
            return;
        };
        let version = asked.version;
        match changed.map(|changed| changed.refused) {
            Some(None) => self.running.take(asked),
            Some(Some(refusal)) if asked.only_ends => {
                self.tell_running(&refusal.message, tell);
                self.running.again = Some(Instant::now() + PAUSE);
            }
            Some(Some(refusal)) => {
                self.tell_kept(&refusal.message, tell);
                // It is asked once more, for the end of others.
                self.running.refused = Some(asked.in_kernels);
                return;
            }
            None if self.connection.is_none() => {}
            None => {
                self.running.in_kernels = None;
                match asked.only_ends {
                    true => self.tell_running("it does not answer", tell),
                    false => self.tell_kept("it does not answer", tell),
                }
                self.running.late = Some(asked);
            }
        }
        self.running.version = version;
    }

    /// An answer that came too late says what runs all the same.
    fn settle_late(&mut self) {
        let Some(late) = &self.running.late else {
            return;
        };
        let token = late.token;
        let changed = self.changed.take_if(|changed| changed.token == token);
        let Some(changed) = changed else { return };
        let Some(late) = self.running.late.take() else {
            return;
        };
        match changed.refused {
            None => self.running.take(late),
            Some(_) if late.only_ends => self.running.again = Some(Instant::now()),
            Some(_) => {}
        }
    }

    fn tell_kept(&self, why: &str, tell: Tell) {
        tell(&format!(
            "process {} does not get what is attached now, and only applications that start from now on do: {why}",
            self.pid
        ));
    }

    /// Once, until it has let one go.
    fn tell_running(&mut self, why: &str, tell: Tell) {
        if !std::mem::replace(&mut self.running.told_running, true) {
            tell(&format!(
                "process {} still runs programs that have ended: {why}",
                self.pid
            ));
        }
    }
}
