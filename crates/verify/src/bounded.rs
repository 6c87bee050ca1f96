//! Loops that nothing bounds, bounded when they run: the program gets a `may_goto` at their heads,
//! and is proved with it.
//!
//! What is rewritten is an eBPF program like any other, so whatever runs programs runs it, and the
//! proof is of what runs: it says how many rounds fit into the budget. Where they are used up, the
//! program adds one to a counter, which the host reads, and returns 0: what it would have computed
//! with fewer rounds, nobody sees.

use std::collections::BTreeSet;
use std::ops::Range;

use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Code, Imm64, Insn, Pc, Reg, Source, Width};
use warpbpf_flow::{Cfg, DomTree, Loop, Loops};
use warpbpf_object::{LineInfo, Program};

use crate::broken::Broken;
use crate::liveness::successors;
use crate::report::Rejection;
use crate::rule::Rule;
use crate::verified::Verified;
use crate::{subject, wait};

/// A program that was proved with bounds of its loops.
#[derive(Debug, Clone)]
pub struct Bounded {
    /// The proof.
    pub verified: Verified<Program>,
    /// The heads of the loops that got a bound, as instructions of what was proved; none if all end
    /// by themselves.
    pub heads: Vec<Pc>,
}

/// Proves a program by `prove`, giving loops a bound until it succeeds: those that have none or a
/// later one than the budget. Each time that rounds are used up is counted in the first 8 bytes of
/// array `counter`, which `prove` must know as a map with values of 8 bytes.
///
/// Only loops of the entry function get a bound, because only from there the program can return.
///
/// # Errors
/// The rule that the program breaks with such bounds; numbers of instructions count the checks.
pub fn prove_bounded(
    program: &Program,
    counter: u32,
    mut prove: impl FnMut(Program) -> Result<Verified<Program>, Box<Rejection>>,
) -> Result<Bounded, Box<Rejection>> {
    let mut refused = match prove(program.clone()) {
        Ok(verified) => {
            return Ok(Bounded {
                verified,
                heads: Vec::new(),
            });
        }
        Err(rejection) => rejection,
    };
    if !refused.rule.is_about_a_loop() {
        return Err(refused);
    }
    let mut bounds = Bounds::new(program, counter);
    // What is no loop's fault may still be told only because states were joined to come to the end
    // of another.
    let mut at_fault = None;
    let mut verified = loop {
        if !bounds.add(&refused) {
            return Err(at_fault.unwrap_or(refused));
        }
        if let Some(broken) = bounds.obstacle() {
            return Err(Box::new(Rejection::new(program, broken)));
        }
        match prove(bounds.program()) {
            Ok(verified) => break verified,
            Err(rejection) => {
                if !rejection.rule.is_about_a_loop() && at_fault.is_none() {
                    at_fault = Some(rejection.clone());
                }
                refused = rejection;
            }
        }
    };
    // An outer loop was given one first, and may do without if the inner one was what ran on.
    if bounds.heads.len() > 1 {
        for head in bounds.heads.clone() {
            bounds.heads.remove(&head);
            match prove(bounds.program()) {
                Ok(without) => verified = without,
                Err(_) => {
                    bounds.heads.insert(head);
                }
            }
        }
    }
    let heads = bounds.heads.iter().map(|head| bounds.moved_to(*head));
    Ok(Bounded {
        verified,
        heads: heads.collect(),
    })
}

/// Which loops of a program get a bound.
struct Bounds<'p> {
    program: &'p Program,
    counter: u32,
    functions: Vec<Range<u32>>,
    /// One past the last instruction of the entry function.
    end: u32,
    /// Control can come there.
    falls_off: bool,
    loops: Loops,
    /// Their heads, as the program has them.
    heads: BTreeSet<Pc>,
}

