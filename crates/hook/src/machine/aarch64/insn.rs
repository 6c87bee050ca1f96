//! The few A64 instructions that hooks must understand or write: what depends on where it stands,
//! what leaves a function, what may stand first in one. Words in, words out.

/// Bytes of an instruction.
pub(super) const WORD: u64 = 4;
/// The stack pointer, where that is what number 31 means.
const SP: u32 = 31;
/// Registers that nobody relies on between two functions: linkers use them for jumps that reach
/// far.
pub(super) const IP0: u32 = 16;
pub(super) const IP1: u32 = 17;
/// `bti c`: calls may lead here.
pub(super) const BTI_C: u32 = 0xd503_245f;
pub(super) const NOP: u32 = 0xd503_201f;
/// Nothing: it is an error to come here.
pub(super) const UDF: u32 = 0;

/// What an instruction is, as far as moving it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insn {
    /// `b`
    Branch {
        to: u64,
    },
    /// `bl`
    Call {
        to: u64,
    },
    /// `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`; `skip` is the same with the next but one as its
    /// target.
    Conditional {
        to: u64,
        skip: u32,
    },
    /// `blr` and its kin.
    CallRegister,
    /// `br`, `ret`, `eret` and their kin.
    BranchRegister {
        register: u32,
    },
    /// `adr`, `adrp`
    Address {
        register: u32,
        value: u64,
    },
    /// `ldr`, `ldrsw` of a general register from a place relative to the instruction; `load` reads
    /// where the register points.
    Load {
        register: u32,
        from: u64,
        load: u32,
    },
    /// A load of a vector register, or a prefetch, relative to the instruction.
    OtherLoad,
    /// `brk`
    Breakpoint,
    /// `bti`, `nop`, `paciasp` and what else is nothing on older processors.
    Hint {
        number: u32,
    },
    /// No instruction has such a word.
    Unallocated,
    Other,
}

/// Sign-extends the low `bits` of a number of words.
fn words(value: u32, bits: u32) -> u64 {
    let shift = 32 - bits;
    let value = ((value << shift) as i32) >> shift;
    (i64::from(value) * WORD as i64) as u64
}

fn field(word: u32, low: u32, bits: u32) -> u32 {
    (word >> low) & ((1 << bits) - 1)
}

pub(super) fn decode(word: u32, at: u64) -> Insn {
    let target = |low, bits| at.wrapping_add(words(field(word, low, bits), bits));
    let register = field(word, 0, 5);
    if word & 0x7c00_0000 == 0x1400_0000 {
        let to = target(0, 26);
        return match word >> 31 {
            0 => Insn::Branch { to },
            _ => Insn::Call { to },
        };
    }
    // `b.cond` and `bc.cond`, `cbz` and `cbnz`.
    if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        return Insn::Conditional {
            to: target(5, 19),
            skip: word & !(0x7_ffff << 5) | 2 << 5,
        };
    }
    // `tbz` and `tbnz`.
    if word & 0x7e00_0000 == 0x3600_0000 {
        return Insn::Conditional {
            to: target(5, 14),
            skip: word & !(0x3fff << 5) | 2 << 5,
        };
    }
    if word & 0xfe00_0000 == 0xd600_0000 {
        return match field(word, 21, 4) {
            1 | 9 => Insn::CallRegister,
            _ => Insn::BranchRegister {
                register: field(word, 5, 5),
            },
        };
    }
    if word & 0x1f00_0000 == 0x1000_0000 {
        let value = field(word, 5, 19) << 2 | field(word, 29, 2);
        let value = (i64::from((value << 11) as i32) >> 11) as u64;
        let value = match word >> 31 {
            0 => at.wrapping_add(value),
            _ => (at & !0xfff).wrapping_add(value << 12),
        };
        return Insn::Address { register, value };
    }
    if word & 0x3b00_0000 == 0x1800_0000 {
        // Of general registers: 32 bits, 64 bits, 32 bits with their sign.
        let load = match word >> 24 {
            0x18 => 0xb940_0000,
            0x58 => 0xf940_0000,
            0x98 => 0xb980_0000,
            _ => return Insn::OtherLoad,
        };
        return Insn::Load {
            register,
            from: target(5, 19),
            load: load | register << 5 | register,
        };
    }
    if word & 0xffe0_001f == 0xd420_0000 {
        return Insn::Breakpoint;
    }
    if word & 0xffff_f01f == NOP {
        return Insn::Hint {
            number: field(word, 5, 7),
        };
    }
    // `udf` and groups that nobody has given a meaning yet. (Group 2 is SVE, group 0 with its top
    // bit SME.)
    match field(word, 25, 4) {
        0 if word >> 31 == 0 => Insn::Unallocated,
        1 | 3 => Insn::Unallocated,
        _ => Insn::Other,
    }
}

/// Control never goes from it to the next instruction.
pub(super) fn leaves(insn: Insn) -> bool {
    matches!(
        insn,
        Insn::Branch { .. } | Insn::BranchRegister { .. } | Insn::Breakpoint | Insn::Unallocated
    )
}

/// `b`, if it reaches that far.
pub(super) fn branch(from: u64, to: u64) -> Option<u32> {
    let words = (to.wrapping_sub(from) as i64) / WORD as i64;
    let reaches = (-(1 << 25)..1 << 25).contains(&words);
    reaches.then_some(0x1400_0000 | words as u32 & 0x3ff_ffff)
}

/// `b` over this many instructions.
pub(super) fn over(count: u32) -> u32 {
    0x1400_0000 | (count + 1)
}

