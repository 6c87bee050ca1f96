//! Rings of the tool that records of Linux's rings go to: a map that programs of Linux and of the
//! GPU write to is one ring for the tool, or one for each CPU.

use std::sync::Arc;

use warpbpf_linux::drawn::Sink;

use crate::objects::perf::Output;
use crate::tool::ring::Ring;

/// A ring buffer of the tool.
#[derive(Debug)]
pub(crate) struct ToRing(pub(crate) Arc<Ring>);

impl Sink for ToRing {
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn is_open(&self) -> bool {
        true
    }

    fn push(&self, record: &[u8]) -> bool {
        let pushed = self.0.too_large(record.len()) || self.0.push(record);
        if pushed {
            self.0.notify().signal();
        }
        pushed
    }

    fn lost(&self, _: u64) -> bool {
        true
    }
}

/// The ring of a CPU.
#[derive(Debug)]
pub(crate) struct ToOutput(pub(crate) Arc<Output>);

impl Sink for ToOutput {
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Once the tool has mapped it.
    fn is_open(&self) -> bool {
        self.0.ring().is_some()
    }

    fn push(&self, record: &[u8]) -> bool {
        let Some(ring) = self.0.ring() else {
            return false;
        };
        let pushed = match ring.too_large(record.len()) {
            true => ring.lost(1),
            false => ring.push(record),
        };
        if pushed {
            self.0.notify.signal();
        }
        pushed
    }

    fn lost(&self, count: u64) -> bool {
        let told = self.0.ring().is_some_and(|ring| ring.lost(count));
        if told {
            self.0.notify.signal();
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use warpbpf_linux::drawn::{AllDrawn, Drawn, OUTPUT_PAGES};

    use super::*;
    use crate::memory::PAGE;
    use crate::tool::notify::Notify;
    use crate::tool::ring::PerfRing;
    use crate::uapi::perf;

    #[test]
    fn samples_of_another_ring_and_what_it_lost_come_through() {
        let linux = PerfRing::new(OUTPUT_PAGES).unwrap();
        let to = Arc::new(Output {
            notify: Notify::new().unwrap(),
            ring: Mutex::default(),
        });
        let fd = linux.memory().fd().try_clone().unwrap();
        let all = AllDrawn::default();
        all.add(Drawn::of_output(fd, Box::new(ToOutput(to.clone()))).unwrap());
        assert!(linux.push(&[5; 100]));
        assert!(!all.draw(), "nobody reads yet");
        let ring = to.map(1).unwrap();
        // A sample is padded to whole words, as Linux pads it.
        for round in 0..2000u32 {
            assert!(round == 0 || linux.push(&[round as u8; 300]));
            assert!(all.draw() && !all.draw());
            assert_eq!(ring.unread(), if round == 0 { 112 } else { 312 });
            let tail = ring.memory().word(perf::DATA_TAIL);
            let last = ring
                .memory()
                .copy(PAGE + (tail.load(Ordering::Relaxed) + 12) % PAGE, 1);
            assert_eq!(last, [if round == 0 { 5 } else { round as u8 }]);
            tail.store(
                tail.load(Ordering::Relaxed) + ring.unread(),
                Ordering::Release,
            );
        }
        assert_eq!(linux.unread(), 0);
        // One that the tool's ring can never hold is told as lost, and so is what Linux has lost.
        assert!(linux.push(&[1; 5000]) && linux.lost(7));
        assert!(all.draw());
        assert_eq!((linux.unread(), ring.unread()), (0, 48));
    }

    #[test]
    fn records_of_another_ring_come_behind_those_that_are_there() {
        let (linux, to) = (Ring::new(4096).unwrap(), Arc::new(Ring::new(4096).unwrap()));
        let all = AllDrawn::default();
        assert!(all.is_empty() && !all.draw());
        let fd = linux.memory().fd().try_clone().unwrap();
        all.add(Drawn::of_ring(fd, to.size(), Box::new(ToRing(to.clone()))).unwrap());
        let mut expected = Vec::new();
        // Around the end more than once.
        for round in 0..30u8 {
            assert!(to.push(&[round]) && linux.push(&[round; 501]) && linux.push(&[round; 3]));
            assert!(all.draw() && !all.draw());
            expected.extend([vec![round], vec![round; 501], vec![round; 3]]);
            let read = crate::tool::ring::tests::read(&to);
            assert_eq!(read, expected.split_off(0));
        }
        assert_eq!(linux.unread(), 0);
        // What finds no room stays where it is.
        assert!(to.push(&[0; 4000]) && linux.push(&[1; 100]) && linux.push(&[2; 8]));
        assert!(!all.draw());
        assert_eq!(linux.unread(), 108 + 4 + 16);
        crate::tool::ring::tests::read(&to);
        assert!(all.draw());
        assert_eq!(
            crate::tool::ring::tests::read(&to),
            [vec![1; 100], vec![2; 8]]
        );
        drop(to);
        assert!(!all.draw() && all.is_empty());
    }
}
