//! Helper calls: each becomes instructions in place, or a call into the prelude.

use warpbpf_abi::context::Capture;
use warpbpf_abi::costs::WRITTEN_OUT_BYTES;
use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::layout::{env, slot};
use warpbpf_ebpf::{Reg, Width};
use warpbpf_verify::{ArgFact, CallFact, Instance};

use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, LaneOp, Mem, Op, QueueOp, Special, Term, Ty, Value};

/// Lanes of a warp.
pub(super) const LANES: u64 = 32;
/// Sectors of global memory, the parts that are moved, have `1 << SECTOR_SHIFT` bytes (CUDA C++
/// Programming Guide, "Global Memory").
const SECTOR_SHIFT: u64 = 5;
/// Banks of shared memory are of words of `1 << WORD_SHIFT` bytes.
const WORD_SHIFT: u64 = 2;

impl<'a> Translator<'a> {
    /// Translates a call. True if it does not return.
    pub(super) fn helper(
        &mut self,
        instance: &'a Instance,
        call: &CallFact,
    ) -> Result<bool, CodegenError> {
        let result = match call.helper {
            HelperId::MapLookupElem => self.map_lookup(call)?,
            HelperId::MapUpdateElem => self.map_update(call)?,
            HelperId::MapDeleteElem => self.map_delete(call)?,
            HelperId::MapPushElem => self.map_push(call)?,
            HelperId::MapPopElem => self.map_next(call, QueueOp::Pop)?,
            HelperId::MapPeekElem => self.map_next(call, QueueOp::Peek)?,
            HelperId::PerfEventOutput => self.perf_output(call)?,
            HelperId::MapLookupPercpuElem => self.map_lookup_percpu(call)?,
            HelperId::KtimeGetNs | HelperId::KtimeGetCoarseNs => self.ktime(),
            HelperId::KtimeGetBootNs => self.ktime_ahead(env::BOOT_OFFSET),
            HelperId::KtimeGetTaiNs => self.ktime_ahead(env::TAI_OFFSET),
            HelperId::GetPrandomU32 => self.prandom(),
            HelperId::TracePrintk | HelperId::TraceVprintk | HelperId::GpuPuts => {
                self.printk(call)?
            }
            HelperId::GetSmpProcessorId | HelperId::GpuSmId => self.special64(Special::Sm),
            HelperId::GetCurrentPidTgid => self.constant_of_env(env::PID_TGID),
            HelperId::GetCurrentUidGid => self.constant_of_env(env::UID_GID),
            HelperId::GetCurrentComm => self.comm(call)?,
            HelperId::GpuSmCount => self.constant_of_env(env::SM_COUNT),
            HelperId::GetNumaNodeId => self.constant(0),
            HelperId::GpuWarpSize => self.constant(LANES),
            HelperId::RingbufOutput => self.ring_output(call)?,
            HelperId::RingbufReserve => self.ring_reserve(call)?,
            HelperId::RingbufSubmit => self.ring_commit(call, false)?,
            HelperId::RingbufDiscard => self.ring_commit(call, true)?,
            HelperId::RingbufQuery => self.ring_query(call)?,
            HelperId::GpuGlobaltimer => self.push(Ty::B64, Op::Timer),
            HelperId::GpuBlockIdx => self.three(call, Special::Ctaid)?,
            HelperId::GpuBlockDim => self.three(call, Special::Ntid)?,
            HelperId::GpuThreadIdx => self.three(call, Special::Tid)?,
            HelperId::GpuGridDim => self.three(call, Special::Nctaid)?,
            HelperId::GpuMembar => {
                self.push_effect(Op::Membar);
                self.constant(0)
            }
            HelperId::GpuExit => {
                self.end(Term::Exit);
                return Ok(true);
            }
            HelperId::GpuWarpId => self.special64(Special::WarpSlot),
            HelperId::GpuLaneId => self.special64(Special::Lane),
            HelperId::GpuClock => self.push(Ty::B64, Op::Clock),
            HelperId::GpuKernelId => self.kernel_id(),
            HelperId::GpuGridId => self.special64(Special::GridId),
            HelperId::GpuGraphNode => self.special64(Special::Captured(Capture::Node)),
            HelperId::GpuThreadId => self.thread_in_grid(),
            HelperId::GpuBlockId => self.block_in_grid(),
            HelperId::GpuClusterRank if !self.has_clusters() => self.constant(0),
            HelperId::GpuClusterRank => self.special64(Special::ClusterRank),
            HelperId::GpuClusterIdx if !self.has_clusters() => self.three(call, Special::Ctaid)?,
            HelperId::GpuClusterIdx => self.three(call, Special::ClusterIdx)?,
            HelperId::GpuClusterCount if !self.has_clusters() => {
                self.three(call, Special::Nctaid)?
            }
            HelperId::GpuClusterCount => self.three(call, Special::ClusterCount)?,
            HelperId::GpuClusterBlock if !self.has_clusters() => self.three_alike(call, 0)?,
            HelperId::GpuClusterBlock => self.three(call, Special::ClusterBlock)?,
            HelperId::GpuClusterDim if !self.has_clusters() => self.three_alike(call, 1)?,
            HelperId::GpuClusterDim => self.three(call, Special::ClusterDim)?,
            HelperId::GpuActiveMask => self.active_mask(),
            HelperId::GpuWarpLanes => self.group_lanes(),
            HelperId::GpuWarpRank => self.group_rank(),
            HelperId::GpuWarpLeader => self.group_leader(),
            HelperId::GpuWarpBallot => self.lanes(LaneOp::Ballot),
            HelperId::GpuWarpMatch => self.lanes(LaneOp::Match),
            HelperId::GpuWarpFirst => self.lanes(LaneOp::First),
            HelperId::GpuWarpSum => self.lanes(LaneOp::Sum),
            HelperId::GpuWarpMin => self.lanes(LaneOp::Min),
            HelperId::GpuWarpMax => self.lanes(LaneOp::Max),
            HelperId::GpuWarpAnd => self.lanes(LaneOp::And),
            HelperId::GpuWarpOr => self.lanes(LaneOp::Or),
            HelperId::GpuWarpSectors => self.touched(LaneOp::Distinct, SECTOR_SHIFT),
            HelperId::GpuWarpConflicts => self.touched(LaneOp::Crowded, WORD_SHIFT),
            HelperId::GpuBlockSum => self.of_block(call, LaneOp::Sum)?,
            HelperId::GpuBlockMin => self.of_block(call, LaneOp::Min)?,
            HelperId::GpuBlockMax => self.of_block(call, LaneOp::Max)?,
            HelperId::GpuBlockAnd => self.of_block(call, LaneOp::And)?,
            HelperId::GpuBlockOr => self.of_block(call, LaneOp::Or)?,
            HelperId::GpuPrefetchL2 => self.prefetch(),
            HelperId::Snprintf => self.snprintf(call)?,
            HelperId::Strncmp => self.strncmp(call)?,
            HelperId::ProbeReadStr | HelperId::ProbeReadUserStr | HelperId::ProbeReadKernelStr => {
                self.application_string(call)?
            }
            HelperId::ForEachMapElem => self.for_each_map_elem(instance, call)?,
            HelperId::Loop => self.bpf_loop(instance)?,
            HelperId::UserRingbufDrain => self.user_ring_drain(instance, call)?,
            HelperId::DynptrRead => self.dynptr_read(call)?,
            HelperId::DynptrWrite => self.dynptr_write(call)?,
            HelperId::DynptrData => self.dynptr_data(call)?,
            HelperId::DynptrFromMem => self.dynptr_from_mem(call)?,
            HelperId::RingbufReserveDynptr => self.ring_reserve_dynptr(call)?,
            HelperId::RingbufSubmitDynptr => self.ring_commit_dynptr(call, false)?,
            HelperId::RingbufDiscardDynptr => self.ring_commit_dynptr(call, true)?,
            HelperId::ProbeRead
            | HelperId::ProbeReadUser
            | HelperId::ProbeReadKernel
            | HelperId::GpuRead => self.application_read(call)?,
            HelperId::Foreign => {
                return self.unsupported("call of a helper of another environment");
            }
        };
        self.set_reg(Reg::R0, result);
        Ok(false)
    }

