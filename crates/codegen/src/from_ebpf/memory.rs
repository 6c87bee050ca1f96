//! Loads, stores and atomics: which memory a pointer points to is in the facts, so each access becomes a variable, a
//! special register or an instruction with its state space.

use warpbpf_abi::context::{self, FieldSource};
use warpbpf_ebpf::{AtomicOp, Insn, Reg, Source, Width};
use warpbpf_verify::{Place, Region};

use super::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Mem, Op, Order, Origin, Rmw, Special, Ty, UnOp, Value};
use crate::stack::{Part, chunks};

/// An address and what the proof knows of it.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub place: Place,
    /// The pointer, and what is added to it. Not used where the place is known to be a variable.
    pub pointer: Value,
    pub off: i32,
}

impl Spot {
    /// The memory class of a value of `map`.
    pub(super) fn map_memory(self, map: u32, sync: bool) -> Mem {
        let origin = Origin {
            map,
            offset: self.place.offset,
        };
        if sync {
            Mem::MapSync(origin)
        } else {
            Mem::Map(origin)
        }
    }

    /// The spot `bytes` further on.
    fn plus(self, bytes: i64) -> Spot {
        Spot {
            place: Place {
                region: self.place.region,
                offset: self.place.offset.map(|o| o + bytes),
                align: self.place.align.min(1 << bytes.trailing_zeros().min(3)),
            },
            pointer: self.pointer,
            off: self.off + bytes as i32,
        }
    }
}

