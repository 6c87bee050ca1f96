//! What people are told of launches that run without programs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use warpbpf_session::LAUNCH_POOL;
use warpbpf_wire::NoteLevel;

use crate::kernels::entry::{Entry, Place};
use crate::kernels::fallback::FallbackReason;
use crate::runtime::agent::Agent;

/// Tells the user why launches of a kernel run without probes, each reason once.
pub(crate) fn tell(agent: &'static Agent, entry: &Entry, reason: FallbackReason) {
    let once = |told: &AtomicBool| !told.swap(true, Ordering::Relaxed);
    let name = &entry.mangled;
    match reason {
        FallbackReason::None | FallbackReason::Skipped | FallbackReason::Unwanted => {}
        FallbackReason::Context(context) if !entry.told_context.load(Ordering::Relaxed) => {
            if let Some(why) = agent.why_nothing_in(context)
                && once(&entry.told_context)
            {
                agent.note(
                    NoteLevel::Warning,
                    format!("kernel `{name}` was launched in a context without maps ({why}); those launches run without probes"),
                );
            }
        }
        FallbackReason::Residency(short, variant) if once(&entry.told_residency) => {
            agent.note(NoteLevel::Warning, short.message(name, variant));
        }
        FallbackReason::Threads(most) if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!(
                "kernel `{name}` was launched with larger blocks than its probes allow ({most} threads): it needs too many registers with them; those launches run without probes"
            ),
        ),
        FallbackReason::Overlap if once(&entry.told_overlap) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` was launched to overlap with the kernel before it; what counts the threads of warps or blocks cannot follow that, those launches run without probes"),
        ),
        FallbackReason::Compaction if once(&entry.told_compaction) => agent.note(
            NoteLevel::Info,
            format!("kernel `{name}` was launched while a map was being compacted; those launches run without probes"),
        ),
        FallbackReason::Record if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!(
                "kernel `{name}`: there is no room for a launch record, where threads of warps and blocks are counted ({} MiB for all kernels of a context); those launches run without probes",
                LAUNCH_POOL >> 20
            ),
        ),
        FallbackReason::Params if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}`: its parameters are not passed as the driver's documentation says, so none can be added; those launches run without probes"),
        ),
        FallbackReason::Refused(code) if once(&entry.told_failed) => agent.note(
            NoteLevel::Warning,
            format!(
                "kernel `{name}`: the driver refuses to launch it with probes ({}); those launches run without them",
                agent.driver.error_name(code)
            ),
        ),
        // Noted once by their text.
        FallbackReason::Captured(code) => agent.note(
            NoteLevel::Warning,
            format!(
                "the driver does not say whether a stream is captured ({}): launches in it run without probes and are not counted",
                agent.driver.error_name(code)
            ),
        ),
        FallbackReason::Graph => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` is in a graph, whose nodes Compute Sanitizer would take for each other; there it runs without probes"),
        ),
        FallbackReason::DeviceLaunch => agent.note(
            NoteLevel::Warning,
            format!("kernel `{name}` is in a graph that kernels may launch; there it runs without probes"),
        ),
        FallbackReason::Context(_)
        | FallbackReason::Residency(..)
        | FallbackReason::Threads(_)
        | FallbackReason::Overlap
        | FallbackReason::Compaction
        | FallbackReason::Record
        | FallbackReason::Params
        | FallbackReason::Refused(_) => {}
    }
}

/// Tells second tools that launches of a kernel run without their programs, where those of `place`
/// cannot run and those of `alone` do. Others have theirs in these launches, and
/// [`tell`] tells of such without any.
pub(crate) fn tell_of_alone(
    agent: &'static Agent,
    entry: &Entry,
    (place, alone): (&Place, &Place),
    reason: &FallbackReason,
) {
    let why = match reason {
        FallbackReason::Residency(..) => "all blocks of a grid would not run at once any more",
        FallbackReason::Threads(_) => "blocks are larger than it allows",
        FallbackReason::Overlap => "they overlap with the kernel before",
        FallbackReason::Record => "there is no room for a launch record",
        FallbackReason::Params => "its parameters cannot be extended",
        FallbackReason::Refused(_) => "the driver refuses it",
        FallbackReason::Graph => "it is in a graph",
        FallbackReason::None
        | FallbackReason::Unwanted
        | FallbackReason::Context(_)
        | FallbackReason::Compaction
        | FallbackReason::Captured(_)
        | FallbackReason::DeviceLaunch
        | FallbackReason::Skipped => return,
    };
    let clients = place.clients_beside(alone);
    if !clients.is_empty() && !entry.told_alone.swap(true, Ordering::Relaxed) {
        let name = &entry.mangled;
        agent.note_to(
            &clients,
            NoteLevel::Info,
            format!(
                "kernel `{name}`: some launches cannot have the programs of all tools ({why}); they run with those that were there before, and count as uninstrumented for this one"
            ),
        );
    }
}
