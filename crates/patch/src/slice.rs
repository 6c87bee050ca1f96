//! A kernel as a module of its own, whose variables are those of the original: every `.global`
//! address is read from the slot table, which the session fills after the original is loaded. On
//! CUDA a global address and the generic address of the same byte are one number (PTX ISA "Generic
//! Addressing"), so one slot serves both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpbpf_abi::names::SLOTS;
use warpbpf_codegen::SlotSpace;
use warpbpf_ptx::Splices;
use warpbpf_ptx::ast::{Instruction, Module, Operand, StatementKind};

use crate::attachment::{Attachment, Options};
use crate::body::{Body, Mention, Symbol, Symbols, guard_text};
use crate::capture::Slots;
use crate::closure::{Closure, Method};
use crate::error::PatchError;
use crate::insert::Job;
use crate::middle::Setting;
use crate::params;
use crate::program::Programs;
use crate::sums::Sums;
use crate::variant::Variant;

/// The module of `kernel` with `attachments` in it, and what loading it needs.
///
/// # Errors
/// [`PatchError::NeedsClone`] or [`PatchError::Refused`] where [`crate::method`] says so, and all
/// that concerns the attachments.
pub fn slice(
    module: &Module<'_>,
    kernel: &str,
    attachments: &[Attachment<'_>],
    options: &Options,
) -> Result<(String, Variant), PatchError> {
    slice_of(&Symbols::new(module), kernel, attachments, options)
}

/// [`slice()`] of a module whose symbols are known.
pub(crate) fn slice_of(
    symbols: &Symbols<'_, '_>,
    kernel: &str,
    attachments: &[Attachment<'_>],
    options: &Options,
) -> Result<(String, Variant), PatchError> {
    let module = symbols.module;
    let closure = Closure::of(symbols, kernel)?;
    closure.allow_slice(kernel)?;
    let globals = globals(symbols, &closure, options.first_global_slot);
    let slots = Slots {
        globals: &globals,
        space: options.slot_space,
    };
    let programs = Programs::of(attachments.iter().map(|a| a.fragment), options);
    let sums = Sums::of(symbols, &closure, kernel, attachments, options)?;
    let setting = Setting {
        programs: &programs,
        slots: Some(slots),
        first_site: options.first_site,
        kept: sums.kept(),
        tensors: options.tensors.as_ref(),
    };
    let job = Job::new(
        symbols,
        &closure,
        kernel,
        attachments,
        options,
        setting,
        &sums,
    )?;
    let slot_count = options.first_global_slot + globals.len() as u32;

    let mut out = header(module);
    out.push_str(&slot_table(slot_count, options.slot_space));
    out.push_str(&fragment_functions(attachments.iter())?);
    out.push_str(&programs.functions());
    let mut pieces: Vec<(usize, String)> = Vec::new();
    let mut files = BTreeSet::new();
    for variable in &module.variables {
        let kept = matches!(variable.space, "shared" | "local");
        if kept && closure.variables.contains(&variable.name) {
            let text = module.text[variable.span.clone()].to_owned();
            pieces.push((variable.span.start, text));
        }
    }
    for function in &module.functions {
        if function.body.is_none() {
            let name = function.name;
            if closure.externs.contains(name) || closure.bodies.contains_key(name) {
                let hidden = job.carried(name);
                let head = params::function_head(module, function, name, hidden);
                pieces.push((function.span.start, format!("{head};")));
            }
        }
    }
    for body in closure.bodies.values() {
        let text = Rewrite {
            module,
            symbols,
            body,
            slots,
            max_registers: options.max_registers,
        }
        .text(&job, kernel, closure.has_sync, &mut files)?;
        pieces.push((body.function.span.start, text));
    }
    pieces.sort_by_key(|(start, _)| *start);
    for (_, piece) in pieces {
        out.push_str(&piece);
        out.push('\n');
    }
    for (index, path) in &module.files {
        if files.contains(index) {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "\t.file\t{index} \"{path}\"");
        }
    }
    let mut slots: Vec<(u32, String)> = globals
        .iter()
        .map(|(name, slot)| (*slot, (*name).to_owned()))
        .collect();
    slots.sort();
    Ok((out, job.variant(kernel.to_owned(), slots, slot_count)?))
}

impl<'m, 'a> Closure<'m, 'a> {
    /// The kernel's own body.
    pub(crate) fn kernel(&self, kernel: &str) -> Result<&Body<'m, 'a>, PatchError> {
        self.bodies.get(kernel).ok_or_else(|| PatchError::NoKernel {
            kernel: kernel.to_owned(),
        })
    }

    fn allow_slice(&self, kernel: &str) -> Result<(), PatchError> {
        match &self.method {
            Method::Slice => Ok(()),
            Method::Clone { reasons } => Err(PatchError::NeedsClone {
                kernel: kernel.to_owned(),
                reasons: reasons.clone(),
            }),
            Method::Refused { reason, advice } => Err(PatchError::Refused {
                kernel: kernel.to_owned(),
                reason: reason.clone(),
                advice: advice.clone(),
            }),
        }
    }
}

/// The slot of each `.global` variable of the closure, in the order they are met.
fn globals<'a>(
    symbols: &Symbols<'_, 'a>,
    closure: &Closure<'_, 'a>,
    first: u32,
) -> BTreeMap<&'a str, u32> {
    let global = |name: &&&'a str| match symbols.get(name) {
        Some(Symbol::Variable(variable)) => variable.space == "global",
        Some(Symbol::Function(_)) | None => false,
    };
    let names = closure.variables.iter().filter(global).copied();
    names.zip(first..).collect()
}

