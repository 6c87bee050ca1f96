//! Probes of the application's own functions, on the CPU: programs of a tool in sections
//! `uprobe/PATH+OFFSET` and `uretprobe/…`, against the session's maps.
//!
//! They are put in when the maps have been made, which is before the first kernel that is
//! instrumented is launched. A function is known by its file and the offset in it, as Linux knows
//! it, so its symbol need not be exported; a hook needs its beginning, so a place inside a function
//! is refused, and its end, so one that does not say how long it is is refused too. Programs in
//! sections `cuda/NAME` and `cudaret/NAME` are for functions of the driver, known by name, and told
//! more (`api`).
//!
//! In two steps: [`prepare`] reads files, with no lock of ours held; [`install`] runs while the
//! maps are being made, under a lock that other threads wait for. Neither asks the dynamic loader
//! where a function is: a thread that runs a library's constructors has its lock, and may be
//! waiting for ours.

pub(crate) mod api;
mod driver;
mod entry;
mod extent;
mod function;
mod function_error;
mod lost;
mod mapped;
mod registers;
pub(crate) mod run;
mod serving;
pub(crate) mod sites;
mod waiting;
mod world;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpbpf_abi::cuda::{Api, SYMBOLS, apis, is_glob, op_of};
use warpbpf_driver::front::is_of_driver;
use warpbpf_hook::{Kind, Staged, StubsError, Target, link, maps, stage, stubs};
use warpbpf_session::{HostPlace, HostProgram, Session};
use warpbpf_wire::NoteLevel;

use crate::runtime::agent::Agent;
use crate::sys::lock::lock;
use crate::trace::stacks::Stacks;
use crate::trace::timeline::{self, Timeline};
use crate::uprobe::function::Function;
use crate::uprobe::function_error::FunctionError;
use crate::uprobe::mapped::mapped_at;
use driver::Functions;
use lost::Lost;
use sites::{CHOSEN, Site, Sites, publish, sites};

/// Libraries whose functions run inside everything, the driver's calls with its locks held among
/// them: a program there would wait for itself.
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

/// Functions that were found, and programs that will not run.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    sites: Vec<(Site, Vec<u8>)>,
    /// By number of the program.
    refused: Vec<(usize, String)>,
    /// What is to be known of programs that run, by number.
    remarks: Vec<(usize, String)>,
    /// For a timeline.
    asked: Option<timeline::Functions>,
    stacks: Option<Stacks>,
}

/// Finds the functions that the session's programs are for. Reading symbols takes a while, so no
/// lock of ours may be held.
pub(crate) fn prepare(agent: &Agent, session: &Session) -> Prepared {
    let programs = session.host_programs();
    let mut prepared = Prepared::default();
    if (programs.is_empty() && !session.timeline()) || sites().is_some() {
        return prepared;
    }
    if let Some(why) = unable() {
        prepared.refused = (0..programs.len()).map(|n| (n, why.into())).collect();
        return prepared;
    }
    let mut maps = maps::own().unwrap_or_default();
    if warpbpf_faults::strikes("uprobe/maps") {
        maps.clear();
    }
    let mut wanted: BTreeMap<usize, (Site, Vec<u8>)> = BTreeMap::new();
    let mut functions = None;
    let all = apis();
    for (number, program) in programs.iter().enumerate() {
        let found = match &program.place {
            HostPlace::Function { path, offset } => {
                find(path, *offset, program.at_end, &maps).map(|found| {
                    let (address, kind, code) = found;
                    if let Some(others) = serving::others(&maps, path, address) {
                        prepared.remarks.push((number, others));
                    }
                    let site = wanted.entry(address);
                    let (site, _) = site.or_insert_with(|| (Site::at(address, kind), code));
                    site.add(number, program.at_end);
                })
            }
            HostPlace::Api { pattern, numbers } => {
                let functions = functions.get_or_insert_with(|| Functions::new(agent, &maps));
                let mut any = false;
                for api in numbers {
                    any |= find_api(functions, (*api, &all[*api]), &mut wanted, |site| {
                        site.add(number, program.at_end);
                    });
                }
                match any || is_glob(pattern) {
                    true => Ok(()),
                    false => Err(FunctionError::NoApi),
                }
            }
        };
        if let Err(error) = found {
            prepared.refused.push((number, error.to_string()));
        }
    }
    if session.timeline() {
        let functions = functions.get_or_insert_with(|| Functions::new(agent, &maps));
        for (number, api) in all
            .iter()
            .enumerate()
            .filter(|(_, api)| op_of(api.name).is_some())
        {
            find_api(functions, (number, api), &mut wanted, |site| {
                site.timed = true
            });
        }
        // SAFETY: the driver's own functions.
        prepared.asked =
            unsafe { timeline::Functions::new(|name| functions.find(name).map(|(at, _)| at)) };
        let wanted = agent.stacks.load(Ordering::Relaxed);
        prepared.stacks = wanted.then(Stacks::new);
    }
    prepared.sites = wanted.into_values().collect();
    prepared
}

