//! Reserving and committing ring records: the algorithm of [`RingLayout`].
//!
//! Lanes that run together share one reservation, and one commit if they still run together then.
//! The mask is asked for right before it is used, the lanes in it meet only at `shfl.sync`,
//! `vote.sync` and `bar.warp.sync` with exactly that mask, and nothing between makes one of them
//! leave.
//!
//! What only the leader does, and what happens at the end of a sub-buffer or of the room, lies off
//! the common path.

use warpbpf_abi::layout::RingLayout;

use super::emitter::{Emit, immediate};
use crate::ir::{Chunk, Size, Ty, Value};
use crate::prelude::nap;

/// Registers of the lanes that reserve together.
struct Group {
    mask: String,
    /// Lanes of the mask below this one, counted: 0 in the leader.
    rank: String,
    lanes: String,
    /// Number of the leader's lane.
    leader_lane: String,
    is_leader: String,
}

/// What a commit knows of the reservation.
pub(super) struct Reserved {
    /// Register of the mask of the lanes that reserved together.
    pub(super) mask: String,
    /// Bytes of the payload.
    pub(super) size: u32,
}

/// Registers of a reservation.
struct Claim {
    ring: RingLayout,
    base: String,
    /// This SM's ring.
    shard: String,
    control: String,
    /// Bytes of all records together.
    total: String,
    /// Records, if they are not one: `b32`.
    lanes: Option<String>,
    /// Where in the ring they begin, -1 until there is room: `b32`.
    start: String,
}

/// Registers of a wait for room.
struct Wait {
    /// Looks that are left: `b32`.
    looks: String,
    /// %globaltimer at the first one, 0 before it.
    since: String,
}

