//! The kernel's parameter buffer, and the hidden parameter behind it.

use std::fmt::Write as _;

use warpbpf_abi::layout::launch;
use warpbpf_abi::names::LAUNCH_PARAM;
use warpbpf_ptx::ast::{Function, Module};

use crate::error::PatchError;
use crate::variant::{HiddenParam, ParamLayout};

/// Most bytes of parameters, PTX ISA "Kernel Function Parameters".
const LIMIT: u64 = 4352;
/// The same from PTX 8.1 on, for sm_70 and later.
const LARGE_LIMIT: u64 = 32764;

/// Where each parameter lies: in order, each at the next multiple of its alignment.
pub(crate) fn layout(kernel: &Function<'_>) -> Result<Vec<ParamLayout>, PatchError> {
    let mut at = 0u64;
    let mut params = Vec::with_capacity(kernel.params.len());
    for param in &kernel.params {
        let unknown = || PatchError::ParameterType {
            kernel: kernel.name.to_owned(),
            param: param.name.to_owned(),
            ty: param.ty.to_owned(),
        };
        let size = param.size().ok_or_else(unknown)?;
        let offset = at
            .checked_next_multiple_of(param.align.max(1))
            .ok_or_else(unknown)?;
        params.push(ParamLayout { offset, size });
        at = offset.checked_add(size).ok_or_else(unknown)?;
    }
    Ok(params)
}

/// Offset of the hidden parameter.
pub(crate) fn hidden_offset(
    module: &Module<'_>,
    kernel: &Function<'_>,
    params: &[ParamLayout],
    chosen: bool,
) -> Result<u64, PatchError> {
    let bytes = params.last().map_or(0, |p| p.offset + p.size);
    let offset = bytes.next_multiple_of(8);
    let large = module.version >= (8, 1) && module.target().is_some_and(|t| t.number >= 70);
    let limit = if large { LARGE_LIMIT } else { LIMIT };
    let total = offset + launch::param_size(chosen);
    if total > limit {
        return Err(PatchError::Parameters {
            kernel: kernel.name.to_owned(),
            bytes,
            total,
            limit,
        });
    }
    Ok(offset)
}

/// The kernel's signature under another name: from `.visible` to before the body's `{`, with the
/// hidden parameter and a limit of registers if asked for.
pub(crate) fn signature(
    module: &Module<'_>,
    kernel: &Function<'_>,
    name: &str,
    hidden: Option<HiddenParam>,
    max_registers: Option<u32>,
) -> String {
    let mut out = format!(".visible .entry {name}(");
    let list = kernel.params_span.clone().unwrap_or(0..0);
    if let Some(hidden) = hidden {
        // A comment may end the list, so the new parameter follows the last one and not the list.
        let last = kernel.params.last().map_or(list.end, |p| p.span.end);
        let comma = if kernel.params.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "{}{comma}\n\t.param .align 8 .b8 {LAUNCH_PARAM}[{}]{}\n",
            &module.text[list.start..last],
            hidden.size(),
            module.text[last..list.end].trim_end(),
        );
    } else {
        out.push_str(&module.text[list]);
    }
    out.push(')');
    let rest = (kernel.params_span.as_ref()).map_or(kernel.name_span.end, |span| span.end + 1);
    let body = kernel.body.clone().map_or(kernel.span.end, |b| b.start);
    // `body` starts behind its brace.
    let directives = &module.text[rest..body.saturating_sub(1)];
    out.push_str(&limited(directives, max_registers));
    out
}

/// The directives behind a kernel's parameters, with `.maxnreg` at most `limit` (PTX ISA,
/// "Performance-Tuning Directives").
fn limited(directives: &str, limit: Option<u32>) -> String {
    const WORD: &str = ".maxnreg";
    let Some(limit) = limit else {
        return directives.to_owned();
    };
    let Some(at) = directives.find(WORD) else {
        return format!("\n{WORD} {limit}{directives}");
    };
    let (before, rest) = directives.split_at(at + WORD.len());
    let number = rest.trim_start();
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let own: u32 = number[..digits].parse().unwrap_or(u32::MAX);
    format!("{before} {}{}", own.min(limit), &number[digits..])
}

/// A device function's head under another name, from its linking directive to before the body's `{`
/// or the prototype's `;`, with the launch record as a further parameter, or all of what is hidden
/// where that says which programs are in the launch.
pub(crate) fn function_head(
    module: &Module<'_>,
    function: &Function<'_>,
    name: &str,
    hidden: Option<HiddenParam>,
) -> String {
    let text = module.text;
    let end = match &function.body {
        // `body` starts behind its brace.
        Some(body) => body.start.saturating_sub(1),
        None => function.span.end.saturating_sub(1),
    };
    let mut out = format!(
        "{}{name}",
        &text[function.span.start..function.name_span.start]
    );
    let mut rest = function.name_span.end;
    if let Some(hidden) = hidden {
        let param = handed(hidden, LAUNCH_PARAM);
        match (&function.params_span, function.params.last()) {
            (Some(_), Some(last)) => {
                out.push_str(&text[rest..last.span.end]);
                out.push_str(&format!(",\n\t{param}"));
                rest = last.span.end;
            }
            (Some(list), None) => {
                out.push_str(&text[rest..list.start]);
                out.push_str(&param);
                rest = list.end;
            }
            (None, _) => out.push_str(&format!(" ({param})")),
        }
    }
    out.push_str(&text[rest..end]);
    out
}

/// The declaration of what is handed to device functions, under this name.
pub(crate) fn handed(hidden: HiddenParam, name: &str) -> String {
    match hidden.chosen {
        false => format!(".param .b64 {name}"),
        true => format!(".param .align 8 .b8 {name}[{}]", hidden.size()),
    }
}
