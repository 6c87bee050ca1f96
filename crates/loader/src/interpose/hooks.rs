//! The symbols of libc that the tool and libbpf find here first.
//!
//! Each asks the kernel of this process if the call is about something of ours, and else hands it
//! on as it came. Calls of libc that have a variable number of arguments take all that fit in
//! registers, which both supported calling conventions allow.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use super::guard::{inside, is_inside};
use super::real::{answer, raw, set_errno};
use super::{
    context, files, global, libbpf_handler, marks, moments, passed, remote_kernel, variables,
};
use crate::kernel::Kernel;
use crate::memory::{Memory, PAGE};
use crate::next;
use crate::objects::contents::Contents;
use crate::objects::handle::Handle;
use crate::objects::perf::{Perf, Probe};
use crate::tool::announced_section::announce;
use crate::tool::user::Process;
use crate::uapi::Command;

/// Runs with the library, before the tool's `main`.
extern "C" fn begin() {
    inside(libbpf_handler::register);
}

extern "C" fn end() {
    inside(moments::ended);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

fn give(result: Result<i64, Errno>) -> c_long {
    match result {
        Ok(value) => value as c_long,
        Err(errno) => {
            set_errno(errno.raw_os_error());
            -1
        }
    }
}

/// Asks the kernel of this process, if there is one; then looks at what has changed.
fn ask<T>(question: impl FnOnce(&mut Kernel) -> Option<T>) -> Option<T> {
    inside(|| {
        let result = question(&mut *global::existing()?);
        if result.is_some() {
            moments::noticed();
        }
        result
    })?
}

#[unsafe(no_mangle)]
extern "C" fn syscall(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long {
    if !is_inside() {
        let result = match number {
            libc::SYS_bpf => inside(|| Some(bpf(a as u32, b, c as u32))),
            libc::SYS_perf_event_open => inside(|| perf_event_open(a)),
            _ => None,
        };
        if let Some(Some(result)) = result {
            return give(result);
        }
        let arguments = [a, b, c, d, e, f];
        if let Some(result) =
            by_name(number, arguments).or_else(|| passed::by_name(number, arguments))
        {
            return result;
        }
    }
    answer(raw(number, [a, b, c, d, e, f]))
}

/// A call by number of which we know by name: what it does to a descriptor is the same. (libbpf
/// moves descriptors so since 1.4.)
fn by_name(number: c_long, [a, b, c, d, e, f]: [u64; 6]) -> Option<c_long> {
    let (fd, second, third) = (a as c_int, b as c_int, c as c_int);
    let result = match number {
        libc::SYS_close => close(fd),
        libc::SYS_close_range => close_range(a as c_uint, b as c_uint, third),
        libc::SYS_dup => dup(fd),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => dup2(fd, second),
        libc::SYS_dup3 => dup3(fd, second, third),
        libc::SYS_fcntl => fcntl(fd, second, c),
        libc::SYS_ioctl => ioctl(fd, b, c),
        libc::SYS_pidfd_getfd => passed::pidfd_getfd(fd, second, c as c_uint),
        libc::SYS_mmap => {
            return Some(mmap(a, b, third, d as c_int, e as c_int, f as i64) as c_long);
        }
        _ => return None,
    };
    Some(result.into())
}

fn bpf(command: u32, attr: u64, size: u32) -> Result<i64, Errno> {
    if let Some(inside) = remote_kernel::inside_another() {
        return inside.bpf(command, attr, size);
    }
    let result = global::kernel().bpf(command, attr, size, &Process::own());
    moments::noticed();
    if let Ok(fd) = result
        && Command::from_number(command) == Some(Command::MapCreate)
    {
        context::map_was_made(fd as RawFd);
    }
    // One of Linux itself may be among them.
    if let Ok(fd) = result
        && [Command::ProgLoad, Command::ProgGetFdById]
            .map(Some)
            .contains(&Command::from_number(command))
    {
        marks::mark(fd as RawFd);
    }
    // Who looks at a map has set up what it wants to see.
    let looks = [Command::MapLookupElem, Command::MapGetNextKey];
    if Command::from_number(command).is_some_and(|command| looks.contains(&command)) {
        moments::open();
    }
    result
}

fn perf_event_open(attr: u64) -> Option<Result<i64, Errno>> {
    let is_tracepoint = |id| id == files::TRACEPOINT;
    let opened =
        global::kernel().perf_event_open(attr, files::PROBE_TYPES, is_tracepoint, &Process::own());
    opened.transpose()
}

#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    inside(|| remote_kernel::closed(fd));
    ask(|kernel| {
        kernel.handle(fd)?;
        kernel.closed(fd);
        Some(())
    });
    next!(c"close", fn(c_int) -> c_int, (fd), -1)
}

/// All numbers from `first` to `last`, both of them.
#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // `CLOSE_RANGE_CLOEXEC` closes nothing yet.
    const CLOSES_LATER: c_int = 4;
    if flags & CLOSES_LATER == 0 {
        inside(|| remote_kernel::closed_all(first, last));
        ask(|kernel| {
            let range =
                |fd: &RawFd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
            let all: Vec<RawFd> = kernel.fds.keys().copied().filter(range).collect();
            all.into_iter().for_each(|fd| kernel.closed(fd));
            Some(())
        });
    }
    answer(raw(
        libc::SYS_close_range,
        [first.into(), last.into(), flags as u64, 0, 0, 0],
    )) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

fn duplicated(from: c_int, to: c_int) -> c_int {
    if to >= 0 {
        inside(|| remote_kernel::duplicated(from, to));
        ask(|kernel| {
            if kernel.handle(from).is_some() || kernel.handle(to).is_some() {
                kernel.duplicated(from, to);
            }
            Some(())
        });
    }
    to
}

#[unsafe(no_mangle)]
extern "C" fn dup(fd: c_int) -> c_int {
    duplicated(fd, next!(c"dup", fn(c_int) -> c_int, (fd), -1))
}

#[unsafe(no_mangle)]
extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    duplicated(fd, next!(c"dup2", fn(c_int, c_int) -> c_int, (fd, to), -1))
}

