//! The gate in front of programs, closed and opened: kernels that run learn of it in all contexts,
//! without a load and without a launch.

use std::time::{Duration, Instant};

use warpbpf_session::{Live, Session, Unwritten};
use warpbpf_wire::{NoteLevel, ToTool};

use crate::device::context_registry::ContextState;
use crate::instrument::replace;
use crate::kernels::replacement;
use crate::runtime::agent::Agent;
use crate::sys::lock::tried;
use crate::sys::thread;

/// How long a context may be busy that is being made or ended: where somebody waits for the answer,
/// and where nobody does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const HURRY: Duration = Duration::from_secs(1);
/// Between two looks.
const TICK: Duration = Duration::from_millis(1);

/// Why something was not done in all contexts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotEverywhere {
    #[error("{0}")]
    Unwritten(Unwritten),
    #[error("its context cannot be made current")]
    NotCurrent,
    #[error("a context is being made or ended")]
    Changing,
}

impl NotEverywhere {
    /// Linux's number for it.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            NotEverywhere::Unwritten(Unwritten::Busy) => replacement::EBUSY,
            NotEverywhere::Unwritten(Unwritten::Driver(_) | Unwritten::Missing)
            | NotEverywhere::NotCurrent
            | NotEverywhere::Changing => replacement::EIO,
        }
    }
}

/// Why kernels that run may not know which programs run.
#[derive(Debug, thiserror::Error)]
#[error("the gate cannot be written, and kernels that run may go on as they were: {0}")]
pub(crate) struct GateNotWritten(NotEverywhere);

impl Agent {
    /// Closes the gate or opens it, and answers the tool when kernels that run see it. On a thread
    /// of its own, also while a replacement waits for the driver: a gate is there to end a kernel
    /// that such a replacement waits for.
    pub(crate) fn change_gate(&'static self, token: u64, open: bool, names: Vec<String>) {
        let Some(session) = self.generations.now().session.get() else {
            let message = "no programs are attached that could be stopped".to_owned();
            return self.refuse_change(token, replacement::EINVAL, message);
        };
        if let Err(error) = session.set_gate(open, &names) {
            return self.refuse_change(token, replacement::EINVAL, error.to_string());
        }
        let started = thread::start("warpbpf-gate", move || {
            let _working = self.replacement.writes();
            if !self.is_on() {
                return;
            }
            let written = self.write_gates(PATIENCE);
            // A replacement may have come into force meanwhile.
            let Some(session) = self.generations.now().session.get() else {
                return;
            };
            match written {
                Ok(()) => self.send(
                    ToTool::Changed(replace::in_force(self, token, session)),
                    None,
                ),
                Err(error) => self.refuse_change(token, replacement::EIO, error.to_string()),
            }
            self.wake();
        });
        if let Err(error) = started {
            let message = format!("no thread can be started that writes the gate: {error}");
            self.refuse_change(token, replacement::EAGAIN, message);
        }
    }

    /// No program runs in a kernel any more, if there is a gate: the tool goes.
    pub(crate) fn shut_gates(&self) {
        let session = self.generations.now().session.get();
        if session.is_some_and(|session| session.set_gate(false, &[]).is_ok()) {
            // Nobody is left to be told.
            let _ = self.write_gates(HURRY);
        }
    }

    /// Programs of `before` that `next` has not stop in kernels that run with them.
    pub(crate) fn close_gates(&self, before: &Session, next: &Session) {
        let (any, late) = before.close_those_without(next);
        if !late.is_empty() {
            self.note(
                NoteLevel::Info,
                format!(
                    "kernels that run go on with `{}`: the gate has room for the first 63 programs of a session",
                    late.join("`, `")
                ),
            );
        }
        let written = if any {
            self.write_gates(PATIENCE)
        } else {
            Ok(())
        };
        if let Err(error) = written {
            self.note(NoteLevel::Warning, error.to_string());
        }
    }

    /// Writes it in all contexts, of which each is waited for so long at most.
    pub(crate) fn write_gates(&self, patience: Duration) -> Result<(), GateNotWritten> {
        let written = self.in_all_contexts(patience, &Live::write_gate);
        written.map_err(GateNotWritten)
    }

    /// Does something in all contexts: why not in one of them. One that is
    /// being made or ended just now, which may take as long as kernels run, holds up no other, and
    /// is waited for so long at most.
    pub(crate) fn in_all_contexts(
        &self,
        patience: Duration,
        act: &dyn Fn(&Live) -> Result<(), Unwritten>,
    ) -> Result<(), NotEverywhere> {
        let end = Instant::now() + patience;
        let (mut failed, mut left) = (None, self.context_registry.all());
        loop {
            left.retain(|shard| {
                let Some(state) = tried(shard.state.try_read()) else {
                    return true;
                };
                if let ContextState::Here(live) = &*state {
                    match self.driver.within(live.context(), || act(live)) {
                        Some(Ok(())) => {}
                        Some(Err(error)) => failed = Some(NotEverywhere::Unwritten(error)),
                        None => failed = Some(NotEverywhere::NotCurrent),
                    }
                }
                false
            });
            if left.is_empty() || Instant::now() >= end {
                break;
            }
            std::thread::sleep(TICK);
        }
        if !left.is_empty() {
            failed = Some(NotEverywhere::Changing);
        }
        failed.map_or(Ok(()), Err)
    }
}
