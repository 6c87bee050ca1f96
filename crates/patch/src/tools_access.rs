//! Accesses of memory as Compute Sanitizer tells of them: what kind each is, which of them a
//! program wants, and what it can know of one.

use warpbpf_abi::access::{Kind, Space};
use warpbpf_abi::context::Capture;

use crate::select::Select;
use crate::tools_code::Code;
use crate::tools_event::Event;

/// `flags`: reads, writes; both are an atomic.
const READ_WRITE: u32 = 3;
const WRITE: u32 = 2;
/// An atomic for the whole system, or one whose result nobody wants.
const ATOMIC: u32 = 4 | 0x100;
const PREFETCH: u32 = 8;

/// `%wbpf_kind`, and what else is of the access and not of a program.
pub(crate) fn begin(event: Event, out: &mut Code) {
    out.put(format_args!(".reg .b32 %wbpf_kind, %wbpf_t;"));
    match event {
        // How much of the cache it is nobody says.
        Event::Prefetch => {
            out.put(format_args!(".reg .b32 %wbpf_size;"));
            out.put(format_args!("mov.b32 %wbpf_size, 0;"));
            let kind = Kind::Prefetch as u32;
            out.put(format_args!("mov.b32 %wbpf_kind, {kind};"));
        }
        Event::AsyncCopy => out.put(format_args!(
            "mov.b32 %wbpf_kind, {};",
            Kind::AsyncCopy as u32
        )),
        Event::Matrix => {
            let (load, store) = (Kind::MatrixLoad as u32, Kind::MatrixStore as u32);
            out.put(format_args!("and.b32 %wbpf_t, %wbpf_flags, {WRITE};"));
            out.put(format_args!("setp.ne.u32 %wbpf_q, %wbpf_t, 0;"));
            out.put(format_args!(
                "selp.b32 %wbpf_kind, {store}, {load}, %wbpf_q;"
            ));
            // Rows belong to the first lanes, eight to each matrix.
            out.put(format_args!(".reg .pred %wbpf_row;"));
            out.put(format_args!(".reg .b32 %wbpf_rows;"));
            out.put(format_args!("shl.b32 %wbpf_rows, %wbpf_count, 3;"));
            out.put(format_args!("mov.u32 %wbpf_t, %laneid;"));
            out.put(format_args!("setp.lt.u32 %wbpf_row, %wbpf_t, %wbpf_rows;"));
        }
        _ => by_flags(out),
    }
}

fn by_flags(out: &mut Code) {
    const {
        assert!(
            Kind::Load as u32 == 1
                && Kind::Store as u32 == WRITE
                && Kind::Atomic as u32 == READ_WRITE
        )
    };
    out.put(format_args!(
        "and.b32 %wbpf_kind, %wbpf_flags, {READ_WRITE};"
    ));
    let other = Kind::Other as u32;
    out.put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, 0;"));
    out.put(format_args!(
        "selp.b32 %wbpf_kind, {other}, %wbpf_kind, %wbpf_q;"
    ));
    for (flag, kind) in [(ATOMIC, Kind::Atomic), (PREFETCH, Kind::Prefetch)] {
        out.put(format_args!("and.b32 %wbpf_t, %wbpf_flags, {flag};"));
        out.put(format_args!("setp.ne.u32 %wbpf_q, %wbpf_t, 0;"));
        let kind = kind as u32;
        out.put(format_args!(
            "selp.b32 %wbpf_kind, {kind}, %wbpf_kind, %wbpf_q;"
        ));
    }
}

