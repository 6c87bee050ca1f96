//! The generic address space: where shared and local memory, kernel parameters and functions appear
//! in it. Global and constant memory are at their own addresses. The windows lie above every
//! address a host process can have.

use crate::op::operand::Space;

/// Shared memory of the executing block; other blocks of the cluster follow by rank.
pub(crate) const SHARED: u64 = 1 << 56;
/// Local memory of the executing thread.
pub(crate) const LOCAL: u64 = 2 << 56;
/// Kernel parameters.
pub(crate) const PARAM: u64 = 3 << 56;
/// Functions: `FUNCTION | module << 24 | (function + 1) << 4`.
pub(crate) const FUNCTION: u64 = 4 << 56;
const WINDOW: u64 = 0xff << 56;
/// A shared address holds `rank + 1` of another block above these bits, 0 for the executing block's
/// own.
pub(crate) const RANK_SHIFT: u32 = 24;

fn start(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global | Space::Const => 0,
        Space::Shared | Space::SharedCluster => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
    }
}

/// `cvta` (to generic) and `cvta.to`.
#[inline]
pub(crate) fn convert(address: u64, space: Space, to: bool) -> u64 {
    let start = start(space);
    match (start, to) {
        (0, _) => address,
        (_, true) => address & !WINDOW,
        (_, false) => address & !WINDOW | start,
    }
}

/// `isspacep`
pub(crate) fn is_space(address: u64, space: Space, rank: u32) -> bool {
    let (window, offset) = (address & WINDOW, address & !WINDOW);
    match space {
        Space::Shared => window == SHARED && own(offset, rank),
        Space::SharedCluster => window == SHARED,
        Space::Local => window == LOCAL,
        Space::Param => window == PARAM,
        Space::Global => window == 0,
        Space::Const | Space::Generic => false,
    }
}

/// Whether a shared address is the executing block's own.
fn own(offset: u64, rank: u32) -> bool {
    let holder = offset >> RANK_SHIFT;
    holder == 0 || holder == u64::from(rank) + 1
}

/// The space of a generic address and the address in it.
#[inline]
pub(crate) fn resolve(address: u64) -> (Space, u64) {
    match address & WINDOW {
        SHARED => (Space::SharedCluster, address & !WINDOW),
        LOCAL => (Space::Local, address & !WINDOW),
        PARAM => (Space::Param, address & !WINDOW),
        _ => (Space::Global, address),
    }
}

/// The address of a function.
pub(crate) fn function(module: u32, index: u32) -> u64 {
    FUNCTION | u64::from(module) << 24 | (u64::from(index) + 1) << 4
}

/// The module and function of an address that [`function`] made.
pub(crate) fn function_at(address: u64) -> Option<(u32, u32)> {
    if address & WINDOW != FUNCTION || address & 15 != 0 {
        return None;
    }
    let index = ((address >> 4) as u32 & 0xf_ffff).checked_sub(1)?;
    Some(((address >> 24) as u32, index))
}
