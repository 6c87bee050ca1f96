//! Who defines what: every global name has one definition, or none if it is a kernel's.

use std::collections::BTreeMap;

use crate::elf::{Place, Symbol};
use crate::link::agree;
use crate::link::error::LinkError;
use crate::link::input::Input;
use crate::link::layout::Layout;
use crate::references::extern_of;

pub(super) const STT_SECTION: u8 = 3;
const STT_FILE: u8 = 4;
const STV_DEFAULT: u8 = 0;

/// A symbol of the result.
pub(super) struct Linked {
    pub(super) name: String,
    pub(super) global: bool,
    pub(super) weak: bool,
    pub(super) kind: u8,
    pub(super) visibility: u8,
    /// Section of the result and offset in it; `None` if it is undefined.
    pub(super) place: Option<(usize, u64)>,
    pub(super) size: u64,
}

/// Where a global name is defined.
pub(super) struct Global {
    /// Index of the object, the first that declares it if none defines it.
    pub(super) object: usize,
    /// Index of the symbol in that object.
    symbol: usize,
    pub(super) defined: bool,
    weak: bool,
    visibility: u8,
}

pub(super) struct Symbols {
    /// Without the null symbol: locals (those of the sections first), then globals.
    pub(super) all: Vec<Linked>,
    /// By object and by symbol there: the index in `all`.
    pub(super) index: Vec<Vec<Option<usize>>>,
    pub(super) globals: BTreeMap<String, Global>,
}

impl Symbols {
    /// Whether object `object` holds the definition of `name` that was taken, or the only one
    /// because it is static.
    pub(super) fn is_taken(&self, object: usize, name: &str) -> bool {
        self.globals
            .get(name)
            .is_none_or(|global| global.object == object)
    }
}

/// Whether a symbol can be referred to by name from another object, and is worth a name here.
fn is_global(symbol: &Symbol) -> bool {
    symbol.global && !symbol.name.is_empty() && symbol.kind != STT_FILE
}

