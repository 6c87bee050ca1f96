//! Does it hold: each [`Assertion`] against a state.

use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{AluOp, JumpOp, Reg, Source, Width};

use crate::assert::{Access, AccessKind, Assertion};
use crate::domain::pointer::{Pointer, Target, Value};
use crate::domain::scalar::Scalar;
use crate::domain::stack::Unreadable;
use crate::domain::state::{Dynptr, State};
use crate::env::Env;
use crate::platform::ContextField;
use crate::rule::Rule;

/// Checks one assertion. For an access, gives the pointer to what is accessed.
pub fn check(env: &Env<'_>, state: &State, assertion: &Assertion) -> Result<Option<Pointer>, Rule> {
    match *assertion {
        Assertion::Readable(reg) => readable(env, state, reg)?,
        Assertion::Writable(reg) => {
            if reg == Reg::FP {
                return Err(Rule::FramePointerWritten);
            }
        }
        Assertion::Number(reg, op) => {
            if let Value::Pointer(p) = state.reg(reg) {
                return Err(Rule::PointerArithmetic {
                    op,
                    reg: reg.to_string(),
                    pointer: env.pointer(p),
                });
            }
        }
        Assertion::Arithmetic { wide, op, dst, src } => arithmetic(env, state, wide, op, dst, src)?,
        Assertion::Comparable { wide, op, dst, src } => comparable(env, state, wide, op, dst, src)?,
        Assertion::Access(ref a) => return access(env, state, a).map(Some),
        Assertion::Map(map) => {
            env.map(map)?;
        }
        Assertion::MapData { map, offset } => {
            let (def, map_type) = env.map(map)?;
            if map_type != MapType::Array {
                return Err(Rule::MapShape {
                    map: def.name.clone(),
                    map_type: map_type.name(),
                    problem: "has no value with a fixed address".to_owned(),
                });
            }
            if offset > def.value_size {
                let pointer = map_data(map, offset);
                return Err(Rule::OutOfBounds {
                    access: "an address".to_owned(),
                    place: env.place(&pointer),
                    size: u64::from(def.value_size),
                });
            }
        }
        Assertion::WellFormed(holds, problem) => {
            if !holds {
                return Err(Rule::Malformed { problem });
            }
        }
        Assertion::Unsupported { what } => {
            return Err(Rule::Unsupported {
                what: what.what(),
                advice: what.advice(),
            });
        }
    }
    Ok(None)
}

/// The pointer that a load of a map's data address gives.
pub fn map_data(map: u32, offset: u32) -> Pointer {
    Pointer {
        target: Target::MapValue(map),
        offset: Scalar::constant(u64::from(offset)),
        nullable: false,
        id: 0,
    }
}

/// The register holds something.
pub fn readable(env: &Env<'_>, state: &State, reg: Reg) -> Result<(), Rule> {
    match state.reg(reg) {
        Value::Nothing(why) => Err(Rule::Uninitialised {
            reg: reg.to_string(),
            why: env.why(*why),
        }),
        Value::Number { .. } | Value::Pointer(_) => Ok(()),
    }
}

fn symbol(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "+=",
        AluOp::Sub => "-=",
        AluOp::Mul => "*=",
        AluOp::Div => "/=",
        AluOp::SDiv => "s/=",
        AluOp::Or => "|=",
        AluOp::And => "&=",
        AluOp::Lsh => "<<=",
        AluOp::Rsh => ">>=",
        AluOp::Mod => "%=",
        AluOp::SMod => "s%=",
        AluOp::Xor => "^=",
        AluOp::Mov => "=",
        AluOp::Arsh => "s>>=",
    }
}

fn source<'s>(state: &'s State, src: Source, constant: &'s mut Value) -> &'s Value {
    match src {
        Source::Reg(reg) => state.reg(reg),
        Source::Imm(x) => {
            *constant = Value::constant(i64::from(x) as u64);
            constant
        }
    }
}

