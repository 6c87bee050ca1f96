//! Running programs of the corpus, plain and with a probe, and reading what was counted.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::groups::Group;
use crate::probes::{Counts, Probe};

/// Longest time of one run: far more than any needs, so that a kernel that hangs is a failure and
/// not a silence.
const LIMIT: Duration = Duration::from_secs(120);

/// Where everything is.
#[derive(Debug)]
pub struct Bench {
    /// Folder with `warpbpf`, `soft/`, `objects/`, `kernels/`.
    pub folder: PathBuf,
    /// Run on the soft GPU.
    pub soft: bool,
    scratch: PathBuf,
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: String,
    /// The report of `warpbpf run`; null without one.
    pub report: Value,
}

/// A kernel as the report has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Number, if programs were put into it.
    pub id: Option<u64>,
    /// Name.
    pub name: String,
    /// How it was instrumented, or why not.
    pub method: String,
    /// Launches with programs.
    pub launches: u64,
    /// Launches without.
    pub uninstrumented: u64,
    /// Sites that a program wanted and did not get: how many, for each reason.
    pub left_out: Vec<(String, u64)>,
}

impl Bench {
    /// A bench over a bundle, with files of its own: `name` tells it from others of this process.
    ///
    /// # Errors
    /// Why there is no folder for its files.
    pub fn new(folder: &str, soft: bool, name: &str) -> Result<Bench, String> {
        let own = format!("warpbpf-kernels-{}-{name}", std::process::id());
        let scratch = std::env::temp_dir().join(own);
        std::fs::create_dir_all(&scratch)
            .map_err(|e| format!("cannot make `{}`: {e}", scratch.display()))?;
        Ok(Bench {
            folder: PathBuf::from(folder),
            soft,
            scratch,
        })
    }

    /// The program of a group: on the soft GPU the one with the shared runtime, on a GPU the one
    /// with the static.
    fn program(&self, group: &Group) -> PathBuf {
        let suffix = if self.soft { "-shared" } else { "" };
        self.folder
            .join("kernels")
            .join(format!("{}{suffix}", group.name))
    }

    fn arguments(&self, group: &Group, kernels: &[&str]) -> Vec<String> {
        let captured = self.folder.join("kernels/triton");
        let folder = group.captured.then(|| captured.display().to_string());
        folder
            .into_iter()
            .chain(kernels.iter().map(ToString::to_string))
            .collect()
    }

    /// Names of a group's kernels, in the order in which they run.
    ///
    /// # Errors
    /// Why it does not tell them.
    pub fn list(&self, group: &Group) -> Result<Vec<String>, String> {
        let mut command = Command::new(self.program(group));
        command.arg("--list");
        let run = self.finish(&mut command, true, None)?;
        let names = String::from_utf8_lossy(&run.output);
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        if run.status.success() && !names.is_empty() {
            Ok(names)
        } else {
            Err(format!("it lists no kernels: {}", run.errors.trim_end()))
        }
    }

