//! Runs programs at functions, one thread at a time.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, TryLockError};
use std::time::Instant;

use warpbpf_session::cpu::{self, CpuError};
use warpbpf_wire::NoteLevel;

use crate::sys::guard::quietly;
use crate::sys::lock::lock;
use crate::sys::stack;
use crate::uprobe::lost::count;
use crate::uprobe::lost::{LIMIT, within_patience};
use crate::uprobe::registers::Registers;
use crate::uprobe::sites::{CHOSEN, Site, Sites, sites};
use crate::uprobe::waiting::Call;
use crate::uprobe::waiting::Waiting;
use crate::uprobe::world::World;

thread_local! {
    /// None of them has a destructor, so they can be used while the thread ends.
    static CALLS: RefCell<Waiting> = const { RefCell::new(Waiting::new()) };
}

/// The thread's own stack.
pub(crate) fn stack() -> Range<u64> {
    let own = stack::own();
    own.start as u64..own.end as u64
}

/// A call has returned that was expected to: where its caller goes on.
pub(crate) fn end_call(index: usize, slot: u64) -> Option<u64> {
    let own = stack();
    CALLS.with(|calls| calls.borrow_mut().end(index, slot, &own))
}

/// Programs run one after the other, over all threads: what each reads and writes back is then
/// exact among them.
static TURN: Mutex<()> = Mutex::new(());

/// Has the function return to us. False: it will not.
pub(crate) fn expect_return(sites: &Sites, index: usize, slot: u64) -> bool {
    if !sites.agent.is_on() {
        return false;
    }
    let own = stack();
    // SAFETY: at a function's start its return address stands on top of the stack.
    let place = unsafe { &mut *(slot as *mut u64) };
    let call = Call {
        site: index,
        slot,
        caller: *place,
    };
    let chained = sites.all.iter().any(|site| site.after as u64 == *place);
    let noted = CALLS.with(|calls| match calls.try_borrow_mut() {
        Ok(mut calls) => calls.begin(call, &own, chained),
        Err(_) => false,
    });
    if noted {
        *place = sites.all[index].after as u64;
    }
    noted
}

pub(crate) fn run(sites: &Sites, site: &Site, programs: &[usize], registers: &Registers) {
    if programs.is_empty() || !sites.agent.is_on() {
        return;
    }
    // A panic is a fault of ours, and inside ourselves nothing is wanted: the application goes on
    // either way.
    let _ = quietly(|| execute(sites, site, programs, registers.bytes()));
}

/// Waits until nobody runs a program that was begun before, for as long as one may take.
pub(crate) fn wait_for_turn() {
    let turn = || {
        let is_taken = matches!(TURN.try_lock(), Err(TryLockError::WouldBlock));
        (!is_taken).then_some(())
    };
    let _ = within_patience(Instant::now() + LIMIT, turn);
}

/// Runs programs of a function with a context, each after those of other threads.
pub(crate) fn execute(sites: &Sites, site: &Site, programs: &[usize], context: &[u8]) {
    if programs.is_empty() {
        return;
    }
    let turn = within_patience(Instant::now() + LIMIT, || match TURN.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        turn => Some(turn),
    });
    if turn.is_none() {
        for number in programs {
            count(&sites.lost[*number].skipped);
        }
        return;
    }
    for number in programs.iter().filter(|number| !sites.is_paused(**number)) {
        let program = &sites.session.host_programs()[*number].program;
        let mut world = World::new(sites, site, *number);
        let ended = cpu::execute(program, sites.session.map_defs(), context, &mut world);
        if let Err(error) = ended {
            if let CpuError::Limit { .. } = error {
                count(&sites.lost[*number].stopped);
            }
            sites.agent.note(NoteLevel::Warning, error.to_string());
        }
    }
}

/// Of the programs these run from now on, and the others do not.
pub(crate) fn choose(names: Vec<String>) {
    let mut chosen = lock(&CHOSEN);
    if let Some(sites) = sites() {
        sites.choose(&names);
    }
    *chosen = Some(names);
    drop(chosen);
    wait_for_turn();
}