fn arithmetic(
    env: &Env<'_>,
    state: &State,
    wide: bool,
    op: AluOp,
    dst: Reg,
    src: Source,
) -> Result<(), Rule> {
    let refuse = |reg: Reg, p: &Pointer| {
        let op = if wide {
            symbol(op)
        } else {
            "32-bit arithmetic"
        };
        Err(Rule::PointerArithmetic {
            op,
            reg: reg.to_string(),
            pointer: env.pointer(p),
        })
    };
    let mut constant = Value::constant(0);
    let right = source(state, src, &mut constant);
    let src_reg = match src {
        Source::Reg(reg) => reg,
        Source::Imm(_) => dst,
    };
    if op == AluOp::Mov {
        return match right {
            Value::Pointer(p) if !wide => refuse(src_reg, p),
            Value::Pointer(_) | Value::Number { .. } | Value::Nothing(_) => Ok(()),
        };
    }
    let adds = |p: &Pointer| {
        !p.nullable
            && !matches!(
                p.target,
                Target::Map(_) | Target::Function(_) | Target::Dynptr { .. }
            )
    };
    match (state.reg(dst), right) {
        (Value::Pointer(p), Value::Number { .. }) => {
            if wide && matches!(op, AluOp::Add | AluOp::Sub) && adds(p) {
                Ok(())
            } else {
                refuse(dst, p)
            }
        }
        (Value::Number { .. }, Value::Pointer(p)) => {
            if wide && op == AluOp::Add && adds(p) {
                Ok(())
            } else {
                refuse(src_reg, p)
            }
        }
        (Value::Pointer(p), Value::Pointer(q)) => {
            if wide && op == AluOp::Sub && p.is_beside(q) {
                Ok(())
            } else {
                refuse(dst, p)
            }
        }
        (Value::Number { .. }, Value::Number { .. }) => Ok(()),
        (Value::Nothing(_), _) | (_, Value::Nothing(_)) => Ok(()),
    }
}

fn comparable(
    env: &Env<'_>,
    state: &State,
    wide: bool,
    op: JumpOp,
    dst: Reg,
    src: Source,
) -> Result<(), Rule> {
    let mut constant = Value::constant(0);
    let right = source(state, src, &mut constant);
    let src_reg = match src {
        Source::Reg(reg) => reg,
        Source::Imm(_) => dst,
    };
    let (reg, p, other) = match (state.reg(dst), right) {
        (Value::Pointer(p), other) => (dst, p, other),
        (other, Value::Pointer(p)) => (src_reg, p, other),
        _ => return Ok(()),
    };
    let with_null = other.scalar().and_then(Scalar::known) == Some(0);
    if wide && matches!(op, JumpOp::Eq | JumpOp::Ne) && with_null {
        return Ok(());
    }
    if let (Value::Pointer(p), Value::Pointer(q)) = (state.reg(dst), right)
        && wide
        && op != JumpOp::Set
        && p.is_beside(q)
    {
        return Ok(());
    }
    Err(Rule::PointerCompared {
        reg: reg.to_string(),
        pointer: env.pointer(p),
    })
}

/// `read of 4 bytes`.
fn access_text(kind: AccessKind, width: Width) -> String {
    let what = match kind {
        AccessKind::Read => "read",
        AccessKind::Write(_) => "write",
        AccessKind::Atomic(_) => "atomic operation",
    };
    bytes_text(what, u64::from(width.bytes()))
}

/// `read of 4 bytes`.
pub fn bytes_text(what: &str, bytes: u64) -> String {
    format!(
        "{what} of {bytes} byte{}",
        if bytes == 1 { "" } else { "s" }
    )
}

