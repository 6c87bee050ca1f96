//! What the generator knows while it writes: the code so far, what each register holds, and where
//! memory is.

use warpbpf_ebpf::{AluOp, Callee, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};

use crate::rng::Rng;
use crate::test::MapSpec;

/// Registers that hold arguments and results; a call leaves nothing in 1 to 5.
pub(super) const POINTER: Reg = reg(6);
pub(super) const VALUE: Reg = reg(7);

/// A register by a number that is known to be one.
pub(super) const fn reg(n: u8) -> Reg {
    match Reg::new(n) {
        Some(reg) => reg,
        None => Reg::R0,
    }
}

/// What a register holds, as far as the generator cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing, or something that differs from path to path.
    Nothing,
    /// A number.
    Number,
    /// A pointer that only its own statement uses.
    Pointer,
}

/// Memory that a register points into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    pub base: Reg,
    /// First byte, relative to the register.
    pub low: i16,
    /// One past the last byte.
    pub high: i16,
    /// The register's value is a multiple of this.
    pub align: i16,
}

/// What a function is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The program.
    Entry,
    /// Called with a pointer to 16 bytes and so many numbers.
    Plain { numbers: u8 },
    /// The callback of `bpf_loop`: index, pointer to 16 bytes.
    Round,
    /// The callback of `bpf_for_each_map_elem`: map, key, value, pointer to 16 bytes.
    Element { map: u32 },
}

/// A function to be called, written after the program.
pub(super) struct Function {
    pub role: Role,
    /// Where it is wanted: calls and function addresses.
    pub uses: Vec<usize>,
}

pub(super) struct Generator<'a> {
    pub rng: &'a mut Rng,
    pub maps: &'a [MapSpec],
    /// Maps may be used in any way.
    pub alone: bool,
    pub code: Vec<Insn>,
    pub functions: Vec<Function>,
    /// Functions with this index and above may be called: there is no recursion.
    pub callable: usize,
    pub kinds: [Kind; Reg::COUNT],
    /// Registers that must keep what they hold.
    pub kept: [bool; Reg::COUNT],
    pub areas: Vec<Area>,
    /// Nesting of branches and loops.
    pub depth: u32,
    /// Nesting of loops, callbacks included: rounds multiply.
    pub loops: u32,
    /// Statements that may still be written.
    pub budget: u32,
    pub role: Role,
    /// Some accesses may be outside of what they access: then the program is refused.
    pub daring: bool,
    /// The iterator is in use.
    pub iterating: bool,
}

/// Bytes of stack that each function fills at its start.
pub(super) const STACK: i16 = 48;
/// Where the pointer is spilled.
pub(super) const SPILL: i16 = -STACK - 8;
/// Where a loop's counter is when it is not in a register.
pub(super) const COUNTER: i16 = -STACK - 16;
/// Where the iterator is.
pub(super) const ITERATOR: i16 = -STACK - 24;

