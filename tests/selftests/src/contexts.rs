//! Linux's contexts: which bytes of `r1` each type of program may read and write.
//!
//! The rules are those of the `*_is_valid_access` functions of `net/core/filter.c` and
//! `kernel/trace/bpf_trace.c` in 6.12, written anew. Fields that hold pointers into the kernel are
//! [`ContextField::Unserved`]: a program that reads one is left out of the comparison.

use warpbpf_verify::ContextField::{self, Absent, Number, Unserved};

const PACKET: ContextField = Unserved("a packet pointer");
const SOCKET: ContextField = Unserved("a socket pointer");
const FLOW_KEYS: ContextField = Unserved("a pointer to flow keys");
const KERNEL: ContextField = Unserved("a pointer to a kernel object");

/// What a program may read and the verifier has no notion of.
pub const POINTERS: [ContextField; 4] = [PACKET, SOCKET, FLOW_KEYS, KERNEL];

fn number_if(allowed: bool) -> ContextField {
    if allowed { Number } else { Absent }
}

fn gives(field: ContextField, allowed: bool) -> ContextField {
    if allowed { field } else { Absent }
}

fn aligned(offset: u32, size: u32) -> bool {
    offset.is_multiple_of(size)
}

/// `struct __sk_buff`, by offset.
mod skb {
    pub const MARK: u32 = 8;
    pub const QUEUE_MAPPING: u32 = 12;
    pub const PRIORITY: u32 = 32;
    pub const TC_INDEX: u32 = 44;
    pub const CB: u32 = 48;
    pub const HASH: u32 = 68;
    pub const TC_CLASSID: u32 = 72;
    pub const DATA: u32 = 76;
    pub const DATA_END: u32 = 80;
    pub const NAPI_ID: u32 = 84;
    pub const FAMILY: u32 = 88;
    pub const DATA_META: u32 = 140;
    pub const FLOW_KEYS: u32 = 144;
    pub const TSTAMP: u32 = 152;
    pub const WIRE_LEN: u32 = 160;
    pub const GSO_SEGS: u32 = 164;
    pub const SK: u32 = 168;
    pub const GSO_SIZE: u32 = 176;
    pub const TSTAMP_TYPE: u32 = 180;
    pub const HWTSTAMP: u32 = 184;
    pub const END: u32 = 192;
}

/// What all users of `__sk_buff` share.
fn sk_buff(offset: u32, size: u32, writes: bool) -> ContextField {
    if offset >= skb::END || !aligned(offset, size) {
        return Absent;
    }
    match offset {
        skb::CB..skb::HASH => number_if(offset + size <= skb::HASH),
        skb::DATA..skb::NAPI_ID | skb::DATA_META..skb::FLOW_KEYS => {
            if size == 4 && !writes {
                PACKET
            } else {
                Absent
            }
        }
        skb::FAMILY..skb::DATA_META => number_if(size == 4),
        skb::FLOW_KEYS..skb::TSTAMP => Absent,
        skb::TSTAMP..skb::WIRE_LEN => number_if(size == 8),
        skb::SK..skb::GSO_SIZE => {
            if !writes && offset == skb::SK && size == 8 {
                SOCKET
            } else {
                Absent
            }
        }
        skb::TSTAMP_TYPE..skb::HWTSTAMP => Absent,
        skb::HWTSTAMP.. => number_if(!writes && size == 8),
        _ if writes => number_if(size == 4),
        _ => number_if(size <= 4),
    }
}

/// `BPF_PROG_TYPE_SOCKET_FILTER`
pub fn socket_filter(offset: u32, size: u32, writes: bool) -> ContextField {
    let writable = matches!(offset, skb::CB..skb::HASH);
    match offset {
        _ if writes && !writable => Absent,
        skb::TC_CLASSID..skb::NAPI_ID
        | skb::FAMILY..skb::FLOW_KEYS
        | skb::TSTAMP..skb::GSO_SEGS
        | skb::HWTSTAMP.. => Absent,
        _ => sk_buff(offset, size, writes),
    }
}

/// `BPF_PROG_TYPE_CGROUP_SKB`
pub fn cgroup_skb(offset: u32, size: u32, writes: bool) -> ContextField {
    let writable = matches!(
        offset,
        skb::MARK | skb::PRIORITY | skb::CB..skb::HASH | skb::TSTAMP
    );
    match offset {
        _ if writes && !writable => Absent,
        skb::TC_CLASSID..skb::DATA
        | skb::DATA_META..skb::FLOW_KEYS
        | skb::WIRE_LEN..skb::GSO_SEGS => Absent,
        _ => sk_buff(offset, size, writes),
    }
}

