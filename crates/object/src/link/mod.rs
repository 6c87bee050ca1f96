//! Static linking: several BPF objects become one, as `bpftool gen object` does it.
//!
//! The result is an object file again, so everything that takes one takes several: the loader, the
//! agent, and other people's tools. Sections of one name are put one after the other, symbols are
//! resolved by name, types are merged, and line, function and CO-RE records move with their code.
//!
//! Three things go beyond `bpftool`. A map that several objects define in the same way is one map,
//! because that is what a definition in a shared header means. A symbol that no object defines is
//! an error here, not when it is loaded. And types are compared whole, so what one object takes
//! from another needs type information in both.

mod agree;
mod assemble;
mod define;
mod error;
mod input;
mod layout;
mod loaded;
mod relocate;
mod symbols;
mod types;
mod write;

use input::Input;

pub use assemble::assemble;
pub use error::{Difference, LinkError};
pub use loaded::{AssembleError, Assembly, LoadedLine, LoadedMap, LoadedProgram, MapReference};

/// Links objects, given with the names that messages call them by, into the bytes of one object.
///
/// The order matters only for the order of things in the result and for which of several weak
/// definitions is taken (the first).
///
/// # Errors
/// [`LinkError`]; no input makes it panic.
pub fn link(objects: &[(&str, &[u8])]) -> Result<Vec<u8>, LinkError> {
    if objects.is_empty() {
        return Err(LinkError::Nothing);
    }
    let inputs: Vec<Input<'_>> = objects
        .iter()
        .map(|(name, bytes)| input::read(name, bytes))
        .collect::<Result<_, _>>()?;
    agree::sections(&inputs)?;
    let mut layout = layout::place(&inputs)?;
    let symbols = symbols::resolve(&inputs, &layout)?;
    relocate::relocate(&inputs, &mut layout, &symbols)?;
    let types = types::merge(&inputs, &layout, &symbols)?;
    write::object(&layout, &symbols, types)
}
