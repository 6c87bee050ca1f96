//! `cp.async.bulk…`, `cp.reduce.async.bulk…` and the mbarrier and coordinates they take.

use warpbpf_ptx::ast::{Instruction, Operand};

use super::decoder::{Decoded, FunctionDecoder, invalid, unsupported};
use super::memory::{atomic_op, atomic_type, space_of};
use super::operand::operand;
use crate::op::Op;
use crate::op::bulk::{Bulk, Direction, Place, RangeCopy, Reduction, TensorCopy};
use crate::op::operand::{Address, AtomicOp, NOWHERE, Row, Space, Type};

/// What the modifiers of a bulk copy say.
#[derive(Default)]
struct Said {
    /// Destination and source.
    spaces: Vec<Space>,
    barrier: bool,
    multicast: bool,
    op: Option<AtomicOp>,
    ty: Option<Type>,
    im2col: bool,
}

impl Said {
    fn read(modifiers: &[&str]) -> Decoded<Said> {
        let mut said = Said::default();
        for &modifier in modifiers {
            match modifier {
                "global" | "shared::cta" | "shared::cluster" => {
                    said.spaces.push(space_of(&[modifier])?);
                }
                "mbarrier::complete_tx::bytes" => said.barrier = true,
                "multicast::cluster" => said.multicast = true,
                "im2col" | "im2col_no_offs" => said.im2col = true,
                // A cache policy changes nothing here, nor does the name of the only other way to
                // wait.
                "bulk_group" | "L2::cache_hint" | "tile" | "noftz" => {}
                _ => match (atomic_op(modifier), atomic_type(modifier)) {
                    (Some(op), _) => said.op = Some(op),
                    (None, Some(ty)) => said.ty = Some(ty),
                    (None, None) => return unsupported(format!("modifier `.{modifier}`")),
                },
            }
        }
        Ok(said)
    }
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn bulk(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let (reduces, rest) = match &i.modifiers[..] {
            ["reduce", "async", "bulk", rest @ ..] => (true, rest),
            ["async", "bulk", rest @ ..] => (false, rest),
            _ => return unsupported(""),
        };
        match rest {
            ["commit_group" | "wait_group", ..] => Ok(Op::Nothing),
            ["prefetch", ..] => {
                // The address must still be one that exists.
                self.bracketed(operand(i, 0)?, Space::Global)?;
                Ok(Op::Nothing)
            }
            ["tensor", dimensions, rest @ ..] => {
                let said = Said::read(rest)?;
                self.tensor(i, dimensions, &said, reduces)
            }
            rest => {
                let said = Said::read(rest)?;
                self.range(i, &said, reduces)
            }
        }
    }

    fn range(&mut self, i: &Instruction<'a>, said: &Said, reduces: bool) -> Decoded<Op> {
        let [to_space, from_space] = said.spaces[..] else {
            return invalid("it takes the spaces of its destination and its source");
        };
        let reduce = match (reduces, said.op, said.ty) {
            (false, None, None) => None,
            (true, Some(op), Some(ty)) => Some(Reduction {
                op,
                ty,
                flush: false,
            }),
            _ => return unsupported("operation or type"),
        };
        let to = self.address(operand(i, 0)?, to_space)?;
        let from = self.address(operand(i, 1)?, from_space)?;
        let bytes = self.source(operand(i, 2)?, None)?;
        let mut next = 3;
        let barrier = self.barrier_operand(i, said, to_space, &mut next)?;
        let multicast = self.mask_operand(i, said, &mut next)?;
        let copy = RangeCopy {
            to,
            from,
            bytes,
            barrier,
            multicast,
            reduce,
        };
        Ok(Op::Bulk(Box::new(Bulk::Range(copy))))
    }

    fn tensor(
        &mut self,
        i: &Instruction<'a>,
        dimensions: &str,
        said: &Said,
        reduces: bool,
    ) -> Decoded<Op> {
        let [to_space, from_space] = said.spaces[..] else {
            return invalid("it takes the spaces of its destination and its source");
        };
        let direction = match (to_space, reduces, said.op) {
            (Space::Global, false, None) => Direction::Store,
            (Space::Global, true, Some(op)) => Direction::Reduce(op),
            (Space::Shared | Space::SharedCluster, false, None) if from_space == Space::Global => {
                Direction::Load
            }
            _ => return unsupported("direction or operation"),
        };
        let (shared_at, map_at, shared_space) = match direction {
            Direction::Load => (0, 1, to_space),
            Direction::Store | Direction::Reduce(_) => (1, 0, from_space),
        };
        let shared = self.address(operand(i, shared_at)?, shared_space)?;
        let (map, parts) = self.bracketed(operand(i, map_at)?, Space::Generic)?;
        let [coordinates] = parts else {
            return invalid("the coordinates are missing");
        };
        let coordinates = self.rows(coordinates, None, false)?;
        if dimensions.strip_suffix('d').and_then(|n| n.parse().ok()) != Some(coordinates.len()) {
            let count = coordinates.len();
            return invalid(format!("{count} coordinates for `.{dimensions}`"));
        }
        let mut next = 2;
        let barrier = self.barrier_operand(i, said, shared_space, &mut next)?;
        let mut offsets = Box::default();
        if said.im2col && direction == Direction::Load {
            offsets = self.rows(operand(i, next)?, None, false)?;
            next += 1;
        }
        let multicast = self.mask_operand(i, said, &mut next)?;
        let copy = TensorCopy {
            direction,
            map,
            coordinates,
            im2col: said.im2col,
            offsets,
            shared,
            barrier,
            multicast,
        };
        Ok(Op::Bulk(Box::new(Bulk::Tensor(copy))))
    }

    fn barrier_operand(
        &mut self,
        i: &Instruction<'a>,
        said: &Said,
        space: Space,
        next: &mut usize,
    ) -> Decoded<Option<Place>> {
        if !said.barrier {
            return Ok(None);
        }
        *next += 1;
        self.address(operand(i, *next - 1)?, space).map(Some)
    }

    fn mask_operand(&mut self, i: &Instruction<'a>, said: &Said, next: &mut usize) -> Decoded<Row> {
        if !said.multicast {
            return Ok(NOWHERE);
        }
        *next += 1;
        self.source(operand(i, *next - 1)?, None)
    }

    /// `[base, more…]`: the address and what follows it.
    pub(super) fn bracketed<'o>(
        &mut self,
        operand: &'o Operand<'a>,
        space: Space,
    ) -> Decoded<((Space, Address), &'o [Operand<'a>])> {
        match operand {
            Operand::Address { base, offset, rest } => {
                let alone = Operand::Address {
                    base: *base,
                    offset: *offset,
                    rest: Vec::new(),
                };
                Ok((self.address(&alone, space)?, rest))
            }
            other => unsupported(format!("address {other:?}")),
        }
    }
}