fn access(env: &Env<'_>, state: &State, a: &Access) -> Result<Pointer, Rule> {
    let text = access_text(a.kind, a.width);
    let base = address(env, state, a.base)?;
    let offset = base.offset.plus(&Scalar::constant(i64::from(a.off) as u64));
    let pointer = Pointer { offset, ..base };
    let size = a.width.bytes();
    let writes = !matches!(a.kind, AccessKind::Read);
    if pointer.target == Target::Context {
        context_field(env, &text, &pointer, size, a.kind)?;
        if let AccessKind::Write(Source::Reg(src)) = a.kind
            && let Value::Pointer(stored) = state.reg(src)
        {
            return Err(Rule::PointerStored {
                reg: src.to_string(),
                pointer: env.pointer(stored),
                place: env.place(&pointer),
            });
        }
        return Ok(pointer);
    }
    let overwrites = matches!(a.kind, AccessKind::Write(_));
    in_bounds(env, state, &text, &pointer, u64::from(size), overwrites)?;
    let pointer_stored = match a.kind {
        AccessKind::Write(Source::Reg(src)) => matches!(state.reg(src), Value::Pointer(_)),
        AccessKind::Read | AccessKind::Write(Source::Imm(_)) | AccessKind::Atomic(_) => false,
    };
    if a.ordered || pointer_stored {
        aligned(env, &text, &pointer, size)?;
    }
    if writes {
        writable(env, &text, &pointer)?;
    }
    if matches!(a.kind, AccessKind::Read | AccessKind::Atomic(_)) {
        not_write_only(env, &text, &pointer)?;
    }
    match a.kind {
        AccessKind::Read => {
            stack_readable(env, state, &text, &pointer, u64::from(size), size == 8)?;
        }
        AccessKind::Atomic(_) => {
            stack_readable(env, state, &text, &pointer, u64::from(size), false)?;
        }
        AccessKind::Write(Source::Imm(_)) => {}
        AccessKind::Write(Source::Reg(src)) => {
            if let Value::Pointer(stored) = state.reg(src) {
                let whole_slot = matches!(pointer.target, Target::Stack(_))
                    && size == 8
                    && pointer.fixed().is_some();
                if !whole_slot {
                    return Err(Rule::PointerStored {
                        reg: src.to_string(),
                        pointer: env.pointer(stored),
                        place: env.place(&pointer),
                    });
                }
            }
        }
    }
    Ok(pointer)
}

/// The pointer in `reg`, which is not null.
fn address(env: &Env<'_>, state: &State, reg: Reg) -> Result<Pointer, Rule> {
    match state.reg(reg) {
        Value::Pointer(p) if p.nullable => Err(Rule::MaybeNull {
            reg: reg.to_string(),
            pointer: env.pointer(p),
        }),
        Value::Pointer(p) => Ok(*p),
        Value::Number { scalar, .. } => Err(Rule::NotAPointer {
            reg: reg.to_string(),
            value: scalar.to_string(),
        }),
        Value::Nothing(why) => Err(Rule::Uninitialised {
            reg: reg.to_string(),
            why: env.why(*why),
        }),
    }
}

