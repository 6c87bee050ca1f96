//! Calls of helpers and of kernel functions: written out, but for the functions of the prelude.

use warpbpf_abi::helpers::{self, HelperId};
use warpbpf_abi::kfuncs::{KfuncId, MAX_LOOPS};
use warpbpf_abi::layout::{ArrayLayout, MapLayout, env};
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL};
use warpbpf_ebpf::{AluOp, JumpOp, Width};
use warpbpf_verify::{CallFact, INNER};

use super::super::area::{
    KEY_AT, KEY_BYTES, LOOP_CONTEXT, LOOP_NUMBER, LOOPS, VALUE_AT, VALUE_BYTES,
};
use super::super::error::NotInterpreted;
use super::super::form::Imm;
use super::super::function::table;
use super::super::ops::{DeviceOp, Reg16};
use super::translator::{Frame, Label, R0, Translator, reg};
use crate::ir::HashOp;
use crate::stack::{key_size, value_size};

/// The helpers that can be called.
const HELPERS: [HelperId; 11] = [
    HelperId::MapLookupElem,
    HelperId::MapUpdateElem,
    HelperId::MapDeleteElem,
    HelperId::Loop,
    HelperId::KtimeGetNs,
    HelperId::GpuMembar,
    HelperId::GpuLaneId,
    HelperId::GpuBlockIdx,
    HelperId::GpuBlockDim,
    HelperId::GpuThreadIdx,
    HelperId::GpuGridDim,
];

fn names() -> String {
    let names = HELPERS.map(|helper| format!("`bpf_{}`", helpers::of(helper).name));
    names.join(", ")
}

