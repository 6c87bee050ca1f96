//! Functions for kernels of which there is only machine code: `ptxas` makes them here, in the tool, because nothing is started in an application.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::{Pid, Signal};
use warpbpf::{Exchange, Function, Functions};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Arch, Options, ProgramChange, Session};

use crate::python;

/// How far programs go into kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Kernels that have PTX
    Ptx,
    /// Those, and of others (sm_80, sm_90) the entry and the exits, in their machine code; needs `ptxas`. NVIDIA's own libraries are left alone
    Splice,
    /// Those, and of others the entry, the exits, the accesses of memory, the barriers and the calls, by Compute Sanitizer; needs its library and `ptxas`. NVIDIA's own libraries, too
    Sanitizer,
    /// For each kernel `splice`, or `sanitizer` where a program is at accesses of memory, barriers or functions, if what they need is there; the report says which, and why
    Auto,
}

/// Names the assembler, before any other place is looked at.
pub const PTXAS: &str = "WARPBPF_PTXAS";
/// After how many seconds a run of it is ended.
pub const PTXAS_SECONDS: &str = "WARPBPF_PTXAS_SECONDS";
/// The same, where nobody says.
const SECONDS: u64 = 30;
/// Where toolkits are installed.
const INSTALLED: &str = "/usr/local/cuda";
/// Where packages of PyPI have it, in the folder of a Python's packages: `nvidia-cuda-nvcc`, and `nvidia-cuda-nvcc-cu12`.
const IN_PACKAGES: [&str; 2] = ["nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas"];

/// Finds `ptxas`: where [`PTXAS`] says, or else in the CUDA toolkit that `CUDA_HOME` or `CUDA_PATH` names, in `PATH`, where toolkits are installed, or among the
/// packages of the `python3` in `PATH`.
///
/// # Errors
/// It is in none of these; what to do, for the user.
pub fn ptxas() -> Result<PathBuf, String> {
    ptxas_by(|name| std::env::var_os(name), Path::new(INSTALLED))
}

fn ptxas_by(
    variable: impl Fn(&str) -> Option<OsString>,
    installed: &Path,
) -> Result<PathBuf, String> {
    if let Some(named) = variable(PTXAS).map(PathBuf::from) {
        let missing = format!("{PTXAS} names `{}`, where no file is", named.display());
        return Some(named).filter(|file| file.is_file()).ok_or(missing);
    }
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(&variable);
    let path = variable("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = toolkits
        .map(|home| Path::new(&home).join("bin/ptxas"))
        .collect();
    all.extend(std::env::split_paths(&path).map(|folder| folder.join("ptxas")));
    all.push(installed.join("bin/ptxas"));
    all.extend(python::places(&path, &IN_PACKAGES));
    all.into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| {
            format!(
                "`ptxas` is not there, which kernels without PTX need: install the CUDA toolkit or `pip install nvidia-cuda-nvcc`, or name the file in {PTXAS}"
            )
        })
}

/// Who calls functions in kernels.
#[derive(Debug, Clone, Copy)]
pub struct Callers {
    /// Edits of kernels' files.
    pub splice: bool,
    /// Compute Sanitizer.
    pub sanitizer: bool,
}

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

/// What `ptxas` made, by the texts.
type Made = Mutex<HashMap<String, Vec<u8>>>;

fn lock(made: &Made) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `ptxas` make the functions of a session's programs, each text once.
pub struct Maker {
    ptxas: Ptxas,
    callers: Callers,
    /// `None`: none can be made for the device, or its object is refused; the agent tells why.
    of: Option<(Session, Arch)>,
    made: Arc<Made>,
    /// What is known to the one that this came of by an exchange, which is tried again if it was given up.
    before: Weak<Made>,
}

impl Maker {
    /// For the programs of an object on a device.
    pub fn new(
        ptxas: &Ptxas,
        callers: Callers,
        object: &[u8],
        options: &Options,
        device: &DeviceInfo,
    ) -> Maker {
        let (major, minor) = device.capability;
        let arch = Arch::of(major * 10 + minor);
        let of = arch.and_then(|arch| Some((Session::new(object, options, device).ok()?, arch)));
        Maker {
            ptxas: ptxas.clone(),
            callers,
            of,
            made: Arc::default(),
            before: Weak::new(),
        }
    }

