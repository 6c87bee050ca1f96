//! Where a thread stands, by its instruction pointer and its stack: may it be borrowed for a call,
//! is it in code that is about to change.
//!
//! A borrowed thread makes one call, `pthread_create`, which allocates. So it must not stand in an
//! allocator, in the loader or in what libc does about threads: those have locks, and states that
//! are not whole. Stacks are not unwound, but searched for words that a call could have left, so a
//! thread may be judged to be in more than it is, and never in less. Old words lie for ever in a
//! frame that does not write to all of its room. So only words count that could be of a call which
//! is under way, as the thread stands: what holds a lock waits for certain things only, and does
//! not call an application's code.

use std::ops::Range;

use crate::elf::Library;
use crate::error::InjectError;
use crate::hindrance::Hindrance;
use crate::machine::{self, CALL_BYTES, RESTORER};
use crate::memory::{Bytes as _, Memory};
use crate::proc::{self, Mapping};
use crate::process::Subject;
use crate::tracee::Tracee;

/// Bytes of a stack that are searched. What is called from further out than this has been waiting
/// for a deep call.
const STACK: usize = 256 << 10;

/// libc's allocator, which holds its lock and waits for nothing but that.
const ALLOCATOR: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
];

/// System calls in which it does.
const LOCKS: &[i64] = &[libc::SYS_futex, libc::SYS_sched_yield];

/// System calls that other allocators may make while they hold a lock: they wait for others, and
/// read and tell what they need.
const OF_ALLOCATORS: &[i64] = &[
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_ioctl,
];

/// Functions of libc that print, or call the application's handlers, and hold meanwhile what
/// `pthread_create` needs.
const HELD: &[&str] = &["malloc_info", "malloc_stats", "fork", "vfork", "_Fork"];

/// Other functions of libc in which a thread may hold what `pthread_create` needs.
const UNSAFE: &[&str] = &[
    "malloc_trim",
    "malloc_info",
    "malloc_stats",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "cfree",
    "fork",
    "vfork",
    "_Fork",
    "pthread_create",
    "pthread_exit",
    "pthread_getattr_np",
    "dl_iterate_phdr",
    "exit",
    "quick_exit",
    "abort",
];

/// System calls in which threads wait for something outside.
const WAITS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    libc::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_futex,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_sched_yield,
    libc::SYS_ioctl,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_restart_syscall,
];

/// What is known of a process's code.
#[derive(Debug)]
pub(crate) struct Places {
    /// Where no thread may be that is borrowed.
    unsafe_code: Vec<Range<u64>>,
    /// The same, of libc's allocator.
    allocator: Vec<Range<u64>>,
    /// Of allocators in the place of libc's.
    others: Vec<Range<u64>>,
    /// Of [`HELD`].
    held: Vec<Range<u64>>,
    /// Of libc: a thread that runs there and waits for nothing is not borrowed.
    libc: Vec<Range<u64>>,
    maps: Vec<Mapping>,
}

/// What is looked for on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// Where a call returns to: behind a call instruction.
    Return,
    /// Any address: where a signal came may be pushed too.
    Any,
}

impl Places {
    pub(crate) fn new(
        subject: &Subject,
        memory: &Memory,
        libc: u64,
    ) -> Result<Places, InjectError> {
        let mut places = Places {
            unsafe_code: Vec::new(),
            allocator: Vec::new(),
            others: Vec::new(),
            held: Vec::new(),
            libc: subject.code_of(libc),
            maps: subject.maps.clone(),
        };
        let loader =
            subject.base_of(|name| name.starts_with("ld-linux") || name.starts_with("ld-"));
        if let Some(loader) = loader {
            places.unsafe_code.extend(subject.code_of(loader));
        }
        if let Some(library) = Library::at(memory, libc) {
            for name in UNSAFE {
                places.unsafe_code.extend(library.function(name)?);
            }
            for name in ALLOCATOR {
                places.allocator.extend(library.function(name)?);
            }
            for name in HELD {
                places.held.extend(library.function(name)?);
            }
        }
        for base in subject.bases() {
            if base == libc || Some(base) == loader {
                continue;
            }
            let Some(library) = Library::at(memory, base) else {
                continue;
            };
            let found = library.function("malloc");
            let found = found.and_then(|malloc| Ok((malloc, library.function("free")?)));
            let (malloc, free) = match found {
                Ok((Some(malloc), Some(free))) => (malloc, free),
                Ok(_) => continue,
                Err(_) => {
                    // It may be an allocator, or on its way out.
                    places.others.extend(subject.code_of(base));
                    continue;
                }
            };
            // An allocator in the place of libc's. One inside the executable is known by its
            // entries only.
            match places.is_executable(subject, base) {
                true => places.others.extend([malloc, free]),
                false => places.others.extend(subject.code_of(base)),
            }
        }
        Ok(places)
    }

