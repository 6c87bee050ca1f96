//! The decoded instruction: what every consumer (verifier, code generator, interpreter, printer)
//! matches on.
//!
//! A [`Code`] is a program whose jumps are already indices into its own instruction list ([`Pc`]),
//! so nobody downstream counts 8-byte slots again; messages that quote the kernel's numbering use
//! [`Code::slot`]. Semantics: RFC 9669; `may_goto`, load-acquire and store-release follow the Linux
//! documentation of ISA v4.

use std::fmt;

/// A register, `r0` to `r10`. `r10` is the read-only frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(u8);

impl Reg {
    /// Return value of calls and of the program.
    pub const R0: Reg = Reg(0);
    /// First argument; the context at program entry.
    pub const R1: Reg = Reg(1);
    /// Frame pointer: one past the highest stack byte.
    pub const FP: Reg = Reg(10);
    /// How many registers there are.
    pub const COUNT: usize = 11;

    /// The register with number `n`, or `None` above 10.
    pub const fn new(n: u8) -> Option<Reg> {
        if n < Self::COUNT as u8 {
            Some(Reg(n))
        } else {
            None
        }
    }

    /// Its number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All registers in order.
    pub fn all() -> impl Iterator<Item = Reg> {
        (0..Self::COUNT as u8).map(Reg)
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Index of an instruction in a [`Code`]; a 16-byte instruction counts once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pc(pub u32);

impl Pc {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The instruction that follows.
    pub const fn next(self) -> Pc {
        Pc(self.0 + 1)
    }
}

impl fmt::Display for Pc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pc{}", self.0)
    }
}

/// Width of a memory access, in bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Width {
    /// One byte.
    W8,
    /// Two bytes.
    W16,
    /// Four bytes.
    W32,
    /// Eight bytes.
    W64,
}

impl Width {
    /// Size in bytes: 1, 2, 4 or 8.
    pub const fn bytes(self) -> u32 {
        match self {
            Width::W8 => 1,
            Width::W16 => 2,
            Width::W32 => 4,
            Width::W64 => 8,
        }
    }
    /// Size in bits.
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }
}

/// Second operand: a register, or an immediate that is sign-extended to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A register's value.
    Reg(Reg),
    /// A constant.
    Imm(i32),
}

/// Two-operand arithmetic (RFC 9669 §4.1). `wide` on the instruction selects 64 or 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum AluOp {
    Add,
    Sub,
    Mul,
    /// Unsigned; x / 0 = 0.
    Div,
    /// Signed; x / 0 = 0, MIN / -1 = MIN.
    SDiv,
    Or,
    And,
    Lsh,
    Rsh,
    /// Unsigned; x % 0 = x.
    Mod,
    /// Signed; x % 0 = x, MIN % -1 = 0.
    SMod,
    Xor,
    Mov,
    Arsh,
}

/// Byte-order instructions (RFC 9669 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndKind {
    /// To little endian: truncates on a little-endian machine.
    ToLe,
    /// To big endian: swaps and truncates on a little-endian machine.
    ToBe,
    /// Unconditional swap (v4).
    Swap,
}

/// Conditions of conditional jumps (RFC 9669 §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum JumpOp {
    Eq,
    Ne,
    /// `dst & src != 0`.
    Set,
    Gt,
    Ge,
    Lt,
    Le,
    SGt,
    SGe,
    SLt,
    SLe,
}

/// Read-modify-write operations (RFC 9669 §5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// `*p += src`; with `fetch`, `src` becomes the old value.
    Add {
        /// Return the old value in `src`.
        fetch: bool,
    },
    /// `*p |= src`.
    Or {
        /// Return the old value in `src`.
        fetch: bool,
    },
    /// `*p &= src`.
    And {
        /// Return the old value in `src`.
        fetch: bool,
    },
    /// `*p ^= src`.
    Xor {
        /// Return the old value in `src`.
        fetch: bool,
    },
    /// `src` and `*p` change places.
    Xchg,
    /// If `*p == r0` then `*p = src`; `r0` becomes the old value in either case.
    CmpXchg,
}

/// Value of a 16-byte `lddw` (RFC 9669 §5.4 and the pseudo kinds of Linux).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Imm64 {
    /// A plain constant (src 0).
    Value(u64),
    /// A map (src 1, `BPF_PSEUDO_MAP_FD`; src 5 by index): after loading an object, an index into
    /// its maps.
    Map(u32),
    /// Address of byte `offset` of the first value of map `map` (src 2; src 6 by index): `.data`,
    /// `.rodata`, `.bss`.
    MapValue {
        /// Index of the map.
        map: u32,
        /// Byte offset into its first value.
        offset: u32,
    },
    /// A kernel variable by BTF id (src 3): decoded, refused by the verifier by name.
    BtfId(u32),
    /// A local function (src 4): a callback for `bpf_loop` and its like.
    Func(Pc),
}

