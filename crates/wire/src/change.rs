//! Programs replaced while an application runs: what a tool asks for, and what it is told.

use serde::{Deserialize, Serialize};

use warpbpf_abi::options::Options;

use crate::session::{MapInfo, Program};

/// What is to become of the programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Those of the object that comes along, and no others.
    Replace,
    /// Those of the object that comes along too.
    Add,
    /// All but these.
    Remove {
        /// Their C functions' names.
        programs: Vec<String>,
    },
    /// The same as before, but in kernels that run they are stopped or go on.
    Gate {
        /// They go on.
        open: bool,
        /// Their C functions' names; all if there is none.
        programs: Vec<String>,
    },
    /// The same as before, and in slots are the programs of the object that comes along, and no
    /// others.
    Slots,
    /// The same as before, and nothing is in slots.
    Clear,
    /// The same as before, and of the programs at functions on the CPU that the application began
    /// with these run, and the others do not.
    OnCpu {
        /// Their C functions' names.
        programs: Vec<String>,
    },
    /// Those of the object that comes along too, for a second tool: it has maps of its own,
    /// whatever they are called.
    Join {
        /// Its number, which no other has or had.
        client: u32,
        /// How its programs are proved and which launches they are in; all else is as for the first
        /// tool.
        options: Box<Options>,
    },
    /// All but those of a second tool.
    Leave {
        /// Its number.
        client: u32,
    },
}

/// What became of a change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The request's.
    pub token: u64,
    /// Why nothing was changed, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// How many sets of programs there were up to the one that is in force.
    pub generation: u64,
    /// The programs in force.
    pub programs: Vec<Program>,
    /// All maps by number; those that nobody uses any more too.
    pub maps: Vec<MapInfo>,
    /// Kernels that programs want and that run without: names for people, and why.
    #[serde(default)]
    pub without: Vec<(String, String)>,
    /// The programs that are in slots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<String>,
}

/// Why programs were not replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Linux's number for it, negative: `-EINVAL`, `-EBUSY`, `-ETIMEDOUT`.
    pub errno: i32,
    /// For people, complete.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToAgent, ToTool};

    #[test]
    fn changes_are_tagged_json() {
        let programs = vec!["count".to_owned()];
        let message = ToAgent::Change {
            token: 7,
            change: Change::Remove { programs },
            limit_ms: 500,
        };
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"type":"change","token":7,"change":{"change":"remove","programs":["count"]},"limit_ms":500}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
        let message = ToAgent::Change {
            token: 8,
            change: Change::Gate {
                open: false,
                programs: Vec::new(),
            },
            limit_ms: 500,
        };
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"type":"change","token":8,"change":{"change":"gate","open":false,"programs":[]},"limit_ms":500}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
        let message = ToAgent::Change {
            token: 9,
            change: Change::Slots,
            limit_ms: 500,
        };
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"type":"change","token":9,"change":{"change":"slots"},"limit_ms":500}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
        let options = Options {
            budget: Some(7),
            ..Options::default()
        };
        let message = ToAgent::Change {
            token: 10,
            change: Change::Join {
                client: 2,
                options: Box::new(options),
            },
            limit_ms: 500,
        };
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"type":"change","token":10,"change":{"change":"join","client":2,"options":{"allow_modify":false,"budget":7,"#;
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
        let message = ToAgent::Change {
            token: 11,
            change: Change::Leave { client: 2 },
            limit_ms: 500,
        };
        let text = serde_json::to_string(&message).unwrap();
        let expected =
            r#"{"type":"change","token":11,"change":{"change":"leave","client":2},"limit_ms":500}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), message);
        let refused = Refusal {
            errno: -110,
            message: "too late".into(),
        };
        let message = ToTool::Changed(Changed {
            token: 7,
            refused: Some(refused),
            generation: 3,
            ..Changed::default()
        });
        let text = serde_json::to_string(&message).unwrap();
        let expected = r#"{"type":"changed","token":7,"refused":{"errno":-110,"message":"too late"},"generation":3,"programs":[],"maps":[],"without":[]}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<ToTool>(&text).unwrap(), message);
    }
}
