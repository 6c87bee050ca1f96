//! Starting the application with the agent in it, and nothing else changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use warpbpf_wire::rendezvous::SHM_NAME;

use crate::error::Error;
use crate::machine::{self, Device};

/// The variable by which a CUDA driver is told of a tool in the application.
pub const INJECTION: &str = "CUDA_INJECTION64_PATH";
/// The variable by which NVTX is told of a tool that wants to know the application's ranges.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// The variable by which the agent is told where its tool is.
pub const SOCKET: &str = "WARPBPF_SOCKET";
/// Names the library of Compute Sanitizer that the agent is to subscribe with.
pub const SANITIZER: &str = "WARPBPF_SANITIZER_LIBRARY";

/// What the environment says of tools around us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// A tool that is not us holds the injection slot.
    pub slot_taken: bool,
    /// A tool that is not us gets the application's NVTX ranges.
    pub nvtx_taken: bool,
    /// Another warpbpf started us.
    pub another_warpbpf: bool,
}

impl Surroundings {
    /// Reads the environment.
    pub fn look() -> Surroundings {
        Surroundings {
            slot_taken: std::env::var_os(INJECTION).is_some_and(|v| !v.is_empty()),
            nvtx_taken: std::env::var_os(NVTX_INJECTION)
                .is_some_and(|v| !v.is_empty() && !is_agent(&v)),
            another_warpbpf: std::env::var_os(SOCKET).is_some(),
        }
    }

    /// Reads the environment, and takes an outer warpbpf out of it: its agent belongs neither into
    /// this process, which may ask a driver for its devices, nor beside ours into the application.
    ///
    /// # Safety
    /// No other thread reads or writes the environment meanwhile: called first thing in `main`,
    /// when there is one thread.
    pub unsafe fn take() -> Surroundings {
        let another_warpbpf = std::env::var_os(SOCKET).is_some();
        // So is the agent that a shell has for applications which find their tool by a name.
        let agent = is_agent(&std::env::var_os(INJECTION).unwrap_or_default());
        if another_warpbpf || agent && std::env::var_os(SHM_NAME).is_some() {
            // SAFETY: the caller's promise.
            unsafe {
                std::env::remove_var(SOCKET);
                std::env::remove_var(INJECTION);
                if !Surroundings::look().nvtx_taken {
                    std::env::remove_var(NVTX_INJECTION);
                }
            }
        }
        Surroundings {
            another_warpbpf,
            ..Surroundings::look()
        }
    }
}

/// The path of an agent, ours or another warpbpf's.
fn is_agent(path: &OsStr) -> bool {
    Path::new(path).file_name() == Some(OsStr::new(machine::AGENT))
}

/// How the agent gets into an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inject {
    /// `CUDA_INJECTION64_PATH`, or `LD_PRELOAD` if that slot is taken.
    #[default]
    Auto,
    /// `CUDA_INJECTION64_PATH`.
    Env,
    /// `LD_PRELOAD`.
    Preload,
}

/// How the agent will get in, and what to tell the user about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Through `CUDA_INJECTION64_PATH`.
    Env,
    /// Through `LD_PRELOAD`, and why.
    Preload(&'static str),
}

/// What is done in a new process before it becomes the application, with its number.
#[derive(Clone)]
pub(crate) struct Before(pub(crate) Arc<dyn Fn(u32) + Send + Sync>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Before")
    }
}