    /// What became of a text, which is not asked of `ptxas` again where that took it.
    fn function(&self, text: &str, arch: Arch) -> Result<Vec<u8>, Refused> {
        if let Some(cubin) = lock(&self.made).get(text) {
            return Ok(cubin.clone());
        }
        // Others do not wait for it, and may ask for the same.
        let cubin = assemble(&self.ptxas, text, arch)?;
        lock(&self.made).insert(text.to_owned(), cubin.clone());
        if let Some(before) = self.before.upgrade() {
            lock(&before).insert(text.to_owned(), cubin.clone());
        }
        Ok(cubin)
    }

    fn texts(&self) -> Vec<String> {
        let Some((session, arch)) = &self.of else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        if self.callers.splice {
            texts.extend(session.probe_texts(*arch));
        }
        if self.callers.sanitizer {
            texts.extend(session.patch_texts(arch.number()));
        }
        texts
    }
}

impl Functions for Maker {
    fn make(&self, give: &mut dyn FnMut(Function) -> ControlFlow<()>) {
        let Some((_, arch)) = self.of else { return };
        let mut hung = None;
        for text in self.texts() {
            let cubin = match &hung {
                // Nobody is to wait as long for each of them.
                Some(Refused::Hung(why)) if !lock(&self.made).contains_key(&text) => {
                    Err(Refused::Hung(why.clone()))
                }
                _ => self.function(&text, arch),
            };
            hung = hung.or_else(|| cubin.as_ref().err().filter(|why| why.has_hung()).cloned());
            if give((text, cubin.map_err(Refused::why))).is_break() {
                return;
            }
        }
    }

    fn after(&self, exchange: &Exchange) -> Option<Arc<dyn Functions>> {
        let (session, arch) = self.of.as_ref()?;
        let change = match exchange {
            Exchange::Replace(object) => ProgramChange::Replace(object.bytes()),
            Exchange::Add(object) => ProgramChange::Add(object.bytes()),
            Exchange::Remove(programs) => ProgramChange::Remove(programs),
            Exchange::Gate { .. } | Exchange::Slots(_) | Exchange::Clear => return None,
        };
        let next = Maker {
            ptxas: self.ptxas.clone(),
            callers: self.callers,
            of: Some((session.succeeded(change).ok()?, *arch)),
            made: Arc::default(),
            before: Arc::downgrade(&self.made),
        };
        let wanted: HashSet<String> = next.texts().into_iter().collect();
        let own: HashSet<String> = self.texts().into_iter().collect();
        let mut made = lock(&self.made);
        // Of those that are needed no more none is kept, of exchanges that were given up neither.
        made.retain(|text, _| own.contains(text) || wanted.contains(text));
        let known = made.iter().filter(|(text, _)| wanted.contains(*text));
        *lock(&next.made) = known
            .map(|(text, made)| (text.clone(), made.clone()))
            .collect();
        drop(made);
        Some(Arc::new(next))
    }
}

/// Why there is no function.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    /// `ptxas` did not end by itself.
    Hung(String),
    /// Anything else.
    No(String),
}

impl Refused {
    fn has_hung(&self) -> bool {
        matches!(self, Refused::Hung(_))
    }

    fn why(self) -> String {
        match self {
            Refused::Hung(why) | Refused::No(why) => why,
        }
    }
}

