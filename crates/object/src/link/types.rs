//! One set of types for all objects, without repetitions, and the records that refer to it.
//!
//! Types are equal if no question about them has different answers: first all with the same kind,
//! names and numbers are put together, then those apart whose references are apart, until nothing
//! changes. That joins cyclic types (`struct list { struct list *next; }`) too, which a comparison
//! of one pair at a time does not.

use std::collections::{BTreeMap, HashMap};

use crate::btf::{Linkage, SectionVar, Type, TypeId};
use crate::btf_ext::{CoreRecord, FunctionRecord, LineRecord, SectionExt};
use crate::btf_write::{self, Strings, each_reference, put};
use crate::link::agree;
use crate::link::error::LinkError;
use crate::link::input::Input;
use crate::link::layout::Layout;
use crate::link::symbols::Symbols;

/// How often types are put apart before repetitions are left in: only a damaged file has chains
/// that long.
const MAX_ROUNDS: usize = 64;

/// Contents of the sections that describe the others.
pub(super) struct Merged {
    /// `.BTF`, if any object has one.
    pub(super) btf: Option<Vec<u8>>,
    /// `.BTF.ext`, if there is anything to say.
    pub(super) ext: Option<Vec<u8>>,
}

pub(super) fn merge(
    inputs: &[Input<'_>],
    layout: &Layout,
    symbols: &Symbols,
) -> Result<Merged, LinkError> {
    if inputs.iter().all(|input| input.btf.is_none()) {
        return Ok(Merged {
            btf: None,
            ext: None,
        });
    }
    let all = All::collect(inputs, symbols);
    let classes = all.classes();
    let mut merger = Merger {
        inputs,
        layout,
        symbols,
        all: &all,
        number: vec![TypeId::VOID; all.types.len()],
        types: Vec::new(),
        strings: Strings::new(),
    };
    merger.number_types(&classes);
    merger.data_sections();
    let ext = merger.records();
    let too_large = || LinkError::TooLarge {
        what: "a type or data section with more than 65,535 members",
    };
    let btf = btf_write::section(&merger.types, merger.strings).ok_or_else(too_large)?;
    Ok(Merged {
        btf: Some(btf),
        ext,
    })
}

/// The types of all objects in one row.
struct All<'a> {
    types: Vec<&'a Type>,
    /// By object: where its type 0 stands.
    base: Vec<usize>,
    /// The type that stands for this one: the definition of a function or variable for its
    /// declarations.
    instead: Vec<usize>,
}