/// `BPF_PROG_TYPE_SCHED_CLS` and `BPF_PROG_TYPE_SCHED_ACT`
pub fn sched(offset: u32, size: u32, writes: bool) -> ContextField {
    let writable = matches!(
        offset,
        skb::MARK | skb::QUEUE_MAPPING | skb::PRIORITY | skb::TC_INDEX | skb::CB
            ..skb::HASH | skb::TC_CLASSID | skb::TSTAMP
    );
    match offset {
        _ if writes && !writable => Absent,
        skb::TSTAMP_TYPE => number_if(!writes && size == 1),
        skb::FAMILY..skb::DATA_META => Absent,
        _ => sk_buff(offset, size, writes),
    }
}

/// `BPF_PROG_TYPE_LWT_*`
pub fn lwt(offset: u32, size: u32, writes: bool) -> ContextField {
    let writable = matches!(offset, skb::MARK | skb::PRIORITY | skb::CB..skb::HASH);
    match offset {
        _ if writes && !writable => Absent,
        skb::TC_CLASSID..skb::DATA
        | skb::FAMILY..skb::FLOW_KEYS
        | skb::TSTAMP..skb::GSO_SEGS
        | skb::HWTSTAMP.. => Absent,
        _ => sk_buff(offset, size, writes),
    }
}

/// `BPF_PROG_TYPE_SK_SKB`
pub fn sk_skb(offset: u32, size: u32, writes: bool) -> ContextField {
    let writable = matches!(offset, skb::TC_INDEX | skb::PRIORITY);
    match offset {
        _ if writes && !writable => Absent,
        skb::MARK..skb::QUEUE_MAPPING
        | skb::TC_CLASSID..skb::DATA
        | skb::DATA_META..skb::FLOW_KEYS
        | skb::TSTAMP..skb::GSO_SEGS
        | skb::HWTSTAMP.. => Absent,
        _ => sk_buff(offset, size, writes),
    }
}

