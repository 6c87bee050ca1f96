//! The encodings that a splice writes or must recognise, in one table: what is fixed in each and
//! where its operands are.
//!
//! An instruction has 128 bits. All of ours keep the opcode in bits 0 to 11, the guard in 12 to 15
//! and the control word from 105 on ([`crate::word::Control`]); the rest is in the rows below. They
//! were read off what `ptxas` 13.0 writes for `sm_80` and `sm_90`, and `tests/suite/encodings.rs`
//! holds them against it.

use crate::arch::Arch;

/// An instruction that we write or recognise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Branch within the section.
    Bra,
    /// Call within the section; the return address is not pushed anywhere.
    CallRel,
    /// Return to a register's value plus a place in the section.
    RetRel,
    /// Return to a register's value.
    RetAbs,
    /// Opens a region whose lanes meet again.
    Bssy,
    /// Where they meet.
    Bsync,
    /// The lane leaves such a region.
    Break,
    /// Waits for the lanes of a mask.
    WarpSync,
    /// Waits for all lanes that have not ended, and brings them together.
    WarpSyncAll,
    /// Ends the thread.
    Exit,
    /// Nothing.
    Nop,
    /// A register gets a number.
    MovImm,
    /// A register gets a word of the kernel's constants, over the load unit.
    Ldc,
    /// The same with two words, for two registers.
    LdcPair,
    /// The same as an operand.
    MovConst,
    /// The same by the multiplier, which is idle more often.
    ImadMovConst,
    /// A register gets another one.
    MovReg,
    /// A register is stored in the thread's stack.
    Stl,
    /// A register is loaded from there.
    Ldl,
    /// A register plus a number.
    Add,
    /// The same, and the carry in P0.
    AddCarry,
    /// The same, and the carry that is in P0.
    AddWithCarry,
    /// A register gets all predicates.
    P2r,
    /// All predicates come from a register.
    R2p,
    /// A register gets the mask of the lanes that are here.
    VoteAny,
}

/// An operand's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A second predicate, which must hold too: bits 87 to 89, negation in 90.
    Second,
    /// Register written: bits 16 to 23.
    Target,
    /// Register read: bits 24 to 31.
    Source,
    /// The same in bits 32 to 39.
    Mask,
    /// Convergence barrier: bits 16 to 19.
    Barrier,
    /// Number: bits 32 to 63.
    Number,
    /// Offset from the stack pointer in bytes, two's complement: bits 40 to 63.
    Offset,
    /// Offset in constant bank 0 in words: bits 40 to 53.
    Constant,
    /// Distance from the next instruction in words, two's complement: bits 34 to 81. Where split
    /// (`sm_90`), its low 8 bits are in 16 to 23 and bits 34 to 81 hold the rest.
    Distance {
        /// Which architectures split it.
        splits: bool,
    },
}

/// One encoding.
#[derive(Debug)]
pub struct Row {
    /// Which instruction.
    pub op: Op,
    /// As the disassembler prints it.
    pub name: &'static str,
    /// All bits that are the same in each of them; the opcode included, guard and control word left
    /// out.
    pub fixed: u128,
    /// Operands.
    pub slots: &'static [Slot],
    /// Architectures that have it as it is here.
    pub archs: &'static [Arch],
}

const BOTH: &[Arch] = &[Arch::Sm80, Arch::Sm90];
/// Where registers are saved around a probe.
const SAVING: &[Arch] = &[Arch::Sm90];
const JUMP: Slot = Slot::Distance { splits: true };
/// A convergence barrier's number stands where others keep the low bits.
const NEAR: Slot = Slot::Distance { splits: false };

const fn high(bits: u64) -> u128 {
    (bits as u128) << 64
}