/// `adrp`, `add`: an address within 4 GiB.
pub(super) fn address_near(register: u32, from: u64, to: u64) -> Option<[u32; 2]> {
    let pages = ((to >> 12) as i64).wrapping_sub((from >> 12) as i64);
    if !(-(1 << 20)..1 << 20).contains(&pages) {
        return None;
    }
    let pages = pages as u32;
    let adrp = 0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | register;
    let add = 0x9100_0000 | (to as u32 & 0xfff) << 10 | register << 5 | register;
    Some([adrp, add])
}

/// `movz`, `movk` three times: any number.
pub(super) fn number(register: u32, value: u64) -> [u32; 4] {
    let half = |n: u32| (value >> (16 * n)) as u32 & 0xffff;
    let mov = |opcode: u32, n: u32| opcode | n << 21 | half(n) << 5 | register;
    [
        mov(0xd280_0000, 0),
        mov(0xf280_0000, 1),
        mov(0xf280_0000, 2),
        mov(0xf280_0000, 3),
    ]
}

/// `ldr` of 64 bits that lie this many bytes behind it.
pub(super) fn load_behind(register: u32, bytes: u32) -> u32 {
    0x5800_0000 | (bytes / WORD as u32) << 5 | register
}

/// `ldr` of 32 bits that lie this many bytes behind it.
pub(super) fn load_half_behind(register: u32, bytes: u32) -> u32 {
    0x1800_0000 | (bytes / WORD as u32) << 5 | register
}

/// `br`: where indirect branches are checked it must lead to a place that says so.
pub(super) fn jump(register: u32) -> u32 {
    0xd61f_0000 | register << 5
}

/// `ret`: leads anywhere, as nothing checks that a return goes behind a call.
pub(super) fn go_back(register: u32) -> u32 {
    0xd65f_0000 | register << 5
}

/// `blr`
pub(super) fn call(register: u32) -> u32 {
    0xd63f_0000 | register << 5
}

/// `add sp, sp, #bytes`, or the same with what a `sub` says.
fn release(twelve: u32) -> u32 {
    0x9100_03ff | twelve << 10
}

/// What takes back an instruction that a function begins with: `Ok(None)` if nothing of it matters
/// there, `Err` if it cannot be taken back. Arguments, callee-saved registers and the stack matter.
pub(super) fn undo(word: u32, at: u64) -> Result<Option<u32>, ()> {
    match decode(word, at) {
        Insn::Hint { number } => match number {
            // `nop`, `bti`
            0 | 32 | 34 | 36 | 38 => Ok(None),
            // `paciaz`, `paciasp`, `pacibz`, `pacibsp`: its counterpart.
            24..=27 => Ok(Some(word + (4 << 5))),
            _ => Err(()),
        },
        Insn::Address { register, .. } | Insn::Load { register, .. } => free(register),
        Insn::Other => undo_other(word),
        _ => Err(()),
    }
}

fn undo_other(word: u32) -> Result<Option<u32>, ()> {
    let pushes = |bits: u32, scale: u32| {
        let offset = (field(word, if bits == 7 { 15 } else { 12 }, bits) << (32 - bits)) as i32;
        let bytes = -(offset >> (32 - bits)) * scale as i32;
        match u32::try_from(bytes) {
            Ok(bytes) if bytes > 0 => Ok(Some(release(bytes))),
            _ => Err(()),
        }
    };
    let on_stack = field(word, 5, 5) == SP;
    // `stp x, x, [sp, #-n]!` and `stp d, d, [sp, #-n]!`
    if matches!(word & 0xffc0_0000, 0xa980_0000 | 0x6d80_0000) && on_stack {
        return pushes(7, 8);
    }
    // `str x, [sp, #-n]!`
    if word & 0xffe0_0c00 == 0xf800_0c00 && on_stack {
        return pushes(9, 1);
    }
    // `sub sp, sp, #n`, with the shift that `add` has too.
    if word & 0xff80_03ff == 0xd100_03ff {
        return Ok(Some(word & !0x4000_0000));
    }
    let writes_one = field(word, 26, 3) == 0b100 || field(word, 25, 3) == 0b101;
    // `ldr w, [x, #n]`, `ldr x, [x, #n]`
    let loads = matches!(word & 0xffc0_0000, 0xb940_0000 | 0xf940_0000);
    match writes_one || loads {
        true => free(field(word, 0, 5)),
        false => Err(()),
    }
}

/// The register carries nothing at a function's beginning.
fn free(register: u32) -> Result<Option<u32>, ()> {
    match register {
        9..=17 => Ok(None),
        _ => Err(()),
    }
}

/// It may have to do with a register that jumps need. True for more than do.
pub(super) fn mentions_ip(word: u32, at: u64) -> bool {
    let is_ip = |low| matches!(field(word, low, 5), IP0 | IP1);
    match decode(word, at) {
        Insn::Hint { .. } | Insn::Branch { .. } | Insn::Call { .. } => false,
        Insn::Conditional { .. } | Insn::Address { .. } | Insn::Load { .. } => is_ip(0),
        // With an immediate.
        Insn::Other if field(word, 26, 3) == 0b100 => is_ip(0) || is_ip(5),
        _ => is_ip(0) || is_ip(5) || is_ip(10) || is_ip(16),
    }
}

/// As an assembler writes it, as far as messages need it.
pub(super) fn text(word: u32, at: u64) -> String {
    match decode(word, at) {
        Insn::Branch { to } => format!("b {to:#x}"),
        Insn::Call { to } => format!("bl {to:#x}"),
        Insn::BranchRegister { register } if word & 0xffff_fc1f == 0xd61f_0000 => {
            format!("br x{register}")
        }
        Insn::BranchRegister { .. } if word == 0xd65f_03c0 => "ret".to_owned(),
        Insn::CallRegister if word & 0xffff_fc1f == 0xd63f_0000 => {
            format!("blr x{}", field(word, 5, 5))
        }
        _ => format!(".inst {word:#010x}"),
    }
}