fn assemble(ptxas: &Ptxas, text: &str, arch: Arch) -> Result<Vec<u8>, Refused> {
    let no = |what: &dyn std::fmt::Display, error: std::io::Error| {
        Refused::No(format!("{what}: {error}"))
    };
    let folder = Folder::new().map_err(|error| no(&"no folder for `ptxas`", error))?;
    let [source, cubin, said] =
        ["probe.ptx", "probe.cubin", "said"].map(|name| folder.0.join(name));
    std::fs::write(&source, text).map_err(|error| no(&source.display(), error))?;
    let errors = std::fs::File::create(&said).map_err(|error| no(&said.display(), error))?;
    let mut run = Command::new(&ptxas.file);
    // It does not stay behind when the tool ends: this thread waits for it, and ends with the tool.
    let with_us =
        || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    // SAFETY: it makes one system call, and allocates nothing.
    unsafe { run.pre_exec(with_us) };
    let mut run = run
        .arg("--compile-as-tools-patch")
        .args(["-arch", &format!("sm_{}", arch.number()), "-o"])
        .args([&cubin, &source])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        // It may be a script, and what that started is to end with it.
        .process_group(0)
        .spawn()
        .map_err(|error| no(&ptxas.file.display(), error))?;
    let status = wait(&mut run, ptxas.limit).map_err(|error| no(&ptxas.file.display(), error))?;
    let Some(status) = status else {
        return Err(Refused::Hung(format!(
            "`ptxas` ({}) did not end within {} s and was ended",
            ptxas.file.display(),
            ptxas.limit.as_secs_f64()
        )));
    };
    if !status.success() {
        let said = std::fs::read(&said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let first = said.lines().next().unwrap_or("it says nothing");
        return Err(Refused::No(format!(
            "`ptxas` refuses the function: {first}"
        )));
    }
    std::fs::read(&cubin).map_err(|error| no(&cubin.display(), error))
}

/// How a process has ended, which leads a group of its own; `None` if it did not within the limit, and was ended with its group.
fn wait(run: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = run.try_wait()? {
            return Ok(Some(status));
        }
        let Some(left) = limit.checked_sub(begun.elapsed()) else {
            break;
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    if let Some(group) = Pid::from_raw(run.id().cast_signed()) {
        // It may end just now.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    run.wait()?;
    Ok(None)
}

/// A folder of our own, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt as _;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpbpf-ptxas-{}-{number}", std::process::id());
        let path = warpbpf::runtime_folder().join(name);
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
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Something that stands for `ptxas`.
    fn script(folder: &Folder, text: &str) -> PathBuf {
        let file = folder.0.join("ptxas");
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    fn patient(file: &Path) -> Ptxas {
        Ptxas {
            file: file.to_owned(),
            limit: Duration::from_secs(60),
        }
    }

    /// Two programs at two kinds of place.
    fn object() -> Vec<u8> {
        let folder = Folder::new().unwrap();
        let (source, object) = (folder.0.join("two.bpf.c"), folder.0.join("two.o"));
        let program = |name: &str, at: &str, what: &str| {
            format!(
                "__attribute__((section(\"gpu/{at}/*\"))) int {name}(void *ctx) {{ {what} return 0; }}\n"
            )
        };
        let begins = program("begins", "entry", "");
        let ends = program("ends", "exit", "__sync_fetch_and_add(&ended, 1);");
        let text = format!("unsigned long long ended;\n{begins}{ends}");
        let license = "char LICENSE[] __attribute__((section(\"license\"))) = \"GPL\";\n";
        std::fs::write(&source, text + license).unwrap();
        let clang = std::env::var("WARPBPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
        let mut clang = Command::new(clang);
        clang.args(["-O2", "-g", "-target", "bpf", "-c"]);
        let status = clang.arg(&source).arg("-o").arg(&object).status();
        assert!(status.expect("clang: `cargo xtask setup`").success());
        std::fs::read(object).unwrap()
    }

    fn made(functions: &dyn Functions) -> Vec<Result<String, String>> {
        let mut all = Vec::new();
        functions.make(&mut |(text, cubin)| {
            let cubin = cubin.map(|cubin| String::from_utf8(cubin).unwrap());
            assert!(cubin.as_ref().is_ok_and(|cubin| *cubin == text) || cubin.is_err());
            all.push(cubin);
            ControlFlow::Continue(())
        });
        all
    }

    #[test]
    fn a_ptxas_of_python_is_found_behind_all_others() {
        let folder = Folder::new().unwrap();
        let file = |name: &str| {
            let file = folder.0.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, b"").unwrap();
            file
        };
        let (bin, installed) = (folder.0.join("python/bin"), folder.0.join("installed"));
        let found = |named: Option<&Path>| {
            let variable = |name: &str| match name {
                PTXAS => named.map(|file| file.as_os_str().to_owned()),
                "CUDA_HOME" => Some(folder.0.join("toolkit").into()),
                "PATH" => Some(bin.clone().into()),
                _ => None,
            };
            ptxas_by(variable, &installed)
        };
        file("python/bin/python3");
        let missing = "`ptxas` is not there, which kernels without PTX need: install the CUDA toolkit or `pip install nvidia-cuda-nvcc`, or name the file in WARPBPF_PTXAS";
        assert_eq!(found(None), Err(missing.to_owned()));
        // From the last place to the first.
        for name in [
            "python/lib/python3.12/site-packages/nvidia/cuda_nvcc/bin/ptxas",
            "python/lib/python3.12/site-packages/nvidia/cu13/bin/ptxas",
            "installed/bin/ptxas",
            "python/bin/ptxas",
            "toolkit/bin/ptxas",
        ] {
            let file = file(name);
            assert_eq!(found(None), Ok(file));
        }
        let named = folder.0.join("named");
        let why = format!(
            "WARPBPF_PTXAS names `{}`, where no file is",
            named.display()
        );
        assert_eq!(found(Some(&named)), Err(why));
        assert_eq!(found(Some(&file("named"))), Ok(named));
    }

    #[test]
    fn ptxas_is_asked_for_what_an_exchange_needs_and_was_not_made() {
        let folder = Folder::new().unwrap();
        let (log, object) = (folder.0.join("log"), object());
        let fails = folder.0.join("fails");
        let text = format!(
            "echo once >> '{}'; [ -e '{}' ] && exit 1; cat $6 > $5",
            log.display(),
            fails.display()
        );
        let ptxas = script(&folder, &text);
        let runs = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        let maker_by = |capability, sanitizer| {
            let device = DeviceInfo {
                name: String::new(),
                capability,
                sms: 4,
                driver_version: 13000,
            };
            let callers = Callers {
                splice: true,
                sanitizer,
            };
            Maker::new(
                &patient(&ptxas),
                callers,
                &object,
                &Options::default(),
                &device,
            )
        };
        let maker = |capability| maker_by(capability, false);
        let first = maker((9, 0));
        let both = made(&first);
        assert_eq!((both.len(), runs()), (2, 2));
        assert_eq!((made(&first), runs()), (both.clone(), 2));
        let one = first.after(&Exchange::Remove(vec!["ends".to_owned()]));
        let left = made(one.unwrap().as_ref());
        assert_eq!((left.len(), runs()), (1, 2));
        assert!(both.contains(&left[0]));
        // What failed is tried again.
        std::fs::write(&fails, "").unwrap();
        let none = first.after(&Exchange::Remove(vec![
            "begins".to_owned(),
            "ends".to_owned(),
        ]));
        let none = none.unwrap();
        let again = Exchange::Replace(warpbpf::Object::from_bytes("two", &*object).unwrap());
        let again = none.after(&again).unwrap();
        let why = Err("`ptxas` refuses the function: it says nothing".to_owned());
        assert_eq!(
            (made(none.as_ref()), made(again.as_ref()), runs()),
            (Vec::new(), vec![why; 2], 4)
        );
        std::fs::remove_file(&fails).unwrap();
        assert_eq!((made(again.as_ref()), runs()), (both.clone(), 6));
        // Where either may call them, each has its own.
        let either = made(&maker_by((9, 0), true));
        assert_eq!((either.len(), runs()), (4, 10));
        assert!(both.iter().all(|function| either.contains(function)));
        // What the agent will refuse.
        assert!(
            first
                .after(&Exchange::Remove(vec!["nobody".to_owned()]))
                .is_none()
        );
        assert!(made(&maker((7, 5))).is_empty());
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
    fn a_ptxas_that_hangs_is_ended_and_what_was_made_is_kept() {
        let folder = Folder::new().unwrap();
        let (hangs, pids) = (folder.0.join("hangs"), folder.0.join("pids"));
        let log = folder.0.join("log");
        // The second run of it does not end, nor does what it has started.
        let text = format!(
            "echo once >> '{log}'; if [ -e '{hangs}' ] && [ $(wc -l < '{log}') -gt 1 ]; then sleep 3600 & echo $$ $! > '{pids}'; wait; fi; cat $6 > $5",
            log = log.display(),
            hangs = hangs.display(),
            pids = pids.display()
        );
        let ptxas = Ptxas {
            file: script(&folder, &text),
            limit: Duration::from_millis(300),
        };
        let runs = || std::fs::read_to_string(&log).map_or(0, |log| log.lines().count());
        let device = DeviceInfo {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            driver_version: 13000,
        };
        let object = object();
        let callers = Callers {
            splice: true,
            sanitizer: false,
        };
        let begun = Maker::new(&ptxas, callers, &object, &Options::default(), &device);
        let all = ["begins", "ends"].map(str::to_owned).to_vec();
        let none = begun.after(&Exchange::Remove(all)).unwrap();
        let exchange = Exchange::Replace(warpbpf::Object::from_bytes("two", object).unwrap());
        std::fs::write(&hangs, "").unwrap();
        let first = made(none.after(&exchange).unwrap().as_ref());
        let why = format!(
            "`ptxas` ({}) did not end within 0.3 s and was ended",
            ptxas.file.display()
        );
        assert_eq!((first.len(), runs()), (2, 2));
        assert!(first[0].is_ok());
        assert_eq!(first[1], Err(why));
        let pids = std::fs::read_to_string(&pids).unwrap();
        for pid in pids.split_whitespace() {
            // A zombie that nobody has asked for yet is no process any more.
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }
        // Tried again, the first one is there.
        std::fs::remove_file(&hangs).unwrap();
        let again = made(none.after(&exchange).unwrap().as_ref());
        assert_eq!((again.len(), runs()), (2, 3));
        assert_eq!(again[0], first[0]);
        assert!(again[1].is_ok());
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
