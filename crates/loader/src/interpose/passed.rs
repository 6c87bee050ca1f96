//! Descriptors that go over Unix sockets (`SCM_RIGHTS`), or are taken out of a process
//! (`pidfd_getfd`): within the tool they are followed; one that comes to another process is an
//! empty file there, which is told.

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::global;
use super::guard::{inside, is_inside};
use super::marks::{identity, owner};
use super::real::{answer, raw};
use super::tell::tell;
use crate::kernel::Kernel;
use crate::next;
use crate::objects::handle::Handle;

/// What is said where a tool has maps and makes a ring.
const IO_URING: &str = "note: this tool uses `io_uring`: descriptors of its maps, programs and links that it passes by that (IORING_OP_FIXED_FD_INSTALL, IORING_OP_MSG_RING, IORING_OP_SENDMSG with SCM_RIGHTS) or closes (IORING_OP_CLOSE) are not followed";

fn name_of(kernel: &Kernel, handle: Handle) -> String {
    match handle {
        Handle::Map(at) => kernel
            .maps
            .get(at)
            .map_or("a map".into(), |map| format!("map `{}`", map.name)),
        Handle::Prog(at) => kernel.progs.get(at).map_or("a program".into(), |prog| {
            format!("program `{}`", prog.name)
        }),
        Handle::Link(_) => "a link".into(),
        Handle::Btf(_) => "types".into(),
        Handle::Perf(_) => "a perf event".into(),
    }
}

/// Descriptors in a message's control data, which may lie anywhere.
///
/// # Safety
/// A header that the system has taken, or has filled.
unsafe fn rights(header: *const libc::msghdr) -> Vec<RawFd> {
    if header.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise; of the control data a copy is made.
    let control = unsafe {
        let header = header.read_unaligned();
        let (start, bytes) = (header.msg_control.cast::<u8>(), header.msg_controllen);
        if start.is_null() || bytes == 0 {
            return Vec::new();
        }
        std::slice::from_raw_parts(start, bytes)
    };
    rights_in(control)
}

/// The same of the bytes: each message has its length, a level and a type, and begins at a multiple
/// of 8.
fn rights_in(mut control: &[u8]) -> Vec<RawFd> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let mut all = Vec::new();
    let word = |bytes: &[u8], at: usize| Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    while let Some(length) = control.first_chunk::<8>() {
        let length = usize::from_ne_bytes(*length);
        let Some(message) = control.get(..length).filter(|_| length >= HEADER) else {
            break;
        };
        let kind = [word(message, 8), word(message, 12)];
        if kind == [Some(libc::SOL_SOCKET), Some(libc::SCM_RIGHTS)] {
            let (numbers, _) = message[HEADER..].as_chunks::<4>();
            all.extend(numbers.iter().map(|number| RawFd::from_ne_bytes(*number)));
        }
        control = control
            .get(length.next_multiple_of(8)..)
            .unwrap_or_default();
    }
    all
}

/// The process at the other end of a socket, where the system knows one.
fn other_end(socket: RawFd) -> Option<u32> {
    // SAFETY: the tool's own descriptor, which it uses just now.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    warpbpf_wire::peer(socket).ok()?.pid
}

/// The tool has sent these.
fn sent(socket: RawFd, all: &[RawFd]) {
    if all.is_empty() || is_inside() {
        return;
    }
    inside(|| {
        let Some(mut kernel) = global::existing() else {
            return;
        };
        let ours = all.iter().filter_map(|fd| Some((*fd, kernel.handle(*fd)?)));
        let ours: Vec<(RawFd, Handle)> = ours.collect();
        if ours.is_empty() {
            return;
        }
        let other = other_end(socket).filter(|pid| *pid != std::process::id());
        for (fd, handle) in ours {
            match (other, identity(fd)) {
                (Some(pid), _) => {
                    let name = name_of(&kernel, handle);
                    tell(&format!(
                        "{name} is not followed to process {pid}, to which its descriptor is sent (SCM_RIGHTS): only this process knows it; pin it (`bpf_obj_pin`), or use it here"
                    ));
                }
                (None, Some(identity)) => kernel.send(identity, handle),
                (None, None) => {}
            }
        }
    });
}

