//! Static linking: several BPF objects become one, as `bpftool gen object` does it.
//!
//! The result is an object file again, so everything that takes one takes several: the loader, the agent, and other
//! people's tools. Sections of one name are put one after the other, symbols are resolved by name, types are merged, and
//! line, function and CO-RE records move with their code.
//!
//! Three things go beyond `bpftool`. A map that several objects define in the same way is one map, because that is what a
//! definition in a shared header means. A symbol that no object defines is an error here, not when it is loaded.
//! And types are compared whole, so what one object takes from another needs type information in both.

mod agree;
mod assemble;
mod define;
mod layout;
mod symbols;
mod types;
mod write;

use crate::btf::Btf;
use crate::btf_ext::BtfExt;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::program;

pub use assemble::{
    AssembleError, Assembly, LoadedLine, LoadedMap, LoadedProgram, MapReference, assemble,
};

/// Why objects cannot be linked. The objects are at fault in all cases.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// No objects at all.
    #[error("there is nothing to link; name at least one object")]
    Nothing,
    /// One of the objects cannot be read.
    #[error("`{object}`: {error}")]
    Object {
        /// Its name.
        object: String,
        /// What is wrong.
        error: Box<ObjectError>,
    },
    /// A function, variable or map that no object defines.
    #[error("`{object}` uses `{symbol}`, which no object defines; link the one that does")]
    Undefined {
        /// The name.
        symbol: String,
        /// The object that wants it.
        object: String,
    },
    /// Two objects define the same function or variable.
    #[error(
        "`{symbol}` is defined in `{first}` and in `{second}`; make one of them `static`, `__weak` or `extern`"
    )]
    Duplicate {
        /// The name.
        symbol: String,
        /// The first object.
        first: String,
        /// The second.
        second: String,
    },
    /// Two objects define or declare the same map with other attributes.
    #[error("map `{map}`: `{attribute}` is {difference}; share one definition")]
    MapConflict {
        /// Name of the map.
        map: String,
        /// The attribute, as in the definition.
        attribute: String,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// Declarations and definitions of one function or variable have different types.
    #[error("`{symbol}` is {difference}; declare it in a header that both include")]
    TypeConflict {
        /// The name.
        symbol: String,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// One object takes a function or variable from another, and they cannot be compared.
    #[error(
        "`{user}` takes `{symbol}` from `{definer}`, and `{untyped}` has no type information, so nothing shows that both mean the same; compile both with `-g`"
    )]
    Untyped {
        /// The name.
        symbol: String,
        /// The object that declares it.
        user: String,
        /// The object whose definition is taken.
        definer: String,
        /// The one of the two that has no types, the user if both.
        untyped: String,
    },
    /// Two objects have different licences or version numbers.
    #[error("section `{section}` is {difference}; a linked object has one")]
    Section {
        /// `license` or `version`.
        section: &'static str,
        /// Who says what.
        difference: Box<Difference>,
    },
    /// More than the format can hold.
    #[error("the linked object would be too large: {what}; link fewer objects")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
    },
}

/// What two objects say of the same thing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{first_value} in `{first}` and {second_value} in `{second}`")]
pub struct Difference {
    /// The first object.
    pub first: String,
    /// What it says.
    pub first_value: String,
    /// The second object.
    pub second: String,
    /// What it says.
    pub second_value: String,
}

/// One object, read.
struct Input<'a> {
    name: &'a str,
    elf: Elf<'a>,
    btf: Option<Btf>,
    ext: BtfExt,
}

impl Input<'_> {
    fn fault(&self, error: ObjectError) -> LinkError {
        LinkError::Object {
            object: self.name.to_owned(),
            error: Box::new(error),
        }
    }

    fn damaged(&self, detail: impl Into<String>) -> LinkError {
        self.fault(ObjectError::Damaged {
            detail: detail.into(),
        })
    }
}

/// Links objects, given with the names that messages call them by, into the bytes of one object.
///
/// The order matters only for the order of things in the result and for which of several weak definitions is taken
/// (the first).
///
/// # Errors
/// [`LinkError`]; no input makes it panic.
pub fn link(objects: &[(&str, &[u8])]) -> Result<Vec<u8>, LinkError> {
    if objects.is_empty() {
        return Err(LinkError::Nothing);
    }
    let inputs: Vec<Input<'_>> = objects
        .iter()
        .map(|(name, bytes)| read(name, bytes))
        .collect::<Result<_, _>>()?;
    agree::sections(&inputs)?;
    let mut layout = layout::place(&inputs)?;
    let symbols = symbols::resolve(&inputs, &layout)?;
    layout::relocate(&inputs, &mut layout, &symbols)?;
    let types = types::merge(&inputs, &layout, &symbols)?;
    write::object(&layout, &symbols, types)
}

fn read<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Input<'a>, LinkError> {
    let fault = |error| LinkError::Object {
        object: name.to_owned(),
        error: Box::new(error),
    };
    let elf = Elf::parse(bytes).map_err(fault)?;
    program::refuse_sections(&elf).map_err(fault)?;
    let (btf, ext) = program::types(&elf).map_err(fault)?;
    Ok(Input {
        name,
        elf,
        btf,
        ext,
    })
}