/// What a call goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// A helper by number (src 0).
    Helper(u32),
    /// A function of this program (src 1).
    Local(Pc),
    /// A kernel function by BTF id (src 2): decoded, refused by the verifier by name.
    Kfunc(u32),
}

/// One instruction. `wide` is true for the 64-bit class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(
    missing_docs,
    reason = "fields are what the assembler writes: dst, src, base + off"
)]
pub enum Insn {
    Alu {
        wide: bool,
        op: AluOp,
        dst: Reg,
        src: Source,
    },
    /// Sign-extending move from the low `bits` (8, 16, 32) of `src` (v4). A 32-bit one zeroes the
    /// upper half.
    MovSx {
        wide: bool,
        bits: u8,
        dst: Reg,
        src: Reg,
    },
    Neg {
        wide: bool,
        dst: Reg,
    },
    /// `bits` is 16, 32 or 64.
    End {
        kind: EndKind,
        bits: u8,
        dst: Reg,
    },
    LoadImm64 {
        dst: Reg,
        value: Imm64,
    },
    /// `dst = *(width *)(base + off)`, zero- or sign-extended.
    Load {
        width: Width,
        signed: bool,
        dst: Reg,
        base: Reg,
        off: i16,
    },
    /// `*(width *)(base + off) = src`.
    Store {
        width: Width,
        base: Reg,
        off: i16,
        src: Source,
    },
    /// `width` is W32 or W64.
    Atomic {
        width: Width,
        op: AtomicOp,
        base: Reg,
        off: i16,
        src: Reg,
    },
    LoadAcquire {
        width: Width,
        dst: Reg,
        base: Reg,
        off: i16,
    },
    StoreRelease {
        width: Width,
        base: Reg,
        off: i16,
        src: Reg,
    },
    /// `if dst op src goto target`; 32-bit comparison when not `wide`.
    Jump {
        wide: bool,
        op: JumpOp,
        dst: Reg,
        src: Source,
        target: Pc,
    },
    /// `goto target`; `long` is v4's `gotol` with a 32-bit offset (kept so that encoding
    /// round-trips).
    Goto {
        target: Pc,
        long: bool,
    },
    /// `may_goto target`: a hidden, bounded counter decides.
    MayGoto {
        target: Pc,
    },
    Call {
        callee: Callee,
    },
    /// Call through a register (clang emits it for unresolved indirect calls): decoded, refused by
    /// name.
    CallReg {
        target: Reg,
    },
    Exit,
    /// Legacy packet access (`ld_abs`, `ld_ind`): decoded, refused by name.
    LegacyPacket {
        width: Width,
        indirect: bool,
        src: Reg,
        imm: i32,
    },
}

impl Insn {
    /// Length in 8-byte slots: 2 for `lddw`, else 1.
    pub const fn slots(&self) -> u32 {
        match self {
            Insn::LoadImm64 { .. } => 2,
            _ => 1,
        }
    }

    /// The same with every place in the code that it names, jumps, local calls and addresses of
    /// functions, at what `moved` says of it.
    pub fn retargeted(mut self, moved: impl Fn(Pc) -> Pc) -> Insn {
        match &mut self {
            Insn::Jump { target, .. }
            | Insn::Goto { target, .. }
            | Insn::MayGoto { target }
            | Insn::Call {
                callee: Callee::Local(target),
            }
            | Insn::LoadImm64 {
                value: Imm64::Func(target),
                ..
            } => *target = moved(*target),
            _ => {}
        }
        self
    }
}

/// A decoded program with resolved jumps. Entry is `Pc(0)`; local functions follow in the same
/// list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Code {
    insns: Vec<Insn>,
    slots: Vec<u32>,
}

impl Code {
    /// Takes a list of instructions whose targets are in range.
    pub fn new(insns: Vec<Insn>) -> Code {
        let mut slots = Vec::with_capacity(insns.len());
        let mut next = 0;
        for insn in &insns {
            slots.push(next);
            next += insn.slots();
        }
        Code { insns, slots }
    }

    /// The instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// The instruction at `pc`.
    pub fn at(&self, pc: Pc) -> &Insn {
        &self.insns[pc.index()]
    }

    /// The slot number (8-byte units, as the kernel and `llvm-objdump` count) of `pc`.
    pub fn slot(&self, pc: Pc) -> u32 {
        self.slots[pc.index()]
    }

    /// The instruction that starts at `slot`, if one does.
    pub fn pc_of_slot(&self, slot: u32) -> Option<Pc> {
        self.slots.binary_search(&slot).ok().map(|i| Pc(i as u32))
    }
}