impl<'a> All<'a> {
    fn collect(inputs: &'a [Input<'_>], symbols: &Symbols) -> All<'a> {
        let mut all = All {
            types: Vec::new(),
            base: Vec::new(),
            instead: Vec::new(),
        };
        for input in inputs {
            all.base.push(all.types.len());
            if let Some(btf) = &input.btf {
                all.types.extend(btf.types().map(|(_, ty)| ty));
            }
        }
        all.instead = (0..all.types.len()).collect();
        for (name, global) in &symbols.globals {
            let definition = |object: usize| {
                let id = agree::declared(inputs[object].btf.as_ref()?, name)?;
                Some(all.base[object] + id.0 as usize)
            };
            let Some(target) = definition(global.object) else {
                continue;
            };
            let declared: Vec<usize> = (0..inputs.len()).filter_map(definition).collect();
            for other in declared {
                if std::mem::discriminant(all.types[other])
                    == std::mem::discriminant(all.types[target])
                {
                    all.instead[other] = target;
                }
            }
        }
        all
    }

    /// The type `id` of object `object` in the row; `None` for a number that does not exist.
    fn at(&self, object: usize, id: TypeId) -> Option<usize> {
        let end = self.base.get(object + 1).copied();
        let at = self.base[object].checked_add(id.0 as usize)?;
        (at < end.unwrap_or(self.types.len())).then_some(at)
    }

    /// For each type the class that it belongs to; equal types are in one class.
    fn classes(&self) -> Vec<usize> {
        let mut object_of = Vec::with_capacity(self.types.len());
        for (object, base) in self.base.iter().enumerate() {
            let end = self
                .base
                .get(object + 1)
                .copied()
                .unwrap_or(self.types.len());
            object_of.extend(std::iter::repeat_n(object, end - base));
        }
        let mut shapes: HashMap<Vec<Part<'_>>, usize> = HashMap::new();
        let mut class = Vec::with_capacity(self.types.len());
        let mut references: Vec<Vec<Option<usize>>> = Vec::with_capacity(self.types.len());
        for (at, ty) in self.types.iter().enumerate() {
            let (shape, ids) = shape(ty, self.instead[at]);
            let next = shapes.len();
            class.push(*shapes.entry(shape).or_insert(next));
            let object = object_of[at];
            references.push(ids.into_iter().map(|id| self.at(object, id)).collect());
        }
        let mut count = shapes.len();
        for _ in 0..MAX_ROUNDS {
            let mut seen: HashMap<Vec<Option<usize>>, usize> = HashMap::new();
            let mut finer = Vec::with_capacity(class.len());
            for (at, references) in references.iter().enumerate() {
                let mut key = vec![Some(class[at])];
                key.extend(references.iter().map(|at| at.map(|at| class[at])));
                let next = seen.len();
                finer.push(*seen.entry(key).or_insert(next));
            }
            class = finer;
            if seen.len() == count {
                return class;
            }
            count = seen.len();
        }
        // `void` stays one type: it has no number of its own.
        let start = |at: usize| matches!(self.types[at], Type::Void);
        (0..self.types.len())
            .map(|at| if start(at) { 0 } else { self.instead[at] })
            .collect()
    }
}

/// Part of what a type says by itself.
#[derive(PartialEq, Eq, Hash)]
enum Part<'a> {
    Number(u64),
    Text(&'a str),
}

/// What a type says by itself, and what it refers to. Functions, variables and data sections are
/// only equal to themselves: `identity`.
fn shape(ty: &Type, identity: usize) -> (Vec<Part<'_>>, Vec<TypeId>) {
    use Part::{Number, Text};
    let mut parts = vec![Text(ty.name().unwrap_or_default())];
    let mut kind = |number: u64, more: &[u64]| {
        parts.push(Number(number));
        parts.extend(more.iter().map(|number| Number(*number)));
    };
    match ty {
        Type::Void => kind(0, &[]),
        Type::Int {
            size,
            bits,
            signed,
            char,
            bool,
            ..
        } => kind(
            1,
            &[
                u64::from(*size),
                u64::from(*bits),
                u64::from(*signed),
                u64::from(*char),
                u64::from(*bool),
            ],
        ),
        Type::Ptr { .. } => kind(2, &[]),
        Type::Array { count, .. } => kind(3, &[u64::from(*count)]),
        Type::Struct { size, members, .. } | Type::Union { size, members, .. } => {
            kind(
                if matches!(ty, Type::Struct { .. }) {
                    4
                } else {
                    5
                },
                &[u64::from(*size)],
            );
            for member in members {
                parts.push(Text(&member.name));
                parts.push(Number(
                    u64::from(member.bit_size) << 32 | u64::from(member.bit_offset),
                ));
            }
        }
        Type::Enum {
            size,
            signed,
            values,
            ..
        } => {
            kind(6, &[u64::from(*size), u64::from(*signed)]);
            for (name, value) in values {
                parts.push(Text(name));
                parts.push(Number(*value as u64));
            }
        }
        Type::Fwd { union, .. } => kind(7, &[u64::from(*union)]),
        Type::Typedef { .. } => kind(8, &[]),
        Type::Volatile { .. } => kind(9, &[]),
        Type::Const { .. } => kind(10, &[]),
        Type::Restrict { .. } => kind(11, &[]),
        Type::FuncProto { params, .. } => {
            kind(13, &[]);
            parts.extend(params.iter().map(|(name, _)| Text(name)));
        }
        Type::Func { .. } | Type::Var { .. } | Type::DataSec { .. } => {
            return (vec![Number(12), Number(identity as u64)], Vec::new());
        }
        Type::Float { size, .. } => kind(16, &[u64::from(*size)]),
        Type::DeclTag { component, .. } => kind(17, &[component.map_or(u64::MAX, u64::from)]),
        Type::TypeTag { .. } => kind(18, &[]),
    }
    let mut ids = Vec::new();
    each_reference(&mut ty.clone(), &mut |id| ids.push(*id));
    (parts, ids)
}

