//! Opcodes to ops. Whatever is not named here goes to `ptx::eval`, and what that does not know is unsupported.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::eval::{self, Ty};

use super::names::{Sym, special};
use super::{Decoded, Fixup, FunctionDecoder, invalid, unsupported};
use crate::op::{Alu, Builtin, Call, Callee, NOWHERE, Op, Place, Row, Space};

/// Operand `i`, or what is wrong.
pub(super) fn operand<'i, 'a>(i: &'i Instruction<'a>, index: usize) -> Decoded<&'i Operand<'a>> {
    match i.operands.get(index) {
        Some(operand) => Ok(operand),
        None => invalid(format!("operand {} is missing", index + 1)),
    }
}

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
            "cp" if super::bulk::is_bulk(i) => self.bulk(i),
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

    fn mov(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let ty = i.modifiers.iter().rev().find_map(|m| Ty::parse(m));
        let width = i.modifiers.last().map_or(32, |m| super::bits_of(m));
        let (to, from) = (operand(i, 0)?, operand(i, 1)?);
        if let Operand::Vector(parts) = from {
            let bits = width / parts.len().max(1) as u32;
            if width > 64 {
                return self.wide_pack(to, parts, bits);
            }
            let parts = parts
                .iter()
                .map(|part| self.source(part, None))
                .collect::<Decoded<Vec<Row>>>()?;
            return Ok(Op::Pack {
                d: self.destination(to)?,
                parts: parts.into(),
                bits,
            });
        }
        if let Operand::Vector(parts) = to {
            let bits = width / parts.len().max(1) as u32;
            if width > 64 {
                return self.wide_unpack(parts, from, bits);
            }
            let s = self.source(from, ty)?;
            let parts = parts
                .iter()
                .map(|part| self.destination(part))
                .collect::<Decoded<Vec<Row>>>()?;
            return Ok(Op::Unpack {
                parts: parts.into(),
                s,
                bits,
            });
        }
        if width > 64 {
            let (d, s) = (self.rows(to, None, true)?, self.rows(from, None, false)?);
            if let ([low_d, high_d], [low, high]) = (&d[..], &s[..]) {
                self.emit(Op::Mov { d: *low_d, s: *low });
                return Ok(Op::Mov {
                    d: *high_d,
                    s: *high,
                });
            }
            return unsupported("128-bit operand");
        }
        if let Operand::Name(name) = from
            && let Some(which) = special(name)
        {
            return Ok(Op::Special {
                d: self.destination(to)?,
                which,
            });
        }
        let s = self.source(from, ty)?;
        Ok(Op::Mov {
            d: self.destination(to)?,
            s,
        })
    }

    fn wide_pack(&mut self, to: &Operand<'a>, parts: &[Operand<'a>], bits: u32) -> Decoded<Op> {
        let d = self.rows(to, None, true)?;
        let parts = parts
            .iter()
            .map(|part| self.source(part, None))
            .collect::<Decoded<Vec<Row>>>()?;
        let ([low, high], true) = (&d[..], bits >= 32) else {
            return unsupported("128-bit pack of small parts");
        };
        let (first, second) = parts.split_at(parts.len() / 2);
        self.emit(Op::Pack {
            d: *low,
            parts: first.into(),
            bits,
        });
        Ok(Op::Pack {
            d: *high,
            parts: second.into(),
            bits,
        })
    }

    fn wide_unpack(&mut self, parts: &[Operand<'a>], from: &Operand<'a>, bits: u32) -> Decoded<Op> {
        let s = self.rows(from, None, false)?;
        let parts = parts
            .iter()
            .map(|part| self.destination(part))
            .collect::<Decoded<Vec<Row>>>()?;
        let ([low, high], true) = (&s[..], bits >= 32) else {
            return unsupported("128-bit unpack of small parts");
        };
        let (first, second) = parts.split_at(parts.len() / 2);
        self.emit(Op::Unpack {
            parts: first.into(),
            s: *low,
            bits,
        });
        Ok(Op::Unpack {
            parts: second.into(),
            s: *high,
            bits,
        })
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
            _ => Box::default(),
        };
        let target = operands.next();
        let arguments = match operands.next_if(|o| matches!(o, Operand::List(_))) {
            Some(Operand::List(list)) => self.places(list, false)?,
            _ => Box::default(),
        };
        let Some(Operand::Name(name)) = target else {
            return invalid("the callee is missing");
        };
        let callee = match self.lookup(name) {
            Some(Sym::Register { row, .. }) => Callee::Indirect(row),
            Some(Sym::Function(index)) => match (self.b.reach(index), *name) {
                (Some(number), _) => Callee::Direct(number),
                (None, "vprintf") => Callee::Builtin(Builtin::Vprintf),
                (None, "malloc") => Callee::Builtin(Builtin::Malloc),
                (None, "free") => Callee::Builtin(Builtin::Free),
                (None, "__assertfail") => Callee::Builtin(Builtin::AssertFail),
                (None, _) => {
                    return unsupported(format!("function `{name}` has no body in this module"));
                }
            },
            _ => return invalid(format!("`{name}` is not a function")),
        };
        if let Callee::Direct(number) = callee {
            let index = self.b.order[number as usize] as usize;
            let function = &self.b.module.functions[index];
            if function.params.len() != arguments.len() || function.returns.len() < results.len() {
                let (wants, gives) = (function.params.len(), arguments.len());
                return invalid(format!(
                    "`{name}` takes {wants} arguments, {gives} are given"
                ));
            }
        }
        Ok(Op::Call(Box::new(Call {
            callee,
            arguments,
            results,
        })))
    }

    /// Arguments or results: `.param` variables of the frame, registers, literals.
    fn places(&mut self, list: &[Operand<'a>], results: bool) -> Decoded<Box<[Place]>> {
        let mut places = Vec::new();
        for operand in list {
            if let Operand::Name(name) = operand {
                match self.lookup(name) {
                    Some(Sym::Frame { offset, size }) => {
                        places.push(Place::Frame { offset, size });
                        continue;
                    }
                    None if *name == "_" => {
                        let row = self.new_row(64);
                        places.push(Place::Row(row));
                        continue;
                    }
                    _ => {}
                }
            }
            let row = if results {
                self.destination(operand)?
            } else {
                self.source(operand, None)?
            };
            places.push(Place::Row(row));
        }
        Ok(places.into())
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