    pub(super) fn env_field(&mut self, mem: Mem, base: Value, at: u64) -> Value {
        let off = at as i32;
        self.push(
            Ty::B64,
            Op::Load {
                mem,
                width: Width::W64,
                signed: false,
                addr: base,
                off,
            },
        )
    }

    /// The host's clock: the current time record maps %globaltimer to CLOCK_MONOTONIC
    /// (`abi::layout::env`).
    fn ktime(&mut self) -> Value {
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        let index = self.env_field(Mem::Clock, base, env::TIME_INDEX);
        let index = self.bin_const(BinOp::And, index, 1);
        let skip = self.bin_const(BinOp::Mul, index, env::TIME_STRIDE);
        let record = self.bin(BinOp::Add, base, skip);
        let device = self.env_field(Mem::Clock, record, env::TIME + env::TIME_BASE_DEVICE);
        let host = self.env_field(Mem::Clock, record, env::TIME + env::TIME_BASE_HOST);
        let drift = self.env_field(Mem::Clock, record, env::TIME + env::TIME_DRIFT);
        let now = self.push(Ty::B64, Op::Timer);
        let elapsed = self.bin(BinOp::Sub, now, device);
        let correction = self.bin(BinOp::Mul, elapsed, drift);
        let correction = self.bin_const(BinOp::Sar, correction, 32);
        let time = self.bin(BinOp::Add, host, elapsed);
        self.bin(BinOp::Add, time, correction)
    }