/// Why nothing can be put around functions on this machine.
fn unable() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let why =
        (!std::arch::is_x86_feature_detected!("xsave")).then_some("the processor has no XSAVE");
    // What would save registers there is not written: an aarch64 build has probes in kernels, and
    // these have none.
    #[cfg(not(target_arch = "x86_64"))]
    let why = Some("programs on the CPU, timelines and stacks need an x86-64 processor");
    why
}

/// Finds all versions of a function of the driver API. False: there is none.
fn find_api(
    functions: &Functions<'_>,
    (number, api): (usize, &Api),
    wanted: &mut BTreeMap<usize, (Site, Vec<u8>)>,
    mut add: impl FnMut(&mut Site),
) -> bool {
    let mut seen = Vec::new();
    for (suffix, per_thread) in [("", false), ("_ptsz", true), ("_ptds", true)] {
        for symbol in &api.symbols {
            let name = format!("{}{suffix}", SYMBOLS[*symbol].name);
            let Some((address, code)) = functions.find(&name) else {
                continue;
            };
            // Two names may be one function.
            if seen.contains(&address) {
                continue;
            }
            let site = wanted.entry(address);
            let (site, _) = site.or_insert_with(|| (Site::at(address, Kind::Driver), code));
            // A program may have named it by its place in the file before.
            site.kind = Kind::Driver;
            let function = site
                .api
                .get_or_insert_with(|| Function::new(number, api, *symbol, per_thread));
            // What does the same for functions of several names cannot tell which of them was
            // called.
            if function.number == number {
                seen.push(address);
                add(site);
            }
        }
    }
    !seen.is_empty()
}