impl Translator<'_> {
    pub(super) fn access(&mut self, insn: &Insn, place: Place) -> Result<(), CodegenError> {
        match *insn {
            Insn::Load {
                width,
                signed,
                dst,
                base,
                off,
            } => {
                let spot = Spot {
                    place,
                    pointer: self.reg(base),
                    off: off.into(),
                };
                let value = self.load(spot, width, signed, false)?;
                self.set_reg(dst, value);
            }
            Insn::LoadAcquire {
                width,
                dst,
                base,
                off,
            } => {
                let spot = Spot {
                    place,
                    pointer: self.reg(base),
                    off: off.into(),
                };
                let value = self.load(spot, width, false, true)?;
                self.set_reg(dst, value);
            }
            Insn::Store {
                width,
                base,
                off,
                src,
            } => {
                let spot = Spot {
                    place,
                    pointer: self.reg(base),
                    off: off.into(),
                };
                let value = self.source(src);
                self.store(spot, width, value, false)?;
            }
            Insn::StoreRelease {
                width,
                base,
                off,
                src,
            } => {
                let spot = Spot {
                    place,
                    pointer: self.reg(base),
                    off: off.into(),
                };
                let value = self.source(Source::Reg(src));
                self.store(spot, width, value, true)?;
            }
            Insn::Atomic {
                width,
                op,
                base,
                off,
                src,
            } => {
                let spot = Spot {
                    place,
                    pointer: self.reg(base),
                    off: off.into(),
                };
                self.atomic(spot, width, op, src)?;
            }
            _ => return self.missing("an access"),
        }
        Ok(())
    }

    /// The register value of a load.
    pub(super) fn load(
        &mut self,
        spot: Spot,
        width: Width,
        signed: bool,
        sync: bool,
    ) -> Result<Value, CodegenError> {
        let mem = match spot.place.region {
            Region::Context => return self.context_field(spot.place.offset, width),
            Region::Stack { frame } => {
                if let Some(part) = spot
                    .place
                    .offset
                    .and_then(|o| self.plan.part(frame, o, width))
                {
                    return Ok(self.read_part(part, width, signed));
                }
                Mem::Local
            }
            Region::MapValue { map } => spot.map_memory(map, sync),
            Region::Record { .. } => Mem::Record,
            Region::MapKey { .. } | Region::Memory => return self.unsupported("a region"),
        };
        let ty = if width == Width::W64 {
            Ty::B64
        } else {
            Ty::B32
        };
        let value = self.push(
            ty,
            Op::Load {
                mem,
                width,
                signed,
                addr: spot.pointer,
                off: spot.off,
            },
        );
        Ok(match (width, signed) {
            (Width::W64, _) => value,
            (_, false) => self.zext(value),
            (_, true) => self.push(Ty::B64, Op::Un(UnOp::Sext, value)),
        })
    }

    /// Stores the low bits of a register value.
    pub(super) fn store(
        &mut self,
        spot: Spot,
        width: Width,
        value: Value,
        sync: bool,
    ) -> Result<(), CodegenError> {
        let mem = match spot.place.region {
            Region::Context => return self.missing("a writable region"),
            Region::Stack { frame } => {
                if let Some(part) = spot
                    .place
                    .offset
                    .and_then(|o| self.plan.part(frame, o, width))
                {
                    self.write_part(part, width, value);
                    return Ok(());
                }
                Mem::Local
            }
            Region::MapValue { map } => spot.map_memory(map, sync),
            Region::Record { .. } => Mem::Record,
            Region::MapKey { .. } | Region::Memory => return self.unsupported("a region"),
        };
        let value = if width == Width::W64 {
            value
        } else {
            self.trunc(value)
        };
        self.push_effect(Op::Store {
            mem,
            width,
            addr: spot.pointer,
            off: spot.off,
            value,
        });
        Ok(())
    }

    fn read_part(&mut self, part: Part, width: Width, signed: bool) -> Value {
        let var = self.state.vars[part.var];
        if width == Width::W64 {
            return var;
        }
        let moved = if part.shift == 0 {
            var
        } else {
            self.bin_const(BinOp::Shr, var, part.shift.into())
        };
        let low = self.trunc(moved);
        let low = match (width, signed) {
            (Width::W8, true) => self.push(Ty::B32, Op::Un(UnOp::Sext8, low)),
            (Width::W16, true) => self.push(Ty::B32, Op::Un(UnOp::Sext16, low)),
            (Width::W8, false) => self.bin_const(BinOp::And, low, 0xff),
            (Width::W16, false) => self.bin_const(BinOp::And, low, 0xffff),
            (Width::W32 | Width::W64, _) => low,
        };
        let extend = if signed { UnOp::Sext } else { UnOp::Zext };
        self.push(Ty::B64, Op::Un(extend, low))
    }

    fn write_part(&mut self, part: Part, width: Width, value: Value) {
        let new = if width.bits() == part.bits {
            value
        } else {
            let field = (1u64 << width.bits()) - 1;
            let old = self.state.vars[part.var];
            let kept = self.bin_const(BinOp::And, old, !(field << part.shift));
            let fresh = self.bin_const(BinOp::And, value, field);
            let fresh = if part.shift == 0 {
                fresh
            } else {
                self.bin_const(BinOp::Shl, fresh, part.shift.into())
            };
            self.bin(BinOp::Or, kept, fresh)
        };
        self.state.vars[part.var] = new;
    }

    fn context_field(&mut self, offset: Option<i64>, width: Width) -> Result<Value, CodegenError> {
        let field = offset
            .and_then(|o| u32::try_from(o).ok())
            .and_then(|o| context::of(self.env.site).field(o, width.bytes()));
        let Some(field) = field else {
            return self.missing("a field of the context");
        };
        Ok(match field.source {
            FieldSource::BlockIdx(i) => self.special64(Special::Ctaid(i)),
            FieldSource::BlockDim(i) => self.special64(Special::Ntid(i)),
            FieldSource::ThreadIdx(i) => self.special64(Special::Tid(i)),
            FieldSource::GridDim(i) => self.special64(Special::Nctaid(i)),
            FieldSource::Lane => self.special64(Special::Lane),
            FieldSource::Sm => self.special64(Special::Sm),
            FieldSource::GridId => self.special64(Special::GridId),
            FieldSource::KernelId => self.constant(self.env.kernel_id),
            FieldSource::ActiveMask => {
                let mask = self.push(Ty::B32, Op::GroupMask);
                self.zext(mask)
            }
            FieldSource::Warp => {
                let thread = self.thread_in_block();
                let warp = self.bin_const(BinOp::Shr, thread, 5);
                self.zext(warp)
            }
        })
    }

    /// Linear index of the thread in its block, `b32`: a block has at most 1024.
    pub(super) fn thread_in_block(&mut self) -> Value {
        let (z, y, x) = (
            self.special(Special::Tid(2)),
            self.special(Special::Tid(1)),
            self.special(Special::Tid(0)),
        );
        let (nx, ny) = (
            self.special(Special::Ntid(0)),
            self.special(Special::Ntid(1)),
        );
        let rows = self.bin(BinOp::Mul, z, ny);
        let rows = self.bin(BinOp::Add, rows, y);
        let before = self.bin(BinOp::Mul, rows, nx);
        self.bin(BinOp::Add, before, x)
    }

    fn atomic(
        &mut self,
        spot: Spot,
        width: Width,
        op: AtomicOp,
        src: Reg,
    ) -> Result<(), CodegenError> {
        let (kind, fetch) = match op {
            AtomicOp::Add { fetch } => (Rmw::Add, fetch),
            AtomicOp::Or { fetch } => (Rmw::Or, fetch),
            AtomicOp::And { fetch } => (Rmw::And, fetch),
            AtomicOp::Xor { fetch } => (Rmw::Xor, fetch),
            AtomicOp::Xchg => (Rmw::Exch, true),
            AtomicOp::CmpXchg => (Rmw::Cas, true),
        };
        let wide = width == Width::W64;
        let source = self.reg(src);
        if let Region::Stack { .. } = spot.place.region {
            // Nobody else sees this memory: the parts of the operation need no atomicity.
            let old = self.load(spot, width, false, false)?;
            let new = self.combine(kind, wide, old, source);
            self.store(spot, width, new, false)?;
            if fetch {
                self.set_reg(if kind == Rmw::Cas { Reg::R0 } else { src }, old);
            }
            return Ok(());
        }
        let mut value = source;
        let mut compare = (kind == Rmw::Cas).then(|| self.reg(Reg::R0));
        if !wide {
            value = self.trunc(value);
            compare = compare.map(|c| self.trunc(c));
        }
        // Linux orders the fetching atomics fully and the others not at all.
        let order = if fetch { Order::AcqRel } else { Order::Relaxed };
        let origin = match spot.place.region {
            Region::MapValue { map } => Some(Origin {
                map,
                offset: spot.place.offset,
            }),
            Region::Stack { .. }
            | Region::Context
            | Region::Record { .. }
            | Region::MapKey { .. }
            | Region::Memory => None,
        };
        let op = Op::Atomic {
            origin,
            op: kind,
            order,
            width,
            addr: spot.pointer,
            off: spot.off,
            value,
            compare,
            guard: None,
            shared: false,
        };
        if fetch {
            let old = self.push(if wide { Ty::B64 } else { Ty::B32 }, op);
            let old = if wide { old } else { self.zext(old) };
            self.set_reg(if kind == Rmw::Cas { Reg::R0 } else { src }, old);
        } else {
            self.push_effect(op);
        }
        Ok(())
    }

    /// What a read-modify-write stores.
    fn combine(&mut self, op: Rmw, wide: bool, old: Value, source: Value) -> Value {
        let bin = match op {
            Rmw::Add => BinOp::Add,
            Rmw::And => BinOp::And,
            Rmw::Or => BinOp::Or,
            Rmw::Xor => BinOp::Xor,
            Rmw::Exch => return source,
            Rmw::Cas => {
                let expected = self.reg(Reg::R0);
                let same = if wide {
                    self.cmp(Cond::Eq, old, expected)
                } else {
                    let (a, b) = (self.trunc(old), self.trunc(expected));
                    self.cmp(Cond::Eq, a, b)
                };
                return self.select(same, source, old);
            }
        };
        self.bin(bin, old, source)
    }

    /// `size` bytes as little-endian words, the last padded with zeros.
    pub(super) fn load_words(&mut self, spot: Spot, size: u64) -> Result<Vec<Value>, CodegenError> {
        let mut words: Vec<Value> = Vec::new();
        for (at, width) in pieces(spot.place, size) {
            let piece = self.load(spot.plus(at), width, false, false)?;
            match at % 8 {
                0 => words.push(piece),
                skip => {
                    let moved = self.bin_const(BinOp::Shl, piece, skip as u64 * 8);
                    if let Some(word) = words.pop() {
                        let word = self.bin(BinOp::Or, word, moved);
                        words.push(word);
                    }
                }
            }
        }
        Ok(words)
    }
}

/// How to load `size` bytes: offsets relative to the place. A known offset tells the alignment, because stacks and map
/// values begin 8-aligned; otherwise single bytes are always right.
fn pieces(place: Place, size: u64) -> Vec<(i64, Width)> {
    let Some(start) = place.offset else {
        return (0..size as i64).map(|at| (at, Width::W8)).collect();
    };
    let mut list = Vec::new();
    for (at, width) in chunks(start, size) {
        split(at - start, width, &mut list);
    }
    list
}

/// A piece must not cross a word of the result.
fn split(at: i64, width: Width, list: &mut Vec<(i64, Width)>) {
    let half = match width {
        _ if at % 8 + i64::from(width.bytes()) <= 8 => return list.push((at, width)),
        Width::W64 => Width::W32,
        Width::W32 => Width::W16,
        Width::W16 | Width::W8 => Width::W8,
    };
    split(at, half, list);
    split(at + i64::from(half.bytes()), half, list);
}
