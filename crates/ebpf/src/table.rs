//! The instruction set, written once: every opcode with the fields that tell its variants apart.
//!
//! Decoder, encoder, disassembler, assembler, documentation and fuzzing all walk [`FORMS`]; to add
//! an instruction, add a row here and follow the compiler through the exhaustive matches on
//! [`Shape`]. Sources: RFC 9669 and, for what it leaves out (`may_goto`, load-acquire,
//! store-release, map references), the Linux documentation.
//!
//! # Templates
//! [`Form::text`] is both what the disassembler prints and what the assembler accepts:
//!
//! | placeholder | stands for |
//! |---|---|
//! | `{d}` `{s}` | register `rN` |
//! | `{dw}` `{sw}` | register in its 32-bit name `wN` |
//! | `{d?}` `{s?}` | printed `rN`, accepted in either name |
//! | `{sw?}` | printed `wN`, accepted in either name |
//! | `{op}` | [`Form::symbol`] |
//! | `{i}` | immediate, signed decimal |
//! | `{u}` | immediate, unsigned decimal |
//! | `{x}` | 64-bit immediate over both slots, hexadecimal |
//! | `{h}` | immediate of the second slot, unsigned decimal |
//! | `{o}` | offset field as `+ 8` or `- 8` |
//! | `{t}` | jump target in the offset field, as `+3` |
//! | `{T}` | target in the immediate field, as `+3` |

use std::fmt::Write as _;

use crate::insn::{AluOp, AtomicOp, EndKind, JumpOp, Width};

/// What a field of the encoding holds in one form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Reserved: must be zero.
    Zero,
    /// Part of the opcode: must have this value.
    Is(i32),
    /// An operand.
    Any,
}

impl Use {
    /// Whether `value` selects this form.
    pub const fn selects(self, value: i32) -> bool {
        match self {
            Use::Is(n) => value == n,
            Use::Zero | Use::Any => true,
        }
    }

    /// The value to encode when the operand is `value`.
    pub const fn fill(self, value: i32) -> i32 {
        match self {
            Use::Is(n) => n,
            Use::Zero => 0,
            Use::Any => value,
        }
    }
}

/// The lowest `-mcpu` of clang that has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// The original set.
    V1,
    /// Unsigned less-than jumps.
    V2,
    /// 32-bit jumps, fetching atomics.
    V3,
    /// Signed division, sign extension, `bswap`, `gotol`, and later additions.
    V4,
}

impl Isa {
    /// As in `-mcpu=`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::V1 => "v1",
            Isa::V2 => "v2",
            Isa::V3 => "v3",
            Isa::V4 => "v4",
        }
    }
}

/// Conformance group (RFC 9669 §2.4), or where else it is specified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum Group {
    Base32,
    Base64,
    DivMul32,
    DivMul64,
    Atomic32,
    Atomic64,
    /// Deprecated packet access.
    Packet,
    /// Specified by Linux only.
    Linux,
}

impl Group {
    /// The name in the RFC's tables.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Base32 => "base32",
            Group::Base64 => "base64",
            Group::DivMul32 => "divmul32",
            Group::DivMul64 => "divmul64",
            Group::Atomic32 => "atomic32",
            Group::Atomic64 => "atomic64",
            Group::Packet => "packet",
            Group::Linux => "linux",
        }
    }
}

/// What an `lddw` loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the variants of `Imm64`")]
pub enum ImmKind {
    Value,
    Map,
    MapValue,
    BtfId,
    Func,
}

/// Which [`Insn`](crate::Insn) a form is, with everything but the operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "the variants of `Insn`; `reg` says that the second operand is a register"
)]
pub enum Shape {
    Alu { wide: bool, op: AluOp, reg: bool },
    MovSx { wide: bool, bits: u8 },
    Neg { wide: bool },
    End { kind: EndKind, bits: u8 },
    LoadImm64(ImmKind),
    Load { width: Width, signed: bool },
    Store { width: Width, reg: bool },
    Atomic { width: Width, op: AtomicOp },
    LoadAcquire { width: Width },
    StoreRelease { width: Width },
    Jump { wide: bool, op: JumpOp, reg: bool },
    Goto { long: bool },
    MayGoto,
    CallHelper,
    CallLocal,
    CallKfunc,
    CallReg,
    Exit,
    LegacyPacket { width: Width, indirect: bool },
}

