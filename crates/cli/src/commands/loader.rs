//! `warpbpf loader`: a tool that is linked with libbpf, unchanged, and the application that its
//! programs are for.
//!
//! The tool comes first. When it has attached its programs, the library in it says so over a
//! socket, and the application is started. When the application has ended and the tool has seen
//! what it left, the tool is interrupted, as its user would do.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use warpbpf_wire::rendezvous::{SHM_NAME, places};

use crate::application::machine::{self, Device};
use crate::application::start::{self, INJECTION, NVTX_INJECTION, SOCKET, Surroundings};
use crate::commands::loader_late::{Ends, Late};
use crate::commands::run::{NOTHING_INSTRUMENTED, NVTX_TAKEN, shell_status};
use crate::flags::{LoaderFlags, TargetFlags};
use crate::term::error::{CliError, FAILED};
use crate::term::inherited::Inherited;
use crate::term::output::tell;
use crate::term::signals::{self, Signals};

/// Where the dynamic linker looks for libraries first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// How often the processes are looked at.
const TICK: Duration = Duration::from_millis(5);
/// How long a signal is given before the next, stronger one.
const GRACE: Duration = Duration::from_secs(5);

/// Runs both. The application's exit status is ours, or the tool's if that one failed alone.
pub fn run(flags: &LoaderFlags, surroundings: &Surroundings) -> Result<u8, CliError> {
    let app = flags.tool_and_app().1;
    if !flags.pid.is_empty() && !app.is_empty() {
        return Err(CliError::Other(
            "`--pid` names an application that runs already, and the one behind `--` is to be started: give one of the two"
                .into(),
        ));
    }
    let signals = Signals::begin();
    warpbpf_tool::start::take_away_left_folders();
    let ends = Ends::default();
    std::thread::scope(|scope| {
        let late = Late::look(&flags.pid, scope, &ends)?;
        run_both(flags, surroundings, signals, late)
    })
}

fn run_both(
    flags: &LoaderFlags,
    surroundings: &Surroundings,
    signals: Signals,
    late: Late<'_, '_>,
) -> Result<u8, CliError> {
    let device = machine::choose(flags.device)?;
    // One that runs already has its driver.
    if !late.is_wanted() {
        machine::tell_of(&device, flags.device);
    }
    signals.start();
    let (tool, news) = start_tool(flags, &device, signals.inherited)?;
    signals::is_waited_for(tool.id());
    let mut both = Both {
        flags,
        surroundings,
        device,
        tool: Process::new(tool),
        app: None,
        late,
        news,
        partial: Vec::new(),
        ready: None,
        agent: false,
        done: false,
        ranges: flags.ranges,
        placed: false,
        words: Vec::new(),
        signals,
    };
    let result = both.follow();
    // Whatever went wrong: the tool is not left behind.
    both.tool.stop();
    both.late.leave(&mut both.signals);
    both.last_words();
    both.clean();
    match result {
        Ok(0) if both.late.has_failed() => Ok(FAILED),
        Ok(0) if flags.strict && !both.placed => Ok(NOTHING_INSTRUMENTED),
        result => result,
    }
}

/// Starts the tool with our library in it, and gives our end of the socket that it speaks to.
fn start_tool(
    flags: &LoaderFlags,
    device: &Device,
    inherited: Inherited,
) -> Result<(Child, UnixStream), CliError> {
    let (program, arguments) = start::split(flags.tool_and_app().0);
    let path = start::find(program)?;
    let name = program.to_string_lossy().into_owned();
    let failed = |reason: String| CliError::BadProgram {
        program: name.clone(),
        reason,
    };
    if is_static(&path) {
        return Err(failed(
            "it is linked statically with libc, so no library can be put into it; link libc dynamically (libbpf may stay static)"
                .into(),
        ));
    }
    let library = machine::loader()?;
    let (ours, theirs) = UnixStream::pair().map_err(|e| failed(e.to_string()))?;
    ours.set_nonblocking(true)
        .map_err(|e| failed(e.to_string()))?;
    // Inherited by the tool alone: this end is closed before the application starts.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
        .map_err(|e| failed(e.to_string()))?;
    let mut command = Command::new(&path);
    command
        .args(arguments)
        .arg0(program)
        .env(
            "LD_PRELOAD",
            start::listed(library.as_os_str(), "LD_PRELOAD")?,
        )
        .env("WARPBPF_LOADER_NOTIFY", theirs.as_raw_fd().to_string());
    // It may use CUDA itself, on the device of its applications.
    if let Device::Soft { folder, .. } = device {
        let folders = start::listed(folder.as_os_str(), LIBRARIES)?;
        command.env(LIBRARIES, folders);
    }
    if flags.allow_modify {
        command.env("WARPBPF_LOADER_ALLOW_MODIFY", "1");
    }
    if let Some(budget) = flags.budget {
        command.env("WARPBPF_LOADER_BUDGET", budget.to_string());
    }
    if flags.bound_loops {
        command.env("WARPBPF_LOADER_BOUND_LOOPS", "1");
    }
    if let Some(inside) = &flags.inside {
        command.env("WARPBPF_LOADER_INSIDE", inside);
    }
    if let Some(socket) = &flags.socket {
        command.env("WARPBPF_LOADER_SOCKET", socket);
    }
    let give = move || {
        inherited.give();
        Ok(())
    };
    // SAFETY: system calls alone.
    unsafe { command.pre_exec(give) };
    let child = command.spawn().map_err(|e| failed(e.to_string()))?;
    Ok((child, ours))
}

