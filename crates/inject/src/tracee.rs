//! One thread of another process, held by `ptrace`: stopped, looked at, moved, and let go as if
//! nothing had been.
//!
//! All calls for a thread must come from the same thread here, as the kernel wants it.

use std::io;
use std::time::{Duration, Instant};

use crate::error::InjectError;
use crate::machine::{
    self, BEFORE_BYTES, Registers, Return, SECOND_STACK, VECTORS, Vectors, Waiting,
};
use crate::memory::{Bytes as _, Memory};
use crate::proc::{self, status_field};

/// `PTRACE_EVENT_STOP` behind `SIGTRAP`, as a status shows it.
const EVENT_STOP: i32 = 128;
const NT_PRSTATUS: i32 = 1;
/// More than any processor's vectors.
const MOST_VECTORS: usize = 64 << 10;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
/// More than a set of registers for a second stack has.
const MOST_SECOND: usize = 64;

/// System calls that a stop ends with `EINTR` instead of having them go on, and that can be begun
/// again because they have done nothing yet. `close` and `connect` have.
const AGAIN: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_io_uring_enter,
    libc::SYS_futex,
];

/// Those of them that a stop ends always.
const ENDED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
];

/// A thread waits in a system call that a stop ends.
pub(crate) fn ends_by_a_stop(pid: u32, thread: u32) -> bool {
    let call = proc::text(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default();
    let number = call
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    number.is_some_and(|number| ENDED.contains(&number))
}

/// Why a thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It was interrupted.
    Interrupted,
    /// It enters or leaves a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// Its process is being stopped as a whole.
    Group,
}

/// A thread that is traced. It goes on when this is dropped, if it is stopped; else at the end of
/// this thread.
#[derive(Debug)]
pub(crate) struct Tracee {
    pub(crate) thread: u32,
    pub(crate) pid: u32,
    /// What it goes on with: as it was stopped, or in front of the call that our stop has ended.
    pub(crate) registers: Registers,
    /// It has stopped as it was asked to.
    settled: bool,
    /// In this it was stopped.
    waiting: Option<Waiting>,
    /// What it waited for before it was stopped, where that must be known.
    before: String,
    /// When it was asked to stop.
    pub(crate) since: Instant,
}

