//! Maps without keys: queues and stacks call the prelude, a bloom filter is a few atomics in place.

use warpbpf_abi::layout::{BloomLayout, HASH_MULTIPLIER, MapLayout, QueueLayout};
use warpbpf_abi::maps::{EINVAL, ENOENT};
use warpbpf_ebpf::Width;
use warpbpf_verify::CallFact;

use super::memory::pieces;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Mem, Op, Order, Origin, QueueOp, Rmw, Ty, Value};

impl Translator<'_> {
    pub(super) fn map_push(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let value = self.pointer_arg(call, 1)?;
        let flags = self.arg(2);
        match binding.layout {
            MapLayout::Queue(layout) => {
                let mut args = vec![self.map_base(call)?, flags];
                args.extend(self.load_words(value, layout.value_size.into())?);
                self.check_words(args.len(), layout.value_size.into())?;
                let op = QueueOp::Push;
                Ok(self.push(Ty::B64, Op::Queue { op, layout, args }))
            }
            MapLayout::Bloom(layout) => {
                let any = self.cmp_const(Cond::Eq, flags, 0);
                let base = self.map_base(call)?;
                for (word, bit) in self.bloom_bits(&layout, base, value)? {
                    self.push_effect(Op::Atomic {
                        origin: None,
                        op: Rmw::Or,
                        order: Order::Relaxed,
                        width: Width::W32,
                        addr: word,
                        off: 0,
                        value: bit,
                        compare: None,
                        guard: Some(any),
                    });
                }
                let (zero, invalid) = (self.constant(0), self.constant(EINVAL as u64));
                Ok(self.select(any, zero, invalid))
            }
            MapLayout::Array(_)
            | MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::PerThread(_)
            | MapLayout::Hosted(_)
            | MapLayout::Ring(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// Pop and peek.
    pub(super) fn map_next(&mut self, call: &CallFact, op: QueueOp) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let value = self.pointer_arg(call, 1)?;
        match binding.layout {
            MapLayout::Queue(layout) => self.next_value(call, op, layout, value),
            MapLayout::Bloom(layout) if op == QueueOp::Peek => {
                let base = self.map_base(call)?;
                let mut missing = self.constant32(0);
                let origin = Origin { map, offset: None };
                for (word, bit) in self.bloom_bits(&layout, base, value)? {
                    let found = self.push(
                        Ty::B32,
                        Op::Load {
                            mem: Mem::Map(origin),
                            width: Width::W32,
                            signed: false,
                            addr: word,
                            off: 0,
                        },
                    );
                    let set = self.bin(BinOp::And, found, bit);
                    let unset = self.bin(BinOp::Xor, set, bit);
                    missing = self.bin(BinOp::Or, missing, unset);
                }
                let all = self.cmp_const(Cond::Eq, missing, 0);
                let (zero, absent) = (self.constant(0), self.constant(ENOENT as u64));
                Ok(self.select(all, zero, absent))
            }
            MapLayout::Array(_)
            | MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::PerThread(_)
            | MapLayout::Ring(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// The function leaves the value, or zeros, in local memory; from there it goes to where the
    /// program wants it.
    fn next_value(
        &mut self,
        call: &CallFact,
        op: QueueOp,
        layout: QueueLayout,
        value: Spot,
    ) -> Result<Value, CodegenError> {
        let stride = layout.node_stride();
        self.check_words(stride as usize / 8, layout.value_size.into())?;
        let base = self.map_base(call)?;
        let scratch = self.scratch(stride as u32);
        let args = vec![base, scratch];
        let result = self.push(Ty::B64, Op::Queue { op, layout, args });
        let words: Vec<Value> = (0..stride as i32 / 8)
            .map(|i| {
                let load = Op::Load {
                    mem: Mem::Local,
                    width: Width::W64,
                    signed: false,
                    addr: scratch,
                    off: i * 8,
                };
                self.push(Ty::B64, load)
            })
            .collect();
        for (at, width) in pieces(value.place, layout.value_size.into(), 8) {
            let Some(&word) = words.get(at as usize / 8) else {
                return self.missing("a word of the value");
            };
            let piece = match at % 8 {
                0 => word,
                skip => self.bin_const(BinOp::Shr, word, skip as u64 * 8),
            };
            self.store(value.plus(at), width, piece, false)?;
        }
        Ok(result)
    }

    /// The addresses of the words that hold a value's bits, and the bits in them (`b32`).
    fn bloom_bits(
        &mut self,
        layout: &BloomLayout,
        base: Value,
        value: Spot,
    ) -> Result<Vec<(Value, Value)>, CodegenError> {
        let words = self.load_words(value, layout.value_size.into())?;
        let mut hash = self.constant(layout.value_size.into());
        let last = self.constant(0);
        for word in words.into_iter().chain([last]) {
            hash = self.bin(BinOp::Xor, hash, word);
            hash = self.bin_const(BinOp::Mul, hash, HASH_MULTIPLIER);
            let high = self.bin_const(BinOp::Shr, hash, 32);
            hash = self.bin(BinOp::Xor, hash, high);
        }
        let high = self.bin_const(BinOp::Shr, hash, 32);
        let (mut place, step) = (self.trunc(hash), self.trunc(high));
        let step = self.bin_const(BinOp::Or, step, 1);
        let mut bits = Vec::new();
        for i in 0..layout.hashes {
            if i > 0 {
                place = self.bin(BinOp::Add, place, step);
            }
            let bit = self.bin_const(BinOp::And, place, layout.bits() - 1);
            let word = self.bin_const(BinOp::Shr, bit, 5);
            let word = self.zext(word);
            let skip = self.bin_const(BinOp::Mul, word, 4);
            let address = self.bin(BinOp::Add, base, skip);
            let one = self.constant32(1);
            let shift = self.bin_const(BinOp::And, bit, 31);
            bits.push((address, self.bin(BinOp::Shl, one, shift)));
        }
        Ok(bits)
    }
}
