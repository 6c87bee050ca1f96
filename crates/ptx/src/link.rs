//! Several modules made one, as a device linker does: what one declares `.extern` is what another
//! defines, what is local to one stays apart from what others call the same.
//!
//! The text of functions and variables is not changed but for names and numbers of files. Debug
//! sections do not survive, except for the strings that `.loc` refers to: their offsets into each
//! other would have to be computed anew.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use crate::ast::{Function, Linkage, Module, Variable};
use crate::error::PtxError;
use crate::index::index;
use crate::lex::Cursor;
use crate::query::Target;

/// Why modules cannot be linked. A module is named by its number, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// One of them is not PTX.
    #[error("module {number}: {error}")]
    Ptx {
        /// Which.
        number: usize,
        /// What is wrong.
        error: PtxError,
    },
    /// There are none.
    #[error("there is no module to link")]
    Nothing,
    /// They are for addresses of different sizes.
    #[error("module {number} has `.address_size {bits}`, the first one has `{first}`")]
    AddressSize {
        /// Which.
        number: usize,
        /// What it has.
        bits: u32,
        /// What the first has.
        first: u32,
    },
    /// Two of them define a name that others could mean.
    #[error("`{name}` is defined by module {first} and by module {second}")]
    Twice {
        /// The name.
        name: String,
        /// One that defines it.
        first: usize,
        /// Another.
        second: usize,
    },
    /// None of them defines a variable that one of them uses.
    #[error("variable `{name}` is declared by module {number} and defined by none")]
    Undefined {
        /// The name.
        name: String,
        /// A module that declares it.
        number: usize,
    },
}

/// Links modules. One alone comes back as it is.
///
/// Functions that none of them defines stay declared: a driver has some of its own (`vprintf`).
///
/// # Errors
/// See [`LinkError`].
///
/// # Examples
/// ```
/// let head = ".version 8.3\n.target sm_90\n.address_size 64\n";
/// let user = format!("{head}.extern .func f();\n.visible .entry k() {{ call f; ret; }}");
/// let owner = format!("{head}.visible .func f() {{ ret; }}");
/// let linked = warpbpf_ptx::link::link(&[&user, &owner]).unwrap();
/// let module = warpbpf_ptx::index(&linked).unwrap();
/// assert!(module.function("f").unwrap().body.is_some());
/// ```
pub fn link(texts: &[&str]) -> Result<String, LinkError> {
    let units = texts.iter().enumerate();
    let units = units.map(|(number, &text)| {
        let module = index(text).map_err(|error| LinkError::Ptx { number, error })?;
        Ok(Unit { number, module })
    });
    let units: Vec<Unit<'_>> = units.collect::<Result<_, LinkError>>()?;
    let Some(first) = units.first() else {
        return Err(LinkError::Nothing);
    };
    if units.len() == 1 {
        return Ok(texts[0].to_owned());
    }
    for unit in &units {
        if unit.module.address_size != first.module.address_size {
            return Err(LinkError::AddressSize {
                number: unit.number,
                bits: unit.module.address_size,
                first: first.module.address_size,
            });
        }
    }
    let owners = owners(&units)?;
    let shared_names: HashSet<&str> = all_names(&units).map(|(_, name)| name).collect();
    let mut out = header(&units);
    let mut parts = Parts::default();
    let mut files = 0;
    for unit in &units {
        let writer = Writer {
            unit,
            owners: &owners,
            renamed: unit.renamed(&units, &shared_names),
            files,
        };
        writer.write(&mut parts)?;
        files += unit
            .module
            .files
            .iter()
            .map(|(index, _)| *index)
            .max()
            .unwrap_or(0);
    }
    for part in [
        &parts.files,
        &parts.prototypes,
        &parts.variables,
        &parts.functions,
        &parts.aliases,
    ] {
        out += part;
    }
    if !parts.strings.is_empty() {
        let _ = write!(out, ".section .debug_str\n{{\n{}}}\n", parts.strings);
    }
    Ok(out)
}

struct Unit<'a> {
    number: usize,
    module: Module<'a>,
}

