//! The images in files that are mapped into this process: which file, where in it, and which
//! kernels that programs want.
//!
//! Files are read where they are mapped again, a piece at a time and only as it is looked at:
//! libraries of kernels are large. PyTorch's hold gigabytes of code, compressed, so several threads
//! take it out, with the lowest priority that there is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use warpbpf_descriptor::OwnDescriptor;
use warpbpf_hook::maps::{self, mappings};
use warpbpf_session::{executable, kernel_names};

use crate::sys::guard::Guard;
use crate::sys::lock::lock;

/// Files of the driver itself, whose kernels are its own affair, and ours.
const NOT_THE_APPLICATIONS: &[&str] = &["libcuda.so", "libnvidia-", "libwarpbpf_", "memfd:warpbpf"];

/// Bytes of a file that are looked at before its pages are let go: the process is charged for them
/// meanwhile.
const PIECE: usize = 16 << 20;

/// Threads that help to look into a file: one for so many cores and so many images, and not more.
const CORES_A_HELPER: usize = 4;
const IMAGES_A_HELPER: usize = 16;
const HELPERS: usize = 7;
/// The least that Linux knows.
const NICENESS: i32 = 19;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Files {
    images: Vec<Found>,
    /// Devices and inodes that were looked at.
    known: HashSet<(u64, u64)>,
}

/// An image in a file.
#[derive(Debug)]
pub(crate) struct Found {
    file: Arc<Mapped>,
    range: Range<usize>,
    /// Kernels in it that programs want.
    kernels: Vec<String>,
}

impl Found {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }

    pub(crate) fn path(&self) -> &str {
        &self.file.path
    }
}

impl Files {
    /// Looks at all files that are mapped now and were not looked at before, as long as it
    /// `goes_on`.
    pub(crate) fn index(
        known: Option<Files>,
        capability: (u32, u32),
        wanted: &(dyn Fn(&str) -> bool + Sync),
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Files {
        let mut files = known.unwrap_or_default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let most = HELPERS.min(cores / CORES_A_HELPER);
        let mut maps = maps::own().unwrap_or_default();
        if warpbpf_faults::strikes("late/maps") {
            maps.clear();
        }
        for (path, inode) in mapped_files(&maps) {
            // One that was replaced since is not what was loaded.
            let Some((file, device)) = open(&path, inode) else {
                continue;
            };
            if !files.known.insert((device, inode)) {
                continue;
            }
            let there = Mapped::new(&file, &path);
            let Some(mapped) = there.filter(|_| !warpbpf_faults::strikes("late/file")) else {
                continue;
            };
            let mapped = Arc::new(mapped);
            let all = mapped.bytes();
            let images = executable::images(all).unwrap_or_default();
            let looking = Looking {
                file: &mapped,
                images: &images,
                next: AtomicUsize::new(0),
                seen: AtomicUsize::new(0),
                found: Mutex::default(),
            };
            let helpers = most.min(images.len() / IMAGES_A_HELPER);
            looking.share(helpers, &|| looking.look(capability, wanted, goes_on));
            if !goes_on() {
                return files;
            }
            let mut found = std::mem::take(&mut *lock(&looking.found));
            found.sort_unstable();
            for (at, kernels) in found {
                let start = images[at].as_ptr() as usize - all.as_ptr() as usize;
                files.images.push(Found {
                    file: Arc::clone(&mapped),
                    range: start..start + images[at].len(),
                    kernels,
                });
            }
            mapped.let_go();
        }
        files
    }

    /// Some image has a kernel of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.with(name).next().is_some()
    }

    /// Those that do.
    pub(crate) fn with(&self, name: &str) -> impl Iterator<Item = &Found> {
        let has = move |found: &&Found| found.kernels.iter().any(|kernel| kernel == name);
        self.images.iter().filter(has)
    }
}

/// The images of one file, being looked at.
struct Looking<'f> {
    file: &'f Mapped,
    images: &'f [&'f [u8]],
    /// The first one that nobody has taken.
    next: AtomicUsize,
    /// Bytes that were looked at since pages were let go.
    seen: AtomicUsize,
    /// Positions of images, and the kernels in them that programs want.
    found: Mutex<Vec<(usize, Vec<String>)>>,
}

impl Looking<'_> {
    /// Takes images until there are none.
    fn look(
        &self,
        capability: (u32, u32),
        wanted: &dyn Fn(&str) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) {
        while goes_on() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(image) = self.images.get(at) else {
                return;
            };
            let Ok(mut kernels) = kernel_names(image, capability) else {
                continue;
            };
            if self.seen.fetch_add(image.len(), Ordering::Relaxed) >= PIECE {
                self.seen.store(0, Ordering::Relaxed);
                self.file.let_go();
            }
            kernels.retain(|name| wanted(name));
            if !kernels.is_empty() {
                lock(&self.found).push((at, kernels));
            }
        }
    }

    /// The work here, and on threads beside this one, whose mask of signals they have.
    fn share(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        let may_be_nice = helpers > 0 && is_unfiltered();
        thread::scope(|scope| {
            for _ in 0..helpers {
                let help = || {
                    let _guard = Guard::enter();
                    if may_be_nice {
                        // SAFETY: of the calling thread only, by which it does not get more than it
                        // has.
                        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
                    }
                    work();
                };
                let builder = thread::Builder::new().name("warpbpf-look".into());
                // Without it there is less help.
                let _ = builder.spawn_scoped(scope, help);
            }
            work();
        });
    }
}

/// No filter (seccomp) says which system calls this process may make: some end it at those that
/// they do not expect.
fn is_unfiltered() -> bool {
    let status = warpbpf_descriptor::read_file("/proc/thread-self/status").unwrap_or_default();
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.any(|line| line == b"Seccomp:\t0")
}