impl<'a> Translator<'a, '_> {
    pub(super) fn helper(
        &mut self,
        frame: Frame<'a>,
        call: &CallFact,
    ) -> Result<(), NotInterpreted> {
        match call.helper {
            HelperId::MapLookupElem => self.map_helper(HashOp::Lookup, call),
            HelperId::MapUpdateElem => self.map_helper(HashOp::Update, call),
            HelperId::MapDeleteElem => self.map_helper(HashOp::Delete, call),
            HelperId::Loop => self.bpf_loop(frame),
            HelperId::KtimeGetNs => self.ktime(),
            HelperId::GpuMembar => {
                self.emit(DeviceOp::Fence, [R0; 3], 0, Imm::Value(0))?;
                self.set(R0, Imm::Value(0))
            }
            HelperId::GpuLaneId => self.special("%laneid", R0),
            HelperId::GpuBlockIdx => self.three(["%ctaid.x", "%ctaid.y", "%ctaid.z"]),
            HelperId::GpuBlockDim => self.three(["%ntid.x", "%ntid.y", "%ntid.z"]),
            HelperId::GpuThreadIdx => self.three(["%tid.x", "%tid.y", "%tid.z"]),
            HelperId::GpuGridDim => self.three(["%nctaid.x", "%nctaid.y", "%nctaid.z"]),
            other => Err(NotInterpreted::Helper {
                pc: self.pc,
                helper: helpers::of(other).name,
                there: names(),
            }),
        }
    }

    fn special(&mut self, name: &'static str, to: Reg16) -> Result<(), NotInterpreted> {
        self.emit(DeviceOp::Special(name), [R0, R0, to], 0, Imm::Value(0))
    }

    /// Writes three numbers where the first three arguments point.
    fn three(&mut self, names: [&'static str; 3]) -> Result<(), NotInterpreted> {
        for (argument, name) in (1..).zip(names) {
            self.special(name, Reg16::A)?;
            self.store(Width::W64, reg(argument), 0, Reg16::A, 0)?;
        }
        self.set(R0, Imm::Value(0))
    }

    fn map_helper(&mut self, op: HashOp, call: &CallFact) -> Result<(), NotInterpreted> {
        let refused = |map: u32| NotInterpreted::Map {
            pc: self.pc,
            helper: helpers::of(call.helper).name,
            map: map & !INNER,
        };
        let Some(map) = call.map else {
            return self.missing("the map of a call");
        };
        if map & INNER != 0 {
            return Err(refused(map));
        }
        let binding = self.binding(map)?;
        let is_table = table(&binding.layout).is_some();
        let is_array = matches!(binding.layout, MapLayout::Array(_));
        if binding.inner.is_some() || !(is_table || is_array) {
            return Err(refused(map));
        }
        let (key, value) = (key_size(&binding.layout), value_size(&binding.layout));
        if key > u64::from(KEY_BYTES) || value > u64::from(VALUE_BYTES) {
            return Err(refused(map));
        }
        let is_update = op == HashOp::Update;
        self.bring(reg(2), KEY_AT, key)?;
        if is_update {
            self.bring(reg(3), VALUE_AT, value)?;
        }
        if let Some(table) = table(&binding.layout) {
            self.set(reg(1), Imm::Map(map, 0))?;
            return self.emit(DeviceOp::Hash(op, table), [R0; 3], 0, Imm::Value(0));
        }
        let MapLayout::Array(layout) = binding.layout else {
            return self.missing("an array");
        };
        match op {
            HashOp::Lookup => {
                let none = self.label();
                self.set(R0, Imm::Value(0))?;
                self.array_value(map, &layout, Reg16::B, none)?;
                self.copy(R0, Reg16::B)?;
                self.place(none);
                Ok(())
            }
            HashOp::Update => self.array_update(map, &layout),
            HashOp::Delete => self.set(R0, Imm::Value(EINVAL as u64)),
        }
    }

    /// Copies what an argument points to into the own memory, in whole words.
    fn bring(&mut self, from: Reg16, to: u32, bytes: u64) -> Result<(), NotInterpreted> {
        if !bytes.is_multiple_of(8) {
            let last = to + (bytes as u32 / 8) * 8;
            self.store(Width::W64, Reg16::AREA, last as i32, Reg16::IMM, 0)?;
        }
        self.emit(DeviceOp::Copy, [R0, from, R0], to as i32, Imm::Value(bytes))
    }

    /// Address of the value whose key was brought; goes to `outside` if there is none.
    fn array_value(
        &mut self,
        map: u32,
        layout: &ArrayLayout,
        to: Reg16,
        outside: Label,
    ) -> Result<(), NotInterpreted> {
        let key = Reg16::A;
        self.load(Width::W32, false, key, Reg16::AREA, KEY_AT as i32)?;
        self.jump_imm(JumpOp::Ge, key, layout.max_entries.into(), outside)?;
        self.alu_imm(AluOp::Mul, key, layout.value_stride())?;
        self.set(to, Imm::Map(map, 0))?;
        self.alu(true, AluOp::Add, to, key)?;
        if layout.shards > 1 {
            let (sm, known) = (Reg16::A, self.label());
            let last = u64::from(layout.shards - 1);
            self.special("%smid", sm)?;
            self.jump_imm(JumpOp::Le, sm, last, known)?;
            self.set(sm, Imm::Value(last))?;
            self.place(known);
            self.alu_imm(AluOp::Mul, sm, layout.shard_stride())?;
            self.alu(true, AluOp::Add, to, sm)?;
        }
        Ok(())
    }

    /// `bpf_map_update_elem` on a value that always exists, with the checks in Linux' order.
    fn array_update(&mut self, map: u32, layout: &ArrayLayout) -> Result<(), NotInterpreted> {
        let (flags, at) = (reg(4), Reg16::B);
        let done = self.label();
        self.set(R0, Imm::Value(EINVAL as u64))?;
        self.jump_imm(JumpOp::Gt, flags, BPF_EXIST, done)?;
        self.set(R0, Imm::Value(E2BIG as u64))?;
        self.array_value(map, layout, at, done)?;
        self.set(R0, Imm::Value(EEXIST as u64))?;
        self.jump_imm(JumpOp::Eq, flags, BPF_NOEXIST, done)?;
        for word in (0..layout.value_stride() as i32).step_by(8) {
            let from = VALUE_AT as i32 + word;
            self.load(Width::W64, false, Reg16::A, Reg16::AREA, from)?;
            self.store(Width::W64, at, word, Reg16::A, 0)?;
        }
        self.set(R0, Imm::Value(0))?;
        self.place(done);
        Ok(())
    }

    /// The device's clock, moved onto CLOCK_MONOTONIC.
    fn ktime(&mut self) -> Result<(), NotInterpreted> {
        let (record, host, elapsed) = (Reg16::A, Reg16::B, Reg16::C);
        let field = |at: u64| (env::TIME + at) as i32;
        self.set(host, Imm::Env)?;
        self.load(Width::W64, false, record, host, env::TIME_INDEX as i32)?;
        self.alu_imm(AluOp::And, record, 1)?;
        self.alu_imm(AluOp::Mul, record, env::TIME_STRIDE)?;
        self.alu(true, AluOp::Add, record, host)?;
        self.load(Width::W64, false, R0, record, field(env::TIME_BASE_DEVICE))?;
        self.emit(DeviceOp::Timer, [R0, R0, elapsed], 0, Imm::Value(0))?;
        self.alu(true, AluOp::Sub, elapsed, R0)?;
        self.load(Width::W64, false, R0, record, field(env::TIME_DRIFT))?;
        self.alu(true, AluOp::Mul, R0, elapsed)?;
        self.alu_imm(AluOp::Arsh, R0, 32)?;
        self.alu(true, AluOp::Add, R0, elapsed)?;
        self.load(Width::W64, false, host, record, field(env::TIME_BASE_HOST))?;
        self.alu(true, AluOp::Add, R0, host)
    }

    /// A step of a number iterator, whose 8 bytes `r1` points to: the current number and the end,
    /// as in compiled code.
    pub(super) fn iterator(&mut self, kfunc: KfuncId) -> Result<(), NotInterpreted> {
        let (it, current, end) = (reg(1), Reg16::A, Reg16::B);
        let (other, done) = (self.label(), self.label());
        match kfunc {
            KfuncId::IterNumNew => {
                self.copy(current, reg(2))?;
                self.copy(end, reg(3))?;
                self.set(R0, Imm::Value(EINVAL as u64))?;
                self.jump(false, JumpOp::SGt, current, end, 0, other)?;
                let length = Reg16::C;
                self.copy(length, end)?;
                self.alu(false, AluOp::Sub, length, current)?;
                self.set(R0, Imm::Value(E2BIG as u64))?;
                self.jump_imm(JumpOp::Gt, length, MAX_LOOPS.into(), other)?;
                self.set(R0, Imm::Value(0))?;
                // The first `next` adds one.
                self.alu_imm(AluOp::Sub, current, 1)?;
                self.store(Width::W32, it, 0, current, 0)?;
                self.store(Width::W32, it, 4, end, 0)?;
                self.goto(done)?;
                self.place(other);
                self.store(Width::W64, it, 0, Reg16::IMM, 0)?;
            }
            KfuncId::IterNumNext => {
                self.load(Width::W32, false, current, it, 0)?;
                self.load(Width::W32, false, end, it, 4)?;
                self.alu_imm(AluOp::Add, current, 1)?;
                self.copy(R0, it)?;
                self.jump(false, JumpOp::SLt, current, end, 0, other)?;
                self.store(Width::W64, it, 0, Reg16::IMM, 0)?;
                self.set(R0, Imm::Value(0))?;
                self.goto(done)?;
                self.place(other);
                self.store(Width::W32, it, 0, current, 0)?;
            }
            KfuncId::IterNumDestroy => {
                self.store(Width::W64, it, 0, Reg16::IMM, 0)?;
                self.set(R0, Imm::Value(0))?;
                self.place(other);
            }
        }
        self.place(done);
        Ok(())
    }

    /// With the checks in Linux' order.
    fn bpf_loop(&mut self, frame: Frame<'a>) -> Result<(), NotInterpreted> {
        let kept = |at: u32| frame.kept(at);
        let (out, head, done) = (self.label(), self.label(), self.label());
        self.set(R0, Imm::Value(EINVAL as u64))?;
        self.jump_imm(JumpOp::Ne, reg(4), 0, out)?;
        self.set(R0, Imm::Value(E2BIG as u64))?;
        // `u32 nr_loops`: the upper half is not part of it.
        self.alu(false, AluOp::Mov, reg(1), reg(1))?;
        self.jump_imm(JumpOp::Gt, reg(1), MAX_LOOPS.into(), out)?;
        self.store(Width::W64, Reg16::AREA, kept(LOOPS), reg(1), 0)?;
        self.store(Width::W64, Reg16::AREA, kept(LOOP_CONTEXT), reg(3), 0)?;
        self.store(Width::W64, Reg16::AREA, kept(LOOP_NUMBER), Reg16::IMM, 0)?;
        self.place(head);
        self.load(Width::W64, false, reg(1), Reg16::AREA, kept(LOOP_NUMBER))?;
        self.load(Width::W64, false, Reg16::A, Reg16::AREA, kept(LOOPS))?;
        self.jump(true, JumpOp::Ge, reg(1), Reg16::A, 0, done)?;
        self.load(Width::W64, false, reg(2), Reg16::AREA, kept(LOOP_CONTEXT))?;
        self.copy(Reg16::A, reg(1))?;
        self.alu_imm(AluOp::Add, Reg16::A, 1)?;
        self.store(Width::W64, Reg16::AREA, kept(LOOP_NUMBER), Reg16::A, 0)?;
        self.call(frame)?;
        self.jump_imm(JumpOp::Eq, R0, 0, head)?;
        self.place(done);
        self.load(Width::W64, false, R0, Reg16::AREA, kept(LOOP_NUMBER))?;
        self.place(out);
        Ok(())
    }
}
