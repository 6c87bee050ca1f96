//! Instrumented kernels beside the originals in one module: globals, constants, textures and
//! function pointers are one and the same, and every original byte stays what it was.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::names::PREFIX;
use warpbpf_codegen::SlotSpace;
use warpbpf_ptx::Splices;
use warpbpf_ptx::ast::{Function, Instruction, Module, Operand, StatementKind, Variable};

use crate::attachment::{Attachment, Options};
use crate::body::{Body, Symbol, Symbols};
use crate::closure::{Closure, Method, exit_behind_pointer};
use crate::error::PatchError;
use crate::insert::Job;
use crate::middle::Setting;
use crate::params;
use crate::program::Programs;
use crate::site::function_exits;
use crate::slice::{fragment_functions, slot_table};
use crate::sums::Sums;
use crate::variant::Variant;

/// Bytes of `.const` variables that a module can have, PTX ISA "Constant State Space".
const CONSTANT_BANK: u64 = 64 << 10;

/// The module's text with a clone of each kernel in `requests`, its attachments in it, and one
/// variant per request. A clone is called `wbpf_` and the kernel's name. One request that fails
/// fails all: asked for alone, it says so.
///
/// # Errors
/// [`PatchError::Refused`] where [`crate::method`] says so, and all that concerns the attachments.
pub fn clone_in_module(
    module: &Module<'_>,
    requests: &[(&str, Vec<Attachment<'_>>)],
    options: &Options,
) -> Result<(String, Vec<Variant>), PatchError> {
    clone_of(&Symbols::new(module), requests, options)
}

/// [`clone_in_module`] of a module whose symbols are known.
pub(crate) fn clone_of(
    symbols: &Symbols<'_, '_>,
    requests: &[(&str, Vec<Attachment<'_>>)],
    options: &Options,
) -> Result<(String, Vec<Variant>), PatchError> {
    let module = symbols.module;
    check_constants(module, options)?;
    let mut tail = String::new();
    let mut variants = Vec::with_capacity(requests.len());
    let slot_count = options.first_global_slot;
    let fragments = requests.iter().flat_map(|(_, a)| a).map(|a| a.fragment);
    let programs = Programs::of(fragments, options);
    let mut first_site = options.first_site;
    for (number, (kernel, attachments)) in requests.iter().enumerate() {
        if requests[..number].iter().any(|(other, _)| other == kernel) {
            return Err(PatchError::Twice {
                kernel: (*kernel).to_owned(),
            });
        }
        let closure = Closure::of(symbols, kernel)?;
        if let Method::Refused { reason, advice } = &closure.method {
            return Err(PatchError::Refused {
                kernel: (*kernel).to_owned(),
                reason: reason.clone(),
                advice: advice.clone(),
            });
        }
        let sums = Sums::of(symbols, &closure, kernel, attachments, options)?;
        let setting = Setting {
            programs: &programs,
            slots: None,
            first_site,
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
        first_site += job.middle.sites.len() as u32;
        let maker = Maker {
            symbols,
            closure: &closure,
            job: &job,
            kernel,
            number,
            max_registers: options.max_registers,
        };
        tail.push_str(&maker.text()?);
        let entry = format!("{PREFIX}kernel_{kernel}");
        variants.push(job.variant(entry, Vec::new(), slot_count)?);
    }
    let functions = fragment_functions(requests.iter().flat_map(|(_, a)| a))?;
    let (head, rest) = module.text.split_at(module.header_end);
    let table = slot_table(slot_count, options.slot_space);
    Ok((
        format!(
            "{head}\n{table}{functions}{}{rest}\n{tail}",
            programs.functions()
        ),
        variants,
    ))
}

/// The driver would refuse the whole module, and with it the application's own kernels.
fn check_constants(module: &Module<'_>, options: &Options) -> Result<(), PatchError> {
    if options.slot_space == SlotSpace::Global {
        return Ok(());
    }
    let ours = module.variables.iter().filter(|v| v.space == "const");
    let constants = ours.filter_map(Variable::size).fold(0, u64::saturating_add);
    let total = constants.saturating_add(u64::from(options.first_global_slot) * 8);
    if total <= CONSTANT_BANK {
        return Ok(());
    }
    Err(PatchError::ConstantBank {
        constants,
        total,
        limit: CONSTANT_BANK,
    })
}

/// Makes one kernel's clone.
struct Maker<'r, 'm, 'a> {
    symbols: &'r Symbols<'m, 'a>,
    closure: &'r Closure<'m, 'a>,
    job: &'r Job<'r, 'a>,
    kernel: &'r str,
    number: usize,
    max_registers: Option<u32>,
}

impl<'a> Maker<'_, '_, 'a> {
    fn text(&self) -> Result<String, PatchError> {
        if !self.job.exit.is_empty()
            && let Some(name) = exit_behind_pointer(self.symbols, self.closure, self.kernel)?
        {
            return Err(PatchError::Refused {
                kernel: self.kernel.to_owned(),
                reason: format!(
                    "`{name}` ends threads by `exit` and may be called through a pointer, so not every way out is known"
                ),
                advice: "attach at entry, or end threads outside functions that are called through pointers"
                    .to_owned(),
            });
        }
        // Functions with code of ours, and those through which they are called: the originals stay
        // as they are.
        let exits = !self.job.exit.is_empty();
        let copied = self.closure.leading(self.symbols, self.kernel, |body| {
            exits && !function_exits(body).is_empty() || self.job.middle.has(body.function.name)
        });
        let names: BTreeMap<&str, String> = copied
            .iter()
            .map(|name| (*name, format!("{PREFIX}{}_{name}", self.number)))
            .collect();
        let mut out = String::new();
        for name in &copied {
            let body = &self.closure.bodies[name];
            out.push_str(&self.prototype(body.function, &names[name]));
        }
        for name in &copied {
            out.push_str(&self.function(&self.closure.bodies[name], &names)?);
        }
        let body = self.closure.kernel(self.kernel)?;
        let mut edits = Splices::new();
        self.job
            .kernel(self.symbols.module, body, self.closure.has_sync, &mut edits);
        self.redirect(body, &names, &mut edits);
        self.job.hand_on(self.symbols, body, &mut edits);
        self.drop_debug_labels(body, &mut edits);
        let name = format!("{PREFIX}kernel_{}", self.kernel);
        let hidden = self.job.hidden;
        out.push_str(&params::signature(
            self.symbols.module,
            body.function,
            &name,
            hidden,
            self.max_registers,
        ));
        let text = self.apply(&edits, body.function.body.clone().unwrap_or_default())?;
        out.push_str(&format!("{{{text}}}\n"));
        Ok(out)
    }

    fn apply(&self, edits: &Splices, part: std::ops::Range<usize>) -> Result<String, PatchError> {
        edits
            .apply_to(self.symbols.module.text, part)
            .map_err(|source| PatchError::Splice {
                kernel: self.kernel.to_owned(),
                source,
            })
    }

    /// The head of a copy, which does not repeat the linking directive.
    fn head(&self, function: &Function<'a>, name: &str) -> String {
        let hidden = self.job.carried(function.name);
        let head = params::function_head(self.symbols.module, function, name, hidden);
        head.find(".func")
            .map_or(head.clone(), |at| head[at..].to_owned())
    }

    fn prototype(&self, function: &Function<'a>, name: &str) -> String {
        format!("{}\n;\n", self.head(function, name).trim_end())
    }

    fn function(
        &self,
        body: &Body<'_, 'a>,
        names: &BTreeMap<&str, String>,
    ) -> Result<String, PatchError> {
        let mut edits = Splices::new();
        self.job.function(body, &mut edits);
        self.redirect(body, names, &mut edits);
        self.job.hand_on(self.symbols, body, &mut edits);
        self.drop_debug_labels(body, &mut edits);
        let head = self.head(body.function, &names[body.function.name]);
        let text = self.apply(&edits, body.function.body.clone().unwrap_or_default())?;
        Ok(format!("{head}{{{text}}}\n"))
    }

    /// Calls of copied functions go to the copies.
    fn redirect(&self, body: &Body<'_, 'a>, names: &BTreeMap<&str, String>, edits: &mut Splices) {
        for mention in body.mentions.iter().filter(|m| m.is_call) {
            if let Symbol::Function(function) = mention.symbol
                && let Some(name) = names.get(self.symbols.resolve(function.name))
            {
                edits.replace(mention.span.clone(), name.clone());
            }
        }
    }

    /// Debug sections refer to labels of functions by name, so a second one of that name would make
    /// them ambiguous. They are the labels that no instruction names.
    fn drop_debug_labels(&self, body: &Body<'_, 'a>, edits: &mut Splices) {
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for statement in &body.statements {
            match &statement.kind {
                StatementKind::Instruction(Instruction { operands, .. }) => {
                    named.extend(operands.iter().filter_map(|operand| match operand {
                        Operand::Name(name) | Operand::Offset(name, _) => Some(*name),
                        _ => None,
                    }));
                }
                StatementKind::BranchTargets { targets, .. } => named.extend(targets),
                _ => {}
            }
        }
        for statement in &body.statements {
            if let StatementKind::Label(label) = &statement.kind
                && !named.contains(label)
            {
                edits.delete(statement.span.clone());
            }
        }
    }
}
