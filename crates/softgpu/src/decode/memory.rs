//! Loads, stores, atomics and asynchronous copies.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::eval::Ty;

use super::decoder::{Decoded, FunctionDecoder, bits_of, invalid, unsupported};
use super::operand::operand;
use crate::op::operand::{AtomicOp, NOWHERE, Row, Space, Type};
use crate::op::{Access, Atomic, CopyAsync, Mbarrier, MbarrierKind, Op, WideAtomic};
use crate::wide;

/// The state space among the modifiers, generic if there is none.
pub(super) fn space_of(modifiers: &[&str]) -> Decoded<Space> {
    for modifier in modifiers {
        return Ok(match *modifier {
            "global" => Space::Global,
            "const" => Space::Const,
            "shared" | "shared::cta" => Space::Shared,
            "shared::cluster" => Space::SharedCluster,
            "local" => Space::Local,
            "param" | "param::entry" | "param::func" => Space::Param,
            _ => continue,
        });
    }
    Ok(Space::Generic)
}

/// Modifiers of memory instructions that change nothing here: every access is at least relaxed,
/// fences order all.
pub(super) fn is_hint(modifier: &str) -> bool {
    matches!(
        modifier,
        "weak"
            | "relaxed"
            | "acquire"
            | "release"
            | "acq_rel"
            | "sc"
            | "volatile"
            | "mmio"
            | "nc"
            | "cta"
            | "cluster"
            | "gpu"
            | "sys"
            | "ca"
            | "cg"
            | "cs"
            | "lu"
            | "cv"
            | "wb"
            | "wt"
            | "unified"
            | "noftz"
    ) || modifier.starts_with("L1::")
        || modifier.starts_with("L2::")
        || modifier.starts_with("level::")
}

fn is_space(modifier: &str) -> bool {
    matches!(
        modifier,
        "global"
            | "const"
            | "shared"
            | "shared::cta"
            | "shared::cluster"
            | "local"
            | "param"
            | "param::entry"
            | "param::func"
    )
}

