//! `warpbpf compile --show-splice`: a kernel before and after, as a unified diff.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::json;
use similar::{ChangeTag, TextDiff};
use warpbpf_session::splice::Splice;
use warpbpf_session::{ImageInfo, Session, executable, inspect, names};

use crate::flags::CompileFlags;
use crate::term::error::{CliError, read};
use crate::term::output::say;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Prints what the session's programs make of the kernel that `[kernel, file]` names.
pub fn run(
    flags: &CompileFlags,
    session: &Session,
    capability: (u32, u32),
    [kernel, file]: [&OsStr; 2],
) -> Result<u8, CliError> {
    let path = Path::new(file);
    let glob = kernel.to_string_lossy();
    let refused = |message: String| CliError::Refused {
        path: path.display().to_string(),
        message,
    };
    let image = image(path, capability, &glob)?;
    let splice = session.splice(&image, &glob);
    let splice = splice.map_err(|error| refused(error.to_string()))?;
    say(&if flags.json {
        json(&splice)
    } else {
        text(&splice)
    });
    Ok(0)
}

/// The image of a file that has the kernel.
fn image(path: &Path, capability: (u32, u32), glob: &str) -> Result<ImageInfo, CliError> {
    let images = images(path, capability)?;
    let has = |image: &ImageInfo| {
        let mut kernels = image.kernels.iter();
        kernels.any(|kernel| names::matches(glob, &kernel.mangled))
    };
    let known: Vec<String> = images
        .iter()
        .flat_map(|image| &image.kernels)
        .map(|kernel| kernel.demangled.clone())
        .collect();
    images
        .into_iter()
        .find(has)
        .ok_or_else(|| CliError::Refused {
            path: path.display().to_string(),
            message: format!(
                "`{glob}` names no kernel; there are {}",
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ),
        })
}

/// All images of a file, as a device of this capability takes them.
///
/// # Errors
/// The file cannot be read, or holds no images, or a damaged one.
pub fn images(path: &Path, capability: (u32, u32)) -> Result<Vec<ImageInfo>, CliError> {
    let file = read(path)?;
    let refused = |message: String| CliError::Refused {
        path: path.display().to_string(),
        message,
    };
    let images = executable::images(&file).map_err(|e| refused(e.to_string()))?;
    images
        .into_iter()
        .map(|image| inspect(image, capability).map_err(|e| refused(e.to_string())))
        .collect()
}

fn json(splice: &Splice) -> String {
    let functions: Vec<_> = splice
        .functions
        .iter()
        .map(|f| json!({ "name": f.name, "before": f.before, "after": f.after }))
        .collect();
    let left_out: Vec<_> = splice
        .left_out
        .iter()
        .map(|(reason, count)| json!({ "reason": reason, "sites": count }))
        .collect();
    let all = json!({ "ok": true, "kernel": splice.mangled, "method": splice.method, "sites": splice.sites,
                      "left_out": left_out, "functions": functions });
    format!("{all}\n")
}

fn text(splice: &Splice) -> String {
    let mut out = format!(
        "// {} ({})\n",
        names::demangle(&splice.mangled),
        splice.method
    );
    for name in &splice.sites {
        out += &format!("// site: {name}\n");
    }
    for (reason, count) in &splice.left_out {
        out += &format!("// left out: {count} sites: {reason}\n");
    }
    for function in &splice.functions {
        let old = if function.before.is_empty() {
            "/dev/null".to_owned()
        } else {
            format!("{} (original)", function.name)
        };
        out += &format!("--- {old}\n+++ {} (with probes)\n", function.name);
        hunks(&mut out, &function.before, &function.after);
    }
    out
}

/// What changes, whatever the indentation: text from fatbins has none, and what is put into it has
/// its own.
fn hunks(out: &mut String, before: &str, after: &str) {
    let bare = |text| -> Vec<&str> { str::trim_end(text).lines().map(str::trim).collect() };
    let (before, after) = (bare(before), bare(after));
    let (old, new) = (indented(&before), indented(&after));
    let diff = TextDiff::from_slices(&before, &after);
    let mut unified = diff.unified_diff();
    for hunk in unified.context_radius(CONTEXT).iter_hunks() {
        *out += &format!("{}\n", hunk.header());
        for change in hunk.iter_changes() {
            let (sign, line) = match change.tag() {
                ChangeTag::Equal => (' ', change.new_index().and_then(|at| new.get(at))),
                ChangeTag::Delete => ('-', change.old_index().and_then(|at| old.get(at))),
                ChangeTag::Insert => ('+', change.new_index().and_then(|at| new.get(at))),
            };
            out.push(sign);
            out.push_str(line.map_or("", String::as_str));
            out.push('\n');
        }
    }
}

/// Lines of PTX indented by the brackets that they are in; labels stand out by one.
fn indented(lines: &[&str]) -> Vec<String> {
    let mut depth = 0usize;
    let mut indented = Vec::with_capacity(lines.len());
    for line in lines {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let out = code.starts_with(['}', ')']) || code.ends_with(':');
        let tabs = if line.is_empty() {
            0
        } else {
            depth.saturating_sub(usize::from(out))
        };
        indented.push("\t".repeat(tabs) + line);
        let opened = code.matches(['{', '(']).count();
        let closed = code.matches(['}', ')']).count();
        depth = (depth + opened).saturating_sub(closed);
    }
    indented
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_is_no_change() {
        let before = ".func f(\n.param .u32 p\n)\n{\nld.u32 %r1, [p];\nL:\n\nret;\n}\n";
        let after = ".func f(\n\t.param .u32 p\n)\n{\n\t{ // ours\n\tadd.u32 %w, %w, 1;\n  ld.u32 %r1, [p];\n}\nL:\n\nret;\n}";
        let mut out = String::new();
        hunks(&mut out, before, after);
        assert_eq!(
            out,
            "@@ -2,7 +2,10 @@\n \t.param .u32 p\n )\n {\n+\t{ // ours\n+\t\tadd.u32 %w, %w, 1;\n \t\tld.u32 %r1, [p];\n+\t}\n L:\n \n \tret;\n"
        );
        let mut out = String::new();
        hunks(&mut out, "", "ret;\n");
        assert_eq!(out, "@@ -0,0 +1 @@\n+ret;\n");
    }
}
