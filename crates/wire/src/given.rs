//! What `warpbpf loader` hands to the tool that it has started: agents that it has put into
//! processes which run already.

use serde::{Deserialize, Serialize};

use crate::connection::{Connection, Message};

/// An agent. The frame carries the tool's end of the connection with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The process that it is in.
    pub pid: u32,
}

impl Message for Given {
    fn most_blob(&self) -> usize {
        0
    }
}

/// The end of who hands over.
pub type Giver = Connection<Given, ()>;
/// The tool's end.
pub type Taker = Connection<(), Given>;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_process_comes_with_its_connection() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut giver = Giver::trusted(ours).unwrap();
        let mut taker = Taker::trusted(theirs).unwrap();
        let mut ends = Vec::new();
        for pid in [7, 8] {
            let (mut agent, tool) = UnixStream::pair().unwrap();
            agent.write_all(&[pid as u8]).unwrap();
            ends.push(agent);
            let given = Given { pid };
            let sent = giver.send(&given, &[], Some(tool.into()), Duration::from_secs(5));
            sent.unwrap();
        }
        for pid in [7u32, 8] {
            let frame = taker.try_recv().unwrap().unwrap();
            let mut byte = [0];
            let mut connection = UnixStream::from(frame.fd.unwrap());
            connection.read_exact(&mut byte).unwrap();
            assert_eq!((frame.message.pid, byte[0]), (pid, pid as u8));
        }
        assert!(taker.try_recv().unwrap().is_none());
        drop(giver);
        taker.try_recv().unwrap_err();
    }
}
