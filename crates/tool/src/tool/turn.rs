//! What a tool's thread does again and again: it lets agents in and hears all who speak.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::handles::process::Process;
use crate::lock::lock;
use crate::tool::shared::Shared;

/// How long the thread sleeps when nobody says anything.
const TICK: Duration = Duration::from_millis(20);
/// The same during a handshake.
const HANDSHAKE_TICK: Duration = Duration::from_millis(1);
/// Agents that are let in before those are heard that are there.
const LET_IN: usize = 32;
impl Shared {
    /// Waits for whoever speaks first, and hears all who have something to say.
    pub(crate) fn turn(self: &Arc<Shared>) {
        let processes = lock(&self.processes).clone();
        self.wait(&processes);
        // A listening socket that is broken now is broken next time too: the processes that are
        // there still count. So do they where somebody connects without end.
        for _ in 0..LET_IN {
            if !self.handshakes.have_room() {
                break;
            }
            match self.listener.accept(Duration::ZERO) {
                Ok(Some(connection)) => self.begin_handshake(connection),
                Ok(None) => break,
                Err(error) => {
                    *lock(&self.deaf) = Some(error.to_string());
                    // Who waits there would end each wait at once.
                    std::thread::sleep(TICK);
                    break;
                }
            }
        }
        for process in &processes {
            process.pump();
        }
        self.part_with_silent();
        if let Some(server) = &mut *lock(&self.server) {
            let command = lock(&self.command).clone();
            server.turn(&processes, &command, self.object.as_ref());
        }
    }

    /// Whoever has programs beside this tool's is not left without a word.
    pub(crate) fn farewell(&self) {
        for process in &*lock(&self.processes) {
            process.pump();
        }
        if let Some(server) = &mut *lock(&self.server) {
            server.farewell();
        }
    }

    fn wait(&self, processes: &[Process]) {
        let server = lock(&self.server);
        let sockets: Vec<_> = processes.iter().filter_map(Process::socket).collect();
        let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
        // Who has to wait for its handshake would end each wait at once.
        fds.extend(self.handshakes.have_room().then(|| self.listener.as_fd()));
        fds.extend(sockets.iter().map(|socket| socket.as_fd()));
        if let Some(server) = &*server {
            server.sockets(&mut fds);
        }
        let mut set: Vec<PollFd<'_>> = fds
            .into_iter()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Who is in a handshake is soon one to be heard.
        let tick = match self.handshakes.are_there() {
            true => HANDSHAKE_TICK,
            false => TICK,
        };
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(tick.subsec_nanos()),
        };
        // An interrupted wait is a short one.
        let _ = poll(&mut set, Some(&timeout));
    }
}
