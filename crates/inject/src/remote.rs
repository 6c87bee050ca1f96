//! Calls in another process: a thread of it is stopped, makes a call for us, and goes on as if nothing had been.
//!
//! System calls can be made from anywhere. A function is called through a few bytes of our own in the process, by a call
//! instruction and back by a return, so that shadow stacks hold.

use std::io;
use std::time::{Duration, Instant};

use crate::error::InjectError;
use crate::machine;
use crate::memory::Memory;
use crate::place::Places;
use crate::process::{self, Subject};
use crate::tracee::{Stop, Tracee};

/// How long a thread may take to stop.
pub(crate) const STOP: Duration = Duration::from_secs(2);
/// How long one that can be borrowed is looked for.
const SEARCH: Duration = Duration::from_secs(5);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a call may take. It waits for locks that other threads have.
const CALL: Duration = Duration::from_secs(20);
/// All signals but those that an instruction causes: those are for us.
const ALL_BUT_FAULTS: u64 = {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    let (mut mask, mut n) = (u64::MAX, 0);
    while n < faults.len() {
        mask &= !(1 << (faults[n] - 1));
        n += 1;
    }
    mask
};

/// What a thread is borrowed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// System calls.
    Syscalls,
    /// A function of libc.
    Call,
}

/// Names of an agent's threads.
const OUR_THREADS: &[&str] = &["warpbpf", "warpbpf-calls", "warpbpf-late"];

/// A thread that stands still and makes calls.
#[derive(Debug)]
pub(crate) struct Borrowed<'p> {
    tracee: Tracee,
    subject: &'p Subject,
    /// Address of the instruction by which system calls are made.
    gate: u64,
}

/// Borrows a thread that stands where it may be borrowed, has it do `work`, and puts it back. Returns how long it stood, too.
///
/// # Errors
/// [`InjectError`]; the thread is back where it was.
pub(crate) fn borrow<T>(
    subject: &Subject,
    memory: &Memory,
    places: &Places,
    gate: u64,
    purpose: Purpose,
    work: impl FnOnce(&mut Borrowed<'_>) -> Result<T, InjectError>,
) -> Result<(T, Duration), InjectError> {
    let end = Instant::now() + SEARCH;
    loop {
        for thread in process::threads(subject.pid)? {
            if is_ours(subject.pid, thread)
                || !matches!(process::state(subject.pid, thread), 'R' | 'S')
            {
                continue;
            }
            let Some(mut tracee) = Tracee::seize(subject.pid, thread)? else {
                continue;
            };
            if !tracee.settle(STOP)? {
                continue;
            }
            let usable = tracee.can_be_moved()
                && match purpose {
                    Purpose::Syscalls => tracee.is_64() && !places.is_in_sequence(memory, &tracee),
                    Purpose::Call => places.is_safe(memory, &tracee),
                };
            if !usable {
                tracee.release();
                continue;
            }
            let mut borrowed = Borrowed {
                tracee,
                subject,
                gate,
            };
            let done = borrowed.guarded(work);
            let pause = borrowed.tracee.release();
            return done.map(|done| (done, pause));
        }
        if Instant::now() >= end {
            return Err(InjectError::NoSafeThread {
                pid: subject.pid,
                seconds: SEARCH.as_secs(),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// The thread is one of an agent.
pub(crate) fn is_ours(pid: u32, thread: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"));
    // The first thread of a process is its own, whatever that is called.
    thread != pid && name.is_ok_and(|name| OUR_THREADS.contains(&name.trim_end()))
}

impl Borrowed<'_> {
    /// Runs `work` and puts back all that it may have changed.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        let mask = self.tracee.mask()?;
        let vectors = self.tracee.vectors()?;
        self.tracee.set_mask(mask | ALL_BUT_FAULTS)?;
        let done = work(self);
        // The kernel goes on with a system call that our stop interrupted only from a stop like that.
        let stopped = self.tracee.stop_again(STOP);
        self.tracee.set(&self.tracee.registers)?;
        self.tracee.set_vectors(vectors)?;
        self.tracee.set_mask(mask)?;
        let done = done?;
        stopped?;
        Ok(done)
    }

    /// Makes a system call.
    ///
    /// # Errors
    /// [`InjectError::Refused`] with what it answered.
    pub(crate) fn syscall(
        &mut self,
        call: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, InjectError> {
        let there = machine::for_syscall(&self.tracee.registers, self.gate, number, arguments);
        self.tracee.set(&there)?;
        // It stops as it enters, and as it leaves.
        let end = Instant::now() + CALL;
        for _ in 0..2 {
            self.until_syscall(end)?;
        }
        let answer = machine::answer(&self.tracee.current()?);
        match answer {
            -4095..0 => Err(InjectError::Refused {
                pid: self.subject.pid,
                call,
                seccomp: self.subject.seccomp,
                source: io::Error::from_raw_os_error(-answer as i32),
            }),
            _ => Ok(answer as u64),
        }
    }

    /// Has the thread call what the code at `stub` calls: the function given here, with two more arguments than are needed. `done`
    /// is where the system call behind it stands, whose number is in that code too.
    ///
    /// # Errors
    /// [`InjectError::Crashed`], [`InjectError::Stuck`].
    pub(crate) fn call(
        &mut self,
        stub: u64,
        done: u64,
        function: u64,
        arguments: [u64; 4],
    ) -> Result<u64, InjectError> {
        let there = machine::for_call(&self.tracee.registers, stub, function, arguments);
        self.tracee.set(&there)?;
        let end = Instant::now() + CALL;
        loop {
            self.until_syscall(end)?;
            if let Some(answer) = machine::returned(&self.tracee.current()?, done) {
                // On its way in: what the function answered was put aside by the stub.
                self.until_syscall(end)?;
                return Ok(answer);
            }
        }
    }

    /// Lets it run up to the beginning or end of a system call.
    fn until_syscall(&self, end: Instant) -> Result<(), InjectError> {
        let pid = self.subject.pid;
        self.tracee.go(libc::PTRACE_SYSCALL, 0)?;
        loop {
            match self.tracee.wait(end) {
                Ok(Some(Stop::Syscall)) => return Ok(()),
                Ok(Some(Stop::Interrupted)) => self.tracee.go(libc::PTRACE_SYSCALL, 0)?,
                Ok(Some(Stop::Signal(signal))) => return Err(InjectError::Crashed { pid, signal }),
                Ok(Some(Stop::Group)) => return Err(InjectError::Stopped { pid }),
                Ok(None) => return Err(InjectError::Ended { pid }),
                Err(InjectError::Unstoppable { seconds, .. }) => {
                    return Err(InjectError::Stuck { pid, seconds });
                }
                Err(other) => return Err(other),
            }
        }
    }
}
