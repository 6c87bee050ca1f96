//! By what our descriptors are known, in this process and in others.
//!
//! Our descriptors are eventfds with an owner and a signal that no eventfd sends: both are the open
//! file's, whoever has it by whatever number. The kernel tells eventfds apart (`eventfd-id` in
//! `/proc/PID/fdinfo`).

use std::ffi::c_int;
use std::os::fd::RawFd;

/// `F_SETSIG` and `F_GETSIG`
const SET_SIGNAL: c_int = 10;
const GET_SIGNAL: c_int = 11;
/// The highest signal: nobody asks an eventfd for it.
const OURS: c_int = 64;

/// Marks a descriptor as one of this process's.
pub fn mark(fd: RawFd) {
    // Where it cannot be marked it is not followed.
    // SAFETY: numbers alone.
    unsafe {
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid());
        libc::fcntl(fd, SET_SIGNAL, OURS);
    }
}

/// The process whose descriptor it is, if it is one of ours.
pub fn owner(fd: RawFd) -> Option<u32> {
    // SAFETY: numbers alone.
    let (signal, owner) = unsafe { (libc::fcntl(fd, GET_SIGNAL), libc::fcntl(fd, libc::F_GETOWN)) };
    u32::try_from(owner).ok().filter(|_| signal == OURS)
}

/// The kernel's number of an eventfd, or of a program that is Linux's itself.
pub fn identity(fd: RawFd) -> Option<u64> {
    const OF_LINUX: u64 = 1 << 63;
    let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}")).ok()?;
    info.lines().find_map(|line| {
        let (what, number) = line.split_once(':')?;
        let number: u64 = number.trim().parse().ok()?;
        match what {
            "eventfd-id" => Some(number),
            "prog_id" => Some(number | OF_LINUX),
            _ => None,
        }
    })
}