/// All encodings. A word is at most one of them.
pub const ROWS: &[Row] = &[
    Row {
        op: Op::Bra,
        name: "BRA",
        fixed: 0x947,
        slots: &[Slot::Second, JUMP],
        archs: BOTH,
    },
    Row {
        op: Op::CallRel,
        name: "CALL.REL.NOINC",
        fixed: 0x944 | high(1 << 22),
        slots: &[Slot::Second, JUMP],
        archs: BOTH,
    },
    Row {
        op: Op::RetRel,
        name: "RET.REL.NODEC",
        fixed: 0x950 | high(1 << 22),
        slots: &[Slot::Second, Slot::Source, JUMP],
        archs: BOTH,
    },
    Row {
        op: Op::RetAbs,
        name: "RET.ABS.NODEC",
        fixed: 0x950 | high(1 << 22 | 1 << 21),
        slots: &[Slot::Second, Slot::Source],
        archs: BOTH,
    },
    Row {
        op: Op::Bssy,
        name: "BSSY",
        fixed: 0x945,
        slots: &[Slot::Second, Slot::Barrier, NEAR],
        archs: BOTH,
    },
    Row {
        op: Op::Bsync,
        name: "BSYNC",
        fixed: 0x941,
        slots: &[Slot::Second, Slot::Barrier],
        archs: BOTH,
    },
    Row {
        op: Op::Break,
        name: "BREAK",
        fixed: 0x942,
        slots: &[Slot::Second, Slot::Barrier],
        archs: BOTH,
    },
    Row {
        op: Op::WarpSync,
        name: "WARPSYNC",
        fixed: 0x348,
        slots: &[Slot::Second, Slot::Mask],
        archs: &[Arch::Sm80],
    },
    Row {
        op: Op::WarpSync,
        name: "WARPSYNC",
        fixed: 0x348,
        slots: &[Slot::Second, Slot::Source],
        archs: &[Arch::Sm90],
    },
    Row {
        op: Op::WarpSyncAll,
        name: "WARPSYNC",
        fixed: 0x948,
        slots: &[Slot::Second, Slot::Number],
        archs: &[Arch::Sm80],
    },
    Row {
        op: Op::WarpSyncAll,
        name: "WARPSYNC.ALL",
        fixed: 0x948,
        slots: &[Slot::Second],
        archs: &[Arch::Sm90],
    },
    Row {
        op: Op::Exit,
        name: "EXIT",
        fixed: 0x94d,
        slots: &[Slot::Second],
        archs: BOTH,
    },
    Row {
        op: Op::Nop,
        name: "NOP",
        fixed: 0x918,
        slots: &[],
        archs: BOTH,
    },
    Row {
        op: Op::MovImm,
        name: "MOV",
        fixed: 0x802 | high(0xf00),
        slots: &[Slot::Target, Slot::Number],
        archs: BOTH,
    },
    Row {
        op: Op::Ldc,
        name: "LDC",
        fixed: 0xff00_0b82 | high(0x800),
        slots: &[Slot::Target, Slot::Constant],
        archs: &[Arch::Sm90],
    },
    Row {
        op: Op::LdcPair,
        name: "LDC.64",
        fixed: 0xff00_0b82 | high(0xa00),
        slots: &[Slot::Target, Slot::Constant],
        archs: &[Arch::Sm90],
    },
    Row {
        op: Op::MovConst,
        name: "MOV",
        fixed: 0xa02 | high(0xf00),
        slots: &[Slot::Target, Slot::Constant],
        archs: &[Arch::Sm80],
    },
    Row {
        op: Op::ImadMovConst,
        name: "IMAD.MOV.U32",
        fixed: 0xff00_0624 | high(0x078e_00ff),
        slots: &[Slot::Target, Slot::Constant],
        archs: &[Arch::Sm80],
    },
    Row {
        op: Op::MovReg,
        name: "MOV",
        fixed: 0x202 | high(0xf00),
        slots: &[Slot::Target, Slot::Mask],
        archs: SAVING,
    },
    Row {
        op: Op::Stl,
        name: "STL",
        fixed: 0x0100_0387 | high(0x0010_0800),
        slots: &[Slot::Offset, Slot::Mask],
        archs: SAVING,
    },
    Row {
        op: Op::Ldl,
        name: "LDL",
        fixed: 0x0100_0983 | high(0x0010_0800),
        slots: &[Slot::Target, Slot::Offset],
        archs: SAVING,
    },
    Row {
        op: Op::Add,
        name: "IADD3",
        fixed: 0x810 | high(0x07ff_e0ff),
        slots: &[Slot::Target, Slot::Source, Slot::Number],
        archs: SAVING,
    },
    Row {
        op: Op::AddCarry,
        name: "IADD3",
        fixed: 0x810 | high(0x07f1_e0ff),
        slots: &[Slot::Target, Slot::Source, Slot::Number],
        archs: SAVING,
    },
    Row {
        op: Op::AddWithCarry,
        name: "IADD3.X",
        fixed: 0x810 | high(0x007f_e4ff),
        slots: &[Slot::Target, Slot::Source, Slot::Number],
        archs: SAVING,
    },
    Row {
        op: Op::P2r,
        name: "P2R",
        fixed: 0x007f_ff00_0803,
        slots: &[Slot::Target],
        archs: SAVING,
    },
    Row {
        op: Op::R2p,
        name: "R2P",
        fixed: 0x007f_0000_0804,
        slots: &[Slot::Source],
        archs: SAVING,
    },
    Row {
        op: Op::VoteAny,
        name: "VOTE.ANY",
        fixed: 0x806 | high(0x038e_0100),
        slots: &[Slot::Target],
        archs: SAVING,
    },
];

