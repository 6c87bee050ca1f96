//! What is to become of the programs in an application, and what became of them.

use std::time::Duration;

use warpbpf_wire::{Options, ToAgent};

use crate::object::Object;

/// What is to become of the programs in an application's kernels.
#[derive(Debug, Clone)]
pub enum Replacement {
    /// Those of this object, and no others.
    Replace(Object),
    /// Those of this object too.
    Add(Object),
    /// All but these, by their C functions' names.
    Remove(Vec<String>),
    /// The same, but in kernels that run those of these names, or all if there is none, go on or
    /// are stopped.
    Gate {
        /// They go on.
        open: bool,
        /// Their C functions' names.
        programs: Vec<String>,
    },
    /// The same, and in slots are the programs of this object, and no others.
    Slots(Object),
    /// The same, and nothing is in slots.
    Clear,
    /// Those of this object too, for a second tool: its maps are its own, whatever they are called.
    Join {
        /// The number of the second tool, which no other has or had.
        client: u32,
        /// The object.
        object: Object,
        /// How its programs are proved and which launches they are in.
        options: Box<Options>,
    },
    /// All but those of a second tool.
    Leave {
        /// Its number.
        client: u32,
    },
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// How many sets of programs the application has had, with this one. Launches are counted by it
    /// ([`KernelInfo::generations`](crate::KernelInfo::generations)).
    pub generation: u64,
    /// The programs that are in its kernels now.
    pub programs: Vec<String>,
    /// Kernels that programs want and that run without, and why: names for people.
    pub without: Vec<(String, String)>,
    /// The programs that are in slots.
    pub slots: Vec<String>,
}

impl Replacement {
    fn change(&self) -> warpbpf_wire::Change {
        match self {
            Replacement::Replace(_) => warpbpf_wire::Change::Replace,
            Replacement::Add(_) => warpbpf_wire::Change::Add,
            Replacement::Remove(programs) => warpbpf_wire::Change::Remove {
                programs: programs.clone(),
            },
            Replacement::Gate { open, programs } => warpbpf_wire::Change::Gate {
                open: *open,
                programs: programs.clone(),
            },
            Replacement::Slots(_) => warpbpf_wire::Change::Slots,
            Replacement::Clear => warpbpf_wire::Change::Clear,
            Replacement::Join {
                client, options, ..
            } => warpbpf_wire::Change::Join {
                client: *client,
                options: options.clone(),
            },
            Replacement::Leave { client } => warpbpf_wire::Change::Leave { client: *client },
        }
    }

    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Replacement::Replace(object)
            | Replacement::Add(object)
            | Replacement::Slots(object)
            | Replacement::Join { object, .. } => Some(object),
            Replacement::Remove(_)
            | Replacement::Gate { .. }
            | Replacement::Clear
            | Replacement::Leave { .. } => None,
        }
    }

    /// The message that asks the agent for it.
    pub(crate) fn message(&self, token: u64, limit: Duration) -> ToAgent {
        ToAgent::Change {
            token,
            change: self.change(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