/// Whose definition of a name counts.
#[derive(Clone, Copy)]
struct Owner {
    unit: usize,
    linkage: Linkage,
    /// Of a `.common` variable.
    size: u64,
}

#[derive(Default)]
struct Parts {
    files: String,
    prototypes: String,
    variables: String,
    functions: String,
    aliases: String,
    strings: String,
    /// Functions of which a prototype is written, and what none defines that is.
    declared: HashSet<String>,
}

fn all_names<'u, 'a>(
    units: &'u [Unit<'a>],
) -> impl Iterator<Item = (usize, &'a str)> + use<'u, 'a> {
    units.iter().flat_map(|unit| {
        let functions = unit.module.functions.iter().map(|f| f.name);
        let variables = unit.module.variables.iter().map(|v| v.name);
        functions.chain(variables).map(|name| (unit.number, name))
    })
}

/// Whoever defines each name that modules have in common.
fn owners<'a>(units: &[Unit<'a>]) -> Result<HashMap<&'a str, Owner>, LinkError> {
    let mut owners: HashMap<&'a str, Owner> = HashMap::new();
    let mut add = |name: &'a str, new: Owner| {
        let Some(old) = owners.get_mut(name) else {
            owners.insert(name, new);
            return Ok(());
        };
        let is_weak = |owner: &Owner| matches!(owner.linkage, Linkage::Weak | Linkage::Common);
        match (is_weak(old), is_weak(&new)) {
            (false, false) if old.unit != new.unit => Err(LinkError::Twice {
                name: name.to_owned(),
                first: old.unit,
                second: new.unit,
            }),
            (true, false) => {
                *old = new;
                Ok(())
            }
            (true, true) if new.size > old.size => {
                *old = new;
                Ok(())
            }
            _ => Ok(()),
        }
    };
    for unit in units {
        for function in unit.module.functions.iter().filter(|f| f.body.is_some()) {
            let linkage = unit.linkage_of(function);
            if linkage != Linkage::Local {
                let unit = unit.number;
                add(
                    function.name,
                    Owner {
                        unit,
                        linkage,
                        size: 0,
                    },
                )?;
            }
        }
        for variable in &unit.module.variables {
            if !matches!(variable.linkage, Linkage::Local | Linkage::Extern) {
                let size = variable.size().unwrap_or(0);
                let (unit, linkage) = (unit.number, variable.linkage);
                add(
                    variable.name,
                    Owner {
                        unit,
                        linkage,
                        size,
                    },
                )?;
            }
        }
    }
    for unit in units {
        for variable in &unit.module.variables {
            let is_memory = matches!(variable.space, "global" | "const");
            if variable.linkage == Linkage::Extern
                && is_memory
                && !owners.contains_key(variable.name)
            {
                return Err(LinkError::Undefined {
                    name: variable.name.to_owned(),
                    number: unit.number,
                });
            }
        }
    }
    Ok(owners)
}