/// What an opcode does to the flow of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Decides where a thread goes on.
    Control,
    /// Waits for other threads of the block.
    Barrier,
    /// Neither.
    Plain,
}

/// What an instruction may still do with general registers when the next ones are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// Nothing, or nothing that fixed delays do not cover.
    Nothing,
    /// Read them; it may get a barrier that is raised until it has.
    Reads,
    /// Read and write them; it may get a barrier that is raised until its result is there.
    Writes,
    /// Not known.
    Unknown,
}

/// Low nine bits of opcodes, which name the operation; the three above say where operands come
/// from.
pub mod base {
    #![expect(
        missing_docs,
        reason = "each is the operation that the disassembler prints under this name"
    )]
    pub const BSYNC: u16 = 0x141;
    pub const BREAK: u16 = 0x142;
    pub const CALL_ABS: u16 = 0x143;
    pub const CALL_REL: u16 = 0x144;
    pub const BSSY: u16 = 0x145;
    pub const YIELD: u16 = 0x146;
    pub const BRA: u16 = 0x147;
    pub const WARPSYNC: u16 = 0x148;
    pub const BRX: u16 = 0x149;
    pub const JMP: u16 = 0x14a;
    pub const JMX: u16 = 0x14c;
    pub const EXIT: u16 = 0x14d;
    pub const LEPC: u16 = 0x14e;
    pub const RET: u16 = 0x150;
    pub const BMOV: u16 = 0x155;
    pub const BMOV_64: u16 = 0x156;
    pub const BRX_UNIFORM: u16 = 0x158;
    pub const BPT: u16 = 0x15c;
    pub const NANOSLEEP: u16 = 0x15d;
    pub const DEPBAR: u16 = 0x11a;
    pub const END_COLLECTIVE: u16 = 0x11b;
    pub const LDG: u16 = 0x181;
    pub const STG: u16 = 0x186;
    pub const USETMAXREG: u16 = 0x1c8;
}

/// The family of an opcode. Control flow has a range of its own, whatever the form of its operands.
pub fn family(opcode: u16) -> Family {
    match opcode & 0x1ff {
        0x140..=0x15f => Family::Control,
        0x11d => Family::Barrier,
        _ => Family::Plain,
    }
}
