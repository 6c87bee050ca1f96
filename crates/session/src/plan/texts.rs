//! Instrumented texts of one module: fragments of the programs, slices of kernels, and clones of
//! kernels together.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::PoisonError;

use warpbpf_codegen::{Env, Fragment, Input, SlotSpace, Target, compile};
use warpbpf_patch::{Attachment, Gate, Options, PatchError, Patcher, Select, Variant};
use warpbpf_ptx::arguments::Arguments;
use warpbpf_ptx::ast::Module;

use crate::plan::kernel_error::{KernelError, ProgramError};
use crate::plan::names;
use crate::plan::prepared::{CloneTexts, Code, Prepared, refuse};
use crate::plan::session::{Session, bit};
use crate::plan::sites;

/// What the compiler speaks of in warnings that a probe can bring about: `C75xx`.
const COMMENTED: &[&str] = &["wgmma.", "setmaxnreg."];

/// A clone to be made: its kernel's place in [`Prepared`] and the code of its programs.
pub(crate) struct Clone {
    pub(crate) at: usize,
    pub(crate) fragments: Vec<Fragment>,
}

/// See the module.
pub(crate) struct Texts<'w, 'a> {
    session: &'w Session,
    module: &'w Module<'a>,
    patcher: &'w Patcher<'w, 'a>,
    hash: u64,
    /// What the source calls parameters, once a program asks for one.
    arguments: OnceCell<Arguments<'w, 'a>>,
    /// By program: its selectors, with the functions of this module in them.
    selects: Vec<Select>,
}

impl<'w, 'a> Texts<'w, 'a> {
    /// `hash` tells the module from others.
    pub(crate) fn new(
        session: &'w Session,
        module: &'w Module<'a>,
        patcher: &'w Patcher<'w, 'a>,
        hash: u64,
    ) -> Texts<'w, 'a> {
        let functions = |glob: &String| -> BTreeSet<String> {
            let named = module.functions.iter().map(|f| f.name);
            named
                .filter(|name| names::matches(glob, name))
                .map(str::to_owned)
                .collect()
        };
        let selects = session.programs().iter().map(|program| Select {
            functions: program.spec.functions.as_ref().map(functions),
            ..program.spec.select.clone()
        });
        Texts {
            session,
            module,
            patcher,
            hash,
            arguments: OnceCell::new(),
            selects: selects.collect(),
        }
    }

    /// None of the programs is at a kernel's start or end, where there always is a site.
    pub(crate) fn only_sites(&self, programs: &[usize]) -> bool {
        let all = self.session.programs();
        programs.iter().all(|index| all[*index].has_sites())
    }

    /// The code of the programs for one kernel.
    ///
    /// # Errors
    /// Which program cannot be compiled, and why.
    pub(crate) fn fragments(
        &self,
        kernel: &str,
        programs: &[usize],
        kernel_id: u64,
    ) -> Result<Vec<Fragment>, KernelError> {
        self.fragments_in(kernel, programs, kernel_id, SlotSpace::Const)
    }

    fn fragments_in(
        &self,
        kernel: &str,
        programs: &[usize],
        kernel_id: u64,
        slots: SlotSpace,
    ) -> Result<Vec<Fragment>, KernelError> {
        let sm = self
            .module
            .targets
            .first()
            .and_then(|t| sm_number(t))
            .ok_or(KernelError::Target)?;
        let target = Target {
            ptx: self.module.version,
            sm,
        };
        let named = |index: usize, source| KernelError::Program {
            program: self.session.programs()[index].name().to_owned(),
            source,
        };
        let env_of = |index: usize| -> Result<Env, KernelError> {
            let program = &self.session.programs()[index];
            Ok(Env {
                target,
                site: program.spec.site,
                scope: program.spec.scope,
                kernel_id,
                maps: self.session.bindings(),
                printk: self.session.printk_binding(),
                slots,
                input: Input::Context,
                keep_sums: self.session.keeps_sums(program.spec.site),
                meets: true,
                args: self
                    .positions(kernel, &program.spec.arguments)
                    .map_err(|error| named(index, error))?,
            })
        };
        let compile_one = |index: &usize| {
            let program = &self.session.programs()[*index];
            compile(&program.verified, &env_of(*index)?)
                .map_err(|error| named(*index, ProgramError::Compile(error)))
        };
        let mut fragments: Vec<Fragment> = (programs.iter())
            .map(compile_one)
            .collect::<Result<_, KernelError>>()?;
        let slots = self.session.slots_beside(programs);
        if !slots.is_empty() {
            let interpreter = self.session.interpreter(target);
            for (slot, index) in slots {
                fragments.push(interpreter.slot(&env_of(index)?, slot));
            }
        }
        Ok(fragments)
    }