/// The tool has got this one, by whatever way; it was another one's before, or is open once more.
pub fn received(fd: RawFd, how: &str) {
    let Some(owner) = (fd >= 0).then(|| owner(fd)).flatten() else {
        return;
    };
    let own = std::process::id();
    if owner != own {
        // Also in a child of the tool, where nothing of the tool's is to be touched.
        return tell(&format!(
            "a descriptor of the tool in process {owner} came to process {own} ({how}), which does not know maps, programs and links of that tool: it is not followed"
        ));
    }
    inside(|| {
        let number = identity(fd)?;
        let mut kernel = global::existing()?;
        if kernel.receive(number, fd) {
            return Some(());
        }
        // It was not sent by a call that we saw.
        let known = kernel.fds.keys().copied();
        let from = known
            .filter(|known| *known != fd)
            .find(|known| identity(*known) == Some(number))?;
        kernel.duplicated(from, fd);
        Some(())
    });
}

/// # Safety
/// As [`rights`].
unsafe fn received_all(header: *const libc::msghdr) {
    if is_inside() {
        return;
    }
    // SAFETY: the caller's promise.
    for fd in unsafe { rights(header) } {
        received(fd, "SCM_RIGHTS");
    }
}

#[unsafe(no_mangle)]
extern "C" fn sendmsg(socket: c_int, header: *const libc::msghdr, flags: c_int) -> isize {
    // Before it can be received.
    // SAFETY: the tool's own header; one that is wrong is the tool's fault as without us.
    sent(socket, &unsafe { rights(header) });
    next!(
        c"sendmsg",
        fn(c_int, *const libc::msghdr, c_int) -> isize,
        (socket, header, flags),
        -1
    )
}

#[unsafe(no_mangle)]
extern "C" fn recvmsg(socket: c_int, header: *mut libc::msghdr, flags: c_int) -> isize {
    let result = next!(
        c"recvmsg",
        fn(c_int, *mut libc::msghdr, c_int) -> isize,
        (socket, header, flags),
        -1
    );
    if result >= 0 {
        // SAFETY: the system has filled it.
        unsafe { received_all(header) };
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn sendmmsg(
    socket: c_int,
    headers: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    for at in 0..count as usize {
        // SAFETY: the tool's own headers, of which there are so many.
        sent(socket, &unsafe {
            rights(&raw const (*headers.add(at)).msg_hdr)
        });
    }
    next!(
        c"sendmmsg",
        fn(c_int, *mut libc::mmsghdr, c_uint, c_int) -> c_int,
        (socket, headers, count, flags),
        -1
    )
}

#[unsafe(no_mangle)]
extern "C" fn recvmmsg(
    socket: c_int,
    headers: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let result = next!(
        c"recvmmsg",
        fn(c_int, *mut libc::mmsghdr, c_uint, c_int, *mut libc::timespec) -> c_int,
        (socket, headers, count, flags, timeout),
        -1
    );
    for at in 0..usize::try_from(result).unwrap_or(0) {
        // SAFETY: the system has filled so many.
        unsafe { received_all(&raw const (*headers.add(at)).msg_hdr) };
    }
    result
}

/// The same by number.
pub fn by_name(number: c_long, [a, b, c, d, e, _]: [u64; 6]) -> Option<c_long> {
    let (socket, third, fourth) = (a as c_int, c as c_int, d as c_int);
    Some(match number {
        libc::SYS_sendmsg => sendmsg(socket, b as *const libc::msghdr, third) as c_long,
        libc::SYS_recvmsg => recvmsg(socket, b as *mut libc::msghdr, third) as c_long,
        libc::SYS_sendmmsg => sendmmsg(socket, b as *mut libc::mmsghdr, c as c_uint, fourth).into(),
        libc::SYS_recvmmsg => {
            let (headers, timeout) = (b as *mut libc::mmsghdr, e as *mut libc::timespec);
            recvmmsg(socket, headers, c as c_uint, fourth, timeout).into()
        }
        libc::SYS_io_uring_setup => {
            a_ring_is_made();
            return None;
        }
        _ => return None,
    })
}

/// What goes by a ring is done by the system alone. Said once, where there is something to lose.
fn a_ring_is_made() {
    static SAID: AtomicBool = AtomicBool::new(false);
    inside(|| {
        let has_maps = global::existing().is_some_and(|kernel| kernel.maps.iter().next().is_some());
        if has_maps && !SAID.swap(true, Ordering::Relaxed) {
            tell(IO_URING);
        }
    });
}

/// Another process' descriptor, or one of this process.
#[unsafe(no_mangle)]
pub extern "C" fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
    let arguments = [process as u64, fd as u64, flags.into(), 0, 0, 0];
    let made = answer(raw(libc::SYS_pidfd_getfd, arguments)) as c_int;
    if made >= 0 && !is_inside() {
        received(made, "pidfd_getfd");
    }
    made
}