/// One row: an opcode, the fields that select it, its text and its documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Operation code.
    pub opcode: u8,
    /// Destination register field.
    pub dst: Use,
    /// Source register field.
    pub src: Use,
    /// Offset field.
    pub off: Use,
    /// Immediate field.
    pub imm: Use,
    /// Immediate field of the second slot; [`Use::Zero`] where there is none.
    pub imm_high: Use,
    /// What it decodes to.
    pub shape: Shape,
    /// Short name, shared by the variants of one operation.
    pub name: &'static str,
    /// Template, see the module documentation.
    pub text: &'static str,
    /// Operator for `{op}`.
    pub symbol: &'static str,
    /// First ISA version.
    pub isa: Isa,
    /// Conformance group.
    pub group: Group,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

/// Every instruction. Where two rows share a [`Shape`], the first is what the encoder and
/// disassembler use.
pub const FORMS: &[Form] = &BUILT.forms;

/// The forms with this opcode, in table order.
pub fn forms_of(opcode: u8) -> impl Iterator<Item = &'static Form> {
    let mut at = BUILT.first[opcode as usize];
    std::iter::from_fn(move || {
        let form = FORMS.get(at as usize)?;
        at = BUILT.next[at as usize];
        Some(form)
    })
}

/// The canonical form of `shape`. `None` for combinations that do not exist, such as an 8-bit
/// atomic addition.
pub fn form_of(shape: Shape) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.shape == shape)
}

/// The instruction set as a Markdown table.
pub fn documentation() -> String {
    let mut out = String::from(
        "| opcode | src | offset | imm | text | since | group | meaning |\n|---|---|---|---|---|---|---|---|\n",
    );
    let field = |field: Use| match field {
        Use::Zero => "0".to_owned(),
        Use::Is(n) if n > 9 => format!("{n:#x}"),
        Use::Is(n) => n.to_string(),
        Use::Any => "any".to_owned(),
    };
    for form in FORMS {
        let text = form
            .text
            .replace("{op}", form.symbol)
            .replace("{dw}", "wD")
            .replace("{sw}", "wS")
            .replace("{d?}", "rD")
            .replace("{s?}", "rS")
            .replace("{sw?}", "wS")
            .replace("{d}", "rD")
            .replace("{s}", "rS")
            .replace("{o}", "+ off")
            .replace("{t}", "+off")
            .replace("{T}", "+imm")
            .replace("{h}", "imm2")
            .replace("{x}", "imm64")
            .replace("{i}", "imm")
            .replace("{u}", "imm")
            .replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {:#04x} | {} | {} | {} | `{text}` | {} | {} | {} |",
            form.opcode,
            field(form.src),
            field(form.off),
            field(form.imm),
            form.isa.name(),
            form.group.name(),
            form.doc
        );
    }
    out
}

// Instruction classes and modes, RFC 9669 §3.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const REG: u8 = 0x08;
const ABS: u8 = 0x20;
const IND: u8 = 0x40;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
const ATOMIC: u8 = 0xc0;

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

const fn size_bits(width: Width) -> u8 {
    match width {
        Width::W32 => 0x00,
        Width::W16 => 0x08,
        Width::W8 => 0x10,
        Width::W64 => 0x18,
    }
}

