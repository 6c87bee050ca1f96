//! What the instructions of a function refer to: maps, variables, other functions, kernel functions
//! by name.
//!
//! The rules for what a relocation means are those of LLVM's `BPFRelocation.rst`: an `lddw` adds
//! its immediate to the symbol, a call against a section symbol counts slots from the start of that
//! section. Externs in `.ksyms` follow libbpf: what is weak and missing has address 0 and may not
//! be called.

use std::collections::BTreeMap;

use warpbpf_abi::helpers::HELPERS;
use warpbpf_abi::kfuncs::{KFUNCS, KfuncId};
use warpbpf_abi::nearest::nearest;
use warpbpf_ebpf::{DecodeError, DecodeErrorKind, Slot};

use crate::btf::{Btf, Type};
use crate::elf::{Elf, Place, R_BPF_64_32, R_BPF_64_64, Relocation, Symbol};
use crate::error::{FunctionDecodeError, ObjectError};
use crate::flavor::essential;
use crate::functions::{CALL, Function};
use crate::map_defs::Declared;

/// What code of an object can refer to.
pub(crate) struct Names<'a> {
    pub(crate) elf: &'a Elf<'a>,
    pub(crate) btf: Option<&'a Btf>,
    pub(crate) declared: &'a Declared,
    /// Which data section became which map.
    pub(crate) data: &'a BTreeMap<usize, u32>,
    pub(crate) functions: &'a BTreeMap<(usize, u32), Function>,
}

