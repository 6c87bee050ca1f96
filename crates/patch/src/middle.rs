//! Programs at places in the middle of a kernel and of the functions that it reaches: which place
//! gets which program, its number, and the edits that put the code there.
//!
//! The original instruction stays as it is and is executed once. Code before it runs under its
//! predicate by a branch around the code; code behind it stands with it in a `{ … }`, whose
//! registers hold what the instruction would overwrite. At a place of several kinds the code stands
//! in the order line, insn, branch, barrier, mem, funcret; for one place, programs run in the order
//! in which they are attached. In `warp` scope the leader of the lanes that arrive together runs a
//! program, with what was captured in its own lane; in `block` scope thread 0 of the block runs it
//! each time it passes the place. Where lanes may go through the code differently they meet behind
//! it, so that code of the application that relies on lanes which are together finds them so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpbpf_abi::access::Kind;
use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::names::GROUP_MASK;
use warpbpf_codegen::group_mask;
use warpbpf_ptx::Splices;
use warpbpf_ptx::ast::{Function, Guard, Module};

use crate::attachment::Attachment;
use crate::body::Symbols;
use crate::capture::{Block, Slots, Source};
use crate::closure::Closure;
use crate::error::PatchError;
use crate::find::{Anchor, Fact, Place, Scene, TextLines, is_last};
use crate::gate::Gates;
use crate::launch_args::LaunchArgs;
use crate::launch_bits::LaunchBits;
use crate::program::Programs;
use crate::scope::{HERE, not_first, not_leader, parts_lanes};
use crate::select::Select;
use crate::tensor::TensorLayout;
use crate::variant::SiteInfo;

/// What one kernel gets in its middle.
#[derive(Default)]
pub(crate) struct Middle {
    /// Edits of each function that gets any.
    edits: BTreeMap<String, Splices>,
    /// Code before instructions of the kernel that leave it or lead to those, by statement.
    leaving: BTreeMap<usize, String>,
    pub(crate) sites: Vec<SiteInfo>,
    pub(crate) left_out: Vec<(SiteInfo, String)>,
    /// By attachment.
    pub(crate) placed: Vec<u32>,
}

/// What all kernels of a module have in common.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'s, 'a> {
    pub(crate) programs: &'s Programs<'s>,
    /// The module's variables are read from slots.
    pub(crate) slots: Option<Slots<'s, 'a>>,
    /// Number of the first site.
    pub(crate) first_site: u32,
    /// Programs in the kernel's own body keep their sums in its registers.
    pub(crate) kept: bool,
    /// How tensor maps say the size of their boxes.
    pub(crate) tensors: Option<&'s TensorLayout>,
}

impl Middle {
    pub(crate) fn of<'a>(
        symbols: &Symbols<'_, 'a>,
        closure: &Closure<'_, 'a>,
        kernel: &str,
        attachments: &[Attachment<'_>],
        setting: Setting<'_, 'a>,
    ) -> Result<Middle, PatchError> {
        let is_at_end = |a: &Attachment<'_>| matches!(a.site, Site::Entry | Site::Exit);
        let mut middle = Middle {
            placed: attachments
                .iter()
                .map(|a| u32::from(is_at_end(a)))
                .collect(),
            ..Middle::default()
        };
        let attached: Vec<&Attachment<'_>> = attachments.iter().filter(|a| !is_at_end(a)).collect();
        if attached.is_empty() {
            return Ok(middle);
        }
        let mut bodies: Vec<_> = closure.bodies.values().collect();
        bodies.sort_by_key(|body| body.function.span.start);
        for body in bodies {
            let scene = Scene::of(body, symbols.sources());
            let mut splicer = Splicer {
                scene: &scene,
                all: attachments,
                kernel: closure.kernel(kernel)?.function,
                setting,
                text: symbols.module.text,
                rejoins: can_meet(symbols.module),
                lines: TextLines::from(symbols.module, body.function.span.start),
                edits: Splices::new(),
                middle: &mut middle,
            };
            splicer.function(&attached);
            let edits = splicer.edits;
            if !edits.is_empty() {
                middle.edits.insert(body.function.name.to_owned(), edits);
            }
        }
        Ok(middle)
    }

    /// The function gets code.
    pub(crate) fn has(&self, function: &str) -> bool {
        self.edits.contains_key(function)
    }

