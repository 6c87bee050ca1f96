//! What programs on the CPU could not do, counted, because the application's threads do not wait
//! for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_session::cpu::FUEL;

/// How long one run of a program may take, and how long a thread waits for the programs of others.
/// An operation on a map that is under way at that moment is waited for, at most as long again.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// After a wait in vain nobody waits for so long: what was busy for [`LIMIT`] may be so for good,
/// and threads of the application would wait at each call.
const REST: Duration = Duration::from_secs(60);
/// Time between two looks at a lock.
const PAUSE: Duration = Duration::from_micros(20);

/// Of one program.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Runs that did not begin, because programs of other threads were running.
    pub(crate) skipped: AtomicU64,
    /// Runs that were stopped.
    pub(crate) stopped: AtomicU64,
    /// Operations on maps and events that were given up.
    pub(crate) refused: AtomicU64,
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Lost {
    /// A sentence for the user, if there is something to say.
    pub(crate) fn text(&self, program: &str) -> Option<String> {
        let seconds = LIMIT.as_secs();
        let kinds = [
            (
                &self.skipped,
                format!("runs were left out, because programs of other threads took {seconds} s"),
            ),
            (
                &self.stopped,
                format!("runs were stopped at their limit ({FUEL} instructions, {seconds} s)"),
            ),
            (
                &self.refused,
                "operations on maps were given up, because the maps or the device were busy".into(),
            ),
        ];
        let said: Vec<String> = kinds
            .iter()
            .map(|(counter, what)| (counter.load(Ordering::Relaxed), what))
            .filter(|(times, _)| *times != 0)
            .map(|(times, what)| format!("{times} {what}"))
            .collect();
        (!said.is_empty()).then(|| format!("program `{program}` on the CPU: {}", said.join("; ")))
    }
}

/// When a wait was in vain.
static IN_VAIN: Mutex<Option<Instant>> = Mutex::new(None);

/// Until when one may wait that begins now: not at all, for a while after a wait in vain.
pub(crate) fn patience() -> Instant {
    // Only ever held for a moment.
    let last = *IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner);
    may_wait(Instant::now(), last)
}

fn may_wait(now: Instant, in_vain: Option<Instant>) -> Instant {
    match in_vain {
        Some(then) if now < then + REST => now,
        _ => now + LIMIT,
    }
}

/// As [`patiently`], until [`patience`] ends, or it is `until`; a wait in vain is remembered.
pub(crate) fn within_patience<T>(until: Instant, ask: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    let got = patiently(patience().min(until), ask);
    if got.is_none() && begun.elapsed() >= LIMIT / 2 {
        *IN_VAIN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
    got
}

/// Asks until there is something or it is `until`; asks once in any case.
fn patiently<T>(until: Instant, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(got) = ask() {
            return Some(got);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_said() {
        let lost = Lost::default();
        assert_eq!(lost.text("p"), None);
        count(&lost.stopped);
        assert_eq!(
            lost.text("p").unwrap(),
            "program `p` on the CPU: 1 runs were stopped at their limit (1048576 instructions, 2 s)"
        );
        count(&lost.skipped);
        count(&lost.refused);
        count(&lost.refused);
        assert_eq!(
            lost.text("p").unwrap(),
            "program `p` on the CPU: 1 runs were left out, because programs of other threads took 2 s; 1 runs were stopped at their limit (1048576 instructions, 2 s); 2 operations on maps were given up, because the maps or the device were busy"
        );
    }

    #[test]
    fn nobody_waits_for_a_while_after_a_wait_in_vain() {
        let now = Instant::now();
        assert_eq!(may_wait(now, None), now + LIMIT);
        assert_eq!(may_wait(now + REST / 2, Some(now)), now + REST / 2);
        assert_eq!(may_wait(now + REST, Some(now)), now + REST + LIMIT);
    }

    #[test]
    fn who_is_late_asks_once() {
        let mut asked = 0;
        let got = patiently(Instant::now(), || {
            asked += 1;
            None::<()>
        });
        assert_eq!((got, asked), (None, 1));
        let far = Instant::now() + Duration::from_secs(60);
        let mut left = 3;
        let got = patiently(far, || {
            left -= 1;
            (left == 0).then_some(7)
        });
        assert_eq!(got, Some(7));
    }
}
