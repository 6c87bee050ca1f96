//! `bpf_for_each_map_elem` over a hash: its slots one after the other, and in each the node that it
//! stands for.

use warpbpf_abi::layout::{HashLayout, LruLayout, MapLayout};
use warpbpf_ebpf::Width;
use warpbpf_verify::Instance;

use super::calls::Loop;
use super::translator::{MAP_POINTER, Translator};
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Mem, Op, Origin, Ty, Value};

impl<'a> Translator<'a> {
    /// Calls back for each published node, as often as the map has entries at most: nodes may come
    /// and go meanwhile.
    pub(super) fn for_each_node(
        &mut self,
        instance: &'a Instance,
        l: Loop,
        map: u32,
        context: Value,
    ) -> Result<Value, CodegenError> {
        let binding = self.binding(map)?;
        let base = self.push(Ty::B64, Op::Slot(binding.slot));
        let (slots, stride, first, entries) = match binding.layout {
            MapLayout::Hash(h) => (h.slots(), h.slot_stride(), HashLayout::SLOTS, h.max_entries),
            MapLayout::Lru(h) => (h.slots(), 8, LruLayout::SLOTS, h.max_entries),
            MapLayout::Array(_)
            | MapLayout::PerThread(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => return self.missing("a map with nodes"),
        };
        // The slot in the lower half of the counter, the calls made in the upper: one parameter
        // serves.
        self.enter(&l);
        let slot = self.trunc(l.index);
        let calls = self.bin_const(BinOp::Shr, l.index, 32);
        let at_end = self.cmp_const(Cond::Uge, slot, slots);
        let narrow = self.trunc(calls);
        let enough = self.cmp_const(Cond::Uge, narrow, entries.into());
        let done = self.bin(BinOp::Or, at_end, enough);
        self.at = self.leave_with(&l, done, calls);
        let wide = self.zext(slot);
        let skip = self.bin_const(BinOp::Mul, wide, stride);
        let address = self.bin(BinOp::Add, base, skip);
        let origin = Origin { map, offset: None };
        let word = self.push(
            Ty::B64,
            Op::Load {
                // Acquire: who sees the slot sees its node.
                mem: Mem::MapSlot(origin),
                width: Width::W64,
                signed: false,
                addr: address,
                off: first as i32,
            },
        );
        let nothing = match binding.layout {
            MapLayout::Lru(_) => {
                let node = self.bin_const(BinOp::And, word, LruLayout::NODE_MASK);
                self.cmp_const(Cond::Eq, node, 0)
            }
            _ => {
                // A claim has the bit of a dead slot too.
                let empty = self.cmp_const(Cond::Eq, word, 0);
                let bit = match binding.layout {
                    MapLayout::Hash(h) if h.dense => HashLayout::GONE,
                    _ => HashLayout::DEAD,
                };
                let dead = self.bin_const(BinOp::And, word, bit);
                let dead = self.cmp_const(Cond::Ne, dead, 0);
                self.bin(BinOp::Or, empty, dead)
            }
        };
        let (skipped, found) = (self.func.add_block(), self.func.add_block());
        self.branch(nothing, skipped, found);
        self.at = skipped;
        let next = self.bin_const(BinOp::Add, l.index, 1);
        self.repeat(&l, next);
        self.at = found;
        let (key, value) = self.node(&binding.layout, base, address, word)?;
        let map = self.constant(MAP_POINTER);
        let stop = self.inline(instance, &[map, key, value, context])?;
        let next = self.bin_const(BinOp::Add, l.index, 1 << 32 | 1);
        let made = self.bin_const(BinOp::Add, calls, 1);
        self.go_round(&l, stop, next, made);
        Ok(self.finish(l))
    }

    /// Addresses of the key and of this lane's value in the node of a slot's word; `slot` is the
    /// slot's, less where slots begin.
    fn node(
        &mut self,
        layout: &MapLayout,
        base: Value,
        slot: Value,
        word: Value,
    ) -> Result<(Value, Value), CodegenError> {
        let in_pool = |t: &mut Self, mask: u64, less: u64, stride: u64, first: u64| {
            let number = t.bin_const(BinOp::And, word, mask);
            let number = t.bin_const(BinOp::Sub, number, less);
            let skip = t.bin_const(BinOp::Mul, number, stride);
            let node = t.bin(BinOp::Add, base, skip);
            t.bin_const(BinOp::Add, node, first)
        };
        let (key, key_bytes, copies, stride) = match layout {
            // The key is in the word: its address stands for it.
            MapLayout::Hash(h) if h.dense => {
                let key = self.bin_const(BinOp::Add, slot, HashLayout::SLOTS);
                (key, HashLayout::DENSE_VALUE, 1, HashLayout::DENSE_VALUE)
            }
            MapLayout::Hash(h) => {
                let pool = in_pool(
                    self,
                    HashLayout::PLACE,
                    HashLayout::FIRST_NODE,
                    h.node_stride(),
                    h.nodes_at(),
                );
                let key = if h.homes() {
                    let home = self.bin_const(BinOp::Add, slot, HashLayout::SLOTS + 8);
                    let place = self.bin_const(BinOp::And, word, HashLayout::PLACE);
                    let is_home = self.cmp_const(Cond::Eq, place, HashLayout::HOME);
                    self.select(is_home, home, pool)
                } else {
                    pool
                };
                (key, h.key_stride(), h.copies, h.value_stride())
            }
            MapLayout::Lru(h) => {
                let first = h.nodes_at() + LruLayout::KEY;
                let key = in_pool(self, LruLayout::NODE_MASK, 1, h.node_stride(), first);
                (key, h.key_stride(), h.copies, h.value_stride())
            }
            MapLayout::Array(_)
            | MapLayout::PerThread(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => return self.missing("a map with nodes"),
        };
        let value = self.bin_const(BinOp::Add, key, key_bytes);
        if copies == 1 {
            return Ok((key, value));
        }
        let copy = self.own_copy(copies);
        let skip = self.bin_const(BinOp::Mul, copy, stride);
        Ok((key, self.bin(BinOp::Add, value, skip)))
    }
}
