//! `bpf_user_ringbuf_drain` and what its callback asks of a sample: the algorithm of
//! [`UserRingLayout`].
//!
//! A callback's dynptr is one register: where in the ring the payload begins, and its length. So
//! there is nothing in memory that could change while the callback holds it.

use warpbpf_abi::costs::WRITTEN_OUT_BYTES;
use warpbpf_abi::layout::{MapLayout, UserRingLayout};
use warpbpf_abi::maps::{BPF_RB_WAKEUPS, E2BIG, EBUSY, EINVAL};
use warpbpf_ebpf::Width;
use warpbpf_verify::{ArgFact, CallFact, Instance, Place, Region};

use super::bulk::Overlap;
use super::calls::Loop;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Mem, Op, Order, Origin, Rmw, Ty, Value};

/// In the counter of the loop: calls made are in the upper half, discarded records skipped in the
/// lower.
const CALL: u64 = 1 << 32;

/// A ring that is being drained.
struct Drain {
    map: u32,
    base: Value,
    layout: UserRingLayout,
    /// The host has filled it to there.
    end: Value,
    /// What the lane has put into the lock.
    taken: Value,
}

/// A record that stands next.
struct Next {
    /// Its position.
    at: Value,
    /// Its payload from the first byte of the ring's data on.
    payload: Value,
    length: Value,
    /// The position behind it.
    behind: Value,
}

impl<'a> Translator<'a> {
    fn user_ring_of(&self, call: &CallFact) -> Result<UserRingLayout, CodegenError> {
        let map = self.map_arg(call)?;
        match self.binding(map)?.layout {
            MapLayout::UserRing(ring) => Ok(ring),
            MapLayout::Array(_)
            | MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::PerThread(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_) => self.wrong_layout(call, map),
        }
    }

    pub(super) fn user_ring_drain(
        &mut self,
        instance: &'a Instance,
        call: &CallFact,
    ) -> Result<Value, CodegenError> {
        let layout = self.user_ring_of(call)?;
        let map = self.map_arg(call)?;
        let base = self.map_base(call)?;
        let context = self.arg(2);
        // Until the ring is taken a way out leads to `early`, after that to `drained`, where it is
        // given back.
        let drained = self.loop_blocks(Ty::B64);
        let early = self.loop_around(&drained);
        let unknown = self.bin_const(BinOp::And, self.arg(3), !BPF_RB_WAKEUPS);
        let unknown = self.cmp_const(Cond::Ne, unknown, 0);
        self.at = self.leave_if(&early, unknown, EINVAL as u64);
        let lock = self.control(map, base, UserRingLayout::LOCK);
        let now = self.push(Ty::B64, Op::Timer);
        let now = self.bin_const(BinOp::Or, now, 1);
        let held = self.cmp_const(Cond::Ne, lock, 0);
        let age = self.bin(BinOp::Sub, now, lock);
        // Multiprocessors read the timer at slightly different moments. What is far ahead was taken
        // by nobody who drains now.
        let stale = UserRingLayout::STALE_NS;
        let age = self.bin_const(BinOp::Add, age, stale);
        let young = self.cmp_const(Cond::Ult, age, 2 * stale);
        let taken = self.bin(BinOp::And, held, young);
        self.at = self.leave_if(&early, taken, EBUSY as u64);
        let end = self.filled(base);
        let start = self.control(map, base, UserRingLayout::CONSUMER);
        let empty = self.cmp(Cond::Eq, start, end);
        self.at = self.leave_if(&early, empty, 0);
        let found = self.swap(map, base, UserRingLayout::LOCK, lock, now);
        let lost = self.cmp(Cond::Ne, found, lock);
        self.at = self.leave_if(&early, lost, EBUSY as u64);
        self.count(map, base, UserRingLayout::TAKEN_OVER, held);
        // What the host wrote before it moved the producer's position is seen from here on, by
        // plain loads too.
        self.push_effect(Op::Membar);
        let ring = Drain {
            map,
            base,
            layout,
            end,
            taken: now,
        };
        self.enter(&drained);
        let calls = self.bin_const(BinOp::Shr, drained.index, 32);
        let next = self.next_sample(&ring, &drained, calls)?;
        let start = self.bin_const(BinOp::Shl, next.payload, 32);
        let dynptr = self.bin(BinOp::Or, start, next.length);
        let stop = self.inline(instance, &[dynptr, context])?;
        let calls = self.bin_const(BinOp::Add, calls, 1);
        self.move_behind(&ring, &drained, &next, calls);
        let again = self.bin_const(BinOp::Add, drained.index, CALL);
        self.go_round(&drained, stop, again, calls);
        let result = self.finish(drained);
        let none = self.constant(0);
        self.swap(map, base, UserRingLayout::LOCK, now, none);
        self.leave(&early, result);
        Ok(self.finish(early))
    }

