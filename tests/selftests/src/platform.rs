//! Linux as a platform of the verifier: what each type of program gets.

use std::sync::OnceLock;

use warpbpf_abi::attach::Site;
use warpbpf_abi::context::Context;
use warpbpf_abi::helpers::Helper;
use warpbpf_abi::maps::MapType;
use warpbpf_object::MapDef;
use warpbpf_verify::Platform;
use warpbpf_verify::platform::ForeignContext;

use crate::{contexts, helpers};

/// Linux bounds the proof (a million instructions looked at), not the run; what ends is fast
/// enough.
const BUDGET: u64 = 1 << 40;

macro_rules! kinds {
    ($($kind:ident $c_name:literal $size:literal $rule:ident [$($list:ident)*];)*) => {
        /// A type of program that the comparison covers.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// Its rules.
            pub fn platform(self) -> Platform {
                match self {
                    $(Kind::$kind => {
                        static CONTEXT: Context = Context { c_name: $c_name, size: $size, fields: &[] };
                        static HELPERS: OnceLock<Vec<Helper>> = OnceLock::new();
                        let helpers = HELPERS.get_or_init(|| {
                            let lists: &[&[Helper]] = &[$(helpers::$list),*];
                            lists.concat()
                        });
                        platform(&CONTEXT, contexts::$rule, helpers)
                    })*
                }
            }
        }
    };
}

kinds! {
    SocketFilter "__sk_buff" 192 socket_filter [BASE NOT_TRACING SOCKET];
    Sched "__sk_buff" 192 sched [BASE NOT_TRACING SKB];
    CgroupSkb "__sk_buff" 192 cgroup_skb [BASE NOT_TRACING SOCKET];
    Lwt "__sk_buff" 192 lwt [BASE NOT_TRACING SKB];
    SkSkb "__sk_buff" 192 sk_skb [BASE NOT_TRACING SKB];
    FlowDissector "__sk_buff" 192 flow_dissector [BASE NOT_TRACING SOCKET];
    Xdp "xdp_md" 24 xdp [BASE NOT_TRACING XDP];
    Tracepoint "the record of a tracepoint" 8192 tracepoint [BASE TRACING];
    RawTracepoint "bpf_raw_tracepoint_args" 96 raw_tracepoint [BASE TRACING];
    Kprobe "pt_regs" 168 kprobe [BASE TRACING];
    PerfEvent "bpf_perf_event_data" 184 perf_event [BASE TRACING];
    CgroupSock "bpf_sock" 80 cgroup_sock [BASE NOT_TRACING COOKIE];
    CgroupSockAddr "bpf_sock_addr" 72 sock_addr [BASE NOT_TRACING COOKIE];
    CgroupSysctl "bpf_sysctl" 8 sysctl [BASE NOT_TRACING];
    CgroupSockopt "bpf_sockopt" 40 sockopt [BASE NOT_TRACING];
    SockOps "bpf_sock_ops" 224 sock_ops [BASE NOT_TRACING COOKIE];
    SkMsg "sk_msg_md" 80 sk_msg [BASE NOT_TRACING];
    SkReuseport "sk_reuseport_md" 56 sk_reuseport [BASE NOT_TRACING];
    SkLookup "bpf_sk_lookup" 72 sk_lookup [BASE NOT_TRACING];
    Syscall "the caller's bytes" 65535 syscall [BASE TRACING];
    Netfilter "bpf_nf_ctx" 16 netfilter [BASE NOT_TRACING];
}

fn platform(
    context: &'static Context,
    rule: ForeignContext,
    helpers: &'static [Helper],
) -> Platform {
    Platform {
        context,
        foreign_context: Some(rule),
        helpers,
        ..Platform::new(Site::Entry).with_budget(BUDGET)
    }
}

/// The type of a program, from its section, as libbpf tells it.
///
/// # Errors
/// The section's first word, if the comparison does not cover it.
pub fn kind_of(section: &str) -> Result<Kind, String> {
    let section = section.trim_start_matches('?');
    let (word, rest) = section.split_once('/').unwrap_or((section, ""));
    Ok(match (word, rest) {
        ("socket", _) => Kind::SocketFilter,
        ("tc" | "tcx" | "classifier" | "action" | "netkit", _) => Kind::Sched,
        ("xdp" | "xdp.frags", _) => Kind::Xdp,
        ("tracepoint" | "tp", _) => Kind::Tracepoint,
        ("raw_tracepoint" | "raw_tp", _) => Kind::RawTracepoint,
        ("kprobe" | "kretprobe" | "uprobe" | "uretprobe" | "uprobe.s", _) => Kind::Kprobe,
        ("perf_event", _) => Kind::PerfEvent,
        ("cgroup_skb", _) | ("cgroup", "skb") => Kind::CgroupSkb,
        ("cgroup", "sock" | "sock_create" | "sock_release" | "post_bind4" | "post_bind6") => {
            Kind::CgroupSock
        }
        ("cgroup", "sysctl") => Kind::CgroupSysctl,
        ("cgroup", "getsockopt" | "setsockopt") => Kind::CgroupSockopt,
        ("cgroup", hook)
            if [
                "bind",
                "connect",
                "sendmsg",
                "recvmsg",
                "getpeername",
                "getsockname",
            ]
            .iter()
            .any(|h| hook.starts_with(h)) =>
        {
            Kind::CgroupSockAddr
        }
        ("lwt_in" | "lwt_out" | "lwt_xmit", _) => Kind::Lwt,
        ("sk_msg", _) => Kind::SkMsg,
        ("sk_skb", _) => Kind::SkSkb,
        ("sockops", _) => Kind::SockOps,
        ("sk_reuseport", _) => Kind::SkReuseport,
        ("sk_lookup", _) => Kind::SkLookup,
        ("flow_dissector", _) => Kind::FlowDissector,
        ("netfilter", _) => Kind::Netfilter,
        ("syscall", _) => Kind::Syscall,
        _ => return Err(word.to_owned()),
    })
}

