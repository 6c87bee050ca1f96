//! A process from outside: whether it can be attached to, and where its libraries lie.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::InjectError;
use crate::memory::{Bytes as _, Memory};
use crate::proc::{
    self, Mapping, folder, in_maps, living_thread, mappings, status_field, text, thread_status,
};

/// Its threads that live.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>, InjectError> {
    proc::threads(pid).map_err(|_| InjectError::Ended { pid })
}

/// A process that may be attached to, as far as can be said without touching it.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its number here.
    pub pid: u32,
    /// It has a filter for system calls.
    pub seccomp: bool,
    /// What is mapped.
    pub maps: Vec<Mapping>,
}

impl Subject {
    /// Looks at a process.
    ///
    /// # Errors
    /// [`InjectError`]: why it cannot be attached to.
    pub fn look(pid: u32) -> Result<Subject, InjectError> {
        let no_process = |_| InjectError::NoProcess { pid };
        // Nothing but its main thread may have ended.
        text(format!("/proc/{pid}/status")).map_err(no_process)?;
        let living = living_thread(pid).ok_or(InjectError::NoCode { pid })?;
        let status = thread_status(pid, living).map_err(no_process)?;
        let field = |name| status_field(&status, name).unwrap_or_default();
        if field("State").starts_with('T') {
            return Err(InjectError::Stopped { pid });
        }
        let tracer: u32 = field("TracerPid").parse().unwrap_or(0);
        if tracer != 0 {
            return Err(InjectError::Traced { pid, tracer });
        }
        let owner = field("Uid").split('\t').nth(1).and_then(|u| u.parse().ok());
        let own = rustix::process::geteuid().as_raw();
        if let Some(owner) = owner.filter(|owner| *owner != own && own != 0) {
            return Err(InjectError::OtherUser { pid, owner, own });
        }
        let not_permitted = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => InjectError::NotPermitted {
                pid,
                why: error.to_string(),
            },
            io::ErrorKind::NotFound => InjectError::NoCode { pid },
            _ => InjectError::os(pid, "looking into /proc", error),
        };
        let exe = fs::read_link(folder(pid).join("exe")).map_err(not_permitted)?;
        let maps = mappings(pid).map_err(not_permitted)?;
        machine(pid, &exe, &maps)?;
        let seccomp = field("Seccomp");
        if seccomp == "1" {
            return Err(InjectError::Strict { pid });
        }
        Ok(Subject {
            pid,
            seccomp: seccomp == "2",
            maps,
        })
    }

    /// The process sees this very file under this path too. Where it has folders of its own, only
    /// what the kernel knows of them already is looked at: who made them may let others wait.
    pub(crate) fn sees(&self, path: &Path) -> bool {
        path.is_absolute() && (self.shares_files() || self.has_the_same(path) == Some(true))
    }

    /// A file of the process's has this name, and is the one that has it here.
    fn has_the_same(&self, path: &Path) -> Option<bool> {
        use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, open, openat2, statx};
        let to_look = OFlags::PATH | OFlags::CLOEXEC;
        let root = open(folder(self.pid).join("root"), to_look, Mode::empty()).ok()?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::CACHED;
        let there = openat2(&root, path, to_look, Mode::empty(), resolve).ok()?;
        let known = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let theirs = statx(&there, "", known, StatxFlags::INO).ok()?;
        let ours = statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::INO).ok()?;
        let place =
            |file: &rustix::fs::Statx| (file.stx_dev_major, file.stx_dev_minor, file.stx_ino);
        Some(place(&theirs) == place(&ours))
    }

    /// It has the folders that are here.
    fn shares_files(&self) -> bool {
        let theirs = folder(self.pid);
        let link = |path: PathBuf| fs::read_link(path).ok();
        ["ns/mnt", "root"].iter().all(|what| {
            let own = link(Path::new("/proc/self").join(what));
            own.is_some() && own == link(theirs.join(what))
        })
    }

    /// Where the first library lies whose name `is` one that is looked for.
    pub fn base_of(&self, is: impl Fn(&str) -> bool) -> Option<u64> {
        let mut code = self.code_of_files();
        self.base_of_code(code.find(|m| is(m.file_name()))?)
    }

    /// Where all files lie that have code, each once.
    pub fn bases(&self) -> Vec<u64> {
        let code = self.code_of_files();
        let mut bases: Vec<u64> = code.filter_map(|m| self.base_of_code(m)).collect();
        bases.sort_unstable();
        bases.dedup();
        bases
    }

    fn code_of_files(&self) -> impl Iterator<Item = &Mapping> {
        self.maps.iter().filter(|m| m.code && m.file.1 != 0)
    }

    /// Where the file begins that this code is of. Somebody may have mapped it besides, to read it,
    /// as the agent does while it searches for kernels: that has no code, and lies in another order
    /// than a library that is loaded.
    fn base_of_code(&self, code: &Mapping) -> Option<u64> {
        let begins = |m: &&Mapping| {
            m.offset == 0
                && m.range.start <= code.range.start
                && m.file == code.file
                && m.name == code.name
        };
        // The loader puts all of a library into one piece of addresses.
        let bases = self.maps.iter().filter(begins);
        bases.map(|m| m.range.start).max()
    }

    /// Code of the file that lies at `base`.
    pub fn code_of(&self, base: u64) -> Vec<Range<u64>> {
        let Some(first) = self.maps.iter().find(|m| m.range.start == base) else {
            return Vec::new();
        };
        let same = |m: &&Mapping| m.code && m.file == first.file && m.name == first.name;
        let found = self.maps.iter().filter(same);
        found.map(|m| m.range.clone()).collect()
    }

    /// The driver is loaded.
    pub fn has_driver(&self) -> bool {
        let is_driver = |name: &str| name == "libcuda.so" || name.starts_with("libcuda.so.");
        self.maps.iter().any(|m| is_driver(m.file_name()))
    }

    /// Where an agent lies.
    pub fn agent(&self) -> Option<u64> {
        self.base_of(is_agent)
    }
}