/// Names and values of variables.
pub type Variables = Vec<(&'static str, OsString)>;

/// The variables that an application needs in its environment, whoever starts it, and how the agent
/// gets in by them. `socket` is [`crate::Tool::socket`], `ranges` [`crate::Tool::wants_ranges`].
///
/// # Errors
/// [`Error::Missing`]: the agent is not built.
pub fn environment(
    device: &Device,
    inject: Inject,
    socket: &Path,
    surroundings: &Surroundings,
    ranges: bool,
) -> Result<(Variables, Entry), Error> {
    let agent = machine::agent()?;
    let entry = match inject {
        Inject::Env => Entry::Env,
        Inject::Preload => Entry::Preload("asked for"),
        Inject::Auto if surroundings.slot_taken => {
            Entry::Preload("CUDA_INJECTION64_PATH is already taken by another tool")
        }
        Inject::Auto => Entry::Env,
    };
    let mut variables = vec![(SOCKET, socket.as_os_str().to_owned())];
    if ranges && !surroundings.nvtx_taken {
        variables.push((NVTX_INJECTION, agent.clone().into_os_string()));
    }
    variables.push(match entry {
        Entry::Env => (INJECTION, agent.into_os_string()),
        Entry::Preload(_) => ("LD_PRELOAD", listed(agent.as_os_str(), "LD_PRELOAD")?),
    });
    if let Device::Soft { folder, .. } = device {
        let path = listed(folder.as_os_str(), "LD_LIBRARY_PATH")?;
        variables.push(("LD_LIBRARY_PATH", path));
    }
    Ok((variables, entry))
}

/// Starts an application: its program, as a shell finds it, then its arguments. Its standard
/// streams are ours.
///
/// # Errors
/// [`Error::NoProgram`], [`Error::BadProgram`] or [`Error::Missing`]; nothing was started then.
pub fn start(
    command: &[OsString],
    device: &Device,
    inject: Inject,
    socket: &Path,
    surroundings: &Surroundings,
    ranges: bool,
) -> Result<(Child, Entry), Error> {
    start_with(
        command,
        device,
        inject,
        socket,
        surroundings,
        (ranges, Vec::new()),
    )
}

/// As [`start`], with more variables ([`crate::Tool::more_variables`]).
///
/// # Errors
/// As there.
pub fn start_with(
    command: &[OsString],
    device: &Device,
    inject: Inject,
    socket: &Path,
    surroundings: &Surroundings,
    with: (bool, Variables),
) -> Result<(Child, Entry), Error> {
    spawn(command, device, inject, socket, surroundings, with, None)
}

/// As [`start`], and the new process does something before it becomes the application, with its
/// number.
///
/// # Safety
/// As [`crate::Launch::before`].
///
/// # Errors
/// As [`start`].
pub unsafe fn start_after(
    command: &[OsString],
    device: &Device,
    inject: Inject,
    socket: &Path,
    surroundings: &Surroundings,
    ranges: bool,
    before: impl Fn(u32) + Send + Sync + 'static,
) -> Result<(Child, Entry), Error> {
    let before = Some(Before(Arc::new(before)));
    let with = (ranges, Vec::new());
    spawn(command, device, inject, socket, surroundings, with, before)
}

/// As [`start_with`], and the new process does something before it becomes the application.
pub(crate) fn spawn(
    command: &[OsString],
    device: &Device,
    inject: Inject,
    socket: &Path,
    surroundings: &Surroundings,
    (ranges, more): (bool, Variables),
    before: Option<Before>,
) -> Result<(Child, Entry), Error> {
    let (program, arguments) = split(command);
    let path = find(program)?;
    let (variables, entry) = environment(device, inject, socket, surroundings, ranges)?;
    let mut command = Command::new(&path);
    command
        .args(arguments)
        .arg0(program)
        .envs(variables)
        .envs(more);
    if let Some(Before(before)) = before {
        let then = move || {
            before(std::process::id());
            Ok(())
        };
        // SAFETY: the promise of who gave it (`Launch::before`); a process's number is asked for by
        // a system call.
        unsafe { command.pre_exec(then) };
    }
    let child = command.spawn().map_err(|e| Error::BadProgram {
        program: display(program),
        reason: e.to_string(),
    })?;
    Ok((child, entry))
}

/// Takes away what tools of this user have left that were killed. Each [`crate::Tool`] does so when
/// it is made.
pub fn take_away_left_folders() {
    crate::system::folders::left_folders(&crate::system::folders::runtime_folder());
}

/// The program and its arguments.
pub fn split(command: &[OsString]) -> (&OsStr, &[OsString]) {
    match command.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => (OsStr::new(""), &[]),
    }
}

fn display(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}

/// `path` in front of what a variable holds.
pub fn prepend(path: &OsStr, variable: &str) -> OsString {
    let mut value = path.to_os_string();
    if let Some(old) = std::env::var_os(variable).filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// `path` in front of what a variable of the dynamic linker holds, in which nothing can be quoted.
///
/// # Errors
/// [`Error::Read`]: what is in it would end it, or stand for something else.
pub fn listed(path: &OsStr, variable: &'static str) -> Result<OsString, Error> {
    let preload = variable == "LD_PRELOAD";
    let signs = [
        (b':', "a colon", true),
        (b' ', "a space", preload),
        (b';', "a semicolon", !preload),
        (b'$', "a dollar sign", true),
    ];
    let mut bad = signs.into_iter();
    let bad = bad.find(|(sign, _, counts)| *counts && path.as_bytes().contains(sign));
    match bad {
        None => Ok(prepend(path, variable)),
        Some((_, sign, _)) => Err(Error::Read {
            path: display(path),
            source: std::io::Error::other(format!(
                "{variable} cannot name this path, as {sign} in it has another meaning there; install warpbpf in a folder without it, or {}",
                match preload {
                    true => "have the agent come in by CUDA_INJECTION64_PATH (`--inject env`)",
                    false => "run on a GPU (`--device gpu`)",
                }
            )),
        }),
    }
}

/// Finds a program as a shell does.
///
/// # Errors
/// [`Error::NoProgram`].
pub fn find(program: &OsStr) -> Result<PathBuf, Error> {
    let runnable = |path: &Path| path.is_file();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return if runnable(&path) {
            Ok(path)
        } else {
            Err(Error::NoProgram {
                program: display(program),
            })
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| runnable(candidate))
        .ok_or_else(|| Error::NoProgram {
            program: display(program),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_the_dynamic_linker_takes_apart_are_refused() {
        let refused = |path: &str, variable| {
            let listed = listed(path.as_ref(), variable);
            listed.err().map(|error| error.to_string())
        };
        for (path, preload, library) in [
            ("/opt/warpbpf/lib", false, false),
            ("/with space", true, false),
            ("/with:colon", true, true),
            ("/semi;colon", false, true),
            ("/dollar$LIB", true, true),
        ] {
            assert_eq!(refused(path, "LD_PRELOAD").is_some(), preload, "{path}");
            assert_eq!(
                refused(path, "LD_LIBRARY_PATH").is_some(),
                library,
                "{path}"
            );
        }
        assert_eq!(
            refused("/a b", "LD_PRELOAD").unwrap(),
            "cannot read `/a b`: LD_PRELOAD cannot name this path, as a space in it has another meaning there; install warpbpf in a folder \
             without it, or have the agent come in by CUDA_INJECTION64_PATH (`--inject env`)"
        );
    }
}