    /// Runs these kernels of a group with nothing of ours.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn plain(&self, group: &Group, kernels: &[&str]) -> Result<Run, String> {
        let mut command = Command::new(self.program(group));
        command.args(self.arguments(group, kernels));
        self.finish(&mut command, self.soft, None)
    }

    /// As [`Bench::plain`], with machine code that the driver makes of the PTX and not that of the
    /// program: what an instrumented kernel is made from. On the soft GPU there is nothing else.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn recompiled(&self, group: &Group, kernels: &[&str]) -> Result<Run, String> {
        let mut command = Command::new(self.program(group));
        command.args(self.arguments(group, kernels));
        // What the driver compiles it keeps, so what it keeps tells that it has compiled.
        let cache = self.scratch.join("compiled");
        let _ = std::fs::remove_dir_all(&cache);
        command.env("CUDA_FORCE_PTX_JIT", "1");
        command.env("CUDA_CACHE_PATH", &cache);
        command.env_remove("CUDA_CACHE_DISABLE");
        let run = self.finish(&mut command, self.soft, None)?;
        let kept = || std::fs::read_dir(&cache).is_ok_and(|mut files| files.next().is_some());
        if self.soft || kept() {
            Ok(run)
        } else {
            Err("the driver was asked to compile the PTX, and kept nothing that it compiled".into())
        }
    }

    /// Runs these kernels of a group with the programs of a probe in them.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn probed(&self, probe: &Probe, group: &Group, kernels: &[&str]) -> Result<Run, String> {
        let report = self.scratch.join("report.json");
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(self.folder.join("warpbpf"));
        command.args(["run", "--device", if self.soft { "soft" } else { "gpu" }]);
        command.args(probe.flags);
        command.args(["--json", "-o"]).arg(&report);
        command.arg(
            self.folder
                .join("objects")
                .join(format!("{}.bpf.o", probe.object)),
        );
        command.arg("--").arg(self.program(group));
        command.args(self.arguments(group, kernels));
        self.finish(&mut command, false, Some(&report))
    }

    fn finish(
        &self,
        command: &mut Command,
        soft: bool,
        report: Option<&Path>,
    ) -> Result<Run, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |e: std::io::Error| format!("`{program}`: {e}");
        if soft {
            command.env("LD_LIBRARY_PATH", self.folder.join("soft"));
        }
        let (output, errors) = (self.scratch.join("output"), self.scratch.join("errors"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(File::create(&output).map_err(failed)?)
            .stderr(File::create(&errors).map_err(failed)?)
            // A group of its own: what it has started is ended with it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if Instant::now() > deadline {
                let killed = kill_process_group(Pid::from_child(&child), Signal::KILL);
                killed.map_err(|e| failed(e.into()))?;
                child.wait().map_err(failed)?;
                return Err(format!("`{program}` did not end in {LIMIT:?}"));
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let report = report.and_then(|file| std::fs::read(file).ok());
        Ok(Run {
            status,
            output: std::fs::read(output).map_err(failed)?,
            errors: String::from_utf8_lossy(&std::fs::read(errors).map_err(failed)?).into_owned(),
            report: report
                .and_then(|text| serde_json::from_slice(&text).ok())
                .unwrap_or(Value::Null),
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What is left in the folder of temporary files harms nobody.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

impl Run {
    /// The kernels of all code that was loaded.
    pub fn kernels(&self) -> Vec<Kernel> {
        let list = self.report["processes"][0]["kernels"].as_array();
        list.into_iter()
            .flatten()
            .map(|kernel| Kernel {
                id: kernel["id"].as_u64(),
                name: kernel["name"].as_str().unwrap_or_default().to_owned(),
                method: kernel["method"].as_str().unwrap_or_default().to_owned(),
                launches: kernel["launches"].as_u64().unwrap_or(0),
                uninstrumented: kernel["uninstrumented"].as_u64().unwrap_or(0),
                left_out: kernel["left_out"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|each| Some((each[0].as_str()?.to_owned(), each[1].as_u64()?)))
                    .collect(),
            })
            .collect()
    }

    /// What a map of numbers holds for a kernel: keys less `id * stride`. Values per processor are
    /// added up.
    pub fn counts(&self, map: &str, id: u64, stride: u64) -> Counts {
        let maps = self.report["processes"][0]["maps"].as_array();
        let entries = maps
            .into_iter()
            .flatten()
            .find(|m| m["name"] == map)
            .and_then(|m| m["entries"].as_array());
        entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let what = entry["key"].as_u64()?.checked_sub(id * stride)?;
                let value = match &entry["value"] {
                    Value::Array(each) => each.iter().filter_map(Value::as_u64).sum(),
                    one => one.as_u64()?,
                };
                (what < stride && value > 0).then_some((what, value))
            })
            .collect()
    }
}