fn header(units: &[Unit<'_>]) -> String {
    let version = units.iter().map(|unit| unit.module.version).max();
    let (major, minor) = version.unwrap_or((1, 0));
    let newest = units.iter().max_by_key(|unit| {
        let target = unit.module.target();
        target.map_or((0, None), |Target { number, suffix }| (number, suffix))
    });
    let mut targets: Vec<&str> = newest.map_or_else(Vec::new, |unit| unit.module.targets.clone());
    for other in units.iter().flat_map(|unit| &unit.module.targets) {
        // `debug` goes with debug sections.
        let known = targets.contains(other) || Target::parse(other).is_some();
        if !known && *other != "debug" {
            targets.push(other);
        }
    }
    targets.retain(|target| *target != "debug");
    let size = units.first().map_or(64, |unit| unit.module.address_size);
    format!(
        ".version {major}.{minor}\n.target {}\n.address_size {size}\n",
        targets.join(", ")
    )
}

impl<'a> Unit<'a> {
    /// The strongest word that any declaration in this module says of a function.
    fn linkage_of(&self, function: &Function<'a>) -> Linkage {
        if function.is_entry && function.linkage == Linkage::Local {
            // A driver finds every kernel.
            return Linkage::Visible;
        }
        if function.linkage != Linkage::Local {
            return function.linkage;
        }
        let mut named = self
            .module
            .functions
            .iter()
            .filter(|f| f.name == function.name);
        let other = named.find(|f| !matches!(f.linkage, Linkage::Local | Linkage::Extern));
        other.map_or(Linkage::Local, |other| other.linkage)
    }

    /// What is local here and called like something elsewhere, with its new name.
    fn renamed(&self, units: &[Unit<'a>], taken: &HashSet<&str>) -> HashMap<&'a str, String> {
        let elsewhere: HashSet<&str> = all_names(units)
            .filter(|(number, _)| *number != self.number)
            .map(|(_, name)| name)
            .collect();
        let functions = self
            .module
            .functions
            .iter()
            .filter(|f| f.body.is_some() && self.linkage_of(f) == Linkage::Local);
        let variables = self
            .module
            .variables
            .iter()
            .filter(|v| v.linkage == Linkage::Local);
        let names = functions.map(|f| f.name).chain(variables.map(|v| v.name));
        names
            .filter(|name| elsewhere.contains(name))
            .map(|name| {
                let mut new = format!("{name}$unit{}", self.number);
                while taken.contains(new.as_str()) {
                    new.push('_');
                }
                (name, new)
            })
            .collect()
    }
}

struct Writer<'u, 'a> {
    unit: &'u Unit<'a>,
    owners: &'u HashMap<&'a str, Owner>,
    renamed: HashMap<&'a str, String>,
    /// What its numbers of files begin behind.
    files: u32,
}

impl<'a> Writer<'_, 'a> {
    fn write(&self, parts: &mut Parts) -> Result<(), LinkError> {
        let module = &self.unit.module;
        for (number, path) in &module.files {
            let _ = writeln!(parts.files, ".file {} \"{path}\"", number + self.files);
        }
        for variable in &module.variables {
            self.variable(variable, parts)?;
        }
        for function in &module.functions {
            self.function(function, parts)?;
        }
        for span in &module.others {
            let text = &module.text[span.clone()];
            if text.starts_with(".alias") {
                parts.aliases += &self.copied(span.clone())?;
                parts.aliases.push('\n');
            } else if let Some(strings) = strings_of(text) {
                let start = span.start + (strings.as_ptr() as usize - text.as_ptr() as usize);
                parts.strings += &self.copied(start..start + strings.len())?;
                parts.strings.push('\n');
            } else if !text.starts_with(['@', '#']) && !text.starts_with(".section") {
                parts.files += text;
                parts.files.push('\n');
            }
        }
        Ok(())
    }

    fn is_owner(&self, name: &str) -> bool {
        self.owners
            .get(name)
            .is_none_or(|owner| owner.unit == self.unit.number)
    }

    fn variable(&self, variable: &Variable<'a>, parts: &mut Parts) -> Result<(), LinkError> {
        let external = variable.linkage == Linkage::Extern;
        if external && self.owners.contains_key(variable.name) {
            return Ok(());
        }
        let local = variable.linkage == Linkage::Local;
        if !local && !self.is_owner(variable.name) {
            return Ok(());
        }
        // Dynamic shared memory is declared by all who use it.
        if external && !parts.declared.insert(variable.name.to_owned()) {
            return Ok(());
        }
        // Of a list (`.global .u32 a, b;`) the first one brings the whole.
        let mut all = self.unit.module.variables.iter();
        let first = all.find(|other| other.span == variable.span);
        if first.is_some_and(|first| first.name == variable.name) {
            parts.variables += &self.copied(variable.span.clone())?;
            parts.variables.push('\n');
        }
        Ok(())
    }

    fn function(&self, function: &Function<'a>, parts: &mut Parts) -> Result<(), LinkError> {
        let mut same = self.unit.module.functions.iter();
        let defined = same.any(|f| f.name == function.name && f.body.is_some());
        if defined && self.unit.linkage_of(function) == Linkage::Local {
            let to = match function.body {
                Some(_) => &mut parts.functions,
                None => &mut parts.prototypes,
            };
            *to += &self.declaration(function)?;
            return Ok(());
        }
        if function.body.is_some() {
            if self.is_owner(function.name) {
                parts.functions += &self.copied(function.span.clone())?;
                parts.functions.push('\n');
            }
            if function.is_entry {
                return Ok(());
            }
        }
        // One prototype for all: who calls it may stand before who defines it.
        if parts.declared.insert(function.name.to_owned()) {
            let owner = self.owners.get(function.name);
            let word = match owner.map(|owner| owner.linkage) {
                Some(Linkage::Weak) => ".weak",
                Some(_) => ".visible",
                None => ".extern",
            };
            let text = self.signature(function)?;
            let _ = writeln!(parts.prototypes, "{word} {text};");
        }
        Ok(())
    }

    /// A declaration with all that belongs to it.
    fn declaration(&self, function: &Function<'a>) -> Result<String, LinkError> {
        let mut text = self.copied(function.span.clone())?;
        if function.body.is_none() && !text.trim_end().ends_with(';') {
            text.push(';');
        }
        text.push('\n');
        Ok(text)
    }

    /// From `.func` to the end of the parameters, without linkage and directives.
    fn signature(&self, function: &Function<'a>) -> Result<String, LinkError> {
        let module = &self.unit.module;
        let end = function
            .params_span
            .as_ref()
            .map_or(function.name_span.end, |span| span.end + 1);
        let whole = &module.text[function.span.start..end];
        let word = if function.is_entry { ".entry" } else { ".func" };
        let start = function.span.start + whole.find(word).unwrap_or(0);
        let text = self.copied(start..end)?;
        let no_return = function
            .directives
            .iter()
            .any(|d| d.starts_with(".noreturn"));
        Ok(match no_return {
            true => format!("{text} .noreturn"),
            false => text,
        })
    }

    /// A part of the text with the new names, and the new numbers of files.
    fn copied(&self, span: Range<usize>) -> Result<String, LinkError> {
        let text = self.unit.module.text;
        if self.renamed.is_empty() && self.unit.number == 0 {
            return Ok(text[span].to_owned());
        }
        let mut c = Cursor::new(text, span.clone());
        let mut out = String::with_capacity(span.len());
        let mut kept = span.start;
        // The next number is one of a file.
        let mut of_file = false;
        while let Some(byte) = c.peek() {
            let at = c.pos;
            if byte == b'"' {
                let string = c.string();
                string.map_err(|error| self.error(error))?;
                continue;
            }
            if byte == b'/' {
                let skipped = c.skip_blank();
                skipped.map_err(|error| self.error(error))?;
                if c.pos == at {
                    c.pos += 1;
                }
                continue;
            }
            if byte == b'.' {
                let word = c.clone().directive().unwrap_or("");
                of_file = word == "loc";
                c.pos += 1 + word.len();
                continue;
            }
            if byte.is_ascii_digit() {
                let word = c.modifier();
                if of_file && let Ok(number) = word.parse::<u32>() {
                    out += &text[kept..at];
                    let _ = write!(out, "{}", number + self.files);
                    kept = c.pos;
                }
                of_file = false;
                if word.is_empty() {
                    c.pos += 1;
                }
                continue;
            }
            let Some(name) = c.identifier() else {
                let length = text[at..].chars().next().map_or(1, char::len_utf8);
                c.pos = at + length;
                continue;
            };
            of_file = name == "inlined_at";
            let new = match self.renamed.get(name) {
                Some(new) => new.clone(),
                // Labels of the strings of debug information; each module numbers its own.
                None if self.unit.number > 0 && name.starts_with("$L__info_string") => {
                    format!("{name}$unit{}", self.unit.number)
                }
                None => continue,
            };
            out += &text[kept..at];
            out += &new;
            kept = c.pos;
        }
        out += &text[kept..span.end];
        Ok(out)
    }

    fn error(&self, error: PtxError) -> LinkError {
        LinkError::Ptx {
            number: self.unit.number,
            error,
        }
    }
}

/// What is between the braces of a `.section .debug_str`.
fn strings_of(section: &str) -> Option<&str> {
    let rest = section.strip_prefix(".section")?.trim_start();
    let rest = rest.strip_prefix(".debug_str")?.trim_start();
    let inner = rest.strip_prefix('{')?;
    Some(inner.get(..inner.rfind('}')?)?.trim())
}
