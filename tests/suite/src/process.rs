//! Signals, and the end of what a case has started, by system calls: a small machine has no command
//! `kill`, and whatever goes wrong in a case, it waits for nobody for ever and leaves nobody
//! behind.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output};

/// What a process can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\.
    Quit,
    /// What the tests' tools answer with a line.
    Question,
    Stop,
    /// Ctrl-Z.
    Terminal,
    GoOn,
    /// The end, which nobody can refuse.
    Kill,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Signal::Interrupt => libc::SIGINT,
            Signal::Quit => libc::SIGQUIT,
            Signal::Question => libc::SIGUSR1,
            Signal::Stop => libc::SIGSTOP,
            Signal::Terminal => libc::SIGTSTP,
            Signal::GoOn => libc::SIGCONT,
            Signal::Kill => libc::SIGKILL,
        }
    }
}

/// Tells a process.
pub fn signal(pid: u32, signal: Signal) -> Result<(), String> {
    send(number(pid)?, signal).map_err(|e| format!("{signal:?} for process {pid}: {e}"))
}

/// Tells all processes of a group, which has the number of the one that began it.
pub fn signal_group(leader: u32, signal: Signal) -> Result<(), String> {
    let sent = send(-number(leader)?, signal);
    sent.map_err(|e| format!("{signal:?} for the processes of group {leader}: {e}"))
}

/// A number that means one process, or its group: 0 would be our own group, and -1 everybody.
fn number(pid: u32) -> Result<libc::pid_t, String> {
    let number = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1);
    number.ok_or_else(|| format!("{pid} is not the number of a process that we may end"))
}

fn send(to: libc::pid_t, signal: Signal) -> io::Result<()> {
    // SAFETY: it takes two numbers, and no memory of ours.
    match unsafe { libc::kill(to, signal.number()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process in a group of its own. Whoever drops it ends all of the group at once.
#[derive(Debug)]
pub struct Owned(Child);

impl Owned {
    /// Starts it.
    pub fn spawn(command: &mut Command) -> io::Result<Owned> {
        command.process_group(0).spawn().map(Owned)
    }

    /// All that is written to its pipes until nobody has them any more, and how it ended.
    pub fn output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (output, errors) = (self.stdout.take(), self.stderr.take());
        let errors = std::thread::spawn(move || whole(errors));
        let stdout = whole(output)?;
        let stderr = errors.join().map_err(|_| io::Error::other("a panic"))??;
        Ok(Output {
            status: self.wait()?,
            stdout,
            stderr,
        })
    }
}

fn whole<R: Read>(pipe: Option<R>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if is_known(self.id()) {
            let _ = signal_group(self.id(), Signal::Kill);
        }
        // It can do nothing any more but end.
        let _ = self.0.wait();
    }
}

/// A child that nobody has waited for, so that its number, which is its group's, cannot be
/// another's yet.
fn is_known(pid: u32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: it is numbers and addresses that nobody follows, for which zero is a value.
    let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to `told` alone, and leaves the child as it is.
    unsafe { libc::waitid(libc::P_PID, pid, &raw mut told, flags) == 0 }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn what_is_dropped_ends_with_all_of_its_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]);
        let mut owned = Owned::spawn(command.stdout(Stdio::piped())).expect("a shell");
        let mut line = String::new();
        let output = owned.stdout.as_mut().expect("its output");
        io::BufRead::read_line(&mut io::BufReader::new(output), &mut line).expect("a line");
        let sleeper: u32 = line.trim().parse().expect("a number");
        assert_eq!(crate::tree::children(owned.id()), [sleeper]);
        drop(owned);
        // Whoever is its parent then waits for it some time; until then it is there as one that has
        // ended.
        let state = || std::fs::read_to_string(format!("/proc/{sleeper}/stat"));
        let lives = || state().is_ok_and(|told| !told.contains(") Z "));
        for _ in 0..1000 {
            if lives() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        assert!(!lives());
    }

    #[test]
    fn what_is_dropped_after_its_end_ends_nobody_else() {
        let mut owned = Owned::spawn(&mut Command::new("true")).expect("it starts");
        assert!(is_known(owned.id()));
        owned.wait().expect("it ends");
        assert!(!is_known(owned.id()));
    }

    #[test]
    fn all_output_comes() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo errors >&2; cat; exit 3"]);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let owned = Owned::spawn(&mut command).expect("a shell");
        let output = owned.output().expect("its output");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (output.stdout, output.stderr),
            (b"out\n".to_vec(), b"errors\n".to_vec())
        );
    }

    #[test]
    fn numbers_that_mean_many_processes_are_refused() {
        for pid in [0, 1, u32::MAX] {
            assert!(signal(pid, Signal::Kill).is_err());
            assert!(signal_group(pid, Signal::Kill).is_err());
        }
        assert!(signal(std::process::id(), Signal::GoOn).is_ok());
    }
}