struct Merger<'m, 'a> {
    inputs: &'m [Input<'a>],
    layout: &'m Layout,
    symbols: &'m Symbols,
    all: &'m All<'m>,
    /// Number in the result, by place in the row.
    number: Vec<TypeId>,
    /// Type 1 and those after it.
    types: Vec<Type>,
    strings: Strings,
}

impl Merger<'_, '_> {
    /// The number of type `id` of object `object` in the result; `void` for one that does not
    /// exist.
    fn renumbered(&self, object: usize, id: TypeId) -> TypeId {
        self.all
            .at(object, id)
            .map_or(TypeId::VOID, |at| self.number[at])
    }

    fn number_types(&mut self, classes: &[usize]) {
        let mut of_class: HashMap<usize, TypeId> = HashMap::new();
        let mut taken = Vec::new();
        for (at, ty) in self.all.types.iter().enumerate() {
            if matches!(ty, Type::Void | Type::DataSec { .. }) {
                continue;
            }
            self.number[at] = *of_class.entry(classes[at]).or_insert_with(|| {
                taken.push(self.all.instead[at]);
                TypeId(taken.len() as u32)
            });
        }
        for at in taken {
            let object = self.all.base.partition_point(|base| *base <= at) - 1;
            let mut ty = self.all.types[at].clone();
            each_reference(&mut ty, &mut |id| *id = self.renumbered(object, *id));
            self.types.push(ty);
        }
    }

    /// Data sections hold the variables of all objects that were taken, where they are now.
    fn data_sections(&mut self) {
        let mut order: Vec<&str> = Vec::new();
        let mut vars: BTreeMap<&str, Vec<SectionVar>> = BTreeMap::new();
        for (object, input) in self.inputs.iter().enumerate() {
            let Some(btf) = &input.btf else { continue };
            for (_, ty) in btf.types() {
                let Type::DataSec {
                    name,
                    vars: entries,
                    ..
                } = ty
                else {
                    continue;
                };
                let kernel = matches!(name.as_str(), ".ksyms" | ".kconfig");
                let shift = input
                    .elf
                    .section_index(name)
                    .and_then(|section| self.layout.placed[object][section]);
                if !kernel && shift.is_none() {
                    continue;
                }
                let merged = vars.entry(name).or_default();
                if merged.is_empty() && !order.contains(&name.as_str()) {
                    order.push(name);
                }
                for entry in entries {
                    let ty = self.renumbered(object, entry.ty);
                    let (symbol, linkage) = match btf.type_by_id(entry.ty) {
                        Some(
                            Type::Var { name, linkage, .. } | Type::Func { name, linkage, .. },
                        ) => (name, *linkage),
                        _ => continue,
                    };
                    let (offset, keep) = if kernel {
                        (0, merged.iter().all(|var| var.ty != ty))
                    } else {
                        let taken = match linkage {
                            Linkage::Static => true,
                            Linkage::Global => self.symbols.is_taken(object, symbol),
                            Linkage::Extern => false,
                        };
                        let shift = shift.map_or(0, |(_, shift)| shift);
                        (entry.offset.saturating_add(shift as u32), taken)
                    };
                    if keep {
                        let size = entry.size;
                        merged.push(SectionVar { ty, offset, size });
                    }
                }
            }
        }
        for name in order {
            let mut vars = vars.remove(name).unwrap_or_default();
            if vars.is_empty() {
                continue;
            }
            vars.sort_by_key(|var| var.offset);
            let size = self
                .layout
                .section(name)
                .map_or(0, |section| self.layout.sections[section].size as u32);
            let name = name.to_owned();
            self.types.push(Type::DataSec { name, size, vars });
        }
    }

