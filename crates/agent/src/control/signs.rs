//! Signs of life to a tool that detaches: while kernels are waited for, nothing else is sent, and a
//! tool gives up an agent that makes no progress.

use std::time::{Duration, Instant};

use warpbpf_wire::{AgentConnection, ToTool};

/// Between two signs to the tool that kernels are waited for.
const SIGN: Duration = Duration::from_secs(1);

/// The signs to a tool that detaches that its agent is at work.
pub(crate) struct Signs<'c> {
    connection: &'c mut AgentConnection,
    next: Instant,
}

impl Signs<'_> {
    pub(crate) fn new(connection: &mut AgentConnection) -> Signs<'_> {
        let next = Instant::now() + SIGN;
        Signs { connection, next }
    }

    /// Gives one if it is time, or what comes now `blocks` for as long as kernels run.
    pub(crate) fn turn(&mut self, blocks: bool) {
        if blocks || Instant::now() >= self.next {
            self.next = Instant::now() + SIGN;
            let sign = ToTool::Leaving { silent: blocks };
            // A tool that is gone is met at the good-bye.
            let _ = self.connection.queue(&sign, &[], None);
            let _ = self.connection.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use warpbpf_wire::ToolConnection;

    use super::*;

    #[test]
    fn a_tool_that_detaches_is_given_signs() {
        let (tool, agent) = ToolConnection::pair().unwrap();
        let (mut tool, mut agent) = (tool, AgentConnection::trusted(agent).unwrap());
        let mut said = || {
            let frame = tool.try_recv().unwrap();
            frame.map(|frame| frame.message)
        };
        let mut signs = Signs::new(&mut agent);
        signs.turn(false);
        assert_eq!(said(), None, "it is not time");
        signs.turn(true);
        assert_eq!(said(), Some(ToTool::Leaving { silent: true }));
        signs.next = Instant::now();
        signs.turn(false);
        signs.turn(false);
        assert_eq!(said(), Some(ToTool::Leaving { silent: false }));
        assert_eq!(said(), None);
    }
}