/// Goes to `other` with an access that is not selected.
pub(crate) fn choose(event: Event, select: &Select, other: &str, out: &mut Code) {
    let can_be = event.kinds();
    let left_out = |kind: &Kind| !select.kinds.contains(kind);
    if !select.kinds.is_empty() && can_be.iter().any(left_out) {
        out.put(format_args!(".reg .pred %wbpf_r;"));
        let wanted = select.kinds.iter().filter(|kind| can_be.contains(kind));
        for (at, kind) in wanted.enumerate() {
            let kind = *kind as u32;
            match at {
                0 => out.put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {kind};")),
                _ => out.put(format_args!(
                    "setp.eq.or.u32 %wbpf_q, %wbpf_kind, {kind}, %wbpf_q;"
                )),
            }
        }
        out.put(format_args!("not.pred %wbpf_r, %wbpf_q;"));
        out.put(format_args!("@%wbpf_r bra {other};"));
    }
    if let Some(bytes) = &select.bytes {
        let (first, last) = (bytes.start(), bytes.end());
        out.put(format_args!("setp.lt.u32 %wbpf_q, %wbpf_size, {first};"));
        out.put(format_args!(
            "setp.gt.or.u32 %wbpf_q, %wbpf_size, {last}, %wbpf_q;"
        ));
        out.put(format_args!("@%wbpf_q bra {other};"));
    }
}

/// Fills a register that a program reads.
pub(crate) fn capture(event: Event, capture: Capture, d: &str, out: &mut Code) {
    let plain = matches!(event, Event::Access(_));
    match (capture, event) {
        (Capture::Address, Event::Matrix) => {
            out.put(format_args!("cvt.u64.u32 {d}, %wbpf_ptr;"));
            out.put(format_args!("selp.b64 {d}, {d}, 0, %wbpf_row;"));
        }
        (Capture::Address, _) => out.put(format_args!("mov.b64 {d}, %wbpf_ptr;")),
        (Capture::Bytes, Event::Matrix) => {
            out.put(format_args!("selp.b32 {d}, %wbpf_size, 0, %wbpf_row;"));
        }
        // Where nothing is read but zeros are written, there is no source.
        (Capture::Bytes, Event::AsyncCopy) => {
            out.put(format_args!("setp.eq.u64 %wbpf_q, %wbpf_ptr, 0;"));
            out.put(format_args!("selp.b32 {d}, 0, %wbpf_size, %wbpf_q;"));
        }
        (Capture::Bytes, _) => out.put(format_args!("mov.b32 {d}, %wbpf_size;")),
        (Capture::Kind, _) => out.put(format_args!("mov.b32 {d}, %wbpf_kind;")),
        (Capture::Space, _) => {
            out.put(format_args!("mov.b32 {d}, {};", event.space() as u32));
        }
        (Capture::Target, Event::AsyncCopy) => {
            out.put(format_args!("cvt.u64.u32 {d}, %wbpf_target;"));
        }
        (Capture::TargetSpace, Event::AsyncCopy) => {
            out.put(format_args!("mov.b32 {d}, {};", Space::Shared as u32));
        }
        (Capture::ValueBytes, _) if plain => {
            let store = Kind::Store as u32;
            out.put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {store};"));
            out.put(format_args!("selp.b32 {d}, %wbpf_size, 0, %wbpf_q;"));
        }
        (Capture::Value(word), _) if plain => value(word, d, out),
        // What has no value to show, and no target.
        _ => out.put(format_args!("mov.b{} {d}, 0;", capture.bits())),
    }
}

/// Only of a store, and at most 16 bytes.
fn value(word: u8, d: &str, out: &mut Code) {
    out.put(format_args!("mov.b64 {d}, 0;"));
    let loads: &[(u32, u32, u32)] = match word {
        0 => &[(1, 8, 0), (2, 16, 0), (4, 32, 0), (8, 64, 0), (16, 64, 0)],
        1 => &[(16, 64, 8)],
        _ => &[],
    };
    for (size, bits, offset) in loads {
        let store = Kind::Store as u32;
        out.put(format_args!("setp.eq.u32 %wbpf_q, %wbpf_kind, {store};"));
        out.put(format_args!(
            "setp.eq.and.u32 %wbpf_q, %wbpf_size, {size}, %wbpf_q;"
        ));
        out.put(format_args!(
            "setp.ne.and.u64 %wbpf_q, %wbpf_data, 0, %wbpf_q;"
        ));
        out.put(format_args!(
            "@%wbpf_q ld.u{bits} {d}, [%wbpf_data+{offset}];"
        ));
    }
}
