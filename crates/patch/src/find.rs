//! Finds the places in the middle of a function where programs can be attached, in text order. What
//! they do is said by the tables of `warpbpf_ptx`; here stands only what makes a place of it.

use std::collections::BTreeSet;

use warpbpf_abi::access::Space;
use warpbpf_abi::attach::Site;
use warpbpf_ptx::access::{Access, access_typed};
use warpbpf_ptx::ast::{Instruction, Module, Operand, StatementKind};
use warpbpf_ptx::lines::{Lines, Place as Line, Sources};
use warpbpf_ptx::sync::{BarrierSite, barrier};

use crate::body::Body;
use crate::gaps::Gaps;
use crate::registers::Registers;
use crate::site::falls_off;

/// Where a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anchor {
    /// The start of the function.
    Start,
    /// This statement, an instruction.
    At(usize),
    /// The end of the function, which control reaches.
    End,
}

/// What a place is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fact {
    Mem(Access),
    Barrier(BarrierSite),
    Func,
    FuncRet,
    Insn,
    Line,
    /// `indexed`: `brx.idx`, which has no predicate that could be handed on.
    Branch {
        indexed: bool,
    },
}

/// A place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) anchor: Anchor,
    pub(crate) fact: Fact,
}

impl Place {
    pub(crate) fn site(&self) -> Site {
        match self.fact {
            Fact::Mem(_) => Site::Mem,
            Fact::Barrier(_) => Site::Barrier,
            Fact::Func => Site::Func,
            Fact::FuncRet => Site::FuncRet,
            Fact::Insn => Site::Insn,
            Fact::Line => Site::Line,
            Fact::Branch { .. } => Site::Branch,
        }
    }
}

/// Lines of the text at offsets that are asked for in order.
#[derive(Clone, Copy)]
pub(crate) struct TextLines<'t> {
    text: &'t str,
    offset: usize,
    line: usize,
}

impl<'t> TextLines<'t> {
    pub(crate) fn from(module: &Module<'t>, offset: usize) -> TextLines<'t> {
        TextLines {
            text: module.text,
            offset,
            line: module.line_of(offset),
        }
    }

    /// The line, from 1, of an offset; one before the last that was asked for gets that one's.
    pub(crate) fn at(&mut self, offset: usize) -> usize {
        let passed = self.text.as_bytes().get(self.offset..offset);
        let passed = passed.unwrap_or_default().iter();
        self.line += passed.filter(|byte| **byte == b'\n').count();
        self.offset = self.offset.max(offset);
        self.line
    }
}

/// A function that was read, and what the places in it depend on.
pub(crate) struct Scene<'b, 'm, 'a> {
    pub(crate) body: &'b Body<'m, 'a>,
    pub(crate) registers: Registers<'a>,
    pub(crate) gaps: Gaps<'a>,
    pub(crate) lines: Lines<'b>,
    /// Names of the variables that the function declares.
    pub(crate) variables: BTreeSet<&'a str>,
}

impl<'b, 'm, 'a> Scene<'b, 'm, 'a> {
    pub(crate) fn of(body: &'b Body<'m, 'a>, sources: &'b Sources<'a>) -> Scene<'b, 'm, 'a> {
        Scene {
            body,
            registers: Registers::of(body.function, &body.statements),
            gaps: Gaps::of(body),
            lines: Lines::new(sources, &body.statements),
            variables: variables(body),
        }
    }

    pub(crate) fn instruction(&self, anchor: Anchor) -> Option<&'b Instruction<'a>> {
        let Anchor::At(index) = anchor else {
            return None;
        };
        match &self.body.statements.get(index)?.kind {
            StatementKind::Instruction(instruction) => Some(instruction),
            _ => None,
        }
    }

    /// The line that a place is counted to: the outermost one of inlined code.
    pub(crate) fn line(&self, anchor: Anchor) -> Option<Line<'b>> {
        let statement = match anchor {
            Anchor::At(index) => index,
            Anchor::Start => self.body.instructions().next()?.0,
            Anchor::End => self.body.statements.len().checked_sub(1)?,
        };
        self.lines
            .outermost(statement)
            .filter(|place| place.line != 0)
    }

