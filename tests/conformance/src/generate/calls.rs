//! Helpers and maps.
//!
//! A program that runs alone does to its maps what it likes. In one that many threads run, what
//! they do must come out the same in any order: they add to values and see no result.

use warpbpf_abi::helpers::HelperId;
use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Imm64, Insn, JumpOp, Reg, Source, Width};

use super::state::{Area, Generator, Kind, STACK, VALUE, reg};
use crate::test::MapSpec;

/// Keys are taken from so few that they meet.
const KEYS: i32 = 7;

impl Generator<'_> {
    pub fn call(&mut self, helper: HelperId) {
        self.emit(Insn::Call {
            callee: Callee::Helper(helper as u32),
        });
        self.clobber();
    }

    /// A helper that tells where the thread is, or the fence.
    pub fn helper(&mut self) {
        match self.rng.below(6) {
            0 => self.call(HelperId::GpuMembar),
            1 => self.call(HelperId::GpuLaneId),
            n => {
                let helper = [
                    HelperId::GpuBlockIdx,
                    HelperId::GpuBlockDim,
                    HelperId::GpuThreadIdx,
                    HelperId::GpuGridDim,
                ][n - 2];
                for argument in 1..=3 {
                    let dst = reg(argument);
                    self.copy(dst, Reg::FP);
                    let words = STACK as usize / 8;
                    let off = -8 * (1 + self.rng.below(words) as i32);
                    self.alu(true, AluOp::Add, dst, Source::Imm(off));
                }
                self.call(helper);
            }
        }
    }

    pub fn map_statement(&mut self) {
        let map = self.rng.below(self.maps.len());
        if self.kept[VALUE.index()] {
            return self.arithmetic();
        }
        if !self.alone {
            return self.add_to_value(map);
        }
        match self.rng.below(6) {
            0 => self.update(map),
            1 => {
                self.key(map);
                self.map_arguments(map);
                self.call(HelperId::MapDeleteElem);
            }
            2 if matches!(self.maps[map], MapSpec::Array { .. }) => self.direct_value(map),
            _ => self.use_value(map),
        }
    }

    /// A key on the stack, at its lower end.
    fn key(&mut self, map: usize) {
        let number = self.number();
        let dst = self.free();
        self.copy(dst, number);
        let limit = match self.maps[map] {
            MapSpec::Array { max_entries, .. } if !self.alone => max_entries as i32 - 1,
            MapSpec::Array { .. } | MapSpec::Hash { .. } => KEYS,
        };
        if limit == KEYS {
            self.alu(true, AluOp::And, dst, Source::Imm(limit));
        } else {
            self.alu(true, AluOp::Mod, dst, Source::Imm(limit + 1));
        }
        if self.rng.one_in(3) {
            self.set(dst, limit.min(2));
        }
        self.store(Width::W64, Reg::FP, -STACK, Source::Reg(dst));
        if self.maps[map].key_size() > 8 {
            let imm = self.rng.between(0, 1) as i32;
            self.store(Width::W64, Reg::FP, -STACK + 8, Source::Imm(imm));
        }
    }

    /// `r1` is the map, `r2` points to the key.
    fn map_arguments(&mut self, map: usize) {
        self.emit(Insn::LoadImm64 {
            dst: reg(1),
            value: Imm64::Map(map as u32),
        });
        self.copy(reg(2), Reg::FP);
        self.alu(true, AluOp::Add, reg(2), Source::Imm(i32::from(-STACK)));
        self.kinds[1] = Kind::Nothing;
        self.kinds[2] = Kind::Nothing;
    }

    fn update(&mut self, map: usize) {
        self.key(map);
        self.map_arguments(map);
        self.copy(reg(3), Reg::FP);
        self.alu(true, AluOp::Add, reg(3), Source::Imm(-32));
        let flags = self.rng.pick(&[0, 0, 0, 1, 2, 3]);
        self.set(reg(4), flags);
        self.call(HelperId::MapUpdateElem);
    }

    /// Looks a key up and works on its value behind the null check.
    fn use_value(&mut self, map: usize) {
        self.key(map);
        self.map_arguments(map);
        self.call(HelperId::MapLookupElem);
        self.copy(VALUE, Reg::R0);
        let before = self.kinds;
        let skip = self.jump(true, JumpOp::Eq, VALUE, Source::Imm(0));
        self.with_value(map);
        self.land(skip);
        self.merge(&before);
        // What r0 and r7 hold is a pointer on one path.
        self.set(Reg::R0, map as i32);
        self.set(VALUE, 7);
    }

    fn direct_value(&mut self, map: usize) {
        self.emit(Insn::LoadImm64 {
            dst: VALUE,
            value: Imm64::MapValue {
                map: map as u32,
                offset: 0,
            },
        });
        self.with_value(map);
        self.set(VALUE, 9);
    }

    fn with_value(&mut self, map: usize) {
        self.kinds[0] = Kind::Nothing;
        self.kinds[VALUE.index()] = Kind::Pointer;
        self.kept[VALUE.index()] = true;
        let outer = self.areas.len();
        self.areas.push(Area {
            base: VALUE,
            low: 0,
            high: self.maps[map].value_size() as i16,
            align: 8,
        });
        let n = 1 + self.rng.below(3);
        for _ in 0..n {
            match self.rng.below(4) {
                0 => self.varying_access(),
                1 => self.arithmetic(),
                _ => self.access(),
            }
        }
        self.areas.truncate(outer);
        self.kept[VALUE.index()] = false;
    }

    /// Many threads add to a value of theirs or of all.
    fn add_to_value(&mut self, map: usize) {
        self.key(map);
        if let MapSpec::Hash { max_entries, .. } = self.maps[map] {
            if max_entries < 16 {
                // Which key is refused depends on who comes first.
                return;
            }
            // The other half of a key doubles the keys; both must have room.
            if self.maps[map].key_size() > 8 {
                self.store(Width::W64, Reg::FP, -STACK + 8, Source::Imm(0));
            }
            self.map_arguments(map);
            for word in 0..4 {
                self.store(Width::W64, Reg::FP, -32 + word * 8, Source::Imm(0));
            }
            self.copy(reg(3), Reg::FP);
            self.alu(true, AluOp::Add, reg(3), Source::Imm(-32));
            self.set(reg(4), 1);
            self.call(HelperId::MapUpdateElem);
        }
        self.map_arguments(map);
        self.call(HelperId::MapLookupElem);
        let skip = self.jump(true, JumpOp::Eq, Reg::R0, Source::Imm(0));
        let size = self.maps[map].value_size() as i16;
        let wide = self.rng.one_in(2);
        let (width, bytes) = if wide || size < 12 {
            (Width::W64, 8)
        } else {
            (Width::W32, 4)
        };
        // Each field is only ever added to in one width: word 0 in 64 bits, the rest in 32.
        let off = match width {
            Width::W64 => 0,
            _ => 8 + 4 * self.rng.below(((size - 8) / bytes) as usize) as i16,
        };
        let kinds = self.kinds;
        self.kinds[0] = Kind::Nothing;
        self.kept[0] = true;
        let src = self.number();
        self.kept[0] = false;
        if self.rng.one_in(2) {
            self.emit(Insn::Atomic {
                width,
                op: AtomicOp::Add { fetch: false },
                base: Reg::R0,
                off,
                src,
            });
        } else {
            let sum = self.free_but(&[Reg::R0, src]);
            self.load(width, sum, Reg::R0, off);
            self.alu(true, AluOp::Add, sum, Source::Reg(src));
            self.store(width, Reg::R0, off, Source::Reg(sum));
            self.set(sum, 1);
        }
        self.land(skip);
        self.merge(&kinds);
        self.set(Reg::R0, 3);
    }
}
