//! What the lanes of a group do together. Their mask is that of the site or was asked for in the
//! same operation, so nobody waits for a lane that does not come.
//!
//! From sm_80 on there is an instruction that reduces 32 bits over the lanes of a mask; before that
//! each lane's value is handed round, in at most 32 rounds.

use super::emitter::Emit;
use crate::SlotSpace;
use crate::ir::{LaneOp, Ty, Value};

/// First PTX version and target with `redux.sync`.
const REDUX_PTX: (u32, u32) = (7, 0);
const REDUX_SM: u32 = 80;
/// Bits of a part of a sum: 32 of them fit 32 bits.
const SUM_BITS: u32 = 27;

impl Emit<'_> {
    pub(super) fn lanes(&mut self, op: LaneOp, args: &[Value], result: Option<Value>) {
        let wide = !matches!(
            op,
            LaneOp::Active | LaneOp::Ballot | LaneOp::Match | LaneOp::Distinct | LaneOp::Crowded
        );
        let ty = if wide { Ty::B64 } else { Ty::B32 };
        let d = match result {
            Some(v) => self.reg(v),
            None => self.temp(ty),
        };
        if let &[mask, first, count] = args {
            let [mask, first, count] = [mask, first, count].map(|v| self.in_register(v));
            return self.touched(op, &d, [&mask, &first, &count]);
        }
        let &[mask, value] = args else {
            return self.line(format!("activemask.b32 {d};"));
        };
        let (mask, value) = (self.in_register(mask), self.in_register(value));
        match op {
            LaneOp::Active | LaneOp::Distinct | LaneOp::Crowded => {}
            LaneOp::Ballot => {
                let p = self.temp(Ty::Pred);
                self.line(format!("setp.ne.s64 {p}, {value}, 0;"));
                self.line(format!("vote.sync.ballot.b32 {d}, {p}, {mask};"));
            }
            LaneOp::Match => self.line(format!("match.any.sync.b64 {d}, {value}, {mask};")),
            LaneOp::First => {
                let lane = self.lowest(&mask);
                let from = self.shuffle(&value, &lane, &mask);
                self.line(format!("mov.b64 {d}, {from};"));
            }
            LaneOp::Sum | LaneOp::Min | LaneOp::Max | LaneOp::And | LaneOp::Or => {
                let target = self.env.target;
                // `ptxas --compile-as-tools-patch` takes none.
                let patches = matches!(self.env.slots, SlotSpace::Table { .. });
                if target.ptx >= REDUX_PTX && target.sm >= REDUX_SM && !patches {
                    self.reduce(op, &d, &value, &mask);
                } else {
                    self.hand_round(op, &d, &value, &mask);
                }
            }
        }
    }

    /// The lowest lane of a mask.
    pub(super) fn lowest(&mut self, mask: &str) -> String {
        let lane = self.temp(Ty::B32);
        self.line(format!("brev.b32 {lane}, {mask};"));
        self.line(format!("clz.b32 {lane}, {lane};"));
        lane
    }

    /// A 64-bit value of a lane, as the two halves in braces.
    fn shuffle(&mut self, value: &str, lane: &str, mask: &str) -> String {
        let (low, high) = (self.temp(Ty::B32), self.temp(Ty::B32));
        self.line(format!("mov.b64 {{{low}, {high}}}, {value};"));
        for half in [&low, &high] {
            self.line(format!(
                "shfl.sync.idx.b32 {half}, {half}, {lane}, 31, {mask};"
            ));
        }
        format!("{{{low}, {high}}}")
    }

    fn reduce(&mut self, op: LaneOp, d: &str, value: &str, mask: &str) {
        let redux =
            |what: &str, to: &str, from: &str| format!("redux.sync.{what} {to}, {from}, {mask};");
        let (low, high) = (self.temp(Ty::B32), self.temp(Ty::B32));
        if op == LaneOp::Sum {
            // Parts that are small enough for the sum of 32 of them.
            let (part, total) = (self.temp(Ty::B64), self.temp(Ty::B64));
            self.line(format!("mov.b64 {total}, 0;"));
            for at in (0..64).step_by(SUM_BITS as usize) {
                self.line(format!("shr.u64 {part}, {value}, {at};"));
                self.line(format!("cvt.u32.u64 {low}, {part};"));
                self.line(format!(
                    "and.b32 {low}, {low}, {:#x};",
                    (1u32 << SUM_BITS) - 1
                ));
                self.line(redux("add.u32", &low, &low));
                self.line(format!("cvt.u64.u32 {part}, {low};"));
                self.line(format!("shl.b64 {part}, {part}, {at};"));
                self.line(format!("add.s64 {total}, {total}, {part};"));
            }
            return self.line(format!("mov.b64 {d}, {total};"));
        }
        self.line(format!("mov.b64 {{{low}, {high}}}, {value};"));
        let (what, neutral) = match op {
            LaneOp::And => ("and.b32", None),
            LaneOp::Or => ("or.b32", None),
            LaneOp::Min => ("min.u32", Some(-1)),
            _ => ("max.u32", Some(0)),
        };
        match neutral {
            None => {
                self.line(redux(what, &low, &low));
                self.line(redux(what, &high, &high));
            }
            Some(neutral) => {
                // The upper halves decide; among those that have it, the lower halves.
                let (best, p) = (self.temp(Ty::B32), self.temp(Ty::Pred));
                self.line(redux(what, &best, &high));
                self.line(format!("setp.ne.s32 {p}, {best}, {high};"));
                self.line(format!("selp.b32 {low}, {neutral}, {low}, {p};"));
                self.line(redux(what, &low, &low));
                self.line(format!("mov.b32 {high}, {best};"));
            }
        }
        self.line(format!("mov.b64 {d}, {{{low}, {high}}};"));
    }

    fn hand_round(&mut self, op: LaneOp, d: &str, value: &str, mask: &str) {
        let (name, neutral) = match op {
            LaneOp::Sum => ("add.s64", 0),
            LaneOp::Min => ("min.u64", -1),
            LaneOp::Max => ("max.u64", 0),
            LaneOp::And => ("and.b64", -1),
            _ => ("or.b64", 0),
        };
        let (total, from) = (self.temp(Ty::B64), self.temp(Ty::B64));
        let (rest, less, p) = (self.temp(Ty::B32), self.temp(Ty::B32), self.temp(Ty::Pred));
        let turn = self.fresh_label("round");
        self.line(format!("mov.b64 {total}, {neutral};"));
        self.line(format!("mov.b32 {rest}, {mask};"));
        self.label(&turn);
        let lane = self.lowest(&rest);
        let halves = self.shuffle(value, &lane, mask);
        self.line(format!("mov.b64 {from}, {halves};"));
        self.line(format!("{name} {total}, {total}, {from};"));
        self.line(format!("add.s32 {less}, {rest}, -1;"));
        self.line(format!("and.b32 {rest}, {rest}, {less};"));
        self.line(format!("setp.ne.s32 {p}, {rest}, 0;"));
        self.line(format!("@{p} bra {turn};"));
        self.line(format!("mov.b64 {d}, {total};"));
    }
}
