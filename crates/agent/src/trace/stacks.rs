//! Where on the CPU an operation was asked for: the return addresses on the calling thread's stack,
//! each stack once.
//!
//! Most code is compiled without frame pointers, so stacks are followed by the tables that
//! exceptions use (`.eh_frame`). The usual ways to do so ask the dynamic loader which libraries
//! there are, and may wait for a thread that waits for us; so the agent reads what is mapped when
//! its hooks are made, and again on a thread of its own when an address was in nothing known.
//! Tables are read from the files, mapped once more, so that a library may go meanwhile. Only words
//! of the thread's own stack are read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use warpbpf_hook::maps::{self, Mapping, mappings};
use warpbpf_wire::{HostModule, HostStack, HostStacks, ToTool};

use crate::runtime::agent::Agent;
use crate::sys::arena::Arena;
use crate::sys::lock::lock;

/// Frames of a stack, from the innermost.
const DEPTH: usize = 64;
/// Different stacks of a process.
const MOST: usize = 1 << 15;
/// Names of copies of code that hooks made (`warpbpf_hook`).
const COPY: &[u8] = b"/memfd:warpbpf-code";
/// Looks at what is mapped; what is read is kept, because a thread may be using it.
const LOOKS: u64 = 64;

type Bytes = &'static [u8];

/// What is mapped, at one moment.
struct Known {
    unwinder: UnwinderX86_64<Bytes>,
    modules: Vec<HostModule>,
    /// Code of all modules, in order.
    code: Vec<Range<u64>>,
}

/// See the module.
pub(crate) struct Stacks {
    known: AtomicPtr<Known>,
    all: Arena<Known>,
    /// A stack left what is known.
    strange: AtomicBool,
    looks: AtomicU64,
    looked: Mutex<Option<Instant>>,
    files: Mutex<HashMap<PathBuf, Option<Bytes>>>,
    numbers: Mutex<HashMap<Vec<u64>, u32>>,
    news: Mutex<Vec<HostStack>>,
    modules_told: AtomicU64,
    crowded: AtomicU64,
}

/// Between two looks at what is mapped.
const REST: Duration = Duration::from_millis(100);

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stacks")
    }
}

thread_local! {
    /// What a thread has found out about addresses: some kilobytes, for threads that ask for
    /// operations.
    static CACHE: RefCell<Option<Box<CacheX86_64>>> = const { RefCell::new(None) };
}

impl Stacks {
    /// Reads what is mapped. Not in a hook.
    pub(crate) fn new() -> Stacks {
        let stacks = Stacks {
            known: AtomicPtr::new(std::ptr::null_mut()),
            all: Arena::default(),
            strange: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            looked: Mutex::default(),
            files: Mutex::default(),
            numbers: Mutex::default(),
            news: Mutex::default(),
            modules_told: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
        };
        stacks.look();
        stacks
    }

    fn look(&self) {
        if self.looks.load(Ordering::Relaxed) >= LOOKS {
            return;
        }
        let maps = maps::own().unwrap_or_default();
        let known = Known::read(&maps, &mut lock(&self.files));
        // Code that is in no file was there, or nothing but a guess.
        if (self.known()).is_some_and(|before| before.modules == known.modules) {
            return;
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
        // The one before stays: a thread may be in it.
        // SAFETY: what knows stacks is a part of an agent.
        let known = unsafe { self.all.keep(known) };
        self.known
            .store(std::ptr::from_ref(known).cast_mut(), Ordering::Release);
    }

    fn known(&self) -> Option<&'static Known> {
        // SAFETY: null, or what `look` keeps as long as the agent lives.
        unsafe { self.known.load(Ordering::Acquire).as_ref() }
    }

