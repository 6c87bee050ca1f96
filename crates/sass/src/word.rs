//! One instruction as bits: reading and writing it by the table.

use crate::arch::Arch;
use crate::table::{Op, ROWS, Row, Slot};

/// Bytes of an instruction.
pub const BYTES: usize = 16;
/// No register: reads as zero.
pub const RZ: u8 = 255;

/// The 128 bits of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word(pub u128);

/// What the hardware is told about when to issue an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Cycles until the next instruction of the warp, 0 to 15.
    pub stall: u8,
    /// Bit 109: with it the scheduler stays with the warp if it can.
    pub stay: bool,
    /// Barrier (0 to 5) that is raised until the result is there; 7 for none.
    pub write: u8,
    /// Barrier that is raised until the operands were read; 7 for none.
    pub read: u8,
    /// Barriers that must be down first, as bits.
    pub wait: u8,
    /// Operands that stay in the reuse cache.
    pub reuse: u8,
}

/// No barrier.
pub const NO_BARRIER: u8 = 7;
/// All six barriers.
pub const ALL_BARRIERS: u8 = 0x3f;

impl Control {
    /// Issued at once; the next one `stall` cycles later.
    pub const fn stall(stall: u8) -> Control {
        Control {
            stall,
            stay: false,
            write: NO_BARRIER,
            read: NO_BARRIER,
            wait: 0,
            reuse: 0,
        }
    }

    /// The scheduler stays with the warp.
    pub const fn staying(self) -> Control {
        Control { stay: true, ..self }
    }

    /// What `ptxas` gives to jumps.
    pub const fn jump() -> Control {
        Control::stall(5).staying()
    }

    /// The same behind these barriers.
    pub const fn after(self, wait: u8) -> Control {
        Control { wait, ..self }
    }
}

/// A predicate and whether it is negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    /// 0 to 6; 7 always holds.
    pub register: u8,
    /// It must not hold.
    pub negated: bool,
}

impl Predicate {
    /// Always.
    pub const ALWAYS: Predicate = Predicate {
        register: 7,
        negated: false,
    };
    /// Never.
    pub const NEVER: Predicate = Predicate {
        register: 7,
        negated: true,
    };

    /// Where this does not hold.
    #[must_use]
    pub const fn not(self) -> Predicate {
        Predicate {
            negated: !self.negated,
            ..self
        }
    }

    pub(crate) fn bits(self) -> u128 {
        u128::from(self.register) | u128::from(self.negated) << 3
    }

    pub(crate) fn of(bits: u128) -> Predicate {
        Predicate {
            register: (bits & 7) as u8,
            negated: bits & 8 != 0,
        }
    }
}

/// An instruction of the table. Operands that it does not have are zero, or [`Predicate::ALWAYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    /// Which.
    pub op: Op,
    /// It is executed where this holds.
    pub guard: Predicate,
    /// And this.
    pub second: Predicate,
    /// Register written.
    pub target: u8,
    /// Register read.
    pub source: u8,
    /// Convergence barrier.
    pub barrier: u8,
    /// A number, or an offset in bytes: in constant bank 0, or from the stack pointer.
    pub number: u32,
    /// Bytes from the next instruction to where it leads; a multiple of 4.
    pub distance: i64,
    /// When.
    pub control: Control,
}

impl Insn {
    /// One without operands that is always executed.
    pub const fn new(op: Op, control: Control) -> Insn {
        Insn {
            op,
            guard: Predicate::ALWAYS,
            second: Predicate::ALWAYS,
            target: 0,
            source: 0,
            barrier: 0,
            number: 0,
            distance: 0,
            control,
        }
    }

    /// The same, leading from offset `at` to offset `to` of the section.
    pub const fn leading(self, at: u64, to: u64) -> Insn {
        Insn {
            distance: to as i64 - (at as i64 + BYTES as i64),
            ..self
        }
    }

    /// Its bits. `None` if the architecture does not have it in the table, or an operand does not
    /// fit.
    pub fn encode(&self, arch: Arch) -> Option<Word> {
        let row = row(self.op, arch)?;
        let mut word = Word(row.fixed)
            .with(12, 4, self.guard.bits())
            .with_control(self.control);
        for slot in row.slots {
            word = match *slot {
                Slot::Second => word.with(87, 4, self.second.bits()),
                Slot::Target => word.with(16, 8, self.target.into()),
                Slot::Source => word.with(24, 8, self.source.into()),
                Slot::Mask => word.with(32, 8, self.source.into()),
                Slot::Barrier if self.barrier < 16 => word.with(16, 4, self.barrier.into()),
                Slot::Number => word.with_number(self.number),
                // The field has a sign, and what is below zero is of no use.
                Slot::Constant if self.number.is_multiple_of(4) && self.number < 1 << 15 => {
                    word.with(40, 14, (self.number / 4).into())
                }
                Slot::Distance { splits } => {
                    word.with_distance(self.distance, splits && arch.splits_distances())?
                }
                Slot::Offset if matches!(self.number as i32, -0x80_0000..0x80_0000) => {
                    word.with(40, 24, self.number.into())
                }
                Slot::Barrier | Slot::Constant | Slot::Offset => return None,
            };
        }
        Some(word)
    }

