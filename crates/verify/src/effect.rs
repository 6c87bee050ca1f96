//! What a checked helper call does to the state.

use warpbpf_abi::helpers::{Arg, Helper, HelperId, Ret};
use warpbpf_abi::maps::MapType;
use warpbpf_ebpf::{Pc, Reg};

use crate::call::{fills_value, pointed_to};
use crate::domain::pointer::{Memory, Pointer, Target, Value, Why, align_of};
use crate::domain::scalar::Scalar;
use crate::domain::state::{DYNPTR, Dynptr, Held, State};
use crate::env::Env;
use crate::facts::{ArgFact, CallFact, INNER, Place, Region, map_def};
use crate::platform::result_range;

/// What a checked call does to the state. False if the helper does not return.
pub fn apply_call(
    env: &Env<'_>,
    state: &mut State,
    pc: Pc,
    helper: &Helper,
    fact: &CallFact,
) -> bool {
    let found = is_found(env, state, helper, fact);
    // What the helper writes or takes away, before the registers go.
    for (i, kind) in helper.args.iter().enumerate() {
        let Some(reg) = Reg::new(i as u8 + 1) else {
            continue;
        };
        let Value::Pointer(p) = *state.reg(reg) else {
            continue;
        };
        match kind {
            Arg::U64Out => written(state, &p, 8),
            Arg::MapValueOut => {
                let def = fact.map.and_then(|map| map_def(env.maps, map));
                if let Some(def) = def.filter(|def| fills_value(def)) {
                    written(state, &p, def.value_size.into());
                }
            }
            Arg::MemWrite => match fact.args.get(i + 1) {
                Some(ArgFact::Scalar {
                    value: Some(bytes), ..
                }) => written(state, &p, *bytes),
                Some(ArgFact::Scalar { max, .. }) => written_in_part(state, &p, *max),
                _ => {}
            },
            Arg::Record => state.release(p.id, pc),
            Arg::DynptrRecord => {
                if let Some(dynptr) = pointed_to(state, &p).copied() {
                    state.release_dynptr(dynptr, pc);
                }
            }
            Arg::DynptrOut => make_dynptr(state, pc, &p, helper, fact),
            Arg::None
            | Arg::Scalar
            | Arg::Map
            | Arg::MapKey
            | Arg::MapValue
            | Arg::MemRead
            | Arg::Size
            | Arg::ConstSize
            | Arg::Format
            | Arg::ConstString
            | Arg::Callback
            | Arg::CallbackContext
            | Arg::MemReadOrNull
            | Arg::SizeOrZero
            | Arg::FormatString
            | Arg::Values
            | Arg::Context
            | Arg::DynptrMemory
            | Arg::Dynptr => {}
        }
    }
    let slice = match helper.ret {
        Ret::SliceOrNull => slice_of(state, fact),
        _ => None,
    };
    clobber(state, pc);
    let map = fact.map.unwrap_or(0);
    let result = match helper.ret {
        Ret::Scalar if helper.kind.reads_string() => Value::number(length_of_string(fact)),
        Ret::Scalar => Value::number(result_range(helper.kind)),
        Ret::MapValueOrNull if is_outer(env, map) => nullable(state, Target::Map(map | INNER)),
        Ret::MapValueOrNull if found => Value::pointer(Target::MapValue(map)),
        Ret::MapValueOrNull => nullable(state, Target::MapValue(map)),
        Ret::RecordOrNull => {
            // The table gives the size in argument 2; the check has seen that it is a constant.
            let size = match fact.args[1] {
                ArgFact::Scalar {
                    value: Some(size), ..
                } => size as u32,
                _ => 0,
            };
            let value = nullable(state, Target::Record { map, size });
            if let Value::Pointer(p) = value {
                state.held.push(Held {
                    id: p.id,
                    reserved_at: pc,
                    map,
                });
            }
            value
        }
        // The check has seen a dynptr: without one nothing could be read.
        Ret::SliceOrNull => slice.map_or(Value::number(Scalar::UNKNOWN), |target| {
            nullable(state, target)
        }),
        Ret::Never => return false,
    };
    state.set(Reg::R0, result);
    true
}

/// The bytes that `bpf_dynptr_data` points to.
fn slice_of(state: &State, fact: &CallFact) -> Option<Target> {
    let Value::Pointer(pointer) = *state.reg(Reg::R1) else {
        return None;
    };
    let size = match fact.args[2] {
        ArgFact::Scalar {
            value: Some(size), ..
        } => size as u32,
        _ => 0,
    };
    if let Target::Dynptr { map, frame } = pointer.target {
        return Some(Target::Sample { map, frame, size });
    }
    let dynptr = pointed_to(state, &pointer)?;
    let offset = state.reg(Reg::new(2)?).scalar()?.zero_extend(32);
    Some(Target::Slice {
        frame: dynptr.frame,
        slot: dynptr.slot,
        memory: dynptr.memory,
        size,
        align: dynptr.align.min(align_of(&offset) as u8),
    })
}