/// `BPF_PROG_TYPE_FLOW_DISSECTOR`
pub fn flow_dissector(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        _ if writes => Absent,
        (skb::DATA | skb::DATA_END, 4) => PACKET,
        (skb::FLOW_KEYS, 8) => FLOW_KEYS,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_XDP`: `struct xdp_md`
pub fn xdp(offset: u32, size: u32, writes: bool) -> ContextField {
    match offset {
        _ if writes || size != 4 || !aligned(offset, 4) => Absent,
        0..12 => PACKET,
        12..24 => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_TRACEPOINT`: the record, behind a pointer that is not shown.
pub fn tracepoint(offset: u32, size: u32, writes: bool) -> ContextField {
    number_if(!writes && offset >= 8 && offset + size <= 8192 && aligned(offset, size))
}

/// `BPF_PROG_TYPE_RAW_TRACEPOINT`: `struct bpf_raw_tracepoint_args`, at most 12.
pub fn raw_tracepoint(offset: u32, size: u32, writes: bool) -> ContextField {
    number_if(!writes && offset + size <= 96 && aligned(offset, size))
}

/// `BPF_PROG_TYPE_KPROBE`: x86-64's `struct pt_regs`.
pub fn kprobe(offset: u32, size: u32, writes: bool) -> ContextField {
    number_if(!writes && offset + size <= 168 && aligned(offset, size))
}

/// `BPF_PROG_TYPE_PERF_EVENT`: `struct bpf_perf_event_data`.
pub fn perf_event(offset: u32, size: u32, writes: bool) -> ContextField {
    match offset {
        _ if writes || !aligned(offset, size) => Absent,
        0..168 => number_if(size == 8),
        // sample_period and addr may be read in part.
        168..184 => number_if(offset % 8 + size <= 8),
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_CGROUP_SOCK`: `struct bpf_sock`.
pub fn cgroup_sock(offset: u32, size: u32, writes: bool) -> ContextField {
    const WRITABLE: [u32; 3] = [0, 16, 20];
    match offset {
        _ if !aligned(offset, size) || size > 4 => Absent,
        _ if writes => number_if(WRITABLE.contains(&offset) && size == 4),
        48..50 => number_if(offset + size <= 50 || offset == 48 && size == 4),
        50..52 => Absent,
        76..80 => number_if(size == 4),
        0..76 => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`: `struct bpf_sock_addr`, with what every attach point allows.
pub fn sock_addr(offset: u32, size: u32, writes: bool) -> ContextField {
    match offset {
        _ if !aligned(offset, size) => Absent,
        64..72 => {
            if !writes && offset == 64 && size == 8 {
                SOCKET
            } else {
                Absent
            }
        }
        // Addresses and the port.
        4..28 | 40..60 => match size {
            // Two words of an IPv6 address.
            8 => number_if(matches!(offset, 8 | 16 | 48)),
            4 => Number,
            _ => number_if(!writes),
        },
        0..4 | 28..40 => number_if(!writes && size == 4),
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_CGROUP_SYSCTL`: `struct bpf_sysctl`
pub fn sysctl(offset: u32, size: u32, writes: bool) -> ContextField {
    match offset {
        _ if !aligned(offset, size) || size > 4 => Absent,
        0..4 => number_if(!writes),
        4..8 => number_if(!writes || size == 4),
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_CGROUP_SOCKOPT`: `struct bpf_sockopt`
pub fn sockopt(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        _ if !aligned(offset, size) => Absent,
        (0, 8) if !writes => SOCKET,
        (8 | 16, 8) if !writes => PACKET,
        (24..40, 4) => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_SOCK_OPS`: `struct bpf_sock_ops`
pub fn sock_ops(offset: u32, size: u32, writes: bool) -> ContextField {
    match offset {
        _ if !aligned(offset, size) => Absent,
        // reply and sk_txhash.
        _ if writes => number_if(size == 4 && matches!(offset, 4..20 | 164)),
        168..184 | 216..224 => number_if(size == 8),
        184..192 => gives(SOCKET, size == 8),
        192..208 => gives(PACKET, size == 8),
        0..216 => number_if(size == 4),
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_SK_MSG`: `struct sk_msg_md`
pub fn sk_msg(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        _ if writes || !aligned(offset, size) => Absent,
        (0 | 8, 8) => PACKET,
        (72, 8) => SOCKET,
        (16..72, 4) => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_SK_REUSEPORT`: `struct sk_reuseport_md`
pub fn sk_reuseport(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        _ if writes || !aligned(offset, size) => Absent,
        (0 | 8, 8) => PACKET,
        (40 | 48, 8) => SOCKET,
        (16, 4) | (28..36, 4) => Number,
        (20..28, 1 | 2 | 4) => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_SK_LOOKUP`: `struct bpf_sk_lookup`
pub fn sk_lookup(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        _ if writes || !aligned(offset, size) => Absent,
        (0, 8) => SOCKET,
        (8..72, 1 | 2 | 4) => Number,
        _ => Absent,
    }
}

/// `BPF_PROG_TYPE_SYSCALL`: up to 65,535 bytes that the caller brings.
pub fn syscall(offset: u32, size: u32, _writes: bool) -> ContextField {
    number_if(offset + size <= 0xffff && aligned(offset, size))
}

/// `BPF_PROG_TYPE_NETFILTER`: `struct bpf_nf_ctx`
pub fn netfilter(offset: u32, size: u32, writes: bool) -> ContextField {
    match (offset, size) {
        (0 | 8, 8) if !writes => KERNEL,
        _ => Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_reads_are_allowed_where_linux_allows_them() {
        assert_eq!(socket_filter(0, 4, false), Number);
        assert_eq!(socket_filter(2, 2, false), Number);
        assert_eq!(socket_filter(3, 1, false), Number);
        assert_eq!(socket_filter(1, 2, false), Absent);
        assert_eq!(socket_filter(0, 8, false), Absent);
        assert_eq!(sched(skb::TSTAMP, 4, false), Absent);
        assert_eq!(sched(skb::TSTAMP, 8, true), Number);
    }

    #[test]
    fn only_some_fields_are_written() {
        assert_eq!(socket_filter(skb::MARK, 4, true), Absent);
        assert_eq!(sched(skb::MARK, 4, true), Number);
        assert_eq!(socket_filter(skb::CB + 16, 4, true), Number);
        assert_eq!(socket_filter(skb::CB + 16, 8, true), Absent);
        assert_eq!(socket_filter(skb::CB, 8, true), Number);
    }

    #[test]
    fn kernel_pointers_are_named() {
        assert_eq!(xdp(0, 4, false), PACKET);
        assert_eq!(xdp(4, 8, false), Absent);
        assert_eq!(socket_filter(skb::DATA, 4, false), Absent);
        assert_eq!(cgroup_skb(skb::SK, 8, false), SOCKET);
    }
}