/// The directives that the module begins with. Debug sections stay behind, and ptxas refuses
/// `debug` without them.
fn header(module: &Module<'_>) -> String {
    if !module.targets.contains(&"debug") {
        return format!("{}\n", &module.text[..module.header_end]);
    }
    let targets: Vec<&str> = module
        .targets
        .iter()
        .copied()
        .filter(|word| *word != "debug")
        .collect();
    let (major, minor) = module.version;
    format!(
        ".version {major}.{minor}\n.target {}\n.address_size {}\n",
        targets.join(", "),
        module.address_size
    )
}

/// The declaration of the slot table.
pub(crate) fn slot_table(slots: u32, space: SlotSpace) -> String {
    let space = space.word();
    format!(
        "\n.visible .{space} .align 8 .b64 {SLOTS}[{}];\n",
        slots.max(1)
    )
}

/// The functions that the fragments call, each once.
pub(crate) fn fragment_functions<'f>(
    attachments: impl Iterator<Item = &'f Attachment<'f>>,
) -> Result<String, PatchError> {
    let mut all: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, text) in attachments.flat_map(|a| &a.fragment.functions) {
        if *all.entry(name).or_insert(text) != text {
            return Err(PatchError::FunctionClash { name: name.clone() });
        }
    }
    let mut out = String::new();
    for text in all.values() {
        out.push_str(text);
        out.push('\n');
    }
    Ok(out)
}

/// One function on its way into the slice.
struct Rewrite<'r, 'm, 'a> {
    module: &'r Module<'a>,
    symbols: &'r Symbols<'m, 'a>,
    body: &'r Body<'m, 'a>,
    slots: Slots<'r, 'a>,
    max_registers: Option<u32>,
}