    /// Some way out of the kernel has code.
    pub(crate) fn is_at_exit(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The code before these statements of the kernel. It has its labels in scopes of its own, so
    /// it can be repeated.
    pub(crate) fn on_way(&self, way: &[usize]) -> String {
        way.iter()
            .filter_map(|at| self.leaving.get(at))
            .cloned()
            .collect()
    }

    /// Adds the edits of a function.
    pub(crate) fn splice(&self, function: &str, edits: &mut Splices) {
        if let Some(ours) = self.edits.get(function) {
            edits.append(ours.clone());
        }
    }
}

/// Puts code into one function.
struct Splicer<'s, 'b, 'm, 'a> {
    scene: &'s Scene<'b, 'm, 'a>,
    /// As they were given, those at the kernel's ends too.
    all: &'s [Attachment<'s>],
    kernel: &'s Function<'a>,
    setting: Setting<'s, 'a>,
    text: &'s str,
    /// Lanes can meet behind code that they may go through differently.
    rejoins: bool,
    lines: TextLines<'s>,
    edits: Splices,
    middle: &'s mut Middle,
}

/// A place with what goes there.
struct Chosen<'f> {
    number: u32,
    /// Source line.
    line: u32,
    place: Place,
    before: Vec<&'f Attachment<'f>>,
    after: Vec<&'f Attachment<'f>>,
}

impl<'b, 'a> Splicer<'_, 'b, '_, 'a> {
    fn function(&mut self, attached: &[&Attachment<'_>]) {
        let name = self.scene.body.function.name;
        let attached: Vec<&Attachment<'_>> = attached
            .iter()
            .copied()
            .filter(|a| a.select.allows_function(name))
            .collect();
        if !attached.is_empty() {
            self.indirect_calls();
        }
        let wants: BTreeSet<Site> = attached.iter().map(|a| a.site).collect();
        // Runs of a line, by the attachment that asks for it.
        let runs: Vec<BTreeSet<usize>> = attached
            .iter()
            .map(|a| match a.site {
                Site::Line => self.scene.runs(a.select.at.as_ref()).into_iter().collect(),
                _ => BTreeSet::new(),
            })
            .collect();
        let all_runs = runs.iter().flatten().copied().collect();
        let mut chosen: Vec<Chosen<'_>> = Vec::new();
        for place in self.scene.places(&wants, &all_runs) {
            let pairs = attached.iter().zip(&runs);
            let wanted: Vec<&Attachment<'_>> = pairs
                .filter(|(a, runs)| self.allows(&place, a, runs))
                .map(|(a, _)| *a)
                .collect();
            if !wanted.is_empty() {
                chosen.extend(self.choose(place, &wanted));
            }
        }
        let mut rest = &chosen[..];
        while let Some(first) = rest.first() {
            let anchor = first.place.anchor;
            let same = rest.iter().take_while(|c| c.place.anchor == anchor).count();
            let (here, others) = rest.split_at(same);
            self.splice(anchor, here);
            rest = others;
        }
    }

    /// Functions behind pointers are shared with kernels that nobody attached to, and stay as they
    /// are.
    fn indirect_calls(&mut self) {
        let mut lines = self.lines;
        for index in self.scene.body.indirect_calls.clone() {
            let place = Place {
                anchor: Anchor::At(index),
                fact: Fact::Insn,
            };
            let mut info = self.scene.info(&place, None);
            info.text_line = lines.at(self.scene.offset(place.anchor));
            self.middle.left_out.push((info, POINTER.to_owned()));
        }
    }

    fn allows(&self, place: &Place, attachment: &Attachment<'_>, runs: &BTreeSet<usize>) -> bool {
        let select: &Select = attachment.select;
        let fact = match &place.fact {
            Fact::Mem(access) => select.allows_access(access),
            Fact::Barrier(barrier) => select.allows_barrier(barrier.kind),
            Fact::Line => matches!(place.anchor, Anchor::At(index) if runs.contains(&index)),
            Fact::Func | Fact::FuncRet | Fact::Insn | Fact::Branch { .. } => true,
        };
        let op = self
            .scene
            .instruction(place.anchor)
            .map_or("", |instruction| instruction.name);
        fact && attachment.site == place.site()
            && select.allows_op(op)
            && select
                .at
                .as_ref()
                .is_none_or(|at| self.scene.line_at(place.anchor, at).is_some())
    }

    /// Numbers a place that programs want, or leaves it out.
    fn choose<'f>(&mut self, place: Place, wanted: &[&'f Attachment<'f>]) -> Option<Chosen<'f>> {
        let at = wanted.iter().find_map(|a| a.select.at.as_ref());
        let mut info = self.scene.info(&place, at);
        info.text_line = self.lines.at(self.scene.offset(place.anchor));
        let mut chosen = Chosen {
            number: self.setting.first_site + self.middle.sites.len() as u32,
            line: info.at.as_ref().map_or(0, |(_, line)| *line),
            place,
            before: Vec::new(),
            after: Vec::new(),
        };
        let mut reasons: Vec<&'static str> = Vec::new();
        for attachment in wanted {
            let when = attachment.select.when;
            let early = {
                let source = self.source(&chosen, when);
                let captures = &attachment.fragment.captures;
                captures.iter().any(|c| source.is_early(*c))
            };
            match (self.scene.against(&chosen.place, when, early), when) {
                (Some(reason), _) if reasons.contains(&reason) => {}
                (Some(reason), _) => reasons.push(reason),
                (None, When::Before) => chosen.before.push(*attachment),
                (None, When::After) => chosen.after.push(*attachment),
            }
        }
        for reason in reasons {
            let left_out = (info.clone(), reason.to_owned());
            self.middle.left_out.push(left_out);
        }
        if chosen.before.is_empty() && chosen.after.is_empty() {
            return None;
        }
        for attachment in chosen.before.iter().chain(&chosen.after) {
            // The same program may be attached twice, so what counts is which attachment it is.
            let index = self.all.iter().position(|a| std::ptr::eq(a, *attachment));
            if let Some(placed) = index.and_then(|at| self.middle.placed.get_mut(at)) {
                *placed += 1;
            }
        }
        info.number = chosen.number;
        self.middle.sites.push(info);
        Some(chosen)
    }

    fn source<'x>(&'x self, chosen: &'x Chosen<'_>, when: When) -> Source<'x, 'b, 'x, 'a> {
        let place = match chosen.place.anchor {
            Anchor::At(index) => Some((self.scene, &chosen.place, index)),
            Anchor::Start | Anchor::End => None,
        };
        Source {
            kernel: self.kernel,
            in_kernel: self.scene.body.function.is_entry,
            site: chosen.number,
            line: chosen.line,
            when,
            slots: self.setting.slots,
            tensors: self.setting.tensors,
            place,
        }
    }

