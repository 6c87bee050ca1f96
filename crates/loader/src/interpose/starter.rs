//! Who started this process, as `warpbpf loader` does: it is told what happens, and gives the
//! agents that it has put into processes that ran already.

use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, RawFd};

use warpbpf_wire::Taker;

use super::global::live;
use super::variables::number;

/// Environment: a descriptor that is told, a line each, `ranges` (what is attached needs the
/// application's calls of NVTX), `ready PATH`, `agent`, `placed` (a kernel has a program) and
/// `done`; and of agents that came from there ([`warpbpf_wire::Given`])
/// `attached PID`, `refused PID` and `left PID`.
const NOTIFY: &str = "WARPBPF_LOADER_NOTIFY";
/// Begins a line of that: what is to be said if a signal ends this process.
pub const WORDS: &str = "words";
/// Stands between two sentences.
const BETWEEN: &str = "\x1f";

/// The descriptor that who started this process has left for us.
fn notified() -> Option<RawFd> {
    number(NOTIFY).filter(|fd| *fd > 2)
}

/// Tells it a line.
pub fn notify(line: &str) {
    let Some(fd) = notified() else { return };
    // SAFETY: the descriptor was made for this process by who started it, and stays open: the file
    // is not dropped.
    let mut file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    // Who does not listen any more does not wait either.
    let _ = file.write_all(format!("{line}\n").as_bytes());
    let _ = file.as_raw_fd();
}

/// Where agents come from that others have put into processes.
pub fn taker() -> Option<Taker> {
    // SAFETY: as in `notify`; a name of our own is made of it at once.
    let named = unsafe { BorrowedFd::borrow_raw(notified()?) };
    Taker::trusted(named.try_clone_to_owned().ok()?).ok()
}

/// Takes those that are there. `None` once nobody gives any more.
pub fn take_given(taker: Option<Taker>) -> Option<Taker> {
    let mut taker = taker?;
    while let Some(frame) = taker.try_recv().ok()? {
        if let Some(socket) = frame.fd {
            live().give(frame.message.pid, socket);
        }
    }
    Some(taker)
}

/// Has who started this process know what is to be said if a signal ends it, which nobody in it can
/// say then.
pub fn leave_word(left: &mut Vec<String>) {
    let words = live().last_words();
    if words != *left {
        let lines: Vec<String> = words.iter().map(|text| text.replace('\n', " ")).collect();
        notify(&format!("{WORDS} {}", lines.join(BETWEEN)));
        *left = words;
    }
}
