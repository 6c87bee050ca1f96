//! Records and messages as they come, and how many are kept for the report.

use serde_json::{Value, json};

use crate::flags::Form;
use crate::report::map_text::line;
use crate::term::plain;

/// Records of a ring that are kept where all are asked for; what is left out is counted.
const MAX_EVENTS: usize = 1_000_000;
/// Records of a ring that a table shows.
const SHOWN: usize = 20;

/// What becomes of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// So many of a ring are kept for the report.
    Kept(usize),
    /// All are handed on by [`Collector::news`], and none is kept.
    HandedOn,
}

impl Records {
    /// As many as were asked for; else all for programs, and some for people.
    pub fn requested(events: Option<u64>, form: Form) -> Records {
        match (form, events) {
            (Form::Lines, _) => Records::HandedOn,
            (_, Some(events)) => Records::Kept(usize::try_from(events).unwrap_or(usize::MAX)),
            (Form::Json, None) => Records::Kept(MAX_EVENTS),
            (Form::Text, None) => Records::Kept(SHOWN),
        }
    }

    /// Records of a ring that are kept, for the report or until they are handed on.
    pub fn most(self) -> usize {
        match self {
            Records::Kept(most) => most,
            Records::HandedOn => usize::MAX,
        }
    }
}

/// A record, or a message of `bpf_printk`.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// The application's process, if it came from one.
    pub process: Option<u32>,
    /// The ring, if it is a record.
    pub map: Option<String>,
    /// The record or the message.
    pub value: Value,
}

impl News {
    /// For people.
    pub fn line(&self) -> String {
        let value = line(&self.value);
        match (&self.map, self.process) {
            (Some(map), Some(_)) => format!("{}: {value}", plain::name(map)),
            (Some(map), None) => format!("{} (Linux): {value}", plain::name(map)),
            (None, _) => value,
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let mut out = match &self.map {
            Some(map) => json!({ "type": "event", "map": map, "value": self.value }),
            None => json!({ "type": "message", "text": self.value }),
        };
        if let Some(process) = self.process {
            out["pid"] = json!(process);
        }
        out
    }
}

/// What was not told yet of what is kept; nothing is kept of what is handed on.
pub fn fresh<T: Clone>(
    kept: &mut Vec<T>,
    told: &mut usize,
    records: Records,
) -> std::vec::IntoIter<T> {
    let fresh = match records {
        Records::HandedOn => std::mem::take(kept),
        Records::Kept(_) => kept.get(*told..).unwrap_or_default().to_vec(),
    };
    *told = kept.len();
    fresh.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model;

    #[test]
    fn programs_get_all_records_and_people_some() {
        let most = |events, form| Records::requested(events, form).most();
        assert_eq!(most(None, Form::Text), 20);
        assert_eq!(most(None, Form::Json), 1_000_000);
        assert_eq!(most(Some(3), Form::Json), 3);
        assert_eq!(Records::requested(Some(3), Form::Lines), Records::HandedOn);
        let mut events = model::Events::default();
        for number in 0..5 {
            events.take(3, || json!(number));
        }
        assert_eq!((events.received, events.left_out), (5, 2));
        assert_eq!(events.first, [json!(0), json!(1), json!(2)]);
    }

    #[test]
    fn what_is_handed_on_is_handed_on_once_and_not_kept() {
        let (mut kept, mut told) = (vec![1, 2], 0);
        let mut next = |kept: &mut Vec<i32>, records| -> Vec<i32> {
            fresh(kept, &mut told, records).collect()
        };
        assert_eq!(next(&mut kept, Records::Kept(9)), [1, 2]);
        kept.push(3);
        assert_eq!(next(&mut kept, Records::Kept(9)), [3]);
        assert_eq!(kept, [1, 2, 3]);
        assert_eq!(next(&mut kept, Records::HandedOn), [1, 2, 3]);
        assert!(next(&mut kept, Records::HandedOn).is_empty());
        assert!(kept.is_empty());
    }

    #[test]
    fn news_are_lines_for_people_and_for_programs() {
        let event = News {
            process: Some(7),
            map: Some("ring\x1b".into()),
            value: json!({ "time": 5, "name": "a\nb" }),
        };
        assert_eq!(event.line(), "ring\\x1b: time=5 name=a\\nb");
        assert_eq!(
            event.json(),
            json!({ "type": "event", "map": "ring\x1b", "value": { "time": 5, "name": "a\nb" }, "pid": 7 })
        );
        let message = News {
            process: Some(7),
            map: None,
            value: json!("hello"),
        };
        assert_eq!(message.line(), "hello");
        assert_eq!(
            message.json(),
            json!({ "type": "message", "text": "hello", "pid": 7 })
        );
    }
}
