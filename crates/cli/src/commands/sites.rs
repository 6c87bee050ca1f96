//! `warpbpf sites`: what can be probed in a file, without running it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use warpbpf_abi::attach::Site;
use warpbpf_session::listing::{Argument, KernelSites, sites};

use super::compile::sm_number;
use super::splice::images;
use crate::flags::SitesFlags;
use crate::report::table::{Table, counted, group};
use crate::term::error::CliError;
use crate::term::output::say;
use crate::term::plain;

/// Places that a line of source is counted with, and their columns.
const ON_LINES: [Site; 3] = [Site::Mem, Site::Barrier, Site::Branch];

/// Lists kernels and their places.
pub fn run(flags: &SitesFlags) -> Result<u8, CliError> {
    let sm = sm_number(&flags.target)?;
    let images = images(&flags.file, (sm / 10, sm % 10))?;
    let kernels: Vec<KernelSites> = images
        .iter()
        .flat_map(|image| sites(image, &flags.kernel))
        .collect();
    if kernels.is_empty() {
        let known: Vec<&str> = images
            .iter()
            .flat_map(|image| &image.kernels)
            .map(|kernel| kernel.demangled.as_str())
            .collect();
        let why = images.iter().find_map(|image| image.why_no_ptx.as_deref());
        return Err(CliError::Refused {
            path: flags.file.display().to_string(),
            message: match (known.is_empty(), why) {
                (true, Some(why)) => format!("it has no kernel: {why}"),
                (true, None) => "it has no kernel".to_owned(),
                (false, _) => format!(
                    "`{}` names no kernel; there are {}",
                    flags.kernel,
                    known.join(", ")
                ),
            },
        });
    }
    if flags.json {
        let kernels: Vec<Value> = kernels.iter().map(kernel_json).collect();
        say(&format!("{}\n", json!({ "ok": true, "kernels": kernels })));
    } else {
        let texts: Vec<String> = kernels.iter().map(|k| kernel_text(k, flags)).collect();
        say(&texts.join("\n"));
    }
    Ok(0)
}

fn kernel_json(kernel: &KernelSites) -> Value {
    let places: Vec<Value> = kernel
        .places
        .iter()
        .map(|p| {
            json!({ "place": p.site.word(), "kind": p.kind, "space": p.space, "bytes": p.bytes,
                    "function": p.function, "count": p.count, "barred": p.barred })
        })
        .collect();
    let lines: Vec<Value> = kernel
        .lines
        .iter()
        .map(|line| {
            let places: BTreeMap<&str, usize> = line
                .places
                .iter()
                .map(|(site, count)| (site.word(), *count))
                .collect();
            json!({ "file": line.file, "line": line.line, "pieces": line.pieces, "places": places })
        })
        .collect();
    let opcodes: Vec<Value> = kernel
        .opcodes
        .iter()
        .map(|(op, count)| json!({ "op": op, "count": count }))
        .collect();
    let arguments: Vec<Value> = kernel
        .arguments
        .iter()
        .map(|a| json!({ "ptx": a.ptx, "name": a.name, "type": a.ty }))
        .collect();
    json!({ "name": kernel.demangled, "mangled": kernel.mangled, "source": kernel.source, "method": kernel.method,
            "arguments": arguments, "places": places, "lines": lines, "opcodes": opcodes })
}

fn kernel_text(kernel: &KernelSites, flags: &SitesFlags) -> String {
    // What a file calls its kernels, parameters and sources cannot begin a line of ours.
    let first = format!(
        "{} ({}; {})",
        kernel.demangled, kernel.source, kernel.method
    );
    let mut out = plain::name(&first).into_owned() + "\n";
    if !flags.lines && !flags.insns {
        if !kernel.arguments.is_empty() {
            let list: Vec<String> = kernel.arguments.iter().enumerate().map(argument).collect();
            let _ = writeln!(out, "  args: {}", plain::name(&list.join(", ")));
        }
        places_table(&mut out, kernel);
    }
    if flags.lines {
        lines_table(&mut out, kernel);
    }
    if flags.insns {
        let mut table = Table::new(&["opcode", "count"]);
        for (op, count) in &kernel.opcodes {
            table.row(vec![op.clone(), group(*count as u128)]);
        }
        table.write(&mut out);
    }
    out
}