impl<'a> Rewrite<'_, '_, 'a> {
    fn text(
        &self,
        job: &Job<'_, 'a>,
        kernel: &str,
        has_sync: bool,
        files: &mut BTreeSet<u32>,
    ) -> Result<String, PatchError> {
        let mut edits = Splices::new();
        let function = self.body.function;
        let is_kernel = function.name == kernel;
        if is_kernel {
            job.kernel(self.module, self.body, has_sync, &mut edits);
        } else {
            job.function(self.body, &mut edits);
        }
        job.hand_on(self.symbols, self.body, &mut edits);
        self.addresses(&mut edits);
        self.lines(&mut edits, files);
        let apply = |part| {
            edits
                .apply_to(self.module.text, part)
                .map_err(|source| PatchError::Splice {
                    kernel: kernel.to_owned(),
                    source,
                })
        };
        if is_kernel {
            let signature = params::signature(
                self.module,
                function,
                kernel,
                job.hidden,
                self.max_registers,
            );
            let body = apply(function.body.clone().unwrap_or_default())?;
            Ok(format!("{signature}{{{body}}}"))
        } else {
            let head = params::function_head(
                self.module,
                function,
                function.name,
                job.carried(function.name),
            );
            let body = apply(function.body.clone().unwrap_or_default())?;
            Ok(format!("{head}{{{body}}}"))
        }
    }

    /// Lines of inlined code name their function in a debug section, which stays behind.
    fn lines(&self, edits: &mut Splices, files: &mut BTreeSet<u32>) {
        for statement in &self.body.statements {
            if let StatementKind::Loc(loc) = &statement.kind {
                if loc.inlined.is_some() {
                    edits.delete(statement.span.clone());
                } else {
                    files.insert(loc.file);
                }
            }
        }
    }

    /// Addresses of `.global` variables become reads of their slots.
    fn addresses(&self, edits: &mut Splices) {
        let mut registers = 0;
        let mut last: Option<(usize, u32)> = None;
        for mention in &self.body.mentions {
            let Symbol::Variable(variable) = mention.symbol else {
                continue;
            };
            let Some(slot) = self.slots.globals.get(variable.name).copied() else {
                continue;
            };
            if self.whole(mention, slot, edits) {
                continue;
            }
            // One register for all mentions of one variable in a statement.
            if last != Some((mention.statement, slot)) {
                let at = self.body.before(mention.statement);
                let load = self.slots.load(&format!("%wbpf_s{registers}"), slot);
                edits.insert(at, format!("{load}\n\t"));
                registers += 1;
                last = Some((mention.statement, slot));
            }
            edits.replace(mention.span.clone(), format!("%wbpf_s{}", registers - 1));
        }
        if let Some(body) = self.body.function.body.clone()
            && registers > 0
        {
            edits.insert(body.start, format!("\n\t.reg .b64 %wbpf_s<{registers}>;"));
        }
    }

    /// `mov.u64 %rd1, sym;`, `cvta.global.u64 %rd1, sym;` and the same with an offset are replaced
    /// whole.
    fn whole(&self, mention: &Mention<'_, 'a>, slot: u32, edits: &mut Splices) -> bool {
        let statement = &self.body.statements[mention.statement];
        let StatementKind::Instruction(instruction) = &statement.kind else {
            return false;
        };
        let Some((to, offset)) = address_of(instruction) else {
            return false;
        };
        let guard = instruction.guard.map_or(String::new(), guard_text);
        let mut text = format!("{guard}{}", self.slots.load(to, slot));
        if offset != 0 {
            let _ = write!(text, "\n\t{guard}add.s64 {to}, {to}, {offset};");
        }
        edits.replace(statement.span.clone(), text);
        true
    }
}

/// Register and byte offset of an instruction that does nothing but take the address of a variable.
fn address_of<'a>(instruction: &Instruction<'a>) -> Option<(&'a str, i64)> {
    let takes = match instruction.opcode {
        "mov" => matches!(instruction.modifiers[..], ["u64" | "b64" | "s64"]),
        "cvta" => matches!(instruction.modifiers[..], ["global", "u64"]),
        _ => false,
    };
    if !takes {
        return None;
    }
    match instruction.operands[..] {
        [Operand::Name(to), Operand::Name(_)] => Some((to, 0)),
        [Operand::Name(to), Operand::Offset(_, offset)] => Some((to, offset)),
        _ => None,
    }
}