    /// The record that stands next. Leaves where there is none, or enough was done; goes round
    /// where it was discarded.
    fn next_sample(&mut self, ring: &Drain, l: &Loop, calls: Value) -> Result<Next, CodegenError> {
        let at = self.control(ring.map, ring.base, UserRingLayout::CONSUMER);
        let left = self.bin(BinOp::Sub, ring.end, at);
        // Signed: another lane may have gone on to what was written since.
        let none = self.cmp_const(Cond::Sle, left, 0);
        let called = self.cmp_const(Cond::Uge, calls, UserRingLayout::SAMPLES.into());
        let skipped = self.trunc(l.index);
        let skipped = self.cmp_const(Cond::Uge, skipped, UserRingLayout::SKIPPED.into());
        let enough = self.bin(BinOp::Or, called, skipped);
        let done = self.bin(BinOp::Or, none, enough);
        self.at = self.leave_with(l, done, calls);
        // Whatever the positions hold, the header lies in the ring.
        let bytes = u64::from(ring.layout.bytes);
        let in_ring = self.bin_const(BinOp::And, at, (bytes - 1) & !(UserRingLayout::ALIGN - 1));
        let header = self.bin(BinOp::Add, ring.base, in_ring);
        let header = self.push(
            Ty::B32,
            Op::Load {
                mem: Mem::Record,
                width: Width::W32,
                signed: false,
                addr: header,
                off: UserRingLayout::DATA as i32,
            },
        );
        let flags = UserRingLayout::BUSY | UserRingLayout::DISCARDED;
        let length = self.bin_const(BinOp::And, header, u64::from(!flags));
        let length = self.zext(length);
        let round = UserRingLayout::HEADER + UserRingLayout::ALIGN - 1;
        let total = self.bin_const(BinOp::Add, length, round);
        let total = self.bin_const(BinOp::And, total, !(UserRingLayout::ALIGN - 1));
        let room = self.constant(bytes);
        let room = self.bin(BinOp::Sub, room, in_ring);
        let room = self.bin(BinOp::UMin, room, left);
        let broken = self.cmp(Cond::Ugt, total, room);
        self.skip_broken(ring, l, at, broken);
        let next = Next {
            at,
            payload: self.bin_const(BinOp::Add, in_ring, UserRingLayout::HEADER),
            length,
            behind: self.bin(BinOp::Add, at, total),
        };
        let discarded = self.bin_const(BinOp::And, header, UserRingLayout::DISCARDED.into());
        let discarded = self.cmp_const(Cond::Ne, discarded, 0);
        let (skip, keep) = (self.func.add_block(), self.func.add_block());
        self.branch(discarded, skip, keep);
        self.at = skip;
        self.move_behind(ring, l, &next, calls);
        let again = self.bin_const(BinOp::Add, l.index, 1);
        self.repeat(l, again);
        self.at = keep;
        let busy = self.bin_const(BinOp::And, header, UserRingLayout::BUSY.into());
        let busy = self.cmp_const(Cond::Ne, busy, 0);
        self.at = self.leave_with(l, busy, calls);
        Ok(next)
    }

    /// Where no record can be: all that the host has written until now is lost, counted once, and
    /// told. What it writes from now on begins at a record.
    fn skip_broken(&mut self, ring: &Drain, l: &Loop, at: Value, broken: Value) {
        let (skip, keep) = (self.func.add_block(), self.func.add_block());
        self.branch(broken, skip, keep);
        self.at = skip;
        let found = self.swap(ring.map, ring.base, UserRingLayout::CONSUMER, at, ring.end);
        let mine = self.cmp(Cond::Eq, found, at);
        self.count(ring.map, ring.base, UserRingLayout::BROKEN, mine);
        let invalid = self.constant(EINVAL as u64);
        self.leave(l, invalid);
        self.at = keep;
    }

    /// Gives a record's room back. Leaves with `calls` if another lane has taken the ring over.
    fn move_behind(&mut self, ring: &Drain, l: &Loop, next: &Next, calls: Value) {
        // That lane may be at this record still, and will move behind it.
        let lock = self.control(ring.map, ring.base, UserRingLayout::LOCK);
        let lost = self.cmp(Cond::Ne, lock, ring.taken);
        self.at = self.leave_with(l, lost, calls);
        let at = UserRingLayout::CONSUMER;
        let found = self.swap(ring.map, ring.base, at, next.at, next.behind);
        let lost = self.cmp(Cond::Ne, found, next.at);
        self.at = self.leave_with(l, lost, calls);
    }

    /// A control word that lanes move.
    fn control(&mut self, map: u32, base: Value, at: u64) -> Value {
        let origin = Origin { map, offset: None };
        self.control_word(Mem::Map(origin), base, at)
    }

    /// The host has filled the ring to there.
    fn filled(&mut self, base: Value) -> Value {
        self.control_word(Mem::Clock, base, UserRingLayout::PRODUCER)
    }

    fn control_word(&mut self, mem: Mem, base: Value, at: u64) -> Value {
        self.push(
            Ty::B64,
            Op::Load {
                mem,
                width: Width::W64,
                signed: false,
                addr: base,
                off: at as i32,
            },
        )
    }

