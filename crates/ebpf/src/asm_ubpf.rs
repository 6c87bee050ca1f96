//! The other syntax: `mov %r0, 0`, `ldxdw %r0, [%r1+2]`, `jne %r1, 2, +1`, as in the `-- asm`
//! sections of the bpf_conformance suite.
//!
//! The mnemonics are a closed list of their own (RFC 9669 names none), but they only choose a
//! [`Shape`]; which bits that is comes from the table. A jump to `exit`, where no such label is,
//! goes to the last `exit` instruction.

use crate::asm::{AsmError, AsmErrorKind, Builder, split_label};
use crate::insn::{AluOp, AtomicOp, Code, EndKind, JumpOp, Width};
use crate::raw::Slot;
use crate::table::{ImmKind, Shape, form_of};
use crate::template::{Matched, TargetField, Token, tokens};

/// Assembles a program in the syntax of bpf_conformance. All faults are reported, not only the
/// first.
///
/// # Errors
/// One [`AsmError`] for each line at fault.
pub fn assemble_ubpf(text: &str) -> Result<Code, Vec<AsmError>> {
    let mut builder = Builder::default();
    for (line, text) in (1u32..).zip(text.lines()) {
        builder.line = line;
        let mut text = text.split('#').next().unwrap_or_default().trim();
        while let Some((label, rest)) = split_label(text) {
            builder.label(label);
            text = rest;
        }
        if text.is_empty() {
            continue;
        }
        match tokens(text).map(|line| Line { rest: &line }.parse()) {
            Err(rest) => builder.fail(AsmErrorKind::Token {
                text: rest.to_owned(),
            }),
            Ok(Err(Problem::Unknown)) => builder.fail(AsmErrorKind::Unknown {
                text: text.to_owned(),
            }),
            Ok(Err(Problem::Range(problem))) => builder.fail(AsmErrorKind::Range { problem }),
            Ok(Ok(matched)) => builder.push(matched),
        }
    }
    if !builder.has_label("exit")
        && let Some(last) = builder.slots().iter().rposition(|slot| slot.opcode == EXIT)
    {
        builder.label_at("exit", last as u32);
    }
    builder.finish()
}

/// Opcode of `exit`.
const EXIT: u8 = 0x95;

enum Problem {
    Unknown,
    Range(String),
}

/// What is left of a line.
struct Line<'l, 'a> {
    rest: &'l [Token<'a>],
}

/// The mnemonic, before it is known whether the second operand is a register.
#[derive(Clone, Copy)]
enum Mnemonic {
    Alu { wide: bool, op: AluOp },
    OneRegister(Shape),
    MovSx(Shape),
    Lddw,
    Load { width: Width, signed: bool },
    Store { width: Width, reg: bool },
    Jump { wide: bool, op: JumpOp },
    Goto { long: bool },
    Lock,
    Call,
    Exit,
}

const ALU: &[(&str, AluOp)] = &[
    ("add", AluOp::Add),
    ("sub", AluOp::Sub),
    ("mul", AluOp::Mul),
    ("div", AluOp::Div),
    ("sdiv", AluOp::SDiv),
    ("or", AluOp::Or),
    ("and", AluOp::And),
    ("lsh", AluOp::Lsh),
    ("rsh", AluOp::Rsh),
    ("mod", AluOp::Mod),
    ("smod", AluOp::SMod),
    ("xor", AluOp::Xor),
    ("mov", AluOp::Mov),
    ("arsh", AluOp::Arsh),
];

const JUMPS: &[(&str, JumpOp)] = &[
    ("jeq", JumpOp::Eq),
    ("jne", JumpOp::Ne),
    ("jset", JumpOp::Set),
    ("jgt", JumpOp::Gt),
    ("jge", JumpOp::Ge),
    ("jlt", JumpOp::Lt),
    ("jle", JumpOp::Le),
    ("jsgt", JumpOp::SGt),
    ("jsge", JumpOp::SGe),
    ("jslt", JumpOp::SLt),
    ("jsle", JumpOp::SLe),
];

const WIDTHS: &[(&str, Width)] = &[
    ("b", Width::W8),
    ("h", Width::W16),
    ("w", Width::W32),
    ("dw", Width::W64),
];

fn lookup<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
}

/// A trailing `32` selects the 32-bit class.
fn split_class(name: &str) -> (bool, &str) {
    name.strip_suffix("32")
        .map_or((true, name), |base| (false, base))
}

