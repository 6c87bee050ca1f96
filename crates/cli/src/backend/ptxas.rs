//! Runs of `ptxas`: each ends within a limit with all that it has started, also when nobody waits
//! for it any more, and one that did not end by itself is remembered.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use warpbpf_session::Arch;
use warpbpf_wire::HANDSHAKE;

/// After how many seconds a run of it is ended.
pub const PTXAS_SECONDS: &str = "WARPBPF_PTXAS_SECONDS";
/// The same, where nobody says.
const SECONDS: u64 = 30;
/// The most where an application waits: its agent gives up after [`HANDSHAKE`], and then kernels
/// with PTX have no programs either. The rest is for what else the tool has to do.
const AT_START: Duration = Duration::from_secs(HANDSHAKE.as_secs() - 4);
/// How long one that did not end keeps others from being begun while an application waits.
const REMEMBERED: Duration = Duration::from_secs(60);

/// An assembler, and how long one run of it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    /// Its file.
    pub file: PathBuf,
    /// What runs longer is ended.
    pub limit: Duration,
}

impl Ptxas {
    /// This one, with the limit that [`PTXAS_SECONDS`] says.
    ///
    /// # Errors
    /// That is no number of seconds.
    pub fn new(file: PathBuf) -> Result<Ptxas, String> {
        let limit = limit_by(std::env::var_os(PTXAS_SECONDS))?;
        Ok(Ptxas { file, limit })
    }

    /// This one, as an application that starts can wait for it.
    #[must_use]
    pub fn at_start(&self) -> Ptxas {
        Ptxas {
            file: self.file.clone(),
            limit: self.limit.min(AT_START),
        }
    }

    /// What is said of one that was ended.
    fn hung(&self) -> String {
        format!(
            "`ptxas` ({}) did not end within {} s and was ended",
            self.file.display(),
            self.limit.as_secs_f64()
        )
    }
}

/// The last run that did not end by itself, since which none has: an application that comes does
/// not wait for another one.
#[derive(Debug, Default)]
pub struct Hang(Mutex<Option<(Instant, String)>>);

impl Hang {
    fn last(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of a run.
    pub fn note<T>(&self, run: &Result<T, Refused>) {
        *self.last() = match run {
            Err(Refused::Hung(why)) => Some((Instant::now(), why.clone())),
            Ok(_) | Err(Refused::No(_)) => None,
        };
    }

    /// Why none is begun at this moment.
    pub fn at(&self, now: Instant) -> Option<Refused> {
        let last = self.last();
        let (at, why) = last.as_ref()?;
        let lately = now.saturating_duration_since(*at) < REMEMBERED;
        lately.then(|| Refused::Hung(why.clone()))
    }
}

fn limit_by(said: Option<OsString>) -> Result<Duration, String> {
    let Some(said) = said else {
        return Ok(Duration::from_secs(SECONDS));
    };
    let seconds = said.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        format!(
            "{PTXAS_SECONDS} is `{}`, and not a number of seconds from 1 on",
            said.display()
        )
    })
}

/// Why there is no function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// `ptxas` did not end by itself.
    Hung(String),
    /// Anything else.
    No(String),
}

impl Refused {
    /// It may do so again.
    pub fn has_hung(&self) -> bool {
        matches!(self, Refused::Hung(_))
    }

    /// The words.
    pub fn why(self) -> String {
        match self {
            Refused::Hung(why) | Refused::No(why) => why,
        }
    }
}

/// Its version, as it says itself: `13.0.88`.
///
/// # Errors
/// It does not say one, for the user.
pub fn version(ptxas: &Ptxas) -> Result<String, String> {
    let file = ptxas.file.display();
    let failed = |error: std::io::Error| format!("{file}: {error}");
    let folder = Folder::new().map_err(failed)?;
    let said = folder.0.join("said");
    let into = std::fs::File::create(&said).map_err(failed)?;
    let mut run = Command::new(&ptxas.file);
    run.arg("--version").stdin(Stdio::null());
    run.stdout(into).stderr(Stdio::null());
    let run = Run::begin(run).map_err(failed)?;
    let ended = run.wait(ptxas.limit).map_err(failed)?;
    drop(run);
    if ended.is_none() {
        return Err(ptxas.hung());
    }
    let said = std::fs::read(&said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let version = said.split_once(", V").map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        &rest[..end.unwrap_or(rest.len())]
    });
    let version = version.filter(|version| !version.is_empty());
    version.map(str::to_owned).ok_or_else(|| {
        let first = said.lines().next().unwrap_or("nothing");
        format!("`ptxas --version` ({file}) says no version: {first}")
    })
}

