//! Lookups, updates and deletes: arrays become address arithmetic, hashes call the prelude.

use warpbpf_abi::costs::{CALL_WORDS, WRITTEN_OUT_BYTES};
use warpbpf_abi::helpers::{self};
use warpbpf_abi::layout::{ArrayLayout, MapLayout, PerThreadLayout, inner};
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EEXIST, EINVAL};
use warpbpf_ebpf::Width;
use warpbpf_verify::{CallFact, INNER, Place, Region};

use super::bulk::Overlap;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, HashOp, Mem, Op, Order, Origin, Rmw, Table, Ty, UnOp, Value};
use crate::stack::{key_size, value_size};

/// What an update writes.
enum NewValue {
    /// Its words.
    Words(Vec<Value>),
    /// So many bytes from there, which are copied in a loop.
    Long { from: Spot, size: u64 },
}

impl Translator<'_> {
    pub(super) fn map_lookup(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let value = self.lookup_value(call)?;
        match self.binding(map)?.inner {
            Some(_) => Ok(self.inner_map(map, value)),
            None => Ok(value),
        }
    }

    fn lookup_value(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let key = self.pointer_arg(call, 1)?;
        match binding.layout {
            MapLayout::Array(layout) => {
                let key = self.array_key(key)?;
                let (fits, at) = self.array_value(call, &layout, key)?;
                Ok(self.or_null(fits, at))
            }
            MapLayout::PerThread(layout) => {
                let key = self.array_key(key)?;
                let (fits, at) = self.per_thread_value(call, &layout, key)?;
                Ok(self.or_null(fits, at))
            }
            MapLayout::Hash(layout) => self.hash(HashOp::Lookup, Table::Hash(layout), call),
            MapLayout::Lru(layout) => self.hash(HashOp::Lookup, Table::Lru(layout), call),
            MapLayout::Hosted(layout) => self.hash(HashOp::Lookup, Table::Hosted(layout), call),
            MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// A lookup in the copy that argument 3 names.
    pub(super) fn map_lookup_percpu(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        // `__u32 cpu`: the upper half is not part of it.
        let copy = self.trunc(self.arg(2));
        let layout = match binding.layout {
            MapLayout::Array(layout) => layout,
            MapLayout::Hash(layout) => {
                let value = self.hash(HashOp::Lookup, Table::Hash(layout), call)?;
                return Ok(self.other_copy(value, copy, layout.copies, layout.value_stride()));
            }
            MapLayout::Lru(layout) => {
                let value = self.hash(HashOp::Lookup, Table::Lru(layout), call)?;
                return Ok(self.other_copy(value, copy, layout.copies, layout.value_stride()));
            }
            MapLayout::PerThread(_)
            | MapLayout::Hosted(_)
            | MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::UserRing(_) => return self.wrong_layout(call, map),
        };
        let key = self.pointer_arg(call, 1)?;
        let key = self.array_key(key)?;
        let (fits, there) = (
            self.cmp_const(Cond::Ult, key, layout.max_entries.into()),
            self.cmp_const(Cond::Ult, copy, layout.shards.into()),
        );
        let both = self.bin(BinOp::And, fits, there);
        let base = self.map_base(call)?;
        let (key, copy) = (self.zext(key), self.zext(copy));
        let value = self.bin_const(BinOp::Mul, key, layout.value_stride());
        let shard = self.bin_const(BinOp::Mul, copy, layout.shard_stride());
        let at = self.bin(BinOp::Add, base, shard);
        let at = self.bin(BinOp::Add, at, value);
        Ok(self.or_null(both, at))
    }

    /// From this multiprocessor's copy of a hash's value, which may be null, to another one's.
    fn other_copy(&mut self, value: Value, copy: Value, copies: u32, stride: u64) -> Value {
        let there = self.cmp_const(Cond::Ult, copy, copies.into());
        let found = self.cmp_const(Cond::Ne, value, 0);
        let both = self.bin(BinOp::And, found, there);
        let (copy, own) = (self.zext(copy), self.own_copy(copies));
        let skip = self.bin(BinOp::Sub, copy, own);
        let skip = self.bin_const(BinOp::Mul, skip, stride);
        let at = self.bin(BinOp::Add, value, skip);
        self.or_null(both, at)
    }

    pub(super) fn map_update(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let (key, value) = (self.pointer_arg(call, 1)?, self.pointer_arg(call, 2)?);
        let flags = self.arg(3);
        let size = value_size(&binding.layout);
        match binding.layout {
            MapLayout::Array(layout) => {
                let key = self.array_key(key)?;
                let value = self.new_value(value, size)?;
                let (fits, at) = self.array_value(call, &layout, key)?;
                Ok(self.write_value(map, fits, at, flags, &value)?)
            }
            MapLayout::PerThread(layout) => {
                let key = self.array_key(key)?;
                let value = self.new_value(value, size)?;
                let (fits, at) = self.per_thread_value(call, &layout, key)?;
                Ok(self.write_value(map, fits, at, flags, &value)?)
            }
            MapLayout::Hash(layout) => self.hash(HashOp::Update, Table::Hash(layout), call),
            MapLayout::Lru(layout) => self.hash(HashOp::Update, Table::Lru(layout), call),
            MapLayout::Hosted(layout) => self.hash(HashOp::Update, Table::Hosted(layout), call),
            MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    pub(super) fn map_delete(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        match binding.layout {
            MapLayout::Array(_) | MapLayout::PerThread(_) => Ok(self.constant(EINVAL as u64)),
            MapLayout::Hash(layout) => self.hash(HashOp::Delete, Table::Hash(layout), call),
            MapLayout::Lru(layout) => self.hash(HashOp::Delete, Table::Lru(layout), call),
            MapLayout::Hosted(layout) => self.hash(HashOp::Delete, Table::Hosted(layout), call),
            MapLayout::Ring(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// A call into the prelude: the map's base, the flags of an update, the words of the key, those
    /// of an update's value.
    fn hash(&mut self, op: HashOp, table: Table, call: &CallFact) -> Result<Value, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        let slot = (map & INNER == 0).then_some(binding.slot);
        let mut args = vec![self.map_base(call)?];
        if op == HashOp::Update {
            args.push(self.arg(3));
        }
        let key = self.pointer_arg(call, 1)?;
        args.extend(self.load_words(key, key_size(&binding.layout))?);
        if op == HashOp::Update {
            let value = self.pointer_arg(call, 2)?;
            args.extend(self.load_words(value, value_size(&binding.layout))?);
        }
        self.check_words(
            args.len(),
            key_size(&binding.layout) + value_size(&binding.layout),
        )?;
        Ok(self.push(
            Ty::B64,
            Op::Hash {
                op,
                table,
                slot,
                args,
            },
        ))
    }

    /// A prelude function takes so many words.
    pub(super) fn check_words(&self, words: usize, bytes: u64) -> Result<(), CodegenError> {
        if words as u64 > CALL_WORDS {
            return Err(CodegenError::HashArgumentTooLarge {
                pc: self.pc,
                bytes,
                limit: (CALL_WORDS - 2) * 8,
            });
        }
        Ok(())
    }

    /// The map that a value of a map of maps names, null if there is no value or nothing in it.
    fn inner_map(&mut self, map: u32, value: Value) -> Value {
        let (read, none, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        let result = self.func.add_param(after, Ty::B64);
        let found = self.cmp_const(Cond::Ne, value, 0);
        self.branch(found, read, none);
        self.at = none;
        let null = self.constant(0);
        self.jump(after, vec![null]);
        self.at = read;
        let origin = Origin { map, offset: None };
        let address = self.push(
            Ty::B64,
            Op::Load {
                mem: Mem::Map(origin),
                width: Width::W64,
                signed: false,
                addr: value,
                off: inner::ADDRESS as i32,
            },
        );
        self.jump(after, vec![address]);
        self.at = after;
        result
    }

    pub(super) fn wrong_layout<T>(&self, call: &CallFact, map: u32) -> Result<T, CodegenError> {
        Err(CodegenError::WrongLayout {
            pc: self.pc,
            helper: helpers::of(call.helper).name,
            map,
        })
    }

    /// The u32 key behind a pointer, as a `b32`.
    fn array_key(&mut self, key: Spot) -> Result<Value, CodegenError> {
        let words = self.load_words(key, 4)?;
        match words.first() {
            Some(word) => Ok(self.trunc(*word)),
            None => self.missing("a key"),
        }
    }

    /// Whether the key is inside an array, and its value's address if so.
    fn array_value(
        &mut self,
        call: &CallFact,
        layout: &ArrayLayout,
        key: Value,
    ) -> Result<(Value, Value), CodegenError> {
        let base = self.map_base(call)?;
        let base = self.array_base(base, layout);
        let fits = self.cmp_const(Cond::Ult, key, u64::from(layout.max_entries));
        let wide = self.zext(key);
        let skip = self.bin_const(BinOp::Mul, wide, layout.value_stride());
        Ok((fits, self.bin(BinOp::Add, base, skip)))
    }

    /// As `array_value` for this thread's copy.
    fn per_thread_value(
        &mut self,
        call: &CallFact,
        layout: &PerThreadLayout,
        key: Value,
    ) -> Result<(Value, Value), CodegenError> {
        let inside = self.cmp_const(Cond::Ult, key, u64::from(layout.max_entries));
        let base = self.map_base(call)?;
        let (known, base) = self.per_thread_base(base, layout);
        let wide = self.zext(key);
        let row = self.bin_const(BinOp::Mul, wide, layout.threads * layout.value_stride());
        let at = self.bin(BinOp::Add, base, row);
        Ok((self.bin(BinOp::And, known, inside), at))
    }

    /// Whether the map has values for this thread, and the address of that for key 0. A thread
    /// beyond the map is counted.
    pub(super) fn per_thread_base(
        &mut self,
        base: Value,
        layout: &PerThreadLayout,
    ) -> (Value, Value) {
        let thread = self.thread_in_grid();
        let known = self.cmp_const(Cond::Ult, thread, layout.threads);
        let stranger = self.push(Ty::Pred, Op::Un(UnOp::Not, known));
        let one = self.constant(1);
        self.push_effect(Op::Atomic {
            origin: None,
            op: Rmw::Add,
            order: Order::Relaxed,
            width: Width::W64,
            addr: base,
            off: PerThreadLayout::REFUSED as i32,
            value: one,
            compare: None,
            guard: Some(stranger),
        });
        let skip = self.bin_const(BinOp::Mul, thread, layout.value_stride());
        let at = self.bin(BinOp::Add, base, skip);
        (
            known,
            self.bin_const(BinOp::Add, at, PerThreadLayout::VALUES),
        )
    }

    fn or_null(&mut self, fits: Value, at: Value) -> Value {
        let null = self.constant(0);
        self.select(fits, at, null)
    }

    /// The value of an update, read before anything else happens where it is short.
    fn new_value(&mut self, from: Spot, size: u64) -> Result<NewValue, CodegenError> {
        Ok(match size > WRITTEN_OUT_BYTES {
            true => NewValue::Long { from, size },
            false => NewValue::Words(self.load_words(from, size)?),
        })
    }

    /// `bpf_map_update_elem` on a value that always exists.
    fn write_value(
        &mut self,
        map: u32,
        fits: Value,
        at: Value,
        flags: Value,
        value: &NewValue,
    ) -> Result<Value, CodegenError> {
        let known = self.cmp_const(Cond::Ule, flags, BPF_EXIST);
        let fresh = self.cmp_const(Cond::Eq, flags, BPF_NOEXIST);
        let zero = self.constant(0);
        let exists = self.constant(EEXIST as u64);
        let outside = self.constant(E2BIG as u64);
        let invalid = self.constant(EINVAL as u64);
        // Linux looks at the flags' validity first, then at the key, then at BPF_NOEXIST.
        let result = self.select(fresh, exists, zero);
        let result = self.select(fits, result, outside);
        let result = self.select(known, result, invalid);
        let fine = self.cmp_const(Cond::Eq, result, 0);
        let (write, after) = (self.func.add_block(), self.func.add_block());
        self.branch(fine, write, after);
        self.at = write;
        let place = Place {
            region: Region::MapValue { map },
            offset: Some(0),
            align: 8,
        };
        let to = Spot {
            place,
            pointer: at,
            off: 0,
        };
        match value {
            NewValue::Words(words) => {
                for (i, word) in words.iter().enumerate() {
                    self.store(to.plus(i as i64 * 8), Width::W64, *word, false)?;
                }
            }
            // Two values are the same one, or lie apart.
            NewValue::Long { from, size } => self.copy_long(*from, to, *size, Overlap::Never)?,
        }
        self.jump(after, Vec::new());
        self.at = after;
        Ok(result)
    }

    /// A plain store into a fresh record.
    pub(super) fn store_record(&mut self, width: Width, record: Value, off: u64, value: Value) {
        self.push_effect(Op::Store {
            mem: Mem::Record,
            width,
            addr: record,
            off: off as i32,
            value,
        });
    }
}
