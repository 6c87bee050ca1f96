//! Statements without branches of their own: arithmetic, and memory in every way that it can be
//! reached.

use warpbpf_ebpf::{AluOp, AtomicOp, EndKind, Insn, JumpOp, Reg, Source, Width};

use super::state::{Area, Generator, Kind, POINTER, SPILL};

const OPS: [AluOp; 14] = [
    AluOp::Add,
    AluOp::Sub,
    AluOp::Mul,
    AluOp::Div,
    AluOp::SDiv,
    AluOp::Or,
    AluOp::And,
    AluOp::Lsh,
    AluOp::Rsh,
    AluOp::Mod,
    AluOp::SMod,
    AluOp::Xor,
    AluOp::Mov,
    AluOp::Arsh,
];

/// Conditions that bound a number.
const LIMITS: [JumpOp; 10] = [
    JumpOp::Eq,
    JumpOp::Set,
    JumpOp::Gt,
    JumpOp::Gt,
    JumpOp::Ge,
    JumpOp::Lt,
    JumpOp::SGt,
    JumpOp::SGe,
    JumpOp::SLt,
    JumpOp::SLe,
];

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

impl Generator<'_> {
    pub fn arithmetic(&mut self) {
        let dst = self.writable_number();
        match self.rng.below(12) {
            0 => {
                let wide = self.rng.one_in(2);
                let bits = if wide {
                    self.rng.pick(&[8, 16, 32])
                } else {
                    self.rng.pick(&[8, 16])
                };
                let src = self.number();
                self.emit(Insn::MovSx {
                    wide,
                    bits,
                    dst,
                    src,
                });
            }
            1 => {
                let wide = self.rng.one_in(2);
                self.emit(Insn::Neg { wide, dst });
            }
            2 => {
                let kind = self
                    .rng
                    .pick(&[EndKind::ToLe, EndKind::ToBe, EndKind::Swap]);
                let bits = self.rng.pick(&[16, 32, 64]);
                self.emit(Insn::End { kind, bits, dst });
            }
            _ => {
                let wide = self.rng.one_in(2);
                let op = self.rng.pick(&OPS);
                let src = match self.source() {
                    Source::Imm(imm) => Source::Imm(allowed(op, wide, imm)),
                    src @ Source::Reg(_) => src,
                };
                self.alu(wide, op, dst, src);
            }
        }
    }

    /// A load, store or atomic at a fixed place.
    pub fn access(&mut self) {
        let area = self.area();
        let width = self.rng.pick(&WIDTHS);
        let aligned = !self.rng.one_in(3);
        let Some(off) = self.place(area, width, aligned) else {
            return;
        };
        self.access_at(area.base, off, width, is_aligned(area, off, width));
    }

    /// A byte offset in the area where `width` fits.
    pub fn place(&mut self, area: Area, width: Width, aligned: bool) -> Option<i16> {
        let bytes = width.bytes() as i16;
        let last = area.high - bytes;
        if last < area.low {
            return None;
        }
        let off = self.rng.between(i64::from(area.low), i64::from(last)) as i16;
        if !aligned {
            return Some(off);
        }
        let down = off - off.rem_euclid(bytes);
        Some(if down < area.low { down + bytes } else { down }).filter(|off| *off <= last)
    }

    /// Something at `base + off`; atomics only where they are aligned.
    pub fn access_at(&mut self, base: Reg, off: i16, width: Width, aligned: bool) {
        let wide_enough = matches!(width, Width::W32 | Width::W64);
        match self.rng.below(8) {
            0..=2 => {
                let dst = self.free_but(&[base]);
                let signed = width != Width::W64 && self.rng.one_in(3);
                self.emit(Insn::Load {
                    width,
                    signed,
                    dst,
                    base,
                    off,
                });
                self.kinds[dst.index()] = Kind::Number;
            }
            6 if aligned && wide_enough => self.atomic(base, off, width),
            7 if aligned && self.rng.one_in(2) => {
                let dst = self.free_but(&[base]);
                self.emit(Insn::LoadAcquire {
                    width,
                    dst,
                    base,
                    off,
                });
                self.kinds[dst.index()] = Kind::Number;
            }
            7 if aligned => {
                let src = self.number();
                self.emit(Insn::StoreRelease {
                    width,
                    base,
                    off,
                    src,
                });
            }
            _ => {
                let src = self.source();
                self.store(width, base, off, src);
            }
        }
    }

    pub fn atomic(&mut self, base: Reg, off: i16, width: Width) {
        let fetch = self.rng.one_in(2);
        let op = self.rng.pick(&[
            AtomicOp::Add { fetch },
            AtomicOp::Or { fetch },
            AtomicOp::And { fetch },
            AtomicOp::Xor { fetch },
            AtomicOp::Xchg,
            AtomicOp::CmpXchg,
        ]);
        if op == AtomicOp::CmpXchg {
            if self.kept[0] {
                return;
            }
            // Equal sometimes: what is there now, or part of it.
            if self.rng.one_in(2) {
                self.load(width, Reg::R0, base, off);
            } else if self.kinds[0] != Kind::Number {
                self.any_number(Reg::R0);
            }
        }
        let src = self.writable_number();
        self.emit(Insn::Atomic {
            width,
            op,
            base,
            off,
            src,
        });
    }

    /// An access whose place depends on a number that was brought into its range in one of several
    /// ways.
    pub fn varying_access(&mut self) {
        let area = self.area();
        let width = self.rng.pick(&WIDTHS);
        let room = area.high - area.low - width.bytes() as i16;
        if room < 1 {
            return;
        }
        let number = self.number();
        let index = self.free_but(&[area.base]);
        let wide = !self.rng.one_in(4);
        self.alu(wide, AluOp::Mov, index, Source::Reg(number));
        self.kinds[index.index()] = Kind::Number;
        let imm = |n: i16| Source::Imm(i32::from(n));
        let mut skip = None;
        match self.rng.below(5) {
            0 => {
                // The largest mask that fits.
                let mask = (1 << (15 - (room + 1).leading_zeros())) - 1;
                let aligned = mask & -(width.bytes() as i16);
                let mask = if self.rng.one_in(2) { aligned } else { mask };
                self.alu(true, AluOp::And, index, imm(mask));
            }
            1 => self.alu(wide, AluOp::Mod, index, imm(room + 1)),
            2 => {
                let bits = 63 - i16::from(room > 7) * 2 - i16::from(room > 31) * 2;
                self.alu(true, AluOp::Rsh, index, imm(bits));
                if room < 1 << (64 - bits) {
                    self.alu(true, AluOp::And, index, Source::Imm(1));
                }
            }
            3 => skip = Some(self.jump(true, JumpOp::Gt, index, imm(room))),
            _ => {
                self.alu(false, AluOp::Mov, index, Source::Reg(index));
                let low = self.jump(true, JumpOp::Ge, index, imm(room));
                skip = Some(low);
            }
        }
        let before = self.kinds;
        let pointer = self.free_but(&[index, area.base]);
        self.copy(pointer, area.base);
        self.alu(true, AluOp::Add, pointer, Source::Reg(index));
        self.kinds[pointer.index()] = Kind::Pointer;
        // The statement writes only what both paths can lose.
        let off = area.low;
        let known = is_aligned(area, off, width) && width == Width::W8;
        self.access_at(pointer, off, width, known);
        if self.kinds[pointer.index()] == Kind::Pointer {
            self.kinds[pointer.index()] = Kind::Nothing;
        }
        if let Some(at) = skip {
            self.land(at);
            self.merge(&before);
        }
    }

    /// An access that some arithmetic and some comparisons may or may not keep inside: the verifier
    /// has to know. What it accepts wrongly traps in the interpreter.
    pub fn daring_access(&mut self) {
        let area = self.area();
        let width = self.rng.pick(&WIDTHS);
        let number = self.number();
        let index = self.free_but(&[area.base]);
        let wide = !self.rng.one_in(3);
        self.alu(wide, AluOp::Mov, index, Source::Reg(number));
        self.kinds[index.index()] = Kind::Number;
        let room = i32::from(area.high - area.low) - width.bytes() as i32;
        for _ in 0..1 + self.rng.below(4) {
            let wide = !self.rng.one_in(3);
            let op = self.rng.pick(&OPS);
            let near = self.rng.between(-2, 3) as i32;
            let imm = match op {
                AluOp::Lsh => near & 3,
                AluOp::Rsh | AluOp::Arsh if wide => 56 + (near & 7),
                AluOp::Rsh | AluOp::Arsh => 24 + (near & 7),
                AluOp::And => self.rng.pick(&[1, 3, 7, 15, 31, 63, -8, room]),
                AluOp::Mod | AluOp::SMod | AluOp::Div | AluOp::SDiv => room.max(3) + near.max(0),
                AluOp::Mul => near.abs() + 1,
                AluOp::Mov => continue,
                AluOp::Add | AluOp::Sub | AluOp::Or | AluOp::Xor => near,
            };
            self.alu(wide, op, index, Source::Imm(imm));
            if self.rng.one_in(6) {
                self.emit(Insn::MovSx {
                    wide,
                    bits: 8,
                    dst: index,
                    src: index,
                });
            }
        }
        let mut skips = Vec::new();
        for _ in 0..self.rng.below(4) {
            let (wide, op) = (self.rng.one_in(2), self.rng.pick(&LIMITS));
            let around = self.rng.pick(&[0, 0, -1, 1, 7, room, room, room + 1, 64]);
            let dst = if self.rng.one_in(5) { number } else { index };
            skips.push(self.jump(wide, op, dst, Source::Imm(around)));
        }
        let before = self.kinds;
        let pointer = self.free_but(&[index, area.base]);
        self.copy(pointer, area.base);
        self.alu(true, AluOp::Add, pointer, Source::Reg(index));
        self.kinds[pointer.index()] = Kind::Pointer;
        self.access_at(pointer, area.low, width, false);
        if self.kinds[pointer.index()] == Kind::Pointer {
            self.kinds[pointer.index()] = Kind::Nothing;
        }
        for skip in skips {
            self.land(skip);
        }
        self.merge(&before);
    }

    /// The pointer goes through the stack, or through arithmetic, and is used.
    pub fn moved_pointer(&mut self) {
        let area = self.area();
        let width = self.rng.pick(&WIDTHS);
        let Some(off) = self.place(area, width, true) else {
            return;
        };
        let pointer = self.free_but(&[area.base]);
        let mut shift = 0;
        if area.base == POINTER && self.rng.one_in(2) {
            self.store(Width::W64, Reg::FP, SPILL, Source::Reg(area.base));
            self.load(Width::W64, pointer, Reg::FP, SPILL);
        } else {
            self.copy(pointer, area.base);
            shift = self.rng.between(-64, 64) as i16;
            let (op, imm) = if self.rng.one_in(2) {
                (AluOp::Add, shift)
            } else {
                (AluOp::Sub, -shift)
            };
            self.alu(true, op, pointer, Source::Imm(i32::from(imm)));
        }
        self.kinds[pointer.index()] = Kind::Pointer;
        let aligned = is_aligned(area, off, width);
        self.access_at(pointer, off - shift, width, aligned);
        if self.kinds[pointer.index()] == Kind::Pointer {
            self.kinds[pointer.index()] = Kind::Nothing;
        }
    }
}

/// `base + off` is a multiple of the width.
pub(super) fn is_aligned(area: Area, off: i16, width: Width) -> bool {
    let bytes = width.bytes() as i16;
    area.align >= bytes && off.rem_euclid(bytes) == 0
}

/// An immediate that encodes something that the verifier takes: shifts inside the width, divisors
/// other than 0.
fn allowed(op: AluOp, wide: bool, imm: i32) -> i32 {
    match op {
        AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => imm & if wide { 63 } else { 31 },
        AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod if imm == 0 => 3,
        _ => imm,
    }
}
