//! `st.async` and `red.async`.

use warpbpf_ptx::ast::Instruction;
use warpbpf_ptx::eval::Ty;

use super::decoder::{Decoded, FunctionDecoder, bits_of, invalid, unsupported};
use super::memory::{atomic_op, atomic_type, is_hint, lanes_of};
use super::operand::operand;
use crate::op::operand::Space;
use crate::op::{AsyncStore, Op};

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn async_store(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let reduces = i.opcode == "red";
        let (mut op, mut ty, mut count, mut barrier) = (None, None, 1, false);
        for modifier in &i.modifiers {
            if let Some(lanes) = lanes_of(modifier).filter(|_| !reduces) {
                count = lanes;
            } else if let Some(found) = atomic_op(modifier).filter(|_| reduces) {
                op = Some(found);
            } else if Ty::parse(modifier).is_some_and(|ty| ty.bits() >= 32) {
                ty = Some(*modifier);
            } else if *modifier == "mbarrier::complete_tx::bytes" {
                barrier = true;
            } else if !matches!(*modifier, "async" | "shared::cluster") && !is_hint(modifier) {
                return unsupported(format!("modifier `.{modifier}`"));
            }
        }
        let Some(ty) = ty.filter(|_| barrier) else {
            return unsupported("a form without type or barrier");
        };
        let reduce = match (op, atomic_type(ty)) {
            (Some(op), Some(ty)) => Some((op, ty)),
            (None, _) if !reduces => None,
            _ => return unsupported("operation or type"),
        };
        let (_, to) = self.address(operand(i, 0)?, Space::SharedCluster)?;
        let rows = self.rows(operand(i, 1)?, Ty::parse(ty), false)?;
        if rows.len() != count {
            return invalid(format!("{} registers for {count} elements", rows.len()));
        }
        let (_, barrier) = self.address(operand(i, 2)?, Space::SharedCluster)?;
        Ok(Op::AsyncStore(Box::new(AsyncStore {
            to,
            rows,
            bytes: bits_of(ty) / 8,
            barrier,
            reduce,
        })))
    }
}
