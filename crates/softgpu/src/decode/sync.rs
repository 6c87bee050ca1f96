//! Barriers and warp-synchronous instructions.

use warpbpf_ptx::ast::{Instruction, Operand};

use super::decoder::{Decoded, FunctionDecoder, invalid, unsupported};
use super::memory::{atomic_op, atomic_type};
use super::operand::operand;
use crate::op::operand::{AtomicOp, NOWHERE, Row, Type};
use crate::op::{Barrier, BarrierKind, Collective, Op, Shuffle, ShuffleKind, Together, Vote};

fn together(mask: Row, what: Together) -> Op {
    Op::Collective(Box::new(Collective { mask, what }))
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn barrier(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        // `.cta` and `.aligned` are what we do anyway: lanes are counted one by one.
        let m: Vec<&str> = i
            .modifiers
            .iter()
            .copied()
            .filter(|m| !matches!(*m, "cta" | "aligned"))
            .collect();
        match &m[..] {
            ["warp", "sync"] => Ok(Op::WarpSync {
                mask: self.source(operand(i, 0)?, None)?,
            }),
            ["sync"] | ["arrive"] => {
                let kind = if m[0] == "sync" {
                    BarrierKind::Sync
                } else {
                    BarrierKind::Arrive
                };
                let id = self.source(operand(i, 0)?, None)?;
                let count = match i.operands.get(1) {
                    Some(count) => self.source(count, None)?,
                    None if kind == BarrierKind::Arrive => {
                        return invalid("the thread count is missing");
                    }
                    None => NOWHERE,
                };
                Ok(Op::Barrier(Box::new(Barrier { id, count, kind })))
            }
            ["red", op, ty] => {
                let d = self.destination(operand(i, 0)?)?;
                let id = self.source(operand(i, 1)?, None)?;
                let last = i.operands.len() - 1;
                let count = if last > 2 {
                    self.source(operand(i, 2)?, None)?
                } else {
                    NOWHERE
                };
                let (p, negated) = self.predicate(operand(i, last)?)?;
                let kind = match (*op, *ty) {
                    ("popc", "u32") => BarrierKind::Popc { d, p, negated },
                    ("and", "pred") => BarrierKind::And { d, p, negated },
                    ("or", "pred") => BarrierKind::Or { d, p, negated },
                    _ => return unsupported(""),
                };
                Ok(Op::Barrier(Box::new(Barrier { id, count, kind })))
            }
            ["cluster", "arrive", ..] => Ok(Op::ClusterBarrier {
                arrive: true,
                wait: false,
            }),
            ["cluster", "wait", ..] => Ok(Op::ClusterBarrier {
                arrive: false,
                wait: true,
            }),
            _ => unsupported(""),
        }
    }

    /// A predicate operand, maybe negated.
    fn predicate(&mut self, operand: &Operand<'a>) -> Decoded<(Row, bool)> {
        match operand {
            Operand::Not(name) => Ok((self.source(&Operand::Name(name), None)?, true)),
            other => Ok((self.source(other, None)?, false)),
        }
    }

    /// The member mask, last operand of the `.sync` forms.
    fn member_mask(&mut self, i: &Instruction<'a>, index: usize) -> Decoded<Row> {
        if !i.modifiers.contains(&"sync") {
            return Ok(NOWHERE);
        }
        self.source(operand(i, index)?, None)
    }

    pub(super) fn shuffle(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let kind = i.modifiers.iter().find_map(|m| match *m {
            "up" => Some(ShuffleKind::Up),
            "down" => Some(ShuffleKind::Down),
            "bfly" => Some(ShuffleKind::Butterfly),
            "idx" => Some(ShuffleKind::Index),
            _ => None,
        });
        let Some(kind) = kind else {
            return unsupported("");
        };
        let [d, p] = self.two_destinations(operand(i, 0)?)?;
        let s = self.source(operand(i, 1)?, None)?;
        let (lane, clamp) = (
            self.source(operand(i, 2)?, None)?,
            self.source(operand(i, 3)?, None)?,
        );
        let mask = self.member_mask(i, 4)?;
        Ok(together(
            mask,
            Together::Shuffle(Shuffle {
                kind,
                d,
                p,
                s,
                lane,
                clamp,
            }),
        ))
    }

    pub(super) fn vote(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let kind = i.modifiers.iter().find_map(|m| match *m {
            "all" => Some(Vote::All),
            "any" => Some(Vote::Any),
            "uni" => Some(Vote::Uniform),
            "ballot" => Some(Vote::Ballot),
            _ => None,
        });
        let Some(kind) = kind else {
            return unsupported("");
        };
        let d = self.destination(operand(i, 0)?)?;
        let (p, negated) = self.predicate(operand(i, 1)?)?;
        let mask = self.member_mask(i, 2)?;
        Ok(together(
            mask,
            Together::Vote {
                kind,
                d,
                p,
                negated,
            },
        ))
    }

    pub(super) fn matching(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let [d, p] = self.two_destinations(operand(i, 0)?)?;
        let s = self.source(operand(i, 1)?, None)?;
        let (all, wide) = (i.modifiers.contains(&"all"), i.modifiers.contains(&"b64"));
        let mask = self.member_mask(i, 2)?;
        Ok(together(mask, Together::Match { all, wide, d, p, s }))
    }

    pub(super) fn reduce(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let op = i.modifiers.iter().find_map(|m| atomic_op(m));
        let ty = i.modifiers.iter().find_map(|m| atomic_type(m));
        let (Some(op), Some(ty)) = (op, ty) else {
            return unsupported("");
        };
        let known = matches!(
            op,
            AtomicOp::Add
                | AtomicOp::Min
                | AtomicOp::Max
                | AtomicOp::And
                | AtomicOp::Or
                | AtomicOp::Xor
        );
        if !known || !matches!(ty, Type::U32 | Type::S32 | Type::B32) || i.modifiers.len() != 3 {
            return unsupported("");
        }
        let (d, s) = (
            self.destination(operand(i, 0)?)?,
            self.source(operand(i, 1)?, None)?,
        );
        let mask = self.member_mask(i, 2)?;
        Ok(together(mask, Together::Reduce { op, ty, d, s }))
    }

    pub(super) fn elect(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let [d, p] = self.two_destinations(operand(i, 0)?)?;
        let mask = self.member_mask(i, 1)?;
        Ok(together(mask, Together::Elect { d, p }))
    }
}
