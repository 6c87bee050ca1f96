//! Opcodes to ops. Whatever is not named here goes to `ptx::eval`, and what that does not know is
//! unsupported.

use warpbpf_ptx::ast::{Instruction, Operand, Param};
use warpbpf_ptx::eval::{self, Ty};

use super::decoder::{Decoded, Fixup, FunctionDecoder, invalid, unsupported};
use super::names::rows_of;
use super::scope::Sym;
use crate::decode::operand::operand;
use crate::op::operand::{NOWHERE, Row, Space};
use crate::op::{Alu, Builtin, Call, Callee, Op, Place};

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn instruction(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        match i.opcode {
            "mov" => self.mov(i),
            "bra" => self.branch(i),
            "brx" => self.branch_index(i),
            "call" => self.call(i),
            "ret" => Ok(Op::Return),
            "exit" => Ok(Op::Exit),
            "trap" => Ok(Op::Trap),
            "brkpt" => Ok(Op::Breakpoint),
            "ld" | "ldu" => self.load(i),
            "st" => self.store(i),
            "atom" | "red" => self.atomic(i),
            "cvta" => self.cvta(i),
            "isspacep" => self.is_space(i),
            "mapa" => self.mapa(i),
            "getctarank" => self.get_rank(i),
            "cp" if super::instruction::is_bulk(i) => self.bulk(i),
            "cp" => self.copy(i),
            "mbarrier" => self.mbarrier(i),
            "bar" | "barrier" => self.barrier(i),
            "shfl" => self.shuffle(i),
            "vote" => self.vote(i),
            "match" => self.matching(i),
            "redux" => self.reduce(i),
            "elect" => self.elect(i),
            "ldmatrix" => self.tiles(i, true),
            "stmatrix" => self.tiles(i, false),
            "movmatrix" => self.move_matrix(i),
            "mma" => self.mma(i),
            "wmma" => self.wmma(i),
            "wgmma" => self.wgmma(i),
            "tex" => self.texture(i),
            "tld4" => self.gather(i),
            "suld" => self.surface_load(i),
            "sust" => self.surface_store(i),
            "txq" | "suq" => self.image_query(i),
            "activemask" => Ok(Op::ActiveMask {
                d: self.destination(operand(i, 0)?)?,
            }),
            "alloca" => {
                let d = self.destination(operand(i, 0)?)?;
                let size = self.source(operand(i, 1)?, None)?;
                let align = match i.operands.get(2) {
                    None => 8,
                    Some(&Operand::Int(align)) if align.count_ones() == 1 => {
                        u32::try_from(align).unwrap_or(u32::MAX)
                    }
                    Some(_) => return invalid("the alignment is not a power of two"),
                };
                Ok(Op::Allocate { d, size, align })
            }
            "stacksave" => Ok(Op::SaveStack {
                d: self.destination(operand(i, 0)?)?,
            }),
            "stackrestore" => Ok(Op::RestoreStack {
                s: self.source(operand(i, 0)?, None)?,
            }),
            "nanosleep" => {
                // The operand must still be a register that exists.
                self.source(operand(i, 0)?, None)?;
                Ok(Op::Sleep)
            }
            "membar" | "fence" => Ok(Op::Fence),
            // Hints: nothing here is cached, and registers cost nothing.
            // A policy is a hint too; its value is never looked at.
            "createpolicy" => {
                let s = self.b.constant(0);
                Ok(Op::Mov {
                    d: self.destination(operand(i, 0)?)?,
                    s,
                })
            }
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "setmaxnreg"
            | "griddepcontrol" | "pmevent" => Ok(Op::Nothing),
            _ => match self.video(i) {
                Some(decoded) => decoded,
                None => self.alu(i),
            },
        }
    }

    fn alu(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let Some(op) = eval::Op::decode(i.opcode, &i.modifiers) else {
            return unsupported("");
        };
        let Some((first, sources)) = i.operands.split_first() else {
            return invalid("operands are missing");
        };
        let Some(op) = op
            .for_sources(sources.len())
            .or_else(|| (op.sources() >= sources.len()).then_some(op))
        else {
            return invalid(format!("{} source operands are too many", sources.len()));
        };
        let ty = i.modifiers.iter().rev().find_map(|m| Ty::parse(m));
        let mut s = [NOWHERE; eval::SOURCES];
        for (slot, source) in s.iter_mut().zip(sources) {
            *slot = self.source(source, ty)?;
        }
        let mut d = self.two_destinations(first)?;
        if op.reads_carry() {
            s[op.sources() - 1] = self.carry_row();
        }
        if op.writes_carry() {
            d[1] = self.carry_row();
        }
        Ok(Op::Alu(Box::new(Alu { op, d, s })))
    }

    /// `CC.CF`, a register like any other here.
    fn carry_row(&mut self) -> Row {
        match self.carry {
            Some(row) => row,
            None => {
                let row = self.new_row(1);
                self.carry = Some(row);
                row
            }
        }
    }

    fn branch(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let Operand::Name(name) = *operand(i, 0)? else {
            return invalid("the target is not a label");
        };
        self.fixups.push(Fixup::Label {
            inst: self.code.len(),
            name,
            scope: self.scope(),
        });
        Ok(Op::Branch { target: 0 })
    }

    fn branch_index(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let index = self.source(operand(i, 0)?, None)?;
        let Operand::Name(name) = *operand(i, 1)? else {
            return invalid("the targets are not a label");
        };
        self.fixups.push(Fixup::Table {
            inst: self.code.len(),
            name,
            scope: self.scope(),
        });
        Ok(Op::BranchIndex {
            index,
            targets: Box::default(),
        })
    }

    fn call(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let mut operands = i.operands.iter().peekable();
        let results = match operands.next_if(|o| matches!(o, Operand::List(_))) {
            Some(Operand::List(list)) => self.places(list, true)?,
            _ => Vec::new(),
        };
        let target = operands.next();
        let arguments = match operands.next_if(|o| matches!(o, Operand::List(_))) {
            Some(Operand::List(list)) => self.places(list, false)?,
            _ => Vec::new(),
        };
        let Some(Operand::Name(name)) = target else {
            return invalid("the callee is missing");
        };
        let callee = match self.lookup(name) {
            Some(Sym::Register { row, .. }) => Callee::Indirect(row),
            Some(Sym::Function(index)) => match (self.b.reach(index), Builtin::named(name)) {
                (Some(number), _) => Callee::Direct(number),
                (None, Some(builtin)) => Callee::Builtin(builtin),
                (None, None) => {
                    return unsupported(format!("function `{name}` has no body in this module"));
                }
            },
            _ => return invalid(format!("`{name}` is not a function")),
        };
        let (arguments, results) = match callee {
            Callee::Direct(number) => {
                let index = self.b.order[number as usize] as usize;
                let function = &self.b.module.functions[index];
                let (wants, gives) = (function.params.len(), arguments.len());
                if wants != gives || function.returns.len() < results.len() {
                    return invalid(format!(
                        "`{name}` takes {wants} arguments, {gives} are given"
                    ));
                }
                let (mut shaped, mut taken) = (Vec::new(), Vec::new());
                for (argument, param) in arguments.into_iter().zip(&function.params) {
                    shaped.extend(self.shaped(name, argument, param)?);
                }
                for (result, param) in results.into_iter().zip(&function.returns) {
                    taken.push(self.taken(name, result, param)?);
                }
                let (results, left): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
                let left: Vec<_> = left.into_iter().flatten().collect();
                let (arguments, results) = (shaped.into(), results.concat().into());
                if !left.is_empty() {
                    // What has another shape in the function is taken apart behind the call.
                    self.emit_guarded(Op::Call(Box::new(Call {
                        callee,
                        arguments,
                        results,
                    })));
                    let (mut d, mut s) = (Vec::new(), Vec::new());
                    for Reshaped { to, from, width } in left {
                        s.extend(self.reshape(&from, width, to.len())?);
                        d.extend(to);
                    }
                    return Ok(self.move_all(&d, &s));
                }
                (arguments, results)
            }
            Callee::Builtin(_) | Callee::Indirect(_) => {
                let flat = |list: Vec<Argument>| list.into_iter().flat_map(|a| a.places).collect();
                (flat(arguments), flat(results))
            }
        };
        Ok(Op::Call(Box::new(Call {
            callee,
            arguments,
            results,
        })))
    }

    /// The places of an argument as a parameter has them: a vector may be passed for a register of
    /// as many bits.
    fn shaped(&mut self, name: &str, given: Argument, param: &Param<'_>) -> Decoded<Vec<Place>> {
        match (given.bits, shape_of(param)) {
            (Some(width), Some((rows, bits)))
                if param.is_reg || given.places.len() != rows as usize =>
            {
                if width != rows * bits {
                    return invalid(format!(
                        "`{name}` takes {} bits in `{}`, {width} are given",
                        rows * bits,
                        param.name
                    ));
                }
                let from = rows_in(&given.places);
                let rows = self.reshape(&from, width, rows as usize)?;
                Ok(rows.into_iter().map(Place::Row).collect())
            }
            _ => Ok(given.places),
        }
    }

    /// The same of a result: where the function's is put, and what is to be done with it.
    fn taken(
        &mut self,
        name: &str,
        wanted: Argument,
        param: &Param<'_>,
    ) -> Decoded<(Vec<Place>, Option<Reshaped>)> {
        match (wanted.bits, shape_of(param)) {
            (Some(width), Some((rows, bits)))
                if param.is_reg || wanted.places.len() != rows as usize =>
            {
                if width != rows * bits {
                    return invalid(format!(
                        "`{name}` gives {} bits in `{}`, {width} are taken",
                        rows * bits,
                        param.name
                    ));
                }
                if wanted.places.len() == rows as usize {
                    return Ok((wanted.places, None));
                }
                let from: Vec<Row> = (0..rows).map(|_| self.new_row(bits)).collect();
                let places = from.iter().map(|&row| Place::Row(row)).collect();
                let to = rows_in(&wanted.places);
                Ok((places, Some(Reshaped { to, from, width })))
            }
            _ => Ok((wanted.places, None)),
        }
    }

    /// Arguments or results: `.param` variables of the frame, registers, literals.
    fn places(&mut self, list: &[Operand<'a>], results: bool) -> Decoded<Vec<Argument>> {
        let mut places = Vec::new();
        for operand in list {
            places.push(self.place(operand, results)?);
        }
        Ok(places)
    }

    fn place(&mut self, operand: &Operand<'a>, result: bool) -> Decoded<Argument> {
        if let Some((row, count, bits)) = self.vector(operand) {
            return Ok(Argument {
                places: (row..row + count).map(Place::Row).collect(),
                bits: Some(count * bits),
            });
        }
        let bits = self.register_bits(operand);
        let place = match operand {
            Operand::Name("_") => Place::Row(self.new_row(64)),
            Operand::Name(name) => match self.lookup(name) {
                Some(Sym::Frame { offset, size }) => Place::Frame { offset, size },
                _ if result => Place::Row(self.destination(operand)?),
                _ => Place::Row(self.source(operand, None)?),
            },
            _ if result => Place::Row(self.destination(operand)?),
            _ => Place::Row(self.source(operand, None)?),
        };
        Ok(Argument {
            places: vec![place],
            bits,
        })
    }

    fn cvta(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let (d, from) = (operand(i, 0)?, operand(i, 1)?);
        let d = self.destination(d)?;
        let s = self.source(from, None)?;
        let mut space = super::memory::space_of(&i.modifiers)?;
        // Parameters of functions are in the frame.
        if space == Space::Param && !self.is_entry {
            space = Space::Local;
        }
        Ok(Op::Cvta {
            d,
            s,
            space,
            to: i.modifiers.contains(&"to"),
        })
    }

    fn is_space(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let (d, s) = (
            self.destination(operand(i, 0)?)?,
            self.source(operand(i, 1)?, None)?,
        );
        Ok(Op::IsSpace {
            d,
            s,
            space: super::memory::space_of(&i.modifiers)?,
        })
    }

    fn mapa(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let d = self.destination(operand(i, 0)?)?;
        let (s, rank) = (
            self.source(operand(i, 1)?, None)?,
            self.source(operand(i, 2)?, None)?,
        );
        let generic = super::memory::space_of(&i.modifiers)? == Space::Generic;
        Ok(Op::MapRank {
            d,
            s,
            rank,
            generic,
        })
    }

    fn get_rank(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let (d, s) = (
            self.destination(operand(i, 0)?)?,
            self.source(operand(i, 1)?, None)?,
        );
        Ok(Op::GetRank {
            d,
            s,
            generic: super::memory::space_of(&i.modifiers)? == Space::Generic,
        })
    }
}

/// An argument or a result of a call.
struct Argument {
    places: Vec<Place>,
    /// Of a register, or of all of a vector.
    bits: Option<u32>,
}

/// A result that has another shape in the function.
struct Reshaped {
    to: Vec<Row>,
    from: Vec<Row>,
    width: u32,
}

/// Rows of a parameter and their bits; `None` for bytes of the frame, which are as many as the
/// argument has.
fn shape_of(param: &Param<'_>) -> Option<(u32, u32)> {
    if param.is_reg {
        return Some(rows_of(param.ty));
    }
    let bits = param.size()?.checked_mul(8)?;
    let is_value = param.array.is_none() && bits <= 64;
    is_value.then_some((1, bits as u32))
}

fn rows_in(places: &[Place]) -> Vec<Row> {
    let rows = places.iter().filter_map(|place| match place {
        Place::Row(row) => Some(*row),
        Place::Frame { .. } => None,
    });
    rows.collect()
}

/// Whether a `cp` is one of these.
pub(super) fn is_bulk(i: &Instruction<'_>) -> bool {
    matches!(
        &i.modifiers[..],
        ["async", "bulk", ..] | ["reduce", "async", "bulk", ..]
    )
}