fn ptrace(request: u32, thread: u32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the caller gives what the request asks for.
    let result = unsafe { libc::ptrace(request, thread, address, data) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl Tracee {
    /// Takes hold of a thread and asks it to stop. `None` if it is gone.
    ///
    /// # Errors
    /// [`InjectError::NotPermitted`].
    pub(crate) fn seize(pid: u32, thread: u32) -> Result<Option<Tracee>, InjectError> {
        let since = Instant::now();
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        match ptrace(libc::PTRACE_SEIZE, thread, 0, options) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                // A thread that ends just now may not be traced either.
                _ if matches!(proc::state(pid, thread), 'X' | 'Z') => return Ok(None),
                Some(libc::ESRCH) => return Ok(None),
                _ => return Err(not_permitted(pid, &error)),
            },
        }
        let before = match machine::LOOKS_BEFORE {
            // A kernel that does not say is no reason to fail: the call is then ended, as by a
            // signal.
            true => proc::text(format!("/proc/{pid}/task/{thread}/syscall")),
            false => Ok(String::new()),
        };
        if ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0).is_err() {
            return Ok(None);
        }
        // SAFETY: numbers.
        let registers = unsafe { std::mem::zeroed() };
        Ok(Some(Tracee {
            thread,
            pid,
            registers,
            settled: false,
            waiting: None,
            before: before.unwrap_or_default(),
            since,
        }))
    }

    /// Waits until it has stopped as it was asked to. False if it is gone.
    ///
    /// # Errors
    /// [`InjectError::Unstoppable`], [`InjectError::Stopped`].
    pub(crate) fn settle(&mut self, limit: Duration) -> Result<bool, InjectError> {
        let end = Instant::now() + limit;
        loop {
            match self.wait(end)? {
                None => return Ok(false),
                Some(Stop::Interrupted) => break,
                Some(Stop::Signal(signal)) => self.go(libc::PTRACE_CONT, signal)?,
                Some(Stop::Syscall) => self.go(libc::PTRACE_CONT, 0)?,
                Some(Stop::Group) => return Err(InjectError::Stopped { pid: self.pid }),
            }
        }
        self.registers = self.current()?;
        let code = machine::LOOKS_BEFORE.then(|| {
            let at = machine::pc(&self.registers) as usize;
            ptrace(libc::PTRACE_PEEKTEXT, self.thread, at, 0)
        });
        let code = code.and_then(Result::ok).map(|word| word as u32);
        self.waiting = machine::waiting(&self.registers, code, &self.before, AGAIN);
        // At once: whatever becomes of us, it makes the call again.
        if let Some(again) = self.begun_again() {
            self.set(&again)?;
            self.registers = again;
        }
        self.settled = true;
        Ok(true)
    }

    /// It has stopped as it was asked to.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// The next stop; `None` if the thread is gone.
    pub(crate) fn wait(&self, end: Instant) -> Result<Option<Stop>, InjectError> {
        let began = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: a writable local.
            let got = unsafe {
                libc::waitpid(
                    self.thread as i32,
                    &mut status,
                    libc::__WALL | libc::WNOHANG,
                )
            };
            if got == self.thread as i32 {
                if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                    return Ok(None);
                }
                let signal = libc::WSTOPSIG(status);
                return Ok(Some(match (signal & 0x7f, status >> 16) {
                    (libc::SIGTRAP, EVENT_STOP) => Stop::Interrupted,
                    (_, EVENT_STOP) => Stop::Group,
                    (libc::SIGTRAP, _) if signal & 0x80 != 0 => Stop::Syscall,
                    (signal, _) => Stop::Signal(signal),
                }));
            }
            if got < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return Ok(None);
            }
            if Instant::now() >= end {
                return Err(InjectError::Unstoppable {
                    pid: self.pid,
                    thread: self.thread,
                    seconds: began.elapsed().as_secs(),
                    state: proc::state(self.pid, self.thread),
                });
            }
            // A stop takes microseconds, and the process stands still meanwhile.
            match began.elapsed() < Duration::from_millis(2) {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    pub(crate) fn go(&self, how: u32, signal: i32) -> Result<(), InjectError> {
        ptrace(how, self.thread, 0, signal as usize).map_err(|e| self.failed("ptrace", e))?;
        Ok(())
    }

    /// Its registers now.
    pub(crate) fn current(&self) -> Result<Registers, InjectError> {
        // SAFETY: numbers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let to = std::ptr::from_mut(&mut registers).cast();
        // 32-bit code has fewer; those are as they should be.
        self.set_of(
            libc::PTRACE_GETREGSET,
            NT_PRSTATUS,
            to,
            size_of::<Registers>(),
        )?;
        Ok(registers)
    }

    pub(crate) fn set(&self, registers: &Registers) -> Result<(), InjectError> {
        let from = std::ptr::from_ref(registers).cast_mut().cast();
        self.set_of(
            libc::PTRACE_SETREGSET,
            NT_PRSTATUS,
            from,
            size_of::<Registers>(),
        )?;
        Ok(())
    }

    /// Gets or sets registers of one kind; returns their bytes.
    fn set_of(
        &self,
        request: u32,
        kind: i32,
        at: *mut u8,
        bytes: usize,
    ) -> Result<usize, InjectError> {
        let mut vector = libc::iovec {
            iov_base: at.cast(),
            iov_len: bytes,
        };
        let vector_at = std::ptr::from_mut(&mut vector) as usize;
        ptrace(request, self.thread, kind as usize, vector_at)
            .map_err(|e| self.failed("ptrace", e))?;
        Ok(vector.iov_len)
    }

    /// Registers of the other kinds: floating point, vectors.
    pub(crate) fn vectors(&self) -> Result<Vectors, InjectError> {
        let mut bytes = vec![0; MOST_VECTORS];
        let mut failed = Err(InjectError::Ended { pid: self.pid });
        for kind in VECTORS {
            let to = bytes.as_mut_ptr();
            match self.set_of(libc::PTRACE_GETREGSET, *kind, to, bytes.len()) {
                Ok(length) => {
                    bytes.truncate(length);
                    return Ok(Vectors { kind: *kind, bytes });
                }
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    pub(crate) fn set_vectors(&self, vectors: &Vectors) -> Result<(), InjectError> {
        let from = vectors.bytes.as_ptr().cast_mut();
        let length = vectors.bytes.len();
        self.set_of(libc::PTRACE_SETREGSET, vectors.kind, from, length)?;
        Ok(())
    }

    /// Its returns are checked against a second stack.
    pub(crate) fn has_second_stack(&self) -> bool {
        let mut bytes = [0; MOST_SECOND];
        let to = bytes.as_mut_ptr();
        let got = self.set_of(libc::PTRACE_GETREGSET, SECOND_STACK, to, bytes.len());
        got.is_ok_and(|length| machine::second_stack(&bytes[..length.min(MOST_SECOND)]))
    }

    /// Where it has what is its own, on its stack's upper end if it was made by `pthread_create`.
    pub(crate) fn thread_pointer(&self) -> Option<u64> {
        /// `NT_ARM_TLS`
        const POINTER: i32 = 0x401;
        machine::thread_pointer(&self.registers).or_else(|| {
            let mut word = [0; 8];
            let to = word.as_mut_ptr();
            self.set_of(libc::PTRACE_GETREGSET, POINTER, to, word.len())
                .ok()?;
            Some(u64::from_le_bytes(word))
        })
    }

    /// Registers with which it goes on by a frame of ours.
    pub(crate) fn home(&self, memory: &Memory) -> (Registers, Return) {
        let mut before = [0; BEFORE_BYTES];
        if let Some(at) = machine::pc(&self.registers).checked_sub(BEFORE_BYTES as u64) {
            // What cannot be read is no code that is known.
            let _ = memory.read(at, &mut before);
        }
        let (registers, how) = machine::home(&self.registers, &before);
        match self.has_second_stack() {
            true => (registers, Return::Lost),
            false => (registers, how),
        }
    }

    /// The signals that it holds back, a bit for each.
    pub(crate) fn mask(&self) -> Result<u64, InjectError> {
        let mut mask = 0u64;
        let to = std::ptr::from_mut(&mut mask) as usize;
        ptrace(libc::PTRACE_GETSIGMASK, self.thread, 8, to)
            .map_err(|e| self.failed("ptrace", e))?;
        Ok(mask)
    }

    pub(crate) fn set_mask(&self, mask: u64) -> Result<(), InjectError> {
        let from = std::ptr::from_ref(&mask) as usize;
        ptrace(libc::PTRACE_SETSIGMASK, self.thread, 8, from)
            .map_err(|e| self.failed("ptrace", e))?;
        Ok(())
    }

    /// Where its restartable sequence is described, which says whether it is in one; `None` where
    /// the kernel has none for it.
    pub(crate) fn rseq(&self) -> Option<u64> {
        /// `struct ptrace_rseq_configuration`
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            size: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        let mut there = Configuration::default();
        let to = std::ptr::from_mut(&mut there) as usize;
        let bytes = size_of::<Configuration>();
        ptrace(PTRACE_GET_RSEQ_CONFIGURATION, self.thread, bytes, to).ok()?;
        (there.address != 0).then_some(there.address)
    }

    /// It runs 64-bit code.
    pub(crate) fn is_64(&self) -> bool {
        machine::is_64(&self.registers)
    }

    /// The number of the system call that it was stopped in.
    pub(crate) fn syscall(&self) -> Option<i64> {
        self.waiting.map(|waiting| waiting.number)
    }

    /// It can be moved and put back.
    pub(crate) fn can_be_moved(&self) -> bool {
        machine::can_be_moved(&self.registers, self.waiting.as_ref())
    }

    /// Stops it once more where it is, from a stop in a system call, so that what it goes on with
    /// is judged by the kernel as after any stop: a system call that was interrupted goes on.
    pub(crate) fn stop_again(&self, limit: Duration) -> Result<(), InjectError> {
        ptrace(libc::PTRACE_INTERRUPT, self.thread, 0, 0).map_err(|e| self.failed("ptrace", e))?;
        // It may be running: then it only has to stop.
        let _ = self.go(libc::PTRACE_CONT, 0);
        match self.wait(Instant::now() + limit)? {
            Some(Stop::Interrupted) => Ok(()),
            Some(Stop::Signal(signal)) => Err(InjectError::Crashed {
                pid: self.pid,
                signal,
            }),
            Some(_) => Err(InjectError::Stuck {
                pid: self.pid,
                seconds: 0,
            }),
            None => Err(InjectError::Ended { pid: self.pid }),
        }
    }

    /// Lets it go on as it was. Returns how long it stood.
    pub(crate) fn release(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }

    /// Registers with which a call that our stop ended is made again, unless a signal ended it.
    fn begun_again(&self) -> Option<Registers> {
        let again = self.waiting?.again?;
        (!self.has_signal()).then_some(again)
    }

    /// A signal waits to be delivered to it.
    fn has_signal(&self) -> bool {
        let status = proc::thread_status(self.pid, self.thread).unwrap_or_default();
        let set = |field| {
            let digits = status_field(&status, field).unwrap_or_default();
            u64::from_str_radix(&digits, 16).unwrap_or(0)
        };
        (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") != 0
    }

    fn failed(&self, call: &'static str, error: io::Error) -> InjectError {
        InjectError::os(self.pid, call, error)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // One that is gone needs nothing.
        let _ = ptrace(libc::PTRACE_DETACH, self.thread, 0, 0);
    }
}

fn not_permitted(pid: u32, error: &io::Error) -> InjectError {
    InjectError::NotPermitted {
        pid,
        why: error.to_string(),
    }
}
