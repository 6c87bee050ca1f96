//! Where code reads launch arguments: words that differ from launch to launch ([`launch`]).

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::Capture;
use warpbpf_abi::layout::launch;
use warpbpf_abi::names::{LAUNCH_PARAM, TABLE};

use crate::attachment::Attachment;
use crate::variant::HiddenParam;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchArgs {
    /// In the hidden parameter of the kernel or of the function.
    Parameter,
    /// So many bytes behind where a function's table begins.
    Table(u64),
}

impl LaunchArgs {
    /// Reads the word at an offset.
    pub(crate) fn load(self, register: &str, at: u64) -> String {
        match self {
            LaunchArgs::Parameter if at == 0 => {
                format!("ld.param.u64 {register}, [{LAUNCH_PARAM}];")
            }
            LaunchArgs::Parameter => format!("ld.param.u64 {register}, [{LAUNCH_PARAM}+{at}];"),
            LaunchArgs::Table(first) => {
                format!("ld.global.u64 {register}, [{TABLE}+{}];", first + at)
            }
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

/// This is a launch argument.
pub(crate) fn is_launch_arg(capture: Capture) -> bool {
    place_of(capture).is_some()
}

/// The launch arguments that programs at one kind of place need, as bits: bit `i` stands for the
/// word at byte `8 * i` ([`launch`]).
pub fn launch_arg_words(site: Site, attachments: &[Attachment<'_>]) -> u8 {
    let here = || attachments.iter().filter(|a| a.site == site);
    let bit = |needed: bool, at: u64| u8::from(needed) << (at / 8);
    let reads = |capture| here().any(|a| a.fragment.captures.contains(&capture));
    let counts = site == Site::Exit && here().any(|a| a.scope != Scope::Thread);
    bit(counts, launch::PARAM_RECORD)
        | bit(reads(Capture::Launch), launch::PARAM_NUMBER)
        | bit(reads(Capture::Node), launch::PARAM_NODE)
        | bit(here().any(|a| a.choice.is_some()), launch::PARAM_CHOSEN)
}

/// The hidden parameter of a kernel of which there is only machine code: these launch arguments,
/// behind `offset` bytes of the kernel's own parameters. `exits` are the scopes of programs at its
/// exits. `None` if it needs none.
pub fn launch_args_of_kernel(offset: u64, words: u8, exits: &[Scope]) -> Option<HiddenParam> {
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