/// A process and how it ended.
struct Process {
    child: Child,
    status: Option<ExitStatus>,
    /// We ended it.
    stopped: bool,
}

impl Process {
    fn new(child: Child) -> Process {
        Process {
            child,
            status: None,
            stopped: false,
        }
    }

    /// How it ended, if it has.
    fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Interrupts it, as its user would; then ends it.
    fn stop(&mut self) {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
            if self.status().is_some() {
                return;
            }
            self.stopped = true;
            // SAFETY: our own child, which was not waited for: its number is nobody else's.
            unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
            let end = Instant::now() + GRACE;
            while self.status().is_none() && Instant::now() < end {
                std::thread::sleep(TICK);
            }
        }
    }
}

struct Both<'a, 's, 't> {
    flags: &'a LoaderFlags,
    surroundings: &'a Surroundings,
    device: Device,
    tool: Process,
    app: Option<Process>,
    late: Late<'s, 't>,
    news: UnixStream,
    /// A line that has not ended.
    partial: Vec<u8>,
    /// Where the tool listens, once it has attached its programs.
    ready: Option<PathBuf>,
    /// The application's agent has come.
    agent: bool,
    /// The tool has seen everything of the applications that came so far.
    done: bool,
    /// The application's NVTX ranges are to be known.
    ranges: bool,
    /// Some kernel has a program of the tool's.
    placed: bool,
    /// What the library in the tool would say at its end, which a signal does not let it.
    words: Vec<String>,
    signals: Signals,
}

