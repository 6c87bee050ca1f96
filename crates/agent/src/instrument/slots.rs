//! Programs put into slots of kernels that run, and taken out of them: proved and translated here,
//! brought by a copy to all contexts, and in force there when the word is written that the gate is
//! in too. Nothing is loaded, so no kernel is waited for, but who runs what was there before the
//! last replacement of this kind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_session::{Filling, Live, Session, Unwritten};
use warpbpf_wire::ToTool;

use crate::instrument::gate::PATIENCE;
use crate::instrument::replace;
use crate::kernels::replacement;
use crate::runtime::agent::Agent;
use crate::sys::thread;

/// How long those may be waited for, in all contexts together, who run what was in slots before.
const READERS: Duration = Duration::from_secs(2);

impl Agent {
    /// Puts the programs of an object into slots, or none, and answers the tool when kernels that
    /// run have them.
    pub(crate) fn change_slots(
        &'static self,
        token: u64,
        object: Option<Vec<u8>>,
        limit: Duration,
    ) {
        let Some(session) = self.generations.now().session.get() else {
            let message = "no programs are attached beside which there could be slots".to_owned();
            return self.refuse_change(token, replacement::EINVAL, message);
        };
        let session = Arc::clone(session);
        let started = thread::start_large("warpbpf-slots", move || {
            // Proof and translation keep nobody from the gate.
            let made = made(&session, object.as_deref());
            let _working = self.replacement.writes();
            if !self.is_on() {
                return;
            }
            let done = made.and_then(|filling| {
                // Programs for slots are made beside those that were in force.
                let now = self.generations.now().session.get();
                let same = now.is_some_and(|now| Arc::ptr_eq(now, &session));
                if filling.is_some() && !same {
                    let message = "programs were replaced meanwhile: try again".to_owned();
                    return Err((replacement::EAGAIN, message));
                }
                self.replace_in_slots(&session, filling, limit.min(READERS))
            });
            // A replacement may have come into force meanwhile.
            let Some(session) = self.generations.now().session.get() else {
                return;
            };
            match done {
                Ok(()) => self.send(
                    ToTool::Changed(replace::in_force(self, token, session)),
                    None,
                ),
                Err((errno, message)) => self.refuse_change(token, errno, message),
            }
            self.wake();
        });
        if let Err(error) = started {
            let message = format!("no thread can be started that fills slots: {error}");
            self.refuse_change(token, replacement::EAGAIN, message);
        }
    }

    fn replace_in_slots(
        &self,
        session: &Session,
        filling: Option<Arc<Filling>>,
        limit: Duration,
    ) -> Result<(), (i32, String)> {
        if let Some(filling) = &filling {
            let end = Instant::now() + limit;
            let goes_on = || self.is_on();
            let bring = |live: &Live| {
                if !goes_on() {
                    return Err(Unwritten::Busy);
                }
                let left = end.saturating_duration_since(Instant::now());
                live.bring_to_slots(filling, left, &goes_on)
            };
            self.in_all_contexts(PATIENCE, &bring).map_err(|error| {
                let message = format!("slots are as they were: {error}");
                (error.errno(), message)
            })?;
        }
        session.fill_slots(filling);
        self.write_gates(PATIENCE)
            .map_err(|error| (replacement::EIO, error.to_string()))
    }
}

/// The programs of an object, for slots of a session; without an object none.
fn made(
    session: &Arc<Session>,
    object: Option<&[u8]>,
) -> Result<Option<Arc<Filling>>, (i32, String)> {
    match object {
        Some(object) => {
            let filling = session.filling(object);
            let filling = filling.map_err(|error| (replacement::EINVAL, error.to_string()))?;
            Ok(Some(Arc::new(filling)))
        }
        None if session.has_slots() => Ok(None),
        None => {
            let message = warpbpf_session::SlotError::None.to_string();
            Err((replacement::EINVAL, message))
        }
    }
}