    /// The number of the stack of a function's caller; `None` if there are too many, or it is not
    /// the thread's own.
    ///
    /// # Safety
    /// The thread is at a function's first instruction with these registers, and `own` is its
    /// stack.
    pub(crate) unsafe fn number(&self, at: Caller, own: &Range<u64>) -> Option<u32> {
        let known = self.known()?;
        // SAFETY: the caller's promise.
        let frames = unsafe { known.frames(at, own) };
        // On a stack that is not the thread's own there is nothing to follow.
        let last = *frames.last()?;
        if !known.has(last) {
            self.strange.store(true, Ordering::Relaxed);
        }
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.get(&frames) {
            return Some(*number);
        }
        if numbers.len() >= MOST {
            drop(numbers);
            self.crowded.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = numbers.len() as u32 + 1;
        numbers.insert(frames.clone(), number);
        drop(numbers);
        lock(&self.news).push(HostStack { number, frames });
        Some(number)
    }

    /// Tells of new stacks, and looks again if a stack left what is known. On the agent's thread.
    pub(crate) fn turn(&self, agent: &Agent) {
        let rested = lock(&self.looked).is_none_or(|at| at.elapsed() >= REST);
        if rested && self.strange.swap(false, Ordering::Relaxed) {
            self.look();
            *lock(&self.looked) = Some(Instant::now());
        }
        let stacks = std::mem::take(&mut *lock(&self.news));
        if stacks.is_empty() {
            return;
        }
        let looks = self.looks.load(Ordering::Relaxed);
        let modules = match self.modules_told.swap(looks, Ordering::Relaxed) == looks {
            true => Vec::new(),
            false => self
                .known()
                .map_or_else(Vec::new, |known| known.modules.clone()),
        };
        let crowded = self.crowded.load(Ordering::Relaxed);
        let told = HostStacks {
            stacks,
            modules,
            crowded,
        };
        agent.send(ToTool::Stacks(told), None);
    }
}

/// Registers that matter to whoever follows a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// Where the return address stands.
    pub(crate) slot: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    /// `r12` to `r15`.
    pub(crate) others: [u64; 4],
}

impl Known {
    fn read(maps: &[u8], files: &mut HashMap<PathBuf, Option<Bytes>>) -> Known {
        let mut known = Known {
            unwinder: UnwinderX86_64::new(),
            modules: Vec::new(),
            code: Vec::new(),
        };
        for (path, mut lines) in files_of(maps) {
            // Data may be mapped that is much larger than code.
            if !lines.iter().any(|line| line.is_code) {
                continue;
            }
            let bytes = *files.entry(path.clone()).or_insert_with(|| map(&path));
            let Some(bytes) = bytes else { continue };
            // Our own mapping of the file is none of the application's.
            lines.retain(|line| line.range.start != bytes.as_ptr() as u64);
            known.add(&path, &lines, bytes);
        }
        known.code.sort_unstable_by_key(|code| code.start);
        known
    }

