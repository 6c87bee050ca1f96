//! Linux's helpers as rows of warpbpf's table: those whose arguments the verifier has a notion of.
//! A program that calls another one is left out of the comparison. Those that do what one of ours
//! does have its kind, and with it its rules; the others are [`HelperId::Foreign`].

use warpbpf_abi::helpers::{Arg, Effect, Helper, HelperId, Ret, Uniform, Warp};

const fn row(id: u32, name: &'static str, args: [Arg; 5], ret: Ret) -> Helper {
    row_as(HelperId::Foreign, id, name, args, ret)
}

const fn row_as(kind: HelperId, id: u32, name: &'static str, args: [Arg; 5], ret: Ret) -> Helper {
    Helper {
        id,
        name,
        kind,
        args,
        ret,
        effect: Effect::Observe,
        warp: Warp::AnyLanes,
        uniform: Uniform::Varies,
        cost: 1,
        prototype: "",
        doc: "",
    }
}

macro_rules! rows {
    ($(#[$doc:meta])* $name:ident: $($row:expr;)*) => {
        $(#[$doc])*
        pub const $name: &[Helper] = &[$($row),*];
    };
}

macro_rules! helper {
    ($id:literal $name:literal ($($arg:ident)*)) => {
        row($id, $name, args(&[$(Arg::$arg),*]), Ret::Scalar)
    };
    ($id:literal $name:literal ($($arg:ident)*) as $kind:ident -> $ret:ident) => {
        row_as(HelperId::$kind, $id, $name, args(&[$(Arg::$arg),*]), Ret::$ret)
    };
}

const fn args(given: &[Arg]) -> [Arg; 5] {
    let mut all = [Arg::None; 5];
    let mut i = 0;
    while i < given.len() {
        all[i] = given[i];
        i += 1;
    }
    all
}

rows! {
    /// `bpf_base_func_proto`: for all types of programs.
    BASE:
    helper!(1 "map_lookup_elem" (Map MapKey) as MapLookupElem -> MapValueOrNull);
    helper!(2 "map_update_elem" (Map MapKey MapValue Scalar) as MapUpdateElem -> Scalar);
    helper!(3 "map_delete_elem" (Map MapKey) as MapDeleteElem -> Scalar);
    helper!(5 "ktime_get_ns" () as KtimeGetNs -> Scalar);
    helper!(7 "get_prandom_u32" ());
    helper!(8 "get_smp_processor_id" ());
    helper!(42 "get_numa_node_id" ());
    helper!(105 "strtol" (MemRead Size Scalar U64Out));
    helper!(106 "strtoul" (MemRead Size Scalar U64Out));
    helper!(112 "probe_read_user" (MemWrite SizeOrZero Scalar));
    helper!(113 "probe_read_kernel" (MemWrite SizeOrZero Scalar));
    helper!(114 "probe_read_user_str" (MemWrite SizeOrZero Scalar));
    helper!(115 "probe_read_kernel_str" (MemWrite SizeOrZero Scalar));
    helper!(118 "jiffies64" () as KtimeGetNs -> Scalar);
    helper!(125 "ktime_get_boot_ns" () as KtimeGetNs -> Scalar);
    helper!(130 "ringbuf_output" (Map MemRead SizeOrZero Scalar) as RingbufOutput -> Scalar);
    helper!(131 "ringbuf_reserve" (Map ConstSize Scalar) as RingbufReserve -> RecordOrNull);
    helper!(132 "ringbuf_submit" (Record Scalar) as RingbufSubmit -> Scalar);
    helper!(133 "ringbuf_discard" (Record Scalar) as RingbufDiscard -> Scalar);
    helper!(164 "for_each_map_elem" (Map Callback CallbackContext Scalar) as ForEachMapElem -> Scalar);
    helper!(181 "loop" (Scalar Callback CallbackContext Scalar) as Loop -> Scalar);
    helper!(6 "trace_printk" (MemRead Size));
}

rows! {
    /// What programs get that are not called from anywhere in the kernel.
    NOT_TRACING:
    helper!(160 "ktime_get_coarse_ns" () as KtimeGetNs -> Scalar);
}

rows! {
    /// For tracing programs: `bpf_tracing_func_proto`.
    TRACING:
    helper!(4 "probe_read" (MemWrite SizeOrZero Scalar));
    helper!(14 "get_current_pid_tgid" ());
    helper!(15 "get_current_uid_gid" ());
    helper!(16 "get_current_comm" (MemWrite Size));
    helper!(45 "probe_read_str" (MemWrite SizeOrZero Scalar));
    helper!(25 "perf_event_output" (Context Map Scalar MemRead SizeOrZero));
    helper!(27 "get_stackid" (Context Map Scalar));
    helper!(35 "get_current_task" ());
    helper!(67 "get_stack" (Context MemWrite SizeOrZero Scalar));
}

rows! {
    /// For programs with a packet: `struct __sk_buff`.
    SKB:
    helper!(9 "skb_store_bytes" (Context Scalar MemRead Size Scalar));
    helper!(10 "l3_csum_replace" (Context Scalar Scalar Scalar Scalar));
    helper!(11 "l4_csum_replace" (Context Scalar Scalar Scalar Scalar));
    helper!(15 "get_current_uid_gid" ());
    helper!(23 "redirect" (Scalar Scalar));
    helper!(26 "skb_load_bytes" (Context Scalar MemWrite Size));
    helper!(28 "csum_diff" (MemReadOrNull SizeOrZero MemReadOrNull SizeOrZero Scalar));
    helper!(32 "skb_change_type" (Context Scalar));
    helper!(34 "get_hash_recalc" (Context));
    helper!(39 "skb_pull_data" (Context Scalar));
    helper!(40 "csum_update" (Context Scalar));
    helper!(43 "skb_change_head" (Context Scalar Scalar));
    helper!(46 "get_socket_cookie" (Context));
}

rows! {
    /// For socket filters: they only look.
    SOCKET:
    helper!(26 "skb_load_bytes" (Context Scalar MemWrite Size));
    helper!(46 "get_socket_cookie" (Context));
}

rows! {
    /// For programs that a socket runs.
    COOKIE:
    helper!(46 "get_socket_cookie" (Context));
}

rows! {
    /// For XDP.
    XDP:
    helper!(28 "csum_diff" (MemReadOrNull SizeOrZero MemReadOrNull SizeOrZero Scalar));
    helper!(23 "redirect" (Scalar Scalar));
    helper!(54 "xdp_adjust_meta" (Context Scalar));
    helper!(69 "fib_lookup" (Context MemRead Size Scalar));
}

/// Every list, to tell a helper that a type of program does not get from one that is not modelled.
pub const ALL: &[&[Helper]] = &[BASE, NOT_TRACING, TRACING, SKB, SOCKET, COOKIE, XDP];
