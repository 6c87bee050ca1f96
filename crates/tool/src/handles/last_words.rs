//! How long an agent that is to say its last words is waited for.

use std::time::{Duration, Instant};

use warpbpf_wire::NoteLevel;

use crate::handles::process::Process;
use crate::heard::seen::InContext;
use crate::heard::state::State;

impl State {
    /// How long nothing has come of it. None where that is as it should be.
    fn silent_for(&mut self, now: Instant) -> Duration {
        let seen = self.contexts.iter().map(InContext::progress);
        let seen = seen.fold(0, u64::wrapping_add);
        let lasts = self.silence.lasts(seen, now);
        // Its first tool says for a client when all is there, and is bounded itself.
        match self.host {
            Some(_) => Duration::ZERO,
            None => lasts,
        }
    }
}

impl Process {
    /// Hangs up, and notes it, where the agent has made no progress since `limit`: no message came,
    /// and nothing in the memory that it shares has changed. Each call looks once more, so call
    /// this again and again once the agent was [told to leave](Process::detach). True if nobody is
    /// waited for here any more.
    ///
    /// An agent that waits for kernels says so, and one that copies data changes that memory.
    pub fn give_up_if_silent(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.pump();
        if state.connection.is_none() {
            return true;
        }
        if state.silent_for(Instant::now()) < limit {
            return false;
        }
        let text = format!(
            "process {} has not answered for {} s when it was to let go of its programs, and is not waited for: what is shown of it is as it was copied last",
            state.pid,
            limit.as_secs_f64()
        );
        state.note(NoteLevel::Warning, text);
        state.hang_up();
        true
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_wire::{
        AgentConnection, ContextInfo, Hello, PROTOCOL, SharedWriter, ToTool, ToolConnection,
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// An agent that has said who it is, with a context of one map and a ring.
    fn agent() -> (Process, AgentConnection, SharedWriter) {
        let (tool, agent) = ToolConnection::pair().unwrap();
        let process = Process::new(0, Some(tool), None);
        let mut agent = AgentConnection::trusted(agent).unwrap();
        let hello = Hello {
            protocol: PROTOCOL,
            pid: 7,
            exe: "/bin/stuck".into(),
            argv: Vec::new(),
            device: None,
        };
        say(&mut agent, ToTool::Hello(hello));
        process.pump();
        let (writer, memory) = SharedWriter::create(&[8], 4096).unwrap();
        process.lock().open(ContextInfo::default(), Some(memory));
        (process, agent, writer)
    }

    fn say(agent: &mut AgentConnection, message: ToTool) {
        agent
            .send(&message, &[], None, Duration::from_secs(60))
            .unwrap();
    }

    #[test]
    fn what_an_agent_says_or_copies_is_progress() {
        let (process, mut agent, mut writer) = agent();
        let begun = Instant::now();
        let mut seconds = 0;
        let mut silent = |process: &Process| {
            seconds += 5;
            process.pump();
            let silent = process
                .lock()
                .silent_for(begun + Duration::from_secs(seconds));
            silent.as_secs()
        };
        // From the first look on.
        assert_eq!([(); 3].map(|()| silent(&process)), [0, 5, 10]);
        say(&mut agent, ToTool::Leaving { silent: false });
        assert_eq!([(); 2].map(|()| silent(&process)), [0, 5]);
        writer.publish(0, &[1; 8]).unwrap();
        assert_eq!([(); 2].map(|()| silent(&process)), [0, 5]);
        assert!(writer.push(0, 0, b"an event"));
        assert_eq!([(); 2].map(|()| silent(&process)), [0, 5]);
        // What it knows to come.
        say(&mut agent, ToTool::Leaving { silent: true });
        assert_eq!([(); 3].map(|()| silent(&process)), [0, 0, 0]);
        say(&mut agent, ToTool::Leaving { silent: false });
        assert_eq!([(); 2].map(|()| silent(&process)), [0, 5]);
        // Its first tool is bounded.
        process.lock().host = Some(3);
        assert_eq!([(); 2].map(|()| silent(&process)), [0, 0]);
    }

    #[test]
    fn who_makes_no_progress_is_named_and_not_waited_for() {
        let (process, _agent, _writer) = agent();
        assert!(!process.give_up_if_silent(LIMIT));
        assert!(process.is_connected());
        let long_ago = Instant::now().checked_sub(LIMIT).unwrap();
        let last = process.lock().silence.last.take();
        process.lock().silence.last = last.map(|(what, _)| (what, long_ago));
        assert!(process.give_up_if_silent(LIMIT));
        assert!(!process.is_connected());
        let notes: Vec<String> = process.notes().into_iter().map(|note| note.text).collect();
        assert_eq!(
            notes,
            [
                "process 7 has not answered for 5 s when it was to let go of its programs, and is not waited for: what is shown of it is as it was copied last"
            ]
        );
        // Once.
        assert!(process.give_up_if_silent(LIMIT));
        assert_eq!(process.notes().len(), 1);
    }
}
