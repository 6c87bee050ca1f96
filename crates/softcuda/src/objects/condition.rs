//! Values that choose what runs.

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
pub(crate) const ASSIGN_DEFAULT: u32 = 1;

/// A value that kernels set (`cudaGraphSetConditional`). Its handle is where it lies on the device.
pub(crate) struct Condition {
    pub address: u64,
    pub default: u32,
    pub flags: u32,
}

/// `CU_GRAPH_COND_TYPE_…`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    If,
    While,
    Switch,
}

impl Choice {
    pub(crate) fn of(number: i32) -> Option<Choice> {
        Some(match number {
            0 => Choice::If,
            1 => Choice::While,
            2 => Choice::Switch,
            _ => return None,
        })
    }

    /// Whether a node of this type has so many graphs.
    pub(crate) fn takes(self, bodies: u32) -> bool {
        match self {
            Choice::If => (1..=2).contains(&bodies),
            Choice::While => bodies == 1,
            Choice::Switch => bodies > 0,
        }
    }

    /// The graph that runs for a value.
    pub(crate) fn body(self, value: u32, bodies: usize) -> Option<usize> {
        let chosen = match self {
            Choice::If => usize::from(value == 0),
            Choice::While if value == 0 => return None,
            Choice::While => 0,
            Choice::Switch => value as usize,
        };
        (chosen < bodies).then_some(chosen)
    }
}