fn context_field(
    env: &Env<'_>,
    text: &str,
    pointer: &Pointer,
    size: u32,
    kind: AccessKind,
) -> Result<(), Rule> {
    let context = env.platform.context;
    let writes = !matches!(kind, AccessKind::Read);
    if let Some(rule) = env.platform.foreign_context {
        let refused = || Rule::NoSuchField {
            access: text.to_owned(),
            place: env.place(pointer),
            context: context.c_name,
            fields: String::new(),
        };
        let at = pointer.fixed().and_then(|at| u32::try_from(at).ok());
        return match rule(at.ok_or_else(refused)?, size, writes) {
            // A context is not memory: the kernel rewrites loads and stores of it, and only those.
            ContextField::Number if matches!(kind, AccessKind::Atomic(_)) => Err(refused()),
            ContextField::Number => Ok(()),
            ContextField::Absent => Err(refused()),
            ContextField::Unserved(what) => Err(Rule::Unsupported {
                what: what.to_owned(),
                advice: "",
            }),
        };
    }
    if writes {
        return Err(Rule::ContextWritten {
            access: text.to_owned(),
            place: env.place(pointer),
        });
    }
    let offset = pointer.fixed();
    if offset
        .and_then(|at| u32::try_from(at).ok())
        .filter(|at| at.is_multiple_of(size))
        .and_then(|at| context.containing(at, size))
        .is_some()
    {
        return Ok(());
    }
    // Name the field that was probably meant; else all of them.
    let near = context.fields.iter().find(|f| {
        offset.is_some_and(|at| i64::from(f.offset) <= at && at < i64::from(f.offset + f.size))
    });
    let fields = match near {
        Some(f) => format!("`{}` is {} bytes at offset {}", f.name, f.size, f.offset),
        None => context
            .fields
            .iter()
            .map(|f| format!("`{}`", f.name))
            .collect::<Vec<_>>()
            .join(", "),
    };
    Err(Rule::NoSuchField {
        access: text.to_owned(),
        place: env.place(pointer),
        context: context.c_name,
        fields,
    })
}

/// `overwrites`: nothing of what was there is read.
fn in_bounds(
    env: &Env<'_>,
    state: &State,
    text: &str,
    pointer: &Pointer,
    size: u64,
    overwrites: bool,
) -> Result<(), Rule> {
    if matches!(pointer.target, Target::Map(_)) {
        return Err(Rule::MapAccess {
            access: text.to_owned(),
            place: env.place(pointer),
        });
    }
    let (start, region) = env.bounds(pointer.target);
    let end = i128::from(start) + i128::from(region);
    let (min, max) = (
        i128::from(pointer.offset.s64.min),
        i128::from(pointer.offset.s64.max),
    );
    if min < i128::from(start) || max + i128::from(size) > end {
        return Err(Rule::OutOfBounds {
            access: text.to_owned(),
            place: env.place(pointer),
            size: region,
        });
    }
    // Both ends are inside the region, so they are small.
    let (first, end) = (min as i64, (max + i128::from(size)) as i64);
    if let Target::Stack(frame) = pointer.target
        && let Some(iter) = state.iter_in(frame, first, end)
    {
        return Err(Rule::IteratorBytes {
            access: text.to_owned(),
            place: env.place(pointer),
            slot: env.code.slot(iter.made_at.1),
        });
    }
    // As in Linux, one that holds nothing may go, if it is known to. Several may lie there, and
    // each counts.
    let stays = |dynptr: &&Dynptr| !(overwrites && dynptr.id == 0 && min == max);
    if let Target::Stack(frame) = pointer.target
        && let Some(dynptr) = state.dynptrs_in(frame, first, end).find(stays)
    {
        return Err(Rule::DynptrBytes {
            access: text.to_owned(),
            place: env.place(pointer),
            slot: env.code.slot(dynptr.made_at),
        });
    }
    Ok(())
}

/// Only what must happen at once needs it, the code
/// generator splits the rest.
fn aligned(env: &Env<'_>, text: &str, pointer: &Pointer, align: u32) -> Result<(), Rule> {
    if pointer.align() < align {
        return Err(Rule::Misaligned {
            access: text.to_owned(),
            place: env.place(pointer),
            align,
        });
    }
    Ok(())
}

fn writable(env: &Env<'_>, text: &str, pointer: &Pointer) -> Result<(), Rule> {
    let read_only = match pointer.target {
        Target::MapValue(map) => env.read_only(map).then_some(map),
        Target::MapKey(map) => {
            return Err(Rule::KeyWritten {
                access: text.to_owned(),
                map: env.map_name(map).to_owned(),
            });
        }
        Target::Number { .. } => {
            return Err(Rule::NumberWritten {
                access: text.to_owned(),
            });
        }
        Target::Stack(_)
        | Target::Context
        | Target::Map(_)
        | Target::Memory(_)
        | Target::Function(_)
        | Target::Dynptr { .. }
        | Target::Sample { .. }
        | Target::Slice { .. }
        | Target::Record { .. } => None,
    };
    if let Some(map) = read_only {
        return Err(Rule::ReadOnly {
            access: text.to_owned(),
            place: env.place(pointer),
            map: env.map_name(map).to_owned(),
        });
    }
    Ok(())
}

