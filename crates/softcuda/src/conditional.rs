//! Conditional nodes: graphs in a node of which those run that a value on the device chooses when
//! their turn comes.

use std::sync::Arc;

use crate::error::CuError;
use crate::graph::Graph;
use crate::operation::Operation;
use crate::state::{Handle, Soft, soft};
use crate::stream::Run;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
pub(crate) const ASSIGN_DEFAULT: u32 = 1;

/// A value that kernels set (`cudaGraphSetConditional`). Its handle is where it lies on the device.
pub(crate) struct Condition {
    pub address: u64,
    pub default: u32,
    pub flags: u32,
}

impl Condition {
    pub(crate) fn new(
        soft: &Soft,
        device: usize,
        default: u32,
        flags: u32,
    ) -> Result<Arc<Condition>, CuError> {
        let address = soft.devices[device]
            .gpu
            .alloc(8)
            .ok_or(CuError::OUT_OF_MEMORY)?;
        let condition = Condition {
            address,
            default,
            flags,
        };
        condition.set(soft, default);
        Ok(Arc::new(condition))
    }

    fn set(&self, soft: &Soft, value: u32) {
        // A kernel can free it, being an address like any other; then there is no value.
        let _ = soft.write(self.address, &u64::from(value).to_le_bytes());
    }

    fn value(&self, soft: &Soft) -> u32 {
        let mut value = [0; 4];
        match soft.read(self.address, &mut value) {
            Ok(()) => u32::from_le_bytes(value),
            Err(_) => 0,
        }
    }

    /// A graph with it begins to run.
    pub(crate) fn begin(&self, soft: &Soft) {
        if self.flags & ASSIGN_DEFAULT != 0 {
            self.set(soft, self.default);
        }
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Ok(soft) = soft() {
            let _ = soft.free(self.address);
        }
    }
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
    fn body(self, value: u32, bodies: usize) -> Option<usize> {
        let chosen = match self {
            Choice::If => usize::from(value == 0),
            Choice::While if value == 0 => return None,
            Choice::While => 0,
            Choice::Switch => value as usize,
        };
        (chosen < bodies).then_some(chosen)
    }
}

/// What is in a conditional node.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub condition: Arc<Condition>,
    pub choice: Choice,
    pub bodies: Arc<[Arc<Graph>]>,
    /// Their handles, as the program is shown them.
    pub handles: Arc<[Handle]>,
}

impl Conditional {
    pub(crate) fn new(
        condition: Arc<Condition>,
        choice: Choice,
        bodies: Vec<Arc<Graph>>,
    ) -> Conditional {
        Conditional {
            condition,
            choice,
            handles: bodies.iter().map(|body| body.handle).collect(),
            bodies: bodies.into(),
        }
    }
}

/// What an executable graph does, in order.
#[derive(Clone)]
pub(crate) enum Planned {
    Operation(Operation),
    Choice {
        condition: Arc<Condition>,
        choice: Choice,
        bodies: Vec<Vec<Planned>>,
    },
}

impl Planned {
    pub(crate) fn place(&self) -> Run {
        match self {
            Planned::Operation(operation) => operation.place(),
            Planned::Choice { bodies, .. } => {
                let mut all = bodies.iter().flatten();
                match all.any(|planned| planned.place() == Run::Elsewhere) {
                    true => Run::Elsewhere,
                    false => Run::Here,
                }
            }
        }
    }

    /// Runs it, as long as `goes_on` says so of each operation.
    pub(crate) fn run(&self, soft: &Soft, goes_on: &dyn Fn(&Operation) -> bool) {
        match self {
            Planned::Operation(operation) => {
                if goes_on(operation) {
                    operation.run(soft);
                }
            }
            Planned::Choice {
                condition,
                choice,
                bodies,
            } => loop {
                let chosen = choice.body(condition.value(soft), bodies.len());
                let Some(body) = chosen.filter(|_| goes_on(&Operation::Empty)) else {
                    return;
                };
                bodies[body]
                    .iter()
                    .for_each(|planned| planned.run(soft, goes_on));
                if *choice != Choice::While {
                    return;
                }
            },
        }
    }
}