impl Kind {
    /// Its number of `enum bpf_prog_type`, if a program of it can be loaded without saying where it
    /// goes.
    pub fn number(self) -> Option<u32> {
        // Of two numbers that count as one kind here, the one that may do more.
        (1..=32).rev().find(|number| {
            kind_of_number(*number) == Some(self)
                && !matches!(
                    self,
                    Kind::CgroupSock
                        | Kind::CgroupSockAddr
                        | Kind::CgroupSockopt
                        | Kind::SkLookup
                        | Kind::Netfilter
                )
        })
    }

    /// Loading it takes no right to observe the kernel.
    pub fn of_network(self) -> bool {
        !matches!(
            self,
            Kind::Tracepoint
                | Kind::RawTracepoint
                | Kind::Kprobe
                | Kind::PerfEvent
                | Kind::Syscall
                | Kind::Netfilter
        )
    }
}

/// The type with this number of `enum bpf_prog_type`, if the comparison covers it.
pub fn kind_of_number(number: u32) -> Option<Kind> {
    Some(match number {
        1 => Kind::SocketFilter,
        2 => Kind::Kprobe,
        3 | 4 => Kind::Sched,
        5 => Kind::Tracepoint,
        6 => Kind::Xdp,
        7 => Kind::PerfEvent,
        8 => Kind::CgroupSkb,
        9 => Kind::CgroupSock,
        10..=12 => Kind::Lwt,
        13 => Kind::SockOps,
        14 => Kind::SkSkb,
        16 => Kind::SkMsg,
        17 => Kind::RawTracepoint,
        18 => Kind::CgroupSockAddr,
        21 => Kind::SkReuseport,
        22 => Kind::FlowDissector,
        23 => Kind::CgroupSysctl,
        25 => Kind::CgroupSockopt,
        30 => Kind::SkLookup,
        31 => Kind::Syscall,
        32 => Kind::Netfilter,
        _ => return None,
    })
}

/// A map as warpbpf would see it: types that differ in what they do when full, not in what a
/// program may do with them, count as one.
///
/// # Errors
/// The number, if programs may do other things with it.
pub fn adapted(map: &MapDef) -> Result<MapDef, u32> {
    /// `BPF_MAP_TYPE_{HASH,PERCPU_HASH,LRU_HASH,LRU_PERCPU_HASH,LPM_TRIE}`
    const HASHES: [u32; 5] = [1, 5, 9, 10, 11];
    /// `BPF_MAP_TYPE_ARRAY`, `_PERCPU_ARRAY` and `_RINGBUF` are served as they are.
    const SERVED: [u32; 3] = [2, 6, 27];
    let map_type = if HASHES.contains(&map.map_type) {
        MapType::Hash as u32
    } else if SERVED.contains(&map.map_type) {
        map.map_type
    } else {
        return Err(map.map_type);
    };
    Ok(MapDef {
        map_type,
        ..map.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_name_types() {
        assert_eq!(kind_of("socket"), Ok(Kind::SocketFilter));
        assert_eq!(kind_of("?raw_tp"), Ok(Kind::RawTracepoint));
        assert_eq!(kind_of("tcx/ingress"), Ok(Kind::Sched));
        assert_eq!(kind_of("cgroup/skb"), Ok(Kind::CgroupSkb));
        assert_eq!(kind_of("cgroup/sendmsg_unix"), Ok(Kind::CgroupSockAddr));
        assert_eq!(kind_of("cgroup/post_bind4"), Ok(Kind::CgroupSock));
        assert_eq!(kind_of("lsm.s/bpf"), Err("lsm.s".to_owned()));
        assert_eq!(
            kind_of("raw_tracepoint.w"),
            Err("raw_tracepoint.w".to_owned())
        );
    }

    #[test]
    fn each_type_has_its_helpers() {
        let offers = |kind: Kind, id| kind.platform().helper(id).is_some();
        assert!(offers(Kind::SocketFilter, 1) && offers(Kind::SocketFilter, 26));
        assert!(offers(Kind::SocketFilter, 160) && !offers(Kind::Kprobe, 160));
        assert!(offers(Kind::Tracepoint, 16) && !offers(Kind::Xdp, 26));
    }
}