/// The map lets programs read.
fn not_write_only(env: &Env<'_>, text: &str, pointer: &Pointer) -> Result<(), Rule> {
    match pointer.target {
        Target::MapValue(map) if env.write_only(map) => Err(Rule::WriteOnly {
            access: text.to_owned(),
            place: env.place(pointer),
            map: env.map_name(map).to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Stack bytes that are read were written; a stored pointer may only be read whole.
fn stack_readable(
    env: &Env<'_>,
    state: &State,
    text: &str,
    pointer: &Pointer,
    size: u64,
    pointers_too: bool,
) -> Result<(), Rule> {
    let Target::Stack(frame) = pointer.target else {
        return Ok(());
    };
    let Some(frame) = state.frames.get(frame as usize) else {
        return Ok(());
    };
    let refuse = |why: Unreadable| {
        let (access, place) = (text.to_owned(), env.place(pointer));
        Err(match why {
            Unreadable::Unwritten(byte) => Rule::StackUninitialised {
                access,
                place,
                byte,
            },
            Unreadable::Pointer(at) => Rule::PointerBytes { access, place, at },
        })
    };
    if let (true, Some(at)) = (pointers_too, pointer.fixed()) {
        return match frame.stack.read(at, size as u32) {
            Ok(Value::Nothing(_)) => refuse(Unreadable::Unwritten(at)),
            Ok(Value::Number { .. } | Value::Pointer(_)) => Ok(()),
            Err(why) => refuse(why),
        };
    }
    match frame
        .stack
        .readable(pointer.offset.s64.min, pointer.offset.s64.max + size as i64)
    {
        Ok(()) => Ok(()),
        Err(why) => refuse(why),
    }
}

/// `size` bytes at the pointer in `reg` can be read by a helper.
pub fn memory_readable(env: &Env<'_>, state: &State, reg: Reg, size: u64) -> Result<Pointer, Rule> {
    let text = bytes_text("read", size);
    let pointer = address(env, state, reg)?;
    if pointer.target == Target::Context {
        return Err(Rule::NotAPointer {
            reg: reg.to_string(),
            value: "the context, which is not in memory".to_owned(),
        });
    }
    in_bounds(env, state, &text, &pointer, size, false)?;
    not_write_only(env, &text, &pointer)?;
    stack_readable(env, state, &text, &pointer, size, false)?;
    Ok(pointer)
}

/// A number of 8 bytes at `pointer` can be read by a helper.
pub fn number_readable(env: &Env<'_>, state: &State, pointer: &Pointer) -> Result<(), Rule> {
    let text = bytes_text("read", 8);
    in_bounds(env, state, &text, pointer, 8, false)?;
    stack_readable(env, state, &text, pointer, 8, false)
}

/// `size` bytes at the pointer in `reg`, which is a multiple of `align`, can be written by a
/// helper.
pub fn memory_writable(
    env: &Env<'_>,
    state: &State,
    reg: Reg,
    size: u64,
    align: u32,
) -> Result<Pointer, Rule> {
    let text = bytes_text("write", size);
    let pointer = address(env, state, reg)?;
    if pointer.target == Target::Context {
        return Err(Rule::ContextWritten {
            access: text,
            place: env.place(&pointer),
        });
    }
    in_bounds(env, state, &text, &pointer, size, true)?;
    aligned(env, &text, &pointer, align)?;
    writable(env, &text, &pointer)?;
    Ok(pointer)
}
