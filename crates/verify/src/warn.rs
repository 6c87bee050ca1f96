//! Warnings: what is safe but probably wrong. A read-modify-write of a map value that other threads
//! share, in a form that the code generator does not turn into one atomic operation, loses updates;
//! so does an insertion that two threads do at once; a lock that is tried a few times is not held
//! by those who give up; a misaligned access is slow.

use std::fmt;

use warpbpf_ebpf::{Insn, Pc, Width};

use crate::facts::{InsnFact, Instance, Region};
use crate::graph::Graph;
use crate::shared::{self, Finding};
use crate::subject::{SourceLine, Subject};

/// Something that is allowed but looks wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// A short name that does not change when the wording does: `lost-update`, `lost-insert`,
    /// `lock`, `split-access`.
    pub name: &'static str,
    /// The instruction.
    pub pc: Pc,
    /// The same as a slot number.
    pub slot: u32,
    /// Its text.
    pub insn: String,
    /// The C line it comes from.
    pub line: Option<SourceLine>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// The other instruction that it is about.
    pub related: Option<Related>,
}

/// Another instruction that a warning is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Related {
    /// Slot number of the instruction.
    pub slot: u32,
    /// What happens there: `loaded here`.
    pub what: &'static str,
    /// The C line it comes from.
    pub line: Option<SourceLine>,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}", self.slot)?;
        if let Some(line) = &self.line {
            write!(f, " ({}:{}:{})", line.file, line.line, line.column)?;
        }
        write!(f, ": {}; {}", self.message, self.help)
    }
}

/// All warnings about a proved program, by instruction.
pub(crate) fn warnings(graph: &Graph<'_>, subject: &impl Subject) -> Vec<Warning> {
    let mut found: Vec<(Pc, Text)> = shared::find(graph)
        .into_iter()
        .map(|(pc, finding, about)| (pc, text(graph, &finding, about)))
        .collect();
    for instance in &graph.facts.instances {
        split_accesses(graph, instance, &mut found);
    }
    found.sort();
    found.dedup();
    let code = graph.env.code;
    found
        .into_iter()
        .map(|(pc, text)| Warning {
            name: text.name,
            pc,
            slot: code.slot(pc),
            insn: warpbpf_ebpf::disasm::disassemble(code, pc),
            line: subject.line_of(pc),
            message: text.message,
            help: text.help,
            related: text.related.map(|(pc, what)| Related {
                slot: code.slot(pc),
                what,
                line: subject.line_of(pc),
            }),
        })
        .collect()
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Text {
    name: &'static str,
    message: String,
    help: String,
    related: Option<(Pc, &'static str)>,
}

fn text(graph: &Graph<'_>, finding: &Finding, about: Option<Pc>) -> Text {
    let name = |map: u32| graph.env.map_name(map);
    let (kind, message, help, what) = match *finding {
        Finding::Update {
            map,
            width,
            checked: false,
        } => (
            "lost-update",
            format!(
                "a value of map `{}`, which all threads share, is loaded, changed and stored in separate steps: what other threads store in between is lost",
                name(map)
            ),
            advice(width),
            "loaded here",
        ),
        Finding::Update {
            map,
            checked: true,
            ..
        } => (
            "lost-update",
            format!(
                "a value of map `{}`, which all threads share, is tested and then stored: another thread can store in between",
                name(map)
            ),
            "try `__sync_val_compare_and_swap` a few times, or use a map of type 1502 (one value per thread) and combine on the host".to_owned(),
            "tested here",
        ),
        Finding::WriteBack { map } => (
            "lost-update",
            format!(
                "`bpf_map_update_elem` writes what was computed from an old value of map `{}`: what other threads store in between is lost",
                name(map)
            ),
            "change the value in place, through the pointer that `bpf_map_lookup_elem` returns, with `+=` or `__sync_fetch_and_add`".to_owned(),
            "loaded here",
        ),
        Finding::Insert { map } => (
            "lost-insert",
            format!(
                "two threads that both find nothing in map `{}` both insert, and the second one overwrites what the first one has counted",
                name(map)
            ),
            "insert a zero with BPF_NOEXIST, then look up again and add".to_owned(),
            "nothing found here",
        ),
        Finding::Lock { map } => (
            "lock",
            format!(
                "this tries to take a lock in map `{}`: of the lanes of a warp one gets it at most, and those that run out of tries go on without",
                name(map)
            ),
            "use `__sync_fetch_and_add` and its like on the data itself, or a map of type 1502 (one value per thread)".to_owned(),
            "tried again from here",
        ),
    };
    Text {
        name: kind,
        message,
        help,
        related: about.map(|pc| (pc, what)),
    }
}

fn advice(width: Width) -> String {
    match width {
        Width::W8 | Width::W16 => {
            "use a 4- or 8-byte field with `+=`, or a map of type 1502 (one value per thread)"
        }
        Width::W32 | Width::W64 => {
            "use one `+=`, `-=`, `|=`, `&=` or `^=`, which become atomic, `__sync_fetch_and_add` and its like, or a map of type 1502 (one value per thread)"
        }
    }
    .to_owned()
}

fn split_accesses(graph: &Graph<'_>, instance: &Instance, found: &mut Vec<(Pc, Text)>) {
    for pc in (instance.start.0..instance.end.0).map(Pc) {
        let (Some(width), InsnFact::Access(place)) =
            (accessed_width(graph.env.code.at(pc)), instance.at(pc))
        else {
            continue;
        };
        // A record is one lane's until it is given back.
        let unseen = matches!(place.region, Region::Context | Region::Record { .. });
        if place.align >= width.bytes() || unseen {
            continue;
        }
        let bytes = width.bytes();
        found.push((
            pc,
            Text {
                name: "split-access",
                message: format!(
                    "this access of {bytes} bytes is only known to be aligned to {}: it is split into {} accesses, which other threads can see one by one",
                    place.align,
                    bytes / place.align
                ),
                help: format!("align the field to {bytes}"),
                related: None,
            },
        ));
    }
}

/// The size of what a plain load or store accesses.
fn accessed_width(insn: &Insn) -> Option<Width> {
    match insn {
        Insn::Load { width, .. } | Insn::Store { width, .. } => Some(*width),
        _ => None,
    }
}
