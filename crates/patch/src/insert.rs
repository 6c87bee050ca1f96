//! The edits that put the code of the sites into one function.

use std::collections::BTreeSet;

use warpbpf_abi::attach::{Scope, Site, When};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::{launch, slot};
use warpbpf_abi::names::LAUNCH_PARAM;
use warpbpf_ptx::Splices;
use warpbpf_ptx::ast::{Function, Instruction, Module, Operand, Span, StatementKind};

use crate::attachment::{Attachment, Options};
use crate::body::{Body, Symbol, Symbols, guard_text};
use crate::capture::Source;
use crate::closure::Closure;
use crate::error::PatchError;
use crate::middle::{Middle, Setting, can_meet, needs_mask};
use crate::params;
use crate::program::Programs;
use crate::scope::{SiteCode, ends_thread};
use crate::site::{Exit, exits, function_exits, way_out};
use crate::sums::Sums;
use crate::variant::{HiddenParam, Variant};

/// Code for one kernel, checked against it.
pub(crate) struct Job<'j, 'a> {
    entry: SiteCode<'j>,
    pub(crate) exit: SiteCode<'j>,
    pub(crate) middle: Middle,
    programs: &'j Programs<'j>,
    function: &'j Function<'a>,
    sm: u32,
    pub(crate) hidden: Option<HiddenParam>,
    /// Device functions that take what is hidden as a further parameter, because they end threads
    /// or have programs of their own launches, or call such.
    carriers: BTreeSet<String>,
    /// One past the highest slot that a fragment reads.
    pub(crate) slots_read: u32,
    /// Declares the registers of sums.
    sums: String,
}

