//! What each instruction does to a state for which its assertions hold.

use warpbpf_ebpf::{AluOp, EndKind, Imm64, Insn, JumpOp, Reg, Source, Width};

use crate::check::map_data;
use crate::defines::fetched;
use crate::domain::compare::refine;
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::domain::stack::FRAME_BYTES;
use crate::domain::state::{Iter, State};
use crate::env::{Env, constant_at};
use crate::platform::field_range;

/// Numbers that are tied are not further apart.
const TIED_WITHIN: u64 = 1 << 31;

/// Executes an instruction that is no jump, call or exit. `accessed` is what it accesses, if it
/// does.
pub fn transfer(env: &Env<'_>, state: &mut State, insn: &Insn, accessed: Option<&Pointer>) {
    match *insn {
        Insn::Alu { wide, op, dst, src } => alu(state, wide, op, dst, src),
        Insn::MovSx {
            wide,
            bits,
            dst,
            src,
        } => {
            if let Value::Number { scalar, .. } = state.tie(src) {
                let value = scalar.sign_extend(u32::from(bits));
                // Unchanged, it still is the same number.
                let same = value == scalar && wide;
                let result = if same {
                    *state.reg(src)
                } else {
                    number(value, wide)
                };
                state.set(dst, result);
            }
        }
        Insn::Neg { wide, dst } => {
            if let Some(scalar) = state.reg(dst).scalar() {
                let value = scalar.neg(wide);
                state.set(dst, Value::number(value));
            }
        }
        Insn::End { kind, bits, dst } => {
            if let Some(scalar) = state.reg(dst).scalar() {
                let bits = u32::from(bits);
                // The GPU is little endian.
                let value = match kind {
                    EndKind::ToLe => scalar.zero_extend(bits),
                    EndKind::ToBe | EndKind::Swap => scalar.swap_bytes(bits),
                };
                state.set(dst, Value::number(value));
            }
        }
        Insn::LoadImm64 { dst, value } => {
            let value = match value {
                Imm64::Value(x) => Value::constant(x),
                Imm64::Map(map) => Value::pointer(Target::Map(map)),
                Imm64::MapValue { map, offset } => Value::Pointer(map_data(map, offset)),
                Imm64::Func(start) => Value::pointer(Target::Function(start)),
                // Refused before.
                Imm64::BtfId(_) => Value::number(Scalar::UNKNOWN),
            };
            state.set(dst, value);
        }
        Insn::Load {
            width, signed, dst, ..
        } => {
            if let Some(pointer) = accessed {
                let value = load(env, state, pointer, width, signed);
                state.set(dst, value);
            }
        }
        Insn::LoadAcquire { width, dst, .. } => {
            if let Some(pointer) = accessed {
                let value = load(env, state, pointer, width, false);
                state.set(dst, value);
            }
        }
        Insn::Store { width, src, .. } => {
            if let Some(pointer) = accessed {
                store(state, pointer, width, src);
            }
        }
        Insn::StoreRelease { width, src, .. } => {
            if let Some(pointer) = accessed {
                store(state, pointer, width, Source::Reg(src));
            }
        }
        Insn::Atomic { width, op, src, .. } => {
            // On the stack, which no other thread sees, what was there is known.
            let old = match accessed {
                Some(pointer) => load(env, state, pointer, width, false),
                None => Value::number(Scalar::loaded(width.bits(), false)),
            };
            if let Some(pointer) = accessed {
                overwrite(state, pointer, width.bytes());
            }
            if let Some(reg) = fetched(op, src) {
                state.set(reg, old);
            }
        }
        // The explorer follows these itself, or they were refused.
        Insn::Jump { .. }
        | Insn::Goto { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::CallReg { .. }
        | Insn::Exit
        | Insn::LegacyPacket { .. } => {}
    }
}

/// A 32-bit result has a zero upper half.
fn number(scalar: Scalar, wide: bool) -> Value {
    Value::number(if wide { scalar } else { scalar.zero_extend(32) })
}

fn alu(state: &mut State, wide: bool, op: AluOp, dst: Reg, src: Source) {
    if let (AluOp::Mov, Source::Reg(src)) = (op, src) {
        let value = state.tie(src);
        let moved = match value {
            // A 32-bit move of a number that fits is the number itself.
            Value::Number { scalar, .. } if !wide && scalar.u64.max > u64::from(u32::MAX) => {
                Value::number(scalar.zero_extend(32))
            }
            Value::Number { .. } | Value::Pointer(_) | Value::Nothing(_) => value,
        };
        state.set(dst, moved);
        return;
    }
    let right = match src {
        Source::Reg(src) => *state.reg(src),
        Source::Imm(x) => Value::constant(i64::from(x) as u64),
    };
    let result = match (*state.reg(dst), right) {
        (Value::Pointer(p), Value::Number { scalar, .. }) if op != AluOp::Mov => {
            Value::Pointer(Pointer {
                offset: Scalar::alu(op, true, &p.offset, &scalar),
                ..p
            })
        }
        (Value::Number { scalar, .. }, Value::Pointer(p)) => Value::Pointer(Pointer {
            offset: p.offset.plus(&scalar),
            ..p
        }),
        // Their distance, which is known where there is one of the object.
        (Value::Pointer(p), Value::Pointer(q)) if op == AluOp::Sub => {
            Value::number(match p.target {
                Target::MapValue(_) => Scalar::UNKNOWN,
                _ => Scalar::alu(op, true, &p.offset, &q.offset),
            })
        }
        (
            Value::Number {
                scalar: a,
                id,
                plus,
            },
            Value::Number { scalar: b, .. },
        ) => {
            let scalar = Scalar::alu(op, wide, &a, &b);
            let by = b.known().map(|by| by as i64).filter(|_| wide);
            let sum = match (op, by) {
                (AluOp::Add, Some(by)) => plus.checked_add(by),
                (AluOp::Sub, Some(by)) => plus.checked_sub(by),
                _ => None,
            };
            // It stays tied to its copies, so far apart.
            match sum.filter(|sum| id != 0 && sum.unsigned_abs() < TIED_WITHIN) {
                Some(plus) => Value::Number { scalar, id, plus },
                None => Value::number(scalar),
            }
        }
        // A move of a constant; the rest was refused.
        (_, right) => match right {
            Value::Number { scalar, .. } => number(scalar, wide),
            Value::Pointer(_) | Value::Nothing(_) => right,
        },
    };
    state.set(dst, result);
}

fn load(env: &Env<'_>, state: &State, pointer: &Pointer, width: Width, signed: bool) -> Value {
    let loaded = Scalar::loaded(width.bits(), false);
    let value = match (pointer.target, pointer.fixed()) {
        (Target::Context, Some(at)) => {
            let field = u32::try_from(at).ok().and_then(|at| {
                let field = env.platform.context.containing(at, width.bytes())?;
                Some((field, at - field.offset))
            });
            Value::number(field.map_or(loaded, |(field, skipped)| {
                let whole = field_range(field.source, field.size);
                let shift = Scalar::constant(u64::from(skipped) * 8);
                Scalar::alu(AluOp::Rsh, true, &whole, &shift).zero_extend(width.bits())
            }))
        }
        (Target::Stack(frame), Some(at)) => match state.frames.get(frame as usize) {
            Some(frame) => frame
                .stack
                .read(at, width.bytes())
                .unwrap_or(Value::number(loaded)),
            None => Value::number(loaded),
        },
        (Target::MapValue(map), Some(at)) => {
            let constant = env
                .constant_bytes(map)
                .and_then(|bytes| constant_at(bytes, at, width));
            Value::number(constant.unwrap_or(loaded))
        }
        (Target::Stack(_) | Target::Context | Target::MapValue(_), None) => Value::number(loaded),
        (Target::Number { frame, slot }, at) => {
            let given = state
                .iter_in(frame, i64::from(slot), i64::from(slot) + 8)
                .map(Iter::given);
            match (given, at, width) {
                (Some(given), Some(0), Width::W32) => Value::number(given),
                _ => Value::number(loaded),
            }
        }
        (
            Target::Map(_)
            | Target::Function(_)
            | Target::MapKey(_)
            | Target::Memory(_)
            | Target::Dynptr { .. }
            | Target::Sample { .. }
            | Target::Slice { .. }
            | Target::Record { .. },
            _,
        ) => Value::number(loaded),
    };
    match value {
        Value::Number { scalar, .. } if signed => Value::number(scalar.sign_extend(width.bits())),
        Value::Number { .. } | Value::Pointer(_) | Value::Nothing(_) => value,
    }
}

fn store(state: &mut State, pointer: &Pointer, width: Width, src: Source) {
    let value = match src {
        Source::Reg(src) => state.tie(src),
        Source::Imm(x) => Value::constant(i64::from(x) as u64),
    };
    let stored = match value {
        // Truncated, it is another number.
        Value::Number { scalar, .. } if !fits(&scalar, width) => {
            Value::number(scalar.zero_extend(width.bits()))
        }
        Value::Number { .. } => value,
        Value::Pointer(_) | Value::Nothing(_) => value,
    };
    match (pointer.target, pointer.fixed()) {
        (Target::Stack(frame), Some(at)) => {
            state.overwrite_dynptrs(frame, at, at + i64::from(width.bytes()));
            if let Some(frame) = state.frames.get_mut(frame as usize) {
                frame.stack.write(at, width.bytes(), stored);
            }
        }
        (Target::Stack(_), None) => overwrite(state, pointer, width.bytes()),
        (
            Target::Context
            | Target::Map(_)
            | Target::Function(_)
            | Target::MapKey(_)
            | Target::MapValue(_)
            | Target::Memory(_)
            | Target::Number { .. }
            | Target::Dynptr { .. }
            | Target::Sample { .. }
            | Target::Slice { .. }
            | Target::Record { .. },
            _,
        ) => {}
    }
}

fn fits(scalar: &Scalar, width: Width) -> bool {
    scalar.u64.max <= u64::MAX >> (64 - width.bits())
}

/// Unknown numbers are written through `pointer`.
fn overwrite(state: &mut State, pointer: &Pointer, size: u32) {
    let Target::Stack(frame) = pointer.target else {
        return;
    };
    let Some(frame) = state.frames.get_mut(frame as usize) else {
        return;
    };
    match pointer.fixed() {
        Some(at) => frame.stack.write_unknown(at, size),
        None => frame.stack.write_somewhere(
            pointer.offset.s64.min,
            pointer.offset.s64.max + i64::from(size),
        ),
    }
}

/// What kinds of values a comparison sees, for the fact about the branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Numbers that are not both 0.
    Numbers,
    /// 0 with 0: a null that an earlier check left, or a number.
    Zeros,
    /// A pointer with null.
    Pointer,
}

