//! `warpbpf launch-inside`: a program of a tool that runs under `warpbpf loader`, launched as a
//! kernel with that tool's maps.
//!
//! This process is then an application of the tool's: an agent is in it, which has the program at
//! the start of an empty kernel.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use warpbpf_driver::{Driver, DriverError};
use warpbpf_session::own::empty_kernel;
use warpbpf_wire::inside::{LAUNCH, LAUNCHED, SUFFIX, ask, request};

use crate::application::machine::{self, Device};
use crate::application::start::{INJECTION, SOCKET};
use crate::flags::{LaunchInsideFlags, Shape};
use crate::term::error::CliError;
use crate::term::output::say;

/// Launches the program and waits for its end.
pub fn run(flags: &LaunchInsideFlags) -> Result<u8, CliError> {
    let (control, mut tool) = connect(&flags.socket)?;
    announce(&mut tool, &flags.program)?;
    let agent = machine::agent()?;
    // SAFETY: there is one thread yet.
    unsafe {
        std::env::set_var(SOCKET, &control);
        // Whoever initialises the driver first, which may be the look for a GPU, loads the agent by
        // this.
        std::env::set_var(INJECTION, agent);
    }
    let device = machine::choose(flags.device)?;
    machine::tell_of(&device, flags.device);
    let library = match &device {
        Device::Gpu(_) => "libcuda.so.1".to_owned(),
        Device::Soft { folder, .. } => folder.join("libcuda.so.1").display().to_string(),
    };
    let driver = warpbpf_driver::open(&library);
    let driver = driver.map_err(|error| CliError::Other(error.to_string()))?;
    launch(flags, &driver).map_err(|error| CliError::Other(error.to_string()))?;
    let done = ask(&mut tool, &request(LAUNCHED, 0, [0; 3]));
    done.map_err(|_| {
        CliError::Other(format!(
            "the kernel ran without `{}`: the tool says why on its standard error",
            flags.program
        ))
    })?;
    let shape = |shape: Shape| shape.0.map(|extent| extent.to_string()).join(",");
    say(&format!(
        "launched `{}` {} times: grid {}, block {}\n",
        flags.program,
        flags.count,
        shape(flags.grid),
        shape(flags.block)
    ));
    Ok(0)
}

/// The tool's control socket, and a connection for questions.
fn connect(socket: &Path) -> Result<(PathBuf, UnixStream), CliError> {
    let nobody = |error: std::io::Error| {
        CliError::Other(format!(
            "no tool is at `{}`: {error}; give the file that `warpbpf loader --socket` was given, while that tool runs and has attached a program",
            socket.display()
        ))
    };
    let control = std::fs::canonicalize(socket).map_err(nobody)?;
    let mut questions = control.clone().into_os_string();
    questions.push(SUFFIX);
    let socket = warpbpf_wire::connect_to_own(questions.as_ref())
        .map_err(|error| nobody(std::io::Error::other(error)))?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(nobody)?;
    Ok((control, stream))
}

/// Says what will be launched.
fn announce(tool: &mut UnixStream, program: &str) -> Result<(), CliError> {
    let mut message = request(LAUNCH, 0, [program.len() as u64, 0, 0]).to_vec();
    message.extend_from_slice(program.as_bytes());
    let why = match ask(tool, &message) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => "the tool has not loaded a program of this name".to_owned(),
        Err(Errno::INVAL) => "it is not for a GPU (`cuda__…`, `gpu/…`)".to_owned(),
        Err(Errno::ACCESS) => "it was refused; the tool says why on its standard error".to_owned(),
        Err(Errno::BUSY) => {
            "an application runs with the tool's programs, which has maps of its own: launch it when that has ended".to_owned()
        }
        Err(error) => format!("the tool answers: {error}"),
    };
    Err(CliError::Other(format!(
        "`{program}` cannot be launched: {why}"
    )))
}

fn launch(flags: &LaunchInsideFlags, driver: &Driver) -> Result<(), DriverError> {
    driver.init()?;
    let info = driver.device_info(0)?;
    let context = driver.retain_primary(0)?;
    driver.set_current(context)?;
    let module = driver.load_ptx(&empty_kernel(&flags.program, info.capability))?;
    let function = driver.function(module, &flags.program)?;
    let stream = driver.stream()?;
    for _ in 0..flags.count {
        // SAFETY: the kernel takes no parameters and does nothing; what the agent puts into it was
        // proved.
        unsafe { driver.launch(function, flags.grid.0, flags.block.0, stream, &mut [])? };
    }
    driver.wait(stream)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use warpbpf_wire::inside::{BYTES, read};

    use super::*;

    #[test]
    fn a_tool_s_refusal_is_said_in_words() {
        for (errno, why) in [
            (
                Errno::NOENT,
                "the tool has not loaded a program of this name",
            ),
            (Errno::INVAL, "it is not for a GPU (`cuda__…`, `gpu/…`)"),
            (
                Errno::ACCESS,
                "it was refused; the tool says why on its standard error",
            ),
            (
                Errno::IO,
                "the tool answers: Input/output error (os error 5)",
            ),
        ] {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let answer = -i64::from(errno.raw_os_error());
            theirs.write_all(&answer.to_ne_bytes()).unwrap();
            let said = announce(&mut ours, "cuda__run").unwrap_err().to_string();
            assert_eq!(said, format!("`cuda__run` cannot be launched: {why}"));
            let (mut bytes, mut name) = ([0; BYTES], [0; 9]);
            theirs.read_exact(&mut bytes).unwrap();
            theirs.read_exact(&mut name).unwrap();
            assert_eq!(
                (read(&bytes), &name),
                ((LAUNCH, 0, [9, 0, 0]), b"cuda__run")
            );
        }
    }

    #[test]
    fn where_no_tool_is_it_is_said_how_to_find_one() {
        let said = connect(Path::new("/nowhere/socket")).unwrap_err();
        let said = said.to_string();
        assert!(
            said.starts_with("no tool is at `/nowhere/socket`: "),
            "{said}"
        );
        assert!(said.contains("`warpbpf loader --socket`"), "{said}");
    }
}
