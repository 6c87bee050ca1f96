//! Which register an instruction gives a value.

use warpbpf_ebpf::{AtomicOp, Insn, Reg};

/// The register that an instruction gives a value. A call gives one to `r0`; that it leaves none in
/// `r1` to `r5` is for whoever asks what is gone.
pub fn defines(insn: Insn) -> Option<Reg> {
    match insn {
        Insn::Alu { dst, .. }
        | Insn::MovSx { dst, .. }
        | Insn::Neg { dst, .. }
        | Insn::End { dst, .. }
        | Insn::LoadImm64 { dst, .. }
        | Insn::Load { dst, .. }
        | Insn::LoadAcquire { dst, .. } => Some(dst),
        Insn::Atomic { op, src, .. } => fetched(op, src),
        Insn::Call { .. } | Insn::CallReg { .. } => Some(Reg::R0),
        Insn::Store { .. }
        | Insn::StoreRelease { .. }
        | Insn::Jump { .. }
        | Insn::Goto { .. }
        | Insn::MayGoto { .. }
        | Insn::Exit
        | Insn::LegacyPacket { .. } => None,
    }
}

/// Where an atomic operation puts the old value.
pub fn fetched(op: AtomicOp, src: Reg) -> Option<Reg> {
    match op {
        AtomicOp::CmpXchg => Some(Reg::R0),
        AtomicOp::Xchg => Some(src),
        AtomicOp::Add { fetch }
        | AtomicOp::Or { fetch }
        | AtomicOp::And { fetch }
        | AtomicOp::Xor { fetch } => fetch.then_some(src),
    }
}
