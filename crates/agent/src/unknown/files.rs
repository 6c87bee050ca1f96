//! The images in files that are mapped into this process: which file, where in it, and which kernels that programs want.
//!
//! Files are read where they are mapped again, a piece at a time and only as it is looked at: libraries of kernels are large.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::ptr;
use std::sync::Arc;

use crate::maps::mappings;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use warpbpf_session::{executable, inspect};

/// Files of the driver itself, whose kernels are its own affair, and ours.
const NOT_THE_APPLICATIONS: &[&str] = &["libcuda.so", "libnvidia-", "libwarpbpf_", "memfd:warpbpf"];

/// Bytes of a file that are looked at before its pages are let go: the process is charged for them meanwhile.
const PIECE: usize = 16 << 20;

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
    /// Looks at all files that are mapped now and were not looked at before, as long as it `goes_on`.
    pub(crate) fn index(
        known: Option<Files>,
        capability: (u32, u32),
        wanted: &dyn Fn(&str) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Files {
        let mut files = known.unwrap_or_default();
        let mut maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if warpbpf_faults::strikes("late/maps") {
            maps.clear();
        }
        for (path, inode) in mapped_files(&maps) {
            // One that was replaced since is not what was loaded.
            let Some((file, device)) = open(path, inode) else {
                continue;
            };
            if !files.known.insert((device, inode)) {
                continue;
            }
            let there = Mapped::new(&file, path);
            let Some(mapped) = there.filter(|_| !warpbpf_faults::strikes("late/file")) else {
                continue;
            };
            let mapped = Arc::new(mapped);
            let all = mapped.bytes();
            let mut seen = 0;
            for image in executable::images(all).unwrap_or_default() {
                if !goes_on() {
                    return files;
                }
                let Ok(info) = inspect(image, capability) else {
                    continue;
                };
                seen += image.len();
                if seen >= PIECE {
                    seen = 0;
                    mapped.let_go();
                }
                let kernels = info.kernels.into_iter().map(|kernel| kernel.mangled);
                let kernels: Vec<String> = kernels.filter(|name| wanted(name)).collect();
                if kernels.is_empty() {
                    continue;
                }
                let start = image.as_ptr() as usize - all.as_ptr() as usize;
                files.images.push(Found {
                    file: Arc::clone(&mapped),
                    range: start..start + image.len(),
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

/// Paths and inodes of files that are mapped from their beginnings, by a `/proc/PID/maps` text.
fn mapped_files(maps: &str) -> impl Iterator<Item = (&str, u64)> {
    mappings(maps)
        .filter(|mapping| {
            let name = mapping.path.rsplit('/').next().unwrap_or_default();
            let own = |part: &&str| name.starts_with(part);
            mapping.offset == 0 && mapping.is_file() && !NOT_THE_APPLICATIONS.iter().any(own)
        })
        .map(|mapping| (mapping.path, mapping.inode))
}

/// The file, and the device that it is on, if it is still the one with this inode.
fn open(path: &str, inode: u64) -> Option<(File, u64)> {
    let file = File::open(path).ok()?;
    let there = file.metadata().ok()?;
    (there.is_file() && there.ino() == inode).then_some((file, there.dev()))
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
    fn new(file: &File, path: &str) -> Option<Mapped> {
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: fresh memory; a program's file that is cut short while it runs would end the program without us too.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        Some(Mapped {
            start: start.ok()?,
            length,
            path: path.to_owned(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this lives.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }

    /// Its pages are no longer this process's; whoever looks at them again has them again, from the system's cache.
    fn let_go(&self) {
        // SAFETY: nobody writes to them, so they are what the file has, before and after. If it fails they stay.
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
        let maps = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 77                         /bin/my app
55d0c0001000-55d0c0005000 r-xp 00001000 08:01 77                         /bin/my app
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 rw-p 00000000 00:00 0                          [heap]
7f0000002000-7f0000003000 r--p 00000000 08:01 5                          /lib/libcuda.so.1
7f0000002000-7f0000003000 r--p 00000000 08:01 6                          /lib/libcudart.so.13
";
        let found: Vec<_> = mapped_files(maps).collect();
        assert_eq!(found, [("/bin/my app", 77), ("/lib/libcudart.so.13", 6)]);
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
        let mapped = Mapped::new(&File::open(&path).unwrap(), "large").unwrap();
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
    fn a_file_that_was_replaced_is_not_taken() {
        let own = std::env::current_exe().unwrap();
        let (path, inode) = (own.to_str().unwrap(), own.metadata().unwrap().ino());
        let (file, _) = open(path, inode).unwrap();
        let mapped = Mapped::new(&file, path).unwrap();
        assert_eq!(&mapped.bytes()[..4], b"\x7fELF");
        assert_eq!(mapped.bytes().len() as u64, own.metadata().unwrap().len());
        assert!(open(path, inode + 1).is_none());
        // There is no code for a GPU in this one.
        let files = Files::index(None, (9, 0), &|_| true, &|| true);
        assert!(!files.known.is_empty() && files.images.is_empty());
    }
}
