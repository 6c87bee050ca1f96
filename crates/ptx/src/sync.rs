//! What an instruction waits for: which operands hold a barrier's number, thread count or address.
//! PTX ISA "Parallel Synchronization and Communication Instructions" and the waits of "Asynchronous
//! Copy", of `wgmma` and of `tcgen05`.

use warpbpf_abi::access::{Barrier, Space};

use crate::access::{is_address, space};
use crate::ast::Instruction;

/// A barrier instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierSite {
    /// What it does.
    pub kind: Barrier,
    /// Index of the operand with the number of the block's barrier, 0 to 15.
    pub id: Option<usize>,
    /// Index of the operand with the number of threads that take part. `None`: all of the block.
    pub threads: Option<usize>,
    /// Index of the operand with an mbarrier's address, and its space.
    pub address: Option<(usize, Space)>,
}

/// The barrier that an instruction is, `None` for all others: fences order but do not wait, votes
/// and shuffles exchange, `mbarrier.init` only writes.
///
/// # Examples
/// ```
/// use warpbpf_abi::access::Barrier;
/// use warpbpf_ptx::{ast::StatementKind, sync::barrier};
/// let text = ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() { barrier.sync 1, 64; }";
/// let module = warpbpf_ptx::index(text).unwrap();
/// let body = warpbpf_ptx::parse_body(&module, &module.functions[0]).unwrap();
/// let StatementKind::Instruction(sync) = &body[0].kind else { panic!() };
/// let site = barrier(sync).unwrap();
/// assert_eq!((site.kind, site.id, site.threads), (Barrier::Sync, Some(0), Some(1)));
/// ```
pub fn barrier(instruction: &Instruction<'_>) -> Option<BarrierSite> {
    let i = instruction;
    let words = match i.modifiers.as_slice() {
        // `.cta` is what both mean without it.
        ["cta", rest @ ..] if matches!(i.opcode, "bar" | "barrier") => rest,
        words => words,
    };
    let site = match (i.opcode, words) {
        ("bar", ["warp", "sync", ..]) => plain(Barrier::Warp),
        ("barrier", ["cluster", "arrive", ..]) => plain(Barrier::ClusterArrive),
        ("barrier", ["cluster", "wait", ..]) => plain(Barrier::ClusterWait),
        // `a{, b}`
        ("bar" | "barrier", ["sync", ..]) => block(i, Barrier::Sync, 0, i.operands.len() > 1),
        ("bar" | "barrier", ["arrive", ..]) => block(i, Barrier::Arrive, 0, i.operands.len() > 1),
        // `d, a{, b}, c`
        ("bar" | "barrier", ["red", ..]) => block(i, Barrier::Sync, 1, i.operands.len() > 3),
        ("mbarrier", ["arrive" | "arrive_drop" | "expect_tx" | "complete_tx", ..])
        | ("cp", ["async", "mbarrier", "arrive", ..])
        | ("tcgen05", ["commit", ..]) => shared(i, Barrier::MbarrierArrive),
        ("mbarrier", ["test_wait" | "try_wait", ..]) => shared(i, Barrier::MbarrierWait),
        ("cp", ["async", "wait_group" | "wait_all", ..])
        | ("cp", ["async", "bulk", "wait_group", ..])
        | ("wgmma", ["wait_group", ..])
        | ("tcgen05", ["wait::ld" | "wait::st", ..]) => plain(Barrier::GroupWait),
        _ => return None,
    };
    Some(site)
}

fn plain(kind: Barrier) -> BarrierSite {
    BarrierSite {
        kind,
        id: None,
        threads: None,
        address: None,
    }
}

fn block(i: &Instruction<'_>, kind: Barrier, id: usize, threads: bool) -> BarrierSite {
    BarrierSite {
        id: (id < i.operands.len()).then_some(id),
        threads: threads.then_some(id + 1),
        ..plain(kind)
    }
}

fn shared(i: &Instruction<'_>, kind: Barrier) -> BarrierSite {
    let address = i.operands.iter().position(is_address);
    BarrierSite {
        address: address.map(|at| (at, space(i, 0))),
        ..plain(kind)
    }
}
