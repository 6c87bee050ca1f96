//! Keys that callbacks of `bpf_for_each_map_elem` get a pointer to although they are nowhere in
//! memory: indices of arrays, and keys of dense slots, of which memory has what is left of their
//! hash.

use warpbpf_abi::layout::{HASH_INVERSE, HashLayout, MapLayout};
use warpbpf_ebpf::Width;

use super::spot::Spot;
use super::translator::{NOT_NULL, Translator};
use crate::error::CodegenError;
use crate::ir::{BinOp, Mem, Op, Origin, Ty, Value};

/// Where a map's keys are, and so what a pointer to one is.
pub(super) enum Keys {
    /// An address.
    InMemory,
    /// See [`Translator::index_bytes`].
    Index,
    /// See [`Translator::dense_bytes`].
    Dense(HashLayout),
}

impl Translator<'_> {
    /// Where a map's keys are.
    pub(super) fn keys(&self, map: u32) -> Result<Keys, CodegenError> {
        Ok(match self.binding(map)?.layout {
            MapLayout::Hash(layout) if layout.dense => Keys::Dense(layout),
            MapLayout::Hash(_) | MapLayout::Lru(_) => Keys::InMemory,
            MapLayout::Array(_)
            | MapLayout::PerThread(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => Keys::Index,
        })
    }

    /// A read through the pointer to an array's key. Such keys are nowhere in memory: the pointer
    /// to byte `n` of the key is the number `key * 8 + n`, above null.
    pub(super) fn index_bytes(&mut self, spot: Spot, width: Width, signed: bool) -> Value {
        let known = spot.place.offset.filter(|o| (0..4).contains(o));
        let start = i64::from(spot.off) - known.unwrap_or(0) - NOT_NULL as i64;
        let at = self.bin_const(BinOp::Add, spot.pointer, start as u64);
        let index = self.bin_const(BinOp::Shr, at, 3);
        let index = self.trunc(index);
        let bytes = match known {
            Some(0) => index,
            Some(n) => self.bin_const(BinOp::Shr, index, n as u64 * 8),
            None => {
                let n = self.trunc(at);
                let n = self.bin_const(BinOp::And, n, 7);
                let bits = self.bin_const(BinOp::Mul, n, 8);
                self.bin(BinOp::Shr, index, bits)
            }
        };
        self.extend(bytes, width, signed)
    }

    /// A read through the pointer to a key of a dense slot: the pointer to byte `n` of the key is
    /// the slot's address plus `n`. The slot is the key's for good, so its word says the key
    /// whenever it is read.
    pub(super) fn dense_bytes(
        &mut self,
        spot: Spot,
        map: u32,
        layout: &HashLayout,
        width: Width,
        signed: bool,
    ) -> Result<Value, CodegenError> {
        let binding = self.binding(map)?;
        let base = self.push(Ty::B64, Op::Slot(binding.slot));
        let known = spot.place.offset.filter(|o| (0..8).contains(o));
        let start = i64::from(spot.off) - known.unwrap_or(0);
        let at = self.bin_const(BinOp::Add, spot.pointer, start as u64);
        let slot = match known {
            Some(_) => at,
            None => self.bin_const(BinOp::And, at, !7),
        };
        let word = self.push(
            Ty::B64,
            Op::Load {
                mem: Mem::MapSlot(Origin { map, offset: None }),
                width: Width::W64,
                signed: false,
                addr: slot,
                off: 0,
            },
        );
        let place = self.bin(BinOp::Sub, slot, base);
        let place = self.bin_const(BinOp::Sub, place, HashLayout::SLOTS);
        let stride = HashLayout::DENSE_STRIDE.trailing_zeros();
        let number = self.bin_const(BinOp::Shr, place, stride.into());
        let distance = self.bin_const(BinOp::Shr, word, HashLayout::DISTANCE.into());
        let most = u64::from(HashLayout::PROBES) - 1;
        let distance = self.bin_const(BinOp::And, distance, most);
        let first = self.bin(BinOp::Sub, number, distance);
        let first = self.bin_const(BinOp::And, first, layout.slots() - 1);
        let rest = self.bin_const(BinOp::Shr, word, HashLayout::REST.into());
        let rest = self.bin_const(BinOp::Shl, rest, layout.slot_bits().into());
        let hash = self.bin(BinOp::Or, rest, first);
        // As `warpbpf_abi::layout::unhash` does.
        let unmixed = |t: &mut Self, hash: Value| {
            let upper = t.bin_const(BinOp::Shr, hash, 32);
            let hash = t.bin(BinOp::Xor, hash, upper);
            t.bin_const(BinOp::Mul, hash, HASH_INVERSE)
        };
        let hash = unmixed(self, hash);
        let hash = unmixed(self, hash);
        let key = self.bin_const(BinOp::Xor, hash, layout.key_size.into());
        let bytes = match known {
            Some(0) => key,
            Some(n) => self.bin_const(BinOp::Shr, key, n as u64 * 8),
            None => {
                let n = self.trunc(at);
                let n = self.bin_const(BinOp::And, n, 7);
                let bits = self.bin_const(BinOp::Mul, n, 8);
                self.bin(BinOp::Shr, key, bits)
            }
        };
        if width == Width::W64 {
            return Ok(bytes);
        }
        let low = self.trunc(bytes);
        Ok(self.extend(low, width, signed))
    }
}
