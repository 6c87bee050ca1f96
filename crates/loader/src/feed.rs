//! Records that the tool gives to an application: from the ring that it fills ([`crate::user_ring`]) to the one on the device.
//!
//! Those that are there before the application are its first contents. Later ones are sent some at a time; a record that
//! finds no room on the device stays here, with all behind it, and is sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{BPF_ANY, ENOSPC};
use warpbpf_wire::{MapOp, OpCode, Outcome, encode_ops};

use crate::user_ring::{Lent, UserRing};

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

    /// The next records, as operations under a number of the caller's; `None` if there is nothing to do now.
    pub fn next(&mut self, token: u64, code: OpCode, tell: fn(&str)) -> Option<Vec<u8>> {
        let waits = self.after.is_some_and(|at| Instant::now() < at);
        if self.refused || waits || self.sent.is_some() {
            return None;
        }
        let lent = match self.ring.lend() {
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
