//! Loads and stores: which memory a pointer points to is in the facts, so each access becomes a
//! variable, a special register or instructions with their state space. eBPF lets programs access
//! unaligned addresses, PTX does not: where the proof does not know the alignment, an access is
//! done in aligned pieces.

use warpbpf_ebpf::{Insn, Source, Width};
use warpbpf_verify::{Place, Region};

use super::keys::Keys;
use super::spot::Spot;
use super::translator::{NOT_NULL, Translator};
use crate::error::CodegenError;
use crate::ir::{BinOp, Mem, Op, Ty, UnOp, Value};
use crate::stack::{Part, chunks};

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
                let value = match self.facts.constant(&place, width) {
                    // The proof rests on it, so nobody can change it, and memory need not be asked.
                    Some(bits) if signed => {
                        let above = 64 - width.bits();
                        self.constant(((bits << above) as i64 >> above) as u64)
                    }
                    Some(bits) => self.constant(bits),
                    None => {
                        let spot = self.spot(place, base, off);
                        self.load(spot, width, signed, false)?
                    }
                };
                self.set_reg(dst, value);
            }
            Insn::LoadAcquire {
                width,
                dst,
                base,
                off,
            } => {
                let spot = self.spot(place, base, off);
                let value = self.load(spot, width, false, true)?;
                self.set_reg(dst, value);
            }
            Insn::Store {
                width,
                base,
                off,
                src,
            } => {
                let spot = self.spot(place, base, off);
                let value = self.source(src);
                self.store(spot, width, value, false)?;
            }
            Insn::StoreRelease {
                width,
                base,
                off,
                src,
            } => {
                let spot = self.spot(place, base, off);
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
                let spot = self.spot(place, base, off);
                self.atomic(spot, width, op, src)?;
            }
            _ => return self.missing("an access"),
        }
        Ok(())
    }

    fn spot(&self, place: Place, base: warpbpf_ebpf::Reg, off: i16) -> Spot {
        Spot {
            place,
            pointer: self.reg(base),
            off: off.into(),
        }
    }

    /// The register value of a load. `sync`: with acquire, where others can see the memory.
    pub(super) fn load(
        &mut self,
        spot: Spot,
        width: Width,
        signed: bool,
        sync: bool,
    ) -> Result<Value, CodegenError> {
        match spot.place.region {
            Region::Context => return self.context_read(spot.place.offset, width, signed),
            Region::MapKey { map } => match self.keys(map)? {
                Keys::Index => return Ok(self.index_bytes(spot, width, signed)),
                Keys::Dense(layout) => {
                    return self.dense_bytes(spot, map, &layout, width, signed);
                }
                Keys::InMemory => {}
            },
            Region::Stack { .. }
            | Region::MapValue { .. }
            | Region::Record { .. }
            | Region::Memory => {}
        }
        if aligned(spot.place, width) {
            return self.load_piece(spot, width, signed, sync);
        }
        self.no_sync(spot.place.region, sync)?;
        let mut halves = [None, None];
        for (at, part) in pieces(spot.place, width.bytes().into(), 4) {
            let value = self.load_piece(spot.plus(at), part, false, false)?;
            let mut value = self.trunc(value);
            if at % 4 != 0 {
                value = self.bin_const(BinOp::Shl, value, at as u64 % 4 * 8);
            }
            let half = &mut halves[usize::from(at >= 4)];
            *half = Some(match *half {
                None => value,
                Some(rest) => self.bin(BinOp::Or, rest, value),
            });
        }
        match halves {
            [Some(low), Some(high)] => Ok(self.push(Ty::B64, Op::Pack(low, high))),
            [Some(low), None] => Ok(self.extend(low, width, signed)),
            [None, _] => self.missing("bytes to load"),
        }
    }

    /// Stores the low bits of a register value. `sync`: with release, where others can see the
    /// memory.
    pub(super) fn store(
        &mut self,
        spot: Spot,
        width: Width,
        value: Value,
        sync: bool,
    ) -> Result<(), CodegenError> {
        if aligned(spot.place, width) {
            return self.store_piece(spot, width, value, sync);
        }
        self.no_sync(spot.place.region, sync)?;
        for (at, part) in pieces(spot.place, width.bytes().into(), 4) {
            let mut half = if at >= 4 {
                let high = self.bin_const(BinOp::Shr, value, 32);
                self.trunc(high)
            } else {
                self.trunc(value)
            };
            if at % 4 != 0 {
                half = self.bin_const(BinOp::Shr, half, at as u64 % 4 * 8);
            }
            let half = self.zext(half);
            self.store_piece(spot.plus(at), part, half, false)?;
        }
        Ok(())
    }

    /// Several instructions cannot acquire or release together.
    fn no_sync(&self, region: Region, sync: bool) -> Result<(), CodegenError> {
        match region {
            Region::MapValue { .. } if sync => self.missing("an aligned address"),
            Region::MapValue { .. }
            | Region::Stack { .. }
            | Region::Context
            | Region::Record { .. }
            | Region::MapKey { .. }
            | Region::Memory => Ok(()),
        }
    }

    /// A load from an aligned address.
    fn load_piece(
        &mut self,
        spot: Spot,
        width: Width,
        signed: bool,
        sync: bool,
    ) -> Result<Value, CodegenError> {
        let mem = match spot.place.region {
            Region::Context => return self.missing("memory"),
            Region::Stack { .. } => match self.part(spot.place, width) {
                Some(part) => return Ok(self.read_part(part, width, signed)),
                None => Mem::Local,
            },
            Region::MapValue { map } => spot.map_memory(map, sync),
            Region::Record { .. } => Mem::Record,
            Region::MapKey { .. } => Mem::Key,
            Region::Memory => Mem::Memory,
        };
        let addr = self.address(mem, spot.pointer);
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
                addr,
                off: spot.off,
            },
        );
        Ok(match (width, signed) {
            (Width::W64, _) => value,
            (_, false) => self.zext(value),
            (_, true) => self.push(Ty::B64, Op::Un(UnOp::Sext, value)),
        })
    }

    /// A store to an aligned address.
    fn store_piece(
        &mut self,
        spot: Spot,
        width: Width,
        value: Value,
        sync: bool,
    ) -> Result<(), CodegenError> {
        let mem = match spot.place.region {
            Region::Context | Region::MapKey { .. } => return self.missing("a writable region"),
            Region::Stack { .. } => match self.part(spot.place, width) {
                Some(part) => {
                    self.write_part(part, width, value);
                    return Ok(());
                }
                None => Mem::Local,
            },
            Region::MapValue { map } => spot.map_memory(map, sync),
            Region::Record { .. } => Mem::Record,
            Region::Memory => Mem::Memory,
        };
        let addr = self.address(mem, spot.pointer);
        let value = if width == Width::W64 {
            value
        } else {
            self.trunc(value)
        };
        self.push_effect(Op::Store {
            mem,
            width,
            addr,
            off: spot.off,
            value,
        });
        Ok(())
    }

    /// The address that a program's pointer into `mem` stands for.
    pub(super) fn address(&mut self, mem: Mem, pointer: Value) -> Value {
        match mem {
            Mem::Local => self.bin_const(BinOp::Add, pointer, NOT_NULL.wrapping_neg()),
            _ => pointer,
        }
    }

    /// The variable that holds a place on a stack, if it is not in memory.
    fn part(&self, place: Place, width: Width) -> Option<Part> {
        match place.region {
            Region::Stack { frame } => self.plan.part(frame, place.offset?, width),
            Region::Context
            | Region::MapValue { .. }
            | Region::Record { .. }
            | Region::MapKey { .. }
            | Region::Memory => None,
        }
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
        self.extend(low, width, signed)
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

    /// The register value of the low `width` bits, at most 32, of a `b32`.
    pub(super) fn extend(&mut self, low: Value, width: Width, signed: bool) -> Value {
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

    /// `size` bytes as little-endian words, the last padded with zeros.
    pub(super) fn load_words(&mut self, spot: Spot, size: u64) -> Result<Vec<Value>, CodegenError> {
        let mut words: Vec<Value> = Vec::new();
        for (at, width) in pieces(spot.place, size, 8) {
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

/// The address is a multiple of the width. A known offset tells that too, because every region
/// begins 8-aligned.
pub(super) fn aligned(place: Place, width: Width) -> bool {
    match place.offset {
        Some(offset) => offset % i64::from(width.bytes()) == 0,
        None => place.align >= width.bytes(),
    }
}

/// How to access `size` bytes: aligned pieces that do not cross multiples of `word`, as offsets
/// relative to the place.
pub(super) fn pieces(place: Place, size: u64, word: i64) -> Vec<(i64, Width)> {
    let (start, widest) = match place.offset {
        Some(offset) => (offset, 8),
        // As if the region began here, aligned to no more than what is known.
        None => (0, place.align),
    };
    let mut list = Vec::new();
    for (at, width) in chunks(start, size) {
        split(at - start, width, widest, word, &mut list);
    }
    list
}

fn split(at: i64, width: Width, widest: u32, word: i64, list: &mut Vec<(i64, Width)>) {
    let bytes = i64::from(width.bytes());
    let half = match width {
        Width::W8 => return list.push((at, width)),
        _ if at % word + bytes <= word && width.bytes() <= widest => {
            return list.push((at, width));
        }
        Width::W64 => Width::W32,
        Width::W32 => Width::W16,
        Width::W16 => Width::W8,
    };
    split(at, half, widest, word, list);
    split(at + i64::from(half.bytes()), half, widest, word, list);
}