impl Both<'_, '_, '_> {
    fn follow(&mut self) -> Result<u8, CliError> {
        let mut ended: Option<Instant> = None;
        loop {
            // What a tool that has ended said before is all there by now.
            self.tool.status();
            for line in self.lines() {
                self.take(&line)?;
            }
            self.late.take_in()?;
            let verdict = match self.late.is_wanted() {
                true => self.follow_late(&mut ended),
                false => self.follow_app(&mut ended),
            };
            if let Some(verdict) = verdict {
                return Ok(verdict);
            }
            self.pass_signals();
            std::thread::sleep(TICK);
        }
    }

    /// Signals are the application's, and the tool's where no application is there. What stops or
    /// lets go on is for both.
    fn pass_signals(&mut self) {
        let due = self.signals.due();
        let app = self.app.as_ref().filter(|app| app.status.is_none());
        let tool = Some(&self.tool).filter(|tool| tool.status.is_none());
        for signal in due {
            let both = [libc::SIGTSTP, libc::SIGCONT].contains(&signal);
            let second = tool.filter(|_| both && app.is_some());
            for process in app.or(tool).into_iter().chain(second) {
                signals::pass(&process.child, signal);
            }
        }
        if let Some(process) = app.or(tool) {
            self.signals.stop_with(&process.child);
        }
    }

    /// The exit status, once it is known.
    fn follow_app(&mut self, ended: &mut Option<Instant>) -> Option<u8> {
        let tool = self.tool.status;
        let app = self.app.as_mut().map(|app| app.status());
        match (tool, app) {
            // It never got as far as attaching, or there is no application to wait for.
            (Some(status), None) => Some(self.alone(status)),
            (Some(tool), Some(Some(app))) => Some(self.verdict(tool, app)),
            (None, Some(Some(app))) => {
                if !self.agent {
                    tell!("warpbpf: nothing was instrumented: the application loaded no CUDA code");
                } else if !self.done && !self.has_lingered(ended) {
                    return None;
                }
                self.tool.stop();
                Some(match self.tool.status() {
                    Some(tool) => self.verdict(tool, app),
                    None => shell_status(app) as u8,
                })
            }
            (None, _) | (Some(_), Some(None)) => None,
        }
    }

    /// The same where programs come into processes that run already, whose status nobody tells us.
    fn follow_late(&mut self, ended: &mut Option<Instant>) -> Option<u8> {
        if let Some(status) = self.tool.status {
            if self.ready.is_none() {
                tell!(
                    "warpbpf: the tool has ended before it attached a program to a kernel; nothing was put into {}",
                    self.late.names()
                );
                if status.success() {
                    return Some(125);
                }
            }
            return Some(shell_status(status) as u8);
        }
        if self.ready.is_none() || !self.late.have_ended() {
            return None;
        }
        // Others may use the tool, if it can be found.
        let lingered = self.has_lingered(ended) && self.link().is_none();
        if !self.done && !lingered {
            return None;
        }
        self.tool.stop();
        let status = self.tool.status();
        // A tool that ends by our signal has done what it should.
        let fails = status.filter(|status| status.code().is_some());
        Some(fails.map_or(0, |status| shell_status(status) as u8))
    }

    /// The tool has had its time after the end of the application, which was noted in `ended` when
    /// this was asked first.
    fn has_lingered(&self, ended: &mut Option<Instant>) -> bool {
        let since = *ended.get_or_insert_with(Instant::now);
        since.elapsed() > Duration::from_secs_f64(self.flags.linger.clamp(0.0, 1e6))
    }

    /// Says what a tool that a signal has ended could not.
    fn last_words(&mut self) {
        for line in self.lines() {
            // Whatever else it says is too late.
            self.placed |= line == "placed";
            if let Some(words) = words(&line) {
                self.words = words;
            }
        }
        for text in &self.words {
            tell!("warpbpf: {text}");
        }
    }

    /// A tool that a signal has ended has not removed its sockets.
    fn clean(&self) {
        let Some(control) = &self.ready else { return };
        let mut beside = control.as_os_str().to_owned();
        beside.push("-bpf");
        // Most are gone already.
        let _ = std::fs::remove_file(control);
        let _ = std::fs::remove_file(beside);
        let _ = control.parent().map(std::fs::remove_dir);
        if let Some(link) = self.link()
            && std::fs::read_link(&link).is_ok_and(|target| target == *control)
        {
            let _ = std::fs::remove_file(link);
        }
    }

    /// What the tool can be found by.
    fn link(&self) -> Option<PathBuf> {
        let by_name = || places(&name()?)?.into_iter().next();
        self.flags.socket.clone().or_else(by_name)
    }

    /// The tool has ended and no application was started.
    fn alone(&self, status: ExitStatus) -> u8 {
        if !self.flags.tool_and_app().1.is_empty() {
            tell!(
                "warpbpf: the tool has ended before it attached a program to a kernel; the application was not started"
            );
            if status.success() {
                return 125;
            }
        }
        shell_status(status) as u8
    }

    fn verdict(&self, tool: ExitStatus, app: ExitStatus) -> u8 {
        // A tool that ends by our signal has done what it should.
        let fine = tool.success() || (self.tool.stopped && tool.code().is_none());
        // Nobody else says it, where the application's status is told.
        if let (Some(signal), false) = (tool.signal(), fine) {
            tell!("warpbpf: the tool was ended by signal {signal}");
        }
        let status = if app.success() && !fine { tool } else { app };
        shell_status(status) as u8
    }

    /// Lines that have come from the tool.
    fn lines(&mut self) -> Vec<String> {
        let mut bytes = [0; 512];
        while let Ok(count @ 1..) = self.news.read(&mut bytes) {
            self.partial.extend_from_slice(&bytes[..count]);
        }
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        let text = String::from_utf8_lossy(&whole).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    fn take(&mut self, line: &str) -> Result<(), CliError> {
        if let Some(words) = words(line) {
            self.words = words;
            return Ok(());
        }
        match line.split_once(' ') {
            Some(("ready", path)) if self.ready.is_none() => {
                self.ready = Some(path.into());
                self.start_app(path)
            }
            Some((what, pid)) => self.late.take(what, pid),
            // Before it is ready.
            None if line == "ranges" => {
                self.ranges = true;
                Ok(())
            }
            None if line == "placed" => {
                self.placed = true;
                Ok(())
            }
            None => {
                self.agent |= line == "agent";
                self.done = line == "done";
                Ok(())
            }
        }
    }

    fn start_app(&mut self, socket: &str) -> Result<(), CliError> {
        if self.ranges && self.surroundings.nvtx_taken {
            tell!("warpbpf: {NVTX_TAKEN}");
        }
        if self.ranges && self.late.is_wanted() {
            tell!(
                "warpbpf: programs that choose launches by NVTX ranges or names are in none of {}, unless it was started with our NVTX_INJECTION64_PATH: it has decided before who gets its NVTX calls",
                self.late.names()
            );
        }
        self.late.begin(&self.news)?;
        if self.flags.tool_and_app().1.is_empty() {
            return match self.late.is_wanted() && self.link().is_none() {
                true => Ok(()),
                false => self.explain(socket),
            };
        }
        let target = TargetFlags {
            device: self.flags.device,
            inject: self.flags.inject,
            command: self.flags.tool_and_app().1.to_vec(),
        };
        let (child, _) = start::start(
            &target,
            &self.device,
            Path::new(socket),
            self.surroundings,
            self.ranges,
            self.signals.inherited,
        )?;
        signals::is_waited_for(child.id());
        self.app = Some(Process::new(child));
        Ok(())
    }

    /// Says how an application that somebody else starts finds the tool.
    fn explain(&self, socket: &str) -> Result<(), CliError> {
        let (variable, value) = match (&self.flags.socket, name()) {
            (Some(name), _) => {
                let path = std::path::absolute(name).unwrap_or_else(|_| name.clone());
                (SOCKET, path.into_os_string())
            }
            (None, Some(name)) => (SHM_NAME, name.into()),
            (None, None) => (SOCKET, socket.into()),
        };
        let agent = machine::agent()?;
        tell!("warpbpf: the tool is ready; start the application with");
        let say = |name: &str, value: &OsStr| tell!("  {name}={}", value.display());
        say(variable, &value);
        say(INJECTION, agent.as_os_str());
        if self.ranges && !self.surroundings.nvtx_taken {
            say(NVTX_INJECTION, agent.as_os_str());
        }
        if let Device::Soft { folder, .. } = &self.device {
            say(LIBRARIES, folder.as_os_str());
        }
        Ok(())
    }
}