#[unsafe(no_mangle)]
extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let made = next!(
        c"dup3",
        fn(c_int, c_int, c_int) -> c_int,
        (fd, to, flags),
        -1
    );
    duplicated(fd, made)
}

#[unsafe(no_mangle)]
extern "C" fn fcntl(fd: c_int, command: c_int, argument: u64) -> c_int {
    let made = next!(
        c"fcntl",
        fn(c_int, c_int, u64) -> c_int,
        (fd, command, argument),
        -1
    );
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return duplicated(fd, made);
    }
    made
}

#[unsafe(no_mangle)]
extern "C" fn fcntl64(fd: c_int, command: c_int, argument: u64) -> c_int {
    fcntl(fd, command, argument)
}

#[unsafe(no_mangle)]
extern "C" fn ioctl(fd: c_int, request: u64, argument: u64) -> c_int {
    if let Some(result) = ask(|kernel| kernel.perf_ioctl(fd, request, argument)) {
        return give(result) as c_int;
    }
    next!(
        c"ioctl",
        fn(c_int, u64, u64) -> c_int,
        (fd, request, argument),
        -1
    )
}

/// A mapping that the tool asks for.
#[derive(Clone, Copy)]
struct Wanted {
    address: u64,
    length: u64,
    protection: u64,
    flags: u64,
    offset: u64,
}

impl Wanted {
    fn writes(&self) -> bool {
        self.protection & libc::PROT_WRITE as u64 != 0
    }

    fn map(self, fd: RawFd) -> i64 {
        let fd = fd as u64;
        raw(
            libc::SYS_mmap,
            [
                self.address,
                self.length,
                self.protection,
                self.flags,
                fd,
                self.offset,
            ],
        )
    }

