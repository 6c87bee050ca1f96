//! What the tool is told of kernels: each once, and names of their sites as they come.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_session::client::OWN;
use warpbpf_session::{KernelSummary, LoadedVariant, PreparedKernel, Session};
use warpbpf_wire::{Kernel, Method, NoteLevel, Occupancy, Sites, ToTool};

use crate::instrument::modules::failure::Failure;
use crate::runtime::agent::Agent;
use crate::sources::images::{Handle, Image};
use crate::sources::version::Version;
use crate::sys::lock::lock;

/// An image, and what it says of its kernels, by name: it may have thousands.
pub(crate) struct Summaries<'i> {
    image: Handle,
    kernels: HashMap<&'i str, &'i KernelSummary>,
}

impl Summaries<'_> {
    pub(crate) fn of(image: &Image) -> Summaries<'_> {
        let kernels = image.info.kernels.iter();
        Summaries {
            image: image.handle,
            kernels: kernels.map(|k| (k.mangled.as_str(), k)).collect(),
        }
    }
}

pub(crate) fn report(
    agent: &Agent,
    summaries: &Summaries<'_>,
    version: &Version,
    kernel: &PreparedKernel,
    result: Option<&Result<Arc<LoadedVariant>, Failure>>,
) {
    if let Some(cache) = version.session.cache() {
        for note in cache.take_notes() {
            agent.note(NoteLevel::Warning, note);
        }
    }
    if !agent.preloaded.may_tell(summaries.image, &kernel.mangled) {
        return;
    }
    let summary = summaries.kernels.get(kernel.mangled.as_str());
    let source = summary.map(|s| s.source.clone()).unwrap_or_default();
    let (method, variant) = match result {
        None => (kernel.method.clone(), None),
        Some(Ok(variant)) => (kernel.method.clone(), Some(variant)),
        Some(Err(reason)) if is_reported(agent, &kernel.mangled, &source, version.generation()) => {
            // It has its row, from another context.
            let name = &kernel.demangled;
            let text =
                format!("kernel `{name}` runs without probes in a further context: {reason}");
            agent.note(NoteLevel::Warning, text);
            return;
        }
        Some(Err(reason)) => {
            let reason = reason.to_string();
            (Method::Failed { reason }, None)
        }
    };
    let change = variant.map(|v| v.resources);
    if let Some(warning) = change.and_then(|c| c.warning(&kernel.demangled)) {
        agent.note(NoteLevel::Warning, warning);
    }
    let registers_before = change
        .map(|c| c.before.registers)
        .or_else(|| summary.and_then(|s| s.registers));
    // It may be without those of a second tool.
    let programs = variant.and_then(|v| version.session.numbers(v.choices.ids()));
    let programs = programs.unwrap_or_else(|| kernel.programs.clone());
    send_kernel(
        agent,
        Kernel {
            kernel_id: kernel.kernel_id.map(|id| id as u32),
            mangled: kernel.mangled.clone(),
            demangled: kernel.demangled.clone(),
            source,
            registers_before,
            registers_after: change.map(|c| c.after.registers),
            occupancy: change.map(|c| Occupancy {
                block_threads: c.block_threads,
                before: c.before.blocks_per_sm,
                after: c.after.blocks_per_sm,
            }),
            local_bytes: change.map(|c| (c.before.local, c.after.local)),
            shared_bytes: change.map(|c| (c.before.shared, c.after.shared)),
            cached: variant.and_then(|v| v.cached),
            loaded_us: variant
                .and_then(|v| v.loaded_in)
                .map(|t| t.as_micros() as u64),
            compiler_warnings: variant.map_or_else(Vec::new, |v| v.compiler_warnings.clone()),
            sites: kernel.sites,
            left_out: kernel.left_out.clone(),
            placed: kernel.placed.clone(),
            method,
            instrumented: variant.is_some(),
            programs,
            generation: version.generation(),
            client: 0,
        },
    );
}

/// Tells second tools that want a kernel, and have no program in what runs there, why. Others are
/// told nothing: for them it is as it was.
pub(crate) fn tell_left_out(
    agent: &Agent,
    summaries: &Summaries<'_>,
    version: &Version,
    kernel: &PreparedKernel,
    method: &Method,
) {
    let session = &version.session;
    let wanted_by = session.matching(&kernel.mangled);
    let there = session.clients_of(&kernel.programs);
    let summary = summaries.kernels.get(kernel.mangled.as_str());
    for client in session.clients_of(&wanted_by) {
        if client == OWN || there.contains(&client) {
            continue;
        }
        let own = wanted_by.iter().copied();
        send_kernel(
            agent,
            Kernel {
                mangled: kernel.mangled.clone(),
                demangled: kernel.demangled.clone(),
                source: summary.map(|s| s.source.clone()).unwrap_or_default(),
                registers_before: summary.and_then(|s| s.registers),
                method: method.clone(),
                programs: own
                    .filter(|program| session.programs()[*program].client == client)
                    .collect(),
                generation: version.generation(),
                client,
                ..Kernel::default()
            },
        );
    }
}

