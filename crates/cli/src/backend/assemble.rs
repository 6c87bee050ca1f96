//! Functions for kernels of which there is only machine code: `ptxas` makes them here, in the tool,
//! because nothing is started in an application.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use warpbpf_driver::DeviceInfo;
use warpbpf_session::{Arch, Means, Options, ProgramChange, Session};
use warpbpf_tool::{Function, Functions, Replacement};

use crate::backend::ptxas::{Hang, Ptxas, Refused, assemble};
use crate::backend::python;

/// Names the assembler, before any other place is looked at.
pub const PTXAS: &str = "WARPBPF_PTXAS";
/// Where toolkits are installed.
const INSTALLED: &str = "/usr/local/cuda";
/// Where packages of PyPI have it, in the folder of a Python's packages: `nvidia-cuda-nvcc`,
/// `nvidia-cuda-nvcc-cu12`, and `triton`, which comes with PyTorch.
const IN_PACKAGES: [&str; 3] = [
    "nvidia/cu13/bin/ptxas",
    "nvidia/cuda_nvcc/bin/ptxas",
    "triton/backends/nvidia/bin/ptxas",
];

/// Finds `ptxas`: where [`PTXAS`] says, or else in the CUDA toolkit that `CUDA_HOME` or `CUDA_PATH`
/// names, in `PATH`, where toolkits are installed, or among the packages of the `python3` in
/// `PATH`.
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

/// What `ptxas` made, by the texts.
type Made = Mutex<HashMap<String, Vec<u8>>>;

fn lock(made: &Made) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `ptxas` make the functions of a session's programs, each text once.
pub struct Maker {
    ptxas: Ptxas,
    /// Of all that the tool has.
    hang: Arc<Hang>,
    /// Of applications that come, which wait and then run without any program; a replacement that
    /// waits changes nothing.
    at_start: bool,
    /// Held while one of those is made for an application that comes: several that come at once
    /// want the same.
    turn: Mutex<()>,
    callers: Callers,
    /// `None`: none can be made for the device, or its object is refused; the agent tells why.
    of: Option<(Session, Arch)>,
    made: Arc<Made>,
    /// What is known to the one that this came of by a replacement, which is tried again if it was
    /// given up.
    before: Weak<Made>,
}

impl Maker {
    /// For applications that come, and the programs of an object on a device.
    pub fn new(
        ptxas: &Ptxas,
        hang: &Arc<Hang>,
        callers: Callers,
        object: &[u8],
        options: &Options,
        device: &DeviceInfo,
    ) -> Maker {
        let (major, minor) = device.capability;
        let arch = Arch::of(major * 10 + minor);
        // The agent knows, and refuses: here it only matters which functions programs need.
        let means = Means {
            nvtx_comes_to_us: true,
            ..Means::default()
        };
        let session = |arch| Some((Session::with(object, options, means, device).ok()?, arch));
        let of = arch.and_then(session);
        Maker {
            ptxas: ptxas.clone(),
            hang: Arc::clone(hang),
            at_start: true,
            turn: Mutex::default(),
            callers,
            of,
            made: Arc::default(),
            before: Weak::new(),
        }
    }

    /// Makes nothing.
    pub fn none(ptxas: &Ptxas) -> Maker {
        Maker {
            ptxas: ptxas.clone(),
            hang: Arc::default(),
            at_start: true,
            turn: Mutex::default(),
            callers: Callers {
                splice: false,
                sanitizer: false,
            },
            of: None,
            made: Arc::default(),
            before: Weak::new(),
        }
    }

    /// What became of a text, which is not asked of `ptxas` again where that took it.
    fn function(&self, text: &str, arch: Arch) -> Result<Vec<u8>, Refused> {
        let known = || lock(&self.made).get(text).cloned();
        if let Some(cubin) = known() {
            return Ok(cubin);
        }
        match self.at_start {
            true => {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                // Whoever had it before may have made it, or have seen that it takes too long.
                if let Some(cubin) = known() {
                    return Ok(cubin);
                }
                if let Some(hung) = self.hang.at(Instant::now()) {
                    return Err(hung);
                }
                let made = assemble(&self.ptxas.at_start(), text, arch);
                self.kept(text, made)
            }
            // Nobody waits for others' replacements, and two may have the same made.
            false => self.kept(text, assemble(&self.ptxas, text, arch)),
        }
    }

