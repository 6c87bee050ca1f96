//! Flags that say where a report goes, in which form.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How `--json` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    /// One document at the end
    Report,
    /// A line for each event and message as it comes, then one with the report
    Lines,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Tables for people.
    Text,
    /// One document.
    Json,
    /// A document on each line, as things come.
    Lines,
}

/// Where the report goes.
#[derive(Debug, Clone, Args)]
pub struct OutputFlags {
    /// JSON instead of tables: one document with all events, or with `=lines` a line for each event
    /// as it comes
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "report")]
    pub json: Option<JsonForm>,
    /// Write the report to a file instead of standard error (`warpbpf kernels`: standard output);
    /// `-` is standard output. The file is there when the report is whole: until then, and if it
    /// cannot be written, what was there stays. What cannot be written goes to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl OutputFlags {
    /// The form.
    pub fn form(&self) -> Form {
        match self.json {
            None => Form::Text,
            Some(JsonForm::Report) => Form::Json,
            Some(JsonForm::Lines) => Form::Lines,
        }
    }
}
