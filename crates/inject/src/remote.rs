//! Calls in another process: a thread of it is stopped, makes a call for us, and goes on as if
//! nothing had been.
//!
//! System calls can be made from anywhere. A function is called through a few bytes of our own in
//! the process, by a call instruction and back by a return, so that shadow stacks hold.
//!
//! This process may be killed at any moment, and the kernel lets go of the thread then, as it is.
//! So the thread finds its way home by itself: a signal frame with all of its state lies below its
//! stack before it is moved, one write of registers moves it, and whatever it is told to do ends in
//! `rt_sigreturn` with that frame.

use std::io;
use std::time::{Duration, Instant};

use crate::error::InjectError;
use crate::gate::Gate;
use crate::goes_on::GoesOn;
use crate::hindrance::{self, Hindrance};
use crate::machine::{self, Frame, Registers, Return, Vectors};
use crate::memory::Memory;
use crate::place::Places;
use crate::proc::{self, Mapping, mappings};
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

/// How names of an agent's threads begin.
const OUR_THREADS: &str = "warpbpf";
/// Those that are there, or may be, when a change of code is made.
const KEPT_THREADS: &[&str] = &["warpbpf", "warpbpf-calls", "warpbpf-files", "warpbpf-late"];

/// A thread that stands still and makes calls. From the first one on a frame lies below its stack
/// by which it goes on as it was: whatever it was told to do, it goes home by that when it has done
/// it, if this process is killed meanwhile.
#[derive(Debug)]
pub(crate) struct Borrowed<'p> {
    tracee: Tracee,
    subject: &'p Subject,
    memory: &'p Memory,
    gate: Gate,
    /// What it goes on with if it goes home by itself, and how.
    home: Registers,
    how: Return,
    mask: u64,
    vectors: Vectors,
    frame: Frame,
}