/// `2 n u32 (int)`: position, name where debug information has one, PTX type, the source's.
fn argument((position, argument): (usize, &Argument)) -> String {
    let mut text = position.to_string();
    if !argument.name.is_empty() {
        let _ = write!(text, " {}", argument.name);
    }
    let _ = write!(text, " {}", argument.ptx);
    if !argument.ty.is_empty() {
        let _ = write!(text, " ({})", argument.ty);
    }
    text
}

fn places_table(out: &mut String, kernel: &KernelSites) {
    let mut table = Table::new(&["place", "kind", "space", "bytes", "count"]);
    let text = |word: Option<&str>| word.unwrap_or_default().to_owned();
    for places in &kernel.places {
        table.row(vec![
            places.site.word().to_owned(),
            text(places.kind.or(places.function.as_deref())),
            text(places.space),
            places.bytes.map_or_else(String::new, |n| n.to_string()),
            group(places.count as u128),
        ]);
    }
    table.write(out);
    let instructions: usize = kernel.opcodes.iter().map(|(_, count)| count).sum();
    let mut files: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for line in &kernel.lines {
        let (first, last) = files.entry(&line.file).or_insert((line.line, line.line));
        (*first, *last) = ((*first).min(line.line), (*last).max(line.line));
    }
    let mut parts = Vec::new();
    if instructions > 0 {
        parts.push(format!(
            "{} of {} (`--insns`)",
            counted(instructions as u128, "instruction"),
            counted(kernel.opcodes.len() as u128, "opcode")
        ));
    }
    let ranges: Vec<String> = files
        .iter()
        .map(|(file, (first, last))| {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{file}:{first}–{last}")
        })
        .collect();
    if !ranges.is_empty() {
        parts.push(format!(
            "{} in {} (`--lines`)",
            counted(kernel.lines.len() as u128, "line"),
            ranges.join(", ")
        ));
    }
    if !parts.is_empty() {
        let _ = writeln!(out, "  {}", plain::name(&parts.join("; ")));
    }
    let mut barred: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, count) in kernel.places.iter().flat_map(|p| &p.barred) {
        *barred.entry(reason).or_default() += count;
    }
    for (reason, count) in barred {
        let _ = writeln!(
            out,
            "  {} cannot be probed: {}",
            counted(count as u128, "place"),
            plain::name(reason)
        );
    }
}

fn lines_table(out: &mut String, kernel: &KernelSites) {
    if kernel.lines.is_empty() {
        out.push_str("  no line information: compile with `-lineinfo`\n");
        return;
    }
    let mut heads = vec!["line", "pieces"];
    heads.extend(ON_LINES.iter().map(|site| site.word()));
    let mut table = Table::new(&heads);
    let files: BTreeSet<&str> = kernel.lines.iter().map(|line| line.file.as_str()).collect();
    for line in &kernel.lines {
        let mut row = vec![
            format!("{}:{}", shortest(&line.file, &files), line.line),
            group(line.pieces as u128),
        ];
        row.extend(ON_LINES.iter().map(|site| {
            let count = line.places.get(site).copied().unwrap_or(0);
            group(count as u128)
        }));
        table.row(row);
    }
    table.write(out);
}

/// The shortest end of a path, from behind a `/`, that no other of the files ends with: what `|at=`
/// takes.
fn shortest<'f>(file: &'f str, files: &BTreeSet<&str>) -> &'f str {
    let ends_so = |end: &str| {
        let other = |f: &&&str| {
            f.strip_suffix(end)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        files.iter().filter(other).count()
    };
    file.rmatch_indices('/')
        .map(|(at, _)| &file[at + 1..])
        .find(|end| !end.is_empty() && ends_so(end) == 1)
        .unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_as_briefly_as_they_can_be() {
        let files: BTreeSet<&str> = [
            "/a/src/k.cu",
            "/a/lib/k.cu",
            "/a/src/my_m.cu",
            "m.cu",
            "/usr/h.h",
        ]
        .into();
        let names: Vec<&str> = files.iter().map(|file| shortest(file, &files)).collect();
        assert_eq!(names, ["lib/k.cu", "src/k.cu", "my_m.cu", "h.h", "m.cu"]);
    }
}