fn mnemonic(name: &str) -> Option<Mnemonic> {
    let (wide, base) = split_class(name);
    if let Some(op) = lookup(ALU, base) {
        return Some(Mnemonic::Alu { wide, op });
    }
    if let Some(op) = lookup(JUMPS, base) {
        return Some(Mnemonic::Jump { wide, op });
    }
    let swap = |prefix: &str, kind| {
        let bits = name.strip_prefix(prefix)?.parse().ok()?;
        Some(Mnemonic::OneRegister(Shape::End { kind, bits }))
    };
    let sized = |prefix: &str| lookup(WIDTHS, name.strip_prefix(prefix)?);
    let movsx = |wide, bits| Some(Mnemonic::MovSx(Shape::MovSx { wide, bits }));
    match name {
        "neg" | "neg32" => Some(Mnemonic::OneRegister(Shape::Neg { wide })),
        "movsx832" => movsx(false, 8),
        "movsx1632" => movsx(false, 16),
        "movsx864" => movsx(true, 8),
        "movsx1664" => movsx(true, 16),
        "movsx3264" => movsx(true, 32),
        "lddw" => Some(Mnemonic::Lddw),
        "ja" => Some(Mnemonic::Goto { long: false }),
        "ja32" => Some(Mnemonic::Goto { long: true }),
        "lock" => Some(Mnemonic::Lock),
        "call" => Some(Mnemonic::Call),
        "exit" => Some(Mnemonic::Exit),
        _ => swap("le", EndKind::ToLe)
            .or_else(|| swap("be", EndKind::ToBe))
            .or_else(|| swap("bswap", EndKind::Swap))
            .or_else(|| swap("swap", EndKind::Swap))
            .or_else(|| {
                sized("ldxs").map(|width| Mnemonic::Load {
                    width,
                    signed: true,
                })
            })
            .or_else(|| {
                sized("ldx").map(|width| Mnemonic::Load {
                    width,
                    signed: false,
                })
            })
            .or_else(|| sized("stx").map(|width| Mnemonic::Store { width, reg: true }))
            .or_else(|| sized("st").map(|width| Mnemonic::Store { width, reg: false })),
    }
}

/// Second operand of arithmetic and jumps.
enum Operand {
    Reg(u8),
    Imm(i32),
}