    /// Where the named parameters of a kernel are.
    fn positions(&self, kernel: &str, names: &[String]) -> Result<Vec<u8>, ProgramError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let params = self.module.function(kernel).map_or(&[][..], |f| &f.params);
        let known = self.arguments.get_or_init(|| Arguments::new(self.module));
        let debug = known.of(kernel);
        let position = |name: &String| {
            let named = debug.iter().position(|argument| argument.name == *name);
            // PTX's own names always work.
            let found = named.or_else(|| params.iter().position(|param| param.name == name));
            found.and_then(|at| u8::try_from(at).ok()).ok_or_else(|| {
                let there = debug.iter().map(|a| &a.name);
                let there: Vec<String> = there.filter(|name| !name.is_empty()).cloned().collect();
                let name = name.clone();
                match there.is_empty() {
                    true => ProgramError::NoNames { name },
                    false => ProgramError::Parameter { name, there },
                }
            })
        };
        names.iter().map(position).collect()
    }

    /// A kernel as a module of its own, its sites numbered and named.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn slice(
        &self,
        kernel: &str,
        programs: &[usize],
        fragments: &[Fragment],
    ) -> Result<(String, Variant), PatchError> {
        let attachments = self.attachments(programs, fragments);
        let make = |first| {
            let options = self.options(SlotSpace::Const, first);
            self.patcher.slice(kernel, &attachments, &options)
        };
        if self.any_sites(programs) {
            let numbers = self.session.sites.lock();
            let mut numbers = numbers.unwrap_or_else(PoisonError::into_inner);
            numbers.number(self.hash, kernel, make, |(_, variant)| {
                sites::names(kernel, variant)
            })
        } else {
            make(0)
        }
    }

    /// A kernel without programs, if the compiler may comment on `instrumented`.
    pub(crate) fn plain(&self, kernel: &str, instrumented: &str) -> Option<String> {
        if !COMMENTED.iter().any(|word| instrumented.contains(word)) {
            return None;
        }
        let made = self
            .patcher
            .slice(kernel, &[], &self.options(SlotSpace::Const, 0));
        // Without it, all warnings of the instrumented text are taken for new ones.
        made.ok().map(|(text, _)| text)
    }

    fn any_sites(&self, programs: &[usize]) -> bool {
        let all = self.session.programs();
        programs.iter().any(|index| all[*index].has_sites())
    }

    /// Clones of one image are made together. Where that fails, each is tried alone and those that
    /// fail are dropped.
    pub(crate) fn make_clones(&self, mut clones: Vec<Clone>, prepared: &mut Prepared) {
        let mut space = SlotSpace::Const;
        loop {
            match self.try_clones(&clones, space, prepared) {
                Ok((text, variants)) => {
                    let whole = clones.len();
                    let mut variants = variants.into_iter();
                    clones.retain(|clone| {
                        let kernel = &mut prepared.kernels[clone.at];
                        let Some(variant) = variants.next() else {
                            return false;
                        };
                        let only_sites = self.only_sites(&kernel.programs);
                        let kept = kernel.take_sites(&variant, only_sites);
                        kernel.code = kept.then_some(Code::Clone { variant });
                        kept
                    });
                    if clones.len() == whole {
                        prepared.commented = self.commented(&text, &clones, prepared);
                        prepared.rewritten = Some(text);
                        return;
                    }
                    if clones.is_empty() {
                        return;
                    }
                }
                Err(PatchError::ConstantBank { .. }) if space == SlotSpace::Const => {
                    space = SlotSpace::Global;
                    for clone in &mut clones {
                        let kernel = &prepared.kernels[clone.at];
                        let id = kernel.kernel_id.unwrap_or(0);
                        if let Ok(again) =
                            self.fragments_in(&kernel.mangled, &kernel.programs, id, space)
                        {
                            clone.fragments = again;
                        }
                    }
                }
                Err(together) => {
                    let whole = clones.len();
                    clones.retain(|clone| {
                        let alone = self.try_clones(std::slice::from_ref(clone), space, prepared);
                        if let Err(error) = &alone {
                            refuse(&mut prepared.kernels[clone.at], &error.to_string());
                        }
                        alone.is_ok()
                    });
                    if clones.is_empty() {
                        return;
                    }
                    if clones.len() == whole {
                        for clone in &clones {
                            refuse(&mut prepared.kernels[clone.at], &together.to_string());
                        }
                        return;
                    }
                }
            }
        }
    }

    /// Both texts of a module with clones, if the compiler may comment on it.
    fn commented(&self, text: &str, clones: &[Clone], prepared: &Prepared) -> Option<CloneTexts> {
        let entry = |clone: &Clone| match &prepared.kernels[clone.at].code {
            Some(Code::Clone { variant }) => Some(variant.entry.clone()),
            _ => None,
        };
        let may = COMMENTED.iter().any(|word| text.contains(word));
        may.then(|| CloneTexts {
            rewritten: text.to_owned(),
            plain: self.module.text.to_owned(),
            entries: clones.iter().filter_map(entry).collect(),
        })
    }

    fn try_clones(
        &self,
        clones: &[Clone],
        space: SlotSpace,
        prepared: &Prepared,
    ) -> Result<(String, Vec<Variant>), PatchError> {
        let kernels = clones.iter().map(|clone| &prepared.kernels[clone.at]);
        let requests: Vec<(&str, Vec<Attachment<'_>>)> = kernels
            .clone()
            .zip(clones)
            .map(|(kernel, clone)| {
                (
                    kernel.mangled.as_str(),
                    self.attachments(&kernel.programs, &clone.fragments),
                )
            })
            .collect();
        let make = |first| {
            self.patcher
                .clone_in_module(&requests, &self.options(space, first))
        };
        if !kernels.clone().any(|k| self.any_sites(&k.programs)) {
            return make(0);
        }
        let all: Vec<&str> = requests.iter().map(|(kernel, _)| *kernel).collect();
        let mut numbers = self
            .session
            .sites
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        numbers.number(self.hash, &all.join(" "), make, |(_, variants)| {
            let named = all.iter().zip(variants);
            named
                .flat_map(|(kernel, variant)| sites::names(kernel, variant))
                .collect()
        })
    }

    /// `fragments` are those of the programs, then those of the slots beside them.
    fn attachments<'f>(
        &'f self,
        programs: &[usize],
        fragments: &'f [Fragment],
    ) -> Vec<Attachment<'f>> {
        let choices = self.session.choices_of(programs);
        let own = |(at, index): (usize, &usize)| {
            let gate = self.session.gate_of(*index).map(Gate::Program);
            (*index, gate, choices.bit(at))
        };
        let beside = self.session.slots_beside(programs).into_iter();
        // Where programs choose different launches there are none.
        let beside = beside.map(|(slot, index)| (index, Some(Gate::Slot(bit(slot))), None));
        let attach = |((index, gate, choice), fragment): (_, &'f Fragment)| {
            let index: usize = index;
            let spec = &self.session.programs()[index].spec;
            Attachment {
                site: spec.site,
                scope: spec.scope,
                select: &self.selects[index],
                fragment,
                gate,
                choice,
            }
        };
        let all = programs.iter().enumerate().map(own).chain(beside);
        all.zip(fragments).map(attach).collect()
    }

    fn options(&self, slot_space: SlotSpace, first_site: u32) -> Options {
        Options {
            first_global_slot: self.session.first_free_slot(),
            slot_space,
            first_site,
            out_of_line: self.session.options.out_of_line,
            max_registers: self.session.options.max_registers,
            tensors: self.session.tensors.get().copied().flatten(),
        }
    }
}

/// `sm_90a` → 90.
fn sm_number(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?;
    digits
        .trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .ok()
}