/// The state on one side of `if dst op src`; `None` if that side cannot be taken.
pub fn branch(
    state: &State,
    wide: bool,
    op: JumpOp,
    dst: Reg,
    src: Source,
    taken: bool,
) -> Option<State> {
    let right = match src {
        Source::Reg(src) => *state.reg(src),
        Source::Imm(x) => Value::constant(i64::from(x) as u64),
    };
    match (*state.reg(dst), right) {
        (Value::Pointer(p), Value::Pointer(q)) => {
            // In one object of which there is one, they are ordered as their offsets are, unless
            // one went astray.
            let near = |p: &Pointer| {
                p.offset.s64.min >= i64::from(i32::MIN) && p.offset.s64.max <= i64::from(i32::MAX)
            };
            let told = !matches!(p.target, Target::MapValue(_)) && near(&p) && near(&q);
            let possible = !told || refine(signed(op), true, &p.offset, &q.offset, taken).is_some();
            possible.then(|| state.clone())
        }
        (Value::Pointer(p), _) | (_, Value::Pointer(p)) => {
            let null = (op == JumpOp::Eq) == taken;
            if p.nullable {
                let mut state = state.clone();
                state.learn_null(p.id, null);
                return Some(state);
            }
            // A pointer that may have left its region may even have wrapped to 0.
            let near = i64::from(i32::MAX);
            let inside = -FRAME_BYTES <= p.offset.s64.min && p.offset.s64.max <= near;
            (!null || !inside).then(|| state.clone())
        }
        (Value::Number { scalar: a, .. }, Value::Number { scalar: b, .. }) => {
            let same = matches!(src, Source::Reg(src) if src == dst);
            let (new_a, new_b) = refine(op, wide, &a, &b, taken)?;
            let mut state = state.clone();
            if !same {
                state.learn(dst, new_a);
                if let Source::Reg(src) = src {
                    state.learn(src, new_b);
                }
            }
            Some(state)
        }
        (Value::Nothing(_), _) | (_, Value::Nothing(_)) => None,
    }
}

/// The comparison of two offsets that tells how two addresses compare.
fn signed(op: JumpOp) -> JumpOp {
    match op {
        JumpOp::Lt => JumpOp::SLt,
        JumpOp::Le => JumpOp::SLe,
        JumpOp::Gt => JumpOp::SGt,
        JumpOp::Ge => JumpOp::SGe,
        JumpOp::Eq
        | JumpOp::Ne
        | JumpOp::Set
        | JumpOp::SLt
        | JumpOp::SLe
        | JumpOp::SGt
        | JumpOp::SGe => op,
    }
}

/// What a comparison sees.
pub fn compared(state: &State, dst: Reg, src: Source) -> Compared {
    let right = match src {
        Source::Reg(src) => *state.reg(src),
        Source::Imm(x) => Value::constant(i64::from(x) as u64),
    };
    let zero = |v: &Value| v.scalar().and_then(Scalar::known) == Some(0);
    match (state.reg(dst), &right) {
        (Value::Pointer(_), Value::Pointer(_)) => Compared::Numbers,
        (Value::Pointer(_), _) | (_, Value::Pointer(_)) => Compared::Pointer,
        (a, b) if zero(a) && zero(b) => Compared::Zeros,
        _ => Compared::Numbers,
    }
}
