//! Texts: calls of the functions of [`crate::text`].

use super::emitter::{Emit, mem_suffix};
use crate::ir::{Mem, TextOp, Ty, Value};
use crate::text::{text_function, text_name};

impl Emit<'_> {
    pub(super) fn text(&mut self, op: TextOp, mem: Mem, args: &[Value], result: Option<Value>) {
        let suffix = mem_suffix(mem, false);
        let name = self.function(text_name(op, suffix), || text_function(op, suffix));
        let args: Vec<String> = args.iter().map(|v| self.operand(*v)).collect();
        let d = match result {
            Some(v) => self.reg(v),
            None => self.temp(Ty::B64),
        };
        self.call_function(&name, &args, &d);
    }
}