    /// A CAS of a control word; gives what was there.
    fn swap(&mut self, map: u32, base: Value, at: u64, old: Value, new: Value) -> Value {
        self.push(
            Ty::B64,
            Op::Atomic {
                origin: Some(Origin { map, offset: None }),
                op: Rmw::Cas,
                order: Order::AcqRel,
                width: Width::W64,
                addr: base,
                off: at as i32,
                value: new,
                compare: Some(old),
                guard: None,
            },
        )
    }

    fn count(&mut self, map: u32, base: Value, at: u64, guard: Value) {
        let value = self.constant(1);
        self.push_effect(Op::Atomic {
            origin: Some(Origin { map, offset: None }),
            op: Rmw::Add,
            order: Order::Relaxed,
            width: Width::W64,
            addr: base,
            off: at as i32,
            value,
            compare: None,
            guard: Some(guard),
        });
    }

    /// Address of the payload's byte 0, and its length.
    pub(super) fn sample(
        &mut self,
        call: &CallFact,
        arg: usize,
    ) -> Result<(Value, Value), CodegenError> {
        self.user_ring_of(call)?;
        let base = self.map_base(call)?;
        let dynptr = self.arg(arg);
        let start = self.bin_const(BinOp::Shr, dynptr, 32);
        let at = self.bin(BinOp::Add, base, start);
        let at = self.bin_const(BinOp::Add, at, UserRingLayout::DATA);
        Ok((at, self.bin_const(BinOp::And, dynptr, u32::MAX.into())))
    }

    /// `bpf_dynptr_data` of a sample.
    pub(super) fn sample_data(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let (at, length) = self.sample(call, 0)?;
        // Constants on each path.
        let (offset, size) = (self.u32_arg(call, 1), self.u32_arg(call, 2));
        let end = self.bin(BinOp::Add, offset, size);
        let inside = self.cmp(Cond::Uge, length, end);
        let at = self.bin(BinOp::Add, at, offset);
        let null = self.constant(0);
        Ok(self.select(inside, at, null))
    }

    /// `bpf_dynptr_read` of a sample.
    pub(super) fn sample_read(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let to = self.pointer_arg(call, 0)?;
        let ArgFact::Scalar {
            value: Some(size), ..
        } = call.args[1]
        else {
            return self.missing("a constant size");
        };
        let layout = self.user_ring_of(call)?;
        let map = self.map_arg(call)?;
        let (at, length) = self.sample(call, 2)?;
        // `__u32 offset`: the upper half is not part of it.
        let offset = self.trunc(self.arg(3));
        let offset = self.zext(offset);
        let flags = self.arg(4);
        let plain = self.cmp_const(Cond::Eq, flags, 0);
        if size > WRITTEN_OUT_BYTES {
            let end = self.bin_const(BinOp::Add, offset, size);
            let inside = self.cmp(Cond::Ule, end, length);
            let from = Spot {
                place: sample_place(map, call.args[3]),
                pointer: self.bin(BinOp::Add, at, offset),
                off: 0,
            };
            let fine = self.bin(BinOp::And, plain, inside);
            let (copy, zero, after) = (
                self.func.add_block(),
                self.func.add_block(),
                self.func.add_block(),
            );
            self.branch(fine, copy, zero);
            self.at = zero;
            self.zero_long(to, size)?;
            self.jump(after, Vec::new());
            self.at = copy;
            self.copy_long(from, to, size, Overlap::Possible)?;
            self.jump(after, Vec::new());
            self.at = after;
            return Ok(self.sample_result(plain, inside));
        }
        let (words, inside) = if size > layout.max_payload() {
            let zeroes = (0..size.div_ceil(8)).map(|_| self.constant(0)).collect();
            let never = self.cmp_const(Cond::Ugt, length, layout.bytes.into());
            (zeroes, never)
        } else {
            let end = self.bin_const(BinOp::Add, offset, size);
            let inside = self.cmp(Cond::Ule, end, length);
            let from = self.bin(BinOp::Add, at, offset);
            // The first bytes of the map are there in any case.
            let base = self.map_base(call)?;
            let from = self.select(inside, from, base);
            let spot = Spot {
                place: sample_place(map, call.args[3]),
                pointer: from,
                off: 0,
            };
            (self.load_words(spot, size)?, inside)
        };
        let fine = self.bin(BinOp::And, plain, inside);
        let none = self.constant(0);
        let words: Vec<Value> = words
            .into_iter()
            .map(|word| self.select(fine, word, none))
            .collect();
        self.store_words(to, size, &words)?;
        Ok(self.sample_result(plain, inside))
    }

    /// What `bpf_dynptr_read` of a sample gives.
    fn sample_result(&mut self, plain: Value, inside: Value) -> Value {
        let none = self.constant(0);
        let (outside, invalid) = (self.constant(E2BIG as u64), self.constant(EINVAL as u64));
        let result = self.select(inside, none, outside);
        self.select(plain, result, invalid)
    }
}

/// A place in a sample of `map`, at an offset that is an argument.
fn sample_place(map: u32, offset: ArgFact) -> Place {
    let align = match offset {
        ArgFact::Scalar {
            value: Some(offset),
            ..
        } => 1 << (offset | 8).trailing_zeros(),
        _ => 1,
    };
    Place {
        region: Region::Record { map },
        offset: None,
        align,
    }
}
