//! What a function for machine code cannot have, and what to do instead.

use warpbpf_abi::context::{CONTEXTS, Capture, FieldSource};

use crate::error::PatchError;

/// A value that nobody gives the function.
pub(crate) fn not_here(capture: Capture) -> Result<(), PatchError> {
    let fields = CONTEXTS.iter().flat_map(|(context, _)| context.fields);
    let mut of = fields.filter(|field| field.source == FieldSource::Captured(capture));
    let what = match of.next() {
        Some(field) => format!("`{}`", field.name),
        None if capture == Capture::Node => "`bpf_gpu_graph_node`".to_owned(),
        None => format!("the context field behind `{}`", capture.register()),
    };
    refused(&what, "do without it")
}

/// There is no `what` without PTX.
pub(crate) fn refused(what: &str, advice: &str) -> Result<(), PatchError> {
    Err(PatchError::MachineCode {
        what: what.to_owned(),
        advice: advice.to_owned(),
    })
}
