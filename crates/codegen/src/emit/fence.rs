//! Reads of the application's memory: calls of the functions of [`crate::fence`], and the copy of
//! many bytes.

use warpbpf_ebpf::Width;

use super::emitter::{Emit, mem_suffix};
use crate::fence::{fence_function, fence_name};
use crate::ir::{FenceOp, Mem, Ty, Value};

impl Emit<'_> {
    pub(super) fn fence(&mut self, op: FenceOp, args: &[Value], result: Option<Value>) {
        let target = self.env.target;
        if let Some(name) = fence_name(op, target) {
            let name = self.function(name.to_owned(), || fence_function(op, target));
            self.fence_call(&name, op, args, result);
            return;
        }
        if let (FenceOp::Prefetch, &[at]) = (op, args) {
            let (at, p) = (self.operand(at), self.temp(Ty::Pred));
            self.line(format!("setp.ne.s64 {p}, {at}, 0;"));
            self.line(format!("@{p} prefetch.global.L2 [{at}];"));
        }
        if let (FenceOp::Copy { mem, off }, &[from, to, size]) = (op, args) {
            self.copy_application(mem, from, to, off, size);
        }
    }

    fn fence_call(&mut self, name: &str, op: FenceOp, args: &[Value], result: Option<Value>) {
        let mut args: Vec<String> = args.iter().map(|v| self.operand(*v)).collect();
        if let (FenceOp::Word { off, bytes }, Some(from)) = (op, args.first_mut()) {
            if off > 0 {
                // Of what is not there, nothing is at an offset either.
                let (at, p) = (self.temp(Ty::B64), self.temp(Ty::Pred));
                self.line(format!("setp.eq.s64 {p}, {from}, 0;"));
                self.line(format!("add.s64 {at}, {from}, {off};"));
                self.line(format!("selp.b64 {at}, 0, {at}, {p};"));
                *from = at;
            }
            args.push(bytes.to_string());
        }
        let d = match result {
            Some(v) => self.reg(v),
            None => self.temp(Ty::B64),
        };
        self.call_function(name, &args, &d);
    }

    /// `size` bytes from `from`, zeroes if that is 0.
    fn copy_application(&mut self, mem: Mem, from: Value, to: Value, off: i32, size: Value) {
        let [source, target, left] = [self.temp(Ty::B64), self.temp(Ty::B64), self.temp(Ty::B64)];
        let (byte, p, there) = (self.temp(Ty::B32), self.temp(Ty::Pred), self.temp(Ty::Pred));
        let (turn, done) = (self.fresh_label("read"), self.fresh_label("was_read"));
        let (from, to, size) = (self.operand(from), self.operand(to), self.operand(size));
        let suffix = mem_suffix(mem, false);
        self.line(format!("mov.b64 {source}, {from};"));
        self.line(format!("add.s64 {target}, {to}, {off};"));
        self.line(format!("mov.b64 {left}, {size};"));
        self.line(format!("setp.ne.s64 {there}, {source}, 0;"));
        self.label(&turn);
        self.line(format!("setp.eq.s64 {p}, {left}, 0;"));
        self.line(format!("@{p} bra {done};"));
        self.line(format!("mov.b32 {byte}, 0;"));
        self.line(format!("@{there} ld.volatile.u8 {byte}, [{source}];"));
        self.line(format!(
            "st{suffix}.u{} [{target}], {byte};",
            Width::W8.bits()
        ));
        self.line(format!("add.s64 {source}, {source}, 1;"));
        self.line(format!("add.s64 {target}, {target}, 1;"));
        self.line(format!("add.s64 {left}, {left}, -1;"));
        self.line(format!("bra {turn};"));
        self.label(&done);
    }
}