/// Paths and inodes of files that are mapped from their beginnings, by a `/proc/PID/maps` text.
fn mapped_files(maps: &[u8]) -> impl Iterator<Item = (Cow<'_, Path>, u64)> {
    mappings(maps)
        .filter(|mapping| {
            let name = mapping
                .name
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default();
            let own = |part: &&str| name.starts_with(part.as_bytes());
            mapping.offset == 0 && mapping.is_file() && !NOT_THE_APPLICATIONS.iter().any(own)
        })
        .map(|mapping| (mapping.path(), mapping.inode))
}

/// The file, and the device that it is on, if it is still the one with this inode.
fn open(path: &Path, inode: u64) -> Option<(OwnDescriptor, u64)> {
    let file = warpbpf_descriptor::open(path).ok()?;
    let there = file.stat().ok()?;
    (there.st_ino == inode).then_some((file, there.st_dev))
}

/// A file in memory, to be read.
#[derive(Debug)]
struct Mapped {
    start: *mut std::ffi::c_void,
    length: usize,
    path: String,
}

// SAFETY: memory that nobody writes.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(file: &OwnDescriptor, path: &Path) -> Option<Mapped> {
        let length = usize::try_from(file.stat().ok()?.st_size).ok()?;
        let fd = file.here().ok()?;
        // SAFETY: fresh memory; a program's file that is cut short while it runs would end the
        // program without us too.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                fd,
                0,
            )
        };
        Some(Mapped {
            start: start.ok()?,
            length,
            path: path.display().to_string(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this lives.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }

    /// Its pages are no longer this process's; whoever looks at them again has them again, from the
    /// system's cache.
    fn let_go(&self) {
        // SAFETY: nobody writes to them, so they are what the file has, before and after. If it
        // fails they stay.
        let _ = unsafe { madvise(self.start, self.length, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nothing borrows it any more.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_once_each_by_their_beginnings() {
        let maps = b"\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 77                         /bin/my app
55d0c0001000-55d0c0005000 r-xp 00001000 08:01 77                         /bin/my app
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]
7f0000002000-7f0000003000 r--p 00000000 08:01 5                          /lib/libcuda.so.1
7f0000002000-7f0000003000 r--p 00000000 08:01 6                          /lib/libcudart.so.13
";
        let found: Vec<_> = mapped_files(maps).collect();
        let all = [("/bin/my app", 77), ("/lib/libcudart.so.13", 6)];
        assert_eq!(
            found,
            all.map(|(path, inode)| (Cow::from(Path::new(path)), inode))
        );
    }

    /// KiB of a mapping that the process is charged for.
    fn resident(mapped: &Mapped) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapped.start as usize);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
        line.split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn pages_that_were_looked_at_are_let_go() {
        let path = std::env::temp_dir().join(format!("warpbpf-large-{}", std::process::id()));
        std::fs::write(&path, vec![7; 32 << 20]).unwrap();
        let mapped = Mapped::new(
            &warpbpf_descriptor::open(&path).unwrap(),
            Path::new("large"),
        )
        .unwrap();
        let sum = |mapped: &Mapped| -> u64 { mapped.bytes().iter().map(|b| u64::from(*b)).sum() };
        assert_eq!(sum(&mapped), 7 * (32 << 20));
        assert_eq!(resident(&mapped), 32 << 10);
        mapped.let_go();
        assert_eq!(resident(&mapped), 0);
        assert_eq!(sum(&mapped), 7 * (32 << 20), "they come again");
        drop(mapped);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn images_are_each_looked_at_once_whoever_does_it_and_stay_in_order() {
        let text = |n: usize| {
            format!(
                ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k{n}() {{ ret; }}\n"
            )
        };
        let texts: Vec<String> = (0..200).map(text).collect();
        let path = std::env::temp_dir().join(format!("warpbpf-images-{}", std::process::id()));
        std::fs::write(&path, texts.concat()).unwrap();
        let file = Mapped::new(
            &warpbpf_descriptor::open(&path).unwrap(),
            Path::new("images"),
        )
        .unwrap();
        let (mut images, mut start) = (Vec::new(), 0);
        for text in &texts {
            images.push(&file.bytes()[start..start + text.len()]);
            start += text.len();
        }
        let looking = Looking {
            file: &file,
            images: &images,
            next: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            found: Mutex::default(),
        };
        let odd = |name: &str| !name.ends_with(['0', '2', '4', '6', '8']);
        looking.share(3, &|| looking.look((9, 0), &odd, &|| true));
        let mut found = std::mem::take(&mut *lock(&looking.found));
        found.sort_unstable();
        let expected = (0..200).filter(|n| n % 2 == 1);
        let expected: Vec<_> = expected.map(|n| (n, vec![format!("k{n}")])).collect();
        assert_eq!(found, expected);
        // And nobody goes on when it is over.
        looking.next.store(0, Ordering::Relaxed);
        looking.share(3, &|| looking.look((9, 0), &odd, &|| false));
        assert!(lock(&looking.found).is_empty());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_replaced_is_not_taken() {
        let own = std::env::current_exe().unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&own.metadata().unwrap());
        let (file, _) = open(&own, inode).unwrap();
        let mapped = Mapped::new(&file, &own).unwrap();
        assert_eq!(&mapped.bytes()[..4], b"\x7fELF");
        assert_eq!(mapped.bytes().len() as u64, own.metadata().unwrap().len());
        assert!(open(&own, inode + 1).is_none());
        // There is no code for a GPU in this one.
        let files = Files::index(None, (9, 0), &|_| true, &|| true);
        assert!(!files.known.is_empty() && files.images.is_empty());
    }
}
