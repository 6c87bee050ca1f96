//! Writes records with few wide stores. A lane's record lies apart from its neighbours', so each
//! store of a warp touches as many sectors of memory as there are lanes, however narrow it is: what
//! counts is their number.
//!
//! Two steps. The header goes from the reservation to the commits, where the payload is being
//! written too, if every commit knows the size. Then, within a block, stores to a record wait until
//! something could read it or publish it; those that wait together are packed into words of 8 bytes
//! and the words into pairs of 16 ([`RingLayout::ALIGN`]). Pairs that are neighbours at the commit
//! are left to it: there lanes write whole sectors for each other.
//!
//! A record belongs to one lane between its reservation and its commit, so nobody sees in which
//! order it is written.

use std::collections::HashMap;

use warpbpf_abi::layout::RingLayout;
use warpbpf_ebpf::Width;
use warpbpf_flow::Entity;

use crate::ir::{BinOp, Chunk, Effect, Func, Inst, Mem, Op, Size, Ty, Value};

/// Bytes that memory writes at once.
const SECTOR: u64 = 32;

/// Runs the pass.
pub fn run(func: &mut Func) {
    defer_headers(func);
    // What may follow a payload of known size in its record, by the reservation's value.
    let ends: HashMap<Value, Option<u32>> = func
        .blocks
        .iter()
        .flat_map(|block| &block.insts)
        .filter_map(|inst| match (&inst.op, inst.result) {
            (Op::RingReserve { size, .. }, Some(record)) => Some((
                record,
                match size {
                    Size::Const(size) => Some(*size),
                    Size::Value(_) => None,
                },
            )),
            _ => None,
        })
        .collect();
    if ends.is_empty() {
        return;
    }
    for block in 0..func.blocks.len() {
        let insts = std::mem::take(&mut func.blocks[block].insts);
        let mut stores = Stores {
            func,
            ends: &ends,
            waiting: Vec::new(),
            out: Vec::with_capacity(insts.len()),
        };
        for inst in insts {
            stores.inst(inst);
        }
        stores.flush();
        let out = stores.out;
        func.blocks[block].insts = out;
    }
}

/// Moves headers from reservations to commits, where that is possible.
fn defer_headers(func: &mut Func) {
    let mut deferred: HashMap<Value, u32> = HashMap::new();
    for block in &func.blocks {
        for inst in &block.insts {
            if let (
                Op::RingReserve {
                    ring,
                    size: Size::Const(size),
                    header: true,
                    ..
                },
                Some(record),
            ) = (&inst.op, inst.result)
                && RingLayout::record_bytes(u64::from(*size)) <= ring.sub_bytes()
                && only_known_commits(func, record)
            {
                deferred.insert(record, *size);
            }
        }
    }
    if deferred.is_empty() {
        return;
    }
    for block in 0..func.blocks.len() {
        let mut out = Vec::with_capacity(func.blocks[block].insts.len());
        for mut inst in std::mem::take(&mut func.blocks[block].insts) {
            match &mut inst.op {
                Op::RingReserve { header, .. }
                    if inst.result.is_some_and(|v| deferred.contains_key(&v)) =>
                {
                    *header = false;
                }
                Op::RingCommit {
                    record, discard, ..
                } if deferred.contains_key(record) => {
                    let flags = if std::mem::take(discard) {
                        RingLayout::DISCARDED
                    } else {
                        0
                    };
                    let header = u64::from(deferred[record] | flags);
                    let value = func.add_value(Ty::B64);
                    out.push(Inst {
                        result: Some(value),
                        op: Op::Const(header),
                    });
                    out.push(Inst {
                        result: None,
                        op: Op::Store {
                            mem: Mem::Record,
                            width: Width::W64,
                            addr: *record,
                            off: -(RingLayout::HEADER as i32),
                            value,
                        },
                    });
                }
                _ => {}
            }
            out.push(inst);
        }
        func.blocks[block].insts = out;
    }
}