    fn is_executable(&self, subject: &Subject, base: u64) -> bool {
        let exe = std::fs::read_link(proc::folder(subject.pid).join("exe"));
        let exe = exe.unwrap_or_default();
        let here = self.maps.iter().find(|m| m.range.start == base);
        here.is_some_and(|m| proc::in_maps(&exe) == m.name)
    }

    /// A call may be made on this thread, which is stopped.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn is_safe(&self, memory: &Memory, thread: &Tracee) -> Result<(), Hindrance> {
        let at = machine::pc(&thread.registers);
        let contained = |all: &[Range<u64>]| all.iter().any(|range| range.contains(&at));
        let waits = match thread.syscall() {
            Some(number) => WAITS.contains(&number),
            // It runs.
            None => !contained(&self.libc),
        };
        let inside = [&self.unsafe_code, &self.allocator, &self.others];
        if !waits || inside.into_iter().any(|code| contained(code)) {
            return Err(Hindrance::Place);
        }
        let mut count = self.that_count(memory, thread).into_iter();
        match count.any(|code| self.on_stack(memory, thread, code, Word::Return)) {
            true => Err(Hindrance::Words),
            false => Ok(()),
        }
    }

    /// Code that a call on the thread's stack may be in, as it stands: outside of all of it.
    fn that_count(&self, memory: &Memory, thread: &Tracee) -> Vec<&[Range<u64>]> {
        // A handler may have interrupted anything.
        if self.is_in_handler(memory, thread) {
            return vec![&self.unsafe_code, &self.allocator, &self.others];
        }
        match thread.syscall() {
            Some(number) if LOCKS.contains(&number) => {
                vec![&self.unsafe_code, &self.allocator, &self.others]
            }
            // libc's allocator makes no such call, and in the loader only constructors do, which
            // may start threads.
            Some(number) if OF_ALLOCATORS.contains(&number) => vec![&self.held, &self.others],
            Some(_) => vec![&self.held],
            // It runs in the application's code: libc's allocator calls none, and the loader as
            // above.
            None => vec![&self.held, &self.others],
        }
    }

    fn is_in_handler(&self, memory: &Memory, thread: &Tracee) -> bool {
        self.stack(memory, thread).into_iter().any(|word| {
            let mut code = vec![0; RESTORER.len()];
            let is_code = self.maps.iter().any(|m| m.code && m.range.contains(&word));
            is_code && memory.read(word, &mut code).is_ok() && code == RESTORER
        })
    }

    /// What lies on the stack of a thread, which is stopped, in words, as addresses.
    fn stack(&self, memory: &Memory, thread: &Tracee) -> Vec<u64> {
        let start = machine::stack(&thread.registers) & !7;
        let stack = self.maps.iter().find(|m| m.range.contains(&start));
        // One that was mapped since is searched too.
        let end = stack.map_or(start.saturating_add(STACK as u64), |m| m.range.end);
        let bytes = (end - start).min(STACK as u64) as usize;
        let stack = memory.read_some(start, bytes);
        let words = stack.chunks_exact(8).map(|w| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(w);
            u64::from_le_bytes(bytes)
        });
        // Where a function returns to that has called none is in a register on some processors.
        let link = machine::link(&thread.registers);
        words.map(machine::address).chain(link).collect()
    }

    /// It is in a restartable sequence: a call in the middle of one would make it forget that it
    /// has to be restarted.
    pub(crate) fn is_in_sequence(&self, memory: &Memory, thread: &Tracee) -> bool {
        // `rseq_cs` is its third word.
        let there = thread.rseq().map(|rseq| memory.word(rseq.wrapping_add(8)));
        matches!(there, Some(Ok(sequence)) if sequence != 0)
    }

    /// Some word on the stack of a thread, which is stopped, leads into `code`.
    pub(crate) fn on_stack(
        &self,
        memory: &Memory,
        thread: &Tracee,
        code: &[Range<u64>],
        word: Word,
    ) -> bool {
        let words = self.stack(memory, thread).into_iter();
        let low = code.iter().map(|range| range.start).min().unwrap_or(0);
        let high = code.iter().map(|range| range.end).max().unwrap_or(0);
        let near = words.filter(|w| (low..high).contains(w));
        let mut found = near.filter(|w| code.iter().any(|range| range.contains(w)));
        found.any(|address| word == Word::Any || is_behind_call(memory, address))
    }
}

