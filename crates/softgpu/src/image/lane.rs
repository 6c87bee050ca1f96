//! One lane of an instruction on a texture or surface.

use crate::block::Env;
use crate::op::operand::{NOWHERE, Row};
use crate::position::Position;
use crate::trap::{Fault, TrapKind};
use crate::warp::Warp;

/// One lane of an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'w> {
    pub env: &'w Env,
    pub warp: &'w Warp,
    pub at: Position,
    pub lane: usize,
}

impl Lane<'_> {
    pub(super) fn get(&self, row: Row) -> u64 {
        self.warp.row(self.at.base, row)[self.lane].get()
    }

    pub(super) fn put(&self, row: Row, value: u64) {
        if row != NOWHERE {
            self.warp.row(self.at.base, row)[self.lane].set(value);
        }
    }

    pub(super) fn wrong(&self, message: String) -> Box<Fault> {
        Fault::new(self.lane as u32, TrapKind::InvalidDescriptor, message)
    }
}