/// Name of the agent's file, and of the memory that stands for it where the process cannot see the
/// file.
pub(crate) const AGENT_MEMORY: &str = "warpbpf-agent";

fn is_agent(name: &str) -> bool {
    name == "libwarpbpf_agent.so" || name == format!("memfd:{AGENT_MEMORY}")
}

/// Refuses what is not for this processor, by the header of the executable as it lies in memory, or
/// of another file that does.
fn machine(pid: u32, exe: &Path, maps: &[Mapping]) -> Result<(), InjectError> {
    /// `EM_X86_64`, `EM_AARCH64`
    const OURS: [u8; 2] = [
        if cfg!(target_arch = "aarch64") {
            183
        } else {
            62
        },
        0,
    ];
    let name = in_maps(exe);
    let begins = |m: &&Mapping| m.offset == 0 && m.file.1 != 0;
    let own = maps.iter().filter(begins).filter(|m| m.name == name);
    let others = maps.iter().filter(begins).filter(|m| m.name != name);
    let memory = Memory::open(pid)?;
    for mapping in own.chain(others) {
        let mut header = [0; 20];
        if memory.read(mapping.range.start, &mut header).is_err() || header[..4] != *b"\x7fELF" {
            continue;
        }
        return match (header[4], [header[18], header[19]]) {
            (2, OURS) => Ok(()),
            (1, _) => Err(InjectError::OtherMachine {
                pid,
                found: "32-bit",
            }),
            _ => Err(InjectError::OtherMachine {
                pid,
                found: "another machine's",
            }),
        };
    }
    // Nothing that was loaded has a header: code of whatever kind is looked at where a thread of it
    // stands.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::{ends, parse_maps, state};

    #[test]
    fn names_need_not_be_text() {
        let file = std::env::temp_dir().join(format!("warpbpf-odd-{}", std::process::id()));
        fs::write(&file, b"Name:\t\xff\xfe\nState:\tS (sleeping)\n").unwrap();
        let read = text(&file).unwrap();
        assert_eq!(
            status_field(&read, "State").as_deref(),
            Some("S (sleeping)")
        );
        fs::remove_file(&file).unwrap();
        let line = |name: &[u8]| {
            let mut line = b"7f0000000000-7f0000001000 r-xp 00000000 08:01 77 /a/".to_vec();
            line.extend(name);
            String::from_utf8_lossy(&line).into_owned()
        };
        let maps = parse_maps(&format!(
            "{}\n{}",
            line(b"m\xff\xfe"),
            line(b"libcuda.so.1")
        ));
        assert_eq!(maps.len(), 2);
        assert_eq!(maps[1].file_name(), "libcuda.so.1");
    }

    #[test]
    fn maps_are_read() {
        let maps = parse_maps(
            "55d0c0000000-55d0c0001000 r--p 00000000 08:01 77                         /bin/my app\n\
             55d0c0001000-55d0c0005000 r-xp 00001000 08:01 77                         /bin/my app\n\
             7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
             7f0000002000-7f0000003000 r-xp 00000000 00:01 5                          /memfd:warpbpf-agent (deleted)\n",
        );
        let names: Vec<&str> = maps.iter().map(Mapping::file_name).collect();
        assert_eq!(names, ["my app", "my app", "", "memfd:warpbpf-agent"]);
        let code: Vec<bool> = maps.iter().map(|m| m.code).collect();
        assert_eq!(code, [false, true, true, true]);
        let subject = Subject {
            pid: 1,
            seccomp: false,
            maps,
        };
        assert_eq!(subject.agent(), Some(0x7f00_0000_2000));
        let app = subject.base_of(|name| name == "my app").unwrap();
        let code = subject.code_of(app);
        assert_eq!(code.len(), 1);
        assert_eq!(code[0], 0x55d0_c000_1000..0x55d0_c000_5000);
        assert!(!subject.has_driver());
    }

    #[test]
    fn a_file_that_is_mapped_to_be_read_is_not_the_library() {
        let subject = |text: &str| Subject {
            pid: 1,
            seccomp: false,
            maps: parse_maps(text),
        };
        let library = "7f0000200000-7f0000228000 r--p 00000000 08:01 77 /lib/libc.so.6\n\
             7f0000228000-7f0000390000 r-xp 00028000 08:01 77 /lib/libc.so.6\n";
        let below = "7f0000000000-7f00001f0000 r--p 00000000 08:01 77 /lib/libc.so.6\n";
        let above = "7f0000400000-7f00005f0000 r--p 00000000 08:01 77 /lib/libc.so.6\n";
        let base = |text: String| subject(&text).base_of(|name| name == "libc.so.6");
        assert_eq!(
            base(format!("{below}{library}{above}")),
            Some(0x7f00_0020_0000)
        );
        assert_eq!(base(format!("{below}{above}")), None);
        // One that was replaced while it is in use has another inode.
        let new = "7f0000000000-7f00001f0000 r--p 00000000 08:01 78 /lib/libc.so.6\n";
        assert_eq!(base(format!("{new}{library}")), Some(0x7f00_0020_0000));
    }

    #[test]
    fn a_process_that_has_ended_is_told_from_one_that_lives() {
        // Nobody has waited for it: it is a zombie.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!((0..100).any(|_| ends(child.id())));
        let error = std::io::Error::from_raw_os_error(libc::EIO);
        let error = InjectError::os(child.id(), "reading", error);
        assert!(matches!(error, InjectError::Ended { .. }), "{error}");
        child.wait().unwrap();
        assert!(ends(child.id()));
        assert!(!ends(std::process::id()));
        let error = std::io::Error::from_raw_os_error(libc::EIO);
        let error = InjectError::os(std::process::id(), "reading", error);
        assert!(matches!(error, InjectError::Os { .. }), "{error}");
    }

    #[test]
    fn refusals_name_the_process_and_what_to_do() {
        let refused = |pid| Subject::look(pid).unwrap_err().to_string();
        assert_eq!(refused(u32::MAX / 2), "there is no process 2147483647");
        // A kernel thread, where one can be seen: number 2 is their parent.
        let status = fs::read_to_string("/proc/2/status").unwrap_or_default();
        if status_field(&status, "Name").as_deref() == Some("kthreadd") {
            assert_eq!(
                refused(2),
                "process 2 is a kernel thread or a zombie: it has no code"
            );
        }
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id();
        // SAFETY: a child of ours.
        unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
        while state(pid, pid) != 'T' {
            std::thread::yield_now();
        }
        assert_eq!(
            refused(pid),
            format!("process {pid} is stopped: continue it first (`kill -CONT {pid}`)")
        );
        // SAFETY: as above.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        while state(pid, pid) != 'Z' {
            std::thread::yield_now();
        }
        assert_eq!(
            refused(pid),
            format!("process {pid} is a kernel thread or a zombie: it has no code")
        );
        child.wait().unwrap();
    }
}
