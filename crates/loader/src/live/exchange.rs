//! Other programs for applications that run: what `BPF_LINK_UPDATE` asks for. Maps keep their numbers, so only programs with the same maps can
//! take the place of others; an application that comes later gets what is attached then in any case.

use std::time::{Duration, Instant};

use warpbpf_wire::{Change, ToAgent};

use super::{Agent, Live};
use crate::gather::Gathered;

/// How long an application may take: code of every kernel is compiled, and loaded beside kernels that run.
const LIMIT: Duration = Duration::from_secs(30);
/// How much longer it may take to say so.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks for an answer, while the thread that reads events goes on.
const LOOK: Duration = Duration::from_micros(500);

impl Live {
    /// Puts these programs in place of those that run. When this returns, the next launch of every application has them.
    ///
    /// # Errors
    /// Why one of them still has the old ones.
    pub fn exchange(&self, gathered: &Gathered) -> Result<(), String> {
        let object = warpbpf_object::load(&gathered.object).map_err(|error| error.to_string())?;
        let mut asked = Vec::new();
        let (mut running, mut refusals) = (0usize, Vec::new());
        {
            let mut state = self.state();
            for at in 0..state.agents.len() {
                state.token += 1;
                let token = state.token;
                match state.agents[at].begin_exchange(gathered, token) {
                    Ok(true) => asked.push((at, token)),
                    Ok(false) => continue,
                    Err(why) => refusals.push(why),
                }
                running += 1;
            }
        }
        let end = Instant::now() + LIMIT + GRACE;
        for (at, token) in asked {
            let answer = loop {
                let mut state = self.state();
                let agent = &mut state.agents[at];
                agent.take_messages(self.tell);
                let changed = agent.changed.take_if(|changed| changed.token == token);
                match changed.map(|changed| changed.refused) {
                    Some(None) => {
                        agent.offer.gathered = gathered.clone();
                        agent.offer.object = object.clone();
                        break Ok(());
                    }
                    Some(Some(refusal)) => break Err(refusal.message),
                    // It has ended, and launches nothing any more.
                    None if agent.connection.is_none() => break Ok(()),
                    None if Instant::now() > end => break Err("it does not answer".to_owned()),
                    None => {}
                }
                drop(state);
                std::thread::sleep(LOOK);
            };
            refusals.extend(answer.err());
        }
        match refusals.first() {
            None => Ok(()),
            Some(why) => Err(format!(
                "{} of {running} keep the old one: {why}",
                refusals.len()
            )),
        }
    }
}

impl Agent {
    /// Asks for it. False: the application has ended.
    fn begin_exchange(&mut self, gathered: &Gathered, token: u64) -> Result<bool, String> {
        if self.connection.is_none() {
            return Ok(false);
        }
        let known = &self.offer.gathered;
        if (&known.names, &known.numbers) != (&gathered.names, &gathered.numbers) {
            return Err(format!(
                "the maps of its programs were {}, and would be {}",
                known.names.join(", "),
                gathered.names.join(", ")
            ));
        }
        self.changed = None;
        let message = ToAgent::Change {
            token,
            change: Change::Replace,
            limit_ms: LIMIT.as_millis() as u64,
        };
        let sent = self.send(&message, &gathered.object);
        sent.map(|()| true)
            .map_err(|errno| format!("it cannot be told: {errno}"))
    }
}