    /// Memory of ours as it is.
    fn of(self, memory: &Memory) -> i64 {
        self.map(memory.fd().as_raw_fd())
    }

    /// Our page and the data of a ring, the data twice, so that no record is split for the reader.
    fn of_ring(self, memory: &Memory, size: u64) -> i64 {
        if self.offset != PAGE || self.length != PAGE + 2 * size {
            return self.of(memory);
        }
        let reserve = Wanted {
            protection: libc::PROT_NONE as u64,
            flags: (self.flags & libc::MAP_FIXED as u64)
                | (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
            offset: 0,
            ..self
        };
        let base = reserve.map(-1);
        if base < 0 {
            return base;
        }
        let base = base as u64;
        let flags = self.flags | libc::MAP_FIXED as u64;
        let parts = [(0, PAGE + size, PAGE), (PAGE + size, size, 2 * PAGE)];
        for (at, length, offset) in parts {
            let part = Wanted {
                address: base + at,
                length,
                flags,
                offset,
                ..self
            };
            let mapped = part.of(memory);
            if mapped < 0 {
                raw(libc::SYS_munmap, [base, self.length, 0, 0, 0, 0]);
                return mapped;
            }
        }
        base as i64
    }
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let wanted = Wanted {
        address,
        length,
        protection: protection as u64,
        flags: flags as u64,
        offset: offset as u64,
    };
    let ours = if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 {
        ask(|kernel| map_ours(kernel, fd, wanted))
    } else {
        None
    };
    answer(ours.unwrap_or_else(|| wanted.map(fd))) as *mut c_void
}

fn map_ours(kernel: &mut Kernel, fd: c_int, wanted: Wanted) -> Option<i64> {
    let refused = Some(-i64::from(libc::EINVAL));
    match kernel.handle(fd)? {
        Handle::Map(at) if let Some(fd) = kernel.mapped_in_linux(at) => Some(wanted.map(fd)),
        Handle::Map(at) => match &kernel.maps.get(at)?.contents {
            Contents::Ring(ring) => Some(wanted.of_ring(ring.memory(), ring.size())),
            // Only programs move their position.
            Contents::UserRing(_) if wanted.offset == 0 && wanted.writes() => {
                Some(-i64::from(libc::EPERM))
            }
            Contents::UserRing(ring) => Some(wanted.of_ring(ring.memory(), ring.size())),
            Contents::Mapped(memory, _) => Some(wanted.of(memory)),
            _ => refused,
        },
        Handle::Perf(at) => match kernel.perfs.get(at)? {
            Perf::Output(output) if wanted.offset == 0 && wanted.length > PAGE => {
                match output.map(wanted.length / PAGE - 1) {
                    Ok(ring) => Some(wanted.of(ring.memory())),
                    Err(error) => Some(-i64::from(error.raw_os_error())),
                }
            }
            _ => refused,
        },
        Handle::Prog(_) | Handle::Link(_) | Handle::Btf(_) => refused,
    }
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    address: u64,
    length: u64,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    mmap(address, length, protection, flags, fd, offset)
}

/// A file of ours instead of the one with this path.
fn instead(path: *const c_char) -> Option<RawFd> {
    if path.is_null() || is_inside() {
        return None;
    }
    // SAFETY: the tool's own path, which it passes to `open`.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    if !path.starts_with("/sys/") {
        return None;
    }
    inside(|| {
        let text = files::contents(path, variables::cpus(), global::permitted())?;
        let fd = rustix::fs::memfd_create(c"warpbpf-file", MemfdFlags::CLOEXEC).ok()?;
        rustix::io::pwrite(&fd, text.as_bytes(), 0).ok()?;
        Some(fd.into_raw_fd())
    })?
}

