//! How a program stands at its sites: as its own text, or as a call of a function that has it once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpbpf_abi::context::Capture;
use warpbpf_abi::names::{GROUP_MASK, PREFIX};
use warpbpf_codegen::Fragment;

/// The programs of a module.
#[derive(Default)]
pub(crate) struct Programs<'f> {
    /// Number of each, where they are called.
    called: BTreeMap<Key<'f>, usize>,
}

/// What makes two fragments the same function.
type Key<'f> = (&'f str, bool, &'f BTreeSet<Capture>);

fn key(fragment: &Fragment) -> Key<'_> {
    (&fragment.body, fragment.uses_group_mask, &fragment.captures)
}

impl<'f> Programs<'f> {
    /// All are put inline.
    pub(crate) fn inline() -> Programs<'f> {
        Programs::default()
    }

    /// Each is a function.
    pub(crate) fn out_of_line(fragments: impl Iterator<Item = &'f Fragment>) -> Programs<'f> {
        let mut programs = Programs::default();
        for fragment in fragments {
            let number = programs.called.len();
            programs.called.entry(key(fragment)).or_insert(number);
        }
        programs
    }

    /// The functions.
    pub(crate) fn functions(&self) -> String {
        let mut out = String::new();
        let mut all: Vec<_> = self.called.iter().collect();
        all.sort_by_key(|(_, number)| **number);
        for (key, number) in all {
            let (body, mask, captures) = key;
            let params = registers(*mask, captures);
            let list = params.iter().enumerate();
            let list: Vec<String> = list
                .map(|(i, (bits, _))| format!(".param .b{bits} {}", param(i)))
                .collect();
            // Writing to a String cannot fail.
            let _ = write!(out, ".func {}", name(*number));
            if !list.is_empty() {
                let _ = write!(out, " ({})", list.join(", "));
            }
            out.push_str("\n{\n");
            for (i, (bits, register)) in params.iter().enumerate() {
                let _ = writeln!(out, "\t.reg .b{bits} {register};");
                let _ = writeln!(out, "\tld.param.b{bits} {register}, [{}];", param(i));
            }
            push_lines(body, &mut out);
            out.push_str("\tret;\n}\n");
        }
        out
    }

    /// What stands at a site where the registers are set.
    pub(crate) fn write(&self, fragment: &Fragment, out: &mut String) {
        let Some(number) = self.called.get(&key(fragment)) else {
            return push_lines(&fragment.body, out);
        };
        let arguments = registers(fragment.uses_group_mask, &fragment.captures);
        let mut list = String::new();
        out.push_str("\t{\n");
        for (i, (bits, register)) in arguments.iter().enumerate() {
            let _ = writeln!(out, "\t.param .b{bits} {};", param(i));
            let _ = writeln!(out, "\tst.param.b{bits} [{}], {register};", param(i));
            let comma = if i == 0 { "" } else { ", " };
            let _ = write!(list, "{comma}{}", param(i));
        }
        if arguments.is_empty() {
            let _ = writeln!(out, "\tcall {};", name(*number));
        } else {
            let _ = writeln!(out, "\tcall {}, ({list});", name(*number));
        }
        out.push_str("\t}\n");
    }
}

fn push_lines(text: &str, out: &mut String) {
    out.push_str(text);
    if !text.ends_with('\n') {
        out.push('\n');
    }
}

fn name(number: usize) -> String {
    format!("{PREFIX}program_{number}")
}

fn param(index: usize) -> String {
    format!("{PREFIX}v{index}")
}

/// Width and name of what a fragment reads.
fn registers(mask: bool, captures: &BTreeSet<Capture>) -> Vec<(u32, String)> {
    let mask = mask.then(|| (32, GROUP_MASK.to_owned()));
    let captures = captures.iter().map(|c| (c.bits(), c.register()));
    mask.into_iter().chain(captures).collect()
}
