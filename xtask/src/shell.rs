//! Running other programs and saying which one failed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a chore stopped: the whole message.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failure with this message.
pub fn failure<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(message.into()))
}

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo's own path, so that a chore uses the toolchain it was started with.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command, its output going to the terminal; fails if it does.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    say!("$ {}", line(command));
    let status = command
        .status()
        .map_err(|e| Failure(format!("cannot run `{}`: {e}", line(command))))?;
    if status.success() {
        Ok(())
    } else {
        failure(format!("`{}` ended with {status}", line(command)))
    }
}

/// What a command wrote to its standard output; fails if it does.
pub fn output(command: &mut Command) -> Result<Vec<u8>, Failure> {
    command.stderr(Stdio::inherit());
    let done = command
        .output()
        .map_err(|e| Failure(format!("cannot run `{}`: {e}", line(command))))?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        failure(format!("`{}` ended with {}", line(command), done.status))
    }
}

/// The command succeeds; nothing is printed.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// A command as one would type it.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Reads a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|e| Failure(format!("cannot read `{}`: {e}", path.display())))
}

/// Writes a file and the folders above it.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, bytes))
        .map_err(|e| Failure(format!("cannot write `{}`: {e}", path.display())))
}

/// Has a link lead to a file or folder, whatever it led to before: that may be another checkout's.
pub fn make_link(to: &Path, link: &Path) -> Result<(), Failure> {
    if std::fs::read_link(link).is_ok_and(|there| there == to) {
        return Ok(());
    }
    let failed = |e: std::io::Error| Failure(format!("cannot link `{}`: {e}", link.display()));
    if let Some(folder) = link.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let _ = std::fs::remove_file(link);
    std::os::unix::fs::symlink(to, link).map_err(failed)
}