/// Hooks what was found. What cannot be hooked is said.
pub(crate) fn install(agent: &'static Agent, session: &Arc<Session>, prepared: Prepared) {
    let programs = session.host_programs();
    if programs.is_empty() && !session.timeline() {
        return;
    }
    if sites().is_some() {
        if session.timeline() {
            no_timeline(
                agent,
                "another tool has had one, or programs on the CPU, in this process",
            );
        }
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
    for (number, remark) in prepared.remarks {
        let (name, place) = (
            &programs[number].program.name,
            programs[number].place.text(),
        );
        agent.note(
            NoteLevel::Warning,
            format!("program `{name}` at `{place}`: {remark}"),
        );
    }
    if session.timeline() && prepared.asked.is_none() {
        no_timeline(
            agent,
            unable().unwrap_or("the driver has no `cuEventElapsedTime`"),
        );
    }
    let (mut all, codes): (Vec<Site>, Vec<Vec<u8>>) = prepared.sites.into_iter().unzip();
    let (Some(near), Some(common)) = (all.first().map(|site| site.address), entry::entry()) else {
        return;
    };
    let count = all.len() as u32;
    let made = warpbpf_faults::check("uprobe/stubs", || StubsError::NoRoom)
        .and_then(|()| stubs(0..count, near, common));
    let made = made.and_then(|starts| {
        Ok((
            starts,
            stubs(entry::AFTER..entry::AFTER + count, near, common)?,
        ))
    });
    let (before, after) = match made {
        Ok(made) => made,
        Err(error) => {
            let reason = error.to_string();
            for program in programs {
                refused(agent, program, &reason);
            }
            return;
        }
    };
    let (links, groups) = stage_all(agent, &mut all, &codes, &before);
    for (site, after) in all.iter_mut().zip(after) {
        site.after = after;
    }
    if prepared.asked.is_some() {
        // Their launches are told of.
        agent.graphs.expect();
    }
    let sites: &Sites = Box::leak(Box::new(Sites {
        timeline: prepared.asked.map(Timeline::new),
        stacks: prepared.stacks,
        agent,
        session: Arc::clone(session),
        all,
        lost: programs.iter().map(|_| Lost::default()).collect(),
        paused: programs.iter().map(|_| AtomicBool::new(false)).collect(),
    }));
    {
        let chosen = lock(&CHOSEN);
        if let Some(names) = &*chosen {
            sites.choose(names);
        }
        publish(sites);
    }
    let mut failed = Vec::new();
    for (at, link) in links {
        // SAFETY: the stub saves all registers and goes on to what was there.
        if let Err(error) = unsafe { link.exchange(before[at]) } {
            failed.push((at, error.to_string()));
        }
    }
    for (members, staged) in groups {
        // SAFETY: as above. That no other thread is in the first instructions at this moment is the
        // assumption that Linux need not make, because it sets a breakpoint (docs/loader.md).
        let done = unsafe { staged.commit() };
        for (at, done) in members.into_iter().zip(done) {
            if let Err(error) = done {
                failed.push((at, error.to_string()));
            }
        }
    }
    tell_failed(sites, &failed);
}

fn no_timeline(agent: &Agent, reason: &str) {
    agent.note(
        NoteLevel::Warning,
        format!("there is no timeline: {reason}"),
    );
}

/// A function that we hook ourselves, by the number of its site.
type Linked = (usize, warpbpf_hook::Link);
/// Hooks that were built together, for these sites.
type Group = (Vec<usize>, Staged);

/// Builds the hooks. The driver's functions lie together and are hooked together; each other may be
/// in a library of its own.
fn stage_all(
    agent: &Agent,
    all: &mut [Site],
    codes: &[Vec<u8>],
    before: &[usize],
) -> (Vec<Linked>, Vec<Group>) {
    let ours: Vec<usize> = (agent.above.replacements)();
    let mut links = Vec::new();
    let mut members: Vec<Vec<usize>> = vec![Vec::new()];
    for (at, (site, code)) in all.iter_mut().zip(codes).enumerate() {
        match link(site.address, code, &ours) {
            Some(link) => {
                site.original = link.replacement;
                links.push((at, link));
            }
            None if site.api.is_some() => members[0].push(at),
            None => members.push(vec![at]),
        }
    }
    let groups = members.into_iter().map(|members| {
        let target = |at: &usize| Target {
            address: all[*at].address,
            code: codes[*at].clone(),
            replacement: before[*at],
            kind: all[*at].kind,
        };
        let targets: Vec<Target> = members.iter().map(target).collect();
        let staged = stage(&targets);
        for (at, original) in members.iter().zip(&staged.originals) {
            // One that failed is never jumped to.
            all[*at].original = original.as_ref().copied().unwrap_or(0);
        }
        (members, staged)
    });
    let groups = groups.collect();
    (links, groups)
}

/// Functions that a message names.
const NAMED: usize = 5;

/// Tells which functions are not hooked, once for each program.
fn tell_failed(sites: &Sites, failed: &[(usize, String)]) {
    let all = apis();
    for (number, program) in sites.session.host_programs().iter().enumerate() {
        let of_it = failed.iter().filter(|(at, _)| {
            let site = &sites.all[*at];
            site.starts.contains(&number) || site.ends.contains(&number)
        });
        let reasons: Vec<String> = of_it
            .map(|(at, reason)| match &sites.all[*at].api {
                Some(function) => format!("`{}`: {reason}", all[function.number].name),
                None => reason.clone(),
            })
            .collect();
        let more = match reasons.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        if !reasons.is_empty() {
            let named = reasons[..reasons.len().min(NAMED)].join("; ");
            refused(sites.agent, program, &format!("{named}{more}"));
        }
    }
    for (at, reason) in failed.iter().filter(|(at, _)| sites.all[*at].timed) {
        let name = sites.all[*at]
            .api
            .as_ref()
            .map_or("", |function| all[function.number].name);
        let text = format!("operations of `{name}` are not in the timeline: {reason}");
        sites.agent.note(NoteLevel::Warning, text);
    }
}

fn refused(agent: &Agent, program: &HostProgram, reason: &str) {
    agent.note(
        NoteLevel::Warning,
        format!(
            "program `{}` does not run at `{}`: {reason}",
            program.program.name,
            program.place.text()
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

/// Where the function is in this process, what it is, and its bytes; for a probe at its end or at
/// its start.
fn find(
    path: &str,
    offset: u64,
    at_end: bool,
    maps: &[u8],
) -> Result<(usize, Kind, Vec<u8>), FunctionError> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if BELOW.iter().any(|below| name.starts_with(below)) {
        let name = name.to_owned();
        return Err(FunctionError::BelowDriver { name });
    }
    let system = |error: std::io::Error| FunctionError::System {
        error: error.to_string(),
    };
    warpbpf_faults::check("uprobe/file", || system(rustix::io::Errno::ACCESS.into()))?;
    let file = std::fs::metadata(path).map_err(system)?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x} {}", file.ino());
    let mapped = mapped_at(maps, &place, offset);
    let mapped = mapped.ok_or_else(|| FunctionError::NotLoaded {
        why: serving::not_loaded(maps, name),
    })?;
    let (kind, bytes) = extent::of_function(path, offset)?;
    if bytes > mapped.left {
        return Err(FunctionError::NotMapped {
            bytes,
            mapped: mapped.left,
        });
    }
    if kind == Kind::Entry {
        if at_end {
            // Functions that return twice, or where another has returned, are called so.
            return Err(FunctionError::EndOfEntry);
        }
        if CString::new(name).is_ok_and(|name| is_of_driver(&name)) {
            let name = name.to_owned();
            return Err(FunctionError::EntryOfDriver { name });
        }
    }
    // SAFETY: code of a loaded file, as long as its mapping is here; libraries that are probed are
    // not unloaded.
    let code = unsafe { std::slice::from_raw_parts(mapped.address as *const u8, bytes) };
    Ok((mapped.address, kind, code.to_vec()))
}
