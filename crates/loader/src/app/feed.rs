//! Records that the tool gives to an application: from the ring that it fills
//! ([`crate::tool::user_ring`]) to the one on the device.
//!
//! Those that are there before the application are its first contents. Later ones are sent some at
//! a time; a record that finds no room on the device stays here, with all behind it, and is sent
//! again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{BPF_ANY, ENOSPC};
use warpbpf_wire::{MapOp, OpCode, Outcome, encode_ops};

use crate::tool::user_ring::{Lent, Portion, UserRing};

/// What is sent at once to an application that runs.
const PORTION: Portion = Portion::Some {
    records: 1024,
    bytes: 1 << 20,
};
/// How long a ring that was full on the device is left in peace.
const FULL: Duration = Duration::from_millis(2);

/// One ring of one application.
pub struct Feed {
    /// The session's number of the map.
    pub number: u32,
    /// Its name there.
    pub name: String,
    ring: Arc<UserRing>,
    sent: Option<(u64, Lent)>,
    after: Option<Instant>,
    /// The application takes none.
    refused: bool,
    /// It was said that the ring is broken.
    told: bool,
}

impl Feed {
    /// From a ring of the tool.
    pub fn new(number: u32, name: String, ring: Arc<UserRing>) -> Feed {
        Feed {
            number,
            name,
            ring,
            sent: None,
            after: None,
            refused: false,
            told: false,
        }
    }

    /// All records that are there, as updates of the map's first contents.
    pub fn first(&mut self, tell: fn(&str)) -> Option<Vec<u8>> {
        self.send(0, OpCode::Update, Portion::All, tell)
    }

    /// The next records, as operations under a number of the caller's; `None` if there is nothing
    /// to do now.
    pub fn next(&mut self, token: u64, tell: fn(&str)) -> Option<Vec<u8>> {
        self.send(token, OpCode::Push, PORTION, tell)
    }

    fn send(
        &mut self,
        token: u64,
        code: OpCode,
        portion: Portion,
        tell: fn(&str),
    ) -> Option<Vec<u8>> {
        let waits = self.after.is_some_and(|at| Instant::now() < at);
        if self.refused || waits || self.sent.is_some() {
            return None;
        }
        let lent = match self.ring.lend(portion) {
            Ok(lent) => lent?,
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    tell(&format!("map `{}`: {error}", self.name));
                }
                return None;
            }
        };
        self.told = false;
        let op = |value| MapOp {
            code,
            flags: BPF_ANY,
            key: &[],
            value,
        };
        let ops: Vec<MapOp<'_>> = lent.records.iter().map(|r| op(r.as_slice())).collect();
        let blob = encode_ops(&ops);
        self.sent = Some((token, lent));
        Some(blob)
    }

    /// All that was sent is the application's.
    pub fn arrived(&mut self) {
        if let Some((_, lent)) = self.sent.take() {
            lent.keep(lent.records.len());
        }
    }

    /// The application says what became of what was sent under `token`, if that came from here.
    pub fn answered(
        &mut self,
        token: u64,
        outcomes: &Result<Vec<Outcome>, String>,
        tell: fn(&str),
    ) {
        let Some((_, lent)) = self.sent.take_if(|(sent, _)| *sent == token) else {
            return;
        };
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(text) => {
                tell(&format!(
                    "map `{}`: {text}; its records stay here",
                    self.name
                ));
                self.refused = true;
                return;
            }
        };
        let mut kept = 0;
        for (outcome, record) in outcomes.iter().zip(&lent.records) {
            if i64::from(outcome.errno) == ENOSPC {
                self.after = Some(Instant::now() + FULL);
                break;
            }
            // To send it again would end no other way.
            if outcome.errno != 0 {
                tell(&format!(
                    "map `{}`: a record of {} bytes is lost: the application says {}",
                    self.name,
                    record.len(),
                    std::io::Error::from_raw_os_error(-outcome.errno),
                ));
            }
            kept += 1;
        }
        lent.keep(kept);
    }

    /// What was sent did not arrive: another application may get it.
    pub fn failed(&mut self) {
        self.sent = None;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::tool::user_ring::tests::{new, write};

    thread_local! {
        static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn tell(text: &str) {
        TOLD.with_borrow_mut(|told| told.push(text.to_owned()));
    }

    fn told() -> Vec<String> {
        TOLD.take()
    }

    /// The records of a message.
    fn records(blob: &[u8]) -> Vec<Vec<u8>> {
        let ops = warpbpf_wire::decode_ops(blob).unwrap();
        ops.iter().map(|op| op.value.to_vec()).collect()
    }

    /// The next message, once the device is no longer left in peace.
    fn next(feed: &mut Feed, token: u64) -> Vec<Vec<u8>> {
        loop {
            if let Some(blob) = feed.next(token, tell) {
                return records(&blob);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn records_stay_until_the_application_has_them() {
        let ring = new();
        let mut feed = Feed::new(3, "jobs".into(), ring.clone());
        assert_eq!(feed.next(1, tell), None);
        assert!(write(&ring, b"a", 0) && write(&ring, b"b", 0));
        assert_eq!(records(&feed.first(tell).unwrap()), [b"a", b"b"]);
        assert_eq!(feed.next(1, tell), None, "one message at a time");
        feed.failed();
        assert_eq!(records(&feed.first(tell).unwrap()), [b"a", b"b"]);
        feed.arrived();
        for record in [b"c", b"d", b"e", b"f"] {
            assert!(write(&ring, record, 0));
        }
        assert_eq!(next(&mut feed, 7), [b"c", b"d", b"e", b"f"]);
        // An answer to something else changes nothing; a ring that is full keeps the rest back, in
        // order.
        feed.answered(6, &Ok(vec![Outcome::done(Vec::new()); 4]), tell);
        assert_eq!(feed.next(8, tell), None);
        let full = Outcome::failed(ENOSPC as i32);
        let outcomes = vec![Outcome::done(Vec::new()), full.clone(), full.clone(), full];
        feed.answered(7, &Ok(outcomes), tell);
        assert_eq!(next(&mut feed, 8), [b"d", b"e", b"f"]);
        // One that the application will never take is lost, and told.
        let outcomes = [0, -7, 0].map(|errno| Outcome {
            errno,
            bytes: Vec::new(),
        });
        feed.answered(8, &Ok(outcomes.to_vec()), tell);
        let lost = "map `jobs`: a record of 1 bytes is lost: the application says Argument list too long (os error 7)";
        assert_eq!(told(), [lost]);
        assert_eq!(feed.next(9, tell), None);
        // An application that takes none at all is not asked again.
        assert!(write(&ring, b"g", 0));
        assert_eq!(next(&mut feed, 9), [b"g"]);
        feed.answered(9, &Err("it cannot".into()), tell);
        assert_eq!(told(), ["map `jobs`: it cannot; its records stay here"]);
        assert_eq!(feed.next(10, tell), None);
        let mut another = Feed::new(0, "jobs".into(), ring);
        assert_eq!(next(&mut another, 1), [b"g"]);
    }
}
