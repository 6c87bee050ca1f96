//! How a program stands at its sites: as its own text, or as a call of a function that has it once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpbpf_abi::context::Capture;
use warpbpf_abi::names::{BLOCK_CELLS, GROUP_MASK, PREFIX};
use warpbpf_codegen::tally::{Adding, declare, flush};
use warpbpf_codegen::{Fragment, SlotSpace};

use crate::attachment::Options;

/// The programs of a module.
pub(crate) struct Programs<'f> {
    /// Number of each, where they are called.
    called: BTreeMap<Key<'f>, (usize, &'f Fragment)>,
    slots: SlotSpace,
}

/// What makes two fragments the same function; whether it has cells of the block stands in its
/// text.
type Key<'f> = (&'f str, bool, &'f BTreeSet<Capture>);

fn key(fragment: &Fragment) -> Key<'_> {
    (&fragment.body, fragment.uses_group_mask, &fragment.captures)
}

impl<'f> Programs<'f> {
    /// As `options` want it: all inline, or each a function.
    pub(crate) fn of(
        fragments: impl Iterator<Item = &'f Fragment>,
        options: &Options,
    ) -> Programs<'f> {
        let mut programs = Programs {
            called: BTreeMap::new(),
            slots: options.slot_space,
        };
        for fragment in fragments.filter(|_| options.out_of_line) {
            let number = programs.called.len();
            let called = programs.called.entry(key(fragment));
            called.or_insert((number, fragment));
        }
        programs
    }

    /// Where the slot table lies.
    pub(crate) fn slots(&self) -> SlotSpace {
        self.slots
    }

    /// The functions.
    pub(crate) fn functions(&self) -> String {
        let mut out = String::new();
        let mut all: Vec<_> = self.called.values().collect();
        all.sort_by_key(|(number, _)| *number);
        for (number, fragment) in all {
            let params = registers(fragment);
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
            self.push(fragment, &mut out);
            out.push_str("\tret;\n}\n");
        }
        out
    }

    /// What stands at a site where the registers are set; `kept`: those of its sums are too.
    pub(crate) fn write(&self, fragment: &Fragment, kept: bool, out: &mut String) {
        let Some((number, _)) = self.called.get(&key(fragment)) else {
            return match kept {
                true => push_lines(&fragment.body, out),
                false => self.push(fragment, out),
            };
        };
        let arguments = registers(fragment);
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

    /// The code with sums of its own, which are in the map when it has run.
    fn push(&self, fragment: &Fragment, out: &mut String) {
        if fragment.tallies.is_empty() {
            return push_lines(&fragment.body, out);
        }
        out.push_str("\t{\n");
        out.push_str(&declare(&fragment.tallies));
        push_lines(&fragment.body, out);
        let flush = flush(&fragment.tallies, Adding::Lanes, self.slots);
        push_lines(&flush.body, out);
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
fn registers(fragment: &Fragment) -> Vec<(u32, String)> {
    let mask = fragment.uses_group_mask.then_some((32, GROUP_MASK));
    let cells = (fragment.block_cells > 0).then_some((64, BLOCK_CELLS));
    let of_site = mask.into_iter().chain(cells);
    let of_site = of_site.map(|(bits, name)| (bits, name.to_owned()));
    let captures = fragment.captures.iter();
    let captures = captures.map(|c| (c.bits(), c.register()));
    of_site.chain(captures).collect()
}
