//! A rule that was broken, and where.

use warpbpf_ebpf::{Pc, Reg};

use crate::event::Event;
use crate::rule::Rule;

/// A rule that was broken, and where.
#[derive(Debug)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// The instruction.
    pub pc: Pc,
    /// The path there, last event first.
    pub path: Vec<Event>,
    /// Registers that the instruction names, with what they hold.
    pub values: Vec<(Reg, String)>,
}
