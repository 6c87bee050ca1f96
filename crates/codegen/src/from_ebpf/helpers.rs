//! Helper calls: each becomes instructions in place, or a call into the prelude.

use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::layout::{env, slot};
use warpbpf_ebpf::{Reg, Width};
use warpbpf_verify::{ArgFact, CallFact, Instance};

use super::Translator;
use super::memory::Spot;
use crate::error::CodegenError;
use crate::ir::{BinOp, Mem, Op, Special, Term, Ty, Value};

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
            HelperId::KtimeGetNs => self.ktime(),
            HelperId::TracePrintk | HelperId::GpuPuts => self.printk(call)?,
            HelperId::GetSmpProcessorId | HelperId::GpuSmId => self.special64(Special::Sm),
            HelperId::GetCurrentPidTgid => {
                let base = self.push(Ty::B64, Op::Slot(slot::ENV));
                self.env_field(Mem::Env, base, env::PID_TGID)
            }
            HelperId::RingbufOutput => self.ring_output(call)?,
            HelperId::RingbufReserve => self.ring_reserve(call)?,
            HelperId::RingbufSubmit => self.ring_commit(call, false)?,
            HelperId::RingbufDiscard => self.ring_commit(call, true)?,
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
            HelperId::ForEachMapElem => self.for_each_map_elem(instance, call)?,
            HelperId::Loop => self.bpf_loop(instance)?,
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

    /// The host's clock: the current time record maps %globaltimer to CLOCK_MONOTONIC (`abi::layout::env`).
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
            ArgFact::Unused | ArgFact::Map(_) | ArgFact::Scalar { .. } | ArgFact::Callback => {
                self.missing("a pointer argument")
            }
        }
    }

    pub(super) fn map_arg(&self, call: &CallFact) -> Result<u32, CodegenError> {
        match call.map {
            Some(map) => Ok(map),
            None => self.missing("the map of the call"),
        }
    }
}