/// What the library in the tool would say at its end, if the line is about that.
fn words(line: &str) -> Option<Vec<String>> {
    let words = line.strip_prefix("words")?;
    let texts = words.split('\x1f').map(str::trim);
    Some(
        texts
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

/// The name by which bpftime's users connect a tool and its applications, if it can be one.
fn name() -> Option<String> {
    let name = std::env::var(SHM_NAME).ok()?;
    places(&name).map(|_| name)
}

/// An executable that names no interpreter is its own libc. Anything that is no ELF file runs in
/// something that is.
fn is_static(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else {
        return false;
    };
    let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    const PT_INTERP: u32 = 3;
    let (Some(table), Some(size), Some(count)) = (long(32), half(54), half(56)) else {
        return false;
    };
    let header = |index: u16| {
        usize::try_from(table)
            .ok()?
            .checked_add(usize::from(size) * usize::from(index))
    };
    !(0..count).any(|index| header(index).and_then(word) == Some(PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::{is_static, words};

    /// A header with one program header of this type.
    fn elf(kind: u32) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(120, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn executables_without_an_interpreter_are_static() {
        let folder = std::env::temp_dir().join(format!("warpbpf-static-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let check = |bytes: &[u8]| {
            let path = folder.join("tool");
            std::fs::write(&path, bytes).unwrap();
            is_static(&path)
        };
        assert!(check(&elf(1)));
        assert!(!check(&elf(3)));
        assert!(!check(b"#!/bin/sh\n"));
        assert!(!check(b"\x7fELF\x02\x01"));
        assert!(!is_static(&folder.join("none")));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn last_words_are_sentences_of_a_line() {
        let texts = |line| words(line).map(|all| all.join("|"));
        assert_eq!(texts("words one two\x1fthree").unwrap(), "one two|three");
        assert_eq!(texts("words").unwrap(), "");
        assert_eq!(texts("done"), None);
    }
}
