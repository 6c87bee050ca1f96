//! Ring buffer and printk helpers. Reserving and committing are operations of their own, because
//! lanes that run together share them; what lies between is plain stores.

use warpbpf_abi::attach::Scope;
use warpbpf_abi::costs::WRITTEN_OUT_BYTES;
use warpbpf_abi::helpers::{self, HelperId};
use warpbpf_abi::layout::{MapLayout, RingLayout, printk};
use warpbpf_abi::maps::{
    BPF_F_INDEX_MASK, BPF_RB_AVAIL_DATA, BPF_RB_CONS_POS, BPF_RB_PROD_POS, BPF_RB_RING_SIZE,
    EAGAIN, EINVAL, ENOSPC,
};
use warpbpf_ebpf::Width;
use warpbpf_verify::{ArgFact, CallFact, Place, Region};

use super::bulk::Overlap;
use super::helpers::LANES;
use super::keys::Keys;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Block, Cond, Mem, Op, Size, Special, Ty, Value};

/// The text of a message: the first words of its record, and what it carries.
struct MessageText {
    map: u32,
    offset: u32,
    size: u32,
    carried: Vec<u64>,
}

impl Translator<'_> {
    pub(super) fn ring_of(&self, call: &CallFact) -> Result<RingLayout, CodegenError> {
        let map = self.map_arg(call)?;
        let binding = self.binding(map)?;
        match binding.layout {
            MapLayout::Ring(ring) => Ok(ring),
            MapLayout::Array(_)
            | MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::PerThread(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_)
            | MapLayout::UserRing(_) => self.wrong_layout(call, map),
        }
    }

    /// Several lanes do the same here, and may do it for each other.
    fn share(&self) -> bool {
        self.env.scope == Scope::Thread && self.env.meets
    }

    /// `of_any_sizes`: lanes whose records have sizes of their own reserve together, too, for which
    /// they have to add them up.
    pub(super) fn reserve(
        &mut self,
        ring: RingLayout,
        base: Value,
        size: Size,
        of_any_sizes: bool,
    ) -> Value {
        // All lanes' records must fit into one sub-buffer, else sharing a reservation would never
        // succeed.
        let fits = match size {
            Size::Const(size) => {
                LANES * RingLayout::record_bytes(u64::from(size)) <= ring.sub_bytes()
            }
            // Whether they fit is found out as it runs.
            Size::Value(_) => of_any_sizes,
        };
        let shared = fits && self.share();
        self.push(
            Ty::B64,
            Op::RingReserve {
                ring,
                base,
                size,
                header: true,
                shared,
            },
        )
    }

    pub(super) fn commit(
        &mut self,
        ring: RingLayout,
        base: Value,
        record: Value,
        size: Option<u32>,
        discard: bool,
    ) {
        let shared = self.share();
        self.push_effect(Op::RingCommit {
            ring,
            base,
            record,
            size,
            discard,
            shared,
            chunks: Vec::new(),
        });
    }

    /// Reserves and goes on in the block where that succeeded. Returns the record, and the block
    /// that follows with its parameter, which is `full_result` if there was no room.
    fn with_record(
        &mut self,
        ring: RingLayout,
        base: Value,
        size: Size,
        full_result: i64,
    ) -> (Value, Block, Value) {
        let record = self.reserve(ring, base, size, false);
        let room = self.cmp_const(Cond::Ne, record, 0);
        let (fill, full, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        let result = self.func.add_param(after, Ty::B64);
        self.branch(room, fill, full);
        self.at = full;
        let refused = self.constant(full_result as u64);
        self.jump(after, vec![refused]);
        self.at = fill;
        (record, after, result)
    }

    pub(super) fn ring_reserve(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let size = match call.args[1] {
            ArgFact::Scalar {
                value: Some(size), ..
            } => match u32::try_from(size) {
                Ok(size) => Size::Const(size),
                Err(_) => return Ok(self.constant(0)),
            },
            // Constant on each path, but not the same on all of them.
            ArgFact::Scalar { value: None, .. } => Size::Value(self.arg(1)),
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Pointer(_)
            | ArgFact::Callback
            | ArgFact::Sample => return self.missing("a record size"),
        };
        let base = self.map_base(call)?;
        Ok(self.reserve(ring, base, size, true))
    }

    pub(super) fn ring_commit(
        &mut self,
        call: &CallFact,
        discard: bool,
    ) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let base = self.map_base(call)?;
        let record = self.arg(0);
        self.commit(ring, base, record, None, discard);
        Ok(self.constant(0))
    }

    pub(super) fn ring_output(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        self.ring_write(call, 1, EAGAIN)
    }

    /// `bpf_ringbuf_query`, of the ring that this lane writes to. All that can be asked is there at
    /// first; where the flags are known, what they do not ask for is folded away, loads included.
    pub(super) fn ring_query(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let base = self.map_base(call)?;
        let flags = match call.args[1] {
            ArgFact::Scalar {
                value: Some(flags), ..
            } => self.constant(flags),
            ArgFact::Scalar { value: None, .. } => self.arg(1),
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Pointer(_)
            | ArgFact::Callback
            | ArgFact::Sample => return self.missing("flags"),
        };
        let shard = self.own_copy(ring.shards);
        let mut word = |mem, stride, at| {
            let skip = self.bin_const(BinOp::Mul, shard, stride);
            let line = self.bin(BinOp::Add, base, skip);
            self.env_field(mem, line, at)
        };
        let consumed = word(Mem::Clock, 8, ring.consumed_at());
        let reserved = word(
            Mem::Control,
            RingLayout::CONTROL_STRIDE,
            RingLayout::RESERVED,
        );
        let open = self.bin(BinOp::Sub, reserved, consumed);
        let zero = self.constant(0);
        // Nothing orders the two loads: the older `reserved` may lie behind `consumed`.
        let sane = self.cmp(Cond::Sgt, open, zero);
        let open = self.select(sane, open, zero);
        let size = self.constant(ring.shard_bytes);
        let mut result = zero;
        for (what, value) in [
            (BPF_RB_AVAIL_DATA, open),
            (BPF_RB_RING_SIZE, size),
            (BPF_RB_CONS_POS, consumed),
            (BPF_RB_PROD_POS, reserved),
        ] {
            let asked = self.cmp_const(Cond::Eq, flags, what);
            result = self.select(asked, value, result);
        }
        Ok(result)
    }

    /// `bpf_perf_event_output`: an event is a record, and the ring that it is in says which
    /// multiprocessor wrote it.
    pub(super) fn perf_output(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let known = self.cmp_const(Cond::Ule, self.arg(2), BPF_F_INDEX_MASK);
        let (write, refuse, after) = (
            self.func.add_block(),
            self.func.add_block(),
            self.func.add_block(),
        );
        let result = self.func.add_param(after, Ty::B64);
        self.branch(known, write, refuse);
        self.at = refuse;
        let invalid = self.constant(EINVAL as u64);
        self.jump(after, vec![invalid]);
        self.at = write;
        let written = self.ring_write(call, 3, ENOSPC)?;
        self.jump(after, vec![written]);
        self.at = after;
        Ok(result)
    }

    /// Copies what argument `at` points to, of the size in the next one, into a record. `full` is
    /// the result if there is no room.
    fn ring_write(&mut self, call: &CallFact, at: usize, full: i64) -> Result<Value, CodegenError> {
        let ring = self.ring_of(call)?;
        let data = self.pointer_arg(call, at)?;
        let known = match call.args[at + 1] {
            ArgFact::Scalar { value, .. } => value.and_then(|v| u32::try_from(v).ok()),
            ArgFact::Unused
            | ArgFact::Map(_)
            | ArgFact::Pointer(_)
            | ArgFact::Callback
            | ArgFact::Sample => return self.missing("a size"),
        };
        let base = self.map_base(call)?;
        let size = known.map_or(Size::Value(self.arg(at + 1)), Size::Const);
        // The data is read before lanes meet in the reservation: they leave it in one group.
        let long = |size: u32| u64::from(size) > WRITTEN_OUT_BYTES;
        let words = match known {
            Some(size) if !long(size) => self.load_words(data, u64::from(size))?,
            Some(_) | None => Vec::new(),
        };
        let (record, after, result) = self.with_record(ring, base, size, full);
        match size {
            Size::Const(size) if long(size) => {
                let place = Place {
                    region: Region::Record {
                        map: self.map_arg(call)?,
                    },
                    offset: Some(0),
                    align: 8,
                };
                let to = Spot {
                    place,
                    pointer: record,
                    off: 0,
                };
                self.copy_long(data, to, size.into(), Overlap::Never)?;
            }
            Size::Const(_) => {
                for (i, word) in words.into_iter().enumerate() {
                    self.store_record(Width::W64, record, i as u64 * 8, word);
                }
            }
            Size::Value(size) => self.copy(data, record, size)?,
        }
        self.commit(ring, base, record, known, false);
        let zero = self.constant(0);
        self.jump(after, vec![zero]);
        self.at = after;
        Ok(result)
    }

    /// Copies `size` bytes, which vary, to a record.
    fn copy(&mut self, data: Spot, record: Value, size: Value) -> Result<(), CodegenError> {
        let mem = match data.place.region {
            Region::Stack { .. } => Mem::Local,
            Region::MapValue { map } => data.map_memory(map, false),
            Region::Record { .. } => Mem::Record,
            Region::Memory => Mem::Memory,
            Region::MapKey { map } if matches!(self.keys(map)?, Keys::InMemory) => Mem::Key,
            Region::MapKey { map } => {
                // Not in memory, but there are only a few bytes.
                let bytes = match self.keys(map)? {
                    Keys::Dense(layout) => layout.key_size.into(),
                    Keys::Index | Keys::InMemory => 4,
                };
                for at in 0..bytes {
                    let inside = self.cmp_const(Cond::Ugt, size, at);
                    let (write, next) = (self.func.add_block(), self.func.add_block());
                    self.branch(inside, write, next);
                    self.at = write;
                    let byte = self.load(data.plus(at as i64), Width::W8, false, false)?;
                    let byte = self.trunc(byte);
                    self.store_record(Width::W8, record, at, byte);
                    self.jump(next, Vec::new());
                    self.at = next;
                }
                return Ok(());
            }
            Region::Context => return self.missing("readable memory"),
        };
        let from = self.address(mem, data.pointer);
        self.push_effect(Op::CopyBytes {
            mem,
            from,
            off: data.off,
            to: record,
            size,
        });
        Ok(())
    }

    /// Queues a message for the host to format: `abi::layout::printk`. A format size of 0 says "up
    /// to the NUL".
    pub(super) fn printk(&mut self, call: &CallFact) -> Result<Value, CodegenError> {
        let helper = helpers::of(call.helper).name;
        let binding = self.env.printk.ok_or(CodegenError::NoPrintkRing {
            pc: self.pc,
            helper,
        })?;
        let MapLayout::Ring(ring) = binding.layout else {
            return Err(CodegenError::NoPrintkRing {
                pc: self.pc,
                helper,
            });
        };
        let text = self.message_text(call)?;
        // `bpf_gpu_puts` has no format: a percent sign is a percent sign.
        let values = match call.helper {
            HelperId::TracePrintk => self.printk_values(call)?,
            HelperId::TraceVprintk => self.format_values(call, 2)?,
            _ => Vec::new(),
        };
        let arg_word = match call.helper {
            HelperId::GpuPuts => printk::VERBATIM,
            _ => values.len() as u32,
        };

        let base = self.push(Ty::B64, Op::Slot(binding.slot));
        let text_at = printk::size(values.len());
        let size = (text_at + text.carried.len() as u64 * 8) as u32;
        let (record, after, result) = self.with_record(ring, base, Size::Const(size), EAGAIN);
        let fixed = [
            (printk::FORMAT_MAP, text.map),
            (printk::FORMAT_OFFSET, text.offset),
            (printk::FORMAT_SIZE, text.size),
            (printk::ARGS, arg_word),
        ];
        for (at, value) in fixed {
            let value = self.constant32(value);
            self.store_record(Width::W32, record, at, value);
        }
        for (i, value) in values.into_iter().enumerate() {
            self.store_record(Width::W64, record, printk::ARG + i as u64 * 8, value);
        }
        for (i, word) in text.carried.into_iter().enumerate() {
            let word = self.constant(word);
            self.store_record(Width::W64, record, text_at + i as u64 * 8, word);
        }
        let time = self.push(Ty::B64, Op::Timer);
        self.store_record(Width::W64, record, printk::TIME, time);
        for i in 0..3u8 {
            let value = self.special(Special::Ctaid(i));
            self.store_record(Width::W32, record, printk::BLOCK + u64::from(i) * 4, value);
            let value = self.special(Special::Tid(i));
            self.store_record(Width::W32, record, printk::THREAD + u64::from(i) * 4, value);
        }
        self.commit(ring, base, record, Some(size), false);
        let bytes = self.constant(size.into());
        self.jump(after, vec![bytes]);
        self.at = after;
        Ok(result)
    }

    /// Where the host finds the string at `pointer`: session index of its map, offset.
    pub(super) fn string_place(&mut self, map: u32, pointer: Value) -> Result<Value, CodegenError> {
        let binding = self.binding(map)?;
        let base = self.push(Ty::B64, Op::Slot(binding.slot));
        let offset = self.bin(BinOp::Sub, pointer, base);
        let map = self.constant(u64::from(binding.session_index) << 32);
        Ok(self.bin(BinOp::Add, map, offset))
    }

    /// Where the host finds the text of a message.
    fn message_text(&self, call: &CallFact) -> Result<MessageText, CodegenError> {
        let (ArgFact::Pointer(place), Some(text)) = (call.args[0], &call.text) else {
            return self.missing("a constant format string");
        };
        if call.carries_text() {
            let mut bytes = text.to_vec();
            bytes.push(0);
            let size = bytes.len();
            bytes.resize(printk::carried(size) as usize, 0);
            let (words, _) = bytes.as_chunks();
            return Ok(MessageText {
                map: printk::CARRIED,
                offset: 0,
                size: size as u32,
                carried: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
            });
        }
        let (Region::MapValue { map }, Some(offset)) = (place.region, place.offset) else {
            return self.missing("a format string in a map");
        };
        Ok(MessageText {
            map: self.binding(map)?.session_index,
            offset: offset as u32,
            size: match call.args[1] {
                ArgFact::Scalar {
                    value: Some(size), ..
                } if call.helper != HelperId::GpuPuts => size as u32,
                _ => 0,
            },
            carried: Vec::new(),
        })
    }

    /// The values of `bpf_trace_printk`. A constant string is told by its place.
    fn printk_values(&mut self, call: &CallFact) -> Result<Vec<Value>, CodegenError> {
        let mut values = Vec::new();
        for i in 2..5 {
            let value = self.arg(i);
            values.push(match call.args[i] {
                ArgFact::Unused => break,
                ArgFact::Pointer(Place {
                    region: Region::MapValue { map },
                    ..
                }) => self.string_place(map, value)?,
                ArgFact::Scalar { .. }
                | ArgFact::Pointer(_)
                | ArgFact::Map(_)
                | ArgFact::Callback
                | ArgFact::Sample => value,
            });
        }
        Ok(values)
    }
}
