//! From a checked program to instructions: what changes maps.

use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_ebpf::{AluOp, AtomicOp, JumpOp, Reg, Source, Width};

use crate::asm::{Label, r};
use crate::emit_expr::Emitter;
use crate::layout::{is_array, offset};
use crate::typed::{Kind, Value};

const ADD: AtomicOp = AtomicOp::Add { fetch: false };

impl Emitter<'_> {
    /// `@m[key] = value`
    pub fn set_map(&mut self, map: usize, key: &[Value], value: &Value) {
        let (lost, end) = (self.asm.label(), self.asm.label());
        let value = self.kept(value);
        let key = self.key(map, key, None);
        if is_array(&self.checked.maps[map]) {
            self.find(map, key, lost);
            self.load_slot(r(1), value);
            self.asm.store(Width::W64, Reg::R0, 0, Source::Reg(r(1)));
            self.asm.goto(end);
        } else {
            self.asm.map(r(1), map);
            self.address(r(2), key);
            self.address(r(3), value);
            self.asm.number(r(4), BPF_ANY as i64);
            self.asm.call(HelperId::MapUpdateElem as u32);
            self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), end);
        }
        self.lose(map, lost, end);
    }

    /// `@m[key] op= value`, in one step.
    pub fn change_map(&mut self, map: usize, key: &[Value], op: AtomicOp, value: &Value) {
        let (lost, end) = (self.asm.label(), self.asm.label());
        let value = self.kept(value);
        let key = self.key(map, key, None);
        self.find(map, key, lost);
        self.load_slot(r(1), value);
        self.asm.atomic(op, Reg::R0, 0, r(1));
        self.asm.goto(end);
        self.lose(map, lost, end);
    }

    /// `@m[key] = sum(value)` and its like.
    pub fn aggregate(&mut self, map: usize, key: &[Value], value: &Value) {
        let (lost, end) = (self.asm.label(), self.asm.label());
        let definition = &self.checked.maps[map];
        let (kind, at) = (definition.kind, offset(definition));
        let kept = match kind {
            Kind::Count => None,
            Kind::Hist => {
                self.value(value);
                self.power_of_two();
                Some(self.stored())
            }
            Kind::Lhist { min, max, step } => {
                self.value(value);
                self.linear(min, max, step);
                Some(self.stored())
            }
            Kind::Min | Kind::Max => {
                self.value(value);
                self.ordered(kind == Kind::Min);
                Some(self.stored())
            }
            Kind::Value(_) | Kind::Sum | Kind::Avg | Kind::Stats => Some(self.kept(value)),
        };
        let bucket = kept.filter(|_| kind.buckets().is_some());
        let key = self.key(map, key, bucket);
        self.find(map, key, lost);
        match (kind, kept) {
            (Kind::Min | Kind::Max, Some(kept)) => {
                if at > 0 {
                    self.asm.number(r(1), 1);
                    self.asm.atomic(ADD, Reg::R0, 0, r(1));
                }
                self.largest(at, kept, lost, end);
            }
            (Kind::Avg | Kind::Stats, Some(kept)) => {
                self.asm.number(r(1), 1);
                self.asm.atomic(ADD, Reg::R0, 0, r(1));
                self.load_slot(r(1), kept);
                self.asm.atomic(ADD, Reg::R0, at, r(1));
            }
            (Kind::Value(_) | Kind::Sum, Some(kept)) => {
                self.load_slot(r(1), kept);
                self.asm.atomic(ADD, Reg::R0, at, r(1));
            }
            _ => {
                self.asm.number(r(1), 1);
                self.asm.atomic(ADD, Reg::R0, at, r(1));
            }
        }
        self.asm.goto(end);
        self.lose(map, lost, end);
    }

    fn stored(&mut self) -> i16 {
        let off = self.block(1);
        self.store_slot(off);
        off
    }

    /// Behind an update: one that found no room is counted.
    fn lose(&mut self, map: usize, lost: Label, end: Label) {
        self.asm.place(lost);
        self.count_lost(map);
        self.asm.place(end);
    }

    /// `r0` as a number without a sign that is the larger, the larger (or smaller) the signed one
    /// is. Zero stands for the smallest one, so a value of zeros is one that was never written.
    fn ordered(&mut self, smallest: bool) {
        self.asm.number(r(1), i64::MIN);
        self.asm.alu(AluOp::Xor, Reg::R0, Source::Reg(r(1)));
        if smallest {
            self.asm.alu(AluOp::Xor, Reg::R0, Source::Imm(-1));
        }
    }

    /// `*(r0 + at)` = the larger one of it and a slot's, by compare and swap. Another lane that was
    /// faster wrote a larger one than before; where that happens more often than the budget allows,
    /// goes to `lost`.
    fn largest(&mut self, at: i16, kept: i16, lost: Label, end: Label) {
        let again = self.asm.label();
        self.asm.copy(r(7), Reg::R0);
        self.load_slot(r(8), kept);
        self.asm.load(Width::W64, false, Reg::R0, r(7), at);
        self.asm.place(again);
        self.asm.jump(JumpOp::Ge, Reg::R0, Source::Reg(r(8)), end);
        self.asm.may_goto(lost);
        self.asm.copy(r(9), Reg::R0);
        self.asm.atomic(AtomicOp::CmpXchg, r(7), at, r(8));
        self.asm.jump(JumpOp::Ne, Reg::R0, Source::Reg(r(9)), again);
    }

    /// `r0` = its bucket: 0 for a negative number, 1 for 0, and 2 more than its logarithm.
    fn power_of_two(&mut self) {
        let (negative, zero, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm
            .jump(JumpOp::SLt, Reg::R0, Source::Imm(0), negative);
        self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), zero);
        self.asm.number(r(1), 2);
        for bits in [32, 16, 8, 4, 2, 1] {
            let small = self.asm.label();
            self.asm.copy(r(2), Reg::R0);
            self.asm.alu(AluOp::Rsh, r(2), Source::Imm(bits));
            self.asm.jump(JumpOp::Eq, r(2), Source::Imm(0), small);
            self.asm.copy(Reg::R0, r(2));
            self.asm.alu(AluOp::Add, r(1), Source::Imm(bits));
            self.asm.place(small);
        }
        self.asm.copy(Reg::R0, r(1));
        self.asm.goto(end);
        self.asm.place(negative);
        self.asm.number(Reg::R0, 0);
        self.asm.goto(end);
        self.asm.place(zero);
        self.asm.number(Reg::R0, 1);
        self.asm.place(end);
    }

    /// `r0` = its bucket: 0 below `min`, then those of `step`, and the last one from `max` on.
    fn linear(&mut self, min: i64, max: i64, step: i64) {
        let (below, above, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.number(r(1), min);
        self.asm
            .jump(JumpOp::SLt, Reg::R0, Source::Reg(r(1)), below);
        self.asm.number(r(2), max);
        self.asm
            .jump(JumpOp::SGe, Reg::R0, Source::Reg(r(2)), above);
        self.asm.alu(AluOp::Sub, Reg::R0, Source::Reg(r(1)));
        self.asm.number(r(1), step);
        self.asm.alu(AluOp::Div, Reg::R0, Source::Reg(r(1)));
        self.asm.alu(AluOp::Add, Reg::R0, Source::Imm(1));
        self.asm.goto(end);
        self.asm.place(below);
        self.asm.number(Reg::R0, 0);
        self.asm.goto(end);
        self.asm.place(above);
        self.asm.number(Reg::R0, (max - min) / step + 1);
        self.asm.place(end);
    }
}
