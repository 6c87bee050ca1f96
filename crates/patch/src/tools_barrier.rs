//! Barriers as Compute Sanitizer tells of them, and calls, of which nothing is told that a program
//! can see.

use warpbpf_abi::access::Barrier;
use warpbpf_abi::context::Capture;

use crate::select::Select;
use crate::tools_code::{Code, NOBODY};
use crate::tools_event::Event;

/// `action` of what is done to an mbarrier: the first and the last of the arrivals, and a wait that
/// is over. Who makes one or ends it does not wait.
const ARRIVALS: (u32, u32) = (2, 5);
const WAIT: u32 = 6;

/// `%wbpf_kind` where an event can be of several, and leaves out what is no barrier to a program.
pub(crate) fn begin(event: Event, out: &mut Code) {
    if event != Event::Mbarrier {
        return;
    }
    let (first, last) = ARRIVALS;
    out.put(format_args!("setp.lt.u32 %wbpf_q, %wbpf_action, {first};"));
    out.put(format_args!(
        "setp.gt.or.u32 %wbpf_q, %wbpf_action, {WAIT}, %wbpf_q;"
    ));
    out.put(format_args!("@%wbpf_q bra {NOBODY};"));
    const { assert!(ARRIVALS.1 + 1 == WAIT) };
    let (arrive, wait) = (Barrier::MbarrierArrive as u32, Barrier::MbarrierWait as u32);
    out.put(format_args!(".reg .b32 %wbpf_kind;"));
    out.put(format_args!("setp.gt.u32 %wbpf_q, %wbpf_action, {last};"));
    out.put(format_args!(
        "selp.b32 %wbpf_kind, {wait}, {arrive}, %wbpf_q;"
    ));
}

/// Goes to `other` at a barrier that is not selected.
pub(crate) fn choose(event: Event, select: &Select, other: &str, out: &mut Code) {
    let [first, second] = event.barriers() else {
        return;
    };
    let wanted = |kind: &Barrier| select.barriers.is_empty() || select.barriers.contains(kind);
    if let Some(kind) = [first, second].into_iter().find(|kind| !wanted(kind)) {
        let kind = *kind as u32;
        out.put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {kind};"));
        out.put(format_args!("@%wbpf_q bra {other};"));
    }
}

/// Fills a register that a program reads.
pub(crate) fn capture(event: Event, capture: Capture, d: &str, out: &mut Code) {
    match (capture, event) {
        (Capture::Address, Event::Mbarrier) => out.put(format_args!("mov.b64 {d}, %wbpf_ptr;")),
        (Capture::BarrierKind, _) => match event.barriers() {
            [kind] => out.put(format_args!("mov.b32 {d}, {};", *kind as u32)),
            _ => out.put(format_args!("mov.b32 {d}, %wbpf_kind;")),
        },
        (Capture::Space, _) => {
            out.put(format_args!("mov.b32 {d}, {};", event.space() as u32));
        }
        (Capture::BarrierId, Event::Barrier) => out.put(format_args!("mov.b32 {d}, %wbpf_id;")),
        (Capture::BarrierThreads, Event::Barrier) => {
            out.put(format_args!("mov.b32 {d}, %wbpf_threads;"));
        }
        // As in PTX: a barrier that has no such thing.
        _ => out.put(format_args!("mov.b{} {d}, 0;", capture.bits())),
    }
}