impl<'a> Generator<'a> {
    pub fn new(rng: &'a mut Rng, maps: &'a [MapSpec], alone: bool) -> Generator<'a> {
        let budget = 4 + rng.below(28) as u32;
        Generator {
            rng,
            maps,
            alone,
            code: Vec::new(),
            functions: Vec::new(),
            callable: 0,
            kinds: [Kind::Nothing; Reg::COUNT],
            kept: [false; Reg::COUNT],
            areas: Vec::new(),
            depth: 0,
            loops: 0,
            budget,
            role: Role::Entry,
            daring: false,
            iterating: false,
        }
    }

    // --- writing
    // ---------------------------------------------------------------------------------------------

    pub fn emit(&mut self, insn: Insn) -> usize {
        self.code.push(insn);
        self.code.len() - 1
    }

    pub fn alu(&mut self, wide: bool, op: AluOp, dst: Reg, src: Source) {
        self.emit(Insn::Alu { wide, op, dst, src });
    }

    /// `dst = imm`
    pub fn set(&mut self, dst: Reg, imm: i32) {
        self.alu(true, AluOp::Mov, dst, Source::Imm(imm));
        self.kinds[dst.index()] = Kind::Number;
    }

    /// `dst = src`, a pointer or a number.
    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.alu(true, AluOp::Mov, dst, Source::Reg(src));
        self.kinds[dst.index()] = if src == Reg::FP {
            Kind::Pointer
        } else {
            self.kinds[src.index()]
        };
    }

    pub fn store(&mut self, width: Width, base: Reg, off: i16, src: Source) {
        self.emit(Insn::Store {
            width,
            base,
            off,
            src,
        });
    }

    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, off: i16) {
        self.emit(Insn::Load {
            width,
            signed: false,
            dst,
            base,
            off,
        });
        self.kinds[dst.index()] = Kind::Number;
    }

    /// A conditional jump forward, to be aimed by [`Generator::land`].
    pub fn jump(&mut self, wide: bool, op: JumpOp, dst: Reg, src: Source) -> usize {
        self.emit(Insn::Jump {
            wide,
            op,
            dst,
            src,
            target: Pc(0),
        })
    }

    pub fn goto(&mut self) -> usize {
        let long = self.rng.one_in(8);
        self.emit(Insn::Goto {
            target: Pc(0),
            long,
        })
    }

    /// The jump at `at` goes to the next instruction.
    pub fn land(&mut self, at: usize) {
        self.aim(at, self.code.len());
    }

    pub fn aim(&mut self, at: usize, to: usize) {
        let here = Pc(to as u32);
        match &mut self.code[at] {
            Insn::Jump { target, .. } | Insn::Goto { target, .. } | Insn::MayGoto { target } => {
                *target = here;
            }
            Insn::Call {
                callee: Callee::Local(target),
            }
            | Insn::LoadImm64 {
                value: Imm64::Func(target),
                ..
            } => *target = here,
            _ => {}
        }
    }

    // --- registers
    // ---------------------------------------------------------------------------------------------

    /// A register that may be written.
    pub fn free(&mut self) -> Reg {
        loop {
            let n = self.rng.below(10);
            if !self.kept[n] {
                return reg(n as u8);
            }
        }
    }

    /// A writable register other than these.
    pub fn free_but(&mut self, not: &[Reg]) -> Reg {
        loop {
            let found = self.free();
            if !not.contains(&found) {
                return found;
            }
        }
    }

    /// A register that holds a number.
    pub fn number(&mut self) -> Reg {
        for _ in 0..6 {
            let n = self.rng.below(10);
            if self.kinds[n] == Kind::Number {
                return reg(n as u8);
            }
        }
        let dst = self.free();
        self.any_number(dst);
        dst
    }

    /// A writable register that holds a number.
    pub fn writable_number(&mut self) -> Reg {
        let dst = self.free();
        if self.kinds[dst.index()] != Kind::Number {
            self.any_number(dst);
        }
        dst
    }

    /// Puts a number into a register.
    pub fn any_number(&mut self, dst: Reg) {
        let value = self.rng.number();
        if self.rng.one_in(3) {
            self.emit(Insn::LoadImm64 {
                dst,
                value: Imm64::Value(value),
            });
        } else {
            let wide = !self.rng.one_in(4);
            self.alu(wide, AluOp::Mov, dst, Source::Imm(value as i32));
        }
        self.kinds[dst.index()] = Kind::Number;
    }

    /// A number or a constant.
    pub fn source(&mut self) -> Source {
        if self.rng.one_in(3) {
            Source::Imm(self.immediate())
        } else {
            Source::Reg(self.number())
        }
    }

    pub fn immediate(&mut self) -> i32 {
        if self.rng.one_in(2) {
            self.rng.between(-9, 9) as i32
        } else {
            self.rng.number() as i32
        }
    }

    /// What is left in the registers after a call.
    pub fn clobber(&mut self) {
        for n in 1..=5 {
            self.kinds[n] = Kind::Nothing;
        }
        self.kinds[0] = Kind::Number;
    }

    /// An area, often the stack or what the function was given.
    pub fn area(&mut self) -> Area {
        let n = self.rng.below(self.areas.len());
        self.areas[n]
    }

    /// All registers that are not kept are as they were at `before` as well as now.
    pub fn merge(&mut self, other: &[Kind; Reg::COUNT]) {
        for (kind, other) in self.kinds.iter_mut().zip(other) {
            if kind != other {
                *kind = Kind::Nothing;
            }
        }
    }
}
