//! The file that a step's programs write to.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::jobs::log_folder;
use crate::shell::{Failure, failure, line, root};

/// One step's.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// An empty one, in place of that of an earlier run.
    pub fn new(step: &str) -> Log {
        let path = log_folder().join(format!("{}.log", step.replace(' ', "-")));
        // Where it cannot be made, the first command says why.
        let _ = std::fs::create_dir_all(log_folder());
        let _ = File::create(&path);
        let _ = std::fs::remove_file(Log::progress_of(&path));
        Log { path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name as a user is told it.
    pub fn shown(&self) -> String {
        let shown = self.path.strip_prefix(root()).unwrap_or(&self.path);
        shown.display().to_string()
    }

    /// All that is in it.
    pub fn text(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where a step says how far it is, beside its log.
    pub fn progress_of(log: &Path) -> PathBuf {
        log.with_extension("progress")
    }

    /// Says how far the step is.
    pub fn progress(&self, words: &str) {
        // It is for whoever watches; nobody needs it.
        let _ = std::fs::write(Log::progress_of(&self.path), words);
    }

    /// Adds a text, with an end of its line.
    pub fn add(&self, text: &str) {
        if let Ok(mut file) = self.file() {
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }

    fn file(&self) -> Result<File, Failure> {
        let mut options = File::options();
        let file = options.create(true).append(true).open(&self.path);
        file.map_err(|e| Failure(format!("cannot write `{}`: {e}", self.path.display())))
    }

    /// Runs a command; what it prints goes into the log.
    ///
    /// # Errors
    /// It cannot be run, or fails.
    pub fn run(&self, command: &mut Command) -> Result<(), Failure> {
        let mut file = self.file()?;
        let _ = writeln!(file, "$ {}", line(command));
        let copy = file.try_clone().map_err(|e| Failure(e.to_string()))?;
        command.stdin(Stdio::null()).stdout(copy).stderr(file);
        let status = command.status();
        let status = status.map_err(|e| Failure(format!("cannot run `{}`: {e}", line(command))))?;
        match status.success() {
            true => Ok(()),
            false => failure(format!("`{}` ended with {status}", line(command))),
        }
    }

    /// The same with a build by cargo: how far it is goes beside the log.
    ///
    /// # Errors
    /// As above.
    pub fn cargo(&self, command: &mut Command) -> Result<(), Failure> {
        let file = self.file()?;
        self.cargo_to(command, file)
    }

    /// The same; gives what cargo says of what it built, a JSON object on each line.
    ///
    /// # Errors
    /// As above.
    pub fn cargo_messages(&self, command: &mut Command) -> Result<String, Failure> {
        let path = self.path.with_extension("json");
        let failed = |e: std::io::Error| Failure(format!("`{}`: {e}", path.display()));
        let file = File::create(&path).map_err(failed)?;
        self.cargo_to(
            command.args(["--message-format", "json-render-diagnostics"]),
            file,
        )?;
        std::fs::read_to_string(&path).map_err(failed)
    }

    fn cargo_to(&self, command: &mut Command, copy: File) -> Result<(), Failure> {
        let mut file = self.file()?;
        let _ = writeln!(file, "$ {}", line(command));
        command
            .env("CARGO_TERM_PROGRESS_WHEN", "always")
            .env("CARGO_TERM_PROGRESS_WIDTH", "60");
        command
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(Stdio::piped());
        let shown = line(command);
        let failed = |e: std::io::Error| Failure(format!("cannot run `{shown}`: {e}"));
        let mut child = command.spawn().map_err(failed)?;
        let mut errors = child.stderr.take().ok_or(Failure("no pipe".into()))?;
        let mut pending = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = errors.read(&mut buffer) {
            pending.extend_from_slice(&buffer[..count]);
            while let Some(end) = pending.iter().position(|b| matches!(b, b'\n' | b'\r')) {
                let rest = pending.split_off(end + 1);
                let text = String::from_utf8_lossy(&pending).into_owned();
                pending = rest;
                match crates_done(&text) {
                    Some(words) => self.progress(words),
                    None if text.ends_with('\n') => {
                        let _ = file.write_all(text.as_bytes());
                    }
                    None => {}
                }
            }
        }
        let _ = file.write_all(&pending);
        let status = child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => failure(format!("`{shown}` ended with {status}")),
        }
    }
}

/// `Building [===>  ] 12/34: …` → `12/34`.
fn crates_done(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("] ")?;
    before.contains("Building").then_some(())?;
    let end = after.find(|c: char| !c.is_ascii_digit() && c != '/')?;
    Some(&after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_says_how_far_it_is() {
        let line = "    Building [=====>              ] 74/215: syn, serde_core\r";
        assert_eq!(crates_done(line), Some("74/215"));
        assert_eq!(crates_done("   Compiling syn v2.0.1\n"), None);
    }

    #[test]
    fn a_command_that_fails_is_named_and_its_words_are_kept() {
        let log = Log::new("test-log");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; exit 3"]);
        let Err(Failure(reason)) = log.run(&mut shell) else {
            panic!("it failed");
        };
        assert!(reason.ends_with("ended with exit status: 3"), "{reason}");
        let text = log.text();
        assert!(
            text.contains("\nout\n") && text.contains("\nerr\n"),
            "{text}"
        );
    }
}