    fn records(&mut self) -> Option<Vec<u8>> {
        let mut merged: BTreeMap<String, SectionExt> = BTreeMap::new();
        for (object, input) in self.inputs.iter().enumerate() {
            let Some(btf) = &input.btf else { continue };
            for (name, records) in &input.ext.sections {
                let placed = input.elf.section_index(name);
                let Some((_, shift)) =
                    placed.and_then(|section| self.layout.placed[object][section])
                else {
                    continue;
                };
                let moved = |offset: u32| offset.saturating_add(shift as u32);
                let into = merged.entry(name.clone()).or_default();
                for record in &records.functions {
                    into.functions.push(FunctionRecord {
                        offset: moved(record.offset),
                        ty: self.renumbered(object, record.ty),
                    });
                }
                for record in &records.lines {
                    let file = self
                        .strings
                        .add(btf.string(record.file).unwrap_or_default());
                    let text = self
                        .strings
                        .add(btf.string(record.text).unwrap_or_default());
                    into.lines.push(LineRecord {
                        offset: moved(record.offset),
                        file,
                        text,
                        ..*record
                    });
                }
                for record in &records.core {
                    let access = self
                        .strings
                        .add(btf.string(record.access).unwrap_or_default());
                    into.core.push(CoreRecord {
                        offset: moved(record.offset),
                        ty: self.renumbered(object, record.ty),
                        access,
                        kind: record.kind,
                    });
                }
            }
        }
        if merged.is_empty() {
            return None;
        }
        for section in merged.values_mut() {
            section.functions.sort_by_key(|record| record.offset);
            section.lines.sort_by_key(|record| record.offset);
            section.core.sort_by_key(|record| record.offset);
        }
        Some(write_records(&mut self.strings, &merged))
    }
}

/// A `.BTF.ext` section, by section of code.
pub(super) fn write_records(
    strings: &mut Strings,
    merged: &BTreeMap<String, SectionExt>,
) -> Vec<u8> {
    let (mut functions, mut lines, mut core) = (Vec::new(), Vec::new(), Vec::new());
    put(&mut functions, &[8]);
    put(&mut lines, &[16]);
    put(&mut core, &[16]);
    for (name, section) in merged {
        let name = strings.add(name);
        if !section.functions.is_empty() {
            put(&mut functions, &[name, section.functions.len() as u32]);
        }
        for record in &section.functions {
            put(&mut functions, &[record.offset, record.ty.0]);
        }
        if !section.lines.is_empty() {
            put(&mut lines, &[name, section.lines.len() as u32]);
        }
        for record in &section.lines {
            let position = record.line << 10 | record.column;
            put(
                &mut lines,
                &[record.offset, record.file, record.text, position],
            );
        }
        if !section.core.is_empty() {
            put(&mut core, &[name, section.core.len() as u32]);
        }
        for record in &section.core {
            put(
                &mut core,
                &[record.offset, record.ty.0, record.access, record.kind],
            );
        }
    }
    let mut out = Vec::new();
    out.extend(0xeb9fu16.to_le_bytes());
    out.extend([1, 0]);
    // A table of no records is left out as a whole.
    for table in [&mut functions, &mut lines, &mut core] {
        if table.len() == 4 {
            table.clear();
        }
    }
    let (f, l, c) = (
        functions.len() as u32,
        lines.len() as u32,
        core.len() as u32,
    );
    put(&mut out, &[32, 0, f, f, l, f + l, c]);
    out.extend(functions);
    out.extend(lines);
    out.extend(core);
    out
}