    /// The code of the places at one anchor.
    fn splice(&mut self, anchor: Anchor, here: &[Chosen<'_>]) {
        let before = here.iter().filter(|c| !c.before.is_empty());
        let index = match anchor {
            Anchor::Start => {
                let start = self.scene.body.function.body.clone();
                for chosen in before {
                    let code = self.before(chosen);
                    self.edits.insert(
                        start.clone().unwrap_or_default().start,
                        format!("\n{}", code.trim_end_matches('\n')),
                    );
                }
                return;
            }
            Anchor::End => {
                let end = self.scene.body.function.body.clone();
                for chosen in before {
                    let code = self.before(chosen);
                    self.edits
                        .insert(end.clone().unwrap_or_default().end, format!("\n{code}"));
                }
                return;
            }
            Anchor::At(index) => index,
        };
        for chosen in before {
            let offset = match chosen.place.fact {
                Fact::Line => self.scene.gaps.call_of(index).unwrap_or(index),
                Fact::FuncRet => self.scene.returning(index),
                Fact::Mem(_) | Fact::Barrier(_) | Fact::Func | Fact::Insn | Fact::Branch { .. } => {
                    index
                }
            };
            let code = self.before(chosen);
            let last = self.scene.instruction(anchor);
            if self.scene.body.function.is_entry
                && last.is_some_and(|i| is_last(i) && i.guard.is_none())
            {
                self.middle
                    .leaving
                    .entry(index)
                    .or_default()
                    .push_str(&code);
            }
            let code = format!("{}\t", code.trim_start());
            self.edits.insert(self.scene.body.before(offset), code);
        }
        // The first one is the innermost, so that they run in order.
        let mut behind = String::new();
        let mut open = Vec::new();
        for chosen in here.iter().filter(|c| !c.after.is_empty()) {
            let (head, tail) = self.after(chosen);
            open.push(head);
            behind.push_str(&tail);
        }
        for head in open.into_iter().rev() {
            let code = format!("{}\t", head.trim_start());
            self.edits.insert(self.scene.body.before(index), code);
        }
        if !behind.is_empty() {
            let end = self.scene.body.statements[index].span.end;
            self.edits
                .insert(end, format!("\n{}", behind.trim_end_matches('\n')));
        }
    }

    /// The predicate under which the place's programs run.
    fn guard(&self, chosen: &Chosen<'_>) -> Option<Guard<'a>> {
        match chosen.place.fact {
            Fact::Mem(_) | Fact::Barrier(_) | Fact::Insn | Fact::FuncRet => {
                self.scene.instruction(chosen.place.anchor)?.guard
            }
            // Control passes a line, and a branch that is not taken.
            Fact::Line | Fact::Branch { .. } | Fact::Func => None,
        }
    }

    fn before(&self, chosen: &Chosen<'_>) -> String {
        let mut block = Block::default();
        let source = self.source(chosen, When::Before);
        let guard = self
            .guard(chosen)
            .map(|guard| (guard.register, guard.negated));
        let code = self.programs(
            &source,
            &chosen.before,
            guard,
            &chosen.number.to_string(),
            &mut block,
        );
        if !block.declares() && guard.is_none() {
            return code;
        }
        format!("\t{{\n{}{code}\t}}\n", block.declarations())
    }

    /// What stands before the instruction and what behind it.
    fn after(&self, chosen: &Chosen<'_>) -> (String, String) {
        let mut block = Block::default();
        let source = self.source(chosen, When::After);
        let mut saved = String::new();
        let instruction = self.scene.instruction(chosen.place.anchor);
        let guard = self.guard(chosen).map(|guard| {
            // An instruction may write its own predicate.
            let operands = instruction.map_or(&[][..], |i| &i.operand_spans);
            let mut operands = operands.iter().map(|span| &self.text[span.clone()]);
            if !operands.any(|text| text.contains(guard.register)) {
                return (guard.register, guard.negated);
            }
            block.register("pred", "%wbpf_g");
            saved = format!("\tmov.pred %wbpf_g, {};\n", guard.register);
            ("%wbpf_g", guard.negated)
        });
        let label = format!("{}_after", chosen.number);
        let code = self.programs(&source, &chosen.after, guard, &label, &mut block);
        let head = format!("\t{{\n{}{saved}{}", block.declarations(), block.early);
        (head, format!("{code}\t}}\n"))
    }

    /// Programs with their captures, under `guard`; `label` makes labels unique in the function.
    fn programs(
        &self,
        source: &Source<'_, 'b, '_, 'a>,
        attachments: &[&Attachment<'_>],
        guard: Option<(&str, bool)>,
        label: &str,
        block: &mut Block,
    ) -> String {
        let all = attachments.iter().flat_map(|a| &a.fragment.captures);
        let captures: BTreeSet<Capture> = all.copied().collect();
        let masked = attachments.iter().any(|a| needs_mask(a));
        let gates = Gates::of(attachments.iter().map(|a| a.gate));
        let chosen = LaunchBits::of(attachments.iter().map(|a| a.choice));
        source.write(&captures, block);
        let mut out = String::new();
        let skip = format!("wbpf_skip_{label}");
        if let Some((register, negated)) = guard {
            let not = if negated { "" } else { "!" };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "\t@{not}{register} bra {skip};");
        }
        // What it costs is not to be measured, where the time at a barrier is: then the group is
        // there before.
        let timed = captures.contains(&Capture::Waited);
        let mut gate = String::new();
        if !chosen.is_empty() {
            for (ty, name) in LaunchBits::registers() {
                block.register(ty, name);
            }
            gate = chosen.read(
                LaunchArgs::Parameter,
                chosen.leaves_all().then_some(skip.as_str()),
            );
        }
        if !gates.is_empty() {
            for (ty, name) in gates.registers() {
                block.register(ty, name);
            }
            let all = gates.closes_all().then_some(skip.as_str());
            gate += &gates.read(self.setting.programs.slots(), all, timed);
        }
        if !timed {
            out.push_str(&gate);
        }
        if masked {
            block.register("b32", GROUP_MASK);
            out.push_str(&group_mask(GROUP_MASK));
        }
        out.push_str(&block.late);
        if timed {
            out.push_str(&gate);
        }
        // Which launches a program is in is the same for all lanes.
        let mut parts = guard.is_some() || !gates.is_empty();
        for (number, attachment) in attachments.iter().enumerate() {
            let elect = match attachment.scope {
                Scope::Thread => None,
                Scope::Warp => Some(not_leader()),
                Scope::Block => Some(not_first()),
            };
            let other = format!("wbpf_other_{label}_{number}");
            let together = attachment.fragment.uses_group_mask && attachment.scope == Scope::Thread;
            let mut test = chosen.test(attachment.choice, chosen.leaves_all(), &other);
            test += &gates.test(attachment.gate, gates.closes_all(), together, &other);
            out.push_str(&test);
            if let Some(elect) = &elect {
                block.register("pred", "%wbpf_p");
                block.register("b32", "%wbpf_a");
                block.register("b32", "%wbpf_b");
                let _ = writeln!(out, "{elect}\t@%wbpf_p bra {other};");
            }
            let kept = self.setting.kept && self.scene.body.function.is_entry;
            let start = out.len();
            self.setting
                .programs
                .write(attachment.fragment, kept, &mut out);
            parts |= elect.is_some() || parts_lanes(&out[start..]);
            if elect.is_some() || !test.is_empty() {
                let _ = writeln!(out, "{other}:");
            }
        }
        if guard.is_some() || gates.closes_all() || chosen.leaves_all() {
            let _ = writeln!(out, "{skip}:");
        }
        if parts && self.rejoins {
            // All lanes that came to the site are together again behind it, also those that went
            // around the code.
            let before_all = guard.is_none() && (timed || gates.is_empty() && chosen.is_empty());
            let mut here = GROUP_MASK;
            if !masked || !before_all {
                here = HERE;
                block.register("b32", here);
                out.insert_str(0, &group_mask(here));
            }
            let _ = writeln!(out, "\tbar.warp.sync {here};");
        }
        out
    }
}

/// The module can have `activemask` and `bar.warp.sync`.
pub(crate) fn can_meet(module: &Module<'_>) -> bool {
    module.version >= (6, 2)
}

/// The attachment needs `activemask`.
pub(crate) fn needs_mask(attachment: &Attachment<'_>) -> bool {
    let fragment = attachment.fragment;
    let captured = [Capture::TakenMask, Capture::Waited]
        .iter()
        .any(|c| fragment.captures.contains(c));
    fragment.uses_group_mask || captured || attachment.scope == Scope::Warp
}

const POINTER: &str =
    "a call through a pointer, and functions that are reached only so run without programs";
const ALONE: &str = "`when=after` needs an instruction";
const LAST: &str = "control does not pass behind the instruction";
const ASYNC: &str = "the copy is not done when control passes behind it, use `when=before`";
const INDEXED: &str = "an indexed branch has no predicate";

impl<'b, 'a> Scene<'b, '_, 'a> {
    /// Why code cannot be put at a place; `early`: it needs something from before the instruction.
    pub(crate) fn against(&self, place: &Place, when: When, early: bool) -> Option<&'static str> {
        let Anchor::At(index) = place.anchor else {
            return (when == When::After).then_some(ALONE);
        };
        match (&place.fact, when) {
            (Fact::Line | Fact::FuncRet, When::After) => return Some(ALONE),
            (Fact::Line, When::Before) => {
                return self.gaps.before(self.gaps.call_of(index).unwrap_or(index));
            }
            (Fact::Branch { indexed: true }, _) => return Some(INDEXED),
            (Fact::Mem(access), When::After)
                if matches!(
                    access.kind,
                    Kind::AsyncCopy | Kind::BulkCopy | Kind::TensorCopy
                ) =>
            {
                return Some(ASYNC);
            }
            (
                Fact::Mem(_)
                | Fact::Barrier(_)
                | Fact::Func
                | Fact::FuncRet
                | Fact::Insn
                | Fact::Branch { .. },
                _,
            ) => {}
        }
        if let Some(reason) = self.gaps.member(index) {
            return Some(reason);
        }
        match when {
            When::Before => self.gaps.before(index),
            When::After => {
                let last = self.instruction(place.anchor).is_none_or(is_last);
                let before = self.gaps.before(index).filter(|_| early);
                let behind = self.gaps.behind(index).or(before);
                last.then_some(LAST).or(behind)
            }
        }
    }

