//! Aggregates over a block without a barrier. Each call has a cell for each block in the launch
//! record, whose address the splicer gives: a value and a count. A group's lowest lane merges what
//! the group has into the value and then counts the group's lanes; whoever completes the count
//! takes the value, and leaves the cell as it was before the launch.
//!
//! The count is added to with acquire and release, so that all values that were merged before are
//! seen by who completes it. What the lanes of a group did before is ordered before their lowest
//! lane's release by `bar.warp.sync`, which waits for lanes that are at the same place.

use warpbpf_abi::layout::launch::{CELL, CELL_COUNT, CELL_VALUE};
use warpbpf_abi::names::BLOCK_CELLS;

use super::emitter::Emit;
use crate::ir::{Merge, Ty, Value};

impl Emit<'_> {
    pub(super) fn arrive(
        &mut self,
        cell: u32,
        merge: Merge,
        [mask, value]: [Value; 2],
        result: Option<Value>,
    ) {
        self.fragment.block_cells = self.fragment.block_cells.max(cell + 1);
        let d = self.result(result, Ty::B32);
        let (mask, value) = (self.in_register(mask), self.in_register(value));
        let [threads, more, p] = [Ty::B32, Ty::B32, Ty::Pred].map(|ty| self.temp(ty));
        let out = self.fresh_label("arrived");
        let operation = match merge {
            Merge::Sum => "add.u64",
            Merge::Max => "max.u64",
            Merge::Or => "or.b64",
        };
        let at = u64::from(cell) * CELL;
        let (at_value, at_count) = (at + CELL_VALUE, at + CELL_COUNT);
        self.line(format!("bar.warp.sync {mask};"));
        self.line(format!("mov.b32 {d}, 0;"));
        self.line(format!("mov.u32 {more}, %lanemask_lt;"));
        self.line(format!("and.b32 {more}, {more}, {mask};"));
        self.line(format!("setp.ne.s32 {p}, {more}, 0;"));
        self.line(format!("@{p} bra {out};"));
        self.line(format!(
            "red.relaxed.gpu.global.{operation} [{BLOCK_CELLS}+{at_value}], {value};"
        ));
        self.line(format!("mov.u32 {threads}, %ntid.x;"));
        for axis in ["y", "z"] {
            self.line(format!("mov.u32 {more}, %ntid.{axis};"));
            self.line(format!("mul.lo.s32 {threads}, {threads}, {more};"));
        }
        self.line(format!("popc.b32 {more}, {mask};"));
        self.line(format!("sub.s32 {threads}, {threads}, {more};"));
        self.line(format!(
            "atom.acq_rel.gpu.global.add.u32 {more}, [{BLOCK_CELLS}+{at_count}], {more};"
        ));
        self.line(format!("setp.eq.s32 {p}, {more}, {threads};"));
        self.line(format!("selp.b32 {d}, 1, 0, {p};"));
        self.label(&out);
    }

    pub(super) fn take(&mut self, cell: u32, last: Value, result: Option<Value>) {
        let d = self.result(result, Ty::B64);
        let (last, p) = (self.operand(last), self.temp(Ty::Pred));
        let at = u64::from(cell) * CELL;
        self.line(format!("mov.b64 {d}, 0;"));
        self.line(format!("setp.ne.s32 {p}, {last}, 0;"));
        self.line(format!(
            "@{p} atom.relaxed.gpu.global.exch.b64 {d}, [{BLOCK_CELLS}+{}], 0;",
            at + CELL_VALUE
        ));
        self.line(format!(
            "@{p} st.relaxed.gpu.global.u32 [{BLOCK_CELLS}+{}], 0;",
            at + CELL_COUNT
        ));
    }

    /// Where a result goes that perhaps nobody wants.
    fn result(&mut self, result: Option<Value>, ty: Ty) -> String {
        match result {
            Some(v) => self.reg(v),
            None => self.temp(ty),
        }
    }
}