/// There is a dynptr at `p` from now on, and nothing else.
fn make_dynptr(state: &mut State, pc: Pc, p: &Pointer, helper: &Helper, fact: &CallFact) {
    let (Target::Stack(frame), Some(at)) = (p.target, p.fixed()) else {
        return;
    };
    let map = fact.map.unwrap_or(0);
    let (memory, align, id) = match *state.reg(Reg::R1) {
        Value::Pointer(data) if helper.kind == HelperId::DynptrFromMem => {
            (Memory::Value(map), data.align() as u8, 0)
        }
        _ => (Memory::Record(map), 8, state.fresh_id()),
    };
    state.overwrite_dynptrs(frame, at, at + DYNPTR);
    if let Some(frame) = state.frames.get_mut(frame as usize) {
        frame.stack.unwrite(at, at + DYNPTR);
    }
    if id != 0 {
        state.held.push(Held {
            id,
            reserved_at: pc,
            map,
        });
    }
    state.dynptrs.push(Dynptr {
        frame,
        slot: at as i16,
        made_at: pc,
        memory,
        align,
        id,
    });
}

/// What is looked up in this map are maps.
fn is_outer(env: &Env<'_>, map: u32) -> bool {
    matches!(
        env.map(map),
        Ok((_, MapType::ArrayOfMaps | MapType::HashOfMaps))
    )
}

/// A lookup in an array whose key lies in the stack and is below the number of entries: it never
/// fails.
fn is_found(env: &Env<'_>, state: &State, helper: &Helper, fact: &CallFact) -> bool {
    if helper.kind != HelperId::MapLookupElem {
        return false;
    }
    let Some((def, map_type)) = fact.map.and_then(|map| env.map(map).ok()) else {
        return false;
    };
    if !matches!(
        map_type,
        MapType::Array
            | MapType::PercpuArray
            | MapType::GpuArray
            | MapType::GpuKernelArray
            | MapType::GpuHostArray
    ) {
        return false;
    }
    let ArgFact::Pointer(Place {
        region: Region::Stack { frame },
        offset: Some(at),
        ..
    }) = fact.args[1]
    else {
        return false;
    };
    let Some(frame) = state.frames.get(frame as usize) else {
        return false;
    };
    matches!(
        frame.stack.read(at, def.key_size),
        Ok(Value::Number { scalar, .. }) if scalar.u64.max < u64::from(def.max_entries)
    )
}

/// A call leaves nothing in `r0` to `r5` but its result.
pub fn clobber(state: &mut State, pc: Pc) {
    for reg in Reg::all().take(6) {
        state.set(reg, Value::Nothing(Why::Call(pc)));
    }
}

fn nullable(state: &mut State, target: Target) -> Value {
    let id = state.fresh_id();
    Value::Pointer(Pointer {
        target,
        offset: Scalar::constant(0),
        nullable: true,
        id,
    })
}

/// `bytes` unknown bytes are written through `p`; the check has seen that they are inside the
/// frame.
fn written(state: &mut State, p: &Pointer, bytes: u64) {
    let Target::Stack(frame) = p.target else {
        return;
    };
    let (start, end) = (p.offset.s64.min, p.offset.s64.max + bytes as i64);
    state.overwrite_dynptrs(frame, start, end);
    let Some(frame) = state.frames.get_mut(frame as usize) else {
        return;
    };
    match p.fixed() {
        Some(at) => frame.stack.write_unknown(at, bytes as u32),
        None => frame.stack.write_somewhere(start, end),
    }
}

/// Some of the `bytes` bytes from `p` on are written.
fn written_in_part(state: &mut State, p: &Pointer, bytes: u64) {
    let Target::Stack(frame) = p.target else {
        return;
    };
    let (start, end) = (p.offset.s64.min, p.offset.s64.max + bytes as i64);
    state.overwrite_dynptrs(frame, start, end);
    if let Some(frame) = state.frames.get_mut(frame as usize) {
        frame.stack.write_somewhere(start, end);
    }
}

/// What a call that reads a string returns: its length with the NUL, or an error where the string
/// is the application's.
fn length_of_string(fact: &CallFact) -> Scalar {
    let ArgFact::Scalar { value, max } = fact.args[1] else {
        return Scalar::UNKNOWN;
    };
    let least = match fact.own_source() {
        Some(_) => i64::from(value.is_some_and(|size| size > 0)),
        None => -4095,
    };
    match i64::try_from(max) {
        Ok(max) => Scalar::signed_range(least, max),
        Err(_) => Scalar::UNKNOWN,
    }
}