    /// The first of the statements that store what a function returns, before its `ret`.
    fn returning(&self, ret: usize) -> usize {
        let stores = |index: &usize| {
            self.instruction(Anchor::At(*index))
                .is_some_and(|i| i.opcode == "st" && i.has("param"))
        };
        (0..ret).rev().take_while(stores).last().unwrap_or(ret)
    }

    /// Where a place is in the text.
    pub(crate) fn offset(&self, anchor: Anchor) -> usize {
        let function = self.body.function;
        match anchor {
            Anchor::Start => function.name_span.start,
            Anchor::At(index) => self.body.statements[index].span.start,
            Anchor::End => function.body.as_ref().map_or(function.span.end, |b| b.end),
        }
    }

    /// Describes a place, which has no number yet and no line of the text; `at` is the line that
    /// was asked for.
    pub(crate) fn info(&self, place: &Place, at: Option<&(String, u32)>) -> SiteInfo {
        let asked = at.and_then(|at| self.line_at(place.anchor, at));
        let line = asked.or_else(|| self.line(place.anchor));
        SiteInfo {
            number: 0,
            site: place.site(),
            function: self.body.function.name.to_owned(),
            op: self
                .instruction(place.anchor)
                .map_or(String::new(), |i| i.name.to_owned()),
            at: line.map(|line| (line.file.to_owned(), line.line)),
            text_line: 0,
        }
    }
}
