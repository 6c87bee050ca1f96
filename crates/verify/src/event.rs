//! What happens on a path.

use warpbpf_ebpf::Pc;

/// What counts the rounds of a loop whose states repeat. Each is taken a bounded number of times
/// between two points at which it is made anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Token {
    /// The `may_goto` counter of a call of this instance.
    MayGoto(usize),
    /// The calls that the helper call at an instruction of an instance makes back.
    Callback(usize, Pc),
    /// The numbers of the iterator made by a call in an instance, in a slot of the stack at a call
    /// depth.
    Iterator(usize, Pc, u32, i16),
}

/// A point at which states are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Point {
    /// The instance.
    pub instance: usize,
    /// The instruction.
    pub pc: Pc,
    /// Inside the helper that this instruction calls, between two calls back.
    pub inside: bool,
    /// A loop comes back here.
    pub head: bool,
}

/// What happened at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The start.
    Root,
    /// A conditional jump of which both sides are possible.
    Branch {
        /// Where.
        pc: Pc,
        /// This path jumps.
        taken: bool,
    },
    /// A call of a local function.
    Call(Pc),
    /// A point where paths meet.
    Meet(Point),
    /// One of this was taken.
    Took(Token),
    /// This was made anew.
    Fresh(Token),
    /// One of several ways to go on that is told nowhere.
    Way,
}
