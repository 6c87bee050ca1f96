//! What the tool's lookups and changes are answered from: the application itself while it runs,
//! then what it has left behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_wire::{MapOp, OpCode, Outcome, ToAgent, decode_outcomes, encode_ops};

use super::agent::{Agent, Copies, FRESH};
use super::live::{Live, State};
use crate::kernel::Tell;
use crate::objects::session::{Copied, Session};

/// How many times as long as it took to make a copy lookups are answered from it, if that is longer
/// than [`FRESH`]. Else a walk through a large map would be nothing but copies of it.
const COPY_SHARE: u32 = 2;
/// But no longer than this, whatever held the application up.
const STALE: Duration = Duration::from_millis(500);
/// A map with a larger copy is large.
const LARGE: u64 = 1 << 20;
/// Lookups without a change between them that are asked for one by one, before a copy is made for
/// those that follow.
const SINGLES: u32 = 64;

/// The session of the application that came last.
impl Session for Live {
    fn number(&self, map: usize) -> Option<u32> {
        let mut state = self.state();
        let (agent, _) = state.current(self.tell)?;
        agent.offer.gathered.numbers.get(&map).copied()
    }

    fn sms(&self) -> u32 {
        let state = self.state();
        let all = |agent: &Agent| agent.sms * agent.contexts.len().max(1) as u32;
        state.agents.last().map_or(1, all)
    }

    fn copied(&self, number: u32) -> Result<Option<Copied>, Errno> {
        let mut state = self.state();
        let Some((agent, token)) = state.current(self.tell) else {
            return Ok(None);
        };
        let before = agent.refreshed;
        let begun = Instant::now();
        agent.refresh(token, self.tell)?;
        let copy = agent.copy(number);
        if agent.refreshed != before {
            let took = begun.elapsed();
            agent.fresh = took + (took * COPY_SHARE).clamp(FRESH, STALE);
            agent.refreshed = Some(begun);
        }
        Ok(copy)
    }

    fn gives_up_singles(&self) {
        if let Some((agent, _)) = self.state().current(self.tell) {
            agent.singles = SINGLES;
        }
    }

    fn asks_singly(&self, number: u32) -> bool {
        let mut state = self.state();
        let Some((agent, _)) = state.current(self.tell) else {
            return false;
        };
        let plan = agent.maps.get(number as usize).and_then(Option::as_ref);
        let large = plan.is_some_and(|plan| plan.snapshot_bytes() > LARGE);
        let single = large
            && agent.connection.is_some()
            && agent.refreshed.is_none()
            && agent.singles < SINGLES;
        agent.singles += u32::from(single);
        single
    }

    fn operate(&self, number: u32, ops: &[MapOp<'_>]) -> Result<Vec<Outcome>, Errno> {
        let mut state = self.state();
        let (agent, token) = state.current(self.tell).ok_or(Errno::IO)?;
        agent.take_messages(self.tell);
        if agent.connection.is_none() {
            return agent.operate_after(number, ops);
        }
        let message = ToAgent::MapOps { token, map: number };
        if let Err(errno) = agent.send(&message, &encode_ops(ops)) {
            // One that has just ended has done nothing of it.
            agent.take_messages(self.tell);
            return match agent.connection {
                Some(_) => Err(errno),
                None => agent.operate_after(number, ops),
            };
        }
        agent.asked = Some(token);
        let waited = agent.wait(self.tell, |agent| agent.answer.is_some());
        let looks = ops.iter().all(|op| op.code == OpCode::Lookup);
        // Even if it comes too late, the map may have changed.
        if !looks {
            agent.refreshed = None;
            agent.singles = 0;
        }
        agent.asked = None;
        let answer = agent.answer.take();
        if waited.is_err() && agent.connection.is_none() && looks {
            return agent.operate_after(number, ops);
        }
        waited?;
        match answer {
            Some(Ok(blob)) => decode_outcomes(&blob).map_err(|_| Errno::IO),
            Some(Err(text)) => {
                (self.tell)(&text);
                Err(Errno::OPNOTSUPP)
            }
            None => Err(Errno::IO),
        }
    }
}

impl State {
    /// The application that came last, of those with maps, and a number for what it is asked next.
    fn current(&mut self, tell: Tell) -> Option<(&mut Agent, u64)> {
        for agent in self.agents.iter_mut().rev() {
            self.token += 2;
            agent.look(self.token - 1, tell);
            if !agent.contexts.is_empty() {
                return Some((agent, self.token));
            }
        }
        None
    }
}

impl Agent {
    fn is_fresh(&self) -> bool {
        self.refreshed.is_some_and(|at| at.elapsed() < self.fresh)
    }

    /// Brings the shared memory up to date.
    fn refresh(&mut self, token: u64, tell: Tell) -> Result<(), Errno> {
        if self.connection.is_none() || self.is_fresh() {
            return Ok(());
        }
        let sent = self.send(&ToAgent::Snapshot { token }, &[]);
        let came = sent.and_then(|()| self.wait(tell, |agent| agent.snapshotted >= token));
        if came.is_err() {
            // One that cannot be written to may be gone, which is noticed by reading.
            self.take_messages(tell);
        }
        // An agent that is gone has left its last copy.
        if came.is_err() && self.connection.is_some() {
            return came;
        }
        self.refreshed = Some(Instant::now());
        Ok(())
    }

    /// Hears of a context that it has by now. What it launched has run in one that it tells of
    /// before it says that all is copied.
    fn look(&mut self, token: u64, tell: Tell) {
        let asks = self.contexts.is_empty() && !self.refused && !self.left;
        if !asks || self.connection.is_none() {
            return;
        }
        self.take_messages(tell);
        // One that is stopped is waited for once.
        if self.contexts.is_empty() && self.looked <= self.snapshotted && !self.is_fresh() {
            self.looked = token;
            // One that is gone, or late, has none.
            let _ = self.refresh(token, tell);
        }
    }

    pub(super) fn copy(&mut self, number: u32) -> Option<Copied> {
        let plan = self.maps.get(number as usize)?.clone()?;
        if let Some(parts) = self.after.get(&number) {
            let parts = parts.clone();
            return Some(Copied { plan, parts });
        }
        let at = number as usize;
        let contexts = self.contexts.iter();
        let now: Vec<u64> = contexts.map(|(_, shared)| shared.sequence(at)).collect();
        if let Some(copies) = self.copies.get(&number)
            && copies.sequences == now
        {
            let parts = copies.parts.clone();
            return Some(Copied { plan, parts });
        }
        let (mut sequences, mut parts) = (Vec::new(), Vec::new());
        for (_, shared) in &self.contexts {
            let mut bytes = Vec::new();
            match shared.snapshot(at, &mut bytes).ok()? {
                Some(sequence) => sequences.push(sequence),
                None if parts.is_empty() => return None,
                // A context that has just come.
                None => {
                    sequences.push(0);
                    bytes = vec![0; plan.snapshot_bytes() as usize];
                }
            }
            parts.push(bytes);
        }
        if parts.is_empty() {
            return None;
        }
        let parts = Arc::new(parts);
        let copies = Copies {
            sequences,
            parts: parts.clone(),
        };
        self.copies.insert(number, copies);
        Some(Copied { plan, parts })
    }
}
