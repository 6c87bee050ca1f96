//! Conditional nodes: graphs in a node of which those run that a value on the device chooses when
//! their turn comes.

use std::sync::Arc;

use crate::error::CuError;
use crate::objects::condition::{ASSIGN_DEFAULT, Choice, Condition};
use crate::objects::executable::Planned;
use crate::objects::stream::Run;
use crate::objects::work::Operation;
use crate::state::{Soft, soft};

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