    /// A clock that is ahead of CLOCK_MONOTONIC by a field of the environment.
    fn ktime_ahead(&mut self, offset: u64) -> Value {
        let time = self.ktime();
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        let ahead = self.env_field(Mem::Clock, base, offset);
        self.bin(BinOp::Add, time, ahead)
    }

    /// A field of the environment that never changes.
    fn constant_of_env(&mut self, at: u64) -> Value {
        let base = self.push(Ty::B64, Op::Slot(slot::ENV));
        self.env_field(Mem::Env, base, at)
    }

    /// The finaliser of SplitMix64 over what tells calls apart: the thread, the launch, and the
    /// cycle on this multiprocessor.
    fn prandom(&mut self) -> Value {
        let clock = self.push(Ty::B64, Op::Clock);
        let timer = self.push(Ty::B64, Op::Timer);
        let thread = self.thread_in_grid();
        let grid = self.special64(Special::GridId);
        let mut x = self.bin_const(BinOp::Mul, thread, 0xd134_2543_de82_ef95);
        let grid = self.bin_const(BinOp::Mul, grid, 0xaf25_1af3_b0f0_25b5);
        for part in [grid, timer] {
            x = self.bin(BinOp::Add, x, part);
        }
        let clock = self.bin_const(BinOp::Mul, clock, 0x9e37_79b9_7f4a_7c15);
        x = self.bin(BinOp::Xor, x, clock);
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            let high = self.bin_const(BinOp::Shr, x, shift);
            x = self.bin(BinOp::Xor, x, high);
            x = self.bin_const(BinOp::Mul, x, factor);
        }
        self.bin_const(BinOp::Shr, x, 32)
    }

    /// At most 15 characters, a NUL, zeroes.
    fn comm(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let to = self.pointer_arg(call, 0)?;
        let ArgFact::Scalar {
            value: Some(size), ..
        } = call.args[1]
        else {
            return self.missing("a constant size");
        };
        // Behind the name there are only zeros.
        let long = size > WRITTEN_OUT_BYTES;
        let named = if long { env::COMM_BYTES } else { size };
        let mut words = Vec::new();
        for at in (0..named).step_by(8) {
            // What of the name fits in front of the NUL.
            let kept = (size - 1)
                .min(env::COMM_BYTES - 1)
                .saturating_sub(at)
                .min(8);
            words.push(match kept {
                0 => self.constant(0),
                _ => {
                    let word = self.constant_of_env(env::COMM + at);
                    self.bin_const(BinOp::And, word, u64::MAX >> (64 - 8 * kept))
                }
            });
        }
        self.store_words(to, named, &words)?;
        if long {
            let behind = self.further(to, named);
            self.zero_long(behind, size - named)?;
        }
        Ok(self.constant(0))
    }

    /// Writes a constant through `r1` to `r3`.
    fn three_alike(&mut self, call: &CallFact, value: u64) -> Result<Value, CodegenError> {
        for i in 0..3 {
            let spot = self.pointer_arg(call, i)?;
            let value = self.constant(value);
            self.store(spot, Width::W64, value, false)?;
        }
        Ok(self.constant(0))
    }

    /// Writes the three components of a special register through `r1` to `r3`.
    fn three(
        &mut self,
        call: &CallFact,
        special: fn(u8) -> Special,
    ) -> Result<Value, CodegenError> {
        for i in 0..3 {
            let spot = self.pointer_arg(call, i as usize)?;
            let value = self.special64(special(i));
            self.store(spot, Width::W64, value, false)?;
        }
        Ok(self.constant(0))
    }

    /// Register of argument `i`, 0 to 4.
    pub(super) fn arg(&self, i: usize) -> Value {
        self.state.regs[i + 1]
    }

    pub(super) fn pointer_arg(&self, call: &CallFact, i: usize) -> Result<Spot, CodegenError> {
        match call.args[i] {
            ArgFact::Pointer(place) => Ok(Spot {
                place,
                pointer: self.arg(i),
                off: 0,
            }),
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Scalar { .. }
            | ArgFact::Callback
            | ArgFact::Sample => self.missing("a pointer argument"),
        }
    }

    pub(super) fn map_arg(&self, call: &CallFact) -> Result<u32, CodegenError> {
        match call.map {
            Some(map) => Ok(map),
            None => self.missing("the map of the call"),
        }
    }
}
