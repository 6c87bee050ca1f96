//! A program as a function that `warpbpf-sass` can put into a kernel of which there is only machine
//! code.

use warpbpf_codegen::Fragment;
use warpbpf_patch::{Attachment, Caller, PatchError, Select, bake, tools_function};

use crate::plan::planned::PlannedProgram;

/// PTX for `ptxas --compile-as-tools-patch`: one function named like the program. `target` is the
/// operand of `.target` and its number, `version` that of `.version`. Without addresses in `slots`
/// the text reads the slot table, and is for looking at only.
///
/// # Errors
/// [`PatchError`]: the program asks for what only a kernel's PTX has, or reads a slot that has no
/// address.
pub fn probe_text(
    program: &PlannedProgram,
    fragment: &Fragment,
    target: (&str, u32),
    version: (u32, u32),
    slots: &[u64],
) -> Result<String, PatchError> {
    let attachment = Attachment {
        site: program.spec.site,
        scope: program.spec.scope,
        select: &Select::default(),
        fragment,
        gate: None,
        choice: None,
    };
    let caller = Caller::Splice(program.spec.site);
    let caller = (caller, 0);
    let text = tools_function(program.name(), target, version, caller, &[attachment])?;
    if slots.is_empty() {
        return Ok(text);
    }
    bake(&text, slots)
}