pub(super) fn resolve(inputs: &[Input<'_>], layout: &Layout) -> Result<Symbols, LinkError> {
    let globals = globals(inputs, layout)?;
    let mut all: Vec<Linked> = (0..layout.sections.len())
        .map(|section| Linked {
            name: String::new(),
            global: false,
            weak: false,
            kind: STT_SECTION,
            visibility: STV_DEFAULT,
            place: Some((section, 0)),
            size: 0,
        })
        .collect();
    let mut index: Vec<Vec<Option<usize>>> = inputs
        .iter()
        .map(|input| vec![None; input.elf.symbols.len()])
        .collect();
    for (object, input) in inputs.iter().enumerate() {
        for (at, symbol) in input.elf.symbols.iter().enumerate() {
            let Place::Section(section) = symbol.place else {
                continue;
            };
            let Some((out, shift)) = layout.placed[object][section] else {
                continue;
            };
            if symbol.kind == STT_SECTION {
                index[object][at] = Some(out);
            } else if !symbol.global && symbol.kind != STT_FILE {
                index[object][at] = Some(all.len());
                all.push(linked(input, symbol, Some((out, shift)))?);
            }
        }
    }
    let mut of_name = BTreeMap::new();
    for (name, global) in &globals {
        let input = &inputs[global.object];
        let symbol = &input.elf.symbols[global.symbol];
        let place = match symbol.place {
            Place::Section(section) => layout.placed[global.object][section],
            Place::Undefined | Place::Other => None,
        };
        of_name.insert(name.as_str(), all.len());
        let weak = global.weak;
        let visibility = global.visibility;
        all.push(Linked {
            weak,
            visibility,
            ..linked(input, symbol, place)?
        });
    }
    for (object, input) in inputs.iter().enumerate() {
        for (at, symbol) in input.elf.symbols.iter().enumerate() {
            if is_global(symbol) {
                index[object][at] = of_name.get(symbol.name.as_str()).copied();
            }
        }
    }
    Ok(Symbols {
        all,
        index,
        globals,
    })
}

fn linked(
    input: &Input<'_>,
    symbol: &Symbol,
    place: Option<(usize, u64)>,
) -> Result<Linked, LinkError> {
    let place = match place {
        Some((section, shift)) => {
            let value = symbol.value.checked_add(shift);
            let outside =
                || input.damaged(format!("symbol `{}` is outside its section", symbol.name));
            Some((section, value.ok_or_else(outside)?))
        }
        None => None,
    };
    Ok(Linked {
        name: symbol.name.clone(),
        global: symbol.global,
        weak: symbol.weak,
        kind: symbol.kind,
        visibility: symbol.visibility,
        place,
        size: symbol.size,
    })
}

fn globals(inputs: &[Input<'_>], layout: &Layout) -> Result<BTreeMap<String, Global>, LinkError> {
    let mut globals: BTreeMap<String, Global> = BTreeMap::new();
    for (object, input) in inputs.iter().enumerate() {
        for (at, symbol) in input.elf.symbols.iter().enumerate() {
            if !is_global(symbol) {
                continue;
            }
            let defined = match symbol.place {
                Place::Undefined => false,
                // A licence that another object brought already.
                Place::Section(section) if layout.placed[object][section].is_none() => continue,
                Place::Section(_) => true,
                Place::Other => {
                    return Err(input.damaged(format!("symbol `{}` is in no section", symbol.name)));
                }
            };
            let here = Global {
                object,
                symbol: at,
                defined,
                weak: symbol.weak,
                visibility: symbol.visibility,
            };
            let Some(known) = globals.get_mut(&symbol.name) else {
                globals.insert(symbol.name.clone(), here);
                continue;
            };
            agree::symbol(&symbol.name, &inputs[known.object], input)?;
            let visibility = stricter(known.visibility, here.visibility);
            let both = known.defined && here.defined;
            if both && !known.weak && !here.weak && !is_map(input, symbol) {
                return Err(LinkError::Duplicate {
                    symbol: symbol.name.clone(),
                    first: inputs[known.object].name.to_owned(),
                    second: input.name.to_owned(),
                });
            }
            let better = here.defined && (!known.defined || known.weak && !here.weak);
            if better {
                *known = here;
            } else if !known.defined && !here.defined {
                // One that must exist is enough.
                known.weak &= here.weak;
            }
            known.visibility = visibility;
        }
    }
    for (name, global) in globals.iter().filter(|(_, global)| !global.defined) {
        let input = &inputs[global.object];
        let kernel = inputs.iter().any(|input| {
            input
                .btf
                .as_ref()
                .is_some_and(|btf| extern_of(btf, name).is_some())
        });
        if !kernel && !global.weak {
            return Err(LinkError::Undefined {
                symbol: name.clone(),
                object: input.name.to_owned(),
            });
        }
    }
    typed(inputs, layout, &globals)?;
    Ok(globals)
}

/// Checks that whatever one object takes from another has a type in both, for else nobody has
/// compared them.
fn typed(
    inputs: &[Input<'_>],
    layout: &Layout,
    globals: &BTreeMap<String, Global>,
) -> Result<(), LinkError> {
    for (object, input) in inputs.iter().enumerate() {
        for symbol in input.elf.symbols.iter().filter(|s| is_global(s)) {
            let dropped = matches!(symbol.place, Place::Section(section) if layout.placed[object][section].is_none());
            let Some(global) = globals
                .get(&symbol.name)
                .filter(|global| global.defined && global.object != object && !dropped)
            else {
                continue;
            };
            let definer = &inputs[global.object];
            let untyped = [input, definer]
                .into_iter()
                .find(|input| input.btf.is_none());
            if let Some(untyped) = untyped {
                return Err(LinkError::Untyped {
                    symbol: symbol.name.clone(),
                    user: input.name.to_owned(),
                    definer: definer.name.to_owned(),
                    untyped: untyped.name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn is_map(input: &Input<'_>, symbol: &Symbol) -> bool {
    matches!(symbol.place, Place::Section(section) if input.elf.sections[section].name == ".maps")
}

/// Internal (1), hidden (2) and protected (3) are stricter than default (0), the smaller the
/// stricter.
fn stricter(a: u8, b: u8) -> u8 {
    match (a, b) {
        (STV_DEFAULT, other) | (other, STV_DEFAULT) => other,
        (a, b) => a.min(b),
    }
}
