//! The whole way: text, tree, checked tree, instructions, object file.

use warpbpf_ebpf::listing;

use crate::check::check;
use crate::emit_expr::{Emitter, MOST, STACK};
use crate::error::{Problem, ScriptError};
use crate::layout::{Layout, layout};
use crate::object::{Ready, object};
use crate::parse::parse;
use crate::typed::Checked;

/// How a script is compiled.
#[derive(Clone, Copy)]
pub struct Options<'o> {
    /// What `elapsed` is counted from: nanoseconds of the host's monotonic clock.
    pub start: u64,
    /// Keys that each map has room for.
    pub keys: u32,
    /// Where a function of a file is: the file's whole path, `+0x` and the offset of its first
    /// instruction; or why that is not known.
    pub function: &'o dyn Fn(&str, &str) -> Result<String, String>,
}

/// What a script becomes.
#[derive(Debug)]
pub struct Compiled {
    /// What it means: what maps hold, formats, and blocks that the tool executes.
    pub script: Checked,
    /// Its maps in the object.
    pub layout: Layout,
    /// The object file; empty if no application gets a program.
    pub object: Vec<u8>,
    /// The programs' instructions, for people.
    pub listing: String,
}

/// Compiles a script; `name` is what it is called in messages of the verifier.
///
/// # Errors
/// All that is wrong with it.
pub fn compile(source: &str, name: &str, options: &Options) -> Result<Compiled, Vec<ScriptError>> {
    let script = parse(source).map_err(|error| vec![error])?;
    let script = check(source, &script)?;
    let layout = layout(&script.maps, options.keys);
    let (mut programs, mut text) = (Vec::new(), String::new());
    for (number, program) in (1..).zip(&script.programs) {
        let code = &program.code;
        let mut emitter = Emitter::new(&script, &layout, options.start, code.variables);
        emitter.asm.span = program.span;
        emitter.program(program);
        if emitter.is_too_large() {
            let probe = program.probe.clone();
            return Err(vec![
                Problem::TooLarge { probe, most: MOST }.at(program.span),
            ]);
        }
        let bytes = 8 * emitter.deepest;
        if bytes > STACK {
            return Err(vec![Problem::Stack { bytes }.at(program.span)]);
        }
        let (code, spans) = emitter.asm.finish();
        text += &format!("{}:\n{}\n", program.probe, listing(&code).trim_end());
        let mut section = program.section.clone();
        if let Some((file, function)) = &program.function {
            let place = (options.function)(file, function).map_err(|why| {
                let probe = program.probe.clone();
                vec![Problem::Made { probe, why }.at(program.span)]
            })?;
            let head = section.split('/').next().unwrap_or("uprobe");
            section = format!("{head}/{place}");
        }
        programs.push(Ready {
            name: format!("probe_{number}"),
            section,
            code,
            spans,
        });
    }
    let object = match programs.is_empty() {
        true => Vec::new(),
        false => object(&programs, &layout, name, source).map_err(|why| {
            let probe = script.programs[0].probe.clone();
            vec![Problem::Made { probe, why }.at(script.programs[0].span)]
        })?,
    };
    Ok(Compiled {
        script,
        layout,
        object,
        listing: text,
    })
}
