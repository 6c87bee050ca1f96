//! Where code reads what a launch tells: words that are others for each launch ([`launch`]).

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch;
use warpbpf_abi::names::{LAUNCH_PARAM, TABLE};

use crate::Attachment;
use crate::variant::HiddenParam;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// In the hidden parameter of the kernel or of the function.
    Parameter,
    /// So many bytes behind where a function's table begins.
    Table(u64),
}

impl Told {
    /// Reads the word at an offset.
    pub(crate) fn load(self, register: &str, at: u64) -> String {
        match self {
            Told::Parameter if at == 0 => format!("ld.param.u64 {register}, [{LAUNCH_PARAM}];"),
            Told::Parameter => format!("ld.param.u64 {register}, [{LAUNCH_PARAM}+{at}];"),
            Told::Table(first) => format!("ld.global.u64 {register}, [{TABLE}+{}];", first + at),
        }
    }

    /// The word that a program reads.
    pub(crate) fn capture(self, capture: Capture, register: &str) -> Option<String> {
        Some(self.load(register, place_of(capture)?))
    }
}

/// Where among a launch's words one is that programs read.
fn place_of(capture: Capture) -> Option<u64> {
    match capture {
        Capture::Launch => Some(launch::PARAM_NUMBER),
        Capture::Node => Some(launch::PARAM_NODE),
        _ => None,
    }
}

/// A launch tells this.
pub(crate) fn is_told(capture: Capture) -> bool {
    place_of(capture).is_some()
}

/// The words of a launch that programs at one kind of place need, as bits: number `i` is at byte `8 * i` ([`launch`]).
pub fn told_words(site: Site, attachments: &[Attachment<'_>]) -> u8 {
    let here = || attachments.iter().filter(|a| a.site == site);
    let bit = |needed: bool, at: u64| u8::from(needed) << (at / 8);
    let reads = |capture| here().any(|a| a.fragment.captures.contains(&capture));
    let counts = site == Site::Exit && here().any(|a| a.scope != Scope::Thread);
    bit(counts, launch::PARAM_RECORD)
        | bit(reads(Capture::Launch), launch::PARAM_NUMBER)
        | bit(reads(Capture::Node), launch::PARAM_NODE)
        | bit(here().any(|a| a.choice.is_some()), launch::PARAM_CHOSEN)
}

/// What a launch must tell a kernel of which there is only machine code: these words, behind so many bytes of parameters of its own. `exits` are the scopes of programs
/// at its exits. `None` if nothing.
pub fn told_to_kernel(offset: u64, words: u8, exits: &[Scope]) -> Option<HiddenParam> {
    let needs = |at: u64| words & 1 << (at / 8) != 0;
    (words != 0).then(|| HiddenParam {
        offset,
        block_cells: 0,
        block_counters: exits.contains(&Scope::Block),
        warp_counters: exits.contains(&Scope::Warp),
        node: needs(launch::PARAM_NODE),
        chosen: needs(launch::PARAM_CHOSEN),
    })
}