/// Borrows a thread that stands where it may be borrowed, has it do `work`, and puts it back.
/// Returns how long it stood, too.
///
/// # Errors
/// [`InjectError`]; the thread is back where it was, or is on its way there.
pub(crate) fn borrow<'p, T>(
    subject: &'p Subject,
    memory: &'p Memory,
    places: &Places,
    gate: Gate,
    (purpose, goes_on): (Purpose, GoesOn<'_>),
    work: impl FnOnce(&mut Borrowed<'p>) -> Result<T, InjectError>,
) -> Result<(T, Duration), InjectError> {
    let pid = subject.pid;
    let end = Instant::now() + SEARCH;
    loop {
        let maps = mappings(pid).map_err(|_| InjectError::Ended { pid })?;
        // The one that would lose least if we were killed meanwhile.
        let mut best: Option<Borrowed<'p>> = None;
        let mut hindrances = Vec::new();
        for thread in process::threads(pid)? {
            // They have their own stacks and descriptors.
            if is_named(pid, thread, |name| name.starts_with(OUR_THREADS)) {
                continue;
            }
            match proc::state(pid, thread) {
                'R' | 'S' => {}
                // It has ended.
                'Z' | 'X' => continue,
                _ => {
                    hindrances.push(Hindrance::Uninterruptible);
                    continue;
                }
            }
            let Some(mut tracee) = Tracee::seize(pid, thread)? else {
                continue;
            };
            if !tracee.settle(STOP)? {
                continue;
            }
            let hindrance = hindrance(&tracee, memory, places, &maps, purpose);
            let usable = hindrance.is_none();
            hindrances.extend(hindrance);
            // Others are let go.
            let found = match usable {
                true => Borrowed::new(tracee, subject, memory, gate)?,
                false => None,
            };
            let Some(found) = found else {
                // Usable, and yet no frame can be made.
                hindrances.extend(usable.then_some(Hindrance::Moment));
                continue;
            };
            if best.as_ref().is_none_or(|best| found.how < best.how) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.how == Return::Same) {
                break;
            }
        }
        if let Some(mut borrowed) = best
            && borrowed.write_frame().is_ok()
        {
            let done = borrowed.guarded(work);
            let pause = borrowed.tracee.release();
            return done.map(|done| (done, pause));
        }
        if !proc::lives(pid) {
            return Err(InjectError::Ended { pid });
        }
        if !goes_on() {
            return Err(InjectError::Interrupted { pid });
        }
        if Instant::now() >= end {
            return Err(InjectError::NoSafeThread {
                pid,
                seconds: SEARCH.as_secs(),
                why: hindrance::told(&hindrances),
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why a thread, which is stopped, cannot be borrowed where it stands.
fn hindrance(
    tracee: &Tracee,
    memory: &Memory,
    places: &Places,
    maps: &[Mapping],
    purpose: Purpose,
) -> Option<Hindrance> {
    if !tracee.can_be_moved() || !tracee.is_64() || places.is_in_sequence(memory, tracee) {
        return Some(Hindrance::Moment);
    }
    if !stands_on_its_own_stack(maps, tracee) {
        return Some(Hindrance::Stack);
    }
    match purpose {
        Purpose::Syscalls => None,
        Purpose::Call => places.is_safe(memory, tracee).err(),
    }
}

/// A frame below its stack can overwrite nothing: the stack is the one that its thread was made
/// with, where signals may put frames at any time. Below one that an application has made of its
/// own memory, that memory goes on.
fn stands_on_its_own_stack(maps: &[Mapping], tracee: &Tracee) -> bool {
    let stack = machine::stack(&tracee.registers);
    let there = maps.iter().find(|m| m.range.contains(&stack));
    there.is_some_and(|mapping| {
        let pointer = tracee.thread_pointer();
        // What libc has of a thread lies on its stack's upper end.
        let above = |pointer| pointer > stack && mapping.range.contains(&pointer);
        mapping.name == "[stack]" || pointer.is_some_and(above)
    })
}

/// The thread is one of an agent.
pub(crate) fn is_ours(pid: u32, thread: u32) -> bool {
    is_named(pid, thread, |name| KEPT_THREADS.contains(&name))
}

fn is_named(pid: u32, thread: u32, fits: impl Fn(&str) -> bool) -> bool {
    let name = proc::text(format!("/proc/{pid}/task/{thread}/comm"));
    // The first thread of a process is its own, whatever that is called.
    thread != pid && name.is_ok_and(|name| fits(name.trim_end()))
}

impl<'p> Borrowed<'p> {
    /// Of a thread that is stopped. `None` if no frame can be made for it where it stands.
    fn new(
        tracee: Tracee,
        subject: &'p Subject,
        memory: &'p Memory,
        gate: Gate,
    ) -> Result<Option<Borrowed<'p>>, InjectError> {
        let (mask, vectors) = (tracee.mask()?, tracee.vectors()?);
        let (home, how) = tracee.home(memory);
        let frame = machine::frame(&home, mask, &vectors, gate.restorer);
        Ok(frame.map(|frame| Borrowed {
            tracee,
            subject,
            memory,
            gate,
            home,
            how,
            mask,
            vectors,
            frame,
        }))
    }

    /// Writes the frame below what the thread's stack holds: nothing of the thread's is changed by
    /// that.
    fn write_frame(&self) -> Result<(), InjectError> {
        self.memory.write(self.frame.at, &self.frame.bytes)
    }

    /// Runs `work` and puts back all that it may have changed. Between any two calls here the
    /// thread is one that goes on rightly if it is let go: its registers are changed last of all,
    /// and before them nothing.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, InjectError>,
    ) -> Result<T, InjectError> {
        // Registers before the mask, which only the frame puts back. What it would do now leaves no
        // trace.
        let nothing = self.for_syscall(libc::SYS_getppid, [0; 6]);
        self.tracee.set(&nothing)?;
        self.tracee.set_mask(self.mask | ALL_BUT_FAULTS)?;
        let done = work(self);
        if let Err(InjectError::Stuck { .. } | InjectError::Stopped { .. }) = &done
            && self.how != Return::Lost
        {
            // It holds what it holds: it goes home when it has done what it was told.
            return done;
        }
        // The kernel goes on with a system call that our stop interrupted only from a stop like
        // that.
        let stopped = self.tracee.stop_again(STOP);
        self.tracee.set_vectors(&self.vectors)?;
        self.tracee.set_mask(self.mask)?;
        self.tracee.set(&self.tracee.registers)?;
        let done = done?;
        stopped?;
        Ok(done)
    }

    fn for_syscall(&self, number: i64, arguments: [u64; 6]) -> Registers {
        let gate = (self.gate.call, self.gate.restorer);
        machine::for_syscall(&self.home, self.frame.at, gate, number, arguments)
    }

    /// The thread.
    pub(crate) fn id(&self) -> u32 {
        self.tracee.thread
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
        self.tracee.set(&self.for_syscall(number, arguments))?;
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

    /// Has the thread call what the code at `stub` calls: the function given here, with two more
    /// arguments than are needed. `done` is where the system call behind it stands, whose number is
    /// in that code too.
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
        let there = machine::for_call(&self.home, self.frame.at, stub, function, arguments);
        self.tracee.set(&there)?;
        let end = Instant::now() + CALL;
        loop {
            self.until_syscall(end)?;
            if let Some(answer) = machine::returned(&self.tracee.current()?, done) {
                // On its way in: what the function answered was put aside by the stub.
                self.until_syscall(end)?;
                // The call may have used the frame's first word, and other calls would return by
                // it.
                self.write_frame()?;
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