impl<'p> Bounds<'p> {
    fn new(program: &'p Program, counter: u32) -> Bounds<'p> {
        let code = &program.code;
        let functions = subject::functions(code);
        let end = functions.first().map_or(0, |f| f.end);
        let inside = |pc: u32| {
            let to = successors(code, Pc(pc)).into_iter();
            to.filter(|to| to.0 < end)
                .map(move |to| (pc as usize, to.index()))
        };
        let cfg = Cfg::new(end as usize, 0, (0..end).flat_map(inside));
        let dom = DomTree::new(&cfg);
        let leaves = |pc: &u32| successors(code, Pc(*pc)).iter().any(|to| to.0 >= end);
        let last = end.checked_sub(1).filter(leaves);
        Bounds {
            program,
            counter,
            functions,
            end,
            falls_off: last.is_some_and(|last| dom.is_reachable(last as usize)),
            loops: Loops::new(&cfg, &dom),
            heads: BTreeSet::new(),
        }
    }

    /// Bounds one more loop, because of this rejection of what it was until now. False if there is
    /// none, or if no bound is to help against it.
    fn add(&mut self, rejection: &Rejection) -> bool {
        let next = match (&rejection.rule, self.moved_from(rejection.pc)) {
            (Rule::Spin { .. } | Rule::Lock { .. }, _) => None,
            // A loop may be named that has its bound: what is too much may be another.
            (rule, Some(pc)) if rule.is_about_a_loop() => self.around(pc).or_else(|| self.any()),
            (rule, None) if rule.is_about_a_loop() => self.calling(),
            _ => self.any(),
        };
        next.is_some_and(|head| self.heads.insert(head))
    }

    /// Why what has bounds is not served, though it may be proved.
    fn obstacle(&self) -> Option<Broken> {
        let broken = |rule, pc| Broken {
            rule,
            pc,
            path: Vec::new(),
            values: Vec::new(),
        };
        // What ends the program would stand there.
        if self.falls_off {
            return Some(broken(Rule::FallsOff, Pc(self.end - 1)));
        }
        // Both would count down the same rounds: one ends because of the other, and nobody counts
        // it.
        let own = (0..self.end).map(Pc).find(|pc| self.is_may_goto(*pc))?;
        Some(broken(
            Rule::Unsupported {
                what: "`can_loop` (`may_goto`) beside a loop that `--bound-loops` ends".to_owned(),
                advice: "write `can_loop` into the condition of each loop that has no bound of its own, or of none",
            },
            own,
        ))
    }

    fn is_may_goto(&self, pc: Pc) -> bool {
        matches!(self.program.code.at(pc), Insn::MayGoto { .. })
    }

    /// A loop may get a bound: it has none, neither ours nor its own, and does not wait for others,
    /// which no bound makes right.
    fn may_add(&self, found: &Loop) -> bool {
        let head = Pc(found.header as u32);
        let own = |pc: usize| {
            let innermost = self.loops.innermost(pc).map(|id| self.loops.get(id).header);
            innermost == Some(found.header) && self.is_may_goto(Pc(pc as u32))
        };
        !self.heads.contains(&head)
            && !found.blocks.iter().any(own)
            && wait::spin(&self.program.code, &self.functions, head).is_none()
    }

    /// The outermost loop around a place that has no bound yet.
    fn around(&self, pc: Pc) -> Option<Pc> {
        let mut outermost = None;
        let mut around = self.loops.innermost(pc.index());
        while let Some(id) = around {
            let found = self.loops.get(id);
            if self.may_add(found) {
                outermost = Some(Pc(found.header as u32));
            }
            around = found.parent;
        }
        outermost
    }

    /// A loop without a bound that calls functions: one of theirs was refused, perhaps only because
    /// it runs in each round.
    fn calling(&self) -> Option<Pc> {
        let calls = |pc: usize| {
            let insn = self.program.code.at(Pc(pc as u32));
            matches!(
                insn,
                Insn::Call {
                    callee: Callee::Local(_)
                }
            )
        };
        self.first(|found| found.blocks.iter().any(calls))
    }

    /// A loop without a bound, wherever it stands: the outer ones first.
    fn any(&self) -> Option<Pc> {
        self.first(|_| true)
    }

    fn first(&self, wanted: impl Fn(&Loop) -> bool) -> Option<Pc> {
        let all = self.loops.iter().map(|(_, found)| found);
        all.filter(|found| wanted(found) && self.may_add(found))
            .map(|found| (found.depth, Pc(found.header as u32)))
            .min()
            .map(|(_, head)| head)
    }

    /// Instructions that stand between the start and `pc` in the new program and not in the old
    /// one, `pc` not being a jump's target.
    fn shift(&self, pc: Pc) -> u32 {
        let checks = self.heads.range(..=pc).count() as u32;
        checks + if pc.0 >= self.end { STOP } else { 0 }
    }

    /// Where an instruction of the old program is.
    fn moved(&self, pc: Pc) -> Pc {
        Pc(pc.0 + self.shift(pc))
    }

    /// Where a jump goes that went to `pc`: to the check, if there is one.
    fn moved_to(&self, pc: Pc) -> Pc {
        Pc(self.moved(pc).0 - u32::from(self.heads.contains(&pc)))
    }

    /// Which instruction of the old program one of the new program is, or is the check of.
    fn moved_from(&self, pc: Pc) -> Option<Pc> {
        (0..self.end)
            .map(Pc)
            .find(|old| self.moved_to(*old) <= pc && pc <= self.moved(*old))
    }

    fn program(&self) -> Program {
        let old = self.program;
        let stop = Pc(self.end + self.heads.len() as u32);
        let mut insns = Vec::with_capacity(old.code.insns().len() + self.heads.len());
        for (pc, insn) in (0..).map(Pc).zip(old.code.insns()) {
            if pc.0 == self.end {
                insns.extend(self.stop());
            }
            if self.heads.contains(&pc) {
                insns.push(Insn::MayGoto { target: stop });
            }
            insns.push(insn.retargeted(|target| self.moved_to(target)));
        }
        if insns.len() == stop.index() {
            insns.extend(self.stop());
        }
        let mut new = old.clone();
        new.code = Code::new(insns);
        for function in &mut new.functions {
            function.start = self.moved_to(function.start);
            function.end = self.moved_to(function.end);
        }
        let mut lines: Vec<LineInfo> = (old.lines.iter())
            .map(|line| LineInfo {
                pc: self.moved_to(line.pc),
                ..line.clone()
            })
            .collect();
        // The stop is told as the line of a loop that it ends.
        if let Some(line) = self.heads.first().and_then(|head| old.line_of(*head)) {
            let at = lines.partition_point(|line| line.pc < stop);
            lines.insert(
                at,
                LineInfo {
                    pc: stop,
                    ..line.clone()
                },
            );
        }
        new.lines = lines;
        let unresolved = old.unresolved.iter();
        new.unresolved = unresolved
            .map(|(pc, text)| (self.moved(*pc), text.clone()))
            .collect();
        new
    }

    /// What runs when the rounds are used up.
    fn stop(&self) -> [Insn; STOP as usize] {
        let number = |dst, value| Insn::Alu {
            wide: true,
            op: AluOp::Mov,
            dst,
            src: Source::Imm(value),
        };
        [
            Insn::LoadImm64 {
                dst: Reg::R1,
                value: Imm64::MapValue {
                    map: self.counter,
                    offset: 0,
                },
            },
            number(Reg::R0, 1),
            Insn::Atomic {
                width: Width::W64,
                op: AtomicOp::Add { fetch: false },
                base: Reg::R1,
                off: 0,
                src: Reg::R0,
            },
            number(Reg::R0, 0),
            Insn::Exit,
        ]
    }
}

/// Instructions of [`Bounds::stop`].
const STOP: u32 = 5;