#[unsafe(no_mangle)]
extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    instead(path).unwrap_or_else(|| {
        next!(
            c"open",
            fn(*const c_char, c_int, c_uint) -> c_int,
            (path, flags, mode),
            -1
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    open(path, flags, mode)
}

#[unsafe(no_mangle)]
extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    instead(path).unwrap_or_else(|| {
        next!(
            c"openat",
            fn(c_int, *const c_char, c_int, c_uint) -> c_int,
            (folder, path, flags, mode),
            -1
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    openat(folder, path, flags, mode)
}

#[unsafe(no_mangle)]
extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
    match instead(path) {
        // SAFETY: a descriptor that is ours to give away, and the tool's mode, which is for
        // reading.
        Some(fd) => unsafe { libc::fdopen(fd, mode).cast() },
        None => next!(
            c"fopen",
            fn(*const c_char, *const c_char) -> *mut c_void,
            (path, mode),
            std::ptr::null_mut()
        ),
    }
}

#[unsafe(no_mangle)]
extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
    fopen(path, mode)
}

#[unsafe(no_mangle)]
extern "C" fn sysconf(name: c_int) -> c_long {
    // Tools size per-CPU values by it, and what is written to them has the size of the CPUs that we
    // say there are.
    if name == libc::_SC_NPROCESSORS_CONF && !is_inside() {
        return inside(variables::cpus).map_or(1, c_long::from);
    }
    next!(c"sysconf", fn(c_int) -> c_long, (name), -1)
}

#[unsafe(no_mangle)]
extern "C" fn unlink(path: *const c_char) -> c_int {
    let unpinned = ask(|kernel| {
        if path.is_null() {
            return None;
        }
        // SAFETY: the tool's own path, which it passes to `unlink`.
        let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
        kernel.unpin(path).then_some(())
    });
    if unpinned.is_some() {
        return 0;
    }
    next!(c"unlink", fn(*const c_char) -> c_int, (path), -1)
}

/// `BPF_FS_MAGIC`, where objects are pinned.
const BPF_FS: i64 = 0xcafe_4a11;

/// libbpf pins only where it finds a file system for it; every folder is one here.
fn as_bpf_fs(result: c_int, info: *mut libc::statfs) -> c_int {
    if result == 0 && !is_inside() && inside(|| global::existing().is_some()) == Some(true) {
        // SAFETY: the tool's own structure, which libc has just filled.
        unsafe { (*info).f_type = BPF_FS };
    }
    result
}

#[unsafe(no_mangle)]
extern "C" fn statfs(path: *const c_char, info: *mut libc::statfs) -> c_int {
    let result = next!(
        c"statfs",
        fn(*const c_char, *mut libc::statfs) -> c_int,
        (path, info),
        -1
    );
    as_bpf_fs(result, info)
}

#[unsafe(no_mangle)]
extern "C" fn statfs64(path: *const c_char, info: *mut libc::statfs) -> c_int {
    statfs(path, info)
}

/// What `include/warpbpf_loader.h` calls before a program of `SEC("gpu/…")` is loaded.
#[unsafe(no_mangle)]
extern "C" fn warpbpf_loader_announce(program: *const c_char, section: *const c_char) {
    if program.is_null() || section.is_null() {
        return;
    }
    // SAFETY: libbpf's own texts, NUL-terminated.
    let (program, section) = unsafe { (CStr::from_ptr(program), CStr::from_ptr(section)) };
    inside(|| announce(&program.to_string_lossy(), &section.to_string_lossy()));
}

/// What `include/warpbpf_loader.h` calls to attach one: a descriptor to attach it to.
#[unsafe(no_mangle)]
extern "C" fn warpbpf_loader_probe(section: *const c_char) -> c_int {
    if section.is_null() {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: as above.
    let section = unsafe { CStr::from_ptr(section) };
    let section = section.to_string_lossy().into_owned();
    let opened = inside(|| global::kernel().open_probe(Probe::Section(section)));
    give(opened.unwrap_or(Err(Errno::INVAL))) as c_int
}
