//! Starting the application with the agent in it, and nothing else changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::error::CliError;
use crate::flags::{Inject, TargetFlags};
use crate::machine::{self, Device};

const INJECTION: &str = "CUDA_INJECTION64_PATH";
const SOCKET: &str = "WARPBPF_SOCKET";

/// What the environment says of tools around us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// A tool that is not us holds the injection slot.
    pub slot_taken: bool,
    /// Another warpbpf started us.
    pub another_warpbpf: bool,
}

impl Surroundings {
    /// Reads the environment, and takes an outer warpbpf out of it: its agent belongs neither into this process, which
    /// may ask a driver for its devices, nor beside ours into the application.
    pub fn take() -> Surroundings {
        let another_warpbpf = std::env::var_os(SOCKET).is_some();
        if another_warpbpf {
            // SAFETY: called first thing in `main`, when there is one thread.
            unsafe {
                std::env::remove_var(SOCKET);
                std::env::remove_var(INJECTION);
            }
        }
        let slot_taken = std::env::var_os(INJECTION).is_some_and(|v| !v.is_empty());
        Surroundings {
            slot_taken,
            another_warpbpf,
        }
    }
}

/// How the agent will get in, and what to tell the user about it.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// Through `CUDA_INJECTION64_PATH`.
    Env,
    /// Through `LD_PRELOAD`, and why.
    Preload(&'static str),
}

/// Starts the application. Its standard streams are ours.
///
/// # Errors
/// [`CliError::NoProgram`] or [`CliError::BadProgram`]; nothing was started then.
pub fn start(
    flags: &TargetFlags,
    device: &Device,
    socket: &Path,
    surroundings: &Surroundings,
) -> Result<(Child, Entry), CliError> {
    let (program, arguments) = split(&flags.command);
    let path = find(program)?;
    let agent = machine::agent()?;
    let entry = match flags.inject {
        Inject::Env => Entry::Env,
        Inject::Preload => Entry::Preload("asked for"),
        Inject::Auto if surroundings.slot_taken => {
            Entry::Preload("CUDA_INJECTION64_PATH is already taken by another tool")
        }
        Inject::Auto => Entry::Env,
    };
    let mut command = Command::new(&path);
    command.args(arguments).arg0(program).env(SOCKET, socket);
    match entry {
        Entry::Env => command.env(INJECTION, &agent),
        Entry::Preload(_) => command.env("LD_PRELOAD", prepend(agent.as_os_str(), "LD_PRELOAD")),
    };
    if let Device::Soft { folder, .. } = device {
        command.env(
            "LD_LIBRARY_PATH",
            prepend(folder.as_os_str(), "LD_LIBRARY_PATH"),
        );
    }
    let child = command.spawn().map_err(|e| CliError::BadProgram {
        program: display(program),
        reason: e.to_string(),
    })?;
    Ok((child, entry))
}

fn split(command: &[OsString]) -> (&OsStr, &[OsString]) {
    match command.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => (OsStr::new(""), &[]),
    }
}

fn display(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}

fn prepend(path: &OsStr, variable: &str) -> OsString {
    let mut value = path.to_os_string();
    if let Some(old) = std::env::var_os(variable).filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// Finds a program as a shell does.
fn find(program: &OsStr) -> Result<PathBuf, CliError> {
    let runnable = |path: &Path| path.is_file();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return if runnable(&path) {
            Ok(path)
        } else {
            Err(CliError::NoProgram {
                program: display(program),
            })
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| runnable(candidate))
        .ok_or_else(|| CliError::NoProgram {
            program: display(program),
        })
}