impl<'j, 'a> Job<'j, 'a> {
    pub(crate) fn new(
        symbols: &Symbols<'j, 'a>,
        closure: &Closure<'j, 'a>,
        kernel: &str,
        attachments: &[Attachment<'j>],
        options: &Options,
        setting: Setting<'j, 'a>,
        sums: &'j Sums,
    ) -> Result<Job<'j, 'a>, PatchError> {
        let module = symbols.module;
        check_version(module, kernel, attachments)?;
        let mut job = Job {
            entry: SiteCode::of(Site::Entry, attachments).rejoining(can_meet(module)),
            exit: SiteCode::of(Site::Exit, attachments),
            middle: Middle::of(symbols, closure, kernel, attachments, setting)?,
            programs: setting.programs,
            function: closure.kernel(kernel)?.function,
            sm: module.target().map_or(0, |t| t.number),
            hidden: None,
            carriers: BTreeSet::new(),
            slots_read: 0,
            sums: String::new(),
        };
        if sums.kept() && !job.middle.sites.is_empty() {
            job.exit.put_first(&sums.flush);
            job.sums = sums.declarations();
        }
        for slot in attachments.iter().flat_map(|a| &a.fragment.slots) {
            if *slot >= options.first_global_slot {
                return Err(PatchError::SlotClash {
                    slot: *slot,
                    first_global_slot: options.first_global_slot,
                });
            }
            job.slots_read = job.slots_read.max(slot + 1);
        }
        if attachments.iter().any(|a| a.gate.is_some()) {
            job.slots_read = job.slots_read.max(slot::ENV + 1);
        }
        let (block_counters, warp_counters) = (job.exit.block_counters(), job.exit.warp_counters());
        let at_exit = job.exit.needs_record();
        let counted = at_exit || job.entry.needs_record();
        if counted {
            let leaving = closure.leaving(symbols, kernel);
            let carriers = if at_exit { leaving } else { Vec::new() };
            check_counted(closure, &carriers, kernel, attachments)?;
            job.carriers = carriers.into_iter().map(str::to_owned).collect();
        }
        let chosen = attachments.iter().any(|a| a.choice.is_some());
        if chosen {
            let exits = !job.exit.is_empty();
            let asking = closure.leading(symbols, kernel, |body| {
                exits && !function_exits(body).is_empty() || job.middle.has(body.function.name)
            });
            check_handed(closure, &asking, kernel, ASKING)?;
            job.carriers.extend(asking.into_iter().map(str::to_owned));
        }
        let asks = |capture| {
            let mut fragments = attachments.iter().map(|a| &a.fragment);
            fragments.any(|fragment| fragment.captures.contains(&capture))
        };
        let (numbered, node) = (asks(Capture::Launch), asks(Capture::Node));
        if counted || numbered || node || chosen {
            let body = closure.kernel(kernel)?;
            let layout = params::layout(body.function)?;
            job.hidden = Some(HiddenParam {
                offset: params::hidden_offset(module, body.function, &layout, chosen)?,
                block_cells: attachments.iter().map(|a| a.fragment.block_cells).sum(),
                block_counters,
                warp_counters,
                node,
                chosen,
            });
        }
        Ok(job)
    }

    /// What loading and launching its text needs.
    pub(crate) fn variant(
        self,
        entry: String,
        globals: Vec<(u32, String)>,
        slot_count: u32,
    ) -> Result<Variant, PatchError> {
        Ok(Variant {
            entry,
            globals,
            slot_count,
            hidden: self.hidden,
            params: params::layout(self.function)?,
            sites: self.middle.sites,
            left_out: self.middle.left_out,
            placed: self.middle.placed,
        })
    }

    /// Edits of the kernel's body.
    pub(crate) fn kernel(
        &self,
        module: &Module<'_>,
        body: &Body<'_, '_>,
        has_sync: bool,
        edits: &mut Splices,
    ) {
        let Some(span) = body.function.body.clone() else {
            return;
        };
        if !self.sums.is_empty() {
            let declared = self.sums.trim_end_matches('\n');
            edits.insert(span.start, format!("\n{declared}"));
        }
        if !self.entry.is_empty() {
            let code = self
                .entry
                .text(0, self.sm, &self.source(true), self.programs);
            edits.insert(span.start, format!("\n{code}"));
        }
        self.middle.splice(body.function.name, edits);
        if self.exit.is_empty() && !(has_sync && self.middle.is_at_exit()) {
            return;
        }
        let tail = if has_sync {
            self.apart(module, body, edits)
        } else {
            self.together(module, body, edits)
        };
        if !tail.is_empty() {
            edits.insert(span.end, format!("\n{tail}"));
        }
    }

    /// What programs at the ends of the kernel can read, in its own body or in a function.
    fn source(&self, in_kernel: bool) -> Source<'_, 'j, 'j, 'a> {
        Source {
            kernel: self.function,
            in_kernel,
            site: 0,
            line: 0,
            when: When::Before,
            slots: None,
            tensors: None,
            place: None,
        }
    }

    fn exit_text(&self, number: usize, in_kernel: bool) -> String {
        let source = self.source(in_kernel);
        self.exit.text(number, self.sm, &source, self.programs)
    }

    /// The code at exit as it stands before an instruction, which is indented already.
    fn inline(&self, number: usize, in_kernel: bool) -> String {
        format!("{}\t", self.exit_text(number, in_kernel).trim_start())
    }

    /// One copy of the code for all ways out. Threads that leave early then wait for those they
    /// diverged from, which is right while nobody waits for anybody else.
    fn together(&self, module: &Module<'_>, body: &Body<'_, '_>, edits: &mut Splices) -> String {
        let exits = exits(body, module.text, false);
        if let [Exit::Leave(index)] = exits.list[..]
            && !exits.falls_off
            && instruction(body, index).is_some_and(|i| i.guard.is_none())
        {
            edits.insert(body.before(index), self.inline(1, true));
            return String::new();
        }
        for exit in &exits.list {
            if let Exit::Leave(index) = exit {
                replace_by_branch(body, *index, "wbpf_exit", edits);
            }
        }
        format!("wbpf_exit:\n{}\tret;\n", self.exit_text(1, true))
    }

    /// A copy of the code for each way out. Where lanes wait at barriers and shuffles for those
    /// that are still there, a thread that has left must really be gone: before a common piece of
    /// code the compiler may let it wait for the others, while they wait for it to be gone.
    fn apart(&self, module: &Module<'_>, body: &Body<'_, '_>, edits: &mut Splices) -> String {
        let exits = exits(body, module.text, true);
        let mut tail = String::new();
        let none = self.exit.is_empty();
        if exits.falls_off && !none {
            tail.push_str(&format!("{}\tret;\n", self.exit_text(1, true)));
        }
        for (exit, number) in exits.list.iter().zip(2..) {
            let label = format!("wbpf_exit_{number}");
            let mut passed = String::new();
            match exit {
                Exit::Leave(_) if none => continue,
                Exit::Leave(index) => {
                    if instruction(body, *index).is_some_and(|i| i.guard.is_none()) {
                        edits.insert(body.before(*index), self.inline(number, true));
                        continue;
                    }
                    replace_by_branch(body, *index, &label, edits);
                }
                Exit::Branch(span) => {
                    // Programs at instructions that the branch now goes past.
                    let way = way_out(body, &module.text[span.clone()]);
                    passed = self.middle.on_way(&way);
                    if none && passed.is_empty() {
                        continue;
                    }
                    edits.replace(span.clone(), label.clone());
                }
            }
            let code = self.exit_text(number, true);
            tail.push_str(&format!("{label}:\n{passed}{code}\tret;\n"));
        }
        tail
    }

    /// What the device function takes as a further parameter.
    pub(crate) fn carried(&self, function: &str) -> Option<HiddenParam> {
        self.hidden.filter(|_| self.carriers.contains(function))
    }

    /// Edits of the calls in a kernel or function that lead to an `exit`, or to programs of their
    /// own launches: they hand on what is hidden.
    pub(crate) fn hand_on(
        &self,
        symbols: &Symbols<'_, 'a>,
        body: &Body<'_, 'a>,
        edits: &mut Splices,
    ) {
        let mut any = None;
        for mention in body.mentions.iter().filter(|m| m.is_call) {
            let Symbol::Function(called) = mention.symbol else {
                continue;
            };
            let Some(hidden) = self.carried(symbols.resolve(called.name)) else {
                continue;
            };
            any = Some(hidden);
            let argument = format!("wbpf_launch_{}", mention.statement);
            let declared = params::handed(hidden, &argument);
            let mut stored = format!("{declared};\n\tst.param.b64 [{argument}], %wbpf_launch;\n\t");
            if hidden.chosen {
                let at = launch::PARAM_CHOSEN;
                stored += &format!("st.param.b64 [{argument}+{at}], %wbpf_handed;\n\t");
            }
            edits.insert(body.before(mention.statement), stored);
            match argument_list(body, mention.statement, &mention.span) {
                Some((end, true)) => edits.insert(end, argument),
                Some((end, false)) => edits.insert(end, format!(", {argument}")),
                None => edits.insert(mention.span.end, format!(", ({argument})")),
            }
        }
        if let Some((span, hidden)) = body.function.body.as_ref().zip(any) {
            let mut loaded = format!(
                "\n\t.reg .b64 %wbpf_launch;\n\tld.param.u64 %wbpf_launch, [{LAUNCH_PARAM}];"
            );
            if hidden.chosen {
                let at = launch::PARAM_CHOSEN;
                loaded += &format!(
                    "\n\t.reg .b64 %wbpf_handed;\n\tld.param.u64 %wbpf_handed, [{LAUNCH_PARAM}+{at}];"
                );
            }
            edits.insert(span.start, loaded);
        }
    }

    /// Edits of a device function's body: its sites, and its `exit`s, which end the kernel for the
    /// thread.
    pub(crate) fn function(&self, body: &Body<'_, '_>, edits: &mut Splices) {
        self.middle.splice(body.function.name, edits);
        if self.exit.is_empty() {
            return;
        }
        for (index, number) in function_exits(body).into_iter().zip(1..) {
            let Some(guard) = instruction(body, index).and_then(|i| i.guard) else {
                edits.insert(body.before(index), self.inline(number, false));
                continue;
            };
            let code = self.exit_text(number, false);
            let not = if guard.negated { "" } else { "!" };
            let span = body.statements[index].span.clone();
            edits.replace(
                span,
                format!(
                    "@{not}{} bra wbpf_stay_{number};\n{code}\texit;\nwbpf_stay_{number}:",
                    guard.register
                ),
            );
        }
    }
}

fn check_version(
    module: &Module<'_>,
    kernel: &str,
    attachments: &[Attachment<'_>],
) -> Result<(), PatchError> {
    let (major, minor) = module.version;
    let masked =
        |a: &Attachment<'_>| needs_mask(a) || a.site == Site::Exit && a.scope == Scope::Block;
    if attachments.iter().any(masked) && !can_meet(module) {
        return Err(PatchError::TooOld {
            kernel: kernel.to_owned(),
            what: "`activemask`",
            needs: "6.2",
            major,
            minor,
        });
    }
    Ok(())
}

/// A count of arrivals must come to its end: every thread arrives, and where it does, the launch
/// record is in reach.
fn check_counted(
    closure: &Closure<'_, '_>,
    leaving: &[&str],
    kernel: &str,
    attachments: &[Attachment<'_>],
) -> Result<(), PatchError> {
    // What else counts does so because of its scope.
    let scoped = |a: &Attachment<'_>| a.site == Site::Exit && a.scope != Scope::Thread;
    let aggregates = !attachments.iter().any(scoped);
    let handing = match aggregates {
        true => AGGREGATING,
        false => LEAVING,
    };
    check_handed(closure, leaving, kernel, handing)?;
    let refused = |reason: &str, advice: &str| PatchError::Refused {
        kernel: kernel.to_owned(),
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    };
    if attachments
        .iter()
        .any(|a| a.fragment.block_cells > 0 && a.gate.is_some())
    {
        return Err(refused(
            "a program aggregates over its block, and a gate may keep some of the block's threads from it",
            "do without the gate, or add to a value of a map",
        ));
    }
    if attachments.iter().any(|a| ends_thread(a.fragment)) {
        return Err(match aggregates {
            true => refused(
                "a program ends threads (helper 507) while another aggregates over all threads of their block",
                "do without one of them",
            ),
            false => refused(
                "a program ends threads (helper 507) while another waits for all threads of a warp or block to leave",
                "use `thread` scope at exit, or do without the helper",
            ),
        });
    }
    Ok(())
}

/// Why functions are handed what is hidden, and what to do where that cannot be.
type Handing = (&'static str, &'static str, &'static str);
const LEAVING: Handing = (
    "ends threads by `exit`",
    "the launch record",
    "use `thread` scope at exit",
);
const AGGREGATING: Handing = (
    "ends threads by `exit`",
    "the launch record",
    "aggregate over blocks at entry",
);
const ASKING: Handing = (
    "has programs that are in different launches",
    "which those are",
    "choose the same launches for all programs of the kernel",
);

/// Functions can be handed more than they have.
fn check_handed(
    closure: &Closure<'_, '_>,
    functions: &[&str],
    kernel: &str,
    (why, what, advice): Handing,
) -> Result<(), PatchError> {
    let in_registers = |name: &&&str| {
        let function = closure.bodies.get(**name).map(|body| body.function);
        function.is_some_and(|f| f.params.iter().any(|p| p.is_reg))
    };
    match functions.iter().find(in_registers) {
        None => Ok(()),
        Some(name) => Err(PatchError::Refused {
            kernel: kernel.to_owned(),
            reason: format!(
                "its function `{name}` {why} and takes its parameters in registers, so that {what} cannot be handed to it"
            ),
            advice: advice.to_owned(),
        }),
    }
}

fn instruction<'b, 'a>(body: &'b Body<'_, 'a>, index: usize) -> Option<&'b Instruction<'a>> {
    match &body.statements.get(index)?.kind {
        StatementKind::Instruction(instruction) => Some(instruction),
        _ => None,
    }
}

/// Where the list of arguments behind the called function ends, before its `)`, and whether it is
/// empty.
fn argument_list(body: &Body<'_, '_>, index: usize, function: &Span) -> Option<(usize, bool)> {
    let call = instruction(body, index)?;
    let mut operands = call.operands.iter().zip(&call.operand_spans);
    operands.find_map(|(operand, span)| match operand {
        Operand::List(list) if span.start > function.start => Some((span.end - 1, list.is_empty())),
        _ => None,
    })
}

/// `@p ret;` becomes `@p bra label;`.
fn replace_by_branch(body: &Body<'_, '_>, index: usize, label: &str, edits: &mut Splices) {
    let Some(instruction) = instruction(body, index) else {
        return;
    };
    let guard = instruction.guard.map_or(String::new(), guard_text);
    let uni = if instruction.has("uni") { ".uni" } else { "" };
    edits.replace(
        body.statements[index].span.clone(),
        format!("{guard}bra{uni} {label};"),
    );
}
