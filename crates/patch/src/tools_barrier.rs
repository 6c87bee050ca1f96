//! Barriers as Compute Sanitizer tells of them, and calls, of which nothing is told that a program can see.

use warpbpf_abi::context::Capture;

use crate::tools::NOBODY;
use crate::tools_event::Event;
use crate::tools_place::Code;

/// `action` of what is done to an mbarrier: the first and the last of the arrivals. It is made and ended by others, and a wait that has come to
/// its end is one of the tries.
const ARRIVALS: (u32, u32) = (2, 5);
const WAIT: u32 = 6;

/// Leaves out what is no barrier to a program.
pub(crate) fn begin(event: Event, out: &mut Code) {
    let (first, last) = match event {
        Event::Mbarrier => ARRIVALS,
        Event::MbarrierWait => (WAIT, WAIT),
        _ => return,
    };
    out.put(format_args!("setp.lt.u32 %wbpf_q, %wbpf_action, {first};"));
    out.put(format_args!(
        "setp.gt.or.u32 %wbpf_q, %wbpf_action, {last}, %wbpf_q;"
    ));
    out.put(format_args!("@%wbpf_q bra {NOBODY};"));
}

/// Fills a register that a program reads.
pub(crate) fn capture(event: Event, capture: Capture, d: &str, out: &mut Code) {
    match (capture, event) {
        (Capture::Address, Event::Mbarrier | Event::MbarrierWait) => {
            out.put(format_args!("mov.b64 {d}, %wbpf_ptr;"));
        }
        (Capture::Address, Event::CopiesArrive) => {
            out.put(format_args!("cvt.u64.u32 {d}, %wbpf_ptr;"));
        }
        (Capture::BarrierKind, _) => {
            let kind = event.barrier().map_or(0, |kind| kind as u32);
            out.put(format_args!("mov.b32 {d}, {kind};"));
        }
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
