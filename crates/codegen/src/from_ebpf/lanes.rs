//! What a program asks of its group: the lanes that arrived at the site together, or the one lane
//! that runs in scopes `warp` and `block`. The verifier has proved that all lanes of a group reach
//! an operation that needs them (`abi::helpers::Warp::Together`). What it asks of its block: the
//! values of groups come together in memory, and whoever completes the block takes what is there.

use warpbpf_abi::attach::Scope;
use warpbpf_ebpf::Width;
use warpbpf_verify::CallFact;

use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, LaneOp, Merge, Op, Special, Ty, Value};

impl Translator<'_> {
    /// One lane runs.
    fn alone(&self) -> bool {
        match self.env.scope {
            Scope::Thread => false,
            Scope::Warp | Scope::Block => true,
        }
    }

    /// The lanes of the group, `b32`.
    fn group(&mut self) -> Value {
        if self.alone() {
            self.special(Special::LanemaskEq)
        } else {
            self.push(Ty::B32, Op::GroupMask)
        }
    }

    /// The lanes that are together here.
    pub(super) fn active_mask(&mut self) -> Value {
        let mask = self.push(
            Ty::B32,
            Op::Lanes {
                op: LaneOp::Active,
                args: Vec::new(),
            },
        );
        let own = self.special(Special::LanemaskEq);
        let mask = self.bin(BinOp::Or, mask, own);
        self.zext(mask)
    }

    /// The same value, but nothing that ptxas knows to be the same in all lanes of a group: see
    /// [`crate::opaque::group_mask`].
    fn of_each_lane(&mut self, value: Value) -> Value {
        let own = self.special(Special::LanemaskEq);
        let below = self.special(Special::LanemaskLt);
        let zero = self.bin(BinOp::And, own, below);
        let zero = self.zext(zero);
        self.bin(BinOp::Or, value, zero)
    }

    pub(super) fn group_lanes(&mut self) -> Value {
        let group = self.group();
        let count = self.push(Ty::B32, Op::Popc(group));
        self.zext(count)
    }

    pub(super) fn group_rank(&mut self) -> Value {
        let below = self.below();
        let count = self.push(Ty::B32, Op::Popc(below));
        self.zext(count)
    }

    pub(super) fn group_leader(&mut self) -> Value {
        let below = self.below();
        let leads = self.cmp_const(Cond::Eq, below, 0);
        let (yes, no) = (self.constant(1), self.constant(0));
        self.select(leads, yes, no)
    }

    /// The lanes of the group below this one, `b32`.
    fn below(&mut self) -> Value {
        let group = self.group();
        let less = self.special(Special::LanemaskLt);
        self.bin(BinOp::And, group, less)
    }

    /// An operation of the group on the values in `r1`.
    pub(super) fn lanes(&mut self, op: LaneOp) -> Value {
        let value = self.arg(0);
        if self.alone() {
            return self.of_one_lane(op, value);
        }
        let mask = self.group();
        let ty = match op {
            LaneOp::Active
            | LaneOp::Ballot
            | LaneOp::Match
            | LaneOp::Distinct
            | LaneOp::Crowded => Ty::B32,
            LaneOp::First | LaneOp::Sum | LaneOp::Min | LaneOp::Max | LaneOp::And | LaneOp::Or => {
                Ty::B64
            }
        };
        let args = vec![mask, value];
        let result = self.push(ty, Op::Lanes { op, args });
        let result = match ty {
            Ty::B32 => self.zext(result),
            Ty::B64 | Ty::Pred => result,
        };
        self.of_each_lane(result)
    }

    /// An aggregate over the block of the values in `r1`, to where `r2` points; 1 in the lane that
    /// gets it.
    pub(super) fn of_block(&mut self, call: &CallFact, op: LaneOp) -> Result<Value, CodegenError> {
        let to = self.pointer_arg(call, 1)?;
        let cell = self.cells;
        self.cells += 1;
        let of_group = self.lanes(op);
        let (merge, complement) = match op {
            LaneOp::Min => (Merge::Max, true),
            LaneOp::And => (Merge::Or, true),
            LaneOp::Max => (Merge::Max, false),
            LaneOp::Or => (Merge::Or, false),
            LaneOp::Active
            | LaneOp::Ballot
            | LaneOp::Match
            | LaneOp::Distinct
            | LaneOp::Crowded
            | LaneOp::First
            | LaneOp::Sum => (Merge::Sum, false),
        };
        let value = match complement {
            true => self.bin_const(BinOp::Xor, of_group, u64::MAX),
            false => of_group,
        };
        let mask = self.group();
        let last = self.push(
            Ty::B32,
            Op::Arrive {
                cell,
                merge,
                mask,
                value,
            },
        );
        let mut total = self.push(Ty::B64, Op::Take { cell, last });
        let one = self.zext(last);
        if complement {
            // 0 stays 0 in those that are not the last.
            let ones = self.bin_const(BinOp::Mul, one, u64::MAX);
            total = self.bin(BinOp::Xor, total, ones);
        }
        self.store(to, Width::W64, total, false)?;
        Ok(one)
    }

    /// What the ranges of memory in `r1` (address) and `r2` (bytes) touch together, in parts of
    /// `1 << shift` bytes.
    pub(super) fn touched(&mut self, op: LaneOp, shift: u64) -> Value {
        let (address, size) = (self.arg(0), self.arg(1));
        let size = self.bin_const(BinOp::And, size, u64::from(u32::MAX));
        let within = (1 << shift) - 1;
        let first = self.bin_const(BinOp::Shr, address, shift);
        let skipped = self.bin_const(BinOp::And, address, within);
        let end = self.bin(BinOp::Add, skipped, size);
        let end = self.bin_const(BinOp::Add, end, within);
        let parts = self.bin_const(BinOp::Shr, end, shift);
        let nothing = self.cmp_const(Cond::Eq, size, 0);
        let none = self.constant(0);
        if self.alone() {
            let found = match op {
                LaneOp::Crowded => self.constant(1),
                _ => parts,
            };
            return self.select(nothing, none, found);
        }
        let parts = self.select(nothing, none, parts);
        let mask = self.group();
        let args = vec![mask, first, parts];
        let result = self.push(Ty::B32, Op::Lanes { op, args });
        let result = self.zext(result);
        self.of_each_lane(result)
    }

    fn of_one_lane(&mut self, op: LaneOp, value: Value) -> Value {
        match op {
            LaneOp::First
            | LaneOp::Sum
            | LaneOp::Min
            | LaneOp::Max
            | LaneOp::And
            | LaneOp::Or
            | LaneOp::Distinct
            | LaneOp::Crowded => value,
            LaneOp::Active | LaneOp::Match => self.special64(Special::LanemaskEq),
            LaneOp::Ballot => {
                let set = self.cmp_const(Cond::Ne, value, 0);
                let (own, none) = (self.special64(Special::LanemaskEq), self.constant(0));
                self.select(set, own, none)
            }
        }
    }
}