    fn add(&mut self, path: &Path, lines: &[Line], bytes: Bytes) -> Option<()> {
        let elf: ElfFile64<'_, object::Endianness> = ElfFile64::parse(bytes).ok()?;
        // Where the file's beginning lies, against where its first segment says that it does.
        let first = elf.segments().find(|segment| segment.file_range().0 == 0)?;
        let start = lines.iter().find(|line| line.offset == 0)?.range.start;
        let bias = start.wrapping_sub(first.address() & !0xfff);
        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            let (at, length) = section.file_range()?;
            let range = section.address()..section.address().checked_add(section.size())?;
            let end = usize::try_from(at.checked_add(length)?).ok()?;
            Some((range, bytes.get(usize::try_from(at).ok()?..end)?))
        };
        let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
        let (text_svma, text) = section(".text").unzip();
        let path = path.display().to_string();
        // Between its mappings may be what is another file's, or nothing.
        for Range { start, end } in joined(lines.iter().filter(|line| line.is_code)) {
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: text_svma.clone(),
                text,
                eh_frame_svma: eh_frame_svma.clone(),
                eh_frame,
                eh_frame_hdr_svma: eh_frame_hdr_svma.clone(),
                eh_frame_hdr,
                ..Default::default()
            };
            let module = Module::new(path.clone(), start..end, bias, sections);
            self.unwinder.add_module(module);
            self.code.push(start..end);
            self.modules.push(HostModule {
                path: path.clone(),
                start,
                end,
                bias,
            });
        }
        Some(())
    }

    fn has(&self, address: u64) -> bool {
        let behind = self.code.partition_point(|code| code.start <= address);
        let before = behind.checked_sub(1).map(|at| &self.code[at]);
        before.is_some_and(|code| code.contains(&address))
    }

    /// # Safety
    /// As [`Stacks::number`].
    unsafe fn frames(&self, at: Caller, own: &Range<u64>) -> Vec<u64> {
        let mut read = |address: u64| {
            let inside = address.is_multiple_of(8)
                && own.start <= address
                && address <= own.end.saturating_sub(8);
            // Below the caller's frame nothing is the application's.
            if !inside || address < at.slot {
                return Err(());
            }
            // SAFETY: a word of this thread's own stack, in use.
            Ok(unsafe { (address as *const u64).read_volatile() })
        };
        let mut frames = Vec::new();
        let Ok(mut next) = read(at.slot) else {
            return frames;
        };
        use framehop::x86_64::Reg;
        let mut registers = UnwindRegsX86_64::new(next, at.slot + 8, at.rbp);
        registers.set(Reg::RBX, at.rbx);
        for (register, value) in [Reg::R12, Reg::R13, Reg::R14, Reg::R15]
            .into_iter()
            .zip(at.others)
        {
            registers.set(register, value);
        }
        let followed = CACHE.try_with(|cache| {
            let Ok(mut cache) = cache.try_borrow_mut() else {
                return;
            };
            let cache = cache.get_or_insert_with(|| Box::new(CacheX86_64::new()));
            while frames.len() < DEPTH {
                frames.push(next);
                let Some(address) = FrameAddress::from_return_address(next) else {
                    break;
                };
                match self
                    .unwinder
                    .unwind_frame(address, &mut registers, cache, &mut read)
                {
                    Ok(Some(outer)) if outer != 0 => next = outer,
                    _ => break,
                }
            }
        });
        // A thread that ends has no cache any more.
        if followed.is_err() {
            frames.push(next);
        }
        frames
    }
}

/// Ranges of lines; those that follow one another are one.
fn joined<'l>(lines: impl Iterator<Item = &'l Line>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for Range { start, end } in lines.map(|line| line.range.clone()) {
        match all.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => all.push(start..end),
        }
    }
    all
}

/// A line of `/proc/PID/maps`.
struct Line {
    range: Range<u64>,
    offset: u64,
    is_code: bool,
}

/// Lines of each file.
fn files_of(maps: &[u8]) -> Vec<(PathBuf, Vec<Line>)> {
    let mut files: Vec<(PathBuf, Vec<Line>)> = Vec::new();
    // The file whose mapping came before, and where that ends.
    let mut before: Option<(PathBuf, u64)> = None;
    for mapping in mappings(maps).filter(Mapping::is_file) {
        let mut path = mapping.path();
        // Code of a file's that we changed by a copy of it.
        if mapping.name.starts_with(COPY)
            && let Some((file, end)) = &before
            && *end == mapping.range.start as u64
        {
            path = file.clone().into();
        }
        before = Some((path.clone().into_owned(), mapping.range.end as u64));
        let line = Line {
            range: mapping.range.start as u64..mapping.range.end as u64,
            offset: mapping.offset,
            is_code: mapping.is_code(),
        };
        match files.iter_mut().find(|(known, _)| *known == path) {
            Some((_, lines)) => lines.push(line),
            None => files.push((path.into_owned(), vec![line])),
        }
    }
    files
}