    /// The place among those that an instruction was inlined through which is line `at`.
    pub(crate) fn line_at(&self, anchor: Anchor, at: &(String, u32)) -> Option<Line<'b>> {
        let statement = match anchor {
            Anchor::At(index) => index,
            Anchor::Start | Anchor::End => return self.line(anchor).filter(|p| is_at(p, at)),
        };
        self.lines.chain(statement).find(|place| is_at(place, at))
    }

    /// The first instruction of each run of instructions of line `at`, or of any line: where the
    /// line of the instruction before it in the text is another one, or where control cannot come
    /// from there.
    pub(crate) fn runs(&self, at: Option<&(String, u32)>) -> Vec<usize> {
        let mut runs = Vec::new();
        let mut last = None;
        for (index, statement) in self.body.statements.iter().enumerate() {
            let StatementKind::Instruction(i) = &statement.kind else {
                continue;
            };
            let here = match at {
                Some(at) => self.line_at(Anchor::At(index), at),
                None => self.line(Anchor::At(index)),
            };
            let key = here.map(|place| (place.file, place.line));
            if key.is_some() && key != last {
                runs.push(index);
            }
            last = key.filter(|_| i.guard.is_some() || !is_last(i));
        }
        runs
    }

    /// The places of the kinds `wants`, by position; at one instruction in the order in which their
    /// code stands before it. `runs` has the instructions where a line begins.
    pub(crate) fn places(&self, wants: &BTreeSet<Site>, runs: &BTreeSet<usize>) -> Vec<Place> {
        let wants = |site: Site| wants.contains(&site);
        let mut places = Vec::new();
        let mut add = |anchor, fact| places.push(Place { anchor, fact });
        if wants(Site::Func) && !self.body.function.is_entry {
            add(Anchor::Start, Fact::Func);
        }
        for (index, i) in self.body.instructions() {
            let anchor = Anchor::At(index);
            if wants(Site::Line) && runs.contains(&index) {
                add(anchor, Fact::Line);
            }
            if wants(Site::Insn) {
                add(anchor, Fact::Insn);
            }
            if wants(Site::Branch) && (i.opcode == "brx" || i.opcode == "bra" && i.guard.is_some())
            {
                add(
                    anchor,
                    Fact::Branch {
                        indexed: i.opcode == "brx",
                    },
                );
            }
            if wants(Site::Barrier)
                && let Some(site) = barrier(i)
            {
                add(anchor, Fact::Barrier(site));
            }
            if wants(Site::Mem)
                && let Some(access) = self.access(index, i)
            {
                add(anchor, Fact::Mem(access));
            }
            if wants(Site::FuncRet) && i.opcode == "ret" && !self.body.function.is_entry {
                add(anchor, Fact::FuncRet);
            }
        }
        if wants(Site::FuncRet) && !self.body.function.is_entry && falls_off(self.body) {
            add(Anchor::End, Fact::FuncRet);
        }
        places
    }

    fn access(&self, index: usize, i: &Instruction<'a>) -> Option<Access> {
        let ty = |name: &'a str| self.registers.ty(index, name);
        let access = access_typed(i, &ty)?;
        if access.space != Space::Param {
            return Some(access);
        }
        // What a function and its callers hand to each other is no memory of the application.
        let function = self.body.function;
        let kernels = match i.operands.get(access.address) {
            Some(Operand::Address {
                base: Some(name), ..
            }) => {
                function.params.iter().any(|p| p.name == *name)
                    || self.registers.ty(index, name).is_some()
            }
            _ => true,
        };
        (function.is_entry && kernels && i.opcode == "ld").then_some(access)
    }
}

fn variables<'a>(body: &Body<'_, 'a>) -> BTreeSet<&'a str> {
    let variables = body.statements.iter().filter_map(|s| match &s.kind {
        StatementKind::Variable(variable) => Some(variable.name),
        _ => None,
    });
    variables.collect()
}

fn is_at(place: &Line<'_>, (file, line): &(String, u32)) -> bool {
    let behind = place.file.strip_suffix(file.as_str());
    place.line == *line && behind.is_some_and(|head| head.is_empty() || head.ends_with('/'))
}

/// Control does not pass behind it, or where it does the instruction did nothing.
pub(crate) fn is_last(i: &Instruction<'_>) -> bool {
    matches!(i.opcode, "ret" | "exit" | "bra" | "brx" | "trap")
}
