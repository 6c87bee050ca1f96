//! How long groups of lanes are held at a place that others will come by. Those may wait for
//! something that the held ones will do, as where one lane has a lock and the others try for it;
//! the ISA lets such programs finish, so the held ones must run in the end. Who waits goes round
//! with the same values in all registers; if it counts its rounds or reads a clock, time decides.

use crate::position::Position;

/// Slices after which held groups run, whatever the others do: some 500,000 instructions.
const LONGEST: u32 = 2048;
/// Looks at a group's registers in a slice.
const LOOKS: u32 = 8;
/// Jumps back after which another one is compared with.
const ROUNDS: u32 = 16;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience {
    /// Slices that ended while somebody was held.
    slices: u32,
    /// Looks left in this slice.
    looks: u32,
    /// A jump back: where to, by whom, and the state of the registers.
    mark: Option<((Position, u32), u64)>,
    /// Jumps back since.
    age: u32,
    goes_round: bool,
}

impl Patience {
    /// A slice is over, and somebody was held: whether it is its turn now.
    pub(crate) fn ends(&mut self) -> bool {
        self.slices += 1;
        self.looks = LOOKS;
        self.goes_round || self.slices > LONGEST
    }

    /// Somebody is held, and what the others do is worth a look.
    pub(crate) fn is_tried(&self) -> bool {
        self.looks > 0
    }

    /// A group jumped back; `state` sums up its registers.
    pub(crate) fn look(&mut self, who: (Position, u32), state: impl FnOnce() -> u64) {
        self.age += 1;
        let known = self.mark.is_some_and(|(marked, _)| marked == who);
        if !known && self.age <= ROUNDS && self.mark.is_some() {
            return;
        }
        self.looks -= 1;
        let state = state();
        self.goes_round |= self.mark == Some((who, state));
        if self.mark.is_none() || self.age > ROUNDS {
            self.mark = Some((who, state));
            self.age = 0;
        }
    }
}
