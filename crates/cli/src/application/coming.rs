//! Processes that something is done to, each by a thread of its own: one that is stuck holds up
//! neither the others nor whoever wants to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use warpbpf_inject::GoesOn;

use crate::term::signals::Interrupted;

/// How long a process may take before it is named.
const LONG: Duration = Duration::from_secs(3);

/// What is under way.
pub struct Coming<'s, 't, T> {
    scope: &'s Scope<'s, 't>,
    /// Nobody waits any more.
    over: &'t AtomicBool,
    all: Vec<One<'s, T>>,
}

struct One<'s, T> {
    pid: u32,
    thread: ScopedJoinHandle<'s, Result<T, String>>,
    begun: Instant,
    /// It was named.
    named: bool,
}

/// What became of processes, by their numbers.
pub type Ended<T> = Vec<(u32, Result<T, String>)>;

impl<'s, 't, T: Send + 's> Coming<'s, 't, T> {
    /// Nothing yet. Once `over` is set, what is under way ends soon.
    pub fn new(scope: &'s Scope<'s, 't>, over: &'t AtomicBool) -> Coming<'s, 't, T> {
        Coming {
            scope,
            over,
            all: Vec::new(),
        }
    }

    /// Begins with one process. `work` is given what it asks whether somebody still waits for it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(
        &mut self,
        pid: u32,
        work: impl FnOnce(GoesOn<'_>) -> Result<T, String> + Send + 's,
    ) -> Result<(), String> {
        let over = self.over;
        let goes_on = move || !over.load(Ordering::Relaxed) && !Interrupted::was();
        let thread = std::thread::Builder::new().name("warpbpf-attach".into());
        let started = thread.spawn_scoped(self.scope, move || work(&goes_on));
        let started =
            started.map_err(|error| format!("process {pid}: no thread can be started: {error}"))?;
        self.all.push(One {
            pid,
            thread: started,
            begun: Instant::now(),
            named: false,
        });
        Ok(())
    }

    /// What has come to an end.
    pub fn take_in(&mut self) -> Ended<T> {
        self.take(|thread| thread.is_finished())
    }

    /// Nobody waits any more: what became of the rest.
    pub fn settle(&mut self) -> Ended<T> {
        self.over.store(true, Ordering::Relaxed);
        self.take(|_| true)
    }

    /// Nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Processes that take long, each once.
    pub fn slow(&mut self) -> Vec<u32> {
        let all = self.all.iter_mut();
        let slow = all.filter(|one| !one.named && one.begun.elapsed() > LONG);
        let named = slow.map(|one| {
            one.named = true;
            one.pid
        });
        named.collect()
    }

    fn take(
        &mut self,
        is_due: impl Fn(&ScopedJoinHandle<'s, Result<T, String>>) -> bool,
    ) -> Ended<T> {
        let all = std::mem::take(&mut self.all).into_iter();
        let (due, rest): (Vec<_>, _) = all.partition(|one| is_due(&one.thread));
        self.all = rest;
        let ended = due.into_iter().map(|one| {
            let pid = one.pid;
            let result = one.thread.join();
            let failed = |_| Err(format!("process {pid}: internal failure"));
            (pid, result.unwrap_or_else(failed))
        });
        ended.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_stuck_holds_up_neither_others_nor_the_end() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut coming = Coming::new(scope, &over);
            let stuck = |goes_on: GoesOn<'_>| {
                while goes_on() {
                    std::thread::yield_now();
                }
                Err::<u32, _>("nobody waits".to_owned())
            };
            coming.begin(1, stuck).unwrap();
            coming.begin(2, |_| Ok(22)).unwrap();
            coming.begin(3, |_| panic!("a failure of ours")).unwrap();
            let mut came = Vec::new();
            while came.len() < 2 {
                came.extend(coming.take_in());
                std::thread::yield_now();
            }
            came.sort();
            let failure = "process 3: internal failure".to_owned();
            assert_eq!(came, [(2, Ok(22)), (3, Err(failure))]);
            assert_eq!(coming.slow(), [0; 0]);
            coming.all[0].begun -= 2 * LONG;
            assert_eq!((coming.slow(), coming.slow()), (vec![1], vec![]));
            assert_eq!(coming.settle(), [(1, Err("nobody waits".to_owned()))]);
            assert!(coming.is_empty());
        });
    }
}
