//! Calls of one thread whose end is waited for. Some never end as calls do: `longjmp` and
//! exceptions leave functions in one go, so what is deeper than the place that a thread has come
//! back to is forgotten.

use std::ops::Range;

/// Calls that are kept; those of deeper recursion are not seen returning.
pub(crate) const DEPTH: usize = 64;

/// A call whose end is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) site: usize,
    /// Where its return address stood.
    pub(crate) slot: u64,
    /// That address.
    pub(crate) caller: u64,
}

/// See the module. In the order in which they began.
#[derive(Debug)]
pub(crate) struct Waiting {
    calls: [Call; DEPTH],
    count: usize,
}

impl Waiting {
    pub(crate) const fn new() -> Waiting {
        let none = Call {
            site: 0,
            slot: 0,
            caller: 0,
        };
        Waiting {
            calls: [none; DEPTH],
            count: 0,
        }
    }

    /// Notes a call that begins; false if there is no room. `own` is the thread's own stack.
    /// `chained`: what stood in the slot leads to us already, because a function with a probe has
    /// jumped to this one instead of calling it.
    pub(crate) fn begin(&mut self, call: Call, own: &Range<u64>, chained: bool) -> bool {
        // Another call in this slot that has not put its address there is over, on whatever stack.
        let slot = call.slot;
        self.keep(|other| (other.slot != slot || chained) && !is_below(other, slot, own));
        if self.count == DEPTH {
            return false;
        }
        self.calls[self.count] = call;
        self.count += 1;
        true
    }

    /// The address that the call which ends now would have returned to.
    pub(crate) fn end(&mut self, site: usize, slot: u64, own: &Range<u64>) -> Option<u64> {
        let own_call = |call: &Call| call.slot == slot && call.site == site;
        let at = self.calls[..self.count].iter().rposition(own_call)?;
        let ended = self.calls[at];
        self.calls.copy_within(at + 1..self.count, at);
        self.count -= 1;
        self.keep(|other| !is_below(other, slot, own));
        Some(ended.caller)
    }

    fn keep(&mut self, kept: impl Fn(&Call) -> bool) {
        let mut count = 0;
        for at in 0..self.count {
            if kept(&self.calls[at]) {
                self.calls[count] = self.calls[at];
                count += 1;
            }
        }
        self.count = count;
    }
}

/// The call was made from deeper in the thread's own stack than `slot`. A thread may have other
/// stacks, of coroutines and signals, of which nobody knows where they begin: nothing follows from
/// addresses there.
fn is_below(call: &Call, slot: u64, own: &Range<u64>) -> bool {
    own.contains(&slot) && own.contains(&call.slot) && call.slot < slot
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Range<u64> = 0x1000..0x9000;

    fn begin(waiting: &mut Waiting, site: usize, slot: u64) -> bool {
        let caller = 0xc0de_0000 + slot;
        waiting.begin(Call { site, slot, caller }, &OWN, false)
    }

    #[test]
    fn calls_return_to_their_callers() {
        let mut waiting = Waiting::new();
        assert!(begin(&mut waiting, 1, 0x8000));
        assert!(begin(&mut waiting, 2, 0x7000));
        assert_eq!(waiting.end(2, 0x7000, &OWN), Some(0xc0de_7000));
        assert_eq!(waiting.end(2, 0x7000, &OWN), None, "it has ended");
        assert_eq!(waiting.end(1, 0x8000, &OWN), Some(0xc0de_8000));
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn calls_that_were_jumped_out_of_take_no_room() {
        let mut waiting = Waiting::new();
        assert!(begin(&mut waiting, 1, 0x8000));
        // Each time the thread goes deep and is thrown back by longjmp.
        for _ in 0..10 * DEPTH {
            for depth in 1..8 {
                assert!(begin(&mut waiting, 2, 0x8000 - depth * 0x100));
            }
        }
        assert!(waiting.count <= 8, "{}", waiting.count);
        // A call that is less deep shows that all of them are over.
        assert!(begin(&mut waiting, 3, 0x7f80));
        assert_eq!(waiting.count, 2);
        assert_eq!(waiting.end(3, 0x7f80, &OWN), Some(0xc0de_7f80));
        assert_eq!(waiting.end(1, 0x8000, &OWN), Some(0xc0de_8000));
    }

    #[test]
    fn a_return_forgets_what_was_thrown_over() {
        let mut waiting = Waiting::new();
        assert!(begin(&mut waiting, 1, 0x8000));
        assert!(begin(&mut waiting, 2, 0x7000));
        assert!(begin(&mut waiting, 3, 0x6000));
        // The function of site 2 and that of site 3 were left by an exception, which site 1 caught.
        assert_eq!(waiting.end(1, 0x8000, &OWN), Some(0xc0de_8000));
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn a_function_that_jumps_to_another_returns_twice() {
        let mut waiting = Waiting::new();
        assert!(begin(&mut waiting, 1, 0x8000));
        let chained = Call {
            site: 2,
            slot: 0x8000,
            caller: 0xaf7e,
        };
        assert!(waiting.begin(chained, &OWN, true));
        assert_eq!(waiting.end(2, 0x8000, &OWN), Some(0xaf7e));
        assert_eq!(waiting.end(1, 0x8000, &OWN), Some(0xc0de_8000));
    }

    #[test]
    fn stacks_of_coroutines_are_left_alone() {
        let mut waiting = Waiting::new();
        assert!(begin(&mut waiting, 1, 0x20_0000));
        assert!(begin(&mut waiting, 2, 0x30_0000));
        assert!(begin(&mut waiting, 3, 0x8000));
        assert_eq!(
            waiting.end(2, 0x30_0000, &OWN),
            Some(0xc0de_0000 + 0x30_0000)
        );
        assert_eq!(
            waiting.end(1, 0x20_0000, &OWN),
            Some(0xc0de_0000 + 0x20_0000)
        );
        // A slot that somebody else has overwritten is nobody's call any more.
        assert!(begin(&mut waiting, 1, 0x20_0000));
        assert!(begin(&mut waiting, 1, 0x20_0000));
        assert_eq!(waiting.count, 2);
        assert_eq!(waiting.end(3, 0x8000, &OWN), Some(0xc0de_8000));
    }

    #[test]
    fn recursion_beyond_what_is_kept_is_not_seen() {
        let mut waiting = Waiting::new();
        for depth in 0..DEPTH as u64 {
            assert!(begin(&mut waiting, 1, 0x8000 - depth * 16));
        }
        assert!(!begin(&mut waiting, 1, 0x8000 - DEPTH as u64 * 16));
        assert_eq!(waiting.end(1, 0x8000, &OWN), Some(0xc0de_8000));
    }
}
