//! Probes of the application's own functions, on the CPU: programs of a tool in sections `uprobe/PATH+OFFSET` and
//! `uretprobe/…`, against the session's maps.
//!
//! They are put in when the maps have been made, which is before the first kernel that is instrumented is launched. A
//! function is known by its file and the offset in it, as Linux knows it, so its symbol need not be exported; a hook needs
//! its beginning, so a place inside a function is refused, and its end, so one that does not say how long it is is refused too.
//!
//! In two steps: [`prepare`] reads files, with no lock of ours held; [`install`] runs while the maps are being made, under a lock
//! that other threads wait for. Neither asks the dynamic loader where a function is: a thread that runs a library's constructors
//! has its lock, and may be waiting for ours.

mod entry;
mod extent;
mod lost;
mod waiting;
mod world;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use warpbpf_session::{HostProgram, Session};
use warpbpf_wire::NoteLevel;

use crate::agent::Agent;
use crate::exports::ROWS;
use crate::hook::{Target, link, stage, stubs};
use lost::Lost;

/// Libraries whose functions run inside everything, the driver's calls with its locks held among them: a program there would
/// wait for itself.
const BELOW: &[&str] = &[
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-",
    "libpthread",
    "libm.so",
    "libm-",
    "libdl",
    "librt",
    "libstdc++",
    "libgcc_s",
    "libwarpbpf_",
];

/// A function with probes.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where it is.
    pub(crate) address: usize,
    /// What its stub goes on to: the original.
    pub(crate) original: usize,
    /// What its callers return to, if it has probes at its end.
    pub(crate) after: usize,
    /// Programs at its start, by number.
    pub(crate) starts: Vec<usize>,
    /// Programs at its end.
    pub(crate) ends: Vec<usize>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Sites {
    pub(crate) agent: &'static Agent,
    pub(crate) session: Arc<Session>,
    pub(crate) all: Vec<Site>,
    /// What came to nothing, by program.
    pub(crate) lost: Vec<Lost>,
}

static SITES: AtomicPtr<Sites> = AtomicPtr::new(std::ptr::null_mut());

/// All that are there, once they are.
pub(crate) fn sites() -> Option<&'static Sites> {
    // SAFETY: null, or leaked by `install`.
    unsafe { SITES.load(Ordering::Acquire).as_ref() }
}

/// Functions that were found, and programs that will not run.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    sites: Vec<(Site, Vec<u8>)>,
    /// By number of the program.
    refused: Vec<(usize, String)>,
}