/// Every commit of the record that `reserve` defines names that value and its size: the value goes
/// nowhere from where another commit could get it.
fn only_known_commits(func: &Func, reserve: Value) -> bool {
    // The address and what is computed from it.
    let mut derived = vec![false; func.types.len()];
    derived[reserve.index()] = true;
    loop {
        let mut changed = false;
        for block in &func.blocks {
            for edge in block.term.edges() {
                // Parameters mix it with other values: give up.
                if edge.args.iter().any(|v| derived[v.index()]) {
                    return false;
                }
            }
            for inst in &block.insts {
                match (&inst.op, inst.result) {
                    (Op::Bin(..) | Op::Un(..) | Op::Select(..) | Op::Pack(..), Some(result)) => {
                        let mut from = false;
                        inst.op.for_each_operand(|v| from |= derived[v.index()]);
                        changed |= from && !std::mem::replace(&mut derived[result.index()], true);
                    }
                    // Spilled: it may come back from there.
                    (Op::Store { value, .. } | Op::Atomic { value, .. }, _)
                        if derived[value.index()] =>
                    {
                        return false;
                    }
                    (Op::RingCommit { record, size, .. }, _)
                        if derived[record.index()] && (*record != reserve || size.is_none()) =>
                    {
                        return false;
                    }
                    _ => {}
                }
            }
        }
        if !changed {
            return true;
        }
    }
}

/// A store that waits.
struct Waiting {
    record: Value,
    off: i32,
    width: Width,
    value: Value,
}

impl Waiting {
    fn end(&self) -> i32 {
        self.off + self.width.bytes() as i32
    }
}

struct Stores<'a> {
    func: &'a mut Func,
    ends: &'a HashMap<Value, Option<u32>>,
    waiting: Vec<Waiting>,
    out: Vec<Inst>,
}