impl Emit<'_> {
    fn group(&mut self) -> Group {
        let [mask, rank, lanes, leader_lane] = [(); 4].map(|()| self.temp(Ty::B32));
        let is_leader = self.temp(Ty::Pred);
        self.line(format!("activemask.b32 {mask};"));
        self.line(format!("mov.u32 {rank}, %lanemask_lt;"));
        self.line(format!("and.b32 {rank}, {rank}, {mask};"));
        self.line(format!("setp.eq.s32 {is_leader}, {rank}, 0;"));
        self.line(format!("popc.b32 {rank}, {rank};"));
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
        header: bool,
        shared: bool,
        result: Value,
    ) {
        let record = self.reg(result);
        let base = self.operand(base);
        let shard = self.shard(ring);
        let control = self.temp(Ty::B64);
        self.line(format!(
            "mad.wide.u32 {control}, {shard}, {}, {base};",
            RingLayout::CONTROL_STRIDE
        ));
        let (payload, need) = self.sizes(size);
        let mut group = shared.then(|| self.group());
        let mut before = None;
        let total = match (&mut group, size) {
            (None, _) => need.clone(),
            (Some(group), Size::Const(_)) => {
                let total = self.temp(Ty::B64);
                self.line(format!("mul.wide.u32 {total}, {}, {need};", group.lanes));
                total
            }
            (Some(group), Size::Value(_)) => {
                let (total, bytes) = self.add_up(group, &need, ring);
                before = Some(bytes);
                total
            }
        };
        let claim = Claim {
            ring,
            base,
            shard,
            control,
            total,
            lanes: group.as_ref().map(|group| group.lanes.clone()),
            start: self.temp(Ty::B32),
        };
        if let Size::Const(size) = size
            && RingLayout::record_bytes(u64::from(size)) > ring.sub_bytes()
        {
            self.lose(&claim, RingLayout::LOST_FULL);
            self.line(format!("mov.b64 {record}, 0;"));
            return;
        }
        let start = &claim.start;
        self.line(format!("mov.b32 {start}, -1;"));
        let done = self.fresh_label("reserved");
        if let Some(group) = &group {
            self.line(format!("@!{} bra {done};", group.is_leader));
        }
        match size {
            Size::Const(size) if ring.adds(RingLayout::record_bytes(u64::from(size))) => {
                self.claim_by_add(&claim, &done);
            }
            Size::Const(_) => self.claim(&claim, false, &done),
            Size::Value(_) => self.claim(&claim, true, &done),
        }
        self.label(&done);
        let mut place = start.clone();
        if let Some(group) = &group {
            let (lane, mask) = (&group.leader_lane, &group.mask);
            self.line(format!(
                "shfl.sync.idx.b32 {start}, {start}, {lane}, 31, {mask};"
            ));
            place = self.temp(Ty::B32);
            // Records that were reserved together lie in one sub-buffer, so this does not wrap.
            self.line(match &before {
                None => format!("mad.lo.s32 {place}, {}, {need}, {start};", group.rank),
                Some(before) => format!("add.s32 {place}, {start}, {before};"),
            });
        }
        let failed = self.temp(Ty::Pred);
        self.line(format!("setp.eq.s32 {failed}, {start}, -1;"));
        let at = self.place(&claim, &place);
        if header {
            // Length and the zero after it, in one store.
            self.line(format!(
                "@!{failed} st.global.u64 [{at}+{}], {payload};",
                ring.data_at()
            ));
        }
        self.line(format!(
            "add.s64 {at}, {at}, {};",
            ring.data_at() + RingLayout::HEADER
        ));
        self.line(format!("selp.b64 {record}, 0, {at}, {failed};"));
        // Records of several sizes are given back one by one.
        if let (Some(group), Size::Const(_)) = (group, size) {
            self.reservations.insert(result, group.mask);
        }
    }

    /// Bytes of the records of a group's lanes, each `need` (a `b64`) in its own lane: of all as a
    /// `b64`, and as a `b32` of those of lower lanes, which lie in front of it. Where all together
    /// do not fit into a sub-buffer, each lane is made a group by itself.
    fn add_up(&mut self, group: &mut Group, need: &str, ring: RingLayout) -> (String, String) {
        // 32 records of less than 2^24 bytes each.
        let [bytes, all, before, left, lane, of, next] = [(); 7].map(|()| self.temp(Ty::B32));
        let [total, own] = [(); 2].map(|()| self.temp(Ty::B64));
        let [p, alone] = [(); 2].map(|()| self.temp(Ty::Pred));
        let turn = self.fresh_label("sum");
        let Group {
            mask,
            lanes,
            leader_lane,
            is_leader,
            ..
        } = group;
        self.line(format!("cvt.u32.u64 {bytes}, {need};"));
        self.line(format!("mov.b32 {all}, 0;"));
        self.line(format!("mov.b32 {before}, 0;"));
        self.line(format!("mov.b32 {left}, {mask};"));
        self.label(&turn);
        self.line(format!("brev.b32 {lane}, {left};"));
        self.line(format!("clz.b32 {lane}, {lane};"));
        self.line(format!(
            "shfl.sync.idx.b32 {of}, {bytes}, {lane}, 31, {mask};"
        ));
        self.line(format!("add.s32 {all}, {all}, {of};"));
        self.line(format!("mov.u32 {next}, %laneid;"));
        self.line(format!("setp.lt.u32 {p}, {lane}, {next};"));
        self.line(format!("@{p} add.s32 {before}, {before}, {of};"));
        self.line(format!("add.s32 {next}, {left}, -1;"));
        self.line(format!("and.b32 {left}, {left}, {next};"));
        self.line(format!("setp.ne.s32 {p}, {left}, 0;"));
        self.line(format!("@{p} bra {turn};"));
        self.line(format!(
            "setp.gt.u32 {alone}, {all}, {};",
            immediate(Ty::B32, ring.sub_bytes().min(u64::from(u32::MAX)))
        ));
        self.line(format!("cvt.u64.u32 {total}, {all};"));
        self.line(format!("mov.b64 {own}, {need};"));
        self.line(format!("selp.b64 {total}, {own}, {total}, {alone};"));
        self.line(format!("selp.b32 {before}, 0, {before}, {alone};"));
        self.line(format!("selp.b32 {lanes}, 1, {lanes}, {alone};"));
        self.line(format!("mov.u32 {next}, %laneid;"));
        self.line(format!(
            "selp.b32 {leader_lane}, {next}, {leader_lane}, {alone};"
        ));
        self.line(format!("or.pred {is_leader}, {is_leader}, {alone};"));
        (total, before)
    }

    /// This SM's ring, as a `b32`.
    fn shard(&mut self, ring: RingLayout) -> String {
        let shard = self.temp(Ty::B32);
        self.line(format!("mov.u32 {shard}, %smid;"));
        // %smid may exceed the number of SMs that the host counted.
        self.line(format!(
            "min.u32 {shard}, {shard}, {};",
            ring.shards.saturating_sub(1)
        ));
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
                let need = self.record_bytes(&payload);
                (payload, need)
            }
        }
    }

    /// Bytes of a record of `payload` bytes, as a `b64`.
    fn record_bytes(&mut self, payload: &str) -> String {
        let bytes = self.temp(Ty::B64);
        let round = RingLayout::HEADER + RingLayout::ALIGN - 1;
        self.line(format!("add.s64 {bytes}, {payload}, {round};"));
        self.line(format!("and.b64 {bytes}, {bytes}, -{};", RingLayout::ALIGN));
        bytes
    }

    /// Address of byte `place` (a `b32`) of the ring, less [`RingLayout::data_at`].
    fn place(&mut self, claim: &Claim, place: &str) -> String {
        let (at, data) = (self.temp(Ty::B64), self.temp(Ty::B64));
        let Claim { base, shard, .. } = claim;
        self.line(format!("cvt.u64.u32 {at}, {place};"));
        self.line(format!("cvt.u64.u32 {data}, {shard};"));
        self.line(format!(
            "shl.b64 {data}, {data}, {};",
            claim.ring.shard_bytes.trailing_zeros()
        ));
        self.line(format!("add.s64 {data}, {data}, {base};"));
        self.line(format!("add.s64 {at}, {at}, {data};"));
        at
    }

    /// Sets the claim's start from a position since the ring was made.
    fn start(&mut self, claim: &Claim, position: &str) {
        let start = &claim.start;
        self.line(format!("cvt.u32.u64 {start}, {position};"));
        self.line(format!(
            "and.b32 {start}, {start}, {};",
            immediate(Ty::B32, claim.ring.shard_bytes - 1)
        ));
    }

    /// Counts the claim's records as lost, in the word `why` of the control line.
    fn lose(&mut self, claim: &Claim, why: u64) {
        let count = match &claim.lanes {
            None => "1".to_owned(),
            Some(lanes) => {
                let count = self.temp(Ty::B64);
                self.line(format!("cvt.u64.u32 {count}, {lanes};"));
                count
            }
        };
        self.line(format!(
            "red.relaxed.gpu.global.add.u64 [{}+{why}], {count};",
            claim.control
        ));
    }

    /// Reads what the host has consumed and what has been reserved.
    fn look(&mut self, claim: &Claim, consumed_at: &str, consumed: &str, reserved: &str) {
        // The host moves `consumed` by DMA: system scope.
        self.line(format!(
            "ld.relaxed.sys.global.u64 {consumed}, [{consumed_at}+{}];",
            claim.ring.consumed_at()
        ));
        self.line(format!(
            "ld.relaxed.gpu.global.u64 {reserved}, [{}+{}];",
            claim.control,
            RingLayout::RESERVED
        ));
    }

    /// The bounded CAS: the claim's start is set, or stays -1.
    fn claim(&mut self, claim: &Claim, check_size: bool, done: &str) {
        let sub = claim.ring.sub_bytes();
        let Claim {
            base,
            shard,
            control,
            total,
            ..
        } = claim;
        let consumed_at = self.temp(Ty::B64);
        let [reserved, consumed, rest, pad, from, end, old] = [(); 7].map(|()| self.temp(Ty::B64));
        let (tries, p, small) = (self.temp(Ty::B32), self.temp(Ty::Pred), self.temp(Ty::Pred));
        let [turn, full, lost, won] = ["try", "full", "lost", "won"].map(|l| self.fresh_label(l));
        if check_size {
            self.line(format!("setp.gt.u64 {p}, {total}, {sub};"));
            self.line(format!("@{p} bra {lost};"));
        }
        self.line(format!("mad.wide.u32 {consumed_at}, {shard}, 8, {base};"));
        self.line(format!("mov.b32 {tries}, {};", RingLayout::RETRIES));
        let wait = self.begin_wait(claim);
        self.label(&turn);
        self.look(claim, &consumed_at, &consumed, &reserved);
        self.line(format!("and.b64 {rest}, {reserved}, {};", sub - 1));
        self.line(format!("sub.s64 {rest}, {sub}, {rest};"));
        self.line(format!("setp.lt.u64 {small}, {rest}, {total};"));
        self.line(format!("selp.b64 {pad}, {rest}, 0, {small};"));
        self.line(format!("add.s64 {from}, {reserved}, {pad};"));
        self.line(format!("add.s64 {end}, {from}, {total};"));
        self.line(format!("sub.s64 {old}, {end}, {consumed};"));
        // Signed: a stale `reserved` may lie behind `consumed`, and then the CAS tells.
        self.line(format!("setp.gt.s64 {p}, {old}, {};", claim.ring.limit()));
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
        if wait.is_some() {
            // Whoever may wait for room may wait for its turn: each further try is a look.
            self.line(format!("mov.b32 {tries}, 1;"));
        } else {
            self.lose(claim, RingLayout::LOST_BUSY);
            self.line(format!("bra {done};"));
        }
        self.label(&full);
        self.wait(claim, wait, &consumed, &turn);
        self.label(&lost);
        self.lose(claim, RingLayout::LOST_FULL);
        self.line(format!("bra {done};"));
        self.label(&won);
        self.start(claim, &from);
        self.line(format!("@!{small} bra {done};"));
        self.pad(claim, &reserved, &pad);
    }

    /// The same by an add, where the ring's free eighth makes it safe: [`RingLayout::limit`].
    /// Writers do not disturb each other, so the loop turns only for those whose piece crosses the
    /// end of a sub-buffer.
    fn claim_by_add(&mut self, claim: &Claim, done: &str) {
        let sub = claim.ring.sub_bytes();
        let [consumed_at, consumed, reserved, used, rest] = [(); 5].map(|()| self.temp(Ty::B64));
        let (tries, p) = (self.temp(Ty::B32), self.temp(Ty::Pred));
        let (turn, full) = (self.fresh_label("try"), self.fresh_label("full"));
        let Claim {
            base,
            shard,
            control,
            total,
            start,
            ..
        } = claim;
        self.line(format!("mad.wide.u32 {consumed_at}, {shard}, 8, {base};"));
        self.line(format!("mov.b32 {tries}, {};", RingLayout::RETRIES));
        let wait = self.begin_wait(claim);
        self.label(&turn);
        self.look(claim, &consumed_at, &consumed, &reserved);
        self.line(format!("sub.s64 {used}, {reserved}, {consumed};"));
        self.line(format!("add.s64 {used}, {used}, {total};"));
        self.line(format!("setp.gt.s64 {p}, {used}, {};", claim.ring.limit()));
        self.line(format!("@{p} bra {full};"));
        self.line(format!(
            "atom.relaxed.gpu.global.add.u64 {reserved}, [{control}+{}], {total};",
            RingLayout::RESERVED
        ));
        self.start(claim, &reserved);
        self.line(format!("and.b64 {rest}, {reserved}, {};", sub - 1));
        self.line(format!("sub.s64 {rest}, {sub}, {rest};"));
        self.line(format!("setp.ge.u64 {p}, {rest}, {total};"));
        self.line(format!("@{p} bra {done};"));
        self.line(format!("mov.b32 {start}, -1;"));
        self.pad(claim, &reserved, &rest);
        self.line(format!("add.s64 {reserved}, {reserved}, {rest};"));
        self.line(format!("sub.s64 {rest}, {total}, {rest};"));
        self.pad(claim, &reserved, &rest);
        self.line(format!("add.s32 {tries}, {tries}, -1;"));
        self.line(format!("setp.ne.s32 {p}, {tries}, 0;"));
        self.line(format!("@{p} bra {turn};"));
        self.lose(claim, RingLayout::LOST_BUSY);
        self.line(format!("bra {done};"));
        self.label(&full);
        self.wait(claim, wait, &consumed, &turn);
        self.lose(claim, RingLayout::LOST_FULL);
    }

    /// Before the first look at a ring whose writers wait.
    fn begin_wait(&mut self, claim: &Claim) -> Option<Wait> {
        if claim.ring.wait_us == 0 {
            return None;
        }
        let wait = Wait {
            looks: self.temp(Ty::B32),
            since: self.temp(Ty::B64),
        };
        let looks = claim.ring.wait_us * RingLayout::LOOKS_PER_US;
        self.line(format!("mov.b32 {}, {looks};", wait.looks));
        self.line(format!("mov.b64 {}, 0;", wait.since));
        Some(wait)
    }

    /// There is no room, and the host stands at `consumed`: goes back to `turn` after a nap, or on
    /// where it was too long, or where somebody has waited in vain since the host has moved. All
    /// bounds are this lane's own: it waits for nobody who might wait for it.
    fn wait(&mut self, claim: &Claim, wait: Option<Wait>, consumed: &str, turn: &str) {
        let Some(Wait { looks, since }) = wait else {
            return;
        };
        let ring = claim.ring;
        let [mark, given_up, now] = [(); 3].map(|()| self.temp(Ty::B64));
        let p = self.temp(Ty::Pred);
        let [in_vain, over] = ["in_vain", "over"].map(|l| self.fresh_label(l));
        let at = format!("[{}+{}]", claim.control, RingLayout::GAVE_UP);
        self.line(format!("add.s64 {mark}, {consumed}, 1;"));
        self.line(format!("ld.relaxed.gpu.global.u64 {given_up}, {at};"));
        self.line(format!("setp.eq.s64 {p}, {given_up}, {mark};"));
        self.line(format!("@{p} bra {over};"));
        self.line(format!("setp.eq.s32 {p}, {looks}, 0;"));
        self.line(format!("@{p} bra {in_vain};"));
        self.line(format!("add.s32 {looks}, {looks}, -1;"));
        self.line(format!("mov.u64 {now}, %globaltimer;"));
        self.line(format!("setp.eq.s64 {p}, {since}, 0;"));
        self.line(format!("selp.b64 {since}, {now}, {since}, {p};"));
        self.line(format!("sub.s64 {now}, {now}, {since};"));
        let nanoseconds = u64::from(ring.wait_us) * 1000;
        self.line(format!("setp.gt.s64 {p}, {now}, {nanoseconds};"));
        self.line(format!("@{p} bra {in_vain};"));
        let nap = nap(RingLayout::NAP_NS, self.env.target.ptx);
        if !nap.is_empty() {
            self.line(nap);
        }
        self.line(format!("bra {turn};"));
        self.label(&in_vain);
        self.line(format!("st.relaxed.gpu.global.u64 {at}, {mark};"));
        self.label(&over);
    }

    /// Turns `bytes` at `position`, which lie in one sub-buffer, into a record of padding and
    /// commits it.
    fn pad(&mut self, claim: &Claim, position: &str, bytes: &str) {
        let (header, count) = (self.temp(Ty::B64), self.temp(Ty::B64));
        let [place, index] = [(); 2].map(|()| self.temp(Ty::B32));
        let ring = claim.ring;
        self.line(format!("cvt.u32.u64 {place}, {position};"));
        self.line(format!(
            "and.b32 {place}, {place}, {};",
            immediate(Ty::B32, ring.shard_bytes - 1)
        ));
        let at = self.place(claim, &place);
        self.line(format!(
            "add.s64 {header}, {bytes}, {};",
            i64::from(RingLayout::PADDING) - RingLayout::HEADER as i64
        ));
        self.line(format!(
            "st.global.u64 [{at}+{}], {header};",
            ring.data_at()
        ));
        self.line(format!(
            "shr.u32 {index}, {place}, {};",
            ring.sub_bytes().trailing_zeros()
        ));
        self.line(format!(
            "mad.lo.s32 {index}, {}, {}, {index};",
            claim.shard,
            RingLayout::SUBS
        ));
        self.line(format!("mad.wide.u32 {count}, {index}, 8, {};", claim.base));
        self.publish(&count, ring, bytes);
    }

    /// Adds to a commit count, after everything that was written.
    fn publish(&mut self, count: &str, ring: RingLayout, bytes: &str) {
        self.line(format!(
            "red.release.gpu.global.add.u64 [{count}+{}], {bytes};",
            ring.commits_at()
        ));
    }

    /// Adds a record to the commit count of its sub-buffer, after everything that was written into
    /// it.
    pub(super) fn ring_commit(
        &mut self,
        ring: RingLayout,
        base: Value,
        record: Value,
        size: Option<u32>,
        discard: bool,
        chunks: &[Chunk],
    ) {
        self.write_alone("", record, chunks);
        let (base, record) = (self.operand(base), self.operand(record));
        let (length, bytes) = match size {
            Some(size) => self.sizes(Size::Const(size)),
            None => {
                let length = self.temp(Ty::B64);
                // The header was written by the reservation: length and zero.
                self.line(format!(
                    "ld.global.u64 {length}, [{record}+-{}];",
                    RingLayout::HEADER
                ));
                let bytes = self.record_bytes(&length);
                (length, bytes)
            }
        };
        if discard {
            self.mark_discarded(&record, &length);
        }
        let count = self.count_of(ring, &base, &record);
        self.publish(&count, ring, &bytes);
    }

    /// The same where lanes may commit together.
    ///
    /// Lanes that reserved together have their records in one sub-buffer, side by side. If all who
    /// are here did, the lowest of them commits for all; a lane knows that only if every lane says
    /// so, for one may have reserved again meanwhile. Else everyone commits alone. `bar.warp.sync`
    /// makes the lanes' writes visible to the lane that commits, whose release passes them on (PTX
    /// ISA, memory consistency model: causality order).
    pub(super) fn ring_commit_shared(
        &mut self,
        ring: RingLayout,
        base: Value,
        record: Value,
        reserved: &Reserved,
        discard: bool,
        chunks: &[Chunk],
    ) {
        let need = RingLayout::record_bytes(u64::from(reserved.size));
        let [here, others, lanes] = [(); 3].map(|()| self.temp(Ty::B32));
        let [together, acts] = [(); 2].map(|()| self.temp(Ty::Pred));
        let amount = self.temp(Ty::B64);
        let skip = self.fresh_label("committed");
        if discard {
            let at = self.operand(record);
            self.mark_discarded(&at, &reserved.size.to_string());
        }
        self.line(format!("activemask.b32 {here};"));
        self.line(format!("and.b32 {others}, {here}, {};", reserved.mask));
        self.line(format!("setp.eq.s32 {together}, {others}, {here};"));
        self.line(format!(
            "vote.sync.all.pred {together}, {together}, {here};"
        ));
        if !chunks.is_empty() {
            self.write_chunks(record, need, &here, &together, chunks);
        }
        self.line(format!("bar.warp.sync {here};"));
        self.line(format!("mov.u32 {others}, %lanemask_lt;"));
        self.line(format!("and.b32 {others}, {others}, {here};"));
        self.line(format!("selp.b32 {others}, {others}, 0, {together};"));
        self.line(format!("setp.eq.s32 {acts}, {others}, 0;"));
        self.line(format!("@!{acts} bra {skip};"));
        self.line(format!("popc.b32 {lanes}, {here};"));
        self.line(format!("selp.b32 {lanes}, {lanes}, 1, {together};"));
        self.line(format!("mul.wide.u32 {amount}, {lanes}, {need};"));
        let (base, record) = (self.operand(base), self.operand(record));
        let count = self.count_of(ring, &base, &record);
        self.publish(&count, ring, &amount);
        self.label(&skip);
    }

    /// Writes a record's chunks, by two lanes together where the warp is whole: of each pair of
    /// neighbours the even one writes the first halves of both records, the odd one the second
    /// halves. A store then fills whole sectors of memory instead of halves, and there are half as
    /// many to write. All in `here` agree about `together`.
    fn write_chunks(
        &mut self,
        record: Value,
        need: u64,
        here: &str,
        together: &str,
        chunks: &[Chunk],
    ) {
        let [whole, odd] = [(); 2].map(|()| self.temp(Ty::Pred));
        let (lane, written) = (self.temp(Ty::B32), self.fresh_label("written"));
        self.line(format!("setp.eq.and.s32 {whole}, {here}, -1, {together};"));
        self.write_alone(&format!("@!{whole} "), record, chunks);
        self.line(format!("@!{whole} bra {written};"));
        let (at, step) = (self.temp(Ty::B64), self.temp(Ty::B64));
        let start = self.operand(record);
        self.line(format!("mov.u32 {lane}, %laneid;"));
        self.line(format!("and.b32 {lane}, {lane}, 1;"));
        self.line(format!("setp.ne.s32 {odd}, {lane}, 0;"));
        // Of the even lane's record the first half here, the second half in the odd lane.
        self.line(format!("selp.b64 {step}, {}, 0, {odd};", 16 - need as i64));
        self.line(format!("add.s64 {at}, {start}, {step};"));
        for chunk in chunks {
            let [a, b, c, d] = chunk.words.map(|v| self.in_register(v));
            let given = [(&a, &c), (&b, &d)].map(|(first, second)| {
                let [give, got] = [(); 2].map(|()| self.temp(Ty::B64));
                let [low, high] = [(); 2].map(|()| self.temp(Ty::B32));
                self.line(format!("selp.b64 {give}, {first}, {second}, {odd};"));
                self.line(format!("mov.b64 {{{low}, {high}}}, {give};"));
                for half in [&low, &high] {
                    self.line(format!("shfl.sync.bfly.b32 {half}, {half}, 1, 31, -1;"));
                }
                self.line(format!("mov.b64 {got}, {{{low}, {high}}};"));
                got
            });
            for (place, even, odd_words) in [
                (i64::from(chunk.off), [&a, &b], given.each_ref()),
                (
                    i64::from(chunk.off) + need as i64,
                    given.each_ref(),
                    [&c, &d],
                ),
            ] {
                let words = [0, 1].map(|i| {
                    let word = self.temp(Ty::B64);
                    self.line(format!(
                        "selp.b64 {word}, {}, {}, {odd};",
                        odd_words[i], even[i]
                    ));
                    word
                });
                self.line(format!(
                    "st.global.v2.b64 [{at}+{place}], {{{}, {}}};",
                    words[0], words[1]
                ));
            }
        }
        self.label(&written);
    }

    /// Writes the lane's own chunks where `guard` holds.
    fn write_alone(&mut self, guard: &str, record: Value, chunks: &[Chunk]) {
        for chunk in chunks {
            let [a, b, c, d] = chunk.words;
            self.store_pair(guard, record, chunk.off, [a, b]);
            self.store_pair(guard, record, chunk.off + 16, [c, d]);
        }
    }

    /// Marks the header of a record of `length` bytes, which is written.
    fn mark_discarded(&mut self, record: &str, length: &str) {
        let marked = self.temp(Ty::B64);
        self.line(format!("mov.b64 {marked}, {length};"));
        self.line(format!(
            "or.b64 {marked}, {marked}, {};",
            RingLayout::DISCARDED
        ));
        self.line(format!(
            "st.global.u64 [{record}+-{}], {marked};",
            RingLayout::HEADER
        ));
    }

    /// Address of the commit count of a record's sub-buffer, less [`RingLayout::commits_at`].
    fn count_of(&mut self, ring: RingLayout, base: &str, record: &str) -> String {
        let count = self.temp(Ty::B64);
        self.line(format!("sub.s64 {count}, {record}, {base};"));
        self.line(format!(
            "add.s64 {count}, {count}, {};",
            -((ring.data_at() + RingLayout::HEADER) as i64)
        ));
        self.line(format!(
            "shr.u64 {count}, {count}, {};",
            ring.sub_bytes().trailing_zeros()
        ));
        self.line(format!("mad.lo.s64 {count}, {count}, 8, {base};"));
        count
    }
}
