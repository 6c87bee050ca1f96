//! `alloca`, `stacksave`, `stackrestore`: local memory whose size is known only when it is asked
//! for. Frames of functions stand at the same place for all lanes of a group, so what each lane
//! asked for has a part of local memory of its own, above them. It ends with the function that
//! asked.

use std::cell::Cell;

use crate::limits::MAX_LOCAL;
use crate::op::operand::Row;
use crate::position::Position;
use crate::trap::{Exec, Fault, TrapKind};
use crate::warp::{Warp, lanes};

/// Local address of the first byte; above all frames.
pub(crate) const DYNAMIC: u64 = 1 << 24;

/// Lanes' stacks count in words.
const WORD: u64 = 8;

pub(crate) fn allocate(
    warp: &mut Warp,
    at: Position,
    active: u32,
    [d, size]: [Row; 2],
    align: u32,
) -> Exec<()> {
    if warp.dynamic.is_empty() {
        warp.dynamic.resize_with(32, Vec::new);
    }
    for lane in lanes(active) {
        let size = warp.row(at.base, size)[lane].get();
        let used = warp.dynamic[lane].len() as u64 * WORD;
        let start = used.next_multiple_of(u64::from(align).max(WORD));
        let end = start
            .checked_add(size)
            .filter(|&end| end <= u64::from(MAX_LOCAL));
        let Some(end) = end else {
            let message = format!(
                "`alloca` of {size} bytes after {used}: a thread has {MAX_LOCAL} bytes of local memory"
            );
            return Err(Fault::new(lane as u32, TrapKind::StackOverflow, message));
        };
        let words = end.div_ceil(WORD) as usize;
        warp.dynamic[lane].resize_with(words, || const { Cell::new(0) });
        warp.row(at.base, d)[lane].set(DYNAMIC + start);
    }
    Ok(())
}

pub(crate) fn save(warp: &Warp, at: Position, active: u32, d: Row) {
    for lane in lanes(active) {
        let words = warp.dynamic.get(lane).map_or(0, Vec::len) as u64;
        warp.row(at.base, d)[lane].set(DYNAMIC + words * WORD);
    }
}

pub(crate) fn restore(warp: &mut Warp, at: Position, active: u32, s: Row) -> Exec<()> {
    for lane in lanes(active) {
        let saved = warp.row(at.base, s)[lane].get();
        let words = warp.dynamic.get(lane).map_or(0, Vec::len) as u64;
        let wanted = saved.checked_sub(DYNAMIC).map(|bytes| bytes / WORD);
        let Some(wanted) = wanted.filter(|&wanted| wanted <= words) else {
            let message = format!("`stackrestore` of {saved:#x}, which `stacksave` did not give");
            return Err(Fault::new(lane as u32, TrapKind::StackOverflow, message));
        };
        if let Some(stack) = warp.dynamic.get_mut(lane) {
            stack.truncate(wanted as usize);
        }
    }
    Ok(())
}
