//! Where a report goes, in which form: decided before the application starts, written when it has
//! ended.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;

use crate::flags::{Form, OutputFlags};
use crate::report::news::News;
use crate::term::destination::Destination;
use crate::term::error::CliError;
use crate::term::output::{self, json_line, tell_error};
use crate::term::plain;

/// Where a report will go.
#[derive(Debug)]
pub struct Outlet {
    form: Form,
    /// `None` is standard error.
    to: Option<Destination>,
    /// What lines are written to as they come.
    lines: Option<File>,
    /// Nobody reads what is written as it comes.
    is_unread: bool,
    /// It is what the user has asked for, so a reader that went away has seen enough.
    is_answer: bool,
}

impl Outlet {
    /// Looks whether the report can be written, before anything else is done.
    ///
    /// # Errors
    /// It cannot.
    pub fn open(flags: &OutputFlags) -> Result<Outlet, CliError> {
        Outlet::open_or(flags, None, false)
    }

    /// The same for a report that is what the user has asked for, and is on standard output as
    /// text, too.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open_answer(flags: &OutputFlags) -> Result<Outlet, CliError> {
        Outlet::open_or(flags, Some("-".as_ref()), true)
    }

    fn open_or(
        flags: &OutputFlags,
        text: Option<&Path>,
        is_answer: bool,
    ) -> Result<Outlet, CliError> {
        let to = match (flags.output.as_deref(), flags.form()) {
            (Some(path), _) => Some(path),
            (None, Form::Text) => text,
            (None, Form::Json | Form::Lines) => Some("-".as_ref()),
        };
        let to = to.map(Destination::check).transpose()?;
        let mut outlet = Outlet {
            form: flags.form(),
            to,
            lines: None,
            is_unread: false,
            is_answer,
        };
        outlet.begin()?;
        Ok(outlet)
    }

    /// Where it goes, if that is not standard error.
    pub fn destination(&self) -> Option<&Destination> {
        self.to.as_ref()
    }

    fn begin(&mut self) -> Result<(), CliError> {
        let Some(to) = self.to.as_ref().filter(|_| self.form == Form::Lines) else {
            return Ok(());
        };
        if !to.is_standard_output() {
            let file = to.stream().map_err(|source| CliError::Write {
                path: to.path().display().to_string(),
                source,
            });
            self.lines = Some(file?);
        }
        Ok(())
    }

    /// Writes what has come, if it is written as it comes.
    pub fn news(&mut self, news: &[News]) {
        if self.form == Form::Lines && !news.is_empty() {
            let text: String = news.iter().map(|news| json_line(&news.json())).collect();
            self.line(&text);
        }
    }

    fn line(&mut self, text: &str) {
        if self.is_unread {
            return;
        }
        let written = match (&mut self.lines, &self.to) {
            (Some(file), _) => file.write_all(text.as_bytes()),
            // Told already that it cannot be written, or never to be.
            (None, Some(to)) if to.is_standard_output() => output::standard_output(text.as_bytes()),
            (None, _) => {
                output::show(text);
                return;
            }
        };
        if let (Err(source), Some(to)) = (written, &self.to) {
            if output::is_read_no_more(&source) {
                output::lose();
                self.is_unread = true;
                return;
            }
            let path = to.path().display().to_string();
            tell_error(&CliError::Write { path, source });
            output::lose();
            // What follows is not lost as well.
            (self.lines, self.to) = (None, None);
            output::show(text);
        }
    }

    /// Writes a report. One that cannot be written where it should be goes to standard error, and
    /// the exit status says so.
    pub fn write<T: serde::Serialize>(&mut self, report: &T, text: &dyn Fn(&T) -> String) {
        let out = match self.form {
            Form::Lines => {
                let line = json_line(&json!({ "type": "report", "report": report }));
                return self.line(&line);
            }
            Form::Json => json_line(report),
            Form::Text => plain::output(&text(report)).into_owned(),
        };
        let Some(to) = &self.to else {
            // Nobody is left to tell if this fails, but the exit status.
            return output::show(&out);
        };
        let whole = out.trim_start_matches('\n');
        if let Err(error) = to.write(whole.as_bytes()) {
            let no_reader =
                matches!(&error, CliError::Write { source, .. } if output::is_read_no_more(source));
            if no_reader && self.is_answer {
                return;
            }
            output::lose();
            tell_error(&error);
            output::show(&out);
        }
    }
}