/// Makes a function of its text.
///
/// # Errors
/// It cannot be made.
pub fn assemble(ptxas: &Ptxas, text: &str, arch: Arch) -> Result<Vec<u8>, Refused> {
    let no = |what: &dyn std::fmt::Display, error: std::io::Error| {
        Refused::No(format!("{what}: {error}"))
    };
    let folder = Folder::new().map_err(|error| no(&"no folder for `ptxas`", error))?;
    let [source, cubin, said] =
        ["probe.ptx", "probe.cubin", "said"].map(|name| folder.0.join(name));
    std::fs::write(&source, text).map_err(|error| no(&source.display(), error))?;
    let errors = std::fs::File::create(&said).map_err(|error| no(&said.display(), error))?;
    let mut run = Command::new(&ptxas.file);
    run.arg("--compile-as-tools-patch")
        .args(["-arch", &format!("sm_{}", arch.number()), "-o"])
        .args([&cubin, &source])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    let run = Run::begin(run).map_err(|error| no(&ptxas.file.display(), error))?;
    let success = run
        .wait(ptxas.limit)
        .map_err(|error| no(&ptxas.file.display(), error))?;
    drop(run);
    let Some(success) = success else {
        return Err(Refused::Hung(ptxas.hung()));
    };
    if !success {
        let said = std::fs::read(&said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let first = said.lines().next().unwrap_or("it says nothing");
        return Err(Refused::No(format!(
            "`ptxas` refuses the function: {first}"
        )));
    }
    std::fs::read(&cubin).map_err(|error| no(&cubin.display(), error))
}

/// A process that leads a group of its own, with what it has started. All of it ends when this is
/// dropped.
struct Run(Child);

impl Run {
    fn begin(mut command: Command) -> std::io::Result<Run> {
        let tool = Pid::from_raw(std::process::id().cast_signed());
        // The program itself does not stay behind when the tool is killed: this thread waits for
        // it, and ends with the tool.
        let with_us = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // Who died before that sends no signal.
            match rustix::process::getppid() == tool {
                true => Ok(()),
                false => Err(Errno::SRCH.into()),
            }
        };
        // SAFETY: it makes two system calls, and allocates nothing.
        unsafe { command.pre_exec(with_us) };
        // It may be a script, and what that started is to end with it.
        command.process_group(0).spawn().map(Run)
    }

    /// Its number, and its group's.
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// It ended within the limit, and whether well. Its number stays its own, so that no other
    /// group can have it.
    fn wait(&self, limit: Duration) -> std::io::Result<Option<bool>> {
        let pid = self.pid().ok_or(Errno::SRCH)?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let begun = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = rustix::process::waitid(WaitId::Pid(pid), options)? {
                return Ok(Some(status.exit_status() == Some(0)));
            }
            let Some(left) = limit.checked_sub(begun.elapsed()) else {
                return Ok(None);
            };
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(group) = self.pid() {
            // Nobody may be left in it.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        // Nobody else takes its status.
        let _ = self.0.wait();
    }
}

/// A folder of our own, gone when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt as _;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpbpf-ptxas-{}-{number}", std::process::id());
        let path = warpbpf_tool::runtime_folder().join(name);
        // Nobody else may put a cubin there.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It costs a few kilobytes if it stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// Something that stands for `ptxas`.
    pub(crate) fn script(folder: &Folder, text: &str) -> PathBuf {
        let file = folder.0.join("ptxas");
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    pub(crate) fn patient(file: &Path) -> Ptxas {
        Ptxas {
            file: file.to_owned(),
            limit: Duration::from_secs(60),
        }
    }

    /// None of them runs any more, at last: who was killed needs a moment to end, and is no process
    /// when nobody has asked for it yet.
    pub(crate) fn gone(pids: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        for pid in pids.split_whitespace() {
            loop {
                let stat = warpbpf_inject::text(format!("/proc/{pid}/stat")).unwrap_or_default();
                if stat.is_empty() || stat.contains(") Z ") {
                    break;
                }
                assert!(Instant::now() < end, "{stat}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn whatever_ends_a_run_ends_what_it_has_started() {
        let folder = Folder::new().unwrap();
        let pids = folder.0.join("pids");
        let text = format!(
            "sleep 3600 & echo $$ $! > '{}'; cat $6 > $5",
            pids.display()
        );
        let ptxas = script(&folder, &text);
        let cubin = assemble(&patient(&ptxas), "text", Arch::Sm90);
        assert_eq!(cubin, Ok(b"text".to_vec()));
        gone(&std::fs::read_to_string(&pids).unwrap());
        // Nobody waits for the end of this one.
        std::fs::remove_file(&pids).unwrap();
        let text = format!("sleep 3600 & echo $$ $! > '{}'; wait", pids.display());
        let run = Run::begin(Command::new(script(&folder, &text))).unwrap();
        let said = || std::fs::read_to_string(&pids).unwrap_or_default();
        while said().split_whitespace().count() < 2 {
            assert_eq!(run.wait(Duration::from_millis(1)).unwrap(), None);
        }
        drop(run);
        gone(&said());
    }

    #[test]
    fn an_application_that_comes_waits_less_and_once() {
        let limited = |seconds| Ptxas {
            file: PathBuf::new(),
            limit: Duration::from_secs(seconds),
        };
        let at_start = |seconds| limited(seconds).at_start().limit.as_secs();
        assert_eq!([1, 6, 7, 30].map(at_start), [1, 6, 6, 6]);
        let (hang, why) = (Hang::default(), Refused::Hung("it hangs".to_owned()));
        assert_eq!(hang.at(Instant::now()), None);
        hang.note::<()>(&Err(why.clone()));
        let later = |seconds| hang.at(Instant::now() + Duration::from_secs(seconds));
        assert_eq!(later(0), Some(why.clone()));
        assert_eq!(later(61), None);
        // One that ends, however, shows that they do.
        hang.note::<()>(&Err(Refused::No("no PTX".to_owned())));
        assert_eq!(later(0), None);
        hang.note::<()>(&Err(why));
        hang.note(&Ok(()));
        assert_eq!(later(0), None);
    }

    #[test]
    fn what_ptxas_says_is_the_reason() {
        let folder = Folder::new().unwrap();
        let by = |text: &str| {
            let made = assemble(&patient(&script(&folder, text)), ".version 8.0", Arch::Sm90);
            made.map_err(Refused::why)
        };
        // `--compile-as-tools-patch -arch sm_90 -o CUBIN TEXT`
        assert_eq!(by("cat $6 > $5"), Ok(b".version 8.0".to_vec()));
        assert_eq!(
            by("echo this is no PTX >&2; echo more >&2; exit 1"),
            Err("`ptxas` refuses the function: this is no PTX".to_owned())
        );
        assert_eq!(
            by("exit 1"),
            Err("`ptxas` refuses the function: it says nothing".to_owned())
        );
        let missing = assemble(&patient(Path::new("/nowhere/ptxas")), "", Arch::Sm90);
        assert_eq!(
            missing.unwrap_err().why(),
            "/nowhere/ptxas: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn it_says_its_version() {
        let folder = Folder::new().unwrap();
        let by = |text: &str| {
            let file = script(&folder, text);
            version(&patient(&file)).map_err(|why| why.replace(&*file.to_string_lossy(), "FILE"))
        };
        assert_eq!(
            by(
                "echo 'ptxas: NVIDIA (R) Ptx optimizing assembler'; echo 'Cuda compilation tools, release 13.0, V13.0.88'"
            ),
            Ok("13.0.88".to_owned())
        );
        let none = "`ptxas --version` (FILE) says no version: ";
        assert_eq!(by("echo I am none"), Err(format!("{none}I am none")));
        assert_eq!(by("echo 'of it, V!'"), Err(format!("{none}of it, V!")));
        assert_eq!(by("exit 1"), Err(format!("{none}nothing")));
        let hasty = Ptxas {
            file: script(&folder, "sleep 3600"),
            limit: Duration::from_millis(5),
        };
        assert_eq!(
            version(&hasty),
            Err(format!(
                "`ptxas` ({}) did not end within 0.005 s and was ended",
                hasty.file.display()
            ))
        );
    }

    #[test]
    fn the_limit_is_a_number_of_seconds() {
        let limit = |said: &str| limit_by(Some(said.into()));
        assert_eq!(limit_by(None), Ok(Duration::from_secs(30)));
        assert_eq!(limit("5"), Ok(Duration::from_secs(5)));
        for said in ["0", "soon", "-1", ""] {
            assert_eq!(
                limit(said),
                Err(format!(
                    "WARPBPF_PTXAS_SECONDS is `{said}`, and not a number of seconds from 1 on"
                ))
            );
        }
    }
}
