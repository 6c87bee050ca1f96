//! What people are told: each text once, and not without end, because hooks tell of what they meet again and again.

use std::collections::HashSet;
use std::sync::Mutex;

use warpbpf_wire::{NoteLevel, ToTool};

use crate::agent::Agent;
use crate::lock::lock;

/// Texts that are told at most.
const MOST: usize = 1000;

/// What was told, and to which tools.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<HashSet<(Vec<u32>, String)>>);

impl Said {
    /// It is to be told.
    fn is_new(&self, guests: &[u32], text: &str) -> bool {
        let mut said = lock(&self.0);
        said.len() < MOST && said.insert((guests.to_vec(), text.to_owned()))
    }
}

impl Agent {
    /// Tells the user something, each text once.
    pub(crate) fn note(&self, level: NoteLevel, text: String) {
        self.note_to(&[], level, text);
    }

    /// The same for these second tools alone; for all tools if there is none.
    pub(crate) fn note_to(&self, guests: &[u32], level: NoteLevel, text: String) {
        if self.said.is_new(guests, &text) {
            let guests = guests.to_vec();
            let note = ToTool::Note {
                level,
                text,
                guests,
            };
            self.send(note, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_told_once() {
        let said = Said::default();
        let told = |guests: &[u32], text| said.is_new(guests, text);
        assert!(told(&[], "a") && !told(&[], "a"));
        assert!(told(&[1], "a") && told(&[2], "a") && !told(&[1], "a"));
        for number in 0..MOST - 3 {
            assert!(said.is_new(&[], &number.to_string()));
        }
        assert!(!told(&[], "one more"));
    }
}
