//! Memory operations of more than one instruction: atomics, calls into the prelude, copies of
//! varying size.

use warpbpf_ebpf::Width;

use super::emitter::{Emit, mem_suffix};
use crate::fragment::Tally;
use crate::ir::{HashOp, Mem, Op, Order, Rmw, Ty, Value};
use crate::print::rmw_name;

impl Emit<'_> {
    pub(super) fn atomic(&mut self, result: Option<Value>, op: &Op) {
        let Op::Atomic {
            op,
            order,
            width,
            addr,
            off,
            value,
            compare,
            guard,
            ..
        } = op
        else {
            return;
        };
        let at = self.address(*addr, (*off).into());
        let operand = self.operand(*value);
        let ty = if *width == Width::W64 {
            Ty::B64
        } else {
            Ty::B32
        };
        let (sign, size) = (if *op == Rmw::Add { 'u' } else { 'b' }, width.bits());
        let guard = guard
            .map(|g| format!("@{} ", self.operand(g)))
            .unwrap_or_default();
        let name = rmw_name(*op);
        let plain =
            matches!(op, Rmw::Add | Rmw::And | Rmw::Or | Rmw::Xor) && *order == Order::Relaxed;
        if result.is_none() && plain {
            self.line(format!(
                "{guard}red.relaxed.gpu.global.{name}.{sign}{size} {at}, {operand};"
            ));
            return;
        }
        let d = match result {
            Some(v) => self.reg(v),
            None => self.temp(ty),
        };
        let order = match order {
            Order::Relaxed => "relaxed",
            Order::AcqRel => "acq_rel",
        };
        let compare = compare
            .map(|c| format!("{}, ", self.operand(c)))
            .unwrap_or_default();
        self.line(format!(
            "{guard}atom.{order}.gpu.global.{name}.{sign}{size} {d}, {at}, {compare}{operand};"
        ));
    }

    pub(super) fn tally(&mut self, tally: Tally, value: Value, guard: Option<Value>) {
        let value = self.operand(value);
        let guard = guard
            .map(|g| format!("@{} ", self.operand(g)))
            .unwrap_or_default();
        let (register, bits) = (tally.register(), tally.bits);
        self.line(format!(
            "{guard}add.u{bits} {register}, {register}, {value};"
        ));
        self.fragment.tallies.insert(tally);
        self.fragment.slots.insert(tally.slot);
    }

    pub(super) fn call(&mut self, name: &str, args: &[Value], result: Option<Value>, op: HashOp) {
        let args: Vec<String> = args.iter().map(|v| self.operand(*v)).collect();
        let d = match (result, op) {
            (Some(v), _) => self.reg(v),
            (None, HashOp::Lookup | HashOp::Update | HashOp::Delete) => self.temp(Ty::B64),
        };
        self.call_function(name, &args, &d);
    }

    pub(super) fn copy_bytes(&mut self, mem: Mem, from: Value, off: i32, to: Value, size: Value) {
        let [source, target, left] = [self.temp(Ty::B64), self.temp(Ty::B64), self.temp(Ty::B64)];
        let (byte, p) = (self.temp(Ty::B32), self.temp(Ty::Pred));
        let (turn, done) = (self.fresh_label("copy"), self.fresh_label("copied"));
        let (from, to, size) = (self.operand(from), self.operand(to), self.operand(size));
        self.line(format!("add.s64 {source}, {from}, {off};"));
        self.line(format!("mov.b64 {target}, {to};"));
        self.line(format!("mov.b64 {left}, {size};"));
        self.label(&turn);
        self.line(format!("setp.eq.s64 {p}, {left}, 0;"));
        self.line(format!("@{p} bra {done};"));
        self.line(format!(
            "ld{}.u8 {byte}, [{source}];",
            mem_suffix(mem, true)
        ));
        self.line(format!("st.global.u8 [{target}], {byte};"));
        self.line(format!("add.s64 {source}, {source}, 1;"));
        self.line(format!("add.s64 {target}, {target}, 1;"));
        self.line(format!("add.s64 {left}, {left}, -1;"));
        self.line(format!("bra {turn};"));
        self.label(&done);
    }
}