/// Bytes of names in one message, and in all of a process: a tool that does not read for a moment
/// must have room for what waits.
const IN_A_MESSAGE: usize = 1 << 20;
const OF_ALL: usize = 32 << 20;

/// Some of the names of sites, from that of number `first` on, for one message, and how many they
/// are; none where there is no room for more names of the process.
fn some_names(names: &[String], room: usize) -> &[String] {
    let mut bytes = 0;
    let fits = |name: &&String| {
        bytes += name.len();
        bytes <= room.min(IN_A_MESSAGE)
    };
    let count = names.iter().take_while(fits).count();
    &names[..count]
}

/// Sends the names that the session gave to sites since the last time.
pub(crate) fn send_site_names(agent: &Agent, session: &Session) {
    let mut named = lock(&agent.images.named);
    let names = session.site_names();
    // No site has the number 0.
    let mut first = named.sites.max(1);
    while let Some(left) = names.get(first..).filter(|left| !left.is_empty()) {
        let some = some_names(left, OF_ALL - named.bytes);
        if some.is_empty() {
            if named.bytes < OF_ALL {
                agent.note(
                NoteLevel::Warning,
                format!("sites from number {first} on have no names: there are more than {} MiB of them; they are shown by their numbers", OF_ALL >> 20),
            );
            }
            named.bytes = OF_ALL;
            first = names.len();
            break;
        }
        named.bytes += some.iter().map(String::len).sum::<usize>();
        let sites = Sites {
            first: first as u32,
            names: some.to_vec(),
        };
        first += some.len();
        agent.send(ToTool::Sites(sites), None);
    }
    named.sites = first.max(named.sites);
}

/// A kernel from this source was reported already, with these programs.
fn is_reported(agent: &Agent, mangled: &str, source: &str, generation: u64) -> bool {
    let reported = lock(&agent.images.reported);
    let mut reported = reported.iter();
    reported.any(|(name, from, _, client, of)| {
        (name, from, *client, *of) == (&mangled.into(), &source.into(), OWN, generation)
    })
}

/// Something was reported with these programs.
#[cfg(test)]
pub(crate) fn has_reported(agent: &Agent, generation: u64) -> bool {
    let reported = lock(&agent.images.reported);
    reported.iter().any(|(.., of)| *of == generation)
}

/// The handle that an image was loaded with: a library's modules are it, too.
pub(crate) fn own_handle(agent: &Agent, handle: Handle) -> Handle {
    agent
        .images
        .get(handle)
        .map_or(handle, |image| image.handle)
}

/// Sends a kernel's report, the same one once.
pub(crate) fn send_kernel(agent: &Agent, kernel: Kernel) {
    let key = (
        kernel.mangled.clone(),
        kernel.source.clone(),
        kernel.method.clone(),
        kernel.client,
        kernel.generation,
    );
    if lock(&agent.images.reported).insert(key) {
        agent.send(ToTool::Kernel(kernel), None);
    }
}

/// Reports wanted kernels that never got a context.
pub(crate) fn report_never_instrumented(agent: &Agent) {
    let images: Vec<Arc<Image>> = lock(&agent.images.by_handle).values().cloned().collect();
    let instrumented = |image: &&Arc<Image>| image.was_instrumented.load(Ordering::Relaxed);
    for image in images.iter().filter(|image| !instrumented(image)) {
        let summaries = Summaries::of(image);
        let Some(version) = lock(&image.versions).last().cloned() else {
            continue;
        };
        for kernel in version.prepared.kernels.iter().filter(|k| k.wanted) {
            let why = Err(Failure::NeverUsed);
            report(agent, &summaries, &version, kernel, Some(&why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sites_go_in_parts_and_have_an_end() {
        let names = vec!["k".repeat(300_000); 8];
        assert_eq!(some_names(&names, OF_ALL).len(), 3);
        assert_eq!(some_names(&names, 700_000).len(), 2);
        assert_eq!(some_names(&names, 10).len(), 0);
        assert_eq!(some_names(&[], OF_ALL).len(), 0);
    }
}