impl<'a> Line<'_, 'a> {
    fn parse(mut self) -> Result<Matched<'a>, Problem> {
        let name = self.word()?;
        let mut slot = Slot::default();
        let mut high = Slot::default();
        let mut label = None;
        let shape = match mnemonic(name).ok_or(Problem::Unknown)? {
            Mnemonic::Alu { wide, op } => {
                slot.dst = self.register()?;
                self.expect(",")?;
                Shape::Alu {
                    wide,
                    op,
                    reg: self.operand(&mut slot)?,
                }
            }
            Mnemonic::OneRegister(shape) => {
                slot.dst = self.register()?;
                shape
            }
            Mnemonic::MovSx(shape) => {
                slot.dst = self.register()?;
                self.expect(",")?;
                slot.src = self.register()?;
                shape
            }
            Mnemonic::Lddw => {
                slot.dst = self.register()?;
                self.expect(",")?;
                let (negative, magnitude) = self.signed()?;
                let value = if negative {
                    magnitude.wrapping_neg()
                } else {
                    magnitude
                };
                (slot.imm, high.imm) = (value as i32, (value >> 32) as i32);
                Shape::LoadImm64(ImmKind::Value)
            }
            Mnemonic::Load { width, signed } => {
                slot.dst = self.register()?;
                self.expect(",")?;
                (slot.src, slot.off) = self.address()?;
                Shape::Load { width, signed }
            }
            Mnemonic::Store { width, reg } => {
                (slot.dst, slot.off) = self.address()?;
                self.expect(",")?;
                if self.operand(&mut slot)? != reg {
                    return Err(Problem::Unknown);
                }
                Shape::Store { width, reg }
            }
            Mnemonic::Jump { wide, op } => {
                slot.dst = self.register()?;
                self.expect(",")?;
                let reg = self.operand(&mut slot)?;
                self.expect(",")?;
                label = self.target(&mut slot, TargetField::Off)?;
                Shape::Jump { wide, op, reg }
            }
            Mnemonic::Goto { long } => {
                label = self.target(
                    &mut slot,
                    if long {
                        TargetField::Imm
                    } else {
                        TargetField::Off
                    },
                )?;
                Shape::Goto { long }
            }
            Mnemonic::Lock => self.atomic(&mut slot)?,
            Mnemonic::Call => self.call(&mut slot, &mut label)?,
            Mnemonic::Exit => Shape::Exit,
        };
        let form = form_of(shape)
            .filter(|_| self.rest.is_empty())
            .ok_or(Problem::Unknown)?;
        slot.opcode = form.opcode;
        slot.src = form.src.fill(i32::from(slot.src)) as u8;
        slot.off = form.off.fill(i32::from(slot.off)) as i16;
        slot.imm = form.imm.fill(slot.imm);
        Ok(Matched {
            form,
            slot,
            high,
            label,
        })
    }

    /// `lock [fetch] OP[32] [address], register`.
    fn atomic(&mut self, slot: &mut Slot) -> Result<Shape, Problem> {
        let mut name = self.word()?;
        let fetch = name == "fetch";
        if fetch {
            name = self.word()?;
        }
        let (wide, base) = split_class(name);
        let op = match base {
            "add" => AtomicOp::Add { fetch },
            "or" => AtomicOp::Or { fetch },
            "and" => AtomicOp::And { fetch },
            "xor" => AtomicOp::Xor { fetch },
            "xchg" => AtomicOp::Xchg,
            "cmpxchg" => AtomicOp::CmpXchg,
            _ => return Err(Problem::Unknown),
        };
        (slot.dst, slot.off) = self.address()?;
        self.expect(",")?;
        slot.src = self.register()?;
        Ok(Shape::Atomic {
            width: if wide { Width::W64 } else { Width::W32 },
            op,
        })
    }

    /// `call 5`, `call local name`, `call %r2`.
    fn call(
        &mut self,
        slot: &mut Slot,
        label: &mut Option<(&'a str, TargetField)>,
    ) -> Result<Shape, Problem> {
        if let Some((Token::Word("local"), rest)) = self.rest.split_first() {
            self.rest = rest;
            *label = self.target(slot, TargetField::Imm)?;
            return Ok(Shape::CallLocal);
        }
        match self.operand_value()? {
            Operand::Reg(register) => {
                slot.dst = register;
                Ok(Shape::CallReg)
            }
            Operand::Imm(number) => {
                slot.imm = number;
                Ok(Shape::CallHelper)
            }
        }
    }

    fn word(&mut self) -> Result<&'a str, Problem> {
        let Some((Token::Word(word), rest)) = self.rest.split_first() else {
            return Err(Problem::Unknown);
        };
        self.rest = rest;
        Ok(word)
    }

    fn expect(&mut self, op: &str) -> Result<(), Problem> {
        match self.rest.split_first() {
            Some((Token::Op(have), rest)) if *have == op => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(Problem::Unknown),
        }
    }

    /// `%r1`.
    fn register(&mut self) -> Result<u8, Problem> {
        self.expect("%")?;
        let word = self.word()?;
        let number: u8 = word
            .strip_prefix('r')
            .and_then(|n| n.parse().ok())
            .ok_or(Problem::Unknown)?;
        if number > 10 {
            return Err(Problem::Range(format!(
                "register `%{word}` does not exist (%r0 to %r10 do)"
            )));
        }
        Ok(number)
    }

    fn signed(&mut self) -> Result<(bool, u64), Problem> {
        let negative = self.expect("-").is_ok();
        let Some((Token::Number(magnitude), rest)) = self.rest.split_first() else {
            return Err(Problem::Unknown);
        };
        self.rest = rest;
        Ok((negative, *magnitude))
    }

    fn number(&mut self, range: std::ops::RangeInclusive<i64>) -> Result<i64, Problem> {
        let (negative, magnitude) = self.signed()?;
        let value = i64::try_from(magnitude)
            .ok()
            .map(|n| if negative { -n } else { n });
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let sign = if negative { "-" } else { "" };
            let (low, high) = (range.start(), range.end());
            Problem::Range(format!(
                "`{sign}{magnitude}` does not fit, the operand goes from {low} to {high}"
            ))
        })
    }

    fn operand_value(&mut self) -> Result<Operand, Problem> {
        if matches!(self.rest.first(), Some(Token::Op("%"))) {
            return self.register().map(Operand::Reg);
        }
        // 32 bits, written signed or unsigned.
        self.number(i64::from(i32::MIN)..=i64::from(u32::MAX))
            .map(|n| Operand::Imm(n as i32))
    }

    /// Puts the operand where it belongs; tells whether it was a register.
    fn operand(&mut self, slot: &mut Slot) -> Result<bool, Problem> {
        match self.operand_value()? {
            Operand::Reg(register) => slot.src = register,
            Operand::Imm(imm) => {
                slot.imm = imm;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `[%r1+2]`.
    fn address(&mut self) -> Result<(u8, i16), Problem> {
        self.expect("[")?;
        let base = self.register()?;
        let off = match self.rest.first() {
            Some(Token::Op("+")) => {
                self.expect("+")?;
                self.number(0..=i64::from(i16::MAX))?
            }
            Some(Token::Op("-")) => self.number(i64::from(i16::MIN)..=0)?,
            _ => 0,
        };
        self.expect("]")?;
        Ok((base, off as i16))
    }

    /// `+3`, `-3` or a label.
    fn target(
        &mut self,
        slot: &mut Slot,
        field: TargetField,
    ) -> Result<Option<(&'a str, TargetField)>, Problem> {
        if let Some((Token::Word(label), rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(Some((label, field)));
        }
        if !matches!(self.rest.first(), Some(Token::Op("-"))) {
            self.expect("+")?;
        }
        match field {
            TargetField::Off => {
                slot.off = self.number(i64::from(i16::MIN)..=i64::from(i16::MAX))? as i16
            }
            TargetField::Imm => {
                slot.imm = self.number(i64::from(i32::MIN)..=i64::from(i32::MAX))? as i32
            }
        }
        Ok(None)
    }
}
