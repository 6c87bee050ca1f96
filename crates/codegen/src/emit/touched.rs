//! How many different things the lanes of a group have, each of them some that follow each other.
//!
//! Of so many that follow each other, at most one has a given rest modulo a power of two that is
//! not smaller. So each round takes one rest, in which each lane has at most one, and the lanes
//! that have the same find each other by a match. Rounds are as many as the longest lane needs: one
//! where lanes have one each. All lanes of the mask go through the same rounds, for how many there
//! are is voted.

use super::emitter::Emit;
use crate::ir::{LaneOp, Ty};

/// Most that are looked at of one lane.
const MOST: u32 = 32;
/// Banks of shared memory.
const BANKS: u32 = 32;

impl Emit<'_> {
    pub(super) fn touched(&mut self, op: LaneOp, d: &str, [mask, first, count]: [&str; 3]) {
        let [all, near, low] = [(); 3].map(|()| self.temp(Ty::B32));
        self.line(format!("cvt.u32.u64 {all}, {count};"));
        self.line(format!("min.u32 {near}, {all}, {MOST};"));
        self.line(format!("cvt.u32.u64 {low}, {first};"));
        let rounds = self.rounds(&near, mask);
        let [total, round, part, skip] = [(); 4].map(|()| self.temp(Ty::B32));
        let [has, new, more] = [(); 3].map(|()| self.temp(Ty::Pred));
        let [own, wide] = [(); 2].map(|()| self.temp(Ty::B64));
        self.line(format!("mov.b32 {total}, 0;"));
        self.line(format!("mov.b32 {round}, 0;"));
        self.line(format!("add.s32 {part}, {rounds}, -1;"));
        let turn = self.fresh_label("rest");
        self.label(&turn);
        // What the lane has of this rest, or what nobody has.
        self.line(format!("sub.s32 {skip}, {round}, {low};"));
        self.line(format!("and.b32 {skip}, {skip}, {part};"));
        self.line(format!("setp.lt.u32 {has}, {skip}, {near};"));
        self.line(format!("cvt.u64.u32 {wide}, {skip};"));
        self.line(format!("add.s64 {own}, {first}, {wide};"));
        self.line(format!("selp.b64 {own}, {own}, -1, {has};"));
        let same = self.alike(&own, mask);
        let below = self.temp(Ty::B32);
        self.line(format!("mov.u32 {below}, %lanemask_lt;"));
        self.line(format!("and.b32 {below}, {same}, {below};"));
        self.line(format!("setp.eq.and.s32 {new}, {below}, 0, {has};"));
        if op == LaneOp::Crowded {
            // Who of those is in the same bank; a lane that has none is in none.
            self.line(format!("and.b64 {own}, {own}, {};", BANKS - 1));
            self.line(format!("selp.b64 {own}, {own}, {BANKS}, {new};"));
            let same = self.alike(&own, mask);
            self.line(format!("popc.b32 {same}, {same};"));
            self.line(format!("selp.b32 {same}, {same}, 0, {new};"));
            self.line(format!("max.u32 {total}, {total}, {same};"));
        } else {
            let lanes = self.temp(Ty::B32);
            self.line(format!("vote.sync.ballot.b32 {lanes}, {new}, {mask};"));
            self.line(format!("popc.b32 {lanes}, {lanes};"));
            self.line(format!("add.s32 {total}, {total}, {lanes};"));
        }
        self.line(format!("add.s32 {round}, {round}, 1;"));
        self.line(format!("setp.lt.u32 {more}, {round}, {rounds};"));
        self.line(format!("@{more} bra {turn};"));
        match op {
            LaneOp::Crowded => self.largest(&total, mask),
            _ => self.beyond(&total, [&all, &near], mask),
        }
        self.line(format!("mov.b32 {d}, {total};"));
    }

    /// The lanes with the same value.
    fn alike(&mut self, value: &str, mask: &str) -> String {
        let same = self.temp(Ty::B32);
        self.line(format!("match.any.sync.b64 {same}, {value}, {mask};"));
        same
    }

    /// True in all lanes if the comparison holds in one of them.
    fn some_lane(&mut self, [how, a, b]: [&str; 3], mask: &str) -> String {
        let (p, lanes) = (self.temp(Ty::Pred), self.temp(Ty::B32));
        self.line(format!("setp.{how} {p}, {a}, {b};"));
        self.line(format!("vote.sync.ballot.b32 {lanes}, {p}, {mask};"));
        self.line(format!("setp.ne.s32 {p}, {lanes}, 0;"));
        p
    }

    /// The smallest power of two that is not smaller than what any lane has.
    fn rounds(&mut self, near: &str, mask: &str) -> String {
        let rounds = self.temp(Ty::B32);
        let grow = self.fresh_label("more");
        self.line(format!("mov.b32 {rounds}, 1;"));
        self.label(&grow);
        let doubled = self.temp(Ty::B32);
        let p = self.some_lane(["gt.u32", near, &rounds], mask);
        self.line(format!("shl.b32 {doubled}, {rounds}, 1;"));
        self.line(format!("selp.b32 {rounds}, {doubled}, {rounds}, {p};"));
        self.line(format!("@{p} bra {grow};"));
        rounds
    }

    /// `value` becomes the largest one of all lanes, which is at most 32.
    fn largest(&mut self, value: &str, mask: &str) {
        let (found, attempt) = (self.temp(Ty::B32), self.temp(Ty::B32));
        self.line(format!("mov.b32 {found}, 0;"));
        for bit in [32, 16, 8, 4, 2, 1] {
            self.line(format!("add.s32 {attempt}, {found}, {bit};"));
            let p = self.some_lane(["ge.u32", value, &attempt], mask);
            self.line(format!("selp.b32 {found}, {attempt}, {found}, {p};"));
        }
        self.line(format!("mov.b32 {value}, {found};"));
    }

    /// Adds what lanes have beyond what was looked at.
    fn beyond(&mut self, total: &str, [all, near]: [&str; 2], mask: &str) {
        let [over, rest, less, of_lane] = [(); 4].map(|()| self.temp(Ty::B32));
        let p = self.temp(Ty::Pred);
        let (turn, done) = (self.fresh_label("over"), self.fresh_label("counted"));
        self.line(format!("sub.s32 {over}, {all}, {near};"));
        self.line(format!("setp.ne.s32 {p}, {over}, 0;"));
        self.line(format!("vote.sync.ballot.b32 {rest}, {p}, {mask};"));
        self.label(&turn);
        self.line(format!("setp.eq.s32 {p}, {rest}, 0;"));
        self.line(format!("@{p} bra {done};"));
        let lane = self.lowest(&rest);
        self.line(format!(
            "shfl.sync.idx.b32 {of_lane}, {over}, {lane}, 31, {mask};"
        ));
        self.line(format!("add.s32 {total}, {total}, {of_lane};"));
        self.line(format!("add.s32 {less}, {rest}, -1;"));
        self.line(format!("and.b32 {rest}, {rest}, {less};"));
        self.line(format!("bra {turn};"));
        self.label(&done);
    }
}