/// What an instruction refers to.
pub(crate) enum Reference<'a> {
    /// A map by its index.
    Map(u32),
    /// A byte of a data section.
    Value { map: u32, offset: u32 },
    /// A function, for a callback.
    Address(&'a Function),
    /// A function.
    Call(&'a Function),
    /// A kernel function that we serve, by [`KfuncId`].
    Kfunc(u32),
    /// A number in place of an address.
    Constant(u64),
    /// A call of something that does not exist, and what to say of it.
    Unresolved(String),
}

/// A function that is being linked into a program: what messages need.
pub(crate) struct Site<'l, 'a> {
    pub(crate) names: &'l Names<'a>,
    pub(crate) entry: &'l Function,
    pub(crate) function: &'a Function,
}

impl<'a> Site<'_, 'a> {
    /// What each instruction refers to, by slot within the function; `errors` gets what is wrong
    /// with others.
    pub(crate) fn references(&self, errors: &mut Vec<ObjectError>) -> BTreeMap<u32, Reference<'a>> {
        let function = self.function;
        let mut relocations = self.relocations();
        let mut references = BTreeMap::new();
        let mut slot = 0;
        while let Some(&insn) = function.slots.get(slot as usize) {
            let relocation = relocations.remove(&(u64::from(slot) * Slot::BYTES as u64));
            match self.reference(slot, insn, relocation) {
                Ok(Some(reference)) => drop(references.insert(slot, reference)),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
            slot += if insn.opcode == Slot::LDDW { 2 } else { 1 };
        }
        // Those that are left are of no instruction's first byte.
        for (offset, relocation) in &relocations {
            let slot = (offset / Slot::BYTES as u64) as u32;
            errors.push(self.refuse(slot, relocation, "is not at the start of an instruction"));
        }
        references
    }

    fn reference(
        &self,
        slot: u32,
        insn: Slot,
        relocation: Option<Relocation>,
    ) -> Result<Option<Reference<'a>>, ObjectError> {
        let (entry, function) = (self.entry, self.function);
        let wide = insn.opcode == Slot::LDDW;
        if wide && function.slots.len() == slot as usize + 1 {
            let error = DecodeError {
                slot,
                kind: DecodeErrorKind::HalfLddw,
            };
            let errors = vec![FunctionDecodeError {
                function: function.name.clone(),
                error,
            }];
            return Err(ObjectError::Decode {
                program: entry.name.clone(),
                errors,
            });
        }
        if function.jumps_out(slot) {
            let (program, function) = (entry.name.clone(), function.name.clone());
            return Err(ObjectError::JumpOut {
                program,
                function,
                slot,
            });
        }
        match relocation {
            Some(relocation) => self.relocated(slot, insn, relocation).map(Some),
            None if wide && insn.src != 0 => {
                let (program, function) = (entry.name.clone(), function.name.clone());
                Err(ObjectError::BakedReference {
                    program,
                    function,
                    slot,
                    kind: insn.src,
                })
            }
            None if insn.opcode == CALL && insn.src == 1 => {
                let target = i64::from(function.start) + i64::from(slot) + 1 + i64::from(insn.imm);
                let callee = self.callee(slot, function.section, target)?;
                Ok(Some(Reference::Call(callee)))
            }
            None => Ok(None),
        }
    }

    /// Relocations of the function by byte offset from its start.
    fn relocations(&self) -> BTreeMap<u64, Relocation> {
        let start = u64::from(self.function.start) * Slot::BYTES as u64;
        let end = start + (self.function.slots.len() * Slot::BYTES) as u64;
        let all = &self.names.elf.sections[self.function.section].relocations;
        let from = all.partition_point(|relocation| relocation.offset < start);
        let inside = all[from..]
            .iter()
            .take_while(|relocation| relocation.offset < end);
        inside
            .map(|relocation| (relocation.offset - start, *relocation))
            .collect()
    }

    fn symbol(&self, relocation: &Relocation) -> &'a Symbol {
        &self.names.elf.symbols[relocation.symbol]
    }

    fn refuse(
        &self,
        slot: u32,
        relocation: &Relocation,
        problem: impl Into<String>,
    ) -> ObjectError {
        ObjectError::Relocation {
            program: self.entry.name.clone(),
            function: self.function.name.clone(),
            slot,
            symbol: self.names.elf.symbol_label(self.symbol(relocation)),
            problem: problem.into(),
        }
    }

    fn relocated(
        &self,
        slot: u32,
        insn: Slot,
        relocation: Relocation,
    ) -> Result<Reference<'a>, ObjectError> {
        let names = self.names;
        let symbol = self.symbol(&relocation);
        let section = match symbol.place {
            Place::Section(section) => section,
            Place::Undefined => return self.external(slot, insn, relocation, symbol),
            Place::Other => {
                return Err(self.refuse(
                    slot,
                    &relocation,
                    "is neither defined here nor elsewhere",
                ));
            }
        };
        match (relocation.kind, insn.opcode) {
            (R_BPF_64_32, CALL) if insn.src == 1 => {
                let target = (symbol.value / Slot::BYTES as u64) as i64;
                Ok(Reference::Call(self.callee(
                    slot,
                    section,
                    target.saturating_add(1 + i64::from(insn.imm)),
                )?))
            }
            (R_BPF_64_64, Slot::LDDW) => {
                let offset = i128::from(symbol.value) + i128::from(insn.imm);
                let outside = || {
                    self.refuse(
                        slot,
                        &relocation,
                        format!("points to byte {offset}, outside its section"),
                    )
                };
                let offset = u32::try_from(offset).map_err(|_| outside())?;
                if Some(section) == names.declared.section {
                    let map = names.declared.at(u64::from(offset));
                    return map.map(Reference::Map).ok_or_else(|| {
                        self.refuse(
                            slot,
                            &relocation,
                            format!("points to byte {offset} of `.maps`, where no map starts"),
                        )
                    });
                }
                if let Some(map) = names.data.get(&section) {
                    if u64::from(offset) > names.elf.sections[section].size {
                        return Err(outside());
                    }
                    return Ok(Reference::Value { map: *map, offset });
                }
                if names.elf.sections[section].executable {
                    let target = i64::from(offset / Slot::BYTES as u32);
                    return Ok(Reference::Address(self.callee(slot, section, target)?));
                }
                let name = &names.elf.sections[section].name;
                Err(self.refuse(
                    slot,
                    &relocation,
                    format!("is in section `{name}`; variables can only be in `.data`, `.rodata`, `.bss` and sections named after them"),
                ))
            }
            (kind, _) => Err(self.refuse(
                slot,
                &relocation,
                format!("has type {kind}, which does not fit this instruction"),
            )),
        }
    }

    fn callee(&self, slot: u32, section: usize, target: i64) -> Result<&'a Function, ObjectError> {
        let key = u32::try_from(target).ok().map(|target| (section, target));
        key.and_then(|key| self.names.functions.get(&key))
            .ok_or_else(|| ObjectError::CallTarget {
                program: self.entry.name.clone(),
                function: self.function.name.clone(),
                slot,
                section: self.names.elf.sections[section].name.clone(),
                target,
            })
    }

    /// A symbol that this object does not define: a kernel function that we serve, or one that may
    /// be missing.
    fn external(
        &self,
        slot: u32,
        insn: Slot,
        relocation: Relocation,
        symbol: &Symbol,
    ) -> Result<Reference<'a>, ObjectError> {
        let declared = self.names.btf.and_then(|btf| extern_of(btf, &symbol.name));
        let function = match declared {
            Some(Extern::KernelFunction) => true,
            Some(Extern::KernelVariable) => false,
            Some(Extern::Setting) => {
                let advice = "is a setting of the running kernel and does not exist on a GPU; use a `const volatile` variable";
                return Err(self.refuse_extern(symbol, " in .kconfig", advice.to_owned()));
            }
            None => {
                let helpers = HELPERS.iter().map(|helper| helper.name);
                let named = symbol.name.strip_prefix("bpf_").unwrap_or(&symbol.name);
                let meant = match nearest(named, helpers) {
                    Some(helper) => format!(" (did you mean `bpf_{helper}`?)"),
                    None => String::new(),
                };
                let advice = format!(
                    "is defined in no section of this object{meant}; define it, or link the objects with `warpbpf link`"
                );
                return Err(self.refuse_extern(symbol, "", advice));
            }
        };
        let served = KfuncId::from_name(essential(&symbol.name)).filter(|_| function);
        let missing = || {
            let advice = if function {
                let names: Vec<_> = KFUNCS.iter().map(|(_, name)| *name).collect();
                let meant = match nearest(&symbol.name, names.iter().copied()) {
                    Some(name) => format!("; did you mean `{name}`?"),
                    None => String::new(),
                };
                format!(
                    "is a kernel function that is not served (these are: {}{meant}); use a helper, or declare it `__weak` and ask `bpf_ksym_exists`",
                    names.join(", ")
                )
            } else {
                "is a kernel variable and does not exist on a GPU; use a helper, or declare it `__weak` and ask `bpf_ksym_exists`".to_owned()
            };
            self.refuse_extern(symbol, " in .ksyms", advice)
        };
        match (relocation.kind, insn.opcode, served) {
            (R_BPF_64_32, CALL, Some(kfunc)) => Ok(Reference::Kfunc(kfunc as u32)),
            // Programs only ask whether the address is 0.
            (R_BPF_64_64, Slot::LDDW, Some(_)) => Ok(Reference::Constant(1)),
            (R_BPF_64_32, CALL, None) if symbol.weak && function => {
                Ok(Reference::Unresolved(format!(
                    "kernel function `{}` is not served here; call it only if `bpf_ksym_exists({0})`",
                    symbol.name
                )))
            }
            (R_BPF_64_64, Slot::LDDW, None) if symbol.weak => Ok(Reference::Constant(0)),
            (R_BPF_64_32, CALL, None) | (R_BPF_64_64, Slot::LDDW, None) => Err(missing()),
            (kind, ..) => Err(self.refuse(
                slot,
                &relocation,
                format!("has type {kind}, which does not fit this instruction"),
            )),
        }
    }

    fn refuse_extern(&self, symbol: &Symbol, place: &'static str, advice: String) -> ObjectError {
        ObjectError::Extern {
            program: self.entry.name.clone(),
            function: self.function.name.clone(),
            symbol: symbol.name.clone(),
            place,
            advice,
        }
    }
}

/// What the declaration of an extern says.
pub(crate) enum Extern {
    KernelFunction,
    KernelVariable,
    Setting,
}

pub(crate) fn extern_of(btf: &Btf, symbol: &str) -> Option<Extern> {
    let declared = |section: &str| {
        btf.data_section(section)?
            .iter()
            .find_map(|var| match btf.type_by_id(var.ty)? {
                Type::Func { name, .. } if name == symbol => Some(Extern::KernelFunction),
                Type::Var { name, .. } if name == symbol => Some(Extern::KernelVariable),
                _ => None,
            })
    };
    if declared(".kconfig").is_some() {
        return Some(Extern::Setting);
    }
    declared(".ksyms")
}