pub(super) fn lanes_of(modifier: &str) -> Option<usize> {
    match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    }
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    fn access(&mut self, i: &Instruction<'a>, load: bool) -> Decoded<Box<Access>> {
        let (mut ty, mut lanes) = (None, 1);
        for modifier in &i.modifiers {
            if let Some(count) = lanes_of(modifier) {
                lanes = count;
            } else if warpbpf_ptx::type_size(modifier).is_some() {
                ty = Some(*modifier);
            } else if !is_hint(modifier) && !is_space(modifier) {
                return unsupported(format!("modifier `.{modifier}`"));
            }
        }
        let Some(ty) = ty.filter(|&ty| ty != "pred") else {
            return invalid("the type is missing");
        };
        // A cache policy may follow as a last operand: a hint.
        let (data, place) = if load { (0, 1) } else { (1, 0) };
        let rows = self.rows(operand(i, data)?, Ty::parse(ty), load)?;
        let (space, address) = self.address(operand(i, place)?, space_of(&i.modifiers)?)?;
        let (bytes, halves) = match bits_of(ty) / 8 {
            16 => (8, 2),
            bytes => (bytes, 1),
        };
        if rows.len() != lanes * halves {
            return invalid(format!(
                "{} registers for {lanes} elements of type `.{ty}`",
                rows.len()
            ));
        }
        if !load && space == Space::Param {
            return invalid("kernel parameters cannot be written");
        }
        Ok(Box::new(Access {
            space,
            address,
            bytes,
            rows,
            signed: ty.starts_with('s') && bytes < 8,
        }))
    }

    pub(super) fn load(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        self.access(i, true).map(Op::Load)
    }

    pub(super) fn store(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        if i.modifiers.contains(&"async") {
            return self.async_store(i);
        }
        self.access(i, false).map(Op::Store)
    }

    pub(super) fn atomic(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        if i.modifiers.contains(&"async") {
            return self.async_store(i);
        }
        if i.modifiers.last() == Some(&"b128") {
            return self.wide_atomic(i);
        }
        let red = i.opcode == "red";
        let (mut op, mut ty, mut lanes) = (None, None, 1);
        for modifier in &i.modifiers {
            if let Some(count) = lanes_of(modifier) {
                lanes = count;
            } else if let Some(found) = atomic_op(modifier) {
                op = Some(found);
            } else if let Some(found) = atomic_type(modifier) {
                ty = Some(found);
            } else if !is_hint(modifier) && !is_space(modifier) {
                return unsupported(format!("modifier `.{modifier}`"));
            }
        }
        let (Some(op), Some(ty)) = (op, ty) else {
            return unsupported("operation or type");
        };
        let eval_ty = i.modifiers.iter().rev().find_map(|m| Ty::parse(m));
        let first = usize::from(!red);
        let (space, address) = self.address(operand(i, first)?, space_of(&i.modifiers)?)?;
        let b = self.rows(operand(i, first + 1)?, eval_ty, false)?;
        let c = match op {
            AtomicOp::CompareAndSwap => self.source(operand(i, first + 2)?, eval_ty)?,
            _ => NOWHERE,
        };
        let d = if red {
            vec![NOWHERE; b.len()].into()
        } else {
            self.rows(operand(i, 0)?, None, true)?
        };
        if b.len() != lanes || (d.len() != lanes && d[..] != [NOWHERE]) {
            return invalid(format!("{} registers for {lanes} elements", b.len()));
        }
        let d = if d.len() == lanes {
            d
        } else {
            vec![NOWHERE; lanes].into()
        };
        Ok(Op::Atomic(Box::new(Atomic {
            op,
            ty,
            space,
            address,
            d,
            b,
            c,
        })))
    }

    /// `atom` of 128 bits: exchanges only.
    fn wide_atomic(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        if !wide::possible() {
            return unsupported("128-bit atomics on this host, which has none");
        }
        let mut op = None;
        for modifier in i.modifiers.iter().filter(|m| **m != "b128") {
            if let Some(found @ (AtomicOp::CompareAndSwap | AtomicOp::Exchange)) =
                atomic_op(modifier)
            {
                op = Some(found);
            } else if !is_hint(modifier) && !is_space(modifier) {
                return unsupported(format!("modifier `.{modifier}`"));
            }
        }
        let Some(op) = op.filter(|_| i.opcode == "atom") else {
            return unsupported("operation or type");
        };
        let (space, address) = self.address(operand(i, 1)?, space_of(&i.modifiers)?)?;
        let halves = |rows: Box<[Row]>| match rows[..] {
            [low, high] => Ok([low, high]),
            _ => invalid("an operand is no 128-bit register"),
        };
        let b = halves(self.rows(operand(i, 2)?, None, false)?)?;
        let c = match op {
            AtomicOp::CompareAndSwap => halves(self.rows(operand(i, 3)?, None, false)?)?,
            _ => b,
        };
        let d = match operand(i, 0)? {
            Operand::Name("_") => [NOWHERE; 2],
            to => halves(self.rows(to, None, true)?)?,
        };
        Ok(Op::WideAtomic(Box::new(WideAtomic {
            op,
            space,
            address,
            d,
            b,
            c,
        })))
    }

    /// `cp.async…`: copies are done at once, so waiting for groups is nothing.
    pub(super) fn copy(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        match &i.modifiers[..] {
            ["async", "commit_group" | "wait_group" | "wait_all"] => Ok(Op::Nothing),
            ["async", "mbarrier", "arrive", rest @ ..] => {
                let (space, address) = self.address(operand(i, 0)?, space_of(rest)?)?;
                let kind = MbarrierKind::CopyArrive {
                    noinc: rest.contains(&"noinc"),
                };
                Ok(Op::Mbarrier(Box::new(Mbarrier {
                    kind,
                    space,
                    address,
                    d: NOWHERE,
                    s: NOWHERE,
                })))
            }
            ["async", "ca" | "cg", rest @ ..] if rest.contains(&"global") => {
                let (_, to) = self.address(operand(i, 0)?, Space::Shared)?;
                let (_, from) = self.address(operand(i, 1)?, Space::Global)?;
                let Operand::Int(bytes @ (4 | 8 | 16)) = *operand(i, 2)? else {
                    return invalid("the size must be 4, 8 or 16");
                };
                let (mut source_bytes, mut ignore) = (NOWHERE, NOWHERE);
                if let Some(extra) = i.operands.get(3) {
                    let row = self.source(extra, None)?;
                    match self.register_bits(extra) {
                        Some(1) => ignore = row,
                        // A 64-bit operand is a cache policy.
                        Some(64) => {}
                        _ => source_bytes = row,
                    }
                }
                let bytes = bytes as u32;
                Ok(Op::CopyAsync(Box::new(CopyAsync {
                    to,
                    from,
                    bytes,
                    source_bytes,
                    ignore,
                })))
            }
            _ => unsupported(""),
        }
    }

    pub(super) fn mbarrier(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let m = &i.modifiers;
        let space = space_of(m)?;
        let has = |name: &str| m.contains(&name);
        let Some(&what) = m.first() else {
            return unsupported("");
        };
        let mut done = |kind, place: Option<usize>, d: Option<usize>, s: Option<usize>| {
            let (space, address) = match place {
                Some(place) => self.address(operand(i, place)?, space)?,
                None => (
                    space,
                    crate::op::operand::Address {
                        base: crate::op::operand::Base::Absolute,
                        offset: 0,
                    },
                ),
            };
            let d = match d {
                Some(d) => self.destination(operand(i, d)?)?,
                None => NOWHERE,
            };
            let s = match s.filter(|&s| s < i.operands.len()) {
                Some(s) => self.source(operand(i, s)?, None)?,
                None => NOWHERE,
            };
            Ok(Op::Mbarrier(Box::new(Mbarrier {
                kind,
                space,
                address,
                d,
                s,
            })))
        };
        match what {
            "init" => done(MbarrierKind::Init, Some(0), None, Some(1)),
            "inval" => done(MbarrierKind::Invalidate, Some(0), None, None),
            "expect_tx" => done(MbarrierKind::ExpectTx, Some(0), None, Some(1)),
            "complete_tx" => done(MbarrierKind::CompleteTx, Some(0), None, Some(1)),
            "pending_count" => done(MbarrierKind::PendingCount, None, Some(0), Some(1)),
            // `.noComplete` only promises what the count says anyway.
            "arrive" | "arrive_drop" => {
                let kind = MbarrierKind::Arrive {
                    drop: what == "arrive_drop",
                    expect: has("expect_tx"),
                };
                // Remote arrivals have no state to return and may leave it out.
                match i.operands.first() {
                    Some(Operand::Address { .. }) => done(kind, Some(0), None, Some(1)),
                    _ => done(kind, Some(1), Some(0), Some(2)),
                }
            }
            "test_wait" | "try_wait" if has("parity") => {
                done(MbarrierKind::TestParity, Some(1), Some(0), Some(2))
            }
            "test_wait" | "try_wait" => done(MbarrierKind::TestState, Some(1), Some(0), Some(2)),
            _ => unsupported(""),
        }
    }
}

pub(super) fn atomic_op(modifier: &str) -> Option<AtomicOp> {
    Some(match modifier {
        "add" => AtomicOp::Add,
        "min" => AtomicOp::Min,
        "max" => AtomicOp::Max,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "exch" => AtomicOp::Exchange,
        "cas" => AtomicOp::CompareAndSwap,
        "inc" => AtomicOp::Increment,
        "dec" => AtomicOp::Decrement,
        _ => return None,
    })
}

pub(super) fn atomic_type(modifier: &str) -> Option<Type> {
    Some(match modifier {
        "u32" => Type::U32,
        "s32" => Type::S32,
        "u64" => Type::U64,
        "s64" => Type::S64,
        "b16" => Type::B16,
        "b32" => Type::B32,
        "b64" => Type::B64,
        "f16" => Type::F16,
        "f16x2" => Type::F16x2,
        "bf16" => Type::Bf16,
        "bf16x2" => Type::Bf16x2,
        "f32" => Type::F32,
        "f64" => Type::F64,
        _ => return None,
    })
}