/// Finds the functions that the session's programs are for. Reading symbols takes a while, so no lock of ours may be held.
pub(crate) fn prepare(session: &Session) -> Prepared {
    let programs = session.host_programs();
    let mut prepared = Prepared::default();
    if programs.is_empty() || sites().is_some() {
        return prepared;
    }
    if !std::arch::is_x86_feature_detected!("xsave") {
        let why = "the processor has no XSAVE".to_owned();
        prepared.refused = (0..programs.len()).map(|n| (n, why.clone())).collect();
        return prepared;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut wanted: BTreeMap<usize, (Site, Vec<u8>)> = BTreeMap::new();
    for (number, program) in programs.iter().enumerate() {
        match find(program, &maps) {
            Ok((address, code)) => {
                let (site, _) = wanted.entry(address).or_insert_with(|| {
                    let site = Site {
                        address,
                        original: 0,
                        after: 0,
                        starts: Vec::new(),
                        ends: Vec::new(),
                    };
                    (site, code)
                });
                let list = match program.at_end {
                    true => &mut site.ends,
                    false => &mut site.starts,
                };
                list.push(number);
            }
            Err(reason) => prepared.refused.push((number, reason)),
        }
    }
    prepared.sites = wanted.into_values().collect();
    prepared
}

/// Hooks what was found. What cannot be hooked is said.
pub(crate) fn install(agent: &'static Agent, session: &Arc<Session>, prepared: Prepared) {
    let programs = session.host_programs();
    if programs.is_empty() {
        return;
    }
    if sites().is_some() {
        for program in programs {
            refused(
                agent,
                program,
                "another tool has had programs on the CPU in this process",
            );
        }
        return;
    }
    for (number, reason) in prepared.refused {
        refused(agent, &programs[number], &reason);
    }
    let (mut all, codes): (Vec<Site>, Vec<Vec<u8>>) = prepared.sites.into_iter().unzip();
    let Some(near) = all.first().map(|site| site.address) else {
        return;
    };
    let (count, common) = (all.len() as u32, entry::common as *const () as usize);
    let made = stubs(0..count, near, common).and_then(|starts| {
        Ok((
            starts,
            stubs(entry::AFTER..entry::AFTER + count, near, common)?,
        ))
    });
    let (before, after) = match made {
        Ok(made) => made,
        Err(reason) => {
            for program in programs {
                refused(agent, program, &reason);
            }
            return;
        }
    };
    let ours: Vec<usize> = ROWS.iter().map(|row| (row.replacement)()).collect();
    let mut hooks = Vec::new();
    for (at, (site, code)) in all.iter_mut().zip(codes).enumerate() {
        site.after = after[at];
        match link(site.address, &code, &ours) {
            Some(link) => {
                site.original = link.replacement;
                hooks.push(Hook::Link(link));
            }
            None => {
                let target = Target {
                    address: site.address,
                    code,
                    replacement: before[at],
                    may_throw: true,
                };
                let mut staged = stage(&[target]);
                match std::mem::replace(&mut staged.originals[0], Ok(0)) {
                    Ok(original) => {
                        site.original = original;
                        staged.originals[0] = Ok(original);
                        hooks.push(Hook::Staged(staged));
                    }
                    Err(error) => hooks.push(Hook::Failed(error.to_string())),
                }
            }
        }
    }
    let sites = Box::leak(Box::new(Sites {
        agent,
        session: Arc::clone(session),
        all,
        lost: programs.iter().map(|_| Lost::default()).collect(),
    }));
    SITES.store(std::ptr::from_mut(sites), Ordering::Release);
    for (at, hook) in hooks.into_iter().enumerate() {
        let done = match hook {
            // SAFETY: the stub saves all registers and goes on to what was there.
            Hook::Link(link) => unsafe { link.exchange(before[at]) },
            // SAFETY: as above. That no other thread is in the first instructions at this moment is the assumption that
            // Linux need not make, because it sets a breakpoint (docs/loader.md).
            Hook::Staged(staged) => unsafe { staged.commit() }
                .pop()
                .map_or(Ok(()), |one| one.map(|_| ()).map_err(|e| e.to_string())),
            Hook::Failed(reason) => Err(reason),
        };
        if let Err(reason) = done {
            let site = &sites.all[at];
            for number in site.starts.iter().chain(&site.ends) {
                refused(agent, &programs[*number], &reason);
            }
        }
    }
}

enum Hook {
    Link(crate::hook::Link),
    Staged(crate::hook::Staged),
    Failed(String),
}

fn refused(agent: &Agent, program: &HostProgram, reason: &str) {
    agent.note(
        NoteLevel::Warning,
        format!(
            "program `{}` does not run at `{}+{:#x}`: {reason}",
            program.program.name, program.path, program.offset
        ),
    );
}

/// Tells the user what came to nothing, at the end.
pub(crate) fn report(agent: &Agent) {
    let Some(sites) = sites().filter(|sites| std::ptr::eq(sites.agent, agent)) else {
        return;
    };
    for (program, lost) in sites.session.host_programs().iter().zip(&sites.lost) {
        if let Some(text) = lost.text(&program.program.name) {
            agent.note(NoteLevel::Warning, text);
        }
    }
}

/// Where the function is in this process, and its bytes.
fn find(program: &HostProgram, maps: &str) -> Result<(usize, Vec<u8>), String> {
    let path = &program.path;
    let name = path.rsplit('/').next().unwrap_or(path);
    if BELOW.iter().any(|below| name.starts_with(below)) {
        return Err(format!(
            "functions of `{name}` are called by the driver itself; probes are for functions of the application, its libraries and CUDA"
        ));
    }
    let file = std::fs::metadata(path).map_err(|error| error.to_string())?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x} {}", file.ino());
    let mapped = mapped_at(maps, &place, program.offset)
        .ok_or("the application has not loaded that file when its first kernels are loaded")?;
    let bytes = extent::of_function(path, program.offset)?;
    if bytes > mapped.left {
        return Err(format!(
            "its symbol says that it has {bytes} bytes, and {} are mapped",
            mapped.left
        ));
    }
    // SAFETY: code of a loaded file, as long as its mapping is here; libraries that are probed are not unloaded.
    let code = unsafe { std::slice::from_raw_parts(mapped.address as *const u8, bytes) };
    Ok((mapped.address, code.to_vec()))
}

/// Where code of a file lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapped {
    address: usize,
    /// Bytes from there to the end of the mapping.
    left: usize,
}

/// The address at which code of a file lies, by a `/proc/PID/maps` text; `place` is device and inode as it has them.
fn mapped_at(maps: &str, place: &str, offset: u64) -> Option<Mapped> {
    maps.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [range, rights, start, device, inode, ..] = words[..] else {
            return None;
        };
        // What cannot be read cannot be judged either.
        if !rights.starts_with('r') || !rights.contains('x') || format!("{device} {inode}") != place
        {
            return None;
        }
        let (low, high) = range.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (low, high, start) = (hex(low)?, hex(high)?, hex(start)?);
        let address = low + offset.checked_sub(start)?;
        (address < high).then_some(Mapped {
            address: address as usize,
            left: (high - address) as usize,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::mapped_at;

    #[test]
    fn code_is_found_by_its_file() {
        let maps = "\
55d0c0000000-55d0c0001000 r--p 00000000 08:01 77  /bin/app
55d0c0001000-55d0c0005000 r-xp 00001000 08:01 77  /bin/app
55d0c0005000-55d0c0006000 rw-p 00005000 08:01 77  /bin/app
7f0000000000-7f0000004000 r-xp 00001000 08:02 77  /lib/other.so
7f0000100000-7f0000101000 --xp 00001000 08:03 77  /lib/hidden.so
";
        let at = |place, offset| mapped_at(maps, place, offset).map(|m| (m.address, m.left));
        assert_eq!(at("08:01 77", 0x1234), Some((0x55d0_c000_1234, 0x3dcc)));
        assert_eq!(at("08:02 77", 0x1234), Some((0x7f00_0000_0234, 0x3dcc)));
        assert_eq!(at("08:01 77", 0x234), None, "no code");
        assert_eq!(at("08:01 77", 0x5000), None, "behind it");
        assert_eq!(at("08:01 78", 0x1234), None);
        assert_eq!(at("08:03 77", 0x1000), None, "not readable");
    }
}