/// The instruction before this address may be a call.
fn is_behind_call(memory: &Memory, address: u64) -> bool {
    let mut before = [0; CALL_BYTES];
    let start = address.checked_sub(CALL_BYTES as u64);
    let read = start.map(|start| memory.read(start, &mut before));
    matches!(read, Some(Ok(()))) && machine::ends_in_call(&before)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A file whose tables lie where nothing is mapped, as those of a whole library do that
    /// somebody mapped to read it.
    fn misleading() -> Vec<u8> {
        let mut file = vec![0; 4096];
        let mut put = |at: usize, value: &[u8]| file[at..at + value.len()].copy_from_slice(value);
        put(0, b"\x7fELF\x02\x01\x01");
        put(32, &64u64.to_le_bytes());
        put(56, &2u16.to_le_bytes());
        put(64, &1u32.to_le_bytes());
        put(64 + 56, &2u32.to_le_bytes());
        put(64 + 56 + 16, &256u64.to_le_bytes());
        put(64 + 56 + 40, &64u64.to_le_bytes());
        let nowhere = 0x7fff_ffff_0000u64;
        for (n, tag) in [5u64, 6, 0x6fff_fef5].into_iter().enumerate() {
            put(256 + 16 * n, &tag.to_le_bytes());
            put(264 + 16 * n, &nowhere.to_le_bytes());
        }
        file
    }

    #[test]
    fn what_is_mapped_to_be_read_is_no_library_and_what_cannot_be_read_is_not_entered() {
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        // SAFETY: a NUL-terminated name; the descriptor is ours.
        let mut file = unsafe {
            use std::os::fd::FromRawFd as _;
            let made = libc::memfd_create(c"misleading".as_ptr(), libc::MFD_CLOEXEC);
            assert!(made >= 0);
            std::fs::File::from_raw_fd(made)
        };
        std::io::Write::write_all(&mut file, &misleading()).unwrap();
        for (more, is_library) in [(0, false), (libc::PROT_EXEC, true)] {
            let rights = more | libc::PROT_READ;
            let (kind, descriptor) = (libc::MAP_PRIVATE, file.as_raw_fd());
            // SAFETY: new memory, of a file that nobody changes.
            let there =
                unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, kind, descriptor, 0) };
            assert_ne!(there, libc::MAP_FAILED);
            let at = there as u64;
            let library = Library::at(&memory, at).unwrap();
            assert!(library.function("malloc").is_err());
            let subject = Subject {
                pid,
                seccomp: false,
                maps: crate::proc::mappings(pid).unwrap(),
            };
            let libc = subject.base_of(|name| name == "libc.so.6").unwrap();
            let places = Places::new(&subject, &memory, libc).unwrap();
            let is_unsafe = places.others.iter().any(|range| range.contains(&at));
            assert_eq!(is_unsafe, is_library);
            // SAFETY: it was mapped above, and nothing refers to it.
            assert_eq!(unsafe { libc::munmap(there, 4096) }, 0);
        }
    }
}