    /// Reads a word by the table. `None`: it is none of the table's, or has bits that the table
    /// does not name.
    pub fn decode(word: Word, arch: Arch) -> Option<Insn> {
        // Every word of a kernel is asked for, and no operand lies in these bits: what is in no row
        // is known at once.
        ROWS.iter()
            .filter(|row| Word(row.fixed).opcode() == word.opcode() && row.archs.contains(&arch))
            .find_map(|row| read(row, word, arch))
    }
}

fn row(op: Op, arch: Arch) -> Option<&'static Row> {
    ROWS.iter()
        .find(|row| row.op == op && row.archs.contains(&arch))
}

fn read(row: &Row, word: Word, arch: Arch) -> Option<Insn> {
    let mut insn = Insn::new(row.op, word.control());
    insn.guard = Predicate::of(word.bits(12, 4));
    for slot in row.slots {
        match *slot {
            Slot::Second => insn.second = Predicate::of(word.bits(87, 4)),
            Slot::Target => insn.target = word.bits(16, 8) as u8,
            Slot::Source => insn.source = word.bits(24, 8) as u8,
            Slot::Mask => insn.source = word.bits(32, 8) as u8,
            Slot::Barrier => insn.barrier = word.bits(16, 4) as u8,
            Slot::Number => insn.number = word.bits(32, 32) as u32,
            Slot::Constant => insn.number = word.bits(40, 14) as u32 * 4,
            Slot::Offset => insn.number = word.signed(40, 24) as u32,
            Slot::Distance { splits } => {
                insn.distance = word.distance(splits && arch.splits_distances());
            }
        }
    }
    // What is written again is the same only if the word has nothing beside what was read.
    (insn.encode(arch) == Some(word)).then_some(insn)
}

impl Word {
    /// The word at `offset`; `None` where there is no whole one.
    pub fn at(code: &[u8], offset: usize) -> Option<Word> {
        let bytes = code.get(offset..offset.checked_add(BYTES)?)?;
        Some(Word(u128::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; BYTES] {
        self.0.to_le_bytes()
    }

    /// `count` bits from `first` on.
    pub fn bits(self, first: u32, count: u32) -> u128 {
        self.0 >> first & ((1 << count) - 1)
    }

    /// The same as a number with a sign, of at most 32 bits.
    pub fn signed(self, first: u32, count: u32) -> i32 {
        let unused = 32 - count;
        (self.bits(first, count) as i32) << unused >> unused
    }

    /// The same word with these bits.
    #[must_use]
    pub fn with(self, first: u32, count: u32, bits: u128) -> Word {
        let mask = (1u128 << count) - 1;
        Word(self.0 & !(mask << first) | (bits & mask) << first)
    }

    /// The same word with another number as its operand: of a `MOV`.
    #[must_use]
    pub fn with_number(self, number: u32) -> Word {
        self.with(32, 32, number.into())
    }

    /// The opcode with the form of its operands.
    pub fn opcode(self) -> u16 {
        self.bits(0, 12) as u16
    }

    /// The operation alone.
    pub fn base(self) -> u16 {
        self.bits(0, 9) as u16
    }

    /// The control word.
    pub fn control(self) -> Control {
        Control {
            stall: self.bits(105, 4) as u8,
            stay: self.bits(109, 1) != 0,
            write: self.bits(110, 3) as u8,
            read: self.bits(113, 3) as u8,
            wait: self.bits(116, 6) as u8,
            reuse: self.bits(122, 4) as u8,
        }
    }

    /// The same word under another control word.
    #[must_use]
    pub fn with_control(self, control: Control) -> Word {
        self.with(105, 4, control.stall.into())
            .with(109, 1, control.stay.into())
            .with(110, 3, control.write.into())
            .with(113, 3, control.read.into())
            .with(116, 6, control.wait.into())
            .with(122, 4, control.reuse.into())
    }

    /// A call or branch whose target is in a register.
    pub fn is_indirect(self) -> bool {
        self.opcode() >> 9 == 1
    }

    /// Where a branch, call or region of whatever form leads, if the word at offset `at` is one
    /// whose distance is in it.
    pub fn leads_to(self, at: u64, arch: Arch) -> Option<u64> {
        use crate::table::base;
        let distance = match self.base() {
            base::BRA | base::CALL_REL if !self.is_indirect() => {
                self.distance(arch.splits_distances())
            }
            base::BSSY => self.distance(false),
            _ => return None,
        };
        Some((at + BYTES as u64).wrapping_add_signed(distance))
    }

    /// In bytes.
    fn distance(self, split: bool) -> i64 {
        let words = self.bits(34, 48);
        let (value, width) = if split {
            (words << 8 | self.bits(16, 8), 56)
        } else {
            (words, 48)
        };
        let unused = 64 - width;
        ((value as i64) << unused >> unused).wrapping_mul(4)
    }

    fn with_distance(self, distance: i64, split: bool) -> Option<Word> {
        let words = distance / 4;
        let width = if split { 56 } else { 48 };
        let limit = 1i64 << (width - 1);
        if distance % 4 != 0 || !(-limit..limit).contains(&words) {
            return None;
        }
        let bits = u128::from(words as u64);
        Some(if split {
            self.with(16, 8, bits).with(34, 48, bits >> 8)
        } else {
            self.with(34, 48, bits)
        })
    }
}