const fn by_width(width: Width, texts: [&'static str; 4]) -> &'static str {
    match width {
        Width::W8 => texts[0],
        Width::W16 => texts[1],
        Width::W32 => texts[2],
        Width::W64 => texts[3],
    }
}

const COUNT: usize = 180;
const NONE: u16 = u16::MAX;

struct Built {
    forms: [Form; COUNT],
    len: usize,
    first: [u16; 256],
    next: [u16; COUNT],
}

const BUILT: Built = build();

const EMPTY: Form = Form {
    opcode: 0,
    dst: Use::Zero,
    src: Use::Zero,
    off: Use::Zero,
    imm: Use::Zero,
    imm_high: Use::Zero,
    shape: Shape::Exit,
    name: "",
    text: "",
    symbol: "",
    isa: Isa::V1,
    group: Group::Base32,
    doc: "",
};

#[rustfmt::skip] // One row per line is what makes a table.
const fn build() -> Built {
    let mut t = Built { forms: [EMPTY; COUNT], len: 0, first: [NONE; 256], next: [NONE; COUNT] };
    use Group::{Base32, Base64, DivMul32, DivMul64, Linux, Packet};
    use Isa::{V1, V2, V3, V4};
    use Use::{Any, Is, Zero};

    // Arithmetic, RFC 9669 §4.1.
    let base = [Base32, Base64];
    let divmul = [DivMul32, DivMul64];
    t.alu(AluOp::Add,  0x00, 0, "add",  "+=",   V1, base,   "Wrapping addition.");
    t.alu(AluOp::Sub,  0x10, 0, "sub",  "-=",   V1, base,   "Wrapping subtraction.");
    t.alu(AluOp::Mul,  0x20, 0, "mul",  "*=",   V1, divmul, "Wrapping multiplication.");
    t.alu(AluOp::Div,  0x30, 0, "div",  "/=",   V1, divmul, "Unsigned division; division by zero gives 0.");
    t.alu(AluOp::SDiv, 0x30, 1, "sdiv", "s/=",  V4, divmul, "Signed division; by zero gives 0, MIN / -1 gives MIN.");
    t.alu(AluOp::Or,   0x40, 0, "or",   "|=",   V1, base,   "Bitwise or.");
    t.alu(AluOp::And,  0x50, 0, "and",  "&=",   V1, base,   "Bitwise and.");
    t.alu(AluOp::Lsh,  0x60, 0, "lsh",  "<<=",  V1, base,   "Shift left; the count is taken modulo the width.");
    t.alu(AluOp::Rsh,  0x70, 0, "rsh",  ">>=",  V1, base,   "Logical shift right; the count is taken modulo the width.");
    t.alu(AluOp::Mod,  0x90, 0, "mod",  "%=",   V1, divmul, "Unsigned remainder; modulo zero leaves dst.");
    t.alu(AluOp::SMod, 0x90, 1, "smod", "s%=",  V4, divmul, "Signed remainder; modulo zero leaves dst, MIN % -1 gives 0.");
    t.alu(AluOp::Xor,  0xa0, 0, "xor",  "^=",   V1, base,   "Bitwise exclusive or.");
    t.alu(AluOp::Mov,  0xb0, 0, "mov",  "=",    V1, base,   "Copy; an immediate is sign-extended, a 32-bit copy zeroes the upper half.");
    t.alu(AluOp::Arsh, 0xc0, 0, "arsh", "s>>=", V1, base,   "Arithmetic shift right; the count is taken modulo the width.");
    t.movsx(false, 8,  "{dw} = (s8){sw}",  Base32);
    t.movsx(false, 16, "{dw} = (s16){sw}", Base32);
    t.movsx(true,  8,  "{d} = (s8){s}",    Base64);
    t.movsx(true,  16, "{d} = (s16){s}",   Base64);
    t.movsx(true,  32, "{d} = (s32){s}",   Base64);
    t.push(Form { opcode: ALU   | 0x80, dst: Any, shape: Shape::Neg { wide: false }, name: "neg", text: "{dw} = -{dw}", group: Base32, doc: "Two's complement negation.", ..EMPTY });
    t.push(Form { opcode: ALU64 | 0x80, dst: Any, shape: Shape::Neg { wide: true },  name: "neg", text: "{d} = -{d}",   group: Base64, doc: "Two's complement negation.", ..EMPTY });

    // Byte order, RFC 9669 §4.2.
    t.end(EndKind::ToLe, ALU,       "le",    ["{d} = le16 {d}", "{d} = le32 {d}", "{d} = le64 {d}"],          V1, "To little endian; the value is truncated to the width.");
    t.end(EndKind::ToBe, ALU | REG, "be",    ["{d} = be16 {d}", "{d} = be32 {d}", "{d} = be64 {d}"],          V1, "To big endian; the value is truncated to the width.");
    t.end(EndKind::Swap, ALU64,     "bswap", ["{d} = bswap16 {d}", "{d} = bswap32 {d}", "{d} = bswap64 {d}"], V4, "Reverse the bytes; the value is truncated to the width.");

    // Sixteen-byte loads, RFC 9669 §5.4.
    t.lddw(0, Any, ImmKind::Value,    "{d} = {x} ll",         "lddw",         "Load a 64-bit constant.");
    t.lddw(1, Zero, ImmKind::Map,     "{d} = map[{u}]",       "lddw map",     "Load the address of a map (`BPF_PSEUDO_MAP_FD`).");
    t.lddw(2, Any, ImmKind::MapValue, "{d} = map[{u}][0] + {h}", "lddw value", "Load an address inside the first value of a map (`BPF_PSEUDO_MAP_VALUE`).");
    t.lddw(3, Zero, ImmKind::BtfId,   "{d} = btf_id[{u}]",    "lddw variable", "Load the address of a kernel variable (`BPF_PSEUDO_BTF_ID`).");
    t.lddw(4, Zero, ImmKind::Func,    "{d} = subprog[{T}]",   "lddw function", "Load the address of a local function (`BPF_PSEUDO_FUNC`).");
    t.lddw(5, Zero, ImmKind::Map,     "{d} = map[{u}]",       "lddw map",     "The same by index (`BPF_PSEUDO_MAP_IDX`).");
    t.lddw(6, Any, ImmKind::MapValue, "{d} = map[{u}][0] + {h}", "lddw value", "The same by index (`BPF_PSEUDO_MAP_IDX_VALUE`).");

    // Loads and stores, RFC 9669 §5.1 and §5.2.
    let mut i = 0;
    while i < 4 {
        let width = WIDTHS[i];
        let size = size_bits(width);
        let group = if size == 0x18 { Base64 } else { Base32 };
        t.push(Form { opcode: LDX | MEM | size, dst: Any, src: Any, off: Any, shape: Shape::Load { width, signed: false }, name: "ldx",
            text: by_width(width, ["{d?} = *(u8 *)({s} {o})", "{d?} = *(u16 *)({s} {o})", "{d?} = *(u32 *)({s} {o})", "{d} = *(u64 *)({s} {o})"]), group, doc: "Load, zero-extended.", ..EMPTY });
        t.push(Form { opcode: ST | MEM | size, dst: Any, off: Any, imm: Any, shape: Shape::Store { width, reg: false }, name: "st",
            text: by_width(width, ["*(u8 *)({d} {o}) = {i}", "*(u16 *)({d} {o}) = {i}", "*(u32 *)({d} {o}) = {i}", "*(u64 *)({d} {o}) = {i}"]), group, doc: "Store an immediate, sign-extended to 64 bits and truncated to the width.", ..EMPTY });
        t.push(Form { opcode: STX | MEM | size, dst: Any, src: Any, off: Any, shape: Shape::Store { width, reg: true }, name: "stx",
            text: by_width(width, ["*(u8 *)({d} {o}) = {s?}", "*(u16 *)({d} {o}) = {s?}", "*(u32 *)({d} {o}) = {s?}", "*(u64 *)({d} {o}) = {s}"]), group, doc: "Store a register, truncated to the width.", ..EMPTY });
        if i < 3 {
            t.push(Form { opcode: LDX | MEMSX | size, dst: Any, src: Any, off: Any, shape: Shape::Load { width, signed: true }, name: "ldsx",
                text: by_width(width, ["{d} = *(s8 *)({s} {o})", "{d} = *(s16 *)({s} {o})", "{d} = *(s32 *)({s} {o})", ""]), isa: V4, group: Base64, doc: "Load, sign-extended to 64 bits.", ..EMPTY });
        }
        t.push(Form { opcode: STX | ATOMIC | size, dst: Any, src: Any, off: Any, imm: Is(0x100), shape: Shape::LoadAcquire { width }, name: "load_acquire",
            text: by_width(width, ["{d?} = load_acquire((u8 *)({s} {o}))", "{d?} = load_acquire((u16 *)({s} {o}))", "{d?} = load_acquire((u32 *)({s} {o}))", "{d} = load_acquire((u64 *)({s} {o}))"]), isa: V4, group: Linux, doc: "Atomic load with acquire order, zero-extended.", ..EMPTY });
        t.push(Form { opcode: STX | ATOMIC | size, dst: Any, src: Any, off: Any, imm: Is(0x110), shape: Shape::StoreRelease { width }, name: "store_release",
            text: by_width(width, ["store_release((u8 *)({d} {o}), {s?})", "store_release((u16 *)({d} {o}), {s?})", "store_release((u32 *)({d} {o}), {s?})", "store_release((u64 *)({d} {o}), {s})"]), isa: V4, group: Linux, doc: "Atomic store with release order.", ..EMPTY });
        i += 1;
    }

    // Atomics, RFC 9669 §5.3. Rows are 32 bits, then 64.
    t.atomic(AtomicOp::Add { fetch: false }, 0x00, "lock_add", ["lock *(u32 *)({d} {o}) += {sw?}", "lock *(u64 *)({d} {o}) += {s}"], V1, "Atomic addition.");
    t.atomic(AtomicOp::Or  { fetch: false }, 0x40, "lock_or",  ["lock *(u32 *)({d} {o}) |= {sw?}", "lock *(u64 *)({d} {o}) |= {s}"], V3, "Atomic or.");
    t.atomic(AtomicOp::And { fetch: false }, 0x50, "lock_and", ["lock *(u32 *)({d} {o}) &= {sw?}", "lock *(u64 *)({d} {o}) &= {s}"], V3, "Atomic and.");
    t.atomic(AtomicOp::Xor { fetch: false }, 0xa0, "lock_xor", ["lock *(u32 *)({d} {o}) ^= {sw?}", "lock *(u64 *)({d} {o}) ^= {s}"], V3, "Atomic exclusive or.");
    t.atomic(AtomicOp::Add { fetch: true },  0x01, "fetch_add", ["{sw} = atomic_fetch_add((u32 *)({d} {o}), {sw})", "{s} = atomic_fetch_add((u64 *)({d} {o}), {s})"], V3, "Atomic addition; src becomes the old value.");
    t.atomic(AtomicOp::Or  { fetch: true },  0x41, "fetch_or",  ["{sw} = atomic_fetch_or((u32 *)({d} {o}), {sw})",  "{s} = atomic_fetch_or((u64 *)({d} {o}), {s})"],  V3, "Atomic or; src becomes the old value.");
    t.atomic(AtomicOp::And { fetch: true },  0x51, "fetch_and", ["{sw} = atomic_fetch_and((u32 *)({d} {o}), {sw})", "{s} = atomic_fetch_and((u64 *)({d} {o}), {s})"], V3, "Atomic and; src becomes the old value.");
    t.atomic(AtomicOp::Xor { fetch: true },  0xa1, "fetch_xor", ["{sw} = atomic_fetch_xor((u32 *)({d} {o}), {sw})", "{s} = atomic_fetch_xor((u64 *)({d} {o}), {s})"], V3, "Atomic exclusive or; src becomes the old value.");
    t.atomic(AtomicOp::Xchg,                 0xe1, "xchg",      ["{sw} = xchg32_32({d} {o}, {sw})", "{s} = xchg_64({d} {o}, {s})"], V3, "Atomic exchange.");
    t.atomic(AtomicOp::CmpXchg,              0xf1, "cmpxchg",   ["w0 = cmpxchg32_32({d} {o}, w0, {sw})", "r0 = cmpxchg_64({d} {o}, r0, {s})"], V3, "Store src if memory equals r0; r0 becomes the old value in either case.");

    // Jumps, RFC 9669 §4.3.
    t.push(Form { opcode: JMP,   off: Any, shape: Shape::Goto { long: false }, name: "ja",  text: "goto {t}",  group: Base32, doc: "Jump.", ..EMPTY });
    t.push(Form { opcode: JMP32, imm: Any, shape: Shape::Goto { long: true },  name: "gotol", text: "gotol {T}", isa: V4, group: Base32, doc: "Jump with a 32-bit offset.", ..EMPTY });
    t.jump(JumpOp::Eq,  0x10, "jeq",  "==",  V1, "Equal.");
    t.jump(JumpOp::Gt,  0x20, "jgt",  ">",   V1, "Unsigned greater.");
    t.jump(JumpOp::Ge,  0x30, "jge",  ">=",  V1, "Unsigned greater or equal.");
    t.jump(JumpOp::Set, 0x40, "jset", "&",   V1, "Any common bit set.");
    t.jump(JumpOp::Ne,  0x50, "jne",  "!=",  V1, "Not equal.");
    t.jump(JumpOp::SGt, 0x60, "jsgt", "s>",  V1, "Signed greater.");
    t.jump(JumpOp::SGe, 0x70, "jsge", "s>=", V1, "Signed greater or equal.");
    t.jump(JumpOp::Lt,  0xa0, "jlt",  "<",   V2, "Unsigned less.");
    t.jump(JumpOp::Le,  0xb0, "jle",  "<=",  V2, "Unsigned less or equal.");
    t.jump(JumpOp::SLt, 0xc0, "jslt", "s<",  V2, "Signed less.");
    t.jump(JumpOp::SLe, 0xd0, "jsle", "s<=", V2, "Signed less or equal.");
    t.push(Form { opcode: JMP | 0xe0, off: Any, shape: Shape::MayGoto, name: "may_goto", text: "may_goto {t}", isa: V4, group: Linux, doc: "Jump once a hidden per-frame counter has run out, else count down and fall through.", ..EMPTY });
    t.push(Form { opcode: JMP | 0x80, imm: Any, src: Is(0), shape: Shape::CallHelper, name: "call", text: "call {u}", group: Base32, doc: "Call a helper by number.", ..EMPTY });
    t.push(Form { opcode: JMP | 0x80, imm: Any, src: Is(1), shape: Shape::CallLocal, name: "call local", text: "call pc{T}", group: Base32, doc: "Call a function of this program.", ..EMPTY });
    t.push(Form { opcode: JMP | 0x80, imm: Any, src: Is(2), shape: Shape::CallKfunc, name: "call kfunc", text: "call kfunc[{u}]", group: Base32, doc: "Call a kernel function by BTF id.", ..EMPTY });
    t.push(Form { opcode: JMP | REG | 0x80, dst: Any, shape: Shape::CallReg, name: "callx", text: "callx {d}", group: Linux, doc: "Call through a register (clang's own encoding).", ..EMPTY });
    t.push(Form { opcode: JMP | 0x90, shape: Shape::Exit, name: "exit", text: "exit", group: Base32, doc: "Return from the function.", ..EMPTY });

    // Packet access, RFC 9669 §5.5 (deprecated).
    i = 0;
    while i < 3 {
        let width = WIDTHS[i];
        t.push(Form { opcode: LD | ABS | size_bits(width), imm: Any, shape: Shape::LegacyPacket { width, indirect: false }, name: "ld_abs",
            text: by_width(width, ["r0 = *(u8 *)skb[{i}]", "r0 = *(u16 *)skb[{i}]", "r0 = *(u32 *)skb[{i}]", ""]), group: Packet, doc: "Load from the packet at a constant offset.", ..EMPTY });
        t.push(Form { opcode: LD | IND | size_bits(width), src: Any, imm: Any, shape: Shape::LegacyPacket { width, indirect: true }, name: "ld_ind",
            text: by_width(width, ["r0 = *(u8 *)skb[{s} + {i}]", "r0 = *(u16 *)skb[{s} + {i}]", "r0 = *(u32 *)skb[{s} + {i}]", ""]), group: Packet, doc: "Load from the packet at an offset in a register.", ..EMPTY });
        i += 1;
    }

    assert!(t.len == COUNT, "COUNT is not the number of rows");
    t
}

impl Built {
    const fn push(&mut self, form: Form) {
        let row = self.len as u16;
        self.forms[self.len] = form;
        // Chains the rows of one opcode, so that the decoder looks at few.
        let mut slot = self.first[form.opcode as usize];
        if slot == NONE {
            self.first[form.opcode as usize] = row;
        } else {
            while self.next[slot as usize] != NONE {
                slot = self.next[slot as usize];
            }
            self.next[slot as usize] = row;
        }
        self.len += 1;
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are the columns of the table"
    )]
    const fn alu(
        &mut self,
        op: AluOp,
        code: u8,
        off: i32,
        name: &'static str,
        symbol: &'static str,
        isa: Isa,
        groups: [Group; 2],
        doc: &'static str,
    ) {
        let row = Form {
            dst: Use::Any,
            off: Use::Is(off),
            name,
            symbol,
            isa,
            doc,
            ..EMPTY
        };
        let (narrow, wide) = (
            Form {
                group: groups[0],
                ..row
            },
            Form {
                group: groups[1],
                ..row
            },
        );
        self.push(Form {
            opcode: ALU | code,
            imm: Use::Any,
            shape: Shape::Alu {
                wide: false,
                op,
                reg: false,
            },
            text: "{dw} {op} {i}",
            ..narrow
        });
        self.push(Form {
            opcode: ALU | REG | code,
            src: Use::Any,
            shape: Shape::Alu {
                wide: false,
                op,
                reg: true,
            },
            text: "{dw} {op} {sw}",
            ..narrow
        });
        self.push(Form {
            opcode: ALU64 | code,
            imm: Use::Any,
            shape: Shape::Alu {
                wide: true,
                op,
                reg: false,
            },
            text: "{d} {op} {i}",
            ..wide
        });
        self.push(Form {
            opcode: ALU64 | REG | code,
            src: Use::Any,
            shape: Shape::Alu {
                wide: true,
                op,
                reg: true,
            },
            text: "{d} {op} {s}",
            ..wide
        });
    }

    const fn movsx(&mut self, wide: bool, bits: u8, text: &'static str, group: Group) {
        self.push(Form {
            opcode: (if wide { ALU64 } else { ALU }) | REG | 0xb0,
            dst: Use::Any,
            src: Use::Any,
            off: Use::Is(bits as i32),
            shape: Shape::MovSx { wide, bits },
            name: "movsx",
            text,
            isa: Isa::V4,
            group,
            doc: "Copy with sign extension; a 32-bit copy zeroes the upper half.",
            ..EMPTY
        });
    }

    const fn end(
        &mut self,
        kind: EndKind,
        class: u8,
        name: &'static str,
        texts: [&'static str; 3],
        isa: Isa,
        doc: &'static str,
    ) {
        let mut i = 0;
        while i < 3 {
            let bits = 16u8 << i;
            self.push(Form {
                opcode: class | 0xd0,
                dst: Use::Any,
                imm: Use::Is(bits as i32),
                shape: Shape::End { kind, bits },
                name,
                text: texts[i],
                isa,
                group: if bits == 64 {
                    Group::Base64
                } else {
                    Group::Base32
                },
                doc,
                ..EMPTY
            });
            i += 1;
        }
    }

    const fn lddw(
        &mut self,
        src: i32,
        imm_high: Use,
        kind: ImmKind,
        text: &'static str,
        name: &'static str,
        doc: &'static str,
    ) {
        self.push(Form {
            opcode: crate::raw::Slot::LDDW,
            dst: Use::Any,
            src: Use::Is(src),
            imm: Use::Any,
            imm_high,
            shape: Shape::LoadImm64(kind),
            name,
            text,
            group: Group::Base64,
            doc,
            ..EMPTY
        });
    }

    const fn atomic(
        &mut self,
        op: AtomicOp,
        imm: i32,
        name: &'static str,
        texts: [&'static str; 2],
        isa: Isa,
        doc: &'static str,
    ) {
        let row = Form {
            dst: Use::Any,
            src: Use::Any,
            off: Use::Any,
            imm: Use::Is(imm),
            name,
            isa,
            doc,
            ..EMPTY
        };
        let (w32, w64) = (Width::W32, Width::W64);
        self.push(Form {
            opcode: STX | ATOMIC | size_bits(w32),
            shape: Shape::Atomic { width: w32, op },
            text: texts[0],
            group: Group::Atomic32,
            ..row
        });
        self.push(Form {
            opcode: STX | ATOMIC | size_bits(w64),
            shape: Shape::Atomic { width: w64, op },
            text: texts[1],
            group: Group::Atomic64,
            ..row
        });
    }

    const fn jump(
        &mut self,
        op: JumpOp,
        code: u8,
        name: &'static str,
        symbol: &'static str,
        isa: Isa,
        doc: &'static str,
    ) {
        let row = Form {
            dst: Use::Any,
            off: Use::Any,
            name,
            symbol,
            doc,
            ..EMPTY
        };
        let wide = Form {
            isa,
            group: Group::Base64,
            ..row
        };
        let narrow = Form {
            isa: Isa::V3,
            group: Group::Base32,
            ..row
        };
        self.push(Form {
            opcode: JMP | code,
            imm: Use::Any,
            shape: Shape::Jump {
                wide: true,
                op,
                reg: false,
            },
            text: "if {d} {op} {i} goto {t}",
            ..wide
        });
        self.push(Form {
            opcode: JMP | REG | code,
            src: Use::Any,
            shape: Shape::Jump {
                wide: true,
                op,
                reg: true,
            },
            text: "if {d} {op} {s} goto {t}",
            ..wide
        });
        self.push(Form {
            opcode: JMP32 | code,
            imm: Use::Any,
            shape: Shape::Jump {
                wide: false,
                op,
                reg: false,
            },
            text: "if {dw} {op} {i} goto {t}",
            ..narrow
        });
        self.push(Form {
            opcode: JMP32 | REG | code,
            src: Use::Any,
            shape: Shape::Jump {
                wide: false,
                op,
                reg: true,
            },
            text: "if {dw} {op} {sw} goto {t}",
            ..narrow
        });
    }
}

const _: () = assert!(BUILT.len == COUNT);
