//! Reserving and committing ring records: the algorithm of [`RingLayout`].
//!
//! Lanes that run together share one reservation and one commit. The mask is asked for right before it is used, the
//! lanes in it meet only at `shfl.sync`, `vote.sync` and `bar.warp.sync` with exactly that mask, and nothing between
//! makes one of them leave.

use warpbpf_abi::layout::RingLayout;

use super::Emit;
use crate::ir::{Size, Ty, Value};

/// Registers of the group that shares an operation.
struct Group {
    mask: String,
    /// Lanes of the mask below this one, counted: 0 in the leader.
    rank: String,
    lanes: String,
    /// Number of the leader's lane.
    leader_lane: String,
    is_leader: String,
}

impl Emit<'_> {
    fn group(&mut self) -> Group {
        let [mask, rank, lanes, leader_lane] = [(); 4].map(|()| self.temp(Ty::B32));
        let is_leader = self.temp(Ty::Pred);
        self.line(format!("activemask.b32 {mask};"));
        self.line(format!("mov.u32 {rank}, %lanemask_lt;"));
        self.line(format!("and.b32 {rank}, {rank}, {mask};"));
        self.line(format!("popc.b32 {rank}, {rank};"));
        self.line(format!("setp.eq.s32 {is_leader}, {rank}, 0;"));
        self.line(format!("popc.b32 {lanes}, {mask};"));
        self.line(format!("brev.b32 {leader_lane}, {mask};"));
        self.line(format!("clz.b32 {leader_lane}, {leader_lane};"));
        Group {
            mask,
            rank,
            lanes,
            leader_lane,
            is_leader,
        }
    }

    /// Sets `result` to the payload of a reserved record, or to 0.
    pub(super) fn ring_reserve(
        &mut self,
        ring: RingLayout,
        base: Value,
        size: Size,
        shared: bool,
        result: &str,
    ) {
        let base = self.operand(base);
        let shard = self.shard(ring);
        let (control, data) = (self.temp(Ty::B64), self.temp(Ty::B64));
        self.line(format!(
            "mad.lo.s64 {control}, {shard}, {}, {base};",
            RingLayout::CONTROL_STRIDE
        ));
        self.line(format!(
            "mad.lo.s64 {data}, {shard}, {}, {base};",
            ring.shard_bytes
        ));
        if let Size::Const(size) = size
            && RingLayout::record_bytes(u64::from(size)) > ring.sub_bytes()
        {
            self.line(format!(
                "red.relaxed.gpu.global.add.u64 [{control}+{}], 1;",
                RingLayout::LOST_FULL
            ));
            self.line(format!("mov.b64 {result}, 0;"));
            return;
        }
        let (payload, need) = self.sizes(size);
        let group = shared.then(|| self.group());
        let (lanes, total) = match &group {
            None => ("1".to_owned(), need.clone()),
            Some(group) => {
                let (lanes, total) = (self.temp(Ty::B64), self.temp(Ty::B64));
                self.line(format!("cvt.u64.u32 {lanes}, {};", group.lanes));
                self.line(format!("mul.lo.s64 {total}, {lanes}, {need};"));
                (lanes, total)
            }
        };
        let start = self.temp(Ty::B64);
        self.line(format!("mov.b64 {start}, -1;"));
        let done = self.fresh_label("reserved");
        if let Some(group) = &group {
            self.line(format!("@!{} bra {done};", group.is_leader));
        }
        let check = matches!(size, Size::Value(_));
        let at = Claim {
            base: &base,
            shard: &shard,
            control: &control,
            data: &data,
        };
        let adds = match size {
            Size::Const(size) => ring.adds(RingLayout::record_bytes(u64::from(size))),
            Size::Value(_) => false,
        };
        if adds {
            self.claim_by_add(ring, &at, &start, &total, &lanes, &done);
        } else {
            self.claim(ring, &at, &start, &total, &lanes, check, &done);
        }
        self.label(&done);
        let mut position = start.clone();
        let failed = self.temp(Ty::Pred);
        if let Some(group) = &group {
            self.broadcast(&start, group);
            position = self.temp(Ty::B64);
            let rank = self.temp(Ty::B64);
            self.line(format!("cvt.u64.u32 {rank}, {};", group.rank));
            self.line(format!("mad.lo.s64 {position}, {rank}, {need}, {start};"));
        }
        self.line(format!("setp.eq.s64 {failed}, {start}, -1;"));
        let record = self.temp(Ty::B64);
        self.line(format!(
            "and.b64 {record}, {position}, {};",
            ring.shard_bytes - 1
        ));
        self.line(format!("add.s64 {record}, {record}, {data};"));
        // Length and the zero after it, in one store.
        self.line(format!(
            "@!{failed} st.global.u64 [{record}+{}], {payload};",
            ring.data_at()
        ));
        self.line(format!(
            "add.s64 {record}, {record}, {};",
            ring.data_at() + RingLayout::HEADER
        ));
        self.line(format!("selp.b64 {result}, 0, {record}, {failed};"));
    }

    /// This SM's ring, as a `b64`.
    fn shard(&mut self, ring: RingLayout) -> String {
        let (sm, shard) = (self.temp(Ty::B32), self.temp(Ty::B64));
        self.line(format!("mov.u32 {sm}, %smid;"));
        // %smid may exceed the number of SMs that the host counted.
        self.line(format!(
            "min.u32 {sm}, {sm}, {};",
            ring.shards.saturating_sub(1)
        ));
        self.line(format!("cvt.u64.u32 {shard}, {sm};"));
        shard
    }

    /// Bytes of the payload and of the whole record, as operands.
    fn sizes(&mut self, size: Size) -> (String, String) {
        match size {
            Size::Const(size) => (
                size.to_string(),
                RingLayout::record_bytes(u64::from(size)).to_string(),
            ),
            Size::Value(v) => {
                let payload = self.operand(v);
                let need = self.temp(Ty::B64);
                self.line(format!(
                    "add.s64 {need}, {payload}, {};",
                    7 + RingLayout::HEADER
                ));
                self.line(format!("and.b64 {need}, {need}, -8;"));
                (payload, need)
            }
        }
    }

    /// The bounded CAS: `start` becomes the position of `total` reserved bytes, or stays -1.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a register of the one caller"
    )]
    fn claim(
        &mut self,
        ring: RingLayout,
        at: &Claim<'_>,
        start: &str,
        total: &str,
        lanes: &str,
        check_size: bool,
        done: &str,
    ) {
        let sub = ring.sub_bytes();
        let Claim {
            base,
            shard,
            control,
            ..
        } = at;
        let consumed_at = self.temp(Ty::B64);
        let [reserved, consumed, rest, pad, from, end, old] = [(); 7].map(|()| self.temp(Ty::B64));
        let (tries, p, small) = (self.temp(Ty::B32), self.temp(Ty::Pred), self.temp(Ty::Pred));
        let (turn, full, won) = (
            self.fresh_label("try"),
            self.fresh_label("full"),
            self.fresh_label("won"),
        );
        if check_size {
            self.line(format!("setp.gt.u64 {p}, {total}, {sub};"));
            self.line(format!("@{p} bra {full};"));
        }
        self.line(format!("mad.lo.s64 {consumed_at}, {shard}, 8, {base};"));
        self.line(format!("mov.b32 {tries}, {};", RingLayout::RETRIES));
        self.label(&turn);
        // The host moves `consumed` by DMA: system scope.
        self.line(format!(
            "ld.relaxed.sys.global.u64 {consumed}, [{consumed_at}+{}];",
            ring.consumed_at()
        ));
        self.line(format!(
            "ld.relaxed.gpu.global.u64 {reserved}, [{control}+{}];",
            RingLayout::RESERVED
        ));
        self.line(format!("and.b64 {rest}, {reserved}, {};", sub - 1));
        self.line(format!("sub.s64 {rest}, {sub}, {rest};"));
        self.line(format!("setp.lt.u64 {small}, {rest}, {total};"));
        self.line(format!("selp.b64 {pad}, {rest}, 0, {small};"));
        self.line(format!("add.s64 {from}, {reserved}, {pad};"));
        self.line(format!("add.s64 {end}, {from}, {total};"));
        self.line(format!("sub.s64 {old}, {end}, {consumed};"));
        // Signed: a stale `reserved` may lie behind `consumed`, and then the CAS tells.
        self.line(format!("setp.gt.s64 {p}, {old}, {};", ring.limit()));
        self.line(format!("@{p} bra {full};"));
        self.line(format!(
            "atom.relaxed.gpu.global.cas.b64 {old}, [{control}+{}], {reserved}, {end};",
            RingLayout::RESERVED
        ));
        self.line(format!("setp.eq.s64 {p}, {old}, {reserved};"));
        self.line(format!("@{p} bra {won};"));
        self.line(format!("add.s32 {tries}, {tries}, -1;"));
        self.line(format!("setp.ne.s32 {p}, {tries}, 0;"));
        self.line(format!("@{p} bra {turn};"));
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{control}+{}], {lanes};",
            RingLayout::LOST_BUSY
        ));
        self.line(format!("bra {done};"));
        self.label(&full);
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{control}+{}], {lanes};",
            RingLayout::LOST_FULL
        ));
        self.line(format!("bra {done};"));
        self.label(&won);
        self.line(format!("mov.b64 {start}, {from};"));
        self.line(format!("@!{small} bra {done};"));
        self.pad(ring, at, &reserved, &pad);
    }

    /// The same by an add, where the ring's free eighth makes it safe: [`RingLayout::limit`]. Writers do not disturb each
    /// other, so the loop turns only for those whose piece crosses the end of a sub-buffer.
    fn claim_by_add(
        &mut self,
        ring: RingLayout,
        at: &Claim<'_>,
        start: &str,
        total: &str,
        lanes: &str,
        done: &str,
    ) {
        let sub = ring.sub_bytes();
        let [consumed_at, consumed, reserved, used, rest] = [(); 5].map(|()| self.temp(Ty::B64));
        let (tries, p) = (self.temp(Ty::B32), self.temp(Ty::Pred));
        let (turn, full, crosses) = (
            self.fresh_label("try"),
            self.fresh_label("full"),
            self.fresh_label("crosses"),
        );
        let (control, word) = (at.control, RingLayout::RESERVED);
        self.line(format!("mad.lo.s64 {consumed_at}, {}, 8, {};", at.shard, at.base));
        self.line(format!("mov.b32 {tries}, {};", RingLayout::RETRIES));
        self.label(&turn);
        // The host moves `consumed` by DMA: system scope.
        self.line(format!(
            "ld.relaxed.sys.global.u64 {consumed}, [{consumed_at}+{}];",
            ring.consumed_at()
        ));
        self.line(format!("ld.relaxed.gpu.global.u64 {reserved}, [{control}+{word}];"));
        self.line(format!("sub.s64 {used}, {reserved}, {consumed};"));
        self.line(format!("add.s64 {used}, {used}, {total};"));
        self.line(format!("setp.gt.s64 {p}, {used}, {};", ring.limit()));
        self.line(format!("@{p} bra {full};"));
        self.line(format!(
            "atom.relaxed.gpu.global.add.u64 {reserved}, [{control}+{word}], {total};"
        ));
        self.line(format!("and.b64 {rest}, {reserved}, {};", sub - 1));
        self.line(format!("sub.s64 {rest}, {sub}, {rest};"));
        self.line(format!("setp.lt.u64 {p}, {rest}, {total};"));
        self.line(format!("@{p} bra {crosses};"));
        self.line(format!("mov.b64 {start}, {reserved};"));
        self.line(format!("bra {done};"));
        self.label(&crosses);
        self.pad(ring, at, &reserved, &rest);
        self.line(format!("add.s64 {reserved}, {reserved}, {rest};"));
        self.line(format!("sub.s64 {rest}, {total}, {rest};"));
        self.pad(ring, at, &reserved, &rest);
        self.line(format!("add.s32 {tries}, {tries}, -1;"));
        self.line(format!("setp.ne.s32 {p}, {tries}, 0;"));
        self.line(format!("@{p} bra {turn};"));
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{control}+{}], {lanes};",
            RingLayout::LOST_BUSY
        ));
        self.line(format!("bra {done};"));
        self.label(&full);
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{control}+{}], {lanes};",
            RingLayout::LOST_FULL
        ));
    }

    /// Turns `bytes` at `position`, which lie in one sub-buffer, into a record of padding and commits it.
    fn pad(&mut self, ring: RingLayout, at: &Claim<'_>, position: &str, bytes: &str) {
        let [place, header, count] = [(); 3].map(|()| self.temp(Ty::B64));
        self.line(format!("and.b64 {place}, {position}, {};", ring.shard_bytes - 1));
        self.line(format!(
            "add.s64 {header}, {bytes}, {};",
            i64::from(RingLayout::PADDING) - RingLayout::HEADER as i64
        ));
        self.line(format!(
            "shr.u64 {count}, {place}, {};",
            ring.sub_bytes().trailing_zeros()
        ));
        self.line(format!("mad.lo.s64 {count}, {}, {}, {count};", at.shard, RingLayout::SUBS));
        self.line(format!("mad.lo.s64 {count}, {count}, 8, {};", at.base));
        self.line(format!("add.s64 {place}, {place}, {};", at.data));
        self.line(format!("st.global.u64 [{place}+{}], {header};", ring.data_at()));
        self.line("fence.acq_rel.gpu;");
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{count}+{}], {bytes};",
            ring.commits_at()
        ));
    }

    /// Gives every lane of the group the leader's `value`.
    fn broadcast(&mut self, value: &str, group: &Group) {
        let [lo, hi] = [(); 2].map(|()| self.temp(Ty::B32));
        let (lane, mask) = (&group.leader_lane, &group.mask);
        self.line(format!("mov.b64 {{{lo}, {hi}}}, {value};"));
        self.line(format!("shfl.sync.idx.b32 {lo}, {lo}, {lane}, 31, {mask};"));
        self.line(format!("shfl.sync.idx.b32 {hi}, {hi}, {lane}, 31, {mask};"));
        self.line(format!("mov.b64 {value}, {{{lo}, {hi}}};"));
    }

    /// Adds a record to the commit count of its sub-buffer, after everything that was written into it.
    pub(super) fn ring_commit(
        &mut self,
        ring: RingLayout,
        base: Value,
        record: Value,
        size: Option<u32>,
        discard: bool,
        shared: bool,
    ) {
        let (base, record) = (self.operand(base), self.operand(record));
        let header = RingLayout::HEADER;
        let (length, bytes) = match size {
            Some(size) => (
                size.to_string(),
                RingLayout::record_bytes(u64::from(size)).to_string(),
            ),
            None => {
                let (length, bytes) = (self.temp(Ty::B64), self.temp(Ty::B64));
                // The header was written by the reservation: length and zero.
                self.line(format!("ld.global.u64 {length}, [{record}+-{header}];"));
                self.line(format!("add.s64 {bytes}, {length}, {};", 7 + header));
                self.line(format!("and.b64 {bytes}, {bytes}, -8;"));
                (length, bytes)
            }
        };
        if discard {
            let marked = self.temp(Ty::B64);
            self.line(format!("mov.b64 {marked}, {length};"));
            self.line(format!(
                "or.b64 {marked}, {marked}, {};",
                RingLayout::DISCARDED
            ));
            self.line(format!("st.global.u64 [{record}+-{header}], {marked};"));
        }
        let (index, count) = (self.temp(Ty::B64), self.temp(Ty::B64));
        self.line(format!("sub.s64 {index}, {record}, {base};"));
        self.line(format!(
            "add.s64 {index}, {index}, {};",
            -((ring.data_at() + header) as i64)
        ));
        self.line(format!(
            "shr.u64 {index}, {index}, {};",
            ring.sub_bytes().trailing_zeros()
        ));
        self.line(format!("mad.lo.s64 {count}, {index}, 8, {base};"));
        let at = ring.commits_at();
        if !shared || size.is_none() {
            self.line("fence.acq_rel.gpu;");
            self.line(format!(
                "red.relaxed.gpu.global.add.u64 [{count}+{at}], {bytes};"
            ));
            return;
        }
        // Lanes whose record lies in the leader's sub-buffer are committed by the leader, the others by themselves.
        // `bar.warp.sync` makes the lanes' writes visible to the leader, whose fence passes them on (PTX ISA, memory
        // consistency model: causality order).
        let group = self.group();
        let [mine, leaders, together] = [(); 3].map(|()| self.temp(Ty::B32));
        let (same, acts) = (self.temp(Ty::Pred), self.temp(Ty::Pred));
        let amount = self.temp(Ty::B64);
        let skip = self.fresh_label("committed");
        let mask = group.mask.clone();
        self.line(format!("cvt.u32.u64 {mine}, {index};"));
        self.line(format!(
            "shfl.sync.idx.b32 {leaders}, {mine}, {}, 31, {mask};",
            group.leader_lane
        ));
        self.line(format!("setp.eq.s32 {same}, {mine}, {leaders};"));
        self.line(format!("vote.sync.ballot.b32 {together}, {same}, {mask};"));
        self.line(format!("popc.b32 {together}, {together};"));
        self.line(format!(
            "selp.b32 {together}, {together}, 1, {};",
            group.is_leader
        ));
        self.line(format!("cvt.u64.u32 {amount}, {together};"));
        self.line(format!("mul.lo.s64 {amount}, {amount}, {bytes};"));
        self.line(format!("bar.warp.sync {mask};"));
        self.line(format!("not.pred {acts}, {same};"));
        self.line(format!("or.pred {acts}, {acts}, {};", group.is_leader));
        self.line(format!("@!{acts} bra {skip};"));
        self.line("fence.acq_rel.gpu;");
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{count}+{at}], {amount};"
        ));
        self.label(&skip);
    }
}

/// Addresses of a reservation.
struct Claim<'a> {
    base: &'a str,
    shard: &'a str,
    control: &'a str,
    data: &'a str,
}