impl Stores<'_> {
    fn inst(&mut self, inst: Inst) {
        match inst.op {
            Op::Store {
                mem: Mem::Record,
                width,
                addr: record,
                off,
                value,
            } if self.ends.contains_key(&record) && off % width.bytes() as i32 == 0 => {
                self.wait(Waiting {
                    record,
                    off,
                    width,
                    value,
                });
                return;
            }
            // Neither reads a record nor orders memory.
            Op::Store {
                mem: Mem::Local | Mem::Map(_) | Mem::Memory,
                ..
            }
            | Op::Load {
                mem:
                    Mem::Local
                    | Mem::Map(_)
                    | Mem::Memory
                    | Mem::Key
                    | Mem::Env
                    | Mem::Clock
                    | Mem::Control,
                ..
            }
            | Op::Timer => {}
            ref op if op.effect() == Effect::Pure => {}
            Op::RingCommit { .. } => {
                let from = self.out.len();
                self.flush();
                let mut inst = inst;
                self.give_chunks(from, &mut inst.op);
                self.out.push(inst);
                return;
            }
            _ => self.flush(),
        }
        self.out.push(inst);
    }

    fn wait(&mut self, new: Waiting) {
        let overlaps =
            |old: &Waiting| old.record == new.record && old.off < new.end() && new.off < old.end();
        let covers = |old: &Waiting| new.off <= old.off && old.end() <= new.end();
        if self.waiting.iter().any(|old| overlaps(old) && !covers(old)) {
            self.flush();
        }
        // What is overwritten before anybody can see it need not be written.
        self.waiting.retain(|old| !overlaps(old));
        self.waiting.push(new);
    }

    /// Writes what waits.
    fn flush(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        while let Some(record) = waiting.first().map(|w| w.record) {
            let (mut of_record, others): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|w| w.record == record);
            waiting = others;
            of_record.sort_by_key(|w| w.off);
            self.write(record, &of_record);
        }
    }

    /// Leaves the stores behind `from` that fill sectors of memory to the commit, whose lanes write
    /// them together. Where the size of records is no multiple of a sector, records do not fill
    /// any.
    fn give_chunks(&mut self, from: usize, commit: &mut Op) {
        let Op::RingCommit {
            record,
            size: Some(size),
            shared: true,
            chunks,
            ..
        } = commit
        else {
            return;
        };
        if !RingLayout::record_bytes(u64::from(*size)).is_multiple_of(SECTOR) {
            return;
        }
        let mut i = from;
        while i + 1 < self.out.len() {
            match (&self.out[i].op, &self.out[i + 1].op) {
                (
                    &Op::StorePair {
                        addr,
                        off,
                        values: [a, b],
                    },
                    &Op::StorePair {
                        addr: other,
                        off: next,
                        values: [c, d],
                    },
                ) if addr == *record
                    && other == addr
                    && next == off + 16
                    && (i64::from(off) + RingLayout::HEADER as i64).rem_euclid(SECTOR as i64)
                        == 0 =>
                {
                    chunks.push(Chunk {
                        off,
                        words: [a, b, c, d],
                    });
                    self.out.drain(i..i + 2);
                }
                _ => i += 1,
            }
        }
    }

    /// Writes a record's stores, sorted and disjoint.
    fn write(&mut self, record: Value, stores: &[Waiting]) {
        // Bytes from here on belong to the record, but not to its payload.
        let end = self.ends[&record].map(|end| end as i32);
        let mut words = Vec::new();
        let mut rest = stores;
        while let Some(first) = rest.first() {
            let word = first.off.div_euclid(8) * 8;
            let count = rest.iter().take_while(|w| w.off < word + 8).count();
            let (these, others) = rest.split_at(count);
            rest = others;
            if let Some(value) = self.word(record, word, these, end) {
                words.push((word, value));
            }
        }
        let mut ops = Vec::with_capacity(words.len());
        let mut i = 0;
        while let Some(&(off, value)) = words.get(i) {
            i += 1;
            // The header, at -8, is the first half of a pair.
            let first = off.rem_euclid(16) == 8;
            let partner = match words.get(i) {
                Some(&(next, value)) if first && next == off + 8 => {
                    i += 1;
                    Some(value)
                }
                _ if first && end.is_some_and(|end| end <= off + 8) => {
                    Some(self.push(Ty::B64, Op::Const(0)))
                }
                _ => None,
            };
            ops.push(match partner {
                Some(partner) => Op::StorePair {
                    addr: record,
                    off,
                    values: [value, partner],
                },
                None => store(record, Width::W64, off, value),
            });
        }
        self.out
            .extend(ops.into_iter().map(|op| Inst { result: None, op }));
    }

    /// The value of the 8 bytes at `word`, if the stores there make one; else writes them in up to
    /// two parts or more.
    fn word(
        &mut self,
        record: Value,
        word: i32,
        stores: &[Waiting],
        end: Option<i32>,
    ) -> Option<Value> {
        if let [only] = stores
            && only.width == Width::W64
        {
            return Some(only.value);
        }
        let middle = stores.partition_point(|w| w.off < word + 4);
        let halves = [(word, &stores[..middle]), (word + 4, &stores[middle..])];
        let values = halves.map(|(half, stores)| self.half(half, stores, end));
        if let [Some(low), Some(high)] = values {
            return Some(self.push(Ty::B64, Op::Pack(low, high)));
        }
        for ((half, stores), value) in halves.into_iter().zip(values) {
            let parts = match value {
                // Only the end of the record.
                Some(_) if stores.is_empty() => continue,
                Some(value) => vec![store(record, Width::W32, half, value)],
                None => stores
                    .iter()
                    .map(|w| store(record, w.width, w.off, w.value))
                    .collect(),
            };
            self.out
                .extend(parts.into_iter().map(|op| Inst { result: None, op }));
        }
        None
    }

    /// The value of the 4 bytes at `half`, if the stores there and the end of the payload make one.
    fn half(&mut self, half: i32, stores: &[Waiting], end: Option<i32>) -> Option<Value> {
        if let [only] = stores
            && only.width == Width::W32
        {
            return Some(only.value);
        }
        let mut at = half;
        for store in stores {
            if store.off != at {
                return None;
            }
            at = store.end();
        }
        if at < half + 4 && end.is_none_or(|end| at < end) {
            return None;
        }
        let mut sum = None;
        for store in stores {
            let shift = (store.off - half) as u32 * 8;
            let bits = store.width.bits();
            let mut part = store.value;
            // The uppermost part loses its other bits by the shift.
            if shift + bits < 32 {
                let mask = self.push(Ty::B32, Op::Const((1 << bits) - 1));
                part = self.push(Ty::B32, Op::Bin(BinOp::And, part, mask));
            }
            if shift > 0 {
                let by = self.push(Ty::B32, Op::Const(shift.into()));
                part = self.push(Ty::B32, Op::Bin(BinOp::Shl, part, by));
            }
            sum = Some(match sum {
                None => part,
                Some(sum) => self.push(Ty::B32, Op::Bin(BinOp::Or, sum, part)),
            });
        }
        Some(sum.unwrap_or_else(|| self.push(Ty::B32, Op::Const(0))))
    }

    fn push(&mut self, ty: Ty, op: Op) -> Value {
        let v = self.func.add_value(ty);
        self.out.push(Inst {
            result: Some(v),
            op,
        });
        v
    }
}

fn store(record: Value, width: Width, off: i32, value: Value) -> Op {
    Op::Store {
        mem: Mem::Record,
        width,
        addr: record,
        off,
        value,
    }
}