/// A file's bytes, for as long as the process lives. `None` for what is no regular file.
fn map(path: &Path) -> Option<Bytes> {
    let file = warpbpf_descriptor::open(path).ok()?;
    let length = usize::try_from(file.stat().ok()?.st_size)
        .ok()
        .filter(|length| *length > 0)?;
    // SAFETY: a new mapping of a file that is open.
    let at = unsafe {
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        libc::mmap(
            std::ptr::null_mut(),
            length,
            read,
            private,
            file.here().ok()?.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped just now, and never unmapped. Whoever cuts a library short while it is in use
    // breaks the application too.
    Some(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_file_belong_together() {
        let maps = b"\
            5000-6000 r--p 00000000 08:01 7 /usr/lib/a b.so\n\
            6000-8000 r-xp 00001000 08:01 7 /usr/lib/a b.so\n\
            9000-a000 rw-p 00000000 00:00 0 [heap]\n\
            a000-b000 r-xp 00000000 08:01 9 /bin/app\n";
        let files = files_of(maps);
        let seen: Vec<(&str, Vec<(u64, bool)>)> = files
            .iter()
            .map(|(path, lines)| {
                (
                    path.to_str().unwrap(),
                    lines
                        .iter()
                        .map(|l| (l.range.start + l.offset, l.is_code))
                        .collect(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("/usr/lib/a b.so", vec![(0x5000, false), (0x7000, true)]),
                ("/bin/app", vec![(0xa000, true)])
            ]
        );
    }

    #[test]
    fn what_lies_between_the_mappings_of_a_file_is_not_its_code() {
        let path = std::env::current_exe().unwrap();
        let path = path.display();
        let maps = format!(
            "10000000-10001000 r--p 00000000 08:01 7 {path}\n\
             10001000-10002000 r-xp 00001000 08:01 7 {path}\n\
             10002000-10003000 r-xp 00000000 00:01 8 /memfd:warpbpf-code (deleted)\n\
             10003000-10004000 r-xp 00003000 08:01 7 {path}\n\
             18000000-18001000 r-xp 00000000 00:01 9 /memfd:another (deleted)\n\
             20000000-20001000 r-xp 00004000 08:01 7 {path}\n"
        );
        let known = Known::read(maps.as_bytes(), &mut HashMap::new());
        let code = [0x1000_1000..0x1000_4000, 0x2000_0000..0x2000_1000];
        assert_eq!(known.code, code);
        let of_modules = known.modules.iter().map(|m| (m.start..m.end, m.bias));
        let bias = known.modules[0].bias;
        assert_eq!(
            of_modules.collect::<Vec<_>>(),
            code.map(|range| (range, bias))
        );
        for (address, is_known) in [
            (0x1000_0800, false),
            (0x1000_1000, true),
            (0x1000_2800, true),
            (0x1000_4000, false),
            (0x1800_0000, false),
            (0x2000_0fff, true),
        ] {
            assert_eq!(known.has(address), is_known, "{address:#x}");
        }
    }

    #[test]
    fn a_stack_has_a_number_once_and_one_that_is_not_the_threads_has_none() {
        let stacks = Stacks::new();
        // What is above the first word leads nowhere.
        let words = [0x10u64, 0, 0, 0];
        let start = words.as_ptr() as u64;
        let own = start..start + 32;
        let at = |slot: u64| Caller {
            slot,
            rbp: 0,
            rbx: 0,
            others: [0; 4],
        };
        // SAFETY: the words stand for a stack.
        let number = |slot: u64, own: &Range<u64>| unsafe { stacks.number(at(slot), own) };
        assert_eq!(number(start, &own), Some(1));
        assert_eq!(number(start, &own), Some(1));
        assert_eq!(lock(&stacks.news).len(), 1);
        assert_eq!(lock(&stacks.news)[0].frames, [0x10]);
        assert!(stacks.strange.load(Ordering::Relaxed), "no file is there");
        assert_eq!(number(start, &(start + 8..start + 32)), None);
        assert_eq!(number(start + 4, &own), None, "no word");
        assert_eq!(number(start + 32, &own), None);
    }
}