    /// What `ptxas` made is known from now on.
    fn kept(&self, text: &str, made: Result<Vec<u8>, Refused>) -> Result<Vec<u8>, Refused> {
        self.hang.note(&made);
        let cubin = made?;
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
        let mut hung = match self.at_start {
            true => self.hang.at(Instant::now()),
            false => None,
        };
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

    fn after(&self, replacement: &Replacement) -> Option<Arc<dyn Functions>> {
        let (session, arch) = self.of.as_ref()?;
        let change = match replacement {
            Replacement::Join {
                client,
                object,
                options,
            } => ProgramChange::Join {
                client: *client,
                object: object.bytes(),
                options,
            },
            Replacement::Leave { client } => ProgramChange::Leave { client: *client },
            Replacement::Replace(object) => ProgramChange::Replace(object.bytes()),
            Replacement::Add(object) => ProgramChange::Add(object.bytes()),
            Replacement::Remove(programs) => ProgramChange::Remove(programs),
            Replacement::Gate { .. } | Replacement::Slots(_) | Replacement::Clear => return None,
        };
        let next = Maker {
            ptxas: self.ptxas.clone(),
            hang: Arc::clone(&self.hang),
            at_start: false,
            turn: Mutex::default(),
            callers: self.callers,
            of: Some((session.replaced(change).ok()?, *arch)),
            made: Arc::default(),
            before: Arc::downgrade(&self.made),
        };
        let wanted: HashSet<String> = next.texts().into_iter().collect();
        let own: HashSet<String> = self.texts().into_iter().collect();
        let mut made = lock(&self.made);
        // Of those that are needed no more none is kept, of replacements that were given up
        // neither.
        made.retain(|text, _| own.contains(text) || wanted.contains(text));
        let known = made.iter().filter(|(text, _)| wanted.contains(*text));
        *lock(&next.made) = known
            .map(|(text, made)| (text.clone(), made.clone()))
            .collect();
        drop(made);
        Some(Arc::new(next))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::backend::ptxas::Folder;
    use crate::backend::ptxas::tests::{gone, patient, script};

    /// Two programs at two kinds of place.
    fn object() -> Vec<u8> {
        let program = |name: &str, at: &str, what: &str| {
            format!(
                "__attribute__((section(\"gpu/{at}/*\"))) int {name}(void *ctx) {{ {what} return 0; }}\n"
            )
        };
        let begins = program("begins", "entry", "");
        let ends = program("ends", "exit", "__sync_fetch_and_add(&ended, 1);");
        compile(&format!("unsigned long long ended;\n{begins}{ends}"))
    }

    fn compile(text: &str) -> Vec<u8> {
        let folder = Folder::new().unwrap();
        let (source, object) = (folder.0.join("two.bpf.c"), folder.0.join("two.o"));
        let license = "char LICENSE[] __attribute__((section(\"license\"))) = \"GPL\";\n";
        std::fs::write(&source, format!("{text}\n{license}")).unwrap();
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
    fn ptxas_is_asked_for_what_a_replacement_needs_and_was_not_made() {
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
                &Arc::default(),
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
        let one = first.after(&Replacement::Remove(vec!["ends".to_owned()]));
        let left = made(one.unwrap().as_ref());
        assert_eq!((left.len(), runs()), (1, 2));
        assert!(both.contains(&left[0]));
        // What failed is tried again.
        std::fs::write(&fails, "").unwrap();
        let none = first.after(&Replacement::Remove(vec![
            "begins".to_owned(),
            "ends".to_owned(),
        ]));
        let none = none.unwrap();
        let again =
            Replacement::Replace(warpbpf_tool::Object::from_bytes("two", &*object).unwrap());
        let again = none.after(&again).unwrap();
        let why = Err("`ptxas` refuses the function: it says nothing".to_owned());
        assert_eq!(
            (made(none.as_ref()), made(again.as_ref()), runs()),
            (Vec::new(), vec![why; 2], 4)
        );
        std::fs::remove_file(&fails).unwrap();
        assert_eq!((made(again.as_ref()), runs()), (both.clone(), 6));
        // A second tool's come beside them, the very same object too, and go again.
        let joins = Replacement::Join {
            client: 1,
            object: warpbpf_tool::Object::from_bytes("two", &*object).unwrap(),
            options: Box::default(),
        };
        let joined = first.after(&joins).unwrap();
        let of_all = made(joined.as_ref());
        assert_eq!((of_all.len(), runs()), (2, 8));
        assert!(!of_all.iter().any(|function| both.contains(function)));
        let alone = joined.after(&Replacement::Leave { client: 1 }).unwrap();
        assert_eq!(made(alone.as_ref()), both);
        let runs_so_far = runs();
        // Where either may call them, each has its own.
        let either = made(&maker_by((9, 0), true));
        assert_eq!((either.len(), runs()), (4, runs_so_far + 4));
        assert!(both.iter().all(|function| either.contains(function)));
        // What the agent will refuse.
        assert!(
            first
                .after(&Replacement::Remove(vec!["nobody".to_owned()]))
                .is_none()
        );
        assert!(made(&maker((7, 5))).is_empty());
    }

    #[test]
    fn applications_that_come_at_once_have_each_function_made_once() {
        let folder = Folder::new().unwrap();
        let log = folder.0.join("log");
        let text = format!("echo once >> '{}'; sleep 0.2; cat $6 > $5", log.display());
        let ptxas = patient(&script(&folder, &text));
        let device = DeviceInfo {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            driver_version: 13000,
        };
        let callers = Callers {
            splice: true,
            sanitizer: false,
        };
        let options = Options::default();
        let (hang, object) = (Arc::default(), object());
        let maker = Maker::new(&ptxas, &hang, callers, &object, &options, &device);
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| made(&maker))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0] && one.len() == 2));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "once\nonce\n");
    }

    /// Whether the application's calls of NVTX come to the agent is the agent's to know.
    #[test]
    fn programs_by_ranges_that_come_later_have_functions() {
        let folder = Folder::new().unwrap();
        let ptxas = patient(&script(&folder, "cat $6 > $5"));
        let device = DeviceInfo {
            name: String::new(),
            capability: (9, 0),
            sms: 4,
            driver_version: 13000,
        };
        let callers = Callers {
            splice: true,
            sanitizer: false,
        };
        let (hang, object, options) = (Arc::default(), object(), Options::default());
        let maker = Maker::new(&ptxas, &hang, callers, &object, &options, &device);
        let by_ranges = compile(
            "__attribute__((section(\"gpu/entry/*|nvtx=step\"))) int in_step(void *ctx) { return 0; }",
        );
        let replacement =
            Replacement::Replace(warpbpf_tool::Object::from_bytes("ranges", &*by_ranges).unwrap());
        let all = made(maker.after(&replacement).unwrap().as_ref());
        assert_eq!(all.len(), 1);
        assert!(all[0].is_ok());
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
            limit: Duration::from_secs(2),
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
        let hang = Arc::default();
        let maker = || {
            Maker::new(
                &ptxas,
                &hang,
                callers,
                &object,
                &Options::default(),
                &device,
            )
        };
        let begun = maker();
        let all = ["begins", "ends"].map(str::to_owned).to_vec();
        let none = begun.after(&Replacement::Remove(all)).unwrap();
        let replacement =
            Replacement::Replace(warpbpf_tool::Object::from_bytes("two", &*object).unwrap());
        std::fs::write(&hangs, "").unwrap();
        let first = made(none.after(&replacement).unwrap().as_ref());
        let why = format!(
            "`ptxas` ({}) did not end within 2 s and was ended",
            ptxas.file.display()
        );
        assert_eq!((first.len(), runs()), (2, 2));
        assert!(first[0].is_ok());
        assert_eq!(first[1], Err(why.clone()));
        // Who comes does not wait for the same again.
        assert_eq!((made(&maker()), runs()), (vec![Err(why); 2], 2));
        gone(&std::fs::read_to_string(&pids).unwrap());
        // Tried again, the first one is there.
        std::fs::remove_file(&hangs).unwrap();
        let again = made(none.after(&replacement).unwrap().as_ref());
        assert_eq!((again.len(), runs()), (2, 3));
        assert_eq!(again[0], first[0]);
        assert!(again[1].is_ok());
        // Now that one has ended, who comes has all made.
        assert_eq!((made(&maker()), runs()), (again, 5));
    }

    #[test]
    fn an_application_that_comes_waits_for_one_that_hangs_and_the_next_for_none() {
        let folder = Folder::new().unwrap();
        let log = folder.0.join("log");
        let text = format!("echo once >> '{}'; exec sleep 3600", log.display());
        // Far beyond what an application's agent waits.
        let ptxas = patient(&script(&folder, &text));
        let (hang, object) = (Arc::default(), object());
        let why = format!(
            "`ptxas` ({}) did not end within 6 s and was ended",
            ptxas.file.display()
        );
        for capability in [(9, 0), (8, 0)] {
            let device = DeviceInfo {
                name: String::new(),
                capability,
                sms: 4,
                driver_version: 13000,
            };
            let callers = Callers {
                splice: true,
                sanitizer: true,
            };
            let options = Options::default();
            let all = made(&Maker::new(
                &ptxas, &hang, callers, &object, &options, &device,
            ));
            assert_eq!(all, vec![Err(why.clone()); 4]);
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "once\n");
        }
    }
}
